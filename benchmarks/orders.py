"""The orders tiles: fifty tiles of a dashboard over orders that arrive day by day.

The schema has a country, an amount in 13 bins, one of 301 categories, and a status. Rows are synthetic and
seeded. Each tile is a count or a GROUP BY, about the last day, the last seven days, or all days.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stream_dp.core.universe import Category, Number, Rows, Universe

Cells = tuple[int, ...]

ORDERS = Universe(
    (
        Category("country", tuple(f"c{i}" for i in range(11)), other=True),
        Number("amount", (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500), integer=False),
        Category("category", tuple(f"k{i}" for i in range(300)), other=True),
        Category("status", ("paid", "open", "returned", "cancelled"), other=True),
    )
)

_STATUS = (0.62, 0.18, 0.12, 0.07, 0.01)
_RETURNED = 2
_HIGH_AMOUNTS = tuple(range(7, 13))


@dataclass(frozen=True)
class Tile:
    """One query of the dashboard.

    Attributes:
        where: The cells that count, for each attribute with a condition.
        by: The attributes to group by.
        days: Length of the window. None asks about all days.
    """

    where: dict[str, Cells] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    days: int | None = None

    def window(self, n_days: int) -> range:
        return range(0 if self.days is None else max(0, n_days - self.days), n_days)


def orders_of_day(day: int, n_rows: int) -> Rows:
    """The rows of one day; the same every time."""
    rng = np.random.default_rng([5, day])
    status = rng.choice(len(_STATUS), n_rows, p=_STATUS)
    amount = np.exp(rng.normal(3.6, 0.95, n_rows)) * np.where(status == _RETURNED, 1.3, 1.0)
    country = rng.choice(12, n_rows, p=_falling(12, 1.0))
    category = rng.choice(301, n_rows, p=_falling(301, 0.9))
    edges = np.array([5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500])
    cells = (country, np.searchsorted(edges, amount, side="right"), category, status)
    codes = zip(cells, ORDERS.attributes, strict=True)
    return Rows(tuple(column.astype(attribute.dtype) for column, attribute in codes))


def tiles() -> list[Tile]:
    """All fifty, in the order in which they are asked."""
    made = []
    for by in ("country", "amount", "category", "status"):
        made += _thrice({}, by)
    for first, second in (("country", "status"), ("amount", "status"), ("country", "amount")):
        made += _thrice({}, first, second)
    conditions: tuple[dict[str, Cells], ...] = (
        {"status": (0,)},
        {"amount": _HIGH_AMOUNTS},
        {"country": (1, 2, 3)},
        {"country": (1,), "status": (0,)},
        {"amount": _HIGH_AMOUNTS, "status": (0,)},
        {"category": tuple(range(20))},
    )
    for where in conditions:
        made += _thrice(where)
    made += _thrice({"category": (4,)}, "status")
    made += _thrice({"status": (0,)}, "country")
    made += _thrice({"status": (_RETURNED,)}, "amount")
    made += [Tile({"status": (0,)}, ("category",), days) for days in (7, None)]
    return made


def _thrice(where: dict[str, Cells], *by: str) -> list[Tile]:
    return [Tile(where, by, days) for days in (1, 7, None)]


def _falling(n: int, exponent: float) -> npt.NDArray[np.float64]:
    """Shares that fall as a power of the rank."""
    weights = 1.0 / np.arange(1, n + 1) ** exponent
    return np.asarray(weights / weights.sum())
