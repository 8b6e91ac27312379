"""The kinds of queries that a definition turns on, with their settings and their answers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from stream_dp.messages.answer_forms import (
    CellsAnswer,
    CountAnswer,
    FoundAnswer,
    NoisyAnswer,
    SideAnswer,
)
from stream_dp.messages.message_base import AttributeName, Reply, Request


class KindSpec(Request):
    """The settings that turn on a kind of query.

    Attributes:
        share: The share of each line that one look takes.
    """

    share: Annotated[float, Field(gt=0, le=1)]


# threshold: ranges of a number, and its whole curve


class ThresholdSpec(KindSpec):
    """The kind ``threshold``: one look for each attribute and block, then all is free.

    Attributes:
        partition: Whether bins are joined first, for very many bins and few rows.
    """

    partition: StrictBool = False


class ThresholdAnswer(CountAnswer):
    """The number of rows in a range of a number.

    ``error_bar_simultaneous`` holds for all ranges of the attribute at once.

    Attributes:
        attribute: The attribute that was asked about.
        error_bar_simultaneous: The half width for all ranges of the attribute at once.
        count_bar: Always None: no person is protected.
    """

    kind: Literal["threshold"] = "threshold"
    attribute: str | None = None


class ThresholdCurveAnswer(CellsAnswer):
    """The number of rows at or below the end of each bin of a number, as a table of one attribute."""

    kind: Literal["threshold_curve"] = "threshold_curve"


# median: the exact bin in which the median lies


class StableMedianSpec(KindSpec):
    """The kind ``median``: the exact bin, or no answer. Each new query is a look."""


class MedianAnswer(FoundAnswer):
    """The bin in which the median lies.

    Attributes:
        found: The exact bin.
        no_answer: True if the bin must not be named, because some rows could change it.
        error_bar: 0 where the rank is exact.
    """

    kind: Literal["median"] = "median"


# mode: the exact most frequent value


class ModeSpec(KindSpec):
    """The kind ``mode``: the exact most frequent cell, or no answer. Each new query is a look.

    Attributes:
        groups: The number of random groups of rows, with a vote each. Default: every row has a vote.
    """

    groups: Annotated[int, Field(ge=1)] | None = None


class ModeAnswer(FoundAnswer):
    """The most frequent value.

    Attributes:
        found: The exact value.
        no_answer: True if the value must not be named, because some rows could change it.
        error_bar: Always None: the value has no rank.
    """

    kind: Literal["mode"] = "mode"


# prefix_batch: many conditions on one attribute at once


class PrefixBatchSpec(KindSpec):
    """The kind ``prefix_batch``: one synthetic histogram answers all conditions of a batch."""


class Batched(Reply):
    """The answers to a batch, in the order of its conditions.

    Attributes:
        values: The share of the rows that satisfy each condition.
        counts: The estimated rows that satisfy each condition.
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]


class PrefixBatchAnswer(NoisyAnswer):
    """The number of rows that satisfy each of many conditions on one attribute.

    Attributes:
        attribute: The attribute that the conditions are about.
        batch: The shares and counts, in the order of the conditions.
        error_bar_simultaneous: The half width around each share, for all of them at once.
    """

    kind: Literal["prefix_batch"] = "prefix_batch"
    attribute: str | None = None
    batch: Batched
    error_bar_simultaneous: float | None = None


# correlated_vector: a noisy sign of each row


class CorrelatedVectorSpec(KindSpec):
    """The kind ``correlated_vector``: each row responds once, when its phase opens. Queries are free.

    Attributes:
        attribute: The boolean attribute.
    """

    attribute: AttributeName


class Vector(Reply):
    """A sign for each row asked, in order of arrival. docs/messages.md says how to use it.

    Attributes:
        bits: A bit for each row, 1 for +1, in base64. The first row has the highest bit of the first byte.
        agreement: The mean of the product of a row's sign with that of its private bit.
    """

    bits: Annotated[str, Field(repr=False)]
    agreement: float


