"""The table of a statement, worked out from its plan and the answers to its queries.

Every value here was published, so nothing that this module does costs anything. A half width of a computed
value is the largest distance that the half widths of its parts allow, and so are its ends. Both hold wherever
all of theirs do.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from operator import add, mul, sub, truediv
from typing import Any, Final, TypeAlias

from stream_dp.client.statements.result_table import BAR, ENDS, Column, ResultTable, Value
from stream_dp.client.statements.sureness import (
    COMPARISONS,
    CONNECTIVES,
    Ends,
    Truth,
    compared,
    connected,
    few_of,
    in_sql,
    rank_in_words,
    ranks,
    use_of_all_in_words,
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
    ShareAnswer,
    ShareByGroupAnswer,
    SumAnswer,
    SumByGroupAnswer,
    Table,
)
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Among,
    Call,
    Constant,
    Expression,
    GroupColumn,
    Key,
    Order,
    Published,
    StatementPlan,
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


_Ends: TypeAlias = Ends | None
"""The least and the largest number that a value may stand for; None where that is not known."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A value and the half width around it: 0 for an exact value, None where it is not known.

    Attributes:
        value: The value.
        bar: The half width.
        known: The ends, where they are not just those of the bar.
    """

    value: Value
    bar: float | None = 0.0
    known: _Ends = None
    place: int | None = None  # what a text sorts by, where it has an order of its own

    @property
    def ends(self) -> _Ends:
        """The ends that are known, or else those of the bar. A text has none."""
        if self.known is not None or self.number is None or self.bar is None:
            return self.known
        return self.number - self.bar, self.number + self.bar

    @property
    def number(self) -> float | None:
        return None if self.value is None or isinstance(self.value, str) else float(self.value)


_SURE: Final = 0.9 - 1e-9
"""The least confidence with which people read what is sure. The 1e-9 is for how floats add up."""

_UNKNOWN: Final = _Estimate(None, None)
_NULL: Final = _Estimate(None)
"""What surely has no value, such as the sum of no rows."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One group: its place in the answers, its keys, and what sorts them.

    Attributes:
        part: The index among the parts of a series. 0 without one.
        case: The index among ``Plan.cases``.
        cells: The indices among the cells of the tables, several where they have no value of a function. Only
            0 without grouped attributes.
        places: The place of the value among those of each group column.
        keys: The value of each group column.
        ranks: What each group column sorts by.
    """

    part: int
    case: int
    cells: tuple[int, ...]
    places: tuple[int, ...]
    keys: tuple[Value, ...]
    ranks: tuple[Value, ...]


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

    ranks: Mapping[_Row, tuple[int, int]]
    holds: Mapping[_Row, set[Truth]] | None
    confidence: float

    def columns(
        self, plan: StatementPlan, rows: Sequence[_Row], taken: set[str]
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

    def tell_nothing_of(self, rows: Sequence[_Row]) -> bool:
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
        self._parts = _parts(plan, answers)

    def result(self) -> ResultTable:
        plan = self._plan
        rows = [row for row in self._rows() if not self._is_empty(row)]
        sure = self._sureness(rows)
        if sure.holds is not None:
            rows = [row for row in rows if sure.holds[row] == {True}]
        elif plan.having is not None:
            rows = [row for row in rows if self._holds(plan.having, row) is True]
        for order in reversed(plan.order):
            rows = self._sorted(rows, order)
        end = None if plan.limit is None else plan.offset + plan.limit
        rows = rows[plan.offset : end]
        notes = list(self._of_choice(sure, rows))
        if sure.tell_nothing_of(rows):
            rows = []
        more = *self._notes(), *self._empty_groups(rows)
        # Why nothing is shown comes first.
        notes = [*more, *notes] if rows else [*notes, *more]
        columns: list[Column] = []
        values: list[list[Value]] = []
        ends: list[list[tuple[Value, Value]]] = []
        for output in plan.outputs:
            found = [self._estimate(output.expression, row) for row in rows]
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
            least_cell=max((a.least_cell or 0 for a in self._noisy_answers()), default=0) or None,
            as_table=plan.as_table,
        )

    # ------------------------------------------------------------ rows

    def _rows(self) -> Iterator[_Row]:
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
        for part, case in itertools.product(range(len(self._parts)), range(len(self._plan.cases))):
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
                yield _Row(part, case, tuple(indices), tuple(places), tuple(keys), ranks)

    def _labels(self) -> list[tuple[str, ...]] | None:
        """Returns the labels of the grouped attributes, from any answer that has a cell for each group.

        None if there is no such answer, because no row can satisfy the condition.
        """
        wanted = sum(not group.by_case and not group.period for group in self._plan.groups)
        if not wanted:
            return []
        tables = [answer.table for answer in self._noisy_answers() if hasattr(answer, "table")]
        return list(tables[0].labels[:wanted]) if tables else None

    def _is_empty(self, row: _Row) -> bool:
        """Returns whether a group surely has no row, because of the condition or the declared values."""
        if self._plan.members is None or not self._plan.groups:
            return False
        count = self._published(self._plan.members, row)
        return count.value == 0 and count.bar == 0.0

    def _sorted(self, rows: Sequence[_Row], order: Order) -> list[_Row]:
        """Sorts rows by one item of ORDER BY and keeps the order of equal ones."""
        expression = order.expression
        found: list[tuple[Any, _Row]] = []
        missing: list[_Row] = []
        for row in rows:
            if isinstance(expression, Key):
                value = row.ranks[expression.index]
            else:
                estimate = self._estimate(expression, row)
                value = estimate.value if estimate.place is None else estimate.place
            if value is None:
                missing.append(row)
            else:
                found.append((value, row))
        found.sort(key=lambda each: each[0], reverse=order.descending)
        known = [row for _, row in found]
        return [*missing, *known] if order.nulls_first else [*known, *missing]

    # ------------------------------------------------------------ what is sure

    def _sureness(self, rows: Sequence[_Row]) -> _Sureness:
        """Returns what is sure of the rows that published values choose: of all groups, shown or not."""
        plan, holds = self._plan, None
        chosen: list[Expression] = []
        if plan.having is not None and plan.chooses_by_having:
            holds = {row: self._outcomes(plan.having, row, by_bars=True) for row in rows}
            chosen.append(plan.having)
        ranked = plan.order[0] if plan.chooses_by_order else None
        if ranked is not None and not list(_noisy(ranked.expression)):
            ranked = None  # published values only decide among equal ones
        if ranked and any(self._estimate(ranked.expression, row).place is not None for row in rows):
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
            estimate = self._estimate(ranked.expression, row)
            low, high = _ends(estimate)
            if apart is not None and estimate.number is not None:
                low, high = estimate.number, estimate.number + apart
            ends.append((low, high) if ranked.descending else (-high, -low))
        found = dict(zip(may_hold, ranks(ends, members), strict=True))
        return _Sureness(found, holds, least)

    def _apart(self, expression: Expression, rows: Sequence[_Row]) -> float | None:
        """Returns how far two counts of one table differ if they do for sure; None where only bars tell."""
        if not isinstance(expression, Published) or expression.part != "count":
            return None
        one_table = expression.grouped and len(self._parts) == len(expression.queries) == 1
        if not one_table or any(len(row.cells) > 1 for row in rows):
            return None
        answer = self._parts[0][expression.queries[0]] if expression.queries[0] != NO_ROWS else None
        return answer.table.apart if isinstance(answer, CellsAnswer) else None

    def _confidence_of(
        self, chosen: Sequence[Expression], rows: Sequence[_Row], *, pairs: bool
    ) -> float:
        """Returns the least probability that the bars of some expressions hold for all rows at once.

        Args:
            chosen: The expressions.
            rows: The rows.
            pairs: Whether pairs of counts must be told apart as well.
        """
        noisy = set(itertools.chain(*map(_noisy, chosen)))
        at_once = {one for one in noisy if self._holds_at_once(one)}
        tables = {query for one in at_once for query in one.queries if query != NO_ROWS}
        cells = sum(len(row.cells) for row in rows)
        # a mean and a share of several cells rest on two numbers of each
        alone = sum(self._n_bars(one) + (one.part in ("mean", "share")) for one in noisy - at_once)
        missed = pairs + len(tables) * len(self._parts) + cells * alone
        confidences = [a.confidence for a in self._noisy_answers() if a.confidence is not None]
        return 1.0 - missed * (1.0 - min(confidences, default=1.0))

    # ------------------------------------------------------------ values

    def _estimate(self, expression: Expression, row: _Row) -> _Estimate:
        match expression:
            case Constant(value=value):
                return _Estimate(value)
            case Key(index=index):
                return _Estimate(row.keys[index])
            case Published():
                return self._published(expression, row)
            case Call(name="coalesce", arguments=arguments):
                for found in (self._estimate(each, row) for each in arguments):
                    if found.value is not None:
                        return found
                    if found.bar is None:
                        return _UNKNOWN  # it has a value, which nobody knows
                return _NULL
            case Call(name="lag", arguments=(value, Constant(value=int(shift)))):
                part = row.part - shift
                known = 0 <= part < len(self._parts)
                return self._estimate(value, replace(row, part=part)) if known else _NULL
            case Call(name="persons", arguments=(whole, largest)):
                return _persons(self._estimate(whole, row), self._estimate(largest, row))
            case Call(name="n_parts", arguments=(Constant(value=int(most)),)):
                return _Estimate(min(row.part + 1, most))
            case Call(name=name, arguments=arguments):
                return _applied(name, [self._estimate(each, row) for each in arguments])
            case Among():
                raise TypeError("a condition is not a value")

    def _holds(self, condition: Expression, row: _Row) -> Truth:
        """Returns whether a condition holds for the values of a row."""
        (truth,) = self._outcomes(condition, row, by_bars=False)
        return truth

    def _outcomes(self, condition: Expression, row: _Row, *, by_bars: bool) -> set[Truth]:
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
            parts = [self._outcomes(each, row, by_bars=by_bars) for each in arguments]
            return connected(name, parts)
        estimates = [self._estimate(each, row) for each in arguments]
        if by_bars and any(each.bar != 0.0 for each in estimates):
            return _by_bars(name, estimates)
        values = [each.value for each in estimates]
        if name == "is_null":
            return {values[0] is None}
        if name == "in":
            first, *listed = values
            if first is not None and first in listed:
                return {True}
            return {None if None in values else False}  # it might equal what is unknown
        if None in values:
            return {None}
        try:
            return {COMPARISONS[name](*values)}
        except TypeError:  # a text and a number
            return {None}

    def _published(self, published: Published, row: _Row) -> _Estimate:
        query = published.queries[row.case]
        if query == NO_ROWS:
            return _Estimate(0) if published.part in ("count", "rows") else _NULL
        answer = self._answer(query, row)
        if isinstance(answer, RefusedAnswer):
            return _UNKNOWN
        cells = row.cells if published.grouped else (0,)
        if published.part == "spread":
            return self._spread(published, answer, cells)
        if isinstance(answer, QuantileByGroupAnswer):
            return _bins_of_group(answer, cells)
        if isinstance(answer, CellsAnswer | SumByGroupAnswer | ShareByGroupAnswer):
            return self._cells(published.part, answer, cells)
        return self._whole(published.part, answer)

    def _answer(self, query: int, row: _Row) -> NoisyAnswer | RefusedAnswer:
        """Returns the answer to a query. Of one about each phase, that of the phase with the most rows."""
        answer = self._parts[row.part][query]
        if not isinstance(answer, SeriesAnswer):
            return answer
        known = [part.answer for part in answer.parts if isinstance(part.answer, NoisyAnswer)]
        return max(known, key=lambda one: one.n)

    def _whole(self, part: str, answer: NoisyAnswer) -> _Estimate:
        """Returns a part of an answer without groups."""
        match part, answer:
            case "found", QuantileAnswer():
                return _bins(answer.lies_in, answer.error_bar)
            case "found", CorrelationAnswer():
                possible = answer.value_low, answer.value_high
                return _Estimate(answer.value, answer.error_bar, possible)
            case "found", FoundAnswer(found=found):
                return _Estimate(None if found is None else found.label, None)
            case "total", SumAnswer():
                ends = _both(answer.total_low, answer.total_high)
                return _Estimate(answer.total, answer.total_bar, ends)
            case "mean", SumAnswer():
                ends = _both(answer.mean_low, answer.mean_high)
                return _Estimate(answer.mean, answer.mean_bar, ends)
            case "rows", SumAnswer():
                return _within(answer.rows, answer.rows_bar, answer.n)
            case "share", ShareAnswer():
                ends = _both(answer.share_low, answer.share_high)
                return _Estimate(answer.share, answer.share_bar, ends)
            case "count", CountAnswer() | SumAnswer() | ShareAnswer():
                bar, ends = answer.error_bar, _both(answer.low, answer.high)
                if isinstance(answer, CountAnswer) and self._plan.chooses_by_value:
                    bar, ends = answer.error_bar_simultaneous or bar, None
                counted = _count(answer.value, answer.count, answer.n, bar, answer.count_bar)
                return _within(counted.value, counted.bar, answer.n, ends)
        raise TypeError(f"{type(answer).__name__} has no {part}")

    def _cells(
        self,
        part: str,
        answer: CellsAnswer | SumByGroupAnswer | ShareByGroupAnswer,
        cells: Sequence[int],
    ) -> _Estimate:
        """Returns a part of one group of a table, which may have several cells."""
        if len(cells) == 1:
            return self._cell(part, answer, cells[0])
        if part not in ("mean", "share"):
            each = [self._cell(part, answer, cell) for cell in cells]
            return _independent_sum(each) if self._is_independent else _sum(each)
        table: Any = answer.table
        if part == "mean":
            above = _sum([self._cell("total", answer, cell) for cell in cells])
        else:
            both = zip(table.both, table.both_bars, strict=True)
            above = _sum([_Estimate(*each) for i, each in enumerate(both) if i in cells])
        below = _sum([self._cell("count", answer, cell) for cell in cells])
        found = _applied("/", [above, below])
        return _UNKNOWN if found.bar is None else found

    def _cell(
        self, part: str, answer: CellsAnswer | SumByGroupAnswer | ShareByGroupAnswer, cell: int
    ) -> _Estimate:
        """Returns a part of one cell of a table."""
        table: Any = answer.table
        if part == "count":
            bars, ends, wider = table.error_bars, _at(cell, table.lows, table.highs), 1.0
            if self._plan.chooses_by_value:
                bars, wider, at_once = _bars_for_all(table)
                ends = None if at_once else ends
            in_rows = None if table.count_bars is None else _times(table.count_bars[cell], wider)
            bar = _times(bars[cell], wider)
            found = _count(table.values[cell], table.counts[cell], answer.n, bar, in_rows)
            return _within(found.value, found.bar, answer.n, ends)
        if part == "rows":
            return _within(table.rows[cell], table.rows_bars[cell], answer.n)
        names = ("totals", "means", "shares")
        several = next(name for name in names if name.startswith(part))
        values, bars, lows, highs = (
            getattr(table, name)
            for name in (several, f"{part}_bars", f"{part}_lows", f"{part}_highs")
        )
        return _Estimate(values[cell], bars[cell], _at(cell, lows, highs))

    def _spread(self, published: Published, answer: NoisyAnswer, cells: Sequence[int]) -> _Estimate:
        """Returns a variance or a standard deviation from the counts of the bins.

        Its bar reaches to the smallest and the largest that the bars of the counts, and the ends of the bins
        where values are kept, allow.
        """
        assert isinstance(answer, CellsAnswer), "a spread rests on a table"
        table = answer.table
        n_cells = len(table.labels[-1])
        bins = published.bins
        all_bars, wider, at_once = _bars_for_all(table)
        sizes, unit = table.values, float(answer.n)
        if table.count_bars is not None:  # a share is of rows whose number is not known
            sizes, all_bars, unit = table.counts, table.count_bars, 1.0
        counts, bars = [], []
        for index in range(len(bins)):
            at = [cell * n_cells + index for cell in cells]
            known = [bar for bar in (all_bars[each] for each in at) if bar is not None]
            counts.append(sum(sizes[each] for each in at) * unit)
            bars.append(sum(known) * wider * unit if len(known) == len(at) else None)
        n_rows = sum(counts)
        if not _has_rows(counts, bars, at_once=at_once):
            return _UNKNOWN
        pairs = [(count, centre) for count, (_, centre, _) in zip(counts, bins, strict=True)]
        middle = sum(count * centre for count, centre in pairs) / n_rows
        squares = sum(count * (centre - middle) ** 2 for count, centre in pairs)
        less = published.sample and n_rows > 1.0
        variance = max(0.0, squares / (n_rows - less))
        low, high = _variance_ends(counts, bars, bins, less=less)
        if published.root:
            variance, low, high = math.sqrt(variance), math.sqrt(low), math.sqrt(high)
        bar = max(high - variance, variance - low)
        return (
            _Estimate(variance, bar, (low, high))
            if math.isfinite(bar)
            else _Estimate(variance, None)
        )

    # ------------------------------------------------------------ notes

    def _holds_at_once(self, published: Published) -> bool:
        """Returns whether the bars of a value hold for all groups at once."""
        return published.part == "count" and self._rests_on_bars_for_all(published)

    def _n_bars(self, published: Published) -> int:
        """Returns how many bars must hold for that of one value to hold."""
        is_one = published.part != "spread" or self._rests_on_bars_for_all(published)
        return 1 if is_one else len(published.bins)

    def _rests_on_bars_for_all(self, published: Published) -> bool:
        queries = [query for query in published.queries if query != NO_ROWS]
        for answer in (part[query] for part in self._parts for query in queries):
            match answer:
                case CellsAnswer(table=table):
                    at_once = _bars_for_all(table)[2]
                case CountAnswer():
                    at_once = answer.error_bar_simultaneous is not None and answer.count_bar is None
                case _:
                    at_once = False
            if not at_once:
                return False
        return True

    def _noisy_answers(self) -> Iterator[NoisyAnswer]:
        """Yields the answers, or those of the parts of a series, that were not refused."""
        for answer in itertools.chain(*self._parts):
            if isinstance(answer, NoisyAnswer):
                yield answer

    def _of_choice(self, sure: _Sureness, rows: Sequence[_Row]) -> Iterator[str]:
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
        parts = itertools.chain(*(_noisy(output.expression) for output in self._plan.outputs))
        is_one = len(self._plan.queries) == 1 and not self._plan.is_series
        at_once = is_one and all(map(self._holds_at_once, parts))
        bars = f"the bars {'hold for all groups at once' if at_once else 'may hold for each group alone'}"
        is_sure = not self._plan.chooses_by_order and sure.holds is not None
        yield bars if is_sure else f"{_BY_VALUE}; {bars}"
        yield from sure.notes()

    def _empty_groups(self, rows: Sequence[_Row]) -> Iterator[str]:
        """Yields why means and shares are unknown: by the bars, too few rows may be there, or none."""
        for output in self._plan.outputs:
            found = [
                self._rows_of(part, row)
                for row in rows
                for part in dict.fromkeys(_noisy(output.expression))
                if part.part in ("mean", "share", "spread") and self._is_told(part, row)
                if self._published(part, row).value is None
            ]
            if found:
                few = few_of(found)
                yield f"{output.name} is unknown where a group may have too few rows, or none: {few}"

    def _is_told(self, part: Published, row: _Row) -> bool:
        query = part.queries[row.case]
        return query != NO_ROWS and not isinstance(self._answer(query, row), RefusedAnswer)

    def _rows_of(self, part: Published, row: _Row) -> str:
        """Returns the rows that a mean, share or spread is of, and those of the share, in words."""
        answer = self._answer(part.queries[row.case], row)
        counted = self._published(replace(part, part="count"), row)
        if part.part == "spread" and isinstance(answer, CellsAnswer):
            n = len(answer.table.labels[-1])
            cells = row.cells if part.grouped else (0,)
            bins = [cell * n + i for cell in cells for i in range(len(part.bins))]
            counted = self._cells("count", answer, bins)
        both: list[tuple[int, float | None]] = []
        if isinstance(answer, ShareAnswer):
            both = [(answer.both, answer.both_bar)]
        elif isinstance(answer, ShareByGroupAnswer):
            each = list(zip(answer.table.both, answer.table.both_bars, strict=True))
            both = [each[cell] for cell in (row.cells if part.grouped else (0,))]
        numbers = [*([_sum([_Estimate(*one) for one in both])] if both else []), counted]
        name = ", ".join(map(str, row.keys)) if part.grouped and row.keys else "all rows"
        return f"{name}: {' of '.join(map(_rows_in_words, numbers))} rows"

    @functools.cached_property
    def _is_independent(self) -> bool:
        """Whether all values are counts whose cells have independent noise, so that their squares add up."""
        parts = [each for output in self._plan.outputs for each in _noisy(output.expression)]
        tables = [answer for answer in self._noisy_answers() if isinstance(answer, CellsAnswer)]
        return all(each.part == "count" for each in parts) and all(
            answer.table.apart is not None for answer in tables
        )

    def _notes(self) -> Iterator[str]:
        yield from self._plan.notes
        parts = [list(_noisy(output.expression)) for output in self._plan.outputs]
        values = [set(_values_in(output.expression)) for output in self._plan.outputs]
        several = max((sum(self._n_bars(one) for one, _ in each) for each in values), default=0)
        answers = list(self._noisy_answers())
        confidences = [a.confidence for a in answers if a.confidence is not None]
        n_queries, series = len(self._plan.queries), self._plan.is_series
        use = use_of_all_in_words(answers, n_queries=n_queries, is_series=series)
        if use is not None:
            yield use
        added = math.prod(map(_most_cells, self._plan.groups))
        only_null = all(_most_cells(g, nulls=False) == 1 for g in self._plan.groups)
        if added > 1 and any(each.part == "found" for each in itertools.chain(*parts)):
            yield (
                f"NULL is a group of {added} cells, so its medians, quantiles, least and largest values are "
                "unknown"
            )
        if added > 1 and only_null and self._is_independent:
            yield "dates that are missing or outside the declared range are one group, NULL"
        if (
            added > 1
            and any(each.part != "found" for each in itertools.chain(*parts))
            and confidences
            and not self._is_independent
        ):
            # a mean and a share of several cells rest on two numbers of each
            bars = added * max(
                sum(1 + (one.part in ("mean", "share")) for one in set(each)) for each in parts
            )
            least = max(0.0, 1.0 - bars * (1.0 - min(confidences)))
            which = (
                "dates that are missing or outside the declared range are one group, NULL: its bar adds"
                if only_null
                else "a group of several cells has a bar that adds"
            )
            yield (
                f"{which} up those of {added} cells, and holds with a confidence of at least {100 * least:g}%"
            )
        if several > 1 and confidences:
            least = max(0.0, 1.0 - several * (1.0 - min(confidences)))
            yield (
                "the bar of a computed column holds where those of all its values do: with a confidence of "
                f"at least {100 * least:g}%"
            )
        for each in itertools.chain(*parts):
            if each.part == "spread":
                yield _COVERED if any(low < high for low, _, high in each.bins) else _LEFT_OUT
        phases = _phases(self._answers)
        persons = any(_counts_persons(output.expression) for output in self._plan.outputs)
        if persons and phases is not None and phases[0] < phases[1]:
            yield (
                "nobody knows who comes in several phases: the number of persons lies between that of the "
                "phase with the most rows and the sum of all phases"
            )
        refused = [one for one in itertools.chain(*self._parts) if isinstance(one, RefusedAnswer)]
        for code in dict.fromkeys(one.reason.code for one in refused):
            said = [one.reason.message for one in refused if one.reason.code == code]
            n = "" if len(said) == 1 else f" ({len(said):,} parts; this is why the first is)"
            yield f"some values are missing{n}: {said[0]}"
        for answer in answers if not self._plan.is_series else [*self._answers, *answers]:
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
        yield from self._among(answers)

    def _among(self, answers: Sequence[NoisyAnswer]) -> Iterator[str]:
        """Yields which rows count, how many these are, and how much larger a count of all rows may be."""
        known = [answer for answer in answers if answer.counted is not None]
        if not known:
            return
        unit, of = self._plan.unit, "the rows that count"
        best = min(known, key=lambda one: (-one.n, one.counted_bar or 0.0))
        if not self._plan.is_series:
            rows = _rows_in_words(_Estimate(best.counted, best.counted_bar))
            of = f"the {rows} rows that count, of {best.n:,}"
        if unit is not None:
            n = unit["rows_per_phase"]
            of += f": at most {n:,} row{'' if n == 1 else 's'} of each {unit['key']} in a phase"
        yield f"counts and shares are of {of}"
        if best.surplus_at_most and not self._plan.is_series:
            more = math.ceil(best.surplus_at_most * best.n)
            yield f"a count among all rows may be larger by up to {more:,}"


def _bins(lies_in: FoundCell | None, rank_bar: float | None) -> _Estimate:
    """Returns the bins that a quantile lies in, with the bar of its rank."""
    return _UNKNOWN if lies_in is None else _Estimate(lies_in.label, rank_bar, place=lies_in.place)


def _bins_of_group(answer: QuantileByGroupAnswer, cells: Sequence[int]) -> _Estimate:
    """Returns the bins that the quantile of a group lies in. Nothing is known of several cells together."""
    if len(cells) > 1:
        return _UNKNOWN
    (cell,) = cells
    return _bins(answer.table.lies_in[cell], answer.table.error_bars[cell])


def _bars_for_all(table: Table) -> tuple[Sequence[float | None], float, bool]:
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


def _ends(estimate: _Estimate) -> Ends:
    """Returns the least and the largest number that a value may be."""
    return estimate.ends or (-math.inf, math.inf)


def _by_bars(name: str, estimates: Sequence[_Estimate]) -> set[Truth]:
    """Returns what a comparison may come to for values that may be anywhere within their bars."""
    if name == "is_null":
        return {False} if estimates[0].value is not None else {True, False}
    first, *others = estimates
    if name == "in":
        return connected("or", [_by_bars("=", (first, other)) for other in others])
    if any(each.value is None and each.bar == 0.0 for each in estimates):
        return {None}  # what equals NULL is unknown for sure
    if any(each.number is None for each in estimates):
        return {True, False, None}
    return compared(name, _ends(first), _ends(others[0]))


def _rows_in_words(rows: _Estimate) -> str:
    bar = "any number" if rows.bar is None else f"{math.ceil(rows.bar):,}"
    return f"{rows.value:,} ± {bar}"


def _has_rows(counts: Sequence[float], bars: Sequence[float | None], *, at_once: bool) -> bool:
    """Returns whether some row is sure to be in one of these cells.

    Args:
        counts: The estimated count of each cell.
        bars: The half width around each.
        at_once: Whether the bars hold for all cells at once. If not, their sum is taken for the bar of the
            sum.
    """
    above = [
        count - math.inf if bar is None else count - bar
        for count, bar in zip(counts, bars, strict=True)
    ]
    return max(above) > 0.0 if at_once else sum(above) > 0.0


def _variance_ends(
    counts: Sequence[float],
    bars: Sequence[float | None],
    bins: Sequence[tuple[float, float, float]],
    *,
    less: bool,
) -> tuple[float, float]:
    """Returns the smallest and the largest variance that the bars of counts and the ends of bins allow.

    The sum of (x - m)^2 is least where m is the mean. So no variance is smaller than the least sum over all m
    with the fewest rows, each as near to m as its bin allows, divided by the most rows. And none is larger
    than the largest mean of (x - m)^2 for any m; it is attained with the fewest rows in the bins near to m,
    and the most in those that are farther away.

    Args:
        counts: The estimated rows of each bin.
        bars: Their half widths.
        bins: The ends of each bin, around its middle.
        less: Whether it is of a sample, so that it is divided by one row less.
    """
    least = [max(0.0, c - (b or 0.0)) for c, b in zip(counts, bars, strict=True)]
    most = [max(0.0, c + (b or 0.0)) for c, b in zip(counts, bars, strict=True)]
    if None in bars or sum(least) <= less:
        return 0.0, math.inf
    rows = [each for each in zip(least, most, bins, strict=True) if each[1] > 0.0]

    def nearest(m: float) -> float:
        return sum(few * max(low - m, m - high, 0.0) ** 2 for few, _, (low, _, high) in rows)

    def farthest(m: float) -> float:
        squares = [
            (max(m - low, high - m) ** 2, few, many - few) for few, many, (low, _, high) in rows
        ]
        above = sum(square * few for square, few, _ in squares)
        below = sum(least) - less
        largest = above / below
        for square, _, more in sorted(squares, reverse=True):
            above, below = above + square * more, below + more
            largest = max(largest, above / below)
        return largest

    ends = bins[0][0], bins[-1][2]
    return _least(nearest, *ends) / (sum(most) - less), _least(farthest, *ends)


def _least(convex: Callable[[float], float], low: float, high: float) -> float:
    """Returns the least value of a convex function between two ends, by golden sections."""
    part = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - part * (high - low), low + part * (high - low)
    at_left, at_right = convex(left), convex(right)
    for _ in range(60):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - part * (high - low)
            at_left = convex(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + part * (high - low)
            at_right = convex(right)
    return min(at_left, at_right)


def _count(
    share: float, count: int, n: int, bar: float | None, bar_in_rows: float | None
) -> _Estimate:
    """Returns a count, with a half width that also covers how the count was rounded."""
    if bar_in_rows is not None:
        return _Estimate(count, bar_in_rows)
    return _Estimate(count, None if bar is None else bar * n + abs(share * n - count))


def _times(bar: float | None, wider: float) -> float | None:
    return None if bar is None else wider * bar


def _both(low: float | None, high: float | None) -> _Ends:
    """Returns two ends; None for an answer of a release that had none."""
    return None if low is None or high is None else (low, high)


def _at(cell: int, lows: Sequence[Any] | None, highs: Sequence[Any] | None) -> _Ends:
    """Returns the ends of a cell."""
    return None if lows is None or highs is None else _both(lows[cell], highs[cell])


def _within(value: Value, bar: float | None, n: int, ends: _Ends = None) -> _Estimate:
    """Returns a count of ``n`` rows, whose ends are within these rows."""
    if ends is None and bar is not None and isinstance(value, int):
        ends = max(0.0, value - bar), min(float(n), value + bar)
    return _Estimate(value, bar, ends)


def _ends_as(ends: _Ends, column_type: str) -> tuple[Value, Value]:
    """Returns the least and the largest value. Where values are whole, so are they, and reach as far."""
    if ends is None:
        return None, None
    return ends if column_type == "real" else (math.floor(ends[0]), math.ceil(ends[1]))


def _most_cells(group: GroupColumn, *, nulls: bool = True) -> int:
    """Returns how many cells a value of a group column has at most, NULL among the values if ``nulls``."""
    if group.by_case or group.apart:
        return 1
    counted = Counter(v for v in group.values if v is not None or (nulls and not group.matched))
    return max(counted.values(), default=1)


def _independent_sum(counts: Sequence[_Estimate]) -> _Estimate:
    """Returns a sum of cells with independent noise; rounding may add half a row of each."""
    whole = _sum(counts)
    if whole.number is None or any(each.bar is None for each in counts):
        return whole
    bar = math.sqrt(math.fsum((each.bar or 0.0) ** 2 for each in counts)) + len(counts) / 2
    bar = min(bar, whole.bar or bar)
    return replace(whole, bar=bar, known=(max(0.0, whole.number - bar), whole.number + bar))


def _sum(estimates: Sequence[_Estimate]) -> _Estimate:
    return functools.reduce(lambda one, other: _applied("+", [one, other]), estimates)


def _counts_persons(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    return expression.name == "persons" or any(map(_counts_persons, expression.arguments))


def _persons(whole: _Estimate, largest: _Estimate) -> _Estimate:
    """Returns a number of persons: the middle between the fewest and the most that there can be.

    Args:
        whole: The rows of all phases, of which one of each person counts in a phase.
        largest: The rows of one of these phases.
    """
    if whole == largest:  # there is one phase
        return whole
    if whole.number is None or largest.number is None or whole.bar is None or largest.bar is None:
        return _UNKNOWN
    low, high = max(0.0, largest.number - largest.bar), whole.number + whole.bar
    value = round((low + high) / 2.0)
    return _Estimate(value, max(high - value, value - low), (low, high))


def _noisy(expression: Expression) -> Iterator[Published]:
    match expression:
        case Published():
            yield expression
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _noisy(argument)


def _values_in(expression: Expression, before: int = 0) -> Iterator[tuple[Published, int]]:
    """Yields the published values in an expression, each with how many parts before its own it is of."""
    match expression:
        case Published():
            yield expression, before
        case Call(name="lag", arguments=(value, Constant(value=int(shift)))):
            yield from _values_in(value, before + shift)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _values_in(argument, before)


def _applied(name: str, arguments: Sequence[_Estimate]) -> _Estimate:
    """Returns an operator's value, the largest half width that those of its arguments allow, and the ends."""
    found = _value_of(name, arguments)
    if found.value is None or found.bar is None:
        return found
    ends = _ends_of(name, [each.ends for each in arguments])
    value = found.number
    if ends is None or value is None:
        return found
    # What is rounded may lie a little beyond.
    return replace(found, known=(min(ends[0], value), max(ends[1], value)))


