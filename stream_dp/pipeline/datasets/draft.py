"""The next commit of a data set: what has changed since the last one, and what leaves after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from time import time
from typing import Any, Final

from stream_dp.messages import Counted, Event
from stream_dp.pipeline.intake.records import AuditedReply, Decided, Outgoing, Releasable
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord, outbox_to_bytes
from stream_dp.state.schema import NONCE_BYTES, Pair, StateTable

LEDGER: Final = "ledger"  # the counter that says how many entries the ledger has
HEAD: Final = "ledger head"

_REPLIES: Final = ("answers", "rejected", "standing")  # what may reply to a query

_LARGE: Final = 1 << 20


@dataclass
class _Change:
    """What one commit is made of.

    Attributes:
        nonce: The nonce of the commit.
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


class Draft:
    """The state of a data set, with all that its owner has drafted since the last commit.

    Attributes:
        dataset: The name of the data set.
        state: What its commits add up to, those included that are on their way to the journal.
        facts: The public facts, those in the draft included.
        cursor: Where reading goes on: ``topic:partition``, source or producer -> the next offset, or number.
        committed_at: The time of this owner's last commit, in seconds since 1970. Nothing is decided by it.
        dated_ms: The timestamp of the record in hand, or -1 if it has none. What it leads to carries it.
        asked: The query in hand, to which the replies that are queued belong. None while there is none.

    Args:
        chain: What is durable of the data set.
        fuse: Called at each crash point.
        remembered: What the mechanism has verified since it was asked last. Each commit makes it durable.
    """

    def __init__(
        self, chain: JournalChain, fuse: Fuse, remembered: Callable[[], Mapping[bytes, bytes]]
    ) -> None:
        self.dataset = chain.name
        self.state = chain.build()
        self.facts = {
            key.decode(): text.decode() for key, text in self.state.table(StateTable.FACT).items()
        }
        cursor = self.state.table(StateTable.CURSOR)
        self.cursor = {key.decode(): int(at) for key, at in cursor.items()}
        self.committed_at: float | None = None
        self.dated_ms = -1
        self.asked: AuditedReply | None = None
        self._chain, self._fuse, self._remembered = chain, fuse, remembered
        self._entries = len(self.state.table(StateTable.TRANSCRIPT))
        self._change = _Change()
        self._durable = Releasable()

    @property
    def dirty(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._change.pairs or self._change.outgoing)

    @property
    def large(self) -> bool:
        """Whether it should be committed soon: what is in one commit is in memory several times."""
        return self._change.n_bytes > _LARGE

    @property
    def nonce(self) -> bytes:
        """The nonce of the next commit."""
        return self._change.nonce

    # ------------------------------------------------------------ what is put

    def put(self, table: StateTable, key: str | int | bytes, value: bytes | None) -> None:
        """Drafts a pair; None erases it. What was put into no commit yet is dropped without a trace."""
        pair = table, key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        if value is None and pair not in self.state.pairs:
            self._change.pairs.pop(pair, None)
            return
        self._change.pairs[pair] = value
        self._change.n_bytes += len(value or b"")

    def note(self, name: str, value: str) -> None:
        """Drafts a public fact."""
        self.facts[name] = value
        self.put(StateTable.FACT, name, value.encode())

    def passed(self, place: str, following: int) -> None:
        """Drafts the reading position behind a record, or a batch, that is finished."""
        self.cursor[place] = following
        self.put(StateTable.CURSOR, place, b"%d" % following)

    def expects(self, counted: Counted | None) -> bool:
        """Returns whether a batch of a source or producer begins where the last one that counted ended."""
        return counted is None or self.cursor.get(counted.key, counted.first) == counted.first

    def publish(self, entry: bytes) -> None:
        """Drafts an entry of the transcript."""
        self.put(StateTable.TRANSCRIPT, self._entries, entry)
        self._entries += 1

    def keep(self, name: bytes, value: bytes) -> None:
        """Adds a private value that the commit names for the first time."""
        self._change.kept[name] = value

    # ------------------------------------------------------------ what leaves

    def release(self, outgoing: Outgoing) -> None:
        """Queues a record for release after the commit that makes it durable."""
        asked = self.asked if outgoing.role in _REPLIES and self.asked else outgoing.asked
        if outgoing.dated_ms != self.dated_ms or outgoing.asked is not asked:
            outgoing = replace(outgoing, dated_ms=self.dated_ms, asked=asked)
        self._change.outgoing.append(outgoing)
        self._change.n_bytes += len(outgoing.value)

    def announce(self, what: str, **facts: Any) -> bytes:
        """Queues an event of the data set and returns its bytes. The facts are fields of ``Event``."""
        value = Event.model_validate({"dataset": self.dataset, "event": what, **facts}).to_bytes()
        self.release(Outgoing("events", self.dataset, value))
        return value

    def write_ledger(self, kind: str, body: Mapping[str, object]) -> None:
        """Appends an entry to the hash chain and queues it for publication."""
        index = int(self.facts.get(LEDGER, "0"))
        head = bytes.fromhex(self.facts.get(HEAD, "")) or ledger.GENESIS
        entry, head = ledger.append(head, index, self.dataset, kind, dict(body))
        self.note(LEDGER, str(index + 1))
        self.note(HEAD, head.hex())
        self.release(Outgoing("ledger", self.dataset, entry))

    # ------------------------------------------------------------ commits

    def commit(self) -> None:
        """Makes a commit of the draft. It is in memory at once, and on the journal once ``appended`` returns.

        What it queues may leave from then on, see ``collect``.
        """
        if not self.dirty:
            return
        verified = self._remembered().items()
        self._change.pairs |= {(StateTable.VERIFIED, query): one for query, one in verified}
        change, self._change = self._change, _Change()
        self._fuse(CrashPoint.BEFORE_COMMIT)
        out = outbox_to_bytes([_queued(one, change) for one in change.outgoing])
        commit = self.state.drafted(change.pairs, nonce=change.nonce, out=out)
        stored, trail = commit.to_bytes()
        self._chain.add(commit, trail)
        self.committed_at = time()
        self._fuse(CrashPoint.AFTER_COMMIT)
        decided = Decided(commit, trail, stored, kept=change.kept, chain=self._chain)
        self._durable.add(decided, change.outgoing)

    def collect(self) -> Releasable:
        """Returns what was decided since the last call, for the journal and to leave after it."""
        durable, self._durable = self._durable, Releasable()
        return durable


def _queued(one: Outgoing, change: _Change) -> OutboxRecord | str:
    """A record that a commit queues; of an answer that the same commit stores its name alone."""
    if one.answer is not None and (StateTable.ANSWER, one.answer.encode()) in change.pairs:
        return one.answer
    return OutboxRecord(one.role, one.key.encode(), one.headers, one.value)
