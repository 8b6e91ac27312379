"""What the first commands of the page about tools start, and a browser. Run by ``make test-tools`` alone."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.web.conftest import browser as browser

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Port:
    """A gateway that serves the example.

    Attributes:
        number: The port.
        sales: The true number of sales by country.
        paid: The true number of paid ones.
    """

    number: str
    sales: Counter[str]
    paid: Counter[str]


@pytest.fixture(scope="session")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """What the commands at the top of ``docs/tools.md`` start, in a folder of its own."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "examples").symlink_to(ROOT / "examples")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
    }

    def shell(command: str) -> str:
        return subprocess.run(
            ["bash", "-ec", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout

    page = (ROOT / "docs/tools.md").read_text()
    (commands,) = re.findall(r"^```sh\n(stream-dp up.*?)^```", page, re.MULTILINE | re.DOTALL)
    try:
        (number,) = re.findall(r"psql postgresql://\w+@127.0.0.1:(\d+)/stream_dp", shell(commands))
        with (folder / "sales.csv").open() as file:
            rows = list(csv.DictReader(file))
        sales = Counter(row["country"] for row in rows)
        yield Port(number, sales, Counter(row["country"] for row in rows if row["paid"] == "True"))
    finally:
        shell("stream-dp down")
