"""What ``ingest`` says of batches that were counted long before, and asks about the time of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from stream_dp.cli.use.ingest_command import _checked_time, _counted_before, _report
from stream_dp.display.event_words import event_line
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


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (10, "all 10 rows of a.csv were counted before; none counts again\n"),
        (4, "6 rows of a.csv are counted (4 were counted before)\n"),
        (0, "10 rows of a.csv are counted\n"),
    ],
)
def test_the_report_says_how_many_rows_were_counted_before(
    capsys: pytest.CaptureFixture[str], done: int, words: str
) -> None:
    flights = Definition.read(definition("flights"))
    _report(flights, Path("a.csv"), 10, done, KNOWN, close=False)
    assert capsys.readouterr().out.startswith(words)


@pytest.mark.parametrize("phase", [{"min_rows": 5}, {"min_rows": 5, "every": "1 day"}])
def test_rows_that_open_a_phase_right_now_are_not_said_to_wait(
    capsys: pytest.CaptureFixture[str], phase: dict[str, Any]
) -> None:
    flights = Definition.read(definition("flights", phase=phase))
    said = []
    for close in (False, True):
        _report(flights, Path("a.csv"), 10, 0, KNOWN, close=close)
        said.append(capsys.readouterr().out)
    assert "7 rows wait" in said[0]
    assert (
        said[1]
        == "10 rows of a.csv are counted\nask with: stream-dp ask flights --group-by carrier\n"
    )


def test_an_event_names_a_batch_by_its_id_or_by_its_producer_and_number() -> None:
    assert event_line(KNOWN) == "batch counted before p-0-10"
    counted = {"batch_id": None, "producer": "till-7", "sequence": 12}
    assert event_line(KNOWN.model_copy(update=counted)) == "batch counted before till-7 12"
    accepted = KNOWN.model_copy(update={**counted, "event": "batch_accepted", "rows": 3})
    assert event_line(accepted) == "3 rows taken in (batch till-7 12), 7 wait"


def by_calendar(every: str | None = "1 day") -> Definition:
    phase = {"min_rows": 10} if every is None else {"min_rows": 10, "every": every}
    return Definition.read(
        {
            "version": 1,
            "dataset": "days",
            "attributes": [{"name": "late", "type": "boolean"}],
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": phase,
        }
    )


@pytest.mark.parametrize("answer", [True, False])
def test_at_a_terminal_the_command_asks_whether_undated_rows_are_of_today(
    monkeypatch: pytest.MonkeyPatch, *, answer: bool
) -> None:
    asked: list[str] = []

    def confirm(question: str, *, abort: bool, err: bool) -> bool:
        assert abort
        assert err
        asked.append(question)
        if not answer:
            raise click.Abort
        return True

    monkeypatch.setattr("click.confirm", confirm)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    if answer:
        assert _checked_time(by_calendar(), None, None) is None
    else:
        with pytest.raises(click.Abort):
            _checked_time(by_calendar(), None, None)
    assert len(asked) == 1
    assert "Do they belong to the period of today?" in asked[0]
    assert _checked_time(by_calendar(), "now", None) is None
    assert _checked_time(by_calendar(), "2026-11-01", None) == "2026-11-01"
    assert _checked_time(by_calendar(), None, "seen") is None
    assert _checked_time(by_calendar(None), None, None) is None
    assert len(asked) == 1, "nobody is asked who says when the rows were"


def test_with_a_time_and_a_column_of_times_one_is_too_much() -> None:
    with pytest.raises(InvalidInput, match="--time is given too"):
        _checked_time(by_calendar(), "2026-11-01", "seen")
