"""Averages of 100,000 orders: how wide their bars are at a given part of one block's privacy budget.

Each query is answered by a look at its sum, and next to it by the table over amount and status, both at the
same price. A third data set keeps the amounts themselves, so its look adds these up, and not the
representatives of their bins. Every draw opens a new data set with the same rows, so each bar is checked
against the exact mean.

python benchmarks/averages.py [--rows 100000] [--part 0.001 0.01 0.05] [--draws 400]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from rich.table import Table
from workloads import FAILURE_PROBABILITY, PRIVACY, console

from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Sum, Summed
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total, total_of
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import QUERY, Part, TablesLook
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven

AMOUNT, STATUS = range(2)
STATUSES = ("paid", "open", "returned", "cancelled")
SHARES = (0.62, 0.18, 0.12, 0.07, 0.01)
EDGES = (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500)
AMOUNTS = Number(
    "amount",
    EDGES,
    representatives=(2.5, 7.5, 15, 25, 40, 62.5, 87.5, 125, 175, 225, 275, 400, 500),
)
ORDERS = Universe((AMOUNTS, Category("status", STATUSES)))
KEPT = Universe((replace(AMOUNTS, measure=Measure(0.01, 0.0, 500.0)), ORDERS.attributes[STATUS]))
"""The same, with the amounts themselves in cents."""

WIDEST = {"paid": 1.4, "by status": 1.6}
"""Thresholds for the largest cell at 1% of a line, in the attribute's unit."""

LEAST_COVERED = 0.985


def orders(universe: Universe, n_rows: int) -> Blocks:
    """Orders whose amounts are lognormal, a third higher where they were returned."""
    draw = np.random.default_rng([5, 77])
    status = draw.choice(len(SHARES), n_rows, p=SHARES)
    amount = np.exp(draw.normal(3.6, 0.95, n_rows)) * np.where(status == 2, 1.3, 1.0)
    names = np.array((*STATUSES, "another"))[status]
    rows = universe.encode_columns({"amount": amount, "status": names})
    return Blocks(universe, [Block.seal(universe, rows)])


PAID = Predicate.conjunction({STATUS: np.arange(len(SHARES)) == 0})


def queries(universe: Universe) -> dict[str, LinearQuery]:
    """The queries about orders, which add up what this universe has of their amounts."""
    (amounts, _) = universe.attributes
    assert isinstance(amounts, Number), "amounts are numbers"
    total = total_of(AMOUNT, amounts)
    return {
        "paid": LinearQuery(PAID, range(1), (), total),
        "by status": LinearQuery(EVERYTHING, range(1), (STATUS,), total),
    }


@dataclass(frozen=True)
class Outcome:
    """The answers of all draws.

    Attributes:
        price: The part of the line that one draw cost.
        bars: The median half width of each cell; infinite where most draws had none.
        covered: The share of the bars that held the exact mean.
    """

    price: float
    bars: list[float]
    covered: float


def sealed(data: Blocks, error: float, noise: SeededNoise) -> Driven:
    """A new data set whose one phase is open, with nothing measured."""
    accuracy = Accuracy(error, FAILURE_PROBABILITY)
    driven = Driven(
        Calibrated(ORDERS, PRIVACY, accuracy, CalibratedSettings(base_share=0.0, pacing=False)),
        noise,
    )
    driven.open_phase(data.sizes[0], data)
    return driven


def error_within(query: LinearQuery, data: Blocks, part: float) -> float:
    """The smallest error for which the look at the sum costs at most this part of a line."""

    def price(error: float) -> float:
        step = sealed(data, error, SeededNoise(np.random.default_rng(0))).mechanism.answer(query)
        return step.charges[0].rho / UNITS if isinstance(step, SumLook) else math.inf

    low, high = 1e-5, 0.9
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if price(middle) <= part else (middle, high)
    return high


def by_look(query: LinearQuery, data: Blocks, error: float, seed: int) -> tuple[Summed, float]:
    """The answer by a look at the sum, and its price."""
    driven = sealed(data, error, SeededNoise(np.random.default_rng(seed)))
    answer = driven.ask(query, data)
    assert isinstance(answer, Summed)
    return answer, driven.spent_share()


