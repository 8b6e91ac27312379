"""The way on for a partition of an input topic that was cut: it ends before the offset it was read to.

Offsets are in ids of records and in the cursors of data sets, so none may come twice. Empty records fill the
log until it ends beyond all that was ever read of it, and reading goes on behind them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from stream_dp.errors import InvalidInput
from stream_dp.pipeline.decoding import partition_in
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.marks import Marks
from stream_dp.pipeline.offline import Offline, leave, taken_over
from stream_dp.pipeline.ownership import MOST_IN_HAND
from stream_dp.pipeline.retrying import patiently

__all__ = ["fill_input", "restored"]

# Cursors of data sets are beyond the watermark, by what a worker had in hand.
_BEYOND: Final = 16 * MOST_IN_HAND
_AT_ONCE: Final = 1_000
_FILLING: Final = "filling an input"
_EMPTY: Final = Entry(b"", b"")


async def restored(tools: Offline, role: str, place: str) -> None:
    """Says that a log was put back as it was: reading goes on where it stopped.

    Args:
        tools: The topics.
        role: The role of the topic.
        place: The log, as ``topic:partition``.

    Raises:
        InvalidInput: It was not cut, or not all of it is back.
    """
    journal, partition = tools.journal(), partition_in(place)
    async with taken_over(journal, partition) as owned:
        read = _read(owned.marks, place)
        bounds = partial(tools.inputs[role].bounds, partition, reaches=read)
        _, end = await patiently(bounds, _FILLING)
        if end < read:
            raise InvalidInput(
                place,
                f"it was read to offset {read:,} and ends at {end:,}, so not all of it was put back",
                "put the rest back too, or leave --restored out",
            )
        await leave(journal, owned, cut={place: 0})


async def fill_input(tools: Offline, role: str, place: str) -> int:
    """Fills a log with empty records up to beyond what was read of it; returns where reading goes on.

    Args:
        tools: The topics.
        role: The role of the topic.
        place: The log, as ``topic:partition``.

    Raises:
        InvalidInput: It was not cut.
    """
    journal, partition, log = tools.journal(), partition_in(place), tools.inputs[role]
    async with taken_over(journal, partition) as owned:
        wanted = _read(owned.marks, place) + _BEYOND
        while (end := (await patiently(partial(log.bounds, partition), _FILLING))[1]) < wanted:
            some = [_EMPTY] * min(_AT_ONCE, wanted - end)
            await patiently(partial(log.append, partition, some), _FILLING)
        await leave(journal, owned, watermarks={place: end}, cut={place: 0})
    return end


def _read(marks: Marks, place: str) -> int:
    """The offset up to which a log that was cut was read."""
    if place not in marks.cut:
        raise InvalidInput(
            place,
            "was not cut, as far as a worker has found",
            "pass the topic and the partition that `stream-dp doctor` names",
        )
    return max(marks.cut[place], marks.watermarks.get(place, 0))
