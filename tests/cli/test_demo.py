from __future__ import annotations

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from stream_dp.cli.demo.demo_view import DemoQuery, Story
from stream_dp.cli.use.demo_command import _Exact, _summarise
from stream_dp.errors import StreamDPError
from stream_dp.messages import BudgetShares, PredicateAnswer, PrivacyLoss
from stream_dp.samples import flights

ROOT = Path(__file__).parents[2]


def test_exact_counts_of_tables_add_up_and_agree_with_those_of_conditions() -> None:
    exact = _Exact(flights())
    assert sum(exact.table(("origin", "hour"), None, (1, 12))) == 336_776
    cells = exact.table(("origin", "hour"), "arr_delay >= 30", (3, 5))
    assert cells[6 + 2] == exact.count(
        "arr_delay >= 30 AND origin = 'JFK' AND hour >= 8 AND hour < 12", (3, 5)
    )
    carriers = exact.table(("carrier",), None, (1, 12))
    assert carriers[11] == exact.count("carrier = 'UA'", (1, 12)) == 58_665


def test_the_saved_picture_needs_nothing_from_elsewhere() -> None:
    picture = (ROOT / "docs/demo.svg").read_text()
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert set(re.findall(r"https?://[^\"'\s)]+", picture)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(("outside", "kept"), [(0, True), (3, True), (12, False)])
def test_one_query_that_misses_in_three_months_is_no_broken_promise(
    outside: int, kept: bool
) -> None:
    """Of the 47 of ``--fast``. Its answers share the noise of their months."""
    answer = PredicateAnswer(
        dataset="flights",
        query_id="q",
        analyst="demo",
        value=0.1,
        count=100,
        n=1000,
        error_bar=0.01,
        difficulty="easy",
        path="certified",
        privacy_loss=PrivacyLoss(share=0.0),
        budget=BudgetShares(spent=0.0, left=1.0),
        phase=3,
        window=(1, 3),
    )
    asked = [DemoQuery("carrier = 'UA'", answer, 80) for _ in range(outside)]
    asked += [DemoQuery("carrier = 'UA'", answer, 95) for _ in range(47 - outside)]
    demo: Any = SimpleNamespace(same_bytes=True, recovered_s=1.0, read_s=None, asked_again=(0, 0))
    broken = pytest.raises(StreamDPError, match="did not keep its promises")
    with contextlib.nullcontext() if kept else broken:
        _summarise(Console(quiet=True), Story(3, 3, 80_789, asked), demo, 1.0)
