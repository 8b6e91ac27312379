"""The kinds of queries, as the messages know them.

To add a kind, write its setting and its answer in ``extra_kinds``, and name it below: in its literal and its
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.kinds.extra_kinds import EXTRA_ANSWERS
from stream_dp.messages.kinds.profile_kinds import PROFILE_ANSWERS

QueryKind = Literal[
    "predicate",
    "table",
    "sum",
    "share",
    "difference",
    "correlation",
    "quantile",
    "threshold",
    "median",
    "mode",
    "prefix_batch",
    "correlated_vector",
    "between",
    "interior_point",
    "adaptive_threshold",
]
"""The kind that a query can name."""


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The fields of a query that belong to its kind.

    Attributes:
        needs: The fields that every query of the kind has.
        may_have: The fields that a query of the kind can leave out.
    """

    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that belong to the kind."""
        return (*self.needs, *self.may_have)


_PRECISE: Final = ("error", "at_most")
_ABOUT_GROUPS: Final = ("where", "group_by", *_PRECISE)
_COUNTED: Final = ("where", *_PRECISE, "fresh", "once")

FIELDS: Final[Mapping[str, QueryShape]] = MappingProxyType(
    {
        "predicate": QueryShape((), _COUNTED),
        "table": QueryShape(("group_by",), _COUNTED),
        "sum": QueryShape(
            ("attribute",), ("where", "group_by", "up_to", "count_rows", "mean", *_PRECISE)
        ),
        "share": QueryShape(("share_of",), _ABOUT_GROUPS),
        "difference": QueryShape(("minus_window",), _ABOUT_GROUPS),
        "correlation": QueryShape(("attribute", "other"), ("where", *_PRECISE)),
        "quantile": QueryShape(("attribute", "rank"), _ABOUT_GROUPS),
        "threshold": QueryShape(("attribute",), ("where",)),
        "median": QueryShape(("attribute",)),
        "mode": QueryShape(("attribute",)),
        "prefix_batch": QueryShape(("attribute", "wheres")),
        "correlated_vector": QueryShape(("attribute",)),
        "between": QueryShape(("where", "low", "high")),
        "interior_point": QueryShape(("attribute", "where")),
        "adaptive_threshold": QueryShape(("attribute", "where")),
    }
)
"""The fields of each kind of query: those that it needs, and those that it may have."""

ANSWERS: Final[Mapping[str, type[NoisyAnswer]]] = MappingProxyType(
    {model.model_fields["kind"].default: model for model in (*PROFILE_ANSWERS, *EXTRA_ANSWERS)}
)
"""The model of each kind of answer."""

_OF_KINDS = dict.fromkeys(name for shape in FIELDS.values() for name in shape.names)

ABSENT: Final[Mapping[str, tuple[str, ...]]] = {
    kind: tuple(name for name in _OF_KINDS if name not in shape.names)
    for kind, shape in FIELDS.items()
}
"""The fields that each kind of query must not have, always in the same order."""