def by_table(query: LinearQuery, data: Blocks, part: float, seed: int) -> tuple[Summed, float]:
    """The answer by the table over the query's attributes, as precise as this part of a line pays for."""
    budget = Budget.of(PRIVACY)
    prices = Prices(budget)
    step = prices.least_step(math.floor(part * UNITS), 2)
    assert step is not None, "some scale of the grid costs so little"
    charges = (Charge(0, prices.units(step, 2)),)
    parts = (Part((AMOUNT, STATUS), 0, step),)
    look: Look = TablesLook(QUERY, parts, (ORDERS.shape,), charges)
    # The answer asks for no more than the table says.
    driven = sealed(data, 0.9, SeededNoise(np.random.default_rng(seed)))
    driven.take(look, data)
    answer = driven.ask(query, data)
    assert isinstance(answer, Summed)
    return answer, driven.spent_share()


def tried(answers: Sequence[tuple[Summed, float]], truth: npt.NDArray[np.float64]) -> Outcome:
    """What the draws came to."""
    bars: list[list[float]] = [[] for _ in truth]
    said = held = 0
    for summed, _ in answers:
        for cell, exact, found in zip(summed.cells, truth.tolist(), bars, strict=True):
            found.append(math.inf if cell.mean_bar is None else cell.mean_bar)
            if cell.mean is not None:
                said += 1
                held += _holds(cell, exact)
    return Outcome(answers[0][1], [float(np.median(each)) for each in bars], held / said)


def _holds(cell: Sum, exact: float) -> bool:
    assert cell.mean is not None
    assert cell.mean_bar is not None
    return abs(cell.mean - exact) <= cell.mean_bar


def exact_means(query: LinearQuery, data: Blocks) -> npt.NDArray[np.float64]:
    """The exact means of what is added up: of representatives, or of the amounts that are kept."""
    assert isinstance(query.total, Total), "it is about a sum"
    (table,) = data.marginal((AMOUNT, STATUS), range(1))
    kept = query.total.kept
    if kept is None:
        sums = np.array(query.total.values) @ table
    else:
        (above,) = data.totals(AMOUNT, (STATUS,), range(1))
        sums = kept.unit * (above + kept.base * table.sum(axis=0))
    means: npt.NDArray[np.float64] = sums / table.sum(axis=0)
    return means if query.group_by else means[:1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--part", type=float, nargs="+", default=[0.001, 0.01, 0.05])
    parser.add_argument("--draws", type=int, default=400)
    asked = parser.parse_args()
    out, data, reached = console(), orders(ORDERS, asked.rows), True
    kept, of_values = orders(KEPT, asked.rows), queries(KEPT)
    table = Table("query", "part of a line", "by", "means", "median bars of the means", "covered")
    verdicts = []
    for name, query in queries(ORDERS).items():
        truth, values = exact_means(query, data), exact_means(of_values[name], kept)
        for part in asked.part:
            error = error_within(query, data, part)
            fine = error_within(of_values[name], kept, part)
            draws = range(asked.draws)
            ways = {
                "look": (truth, [by_look(query, data, error, seed) for seed in draws]),
                "table": (truth, [by_table(query, data, part, seed) for seed in draws]),
                "values": (values, [by_look(of_values[name], kept, fine, seed) for seed in draws]),
            }
            for way, (exact, answers) in ways.items():
                found = tried(answers, exact)
                means = " / ".join(f"{mean:.2f}" for mean in exact)
                bars = " / ".join("none" if math.isinf(b) else f"{b:.3g}" for b in found.bars)
                table.add_row(name, f"{found.price:.4%}", way, means, bars, f"{found.covered:.2%}")
                if way != "table" and part == 0.01:
                    fits = found.bars[0] <= WIDEST[name] and found.covered >= LEAST_COVERED
                    reached &= fits
                    verdicts.append(
                        f"{'reached' if fits else 'NOT REACHED'}: {name}, {way}, at 1% of a line: bar "
                        f"{found.bars[0]:.3g} (at most {WIDEST[name]}), {found.covered:.2%} covered "
                        f"(at least {LEAST_COVERED:.1%})"
                    )
    out.print(table)
    for verdict in verdicts:
        out.print(verdict)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