def _ends_of(name: str, parts: Sequence[_Ends]) -> _Ends:
    """Returns the ends of an operator's value; None where those of an argument are not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    (low, high), *others = known
    if name == "neg":
        return -high, -low
    if name == "abs":
        return max(0.0, low, -high), max(abs(low), abs(high))
    if name == "round":
        return low, high
    second = others[0]
    if name == "/" and second[0] <= 0.0 <= second[1]:
        return None
    operate = {"+": add, "-": sub, "*": mul, "/": truediv}[name]
    corners = [operate(one, other) for one, other in itertools.product((low, high), second)]
    return min(corners), max(corners)


def _value_of(name: str, arguments: Sequence[_Estimate]) -> _Estimate:
    """Returns an operator's value and the largest half width that those of its arguments allow."""
    numbers = [each.number for each in arguments]
    if any(number is None for number in numbers):
        return _UNKNOWN
    first, *others = [number for number in numbers if number is not None]
    is_whole = all(isinstance(each.value, int) for each in arguments)
    bars = [each.bar for each in arguments]
    if name in ("neg", "abs"):
        return _Estimate(
            _as_whole(abs(first) if name == "abs" else -first, is_whole=is_whole), bars[0]
        )
    second = others[0]
    if name == "round":
        rounded = round(first, int(second))
        return _Estimate(rounded, None if bars[0] is None else bars[0] + abs(rounded - first))
    if name == "/":
        return _quotient(first, second, bars[0], bars[1])
    value = {"+": first + second, "-": first - second, "*": first * second}[name]
    if bars[0] is None or bars[1] is None:
        return _Estimate(_as_whole(value, is_whole=is_whole), None)
    if name == "*":
        bar = abs(first) * bars[1] + abs(second) * bars[0] + bars[0] * bars[1]
    else:
        bar = bars[0] + bars[1]
    return _Estimate(_as_whole(value, is_whole=is_whole), bar)


