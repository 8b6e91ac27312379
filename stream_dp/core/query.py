"""Predicate queries: from the JSON tree to a mask over the attributes that matter.

The tree is two-valued. A leaf compares one attribute with constants and holds for a set of its cells, as does
``{"attribute": "carrier", "eq": "AA"}``; ``{"all": [...]}``, ``{"any": [...]}``, ``{"not": {...}}`` combine
them. No comparison holds for the missing cell, so ``not`` of one does.

Where a comparison would cut a bin the question is refused with the nearest edges, never rounded.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.universe import (
    Boolean,
    Category,
    Number,
    Universe,
    number_text,
    shown,
    unknown_name,
)
from stream_dp.errors import InvalidQuery

Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_TOUCHED_CELLS = 1_000_000
MAX_NODES = 128
MAX_DEPTH = 16


@dataclass(frozen=True, eq=False)
class Predicate:
    """A set of cells over the attributes that it depends on, in canonical form.

    Two predicates are equal when they hold for the same rows, however they were spelt.

    Attributes:
        attributes: Indices, ascending; the mask depends on each of them. Empty for a constant.
        factors: When the mask is an outer product, its factors, one an attribute, shape (size,) each;
            () for a constant; None otherwise.
    """

    attributes: tuple[int, ...]
    factors: tuple[Mask, ...] | None
    _mask: Mask | None = field(default=None, repr=False)

    @classmethod
    def conjunction(cls, factors: Mapping[int, Mask]) -> Predicate:
        """Holds where every factor does; ``factors`` maps an attribute to its mask, shape (size,)."""
        kept = []
        for attribute in sorted(factors):
            factor = factors[attribute]
            selected = np.count_nonzero(factor)
            if selected == 0:
                return NOTHING
            if selected < factor.size:
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
        axes = range(mask.ndim)
        shadows = [np.asarray(mask.any(axis=tuple(b for b in axes if b != a))) for a in axes]
        # The mask lies within the product of its shadows, and fills it just when the sizes agree.
        if np.count_nonzero(mask) == math.prod(int(np.count_nonzero(s)) for s in shadows):
            return cls(tuple(kept), tuple(shadows))
        return cls(tuple(kept), None, np.ascontiguousarray(mask))

    @cached_property
    def mask(self) -> Mask:
        """Where it holds, shape (size of each attribute); () for a constant."""
        if self._mask is not None:
            return self._mask
        assert self.factors is not None
        return reduce(np.logical_and.outer, self.factors)

    @property
    def constant(self) -> bool | None:
        """True if it holds for every row, False if for none, else None."""
        return None if self.attributes else bool(self.mask)

    @cached_property
    def key(self) -> bytes:
        """16 bytes that are the same for every spelling of this predicate."""
        if self.factors:
            header = (0, *self.attributes, *[f.size for f in self.factors])
            content = b"".join([f.tobytes() for f in self.factors])
        else:
            header = (1, *self.attributes, *self.mask.shape)
            content = np.packbits(self.mask).tobytes()
        return _digest(header, content)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Predicate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


EVERYTHING = Predicate((), (), np.broadcast_to(np.True_, ()))  # broadcast_to: read-only
NOTHING = Predicate((), (), np.broadcast_to(np.False_, ()))


@dataclass(frozen=True)
class Question:
    """What is asked: a predicate, or its table over some attributes, on a window of phases.

    Attributes:
        predicate: Which rows count.
        window: Absolute block indices; contiguous, not empty.
        group_by: Attributes of the table, in the order asked; () for one number.
    """

    predicate: Predicate
    window: range
    group_by: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.window or self.window.step != 1 or self.window.start < 0:
            raise ValueError("a window is a non-empty range of consecutive blocks")
        if len(set(self.group_by)) != len(self.group_by):
            raise ValueError("an attribute is grouped by twice")

    @cached_property
    def key(self) -> bytes:
        """16 bytes that identify what is asked, whatever the window."""
        return _digest(self.group_by, self.predicate.key) if self.group_by else self.predicate.key


def compile_where(
    universe: Universe,
    where: Mapping[str, object] | None,
    *,
    max_cells: int = MAX_TOUCHED_CELLS,
    max_nodes: int = MAX_NODES,
    max_depth: int = MAX_DEPTH,
) -> Predicate:
    """The predicate that ``where`` spells; None holds for every row.

    Args:
        max_cells: Most cells of the attributes that a predicate touches; checked before they are allocated.
        max_nodes: Most nodes of the tree.
        max_depth: Deepest nesting.

    Raises:
        InvalidQuery: At a place such as ``where.all[1].ge``: what is wrong there, and how to mend it. Its
            ``reason`` is "invalid_query", "unknown_attribute", "cuts_bin" or "too_many_cells".
    """
    if where is None:
        return EVERYTHING
    compiler = _Compiler(universe, max_cells, max_nodes, max_depth)
    region = compiler.region(where, "where", negated=False, depth=1)
    if isinstance(region, _Dense):
        return Predicate.of_mask(region.attributes, region.mask)
    predicate = Predicate.conjunction(region)
    compiler.check_cells(predicate.attributes, "where")
    return predicate


def compile_group_by(
    universe: Universe,
    group_by: Sequence[str],
    predicate: Predicate = EVERYTHING,
    *,
    max_cells: int = MAX_TOUCHED_CELLS,
) -> tuple[int, ...]:
    """Indices of the attributes to group by, in the order asked.

    Raises:
        InvalidQuery: None, a repeated or unknown name, or too many cells together with the predicate's.
    """
    if not group_by:
        raise InvalidQuery("group_by", "it is empty", "name at least one attribute")
    if len(set(group_by)) != len(group_by):
        raise InvalidQuery("group_by", "an attribute is named twice", "name each once")
    indices = tuple(universe.index(n, f"group_by[{i}]") for i, n in enumerate(group_by))
    _check_cells(universe, {*indices, *predicate.attributes}, max_cells, "group_by")
    return indices


@dataclass(frozen=True, slots=True)
class _Dense:
    """A region that is no box: a mask over ascending attributes."""

    attributes: tuple[int, ...]
    mask: Mask


_Box: TypeAlias = dict[int, Mask]
"""A region that is a product: the mask of each attribute that it restricts. {} is everything."""

_Region: TypeAlias = _Box | _Dense

_NOWHERE = _Dense((), np.zeros((), dtype=np.bool_))


class _Compiler:
    """One pass over a tree. Negation is pushed down to the leaves, so that boxes stay boxes."""

    def __init__(self, universe: Universe, max_cells: int, max_nodes: int, max_depth: int) -> None:
        self._universe = universe
        self._max_cells = max_cells
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._n_nodes = 0

    def region(self, node: object, place: str, *, negated: bool, depth: int) -> _Region:
        self._n_nodes += 1
        if self._n_nodes > self._max_nodes:
            raise InvalidQuery(
                place, f"more than {self._max_nodes} conditions", "ask in parts, or use in"
            )
        if depth > self._max_depth:
            raise InvalidQuery(place, f"nested deeper than {self._max_depth}", "flatten it")
        if not isinstance(node, Mapping):
            raise InvalidQuery(place, "this is no condition", f"write {_LEAF_FORM}")
        if "attribute" in node:
            return self._leaf(node, place, negated=negated)
        if len(node) != 1:
            raise InvalidQuery(place, "this is no condition", f"write {_LEAF_FORM}")
        [(connective, content)] = node.items()
        place = f"{place}.{shown(connective)}"
        if connective == "not":
            return self.region(content, place, negated=not negated, depth=depth + 1)
        if connective not in ("all", "any"):
            raise InvalidQuery(place, "there is no such connective", "use all, any or not")
        if not isinstance(content, list | tuple):
            raise InvalidQuery(place, "it combines a list of conditions", "write [...]")
        parts = [
            self.region(part, f"{place}[{i}]", negated=negated, depth=depth + 1)
            for i, part in enumerate(content)
        ]
        is_all = (connective == "all") is not negated  # De Morgan
        return self._intersection(parts, place) if is_all else self._union(parts, place)

    def check_cells(self, attributes: Iterable[int], place: str) -> tuple[int, ...]:
        return _check_cells(self._universe, attributes, self._max_cells, place)

    def _leaf(self, node: Mapping[str, object], place: str, *, negated: bool) -> _Box:
        universe = self._universe
        operators = [key for key in node if key != "attribute"]
        if len(operators) != 1:
            raise InvalidQuery(
                place,
                f"a condition has one comparison, not {len(operators)}",
                f"write {_LEAF_FORM}",
            )
        name, operator = node["attribute"], operators[0]
        index = universe.positions.get(name) if isinstance(name, str) else None
        if index is None:
            raise unknown_name(name, universe.names, f"{place}.attribute")
        attribute = universe.attributes[index]
        compare = _COMPARISONS[type(attribute)].get(operator)
        if compare is None:
            allowed = ", ".join(_COMPARISONS[type(attribute)])
            raise InvalidQuery(
                f"{place}.{shown(operator)}",
                f"{attribute.name} is a {type(attribute).__name__.lower()} and has no such comparison",
                f"use one of {allowed}",
            )
        mask = compare(attribute, node[operator], f"{place}.{operator}")
        return {index: ~mask if negated else mask}

    def _intersection(self, parts: list[_Region], place: str) -> _Region:
        box: _Box = {}
        dense: list[_Dense] = []
        for part in parts:
            if isinstance(part, _Dense):
                dense.append(part)
                continue
            for attribute, mask in part.items():
                box[attribute] = box[attribute] & mask if attribute in box else mask
        return self._merge(np.logical_and, [*dense, box], place) if dense else box

    def _union(self, parts: list[_Region], place: str) -> _Region:
        single: _Box = {}  # parts on one attribute join without leaving it
        rest: list[_Region] = []
        for part in parts:
            if isinstance(part, _Dense) or len(part) != 1:
                rest.append(part)
                continue
            [(attribute, mask)] = part.items()
            single[attribute] = single[attribute] | mask if attribute in single else mask
        if not rest and len(single) == 1:
            return single
        separate: list[_Region] = [{attribute: mask} for attribute, mask in single.items()]
        return self._merge(np.logical_or, [*separate, *rest, _NOWHERE], place)

    def _merge(
        self, combine: Callable[[Mask, Mask], Mask], parts: Sequence[_Region], place: str
    ) -> _Dense:
        touched: set[int] = set()
        for part in parts:
            touched.update(part.attributes if isinstance(part, _Dense) else part)
        attributes = self.check_cells(touched, place)
        mask = reduce(combine, (self._spread(part, attributes) for part in parts))
        shape = tuple(self._universe.shape[a] for a in attributes)
        return _Dense(attributes, np.broadcast_to(mask, shape))

    def _spread(self, region: _Region, attributes: tuple[int, ...]) -> Mask:
        """The region's mask with an axis for each of ``attributes``, of length 1 where it does not care."""
        if isinstance(region, _Dense):
            sizes = dict(zip(region.attributes, region.mask.shape, strict=True))
            return region.mask.reshape([sizes.get(a, 1) for a in attributes])
        mask = np.ones((1,) * len(attributes), dtype=np.bool_)
        for attribute, factor in region.items():
            mask = mask & factor.reshape([-1 if a == attribute else 1 for a in attributes])
        return mask


