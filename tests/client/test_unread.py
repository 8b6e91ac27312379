"""What a sender is told of values that the worker cannot read."""

from __future__ import annotations

import json
import math
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.rows.unread_values import Sent, Unread, unread_values
from stream_dp.core.rows.attributes import Category
from stream_dp.messages import Definition
from stream_dp.profiles.builder import universe_of
from tests.pipeline.world import definition

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "7", "1.5", "true", "inf", "1e3"]},
    {"name": "age", "type": "number", "edges": [18, 65]},
    {"name": "smoker", "type": "boolean"},
    {"name": "month", "type": "date", "by": "month", "from": "2026-01-01"},
    {"name": "week", "type": "date", "by": "week", "from": "2026-01-05", "until": "2026-03-02"},
    {"name": "hour", "type": "date", "by": "hour_of_day", "epoch": "s", "timezone": "Asia/Tokyo"},
    {"name": "weekday", "type": "date", "by": "weekday", "epoch": "ms"},
]
DEFINITION = Definition.read(
    definition("people", attributes=[{**each, "missing": True} for each in ATTRIBUTES])
)
NAMES = tuple(each["name"] for each in ATTRIBUTES)


def told(**form: Any) -> dict[str, tuple[int, int]]:
    return {each.attribute: (each.rows, each.values) for each in unread_values(DEFINITION, form)}


def of_each(values: Any) -> dict[str, tuple[int, int]]:
    return told(columns=dict.fromkeys(NAMES, values))


def worker_counts(values: list[Any]) -> dict[str, tuple[int, int]]:
    """The same by the worker's own reading, in a universe where nothing else counts as missing."""
    sent = json.loads(to_json({"column": values}))["column"]
    there = [value for value in sent if value is not None]
    found: dict[str, tuple[int, int]] = {}
    for attribute in universe_of(DEFINITION).attributes:
        codes = attribute.encode(there)
        strange = codes == attribute.missing_cell
        if isinstance(attribute, Category):
            strange |= codes == attribute.other_cell
        if strange.any():
            found[attribute.name] = int(strange.sum()), len(there)
    return found


def test_values_that_cannot_be_read_are_counted_by_column() -> None:
    columns = {name: [None, "", math.nan] for name in NAMES}
    columns["city"] = ["Bonn", "bonn", None]
    columns["age"] = ["(238.49)", 7, " 1e3 "]
    columns["smoker"] = ["ja", "YES", 1.0]
    columns["month"] = ["2026-03", "14.03.2026", "< 2026-01"]
    found = unread_values(DEFINITION, {"columns": columns})
    assert list(map(str, found))[:4] == [
        "1 of 2 values of city are not listed",
        "1 of 3 values of age are not numbers",
        "1 of 3 values of smoker are neither true nor false",
        "1 of 3 values of month are not dates",
    ]
    cities: list[Any] = ["bonn", "bonn", "bonn", "Bonn", *"abcdef", 7.0, "b"]
    assert unread_values(DEFINITION, {"columns": {**columns, "city": cities}})[0].most == (
        ("bonn", 3), ("b", 2), ("a", 1), ("c", 1), ("d", 1)
    )  # fmt: skip
    assert unread_values(DEFINITION, {"columns": {name: [None] for name in NAMES}}) == ()


def test_the_counts_are_in_no_repr_and_no_message() -> None:
    unread = Unread("age", "number", 1234, 5678, (("forty-two", 1234),))
    sent = Sent(dataset="people", event="batch_accepted", unread=(unread,))
    assert sent.unread == (unread,)
    shown = f"{sent!r} {sent} {unread!r} {sent.model_dump_json()} {sent.model_dump()}"
    assert "1234" not in shown
    assert "5678" not in shown
    assert "forty-two" not in shown


