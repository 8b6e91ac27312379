"""The commits of which something was published last, as the output topics say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from stream_dp.errors import CorruptState
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import place_in
from stream_dp.pipeline.journal.entries import EntryReader
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import TopicLog
from stream_dp.state.schema import Commit

COMPARED: Final = ("answers", "events", "ledger", "catalog")
"""The roles of the topics on which what was published is compared with the journal."""

_LAST_SEEN: Final = 256
_LOOKED_BACK: Final = 5_000


@dataclass(eq=False, repr=False)
class PublishedCommits:
    """Compares what was published last with the journal.

    Attributes:
        _log: The journal.
        _outputs: The topics that are compared.
    """

    _log: TopicLog
    _outputs: Sequence[TopicLog]

    async def missing(self, owned: Owned) -> tuple[int, str] | None:
        """A commit that something was published of and that the journal does not have; None for none.

        Returns:
            Where it was, and the name of its data set.

        Raises:
            ServerUnavailable: No broker answers.
        """
        # What a former owner has said that it deletes may be deleted just now.
        deleted = max(owned.first, owned.marks.first)
        start = max(deleted, owned.begin - _LOOKED_BACK, owned.marks.repaired)
        wanted = {one for one in await self._published(owned.partition) if one[0] >= start}
        if not wanted:
            return None
        stored = {
            (at, name): commit for name, chain in owned.chains.items() for at, commit in chain.tail
        }
        older = {at for at, _, _ in wanted if at < owned.begin}
        if older:
            reader = EntryReader()
            async for piece in self._log.read(owned.partition, min(older), owned.begin):
                for found in (reader.read(*one) for one in piece):
                    if found is None or found.offset not in older:
                        continue
                    if found.kind in ("commit", "wrong"):
                        stored[found.offset, found.name] = found.value
        for at, name, trail in sorted(wanted, reverse=True):
            if at >= owned.at or not _is_behind(stored.get((at, name)), trail):
                return at, name
        return None

    async def _published(self, partition: int) -> set[tuple[int, str, bytes]]:
        """The offset, data set and trail of commits that were published last. Two branches may share one."""
        places = set()
        for log in self._outputs:
            alike = log.partitions == self._log.partitions  # then the keys are where ours are
            for number in [partition] if alike else range(log.partitions):
                bounds = partial(log.bounds, number)
                first, end = await patiently(bounds, "reading what was published")
                async for piece in log.read(number, max(first, end - _LAST_SEEN), end):
                    for _, entry in piece:
                        name, place = entry.key.decode(errors="replace"), place_in(entry.headers)
                        if (
                            place is not None
                            and partition_of(name.encode(), self._log.partitions) == partition
                        ):
                            places.add((place.offset, name, place.trail))
        return places


def _is_behind(stored: bytes | None, trail: bytes) -> bool:
    """Whether a commit is there, with that trail behind it. If it does not decode, that data set stops."""
    if stored is None:
        return False
    try:
        return Commit.from_bytes(stored)[1].startswith(trail)
    except CorruptState:
        return True
