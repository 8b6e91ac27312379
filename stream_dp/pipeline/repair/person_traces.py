"""Where something of one person still is: in Redis, on the topics of blocks and batches, and in files.

All that is there is read, also what was erased and has not left a topic yet. Of other persons nothing is
said. What workers hold in memory, the source, backups and exports are out of reach.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, Literal, NamedTuple

import numpy as np

from stream_dp.core.encoding import IDENTITY_BYTES
from stream_dp.core.rows.column_values import Repeated
from stream_dp.core.rows.person_slots import DIGEST_BYTES, canonical, digests
from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.core.rows.slot_counts import Column
from stream_dp.errors import CorruptState, InvalidInput, WrongStore
from stream_dp.messages import Batch
from stream_dp.pipeline.intake.decoder import Ingest, decode, partition_of
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair.offline import Offline, state_of
from stream_dp.pipeline.rows.block_owners import veiled
from stream_dp.pipeline.rows.own_values import COUNTED, OWNER, TEXT, USED, WHOSE
from stream_dp.pipeline.rows.slab_files import SlabFiles
from stream_dp.state.private_names import Named, part_name
from stream_dp.state.schema import ERASED, State, StateTable

_WORDS: Final = DIGEST_BYTES // 4
_DIGESTS: Final = ("digest", "person")
"""How the columns begin in which digests of persons are."""
TraceState = Literal["kept", "for life", "late", "erasing", "erased", "unnamed", "behind", "batch"]
"""What is to become of it.

- ``kept``: It is in force. A sweep erases it.
- ``for life``: It is in force, and no sweep erases it.
- ``late``: It is in force until no more rows come to its phase.
- ``erasing``: A commit has erased it, and a worker is about to.
- ``erased``: It was erased, and the broker still has it.
- ``unnamed``: No commit names it.
- ``behind``: No commit names it, and Redis has it.
- ``batch``: It is in a record that was sent.
"""


_SAID: Final[Mapping[str, tuple[str, TraceState]]] = {
    OWNER: ("rows of phase {}", "kept"),
    TEXT: ("what rows of phase {} say of found values", "kept"),
    WHOSE: ("rows that wait", "kept"),
    USED: ("what the person has used for life", "for life"),
    COUNTED: ("how many rows count in phase {}", "late"),
}
"""What values with digests of persons are kept for -> what they are, and what is to become of them."""


class PersonTrace(NamedTuple):
    """Something of a person that is still there.

    Attributes:
        place: Where it is.
        what: What it is, in words.
        slots: The number of slots or entries that are about the person.
        state: What is to become of it.
    """

    place: str
    what: str
    slots: int
    state: TraceState


@dataclass(frozen=True)
class SoughtPerson:
    """A person as records and private values know them.

    Attributes:
        key: The canonical text of the key.
        column: The column of rows that says whose they are.
        secret: The secret of the data set that its digests are made with.
    """

    key: str = field(repr=False)
    column: str
    secret: bytes = field(repr=False)

    def among(self, keys: object) -> int:
        """How many of some values are this person's key. What is not a column of keys has none."""
        if isinstance(keys, Repeated):
            same = np.array([canonical(key) == self.key for key in keys.values], np.bool_)
            return int(np.count_nonzero(same[keys.indices]))
        if not isinstance(keys, list | np.ndarray):
            return 0
        return sum(canonical(key) == self.key for key in keys)

    def with_digest(self, words: Mapping[int, Column]) -> int:
        """How many of some digests are this person's.

        Args:
            words: Their words, or some of them, each of shape (n_slots,), by their numbers.
        """
        wanted = digests(self.secret, [self.key]).view("<u4")[0]
        same = [word == wanted[at] for at, word in words.items()]
        return int(np.count_nonzero(np.logical_and.reduce(same)))


class _Parts:
    """Finds a person in parts of private values, which come in the order of their numbers."""

    def __init__(self, person: SoughtPerson) -> None:
        self._person = person
        self._indexes: dict[bytes, SlabIndex] = {}
        self._columns: defaultdict[bytes, dict[int, bytes]] = defaultdict(dict)

    def take(self, name: bytes, number: int, part: bytes) -> int:
        """Takes a part of a value; returns in how many slots the person is that it completes."""
        columns = self._columns[name]
        if number == 0:
            columns.clear()
            self._indexes.pop(name, None)
            try:
                self._indexes[name] = SlabIndex.from_bytes(part)
            except CorruptState:  # a secret, which has one part
                del self._columns[name]
            return 0
        index, found = self._indexes.get(name), 0
        columns[number] = part
        if index is None:  # it is gone already, so any three columns may be a digest
            columns.pop(number - _WORDS, None)
            every: list[tuple[str, Sequence[int]]]
            every = [("", range(number - _WORDS + 1, number + 1))]
        else:
            every = [(kind, places) for kind, places in _digest_places(index) if number in places]
            if not every:
                del columns[number]
        for kind, places in every:
            if all(place in columns for place in places):
                whole = {at: columns[place] for at, place in enumerate(places)}
                found += self._count(kind, index, whole)
                if index is not None:
                    for place in places:
                        del columns[place]
        return found

    def of_cut_values(self) -> Iterator[tuple[bytes, int]]:
        """Yields values that have two words of each digest, and in how many slots these are the person's."""
        for name, index in self._indexes.items():
            columns = self._columns[name]
            for kind, places in _digest_places(index):
                there = {at: columns[place] for at, place in enumerate(places) if place in columns}
                if len(there) == _WORDS - 1:
                    yield name, self._count(kind, index, there)

    def _count(self, kind: str, index: SlabIndex | None, columns: Mapping[int, bytes]) -> int:
        """Counts the slots of the person, plain and unveiled, by words of digests."""
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1 or min(lengths) % 4:
            return 0
        words: dict[int, Column] = {at: np.frombuffer(one, "<u4") for at, one in columns.items()}
        found = self._person.with_digest(words)
        if found or index is None:
            return found
        named, n_slots = {f"{kind} {at}": word for at, word in words.items()}, min(lengths) // 4
        slab = veiled(self._person.secret, index.salt, Slab(n_slots, n_slots, named))
        return self._person.with_digest({at: slab.columns[f"{kind} {at}"] for at in words})


