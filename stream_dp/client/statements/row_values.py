"""The values of expressions for each row of a table, and whether conditions hold for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stream_dp.client.statements.published_values import PublishedValues
from stream_dp.client.statements.sureness import (
    COMPARISONS,
    CONNECTIVES,
    Truth,
    compared,
    connected,
)
from stream_dp.client.statements.table_rows import TableRow
from stream_dp.client.statements.values_with_bars import (
    NULL,
    UNKNOWN,
    ValueWithBar,
    applied,
    persons_between,
)
from stream_dp.sql.plan.statement_plan import Among, Call, Constant, Expression, Key, Published


class RowValues:
    """What the expressions of a plan come to.

    Args:
        published: The published values.
    """

    def __init__(self, published: PublishedValues) -> None:
        self._published = published

    def estimate(self, expression: Expression, row: TableRow) -> ValueWithBar:
        """Returns the value of an expression for a row."""
        match expression:
            case Constant(value=value):
                return ValueWithBar(value)
            case Key(index=index):
                return ValueWithBar(row.keys[index])
            case Published():
                return self._published.value(expression, row)
            case Call(name="coalesce", arguments=arguments):
                for found in (self.estimate(each, row) for each in arguments):
                    if found.value is not None:
                        return found
                    if found.bar is None:
                        return UNKNOWN  # it has a value, which nobody knows
                return NULL
            case Call(name="lag", arguments=(value, Constant(value=int(shift)))):
                part = row.part - shift
                known = 0 <= part < len(self._published.parts)
                return self.estimate(value, replace(row, part=part)) if known else NULL
            case Call(name="persons", arguments=(whole, largest)):
                return persons_between(self.estimate(whole, row), self.estimate(largest, row))
            case Call(name="n_parts", arguments=(Constant(value=int(most)),)):
                return ValueWithBar(min(row.part + 1, most))
            case Call(name=name, arguments=arguments):
                return applied(name, [self.estimate(each, row) for each in arguments])
            case Among():
                raise TypeError("a condition is not a value")

    def holds(self, condition: Expression, row: TableRow) -> Truth:
        """Returns whether a condition holds for the values of a row."""
        (truth,) = self.outcomes(condition, row, by_bars=False)
        return truth

    def outcomes(self, condition: Expression, row: TableRow, *, by_bars: bool) -> set[Truth]:
        """Returns what a condition may come to for a row.

        Args:
            condition: The condition.
            row: The row.
            by_bars: Whether values may be anywhere within their bars. If not, there is one outcome.
        """
        if isinstance(condition, Among):
            place = row.places[condition.index]
            is_true, is_false = condition.true >> place & 1, condition.false >> place & 1
            return {True if is_true else False if is_false else None}
        assert isinstance(condition, Call), "a condition is an operator"
        name, arguments = condition.name, condition.arguments
        if name in CONNECTIVES:
            parts = [self.outcomes(each, row, by_bars=by_bars) for each in arguments]
            return connected(name, parts)
        values = [self.estimate(each, row) for each in arguments]
        return _compared(name, values, by_bars=by_bars and any(each.bar != 0.0 for each in values))


def _compared(name: str, values: Sequence[ValueWithBar], *, by_bars: bool) -> set[Truth]:
    """Returns what a comparison may come to."""
    first, *others = values
    if name == "is_null":
        return {True, False} if by_bars and first.value is None else {first.value is None}
    if name == "in":
        return connected(
            "or", [_compared("=", (first, other), by_bars=by_bars) for other in others]
        )
    if any(each.value is None and (each.bar == 0.0 or not by_bars) for each in values):
        return {None}  # what equals NULL is unknown for sure
    if by_bars and any(each.number is None for each in values):
        return {True, False, None}
    if by_bars:
        return compared(name, first.reach, others[0].reach)
    try:
        return {COMPARISONS[name](first.value, others[0].value)}
    except TypeError:  # a text and a number
        return {None}
