"""Expressions of statements about catalogs, as SQLite computes them, with their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_casts import (
    NAMED,
    WHOLE,
    as_text,
    call,
    cast,
    fitted,
    is_text,
    item_type,
    text,
)
from stream_dp.gateway.catalogs.catalog_functions import (
    RENAMED,
    ViewFunctions,
    function_kind,
)
from stream_dp.gateway.catalogs.catalog_scopes import (
    UNKNOWN,
    StatementScope,
    TranslatedQuery,
    Typed,
    common_type,
    quoted,
)
from stream_dp.gateway.catalogs.column_names import type_name
from stream_dp.gateway.pg_types import OIDS
from stream_dp.gateway.protocol.sql_fault import SqlFault

_REGULAR: Final = {"~": "", "~*": "i", "!~": "", "!~*": "i"}
_COMPARED: Final = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
_COMPUTED: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_BITS: Final = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_MOST_INT4: Final = 2**31 - 1
_MOST_INT8: Final = 2**63 - 1
_SETTINGS: Final = {"user", "session_user", "current_user", "current_role"}


def unanswered(node: Any) -> SqlFault:
    """Returns the fault of a form that the catalogs do not have."""
    form = type(node).__name__
    return SqlFault("0A000", f"statements about catalogs are not answered with this form: {form}")


class Expressions:
    """Translates expressions.

    Attributes:
        user: The name of the analyst.
        functions: What knows the names of oids.
        query: Translates a query inside an expression, for the scope around it.
    """

    def __init__(
        self,
        user: str,
        functions: ViewFunctions,
        query: Callable[[Any, StatementScope], TranslatedQuery],
    ) -> None:
        self.user = user
        self.functions = functions
        self.query = query

    def typed(self, node: Any, scope: StatementScope) -> Typed:
        """Returns an expression of SQLite, and its type.

        Raises:
            SqlFault: It names what does not exist, or has a form that is not answered.
        """
        for kind in type(node).__mro__:
            if (work := _HANDLERS.get(kind)) is not None:
                return work(self, node, scope)
        raise unanswered(node)

    def value(self, node: Any, scope: StatementScope) -> Any:
        """Returns an expression of SQLite."""
        return self.typed(node, scope)[0]

    def order(self, node: Any, scope: StatementScope) -> Any:
        """Returns an ORDER BY, in which a name is first one of the columns of the query itself."""
        for each in node.expressions:
            inner = each.this
            if isinstance(inner, exp.Literal) and not inner.is_string:
                continue
            name = (
                inner.name if isinstance(inner, exp.Column) and not inner.args.get("table") else ""
            )
            name = name if name and inner.this.args.get("quoted") else name.lower()
            found = (
                exp.Column(this=quoted(name)) if name in scope.outputs else self.value(inner, scope)
            )
            each.set("this", found)
        return node


def _column(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    if not node.args.get("table") and not node.this.args.get("quoted"):
        name = node.name.lower()
        if name in _SETTINGS:
            return text(by.user), "name"
        if name == "current_catalog":
            return call("current_database"), "name"
    return scope.resolve(node)


def _literal(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    if node.is_string:
        return node, UNKNOWN
    if not str(node.this).isdigit() or int(node.this) > _MOST_INT8:
        return node, "float8"
    return node, "int4" if int(node.this) <= _MOST_INT4 else "int8"


def _same(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    node.set("this", found)
    return node, kind


def _cast(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    return cast(found, kind, type_name(node.to), by.functions)


def _dot(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    if isinstance(node.expression, exp.Identifier):
        raise unanswered(node)
    return by.typed(node.expression, scope)


def _function(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    name = str(node.this).lower()
    if name in ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp"):
        return _now(by, node, scope)
    if name in _SETTINGS:
        return text(by.user), "name"
    arguments = [by.typed(one, scope) for one in node.expressions]
    kinds = [kind for _, kind in arguments]
    kind = function_kind(name, kinds)
    values = [one for one, _ in arguments]
    if name in ("concat", "concat_ws", "format"):
        values = [as_text(one, given) for one, given in arguments]
    if name in ("greatest", "least"):
        kind = common_type(kinds)
    return call(RENAMED.get(name, (name, ""))[0], *values), kind


def _distinct(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    values = [by.typed(one, scope) for one in node.expressions]
    return exp.Distinct(expressions=[one for one, _ in values]), values[0][1]


def _now(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    return exp.DPipe(this=exp.CurrentTimestamp(), expression=text("+00")), "timestamptz"


def _bracket(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    if len(node.expressions) != 1:
        raise unanswered(node)
    number = by.value(node.expressions[0], scope)
    return call("catalog_item", found, number), item_type(kind) or "text"


def _array(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    if len(node.expressions) == 1 and isinstance(node.expressions[0], (exp.Query, exp.Subquery)):
        inner = by.query(node.expressions[0], scope)
        name, kind = inner.columns[0]
        group = call("json_group_array", exp.Column(this=quoted(name)))
        source = exp.Subquery(this=inner.node, alias=exp.TableAlias(this=quoted("items")))
        return exp.Subquery(this=exp.select(group).from_(source)), _array_type(kind)
    values = [by.typed(one, scope) for one in node.expressions]
    return call("json_array", *(v for v, _ in values)), _array_type(
        common_type([k for _, k in values])
    )


def _case(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    first, kind = by.typed(node.this, scope) if node.this else (None, None)
    default = node.args.get("default")
    results = [by.typed(one.args["true"], scope) for one in node.args["ifs"]]
    results += [by.typed(default, scope)] if default else []
    kinds = [one for _, one in results]
    of_all = common_type([kinds[-1], *kinds])  # Postgres begins with ELSE
    values = [_suited(by, one, of_all) for one in results]
    ifs = []
    for one, value in zip(node.args["ifs"], values, strict=False):
        condition, other = by.typed(one.this, scope)
        if first is not None:
            condition = fitted(condition, other, kind, by.functions)
        ifs.append(exp.If(this=condition, true=value))
    return exp.Case(this=first, ifs=ifs, default=values[-1] if default else None), of_all


def _suited(by: Expressions, value: Typed, kind: str | None) -> Any:
    """Returns one of the values of CASE and the like, for their common type."""
    node, given = value
    if kind in ("text", "name") and given in NAMED:
        return as_text(node, given)
    return fitted(node, given, kind, by.functions)


def _coalesce(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    values = [by.typed(one, scope) for one in (node.this, *node.expressions)]
    kind = common_type([one for _, one in values])
    return call("coalesce", *(_suited(by, one, kind) for one in values)), kind


def _nullif(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    other, its = by.typed(node.expression, scope)
    return call("nullif", found, fitted(other, its, kind, by.functions)), kind


def _compared(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    if (items := _of_items(node.expression)) is not None:
        return _compared_with_items(by, node, items, scope), "bool"
    _fit_sides(by, node, scope)
    return node, "bool"


def _fit_sides(by: Expressions, node: Any, scope: StatementScope) -> tuple[str | None, str | None]:
    """Gives both sides of an operator the same type where one is a text, and returns their types."""
    left, kind = by.typed(node.this, scope)
    right, other = by.typed(node.expression, scope)
    node.set("this", fitted(left, kind, other, by.functions))
    node.set("expression", fitted(right, other, kind, by.functions))
    return kind, other


def _compared_with_items(by: Expressions, node: Any, items: Any, scope: StatementScope) -> Any:
    """Returns ``x = ANY (array)`` and ``x <> ALL (array)`` as IN and NOT IN."""
    is_any = isinstance(node.expression, exp.Any)
    if not isinstance(node, exp.EQ if is_any else exp.NEQ):
        raise unanswered(node)
    left, kind = by.typed(node.this, scope)
    found = exp.In(this=left, query=_items(by, items, kind, scope))
    return found if is_any else exp.Not(this=found)


def _items(by: Expressions, node: Any, kind: str | None, scope: StatementScope) -> Any:
    if isinstance(node, exp.Subquery):
        return exp.Subquery(this=by.query(node.this, scope).node)
    found, its = by.typed(node, scope)
    if its == UNKNOWN and is_text(found):
        as_array = _array_type(kind) if kind in WHOLE | {"bool"} else "_text"
        found, its = cast(found, its, as_array, by.functions)
    each = exp.Table(this=call("json_each", found))
    return exp.Subquery(this=exp.select("value").from_(each))


def _is(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    node.set("this", by.value(node.this, scope))
    node.set("expression", by.value(node.expression, scope))
    return node, "bool"


def _not(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    node.set("this", by.value(node.this, scope))
    return node, "bool"


def _in(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    left, kind = by.typed(node.this, scope)
    query = node.args.get("query")
    if query is not None:
        inner = by.query(query.this if isinstance(query, exp.Subquery) else query, scope)
        return exp.In(this=left, query=exp.Subquery(this=inner.node)), "bool"
    values = [by.typed(one, scope) for one in node.expressions]
    if kind == UNKNOWN:
        left = fitted(left, kind, common_type([one for _, one in values]), by.functions)
    found = [fitted(one, its, kind, by.functions) for one, its in values]
    return exp.In(this=left, expressions=found), "bool"


def _between(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    left, kind = by.typed(node.this, scope)
    node.set("this", left)
    for end in ("low", "high"):
        value, its = by.typed(node.args[end], scope)
        node.set(end, fitted(value, its, kind, by.functions))
    return node, "bool"


def _like(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    left, right = by.value(node.this, scope), by.value(node.expression, scope)
    if isinstance(node, exp.ILike):
        left, right = call("lower", left), call("lower", right)
    like = exp.Like(this=left, expression=right, negate=node.args.get("negate"))
    return exp.Escape(this=like, expression=text("\\")), "bool"


def _escape(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    inner = by.value(node.this, scope)
    if not isinstance(inner, exp.Escape):
        raise unanswered(node)
    if is_text(node.expression) and not node.expression.this:
        return inner.this, "bool"
    inner.set("expression", by.value(node.expression, scope))
    return inner, "bool"


def _regular(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    flags, negated = "i" if isinstance(node, exp.RegexpILike) else "", False
    if isinstance(node, exp.Operator):
        sign = str(node.args["operator"]).rsplit(".", 1)[-1].strip()
        if sign == "=":
            return _compared(by, exp.EQ(this=node.this, expression=node.expression), scope)
        if sign not in _REGULAR:
            raise unanswered(node)
        flags, negated = _REGULAR[sign], sign.startswith("!")
    left, right = by.typed(node.this, scope), by.typed(node.expression, scope)
    found = call("catalog_matches", as_text(*left), as_text(*right), text(flags))
    return (exp.Not(this=found) if negated else found), "bool"


def _exists(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    return exp.Exists(this=by.query(inner, scope).node), "bool"


def _subquery(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    inner = by.query(node, scope)
    if len(inner.columns) != 1:
        raise SqlFault("42601", "subquery must return only one column")
    return exp.Subquery(this=inner.node), inner.columns[0][1]


def _computed(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    kind, other = _fit_sides(by, node, scope)
    if kind == other == "date" and isinstance(node, exp.Sub):
        left, right = call("julianday", node.this), call("julianday", node.expression)
        return call("catalog_whole", exp.Sub(this=left, expression=right)), "int4"
    if {kind, other} & {"date", "timestamp", "timestamptz"}:
        raise unanswered(node)
    return node, common_type([kind, other])


def _joined(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    left, right = by.typed(node.this, scope), by.typed(node.expression, scope)
    kind = common_type([one for _, one in (left, right) if one and one.startswith("_")])
    if kind is not None:
        return call("catalog_array_cat", left[0], right[0]), kind
    return exp.DPipe(this=as_text(*left), expression=as_text(*right)), "text"


def _window(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    node.set("this", found)
    for each in node.args.get("partition_by") or []:
        each.replace(by.value(each, scope))
    if node.args.get("order"):
        by.order(node.args["order"], scope)
    return node, kind


def _filter(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    where = exp.Where(this=by.value(node.expression.this, scope))
    return exp.Filter(this=found, expression=where), kind


def _extract(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    part = text(str(node.this.name).lower())
    return call("date_part", part, by.value(node.expression, scope)), "float8"


def _position(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    parts = by.value(node.this, scope), by.value(node.args["substr"], scope)
    return call("instr", *parts), "int4"


def _substring(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    parts = [node.this, node.args.get("start"), node.args.get("length")]
    return call("substr", *(by.value(one, scope) for one in parts if one is not None)), "text"


def _trim(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    parts = [node.this, *([node.expression] if node.args.get("expression") else [])]
    return call(name, *(by.value(one, scope) for one in parts)), "text"


def _at_time_zone(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    found, kind = by.typed(node.this, scope)
    return found, "timestamp" if kind == "timestamptz" else "timestamptz"


def _tuple(by: Expressions, node: Any, scope: StatementScope) -> Typed:
    return exp.Tuple(expressions=[by.value(one, scope) for one in node.expressions]), None


def _of_items(node: Any) -> Any:
    """Returns the array or the query of ``ANY (...)`` or ``ALL (...)``, or None."""
    if isinstance(node, (exp.Any, exp.All)):
        inner = node.this
        return inner.this if isinstance(inner, exp.Paren) else inner
    if isinstance(node, exp.Anonymous) and str(node.this).lower() in ("all", "some"):
        return node.expressions[0]
    return None


def _array_type(kind: str | None) -> str:
    return f"_{kind}" if f"_{kind}" in OIDS else "_text"


_Handler = Callable[[Expressions, Any, StatementScope], Typed]
_HANDLERS: Final[Mapping[type, _Handler]] = {
    **dict.fromkeys(_COMPARED, _compared),
    **dict.fromkeys((*_COMPUTED, *_BITS), _computed),
    **dict.fromkeys((exp.And, exp.Or, exp.Is), _is),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpILike, exp.Operator), _regular),
    **dict.fromkeys((exp.Like, exp.ILike), _like),
    **dict.fromkeys((exp.Paren, exp.Neg, exp.BitwiseNot), _same),
    **dict.fromkeys((exp.Collate, exp.Order), lambda by, node, scope: by.typed(node.this, scope)),
    **dict.fromkeys(
        (exp.CurrentUser, exp.SessionUser, exp.CurrentRole), lambda by, *_: (text(by.user), "name")
    ),
    **dict.fromkeys((exp.Parameter, exp.Placeholder), lambda *_: (exp.null(), UNKNOWN)),
    **dict.fromkeys(
        (exp.ByteString, exp.National, exp.RawString),
        lambda by, node, scope: (text(str(node.this)), UNKNOWN),
    ),
    **dict.fromkeys((exp.Null, exp.Star), lambda by, node, scope: (node, None)),
    exp.Anonymous: _function,
    exp.Array: _array,
    exp.AtTimeZone: _at_time_zone,
    exp.Between: _between,
    exp.Boolean: lambda by, node, scope: (node, "bool"),
    exp.Bracket: _bracket,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Coalesce: _coalesce,
    exp.Column: _column,
    exp.CurrentCatalog: lambda *_: (call("current_database"), "name"),
    exp.CurrentDate: lambda *_: (call("date"), "date"),
    exp.CurrentSchema: lambda *_: (call("current_schema"), "name"),
    exp.CurrentTimestamp: _now,
    exp.DPipe: _joined,
    exp.Distinct: _distinct,
    exp.Dot: _dot,
    exp.Escape: _escape,
    exp.Exists: _exists,
    exp.Extract: _extract,
    exp.Filter: _filter,
    exp.In: _in,
    exp.Literal: _literal,
    exp.Not: _not,
    exp.Nullif: _nullif,
    exp.Pow: lambda by, node, scope: (
        call("power", by.value(node.this, scope), by.value(node.expression, scope)),
        "float8",
    ),
    exp.Select: _subquery,
    exp.StrPosition: _position,
    exp.Subquery: _subquery,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.Tuple: _tuple,
    exp.Window: _window,
}
