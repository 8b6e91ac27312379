"""What the answers to the queries of a statement publish for each row of its table."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from stream_dp.client.statements.bin_spreads import has_rows, spread
from stream_dp.client.statements.sureness import Ends
from stream_dp.client.statements.table_rows import TableRow
from stream_dp.client.statements.values_with_bars import (
    NULL,
    UNKNOWN,
    ValueWithBar,
    applied,
    bar_in_rows,
    counted,
    independent_total_of,
    total_of,
)
from stream_dp.messages import (
    CellsAnswer,
    CorrelationAnswer,
    CountAnswer,
    FoundAnswer,
    FoundCell,
    NoisyAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    RefusedAnswer,
    SeriesAnswer,
    ShareByGroupAnswer,
    SumByGroupAnswer,
    Table,
)
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Expression,
    Published,
    StatementPlan,
    published_in,
)

_ByGroup: TypeAlias = CellsAnswer | SumByGroupAnswer | ShareByGroupAnswer


class PublishedValues:
    """The published values of a plan, with their bars.

    Args:
        plan: The plan.
        answers: The answers to its queries, in their order.

    Attributes:
        parts: The answers to the queries about each part of a series; there is one part without a series.
    """

    def __init__(self, plan: StatementPlan, answers: Sequence[NoisyAnswer]) -> None:
        self._plan = plan
        self.parts: list[list[NoisyAnswer | RefusedAnswer]] = [list(answers)]
        if plan.is_series:
            series = [answer for answer in answers if isinstance(answer, SeriesAnswer)]
            columns = ([part.answer for part in answer.parts] for answer in series)
            self.parts = [list(parts) for parts in zip(*columns, strict=True)]

    def noisy_answers(self) -> Iterator[NoisyAnswer]:
        """Yields the answers, or those of the parts of a series, that were not refused."""
        for answer in itertools.chain(*self.parts):
            if isinstance(answer, NoisyAnswer):
                yield answer

    @functools.cached_property
    def confidence(self) -> float | None:
        """The least confidence of an answer; None where none has bars."""
        found = (answer.confidence for answer in self.noisy_answers())
        return min((each for each in found if each is not None), default=None)

    def answer(self, query: int, row: TableRow) -> NoisyAnswer | RefusedAnswer:
        """Returns the answer to a query. Of one about each phase, that of the phase with the most rows."""
        answer = self.parts[row.part][query]
        if not isinstance(answer, SeriesAnswer):
            return answer
        known = [part.answer for part in answer.parts if isinstance(part.answer, NoisyAnswer)]
        return max(known, key=lambda one: one.n)

    def value(self, published: Published, row: TableRow) -> ValueWithBar:
        """Returns a published value for a row."""
        query, part = published.queries[row.case], published.part
        if query == NO_ROWS:
            return ValueWithBar(0) if part in ("count", "rows") else NULL
        answer, cells = self.answer(query, row), row.cells if published.grouped else (0,)
        match answer:
            case RefusedAnswer():
                return UNKNOWN
            case QuantileByGroupAnswer() if len(cells) > 1:
                return UNKNOWN  # nothing is known of several cells together
            case CellsAnswer() if part == "spread":
                return _spread(published, answer, cells)
            case QuantileByGroupAnswer(table=table):
                return _bins(table.lies_in[cells[0]], table.error_bars[cells[0]])
            case CellsAnswer() | SumByGroupAnswer() | ShareByGroupAnswer():
                return self.of_cells(part, answer, cells)
            case QuantileAnswer():
                return _bins(answer.lies_in, answer.error_bar)
            case CorrelationAnswer():
                possible = answer.value_low, answer.value_high
                return ValueWithBar(answer.value, answer.error_bar, possible)
            case FoundAnswer(found=found):
                return ValueWithBar(None if found is None else found.label, None)
        return self._part(part, answer)

    def of_cells(self, part: str, answer: _ByGroup, cells: Sequence[int]) -> ValueWithBar:
        """Returns a part of one group of a table, which may have several cells."""
        if len(cells) == 1:
            return self._part(part, answer, cells[0])
        if part in ("mean", "share"):
            above, below = (
                total_of([self._part(each, answer, cell) for cell in cells])
                for each in ("total" if part == "mean" else "both", "count")
            )
            found = applied("/", [above, below])
            return UNKNOWN if found.bar is None else found
        values = [self._part(part, answer, cell) for cell in cells]
        return independent_total_of(values) if self.is_independent else total_of(values)

    def rows_of_share(self, answer: NoisyAnswer, cells: Sequence[int]) -> ValueWithBar:
        """Returns the rows that satisfy both conditions of a share."""
        if isinstance(answer, ShareByGroupAnswer):
            return total_of([self._part("both", answer, cell) for cell in cells])
        return self._part("both", answer)

    def _part(self, part: str, answer: NoisyAnswer, cell: int | None = None) -> ValueWithBar:
        """Returns a part of an answer, or of one cell of its table."""
        said = _fields(answer, cell)
        if part == "count":
            return self._count(answer, cell)
        if part == "rows":
            return counted(said("rows"), said("rows_bar"), answer.n)
        if part == "both":
            return ValueWithBar(said("both"), said("both_bar"))
        ends = _both(said(f"{part}_low"), said(f"{part}_high"))
        return ValueWithBar(said(part), said(f"{part}_bar"), ends)

    def _count(self, answer: NoisyAnswer, cell: int | None) -> ValueWithBar:
        said, wider = _fields(answer, cell), 1.0
        bar, ends = said("error_bar"), _both(said("low"), said("high"))
        if self._plan.chooses_by_value and cell is not None:
            bars, wider, at_once = bars_for_all(answer.table)  # type: ignore[attr-defined]
            bar, ends = bars[cell], None if at_once else ends
        elif self._plan.chooses_by_value and isinstance(answer, CountAnswer):
            bar, ends = answer.error_bar_simultaneous or bar, None
        in_rows = _times(said("count_bar"), wider)
        if in_rows is None:
            in_rows = bar_in_rows(said("value"), said("count"), answer.n, _times(bar, wider))
        return counted(said("count"), in_rows, answer.n, ends)

    # ------------------------------------------------------------ what bars hold for

    def holds_at_once(self, published: Published) -> bool:
        """Returns whether the bars of a value hold for all groups at once."""
        return published.part == "count" and self._rests_on_bars_for_all(published)

    def n_bars(self, published: Published) -> int:
        """Returns how many bars must hold for that of one value to hold."""
        is_one = published.part != "spread" or self._rests_on_bars_for_all(published)
        return 1 if is_one else len(published.bins)

    def _rests_on_bars_for_all(self, published: Published) -> bool:
        queries = [query for query in published.queries if query != NO_ROWS]
        for answer in (part[query] for part in self.parts for query in queries):
            match answer:
                case CellsAnswer(table=table):
                    at_once = bars_for_all(table)[2]
                case CountAnswer():
                    at_once = answer.error_bar_simultaneous is not None and answer.count_bar is None
                case _:
                    at_once = False
            if not at_once:
                return False
        return True

    @functools.cached_property
    def is_independent(self) -> bool:
        """Whether all values are counts whose cells have independent noise, so that their squares add up."""
        parts = (
            each for output in self._plan.outputs for each, _ in published_in(output.expression)
        )
        tables = (answer for answer in self.noisy_answers() if isinstance(answer, CellsAnswer))
        return all(each.part == "count" for each in parts) and all(
            answer.table.apart is not None for answer in tables
        )

    def apart(self, expression: Expression, rows: Sequence[TableRow]) -> float | None:
        """Returns how far two counts of one table differ if they do for sure; None where only bars tell."""
        if not isinstance(expression, Published) or expression.part != "count":
            return None
        one_table = expression.grouped and len(self.parts) == len(expression.queries) == 1
        if not one_table or any(len(row.cells) > 1 for row in rows):
            return None
        answer = self.parts[0][expression.queries[0]] if expression.queries[0] != NO_ROWS else None
        return answer.table.apart if isinstance(answer, CellsAnswer) else None


def bars_for_all(table: Table) -> tuple[Sequence[float | None], float, bool]:
    """Returns the bars of a table's shares for readers of several cells.

    Returns:
        The bars, how many times as wide each is to be taken, and whether all of them hold at once then.
    """
    if table.wider is not None:
        return table.error_bars, table.wider, True
    of_all = table.error_bars_simultaneous
    if of_all and None not in of_all and table.count_bars is None:
        return of_all, 1.0, True
    return table.error_bars, 1.0, False


def _bins(lies_in: FoundCell | None, rank_bar: float | None) -> ValueWithBar:
    """Returns the bins that a quantile lies in, with the bar of its rank."""
    if lies_in is None:
        return UNKNOWN
    return ValueWithBar(lies_in.label, rank_bar, place=lies_in.place)


def _fields(answer: Any, cell: int | None) -> Callable[[str], Any]:
    """Returns the fields of an answer by name, or those of a cell: a table has a list of each, or None."""
    if cell is None:
        return functools.partial(getattr, answer)

    def of_cell(name: str) -> Any:
        values = getattr(answer.table, name if name in ("rows", "both") else f"{name}s")
        return None if values is None else values[cell]

    return of_cell


def _times(bar: float | None, wider: float) -> float | None:
    return None if bar is None else wider * bar


def _both(low: float | None, high: float | None) -> Ends | None:
    """Returns two ends; None for an answer of a release that had none."""
    return None if low is None or high is None else (low, high)


def _spread(published: Published, answer: CellsAnswer, cells: Sequence[int]) -> ValueWithBar:
    """Returns a variance or a standard deviation of some cells from the counts of their bins."""
    table = answer.table
    n_cells = len(table.labels[-1])
    all_bars, wider, at_once = bars_for_all(table)
    sizes, unit = table.values, float(answer.n)
    if table.count_bars is not None:  # a share is of rows whose number is not known
        sizes, all_bars, unit = table.counts, table.count_bars, 1.0
    counts, bars = [], []
    for index in range(len(published.bins)):
        at = [cell * n_cells + index for cell in cells]
        known = [bar for bar in (all_bars[each] for each in at) if bar is not None]
        counts.append(sum(sizes[each] for each in at) * unit)
        bars.append(sum(known) * wider * unit if len(known) == len(at) else None)
    if not has_rows(counts, bars, at_once=at_once):
        return UNKNOWN
    return spread(counts, bars, published)
