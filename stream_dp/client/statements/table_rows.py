"""The rows of the table of a statement: one for each group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_dp.client.statements.result_table import Value
from stream_dp.dates import first_day_of
from stream_dp.messages import NoisyAnswer, SeriesAnswer
from stream_dp.sql.plan.statement_plan import GroupColumn, StatementPlan


@dataclass(frozen=True, slots=True)
class TableRow:
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


def rows_of(
    plan: StatementPlan, answers: Sequence[NoisyAnswer], parts: Sequence[Sequence[object]]
) -> Iterator[TableRow]:
    """Yields the groups in the order of the declared values.

    Args:
        plan: The plan.
        answers: The answers to its queries.
        parts: The answers about each part of a series.
    """
    labels = _labels(plan.groups, itertools.chain(*parts))
    if labels is None:
        return
    periods = _periods(plan, answers)
    places_of = [{v: i for i, v in enumerate(group.values)} for group in plan.groups]
    cells = _cells_alike(plan.groups, labels, places_of)
    for part, said in itertools.product(range(len(parts)), enumerate(plan.cases)):
        case, values = said
        for at, indices in cells:
            places: list[int] = []
            keys: list[Value] = []
            for group, known in zip(plan.groups, places_of, strict=True):
                if group.period:
                    place, key = part, periods[part]
                elif group.by_case:
                    key = values[group.axis]
                    place = known[key]
                else:
                    place, of_axis = at[group.axis], labels[group.axis]
                    key = _key(group, place, of_axis[place], n=len(of_axis))
                places.append(place)
                keys.append(key)
            told = list(zip(plan.groups, places, keys, strict=True))
            if any(group.matched and key is None for group, _, key in told):
                continue
            ranks = (
                place if group.ranked and key is not None else key for group, place, key in told
            )
            yield TableRow(part, case, indices, tuple(places), tuple(keys), tuple(ranks))


def _labels(
    groups: Sequence[GroupColumn], answers: Iterator[object]
) -> list[tuple[str, ...]] | None:
    """Returns the labels of the grouped attributes, from any answer that has a cell for each group.

    None if there is no such answer, because no row can satisfy the condition.
    """
    wanted = sum(not group.by_case and not group.period for group in groups)
    if not wanted:
        return []
    tables = (answer.table for answer in answers if hasattr(answer, "table"))
    found = next(tables, None)
    return None if found is None else list(found.labels[:wanted])


def _cells_alike(
    groups: Sequence[GroupColumn],
    labels: Sequence[Sequence[str]],
    places_of: Sequence[dict[Value, int]],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns which cells have the same values: the places of the values, and the indices of the cells."""
    alike = [list(range(len(each))) for each in labels]
    for group, known in zip(groups, places_of, strict=True):
        if group.values and not group.by_case and not group.apart:
            alike[group.axis] = [known[value] for value in group.values]
    cells: dict[tuple[int, ...], list[int]] = {}
    for index, at in enumerate(itertools.product(*alike)):
        cells.setdefault(at, []).append(index)
    return [(at, tuple(cells[at])) for at in sorted(cells)]


def _key(group: GroupColumn, place: int, label: str, *, n: int) -> Value:
    """Returns the value of a group column by the place and the label of its cell, which is one of ``n``."""
    if group.values:
        assert len(group.values) == n, "the answer has the cells of the definition"
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
    return [part.since and first_day_of(answer.series, part.since[:10]) for part in answer.parts]
