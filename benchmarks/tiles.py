"""Orders: fifty tiles after each of fourteen days, through the calibrated engine and with fresh noise.

python benchmarks/tiles.py [--rows 20000 5000] [--error 0.02] [--days 14] [--seed 1]

The rows are made here: countries and categories whose shares fall like 1/k, log-normal amounts, and five
states. The tiles are what a dashboard shows: every column, three pairs, filters, and tables under a filter,
for the last day, the last seven days and all days. Fresh noise pays for each new tile, a table twice a count,
and repeats are free.

After that, three hundred ranges of an amount in 301 bins are asked about one day: about a number, whose bins
have an order, and about a category of the same 301 values, which has none.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from time import perf_counter

import numpy as np
import numpy.typing as npt
from rich.table import Table
from workloads import FAILURE_PROBABILITY, PRIVACY, console, verdict

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import Answered, Path, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource, PooledNoise
from stream_dp.core.residual.base_release.base_plan import BasePlan
from stream_dp.core.residual.base_release.expected_queries import Expected, PlannedTile
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.plan.planner import Terms
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.trial import Driven

ORDERS = Universe(
    (
        Category("country", tuple(f"c{i}" for i in range(11)), other=True),
        Number("amount", (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500), integer=False),
        Category("category", tuple(f"k{i}" for i in range(300)), other=True),
        Category("status", ("paid", "open", "returned", "cancelled"), other=True),
    )
)
COUNTRY, AMOUNT, CATEGORY, STATUS = range(4)

LIMITS: Mapping[tuple[int, float], tuple[float, float]] = {
    (20_000, 0.02): (0.05, 0.025),
    (5_000, 0.02): (0.47, 0.37),
}
"""The most that the fullest line may have spent, by rows and error: with generic and with declared tiles."""


def orders(rng: np.random.Generator, n: int) -> Rows:
    """Rows of one day."""

    def falling(size: int, power: float) -> np.ndarray:
        shares = 1.0 / np.arange(1, size + 1) ** power
        return rng.choice(size, n, p=shares / shares.sum())

    status = rng.choice(5, n, p=[0.62, 0.18, 0.12, 0.07, 0.01])
    amount = np.exp(rng.normal(3.6, 0.95, n)) * np.where(status == 2, 1.3, 1.0)
    edges = ORDERS.attributes[AMOUNT]
    assert isinstance(edges, Number)
    codes = (
        falling(12, 1.0),
        np.searchsorted(edges.edges, amount, side="right"),
        falling(301, 0.9),
        status,
    )
    return Rows(
        tuple(
            column.astype(np.uint8 if size <= 256 else np.uint16)
            for column, size in zip(codes, ORDERS.shape, strict=True)
        ),
        None,
    )


def _where(**cells: Sequence[int]) -> Predicate:
    return Predicate.conjunction(
        {
            ORDERS.names.index(name): np.isin(
                np.arange(ORDERS.shape[ORDERS.names.index(name)]), chosen
            )
            for name, chosen in cells.items()
        }
    )


def tiles() -> list[PlannedTile]:
    """The fifty tiles of the dashboard."""
    large = range(7, 13)
    shown: list[tuple[Predicate, tuple[int, ...]]] = [
        *((EVERYTHING, (a,)) for a in range(4)),
        *((EVERYTHING, pair) for pair in ((COUNTRY, STATUS), (AMOUNT, STATUS), (COUNTRY, AMOUNT))),
        (_where(status=[0]), ()),
        (_where(amount=large), ()),
        (_where(country=[1, 2, 3]), ()),
        (_where(country=[1], status=[0]), ()),
        (_where(amount=large, status=[0]), ()),
        (_where(category=range(20)), ()),
        (_where(category=[4]), (STATUS,)),
        (_where(status=[0]), (COUNTRY,)),
        (_where(status=[2]), (AMOUNT,)),
    ]
    every = [
        PlannedTile(LinearQuery(predicate, range(1), by), phases)
        for predicate, by in shown
        for phases in (1, 7, None)
    ]
    by_category = LinearQuery(_where(status=[0]), range(1), (CATEGORY,))
    return [*every, PlannedTile(by_category, 7), PlannedTile(by_category, None)]


BINS = 301
N_RANGES = 300


@dataclass
class Result:
    """What one way of answering made of all tiles."""

    name: str
    base: float
    worst: float
    certified: float
    looks: int
    seconds: float


def through_engine(
    name: str,
    days: Sequence[Rows],
    accuracy: Accuracy,
    noise: NoiseSource,
    *,
    declared: bool = False,
    base_share: float | None = None,
) -> Result:
    """Opens a phase a day and asks all tiles after each."""
    shown = tiles()
    mechanism = Calibrated(
        ORDERS,
        PRIVACY,
        accuracy,
        CalibratedSettings(base_share=base_share, tiles=tuple(shown) if declared else ()),
    )
    driven = Driven(mechanism, noise)
    data, promised, asked = Blocks(ORDERS), 0, 0
    started = perf_counter()
    for day, rows in enumerate(days, start=1):
        data.append(Block.seal(ORDERS, rows))
        driven.open_phase(rows.n_rows, data)
        for tile in shown:
            window = range(max(0, day - (tile.phases or day)), day)
            query = LinearQuery(tile.query.predicate, window, tile.query.group_by)
            outcome = driven.ask(query, data)
            asked += 1
            if isinstance(outcome, Answered | TableAnswered):
                promised += outcome.path is not Path.UNVERIFIED
    seconds = perf_counter() - started
    base = mechanism.openings.release(days[0].n_rows).units / UNITS
    return Result(name, base, driven.spent_share(), promised / asked, driven.looks, seconds)


def fresh_noise(days: Sequence[Rows], accuracy: Accuracy) -> Result:
    """What one fresh look for each new tile and window costs; every look is as noisy as it may be."""
    z = Terms.of(accuracy).z
    rho = float(Budget.of(PRIVACY).rho)
    spent, looks, within, asked = np.zeros(len(days)), 0, 0, 0
    done: set[tuple[bytes, int, int]] = set()
    for day in range(1, len(days) + 1):
        for tile in tiles():
            start = max(0, day - (tile.phases or day))
            asked += 1
            if (tile.query.key, start, day) in done:
                within += 1
                continue
            done.add((tile.query.key, start, day))
            n_rows = sum(rows.n_rows for rows in days[start:day])
            sigma = accuracy.error * n_rows / z  # one draw for all rows of the window
            price = (1.0 if tile.query.group_by else 0.5) / sigma**2 / rho
            if spent[start:day].max() + price <= 1.0:
                spent[start:day] += price
                looks += 1
                within += 1
    return Result("fresh noise, exact cache", 0.0, float(spent.max()), within / asked, looks, 0.0)


def range_prices(accuracy: Accuracy, n_rows: int, seed: int, noise: NoiseSource) -> list[Result]:
    """What random ranges of 301 bins cost on demand, with an order, without one, and by fresh noise."""
    rng = np.random.default_rng([6, seed, n_rows])
    amounts = np.minimum(np.exp(rng.normal(4.2, 0.8, n_rows)), BINS - 1).astype(np.uint16)
    ranges: list[npt.NDArray[np.bool_]] = []
    while len(ranges) < N_RANGES:
        low, high = sorted(rng.choice(BINS + 1, 2, replace=False).tolist())
        if high - low < BINS:
            ranges.append((np.arange(BINS) >= low) & (np.arange(BINS) < high))
    found = []
    for name, attribute in (
        ("ranges of a number", Number("amount", tuple(range(1, BINS)), integer=True)),
        ("ranges of a category", Category("amount", tuple(map(str, range(BINS))), other=False)),
    ):
        universe, promised = Universe((attribute,)), 0
        driven = Driven(
            Calibrated(universe, PRIVACY, accuracy, CalibratedSettings(base_share=0.0)), noise
        )
        data = Blocks(universe)
        data.append(Block.seal(universe, Rows((amounts,))))
        driven.open_phase(n_rows, data)
        started = perf_counter()
        for mask in ranges:
            query = LinearQuery(Predicate.conjunction({0: mask}), range(1))
            outcome = driven.ask(query, data)
            assert isinstance(outcome, Answered)
            promised += outcome.path is not Path.UNVERIFIED
        seconds, spent = perf_counter() - started, driven.spent_share()
        found.append(Result(name, 0.0, spent, promised / N_RANGES, driven.looks, seconds))
    z = Terms.of(accuracy).z
    price = 0.5 / (accuracy.error * n_rows / z) ** 2 / float(Budget.of(PRIVACY).rho)
    different = len({mask.tobytes() for mask in ranges})
    paid = min(different, math.floor(1.0 / price))
    repeats = N_RANGES - different
    fresh = "fresh noise, exact cache"
    found.append(Result(fresh, 0.0, paid * price, (paid + repeats) / N_RANGES, paid, 0.0))
    return found


def planning_times(n_rows: int, queries: int | None) -> tuple[float, float]:
    """Seconds to plan 64 attributes of 8 cells at first, and then for a phase of another size.

    Args:
        n_rows: The rows of the first phase. The later ones have a few more.
        queries: Different queries expected in each phase; None for the default.
    """
    promise = Promise((8,) * 64, Budget.of(PRIVACY), Accuracy(0.02, FAILURE_PROBABILITY))
    plan = BasePlan(promise.axes, Expected(queries=queries), promise.terms)
    times = []
    for more in range(8):
        started = perf_counter()
        plan.release(n_rows + more, promise)
        times.append(perf_counter() - started)
    return times[0], float(np.median(times[1:]))


def _table(title: str, found: Sequence[Result]) -> Table:
    table = Table(title=title)
    table.add_column("method")
    for column in ("opening", "fullest line", "within error", "looks", "seconds"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            one.name,
            f"{one.base:.2%}",
            f"{one.worst:.2%}",
            f"{one.certified:.1%}",
            f"{one.looks:,}",
            f"{one.seconds:.1f}" if one.seconds else "",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 5_000])
    parser.add_argument("--error", type=float, nargs="+", default=[0.02])
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    out, noise = console(), PooledNoise()
    verdicts = []
    for n_rows, error in product(asked.rows, asked.error):
        accuracy = Accuracy(error, FAILURE_PROBABILITY)
        rng = np.random.default_rng([5, asked.seed, n_rows])
        days = [orders(rng, n_rows) for _ in range(asked.days)]
        found = [
            through_engine("calibrated", days, accuracy, noise),
            through_engine("calibrated, tiles declared", days, accuracy, noise, declared=True),
            through_engine("calibrated, base_share 0", days, accuracy, noise, base_share=0.0),
            fresh_noise(days, accuracy),
        ]
        title = f"Orders, {n_rows:,} rows a day, error {error:g}, {asked.days} days"
        out.print(_table(title, found))
        limits = LIMITS.get((n_rows, error))
        if limits is not None and asked.days == 14:
            for one, most in zip(found, limits, strict=False):
                words = f"{n_rows:,} rows, {error:g}, {one.name}"
                verdicts.append(verdict(f"{words}: fullest line", one.worst, most=most))
                verdicts.append(verdict(f"{words}: not certified", 1.0 - one.certified, most=0.0))
    found = range_prices(Accuracy(0.02, FAILURE_PROBABILITY), 20_000, asked.seed, noise)
    out.print(_table(f"{N_RANGES} ranges of {BINS} bins, 20,000 rows, error 0.02", found))
    ratio = found[0].worst / found[1].worst
    verdicts.append(verdict("ranges: price with an order by that without", ratio, most=0.3))
    verdicts.append(verdict("ranges: not certified", 1.0 - found[0].certified, most=0.0))
    for words, n_rows, queries in (("", 20_000, None), (", scarce", 10_000, 100_000)):
        first, again = planning_times(n_rows, queries)
        verdicts.append(verdict(f"64 attributes{words}, seconds to plan", first, most=3.0))
        verdicts.append(verdict(f"64 attributes{words}, seconds a phase", again, most=0.005))
    for line in verdicts:
        out.print(line)


if __name__ == "__main__":
    main()
