"""Constants as SQL writes them: numbers, and texts that are put together of constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault, short

FOLDS: dict[Any, Callable[[str], str]] = {exp.Lower: str.lower, exp.Upper: str.upper}
"""The functions that change the case of a text."""

_MOST_DIGITS = 15


def is_number(node: Any) -> bool:
    """Returns whether a piece is a number without a sign."""
    return isinstance(node, exp.Literal) and not node.is_string


def whole_number(node: Any) -> int | None:
    """Returns the whole number that a piece is. None for another piece, and for numbers that are huge."""
    is_whole = is_number(node) and node.this.isdecimal() and len(node.this) <= _MOST_DIGITS
    return int(node.this) if is_whole else None


def number(node: Any) -> float:
    """Returns the number that a literal stands for: a whole one where it is written so.

    Raises:
        Fault: It is not finite.
    """
    try:
        value: float = int(node.this) if node.this.isdecimal() else float(node.this)
    except ValueError:  # digits without end, or what sqlglot takes for a number
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault(node, f"{short(node)} is not a finite number", "write a number such as 29.5")
    return value


def exact(node: Any) -> Fraction:
    """Returns the number that a literal stands for, to compute with.

    Raises:
        Fault: It is not finite.
    """
    return Fraction(repr(number(node)))


def constant_text(node: Any) -> str | None:
    """Returns the text that constants make, such as 'a' || '%' or LOWER('A%'). None for anything else."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else None
    if type(node) in FOLDS:
        text = constant_text(node.this)
        return None if text is None else FOLDS[type(node)](text)
    if isinstance(node, exp.DPipe | exp.Concat):
        pieces = node.expressions or (node.this, node.expression)
        texts = [text for piece in pieces if (text := constant_text(piece)) is not None]
        return "".join(texts) if len(texts) == len(pieces) else None
    return None
