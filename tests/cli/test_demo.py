from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from stream_dp.cli.demo import _Exact
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


@pytest.mark.kafka
@pytest.mark.slow
def test_the_demo_keeps_its_promises_without_a_terminal(tmp_path: Path) -> None:
    svg = tmp_path / "demo.svg"
    ended = subprocess.run(
        [sys.executable, "-m", "stream_dp", "demo", "--fast", "--svg", str(svg)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 120
    assert sum("exact" in line for line in lines) == 47
    assert "80,789 rows in 3 phases; 47 questions and 6 tables answered" in ended.stdout
    assert "the same question under the same id gave the same bytes" in ended.stdout
    assert ET.fromstring(svg.read_text()).tag.endswith("svg")