class CorrelatedVectorAnswer(NoisyAnswer):
    """A noisy sign of each row about a boolean attribute.

    Attributes:
        attribute: The boolean attribute.
        vector: The signs.
        error_bar: The half width for one vector that was fixed beforehand.
    """

    kind: Literal["correlated_vector"] = "correlated_vector"
    attribute: str | None = None
    vector: Vector
    error_bar: float | None = None


# between: the comparison of a count with two thresholds


class BetweenSpec(KindSpec):
    """The kind ``between``: a run of comparisons that ends after a number of answers "between".

    Attributes:
        answers: The number of answers "between" that end a run.
    """

    answers: Annotated[int, Field(ge=1, le=1000)]


class BetweenAnswer(SideAnswer):
    """The side of two shares on which the share of rows that satisfy a condition lies.

    Attributes:
        low: The smaller of the two shares.
        high: The larger of the two shares.
        found: Always None.
        error_bar: The most by which the share may be on the other side of ``low`` or ``high``.
    """

    kind: Literal["between"] = "between"
    low: float | None = None
    high: float | None = None


# interior_point: the side of some row on which a point lies


class InteriorPointSpec(KindSpec):
    """The kind ``interior_point``: a run for each attribute and window, for a number of points.

    Attributes:
        points: The number of points of a run for which answers are right.
    """

    points: Annotated[int, Field(ge=1, le=10**9)]


class InteriorPointAnswer(SideAnswer):
    """On which side of some row a point lies.

    Attributes:
        attribute: The number that the point is a value of.
        found: The bin that ends at the point that was kept.
        error_bar: Always None: the answer is right, with ``confidence``.
    """

    kind: Literal["interior_point"] = "interior_point"
    attribute: str | None = None


# adaptive_threshold: counts below values that were chosen one after another


class AdaptiveThresholdSpec(KindSpec):
    """The kind ``adaptive_threshold``: a run for each attribute and window, for a number of thresholds.

    Attributes:
        chunks: The number of parts of the ordered rows.
        queries: The number of queries of a run for which bars hold.
    """

    chunks: Annotated[int, Field(ge=2, le=1000)]
    queries: Annotated[int, Field(ge=1, le=10**9)]


class AdaptiveThresholdAnswer(CountAnswer):
    """The number of rows at or below a value.

    ``error_bar`` and ``error_bar_simultaneous`` are the same: they hold for all queries of a run at once,
    however they were chosen.

    Attributes:
        attribute: The attribute that was asked about.
        error_bar: The half width around ``value``, for all queries of the run at once.
        error_bar_simultaneous: The same.
        count_bar: Always None: no person is protected.
    """

    kind: Literal["adaptive_threshold"] = "adaptive_threshold"
    attribute: str | None = None


# all settings


class KindsSpec(Request):
    """The kinds of queries other than counts, and their settings. A kind without settings is refused."""

    threshold: ThresholdSpec | None = None
    median: StableMedianSpec | None = None
    mode: ModeSpec | None = None
    prefix_batch: PrefixBatchSpec | None = None
    correlated_vector: CorrelatedVectorSpec | None = None
    between: BetweenSpec | None = None
    interior_point: InteriorPointSpec | None = None
    adaptive_threshold: AdaptiveThresholdSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        """Refuses unknown kinds."""
        if isinstance(given, dict) and (unknown := sorted(given.keys() - cls.model_fields.keys())):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "kind_unknown", "unknown kind", {"given": unknown[0][:64], "known": known}
            )
        return given


EXTRA_ANSWERS: Final[tuple[type[NoisyAnswer], ...]] = (
    *(ThresholdAnswer, ThresholdCurveAnswer, MedianAnswer, ModeAnswer, PrefixBatchAnswer),
    *(CorrelatedVectorAnswer, BetweenAnswer, InteriorPointAnswer, AdaptiveThresholdAnswer),
)
"""The answers of these kinds."""