def _check_cells(
    universe: Universe, attributes: Iterable[int], max_cells: int, place: str
) -> tuple[int, ...]:
    """The attributes, ascending, when their cells are few enough."""
    ascending = tuple(sorted(attributes))
    n_cells = math.prod([universe.shape[a] for a in ascending])
    if n_cells > max_cells:
        names = ", ".join(universe.names[a] for a in ascending)
        raise InvalidQuery(
            place,
            f"{names} have {n_cells} cells together, and at most {max_cells} can be asked about",
            "use fewer attributes at once",
            reason="too_many_cells",
        )
    return ascending


# Comparisons: (attribute, constant, place) -> mask over the attribute's cells, shape (size,).


def _category_in(attribute: Category, values: object, place: str) -> Mask:
    return _select(
        attribute.size, [_category_cell(attribute, v, place) for v in _list(values, place)]
    )


def _category_eq(attribute: Category, value: object, place: str) -> Mask:
    return _select(attribute.size, [_category_cell(attribute, value, place)])


def _category_cell(attribute: Category, value: object, place: str) -> int:
    _refuse_null(value, place)
    key = ("false", "true")[value] if isinstance(value, bool) else value
    cell = attribute.cell_of.get(key) if isinstance(key, str | int | float) else None
    if cell is not None:
        return cell
    listed = ", ".join(attribute.values[:10]) + (", ..." if len(attribute.values) > 10 else "")
    ask_other = f'{{"attribute": "{attribute.name}", "is_other": true}}'
    raise InvalidQuery(
        place,
        f"{shown(value)} is not a listed value of {attribute.name} ({listed})",
        f"unlisted values share one cell, asked by {ask_other}"
        if attribute.other
        else "use a listed value",
    )


