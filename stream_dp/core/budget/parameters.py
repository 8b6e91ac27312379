"""Privacy and accuracy in the words used everywhere else.

The papers swap the field's letters: what is ``privacy.epsilon`` here is their alpha,
``privacy.delta`` their tau, ``accuracy.error`` their epsilon, ``accuracy.failure_probability``
their delta. Letters stay inside functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stream_dp.errors import InvalidDefinition


@dataclass(frozen=True, slots=True)
class Unit:
    """What the promise protects if it is more than a row: all rows of one person in some phases.

    At most ``rows_per_phase`` rows of a person count in a phase. Neighbours differ in that all rows of one
    person in these phases are blank, that is, count nowhere. So the number of rows that count is private.

    Attributes:
        rows_per_phase: The most rows of a person that count in a phase; 1 to 255.
        phases: The phases of a person that the promise is about; 1 to 10,000.
        lifetime: Whether these are all phases in which the person ever counts, so that a person who has used
            up ``squares`` counts no more. Otherwise they are any consecutive ones.
        moved: The most rows of the person in later phases that say otherwise where these rows are blank.
    """

    rows_per_phase: int
    phases: int
    lifetime: bool = False
    moved: int = 0

    @property
    def squares(self) -> int:
        """The largest sum, over the phases, of the square of the rows of a person that count in each.

        A row that moves in another phase counts twice: it leaves a cell, and enters another.
        """
        return (self.phases + 2 * self.moved) * self.rows_per_phase**2

    @property
    def failures(self) -> int:
        """The most rows of a person that count in all these phases together."""
        return self.squares if self.lifetime else self.phases * self.rows_per_phase


@dataclass(frozen=True, slots=True)
class Privacy:
    """The promise to one row for life, or to a larger unit: (epsilon, delta)-differential privacy.

    Neighbours of a row differ in what that row says; the number of rows is public.

    Attributes:
        epsilon: Positive.
        delta: In [0, 1). Zero is pure differential privacy, which not every mechanism can give.
        unit: The person, and the phases, that are protected; None for a row.

    Raises:
        InvalidDefinition: A value is out of range or not a finite number.
    """

    epsilon: float
    delta: float
    unit: Unit | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _finite("privacy.epsilon", self.epsilon))
        object.__setattr__(self, "delta", _finite("privacy.delta", self.delta))
        if self.epsilon <= 0.0:
            raise InvalidDefinition("privacy.epsilon", "is not positive", "give a number above 0")
        if not 0.0 <= self.delta < 1.0:
            raise InvalidDefinition(
                "privacy.delta", "is not in [0, 1)", "give a probability well below 1/rows"
            )


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The promise of an answer: within ``error`` of the truth, except with ``failure_probability``.

    Attributes:
        error: The largest error, as a share of the rows asked about; in (0, 1).
        failure_probability: The probability of a larger error, for each answer; in (0, 1).

    Raises:
        InvalidDefinition: A value is out of range or not a finite number.
    """

    error: float
    failure_probability: float

    def __post_init__(self) -> None:
        for name in ("error", "failure_probability"):
            value = _finite(f"accuracy.{name}", getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0.0 < value < 1.0:
                raise InvalidDefinition(
                    f"accuracy.{name}", "is not between 0 and 1", "give a share such as 0.02"
                )


@dataclass(frozen=True, slots=True)
class Aim:
    """How precise an answer is worth having, and what it may take unasked: shares, in (0, 1].

    Attributes:
        share: The error that is aimed at, as a share of the answer itself.
        rough: The largest error that is worth paying for, as a share of the answer. Above ``share``.
        easy_share: The share of any line that an answer takes without a second thought.
        query_share: The largest share of any line that an answer, or the queries of one record together, take
            unasked.
        day_share: The same for the queries of one analyst in 24 hours.

    Raises:
        InvalidDefinition: A value is out of range, or below one that it must not be below.
    """

    share: float
    rough: float = 0.25
    easy_share: float = 0.01
    query_share: float = 0.05
    day_share: float = 0.1

    def __post_init__(self) -> None:
        for name in ("share", "rough", "easy_share", "query_share", "day_share"):
            field = "accuracy.aim" if name == "share" else f"accuracy.{name}"
            value = _finite(field, getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0.0 < value <= 1.0:
                raise InvalidDefinition(field, "is not in (0, 1]", "give a share such as 0.1")
        for small, large in _RISING:
            if getattr(self, small) > getattr(self, large):
                raise InvalidDefinition(
                    f"accuracy.{large}",
                    f"is below accuracy.{'aim' if small == 'share' else small}",
                    "use at least as much",
                )
        if self.share == self.rough:
            raise InvalidDefinition(
                "accuracy.rough", "is not above accuracy.aim", "use a larger share, such as 0.25"
            )


_RISING: Final = (("share", "rough"), ("easy_share", "query_share"), ("query_share", "day_share"))
"""Settings of which the second must not be below the first."""


@dataclass(frozen=True, slots=True)
class Target:
    """The demands of one query in place of the data set's accuracy. At most one error is given.

    Attributes:
        share: The largest error as a share of the rows asked.
        value: The largest error in rows; for a sum in the unit of what is added up.
        relative: The largest error as a share of the exact answer.
        at_most: The largest share of any line that the answer may take.
        mean: The largest error of the mean of a sum, in the unit of what is added up.
        of_mean: Whether the mean of a sum is what matters, where no error says how precise it is to be.
    """

    share: float | None = None
    value: float | None = None
    relative: float | None = None
    at_most: float | None = None
    mean: float | None = None
    of_mean: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the query leaves it to the data set how precise it is answered."""
        return self.share is self.value is self.relative is self.mean is None


def erased_blocks(n_blocks: int, kept: int | None) -> int:
    """Returns how many of the first blocks are erased once ``n_blocks`` are sealed.

    Args:
        n_blocks: The number of sealed blocks.
        kept: The number of blocks, the last ones, whose rows are kept. None keeps all.
    """
    return 0 if kept is None else max(0, n_blocks - kept)


def as_written(value: float) -> Fraction:
    """The decimal number that someone wrote, not the float nearest to it: 0.1 is 1/10."""
    return Fraction(str(value))


def _finite(field: str, value: object) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass  # an integer beyond the floats
    raise InvalidDefinition(field, "is not a finite number", "give a number such as 0.5")
