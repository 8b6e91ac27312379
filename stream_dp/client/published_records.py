"""What the topics tell: data sets, ledgers, answers and events. Nothing is sent."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from stream_dp.client.kafka import topic_documents
from stream_dp.client.kafka.session import Session
from stream_dp.errors import InvalidInput, StreamDPError
from stream_dp.messages import (
    Answer,
    Definition,
    Event,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    SyntheticRows,
)

T = TypeVar("T")


def catalog(session: Session) -> dict[str, Definition]:
    """Returns the definitions of all data sets that are not retired, by name."""
    found: dict[str, Definition] = {}
    retired: set[str] = set()
    for key, value in session.published.read("catalog"):
        if not value:
            retired.add(key)  # for ever: a definition behind that is one that came late
            continue
        # A newer release or another program may have written it.
        with contextlib.suppress(ValueError, RecursionError):
            found[key] = Definition.read(json.loads(value))
    session.definitions = {name: one for name, one in found.items() if name not in retired}
    return dict(session.definitions)


def listed(session: Session, role: str, read: Callable[[bytes], T]) -> dict[str, T]:
    """Returns the newest document under each key of a compacted topic. One of a newer release is left out."""
    found: dict[str, T] = {}
    for key, value in session.published.read(role):
        found.pop(key, None)
        if value:
            with contextlib.suppress(ValueError, RecursionError):
                found[key] = read(value)
    return found


def definition(session: Session, dataset: str) -> Definition:
    """Returns the definition of one data set.

    Raises:
        InvalidInput: There is no data set of that name. The error lists the existing ones.
    """
    known = session.definitions.get(dataset)
    newest = session.schema_versions.get(dataset, 1)
    if known is None or known.finds or known.schema_version < newest:  # each phase may find values
        return definition_in(catalog(session), dataset)
    return known


def definition_in(known: Mapping[str, Definition], dataset: str) -> Definition:
    """Returns the definition of one of some data sets.

    Raises:
        InvalidInput: There is no data set of that name. The error lists the existing ones.
    """
    if dataset not in known:
        fix = f"choose one of: {', '.join(sorted(known)[:20])}{', ...' if len(known) > 20 else ''}"
        if not known:
            fix = "there is no data set yet; create one with: stream-dp dataset create DEFINITION.json"
        elif near := difflib.get_close_matches(dataset, sorted(known), 1):
            fix = f"did you mean {near[0]}?"
        raise InvalidInput("dataset", f"there is no data set {dataset!r}", fix)
    return known[dataset]


def ledger(session: Session, dataset: str) -> list[dict[str, Any]]:
    """Returns the published ledger of a data set, oldest entry first."""
    return ledgers(session).get(dataset, [])


def ledgers(session: Session) -> dict[str, list[dict[str, Any]]]:
    """Returns the published ledgers of all data sets.

    Records of other programs are left out: ``stream-dp ledger verify`` finds them.
    """
    return {
        name: [entry for one in entries if (entry := topic_documents.ledger_entry(one)) is not None]
        for name, entries in ledger_entries(session).items()
    }


def ledger_entries(session: Session) -> dict[str, list[bytes]]:
    """Returns the ledgers as bytes, over which the hash chain runs. Duplicate entries appear once."""
    found: dict[str, dict[bytes, None]] = {}
    for key, value in session.published.read("ledger"):
        found.setdefault(key, {})[value or b"{}"] = None
    return {name: list(entries) for name, entries in found.items()}


def synthetic(session: Session, dataset: str) -> SyntheticRows:
    """Returns the newest synthetic rows of a data set and their error. They are free.

    ``pandas.DataFrame(client.synthetic(name).values())`` makes a data frame of them.

    Raises:
        InvalidInput: There is no data set of that name, or its definition has no synthetic rows.
        StreamDPError: There are no synthetic rows yet, or the data set is retired.
    """
    wanted = definition(session, dataset).synthetic_rows
    if not wanted:
        raise InvalidInput(
            "dataset",
            f"{dataset} has no synthetic rows: its definition does not ask for them",
            'define a new one with "synthetic_rows": 1000; only attributes can change',
        )
    # The records may be long, and the newest ones are near the end.
    for latest in (1, 16, None):
        records = session.published.read("synthetic", latest=latest)
        if values := [value for key, value in records if key == dataset]:
            break
    else:
        raise StreamDPError(
            f"{dataset} has no synthetic rows yet: {wanted:,} come soon after its first phase opens; see: "
            "stream-dp status"
        )
    found = topic_documents.read(SyntheticRows, values[-1])
    if found is None:
        raise StreamDPError(
            f"the newest synthetic rows of {dataset} cannot be read: it was retired just now, or a newer "
            "release wrote them"
        )
    return found


def answer(session: Session, dataset: str, query_id: str) -> Answer | None:
    """Returns this analyst's answer under an id from the latest 2,000 answers of each partition.

    It sends nothing. To get an older answer, ask the same query under the same id again.

    Returns:
        The answer or the refusal, or None if it is not among them.
    """
    for key, value in reversed(session.published.read("answers", latest=2000)):
        found = topic_documents.read_answer(value) if key == dataset else None
        if found is None or isinstance(found, QuotedAnswer | QuotedBundle):
            continue
        if (found.analyst, found.query_id) == (session.analyst, query_id):
            return found
    return None


def difficulties(session: Session) -> tuple[Counter[str], Counter[str]]:
    """Counts the easy and hard answers of each data set among the latest 5,000 of each partition."""
    found: dict[tuple[str, str, str], str] = {}
    for key, value in session.published.read("answers", latest=5000):
        one = topic_documents.read_answer(value)
        if isinstance(one, NoisyAnswer):
            found.setdefault((key, one.analyst, one.query_id), one.difficulty)
    easy, hard = (
        Counter(dataset for (dataset, *_), said in found.items() if said == difficulty)
        for difficulty in ("easy", "hard")
    )
    return easy, hard


def _events(session: Session, latest: int | None = 5000) -> Iterator[tuple[str, Event]]:
    """Yields recent events, or all, of all data sets with their names, without records of other programs."""
    for key, value in session.published.read("events", latest=latest):
        if (event := topic_documents.read(Event, value)) is not None:
            yield key, event


def waiting(session: Session) -> dict[str, int]:
    """Returns how many rows of each data set wait for the next phase, according to recent events."""
    found: dict[str, int] = {}
    for dataset, event in _events(session):
        if event.waiting is not None:
            found[dataset] = event.waiting
        elif event.event in ("phase_opened", "dataset_retired", "written_off"):
            found[dataset] = 0
    return found


def stopped(session: Session) -> dict[str, str]:
    """Returns why nobody can serve a data set, for those whose last event says so."""
    last = dict(_events(session))
    return {
        dataset: event.reason.message
        for dataset, event in last.items()
        if event.event == "stopped" and event.reason is not None
    }


def batch_events(session: Session, dataset: str) -> list[Event]:
    """Returns the events of a data set's batches, as far back as the broker keeps them."""
    events = _events(session, latest=None)
    return [event for key, event in events if key == dataset and event.batch is not None]


def next_sequence(session: Session, dataset: str, producer: str) -> int | None:
    """Returns the number of the next batch of a producer, as far as the events that are kept tell.

    Args:
        dataset: The name of the data set.
        producer: The name of the producer.

    Returns:
        The number. None if no event is about a batch of this producer that counts.
    """
    found = None
    for event in batch_events(session, dataset):
        if event.producer != producer or event.sequence is None:
            continue
        if event.event == "batch_accepted":
            found = event.sequence + 1
        elif event.event == "batch_known":
            found = event.next_sequence
    return found