def _category_is_other(attribute: Category, wanted: object, place: str) -> Mask:
    if attribute.other_cell is None:
        raise InvalidQuery(place, f"{attribute.name} has no cell for other values", "leave it out")
    return _is_cell(attribute.size, attribute.other_cell, wanted, place)


def _boolean_in(attribute: Boolean, values: object, place: str) -> Mask:
    return _select(
        attribute.size, [_boolean_cell(attribute, v, place) for v in _list(values, place)]
    )


def _boolean_eq(attribute: Boolean, value: object, place: str) -> Mask:
    return _select(attribute.size, [_boolean_cell(attribute, value, place)])


def _boolean_cell(attribute: Boolean, value: object, place: str) -> int:
    _refuse_null(value, place)
    cell = attribute.cell_of.get(value) if isinstance(value, str | int | float) else None
    if cell is None:
        raise InvalidQuery(
            place, f"{attribute.name} is true or false, not {shown(value)}", "write true or false"
        )
    return cell


def _number_ge(attribute: Number, value: object, place: str) -> Mask:
    return _cells_from(attribute, _whole_from(attribute, _number(value, place)), "ge", place)


def _number_lt(attribute: Number, value: object, place: str) -> Mask:
    return _cells_below(attribute, _whole_from(attribute, _number(value, place)), "lt", place)


