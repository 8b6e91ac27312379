"""Files of definitions, and of parts of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.messages import TOPICS, Definition, read_json

_MOST_BYTES: Final = TOPICS["datasets"].max_value_bytes
_MOST_CHARACTERS: Final = 256
"""The most characters of a value of a category."""
_TABLES: Final = (".csv", ".tsv", ".gz", ".parquet", ".ndjson", ".jsonl")


def read_definition(file: Path) -> Definition:
    """Reads the definition in a file, with the values of its categories that other files list.

    Raises:
        InvalidInput: The file is not a definition, or one of the others holds no values. The error says where
            and how to fix it.
    """
    return definition_in(read_object(file, "a definition"), file)


def definition_in(document: dict[str, Any], file: Path) -> Definition:
    """Reads a definition from a parsed file, see ``read_definition``."""
    attributes = document.get("attributes")
    if isinstance(attributes, list):
        listed = [
            _with_values(attribute, f"attributes.{index}.values", file.parent)
            for index, attribute in enumerate(attributes)
        ]
        document = {**document, "attributes": listed}
    definition = Definition.read({"version": 1, **document}, quoting=True)
    if len(definition.to_bytes()) > _MOST_BYTES:
        problem = f"with all of its values it has more than {_MOST_BYTES:,} bytes"
        raise InvalidInput(file.name, problem, "list fewer values")
    return definition


def _with_values(attribute: object, field: str, folder: Path) -> object:
    """Puts a list of values in place of the name of the file that has them."""
    if isinstance(attribute, dict) and isinstance(given := attribute.get("values"), str):
        values = values_of(given, field, folder) if given.startswith("@") else given
        return {**attribute, "values": values}
    return attribute


def values_of(given: str, field: str, folder: Path) -> list[str]:
    """Reads the values of a category that a definition names by their file, such as "@codes.txt".

    The file has one value a line. Blank lines are none.

    Args:
        given: What the definition says.
        field: The field of the definition, for errors.
        folder: The folder of the definition.

    Raises:
        InvalidInput: This names no file of the folder, or the file holds something else. The error names the
            line.
    """
    name = Path(given.removeprefix("@"))
    # The values are published, so a definition from elsewhere must not name any file of this machine.
    if name.is_absolute() or ".." in name.parts:
        problem = f"{name} is not in the folder of the definition"
        raise InvalidInput(field, problem, "move the file there, and write its name alone")
    fix = "write a text file with one value a line"
    if name.suffix.lower() in _TABLES:
        raise InvalidInput(field, f"{name} is a table", f"{fix}, and without a heading")
    try:
        lines = (folder / name).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput(field, f"{name} is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        problem = f"{folder / name} cannot be read ({error.strerror})"
        raise InvalidInput(field, problem, "compare the name of the file") from None
    seen: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if len(line) > _MOST_CHARACTERS:
            problem = f"{name} line {number} has more than {_MOST_CHARACTERS} characters"
            raise InvalidInput(field, problem, "write one shorter value a line")
        if line and (first := seen.setdefault(line, number)) != number:
            problem = f"{name} line {number} has the value of line {first} again"
            raise InvalidInput(field, problem, "delete one of the two")
    if not seen:
        raise InvalidInput(field, f"{name} is empty", fix)
    return list(seen)


def read_object(file: Path, what: str) -> dict[str, Any]:
    """Reads the JSON object in a file.

    Args:
        file: The file.
        what: What the file should hold.

    Raises:
        InvalidInput: The file holds something else.
    """
    text = file.read_bytes()
    if len(text) > _MOST_BYTES:
        problem = f"{what} has at most {_MOST_BYTES:,} bytes"
        raise InvalidInput(file.name, problem, "check that this is not the file of the rows")
    return object_in(text, file.name)


def object_in(text: bytes, name: str) -> dict[str, Any]:
    """Reads a text that is a JSON object.

    Args:
        text: The text.
        name: What an error names.

    Raises:
        InvalidInput: It is something else.
    """
    try:
        return read_json(text, max_bytes=_MOST_BYTES)
    except InvalidMessage as error:
        raise InvalidInput(name, error.problem, error.fix) from None
