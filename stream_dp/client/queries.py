"""What is asked: counts, and the other kinds of queries, as a person says them and as messages do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypedDict, Unpack, overload

from typing_extensions import TypeVar

from stream_dp.client import documents
from stream_dp.errors import InvalidInput
from stream_dp.messages import (
    FIELDS,
    TOPICS,
    AdaptiveThresholdAnswer,
    Answer,
    BetweenAnswer,
    CorrelatedVectorAnswer,
    InteriorPointAnswer,
    MedianAnswer,
    ModeAnswer,
    PrefixBatchAnswer,
    QuantileAnswer,
    SumAnswer,
    SumByGroupAnswer,
    ThresholdAnswer,
    ThresholdCurveAnswer,
)

__all__ = ["AnswerT", "Condition", "Query", "packed", "query_of", "spelt"]

_QUERIES_A_RECORD: Final = 100
_HEAD_BYTES: Final = 1000

Condition: TypeAlias = str | Mapping[str, Any]
"""SQL, or the JSON tree of ``where``."""

AnswerT_co = TypeVar("AnswerT_co", bound=Answer, default=Answer, covariant=True)
"""The class of the answers to a query, as far as the constructor tells."""

AnswerT = TypeVar("AnswerT", bound=Answer)


class _More(TypedDict, total=False):
    last_phases: int | None
    query_id: str | None


@dataclass(frozen=True, slots=True)
class Query(Generic[AnswerT_co]):
    """One query, as ``ask``, ``quote`` and ``ask_many`` take it.

    ``Query("age >= 30")`` counts rows. Every other kind has a constructor of its name, which takes
    ``last_phases`` and ``query_id`` too; a data set answers those that its definition names. See
    docs/messages.md.

    Attributes:
        condition: SQL, or the JSON tree of ``where``; None for all rows.
        last_phases: How many of the latest phases; None for all.
        query_id: The answer under an id never changes. None for a new one.
        kind: None for counts, and where SQL says it.
        attribute: That it is about; None where its conditions name only one.
        conditions: Of a batch.
        rank: Of a quantile, in [0, 1].
        low: Share of the rows that a count is compared with; ``high`` likewise.
        count_rows: Beside a sum: whether all rows that satisfy the condition are counted too.
    """

    condition: Condition | None = None
    group_by: tuple[str, ...] = ()
    last_phases: int | None = None
    query_id: str | None = None
    kind: str | None = None
    attribute: str | None = None
    conditions: tuple[Condition, ...] = ()
    rank: float | None = None
    low: float | None = None
    high: float | None = None
    count_rows: bool = False

    @overload
    @classmethod
    def sum(
        cls,
        attribute: str,
        condition: Condition | None = None,
        *,
        count_rows: bool = False,
        **more: Unpack[_More],
    ) -> Query[SumAnswer]: ...

    @overload
    @classmethod
    def sum(
        cls,
        attribute: str,
        condition: Condition | None = None,
        *,
        group_by: Sequence[str],
        count_rows: bool = False,
        **more: Unpack[_More],
    ) -> Query[SumByGroupAnswer]: ...

    @classmethod
    def sum(
        cls,
        attribute: str,
        condition: Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        count_rows: bool = False,
        **more: Unpack[_More],
    ) -> Query[Any]:
        """The sum of a number over the rows that satisfy a condition, and their mean.

        Its ``count`` is of the rows that have a value. With ``count_rows`` the answer's ``rows`` counts those
        without one too.
        """
        return Query(
            condition,
            tuple(group_by),
            kind="sum",
            attribute=attribute,
            count_rows=count_rows,
            **more,
        )

    @overload
    @classmethod
    def threshold(cls, attribute: str, **more: Unpack[_More]) -> Query[ThresholdCurveAnswer]: ...

    @overload
    @classmethod
    def threshold(
        cls, attribute: str, condition: Condition, **more: Unpack[_More]
    ) -> Query[ThresholdAnswer]: ...

    @classmethod
    def threshold(
        cls, attribute: str, condition: Condition | None = None, **more: Unpack[_More]
    ) -> Query[Any]:
        """Rows in a range of a number, ``"age < 45"``; without one the whole curve, as a table."""
        return Query(condition, kind="threshold", attribute=attribute, **more)

    @classmethod
    def quantile(cls, attribute: str, rank: float, **more: Unpack[_More]) -> Query[QuantileAnswer]:
        """The bin below which, or in which, a share ``rank`` of the values is."""
        return Query(kind="quantile", attribute=attribute, rank=rank, **more)

    @classmethod
    def median(cls, attribute: str, **more: Unpack[_More]) -> Query[MedianAnswer]:
        """The exact bin of the median, or ``no_answer``."""
        return Query(kind="median", attribute=attribute, **more)

    @classmethod
    def mode(cls, attribute: str, **more: Unpack[_More]) -> Query[ModeAnswer]:
        """The exact most frequent value, or ``no_answer``."""
        return Query(kind="mode", attribute=attribute, **more)

    @classmethod
    def prefix_batch(
        cls, attribute: str, conditions: Sequence[Condition], **more: Unpack[_More]
    ) -> Query[PrefixBatchAnswer]:
        """The shares of many conditions on one attribute, with one error for all."""
        return Query(kind="prefix_batch", attribute=attribute, conditions=tuple(conditions), **more)

    @classmethod
    def correlated_vector(
        cls, attribute: str, **more: Unpack[_More]
    ) -> Query[CorrelatedVectorAnswer]:
        """A noisy sign for each row about a boolean attribute."""
        return Query(kind="correlated_vector", attribute=attribute, **more)

    @classmethod
    def between(
        cls, condition: Condition, low: float, high: float, **more: Unpack[_More]
    ) -> Query[BetweenAnswer]:
        """Whether the share of rows that satisfy a condition is below, between or above two others."""
        return Query(condition, kind="between", low=low, high=high, **more)

    @classmethod
    def interior_point(
        cls, attribute: str, condition: Condition, **more: Unpack[_More]
    ) -> Query[InteriorPointAnswer]:
        """On which side of some row a point lies: of a condition such as ``"age < 45"``, its end."""
        return Query(condition, kind="interior_point", attribute=attribute, **more)

    @classmethod
    def adaptive_threshold(
        cls, attribute: str, condition: Condition, **more: Unpack[_More]
    ) -> Query[AdaptiveThresholdAnswer]:
        """Rows up to a value, ``"age < 45"``, with one error for all queries however chosen."""
        return Query(condition, kind="adaptive_threshold", attribute=attribute, **more)


def query_of(
    query: Query[Any] | Condition | None,
    group_by: Sequence[str],
    last_phases: int | None,
    query_id: str | None,
) -> Query[Any]:
    """What was asked, in one piece.

    Raises:
        InvalidInput: It is a query already, and something is said beside it.
    """
    if not isinstance(query, Query):
        return Query(query, tuple(group_by), last_phases, query_id)
    if group_by or last_phases is not None or query_id is not None:
        raise InvalidInput(
            "query", "it is a Query already", "say group_by, last_phases and query_id in it"
        )
    return query


Parse: TypeAlias = Callable[[str], dict[str, Any]]
"""SQL to fields of a query message: ``sql.parse`` for the attributes of a data set."""


def spelt(query: Query[Any], parse: Parse) -> dict[str, Any]:
    """A query as its message says it, under a new id where it has none.

    Raises:
        InvalidInput: What it says does not go together.
        InvalidQuery: ``parse`` does not take its SQL.
    """
    item: dict[str, Any] = {"query_id": query.query_id or uuid.uuid4().hex}
    if isinstance(query.condition, str):
        item.update(parse(query.condition))
    elif query.condition is not None:
        item["where"] = dict(query.condition)
    if query.group_by:
        if item.get("kind", "predicate") == "predicate":
            item["kind"] = "table"
        item["group_by"] = list(query.group_by)
    if query.kind is not None:
        if item.get("kind", "predicate") not in ("predicate", "table", query.kind):
            raise InvalidInput(
                "kind", f"the query asks {item['kind']} itself", "leave the kind out"
            )
        item["kind"] = query.kind
    for name in ("attribute", "rank", "low", "high"):
        if (said := getattr(query, name)) is not None:
            item[name] = said
    if query.count_rows:
        item["count_rows"] = True
    if query.conditions:
        item["wheres"] = [_where(condition, parse) for condition in query.conditions]
    _name_attribute(item)
    if query.last_phases is not None:
        item["window"] = {"last_phases": query.last_phases}
    return item


def _where(condition: Condition, parse: Parse) -> dict[str, Any]:
    """One condition of a batch."""
    if not isinstance(condition, str):
        return dict(condition)
    item = parse(condition)
    if item["kind"] != "predicate":
        raise InvalidInput("conditions", f"{condition!r} is no condition", "leave SELECT out")
    return item["where"] or {"all": []}


def _name_attribute(item: dict[str, Any]) -> None:
    """Adds the attribute that the conditions name, where the kind needs one and none is given."""
    kind = item.get("kind", "predicate")
    needed, _ = FIELDS.get(kind, ((), ()))
    if "attribute" not in needed or kind == "sum" or "attribute" in item:
        return
    named = set(_attributes_of([item.get("where"), item.get("wheres")]))
    if len(named) > 1:
        raise InvalidInput(
            "attribute",
            f"the conditions are about {' and '.join(sorted(named))}",
            f"ask {kind} about one attribute at a time",
        )
    if named:
        item["attribute"] = named.pop()


def _attributes_of(where: object) -> Iterator[str]:
    """The names in a tree of conditions, each as often as it stands there."""
    if isinstance(where, Mapping):
        if isinstance(name := where.get("attribute"), str):
            yield name
        for part in where.values():
            yield from _attributes_of(part)
    elif isinstance(where, list | tuple):
        for part in where:
            yield from _attributes_of(part)


def packed(
    head: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[bytes, int]]:
    """Queries in as few records as their number and size allow: each record, and how many are in it.

    Args:
        head: What they have in common.
        items: As ``spelt`` has them.
    """
    limit = TOPICS["queries"].max_value_bytes
    chunk: list[Mapping[str, Any]] = []
    size = _HEAD_BYTES
    for item in items:
        more = len(documents.to_json(item)) + 1
        if chunk and (size + more > limit or len(chunk) == _QUERIES_A_RECORD):
            yield documents.to_json({**head, "queries": chunk}), len(chunk)
            chunk, size = [], _HEAD_BYTES
        chunk.append(item)
        size += more
    if chunk:
        yield documents.to_json({**head, "queries": chunk}), len(chunk)
