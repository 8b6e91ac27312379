"""Queries, in the form that a person writes and in the form of messages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Required, TypeAlias, TypedDict, Unpack, overload

from typing_extensions import TypeVar

from stream_dp.client.kafka import topic_documents
from stream_dp.errors import InvalidInput
from stream_dp.messages import (
    FIELDS,
    TOPICS,
    AdaptiveThresholdAnswer,
    Answer,
    BetweenAnswer,
    CorrelatedVectorAnswer,
    CorrelationAnswer,
    DifferenceAnswer,
    DifferenceByGroupAnswer,
    Frame,
    InteriorPointAnswer,
    MedianAnswer,
    ModeAnswer,
    PrefixBatchAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    QueryFields,
    Series,
    ShareAnswer,
    ShareByGroupAnswer,
    SumAnswer,
    SumByGroupAnswer,
    ThresholdAnswer,
    ThresholdCurveAnswer,
)

_QUERIES_A_RECORD: Final = 100
_HEAD_BYTES: Final = 1000

Condition: TypeAlias = str | Mapping[str, Any]
"""SQL, or the JSON tree of ``where``."""

AnswerT_co = TypeVar("AnswerT_co", bound=Answer, default=Answer, covariant=True)
"""The class of the answers to a query, as far as the constructor tells."""

AnswerT = TypeVar("AnswerT", bound=Answer, default=Answer)


ErrorOf: TypeAlias = float | Mapping[str, float]
"""A share of the rows, ``{"relative": share}`` of a count, ``{"value": number}``, or ``{"mean": number}``."""


class _More(TypedDict, total=False):
    last_phases: int | None
    window: Mapping[str, Any] | None
    query_id: str | None


class _Precise(_More, total=False):
    across: Literal["since"] | None
    error: ErrorOf | None
    at_most: float | None
    series: Series | None
    frame: Frame | None


class _OfSum(_Precise, total=False):
    up_to: float | None
    count_rows: bool
    mean: bool


class _ByGroup(_Precise):
    group_by: Required[Sequence[str]]


class _SumByGroup(_OfSum):
    group_by: Required[Sequence[str]]


_AS_IT_IS: Final = (
    *("attribute", "other", "up_to", "rank", "low", "high"),
    *("count_rows", "mean", "minus_window", "fresh", "once", "across"),
)
"""The fields of a query that its message has under the same names."""

_NOT_ASKED: Final = frozenset({"quote", "standing", "alert"})
"""The fields of a query's message that say what is done with the query."""


