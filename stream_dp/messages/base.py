"""What requests and replies share: their models, types of names, and faults in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from stream_dp.errors import InvalidInput

DATASET_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"

DatasetName = Annotated[str, StringConstraints(pattern=DATASET_PATTERN)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=64)]

_WHOLE_NUMBER = "it is no whole number", "write a whole number, without quotes"
_NUMBER = "it is no number", "write a number, without quotes"
_LIST = "it is no list", "write a list in brackets: [...]"
_OBJECT = "it is no object", "write an object in braces: {{...}}"
_FAULTS: Mapping[str, tuple[str, str]] = {
    "extra_forbidden": ("this field is unknown", "remove it or fix its spelling"),
    "missing": ("this field is missing", "add it"),
    "greater_than": ("it is too small", "give more than {gt}"),
    "greater_than_equal": ("it is too small", "give at least {ge:g}"),
    "less_than": ("it is too large", "give less than {lt}"),
    "less_than_equal": ("it is too large", "give at most {le:g}"),
    "too_short": ("the list is too short", "give at least {min_length}"),
    "too_long": ("the list is too long", "give at most {max_length}"),
    "string_too_short": ("the text is empty", "write something"),
    "string_too_long": ("the text is too long", "use at most {max_length} characters"),
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": ("it is neither true nor false", "write true or false, without quotes"),
    "string_type": ("it is no text", "write a text in double quotes"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "literal_error": ("it is none of the values known here", "write {expected}"),
    "union_tag_invalid": ("its {discriminator} is unknown", "write one of {expected_tags}"),
    "kind_unknown": ("it names a kind that does not exist", "name some of {known}"),
    "union_tag_not_found": ("{discriminator} is missing", "add it, as in docs/messages.md"),
}
"""Pydantic's faults in words: what is wrong, and how to mend it."""

_SPELLINGS = {
    DATASET_PATTERN: "use 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
    ID_PATTERN: "use 1 to 128 printable ASCII characters without blanks",
}


def _spelling(pattern: str) -> str:
    return _SPELLINGS.get(pattern, f"it must match {pattern}")


_M = TypeVar("_M", bound=BaseModel)


def validated(
    model: type[_M], document: object, kind: type[InvalidInput], *, quoting: bool = False
) -> _M:
    """A parsed document as a message. Raises an error of ``kind`` that names the first fault.

    Args:
        quoting: Whether the error may repeat what the document says. Only for the person who wrote the
            document: a worker publishes its errors, and anything may have been sent to it by mistake.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _translated(error, kind, document, quoting=quoting) from None


def _translated(
    error: ValidationError, kind: type[InvalidInput], document: object, *, quoting: bool
) -> InvalidInput:
    """The first fault of a pydantic error as one of ours."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":  # if its name is misspelt, the field that is there tells more
        beside = (e for e in others if e["loc"][:-1] == first["loc"][:-1])
        first = next((e for e in beside if e["type"] == "extra_forbidden"), first)
    found, facts = first["loc"], first.get("ctx", {})
    if first["type"] == "string_pattern_mismatch":
        problem, fix = "it is not spelt as it must be", _spelling(facts["pattern"])
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
        found, problem = found[:-1], "it has a field that is unknown"
    return kind(_place(found, document, quoting=quoting), problem, fix)


def _place(found: tuple[int | str, ...], document: Any, *, quoting: bool) -> str:
    """Where a fault is, without the tags of unions. An attribute goes by its name if that may be quoted."""
    parts = [str(part) for part in found]
    if found[:1] == ("attributes",) and len(found) > 1:
        attribute = document["attributes"][found[1]]
        if quoting and isinstance(attribute, Mapping) and isinstance(attribute.get("name"), str):
            parts[1] = attribute["name"][:64]
        del parts[2:3]
    elif found[:1] == ("mechanism",):
        del parts[1:2]
    return ".".join(parts) or "message"


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


def tupled(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


__all__ = [
    "DATASET_PATTERN",
    "ID_PATTERN",
    "TOPIC_PATTERN",
    "AttributeName",
    "DatasetName",
    "Finite",
    "Id",
    "Reply",
    "Request",
    "tupled",
    "validated",
]
