"""Arrow records are read as pyarrow reads them, in memory that is a small multiple of their bytes."""

from __future__ import annotations

import decimal
import random
import struct
import tracemalloc
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pytest

from stream_dp.attribute_dates import Zone
from stream_dp.core.rows.attributes import Category, Date, Number
from stream_dp.core.rows.column_values import Repeated
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch, InvalidMessage
from stream_dp.pipeline.intake.arrow import read_columns

pa = pytest.importorskip("pyarrow")

LIMIT = 4 << 20
CANARY = "canary-7f3a"


def stream(*tables: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    chosen = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, tables[0].schema, options=chosen) as writer:
        for table in tables:
            writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def values(column: object) -> list[object]:
    if isinstance(column, Repeated):
        return [column.values[index] for index in column.indices]
    assert isinstance(column, list)
    return column


def refusal(value: bytes) -> str:
    with pytest.raises(InvalidMessage) as error:
        read_columns(value)
    return str(error.value)


def peak(value: bytes) -> int:
    """Most bytes that Python and Arrow hold at one time while ``value`` is read or refused."""
    copied = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        read_columns(value)
    except InvalidMessage:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    grown = int(pa.default_memory_pool().max_memory() - copied)
    return most + grown


# A flatbuffer by hand, in which parts may be shared and lie: a dict is a table of (struct format, number) or
# parts by slot, bytes are a text, a list is a vector of parts, a tuple one of pairs of int64.
Part: TypeAlias = Any


def flatbuffer(root: Part) -> bytes:
    out = bytearray(8)
    places: dict[int, int] = {}
    wanted: list[tuple[int, Any]] = [(0, root)]
    for at, part in wanted:
        if id(part) not in places:
            out += bytes(-len(out) % 8)
            if isinstance(part, dict):
                last = max(part, default=-1) + 1
                slots = [8 + 8 * slot if slot in part else 0 for slot in range(last)]
                table = struct.pack(f"<HH{last}H", 4 + 2 * last, 8 + 8 * last, *slots)
                out += table + bytes(-len(table) % 8)
                places[id(part)] = start = len(out)
                out += struct.pack("<i4x", len(table) + -len(table) % 8) + bytes(8 * last)
                for slot, inner in part.items():
                    if isinstance(inner, tuple) and inner and isinstance(inner[0], str):
                        struct.pack_into(f"<{inner[0]}", out, start + 8 + 8 * slot, inner[1])
                    else:
                        wanted.append((start + 8 + 8 * slot, inner))
            else:
                out += bytes(4)
                places[id(part)] = len(out)
                out += struct.pack("<I", len(part))
                if isinstance(part, bytes):
                    out += part + b"\0"
                elif isinstance(part, tuple):
                    out += b"".join(struct.pack("<qq", *pair) for pair in part)
                else:
                    wanted += [(len(out) + 4 * i, inner) for i, inner in enumerate(part)]
                    out += bytes(4 * len(part))
        struct.pack_into("<I", out, at, places[id(part)] - at)
    return bytes(out + bytes(-len(out) % 8))


def message(kind: int, header: Part, body: bytes = b"", **lies: int) -> bytes:
    metadata = flatbuffer(
        {
            0: ("h", 4),
            1: ("B", kind),
            2: header,
            3: ("q", lies.get("n_bytes", len(body))),
        }
    )
    return struct.pack("<Ii", 0xFFFFFFFF, lies.get("size", len(metadata))) + metadata + body


def column(name: bytes = b"a", kind: int = 5, **more: Any) -> dict[int, Any]:
    return {0: name, 2: ("B", kind), 3: more.get("type", {}), 5: more.get("children", [])} | {
        slot: more[word] for slot, word in ((4, "dictionary"), (6, "metadata")) if word in more
    }


def schema(*columns: Any, metadata: Any = ()) -> bytes:
    return message(1, {1: list(columns), 2: list(metadata)})


