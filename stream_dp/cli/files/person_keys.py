"""The keys of persons in a file: one a line, or in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from stream_dp.cli.files.file_columns import FileColumns
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.errors import InvalidInput

_ROWS: Final = 20_000


def person_keys(file: Path, column: str) -> list[Any]:
    """Returns the keys in a file, without the empty ones.

    Args:
        file: A text file (.txt) with a key on each line, or a file that ``ingest`` reads.
        column: The column of the keys. A text file has none.

    Raises:
        InvalidInput: The file cannot be read, or has no such column. The error quotes no line of it.
    """
    if file.suffix.lower() == ".txt":
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InvalidInput(file.name, "it is not UTF-8", "save it in UTF-8") from None
        return [key for line in lines if (key := line.strip())]
    read = FileColumns(file, {"key": column}, FileReading(), person=None, listed={})
    if column not in read.names():  # its first line may be a key
        raise InvalidInput(
            "--column",
            f"{file.name} has no column {column}",
            "name the column of the keys, or write one key a line to a .txt file",
        )
    return [key for some, _ in read.read(_ROWS) for key in some["key"] if key is not None]
