"""Synthetic rows at the terminal, through a real broker and a real worker."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def synthesized(
    served: Run, define: Callable[..., str], write_people: Callable[..., Path]
) -> tuple[str, Any]:
    """A data set of one phase with 400 synthetic rows, and how the first command that found them ended."""
    name = define(synthetic_rows=400, privacy={"epsilon": 10.0, "delta": 1e-9})
    ended = served("synthesize", name)
    assert ended.code == 1
    assert f"{name} has no synthetic rows yet: 400 come soon after its first phase" in ended.err
    assert served("ingest", write_people(name, 4_000)).code == 0

    def there() -> bool:
        nonlocal ended
        ended = served("synthesize", name)
        return bool(ended.code == 0)

    until(there, lambda: ended.err)
    return name, ended


def test_rows_go_to_the_terminal_or_into_a_file_and_say_how_far_off_they_may_be(
    served: Run, synthesized: tuple[str, Any], tmp_path: Path
) -> None:
    name, ended = synthesized
    assert "400 synthetic rows come with each phase" in served("dataset", "show", name).out
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert len(rows) == 400
    cities = Counter(row["city"] for row in rows)
    assert cities["Lyon"] < 40  # noise alone takes hardly anybody there
    assert cities["Bonn"] / 400 == pytest.approx(0.5, abs=0.1)
    assert {row["age"] for row in rows} == {"< 18", "18 to 29", "30 to 44", ">= 45", ""}
    first, second = ended.err.splitlines()
    assert first == "400 rows in place of the 4,000 rows of phase 1"
    assert second.startswith("The share of each cell of the ")
    assert second.endswith("about anything else nothing is proved.")

    files = [tmp_path / f"rows.{kind}" for kind in ("csv", "ndjson", "parquet")]
    for file in files:
        again = served("synthesize", name, "-o", file)
        assert (again.code, again.out, again.err) == (0, "", ended.err)
    assert files[0].read_text() == ended.out
    plain = [json.loads(line) for line in files[1].read_text().splitlines()]
    assert plain == pq.read_table(files[2]).to_pylist()
    assert [row["age"] or "" for row in plain] == [row["age"] for row in rows]
    assert {row["smoker"] for row in plain} - {None} == {True, False}


def test_who_has_none_is_told_why(served: Run, define: Callable[..., str]) -> None:
    name = define()
    ended = served("synthesize", name)
    assert ended.code == 1
    assert f"{name} has no synthetic rows: its definition does not ask for them" in ended.err
    assert '"synthetic_rows": 1000' in ended.err
    ended = served("synthesize", name[:-1])
    assert ended.code == 1
    assert f"did you mean {name}?" in ended.err


def test_a_file_of_another_kind_is_refused_before_anything_is_read(run: Run) -> None:
    ended = run("synthesize", "people", "-o", "rows.xlsx")
    assert ended.code == 1
    assert "--output: rows.xlsx has no known ending; name it .csv, .ndjson" in ended.err
