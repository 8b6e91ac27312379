"""A test whether a prediction is good enough, by the sparse vector technique in integers.

Dwork & Roth 2014, section 3.6 (AboveThreshold), with integer noise and a threshold that keeps its promise
over a whole run. A *segment* compares one query after another with a secret threshold, drawn when it
begins, and ends with the first that is above it. Below means: the public prediction is within the error. A
segment costs the same however many queries it has; what was above must then be measured, and the same look
does that.

The statistic is ``|count - g|``, where ``g`` is the prediction as a whole number of rows, published with the
test. Replacing one row moves the count by one at most, and so the statistic; noise is integer, so nothing is
rounded after it is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, fields, pack_window, wide
from stream_dp.core.mechanism import Look, LookSort
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import Kind, NoiseSource
from stream_dp.core.rows.blocks import Blocks, count_of
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState

_FORMAT: Final = Format("gated count")


def segment_loss(threshold_scale: Fraction, query_scale: Fraction) -> Fraction:
    """The epsilon of a whole segment: ``1/b_t + 2/b_q``, for replace-one neighbours.

    Where every query is below and the last above, shift the threshold's noise by one, and the last
    query's by two: then all comparisons come out as on the neighbour (Dwork & Roth 2014, Theorem 3.23).
    """
    return 1 / threshold_scale + 2 / query_scale


def tail(scale: Fraction, probability: float) -> int:
    """The least L >= 0 with ``Pr[X >= L] <= probability`` for discrete Laplace noise X of this scale.

    ``Pr[X >= L] = p^L / (1 + p)`` for ``L >= 1``, with ``p = exp(-1/scale)``; rounded up, so never too small.
    """
    p = math.exp(-1.0 / float(scale))
    exact = -float(scale) * math.log(probability * (1.0 + p))
    return max(0, math.ceil(exact * (1.0 + 1e-12)))


def threshold(
    *,
    error: float,
    n_rows: int,
    threshold_scale: Fraction,
    query_scale: Fraction,
    segments: int,
    failure_probability: float,
) -> int:
    """``T = A + 3 - L(b_t, beta/(2 S)) - L(b_q, beta/2)``, with ``A = floor(error n)``; no gate below 1.

    So a query whose prediction is off by more than A rows is called below with probability beta at most:
    beta/2 for the noise of its own, and beta/2 for the threshold of any of the S segments. The threshold must
    hold in all of them at once: those with a high one live longest, so that one test's error rate is not that
    of a run.

    Args:
        error: Share of the rows that a prediction may be off by.
        n_rows: Rows in the window.
        threshold_scale: ``b_t``, in rows.
        query_scale: ``b_q``, in rows.
        segments: S, that the budget affords at most.
        failure_probability: beta.
    """
    return (
        math.floor(error * n_rows)
        + 3
        - tail(threshold_scale, failure_probability / (2 * segments))
        - tail(query_scale, failure_probability / 2.0)
    )


def predicted_rows(prediction: Fraction, n_rows: int) -> int:
    """``g``: a predicted share as whole rows, from 0 to all of them."""
    return min(n_rows, max(0, round(prediction * n_rows)))


@dataclass(slots=True)
class Segment:
    """One run of the test. Holds a secret: it lives in one process and is never stored.

    After a restart a new segment begins, under a charge of its own.

    Attributes:
        query_scale: ``b_q``, in rows.
        open: Whether no query was above yet; a closed segment tests nothing.
    """

    query_scale: Fraction
    _offset: int
    open: bool = True

    @classmethod
    def begin(
        cls, noise: NoiseSource, *, threshold_scale: Fraction, query_scale: Fraction
    ) -> Segment:
        """Draws the threshold's noise, once for the whole segment."""
        return cls(query_scale, int(noise.laplace(threshold_scale, 1)[0]))

    def __repr__(self) -> str:
        return f"Segment(open={self.open})"

    def is_below(self, noise: NoiseSource, *, count: int, predicted: int, threshold: int) -> bool:
        """Returns whether the prediction stands. False ends the segment.

        Args:
            noise: The source of randomness.
            count: The true number of rows. Secret.
            predicted: The predicted number of rows ``g``. Published.
            threshold: The threshold T of this query's window, from public numbers, at least 1.

        Raises:
            ValueError: The segment has ended, or the threshold is below 1.
        """
        if not self.open:
            raise ValueError("the segment has ended")
        if threshold < 1:
            raise ValueError("there is no gate with a threshold below 1")
        own = int(noise.laplace(self.query_scale, 1)[0])
        self.open = abs(count - predicted) + own < threshold + self._offset
        return self.open


