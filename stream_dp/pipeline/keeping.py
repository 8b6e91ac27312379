"""What only the store would have, kept on a private topic too: blocks of rows, and secrets of persons.

It is there before the commit that it belongs to. A worker that dies in between leaves something that no
commit names; another one that seals the same phase keeps its own under another name. So a commit always finds
the block that it sealed, whatever a worker that was followed by another one still writes.

Of a data set that is retired, and of phases whose rows are erased, nothing is kept.
"""

from __future__ import annotations

from functools import partial
from secrets import token_hex
from typing import Final

from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.logs import Kept
from stream_dp.pipeline.retrying import patiently

__all__ = ["PERSONS", "WAITED", "WAITING", "Finder", "Keeper", "field_of"]

PERSONS: Final = "persons"
WAITING: Final = "waiting"
WAITED: Final = "waited"
"""The field that lists what was kept of rows that waited, until it is erased."""
_ID_BYTES: Final = 8
_KEEPING: Final = "keeping a block"


def field_of(what: str | int) -> str:
    """The field among a data set's public facts that names what is kept of a phase, or else."""
    return f"kept {what}"


class Keeper:
    """Keeps what belongs to data sets.

    Args:
        kept: The private topic.
        partitions: The number of its partitions.
    """

    def __init__(self, kept: Kept, partitions: int) -> None:
        self._kept = kept
        self._partitions = partitions

    async def keep(self, dataset: str, what: str | int, *values: bytes) -> str:
        """Keeps values together; returns the name under which they are found.

        Args:
            dataset: The name of the data set.
            what: A phase, ``PERSONS`` for their secret, or ``WAITING`` for rows that wait.
            values: The values. Private.
        """
        name = token_hex(_ID_BYTES)
        for number, value in enumerate(values):
            key = _key(dataset, what, name, number)
            await patiently(partial(self._kept.put, key, [value]), _KEEPING)
        return name

    async def drop(self, dataset: str, what: str | int, name: str, count: int = 1) -> None:
        """Erases the first ``count`` of the values that were kept under a name."""
        for number in range(count):
            await patiently(partial(self._kept.drop, _key(dataset, what, name, number)), _KEEPING)

    async def drop_all(self, dataset: str) -> None:
        """Erases all that was ever kept of a data set."""
        partition = partition_of(dataset.encode(), self._partitions)
        keys = [key async for key, _ in self._kept.read(f"{dataset}/".encode(), partition)]
        for key in dict.fromkeys(keys):
            await patiently(partial(self._kept.drop, key), _KEEPING)

    def finder(self, dataset: str) -> Finder:
        """Finds what is kept of a data set, phase after phase, in one reading."""
        return Finder(self._kept, dataset, partition_of(dataset.encode(), self._partitions))


class Finder:
    """Reads what is kept of a data set, once, in the order in which it is asked for."""

    def __init__(self, kept: Kept, dataset: str, partition: int) -> None:
        self._dataset = dataset
        self._entries = aiter(kept.read(f"{dataset}/".encode(), partition))
        self._passed: dict[bytes, bytes] = {}

    async def find(self, what: str | int, name: str, number: int = 0) -> bytes | None:
        """Returns what was kept under a name. None if it is not there."""
        wanted = _key(self._dataset, what, name, number)
        if wanted in self._passed:
            return self._passed.pop(wanted)
        async for key, value in self._entries:
            if key == wanted:
                return value
            self._passed[key] = value
        return None


def _key(dataset: str, what: str | int, name: str, number: int) -> bytes:
    return f"{dataset}/{what}/{name}/{number}".encode()
