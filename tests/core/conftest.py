"""Drives a mechanism with its data as the pipeline does, and has the universe of W3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe

Draws = npt.NDArray[np.int64]


def universe_of(*sizes: int) -> Universe:
    """One attribute a number, with so many values ``v0``, ``v1``, ..."""
    return Universe(
        tuple(
            Category(f"a{i}", tuple(f"v{v}" for v in range(size)), other=False)
            for i, size in enumerate(sizes)
        )
    )


def block_of(universe: Universe, counts: npt.ArrayLike) -> Block:
    """A block with so many rows in each cell."""
    cells = [
        {name: f"v{v}" for name, v in zip(universe.names, place, strict=True)} | {"count": int(n)}
        for place, n in np.ndenumerate(np.reshape(counts, universe.shape))
    ]
    return Block.seal(universe, universe.encode_cells(cells))


class Drive:
    """``transcript`` holds sizes of blocks, releases and lost looks, ``lines`` what each block spent."""

    def __init__(self, universe: Universe, mechanism: Any, noise: NoiseSource) -> None:
        self.universe, self.mechanism, self.noise = universe, mechanism, noise
        self.data = Blocks(universe)
        self.lines: list[tuple[int, int]] = []
        self.transcript: list[Any] = []

    def open(self, shares: npt.ArrayLike, n_rows: int) -> None:
        """Opens a phase with a block of ``n_rows`` rows, divided over the cells by ``shares``."""
        flat = np.asarray(shares, dtype=float).reshape(-1)
        counts = [int(share / flat.sum() * 2**40) * n_rows >> 40 for share in flat]
        counts[0] += n_rows - sum(counts)
        self.open_counts(counts)

    def open_counts(self, counts: npt.ArrayLike) -> None:
        """Opens a phase with a block that has so many rows in each cell."""
        sealed = block_of(self.universe, counts)
        assert self.mechanism.opens(sealed.n_rows, 1)
        self.data.append(sealed)
        self.lines.append((0, 0))
        self.transcript.append(sealed.n_rows)
        for look in self.mechanism.open_phase(sealed.n_rows):
            self.look(look)

    def query(self, cells: npt.ArrayLike, window: range | None = None) -> LinearQuery:
        """About the cells of a mask over the whole universe, and all phases unless told otherwise."""
        mask = np.asarray(cells, dtype=np.bool_).reshape(self.universe.shape)
        predicate = Predicate.of_mask(tuple(range(mask.ndim)), mask)
        return LinearQuery(predicate, range(len(self.data)) if window is None else window)

    def truth(self, query: LinearQuery) -> float:
        """The true share."""
        tables = self.data.marginal(query.predicate.attributes, query.window)
        count = sum(int(table[query.predicate.mask].sum()) for table in tables)
        return count / sum(self.data.sizes[block] for block in query.window)

    def look(self, look: Look) -> Any:
        look.reserve(self.noise)
        self._charge(look)
        release = look.take(self.noise, self.data)
        self.transcript.append(release.to_bytes())
        self.mechanism.absorb(release)
        return release

    def _charge(self, look: Look) -> None:
        self.mechanism.charged(look.charges)
        for charge in look.charges:
            rho, delta = self.lines[charge.block]
            self.lines[charge.block] = rho + charge.rho, delta + charge.delta

    def ask(self, query: LinearQuery) -> Any:
        """The answer, or the refusal."""
        step = self.mechanism.answer(query)
        if not hasattr(step, "take"):
            return step
        release = self.look(step)
        return self.mechanism.conclude(query, step, release)

    def lose(self, query: LinearQuery) -> None:
        """A crash between the look and its release."""
        step = self.mechanism.answer(query)
        self._charge(step)
        description = json.loads(json.dumps(step.description))
        step.take(self.noise, self.data)
        self.transcript.append(description)
        self.mechanism.lost(description)

    def replayed(self, mechanism: Any) -> Any:
        """A fresh mechanism that folded this one's transcript."""
        for entry in self.transcript:
            if isinstance(entry, int):
                mechanism.open_phase(entry)
            elif isinstance(entry, bytes):
                mechanism.absorb(mechanism.release_from_bytes(entry))
            else:
                mechanism.lost(entry)
        mechanism.charged(tuple(Charge(index, *line) for index, line in enumerate(self.lines)))
        return mechanism


# ------------------------------------------------ the universe and the queries of W3, without its rows

_SIZES = (2, 2, 5, 7)  # sex, income, race, marital status: 140 cells, 35,433 conjunctions
ADULT = universe_of(*_SIZES)


def asks(seed: int) -> Iterator[LinearQuery]:
    """W3 at Zipf 0: all but the empty and the whole set of each attribute's values, or it is left out.

    Each conjunction is as likely.
    """
    rng = np.random.default_rng(seed)
    while True:
        factors = {}
        for attribute, size in enumerate(_SIZES):
            subset = int(rng.integers(1, 2**size))  # the whole set stands for an absent attribute
            factors[attribute] = (subset >> np.arange(size) & 1).astype(np.bool_)
        predicate = Predicate.conjunction(factors)
        if predicate.attributes:
            yield LinearQuery(predicate, range(1))
