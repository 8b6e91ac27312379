"""A data set: schema, promise, mechanism, and which kinds of queries it answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from stream_dp.errors import InvalidDefinition
from stream_dp.messages.base import (
    AttributeName,
    DatasetName,
    Finite,
    Request,
    tupled,
    validated,
)

MAX_SYNTHETIC_ROWS = 10_000
"""In one message: with 64 attributes of 65,536 cells they still fit."""


def _scalar_text(value: object) -> object:
    """A category value as text: an integer stands for its decimal digits, as it does in a row."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


CategoryValue = Annotated[
    str, BeforeValidator(_scalar_text), StringConstraints(min_length=1, max_length=256)
]


class CategoryAttribute(Request):
    """A value out of a declared list; anything else falls into the cell ``other``."""

    name: AttributeName
    type: Literal["category"]
    values: Annotated[tuple[CategoryValue, ...], BeforeValidator(tupled), Field(min_length=1)]
    other: bool = True
    missing: bool = False


class NumberAttribute(Request):
    """A number in declared, left-closed bins; the outer bins are open.

    Attributes:
        representatives: What a value of each bin counts for in sums and means; by its middle where left out.
    """

    name: AttributeName
    type: Literal["number"]
    edges: Annotated[tuple[Finite, ...], BeforeValidator(tupled), Field(min_length=1)]
    integer: bool = False
    missing: bool = False
    representatives: Annotated[tuple[Finite, ...], BeforeValidator(tupled)] | None = None


class BooleanAttribute(Request):
    """True or false."""

    name: AttributeName
    type: Literal["boolean"]
    missing: bool = False


AttributeSpec = Annotated[
    CategoryAttribute | NumberAttribute | BooleanAttribute, Field(discriminator="type")
]


class PrivacySpec(Request):
    """The lifetime promise to every row: (epsilon, delta).

    Attributes:
        delta: 0 is a pure promise, which ``counts``, ``weights`` and ``bypass`` can keep. A new definition is
            refused with more than 1/``phase.min_rows``.
    """

    epsilon: Annotated[float, Field(ge=1e-9, le=20)]
    delta: Annotated[float, Field(ge=0, lt=1)]


class AccuracySpec(Request):
    """Every answer lies within ``error`` (a share of the rows asked), but for ``failure_probability``."""

    error: Annotated[float, Field(ge=1e-9, lt=1)]
    failure_probability: Annotated[float, Field(ge=1e-12, lt=1)] = 0.01


class PhaseSpec(Request):
    """When a phase opens: as soon as this many rows wait."""

    min_rows: Annotated[int, Field(ge=1, le=2**62)]


class ProfileSpec(Request):
    """What the settings of every profile say to those who hold the definition alone.

    Attributes:
        looks: Kinds of looks that it takes itself, as the ledger names them.
        takes_kinds: Whether other kinds of queries than counts can be turned on.
        feeds_synthetic_rows: Whether synthetic rows could follow what it publishes.
        answers_unverified: Whether it may answer without a promise once no budget is left.
        paid_at_opening: Whether opening a phase spends all that its queries will cost.
    """

    looks: ClassVar[tuple[str, ...]]
    takes_kinds: ClassVar[bool] = False
    feeds_synthetic_rows: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = False
    paid_at_opening: ClassVar[bool] = False

    @property
    def papers(self) -> PhasedSpec | None:
        """The settings of a papers' mechanism; None under every other profile."""
        return None


class CalibratedSpec(ProfileSpec):
    """The calibrated profile: for 1e4 to 1e9 rows.

    Attributes:
        base_share: Share of a new line that is spent when its phase opens; by a public rule where left out.
        pacing: Keeps a part of each line for later phases' queries. Turn it off where there will be one
            phase only.
    """

    looks: ClassVar[tuple[str, ...]] = ("tables", "counts")
    takes_kinds: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = True

    profile: Literal["calibrated"] = "calibrated"
    base_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    pacing: bool = True


class PhasedSpec(ProfileSpec):
    """What the papers' mechanisms have in common.

    Attributes:
        hypothesis_rows: Rows of a hypothesis, for far smaller blocks than the papers' number asks for.
        representation: Of the consistent set; touches accuracy only.
        doubling: Takes the number of queries as a first stage, and doubles it where it was too low.
    """

    looks: ClassVar[tuple[str, ...]] = ("phase", "query")
    hypothesis_rows: Annotated[int, Field(ge=1)] | None = None
    representation: Literal["exhaustive", "entropic", "polytope"] = "entropic"
    doubling: bool = False

    paid_at_opening: ClassVar[bool] = True

    @property
    def papers(self) -> PhasedSpec:
        return self

    @property
    @abstractmethod
    def n_queries(self) -> int:
        """Queries of each phase; with ``doubling`` those of the first stage."""

    @property
    @abstractmethod
    def n_phases(self) -> int:
        """Phases that open at most."""


