"""No value of a row decides whether its batch is accepted, in any format."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.attributes import Boolean, Category, Date, Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.intake import arrow
from stream_dp.pipeline.intake.decoder import ARROW, Ingest, decode, partition_of
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.rows.waiting.waiting_rows import rows_of

UNIVERSE = Universe(
    (
        Category("word", ("AA", "1", "true"), missing=True),
        Number("number", (0, 10), missing=True),
        Number("kept", (0, 10), missing=True, measure=Measure(0.01, -5.0, 60.0)),
        Boolean("truth"),
        Date("day", "day", "2026-01-01", "2026-03-01", missing=True),
        Date("hour", "hour_of_day", epoch="ms"),
    )
)
NAMES = (*UNIVERSE.names, "whose")
N_ROWS = 8


def outcome(value: bytes, **headers: bytes) -> str:
    """What becomes of a record: the number of its rows, or the words in which it is refused."""
    found = {"batch_id": b"b", **headers} if headers else {}
    record = Record("batches", "in.batches", partition_of(b"d", 1), 0, b"d", value, found)
    try:
        request = decode(record, 1)
        assert isinstance(request, Ingest)
        persons = Persons("whose", bytes(32), "b") if request.batch.cells is None else None
        return f"{rows_of(request.batch, UNIVERSE, persons, ()).n_rows} rows"
    except InvalidInput as error:
        return str(error)


# ---------------------------------------------------------------- JSON

NASTY = [
    *(b"null", b"true", b"-0", b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e999", b"1e-400"),
    *(b"9" * 4_000, b"9" * 5_000, b"-" + b"9" * 5_000, b"[]", b"{}", b"[[[1]]]", b'{"a":{"b":[1]}}'),
    *(b'{"a":1,"a":2}', b'[{"a":1,"a":2}]', b'{"a":{"b":NaN,"b":1e400}}', b'{"word":1,"word":1}'),
    *(b'""', b'"\xff\xfe"', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\u0000"', b'"\x00\x01\n"'),
    *(b'"Infinity"', b'"a:b"', b'"\\u003a"', b'"2026-02-30"', b'"0001-01-01T00:00+23:59"'),
    *(b"-62135596800001", b"253402300800000", b'"9999-12-31T23:59-23:59"', b'"' + b"\xff" * 4_096 + b'"'),
]  # fmt: skip
FORMS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "rows": lambda name, value: (
        b'"rows":[' + b'{"word":"AA"},' * (N_ROWS - 1) + b'{"%s":%s}]' % (name, value)
    ),
    "columns": lambda name, value: (
        b'"columns":{%s}'
        % b",".join(
            b'"%s":[%s%s]' % (each.encode(), b"1," * (N_ROWS - 1), value if each.encode() == name else b"1")
            for each in NAMES
        )
    ),
    "cells": lambda name, value: (
        b'"cells":[{"count":%d},{"%s":%s,"count":1}]' % (N_ROWS - 1, name, value)
    ),
}  # fmt: skip


PLACES = [(form, name) for form in FORMS for name in NAMES if (form, name) != ("cells", "whose")]


@pytest.mark.parametrize(("form", "name"), PLACES)
def test_no_value_in_json_decides(form: str, name: str) -> None:
    head = b'{"version":1,"dataset":"d","batch_id":"b",'
    for value in NASTY:
        found = outcome(head + FORMS[form](name.encode(), value) + b"}")
        assert found == f"{N_ROWS} rows", value[:60]


@pytest.mark.parametrize(
    "value",
    [
        b'"rows":[{"word":1,"word":2}]',
        b'"cells":[{"count":1,"word":2,"word":2}]',
        b'"columns":{"word":[1],"word":[{"a":1,"a":2}]}',
        b'"rows":[],"rows":[]',
    ],
)
def test_a_name_that_comes_twice_around_the_values_is_refused(value: bytes) -> None:
    said = outcome(b'{"version":1,"dataset":"d","batch_id":"b",' + value + b"}")
    assert said == "value: an object names a key twice; name each key once"


@pytest.mark.parametrize("count", [b"NaN", b"1e400", b"1.0", b"9" * 5_000, b'"1"', b"-1", b"null"])
def test_a_count_that_is_no_whole_number_is_refused_in_the_same_words(count: bytes) -> None:
    said = outcome(b'{"version":1,"dataset":"d","batch_id":"b","cells":[{"count":%s}]}' % count)
    assert said == "cells.count: a count is not a whole number from 0; give every cell one"


# ---------------------------------------------------------------- Arrow

pa = pytest.importorskip("pyarrow")
UNITS = ("s", "ms", "us", "ns")
DECIMALS = [
    *(pa.decimal128(p, s) for p, s in ((1, 0), (5, 2), (38, 38), (38, -70), (3, 76))),
    *(pa.decimal256(p, s) for p, s in ((1, 0), (76, 76), (76, -76))),
    *([pa.decimal32(5, 2), pa.decimal64(12, -3)] if hasattr(pa, "decimal32") else []),
]
FIXED = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), *DECIMALS),
]
DATES = [
    *(pa.date32(), pa.date64(), *(pa.timestamp(unit) for unit in UNITS)),
    *(pa.timestamp(unit, "Asia/Tokyo") for unit in UNITS),
    pa.timestamp("s", "no/such zone"),
]
TEXTS = [pa.string(), pa.large_string()]
INDICES = FIXED[:8]


def fixed(kind: Any, rnd: random.Random) -> Any:
    """Any bytes of the width of a type, and any nulls."""
    width = max(1, kind.bit_width // 8)
    values = b"".join(
        rnd.choice((bytes(width), b"\xff" * width, b"\xff" * (width - 1) + b"\x7f", rnd.randbytes(width)))
        for _ in range(N_ROWS)
    )  # fmt: skip
    known = pa.py_buffer(rnd.randbytes(1)) if rnd.random() < 0.5 else None
    return pa.Array.from_buffers(kind, N_ROWS, [known, pa.py_buffer(values)])


def texts(kind: Any, rnd: random.Random) -> Any:
    """Any bytes as texts."""
    nasty = b"", b"AA", b"\xff", b"\x00", b"\xed\xa0\x80", rnd.randbytes(9)
    some = [rnd.choice(nasty) for _ in range(N_ROWS)]
    wide = pa.int32() if kind == pa.string() else pa.int64()
    ends = pa.array(np.cumsum([0, *map(len, some)]), wide).buffers()[1]
    known = pa.py_buffer(rnd.randbytes(1)) if rnd.random() < 0.5 else None
    return pa.Array.from_buffers(kind, N_ROWS, [known, ends, pa.py_buffer(b"".join(some))])


def stream(name: str, column: Any) -> bytes:
    table = pa.table({**{each: pa.nulls(N_ROWS) for each in NAMES}, name: column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def arrow_outcome(name: str, column: Any) -> str:
    return outcome(stream(name, column), **{"content-type": ARROW.encode()})


def arrays(seed: int) -> list[tuple[str, Any]]:
    """A column of each type that is read, with the attribute that it is for."""
    rnd = random.Random(seed)
    plain = [fixed(kind, rnd) for kind in FIXED] + [texts(kind, rnd) for kind in TEXTS]
    listed = [
        pa.DictionaryArray.from_arrays(fixed(rnd.choice(INDICES), rnd), array, safe=False)
        for array in plain
    ]
    found = [(rnd.choice(NAMES), array) for array in (*plain, *listed, pa.nulls(N_ROWS))]
    return found + [(rnd.choice(("day", "hour")), fixed(kind, rnd)) for kind in DATES]


@pytest.mark.parametrize("seed", range(8))
def test_no_value_in_arrow_decides(seed: int) -> None:
    for name, array in arrays(seed):
        assert arrow_outcome(name, array) == f"{N_ROWS} rows", (name, array.type)


def test_each_type_that_is_read_is_tried() -> None:
    """By its number in Schema.fbs, as in ``arrow._READ``."""
    number = {"null": 1, "int": 2, "uint": 2, "float": 3, "halffloat": 3, "double": 3, "string": 5}
    number |= {"bool": 6, "decimal": 7, "date": 8, "timestamp": 10, "large_string": 20}
    tried = {str(array.type).split("[")[0].split("(")[0] for _, array in arrays(0)}
    words = {word.rstrip("0123456789") or word for word in tried if not word.startswith("dict")}
    assert {number[word] for word in words} == arrow._READ


def test_a_type_is_refused_whatever_its_values_are() -> None:
    """Of such a scale pyarrow writes no value, and a null alone would be read."""
    kind = pa.decimal128(38, 77)
    said = {arrow_outcome("number", pa.nulls(N_ROWS, kind))}
    said |= {arrow_outcome("number", fixed(kind, random.Random(seed))) for seed in range(5)}
    assert len(said) == 1
    assert "decimal of a scale beyond 76" in said.pop()


def test_a_copy_that_compares_values_with_their_type_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As pyarrow's full validation does."""

    def validated(values: Callable[[Any], list[object]]) -> Callable[[Any], list[object]]:
        def read(piece: Any) -> list[object]:
            piece.validate(full=True)
            return values(piece)

        return read

    monkeypatch.setattr(arrow, "_values", validated(arrow._values))
    found = {arrow_outcome(name, array) for name, array in arrays(0)}
    assert len(found) > 1
