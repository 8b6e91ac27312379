"""A file of many periods is cut by them, in their order, and each row is in one part."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stream_dp.calendar_periods import Calendar, Length, zone_of
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.files.rows_by_period import periods_of
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition
from tests.pipeline import world

BERLIN = Calendar(Length.read("1 day"), zone_of("Europe/Berlin"))


def dated(file: Path, every: str = "1 day", **how: Any) -> RowFile:
    attributes = [{"name": "n", "type": "number", "edges": [1_000_000]}]
    phase = {"min_rows": 10, "every": every, "timezone": "Europe/Berlin"}
    document = world.definition("visits", attributes=attributes, phase=phase)
    return RowFile(file, Definition.read(document), 25, FileReading(time_column="seen", **how))


def test_a_time_with_an_offset_is_an_instant_and_one_without_is_what_clocks_showed() -> None:
    texts = ["2026-06-01", "2026-06-01T23:30", "2026-06-01 00:00", "2026-06-01T21:59Z"]
    (day,) = set(periods_of(texts, BERLIN))
    assert day is not None
    assert BERLIN.start(day + 1) - BERLIN.start(day) == 86_400_000
    assert periods_of(["2026-06-01T22:00Z"], BERLIN) == [day + 1]
    nothing = ["", "?", None, 20260601, "31.05.2026", "1066-10-14", True]
    assert periods_of(nothing, BERLIN) == [None] * len(nothing)


@pytest.mark.parametrize("shuffled", [False, True])
def test_batches_say_the_day_that_they_are_about_and_go_on_where_they_stopped(
    tmp_path: Path, *, shuffled: bool
) -> None:
    rows = [(n, f"2026-03-{28 + n // 40}T{n % 24:02}:15") for n in range(120)]
    if shuffled:
        random.Random(2).shuffle(rows)
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["n,seen", *(f"{n},{seen}" for n, seen in rows)]))
    source = dated(file)
    read = [n for columns, _ in source.columns() for n in columns["n"]]
    assert read == [str(n) for n, _ in rows], "what is surveyed has the order of the file"
    assert sorted(source.periods.values()) == [40, 40, 40]
    sent = list(source.batches())
    assert [batch.start for batch in sent] == [0, *(batch.stop for batch in sent[:-1])]
    for batch in sent:
        assert {f"2026-03-{28 + int(n) // 40}" for n in batch.columns["n"]} == {batch.at}
    assert [batch.at for batch in sent] == sorted(str(batch.at) for batch in sent)
    assert all(set(batch.columns) == {"n"} for batch in sent)
    assert not shuffled or max(batch.stop - batch.start for batch in sent) <= 25
    in_order = [int(n) for batch in sent for n in batch.columns["n"]]
    assert sorted(in_order) == list(range(120))
    rest = [int(n) for batch in source.batches(47) for n in batch.columns["n"]]
    assert rest == in_order[47:]


@pytest.mark.parametrize(
    ("every", "starts"),
    [("1 month", ["2026-03-01"]), ("6 hours", ["2026-03-28", "2026-03-28T06:00+01:00"])],
)
def test_hours_and_months_are_periods_too(tmp_path: Path, every: str, starts: list[str]) -> None:
    file = tmp_path / "rows.ndjson"
    rows = [{"n": 1, "seen": "2026-03-28T05:10"}, {"n": 2, "seen": "2026-03-28T07:10+01:00"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    source = dated(file, every)
    list(source.columns())
    assert [batch.at for batch in source.batches()] == starts


def test_rows_without_a_date_are_named_by_their_number_or_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("n,seen\n1,2026-03-28\n2,31.03.2026\n3,\n")
    with pytest.raises(InvalidInput) as refused:
        list(dated(file).columns())
    assert "rows.csv column seen: 2 rows hold no date" in str(refused.value)
    assert "31.03" not in str(refused.value)
    source = dated(file, skip_bad_rows=True)
    list(source.columns())
    assert source.left_out == 2
    (batch,) = source.batches()
    assert (batch.columns["n"], batch.at) == (["1"], "2026-03-28")
