"""A data set of the calibrated profile next to its rows, and what tests need besides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from tests.noise import RoundedNoise

ALARM = 1e-6
"""The false-alarm rate of each statistical test."""
PRIVACY = Privacy(1.0, 1e-9)


class Host:
    """What the pipeline does for a data set: it charges, looks, stores, absorbs and concludes.

    Args:
        universe: The possible rows.
        noise: A source of noise, or the seed of one.
        settings: Settings of the calibrated profile.

    Attributes:
        taken: All looks so far.
        releases: What the looks published since the last query was asked, or the last phase opened.
        stored: The size of each phase, and all releases, in order.
        remembered: What else is stored.
    """

    def __init__(
        self,
        universe: Universe,
        *blocks: Block,
        noise: NoiseSource | int = 1,
        error: float = 0.02,
        beta: float = 0.01,
        privacy: Privacy = PRIVACY,
        **settings: Any,
    ) -> None:
        self.definition = universe, privacy, Accuracy(error, beta), CalibratedSettings(**settings)
        self.mechanism = Calibrated(*self.definition)
        self.noise = RoundedNoise(noise) if isinstance(noise, int) else noise
        self.data = Blocks(universe)
        self.taken: list[Look] = []
        self.releases: list[Any] = []
        self.stored: list[int | bytes] = []
        self.remembered: dict[bytes, bytes] = {}
        for block in blocks:
            self.open(block)

    @property
    def state(self) -> PublicState:
        return self.mechanism.state

    @property
    def window(self) -> range:
        """All phases."""
        return range(len(self.data))

    @property
    def looks(self) -> list[Look]:
        """The looks since the last query was asked, or the last phase opened."""
        return self.taken[len(self.taken) - len(self.releases) :]

    @property
    def charges(self) -> list[Charge]:
        return [charge for look in self.taken for charge in look.charges]

    @property
    def paid(self) -> float:
        """The largest share of any line that the looks took."""
        units = (charge.rho for charge in summed(c for look in self.looks for c in look.charges))
        return max(units, default=0) / UNITS

    def open(self, block: Block) -> None:
        self.releases = []
        self.data.append(block)
        self.stored.append(block.n_rows)
        for look in self.mechanism.open_phase(block.n_rows):
            self.take(look)

    def take(self, look: Look) -> Any:
        json.dumps(look.description)
        look.check(self.data)
        look.reserve(self.noise)
        self.mechanism.charged(look.charges)
        self.taken.append(look)
        release = self.read_back(look.take(self.noise, self.data))
        self.releases.append(release)
        self.mechanism.absorb(release)
        return release

    def lose(self, look: Look) -> None:
        """A crash between the charge of a look and its release."""
        self.mechanism.charged(look.charges)
        self.mechanism.lost(json.loads(json.dumps(look.description)))

    def read_back(self, release: Any) -> Any:
        """Stores a release, and reads it again."""
        stored = release.to_bytes()
        self.stored.append(stored)
        release = self.mechanism.release_from_bytes(stored)
        assert release.to_bytes() == stored
        return release

    def step(self, query: LinearQuery) -> Any:
        """The outcome of a query, or the look that it needs, which is not taken."""
        return self.mechanism.answer(query)

    def ask(self, query: LinearQuery) -> Any:
        self.releases = []
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            step = self.mechanism.conclude(query, step, self.take(step))
        self.remembered |= self.mechanism.remembered()
        return step

    def ask_all(self, queries: Iterable[LinearQuery]) -> list[Any]:
        return [self.ask(query) for query in queries]

    def restarted(self) -> Host:
        """A new process that knows only what was stored, and has its own noise."""
        universe, *_ = self.definition
        other = type(self).__new__(type(self))
        Host.__init__(other, universe, noise=99)
        other.definition, other.data = self.definition, self.data
        other.mechanism = replayed(Calibrated(*self.definition), self.stored, self.charges)
        other.mechanism.recall(self.remembered)
        other.stored, other.remembered = list(self.stored), dict(self.remembered)
        other.taken = list(self.taken)
        return other

    def exact(self, query: LinearQuery) -> npt.NDArray[np.int64]:
        """The true number of rows of each answer."""
        every = tuple(range(len(self.state.shape)))
        counts = self.data.marginal(every, query.window).sum(axis=0) * query.predicate.along(every)
        kept = sorted(query.group_by)
        counts = counts.sum(axis=tuple(a for a in every if a not in kept))
        return np.asarray(counts.transpose([kept.index(a) for a in query.group_by]).reshape(-1))


def replayed(
    mechanism: Calibrated, stored: Sequence[int | bytes], charges: Sequence[Charge]
) -> Calibrated:
    """The mechanism after what was stored."""
    for entry in stored:
        if isinstance(entry, int):
            mechanism.open_phase(entry)
        else:
            mechanism.absorb(mechanism.release_from_bytes(entry))
    mechanism.charged(summed(charges))
    return mechanism


def cells(outcome: Any) -> tuple[Any, ...]:
    """The cells of a table, or a count as the only one."""
    return (outcome,) if isinstance(outcome, Answered) else outcome.cells


def names(*sizes: int) -> Universe:
    """Attributes of so many names, without an order."""
    values = (tuple(map(str, range(n))) for n in sizes)
    return Universe(tuple(Category(f"a{i}", v, other=False) for i, v in enumerate(values)))


def sealed(universe: Universe, *columns: npt.ArrayLike) -> Block:
    """A block with these codes in its rows."""
    of = zip(universe.attributes, columns, strict=True)
    codes = tuple(np.asarray(column, attribute.dtype) for attribute, column in of)
    return Block.seal(universe, Rows(codes, None))


def filled(universe: Universe, shares: npt.ArrayLike, n_rows: int) -> Block:
    """A block whose rows are divided over the cells by shares; what is left over is in the first cell."""
    law = np.reshape(shares, universe.shape) / np.sum(shares)
    counts = (law * n_rows).astype(np.int64)
    counts.flat[0] += n_rows - counts.sum()
    every = np.repeat(np.arange(law.size), counts.ravel())
    return sealed(universe, *np.unravel_index(every, law.shape))


def where(sizes: Sequence[int], chosen: Mapping[int, Iterable[int]]) -> Predicate:
    """The rows with one of the chosen codes of each attribute."""
    factors = {a: np.isin(np.arange(sizes[a]), list(codes)) for a, codes in chosen.items()}
    return Predicate.conjunction(factors)


def halves(
    draw: np.random.Generator, sizes: Sequence[int], attributes: Iterable[int], window: range
) -> LinearQuery:
    """A conjunction of conditions that hold in half of the cells of each attribute."""
    chosen = {a: draw.permutation(sizes[a])[: max(1, sizes[a] // 2)].tolist() for a in attributes}
    return LinearQuery(where(sizes, chosen), window)


def aimed(query: LinearQuery, **target: Any) -> LinearQuery:
    """The query with an error or a price of its own."""
    return replace(query, target=replace(query.target, **target))


def dearest(
    rows: Sequence[npt.NDArray[np.int64]],
    scales: Sequence[Fraction | None],
    *,
    blank: bool = False,
) -> Fraction:
    """The loss of the two rows that a look tells apart best, by Theorem 1 for each number alone.

    Args:
        rows: What each row that can be adds to what is published, shape (vectors, answers).
        scales: The scale of the noise on each vector; None where it is not published.
        blank: Whether each row is compared with one that adds nothing, in place of the others.
    """
    others = [np.zeros_like(rows[0])] if blank else rows
    squares = {tuple(np.square(a - b).sum(axis=1).tolist()) for a, b in product(rows, others)}
    pairs = (zip(each, scales, strict=False) for each in squares)
    return max(sum((Fraction(q) / (2 * s * s) for q, s in one if s), Fraction()) for one in pairs)


# ------------------------------------------------ a data set of four attributes, and queries about it

SIZES = (6, 3, 4, 5)
UNIVERSE = names(*SIZES)
N_ROWS = 20_000


def rows(seed: int, n: int = N_ROWS) -> Block:
    rng = np.random.default_rng(seed)
    return sealed(UNIVERSE, *(n_cells * rng.random(n) ** 1.7 for n_cells in SIZES))


def opened(
    n_phases: int = 1, *, n: int = N_ROWS, seed: int = 1, noise: int = 2, **options: Any
) -> Host:
    """The data set after some phases."""
    phases = range(seed, seed + n_phases)
    return Host(UNIVERSE, *(rows(phase, n) for phase in phases), noise=noise, **options)


def conjunction(rng: np.random.Generator, size: int | None = None) -> Predicate:
    size = int(rng.integers(1, 4)) if size is None else size
    factors = {}
    for a in rng.choice(len(SIZES), size, replace=False).tolist():
        factors[a] = rng.choice(SIZES[a], rng.integers(1, SIZES[a]), replace=False).tolist()
    return where(SIZES, factors)


def stream(seed: int, n: int, n_phases: int) -> list[LinearQuery]:
    """Conjunctions, their complements, any masks, and tables, on windows of all lengths."""
    rng = np.random.default_rng(seed)
    queries = []
    for i in range(n):
        predicate = conjunction(rng)
        group_by: tuple[int, ...] = ()
        if i % 4 == 1:
            predicate = predicate.complement
        elif i % 4 == 2:
            one, other = sorted(rng.choice(4, 2, replace=False).tolist())
            mask = rng.random((SIZES[one], SIZES[other])) < 0.5
            predicate = Predicate.of_mask((one, other), mask)
        elif i % 4 == 3:
            group_by = tuple(rng.choice(4, rng.integers(1, 3), replace=False).tolist())
        first = int(rng.integers(n_phases))
        queries.append(LinearQuery(predicate, range(first, n_phases), group_by))
    return queries