@dataclass(frozen=True, slots=True)
class Query(Generic[AnswerT_co]):
    """One query for ``ask``, ``quote`` and ``ask_many``.

    ``Query("age >= 30")`` counts rows. Each other kind has a constructor of the same name, which also takes
    ``last_phases`` and ``query_id``. A data set answers the kinds that its definition names. See
    docs/messages.md.

    Attributes:
        condition: A condition in SQL, or the JSON tree of ``where``. None counts all rows.
        group_by: The attributes of a table.
        last_phases: The number of latest phases to ask about. None asks about all phases.
        query_id: The id of the query. A repeated id returns the same answer. None creates a new id.
        kind: The kind of query. None for counts, or if the SQL says the kind.
        attribute: The attribute to analyse. None if the conditions name exactly one.
        other: The attribute that ``attribute`` may go together with.
        conditions: The conditions of a batch.
        rank: The rank of a quantile, in [0, 1].
        low: The lower share of the rows with which a count is compared. ``high`` is the upper share.
        up_to: The number that no row of a sum counts for more than, which must be an edge. None for none.
        count_rows: Whether a sum also counts all rows that satisfy the condition.
        mean: Whether the mean of a sum is what matters, for data sets with ``accuracy.aim``.
        error: The largest error of a count, table, sum or share: a share of the rows such as 0.005,
            ``{"relative": 0.05}`` of a count, ``{"value": 50}`` rows or units of a sum, ``{"mean": 2.5}`` of
            a mean, or ``{"value": 0.01}`` of a share or a correlation. None takes ``accuracy.error``.
        at_most: The largest share of any phase's budget that the answer may take. None for no limit.
        fresh: Whether a count rests on a look of its own alone. Its error bar then holds however the query
            was chosen, and it is charged under every new id.
        once: The attribute by which each person counts once in the window. None counts persons in each phase.
        share_of: The condition whose share among the rows of ``condition`` is asked, in SQL or as a tree.
        minus_window: The window whose share is taken away from that of the ``last_phases``:
            ``{"previous_phases": 7}`` or ``{"previous": "7 days"}`` right before them, or
            ``{"last_phases": 28}``.
        window: The window in another form than ``last_phases``: ``{"last": "7 days"}``, ``{"phases": [3,
            7]}``, or ``{"since": "2026-11-01", "until": "2026-11-08"}``, of which one may be left out. With
            ``"running": True`` next to ``last`` or dates, today so far counts too, by its running totals.
        across: With ``"since"`` the window begins where rows say all that is asked, if the schema changed.
        series: Asks one part for each ``"phase"``, ``"day"``, ``"week"`` or ``"month"`` of the window.
        frame: How many parts of a series each answer is about: the last 7 for a moving average of 7, or
            ``"running"`` for all up to the part. None for the part alone.

    Example:
        >>> from stream_dp.client import Query
        >>> Query("age >= 30 AND smoker", last_phases=3).last_phases
        3
        >>> Query.quantile("age", 0.9).kind
        'quantile'
    """

    condition: Condition | None = None
    group_by: tuple[str, ...] = ()
    last_phases: int | None = None
    query_id: str | None = None
    kind: str | None = None
    attribute: str | None = None
    conditions: tuple[Condition, ...] = ()
    other: str | None = None
    rank: float | None = None
    low: float | None = None
    high: float | None = None
    up_to: float | None = None
    count_rows: bool = False
    mean: bool = False
    error: ErrorOf | None = None
    at_most: float | None = None
    fresh: bool = False
    once: str | None = None
    share_of: Condition | None = None
    minus_window: Mapping[str, Any] | None = None
    window: Mapping[str, Any] | None = None
    across: Literal["since"] | None = None
    series: Series | None = None
    frame: Frame | None = None

    @classmethod
    def of_message(cls, fields: QueryFields) -> Query[Any]:
        """Returns the query of a message. ``as_message`` returns the fields of the message again."""
        said = fields.model_dump(exclude_none=True, exclude_defaults=True)
        window = said.pop("window", {})
        last_phases = window.pop("last_phases", None)
        return Query(
            condition=said.pop("where", None),
            conditions=said.pop("wheres", ()),
            last_phases=last_phases,
            window=window or None,
            **{name: value for name, value in said.items() if name not in _NOT_ASKED},
        )

    @overload
    @classmethod
    def sum(
        cls, attribute: str, condition: Condition | None = None, **more: Unpack[_OfSum]
    ) -> Query[SumAnswer]: ...

    @overload
    @classmethod
    def sum(
        cls, attribute: str, condition: Condition | None = None, **more: Unpack[_SumByGroup]
    ) -> Query[SumByGroupAnswer]: ...

    @classmethod
    def sum(cls, attribute: str, condition: Condition | None = None, **more: Any) -> Query[Any]:
        """Asks for the sum and the mean of a number over the rows that satisfy a condition.

        The ``count`` of the answer covers the rows that have a value. With ``count_rows``, its ``rows`` also
        counts the rows without a value. With ``up_to``, no row counts for more than that. With ``mean``, a
        data set with ``accuracy.aim`` aims at the mean.

        Example:
            >>> from stream_dp.client import Query
            >>> Query.sum("income", "age >= 30", group_by=["city"]).group_by
            ('city',)
        """
        return _asked(condition, kind="sum", attribute=attribute, **more)

    @overload
    @classmethod
    def share(
        cls, share_of: Condition, condition: Condition | None = None, **more: Unpack[_Precise]
    ) -> Query[ShareAnswer]: ...

    @overload
    @classmethod
    def share(
        cls, share_of: Condition, condition: Condition | None = None, **more: Unpack[_ByGroup]
    ) -> Query[ShareByGroupAnswer]: ...

    @classmethod
    def share(
        cls, share_of: Condition, condition: Condition | None = None, **more: Any
    ) -> Query[Any]:
        """Asks for the share of ``share_of`` among the rows that satisfy ``condition``.

        Example:
            >>> from stream_dp.client import Query
            >>> Query.share("smoker", "age >= 30", error={"value": 0.01}).kind
            'share'
        """
        return _asked(condition, kind="share", share_of=share_of, **more)

    @overload
    @classmethod
    def difference(
        cls, condition: Condition | None, minus_window: Mapping[str, Any], **more: Unpack[_Precise]
    ) -> Query[DifferenceAnswer]: ...

    @overload
    @classmethod
    def difference(
        cls, condition: Condition | None, minus_window: Mapping[str, Any], **more: Unpack[_ByGroup]
    ) -> Query[DifferenceByGroupAnswer]: ...

    @classmethod
    def difference(
        cls, condition: Condition | None, minus_window: Mapping[str, Any], **more: Any
    ) -> Query[Any]:
        """Asks by how much the share of a condition differs between two windows.

        Example:
            >>> from stream_dp.client import Query
            >>> Query.difference("smoker", {"previous_phases": 7}, last_phases=7).kind
            'difference'
        """
        return _asked(condition, kind="difference", minus_window=dict(minus_window), **more)

    @classmethod
    def correlation(
        cls,
        attribute: str,
        other: str,
        condition: Condition | None = None,
        **more: Unpack[_Precise],
    ) -> Query[CorrelationAnswer]:
        """Asks for the correlation of two numbers, as ``CORR(attribute, other)`` does in SQL.

        Example:
            >>> from stream_dp.client import Query
            >>> Query.correlation("age", "hours", "smoker").other
            'hours'
        """
        return Query(condition, kind="correlation", attribute=attribute, other=other, **more)

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
        """Asks how many rows lie in a range such as ``"age < 45"``. Without a range it asks for the curve."""
        return Query(condition, kind="threshold", attribute=attribute, **more)

    @overload
    @classmethod
    def quantile(
        cls,
        attribute: str,
        rank: float,
        condition: Condition | None = None,
        **more: Unpack[_Precise],
    ) -> Query[QuantileAnswer]: ...

    @overload
    @classmethod
    def quantile(
        cls,
        attribute: str,
        rank: float,
        condition: Condition | None = None,
        **more: Unpack[_ByGroup],
    ) -> Query[QuantileByGroupAnswer]: ...

    @classmethod
    def quantile(
        cls, attribute: str, rank: float, condition: Condition | None = None, **more: Any
    ) -> Query[Any]:
        """Asks for the bins that hold the value of a rank in [0, 1]: 0.5 is the median.

        0 is the least value, and 1 the largest one.

        Example:
            >>> from stream_dp.client import Query
            >>> Query.quantile("age", 0.5, "smoker", group_by=["city"]).rank
            0.5
        """
        return _asked(condition, kind="quantile", attribute=attribute, rank=rank, **more)

    @classmethod
    def median(cls, attribute: str, **more: Unpack[_More]) -> Query[MedianAnswer]:
        """Asks for the exact bin of the median. The answer may be ``no_answer``."""
        return Query(kind="median", attribute=attribute, **more)

    @classmethod
    def mode(cls, attribute: str, **more: Unpack[_More]) -> Query[ModeAnswer]:
        """Asks for the exact most frequent value. The answer may be ``no_answer``."""
        return Query(kind="mode", attribute=attribute, **more)

    @classmethod
    def prefix_batch(
        cls, attribute: str, conditions: Sequence[Condition], **more: Unpack[_More]
    ) -> Query[PrefixBatchAnswer]:
        """Asks for the shares of many conditions on one attribute, with one error bar for all."""
        return Query(kind="prefix_batch", attribute=attribute, conditions=tuple(conditions), **more)

    @classmethod
    def correlated_vector(
        cls, attribute: str, **more: Unpack[_More]
    ) -> Query[CorrelatedVectorAnswer]:
        """Asks for a noisy sign of each row about a boolean attribute."""
        return Query(kind="correlated_vector", attribute=attribute, **more)

    @classmethod
    def between(
        cls, condition: Condition, low: float, high: float, **more: Unpack[_More]
    ) -> Query[BetweenAnswer]:
        """Asks whether the share of rows that satisfy a condition is below, between or above two shares."""
        return Query(condition, kind="between", low=low, high=high, **more)

    @classmethod
    def interior_point(
        cls, attribute: str, condition: Condition, **more: Unpack[_More]
    ) -> Query[InteriorPointAnswer]:
        """Asks on which side of some row the end of a range such as ``"age < 45"`` lies."""
        return Query(condition, kind="interior_point", attribute=attribute, **more)

    @classmethod
    def adaptive_threshold(
        cls, attribute: str, condition: Condition, **more: Unpack[_More]
    ) -> Query[AdaptiveThresholdAnswer]:
        """Asks how many rows satisfy ``"age < 45"``, with one error bar for all adaptively chosen queries."""
        return Query(condition, kind="adaptive_threshold", attribute=attribute, **more)


