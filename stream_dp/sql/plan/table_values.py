"""The values of a table: arithmetic on aggregates, groups and constants, and functions of earlier periods."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.plan.group_columns import Axis, GroupColumns
from stream_dp.sql.plan.statement_plan import OF_BARS, Call, Constant, Key, ValueType
from stream_dp.sql.plan.window_functions import FRAMED, SHIFTED, frame_of, parts_before
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import is_number, number
from stream_dp.sql.reading.scopes import Scope
from stream_dp.sql.terms.aggregates import Aggregates, Atom, cast_as, parts_in, times
from stream_dp.sql.terms.date_functions import periods_of
from stream_dp.sql.terms.sql_dates import part_of, truncation_of
from stream_dp.sql.terms.trees import as_json, conjunction

MOST_PERIODS: Final = 400
"""The most parts that a series has."""

_LONGEST: Final = 1000
"""The most parts that an expression may have once the names in it are replaced by what they mean."""

_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}


@dataclass(frozen=True, slots=True)
class TableValues:
    """Translates the values of a table.

    Attributes:
        scope: The statement.
        dataset: The data set that is asked. None where it has no name.
        groups: The group columns.
        aggregates: Translates aggregates.
        has_window: Whether the statement says which phases it is about.
        meanings: What the names in SELECT stand for, once it is translated.
    """

    scope: Scope
    dataset: str | None
    groups: GroupColumns
    aggregates: Aggregates
    has_window: bool
    meanings: dict[str, Any] = field(default_factory=dict)

    def value(self, node: Any) -> Any:
        """Translates an expression of aggregates, groups and constants."""
        node = node.unnest()
        index = self.groups.index_of(node)
        if index is not None:
            if self.aggregates.alone:
                raise Fault(node, "a subquery has no groups", "select one aggregate in it")
            return Key(index)
        if isinstance(node, exp.Literal):
            return Constant(number(node) if is_number(node) else str(node.this))
        if isinstance(node, exp.Boolean | exp.Null):
            return Constant(bool(node.this) if isinstance(node, exp.Boolean) else None)
        if isinstance(node, exp.Cast | exp.TryCast):
            found = self.value(node.this)
            return cast_as(node, found, is_whole=self._is_whole(found))
        if isinstance(node, exp.Neg | exp.Abs):
            return Call("neg" if isinstance(node, exp.Neg) else "abs", (self._number(node.this),))
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if isinstance(node, exp.Nullif):
            fix = "NULLIF(x, 0) may be what something is divided by: a / NULLIF(x, 0)"
            raise Fault(node, f"{short(node)} is not answered", fix)
        if isinstance(node, exp.Coalesce):
            return Call("coalesce", self.comparable(node, (node.this, *node.expressions)))
        if isinstance(node, exp.Round):
            decimals = node.args.get("decimals")
            digits = Constant(0) if decimals is None else self._number(decimals)
            return Call("round", (self._number(node.this), digits))
        if isinstance(node, exp.Select):
            return self._subquery(node)
        if isinstance(node, exp.Column):
            return self._named(node)
        if part_of(node) or truncation_of(node):
            periods_of(self.groups.columns, node)  # an unknown name is refused as such
            raise _not_grouped(node)
        if isinstance(node, exp.Window):
            return self._over(node)
        if isinstance(node, exp.Anonymous) and node.name.lower() in OF_BARS:
            return self._of_bar(node)
        return self.aggregates.value(node)

    def comparable(self, at: Any, nodes: Sequence[Any]) -> tuple[Any, ...]:
        """Translates expressions that stand side by side. All of them are texts, or none is."""
        found = tuple(map(self.value, nodes))
        known = [each for each in found if each != Constant(None)]
        if len({self.is_text(each) for each in known}) > 1:
            raise Fault(
                at,
                f"{short(at)} has a text beside a number",
                "write numbers without quotes, and compare a bin by its attribute, such as age >= 30",
            )
        return found

    def is_text(self, expression: Any) -> bool:
        """Returns whether a translated expression is a text, which is not computed with."""
        if isinstance(expression, Call) and expression.name != "coalesce":
            return False
        kind = self.type_of(expression)
        return expression != Constant(None) and kind in ("text", "date", "timestamp")

    def type_of(self, expression: Any) -> ValueType:
        """Returns the type of a column."""
        match expression:
            case Call(name="error_bar"):
                return "real"
            case Call(name="lower_bound" | "upper_bound", arguments=(_, whole)):
                return "integer" if whole == Constant(value=True) else "real"
            case Key(index=index):
                return self.groups.axes[index].type
            case Atom(part="found") | Constant(value=None | str()):
                return "text"
            case Constant(value=bool()):
                return "boolean"
            case Atom(part="count" | "present") | Constant(value=int()):
                return "integer"
            case Call(name=name, arguments=arguments) if name not in ("/", "round"):
                types = {self.type_of(each) for each in arguments}
                return types.pop() if len(types) == 1 else "real"
        return "real"

    def _is_whole(self, expression: Any) -> bool:
        """Returns whether a translated expression is a whole number in any case, or a group."""
        if isinstance(expression, Call) and expression.name != "/":
            digits = expression.arguments[1:] if expression.name == "round" else ()
            return all(map(self._is_whole, expression.arguments)) or digits == (Constant(0),)
        is_fixed = isinstance(expression, Key) or expression == Constant(None)
        return is_fixed or self.type_of(expression) in ("integer", "boolean")

    def check_length(self, at: Any, expression: Any) -> None:
        """Refuses an expression that is too long with the meaning of each name put in."""
        n_parts = sum(1 for _ in itertools.islice(parts_in(expression), _LONGEST + 1))
        self.groups.columns.work.look_at(at, n_parts)
        if n_parts > _LONGEST:
            problem = f"{short(at)} has more than {_LONGEST:,} parts when each name stands for what it means"
            raise Fault(at, problem, "compute less from it in one statement")

    # ------------------------------------------------------------ names and arithmetic

    def _named(self, node: Any) -> Any:
        """Translates a name that SELECT gives to one of its columns."""
        meant = None if self.aggregates.alone else self.groups.meaning_of(node)
        if meant is None or isinstance(meant, exp.Column):
            if self.groups.columns.joined(node) is None:
                self.groups.columns.attribute(node)  # an unknown name is refused as such
            raise _not_grouped(node)
        name = node.name.lower()
        if name not in self.meanings:
            found = self.value(meant)
            self.check_length(node, found)
            self.meanings[name] = found
        return self.meanings[name]

    def _arithmetic(self, node: Any) -> Any:
        """Translates an operator. A part of the rows of a count is a share, whose bar is narrower."""
        right = _divisor(node.expression) if isinstance(node, exp.Div) else node.expression
        left, right = self._number(node.this), self._number(right)
        if isinstance(node, exp.Div):
            factor, above = _factors(left)
            if (ratio := _ratio(above, right)) is not None:
                return times(factor, ratio)
        return Call(_ARITHMETIC[type(node)], (left, right))

    def _number(self, node: Any) -> Any:
        """Translates an expression that is computed with, which a text is not."""
        found = self.value(node)
        if self.is_text(found):
            problem = f"{short(node)} is a text here, and not a number to compute with"
            fix = "compute with COUNT(*), SUM or AVG; a bin is a text such as '30 to 64'"
            raise Fault(node, problem, fix)
        return found

    def _of_bar(self, node: Any) -> Any:
        """Translates ERROR_BAR, LOWER_BOUND or UPPER_BOUND of a value with a bar."""
        name = node.name.lower()
        found: Any = self.value(node.expressions[0]) if len(node.expressions) == 1 else None
        if not _has_bar(found):
            problem = f"{short(node)} is not of one value with a bar"
            fix = f"write {name.upper()}(n) of an aggregate, or of the alias of one"
            raise Fault(node, problem, fix)
        if name == "error_bar":
            return Call(name, (found,))
        if isinstance(found, Atom) and found.part == "found" and '"correlation"' not in found.found:
            fix = "omit it, or write ERROR_BAR for the half width of its rank"
            raise Fault(node, f"{short(node)} is of bins, which have no bounds", fix)
        return Call(name, (found, Constant(self.type_of(found) == "integer")))

    def _subquery(self, node: Any) -> Any:
        """Translates a subquery of one aggregate about the same data set."""
        fix = "select one COUNT, SUM or AVG"
        if self.has_window or self.groups.series is not None:
            raise Fault(
                node,
                "a subquery beside a condition or a group about time would be of the same time",
                "ask it in a statement of its own",
            )
        scope = Scope(node)
        if len(scope.select.expressions) != 1:
            raise Fault(node, "a subquery here has one aggregate", fix)
        for clause, content in scope.select.args.items():
            if content and clause not in ("expressions", "from_", "where"):
                raise Fault(node, "a subquery here has no groups", fix)
        if scope.joins:
            raise Fault(node, "a subquery of one aggregate has no joins", fix)
        scope.check_dataset(self.scope.dataset or self.dataset)
        where = conjunction(list(map(self.aggregates.conditions.true, scope.wheres)))
        aggregates = replace(self.aggregates, where=where, alone=True)
        inner = replace(self, aggregates=aggregates, meanings={})
        return inner.value(scope.select.expressions[0].unalias())

    # ------------------------------------------------------------ OVER

    def _over(self, node: Any) -> Any:
        """Translates a window function over the periods of a series.

        A sum of the last periods is asked as a count or a sum of the phases of all of them together. So its
        bar is that of one query, and narrower than the bars of the periods together.
        """
        function: Any = node.this
        if _is_total(node):
            return self._total()
        if type(function) not in (*FRAMED, *SHIFTED):
            return self.aggregates.value(node)
        self._check_over(node)
        if type(function) in SHIFTED:
            if node.args.get("spec"):
                raise Fault(node, "this takes one row and no frame", "omit ROWS")
            shift = parts_before(function)
            return Call("lag", (self.value(function.this), Constant(shift)))
        each, frame = self.value(function.this), frame_of(node)
        is_summed = isinstance(each, Atom) and each.part in ("count", "present", "total")
        if not is_summed or each.frame:
            raise Fault(
                node,
                f"{short(function)} is not a sum over periods",
                "write SUM or AVG of COUNT or of SUM, such as SUM(COUNT(*)) OVER (ORDER BY day); the mean of "
                "all rows is SUM(SUM(x)) OVER (...) / SUM(COUNT(x)) OVER (...)",
            )
        added: Any = replace(each, frame=frame)
        if isinstance(function, exp.Sum):
            return added
        most = Constant(MOST_PERIODS if frame == "running" else frame)
        return Call("/", (added, Call("n_parts", (most,))))

    def _total(self) -> Any:
        """Returns the number of rows of all groups together."""
        select = self.scope.select
        if (having := select.args.get("having")) is not None:
            problem = "SUM(COUNT(*)) OVER () would be of the groups that HAVING leaves"
            raise Fault(having.this, problem, "omit one of the two")
        if (series := self.groups.series) is not None:
            fix = f"omit GROUP BY {series.period}, or compute it from the table"
            raise Fault(select, f"OVER () would be of each {series.period} alone", fix)
        return Atom("count", as_json(self.aggregates.where), grouped=False)

    def _check_over(self, node: Any) -> None:
        """Refuses a window function that is not over the periods of the series of each group."""
        period = self.groups.series
        if period is None or self.aggregates.alone:
            fix = "GROUP BY day, week, month or phase, and write OVER (ORDER BY day)"
            raise Fault(node, "OVER takes the periods of a series", fix)
        if self.scope.select.args.get("having") and not self.scope.filters_at_last:
            raise Fault(
                node,
                "this would be of the periods that a condition leaves",
                "omit HAVING, or put the condition around: SELECT * FROM (SELECT ...) WHERE ...",
            )
        order = node.args.get("order")
        by = [] if order is None else list(order.expressions)
        if [self._axis_of(each.this) for each in by] != [period] or by[0].args.get("desc"):
            fix = f"write OVER (ORDER BY {period.written})"
            raise Fault(node, "OVER goes from period to period", fix)
        others = [axis for axis in self.groups.axes if axis is not period]
        parted = [self._axis_of(each) for each in node.args.get("partition_by") or ()]
        if {*map(id, parted)} != {*map(id, others)}:
            names = ", ".join(axis.written for axis in others)
            fix = f"write OVER (PARTITION BY {names} ORDER BY {period.written})"
            raise Fault(
                node, "OVER is of each group by itself", fix if names else "omit PARTITION BY"
            )

    def _axis_of(self, node: Any) -> Axis | None:
        """Returns the group column that a piece of OVER names."""
        index = self.groups.index_of(self.groups.meant(node))
        return None if index is None else self.groups.axes[index]


def atoms_in(expression: Any) -> Iterator[Atom]:
    """Yields the published values in an expression."""
    return (part for part in parts_in(expression) if isinstance(part, Atom))


def _has_bar(expression: Any) -> bool:
    """Returns whether a translated expression has a published value, and not just the bar of one."""
    if isinstance(expression, Call):
        return expression.name not in OF_BARS and any(map(_has_bar, expression.arguments))
    return isinstance(expression, Atom)


def _not_grouped(node: Any) -> Fault:
    fix = f"add GROUP BY {node.sql(Grammar)}"
    return Fault(node, f"{short(node)} is not grouped by", fix, sort="not_grouped")


def _ratio(above: Any, below: Any) -> Any:
    """Returns the one part of an answer that a quotient is; None for another quotient."""
    if not (isinstance(above, Atom) and isinstance(below, Atom)):
        return None
    if (above.grouped, above.frame) != (below.grouped, below.frame):  # they are of other rows
        return None
    if above.part == "total" and below.part == "present" and above.where == below.where:
        return replace(above, part="mean") if above.attribute == below.attribute else None
    if (below.part, below.share_of) != ("count", "") or above.where != below.where:
        return None
    if above.part == "present":
        present = {"attribute": above.attribute, "is_missing": False}
        return replace(above, part="share", attribute="", share_of=as_json(present))
    return replace(above, part="share") if above.part == "count" and above.share_of else None


def _divisor(node: Any) -> Any:
    """Takes NULLIF(x, 0) off a divisor: a division by zero has no value anyway."""
    copied = exp.Paren(this=node.copy())
    bare = copied.unnest()
    while isinstance(bare, exp.Cast | exp.TryCast):
        bare = bare.this.unnest()
    other = bare.expression.unnest() if isinstance(bare, exp.Nullif) else None
    if is_number(other) and number(other) == 0:
        bare.replace(bare.this)
    return copied.this


def _factors(expression: Any) -> tuple[float, Any]:
    """Splits constant factors off a translated expression."""
    factor: float = 1
    while isinstance(expression, Call) and expression.name == "*":
        one, other = expression.arguments
        if not isinstance(one, Constant):
            one, other = other, one
        if not (isinstance(one, Constant) and isinstance(one.value, int | float)):
            break
        factor, expression = factor * one.value, other
    return factor, expression


def _is_total(window: Any) -> bool:
    """Returns whether a window function is SUM(COUNT(*)) OVER ()."""
    summed = window.this
    if not isinstance(summed, exp.Sum):
        return False
    if any(window.args.get(clause) for clause in ("partition_by", "order", "spec")):
        return False
    return isinstance(summed.this, exp.Count) and isinstance(summed.this.this, exp.Star)