def batch(n_rows: int, buffers: Sequence[tuple[int, int]], body: bytes, **lies: Any) -> bytes:
    nodes = lies.pop("nodes", ((n_rows, 0),))
    header = {0: ("q", n_rows), 1: nodes, 2: tuple(buffers)}
    return message(3, header, body, **lies)


TEXTS = struct.pack("<ii", 0, 1) + b"x" + bytes(7)
ONE_TEXT = [(0, 0), (0, 8), (8, 1)]


def test_a_stream_by_hand_is_read() -> None:
    assert read_columns(schema(column()) + batch(1, ONE_TEXT, TEXTS)) == {"a": ["x"]}


TEXT = ["é", None, "", "x", "😀", "y"]
DECIMALS = [decimal.Decimal("1.20"), None, decimal.Decimal(-3), None, None, decimal.Decimal(0)]
COLUMNS = {
    "null": pa.nulls(6),
    "int8": pa.array([1, None, -3, 4, 127, -128], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 0, 1, 2, 3], pa.uint64()),
    "float16": pa.array(np.arange(6, dtype=np.float16)),
    "float64": pa.array([1.5, None, float("inf"), -0.0, 1e300, float("nan")]),
    "bool": pa.array([True, None, False, True, True, None]),
    "string": pa.array(TEXT),
    "large_string": pa.array(TEXT, pa.large_string()),
    "decimal128": pa.array(DECIMALS, pa.decimal128(10, 2)),
    "decimal256": pa.array(DECIMALS, pa.decimal256(50, 2)),
}
INDICES = [0, 1, None, 3, 0, 5]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_values_that_pyarrow_says(name: str) -> None:
    plain = COLUMNS[name]
    coded = [
        pa.DictionaryArray.from_arrays(pa.array(INDICES, kind), plain)
        for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())
    ]
    for chosen in (plain, *coded):
        table = pa.table({"a": chosen})
        for tables in ((table,), (table, table.slice(2, 3)), (table.slice(0, 0),)):
            expected = [value for part in tables for value in part.column(0).to_pylist()]
            assert repr(values(read_columns(stream(*tables))["a"])) == repr(expected)


def test_batches_may_have_dictionaries_of_their_own() -> None:
    parts: list[list[str | None]] = [["a", "b", "a"], ["c", None, "b"], ["c"], [None]]
    tables = [pa.table({"a": pa.array(part, pa.string()).dictionary_encode()}) for part in parts]
    assert values(read_columns(stream(*tables))["a"]) == [v for part in parts for v in part]


def test_a_dictionary_goes_to_the_cells_of_its_values() -> None:
    universe = Universe((Category("c", ("x", "true", "1"), missing=True), Number("n", (1, 2))))
    for listed in (["x", "q", "1"], [True, False], [1, 7], [float("nan"), 1.5]):
        held = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), pa.array(listed))
        table = pa.table({"c": held, "n": held})
        coded = universe.encode_columns(read_columns(stream(table)))
        plain = universe.encode_columns(table.to_pydict())
        for found, expected in zip(coded.codes, plain.codes, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


ARRAYS = {
    "dictionary of dates": pa.array([0], pa.date32()).dictionary_encode(),
    "time": pa.array([0], pa.time64("us")),
    "duration": pa.array([0], pa.duration("s")),
    "binary": pa.array([b"a"]),
    "fixed_size_binary": pa.array([b"a"], pa.binary(1)),
    "large_binary": pa.array([b"a"], pa.large_binary()),
    "binary_view": pa.array([b"a"], pa.binary_view()),
    "string_view": pa.array(["a"], pa.string_view()),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([1], ["a"]),
    "extension": pa.array(["1"], pa.json_()),
    "nested": pa.array([[1]]),
}
NESTED = {
    "struct": pa.array([{CANARY: 1}]),
    "no fields": pa.array([{}], pa.struct([])),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array(["a"])]),
    "list view": pa.array([[1]], pa.list_view(pa.int8())),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1]])),
}


