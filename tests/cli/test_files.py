from __future__ import annotations

import csv
import gzip
import json
import math
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.cli.files.row_files import Columns, RowFile, rows_a_batch
from stream_dp.cli.files.value_survey import Survey
from stream_dp.cli.use.ingest_command import person_column
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.core.rows.person_slots import canonical
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, Definition
from stream_dp.profiles.builder import build, universe_of

LIMIT = TOPICS["batches"].max_value_bytes


def definition(*attributes: dict[str, Any]) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "people",
            "attributes": list(attributes),
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 20_000},
        }
    )


CITY = {
    "name": "city",
    "type": "category",
    "values": ["Bonn", "Graz", "7", '"q"\n'],
    "missing": True,
}
AGE = {"name": "age", "type": "number", "edges": [-(2**53), 18, 65.5, 2**53], "missing": True}
SMOKER = {"name": "smoker", "type": "boolean", "missing": True}
PEOPLE = definition(CITY, AGE, SMOKER)
ROWS = [["Bonn", "17", "true"], ["", "65.5", ""], ["Oslo", "x", "no"], ["Graz", "", "FALSE"]]
CELLS: Columns = {
    "city": ["Bonn", None, "Oslo", "Graz"],
    "age": ["17", "65.5", "x", None],
    "smoker": ["true", None, "no", "FALSE"],
}


def read(file: Path, batch_rows: int = 100, described: Definition = PEOPLE, **how: Any) -> Columns:
    found: Columns = {attribute.name: [] for attribute in described.attributes}
    source = RowFile(file, described, batch_rows, **how)
    rows = sum(len(columns["city"]) for columns, _ in source.columns())
    for batch in source.batches():
        assert batch.start == len(found["city"])
        for name, column in batch.columns.items():
            found[name] += column
        assert batch.stop == len(found["city"])
    assert len(found["city"]) == rows
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


def test_a_byte_order_mark_blank_lines_and_a_mark_of_the_end_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    text = '\ufeffcity,age,smoker\n\nBonn,17,\n \t \n""\nGraz,,\n   \n\x1a'
    file.write_text(text, encoding="utf-8")
    assert read(file) == {"city": ["Bonn", "Graz"], "age": ["17", None], "smoker": [None, None]}
    file.write_bytes(b"city,age,smoker\r\nBonn,17,\r\nGraz,,\x1a\x1a")
    assert read(file)["smoker"] == [None, None]


def test_an_empty_line_of_a_file_of_one_column_is_a_missing_value(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('city\nBonn\n\n""\n  \nGraz\n\n\x1a')
    assert read(file, described=definition(CITY)) == {
        "city": ["Bonn", None, None, None, "Graz", None]
    }


WIDER = b'city,age,smoker\nBonn,17,no\n61,Graz,18,no\n\nBonn\n"a\nb",1,yes\nBonn,1,500,no\n,,\n'
"""Two rows with four fields, one with one field, and three that are right."""


def test_a_row_of_another_width_is_refused_with_its_line(tmp_path: Path) -> None:
    assert faults(tmp_path / "a.csv", WIDER) == (
        "a.csv line 3: the row that begins there has 4 fields, and the first line names 3; name each column "
        "in the first line and quote values with ',' in them, or pass --skip-bad-rows to leave out such lines"
    )
    names_of_rows = faults(tmp_path / "a.csv", b"city;age;smoker\n1;Bonn;17;no\n", delimiter=";")
    assert names_of_rows.startswith("a.csv line 2: the row that begins there has 4 fields")
    assert "with ';' in them" in names_of_rows
    assert "has 2 fields" in faults(tmp_path / "a.csv", b"city,age,smoker\nBonn,17\n")
    one = faults(tmp_path / "a.csv", b"city\nBonn, Ulm\n", described=definition(CITY))
    assert "has 2 fields, and the first line names 1" in one


def test_rows_of_another_width_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(WIDER)
    source = RowFile(file, PEOPLE, 2, skip_bad_rows=True)
    for _ in range(2):  # it is read once to look at it, and once more to send it
        batches = list(source.batches())
        assert [city for b in batches for city in b.columns["city"]] == ["Bonn", "a\nb", None]
        assert [(b.start, b.stop) for b in batches] == [(0, 2), (2, 3)]
        assert source.left_out == 3
    lines = tmp_path / "a.ndjson"
    lines.write_text('{"city": "Bonn", "age": 1, "smoker": 0}\n[]\n{"city": \n{}\n')
    source = RowFile(lines, PEOPLE, 2, skip_bad_rows=True)
    (batch,) = source.batches()
    assert (batch.columns["city"], source.left_out) == (["Bonn", None], 2)


def test_a_cell_of_any_length_is_read(tmp_path: Path) -> None:
    file, long = tmp_path / "a.csv", "x" * 200_000
    file.write_text(f'city,age,smoker,note\nBonn,17,no,"{long}"\n{long},18,no,\n')
    assert read(file) == {"city": ["Bonn", ""], "age": ["17", "18"], "smoker": ["no", "no"]}


def test_other_delimiters_encodings_and_compression_are_read(tmp_path: Path) -> None:
    assert read(write_csv(tmp_path / "a.csv", delimiter=";"), delimiter=";") == CELLS
    assert read(write_csv(tmp_path / "a.tsv", delimiter="\t")) == CELLS
    assert read(write_csv(tmp_path / "u.csv", encoding="utf-16"), encoding="utf-16") == CELLS
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes().replace(b"\t", b",")))
    assert read(packed) == CELLS


