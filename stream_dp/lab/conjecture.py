"""Conjecture 5.3 of Kim 2017: a consistent set that remembers, and expects what it knows, saves hard queries.

Three mechanisms answer the same queries about all rows so far, phase by phase, at the same price:

- *sequential*: starts a new consistent set in every phase, on all rows so far (Algorithm 2's idea);
- *memory, uniform prior*: keeps the set, and knows nothing about a new block (Algorithm 3);
- *memory, carry-over prior*: keeps it, and expects a new block to look like those before it.

All three are ``core.gated``: gates before a maximum-entropy set, at sizes where the mechanisms to the letter
(``core.sequential``, ``core.memory``) would wait for many more rows than anyone has. A hard query ends a
segment and every segment costs the same, so hard queries decide how soon a line's budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Answered, Path
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven

Floats: TypeAlias = npt.NDArray[np.float64]
Mechanism: TypeAlias = Literal["sequential", "uniform", "carry_over"]
Data: TypeAlias = Literal["stationary", "drifting"]

MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)
DATA: Final[tuple[Data, ...]] = get_args(Data)
PRIVACY: Final = Privacy(1.0, 1e-9)
ACCURACY: Final = Accuracy(0.05, 0.05)
_SPREAD: Final = 1.5
"""The spread of the logarithms of cells' shares, so that some cells are far larger than others."""


@dataclass(frozen=True)
class Setting:
    """Sizes of an experiment.

    Attributes:
        rows: The rows of each block.
        queries: The queries in each phase, about random halves of the cells.
        segments: The segments that a line's budget pays for, over all phases.
        drift: The part of the variance of a cell's log share that is new in each phase of drifting data.
    """

    cells: int = 32
    phases: int = 8
    rows: int = 100_000
    queries: int = 30
    segments: int = 60
    drift: float = 0.5
    privacy: Privacy = PRIVACY
    accuracy: Accuracy = ACCURACY


@dataclass(frozen=True)
class Phase:
    """The results of one phase's queries."""

    data: Data
    mechanism: Mechanism
    seed: int
    phase: int
    answered: int
    hard: int
    missed: int


def shares(rng: np.random.Generator, setting: Setting, data: Data) -> Iterator[Floats]:
    """Yields the shares of the cells, shape (n_cells,), phase by phase. Drifting shares keep their spread."""
    logs = rng.normal(0.0, 1.0, setting.cells)
    for _ in range(setting.phases):
        weights = np.exp(_SPREAD * logs)
        yield weights / weights.sum()
        if data == "drifting":
            fresh = rng.normal(0.0, 1.0, setting.cells)
            logs = np.sqrt(1.0 - setting.drift) * logs + np.sqrt(setting.drift) * fresh


def run(setting: Setting, data: Data, mechanism: Mechanism, *, seed: int) -> Iterator[Phase]:
    """One mechanism on one seed's data; rows and queries of a seed are the same for all mechanisms."""
    world, noise = np.random.default_rng([seed, 0]), SeededNoise(np.random.default_rng([seed, 1]))
    labels = tuple(f"v{v}" for v in range(setting.cells))
    universe = Universe((Category("cell", labels, other=False),))
    counts = np.zeros((0, setting.cells), dtype=np.int64)
    blocks, driven = Blocks(universe), Driven(_answerer(setting, universe, mechanism), noise)
    for number, of_cells in enumerate(shares(world, setting, data), start=1):
        counts = np.vstack([counts, world.multinomial(setting.rows, of_cells)])
        block, spent = counts[-1], Charge(0, 0, 0)
        if mechanism == "sequential" and number > 1:
            # All rows so far as one block, which spent what the oldest row did.
            block, spent = counts.sum(axis=0), driven.lines.spent(0)
            blocks, driven = (
                Blocks(universe),
                Driven(_answerer(setting, universe, mechanism), noise),
            )
        rows = [{"cell": v, "count": n} for v, n in zip(labels, block.tolist(), strict=True)]
        blocks.append(Block.seal(universe, universe.encode_cells(rows)))
        driven.open_phase(int(block.sum()), blocks)
        driven.charge((spent,))
        answered = hard = missed = 0
        for _ in range(setting.queries):
            asked = world.permutation(setting.cells) < setting.cells // 2
            query = LinearQuery(Predicate.of_mask((0,), asked), range(len(blocks)))
            outcome = driven.ask(query, blocks)
            if isinstance(outcome, Answered):
                truth = counts[:, asked].sum() / counts.sum()
                answered, hard = answered + 1, hard + (outcome.path is Path.MEASURED)
                missed += abs(outcome.value - truth) > setting.accuracy.error
        yield Phase(data, mechanism, seed, number, answered, hard, int(missed))


def experiment(setting: Setting, *, seeds: int) -> Iterator[Phase]:
    """Every mechanism on stationary and drifting data of each seed."""
    for seed in range(1, seeds + 1):
        for data in DATA:
            for mechanism in MECHANISMS:
                yield from run(setting, data, mechanism, seed=seed)


def _answerer(setting: Setting, universe: Universe, mechanism: Mechanism) -> Gated:
    return Gated(
        universe,
        setting.privacy,
        setting.accuracy,
        segments=setting.segments,
        prior="carry_over" if mechanism == "carry_over" else "uniform",
    )
