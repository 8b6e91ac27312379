"""What can be asked: predicates, which are sets of cells, and the queries that are made of them.

How a query is written, and how that is compiled, is the business of ``conditions``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Target
from stream_dp.core.encoding import Reader, fields, identity, identity_from, identity_head
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.universe import Universe

Mask: TypeAlias = npt.NDArray[np.bool_]

_MOST_HEADS = 4096
"""Beginnings of keys that are kept, because every query has a key."""


@dataclass(frozen=True, eq=False)
class Predicate:
    """A set of cells over the attributes that it depends on, in canonical form.

    Two predicates are equal when they hold for the same rows, however they were written.

    Attributes:
        attributes: Indices, ascending; the mask depends on each of them. Empty for a constant.
        factors: When the mask is an outer product, its factors, one an attribute, shape (size,) each;
            () for a constant; None otherwise.
        key: 16 bytes that are the same for every spelling of this predicate.
    """

    attributes: tuple[int, ...]
    factors: tuple[Mask, ...] | None
    _mask: Mask | None = field(default=None, repr=False)
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        key = (
            _key_of_product(self.attributes, self.factors)
            if self.factors
            else _key_of_cells(self.attributes, self.mask)
        )
        object.__setattr__(self, "key", key)

    @classmethod
    def conjunction(cls, factors: Mapping[int, Mask]) -> Predicate:
        """Holds where every factor does; ``factors`` maps an attribute to its mask, shape (size,)."""
        kept = []
        for attribute in sorted(factors):
            selected = factors[attribute].tobytes()  # faster to search than few cells are to count
            if 1 not in selected:
                return NOTHING
            if 0 in selected:
                kept.append(attribute)
        if not kept:
            return EVERYTHING
        return cls(tuple(kept), tuple(factors[a] for a in kept))

    @classmethod
    def of_mask(cls, attributes: Sequence[int], mask: Mask) -> Predicate:
        """Holds where ``mask`` does; its shape is that of the ascending ``attributes``."""
        kept = list(attributes)
        for axis in reversed(range(mask.ndim)):
            first = mask.take([0], axis)
            if (mask == first).all():
                mask = first.squeeze(axis)
                del kept[axis]
        if not kept:
            return EVERYTHING if mask.item() else NOTHING
        factors = factors_of(mask)
        if factors is not None:
            return cls(tuple(kept), factors)
        return cls(tuple(kept), None, np.ascontiguousarray(mask))

    @cached_property
    def mask(self) -> Mask:
        """The cells where it holds, shape (size of each attribute); () for a constant."""
        if self._mask is not None:
            return self._mask
        assert self.factors is not None
        return reduce(np.logical_and.outer, self.factors)

    def whole_mask(self, universe: Universe) -> Mask:
        """Returns the cells of the whole universe where it holds, row-major, shape (n_cells,)."""
        shape = [1] * len(universe.shape)
        for attribute in self.attributes:
            shape[attribute] = universe.shape[attribute]
        whole = np.broadcast_to(self.mask.reshape(shape), universe.shape)
        return np.ascontiguousarray(whole).reshape(-1)

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on its attributes alone."""
        n_attributes = len(self.attributes)
        header = fields(f"<H{n_attributes}H", n_attributes, *self.attributes)
        return header + np.packbits(self.mask).tobytes()

    @classmethod
    def from_bytes(cls, universe: Universe, data: bytes) -> Predicate:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: They are cut short, too long, or of another universe.
        """
        reader = Reader(data, "predicate")
        (n_attributes,) = reader.fields("<H")
        attributes = reader.fields(f"<{n_attributes}H")
        reader.require(all(a < len(universe.shape) for a in attributes))
        shape = tuple(universe.shape[a] for a in attributes)
        n_cells = math.prod(shape)
        packed = reader.array(np.dtype(np.uint8), -(-n_cells // 8))
        reader.end()
        mask = np.unpackbits(packed, count=n_cells).astype(np.bool_).reshape(shape)
        return cls.of_mask(attributes, mask)

    @cached_property
    def complement(self) -> Predicate:
        """Holds for the rows for which this one does not."""
        if not self.attributes:
            return NOTHING if self.constant else EVERYTHING
        outside = ~self.mask
        # What several factors leave out is not a product again.
        several = self.factors is not None and len(self.factors) > 1
        return Predicate(self.attributes, None if several else factors_of(outside), outside)

    def and_also(self, other: Predicate) -> Predicate:
        """Holds for the rows for which both hold."""
        if self.constant is False or other.constant is False:
            return NOTHING
        if self.factors is not None and other.factors is not None:
            factors = dict(zip(self.attributes, self.factors, strict=True))
            for attribute, factor in zip(other.attributes, other.factors, strict=True):
                factors[attribute] = factors.get(attribute, factor) & factor
            return Predicate.conjunction(factors)
        attributes = tuple(sorted({*self.attributes, *other.attributes}))
        return Predicate.of_mask(
            attributes,
            np.logical_and(*np.broadcast_arrays(self.along(attributes), other.along(attributes))),
        )

    def along(self, attributes: Sequence[int]) -> Mask:
        """``mask`` with an axis for each of ``attributes``, of length 1 where it does not depend on it."""
        sizes = dict(zip(self.attributes, self.mask.shape, strict=True))
        return self.mask.reshape([sizes.get(attribute, 1) for attribute in attributes])

    def cells_of(self, attribute: int, size: int) -> Mask:
        """Returns the cells of one attribute that a row for which it holds may have, shape (size,)."""
        if attribute not in self.attributes:
            return np.full(size, self.constant is not False)
        axis = self.attributes.index(attribute)
        others = tuple(i for i in range(len(self.attributes)) if i != axis)
        return np.asarray(self.mask.any(axis=others))

    @property
    def n_cells(self) -> int:
        """The number of cells of its attributes together."""
        if self.factors is None:
            return self.mask.size
        return math.prod([factor.size for factor in self.factors])

    @cached_property
    def complement_key(self) -> bytes:
        """The ``key`` of the complement, which need not be made for it."""
        if not self.factors:
            return self.complement.key
        if len(self.factors) > 1:
            return _key_of_cells(self.attributes, ~self.mask)
        return _key_of_product(self.attributes, (~self.factors[0],))

    @property
    def constant(self) -> bool | None:
        """True if it holds for every row, False if for none, else None."""
        return None if self.attributes else bool(self.mask)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Predicate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


def _key_of_product(attributes: tuple[int, ...], factors: tuple[Mask, ...]) -> bytes:
    return identity_from(_head_of_product(attributes), [factor.tobytes() for factor in factors])


def _key_of_cells(attributes: tuple[int, ...], mask: Mask) -> bytes:
    return identity_from(_head_of_cells(attributes, mask.shape), np.packbits(mask).tobytes())


@lru_cache(_MOST_HEADS)
def _head_of_product(attributes: tuple[int, ...]) -> bytes:
    return identity_head("product", attributes, n_more=1)


@lru_cache(_MOST_HEADS)
def _head_of_cells(attributes: tuple[int, ...], shape: tuple[int, ...]) -> bytes:
    return identity_head("set of cells", attributes, shape, n_more=1)


EVERYTHING = Predicate((), (), np.broadcast_to(np.True_, ()))  # broadcast_to: read-only
NOTHING = Predicate((), (), np.broadcast_to(np.False_, ()))


def factors_of(mask: Mask) -> tuple[Mask, ...] | None:
    """The factors of a mask that is an outer product, one an axis, shape (size,) each; else None."""
    axes = range(mask.ndim)
    shadows = [np.asarray(mask.any(axis=tuple(b for b in axes if b != a))) for a in axes]
    # The mask lies within the product of its shadows, and fills it just when the sizes agree.
    is_product = np.count_nonzero(mask) == math.prod(int(np.count_nonzero(s)) for s in shadows)
    return tuple(shadows) if is_product else None


@dataclass(frozen=True)
class Kept:
    """The values that are kept of rows, next to their cells: docs/proofs, Theorem 19.

    Attributes:
        unit: What a whole number of units stands for.
        base: The units of the attribute's lower end, from which values are counted.
        ends: The least and the largest number of units that a row of each cell counts for.
    """

    unit: float
    base: int
    ends: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Total:
    """The numbers that are added up: one number stands for each cell of an attribute, or one for each row.

    Attributes:
        attribute: The index of the attribute. The query does not group by it.
        values: The numbers, one for each cell, 0 for missing ones; not all 0. Where the values of rows are
            kept they are guesses.
        kept: The values of rows that are added up in place of these numbers; None where none are kept.
        limit: The number that no row counts for more than. None for no such number.
        scale: What estimates are multiples of. None takes the most by which one row can change the total.
    """

    attribute: int
    values: tuple[float, ...]
    kept: Kept | None = None
    limit: float | None = None
    scale: float | None = None

    @property
    def attributes(self) -> tuple[int, ...]:
        """The axes of ``weights``."""
        return (self.attribute,)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """What the rows of each cell count for, of the sizes of ``attributes``."""
        return np.array(self.values)

    @cached_property
    def largest(self) -> float:
        """The most by which one row can change the total, or the ``scale``."""
        if self.scale is not None:
            return self.scale
        if self.kept is None:
            return max(map(abs, self.values))
        return self.kept.unit * max(abs(end) for ends in self.kept.ends for end in ends)

    def up_to(self, limit: float) -> Total:
        """The same numbers, none of which counts for more than a limit.

        Args:
            limit: In the attribute's own unit. Where values are kept it must not cut a cell, because only the
                sum of each cell is known.
        """
        kept = self.kept
        if kept is not None:
            most = round(limit / kept.unit)
            ends = tuple((min(low, most), min(high, most)) for low, high in kept.ends)
            kept = replace(kept, ends=ends)
        values = tuple(min(value, limit) for value in self.values)
        return Total(self.attribute, values, kept, limit)

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from other numbers to add up."""
        kept = self.kept
        what = () if kept is None else ("kept", kept.unit, kept.base, kept.ends)
        return (self.attribute, self.values, *what)


