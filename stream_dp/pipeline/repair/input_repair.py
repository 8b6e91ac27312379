"""The way on for a partition of an input topic that was cut: it ends before the offset it was read to.

Offsets are in ids of records and in the cursors of data sets, so none may come twice. Empty records fill the
log until it ends beyond all that was ever read of it, and reading goes on behind them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from stream_dp.errors import InvalidInput
from stream_dp.pipeline.intake.decoder import partition_in
from stream_dp.pipeline.intake.ownership import MOST_IN_HAND
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair.offline import Offline, filled, leave, taken_over

# Cursors of data sets are beyond the watermark, by what a worker had in hand.
_BEYOND: Final = 16 * MOST_IN_HAND
_EMPTY: Final = LogEntry(b"", b"")


async def read_again(tools: Offline, role: str, place: str, *, is_restored: bool) -> int:
    """Has a log be read again that was cut; returns where reading goes on.

    Args:
        tools: The topics.
        role: The role of the topic.
        place: The log, as ``topic:partition``.
        is_restored: Whether it was put back as it was: then reading goes on where it stopped. Otherwise it is
            filled with empty records up to beyond what was read of it.

    Raises:
        InvalidInput: It was not cut, or not all of it is back.
    """
    journal, partition, log = tools.journal(), partition_in(place), tools.inputs[role]
    async with taken_over(journal, partition) as owned:
        if place not in owned.marks.cut:
            raise InvalidInput(
                place,
                "was not cut, as far as a worker has found",
                "pass the topic and the partition that `stream-dp doctor` names",
            )
        read = max(owned.marks.cut[place], owned.marks.watermarks.get(place, 0))
        if not is_restored:
            end = await filled(log, partition, _EMPTY, read + _BEYOND)
            await leave(journal, owned, watermarks={place: end}, cut={place: 0})
            return end
        _, end = await patiently(partial(log.bounds, partition, reaches=read), "reading an input")
        if end < read:
            raise InvalidInput(
                place,
                f"it was read to offset {read:,} and ends at {end:,}, so not all of it was put back",
                "put the rest back too, or leave --restored out",
            )
        await leave(journal, owned, cut={place: 0})
        return read
