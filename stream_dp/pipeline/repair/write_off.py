"""What becomes of a data set of which charges and answers are on the output topics alone.

Its rows up to now are written off: every phase counts as spent in full and is never looked at again, in the
way of rows that are lost, and what is on the input topics is done with. The ledger on its topic is adopted.
What was published and is still known goes on answering, and rows that come later open phases with budgets of
their own. The proof is docs/proofs, Theorem R9.

It is computed from public facts alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from secrets import token_bytes
from typing import Any, Final, NamedTuple

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.errors import CorruptState, InvalidInput
from stream_dp.messages import Definition, Event, Reason
from stream_dp.pipeline.datasets.draft import HEAD, LEDGER
from stream_dp.pipeline.datasets.transcript import (
    GONE,
    LOST,
    PHASE,
    Gone,
    gone_entry,
    opening,
    phase_entry,
)
from stream_dp.pipeline.intake.decoder import ingested
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.repair.offline import facts
from stream_dp.pipeline.repair.witnesses import Said
from stream_dp.pipeline.rows.own_values import PERSON
from stream_dp.pipeline.rows.waiting.waiting_batches import TIMES
from stream_dp.pipeline.spending.in_hand import IN_HAND
from stream_dp.pipeline.spending.payers import RULES, account_of, rules_text
from stream_dp.state import ledger as ledgers
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.private_names import Named
from stream_dp.state.schema import ERASED, TRAIL_BYTES, Pair, State, StateTable, sum_of

_CHARGES_AN_ENTRY: Final = 8_192
_MOST_UNKNOWN: Final = 10_000
_SOURCE: Final = "source "
_STANDING: Final = "standing "
_FORGOTTEN: Final = frozenset({TIMES, GONE, *IN_HAND, "quarantined"})
"""The facts that are about rows and records of before."""

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

    def batch(self, record: Record, partitions: int) -> None:
        """Takes note of a record of ``batches``, under the key of the data set."""
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
class Beginning:
    """What the journal begins a data set again with.

    Attributes:
        state: The state.
        out: What is published of that.
        contents: Contents under ids.
        taken: The ids of batches that never count again, where outcomes are not kept for ever.
    """

    state: State
    out: Sequence[OutboxRecord]
    contents: Mapping[Pair, bytes]
    taken: Sequence[str]


class Known(NamedTuple):
    """The most that is known of a data set that is to be written off.

    Attributes:
        definition: Its definition.
        base: Its state. One without a commit if nothing but its ledger is known.
        ledger: Its ledger, to the end.
    """

    definition: Definition
    base: State
    ledger: Sequence[bytes]


def outcome_pair(batch: str) -> Pair:
    """The pair of the outcome of a batch."""
    return StateTable.OUTCOME, batch.encode("utf-8", "surrogatepass")


def definition_in(ledger: Sequence[bytes]) -> Definition | None:
    """The definition of a data set, as its ledger says it from the first entry on. None without one."""
    if not ledger:
        return None
    return Definition.read(ledgers.read(ledger[0]).get("definition") or {})


def leads_to(state: State, ledger: Sequence[bytes]) -> bool:
    """Returns whether a ledger leads to the head that a state has, at the number of entries that it has."""
    count, head = _ledger_of(state)
    return count <= len(ledger) and head == reduce(ledgers.extend, ledger[:count], ledgers.GENESIS)


def lacking(state: State, ledger: Sequence[bytes]) -> int:
    """The number of entries that a ledger on its topic lacks of those that a state has counted."""
    return max(0, _ledger_of(state)[0] - len(ledger))


def unlike(state: State, ledger: Sequence[bytes]) -> str:
    """Why a ledger on its topic is not the one that a state has charged. Empty if it is.

    Raises:
        LedgerBroken: It does not hold.
    """
    if not leads_to(state, ledger):
        return "its ledger on the topic is not the one of the journal"
    chain = ledgers.Chain(state.dataset, ledger[: _ledger_of(state)[0]])
    spent = [tuple(map(int, one.split())) for one in state.numbered(StateTable.SPENT)]
    if list(chain.charged) != spent:
        return "what the journal says is spent is not what its ledger charges"
    return ""


def _ledger_of(state: State) -> tuple[int, bytes]:
    return int(state.fact(LEDGER) or 0), bytes.fromhex(state.fact(HEAD)) or ledgers.GENESIS


def known_of(name: str, bases: Sequence[State], said: Said) -> Known:
    """The most that is known of a data set that is to be written off.

    Args:
        name: The name of the data set.
        bases: What the journal and what Redis have of it.
        said: What was seen of it.

    Raises:
        InvalidInput: It is retired, or moved, or its promise cannot be kept without what is lost.
        CorruptState: The ledger on the topic has a gap, or is about another history or data set.

    Where the ledger has forked, the branch that goes furthest is taken, so that no entry of another one has
    the number of one that follows.
    """
    chains = said.ledgers(name)
    fitting = [(base, chain) for chain in chains for base in bases if _fits(base, chain)]
    if bases and not fitting and said.forked is None:
        raise CorruptState(
            f"{name}: what the journal and Redis have of it is another history than its ledger on the topic. "
            "Restore one of them"
        )
    alone = State(name), chains[0]
    base, ledger = max(fitting, key=lambda found: found[0].number, default=alone)
    definition = definition_in(ledger)
    if definition is None or definition.dataset != name:
        raise CorruptState(f"{name}: its ledger is not on the topic. Restore the topic ledger")
    if said.retired or any(ledgers.read(entry)["kind"] == "retired" for entry in ledger):
        raise InvalidInput("--write-off", f"{name} is retired", "leave it: its name stays stopped")
    if base.fact("moved"):
        raise InvalidInput(
            "--write-off", f"{name} was exported", "leave it: it is served elsewhere"
        )
    if definition.privacy.unit is not None and definition.privacy.unit.lifetime:
        raise InvalidInput(
            "--write-off",
            f"{name} protects persons for life, and what they have used since is lost",
            "restore the journal, or a newer copy of Redis; without one, this data set has ended",
        )
    return Known(definition, base, ledger)


def _fits(base: State, chain: Sequence[bytes]) -> bool:
    """Whether a state has a ledger that this one continues, or that goes further."""
    if not lacking(base, chain):
        return leads_to(base, chain)
    opened = [entry["rows"] for entry in map(ledgers.read, chain) if entry["kind"] == "phase"]
    return _rows_in(base.numbered(StateTable.TRANSCRIPT))[: len(opened)] == opened


def _rows_in(transcript: Sequence[bytes]) -> list[int]:
    """The rows of each phase that was opened."""
    return [opening(entry)[0] for entry in transcript if entry[:1] == PHASE]


def written_off(
    known: Known,
    said: Said,
    *,
    inputs: Inputs,
    refused: Sequence[str],
    number: int,
    person: Named | None,
) -> Beginning:
    """A data set whose rows up to now are written off.

    Args:
        known: The most that is known of it.
        said: What was seen of it.
        inputs: What is on its input topics.
        refused: The ids of the batches among them of which nobody knows an outcome.
        number: The number of commits to go on with: more than it ever had.
        person: A new secret of the digests of its persons: no row of before counts any more. None where rows
            are protected.

    Raises:
        CorruptState: The ledger does not hold, or a record is forged.
    """
    definition, base, ledger = known
    name = definition.dataset
    counted = _rows_in(base.numbered(StateTable.TRANSCRIPT))
    end = _LedgerEnd(name, ledger)
    rows: list[int] = [entry["rows"] for entry in end.entries("phase")]
    end.add_phases(definition, rows, counted, said)
    end.add_rest_of_lines(len(rows))
    for batch in said.outcomes:
        inputs.announced(batch)
    for producer, following in said.producers.items():
        inputs.passed_by(f"producer {producer}", following)
    pairs = _pairs_of(known, end, inputs, rows, counted)
    if person is not None:
        pairs[StateTable.KEPT, PERSON.encode()] = person.to_bytes()
    # Batches that wait, as far as that is known.
    waiting = sum(what.startswith(b"waiting ") for what in base.table(StateTable.KEPT))
    outcome = partial(Event, dataset=name, event="batch_refused", reason=_WRITTEN_OFF)
    event = Event(
        dataset=name,
        event="written_off",
        phases=(1, len(rows)) if rows else None,
        batches=len(base.table(StateTable.WAITING)) + waiting + len(refused),
    )
    ended = [OutboxRecord("standing", key.encode(), (), b"") for key in sorted(said.standing)]
    return Beginning(
        State(name, number, token_bytes(TRAIL_BYTES), sum_of(pairs), pairs),
        [*end.out, *ended, OutboxRecord("events", name.encode(), (), event.to_bytes())],
        {outcome_pair(batch): outcome(batch_id=batch).to_bytes() for batch in refused},
        # Outcomes may be dropped, and nobody knows which of them have counted.
        [*said.outcomes, *refused] if definition.kept_answers_days is not None else [],
    )


def _pairs_of(
    known: Known, end: _LedgerEnd, inputs: Inputs, rows: Sequence[int], counted: Sequence[int]
) -> dict[Pair, bytes]:
    """What a data set begins again with, without the secret of its persons.

    Nothing is left of any line, so accounts bound nothing any more. The rules are those of its last entry.
    """
    name, rules = known.definition.dataset, end.entries("analysts")
    told = {RULES: rules_text(name, rules[-1])} if rules else {}
    transcript = _transcript(known.base, rows, counted)
    return {
        (StateTable.DEFINITION, b""): known.definition.to_bytes(),
        **_taken_over(known.base),
        **facts({**told, LEDGER: str(end.chain.length), HEAD: end.chain.head.hex()}),
        **{(StateTable.CURSOR, at.encode()): b"%d" % to for at, to in inputs.cursor.items()},
        **{(StateTable.SPENT, b"%d" % at): b"%d %d" % (UNITS, UNITS) for at in range(len(rows))},
        **{(StateTable.TRANSCRIPT, b"%d" % at): entry for at, entry in enumerate(transcript)},
    }


class _LedgerEnd:
    """The entries that a ledger gets when its data set is written off.

    Attributes:
        chain: The ledger with them.
        out: The records that publish them.
    """

    def __init__(self, name: str, ledger: Sequence[bytes]) -> None:
        self._name = name
        self._before = [ledgers.read(entry) for entry in ledger]
        self.chain = ledgers.Chain(name, ledger)
        self.out: list[OutboxRecord] = []

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """The entries of a kind that the ledger had."""
        return [entry for entry in self._before if entry["kind"] == kind]

    def _write(self, kind: str, body: Mapping[str, object]) -> None:
        entry, _ = ledgers.append(self.chain.head, self.chain.length, self._name, kind, body)
        self.chain.add(entry)
        self.out.append(OutboxRecord("ledger", self._name.encode(), (), entry))

    def add_phases(
        self, definition: Definition, rows: list[int], counted: Sequence[int], said: Said
    ) -> None:
        """Adds the phases to ``rows`` that were seen and that the ledger does not have.

        Raises:
            CorruptState: A record names a phase that cannot be.
        """
        newest = max(len(rows), len(counted), said.newest)
        if newest > len(rows) + _MOST_UNKNOWN:
            raise CorruptState(
                f"{self._name}: a record on a topic names its phase {newest:,}: it is forged"
            )
        for phase in range(len(rows) + 1, newest + 1):
            unknown = said.phases.get(phase, definition.phase.min_rows)
            rows.append(counted[phase - 1] if phase <= len(counted) else unknown)
            due = erased_blocks(phase, definition.kept_phases)
            erased = {"erased": due} if due else {}
            self._write("phase", {"phase": phase, "rows": rows[-1], **erased})

    def add_rest_of_lines(self, phases: int) -> None:
        """Adds what is left of each line: it counts as spent."""
        rest = [
            [block, UNITS - rho, UNITS - delta]
            for block, (rho, delta) in enumerate(self.chain.charged)
            if min(rho, delta) < UNITS
        ]
        for start in range(0, max(1, len(rest)), _CHARGES_AN_ENTRY):
            some = rest[start : start + _CHARGES_AN_ENTRY]
            self._write("written_off", {"phases": phases, "charges": some})


def _transcript(base: State, rows: Sequence[int], counted: Sequence[int]) -> list[bytes]:
    """What a restart folds: what is known, with each look that was under way, and no row of any phase."""
    transcript = base.numbered(StateTable.TRANSCRIPT)
    for intent in base.numbered(StateTable.INTENT):
        transcript += [LOST + json.dumps(look).encode() for look in json.loads(intent)]
    transcript += [phase_entry(n_rows, None) for n_rows in rows[len(counted) :]]
    if rows:
        transcript.append(gone_entry(Gone(phases=len(rows))))
    return transcript


def _taken_over(base: State) -> dict[Pair, bytes]:
    """The pairs of what is known that stay, and those by which the next owner erases private values."""
    pairs = {pair: value for pair, value in base.pairs.items() if _stays(pair)}
    for stored in base.table(StateTable.KEPT).values():
        gone = Named.from_bytes(stored).name
        pairs[StateTable.KEPT, (ERASED + gone.hex()).encode()] = stored
    return pairs


def _stays(pair: Pair) -> bool:
    """Whether a pair of what is known of a data set is taken over as it is."""
    if pair[0] is not StateTable.FACT:
        return pair[0] is StateTable.VERIFIED
    fact = pair[1].decode("utf-8", "surrogatepass")
    is_gone = fact in _FORGOTTEN or fact.startswith(_STANDING)
    return not is_gone and account_of(fact) is None
