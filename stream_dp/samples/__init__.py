"""The public data that the package ships: all 336,776 flights out of New York City in 2013.

It comes from the R package nycflights13 (US Bureau of Transportation Statistics), public domain (CC0).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["FLIGHTS_DEFINITION", "Flights", "flights"]

FLIGHTS_DEFINITION: Final[dict[str, Any]] = {
    "version": 1,
    "dataset": "flights",
    "attributes": [
        {
            "name": "carrier",
            "type": "category",
            "values": [
                "9E",
                "AA",
                "AS",
                "B6",
                "DL",
                "EV",
                "F9",
                "FL",
                "HA",
                "MQ",
                "OO",
                "UA",
                "US",
                "VX",
                "WN",
                "YV",
            ],
            "other": False,
        },
        {"name": "origin", "type": "category", "values": ["EWR", "JFK", "LGA"], "other": False},
        {"name": "hour", "type": "number", "edges": [4, 8, 12, 16, 20], "integer": True},
        {
            "name": "arr_delay",
            "type": "number",
            "edges": [-20, -10, 0, 10, 30, 60],
            "integer": True,
            "missing": True,
        },
        {"name": "distance", "type": "number", "edges": [502, 872, 1389], "integer": True},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}

_MISSING = np.iinfo(np.int16).min


@dataclass(frozen=True)
class Flights:
    """Columns of equal length, in the order of scheduled departure.

    Attributes:
        month: 1 to 12, shape (n_rows,).
        day: The day of the month, 1 to 31, shape (n_rows,).
        columns: The columns in the form of a batch. A cancelled flight has no ``arr_delay``.
    """

    month: npt.NDArray[np.uint8]
    day: npt.NDArray[np.uint8]
    columns: dict[str, list[Any]]

    def of_month(self, month: int) -> dict[str, list[Any]]:
        """The columns of one month."""
        first, stop = np.searchsorted(self.month, [month, month + 1])
        return self._between(first, stop)

    def of_day(self, month: int, day: int) -> dict[str, list[Any]]:
        """The columns of one day."""
        first, stop = np.searchsorted(self.month, [month, month + 1])
        among = np.searchsorted(self.day[first:stop], [day, day + 1])
        return self._between(*(first + among))

    def _between(self, first: int, stop: int) -> dict[str, list[Any]]:
        return {name: column[first:stop] for name, column in self.columns.items()}


def flights() -> Flights:
    """Reads the sample."""
    with files(__name__).joinpath("flights.npz").open("rb") as source, np.load(source) as packed:
        columns = {
            "carrier": packed["carriers"][packed["carrier"]].tolist(),
            "origin": packed["origins"][packed["origin"]].tolist(),
            "hour": packed["hour"].tolist(),
            "arr_delay": [
                None if delay == _MISSING else delay for delay in packed["arr_delay"].tolist()
            ],
            "distance": packed["distance"].tolist(),
        }
        return Flights(packed["month"], packed["day"], columns)
