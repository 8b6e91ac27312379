"""The messages on Kafka and the topics that carry them.

Requests forbid unknown fields. Replies ignore unknown fields, so that a later release can add one. Every
message has ``version: 1``, and a field never changes its meaning.
"""

from stream_dp.messages.analyst_rules import AnalystSpec as AnalystSpec
from stream_dp.messages.analyst_rules import ChangeAnalysts as ChangeAnalysts
from stream_dp.messages.analyst_rules import OwnerSpec as OwnerSpec
from stream_dp.messages.analyst_rules import entry_of as entry_of
from stream_dp.messages.analyst_rules import is_pattern as is_pattern
from stream_dp.messages.analyst_rules import kept_for as kept_for
from stream_dp.messages.answer_forms import READ_EACH as READ_EACH
from stream_dp.messages.answer_forms import Answer as Answer
from stream_dp.messages.answer_forms import BudgetShares as BudgetShares
from stream_dp.messages.answer_forms import CellsAnswer as CellsAnswer
from stream_dp.messages.answer_forms import CountAnswer as CountAnswer
from stream_dp.messages.answer_forms import FoundAnswer as FoundAnswer
from stream_dp.messages.answer_forms import FoundCell as FoundCell
from stream_dp.messages.answer_forms import NoisyAnswer as NoisyAnswer
from stream_dp.messages.answer_forms import OwnShare as OwnShare
from stream_dp.messages.answer_forms import PeriodSoFar as PeriodSoFar
from stream_dp.messages.answer_forms import PrivacyLoss as PrivacyLoss
from stream_dp.messages.answer_forms import QuotedAnswer as QuotedAnswer
from stream_dp.messages.answer_forms import Reason as Reason
from stream_dp.messages.answer_forms import RefusedAnswer as RefusedAnswer
from stream_dp.messages.answer_forms import SideAnswer as SideAnswer
from stream_dp.messages.answer_forms import plural as plural
from stream_dp.messages.answers import UnknownAnswer as UnknownAnswer
from stream_dp.messages.answers import read_answer as read_answer
from stream_dp.messages.bundles import BUNDLE as BUNDLE
from stream_dp.messages.bundles import MOST_QUOTED as MOST_QUOTED
from stream_dp.messages.bundles import PriceRange as PriceRange
from stream_dp.messages.bundles import QuotedBundle as QuotedBundle
from stream_dp.messages.bundles import QuotedQuery as QuotedQuery
from stream_dp.messages.definition.attribute_specs import AttributeSpec as AttributeSpec
from stream_dp.messages.definition.attribute_specs import BooleanAttribute as BooleanAttribute
from stream_dp.messages.definition.attribute_specs import CategoryAttribute as CategoryAttribute
from stream_dp.messages.definition.attribute_specs import ChangeSchema as ChangeSchema
from stream_dp.messages.definition.attribute_specs import DateAttribute as DateAttribute
from stream_dp.messages.definition.attribute_specs import NumberAttribute as NumberAttribute
from stream_dp.messages.definition.attribute_specs import Proposal as Proposal
from stream_dp.messages.definition.attribute_specs import SchemaVersion as SchemaVersion
from stream_dp.messages.definition.attribute_specs import ValueCount as ValueCount
from stream_dp.messages.definition.definition import MAX_SYNTHETIC_ROWS as MAX_SYNTHETIC_ROWS
from stream_dp.messages.definition.definition import Definition as Definition
from stream_dp.messages.definition.profile_specs import CalibratedSpec as CalibratedSpec
from stream_dp.messages.definition.profile_specs import MechanismSpec as MechanismSpec
from stream_dp.messages.definition.profile_specs import PhasedSpec as PhasedSpec
from stream_dp.messages.definition.profile_specs import ProfileSpec as ProfileSpec
from stream_dp.messages.definition.promise_specs import LARGE_EPSILON as LARGE_EPSILON
from stream_dp.messages.definition.promise_specs import UnitSpec as UnitSpec
from stream_dp.messages.definition.promise_specs import large_delta as large_delta
from stream_dp.messages.definition.promise_specs import large_epsilon as large_epsilon
from stream_dp.messages.dimension_table import MOST_LINES as MOST_LINES
from stream_dp.messages.dimension_table import DimensionTable as DimensionTable
from stream_dp.messages.dimension_table import DimensionType as DimensionType
from stream_dp.messages.json_reader import read_json as read_json
from stream_dp.messages.kinds import ABSENT as ABSENT
from stream_dp.messages.kinds import ANSWERS as ANSWERS
from stream_dp.messages.kinds import FIELDS as FIELDS
from stream_dp.messages.kinds.extra_kinds import (
    AdaptiveThresholdAnswer as AdaptiveThresholdAnswer,
)
from stream_dp.messages.kinds.extra_kinds import Batched as Batched
from stream_dp.messages.kinds.extra_kinds import BetweenAnswer as BetweenAnswer
from stream_dp.messages.kinds.extra_kinds import (
    CorrelatedVectorAnswer as CorrelatedVectorAnswer,
)
from stream_dp.messages.kinds.extra_kinds import InteriorPointAnswer as InteriorPointAnswer
from stream_dp.messages.kinds.extra_kinds import KindsSpec as KindsSpec
from stream_dp.messages.kinds.extra_kinds import MedianAnswer as MedianAnswer
from stream_dp.messages.kinds.extra_kinds import ModeAnswer as ModeAnswer
from stream_dp.messages.kinds.extra_kinds import PrefixBatchAnswer as PrefixBatchAnswer
from stream_dp.messages.kinds.extra_kinds import ThresholdAnswer as ThresholdAnswer
from stream_dp.messages.kinds.extra_kinds import ThresholdCurveAnswer as ThresholdCurveAnswer
from stream_dp.messages.kinds.extra_kinds import Vector as Vector
from stream_dp.messages.kinds.profile_kinds import CorrelationAnswer as CorrelationAnswer
from stream_dp.messages.kinds.profile_kinds import DifferenceAnswer as DifferenceAnswer
from stream_dp.messages.kinds.profile_kinds import (
    DifferenceByGroupAnswer as DifferenceByGroupAnswer,
)
from stream_dp.messages.kinds.profile_kinds import PredicateAnswer as PredicateAnswer
from stream_dp.messages.kinds.profile_kinds import QuantileAnswer as QuantileAnswer
from stream_dp.messages.kinds.profile_kinds import QuantileByGroupAnswer as QuantileByGroupAnswer
from stream_dp.messages.kinds.profile_kinds import ShareAnswer as ShareAnswer
from stream_dp.messages.kinds.profile_kinds import ShareByGroupAnswer as ShareByGroupAnswer
from stream_dp.messages.kinds.profile_kinds import ShareTable as ShareTable
from stream_dp.messages.kinds.profile_kinds import SumAnswer as SumAnswer
from stream_dp.messages.kinds.profile_kinds import SumByGroupAnswer as SumByGroupAnswer
from stream_dp.messages.kinds.profile_kinds import SumTable as SumTable
from stream_dp.messages.kinds.profile_kinds import TableAnswer as TableAnswer
from stream_dp.messages.message_base import DATASET_PATTERN as DATASET_PATTERN
from stream_dp.messages.message_base import TOPIC_PATTERN as TOPIC_PATTERN
from stream_dp.messages.message_base import AttributeName as AttributeName
from stream_dp.messages.message_base import DatasetName as DatasetName
from stream_dp.messages.message_base import Id as Id
from stream_dp.messages.replies import EntryKind as EntryKind
from stream_dp.messages.replies import Event as Event
from stream_dp.messages.replies import LedgerEntry as LedgerEntry
from stream_dp.messages.replies import Rejected as Rejected
from stream_dp.messages.replies import RunningTable as RunningTable
from stream_dp.messages.replies import RunningTick as RunningTick
from stream_dp.messages.replies import SyntheticColumn as SyntheticColumn
from stream_dp.messages.replies import SyntheticRows as SyntheticRows
from stream_dp.messages.replies import TableGap as TableGap
from stream_dp.messages.replies import WorstGap as WorstGap
from stream_dp.messages.requests import Batch as Batch
from stream_dp.messages.requests import ClockRecord as ClockRecord
from stream_dp.messages.requests import ClosePhase as ClosePhase
from stream_dp.messages.requests import Counted as Counted
from stream_dp.messages.requests import QueryEnvelope as QueryEnvelope
from stream_dp.messages.requests import QueryFields as QueryFields
from stream_dp.messages.requests import SingleQuery as SingleQuery
from stream_dp.messages.requests import SourceRange as SourceRange
from stream_dp.messages.series import SERIES as SERIES
from stream_dp.messages.series import SeriesAnswer as SeriesAnswer
from stream_dp.messages.series import SeriesPart as SeriesPart
from stream_dp.messages.standing_query import MOST_STANDING as MOST_STANDING
from stream_dp.messages.standing_query import AlertSpec as AlertSpec
from stream_dp.messages.standing_query import StandingQuery as StandingQuery
from stream_dp.messages.standing_query import id_in_phase as id_in_phase
from stream_dp.messages.standing_query import phase_in_id as phase_in_id
from stream_dp.messages.standing_query import standing_key as standing_key
from stream_dp.messages.tile_fields import Tile as Tile
from stream_dp.messages.tile_fields import TileTables as TileTables
from stream_dp.messages.time_fields import Frame as Frame
from stream_dp.messages.time_fields import MinusWindow as MinusWindow
from stream_dp.messages.time_fields import PhaseSpec as PhaseSpec
from stream_dp.messages.time_fields import Series as Series
from stream_dp.messages.time_fields import Window as Window
from stream_dp.messages.topics import FLUSH as FLUSH
from stream_dp.messages.topics import INPUTS as INPUTS
from stream_dp.messages.topics import MIN_INSYNC as MIN_INSYNC
from stream_dp.messages.topics import PRIVATE as PRIVATE
from stream_dp.messages.topics import TIMES as TIMES
from stream_dp.messages.topics import TOPICS as TOPICS
from stream_dp.messages.topics import UNCLEAN as UNCLEAN
from stream_dp.messages.topics import Topics as Topics
from stream_dp.messages.topics import wrong_settings as wrong_settings
