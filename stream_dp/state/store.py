"""The interface of a store: one consistent snapshot on take-over, one atomic transition a commit.

A data set has one owner at a time. ``acquire`` makes the caller the owner and gives it everything it needs;
from then on it keeps the state in memory and tells the store what changed. A commit of a former owner is
``Fenced``, one that starts from another state is a ``Conflict``: in both cases nothing is written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import numpy as np

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.lifetimes import Numbers, units_after
from stream_dp.core.persons import DIGEST_BYTES, Digests
from stream_dp.errors import (
    BudgetExceeded,
    Conflict,
    CorruptState,
    DuplicateId,
    Fenced,
    GoneBack,
    StoreError,
)
from stream_dp.state.ledger import GENESIS, HEAD_BYTES, extend
from stream_dp.state.taken import TAKEN_BYTES

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

MOST_PERSONS: Final = 10_000
"""The most persons of a call: one step must not hold the store up for long."""

TRAIL_BYTES: Final = 32

ORIGIN: Final = bytes(TRAIL_BYTES)
"""The trail of a data set before its first record on the journal."""

LEDGER_TAIL: Final = 1_000
"""The number of last entries of a ledger that a store keeps. All of them are on the topic ``ledger``."""

_MOST_PHASE = 2**32 - 1
_MOST_UNITS = 2**16 - 1
_MOST_ROWS = 2**8 - 1


def check_name(dataset: str) -> None:
    """Refuses what is not a data set's name; a brace in it would move its keys to another Cluster slot.

    Raises:
        ValueError: Not of the form ``[a-z0-9][a-z0-9._-]{0,62}``.
    """
    if _NAME.fullmatch(dataset) is None:
        raise ValueError("a data set's name matches [a-z0-9][a-z0-9._-]{0,62}")


def refusal(dataset: str, code: str, *facts: str) -> StoreError:
    """The error for a refused step, from the reply of a script; both stores speak through it.

    Args:
        dataset: Name of the data set.
        code: FENCED, CONFLICT, DUPLICATE, BUDGET, SHARE or CORRUPT.
        facts: The further facts that the scripts return: positions and ids, never contents.
    """
    what, detail = (*facts, "", "")[:2]
    if code == "FENCED":
        return Fenced(
            f"{dataset}: another worker has taken over, or the store was emptied. This worker ends, and the "
            "next one heals the data set from the journal if the store lacks something"
        )
    if code == "DUPLICATE":
        if what == "taken":
            return DuplicateId(f"{dataset}: the id of a batch with {detail} is taken already")
        return DuplicateId(f"{dataset}: {what} {detail!r} is stored already; send what is stored")
    if code == "BUDGET":
        return BudgetExceeded(f"{dataset}: block {what} has too little {detail} left")
    if code == "SHARE":
        return BudgetExceeded(f"{dataset}: of block {what} an account may spend less {detail}")
    if code == "CORRUPT":
        return CorruptState(
            f"{dataset}: the key {what} holds something that is not ours; restore the store, or give "
            "stream_dp a prefix of its own"
        )
    if what in _GONE_BACK:
        return GoneBack(f"{dataset}: {_GONE_BACK[what].format(detail)}")
    return Conflict(f"{dataset}: {_CONFLICTS[what].format(detail)}")


_GONE_BACK = {
    "seq": (
        "stands at seq {}, not where this commit starts: the store has gone back, or another worker writes. "
        "This worker ends, and the next one heals the data set from the journal"
    ),
    "trail": (
        "another history led to this seq: the store has gone back, or another worker writes. This worker "
        "ends, and the next one heals the data set from the journal"
    ),
    "behind": (
        "stands at seq {}, and the journal has later commits: the store has gone back. This worker ends, and "
        "the next one heals the data set from the journal"
    ),
    "listed": (
        "this partition of the journal is not noted any more where reading began: the store has gone back. "
        "This worker ends, and the next one reads it again"
    ),
    "phase": "phase {} is not the one that is sealed next",
    "part": (
        "does not have the reservations before part {}: the store has gone back, or another worker writes. "
        "This worker ends, and the next one reserves again"
    ),
    "reserved": (
        "does not have all reservations of the phase that is sealed: the store has gone back, or another "
        "worker writes. This worker ends, and the next one reserves again"
    ),
    "units": "a person has used other units than the reservation starts from",
}
"""What an owner that nobody has followed meets only then."""

_CONFLICTS = {
    "head": "the ledger has another head at this seq",
    "defined": "is defined already",
    "undefined": "has no definition; its first commit must bring one",
    "retired": "is retired and takes no more rows or secrets",
    "cursor": "the cursor of {} would go backwards",
    "block": "there is no block {} to charge",
    "erased": "the rows of block {} are erased, so no look at them can be charged",
    "rows": "there are no rows of block {} to read",
    "unsealed": "block {} is not sealed, so its rows cannot be erased",
    "intent": "no open look was announced at seq {}",
    "kept": "is not retired, so what its persons have used is kept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that the owner of a data set needs, as of one instant.

    Attributes:
        dataset: Name of the data set.
        token: Fencing token of this take-over; commits carry it.
        seq: Commits so far.
        head: Head of the ledger's hash chain, 32 bytes.
        trail: The trail behind the record of the last commit, 32 bytes. ``ORIGIN`` before the first.
        definition: The accepted definition; None while the data set does not exist.
        meta: Public counters and flags, free-form.
        cursor: "topic:partition" -> next offset to read; of a source, the next one to count.
        pending: Accepted rows of the phase to come, in order of arrival. Private.
        n_blocks: The number of sealed blocks that have rows, the last ones: those before them are erased.
            ``DatasetStore.block`` reads them.
        vault: Secrets that were drawn once, by name. Private; empty once erased.
        spent: (rho, delta) spent on each block, units of its budget / 2**50. Kept when blocks are erased.
        transcript: Published measurements, in order.
        verified: Verified answers kept for repeats.
        intents: Looks announced and not settled, by the seq of the commit that announced them.
        outbox: (seq, record) committed and not yet marked as released, in order.
    """

    dataset: str
    token: int
    seq: int
    head: bytes
    trail: bytes
    definition: bytes | None = field(repr=False)
    meta: dict[str, str]
    cursor: dict[str, int]
    pending: tuple[bytes, ...] = field(repr=False)
    n_blocks: int
    vault: dict[str, bytes] = field(repr=False)
    spent: tuple[tuple[int, int], ...]
    transcript: tuple[bytes, ...] = field(repr=False)
    verified: dict[bytes, bytes] = field(repr=False)
    intents: dict[int, bytes] = field(repr=False)
    outbox: tuple[tuple[int, bytes], ...] = field(repr=False)


