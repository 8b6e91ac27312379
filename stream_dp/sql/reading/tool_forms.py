"""What BI tools and drivers write, as the plain SQL that the rest of the translation reads.

| they write | it is read as |
|---|---|
| ``"public"."people"``, ``stream_dp.public.people`` | ``people`` |
| ``public.people.city`` | ``people.city`` |
| ``30::INTEGER``, ``'Graz'::VARCHAR``, ``TO_DATE('2026-01-01', 'YYYY-MM-DD')`` | the constant |
| ``city::TEXT`` of a category | ``city`` |
| ``DATE_TRUNC('day', c)``, ``c::DATE`` of a category that lists days | ``c`` |
| ``city = ANY('{Graz,Bonn}')``, ``= ANY(ARRAY[...])`` | ``city IN ('Graz', 'Bonn')`` |
| ``city <> ALL('{Graz,Bonn}')`` | ``NOT city IN ('Graz', 'Bonn')`` |
| ``CASE WHEN x = 0 THEN NULL ELSE x END`` | ``NULLIF(x, 0)`` |
| ``DATE_TRUNC('month', d::TIMESTAMP)::DATE``, ``TRUNC(EXTRACT(YEAR FROM d))`` | without the casts |
| ``d BETWEEN '2026-01-01T09:30:00Z' AND '...Z'`` of a date by day | the same of ``DATE_TRUNC('day', d)`` |
| ``SELECT city, SUM(n) FROM (SELECT city, COUNT(*) AS n ... GROUP BY city) GROUP BY 1`` | the SELECT below |
| ``COUNT(*) AS select`` | ``COUNT(*) AS "select"`` |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.tokens import TokenType

from stream_dp.sql.reading.literals import constant_text, is_number, whole_number
from stream_dp.sql.reading.scopes import name_of
from stream_dp.sql.reading.summed_counts import unwrap

_Kinds: TypeAlias = Mapping[str, str]
"""What each attribute is, by its name in lower case: ``_kind_of`` says it."""


_SCHEMA: Final = "public"
_TYPES: Final = exp.DataType.Type
_TEXTS: Final = (_TYPES.VARCHAR, _TYPES.TEXT, _TYPES.NVARCHAR, _TYPES.NAME)
_TIMES: Final = (
    _TYPES.DATE,
    _TYPES.TIMESTAMP,
    _TYPES.TIMESTAMPNTZ,
    _TYPES.TIMESTAMPTZ,
    _TYPES.DATETIME,
)
_TRUTHS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_NUMBER: Final = re.compile(r"(-?)(\d+(?:\.\d+)?)", re.ASCII)
_ELEMENT: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*+)"|([^",{}\\]*+))\s*(?:,|$)', re.DOTALL)
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PARTS: Final = (exp.Extract, exp.Year, exp.Quarter, exp.Month, exp.Day)
_TRUNCATIONS: Final = (exp.DateTrunc, exp.TimestampTrunc)
_PERIODS: Final = ("year", "quarter", "month", "week", "day", "hour")
_WITHIN_A_DAY: Final = ("hour", "minute", "second")
_NAMED: Final = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING)
_AFTER_ALIAS: Final = (TokenType.COMMA, TokenType.FROM)


def name_keywords(tokens: Sequence[Any]) -> None:
    """Makes names of the keywords that stand alone after AS in a SELECT list, such as ``AS select``."""
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        is_alias = before.token_type == TokenType.ALIAS and token.text.isidentifier()
        is_last = after is None or after.token_type in _AFTER_ALIAS
        if is_alias and is_last and token.token_type not in _NAMED:
            token.token_type = TokenType.VAR


def as_plain_sql(select: Any, attributes: Sequence[Mapping[str, Any]]) -> None:
    """Rewrites a statement in place. Its columns keep their names.

    Args:
        select: The statement, as sqlglot reads it.
        attributes: The attributes of the data set; none where only names are wanted.
    """
    kinds = {attribute["name"].lower(): _kind_of(attribute) for attribute in attributes}
    names = list(map(name_of, select.expressions))
    for node in reversed(list(select.walk())):  # what is inside comes first
        rule = _RULES.get(type(node))
        found = None if rule is None else rule(node, kinds)
        if found is not None and found is not node:
            node.replace(found)
    for each in list(select.find_all(exp.Select)):
        unwrap(each)
    for item, name in zip(list(select.expressions), names, strict=True):
        if name_of(item) != name:
            item.replace(exp.alias_(item.copy(), exp.to_identifier(name, quoted=True), copy=False))


def _kind_of(attribute: Mapping[str, Any]) -> str:
    """Returns "days" for a category that lists days alone, the period of a date, or else the type."""
    if attribute["type"] == "category":
        return "days" if all(map(_DAY.fullmatch, attribute["values"])) else "category"
    return str(attribute.get("by", attribute["type"]))


def _kind(node: Any, kinds: _Kinds) -> str:
    """Returns what the attribute is that a piece names; empty for any other piece."""
    return kinds.get(node.name.lower(), "") if isinstance(node, exp.Column) else ""


# ---------------------------------------------------------------- names


def _table(node: Any, _: _Kinds) -> None:
    """Takes ``public`` off the name of a table, with what is before it."""
    if node.text("db").lower() == _SCHEMA:
        node.set("db", None)
        node.set("catalog", None)


def _column(node: Any, _: _Kinds) -> None:
    if node.text("db").lower() == _SCHEMA:
        node.set("db", None)
        node.set("catalog", None)


# ---------------------------------------------------------------- constants and casts


def _cast(node: Any, kinds: _Kinds) -> Any:
    """Returns what a cast is of, where it changes nothing that could be asked."""
    inner, kind = node.this.unnest(), node.to.this
    if isinstance(inner, exp.Column):
        of = _kind(inner, kinds)
        is_text = kind in _TEXTS and not node.to.expressions and of in ("category", "days")
        is_text |= kind == _TYPES.DATE and of == "days"
        around = node.parent
        while isinstance(around, exp.Paren):
            around = around.parent
        of_time = isinstance(around, (*_TRUNCATIONS, *_PARTS)) and _is_within(node, around)
        return inner if is_text or of_time else None
    if isinstance(inner, _TRUNCATIONS) and kind in _TIMES:
        cuts = kind == _TYPES.DATE and inner.text("unit").lower() in _WITHIN_A_DAY
        return None if cuts else inner
    if isinstance(inner, _PARTS) and kind in exp.DataType.NUMERIC_TYPES:
        return inner
    return _constant(inner, kind, node.to.expressions)


def _truncation(node: Any, kinds: _Kinds) -> Any:
    """Returns the category that lists days in place of its days."""
    of = node.this.unnest()
    return of if node.text("unit").lower() == "day" and _kind(of, kinds) == "days" else None


def _is_within(cast: Any, around: Any) -> bool:
    """Returns whether a cast leaves all that a function of a date looks at."""
    if cast.to.this not in _TIMES:
        return False
    unit = around.text("unit") if isinstance(around, _TRUNCATIONS) else around.name
    return cast.to.this != _TYPES.DATE or unit.lower() not in (*_WITHIN_A_DAY, "epoch")


def _constant(inner: Any, kind: Any, sizes: Sequence[Any]) -> Any:
    """Returns a constant that is cast to a type; None where this would change it, or is not known."""
    if isinstance(inner, exp.Null):
        return inner
    number = inner.this if isinstance(inner, exp.Neg) else inner
    if is_number(number):
        if kind in _TEXTS and not sizes:
            return exp.Literal.string(f"{'-' * (number is not inner)}{number.this}")
        is_whole = whole_number(number) is not None
        fits = is_whole if kind in exp.DataType.INTEGER_TYPES else not sizes
        return inner if kind in exp.DataType.NUMERIC_TYPES and fits else None
    if isinstance(inner, exp.Boolean):
        return inner if kind == _TYPES.BOOLEAN else None
    if not isinstance(inner, exp.Literal):
        return None
    if kind in _TEXTS:
        most = whole_number(sizes[0].this) if sizes else None
        return inner if not sizes or (most is not None and len(inner.this) <= most) else None
    if kind == _TYPES.BOOLEAN:
        truth = _TRUTHS.get(inner.this.strip().lower())
        return None if truth is None else exp.Boolean(this=truth)
    found = _NUMBER.fullmatch(inner.this.strip())
    if found is None or kind not in exp.DataType.NUMERIC_TYPES or sizes:
        return None
    if kind in exp.DataType.INTEGER_TYPES and "." in found[2]:
        return None
    literal = exp.Literal.number(found[2])
    return exp.Neg(this=literal) if found[1] else literal


def _read_time(node: Any, _: _Kinds) -> Any:
    """Returns the constant of TO_DATE and TO_TIMESTAMP in the forms of ISO 8601."""
    if node.name.upper() not in ("TO_DATE", "TO_TIMESTAMP") or len(node.expressions) != 2:
        return None
    text, form = node.expressions
    if not all(isinstance(each, exp.Literal) and each.is_string for each in (text, form)):
        return None
    return text if form.this.upper().startswith("YYYY-MM-DD") else None


# ---------------------------------------------------------------- comparisons and functions


def _listed(node: Any, _: _Kinds) -> Any:
    """Returns IN for ``= ANY(array)``, and NOT IN for ``<> ALL(array)``."""
    right, is_equal = node.expression, isinstance(node, exp.EQ)
    if isinstance(right, exp.Any) and is_equal:
        array = right.this.unnest()
    elif isinstance(right, exp.Anonymous) and right.name.upper() == "ALL" and not is_equal:
        array = right.expressions[0].unnest() if len(right.expressions) == 1 else None
    else:
        return None
    while isinstance(array, exp.Cast) and array.to.this == _TYPES.ARRAY:
        array = array.this.unnest()
    elements = list(array.expressions) if isinstance(array, exp.Array) else _elements(array)
    if elements is None:
        return None
    found = exp.In(this=node.this, expressions=elements)
    return found if is_equal else exp.Not(this=found)


def _elements(array: Any) -> list[Any] | None:
    """Returns the elements of an array that is written as a text, such as '{Graz,"New York",NULL}'."""
    text = array.this.strip() if isinstance(array, exp.Literal) and array.is_string else ""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    inside, at = text[1:-1].strip(), 0
    found: list[Any] = []
    while inside:
        element = _ELEMENT.match(inside, at)
        if element is None or (element[1] is None and not element[2].strip()):
            return None
        if element[1] is not None:
            found.append(exp.Literal.string(re.sub(r"\\(.)", r"\1", element[1], flags=re.DOTALL)))
        else:
            bare = element[2].strip()
            found.append(exp.Null() if bare.upper() == "NULL" else exp.Literal.string(bare))
        if not element[0].endswith(","):
            break
        at = element.end()
    return found


def _nullif(node: Any, _: _Kinds) -> Any:
    """Returns NULLIF(x, 0) for ``CASE WHEN x = 0 THEN NULL ELSE x END``."""
    whens, other = node.args["ifs"], node.args.get("default")
    if node.this is not None or len(whens) != 1 or other is None:
        return None
    when, then = whens[0].this.unnest(), whens[0].args["true"]
    if not (isinstance(when, exp.EQ) and isinstance(then, exp.Null)):
        return None
    is_zero = is_number(when.expression) and not when.expression.this.strip("0.")
    return (
        exp.Nullif(this=other, expression=when.expression)
        if is_zero and when.this == other
        else None
    )


def _whole_part(node: Any, _: _Kinds) -> Any:
    """Returns a part of a date without TRUNC or FLOOR: it is whole."""
    is_plain = node.args.get("decimals") is None and isinstance(node.this.unnest(), _PARTS)
    is_epoch = node.this.unnest().name.upper() == "EPOCH"
    return node.this.unnest() if is_plain and not is_epoch else None


def _between_instants(node: Any, kinds: _Kinds) -> Any:
    """Compares the periods of a date by their beginnings with the two instants that Grafana writes.

    They are the ends of what a dashboard shows, and lie anywhere within a period.
    """
    low, high, of = node.args["low"], node.args["high"], node.this.unnest()
    since, until = (_INSTANT.fullmatch(constant_text(each) or "") for each in (low, high))
    unit = _kind(of, kinds)
    if since is None or until is None or unit not in _PERIODS:
        return None
    low, high = (exp.Literal.string(f"{each[1]}Z") for each in (since, until))
    is_later = (since[2] or "").strip("0")  # periods begin at full seconds
    begins = exp.TimestampTrunc(this=of.copy(), unit=exp.var(unit.upper()))
    first = (exp.GT if is_later else exp.GTE)(this=begins, expression=low)
    return exp.and_(first, exp.LTE(this=begins.copy(), expression=high), copy=False)


_RULES: Final[Mapping[Any, Callable[[Any, _Kinds], Any]]] = {
    exp.Table: _table,
    exp.Column: _column,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Anonymous: _read_time,
    exp.DateTrunc: _truncation,
    exp.TimestampTrunc: _truncation,
    exp.EQ: _listed,
    exp.NEQ: _listed,
    exp.Case: _nullif,
    exp.Trunc: _whole_part,
    exp.Floor: _whole_part,
    exp.Between: _between_instants,
}
"""The rule for each kind of piece: it returns the piece in its place, or changes it in place."""
