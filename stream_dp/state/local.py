"""A store in this process: for trials, simulations and one-off runs. It survives no crash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from stream_dp.core.accounting import UNITS
from stream_dp.core.lifetimes import Numbers
from stream_dp.core.persons import Digests
from stream_dp.errors import CorruptState, StoreError
from stream_dp.state import codec
from stream_dp.state.ledger import GENESIS
from stream_dp.state.looking import Seen
from stream_dp.state.store import (
    LEDGER_TAIL,
    ORIGIN,
    AccountLimit,
    Counts,
    Note,
    Outcomes,
    Place,
    Released,
    Reservation,
    Snapshot,
    Transition,
    account_field,
    check_asked,
    check_name,
    refusal,
)
from stream_dp.state.taken import TAKEN, taken_id


class _Used(NamedTuple):
    """What is kept of a person: units used before a phase, the phase, and the rows reserved in it."""

    before: int
    phase: int
    rows: int

    def before_phase(self, phase: int) -> int:
        """Returns the units used before a phase, which is this one or a later one."""
        return self.before if self.phase == phase else self.before + self.rows**2


@dataclass(slots=True, repr=False)
class _Dataset:
    token: int = 0
    seq: int = 0
    head: bytes = GENESIS
    trail: bytes = ORIGIN
    restored: bytes | None = None
    notes: dict[str, Note] = field(default_factory=dict)
    last: bytes = b""
    definition: bytes | None = None
    retired: bool = False
    meta: dict[str, str] = field(default_factory=dict)
    cursor: dict[str, int] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    previous: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, bytes] = field(default_factory=dict)
    previous_batches: dict[str, bytes] = field(default_factory=dict)
    taken: set[bytes] = field(default_factory=set)
    pending: list[bytes] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    spent: list[tuple[int, int]] = field(default_factory=list)
    transcript: list[bytes] = field(default_factory=list)
    verified: dict[bytes, bytes] = field(default_factory=dict)
    intents: dict[int, bytes] = field(default_factory=dict)
    ledger: list[bytes] = field(default_factory=list)
    outbox: dict[int, bytes] = field(default_factory=dict)
    vault: dict[str, bytes] = field(default_factory=dict)
    persons: dict[bytes, _Used] = field(default_factory=dict)
    reserved: tuple[int, int] = (0, 0)  # the phase and the part of the last call


_UNUSED = _Used(0, 0, 0)


class LocalStore:
    """A store that keeps everything in memory. Workers of one process may share it and fence each other.

    Example:
        >>> import asyncio
        >>> from stream_dp.state.local import LocalStore
        >>> store = LocalStore()
        >>> asyncio.run(store.ledger("people"))
        []
    """

    def __init__(self) -> None:
        self._datasets: dict[str, _Dataset] = {}
        self._watermarks: dict[str, int] = {}
        self._aside: dict[str, _Dataset] = {}
        self._names: set[str] = set()
        self._listed: dict[str, Note] = {}
        self._partitions: dict[str, int] = {}
        self._constants: dict[str, bytes] = {}
        self._attempts: dict[str, int] = {}
        self._hands: dict[int, tuple[str, bool]] = {}

    async def problems(self) -> tuple[str, ...]:
        return ()

    async def usage(self) -> None:
        return None

    async def datasets(self) -> tuple[str, ...]:
        return tuple(sorted(self._named()))

    async def acquire(
        self, dataset: str, *, token: int | None = None, new: bool = True
    ) -> Snapshot:
        held = self._held(dataset)
        if new or dataset in self._datasets:
            if token is not None and token < held.token:
                raise refusal(dataset, "FENCED")
            self._datasets[dataset] = held
            held.token = held.token + 1 if token is None else token
        return _snapshot(dataset, held)

    async def missing(self, datasets: Sequence[str]) -> frozenset[str]:
        for name in datasets:
            check_name(name)
        return frozenset(datasets) - self._datasets.keys()

    async def look(self, dataset: str) -> Seen | None:
        held = self._held(dataset)
        sizes = len(held.answers), len(held.batches), len(held.taken)
        seen = replace(_snapshot(dataset, held), vault={})
        return Seen(seen, tuple(held.ledger), *sizes)

    async def commit(self, transition: Transition) -> None:
        fingerprint = codec.fingerprint(codec.pack(codec.flatten(transition)))
        if transition.definition is not None:
            self._names.add(transition.dataset)  # at once, as it is on a server
        held = self._datasets.get(transition.dataset)
        if held is None or held.token != transition.token:
            raise refusal(transition.dataset, "FENCED")
        if held.seq == transition.seq + 1 and held.last == fingerprint:
            return
        totals = codec.totals(transition)
        _check(held, transition, totals)
        _apply(held, transition, totals)
        held.last = fingerprint
        if transition.dataset in self._aside:
            _erase_aside(self._aside[transition.dataset], transition)

    async def commit_all(self, transitions: Sequence[Transition]) -> list[StoreError | None]:
        refused: list[StoreError | None] = []
        for transition in transitions:
            try:
                await self.commit(transition)
            except StoreError as error:
                refused.append(error)
            else:
                refused.append(None)
        return refused

    async def block(self, dataset: str, token: int, index: int) -> bytes:
        if index < 0:
            raise ValueError("the index of a block is not negative")
        held = self._owned(dataset, token)
        at = index - (len(held.spent) - len(held.blocks))
        if not 0 <= at < len(held.blocks):
            raise refusal(dataset, "CONFLICT", "rows", str(index))
        return held.blocks[at]

    async def answers(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        held = {dataset: self._held(dataset) for dataset in ids}
        return _found(ids, {name: one.previous | one.answers for name, one in held.items()})

    async def batches(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        held = {dataset: self._held(dataset) for dataset in ids}
        found = {
            (dataset, name): TAKEN
            for dataset, names in ids.items()
            for name in names
            if taken_id(name) in held[dataset].taken
        }
        kept = {name: one.previous_batches | one.batches for name, one in held.items()}
        return found | _found(ids, kept)

    async def taken(self, dataset: str, taken: Sequence[bytes]) -> set[bytes]:
        return self._held(dataset).taken.intersection(taken)

    async def outcomes(self, dataset: str, *, rotated: bool = True) -> Outcomes:
        held = self._held(dataset)
        return Outcomes(
            dict(held.answers),
            dict(held.batches),
            dict(held.previous) if rotated else {},
            dict(held.previous_batches) if rotated else {},
            frozenset(held.taken),
        )

    async def counts(self, dataset: str) -> Counts:
        return Counts.of(await self.outcomes(dataset))

    async def ledger(self, dataset: str) -> list[bytes]:
        return list(self._held(dataset).ledger)

    async def units(self, dataset: str, token: int, phase: int, digests: Digests) -> Numbers:
        check_asked(dataset, phase, digests)
        held = self._before_seal(dataset, token, phase)
        used = [held.persons.get(digest.tobytes(), _UNUSED) for digest in digests]
        if any(one.phase > phase for one in used):
            raise refusal(dataset, "CORRUPT", "persons")
        return np.fromiter((one.before_phase(phase) for one in used), np.int64, len(digests))

    async def reserve(self, reservation: Reservation) -> None:
        name, phase = reservation.dataset, reservation.phase
        held = self._before_seal(name, reservation.token, phase)
        part = reservation.part
        if part and held.reserved not in ((phase, part - 1), (phase, part)):
            raise refusal(name, "CONFLICT", "part", str(part))
        reserved: dict[bytes, _Used] = {}
        for digest, before, rows in zip(
            map(bytes, reservation.digests),
            reservation.before.tolist(),
            reservation.rows.tolist(),
            strict=True,
        ):
            if rows == 0:
                continue
            known = reserved.get(digest, held.persons.get(digest, _UNUSED))
            if known.phase > phase:
                raise refusal(name, "CORRUPT", "persons")
            if before != known.before_phase(phase):
                raise refusal(name, "CONFLICT", "units")
            larger = max(rows, known.rows) if known.phase == phase else rows
            reserved[digest] = _Used(before, phase, larger)
        held.reserved = phase, part
        held.persons.update(reserved)

    async def forget_persons(self, dataset: str, token: int) -> bool:
        held = self._owned(dataset, token)
        if not held.retired and held.restored != held.trail:
            raise refusal(dataset, "CONFLICT", "kept")
        held.persons.clear()
        return False

    def _owned(self, dataset: str, token: int) -> _Dataset:
        held = self._held(dataset)
        if dataset not in self._datasets or held.token != token:
            raise refusal(dataset, "FENCED")
        return held

    def _before_seal(self, dataset: str, token: int, phase: int) -> _Dataset:
        """Every check of a call about persons, in the order of ``scripts/reserve.lua``."""
        held = self._owned(dataset, token)
        if held.retired:
            raise refusal(dataset, "CONFLICT", "retired")
        if len(held.spent) + 1 != phase:
            raise refusal(dataset, "CONFLICT", "phase", str(phase))
        return held

    async def places(self, partition_of: Callable[[str], str]) -> dict[str, Place]:
        found = {}
        for name in sorted(self._names | self._named()):
            held = self._held(name)
            note = held.notes.get(partition_of(name), Note())
            found[name] = Place(held.token, held.seq, held.trail, note)
        return found

    async def note(
        self, partition: str, note: Mapping[str, Note], places: Mapping[str, Place]
    ) -> None:
        for name, noted in note.items():
            held = self._held(name)
            if (held.seq, held.trail) == (places[name].seq, places[name].trail):
                held.notes[partition] = noted

    async def listed(self, partition: str) -> Note:
        return self._listed.get(partition, Note())

    async def note_listed(
        self,
        partition: str,
        note: Note,
        names: Collection[str],
        watermarks: Mapping[str, int] = MappingProxyType({}),
        *,
        since: int | None = None,
    ) -> None:
        noted = await self.listed(partition)
        if since is not None and noted.epoch > note.epoch:
            raise refusal(partition, "FENCED")
        if since is not None and noted.offset < since:
            raise refusal(partition, "CONFLICT", "listed")
        self._names.update(names)
        self._raise(watermarks)
        self._listed[partition] = note

    async def rebuild(
        self, dataset: str, token: int, *, seq: int, trail: bytes, head: bytes = GENESIS
    ) -> None:
        held = self._held(dataset)
        self._names.add(dataset)  # at once, as it is on a server
        if token < held.token:
            raise refusal(dataset, "FENCED")
        # What persons have used stays, and is not set aside, as it is on a server.
        if dataset in self._datasets and held.restored != held.trail:
            self._aside[dataset] = replace(held, persons={})
        self._datasets[dataset] = _Dataset(
            token=token,
            seq=seq,
            head=head,
            trail=trail,
            restored=trail,
            persons=dict(held.persons),
        )

    def _named(self) -> set[str]:
        return {name for name, held in self._datasets.items() if held.definition is not None}

    async def watermarks(self) -> dict[str, int]:
        return dict(self._watermarks)

    async def mark(
        self,
        released: Mapping[str, Released] = MappingProxyType({}),
        watermarks: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        if any(offset < 0 for offset in watermarks.values()):
            raise ValueError("an offset is not negative")
        fenced, refused = [], list[StoreError]()
        for name, done in released.items():
            held = self._held(name)
            if held.token != done.token:
                fenced.append(name)
                continue
            if held.seq < done.seq:
                refused.append(refusal(name, "CONFLICT", "behind", str(held.seq)))
                continue
            held.outbox = {seq: kept for seq, kept in held.outbox.items() if seq > done.seq}
            if done.partition:
                held.notes[done.partition] = done.note
        self._raise(watermarks)
        if refused:  # one data set does not keep the others from being marked
            raise refused[0]
        return tuple(fenced)

    def _raise(self, watermarks: Mapping[str, int]) -> None:
        for key, offset in watermarks.items():
            self._watermarks[key] = max(offset, self._watermarks.get(key, 0))

    async def partitions(self, topic: str, count: int) -> int:
        if count < 1:
            raise ValueError("a topic has at least one partition")
        return self._partitions.setdefault(topic, count)

    async def constant(self, name: str, proposed: bytes) -> bytes:
        return self._constants.setdefault(name, proposed)

    async def cursors(self, dataset: str, keys: Sequence[str] | None = None) -> dict[str, int]:
        cursor = self._held(dataset).cursor
        return {key: cursor[key] for key in (cursor if keys is None else keys) if key in cursor}

    async def hold(self, holder: str, partitions: Collection[int]) -> set[int]:
        before = self._hands
        self._hands = {at: hand for at, hand in before.items() if hand[0] != holder}
        left = {at for at in partitions if before.get(at, (holder, False)) != (holder, False)}
        self._hands |= {at: (holder, at in left) for at in partitions}
        return left

    async def attempts(self, task: str) -> int:
        self._attempts[task] = self._attempts.get(task, 0) + 1
        return self._attempts[task]

    async def clear_attempts(self, task: str) -> None:
        self._attempts.pop(task, None)

    async def close(self) -> None:
        return None

    def _held(self, dataset: str) -> _Dataset:
        check_name(dataset)
        held = self._datasets.get(dataset)
        return _Dataset() if held is None else held


def _snapshot(dataset: str, held: _Dataset) -> Snapshot:
    return Snapshot(
        dataset=dataset,
        token=held.token,
        seq=held.seq,
        head=held.head,
        trail=held.trail,
        definition=held.definition,
        meta=dict(held.meta),
        cursor=dict(held.cursor),
        pending=tuple(held.pending),
        n_blocks=len(held.blocks),
        vault=dict(held.vault),
        spent=tuple(held.spent),
        transcript=tuple(held.transcript),
        verified=dict(held.verified),
        intents=dict(sorted(held.intents.items())),
        outbox=tuple(sorted(held.outbox.items())),
    )


def _found(
    ids: Mapping[str, Sequence[str]], stored: Mapping[str, Mapping[str, bytes]]
) -> dict[tuple[str, str], bytes]:
    return {
        (dataset, name): stored[dataset][name]
        for dataset, names in ids.items()
        for name in names
        if name in stored[dataset]
    }


def _check(held: _Dataset, transition: Transition, totals: Mapping[int, tuple[int, int]]) -> None:
    """Every check of a commit, in the order of ``scripts/commit.lua``."""
    name = transition.dataset
    if held.seq != transition.seq:
        raise refusal(name, "CONFLICT", "seq", str(held.seq))
    if held.head != transition.head:
        raise refusal(name, "CONFLICT", "head")
    if held.trail != transition.trail:
        raise refusal(name, "CONFLICT", "trail")
    if transition.definition is not None and held.definition is not None:
        raise refusal(name, "CONFLICT", "defined")
    if transition.definition is None and held.definition is None:
        raise refusal(name, "CONFLICT", "undefined")
    if held.retired and (transition.pending or transition.seal is not None or transition.vault):
        raise refusal(name, "CONFLICT", "retired")
    for key, offset in transition.cursor.items():
        if offset < held.cursor.get(key, 0):
            raise refusal(name, "CONFLICT", "cursor", key)
    for answer in transition.answers:
        if answer in held.answers or (not transition.rotate and answer in held.previous):
            raise refusal(name, "DUPLICATE", "answer", answer)
    for batch in transition.batches:
        if batch in held.batches or (not transition.rotate and batch in held.previous_batches):
            raise refusal(name, "DUPLICATE", "batch", batch)
    seen: set[bytes] = set()
    for one in transition.taken:
        if one in held.taken or one in seen:
            raise refusal(name, "DUPLICATE", "taken", one.hex())
        seen.add(one)
    if transition.reserved and held.reserved != (len(held.spent) + 1, transition.reserved - 1):
        raise refusal(name, "CONFLICT", "reserved")
    blocks = len(held.spent) + (transition.seal is not None)
    if transition.erased > blocks:
        raise refusal(name, "CONFLICT", "unsealed", str(blocks))
    erased = max(transition.erased, len(held.spent) - len(held.blocks))
    for block, charges in totals.items():
        if block >= blocks:
            raise refusal(name, "CONFLICT", "block", str(block))
        if block < erased:
            raise refusal(name, "CONFLICT", "erased", str(block))
        before = held.spent[block] if block < len(held.spent) else (0, 0)
        for part, spent, charge in zip(("rho", "delta"), before, charges, strict=True):
            if spent + charge > UNITS:
                raise refusal(name, "BUDGET", str(block), part)
    for limit in transition.limits:
        after = _charged(held, limit, totals)
        most = limit.rho, limit.delta
        for part, charged, allowed in zip(("rho", "delta"), after, most, strict=True):
            if charged > allowed:
                raise refusal(name, "SHARE", str(limit.block), part)
    for seq in transition.settles:
        if seq not in held.intents:
            raise refusal(name, "CONFLICT", "intent", str(seq))


def _charged(
    held: _Dataset, limit: AccountLimit, totals: Mapping[int, tuple[int, int]]
) -> tuple[int, int]:
    """What an account will have charged to a block with a transition that charges ``totals``."""
    stored = held.meta.get(account_field(limit.block, limit.account), "0 0")
    try:
        rho, delta = map(int, stored.split())
    except ValueError:
        raise CorruptState("what an account has charged does not decode") from None
    charged = totals.get(limit.block, (0, 0))
    return rho + charged[0], delta + charged[1]


def _apply(held: _Dataset, transition: Transition, totals: Mapping[int, tuple[int, int]]) -> None:
    accounts = {
        account_field(one.block, one.account): "{} {}".format(*_charged(held, one, totals))
        for one in transition.limits
    }
    held.seq = transition.seq + 1
    held.head = transition.new_head
    held.trail = transition.new_trail
    if transition.definition is not None:
        held.definition = transition.definition
    held.meta.update(transition.meta)
    held.meta.update(accounts)
    held.cursor.update(transition.cursor)
    if transition.rotate:
        held.answers, held.previous = {}, held.answers
        held.batches, held.previous_batches = {}, held.batches
    held.answers.update(transition.answers)
    held.batches.update(transition.batches)
    held.taken.update(transition.taken)
    if transition.seal is not None:
        held.blocks.append(transition.seal)
        held.spent.append((0, 0))
        held.pending.clear()
    held.pending.extend(transition.pending)
    kept = len(held.spent) - transition.erased
    del held.blocks[: max(0, len(held.blocks) - kept)]
    for block, (rho, delta) in totals.items():
        before = held.spent[block]
        held.spent[block] = (before[0] + rho, before[1] + delta)
    held.transcript.extend(transition.transcript)
    held.verified.update(transition.verified)
    for seq in transition.settles:
        held.intents.pop(seq, None)
    if transition.intent is not None:
        held.intents[held.seq] = transition.intent
    held.ledger.extend(transition.ledger)
    del held.ledger[:-LEDGER_TAIL]
    if transition.outbox is not None:
        held.outbox[held.seq] = transition.outbox
    held.vault.update(transition.vault)
    held.vault = {name: kept for name, kept in held.vault.items() if kept}
    if transition.erase:
        held.retired = True
        held.pending.clear()
        held.blocks.clear()
        held.transcript.clear()
        held.verified.clear()
        held.vault.clear()


def _erase_aside(aside: _Dataset, transition: Transition) -> None:
    """Erases what a transition erases from a history that was set aside, where the same rows may be."""
    if transition.erase or transition.erased:
        aside.pending.clear()
        aside.blocks.clear()
        aside.vault.clear()
    if transition.erase:
        aside.transcript.clear()
        aside.verified.clear()


__all__ = ["LocalStore"]
