"""The same streams through stream_dp and through its peers as published, each in its own environment.

    python benchmarks/peers.py [nycflights13.csv.gz] [--peer opendp smartnoise] [--stream flights orders]

``flights`` is W4's first months with 1,000 queries each, and ``orders`` the fifty tiles asked every day.
``make bench-peers`` makes the environments first. A peer without one is left out, and the table says so.
Answers are scored here, from the benchmark's own public files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from drivers.protocol import Attribute, Columns, Promise, Query, Stream
from rich.table import Table
from tiles import ORDERS, orders, tiles
from workloads import (
    DATA,
    FAILURE_PROBABILITY,
    FLIGHTS,
    PRIVACY,
    console,
    flight_queries,
    flights_by_month,
)

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import Predicate
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "peers"


@dataclass(frozen=True)
class Run:
    """One line of the table: a driver with an option, and the environment that it runs in."""

    driver: str
    environment: str | None = None
    option: str = ""

    @property
    def name(self) -> str:
        return f"{self.driver} {self.option}".strip()

    @property
    def python(self) -> Path:
        """The interpreter; the one that runs this for a driver without an environment of its own."""
        if self.environment is None:
            return Path(sys.executable)
        return BUILD / self.environment / "bin" / "python"


RUNS = (
    Run("stream_dp_engine"),
    Run("stream_dp_engine", option="0"),
    Run("plain"),
    Run("opendp_context", "opendp"),
    Run("opendp_context", "opendp", "phases"),
    Run("smartnoise", "smartnoise"),
    Run("smartnoise", "smartnoise", "zcdp"),
    Run("pipeline_dp", "pipelinedp"),
    Run("pipeline_dp", "pipelinedp", "zcdp"),
    Run("tumult", "tumult"),
    Run("qrlew", "qrlew"),
)


# ---------------------------------------------------------------- streams


def flights_stream(path: Path, *, months: int, queries: int, error: float) -> Stream:
    """The first months of W4; each query is about whole cells, so it travels as lists of cells."""
    batches = flights_by_month(path)[:months]
    asked: list[Query] = []
    for month in range(months):
        for each in flight_queries(1, month, queries):
            where = _cells(FLIGHTS, compile_where(FLIGHTS, each.where))
            asked.append(Query(len(asked), month, each.window(month + 1).start, where))
    phases = [_columns(FLIGHTS, FLIGHTS.encode_columns(batch)) for batch in batches]
    return Stream("flights", _promise(error), _attributes(FLIGHTS), phases, asked)


def orders_stream(*, days: int, n_rows: int, error: float) -> Stream:
    """The fifty tiles of ``benchmarks/tiles.py`` after each day."""
    asked: list[Query] = []
    for day in range(days):
        for tile in tiles():
            first = 0 if tile.phases is None else max(0, day + 1 - tile.phases)
            where = _cells(ORDERS, tile.query.predicate)
            by = tuple(ORDERS.names[attribute] for attribute in tile.query.group_by)
            asked.append(Query(len(asked), day, first, where, by))
    phases = [
        _columns(ORDERS, orders(np.random.default_rng([5, day]), n_rows)) for day in range(days)
    ]
    return Stream(f"orders-{n_rows}", _promise(error), _attributes(ORDERS), phases, asked)


def _cells(universe: Universe, predicate: Predicate) -> dict[str, tuple[int, ...]]:
    """The cells that a conjunction selects of each attribute."""
    assert predicate.factors is not None, "these workloads ask conjunctions"
    return {
        universe.names[attribute]: tuple(map(int, np.flatnonzero(factor)))
        for attribute, factor in zip(predicate.attributes, predicate.factors, strict=True)
    }


def _promise(error: float) -> Promise:
    rho = float(Budget.of(PRIVACY).rho)
    return Promise(PRIVACY.epsilon, PRIVACY.delta, rho, error, FAILURE_PROBABILITY)


def _attributes(universe: Universe) -> tuple[Attribute, ...]:
    return tuple(Attribute(a.name, a.size, isinstance(a, Number)) for a in universe.attributes)


def _columns(universe: Universe, rows: Rows) -> Columns:
    return {name: codes.tolist() for name, codes in zip(universe.names, rows.codes, strict=True)}


# ---------------------------------------------------------------- scores


class Truth:
    """Exact answers, counted from the rows that the drivers get."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._columns = [
            {name: np.array(cells) for name, cells in columns.items()} for columns in stream.phases
        ]

    def counts(self, query: Query) -> npt.NDArray[np.int64]:
        """The numbers of the exact answer, row-major in the order of ``query.by``."""
        total = np.zeros(self._stream.n_cells(query), dtype=np.int64)
        for phase in query.window:
            columns = self._columns[phase]
            counted = np.ones(self._stream.sizes[phase], dtype=np.bool_)
            for name, cells in query.where.items():
                holds = np.zeros(self._stream.attribute(name).size, dtype=np.bool_)
                holds[list(cells)] = True
                counted &= holds[columns[name]]
            cell = np.zeros(len(counted), dtype=np.int64)
            for name in query.by:
                cell = cell * self._stream.attribute(name).size + columns[name]
            total += np.bincount(cell[counted], minlength=len(total))
        return total


