"""W4: twelve months of flights, fresh conjunctions each month, the engine alone beside its baselines.

python benchmarks/flights_engine.py [nycflights13.csv.gz] [--error 0.05 0.02 0.01] [--seed 1]
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from workloads import (
    DATA,
    FAILURE_PROBABILITY,
    FLIGHTS,
    CalibratedMethod,
    Method,
    console,
    flight_queries,
    flights_by_month,
    gaussian,
    report,
    run,
    whole_table,
)

from stream_dp.core.noise import PooledNoise
from stream_dp.core.parameters import Accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument("--error", type=float, nargs="+", default=[0.05, 0.02, 0.01])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    out = console()
    months = flights_by_month(asked.data)
    noise = PooledNoise()
    for error, seed in product(asked.error, asked.seed):
        n_queries = 3000 if error >= 0.02 else 1000
        accuracy = Accuracy(error, FAILURE_PROBABILITY)
        methods: list[Method] = [
            CalibratedMethod(FLIGHTS, accuracy, noise),
            gaussian(FLIGHTS, accuracy, noise),
            whole_table(FLIGHTS, accuracy, noise),
        ]
        title = f"W4 error {error}, seed {seed}"
        streams = [flight_queries(seed, month, n_queries) for month in range(len(months))]
        scores = run(title, FLIGHTS, months, streams, n_queries, methods, error, out)
        report(title, scores, out)


if __name__ == "__main__":
    main()
