"""``WITHIN 5%`` and ``COSTING AT MOST 2%``: how precise an answer must be, and what it may cost.

These clauses stand at the end of a query in SQL. SQL does not have them, so they are read from the tokens
before the rest is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from stream_dp.errors import InvalidQuery

_FORMS: Final = "write WITHIN 5% of the answer, WITHIN 0.5% OF ROWS, or WITHIN 50 for a number"
_BEFORE_OPERANDS: Final = frozenset(
    {"SELECT", "WHERE", "BY", "AND", "OR", "NOT", "IN", "IS", "BETWEEN", "AS"}
)
_COST_FORMS: Final = "write COSTING AT MOST 2%"


@dataclass(frozen=True, slots=True)
class Clauses:
    """The clauses of a query.

    Attributes:
        at: Where they begin in the text, which is its length if there are none.
        fields: ``error`` and ``at_most``, as in a query message; those that are said.
    """

    at: int
    fields: dict[str, Any]


class _Fault(Exception):
    """A clause is written wrongly: at which word, what the problem is, and how to fix it.

    The number of words stands for the end, where something is missing.
    """


def read_clauses(tokens: Sequence[Any], length: int, error: Any) -> Clauses:
    """Reads the clauses at the end of a query.

    Args:
        tokens: The tokens of the whole text, as sqlglot finds them.
        length: The length of the text.
        error: ``error(offset, problem, fix)`` makes the error for a position of the text.

    Raises:
        InvalidQuery: A clause is written wrongly, or twice.
    """
    words = [token.text.upper() for token in tokens]
    quoted = [token.end - token.start + 1 > len(token.text) for token in tokens]
    offsets = [*(token.start for token in tokens), length]
    begins = (
        i
        for i in range(1, len(words))
        if not quoted[i] and (quoted[i - 1] or _ends_operand(words[i - 1])) and _begins(words, i)
    )
    first = index = next(begins, len(words))
    fields: dict[str, Any] = {}
    try:
        while index < len(words):
            name, value, after = _clause(words, index)
            if name in fields:
                raise _Fault(index, f"{words[index]} is there twice", "write it once")
            fields[name], index = value, after
    except _Fault as fault:
        at, problem, fix = fault.args
        raise error(offsets[at], problem, fix) from None
    return Clauses(offsets[first], fields)


def as_at_most(text: str) -> float:
    """Reads a price as ``COSTING AT MOST`` has it, such as ``2%``.

    Raises:
        InvalidQuery: It is not a share of a budget.
    """
    words = text.upper().replace("%", " % ").split()
    try:
        share, after = _price(words, 0)
        if after < len(words):
            raise _Fault(after, f"{words[after]} is not understood here", "")
    except _Fault as fault:
        raise InvalidQuery("at_most", fault.args[1], "write a percentage such as 2%") from None
    return share


def _ends_operand(word: str) -> bool:
    """Whether a condition or a list can end with a word, so that a clause may follow."""
    last = word.rpartition(" ")[2]  # GROUP BY is one token
    return (last[-1:].isalnum() or last[-1:] in ")_*") and last not in _BEFORE_OPERANDS


def _begins(words: Sequence[str], index: int) -> bool:
    """Whether a clause begins at a word, and not an attribute of that name."""
    following = words[index + 1] if index + 1 < len(words) else ""
    if words[index] == "WITHIN":
        return following != "GROUP" and (
            not following or following[0].isalnum() or following in ".-+"
        )
    return words[index] == "COSTING" and (not following or following[0].isalnum())


def _clause(words: Sequence[str], index: int) -> tuple[str, Any, int]:
    """Returns the field that a clause sets, its value, and the index after it."""
    if words[index] == "WITHIN":
        error, after = _error(words, index + 1)
        return "error", error, after
    if words[index] != "COSTING":
        raise _Fault(index, f"{words[index]} is not understood here", f"{_FORMS}, at the end")
    if list(words[index + 1 : index + 3]) != ["AT", "MOST"]:
        raise _Fault(index + 1, "AT MOST is expected after COSTING", _COST_FORMS)
    share, after = _price(words, index + 3)
    return "at_most", share, after


def _error(words: Sequence[str], index: int) -> tuple[float | dict[str, float], int]:
    number, after = _number(words, index, _FORMS)
    if after == len(words) or words[after] != "%":
        return {"value": float(number)}, after
    share, after = float(number / 100), after + 1
    if share >= 1.0:
        raise _Fault(index, "this is not below 100%", _FORMS)
    if list(words[after : after + 1]) != ["OF"]:
        return {"relative": share}, after
    if list(words[after + 1 : after + 2]) != ["ROWS"]:
        raise _Fault(after + 1, "ROWS is expected after OF", _FORMS)
    return share, after + 2


def _price(words: Sequence[str], index: int) -> tuple[float, int]:
    number, after = _number(words, index, _COST_FORMS)
    if after == len(words) or words[after] != "%":
        raise _Fault(after, "% is expected after the number", _COST_FORMS)
    if number > 100:
        raise _Fault(index, "this is above 100%", _COST_FORMS)
    return float(number / 100), after + 1


def _number(words: Sequence[str], index: int, fix: str) -> tuple[Decimal, int]:
    """Returns the positive number at an index, and the index after it; ``.5`` is two words."""
    after = index + (2 if list(words[index : index + 1]) == ["."] else 1)
    try:
        number = Decimal("".join(words[index:after]))
    except InvalidOperation:
        raise _Fault(index, "a number is expected here", fix) from None
    if not number.is_finite() or number <= 0 or float(number) == 0.0:
        raise _Fault(index, "this is not a number above 0", fix)
    return number, after
