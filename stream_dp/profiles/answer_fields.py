"""Functions that turn an outcome into an answer: counts and sums, and the fields that several kinds share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from stream_dp.core.outcome import (
    Answered,
    Differences,
    Found,
    Placed,
    Quantile,
    Quantiles,
    RowsThatCount,
    Sum,
    Summed,
    TableAnswered,
)
from stream_dp.core.published.sparse_table import common_prefix, surely_some
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.universe import Attribute, Category, Date, Number, Universe, number_text
from stream_dp.messages import (
    READ_EACH,
    CorrelationAnswer,
    DifferenceAnswer,
    DifferenceByGroupAnswer,
    DifferenceTable,
    FoundCell,
    NoisyAnswer,
    PredicateAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    QuantileTable,
    QueryFields,
    ShareAnswer,
    ShareByGroupAnswer,
    ShareTable,
    SumAnswer,
    SumByGroupAnswer,
    SumTable,
    Table,
    TableAnswer,
)


@dataclass(frozen=True, slots=True)
class Released:
    """The facts that an answer of any kind is made of, besides the outcome.

    Attributes:
        universe: The schema of the data set.
        query: The query as it was sent.
        facts: The fields that answers of all kinds have.
    """

    universe: Universe
    query: QueryFields
    facts: dict[str, Any]


_STANDS_FOR: Final = (
    "the correlation is that of the values that stand for bins, and values beyond 2.5 deviations from the "
    "mean count as the last bin within"
)

Maker = Callable[[Released, Any], NoisyAnswer]
"""A function that makes the answer of one kind. All outcomes of a kind have one class."""


def count_fields(outcome: Answered) -> dict[str, Any]:
    """Returns the fields of a ``CountAnswer``."""
    fields = {**_count(outcome), "confidence": outcome.confidence}
    if outcome.among is not None:
        return {**fields, **_rows_that_count(outcome.among)}
    return {**fields, "error_bar_simultaneous": outcome.error_bar_simultaneous}


def cell_fields(
    released: Released, attributes: tuple[str, ...], outcome: TableAnswered
) -> dict[str, Any]:
    """Returns the fields of a ``CellsAnswer`` about a table of some attributes."""
    cells = outcome.cells
    among, fields = cells[0].among, {"confidence": cells[0].confidence}
    columns: dict[str, Any] = {
        "attributes": attributes,
        "labels": _labels(released.universe, attributes),
        **_columns([_count(cell) for cell in cells]),
        "wider": outcome.wider,
        # Each of two counts is rounded by up to half a row.
        "apart": None if outcome.apart is None else outcome.apart + 1.0,
    }
    if among is not None:
        return {**fields, "table": Table(**columns), **_rows_that_count(among)}
    anytime = tuple(cell.error_bar_anytime for cell in cells)
    table = Table(
        **columns,
        error_bars_simultaneous=tuple(cell.error_bar_simultaneous for cell in cells),
        error_bars_anytime=None if all(bar is None for bar in anytime) else anytime,
    )
    return {**fields, "table": table}


def _count(outcome: Answered) -> dict[str, Any]:
    """Returns the fields of a count, and of the share that it is."""
    if outcome.among is None:
        return {
            "value": outcome.value,
            "count": round(outcome.count),
            "error_bar": outcome.error_bar,
            **_ends(outcome.ends),
        }
    bar = None if outcome.error_bar is None else outcome.error_bar * outcome.n
    return {
        **_share_among(outcome.among),
        "count": round(outcome.count),
        "count_bar": bar,
        **_ends(outcome.ends),
    }


def _ends(ends: tuple[float, float]) -> dict[str, Any]:
    """Returns the fields of the fewest and the most rows: whole numbers that are not between the two."""
    low, high = ends
    return {"low": math.floor(low), "high": math.ceil(high)}


def _columns(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the same fields of several counts as columns of a table."""
    return {f"{name}s": tuple(count[name] for count in counts) for name in counts[0]}


def _rows_that_count(known: RowsThatCount) -> dict[str, Any]:
    """Returns the fields of an answer about the rows that count."""
    return {
        "counted": round(known.rows),
        "counted_bar": known.rows_bar,
        "surplus_at_most": known.surplus_at_most,
    }


def _share_among(known: RowsThatCount) -> dict[str, Any]:
    """Returns the fields of a share of the rows that count; nobody knows it where its bar is None."""
    bar = known.share_bar if known.share_bar is None or known.share_bar < 1.0 else None
    return {"value": 0.0 if known.share is None else known.share, "error_bar": bar}


