from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number
from stream_dp.core.rows.column_values import MAX_SCALAR, Repeated
from stream_dp.core.rows.encoded_rows import MAX_ROWS, Rows, exact_sum
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch, InvalidDefinition, InvalidQuery

FLIGHTS = Universe(
    (
        Category("carrier", ("AA", "UA", "true", "7", "1.5"), other=True, missing=True),
        Number("arr_delay", (-20, -10, 0, 10, 30, 60), integer=True, missing=True),
        Boolean("cancelled"),
    )
)

ATTRIBUTES: list[Attribute] = [
    *FLIGHTS.attributes,
    Category("c", ("AA", "0", "1", "false", "inf"), other=True),
    Category("c", ("AA", "0", "1", "-3"), other=False, missing=True),
    Category("c", ("AA", "1"), other=False),
    Number("n", (0.5, 1.0, 1e300)),
    Number("n", (-(2.0**60), 0.0, 2.0**60), integer=True, missing=True),
    Boolean("b", missing=True),
]

NOTABLE_TEXTS = [
    "AA", "true", "TRUE", "False", "7", "1.5", "0", "1", " 12 ", "1e400", "nan", "-inf", "", "9" * 400,
    "YES", "yes", "No", "n", "Y", "oN", "OFF", "t", "F", "ye", "nope",
]  # fmt: skip
NOTABLE_NUMBERS = [0, 1, 1.0, 1.5, 7, 7.0, -0.0, 2**60, 2**60 - 1, 10**400, -(10**400)]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=300)
    | st.characters(categories=["Cs"])  # halves of surrogate pairs
    | st.sampled_from(NOTABLE_TEXTS)
    | st.sampled_from(NOTABLE_NUMBERS),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3)
    ),
    max_leaves=5,
)


def expected_label(attribute: Attribute, value: object) -> str:
    """The rules of the docstrings once more, one value at a time, by comparing and not by looking up."""
    missing = ["missing"] if attribute.missing else []
    if isinstance(attribute, Category):
        other = ["other"] if attribute.other else []
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, float) and value.is_integer():
            text = str(int(value))
        elif isinstance(value, int | float) and value == value:
            text = repr(value)
        elif isinstance(value, str):
            text = value
        else:
            return [*missing, *other, attribute.labels[0]][0]
        return text if text in attribute.values else [*other, *missing, attribute.labels[0]][0]
    if isinstance(attribute, Boolean):
        no, yes = (0, "false", "0", "f", "no", "n", "off"), (1, "true", "1", "t", "yes", "y", "on")
        for label, spellings in (("false", no), ("true", yes)):
            if (value.lower() if isinstance(value, str) else value) in spellings:
                return label
        return [*missing, "false"][0]
    if isinstance(value, str):
        try:
            value = (
                float(value) if len(value) > 1000 or not value.strip().isdecimal() else int(value)
            )
        except ValueError:
            value = None
    if not isinstance(value, int | float) or value != value:
        return [*missing, attribute.labels[0]][0]
    return attribute.labels[sum(edge <= value for edge in attribute.edges)]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=repr)
@settings(max_examples=40)
@given(column=st.lists(json_values, max_size=8))
def test_every_json_value_has_a_cell_and_it_is_the_declared_one(
    attribute: Attribute, column: list[object]
) -> None:
    codes = attribute.encode(column)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(column),)
    assert [attribute.labels[c] for c in codes] == [expected_label(attribute, v) for v in column]


@pytest.mark.parametrize("epoch", [None, "s", "ms"])
@settings(max_examples=40)
@given(column=st.lists(json_values, max_size=8))
def test_every_json_value_has_a_cell_of_a_date_whatever_stands_next_to_it(
    epoch: str | None, column: list[object]
) -> None:
    day = Date("d", "day", "2026-01-01", "2026-12-01", epoch=epoch, missing=True)
    codes = day.encode(column)
    assert (codes.dtype, codes.shape) == (np.uint16, (len(column),))
    assert list(codes) == [day.encode([value])[0] for value in column]
    if epoch is None:
        assert set(codes) <= {day.missing_cell}


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=repr)
def test_an_integer_too_long_for_python_to_print_has_a_cell(attribute: Attribute) -> None:
    codes = attribute.encode([10**5000, -(10**5000)])
    if isinstance(attribute, Number):
        assert list(codes) == [len(attribute.edges), 0]
    else:
        assert codes[0] == codes[1] < attribute.size


