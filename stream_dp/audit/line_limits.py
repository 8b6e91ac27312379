"""The most that a line may hold, and losses in its units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from stream_dp.audit.numbers import UNITS, Wrong, as_written, exact, ln, log_delta
from stream_dp.messages import Definition, UnitSpec


class Span(NamedTuple):
    """Units between which a price lies; mostly one number."""

    least: int
    most: int

    def __add__(self, other: object) -> Span:
        assert isinstance(other, Span), "spans are added to spans"
        return Span(self.least + other.least, self.most + other.most)

    def nearest(self, units: int) -> int:
        """Returns the number within the span that is nearest to ``units``."""
        return min(max(units, self.least), self.most)


NOTHING: Final = Span(0, 0)


class LossEvent(NamedTuple):
    """A mechanism in words that dp-accounting knows: Gaussian noise, or any pure mechanism.

    Attributes:
        kind: ``"gaussian"`` or ``"pure"``.
        size: Squared scale of the noise, for a squared sensitivity of 1; or epsilon.
    """

    kind: str
    size: float


@dataclass(frozen=True)
class LookLoss:
    """The loss that a look can cause on one block.

    Attributes:
        cost: The loss in what the line adds up.
        delta: The probability with which the look may break that promise.
        events: The same loss for dp-accounting.
    """

    cost: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    events: tuple[LossEvent, ...] = ()

    def __add__(self, other: LookLoss) -> LookLoss:
        return LookLoss(
            self.cost + other.cost, self.delta + other.delta, self.events + other.events
        )


@dataclass(frozen=True)
class Due:
    """The charge that one look, or several, must have on one block."""

    rho: Span = NOTHING
    delta: Span = NOTHING
    loss: LookLoss = LookLoss()

    def __add__(self, other: Due) -> Due:
        return Due(self.rho + other.rho, self.delta + other.delta, self.loss + other.loss)


@dataclass(frozen=True)
class Line:
    """A line of a data set.

    Attributes:
        whole: The limit of the first sum: of rho, or of epsilon where ``linear``.
        delta: The limit of the second sum.
        linear: Whether epsilons are added up as they are.
        unit: The person who is protected; None for a row.
        squares: How many times the line all rows of who is protected can lose.
    """

    whole: Fraction
    delta: Fraction
    linear: bool
    unit: UnitSpec | None = None
    squares: int = 1

    @property
    def blank(self) -> bool:
        """Whether the loss is that of rows that become blank. Otherwise another row takes a row's place."""
        return self.unit is not None

    @property
    def table(self) -> int:
        """The squared sensitivity of disjoint counts: a row leaves one, and may enter another."""
        return 1 if self.blank else 2

    @property
    def rows(self) -> int:
        """The most rows of who is protected in one block."""
        return 1 if self.unit is None else self.unit.rows_per_phase

    @property
    def failures(self) -> int:
        """How many times a line the delta of looks is lost, by all of these rows."""
        return _failures(self.unit)

    @classmethod
    def of(cls, definition: Definition, recorded: object, *, approximate: bool) -> Line:
        """The line that a definition stands for, as its first entry records it.

        Args:
            definition: The definition of the data set.
            recorded: The line as the first entry of the ledger records it.
            approximate: Whether looks with a delta of their own are charged to it.

        Raises:
            Wrong: The recorded line holds more than the definition promises.
        """
        epsilon, delta = Fraction(definition.privacy.epsilon), Fraction(definition.privacy.delta)
        unit = definition.privacy.unit
        squares = _squares(definition)
        if definition.mechanism.papers is not None:
            return cls(as_written(definition.privacy.epsilon), delta, linear=True)
        if delta == 0:
            return cls(epsilon, delta, linear=True)
        failures = _failures(unit)
        kept = delta / 2 / failures if approximate else Fraction(0)
        if not isinstance(recorded, Mapping):
            raise Wrong("its line is not an object")
        rho = exact(recorded, "rho")
        found = exact(recorded, "delta") if kept else kept
        if found > kept:
            raise Wrong(
                f"its line keeps {float(found):.3g} of delta for looks, not {float(kept):.3g}"
            )
        if log_delta(rho * squares, epsilon) > ln(delta - found * failures):
            held = f"its line holds rho {float(rho):.9g}"
            if unit is not None:
                held += f", of which a person can lose {squares:,} times as much"
            promised = f"epsilon {float(epsilon):g} at delta {float(delta - found * failures):g}"
            raise Wrong(f"{held}, and that does not imply {promised}")
        return cls(rho, found, linear=False, unit=unit, squares=squares)

    def gaussian(self, sigma: Fraction, *, squared_sensitivity: int) -> LookLoss:
        """Integer counts with discrete Gaussian noise: ``squared_sensitivity / (2 sigma^2)``-zCDP."""
        if self.linear:
            raise Wrong("Gaussian noise needs a delta, and the definition has none")
        squared = sigma * sigma / squared_sensitivity
        return LookLoss(1 / (2 * squared), Fraction(0), (LossEvent("gaussian", float(squared)),))

    def summed(self, cost: Fraction, event: LossEvent) -> LookLoss:
        """Gaussian noise of several scales on one vector, whose loss was worked out as a whole."""
        if self.linear:
            raise Wrong("Gaussian noise needs a delta, and the definition has none")
        return LookLoss(cost, Fraction(0), (event,))

    def pure(self, epsilon: Fraction, delta: Fraction = Fraction(0)) -> LookLoss:
        """A mechanism that is (epsilon, delta)-private: ``epsilon^2 / 2``-zCDP, but for delta."""
        if delta and not self.delta:
            raise Wrong("it may fail with a probability for which the line keeps nothing")
        cost = epsilon if self.linear else epsilon * epsilon / 2
        return LookLoss(cost, delta, (LossEvent("pure", float(epsilon)),))

    def due(self, loss: LookLoss) -> Due:
        """The price of a look on one block: rounded up to whole units."""
        delta = self._span(loss.delta, self.delta) if loss.delta else NOTHING
        return Due(self._span(loss.cost, self.whole), delta, loss)

    def _span(self, part: Fraction, whole: Fraction) -> Span:
        units = math.ceil(part * UNITS / whole)
        return Span(units, units)


def _squares(definition: Definition) -> int:
    """The sum of the squares of the rows of a person that count in each phase: Theorem 20.

    A row that what is said in other phases moves from one cell to another counts twice: Theorem 41.
    """
    unit = definition.privacy.unit
    if unit is None:
        return 1
    moved = [
        one
        for one in definition.schema_versions[0].attributes
        if one.type == "number" and one.fold == "since"
    ]
    return (unit.phases + 2 * len(moved)) * unit.rows_per_phase**2


def _failures(unit: UnitSpec | None) -> int:
    """The most rows of a person that count, each of which may be the only one with its value: Theorem 34."""
    if unit is None:
        return 1
    return unit.phases * unit.rows_per_phase ** (2 if unit.lifetime else 1)


def named(definition: Definition) -> set[str]:
    """The other kinds of queries that a data set answers."""
    kinds = definition.kinds
    return {name for name in type(kinds).model_fields if getattr(kinds, name) is not None}
