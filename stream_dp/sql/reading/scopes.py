"""FROM: the one SELECT that remains when subqueries are taken into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import is_number, whole_number


class Scope:
    """The one SELECT that remains when subqueries which only filter are taken into it.

    Attributes:
        select: The SELECT.
        dataset: The name in FROM. None without FROM.
        table: The place of that name.
        wheres: The conditions of all levels.
        names: The names that may stand before an attribute, in lower case.
        joins: The joins of all levels.
        starred: The columns that a star stands for. Empty for all attributes.
        filters_at_last: Whether a condition chooses rows of the table when all of it is worked out.
    """

    def __init__(self, select: Any) -> None:
        self._views: dict[str, Any] = {}
        self.dataset: str | None = None
        self.table: Any = None
        self.wheres: list[Any] = []
        self.names: set[str] = set()
        self.joins: list[Any] = []
        self.starred: list[Any] = []
        self.filters_at_last = False
        self.select = self._folded(select)
        self._descend(self.select)
        for part in (self.select, *self.wheres):
            for column in part.find_all(exp.Column):
                if column.table.lower() in self.names:
                    column.set("table", None)

    def check_dataset(self, expected: str | None) -> None:
        """Refuses FROM anything but the data set that is asked, where that is known."""
        if self.dataset is not None and expected and self.dataset.lower() != expected.lower():
            problem = f"{self.dataset} is not the data set that you ask"
            raise Fault(self.table, problem, f"write {expected}", sort="no_table")

    def _folded(self, select: Any) -> Any:
        """Takes a SELECT around a table of aggregates into that table's own HAVING, ORDER BY and LIMIT."""
        self._read_views(select)
        inner = self._view_below(select)
        if inner is None or not _aggregates(inner):
            return select
        inner = self._folded(inner)
        _place_positions(inner)
        for clause in ("group", "joins", "having", "distinct"):
            if content := select.args.get(clause):
                at = content[0] if isinstance(content, list) else content
                fix = "group once, in the subquery"
                raise Fault(at, "this groups what is grouped already", fix)
        if inner.args.get("limit") or inner.args.get("offset"):
            raise Fault(inner, "this cuts a table twice", "write LIMIT once, at the end")
        named = {item.output_name.lower(): item for item in inner.expressions}
        outputs = [output for item in select.expressions for output in _outputs(item, inner, named)]
        where, order = select.args.get("where"), select.args.get("order")
        shown = {output.output_name.lower() for output in outputs}
        for part in filter(None, (where, order)):
            for column in list(part.find_all(exp.Column)):
                column.set("table", None)
                name = column.name.lower()
                if name in named and (part is where or name not in shown):
                    column.replace(named[name].unalias().copy())
        if where is not None:
            having = inner.args.get("having")
            over_below = any(item.find(exp.Window) for item in inner.expressions)
            over_here = any(item.find(exp.Window) for item in select.expressions)
            self.filters_at_last = over_below and not over_here and having is None
            both = [where.this] if having is None else [having.this, where.this]
            inner.set("having", exp.Having(this=exp.and_(*both, copy=False)))
        for clause in ("order", "limit", "offset"):
            if content := select.args.get(clause):
                inner.set(clause, content)
        inner.set("expressions", outputs)
        return inner

    def _read_views(self, select: Any) -> None:
        """Notes the SELECTs that WITH names."""
        views = select.args.get("with_")
        for view in views.expressions if views is not None else ():
            self._views[view.alias.lower()] = view.this
        select.set("with_", None)

    def _view_below(self, select: Any) -> Any:
        """Returns the SELECT that FROM stands for; None where it names a data set."""
        origin = select.args.get("from_")
        below = None if origin is None else origin.this
        if isinstance(below, exp.Subquery):
            if not isinstance(below.this, exp.Select):
                raise Fault(below, "this is not one SELECT", "ask one query at a time")
            return below.this
        if isinstance(below, exp.Table):
            return self._views.get(below.name.lower())
        if below is not None:
            raise Fault(below, "this is not a data set", "name the data set itself")
        return None

    def _descend(self, select: Any) -> None:
        """Follows FROM down to the data set and collects what filters on the way."""
        if (where := select.args.get("where")) is not None:
            self.wheres.append(where.this)
        self.joins += select.args.get("joins") or ()
        origin = select.args.get("from_")
        if origin is None:
            return
        below = origin.this
        if below.alias_or_name:
            self.names.add(below.alias_or_name.lower())
        inner = self._view_below(select)
        if inner is None:
            self.table = below
            self.dataset = ".".join(part.name for part in below.parts)
            self.names.add(self.dataset.lower())
            return
        self._read_views(inner)
        _check_filters(inner)
        if not self.starred and inner.find(exp.Star) is None:
            self.starred = list(inner.expressions)
        self._descend(inner)


