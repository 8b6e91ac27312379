"""The table of a statement, worked out from its plan and the answers to its queries.

Every value here was published, so nothing that this module does costs anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stream_dp.attribute_dates import first_day_of
from stream_dp.client.statements.group_values import GroupValues, TableGroup
from stream_dp.client.statements.result_table import BAR, ENDS, UNRECORDED, Column, ResultTable
from stream_dp.client.statements.sureness import Truth, rank_in_words, ranks
from stream_dp.client.statements.table_notes import TableNotes, phases_of
from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.figures import Ends, Value
from stream_dp.errors import StreamDPError
from stream_dp.messages import NoisyAnswer, SeriesAnswer
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Expression,
    GroupColumn,
    Key,
    Order,
    Published,
    StatementPlan,
    has_bar,
    published_in,
)

_BY_VALUE: Final = (
    "published values chose these rows, so noise may decide about a group near the limit"
)
_SURE: Final = 0.9 - 1e-9
"""The least confidence with which people read what is sure. The 1e-9 is for how floats add up."""


@dataclass(frozen=True, slots=True)
class _Sureness:
    """What is sure of the groups of a table.

    Attributes:
        ranks: The least and the largest rank of each group that may satisfy HAVING. Empty where nothing is
            ranked.
        holds: What HAVING may come to for each group. None where it is sure, or nothing is.
        confidence: The least probability with which all of this holds at once. Where it is low, no rank is
            shown: one that says nothing is true all the same.
    """

    ranks: Mapping[TableGroup, tuple[int, int]]
    holds: Mapping[TableGroup, set[Truth]] | None
    confidence: float

    def columns(
        self, plan: StatementPlan, rows: Sequence[TableGroup], taken: set[str]
    ) -> Iterator[tuple[Column, list[Value]]]:
        """Yields the columns that say what is sure of some rows, with names that are not taken."""
        if self.shows_ranks:
            limit, name = None if plan.offset else plan.limit, _free("rank", taken)
            found = [self.ranks[row] for row in rows]
            said: list[Value] = [rank_in_words(rank, len(self.ranks), limit) for rank in found]
            yield Column(name, "text", sure_of="ORDER BY"), said
            for end, ranks_at_end in zip(ENDS, zip(*found, strict=True), strict=False):
                column = Column(f"{name}{end}", "integer", end_of=name, sure_of="ORDER BY")
                yield column, list(ranks_at_end)

    @property
    def shows_ranks(self) -> bool:
        return bool(self.ranks) and self.confidence >= _SURE

    def tell_nothing_of(self, rows: Sequence[TableGroup]) -> bool:
        """Returns whether these first rows may as well be any others."""
        n = len(self.ranks)
        return 0 < len(rows) < n and all(self.ranks.get(row) == (1, n) for row in rows)

    def notes(self) -> Iterator[str]:
        if self.shows_ranks or self.holds is not None:
            names = ["ranks"] * self.shows_ranks + ["what HAVING says"] * (self.holds is not None)
            yield (
                f"{' and '.join(names)} of all groups {'are' if self.shows_ranks else 'is'} sure at once, "
                f"with a confidence of at least {100 * self.confidence:.6g}%"
            )
        if self.holds is not None:
            n_yes = sum(truths == {True} for truths in self.holds.values())
            n_no = sum(True not in truths for truths in self.holds.values())
            yield (
                f"of {len(self.holds):,} groups HAVING surely holds for {n_yes:,} and surely not for "
                f"{n_no:,}; of the other {len(self.holds) - n_yes - n_no:,} it cannot be told, so they are "
                "not shown"
            )


def _free(name: str, taken: set[str]) -> str:
    """Returns a name for a column that no other one has."""
    return name if name not in taken else _free(f"{name}_", taken)


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
        self._periods = _periods(plan, answers)
        self._values = GroupValues(plan, answers)

    def result(self) -> ResultTable:
        plan = self._plan
        rows = [row for row in self._rows() if not self._is_empty(row)]
        sure = self._sureness(rows)
        if sure.holds is not None:
            rows = [row for row in rows if sure.holds[row] == {True}]
        elif plan.having is not None:
            rows = [
                row
                for row in rows
                if self._values.outcomes(plan.having, row, by_bars=False) == {True}
            ]
        for order in reversed(plan.order):
            rows = self._sorted(rows, order)
        end = None if plan.limit is None else plan.offset + plan.limit
        rows = rows[plan.offset : end]
        notes = list(self._of_choice(sure, rows))
        if sure.tell_nothing_of(rows):
            rows = []
        more = list(TableNotes(plan, self._values, self._answers).all_of(rows))
        # Why nothing is shown comes first.
        notes = [*more, *notes] if rows else [*notes, *more]
        columns: list[Column] = []
        values: list[list[Value]] = []
        ends: list[list[tuple[Value, Value]]] = []
        for output in plan.outputs:
            found = [self._values.of(output.expression, row) for row in rows]
            columns.append(Column(output.name, output.type))
            values.append([_typed(each.value, output.type) for each in found])
            if output.has_bar:
                columns.append(Column(f"{output.name}{BAR}", "real", bar_of=output.name))
                values.append([None if each.value is None else each.bar for each in found])
                known = [None if each.value is None else each.ends for each in found]
                ends.append([_ends_as(pair, output.type) for pair in known])
        more_columns = sure.columns(plan, rows, {column.name for column in columns})
        for column, more_values in itertools.chain(self._unrecorded(rows), more_columns):
            columns.append(column)
            values.append(more_values)
        return ResultTable(
            dataset=self._dataset,
            columns=tuple(columns),
            rows=list(zip(*values, strict=True)),
            phases=phases_of(self._answers),
            notes=tuple(dict.fromkeys(notes)),
            answers=tuple(self._answers),
            answer=self._answers[0] if plan.alone is not None and not plan.notes else None,
            ends=list(zip(*ends, strict=True)) if ends else [()] * len(rows),
            least_cell=max((a.least_cell or 0 for a in self._values.noisy), default=0) or None,
            as_table=plan.as_table,
        )

    def _unrecorded(self, rows: Sequence[TableGroup]) -> Iterator[tuple[Column, list[Value]]]:
        """Yields, for each column of counts, how many more rows of older phases there may be."""
        if not any(a.recorded_since is not None for a in self._values.noisy):
            return
        for name, counted in self._plan.counts:
            found: list[Value] = [self._values.unrecorded(counted, row) for row in rows]
            yield Column(f"{name}{UNRECORDED}", "integer"), found

    # ------------------------------------------------------------ rows

    def _rows(self) -> Iterator[TableGroup]:
        """Yields the groups in the order of the declared values."""
        labels = self._labels()
        if labels is None:
            return
        places_of = [{v: i for i, v in enumerate(group.values)} for group in self._plan.groups]
        alike = [list(range(len(each))) for each in labels]
        for group, known in zip(self._plan.groups, places_of, strict=True):
            if group.values and not group.by_case and not group.apart:
                alike[group.axis] = [known[value] for value in group.values]
        cells: dict[tuple[int, ...], list[int]] = {}
        for index, at in enumerate(itertools.product(*alike)):
            cells.setdefault(at, []).append(index)
        for part, case in itertools.product(
            range(len(self._values.parts)), range(len(self._plan.cases))
        ):
            said = self._plan.cases[case]
            for at, indices in sorted(cells.items()):
                places, keys = [], []
                for group, known in zip(self._plan.groups, places_of, strict=True):
                    if group.period:
                        place, key = part, self._periods[part]
                    elif group.by_case:
                        key = said[group.axis]
                        place = known[key]
                    else:
                        place, of_axis = at[group.axis], labels[group.axis]
                        key = _key(group, place, of_axis[place], n=len(of_axis))
                    places.append(place)
                    keys.append(key)
                groups = zip(self._plan.groups, keys, strict=True)
                if any(group.matched and key is None for group, key in groups):
                    continue
                ranks = tuple(
                    place if group.ranked and key is not None else key
                    for group, place, key in zip(self._plan.groups, places, keys, strict=True)
                )
                yield TableGroup(part, case, tuple(indices), tuple(places), tuple(keys), ranks)

    def _labels(self) -> list[tuple[str, ...]] | None:
        """Returns the labels of the grouped attributes, from any answer that has a cell for each group.

        None if there is no such answer, because no row can satisfy the condition.
        """
        wanted = sum(not group.by_case and not group.period for group in self._plan.groups)
        if not wanted:
            return []
        tables = (answer.axes[:wanted] for answer in self._values.cells if answer.names)
        found = next(tables, None)
        return None if found is None else list(found)

    def _is_empty(self, row: TableGroup) -> bool:
        """Returns whether a group surely has no row, because of the condition or the declared values."""
        if self._plan.members is None or not self._plan.groups:
            return False
        members = self._plan.members
        count = self._values.published(members, row)
        return count.value == 0 and count.bar == 0.0 and not self._values.unrecorded(members, row)

    def _sorted(self, rows: Sequence[TableGroup], order: Order) -> list[TableGroup]:
        """Sorts rows by one item of ORDER BY and keeps the order of equal ones."""
        expression = order.expression
        found: list[tuple[Any, TableGroup]] = []
        missing: list[TableGroup] = []
        for row in rows:
            if isinstance(expression, Key):
                value = row.ranks[expression.index]
            else:
                figure = self._values.of(expression, row)
                value = figure.value if figure.place is None else figure.place
            if value is None:
                missing.append(row)
            else:
                found.append((value, row))
        found.sort(key=lambda each: each[0], reverse=order.descending)
        known = [row for _, row in found]
        return [*missing, *known] if order.nulls_first else [*known, *missing]

    # ------------------------------------------------------------ what is sure

    def _sureness(self, rows: Sequence[TableGroup]) -> _Sureness:
        """Returns what is sure of the rows that published values choose: of all groups, shown or not."""
        plan, holds = self._plan, None
        chosen: list[Expression] = []
        if plan.having is not None and plan.chooses_by_having:
            holds = {row: self._values.outcomes(plan.having, row, by_bars=True) for row in rows}
            chosen.append(plan.having)
        ranked = plan.order[0] if plan.chooses_by_order else None
        if ranked is not None and not has_bar(ranked.expression):
            ranked = None  # published values only decide among equal ones, or by their bars
        if ranked and any(
            self._values.of(ranked.expression, row).place is not None for row in rows
        ):
            ranked = None  # the bins of a quantile have no ends here that tell groups apart
        if ranked is not None:
            chosen.append(ranked.expression)
        apart = None if ranked is None else self._apart(ranked.expression, rows)
        by_bars = chosen if apart is None else chosen[:-1]
        least = self._confidence_of(by_bars, rows, pairs=apart is not None) if chosen else 0.0
        if least < _SURE:
            holds = None
        if ranked is None:
            return _Sureness({}, holds, least)
        may_hold = [row for row in rows if holds is None or True in holds[row]]
        members = [
            index for index, row in enumerate(may_hold) if holds is None or holds[row] == {True}
        ]
        ends = []
        for row in may_hold:
            figure = self._values.of(ranked.expression, row)
            low, high = figure.possible
            if apart is not None and figure.number is not None:
                low, high = figure.number, figure.number + apart
            ends.append((low, high) if ranked.descending else (-high, -low))
        found = dict(zip(may_hold, ranks(ends, members), strict=True))
        return _Sureness(found, holds, least)

    def _apart(self, expression: Expression, rows: Sequence[TableGroup]) -> float | None:
        """Returns how far two counts of one table differ if they do for sure; None where only bars tell."""
        if not isinstance(expression, Published) or expression.part != "count":
            return None
        one_table = expression.grouped and len(self._values.parts) == len(expression.queries) == 1
        if not one_table or any(len(row.cells) > 1 for row in rows):
            return None
        (query,) = expression.queries
        answer = None if query == NO_ROWS else self._values.parts[0][query]
        return answer.apart if isinstance(answer, AnswerCells) else None

    def _confidence_of(
        self, chosen: Sequence[Expression], rows: Sequence[TableGroup], *, pairs: bool
    ) -> float:
        """Returns the least probability that the bars of some expressions hold for all rows at once.

        Args:
            chosen: The expressions.
            rows: The rows.
            pairs: Whether pairs of counts must be told apart as well.
        """
        noisy = set(itertools.chain(*map(published_in, chosen)))
        at_once = {one for one in noisy if self._values.hold_at_once(one)}
        tables = {query for one in at_once for query in one.queries if query != NO_ROWS}
        cells = sum(len(row.cells) for row in rows)
        # a mean and a share of several cells rest on two numbers of each
        alone = sum(
            self._values.n_bars(one) + (one.part in ("mean", "share")) for one in noisy - at_once
        )
        missed = pairs + len(tables) * len(self._values.parts) + cells * alone
        return 1.0 - missed * self._values.missed

    def _of_choice(self, sure: _Sureness, rows: Sequence[TableGroup]) -> Iterator[str]:
        """Yields what to know of rows that published values choose, and of the bars, which are chosen too."""
        if not self._plan.chooses_by_value:
            return
        if sure.tell_nothing_of(rows):
            yield (
                f"the first {len(rows):,} of {len(sure.ranks):,} groups cannot be told apart from the "
                "others, so they are not shown; ask about fewer groups, or allow more, such as COSTING AT "
                "MOST 10%"
            )
            return
        parts = itertools.chain(*(published_in(output.expression) for output in self._plan.outputs))
        is_one = len(self._plan.queries) == 1 and not self._plan.is_series
        at_once = is_one and all(map(self._values.hold_at_once, parts))
        bars = f"the bars {'hold for all groups at once' if at_once else 'may hold for each group alone'}"
        is_sure = not self._plan.chooses_by_order and sure.holds is not None
        yield bars if is_sure else f"{_BY_VALUE}; {bars}"
        yield from sure.notes()


def _ends_as(ends: Ends | None, column_type: str) -> tuple[Value, Value]:
    """Returns the least and the largest value. Where values are whole, so are they, and reach as far."""
    if ends is None:
        return None, None
    return ends if column_type == "real" else (math.floor(ends[0]), math.ceil(ends[1]))


def _typed(value: Value, column_type: str) -> Value:
    return float(value) if column_type == "real" and isinstance(value, int) else value


def _key(group: GroupColumn, place: int, label: str, *, n: int) -> Value:
    """Returns the value of a group column by the place and the label of its cell, which is one of ``n``."""
    if group.values:
        if len(group.values) != n:
            raise StreamDPError(
                "the attributes of the data set have changed since this was asked; ask it again, under "
                "another id"
            )
        return group.values[place]
    if group.has_missing and place == n - 1:
        return None
    return label == "true" if group.type == "boolean" else label


def _periods(plan: StatementPlan, answers: Sequence[NoisyAnswer]) -> list[Value]:
    """Returns what names each part of a series: the number of its phase, or the first day of its period."""
    if not plan.is_series or not answers:
        return []
    answer = answers[0]
    assert isinstance(answer, SeriesAnswer), "each query asks the series"
    if answer.series == "phase":
        return [part.window[0] for part in answer.parts]
    return [
        None if part.since is None else first_day_of(answer.series, part.since[:10])
        for part in answer.parts
    ]
