"""W4: twelve months of flights, fresh conjunctions each month, the engine alone beside its baselines.

python benchmarks/flights_engine.py [nycflights13.csv.gz] [--error 0.05 0.02 0.01] [--seed 1]
python benchmarks/flights_engine.py --error 0.005 0.003 --expect 1000
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from workloads import (
    DATA,
    FAILURE_PROBABILITY,
    FLIGHTS,
    Method,
    Score,
    calibrated,
    console,
    flight_queries,
    flights_by_month,
    gaussian,
    report,
    run,
    verdict,
    whole_table,
)

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.randomness.noise_sources import PooledNoise


def verdicts(error: float, expect: int | None, ours: Score) -> list[str]:
    """Says which thresholds of a setting were reached."""
    answered = (ours.within + ours.missed) / ours.asked
    lines = {0.02: 0.15, 0.01: 0.55}
    parts = {0.005: 0.98, 0.003: 0.83}
    if error in lines:
        return [
            verdict("part answered", answered, least=1.0),
            verdict("share of the fullest line", ours.method.worst_line(), most=lines[error]),
        ]
    if expect == 1000 and error in parts:
        missed = ours.missed / ours.asked
        return [
            verdict("part answered", answered, least=parts[error]),
            verdict("part missed", missed, most=0.01),
        ]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument("--error", type=float, nargs="+", default=[0.05, 0.02, 0.01])
    parser.add_argument(
        "--queries", type=int, help="queries a month (default: 3,000 from an error of 2%% on)"
    )
    parser.add_argument(
        "--expect",
        type=int,
        help="what the definition says under queries_per_phase; nothing by default",
    )
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    out = console()
    months = flights_by_month(asked.data)
    noise = PooledNoise()
    for error, seed in product(asked.error, asked.seed):
        n_queries = asked.queries or (3000 if error >= 0.02 else 1000)
        accuracy = Accuracy(error, FAILURE_PROBABILITY)
        methods: list[Method] = [
            calibrated(FLIGHTS, accuracy, noise, asked.expect),
            gaussian(FLIGHTS, accuracy, noise),
            whole_table(FLIGHTS, accuracy, noise),
        ]
        title = f"W4 error {error}, seed {seed}"
        streams = [flight_queries(seed, month, n_queries) for month in range(len(months))]
        scores = run(title, FLIGHTS, months, streams, n_queries, methods, error, out)
        report(title, scores, out)
        for line in verdicts(error, asked.expect, scores[0]):
            out.print(line)


if __name__ == "__main__":
    main()
