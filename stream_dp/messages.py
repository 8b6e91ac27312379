"""What travels on Kafka: messages and the topics that carry them.

Requests forbid unknown fields; replies ignore them when read, so that a field can be added. Every message
has ``version: 1``; a field never changes its meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json, to_json

from stream_dp.errors import InvalidDefinition, InvalidInput, InvalidMessage

DATASET_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
MAX_NESTING = 64
MAX_SYNTHETIC_ROWS = 10_000
"""In one message: with 64 attributes of 65,536 cells they still fit."""

DatasetName = Annotated[str, StringConstraints(pattern=DATASET_PATTERN)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


# ---------------------------------------------------------------- topics


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How one topic is created; ``topics create`` makes it so and ``doctor`` compares.

    Attributes:
        max_value_bytes: Largest value that is served; larger ones are refused in words.
        max_message_bytes: Largest record the broker takes: more than is served, so that a producer who
            sends too much is told why by the worker.
    """

    role: str
    cleanup: Literal["delete", "compact"]
    retention_ms: int
    max_value_bytes: int
    max_message_bytes: int = 1_048_588

    def config(self) -> dict[str, str]:
        config = {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.max_message_bytes),
        }
        if self.role in INPUTS:
            # Whatever producers compress with, the worker reads it, and nobody's zeros swell in its memory.
            config["compression.type"] = "uncompressed"
        return config


INPUTS = ("datasets", "batches", "queries")

_DAY_MS = 86_400_000
_FOR_EVER = -1

