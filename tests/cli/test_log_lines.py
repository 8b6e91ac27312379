"""Log lines have a time and a level, as text or as JSON, and quote no error that may hold a row."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slow import rest_is_slow
from tests.workers import run_script

SECRET = "Ada Lovelace"
HEAD = """
import asyncio, logging, threading, warnings
from stream_dp.cli.operate.worker_log import Log
from stream_dp.errors import ServerUnavailable
log = Log("warn", as_json={as_json})
log.take_uncaught()
ours = logging.getLogger("stream_dp.pipeline.intake.decider")
def fail():
    raise ValueError({secret!r})
"""

Log = Callable[..., list[str]]
Objects = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """``log("text", script)``: the lines of a process that logs what the script logs, at level warn."""

    def lines(log_format: str, script: str, code: int = 0) -> list[str]:
        head = HEAD.format(as_json=log_format == "json", secret=SECRET)
        returned, output, errors = run_script(head + script, tmp_path)
        assert returned == code, errors
        assert output == ""
        return errors.splitlines()

    return lines


@pytest.fixture
def objects(log: Log) -> Objects:
    """``objects(script)``: the same lines as JSON."""
    return lambda script, code=0: [json.loads(line) for line in log("json", script, code)]


def test_a_line_has_time_level_logger_and_the_fields_of_our_own_package(
    log: Log, objects: Objects
) -> None:
    (line,) = log("text", "ours.warning('%d records wait', 3)")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING stream_dp.pipeline.intake.decider: 3 records wait",
        line,
    )
    found, other = objects(
        r"""ours.warning('two\nlines, "quoted"', extra={'dataset': 'flights'})
"""
        f"logging.getLogger('aiohttp.access').warning('a', extra={{'x': {SECRET!r}}})"
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found == {
        "level": "warning",
        "logger": "stream_dp.pipeline.intake.decider",
        "message": 'two\nlines, "quoted"',
        "dataset": "flights",
    }
    assert other.keys() == {"time", "level", "logger", "message"}


def test_fausts_loggers_obey_and_its_word_that_it_has_crashed_is_left_out(objects: Objects) -> None:
    """The reason follows in words of ours, and a data set that is handed over is no crash."""
    (found,) = objects(
        "import faust\n"
        "from mode.utils.logging import get_logger\n"
        "said = get_logger('faust.worker')\n"
        "said.critical('[^Worker]: We experienced a crash! Reraising original exception...')\n"
        "said.info('no'); said.error('yes')"
    )
    assert (found["logger"], found["level"], found["message"]) == ("faust.worker", "error", "yes")


FAULTS = {
    "an error in the trace": "try: fail()\nexcept ValueError: ours.exception('a fault')",
    "an error as an argument": "ours.error('reason=%r', ValueError('Ada Lovelace'))",
    "an error by name": "ours.error('%(why)s', {'why': ValueError('Ada Lovelace')})",
    "an error that led to another": (
        "try:\n  try: fail()\n  except ValueError as e: raise RuntimeError('Ada Lovelace') from e\n"
        "except RuntimeError: ours.exception('a fault')"
    ),
    "a thread": "one = threading.Thread(target=fail); one.start(); one.join()",
    "a task": (
        "async def main():\n"
        "    async def one(): fail()\n"
        "    task = asyncio.ensure_future(one())\n"
        "    await asyncio.sleep(0.01)\n"
        "    del task\n"
        "    import gc; gc.collect()\n"
        "asyncio.run(main())"
    ),
}


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("script", rest_is_slow(FAULTS.values(), first=2), ids=FAULTS)
def test_an_error_that_may_quote_a_row_is_named_and_not_quoted(
    log: Log, script: str, log_format: str
) -> None:
    written = "\n".join(log(log_format, script))
    assert "Error" in written
    assert SECRET not in written


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_nobody_catches_is_logged_too(log: Log, log_format: str) -> None:
    lines = log(log_format, "fail()", code=1)
    assert SECRET not in "\n".join(lines)
    if log_format == "json":
        (found,) = map(json.loads, lines)
        assert (found["error"], found["level"]) == ("ValueError", "critical")
        assert any(re.search(r":\d+ fail$", frame) for frame in found["trace"])
    else:
        assert " CRITICAL stream_dp.worker: the worker has a fault" in lines[0]
        assert lines[-1] == "ValueError"


def test_an_error_about_servers_is_quoted(log: Log) -> None:
    script = "try: raise OSError(111, 'Connection refused')\nexcept OSError: ours.exception('x')"
    assert log("text", script)[-1] == "ConnectionRefusedError: [Errno 111] Connection refused"
    assert '"reason": "[Errno 111] Connection refused"' in log("json", script)[0]


AUDITED = """
facts = {'analyst': 'ana', 'share': 0.001, 'query': '{"where":{}}'}
logging.getLogger('stream_dp.audit').info('%s', 'analyst=ana share=0.001', extra=facts)
"""


def test_the_audit_log_comes_at_every_level_with_its_fields_once_it_is_on(
    log: Log, objects: Objects
) -> None:
    assert objects("logging.getLogger().setLevel(logging.DEBUG)" + AUDITED) == []
    (found,) = objects("log.audit(on=True)" + AUDITED)
    del found["time"]
    line = {"level": "info", "logger": "stream_dp.audit", "message": "analyst=ana share=0.001"}
    assert found == {**line, "analyst": "ana", "share": 0.001, "query": '{"where":{}}'}
    (text,) = log("text", "log.audit(on=True)" + AUDITED)
    assert text.endswith(" INFO stream_dp.audit: analyst=ana share=0.001")


def test_what_the_operator_is_told_comes_at_every_level(log: Log, objects: Objects) -> None:
    script = "log.say('the worker answers'); log.complain('no broker')"
    assert log("text", script) == ["the worker answers", "error: no broker"]
    found = [(line["level"], line["message"]) for line in objects(script)]
    assert found == [("info", "the worker answers"), ("error", "no broker")]


def test_a_worker_that_cannot_start_says_so_in_json() -> None:
    servers = ["--bootstrap-servers", "127.0.0.1:9", "--redis-url", "redis://127.0.0.1:9/0"]
    words = [sys.executable, "-m", "stream_dp", "worker", *servers, "--log-format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["level"] == "error"
    assert "127.0.0.1:9" in lines[-1]["message"]
    assert {line["logger"] for line in lines} == {"stream_dp.worker"}
