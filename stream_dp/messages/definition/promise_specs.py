"""What a data set promises to whom: its privacy, its accuracy, and how long it keeps rows and answers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from stream_dp.calendar_periods import Length, zone_of
from stream_dp.messages.message_base import Request
from stream_dp.messages.time_fields import LengthText

MAX_SQUARES = 2**16 - 1
"""The most units that are kept of a person for life: each phase takes the square of the rows that count."""


class UnitSpec(Request):
    """The person to whom the guarantee is given, in place of a row.

    Attributes:
        key: The column that says whose row it is: no attribute, and not ``count``.
        rows_per_phase: The most rows of a person that count in a phase.
        phases: The guarantee covers all rows of a person in any this many consecutive phases.
        lifetime: Whether it covers all rows of a person for life. The squares of the rows that count in
            each phase then add up to at most ``phases`` times the square of ``rows_per_phase``.
    """

    key: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    rows_per_phase: Annotated[int, Field(ge=1, le=255)]
    phases: Annotated[int, Field(ge=1, le=10_000)]
    lifetime: bool = False

    @property
    def squares(self) -> int:
        """The largest sum, over the phases, of the square of the rows of a person that count in each."""
        return self.phases * self.rows_per_phase**2

    @property
    def promised_to(self) -> str:
        """Says to whom the guarantee is given, and for how long."""
        if self.lifetime:
            return "every person, for life"
        if self.phases == 1:
            return "every person, in any one phase"
        return f"every person, in any {self.phases:,} phases"

    @property
    def counting(self) -> str:
        """Says how many rows of a person count, and what tells whose row it is."""
        rows, count = ("row", "counts") if self.rows_per_phase == 1 else ("rows", "count")
        most = f"at most {self.rows_per_phase:,} {rows} with the same {self.key} {count} in a phase"
        if not self.lifetime:
            return most
        return f"{most}, until the squares of these numbers add up to {self.squares:,}"


class PrivacySpec(Request):
    """The guarantee (epsilon, delta) to every row for ever, or to every person.

    Attributes:
        epsilon: What all answers together may reveal. From 3 up the owner is warned.
        delta: The chance of revealing more: at most 1/``phase.min_rows``, better below 1/(100 rows). Only
            ``counts``, ``weights`` and ``bypass`` take 0 (a pure promise).
        unit: The person to protect. Default: a row.
    """

    epsilon: Annotated[float, Field(ge=1e-9, le=20)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    unit: UnitSpec | None = None

    @property
    def promised_to(self) -> str:
        """Says to whom the guarantee is given, and for how long."""
        return "every row, for ever" if self.unit is None else self.unit.promised_to


AIM: Final = 0.1
"""A tenth of the answer: precise enough for most decisions."""
_ERROR: Final = 0.02
"""The error where none is named. No schema says so, because to name it turns the aim off."""

_OF_AIM: Final = ("rough", "easy_share", "day_share")
"""The settings that say nothing without ``aim``."""


class AccuracySpec(Request):
    """How precise answers are, except with ``failure_probability``.

    Attributes:
        error: The largest error, as a share of the rows asked. Default: 0.02; with ``aim``, for ``kinds``
            alone.
        failure_probability: How often an answer may be further off than its bar.
        least_error: The smallest error that a query may name. Default: no limit.
        query_share: The largest share of any line for a query without ``at_most``. Default: no
            limit; 0.1 for relative errors; with ``aim`` 0.05, for all queries of a record that name no
            ``error``.
        aim: The error to aim at, as a share of the answer. Default: 0.1 if no ``error`` is named.
        rough: The largest error worth paying for, as a share of the answer. Default: 0.25.
        easy_share: The share of any line that an aimed answer may always take. Default: 0.01.
        day_share: The largest share of any line for aimed answers to one analyst in 24 hours.
            Default: 0.10.
    """

    error: Annotated[float, Field(ge=1e-9, lt=1, default_factory=lambda: _ERROR)]
    failure_probability: Annotated[float, Field(ge=1e-12, lt=1)] = 0.01
    least_error: Annotated[float, Field(ge=1e-9, lt=1)] | None = None
    query_share: Annotated[float, Field(gt=0, le=1)] | None = None
    aim: Annotated[float, Field(gt=0, lt=1)] | None = None
    rough: Annotated[float, Field(gt=0, le=1)] | None = None
    easy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    day_share: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _goes_with_aim(self) -> AccuracySpec:
        named = next((name for name in _OF_AIM if getattr(self, name) is not None), None)
        if self.aim is None and named is not None:
            raise ValueError(f"accuracy.{named} goes with accuracy.aim: add aim, or remove {named}")
        return self


LEAST_WITHIN: Final = "12 hours"
MOST_WITHIN: Final = "21 days"


class ErasureSpec(Request):
    """Lets persons be erased, and rows be corrected by a key of their own.

    Attributes:
        within: How long erasing a person may take, except in backups and at the source: from "12 hours" to
            "21 days".
        row: The column with each row's own key, for corrections: no attribute, and not ``count``. Default:
            none, so only persons can be erased.
    """

    within: LengthText
    row: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None

    @model_validator(mode="after")
    def _in_time(self) -> ErasureSpec:
        utc = zone_of(None)
        least, found, most = (
            Length.read(text).after(0, utc) for text in (LEAST_WITHIN, self.within, MOST_WITHIN)
        )
        if not least <= found <= most:
            raise ValueError(
                f"erasure.within is not between {LEAST_WITHIN} and {MOST_WITHIN}: write a time in between, "
                'such as "24 hours"'
            )
        return self

    @property
    def sweep_ms(self) -> int:
        """How long changes wait for the next sweep, in milliseconds: a third of ``within``."""
        return Length.read(self.within).after(0, zone_of(None)) // 3


class AnswersRetention(Request):
    """How long the answers to queries, and the outcomes of batches, are stored under their ids.

    Attributes:
        days: The least number of days that answers and outcomes of batches are kept. The most is about twice
            that.
    """

    days: Annotated[int, Field(ge=1, le=36_500)]


class RetentionSpec(Request):
    """How long the rows of a phase and the answers to queries are kept. What was published stays for ever.

    Attributes:
        phases: How many phases open before the rows of a phase are erased. Default: never.
        answers: How long answers and outcomes of batches are stored. Default: for ever.
    """

    phases: Annotated[int, Field(ge=1, le=10**9)] | None = None
    answers: AnswersRetention | None = None

    @model_validator(mode="after")
    def _names_something(self) -> RetentionSpec:
        if self.phases is None and self.answers is None:
            raise ValueError("retention says nothing: add phases or answers, or remove it")
        return self


def large_delta(delta: float, n_rows: int) -> str | None:
    """Returns a warning if delta is so large that a mechanism could almost reveal whole rows, or None."""
    if as_written(delta) * 100 * n_rows <= 1:
        return None
    return (
        f"privacy.delta {delta:g} is large for phases of {n_rows:,} rows; below {one_in(100 * n_rows)} "
        "is usual"
    )


LARGE_EPSILON: Final = 3.0
"""From here on the owner of a data set is warned."""


def large_epsilon(privacy: PrivacySpec) -> str | None:
    """Returns a warning that says what a large epsilon means for guesses about somebody, or None."""
    if privacy.epsilon < LARGE_EPSILON:
        return None
    whom = "a row" if privacy.unit is None else "a person"
    return (
        f"privacy.epsilon {privacy.epsilon:g} is large: for someone who guesses about {whom}, all answers "
        f"together may turn even odds into {_odds(privacy.epsilon)}; with epsilon 1 it is {_odds(1.0)}"
    )


def _odds(epsilon: float) -> str:
    """Formats the odds that even ones become at most, and how often the guess is then right."""
    ratio = math.exp(epsilon)
    percent = 100.0 * ratio / (1.0 + ratio)
    right = f"{percent:.1f}%" if percent < 99.95 else "over 99.9%"
    return f"{ratio:,.1f} to 1, which is right {right} of the time"


def as_written(value: float) -> Fraction:
    """Returns the decimal number as it was written, not the nearest float."""
    return Fraction(str(value))


def one_in(n: int) -> str:
    """Formats 1/n with one digit, rounded down so that the result is never more than 1/n."""
    digits = len(str(n - 1)) if n > 1 else 0
    return f"{float(f'{10**digits // n}e-{digits}'):g}"