@dataclass(frozen=True)
class Indicator:
    """The part of the rows that a share is about: each row of it counts 1, and the others count 0.

    Attributes:
        predicate: The rows of the part. All of them satisfy the query's own predicate.
    """

    predicate: Predicate
    kept: ClassVar[None] = None

    @property
    def attributes(self) -> tuple[int, ...]:
        """The axes of ``weights``."""
        return self.predicate.attributes

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """What the rows of each cell count for, of the sizes of ``attributes``."""
        return self.predicate.mask.astype(np.float64)

    @property
    def largest(self) -> float:
        """The most by which one row can change the total."""
        return 1.0

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it apart from other totals."""
        return "share", self.predicate.key


@dataclass(frozen=True)
class Product:
    """The products of two numbers of each row, which a correlation follows from: see ``ways.correlations``.

    Attributes:
        attributes: The indices of two attributes, ascending: the axes of ``weights``.
        factors: The number of each cell of either attribute, 0 for missing ones.
        error: How precise the correlation is to be. None for products that a look adds up as they are.
    """

    attributes: tuple[int, int]
    factors: tuple[tuple[float, ...], tuple[float, ...]]
    error: float | None = None
    kept: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.attributes[0] >= self.attributes[1]:
            raise ValueError("the attributes of products are two, and ascend")

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """What the rows of each pair of cells count for, of the sizes of ``attributes``."""
        one, other = map(np.array, self.factors)
        return np.asarray(np.multiply.outer(one, other), dtype=np.float64)

    @cached_property
    def largest(self) -> float:
        """The most by which one row can change the total."""
        return math.prod(max(map(abs, each)) for each in self.factors)

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it apart from other totals."""
        return "product", self.attributes, self.factors, self.error


