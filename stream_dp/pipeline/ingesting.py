"""One batch of rows: check its structure, take it in, draft what follows. Knows no broker and no Faust."""

from __future__ import annotations

from stream_dp.core.dates import Moments
from stream_dp.core.universe import Repeated, Rows
from stream_dp.errors import InvalidBatch
from stream_dp.messages import Batch, Event, Reason
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.records import Outgoing, plain

__all__ = ["ingest", "resend"]

_AHEAD_MS = 86_400_000  # somewhere it is tomorrow already


async def ingest(dataset: Dataset, batch: Batch) -> bytes:
    """Accepts or refuses a batch that was not seen before; returns the outcome stored for its id."""
    try:
        rows = _encoded(dataset, batch)
    except InvalidBatch as error:
        return dataset.store_batch(
            Event(
                dataset=dataset.name,
                event="batch_refused",
                batch_id=batch.batch_id,
                reason=Reason(code=error.reason, message=plain(str(error))),
            )
        )
    return await dataset.accept(batch.batch_id, rows, batch.source, time=batch.time)


def resend(dataset: Dataset, stored: bytes) -> None:
    """Announces the outcome of a known batch id again, whatever the repeated batch holds."""
    dataset.release(Outgoing("events", dataset.name, stored))


def _check_time(dataset: Dataset, batch: Batch) -> None:
    """Refuses a batch about a time to come: with it all periods before that time would have ended."""
    span = dataset.times.span(batch.time, dataset.dated_ms)
    if batch.time is None or span is None or dataset.dated_ms < 0:
        return
    if span.since > dataset.dated_ms + _AHEAD_MS:
        raise InvalidBatch(
            "time",
            "it is more than a day after the time of its record",
            "send the time that the rows are about",
        )


def _encoded(dataset: Dataset, batch: Batch) -> Rows:
    if dataset.retired:
        raise InvalidBatch("dataset", "this data set was retired", "send to another data set")
    _check_time(dataset, batch)
    persons = dataset.persons(batch.batch_id)
    if batch.columns is not None:
        if not all(
            isinstance(column, list | Repeated | Moments) for column in batch.columns.values()
        ):
            raise InvalidBatch("columns", "a column is not a list", "give a list of values")
        rows = dataset.universe.encode_columns(batch.columns, persons)
    elif batch.rows is not None:
        rows = dataset.universe.encode_rows(batch.rows, persons)
    elif persons is not None:
        raise InvalidBatch(
            "cells", "rows that are only counted do not say whose they are", "send rows or columns"
        )
    elif dataset.in_order:
        # A row that moves from one cell to another would shift all rows between them by one place.
        raise InvalidBatch(
            "cells",
            "this data set answers row by row, and rows that are only counted have no order",
            "send rows or columns",
        )
    else:
        assert batch.cells is not None, "a batch has exactly one form"
        rows = dataset.universe.encode_cells(batch.cells)
    most = dataset.universe.max_rows  # sums of rows stay exact in int64
    if dataset.waiting + rows.n_rows > most:
        raise InvalidBatch(
            "cells", "more rows than one phase can hold", f"stay below {most:,} rows a phase"
        )
    return rows
