"""Values in messages, against the adapters of psycopg, which know nothing of ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format

from stream_dp.gateway.pg_types import NAMES, OIDS
from stream_dp.gateway.protocol.field_values import Parameter, as_binary, as_text, parameter
from stream_dp.gateway.protocol.sql_fault import SqlFault

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
DATES = st.dates()
TIMES = st.datetimes()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(allow_nan=False, allow_infinity=False),
    "date": DATES.map(str),
    "timestamp": TIMES.map(str),
    "_text": st.lists(TEXTS | st.none()),
    "_int8": st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()),
    "_bool": st.lists(st.booleans() | st.none()),
}
FIELDS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), VALUES[kind])
)
PLAIN = {"date": str, "timestamp": str}


@given(FIELDS, st.sampled_from([Format.TEXT, Format.BINARY]))
def test_psycopg_reads_what_we_write(field: tuple[str, Any], form: Format) -> None:
    kind, value = field
    data = as_binary(value, kind) if form == Format.BINARY else as_text(value, kind)
    found = Transformer().get_loader(OIDS[kind], form).load(data)
    assert PLAIN.get(kind, lambda one: one)(found) == value
    assert type(found) is not bytes


@given(
    st.one_of(TEXTS, st.booleans(), VALUES["int8"], VALUES["float8"], DATES, TIMES)
    | st.decimals(
        allow_nan=False, allow_infinity=False, places=12, min_value=-(10**20), max_value=10**20
    )
    | st.lists(TEXTS, min_size=1)
    | st.lists(VALUES["int4"], min_size=1),
    st.sampled_from([PyFormat.TEXT, PyFormat.BINARY]),
)
def test_we_read_what_psycopg_writes(value: Any, form: PyFormat) -> None:
    dumper = Transformer().get_dumper(value, form)
    data = dumper.dump(value)
    assert data is not None
    kind = NAMES.get(dumper.oid, "_text" if isinstance(value, list) else "text")
    found = parameter(bytes(data), kind, binary=form == PyFormat.BINARY)
    if isinstance(value, Decimal):
        assert Decimal(str(found)) == value
    elif isinstance(value, dt.datetime | dt.date):
        assert str(found) == str(value)
    else:
        assert found == value


@given(st.binary(max_size=60), st.sampled_from(sorted(OIDS)), st.booleans())
def test_any_bytes_are_a_value_or_a_fault(data: bytes, kind: str, binary: bool) -> None:
    with contextlib.suppress(SqlFault):
        found = parameter(data, kind, binary=binary)
        assert not isinstance(found, float) or math.isfinite(found)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1_0", "int4"), ("٣", "numeric"), ("1--", "numeric"), ("0x1", "int8"), ("x", "int4"),
     ("nan", "float8"), ("inf", "numeric"), ("perhaps", "bool"), ("a", "_text"),
     ("{a", "_text"), ("{a,}", "_text"), ('{"a', "_text"), ("{{a}}", "_text"), ("1\0", "text")],
)  # fmt: skip
def test_what_is_no_value_is_refused_without_its_text(text: str, kind: str) -> None:
    with pytest.raises(SqlFault, match=f"^a parameter is not a value of type {kind}$"):
        parameter(text.encode(), kind, binary=False)


@pytest.mark.parametrize(
    ("text", "kind", "read"),
    [
        ("2026-03-01", "date", "2026-03-01"),
        ("2026-03-01 +00", "date", "2026-03-01"),
        ("2026-03-01 10:00:00.5+05:30", "date", "2026-03-01"),
        ("2026-03", "date", "2026-03"),
        ("2026-03-01 +02", "timestamp", "2026-03-01 00:00:00"),
        ("2026-03-01 10:00:00+02", "timestamp", "2026-03-01 10:00:00"),
        ("2026-03-01T10:00:00+02", "timestamptz", "2026-03-01 08:00:00"),
        ('{2026-03-01,"2026-03-02 +00"}', "_date", ["2026-03-01", "2026-03-02"]),
    ],
)
def test_times_are_read_as_drivers_write_them(text: str, kind: str, read: Parameter) -> None:
    assert parameter(text.encode(), kind, binary=False) == read


def test_numbers_are_written_as_postgres_writes_them() -> None:
    assert [as_text(one, "float8") for one in (1.0, -0.5, 1e300, math.inf, math.nan)] == [
        b"1", b"-0.5", b"1e+300", b"Infinity", b"NaN",
    ]  # fmt: skip
    assert [as_text(one, "bool") for one in (True, 1, False, 0)] == [b"t", b"t", b"f", b"f"]
    assert psycopg.adapters.types["int8"].oid == OIDS["int8"]
