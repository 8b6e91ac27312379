"""What ``ingest`` says of batches that were counted long before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.ingest import _counted_before, _report
from stream_dp.cli.rendering import event_line
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
    _report(Definition.read(definition("flights")), Path("a.csv"), 10, done, KNOWN)
    assert capsys.readouterr().out.startswith(words)


def test_an_event_names_a_batch_by_its_id_or_by_its_producer_and_number() -> None:
    assert event_line(KNOWN) == "batch counted before p-0-10"
    counted = {"batch_id": None, "producer": "till-7", "sequence": 12}
    assert event_line(KNOWN.model_copy(update=counted)) == "batch counted before till-7 12"
    accepted = KNOWN.model_copy(update={**counted, "event": "batch_accepted", "rows": 3})
    assert event_line(accepted) == "3 rows taken in (batch till-7 12), 7 wait"
