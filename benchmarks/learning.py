"""The plan that learns, next to fixed settings: streams of queries over tables that grow, the engine alone.

python benchmarks/learning.py [--data ../shared/data] [--streams "people .02" ...] [--loads heavy tiles few]
                              [--plans learned best today] [--seed 1] [--kept build/learning.jsonl]

Heavy streams ask different conjunctions of one to three conditions in each phase. The others are fifty tiles
that come again in each phase, and five queries a phase. A query counts as answered if the answer keeps its
promise. Each stream goes through the plan that learns, what is measured while nothing is known of the
queries, and a grid of fixed settings. What counts is the ratio, from the third phase on. What a run has
found is kept in a file, so a benchmark that was stopped goes on. The last column of the table has what the
plan that learns has spent, and the one that it is compared with.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
from rich.table import Table
from workloads import ADULT, DATA, FLIGHTS, PRIVACY, adult, console, flights_by_month, verdict

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import Path as AnswerPath
from stream_dp.core.outcome import Refused
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.trial import Driven

ORDERS: Final = Universe(
    (
        Category("country", tuple(f"c{i}" for i in range(12)), other=False),
        Number("amount", tuple(range(10, 130, 10)), integer=True),
        Category("category", tuple(f"k{i}" for i in range(40)), other=False),
        Category("status", tuple(f"s{i}" for i in range(5)), other=False),
    )
)

ALL: Final = None
RECENT: Final = "recent"
"""Half of the queries are about all phases, and half about the last one to six."""

MEAN: Final = 0.95
EACH: Final = 0.93
"""The least part of the best fixed setting's answers: in the mean over the heavy streams, and in each."""

LIGHT: Final = 0.95
"""The least part of today's answers under light loads."""

Stream = Callable[[int], list[LinearQuery]]
Phases = tuple[Universe, Sequence[Rows]]


@dataclass(frozen=True)
class Setting:
    """One table that grows, and how it is asked.

    Attributes:
        phases: Returns the schema and the rows of each phase.
        error: The error, as a share of the rows asked.
        queries: The queries of each phase of the heavy stream.
        windows: The lengths of windows, with None for all phases; or ``RECENT``.
        stream: Makes the heavy stream. Default: conjunctions on one to three attributes.
        light: Whether it is asked the light loads too.
    """

    phases: Callable[[Path], Phases]
    error: float
    queries: int
    windows: Any
    stream: Callable[..., Stream] | None = None
    light: bool = False


@dataclass
class Score:
    """What one plan has done: answers and opening of each phase, and the spending of each line."""

    answered: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    spent: float = 0.0
    seconds: float = 0.0

    @property
    def later(self) -> int:
        """Answers from the third phase on."""
        return sum(self.answered[2:])


# ---------------------------------------------------------------- rows


def people(n: int, data: Path) -> Phases:
    columns = adult(data / "adult.csv.gz")
    order = np.random.default_rng(7).permutation(len(columns["age"]))
    parts = np.array_split(order, n)
    rows = [{name: [v[i] for i in part] for name, v in columns.items()} for part in parts]
    return ADULT, [ADULT.encode_columns(one) for one in rows]


