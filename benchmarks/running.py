"""What running totals cost beside other ways to count a period at each tick, and how long a tick takes.

    python benchmarks/running.py [--ticks 24 168 1440] [--cells 1000]

Prices are in counts: how many counts, each as precise as the least precise total, cost as much as all totals.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from rich.progress import track
from rich.table import Table
from workloads import FAILURE_PROBABILITY, PRIVACY, console

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.running_plan import MOST_NUMBERS, RunningPlan
from stream_dp.core.running.running_totals import RunningTotals
from stream_dp.core.running.tick_counts import TickCounts
from stream_dp.core.running.tick_factor import factor_of
from stream_dp.core.running.tick_look import TickLook, TickRelease

MOST_ABOVE = 1.105
"""Acceptance: the price is at most this many times the lower bound, and at most these counts."""
MOST_COUNTS = {24: 3.65, 1440: 10.19}

WITHIN = 100_000.0
"""Rows. How long a tick takes does not depend on it."""

ROUNDS = 3


def of_tree(ticks: int) -> int:
    """The price of a binary tree, each total of which is the sum of the fewest whole nodes."""
    totals = []
    for total in range(1, ticks + 1):
        start, nodes = 0, set()
        for level in reversed(range(ticks.bit_length())):
            if total >> level & 1:
                nodes.add((start, start + (1 << level)))
                start += 1 << level
        totals.append(nodes)
    above = np.zeros(ticks, dtype=int)
    for start, stop in set.union(*totals):
        above[start:stop] += 1
    return int(above.max()) * max(map(len, totals))


def bounds(ticks: int) -> Iterator[float]:
    """Lower bounds on the price of any factors (docs/proofs, Theorem 36 (e)), each from better weights."""
    place, triangle = np.arange(ticks), np.tri(ticks)
    u = (place + 1.0) ** 0.07 * (ticks - place) ** -0.11
    v = u[::-1]
    for _ in range(ROUNDS):
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        left, values, right = np.linalg.svd(u[:, None] * triangle * v)
        yield float(values.sum() ** 2)
        u = np.sqrt(np.square(left) @ values)
        v = np.sqrt(values @ np.square(right))


def seconds_of_tick(ticks: int, cells: int) -> float:
    """How long the last tick takes of a table: its draws, the look, and what follows from it."""
    promise = Promise((cells,), Budget.of(PRIVACY), Accuracy(0.02, FAILURE_PROBABILITY))
    tile = LinearQuery(EVERYTHING, range(1), (0,))
    plan, noise = RunningPlan.within(WITHIN, promise, [tile], ticks), PooledNoise()
    data, totals = Blocks(lambda _: (cells,)), RunningTotals(plan)
    draw = np.random.default_rng(1)
    data.ticks[0] = [TickCounts((draw.integers(0, 100, cells),)) for _ in range(ticks)]
    for tick in range(1, ticks):
        totals.absorb(TickRelease(0, tick, data.ticks[0][0].tables))
    began, look = time.perf_counter(), TickLook(plan, 0, ticks)
    look.reserve(noise)
    release = TickRelease.from_bytes(look.take(noise, data).to_bytes())
    totals.absorb(release)
    totals.counts(0, ticks)
    totals.counts(0, ticks, ticks - 1)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=int, nargs="+", default=[24, 168, 1440])
    parser.add_argument("--cells", type=int, default=1000)
    asked = parser.parse_args()
    names = ("disjoint ticks", "binary tree", "this factor", "any factor", "above it")
    table = Table("ticks", *names, "last tick", "of cells", title="price in counts")
    passed = True
    for ticks in asked.ticks:
        improved = track(bounds(ticks), f"bound of {ticks:,}", ROUNDS, transient=True)
        price, bound = factor_of(ticks).price, max(improved)
        cells = min(asked.cells, MOST_NUMBERS // ticks)
        seconds_of_tick(ticks, cells)  # the first one imports the sampler
        took = min(seconds_of_tick(ticks, cells) for _ in range(ROUNDS))
        prices = (f"{ticks:,}", f"{of_tree(ticks)}", f"{price:.4g}", f"{bound:.4g}")
        ratio = price / bound
        table.add_row(
            f"{ticks:,}", *prices, f"{ratio - 1:.1%}", f"{1000 * took:.1f} ms", f"{cells:,}"
        )
        passed &= ratio <= MOST_ABOVE and price <= MOST_COUNTS.get(ticks, price)
    console().print(table)
    console().print(
        f"{'PASS' if passed else 'FAIL'}: at most {MOST_ABOVE - 1:.1%} above what any factor costs, "
        f"and {' and '.join(f'{most} counts for {n:,}' for n, most in MOST_COUNTS.items())}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
