"""Events and rejections in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stream_dp.display.answer_words import few_of, late_rows
from stream_dp.display.phase_words import between, moment
from stream_dp.messages import Event, Proposal, Rejected

_EVENTS: Final = {
    "dataset_accepted": "is defined",
    "dataset_retired": "is retired: its rows are erased",
    "batch_refused": "batch refused",
    "batch_known": "batch counted before",
    "phase_closed": "its period is closed",
    "quarantined": "is in quarantine",
    "repaired": "is served again",
    "stopped": "is stopped",
    "rows_lost": "goes on without rows that are lost",
    "written_off": "goes on; its rows up to then are written off",
    "analysts_changed": "allows other shares to its analysts",
    "bounds_proposed": "proposes no bins",
    "changes_lost": "has lost changes before they were made; send them again under another id: batch",
}


def event_line(event: Event) -> str:
    """One event in words."""
    words = _EVENTS.get(event.event, event.event)
    if event.event == "phase_opened":
        words = f"phase {event.phase} opened with {event.rows:,} rows"
        if dates := between(event.since, event.until):
            words += f", {dates}"
        if event.late_batches:
            words += f"; {event.late_batches:,} of its batches are late"
    elif event.event == "phase_complete":
        words = f"phase {event.phase} is complete, with {event.rows:,} late rows"
    elif event.event == "schema_changed":
        words = (
            f"has version {event.schema_version} of its attributes from phase {event.phase:,} on"
        )
    elif event.event == "values_found":
        words = f"phase {event.phase:,} has found values, {event.values:,} in number"
    elif event.event == "bounds_proposed" and event.edges is not None:
        words = f"proposes {len(event.edges) + 1} bins for {event.attribute}, {range_words(event)}"
    elif event.event == "swept":
        words = f"sweep {event.sweep:,} has made {event.changes:,} changes of rows"
    elif event.event == "batch_accepted":
        words = _accepted(event)
    elif event.event == "alert":
        cells = "" if event.cells is None else f" ({few_of(event.cells)})"
        since = f"until {event.until}" if event.until else f"since phase {event.since_phase}"
        words = f"alert: {event.query_id} of {event.analyst}{cells}, {since}"
    elif event.batch is not None:
        words += f" {event.batch}"
    elif event.note is not None:
        words += f"; {event.note}"
    return f"{words}: {event.reason.message}" if event.reason is not None else words


def _accepted(event: Event) -> str:
    """Says of a batch that was accepted how many rows it has, and how many it changes."""
    words = f"{event.rows:,} rows taken in (batch {event.batch}), {event.waiting:,} wait"
    if event.late:
        words += f"; they are late, {where_late(event)}"
    if event.changes:
        words += f"; {event.changes:,} changes of rows are made by {moment(event.due or '')}"
    return words


def late_lines(rows: Mapping[int | None, int]) -> Iterator[str]:
    """Says how many rows came late, and where they go.

    Args:
        rows: How many come to each phase; to None those that are in the phase that opens next.
    """
    own = {phase: n for phase, n in rows.items() if phase is not None}
    if own:
        first, last = min(own), max(own)
        phases = f"phase {first:,}" if first == last else f"phases {first:,} to {last:,}"
        yield f"{late_rows(sum(own.values()))} will count in {phases}, each when it is complete"
    if other := rows.get(None):
        yield f"{late_rows(other)} will count in the phase that opens next"


def where_late(event: Event) -> str:
    """Says where the rows of a late batch go."""
    about = f"about {between(event.since, event.until)}" if event.since else "of an earlier period"
    if event.late_phase is None:
        return f"{about}, and count in the phase that opens next"
    return f"{about}, and come to phase {event.late_phase:,}"


def range_words(proposed: Event | Proposal) -> str:
    """Says between what bounds a number lies, by what proposes them."""
    return f"between about {proposed.low:,.6g} and {proposed.high:,.6g}"


def rejection_line(rejected: Rejected) -> str:
    """One rejection in words, with the position of the record."""
    position = f"{rejected.topic}[{rejected.partition}]@{rejected.offset}"
    return f"rejected {position}: {rejected.reason.message}"
