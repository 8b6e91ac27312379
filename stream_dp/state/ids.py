"""The index of ids of one data set: where on the journal the answer or outcome under an id is.

The owner of a data set has the index in memory. Of each id it has a hash, and the offset and a digest of the
content: 28 bytes. Answers and outcomes are kept for two generations. The ids of batches that are taken stay
for ever, in 16 bytes each. It takes 2^64 attempts to find two ids with the same hash.

The newest ids of a table are in a dict. Some thousands of them become a run: arrays, sorted by hash. A run is
merged with the one before it as soon as it has half its size, so there are few runs to search. An id that is
put again is changed where it is, so no generation has an id twice.

Hashes and places are byte strings of a fixed length. Arrays of them compare exactly. But numpy drops the zero
bytes at the end of a scalar, so read a slice of length 1 instead.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dp.core.encoding import Format, Reader, fields
from stream_dp.state.schema import BY_ID, Pair, StateTable

NOWHERE: Final = -1
"""The offset of an id that is taken for ever and whose content is not kept."""

_FORMAT = Format("index of ids")  # of each table and generation: a number, hashes, places
_NUMBER: Final = 6  # bytes of an offset, which is big-endian, and bytes of a digest
_END: Final = 2 ** (8 * _NUMBER) - 1  # all offsets are below it
_MOVED: Final = b"\xff" * (2 * _NUMBER)  # the place of an id that has moved to the later generation
_ID: Final[np.dtype[np.bytes_]] = np.dtype("S16")
_PLACE: Final[np.dtype[np.bytes_]] = np.dtype("S12")  # an offset, then a digest
_LEADING: Final = np.dtype([("number", ">u8"), ("rest", "V4")])  # a place by its first 8 bytes
_NEWEST: Final = 4096  # ids that make a run
_NEWEST_BYTES: Final = 200  # of an id in the dict, nearly
_MERGED: Final = 1_000_000  # most ids that ``put`` merges at once, in 0.02 to 0.1 s

_Run = tuple[npt.NDArray[np.bytes_], ...]  # hashes, ascending, each once; then their places, if any


class IdPlace(NamedTuple):
    """Where the content under an id is.

    Attributes:
        offset: The offset of the record that has it, or ``NOWHERE``.
        digest: 6 bytes of BLAKE2b of the content; none if it is ``NOWHERE``.
    """

    offset: int
    digest: bytes

    def fits(self, content: bytes) -> bool:
        """Returns whether this is the content, so that a copy from elsewhere may be used."""
        return self.digest == _digest(content, _NUMBER)


class Ids:
    """An index of ids. Only one thread may use it at a time.

    Every method that takes a table raises ValueError for one that is not in ``BY_ID``.
    """

    def __init__(self) -> None:
        tables = (StateTable.ANSWER, StateTable.OUTCOME)
        self._kept = {table: [_Places(_ID, _PLACE), _Places(_ID, _PLACE)] for table in tables}
        self._taken = _Places(_ID)

    def copied(self) -> Ids:
        """A copy, for another thread. It is not changed by what comes later."""
        return copy.deepcopy(self)

    def find(self, pairs: Iterable[Pair]) -> dict[Pair, IdPlace]:
        """Where the contents under ids are; ids that are not here are left out.

        The outcome of a batch is ``NOWHERE`` if only its id is kept.
        """
        found: dict[Pair, IdPlace] = {}
        for table, of_table in _by_table(pairs).items():
            left = {_hash(*pair): pair for pair in of_table}
            for generation in self._generations(table):
                for hashed, place in generation.get(left).items():
                    at = IdPlace(int.from_bytes(place[:_NUMBER]), place[_NUMBER:])
                    found[left.pop(hashed)] = at
            if table is not StateTable.ANSWER:
                taken = {_hash(StateTable.TAKEN, pair[1]): pair for pair in left.values()}
                found |= {taken[hashed]: IdPlace(NOWHERE, b"") for hashed in self._taken.get(taken)}
        return found

    def is_at(self, pair: Pair, offset: int) -> bool:
        """Returns whether the content of a pair is at an offset, so that it is live there."""
        found = self.find([pair]).get(pair)
        return found is not None and found.offset == offset

    def put(self, contents: Mapping[Pair, bytes], offset: int) -> None:
        """Puts ids, or puts them again. They are kept until the second rotation from now.

        Args:
            contents: The table and the id -> the content. For ``TAKEN``, the id is taken for ever and nothing
                else is used.
            offset: The offset of the record that has them, from 0 to 2^48 - 2.

        Raises:
            ValueError: The offset is out of range.
        """
        for table, pairs in _by_table(contents).items():
            current, *previous = self._generations(table) or [self._taken]
            number = _offset_bytes(offset) if previous else b""
            places = {
                _hash(*pair): number + _digest(contents[pair], _NUMBER) if previous else b""
                for pair in pairs
            }
            fresh = {one: places[one] for one in places.keys() - current.change(places)}
            for generation in previous:
                generation.n_moved += len(generation.change(dict.fromkeys(fresh, _MOVED)))
            current.add(fresh)

    def move(self, pair: Pair, offset: int) -> None:
        """Says that the content of a pair is at another offset. It is kept no longer for that.

        Nothing happens if it is not kept any more.

        Raises:
            ValueError: The offset is out of range.
        """
        hashed, moved = _hash(*pair), _offset_bytes(offset)
        for generation in self._generations(pair[0]):
            for place in generation.get([hashed]).values():
                generation.change({hashed: moved + place[_NUMBER:]})
                return

    def rotate(self) -> None:
        """Drops the answers and outcomes that were put before the last rotation."""
        for generations in self._kept.values():
            generations[:] = [_Places(_ID, _PLACE), generations[0]]

    def below(self, offset: int) -> int:
        """The number of answers and outcomes, of both generations, whose content is below an offset."""
        end = min(max(offset, 0), _END).to_bytes(_NUMBER)
        return sum(places.n_below(end) for both in self._kept.values() for places in both)

    def first(self) -> int | None:
        """The lowest offset of an answer or outcome, of both generations. None if there is none."""
        lowest = min(places.first() for both in self._kept.values() for places in both)
        return None if lowest == _END else lowest

    @property
    def n_bytes(self) -> int:
        """The bytes of memory that it takes, nearly."""
        return sum(places.n_bytes for places in self._all())

    def compact(self) -> None:
        """Merges all runs. Ten million ids take 0.2 to 1.5 s, and nearly three times the memory meanwhile."""
        for places in self._all():
            places.compact()

    def to_bytes(self) -> bytes:
        """The index as bytes, which follow from what it says alone. It is compact afterwards."""
        self.compact()
        return _FORMAT.pack(*(data for places in self._all() for data in places.written()))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Ids:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        ids, reader = cls(), _FORMAT.read(data)
        for places in ids._all():
            places.read(reader)
        reader.end()
        return ids

    def _generations(self, table: StateTable) -> list[_Places]:
        if table not in BY_ID:
            raise ValueError(f"the index of ids has no table {table.name}")
        return self._kept.get(table, [])

    def _all(self) -> list[_Places]:
        return [*self._kept[StateTable.ANSWER], *self._kept[StateTable.OUTCOME], self._taken]


class _Places:
    """The ids of one table and generation: hash -> place. Places have no bytes where there is one column.

    Args:
        *columns: The types of the arrays of a run.

    Attributes:
        n_moved: The number of ids whose place is ``_MOVED``.
    """

    def __init__(self, *columns: np.dtype[np.bytes_]) -> None:
        self.n_moved = 0
        self._columns = columns
        self._newest: dict[bytes, bytes] = {}
        self._runs: list[_Run] = [tuple(np.empty(0, column) for column in columns)]

    @property
    def n_bytes(self) -> int:
        arrays = sum(column.nbytes for run in self._runs for column in run)
        return arrays + _NEWEST_BYTES * len(self._newest)

    def get(self, hashes: Collection[bytes]) -> dict[bytes, bytes]:
        """The places of those ids that are here."""
        found = {one: self._newest[one] for one in hashes if one in self._newest}
        for hashed, (run, at) in self._in_runs(hashes).items():
            found[hashed] = b"".join(column[at : at + 1].tobytes() for column in run[1:])
        return found

    def change(self, places: Mapping[bytes, bytes]) -> set[bytes]:
        """Changes the places of those ids that are here, and returns these."""
        newest, runs = self._newest.keys() & places.keys(), self._in_runs(places)
        self._newest |= {one: places[one] for one in newest}
        for hashed, (run, at) in runs.items():
            for column in run[1:]:
                column[at : at + 1] = places[hashed]
        return newest | runs.keys()

    def add(self, places: Mapping[bytes, bytes]) -> None:
        """Adds ids that are not here."""
        self._newest |= places
        if len(self._newest) >= _NEWEST:
            self.settle()

    def settle(self) -> None:
        """Makes a run of the newest ids, and merges it with runs that are not much larger."""
        if not self._newest:
            return
        content = zip((self._newest, self._newest.values()), self._columns, strict=False)
        self._runs.append(_merged([tuple(np.array(list(each), of) for each, of in content)]))
        self._newest = {}
        while len(self._runs) > 1:
            before, last = (len(run[0]) for run in self._runs[-2:])
            if before > 2 * last or before + last > _MERGED:
                return
            self._runs[-2:] = [_merged(self._runs[-2:])]

    def compact(self) -> None:
        self.settle()
        if len(self._runs) > 1:
            self._runs = [_merged(self._runs)]
        if self.n_moved:
            stays = self._runs[0][1] != _MOVED
            self._runs = [tuple(column[stays] for column in self._runs[0])]
            self.n_moved = 0

    def n_below(self, end: bytes) -> int:
        newest = sum(place < end for place in self._newest.values())
        return newest + sum(int(np.count_nonzero(run[1] < end)) for run in self._runs)

    def first(self) -> int:
        """The lowest offset; ``_END`` if there is none."""
        found = [int.from_bytes(place[:_NUMBER]) for place in self._newest.values()]
        found += [
            int(run[1].view(_LEADING)["number"].min()) >> 16 for run in self._runs if run[1].size
        ]
        return min(found, default=_END)

    def written(self) -> Iterator[bytes | memoryview]:
        (run,) = self._runs
        yield fields("<Q", len(run[0]))
        yield from (column.data for column in run)

    def read(self, reader: Reader) -> None:
        (count,) = reader.fields("<Q")
        run = tuple(reader.array(column, count).copy() for column in self._columns)
        reader.require(np.all(run[0][1:] > run[0][:-1]), "is not in order")
        for places in run[1:]:
            reader.require(np.all(places < _MOVED[:_NUMBER]), "has an offset that it cannot have")
        self._runs = [run]

    def _in_runs(self, hashes: Collection[bytes]) -> dict[bytes, tuple[_Run, int]]:
        """The run, and the number in it, of those ids that are in one."""
        wanted = np.frombuffer(b"".join(hashes), _ID)
        found: dict[bytes, tuple[_Run, int]] = {}
        for run in self._runs:
            places = run[0].searchsorted(wanted).tolist()
            for hashed, at in zip(hashes, places, strict=True):
                if run[0][at : at + 1].tobytes() == hashed:
                    found[hashed] = run, at
        return found


def _by_table(pairs: Iterable[Pair]) -> dict[StateTable, list[Pair]]:
    found: dict[StateTable, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[0], []).append(pair)
    return found


def _merged(runs: list[_Run]) -> _Run:
    # Of ten million ids each column is large, so they are made one at a time.
    columns = list(zip(*runs, strict=True))
    order = np.argsort(np.concatenate(columns[0]), kind="stable")
    return tuple(np.concatenate(column)[order] for column in columns)


def _hash(table: StateTable, key: bytes) -> bytes:
    return _digest(bytes((table,)) + key, _ID.itemsize)


def _digest(content: bytes, n_bytes: int) -> bytes:
    return blake2b(content, digest_size=n_bytes).digest()


def _offset_bytes(offset: int) -> bytes:
    if not 0 <= offset < _END:
        raise ValueError("an offset that no record has")
    return offset.to_bytes(_NUMBER)
