"""The tiles of ``stream-dp demo --daily``, and what the demo takes for true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.cli.demo.daily_demo import DEFINITION, TILES, _File, _sparkline
from stream_dp.messages import Definition
from stream_dp.messages.requests import QueryFields
from stream_dp.samples import Flights, flights


@pytest.fixture(scope="module")
def file() -> _File:
    return _File(flights())


def test_the_definition_and_the_tiles_are_valid() -> None:
    Definition.read(DEFINITION)
    assert len({tile.name for tile in TILES}) == len(TILES) == 12
    for tile in TILES:
        QueryFields.read({**tile.fields, "query_id": tile.name, "standing": True})


def test_the_alert_is_due_on_the_two_days_of_the_snowstorm(file: _File) -> None:
    assert file.storms() == [31 + 8, 31 + 9]


def test_what_is_true_is_counted_from_the_days_of_a_tile(file: _File) -> None:
    tiles = {tile.name: tile for tile in TILES}
    sample = flights()
    week = [sample.of_day(1, day) for day in range(4, 11)]
    carriers = [carrier for day in week for carrier in day["carrier"]]
    shares = file.exact(tiles["carriers"], 10)
    assert shares[11] == carriers.count("UA") / len(carriers)
    assert sum(shares) == pytest.approx(1.0)
    delays = [delay for day in week for delay in day["arr_delay"] if delay is not None]
    assert file.exact(tiles["delay"], 10) == [
        pytest.approx(np.mean([min(max(delay, -60), 240) for delay in delays]))
    ]
    parts = [_late(sample, day) for day in (1, 2, 3, 4)], [_late(sample, 5 + n) for n in range(7)]
    of_both = [sum(late) / sum(n for _, n in part) for part in parts for late in [_first(part)]]
    assert file.exact(tiles["late-change"], 11) == [pytest.approx(of_both[1] - of_both[0])]


def _late(sample: Flights, day: int) -> tuple[int, int]:
    delays = sample.of_day(1, day)["arr_delay"]
    return sum(delay is not None and delay >= 30 for delay in delays), len(delays)


def _first(part: list[tuple[int, int]]) -> list[int]:
    return [late for late, _ in part]


def test_a_gap_in_a_history_is_drawn_as_one() -> None:
    assert _sparkline([0.0, None, 1.0]) == "▁ █"
    assert _sparkline([None, 0.3]) == " ▁"
    assert _sparkline([]) == ""


@pytest.mark.slow
@pytest.mark.kafka
def test_two_months_pass_with_every_answer_once_and_an_alert_in_the_snowstorm(
    tmp_path: Path,
) -> None:
    command: list[Any] = [sys.executable, "-m", "stream_dp", "demo", "--daily"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "708 answers to 12 tiles, each once" in ran.stdout
    assert "alerts on 08 February, 09 February;" in ran.stdout
    assert re.search(r"59 phases, \d+ charges, 0 units", ran.stdout)