def test_ndjson_and_parquet_keep_their_types(tmp_path: Path) -> None:
    rows = [
        {"city": "Bonn", "age": 17, "id": 1},
        {"city": 7, "age": 1.5, "smoker": True},
        {"city": [1], "age": "9", "smoker": {"a": 1}},
        {},
    ]
    cells: Columns = {
        "city": ["Bonn", 7, None, None],
        "age": [17, 1.5, "9", None],
        "smoker": [None, True, None, None],
    }
    file = tmp_path / "a.ndjson"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read(file) == cells
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert read(packed) == cells
    table = pa.table({"smoker": [True, None], "age": [math.nan, 7.0], "city": ["Bonn", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert found == {"city": ["Bonn", None], "age": [None, 7.0], "smoker": [True, None]}


AT = {"name": "at", "type": "date", "by": "day", "from": "2026-01-01", "missing": True}
_LARGEST, _LEAST = 2**63 - 1, -(2**63)
_IN_9999 = 253_402_300_799
"""The last second of the year 9999 in UTC, which is another year in Tokyo."""


def read_times(tmp_path: Path, column: pa.Array, unit: dict[str, Any] = AT) -> list[Any]:
    """The cells that the worker counts for a column of a Parquet file, by their labels."""
    file, described = tmp_path / "a.parquet", definition(unit)
    pq.write_table(pa.table({"at": column}), file)
    (batch,) = RowFile(file, described, 100).batches()
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
    found = read_times(tmp_path, column)
    assert [cell.split()[0] for cell in found] == cells


def test_nanoseconds_of_parquet_need_no_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    second = 1_773_446_400  # 2026-03-14
    column = pa.array([second * 10**9 + 1, second * 10**9 - 1], pa.timestamp("ns"))
    assert read_times(tmp_path, column) == ["2026-03-14", "2026-03-13"]
    pq.write_table(
        pa.table({"at": column}), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True
    )
    assert len(next(RowFile(tmp_path / "b.parquet", definition(AT), 9).columns())[0]["at"]) == 2


def test_instants_of_the_old_type_of_parquet_keep_their_century(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    far = pa.array([_IN_9999, 0], pa.timestamp("s"))
    pq.write_table(pa.table({"at": far}), file, use_deprecated_int96_timestamps=True)
    ((columns, _),) = RowFile(file, definition(AT), 9).columns()
    assert columns["at"][0].year == 9999


_BITS = {
    8: [2**7 - 1, -(2**7)],
    16: [2**15 - 1, -(2**15)],
    32: [2**31 - 1, -(2**31)],
    64: [_LARGEST, _LEAST],
}
_TIMES = [
    *(
        pa.timestamp(unit, tz)
        for unit in ("s", "ms", "us", "ns")
        for tz in (None, "UTC", "No/Zone")
    ),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
]


def _widest(kind: pa.DataType) -> list[int]:
    """The largest and the least number of a type. Parquet has milliseconds in place of seconds."""
    n = 1000 if kind.bit_width == 64 and getattr(kind, "unit", "") == "s" else 1
    largest, least = _BITS[kind.bit_width]
    return [largest // n, -(-least // n)]


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
    pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None], pa.int8()), pa.array(["Bonn", "2026-03"])
    ),
    pa.DictionaryArray.from_arrays(
        pa.array([0, None], pa.int8()), pa.array([_LARGEST], pa.timestamp("us"))
    ),
    pa.array([[_LARGEST], None], pa.list_(pa.timestamp("us"))),
    pa.array([{"a": _LARGEST}, None], pa.struct({"a": pa.timestamp("us")})),
    pa.array([[("a", _LEAST)], None], pa.map_(pa.string(), pa.timestamp("us"))),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\xff" * 16, None], pa.binary(16))),
]


@pytest.mark.parametrize("column", _NASTY, ids=lambda column: str(column.type))
@pytest.mark.parametrize("declared", [AT, CITY, AGE, SMOKER], ids=lambda each: each["type"])
def test_no_value_of_parquet_decides_whether_a_file_is_read(
    tmp_path: Path, column: pa.Array, declared: dict[str, Any]
) -> None:
    file = tmp_path / "a.parquet"
    try:
        pq.write_table(pa.table({"at": column}), file)
    except pa.ArrowException as error:
        pytest.skip(f"Parquet cannot hold it: {error}")
    source = RowFile(file, definition({**declared, "name": "at"}), 100)
    survey = Survey(universe_of(definition({**declared, "name": "at"})))
    for columns, _ in source.columns():
        survey.take(columns, source.values(columns))
    (batch,) = source.batches()
    assert len(batch.columns["at"]) == survey.rows == len(column)
    assert len(json.loads(to_json(batch.columns))["at"]) == len(column)
    assert survey.readings["at"].empty == column.null_count + str(column).count("nan")


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"city": ["Bonn"] * 99, "age": [*range(99)], "smoker": [True] * 99})
    pq.write_table(table, file, compression="zstd", use_dictionary=False)
    whole = bytearray(file.read_bytes())
    for at in range(4, len(whole) // 3):
        whole[at] ^= 0x55
    assert "it is not a Parquet file" in faults(file, bytes(whole))


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_several_attributes_may_read_one_column_of_another_name(tmp_path: Path, kind: str) -> None:
    month = {"name": "month", "type": "date", "by": "month", "from": "2026-01-01"}
    described = definition(month, {"name": "hour", "type": "date", "by": "hour_of_day"}, CITY)
    file, times = tmp_path / f"a.{kind}", ["2026-03-14T10:00:00", "2026-04-01T00:30:00"]
    if kind == "csv":
        file.write_text("at,city\n" + "".join(f"{time},Bonn\n" for time in times))
    elif kind == "ndjson":
        rows = ({"at": time, "city": "Bonn"} for time in times)
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        moments = [datetime.fromisoformat(time) for time in times]
        pq.write_table(pa.table({"at": moments, "city": ["Bonn"] * 2}), file)
    source = RowFile(file, described, 10, renamed={"month": "at", "hour": "at"})
    (batch,) = source.batches()
    assert batch.columns == {"month": times, "hour": times, "city": ["Bonn"] * 2}
    with pytest.raises(InvalidInput, match="month"):
        list(RowFile(file, described, 10, renamed={"hour": "at"}).columns())
    with pytest.raises(InvalidInput, match="use month, hour, city"):
        RowFile(file, described, 10, renamed={"year": "at"})


def test_reading_goes_on_behind_rows_that_were_counted(tmp_path: Path) -> None:
    source = RowFile(write_csv(tmp_path / "a.csv"), PEOPLE, 2)
    spans = [(batch.start, batch.stop, batch.columns["city"]) for batch in source.batches(skip=1)]
    assert spans == [(1, 2, [None]), (2, 4, ["Oslo", "Graz"])]
    assert list(source.batches(skip=4)) == []


# ---------------------------------------------------------------- files with faults


def faults(file: Path, content: bytes, **how: Any) -> str:
    file.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read(file, **how)
    return str(caught.value)


def test_each_fault_of_a_file_is_named_with_its_line_and_its_fix(tmp_path: Path) -> None:
    a = tmp_path / "a.csv"
    assert faults(a, b"") == "a.csv: it is empty; its first line must name the columns"
    assert faults(a, b"town,age\n") == (
        "a.csv line 1: there is no column city, smoker (found: town, age); rename the columns to the "
        "names in the definition, or pass --column ATTRIBUTE=COLUMN"
    )
    for header in (b"city;age;smoker\n", b'"City";"Age";"Smoker"\n', b"id;smoker\n"):
        assert faults(a, header) == (
            "a.csv line 1: its columns are not separated by ','; pass --delimiter ';'"
        )
    assert "pass --delimiter ','" in faults(a, b"city,age,smoker\n", delimiter=";")
    assert "pass --delimiter '\\t'" in faults(a, b"city\tage\tsmoker\n")
    assert "(found: City, age, SMOKER); rename City to city, SMOKER to smoker" in faults(
        a, b"City,age,SMOKER\n"
    )
    assert "column city appears twice" in faults(a, b"city,age,smoker,city\n")
    assert faults(a, "city,age,smoker\nBonn,1,\nKöln,1,\n".encode("latin-1")) == (
        "a.csv line 3: it is not UTF-8; pass --encoding with the right one, often latin-1 or cp1252"
    )
    assert faults(a, "city,age,smoker\n".encode("utf-16")) == (
        "a.csv line 1: it is not UTF-8; pass --encoding utf-16"
    )
    assert "a.csv line 2: it is not valid CSV" in faults(a, b'city,age,smoker\n"Bonn,1,\n')
    assert "a.csv line 3: it is not valid CSV" in faults(
        a, b'city,age,smoker\n,,\n"' + b"x\n" * 70_000
    )
    for blank in (b"\n", b"  \t\r\n", b"\n\n"):
        assert faults(a, blank + b"city,age,smoker\n") == (
            "a.csv line 1: it is blank; delete the blank lines before the one that names the columns"
        )
    for line in (b"sep=;\r\n", b'"sep=;"\n', b"SEP=;\n"):
        assert faults(a, line + b"city;age;smoker\n") == (
            "a.csv line 1: it tells Excel the separator, and does not name the columns; delete this line and "
            "pass --delimiter ';'"
        )
    for wide in ("utf-16-le", "utf-16-be"):
        for names in ("city,age,smoker\n", "Größe,city,age,smoker\n"):
            assert faults(a, names.encode(wide)) == (
                f"a.csv line 1: it is not UTF-8; pass --encoding {wide}"
            )
    assert "a.csv line 3: it is not valid CSV" in faults(
        a, b'city,age,smoker\n,,\n"Bonn,1,\nGraz,2,\n'
    )
    b = tmp_path / "b.ndjson"
    assert faults(b, b'{"city": "Bonn", "age": 1, "smoker": 0}\n{"city": \n') == (
        "b.ndjson line 2: it is not a JSON object; "
        'write one JSON object a line, such as {"city": "...", "age": "..."}, '
        "or pass --skip-bad-rows to leave out such lines"
    )
    assert "b.ndjson line 1: it is not a JSON object" in faults(b, b"[" * 100_000)
    assert "no row has the key city" in faults(b, b'{"town": "Bonn", "age": 1, "smoker": 0}\n')
    broken = faults(tmp_path / "c.csv.gz", b"no zip")
    assert "c.csv.gz: it cannot be read; check that it is complete" in broken
    whole = gzip.compress(b"city,age,smoker\n" + bytes(range(32, 126)) * 100)
    assert "c.csv.gz: it cannot be read" in faults(tmp_path / "c.csv.gz", whole[:-20])
    assert "it is not a Parquet file" in faults(tmp_path / "d.parquet", b"PAR")
    assert "the ending of its name is not a known format" in faults(tmp_path / "e.xlsx", b"PK")
    assert "the ending of its name is not a known format" in faults(tmp_path / "e", b"PK")


def test_the_cells_of_a_broken_line_are_not_repeated(tmp_path: Path) -> None:
    assert faults(tmp_path / "a.csv", b"secret,17,true\nBonn,18,false\n") == (
        "a.csv line 1: there is no column city, age, smoker; the first line must name the columns as the "
        "definition does, or as --column says"
    )
    assert "secret" not in faults(tmp_path / "b.ndjson", b'{"city": "secret\n')


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
    columns: Columns = {}
    for attribute in described.attributes:
        longest = wide["values"][0] if attribute.type == "category" else "1" * 24
        columns[attribute.name] = [longest if attribute.type != "boolean" else "FALSE"] * n
    size = len(
        to_json({"version": 1, "dataset": "d" * 63, "batch_id": "b" * 128, "columns": columns})
    )
    assert size <= LIMIT
    assert size > 0.8 * LIMIT


def test_few_columns_leave_the_wish_as_it_is() -> None:
    assert rows_a_batch(PEOPLE, 20_000) == 20_000
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
    st.lists(st.integers(), max_size=2),
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
    source = RowFile(Path("a.csv"), DATED, 10)
    source._reader = lambda: iter([(dict.fromkeys(source.names, values), 0)])
    (batch,) = source.batches()
    sent = json.loads(to_json(batch.columns))
    universe, _ = build(DATED)
    plain = [None if isinstance(value, list) else value for value in values]
    whole = universe.encode_columns(dict.fromkeys(universe.names, plain))
    for name, ours, theirs in zip(
        universe.names, universe.encode_columns(sent).codes, whole.codes, strict=True
    ):
        assert ours.tolist() == theirs.tolist(), name
    size = len(to_json({"columns": batch.columns}))
    assert size <= len(values) * (LIMIT // rows_a_batch(DATED, 10**9)) + 200


# ---------------------------------------------------------------- whose row each is

OF_PERSONS = Definition.read(
    {
        **PEOPLE.model_dump(mode="json", exclude_none=True),
        "privacy": {
            "epsilon": 1.0,
            "delta": 1e-9,
            "unit": {"key": "user_id", "rows_per_phase": 2, "phases": 12},
        },
    }
)
HEADER = b"city,age,smoker,user_id,customer\n"


def read_keys(file: Path, person: str, batch_rows: int = 100) -> list[Any]:
    source = RowFile(file, OF_PERSONS, batch_rows, person=person)
    assert source.names == ("city", "age", "smoker", "user_id")
    assert all(columns.keys() == set(source.names) for columns, _ in source.columns())
    return [key for batch in source.batches() for key in batch.columns["user_id"]]


def test_the_column_of_persons_has_the_name_in_the_definition_or_another(tmp_path: Path) -> None:
    a = tmp_path / "a.csv"
    a.write_bytes(HEADER + b"Bonn,1,no, 17 ,x\nGraz,2,no,,y\nOslo,3,no,%s,z\n" % (b"k" * 100))
    shortened = canonical("k" * 100)
    assert read_keys(a, "user_id", batch_rows=2) == ["17", None, shortened]
    assert read_keys(a, "customer") == ["x", "y", "z"]
    assert read_keys(a, "city") == ["Bonn", "Graz", "Oslo"], "which is an attribute too"
    b = tmp_path / "b.ndjson"
    lines = [{"city": "Bonn", "age": 1, "smoker": 0, "who": key} for key in (17, 17.0, [1], None)]
    b.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_keys(b, "who") == ["17", "17", None, None]
    c = tmp_path / "c.parquet"
    columns: dict[str, Any] = {"city": ["Bonn"] * 3, "age": [1] * 3, "smoker": [True] * 3}
    days = [date(2026, 1, 2), None, date(2026, 1, 3)]
    pq.write_table(pa.table({**columns, "user_id": [17.0, None, 3.5], "day": days}), c)
    assert read_keys(c, "user_id") == ["17", None, "3.5"]
    assert read_keys(c, "day") == ["2026-01-02", None, "2026-01-03"]


def test_a_file_without_the_column_of_persons_says_how_to_name_another(tmp_path: Path) -> None:
    def fault(name: str, content: bytes, person: str = "user_id") -> str:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput) as caught:
            read_keys(tmp_path / name, person)
        return str(caught.value)

    fix = "pass --person with the column that says whose row it is"
    found = "there is no column user_id (found: city, age, smoker, customer)"
    without = HEADER.replace(b"user_id,", b"")
    assert fault("a.csv", without) == f"a.csv line 1: {found}; {fix}"
    assert fault("a.csv", without, "nobody").endswith(f"customer); {fix}")
    line = b'{"city": "Bonn", "age": 1, "smoker": 0}\n'
    assert fault("b.ndjson", line) == (
        f"b.ndjson: no row has the key user_id (found: age, city, smoker); {fix}"
    )
    assert "appears twice" in fault("c.csv", HEADER.replace(b"customer", b"user_id"))
    assert "rename the columns" in fault(
        "d.csv", HEADER.replace(b"city,", b"").replace(b"user", b"x")
    )


@pytest.mark.parametrize("key", ["\x01" * 64, '"' * 64, "k" * 10_000, "\u20ac" * 21])
def test_a_batch_fits_into_a_record_whatever_keys_it_has(tmp_path: Path, key: str) -> None:
    n = rows_a_batch(OF_PERSONS, 200_000)
    assert 5_000 < n < rows_a_batch(PEOPLE, 200_000)
    columns: dict[str, Any] = {"city": ['"q"\n'] * n, "age": [None] * n, "smoker": [None] * n}
    pq.write_table(pa.table({**columns, "user_id": [key] * n}), tmp_path / "a.parquet")
    (batch,) = RowFile(tmp_path / "a.parquet", OF_PERSONS, n, person="user_id").batches()
    assert len(to_json({"columns": batch.columns})) < LIMIT - 10_000


def test_the_option_person_is_for_data_sets_that_protect_persons() -> None:
    assert person_column(OF_PERSONS, None) == "user_id"
    assert person_column(OF_PERSONS, "customer") == "customer"
    assert person_column(PEOPLE, None) is None
    with pytest.raises(InvalidInput) as caught:
        person_column(PEOPLE, "customer")
    assert str(caught.value) == "--person: this data set protects rows; leave it out"
