"""What ``ingest`` says of batches that were counted long before, and asks about the time of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.use.ingest_command import _checked_time, _counted_before, _report
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition, Event
from tests.pipeline.world import definition

KNOWN = Event(dataset="flights", event="batch_known", batch_id="p-0-10", waiting=7, phase=1)


class Told:
    """A client whose broker keeps these events."""

    def __init__(self, *events: Event) -> None:
        self._events = events

    def batch_events(self, dataset: str) -> list[Event]:
        return [event for event in self._events if event.dataset == dataset]


def test_a_batch_that_is_known_to_count_was_counted_before() -> None:
    later = KNOWN.model_copy(update={"event": "batch_accepted", "batch_id": "p-10-15"})
    refused = KNOWN.model_copy(update={"event": "batch_refused", "batch_id": "p-15-20"})
    counted = KNOWN.model_copy(update={"batch_id": None, "producer": "p-15-20", "sequence": 1})
    client: Any = Told(KNOWN, later, refused, counted)
    assert _counted_before(client, "flights", "p") == 15
    assert _counted_before(client, "trains", "p") == 0


def test_the_report_says_how_many_rows_were_counted_and_how_many_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rows that open a phase right now do not wait."""
    for every in ({}, {"every": "1 day"}):
        flights = Definition.read(definition("flights", phase={"min_rows": 5, **every}))
        source = RowFile(Path("a.csv"), flights, 100)
        for done, close, said in (
            (10, False, "all 10 rows of a.csv were counted before; none counts again\n"),
            (4, False, "6 rows of a.csv are counted (4 were counted before)\n"),
            (
                0,
                True,
                "10 rows of a.csv are counted\nask with: stream-dp ask flights --group-by carrier\n",
            ),
        ):
            _report(source, flights, 10, done, KNOWN, {}, close=close)
            out = capsys.readouterr().out
            assert out.startswith(said)
            assert ("7 rows wait" in out) is not close


def test_at_a_terminal_the_command_asks_whether_undated_rows_are_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_day = Definition.read(definition("days", phase={"min_rows": 10, "every": "1 day"}))
    by_rows = Definition.read(definition("days", phase={"min_rows": 10}))
    monkeypatch.setattr("stream_dp.cli.terminal.is_attended", lambda: True)
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> None:
        asked.append(question)
        if len(asked) > 1:
            raise click.Abort

    monkeypatch.setattr("click.confirm", confirm)
    assert _checked_time(by_day, "now", None) is None
    assert _checked_time(by_day, "2026-11-01", None) == "2026-11-01"
    assert _checked_time(by_day, None, "seen") is None
    assert _checked_time(by_rows, None, None) is None
    assert asked == [], "nobody is asked who says when the rows were"
    assert _checked_time(by_day, None, None) is None
    assert "Do they belong to the period of today?" in asked[0]
    with pytest.raises(click.Abort):
        _checked_time(by_day, None, None)
    with pytest.raises(InvalidInput, match="--time is given too"):
        _checked_time(by_day, "2026-11-01", "seen")
