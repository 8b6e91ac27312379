"""A query about the newest attributes, as it is asked of rows that have older ones.

The rows of an older version satisfy a condition *surely* or *possibly*, as far as their cells tell. What is
counted is what is sure. Rows that may satisfy it besides are *unrecorded*. The proof is docs/proofs,
Theorem 33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.encoding import identity
from stream_dp.core.queries.query import Indicator, LinearQuery, Mask, Predicate, Total, total_of
from stream_dp.core.rows.attribute_versions import Relation, Schema, Version
from stream_dp.core.rows.attributes import Number

_MOST_KEPT: Final = 256

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Merged:
    """Answers of a part that are one answer of the whole query: a look counts them together.

    Attributes:
        key: Identifies what is counted.
        answers: The answer of the whole query that each number of a look is, ascending.
        into: The number that each answer of the part counts into, shape (its answers,); -1 for none.
    """

    key: bytes
    answers: Places
    into: Places

    def of(self, counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The numbers that answers of the part make up, shape (answers,)."""
        found, known = np.zeros(len(self.answers), counts.dtype), self.into >= 0
        np.add.at(found, self.into[known], counts[known])
        return found


@dataclass(frozen=True, eq=False)
class QueryPart:
    """What a query asks of the blocks that have the same attributes for it.

    Attributes:
        query: The query about these blocks, in their own attributes.
        places: The answer that each answer of ``query`` belongs to, shape (its answers,). None where each
            is itself, and -1 for those that belong to none for sure.
        possible: The rows that may satisfy it, as a query with the same groups. None where all is sure.
        joins: Whether rows of an answer of ``query`` may belong to each answer, shape (its answers, answers).
            None where all is sure.
    """

    query: LinearQuery
    places: Places | None = None
    possible: LinearQuery | None = None
    joins: Mask | None = None

    @property
    def most_merged(self) -> int:
        """The most answers of ``query`` that belong to one answer."""
        if self.places is None:
            return 1
        return max(1, int(np.bincount(self.places[self.places >= 0], minlength=1).max()))

    @cached_property
    def merged(self) -> Merged | None:
        """The answers of ``query`` that are one together. None where each is one of its own."""
        if self.places is None or self.most_merged == 1:
            return None
        answers, into = np.unique(self.places, return_inverse=True)
        if answers[0] < 0:
            answers, into = answers[1:], into - 1
        key = identity("merged answers", self.query.key, self.places.astype("<i8").tobytes())
        return Merged(key, answers, into)


