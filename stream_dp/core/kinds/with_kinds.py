"""Several answerers as one mechanism: the counts of the calibrated profile, and other kinds next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.encoding import Format, fields
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook
from stream_dp.core.mechanism import (
    ROWS_ERASED,
    Look,
    LookSort,
    Quote,
    Release,
    Separately,
)
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.rehearsal import CalibratedRehearsal
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe

_FORMAT = Format("release of a kind", 0xFF)  # it is not a version of the counts' releases

_NO_BUDGET = Refused(
    RefusalCode.BUDGET_EXHAUSTED,
    "a block of the window has no budget left for a query of this kind; what was published already, and "
    "windows of younger phases, can still be asked",
)


@dataclass(frozen=True, slots=True)
class _NamedRelease:
    """A release with the index of its answerer, so that a restart folds it where it belongs."""

    index: int
    release: Release

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(fields("B", self.index), self.release.to_bytes())


@dataclass(frozen=True, slots=True)
class NamedLook(Look):
    """A look of the answerer with this index."""

    index: int
    name: str
    look: KindLook
    charges: tuple[Charge, ...]

    @property
    def reads(self) -> Sequence[int]:
        return self.look.reads

    @property
    def sort(self) -> LookSort:
        return self.look.sort

    @property
    def seconds(self) -> float:
        return self.look.seconds

    @property
    def description(self) -> dict[str, object]:
        loss = self.look.loss
        exact = {"epsilon": str(loss.epsilon), "delta": str(loss.delta)}
        return {"kind": self.name, **self.look.description, "loss": exact}

    def draw(self, noise: NoiseSource) -> dict[str, bytes]:
        return self.look.draw(noise)

    def reserve(self, noise: NoiseSource) -> None:
        self.look.reserve(noise)

    def take(self, noise: NoiseSource, data: Blocks) -> _NamedRelease:
        return _NamedRelease(self.index, self.look.take(noise, data))


class WithKinds(Calibrated):
    """Counts and other kinds of queries, all charged to the same lines (the blocks' privacy budgets).

    Args:
        universe: The attributes of the data set.
        privacy: The promise.
        accuracy: The accuracy of predicate, table and sum queries.
        settings: How these are answered.
        answerers: The answerers of other kinds, always in the same order for one definition.
    """

    takes_schemas = False  # the answerers are about the attributes that they began with

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        settings: CalibratedSettings,
        answerers: Sequence[Answerer[Any]],
    ) -> None:
        super().__init__(universe, privacy, accuracy, settings)
        self.answerers = tuple(answerers)
        for answerer in self.answerers:
            answerer.kept = settings.kept
        self._index_of = {answerer.name: index for index, answerer in enumerate(answerers)}

    def __repr__(self) -> str:
        return f"WithKinds({super().__repr__()}, {sorted(self._index_of)})"

    @property
    def kinds(self) -> frozenset[str]:
        return super().kinds | frozenset(self._index_of)

    @property
    def least_windows(self) -> Mapping[str, int]:
        return {answerer.name: answerer.min_rows for answerer in self.answerers}

    @property
    def in_order(self) -> frozenset[int]:
        return frozenset(index for answerer in self.answerers for index in answerer.in_order)

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(name for answerer in self.answerers for name in answerer.secrets)

    def opening_units(self, n_rows: int) -> int:
        """The units of all looks of an opening, those left out that no line can pay with the others."""
        units = super().opening_units(n_rows)
        for answerer in self.answerers:
            more = answerer.opening_units(n_rows)
            units += more if units + more <= UNITS else 0
        return units

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """The looks of all answerers, those left out that no line can pay together with the others."""
        looks = list(super().open_phase(n_rows))
        for index, answerer in enumerate(self.answerers):
            for look in answerer.open_phase(n_rows):
                charges = [charge for taken in (*looks, look) for charge in taken.charges]
                if self.lines.afford(charges):
                    looks.append(NamedLook(index, answerer.name, look, look.charges))
        return looks

    def answer(self, query: AnyQuery) -> Outcome | Look:
        index = self._index_of.get(query.kind)
        if isinstance(query, LinearQuery) or index is None:
            return super().answer(query)
        answerer = self.answerers[index]
        step = answerer.answer(query)
        if isinstance(step, Outcome):
            return step
        if any(block < self.erased for block in step.reads):
            return ROWS_ERASED
        if not self.lines.afford(step.charges):
            return _NO_BUDGET
        return NamedLook(index, answerer.name, step, step.charges)

    def absorb(self, release: Release) -> None:
        if isinstance(release, _NamedRelease):
            self.answerers[release.index].absorb(release.release)
        else:
            super().absorb(release)

    def conclude(self, query: AnyQuery, look: Look, release: Release) -> Outcome | Look:
        if isinstance(query, LinearQuery):
            return super().conclude(query, look, release)
        assert isinstance(look, NamedLook), "a look of another kind"
        assert isinstance(release, _NamedRelease), "a release of another kind"
        return self.answerers[look.index].conclude(query, look.look, release.release)

    def complete(self, block: int, n_rows: int) -> Sequence[Look]:
        raise NotImplementedError(f"the rows of {self!r} do not come late")

    def quote(self, query: AnyQuery) -> Quote:
        if isinstance(query, LinearQuery):
            return super().quote(query)
        return Quote.of(self.answer(query))

    def rehearse(self, *, sparing: bool) -> CalibratedRehearsal:
        return _Rehearsal(self, bounds=sparing)

    def lost(self, look: dict[str, object]) -> None:
        index = self._index_of.get(str(look["kind"]))
        if index is None:
            super().lost(look)
        else:
            self.answerers[index].lost(look)

    def rows_gone(self, n_blocks: int) -> None:
        for answerer in self.answerers:
            answerer.bare = n_blocks
        super().rows_gone(n_blocks)

    def end_runs(self, secrets: Sequence[str]) -> None:
        for answerer in self.answerers:
            answerer.end_runs(secrets)

    def release_from_bytes(self, data: bytes) -> Release:
        if data[:1] != bytes((_FORMAT.version,)):
            return super().release_from_bytes(data)
        reader = _FORMAT.read(data)
        (index,) = reader.fields("B")
        known = index < len(self.answerers)
        reader.require(known, "is of a kind that the definition does not name")
        return _NamedRelease(index, self.answerers[index].release_from_bytes(reader.rest()))


class _Rehearsal(CalibratedRehearsal):
    """Counts on a copy, and queries of other kinds at their prices of now, all from the copy's lines.

    Args:
        original: The data set.
        bounds: Whether answers of the copy may be bounded.
    """

    def __init__(self, original: WithKinds, *, bounds: bool) -> None:
        super().__init__(original, bounds=bounds)
        self._others = {
            answerer.name: Separately(original.quote, sparing=bounds)
            for answerer in original.answerers
        }

    def quote(self, query: AnyQuery) -> Quote:
        other = None if isinstance(query, LinearQuery) else self._others.get(query.kind)
        if other is None:
            return super().quote(query)
        quote = other.quote(query)
        if not self.fork.lines.afford(quote.charges):
            return Quote(_NO_BUDGET, ())
        self.fork.charged(quote.charges)
        return quote
