"""Rows of a file that would never open a phase are foreseen, with the number of rows that opens one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.files.phase_cuts import aligned, enough_rows, left_waiting
from stream_dp.cli.files.row_files import RowFile
from stream_dp.messages import Definition
from tests.cli.conftest import Run
from tests.pipeline import world

CENSUS = 48_842
WIDE = [
    {"name": f"a{n}", "type": "category", "values": [f"a value of {n}", "another"]}
    for n in range(12)
]


def census(min_rows: int = 20_000, **changed: Any) -> Definition:
    fields = {"attributes": WIDE, "phase": {"min_rows": min_rows}, **changed}
    return Definition.read(world.definition("people", **fields))


def waiting_after(definition: Definition, n_rows: int, batch_rows: int, file: Path) -> int:
    """The rows that wait after a worker took the batches of a file, as it opens phases."""
    file.write_text("\n".join(["a", *["x"] * n_rows]))
    size, every = aligned(definition, batch_rows)
    waiting = 0
    for batch in RowFile(file, definition, size, ends_every=every).batches():
        assert batch.stop - batch.start <= batch_rows
        waiting += batch.stop - batch.start
        if waiting >= definition.phase.min_rows:
            waiting = 0
    return waiting


@pytest.mark.parametrize("batch_rows", [70, 100, 640, 5_000])
@pytest.mark.parametrize("min_rows", [1, 69, 100, 333, 640, 4_999])
def test_as_many_rows_are_foreseen_to_wait_as_do(
    tmp_path: Path, min_rows: int, batch_rows: int
) -> None:
    one = census(min_rows, attributes=[{"name": "a", "type": "category", "values": ["x"]}])
    for n_rows in (1, 640, 999, 4_999):
        found = waiting_after(one, n_rows, batch_rows, tmp_path / "rows.csv")
        assert left_waiting(one, n_rows, batch_rows) == found < min_rows


def test_the_census_opens_two_phases_of_all_of_its_rows_at_24421() -> None:
    assert left_waiting(census(), CENSUS) == 8_842
    assert enough_rows(census(), CENSUS) == 24_421
    assert left_waiting(census(24_421), CENSUS) == 0
    assert left_waiting(census(24_422), CENSUS) > 24_000, "one row more leaves half"
    for n_rows in (24_000, 48_842, 100_003):
        for min_rows in (1_000, 20_000, 23_999):
            if (found := enough_rows(census(min_rows), n_rows)) is not None:
                assert left_waiting(census(found), n_rows) < n_rows / 100


def test_a_check_says_how_many_rows_wait_and_what_to_do(run: Run, tmp_path: Path) -> None:
    file, rows = tmp_path / "definition.json", tmp_path / "rows.csv"
    with rows.open("w", newline="") as opened:
        written = csv.writer(opened)
        written.writerows([["a0", "a1"], *[["a value of 0", "a value of 1"]] * CENSUS])

    def check(min_rows: int, **phase: str) -> str:
        document = {**json.loads(census(min_rows).to_bytes()), "attributes": WIDE[:2]}
        file.write_text(json.dumps({**document, "phase": {"min_rows": min_rows, **phase}}))
        ended = run("dataset", "check", file, rows)
        assert ended.code == 0, ended.err
        return str(ended.err)

    said = check(20_000)
    assert "8,842 of the 48,842 rows (18.1%) would wait for more rows, because a phase" in said
    assert "set phase.min_rows to 24,421, or open a phase of them with `stream-dp phase" in said
    assert "set phase.min_rows to 48,842, or leave them out" in check(48_000)
    assert "would wait" not in check(24_421)
    assert "would wait" not in check(20_000, every="1 day")
    assert "would wait" not in check(50_000), "it may be a sample"


def test_a_check_says_which_periods_are_too_small(run: Run, tmp_path: Path) -> None:
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
