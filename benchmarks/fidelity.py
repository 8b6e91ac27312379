"""W6: the thesis profile on 1e17 to 1e18 rows, engine alone: (a) the papers' constants, (b) m set by hand.

python benchmarks/fidelity.py [--seeds 3]

(a) Every answer must lie within the error, and far fewer queries be hard than allowed. (b) With one row a
hypothesis the limit of hard queries must be reached in every phase, and refuse with its reason.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, field
from statistics import median

# Matrices of a few hundred rows: threads of the linear algebra cost more than they bring.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phase_looks import QueryLook, QueryRelease
from stream_dp.core.outcome import Answered, Refused
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe

ERROR = 0.1
PHASES = 3
QUERIES = 1_000  # k; the stream asks fewer
ASKS = 150  # in each phase


@dataclass(frozen=True)
class Case:
    """A universe, rows a block, and rows a hypothesis (None: the papers')."""

    sizes: tuple[int, ...]
    n_rows: int
    rows: int | None

    @property
    def universe(self) -> Universe:
        return Universe(
            tuple(
                Category(f"a{i}", tuple(f"v{v}" for v in range(size)), other=False)
                for i, size in enumerate(self.sizes)
            )
        )

    def memory(self, universe: Universe) -> Memory:
        # With one row a hypothesis tau is far from negligible; (b) shows the limit, not a useful setting.
        privacy = Privacy(1.0, 1e-9 if self.rows is None else 0.1)
        return Memory(
            universe,
            privacy,
            Accuracy(ERROR, 0.01),
            queries_per_phase=QUERIES,
            phases=PHASES,
            hypothesis_rows=self.rows,
        )


@dataclass
class Score:
    """One phase of one run."""

    asked: int = 0
    within: int = 0
    hard: int = 0
    worst: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    limit: int = 0
    hard_so_far: int = 0
    line: float = 0.0
    seconds: float = 0.0


CASES_A = [
    Case((2, 2), 10**17, None),
    Case((4, 4), 4 * 10**17, None),
    Case((4, 4, 4), 10**18, None),
]
CASES_B = [Case((2, 2), 10**17, 1), Case((4, 4), 10**17, 1), Case((4, 4, 4), 10**17, 1)]


def new_block(rng: np.random.Generator, universe: Universe, n_rows: int) -> Block:
    counts = [
        int(share * 10**9) * (n_rows // 10**9) for share in rng.dirichlet([0.3] * universe.n_cells)
    ]
    counts[0] += n_rows - sum(counts)
    places = np.ndindex(*universe.shape)
    cells = [
        {name: f"v{v}" for name, v in zip(universe.names, place, strict=True)} | {"count": count}
        for place, count in zip(places, counts, strict=True)
    ]
    return Block.seal(universe, universe.encode_cells(cells))


def run(case: Case, seed: int, noise: PooledNoise, tick: Progress, task: TaskID) -> list[Score]:
    rng = np.random.default_rng(seed)
    universe = case.universe
    memory, data = case.memory(universe), Blocks(universe)
    attributes = tuple(range(len(universe.shape)))
    line, scores = 0, []
    for j in range(1, PHASES + 1):
        score = Score(limit=memory.constants.phases[j - 1].hard_limit)
        started = time.perf_counter()
        block = new_block(rng, universe, case.n_rows)
        data.append(block)
        (opening,) = memory.open_phase(block.n_rows)
        memory.charged(opening.charges)
        line += opening.charges[0].rho
        memory.absorb(opening.take(noise, data))
        truth = data.marginal(attributes, range(j))
        for _ in range(ASKS):
            predicate = Predicate.of_mask(attributes, rng.random(universe.shape) < 0.5)
            query = LinearQuery(predicate, range(j))
            score.asked += 1
            step = memory.answer(query)
            if isinstance(step, Refused):
                score.refusals[step.code] = score.refusals.get(step.code, 0) + 1
                continue
            assert isinstance(step, QueryLook)
            step.reserve(noise)
            release = step.take(noise, data)
            memory.absorb(release)
            outcome = memory.conclude(query, step, release)
            assert isinstance(release, QueryRelease)
            assert isinstance(outcome, Answered)
            exact = sum(int(n) for n in _marginal_of(truth, predicate))
            off = abs(outcome.count - exact) / outcome.n
            score.within += off <= ERROR
            score.worst = max(score.worst, off)
            score.hard += release.hard
            tick.advance(task)
        score.hard_so_far = memory.hard
        score.line = line / UNITS
        score.seconds = time.perf_counter() - started
        scores.append(score)
    return scores


def _marginal_of(truth: np.ndarray, predicate: Predicate) -> list[int]:
    """Exact counts a block; the predicate may depend on fewer attributes than the table has."""
    shape = [
        size if axis in predicate.attributes else 1 for axis, size in enumerate(truth.shape[1:])
    ]
    mask = np.broadcast_to(predicate.mask.reshape(shape), truth.shape[1:])
    return [int(table[mask].sum()) for table in truth]


def report(out: Console, title: str, results: list[tuple[Case, list[list[Score]]]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in (
        "cells", "rows", "phase", "asked", "within error", "missed", "refused", "hard (min-max)",
        "hard so far / allowed", "worst error", "line", "s",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for case, runs in results:
        for j in range(PHASES):
            scores = [scores[j] for scores in runs]
            answered = [s.asked - sum(s.refusals.values()) for s in scores]
            reasons = {reason for s in scores for reason in s.refusals}
            table.add_row(
                f"{case.universe.n_cells}",
                f"{case.n_rows:.0e}",
                f"{j + 1}",
                f"{sum(s.asked for s in scores)}",
                f"{sum(s.within for s in scores)}",
                f"{sum(answered) - sum(s.within for s in scores)}",
                f"{sum(sum(s.refusals.values()) for s in scores)} {' '.join(sorted(reasons))}",
                f"{median(s.hard for s in scores):g} "
                f"({min(s.hard for s in scores)}-{max(s.hard for s in scores)})",
                f"{max(s.hard_so_far for s in scores)} / {_short(scores[0].limit)}",
                f"{max(s.worst for s in scores):.2g}",
                f"{scores[0].line:.4f}",
                f"{median(s.seconds for s in scores):.1f}",
            )
    out.print(table)


def _short(limit: int) -> str:
    return f"{limit}" if limit < 10**6 else f"{limit:.2e}"


def promise(out: Console, cases: list[Case]) -> None:
    table = Table(title="Promises and constants", title_justify="left")
    for name in (
        "cells", "epsilon", "alpha", "log10 tau", "m", "1/alpha' by phase", "n_min", "n_min as printed",
        "failure", "proved",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for case in cases:
        memory = case.memory(case.universe)
        facts = memory.constants
        table.add_row(
            f"{case.universe.n_cells}",
            f"{memory.published_budget['epsilon']}",
            f"{float(facts.alpha):.4f}",
            f"{facts.log_tau / np.log(10):.4g}",
            f"{facts.hypothesis_rows:,}",
            " ".join(f"{phase.inverse_privacy:.3g}" for phase in facts.phases),
            f"{facts.min_rows:.4g}",
            f"{facts.min_rows_as_printed:.4g}",
            f"{facts.failure_probability:.2g}",
            "yes" if facts.proved else "no",
        )
    out.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(1, parser.parse_args().seeds + 1)
    out, noise = Console(width=160), PooledNoise()
    started = time.perf_counter()
    promise(out, [*CASES_A, *CASES_B])
    results: dict[str, list[tuple[Case, list[list[Score]]]]] = {"a": [], "b": []}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as tick:
        for part, cases, its_seeds in (("a", CASES_A, seeds), ("b", CASES_B, seeds[:1])):
            for case in cases:
                most = ASKS * PHASES * len(its_seeds)
                task = tick.add_task(f"({part}) {case.universe.n_cells} cells", total=most)
                runs = [run(case, seed, noise, tick, task) for seed in its_seeds]
                results[part].append((case, runs))
                tick.update(task, completed=most)
    report(out, f"W6 (a): the papers' constants, {len(seeds)} seeds, error {ERROR}", results["a"])
    report(out, "W6 (b): one row a hypothesis, 1 seed", results["b"])
    out.print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
