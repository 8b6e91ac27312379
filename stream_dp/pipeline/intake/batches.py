"""One batch of rows: check its structure, take it in, draft what follows. Knows no broker and no Faust."""

from __future__ import annotations

from typing import Final

from stream_dp.core.running.tick_counts import MOST_ROWS
from stream_dp.errors import InvalidBatch
from stream_dp.messages import Batch, Reason
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.records import Outgoing, plain
from stream_dp.pipeline.journal.contents import TAKEN
from stream_dp.pipeline.rows.waiting.waiting_rows import Taken

UNREADABLE: Final = {
    "framed": (
        "it has stopped: its messages are framed by a schema registry, so they are not JSON objects",
        "write plain JSON objects to a topic, and read that one",
    ),
    "no_keys": (
        "it has stopped: its events do not say whose rows they remove",
        "write whole rows to before: in PostgreSQL, ALTER TABLE ... REPLICA IDENTITY FULL",
    ),
    "no_objects": (
        "it has stopped: its messages are not JSON objects",
        "write JSON objects to a topic, and read that one",
    ),
}
"""Why a source has stopped -> the fault and its fix."""

_AHEAD_MS = 86_400_000  # somewhere it is tomorrow already


async def ingest(dataset: Dataset, batch: Batch) -> tuple[bool, bytes | None]:
    """Accepts or refuses a batch that was not seen before.

    Returns:
        Whether it is done. If not, a phase has opened of a period that had ended, and the batch comes after
        that. And its outcome, if that is kept under the id of the batch.
    """
    try:
        taken = _encoded(dataset, batch)
    except InvalidBatch as error:
        reason = Reason(code=error.reason, message=plain(str(error)))
        if batch.source is not None:
            # The reader packs the same range under the same id until it counts.
            dataset.draft.announce("batch_refused", **batch.named, reason=reason)
            return True, None
        return True, dataset.rows.waiting.store_outcome(batch, "batch_refused", reason=reason)
    span = None
    if batch.has_rows or not batch.changes:  # a change is of rows that came before, whenever it was
        span = dataset.engine.times.span(batch.time, dataset.draft.dated_ms)
    if await dataset.phases.close_ended(span):
        return False, None
    return True, await dataset.phases.accept(batch, taken, span)


def resend(dataset: Dataset, batch: Batch, stored: bytes) -> None:
    """Announces the outcome of a known batch id again, whatever the repeated batch holds."""
    if stored == TAKEN:
        known_before(dataset, batch)
    else:
        dataset.draft.release(Outgoing("events", dataset.name, stored))


def known_before(dataset: Dataset, batch: Batch) -> None:
    """Announces that a batch counts already, of which no outcome is kept, whatever this one holds."""
    note, following = "it was taken in before, and its outcome is not kept any more", None
    if batch.producer is not None and batch.counted is not None:
        following = dataset.draft.cursor[batch.counted.key]
        note = f"those of this producer below {following} were taken in before, or are left out"
    dataset.draft.announce(
        "batch_known",
        **batch.named,
        next_sequence=following,
        waiting=dataset.rows.waiting.n_rows_to_come,
        phase=dataset.phase,
        note=note,
    )


def _check_time(dataset: Dataset, batch: Batch) -> None:
    """Refuses a batch about a time to come: with it all periods before that time would have ended."""
    span = dataset.engine.times.span(batch.time, dataset.draft.dated_ms)
    if batch.time is None or span is None or dataset.draft.dated_ms < 0:
        return
    if span.since > dataset.draft.dated_ms + _AHEAD_MS:
        raise InvalidBatch(
            "time",
            "it is more than a day after the time of its record",
            "send the time that the rows are about",
        )


def _encoded(dataset: Dataset, batch: Batch) -> Taken:
    if dataset.retired:
        raise InvalidBatch("dataset", "this data set was retired", "send to another data set")
    _check_time(dataset, batch)
    if batch.unreadable is not None:
        raise InvalidBatch("source", *UNREADABLE[batch.unreadable], reason="source_unreadable")
    taken = dataset.rows.waiting.taken_of(batch)
    most = dataset.universe.max_rows  # sums of rows stay exact in int64
    if dataset.mechanism.running is not None:
        most = min(most, MOST_ROWS)
    if dataset.rows.waiting.n_rows + taken.rows.n_rows > most:
        raise InvalidBatch(
            "cells", "more rows than one phase can hold", f"stay below {most:,} rows a phase"
        )
    return taken