class Projection:
    """Takes queries apart by the versions of a schema.

    Args:
        schema: The schema.

    Attributes:
        schema: The schema.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._parts: dict[tuple[bytes, int, int], tuple[QueryPart, ...] | None] = {}
        self._since: dict[int, int] = {}  # the first block that has each index
        for version in schema.versions:
            for index in version.indices:
                self._since.setdefault(index, version.first)

    def __deepcopy__(self, memo: dict[int, Any]) -> Projection:
        return self  # nothing changes it

    def since(self, query: LinearQuery) -> int:
        """The first block from which on all blocks have the attributes of a query."""
        return max((self._since.get(a, 0) for a in query.attributes), default=0)

    def parts(self, query: LinearQuery) -> tuple[QueryPart, ...] | None:
        """The parts of a query, in the order of their blocks. None if all its blocks have its attributes.

        A sum has a part for each of the bounds within which its values are kept. A query in attributes that
        are not in force any more is about blocks that have them.
        """
        name = query.key, query.window.start, query.window.stop
        if name not in self._parts:
            if len(self._parts) == _MOST_KEPT:
                self._parts.clear()
            self._parts[name] = self._taken_apart(query)
        return self._parts[name]

    def _kept_since(self, query: LinearQuery) -> int:
        """The first block from which on all of a window keep their values as a sum adds them up."""
        total, stop = query.total, query.window.stop
        if not isinstance(total, Total):
            return 0
        for version in reversed(self.schema.versions):
            if version.first < stop and total.attribute in version.indices:
                number = _number(version, total.attribute)
                if _total(total, total.attribute, number).kept != total.kept:
                    return stop
            stop = min(stop, version.first)
        return 0

    def _taken_apart(self, query: LinearQuery) -> tuple[QueryPart, ...] | None:
        since = max(self.since(query), self._kept_since(query))
        if since <= query.window.start:
            return None
        found: list[QueryPart] = []
        starts = [v.first for v in self.schema.versions]
        for version, stop in zip(self.schema.versions, [*starts[1:], since], strict=True):
            window = range(
                max(version.first, query.window.start), min(stop, since, query.window.stop)
            )
            if not window:
                continue
            part = self._part(replace(query, window=window, difference=None), version)
            known = found[-1] if found else None
            if known is not None and known.query.key == part.query.key:
                joined = range(known.query.window.start, window.stop)
                part = replace(part, query=replace(part.query, window=joined))
                if part.possible is not None:
                    part = replace(part, possible=replace(part.possible, window=joined))
                found.pop()
            found.append(part)
        rest = range(max(since, query.window.start), query.window.stop)
        if rest:
            found.append(QueryPart(replace(query, window=rest, difference=None)))
        return tuple(found)

    def recorded_since(self, query: LinearQuery) -> int:
        """The first block from which on to the end of the window all is recorded that a query asks."""
        for part in reversed(self.parts(query) or ()):
            if part.possible is not None:
                return part.query.window.stop
        return query.window.start

    def _part(self, query: LinearQuery, version: Version) -> QueryPart:
        schema = self.schema
        indices = {a: schema.index_at(a, version) for a in query.attributes}
        relations = {
            a: schema.relation(old, a) for a, old in indices.items() if old not in (None, a)
        }
        group_by = [a for a in query.group_by if indices[a] is not None]
        old_groups = tuple(index for a in group_by if (index := indices[a]) is not None)
        sizes = schema.newest.universe.shape

        sure = self._projected(query.predicate, indices, relations, surely=True)
        maybe = self._projected(query.predicate, indices, relations, surely=False)
        total, rows = query.total, query.rows
        if isinstance(total, Indicator):
            part = self._projected(total.predicate, indices, relations, surely=True)
            total = Indicator(part)
        elif isinstance(total, Total):
            old = indices[total.attribute]
            if old is not None:
                added = _total(total, old, _number(version, old))
                total = replace(added, scale=total.largest)
        if rows is not None:
            rows = self._projected(rows, indices, relations, surely=True)
        asked = replace(query, predicate=sure, group_by=old_groups, total=total, rows=rows)
        possible = LinearQuery(maybe, query.window, old_groups)
        changed = [a for a in query.group_by if indices[a] != a]
        if not changed:
            exact = sure.key == maybe.key
            return QueryPart(asked, None, None if exact else possible)
        shape = [sizes[a] for a in query.group_by]
        places, joins = np.zeros(1, np.intp), np.ones((1, 1), np.bool_)
        for a, size in zip(query.group_by, shape, strict=True):
            old = indices[a]
            if old is None:
                place = np.array([schema.before_cell(a)])
                join = np.arange(size)[None] == place[:, None]
            elif old == a:
                place, join = np.arange(size), np.eye(size, dtype=np.bool_)
            else:
                place, join = relations[a].place, relations[a].maybe
            known = (places[:, None] >= 0) & (place[None] >= 0)
            places = np.where(known, places[:, None] * size + place[None], -1).reshape(-1)
            joins = np.kron(joins, join)
        surely_placed = joins.sum(axis=1) == (places >= 0)
        exact = sure.key == maybe.key and bool(surely_placed.all())
        return QueryPart(asked, places, None if exact else possible, None if exact else joins)

    def adds_up(self, part: QueryPart) -> bool:
        """Whether the rows of a part of a sum say what they count for.

        Rows that do not have the number must count as missing, and a limit must not cut one of their cells.
        """
        asked, total = part.query, part.query.total
        assert isinstance(total, Total), "numbers are added up"
        if asked.predicate.constant is False:
            return True
        version = self.schema.at(asked.window.start)
        if total.attribute not in version.indices:
            return False
        number, limit = _number(version, total.attribute), total.limit
        if number.wanted is not None:
            return False  # its cells reach as far as the grid
        if limit is None or total.kept is None:
            return limit is None or limit in number.edges
        most = round(limit / total.kept.unit)
        return all(high <= most or low >= most for low, high in number.measured_ends)

    def numbers(self, query: LinearQuery) -> tuple[int, ...]:
        """The indices of the number that a sum adds up, in the blocks of its window."""
        parts = self.parts(query) or (QueryPart(query),)
        totals = [p.query.total for p in parts if p.query.predicate.constant is not False]
        return tuple(dict.fromkeys(t.attribute for t in totals if isinstance(t, Total)))

    def clamped_until(self, query: LinearQuery) -> int:
        """The block after the last one whose rows count within bounds that are wider now; 0 where none does.

        It is about the rows that a sum adds up: those of cells that no bound cuts count as they would now.
        """
        for part in reversed(self.parts(query) or (QueryPart(query),)):
            asked, total = part.query, part.query.total
            version, newest = self.schema.at(asked.window.start), self.schema.newest
            if not isinstance(total, Total) or total.attribute not in version.indices:
                continue
            number = _number(version, total.attribute)
            now = _number(newest, newest.indices[version.indices.index(total.attribute)])
            wider = _total(total, total.attribute, replace(number, measure=now.measure))
            if total.kept is None or wider.kept is None:
                return 0
            differ = [own != now for own, now in zip(total.kept.ends, wider.kept.ends, strict=True)]
            if (asked.predicate.cells_of(total.attribute, number.size) & differ).any():
                return asked.window.stop
        return 0

    def _projected(
        self,
        predicate: Predicate,
        indices: dict[int, int | None],
        relations: dict[int, Relation],
        *,
        surely: bool,
    ) -> Predicate:
        """The predicate in older attributes, of the rows that satisfy it surely, or possibly."""
        if all(indices[a] == a for a in predicate.attributes):
            return predicate

        def along(attribute: int, mask: Mask, axis: int) -> Mask:
            relation = relations[attribute]
            return (relation.surely if surely else relation.possibly)(mask, axis)

        if predicate.factors is not None:
            factors: dict[int, Mask] = {}
            for a, factor in zip(predicate.attributes, predicate.factors, strict=True):
                old = indices[a]
                if old is None:
                    if not factor[self.schema.before_cell(a)]:
                        return Predicate.of_mask((), np.asarray(False))
                else:
                    factors[old] = factor if old == a else along(a, factor, 0)
            return Predicate.conjunction(factors)
        mask, axis, kept = predicate.mask, 0, []
        for a in predicate.attributes:
            old = indices[a]
            if old is None:
                mask = np.asarray(mask.take(self.schema.before_cell(a), axis))
                continue
            if old != a:
                mask = along(a, mask, axis)
            kept.append(old)
            axis += 1
        order = np.argsort(kept)
        return Predicate.of_mask([kept[i] for i in order], np.asarray(mask.transpose(order)))


def _number(version: Version, index: int) -> Number:
    """A number as a version has it."""
    attribute = version.universe.attributes[index]
    assert isinstance(attribute, Number), "numbers are added up, and a type never changes"
    return attribute


def _total(total: Total, index: int, number: Number) -> Total:
    """The same with another number, or with another version of it."""
    found = total_of(index, number)
    return found if total.limit is None else found.up_to(total.limit)