@dataclass(frozen=True)
class Rank:
    """The place of one row among those that count, by an attribute with an order.

    Attributes:
        attribute: The index of the attribute. The query does not group by it.
        share: The share of the rows that count up to and with the row, in [0, 1]. 0 is the first row.
        bins: The cells of the attribute that rows that count can be in, ascending.
    """

    attribute: int
    share: float
    bins: tuple[int, ...]


@dataclass(frozen=True)
class Once:
    """Counts each person once in a window: in the first phase of it in which they are there.

    Attributes:
        attribute: The index of the attribute that says how many phases ago they were there before.
        phases: The number of phases ago that is not told apart from larger ones. No window is longer.
        size: The cells of the attribute; one more where somebody may not be meant at all.
    """

    attribute: int
    phases: int
    size: int

    def in_phase(self, place: int) -> Predicate:
        """Holds for persons of a phase, by its place in the window from 0, who are in none before it."""
        cells = np.zeros(self.size, np.bool_)
        cells[place : self.phases] = True
        return Predicate.conjunction({self.attribute: cells})


@dataclass(frozen=True)
class LinearQuery:
    """A query for a predicate, or for its table over some attributes, on a window of phases.

    Attributes:
        predicate: The rows that count.
        window: The absolute indices of the blocks, contiguous and not empty.
        group_by: The attributes of the table, in the order asked. () asks for one number.
        total: The number that is added up over these rows, the part of them whose share is asked, or the
            products for a correlation. None counts the rows.
        rows: The rows to count next to a total, including rows without a number. None for no such count.
        target: How precise the answer is to be, and what it may cost.
        fresh: Whether the answer rests on a look of its own alone, and not on what is remembered.
        difference: Two windows, the second of which is taken away from the first: a difference of shares is
            asked. ``window`` covers both. None asks about one window.
        rank: The row whose value is asked, a quantile, in each cell of the table. None asks for no quantile.
        once: Counts each person once. None counts them in each phase in which they are there.
        attributes: All attributes that the query depends on, ascending.
        key: 16 bytes that identify the query, whatever the window and the target: what is known about it
            serves every target. A fresh query has the key of the same query without.
    """

    predicate: Predicate
    window: range
    group_by: tuple[int, ...] = ()
    total: Total | Indicator | Product | None = None
    rows: Predicate | None = None
    target: Target = Target()  # noqa: RUF009 - frozen
    fresh: bool = False
    difference: tuple[range, range] | None = None
    rank: Rank | None = None
    once: Once | None = None
    attributes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        if self.fresh and (self.total is not None or self.target.relative is not None):
            raise ValueError("a fresh answer counts rows, with an error that is known beforehand")
        if self.difference is not None and (self.fresh or self.total is not None):
            raise ValueError("a difference is one of counts, and no look of its own answers it")
        if self.rank is not None and (self.fresh or self.total or self.rows or self.difference):
            raise ValueError("a quantile is asked alone, and no look of its own answers it")
        if self.once is not None and (self.total or self.rank or self.difference):
            raise ValueError("it is counts that are of persons")
        if not self.window or self.window.step != 1 or self.window.start < 0:
            raise ValueError("a window is a non-empty range of consecutive blocks")
        if len(set(self.group_by)) != len(self.group_by):
            raise ValueError("an attribute is grouped by twice")
        key = self.predicate.key  # a query for one count is its predicate
        if self.group_by or self.total is not None or self.rows is not None:
            total = None if self.total is None else self.total.identity
            rows = None if self.rows is None else self.rows.key
            key = identity("linear query", key, self.group_by, total, rows)
        if self.rank is not None:
            rank = self.rank
            key = identity("quantile", key, self.group_by, rank.attribute, rank.share)
        if self.once is not None:
            key = identity("persons once", key, self.once.attribute)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "attributes", self._all_attributes())

    def _all_attributes(self) -> tuple[int, ...]:
        if self.key == self.predicate.key:  # it asks for one count
            return self.predicate.attributes
        added = () if self.total is None else self.total.attributes
        counted = () if self.rows is None else self.rows.attributes
        ranked = () if self.rank is None else (self.rank.attribute,)
        once = () if self.once is None else (self.once.attribute,)
        return tuple(
            sorted({*self.predicate.attributes, *self.group_by, *added, *counted, *ranked, *once})
        )

    @property
    def kind(self) -> str:
        """The kind, named as in ``messages.QueryFields``: a predicate, a table, a sum and so on."""
        if self.difference is not None:
            return "difference"
        if self.rank is not None:
            return "quantile"
        if self.total is not None:
            if isinstance(self.total, Product):
                return "correlation"
            return "share" if isinstance(self.total, Indicator) else "sum"
        return "table" if self.group_by else "predicate"

    @property
    def complement_key(self) -> bytes | None:
        """The key of the same query about the rows that do not count. None unless one count answers it.

        The number of rows is public, so the count of either says the count of the other.
        """
        alone = self.kind == "predicate" and self.once is None
        return self.predicate.complement_key if alone else None

    @property
    def counts_all(self) -> bool:
        """Whether all rows that count in the window are asked about."""
        return self.predicate.constant is True and self.once is None

    @property
    def as_planned(self) -> LinearQuery:
        """The same with one condition in all phases: what is planned for. Of persons that of the last one."""
        if self.once is None:
            return self
        last = self.once.in_phase(len(self.window) - 1)
        return replace(self, predicate=self.predicate.and_also(last), once=None)

    @property
    def by_phase(self) -> tuple[LinearQuery, ...]:
        """The queries for each phase that add up to one that counts persons once: docs/proofs, Theorem 41."""
        assert self.once is not None, "persons are counted once"
        return tuple(
            replace(
                self,
                predicate=self.predicate.and_also(self.once.in_phase(place)),
                window=range(block, block + 1),
                once=None,
            )
            for place, block in enumerate(self.window)
        )

    @property
    def table(self) -> LinearQuery:
        """The table whose counts a quantile follows from: by the same groups, and by the attribute."""
        assert self.rank is not None, "a quantile is asked"
        return LinearQuery(self.predicate, self.window, (*self.group_by, self.rank.attribute))