def _digest_places(index: SlabIndex) -> Iterator[tuple[str, Sequence[int]]]:
    """Yields where the columns of a slab are that are digests of persons, and how their names begin."""
    for kind in _DIGESTS:
        names = [f"{kind} {at}" for at in range(_WORDS)]
        if set(names) <= set(index.names):
            yield kind, [*map(index.place, names)]


class PersonSearch:
    """Looks for one person in all that is kept of a data set.

    Args:
        tools: The topics and Redis.
        dataset: The name of the data set.
        person: The person.

    Attributes:
        traces: What was found so far.
        read: How much was read so far, by what it is.
    """

    def __init__(self, tools: Offline, dataset: str, person: SoughtPerson) -> None:
        self._tools, self._dataset, self._person = tools, dataset, person
        self._partition = partition_of(dataset.encode(), tools.log.partitions)
        self._kept: dict[bytes, str] = {}
        self.traces: list[PersonTrace] = []
        self.read: dict[str, int] = {}

    async def begin(self, files: SlabFiles | None) -> None:
        """Reads from the journal what each private value is.

        Args:
            files: The store of slabs. None without one.

        Raises:
            CorruptState: The data set is not whole.
            InvalidInput: The journal has no data set of this name.
            WrongStore: Its rows are in another store of slabs.
        """
        stores = set()
        for what, stored in (await self._state()).table(StateTable.KEPT).items():
            named = Named.from_bytes(stored)
            self._kept[named.name] = what.decode()
            stores.add(named.store)
        if any(files is None or not files.has(store) for store in stores - {b""}):
            raise WrongStore(self._dataset)

    async def _state(self) -> State:
        """The state of the data set. A worker may delete entries meanwhile, so it is read twice at most."""
        try:
            return state_of(await self._tools.journal().look(self._partition), self._dataset)
        except CorruptState:
            return state_of(await self._tools.journal().look(self._partition), self._dataset)

    # ------------------------------------------------------------ private values

    async def in_redis(self) -> None:
        """Looks through the private values that Redis has."""
        view, parts = self._tools.view, _Parts(self._person)
        names = sorted(await view.kept_names(self._dataset))
        for name, some in groupby(names, lambda one: one[:IDENTITY_BYTES]):
            numbers, slots = [int.from_bytes(one[IDENTITY_BYTES:]) for one in some], 0
            for number in _of_digests(await view.kept(self._dataset, [name]), numbers):
                (part,) = await view.kept(self._dataset, [part_name(name, number)])
                slots += 0 if part is None else parts.take(name, number, part)
            self._note("Redis", name, slots, "behind")
        self.read["parts read in Redis"] = len(names)

    async def on_blocks(self) -> None:
        """Looks through the topic of blocks, also through what was erased and is there still."""
        parts, prefix = _Parts(self._person), f"{self._dataset}/".encode()
        found: dict[tuple[bytes, int], int] = {}
        begins, dropped, count = dict[bytes, int](), set[bytes](), 0
        log = self._tools.blocks
        async for piece in log.read(self._partition, *await log.bounds(self._partition)):
            for offset, entry in piece:
                if (place := _value_of(entry.key, prefix)) is None:
                    continue
                name, number = place
                if not entry.value:
                    dropped.add(name)
                    continue
                count += 1
                if number == 0 or name not in begins:
                    begins[name] = offset
                if slots := parts.take(name, number, entry.value):
                    at = name, begins[name]
                    found[at] = found.get(at, 0) + slots
        found |= {(name, begins[name]): slots for name, slots in parts.of_cut_values()}
        for (name, offset), slots in found.items():
            state: TraceState = "erased" if name in dropped else "unnamed"
            self._note(f"blocks:{self._partition}:{offset}", name, slots, state)
        self.read["records read on blocks"] = count

    def in_files(
        self, files: SlabFiles, progress: Callable[[Sequence[bytes]], Iterable[bytes]]
    ) -> None:
        """Looks through the files of the store of slabs.

        Args:
            files: The store.
            progress: Receives the names of all files, and gives them back one by one.

        Raises:
            ServerUnavailable: The store does not answer, or refuses.
        """
        parts, names, cut = _Parts(self._person), sorted(files.names(self._dataset)), 0
        for name in progress(names):
            read = partial(files.parts, self._dataset, name)
            first, slots = read([0]), 0
            cut += first[0] is None
            numbers = [*_of_digests(first, [])]
            for number, part in zip(numbers, read(numbers), strict=True):
                slots += 0 if part is None else parts.take(name, number, part)
            self._note(f"file {name.hex()}", name, slots, "unnamed")
        self.read |= {"files read": len(names) - cut, "files that cannot be read": cut}

    def _note(self, place: str, name: bytes, slots: int, otherwise: TraceState) -> None:
        """Notes in how many slots of a value the person is.

        Args:
            place: Where the value is.
            name: Its name.
            slots: The number of slots. Nothing is noted of none.
            otherwise: What is to become of it if no commit names it.
        """
        if slots:
            what, state = _said(self._kept.get(name), otherwise)
            self.traces.append(PersonTrace(place, what, slots, state))

    # ------------------------------------------------------------ batches

    async def on_batches(self) -> None:
        """Looks through the batches: their rows, and their requests to erase and to correct."""
        log, count, key = self._tools.inputs["batches"], 0, self._dataset.encode()
        async for piece in log.read(self._partition, *await log.bounds(self._partition)):
            for offset, entry in piece:
                if entry.key == key and entry.value:
                    count += 1
                    place = f"batches:{self._partition}:{offset}"
                    for what, slots in self._in_batch(entry, offset):
                        if slots:
                            self.traces.append(PersonTrace(place, what, slots, "batch"))
        self.read["records read on batches"] = count

    def _in_batch(self, entry: LogEntry, offset: int) -> Iterator[tuple[str, int]]:
        """Yields what a record has of the person, and in how many slots."""
        headers, topic = dict(entry.headers), self._tools.names["batches"]
        record = Record("batches", topic, self._partition, offset, entry.key, entry.value, headers)
        try:
            request = decode(record, self._tools.log.partitions)
        except InvalidInput:  # it was refused, and may be anything
            text = self._person.key.encode("utf-8", "surrogatepass")
            yield "a record that cannot be read", entry.value.count(text)
            return
        if isinstance(request, Ingest):
            yield from self._in_forms(request.batch)

    def _in_forms(self, batch: Batch) -> Iterator[tuple[str, int]]:
        among, column = self._person.among, self._person.column
        rows = [row.get(column) for row in batch.rows or [] if isinstance(row, dict)]
        yield f"rows of batch {batch.name}", among(rows)
        yield f"rows of batch {batch.name}", among((batch.columns or {}).get(column))
        yield f"a request to erase, batch {batch.name}", among(batch.erase or [])
        entries = [entry for entry in batch.correct or [] if isinstance(entry, dict)]
        persons = [entry.get("person") for entry in entries]
        yield f"a request to correct, batch {batch.name}", among(persons)


