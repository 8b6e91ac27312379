"""The profiles that answer, their settings, and the facts that follow from these."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from stream_dp.messages.message_base import Request
from stream_dp.messages.tile_fields import Workload


class ProfileSpec(Request):
    """The facts about a profile that follow from its settings, without a mechanism.

    Attributes:
        looks: Kinds of looks that it takes itself, as the ledger names them.
        takes_kinds: Whether other kinds of queries than counts can be turned on.
        feeds_synthetic_rows: Whether synthetic rows could follow what it publishes.
        answers_unverified: Whether it may answer without a promise once no budget is left.
        paid_at_opening: Whether opening a phase spends all that its queries will cost.
        takes_errors: Whether a query may name an error and a price of its own.
        takes_measures: Whether it looks at sums, so that the values of rows are worth keeping.
        takes_persons: Whether it can protect a person with many rows.
        takes_retention: Whether it goes on answering when the rows of old phases are erased.
    """

    looks: ClassVar[tuple[str, ...]]
    takes_kinds: ClassVar[bool] = False
    feeds_synthetic_rows: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = False
    paid_at_opening: ClassVar[bool] = False
    takes_errors: ClassVar[bool] = False
    takes_measures: ClassVar[bool] = False
    takes_persons: ClassVar[bool] = False
    takes_retention: ClassVar[bool] = False

    @property
    def papers(self) -> PhasedSpec | None:
        """The settings of a papers' mechanism; None under every other profile."""
        return None


class CalibratedSpec(ProfileSpec):
    """The calibrated profile, for 1e4 to 1e9 rows.

    Attributes:
        base_share: The share of a new line that the base release takes. With 0, each query pays for itself.
            Default: what it is expected to save.
        queries_per_phase: The different queries expected in each phase. Default: the number of tiles, or
            300 in the first phase.
        workload: The queries expected in each phase. Default: conditions on up to three attributes.
        growth: With ``never``, open phases are not measured more at the owner's expense.
        pacing: Whether a part of each line is kept for later phases. Default: where the plan learns and a
            line pays for 10 to 500 queries one by one.
    """

    looks: ClassVar[tuple[str, ...]] = (
        "tables",
        "counts",
        "joined",
        "sums",
        "shares",
        "rows",
        "keys",
        "tick",
        "periods",
    )
    takes_kinds: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = True
    takes_errors: ClassVar[bool] = True
    takes_measures: ClassVar[bool] = True
    takes_persons: ClassVar[bool] = True
    takes_retention: ClassVar[bool] = True

    profile: Literal["calibrated"] = "calibrated"
    base_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    queries_per_phase: Annotated[int, Field(ge=1, le=10**9)] | None = None
    workload: Workload | None = None
    growth: Literal["never"] | None = None
    pacing: bool | None = None


class PhasedSpec(ProfileSpec):
    """The settings that the papers' mechanisms share.

    Attributes:
        hypothesis_rows: The rows of a hypothesis. Default: the papers' number.
        representation: How the consistent set is represented.
        doubling: Whether the number of queries doubles when it was too low.
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
    """The median mechanism: one fixed dataset and a single phase.

    Attributes:
        queries: The number of queries.
    """

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
        queries_per_phase: The number of queries in each phase.
        phases: The number of phases.
        composition: The constant c_K. Default: the smallest that suffices.
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
    """The thesis' memory mechanism, with the papers' constants or with ``hypothesis_rows`` set by hand.

    Attributes:
        queries_per_phase: The number of queries in each phase.
        phases: The number of phases.
    """

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
    """Gates before the maximum-entropy set, which is the thesis' idea at practical sizes.

    Attributes:
        segments: The number of parts of a line: about one for each hard query of a phase.
        prior: What is expected of a new phase: nothing, or what earlier ones were like.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    profile: Literal["gated"]
    segments: Annotated[int, Field(ge=1, le=10**6)]
    prior: Literal["uniform", "carry_over"] = "uniform"


class CountsSpec(ProfileSpec):
    """Each new query gets a fresh noisy count."""

    looks: ClassVar[tuple[str, ...]] = ("count",)
    feeds_synthetic_rows: ClassVar[bool] = False
    takes_retention: ClassVar[bool] = True

    profile: Literal["counts"]


class WholeTableSpec(ProfileSpec):
    """Each phase gets one noisy table of the whole universe."""

    looks: ClassVar[tuple[str, ...]] = ("table",)
    paid_at_opening: ClassVar[bool] = True
    takes_retention: ClassVar[bool] = True

    profile: Literal["whole_table"]


class WeightsSpec(ProfileSpec):
    """Private multiplicative weights.

    Attributes:
        growing: Whether phases open for ever. Otherwise there is one phase.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    answers_unverified: ClassVar[bool] = True

    profile: Literal["weights"]
    growing: bool = True


class BypassSpec(ProfileSpec):
    """Multiplicative weights that plain counts train, and that are tested only where they are trained."""

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
