"""Kind ``prefix_batch``: conditions on one attribute, all known beforehand, from one synthetic histogram.

One look answers them all, with one error. A batch whose conditions were all in a batch that was answered
about the same window is free. Source and guarantee: ``core/kinds/prefix_batch/batch_law.py``.

How long a draw takes depends on the data. So a batch is accepted only if, by its public sizes, the draw takes
about a second at most, and it is made to last twice the time that these sizes allow for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import IDENTITY_BYTES, Format, fields, pack_window
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook, KindTerms, counts_of
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.kinds.prefix_batch.batch_law import MAX_ENUMERATED, BatchConditions, PrefixPlan
from stream_dp.core.outcome import BatchAnswered, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.encoded_rows import MAX_ROWS

LONGEST_S: Final = 1.2
"""Longest that a draw is expected to take."""

WORST_ERROR: Final = 0.5
"""The largest error of the guess one half for an unknown share."""

_HYPOTHESIS_ROWS: Final = sorted({round(2 ** (step / 4)) for step in range(41)})
_MOST_BINS: Final = 2**23  # of all conditions together
# Attribute, window, m, conditions, error; the keys of the conditions, their rows.
_FORMAT = Format("batch of conditions")


def seconds_of(plan: PrefixPlan) -> float:
    """Returns the most seconds that a draw takes, as measured over sizes and shapes of data.

    They follow from public sizes alone.
    """
    m, n_cells = plan.hypothesis_rows, plan.cells.n_cells
    if plan.cells.nested:
        n_levels = 40 + math.log(plan.n_histograms)
        return 1e-6 * (1 + len(plan.cells.sides)) * (m + 20) * n_levels
    return 2.5e-8 * plan.n_histograms * n_cells * len(plan.cells.masks)


@dataclass(frozen=True, slots=True)
class BatchRelease:
    """Published answers to a batch.

    Attributes:
        window: The blocks.
        hypothesis_rows: The rows of the synthetic histogram.
        error: Largest error of all answers, as a share.
        rows: By the key of each condition, rows of the histogram that satisfy it.
    """

    attribute: int
    window: range
    hypothesis_rows: int
    error: float
    rows: dict[bytes, int] = field(repr=False)

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(
            fields("<H", self.attribute),
            pack_window(self.window),
            fields("<IId", self.hypothesis_rows, len(self.rows), self.error),
            *self.rows,
            fields(f"<{len(self.rows)}I", *self.rows.values()),
        )


@dataclass(frozen=True)
class BatchLook(KindLook):
    """Draws one histogram for a batch, over the rows of a window."""

    plan: PrefixPlan
    keys: tuple[bytes, ...]
    attribute: int
    window: range
    error: float
    charges: tuple[Charge, ...]

    @property
    def seconds(self) -> float:
        return 2 * seconds_of(self.plan)

    @property
    def loss(self) -> Loss:
        return self.plan.loss

    @property
    def description(self) -> dict[str, object]:
        return {
            "attribute": self.attribute,
            "window": [self.window.start, self.window.stop],
            "conditions": len(self.keys),
            "hypothesis_rows": self.plan.hypothesis_rows,
            "epsilon": float(self.plan.epsilon),
            "rate": str(self.plan.rate),
        }

    def take(self, noise: NoiseSource, data: Blocks) -> BatchRelease:
        counts = counts_of(data, self.attribute, self.window)
        histogram = self.plan.measure(counts, noise)
        rows = (self.plan.cells.holds @ histogram).tolist()
        return BatchRelease(
            self.attribute,
            self.window,
            self.plan.hypothesis_rows,
            self.error,
            dict(zip(self.keys, rows, strict=True)),
        )


class Batches(Answerer[BatchRelease]):
    """Batches of conditions on one attribute."""

    name = "prefix_batch"
    approximate = False

    def __init__(self, terms: KindTerms) -> None:
        super().__init__(terms)
        self._releases: dict[tuple[int, range], list[BatchRelease]] = {}

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        attribute = asked.attribute
        assert attribute is not None, "a batch is about an attribute"
        for number, predicate in enumerate(asked.predicates):
            if predicate.attributes not in {(), (attribute,)}:
                return _refused(
                    f"wheres[{number}]: a batch is about one attribute; ask conditions on it alone, or "
                    "predicates"
                )
        wanted = {predicate.key for predicate in asked.predicates}
        for release in self._releases.get((attribute, asked.window), ()):
            if wanted == release.rows.keys():
                return self._answered(asked, release, Path.REPEAT)
            if wanted <= release.rows.keys():
                return self._answered(asked, release, Path.CERTIFIED)
        return self._look(asked, attribute)

    def absorb(self, release: BatchRelease) -> None:
        self._releases.setdefault((release.attribute, release.window), []).append(release)

    def conclude(self, asked: KindQuery, look: KindLook, release: BatchRelease) -> Outcome:
        return self._answered(asked, release, Path.MEASURED)

    def release_from_bytes(self, data: bytes) -> BatchRelease:
        reader = _FORMAT.read(data)
        (attribute,) = reader.fields("<H")
        window = reader.window()
        m, size, error = reader.fields("<IId")
        keys = [reader.take(IDENTITY_BYTES) for _ in range(size)]
        counts = reader.fields(f"<{size}I")
        reader.end()
        rows = dict(zip(keys, counts, strict=True))
        reader.require(attribute < len(self._universe.shape))
        reader.require(len(rows) == size > 0 and max(counts) <= m and 0 < error < 1)
        return BatchRelease(attribute, window, m, error, rows)

    # ------------------------------------------------------------ looks and answers

    def _look(self, asked: KindQuery, attribute: int) -> Outcome | KindLook:
        """The look at the histogram whose stated error is the least."""
        n_rows = self._rows(asked.window)
        predicates = {predicate.key: predicate for predicate in asked.predicates}
        size = self._universe.shape[attribute]
        if size * len(predicates) > _MOST_BINS:
            return _too_many(len(predicates))
        cells = BatchConditions(
            np.array([np.broadcast_to(each.mask, (size,)) for each in predicates.values()])
        )
        plans = [plan for plan in self._plans(cells) if n_rows * plan.hypothesis_rows <= MAX_ROWS]
        errors = {plan.error(n_rows, self._failure_probability): plan for plan in plans}
        error = min(errors, default=math.inf)
        if error < WORST_ERROR:
            return BatchLook(
                errors[error],
                tuple(predicates),
                attribute,
                asked.window,
                error,
                self._charges(asked.window),
            )
        needed = min(map(self._rows_needed, plans), default=math.inf)
        if needed <= MAX_ROWS:
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"window: it has {n_rows:,} rows, and answers to this many conditions need at least "
                f"{needed:,} rows; ask about more phases, or fewer conditions at once",
            )
        if cells.nested:
            return _too_many(len(predicates))
        return _refused(
            f"wheres: these {len(predicates)} conditions overlap, and this many overlapping conditions are "
            "too many for one look; ask fewer, or ranges of which any two are nested or disjoint"
        )

    def _plans(self, cells: BatchConditions) -> Iterator[PrefixPlan]:
        """With each size of a histogram that is not too large to be drawn in time."""
        for m in _HYPOTHESIS_ROWS:
            plan = PrefixPlan(cells, self._loss.epsilon, m)
            if not cells.nested and plan.n_histograms > MAX_ENUMERATED:
                return
            if seconds_of(plan) > LONGEST_S:
                return
            yield plan

    def _rows_needed(self, plan: PrefixPlan) -> float:
        """Rows from which on a plan's error is below ``WORST_ERROR``."""
        at_one = plan.error(1, self._failure_probability)
        spread = 2 * (at_one - plan.error(2, self._failure_probability))  # goes as 1 / n
        best = at_one - spread
        return math.ceil(spread / (WORST_ERROR - best)) + 1 if best < WORST_ERROR else math.inf

    def _answered(self, asked: KindQuery, release: BatchRelease, path: Path) -> BatchAnswered:
        rows = (release.rows[predicate.key] for predicate in asked.predicates)
        return BatchAnswered(
            values=tuple(count / release.hypothesis_rows for count in rows),
            n=self._rows(asked.window),
            error_bar=release.error,
            confidence=1.0 - self._failure_probability,
            path=path,
        )


def _too_many(n_conditions: int) -> Refused:
    return _refused(f"wheres: {n_conditions} conditions are too many for one look; ask fewer")


def _refused(message: str) -> Refused:
    return Refused(RefusalCode.INVALID_QUERY, message)
