"""Defining a data set, changing its attributes and who may ask it, closing a phase, and retiring it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.kafka.session import Session
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.published_records import catalog, definition_in, ledger
from stream_dp.messages import ChangeAnalysts, ChangeSchema, Definition, Event


def define(
    session: Session, definition: Mapping[str, Any], *, timeout_s: float = 30.0
) -> Definition:
    """Creates a data set and waits until it is accepted. The same definition again changes nothing.

    A note of the worker becomes a ``UserWarning``.

    Returns:
        The definition that is in force, with the newest attributes.

    Args:
        definition: The definition, see docs/messages.md. You may omit ``version``.
        timeout_s: The seconds to wait for the worker.

    Raises:
        InvalidDefinition: The definition is not valid. The error names the field and the fix.
        Rejection: The worker refuses it, for example because the name is taken.
        RequestTimeout: No worker replied.
    """
    checked = Definition.read({"version": 1, **definition}, quoting=True)
    checked.check_new()
    name = checked.dataset
    accepted = _changed(session, name, checked.to_bytes(), "dataset_accepted", timeout_s)
    session.definitions[name] = newest = catalog(session).get(name, checked)
    if accepted.note is not None:
        warnings.warn(accepted.note, stacklevel=4)  # where the client's method was called
    return newest


def retire(session: Session, dataset: str, *, timeout_s: float = 30.0) -> None:
    """Erases the rows of a data set and retires its name for ever."""
    _changed(session, dataset, None, "dataset_retired", timeout_s)


def change_analysts(
    session: Session,
    dataset: str,
    analysts: Mapping[str, Any],
    *,
    owner: Mapping[str, Any] | None = None,
    timeout_s: float = 30.0,
) -> Event:
    """Replaces what is allowed to whom, from the next query on. What was spent stays spent.

    Args:
        dataset: The name of the data set.
        analysts: What is allowed to each name or pattern, as ``analysts`` of a definition. Nobody else may
            ask.
        owner: What is kept for the owner, as ``owner`` of a definition. Default: nothing.
        timeout_s: The seconds to wait for the worker.

    Returns:
        The event ``analysts_changed``.

    Raises:
        InvalidMessage: The shares are not valid. The error names the field and the fix.
        Rejection: The worker refuses them, for example because too little is left for opening a phase.
        RequestTimeout: No worker replied.
    """
    rules = {"analysts": analysts} if owner is None else {"analysts": analysts, "owner": owner}
    change = ChangeAnalysts.said_in(dataset, rules)
    return _changed(session, dataset, change.to_bytes(), "analysts_changed", timeout_s)


def change_schema(
    session: Session,
    dataset: str,
    attributes: Sequence[Mapping[str, Any]],
    *,
    timeout_s: float = 30.0,
) -> Event:
    """Puts other attributes in force, from the first phase on of which no row has come.

    Rows of older phases stay as they are, and answers say what these do not tell. Nothing is spent. The
    attributes that are in force already change nothing.

    Args:
        dataset: The name of the data set.
        attributes: All attributes, as in a definition: those of before, and what changes.
        timeout_s: The seconds to wait for the worker.

    Returns:
        The event ``schema_changed``, with the number of the version and the first phase that has it.

    Raises:
        InvalidDefinition: The attributes are not valid. The error names the field and the fix.
        Rejection: The worker refuses them, for example because an attribute has another type.
        RequestTimeout: No worker replied.
    """
    known = definition_in(catalog(session), dataset)
    number = known.schema_version + 1
    document = {"version": 1, "dataset": dataset, "change": "schema", "schema_version": number}
    change = ChangeSchema.read({**document, "attributes": list(attributes)}, quoting=True)
    if change.attributes == known.attributes:
        newest = known.schema_versions[-1]
        return Event(
            dataset=dataset,
            event="schema_changed",
            schema_version=newest.schema_version,
            phase=newest.first_phase,
        )
    event = _changed(session, dataset, change.to_bytes(), "schema_changed", timeout_s)
    if event.phase is not None:
        session.definitions[dataset] = known.changed(change, event.phase)
    return event


def close_phase(session: Session, dataset: str, *, timeout_s: float = 30.0) -> Event:
    """Ends the period that is open, so that the waiting rows open a phase now.

    Where phases open by rows, it opens a phase of those that wait. Both need a quarter of
    ``phase.min_rows``, or all of them where ``privacy.delta`` is above 1/(100 rows).

    Send it after the batches of the period were accepted. Batches about a closed period are late, and join
    the next phase.

    Returns:
        The event ``phase_closed``, with the phase that it opens and the time that this covers.

    Raises:
        Rejection: Fewer rows wait than open a phase.
        RequestTimeout: No worker replied.
    """
    # The number of the phase keeps a repeated message from closing the next period too.
    phase = len(Odometer.read(ledger(session, dataset)).blocks) + 1
    value = to_json({"version": 1, "dataset": dataset, "close": True, "phase": phase})
    return _changed(session, dataset, value, "phase_closed", timeout_s)


_WHAT: Final = {
    "dataset_accepted": "the definition",
    "dataset_retired": "the retirement",
    "analysts_changed": "the change",
    "schema_changed": "the change",
    "phase_closed": "the closing",
}
"""What leads to an event, as an error names it."""


def _changed(
    session: Session, dataset: str, value: bytes | None, event: str, timeout_s: float
) -> Event:
    """Sends a change and returns the event that it leads to."""
    key = ("event", dataset, event)
    reply: Event = session.request(key, value, what=_WHAT[event], timeout_s=timeout_s).wait()
    return reply
