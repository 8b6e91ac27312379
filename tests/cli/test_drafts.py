"""Drafts of definitions: from rows that are public, and from what their owner says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dp.cli.draft.column_drafts import drafted
from stream_dp.cli.draft.phase_drafts import drafted_phase
from stream_dp.cli.draft.round_numbers import edges_of, measure_of
from stream_dp.cli.draft.sample_columns import ColumnSample
from stream_dp.cli.files.definition_files import read_definition
from stream_dp.errors import InvalidInput
from stream_dp.profiles.builder import universe_of
from tests.cli.conftest import Ended

Run = Callable[..., Ended]


def column(values: Iterable[object], name: str = "x", **how: Any) -> tuple[Any, str]:
    """What is drafted of a column, without its name, and why."""
    sample = ColumnSample(name)
    sample.take(list(values))
    found = drafted(sample, how.get("decimal"), how.get("zone"), how.get("most_bytes", 200_000))
    if found.attribute is not None:
        assert found.attribute.pop("name") == name
    return found.attribute, found.why


MANY = random.Random(7)
AGES = [min(90, max(17, int(MANY.gauss(40, 13)))) for _ in range(5_000)]


@pytest.mark.parametrize(
    ("values", "drafted"),
    [
        (["yes", "no", "No", None], {"type": "boolean", "missing": True}),
        (["1", "0"], {"type": "boolean"}),
        ([True, False], {"type": "boolean"}),
        (["yes", "no", "?"], {"type": "boolean", "missing": True, "na": ["?"]}),
        (["ja", "nein"] * 9, {"type": "category", "values": ["ja", "nein"]}),
        (["b", "a", "C", "a", "a"], {"type": "category", "values": ["a", "b", "C"]}),
        (["10", "9", "x", "x"], {"type": "category", "values": ["9", "10", "x"]}),
        (["a", "none", "?"], {"type": "category", "values": ["a", "none"], "missing": True, "na": ["?"]}),
        (["1", "2", "3"] * 9, {"type": "number", "edges": [1, 2, 3, 4], "integer": True}),
        ([7.0, 8.0, None] * 9, {"type": "number", "edges": [7, 8, 9], "integer": True, "missing": True}),
        (["5", "6", "-999"] * 9,
         {"type": "number", "edges": [5, 6, 7], "integer": True, "missing": True, "na": ["-999"]}),
        (["2026-03"] * 9 + ["2027-04"],
         {"type": "date", "by": "month", "from": "2026-01-01", "until": "2028-01-01"}),
        (["2026-03-02", "2026-04-30"],
         {"type": "date", "by": "day", "from": "2026-03-01", "until": "2026-05-01"}),
        (["2026-03-02T10:00", "2026-03-03 11:30"],
         {"type": "date", "by": "hour", "from": "2026-03-02", "until": "2026-03-04", "timezone": "UTC"}),
        (["1950-03-02", "2010-12-31"],
         {"type": "date", "by": "year", "from": "1950-01-01", "until": "2011-01-01"}),
        ([1_750_000_000, 1_750_000_060],
         {"type": "date", "by": "hour", "from": "2025-06-15", "until": "2025-06-16", "timezone": "UTC",
          "epoch": "s"}),
    ],
)  # fmt: skip
def test_the_type_of_a_column_follows_from_its_values(values: list[Any], drafted: Any) -> None:
    assert column(values)[0] == drafted


@pytest.mark.parametrize(
    ("values", "name", "why"),
    [
        ([None, "", " "], "x", "it holds no values"),
        (["?", None], "x", "it holds no values"),
        ([[1], [2]], "x", "it holds lists or objects: make columns of their parts"),
        ([f"p-{n}" for n in range(99)], "my id",
         "nearly all of its values differ; if it says whose row it is, pass --key 'my id'"),
        (range(1, 200), "row", "nearly all of its values differ; if it says whose row it is, pass --key row"),
        ([n // 2 for n in range(400)], "customer_id",
         ("it has 200 values, of 2 rows each; if it says whose row it is, pass --key customer_id; to list "
          "values, pass --values customer_id=FILE")),
        (["31.03.2026", "1/2/26"], "x", "its dates are not as in ISO 8601, such as 2026-03-14: convert them"),
        (["1.234,50", "7,5"], "x",
         "its numbers need --decimal ,, and those of other columns do not: write them alike"),
        (["x" * 300] * 9, "x", "its texts are long; pass --values x=FILE"),
    ],
)  # fmt: skip
def test_a_column_that_no_count_is_about_is_left_out_with_the_reason(
    values: Iterable[Any], name: str, why: str
) -> None:
    assert column(values, name) == (None, why)


def test_of_many_codes_the_most_common_that_fit_are_listed() -> None:
    codes = [f"{n:04}" for n in range(2_100) for _ in range(5 + (n < 2_000))]
    found, why = column(codes, "code")
    assert found["values"] == [f"{n:04}" for n in range(2_000)]
    assert (
        why
        == "the most common of 2,100 values, in 96% of the rows; to list others, pass --values code=FILE"
    )
    assert column(codes, "code", most_bytes=80)[0]["values"] == [f"{n:04}" for n in range(10)]


@pytest.mark.parametrize(
    ("values", "whole", "edges", "measure"),
    [
        (AGES, True, [20, 30, 35, 40, 45, 50, 60], (1, 10, 80)),
        ([0] * 92 + [1_000, 2_000, 2_500, 4_000, 5_000, 9_000, 11_000, 30_000], True,
         [0, 1, 2_000, 5_000, 20_000], (1, 0, 30_000)),
        ([1.25, 2.5] * 5, False, [2.0, 2.5], (0.01, 1.2, 2.6)),
        ([3.5] * 9, False, [3.5], None),
        ([3] * 9, True, [3, 4], None),
        ([0.0, 1e18] * 5, True, [0, 1, 1e18], None),
    ],
)  # fmt: skip
def test_edges_and_ends_are_round(
    values: list[float], whole: bool, edges: list[float], measure: tuple[float, ...] | None
) -> None:
    numbers, rows = np.unique(np.array(values, np.float64), return_counts=True)
    assert edges_of(numbers, rows, whole=whole) == edges
    kept = measure_of(numbers, rows, whole=whole)
    assert (kept and tuple(kept[name] for name in ("unit", "low", "high"))) == measure


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_edges_split_the_rows_about_evenly(scale: float) -> None:
    values = scale * np.random.default_rng(5).lognormal(3.0, 1.0, 5_000)
    numbers, rows = np.unique(values, return_counts=True)
    edges = edges_of(numbers, rows, whole=False)
    bins = np.bincount(np.searchsorted(edges, values, side="right"))
    assert 7 <= len(bins) <= 13
    assert bins.max() < 0.2 * len(values)
    kept = measure_of(numbers, rows, whole=False)
    assert kept is not None
    assert np.mean((values < kept["low"]) | (values > kept["high"])) <= 0.01


def days_of(months: Iterable[int], a_day: int) -> Counter[int]:
    """Rows on each of 28 days of months of 2026."""
    first = date(1970, 1, 1)
    return Counter(
        {(date(2026, m, day) - first).days: a_day for m in months for day in range(1, 29)}
    )


@pytest.mark.parametrize(
    ("rows", "days", "phase"),
    [
        (0, Counter(), {"min_rows": 20_000}),
        (40, Counter(), {"min_rows": 20_000}),
        (48_842, Counter(), {"min_rows": 48_842}),
        (2_500_001, Counter(), {"min_rows": 833_333}),
        (100_000, days_of(range(1, 5), 1_000), {"every": "1 month", "timezone": "UTC", "min_rows": 28_000}),
        (100_000, days_of(range(1, 5), 3_000), {"every": "1 week", "timezone": "UTC", "min_rows": 12_000}),
        (100_000, days_of([3], 70_000), {"every": "1 day", "timezone": "UTC", "min_rows": 70_000}),
        (28, days_of([3], 1), {"every": "1 month", "timezone": "UTC", "min_rows": 20_000}),
    ],
)  # fmt: skip
def test_phases_have_the_rows_of_a_file_or_of_a_usual_period(
    rows: int, days: Counter[int], phase: dict[str, Any]
) -> None:
    assert drafted_phase(rows, days, None)[0] == phase


# ---------------------------------------------------------------- the command


def stays(folder: Path, rows: int = 3_000, mark: str = ",") -> Path:
    """A file of stays in hospitals."""
    chance, at = random.Random(3), datetime(2026, 1, 1)  # noqa: DTZ001
    lines = ["patient,ward,admitted,age,urgent,code,empty,count".replace(",", mark)]
    for row in range(rows):
        at += timedelta(hours=1)
        fields = (
            f"p-{chance.randrange(1_000)}", chance.choice(["ICU", "Surgery"]), f"{at:%Y-%m-%dT%H:%M}",
            "?" if row % 50 == 0 else chance.randrange(18, 90), chance.choice(["yes", "no"]),
            f"C{chance.randrange(120):03}", "", chance.randrange(4),
        )  # fmt: skip
        lines.append(mark.join(map(str, fields)))
    file = folder / "stays.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_draft_is_accepted_by_the_check_that_it_names(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stays(tmp_path)
    (tmp_path / "codes.txt").write_text("".join(f"C{n:03}\n" for n in range(110)))
    options = ("--key", "patient", "--time-column", "admitted", "--values", "code=codes.txt")
    ended = run("dataset", "init", "stays.csv", "--public", *options, "--timezone", "Europe/Berlin")
    assert (ended.code, ended.err) == (0, "")
    read = json.loads((tmp_path / "stays.json").read_text())
    assert read["attributes"] == [
        {"name": "ward", "type": "category", "values": ["ICU", "Surgery"]},
        {"name": "admitted", "type": "date", "by": "weekday", "timezone": "Europe/Berlin"},
        {"name": "age", "type": "number", "edges": [20, 30, 40, 50, 60, 70, 80, 85],
         "integer": True, "measure": {"unit": 1, "low": 10, "high": 90}, "missing": True, "na": ["?"]},
        {"name": "urgent", "type": "boolean"},
        {"name": "code", "type": "category", "values": "@codes.txt"},
        {"name": "n_count", "type": "number", "edges": [0, 1, 2, 3, 4], "integer": True},
    ]  # fmt: skip
    unit = {"key": "patient", "rows_per_phase": 1, "phases": 12}
    assert read["privacy"] == {"epsilon": 1.0, "delta": 1e-9, "unit": unit}
    assert read["phase"] == {"every": "1 month", "timezone": "Europe/Berlin", "min_rows": 670}
    check = (
        "dataset check stays.json stays.csv --public --column n_count=count --time-column admitted"
    )
    said = ended.out.splitlines()
    assert said[-3:] == [
        f"next: stream-dp {check}",
        "      stream-dp dataset create stays.json",
        "      stream-dp ingest stays.csv --column n_count=count --time-column admitted",
    ]
    (left_out,) = (line for line in said if line.startswith("empty"))
    assert left_out.split("  ", 1)[1].split() == ["left", "out", "it", "holds", "no", "values"]
    checked = run(*check.split())
    assert checked.code == 0
    assert checked.out.startswith("stays.json is valid")
    code = read_definition(tmp_path / "stays.json").attributes[4]
    assert code.type == "category"
    assert code.values[-1] == "C109"


@pytest.mark.parametrize("form", ["csv", "semicolons", "ndjson", "parquet"])
def test_each_format_that_ingest_reads_gives_the_same_draft(
    form: str, run: Run, tmp_path: Path
) -> None:
    file = stays(tmp_path, 600, ";" if form == "semicolons" else ",")
    if form in ("ndjson", "parquet"):
        head, *lines = file.read_text().splitlines()
        names = head.split(",")
        rows = [
            dict(zip(names, (v or None for v in line.split(",")), strict=True)) for line in lines
        ]
        file = tmp_path / f"stays.{form}"
        if form == "ndjson":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.table({name: [row[name] for row in rows] for name in names}), file)
    out = tmp_path / "out.json"
    assert run("dataset", "init", file, "--public", "--out", out).code == 0
    names = [attribute.name for attribute in read_definition(out).attributes]
    assert names == ["ward", "admitted", "age", "urgent", "code", "n_count"]


def test_decimal_commas_are_noticed_and_named_in_the_next_commands(
    run: Run, tmp_path: Path
) -> None:
    file, out = tmp_path / "prices.csv", tmp_path / "out.json"
    file.write_text(
        "price;n\n" + "".join(f"1.{n:03},{n % 90 + 10};{n % 3}\n" for n in range(100, 400))
    )
    ended = run("dataset", "init", file, "--public", "--out", out)
    price, _ = read_definition(out).attributes
    assert price.type == "number"
    assert (price.edges[0] > 1_000, price.measure is None) == (True, False)
    assert f"stream-dp dataset check {out} {file} --public --decimal ,\n" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "pass --public if these rows are public or made up, or --private if not"),
        (("--public", "--key", "person"), "--key: there is no column person (found: patient, ward"),
        (("--public", "--values", "codes=a.txt"), "--values: there is no column codes"),
        (("--public", "--values", "code=a.txt"), "--values code: "),
        (("--public", "--time-column", "ward"), "--time-column: no value of ward is a date"),
        (("--public", "--time-column", "day"), "--time-column: there is no column day"),
        (("--public", "--timezone", "Mars"), "there is no such time zone"),
        (("--public", "--dataset", "My stays"), "My stays cannot be the name of a data set"),
        (("--public", "--out", __file__), "it is there already; pass --out"),
    ],
)  # fmt: skip
def test_a_draft_that_cannot_be_made_leaves_no_file(
    words: tuple[str, ...], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("dataset", "init", stays(tmp_path), *words)
    assert ended.code != 0
    assert said in ended.err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "stays.csv holds no rows"),
        ("id,note\n" + "".join(f"{n},\n" for n in range(1, 99)), "no column can be asked about (id: "),
        ("1,2,3,x\n4,5,6,y\n", "line 1: most names in it are numbers; write a first line that names"),
    ],
)  # fmt: skip
def test_a_file_without_columns_to_ask_about_has_no_draft(
    text: str, said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stays.csv").write_text(text)
    ended = run("dataset", "init", "stays.csv", "--public")
    assert (ended.code, said in ended.err) == (1, True)
    assert "4,5,6" not in ended.err


def test_a_draft_from_private_rows_says_what_it_reveals(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stays(tmp_path)
    ended = run("dataset", "init", "stays.csv", "--private")
    assert ended.code == 0
    assert "no epsilon covers what they reveal" in ended.err
    assert "--public" not in ended.out


# ---------------------------------------------------------------- the dialogue


@pytest.fixture
def answering(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``answering("Bonn|Graz", "init")``: a command at a terminal, whose owner types these lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stream_dp.cli.draft.init_command.is_attended", lambda: True)

    def answering(lines: str | None, *words: object) -> Ended:
        left = iter([] if lines is None else lines.split("|"))
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(left))
        ended = run("dataset", *words)
        assert list(left) == [], "every answer was asked for"
        return ended

    return answering


def test_without_a_file_the_owner_says_names_types_values_and_edges(
    answering: Run, tmp_path: Path
) -> None:
    (tmp_path / "codes.txt").write_text("A00\nB01\n")
    ended = answering(
        "My stays|stays|patient"
        "|patient|ward|category| ICU, Surgery ,|code||@none.txt|@codes.txt"
        "|age|number|a, b|65, 18|y|cost|number|?|n|seen|date|month|2026-01-02|2026-01-01"
        "|urgent|boolean|note|none||month",
        "init",
    )
    assert ended.code == 0, ended.err
    read = json.loads((tmp_path / "stays.json").read_text())
    assert read["attributes"] == [
        {"name": "ward", "type": "category", "values": ["ICU", "Surgery"], "missing": True},
        {"name": "code", "type": "category", "values": "@codes.txt", "missing": True},
        {"name": "age", "type": "number", "edges": [18, 65], "integer": True, "missing": True},
        {"name": "cost", "type": "number", "propose": {}, "integer": False, "missing": True},
        {"name": "seen", "type": "date", "by": "month", "from": "2026-01-01", "missing": True},
        {"name": "urgent", "type": "boolean", "missing": True},
    ]
    assert read["privacy"]["unit"]["key"] == "patient"
    assert read["phase"] == {"every": "1 month", "timezone": "UTC", "min_rows": 20_000}
    universe_of(read_definition(tmp_path / "stays.json"))


def test_of_rows_that_are_not_public_only_names_and_types_are_taken(
    answering: Run, tmp_path: Path
) -> None:
    stays(tmp_path)
    ended = answering("n||none||A, B|none||40|y||none||none|", "init", "stays.csv")
    assert ended.code == 0, ended.err
    text = (tmp_path / "stays.json").read_text()
    assert [one["name"] for one in json.loads(text)["attributes"]] == ["ward", "age", "urgent"]
    assert "Surgery" not in text + ended.out
    assert json.loads(text)["attributes"][1]["edges"] == [40]


def test_values_in_files_are_for_drafts_from_rows(answering: Run, tmp_path: Path) -> None:
    ended = answering("n", "init", stays(tmp_path), "--values", "code=codes.txt")
    assert (ended.code, "--values needs --public or --private" in ended.err) == (2, True)
    ended = answering(None, "init", "--values", "code=codes.txt")
    assert (ended.code, "--values, --public and --private need FILE" in ended.err) == (2, True)


def test_without_a_file_and_a_terminal_it_says_what_to_pass(run: Run) -> None:
    assert "pass a file of rows that are public or made up" in run("dataset", "init").err


# ---------------------------------------------------------------- values in files


def defined(folder: Path, values: object) -> Path:
    """A definition of one category."""
    file = folder / "stays.json"
    document = {
        "dataset": "stays",
        "attributes": [{"name": "code", "type": "category", "values": values}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "phase": {"min_rows": 20_000},
    }
    file.write_text(json.dumps(document))
    return file


def test_the_values_of_a_category_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "codes.txt").write_bytes("\ufeffB01\r\n\r\n A00 \r\nÄ, ß\r\n".encode())
    (attribute,) = read_definition(defined(tmp_path, "@codes.txt")).attributes
    assert attribute.type == "category"
    assert attribute.values == ("B01", "A00", "Ä, ß")


@pytest.mark.parametrize(
    ("content", "values", "said"),
    [
        (b"", "@codes.txt", "codes.txt is empty; write a text file with one value a line"),
        (b"A\nB\n\nA\n", "@codes.txt", "codes.txt line 4 has the value of line 1 again; delete one of"),
        (b"A\n" + b"x" * 257, "@codes.txt", "codes.txt line 2 has more than 256 characters"),
        ("Ä".encode("latin-1"), "@codes.txt", "codes.txt is not UTF-8; save it as UTF-8"),
        (b"A", "@nothing.txt", "cannot be read (No such file or directory); compare the name"),
        (b"A", "@codes.csv", "codes.csv is a table; write a text file with one value a line"),
        (b"A", "@../codes.txt", "../codes.txt is not in the folder of the definition; move the file there"),
        (b"A", "@/etc/hosts", "/etc/hosts is not in the folder of the definition"),
        (b"A", "codes.txt", "it must be a list"),
        ("".join(f"{n:064}\n" for n in range(4_200)).encode(), "@codes.txt",
         "with all of its values it has more than 262,144 bytes; list fewer values"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_values_is_refused_with_the_line(
    content: bytes, values: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "codes.txt").write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        read_definition(defined(tmp_path, values))
    assert said in str(refused.value)
