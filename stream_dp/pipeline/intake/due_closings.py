"""Has the broker's clock read where a period is due.

The owner of a data set writes a record, and only the broker's time of that record counts. So all who read the
log close the same periods, whatever their own clocks show.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic, time
from typing import Final

from stream_dp.errors import StreamDPError
from stream_dp.messages import ClockRecord
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.records import Outgoing

_LOOK_S: Final = 1.0
_AGAIN_MS: Final = 10_000
"""Until the next record, where the broker's clock is behind, or a record is still to be read."""

_log = logging.getLogger(__name__)


class DueClosings:
    """The data sets of which the clock is to be read.

    Args:
        datasets: The data sets that this worker owns, by name.
        send: Sends a record.
    """

    def __init__(
        self,
        datasets: Mapping[str, Dataset],
        send: Callable[[Outgoing], Awaitable[Awaitable[object]]],
    ) -> None:
        self._datasets, self._send = datasets, send
        self._asked_ms: dict[str, float] = {}

    async def run(self) -> None:
        """Looks every second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look(1000 * time())

    async def look(self, now_ms: float) -> None:
        """Writes a record for each data set of which a period is due.

        Args:
            now_ms: What this worker's clock shows, in milliseconds since 1970.
        """
        due = {
            name: at
            for name, dataset in self._datasets.items()
            if (at := dataset.phases.due) is not None
            if not (dataset.retired or dataset.quarantined)
        }
        for name, at in due.items():
            asked = self._asked_ms.get(name, -float(_AGAIN_MS))
            if at <= now_ms and 1000 * monotonic() - asked >= _AGAIN_MS:
                self._asked_ms[name] = 1000 * monotonic()
                await self._ask(name)
        self._asked_ms = {name: asked for name, asked in self._asked_ms.items() if name in due}

    async def _ask(self, name: str) -> None:
        value = ClockRecord(dataset=name).model_dump_json().encode()
        try:
            await (await self._send(Outgoing("batches", name, value)))
        except StreamDPError as error:
            _log.warning(
                "a period of data set %s is due, and the clock was not read: %s", name, error
            )
