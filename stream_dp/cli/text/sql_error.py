"""Error messages that show the piece of SQL they refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stream_dp.errors import InvalidQuery
from stream_dp.messages import Reason

_SHOWN = 100


def in_options(message: str) -> str:
    """Returns the text of a worker with the option of the command line in place of a field of messages."""
    return re.sub(r"\bat_most\b", "--at-most", message)


def pointed_error(sql: str, error: InvalidQuery) -> str:
    """Formats an error of the SQL reader, with the piece of SQL under it."""
    words = f"{error.problem}; {error.fix}"
    found = re.fullmatch(r"line (\d+), column (\d+)", error.field)
    if found is None:
        return str(error)
    lines = sql.split("\n")
    number, column = int(found[1]) - 1, int(found[2]) - 1
    start = sum(len(line) + 1 for line in lines[:number]) + column
    return words + _picture(sql, start, _end_of_token(sql, start))


def pointed_refusal(sql: str, where: Mapping[str, Any] | None, reason: Reason) -> str:
    """Formats a worker's refusal, with the piece of the condition under it if it can be found."""
    message = in_options(reason.message)
    found = re.match(r"([\w.\[\]]+): (.*)", message, re.DOTALL)
    if found is None:
        return message
    if where is None or not found[1].startswith("where"):
        return found[2]
    span = _span_of_comparison(sql, _leaf(where, found[1]))
    return found[2] + (_picture(sql, *span) if span else "")


def _leaf(where: Mapping[str, Any], path: str) -> Any:
    """Returns the condition that contains a path such as ``where.all[1].ge``."""
    node: Any = where
    for name, index in re.findall(r"\.(all|any|not)(?:\[(\d+)\])?", path):
        node = node[name][int(index)] if index else node[name]
    return node


def _tokens(sql: str) -> list[Any]:
    import sqlglot
    from sqlglot.errors import SqlglotError

    from stream_dp.sql.reading.grammar import Grammar

    try:
        return list(sqlglot.tokenize(sql, Grammar))
    except SqlglotError:
        return []


def _end_of_token(sql: str, start: int) -> int:
    return next((t.end + 1 for t in _tokens(sql) if t.start == start), start + 1)


def _span_of_comparison(sql: str, leaf: Any) -> tuple[int, int] | None:
    """Finds where the attribute of a leaf stands nearest to its number."""
    if not isinstance(leaf, Mapping) or "attribute" not in leaf:
        return None
    numbers = {
        float(number)
        for value in leaf.values()
        for number in (value if isinstance(value, list) else [value])
        if isinstance(number, int | float)
    }
    tokens = _tokens(sql)
    names = [t for t in tokens if t.text.lower() == str(leaf["attribute"]).lower()]
    values = [t for t in tokens if _number(t.text) in numbers]
    joints = [t.start for t in tokens if t.text.upper() in ("AND", "OR")]

    def distance(pair: tuple[Any, Any]) -> tuple[bool, int]:
        start, end = sorted(token.start for token in pair)
        return any(start < joint < end for joint in joints), end - start

    pairs = [(name, value) for name in names for value in values]
    if not pairs:
        return None
    name, value = min(pairs, key=distance)
    return min(name.start, value.start), max(name.end, value.end) + 1


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _picture(sql: str, start: int, end: int) -> str:
    """Returns the line of ``sql`` that holds ``start``, with carets under the piece."""
    first = sql.rfind("\n", 0, start) + 1
    last = sql.find("\n", start)
    line = sql[first : last if last >= 0 else len(sql)].replace("\t", " ")
    if not line.strip():
        return ""
    column, length = start - first, max(1, min(end, first + len(line)) - start)
    cut = max(0, column - _SHOWN // 2) if len(line) > _SHOWN else 0
    shown = line[cut : cut + _SHOWN]
    return f"\n  {shown}\n  {' ' * (column - cut)}{'^' * min(length, _SHOWN)}"
