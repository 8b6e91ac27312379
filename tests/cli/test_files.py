from __future__ import annotations

import csv
import gzip
import json
import math
import re
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.cli.files.cell_widths import fitted, rows_a_batch
from stream_dp.cli.files.file_columns import Columns
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.files.value_survey import Survey, surveyed
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.core.rows.person_slots import canonical
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, Definition
from stream_dp.profiles.builder import build, universe_of
from tests.pipeline import world

LIMIT = TOPICS["batches"].max_value_bytes


def definition(*attributes: dict[str, Any], **privacy: Any) -> Definition:
    promise = {"epsilon": 1.0, "delta": 1e-9, **privacy}
    return Definition.read(world.definition("people", attributes=[*attributes], privacy=promise))


LISTED = ["Bonn", "Graz", "7", '"q"\n']
CITY = {"name": "city", "type": "category", "values": LISTED, "missing": True}
AGE = {"name": "age", "type": "number", "edges": [-(2**53), 18, 65.5, 2**53], "missing": True}
SMOKER = {"name": "smoker", "type": "boolean", "missing": True}
PEOPLE = definition(CITY, AGE, SMOKER)
ROWS = [["Bonn", "17", "true"], ["", "65.5", ""], ["Oslo", "x", "no"], ["Graz", "", "FALSE"]]
CELLS: Columns = {
    "city": ["Bonn", None, "Oslo", "Graz"],
    "age": ["17", "65.5", "x", None],
    "smoker": ["true", None, "no", "FALSE"],
}
WRITERS: dict[str, Callable[..., None]] = {
    "csv": lambda file, rows: file.write_text(
        "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    ),
    "ndjson": lambda file, rows: file.write_text("\n".join(map(json.dumps, rows))),
    "parquet": lambda file, rows: pq.write_table(pa.Table.from_pylist(rows), file),
}


def source_of(
    file: Path, batch_rows: int = 100, described: Definition = PEOPLE, **how: Any
) -> RowFile:
    return RowFile(file, described, batch_rows, FileReading(**how))


def read(file: Path, *args: Any, **how: Any) -> Columns:
    """The columns that are sent, in batches that follow one another."""
    source, found, rows = source_of(file, *args, **how), dict[str, list[Any]](), 0
    counted = sum(len(columns[source.names[0]]) for columns, _ in source.columns())
    for batch in source.batches():
        assert batch.start == rows
        rows = batch.stop
        for name, column in batch.columns.items():
            found.setdefault(name, []).extend(column)
    assert rows == counted == len(found[source.names[0]])
    return found


def write_csv(file: Path, **how: Any) -> Path:
    with file.open("w", newline="", encoding=how.pop("encoding", "utf-8")) as text:
        writer = csv.writer(text, **how)
        writer.writerow(["id", "smoker", " city", "age"])
        writer.writerows([i, smoker, city, age] for i, (city, age, smoker) in enumerate(ROWS))
    return file


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 100])
def test_a_csv_gives_its_declared_columns_with_empty_cells_missing(
    tmp_path: Path, batch_rows: int
) -> None:
    assert read(write_csv(tmp_path / "a.csv"), batch_rows) == CELLS


def test_other_delimiters_encodings_and_compression_are_read(tmp_path: Path) -> None:
    for mark in ";\t|":
        file = write_csv(tmp_path / "a.csv", delimiter=mark)
        assert read(file) == read(file, delimiter=mark) == CELLS
    assert read(write_csv(tmp_path / "u.csv", encoding="utf-16"), encoding="utf-16") == CELLS
    packed = tmp_path / "a.tsv.gz"
    packed.write_bytes(gzip.compress(write_csv(tmp_path / "a.tsv", delimiter="\t").read_bytes()))
    assert read(packed) == CELLS


@pytest.mark.parametrize(
    ("content", "cities"),
    [
        # A byte order mark, blank lines and a mark of the end are no rows.
        (b'\xef\xbb\xbfcity,age,smoker\n\nBonn,17,\n \t \n""\nGraz,,\n   \n\x1a', ["Bonn", "Graz"]),
        (b"city,age,smoker\r\nBonn,17,\r\nGraz,,\x1a\x1a", ["Bonn", "Graz"]),
        # An empty line of a file of one column is a missing value.
        (b'city\nBonn\n\n""\n  \nGraz\n\n\x1a', ["Bonn", None, None, None, "Graz", None]),
        # A cell may have any length.
        (b'city,age,smoker,note\nBonn,17,no,"%s"\n%s,18,no,\n' % ((b"x" * 200_000,) * 2), ["Bonn", ""]),
    ],
    ids=["mark", "end", "one column", "long"],
)  # fmt: skip
def test_what_is_a_row_of_csv(tmp_path: Path, content: bytes, cities: list[str | None]) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    described = PEOPLE if b"age" in content else definition(CITY)
    assert read(file, described=described)["city"] == cities


