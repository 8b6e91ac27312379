"""An answerer beside its data, driven as the worker drives it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook, KindTerms
from stream_dp.core.outcome import Outcome
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe
from tests.noise import QuickNoise

BUDGET = Budget.of(Privacy(4.0, 1e-6), approximate=True)


class Beside:
    """``transcript`` is what a restart folds again, ``rho`` and ``delta`` what each block was charged.

    Attributes:
        charges: Blocks that each look was charged to.
    """

    def __init__(
        self, answerer: Callable[[], Answerer[Any]], universe: Universe, noise: NoiseSource
    ):
        self._make = answerer
        self._universe, self._noise = universe, noise
        self.answerer = answerer()
        self.data = Blocks(universe)
        self.transcript: list[int | bytes | dict[str, Any] | list[str]] = []
        self.rho: Counter[int] = Counter()
        self.delta: Counter[int] = Counter()
        self.charges: list[tuple[int, ...]] = []

    def open(
        self,
        rows_or_cells: Mapping[str, Sequence[object]] | list[dict[str, Any]],
        *,
        lost: bool = False,
    ) -> None:
        """A phase with these rows; ``lost`` if a crash loses what was looked at when it opened."""
        if isinstance(rows_or_cells, list):
            rows = self._universe.encode_cells(rows_or_cells)
        else:
            rows = self._universe.encode_columns(rows_or_cells)
        block = Block.seal(self._universe, rows, self.answerer.in_order)
        self.data.append(block)
        self.transcript.append(block.n_rows)
        for look in self.answerer.open_phase(block.n_rows):
            self._lose(look) if lost else self._look(look)

    def ask(self, asked: KindQuery | str, attribute: int | None = None, **more: Any) -> Outcome:
        """A query, or what ``asked`` makes one of."""
        asked = asked if isinstance(asked, KindQuery) else self.asked(asked, attribute, **more)
        step = self.answerer.answer(asked)
        if not isinstance(step, KindLook):
            return step
        return self.answerer.conclude(asked, step, self._look(step))

    def lose(self, asked: KindQuery | str, attribute: int | None = None, **more: Any) -> None:
        """Asks, and a crash comes between the look and its release."""
        asked = asked if isinstance(asked, KindQuery) else self.asked(asked, attribute, **more)
        self._lose(self.look(asked))

    def look(self, asked: KindQuery) -> KindLook:
        """The look that a query needs."""
        step = self.answerer.answer(asked)
        assert isinstance(step, KindLook), step
        return step

    def asked(
        self, kind: str, attribute: int | None, *, last: int | None = None, **more: Any
    ) -> KindQuery:
        """About the last phases, or all."""
        first = 0 if last is None else len(self.data) - last
        return KindQuery(kind, range(first, len(self.data)), attribute, **more)

    def restart(self) -> None:
        """Goes on with a fresh answerer that folded the transcript."""
        self.answerer = self._make()
        for entry in self.transcript:
            if isinstance(entry, int):
                self.answerer.open_phase(entry)
            elif isinstance(entry, bytes):
                self.answerer.absorb(self.answerer.release_from_bytes(entry))
            elif isinstance(entry, list):
                self.answerer.end_runs(entry)
            else:
                self.answerer.lost(entry)

    def forget_secrets(self, *names: str) -> None:
        """The store lost these secrets, or all, and was healed: the runs of those that are gone end."""
        for name in names or list(self.data.vault):
            del self.data.vault[name]
        ended = sorted(self.answerer.secrets - self.data.vault.keys())
        self.transcript.append(ended)
        self.answerer.end_runs(ended)
        assert not self.answerer.secrets & set(ended)

    def begin(self, look: KindLook) -> None:
        """All that is durable before the data is looked at."""
        look.reserve(self._noise)
        self.data.vault.update(look.draw(self._noise))
        self.charges.append(tuple(charge.block for charge in look.charges))
        for charge in look.charges:
            self.rho[charge.block] += charge.rho
            self.delta[charge.block] += charge.delta

    def _look(self, look: KindLook) -> Any:
        self.begin(look)
        release = look.take(self._noise, self.data)
        self.transcript.append(release.to_bytes())
        self.answerer.absorb(release)
        self._drop_secrets()
        return release

    def _lose(self, look: KindLook) -> None:
        self.begin(look)
        look.take(self._noise, self.data)
        description = json.loads(json.dumps(look.description))
        self.transcript.append(description)
        self.answerer.lost(description)
        self._drop_secrets()

    def _drop_secrets(self) -> None:
        for name in self.data.vault.keys() - self.answerer.secrets:
            del self.data.vault[name]


def beside(
    answerer: type[Answerer[Any]],
    universe: Universe,
    *,
    share: float = 0.1,
    budget: Budget = BUDGET,
    noise: NoiseSource | None = None,
    **settings: Any,
) -> Any:
    """An answerer without rows yet. Noise is quick and seeded, or the one given."""

    def fresh() -> Answerer[Any]:
        return answerer(KindTerms(universe, budget, share, 0.05), **settings)

    return Beside(fresh, universe, QuickNoise(1) if noise is None else noise)
