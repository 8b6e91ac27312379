"""The values of the groups of a statement's table, worked out from the figures of its answers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stream_dp.client.statements.figure_arithmetic import (
    applied,
    independent_sum,
    number_of_persons,
    sum_of,
)
from stream_dp.client.statements.spread import spread_of
from stream_dp.client.statements.sureness import (
    COMPARISONS,
    CONNECTIVES,
    Truth,
    compared,
    connected,
)
from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.figure_text import rows_in_words
from stream_dp.display.figures import MISSING, NOT_KNOWN, Figure, Value
from stream_dp.messages import NoisyAnswer, RefusedAnswer, SeriesAnswer
from stream_dp.sql.plan.statement_plan import (
    NO_ROWS,
    Among,
    Call,
    Constant,
    Expression,
    Key,
    Published,
    StatementPlan,
    published_in,
)


@dataclass(frozen=True, slots=True)
class TableGroup:
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


class GroupValues:
    """Works out the values of groups.

    Attributes:
        parts: The answers to the queries about each part of a series. There is one part without a series.
        noisy: The answers, or those of the parts of a series, that were not refused.
        missed: The largest probability with which a bar of these does not hold.
    """

    def __init__(self, plan: StatementPlan, answers: Sequence[NoisyAnswer]) -> None:
        self._plan = plan
        whole: list[list[NoisyAnswer | RefusedAnswer]] = [list(answers)]
        if plan.is_series:
            columns = [one.parts for one in answers if isinstance(one, SeriesAnswer)]
            whole = [[one.answer for one in parts] for parts in zip(*columns, strict=True)]
        self.noisy = [one for one in itertools.chain(*whole) if not isinstance(one, RefusedAnswer)]
        confidences = (one.confidence for one in self.noisy if one.confidence is not None)
        self.missed = 1.0 - min(confidences, default=1.0)
        self.parts = [[_cells(one) for one in part] for part in whole]

    @property
    def cells(self) -> list[AnswerCells]:
        """The answers to all queries that were not refused."""
        found = itertools.chain(*self.parts)
        return [one for one in found if not isinstance(one, RefusedAnswer)]

    def of(self, expression: Expression, group: TableGroup) -> Figure:
        """Returns the value of an expression for one group."""
        match expression:
            case Constant(value=value):
                return Figure(value)
            case Key(index=index):
                return Figure(group.keys[index])
            case Published():
                return self.published(expression, group)
            case Call(name="error_bar", arguments=(value,)):
                found = self.of(value, group)
                return Figure(None if found.value is None else found.bar)
            case Call(name="lower_bound" | "upper_bound" as name, arguments=(value, whole)):
                return _end(name, self.of(value, group), is_whole=whole == Constant(value=True))
            case Call(name="coalesce", arguments=arguments):
                for found in (self.of(each, group) for each in arguments):
                    if found.value is not None:
                        return found
                    if found.bar is None:
                        return NOT_KNOWN  # it has a value, which nobody knows
                return MISSING
            case Call(name="lag", arguments=(value, Constant(value=int(shift)))):
                part = group.part - shift
                known = 0 <= part < len(self.parts)
                return self.of(value, replace(group, part=part)) if known else MISSING
            case Call(name="persons", arguments=(whole, largest)):
                return number_of_persons(self.of(whole, group), self.of(largest, group))
            case Call(name="n_parts", arguments=(Constant(value=int(most)),)):
                return Figure(min(group.part + 1, most))
            case Call(name=name, arguments=arguments):
                return applied(name, [self.of(each, group) for each in arguments])
            case Among():
                raise TypeError("a condition is not a value")

    def outcomes(self, condition: Expression, group: TableGroup, *, by_bars: bool) -> set[Truth]:
        """Returns what a condition may come to for a group.

        Args:
            condition: The condition.
            group: The group.
            by_bars: Whether values may be anywhere within their bars. If not, there is one outcome.
        """
        if isinstance(condition, Among):
            place = group.places[condition.index]
            is_true, is_false = condition.true >> place & 1, condition.false >> place & 1
            return {True if is_true else False if is_false else None}
        assert isinstance(condition, Call), "a condition is an operator"
        name, arguments = condition.name, condition.arguments
        if name in CONNECTIVES:
            parts = [self.outcomes(each, group, by_bars=by_bars) for each in arguments]
            return connected(name, parts)
        figures = [self.of(each, group) for each in arguments]
        if by_bars and any(each.bar != 0.0 for each in figures):
            return _by_bars(name, figures)
        values = [each.value for each in figures]
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

    def published(self, published: Published, group: TableGroup) -> Figure:
        """Returns a published value of one group, which may have several cells."""
        if published.queries[group.case] == NO_ROWS:
            return Figure(0) if published.part in ("count", "rows") else MISSING
        answer = self.answer(published, group)
        if isinstance(answer, RefusedAnswer):
            return NOT_KNOWN
        part, cells = published.part, group.cells if published.grouped else (0,)
        if part == "spread":
            counts = [self._in_bin(answer, cells, i) for i in range(len(published.bins))]
            return spread_of(published, counts, at_once=answer.holds_at_once)
        name = answer.main if part == "found" else part
        if len(cells) == 1:
            return self._cell(answer, name, cells[0])
        if part == "found":
            return NOT_KNOWN  # nothing is known of the bins of several cells together
        above = {"mean": "total", "share": "both"}.get(name, name)
        each = [self._cell(answer, above, cell) for cell in cells]
        if above == name:
            return independent_sum(each) if self.is_independent else sum_of(each)
        below = sum_of([self._cell(answer, "count", cell) for cell in cells])
        found = applied("/", [sum_of(each), below])
        return NOT_KNOWN if found.bar is None else found

    def unrecorded(self, published: Published, group: TableGroup) -> int:
        """Returns how many more rows than are counted may be in a group, as far as nothing tells."""
        if not self.is_told(published, group):
            return 0
        answer, cells = self.answer(published, group), group.cells if published.grouped else (0,)
        assert not isinstance(answer, RefusedAnswer), "it is told"
        return sum(answer.field("unrecorded_at_most", cell) or 0 for cell in cells)

    def answer(self, published: Published, group: TableGroup) -> AnswerCells | RefusedAnswer:
        """Returns the answer that a value is from."""
        return self.parts[group.part][published.queries[group.case]]

    def is_told(self, published: Published, group: TableGroup) -> bool:
        """Returns whether something was asked about a group, and answered."""
        asked = published.queries[group.case] != NO_ROWS
        return asked and not isinstance(self.answer(published, group), RefusedAnswer)

    def rows_of(self, published: Published, group: TableGroup) -> str:
        """Returns the rows that a mean, share or spread is of, and those of the share, in words."""
        answer = self.answer(published, group)
        assert not isinstance(answer, RefusedAnswer), "it is told"
        cells = group.cells if published.grouped else (0,)
        if published.part == "spread":
            bins = range(len(published.bins))
            counted = sum_of([self._in_bin(answer, cells, each) for each in bins])
        else:
            counted = self.published(replace(published, part="count"), group)
        numbers = [counted]
        if published.part == "share":
            numbers.insert(0, sum_of([answer.figure("both", cell) for cell in cells]))
        is_of_one = published.grouped and group.keys
        name = ", ".join(map(str, group.keys)) if is_of_one else "all rows"
        return f"{name}: {' of '.join(map(rows_in_words, numbers))} rows"

    def _cell(self, answer: AnswerCells, name: str, cell: int) -> Figure:
        return answer.figure(name, cell, "at once" if self._plan.chooses_by_value else "alone")

    def _in_bin(self, answer: AnswerCells, cells: Sequence[int], place: int) -> Figure:
        """Returns the rows of some cells that are in one bin, which is the last label of the answer."""
        n = len(answer.axes[-1])
        return sum_of([answer.figure("count", cell * n + place, "at once") for cell in cells])

    # ------------------------------------------------------------ bars

    def hold_at_once(self, published: Published) -> bool:
        """Returns whether the bars of a value hold for all groups at once."""
        return published.part == "count" and self._rests_on_bars_for_all(published)

    def n_bars(self, published: Published) -> int:
        """Returns how many bars must hold for that of one value to hold."""
        is_one = published.part != "spread" or self._rests_on_bars_for_all(published)
        return 1 if is_one else len(published.bins)

    def _rests_on_bars_for_all(self, published: Published) -> bool:
        queries = [query for query in published.queries if query != NO_ROWS]
        answers = [part[query] for part in self.parts for query in queries]
        return all(isinstance(one, AnswerCells) and one.holds_at_once for one in answers)

    @functools.cached_property
    def is_independent(self) -> bool:
        """Whether all values are counts whose cells have independent noise, so that their squares add up."""
        parts = [each for output in self._plan.outputs for each in published_in(output.expression)]
        tables = [one for one in self.cells if one.names]
        return all(each.part == "count" for each in parts) and all(
            one.apart is not None for one in tables
        )


def _cells(answer: NoisyAnswer | RefusedAnswer) -> AnswerCells | RefusedAnswer:
    """Returns the cells of an answer. Of one about each phase, those of the phase with the most rows."""
    if isinstance(answer, SeriesAnswer):
        known = [part.answer for part in answer.parts if isinstance(part.answer, NoisyAnswer)]
        answer = max(known, key=lambda one: one.n)
    return answer if isinstance(answer, RefusedAnswer) else AnswerCells(answer)


def _end(name: str, figure: Figure, *, is_whole: bool) -> Figure:
    """Returns the least or the largest value that a bar allows, as ``ResultTable.ends`` has it."""
    if figure.value is None or figure.ends is None:
        return MISSING
    end, outwards = figure.ends[name == "upper_bound"], (math.floor, math.ceil)
    return Figure(outwards[name == "upper_bound"](end) if is_whole else end)


def _by_bars(name: str, figures: Sequence[Figure]) -> set[Truth]:
    """Returns what a comparison may come to for values that may be anywhere within their bars."""
    if name == "is_null":
        return {False} if figures[0].value is not None else {True, False}
    first, *others = figures
    if name == "in":
        return connected("or", [_by_bars("=", (first, other)) for other in others])
    if any(each.value is None and each.bar == 0.0 for each in figures):
        return {None}  # what equals NULL is unknown for sure
    if any(each.number is None for each in figures):
        return {True, False, None}
    return compared(name, first.possible, others[0].possible)
