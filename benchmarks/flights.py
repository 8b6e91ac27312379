"""W4 through Kafka and Redis: twelve months of flights, fresh conjunctions each month.

    python benchmarks/flights.py [nycflights13.csv.gz] [--error .02 .01] [--seed 1 2 3]

The same stream, in the same order, goes to the baselines in the same run: a fresh discrete Gaussian count
for each new query with an exact cache, and one noisy table of the whole universe a block. The exact
answers are counted here, from the benchmark's own public file.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from time import perf_counter

from flights_engine import verdicts
from rich.console import Console
from rich.progress import Progress
from system import System, running_system
from workloads import (
    DATA,
    FAILURE_PROBABILITY,
    FLIGHTS,
    PRIVACY,
    Score,
    console,
    flight_queries,
    flights_by_month,
    gaussian,
    report,
    run,
    whole_table,
)

from stream_dp.client import Client
from stream_dp.client import Query as Asking
from stream_dp.client.budget.odometer import Odometer
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.lab.trial import ExactCounts
from stream_dp.messages import Answer, CountAnswer
from stream_dp.samples import FLIGHTS_DEFINITION

Columns = dict[str, list[object]]


class ThroughKafka:
    """What the worker made of the stream; scored from the answers topic and the ledger alone."""

    name = "stream_dp through Kafka"
    paid = 0
    unverified: float | None = None

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.odometer = Odometer()
        self.answers: list[Answer] = []

    def open_phase(self, n_rows: int, data: Blocks) -> None:
        """The phase was opened by the batch that was sent."""

    def ask(self, query: LinearQuery, data: Blocks) -> float | None:
        """The answer that came back for the next query of the stream."""
        answer = self.answers[sum(self.paths.values())]
        self.unverified = None
        if not isinstance(answer, CountAnswer):
            self.paths[answer.status] += 1
            return None
        self.paths[answer.path] += 1
        count = answer.value * answer.n
        if answer.path == "unverified":
            self.unverified = count
            return None
        return count

    def worst_line(self) -> float:
        return self.odometer.most_spent


def through_kafka(
    system: System,
    months: list[Columns],
    error: float,
    seed: int,
    n_queries: int,
    console: Console,
) -> Score:
    """Sends the whole stream and scores what came back."""
    method = ThroughKafka()
    score = Score(method)
    name = f"flights-{error:g}-{seed}"
    data = Blocks(FLIGHTS)
    accuracy = {"error": error, "failure_probability": FAILURE_PROBABILITY}
    with system.client() as client, Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{name} through Kafka", total=n_queries * len(months))
        client.define({**FLIGHTS_DEFINITION, "dataset": name, "accuracy": accuracy})
        for phase, columns in enumerate(months):
            started = perf_counter()
            event = client.send(name, columns=columns, batch_id=f"{phase:02}", timeout_s=120)
            assert event.phase == phase + 1, "each month opens a phase"
            asked = list(flight_queries(seed, phase, n_queries))
            replies = client.ask_many(
                name,
                [Asking(a.where, last_phases=a.last_phases) for a in asked],
                timeout_s=120,
                on_answer=lambda *_: progress.advance(task),
            )
            score.seconds += perf_counter() - started
            method.answers += [_answered(reply) for reply in replies]
            data.append(Block.seal(FLIGHTS, FLIGHTS.encode_columns(columns)))
            truth, sizes, before = ExactCounts(data), data.sizes, score.seconds
            for a in asked:
                query = LinearQuery(compile_where(FLIGHTS, a.where), a.window(phase + 1))
                margin = error * sum(sizes[query.window.start : query.window.stop])
                score.ask(query, data, truth.count(query), margin)
            score.seconds = before
        method.odometer = _odometer(client, name, len(months))
    method.paid = method.odometer.looks
    return score


def _answered(reply: object) -> Answer:
    assert isinstance(reply, Answer), f"rejected: {reply}"
    return reply


def _odometer(client: Client, name: str, phases: int) -> Odometer:
    odometer = Odometer.read(client.ledger(name))
    assert len(odometer.blocks) == phases
    return odometer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument("--error", type=float, nargs="*", default=[0.02, 0.01])
    parser.add_argument("--seed", type=int, nargs="*", default=[1])
    parser.add_argument("--months", type=int, default=12)
    arguments = parser.parse_args()
    out = console()
    months = flights_by_month(arguments.data)[: arguments.months]
    noise = PooledNoise()
    with running_system(out) as system:
        for error in arguments.error:
            n_queries = 3000 if error >= 0.02 else 1000
            for seed in arguments.seed:
                title = f"W4 error {error:g}, seed {seed}"
                ours = through_kafka(system, months, error, seed, n_queries, out)
                accuracy = Accuracy(error, FAILURE_PROBABILITY)
                scores = run(
                    title,
                    FLIGHTS,
                    months,
                    [flight_queries(seed, month, n_queries) for month in range(len(months))],
                    n_queries,
                    [gaussian(FLIGHTS, accuracy, noise), whole_table(FLIGHTS, accuracy, noise)],
                    error,
                    out,
                )
                report(title, [ours, *scores], out)
                for line in verdicts(error, None, ours):
                    out.print(line)
    out.print(
        f"privacy: (epsilon {PRIVACY.epsilon:g}, delta {PRIVACY.delta:g}) for each row, by zCDP, all methods"
    )


if __name__ == "__main__":
    main()