@pytest.mark.parametrize(
    ("attribute", "labels"),
    [
        (Category("c", ("AA", "UA"), missing=True), ("AA", "UA", "other", "missing")),
        (Category("c", ("AA", "UA"), other=False), ("AA", "UA")),
        (Category("c", ("other", "UA")), ("other", "UA", "(other)")),
        (Number("n", (-20, 0.5, 60)), ("< -20", "-20 to 0.5", "0.5 to 60", ">= 60")),
        (Number("n", (0, 1, 10), integer=True, missing=True), ("< 0", "0", "1 to 9", ">= 10", "missing")),
        (Boolean("b", missing=True), ("false", "true", "missing")),
    ],
)  # fmt: skip
def test_cells_are_listed_in_order_values_then_other_then_missing(
    attribute: Attribute, labels: tuple[str, ...]
) -> None:
    assert attribute.labels == labels
    assert attribute.size == len(labels)


def test_bins_are_left_closed() -> None:
    delay = Number("n", (10, 30))
    assert list(delay.encode([9.999999, 10, 29.999, 30, -math.inf, math.inf])) == [0, 1, 1, 2, 0, 2]


def test_integers_beyond_float_precision_fall_on_the_right_side_of_an_edge() -> None:
    wide = Number("n", (2.0**60,), integer=True)
    column = [2**60 - 1, 2**60, 2**60 + 1]
    assert float(column[0]) == float(column[1]), "or this test shows nothing"
    assert list(wide.encode(column)) == [0, 1, 1]
    assert list(wide.encode(np.array(column))) == [0, 1, 1]
    assert list(wide.encode([str(v) for v in column])) == [0, 1, 1]


def test_a_numpy_column_is_read_as_the_list_of_its_values() -> None:
    columns: list[Sequence[object]] = [
        [0, 1, 7, -15, 30], [0.0, 1.5, math.nan, math.inf, -20.0], [True, False], ["AA", "7", "true", "x"],
    ]  # fmt: skip
    for attribute in ATTRIBUTES:
        for column in columns:
            assert list(attribute.encode(np.array(column))) == list(attribute.encode(column))


def test_what_other_libraries_put_into_a_column_is_read_or_missing() -> None:
    class Carrier(StrEnum):
        AMERICAN = "AA"

    carrier, delay, cancelled = FLIGHTS.attributes
    texts = [Carrier.AMERICAN, np.str_("AA"), np.int64(7), np.float64(1.5), np.bool_(True)]
    assert [carrier.labels[c] for c in carrier.encode(texts)] == ["AA", "AA", "7", "1.5", "true"]
    numbers = [
        Decimal("29.5"),
        Decimal("sNaN"),
        Decimal("1e9999"),
        np.float32(30),
        np.longdouble(1),
        1j,
        b"1",
    ]
    labels = ["10 to 29", "missing", ">= 60", "30 to 59", "missing", "missing", "missing"]
    assert [delay.labels[c] for c in delay.encode(numbers)] == labels
    assert list(cancelled.encode([np.bool_(True), np.int8(1), np.datetime64("2013-01-01")])) == [
        1,
        1,
        0,
    ]


def test_an_attribute_of_more_than_256_cells_has_wider_codes() -> None:
    assert Category("c", tuple(map(str, range(255)))).encode([254, 999]).dtype == np.uint8
    wide = Category("c", tuple(map(str, range(256)))).encode([255, 999])
    assert wide.dtype == np.uint16
    assert list(wide) == [255, 256]


def test_the_number_of_cells_of_a_wide_universe_does_not_wrap() -> None:
    wide = Universe(tuple(Category(f"a{i}", tuple(map(str, range(99)))) for i in range(64)))
    assert wide.n_cells == 100**64


