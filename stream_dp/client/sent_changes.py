"""Changes of rows that came before: persons who are erased, rows that are corrected, and the receipts.

A request is sent as batches without rows. A sweep makes all changes that wait, at a public time, and the
ledger has its signed receipt.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

from stream_dp.client.kafka.mailbox import CLOSED, Reply
from stream_dp.client.kafka.session import Session
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.published_records import batch_events, definition, ledger
from stream_dp.errors import InvalidInput, RequestTimeout, StreamDPError
from stream_dp.messages import TOPICS, ClockRecord, Event
from stream_dp.messages.definition.promise_specs import ErasureSpec
from stream_dp.receipts import SIGNED, is_signed

_AT_ONCE: Final = 10_000
"""The most entries of a batch."""
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class AcceptedChanges:
    """Changes that were accepted, and will be made.

    Attributes:
        dataset: The name of the data set.
        events: The event of each batch of the request, in order.
    """

    dataset: str
    events: tuple[Event, ...]

    @property
    def change_numbers(self) -> tuple[int, ...]:
        """The number of each batch of the request, for ``Client.receipt``."""
        return tuple(
            event.change_number for event in self.events if event.change_number is not None
        )

    @property
    def due(self) -> str | None:
        """When the sweep begins that makes the changes. None if they were made before."""
        return self.events[-1].due


def erase(
    session: Session,
    dataset: str,
    persons: Iterable[object],
    *,
    forget: bool = False,
    batch_id: str | None = None,
    timeout_s: float = 30.0,
    on_accepted: Callable[[Event], object] = lambda _: None,
) -> AcceptedChanges:
    """Has persons erased with all rows that came before, wherever workers keep them.

    Nobody is told whether a person was there. Rows that they send later count. Published numbers stay, and
    so do your source and your backups.

    Args:
        dataset: The name of the data set. Its definition has ``erasure``.
        persons: The keys of the persons, as in the column that says whose a row is. None stands for nobody,
            and hides how many there are.
        forget: Where the promise is for life, whether it is forgotten, too, how much of it they have used.
            Who comes back then has the whole promise again.
        batch_id: The id of the request, after which its batches are named. It is done once if you send it
            again. Default: a new id.
        timeout_s: The seconds to wait for the worker, for each 10,000 persons.
        on_accepted: A function that receives the event of each batch of the request.

    Returns:
        The events, and when the sweep begins that erases these persons. See ``receipt``.

    Raises:
        InvalidInput: There is no such data set, nobody can be erased from it, or nobody is named.
        Rejection: A batch was refused. Those before it were accepted.
        RequestTimeout: No worker replied.
    """
    _erasure(session, dataset)
    more = {"forget": True} if forget else {}
    return _changed(session, dataset, "erase", [*persons], batch_id, timeout_s, on_accepted, **more)


def correct(
    session: Session,
    dataset: str,
    changes: Iterable[Mapping[str, object] | None],
    *,
    batch_id: str | None = None,
    timeout_s: float = 30.0,
    on_accepted: Callable[[Event], object] = lambda _: None,
) -> AcceptedChanges:
    """Has rows that came before corrected or erased, one by one, by keys of their own.

    Nobody is told whether a row was there.

    Args:
        dataset: The name of the data set. Its definition has ``erasure.row``.
        changes: Mappings with ``person`` and ``row``, the keys of both, and with ``set``, the row as it is to
            be, or with ``"erase": True``. None stands for no row, and hides how many there are.
        batch_id: The id of the request, as of ``erase``, and so are the other arguments.
        timeout_s: The seconds to wait for the worker, for each 10,000 rows.
        on_accepted: A function that receives the event of each batch of the request.

    Returns:
        The events, and when the sweep begins that makes the changes. See ``receipt``.

    Raises:
        InvalidInput: There is no such data set, its rows cannot be corrected, or no row is named.
        Rejection: A batch was refused, for example because of its form. Those before it were accepted.
        RequestTimeout: No worker replied.
    """
    if _erasure(session, dataset).row is None:
        raise InvalidInput(
            "dataset",
            f"the rows of {dataset} have no keys of their own",
            "erase persons, or define another data set with erasure.row",
        )
    return _changed(session, dataset, "correct", [*changes], batch_id, timeout_s, on_accepted)


def sweep(session: Session, dataset: str, *, timeout_s: float = 30.0) -> None:
    """Has the changes that wait made now, in place of when they are due. See ``receipt``.

    Args:
        dataset: The name of the data set. Its definition has ``erasure``.
        timeout_s: The seconds to wait for the broker.

    Raises:
        InvalidInput: There is no such data set, or its rows cannot be changed.
        ServerUnavailable: The broker does not reply.
    """
    _erasure(session, dataset)
    now = ClockRecord(dataset=dataset, sweep=True)
    session.put("batches", dataset, now.to_bytes(), timeout_s=timeout_s)


def receipt(
    session: Session, dataset: str, *change_numbers: int, timeout_s: float | None = None
) -> Event:
    """Waits until changes are made, checks the signature of the receipt, and returns the receipt.

    A sweep begins within a third of ``erasure.within``, so this may wait for hours. The receipt is the same
    whether or not the rows were there.

    Args:
        dataset: The name of the data set.
        change_numbers: The numbers of the accepted batches, see ``AcceptedChanges.change_numbers``.
        timeout_s: The seconds to wait. None waits until the receipt is there.

    Returns:
        The event ``swept`` of the sweep that made the last of these changes.

    Raises:
        InvalidInput: There is no such data set, or its rows cannot be changed.
        RequestTimeout: No sweep has made the changes in this time.
        StreamDPError: Changes were lost before they were made, or the signature is not the data set's own.
    """
    _erasure(session, dataset)
    if not change_numbers:
        raise InvalidInput("change_numbers", "there is none", "pass those of accepted batches")
    end = None if timeout_s is None else time.monotonic() + timeout_s
    arrived, found = SimpleQueue[Reply | None](), None
    with session.subscribe(arrived.put):
        is_open, swept = True, False
        while is_open and (found := _receipt(session, dataset, change_numbers)) is None:
            if end is not None and time.monotonic() >= end:
                raise RequestTimeout(
                    f"no sweep of {dataset} has made change {max(change_numbers)} within {timeout_s:g} s; "
                    "wait longer, or ask for the receipt later"
                )
            if swept:  # the ledger is another topic, and has it in a moment
                time.sleep(_PAUSE_S)
            else:
                is_open, swept = _heard(arrived, dataset, max(change_numbers), end)
    if found is None:
        raise StreamDPError(CLOSED)
    return found


def _changed(
    session: Session,
    dataset: str,
    field: str,
    entries: Sequence[object],
    batch_id: str | None,
    timeout_s: float,
    on_accepted: Callable[[Event], object],
    **more: object,
) -> AcceptedChanges:
    """Sends entries in as many batches as they need."""
    if not entries:
        problem, fix = "it names nobody and nothing", "name at least one, or None for a blank one"
        raise InvalidInput(field, problem, fix)
    events = []
    for name, value in _batches(dataset, field, entries, batch_id or uuid.uuid4().hex, more):
        key = ("batch", dataset, name)
        event: Event = session.request(key, value, what=f"batch {name}", timeout_s=timeout_s).wait()
        if event.event == "changes_lost":
            raise _lost(event.dataset)
        events.append(event)
        on_accepted(event)
    return AcceptedChanges(dataset, tuple(events))


def _batches(
    dataset: str,
    field: str,
    entries: Sequence[object],
    request: str,
    more: Mapping[str, object],
) -> list[tuple[str, bytes]]:
    """The batches of a request, each with its id. They are the same if it is made again."""
    limit, found = TOPICS["batches"].max_value_bytes, list[tuple[str, bytes]]()
    left = [entries[at : at + _AT_ONCE] for at in range(0, len(entries), _AT_ONCE)][::-1]
    while left:
        some, name = left.pop(), f"{request}-{len(found) + 1}"
        value = to_json({"version": 1, "dataset": dataset, "batch_id": name, field: some, **more})
        if len(value) <= limit:
            found.append((name, value))
        elif len(some) == 1:
            problem = f"an entry has more than {limit:,} bytes"
            raise InvalidInput(field, problem, "leave it out: no key is that long")
        else:
            half = len(some) // 2
            left += [some[half:], some[:half]]
    return found


def _heard(
    arrived: SimpleQueue[Reply | None], dataset: str, wanted: int, end: float | None
) -> tuple[bool, bool]:
    """Waits until something may have become of changes.

    Returns:
        Whether the client is still open, and whether a sweep has made the changes.
    """
    while True:
        try:
            reply = arrived.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        except Empty:
            return True, False
        if reply is None:
            return False, False
        if isinstance(reply, Event) and reply.dataset == dataset:
            swept = reply.event == "swept" and (reply.change_number or 0) >= wanted
            if swept or reply.event == "changes_lost":
                return True, swept


def _receipt(session: Session, dataset: str, change_numbers: Collection[int]) -> Event | None:
    """The receipt of the sweep that made the last of some changes. None if none has.

    Raises:
        StreamDPError: Changes were lost, or the signature is not the data set's own.
    """
    events = batch_events(session, dataset)
    lost = {event.batch for event in events if event.event == "changes_lost"}
    for event in events:
        if event.change_number in change_numbers and event.batch in lost:
            raise _lost(event.dataset)
    entries, wanted = ledger(session, dataset), max(change_numbers)
    for entry in entries:
        if entry["kind"] == "sweep" and entry.get("change_number", 0) >= wanted:
            return _signed(dataset, str(entries[0].get("receipts")), entry)
    return None


def _signed(dataset: str, public: str, entry: Mapping[str, Any]) -> Event:
    """The receipt that an entry of the ledger is, if the data set has signed it."""
    said = {name: value for name, value in entry.items() if name in Event.model_fields}
    found = Event.model_validate({**said, "event": "swept"})
    if not entry.keys() >= {*SIGNED} or not is_signed(public, entry, str(found.signature)):
        raise StreamDPError(
            f"the signature of the receipt of sweep {found.sweep} is not that of {dataset}; run "
            f"`stream-dp ledger verify {dataset}`"
        )
    return found


def _erasure(session: Session, dataset: str) -> ErasureSpec:
    """How persons are erased from a data set.

    Raises:
        InvalidInput: There is no such data set, or nobody can be erased from it.
    """
    found = definition(session, dataset).erasure
    if found is None:
        raise InvalidInput(
            "dataset",
            f"nobody can be erased from {dataset}: its definition has no erasure",
            'define another data set with "erasure": {"within": "24 hours"}, or retire this one',
        )
    return found


def _lost(dataset: str) -> StreamDPError:
    return StreamDPError(
        f"{dataset} has lost changes of this request before they were made; send them again under another id"
    )
