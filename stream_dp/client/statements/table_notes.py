"""What the reader of a table should know, each a sentence."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from stream_dp.client.statements.published_values import PublishedValues
from stream_dp.client.statements.sureness import Sureness, few_of, in_sql, use_of_all_in_words
from stream_dp.client.statements.table_rows import TableRow
from stream_dp.client.statements.values_with_bars import ValueWithBar, rows_in_words
from stream_dp.messages import (
    CellsAnswer,
    NoisyAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    RefusedAnswer,
    ShareAnswer,
    ShareByGroupAnswer,
)
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Call,
    Expression,
    GroupColumn,
    Published,
    StatementPlan,
    published_in,
)

_BY_VALUE: Final = (
    "published values chose these rows, so noise may decide about a group near the limit"
)
_OF_BINS: Final = (
    "STDDEV and VARIANCE take each value as the middle of its bin, or the edge of an outer bin; "
    "their bars "
)
_LEFT_OUT: Final = f"{_OF_BINS}leave out how far values lie from there"
_COVERED: Final = f"{_OF_BINS}cover all values that the bins and the ends of measure allow"


class TableNotes:
    """The notes of one table.

    Args:
        plan: The plan.
        published: The published values.
    """

    def __init__(self, plan: StatementPlan, published: PublishedValues) -> None:
        self._plan = plan
        self._published = published
        self._answers = list(published.noisy_answers())
        self._values = [list(published_in(output.expression)) for output in plan.outputs]
        self._parts = [one for one, _ in itertools.chain(*self._values)]

    def of_values(self, answers: Sequence[NoisyAnswer]) -> Iterator[str]:
        """Yields what to know of all values, from the whole ``answers`` to the queries."""
        plan = self._plan
        yield from plan.notes
        use = use_of_all_in_words(
            self._answers, n_queries=len(plan.queries), is_series=plan.is_series
        )
        if use is not None:
            yield use
        yield from self._of_null_groups()
        n_bars = (sum(self._published.n_bars(one) for one, _ in set(each)) for each in self._values)
        several = max(n_bars, default=0)
        if several > 1 and self._published.confidence is not None:
            yield (
                "the bar of a computed column holds where those of all its values do: with a confidence of "
                f"at least {self._confidence_of(several):g}%"
            )
        for each in self._parts:
            if each.part == "spread":
                yield _COVERED if any(low < high for low, _, high in each.bins) else _LEFT_OUT
        several_phases = len({phase for answer in answers for phase in answer.window}) > 1
        if several_phases and any(_counts_persons(output.expression) for output in plan.outputs):
            yield (
                "nobody knows who comes in several phases: the number of persons lies between that of the "
                "phase with the most rows and the sum of all phases"
            )
        yield from self._of_refusals()
        for answer in self._answers if not plan.is_series else [*answers, *self._answers]:
            yield from _of_answer(answer)
        yield from self._of_rows_that_count()

    def _confidence_of(self, n_bars: int) -> float:
        """Returns the least confidence, in percent, with which several bars hold at once."""
        assert self._published.confidence is not None, "there are bars"
        return 100 * max(0.0, 1.0 - n_bars * (1.0 - self._published.confidence))

    def _of_null_groups(self) -> Iterator[str]:
        groups, independent = self._plan.groups, self._published.is_independent
        added = math.prod(map(_most_cells, groups))
        only_null = all(_most_cells(group, nulls=False) == 1 for group in groups)
        if added == 1:
            return
        if any(each.part == "found" for each in self._parts):
            yield (
                f"NULL is a group of {added} cells, so its medians, quantiles, least and largest values are "
                "unknown"
            )
        if only_null and independent:
            yield "dates that are missing or outside the declared range are one group, NULL"
        is_added = any(each.part != "found" for each in self._parts)
        if is_added and self._published.confidence is not None and not independent:
            # a mean and a share of several cells rest on two numbers of each
            bars = added * max(
                sum(1 + (one.part in ("mean", "share")) for one in {one for one, _ in each})
                for each in self._values
            )
            which = (
                "dates that are missing or outside the declared range are one group, NULL: its bar adds"
                if only_null
                else "a group of several cells has a bar that adds"
            )
            yield (
                f"{which} up those of {added} cells, and holds with a confidence of at least "
                f"{self._confidence_of(bars):g}%"
            )

    def _of_refusals(self) -> Iterator[str]:
        parts = itertools.chain(*self._published.parts)
        refused = [one.reason for one in parts if isinstance(one, RefusedAnswer)]
        for code in dict.fromkeys(reason.code for reason in refused):
            said = [reason.message for reason in refused if reason.code == code]
            n = "" if len(said) == 1 else f" ({len(said):,} parts; this is why the first is)"
            yield f"some values are missing{n}: {said[0]}"

    def _of_rows_that_count(self) -> Iterator[str]:
        """Yields which rows count, how many these are, and how much larger a count of all rows may be."""
        known = [answer for answer in self._answers if answer.counted is not None]
        if not known:
            return
        unit, of = self._plan.unit, "the rows that count"
        best = min(known, key=lambda one: (-one.n, one.counted_bar or 0.0))
        if not self._plan.is_series:
            rows = rows_in_words(ValueWithBar(best.counted, best.counted_bar))
            of = f"the {rows} rows that count, of {best.n:,}"
        if unit is not None:
            n = unit["rows_per_phase"]
            of += f": at most {n:,} row{'' if n == 1 else 's'} of each {unit['key']} in a phase"
        yield f"counts and shares are of {of}"
        if best.surplus_at_most and not self._plan.is_series:
            more = math.ceil(best.surplus_at_most * best.n)
            yield f"a count among all rows may be larger by up to {more:,}"

    def of_choice(self, sure: Sureness, rows: Sequence[TableRow]) -> Iterator[str]:
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
        is_one = len(self._plan.queries) == 1 and not self._plan.is_series
        at_once = is_one and all(map(self._published.holds_at_once, self._parts))
        bars = f"the bars {'hold for all groups at once' if at_once else 'may hold for each group alone'}"
        is_sure = not self._plan.chooses_by_order and sure.holds is not None
        yield bars if is_sure else f"{_BY_VALUE}; {bars}"
        yield from sure.notes()

    def of_empty_groups(self, rows: Sequence[TableRow]) -> Iterator[str]:
        """Yields why means and shares are unknown: by the bars, too few rows may be there, or none."""
        for output, values in zip(self._plan.outputs, self._values, strict=True):
            found = [
                self._rows_of(part, row)
                for row in rows
                for part in dict.fromkeys(one for one, _ in values)
                if part.part in ("mean", "share", "spread") and self._is_told(part, row)
                if self._published.value(part, row).value is None
            ]
            if found:
                few = few_of(found)
                yield f"{output.name} is unknown where a group may have too few rows, or none: {few}"

    def _is_told(self, part: Published, row: TableRow) -> bool:
        query = part.queries[row.case]
        return query != NO_ROWS and not isinstance(
            self._published.answer(query, row), RefusedAnswer
        )

    def _rows_of(self, part: Published, row: TableRow) -> str:
        """Returns the rows that a mean, share or spread is of, and those of the share, in words."""
        answer = self._published.answer(part.queries[row.case], row)
        cells = row.cells if part.grouped else (0,)
        counted = self._published.value(replace(part, part="count"), row)
        if part.part == "spread" and isinstance(answer, CellsAnswer):
            n = len(answer.table.labels[-1])
            bins = [cell * n + i for cell in cells for i in range(len(part.bins))]
            counted = self._published.of_cells("count", answer, bins)
        numbers = [counted]
        if isinstance(answer, ShareAnswer | ShareByGroupAnswer):
            numbers = [self._published.rows_of_share(answer, cells), counted]
        name = ", ".join(map(str, row.keys)) if part.grouped and row.keys else "all rows"
        return f"{name}: {' of '.join(map(rows_in_words, numbers))} rows"


def _of_answer(answer: NoisyAnswer) -> Iterator[str]:
    if isinstance(answer, QuantileAnswer | QuantileByGroupAnswer):
        yield (
            "a median, a quantile, a least or largest value lies in the bins shown, with a "
            f"confidence of {100 * (answer.confidence or 0.0):g}%; its bar is that of its rank, as a "
            "share of the rows"
        )
    if answer.path == "unverified" and answer.useful is None:
        yield (
            "some values rest on no look that the query may pay for, and may be further off than "
            "their bars say"
        )
    if answer.note:
        yield in_sql(answer.note)


def _most_cells(group: GroupColumn, *, nulls: bool = True) -> int:
    """Returns how many cells a value of a group column has at most, NULL among the values if ``nulls``."""
    if group.by_case or group.apart:
        return 1
    counted = Counter(v for v in group.values if v is not None or (nulls and not group.matched))
    return max(counted.values(), default=1)


def _counts_persons(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    return expression.name == "persons" or any(map(_counts_persons, expression.arguments))
