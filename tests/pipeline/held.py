"""What is durable of the data sets of a ``World``: the journal, read and added up by rules of its own.

Nothing of the reader that workers have is used here, so that a fault in it shows.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from stream_dp.core.budget.accountant import Charge
from stream_dp.state.codec import OutboxRecord, outbox_from_bytes
from stream_dp.state.private_names import Named, unsalted
from stream_dp.state.schema import Commit, Pair, StateTable

if TYPE_CHECKING:
    from tests.pipeline.world import World

_ROTATED: Pair = (StateTable.FACT, b"answers rotated")

commit_of = functools.lru_cache(10_000)(Commit.from_bytes)


class Valid(NamedTuple):
    """A commit of the journal that counts.

    Attributes:
        partition: The partition.
        offset: Its offset there.
        commit: The commit.
        trail: The trail behind it.
        again: The offsets at which it is again, as after a lost reply.
    """

    partition: int
    offset: int
    commit: Commit
    trail: bytes
    again: list[int]


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
                if number == b"0":
                    parts[of] = offset, []
                first, found = parts.get(of, (offset, []))
                if int(number) == len(found):
                    found.append(entry.value)
                if len(found) < int(count):
                    continue
                value = b"".join(found)
            commit, trail = commit_of(value)
            chain = chains[entry.key.decode()]
            last, at = (chain[-1].commit.number, chain[-1].trail) if chain else (0, bytes(32))
            if (commit.number - 1, commit.prev) == (last, at):
                chain.append(Valid(partition, first, commit, trail, []))
            elif commit.number <= last and chain[commit.number - 1].trail == trail:
                chain[commit.number - 1].again.append(first)
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
        nonce: Its nonce.
        puts: What it puts.
        sum: The sum of the state after it, as it says.
        rotates: Whether it drops old answers.
        out: What leaves after it; of an answer that it stores the name alone.
        transcript: The entries of the transcript that it adds, in order.
        phases: The numbers of the phases that it opens.
        late: The phases that it completes, each with the number of its late rows.
        blocks: The numbers of the phases whose rows are kept after it.
        bare: The number of first phases whose rows it gives up. 0 for none.
        given_up: The batches that waited and that it gives up, each with its name and the id of its record,
            or with a slab of the lot that it is in.
        retires: Whether it retires the data set.
        charges: What it adds to what is spent.
        looks: The looks that it announces, in order.
        settled: The looks that it settles, in order.
        accepted: The names of the batches that it takes in, in order.
    """

    def __init__(self, commit: Commit, held: Held) -> None:
        before = held.pairs
        self.number = commit.number
        self.nonce = commit.nonce
        self.puts = commit.pairs
        self.sum = commit.sum
        self.rotates = _ROTATED in commit.pairs
        self.out = outbox_from_bytes(commit.out) if commit.out else []
        added = {int(k): v for k, v in self._table(StateTable.TRANSCRIPT).items() if v is not None}
        self.transcript = [added[number] for number in sorted(added)]
        opened = sum(entry[:1] == b"\x00" for entry in self.transcript)
        self.phases = range(held.phases + 1, held.phases + 1 + opened)
        late = [int(entry[1:]) for entry in self.transcript if entry[:1] == b"\x06"]
        self.late = dict(enumerate(late, held.complete + 1))
        gone = [entry[1:].split() for entry in self.transcript if entry[:1] == b"\x04"]
        self.bare = max((int(phases) for phases, _ in gone), default=0)
        self.given_up = held.dropped(self.puts) if gone else []
        self.retires = self.meta.get("retired") == "1"
        self.blocks = set(held.block_numbers)
        for key, named in self._table(StateTable.KEPT).items():
            if key.startswith(b"block "):
                phase = int(key.split(b" ")[1])
                (self.blocks.discard if named is None else self.blocks.add)(phase)
        self.charges = [
            charge
            for block, after in self._table(StateTable.SPENT).items()
            if after is not None
            and (charge := _more(block, after, before.get((StateTable.SPENT, block), b"0 0")))
            is not None
        ]
        intents = self._table(StateTable.INTENT).items()
        self.looks = _looks(v for _, v in intents if v is not None)
        self.settled = _looks(before[StateTable.INTENT, key] for key, v in intents if v is None)
        told = (batch_name(event) for event in self.events("batch_accepted"))
        # What is said again of a batch that came before has no new outcome.
        counts = (one for one in told if " " in one or one in self.batches)
        self.accepted = list(dict.fromkeys(counts))

    def _table(self, table: StateTable) -> dict[bytes, bytes | None]:
        return {key: value for (of, key), value in self.puts.items() if of is table}

    @property
    def meta(self) -> dict[str, str]:
        """The facts that it sets."""
        return {
            k.decode(): v.decode() for k, v in self._table(StateTable.FACT).items() if v is not None
        }

    @property
    def cursor(self) -> dict[str, int]:
        return {
            k.decode(): int(v) for k, v in self._table(StateTable.CURSOR).items() if v is not None
        }

    @property
    def answers(self) -> dict[str, bytes]:
        return {k.decode(): v for k, v in self._table(StateTable.ANSWER).items() if v is not None}

    @property
    def batches(self) -> dict[str, bytes]:
        return {
            k.decode("utf-8", "surrogatepass"): v
            for k, v in self._table(StateTable.OUTCOME).items()
            if v is not None
        }

    @property
    def definition(self) -> bytes | None:
        return self.puts.get((StateTable.DEFINITION, b""))

    @property
    def ledger(self) -> list[bytes]:
        """The entries of the ledger that it lets out."""
        return [one.value or b"" for one in self.records("ledger")]

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The events that it lets out, or those of a kind."""
        said = [json.loads(one.value) for one in self.records("events") if one.value]
        return [one for one in said if kind in (None, one["event"])]

    def records(self, role: str) -> list[OutboxRecord]:
        return [one for one in self.out if isinstance(one, OutboxRecord) and one.role == role]


def batch_name(said: Mapping[str, Any]) -> str:
    """The name of a batch in a message: its id, or its producer and number. Empty if it has neither."""
    if "producer" in said:
        return f"{said['producer']} {said.get('sequence')}"
    name = said.get("batch_id")
    return name if isinstance(name, str) else ""


def _more(block: bytes, after: bytes, before: bytes) -> Charge | None:
    rho, delta = (int(a) - int(b) for a, b in zip(after.split(), before.split(), strict=True))
    return Charge(int(block), rho, delta) if rho or delta else None


def _looks(intents: Iterable[bytes]) -> list[dict[str, Any]]:
    return [look for intent in intents for look in json.loads(intent)]


def _waiting(stored: bytes) -> Waiting:
    text = stored.decode("utf-8", "surrogatepass")
    topic_partition, offset, rows, *_, batch_id = text.split(" ", 10)
    return Waiting(topic_partition, int(offset), int(rows), batch_id)


@dataclass
class Held:
    """What is durable of a data set.

    Attributes:
        name: The name of the data set.
        valid: Its commits, where they are on the journal.
        seq: The number of commits.
        pairs: The state.
        answers: The answers since the last rotation, by name.
        previous: Those from before it that are kept.
        batches: The outcomes of batches since the last rotation, by id.
        previous_batches: Those from before it that are kept.
        taken: The ids of batches that are taken for ever.
        said: What each commit says, in order.
        sum: The sum of the state, as the last commit says.
        trail: The trail behind the last commit.
        phases: The number of phases that were opened.
        complete: The number of first phases that get no more rows.
        ever: The private values that were ever named, each with what it was named as first.
    """

    name: str
    world: World = field(repr=False)
    valid: list[Valid] = field(default_factory=list, repr=False)
    seq: int = 0
    pairs: dict[Pair, bytes] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    previous: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, bytes] = field(default_factory=dict)
    previous_batches: dict[str, bytes] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    said: list[Said] = field(default_factory=list)
    sum: int = 0
    trail: bytes = bytes(32)
    phases: int = 0
    complete: int = 0
    ever: dict[bytes, str] = field(default_factory=dict)
    _batches: dict[bytes, Waiting] = field(default_factory=dict)
    _lots: dict[int, list[str]] = field(default_factory=dict)
    _periods: dict[str, str] = field(default_factory=dict)

    def add(self, commit: Commit, trail: bytes) -> None:
        """Adds up the next commit."""
        one = Said(commit, self)
        self._fill_lots(one)
        self.said.append(one)
        self.seq, self.sum, self.trail = commit.number, commit.sum, trail
        self.phases += len(one.phases)
        self.complete += len(one.late)
        if one.rotates:
            self.answers, self.previous = {}, self.answers
            self.batches, self.previous_batches = {}, self.batches
        self.answers |= one.answers
        self.batches |= one.batches
        for (table, key), value in commit.pairs.items():
            if table is StateTable.TAKEN:
                self.taken.add(key.decode("utf-8", "surrogatepass"))
            elif table not in (StateTable.ANSWER, StateTable.OUTCOME):
                if value is None:
                    self.pairs.pop((table, key), None)
                else:
                    self.pairs[table, key] = value
            if value is not None and table is StateTable.WAITING:
                self._batches[key] = _waiting(value)
            if value is not None and table is StateTable.KEPT:
                self.ever.setdefault(Named.from_bytes(value).name, key.decode())

    def _fill_lots(self, one: Said) -> None:
        """Notes which batches are in lots that a commit names first: those that wait, in order.

        A lot has batches of one period, or of one phase that they come to late. Others that are late, or have
        no time, wait under none.
        """
        queue, accepted = [batch.batch_id for batch in self.waiting], set(one.accepted)
        for event in one.events():
            if event["event"] == "batch_accepted" and (name := batch_name(event)) in accepted:
                accepted.remove(name)
                queue += [name] if event["rows"] else []
                of_late = f"-{event['late_phase']}" if "late_phase" in event else ""
                self._periods[name] = of_late if event.get("late") else event.get("since", "")
        keys = [
            tuple(map(int, key.decode().split(" ")[1:]))
            for (table, key), value in one.puts.items()
            if value is not None and table is StateTable.KEPT and key.startswith(b"waiting ")
        ]
        zone = ZoneInfo(
            json.loads(self.definition or b"{}").get("phase", {}).get("timezone", "UTC")
        )
        there = {int(key.split(" ")[1]) for key in self.named("waiting ")}
        for period, lot, n_batches in sorted({(p, lot, n) for p, lot, _, n, _ in keys}):
            if lot in there:
                continue  # a sweep keeps it again
            day = datetime.fromtimestamp(period / 1000, zone).date().isoformat() if period else ""
            day = str(period) if period < 0 else day
            of_it = [name for name in queue if self._periods[name] == day]
            self._lots[lot] = of_it[:n_batches]
            queue = [name for name in queue if name not in self._lots[lot]]

    def dropped(self, puts: Mapping[Pair, bytes | None]) -> list[tuple[str, str, Named | None]]:
        """The batches that waited and do so no more after a commit, as ``Said.given_up`` has them."""
        found: list[tuple[str, str, Named | None]] = []
        for (table, key), value in puts.items():
            if value is not None:
                continue
            kind, *numbers = key.decode("utf-8", "replace").split(" ")
            if table is StateTable.WAITING:
                batch = self._batches[key]
                record = f"{batch.topic_partition}:{batch.offset}"
                found.append((batch.batch_id, record, None))
            elif table is StateTable.KEPT and kind in ("waiting", "whose", "arrived"):
                named = Named.from_bytes(self.pairs[table, key])
                found += [(name, "", named) for name in self._lots[int(numbers[1])]]
        return found

    def table(self, table: StateTable) -> dict[str, bytes]:
        return {
            key.decode("utf-8", "surrogatepass"): value
            for (of, key), value in self.pairs.items()
            if of is table
        }

    def numbered(self, table: StateTable) -> list[bytes]:
        found = self.table(table)
        return [found[key] for key in sorted(found, key=int)]

    @property
    def definition(self) -> bytes | None:
        return self.pairs.get((StateTable.DEFINITION, b""))

    @property
    def meta(self) -> dict[str, str]:
        return {key: text.decode() for key, text in self.table(StateTable.FACT).items()}

    @property
    def cursor(self) -> dict[str, int]:
        return {key: int(at) for key, at in self.table(StateTable.CURSOR).items()}

    @property
    def spent(self) -> list[tuple[int, int]]:
        found = [one.split() for one in self.numbered(StateTable.SPENT)]
        return [(int(rho), int(delta)) for rho, delta in found]

    @property
    def transcript(self) -> list[bytes]:
        return self.numbered(StateTable.TRANSCRIPT)

    @property
    def verified(self) -> dict[bytes, bytes]:
        return {key: value for (of, key), value in self.pairs.items() if of is StateTable.VERIFIED}

    @property
    def intents(self) -> dict[int, bytes]:
        return {int(key): value for key, value in self.table(StateTable.INTENT).items()}

    @property
    def retired(self) -> bool:
        return self.meta.get("retired") == "1"

    @property
    def waiting(self) -> list[Waiting]:
        """The batches that wait and are read again, in order."""
        return [_waiting(one) for one in self.numbered(StateTable.WAITING)]

    @property
    def waits(self) -> list[Waiting | Named]:
        """All rows that wait, in order: slabs that are kept, then batches that are read again."""
        lots = {
            tuple(map(int, key.split()))[1:]: one for key, one in self.named("waiting ").items()
        }
        return [*(lots[key] for key in sorted(lots)), *self.waiting]

    @property
    def ledger(self) -> list[bytes]:
        """The entries of the ledger that its commits have let out."""
        return [entry for one in self.said for entry in one.ledger]

    def named(self, kind: str = "") -> dict[str, Named]:
        """The private values of a kind that are named, by what follows it."""
        return {
            key.removeprefix(kind): Named.from_bytes(value)
            for key, value in self.table(StateTable.KEPT).items()
            if key.startswith(kind)
        }

    def parts(self, named: Named) -> tuple[bytes, ...] | None:
        """A private value as it is on the topic, in parts. None if it is not there."""
        return self.world.kept.get(f"{self.name}/{named.name.hex()}".encode())

    def private(self, named: Named) -> bytes | None:
        """A secret as it is on the topic. None if it is not there."""
        kept = self.parts(named)
        return None if kept is None else unsalted(kept[0])

    @property
    def names(self) -> set[bytes]:
        """The names of its private values, without those that are to be erased."""
        return {one.name for key, one in self.named().items() if not key.startswith("gone ")}

    @property
    def block_numbers(self) -> set[int]:
        """The numbers of the phases whose rows are kept."""
        return {int(key.split(" ")[0]) for key in self.named("block ")}

    @property
    def blocks(self) -> list[list[tuple[bytes, ...] | None]]:
        """The slabs of the blocks that are not erased, in order. None for one that is nowhere."""
        found: dict[int, list[tuple[bytes, ...] | None]] = defaultdict(list)
        keyed = {tuple(map(int, k.split(" "))): one for k, one in self.named("block ").items()}
        for phase, at in sorted(keyed):
            found[phase].append(self.parts(keyed[phase, at]))
        return [*found.values()]

    @property
    def vault(self) -> dict[str, bytes | None]:
        """The secrets of runs, by their names."""
        return {key: self.private(one) for key, one in self.named("run ").items()}


def held_of(world: World) -> dict[str, Held]:
    """What is durable of each data set."""
    found: dict[str, Held] = {}
    for name, chain in valid_commits(world).items():
        found[name] = Held(name, world, chain)
        for one in chain:
            found[name].add(one.commit, one.trail)
    return found
