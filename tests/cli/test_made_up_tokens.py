"""A token that a worker makes up for its pages is shown on a terminal, and is in no log."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.cli.operate import worker_command
from stream_dp.cli.operate.worker_log import Log
from stream_dp.settings import worker_settings
from stream_dp.web.access import Access

GIVEN = "a-token-that-was-given"


def said(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, access: Access, *, terminal: bool, log_format: str
) -> str:
    """What a worker writes about its pages once it answers."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    settings = worker_settings(web_bind="0.0.0.0", log_format=log_format)
    app: Any = SimpleNamespace(runtime=SimpleNamespace(ready=True))
    log = Log("warn", as_json=log_format == "json")
    worker_command._say_when_ready(log, app, settings, access)
    return str(capfd.readouterr().err)


@pytest.mark.parametrize(
    ("terminal", "log_format", "shown"),
    [(True, "text", True), (True, "json", False), (False, "text", False), (False, "json", False)],
)
def test_only_a_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, terminal: bool, log_format: str, shown: bool
) -> None:
    access = Access("0.0.0.0", 6066, analyst_token=GIVEN)
    text = said(monkeypatch, capfd, access, terminal=terminal, log_format=log_format)
    assert (access.tokens["operator"] in text) == shown
    assert ("set STREAM_DP_WEB_OPERATOR_TOKEN" in text) != shown
    assert GIVEN not in text
    assert "analysts enter by http://localhost:6066/ with the token you set" in text