class MedianSpec(PhasedSpec):
    """The median mechanism: one fixed dataset, a single phase."""

    profile: Literal["median"]
    queries: Annotated[int, Field(ge=2, le=10**9)]

    @property
    def n_queries(self) -> int:
        return self.queries

    @property
    def n_phases(self) -> int:
        return 1


class SequentialSpec(PhasedSpec):
    """A new median mechanism in every phase, on all rows so far.

    Attributes:
        composition: The constant c_K; the least that composes so many phases where left out.
    """

    profile: Literal["sequential"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]
    composition: Annotated[float, Field(ge=1, le=10_001)] | None = None

    @property
    def n_queries(self) -> int:
        return self.queries_per_phase

    @property
    def n_phases(self) -> int:
        return self.phases


class MemorySpec(PhasedSpec):
    """The thesis' memory mechanism with the papers' constants, or with ``hypothesis_rows`` set by hand."""

    profile: Literal["memory"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]

    @property
    def n_queries(self) -> int:
        return self.queries_per_phase

    @property
    def n_phases(self) -> int:
        return self.phases


class GatedSpec(ProfileSpec):
    """Gates before the maximum-entropy set: the thesis' idea at practical sizes.

    Attributes:
        segments: Parts of a line: about as many hard queries as a phase can pay for.
        prior: What a new phase is expected to look like: nothing in particular, or those before it.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    profile: Literal["gated"]
    segments: Annotated[int, Field(ge=1, le=10**6)]
    prior: Literal["uniform", "carry_over"] = "uniform"


class CountsSpec(ProfileSpec):
    """A fresh noisy count for each new query."""

    looks: ClassVar[tuple[str, ...]] = ("count",)
    feeds_synthetic_rows: ClassVar[bool] = False

    profile: Literal["counts"]


class WholeTableSpec(ProfileSpec):
    """One noisy table of the whole universe a phase."""

    looks: ClassVar[tuple[str, ...]] = ("table",)
    paid_at_opening: ClassVar[bool] = True

    profile: Literal["whole_table"]


class WeightsSpec(ProfileSpec):
    """Private multiplicative weights.

    Attributes:
        growing: Whether phases open for ever; else the first is the only one, with the published rate.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    answers_unverified: ClassVar[bool] = True

    profile: Literal["weights"]
    growing: bool = True


class BypassSpec(ProfileSpec):
    """Multiplicative weights that are trained by plain counts, and tested only where trained."""

    looks: ClassVar[tuple[str, ...]] = ("gate", "count")
    answers_unverified: ClassVar[bool] = True

    profile: Literal["bypass"]


def _default_profile(value: object) -> object:
    return {"profile": "calibrated", **value} if isinstance(value, dict) else value


MechanismSpec = Annotated[
    Annotated[
        CalibratedSpec
        | MedianSpec
        | SequentialSpec
        | MemorySpec
        | GatedSpec
        | CountsSpec
        | WholeTableSpec
        | WeightsSpec
        | BypassSpec,
        Field(discriminator="profile"),
    ],
    BeforeValidator(_default_profile),
]


class _KindSpec(Request):
    """Turns a kind of queries on.

    Attributes:
        share: What one look takes of the line of each block that it reads; see docs/mechanisms.md for what
            counts as one.
    """

    share: Annotated[float, Field(gt=0, le=1)]


class ThresholdSpec(_KindSpec):
    """Kinds ``threshold`` and ``quantile``: one look an attribute and block, everything else free.

    Attributes:
        partition: Whether bins are joined to segments first, for very many bins and few rows.
    """

    partition: StrictBool = False


class StableMedianSpec(_KindSpec):
    """Kind ``median``: the exact bin, or no answer; each new query is a look."""


class ModeSpec(_KindSpec):
    """Kind ``mode``: the exact most frequent cell, or no answer; each new query is a look.

    Attributes:
        groups: To which rows are dealt, each with a vote; every row has one where left out.
    """

    groups: Annotated[int, Field(ge=1)] | None = None


class PrefixBatchSpec(_KindSpec):
    """Kind ``prefix_batch``: one synthetic histogram for all conditions of a batch."""


class CorrelatedVectorSpec(_KindSpec):
    """Kind ``correlated_vector``: the rows of each phase respond once, when it opens; queries are free.

    Attributes:
        attribute: The boolean one whose bits are answered.
    """

    attribute: AttributeName


class BetweenSpec(_KindSpec):
    """Kind ``between``: a run of comparisons, until so many of its answers were "between"."""

    answers: Annotated[int, Field(ge=1, le=1000)]


class InteriorPointSpec(_KindSpec):
    """Kind ``interior_point``: a run for each attribute and window, right for so many points."""

    points: Annotated[int, Field(ge=1, le=10**9)]