WIDER = b'city,age,smoker\nBonn,17,no\n61,Graz,18,no\n\nBonn\n"a\nb",1,yes\nBonn,1,500,no\n,,\n'
"""Two rows with four fields, one with one field, and three that are right."""


def test_rows_of_another_width_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(WIDER)
    source = source_of(file, 2, skip_bad_rows=True)
    for _ in range(2):  # it is read once to look at it, and once more to send it
        batches = list(source.batches())
        assert [city for b in batches for city in b.columns["city"]] == ["Bonn", "a\nb", None]
        assert [(b.start, b.stop) for b in batches] == [(0, 2), (2, 3)]
        assert source.left_out == 3
    lines = tmp_path / "a.ndjson"
    lines.write_text('{"city": "Bonn", "age": 1, "smoker": 0}\n[]\n{"city": \n{}\n')
    source = source_of(lines, 2, skip_bad_rows=True)
    (batch,) = source.batches()
    assert (batch.columns["city"], source.left_out) == (["Bonn", None], 2)


def test_ndjson_and_parquet_keep_their_types(tmp_path: Path) -> None:
    rows = [{"city": "Bonn", "age": 17, "id": 1}, {"city": 7, "age": 1.5, "smoker": True}]
    rows += [{"city": [1], "age": "9", "smoker": {"a": 1}}, {}]
    cities, ages = ["Bonn", 7, None, None], [17, 1.5, "9", None]
    cells = {"city": cities, "age": ages, "smoker": [None, True, None, None]}
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(("\n".join(map(json.dumps, rows)) + "\n\n").encode()))
    assert read(packed) == cells
    table = pa.table({"smoker": [True, None], "age": [math.nan, 7.0], "city": ["Bonn", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert found == {"city": ["Bonn", None], "age": [None, 7.0], "smoker": [True, None]}


# ---------------------------------------------------------------- Parquet

AT = {"name": "at", "type": "date", "by": "day", "from": "2026-01-01", "missing": True}
_LARGEST, _LEAST = 2**63 - 1, -(2**63)
_IN_9999 = 253_402_300_799
"""The last second of the year 9999 in UTC, which is another year in Tokyo."""


def read_times(tmp_path: Path, column: pa.Array) -> list[Any]:
    """The cells that the worker counts for a column of a Parquet file, by their labels."""
    file, described = tmp_path / "a.parquet", definition(AT)
    pq.write_table(pa.table({"at": column}), file)
    (batch,) = source_of(file, described=described).batches()
    universe, _ = build(described)
    (codes,) = universe.encode_columns(json.loads(to_json(batch.columns))).codes
    return [universe.attributes[0].labels[code] for code in codes]


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        # "infinity" and "-infinity" of PostgreSQL
        (pa.array([_LARGEST, _LEAST, None, 0], pa.timestamp("us")), ["missing"] * 3 + ["<"]),
        (pa.array([_LARGEST, _LEAST + 1], pa.timestamp("ns")), [">=", "<"]),
        (pa.array([_IN_9999, _IN_9999 + 1], pa.timestamp("s", tz="Asia/Tokyo")), [">=", "missing"]),
        (pa.array([-62_135_596_800_000], pa.timestamp("ms", tz="America/New_York")), ["<"]),
        (pa.array([0, _LARGEST], pa.timestamp("us", tz="Mars/Olympus")), ["<", "missing"]),
        (pa.array([9_872_000, -(2**31), 0], pa.int32()).view(pa.date32()), ["missing"] * 2 + ["<"]),
        (pa.array([_LARGEST, 0], pa.date64()), ["missing", "<"]),
    ],
    ids=str,
)
def test_times_of_parquet_beyond_those_of_python_are_end_cells_or_missing(
    tmp_path: Path, column: pa.Array, cells: list[str]
) -> None:
    assert [cell.split()[0] for cell in read_times(tmp_path, column)] == cells


def test_nanoseconds_need_no_pandas_and_instants_of_the_old_type_keep_their_century(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    second = 1_773_446_400  # 2026-03-14
    column = pa.array([second * 10**9 + 1, second * 10**9 - 1], pa.timestamp("ns"))
    assert read_times(tmp_path, column) == ["2026-03-14", "2026-03-13"]
    file, far = tmp_path / "b.parquet", pa.array([_IN_9999, 0], pa.timestamp("s"))
    pq.write_table(pa.table({"at": far}), file, use_deprecated_int96_timestamps=True)
    ((columns, _),) = source_of(file, described=definition(AT)).columns()
    assert [time.year for time in columns["at"]] == [9999, 1970]


_BITS = {bits: [2 ** (bits - 1) - 1, -(2 ** (bits - 1))] for bits in (8, 16, 32, 64)}
_TIMES = [
    *(pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC", "No/Zone")),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
]  # fmt: skip


def _widest(kind: pa.DataType) -> list[int]:
    """The largest and the least number of a type. Parquet has milliseconds in place of seconds."""
    n = 1000 if kind.bit_width == 64 and getattr(kind, "unit", "") == "s" else 1
    largest, least = _BITS[kind.bit_width]
    return [largest // n, -(-least // n)]


def _dictionary(indices: list[int | None], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)


_NASTY = [
    *(pa.array([*_widest(kind), 0, None], f"int{kind.bit_width}").view(kind) for kind in _TIMES),
    *(pa.array([*_BITS[bits], None], f"int{bits}") for bits in _BITS),
    pa.array([2**64 - 1, None], pa.uint64()),
    pa.array([math.nan, math.inf, None], pa.float64()),
    pa.array([math.nan, -math.inf, None], pa.float16()),
    pa.array([Decimal("9" * 38), None], pa.decimal128(38, 0)),
    pa.array([Decimal("9" * 76), None], pa.decimal256(76, 0)),
    pa.array([b"\xff\xfe", b"Bonn", None], pa.binary()).view(pa.string()),
    pa.array([b"\xff\xfe", None], pa.large_binary()).view(pa.large_string()),
    pa.array([b"\xff\xfe", None], pa.binary()),
    pa.array([b"\xff" * 2, None], pa.binary(2)),
    pa.array([True, None], pa.bool_()),
    pa.nulls(2),
    _dictionary([1, 0, None], pa.array(["Bonn", "2026-03"])),
    _dictionary([0, None], pa.array([_LARGEST], pa.timestamp("us"))),
    pa.array([[_LARGEST], None], pa.list_(pa.timestamp("us"))),
    pa.array([{"a": _LARGEST}, None], pa.struct({"a": pa.timestamp("us")})),
    pa.array([[("a", _LEAST)], None], pa.map_(pa.string(), pa.timestamp("us"))),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\xff" * 16, None], pa.binary(16))),
]


@pytest.mark.parametrize("column", _NASTY, ids=lambda column: str(column.type))
def test_no_value_of_parquet_decides_whether_a_file_is_read(
    tmp_path: Path, column: pa.Array
) -> None:
    file = tmp_path / "a.parquet"
    try:
        pq.write_table(pa.table({"at": column}), file)
    except pa.ArrowException as error:
        pytest.skip(f"Parquet cannot hold it: {error}")
    for declared in (AT, CITY, AGE, SMOKER):
        described = definition({**declared, "name": "at"})
        source, survey = source_of(file, described=described), Survey(universe_of(described))
        for columns, _ in source.columns():
            survey.take(columns, source.values(columns))
        (batch,) = source.batches()
        assert len(batch.columns["at"]) == survey.rows == len(column)
        assert len(json.loads(to_json(batch.columns))["at"]) == len(column)
        assert survey.readings["at"].empty == column.null_count + str(column).count("nan")


@pytest.mark.parametrize("kind", WRITERS)
def test_several_attributes_may_read_one_column_of_another_name(tmp_path: Path, kind: str) -> None:
    month = {"name": "month", "type": "date", "by": "month", "from": "2026-01-01"}
    described = definition(month, {"name": "hour", "type": "date", "by": "hour_of_day"}, CITY)
    file, times = tmp_path / f"a.{kind}", ["2026-03-14T10:00:00", "2026-04-01T00:30:00"]
    moments = map(datetime.fromisoformat, times) if kind == "parquet" else times
    WRITERS[kind](file, [{"at": time, "city": "Bonn"} for time in moments])
    source = source_of(file, described=described, column={"month": "at", "hour": "at"})
    (batch,) = source.batches()
    assert batch.columns == {"month": times, "hour": times, "city": ["Bonn"] * 2}
    with pytest.raises(InvalidInput, match="month"):
        list(source_of(file, described=described, column={"hour": "at"}).columns())
    with pytest.raises(InvalidInput, match="use month, hour, city"):
        source_of(file, described=described, column={"year": "at"})


def test_reading_goes_on_behind_rows_that_were_counted(tmp_path: Path) -> None:
    source = source_of(write_csv(tmp_path / "a.csv"), 2)
    spans = [(batch.start, batch.stop, batch.columns["city"]) for batch in source.batches(skip=1)]
    assert spans == [(1, 2, [None]), (2, 4, ["Oslo", "Graz"])]
    assert list(source.batches(skip=4)) == []


# ---------------------------------------------------------------- files with faults

HEAD = b"city,age,smoker\n"
ENCODED = "pass --encoding"
DAMAGED = bytearray(b"PAR1" + bytes(range(256)) * 4 + b"PAR1")
PACKED = gzip.compress(HEAD + bytes(range(32, 126)) * 100)
FAULTS: list[tuple[str, bytes, str]] = [
    ("a.csv", b"", "a.csv: it is empty; its first line must name the columns"),
    *(
        ("a.csv", blank + HEAD, "a.csv: it begins with a blank line; its first line must name")
        for blank in (b"\n", b"  \t\r\n", b"\n\n")
    ),
    ("a.csv", b"town,age\n", (
        "a.csv line 1: there is no column city, smoker (found: town, age); rename the columns to the names "
        "in the definition, or pass --column ATTRIBUTE=COLUMN")),
    ("a.csv", b"city;age\n", "there is no column smoker (found: city, age)"),
    ("a.csv", b"City,age,SMOKER\n", "(found: City, age, SMOKER); rename City to city, SMOKER to smoker"),
    ("a.csv", b"city,age,smoker,city\n", "column city appears twice"),
    *(
        ("a.csv", line + b"city;age;smoker\n",
         "a.csv line 1: it tells Excel the separator, and does not name the columns; delete this line")
        for line in (b"sep=;\r\n", b'"sep=;"\n', b"SEP=;\n")
    ),
    ("a.csv", HEAD + "Bonn,1,\nKöln,1,\n".encode("latin-1"), (
        "a.csv line 3: it is not UTF-8; pass --encoding with the right one, often latin-1 or cp1252")),
    ("a.csv", "city,age,smoker\n".encode("utf-16"), f"a.csv line 1: it is not UTF-8; {ENCODED} utf-16"),
    *(
        ("a.csv", names.encode(wide), f"a.csv line 1: it is not UTF-8; {ENCODED} {wide}")
        for wide in ("utf-16-le", "utf-16-be") for names in ("city,age,smoker\n", "Größe,city,age\n")
    ),
    ("a.csv", HEAD + b'"Bonn,1,\n', "a.csv line 2: it is not valid CSV"),
    ("a.csv", HEAD + b',,\n"' + b"x\n" * 70_000, "a.csv line 3: it is not valid CSV"),
    ("a.csv", WIDER, (
        "a.csv line 3: the row that begins there has 4 fields, and the first line names 3; name each column "
        "in the first line and quote values with ',' in them, or pass --skip-bad-rows to leave out such lines"
    )),
    ("a.csv", b"city;age;smoker\n1;Bonn;17;no\n", "quote values with ';' in them"),
    ("a.csv", HEAD + b"Bonn,17\n", "has 2 fields"),
    ("b.ndjson", b'{"city": "Bonn", "age": 1, "smoker": 0}\n{"city": \n', (
        'b.ndjson line 2: it is not a JSON object; write one JSON object a line, such as {"city": "...", '
        '"age": "..."}, or pass --skip-bad-rows to leave out such lines')),
    ("b.ndjson", b"[" * 100_000, "b.ndjson line 1: it is not a JSON object"),
    ("b.ndjson", b'{"town": "Bonn", "age": 1, "smoker": 0}\n', "no row has the key city"),
    ("c.csv.gz", b"no zip", "c.csv.gz: it cannot be read; check that it is complete"),
    ("c.csv.gz", PACKED[:-20], "c.csv.gz: it cannot be read"),
    ("d.parquet", b"PAR", "it is not a Parquet file"),
    ("d.parquet", bytes(DAMAGED), "it is not a Parquet file"),
    ("e.xlsx", b"PK", "the ending of its name is not a known format"),
    ("e", b"PK", "the ending of its name is not a known format"),
    # No name is known, so it may be a row.
    ("a.csv", b"secret,17,true\nBonn,18,false\n", (
        "a.csv line 1: there is no column city, age, smoker; the first line must name the columns as the "
        "definition does, or as --column says")),
    ("b.ndjson", b'{"city": "secret\n', "it is not a JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), FAULTS)
def test_each_fault_of_a_file_is_named_with_its_line_and_its_fix(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path / name)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value), "the cells of a broken line are not repeated"


# ---------------------------------------------------------------- sizes from public numbers


def test_a_batch_of_the_widest_cells_fits_into_a_record() -> None:
    wide = {"type": "category", "values": [f"{i:06}\n" + "\u20ac" * 240 for i in range(100)]}
    described = definition(
        *({"name": f"a{i}" + "x" * 50, **wide} for i in range(40)),
        *({**AGE, "name": f"n{i}"} for i in range(12)),
        *({**SMOKER, "name": f"b{i}"} for i in range(12)),
    )
    n = rows_a_batch(described, 200_000)
    assert 100 < n < 1000
    longest = {"category": wide["values"][0], "number": "1" * 24, "boolean": "FALSE"}
    columns = {one.name: [longest[one.type]] * n for one in described.attributes}
    head = {"version": 1, "dataset": "d" * 63, "batch_id": "b" * 128}
    assert 0.8 * LIMIT < len(to_json({**head, "columns": columns})) <= LIMIT
    assert rows_a_batch(PEOPLE, 20_000) == 20_000, "few columns leave the wish as it is"
    assert rows_a_batch(PEOPLE, 200_000) < 200_000


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers().map(lambda n: n * 10**400),
    st.floats(),
    st.text(max_size=60),
    st.sampled_from(
        ['"q"\n', "Bonn", "7", "TRUE", "0" * 300 + "18", "17.9" + "9" * 40, "1" * 4000]
    ),
    st.sampled_from(
        ["2026-03-14T10:00:00.123456789+01:00", " " * 40 + "2026-03-14", "0" * 99 + "1773446400000"]
    ),
    st.decimals(allow_nan=False).map(str),
)
BORN = {"name": "born", "type": "date", "by": "year", "from": "1900-01-01", "until": "2027-01-01"}
SEEN = {"name": "seen", "type": "date", "by": "weekday", "epoch": "ms", "missing": True}
DATED = definition(CITY, AGE, SMOKER, BORN, SEEN)


@settings(max_examples=300, deadline=None)
@given(values=st.lists(SCALARS, min_size=1, max_size=30), only_text=st.booleans())
def test_a_shortened_cell_is_the_same_to_the_worker_and_never_wider(
    values: list[Any], only_text: bool
) -> None:
    if only_text:
        values = [value for value in values if isinstance(value, str)] or ["x"]
    short = {attribute.name: fitted(attribute, values) for attribute in DATED.attributes}
    universe, _ = build(DATED)
    whole = universe.encode_columns(dict.fromkeys(universe.names, values)).codes
    sent = universe.encode_columns(json.loads(to_json(short))).codes
    for name, ours, theirs in zip(universe.names, sent, whole, strict=True):
        assert ours.tolist() == theirs.tolist(), name
    size = len(to_json({"columns": short}))
    assert size <= len(values) * (LIMIT // rows_a_batch(DATED, 10**9)) + 200


# ---------------------------------------------------------------- whose row each is

OF_PERSONS = definition(
    CITY, AGE, SMOKER, unit={"key": "user_id", "rows_per_phase": 2, "phases": 12}
)
HEADER = b"city,age,smoker,user_id,customer\n"


def read_keys(file: Path, person: str | None = None, batch_rows: int = 100) -> list[Any]:
    return read(file, batch_rows, OF_PERSONS, person=person)["user_id"]


def test_the_column_of_persons_has_the_name_in_the_definition_or_another(tmp_path: Path) -> None:
    a = tmp_path / "a.csv"
    a.write_bytes(HEADER + b"Bonn,1,no, 17 ,x\nGraz,2,no,,y\nOslo,3,no,%s,z\n" % (b"k" * 100))
    assert read_keys(a, batch_rows=2) == ["17", None, canonical("k" * 100)]
    assert read_keys(a, "customer") == ["x", "y", "z"]
    assert read_keys(a, "city") == ["Bonn", "Graz", "Oslo"], "which is an attribute too"
    rows: list[dict[str, Any]] = [
        {"city": "Bonn", "age": 1, "smoker": True, "who": key} for key in (17, 17.0, [1], None)
    ]
    WRITERS["ndjson"](tmp_path / "b.ndjson", rows)
    assert read_keys(tmp_path / "b.ndjson", "who") == ["17", "17", None, None]
    days, keys = [date(2026, 1, 2), None, date(2026, 1, 3)], [17.0, None, 3.5]
    rows = [{**rows[0], "user_id": key, "day": day} for key, day in zip(keys, days, strict=True)]
    WRITERS["parquet"](tmp_path / "c.parquet", rows)
    assert read_keys(tmp_path / "c.parquet") == ["17", None, "3.5"]
    assert read_keys(tmp_path / "c.parquet", "day") == ["2026-01-02", None, "2026-01-03"]
    with pytest.raises(InvalidInput, match="--person: this data set protects rows; leave it out"):
        source_of(a, person="customer")


WITHOUT = HEADER.replace(b"user_id,", b"")
PASS = "pass --person with the column that says whose row it is"


@pytest.mark.parametrize(
    ("name", "content", "person", "said"),
    [
        ("a.csv", WITHOUT, None,
         f"a.csv line 1: there is no column user_id (found: city, age, smoker, customer); {PASS}"),
        ("a.csv", WITHOUT, "nobody", f"no column nobody (found: city, age, smoker, customer); {PASS}"),
        ("b.ndjson", b'{"city": "Bonn", "age": 1, "smoker": 0}\n', None,
         f"b.ndjson: no row has the key user_id (found: age, city, smoker); {PASS}"),
        ("d.csv", HEADER[5:].replace(b"user", b"x"), None, "rename the columns"),
    ],
)  # fmt: skip
def test_a_file_without_the_column_of_persons_says_how_to_name_another(
    tmp_path: Path, name: str, content: bytes, person: str | None, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_keys(tmp_path / name, person)


def test_the_keys_of_rows_are_sent_beside_those_of_persons(tmp_path: Path) -> None:
    table = Definition.read(
        {**json.loads(OF_PERSONS.to_bytes()), "erasure": {"within": "24 hours", "row": "visit"}}
    )
    a = tmp_path / "a.csv"
    a.write_bytes(HEADER.replace(b"customer", b"visit") + b"Bonn,1,no,u1, 7 \nGraz,2,no,u2,\n")
    assert read(a, 100, table)["visit"] == ["7", None]
    assert read(a, 100, table, column={"visit": "age"})["visit"] == ["1", "2"]
    with pytest.raises(InvalidInput, match="no such attribute; use city, age, smoker, user_id, vi"):
        source_of(a, described=table, column={"vist": "visit"})
    assert rows_a_batch(table, 10**9) < rows_a_batch(OF_PERSONS, 10**9)


def test_how_many_rows_a_person_has_is_in_no_file(tmp_path: Path) -> None:
    visits = {"name": "visits", "type": "number", "edges": [2], "fold": "count"}
    unit = {"key": "user_id", "rows_per_phase": 1, "phases": 12}
    table, a = definition(visits, SMOKER, unit=unit), tmp_path / "a.csv"
    a.write_bytes(b"smoker,user_id,visits\nno,u1,7\nno,u1,x\n")
    assert read(a, 100, table) == {"smoker": ["no", "no"], "user_id": ["u1", "u1"]}
    survey = surveyed(source_of(a, described=table), universe_of(table))
    assert (survey.rows, [*survey.readings], survey.complaints()) == (2, ["smoker"], [])
    alone = definition(visits, unit=unit)
    assert read(a, 100, alone) == {"user_id": ["u1", "u1"]}
    assert surveyed(source_of(a, described=alone), universe_of(alone)).rows == 2


@pytest.mark.parametrize("key", ["\x01" * 64, '"' * 64, "k" * 10_000, "\u20ac" * 21])
def test_a_batch_fits_into_a_record_whatever_keys_it_has(tmp_path: Path, key: str) -> None:
    n = rows_a_batch(OF_PERSONS, 200_000)
    assert 5_000 < n < rows_a_batch(PEOPLE, 200_000)
    columns: dict[str, Any] = {"city": ['"q"\n'] * n, "age": [None] * n, "smoker": [None] * n}
    pq.write_table(pa.table({**columns, "user_id": [key] * n}), tmp_path / "a.parquet")
    (batch,) = source_of(tmp_path / "a.parquet", n, OF_PERSONS).batches()
    assert len(to_json({"columns": batch.columns})) < LIMIT - 10_000