@pytest.mark.parametrize(
    ("array", "name"),
    [*((array, name) for name, array in ARRAYS.items()), *((a, "nested") for a in NESTED.values())],
)
def test_a_type_that_is_not_read_is_named_with_its_place_alone(array: Any, name: str) -> None:
    said = refusal(stream(pa.table({"b": pa.nulls(1), CANARY: array})))
    assert said.startswith(f"value: column 2 has a type that is not read: {name}; ")
    assert CANARY not in said


def test_a_value_that_its_type_does_not_allow_is_read_all_the_same() -> None:
    """A date64 that is not midnight, a decimal with too many digits, and a text that is not UTF-8."""
    late = pa.array([0, 7 * 3_600_000], pa.int64()).view(pa.date64())
    many = pa.array([decimal.Decimal("1.23"), decimal.Decimal("99999.99")], pa.decimal128(38, 2))
    many = pa.Array.from_buffers(pa.decimal128(5, 2), 2, many.buffers())
    said = pa.array([b"AA", b"\xffx"])
    said = pa.Array.from_buffers(pa.string(), 2, said.buffers())
    found = read_columns(stream(pa.table({"day": late, "paid": many, "said": said})))
    (codes,) = Universe((DAYS,)).encode_columns({"day": found["day"]}).codes
    assert [DAYS.labels[code] for code in codes] == ["1970-01-01", "1970-01-01"]
    assert values(found["paid"]) == [decimal.Decimal("1.23"), decimal.Decimal("99999.99")]
    assert values(found["said"]) == ["AA", "\ufffdx"]


DAYS = Date("day", "day", "1969-12-30", "1970-01-04", missing=True)
SECONDS = [-86_401, -1, 0, None, 86_399, 86_400]
CELLS = ["1969-12-30", "1969-12-31", "1970-01-01", "missing", "1970-01-01", "1970-01-02"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_of_any_unit_is_read_to_the_second_below(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    late = [None if s is None else s * per_second + per_second // 2 for s in SECONDS]
    table = pa.table({"day": pa.array(late, pa.timestamp(unit))})
    for parts in ([table], [table.slice(0, 2), table.slice(2)]):
        rows = Universe((DAYS,)).encode_columns(read_columns(stream(*parts)))
        assert [DAYS.labels[code] for code in rows.codes[0]] == CELLS


def test_a_timestamp_with_a_zone_is_an_instant_and_one_without_says_what_clocks_showed() -> None:
    berlin = Date("day", "day", "2026-03-13", "2026-03-17", zone=Zone("Europe/Berlin"))
    late = datetime(2026, 3, 14, 23, 30)  # noqa: DTZ001 - what clocks showed has no zone
    columns = {
        "2026-03-15": pa.array([late], pa.timestamp("us", "America/New_York")),
        "2026-03-14": pa.array([late], pa.timestamp("us")),
    }
    for label, column in columns.items():
        rows = Universe((berlin,)).encode_columns(read_columns(stream(pa.table({"day": column}))))
        assert berlin.labels[rows.codes[0][0]] == label


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_a_column_of_days_says_no_hour(kind: Any) -> None:
    value = stream(pa.table({"day": pa.array([date(1970, 1, 2), None], kind)}))
    hours = Date("day", "hour", "1970-01-01", "1970-01-04", missing=True)
    for attribute, labels in ((DAYS, ["1970-01-02", "missing"]), (hours, ["missing"] * 2)):
        (codes,) = Universe((attribute,)).encode_columns(read_columns(value)).codes
        assert [attribute.labels[code] for code in codes] == labels


def test_a_column_of_dates_is_refused_for_an_attribute_of_another_type() -> None:
    columns = read_columns(stream(pa.table({"c": pa.array([0], pa.date32())})))
    with pytest.raises(
        InvalidBatch, match="a column of dates belongs to an attribute of another type"
    ):
        Universe((Category("c", ("x",)),)).encode_columns(columns)


def test_what_a_dictionary_repeats_takes_no_memory_again() -> None:
    held = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(20_000, np.int8)), pa.array(["x" * 50_000])
    )
    value = stream(pa.table({"a": held}))
    assert len(value) < 80_000
    assert peak(value) < 1_000_000
    assert len(set(map(id, values(read_columns(value)["a"])))) == 1


def test_a_dictionary_that_many_batches_share_is_read_once() -> None:
    held = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["x" * 100_000]))
    found = read_columns(stream(*[pa.table({"a": held})] * 300))["a"]
    assert isinstance(found, Repeated)
    assert (len(found), len(found.values)) == (300, 2)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_body_is_refused_before_it_grows(codec: str) -> None:
    if not pa.Codec.is_available(codec):
        pytest.skip(f"this pyarrow has no {codec}")
    value = stream(pa.table({"a": ["x" * LIMIT]}), compression=codec)
    assert len(value) < LIMIT / 10
    assert peak(value) < LIMIT / 2
    assert "its buffers are compressed" in refusal(value)