def test_all_forms_of_a_batch_are_counted_alike() -> None:
    ages: list[Any] = [7, "x", None, 9]
    rest = {name: [None] * 4 for name in NAMES[1:]}
    columns: dict[str, Any] = {"city": ["Bonn"] * 4, **rest, "age": ages}
    assert told(columns=columns, rows=None) == {"age": (1, 3)}
    assert told(rows=[{"age": age} for age in ages]) == {"age": (1, 3)}
    assert told(cells=[{"age": age, "count": 10} for age in ages]) == {"age": (10, 30)}
    frame = pd.DataFrame(columns)
    assert told(columns={name: frame[name] for name in NAMES}) == {"age": (1, 3)}
    table = pa.table({**columns, "age": ["7", "x", None, "9"]})
    assert told(arrow=table) == told(arrow=table.to_batches()[0]) == {"age": (1, 3)}


TEXTS = st.one_of(
    st.text(alphabet=string.ascii_letters + string.digits + "+-:., TZ_<>=W", max_size=12),
    st.sampled_from(
        ["TRUE", "f", " yes", "Bonn", "7", "7.0", "1_000", "nan", "inf", "1e400", "\u0663", "1e3"]
    ),
    st.sampled_from(
        ["< 2026-01", ">= 2028-01", "2026-W02", ">= 2026-W10", "Mon", "23", "24", "07"]
    ),
    st.sampled_from(["1773446400", "1e11", "1e20", "-62135596801", "253402300800", "-1e400"]),
)
PARTS = st.tuples(
    st.sampled_from(["0000", "0001", "2026", "9999", "02026", "-2026", "\u0662\u0660\u0662\u0666"]),
    st.sampled_from(["", "-00", "-01", "-02", "-12", "-13", "-2", "/02"]),
    st.sampled_from(["", "-01", "-28", "-29", "-31", "-32", "-1"]),
    st.sampled_from(["", "T00", " 23", "t24", "T7", "T12:00", "T23:59", "T12:60", "T12:00:59"]),
    st.sampled_from(["", ":60", ":59", ".5", ",123456789", ".1234567890", "."]),
    st.sampled_from(["", "Z", "z", "+01", "-0130", "+23:59", "+24", "+01:60", "+1", "-00:00", " "]),
).map("".join)
SCALARS = st.one_of(
    TEXTS,
    PARTS,
    st.booleans(),
    st.integers(-(10**15), 10**15),
    st.floats(),
    st.datetimes(),
    st.dates(),
    st.decimals(allow_nan=False),
    st.none(),
    st.lists(st.integers(), max_size=1),
)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(SCALARS, max_size=8))
def test_a_value_is_read_here_as_the_worker_reads_it(values: list[Any]) -> None:
    assert of_each(values) == worker_counts(values)


def test_numpy_dates_of_any_unit_are_dates() -> None:
    moments = ["2026-03-14T10:00:00.123456789", "NaT", "2026-03-14T10:00:00"]
    column = np.array(moments, "M8[ns]")
    assert of_each(column)["city"] == (2, 2)
    assert "hour" not in of_each(column)
    assert of_each(list(column)) == of_each(column)
    sent = json.loads(to_json({"month": column}))["month"]
    assert sent == ["2026-03-14T10:00:00.123456789", None, "2026-03-14T10:00:00.000000000"]
    assert of_each(np.array(["29000-01-01"], "M8[s]"))["month"] == (1, 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**63 - 1, 0, None], pa.timestamp("us")),
        pa.array([-(2**63), 0, None], pa.timestamp("s", tz="Mars/Olympus")),
        pa.array([2**31 - 1, 0, None], pa.int32()).view(pa.date32()),
        pa.array([2**63 - 1, 0, None], pa.date64()),
    ],
)
def test_times_of_arrow_beyond_the_years_are_counted(column: pa.Array) -> None:
    table = pa.table({**dict.fromkeys(NAMES, pa.nulls(3)), "month": column})
    assert told(arrow=table) == {"month": (1, 2)}


def test_values_that_json_has_not_are_read_as_they_are_sent() -> None:
    for text in ("2026-03-14", "2026-03", "0001-01-01T00:00+01:00", "9999-12-31T23:59:59-00:01"):
        assert of_each([text]) == worker_counts([text]), text
    values = [Decimal(7), date(2026, 3, 14), datetime(2026, 3, 14, tzinfo=UTC), b"Bonn", {1: 2}]
    assert of_each(values) == worker_counts(values)