@dataclass
class Tally:
    """What one peer made of a stream.

    Attributes:
        asked: Queries that it was asked; fewer than the stream has if it ran out of time.
        answered: Those that it answered, repeats included.
        fresh: Those that it paid for.
        numbers: Numbers in these answers.
        outside: Numbers that were further off than the error.
        within: Queries all of whose numbers were within it.
        refused: The other queries, by reason.
        spent: Share of its budget that the fullest phase has spent.
        seconds: Time for all queries, without opening phases.
        opening: Time for opening phases.
        stopped: Whether it ran out of time.
    """

    peer: str
    accounting: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    fresh: int = 0
    numbers: int = 0
    outside: int = 0
    within: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    spent: float = 0.0
    seconds: float = 0.0
    opening: float = 0.0
    stopped: bool = False

    @property
    def ms_a_query(self) -> float:
        """Milliseconds a query that was answered, repeats included."""
        return 1e3 * self.seconds / max(self.answered, 1)


def score(stream: Stream, truth: Truth, answers: Path) -> Tally:
    """Reads what a driver wrote.

    Raises:
        ValueError: The driver did not come to an end, or answered something else than it was asked.
    """
    with answers.open(encoding="utf-8") as file:
        lines: list[dict[str, Any]] = [json.loads(line) for line in file]
    if len(lines) < 2 or "spent" not in lines[-1]:
        raise ValueError(f"{answers.name} has no end")
    about, *records, last = lines
    tally = Tally(about["peer"], about["accounting"], about["versions"])
    tally.spent, tally.opening, tally.stopped = last["spent"], last["opening"], last["stopped"]
    if not tally.stopped and len(records) != len(stream.queries):
        raise ValueError(f"{answers.name} has {len(records)} of {len(stream.queries)} answers")
    for query, record in zip(stream.queries, records, strict=False):
        if record["number"] != query.number:
            raise ValueError(f"{answers.name} answers {record['number']} for {query.number}")
        tally.asked += 1
        tally.seconds += record["seconds"]
        if "values" not in record:
            reason = record["refused"]
            tally.refused[reason] = tally.refused.get(reason, 0) + 1
            continue
        tally.answered += 1
        tally.fresh += not record["cached"]
        margin = stream.promise.error * stream.n_rows(query.window)
        off = np.abs(np.array(record["values"]) - truth.counts(query)) > margin
        tally.numbers += off.size
        tally.outside += int(off.sum())
        tally.within += not off.any()
    tally.fresh = last.get("paid", tally.fresh)
    return tally


# ---------------------------------------------------------------- running


