"""One data set as its owner holds it: the private blocks, the public mechanism, and the next commit.

Everything that a record changes is drafted here, and ``flush`` makes one commit of it, which the journal
takes as a whole. A look at the data goes through ``look``, which has the journal take its charge first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from secrets import token_bytes
from time import monotonic, time
from typing import Any, Final, TypedDict

import numpy as np

from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.budget.share_bounds import OWNER
from stream_dp.core.mechanism import Look, Release, dearest
from stream_dp.core.queries.conditions import Conditions
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.randomness.noise_sources import Kind, NoiseSource
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.blocks import BlockCounts as CountedBlock
from stream_dp.core.rows.person_slots import Persons, PersonSecret
from stream_dp.core.rows.universe import MAX_ROWS, Rows
from stream_dp.errors import BudgetExceeded, CorruptState, InvalidDefinition, RowsGone
from stream_dp.messages import (
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
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.block_cache import BlockCache, StoredBlocks
from stream_dp.pipeline.datasets.in_hand import InHand
from stream_dp.pipeline.datasets.lost_rows import ENTRY, GONE, Gone, given_up
from stream_dp.pipeline.datasets.payers import OWN, Payer, PayingAnalysts
from stream_dp.pipeline.datasets.person_allowance import Used, counted
from stream_dp.pipeline.datasets.private_values import LOOKED, Keeper, Looked
from stream_dp.pipeline.datasets.unasked import Unasked
from stream_dp.pipeline.intake.limits import AnalystLimits
from stream_dp.pipeline.intake.records import AuditedReply, Decided, Outgoing, Releasable
from stream_dp.pipeline.intake.row_times import Gathering, Times, TimeSpan
from stream_dp.pipeline.intake.waiting_rows import Waits, read_again, rows_of
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.kafka.topic_log import InputReader as RowLog
from stream_dp.pipeline.queries.standing_queries import StandingQueries
from stream_dp.pipeline.queries.synthetic_rows import synthesized
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.profiles.builder import build, line_of, rows_that_open
from stream_dp.profiles.calibrated_profile import aim_of
from stream_dp.profiles.line_units import privacy_of
from stream_dp.profiles.share_settings import check_opening
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord, outbox_to_bytes
from stream_dp.state.private_names import Named
from stream_dp.state.schema import ERASED, NONCE_BYTES, Pair, StateTable

# Entries of the transcript: what a restart folds again, in order.
PHASE, _RELEASE, LOST, _ENDED = b"\x00", b"\x01", b"\x02", b"\x03"

LEDGER = "ledger"  # the counter that says how many entries the ledger has
HEAD = "ledger head"
TIMES = "times"  # what is known of the times of the rows that wait

_ROTATED = "answers rotated"  # when the answers did last, in milliseconds since 1970

_DAY_MS = 86_400_000

_log = logging.getLogger(__name__)

# What private values are kept for, see ``Table.KEPT``. Of those that are to be erased, the names stay until
# they are.
PERSON, WAITING, _BLOCK, _RUN, _USED = "person", "waiting ", "block ", "run ", "used "

_REPLIES: Final = ("answers", "rejected", "standing")  # what may reply to a query

_LARGE_DRAFT = 1 << 20


@dataclass
class _Draft:
    """What has changed since the last commit.

    Attributes:
        nonce: The nonce of the commit that is made of it.
        pairs: What it puts.
        outgoing: What leaves after it.
        kept: The private values that it names for the first time, by their names. Private.
        n_bytes: The length of what it puts, and of what leaves.
    """

    nonce: bytes = field(default_factory=lambda: token_bytes(NONCE_BYTES))
    pairs: dict[Pair, bytes | None] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    kept: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    n_bytes: int = 0


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


Appended = Callable[[Releasable], Awaitable[None]]
"""Returns when the journal has some commits; raises Fenced if another worker appends there by now."""


@dataclass(frozen=True)
class Tools:
    """What all data sets of a worker are held with.

    Attributes:
        keeper: Keeps their private values.
        rows: The batches of rows, to be read again.
        partitions: The number of partitions of their topic.
        appended: Returns when the journal has some commits. No look is taken before it has its charge.
        noise: Makes the source of noise of a data set. Several may be in hand at the same time.
        context: What the parts of the worker have in common.
        key_file: What the key file of persons holds; None without one.
        cache: The cache of blocks that the data sets share.
    """

    keeper: Keeper
    rows: RowLog
    partitions: int
    appended: Appended
    noise: Callable[[], NoiseSource]
    context: Context
    key_file: bytes | None = field(default=None, repr=False)
    cache: BlockCache = field(default_factory=BlockCache)


class Dates(TypedDict):
    """The stretch of time that some phases cover; None where it is not known."""

    since: str | None
    until: str | None


class WindowFacts(Dates):
    """The part of an answer that depends on its window alone, until something is paid or a phase opens."""

    n: int
    budget: BudgetShares
    phase: int
    window: tuple[int, int]


class Dataset:
    """A data set that this worker owns: one that the journal has, or one that ``define`` creates.

    Attributes:
        definition: Its definition.
        universe: The finite set of possible rows.
        mechanism: The mechanism that answers the queries.
        conditions: The conditions of its queries, compiled.
        times: The rules by which times of batches become times of phases.
        spans: The stretch of time that each phase covers. None for phases of which no time is known.
        bare: The number of first phases that have no rows since those of the last of them were lost.
        cursor: Where reading goes on: ``topic:partition``, source or producer -> the next offset, or number.
        meta: The public facts.
        spent: What each block has paid, in units of its line: rho and delta'.
        committed_at: The time of this owner's last commit, in seconds since 1970. Nothing is decided by it.
        dated_ms: The timestamp of the record in hand, or -1 if it has none. What it leads to carries it.
        asked: The query in hand, to which the replies that are queued belong. None while there is none.
        in_hand: The record in hand, and what it has led to.
        looks: The number of paid looks that this owner has taken.
        used_at: When a record of it was in hand last, by a clock that only goes forward, in seconds.
        standing_queries: The queries that are answered again in each phase.
        paying: Who pays for queries, and what they may still spend.
        limits: How fast analysts may ask and spend.
        unasked: What queries take that say neither an error nor a price.

    Args:
        chain: What is durable of the data set. Empty for one that is to be defined.
        definition: The definition of the data set. ``define`` makes a new definition durable.
        tools: What it is held with.

    Raises:
        InvalidDefinition: No mechanism can be built from the definition.
        WrongKeyFile: The data set was defined with another key file.
    """

    def __init__(self, chain: JournalChain, definition: Definition, tools: Tools) -> None:
        state = chain.build()
        self.name = chain.name
        self.cursor = {key.decode(): int(at) for key, at in state.table(StateTable.CURSOR).items()}
        self.meta = {
            key.decode(): text.decode() for key, text in state.table(StateTable.FACT).items()
        }
        spent = [map(int, one.split()) for one in state.numbered(StateTable.SPENT)]
        self.spent = [(rho, delta) for rho, delta in spent]
        self.committed_at: float | None = None
        self.dated_ms = -1
        self.asked: AuditedReply | None = None
        self.in_hand = InHand()
        self.looks = 0
        self.used_at = monotonic()
        self._state = state
        self._chain = chain
        self._kept = {
            what.decode(): Named.from_bytes(named)
            for what, named in state.table(StateTable.KEPT).items()
        }
        self._tools = tools
        self._noise = tools.noise()
        self._person_secret: bytes | None = None
        self._used: dict[int, Used] = {}  # by the number under which it is kept
        self._fuse, self._appended = tools.context.fuse, tools.appended
        self._keeper = tools.keeper
        self._entries = len(state.table(StateTable.TRANSCRIPT))
        self._draft = _Draft()
        self._durable = Releasable()
        self._window_facts: dict[tuple[range, str], WindowFacts] = {}
        self._pending: dict[int, Rows] = {}  # by the number of the batch
        self._waiting = 0
        self._releases = 0  # since the newest phase opened
        self._gone = Gone.from_text(self.meta.get(GONE, ""))
        self.standing_queries = StandingQueries(self.name, self.meta, self.note)
        self.paying = PayingAnalysts(
            self.name,
            definition,
            self.meta,
            self.note,
            lambda window: self.mechanism.spending.part_now(window),
        )
        self.limits = AnalystLimits(self.meta, self.note)
        self.unasked = Unasked(aim_of(definition.accuracy), self.meta, self.note)
        self._build(definition)

    @classmethod
    async def stored(cls, chain: JournalChain, tools: Tools, *, replays: bool = True) -> Dataset:
        """A data set as the journal has it, for the owner that has just taken it over.

        Args:
            chain: What is durable of it.
            tools: What it is held with.
            replays: Whether to fold what was published and to read the rows. A worker that died of just that
                holds the data set without either, and quarantines it.

        Raises:
            CorruptState: What is durable of it does not fit together.
            WrongKeyFile: It was defined with another key file.
        """
        definition = Definition.read(json.loads(chain.build().pairs[StateTable.DEFINITION, b""]))
        dataset = cls(chain, definition, tools)
        if replays and not dataset.retired:
            dataset._replay()
            await dataset._read()
        return dataset

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, phase={self.phase})"

    # ------------------------------------------------------------ public facts

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
        opens = partial(self.mechanism.opens, min_rows=self.definition.phase.min_rows)
        rows = least(range(MAX_ROWS), opens)
        return rows if rows < MAX_ROWS else None

    @property
    def commits(self) -> int:
        """Commits so far, those of former owners included."""
        return self._state.number

    @property
    def trail(self) -> bytes:
        """The trail behind the last commit."""
        return self._state.trail

    @property
    def erased(self) -> int:
        """The number of first phases whose rows are erased, or lost."""
        return self._data.erased

    def rows_in(self, window: range) -> int:
        """Returns the number of rows in the blocks of ``window``."""
        return sum(self._data.sizes[window.start : window.stop])

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
        """The share of the newest phase's line that is left. There is one."""
        return 1.0 - max(self.spent[-1]) / UNITS

    @property
    def newest_free(self) -> float:
        """The same without what is kept for later phases."""
        kept = self.mechanism.spending.kept_for_later(self.phase - 1)
        return max(0.0, self.newest_left - kept / UNITS)

    def share_left(self, entry: str) -> float:
        """Returns the share of the newest phase's line that an entry of ``analysts`` may still charge now.

        Args:
            entry: The name or the pattern; of a pattern, what an analyst may who has charged nothing yet.
                Empty for the owner.
        """
        room = self.paying.room(Payer(entry, entry), range(self.phase - 1, self.phase))
        return min(self.newest_left, int(room.min()) / UNITS)

    def payer(self, analyst: str, query: AnyQuery) -> Payer:
        """Returns who pays for a query of an analyst."""
        return Payer(analyst, OWNER if self.mechanism.spending.paid_by_owner(query) else analyst)

    def lacks(self, payer: Payer, charges: Iterable[Charge]) -> bool:
        """Returns whether charges would pass what their payer may spend now."""
        return self.paying.lacking(payer, summed(charges)) is not None

    @contextlib.contextmanager
    def asked_by(self, analyst: str | None) -> Iterator[None]:
        """Has looks planned in this context within what may be spent, and may be spent unasked.

        Args:
            analyst: Who asks; None for what the data set measures on its own account.
        """
        payer = OWN if analyst is None else Payer(analyst, analyst)
        if self.paying.bounds:
            self.mechanism.spending.pays(self.paying.payers(payer))
        if analyst is not None:
            room = self.unasked.room(analyst, self.dated_ms, self.in_hand.unasked)
            self.mechanism.spending.takes_unasked(room)
        try:
            yield
        finally:
            self.mechanism.spending.pays(None)
            self.mechanism.spending.takes_unasked(None)

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
    def gathering(self) -> Gathering:
        """The public facts about the times of the rows that wait."""
        return Gathering.from_text(self.meta.get(TIMES, ""))

    def dates(self, window: range) -> Dates:
        """Returns the time at which the phases of ``window`` begin and have ended, as messages write it."""
        return self._dates_of(self.spans[window.start : window.stop])

    def _dates_of(self, phases: Sequence[TimeSpan | None]) -> Dates:
        spans = [span for span in phases if span is not None]
        if not spans or len(spans) < len(phases):
            return Dates(since=None, until=None)
        since, until = min(span.since for span in spans), max(span.until for span in spans)
        return Dates(since=self.times.written(since), until=self.times.written(until))

    # ------------------------------------------------------------ the draft

    @property
    def dirty(self) -> bool:
        """Whether the draft holds anything to commit."""
        return bool(self._draft.pairs or self._draft.outgoing)

    @property
    def large(self) -> bool:
        """Whether the draft should be committed soon: what is in one commit is in memory several times."""
        return self._draft.n_bytes > _LARGE_DRAFT

    def add_answer(self, name: str, stored: bytes) -> None:
        """Drafts an answer, which is kept under ``name``."""
        self._put(StateTable.ANSWER, name, stored)

    def _rotate_answers(self) -> None:
        """Drafts that old answers and outcomes are dropped, if the record in hand says that it is time.

        Only the times of records decide, so everybody who reads them again does the same. One that is dated
        before the last rotation changes nothing.
        """
        days = self.definition.kept_answers_days
        if days is None or self.dated_ms < 0:
            return
        rotated = self.meta.get(_ROTATED)
        if rotated is not None and self.dated_ms < int(rotated) + days * _DAY_MS:
            return
        self.note(_ROTATED, str(self.dated_ms))

    def release(self, outgoing: Outgoing) -> None:
        """Queues a record for release after the commit that makes it durable."""
        asked = self.asked if outgoing.role in _REPLIES and self.asked else outgoing.asked
        if outgoing.dated_ms != self.dated_ms or outgoing.asked is not asked:
            outgoing = replace(outgoing, dated_ms=self.dated_ms, asked=asked)
        self._draft.outgoing.append(outgoing)
        self._draft.n_bytes += len(outgoing.value)

    def passed(self, topic_partition: str, next_offset: int) -> None:
        """Notes the reading position behind a record that is finished."""
        self.cursor[topic_partition] = next_offset
        self._put(StateTable.CURSOR, topic_partition, b"%d" % next_offset)

    def announce(self, event: Event) -> bytes:
        """Queues an event and returns its bytes."""
        value = event.to_bytes()
        self.release(Outgoing("events", self.name, value))
        return value

    def write_ledger(self, kind: str, body: Mapping[str, object]) -> None:
        """Appends an entry to the hash chain and queues it for publication."""
        index = int(self.meta.get(LEDGER, "0"))
        head = bytes.fromhex(self.meta.get(HEAD, "")) or ledger.GENESIS
        entry, head = ledger.append(head, index, self.name, kind, dict(body))
        self.note(LEDGER, str(index + 1))
        self.note(HEAD, head.hex())
        self.release(Outgoing("ledger", self.name, entry))

    def note(self, name: str, value: str) -> None:
        """Drafts a public fact."""
        self.meta[name] = value
        self._put(StateTable.FACT, name, value.encode())

    def _put(self, table: StateTable, key: str | int, value: bytes | None) -> None:
        """Drafts a pair. What was put into no commit yet is dropped without a trace."""
        pair = table, str(key).encode("utf-8", "surrogatepass")
        if value is None and pair not in self._state.pairs:
            self._draft.pairs.pop(pair, None)
            return
        self._draft.pairs[pair] = value
        self._draft.n_bytes += len(value or b"")

    def _publish(self, entry: bytes) -> None:
        """Drafts an entry of the transcript."""
        self._put(StateTable.TRANSCRIPT, self._entries, entry)
        self._entries += 1

    # ------------------------------------------------------------ private values

    async def _keep(self, **values: bytes) -> None:
        """Keeps private values, and drafts their names. They may be read from then on."""
        kept = await self._keeper.keep(self.name, *values.values())
        for what, (named, value) in zip(values, kept, strict=True):
            self._discard(what)
            self._name(what, named)
            self._draft.kept[named.name] = value

    def _name(self, what: str, named: Named) -> None:
        self._kept[what] = named
        self._put(StateTable.KEPT, what, named.to_bytes())

    def _discard(self, what: str) -> None:
        """Drafts that a private value is to be erased."""
        named = self._kept.pop(what, None)
        if named is not None:
            self._put(StateTable.KEPT, what, None)
            self._name(f"{ERASED}{what.partition(' ')[0]} {named.name.hex()}", named)

    def _named(self, prefix: str) -> dict[str, Named]:
        """The private values of a kind, by what follows the prefix."""
        return {
            what.removeprefix(prefix): named
            for what, named in self._kept.items()
            if what.startswith(prefix)
        }

    async def _read(self) -> None:
        """Reads its private values, but for blocks: a look reads those.

        Raises:
            CorruptState: The secret of its persons, or what they have used, is nowhere any more.
        """
        await self.read_waiting()
        lost = [number for number in self._numbers() if number not in self._pending]
        self._gone = replace(self._gone, batches=len(lost))
        self._forget_waiting(lost)
        for key in sorted(self._named(_USED), key=int):
            used = await self._found(_USED + key, "what its persons have used for life is")
            self._used[int(key)] = Used.from_bytes(used)
        for run in self._named(_RUN):
            if (secret := await self._value(_RUN + run)) is not None:
                self._data.vault[run] = secret

    async def _value(self, what: str) -> bytes | None:
        """Reads a private value. None if it is nowhere, or was never kept."""
        named = self._kept.get(what)
        return None if named is None else await self._keeper.find(self.name, named)

    async def _found(self, what: str, said: str) -> bytes:
        value = await self._value(what)
        if value is None:
            raise CorruptState(
                f"{self.name}: {said} on no topic any more. Restore the topic of blocks"
            )
        return value

    async def read_waiting(self) -> None:
        """Reads the rows that wait, as far as they are anywhere.

        Raises:
            CorruptState: They are rows of another one, or the secret of its persons is nowhere any more.
        """
        if self.definition.privacy.unit is not None:
            stored = await self._found(PERSON, "the secret of its digests is")
            secret = PersonSecret.from_bytes(stored, self.name, self._tools.key_file)
            self._person_secret = secret.value
        waits = self._waits()
        found = await read_again(
            self.name, waits, self._tools.rows, self._tools.partitions, self.rows_of
        )
        for key in self._named(WAITING):
            if (kept := await self._value(WAITING + key)) is not None:
                found[int(key)] = Rows.from_bytes(self.universe, kept)
        for number in sorted(found):
            self._check_unit(of_persons=found[number].whose is not None)
            self._wait(number, found[number])

    def _waits(self) -> dict[int, Waits]:
        """The places of the batches that can be read again, by their numbers."""
        waiting = self._state.table(StateTable.WAITING)
        return {int(number): Waits.from_bytes(stored) for number, stored in waiting.items()}

    def _numbers(self) -> list[int]:
        """The numbers of the batches that wait."""
        return [*map(int, self._state.table(StateTable.WAITING)), *map(int, self._named(WAITING))]

    def rows_of(self, batch: Batch) -> Rows:
        """The rows of a batch, encoded.

        Raises:
            InvalidBatch: They are not rows of this data set.
        """
        unit, persons = self.definition.privacy.unit, None
        if unit is not None:
            assert self._person_secret is not None, "it is there until the data set is retired"
            persons = Persons(unit.key, self._person_secret, batch.name)
        return rows_of(batch, self.universe, persons, self.mechanism.in_order)

    async def keep_waiting(self, before_ms: float) -> None:
        """Keeps rows as private values that wait since before a time: their batches may be deleted soon.

        Args:
            before_ms: The time, in milliseconds since 1970. Batches without a time are kept as well.
        """
        self.flush()
        due = {
            number: self._pending[number].to_bytes()
            for number, one in self._waits().items()
            if one.dated_ms < before_ms and number in self._pending  # in quarantine they may not be
        }
        if not due:
            return
        await self._keep(**{f"{WAITING}{number}": rows for number, rows in due.items()})
        for number in due:
            self._put(StateTable.WAITING, number, None)
        self.flush()

    # ------------------------------------------------------------ life

    async def define(self) -> None:
        """Drafts the first commit of a new data set, which makes its definition durable."""
        definition = self.definition
        check_opening(definition, self.mechanism)
        self._put(StateTable.DEFINITION, "", definition.to_bytes())
        if definition.privacy.unit is not None:
            secret = PersonSecret.new(self._noise, self.name, self._tools.key_file)
            self._person_secret = secret.value
            await self._keep(**{PERSON: secret.to_bytes()})
        self.write_ledger(
            "dataset",
            {"definition": json.loads(definition.to_bytes()), "line": line_of(definition)},
        )
        self.release(Outgoing("catalog", self.name, definition.to_bytes()))
        self.accepted()

    def accepted(self) -> None:
        """Announces that this data set is accepted, also to a client that sends the same definition again."""
        n_rows = rows_that_open(self.mechanism, self.definition)
        note = large_delta(self.definition.privacy.delta, n_rows)
        self.announce(Event(dataset=self.name, event="dataset_accepted", note=note))

    def retire(self) -> None:
        """Erases the rows for ever; the name, its answers and its ledger stay."""
        self.flush()
        self.note("retired", "1")
        self._forget_waiting(self._numbers())
        for what in [*self._kept]:
            if not what.startswith(ERASED):
                self._discard(what)
        for table in (StateTable.TRANSCRIPT, StateTable.VERIFIED):
            for key in self._state.table(table):
                self._draft.pairs[table, key] = None  # keys of verified answers are bytes, not text
        self._person_secret, self._used = None, {}
        self._stored_blocks.forget()
        self._build(self.definition)
        self.write_ledger("retired", {})
        self.release(Outgoing("catalog", self.name, b""))
        for entry in list(self.standing_queries):
            self.standing_queries.end(entry)
            listed = standing_key(self.name, entry.analyst, entry.query_id)
            self.release(Outgoing("standing", listed, b""))
        if self.definition.synthetic_rows:
            self.release(Outgoing("synthetic", self.name, b""))

    def change_analysts(self, rules: ChangeAnalysts) -> None:
        """Drafts what is allowed to whom from now on. What is so already is only announced."""
        if (rules.analysts, rules.owner) != (self.paying.analysts, self.paying.owner):
            self.write_ledger("analysts", self.paying.change(rules))
            self._window_facts.clear()
        self.announce(Event(dataset=self.name, event="analysts_changed"))

    async def drop_kept(self) -> None:
        """Erases from the private topic what commits have erased, and drafts a note of it.

        The journal must have the commit that erases it: else what was before would lack it.
        """
        gone = self._named(ERASED)
        if not gone or self.dirty:
            return
        await self._appended(self.collect())
        await self._keeper.drop(self.name, gone.values())
        self._fuse(CrashPoint.IN_ERASURE)
        for what in gone:
            del self._kept[ERASED + what]
            self._put(StateTable.KEPT, ERASED + what, None)
        if any(what.startswith(_BLOCK) for what in gone):
            looked = await self._keeper.drop_unnamed(
                self.name, self._state.kept(), Looked.of(self.meta), at_once=self.retired
            )
            self.note(LOOKED, looked.to_text())

    async def drop_again(self) -> None:
        """Erases from the private topic what a former worker has written since this data set was retired."""
        await self._keeper.drop_unnamed(self.name, (), Looked.of(self.meta), at_once=True)

    def gone(self) -> None:
        """Announces that this data set is retired, also to a client that retires it again."""
        self.announce(Event(dataset=self.name, event="dataset_retired"))

    def quarantine(self, cause: str) -> None:
        """Takes nothing more: the worker died too often of ``cause``, a record or the take-over."""
        _log.error("data set %s is quarantined at %s", self.name, cause)
        self.note("quarantined", cause)
        reason = Reason(
            code="quarantined",
            message=f"the worker died again and again at {cause}; an operator must look",
        )
        self.announce(Event(dataset=self.name, event="quarantined", reason=reason))

    def _build(self, definition: Definition) -> None:
        self.universe, self.mechanism = build(definition)
        self.conditions = Conditions(self.universe)
        self.times = Times(definition.phase)
        self.spans: list[TimeSpan | None] = []
        self._stored_blocks = StoredBlocks(
            self._tools.cache,
            self.universe,
            self._fetched,
            self._check_block,
            lambda: self._data.sizes,
        )
        self._data = self._blocks_elsewhere((), 0)
        self.bare = 0
        self._window_facts.clear()
        self.definition = definition

    async def _fetched(self, block: int) -> bytes:
        found = await self._value(f"{_BLOCK}{block + 1}")
        if found is None:
            raise RowsGone(self.name, block + 1)
        return found

    def _blocks_elsewhere(self, sizes: Sequence[int], erased: int) -> Blocks:
        there = self._stored_blocks
        return Blocks.elsewhere(self.universe, sizes, erased, there.read, there.ahead)

    def _check_block(self, index: int, block: Block | CountedBlock) -> None:
        if block.n_rows != self._data.sizes[index]:
            raise CorruptState(
                f"{self.name}: block {index} is not the one that its transcript says"
            )
        self._check_unit(of_persons=block.of_persons)

    def _check_unit(self, *, of_persons: bool) -> None:
        if of_persons is not (self.definition.privacy.unit is not None):
            raise CorruptState(
                f"{self.name}: its rows say whose they are, or do not, against its definition"
            )

    def let_go(self) -> None:
        """Forgets the rows that this owner has read: the data set is not its own any more."""
        self._stored_blocks.forget()

    def _replay(self) -> None:
        transcript = self._state.numbered(StateTable.TRANSCRIPT)
        opened = [_opening(entry) for entry in transcript if entry[:1] == PHASE]
        self.spans = [span for _, span in opened]
        self.bare = max((one.phases for one in given_up(transcript)), default=0)
        erased = max(erased_blocks(len(opened), self.definition.kept_phases), self.bare)
        if len(self.spent) != len(opened):
            raise CorruptState(f"{self.name}: more or fewer phases are charged than were opened")
        self._data = self._blocks_elsewhere([n_rows for n_rows, _ in opened], erased)
        for entry in transcript:
            kind, body = entry[:1], entry[1:]
            if kind == PHASE:
                self.mechanism.open_phase(_opening(entry)[0])
                self._releases = 0
            elif kind == _RELEASE:
                self._releases += 1
                self.mechanism.absorb(self.mechanism.release_from_bytes(body))
            elif kind == LOST:
                self.mechanism.lost(json.loads(body))
            elif kind == _ENDED:
                self.mechanism.end_runs(json.loads(body))
            elif kind == ENTRY:
                (gone,) = given_up([entry])
                if gone.phases:  # or batches alone
                    self.mechanism.rows_gone(gone.phases)
            else:
                raise CorruptState(f"transcript entry of unknown kind {kind.hex()}")
        self.mechanism.charged(
            tuple(Charge(block, rho, delta) for block, (rho, delta) in enumerate(self.spent))
        )
        self.mechanism.recall(self._state.table(StateTable.VERIFIED))

    async def recover(self) -> int:
        """Settles looks that a crash interrupted: their charge stays, another look is charged again.

        Rows that are nowhere any more are given up, in a commit. Runs whose secrets are gone end.

        Returns:
            The number of phases, and of batches that waited, whose rows are given up.
        """
        lost = self._state.table(StateTable.INTENT)
        for number in sorted(lost, key=int):
            for look in json.loads(lost[number]):
                self.mechanism.lost(look)
                self._publish(LOST + json.dumps(look).encode())
            self._put(StateTable.INTENT, int(number), None)
        given_up = self._give_up()
        ended = sorted(self.mechanism.secrets - self._data.vault.keys())
        if ended:
            self.mechanism.end_runs(ended)
            self._publish(_ENDED + json.dumps(ended).encode())
        if lost or ended:
            self._drop_secrets()
        if lost and self.phase:
            self._synthesize()
        self.flush()
        await self.drop_kept()
        self.flush()
        return given_up

    def _give_up(self) -> int:
        """Drafts that rows are nowhere any more: the first phases have none from then on."""
        gone, self._gone = self._gone, Gone()
        if self.meta.get(GONE):
            self.note(GONE, "")
        had = range(self.erased, gone.phases)
        if not had and not gone.batches:
            return 0  # nothing is lost, or what is was due to be erased
        self._publish(ENTRY + gone.to_text().encode())
        if had:
            self.bare = gone.phases
            self._erase_blocks(gone.phases)
            self.mechanism.rows_gone(gone.phases)
            self._drop_secrets()
        phases = (had.start + 1, had.stop) if had else None
        self.announce(
            Event(dataset=self.name, event="rows_lost", phases=phases, batches=gone.batches)
        )
        return len(had) + gone.batches

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
        span = self.times.span(batch.time, self.dated_ms)
        if self.times.ends(self.gathering, span) and self._may_open:
            # What was durable before this batch opens the phase. If a crash comes in between, the batch
            # comes again and finds the phase open.
            await self._open_phase(ended_by=span)
            self.flush()
        if counted is not None:
            self.passed(counted.key, counted.next)
        if rows.n_rows:  # of an empty batch nothing is to be read again
            number = next(reversed(self._pending), -1) + 1
            self._wait(number, rows)
            topic_partition, _, offset = self.in_hand.record.rpartition(":")
            waits = Waits(topic_partition, int(offset or 0), rows.n_rows, self.dated_ms, batch.name)
            self._put(StateTable.WAITING, number, waits.to_bytes())
        self._set_times(self.times.with_batch(self.gathering, span))
        opens = self.times.phase.calendar is None and self._may_open
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
        self.closed(self.phase + 1)
        await self._open_phase()
        return True

    def closed(self, phase: int) -> None:
        """Announces that a phase is open or opens now, also to a client that closes its period again."""
        is_open = phase <= self.phase
        dates = self._dates_of(self.spans[phase - 1 : phase] if is_open else [self.gathering.span])
        waiting = self.waiting if is_open else 0
        closed = Event(dataset=self.name, event="phase_closed", phase=phase, waiting=waiting)
        self.announce(closed.model_copy(update=dates))

    @property
    def _may_open(self) -> bool:
        """Whether the rows that wait are enough to open a phase."""
        return self.mechanism.opens(self.waiting, self.definition.phase.min_rows)

    @property
    def _may_close(self) -> bool:
        """Whether the rows that wait are enough for a phase that is asked for.

        They may be fewer than open one by themselves, as long as opening leaves each what is kept for it.
        """
        if self._may_open:
            return True
        if not self.mechanism.opens(self.waiting, self.definition.least_to_close(self.waiting)):
            return False
        rules = {"analysts": self.paying.analysts, "owner": self.paying.owner}
        try:
            check_opening(self.definition.model_copy(update=rules), self.mechanism, self.waiting)
        except InvalidDefinition:
            return False
        return True

    def _set_times(self, gathering: Gathering) -> None:
        if gathering != self.gathering:
            self.note(TIMES, gathering.to_text())

    def _wait(self, number: int, rows: Rows) -> None:
        self._pending[number] = rows
        self._waiting += rows.n_rows

    def _forget_waiting(self, numbers: Iterable[int]) -> None:
        """Drafts that batches do not wait any more."""
        for number in list(numbers):
            self._put(StateTable.WAITING, number, None)
            self._discard(f"{WAITING}{number}")
            self._pending.pop(number, None)
        self._waiting = sum(rows.n_rows for rows in self._pending.values())

    def store_batch(self, event: Event) -> bytes:
        """Announces the outcome of a batch and drafts it under its id, if it has one."""
        assert event.batch is not None, "the event of a batch names it"
        outcome = self.announce(event)
        if event.batch_id is not None:
            self._put(StateTable.OUTCOME, event.batch_id, outcome)
            if event.event == "batch_accepted" and self.definition.kept_answers_days is not None:
                self._put(StateTable.TAKEN, event.batch_id, b"")
        return outcome

    async def _open_phase(self, *, ended_by: TimeSpan | None = None) -> None:
        rows = Rows.concat([*self._pending.values()])
        marks, used = counted(rows, privacy_of(self.definition).unit, self._used.values())
        block = Block.seal(self.universe, rows, self.mechanism.in_order, counted=marks)
        phase = self.phase + 1
        self._fuse(CrashPoint.BEFORE_KEEP)
        await self._keep(**{f"{_BLOCK}{phase}": block.to_bytes()})
        if used is not None:
            await self._use(used)
        self._fuse(CrashPoint.AFTER_KEEP)
        self._stored_blocks.keep(self.phase, block)
        self._data.append(block)
        self.spent.append((0, 0))
        self._put(StateTable.SPENT, phase - 1, b"0 0")
        self._window_facts.clear()
        self._forget_waiting(self._pending)
        gathering = self.gathering
        self._set_times(self.times.after_phase(gathering, ended_by))
        span = gathering.span
        self.spans.append(span)
        numbers = [block.n_rows] if span is None else [block.n_rows, span.since, span.until]
        self._publish(PHASE + " ".join(map(str, numbers)).encode())
        dates = self.dates(range(self.phase - 1, self.phase))
        by_calendar = {"late_batches": gathering.late} if self.times.phase.every else {}
        known = {name: date for name, date in dates.items() if date is not None}
        erased = erased_blocks(self.phase, self.definition.kept_phases)
        self._erase_blocks(erased)
        due = {"erased": erased} if erased else {}
        self.write_ledger("phase", {"phase": self.phase, "rows": block.n_rows, **due, **known})
        opened = Event(dataset=self.name, event="phase_opened", phase=self.phase, rows=block.n_rows)
        self.announce(opened.model_copy(update={**dates, **by_calendar}))
        self._releases = 0
        with self.asked_by(None):
            looks = self.mechanism.open_phase(block.n_rows)
        if self.erased:
            self._drop_secrets()
        if looks:
            await self.look(looks)
            self._fuse(CrashPoint.IN_PHASE)
            with self.asked_by(None):
                more = self.mechanism.opened()
            if more:
                await self.look(more)
        else:
            self._synthesize()
        with self.asked_by(None):
            grown = self.mechanism.growth()
        await self._grow(grown)

    def _erase_blocks(self, erased: int) -> None:
        """Drafts that the rows of the first blocks are erased."""
        self._data.erase(erased)
        self._stored_blocks.erase(erased)
        for phase in self._named(_BLOCK):
            if int(phase) <= erased:
                self._discard(_BLOCK + phase)

    async def _use(self, used: Used) -> None:
        """Keeps what persons use in a phase, and merges what was kept of earlier ones.

        The last value is never nearly as long as the one before it, so there are few of them.
        """
        number = max(self._used, default=0) + 1
        while self._used and self._used[last := max(self._used)].n_places <= 2 * used.n_places:
            used = self._used.pop(last).and_by(used)
            self._discard(f"{_USED}{last}")
        self._used[number] = used
        await self._keep(**{f"{_USED}{number}": used.to_bytes()})

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
        return await self._grow(self.mechanism.was_asked(query, charges), asked=True)

    async def _grow(self, looks: Sequence[Look], *, asked: bool = False) -> tuple[Charge, ...]:
        """Takes looks of its own, if the owner may pay for them. ``asked`` is as in ``look``."""
        charges = summed(charge for look in looks for charge in look.charges)
        passes = asked and self.in_hand.would_pass_limit(charges)
        if not charges or passes or self.lacks(OWN, charges):
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
        secrets = {
            name: secret for look in looks for name, secret in look.draw(self._noise).items()
        }
        self._data.vault.update(secrets)
        await self._keep(**{_RUN + name: secret for name, secret in secrets.items()})
        charges = summed(charge for look in looks for charge in look.charges)
        spent = {
            charge.block: (rho + charge.rho, delta + charge.delta)
            for charge in charges
            for rho, delta in [self.spent[charge.block]]
        }
        if max((max(units) for units in spent.values()), default=0) > UNITS:
            raise BudgetExceeded(f"{self.name}: looks would pass the line of a block")
        descriptions = [look.description for look in looks]
        for block, (rho, delta) in spent.items():
            self._put(StateTable.SPENT, block, b"%d %d" % (rho, delta))
        self.paying.charge(payer, charges)
        if asked:
            self.in_hand.pay(charges)
            self.limits.pay(charges)
        if unasked and payer is not None and payer.analyst is not None:
            self.unasked.pay(payer.analyst, self.dated_ms, self.in_hand, charges)
        if self.in_hand.record:
            for name, said in self.in_hand.facts().items():
                self.note(name, said)
        announced = self.commits + 1
        self._put(StateTable.INTENT, announced, json.dumps(descriptions).encode())
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
        self.flush()
        await self._appended(self.collect())
        self._fuse(CrashPoint.AFTER_CHARGE)
        self.mechanism.charged(charges)
        for block, units in spent.items():
            self.spent[block] = units
        self._window_facts.clear()
        try:
            releases = await self._taken(looks)
        except RowsGone as error:
            # The next owner gives these rows up. This one ends, and its look stays charged.
            self.note(GONE, Gone(phases=error.phase).to_text())
            self.flush()
            await self._appended(self.collect())
            raise
        self._fuse(CrashPoint.AFTER_LOOK)
        for release in releases:
            self._publish(_RELEASE + release.to_bytes())
            self.mechanism.absorb(release)
        self._drop_secrets()
        self._put(StateTable.INTENT, announced, None)
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
        self.used_at = monotonic()
        self.asked = None
        limit = None if at_most is None else math.floor(at_most * UNITS)
        self.in_hand = InHand.of(record_id, limit, self.meta)
        self._rotate_answers()  # the first record notes from when on they are kept
        self.limits.leave()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Counts what is done in this context for no record: a standing query is a request of its own."""
        in_hand, self.in_hand = self.in_hand, InHand()
        try:
            with self.limits.apart():
                yield
        finally:
            self.in_hand = in_hand

    def with_its_part(self, query: AnyQuery) -> AnyQuery:
        """A query, with a price where it names none and its record does: an equal part of what is left.

        It says nothing of its error either. Those behind it have their parts, and what it leaves.
        """
        limit = self.in_hand.limit
        if limit is None or not self.mechanism.spending.is_unasked(query):
            return query
        assert isinstance(query, LinearQuery), "the data set decides about no other"
        left = max(0, limit - dearest(self.in_hand.paid_on(query.window)))
        part = left / UNITS / self.in_hand.to_come
        return replace(query, target=replace(query.target, at_most=part))

    def _reserve(self, looks: Sequence[Look]) -> None:
        """Draws what looks need, and counts it for the record in hand."""
        counter = _Counter(self._noise)
        for look in looks:
            look.reserve(counter)
        self.in_hand.drawn += counter.drawn
        self.in_hand.seconds += sum(look.seconds for look in looks)
        self.looks += len(looks)

    def _synthesize(self) -> None:
        """Queues synthetic rows, where the data set wants them.

        With each phase, and whenever it has had twice as many looks: the first ones teach most.
        """
        n_rows = self.definition.synthetic_rows
        if n_rows == 0:
            return
        found = synthesized(
            self.name,
            self.universe,
            self.mechanism,
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
        for name in self._named(_RUN).keys() - self.mechanism.secrets:
            self._discard(_RUN + name)
            self._data.vault.pop(name, None)  # it may have been lost

    def flush(self) -> None:
        """Makes a commit of the draft. It is in memory at once, and on the journal once ``appended`` returns.

        What it queues may leave from then on, see ``collect``.
        """
        if not self.dirty:
            return
        remembered = self.mechanism.remembered()
        self._draft.pairs |= {
            (StateTable.VERIFIED, query): one for query, one in remembered.items()
        }
        draft, self._draft = self._draft, _Draft()
        self._fuse(CrashPoint.BEFORE_COMMIT)
        out = outbox_to_bytes([_queued(one, draft) for one in draft.outgoing])
        commit = self._state.drafted(draft.pairs, nonce=draft.nonce, out=out)
        stored, trail = commit.to_bytes()
        self._chain.add(commit, trail)
        self.committed_at = time()
        self._fuse(CrashPoint.AFTER_COMMIT)
        decided = Decided(commit, trail, stored, kept=draft.kept, chain=self._chain)
        self._durable.add(decided, draft.outgoing)

    def collect(self) -> Releasable:
        """Returns what was decided since the last call, for the journal and to leave after it."""
        durable, self._durable = self._durable, Releasable()
        return durable


def _queued(one: Outgoing, draft: _Draft) -> OutboxRecord | str:
    """A record that a commit queues; of an answer that the same commit stores its name alone."""
    if one.answer is not None and (StateTable.ANSWER, one.answer.encode()) in draft.pairs:
        return one.answer
    return OutboxRecord(one.role, one.key.encode(), one.headers, one.value)


def _opening(entry: bytes) -> tuple[int, TimeSpan | None]:
    """Returns the rows of a phase in the transcript, and the stretch of time that it covers if it says so."""
    n_rows, *times = map(int, entry[1:].split())
    return n_rows, TimeSpan(*times) if times else None
