"""Writes the queries on the topic ``queries`` as readable text, for the lists of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stream_dp.errors import InvalidInput
from stream_dp.messages import QueryEnvelope, QueryFields, StandingQuery, Window, read_json
from stream_dp.sql import name_in_sql

_LARGEST: Final = 16_384
_LONGEST: Final = 200
_SIGNS: Final = {"eq": "=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def queries(value: bytes | None) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yields (data set, analyst, id) and the text of each query in a record.

    It yields nothing for a record that is not a query or is very long. It skips quotes, because another query
    may use the same id.
    """
    try:
        envelope = QueryEnvelope.read(read_json(value or b"", max_bytes=_LARGEST))
    except InvalidInput:
        return
    for item in envelope.queries:
        try:
            query = QueryFields.read(item)
            words = words_of(query)
        except (InvalidInput, AttributeError, TypeError, ValueError):
            continue
        if query.quote:
            continue
        yield (envelope.dataset, envelope.analyst, query.query_id), _short(words)


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def sql_of(query: QueryFields) -> str | None:
    """Writes a query as SQL, without its window. None for a kind that SQL here does not have."""
    if query.fresh or query.once or query.error is not None or query.at_most is not None:
        return None
    return _select(query)


def _select(query: QueryFields) -> str | None:
    """Writes what a query asks as SQL, without its window, its precision and its price."""
    where = "" if query.where is None else condition_in_sql(query.where)
    by = ", ".join(_name(name) for name in query.group_by)
    match query.kind:
        case "predicate":
            return where
        case "table":
            wanted = "COUNT(*)"
        case "sum":
            summed = _name(query.attribute or "")
            limited = summed if query.up_to is None else f"LEAST({summed}, {query.up_to:g})"
            wanted = f"{'AVG' if query.mean else 'SUM'}({limited})"
            wanted = f"COUNT(*), {wanted}" if query.count_rows else wanted
        case "share" if query.share_of is not None:
            wanted = f"COUNT(*) FILTER (WHERE {condition_in_sql(query.share_of)}) / COUNT(*)"
        case "quantile":
            wanted = f"QUANTILE({_name(query.attribute or '')}, {_constant(query.rank)})"
        case "correlation":
            wanted = f"CORR({_name(query.attribute or '')}, {_name(query.other or '')})"
        case "mode":
            return f"SELECT MODE({_name(query.attribute or '')})"
        case _:
            return None
    head = f"{by}, {wanted}" if by else wanted
    return f"SELECT {head}{f' WHERE {where}' if where else ''}{f' GROUP BY {by}' if by else ''}"


def _name(name: object) -> str:
    return name_in_sql(str(name))


def standing_of(listed: StandingQuery) -> QueryFields | None:
    """Returns the query that is listed as standing; None if a newer release wrote it."""
    try:
        return QueryFields.read({**listed.query, "standing": True})
    except InvalidInput:
        return None


def words_of_standing(listed: StandingQuery) -> str:
    """Writes a standing query as a short text to read."""
    query = standing_of(listed)
    return "a query of a newer release" if query is None else _short(words_of(query))


def words_of(query: QueryFields) -> str:
    """Writes a query as text to read."""
    words = _select(query) or _of_other_kind(query) or "every row"
    if query.fresh:
        words = f"FRESH {words}"
    if query.once is not None:
        words = f"{words}, each person once"
    if query.window is not None:
        so_far = ", with the rows so far" if query.window.running else ""
        words = f"{words}, {_window(query.window)}{so_far}"
    if query.series is not None:
        words = f"{words}, by {query.series}"
    if query.frame is not None:
        so_far = "all so far" if query.frame == "running" else f"the last {query.frame:,}"
        words = f"{words}, {so_far} together"
    if (minus := query.minus_window) is None:
        return words
    if minus.last_phases is not None:
        return f"{words}, minus the last {minus.last_phases} phases"
    before = minus.previous or f"{minus.previous_phases} phases"
    return f"{words}, minus the {before} before"


def _of_other_kind(query: QueryFields) -> str:
    """Writes a query of a kind that SQL does not have here."""
    parts = []
    if query.kind not in ("predicate", "table"):
        facts = (query.attribute, query.rank, query.low, query.high)
        said = ", ".join(str(fact) for fact in facts if fact is not None)
        parts.append(query.kind if query.kind == "difference" else f"{query.kind}({said})")
    if query.where is not None:
        parts.append(condition_in_sql(query.where))
    if query.wheres:
        parts.append(f"of {len(query.wheres)} conditions")
    if query.group_by:
        parts.append(f"GROUP BY {', '.join(map(_name, query.group_by))}")
    return " ".join(parts)


def _window(window: Window) -> str:
    if window.last_phases is not None:
        return f"last {window.last_phases} phases"
    if window.phases is not None:
        first, last = window.phases
        return f"phases {first} to {last}"
    if window.last is not None:
        return f"last {window.last}"
    ends = (("since", window.since), ("until", window.until))
    return " ".join(f"{name} {end}" for name, end in ends if end is not None)


def condition_in_sql(tree: Mapping[str, Any], *, inside: bool = False) -> str:
    """Writes a condition as SQL. It never shows an invalid condition, which might be a row."""
    for connective, sign in (("all", " AND "), ("any", " OR ")):
        if connective in tree:
            whole = sign.join(condition_in_sql(part, inside=True) for part in tree[connective])
            return f"({whole})" if inside else whole
    if "not" in tree:
        return f"NOT {condition_in_sql(tree['not'], inside=True)}"
    name = _name(tree.get("attribute"))
    for key, sign in _SIGNS.items():
        if key in tree:
            return f"{name} {sign} {_constant(tree[key])}"
    if "in" in tree:
        return f"{name} IN ({', '.join(map(_constant, tree['in']))})"
    if "between" in tree:
        return f"{name} BETWEEN {' AND '.join(map(_constant, tree['between']))}"
    if "is_missing" in tree:
        return f"{name} IS {'' if tree['is_missing'] else 'NOT '}NULL"
    if "is_other" in tree:
        return f"{name} {'=' if tree['is_other'] else '<>'} 'other'"
    return "an invalid condition"


def _constant(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    return f"{value:g}" if isinstance(value, float) else str(value)