def _check_filters(select: Any) -> None:
    """Refuses a subquery that does more than to filter rows."""
    more = [
        content[0] if isinstance(content, list) else content
        for clause, content in select.args.items()
        if content and clause not in ("expressions", "from_", "where", "joins")
    ]
    for item in select.expressions:
        renames = isinstance(item, exp.Alias) and item.alias != item.this.name
        if renames or not isinstance(item.unalias(), exp.Star | exp.Column):
            more.append(item)
    for piece in more:
        fix = "leave SELECT * FROM ... WHERE ... in it"
        raise Fault(piece, "a subquery here only filters rows", fix)


def _aggregates(select: Any) -> bool:
    """Returns whether a SELECT has aggregates or groups of its own."""
    counted = (item.find(exp.AggFunc, exp.Filter) for item in select.expressions)
    return bool(select.args.get("group")) or any(each is not None for each in counted)


def name_of(item: Any) -> str:
    """Returns the name of an item of the SELECT list."""
    if isinstance(item, exp.Alias | exp.Column):
        return str(item.alias_or_name)
    return str(item.sql(Grammar))


def placed(piece: Any, items: Sequence[Any]) -> Any:
    """Returns the expression of the SELECT list that a position stands for; any other piece as it is.

    Raises:
        Fault: There is no such position.
    """
    bare = piece.unnest()
    if not is_number(bare):
        return bare
    place = whole_number(bare) or 0
    if not 1 <= place <= len(items) or isinstance(items[place - 1], exp.Star):
        problem = f"{bare.this} is not the number of a column"
        raise Fault(piece, problem, f"write 1 to {len(items)}, or a name")
    return items[place - 1].unalias().unnest()


def _place_positions(inner: Any) -> None:
    """Puts the columns of a subquery into its GROUP BY and ORDER BY, in place of their positions."""
    group, order = inner.args.get("group"), inner.args.get("order")
    pieces = [] if group is None else list(group.expressions)
    pieces += [] if order is None else [each.this for each in order.expressions]
    for piece in pieces:
        if is_number(piece.unnest()):
            piece.replace(placed(piece, inner.expressions).copy())


def _outputs(item: Any, inner: Any, named: Mapping[str, Any]) -> list[Any]:
    """Returns what a column around a table of aggregates is in terms of that table."""
    bare = item.unalias()
    if isinstance(bare, exp.Star):
        return list(inner.expressions)
    if not _computes(bare, named):
        problem = "this is not a column of the subquery, nor computed from its columns"
        known = ", ".join(sorted(named)) or "the names that it selects"
        raise Fault(item, problem, f"use {known}")
    computed = exp.Paren(this=bare.copy())
    for column in list(computed.find_all(exp.Column)):
        meant = named[column.name.lower()].unalias().copy()
        is_plain = isinstance(meant, exp.Column | exp.Func | exp.Window)
        is_alone = column.parent is computed
        column.replace(meant if is_plain or is_alone else exp.Paren(this=meant))
    return [exp.alias_(computed.this, exp.to_identifier(name_of(item), quoted=True), copy=False)]


def _computes(node: Any, named: Mapping[str, Any]) -> bool:
    """Returns whether an expression is worked out from columns of a subquery, and counts nothing itself."""
    names = {column.name.lower() for column in node.find_all(exp.Column)}
    counts = (each for each in node.find_all(exp.AggFunc) if not each.find_ancestor(exp.Window))
    is_plain = next(counts, None) is None and node.find(exp.Query, exp.Star) is None
    return is_plain and bool(names) and names <= named.keys()
