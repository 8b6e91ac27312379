"""One data set as its owner holds it: the private blocks, the public mechanism, and the next commit.

Everything that a record changes is drafted here and made durable by ``flush`` in one atomic step. A look at
the data goes through ``look``, which makes its charge durable first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from secrets import token_bytes
from time import monotonic, time
from typing import Any, Final, TypedDict

import numpy as np

from stream_dp.core.accounting import UNITS, Charge, summed
from stream_dp.core.blocks import Block, Blocks
from stream_dp.core.conditions import Conditions
from stream_dp.core.mechanism import Look, Mechanism, Release, dearest
from stream_dp.core.noise import Kind, NoiseSource
from stream_dp.core.parameters import erased_blocks
from stream_dp.core.persons import Persons, PersonSecret
from stream_dp.core.query import AnyQuery, LinearQuery
from stream_dp.core.searching import least
from stream_dp.core.shares import OWNER, Room
from stream_dp.core.universe import MAX_ROWS, Rows, Universe
from stream_dp.errors import CorruptState, InvalidDefinition, RowsGone, StoreError
from stream_dp.messages import (
    AnalystSpec,
    Batch,
    BudgetShares,
    ChangeAnalysts,
    Counted,
    Definition,
    Event,
    OwnShare,
    Reason,
    large_delta,
    standing_key,
)
from stream_dp.pipeline.fuse import CrashPoint, Fuse, unarmed
from stream_dp.pipeline.gathering import Gathering, Span, Times
from stream_dp.pipeline.keeping import (
    LOOKED,
    PERSONS,
    WAITED,
    WAITING,
    Keeper,
    Looked,
    field_of,
    named_in,
)
from stream_dp.pipeline.limits import Limits
from stream_dp.pipeline.lost_rows import ENTRY, GONE, Gone, given_up
from stream_dp.pipeline.paying import OWN, Payer, Paying
from stream_dp.pipeline.records import Asked, Commit, Outgoing, Releasable
from stream_dp.pipeline.reserving import calls_for, counted, forget
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.standing import StandingQueries
from stream_dp.pipeline.stored_blocks import BlockCache, StoredBlocks
from stream_dp.pipeline.synthesizing import synthesized
from stream_dp.pipeline.unasked import Unasked
from stream_dp.profiles.building import build, line_of, rows_that_open
from stream_dp.profiles.calibrated import aim_of
from stream_dp.profiles.lines import privacy_of
from stream_dp.profiles.shares import check_opening
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.journal import NONCE_BYTES, Accepted, CommitRecord, noting, transition_of
from stream_dp.state.store import AccountLimit, DatasetStore, Snapshot, Transition

__all__ = [
    "DEFINED_IN",
    "LEDGER",
    "MOST_DRAWN",
    "MOST_SECONDS",
    "PERSON",
    "PHASE",
    "TIMES",
    "Dataset",
    "Dates",
    "commit",
    "ledger_length",
    "settling",
]

# Entries of the transcript: what a restart folds again, in order.
_PHASE, _RELEASE, _LOST, _ENDED = b"\x00", b"\x01", b"\x02", b"\x03"

_LEDGER = "ledger"  # the counter that says how many entries the ledger has

_TIMES = "times"  # what is known of the times of the rows that wait

_WORK = "work"  # the record in hand, and what looks it has led to

PHASE, LEDGER, TIMES = _PHASE, _LEDGER, _TIMES

_PAID = "paid"  # the record in hand, if it has a limit, and what each block has paid for it

PERSON: Final = "person"  # the secret of the digests in the vault, which no look sees

DEFINED_IN: Final = "defined in"  # the epoch of the journal whose owner has defined the data set

_ROTATED = "answers rotated"  # when the answers did last, in milliseconds since 1970

_DAY_MS = 86_400_000

_DROPPED = field_of("dropped")  # the number of first phases of which no rows are kept

_ALL = 2**32

_REPLIES: Final = ("answers", "rejected", "standing")  # what may reply to a query

_OTHER_UNIT = "its rows say whose they are, or do not, against its definition"

_LARGE_DRAFT = 1 << 20

_UNBOUNDED: Final = contextlib.nullcontext()

MOST_DRAWN: Final = 2**23
"""Draws of noise, and below seconds that looks may last, after which a record gets no further look."""
MOST_SECONDS: Final = 10.0


@dataclass
class _Draft:
    """Deltas since the last commit."""

    nonce: bytes = field(default_factory=lambda: token_bytes(NONCE_BYTES), compare=False)
    definition: bytes | None = None
    meta: dict[str, str] = field(default_factory=dict)
    cursor: dict[str, int] = field(default_factory=dict)
    rotate: bool = False
    answers: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, bytes] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    sealed: int | None = None
    pending: list[bytes] = field(default_factory=list, repr=False)
    seal: bytes | None = field(default=None, repr=False)
    reserved: int = 0
    erased: int = 0
    vault: dict[str, bytes] = field(default_factory=dict, repr=False)
    charges: tuple[Charge, ...] = ()
    limits: list[AccountLimit] = field(default_factory=list)
    transcript: list[bytes] = field(default_factory=list)
    intent: bytes | None = None
    settles: list[int] = field(default_factory=list)
    ledger: list[bytes] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    erase: bool = False


class _Counter:
    """Counts what is reserved of a source of noise."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self.drawn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        self._noise.reserve(kind, scale, size)
        self.drawn += size


