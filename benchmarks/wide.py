"""W5: conjunctions on a wide table, through the calibrated engine and beside fresh Gaussian noise.

python benchmarks/wide.py [adult.csv.gz] [--kind mixed subset] [--error 0.05 0.02] [--seed 1]
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from workloads import (
    ADULT,
    DATA,
    FAILURE_PROBABILITY,
    CalibratedMethod,
    Method,
    adult,
    adult_queries,
    console,
    gaussian,
    report,
    run,
)

from stream_dp.core.noise import PooledNoise
from stream_dp.core.parameters import Accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "adult.csv.gz")
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--kind", choices=["mixed", "subset"], nargs="+", default=["mixed"])
    parser.add_argument("--error", type=float, nargs="+", default=[0.05, 0.02])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    out = console()
    rows = adult(asked.data)
    noise = PooledNoise()
    for kind, error, seed in product(asked.kind, asked.error, asked.seed):
        accuracy = Accuracy(error, FAILURE_PROBABILITY)
        methods: list[Method] = [
            # One phase only, so nothing is kept for phases to come.
            CalibratedMethod(ADULT, accuracy, noise, pacing=False),
            gaussian(ADULT, accuracy, noise),
        ]
        title = f"W5 {kind}, error {error}, seed {seed}"
        streams = [adult_queries(seed, asked.queries, kind)]
        scores = run(title, ADULT, [rows], streams, asked.queries, methods, error, out)
        report(title, scores, out)


if __name__ == "__main__":
    main()