@pytest.mark.parametrize(
    ("define", "field"),
    [
        (lambda: Category("c", ()), "values"),
        (lambda: Category("c", ("a", "a")), "values"),
        (lambda: Category("c", ("a" * 257,)), "values"),
        (lambda: Category("c", ("\ud800",)), "values"),
        (lambda: Category("c", ("a",), other=False), "values"),
        (lambda: Category("c", tuple(map(str, range(65_536)))), "values"),
        (lambda: Category("", ("a",)), "name"),
        (lambda: Category("a" * 65, ("a",)), "name"),
        (lambda: Category("a\n", ("a",)), "name"),
        (lambda: Category(" a", ("a",)), "name"),
        (lambda: Boolean("count"), "name"),
        (lambda: Number("n", ()), "edges"),
        (lambda: Number("n", (1, 1)), "edges"),
        (lambda: Number("n", (0.0, -0.0)), "edges"),
        (lambda: Number("n", (math.nan,)), "edges"),
        (lambda: Number("n", (math.inf,)), "edges"),
        (lambda: Number("n", (2**53 + 1,)), "edges"),
        (lambda: Number("n", (10**400,)), "edges"),
        (lambda: Number("n", (True,)), "edges"),
        (lambda: Number("n", (0.5,), integer=True), "edges"),
        (lambda: Universe(()), "attributes"),
        (lambda: Universe((Boolean("b"), Boolean("b"))), "attributes.1.name"),
        (lambda: Universe(tuple(Boolean(f"b{i}") for i in range(65))), "attributes"),
    ],
)
def test_a_definition_that_cannot_hold_is_refused_at_its_place(
    define: Callable[[], object], field: str
) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        define()
    assert caught.value.field == field


def test_an_unknown_name_is_answered_with_the_near_ones() -> None:
    assert FLIGHTS.index("arr_delay") == 1
    with pytest.raises(InvalidQuery, match="did you mean carrier") as caught:
        FLIGHTS.index("carier")
    assert caught.value.reason == "unknown_attribute"
    with pytest.raises(InvalidQuery, match="use one of carrier, arr_delay, cancelled"):
        FLIGHTS.index("zzz")


def test_columns_rows_and_cells_say_the_same() -> None:
    rows: list[dict[str, object]] = [
        {"carrier": "AA", "arr_delay": 5, "cancelled": False},
        {"carrier": "ZZ", "cancelled": True},
        {"carrier": None, "arr_delay": -100, "cancelled": 1},
    ]
    columns = {name: [row.get(name) for row in rows] for name in FLIGHTS.names}
    by_row, by_column = FLIGHTS.encode_rows(rows), FLIGHTS.encode_columns(columns)
    by_cell = FLIGHTS.encode_cells([{**row, "count": 3} for row in rows])
    for a, b, c in zip(by_row.codes, by_column.codes, by_cell.codes, strict=True):
        assert list(a) == list(b) == list(c)
    assert by_cell.counts is not None
    assert list(by_cell.counts) == [3, 3, 3]
    assert (by_row.n_rows, by_column.n_rows, by_cell.n_rows) == (3, 3, 9)
    assert (by_row.n_entries, by_cell.n_entries) == (3, 3)


def test_an_empty_batch_has_no_rows() -> None:
    empty: dict[str, list[object]] = {name: [] for name in FLIGHTS.names}
    for rows in (FLIGHTS.encode_rows([]), FLIGHTS.encode_cells([]), FLIGHTS.encode_columns(empty)):
        assert rows.n_rows == rows.n_entries == 0


WHOLE: dict[str, Any] = {"carrier": ["AA"], "arr_delay": [1], "cancelled": [True]}


@pytest.mark.parametrize(
    "encode",
    [
        lambda secret: FLIGHTS.encode_columns({**WHOLE, secret: [1]}),
        lambda secret: FLIGHTS.encode_columns({"carrier": [secret]}),
        lambda secret: FLIGHTS.encode_columns({**WHOLE, "carrier": [secret, secret]}),
        lambda secret: FLIGHTS.encode_columns({**WHOLE, "carrier": secret}),
        lambda secret: FLIGHTS.encode_rows([{"carrier": "AA"}, {secret: 1}]),
        lambda secret: FLIGHTS.encode_rows([secret]),
        lambda secret: FLIGHTS.encode_cells([secret]),
        lambda secret: FLIGHTS.encode_cells([{secret: 1, "count": 1}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret, "count": secret}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret, "count": -1}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret, "count": 1.0}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret, "count": True}]),
        lambda secret: FLIGHTS.encode_cells([{"carrier": secret, "count": MAX_ROWS}, {"count": 1}]),
    ],
)
def test_structure_is_refused_in_a_text_that_is_the_same_for_every_value(
    encode: Callable[[str], Rows],
) -> None:
    texts = set()
    for secret in ("hunter2", "swordfish"):
        with pytest.raises(InvalidBatch) as caught:
            encode(secret)
        texts.add(str(caught.value))
        assert secret not in str(caught.value)
    assert len(texts) == 1


