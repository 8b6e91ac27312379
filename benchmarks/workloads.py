"""The workloads that the methods are compared on: rows, schemas, streams of queries, and scores.

W4, flights of 2013 by month, and W5, the census table Adult. Queries are made as the JSON trees that
travel on Kafka, so a benchmark of the whole system sends the very stream that the engine was measured
on. Edges and values are public constants: nothing is inferred from rows.
"""

from __future__ import annotations

import csv
import gzip
import math
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.outcome import Answered
from stream_dp.core.outcome import Path as AnswerPath
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Concentrated
from stream_dp.lab.synthetic_stream import Cells, conjunction, single_or_subset
from stream_dp.lab.trial import Driven, ExactCounts

Where: TypeAlias = dict[str, Any]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PRIVACY = Privacy(1.0, 1e-9)
FAILURE_PROBABILITY = 0.01

CARRIERS = (
    "9E",
    "AA",
    "AS",
    "B6",
    "DL",
    "EV",
    "F9",
    "FL",
    "HA",
    "MQ",
    "OO",
    "UA",
    "US",
    "VX",
    "WN",
    "YV",
)

FLIGHTS = Universe(
    (
        Category("carrier", CARRIERS, other=False),
        Category("origin", ("EWR", "JFK", "LGA"), other=False),
        Number("hour", (4, 8, 12, 16, 20), integer=True),
        Number("arr_delay", (-20, -10, 0, 10, 30, 60), integer=True, missing=True),
        Number("distance", (502, 872, 1389), integer=True),
    )
)


def _codes(name: str, size: int) -> Category:
    return Category(name, tuple(map(str, range(size))), other=False)


def _binned(name: str, size: int, bins: int = 16) -> Number:
    """Codes 0..size-1 in ``bins`` bins of nearly equal width."""
    return Number(name, tuple(round(size * i / bins) for i in range(1, bins)), integer=True)


ADULT = Universe(
    (
        _binned("age", 85),
        _codes("workclass", 9),
        _binned("fnlwgt", 100),
        _codes("education-num", 16),
        _codes("marital-status", 7),
        _codes("occupation", 15),
        _codes("relationship", 6),
        _codes("race", 5),
        _codes("sex", 2),
        _binned("capital-gain", 100),
        _binned("capital-loss", 100),
        _binned("hours-per-week", 99),
        _codes("native-country", 42),
        _codes("income>50K", 2),
    )
)


# ---------------------------------------------------------------- rows


