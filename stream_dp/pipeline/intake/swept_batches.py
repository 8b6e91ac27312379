"""Deletes batches from their topic once a sweep has gone through the rows that they brought.

What still waits is kept apart from its batch first. A record is deleted when it is done with, which a mark on
the journal says, and when no data set of its partition needs it any more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from stream_dp.errors import CorruptState, ServerUnavailable
from stream_dp.messages.topics import COMPACTED_MS
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.holdings import Holdings
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.kafka.topic_log import InputReader
from stream_dp.pipeline.rows.waiting.waiting_rows import Waits
from stream_dp.state.schema import StateTable

_CLEAN_S: Final = COMPACTED_MS / 4_000

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class SweptBatches:
    """The batches of the partitions that a worker owns."""

    _journal: Journal
    _releaser: Releaser
    _holdings: Holdings
    _rows: InputReader
    _cleaned_at: dict[str, float] = field(default_factory=dict, init=False)

    async def let_clean(self, dataset: Dataset) -> None:
        """Lets the broker clean the private topic of what sweeps have erased, again and again."""
        if monotonic() - self._cleaned_at.get(dataset.name, -math.inf) >= _CLEAN_S:
            self._cleaned_at[dataset.name] = monotonic()
            await dataset.let_clean()

    def below(self, partition: int) -> int:
        """The offset below which batches of a partition are to be deleted; 0 for none.

        Until they are, its data sets are to keep apart what waits.
        """
        return max((one.phases.sweeps.batches_below for one in self._of(partition)), default=0)

    def _of(self, partition: int) -> list[Dataset]:
        datasets = self._holdings.datasets.items()
        return [one for name, one in datasets if self._journal.partition_of(name) == partition]

    async def delete(self) -> None:
        """Deletes what is done with, where it is due."""
        for partition, owned in self._journal.owned().items():
            below = self.below(partition)
            if not below:
                continue
            await self._releaser.settled()
            if not await self._releaser.mark(owned):
                continue
            place = f"{self._rows.batches}:{partition}"
            try:
                needed = [one.offset for one in _waits(owned) if one.topic_partition == place]
                there = min([below, owned.marks.watermarks.get(place, 0), *needed])
                await self._rows.forget(place, there)
            except (CorruptState, ServerUnavailable) as error:
                _log.warning("batches that a sweep has gone through stay on %s: %s", place, error)
                continue
            if there < below:
                _log.warning(
                    "%s keeps batches that a sweep has gone through: rows in them wait", place
                )
                continue
            for dataset in self._of(partition):
                if dataset.phases.sweeps.batches_below:
                    dataset.phases.sweeps.batches_deleted()
                    self._releaser.gathered.append(dataset.draft.collect())


def _waits(owned: Owned) -> Iterator[Waits]:
    """The batches that are to be read again for some data set of a partition.

    Raises:
        CorruptState: Nobody knows what one of them needs. It is served no more, and may be repaired.
    """
    for chain in owned.chains.values():
        for stored in chain.build().table(StateTable.WAITING).values():
            yield Waits.from_bytes(stored)
