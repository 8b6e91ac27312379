"""What the demos hold to be true, and when they say that a promise was broken."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from stream_dp.cli.demo.daily_demo import DEFINITION, TILES, TileTruth, _sparkline
from stream_dp.cli.demo.demo_view import DemoQuery
from stream_dp.cli.demo.exact_flights import ExactFlights
from stream_dp.cli.demo.live_days import DEFINITION as OF_LIVE_DAYS
from stream_dp.cli.demo.live_days import LiveDays
from stream_dp.cli.demo.yearly_demo import YearlyDemo
from stream_dp.messages import Definition, PredicateAnswer
from stream_dp.samples import Flights, flights
from tests.answers import count_answer, table_answer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sample() -> Flights:
    return flights()


@pytest.fixture(scope="module")
def truth(sample: Flights) -> TileTruth:
    return TileTruth(sample)


def test_exact_counts_of_tables_add_up_and_agree_with_those_of_conditions(sample: Flights) -> None:
    exact = ExactFlights(sample, sample.month.tolist())
    assert sum(exact.counts(None, (1, 12), ("origin", "hour"))) == 336_776
    cells = exact.counts("arr_delay >= 30", (3, 5), ("origin", "hour"))
    at_jfk = "arr_delay >= 30 AND origin = 'JFK' AND hour >= 8 AND hour < 12"
    assert exact.counts(at_jfk, (3, 5)) == [cells[6 + 2]]
    united = exact.counts(None, (1, 12), ("carrier",))[11]
    assert exact.counts("carrier = 'UA'", (1, 12)) == [united] == [58_665]


def test_the_saved_picture_needs_nothing_from_elsewhere() -> None:
    picture = (ROOT / "docs/demo.svg").read_text()
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert set(re.findall(r"https?://[^\"'\s)]+", picture)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(("outside", "kept"), [(0, True), (3, True), (12, False)])
def test_one_query_that_misses_in_three_months_is_no_broken_promise(
    sample: Flights, outside: int, kept: bool
) -> None:
    """Of the 47 of ``--fast``. Its answers share the noise of their months."""
    answer = count_answer(100, 10, error_bar=0.01)
    assert isinstance(answer, PredicateAnswer)
    deployment: Any = type("Nothing", (), {"client": None})
    demo = YearlyDemo(deployment, sample, Console(quiet=True), months=3)
    exact = [80] * outside + [95] * (47 - outside)
    demo.story.queries = [DemoQuery("carrier = 'UA'", answer, each) for each in exact]
    assert not demo.kept, "the same query has given no same bytes yet"
    demo._same_bytes = True
    assert demo.kept is kept


# ---------------------------------------------------------------- the tiles of --daily


def test_what_is_true_is_counted_from_the_days_of_a_tile(sample: Flights, truth: TileTruth) -> None:
    Definition.read(DEFINITION)
    assert len({tile.name for tile in TILES}) == 12
    assert _sparkline([0.0, None, 1.0]) == "▁ █"
    assert truth.storms() == [31 + 8, 31 + 9], "the two days of the snowstorm"
    tiles = {tile.name: tile for tile in TILES}
    week = [sample.of_day(1, day) for day in range(4, 11)]
    carriers = [carrier for day in week for carrier in day["carrier"]]
    shares = truth.of(tiles["carriers"], 10)
    assert shares[11] == carriers.count("UA") / len(carriers)
    assert sum(shares) == pytest.approx(1.0)
    delays = [
        min(max(delay, -60), 240) for day in week for delay in day["arr_delay"] if delay is not None
    ]
    assert truth.of(tiles["delay"], 10) == [pytest.approx(np.mean(delays))]

    def late(first: int, last: int) -> float:
        days = [sample.of_day(1, day)["arr_delay"] for day in range(first, last + 1)]
        delays = [delay is not None and delay >= 30 for day in days for delay in day]
        return sum(delays) / len(delays)

    assert truth.of(tiles["late-change"], 11) == [pytest.approx(late(5, 11) - late(1, 4))]


def test_a_day_by_the_clock_waits_for_an_answer_that_counts_the_rows_of_its_time(
    sample: Flights,
) -> None:
    Definition.read(OF_LIVE_DAYS)
    closed: dict[str, Any] = {"path": "measured", "complete_at": "2026-11-30T12:02+00:00"}
    airports = {"origin": ["EWR", "JFK", "LGA"]}
    replies = [
        count_answer(1, 1),
        table_answer(airports, [20, 30, 40], 5, n=90, **closed),
        table_answer(airports, [20, 30, 40], 5, n=100, **closed),
        table_answer(airports, [20, 30, 44], 5, n=100, late_waiting=7, **closed),
    ]
    asked: Any = type("Asked", (), {"ask": lambda *_, **__: replies.pop(0)})()
    days = LiveDays(asked, sample)
    exact = Counter(EWR=20, JFK=36, LGA=44)
    assert len(list(days._count("day 1, file waits", {}, exact, waiting=7))) == 3
    assert [one.outside for one in days.asked] == [1]
    *_, counts, says = days.lines
    assert counts[7:] == "day 1, file waits  EWR 20 ± 5 (20*)  JFK 30 ± 5 (36*)  LGA 44 ± 5 (44*)"
    assert says[7:] == "its answer says    late_waiting 7, complete_at 2026-11-30T12:02+00:00"


@pytest.mark.slow
@pytest.mark.kafka
def test_two_months_pass_with_every_answer_once_and_then_a_day_closes_by_the_clock(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "stream_dp", "demo", "--daily"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "708 answers to 12 tiles, each once" in ran.stdout
    assert "alerts on 08 February, 09 February;" in ran.stdout
    assert re.findall(r"  day (\d.*?)  .*\(([\d,]+)\*\)$", ran.stdout, re.MULTILINE) == [
        ("2 until 8:00", "1,330"),
        ("1, closed", "5,861"),
        ("1, file waits", "5,861"),
        ("2 until 16:00", "5,808"),
        ("1, complete", "8,717"),
    ]
    assert "late_waiting 2,856, complete_at" in ran.stdout
    assert re.search(r"60 phases, \d+ charges, 0 units", ran.stdout)
