"""The part of young lines that is kept for declared tiles, so that other queries cannot use it up.

After a phase opens, each tile is expected once, about a window that ends with this phase. Until what is
published certifies it, its price on demand is kept on every line of the window, and only tiles may spend
it. All of this follows from the definition, from the rows of the phases and from published variances. So
it is public, and the same after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any, Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Target
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import GRID_STEPS
from stream_dp.core.residual.base_release.expected_queries import PlannedTile, price_on_demand
from stream_dp.core.residual.plan.planner import Units
from stream_dp.core.residual.plan.promise import Promise

_SLACK: Final = 2.0 ** (2.0 / GRID_STEPS)
"""By how much rounding a scale down to the grid can raise its price."""


class Reserve:
    """The units that are kept for tiles: a fold over phases and releases.

    Args:
        tiles: What the definition declares.
        promise: The promise of the data set.
        certified: Whether what is published certifies a query.
    """

    def __init__(
        self,
        tiles: Sequence[PlannedTile],
        promise: Promise,
        certified: Callable[[LinearQuery], bool],
    ) -> None:
        self._tiles = [(tile, price_on_demand(tile.query, promise.axes)) for tile in tiles]
        self._declared: dict[bytes, set[int | None]] = {}
        for tile in tiles:
            self._declared.setdefault(tile.query.key, set()).add(tile.phases)
        self._terms = promise.terms
        self._rho = float(promise.budget.rho)
        self._certified = certified
        self._n_phases = 0
        # By tile, each as it is about the newest phase, and the units that are kept for it on each line.
        self._waiting: dict[int, tuple[LinearQuery, int]] = {}
        self._unsure = frozenset[int]()  # what may be certified by now
        self._kept: Units = np.zeros(0, dtype=np.int64)

    def __deepcopy__(self, memo: dict[int, Any]) -> Reserve:
        found = copy(self)  # what it keeps is replaced, and never changed
        found._certified = deepcopy(self._certified, memo)  # noqa: SLF001 - of its own kind
        return found

    def opened(self, n_phases: int, rows: Callable[[range], float]) -> None:
        """Expects each tile again, about windows that end with the newest phase.

        Args:
            n_phases: The number of phases now.
            rows: The number of rows of a window that errors are shares of; public.
        """
        self._n_phases = n_phases
        self._waiting = {}
        for number, (tile, price) in enumerate(self._tiles):
            window = range(n_phases - self._length(tile.phases), n_phases)
            query = LinearQuery(tile.query.predicate, window, tile.query.group_by, tile.query.total)
            z = self._terms.z_steered if query.total is None else self._terms.z
            limit = (self._terms.error * rows(window) / z) ** 2
            share = _SLACK * price * len(window) / limit / self._rho if limit else math.inf
            if share <= 1.0:  # else no line can pay for it
                self._waiting[number] = query, math.ceil(share * UNITS)
        self._unsure = frozenset(self._waiting)
        self._add_up()

    def published(self, attributes: Sequence[int]) -> None:
        """Notes that something about these attributes was published."""
        self._unsure |= {
            number
            for number, (query, _) in self._waiting.items()
            if not set(attributes).isdisjoint(query.attributes)
        }

    def is_for(self, query: LinearQuery) -> bool:
        """Whether a query is a declared tile about the newest phase, as the definition promises it."""
        if query.fresh or query.difference is not None or query.target != Target():
            return False
        if query.window.stop != self._n_phases:
            return False
        lengths = map(self._length, self._declared.get(query.key, ()))
        return len(query.window) in lengths

    def kept(self, window: range) -> Units:
        """Units that are kept on each line of a window, shape (len(window),)."""
        if self._unsure:
            done = {one for one in self._unsure if self._certified(self._waiting[one][0])}
            self._unsure = frozenset()
            if done:
                self._waiting = {n: one for n, one in self._waiting.items() if n not in done}
                self._add_up()
        return self._kept[window.start : window.stop]

    def _add_up(self) -> None:
        self._kept = np.zeros(self._n_phases, dtype=np.int64)
        for query, units in self._waiting.values():
            self._kept[query.window.start : query.window.stop] += units

    def _length(self, phases: int | None) -> int:
        return self._n_phases if phases is None else min(phases, self._n_phases)