class _Facts:
    """What is public of the blocks of a data set, for those that are counted elsewhere."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    @property
    def universe(self) -> Universe:
        return self._dataset.universe

    def n_rows(self, index: int) -> int:
        return self._dataset.rows_in(range(index, index + 1))

    def check(self, index: int, n_rows: int, *, of_persons: bool) -> None:
        self._dataset._check_block(index, n_rows, of_persons=of_persons)  # noqa: SLF001


Appended = Callable[[Releasable], Awaitable[None]]
"""Returns when the journal has some commits; raises Fenced if another worker appends there by now."""


class Dates(TypedDict):
    """The stretch of time that some phases cover; None where it is not known."""

    since: str | None
    until: str | None


class WindowFacts(TypedDict):
    """The part of an answer that depends on its window alone, until something is paid or a phase opens."""

    n: int
    budget: BudgetShares
    phase: int
    window: tuple[int, int]
    since: str | None
    until: str | None


class Dataset:
    """A data set that this worker owns: one that the store holds, or one that ``define`` creates.

    Attributes:
        committed_at: The time of this owner's last commit, in seconds since 1970. Nothing is decided by it.
        dated_ms: The timestamp of the record in hand, or -1 if it has none. What it leads to carries it.
        asked: The query in hand, to which the replies that are queued belong. None while there is none.
        to_come: The number of queries of the record in hand from the one in hand on.
        looks: The number of paid looks that this owner has taken.
        given_up: The number of phases, and of batches that waited, whose rows this owner has given up.
        standing_queries: The queries that are answered again in each phase.
        paying: Who pays for queries, and what they may still spend.
        limits: How fast analysts may ask and spend.
        unasked: What queries take that say neither an error nor a price.

    Args:
        snapshot: The stored state of the data set. Empty for one that is to be defined.
        definition: The definition of the data set. ``define`` makes a new definition durable.
        key_file: What the key file of persons holds; None without one.
        replays: Whether to fold what was published and to read the rows. A worker that died of just that
            holds the data set without either, and quarantines it.
        appended: Returns when the journal has some commits. No look is taken before it has its charge.
        keeper: Keeps blocks and secrets on a private topic too. None where there is no such topic.
        cache: The cache of blocks that it shares with other data sets. Default: one of its own.

    Raises:
        InvalidDefinition: No mechanism can be built from the definition.
        WrongKeyFile: The data set was defined with another key file.
    """

    def __init__(
        self,
        store: DatasetStore,
        noise: NoiseSource,
        snapshot: Snapshot,
        definition: Definition,
        *,
        key_file: bytes | None = None,
        fuse: Fuse = unarmed,
        replays: bool = True,
        appended: Appended | None = None,
        keeper: Keeper | None = None,
        cache: BlockCache | None = None,
    ) -> None:
        self.name = snapshot.dataset
        self.token = snapshot.token
        self.cursor = dict(snapshot.cursor)
        self.meta = dict(snapshot.meta)
        self.spent: list[tuple[int, int]] = list(snapshot.spent)
        self.committed_at: float | None = None
        self.dated_ms = -1
        self.asked: Asked | None = None
        self.to_come = 1
        self.looks = 0
        self.given_up = 0
        self._record = ""
        self._work = (0, 0.0)
        self._limit: int | None = None
        self._paid: tuple[Charge, ...] = ()
        self._store = store
        self._cache = BlockCache() if cache is None else cache
        self._noise = noise
        self._key_file = key_file
        self._person_secret: bytes | None = None
        self._fuse = fuse
        self._appended = appended
        self._keeper = keeper
        self._seq = snapshot.seq
        self._head = snapshot.head
        self._head_next = snapshot.head
        self._trail = snapshot.trail
        self._draft = _Draft()
        self._drafted = 0
        self._committing: tuple[Transition, list[Outgoing]] | None = None
        self._durable = Releasable()
        self._window_facts: dict[tuple[range, str], WindowFacts] = {}
        self._pending: list[Rows] = []
        self._waiting = 0
        self._releases = 0  # since the newest phase opened
        self._reserved: bytes | None = None
        self._lost = sorted(snapshot.intents.items())
        self._gone = Gone()
        self.standing_queries = StandingQueries(self.name, self.meta, self._set_meta)
        self.paying = Paying(
            self.name,
            definition,
            self.meta,
            self._set_meta,
            lambda window: self._mechanism.part_now(window),
        )
        self.limits = Limits(self.meta, self._set_meta)
        self.unasked = Unasked(aim_of(definition.accuracy), self.meta, self._set_meta)
        self._build(definition)
        if replays and not self.retired:
            self._replay(snapshot)

    @classmethod
    def stored(
        cls,
        store: DatasetStore,
        noise: NoiseSource,
        snapshot: Snapshot,
        *,
        key_file: bytes | None = None,
        fuse: Fuse = unarmed,
        replays: bool = True,
        appended: Appended | None = None,
        keeper: Keeper | None = None,
        cache: BlockCache | None = None,
    ) -> Dataset:
        """A data set as the store holds it, for the owner that has just acquired it."""
        assert snapshot.definition is not None, "the caller has checked that it is defined"
        definition = Definition.read(json.loads(snapshot.definition))
        return cls(
            store,
            noise,
            snapshot,
            definition,
            key_file=key_file,
            fuse=fuse,
            replays=replays,
            appended=appended,
            keeper=keeper,
            cache=cache,
        )

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, phase={self.phase})"

    # ------------------------------------------------------------ public facts

    @property
    def conditions(self) -> Conditions:
        """The conditions of its queries, compiled."""
        return self._conditions

    @property
    def universe(self) -> Universe:
        """The finite set of possible rows."""
        return self._universe

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that answers the queries."""
        return self._mechanism

    @property
    def in_order(self) -> frozenset[int]:
        """Attributes that are answered row by row, in order of arrival."""
        return self._mechanism.in_order

    @property
    def retired(self) -> bool:
        """Whether the data set is retired."""
        return self.meta.get("retired") == "1"

    @property
    def quarantined(self) -> str:
        """The record or the take-over that the worker died of again and again. Empty while there is none."""
        return self.meta.get("quarantined", "")

    @property
    def phase(self) -> int:
        """Phases opened so far."""
        return len(self._data)

    @property
    def waiting(self) -> int:
        """Rows accepted and not sealed yet."""
        return self._waiting

    @property
    def needed(self) -> int | None:
        """The number of rows that must wait to open the next phase. None when no phase is left."""
        opens = partial(self._mechanism.opens, min_rows=self.definition.phase.min_rows)
        rows = least(range(MAX_ROWS), opens)
        return rows if rows < MAX_ROWS else None

    @property
    def commits(self) -> int:
        """Commits so far, those of former owners included."""
        return self._seq

    @property
    def place(self) -> tuple[int, bytes]:
        """The number of commits so far, and the trail behind the last of them."""
        return self._seq, self._trail

    @property
    def rotated(self) -> str:
        """When old answers were dropped last. Empty if they never go, or nothing with a time has come yet."""
        return self.meta.get(_ROTATED, "")

    @property
    def waited(self) -> list[str]:
        """What was kept of rows that waited and is not erased yet: name and number of values."""
        found: list[str] = json.loads(self.meta.get(WAITED) or "[]")
        return found

    @property
    def erased(self) -> int:
        """The number of first phases whose rows are erased, or lost."""
        return self._data.erased

    @property
    def bare(self) -> int:
        """The number of first phases that have no rows since those of the last of them were lost."""
        return self._bare

    def rows_in(self, window: range) -> int:
        """Returns the number of rows in the blocks of ``window``."""
        return sum(self._data.sizes[window.start : window.stop])

    @property
    def analysts(self) -> Mapping[str, AnalystSpec] | None:
        """What is allowed to whom; None where all is allowed to everybody."""
        return self.paying.analysts

    def budget(self, window: range, analyst: str | None = None) -> BudgetShares:
        """Returns the spent and the remaining share of the line in ``window`` of which most is spent.

        Args:
            window: The blocks.
            analyst: The one who asks, whose own part is said where anybody's part is bounded.
        """
        worst = max((max(self.spent[block]) for block in window), default=0)
        shares = BudgetShares(spent=round(worst / UNITS, 6), left=round(1 - worst / UNITS, 6))
        if analyst is None or not self.paying.bounds or not window:
            return shares
        return shares.model_copy(update={"yours": self._own_share(window, analyst)})

    def _own_share(self, window: range, analyst: str) -> OwnShare:
        payer = Payer(analyst, analyst)
        lines = UNITS - np.array([self.spent[block] for block in window]).T
        left = np.minimum(self.paying.room(payer, window), lines).min(axis=0)
        least = int(left.argmin())
        spent = self.paying.spent(payer, window)[:, least].max()
        return OwnShare(spent=round(int(spent) / UNITS, 6), left=round(int(left[least]) / UNITS, 6))

    @property
    def newest_left(self) -> float:
        """The share of the newest phase's line that is left. 1 while no phase is open."""
        return 1.0 - max(self.spent[-1]) / UNITS if self.spent else 1.0

    @property
    def newest_free(self) -> float:
        """The same without what is kept for later phases."""
        if not self.spent:
            return 1.0
        kept = self._mechanism.kept_for_later(self.phase - 1)
        return max(0.0, self.newest_left - kept / UNITS)

    def share_left(self, entry: str) -> float:
        """Returns the share of the newest phase's line that an entry of ``analysts`` may still charge now.

        Args:
            entry: The name or the pattern; of a pattern, what an analyst may who has charged nothing yet.
                Empty for the owner.
        """
        newest = range(max(0, self.phase - 1), self.phase)
        if not newest:
            return 1.0
        units = self.paying.left(entry, newest)
        return min(self.newest_left, units / UNITS)

    def payer(self, analyst: str, query: AnyQuery) -> Payer:
        """Returns who pays for a query of an analyst."""
        return Payer(analyst, OWNER if self._mechanism.paid_by_owner(query) else analyst)

    def lacks(self, payer: Payer, charges: Iterable[Charge]) -> bool:
        """Returns whether charges would pass what their payer may spend now."""
        return self.paying.lacking(payer, summed(charges)) is not None

    def asked_by(self, analyst: str) -> AbstractContextManager[None]:
        """Has looks planned in this context within what an analyst may spend, or may spend unasked."""
        unasked = self.unasked.room(analyst, self.dated_ms)
        return self._asked_by(Payer(analyst, analyst), unasked)

    def _asked_by(self, payer: Payer, unasked: Room | None = None) -> AbstractContextManager[None]:
        if unasked is None and not self.paying.bounds:
            return _UNBOUNDED
        return self._bounded(payer, unasked)

    @contextlib.contextmanager
    def _bounded(self, payer: Payer, unasked: Room | None) -> Iterator[None]:
        if self.paying.bounds:
            self._mechanism.pays(self.paying.payers(payer))
        self._mechanism.takes_unasked(unasked)
        try:
            yield
        finally:
            self._mechanism.pays(None)
            self._mechanism.takes_unasked(None)

    def facts_of(self, window: range, analyst: str) -> WindowFacts:
        """Returns the facts about ``window`` that every answer about it to an analyst repeats."""
        name = window, analyst if self.paying.bounds else ""
        facts = self._window_facts.get(name)
        if facts is None:
            facts = self._window_facts[name] = WindowFacts(
                n=self.rows_in(window),
                budget=self.budget(window, analyst),
                phase=self.phase,
                window=(window.start + 1, window.stop),
                **self.dates(window),
            )
        return facts

    @property
    def times(self) -> Times:
        """The rules by which times of batches become times of phases."""
        return self._times

    @property
    def spans(self) -> Sequence[Span | None]:
        """The stretch of time that each phase covers. None for phases of which no time is known."""
        return self._spans

    @property
    def gathering(self) -> Gathering:
        """The public facts about the times of the rows that wait."""
        return Gathering.from_text(self.meta.get(_TIMES, ""))

    def dates(self, window: range) -> Dates:
        """Returns the time at which the phases of ``window`` begin and have ended, as messages write it."""
        return self._dates_of(self._spans[window.start : window.stop])

    def _dates_of(self, phases: Sequence[Span | None]) -> Dates:
        spans = [span for span in phases if span is not None]
        if not spans or len(spans) < len(phases):
            return Dates(since=None, until=None)
        since, until = min(span.since for span in spans), max(span.until for span in spans)
        return Dates(since=self._times.written(since), until=self._times.written(until))

    # ------------------------------------------------------------ the draft

    @property
    def dirty(self) -> bool:
        """Whether the draft holds anything to commit."""
        return self._draft != _Draft()

    @property
    def large(self) -> bool:
        """Whether the draft should be committed soon: one step must not hold the store up for long."""
        return self._drafted > _LARGE_DRAFT

    def add_answer(self, name: str, stored: bytes) -> None:
        """Drafts an answer, which the store keeps under ``name``."""
        self._draft.answers[name] = stored

    def rotate_answers(self) -> None:
        """Drafts that old answers and outcomes are dropped, if the record in hand says that it is time.

        Only the times of records decide, so everybody who reads them again does the same. One that is dated
        before the last rotation changes nothing.
        """
        days = self.definition.kept_answers_days
        if days is None or self.dated_ms < 0:
            return
        rotated = self.meta.get(_ROTATED)
        if rotated is not None:
            if self.dated_ms < int(rotated) + days * _DAY_MS:
                return
            self._draft.rotate = True
        self._set_meta(_ROTATED, str(self.dated_ms))

    def release(self, outgoing: Outgoing) -> None:
        """Queues a record for release after the commit that makes it durable."""
        asked = self.asked if outgoing.role in _REPLIES and self.asked else outgoing.asked
        if outgoing.dated_ms != self.dated_ms or outgoing.asked is not asked:
            outgoing = replace(outgoing, dated_ms=self.dated_ms, asked=asked)
        self._draft.outgoing.append(outgoing)
        self._drafted += len(outgoing.value)

    def passed(self, topic_partition: str, next_offset: int) -> None:
        """Notes the reading position behind a record that is finished."""
        self._draft.cursor[topic_partition] = self.cursor[topic_partition] = next_offset

    def announce(self, event: Event) -> bytes:
        """Queues an event and returns its bytes."""
        value = event.to_bytes()
        self.release(Outgoing("events", self.name, value))
        return value

    def write_ledger(self, kind: str, body: Mapping[str, object]) -> None:
        """Appends an entry to the hash chain and queues it for publication."""
        index = int(self.meta.get(_LEDGER, "0"))
        entry, self._head_next = ledger.append(self._draft_head, index, self.name, kind, dict(body))
        self._draft.ledger.append(entry)
        self._set_meta(_LEDGER, str(index + 1))
        self.release(Outgoing("ledger", self.name, entry))

    @property
    def _draft_head(self) -> bytes:
        return self._head_next if self._draft.ledger else self._head

    def note(self, name: str, value: str) -> None:
        """Drafts a public fact."""
        self._set_meta(name, value)

    def waits(self, kept: str, waited: Sequence[str]) -> None:
        """Drafts what is kept of the rows that wait, and what was kept before that and is not erased.

        Args:
            kept: Name and number of values; empty if none wait.
            waited: What was kept before that and is not erased, but for what was kept last.
        """
        before = self.meta.get(field_of(WAITING), "")
        listed = [*waited, *([before] if before not in ("", kept, *waited) else [])]
        self._set_meta(field_of(WAITING), kept)
        if listed != self.waited:
            self._set_meta(WAITED, json.dumps(listed) if listed else "")

    def _set_meta(self, name: str, value: str) -> None:
        self.meta[name] = self._draft.meta[name] = value

    # ------------------------------------------------------------ life

    async def define(self) -> None:
        """Drafts the first commit of a new data set, which makes its definition durable."""
        definition = self.definition
        check_opening(definition, self._mechanism)
        self.rotate_answers()  # to note from when on they are kept
        self._draft.definition = definition.to_bytes()
        if definition.privacy.unit is not None:
            secret = PersonSecret.new(self._noise, self.name, self._key_file)
            self._draft.vault[PERSON] = secret.to_bytes()
            self._person_secret = secret.value
            if self._keeper is not None:
                name = await self._keeper.keep(self.name, PERSONS, secret.to_bytes())
                self._set_meta(field_of(PERSONS), name)
        self.write_ledger(
            "dataset",
            {"definition": json.loads(definition.to_bytes()), "line": line_of(definition)},
        )
        self.release(Outgoing("catalog", self.name, definition.to_bytes()))
        self.accepted()

    def owned(self, token: int) -> None:
        """Takes the fencing token of a new data set, which the commit that defines it says for ever."""
        self.token = token
        self._set_meta(DEFINED_IN, str(token))

    def accepted(self) -> None:
        """Announces that this data set is accepted, also to a client that sends the same definition again."""
        n_rows = rows_that_open(self._mechanism, self.definition)
        note = large_delta(self.definition.privacy.delta, n_rows)
        self.announce(Event(dataset=self.name, event="dataset_accepted", note=note))

    def retire(self) -> None:
        """Erases the rows for ever; the name, its answers and its ledger stay."""
        self._set_meta("retired", "1")
        self._draft.pending.clear()
        self._draft.vault.clear()
        self._draft.erase = True
        self._person_secret = None
        self._pending.clear()
        self._waiting = 0
        self._stored_blocks.forget()
        self._build(self.definition)
        self.write_ledger("retired", {})
        self.release(Outgoing("catalog", self.name, b""))
        for entry in list(self.standing_queries):
            self.standing_queries.end(entry)
            key = standing_key(self.name, entry.analyst, entry.query_id)
            self.release(Outgoing("standing", key, b""))
        if self.definition.synthetic_rows:
            self.release(Outgoing("synthetic", self.name, b""))
        self.gone()

    def change_analysts(self, rules: ChangeAnalysts) -> None:
        """Drafts what is allowed to whom from now on. What is so already is only announced."""
        if (rules.analysts, rules.owner) != (self.paying.analysts, self.paying.owner):
            self.write_ledger("analysts", self.paying.change(rules))
            self._window_facts.clear()
        self.announce(Event(dataset=self.name, event="analysts_changed"))

    async def forget_persons(self) -> None:
        """Erases what the persons of a retired data set have used, where the promise was for life."""
        unit = self.definition.privacy.unit
        if unit is not None and unit.lifetime:
            await self.flush()
            await forget(self._store, self.name, self.token, fuse=self._fuse)

    async def drop_kept(self) -> None:
        """Erases from the private topic what the store has erased, and drafts a note of it.

        The journal must have the commit that erases it: otherwise a store that is lost just then could not be
        healed to what was before.
        """
        if self._keeper is None or self.dirty:
            return
        dropped = int(self.meta.get(_DROPPED, "0"))
        if dropped >= (_ALL if self.retired else self._due):
            return
        if self._appended is not None:
            await self._appended(self.collect())
        if self.retired:
            await self._keeper.drop_all(self.name)
            self._set_meta(_DROPPED, str(_ALL))
        else:
            for phase in range(dropped + 1, self._due + 1):
                if (name := self.meta.get(field_of(phase))) is not None:
                    await self._keeper.drop(self.name, phase, name)
            looked = await self._keeper.drop_unnamed(
                self.name, named_in(self.meta), self._due, Looked.of(self.meta)
            )
            self._set_meta(LOOKED, looked.to_text())
            self._set_meta(_DROPPED, str(self._due))

    async def drop_again(self) -> None:
        """Erases from the private topic what a former worker has written since this data set was retired."""
        if self._keeper is not None and int(self.meta.get(_DROPPED, "0")) >= _ALL:
            await self._keeper.drop_all(self.name)

    def gone(self) -> None:
        """Announces that this data set is retired, also to a client that retires it again."""
        self.announce(Event(dataset=self.name, event="dataset_retired"))

    def quarantine(self, cause: str) -> None:
        """Takes nothing more: the worker died too often of ``cause``, a record or the take-over."""
        self._set_meta("quarantined", cause)
        reason = Reason(
            code="quarantined",
            message=f"the worker died again and again at {cause}; an operator must look",
        )
        self.announce(Event(dataset=self.name, event="quarantined", reason=reason))

    def _build(self, definition: Definition) -> None:
        self._universe, self._mechanism = build(definition)
        self._conditions = Conditions(self._universe)
        self._times = Times(definition.phase)
        self._spans: list[Span | None] = []
        facts = _Facts(self)
        self._stored_blocks = StoredBlocks(self._cache, self._fetched, self._decoded, facts)
        self._data = self._blocks_elsewhere((), 0)
        self._bare = 0
        self._window_facts.clear()
        self.definition = definition

    async def _fetched(self, block: int) -> bytes:
        stored = await self._store.block(self.name, self.token, block)
        if self._keeper is None:
            return stored
        kept = self.meta.get(field_of(block + 1))
        return await self._keeper.block(self.name, block + 1, kept, stored)

    def _blocks_elsewhere(self, sizes: Sequence[int], erased: int) -> Blocks:
        there = self._stored_blocks
        return Blocks.elsewhere(self._universe, sizes, erased, there.read, there.ahead)

    def _decoded(self, index: int, stored: bytes) -> Block:
        block = Block.from_bytes(self._universe, stored)
        self._check_block(index, block.n_rows, of_persons=block.of_persons)
        return block

    def _check_block(self, index: int, n_rows: int, *, of_persons: bool) -> None:
        if n_rows != self._data.sizes[index]:
            raise CorruptState(
                f"{self.name}: block {index} is not the one that its transcript says"
            )
        if of_persons is not (self.definition.privacy.unit is not None):
            raise CorruptState(f"{self.name}: {_OTHER_UNIT}")

    def let_go(self) -> None:
        """Forgets the rows that this owner has read: the data set is not its own any more."""
        self._stored_blocks.forget()

    def _replay(self, snapshot: Snapshot) -> None:
        of_persons = self.definition.privacy.unit is not None
        for stored in snapshot.pending:
            self._wait(Rows.from_bytes(self._universe, stored))
        opened = [_opening(entry) for entry in snapshot.transcript if entry[:1] == _PHASE]
        self._spans = [span for _, span in opened]
        self._bare = max((one.phases for one in given_up(snapshot.transcript)), default=0)
        erased = max(erased_blocks(len(opened), self.definition.kept_phases), self._bare)
        if snapshot.n_blocks != len(opened) - erased:
            raise CorruptState("the store has other blocks than its transcript and definition say")
        sizes = [n_rows for n_rows, _ in opened]
        self._data = self._blocks_elsewhere(sizes, erased)
        if not {rows.whose is not None for rows in self._pending} <= {of_persons}:
            raise CorruptState(f"{self.name}: {_OTHER_UNIT}")
        vault = dict(snapshot.vault)
        self._gone = Gone.from_bytes(vault.pop(GONE, b""))
        if snapshot.definition is not None and of_persons:
            if PERSON not in vault:
                raise CorruptState(f"{self.name}: the secret of its digests is not there")
            secret = PersonSecret.from_bytes(vault.pop(PERSON), self.name, self._key_file)
            self._person_secret = secret.value
        self._data.vault.update(vault)
        for entry in snapshot.transcript:
            kind, body = entry[:1], entry[1:]
            if kind == _PHASE:
                self._mechanism.open_phase(_opening(entry)[0])
                self._releases = 0
            elif kind == _RELEASE:
                self._releases += 1
                self._mechanism.absorb(self._mechanism.release_from_bytes(body))
            elif kind == _LOST:
                self._mechanism.lost(json.loads(body))
            elif kind == _ENDED:
                self._mechanism.end_runs(json.loads(body))
            elif kind == ENTRY:
                if phases := Gone.from_bytes(body).phases:  # or batches alone
                    self._mechanism.rows_gone(phases)
            else:
                raise CorruptState(f"transcript entry of unknown kind {kind.hex()}")
        self._mechanism.charged(
            tuple(Charge(block, rho, delta) for block, (rho, delta) in enumerate(self.spent))
        )
        self._mechanism.recall(snapshot.verified)

    async def recover(self) -> None:
        """Settles looks that a crash interrupted: their charge stays, another look is charged again.

        Rows that could not be healed are given up, in a commit. Runs whose secrets are gone, because the
        store was healed, end.
        """
        for seq, intent in self._lost:
            for description in json.loads(intent):
                self._mechanism.lost(description)
                self._draft.transcript.append(_lost(description))
            self._draft.settles.append(seq)
        if self._gone:
            self._give_up()
        ended = sorted(self._mechanism.secrets - self._data.vault.keys())
        if ended:
            self._mechanism.end_runs(ended)
            self._draft.transcript.append(_ENDED + json.dumps(ended).encode())
        if self._lost:
            self._drop_secrets()
            if self.phase:
                self._synthesize()
        self._lost = []
        await self.flush()
        await self.drop_kept()
        await self.flush()
        if self.retired:
            await self.forget_persons()

    def _give_up(self) -> None:
        """Drafts that rows are nowhere any more: the first phases have none from then on."""
        gone, self._gone = self._gone, Gone()
        self._draft.vault[GONE] = b""
        had = range(self.erased, gone.phases)
        if not had and not gone.batches:
            return  # what is lost was due to be erased
        self._draft.transcript.append(ENTRY + gone.to_bytes())
        if had:
            self._bare = self._draft.erased = gone.phases
            self._data.erase(gone.phases)
            self._stored_blocks.erase(gone.phases)
            self._mechanism.rows_gone(gone.phases)
            self._drop_secrets()
        self.given_up = len(had) + gone.batches
        phases = (had.start + 1, had.stop) if had else None
        self.announce(
            Event(dataset=self.name, event="rows_lost", phases=phases, batches=gone.batches)
        )

    # ------------------------------------------------------------ rows

    def expects(self, counted: Counted | None) -> bool:
        """Returns whether a batch of a source or producer begins where the last one that counted ended."""
        return counted is None or self.cursor.get(counted.key, counted.first) == counted.first

    async def accept(self, batch: Batch, rows: Rows) -> bytes:
        """Takes a batch in, and opens a phase when it is due; returns its outcome.

        By the calendar, the periods that wait have ended when a batch of a later one comes. They open a
        phase before its rows join, if there are enough of theirs. Otherwise enough rows open a phase.

        Args:
            batch: The batch. If it is of a source or producer, the commit sets which one is next.
            rows: Its rows.
        """
        counted = batch.counted
        assert self.expects(counted), "the caller refuses others"
        if self._draft.seal is not None:
            # One commit seals one block, and the outcome drafted below says that its phase is open: no
            # commit may come between the two.
            await self.flush()
        span = self._times.span(batch.time, self.dated_ms)
        if self._times.ends(self.gathering, span) and self._may_open:
            # What was durable before this batch opens the phase. If a crash comes in between, the batch
            # comes again and finds the phase open.
            await self._open_phase(ended_by=span)
            await self.flush()
        if counted is not None:
            self.passed(counted.key, counted.next)
        self._wait(rows)
        topic_partition, _, offset = self._record.rpartition(":")
        taken = Accepted(topic_partition, int(offset or 0), batch.name, rows.n_rows)
        self._draft.accepted.append(taken)
        self._set_times(self._times.with_batch(self.gathering, span))
        opens = self._times.phase.calendar is None and self._may_open
        if not opens:  # else they are sealed at once
            stored = rows.to_bytes()
            self._draft.pending.append(stored)
            self._drafted += len(stored)
        outcome = self.store_batch(
            Event(
                dataset=self.name,
                event="batch_accepted",
                batch_id=batch.batch_id,
                producer=batch.producer,
                sequence=batch.sequence,
                rows=rows.n_rows,
                waiting=0 if opens else self.waiting,
                phase=self.phase + (1 if opens else 0),
            )
        )
        if opens:
            await self._open_phase()
        return outcome

    async def close(self) -> bool:
        """Opens a phase of the rows that wait, although their period may not have ended, or more could join.

        Returns:
            Whether there were enough rows.
        """
        if not self._may_close:
            return False
        assert self._draft.seal is None, "a commit comes between a seal and the rows that wait now"
        self._announce_closed(self.phase + 1, self._dates_of([self.gathering.span]), waiting=0)
        await self._open_phase()
        return True

    def closed(self, phase: int) -> None:
        """Announces that a phase is open, also to a client that closes its period again."""
        dates = self.dates(range(phase - 1, phase))
        self._announce_closed(phase, dates, waiting=self.waiting)

    def _announce_closed(self, phase: int, dates: Dates, *, waiting: int) -> None:
        closed = Event(dataset=self.name, event="phase_closed", phase=phase, waiting=waiting)
        self.announce(closed.model_copy(update=dates))

    @property
    def _may_open(self) -> bool:
        """Whether the rows that wait are enough to open a phase."""
        return self._mechanism.opens(self.waiting, self.definition.phase.min_rows)

    @property
    def _may_close(self) -> bool:
        """Whether the rows that wait are enough for a phase that is asked for.

        They may be fewer than open one by themselves, as long as opening leaves each what is kept for it.
        """
        if self._may_open:
            return True
        if not self._mechanism.opens(self.waiting, self.definition.least_to_close(self.waiting)):
            return False
        rules = {"analysts": self.paying.analysts, "owner": self.paying.owner}
        try:
            check_opening(self.definition.model_copy(update=rules), self._mechanism, self.waiting)
        except InvalidDefinition:
            return False
        return True

    def _set_times(self, gathering: Gathering) -> None:
        if gathering != self.gathering:
            self._set_meta(_TIMES, gathering.to_text())

    def persons(self, batch: Batch) -> Persons | None:
        """Returns what reads whose the rows of a batch are; None where rows are protected."""
        unit = self.definition.privacy.unit
        if unit is None:
            return None
        assert self._person_secret is not None, "it is there until the data set is retired"
        return Persons(unit.key, self._person_secret, batch.name)

    def _wait(self, rows: Rows) -> None:
        self._pending.append(rows)
        self._waiting += rows.n_rows

    def store_batch(self, event: Event) -> bytes:
        """Announces the outcome of a batch and drafts it under its id, if it has one."""
        assert event.batch is not None, "the event of a batch names it"
        outcome = self.announce(event)
        if event.batch_id is not None:
            self._draft.batches[event.batch_id] = outcome
        return outcome

    async def _open_phase(self, *, ended_by: Span | None = None) -> None:
        rows = Rows.concat(self._pending)
        marks, self._reserved = await counted(
            self._store,
            self.name,
            self.token,
            phase=self.phase + 1,
            rows=rows,
            unit=privacy_of(self.definition).unit,
            fuse=self._fuse,
        )
        if self._reserved is not None:
            assert rows.whose is not None, "something was reserved"
            self._draft.reserved = calls_for(len(rows.whose.digests))
        block = Block.seal(self._universe, rows, self.in_order, counted=marks)
        self._stored_blocks.hold(self.phase, block)
        self._data.append(block)
        self.spent.append((0, 0))
        self._window_facts.clear()
        self._draft.seal = stored = block.to_bytes()
        self._draft.sealed = block.n_rows
        if self._keeper is not None:
            values = [stored] if self._reserved is None else [stored, self._reserved]
            name, self._draft.seal = await self._keeper.keep_block(self.name, self.phase, *values)
            self._set_meta(field_of(self.phase), name)
        self._draft.pending.clear()
        self._pending.clear()
        self._waiting = 0
        if self.meta.get(field_of(WAITING)):
            self.waits("", self.waited)  # what waited is in the block now
        gathering = self.gathering
        self._set_times(self._times.after_phase(gathering, ended_by))
        span = gathering.span
        self._spans.append(span)
        numbers = [block.n_rows] if span is None else [block.n_rows, span.since, span.until]
        self._draft.transcript.append(_PHASE + " ".join(map(str, numbers)).encode())
        dates = self.dates(range(self.phase - 1, self.phase))
        by_calendar = {"late_batches": gathering.late} if self._times.phase.every else {}
        known = {name: date for name, date in dates.items() if date is not None}
        self.write_ledger(
            "phase", {"phase": self.phase, "rows": block.n_rows, **self._erase(), **known}
        )
        opened = Event(dataset=self.name, event="phase_opened", phase=self.phase, rows=block.n_rows)
        self.announce(opened.model_copy(update={**dates, **by_calendar}))
        self._releases = 0
        with self._asked_by(OWN):
            looks = self._mechanism.open_phase(block.n_rows)
        if self.erased:
            self._drop_secrets()
        if looks:
            await self.look(looks)
            self._fuse(CrashPoint.IN_PHASE)
            with self._asked_by(OWN):
                more = self._mechanism.opened()
            if more:
                await self.look(more)
        else:
            self._synthesize()
        with self._asked_by(OWN):
            grown = self._mechanism.growth()
        await self._grow(grown)

    def _erase(self) -> dict[str, int]:
        """Erases, with this commit, the rows that are due now; returns what the ledger says of it."""
        erased = self._due
        if not erased:
            return {}
        self._data.erase(erased)
        self._stored_blocks.erase(erased)
        self._draft.erased = erased
        return {"erased": erased}

    @property
    def _due(self) -> int:
        """The number of first phases whose rows the definition has had erased by now."""
        return erased_blocks(self.phase, self.definition.kept_phases)

    # ------------------------------------------------------------ looks and commits

    async def was_asked(
        self, query: AnyQuery, charges: Sequence[Charge] = ()
    ) -> tuple[Charge, ...]:
        """Notes that a query was answered or refused, and takes the looks of its own that are due then.

        The data set pays for them, as for those of an opening. They wait if the record in hand may not take
        as much.

        Returns:
            What these looks are charged.
        """
        looks = self._mechanism.was_asked(query, charges)
        if self.would_pass_limit(summed(charge for look in looks for charge in look.charges)):
            return ()
        return await self._grow(looks, asked=True)

    async def _grow(self, looks: Sequence[Look], *, asked: bool = False) -> tuple[Charge, ...]:
        """Takes looks of its own, if the owner may pay for them. ``asked`` is as in ``look``."""
        charges = summed(charge for look in looks for charge in look.charges)
        if not charges or self.lacks(OWN, charges):
            return ()
        await self.look(looks, OWN, asked=asked)
        return charges

    async def look(
        self,
        looks: Sequence[Look],
        payer: Payer | None = None,
        *,
        asked: bool = True,
        unasked: bool = False,
    ) -> list[Release]:
        """Charges, makes the charge durable, and only then looks; folds what was released.

        Between the look and the commit of its release only the crash of the process can intervene; the
        charge stays then, and the look is taken again under another one.

        Args:
            looks: The looks.
            payer: Who pays for them, within what they may spend. None for what opens a phase, which comes
                before all that anybody may spend.
            asked: Whether the record in hand asks for them, so that they count for its limit.
            unasked: Whether the data set has decided what they take, so that they count for its guards.
        """
        for look in looks:
            self._data.check(look.reads)
        self._noise.discard()
        self._reserve(looks)
        for look in looks:
            for name, secret in look.draw(self._noise).items():
                self.keep(name, secret)
        charges = summed(charge for look in looks for charge in look.charges)
        descriptions = [look.description for look in looks]
        self._draft.charges = charges
        self._draft.limits = self.paying.charge(payer, charges)
        if asked:
            self._pay(charges)
            self.limits.pay(charges)
        if unasked and payer is not None and payer.analyst is not None:
            self.unasked.pay(payer.analyst, self.dated_ms, charges)
        self._draft.intent = json.dumps(descriptions).encode()
        self.write_ledger(
            "charge",
            {
                "looks": descriptions,
                "charges": [[charge.block, charge.rho, charge.delta] for charge in charges],
                # So two looks never have the same entry, not even where a charge was forgotten.
                "nonce": self._draft.nonce.hex(),
                **(payer or OWN).fields,
            },
        )
        self._fuse(CrashPoint.BEFORE_CHARGE)
        await self.flush()
        announced = self._seq
        self._fuse(CrashPoint.AFTER_CHARGE)
        if self._appended is not None:
            await self._appended(self.collect())
        self._mechanism.charged(charges)
        for charge in charges:
            rho, delta = self.spent[charge.block]
            self.spent[charge.block] = (rho + charge.rho, delta + charge.delta)
        self._window_facts.clear()
        try:
            releases = await self._taken(looks)
        except RowsGone as error:
            # The next owner gives these rows up. This one ends, and its look stays charged.
            self._draft.vault[GONE] = Gone(phases=error.phase).to_bytes()
            await self.flush()
            raise
        self._fuse(CrashPoint.AFTER_LOOK)
        for release in releases:
            self._draft.transcript.append(_RELEASE + release.to_bytes())
            self._mechanism.absorb(release)
        self._drop_secrets()
        self._draft.settles.append(announced)
        before, self._releases = self._releases, self._releases + len(releases)
        if self._releases.bit_length() > before.bit_length():
            self._synthesize()
        return releases

    # ------------------------------------------------------------ the work of one record

    def begins(self, record_id: str, *, at_most: float | None = None) -> None:
        """Says which record is in hand. One that a crash cut short goes on with what it had taken by then.

        Args:
            record_id: The record.
            at_most: The largest share of any line that the record may take. None for no limit.
        """
        last, _, taken = self.meta.get(_WORK, "").partition(" ")
        drawn, _, seconds = taken.partition(" ")
        self._record, self.asked = record_id, None
        self.unasked.begins(record_id)
        self._work = (int(drawn), float(seconds)) if last == record_id else (0, 0.0)
        self._limit = None if at_most is None else math.floor(at_most * UNITS)
        limited, _, paid = self.meta.get(_PAID, "").partition(" ")
        charges = json.loads(paid) if limited == record_id else []
        self._paid = tuple(Charge(*charge) for charge in charges)
        self.limits.leave()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Counts what is done in this context for no record: a standing query is a request of its own."""
        in_hand = self._record, self._work, self._limit, self._paid
        self._record, self._work, self._limit, self._paid = "", (0, 0.0), None, ()
        try:
            with self.limits.apart(), self.unasked.apart():
                yield
        finally:
            self._record, self._work, self._limit, self._paid = in_hand

    def with_its_part(self, query: AnyQuery) -> AnyQuery:
        """A query, with a price where it names none and its record does: an equal part of what is left.

        It says nothing of its error either. Those behind it have their parts, and what it leaves.
        """
        if self._limit is None or not self._mechanism.is_unasked(query):
            return query
        assert isinstance(query, LinearQuery), "the data set decides about no other"
        part = max(0, self._limit - dearest(self._paid_on(query.window))) / UNITS / self.to_come
        return replace(query, target=replace(query.target, at_most=part))

    def would_pass_limit(self, charges: Sequence[Charge]) -> bool:
        """Whether the record in hand would take more of some line than it may, with these charges; public."""
        if self._limit is None:
            return False
        paid = self._paid_on({charge.block for charge in charges})
        return dearest(summed([*paid, *charges])) > self._limit

    def _paid_on(self, blocks: Container[int]) -> list[Charge]:
        """What the record in hand has paid on some blocks."""
        return [charge for charge in self._paid if charge.block in blocks]

    def _pay(self, charges: Sequence[Charge]) -> None:
        """Counts charges for the record in hand, in the commit that makes them durable."""
        if self._limit is not None:
            self._paid = summed([*self._paid, *charges])
            paid = [[charge.block, charge.rho, charge.delta] for charge in self._paid]
            self._set_meta(_PAID, f"{self._record} {json.dumps(paid)}")

    @property
    def exhausted(self) -> bool:
        """Whether the record in hand has led to as many looks as one record may. This is public."""
        drawn, seconds = self._work
        return drawn >= MOST_DRAWN or seconds >= MOST_SECONDS

    def _reserve(self, looks: Sequence[Look]) -> None:
        """Draws what looks need, and counts it for the record in hand, in the commit of their charge."""
        counter = _Counter(self._noise)
        for look in looks:
            look.reserve(counter)
        seconds = sum(look.seconds for look in looks)
        self._work = (self._work[0] + counter.drawn, self._work[1] + seconds)
        self.looks += len(looks)
        if self._record:
            self._set_meta(_WORK, f"{self._record} {self._work[0]} {self._work[1]:g}")

    def _synthesize(self) -> None:
        """Queues synthetic rows, where the data set wants them.

        With each phase, and whenever it has had twice as many looks: the first ones teach most.
        """
        n_rows = self.definition.synthetic_rows
        if n_rows == 0:
            return
        found = synthesized(
            self.name,
            self._universe,
            self._mechanism,
            phase=self.phase,
            releases=self._releases,
            n_rows=n_rows,
        )
        if found is not None:
            self.release(Outgoing("synthetic", self.name, found.to_bytes()))

    async def _taken(self, looks: Sequence[Look]) -> list[Release]:
        """Takes looks; how long that lasts says nothing about the data."""
        async with self._stored_blocks.readable():
            started = monotonic()
            # In a thread of its own: how long it lasts is not to show in what the event loop does for others.
            releases = await asyncio.to_thread(
                lambda: [look.take(self._noise, self._data) for look in looks]
            )
            self._noise.discard()
            slot = max((look.seconds for look in looks), default=0.0)
            if slot > 0.0:
                await asyncio.sleep(slot - (monotonic() - started) % slot)
        return releases

    def _drop_secrets(self) -> None:
        """Drops, with the next commit, what no run needs any more."""
        for name in self._data.vault.keys() - self._mechanism.secrets:
            self.keep(name, b"")

    def keep(self, name: str, secret: bytes) -> None:
        """Keeps private bytes by name for later looks, from the next commit on; empty bytes drop them."""
        self._draft.vault[name] = secret
        self._data.vault[name] = secret
        if not secret:
            del self._data.vault[name]

    async def flush(self) -> None:
        """Commits the draft; what it queued may leave from then on."""
        if self.dirty:
            (error,) = await commit(self._store, [self])
            if error is not None:
                raise error

    def collect(self) -> Releasable:
        """Returns what has become durable since the last call, and may leave."""
        durable, self._durable = self._durable, Releasable()
        return durable

    def prepare(self) -> Transition:
        """The draft as a commit, for ``commit`` to make; ``committed`` says that it is made."""
        draft, self._draft, self._drafted = self._draft, _Draft(), 0
        record = CommitRecord(
            dataset=self.name,
            seq=self._seq + 1,
            prev=self._trail,
            nonce=draft.nonce,
            definition=draft.definition,
            meta=draft.meta,
            cursor=draft.cursor,
            rotate=draft.rotate,
            answers=draft.answers,
            batches=draft.batches,
            accepted=draft.accepted,
            sealed=draft.sealed,
            erased=draft.erased,
            charges=draft.charges,
            transcript=draft.transcript,
            verified=self._mechanism.remembered(),
            intent=draft.intent,
            settles=draft.settles,
            ledger=draft.ledger,
            outbox=[self._queued(one, draft) for one in draft.outgoing],
            erase=draft.erase,
        )
        stored, trail = record.to_bytes()
        self._fuse(CrashPoint.BEFORE_COMMIT)
        transition = transition_of(
            record,
            trail,
            token=self.token,
            head=self._head,
            outbox=stored,
            pending=draft.pending,
            seal=draft.seal,
            reserved=draft.reserved,
            vault=draft.vault,
            limits=draft.limits,
            drops_outcomes=self.definition.kept_answers_days is not None,
        )
        self._committing = transition, draft.outgoing
        return transition

    def _queued(self, one: Outgoing, draft: _Draft) -> OutboxRecord | str:
        """A record that a commit queues; of an answer its name alone, if that is found until it has left."""
        stays = one.answer in draft.answers or self.definition.kept_answers_days is None
        return one.answer if one.answer is not None and stays else _outbox(one)

    def committed(self) -> None:
        """Says that the prepared commit is durable; ``collect`` gives what it queued from now on."""
        assert self._committing is not None, "it was prepared"
        (made, outgoing), self._committing = self._committing, None
        assert made.outbox is not None, "every commit has a record"
        self._head, self._trail = made.new_head, made.new_trail
        self._seq += 1
        if self._draft.seal is None:
            self._stored_blocks.stored()
        self.committed_at = time()
        self._fuse(CrashPoint.AFTER_COMMIT)
        self._durable.add(Commit(self.name, self.token, self._seq, made.outbox), outgoing)


async def commit(store: DatasetStore, datasets: Sequence[Dataset]) -> list[StoreError | None]:
    """Commits what is drafted for data sets in one round trip. There is no other way to commit.

    Returns:
        Why the store refused each of them, in order; None for those that are durable now.
    """
    transitions = [dataset.prepare() for dataset in datasets]
    refused = await persistently(partial(store.commit_all, transitions))
    for dataset, error in zip(datasets, refused, strict=True):
        if error is None:
            dataset.committed()
    return refused


def settling(snapshot: Snapshot, meta: Mapping[str, str]) -> Transition:
    """The commit that sets public facts, and settles looks that a crash interrupted as ``recover`` does.

    A checkpoint says nothing of looks that are announced. So one is written behind this commit.
    """
    lost = [one for _, intent in sorted(snapshot.intents.items()) for one in json.loads(intent)]
    return noting(snapshot, meta, transcript=[*map(_lost, lost)], settles=sorted(snapshot.intents))


def ledger_length(snapshot: Snapshot) -> int:
    """Returns the number of entries in the ledger of a data set, as of the snapshot."""
    return int(snapshot.meta.get(_LEDGER, "0"))


def _lost(description: object) -> bytes:
    """The entry of the transcript for a look that was announced, perhaps taken, and never published."""
    return _LOST + json.dumps(description).encode()


def _opening(entry: bytes) -> tuple[int, Span | None]:
    """Returns the rows of a phase in the transcript, and the stretch of time that it covers if it says so."""
    n_rows, *times = map(int, entry[1:].split())
    return n_rows, Span(*times) if times else None


def _outbox(one: Outgoing) -> OutboxRecord:
    """A record that a commit queues, to be released even if this process dies."""
    return OutboxRecord(one.role, one.key.encode(), one.headers, one.value)