def flights_by_month(path: Path) -> list[dict[str, list[object]]]:
    """Twelve batches of columns, in the order of the year."""
    months: list[dict[str, list[object]]] = [{n: [] for n in FLIGHTS.names} for _ in range(12)]
    for row in _read(path):
        month = months[int(row["month"]) - 1]
        month["carrier"].append(row["carrier"])
        month["origin"].append(row["origin"])
        month["hour"].append(int(row["sched_dep_time"]) // 100)
        month["arr_delay"].append(int(row["arr_delay"]) if row["arr_delay"] else None)
        month["distance"].append(int(row["distance"]))
    return months


def adult(path: Path) -> dict[str, list[object]]:
    """All rows as columns of codes."""
    columns: dict[str, list[object]] = {name: [] for name in ADULT.names}
    for row in _read(path):
        for name, column in columns.items():
            code = row[name]
            column.append(
                code if isinstance(ADULT.attributes[ADULT.index(name)], Category) else int(code)
            )
    return columns


def _read(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


# ---------------------------------------------------------------- queries


@dataclass(frozen=True)
class KindQuery:
    """One query as it travels: a tree, and how many of the last phases (None: all)."""

    where: Where
    last_phases: int | None

    def window(self, n_phases: int) -> range:
        if self.last_phases is None:
            return range(n_phases)
        return range(max(0, n_phases - self.last_phases), n_phases)


def flight_queries(seed: int, month: int, n: int) -> Iterator[KindQuery]:
    """W4: conjunctions over 1 to 3 attributes, half on the whole history, half on 1 to 6 months."""
    rng = np.random.default_rng([seed, month])
    draw = single_or_subset(rng)
    for _ in range(n):
        where = tree(FLIGHTS, conjunction(FLIGHTS, rng, draw))
        whole = rng.random() < 0.5
        yield KindQuery(where, None if whole else int(rng.integers(1, 7)))


def adult_queries(seed: int, n: int, kind: Literal["mixed", "subset"]) -> Iterator[KindQuery]:
    """W5: conjunctions over 1 to 3 of 14 attributes, with single values and any subsets or only these."""
    rng = np.random.default_rng([seed, len(kind)])

    def draw(size: int) -> Cells:
        if kind == "mixed" and rng.random() < 0.5:
            return rng.integers(size, size=1)
        while True:
            chosen = np.flatnonzero(rng.random(size) < 0.5)
            if 0 < len(chosen) < size:
                return chosen

    for _ in range(n):
        yield KindQuery(tree(ADULT, conjunction(ADULT, rng, draw)), None)


def tree(universe: Universe, conditions: dict[int, Cells]) -> Where:
    """The conjunction as it travels."""
    parts = [condition(universe, attribute, cells) for attribute, cells in conditions.items()]
    return parts[0] if len(parts) == 1 else {"all": parts}


def condition(universe: Universe, attribute: int, cells: Sequence[int] | Cells) -> Where:
    """The tree that holds for some cells, ascending, of one attribute of values or numbers."""
    kind = universe.attributes[attribute]
    assert isinstance(kind, Category | Number), "no workload that travels has another one"
    if isinstance(kind, Category):
        return {"attribute": kind.name, "in": [kind.values[c] for c in cells]}
    runs: list[list[int]] = []
    parts: list[Where] = []
    for cell in map(int, cells):
        if cell == len(kind.edges) + 1:
            parts.append({"attribute": kind.name, "is_missing": True})
        elif runs and cell == runs[-1][1] + 1:
            runs[-1][1] = cell
        else:
            runs.append([cell, cell])
    for first, last in runs:
        ends: list[Where] = []
        if first > 0:
            ends.append({"attribute": kind.name, "ge": kind.edges[first - 1]})
        if last < len(kind.edges):
            ends.append({"attribute": kind.name, "lt": kind.edges[last]})
        if not ends:  # every number: all but the missing ones
            ends.append({"not": {"attribute": kind.name, "is_missing": True}})
        parts.append(ends[0] if len(ends) == 1 else {"all": ends})
    return parts[0] if len(parts) == 1 else {"any": parts}


# ---------------------------------------------------------------- methods


class Method(Protocol):
    """One way of answering."""

    name: str

    @property
    def paid(self) -> int:
        """Queries that were looked at."""
        ...

    def open_phase(self, n_rows: int, data: Blocks) -> None: ...

    def ask(self, query: LinearQuery, data: Blocks) -> float | None:
        """The count it promises, or None."""
        ...

    def worst_line(self) -> float:
        """The highest share of any line that was spent."""
        ...


class EngineMethod:
    """A mechanism of this package, without servers."""

    def __init__(self, name: str, mechanism: Mechanism, noise: NoiseSource) -> None:
        self.name = name
        self.paths: Counter[str] = Counter()
        self.unverified: float | None = None
        self._driven = Driven(mechanism, noise)

    @property
    def paid(self) -> int:
        return self._driven.looks

    def open_phase(self, n_rows: int, data: Blocks) -> None:
        self._driven.open_phase(n_rows, data)

    def ask(self, query: LinearQuery, data: Blocks) -> float | None:
        outcome = self._driven.ask(query, data)
        if not isinstance(outcome, Answered):
            return None
        self.paths[outcome.path.value] += 1
        if outcome.path is AnswerPath.UNVERIFIED:
            self.unverified = outcome.count
            return None
        return outcome.count

    def worst_line(self) -> float:
        return self._driven.spent_share()


def calibrated(
    universe: Universe, accuracy: Accuracy, noise: NoiseSource, queries_per_phase: int | None
) -> EngineMethod:
    """The calibrated profile. It refuses nothing."""
    settings = CalibratedSettings(
        pacing=False, base_share=None, queries_per_phase=queries_per_phase
    )
    mechanism = Calibrated(universe, PRIVACY, accuracy, settings)
    return EngineMethod("calibrated", mechanism, noise)


def gaussian(universe: Universe, accuracy: Accuracy, noise: NoiseSource) -> EngineMethod:
    """A fresh discrete Gaussian count for each new query, and an exact cache."""
    return EngineMethod("gaussian", FreshCounts(universe, accuracy, Concentrated(PRIVACY)), noise)


def whole_table(universe: Universe, accuracy: Accuracy, noise: NoiseSource) -> EngineMethod:
    """One noisy table of the whole universe a block, with all of its line; certificate only."""
    return EngineMethod("whole table", WholeTable(universe, PRIVACY, accuracy), noise)


# ---------------------------------------------------------------- scores


@dataclass
class Score:
    """What one method made of one stream."""

    method: Method
    asked: int = 0
    within: int = 0
    missed: int = 0
    refused: int = 0
    likely: int = 0
    distinct: set[tuple[bytes, int, int]] = field(default_factory=set)
    distinct_within: set[tuple[bytes, int, int]] = field(default_factory=set)
    seconds: float = 0.0

    def ask(self, query: LinearQuery, data: Blocks, truth: int, margin: float) -> None:
        start = thread_time()
        count = self.method.ask(query, data)
        self.seconds += thread_time() - start
        self.asked += 1
        key = (query.key, query.window.start, query.window.stop)
        self.distinct.add(key)
        if count is None:
            self.refused += 1
            if isinstance(self.method, EngineMethod) and self.method.unverified is not None:
                self.likely += abs(self.method.unverified - truth) <= margin
        elif abs(count - truth) <= margin:
            self.within += 1
            self.distinct_within.add(key)
        else:
            self.missed += 1


def run(
    title: str,
    universe: Universe,
    batches: Sequence[dict[str, list[object]]],
    streams: Sequence[Iterable[KindQuery]],
    n_queries: int,
    methods: Sequence[Method],
    error: float,
    console: Console,
) -> list[Score]:
    """Opens a phase a batch and asks every method the same queries after each.

    Args:
        streams: The queries that follow each phase.
        n_questions: How many there are in each; for the display.
    """
    data = Blocks(universe)
    scores = [Score(method) for method in methods]
    columns = (*Progress.get_default_columns()[:-1], TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=n_queries * len(batches))
        for phase, (batch, queries) in enumerate(zip(batches, streams, strict=True)):
            rows: Rows = universe.encode_columns(batch)
            data.append(Block.seal(universe, rows))
            truth = ExactCounts(data)
            for method in methods:
                method.open_phase(rows.n_rows, data)
            sizes = data.sizes
            for asked in queries:
                predicate = compile_where(universe, asked.where)
                query = LinearQuery(predicate, asked.window(phase + 1))
                margin = error * sum(sizes[query.window.start : query.window.stop])
                exact = truth.count(query)
                for score in scores:
                    score.ask(query, data, exact, margin)
                progress.advance(task)
    return scores


def report(title: str, scores: Sequence[Score], console: Console) -> None:
    """Prints a table: a method a line. Milliseconds are of this process' own time, looks included."""
    promise = f"epsilon {PRIVACY.epsilon}, delta {PRIVACY.delta}, beta {FAILURE_PROBABILITY}"
    table = Table(title=f"{title} ({promise})")
    table.add_column("method")
    for name in (
        "asked",
        "within error",
        "missed",
        "refused",
        "(of these near)",
        "distinct within",
        "worst line",
        "paid steps",
        "ms each",
    ):
        table.add_column(name, justify="right")
    for score in scores:
        table.add_row(
            score.method.name,
            f"{score.asked:,}",
            f"{score.within:,}",
            f"{score.missed:,}",
            f"{score.refused:,}",
            f"{score.likely:,}" if score.likely else "",
            f"{len(score.distinct_within):,} of {len(score.distinct):,}",
            f"{score.method.worst_line():.1%}",
            f"{score.method.paid:,}",
            f"{1e3 * score.seconds / max(score.asked, 1):.3f}",
        )
    console.print(table)
    for score in scores:
        if isinstance(score.method, EngineMethod) and score.method.name == "calibrated":
            paths = ", ".join(f"{path} {n:,}" for path, n in sorted(score.method.paths.items()))
            console.print(f"  {score.method.name}: {paths}")
    console.print(f"  peak memory of this process {_peak_mib():,.0f} MiB")


def verdict(what: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> str:
    """A threshold, and whether it was reached."""
    limit = f"at most {most:g}" if math.isinf(least) else f"at least {least:g}"
    reached = "reached" if least <= value <= most else "NOT REACHED"
    return f"{reached}: {what} {value:.5g}, {limit}"


def console() -> Console:
    """As wide as the terminal, or wide enough for the table where there is none."""
    return Console() if Console().is_terminal else Console(width=140)


def _peak_mib() -> float:
    """Largest resident memory so far (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
