"""What only the store would have, kept on a private topic too: blocks of rows, and secrets of persons.

It is there before the commit that it belongs to. A worker that dies in between leaves something that no
commit names; another one that seals the same phase keeps its own under another name. So a commit always finds
the block that it sealed, whatever a worker that was followed by another one still writes.

Of a data set that is retired, and of phases whose rows are erased, nothing is kept. What no commit names is
erased, too. Each time that rows are erased, a worker looks through all that was put on the topic since the
last time. A worker that was followed by another one may still write after that. The next time finds it; after
a retirement, a second one does.

Where blocks are to be on the topic alone, the store has the place of a block there instead of the block. A
place says where to look; whose block is found there, its key says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import Final, Literal, NamedTuple

from stream_dp.errors import CorruptState, RowsGone
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.logs import Kept
from stream_dp.pipeline.retrying import patiently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.kept import MOST_PARTS, Place

__all__ = [
    "LOOKED",
    "PERSONS",
    "WAITED",
    "WAITING",
    "Finder",
    "Keeper",
    "Looked",
    "field_of",
    "named_in",
]

PERSONS: Final = "persons"
WAITING: Final = "waiting"
WAITED: Final = "waited"
"""The field that lists what was kept of rows that waited, until it is erased."""
LOOKED: Final = "kept looked"
"""The field that says how far the topic was looked through. In another deployment it means nothing."""
_ID_BYTES: Final = 8
_AT_ONCE: Final = 128
"""The number of values that are put, or erased, at once."""
_KEEPING: Final = "keeping a block"
_READING: Final = "reading a block"

_log = logging.getLogger(__name__)


def field_of(what: str | int) -> str:
    """The field among a data set's public facts that names what is kept of a phase, or else."""
    return f"kept {what}"


def named_in(meta: Mapping[str, str]) -> set[str]:
    """What is named among a data set's public facts: a phase, or else, with its name after a slash."""
    prefix = field_of("")
    named = {
        f"{field.removeprefix(prefix)}/{name}"
        for field, name in meta.items()
        if field.startswith(prefix)
    }
    waiting = [meta.get(field_of(WAITING), ""), *json.loads(meta.get(WAITED) or "[]")]
    return named | {f"{WAITING}/{kept.partition(' ')[0]}" for kept in waiting}


class Looked(NamedTuple):
    """How far the topic was looked through for what no commit names. Offsets are public: they count records.

    Attributes:
        start: The offset from which on to look the next time.
        end: The offset at which the topic ended.
    """

    start: int = 0
    end: int = 0

    def to_text(self) -> str:
        return f"{self.start} {self.end}"

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Looked:
        """What the public facts of a data set say; nothing was looked through if they say nothing."""
        return cls(*map(int, meta.get(LOOKED, "").split()))