TOPICS: Mapping[str, TopicSettings] = {
    settings.role: settings
    for settings in (
        TopicSettings("datasets", "delete", _FOR_EVER, 262_144),
        TopicSettings("batches", "delete", 30 * _DAY_MS, 4_194_304, 6_291_456),
        TopicSettings("queries", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("answers", "delete", 30 * _DAY_MS, 6_291_456, 6_291_456),
        TopicSettings("events", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("rejected", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("catalog", "compact", _FOR_EVER, 262_144),
        TopicSettings("ledger", "delete", _FOR_EVER, 1_048_576),
        TopicSettings("synthetic", "compact", _FOR_EVER, 6_291_456, 6_291_456),
    )
}


@dataclass(frozen=True, slots=True)
class Topics:
    """Topic names under one prefix."""

    prefix: str = "stream-dp."

    def name(self, role: str) -> str:
        return self.prefix + TOPICS[role].role

    def role(self, name: str) -> str:
        return name.removeprefix(self.prefix)


# ---------------------------------------------------------------- reading

_TOO_DEEP = b"\n" + b" " * (MAX_NESTING + 1)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidMessage(
        "value", f"{name} is not a JSON number", "leave the value out or send null"
    )


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidMessage("value", "a number is too large for a float", "send finite numbers")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidMessage("value", "an object names a key twice", "name each key once")
    return found


def read_json(value: bytes, *, max_bytes: int, private: bool = False) -> dict[str, Any]:
    """Parses one JSON object with limits: size, nesting, unique keys, finite numbers.

    Args:
        private: The value may hold rows, so an error says nothing that depends on them.

    Raises:
        InvalidMessage: It is not such an object. The message never quotes the value.
    """
    if len(value) > max_bytes:
        raise InvalidMessage(
            "value",
            f"it is longer than the {max_bytes:,} bytes that are served",
            "split it",
            reason="too_large",
        )
    found = _read_quickly(value, private=private)
    if found is None:
        found = _read_patiently(value, private=private)
    if not isinstance(found, dict):
        raise InvalidMessage("value", "it is not a JSON object", "send one JSON object")
    return found


def _read_quickly(value: bytes, *, private: bool) -> object:
    """What is found by a parser that accepts less; None where only the patient one can tell.

    It lets a key that is named twice pass, and a number that is too large for a float: then what it found,
    written again, has fewer colons, or names infinity. One level of nesting is one space of indentation.
    """
    try:
        found: object = from_json(value, allow_inf_nan=False)
        again = to_json(found, indent=None if private else 1)
    except ValueError:
        return None
    allowed = (
        b"\\u003" not in value  # an escaped colon would make up for a lost one
        and value.count(b":") == again.count(b":")
        and b"Infinity" not in again
        and _TOO_DEEP not in again
    )
    return found if allowed else None


def _read_patiently(value: bytes, *, private: bool) -> object:
    try:
        found: object = json.loads(
            value, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except InvalidMessage:
        raise
    except RecursionError:
        raise InvalidMessage("value", "it is nested too deeply", "flatten it") from None
    except ValueError as error:
        place = (
            f" (line {error.lineno}, column {error.colno})"
            if isinstance(error, json.JSONDecodeError) and not private
            else ""
        )
        raise InvalidMessage(
            "value", f"it is not JSON{place}", "send one JSON object in UTF-8", reason="bad_json"
        ) from None
    if not private:  # what a row holds is never asked about
        _check_nesting(found)
    return found


def _check_nesting(value: object, limit: int = MAX_NESTING) -> None:
    """Refuses a document nested deeper than ``limit``; iterative, so depth cannot hurt it.

    What is empty has no level of its own.

    Raises:
        InvalidMessage: It is deeper.
    """
    layer = [value]
    for _ in range(limit):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if inner and isinstance(inner, dict | list)
        ]
        if not layer:
            return
    raise InvalidMessage("value", "it is nested too deeply", f"stay below {limit} levels")


_WHOLE_NUMBER = "it is no whole number", "write a whole number, without quotes"
_NUMBER = "it is no number", "write a number, without quotes"
_LIST = "it is no list", "write a list in brackets: [...]"
_OBJECT = "it is no object", "write an object in braces: {{...}}"
_FAULTS: Mapping[str, tuple[str, str]] = {
    "extra_forbidden": ("this field is unknown", "remove it or mend its spelling"),
    "missing": ("this field is missing", "add it"),
    "greater_than": ("it is too small", "give more than {gt}"),
    "greater_than_equal": ("it is too small", "give at least {ge:g}"),
    "less_than": ("it is too large", "give less than {lt}"),
    "less_than_equal": ("it is too large", "give at most {le:g}"),
    "too_short": ("the list is too short", "give at least {min_length}"),
    "too_long": ("the list is too long", "give at most {max_length}"),
    "string_too_short": ("the text is empty", "write something"),
    "string_too_long": ("the text is too long", "use at most {max_length} characters"),
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": ("it is neither true nor false", "write true or false, without quotes"),
    "string_type": ("it is no text", "write a text in double quotes"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "literal_error": ("it is none of the values known here", "write {expected}"),
    "union_tag_invalid": ("there is no {discriminator} '{tag}'", "write one of {expected_tags}"),
    "union_tag_not_found": ("{discriminator} is missing", "add it, as in docs/messages.md"),
}
"""Pydantic's faults in words: what is wrong, and how to mend it."""

_SPELLINGS = {
    DATASET_PATTERN: "use 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
    ID_PATTERN: "use 1 to 128 printable ASCII characters without blanks",
}


def _translated(
    error: ValidationError, kind: type[InvalidInput], document: object, *, show_input: bool
) -> InvalidInput:
    """The first fault of a pydantic error as one of ours; the input itself is quoted only on request."""
    first = error.errors(include_url=False)[0]
    facts = first.get("ctx", {})
    if first["type"] == "string_pattern_mismatch":
        problem, fix = "it is not spelt as it must be", _SPELLINGS[facts["pattern"]]
    elif first["type"] in _FAULTS:
        problem, fix = (words.format_map(facts) for words in _FAULTS[first["type"]])
    else:
        problem, fix = first["msg"].removeprefix("Value error, "), "see docs/messages.md"
    if show_input and isinstance(first.get("input"), str | int | float | bool):
        problem += f" (got {first['input']!r:.60})"
    return kind(_place(first["loc"], document), problem, fix)


def _place(found: tuple[int | str, ...], document: Any) -> str:
    """Where a fault is: an attribute by its name, and without the tags that stand for a union's members."""
    parts = [str(part) for part in found]
    if found[:1] == ("attributes",) and len(found) > 1:
        attribute = document["attributes"][found[1]]
        if isinstance(attribute, Mapping) and isinstance(attribute.get("name"), str):
            parts[1] = attribute["name"][:64]
        del parts[2:3]
    elif found[:1] == ("mechanism",):
        del parts[1:2]
    return ".".join(parts) or "message"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


def _tupled(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


# ---------------------------------------------------------------- data sets


def _scalar_text(value: object) -> object:
    """A category value as text: an integer stands for its decimal digits, as it does in a row."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
CategoryValue = Annotated[
    str, BeforeValidator(_scalar_text), StringConstraints(min_length=1, max_length=256)
]


class CategoryAttribute(_Request):
    """A value out of a declared list; anything else falls into the cell ``other``."""

    name: AttributeName
    type: Literal["category"]
    values: Annotated[tuple[CategoryValue, ...], BeforeValidator(_tupled), Field(min_length=1)]
    other: bool = True
    missing: bool = False


class NumberAttribute(_Request):
    """A number in declared, left-closed bins; the outer bins are open.

    Attributes:
        representatives: What a value of each bin counts for in sums and means; by its middle where left out.
    """

    name: AttributeName
    type: Literal["number"]
    edges: Annotated[tuple[Finite, ...], BeforeValidator(_tupled), Field(min_length=1)]
    integer: bool = False
    missing: bool = False
    representatives: Annotated[tuple[Finite, ...], BeforeValidator(_tupled)] | None = None


class BooleanAttribute(_Request):
    """True or false."""

    name: AttributeName
    type: Literal["boolean"]
    missing: bool = False


AttributeSpec = Annotated[
    CategoryAttribute | NumberAttribute | BooleanAttribute, Field(discriminator="type")
]


class PrivacySpec(_Request):
    """The lifetime promise to every row: (epsilon, delta).

    Attributes:
        delta: 0 is a pure promise, which ``counts``, ``weights`` and ``bypass`` can keep.
    """

    epsilon: Annotated[float, Field(ge=1e-9, le=20)]
    delta: Annotated[float, Field(ge=0, lt=1)]


class AccuracySpec(_Request):
    """Every answer lies within ``error`` (a share of the rows asked), but for ``failure_probability``."""

    error: Annotated[float, Field(ge=1e-9, lt=1)]
    failure_probability: Annotated[float, Field(ge=1e-12, lt=1)] = 0.01


class PhaseSpec(_Request):
    """When a phase opens: as soon as this many rows wait."""

    min_rows: Annotated[int, Field(ge=1, le=2**62)]


class CalibratedSpec(_Request):
    """The calibrated profile: for 1e4 to 1e9 rows.

    Attributes:
        base_share: Share of a new line that is spent when its phase opens; by a public rule where left out.
        pacing: Keeps a part of each line for later phases' questions. Turn it off where there will be one
            phase only.
    """

    profile: Literal["calibrated"] = "calibrated"
    base_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    pacing: bool = True


class PhasedSpec(_Request):
    """What the papers' mechanisms have in common.

    Attributes:
        hypothesis_rows: Rows of a hypothesis, for far smaller blocks than the papers' number asks for.
        representation: Of the consistent set; touches accuracy only.
        doubling: Takes the number of queries as a first guess, and doubles it where it was too low.
    """

    hypothesis_rows: Annotated[int, Field(ge=1)] | None = None
    representation: Literal["exhaustive", "entropic", "polytope"] = "entropic"
    doubling: bool = False


class MedianSpec(PhasedSpec):
    """The median mechanism: one fixed dataset, a single phase."""

    profile: Literal["median"]
    queries: Annotated[int, Field(ge=2, le=10**9)]


class SequentialSpec(PhasedSpec):
    """A new median mechanism in every phase, on all rows so far.

    Attributes:
        composition: The constant c_K; the least that composes so many phases where left out.
    """

    profile: Literal["sequential"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]
    composition: Annotated[float, Field(ge=1, le=10_001)] | None = None


class MemorySpec(PhasedSpec):
    """The thesis' memory mechanism with the papers' constants, or with ``hypothesis_rows`` set by hand."""

    profile: Literal["memory"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]


class GatedSpec(_Request):
    """Gates before the maximum-entropy set: the thesis' idea at practical sizes.

    Attributes:
        segments: Parts of a line: about as many hard questions as a phase can pay for.
        prior: What a new phase is expected to look like: nothing in particular, or those before it.
    """

    profile: Literal["gated"]
    segments: Annotated[int, Field(ge=1, le=10**6)]
    prior: Literal["uniform", "carry_over"] = "uniform"


class CountsSpec(_Request):
    """A fresh noisy count for each new question."""

    profile: Literal["counts"]


class WholeTableSpec(_Request):
    """One noisy table of the whole universe a phase."""

    profile: Literal["whole_table"]


class WeightsSpec(_Request):
    """Private multiplicative weights.

    Attributes:
        growing: Whether phases open for ever; else the first is the only one, with the published rate.
    """

    profile: Literal["weights"]
    growing: bool = True


class BypassSpec(_Request):
    """Multiplicative weights that are trained by plain counts, and tested only where trained."""

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


Share = Annotated[float, Field(gt=0, le=1)]
"""What one look takes of a line: of each block that it reads."""


class _KindSpec(_Request):
    """Turns a kind of questions on.

    Attributes:
        share: Of a block's line, that one look takes; see docs/mechanisms.md for what counts as one.
    """

    share: Share


class ThresholdSpec(_KindSpec):
    """Kinds ``threshold`` and ``quantile``: one look an attribute and block, everything else free.

    Attributes:
        partition: Whether bins are joined to segments first, for very many bins and few rows.
    """

    partition: StrictBool = False


class StableMedianSpec(_KindSpec):
    """Kind ``median``: the exact bin, or no answer; each new question is a look."""


class ModeSpec(_KindSpec):
    """Kind ``mode``: the exact most frequent cell, or no answer; each new question is a look.

    Attributes:
        groups: To which rows are dealt, each with a vote; every row has one where left out.
    """

    groups: Annotated[int, Field(ge=1)] | None = None


class PrefixBatchSpec(_KindSpec):
    """Kind ``prefix_batch``: one synthetic histogram for all conditions of a batch."""


class CorrelatedVectorSpec(_KindSpec):
    """Kind ``correlated_vector``: the rows of each phase respond once, when it opens; questions are free.

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


class KindsSpec(_Request):
    """Other kinds of questions than counts, and what each may cost; one that is not named is refused."""

    threshold: ThresholdSpec | None = None
    median: StableMedianSpec | None = None
    mode: ModeSpec | None = None
    prefix_batch: PrefixBatchSpec | None = None
    correlated_vector: CorrelatedVectorSpec | None = None
    between: BetweenSpec | None = None
    interior_point: InteriorPointSpec | None = None
    adaptive_threshold: AdaptiveThresholdSpec | None = None


class Definition(_Request):
    """A data set: schema, promise, and when its phases open. Immutable once accepted."""

    version: Literal[1]
    dataset: DatasetName
    attributes: Annotated[
        tuple[AttributeSpec, ...], BeforeValidator(_tupled), Field(min_length=1, max_length=64)
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
        if self.kinds != KindsSpec() and not isinstance(self.mechanism, CalibratedSpec):
            raise ValueError('kinds go with the profile "calibrated" alone: leave them out')
        return self

    @model_validator(mode="after")
    def _rows_follow(self) -> Definition:
        if self.synthetic_rows and isinstance(self.mechanism, CountsSpec):
            raise ValueError('the profile "counts" knows nothing that synthetic_rows could follow')
        return self

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Definition:
        """Validates a parsed definition.

        Raises:
            InvalidDefinition: It names the field and the fix.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _translated(error, InvalidDefinition, document, show_input=True) from None

    def to_bytes(self) -> bytes:
        return self.model_dump_json().encode()


# ---------------------------------------------------------------- requests


class Batch(_Request):
    """Rows in one of three forms. The rows themselves are checked against the schema, not here."""

    version: Literal[1]
    dataset: DatasetName
    batch_id: Id
    rows: Annotated[list[Any] | None, Field(repr=False)] = None
    columns: Annotated[dict[str, Any] | None, Field(repr=False)] = None
    cells: Annotated[list[Any] | None, Field(repr=False)] = None

    @model_validator(mode="after")
    def _one_form(self) -> Batch:
        if sum(form is not None for form in (self.rows, self.columns, self.cells)) != 1:
            raise ValueError("give exactly one of rows, columns and cells")
        return self

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Batch:
        """Validates the envelope.

        Raises:
            InvalidMessage: It names the field; it never quotes a row.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _translated(error, InvalidMessage, document, show_input=False) from None


FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "predicate": ((), ("where",)),
    "table": (("group_by",), ("where",)),
    "sum": (("attribute",), ("where", "group_by")),
    "threshold": (("attribute",), ("where",)),
    "quantile": (("attribute", "rank"), ()),
    "median": (("attribute",), ()),
    "mode": (("attribute",), ()),
    "prefix_batch": (("attribute", "wheres"), ()),
    "correlated_vector": (("attribute",), ()),
    "between": (("where", "low", "high"), ()),
    "interior_point": (("attribute", "where"), ()),
    "adaptive_threshold": (("attribute", "where"), ()),
}
"""Of each kind of question: the fields that it needs, and those that it may have."""

_OPTIONAL = {name for fields in FIELDS.values() for names in fields for name in names}


class LastPhases(_Request):
    """The most recent phases; clamped to the history there is."""

    last_phases: Annotated[int, Field(ge=1)]


class Query(_Request):
    """One question. Conditions, names and values are checked against the schema by the core.

    Attributes:
        where: Which rows, or which values of ``attribute``.
        wheres: The conditions of a batch, each as in ``where``.
        group_by: Attributes of a table.
        attribute: What a question of order or of values is about, or what is added up.
        rank: Of a quantile, as a share of the rows.
        low: What a count is compared with, as a share of the rows; ``high`` likewise.
    """

    query_id: Id
    kind: Literal[
        "predicate",
        "table",
        "sum",
        "threshold",
        "quantile",
        "median",
        "mode",
        "prefix_batch",
        "correlated_vector",
        "between",
        "interior_point",
        "adaptive_threshold",
    ] = "predicate"
    where: dict[str, Any] | None = None
    wheres: Annotated[
        tuple[dict[str, Any], ...], BeforeValidator(_tupled), Field(max_length=1_000)
    ] = ()
    group_by: Annotated[tuple[AttributeName, ...], BeforeValidator(_tupled)] = ()
    attribute: AttributeName | None = None
    rank: Annotated[float, Field(ge=0, le=1)] | None = None
    low: Annotated[float, Field(ge=0, le=1)] | None = None
    high: Annotated[float, Field(ge=0, le=1)] | None = None
    window: LastPhases | None = None
    quote: StrictBool = False

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Query:
        needed, allowed = FIELDS[self.kind]
        for name in needed:
            if getattr(self, name) in (None, ()):
                raise ValueError(f'kind "{self.kind}" goes with {name}: add it')
        for name in _OPTIONAL - {*needed, *allowed}:
            if getattr(self, name) not in (None, ()):
                raise ValueError(f'kind "{self.kind}" has no {name}: remove it')
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError("low is not below high: the smaller threshold goes first")
        return self

    @classmethod
    def read(cls, document: object) -> Self:
        """Validates one question.

        Raises:
            InvalidMessage: It names the field and the fix.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _translated(error, InvalidMessage, document, show_input=True) from None


class SingleQuery(Query):
    """One question that is a message of its own: the fields of its envelope are beside its own."""

    version: Literal[1]
    dataset: DatasetName
    analyst: Id


class QueryEnvelope(_Request):
    """Who asks what of which data set: the fields of one question, or ``queries`` with many."""

    version: Literal[1]
    dataset: DatasetName
    analyst: Id
    queries: Annotated[list[Any], Field(min_length=1, max_length=10_000)]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> QueryEnvelope:
        """Validates the envelope; a single question is a list of one.

        Raises:
            InvalidMessage: It names the field and the fix.
        """
        if "queries" not in document:
            shared = ("version", "dataset", "analyst")
            document = {
                **{name: document[name] for name in shared if name in document},
                "queries": [
                    {name: value for name, value in document.items() if name not in shared}
                ],
            }
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _translated(error, InvalidMessage, document, show_input=True) from None


# ---------------------------------------------------------------- replies


class Reason(_Reply):
    """Why nothing was released; follows from public facts only."""

    code: str
    message: str
    retriable: bool = False


class Budget(_Reply):
    """Shares of the line that is spent most among the phases asked; they add up to 1."""

    spent: float
    left: float


class PrivacyLoss(_Reply):
    """What this answer cost, as a share of a line: the largest over its blocks."""

    share: float
    blocks: int = 0


class Table(_Reply):
    """GROUP BY: cells row-major in the order of ``attributes``."""

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    error_bars: tuple[float | None, ...]
    error_bars_simultaneous: tuple[float | None, ...] = ()
    totals: tuple[float, ...] | None = None
    total_bars: tuple[float | None, ...] | None = None
    means: tuple[float | None, ...] | None = None
    mean_bars: tuple[float | None, ...] | None = None


class Batched(_Reply):
    """Answers to a batch, in the order of its conditions; ``error_bar_simultaneous`` is that of all."""

    values: tuple[float, ...]
    counts: tuple[int, ...]


class Found(_Reply):
    """One cell of the attribute asked about.

    Attributes:
        label: As in the tables.
        low: Least value in the cell; None where it has none, or is no bin of numbers.
        high: What all values in the cell are below; None likewise.
    """

    label: str
    low: float | None = None
    high: float | None = None


class Vector(_Reply):
    """A sign for each row asked, in order of arrival; see docs/messages.md for its use.

    Attributes:
        bits: 1 where the sign is +1, packed into bytes, the first row's the highest bit of the first byte; as
            base64.
        agreement: Mean of the product of a row's sign with that of its private bit.
    """

    bits: Annotated[str, Field(repr=False)]
    agreement: float


class Answer(_Reply):
    """A noisy answer, a refusal, or a quote.

    Attributes:
        value: Share of the ``n`` rows asked, in [0, 1].
        count: Estimated rows; beyond 2**53 only for readers with 64-bit integers.
        error_bar: Half width around ``value`` at ``confidence``, for a question chosen before the tables that
            answer it were published; None where nothing is known.
        total: Estimated sum of ``attribute`` over the rows that count, which are ``count``; ``mean`` is their
            ratio, missing where nothing is known of it. Bars are half widths in the attribute's own unit.
        found: The quantile, the median, the most frequent value. ``error_bar`` is then that of its rank.
        no_answer: True where such a value was tested and must not be named.
        vector: Responses to a private bit. ``error_bar`` is then that of a mean product with them.
        side: Where a count lies, or a point. ``error_bar`` is then by how much it may be otherwise.
        window: First and last phase the answer speaks of.
    """

    version: Literal[1] = 1
    dataset: str
    query_id: str
    analyst: str
    status: Literal["answered", "refused", "quoted"]
    value: float | None = None
    count: int | None = None
    n: int | None = None
    error_bar: float | None = None
    error_bar_simultaneous: float | None = None
    confidence: float | None = None
    difficulty: Literal["easy", "hard"] | None = None
    path: str | None = None
    total: float | None = None
    total_bar: float | None = None
    mean: float | None = None
    mean_bar: float | None = None
    table: Table | None = None
    batch: Batched | None = None
    found: Found | None = None
    no_answer: bool | None = None
    vector: Vector | None = None
    side: Literal["below", "between", "above"] | None = None
    privacy_loss: PrivacyLoss | None = None
    budget: Budget | None = None
    phase: int | None = None
    window: tuple[int, int] | None = None
    note: str | None = None
    reason: Reason | None = None

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class Event(_Reply):
    """Something public that happened to a data set; clients wait for these."""

    version: Literal[1] = 1
    dataset: str
    event: Literal[
        "dataset_accepted",
        "dataset_refused",
        "dataset_retired",
        "batch_accepted",
        "batch_refused",
        "phase_opened",
        "budget_low",
        "quarantined",
    ]
    batch_id: str | None = None
    rows: int | None = None
    waiting: int | None = None
    phase: int | None = None
    budget: Budget | None = None
    reason: Reason | None = None

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class SyntheticColumn(_Reply):
    """One attribute of synthetic rows, dictionary-encoded: row i has ``labels[codes[i]]``.

    Attributes:
        labels: A category's values and a number's bins as text, true and false; null for missing values.
    """

    labels: tuple[str | bool | None, ...]
    codes: tuple[int, ...]

    def values(self) -> list[str | bool | None]:
        """The label of each row."""
        return [self.labels[code] for code in self.codes]


class TableGap(_Reply):
    """How far synthetic rows are from a published table, and that from the truth: shares of a cell."""

    attributes: tuple[str, ...]
    distance: float
    error_bar: float


class Gap(_Reply):
    """The same of the worst among several published tables or answers."""

    compared: int
    distance: float
    error_bar: float


class Synthetic(_Reply):
    """Synthetic rows in place of a data set's own, made of what was published alone.

    Attributes:
        window: First and last phase that the rows stand for.
        n: How many rows those phases have.
        rows: How many synthetic rows there are.
        columns: By name of the attribute.
        tables: Published tables that the rows were fitted to. For each cell of each of them the share among
            the rows is within ``distance + error_bar`` of the truth: all at once, with ``confidence``.
        others: The same of the worst published table of two attributes that they were not fitted to.
        answers: The same of the worst published answer to a hard question about the window.
        error: The largest ``distance + error_bar`` of ``tables`` and ``answers``; None where nothing is
            proved.
        note: What all this says, in words.
    """

    version: Literal[1] = 1
    dataset: str
    phase: int
    window: tuple[int, int]
    n: int
    rows: int
    columns: dict[str, SyntheticColumn]
    tables: tuple[TableGap, ...] = ()
    others: Gap | None = None
    answers: Gap | None = None
    error: float | None = None
    confidence: float
    note: str

    def values(self) -> dict[str, list[str | bool | None]]:
        """The rows column by column, as a data frame is made of them: ``pandas.DataFrame(it.values())``."""
        return {name: column.values() for name, column in self.columns.items()}

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class Rejected(_Reply):
    """A record that no data set could take; never its body, a keyed digest instead."""

    version: Literal[1] = 1
    topic: str
    partition: int
    offset: int
    dataset: str | None = None
    analyst: str | None = None
    query_id: str | None = None
    batch_id: str | None = None
    digest: str
    reason: Reason

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


__all__ = [
    "DATASET_PATTERN",
    "FIELDS",
    "INPUTS",
    "MAX_SYNTHETIC_ROWS",
    "TOPICS",
    "Answer",
    "Batch",
    "Batched",
    "BooleanAttribute",
    "Budget",
    "BypassSpec",
    "CalibratedSpec",
    "CategoryAttribute",
    "CountsSpec",
    "Definition",
    "Event",
    "Found",
    "Gap",
    "GatedSpec",
    "KindsSpec",
    "LastPhases",
    "MedianSpec",
    "MemorySpec",
    "NumberAttribute",
    "PhasedSpec",
    "PrivacyLoss",
    "Query",
    "QueryEnvelope",
    "Reason",
    "Rejected",
    "SequentialSpec",
    "SingleQuery",
    "Synthetic",
    "SyntheticColumn",
    "Table",
    "TableGap",
    "TopicSettings",
    "Topics",
    "Vector",
    "WeightsSpec",
    "WholeTableSpec",
    "read_json",
]
