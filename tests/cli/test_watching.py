"""``watch`` without servers: what it prints of each message that comes."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from stream_dp.cli.command_options import GivenServers
from tests.client.world_client import QuietSession, SessionClient
from tests.display.test_running_words import ticked
from tests.waiting import until


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_running_totals_are_shown_as_they_come(
    run: Any, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    session, tick = QuietSession(), ticked()
    monkeypatch.setattr(GivenServers, "client", lambda _: SessionClient(session))

    def tell() -> None:
        until(lambda: bool(session.mailbox._followers))
        session.mailbox.deliver("running", b"of another release")
        session.mailbox.deliver("running", tick.to_bytes())
        session.mailbox.close()

    telling = threading.Thread(target=tell)
    telling.start()
    ended = run("watch", *options)
    telling.join()
    assert ended.code == 0, ended.err
    (line,) = ended.out.splitlines()
    if options:
        assert json.loads(line) == json.loads(tick.to_bytes())
    else:
        assert line.split("  ", 1)[1].startswith("orders  2026-11-21 until 12:00: 9,875 rows; paid")
