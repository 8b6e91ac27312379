"""What is stored under ids: the owner's index says what there is, Redis or the journal has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from stream_dp.pipeline.journal.chain import Stored
from stream_dp.pipeline.journal.entries import EntryReader
from stream_dp.pipeline.journal.journal import Journal, contents_in
from stream_dp.pipeline.journal.owned_partition import AnswerGone, Owned
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.watch.watchdog import Heartbeat
from stream_dp.state.ids import NOWHERE, IdPlace, Ids
from stream_dp.state.schema import Pair, StateTable

TAKEN = b""
"""What is found under the id of a batch whose rows count, and whose outcome is not kept any more."""

Carried = dict[Pair, tuple[bytes, int]]
"""Contents that are still kept, each with the offset at which it is."""


async def contents_below(
    journal: Journal, owned: Owned, end: int, ids: Mapping[str, Ids], heartbeat: Heartbeat
) -> dict[str, Carried]:
    """Reads what is kept of data sets below an offset, by data set.

    Args:
        journal: The journal.
        owned: The partition of the data sets.
        end: The offset.
        ids: The index of each data set.
        heartbeat: Beats while much is read.

    Raises:
        AnswerGone: Something is not where it was committed.
    """
    kept: dict[str, Carried] = {name: {} for name in ids}
    reader = EntryReader()
    async for piece in journal.read(owned.partition, owned.first, end):
        for found in filter(None, (reader.read(*one) for one in piece)):
            if found.name in ids:
                for pair, value in contents_in(found):
                    if ids[found.name].is_at(pair, found.offset):
                        kept[found.name][pair] = value, found.offset
        heartbeat.beat()
    for name, some in kept.items():
        if len(some) != ids[name].below(end):
            raise AnswerGone(f"{name}: an answer is not where it was committed")
    return kept


@dataclass(frozen=True)
class Contents:
    """Finds what is stored under ids of answers and batches."""

    _journal: Journal
    _following: RedisFollower

    async def find(
        self, dataset: str, table: StateTable, ids: Sequence[str]
    ) -> dict[tuple[str, str], bytes]:
        """Returns what is stored under these ids of a data set, by data set and id.

        Of a batch whose outcome is not kept any more that is ``TAKEN``.

        Raises:
            AnswerGone: The journal does not have what was committed.
            Fenced: It may have, but another worker owns it by now.
        """
        pairs = {(table, name.encode("utf-8", "surrogatepass")): name for name in ids}
        while True:
            known = self._journal.chain(dataset).find(pairs)
            try:
                found = await self._read(dataset, known)
                return {(dataset, pairs[pair]): value for pair, value in found.items()}
            except AnswerGone:
                if self._journal.chain(dataset).find(pairs) == known:
                    await self._journal.confirm(dataset)
                    raise
                # A round has moved something meanwhile, and deleted it where it was.

    async def _read(self, dataset: str, known: Mapping[Pair, Stored]) -> Mapping[Pair, bytes]:
        found: dict[Pair, bytes] = {}
        to_read: dict[Pair, IdPlace] = {}
        for pair, one in known.items():
            if one.value is not None:
                found[pair] = one.value
            elif one.found.offset == NOWHERE:
                found[pair] = TAKEN
            else:
                to_read[pair] = one.found
        if to_read:
            seen = await self._following.answers(dataset, [*to_read])
            right = {pair: value for pair, value in seen.items() if to_read[pair].fits(value)}
            left = {pair: one for pair, one in to_read.items() if pair not in right}
            read = partial(self._journal.contents, dataset, left)
            found |= right | (await patiently(read, "reading an answer") if left else {})
        return found
