"""Kind ``between``: whether counts lie below, between or above two thresholds; only "between" uses a run up.

A run (``between_law``) is about the blocks of its first query's window. It pays for all of
them with that query, and then answers about this window and those inside it for free. Thresholds are
shares of a window's rows, in whole rows, the lower one rounded down and the higher one up. When as many
answers were "between" as the plan allows the run has halted; the next query, or one about other blocks,
begins another: a new secret, new charges.

A block that did not pay at once may not join later, though no answer depended on its rows so far: the run's
delta is the probability of an unlucky secret, the answers reveal the secret, and who asked about the block
only in such a run would meet one more often.

**Crashes.** A look that was announced and never published counts as "between", the first of a run too: its
secret is durable with the charge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.budget.parameters import as_written
from stream_dp.core.encoding import Format, fields, pack_window
from stream_dp.core.kinds.between.between_law import BetweenPlan, BetweenThresholds
from stream_dp.core.kinds.kind_answerer import (
    Answerer,
    KindLook,
    KindTerms,
    as_share,
    secret_of,
    window_of,
)
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.outcome import Outcome, Path, Placed, RefusalCode, Refused, Side
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks, count_of
from stream_dp.errors import CorruptState

_FORMAT = Format("comparison")
_SIDES = tuple(Side)


@dataclass(frozen=True, slots=True)
class BetweenRelease:
    """The side of the thresholds on which a count lies.

    Attributes:
        number: The number of the run, from 1.
        window: The window of the query.
        key: The key of the query.
    """

    number: int
    window: range
    key: bytes
    side: Side = field(repr=False)

    def to_bytes(self) -> bytes:
        side = _SIDES.index(self.side)
        return _FORMAT.pack(
            fields("<I", self.number), pack_window(self.window), fields("<16sB", self.key, side)
        )


@dataclass(frozen=True, slots=True)
class BetweenRun:
    """A run that is on.

    Attributes:
        number: The number of the run, from 1.
        window: The blocks that have paid for it.
    """

    number: int
    window: range
    state: BetweenThresholds

    @property
    def secret(self) -> str:
        """Its name in the vault."""
        return f"between {self.window.start} {self.window.stop}"

    def covers(self, window: range) -> bool:
        return self.window.start <= window.start and window.stop <= self.window.stop


@dataclass(frozen=True)
class BetweenLook(KindLook):
    """Compares one noisy count with two thresholds.

    Attributes:
        begins: Whether the run begins with it.
        thresholds: In rows.
    """

    run: BetweenRun
    begins: bool
    asked: KindQuery
    thresholds: tuple[int, int]
    charges: tuple[Charge, ...]

    @property
    def _plan(self) -> BetweenPlan:
        return self.run.state.plan

    @property
    def loss(self) -> Loss:
        return self._plan.loss

    @property
    def reads(self) -> range:
        return self.asked.window

    @property
    def description(self) -> dict[str, object]:
        window, predicate = self.asked.window, self.asked.predicate
        return {
            "run": self.run.number,
            "window": [window.start, window.stop],
            "attributes": list(predicate.attributes),
            "predicate": predicate.key.hex(),
            "thresholds": list(self.thresholds),
            "answers": self._plan.n_between,
            "offset_scale": float(self._plan.offset_scale),
            "scale": float(self._plan.noise_scale),
        }

    def reserve(self, noise: NoiseSource) -> None:
        if self.begins:
            noise.reserve("laplace", self._plan.offset_scale, 1)
        noise.reserve("laplace", self._plan.noise_scale, 1)

    def draw(self, noise: NoiseSource) -> dict[str, bytes]:
        return {self.run.secret: self._plan.draw(noise).to_bytes()} if self.begins else {}

    def take(self, noise: NoiseSource, data: Blocks) -> BetweenRelease:
        secret = secret_of(data, self.run.secret, 1)
        window, predicate = self.asked.window, self.asked.predicate
        count = count_of(data, predicate, window)
        side = self.run.state.look(count, *self.thresholds, secret=secret, noise=noise)
        return BetweenRelease(self.run.number, window, self.asked.key, side)


class Between(Answerer[BetweenRelease]):
    """Comparisons of any predicate's count over any window.

    Args:
        answers: The number of answers "between" after which a run has halted.
    """

    name = "between"
    approximate = True

    def __init__(self, terms: KindTerms, answers: int) -> None:
        super().__init__(terms)
        self._plan = BetweenPlan(self._loss.epsilon, self._loss.delta, answers)
        self._error = self._plan.error(1, self._failure_probability)
        self._number = 0
        self._running: dict[int, BetweenRun] = {}
        self._published: dict[bytes, Side] = {}

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        known = self._published.get(asked.key)
        if known is not None:
            return self._placed(asked, known, Path.REPEAT)
        low, high = _in_rows(asked, self._rows(asked.window))
        if high - low < self._plan.min_gap:
            return self._too_close(asked, high - low)
        covering = [run for run in self._running.values() if run.covers(asked.window)]
        run = covering[0] if covering else self._run(self._number + 1, asked.window)
        return BetweenLook(
            run=run,
            begins=not covering,
            asked=asked,
            thresholds=(low, high),
            charges=() if covering else self._charges(asked.window),
        )

    @property
    def secrets(self) -> frozenset[str]:
        running = self._running.values()
        return frozenset(run.secret for run in running if run.window.stop > self.erased)

    def absorb(self, release: BetweenRelease) -> None:
        """Folds an answer in.

        Raises:
            CorruptState: It is neither of a run that is on, nor the first of the next one.
        """
        self._fold(release.number, release.window, release.side)
        self._published[release.key] = release.side

    def lost(self, look: Mapping[str, object]) -> None:
        self._fold(look["run"], window_of(look), None)

    def end_runs(self, secrets: Sequence[str]) -> None:
        for run in list(self._running.values()):
            if run.secret in secrets:
                del self._running[run.number]

    def conclude(self, asked: KindQuery, look: KindLook, release: BetweenRelease) -> Outcome:
        """Hard is what used something up: a charge, or one of the answers that may be "between"."""
        hard = bool(look.charges) or release.side is Side.BETWEEN
        return self._placed(asked, release.side, Path.MEASURED if hard else Path.GATED)

    def release_from_bytes(self, data: bytes) -> BetweenRelease:
        reader = _FORMAT.read(data)
        (number,) = reader.fields("<I")
        window = reader.window()
        key, side = reader.fields("<16sB")
        reader.end()
        reader.require(window.stop <= len(self._sizes) and side < len(_SIDES))
        return BetweenRelease(number, window, key, _SIDES[side])

    # ------------------------------------------------------------ runs

    def _run(self, number: int, window: range) -> BetweenRun:
        return BetweenRun(number, window, BetweenThresholds(self._plan))

    def _fold(self, number: object, window: range, side: Side | None) -> None:
        """Folds in an answer of a run, or that one was lost."""
        if number == self._number + 1:
            self._number += 1
            self._running[self._number] = self._run(self._number, window)
        run = self._running.get(cast("int", number))
        if run is None or not run.covers(window):
            raise CorruptState(f"the transcript has run {number} of between out of order")
        if side is None:
            run.state.lost()
        else:
            run.state.absorb(side)
        if run.state.halted:
            del self._running[run.number]

    def _placed(self, asked: KindQuery, side: Side, path: Path) -> Placed:
        n_rows = self._rows(asked.window)
        bar = as_share(self._error, n_rows)
        confidence = None if bar is None else 1.0 - self._failure_probability
        return Placed(side, n_rows, bar, confidence, path)

    def _too_close(self, asked: KindQuery, gap: int) -> Refused:
        low, high = (as_written(share) for share in asked.numbers)
        enough = math.ceil(self._plan.min_gap / (high - low))
        return Refused(
            RefusalCode.WINDOW_TOO_SMALL,
            f"window: the thresholds are {gap:,} rows apart, and privacy needs {self._plan.min_gap:,}; ask "
            f"about phases with {enough:,} rows or more, or thresholds that are further apart",
        )


def _in_rows(asked: KindQuery, n_rows: int) -> tuple[int, int]:
    """Two thresholds, shares as they were written, in whole rows."""
    low, high = (as_written(share) * n_rows for share in asked.numbers)
    return math.floor(low), math.ceil(high)
