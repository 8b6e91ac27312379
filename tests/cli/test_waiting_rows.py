"""Rows of a file that would never open a phase are foreseen, with the number of rows that opens one."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.files.row_files import RowFile, aligned, left_waiting, rows_a_batch
from stream_dp.cli.use.dataset_command import enough_rows
from stream_dp.cli.use.ingest_command import BATCH_ROWS
from stream_dp.messages import Definition

CENSUS = 48_842
WIDE = [
    {"name": f"a{n}", "type": "category", "values": [f"a value of {n}", "another"]}
    for n in range(12)
]


def census(min_rows: int = 20_000, **changed: Any) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "people",
            "attributes": WIDE,
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": min_rows},
            **changed,
        }
    )


def waiting_after(definition: Definition, n_rows: int, batch_rows: int, file: Path) -> int:
    """The rows that wait after a worker took the batches of a file, as it opens phases."""
    file.write_text("\n".join(["a", *["x"] * n_rows]))
    attributes = [{"name": "a", "type": "category", "values": ["x"]}]
    one = Definition.read({**json.loads(definition.to_bytes()), "attributes": attributes})
    size, every = aligned(one, batch_rows)
    waiting = 0
    for batch in RowFile(file, one, size, ends_every=every).batches():
        assert batch.stop - batch.start <= batch_rows
        waiting += batch.stop - batch.start
        if waiting >= one.phase.min_rows:
            waiting = 0
    return waiting


@pytest.mark.parametrize("batch_rows", [70, 100, 640, 5_000])
@pytest.mark.parametrize("min_rows", [1, 69, 100, 333, 640, 4_999])
def test_as_many_rows_are_foreseen_to_wait_as_do(
    tmp_path: Path, min_rows: int, batch_rows: int
) -> None:
    for n_rows in (1, 640, 999, 4_999):
        definition = census(min_rows)
        found = waiting_after(definition, n_rows, batch_rows, tmp_path / "rows.csv")
        assert left_waiting(definition, n_rows, batch_rows) == found
        assert found < min_rows


def test_the_census_opens_two_phases_of_all_of_its_rows_at_24421() -> None:
    definition = census()
    most = rows_a_batch(definition, BATCH_ROWS)
    assert left_waiting(definition, CENSUS, most) == 8_842
    assert enough_rows(definition, CENSUS) == 24_421
    assert left_waiting(census(24_421), CENSUS, most) == 0
    assert left_waiting(census(24_422), CENSUS, most) > 24_000, "one row more leaves half"


@pytest.mark.parametrize("min_rows", [1_000, 20_000, 23_999])
@pytest.mark.parametrize("n_rows", [24_000, 48_842, 100_003])
def test_with_what_is_proposed_fewer_than_one_in_a_hundred_wait(n_rows: int, min_rows: int) -> None:
    definition = census(min_rows)
    most = rows_a_batch(definition, BATCH_ROWS)
    if (found := enough_rows(definition, n_rows)) is not None:
        assert left_waiting(census(found), n_rows, most) < n_rows / 100


def test_a_check_says_how_many_rows_wait_and_what_to_do(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    file, rows = tmp_path / "definition.json", tmp_path / "rows.csv"
    with rows.open("w", newline="") as opened:
        written = csv.writer(opened)
        written.writerow([attribute["name"] for attribute in WIDE[:2]])
        written.writerows([f"a value of {n}" for n in range(2)] for _ in range(CENSUS))

    def check(*words: str, **changed: Any) -> str:
        document = {**json.loads(census().to_bytes()), "attributes": WIDE[:2], **changed}
        file.write_text(json.dumps(document))
        ended = run("dataset", "check", file, rows, *words)
        assert ended.code == 0, ended.err
        return str(ended.err)

    said = check()
    assert (
        "8,842 of the 48,842 rows (18.1%) would wait for more rows, because a phase opens at 20,000"
        in said
    )
    assert (
        "set phase.min_rows to 24,421, or open a phase of them with `stream-dp phase close" in said
    )
    few = check(phase={"min_rows": 48_000})
    assert "set phase.min_rows to 48,842, or leave them out" in few
    assert "would wait" not in check(phase={"min_rows": 24_421})
    assert "would wait" not in check(phase={"min_rows": 20_000, "every": "1 day"})
    assert "would wait" not in check(phase={"min_rows": 50_000}), "it may be a sample"


def test_a_check_says_which_periods_are_too_small(run: Callable[..., Any], tmp_path: Path) -> None:
    file, rows = tmp_path / "definition.json", tmp_path / "rows.csv"
    days = ["2026-11-01"] * 50 + ["2026-11-02"] * 9 + ["2026-11-03"] * 60
    rows.write_text("\n".join(["a0,seen", *(f"another,{day}" for day in days)]))
    document = {**json.loads(census(40).to_bytes()), "attributes": WIDE[:1]}
    file.write_text(json.dumps({**document, "phase": {"min_rows": 40, "every": "1 day"}}))
    ended = run("dataset", "check", file, rows, "--time-column", "seen")
    assert ended.code == 0, ended.err
    assert "1 of the 3 periods in the file have fewer than the 40 rows" in ended.err
    assert "9 at the least" in ended.err
    file.write_text(json.dumps(document))
    refused = run("dataset", "check", file, rows, "--time-column", "seen")
    assert "open by their number of rows, so seen decides nothing" in refused.err