def _wide() -> bytes:
    """A million columns that are one, with a name of a million bytes."""
    return schema(*[column(b"x" * 1_000_000)] * 100_000)


def _columns_with_metadata() -> bytes:
    pairs = [{0: b"", 1: b""}] * 100_000
    return schema(*[column(metadata=pairs)] * 64)


def _long_metadata() -> bytes:
    return schema(column(), metadata=[{0: b"k", 1: b"x" * 2_000_000}] * 100_000)


def _deep() -> bytes:
    inner = column()
    for level in range(60):
        inner = column(b"%d" % level, kind=13, children=[inner, inner])
    return schema(inner)


def _deep_extension() -> bytes:
    """Its JSON is read by calls within calls."""
    pairs = [
        {0: b"ARROW:extension:name", 1: b"arrow.opaque"},
        {0: b"ARROW:extension:metadata", 1: b"[" * 3_000_000},
    ]
    return schema(column(metadata=pairs))


def _shared_text() -> bytes:
    """64 columns of one text."""
    body = struct.pack("<ii", 0, 3_000_000) + b"x" * 3_000_000
    buffers = [(0, 0), (0, 8), (8, 3_000_000)] * 64
    columns = [column(b"%d" % i) for i in range(64)]
    return schema(*columns) + batch(1, buffers, body, nodes=((1, 0),) * 64)


def _texts_to_and_fro() -> bytes:
    """Every other text ends before it begins, so that all others are the whole."""
    ends = struct.pack("<10001i", *(2_000_000 * (i % 2) for i in range(10_001)))
    buffers = [(0, 0), (0, len(ends)), (40_008, 2_000_000)]
    return schema(column()) + batch(10_000, buffers, ends + bytes(4) + b"x" * 2_000_000)


def _nulls(n_rows: int) -> bytes:
    return schema(column(kind=1)) + batch(n_rows, [], b"")


def _many_nulls() -> bytes:
    return _nulls(1 << 20) + batch(1 << 20, [], b"") * 9


def _dictionary(n_rows: int, places: bytes, *, delta: int = 0, kind: int = 1) -> bytes:
    encoding = {0: ("q", 0), 1: {0: ("i", 8), 1: ("B", 1)}}
    listed = {0: ("q", n_rows), 1: ((n_rows, 0),), 2: ()}
    buffers = [(0, 0), (0, len(places))]
    return (
        schema(column(kind=kind, dictionary=encoding))
        + message(2, {0: ("q", 0), 1: listed, 2: ("B", delta)})
        + batch(len(places), buffers, places + bytes(-len(places) % 8))
    )


