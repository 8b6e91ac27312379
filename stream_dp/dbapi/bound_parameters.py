"""Writes parameters into a statement as literals, since queries have no parameters on the wire."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from stream_dp.dbapi.dbapi_errors import DataError, ProgrammingError

# A question mark in a string, a quoted name or a comment is not a parameter.
_PIECE: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|(?P<parameter>\?)""",
    re.DOTALL,
)


def bound(statement: str, parameters: Sequence[Any]) -> str:
    """Returns a statement with each question mark replaced by the next parameter.

    Raises:
        ProgrammingError: There are more parameters than question marks, or fewer.
        DataError: A parameter cannot be written in SQL.
    """
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError("parameters: they must be a list; pass one value for each ?")
    wanted = sum(found["parameter"] is not None for found in _PIECE.finditer(statement))
    if wanted != len(parameters):
        raise ProgrammingError(
            f"parameters: {len(parameters)} are given for {wanted} question marks; pass one for each"
        )
    left = iter(parameters)

    def replaced(found: re.Match[str]) -> str:
        return found[0] if found["parameter"] is None else _literal(next(left))

    return _PIECE.sub(replaced, statement)


def _literal(value: Any) -> str:
    """Returns a value as SQL writes it. A blank keeps a minus sign apart from one before it."""
    if hasattr(value, "item") and not isinstance(value, str):  # a scalar of numpy
        kind, value = getattr(getattr(value, "dtype", None), "kind", ""), value.item()
        if kind in ("m", "M") and isinstance(value, int):  # numpy's times in nanoseconds
            raise DataError(
                "parameters: a time in nanoseconds cannot be written in SQL; pass a date or a datetime"
            )
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f" {value}"
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return f" {Decimal(str(value)):f}"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise DataError(
        f"parameters: a {type(value).__name__} cannot be written in SQL; "
        "pass text, a finite number, a date or a truth value"
    )
