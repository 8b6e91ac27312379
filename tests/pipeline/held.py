"""What is durable of the data sets of a ``World``: the journal, read and added up by rules of its own.

Nothing of the reader that workers have is used here, so that a fault in it shows.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from stream_dp.state.codec import OutboxRecord, outbox_from_bytes
from stream_dp.state.kept import Named, unsalted
from stream_dp.state.schema import Commit, Pair, Table

if TYPE_CHECKING:
    from tests.pipeline.world import World

_ROTATED: Pair = (Table.FACT, b"answers rotated")

commit_of = functools.lru_cache(10_000)(Commit.from_bytes)


class Valid(NamedTuple):
    """A commit of the journal that counts."""

    partition: int
    offset: int
    commit: Commit
    trail: bytes


def valid_commits(world: World) -> dict[str, list[Valid]]:
    """The commits that count, by data set."""
    chains: dict[str, list[Valid]] = defaultdict(list)
    for partition, entries in enumerate(world.journal):
        in_force = b""
        parts: dict[bytes, tuple[int, list[bytes]]] = {}
        for offset, entry in enumerate(entries):
            headers = dict(entry.headers)
            if headers["kind"] == b"epoch":
                in_force = headers["epoch"]
            if headers["kind"] != b"commit" or headers["epoch"] != in_force:
                continue
            value, first = entry.value, offset
            if "part" in headers:
                number, count, of = headers["part"].split(b" ")
                first, found = parts.setdefault(of, (offset, []))
                if int(number) == len(found):
                    found.append(entry.value)
                if len(found) < int(count):
                    continue
                value = b"".join(found)
            commit, trail = commit_of(value)
            chain = chains[entry.key.decode()]
            last, at = (chain[-1].commit.number, chain[-1].trail) if chain else (0, bytes(32))
            if (commit.number - 1, commit.prev) == (last, at):
                chain.append(Valid(partition, first, commit, trail))
    return dict(chains)


@dataclass(frozen=True)
class Waiting:
    """A batch that was taken in, and where it is."""

    topic_partition: str
    offset: int
    rows: int
    batch_id: str


class Said:
    """What one commit says, with what was there before it.

    Attributes:
        number: The number of the commit.
        puts: What it puts.
        accepted: The batches that it takes in, in order.
        sealed: The number of rows of the phase that it opens; None where it opens none.
        charges: (block, rho, delta) that it adds to what is spent.
        rotates: Whether it drops old answers.
        erases: Whether it retires the data set.
    """

    def __init__(self, commit: Commit, before: Mapping[Pair, bytes]) -> None:
        self.number = commit.number
        self.nonce = commit.nonce
        self.puts = commit.pairs
        self.rotates = _ROTATED in commit.pairs and _ROTATED in before
        self.out = outbox_from_bytes(commit.out) if commit.out else []
        waiting = {k: v for k, v in self._table(Table.WAITING).items() if v is not None}
        # Of a batch that is sealed in the commit that takes it in, the event alone tells.
        self.waits = [_waiting(v) for _, v in sorted(waiting.items(), key=lambda one: int(one[0]))]
        self.transcript = [
            v
            for _, v in sorted(self._table(Table.TRANSCRIPT).items(), key=lambda one: int(one[0]))
            if v is not None
        ]
        phases = [one for one in self.transcript if one[:1] == b"\x00"]
        self.sealed = int(phases[0][1:].split()[0]) if phases else None
        self.n_sealed = len(phases)
        self.retires = self.meta.get("retired") == "1"
        self.charges = [
            (int(block), *_more(v, before.get((Table.SPENT, block), b"0 0")))
            for block, v in self._table(Table.SPENT).items()
            if v is not None
        ]
        self.intents = {int(k): v for k, v in self._table(Table.INTENT).items() if v is not None}
        self.settles = [int(k) for k, v in self._table(Table.INTENT).items() if v is None]

    def _table(self, table: Table) -> dict[bytes, bytes | None]:
        return {key: value for (of, key), value in self.puts.items() if of is table}

    @property
    def meta(self) -> dict[str, str]:
        """The facts that it sets."""
        return {k.decode(): v.decode() for k, v in self._table(Table.FACT).items() if v is not None}

    @property
    def cursor(self) -> dict[str, int]:
        return {k.decode(): int(v) for k, v in self._table(Table.CURSOR).items() if v is not None}

    @property
    def answers(self) -> dict[str, bytes]:
        return {k.decode(): v for k, v in self._table(Table.ANSWER).items() if v is not None}

    @property
    def batches(self) -> dict[str, bytes]:
        return {
            k.decode("utf-8", "surrogatepass"): v
            for k, v in self._table(Table.OUTCOME).items()
            if v is not None
        }

    @property
    def definition(self) -> bytes | None:
        return self.puts.get((Table.DEFINITION, b""))

    @property
    def ledger(self) -> list[bytes]:
        """The entries of the ledger that it lets out."""
        return [one.value or b"" for one in self.records("ledger")]

    def events(self, kind: str) -> list[dict[str, object]]:
        """The events of a kind that it lets out."""
        said = [json.loads(one.value or b"{}") for one in self.records("events")]
        return [one for one in said if one["event"] == kind]

    def records(self, role: str) -> list[OutboxRecord]:
        return [one for one in self.out if isinstance(one, OutboxRecord) and one.role == role]


def _more(after: bytes, before: bytes) -> tuple[int, int]:
    rho, delta = (int(a) - int(b) for a, b in zip(after.split(), before.split(), strict=True))
    return rho, delta


def _waiting(stored: bytes) -> Waiting:
    text = stored.decode("utf-8", "surrogatepass")
    topic_partition, offset, rows, _, batch_id = text.split(" ", 4)
    return Waiting(topic_partition, int(offset), int(rows), batch_id)


@dataclass
class Held:
    """What is durable of a data set.

    Attributes:
        name: The name of the data set.
        seq: The number of commits.
        pairs: The state.
        answers: The answers since the last rotation, by name.
        previous: Those from before it that are kept.
        batches: The outcomes of batches since the last rotation, by id.
        previous_batches: Those from before it that are kept.
        taken: The ids of batches that are taken for ever.
    """

    name: str
    world: World = field(repr=False)
    seq: int = 0
    pairs: dict[Pair, bytes] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    previous: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, bytes] = field(default_factory=dict)
    previous_batches: dict[str, bytes] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    said: list[Said] = field(default_factory=list)

    def add(self, commit: Commit) -> None:
        """Adds up the next commit."""
        one = Said(commit, self.pairs)
        self.said.append(one)
        self.seq = commit.number
        if one.rotates:
            self.answers, self.previous = {}, self.answers
            self.batches, self.previous_batches = {}, self.batches
        self.answers |= one.answers
        self.batches |= one.batches
        for (table, key), value in commit.pairs.items():
            if table is Table.TAKEN:
                self.taken.add(key.decode("utf-8", "surrogatepass"))
            elif table not in (Table.ANSWER, Table.OUTCOME):
                if value is None:
                    self.pairs.pop((table, key), None)
                else:
                    self.pairs[table, key] = value

    def table(self, table: Table) -> dict[str, bytes]:
        return {
            key.decode("utf-8", "surrogatepass"): value
            for (of, key), value in self.pairs.items()
            if of is table
        }

    def numbered(self, table: Table) -> list[bytes]:
        found = self.table(table)
        return [found[key] for key in sorted(found, key=int)]

    @property
    def definition(self) -> bytes | None:
        return self.pairs.get((Table.DEFINITION, b""))

    @property
    def meta(self) -> dict[str, str]:
        return {key: text.decode() for key, text in self.table(Table.FACT).items()}

    @property
    def cursor(self) -> dict[str, int]:
        return {key: int(at) for key, at in self.table(Table.CURSOR).items()}

    @property
    def spent(self) -> list[tuple[int, int]]:
        found = [one.split() for one in self.numbered(Table.SPENT)]
        return [(int(rho), int(delta)) for rho, delta in found]

    @property
    def transcript(self) -> list[bytes]:
        return self.numbered(Table.TRANSCRIPT)

    @property
    def verified(self) -> dict[bytes, bytes]:
        return {key: value for (of, key), value in self.pairs.items() if of is Table.VERIFIED}

    @property
    def intents(self) -> dict[int, bytes]:
        return {int(key): value for key, value in self.table(Table.INTENT).items()}

    @property
    def retired(self) -> bool:
        return self.meta.get("retired") == "1"

    @property
    def waiting(self) -> list[Waiting]:
        """The batches that wait and are read again, in order."""
        return [_waiting(one) for one in self.numbered(Table.WAITING)]

    @property
    def ledger(self) -> list[bytes]:
        """The entries of the ledger that its commits have let out."""
        return [entry for one in self.said for entry in one.ledger]

    def named(self, kind: str = "") -> dict[str, Named]:
        """The private values of a kind that are named, by what follows it."""
        return {
            key.removeprefix(kind): Named.from_bytes(value)
            for key, value in self.table(Table.KEPT).items()
            if key.startswith(kind)
        }

    def private(self, named: Named) -> bytes | None:
        """A private value as it is on the topic. None if it is not there."""
        kept = self.world.kept.get(f"{self.name}/{named.name.hex()}".encode())
        return None if kept is None else unsalted(kept)

    @property
    def blocks(self) -> list[bytes | None]:
        """The blocks that are not erased, in order. None for one that is nowhere."""
        found = self.named("block ")
        return [self.private(found[key]) for key in sorted(found, key=int)]

    @property
    def vault(self) -> dict[str, bytes | None]:
        """The secrets of runs, by their names."""
        return {key: self.private(one) for key, one in self.named("run ").items()}


def held_of(world: World) -> dict[str, Held]:
    """What is durable of each data set."""
    found: dict[str, Held] = {}
    for name, chain in valid_commits(world).items():
        found[name] = Held(name, world)
        for one in chain:
            found[name].add(one.commit)
    return found


__all__: Sequence[str] = ["Held", "Said", "Valid", "Waiting", "held_of", "valid_commits"]
