"""Twelve months of flights with persons as the protected unit: what each unit answers, and how near.

    python benchmarks/persons.py [nycflights13.csv.gz] [--persons zipf flight] [--error 0.05 0.02]
                                 [--seed 1 2 3] [--queries 200] [--expect 200] [--exact-margins]

The rows and the queries are those of W4, 200 queries a month. Whose the rows are is told in two ways.
A *flight* is a carrier with a flight number, a real key that repeats. The persons of *zipf* are synthetic:
their shares of a carrier's rows fall as 1, 1/2^1.1, 1/3^1.1 and so on. Rows are chosen and blocks sealed as
a worker does it, noise is exact, and margins come from the private look at the rows that count.

*answered* is the share of the queries that were answered with the promise, within the error of the rows that
count. *within* is the share for which the published share lies within the error of the share among *all*
rows, so that noise and bias count together. *no share* are those answered with a count alone: where only
bounds are known of a count, no share is published. A *missed* answer was promised, and lies further off the
rows that count. The columns of bars say how many of the published bars cover, over all seeds; 99% is
promised.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table
from workloads import (
    DATA,
    FAILURE_PROBABILITY,
    FLIGHTS,
    PRIVACY,
    console,
    flight_queries,
    flights_by_month,
    verdict,
)

from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.outcome import Answered
from stream_dp.core.outcome import Path as AnswerPath
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.counted_rows import CountedRows
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.lifetime_slots import allowances_of_slots
from stream_dp.core.rows.person_slots import Digests, Persons
from stream_dp.lab.trial import Driven, ExactCounts

UNITS: Mapping[str, Unit | None] = {
    "row": None,
    "month, k = 1": Unit(1, 1),
    "month, k = 4": Unit(4, 1),
    "12 months, k = 1": Unit(1, 12),
    "12 months, k = 4": Unit(4, 12),
    "life, Q = 4, k = 1": Unit(1, 4, lifetime=True),
    "life, Q = 64, k = 4": Unit(4, 4, lifetime=True),
}

KNOWN: Mapping[tuple[str, str], tuple[float | None, float | None]] = {
    ("zipf", "row"): (1.0, 1.0),
    ("zipf", "month, k = 1"): (1.0, 1.0),
    ("zipf", "month, k = 4"): (1.0, 0.835),
    ("zipf", "12 months, k = 1"): (1.0, 0.698),
    ("zipf", "12 months, k = 4"): (0.671, 0.15),
    ("zipf", "life, Q = 4, k = 1"): (1.0, 0.914),
    ("zipf", "life, Q = 64, k = 4"): (0.9, 0.345),
    ("flight", "row"): (1.0, 1.0),
    ("flight", "month, k = 1"): (0.965, 0.501),
    ("flight", "month, k = 4"): (0.916, 0.365),
    ("flight", "12 months, k = 1"): (0.313, 0.048),
    ("flight", "life, Q = 64, k = 4"): (0.427, 0.073),
}
"""Answered by the prototype at errors of 5% and 2%, with margins that follow the exact rows that count."""

BY_THE_LOOK: Mapping[tuple[str, str], tuple[float | None, float | None]] = {
    ("zipf", "month, k = 4"): (None, 0.853),
    ("zipf", "12 months, k = 1"): (1.0, 0.707),
    ("zipf", "12 months, k = 4"): (0.64, None),
    ("flight", "month, k = 1"): (None, 0.467),
    ("flight", "12 months, k = 1"): (0.265, None),
}
"""The same with margins by a private look, the mean of its seeds, of 150 queries a month."""

ERRORS = (0.05, 0.02)
POINTS = 0.02


# ---------------------------------------------------------------- persons


def flight_keys(path: Path) -> list[list[str]]:
    """Carrier and flight number of each row, by month, in the order of the file."""
    keys: list[list[str]] = [[] for _ in range(12)]
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            keys[int(row["month"]) - 1].append(f"{row['carrier']} {row['flight']}")
    return keys


def zipf_keys(
    carriers: Sequence[Sequence[object]], *, persons: int = 200_000, power: float = 1.1
) -> list[list[str]]:
    """Synthetic persons of each row, by month: each has rows of one carrier, as a person's rows are alike.

    Args:
        carriers: The carrier of each row, by month.
        persons: The number of persons that could occur.
        power: The share of the i-th person of a carrier falls as ``i ** -power``.
    """
    rng = np.random.default_rng(5)
    every = np.array([carrier for month in carriers for carrier in month])
    keys = np.empty(len(every), dtype=object)
    for carrier in sorted(set(every)):
        places = np.flatnonzero(every == carrier)
        weights = np.arange(1, max(50, persons * len(places) // len(every)) + 1) ** -power
        ends = np.cumsum(weights) / weights.sum()
        numbers = np.searchsorted(ends, rng.random(len(places)))
        keys[places] = [f"{carrier} {number}" for number in numbers]
    cuts = np.cumsum([len(month) for month in carriers])[:-1]
    return [part.tolist() for part in np.split(keys, cuts)]


class ExactRows(CountedRows):
    """Margins that follow the exact numbers of rows that count. Not private: it shows what the look costs."""

    def __init__(self, accuracy: Accuracy, data: Blocks) -> None:
        super().__init__(accuracy)
        self._data = data

    def at_least(self, window: range) -> float:
        return float(self._data.marginal((), window).sum())


class Choice:
    """Which rows count under a unit, as a worker chooses them, phase after phase."""

    def __init__(self, unit: Unit | None) -> None:
        self._unit = unit
        self._used: dict[bytes, int] = {}

    def seal(self, batch: Mapping[str, list[object]], keys: list[str], month: int) -> Block:
        """The block of one month. All of its rows count where the unit is a row."""
        if self._unit is None:
            return Block.seal(FLIGHTS, FLIGHTS.encode_columns(batch))
        persons = Persons("person", bytes(32), f"month {month}")
        rows = FLIGHTS.encode_columns({**batch, "person": keys}, persons)
        return Block.seal(FLIGHTS, rows, counted=self._counted(rows))

    def _counted(self, rows: Rows) -> npt.NDArray[np.bool_]:
        unit, whose = self._unit, rows.whose
        assert unit is not None
        assert whose is not None
        if not unit.lifetime:
            return whose.counted(unit.rows_per_phase)
        before = np.array([self._used.get(each, 0) for each in _ids(whose.digests)])
        allowed = allowances_of_slots(whose.digests, before, unit)
        after = before + allowed * allowed
        self._used |= dict(zip(_ids(whose.digests), after.tolist(), strict=True))
        return whose.counted(allowed)


def _ids(digests: Digests) -> Iterator[bytes]:
    return map(bytes, digests)


# ---------------------------------------------------------------- runs


@dataclass
class Score:
    """What came of the queries of one unit, all seeds together.

    Attributes:
        by_seed: The part that is answered, in each seed.
        counted: The share of the rows that count, in each seed.
        bias: The distance of the exact share among the rows that count from that among all, for each query.
        count_bars: One truth value for each published bar of a count: whether the bar covers the exact count.
        share_bars: One truth value for each published bar of a share: whether the bar covers the exact share.
        surplus: One truth value for each answer: whether its surplus is at most what the answer says.
    """

    asked: int = 0
    answered: int = 0
    within: int = 0
    without_share: int = 0
    missed: int = 0
    by_seed: list[float] = field(default_factory=list)
    counted: list[float] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)
    count_bars: list[bool] = field(default_factory=list)
    share_bars: list[bool] = field(default_factory=list)
    surplus: list[bool] = field(default_factory=list)

    def note(
        self, outcome: Answered, error: float, exact: tuple[int, int], every: tuple[int, int]
    ) -> None:
        """Notes one answer.

        Args:
            outcome: The answer.
            error: The error of the definition.
            exact: The rows that count: those that satisfy the condition, and how many there are.
            every: The same of all rows.
        """
        count, n_counted = exact
        share, truth = count / max(1, n_counted), every[0] / every[1]
        self.asked += 1
        self.bias.append(abs(share - truth))
        if outcome.error_bar is not None:
            self.count_bars.append(abs(outcome.count - count) <= outcome.error_bar * outcome.n)
        among = outcome.among
        published: float | None = outcome.value
        if among is not None:
            published = among.share
            self.surplus.append(1.0 - n_counted / outcome.n <= among.surplus_at_most)
            if among.share is not None and among.share_bar is not None:
                self.share_bars.append(abs(among.share - share) <= among.share_bar)
        if outcome.path is AnswerPath.UNVERIFIED:
            return
        kept = abs(outcome.count - count) <= error * n_counted
        self.answered += kept
        self.missed += not kept
        self.without_share += published is None
        self.within += published is not None and abs(published - truth) <= error


def run(
    months: Sequence[Mapping[str, list[object]]],
    keys: Sequence[list[str]],
    unit: Unit | None,
    error: float,
    seed: int,
    n_queries: int,
    expect: int | None,
    score: Score,
    *,
    exact_margins: bool = False,
) -> None:
    """Opens a phase a month, and asks the queries of W4 after each."""
    privacy = Privacy(PRIVACY.epsilon, PRIVACY.delta, unit)
    accuracy = Accuracy(error, FAILURE_PROBABILITY)
    mechanism = Calibrated(FLIGHTS, privacy, accuracy, CalibratedSettings(queries_per_phase=expect))
    driven, choice, answered = Driven(mechanism, PooledNoise()), Choice(unit), score.answered
    data, every = Blocks(FLIGHTS), Blocks(FLIGHTS)
    asked = score.asked
    if exact_margins and unit is not None:
        mechanism.state.counted = ExactRows(accuracy, data)
    for month, (batch, whose) in enumerate(zip(months, keys, strict=True)):
        block = choice.seal(batch, whose, month)
        data.append(block)
        every.append(Block.seal(FLIGHTS, FLIGHTS.encode_columns(batch)))
        driven.open_phase(block.n_rows, data)
        counted, exact, of_all = (
            data.marginal((), range(month + 1)),
            ExactCounts(data),
            ExactCounts(every),
        )
        for each in flight_queries(seed, month, n_queries):
            window = each.window(month + 1)
            query = LinearQuery(compile_where(FLIGHTS, each.where), window)
            outcome = driven.ask(query, data)
            assert isinstance(outcome, Answered)
            n_counted = int(counted[window.start : window.stop].sum())
            n_rows = sum(every.sizes[window.start : window.stop])
            score.note(
                outcome, error, (exact.count(query), n_counted), (of_all.count(query), n_rows)
            )
    score.counted.append(int(counted.sum()) / sum(every.sizes))
    score.by_seed.append((score.answered - answered) / (score.asked - asked))


# ---------------------------------------------------------------- words


def table(title: str, scores: Mapping[tuple[str, float], Score]) -> Table:
    """A line for each unit and error."""
    shown = Table(title=title)
    for name in ("unit", "error"):
        shown.add_column(name, no_wrap=True)
    for name in (
        "counted",
        "answered",
        "by seed",
        "within",
        "no share",
        "missed",
        "count bars",
        "share bars",
        "bias",
        "p95",
    ):
        shown.add_column(name, justify="right", no_wrap=True)
    for (unit, error), score in scores.items():
        shown.add_row(
            unit,
            f"{error:g}",
            f"{np.mean(score.counted):.0%}",
            f"{score.answered / score.asked:.1%}",
            " ".join(f"{100 * part:.0f}" for part in score.by_seed),
            f"{score.within / score.asked:.1%}",
            f"{score.without_share / score.asked:.1%}",
            f"{score.missed / score.asked:.2%}",
            _covered(score.count_bars),
            _covered(score.share_bars),
            f"{np.mean(score.bias):.3f}",
            f"{np.quantile(score.bias, 0.95):.3f}",
        )
    return shown


def _covered(bars: Sequence[bool]) -> str:
    return f"{np.mean(bars):.2%}" if bars else ""


def verdicts(
    persons: str, scores: Mapping[tuple[str, float], Score], *, exact_margins: bool
) -> Iterator[str]:
    """Says which thresholds were reached."""
    tables = [(" with exact margins", KNOWN)]
    if not exact_margins:
        tables.append((" with margins by a look", BY_THE_LOOK))
    for (unit, error), score in scores.items():
        for words, published in tables:
            found = published.get((persons, unit))
            least = None if found is None or error not in ERRORS else found[ERRORS.index(error)]
            if least is not None:
                what = f"{persons}, {unit}, error {error:g}: answered"
                about = f" (two points below the prototype's {least:.1%}{words})"
                yield verdict(what, score.answered / score.asked, least=least - POINTS) + about
    promised = 1.0 - FAILURE_PROBABILITY
    for what, bars in (
        ("bars of counts that cover", [b for s in scores.values() for b in s.count_bars]),
        ("bars of shares that cover", [b for s in scores.values() for b in s.share_bars]),
        ("answers whose surplus is not larger", [b for s in scores.values() for b in s.surplus]),
    ):
        if bars:
            yield verdict(f"{persons}: {what}", float(np.mean(bars)), least=promised)
    missed = sum(s.missed for s in scores.values()) / sum(s.asked for s in scores.values())
    yield verdict(f"{persons}: part missed", missed, most=FAILURE_PROBABILITY)


def measured(
    persons: str,
    months: Sequence[Mapping[str, list[object]]],
    keys: Sequence[list[str]],
    asked: argparse.Namespace,
    out: Console,
) -> dict[tuple[str, float], Score]:
    """Runs all units and errors for one way to tell whose the rows are."""
    scores: dict[tuple[str, float], Score] = {}
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task(persons, total=len(UNITS) * len(asked.error) * len(asked.seed))
        for (name, unit), error in product(UNITS.items(), asked.error):
            score = scores[name, error] = Score()
            for seed in asked.seed:
                run(
                    months,
                    keys,
                    unit,
                    error,
                    seed,
                    asked.queries,
                    asked.expect,
                    score,
                    exact_margins=asked.exact_margins,
                )
                progress.advance(task)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", default=DATA / "nycflights13.csv.gz")
    parser.add_argument(
        "--persons", nargs="+", choices=("zipf", "flight"), default=["zipf", "flight"]
    )
    parser.add_argument("--error", type=float, nargs="+", default=list(ERRORS))
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--queries", type=int, default=200, help="queries a month")
    parser.add_argument(
        "--expect",
        type=int,
        default=200,
        help="queries_per_phase of the definition; 0 leaves it out",
    )
    parser.add_argument(
        "--exact-margins",
        action="store_true",
        help="let margins follow the exact rows that count, which is not private",
    )
    asked = parser.parse_args()
    asked.expect = asked.expect or None
    out = console()
    months = flights_by_month(asked.data)
    for persons in asked.persons:
        keys = (
            flight_keys(asked.data)
            if persons == "flight"
            else zipf_keys([month["carrier"] for month in months])
        )
        scores = measured(persons, months, keys, asked, out)
        expected = "the default" if asked.expect is None else f"{asked.expect}"
        title = (
            f"{persons}: {asked.queries} queries a month, queries_per_phase {expected}, epsilon "
            f"{PRIVACY.epsilon:g}, delta {PRIVACY.delta:g}, seeds {' '.join(map(str, asked.seed))}"
        )
        out.print(table(title, scores))
        for line in verdicts(persons, scores, exact_margins=asked.exact_margins):
            out.print(line)


if __name__ == "__main__":
    main()
