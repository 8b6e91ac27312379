"""Files of queries: one SQL statement or condition a line, or several lines that end with a semicolon."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stream_dp.cli.text.sql_error import pointed_error
from stream_dp.errors import InvalidInput, InvalidQuery, StreamDPError

_PIECE: Final = re.compile(
    r"""'(?:[^'\n]|'')*'|"(?:[^"\n]|"")*"|`(?:[^`\n]|``)*`|--[^\n]*|/\*(?s:.*?)\*/|;|\n"""
)
"""What may end a statement, and what may hide such an end: a string, a name in quotes, or a comment."""


@dataclass(frozen=True, slots=True)
class FileQuery:
    """One query of a file.

    Attributes:
        line: The number of its first line, from 1.
        text: The query, without comments.
    """

    line: int
    text: str

    @property
    def in_one_line(self) -> str:
        return " ".join(self.text.split())

    def fault(self, file: Path | None, error: InvalidQuery) -> StreamDPError:
        """Returns the error of the SQL reader, with the line of the file and the piece that is wrong."""
        found = re.fullmatch(r"line (\d+), column \d+", error.field)
        line = self.line + (int(found[1]) - 1 if found else 0)
        where = "" if file is None else f"{file}, line {line}: "
        return StreamDPError(f"{where}{pointed_error(self.text, error)}")


def read_statements(file: Path) -> list[FileQuery]:
    """Reads the queries of a file.

    Raises:
        InvalidInput: The file holds no query, or is not a text in UTF-8.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        fix = "save it as a text in UTF-8"
        raise InvalidInput("file", f"{file} is not in UTF-8", fix) from None
    if found := statements(text):
        return found
    raise InvalidInput("file", f"{file} holds no query", "write a condition or SQL on each line")


def statements(text: str) -> list[FileQuery]:
    r"""Splits a text into queries: at its semicolons if it has any, or else at its line ends.

    A comment begins with ``--`` and ends with its line, or stands between ``/*`` and ``*/``.

    Example:
        >>> [each.text for each in statements("smoker\n-- a comment\nage >= 30")]
        ['smoker', 'age >= 30']
    """
    pieces, position = [], 0
    for match in _PIECE.finditer(text):
        pieces += [text[position : match.start()], match[0]]
        position = match.end()
    pieces.append(text[position:])
    pieces = [_without_comment(piece) for piece in pieces]
    end = ";" if ";" in pieces else "\n"
    found, line = list[FileQuery](), 1
    current, began = "", 1
    for piece in [*pieces, end]:
        if piece == end:
            if current.strip():
                found.append(FileQuery(began, current.strip()))
            current = ""
        else:
            current += piece
        line += piece.count("\n")
        if not current.strip():
            current, began = "", line
    return found


def _without_comment(piece: str) -> str:
    """Returns a piece with blanks in place of a comment, so that what follows keeps its line and column."""
    return re.sub(r"[^\n]", " ", piece) if piece.startswith(("--", "/*")) else piece
