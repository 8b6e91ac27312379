"""HAVING: conditions on the rows of a table, which are groups and published values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.plan.group_columns import Axis, GroupColumns
from stream_dp.sql.plan.statement_plan import Among, Call, Constant, Key
from stream_dp.sql.plan.table_values import TableValues
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.terms.aggregates import TRUTHS, Atom, parts_in
from stream_dp.sql.terms.attribute_cells import cells_of
from stream_dp.sql.terms.comparisons import Comparison, comparison_of
from stream_dp.sql.terms.condition_trees import Conditions, ConditionWalk
from stream_dp.sql.terms.refused_pieces import refused_condition
from stream_dp.sql.terms.time_clauses import first_day

_A_PART: Final = 64
"""The values whose comparison takes as long as to translate one more part of what a name means."""

_SYMBOLS: Final = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True, slots=True)
class TableConditions(ConditionWalk[Any]):
    """Translates conditions on the rows of a table.

    Attributes:
        groups: The group columns.
        values: Translates values.
        conditions: Translates conditions on rows of the data set.
        about: The positions of the group columns in the meaning of each alias.
    """

    groups: GroupColumns
    values: TableValues
    conditions: Conditions
    about: dict[str, set[int | None]] = field(default_factory=dict)

    # ------------------------------------------------------------ the walk

    def _connected(self, parts: Sequence[Any], *, by_and: bool) -> Any:
        """Joins conditions by AND or OR; those on the same group column become one."""
        among: dict[int, Among] = {}
        others: list[Any] = []
        for part in parts:
            if not isinstance(part, Among):
                others.append(part)
                continue
            same = among.setdefault(part.index, part)
            true, false = same.true | part.true, same.false & part.false
            if by_and:
                true, false = same.true & part.true, same.false | part.false
            among[part.index] = Among(part.index, true, false)
        joined: tuple[Any, ...] = (*among.values(), *others)
        return joined[0] if len(joined) == 1 else Call("and" if by_and else "or", joined)

    def _negated(self, part: Any) -> Any:
        if isinstance(part, Among):
            return Among(part.index, part.false, part.true)
        return Call("not", (part,))

    def _of_all(self, *, holds: bool) -> Any:
        return Call("=", (Constant(value=True), Constant(holds)))

    def _known(self, part: Any) -> Any:
        return Call("is_true", (part,))

    def _is_null(self, node: Any, subject: Any) -> Any:
        if isinstance(subject, TRUTHS) and self.groups.index_of(subject) is None:
            return Call("is_unknown", (self.condition(subject),))
        value = self.values.value(subject)
        if isinstance(value, Atom) and value.part == "count":
            return self._of_all(holds=False)
        return Call("is_null", (value,))

    def _check_names(self, node: Any) -> None:
        self.values.value(node.this)

    def _compared(self, node: Any) -> Any:
        """Translates a condition on one group column as WHERE would, and any other by the values themselves.

        Numbers, and truth values that are conditions, compare by themselves as published values do.
        """
        indices = self._indices(node)
        index = next(iter(indices)) if len(indices) == 1 else None
        axis = None if index is None else self.groups.axes[index]
        if index is None or axis is None or axis.type in ("integer", "real"):
            return self._of_values(node)
        pieces: list[Any] = []
        meant = self._with_meanings(exp.Paren(this=node.copy()), pieces).unnest()
        if axis.period:
            return self._of_period(meant, index)
        if axis.of is not None:
            return Among(index, *self._holding(meant, axis.of, axis))
        if axis.type == "boolean":
            is_bare = pieces == [meant]
            key = Call("=", (Key(index), Constant(value=True)))
            return key if is_bare else self._of_values(node)
        for piece in pieces:
            piece.replace(exp.column(exp.to_identifier(axis.written)))
        comparison = comparison_of(meant)
        if comparison is None or not isinstance(comparison.column, exp.Column):
            raise refused_condition(meant)
        self.groups.columns.work.look_at(meant, len(axis.said))
        test = self.conditions.test_of(comparison, axis.written, axis.type)
        outcomes = [test(said) for said in axis.said]
        return Among(
            index, *(cells_of(each is wanted for each in outcomes) for wanted in (True, False))
        )

    # ------------------------------------------------------------ group columns

    def _indices(self, node: Any, within: frozenset[str] = frozenset()) -> set[int | None]:
        """Returns the positions of the group columns in a condition; None for aggregates and other names.

        Args:
            node: The condition.
            within: The aliases in whose meaning it is.
        """
        index = self.groups.index_of(node)
        if index is not None:
            return {index}
        if isinstance(node, exp.Column):
            name = node.name.lower()
            meant = None if name in within else self.groups.meaning_of(node)
            if meant is None:
                return {None}
            if name not in self.about:
                self.about[name] = self._indices(meant.unnest(), within | {name})
            return self.about[name]
        if isinstance(node, exp.AggFunc | exp.Filter | exp.Window | exp.Query):
            return {None}
        return set().union(*(self._indices(each, within) for each in node.iter_expressions()))

    def _with_meanings(self, node: Any, pieces: list[Any]) -> Any:
        """Replaces aliases in a condition on one group column, and adds to ``pieces`` where it is named."""
        if self.groups.index_of(node) is not None:
            pieces.append(node)
        elif isinstance(node, exp.Column):
            meant = self.groups.meaning_of(node).unnest()
            self.groups.columns.work.look_at(node, _A_PART * sum(1 for _ in meant.walk()))
            meant = meant.copy()
            node.replace(meant)
            return self._with_meanings(meant, pieces)
        else:
            for each in list(node.iter_expressions()):
                self._with_meanings(each, pieces)
        return node

    def _holding(self, node: Any, of: Any, axis: Axis) -> tuple[int, int]:
        """Returns the values of a group column where a condition is true, and those where it is false."""
        self.groups.columns.work.look_at(node, len(axis.values))
        true, false = self.conditions.holding(node, of)
        nulls = cells_of(value is None for value in axis.values)
        true, false = true & ~nulls, false & ~nulls
        if isinstance(node, exp.NullSafeEQ):
            false |= nulls
        elif isinstance(node, exp.NullSafeNEQ):
            true |= nulls
        if axis.attribute is not None:
            return true, false
        places = {value: place for place, value in reversed([*enumerate(axis.values)])}
        cells = [places[value] for value, _ in axis.cases]
        return (
            cells_of(bool(true >> cell & 1) for cell in cells),
            cells_of(bool(false >> cell & 1) for cell in cells),
        )

    def _of_period(self, node: Any, index: int) -> Any:
        """Translates a comparison of the period of a series with dates, as one of its first days."""
        comparison, period = _comparison(node), self.groups.axes[index].period

        def first(piece: Any, compared: str) -> Any:
            if self.groups.index_of(piece.unnest()) == index:
                return Key(index)
            is_null = isinstance(piece.unnest(), exp.Null)
            return Constant(None if is_null else first_day(period, piece, compared))

        pairs = [(comparison.subject, "eq"), *comparison.pairs()]
        return _call(comparison, [first(*pair) for pair in pairs])

    # ------------------------------------------------------------ published values

    def _of_values(self, node: Any) -> Any:
        """Translates a condition on published values, and on groups that are numbers or truth values."""
        comparison = _comparison(node)
        values = self.values.comparable(node, [comparison.subject, *comparison.constants])
        for part in (part for each in values for part in parts_in(each)):
            if isinstance(part, Key) and self.values.is_text(part):
                written = self.groups.axes[part.index].written
                problem = f"{written} is compared with something else than a constant"
                raise Fault(node, problem, "compare the column itself with a constant")
        if comparison.operator not in ("eq", "in") and any(map(self.values.is_text, values)):
            raise Fault(node, "texts have no order here", "use = or IN")
        return _call(comparison, values)


def _comparison(node: Any) -> Comparison:
    """Returns a condition as a comparison of a kind that values of tables have."""
    found = comparison_of(node)
    if found is None or found.null_safe or found.operator == "like":
        problem = f"{short(node)} is not a condition on the table"
        raise Fault(node, problem, "compare an aggregate, such as COUNT(*) > 100")
    return found


def _call(comparison: Comparison, values: Sequence[Any]) -> Any:
    """Returns a comparison of translated values: of what is compared, and of the constants."""
    value, *others = values
    if comparison.operator == "in":
        return Call("in", (value, *others, *[Constant(None)] * comparison.has_null))
    pairs = zip(others, comparison.pairs(), strict=True)
    calls = tuple(Call(_SYMBOLS[name], (value, other)) for other, (_, name) in pairs)
    if comparison.operator == "between":
        return Call("and", calls)
    return replace(calls[0], name="<>") if comparison.negated else calls[0]
