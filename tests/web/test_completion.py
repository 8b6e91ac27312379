"""The completions on the page name the periods of a date as the core does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.dates import CYCLES, labels_of
from stream_dp.errors import ServerUnavailable

MODULE = Path(__file__).parents[2] / "stream_dp/web/static/completion.js"
DATES: list[dict[str, Any]] = [
    {"by": "year", "from": "2020-01-01", "until": "2030-01-01"},
    {"by": "quarter", "from": "2026-04-01"},
    {"by": "month", "from": "2026-11-01", "until": "2028-02-01"},
    {"by": "week", "from": "2026-12-14", "until": "2027-01-18"},
    {"by": "week", "from": "2025-12-22"},
    {"by": "day", "from": "2024-02-27", "until": "2024-03-03"},
    {"by": "hour", "from": "2026-03-28T22:00", "until": "2026-03-29T04:00"},
    *({"by": by} for by in CYCLES),
]


@pytest.fixture
def node(
    needed: Callable[[], AbstractContextManager[None]],
) -> Callable[[str], Any]:
    """``node(script)`` runs a script and returns the JSON that it prints."""
    program = shutil.which("node")
    with needed():
        if program is None:
            raise ServerUnavailable("node is not on the PATH; apt install nodejs")

    def run(script: str) -> Any:
        done = subprocess.run(
            [str(program), "--input-type=module", "-e", script],
            capture_output=True,
            check=True,
            text=True,
        )
        return json.loads(done.stdout)

    return run


def test_the_page_offers_the_labels_of_all_periods(node: Callable[[str], Any]) -> None:
    found = node(
        f"""
        import {{ readFileSync }} from "node:fs";
        const source = readFileSync({json.dumps(str(MODULE))});
        const {{ constants }} = await import("data:text/javascript;base64," + source.toString("base64"));
        const dates = {json.dumps(DATES)};
        console.log(JSON.stringify(dates.map((date) => constants({{ ...date, type: "date" }}))));
        """
    )
    for date, labels in zip(DATES, found, strict=True):
        expected = labels_of(date["by"], date.get("from"), date.get("until"))
        assert labels == [f"'{label}'" for label in expected]
