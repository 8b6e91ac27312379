"""What BI tools and drivers write, as the plain SQL that the rest of the translation reads.

| they write | it is read as |
|---|---|
| ``"public"."people"``, ``stream_dp.public.people`` | ``people`` |
| ``public.people.city`` | ``people.city`` |
| ``30::INTEGER``, ``'Graz'::VARCHAR``, ``TO_DATE('2026-01-01', 'YYYY-MM-DD')`` | the constant |
| ``city::TEXT`` of a category | ``city`` |
| ``DATE_TRUNC('day', c)``, ``c::DATE`` of a category that lists days | ``c`` |
| ``city = ANY('{Graz,Bonn}')``, ``= ANY(ARRAY[...])``, ``<> ALL(...)`` | ``city IN ('Graz', 'Bonn')``, ``NOT IN`` |
| ``CASE WHEN x = 0 THEN NULL ELSE x END`` | ``NULLIF(x, 0)`` |
| ``DATE_TRUNC('month', d::TIMESTAMP)::DATE``, ``TRUNC(EXTRACT(YEAR FROM d))`` | without the casts |
| ``d BETWEEN '2026-01-01T09:30:00Z' AND '...Z'`` of a date by day | the same of ``DATE_TRUNC('day', d)`` |
| ``SELECT city, SUM(n) FROM (SELECT city, COUNT(*) AS n ... GROUP BY city) GROUP BY city`` | the counts |
| ``COUNT(*) AS select`` | ``COUNT(*) AS "select"`` |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokens import TokenType

from stream_dp.attribute_dates import CYCLES
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import is_number, whole_number

_Attributes = Mapping[str, Mapping[str, Any]]

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
_WITHIN_A_DAY: Final = ("hour", "minute", "second")
_AFTER_ALIAS: Final = (TokenType.COMMA, TokenType.FROM)


def name_keywords(tokens: Sequence[Any]) -> None:
    """Makes names of the keywords that stand alone after AS in a SELECT list, such as ``AS select``."""
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        is_alias = before.token_type == TokenType.ALIAS and token.text.isidentifier()
        is_last = after is None or after.token_type in _AFTER_ALIAS
        if is_alias and is_last and token.token_type != TokenType.IDENTIFIER:
            token.token_type = TokenType.VAR


def as_plain_sql(select: Any, attributes: Sequence[Mapping[str, Any]]) -> None:
    """Rewrites a statement in place. Its columns keep their names.

    Args:
        select: The statement, as sqlglot reads it.
        attributes: The attributes of the data set; none where only names are wanted.
    """
    known = {attribute["name"].lower(): attribute for attribute in attributes}
    unnamed = (exp.Alias, exp.Column, exp.Star)
    named = [(i, i.sql(Grammar)) for i in select.expressions if not isinstance(i, unnamed)]
    places = {id(item): place for place, item in enumerate(select.expressions)}
    for node in reversed(list(select.walk())):  # what is inside comes first
        rule = _RULES.get(type(node))
        found = None if rule is None else rule(node, known)
        if found is not None and found is not node:
            node.replace(found)
    for each in list(select.find_all(exp.Select)):
        _unwrap(each)
    for item, name in named:
        now = select.expressions[places[id(item)]]
        if now.sql(Grammar) != name:
            alias = exp.alias_(now.copy(), exp.to_identifier(name, quoted=True), copy=False)
            now.replace(alias)


# ---------------------------------------------------------------- names


def _table(node: Any, _: _Attributes) -> None:
    """Takes ``public`` off the name of a table, with what is before it."""
    if node.text("db").lower() == _SCHEMA:
        node.set("db", None)
        node.set("catalog", None)


def _column(node: Any, _: _Attributes) -> None:
    if node.text("db").lower() == _SCHEMA:
        node.set("db", None)
        node.set("catalog", None)


# ---------------------------------------------------------------- constants and casts


def _cast(node: Any, known: _Attributes) -> Any:
    """Returns what a cast is of, where it changes nothing that could be asked."""
    inner, kind = node.this.unnest(), node.to.this
    if isinstance(inner, exp.Column):
        attribute = known.get(inner.name.lower(), {"type": ""})
        is_text = kind in _TEXTS and not node.to.expressions and attribute["type"] == "category"
        is_text |= kind == _TYPES.DATE and _is_of_days(attribute)
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


def _is_of_days(attribute: Mapping[str, Any]) -> bool:
    """Returns whether an attribute is a category that lists days."""
    values = attribute.get("values", ())
    return bool(values) and all(_DAY.fullmatch(value) for value in values)


def _truncation(node: Any, known: _Attributes) -> Any:
    """Returns the category that lists days in place of its days."""
    of = node.this.unnest()
    attribute = known.get(of.name.lower(), {}) if isinstance(of, exp.Column) else {}
    return of if node.text("unit").lower() == "day" and _is_of_days(attribute) else None


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


def _read_time(node: Any, _: _Attributes) -> Any:
    """Returns the constant of TO_DATE and TO_TIMESTAMP in the forms of ISO 8601."""
    if node.name.upper() not in ("TO_DATE", "TO_TIMESTAMP") or len(node.expressions) != 2:
        return None
    text, form = node.expressions
    if not all(isinstance(each, exp.Literal) and each.is_string for each in (text, form)):
        return None
    return text if form.this.upper().startswith("YYYY-MM-DD") else None


# ---------------------------------------------------------------- comparisons and functions


def _listed(node: Any, _: _Attributes) -> Any:
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


def _nullif(node: Any, _: _Attributes) -> Any:
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


def _whole_part(node: Any, _: _Attributes) -> Any:
    """Returns a part of a date without TRUNC or FLOOR: it is whole."""
    is_plain = node.args.get("decimals") is None and isinstance(node.this.unnest(), _PARTS)
    is_epoch = node.this.unnest().name.upper() == "EPOCH"
    return node.this.unnest() if is_plain and not is_epoch else None


def _between_instants(node: Any, known: _Attributes) -> Any:
    """Compares the periods of a date by their beginnings with the two instants that Grafana writes.

    They are the ends of what a dashboard shows, and lie anywhere within a period.
    """
    low, high, of = node.args["low"], node.args["high"], node.this.unnest()
    written = [
        _INSTANT.fullmatch(each.this) for each in (low, high) if isinstance(each, exp.Literal)
    ]
    attribute = known.get(of.name.lower(), {}) if isinstance(of, exp.Column) else {}
    if len(written) < 2 or None in written or attribute.get("by", "weekday") in CYCLES:
        return None
    for literal, found in zip((low, high), written, strict=True):
        literal.set("this", f"{found[1]}Z")  # periods begin at full seconds
    is_later = (written[0][2] or "").strip("0")
    begins = exp.TimestampTrunc(this=of.copy(), unit=exp.var(attribute["by"].upper()))
    first = (exp.GT if is_later else exp.GTE)(this=begins, expression=low)
    return exp.and_(first, exp.LTE(this=begins.copy(), expression=high), copy=False)


# ---------------------------------------------------------------- SELECT around counts


def _unwrap(select: Any) -> None:
    """Takes off a SELECT that adds up what one below has counted: its sums are those of the rows below.

    Nothing else may be done below than to count by groups, unless the groups around are the same.
    """
    origin = select.args.get("from_")
    below = origin.this if origin is not None and isinstance(origin.this, exp.Subquery) else None
    inner = None if below is None else below.this
    if not isinstance(inner, exp.Select) or inner.args.get("group") is None:
        return
    named = {item.output_name.lower(): item.unalias() for item in inner.expressions}
    added = [
        node
        for part in (*select.expressions, select.args.get("order"), select.args.get("having"))
        if part is not None
        for node in part.find_all(exp.AggFunc)
    ]
    around = [] if select.args.get("group") is None else select.args["group"].expressions
    groups = {_meant(each, select).name.lower() for each in around}
    counted = {name for name, item in named.items() if item.find(exp.AggFunc) is not None}
    keys = named.keys() - counted
    names = [_added(node) for node in added]
    if not added or not groups <= keys or not all(name in counted for name in names):
        return
    if any(not isinstance(_meant(each, select), exp.Column) for each in around):
        return
    if groups == keys and len(inner.args["group"].expressions) == len(keys):
        _take_off(select, added)
    elif all(isinstance(node, exp.Sum) for node in added):
        _merge(select, inner, named, added)


def _meant(piece: Any, select: Any) -> Any:
    """Returns the column that a position or a name in GROUP BY stands for."""
    place = whole_number(piece.unnest())
    if place is not None and 1 <= place <= len(select.expressions):
        return select.expressions[place - 1].unalias()
    for item in select.expressions:
        if isinstance(item, exp.Alias) and item.alias.lower() == piece.name.lower():
            return item.this
    return piece


def _added(node: Any) -> str:
    """Returns the name of the column that an aggregate of one row is of; empty for other aggregates."""
    is_of_one = isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max)
    is_column = is_of_one and isinstance(node.this, exp.Column)
    in_window = node.find_ancestor(exp.Window, exp.Filter, exp.Select)
    return node.this.name.lower() if is_column and isinstance(in_window, exp.Select) else ""


def _take_off(select: Any, added: Sequence[Any]) -> None:
    """Each group around is one row below, so that an aggregate of it is the value itself."""
    for node in added:
        node.replace(node.this)
    select.set("group", None)
    if (having := select.args.get("having")) is not None:
        where = select.args.get("where")
        both = [having.this] if where is None else [where.this, having.this]
        select.set("where", exp.Where(this=exp.and_(*both, copy=False)))
        select.set("having", None)


def _merge(select: Any, inner: Any, named: Mapping[str, Any], added: Sequence[Any]) -> None:
    """Groups the rows below by the fewer groups around."""
    plain = ("expressions", "from_", "where", "joins", "group", "order")
    more = any(content for clause, content in inner.args.items() if clause not in plain)
    sums = [named[node.this.name.lower()] for node in added]
    chosen = [] if select.args.get("where") is None else select.args["where"].find_all(exp.Column)
    are_plain = all(isinstance(named.get(c.name.lower()), exp.Column) for c in chosen)
    if more or not are_plain or not all(isinstance(each, exp.Count | exp.Sum) for each in sums):
        return
    if any(isinstance(each.this, exp.Distinct) for each in sums):
        return
    for column in list(select.find_all(exp.Column)):
        meant = named.get(column.name.lower())
        is_here = column.find_ancestor(exp.Select) is select
        if is_here and meant is not None and column.find_ancestor(exp.AggFunc) is None:
            column.replace(meant.copy())
    for node, value in zip(added, sums, strict=True):
        node.replace(value.copy())
    wheres = [each.args["where"].this for each in (inner, select) if each.args.get("where")]
    select.set("from_", inner.args["from_"])
    select.set("joins", inner.args.get("joins"))
    if wheres:
        select.set("where", exp.Where(this=exp.and_(*wheres, copy=False)))


_RULES: Final[Mapping[Any, Callable[[Any, _Attributes], Any]]] = {
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
