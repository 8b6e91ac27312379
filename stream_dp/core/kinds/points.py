"""The shared part of kinds ``interior_point`` and ``adaptive_threshold``: points of an attribute, in runs.

A point is the last of the attribute's first bins for which a condition holds; rows without a value are in
the last bin of all, and so behind every point. There is one run for each attribute and window (absolute
blocks, a snapshot of their rows). The first query begins it, draws its secret and pays for all of it. A look
that was announced and never published abandons the run, whatever it had found; the next query begins another,
charged again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, fields, pack_window
from stream_dp.core.kinds.adaptive_threshold.adaptive_law import AdaptiveThresholds
from stream_dp.core.kinds.interior_point.interior_law import InteriorPoint
from stream_dp.core.kinds.kind_answerer import (
    Answerer,
    KindLook,
    KindTerms,
    bin_range,
    counts_of,
    ordered,
    secret_of,
    window_of,
)
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.outcome import Answered, Outcome, Path, Placed, RefusalCode, Refused, Side
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.errors import CorruptState

S = TypeVar("S", InteriorPoint, AdaptiveThresholds)
Shown: TypeAlias = Placed | Answered

_FORMAT = Format("point")  # run, attribute, window, point, and a byte for each side
_SIDES = tuple(Side)


@dataclass(frozen=True, slots=True)
class RunKey:
    """The attribute and the window of a run."""

    attribute: int
    window: range


@dataclass(frozen=True, slots=True)
class PointRelease:
    """The side of a point on which each part of a run says that it is.

    A run has one part, or one for each chunk that searches.

    Attributes:
        number: The number of the run among all runs of its kind, from 1.
        code: The point.
    """

    number: int
    run_key: RunKey
    code: int
    sides: tuple[Side, ...] = field(repr=False)

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(
            fields("<IH", self.number, self.run_key.attribute),
            pack_window(self.run_key.window),
            fields("<H", self.code),
            bytes(_SIDES.index(side) for side in self.sides),
        )


@dataclass(frozen=True)
class PointLook(KindLook):
    """Counts the rows up to a point, for a run.

    Attributes:
        secret: Its name in the vault.
        begins: Whether the run begins with it.
    """

    run: InteriorPoint | AdaptiveThresholds
    number: int
    run_key: RunKey
    code: int
    secret: str
    begins: bool
    charges: tuple[Charge, ...]

    @property
    def loss(self) -> Loss:
        return self.run.plan.loss

    @property
    def reads(self) -> range:
        return self.run_key.window

    @property
    def description(self) -> dict[str, object]:
        window, of_each = self.run_key.window, _parts(self.run)[0].plan
        facts: dict[str, object] = {
            "run": self.number,
            "attribute": self.run_key.attribute,
            "window": [window.start, window.stop],
            "point": self.code,
            "thresholds": [of_each.low, of_each.high],
            "offset_scale": float(of_each.between.offset_scale),
            "scale": float(of_each.between.noise_scale),
        }
        if isinstance(self.run, AdaptiveThresholds):
            plan = self.run.plan
            facts |= {"chunks": plan.n_chunks, "cut_scale": float(plan.cut_scale)}
        return facts

    def reserve(self, noise: NoiseSource) -> None:
        parts = _parts(self.run)
        of_each = parts[0].plan.between
        if self.begins:
            noise.reserve("laplace", of_each.offset_scale, len(parts))
            if isinstance(self.run, AdaptiveThresholds):
                noise.reserve("laplace", self.run.plan.cut_scale, len(parts) - 1)
        noise.reserve("laplace", of_each.noise_scale, len(parts))

    def draw(self, noise: NoiseSource) -> dict[str, bytes]:
        return {self.secret: self.run.plan.draw(noise).to_bytes()} if self.begins else {}

    def take(self, noise: NoiseSource, data: Blocks) -> PointRelease:
        secret = secret_of(data, self.secret, self.run.plan.secret_size)
        counts = counts_of(data, self.run_key.attribute, self.run_key.window)
        rank = int(counts[: self.code + 1].sum())
        said = self.run.look(rank, secret=secret, noise=noise)
        sides = (said,) if isinstance(said, Side) else said
        return PointRelease(self.number, self.run_key, self.code, sides)


@dataclass(slots=True)
class PointRun(Generic[S]):
    """A run and what is public about it.

    Attributes:
        number: Among all of its kind, from 1.
        looks: The number of looks that were published.
    """

    number: int
    state: S
    looks: int = 0


class PointRuns(Answerer[PointRelease], Generic[S]):
    """Answers about points, each run from one secret; a subclass says which mechanism runs."""

    approximate = True

    def __init__(self, terms: KindTerms) -> None:
        super().__init__(terms)
        self._number = 0
        self._runs: dict[RunKey, PointRun[S]] = {}
        self._published: dict[tuple[RunKey, int], Shown] = {}

    @property
    @abstractmethod
    def min_rows(self) -> int:
        """Rows of a window, from which on the mechanism keeps its promises."""

    @abstractmethod
    def _new(self, n_rows: int) -> S:
        """The public state of a run that begins."""

    @abstractmethod
    def _free(self, run: PointRun[S], run_key: RunKey, code: int) -> Shown | None:
        """The answer that follows from what the run has published."""

    @abstractmethod
    def _folded(self, run: PointRun[S], release: PointRelease) -> Shown:
        """Folds an output in; the answer to its point."""

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        attribute, window = asked.attribute, asked.window
        assert attribute is not None, "both kinds are about an attribute"
        refused = ordered(self._universe, attribute, asked.kind)
        if refused is not None:
            return refused
        code = _point(asked)
        if isinstance(code, Refused):
            return code
        if self._rows(window) < self.min_rows:
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"window: it has {self._rows(window):,} rows, and {asked.kind} needs {self.min_rows:,}; ask "
                "about more phases, once they are open",
            )
        run_key = RunKey(attribute, window)
        published = self._published.get((run_key, code))
        if published is not None:
            return replace(published, path=Path.REPEAT)
        run = self._runs.get(run_key)
        if run is not None and not run.state.abandoned:
            free = self._free(run, run_key, code)
            return self._look(run.state, run.number, run_key, code) if free is None else free
        return self._look(self._new(self._rows(window)), self._number + 1, run_key, code)

    def _look(self, run: S, number: int, run_key: RunKey, code: int) -> PointLook:
        begins = number > self._number
        return PointLook(
            run=run,
            number=number,
            run_key=run_key,
            code=code,
            secret=self._secret(run_key),
            begins=begins,
            charges=self._charges(run_key.window) if begins else (),
        )

    def _secret(self, run_key: RunKey) -> str:
        return f"{self.name} {run_key.attribute} {run_key.window.start} {run_key.window.stop}"

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(
            self._secret(run_key)
            for run_key, run in self._runs.items()
            if not run.state.abandoned
            and any(part.point is None for part in _parts(run.state))
            and run_key.window.start >= self.erased
        )

    def absorb(self, release: PointRelease) -> None:
        """Folds an answer in.

        Raises:
            CorruptState: It is neither of a run that is on, nor the first of the next one.
        """
        run = self._entered(release.number, release.run_key)
        if len(release.sides) != sum(part.point is None for part in _parts(run.state)):
            raise CorruptState("a stored point has another number of sides than its run has parts")
        run.looks += 1
        self._published[release.run_key, release.code] = self._folded(run, release)

    def lost(self, look: Mapping[str, object]) -> None:
        attribute = look["attribute"]
        assert isinstance(attribute, int), "as it was described"
        self._entered(look["run"], RunKey(attribute, window_of(look))).state.lost()

    def end_runs(self, secrets: Sequence[str]) -> None:
        for run_key in list(self._runs):
            if self._secret(run_key) in secrets:
                del self._runs[run_key]

    def _entered(self, number: object, run_key: RunKey) -> PointRun[S]:
        """The run of a look that was taken."""
        run = self._runs.get(run_key)
        if number == self._number + 1 and (run is None or run.state.abandoned):
            self._number += 1
            run = self._runs[run_key] = PointRun(
                self._number, self._new(self._rows(run_key.window))
            )
        if run is None or run.number != number:
            raise CorruptState(f"the transcript has run {number} of {self.name} out of order")
        return run

    def conclude(self, asked: KindQuery, look: KindLook, release: PointRelease) -> Outcome:
        """Hard is what used something up: a charge, or the search of a part for its point."""
        hard = bool(look.charges) or Side.BETWEEN in release.sides
        path = Path.MEASURED if hard else Path.GATED
        return replace(self._published[release.run_key, release.code], path=path)

    def release_from_bytes(self, data: bytes) -> PointRelease:
        reader = _FORMAT.read(data)
        number, attribute = reader.fields("<IH")
        window = reader.window()
        (code,) = reader.fields("<H")
        sides = reader.rest()
        shape = self._universe.shape
        reader.require(attribute < len(shape) and code < shape[attribute])
        reader.require(window.stop <= len(self._sizes) and max(sides, default=0) < len(_SIDES))
        run_key = RunKey(attribute, window)
        return PointRelease(number, run_key, code, tuple(_SIDES[side] for side in sides))


def _parts(run: InteriorPoint | AdaptiveThresholds) -> tuple[InteriorPoint, ...]:
    """Returns the parts that search for a point: the run itself, or its chunks."""
    return run.chunks if isinstance(run, AdaptiveThresholds) else (run,)


def _point(asked: KindQuery) -> int | Refused:
    """The last of the first bins, that the condition holds for."""
    bins = bin_range(asked)
    if isinstance(bins, range) and bins.start > 0:
        return Refused(
            RefusalCode.INVALID_QUERY,
            f"where: {asked.kind} is about the values up to a point; ask lt or le, < or <= in SQL",
        )
    return bins.stop - 1 if isinstance(bins, range) else bins
