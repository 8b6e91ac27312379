"""A newcomer's first quarter of an hour, literally as the README has it."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(kind: str, word: str) -> str:
    """The block of the README that holds a word."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (found,) = [text for text in blocks if word in text]
    return str(found)


def test_the_definition_among_the_examples_is_that_of_the_readme() -> None:
    assert (ROOT / "examples/definition.json").read_text() == block("json", '"people"')


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """``shell(command, code)``: what a command prints; its folder and state folder are the test's own.

    Tests take turns, because ``stream-dp up`` tries the same port for its pages first.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }

    def shell(command: str, code: int = 0) -> str:
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, (command, ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    with Path(tempfile.gettempdir(), "stream-dp-up.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield shell


@pytest.mark.kafka
@pytest.mark.slow
def test_the_commands_of_the_readme_do_what_it_says(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    commands = [line for line in block("sh", "stream-dp up").splitlines() if line]
    assert len(commands) == 5
    (tmp_path / "definition.json").write_text(block("json", '"people"'))
    (made,) = re.findall(r"`(python examples/people.py > people.csv)`", README)
    shell(made.replace("examples", str(ROOT / "examples")))
    with (tmp_path / "people.csv").open() as file:
        people = list(csv.DictReader(file))
    lyon = [int(row["age"] or 0) for row in people if row["city"] == "Lyon"]
    share = sum(age >= 30 for age in lyon) / len(people)
    up, define, ingest, ask, down = commands
    try:
        begun = shell(up)
        assert "next: stream-dp dataset create DEFINITION.json" in begun
        (postgres,) = re.findall(r"psql (postgresql://\S+)", begun)
        assert shell(define).startswith(
            "people is defined; a phase opens at 20,000 rows\n"
            "opening a phase of 20,000 to 40,000 rows takes 0."
        )
        counted = "60,000 rows of people.csv are counted\n3 phases are open; 0 rows wait"
        assert counted in shell(ingest)
        answer = shell(ask)
        promised = block("text", "of 60,000 rows")
        assert re.sub(r"[\d.,]+", "#", answer) == re.sub(r"[\d.,]+", "#", promised)
        with psycopg.connect(postgres) as connection:
            ((count, at_most),) = connection.execute("SELECT COUNT(*) FROM people WHERE age >= 30")
        assert abs(count - sum(int(row["age"] or 0) >= 30 for row in people)) < 3 * at_most
        value, bar = map(float, re.findall(r"([\d.]+)%", answer)[:2])
        assert abs(value / 100 - share) < 3 * bar / 100

        kept = shell(f"{ask} --id kept --json")
        shell(down)
        shell(up)
        assert shell(f"{ask} --id kept --json") == kept, "though Redis began empty"
        assert "all 60,000 rows of people.csv were counted before" in shell(ingest)
        again = shell(up)
        assert "already up: Kafka at 127.0.0.1:" in again
        (dashboard,) = re.findall(r"dashboard at (http://127\.0\.0\.1:\d+/)", again)
        with urllib.request.urlopen(dashboard) as page:
            assert b"What a question would cost now" in page.read()
        assert "all checks passed" in shell("stream-dp doctor")
        example = f"python {ROOT / 'examples/analyst.py'}"  # finds the servers by itself
        assert "month 2: 25,000 rows, phase 2 is open" in shell(example)
        shell(example)  # nothing counts twice, and an answer stays what it was
        assert re.search(r"people +3 +60,000 ", shell("stream-dp status"))
        assert re.search(r"visits +2 +50,000 ", shell("stream-dp status"))
    finally:
        shell(down)
    assert "nothing runs in" in shell(down)
    assert "start them with `stream-dp up`" in shell(ask, code=1)


@pytest.mark.kafka
@pytest.mark.slow
def test_eight_commands_lead_from_timestamps_to_tiles_that_fill_themselves(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    page = (ROOT / "docs/quickstart.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (commands,) = [block.splitlines() for block in blocks if "examples/shop.py" in block]
    assert len(commands) == 8
    assert commands[0].startswith("make demo ")
    assert commands[1] == ". .venv/bin/activate"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    try:
        for command in commands[2:]:
            shell(command)
        assert json.loads(shell("stream-dp status --json"))["phases"] == 14
        lines = shell("stream-dp standing list shop --json").splitlines()
        assert [json.loads(line)["phase"] for line in lines] == [14] * 6
        events = "[value.decode() for _, value in Client()._session.published.read('events')]"
        found = shell(
            f'python -c "from stream_dp.client import Client; print(*{events}, sep=chr(10))"'
        )
        alerts = [line for line in found.splitlines() if '"alert"' in line]
        assert [json.loads(line)["query_id"] for line in alerts] == ["returns@10"]
    finally:
        shell("stream-dp down")