def _number_gt(attribute: Number, value: object, place: str) -> Mask:
    return _cells_from(attribute, _next_after(attribute, value, "gt", place), "gt", place)


def _number_le(attribute: Number, value: object, place: str) -> Mask:
    return _cells_below(attribute, _next_after(attribute, value, "le", place), "le", place)


def _number_between(attribute: Number, bounds: object, place: str) -> Mask:
    low, high = [_number(b, place) for b in _list(bounds, place, length=2)]
    if low > high:
        return _select(attribute.size, [])
    start = _whole_from(attribute, low)
    end = _next_after(attribute, high, "between", place)
    if start == end:  # whole numbers: none lies between 2.1 and 2.9
        return _select(attribute.size, [])
    from_low = _cells_from(attribute, start, "between", place)
    return from_low & _cells_below(attribute, end, "between", place)


def _number_eq(attribute: Number, value: object, place: str) -> Mask:
    return _number_in(attribute, [value], place)


def _number_in(attribute: Number, values: object, place: str) -> Mask:
    """Bins whose every number is listed: of whole numbers a bin holds only so many."""
    edges = attribute.edges
    wanted = {_number(v, place) for v in _list(values, place)}
    if attribute.integer:
        wanted = {int(v) for v in wanted if v == math.floor(v)}
    listed = Counter(_bin(attribute, v) for v in wanted)
    for cell, n_listed in listed.items():
        n_numbers = edges[cell] - edges[cell - 1] if 0 < cell < len(edges) else math.inf
        if not attribute.integer or n_listed < n_numbers:
            number = min(v for v in wanted if _bin(attribute, v) == cell)
            raise _cuts_bin(attribute, number, "between", place)
    return _select(attribute.size, listed)


def _is_missing(attribute: Category | Number | Boolean, wanted: object, place: str) -> Mask:
    if attribute.missing_cell is None:
        raise InvalidQuery(
            place, f"{attribute.name} has no cell for missing values", "leave this condition out"
        )
    return _is_cell(attribute.size, attribute.missing_cell, wanted, place)


_LEAF_FORM = '{"attribute": ..., "eq": ...}, or all, any, not'