BOMBS = {
    "one column many times": _wide,
    "one pair of texts in many columns": _columns_with_metadata,
    "one pair of long texts many times": _long_metadata,
    "a doubling at each level": _deep,
    "an extension's metadata": _deep_extension,
    "one text in many columns": _shared_text,
    "texts that end before they begin": _texts_to_and_fro,
    "nulls": lambda: _nulls(1 << 60),
    "nulls of many batches": _many_nulls,
    "nulls of a dictionary": lambda: _dictionary(1 << 40, b"\0"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_record_within_the_limit_cannot_stand_for_more_than_it_holds(name: str) -> None:
    value = BOMBS[name]()
    assert len(value) <= LIMIT
    refusal(value)
    assert peak(value) < 3 * LIMIT


def test_an_index_that_a_dictionary_does_not_have_says_a_missing_value() -> None:
    listed = pa.array(["x", "y", "z"])
    for kind in (pa.int8(), pa.uint8(), pa.int64(), pa.uint64()):
        places = np.array([2, 3, 127, 1], kind.to_pandas_dtype())
        places[2] = np.iinfo(places.dtype).max if kind != pa.int8() else -1
        held = pa.DictionaryArray.from_arrays(pa.array(places), listed, safe=False)
        found = read_columns(stream(pa.table({"a": held})))["a"]
        assert values(found) == ["z", None, None, "y"]


def test_a_dictionary_in_pieces_is_refused() -> None:
    assert "a dictionary comes in pieces" in refusal(_dictionary(3, b"\0", delta=1))


LIES = {
    "a body beyond the record": schema(column()) + batch(1, ONE_TEXT, TEXTS, n_bytes=1 << 40),
    "a body of a negative length": schema(column()) + batch(1, ONE_TEXT, TEXTS, n_bytes=-8),
    "metadata beyond the record": schema(column()) + batch(1, ONE_TEXT, TEXTS, size=1 << 30),
    "metadata of a negative length": schema(column()) + batch(1, ONE_TEXT, TEXTS, size=-8),
    "a buffer beyond the body": schema(column()) + batch(1, [(0, 0), (0, 8), (8, 99)], TEXTS),
    "a buffer before the body": schema(column()) + batch(1, [(0, 0), (-8, 8), (8, 1)], TEXTS),
    "a buffer of a negative length": schema(column()) + batch(1, [(0, 0), (0, -8), (8, 1)], TEXTS),
    "a negative number of rows": schema(column()) + batch(-1, ONE_TEXT, TEXTS),
    "more rows than bytes": schema(column()) + batch(1_000, ONE_TEXT, TEXTS),
    "a column longer than its batch": schema(column()) + batch(1, ONE_TEXT, TEXTS, nodes=((9, 0),)),
    "a column that no schema has": schema(column())
    + batch(1, ONE_TEXT * 2, TEXTS, nodes=((1, 0),) * 2),
    "no schema": batch(1, ONE_TEXT, TEXTS),
    "two schemas": schema(column()) * 2,
    "no bytes": b"",
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_in_the_metadata_is_refused(name: str) -> None:
    assert "not an Arrow IPC stream" in refusal(LIES[name])


def test_columns_must_be_told_apart() -> None:
    assert "two columns have one name" in refusal(stream(pa.table([[1], [1]], [CANARY, CANARY])))
    many = pa.table({str(i): [1] for i in range(66)})
    assert "more than 65 columns" in refusal(stream(many))


def test_whatever_was_changed_in_a_record_it_is_read_or_refused() -> None:
    rnd = random.Random(20)
    plain = pa.table(COLUMNS)
    coded = pa.table({"a": COLUMNS["string"].dictionary_encode(), "b": COLUMNS["null"]})
    originals = [
        stream(plain),
        stream(coded, coded.slice(3)),
        stream(coded, use_legacy_format=True),
    ]
    read = 0
    for _ in range(600):
        value = bytearray(rnd.choice(originals))
        for _ in range(rnd.choice((1, 2, 8))):
            at = rnd.randrange(len(value) // 8) * 8
            if rnd.random() < 0.5:
                struct.pack_into("<q", value, at, rnd.choice((0, -1, 1, -8, 2**31, 2**62)))
            else:
                value[at + rnd.randrange(8)] ^= 1 << rnd.randrange(8)
        try:
            read += bool(read_columns(bytes(value)))
        except InvalidMessage:
            continue
    assert 0 < read < 600
