"""Rows a second from lists of Python values into a sealed block and its tables, beside a plain loop.

python benchmarks/bench_encode.py [N_ROWS]
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from time import process_time

import numpy as np

from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.slabs import Slab, SlabIndex, slabs_of
from stream_dp.core.rows.universe import Universe
from stream_dp.pipeline.rows.secret_order import secret_order

CARRIERS = tuple(f"{a}{b}" for a in "ADFU" for b in "ALVX")
ORIGINS = ("EWR", "JFK", "LGA")
DELAY_EDGES = (-20, -10, 0, 10, 30, 60)

FLIGHTS = Universe(
    (
        Category("carrier", CARRIERS[:12]),
        Category("origin", ORIGINS, other=False),
        Number("arr_delay", DELAY_EDGES, integer=True, missing=True),
        Boolean("cancelled"),
        Category("month", tuple(map(str, range(1, 13))), other=False),
    )
)


def columns_of(n_rows: int) -> dict[str, list[object]]:
    """Made-up flights: strings, integers with 3% missing, bools."""
    rng = random.Random(13)
    cancelled = [rng.random() < 0.03 for _ in range(n_rows)]
    return {
        "carrier": rng.choices(CARRIERS, k=n_rows),
        "origin": rng.choices(ORIGINS, k=n_rows),
        "arr_delay": [None if c else int(rng.gauss(7, 45)) for c in cancelled],
        "cancelled": list(cancelled),
        "month": rng.choices(range(1, 13), k=n_rows),
    }


def plain_loop(columns: dict[str, list[object]]) -> Counter[tuple[int, ...]]:
    """What encode and seal do, written as one would at first."""
    carriers = {c: i for i, c in enumerate(CARRIERS[:12])}
    origins = {o: i for i, o in enumerate(ORIGINS)}
    cells: Counter[tuple[int, ...]] = Counter()
    for carrier, origin, delay, cancelled, month in zip(*columns.values(), strict=True):
        cell = (
            carriers.get(carrier, 12),
            origins.get(origin, 0),
            7 if delay is None else bisect_right(DELAY_EDGES, delay),
            1 if cancelled else 0,
            month - 1,
        )
        cells[cell] += 1
    return cells


def there_and_back(slabs: Iterable[Slab]) -> None:
    """What keeping slabs takes, and what reading and comparing them does."""
    for slab in slabs:
        first, *columns = slab.stored(bytes(16))
        index = SlabIndex.from_bytes(first)
        for place, stored in enumerate(columns, start=1):
            assert index.has(place, stored)
            index.column(place, stored)


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Least of some runs, in CPU seconds, so that what else runs on the machine counts little."""
    times = []
    for _ in range(runs):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    columns = columns_of(n_rows)
    rows = FLIGHTS.encode_columns(columns)
    block = Block.seal(FLIGHTS, rows)
    tally = plain_loop(columns)
    table = Blocks(FLIGHTS, [block]).marginal((0, 1, 2, 3, 4), range(1))[0]
    assert {cell: n for cell, n in np.ndenumerate(table) if n} == tally
    records = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    slots = tuple(slabs_of(rows, secret_order))
    cells, apart = Blocks(FLIGHTS, [block]), Blocks(FLIGHTS, [Block(n_rows, slots)])

    baseline = best_of(3, lambda: plain_loop(columns))
    print(f"{n_rows:,} rows, {len(FLIGHTS.attributes)} attributes, {FLIGHTS.n_cells:,} cells")
    print(f"{'':34}{'M rows/s':>10}{'ms':>9}{'x loop':>9}")
    for name, work in [
        ("encode_columns", lambda: FLIGHTS.encode_columns(columns)),
        ("encode_columns + seal", lambda: Block.seal(FLIGHTS, FLIGHTS.encode_columns(columns))),
        ("encode_rows + seal", lambda: Block.seal(FLIGHTS, FLIGHTS.encode_rows(records))),
        ("plain loop (encode + count)", None),
        ("slots in a secret order", lambda: [*slabs_of(rows, secret_order)]),
        ("slots to bytes and back", lambda: there_and_back(slots)),
        ("marginal of three attributes", lambda: apart.marginal((0, 2, 4), range(1))),
        ("the same where rows are merged", lambda: cells.marginal((0, 2, 4), range(1))),
    ]:
        seconds = baseline if work is None else best_of(5, work)
        print(
            f"{name:34}{n_rows / seconds / 1e6:10.2f}{seconds * 1e3:9.2f}{baseline / seconds:9.1f}"
        )


if __name__ == "__main__":
    main()