_Comparison: TypeAlias = Callable[..., Mask]
_COMPARISONS: Mapping[type, Mapping[str, _Comparison]] = {
    Category: {
        "eq": _category_eq,
        "in": _category_in,
        "is_other": _category_is_other,
        "is_missing": _is_missing,
    },
    Number: {
        "eq": _number_eq,
        "in": _number_in,
        "ge": _number_ge,
        "gt": _number_gt,
        "le": _number_le,
        "lt": _number_lt,
        "between": _number_between,
        "is_missing": _is_missing,
    },
    Boolean: {"eq": _boolean_eq, "in": _boolean_in, "is_missing": _is_missing},
}


def _whole_from(attribute: Number, number: float) -> float:
    """The least number of the attribute's kind that is >= ``number``."""
    return math.ceil(number) if attribute.integer else number


def _next_after(attribute: Number, value: object, operator: str, place: str) -> float:
    """The least whole number above ``value``: where ``> value`` begins and ``<= value`` ends."""
    number = _number(value, place)
    if not attribute.integer:
        # Bins are left-closed: the number itself and what follows it share one.
        raise _cuts_bin(attribute, number, operator, place)
    return math.floor(number) + 1


def _cells_from(attribute: Number, start: float, operator: str, place: str) -> Mask:
    cell = _bin(attribute, start)
    if cell == 0 or attribute.edges[cell - 1] != start:
        raise _cuts_bin(attribute, start, operator, place)
    mask = np.zeros(attribute.size, dtype=np.bool_)
    mask[cell : len(attribute.edges) + 1] = True
    return mask


def _cells_below(attribute: Number, end: float, operator: str, place: str) -> Mask:
    cell = _bin(attribute, end)
    if cell == 0 or attribute.edges[cell - 1] != end:
        raise _cuts_bin(attribute, end, operator, place)
    mask = np.zeros(attribute.size, dtype=np.bool_)
    mask[:cell] = True
    return mask


def _bin(attribute: Number, number: float) -> int:
    return bisect_right(attribute.edges, number)  # Python compares any int with a float exactly


def _cuts_bin(attribute: Number, number: float, operator: str, place: str) -> InvalidQuery:
    edges, cell = attribute.edges, _bin(attribute, number)
    near = [number_text(e) for e in edges[max(cell - 1, 0) : cell + 1]]
    if cell and edges[cell - 1] == number:
        near = near[:1]  # it is at an edge already: only the comparison has to change
    if operator in ("ge", "gt"):
        fix = " or ".join(f">= {e}" for e in near)
    elif operator in ("lt", "le"):
        fix = " or ".join(f"< {e}" for e in near)
    else:
        fix = f">= and < at edges, such as {' or '.join(near)}"
    return InvalidQuery(
        place,
        f"this cuts the bin {attribute.labels[cell]} of {attribute.name}",
        f"ask {fix}",
        reason="cuts_bin",
    )


def _number(value: object, place: str) -> float:
    """The constant of a comparison, an int as it is."""
    _refuse_null(value, place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidQuery(place, f"{shown(value)} is not a number", "write it without quotes")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidQuery(place, f"{value} is not finite", "leave the condition out")
    return value


def _list(value: object, place: str, *, length: int | None = None) -> Sequence[object]:
    if not isinstance(value, list | tuple) or length not in (None, len(value)):
        n = "" if length is None else f" of {length} values"
        raise InvalidQuery(place, f"it needs a list{n}", "write [..., ...]")
    return value


def _refuse_null(value: object, place: str) -> None:
    if value is None:
        raise InvalidQuery(place, "nothing equals null", "use is_missing")


def _is_cell(size: int, cell: int, wanted: object, place: str) -> Mask:
    if not isinstance(wanted, bool):
        raise InvalidQuery(place, f"{shown(wanted)} is not a truth value", "write true or false")
    mask = _select(size, [cell])
    return mask if wanted else ~mask


def _select(size: int, cells: Iterable[int]) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    for cell in cells:  # few: faster than an index array
        mask[cell] = True
    return mask


def _digest(header: Sequence[int], content: bytes) -> bytes:
    """16 bytes of what the header, whose length goes first, and the content say."""
    packed = struct.pack(f"<{len(header) + 1}I", len(header), *header)
    return blake2b(packed + content, digest_size=16).digest()


__all__ = [
    "EVERYTHING",
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_TOUCHED_CELLS",
    "NOTHING",
    "Mask",
    "Predicate",
    "Question",
    "compile_group_by",
    "compile_where",
]
