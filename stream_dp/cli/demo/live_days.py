"""What ``stream-dp demo --daily`` plays by the clock: days of three minutes, and a file that comes late."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import compress
from typing import Any, Final

from stream_dp.calendar_periods import written, zone_of
from stream_dp.cli.demo.demo_view import AskedTable
from stream_dp.client import Client, Query
from stream_dp.errors import RequestTimeout
from stream_dp.messages import Answer, CellsAnswer
from stream_dp.samples import FLIGHTS_DEFINITION, Flights

_MINUTE_S: Final = 60
_DAY_S: Final = 3 * _MINUTE_S
_MARGIN_S: Final = 10  # before a day ends: its flights reach the broker in this time
_PATIENCE_S: Final = 60.0
_MARCH, _APRIL = 3, 4

DEFINITION: Final[dict[str, Any]] = {
    **FLIGHTS_DEFINITION,
    "dataset": "flights_now",
    "phase": {
        "every": "3 minutes",
        "min_rows": 20_000,
        "close": {"after": "1 minute"},
        "late": {"within": "2 minutes"},
    },
    "running": {"every": "1 minute", "within_rows": 200, "tiles": [{"group_by": ["origin"]}]},
}


class LiveDays:
    """Two days by the real clock. They last three minutes, and have all flights of March and of April.

    While the second one is counted, the first one closes, a file about it comes late, and it is complete.

    Attributes:
        lines: What has happened and was not shown yet.
        awaited: What comes next.
        asked: The tables that were asked.
    """

    def __init__(self, client: Client, sample: Flights) -> None:
        self.lines = [
            "By the clock: days of three minutes, each with the flights of a month (* exact, from the file)"
        ]
        self.awaited = ""
        self.asked: list[AskedTable] = []
        self._client, self._sample = client, sample

    def play(self) -> Iterator[None]:
        """Plays the days, and yields again and again while it waits.

        Raises:
            RequestTimeout: The clock has shown a time, and answers do not count what they should.
        """
        self._client.define(DEFINITION, timeout_s=60)
        ends = (int(time.time()) + _MARGIN_S) // _DAY_S * _DAY_S + _DAY_S
        closes, complete = ends + _MINUTE_S, ends + 2 * _MINUTE_S
        day_1 = {"since": _written(ends - _DAY_S), "until": _written(ends)}
        day_2 = {"since": _written(ends), "until": _written(ends + _DAY_S), "running": True}

        yield from self._wait(ends - _DAY_S, "day 1 begins")
        in_time = self._send(_MARCH, lambda hour, origin: not _comes_late(hour, origin))
        self._say(f"{in_time.total():,} flights of day 1 have come; it ends at {_clock(ends)}")

        yield from self._wait(ends, "day 1 ends")
        so_far = self._send(_APRIL, lambda hour, _: hour < 8)
        self._say("day 2 begins; a minute of it stands for eight hours, and has a running total")

        yield from self._wait(closes, "a total of day 2, and the clock closes day 1")
        yield from self._count("day 2 until 8:00", day_2, so_far)
        yield from self._count("day 1, closed", day_1, in_time)
        so_far += self._send(_APRIL, lambda hour, _: 8 <= hour < 16)
        late = self._send(_MARCH, _comes_late, at=day_1["since"])
        self._say(f"a late file comes: {late.total():,} more flights of day 1, from LaGuardia")
        yield from self._count("day 1, file waits", day_1, in_time, waiting=late.total())

        yield from self._wait(complete, "a total of day 2, and day 1 is complete")
        yield from self._count("day 2 until 16:00", day_2, so_far)
        yield from self._count("day 1, complete", day_1, in_time + late)

    # ------------------------------------------------------------ what is sent and asked

    def _send(
        self, month: int, comes: Callable[[int, str], bool], at: str | None = None
    ) -> Counter[str]:
        """Sends those flights of a month that come now. Returns how many left each airport."""
        columns = self._sample.of_month(month)
        come = list(map(comes, columns["hour"], columns["origin"]))
        batch = {name: list(compress(column, come)) for name, column in columns.items()}
        self._client.send("flights_now", columns=batch, at=at, timeout_s=60)
        return Counter(batch["origin"])

    def _count(
        self, what: str, window: Mapping[str, Any], exact: Counter[str], waiting: int | None = None
    ) -> Iterator[None]:
        """Asks until an answer counts what it should, and says it.

        Args:
            what: What is asked.
            window: The day.
            exact: The flights that count, by airport.
            waiting: How many late ones wait.

        Raises:
            RequestTimeout: It does not come to that.
        """
        deadline, n_rows = time.monotonic() + _PATIENCE_S, exact.total()
        while not (
            isinstance(answer := self._ask(window), CellsAnswer)
            and (answer.n, answer.late_waiting) == (n_rows, waiting)
        ):
            if time.monotonic() > deadline:
                raise RequestTimeout(f"{what}: no answer counts {n_rows:,} flights")
            yield
        (origins,) = answer.table.labels
        asked = AskedTable(what, answer, origins, tuple(exact[origin] for origin in origins))
        self.asked.append(asked)
        self._say(f"{what:19}{_cells(asked)}")
        if waiting is not None:
            self._say(
                f"{'its answer says':19}late_waiting {waiting:,}, complete_at {answer.complete_at}"
            )

    def _ask(self, window: Mapping[str, Any]) -> Answer:
        query: Query = Query(group_by=("origin",), window=window)
        return self._client.ask("flights_now", query, timeout_s=_PATIENCE_S)

    # ------------------------------------------------------------ what is shown

    def _wait(self, until_s: int, what: str) -> Iterator[None]:
        while (left := until_s - time.time()) > 0:
            self.awaited = f"in {left:.0f} s: {what}"
            yield
        self.awaited = what

    def _say(self, line: str) -> None:
        self.lines.append(f"{_clock(time.time())}  {line}")


def _comes_late(hour: int, origin: str) -> bool:
    """Whether a flight is in the file that comes late: that of LaGuardia from 16:00 on."""
    return origin == "LGA" and hour >= 16


def _cells(asked: AskedTable) -> str:
    table = asked.answer.table
    cells = zip(asked.labels, table.counts, table.error_bars, asked.exact, strict=True)
    return "  ".join(
        f"{label} {count:,}{'' if bar is None else f' ± {asked.n * bar:,.0f}'} ({exact:,}*)"
        for label, count, bar, exact in cells
    )


def _written(time_s: int) -> str:
    return written(1000 * time_s, zone_of(None))


def _clock(time_s: float) -> str:
    """A time as the clock on the wall shows it."""
    return f"{datetime.fromtimestamp(time_s, UTC).astimezone():%H:%M}"
