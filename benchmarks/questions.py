"""Ordinary questions to three tables: which answers somebody can decide something with, and what they cost.

    python benchmarks/questions.py [adult.csv.gz] [nycflights13.csv.gz] [--seed 1] [--aim 0.1]

No question names an error or a price. *people* is a census in one phase, whose rows are protected. *hospital*
are invented admissions in twelve months, and *flights* departures in 90 days. Both protect persons, of whom
one row counts in a phase. Each question is asked once, in this order, of the engine.

*truth* is a typical figure, and *bar* the widest bar of the figures that count. *part* is the bar as a part
of that figure: a decision can rest on a part of 25% at the most. *paid* and *a tenth* are shares of the line
(a block's privacy budget) that pays most.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table as Printed
from workloads import DATA, console

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Quantiles,
    Summed,
    TableAnswered,
    use_of_outcome,
)
from stream_dp.core.queries.conditions import compile_rank, compile_share, compile_total
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven
from stream_dp.messages import Definition
from stream_dp.profiles.builder import build

USABLE = 0.25
"""The largest bar, as a part of the figure, that a decision can rest on."""

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass
class Data:
    """One table in the engine.

    Attributes:
        columns: The values of the rows, by the name of the column, as a definition reads them.
        phases: The phase of each row.
    """

    name: str
    columns: Columns
    phases: npt.NDArray[np.int64]
    engine: Calibrated
    universe: Universe
    driven: Driven
    blocks: Blocks
    opened: float = 0.0

    @classmethod
    def of(
        cls,
        name: str,
        attributes: Sequence[Mapping[str, Any]],
        columns: Columns,
        phases: npt.NDArray[np.int64],
        privacy: Mapping[str, Any],
        accuracy: Mapping[str, Any],
        seed: int,
    ) -> Data:
        """Opens all phases of a table."""
        definition = Definition.read(
            {
                "version": 1,
                "dataset": name,
                "attributes": list(attributes),
                "privacy": privacy,
                "accuracy": accuracy,
                "phase": {"min_rows": 100},
            }
        )
        universe, engine = build(definition)
        assert isinstance(engine, Calibrated), "it is the default profile"
        driven = Driven(engine, SeededNoise(np.random.default_rng([seed, 71])))
        data = cls(name, columns, phases, engine, universe, driven, Blocks(universe))
        unit = definition.privacy.unit
        for phase in range(int(phases.max()) + 1):
            here = phases == phase
            rows = {key: column[here].tolist() for key, column in columns.items()}
            persons = None
            if unit is not None:  # of each person one row counts: each row is another person's
                persons = Persons(unit.key, bytes(32), f"{phase}")
                rows[unit.key] = [f"{i}" for i in range(int(here.sum()))]
            encoded = universe.encode_columns(rows, persons)
            counted = None if persons is None else np.ones(int(here.sum()), dtype=np.bool_)
            data.blocks.append(Block.seal(universe, encoded, counted=counted))
            driven.open_phase(int(here.sum()), data.blocks)
        data.opened = data.spent
        return data

    @property
    def window(self) -> range:
        return range(len(self.blocks))

    @property
    def spent(self) -> float:
        """The share of the line that has paid most."""
        return self.engine.lines.worst(self.window).rho / UNITS

    def by(self, *names: str) -> tuple[int, ...]:
        return tuple(self.universe.index(name) for name in names)

    def exact(
        self, attributes: tuple[int, ...], window: range | None = None
    ) -> npt.NDArray[np.int64]:
        """The exact table over some attributes, ascending."""
        window = self.window if window is None else window
        return np.asarray(self.blocks.marginal(tuple(sorted(attributes)), window).sum(axis=0))

    def ask(self, query: LinearQuery) -> tuple[Outcome, float]:
        """The answer, and what it took of the line that paid most for it."""
        before = [self.engine.lines.worst(range(b, b + 1)).rho for b in query.window]
        outcome = self.driven.ask(query, self.blocks)
        after = [self.engine.lines.worst(range(b, b + 1)).rho for b in query.window]
        return outcome, max(a - b for a, b in zip(after, before, strict=True)) / UNITS


@dataclass
class Answer:
    """What one question came to.

    Attributes:
        truths: The exact figures, shape (n,).
        found: The published ones. NaN where none is.
        bars: Their half widths.
        sizes: What a bar is compared with.
        weights: The rows of each figure: those that hold 80% of them count.
        paid: The share of the line that paid most.
    """

    truths: npt.NDArray[np.float64]
    found: npt.NDArray[np.float64]
    bars: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    paid: float
    outcome: Outcome | None = None
    missed: int = field(init=False)

    def __post_init__(self) -> None:
        told = np.isfinite(self.bars)
        off = np.abs(self.found - self.truths)[told] - self.bars[told]
        self.missed = int((off > 1e-9 * np.abs(self.truths[told]) + 1e-9).sum())

    @property
    def counting(self) -> npt.NDArray[np.bool_]:
        """The figures that hold 80% of the rows, and those as large."""
        falling = -np.sort(-self.weights)
        least = falling[np.searchsorted(np.cumsum(falling), 0.8 * falling.sum() * (1 - 1e-12))]
        return np.asarray(self.weights >= least)

    @property
    def part(self) -> float:
        """The widest bar as a part of its figure, by the exact sizes."""
        counting = self.counting
        if (
            self.bars[counting] == self.bars[counting][0]
        ).all():  # all figures have one bar: the typical one counts
            return float(self.bars[counting][0] / self.sizes[counting].min())
        return float((self.bars[counting] / self.sizes[counting]).max())


def table(data: Data, names: Sequence[str], window: range | None = None) -> Answer:
    """How many rows there are in each group; one group without names."""
    window = data.window if window is None else window
    outcome, paid = data.ask(LinearQuery(EVERYTHING, window, data.by(*names)))
    assert isinstance(outcome, Answered | TableAnswered), outcome
    cells = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
    truth = data.exact(data.by(*names), window)
    order = np.argsort(np.argsort(data.by(*names)))
    truths = (truth.transpose(order) if names else truth).reshape(-1).astype(float)
    bars = [math.inf if c.error_bar is None else c.error_bar * c.n for c in cells]
    found = np.array([c.count for c in cells])
    return Answer(truths, found, np.array(bars), truths, truths, paid, outcome)


def summed(data: Data, name: str, names: Sequence[str], *, mean: bool) -> Answer:
    """The sum, or the mean, of a number in each group."""
    total, _, predicate = compile_total(data.universe, name, None, tuple(names))
    query = LinearQuery(predicate, data.window, data.by(*names), total, target=Target(of_mean=mean))
    outcome, paid = data.ask(query)
    assert isinstance(outcome, Summed), outcome
    counts, totals = exact_sums(data, total, names, predicate.mask)
    if not mean:
        found = np.array([cell.total for cell in outcome.cells])
        bars = np.array([math.inf if c.total_bar is None else c.total_bar for c in outcome.cells])
        return Answer(totals, found, bars, np.abs(totals), np.abs(totals), paid, outcome)
    low, high = ends(total)
    means = totals / np.maximum(counts, 1)
    found = np.array([math.nan if c.mean is None else c.mean for c in outcome.cells])
    bars = np.array([math.inf if c.mean_bar is None else c.mean_bar for c in outcome.cells])
    sizes = np.minimum(means - low, high - means)
    return Answer(means, found, bars, sizes, counts, paid, outcome)


def medians(data: Data, name: str, names: Sequence[str]) -> Answer:
    """The rank of the middle row of each group: a median is usable whose rank is within 12.5%."""
    rank, predicate = compile_rank(data.universe, name, 0.5, None, names)
    outcome, paid = data.ask(LinearQuery(predicate, data.window, data.by(*names), rank=rank))
    assert isinstance(outcome, Quantiles), outcome
    (group,) = data.by(*names)
    counts = data.exact((group, rank.attribute)).astype(float)
    counts = counts if group < rank.attribute else counts.T
    middles = (counts.cumsum(axis=1) < 0.5 * counts.sum(axis=1, keepdims=True)).sum(axis=1)
    lies_in = [(cell.first, cell.last) for cell in outcome.cells]
    found = np.array([np.clip(bin_, *cell) for bin_, cell in zip(middles, lies_in, strict=True)])
    rows = counts.sum(axis=1)
    bars = np.array([math.inf if cell.bar is None else cell.bar for cell in outcome.cells])
    assert bars.shape == rows.shape
    off = np.where(found == middles, 0.0, math.inf)  # a bin outside of those shown is a miss
    return Answer(np.zeros(len(rows)), off, bars, 0.5 * rows, rows, paid, outcome)


def share(
    data: Data, share_of: dict[str, Any], names: Sequence[str], window: range | None = None
) -> Answer:
    """Which share of the rows of each group satisfies a condition; one group without names."""
    window = data.window if window is None else window
    part, predicate = compile_share(data.universe, share_of, None)
    outcome, paid = data.ask(LinearQuery(predicate, window, data.by(*names), part))
    assert isinstance(outcome, Summed), outcome
    (other,) = part.predicate.attributes
    both = data.exact((*data.by(*names), other), window)
    if not names:
        both = both[None]
    elif data.by(*names)[0] > other:
        both = both.T
    counts = both.sum(axis=1).astype(float)
    truths = both[:, part.predicate.mask].sum(axis=1) / np.maximum(counts, 1)
    found = np.array([math.nan if c.mean is None else c.mean for c in outcome.cells])
    bars = np.array([math.inf if c.mean_bar is None else c.mean_bar for c in outcome.cells])
    return Answer(truths, found, bars, np.maximum(truths, 0.2), counts, paid, outcome)


def changes(data: Data) -> Answer:
    """By how much the number of rows changes from phase to phase. The looks at two phases are independent."""
    each = [table(data, (), range(block, block + 1)) for block in data.window]
    found, truths, bars = (
        np.array([getattr(one, name)[0] for one in each]) for name in ("found", "truths", "bars")
    )
    sizes = np.maximum(truths[1:], truths[:-1])
    paid = max(one.paid for one in each)
    return Answer(
        np.diff(truths),
        np.diff(found),
        np.hypot(bars[1:], bars[:-1]),
        sizes,
        sizes,
        paid,
        each[0].outcome,
    )


def months(ask: Callable[[range], Answer]) -> Answer:
    """The same of each of the three months of flights, as a series is asked."""
    each = [ask(window) for window in (range(31), range(31, 59), range(59, 90))]
    truths, found, bars, sizes, weights = (
        np.concatenate([getattr(one, name) for one in each])
        for name in ("truths", "found", "bars", "sizes", "weights")
    )
    paid = max(one.paid for one in each)
    return Answer(truths, found, bars, sizes, weights, paid, each[0].outcome)


def exact_sums(
    data: Data, total: Any, names: Sequence[str], counting: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The exact counts and sums of each group, of the values that the definition keeps."""
    attributes = tuple(sorted({total.attribute, *data.by(*names)}))
    counts = data.exact(attributes).astype(float)
    if total.kept is None:
        along = [-1 if a == total.attribute else 1 for a in attributes]
        totals = counts * np.array(total.values).reshape(along)
    else:
        totals = np.zeros(counts.shape)
        for block in data.window:
            (above,) = data.blocks.totals(total.attribute, attributes, range(block, block + 1))
            totals += total.kept.unit * above
        totals += total.kept.unit * total.kept.base * counts
    axis = attributes.index(total.attribute)
    if counting.ndim:  # rows without a number are left out
        counts, totals = (np.compress(counting, each, axis) for each in (counts, totals))
    return counts.sum(axis=axis).reshape(-1), totals.sum(axis=axis).reshape(-1)