class AdaptiveThresholdSpec(_KindSpec):
    """Kind ``adaptive_threshold``: a run for each attribute and window, right for so many thresholds."""

    chunks: Annotated[int, Field(ge=2, le=1000)]
    queries: Annotated[int, Field(ge=1, le=10**9)]


class KindsSpec(Request):
    """Other kinds of queries than counts, and what each may cost; one that is not named is refused."""

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
        """A newcomer writes what is asked, "quantile", for what answers it, "threshold"."""
        if isinstance(given, dict) and (unknown := sorted(given.keys() - cls.model_fields.keys())):
            known = ", ".join(cls.model_fields).replace(
                "threshold,", "threshold (quantiles too),", 1
            )
            raise PydanticCustomError(
                "kind_unknown", "unknown kind", {"given": unknown[0][:64], "known": known}
            )
        return given


class Definition(Request):
    """A data set: schema, promise, and when its phases open. Immutable once accepted."""

    version: Literal[1]
    dataset: DatasetName
    attributes: Annotated[
        tuple[AttributeSpec, ...], BeforeValidator(tupled), Field(min_length=1, max_length=64)
    ]
    privacy: PrivacySpec
    accuracy: AccuracySpec
    phase: PhaseSpec
    mechanism: MechanismSpec = CalibratedSpec()
    kinds: KindsSpec = KindsSpec()
    on_exhausted: Literal["unverified", "refuse"] = "unverified"
    synthetic_rows: Annotated[int, Field(ge=0, le=MAX_SYNTHETIC_ROWS)] = 0

    @model_validator(mode="after")
    def _kinds_beside_counts(self) -> Definition:
        if self.kinds != KindsSpec() and not self.mechanism.takes_kinds:
            raise ValueError('kinds go with the profile "calibrated" alone: leave them out')
        return self

    @model_validator(mode="after")
    def _rows_follow(self) -> Definition:
        if self.synthetic_rows and not self.mechanism.feeds_synthetic_rows:
            raise ValueError('the profile "counts" knows nothing that synthetic_rows could follow')
        return self

    @classmethod
    def read(cls, document: Mapping[str, Any], *, quoting: bool = False) -> Definition:
        """Validates a parsed definition.

        Args:
            quoting: Whether an error may repeat what the definition says.

        Raises:
            InvalidDefinition: It names the field and the fix.
        """
        return validated(cls, document, InvalidDefinition, quoting=quoting)

    def check_new(self) -> None:
        """What is asked of a new definition alone: those that were accepted before are read for ever.

        Raises:
            InvalidDefinition: ``privacy.delta`` lets a mechanism publish a whole row of each phase.
        """
        delta, n_rows = self.privacy.delta, self.phase.min_rows
        if _as_written(delta) * n_rows > 1:
            raise InvalidDefinition(
                "privacy.delta",
                "it is above 1/phase.min_rows: a whole row of each phase could be published",
                f"give at most {_one_in(n_rows)}; below {_one_in(100 * n_rows)} is usual",
            )

    def to_bytes(self) -> bytes:
        return self.model_dump_json().encode()


def large_delta(delta: float, n_rows: int) -> str | None:
    """A warning where delta comes near to letting a mechanism give away whole ones of so many rows."""
    if _as_written(delta) * 100 * n_rows <= 1:
        return None
    return (
        f"privacy.delta {delta:g} is large for phases of {n_rows:,} rows; below {_one_in(100 * n_rows)} "
        "is usual"
    )


def _as_written(value: float) -> Fraction:
    """The decimal number that someone wrote, not the float nearest to it."""
    return Fraction(str(value))


def _one_in(n: int) -> str:
    """1/n with one digit, rounded down: the text is never more than 1/n."""
    places = len(str(n - 1)) if n > 1 else 0
    return f"{float(f'{10**places // n}e-{places}'):g}"


__all__ = [
    "MAX_SYNTHETIC_ROWS",
    "AccuracySpec",
    "AdaptiveThresholdSpec",
    "AttributeSpec",
    "BetweenSpec",
    "BooleanAttribute",
    "BypassSpec",
    "CalibratedSpec",
    "CategoryAttribute",
    "CorrelatedVectorSpec",
    "CountsSpec",
    "Definition",
    "GatedSpec",
    "InteriorPointSpec",
    "KindsSpec",
    "MechanismSpec",
    "MedianSpec",
    "MemorySpec",
    "ModeSpec",
    "NumberAttribute",
    "PhaseSpec",
    "PhasedSpec",
    "PrefixBatchSpec",
    "PrivacySpec",
    "ProfileSpec",
    "SequentialSpec",
    "StableMedianSpec",
    "ThresholdSpec",
    "WeightsSpec",
    "WholeTableSpec",
    "large_delta",
]
