"""What becomes of a data set of which charges and answers are on the output topics alone.

Its rows up to now are written off: every phase counts as spent in full and is never looked at again, in the
way of rows that are lost, and what is on the input topics is done with. Answers, outcomes of batches and the
entries of the ledger are taken from the topics. What was published and is still known goes on answering, and
rows that come later open phases with budgets of their own. See docs/guarantee.md for the proof.

It is computed from public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Final

from stream_dp.core.accounting import UNITS
from stream_dp.core.parameters import erased_blocks
from stream_dp.errors import CorruptState, InvalidInput
from stream_dp.messages import Definition, Event, Reason
from stream_dp.pipeline.answering import UNKNOWN_REQUEST
from stream_dp.pipeline.dataset import LEDGER, PHASE, TIMES
from stream_dp.pipeline.decoding import ingested
from stream_dp.pipeline.keeping import PERSONS, WAITED, WAITING, field_of
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.lost_rows import ENTRY, Gone
from stream_dp.pipeline.needs import JOURNAL
from stream_dp.pipeline.paying import RULES, rules_text
from stream_dp.pipeline.records import Record
from stream_dp.pipeline.witnesses import Said, chained
from stream_dp.state import ledger as ledgers
from stream_dp.state.codec import OutboxRecord, answer_from_bytes, answer_to_bytes
from stream_dp.state.journal import Checkpoint
from stream_dp.state.store import TRAIL_BYTES, account_of
from stream_dp.state.taken import taken_id

__all__ = [
    "FOR_LIFE",
    "NO_ROWS",
    "Closed",
    "Inputs",
    "answer_in",
    "chosen",
    "closed",
    "protects_for_life",
]

FOR_LIFE: Final = "It protects persons for life, so it cannot be closed"
"""Why nobody may go on without what is lost of such a data set."""

NO_ROWS: Final = math.inf
"""The number of first blocks of a chain whose rows are not wanted: all."""

_CHARGES_AN_ENTRY: Final = 8_192
_MOST_UNKNOWN: Final = 10_000
_SOURCE: Final = "source "

_WRITTEN_OFF: Final = Reason(
    code="written_off",
    message="the journal was cut, and the rows that had come by then are written off: they never count",
)


@dataclass
class Inputs:
    """What is on the input topics of a data set, up to now.

    Attributes:
        cursor: ``topic:partition`` -> the offset behind it; of a source, the next record to count.
        batches: The ids of the batches, in order.
        unread: The number of records that were gone before they were looked at here.
    """

    cursor: dict[str, int]
    batches: list[str] = field(default_factory=list)
    unread: int = 0

    def passed(self, place: str, first: int, end: int) -> None:
        """Takes note of a log that has records from ``first`` to below ``end``."""
        self.unread += max(0, first - self.cursor.get(place, 0))
        self.cursor[place] = max(end, self.cursor.get(place, 0))

    def batch(self, topic: str, partition: int, offset: int, entry: Entry, partitions: int) -> None:
        """Takes note of a record of ``batches``, under the key of the data set."""
        record = Record(
            role="batches",
            topic=topic,
            partition=partition,
            offset=offset,
            key=entry.key,
            value=entry.value,
            headers=dict(entry.headers),
        )
        request = ingested(record, partitions)
        if request is None:
            return  # it counts nowhere
        batch = request.batch
        if batch.batch_id is not None:
            self.batches.append(batch.batch_id)
        if (counted := batch.counted) is not None:
            self.passed_by(counted.key, counted.next)

    def passed_by(self, cursor_key: str, following: int) -> None:
        """Takes note that a source or producer goes on at this place, or behind it."""
        self.cursor[cursor_key] = max(following, self.cursor.get(cursor_key, 0))

    def announced(self, batch_id: str) -> None:
        """Takes note of a batch that was announced. One of a source says which range it was."""
        where, _, span = batch_id.rpartition(":")
        first, _, last = span.partition("-")
        if not (first.isdigit() and last.isdigit() and len(last) <= 18):
            return
        for key in self.cursor:
            topic, _, rest = key.removeprefix(_SOURCE).rpartition("@")
            log_id, _, number = rest.rpartition(":")
            if key.startswith(_SOURCE) and where == f"{topic}@{log_id[:8]}:{number}":
                self.cursor[key] = max(self.cursor[key], int(last) + 1)


@dataclass(frozen=True, slots=True)
class Closed:
    """A data set as it goes on.

    Attributes:
        checkpoint: What it begins again with.
        outbox: What is published of that.
    """

    checkpoint: Checkpoint
    outbox: Sequence[OutboxRecord]


def answer_in(stored: bytes) -> bytes:
    """The bytes of an answer as it was released, of a stored one."""
    return answer_from_bytes(stored).answer


def chosen(
    name: str, bases: Sequence[Checkpoint], said: Said
) -> tuple[Checkpoint | None, list[bytes]]:
    """The most that is known of a data set, and its ledger to the end.

    Args:
        name: The name of the data set.
        bases: What the store and what the journal have of it.
        said: What was seen of it.

    Raises:
        CorruptState: The ledger on the topic has a gap, or is about another history.

    Where it has forked, the branch that goes furthest is taken, so that no entry of another one has the
    number of one that follows.
    """
    entries = {number: list(some) for number, some in said.entries.items()}
    for base in bases:
        for number, entry in enumerate(base.ledger, _first(base)):
            entries.setdefault(number, [])
            if entry not in entries[number]:
                entries[number].append(entry)
    chains = chained(entries)
    if len(chains[0]) <= max(said.entries, default=0):
        raise CorruptState(
            f"{name}: entry {len(chains[0])} of its ledger is not on the topic, or does not continue the one "
            "before it. Restore the topic ledger"
        )
    fitting = [
        (base, chain)
        for base in bases
        for chain in chains
        if list(base.ledger) == chain[_first(base) : _first(base) + len(base.ledger)]
    ]
    if bases and not fitting and said.forked is None:
        raise CorruptState(
            f"{name}: what the store and the journal have of it is another history than its ledger on the "
            "topic. Restore one of them"
        )
    return max(fitting, key=lambda found: found[0].seq, default=(None, chains[0]))


def _first(base: Checkpoint) -> int:
    """The number of the first entry of a ledger that is in a checkpoint: those before it are on the topic."""
    return int(ledgers.read(base.ledger[0])["seq"]) if base.ledger else 0


def closed(
    name: str,
    base: Checkpoint | None,
    said: Said,
    ledger: Sequence[bytes],
    *,
    inputs: Inputs,
    seq: int,
    waiting: int,
    secret: str,
) -> Closed:
    """A data set whose rows up to now are written off.

    Args:
        name: The name of the data set.
        base: The most that is known of it; None if nothing but its ledger is.
        said: What was seen of it.
        ledger: Its ledger, to the end.
        inputs: What is on its input topics.
        seq: The number of commits to go on with: more than it ever had.
        waiting: The number of batches that wait for a phase, as far as that is known.
        secret: The name under which the secret of the digests of its persons is kept; empty if nowhere.

    Raises:
        InvalidInput: It is retired, or moved, or its promise cannot be kept without what is lost.
    """
    chain = ledgers.Chain(name)
    for entry in ledger:
        chain.add(entry)
    fields = [ledgers.read(entry) for entry in ledger]
    definition = Definition.read(fields[0].get("definition") or {})
    _check(name, base, definition, fields, said, secret)
    rows = [entry["rows"] for entry in fields if entry["kind"] == "phase"]
    entries, head = list(ledger), chain.head

    def write(kind: str, body: Mapping[str, object]) -> None:
        nonlocal head
        entry, head = ledgers.append(head, len(entries), name, kind, body)
        entries.append(entry)
        chain.add(entry)

    newest = max(len(rows), said.newest, *said.phases, 0)
    if newest > len(rows) + _MOST_UNKNOWN:
        raise CorruptState(f"{name}: a record on a topic names its phase {newest:,}: it is forged")
    for phase in range(len(rows) + 1, newest + 1):
        rows.append(said.phases.get(phase, definition.phase.min_rows))
        due = erased_blocks(phase, definition.kept_phases)
        write("phase", {"phase": phase, "rows": rows[-1], **({"erased": due} if due else {})})
    rest = [
        [block, UNITS - rho, UNITS - delta]
        for block, (rho, delta) in enumerate(chain.charged)
        if min(rho, delta) < UNITS
    ]
    for start in range(0, max(1, len(rest)), _CHARGES_AN_ENTRY):
        some = rest[start : start + _CHARGES_AN_ENTRY]
        write("written_off", {"phases": len(rows), "charges": some})

    batches = dict(base.batches) if base is not None else {}
    previous_batches = dict(base.previous_batches) if base is not None else {}
    taken = set(base.taken) if base is not None else set()
    new = [
        batch
        for batch in dict.fromkeys(inputs.batches)
        if batch not in batches and batch not in previous_batches and taken_id(batch) not in taken
    ]
    for batch, outcome in said.outcomes.items():
        if batch not in previous_batches:
            batches.setdefault(batch, outcome)
        inputs.announced(batch)
    for producer, following in said.producers.items():
        inputs.passed_by(f"producer {producer}", following)
    for batch in new:
        refused = Event(dataset=name, event="batch_refused", batch_id=batch, reason=_WRITTEN_OFF)
        batches.setdefault(batch, refused.to_bytes())
    if definition.kept_answers_days is not None:
        # Their outcomes will be dropped, and nobody knows which of them have counted.
        taken |= {taken_id(batch) for batch in (*batches, *previous_batches)}

    kept = {} if base is None else {**base.previous, **base.answers}
    adopted = {
        at: answer_to_bytes(UNKNOWN_REQUEST, answer)
        for at, answer in said.answers.items()
        if at not in kept or answer_in(kept[at]) != answer
    }
    answers = {**({} if base is None else base.answers), **adopted}
    previous = {
        at: stored
        for at, stored in ({} if base is None else base.previous).items()
        if at not in adopted
    }

    transcript = [] if base is None else list(base.transcript)
    known = sum(entry[:1] == PHASE for entry in transcript)
    transcript += [PHASE + b"%d" % n_rows for n_rows in rows[known:]]
    if rows:
        transcript.append(ENTRY + Gone(phases=len(rows)).to_bytes())

    # Nothing is left of any line, so accounts bound nothing any more. The rules are those of its last entry.
    meta = {f: v for f, v in (base.meta if base else {}).items() if account_of(f) is None}
    rules = [entry for entry in fields if entry["kind"] == "analysts"]
    if rules:
        meta[RULES] = rules_text(name, rules[-1])
    meta |= {LEDGER: str(len(entries)), TIMES: "", field_of(WAITING): "", WAITED: "", JOURNAL: ""}
    if secret:
        meta[field_of(PERSONS)] = secret
    event = Event(
        dataset=name,
        event="written_off",
        phases=(1, len(rows)) if rows else None,
        batches=waiting + len(new),
    )
    stored_definition = definition.to_bytes() if base is None else base.definition
    published = [
        OutboxRecord("ledger", name.encode(), (), entry) for entry in entries[len(ledger) :]
    ]
    published.append(OutboxRecord("events", name.encode(), (), event.to_bytes()))
    checkpoint = Checkpoint(
        dataset=name,
        seq=seq,
        trail=token_bytes(TRAIL_BYTES),
        definition=stored_definition,
        meta=meta,
        cursor=inputs.cursor,
        answers=answers,
        batches=batches,
        previous=previous,
        previous_batches=previous_batches,
        taken=taken,
        accepted=(),
        spent=[(UNITS, UNITS)] * len(rows),
        erased=len(rows),
        transcript=transcript,
        verified={} if base is None else base.verified,
        ledger=entries,
        retired=False,
    )
    return Closed(checkpoint.tail(), published)


def protects_for_life(ledger: Sequence[bytes]) -> bool:
    """Returns whether a data set protects persons for life, as its ledger says from the first entry on."""
    if not ledger:
        return False
    unit = Definition.read(ledgers.read(ledger[0]).get("definition") or {}).privacy.unit
    return unit is not None and unit.lifetime


def _check(
    name: str,
    base: Checkpoint | None,
    definition: Definition,
    fields: Sequence[Mapping[str, object]],
    said: Said,
    secret: str,
) -> None:
    """Refuses what cannot be closed."""
    if definition.dataset != name:
        raise CorruptState(f"{name}: its ledger is that of {definition.dataset}")
    if said.retired or any(entry["kind"] == "retired" for entry in fields):
        raise InvalidInput("NAME", f"{name} is retired", "leave it: its name stays stopped")
    if base is not None and base.meta.get("moved"):
        raise InvalidInput("NAME", f"{name} was exported", "leave it: it is served elsewhere")
    unit = definition.privacy.unit
    if unit is not None and unit.lifetime:
        raise InvalidInput(
            "NAME",
            f"{name} protects persons for life, and what they have used since is lost",
            "restore the newest copy of Redis, or the journal",
        )
    if unit is not None and not secret:
        raise InvalidInput(
            "NAME", f"the secret of the digests of {name} is lost", "restore the topic blocks"
        )