def _quotient(
    above: float, below: float, above_bar: float | None, below_bar: float | None
) -> _Estimate:
    """Returns a quotient. Its bar is not known where the divisor may be 0."""
    if below == 0.0:
        return _NULL if below_bar == 0.0 else _UNKNOWN
    value = above / below
    if above_bar is None or below_bar is None or below_bar >= abs(below):
        return _Estimate(value, None)
    corners = [
        (above + i * above_bar) / (below + j * below_bar)
        for i, j in itertools.product((-1, 1), repeat=2)
    ]
    return _Estimate(value, max(max(corners) - value, value - min(corners)))


def _as_whole(value: float, *, is_whole: bool) -> Value:
    return int(value) if is_whole else value


def _typed(value: Value, column_type: str) -> Value:
    return float(value) if column_type == "real" and isinstance(value, int) else value


def _key(group: GroupColumn, place: int, label: str, *, n: int) -> Value:
    """Returns the value of a group column by the place and the label of its cell, which is one of ``n``."""
    if group.values:
        assert len(group.values) == n, "the answer has the cells of the definition"
        return group.values[place]
    if group.has_missing and place == n - 1:
        return None
    return label == "true" if group.type == "boolean" else label


def _parts(
    plan: StatementPlan, answers: Sequence[NoisyAnswer]
) -> list[list[NoisyAnswer | RefusedAnswer]]:
    """Returns the answers to the queries about each part of a series; there is one part without a series."""
    if not plan.is_series:
        return [list(answers)]
    series = [answer for answer in answers if isinstance(answer, SeriesAnswer)]
    columns = ([part.answer for part in answer.parts] for answer in series)
    return [list(parts) for parts in zip(*columns, strict=True)]


def _periods(plan: StatementPlan, answers: Sequence[NoisyAnswer]) -> list[Value]:
    """Returns what names each part of a series: the number of its phase, or the first day of its period."""
    if not plan.is_series or not answers:
        return []
    answer = answers[0]
    assert isinstance(answer, SeriesAnswer), "each query asks the series"
    if answer.series == "phase":
        return [part.window[0] for part in answer.parts]
    return [_first_day(answer.series, part.since) for part in answer.parts]


def _first_day(period: str, since: str | None) -> Value:
    """Returns the first day of the period in which the phases of a part begin."""
    if since is None:
        return None
    day = date.fromisoformat(since[:10])
    if period == "week":
        day -= timedelta(days=day.weekday())
    return (day.replace(day=1) if period == "month" else day).isoformat()


def _phases(answers: Sequence[NoisyAnswer]) -> tuple[int, int] | None:
    if not answers:
        return None
    firsts, lasts = zip(*(answer.window for answer in answers), strict=True)
    return min(firsts), max(lasts)
