"""The table of a statement, worked out from its plan and the answers to its queries.

Every value here was published, so nothing that this module does costs anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from stream_dp.client.statements.published_values import PublishedValues
from stream_dp.client.statements.result_table import BAR, Column, ResultTable, Value
from stream_dp.client.statements.row_values import RowValues
from stream_dp.client.statements.sureness import SURE, Ends, Sureness, ranks
from stream_dp.client.statements.table_notes import TableNotes
from stream_dp.client.statements.table_rows import TableRow, rows_of
from stream_dp.messages import NoisyAnswer
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Expression,
    Key,
    Order,
    StatementPlan,
    published_in,
)


def evaluate(plan: StatementPlan, dataset: str, answers: Sequence[NoisyAnswer]) -> ResultTable:
    """Returns the table of a plan.

    Args:
        plan: The plan.
        dataset: The name of the data set that was asked.
        answers: The answers to ``plan.queries``, in their order.
    """
    return _Table(plan, dataset, answers).result()


class _Table:
    """Works out one table."""

    def __init__(self, plan: StatementPlan, dataset: str, answers: Sequence[NoisyAnswer]) -> None:
        self._plan = plan
        self._dataset = dataset
        self._answers = answers
        self._published = PublishedValues(plan, answers)
        self._values = RowValues(self._published)

    def result(self) -> ResultTable:
        plan = self._plan
        groups = rows_of(plan, self._answers, self._published.parts)
        rows = [row for row in groups if not self._is_empty(row)]
        sure = self._sureness(rows)
        if sure.holds is not None:
            rows = [row for row in rows if sure.holds[row] == {True}]
        elif plan.having is not None:
            rows = [row for row in rows if self._values.holds(plan.having, row) is True]
        for order in reversed(plan.order):
            rows = self._sorted(rows, order)
        end = None if plan.limit is None else plan.offset + plan.limit
        rows = rows[plan.offset : end]
        table_notes = TableNotes(plan, self._published)
        notes = list(table_notes.of_choice(sure, rows))
        if sure.tell_nothing_of(rows):
            rows = []
        more = *table_notes.of_values(self._answers), *table_notes.of_empty_groups(rows)
        # Why nothing is shown comes first.
        notes = [*more, *notes] if rows else [*notes, *more]
        columns: list[Column] = []
        values: list[list[Value]] = []
        ends: list[list[tuple[Value, Value]]] = []
        for output in plan.outputs:
            found = [self._values.estimate(output.expression, row) for row in rows]
            columns.append(Column(output.name, output.type))
            values.append([_typed(each.value, output.type) for each in found])
            if not isinstance(output.expression, Key):
                columns.append(Column(f"{output.name}{BAR}", "real", bar_of=output.name))
                values.append([None if each.value is None else each.bar for each in found])
                known = [None if each.value is None else each.ends for each in found]
                ends.append([_ends_as(pair, output.type) for pair in known])
        for column, sure_values in sure.columns(plan, rows, {column.name for column in columns}):
            columns.append(column)
            values.append(sure_values)
        return ResultTable(
            dataset=self._dataset,
            columns=tuple(columns),
            rows=list(zip(*values, strict=True)),
            phases=_phases(self._answers),
            notes=tuple(dict.fromkeys(notes)),
            answers=tuple(self._answers),
            answer=self._answers[0] if plan.alone is not None and not plan.notes else None,
            ends=list(zip(*ends, strict=True)) if ends else [()] * len(rows),
            least_cell=max((a.least_cell or 0 for a in self._published.noisy_answers()), default=0)
            or None,
            as_table=plan.as_table,
        )

    def _is_empty(self, row: TableRow) -> bool:
        """Returns whether a group surely has no row, because of the condition or the declared values."""
        if self._plan.members is None or not self._plan.groups:
            return False
        count = self._published.value(self._plan.members, row)
        return count.value == 0 and count.bar == 0.0

    def _sorted(self, rows: Sequence[TableRow], order: Order) -> list[TableRow]:
        """Sorts rows by one item of ORDER BY and keeps the order of equal ones."""
        expression = order.expression
        found: list[tuple[Any, TableRow]] = []
        missing: list[TableRow] = []
        for row in rows:
            if isinstance(expression, Key):
                value = row.ranks[expression.index]
            else:
                estimate = self._values.estimate(expression, row)
                value = estimate.value if estimate.place is None else estimate.place
            if value is None:
                missing.append(row)
            else:
                found.append((value, row))
        found.sort(key=lambda each: each[0], reverse=order.descending)
        known = [row for _, row in found]
        return [*missing, *known] if order.nulls_first else [*known, *missing]

    def _sureness(self, rows: Sequence[TableRow]) -> Sureness:
        """Returns what is sure of the rows that published values choose: of all groups, shown or not."""
        plan, holds = self._plan, None
        chosen: list[Expression] = []
        if plan.having is not None and plan.chooses_by_having:
            holds = {row: self._values.outcomes(plan.having, row, by_bars=True) for row in rows}
            chosen.append(plan.having)
        ranked = plan.order[0] if plan.chooses_by_order else None
        if ranked is not None and next(published_in(ranked.expression), None) is None:
            ranked = None  # published values only decide among equal ones
        if ranked and any(
            self._values.estimate(ranked.expression, row).place is not None for row in rows
        ):
            ranked = None  # the bins of a quantile have no ends here that tell groups apart
        if ranked is not None:
            chosen.append(ranked.expression)
        apart = None if ranked is None else self._published.apart(ranked.expression, rows)
        by_bars = chosen if apart is None else chosen[:-1]
        least = self._confidence_of(by_bars, rows, pairs=apart is not None) if chosen else 0.0
        if least < SURE:
            holds = None
        if ranked is None:
            return Sureness({}, holds, least)
        may_hold = [row for row in rows if holds is None or True in holds[row]]
        members = [
            index for index, row in enumerate(may_hold) if holds is None or holds[row] == {True}
        ]
        ends = []
        for row in may_hold:
            estimate = self._values.estimate(ranked.expression, row)
            low, high = estimate.reach
            if apart is not None and estimate.number is not None:
                low, high = estimate.number, estimate.number + apart
            ends.append((low, high) if ranked.descending else (-high, -low))
        found = dict(zip(may_hold, ranks(ends, members), strict=True))
        return Sureness(found, holds, least)

    def _confidence_of(
        self, chosen: Sequence[Expression], rows: Sequence[TableRow], *, pairs: bool
    ) -> float:
        """Returns the least probability that the bars of some expressions hold for all rows at once.

        Args:
            chosen: The expressions.
            rows: The rows.
            pairs: Whether pairs of counts must be told apart as well.
        """
        noisy = {one for one, _ in itertools.chain(*map(published_in, chosen))}
        at_once = {one for one in noisy if self._published.holds_at_once(one)}
        tables = {query for one in at_once for query in one.queries if query != NO_ROWS}
        cells = sum(len(row.cells) for row in rows)
        # a mean and a share of several cells rest on two numbers of each
        alone = sum(
            self._published.n_bars(one) + (one.part in ("mean", "share")) for one in noisy - at_once
        )
        missed = pairs + len(tables) * len(self._published.parts) + cells * alone
        confidence = self._published.confidence
        return 1.0 - missed * (1.0 - (1.0 if confidence is None else confidence))


def _phases(answers: Sequence[NoisyAnswer]) -> tuple[int, int] | None:
    if not answers:
        return None
    firsts, lasts = zip(*(answer.window for answer in answers), strict=True)
    return min(firsts), max(lasts)


def _ends_as(ends: Ends | None, column_type: str) -> tuple[Value, Value]:
    """Returns the least and the largest value. Where values are whole, so are they, and reach as far."""
    if ends is None:
        return None, None
    return ends if column_type == "real" else (math.floor(ends[0]), math.ceil(ends[1]))


def _typed(value: Value, column_type: str) -> Value:
    return float(value) if column_type == "real" and isinstance(value, int) else value
