"""Outcomes as answers: the one place where what the core has found becomes the fields of a message.

A function for each class of outcomes returns the fields of its cells, named as in an answer about one cell.
An answer by groups has them as columns of its table, in the plural.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from typing import Any, Final, TypeAlias

from stream_dp.core.outcome import (
    Answered,
    BatchAnswered,
    Differences,
    Found,
    Outcome,
    Placed,
    Quantiles,
    Recorded,
    Responses,
    RowsThatCount,
    Sum,
    Summed,
    TableAnswered,
)
from stream_dp.core.published.sparse_table import common_prefix, surely_some
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.attributes import Attribute, Category, Date, Number
from stream_dp.core.rows.column_values import number_text
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import (
    ANSWERS,
    READ_EACH,
    Batched,
    FoundCell,
    NoisyAnswer,
    QueryFields,
    Vector,
    plural,
)

Fields: TypeAlias = dict[str, Any]

_STANDS_FOR: Final = (
    "the correlation is that of the values that stand for bins, and values beyond 2.5 deviations from the "
    "mean count as the last bin within"
)
_OF_QUERIES: Final = ("attribute", "other", "rank", "up_to")
"""The fields of a query that its answer repeats, if answers of its kind have them."""

_ASKED: Final = ("error_bar_anytime", "mean_binning", "rows", "rows_bar")
"""The fields that have no column in a table where no cell has them."""


@dataclass(frozen=True, slots=True)
class Released:
    """The facts that an answer of any kind is made of, besides the outcome.

    Attributes:
        universe: The schema of the data set.
        query: The query as it was sent.
        facts: The fields that answers of all kinds have.
        recorded: What older rows do not say of it; None where nobody asks.
    """

    universe: Universe
    query: QueryFields
    facts: Fields
    recorded: Recorded | None = None

    def answer(self, kind: str, outcome: Outcome) -> NoisyAnswer:
        """Makes the answer of a kind from an outcome, unless that is a refusal."""
        model = ANSWERS[kind]
        fields, cells = _MAKERS[type(outcome)](self, outcome)
        notes = self.facts["note"], fields.pop("note", None)
        if self.recorded is not None and self.recorded.at_most:
            at_most = [math.ceil(rows) for rows in self.recorded.at_most]
            cells = [
                {**cell, "unrecorded_at_most": rows}
                for cell, rows in zip(cells, at_most, strict=True)
            ]
            fields["recorded_since"] = self.recorded.since + 1
        if self.recorded is not None and self.recorded.clamped_until:
            fields["clamped_until"] = self.recorded.clamped_until
        first: Any = outcome.cells[0] if isinstance(outcome, TableAnswered) else outcome
        fields["confidence"] = first.confidence
        fields |= {
            name: getattr(self.query, name) for name in _OF_QUERIES if name in model.model_fields
        }
        fields["note"] = "; ".join(note for note in notes if note) or None
        if "table" not in model.model_fields:
            (cell,) = cells
            return model(**{**self.facts, **fields, **cell})
        names = self.query.group_by or (self.query.attribute,)
        attributes = [self.universe.attributes[self.universe.index(str(name))] for name in names]
        told = [attribute.told for attribute in attributes]
        labels = tuple(
            tuple(compress(attribute.labels, cells_told))
            for attribute, cells_told in zip(attributes, told, strict=True)
        )
        if not all(map(all, told)):
            cells = [cell for cell, of in zip(cells, product(*told), strict=True) if all(of)]
        columns = {"attributes": names, "labels": labels, **_columns(cells)}
        table = {**columns, **fields.pop("table", {})}
        return model.model_validate({**self.facts, **fields, "table": table})


_Parts: TypeAlias = tuple[Fields, list[Fields]]
"""The fields of a whole answer, and those of each of its cells."""


def _columns(cells: Sequence[Fields]) -> Fields:
    """Returns the fields of several cells as columns of a table."""
    columns = {name: tuple(cell[name] for cell in cells) for name in cells[0]}
    return {
        plural(name): column
        for name, column in columns.items()
        if name not in _ASKED or any(value is not None for value in column)
    }


# ---------------------------------------------------------------- counts


def _of_count(_: Released, outcome: Answered) -> _Parts:
    return _rows_that_count(outcome.among), [fields_of_count(outcome)]


def _of_table(released: Released, outcome: TableAnswered) -> _Parts:
    cells = [fields_of_count(cell) for cell in outcome.cells]
    # Each of two counts is rounded by up to half a row.
    apart = None if outcome.apart is None else outcome.apart + 1.0
    fields = {
        **_rows_that_count(outcome.cells[0].among),
        "note": _sparse(released, outcome) if released.query.kind == "table" else None,
        "table": {"wider": outcome.wider, "apart": apart},
    }
    return fields, cells


def fields_of_count(outcome: Answered) -> Fields:
    """Returns the fields of a count, and of the share that it is."""
    rows = {"count": round(outcome.count), **_ends(outcome.ends)}
    if outcome.among is not None:
        bar = None if outcome.error_bar is None else outcome.error_bar * outcome.n
        return {**rows, **_share_among(outcome.among), "count_bar": bar}
    return {
        **rows,
        "value": outcome.value,
        "error_bar": outcome.error_bar,
        "error_bar_simultaneous": outcome.error_bar_simultaneous,
        "error_bar_anytime": outcome.error_bar_anytime,
    }


def _ends(ends: tuple[float, float]) -> Fields:
    """Returns the fields of the fewest and the most rows: whole numbers that are not between the two."""
    low, high = ends
    return {"low": math.floor(low), "high": math.ceil(high)}


def _rows_that_count(known: RowsThatCount | None) -> Fields:
    """Returns the fields of an answer about the rows that count, where some do not."""
    if known is None:
        return {}
    return {
        "counted": round(known.rows),
        "counted_bar": known.rows_bar,
        "surplus_at_most": known.surplus_at_most,
    }


def _share_among(known: RowsThatCount) -> dict[str, Any]:
    """Returns the fields of a share of the rows that count; nobody knows it where its bar is None."""
    bar = known.share_bar if known.share_bar is None or known.share_bar < 1.0 else None
    return {"value": 0.0 if known.share is None else known.share, "error_bar": bar}


def _sparse(released: Released, outcome: TableAnswered) -> str | None:
    """Says how many of very many cells surely have rows, and what to ask of the others."""
    n_sure, universe = surely_some(outcome), released.universe
    if len(outcome.cells) <= READ_EACH or n_sure is None:
        return None
    predicate = compile_where(universe, released.query.where)
    asked = [
        (
            predicate.cells_of(index, universe.shape[index]) & universe.attributes[index].told
        ).tolist()
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


# ---------------------------------------------------------------- sums, shares and differences


def _of_sums(released: Released, outcome: Summed) -> _Parts:
    fields = _rows_that_count(outcome.among[0] if outcome.among else None)
    if released.query.kind == "correlation":
        (cell,) = outcome.cells
        low, high = (-1.0, 1.0) if cell.mean_ends is None else cell.mean_ends
        value = {"value": cell.mean or 0.0, "value_low": low, "value_high": high}
        return {**fields, "note": _STANDS_FOR}, [{**value, "error_bar": cell.mean_bar}]
    if released.query.kind == "share":
        more = [_share_cell(cell, outcome.n) for cell in outcome.cells]
    else:
        attribute = released.universe.attributes[
            released.universe.index(str(released.query.attribute))
        ]
        assert isinstance(attribute, Number), "numbers are added up"
        indices = () if released.recorded is None else released.recorded.numbers
        every = [released.universe.attributes[index] for index in indices]
        numbers = [one for one in every if isinstance(one, Number)] or [attribute]
        fields["note"] = _which_values(numbers, released.query.up_to)
        more = [_sum_cell(cell, numbers) for cell in outcome.cells]
    counted = _counts_of_sums(outcome)
    return fields, [{**rows, **cell} for rows, cell in zip(counted, more, strict=True)]


def _share_cell(cell: Sum, n: int) -> Fields:
    low, high = cell.mean_ends or (None, None)
    return {
        "share": cell.mean,
        "share_bar": cell.mean_bar,
        "share_low": low,
        "share_high": high,
        # The rows of both conditions are between none and all.
        "both": round(min(max(cell.total, 0.0), float(n))),
        "both_bar": cell.total_bar,
    }


def _sum_cell(cell: Sum, numbers: Sequence[Number]) -> Fields:
    low, high = cell.mean_ends or (None, None)
    return {
        "total": cell.total,
        "total_bar": cell.total_bar,
        "total_low": cell.total_ends[0],
        "total_high": cell.total_ends[1],
        "mean": cell.mean,
        "mean_bar": cell.mean_bar,
        "mean_low": low,
        "mean_high": high,
        "mean_binning": _half_bin(numbers, cell.mean),
        "rows": None if cell.rows is None else round(cell.rows),
        "rows_bar": cell.rows_bar,
    }


def _counts_of_sums(outcome: Summed) -> list[Fields]:
    """Returns, for each sum, the fields of the count of its rows."""
    found = []
    for index, cell in enumerate(outcome.cells):
        rows = {"count": round(cell.count), **_ends(cell.count_ends)}
        if outcome.among:
            of_those = {**_share_among(outcome.among[index]), "count_bar": cell.count_bar}
        else:
            bar = None if cell.count_bar is None else min(1.0, cell.count_bar / outcome.n)
            of_those = {"value": min(1.0, cell.count / outcome.n), "error_bar": bar}
        found.append({**rows, **of_those})
    return found


def _of_differences(_: Released, outcome: Differences) -> _Parts:
    fields = {
        "minus_window": (outcome.minus.start + 1, outcome.minus.stop),
        "minus_n": outcome.n_rows[1],
    }
    cells = [
        {
            "value": cell.share,
            "error_bar": cell.share_bar,
            "count": round(cell.count),
            "count_bar": cell.count_bar,
        }
        for cell in outcome.cells
    ]
    return fields, cells


def _half_bin(numbers: Sequence[Number], mean: float | None) -> float | None:
    """Returns half the width of the bin around a mean of representatives; None where there is no such bin.

    Of several versions of the attribute it is the widest one.
    """
    if mean is None or numbers[-1].measure is not None:
        return None
    widths = [number.half_width(mean) for number in numbers]
    known = [width for width in widths if width is not None]
    return max(known) if len(known) == len(widths) else None


def _which_values(numbers: Sequence[Number], up_to: float | None) -> str:
    """Says which values the bars of a sum are about, of an attribute in all versions of its window."""
    said = _binned(numbers) if numbers[-1].measure is None else _measured(numbers[-1])
    if up_to is None:
        return said
    return f"{said}; values above {number_text(up_to)} count as {number_text(up_to)}"


def _binned(numbers: Sequence[Number]) -> str:
    """Says how much the bins may hide."""
    low = number_text(max(number.edges[0] for number in numbers))
    high = number_text(min(number.edges[-1] for number in numbers))
    most = number_text(max(number.binning_error for number in numbers))
    return (
        f"the bars leave the width of the bins out: a value of {numbers[-1].name} counts as its bin's "
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


# ---------------------------------------------------------------- values that were looked for


def _of_quantiles(released: Released, outcome: Quantiles) -> _Parts:
    attribute, cells = released.universe.attributes[outcome.attribute], []
    for cell in outcome.cells:
        found = lies_in = None
        if cell.likely is not None:
            found = _joined(attribute, *cell.likely, place=cell.likely[0])
            lies_in = _joined(attribute, cell.first, cell.last, place=cell.first)
        cells.append(
            {
                "found": found,
                "lies_in": lies_in,
                "error_bar": None if found is None else cell.rank_error,
                "count": round(min(max(cell.rows, 0.0), float(outcome.n))),
            }
        )
    return _rows_that_count(outcome.among), cells


def _of_found(released: Released, outcome: Found) -> _Parts:
    cell = {
        "found": _found_cell(released.universe, outcome),
        "no_answer": True if outcome.code is None else None,
        "error_bar": outcome.rank_error,
    }
    return {}, [cell]


def _of_side(released: Released, outcome: Placed) -> _Parts:
    cell = {
        "low": released.query.low,
        "high": released.query.high,
        "side": outcome.side.value,
        "found": _found_cell(released.universe, outcome),
        "error_bar": outcome.error_bar,
    }
    return {}, [cell]


def _found_cell(universe: Universe, outcome: Found | Placed) -> FoundCell | None:
    """Returns the cell that an outcome names, or None if it names none."""
    if outcome.attribute is None or outcome.code is None:
        return None
    return _joined(universe.attributes[outcome.attribute], outcome.code, outcome.code)


def _joined(attribute: Attribute, first: int, last: int, place: int | None = None) -> FoundCell:
    """Returns neighbouring cells of an attribute as one."""
    label = _label_of(attribute, first, last)
    if not isinstance(attribute, Number) or last == attribute.missing_cell:
        return FoundCell(label=label, place=place)
    ends = (None, *attribute.edges, None)
    return FoundCell(label=label, low=ends[first], high=ends[last + 1], place=place)


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


def _of_batch(_: Released, outcome: BatchAnswered) -> _Parts:
    counts = tuple(round(value * outcome.n) for value in outcome.values)
    cell = {
        "batch": Batched(values=outcome.values, counts=counts),
        "error_bar_simultaneous": outcome.error_bar,
    }
    return {}, [cell]


def _of_responses(_: Released, outcome: Responses) -> _Parts:
    bits = b64encode(outcome.bits).decode()
    cell = {
        "vector": Vector(bits=bits, agreement=outcome.agreement),
        "error_bar": outcome.error_bar,
    }
    return {}, [cell]


_MAKERS: Final[Mapping[type, Callable[[Released, Any], _Parts]]] = {
    Answered: _of_count,
    TableAnswered: _of_table,
    Summed: _of_sums,
    Differences: _of_differences,
    Quantiles: _of_quantiles,
    Found: _of_found,
    Placed: _of_side,
    BatchAnswered: _of_batch,
    Responses: _of_responses,
}
"""The function that makes the fields of an answer, by the class of the outcome."""
