"""Several answerers as one mechanism: the counts of the calibrated profile, and other kinds next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.changed_rows import ChangedRows
from stream_dp.core.encoding import Format, fields
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook
from stream_dp.core.mechanism import (
    ROWS_ERASED,
    Look,
    LookSort,
    Mechanism,
    Quote,
    Rehearsal,
    Release,
    Separately,
)
from stream_dp.core.outcome import Outcome, Recorded, RefusalCode, Refused
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.rehearsal import CalibratedRehearsal
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.running_periods import RunningSettings
from stream_dp.core.synthetic.basis import SmallTables

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


class WithKinds(Mechanism):
    """Counts and other kinds of queries, all charged to the same lines (the blocks' privacy budgets).

    Args:
        counts: Answers predicate, table and sum queries, and keeps the lines.
        answerers: The answerers of other kinds, always in the same order for one definition.
    """

    def __init__(self, counts: Calibrated, answerers: Sequence[Answerer]) -> None:
        self._counts = counts
        self._answerers = tuple(answerers)
        self.spending = counts.spending
        for answerer in self._answerers:
            answerer.kept = counts.state.settings.kept
        self._index_of = {
            kind: index for index, answerer in enumerate(answerers) for kind in answerer.kinds
        }

    takes_schemas = False  # the answerers are about the attributes that they began with

    def change_schema(
        self, schema: Schema, tiles: Sequence[PlannedTile], running: RunningSettings | None = None
    ) -> None:
        raise NotImplementedError(f"{self!r} has one version of its attributes")

    def recorded(self, query: AnyQuery) -> Recorded:
        return self._counts.recorded(query)

    def __repr__(self) -> str:
        return f"WithKinds({self._counts!r}, {sorted(self._index_of)})"

    @property
    def counts(self) -> Calibrated:
        """The mechanism that answers the predicate, table and sum queries."""
        return self._counts

    @property
    def kinds(self) -> frozenset[str]:
        return self._counts.kinds | frozenset(self._index_of)

    @property
    def least_windows(self) -> Mapping[str, int]:
        return {answerer.name: answerer.min_rows for answerer in self._answerers}

    @property
    def in_order(self) -> frozenset[int]:
        return frozenset(index for answerer in self._answerers for index in answerer.in_order)

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(name for answerer in self._answerers for name in answerer.secrets)

    def opening_units(self, n_rows: int) -> int:
        """The units of all looks of an opening, those left out that no line can pay with the others."""
        units = self._counts.opening_units(n_rows)
        for answerer in self._answerers:
            more = answerer.opening_units(n_rows)
            units += more if units + more <= UNITS else 0
        return units

    def basis(self, window: range) -> SmallTables:
        return self._counts.basis(window)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """The looks of all answerers, those left out that no line can pay together with the others."""
        looks = list(self._counts.open_phase(n_rows))
        for index, answerer in enumerate(self._answerers):
            for look in answerer.open_phase(n_rows):
                charges = [charge for taken in (*looks, look) for charge in taken.charges]
                if self._counts.lines.afford(charges):
                    looks.append(NamedLook(index, answerer.name, look, look.charges))
        return looks

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._counts.charged(look_charges)

    def answer(self, query: AnyQuery) -> Outcome | Look:
        if isinstance(query, LinearQuery):
            return self._counts.answer(query)
        index = self._index_of.get(query.kind)
        if index is None:
            return self.unsupported(query.kind)
        answerer = self._answerers[index]
        step = answerer.answer(query)
        if isinstance(step, Outcome):
            return step
        if any(block < self._counts.erased for block in step.reads):
            return ROWS_ERASED
        if not self._counts.lines.afford(step.charges):
            return _NO_BUDGET
        return NamedLook(index, answerer.name, step, step.charges)

    def absorb(self, release: Release) -> None:
        if isinstance(release, _NamedRelease):
            self._answerers[release.index].absorb(release.release)
        else:
            self._counts.absorb(release)

    def conclude(self, query: AnyQuery, look: Look, release: Release) -> Outcome | Look:
        if isinstance(query, LinearQuery):
            return self._counts.conclude(query, look, release)
        assert isinstance(look, NamedLook), "a look of another kind"
        assert isinstance(release, _NamedRelease), "a release of another kind"
        return self._answerers[look.index].conclude(query, look.look, release.release)

    def opened(self) -> Sequence[Look]:
        return self._counts.opened()

    def complete(self, block: int, n_rows: int) -> Sequence[Look]:
        raise NotImplementedError(f"the rows of {self!r} do not come late")

    def was_asked(self, query: AnyQuery, charges: Sequence[Charge]) -> Sequence[Look]:
        return self._counts.was_asked(query, charges)

    def growth(self) -> Sequence[Look]:
        return self._counts.growth()

    @property
    def repeats_alike(self) -> bool:
        return self._counts.repeats_alike

    def quote(self, query: AnyQuery) -> Quote:
        if isinstance(query, LinearQuery):
            return self._counts.quote(query)
        return super().quote(query)

    def rehearse(self, *, sparing: bool) -> Rehearsal:
        others = [Separately(self.quote, sparing=sparing) for _ in self._answerers]
        by_kind = {kind: others[index] for kind, index in self._index_of.items()}
        return _Rehearsal(self._counts.rehearse(sparing=sparing), by_kind)

    def remembered(self) -> dict[bytes, bytes]:
        return self._counts.remembered()

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        self._counts.recall(remembered)

    def lost(self, look: dict[str, object]) -> None:
        for answerer in self._answerers:
            if look["kind"] == answerer.name:
                answerer.lost(look)
                return
        self._counts.lost(look)

    def rows_gone(self, n_blocks: int) -> None:
        for answerer in self._answerers:
            answerer.bare = n_blocks
        self._counts.rows_gone(n_blocks)

    @property
    def changed_rows(self) -> ChangedRows:
        return self._counts.changed_rows

    def end_runs(self, secrets: Sequence[str]) -> None:
        for answerer in self._answerers:
            answerer.end_runs(secrets)
        self._counts.end_runs(secrets)

    def release_from_bytes(self, data: bytes) -> Release:
        if data[:1] != bytes((_FORMAT.version,)):
            return self._counts.release_from_bytes(data)
        reader = _FORMAT.read(data)
        (index,) = reader.fields("B")
        known = index < len(self._answerers)
        reader.require(known, "is of a kind that the definition does not name")
        return _NamedRelease(index, self._answerers[index].release_from_bytes(reader.rest()))


class _Rehearsal(Rehearsal):
    """Counts on a copy, and queries of other kinds at their prices of now, all from the copy's lines.

    Args:
        counts: The rehearsal of the counts.
        others: The rehearsal of each other kind. The kinds of one answerer have the same one.
    """

    def __init__(self, counts: CalibratedRehearsal, others: Mapping[str, Rehearsal]) -> None:
        self._counts = counts
        self._others = others

    def quote(self, query: AnyQuery) -> Quote:
        other = None if isinstance(query, LinearQuery) else self._others.get(query.kind)
        if other is None:
            return self._counts.quote(query)
        quote = other.quote(query)
        if not self._counts.fork.lines.afford(quote.charges):
            return Quote(_NO_BUDGET, ())
        self._counts.fork.charged(quote.charges)
        return quote