def _asked(condition: Condition | None, *, group_by: Sequence[str] = (), **more: Any) -> Query[Any]:
    """Returns the query of a kind that can be asked by groups."""
    return Query(condition, tuple(group_by), **more)


def query_of(
    query: Query[Any] | Condition | None,
    group_by: Sequence[str] = (),
    last_phases: int | None = None,
    query_id: str | None = None,
) -> Query[Any]:
    """Builds a ``Query`` from the arguments of ``ask``.

    Raises:
        InvalidInput: The query is already a ``Query``, and another argument is given too.
    """
    if not isinstance(query, Query):
        return Query(query, tuple(group_by), last_phases, query_id)
    if group_by or last_phases is not None or query_id is not None:
        raise InvalidInput(
            "query", "it is already a Query", "set group_by, last_phases and query_id in the Query"
        )
    return query


Parse: TypeAlias = Callable[[str], dict[str, Any]]
"""A function from SQL to the fields of a query message: ``sql.parse`` for the attributes of a data set."""


def as_message(query: Query[Any], parse: Parse) -> dict[str, Any]:
    """Returns the fields of a query's message. A query without an id gets a new one.

    Raises:
        InvalidInput: The fields of the query contradict each other.
        InvalidQuery: ``parse`` does not accept its SQL.
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
            raise InvalidInput("kind", f"the SQL already asks for {item['kind']}", "omit the kind")
        item["kind"] = query.kind
    for name in _AS_IT_IS:
        if (said := getattr(query, name)) is not None and said is not False:
            item[name] = dict(said) if isinstance(said, Mapping) else said
    if query.share_of is not None:
        item["share_of"] = _where(query.share_of, parse, "share_of")
    _add_said(item, error=query.error, at_most=query.at_most)
    if query.conditions:
        item["wheres"] = [_where(condition, parse) for condition in query.conditions]
    _name_attribute(item)
    _add_time(item, query)
    return item


def _add_time(item: dict[str, Any], query: Query[Any]) -> None:
    """Adds the window, the series and its frame of a query, which its SQL may say instead."""
    if query.last_phases is not None and query.window is not None:
        raise InvalidInput("window", "last_phases is a window too", "leave one of the two out")
    windows = {"last_phases": query.last_phases}
    window = windows if query.last_phases is not None else query.window
    times = {"window": window, "series": query.series, "frame": query.frame}
    _add_said(item, **{name: said for name, said in times.items() if said != item.get(name)})


def with_window(
    item: Mapping[str, Any], last_phases: int | None, window: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the fields of a query about a window.

    Raises:
        InvalidInput: The SQL names a window too.
    """
    query, found = Query(last_phases=last_phases, window=window), dict(item)
    _add_time(found, query)
    return found