@dataclass(frozen=True, slots=True)
class CountRelease:
    """The output of one query's look. All of it is published but the segment, which stays in this process.

    Attributes:
        number: The number of the segment that tested the query, from 1. 0 if nothing was tested.
        measured: Whether the count was released; False where the prediction passed the gate.
        noisy_count: The noisy count. 0 if the query was not measured.
    """

    number: int
    window: range
    predicate: Predicate
    measured: bool = field(repr=False)
    noisy_count: int = field(repr=False)
    segment: Segment | None = field(repr=False, compare=False, default=None)

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on the query alone."""
        return _FORMAT.pack(
            fields("<I", self.number),
            pack_window(self.window),
            fields("<?", self.measured),
            wide(self.noisy_count),
            self.predicate.to_bytes(),
        )

    @classmethod
    def from_bytes(cls, universe: Universe, data: bytes) -> CountRelease:
        """Inverse of ``to_bytes``. Raises CorruptState."""
        reader = _FORMAT.read(data)
        (number,) = reader.fields("<I")
        window = reader.window()
        (measured,) = reader.fields("<?")
        count = reader.wide()
        predicate = Predicate.from_bytes(universe, reader.rest())
        return cls(number, window, predicate, measured, count)


@dataclass(frozen=True, slots=True)
class Gate:
    """The test of one prediction.

    Attributes:
        number: The number of its segment, from 1.
        predicted: ``g``, in rows; published.
        threshold: T, in rows.
        threshold_scale: ``b_t``, in rows.
        query_scale: ``b_q``, in rows.
        segment: The one that is continued; None where this test begins it.
    """

    number: int
    predicted: int
    threshold: int
    threshold_scale: Fraction
    query_scale: Fraction
    segment: Segment | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class CountLook(Look):
    """One noisy count; with a gate before it, only where the prediction is too far off.

    Attributes:
        n_rows: The rows of the window.
        kind: The kind of the count's noise.
        scale: The scale of the count's noise, in rows.
    """

    query: LinearQuery
    n_rows: int
    kind: Kind
    scale: Fraction
    charges: tuple[Charge, ...]
    gate: Gate | None = None

    @property
    def reads(self) -> range:
        return self.query.window

    @property
    def sort(self) -> LookSort:
        return LookSort.COUNTS if self.gate is None and self.kind == "gaussian" else LookSort.PURE

    @property
    def description(self) -> dict[str, object]:
        query, gate = self.query, self.gate
        facts: dict[str, object] = {
            "kind": "count" if gate is None else "gate",
            "window": [query.window.start, query.window.stop],
            "attributes": list(query.predicate.attributes),
            "predicate": query.predicate.key.hex(),
            "noise": self.kind,
            "count_scale": float(self.scale),
            "segment": 0,
        }
        if gate is not None:
            facts |= {
                "segment": gate.number,
                "predicted": gate.predicted,
                "threshold": gate.threshold,
                "threshold_scale": float(gate.threshold_scale),
                "query_scale": float(gate.query_scale),
            }
        return facts

    def predicted(self) -> CountRelease:
        """The release of a count that is as predicted, or 0 where nothing was; nothing is looked at."""
        count = 0 if self.gate is None else self.gate.predicted
        return CountRelease(0, self.query.window, self.query.predicate, True, count)

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve(self.kind, self.scale, 1)
        if self.gate is not None:
            noise.reserve("laplace", self.gate.query_scale, 1)
            if self.gate.segment is None:
                noise.reserve("laplace", self.gate.threshold_scale, 1)

    def take(self, noise: NoiseSource, data: Blocks) -> CountRelease:
        """Draws, counts and compares the same way whether the prediction stands or not."""
        gate, segment = self.gate, None
        if gate is not None:
            segment = gate.segment or Segment.begin(
                noise, threshold_scale=gate.threshold_scale, query_scale=gate.query_scale
            )
        draw = noise.gaussian if self.kind == "gaussian" else noise.laplace
        of_count = int(draw(self.scale, 1)[0])
        predicate, window = self.query.predicate, self.query.window
        count = count_of(data, predicate, window)
        if gate is None or segment is None:
            return CountRelease(0, window, predicate, True, count + of_count)
        stands = segment.is_below(
            noise, count=count, predicted=gate.predicted, threshold=gate.threshold
        )
        noisy = (count + of_count) * (not stands)
        return CountRelease(gate.number, window, predicate, not stands, noisy, segment)


@dataclass(frozen=True, slots=True)
class Segments:
    """The position of a data set in its segments, computed from releases, and the secret of the current one.

    Attributes:
        number: The number of the newest segment, from 1. 0 before the first.
        paid: The blocks that have paid for it.
    """

    number: int = 0
    paid: frozenset[int] = frozenset()
    newest: Segment | None = field(repr=False, default=None)

    @property
    def running(self) -> Segment | None:
        """The one that a query continues; None where it begins one."""
        return self.newest if self.newest is not None and self.newest.open else None

    def unpaid(self, window: range) -> tuple[int, ...]:
        """Blocks of a window that pay for the segment with a query about it."""
        paid = self.paid if self.running is not None else frozenset()
        return tuple(block for block in window if block not in paid)

    def gate(
        self, *, predicted: int, threshold: int, threshold_scale: Fraction, query_scale: Fraction
    ) -> Gate:
        """The next test; the scales are those of a segment that it begins, or that runs."""
        running = self.running
        number = self.number + (running is None)
        return Gate(number, predicted, threshold, threshold_scale, query_scale, running)

    def after(self, release: CountRelease) -> Segments:
        """Raises CorruptState where the release is of neither the newest segment nor the next."""
        entered = self._at(release.number)
        return Segments(entered.number, entered.paid | frozenset(release.window), release.segment)

    def imagined(self, gate: Gate, window: range, *, stands: bool) -> Segments:
        """The two ways on from a test: the prediction stands, or it does not. The secret stays out of it."""
        entered = self._at(gate.number)
        newest = Segment(gate.query_scale, 0, open=stands)
        return Segments(entered.number, entered.paid | frozenset(window), newest)

    def lost(self, number: object) -> Segments:
        """After a test of that segment was lost, and with it what the segment had left."""
        return Segments(self._at(number).number)

    def _at(self, number: object) -> Segments:
        if number == self.number + 1:
            return Segments(self.number + 1)
        if number != self.number:
            raise CorruptState(f"the transcript has segment {number} after segment {self.number}")
        return self
