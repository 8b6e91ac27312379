"""W5: conjunctions on a wide table, through the calibrated engine and beside fresh Gaussian noise.

python benchmarks/wide.py [adult.csv.gz] [--kind mixed subset] [--error 0.05 0.02] [--seed 1]

The definition says how many queries to expect, ``--expect``. Thresholds are printed as reached or not.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from workloads import (
    ADULT,
    DATA,
    FAILURE_PROBABILITY,
    Method,
    Score,
    adult,
    adult_queries,
    calibrated,
    console,
    gaussian,
    report,
    run,
    verdict,
)

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.randomness.noise_sources import PooledNoise


def print_verdicts(kind: str, error: float, n_queries: int, ours: Score) -> None:
    """Prints whether the thresholds of a setting were reached."""
    answered, line = ours.within + ours.missed, ours.method.worst_line()
    match kind, error, n_queries:
        case "mixed", 0.05, 100_000:
            print(verdict("share of the fullest line", line, most=0.24))
        case "mixed", 0.02, 100_000:
            print(verdict("queries answered", answered, least=96_800))
        case "subset", 0.05, 30_000:
            print(verdict("share of the fullest line", line, most=0.303))
        case "subset", 0.02, 30_000:
            print(verdict("part answered", answered / n_queries, least=0.84))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "adult.csv.gz")
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument(
        "--expect",
        type=int,
        default=100_000,
        help="what the definition says under queries_per_phase",
    )
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
            calibrated(ADULT, accuracy, noise, asked.expect),
            gaussian(ADULT, accuracy, noise),
        ]
        title = f"W5 {kind}, error {error}, seed {seed}"
        streams = [adult_queries(seed, asked.queries, kind)]
        scores = run(title, ADULT, [rows], streams, asked.queries, methods, error, out)
        report(title, scores, out)
        print_verdicts(kind, error, asked.queries, scores[0])


if __name__ == "__main__":
    main()
