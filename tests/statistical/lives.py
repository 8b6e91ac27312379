"""Many lives of one data set, all alike, each with noise of its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Outcome
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import Host

BETA = 0.2
RUNS = 10_000


class Lives:
    """A data set whose phases are open, and whose looks are taken again in each life.

    Args:
        universe: The possible rows.
        blocks: The rows of its phases.
        noise: A seed.
        error: The error that is promised.
        settings: Settings of the calibrated profile.
    """

    def __init__(
        self, universe: Universe, *blocks: Block, noise: int, error: float = 0.05, **settings: Any
    ) -> None:
        host = Host(universe, noise=noise, error=error, beta=BETA, **settings)
        self._start, self._data, self.noise = host.mechanism, host.data, host.noise
        self._opening: list[Look] = []
        for block in blocks:
            self._data.append(block)
            self._opening += self._start.open_phase(block.n_rows)

    def life(self, *queries: LinearQuery) -> list[Any]:
        """What the queries come to if they are asked one after another in one life."""
        mechanism = deepcopy(self._start)
        for look in self._opening:
            self._take(mechanism, look)
        return [self._ask(mechanism, query) for query in queries]

    def lives(self, *queries: LinearQuery, runs: int = RUNS) -> list[Any]:
        """What the last of the queries comes to in each life."""
        return [self.life(*queries)[-1] for _ in range(runs)]

    def source(self, look: Look) -> NoiseSource:
        """The noise of a look."""
        del look
        return self.noise

    def _take(self, mechanism: Calibrated, look: Look) -> Any:
        mechanism.charged(look.charges)
        release = look.take(self.source(look), self._data)
        mechanism.absorb(release)
        return release

    def _ask(self, mechanism: Calibrated, query: LinearQuery) -> Outcome:
        step = mechanism.answer(query)
        while isinstance(step, Look):
            step = mechanism.conclude(query, step, self._take(mechanism, step))
        return step