def sought(key: str, column: str, secret: bytes) -> SoughtPerson:
    """The person with a key.

    Raises:
        InvalidInput: It is not a key.
    """
    if (text := canonical(key)) is None:
        raise InvalidInput("--key", "it is empty", "pass the key of a person, as rows have it")
    return SoughtPerson(text, column, secret)


def _value_of(key: bytes, prefix: bytes) -> tuple[bytes, int] | None:
    """The name of a value and the number of its part that a record of blocks has; None for another one."""
    name, _, number = key.removeprefix(prefix).partition(b"/")
    if not key.startswith(prefix) or not number.isdigit():
        return None
    try:
        return bytes.fromhex(name.decode()), int(number)
    except ValueError:
        return None


def _of_digests(first: Sequence[bytes | None], there: Sequence[int]) -> Iterator[int]:
    """Yields the numbers of the parts to read of a value: the index, and the columns with digests.

    Args:
        first: Its first part, if it is there.
        there: The numbers of its parts, all of which are read where the first one is missing.
    """
    if first[0] is None:
        yield from there
        return
    try:
        index = SlabIndex.from_bytes(first[0])
    except CorruptState:  # a secret
        return
    yield 0
    yield from sorted({place for _, places in _digest_places(index) for place in places})


def _said(what: str | None, otherwise: TraceState) -> tuple[str, TraceState]:
    """Says what a private value is and what is to become of it.

    Args:
        what: What the state keeps it for; None if it does not.
        otherwise: What is to become of it then.
    """
    if what is None:
        return "a value that no commit names", otherwise
    if what.startswith(ERASED):
        return "a value that a commit has erased", "erasing"
    kind, blank, rest = what.partition(" ")
    said, state = _SAID.get(kind + blank, (what, "kept"))
    return said.format(rest.partition(" ")[0]), state
