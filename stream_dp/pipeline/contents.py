"""What is stored under ids: the owner's index says what there is, Redis or the journal has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from stream_dp.errors import CorruptState
from stream_dp.pipeline.chain import Stored
from stream_dp.pipeline.following import Following
from stream_dp.pipeline.journal import Journal
from stream_dp.pipeline.retrying import patiently
from stream_dp.state.ids import NOWHERE, Found
from stream_dp.state.schema import Pair, Table

TAKEN = b""
"""What is found under the id of a batch whose rows count, and whose outcome is not kept any more."""


class Contents:
    """Finds what is stored under ids of answers and batches."""

    def __init__(self, journal: Journal, following: Following) -> None:
        self._journal = journal
        self._following = following

    async def find(
        self, table: Table, ids: Mapping[str, Sequence[str]]
    ) -> dict[tuple[str, str], bytes]:
        """Returns what is stored under these ids of each data set, by data set and id.

        Of a batch whose outcome is not kept any more that is ``TAKEN``.

        Raises:
            CorruptState: The journal does not have what was committed.
            Fenced: It may have, but another worker owns it by now.
        """
        found: dict[tuple[str, str], bytes] = {}
        for dataset, names in ids.items():
            pairs = {(table, name.encode("utf-8", "surrogatepass")): name for name in names}
            for pair, value in (await self._of(dataset, [*pairs])).items():
                found[dataset, pairs[pair]] = value
        return found

    async def _of(self, dataset: str, pairs: Sequence[Pair]) -> Mapping[Pair, bytes]:
        while True:
            known = self._journal.chain(dataset).find(pairs)
            try:
                return await self._read(dataset, known)
            except CorruptState:
                if self._journal.chain(dataset).find(pairs) == known:
                    await self._journal.confirm(dataset)
                    raise
                # A round has moved something meanwhile, and deleted it where it was.

    async def _read(self, dataset: str, known: Mapping[Pair, Stored]) -> Mapping[Pair, bytes]:
        found: dict[Pair, bytes] = {}
        to_read: dict[Pair, Found] = {}
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
