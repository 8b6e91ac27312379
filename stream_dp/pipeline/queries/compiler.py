"""A query's message on its data set's schema: what the core is asked."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import RefusalCode
from stream_dp.core.queries import conditions
from stream_dp.core.queries.query import AnyQuery, KindQuery, LinearQuery, Predicate
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidQuery
from stream_dp.messages import QueryFields
from stream_dp.messages.precision import FixedError, MeanError, RelativeError
from stream_dp.messages.time_fields import MinusWindow
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.queries.windows import minus_window_of

_log = logging.getLogger(__name__)

MOST_CELLS = 35_000
"""The most cells of a table whose answer still fits into one record."""

MOST_SUMS = 18_000
"""Cells of a table of sums, which says fourteen numbers of each in place of seven."""

MOST_SUMS_AND_ROWS = 16_000
"""The same where all rows are counted too: sixteen numbers."""

_ERROR_OF_CORRELATION = 0.05
"""The least error that a correlation aims at where its query names none."""

_COUNTS = ("predicate", "table")
_NO_TARGET = Target()
_OF_MEAN = Target(of_mean=True)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query on the data set's schema, before its window is known.

    Attributes:
        identity: The fields that are equal for two ways to write the same query.
        on: The query about a window.
    """

    identity: tuple[object, ...]
    on: Callable[[range], AnyQuery]


def as_sent(query: QueryFields) -> tuple[object, ...]:
    """Returns the fields that identify a request that cannot be compiled."""
    if query.kind in _COUNTS:
        return (
            query.where,
            query.group_by,
            *_identity(_target(query)),
            *_fresh(query),
            *_once(query),
        )
    counted = ("count_rows",) if query.count_rows else ()
    part: tuple[object, ...] = () if query.share_of is None else ("share_of", query.share_of)
    part += () if query.minus_window is None else _minus(query.minus_window)
    asked: tuple[object, ...] = query.where, query.wheres, query.group_by, query.attribute
    asked += () if query.other is None else (query.other,)
    return (*asked, *_numbers(query), *counted, *part, *_identity(_target(query)))


def _numbers(query: QueryFields) -> tuple[float, ...]:
    """Returns the numbers in a query of another kind. The kind decides which fields they come from."""
    return tuple(n for n in (query.rank, query.low, query.high) if n is not None)


def _target(query: QueryFields) -> Target:
    """Returns the precision that a query asks for, and the most that it may cost."""
    match query.error:
        case None if query.at_most is None:
            return _OF_MEAN if query.mean else _NO_TARGET
        case None:
            return Target(at_most=query.at_most, of_mean=bool(query.mean))
        case RelativeError(relative=relative):
            return Target(relative=relative, at_most=query.at_most)
        case FixedError(value=value) if query.kind in ("share", "correlation"):
            return Target(mean=value, at_most=query.at_most)  # a share is a mean of ones and zeros
        case FixedError(value=value):
            return Target(value=value, at_most=query.at_most)
        case MeanError(mean=mean):
            return Target(mean=mean, at_most=query.at_most)
        case share:
            return Target(share=share, at_most=query.at_most)


def _identity(target: Target) -> tuple[object, ...]:
    """Returns what the target of a query adds to its identity: nothing where it names none."""
    if target is _NO_TARGET:
        return ()
    if target is _OF_MEAN:
        return ("mean",)
    named = ("target", target.share, target.value, target.relative, target.at_most)
    if target.of_mean:
        return (*named, "mean")
    return named if target.mean is None else (*named, target.mean)


def _checked_target(dataset: Dataset, query: QueryFields) -> Target:
    """Returns the target of a query after checking that the data set's profile keeps it."""
    target = _target(query)
    if target.of_mean and dataset.definition.accuracy.aim is None:
        # Its error does not depend on what is read off the answer.
        target = _NO_TARGET if target.at_most is None else replace(target, of_mean=False)
    if target is not _NO_TARGET and not dataset.definition.mechanism.takes_errors:
        raise InvalidQuery(
            "at_most" if query.error is None else "error",
            "a data set of this profile answers all queries with accuracy.error",
            "leave error and at_most out, or ask a data set of the calibrated profile",
        )
    return target