def weeks(n: int, data: Path) -> Phases:
    found: list[dict[str, list[object]]] = [{k: [] for k in FLIGHTS.names} for _ in range(n)]
    with gzip.open(data / "nycflights13.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            day = date(2013, int(row["month"]), int(row["day"])).timetuple().tm_yday
            week = found[min(n - 1, (day - 1) // 7)]
            week["carrier"].append(row["carrier"])
            week["origin"].append(row["origin"])
            week["hour"].append(int(row["sched_dep_time"]) // 100)
            week["arr_delay"].append(int(row["arr_delay"]) if row["arr_delay"] else None)
            week["distance"].append(int(row["distance"]))
    return FLIGHTS, [FLIGHTS.encode_columns(one) for one in found]


def months(data: Path) -> Phases:
    found = flights_by_month(data / "nycflights13.csv.gz")
    return FLIGHTS, [FLIGHTS.encode_columns(one) for one in found]


def orders(n: int, n_rows: int, data: Path) -> Phases:
    """Rows whose columns hang together: a common number decides two fifths of the cells."""
    del data
    rng, phases = np.random.default_rng(3), []
    for _ in range(n):
        common = rng.random(n_rows)
        columns: dict[str, list[object]] = {}
        for attribute in ORDERS.attributes:
            shares = np.cumsum(1.0 / np.arange(1, attribute.size + 1))
            drawn = np.where(rng.random(n_rows) < 0.4, common, rng.random(n_rows))
            cells = np.searchsorted(shares[:-1] / shares[-1], drawn, side="right")
            if isinstance(attribute, Category):
                columns[attribute.name] = [attribute.values[c] for c in cells]
            else:
                columns[attribute.name] = [int(10 * c + 5) for c in cells]
        phases.append(ORDERS.encode_columns(columns))
    return ORDERS, phases


# ---------------------------------------------------------------- queries


def conjunction(
    universe: Universe, rng: np.random.Generator, among: Sequence[int], most: int = 3
) -> Predicate:
    """A conjunction over some of the attributes, each with one cell or a set of any size."""
    k = min(int(rng.choice(range(1, most + 1))), len(among))
    factors = {}
    for a in rng.choice(among, k, replace=False):
        size = universe.shape[a]
        mask = np.zeros(size, dtype=bool)
        if rng.random() < 0.5:
            mask[rng.integers(size)] = True
        else:
            mask[rng.choice(size, rng.integers(1, size), replace=False)] = True
        factors[int(a)] = mask
    return Predicate.conjunction(factors)


def window(rng: np.random.Generator, phase: int, windows: Any) -> range:
    if windows == RECENT:
        return range(0 if rng.random() < 0.5 else max(0, phase - int(rng.integers(1, 7))), phase)
    length = windows[rng.integers(len(windows))]
    return range(0 if length is ALL else max(0, phase - length), phase)


def heavy(universe: Universe, n: int, windows: Any, seed: int) -> Stream:
    """``n`` queries a phase, all different."""
    every = range(len(universe.shape))

    def of(phase: int) -> list[LinearQuery]:
        rng = np.random.default_rng([seed, phase])
        return [
            LinearQuery(conjunction(universe, rng, every), window(rng, phase, windows))
            for _ in range(n)
        ]

    return of


def turning(universe: Universe, n: int, windows: Any, seed: int) -> Stream:
    """The same about two attributes alone, and from the ninth phase on about two others."""

    def of(phase: int) -> list[LinearQuery]:
        rng, among = np.random.default_rng([seed, phase]), (0, 3) if phase < 9 else (1, 2)
        return [
            LinearQuery(conjunction(universe, rng, among), window(rng, phase, windows))
            for _ in range(n)
        ]

    return of


def bursts(universe: Universe, n: int, windows: Any, seed: int) -> Stream:
    """``n`` queries in every third phase, and a tenth of that in the others."""
    many, few = heavy(universe, n, windows, seed), heavy(universe, n // 10, windows, seed)
    return lambda phase: (few if phase % 3 else many)(phase)


def tiles(universe: Universe, n: int, seed: int) -> Stream:
    """The same tiles after each phase: tables of one or two columns and filters; last phase, 7, all."""
    rng = np.random.default_rng(seed)
    found: list[tuple[Predicate, tuple[int, ...], int | None]] = []
    for i in range(n):
        length = (1, 7, ALL)[i % 3]
        if i % 2:
            k = 1 if rng.random() < 0.6 else 2
            group = tuple(sorted(int(a) for a in rng.choice(len(universe.shape), k, replace=False)))
            found.append((Predicate.conjunction({}), group, length))
        else:
            every = range(len(universe.shape))
            found.append((conjunction(universe, rng, every, 2), (), length))

    def of(phase: int) -> list[LinearQuery]:
        return [
            LinearQuery(predicate, range(0 if m is ALL else max(0, phase - m), phase), group)
            for predicate, group, m in found
        ]

    return of


SETTINGS: Final[Mapping[str, Setting]] = {
    "months .005": Setting(months, 0.005, 400, RECENT),
    "orders .02": Setting(partial(orders, 16, 4000), 0.02, 300, RECENT, light=True),
    "people .02": Setting(partial(people, 20), 0.02, 250, RECENT, light=True),
    "people .05": Setting(partial(people, 20), 0.05, 250, RECENT),
    "weeks .02": Setting(partial(weeks, 52), 0.02, 100, (4, 13, ALL), light=True),
    "weeks .01": Setting(partial(weeks, 52), 0.01, 100, (4, 13, ALL), light=True),
    "turning .02": Setting(partial(orders, 16, 4000), 0.02, 200, RECENT, turning),
    "bursts .02": Setting(partial(orders, 16, 6000), 0.02, 200, RECENT, bursts),
}
"""The last two are not those that the rule was made with."""

SHARES: Final = (0.0, 0.5, 0.75, 0.9, 0.97)
TIMES: Final = (1, 4, 10)


def fixed(queries: int) -> dict[str, dict[str, Any]]:
    """The fixed settings, for a stream of this number of queries a phase."""
    named = {f"named {k}n": {"queries_per_phase": k * queries} for k in TIMES}
    return {f"base {share:g}": {"base_share": share} for share in SHARES} | named


def drive(
    mechanism: Calibrated, universe: Universe, phases: Sequence[Rows], stream: Stream
) -> Score:
    """Opens the phases, and asks the queries of each."""
    data, driven, score, began = (
        Blocks(universe),
        Driven(mechanism, PooledNoise()),
        Score(),
        process_time(),
    )
    for number, rows in enumerate(phases, start=1):
        data.append(Block.seal(universe, rows))
        driven.open_phase(rows.n_rows, data)
        score.opened.append(mechanism.state.bought.units(number - 1) / UNITS)
        outcomes = [driven.ask(query, data) for query in stream(number)]
        score.answered.append(
            sum(
                not isinstance(o, Refused) and o.path is not AnswerPath.UNVERIFIED for o in outcomes
            )
        )
        score.asked.append(len(outcomes))
    every = range(len(phases))
    score.spent = float(1.0 - mechanism.lines.left(every).mean() / UNITS)
    score.seconds = process_time() - began
    return score


def today(universe: Universe, setting: Setting) -> Calibrated:
    """What is measured while nothing is known of the queries, for good."""
    mechanism = made(universe, setting, pacing=False)
    mechanism.state.learns = False
    return mechanism


def made(universe: Universe, setting: Setting, **options: Any) -> Calibrated:
    return Calibrated(
        universe, PRIVACY, Accuracy(setting.error, 0.01), CalibratedSettings(**options)
    )


class Kept:
    """The scores of runs, in a file: a benchmark that was stopped goes on where it was.

    Scores of other code do not count.

    Args:
        path: The file, one JSON object a line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        files = sorted((Path(__file__).resolve().parents[1] / "stream_dp" / "core").rglob("*.py"))
        code = hashlib.sha256(b"".join(file.read_bytes() for file in [*files, Path(__file__)]))
        self._code = code.hexdigest()[:16]
        lines = path.read_text().splitlines() if path.exists() else []
        known = [json.loads(line) for line in lines]
        self._scores = {tuple(one["run"]): Score(**one["score"]) for one in known}

    def score(self, run: tuple[str | int, ...], drive: Callable[[], Score]) -> Score:
        """Returns the score of a run, which is driven unless it is known."""
        name = (self._code, *run)
        if name not in self._scores:
            found = self._scores[name] = drive()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"run": name, "score": asdict(found)}) + "\n")
        return self._scores[name]


def compared(
    name: str, load: str, plans: Sequence[str], data: Path, seed: int, kept: Kept
) -> dict[str, Score]:
    """Drives one stream through each plan."""
    setting = SETTINGS[name]
    universe, phases = setting.phases(data)
    streams = {
        "heavy": lambda: (setting.stream or heavy)(
            universe, setting.queries, setting.windows, seed
        ),
        "tiles": lambda: tiles(universe, 50, 4 + seed),
        "few": lambda: heavy(universe, 5, setting.windows, 8 + seed),
    }
    mechanisms: dict[str, Callable[[], Calibrated]] = {
        "learned": lambda: made(universe, setting),
        "today": lambda: today(universe, setting),
    }
    if load == "heavy" and "best" in plans:
        for label, options in fixed(setting.queries).items():
            mechanisms[label] = partial(made, universe, setting, **options)
    found = {}
    for label, make in mechanisms.items():
        if label in ("learned", "today") and label not in plans:
            continue
        run = partial(drive, make(), universe, phases, streams[load]())
        score = found[label] = kept.score((name, load, label, seed), run)
        console().print(
            f"{name}, {load}, {label}: {score.later} of {sum(score.asked[2:])} from the third phase on, "
            f"{sum(score.answered)} in all; opens {' '.join(f'{s:.3f}' for s in score.opened[:4])} to "
            f"{score.opened[-1]:.3f}, together {sum(score.opened):.2f}; mean spent {score.spent:.3f}; "
            f"{score.seconds:.0f} s",
            highlight=False,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--streams", nargs="*", default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--loads", nargs="*", default=["few", "tiles", "heavy"])
    parser.add_argument("--plans", nargs="*", default=["learned", "today", "best"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=Path("build/learning.jsonl"))
    args = parser.parse_args()
    kept = Kept(args.kept)
    table = Table("stream", "load", "learned", "today", "best fixed", "of it", "opens", "spent")
    parts, verdicts = [], []
    for load in args.loads:
        for name in args.streams:
            if load != "heavy" and not SETTINGS[name].light:
                continue
            found = compared(name, load, args.plans, args.data, args.seed, kept)
            learned, now = found.get("learned"), found.get("today")
            fixes = {one: found[one] for one in found if one not in ("learned", "today")}
            best = max(fixes, key=lambda label: fixes[label].later, default=None)
            against = fixes[best] if best else now
            if learned is None or against is None:
                continue
            ratio = learned.later / against.later if against.later else math.nan
            table.add_row(
                *(name, load, str(learned.later), str(now.later) if now else "-"),
                f"{against.later} ({best})" if best else "-",
                f"{ratio:.3f}",
                f"{sum(learned.opened):.2f}, {sum(against.opened):.2f}",
                f"{learned.spent:.2f}, {against.spent:.2f}",
            )
            if best:
                parts.append(ratio)
                verdicts.append(
                    verdict(f"{name}, part of the best fixed setting", ratio, least=EACH)
                )
            elif load != "heavy":
                verdicts.append(verdict(f"{name}, {load}, part of today", ratio, least=LIGHT))
                if against.later == sum(against.asked[2:]):
                    opened = sum(learned.opened) / sum(against.opened)
                    verdicts.append(verdict(f"{name}, {load}, openings", opened, most=1.0))
    if parts:
        mean = sum(parts) / len(parts)
        verdicts.append(verdict("mean part of the best fixed settings", mean, least=MEAN))
    console().print(table, *verdicts, sep="\n")


if __name__ == "__main__":
    main()
