"""The definition of a data set: all that its owner says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from stream_dp.errors import InvalidDefinition
from stream_dp.messages.analyst_rules import Analysts, OwnerSpec
from stream_dp.messages.definition.attribute_specs import (
    Attributes,
    AttributeSpec,
    ChangeSchema,
    Proposal,
    SchemaVersion,
    ValueCount,
)
from stream_dp.messages.definition.definition_rules import RULES
from stream_dp.messages.definition.profile_specs import CalibratedSpec, MechanismSpec
from stream_dp.messages.definition.promise_specs import (
    AIM,
    AccuracySpec,
    ErasureSpec,
    PrivacySpec,
    RetentionSpec,
    as_written,
    one_in,
)
from stream_dp.messages.kinds.extra_kinds import KindsSpec
from stream_dp.messages.message_base import DatasetName, Request, tupled, validated
from stream_dp.messages.tile_fields import RunningSpec
from stream_dp.messages.time_fields import PhaseSpec

MAX_SYNTHETIC_ROWS = 10_000
"""The most cells of all attributes together. With 64 attributes of 65,536 cells a message still fits."""


class Definition(Request):
    """The definition of a data set: its schema, its guarantee, and when its phases open.

    Nothing of it ever changes but its attributes: see ``ChangeSchema``.

    Attributes:
        attributes: The columns to ask about.
        privacy: What is promised to whom.
        accuracy: How precise answers are.
        phase: When waiting rows become a phase.
        mechanism: The profile that answers, and its settings. Default: ``calibrated``.
        kinds: Other kinds of queries, and what one look of each may cost. Default: none.
        on_exhausted: What analysts get when no budget is left.
        synthetic_rows: The number of synthetic rows of each phase.
        retention: How long rows and answers are kept. Default: rows until the data set is retired, answers
            for ever.
        erasure: How persons are erased, and rows corrected. Default: none.
        analysts: What is allowed to whom. Default: all to everybody.
        owner: What is kept for the owner. It goes with ``analysts``.
        least_cell: With 10, people read "fewer than 10" for a count that surely is. Programs get the number.
        running: Totals of the period that is open. Default: none.
        versions: The versions of the attributes, once there are several. The worker writes it.
        proposals: The edges proposed for numbers with ``propose``. The worker writes it.
        found: The 1,000 most frequent values that were found, and how many have each. The worker writes it.
    """

    version: Literal[1]
    dataset: DatasetName
    attributes: Attributes
    privacy: PrivacySpec
    accuracy: Annotated[AccuracySpec, Field(default_factory=AccuracySpec)]
    phase: PhaseSpec
    mechanism: MechanismSpec = CalibratedSpec()
    kinds: KindsSpec = KindsSpec()
    on_exhausted: Literal["unverified", "refuse"] = "unverified"
    synthetic_rows: Annotated[int, Field(ge=0, le=MAX_SYNTHETIC_ROWS)] = 0
    retention: RetentionSpec | None = None
    erasure: ErasureSpec | None = None
    analysts: Analysts | None = None
    owner: OwnerSpec | None = None
    least_cell: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    running: RunningSpec | None = None
    versions: Annotated[tuple[SchemaVersion, ...], BeforeValidator(tupled)] | None = None
    proposals: Annotated[tuple[Proposal, ...], BeforeValidator(tupled)] | None = None
    found: Annotated[tuple[ValueCount, ...], BeforeValidator(tupled)] | None = None

    @property
    def precision(self) -> str:
        """Says how precise answers are."""
        accuracy = self.accuracy
        bars = f"except one in {1 / accuracy.failure_probability:,.0f}"
        if accuracy.aim is not None:
            return (
                f"answers aim at {100 * accuracy.aim:g}% of themselves; the error bars hold, {bars}"
            )
        asked = "asked" if self.privacy.unit is None else "that count"
        return f"answers lie within {100 * accuracy.error:g}% of the rows {asked}, {bars}"

    @model_validator(mode="before")
    @classmethod
    def _aims_at_answers(cls, fields: Any) -> Any:
        """Aims at the answer where nothing says how precise it must be. Only one profile can."""
        if not isinstance(fields, dict):
            return fields
        accuracy = fields.get("accuracy", {})
        mechanism = fields.get("mechanism", {})
        if not isinstance(accuracy, dict) or not isinstance(mechanism, dict):
            return fields
        if "error" in accuracy or mechanism.get("profile", "calibrated") != "calibrated":
            return fields
        return {**fields, "accuracy": {"aim": AIM, **accuracy}}

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> Definition:
        for rule in RULES:
            rule(self)
        return self

    @classmethod
    def read(cls, document: object, *, quoting: bool = False) -> Definition:
        """Validates a parsed definition.

        Args:
            document: The parsed JSON object.
            quoting: Whether an error may quote the definition.

        Returns:
            The definition.

        Raises:
            InvalidDefinition: The definition is not valid. The error names the field and the fix.

        Example:
            >>> from stream_dp.messages import Definition
            >>> people = Definition.read({
            ...     "version": 1,
            ...     "dataset": "people",
            ...     "attributes": [
            ...         {"name": "age", "type": "number", "edges": [18, 30, 65]},
            ...         {"name": "smoker", "type": "boolean"},
            ...     ],
            ...     "privacy": {"epsilon": 1.0, "delta": 1e-9},
            ...     "accuracy": {"error": 0.02, "failure_probability": 0.01},
            ...     "phase": {"min_rows": 20_000},
            ... })
            >>> people.mechanism.profile
            'calibrated'
        """
        return validated(cls, document, InvalidDefinition, quoting=quoting)

    def check_new(self) -> None:
        """Checks the rules that apply to new definitions only. Accepted definitions stay readable for ever.

        Raises:
            InvalidDefinition: ``privacy.delta`` lets a mechanism publish a whole row of each phase.
        """
        for field in ("versions", "proposals", "found"):
            if getattr(self, field) is not None:
                raise InvalidDefinition(field, "only the worker writes it", f"remove {field}")
        delta, n_rows = self.privacy.delta, self.phase.min_rows
        if as_written(delta) * n_rows > 1:
            raise InvalidDefinition(
                "privacy.delta",
                "it is above 1/phase.min_rows: a whole row of each phase could be published",
                f"use at most {one_in(n_rows)}; below {one_in(100 * n_rows)} is usual",
            )

    @property
    def schema_version(self) -> int:
        """The number of the newest version of the attributes."""
        return self.schema_versions[-1].schema_version

    @property
    def schema_versions(self) -> tuple[SchemaVersion, ...]:
        """The versions of the attributes, the oldest first; also where there is one."""
        return self.versions or (
            SchemaVersion(schema_version=1, first_phase=1, attributes=self.attributes),
        )

    @property
    def optional(self) -> frozenset[str]:
        """The attributes that rows need not have: of later versions, deprecated ones, and some folds."""
        always = {one.name for one in self.schema_versions[0].attributes}
        later = (
            one.name for one in self.attributes if one.deprecated or always.isdisjoint(one.names)
        )
        return self.in_no_row.union(later)

    @property
    def in_no_row(self) -> frozenset[str]:
        """The attributes of which rows say nothing themselves: they are about all rows of a person."""
        return frozenset(
            one.name
            for one in self.attributes
            if one.fold in ("count", "since") or (one.type == "boolean" and one.where is not None)
        )

    @property
    def folds(self) -> dict[str, str]:
        """How attributes say of a person what all rows of theirs in a phase say together, by name."""
        return {one.name: one.fold for one in self.attributes if one.fold is not None}

    @property
    def n_moved(self) -> int:
        """How many rows of a person in other phases what they send in some may move: Theorem 41.

        It is one for each attribute that says how many phases ago somebody was there before, and no version
        adds one.
        """
        first = self.schema_versions[0].attributes
        return sum(one.type == "number" and one.fold == "since" for one in first)

    def changed(self, change: ChangeSchema, first_phase: int) -> Definition:
        """Returns the definition with other attributes in force.

        Args:
            change: The attributes.
            first_phase: The first phase that has them.

        Raises:
            InvalidDefinition: They do not go with the rest of the definition.
        """
        version = SchemaVersion(
            schema_version=change.schema_version,
            first_phase=first_phase,
            attributes=change.attributes,
        )
        kept = tuple(one for one in self.schema_versions if one.first_phase < first_phase)
        document = self.model_dump(mode="json", exclude_none=True, by_alias=True)
        now = version.model_dump(mode="json", exclude_none=True, by_alias=True)
        versions = [one.model_dump(mode="json", exclude_none=True, by_alias=True) for one in kept]
        return Definition.read(
            {**document, "attributes": now["attributes"], "versions": [*versions, now]}
        )

    def least_to_close(self, waiting: int) -> int:
        """Returns how many rows must wait so that they may be closed as a phase, where ``waiting`` do.

        A quarter of ``phase.min_rows`` is enough if ``privacy.delta`` is as small for them as is usual.
        """
        n_rows = self.phase.min_rows
        return -(-n_rows // 4) if as_written(self.privacy.delta) * 100 * waiting <= 1 else n_rows

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The columns that say whose row each is, and which: none, one or both of them."""
        unit, erasure = self.privacy.unit, self.erasure
        own = None if erasure is None else erasure.row
        return tuple(name for name in (None if unit is None else unit.key, own) if name is not None)

    @property
    def kept_phases(self) -> int | None:
        """The number of phases, the last ones, whose rows are kept; None for all."""
        return None if self.retention is None else self.retention.phases

    @property
    def kept_answers_days(self) -> int | None:
        """The least number of days for which an answer is stored under its id; None for ever."""
        answers = None if self.retention is None else self.retention.answers
        return None if answers is None else answers.days

    @property
    def finds(self) -> bool:
        """Whether values of an attribute are found."""
        return any(one.type == "category" and one.find for one in self.attributes)

    @property
    def listed(self) -> dict[str, tuple[str, ...]]:
        """The values that are told apart of each attribute whose values are found, by its name."""
        return {
            one.name: one.values for one in self.attributes if one.type == "category" and one.find
        }

    def with_found(self, found: Mapping[str, Sequence[str]]) -> Definition:
        """Returns the definition with values that were found, in all versions.

        Args:
            found: The values of attributes, listed ones first, by the name of the attribute.
        """
        known: dict[str, tuple[str, ...]] = {}
        for now in self.attributes:  # whose names of all versions it has
            values = next((tuple(found[name]) for name in now.names if name in found), ())
            known |= dict.fromkeys(now.names, values)

        def filled(attributes: Attributes) -> Attributes:
            return tuple(map(filled_one, attributes))

        def filled_one(one: AttributeSpec) -> AttributeSpec:
            values = known.get(one.name, ())
            if one.type != "category" or one.find is None:
                return one
            begins = values[: len(one.values)] == one.values
            return one.model_copy(update={"values": values}) if begins else one

        update: dict[str, Any] = {"attributes": filled(self.attributes)}
        if self.versions is not None:
            update["versions"] = tuple(
                one.model_copy(update={"attributes": filled(one.attributes)})
                for one in self.versions
            )
        return self.model_copy(update=update)

    @property
    def without_measures(self) -> Definition:
        """The same definition without the values that it keeps of rows."""
        plain = tuple(
            attribute.model_copy(update={"measure": None})
            if attribute.type == "number"
            else attribute
            for attribute in self.attributes
        )
        return self.model_copy(update={"attributes": plain})
