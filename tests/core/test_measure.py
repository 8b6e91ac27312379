"""Values that are kept in units: how they are rounded, clamped, stored and added up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import MAX_MEASURED_ROWS, MAX_UNITS, Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch, InvalidDefinition
from tests.stored_slabs import block_again, drawn_order

EDGES = (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500)
MEASURES = [
    Measure(0.01, 0.0, 500.0),
    Measure(0.25, -10.0, 100.0),
    Measure(5.0, -500.0, 1000.0),
    Measure(0.7, -7.0, 7.0),
    Measure(1.0, 40.0, 60.0),
]
AMOUNT, STATUS = range(2)


def universe(*, missing: bool = True, integer: bool = False, ends: Any = MEASURES[0]) -> Universe:
    amount = Number("amount", EDGES, integer=integer, missing=missing, measure=ends)
    return Universe((amount, Category("status", ("paid", "open"))))


def number(value: object) -> Fraction | None:
    """The number that a value of a row says, as it is written; None for no number."""
    if value is None or value != value:
        return None
    if isinstance(value, int):
        return Fraction(int(value))
    try:
        found = float(value)  # type: ignore[arg-type]
    except ValueError:
        return None
    if math.isinf(found):
        return Fraction(10) ** 400 * (1 if found > 0 else -1)
    return None if math.isnan(found) else Fraction(repr(found))


def counts_for(value: object, measure: Measure) -> int:
    """Units of a value by exact fractions, one value at a time; the lower end if it is no number."""
    written = number(value)
    low, high = Fraction(repr(measure.low)), Fraction(repr(measure.high))
    inside = low if written is None else min(max(written, low), high)
    return round(inside / measure.exact_unit)  # half way to the even one


values = (
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.floats(-600, 600)
    | st.decimals(-600, 600, places=3, allow_nan=False).map(str)
    | st.integers(-(10**5), 10**5).map(lambda n: n / 200)
    | st.sampled_from(["x", "inf", "-inf", math.nan, math.inf, 1e308, 10**400, -(10**400), "1e999"])
)


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
@given(column=st.lists(values, max_size=12))
@example(column=[n / 8 for n in range(-40, 41)] + [n / 200 for n in range(-40, 41)])
def test_a_value_is_rounded_to_the_nearest_unit_as_it_is_written(
    measure: Measure, column: list[object]
) -> None:
    attribute = Number("amount", EDGES, missing=True, measure=measure)
    codes, offsets = attribute.encode_measured(column)
    assert codes.tolist() == attribute.encode(column).tolist()
    assert offsets.dtype == np.uint32
    for value, code, offset in zip(column, codes.tolist(), offsets.tolist(), strict=True):
        low, high = attribute.measured_ends[code]
        wanted = counts_for(value, measure) if code != attribute.missing_cell else low
        assert offset + measure.ends[0] == min(max(wanted, low), high) == wanted


@given(column=st.lists(values, max_size=12))
def test_whole_numbers_count_for_their_floor(column: list[object]) -> None:
    attribute = Number("delay", (0, 10, 30), integer=True, measure=Measure(1.0, -20.0, 90.0))
    _, offsets = attribute.encode_measured(column)
    for value, offset in zip(column, offsets.tolist(), strict=True):
        written = number(value)
        floor = None if written is None else math.floor(written)
        assert offset - 20 == counts_for(floor, attribute.measure)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measure", "integer"),
    [*((m, False) for m in MEASURES), *((m, True) for m in MEASURES if m.unit.is_integer())],
    ids=repr,
)
@given(column=st.lists(values, max_size=12))
def test_what_a_row_counts_for_lies_between_the_ends_of_its_cell_and_can_be_written_again(
    measure: Measure, integer: bool, column: list[object]
) -> None:
    schema = universe(integer=integer, ends=measure)
    rows = schema.encode_columns({"amount": column, "status": ["paid"] * len(column)})
    attribute = schema.measured[AMOUNT]
    for code, offset in zip(
        rows.codes[AMOUNT].tolist(), rows.measures[AMOUNT].tolist(), strict=True
    ):
        low, high = attribute.measured_ends[code]
        assert measure.ends[0] <= low <= offset + measure.ends[0] <= high <= measure.ends[1]
    written = attribute.numbers(rows.codes[AMOUNT], rows.measures[AMOUNT])
    again = schema.encode_columns({"amount": written, "status": ["paid"] * len(column)})
    assert again.codes[AMOUNT].tolist() == rows.codes[AMOUNT].tolist()
    assert again.measures[AMOUNT].tolist() == rows.measures[AMOUNT].tolist()


def test_floats_numbers_and_text_that_say_the_same_count_for_the_same() -> None:
    attribute = universe().measured[AMOUNT]
    said = [1.005, 0.015, 12.34, 499.999, 0.0]
    forms: list[Any] = [
        said,
        np.array(said),
        list(map(str, said)),
        [*map(str, said[:2]), *said[2:]],
    ]
    found = [attribute.encode_measured(form)[1].tolist() for form in forms]
    assert found == [[100, 2, 1234, 50_000, 0]] * len(forms)


def test_whole_numbers_are_kept_in_whole_units() -> None:
    with pytest.raises(InvalidDefinition) as refused:
        Number("delay", (0, 10), integer=True, measure=Measure(0.5, 0.0, 10.0))
    assert refused.value.field == "measure.unit"


@pytest.mark.parametrize(
    ("measure", "field"),
    [
        ((0.0, 0.0, 1.0), "measure.unit"),
        ((-0.1, 0.0, 1.0), "measure.unit"),
        ((0.25, 0.1, 1.0), "measure.low"),
        ((0.25, 0.0, 1.1), "measure.high"),
        ((1.0, 5.0, 5.0), "measure.high"),
        ((1.0, 5.0, 4.0), "measure.high"),
        ((0.01, 0.0, 0.01 * (MAX_UNITS + 1)), "measure.unit"),
        ((1.0, 2.0**52, 2.0**52 + 4.0), "measure.unit"),
        ((2.0**52, 0.0, 2.0**54), "measure.unit"),
    ],
)
def test_a_measure_that_cannot_be_kept_is_refused(
    measure: tuple[float, float, float], field: str
) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        Measure(*measure)
    assert refused.value.field == field


# ---------------------------------------------------------------- rows and blocks


def rows_of(form: str) -> tuple[Universe, Rows, list[tuple[object, str, int]]]:
    """The rows in one of three forms, and each as (amount, status, how often)."""
    schema = universe()
    each: list[tuple[object, str, int]] = [
        (2.5, "paid", 3),
        (2.51, "paid", 1),
        (None, "open", 2),
        (700, "open", 4),
        ("6", "", 1),
    ]
    listed = [(amount, status, 1) for amount, status, n in each for _ in range(n)]
    match form:
        case "rows":
            rows = schema.encode_rows([{"amount": a, "status": s} for a, s, _ in listed])
        case "columns":
            rows = schema.encode_columns(
                {"amount": [a for a, _, _ in listed], "status": [s for _, s, _ in listed]}
            )
        case _:
            rows = schema.encode_cells([{"amount": a, "status": s, "count": n} for a, s, n in each])
    return schema, rows, each


@pytest.mark.parametrize("times", [2, 100], ids=["slots", "merged"])
@pytest.mark.parametrize("form", ["rows", "columns", "cells"])
def test_a_block_adds_up_the_values_of_the_rows_of_each_cell(form: str, times: int) -> None:
    schema, rows, each = rows_of(form)
    sealed = Block.seal(schema, Rows.concat([rows] * times), order=drawn_order(1))
    n_slots = sum(slab.n_slots for slab in sealed.slabs)
    assert n_slots == (schema.n_cells if times == 100 else 2 * rows.n_entries)
    wanted = np.zeros(schema.shape, dtype=np.int64)
    for amount, status, n in each:
        cell = schema.encode_rows([{"amount": amount, "status": status}]).codes
        units = 0 if amount is None else counts_for(amount, MEASURES[0])
        wanted[tuple(int(code[0]) for code in cell)] += times * n * units
    for block in (sealed, block_again(sealed)):
        blocks = Blocks(schema, [block])
        assert (blocks.totals(AMOUNT, (0, 1), range(1))[0] == wanted).all()
        assert (blocks.totals(AMOUNT, (1,), range(1))[0] == wanted.sum(axis=0)).all()
        assert blocks.totals(AMOUNT, (), range(1)).tolist() == [wanted.sum()]
    with pytest.raises(ValueError, match="not kept"):
        blocks.totals(STATUS, (0,), range(1))
    with pytest.raises(ValueError, match="not sealed"):
        blocks.totals(AMOUNT, (0,), range(2))


def test_rows_are_sealed_with_the_values_that_are_kept_of_them_and_with_no_others() -> None:
    schema, plain = universe(), universe(ends=None)
    for one, other in ((schema, plain), (plain, schema)):
        rows = one.encode_columns({"amount": [7.0], "status": ["paid"]})
        assert Block.seal(one, rows).n_rows == 1
        with pytest.raises(ValueError, match="values that are kept"):
            Block.seal(other, rows)


def test_a_block_keeps_values_of_so_many_rows_that_no_sum_overflows() -> None:
    schema = Universe(
        (Number("x", (5,), measure=Measure(1.0, 0.0, float(MAX_UNITS))), Category("c", ("a", "b")))
    )
    most = [{"x": 1e9, "c": "a", "count": MAX_MEASURED_ROWS}]
    block = Block.seal(schema, schema.encode_cells(most))
    assert Blocks(schema, [block_again(block)]).totals(0, (), range(1)).tolist() == [2**60]
    each = [{"x": 1e9, "c": c, "count": MAX_MEASURED_ROWS // 128} for c in "ab" for _ in range(64)]
    merged = Block.seal(schema, schema.encode_cells(each))
    assert sum(slab.n_slots for slab in merged.slabs) == schema.n_cells
    found = Blocks(schema, [block_again(merged)])
    assert found.totals(0, (1,), range(1)).tolist() == [[2**59, 2**59, 0]]
    assert found.marginal((), range(1)).tolist() == [2**40]
    with pytest.raises(InvalidBatch):
        schema.encode_cells([*most, {"c": "b", "count": 1}])


def test_edges_beyond_exact_floats_are_compared_exactly_and_values_are_kept_all_the_same() -> None:
    attribute = Number("x", (0, 2**60, 2**60 + 512), measure=Measure(1.0, 0.0, 9.0))
    column = [5, 2**60 + 511, 2**60 + 1, "1152921504606846976", -3, None]
    codes, offsets = attribute.encode_measured(column)
    assert codes.tolist() == [1, 2, 2, 2, 0, 0]
    assert offsets.tolist() == [5, 9, 9, 9, 0, 0]
