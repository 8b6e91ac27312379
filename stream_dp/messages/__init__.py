"""The messages on Kafka and the topics that carry them.

Requests forbid unknown fields. Replies ignore unknown fields, so that a later release can add one. Every
message has ``version: 1``, and a field never changes its meaning.
"""

from stream_dp.messages.answers import UnknownAnswer, read_answer
from stream_dp.messages.base import (
    DATASET_PATTERN,
    TOPIC_PATTERN,
    AttributeName,
    DatasetName,
    Id,
)
from stream_dp.messages.bundles import (
    BUNDLE,
    MOST_QUOTED,
    PriceRange,
    QuotedBundle,
    QuotedQuery,
)
from stream_dp.messages.definitions import (
    MAX_SYNTHETIC_ROWS,
    AttributeSpec,
    BooleanAttribute,
    BypassSpec,
    CalibratedSpec,
    CategoryAttribute,
    CountsSpec,
    Definition,
    GatedSpec,
    MeasureSpec,
    MechanismSpec,
    MedianSpec,
    MemorySpec,
    NumberAttribute,
    PhasedSpec,
    PhaseSpec,
    ProfileSpec,
    SequentialSpec,
    UnitSpec,
    WeightsSpec,
    WholeTableSpec,
    large_delta,
)
from stream_dp.messages.dimensions import MOST_LINES, DimensionTable
from stream_dp.messages.forms import (
    Answer,
    BudgetShares,
    CellsAnswer,
    CountAnswer,
    FoundAnswer,
    FoundCell,
    NoisyAnswer,
    PricedAnswer,
    PrivacyLoss,
    QuotedAnswer,
    Reason,
    RefusedAnswer,
    SideAnswer,
    Table,
)
from stream_dp.messages.kinds import ABSENT, ANSWERS, FIELDS, KindsSpec
from stream_dp.messages.kinds.adaptive_threshold import AdaptiveThresholdAnswer
from stream_dp.messages.kinds.between import BetweenAnswer
from stream_dp.messages.kinds.correlated_vector import CorrelatedVectorAnswer, Vector
from stream_dp.messages.kinds.counts import PredicateAnswer, TableAnswer
from stream_dp.messages.kinds.differences import (
    DifferenceAnswer,
    DifferenceByGroupAnswer,
    DifferenceTable,
)
from stream_dp.messages.kinds.interior_point import InteriorPointAnswer
from stream_dp.messages.kinds.median import MedianAnswer
from stream_dp.messages.kinds.mode import ModeAnswer
from stream_dp.messages.kinds.prefix_batch import Batched, PrefixBatchAnswer
from stream_dp.messages.kinds.shares import ShareAnswer, ShareByGroupAnswer, ShareTable
from stream_dp.messages.kinds.sums import SumAnswer, SumByGroupAnswer, SumTable
from stream_dp.messages.kinds.threshold import QuantileAnswer, ThresholdAnswer, ThresholdCurveAnswer
from stream_dp.messages.reading import read_json
from stream_dp.messages.replies import (
    Event,
    Rejected,
    SyntheticColumn,
    SyntheticRows,
    TableGap,
    WorstGap,
)
from stream_dp.messages.requests import (
    Batch,
    LastPhases,
    QueryEnvelope,
    QueryFields,
    SingleQuery,
    SourceRange,
)
from stream_dp.messages.topics import INPUTS, TIMES, TOPICS, Topics, TopicSettings
from stream_dp.messages.workload import Tile, TileTables

__all__ = [
    "ABSENT",
    "ANSWERS",
    "BUNDLE",
    "DATASET_PATTERN",
    "FIELDS",
    "INPUTS",
    "MAX_SYNTHETIC_ROWS",
    "MOST_LINES",
    "MOST_QUOTED",
    "TIMES",
    "TOPICS",
    "TOPIC_PATTERN",
    "AdaptiveThresholdAnswer",
    "Answer",
    "AttributeName",
    "AttributeSpec",
    "Batch",
    "Batched",
    "BetweenAnswer",
    "BooleanAttribute",
    "BudgetShares",
    "BypassSpec",
    "CalibratedSpec",
    "CategoryAttribute",
    "CellsAnswer",
    "CorrelatedVectorAnswer",
    "CountAnswer",
    "CountsSpec",
    "DatasetName",
    "Definition",
    "DifferenceAnswer",
    "DifferenceByGroupAnswer",
    "DifferenceTable",
    "DimensionTable",
    "Event",
    "FoundAnswer",
    "FoundCell",
    "GatedSpec",
    "Id",
    "InteriorPointAnswer",
    "KindsSpec",
    "LastPhases",
    "MeasureSpec",
    "MechanismSpec",
    "MedianAnswer",
    "MedianSpec",
    "MemorySpec",
    "ModeAnswer",
    "NoisyAnswer",
    "NumberAttribute",
    "PhaseSpec",
    "PhasedSpec",
    "PredicateAnswer",
    "PrefixBatchAnswer",
    "PriceRange",
    "PricedAnswer",
    "PrivacyLoss",
    "ProfileSpec",
    "QuantileAnswer",
    "QueryEnvelope",
    "QueryFields",
    "QuotedAnswer",
    "QuotedBundle",
    "QuotedQuery",
    "Reason",
    "RefusedAnswer",
    "Rejected",
    "SequentialSpec",
    "ShareAnswer",
    "ShareByGroupAnswer",
    "ShareTable",
    "SideAnswer",
    "SingleQuery",
    "SourceRange",
    "SumAnswer",
    "SumByGroupAnswer",
    "SumTable",
    "SyntheticColumn",
    "SyntheticRows",
    "Table",
    "TableAnswer",
    "TableGap",
    "ThresholdAnswer",
    "ThresholdCurveAnswer",
    "Tile",
    "TileTables",
    "TopicSettings",
    "Topics",
    "UnitSpec",
    "UnknownAnswer",
    "Vector",
    "WeightsSpec",
    "WholeTableSpec",
    "WorstGap",
    "large_delta",
    "read_answer",
    "read_json",
]
