"""Private values of data sets on their topic: blocks of rows, rows that wait, and secrets.

A value is there before the commit that names it. A worker that dies in between leaves something that no
commit names. No two values have the same name, so a commit always finds the one that was meant, whatever a
worker that was followed by another one still writes.

Of a data set that is retired, and of phases whose rows are erased, nothing is kept. What no commit names is
erased, too: each time that rows are erased, a worker looks through all that was put on the topic since the
last time. A worker that was followed by another one may still write after that. The next time finds it.

Redis has the values too, to read them faster. A reader compares each with its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

from stream_dp.core.rows.slabs import SlabIndex
from stream_dp.errors import WrongStore
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import KeyedTopic
from stream_dp.pipeline.rows.slab_files import SlabFiles
from stream_dp.state.private_names import Named, is_named, name_of, part_name

LOOKED: Final = "kept looked"
"""The fact that says how far the topic was looked through. In another deployment it means nothing."""
_AT_ONCE: Final = 128
"""The number of values that are put, or erased, at once."""
_KEEPING: Final = "keeping a block"
_READING: Final = "reading a block"
_FILES_AT_ONCE: Final = 16

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Looked(NamedTuple):
    """How far it was looked through what no commit names. Offsets are public: they count records.

    Attributes:
        start: The offset of the topic from which on to look the next time.
        end: The offset at which the topic ended.
        unnamed: The names of files that no commit named.
    """

    start: int = 0
    end: int = 0
    unnamed: frozenset[bytes] = frozenset()

    def to_text(self) -> str:
        return " ".join((str(self.start), str(self.end), *sorted(map(bytes.hex, self.unnamed))))

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> Looked:
        """What the public facts of a data set say; nothing was looked through if they say nothing."""
        start, end, *unnamed = facts.get(LOOKED, "0 0").split() or ("0", "0")
        return cls(int(start), int(end), frozenset(map(bytes.fromhex, unnamed)))


class Keeper:
    """Keeps what belongs to data sets.

    Args:
        kept: The private topic.
        view: Redis, which has the values too. None to read the topic alone.
        files: Where slabs are kept instead. None to keep them on the topic.
    """

    def __init__(
        self,
        kept: KeyedTopic,
        context: Context,
        view: RedisFollower | None = None,
        files: SlabFiles | None = None,
    ) -> None:
        self._kept = kept
        self._view = view
        self._files = files
        # Not the threads of looks: these wait for what is read here.
        self._threads = ThreadPoolExecutor(_FILES_AT_ONCE) if files is not None else None
        self._heartbeat = context.heartbeat
        # Offsets of parts, by key and number: of values that are not where they were.
        self._moved: dict[bytes, Mapping[int, int]] = {}

    async def keep(self, dataset: str, values: Sequence[Sequence[bytes]]) -> list[Named]:
        """Keeps values; returns how a commit names each.

        Args:
            dataset: The name of the data set.
            values: The parts of each value. Private.
        """
        names = [name_of(parts[0]) for parts in values]
        if self._files is not None and all(len(parts) > 1 for parts in values):
            for name, parts in zip(names, values, strict=True):
                await self._with_files(_KEEPING, self._files.put, dataset, name, parts)
            return [Named(name, (), self._files.id) for name in names]
        offsets: list[tuple[int, ...]] = []
        keyed = [(_key(dataset, name), parts) for name, parts in zip(names, values, strict=True)]
        for at in range(0, len(keyed), _AT_ONCE):
            put = partial(self._kept.put, keyed[at : at + _AT_ONCE], beat=self._heartbeat.beat)
            offsets += await patiently(put, _KEEPING)
        return [*map(Named, names, offsets)]

    async def check_store(self, dataset: str, values: Iterable[Named]) -> None:
        """Checks that values are where this worker looks for them.

        Raises:
            WrongStore: They are in the files of another store.
        """
        for store in {named.store for named in values if named.store}:
            if self._files is None or not await self._with_files(_READING, self._files.has, store):
                raise WrongStore(dataset)

    async def _with_files(self, again: str, step: Callable[..., _T], *arguments: object) -> _T:
        """Does something with files in a thread, until their store answers."""
        loop = asyncio.get_running_loop()
        found = await patiently(
            lambda: loop.run_in_executor(self._threads, partial(step, *arguments)), again
        )
        self._heartbeat.beat()
        return found

    async def find(self, dataset: str, named: Named, *, viewed: bool = True) -> bytes | None:
        """Returns the first part of a value. None if it is on the topic no more. Private.

        Args:
            dataset: The name of the data set.
            named: The value.
            viewed: Whether Redis may have it.
        """
        is_it = partial(is_named, named.name)
        return await self._part(dataset, named, 0, is_it, viewed=viewed)

    async def whole(self, dataset: str, named: Named, *, viewed: bool = True) -> list[bytes] | None:
        """Returns all parts of a value, see ``find``. None if one is on the topic no more. Private."""
        first = await self.find(dataset, named, viewed=viewed)
        if first is None:
            return None
        found = [first]
        if named.store or len(named.offsets) > 1:  # else it is a secret
            index = SlabIndex.from_bytes(first)
            for number in range(1, 1 + len(index.names)):
                is_it = partial(index.has, number)
                part = await self._part(dataset, named, number, is_it, viewed=viewed)
                if part is None:
                    return None
                found.append(part)
        return found

    async def _part(
        self,
        dataset: str,
        named: Named,
        number: int,
        is_it: Callable[[bytes], bool],
        *,
        viewed: bool,
    ) -> bytes | None:
        """One part, from the topic if Redis has another one. None if it is on the topic no more."""
        for on_topic in (False, True):
            (part,) = await self.parts(dataset, [(named, number)], on_topic=on_topic, viewed=viewed)
            if part is None or is_it(part):
                return part
        return None

    async def parts(
        self,
        dataset: str,
        places: Sequence[tuple[Named, int]],
        *,
        on_topic: bool = False,
        viewed: bool = True,
    ) -> list[bytes | None]:
        """Returns parts of values, in order; None for each that is on the topic no more. Private.

        Nobody has compared them with the index of their value.

        Args:
            dataset: The name of the data set.
            places: The value and the number of each part.
            on_topic: Whether to read the topic alone, since what Redis has is not what was meant.
            viewed: Whether Redis may have them.
        """
        found: list[bytes | None] = [None] * len(places)
        kept = [at for at, (named, _) in enumerate(places) if not named.store]
        view = self._view if viewed else None
        if view is not None and not on_topic and kept:
            names = [part_name(places[at][0].name, places[at][1]) for at in kept]
            for at, part in zip(kept, await view.kept(dataset, names), strict=True):
                found[at] = part
        searched = False
        for at in kept:
            named, number = places[at]
            if found[at] is None:
                part = await self._on_topic(dataset, named, number)
                if part is None and not searched:
                    searched = True
                    await self._search(dataset)
                    part = await self._on_topic(dataset, named, number)
                if part is not None and view is not None:
                    view.keep(dataset, part_name(named.name, number), part)
                found[at] = part
        for at, part in (await self._in_files(dataset, places)).items():
            found[at] = part
        return found

    async def _in_files(
        self, dataset: str, places: Sequence[tuple[Named, int]]
    ) -> dict[int, bytes | None]:
        """Those parts that are in files, by the number of the place."""
        of_file: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for at, (named, number) in enumerate(places):
            if named.store:
                of_file[named.name].append((number, at))
        if not of_file:
            return {}
        if self._files is None:
            raise WrongStore(dataset)
        asked = {name: sorted(numbers) for name, numbers in of_file.items()}
        read = await asyncio.gather(
            *(
                self._with_files(
                    _READING, self._files.parts, dataset, name, [number for number, _ in numbers]
                )
                for name, numbers in asked.items()
            )
        )
        return {
            at: part
            for numbers, parts in zip(asked.values(), read, strict=True)
            for (_, at), part in zip(numbers, parts, strict=True)
        }

    async def _on_topic(self, dataset: str, named: Named, number: int) -> bytes | None:
        key = _key(dataset, named.name)
        offset = self._moved.get(key, dict(enumerate(named.offsets))).get(number)
        if offset is None:
            return None
        part = await patiently(partial(self._kept.fetch, key, number, offset), _READING)
        self._heartbeat.beat()
        return part

    async def _search(self, dataset: str) -> None:
        """Finds where all is: a topic that was restored from a copy has the same keys at other offsets."""
        _log.warning(
            "data set %s: a private value is not where it was on the topic of blocks, so all of its "
            "partition is read",
            dataset,
        )
        parts = partial(self._kept.parts, dataset, beat=self._heartbeat.beat)
        found, _ = await patiently(parts, _READING)
        self._moved |= found

    async def let_clean(self, dataset: str) -> None:
        """Lets the broker clean the topic of what was erased, also where nothing else is put on it."""
        await patiently(partial(self._kept.mark, dataset), _KEEPING)

    async def drop(self, dataset: str, gone: Iterable[Named]) -> None:
        """Erases values."""
        gone = list(gone)
        await self._drop({_key(dataset, one.name): len(one.offsets) for one in gone if one.offsets})
        await self._drop_files(dataset, [one.name for one in gone if one.store])

    async def _drop_files(self, dataset: str, names: Iterable[bytes]) -> None:
        for name in names:
            if self._files is None:
                raise WrongStore(dataset)
            await self._with_files(_KEEPING, self._files.drop, dataset, name)

    async def _drop(self, keys: Mapping[bytes, int]) -> None:
        """Erases values. With each key comes the number of parts that its value has at most."""
        listed = list(keys.items())
        for at in range(0, len(listed), _AT_ONCE):
            some = dict(listed[at : at + _AT_ONCE])
            await patiently(partial(self._kept.drop, some), _KEEPING)
            self._heartbeat.beat()

    async def drop_unnamed(
        self, dataset: str, named: Collection[bytes], looked: Looked, *, at_once: bool = False
    ) -> Looked:
        """Erases what no commit names.

        The caller may have been followed by another worker, and what is not named may belong to its next
        commit. So the next call erases it, and only what was there when this one looked: a commit with what
        this one returns follows, which the journal has by then. So no other worker had come before it, and
        who wrote this died, or never commits again.

        Args:
            dataset: The name of the data set.
            named: The names in its state.
            looked: What the last call has returned, if the journal has a commit that notes it.
            at_once: Whether to erase it in this call: of a data set that is retired nothing is named again.

        Returns:
            How far the topic was looked through.
        """
        find = partial(self._kept.parts, dataset, beat=self._heartbeat.beat)
        found, end = await patiently(partial(find, looked.start), _READING)
        if end < looked.end:  # another topic, such as an older copy
            looked = looked._replace(start=0, end=0)
            found, end = await patiently(find, _READING)
        left, over, stays = [end], dict[bytes, int](), {_key(dataset, name) for name in named}
        for key, parts in found.items():
            if key in stays:
                continue
            if at_once or min(parts.values()) < looked.end:
                over[key] = max(parts) + 1
            else:
                left.append(min(parts.values()))
        await self._drop(over)
        unnamed: set[bytes] = set()
        if self._files is not None:
            unnamed = await self._with_files(_READING, self._files.names, dataset) - set(named)
            gone = unnamed if at_once else unnamed & looked.unnamed
            await self._drop_files(dataset, gone)
            unnamed -= gone
        return Looked(min(left), end, frozenset(unnamed))


def _key(dataset: str, name: bytes) -> bytes:
    return f"{dataset}/{name.hex()}".encode()