def test_a_batch_may_count_up_to_2_to_the_62_rows() -> None:
    assert FLIGHTS.encode_cells([{"count": MAX_ROWS - 1}, {"count": 1}]).n_rows == MAX_ROWS
    two = FLIGHTS.encode_cells([{"count": MAX_ROWS}])
    with pytest.raises(InvalidBatch):
        Rows.concat([two, FLIGHTS.encode_rows([{}])])


def test_concatenation_keeps_entries_in_order_with_their_counts() -> None:
    plain = FLIGHTS.encode_rows([{"carrier": "AA"}, {"carrier": "UA"}])
    counted = FLIGHTS.encode_cells([{"carrier": "7", "count": 5}])
    assert Rows.concat([plain, plain]).counts is None
    both = Rows.concat([plain, counted])
    assert list(both.codes[0]) == [0, 1, 3]
    assert list(both.entry_counts) == [1, 1, 5]
    assert both.n_rows == 7


def test_the_sum_of_counts_is_exact_where_int64_would_wrap() -> None:
    counts = np.array([2**62, 2**62, 2**62 - 1, 3], dtype=np.int64)
    assert exact_sum(counts) == 3 * 2**62 + 2


def test_the_repr_of_rows_shows_how_many_and_nothing_else() -> None:
    rows = FLIGHTS.encode_cells([{"carrier": "AA", "count": 41}, {"carrier": "UA", "count": 1}])
    assert repr(rows) == "Rows(n_rows=42)"


@pytest.mark.parametrize("edge", [1.7e308, -1.7e308])
def test_an_edge_with_no_number_beyond_it_is_refused(edge: float) -> None:
    with pytest.raises(InvalidDefinition, match="beyond 1e\\+300"):
        Number("x", (edge,))


LONG_VALUES = [
    "x" * (MAX_SCALAR + 1),
    "9" * 5000,
    ["x" * MAX_SCALAR],
    {"a": list(range(2000))},
    "\\" * 3_000_000,
]


@pytest.mark.parametrize("value", LONG_VALUES, ids=["text", "digits", "list", "object", "3 MB"])
@pytest.mark.parametrize("name", ["carrier", "delay", "cancelled", "day"])
def test_a_value_whose_length_would_show_in_time_is_refused_in_the_same_words(
    value: object, name: str
) -> None:
    universe = Universe(
        (
            Category("carrier", ("AA",)),
            Number("delay", (0,)),
            Boolean("cancelled"),
            Date("day", "day", "2026-01-01", epoch="ms"),
        )
    )
    row = {"carrier": "AA", "delay": 1, "cancelled": True, "day": "2026-01-01", name: value}
    said = set()
    for encode in (
        lambda: universe.encode_rows([row]),
        lambda: universe.encode_columns({n: [v] for n, v in row.items()}),
        lambda: universe.encode_cells([row | {"count": 0}]),
        lambda: universe.encode_columns(
            {n: Repeated([v], np.zeros(1, dtype=np.int64)) for n, v in row.items()}
        ),
    ):
        with pytest.raises(InvalidBatch) as refused:
            encode()
        said.add(str(refused.value))
    assert said == {
        "value: a value is longer than 4,096 characters; cut it; no declared value is longer than 256"
    }


def test_a_value_of_the_largest_length_counts_as_any_other() -> None:
    universe = Universe((Category("carrier", ("AA",)), Number("delay", (0,), missing=True)))
    rows = universe.encode_rows([{"carrier": "x" * MAX_SCALAR, "delay": "1" * MAX_SCALAR}])
    assert [code.tolist() for code in rows.codes] == [[1], [1]]