def compile_query(dataset: Dataset, query: QueryFields) -> Compiled:
    """The query on the data set's schema. Raises InvalidQuery."""
    try:
        compiled_in = _BY_KIND.get(query.kind, _kind)
        if query.kind in _IN_ONE_VERSION:
            compiled = _in_its_version(dataset, query, compiled_in)
        else:
            compiled = compiled_in(dataset, query, dataset.universe)
        return compiled if query.across is None else _since(dataset, compiled)
    except (InvalidQuery, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - one analyst must not stop the data set for all
        # Compiling depends on the schema and the query alone, and has changed nothing.
        _log.error("a query cannot be read: %s", type(error).__name__)
        raise InvalidQuery("where", "it cannot be read", "ask in another form") from None


def identities(dataset: Dataset, query: QueryFields) -> Iterator[tuple[object, ...]]:
    """The identities that a query has and had, in the newest version of the attributes and before."""
    for version in reversed(dataset.engine.schema.versions):
        try:
            yield _BY_KIND.get(query.kind, _kind)(dataset, query, version.universe).identity
        except InvalidQuery:
            yield as_sent(query)


def _in_its_version(dataset: Dataset, query: QueryFields, compiled_in: _CompiledIn) -> Compiled:
    """A query that is asked in the attributes that its window has, if these are the same all along."""
    schema = dataset.engine.schema
    newest = compiled_in(dataset, query, dataset.universe)
    if len(schema.versions) == 1:
        return newest

    def on(window: range) -> AnyQuery:
        asked = newest.on(window)
        if all(schema.has(block, _attributes(asked)) for block in window):
            return asked
        with contextlib.suppress(InvalidQuery):  # it has names or values of later versions
            older = compiled_in(dataset, query, schema.at(window.stop - 1).universe).on(window)
            if all(schema.has(block, _attributes(older)) for block in window):
                return older
        return asked

    return replace(newest, on=on)


def _since(dataset: Dataset, compiled: Compiled) -> Compiled:
    """The same about the last phases of a window, from that on whose rows say all that is asked."""

    def on(window: range) -> AnyQuery:
        first = dataset.mechanism.recorded(compiled.on(window)).since
        if first >= window.stop:
            raise InvalidQuery(
                "across",
                "no phase of the window says all that is asked",
                "ask about later phases, or leave across out",
                reason=RefusalCode.NOT_RECORDED.value,
            )
        return compiled.on(range(first, window.stop))

    return replace(compiled, on=on)


def _attributes(query: AnyQuery) -> tuple[int, ...]:
    return query.attributes if isinstance(query, LinearQuery) else ()


def _condition(dataset: Dataset, query: QueryFields, universe: Universe) -> Predicate:
    """The condition of a query, compiled."""
    if universe is dataset.universe:
        return dataset.engine.conditions.compiled(query.where)
    return conditions.compile_where(universe, query.where)


def _count(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    predicate = _condition(dataset, query, universe)
    group_by = _grouped(universe, query, predicate)
    target, fresh = _checked_target(dataset, query), bool(query.fresh)
    if fresh and target.relative is not None:
        raise InvalidQuery(
            "error",
            "a relative error takes several looks, and a fresh answer is one",
            "ask for a share of the rows asked, or for a number of rows",
        )
    once = None if query.once is None else conditions.compile_once(universe, query.once)

    def on(window: range) -> LinearQuery:
        if once is not None and len(window) > once.phases:
            raise InvalidQuery(
                "window",
                f"{query.once} tells persons apart over {once.phases:,} phases, and it has {len(window):,}",
                f"ask about the last {once.phases:,}, or about fewer",
            )
        return LinearQuery(predicate, window, group_by, target=target, fresh=fresh, once=once)

    return Compiled(
        (predicate.key, group_by, *_identity(target), *_fresh(query), *_once(query)), on
    )


def _fresh(query: QueryFields) -> tuple[str, ...]:
    """Returns what tells a query for a fresh answer apart. It changes no other identity."""
    return ("fresh",) if query.fresh else ()


def _once(query: QueryFields) -> tuple[str, ...]:
    """The same for one that counts persons once."""
    return () if query.once is None else ("once", query.once)


def most_cells(query: QueryFields) -> int:
    """Returns the most cells of a table of this kind whose answer still fits into one record."""
    if query.kind == "sum":
        return MOST_SUMS_AND_ROWS if query.count_rows else MOST_SUMS
    return MOST_SUMS if query.kind in ("share", "quantile") else MOST_CELLS


def _grouped(universe: Universe, query: QueryFields, predicate: Predicate) -> tuple[int, ...]:
    """Returns the axes of a table after checking its number of cells."""
    if not query.group_by:
        return ()
    most = most_cells(query)
    group_by = conditions.compile_group_by(universe, query.group_by, predicate)
    if math.prod(universe.shape[attribute] for attribute in group_by) > most:
        raise InvalidQuery(
            "group_by",
            f"the table has more than {most:,} cells",
            "group by fewer attributes, or ask for some of the cells",
            reason="too_many_cells",
        )
    return group_by


def _unsupported(problem: str, fix: str) -> InvalidQuery:
    """The refusal of a kind that the data set does not answer."""
    return InvalidQuery("kind", problem, fix, reason=RefusalCode.UNSUPPORTED_KIND.value)


def _require(dataset: Dataset, kind: str, instead: str) -> None:
    """Raises InvalidQuery if the data set does not answer a kind; ``instead`` is what to ask in its place."""
    if kind not in dataset.mechanism.kinds:
        raise _unsupported(
            f"a data set of this profile does not answer {kind}s",
            f"{instead}, or ask a data set of the calibrated profile",
        )


def _sum(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    _require(dataset, "sum", "ask counts")
    assert query.attribute is not None, "the message was checked"
    total, every, predicate = conditions.compile_total(
        universe, query.attribute, query.where, query.group_by, query.up_to
    )
    if predicate.constant is False:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    group_by = _grouped(universe, query, predicate)
    rows = every if query.count_rows else None
    target = _checked_target(dataset, query)
    counted = () if rows is None else (rows.key,)
    limit = () if query.up_to is None else ("up to", query.up_to)
    return Compiled(
        (predicate.key, group_by, total.attribute, *limit, *counted, *_identity(target)),
        lambda window: LinearQuery(predicate, window, group_by, total, rows, target),
    )


def _share(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    _require(dataset, "share", "ask for both counts and divide them")
    assert query.share_of is not None, "the message was checked"
    part, predicate = conditions.compile_share(universe, query.share_of, query.where)
    group_by = _grouped(universe, query, predicate)
    target = _checked_target(dataset, query)
    return Compiled(
        ("share", part.predicate.key, predicate.key, group_by, *_identity(target)),
        lambda window: LinearQuery(predicate, window, group_by, part, target=target),
    )


def _correlation(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    _require(dataset, "correlation", "ask a table by both attributes")
    assert query.attribute is not None, "the message was checked"
    assert query.other is not None, "the message was checked"
    target, accuracy = _checked_target(dataset, query), dataset.definition.accuracy
    error = target.mean
    if error is None and accuracy.aim is None:
        error = max(accuracy.error, _ERROR_OF_CORRELATION)  # that is a share of the rows
    names = query.attribute, query.other
    product, predicate = conditions.compile_product(universe, names, query.where, error)
    if predicate.constant is False:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    return Compiled(
        ("correlation", predicate.key, *product.attributes, *_identity(target)),
        lambda window: LinearQuery(predicate, window, (), product, target=target),
    )


def _quantile(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    _require(dataset, "quantile", "ask counts, such as age < 30")
    assert query.attribute is not None, "the message was checked"
    assert query.rank is not None, "the message was checked"
    rank, predicate = conditions.compile_rank(
        universe, query.attribute, query.rank, query.where, query.group_by
    )
    if not rank.bins:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    group_by = _grouped(universe, query, predicate)
    target = _checked_target(dataset, query)
    return Compiled(
        ("quantile", predicate.key, group_by, rank.attribute, rank.share, *_identity(target)),
        lambda window: LinearQuery(predicate, window, group_by, target=target, rank=rank),
    )


def _difference(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    minus = query.minus_window
    if dataset.definition.privacy.unit is None:  # else it is of two answers: see two_windows
        _require(dataset, "difference", "ask about each window and subtract")
    assert minus is not None, "the message was checked"
    predicate = _condition(dataset, query, universe)
    group_by = _grouped(universe, query, predicate)
    if predicate.constant is not None and not (group_by and predicate.constant):
        rows = "every row satisfies it" if predicate.constant else "no row can satisfy it"
        raise InvalidQuery("where", f"{rows}, so the difference is 0", "name another condition")
    target = _checked_target(dataset, query)

    def on(window: range) -> LinearQuery:
        """The query about both windows, which are those phases and the ones between them."""
        taken = minus_window_of(dataset, minus, window)
        first, last = min(window.start, taken.start), max(window.stop, taken.stop)
        both = range(first, last) if taken else window
        return LinearQuery(predicate, both, group_by, target=target, difference=(window, taken))

    return Compiled((predicate.key, group_by, *_minus(minus), *_identity(target)), on)


def _minus(minus: MinusWindow) -> tuple[object, ...]:
    """Returns the fields of the window that is taken away."""
    named = "minus_window", minus.last_phases, minus.previous_phases
    return named if minus.previous is None else (*named, minus.previous)


def _kind(dataset: Dataset, query: QueryFields, universe: Universe) -> Compiled:
    kinds = dataset.mechanism.kinds
    if query.kind not in kinds:
        answered = ", ".join(sorted({*_COUNTS, *kinds}))
        raise _unsupported(
            f"this data set does not answer {query.kind}",
            f'ask one of {answered}; a definition turns it on by "{query.kind}" under "kinds", '
            "from the start",
        )
    attribute = None if query.attribute is None else universe.index(query.attribute)
    predicate = dataset.engine.conditions.compiled(query.where)
    predicates = _each(dataset, query.wheres)
    numbers = _numbers(query)
    return Compiled(
        (predicate.key, tuple(each.key for each in predicates), attribute, numbers),
        lambda window: KindQuery(query.kind, window, attribute, predicate, predicates, numbers),
    )


def _each(dataset: Dataset, wheres: Sequence[dict[str, Any]]) -> tuple[Predicate, ...]:
    """The conditions of a batch."""
    predicates = []
    for number, where in enumerate(wheres):
        try:
            predicates.append(dataset.engine.conditions.compiled(where))
        except InvalidQuery as fault:
            field = fault.field.replace("where", f"wheres[{number}]", 1)
            raise InvalidQuery(field, fault.problem, fault.fix, reason=fault.reason) from None
    return tuple(predicates)


_CompiledIn: TypeAlias = Callable[[Dataset, QueryFields, Universe], Compiled]

_BY_KIND: Final[Mapping[str, _CompiledIn]] = {
    "predicate": _count,
    "table": _count,
    "sum": _sum,
    "share": _share,
    "correlation": _correlation,
    "quantile": _quantile,
    "difference": _difference,
}
"""How queries of the calibrated profile's own kinds are compiled; all others alike."""

_IN_ONE_VERSION: Final = frozenset({"sum", "share", "correlation", "quantile"})
"""Kinds that are asked in the attributes of their window, where these are the same all along."""