def _labels(universe: Universe, attributes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(universe.attributes[universe.index(name)].labels for name in attributes)


def found_fields(released: Released, outcome: Found) -> dict[str, Any]:
    """Returns the fields of a ``FoundAnswer``."""
    return {
        "attribute": released.query.attribute,
        "found": found_cell(released.universe, outcome),
        "no_answer": True if outcome.code is None else None,
        "error_bar": outcome.rank_error,
        "confidence": outcome.confidence,
    }


def found_cell(universe: Universe, outcome: Found | Placed) -> FoundCell | None:
    """Returns the cell that an outcome names, or None if it names none."""
    if outcome.attribute is None or outcome.code is None:
        return None
    return _joined(universe.attributes[outcome.attribute], outcome.code, outcome.code)


def _joined(attribute: Attribute, first: int, last: int) -> FoundCell:
    """Returns neighbouring cells of an attribute as one."""
    label = _label_of(attribute, first, last)
    if not isinstance(attribute, Number) or last == attribute.missing_cell:
        return FoundCell(label=label)
    ends = (None, *attribute.edges, None)
    return FoundCell(label=label, low=ends[first], high=ends[last + 1])


def _label_of(attribute: Attribute, first: int, last: int) -> str:
    """Returns the label of neighbouring cells together."""
    if first == last:
        return attribute.labels[first]
    if isinstance(attribute, Number | Date) and attribute.edges:
        if first == 0:
            return f"< {attribute.edge_labels[last]}"
        if last == len(attribute.edges):
            return f">= {attribute.edge_labels[first - 1]}"
        if isinstance(attribute, Number):
            end = number_text(attribute.edges[last] - (1 if attribute.integer else 0))
            return f"{attribute.edge_labels[first - 1]} to {end}"
    return f"{attribute.labels[first]} to {attribute.labels[last]}"


def _quantile(released: Released, outcome: Quantiles) -> QuantileAnswer:
    (cell,) = outcome.cells
    found, lies_in, error_bar, count = _bins_of(released.universe, outcome, cell)
    return QuantileAnswer(
        **released.facts,
        **_rows_of_quantiles(outcome),
        attribute=released.query.attribute,
        rank=released.query.rank,
        found=found,
        lies_in=lies_in,
        error_bar=error_bar,
        count=count,
        confidence=outcome.confidence,
    )


def _quantile_by_group(released: Released, outcome: Quantiles) -> QuantileByGroupAnswer:
    attributes = released.query.group_by
    columns = zip(
        *(_bins_of(released.universe, outcome, cell) for cell in outcome.cells), strict=True
    )
    found, lies_in, error_bars, counts = columns
    table = QuantileTable(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        found=found,
        lies_in=lies_in,
        error_bars=error_bars,
        counts=counts,
    )
    return QuantileByGroupAnswer(
        **released.facts,
        **_rows_of_quantiles(outcome),
        attribute=released.query.attribute,
        rank=released.query.rank,
        table=table,
        confidence=outcome.confidence,
    )


def _bins_of(
    universe: Universe, outcome: Quantiles, cell: Quantile
) -> tuple[FoundCell | None, FoundCell | None, float | None, int]:
    """Returns the likely bin, the bins that a quantile lies in, the bar of its rank, and its rows."""
    count = round(min(max(cell.rows, 0.0), float(outcome.n)))
    if cell.likely is None:
        return None, None, None, count
    attribute = universe.attributes[outcome.attribute]
    found = _joined(attribute, *cell.likely).model_copy(update={"place": cell.likely[0]})
    lies_in = _joined(attribute, cell.first, cell.last).model_copy(update={"place": cell.first})
    return found, lies_in, cell.rank_error, count


def _rows_of_quantiles(outcome: Quantiles) -> dict[str, Any]:
    """Returns the fields about the rows that count, where some do not."""
    return {} if outcome.among is None else _rows_that_count(outcome.among)


def _predicate(released: Released, outcome: Answered) -> PredicateAnswer:
    # It is one of the count, as a share of all rows.
    anytime = outcome.error_bar_anytime if outcome.among is None else None
    return PredicateAnswer(**released.facts, **count_fields(outcome), error_bar_anytime=anytime)


def _table(released: Released, outcome: TableAnswered) -> TableAnswer:
    notes = released.facts["note"], _sparse(released, outcome)
    facts = {**released.facts, "note": "; ".join(note for note in notes if note) or None}
    return TableAnswer(**facts, **cell_fields(released, released.query.group_by, outcome))


def _sparse(released: Released, outcome: TableAnswered) -> str | None:
    """Says how many of very many cells surely have rows, and what to ask of the others."""
    n_sure, universe = surely_some(outcome), released.universe
    if len(outcome.cells) <= READ_EACH or n_sure is None:
        return None
    predicate = compile_where(universe, released.query.where)
    asked = [
        predicate.cells_of(index, universe.shape[index]).tolist()
        for index in map(universe.index, released.query.group_by)
    ]
    n_cells = math.prod(map(sum, asked))
    if n_sure >= n_cells:
        return None
    said = f"{n_sure:,} of {n_cells:,} groups surely have rows; all others cannot be told from 0"
    name, *others = released.query.group_by
    attribute = universe.attributes[universe.index(name)]
    if others or not isinstance(attribute, Category):
        return said
    values = list(compress(attribute.values, asked[0]))
    prefix = common_prefix(
        values, [cell.count for cell in compress(outcome.cells[: len(attribute.values)], asked[0])]
    )
    if prefix is not None:
        together = (
            f"of several together, such as SELECT COUNT(*) ... WHERE \"{name}\" LIKE '{prefix}%'"
        )
    elif len(values) < len(attribute.values):
        together = "of all of them together: SELECT COUNT(*), without GROUP BY"
    else:
        return said
    return f"{said}; ask for the rows {together}"


def _sum(released: Released, outcome: Summed) -> SumAnswer:
    (cell,) = outcome.cells
    return SumAnswer(
        **_with_binning(released),
        **_counts_of_sums(outcome)[0],
        **_among_sums(outcome),
        total=cell.total,
        total_bar=cell.total_bar,
        mean=cell.mean,
        mean_bar=cell.mean_bar,
        mean_binning=_half_bin(_added_up(released), cell.mean),
        total_low=cell.total_ends[0],
        total_high=cell.total_ends[1],
        mean_low=_end(cell, 0),
        mean_high=_end(cell, 1),
        rows=None if cell.rows is None else round(cell.rows),
        rows_bar=cell.rows_bar,
        confidence=outcome.confidence,
    )


def _sum_by_group(released: Released, outcome: Summed) -> SumByGroupAnswer:
    attributes, attribute = released.query.group_by, _added_up(released)
    rows = [cell.rows for cell in outcome.cells if cell.rows is not None]
    binnings = tuple(_half_bin(attribute, cell.mean) for cell in outcome.cells)
    table = SumTable(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        **_columns(_counts_of_sums(outcome)),
        totals=tuple(cell.total for cell in outcome.cells),
        total_bars=tuple(cell.total_bar for cell in outcome.cells),
        means=tuple(cell.mean for cell in outcome.cells),
        mean_bars=tuple(cell.mean_bar for cell in outcome.cells),
        mean_binnings=binnings if attribute.measure is None else None,
        total_lows=tuple(cell.total_ends[0] for cell in outcome.cells),
        total_highs=tuple(cell.total_ends[1] for cell in outcome.cells),
        mean_lows=tuple(_end(cell, 0) for cell in outcome.cells),
        mean_highs=tuple(_end(cell, 1) for cell in outcome.cells),
        rows=tuple(map(round, rows)) if rows else None,
        rows_bars=tuple(cell.rows_bar for cell in outcome.cells) if rows else None,
    )
    return SumByGroupAnswer(
        **_with_binning(released),
        **_among_sums(outcome),
        table=table,
        confidence=outcome.confidence,
    )


def _share_of_rows(released: Released, outcome: Summed) -> ShareAnswer:
    (cell,) = outcome.cells
    return ShareAnswer(
        **released.facts,
        share=cell.mean,
        share_bar=cell.mean_bar,
        share_low=_end(cell, 0),
        share_high=_end(cell, 1),
        **_counts_of_sums(outcome)[0],
        **_among_sums(outcome),
        both=_rows_of_both(cell, outcome.n),
        both_bar=cell.total_bar,
        confidence=outcome.confidence,
    )


def _share_by_group(released: Released, outcome: Summed) -> ShareByGroupAnswer:
    attributes, cells = released.query.group_by, outcome.cells
    table = ShareTable(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        **_columns(_counts_of_sums(outcome)),
        shares=tuple(cell.mean for cell in cells),
        share_bars=tuple(cell.mean_bar for cell in cells),
        both=tuple(_rows_of_both(cell, outcome.n) for cell in cells),
        both_bars=tuple(cell.total_bar for cell in cells),
        share_lows=tuple(_end(cell, 0) for cell in cells),
        share_highs=tuple(_end(cell, 1) for cell in cells),
    )
    return ShareByGroupAnswer(
        **released.facts, **_among_sums(outcome), table=table, confidence=outcome.confidence
    )


def _counts_of_sums(outcome: Summed) -> list[dict[str, Any]]:
    """Returns, for each sum, the fields of the count of its rows."""
    if not outcome.among:
        return [
            {
                "value": min(1.0, cell.count / outcome.n),
                "count": round(cell.count),
                "error_bar": _share(cell.count_bar, outcome.n),
                **_ends(cell.count_ends),
            }
            for cell in outcome.cells
        ]
    return [
        {
            **_share_among(one),
            "count": round(cell.count),
            "count_bar": cell.count_bar,
            **_ends(cell.count_ends),
        }
        for cell, one in zip(outcome.cells, outcome.among, strict=True)
    ]


def _among_sums(outcome: Summed) -> dict[str, Any]:
    """Returns the fields about the rows that count, where some do not."""
    return _rows_that_count(outcome.among[0]) if outcome.among else {}


def _end(cell: Sum, which: int) -> float | None:
    """Returns the least or the largest mean; None where nothing is known of it."""
    return None if cell.mean_ends is None else cell.mean_ends[which]


def _rows_of_both(cell: Sum, n: int) -> int:
    """Returns the estimated rows of both conditions, which are between none and all."""
    return round(min(max(cell.total, 0.0), float(n)))


def _correlation(released: Released, outcome: Summed) -> CorrelationAnswer:
    (cell,) = outcome.cells
    notes = released.facts["note"], _STANDS_FOR
    low, high = (-1.0, 1.0) if cell.mean_ends is None else cell.mean_ends
    return CorrelationAnswer(
        **{**released.facts, "note": "; ".join(note for note in notes if note)},
        attribute=released.query.attribute,
        other=released.query.other,
        value=cell.mean or 0.0,
        value_low=low,
        value_high=high,
        error_bar=cell.mean_bar,
        confidence=outcome.confidence,
    )


def _difference(released: Released, outcome: Differences) -> DifferenceAnswer:
    (cell,) = outcome.cells
    return DifferenceAnswer(
        **released.facts,
        **_windows(outcome),
        value=cell.share,
        error_bar=cell.share_bar,
        count=round(cell.count),
        count_bar=cell.count_bar,
    )


def _difference_by_group(released: Released, outcome: Differences) -> DifferenceByGroupAnswer:
    attributes, cells = released.query.group_by, outcome.cells
    table = DifferenceTable(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        values=tuple(cell.share for cell in cells),
        counts=tuple(round(cell.count) for cell in cells),
        error_bars=tuple(cell.share_bar for cell in cells),
        count_bars=tuple(cell.count_bar for cell in cells),
    )
    return DifferenceByGroupAnswer(**released.facts, **_windows(outcome), table=table)


def _windows(outcome: Differences) -> dict[str, Any]:
    """Returns the fields about the window that is taken away."""
    return {
        "minus_window": (outcome.minus.start + 1, outcome.minus.stop),
        "minus_n": outcome.n_rows[1],
        "confidence": outcome.confidence,
    }


def _share(rows: float | None, n: int) -> float | None:
    """Returns a half width in rows as a share of the rows asked."""
    return None if rows is None else min(1.0, rows / n)


def _added_up(released: Released) -> Number:
    """Returns the attribute that a query for a sum adds up."""
    name = released.query.attribute
    assert name is not None, "the message was checked"
    attribute = released.universe.attributes[released.universe.index(name)]
    assert isinstance(attribute, Number), "numbers are added up"
    return attribute


def _half_bin(attribute: Number, mean: float | None) -> float | None:
    """Returns half the width of the bin around a mean of representatives; None where there is no such bin."""
    if mean is None or attribute.measure is not None:
        return None
    return attribute.half_width(mean)


def _with_binning(released: Released) -> dict[str, Any]:
    """Returns the facts of a sum, with notes that say which values its bars are about."""
    attribute, up_to = _added_up(released), released.query.up_to
    notes = [
        released.facts["note"],
        _binned(attribute) if attribute.measure is None else _measured(attribute),
        None
        if up_to is None
        else f"values above {number_text(up_to)} count as {number_text(up_to)}",
    ]
    return {
        **released.facts,
        "note": "; ".join(note for note in notes if note is not None),
        "attribute": attribute.name,
        "up_to": up_to,
    }


def _binned(attribute: Number) -> str:
    """Says how much the bins may hide."""
    low, high = (number_text(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    most = number_text(attribute.binning_error)
    return (
        f"the bars leave the width of the bins out: a value of {attribute.name} counts as its bin's "
        f"representative, which is up to {most} off between {low} and {high}, and by any amount outside"
    )


def _measured(attribute: Number) -> str:
    """Says which values are added up where those of rows are kept."""
    measure = attribute.measure
    assert measure is not None, "the values are kept"
    low, high, unit = map(number_text, (measure.low, measure.high, measure.unit))
    return (
        f"values of {attribute.name} are added up as they are, but for those outside {low} to {high}, which "
        f"count as the nearer end, and for rounding to multiples of {unit}"
    )


COUNTS_AND_SUMS: Final[Mapping[str, Maker]] = {
    "predicate": _predicate,
    "table": _table,
    "sum": _sum,
    "sum_by_group": _sum_by_group,
    "share": _share_of_rows,
    "share_by_group": _share_by_group,
    "quantile": _quantile,
    "quantile_by_group": _quantile_by_group,
    "correlation": _correlation,
    "difference": _difference,
    "difference_by_group": _difference_by_group,
}
"""The makers of the answers that need no kind of a definition, by the kind of the answer."""