def ends(total: Any) -> tuple[float, float]:
    """The least and the largest value that a row can count for."""
    if total.kept is None:
        return min(total.values), max(total.values)
    numbers = [total.kept.unit * end for pair in total.kept.ends for end in pair]
    return min(numbers), max(numbers)


# ---------------------------------------------------------------- the tables


def number(name: str, edges: Sequence[float], **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "number", "edges": list(edges), **more}


def category(name: str, n: int, **more: Any) -> dict[str, Any]:
    values = [f"{name} {i}" for i in range(n)]
    return {"name": name, "type": "category", "values": values, "other": False, **more}


def named(name: str, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    return np.array([f"{name} {code}" for code in codes], dtype=object)


def people(path: Path, accuracy: Mapping[str, Any], seed: int) -> Data:
    """The census table: 48,842 people in one phase, whose rows are protected."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=np.int64)
    names = ["age", "workclass", "fnlwgt", "education", "marital", "occupation", "relationship"]
    names += ["race", "sex", "gain", "loss", "hours", "country", "income"]
    codes = dict(zip(names, rows.T, strict=True))
    sizes = {
        "workclass": 9,
        "education": 16,
        "marital": 7,
        "occupation": 15,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "country": 42,
        "income": 2,
    }
    attributes = [
        number("age", [20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90], integer=True),
        *(category(name, n) for name, n in sizes.items()),
        number(
            "gain",
            [1, 5000, 10_000, 20_000, 50_000],
            measure={"unit": 1, "low": 0, "high": 100_000},
        ),
        number(
            "hours",
            [20, 30, 35, 40, 41, 50, 60, 80],
            measure={"unit": 1, "low": 0, "high": 100},
        ),
    ]
    columns = {name: named(name, codes[name]) for name in sizes}
    columns |= {
        "age": codes["age"] + 17.0,
        "gain": codes["gain"] * 1000.0,
        "hours": codes["hours"] + 1.0,
    }
    privacy = {"epsilon": 1.0, "delta": 1e-9}
    phases = np.zeros(len(rows), dtype=np.int64)
    said = {**accuracy, "error": 0.02}
    return Data.of("people", attributes, columns, phases, privacy, said, seed)


def hospital(accuracy: Mapping[str, Any], seed: int) -> Data:
    """44,400 invented admissions in 12 months; persons are protected, in any 12 months."""
    rng, months, a_month = np.random.default_rng(7), 12, 3700
    n = a_month * months
    wards = rng.choice(12, n, p=rng.dirichlet(np.ones(12) * 6))
    hours = np.r_[np.ones(6) * 0.02, np.ones(12) * 0.06, np.ones(6) * 0.0267]
    ward = wards
    stay = np.round(rng.lognormal(1.2 + 0.3 * (ward == 7) - 0.5 * (ward == 8), 0.8, n), 1)
    days = np.array([1.1] * 5 + [0.75] * 2)
    columns = {
        "ward": named("ward", wards),
        "age": np.clip(rng.normal(58, 22, n), 0, 101),
        "weekday": named("weekday", rng.choice(7, n, p=days / days.sum())),
        "hour": named("hour", rng.choice(24, n, p=hours / hours.sum())),
        "stay": stay,
        "type": named("type", (rng.random(n) < np.where(np.isin(ward, (7, 8)), 0.9, 0.35)) * 1),
    }
    attributes = [
        category("ward", 12),
        number("age", [1, 6, 18, 30, 40, 50, 60, 70, 80, 90]),
        category("weekday", 7),
        category("hour", 24),
        number(
            "stay",
            [1, 2, 3, 4, 5, 7, 10, 14, 21, 30],
            measure={"unit": 0.1, "low": 0, "high": 60},
        ),
        category("type", 2),
    ]
    unit = {"key": "patient", "rows_per_phase": 1, "phases": 12}
    privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": unit}
    phases = np.repeat(np.arange(months), a_month)
    said = {**accuracy, "error": 0.05}
    return Data.of("hospital", attributes, columns, phases, privacy, said, seed)


def flights(path: Path, accuracy: Mapping[str, Any], seed: int) -> Data:
    """Departures from New York, a phase a day; planes are protected, one flight a day, in any 7 days."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["month"]) <= 3]
    keep = np.random.default_rng(1).random(len(rows)) < 0.6  # one flight of a plane a day
    rows = [row for row, kept in zip(rows, keep, strict=True) if kept]
    carriers = sorted({row["carrier"] for row in rows})
    delays = np.array([float(row["arr_delay"] or "nan") for row in rows])
    columns = {
        "carrier": np.array([row["carrier"] for row in rows], dtype=object),
        "origin": np.array([row["origin"] for row in rows], dtype=object),
        "distance": np.array([float(row["distance"]) for row in rows]),
        "delay": np.array([None if math.isnan(d) else d for d in delays], dtype=object),
    }
    attributes = [
        {"name": "carrier", "type": "category", "values": carriers, "other": False},
        {"name": "origin", "type": "category", "values": ["EWR", "JFK", "LGA"], "other": False},
        number("distance", [250, 500, 1000, 1500, 2000, 2500]),
        number(
            "delay",
            [-30, -15, 0, 15, 30, 60, 120],
            missing=True,
            measure={"unit": 1, "low": -60, "high": 180},
        ),
    ]
    unit = {"key": "plane", "rows_per_phase": 1, "phases": 7}
    privacy = {"epsilon": 2.0, "delta": 1e-9, "unit": unit}
    days = np.array([date(row) for row in rows])
    phases = np.searchsorted(np.unique(days), days)
    said = {**accuracy, "error": 0.10}
    return Data.of("flights", attributes, columns, phases, privacy, said, seed)


def date(row: Mapping[str, str]) -> int:
    return int(row["month"]) * 100 + int(row["day"])


# ---------------------------------------------------------------- the questions

Asked = tuple[int, str, Callable[[], Answer]]


def questions(a: Data, h: Data, f: Data) -> Iterator[Asked]:
    """Those of the twenty that prices decide and that one query of a kind answers: number, words, and how."""
    married = {"attribute": "marital", "in": ["marital 0", "marital 1", "marital 2"]}
    late = {"attribute": "delay", "ge": 30}
    yield 1, "people: how many are there?", lambda: table(a, ())
    yield 3, "people: average age", lambda: summed(a, "age", (), mean=True)
    yield 5, "people: median age by education", lambda: medians(a, "age", ("education",))
    yield 7, "people: by occupation", lambda: table(a, ("occupation",))
    yield 9, "people: by age", lambda: table(a, ("age",))
    yield 15, "people: gain by marital", lambda: summed(a, "gain", ("marital",), mean=False)
    yield 17, "people: share married, by race", lambda: share(a, married, ("race",))
    yield 19, "hospital: by ward", lambda: table(h, ("ward",))
    yield 21, "hospital: mean stay by ward", lambda: summed(h, "stay", ("ward",), mean=True)
    yield 23, "hospital: change by month", lambda: changes(h)
    yield 29, "hospital: weekday and hour", lambda: table(h, ("weekday", "hour"))
    yield 31, "hospital: by ward again", lambda: table(h, ("ward",))
    yield 35, "flights: by month", lambda: months(lambda window: table(f, (), window))
    yield (
        35,
        "flights: share late, by month",
        lambda: months(lambda window: share(f, late, (), window)),
    )
    yield 39, "flights: by carrier", lambda: table(f, ("carrier",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adult", type=Path, nargs="?", default=DATA / "adult.csv.gz")
    parser.add_argument("flights", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--aim", type=float, default=0.1)
    asked = parser.parse_args()
    accuracy = {"failure_probability": 0.01, "aim": asked.aim}
    tables = (
        people(asked.adult, accuracy, asked.seed),
        hospital(accuracy, asked.seed),
        flights(asked.flights, accuracy, asked.seed),
    )
    printed = Printed(*("", "question", "truth", "bar", "part", "useful", "paid", "a tenth"))
    usable, missed, figures, n = 0, 0, 0, 0
    for place, words, ask in questions(*tables):
        answer = ask()
        use = None if answer.outcome is None else use_of_outcome(answer.outcome)
        counting = answer.counting
        usable, n = usable + (answer.part <= USABLE), n + 1
        missed, figures = missed + answer.missed, figures + int(np.isfinite(answer.bars).sum())
        printed.add_row(
            str(place),
            words,
            f"{np.median(answer.sizes[counting]):,.4g}",
            f"{np.max(answer.bars[counting]):,.4g}",
            f"{answer.part:.1%}",
            "" if use is None else use.useful.value,
            f"{answer.paid:.2%}",
            "" if use is None or use.aim_price is None else f"{use.aim_price:.1%}",
        )
    out = console()
    out.print(printed)
    out.print(f"usable: {usable} of {n}; bars that miss: {missed} of {figures}")
    for data in tables:
        out.print(f"{data.name}: opening {data.opened:.2%}, most spent of a line {data.spent:.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