@dataclass(frozen=True)
class KindQuery:
    """A query of another kind; which fields it has depends on the kind.

    Attributes:
        kind: The kind, named as in ``messages.QueryFields``.
        window: Absolute block indices; contiguous, not empty.
        attribute: Index of the attribute it is about; None where it is about rows.
        predicate: The rows or bins that are meant. Default: all of them.
        predicates: The same for each query of a batch.
        numbers: A rank, or two thresholds, as shares.
        key: 16 bytes that are the same whenever the same is asked, the window included.
    """

    kind: str
    window: range
    attribute: int | None = None
    predicate: Predicate = EVERYTHING
    predicates: tuple[Predicate, ...] = ()
    numbers: tuple[float, ...] = ()
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        window = self.window.start, self.window.stop
        predicates = [predicate.key for predicate in self.predicates]
        facts = (self.kind, window, self.attribute, self.predicate.key, predicates, self.numbers)
        object.__setattr__(self, "key", identity("kind query", *facts))


AnyQuery: TypeAlias = LinearQuery | KindQuery
"""Whatever can be asked of a mechanism; its ``kind`` says what it is."""


def total_of(index: int, attribute: Number) -> Total:
    """The numbers that a query for a sum adds up.

    Args:
        index: Index of the attribute.
        attribute: The attribute.
    """
    measure = attribute.measure
    if measure is None:
        return Total(index, attribute.values)
    kept = Kept(measure.unit, measure.ends[0], attribute.measured_ends)
    return Total(index, attribute.values_within_ends, kept)