def _add_said(item: dict[str, Any], **more: Any) -> None:
    """Adds fields of a query, which its SQL may say instead."""
    for name, said in more.items():
        if said is None:
            continue
        if name in item:
            raise InvalidInput(name, "the SQL says it too", "say it once")
        item[name] = dict(said) if isinstance(said, Mapping) else said


def _where(condition: Condition, parse: Parse, field: str = "conditions") -> dict[str, Any]:
    """Returns the tree of one condition of a batch, or of another field."""
    if not isinstance(condition, str):
        return dict(condition)
    item = parse(condition)
    selects = re.match(r"\s*select\b", condition, re.IGNORECASE) is not None
    if selects or item["kind"] != "predicate" or "fresh" in item:
        raise InvalidInput(field, f"{condition!r} is not a condition", "omit SELECT")
    if item.keys() & {"error", "at_most"}:
        problem = "a batch has one price for all of them"
        if field != "conditions":
            problem = "the error and the price are those of the whole query"
        raise InvalidInput(field, problem, "omit the clauses")
    if item.keys() & {"window", "series", "frame"}:
        raise InvalidInput(field, "the time is that of the whole query", "leave the time out")
    return item["where"] or {"all": []}


def _name_attribute(item: dict[str, Any]) -> None:
    """Adds the attribute that the conditions name if the kind needs one and none is given."""
    kind = item.get("kind", "predicate")
    needs = FIELDS[kind].needs if kind in FIELDS else ()
    if (
        "attribute" not in needs
        or kind in ("sum", "quantile", "correlation")
        or "attribute" in item
    ):
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
    """Yields the names in a tree of conditions, with repetitions."""
    if isinstance(where, Mapping):
        if isinstance(name := where.get("attribute"), str):
            yield name
        for part in where.values():
            yield from _attributes_of(part)
    elif isinstance(where, list | tuple):
        for part in where:
            yield from _attributes_of(part)


def packed(
    head: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    *,
    most: int = _QUERIES_A_RECORD,
) -> Iterator[tuple[bytes, int]]:
    """Packs queries into as few records as their number and size allow.

    Args:
        head: The fields that all queries share.
        items: The fields of the queries, as ``as_message`` returns them.
        most: The largest number of queries in a record.
    """
    limit = TOPICS["queries"].max_value_bytes
    chunk: list[Mapping[str, Any]] = []
    size = _HEAD_BYTES
    for item in items:
        more = len(topic_documents.to_json(item)) + 1
        if chunk and (size + more > limit or len(chunk) == most):
            yield topic_documents.to_json({**head, "queries": chunk}), len(chunk)
            chunk, size = [], _HEAD_BYTES
        chunk.append(item)
        size += more
    if chunk:
        yield topic_documents.to_json({**head, "queries": chunk}), len(chunk)


def in_one_record(head: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> bytes:
    """Packs queries into one record.

    Raises:
        InvalidInput: They do not fit.
    """
    records = list(packed(head, items, most=len(items)))
    if len(records) != 1:
        raise InvalidInput(
            "queries",
            f"{len(items):,} queries do not fit into one record" if items else "there are none",
            "ask about some queries, and fewer at once" if items else "name at least one",
        )
    return records[0][0]