def send(run: Run, folder: Path, seconds: float) -> Path:
    """Runs a driver on the stream in ``folder``.

    Returns:
        The file with the answers.

    Raises:
        subprocess.CalledProcessError: The driver failed; what it printed stands in the file next to it.
    """
    answers = folder / f"{run.name.replace(' ', '-')}.jsonl"
    answers.unlink(missing_ok=True)
    command = [str(run.python), "-m", f"drivers.{run.driver}", str(folder), str(answers)]
    command += ["--seconds", str(seconds), "--option", run.option]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    with answers.with_suffix(".log").open("w", encoding="utf-8") as log:
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=log, stderr=log)
    return answers


def tallies(runs: Sequence[Run], stream: Stream, seconds: float) -> Iterator[Tally]:
    """Sends the stream through one peer after the other, so that none slows down another."""
    folder = BUILD / "streams" / stream.name
    stream.write(folder)
    truth = Truth(stream)
    for run in runs:
        if not run.python.exists():
            yield Tally(run.name, "has no environment")
            continue
        try:
            yield score(stream, truth, send(run, folder, seconds))
        except subprocess.CalledProcessError as failure:
            yield Tally(run.name, f"failed with {failure.returncode}, see its log")


COLUMNS = (
    "asked",
    "answered",
    "all numbers within",
    "numbers outside",
    "paid for",
    "budget spent",
    "ms a query",
    "accounting",
)


def row(tally: Tally) -> list[str]:
    """One line of the table: the peer, and what stands under ``COLUMNS``."""
    if not tally.asked:
        return [tally.peer, *[""] * (len(COLUMNS) - 1), tally.accounting]
    outside = f"{tally.outside:,} of {tally.numbers:,}"
    return [
        tally.peer,
        f"{tally.asked:,}" + (" (time)" if tally.stopped else ""),
        f"{tally.answered:,}",
        f"{tally.within:,}",
        outside,
        f"{tally.fresh:,}",
        f"{tally.spent:.1%}",
        f"{tally.ms_a_query:,.2f}" if tally.answered else "",
        tally.accounting,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument("--peer", nargs="+", help="the drivers to run, by the start of their names")
    parser.add_argument("--stream", nargs="+", choices=["flights", "orders"])
    parser.add_argument("--months", type=int, default=3)
    parser.add_argument("--queries", type=int, default=1000, help="a month")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--rows", type=int, default=20_000, help="orders a day")
    parser.add_argument("--error", type=float, default=0.01, help="of the flights")
    parser.add_argument("--orders-error", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=600.0, help="the most for one peer")
    asked = parser.parse_args()
    runs = [r for r in RUNS if not asked.peer or any(r.name.startswith(p) for p in asked.peer)]
    out = console()
    streams: list[Stream] = []
    if not asked.stream or "flights" in asked.stream:
        streams.append(
            flights_stream(
                asked.data, months=asked.months, queries=asked.queries, error=asked.error
            )
        )
    if not asked.stream or "orders" in asked.stream:
        streams.append(orders_stream(days=asked.days, n_rows=asked.rows, error=asked.orders_error))
    for stream in streams:
        promise = stream.promise
        table = Table(
            title=f"{stream.name}: {len(stream.queries):,} queries, {len(stream.phases)} phases, "
            f"error {promise.error:g}, beta {promise.failure_probability:g}, "
            f"epsilon {promise.epsilon:g}, delta {promise.delta:g}"
        )
        for column in ("peer", *COLUMNS):
            table.add_column(
                column, justify="left" if column in ("peer", "accounting") else "right"
            )
        versions: dict[str, str] = {}
        for tally in tallies(runs, stream, asked.seconds):
            out.print(f"  {' | '.join(row(tally))}", highlight=False)
            table.add_row(*row(tally))
            versions |= tally.versions
            for reason, n in tally.refused.items():
                if reason != "budget":
                    out.print(f"    {n:,} not answered: {reason}")
        out.print(table)
        out.print("  " + ", ".join(f"{name} {v}" for name, v in sorted(versions.items())))


if __name__ == "__main__":
    main()
