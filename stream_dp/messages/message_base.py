"""The models, types of names and error texts that requests and replies share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from stream_dp.errors import InvalidInput, InvalidMessage

DATASET_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:00)?$"
TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
PRODUCER_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"

DatasetName = Annotated[str, StringConstraints(pattern=DATASET_PATTERN)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=64)]

_WHOLE_NUMBER = "it must be a whole number", "write a whole number without quotes"
_NUMBER = "it must be a number", "write a number without quotes"
_LIST = "it must be a list", "write a list in brackets: [...]"
_OBJECT = "it must be an object", "write an object in braces: {{...}}"
_FAULTS: Mapping[str, tuple[str, str]] = {
    "extra_forbidden": ("this field is unknown", "remove it or fix its spelling"),
    "missing": ("this field is missing", "add it"),
    "greater_than": ("it is too small", "use a number greater than {gt}"),
    "greater_than_equal": ("it is too small", "use at least {ge:g}"),
    "less_than": ("it is too large", "use a number less than {lt}"),
    "less_than_equal": ("it is too large", "use at most {le:g}"),
    "too_short": ("the list is too short", "write at least {min_length}"),
    "too_long": ("the list is too long", "write at most {max_length}"),
    "string_too_short": ("the string is empty", "write at least one character"),
    "string_too_long": ("the string is too long", "use at most {max_length} characters"),
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": ("it must be true or false", "write true or false without quotes"),
    "string_type": ("it must be a string", "write a string in double quotes"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "literal_error": ("it is not one of the accepted values", "write {expected}"),
    "union_tag_invalid": ("its {discriminator} is unknown", "write one of {expected_tags}"),
    "error_form": (
        "it is neither a share of the rows nor one relative error, one value or one error of a mean",
        'write 0.005, {{"relative": 0.05}}, {{"value": 2.5}} or {{"mean": 2.5}}',
    ),
    "kind_unknown": ("it names a kind that does not exist", "choose from {known}"),
    "union_tag_not_found": ("{discriminator} is missing", "add it as in docs/messages.md"),
}
"""The problem and the fix for each type of error that pydantic reports."""

_SPELLINGS = {
    DATASET_PATTERN: "use 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit",
    DATE_PATTERN: "write a date such as 2026-03-14, or a full hour such as 2026-03-14T10:00",
    PRODUCER_PATTERN: "use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'",
    ID_PATTERN: "use 1 to 128 printable ASCII characters without blanks",
}


def _spelling(pattern: str) -> str:
    return _SPELLINGS.get(pattern, f"it must match {pattern}")


_M = TypeVar("_M", bound=BaseModel)
T = TypeVar("T")


def validated(
    model: type[_M], document: object, kind: type[InvalidInput], *, quoting: bool = False
) -> _M:
    """Validates a parsed document as a message.

    Args:
        model: The class of the message.
        document: The parsed document.
        kind: The class of the error to raise.
        quoting: Whether the error may quote the document. Set it only if the reader of the error wrote the
            document: a worker publishes its errors, and someone may have sent it rows by mistake.

    Returns:
        The message.

    Raises:
        InvalidInput: The document is not such a message. The error names the first fault.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _translated(error, kind, document, quoting=quoting) from None


def _translated(
    error: ValidationError, kind: type[InvalidInput], document: object, *, quoting: bool
) -> InvalidInput:
    """Translates the first fault of a pydantic error."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":  # a misspelled name leaves an unknown field, the better hint
        siblings = (e for e in others if e["loc"][:-1] == first["loc"][:-1])
        first = next((e for e in siblings if e["type"] == "extra_forbidden"), first)
    found, facts = first["loc"], first.get("ctx", {})
    if first["type"] == "string_pattern_mismatch":
        problem, fix = "it has characters that are not allowed", _spelling(facts["pattern"])
    elif first["type"] in _FAULTS:
        problem, fix = (words.format_map(facts) for words in _FAULTS[first["type"]])
    elif first["type"] == "value_error":
        problem, fix = str(facts["error"]), "see docs/messages.md"
    else:
        problem, fix = "it is not valid", "see docs/messages.md"
    if quoting:
        if first["type"] == "kind_unknown":
            problem = f"there is no {facts['given']!r}"
        if first["type"] == "union_tag_invalid":
            problem = f"there is no {facts['discriminator']} '{facts['tag']}'"
        if isinstance(first.get("input"), str | int | float | bool):
            problem += f" (got {first['input']!r:.60})"
    elif first["type"] == "extra_forbidden":
        found, problem = found[:-1], "it has an unknown field"
    return kind(_place(found, document, quoting=quoting), problem, fix)


def _place(found: tuple[int | str, ...], document: Any, *, quoting: bool) -> str:
    """Returns the path of a fault without the tags of unions.

    The path names an attribute, or an entry of ``analysts``, by its name if it may be quoted, or else by its
    index. It names a key of ``also`` only then.
    """
    parts = [str(part) for part in found]
    if found[:1] == ("attributes",) and len(found) > 1:
        attribute = document["attributes"][found[1]]
        if quoting and isinstance(attribute, Mapping) and isinstance(attribute.get("name"), str):
            parts[1] = attribute["name"][:64]
        del parts[2:3]
    elif found[:1] == ("analysts",) and len(found) > 1:
        names = list(document["analysts"])
        if not quoting:
            parts[1] = str(names.index(found[1]))
        del parts[2 : 3 if found[2:3] == ("[key]",) else 2]
    elif found[:1] in {("mechanism",), ("error",)}:
        if found[2:3] == ("workload",):
            if "windows" in found:
                del parts[6:]
            del parts[3:4]
        del parts[1:2]
    if "also" in found and not quoting:
        del parts[parts.index("also") + 1 :]
    return ".".join(parts) or "message"


class _Message(BaseModel):
    """The base of all messages: what is None is left out of their bytes."""

    def to_bytes(self) -> bytes:
        """Returns the message as JSON, without the fields that are None."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class Request(_Message):
    """The base of messages to the worker. Unknown fields are forbidden.

    Attributes:
        invalid: The class of the error where a document is not such a message.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    invalid: ClassVar[type[InvalidInput]] = InvalidMessage

    @classmethod
    def read(cls, document: object, *, quoting: bool = False) -> Self:
        """Validates a parsed document.

        Args:
            document: The parsed JSON object.
            quoting: Whether an error may quote the document, see ``validated``.

        Raises:
            InvalidInput: The document is not valid. The error names the field and the fix.
        """
        return validated(cls, document, cls.invalid, quoting=quoting)


class Reply(_Message):
    """The base of messages from the worker. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Unchanging(dict[str, T]):
    """An object of a message. It does not change, so it has a hash as the message that it is in."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def tupled(value: object) -> object:
    """Converts a list to a tuple and returns other values unchanged."""
    return tuple(value) if isinstance(value, list) else value