class Keeper:
    """Keeps what belongs to data sets.

    Args:
        kept: The private topic.
        partitions: The number of its partitions.
        blocks: Whether the store has the blocks too, or only their places on the topic.
        heartbeat: Beats while much is kept, read or erased.
    """

    def __init__(
        self,
        kept: Kept,
        partitions: int,
        *,
        blocks: Literal["store", "topic"] = "store",
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._kept = kept
        self._partitions = partitions
        self._blocks = blocks
        self._heartbeat = heartbeat or Heartbeat()
        self._found: dict[
            str, dict[bytes, Place]
        ] = {}  # where records are that are not in their places
        self._parts: dict[str, int] = {}  # the most parts that rows have that wait, by their name

    async def keep(self, dataset: str, what: str | int, *values: bytes) -> str:
        """Keeps values together; returns the name under which they are found.

        Args:
            dataset: The name of the data set.
            what: A phase, ``PERSONS`` for their secret, or ``WAITING`` for rows that wait.
            values: The values. Private.
        """
        name = token_hex(_ID_BYTES)
        await self._keep(dataset, what, name, values)
        return name

    async def keep_block(self, dataset: str, phase: int, *values: bytes) -> tuple[str, bytes]:
        """Keeps a block, and what else belongs to its phase.

        Returns:
            The name under which it is found, and what the store is to have of it. Private.
        """
        name = token_hex(_ID_BYTES)
        places = await self._keep(dataset, phase, name, values)
        return name, self.in_store(values[0], places[0])

    async def keep_again(self, dataset: str, phase: int, name: str | None, block: bytes) -> bytes:
        """Keeps a block that was sealed once more; returns what the store is to have of it. Private.

        Args:
            dataset: The name of the data set.
            phase: The phase.
            name: The name under which it is to be found. None if it was never kept: then the store has it.
            block: The block.
        """
        if name is None or self._blocks == "store":
            return block
        (place,) = await self._keep(dataset, phase, name, [block])
        return self.in_store(block, place)

    def in_store(self, block: bytes, place: Place) -> bytes:
        """What the store is to have of a block that is kept at a place. Private."""
        return block if self._blocks == "store" else place.to_bytes()

    async def _keep(
        self, dataset: str, what: str | int, name: str, values: Sequence[bytes]
    ) -> list[Place]:
        places: list[Place] = []
        keyed = [(_key(dataset, what, name, number), value) for number, value in enumerate(values)]
        for at in range(0, len(keyed), _AT_ONCE):
            some = keyed[at : at + _AT_ONCE]
            put = partial(self._kept.put, some, beat=self._heartbeat.beat)
            places += await patiently(put, _KEEPING)
        if what == WAITING:  # there may be very many of them, and they are erased before long
            self._parts[name] = max((len(place.offsets) for place in places), default=0)
        return places

    async def block(self, dataset: str, phase: int, name: str | None, stored: bytes) -> bytes:
        """Returns the block of a phase. Private.

        Args:
            dataset: The name of the data set.
            phase: The phase.
            name: The name under which it was kept.
            stored: What the store has of it: the block, or its place.

        Raises:
            RowsGone: It is not on the topic any more.
            CorruptState: What the store has is the place of no block of this phase, or does not decode.
        """
        if not Place.is_in(stored):
            return stored
        if name is None:
            raise CorruptState(f"{dataset}: phase {phase} has a place on a topic and no name there")
        place, key = Place.from_bytes(stored), _key(dataset, phase, name, 0)
        place = self._found.get(dataset, {}).get(key, place)
        block = await self.fetch(key, place)
        if block is None:
            # A topic that was restored from a copy has the same keys at other offsets.
            _log.warning(
                "data set %s: the rows of phase %d are not where they were on the topic of blocks, so all of "
                "its partition is read",
                *(dataset, phase),
            )
            self._found[dataset], block = await self.look_again([dataset], key)
        if block is None:
            raise RowsGone(dataset, phase)
        if len(block) != Place.from_bytes(stored).n_bytes:
            raise CorruptState(f"{dataset}: the block of phase {phase} has another size by now")
        return block

    async def fetch(self, key: bytes, place: Place) -> bytes | None:
        """Returns the value that is kept under a key, from its place. None if it is not there. Private."""
        value = await patiently(partial(self._kept.fetch, key, place), _READING)
        self._heartbeat.beat()
        return value

    async def places(self, datasets: Collection[str]) -> dict[bytes, Place]:
        """Finds where all is that is kept of some data sets of one partition, in one reading of it."""
        (partition,) = {partition_of(name.encode(), self._partitions) for name in datasets}
        find = partial(self._kept.places, datasets, partition, beat=self._heartbeat.beat)
        return await patiently(find, _READING)

    async def look_again(
        self, datasets: Collection[str], key: bytes
    ) -> tuple[dict[bytes, Place], bytes | None]:
        """Finds the places again, where a value is not in its own; returns them and the value. Private."""
        places = await self.places(datasets)
        place = places.get(key)
        return places, None if place is None else await self.fetch(key, place)

    async def drop(self, dataset: str, what: str | int, name: str, count: int = 1) -> None:
        """Erases the first ``count`` of the values that were kept under a name."""
        # A name says nothing of sizes, and to look would be to read all of the partition. So of what another
        # worker has kept, as many parts are erased as a value can have at most.
        parts = self._parts.pop(name, MOST_PARTS)
        await self._drop({_key(dataset, what, name, number): parts for number in range(count)})

    async def _drop(self, keys: Mapping[bytes, int]) -> None:
        """Erases values. With each key comes the number of parts that its value has at most."""
        listed = list(keys.items())
        for at in range(0, len(listed), _AT_ONCE):
            some = dict(listed[at : at + _AT_ONCE])
            await patiently(partial(self._kept.drop, some), _KEEPING)
            self._heartbeat.beat()

    async def drop_all(self, dataset: str) -> None:
        """Erases all that was ever kept of a data set, and all parts of what was not kept completely."""
        partition = partition_of(dataset.encode(), self._partitions)
        beat = self._heartbeat.beat
        find = partial(self._kept.keys, f"{dataset}/".encode(), partition, beat=beat)
        found, _ = await patiently(find, _READING)
        await self._drop({key: traces.parts for key, traces in found.items()})

    async def drop_unnamed(
        self, dataset: str, named: Collection[str], erased: int, looked: Looked
    ) -> Looked:
        """Erases what no commit names, and what is left of rows that are erased.

        The caller may have been followed by another worker, and what is not named may belong to its next
        commit, unless it is of a phase whose rows are erased. So the next call erases it, and only what was
        there when this one looked: a commit with what this one returns follows, which the journal has by
        then. So no other worker had come before it, and who wrote this died, or never commits again.

        Args:
            dataset: The name of the data set.
            named: What its commits name, see ``named_in``. The journal has all of them.
            erased: The number of first phases whose rows are erased. The journal has that, too.
            looked: What the last call has returned, if the journal has a commit that notes it.

        Returns:
            How far the topic was looked through.
        """
        partition, prefix = partition_of(dataset.encode(), self._partitions), f"{dataset}/"
        find = partial(self._kept.keys, prefix.encode(), partition, beat=self._heartbeat.beat)
        found, end = await patiently(partial(find, looked.start), _READING)
        if end < looked.end:  # another topic, such as an older copy
            looked = Looked()
            found, end = await patiently(find, _READING)
        left, over = [end], dict[bytes, int]()
        for key, (offset, parts) in found.items():
            what, _, rest = key.decode(errors="replace").removeprefix(prefix).partition("/")
            name, _, number = rest.partition("/")
            is_erased = what.isdecimal() and int(what) <= erased
            if f"{what}/{name}" in named:
                # What persons have used for life follows the block, and is needed for ever.
                if is_erased and number == "0":
                    over[key] = MOST_PARTS  # it may have been there before, with more parts
            elif is_erased or offset < looked.end:
                over[key] = parts
            else:
                left.append(offset)
        await self._drop(over)
        return Looked(min(left), end)

    def finder(self, datasets: Collection[str]) -> Finder:
        """Finds what is kept of some data sets of one partition, in one reading of it."""
        return Finder(self, datasets)


class Finder:
    """Finds what is kept of some data sets of one partition, while they are healed.

    All of the partition is read when the first value is asked for, and only places are noted: the values may
    be nearly all of large tables. Other workers write to the topic, so a finder is not for longer than that.
    """

    def __init__(self, keeper: Keeper, datasets: Collection[str]) -> None:
        self._keeper = keeper
        self._datasets = datasets
        self._places: dict[bytes, Place] | None = None

    async def find(self, dataset: str, what: str | int, name: str, number: int = 0) -> bytes | None:
        """Returns what was kept under a name. None if it is not there."""
        found = await self._find(_key(dataset, what, name, number))
        return None if found is None else found[0]

    async def find_block(self, dataset: str, phase: int, name: str) -> bytes | None:
        """Returns what the store is to have of the block of a phase. None if it is not there.

        Repairs of earlier releases have kept nothing under the name of a block whose rows were lost.
        """
        found = await self._find(_key(dataset, phase, name, 0))
        if found is None or not found[0]:
            return None
        return self._keeper.in_store(*found)

    async def keep_again(self, dataset: str, phase: int, name: str | None, block: bytes) -> bytes:
        """Keeps a block that was sealed once more, see ``Keeper.keep_again``. It is found from then on."""
        stored = await self._keeper.keep_again(dataset, phase, name, block)
        if name is not None and self._places is not None and Place.is_in(stored):
            self._places[_key(dataset, phase, name, 0)] = Place.from_bytes(stored)
        return stored

    async def _find(self, key: bytes) -> tuple[bytes, Place] | None:
        if self._places is None:
            self._places = await self._keeper.places(self._datasets)
        try:
            place = self._places[key]
        except KeyError:
            return None
        value = await self._keeper.fetch(key, place)
        if value is None:
            # Another worker has put it elsewhere meanwhile, or has erased it, and the topic was compacted.
            self._places, value = await self._keeper.look_again(self._datasets, key)
            place = self._places.get(key, place)
        return None if value is None else (value, place)


def _key(dataset: str, what: str | int, name: str, number: int) -> bytes:
    return f"{dataset}/{what}/{name}/{number}".encode()
