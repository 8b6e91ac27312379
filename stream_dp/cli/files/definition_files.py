"""Files of definitions, and of parts of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.messages import TOPICS, Definition, read_json

_MOST_BYTES: Final = TOPICS["datasets"].max_value_bytes


def read_definition(file: Path) -> Definition:
    """Reads the definition in a file.

    Raises:
        InvalidInput: The file is not a definition. The error says where and how to fix it.
    """
    return Definition.read({"version": 1, **read_object(file, "a definition")}, quoting=True)


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
