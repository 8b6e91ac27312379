"""Batches of rows, from the forms that a producer has to the event that accepts them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from stream_dp.calendar_periods import span_of, zone_of
from stream_dp.client.kafka.session import Session
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.published_records import catalog, definition
from stream_dp.client.rows import frames
from stream_dp.client.rows.unread_values import Sent, unread_values
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, Event

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def send(
    session: Session,
    dataset: str,
    *,
    rows: Sequence[Mapping[str, object]] | None = None,
    columns: Mapping[str, Sequence[object]] | None = None,
    cells: Sequence[Mapping[str, object]] | None = None,
    frame: pd.DataFrame | None = None,
    arrow: pa.Table | pa.RecordBatch | None = None,
    batch_id: str | None = None,
    producer: str | None = None,
    sequence: int | None = None,
    at: str | date | datetime | None = None,
    timeout_s: float = 30.0,
) -> Sent:
    """Sends one batch in one of five forms and waits until it is durable.

    NaN and None are missing values. Numpy numbers, decimals and dates become plain JSON values. Where persons
    are protected, the column that says whose row it is comes with the attributes. A row without it counts
    nowhere.

    Args:
        dataset: The name of the data set.
        rows: The rows, each a mapping of attribute to value.
        columns: The columns, each a sequence of values of the same length.
        cells: The number of rows in each cell, see docs/messages.md.
        frame: A pandas data frame. Only the columns that the definition declares are sent.
        arrow: An Arrow table, of which only the declared columns are sent. The stream is smaller and faster.
            It needs the extra ``arrow`` here and on the worker.
        batch_id: The id of the batch. The rows count once if you send it again. Default: a new id.
        producer: The name of a producer that counts its batches. It stands in place of an id.
        sequence: The number of the batch among those of its producer. The first one may be any; after that
            each one must be the next. See ``next_sequence``.
        at: The time that the rows are about: a date, or a date and time with an offset. Default: the time at
            which the broker gets them.
        timeout_s: The seconds to wait for the worker.

    Returns:
        The event ``batch_accepted``, with the rows taken, the rows waiting and the phases opened. Or
        ``batch_known``, without the rows taken, if the batch was taken in before and that is no longer told
        of it. Its ``unread`` says how many values of which columns cannot be read. These counts are exact and
        never leave this process: show them to nobody who may not see the rows.

    Raises:
        InvalidInput: Not one form or not one name is given, a column is missing, or it exceeds one record.
        Rejection: The batch was refused. No row was taken. Its code is ``not_next`` if the number is not the
            next one, and ``rejected.next_sequence`` is then the one that is.
        RequestTimeout: No worker replied.
    """
    given = {"rows": rows, "columns": columns, "cells": cells, "frame": frame, "arrow": arrow}
    form = {name: value for name, value in given.items() if value is not None}
    name = _name(batch_id, producer, sequence)
    return _sent(session, dataset, form, name, at, timeout_s)


def _name(batch_id: str | None, producer: str | None, sequence: int | None) -> dict[str, str | int]:
    """Returns the fields that name a batch.

    Raises:
        InvalidInput: It has two names, or half of one.
    """
    if producer is None and sequence is None:
        return {"batch_id": batch_id or uuid.uuid4().hex}
    if producer is None or sequence is None or batch_id is not None:
        raise InvalidInput(
            "batch", "it has no name, or two", "pass batch_id, or producer and sequence"
        )
    return {"producer": producer, "sequence": sequence}


def _sent(
    session: Session,
    dataset: str,
    form: Mapping[str, Any],
    name: Mapping[str, str | int],
    at: str | date | datetime | None,
    timeout_s: float,
) -> Sent:
    """Sends a batch, and returns its event with what only its sender may know."""
    if len(form) != 1:
        raise InvalidInput(
            "batch",
            f"{' and '.join(form) or 'none'} of rows, columns, cells, frame and arrow given",
            "pass exactly one",
        )
    about = name if at is None else {**name, "time": time_of_batch(at)}
    headers: list[tuple[str, bytes]] = []
    if "arrow" in form:
        given = form["arrow"]
        named = given.schema.names if hasattr(given, "schema") else ()
        value = frames.arrow_stream(given, _columns(session, dataset, named))
        headers = [("content-type", frames.ARROW)]
        headers += [(field, str(said).encode()) for field, said in about.items()]
    else:
        if "frame" in form:
            names = _columns(session, dataset, list(map(str, form["frame"].columns)))
            form = {"columns": frames.frame_columns(form["frame"], names)}
        value = to_json({"version": 1, "dataset": dataset, **about, **form})
    limit = TOPICS["batches"].max_value_bytes
    if len(value) > limit:
        raise InvalidInput(
            "batch", f"{len(value):,} bytes are more than {limit:,}", "send fewer rows a batch"
        )
    # Only a worker knows whether there is such a data set: another one may just be defining it.
    known = session.definitions.get(dataset) or catalog(session).get(dataset)
    told = " ".join(map(str, name.values()))
    key = ("batch", dataset, told)
    event: Event = session.request(
        key, value, headers, what=f"batch {told}", timeout_s=timeout_s
    ).wait()
    unread = () if known is None else unread_values(known, form)
    return Sent.model_construct(event.model_fields_set, **dict(event), unread=unread)


def _columns(session: Session, dataset: str, given: Sequence[str]) -> list[str]:
    """Returns the names of the columns that a batch needs, by those that are there."""
    found = definition(session, dataset)
    names = list[str]()
    for attribute in found.attributes:
        name = next((name for name in attribute.names if name in given), attribute.name)
        if name in given or name not in found.optional:
            names.append(name)
    return [*names, *found.row_keys]


def time_of_batch(at: str | date | datetime, *, field: str = "at") -> str:
    """Returns a time as a batch names it.

    Args:
        at: The time.
        field: The argument or option that says it, as an error names it.

    Raises:
        InvalidInput: It is not a time, or has no offset.
    """
    text = at if isinstance(at, str) else at.isoformat()
    try:
        span_of(text, zone_of(None))
    except ValueError as error:
        problem, _, fix = str(error).partition(": ")
        raise InvalidInput(field, problem, fix) from None
    return text