class AccountLimit(NamedTuple):
    """The most that an account may have charged to a block, in units of its budget / 2**50."""

    block: int
    account: str
    rho: int
    delta: int


def account_field(block: int, account: str) -> str:
    """The field of ``meta`` that says what an account has charged to a block: two numbers, rho and delta."""
    return f"{_ACCOUNT}{block} {account}"


def account_of(name: str) -> tuple[int, str] | None:
    """The block and the account that a field of ``meta`` is about; None for every other field."""
    if not name.startswith(_ACCOUNT):
        return None
    block, _, account = name.removeprefix(_ACCOUNT).partition(" ")
    return int(block), account


_ACCOUNT: Final = "account "


def _is_part(*units: int) -> bool:
    return all(0 <= one <= UNITS for one in units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The changes of one commit, as deltas only. Afterwards ``seq`` is one more and ``head`` is ``new_head``.

    Attributes:
        dataset: The name of the data set.
        token: The owner's fencing token.
        seq: The number of commits before this one.
        head: The ledger head before this commit, 32 bytes.
        new_head: The ledger head after it; equal to ``head`` when ``ledger`` is empty.
        trail: The trail before this commit, 32 bytes.
        new_trail: The trail behind its record.
        definition: The definition, at the creation of the data set only, which is its first commit.
        meta: The fields to set.
        cursor: "topic:partition" -> next offset; never backwards.
        rotate: Whether to drop the answers and the outcomes of batches that were stored before the last
            rotation, and to keep those that were stored since until the next one. ``answers`` and
            ``batches`` come after it.
        answers: Id -> stored bytes; none may be kept yet.
        batches: Id -> stored bytes; none may be kept yet.
        taken: What to keep for ever of ids of batches, 16 bytes each; none may be kept yet.
        pending: The rows to append to those that wait. Private.
        seal: The bytes of the next block. What waited is dropped first (the caller put it into the block),
            then ``pending`` is appended. Private.
        reserved: The number of calls of ``PersonStore.reserve`` that a seal follows from; 0 if from none. The
            store refuses the seal unless it has them all, as one that has gone back has not.
        vault: Private bytes to keep by name, next to the blocks: secrets drawn once. The same name again
            replaces, empty bytes drop it.
        erased: The number of first blocks whose rows are gone from this commit on, those of earlier commits
            included. What was spent on them stays, and nothing more can be charged to them. Of what
            ``rebuild`` has set aside, all blocks, pending rows and the vault go: the same rows may be there.
        charges: The charges to add to what their blocks have spent, all or none. A block may be the one
            sealed here.
        limits: The most that an account may have charged to a block with these charges, a block once. What
            it has charged is kept in ``meta``, see ``account_field``.
        transcript: The measurements to append.
        verified: The verified answers to keep; the same key again replaces.
        intent: A look to announce, kept under the new ``seq`` until settled.
        settles: The announced looks that end here, by the seq that announced them.
        ledger: The entries to append. The store keeps the last ``LEDGER_TAIL`` of all.
        outbox: The record of this commit, kept under the new ``seq`` until the journal has it and all that it
            queues has left.
        erase: Retires the data set, last of all: pending rows, blocks, vault, transcript and verified answers
            go, also of what was set aside, and none can come back; ids, answers, ledger, spent and cursor
            stay. What persons have used is erased afterwards, by ``PersonStore.forget_persons``.
    """

    dataset: str
    token: int
    seq: int
    head: bytes
    new_head: bytes
    trail: bytes = ORIGIN
    new_trail: bytes = ORIGIN
    definition: bytes | None = field(default=None, repr=False)
    meta: Mapping[str, str] = field(default_factory=dict)
    cursor: Mapping[str, int] = field(default_factory=dict)
    rotate: bool = False
    answers: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    batches: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    taken: Sequence[bytes] = ()
    pending: Sequence[bytes] = field(default=(), repr=False)
    seal: bytes | None = field(default=None, repr=False)
    reserved: int = 0
    vault: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    erased: int = 0
    charges: Sequence[Charge] = ()
    limits: Sequence[AccountLimit] = ()
    transcript: Sequence[bytes] = field(default=(), repr=False)
    verified: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    intent: bytes | None = field(default=None, repr=False)
    settles: Sequence[int] = ()
    ledger: Sequence[bytes] = field(default=(), repr=False)
    outbox: bytes | None = field(default=None, repr=False)
    erase: bool = False

    def __post_init__(self) -> None:
        check_name(self.dataset)
        if len(self.head) != HEAD_BYTES or len(self.new_head) != HEAD_BYTES:
            raise ValueError(f"a ledger head has {HEAD_BYTES} bytes")
        if len(self.trail) != TRAIL_BYTES or len(self.new_trail) != TRAIL_BYTES:
            raise ValueError(f"a trail has {TRAIL_BYTES} bytes")
        if functools.reduce(extend, self.ledger, self.head) != self.new_head:
            raise ValueError("new_head is not what the appended ledger entries lead to")
        if self.token < 0 or self.seq < 0:
            raise ValueError("token and seq are not negative")
        if self.reserved < 0 or (self.reserved and self.seal is None):
            raise ValueError("a seal alone follows from reservations")
        if self.erased < 0:
            raise ValueError("the number of erased blocks is not negative")
        if any(len(one) != TAKEN_BYTES for one in self.taken):
            raise ValueError(f"of an id of a batch {TAKEN_BYTES} bytes are kept")
        if any(offset < 0 for offset in self.cursor.values()):
            raise ValueError("an offset is not negative")
        if any(charge.block < 0 or charge.rho < 0 or charge.delta < 0 for charge in self.charges):
            raise ValueError("a charge is not negative: what was spent never comes back")
        if any(seq < 0 for seq in self.settles):
            raise ValueError("a settled look is named by the seq that announced it")
        if any(one.block < 0 or not _is_part(one.rho, one.delta) for one in self.limits):
            raise ValueError("what an account may have charged is a part of a line")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """The rows of persons that may count in the phase that is sealed next, as absolute numbers.

    Repeated for the same phase, the larger number of rows of each person stays reserved. So a worker that
    died between this and the seal loses nothing, and neither does the one that repeats it.

    Attributes:
        dataset: The name of the data set.
        token: The owner's fencing token.
        phase: The phase, from 1.
        digests: The person of each slot, shape (n_slots, 12). A person may have several. Private.
        before: The units that each has used in earlier phases, shape (n_slots,), at most 65,535. Private.
        rows: The rows of each that may count, shape (n_slots,), at most 255. 0 reserves nothing. Private.
        part: The number of the call, from 0, where a phase needs several. The store refuses it unless it has
            the one before.
    """

    dataset: str
    token: int
    phase: int
    digests: Digests = field(repr=False)
    before: Numbers = field(repr=False)
    rows: Numbers = field(repr=False)
    part: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        check_asked(self.dataset, self.phase, self.digests)
        if self.part < 0:
            raise ValueError("the number of a part is not negative")
        if self.before.shape != self.rows.shape or len(self.rows) != len(self.digests):
            raise ValueError("a reservation has a number of units and of rows for each slot")
        if np.any(self.rows < 0) or np.any(self.rows > _MOST_ROWS):
            raise ValueError(f"a reservation is of 0 to {_MOST_ROWS} rows of a person")
        after = units_after(self.before, self.rows)
        if np.any(self.before < 0) or np.any(after > _MOST_UNITS):
            raise ValueError(f"a person has 0 to {_MOST_UNITS} units")


def check_asked(dataset: str, phase: int, digests: Digests) -> None:
    """Refuses what cannot be asked of persons.

    Raises:
        ValueError: Not a data set's name, a phase beyond 32 bits, or digests of another length or too many.
    """
    check_name(dataset)
    if not 1 <= phase <= _MOST_PHASE:
        raise ValueError(f"a phase is between 1 and {_MOST_PHASE}")
    if digests.ndim != 2 or digests.shape[1] != DIGEST_BYTES:
        raise ValueError(f"a person's digest has {DIGEST_BYTES} bytes")
    if len(digests) > MOST_PERSONS:
        raise ValueError(f"a call is about at most {MOST_PERSONS} persons")


@dataclass(frozen=True, slots=True)
class Note:
    """Up to where the journal is known to be contained in what the store has of a data set.

    Attributes:
        offset: The offset of the journal below which all of its records are contained.
        epoch: The epoch in force there.
        seq: The number of its commits that the journal has below that offset.
    """

    offset: int = 0
    epoch: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The place in its history at which the store has a data set.

    Attributes:
        token: The fencing token of its owner. 0 if the store has nothing of it.
        seq: The number of commits.
        trail: The trail behind the last of them, 32 bytes.
        note: What was noted of the journal in that copy of the store.
    """

    token: int
    seq: int
    trail: bytes
    note: Note = Note()


@dataclass(frozen=True, slots=True)
class Released:
    """A commit that is on the journal, and of which everything has left.

    Attributes:
        token: The owner's fencing token.
        seq: The number of commits with it. The records up to it are dropped.
        partition: The partition of the journal, as in ``JournalStore``. Empty to note nothing.
        note: What to note with it.
    """

    token: int
    seq: int
    partition: str = ""
    note: Note = Note()


class Outcomes(NamedTuple):
    """All that is stored of a data set under ids.

    Attributes:
        answers: The answers since the last rotation.
        batches: The outcomes of batches since the last rotation.
        previous: The answers that were stored before the last rotation.
        previous_batches: The outcomes of batches that were stored before the last rotation.
        taken: What is kept for ever of ids of batches, 16 bytes each.
    """

    answers: dict[str, bytes]
    batches: dict[str, bytes]
    previous: dict[str, bytes]
    previous_batches: dict[str, bytes]
    taken: frozenset[bytes]


class Counts(NamedTuple):
    """The numbers of ids that are stored of a data set, as in ``Outcomes``."""

    answers: int
    batches: int
    previous: int
    previous_batches: int
    taken: int

    @classmethod
    def of(cls, outcomes: Outcomes) -> Counts:
        """Counts what was read."""
        return cls(*map(len, outcomes))

    @property
    def rotated(self) -> int:
        """The number of those that were stored before the last rotation."""
        return self.previous + self.previous_batches

    def fresh(self) -> Counts:
        """The numbers without those that were stored before the last rotation."""
        return self._replace(previous=0, previous_batches=0)


class PersonStore(Protocol):
    """The part of a store that keeps the units which the persons of a data set have used, for life.

    Only the owner reads and writes them, and only for the phase that is sealed next. They are reserved
    before the seal is committed. Every method may raise StoreUnavailable or another StoreError, and may then
    be repeated.
    """

    async def units(self, dataset: str, token: int, phase: int, digests: Digests) -> Numbers:
        """Returns the units that persons have used before a phase, shape (n_slots,). Private.

        What was reserved for this very phase is left out, so that a reservation can be repeated.

        Args:
            dataset: The name of the data set.
            token: The owner's fencing token.
            phase: The phase that is sealed next, from 1.
            digests: The person of each slot, shape (n_slots, 12), for at most ``MOST_PERSONS`` slots.

        Raises:
            Fenced: The data set has another owner, or none.
            Conflict: Another phase is sealed next, or the data set is retired.
            CorruptState: What is stored is not ours.
        """
        ...

    async def reserve(self, reservation: Reservation) -> None:
        """Makes a reservation durable, whole or not at all. The same one again is done already.

        Raises:
            Fenced: The data set has another owner, or none.
            Conflict: Another phase is sealed next, the data set is retired, or a person has used other units
                than the reservation starts from.
            CorruptState: What is stored is not ours.
        """
        ...

    async def forget_persons(self, dataset: str, token: int) -> bool:
        """Erases a part of what persons have used, of a data set that is retired or has just been rebuilt.

        The store notes how far it is, so that the next call goes on from there, also that of another worker.

        Returns:
            Whether there may be more.

        Raises:
            Fenced: The data set has another owner, or none.
            Conflict: The data set is not retired, and has commits since it was rebuilt, or never did.
            CorruptState: What is stored is not ours.
        """
        ...


class DatasetStore(PersonStore, Protocol):
    """The part of a store that keeps each data set, and what its persons have used.

    Every method may raise StoreUnavailable or another StoreError.
    """

    async def acquire(
        self, dataset: str, *, token: int | None = None, new: bool = True
    ) -> Snapshot:
        """Takes a data set over: from now on commits of its former owner are fenced.

        Args:
            dataset: Name of the data set.
            token: The fencing token; None takes the next one. The same one again is the same owner's.
            new: Whether one that does not exist gets a token, so that it can be defined. Else nothing is
                written of its name, and its token is 0.

        Raises:
            Fenced: A larger token is stored, or another owner came while we were reading.
            CorruptState: What is stored is not ours.
        """
        ...

    async def missing(self, datasets: Sequence[str]) -> frozenset[str]:
        """Returns those of these names of which nothing is stored, in one round trip."""
        ...

    async def commit(self, transition: Transition) -> None:
        """Makes a transition durable, whole or not at all.

        The same transition again is done already: a lost reply is safe to repeat, while we are the owner.

        Raises:
            Fenced: The data set has another owner, or none.
            Conflict: Stored seq, head or trail is another, a cursor would go backwards, an announced look is
                not there, a block does not exist or is to be charged although its rows are erased, the
                definition comes twice or never, or rows or secrets come for a retired data set.
            DuplicateId: An answer or batch id is stored or taken already.
            BudgetExceeded: A charge would pass a block's budget.
            CorruptState: What is stored is not ours.
            StoreUnavailable: Whether it happened is unknown; commit the same transition again, or acquire.
        """
        ...

    async def commit_all(self, transitions: Sequence[Transition]) -> list[StoreError | None]:
        """Makes transitions of different data sets durable in one round trip, each whole or not at all.

        Returns:
            What ``commit`` would have raised of each, in order; None for those that are done.

        Raises:
            StoreUnavailable: It is unknown which of them happened. Commit the same ones again.
        """
        ...

    async def block(self, dataset: str, token: int, index: int) -> bytes:
        """Returns one sealed block, the bytes of its ``seal``. Private.

        Args:
            dataset: The name of the data set.
            token: The owner's fencing token: the blocks of another owner may be other ones.
            index: The block, from 0, with those counted whose rows are erased.

        Raises:
            Fenced: The data set has another owner, or none.
            Conflict: The block is not sealed, or its rows are erased.
            CorruptState: What is stored is not ours.
        """
        ...

    async def answers(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        """Stored answers of these ids of each data set, by data set and id, in one round trip.

        Those that were stored before the last rotation are among them.
        """
        ...

    async def batches(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        """Returns what is stored of batch ids of each data set, by data set and id, in one round trip.

        Of an id that is taken, and whose outcome is not kept any more, that is ``TAKEN``.
        """
        ...

    async def taken(self, dataset: str, taken: Sequence[bytes]) -> set[bytes]:
        """Returns which of these are kept of ids of batches, 16 bytes each."""
        ...

    async def outcomes(self, dataset: str, *, rotated: bool = True) -> Outcomes:
        """Returns all that is stored of a data set under the ids of answers and batches.

        Args:
            dataset: The name of the data set.
            rotated: Whether to read what was stored before the last rotation, too.
        """
        ...

    async def counts(self, dataset: str) -> Counts:
        """Returns how many ids there are of each kind, as of one instant or nearly so."""
        ...

    async def ledger(self, dataset: str) -> list[bytes]:
        """Returns the last entries of the ledger, ``LEDGER_TAIL`` at most, the oldest of them first."""
        ...

    async def cursors(self, dataset: str, keys: Sequence[str] | None = None) -> dict[str, int]:
        """The next offset under each of these keys of a data set's cursor that it has, as of one instant.

        Args:
            dataset: The name of the data set.
            keys: The keys. None for all that it has.
        """
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server of the store has used. A server does not tell how much of its disk is free.

    Attributes:
        memory: The bytes of memory that count towards the limit.
        limit: The bytes at which the server takes no more writes; without such a limit, those of its host.
        limited: Whether the server has a limit of its own (maxmemory).
        disk: The bytes of the append-only file.
        rewritten: Whether the last rewrite of that file went well. A disk that is full fails it first.
    """

    memory: int
    limit: int
    limited: bool
    disk: int
    rewritten: bool

    @property
    def share(self) -> float:
        """The share of the limit that is used."""
        return self.memory / self.limit if self.limit else 0.0


class DeploymentStore(Protocol):
    """The part of a store that serves all workers of a deployment. Every method may raise a StoreError."""

    async def problems(self) -> tuple[str, ...]:
        """Settings that let the store lose what the journal cannot heal, or all of it, each with its fix."""
        ...

    async def usage(self) -> Usage | None:
        """What the server has used, or of several the one with the least left. None if there is no server."""
        ...

    async def datasets(self) -> tuple[str, ...]:
        """Every data set ever created, retired ones too, sorted."""
        ...

    async def watermarks(self) -> dict[str, int]:
        """Returns, for each "topic:partition", the offset below which every record is done."""
        ...

    async def mark(
        self,
        released: Mapping[str, Released] = MappingProxyType({}),
        watermarks: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        """Notes what is done with, in one round trip.

        Args:
            released: Data set -> its last commit that is done with, and with it all before it.
            watermarks: "topic:partition" -> offset; one that stands higher already stays.

        Returns:
            The data sets that have another owner: none of their records was dropped.

        Raises:
            GoneBack: The store stands before a commit that it had acknowledged: it is another copy. What is
                said of other data sets and of topics is noted all the same.
        """
        ...

    async def partitions(self, topic: str, count: int) -> int:
        """Records a topic's partition count the first time; returns the recorded one."""
        ...

    async def constant(self, name: str, proposed: bytes) -> bytes:
        """Records a value under a name the first time, for all workers; returns the recorded one."""
        ...

    async def hold(self, holder: str, partitions: Collection[int]) -> set[int]:
        """Says which partitions a worker has in hand from now on: these and no others.

        Args:
            holder: The worker, in a word.
            partitions: The partitions that it has in hand.

        Returns:
            Those that it took over from another one that still had them in hand: it died, or does not know
            yet that it lost them. Asked again, the same.
        """
        ...

    async def attempts(self, task: str) -> int:
        """Counts one more attempt at a task; returns how many there were, this one included.

        A lost reply may count one twice.

        Args:
            task: The task that a worker may die of, such as a record or the take-over of a data set.
        """
        ...

    async def clear_attempts(self, task: str) -> None:
        """Forgets the attempts at a task."""
        ...

    async def close(self) -> None:
        """Ends the use of this store; closes what it opened itself."""
        ...


class JournalStore(Protocol):
    """The part of a store that says how far it and the journal agree. Every method may raise a StoreError.

    A partition of the journal is named by a text that no partition of another topic has.
    """

    async def places(self, partition_of: Callable[[str], str]) -> dict[str, Place]:
        """Returns the place of every data set that was ever named.

        Args:
            partition_of: Data set -> the partition of the journal that has its records.
        """
        ...

    async def note(
        self, partition: str, note: Mapping[str, Note], places: Mapping[str, Place]
    ) -> None:
        """Notes, for each of these data sets, that the journal is contained in its state.

        Where a data set has another place by now, nothing is noted: it may be another copy of the store.

        Args:
            partition: The partition of the journal.
            note: What to note of each data set.
            places: The place at which that was found.
        """
        ...

    async def listed(self, partition: str) -> Note:
        """Returns up to where names and marks of a partition of the journal are known. Its ``seq`` is 0."""
        ...

    async def note_listed(
        self,
        partition: str,
        note: Note,
        names: Collection[str],
        watermarks: Mapping[str, int] = MappingProxyType({}),
        *,
        since: int | None = None,
    ) -> None:
        """Lists names and raises watermarks, and notes that the journal says no more below an offset.

        All of it at once: what was noted as known and is not would never be read again.

        Args:
            partition: The partition of the journal.
            note: Up to where it was read.
            names: The names to list.
            watermarks: What it says of topics.
            since: The offset from which on it was read. None to compare nothing.

        Raises:
            Fenced: There is a note of a later epoch: another worker has taken over.
            GoneBack: The store has noted less than ``since``: what lies between was not read.
        """
        ...

    async def rebuild(
        self, dataset: str, token: int, *, seq: int, trail: bytes, head: bytes = GENESIS
    ) -> None:
        """Sets aside what there is of a data set, and begins it again at a place, with nothing in it.

        What was set aside before stays, unless this was not a beginning of that kind. Nothing reads it. Its
        private parts go with the next commit that erases rows.

        Args:
            dataset: The name of the data set.
            token: The owner's fencing token.
            seq: The number of commits to begin with.
            trail: The trail to begin with, 32 bytes.
            head: The head of the ledger before the first entry that is to come, 32 bytes.

        Raises:
            Fenced: The data set has another owner.
        """
        ...


class Store(DatasetStore, DeploymentStore, JournalStore, Protocol):
    """The working copy: data sets, what belongs to none of them, and how far the journal is in it."""


__all__ = [
    "LEDGER_TAIL",
    "MOST_PERSONS",
    "ORIGIN",
    "TRAIL_BYTES",
    "AccountLimit",
    "Counts",
    "DatasetStore",
    "DeploymentStore",
    "JournalStore",
    "Note",
    "Outcomes",
    "PersonStore",
    "Place",
    "Released",
    "Reservation",
    "Snapshot",
    "Store",
    "Transition",
    "account_field",
    "account_of",
    "check_asked",
    "check_name",
    "refusal",
]
