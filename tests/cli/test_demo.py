from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

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
