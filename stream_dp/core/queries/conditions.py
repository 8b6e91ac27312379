"""Conditions as they are written, compiled: from the JSON tree to a mask over the attributes that matter.

The tree is two-valued. A leaf compares one attribute with constants and holds for a set of its cells, as does
``{"attribute": "carrier", "eq": "AA"}``; ``{"all": [...]}``, ``{"any": [...]}``, ``{"not": {...}}`` combine
them. No comparison holds for the missing cell, so ``not`` of one does.

Where a comparison would cut a bin the query is refused with the nearest edges, never rounded.
"""

from __future__ import annotations

import marshal
import math
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import or_
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from stream_dp.attribute_dates import CYCLES, first_number, span_of
from stream_dp.core.queries.query import (
    EVERYTHING,
    Indicator,
    Mask,
    Once,
    Predicate,
    Product,
    Rank,
    Total,
    total_of,
)
from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number
from stream_dp.core.rows.column_values import number_text
from stream_dp.core.rows.universe import Universe, unknown_name
from stream_dp.errors import InvalidQuery

MAX_TOUCHED_CELLS = 1_000_000
MAX_NODES = 128
MAX_DEPTH = 16

_BY_GROUP: Final = "group by it, or ask for counts, which come with their shares"

_CUTS_BIN: Final = "cuts_bin"
_MOST_SAID: Final = 400
"""Where the text of a refusal has more characters, no other bin that the condition cuts is added to it."""

_MOST_KEPT: Final = 4096
_KEPT_CELLS: Final = 4096
"""Cells of the attributes of a condition that is kept: all that are kept take some 16 MiB at the most."""


class CompiledConditions:
    """The conditions of one schema. The last ones that were compiled are kept, for the same are asked again.

    Args:
        universe: The universe of the data set.
    """

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._kept: OrderedDict[bytes, Predicate] = OrderedDict()

    def compiled(self, where: dict[str, Any] | None) -> Predicate:
        """Compiles the tree of ``where``, as ``compile_where`` does, with the same errors."""
        if where is None:
            return EVERYTHING
        try:
            written = marshal.dumps(where, 0)  # version 0: equal bytes for equal trees
        except (RecursionError, TypeError, ValueError):
            return compile_where(self._universe, where)  # which says what is wrong with it
        known = self._kept.get(written)
        if known is None:
            known = compile_where(self._universe, where)
            if known.n_cells <= _KEPT_CELLS:
                self._kept[written] = known
                if len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(written)
        return known


def compile_where(
    universe: Universe,
    where: dict[str, Any] | None,
    *,
    max_cells: int = MAX_TOUCHED_CELLS,
    max_nodes: int = MAX_NODES,
    max_depth: int = MAX_DEPTH,
) -> Predicate:
    """Compiles the tree of ``where`` to a predicate. None holds for every row.

    Args:
        universe: The universe of the data set.
        where: The tree of a condition, see docs/messages.md.
        max_cells: The most cells of the attributes in the predicate. It is checked before they are allocated.
        max_nodes: The most nodes of the tree.
        max_depth: The deepest nesting.

    Raises:
        InvalidQuery: The tree is not valid. The error names the path, such as ``where.all[1].ge``, and the
            fix. Its ``reason`` is "invalid_query", "unknown_attribute", "cuts_bin" or "too_many_cells".
    """
    if where is None:
        return EVERYTHING
    compiler = _Compiler(universe, max_cells, max_nodes, max_depth)
    try:
        return compiler.predicate(where)
    except InvalidQuery as fault:
        raise _within("where", fault) from None


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


def compile_total(
    universe: Universe,
    name: str,
    where: dict[str, Any] | None,
    group_by: Sequence[str],
    up_to: float | None = None,
) -> tuple[Total, Predicate, Predicate]:
    """Compiles what a query adds up.

    Args:
        universe: The universe of the data set.
        name: The attribute to add up.
        where: The tree of the condition on the rows.
        group_by: The attributes to group by.
        up_to: The number that no row counts for more than. None for no such number.

    Returns:
        The numbers, the rows of the condition, and those of them that have a number.

    Raises:
        InvalidQuery: The attribute has no numbers or is grouped by, or the condition is not valid.
    """
    index = universe.index(name)
    attribute = universe.attributes[index]
    kept = isinstance(attribute, Number) and attribute.measure is not None
    if not isinstance(attribute, Number) or not (kept or any(attribute.values)):
        raise InvalidQuery(
            "attribute",
            f"{attribute.name} has no numbers to add up",
            "name an attribute of type number whose representatives are not all 0",
        )
    _check_added_up("attribute", attribute)
    if name in group_by:
        raise InvalidQuery("group_by", f"{attribute.name} is added up", "group by other attributes")
    every = predicate = compile_where(universe, where)
    if attribute.missing:
        predicate = compile_where(universe, _where_present(attribute, where))
    total = total_of(index, attribute)
    return total if up_to is None else _up_to(attribute, total, up_to), every, predicate


def compile_product(
    universe: Universe, names: tuple[str, str], where: dict[str, Any] | None, error: float | None
) -> tuple[Product, Predicate]:
    """Compiles what a query for a correlation asks.

    Args:
        universe: The universe of the data set.
        names: The two attributes.
        where: The tree of the condition on the rows.
        error: How precise the correlation is to be. None where the data set has an aim.

    Returns:
        The values of both attributes, and the rows of the condition that have both.

    Raises:
        InvalidQuery: An attribute has no numbers, both are the same, or the condition is not valid.
    """
    if names[0] == names[1]:
        raise InvalidQuery("other", f"it is {names[0]} itself", "name another attribute")
    values = {}
    for field, name in zip(("attribute", "other"), names, strict=True):
        index = universe.index(name)
        attribute = universe.attributes[index]
        if not isinstance(attribute, Number):
            raise InvalidQuery(field, f"{name} has no numbers", "name an attribute of type number")
        _check_added_up(field, attribute)
        middles = attribute.values if attribute.measure is None else attribute.values_within_ends
        values[index] = middles
        where = _where_present(attribute, where)
    first, second = sorted(values)
    product = Product((first, second), (values[first], values[second]), error)
    return product, compile_where(universe, where)


def _check_added_up(field: str, attribute: Number) -> None:
    """Raises InvalidQuery if numbers are not added up.

    The ends of a fixed grid are too far apart. How long ago somebody was there may change with rows in other
    phases, and looks at sums are not priced for a number that changes (docs/proofs, Theorem 41).
    """
    if attribute.fold == "since":
        raise InvalidQuery(field, f"{attribute.name} counts phases", _BY_GROUP)
    if attribute.wanted is not None:
        raise InvalidQuery(
            field,
            f"the bounds of {attribute.name} are not known yet, so its numbers cannot be added up",
            "ask for counts or quantiles until edges are accepted with `stream-dp schema accept`",
        )


def _up_to(attribute: Number, total: Total, up_to: float) -> Total:
    """The same numbers up to an edge, at which no bin is cut.

    Raises:
        InvalidQuery: The number is not an edge, or no row counts for less.
    """
    edges = attribute.edges
    if total.kept is None:
        ends, least = list(edges), min(attribute.values)
    else:
        ends = [total.kept.unit * high for _, high in total.kept.ends[: len(edges)]]
        least = total.kept.unit * total.kept.ends[0][0]
    ends = [end for end in dict.fromkeys(ends) if end > least]
    if not any(math.isclose(up_to, end, rel_tol=1e-12) for end in ends):
        near = sorted(sorted(ends, key=lambda end: abs(end - up_to))[:2])
        raise InvalidQuery(
            "up_to",
            f"{number_text(up_to)} is not an edge of {attribute.name} above its least value",
            f"ask {' or '.join(number_text(end) for end in near)}"
            if near
            else "leave it out: all values count for the same",
            reason=_CUTS_BIN,
        )
    return total.up_to(up_to)


def compile_once(universe: Universe, name: str) -> Once:
    """Compiles the name of the attribute by which persons are counted once.

    Raises:
        InvalidQuery: It is unknown, or does not say how many phases ago somebody was there before.
    """
    index = universe.index(name, "once")
    attribute = universe.attributes[index]
    if not isinstance(attribute, Number) or attribute.fold != "since":
        raise InvalidQuery(
            "once",
            "it does not say how many phases ago persons were there before",
            'name an attribute with "fold": "since", or leave once out',
        )
    return Once(index, int(attribute.edges[-1]), attribute.size)


def compile_rank(
    universe: Universe,
    name: str,
    share: float,
    where: dict[str, Any] | None,
    group_by: Sequence[str],
) -> tuple[Rank, Predicate]:
    """Compiles what a query for a quantile asks.

    Args:
        universe: The universe of the data set.
        name: The attribute whose quantile is asked.
        share: The rank, as a share of the rows that have a value.
        where: The tree of the condition on the rows.
        group_by: The attributes to group by.

    Returns:
        The rank, and the rows of the condition that have a value.

    Raises:
        InvalidQuery: The attribute has no order or is grouped by, or the condition is not valid.
    """
    index = universe.index(name)
    attribute = universe.attributes[index]
    if not attribute.orders_all:
        whose = "unlisted values" if attribute.has_order else "its values"
        raise InvalidQuery(
            "attribute",
            f"{name} is a {type(attribute).__name__.lower()} and {whose} have no order",
            "ask for a quantile of a number or a date",
        )
    if name in group_by:
        raise InvalidQuery(
            "group_by", f"it holds {name}, whose quantile is asked", "group by other attributes"
        )
    predicate = compile_where(universe, _where_present(attribute, where))
    mask = predicate.cells_of(index, attribute.size)
    return Rank(index, share, tuple(np.flatnonzero(mask).tolist())), predicate


def _where_present(attribute: Attribute, where: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the condition on the rows that also leaves out those without a value of an attribute."""
    if not attribute.missing:
        return where
    present = {"not": {"attribute": attribute.name, "is_missing": True}}
    return present if where is None else {"all": [where, present]}


def compile_share(
    universe: Universe, share_of: dict[str, Any], where: dict[str, Any] | None
) -> tuple[Indicator, Predicate]:
    """Compiles the two conditions of a share.

    Args:
        universe: The universe of the data set.
        share_of: The tree of the condition whose share is asked.
        where: The tree of the condition on the rows.

    Returns:
        The rows that satisfy both conditions, and those that satisfy ``where``.

    Raises:
        InvalidQuery: A condition is not valid, or no query is needed to know the share.
    """
    compiled: list[Predicate] = []
    faults: list[InvalidQuery] = []
    for name, tree in (("where", where), ("share_of", share_of)):
        try:
            compiled.append(compile_where(universe, tree))
        except InvalidQuery as fault:
            field = fault.field.replace("where", name, 1)
            faults.append(InvalidQuery(field, fault.problem, fault.fix, reason=fault.reason))
    if faults:
        raise _together(faults)
    whole, alone = compiled
    if whole.constant is False:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    _check_cells(universe, {*whole.attributes, *alone.attributes}, MAX_TOUCHED_CELLS, "share_of")
    part = whole.and_also(alone)
    for index in part.attributes:
        if universe.attributes[index].fold == "since":
            problem = f"{universe.attributes[index].name} counts phases, and shares have no such condition"
            raise InvalidQuery("share_of", problem, _BY_GROUP)
    if part.constant is False:
        problem = "no row can satisfy both where and share_of, so the share is 0"
    elif part == whole:
        problem = "each row that satisfies where satisfies share_of too, so the share is 1"
    else:
        return Indicator(part), whole
    raise InvalidQuery("share_of", problem, "ask for the share of another condition")


@dataclass(frozen=True, slots=True)
class _Dense:
    """A region that is not a box: a mask over ascending attributes."""

    attributes: tuple[int, ...]
    mask: Mask


_CellSet: TypeAlias = int
"""Some cells of one attribute: bit j stands for cell j."""

_Box: TypeAlias = dict[int, _CellSet]
"""A region that is a product: the cells of each attribute that it restricts. {} is everything."""

_Region: TypeAlias = _Box | _Dense

_Found = TypeVar("_Found")

_Comparison: TypeAlias = Callable[[Any, Any], _CellSet]
"""(attribute, constant) -> the cells for which it holds."""

_CONNECTIVES = frozenset({"all", "any", "not"})

_NOWHERE = _Dense((), np.zeros((), dtype=np.bool_))


class _Compiler:
    """One pass over a tree. Negation is pushed down to the leaves, so that boxes stay boxes.

    What is wrong is said without what was written: refusals are public, and by mistake it may be a row.

    A fault is raised with its path relative to the node. Every node on the way up adds its own path, so
    that a query without faults builds no paths.
    """

    def __init__(self, universe: Universe, max_cells: int, max_nodes: int, max_depth: int) -> None:
        self._universe = universe
        self._max_cells = max_cells
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._n_nodes = 0

    def predicate(self, where: object) -> Predicate:
        region = self._region(where, negated=False, depth=1)
        if isinstance(region, _Dense):
            return Predicate.of_mask(region.attributes, region.mask)
        shape = self._universe.shape
        predicate = Predicate.conjunction(
            {a: _mask(shape[a], cells) for a, cells in region.items()}
        )
        _check_cells(self._universe, predicate.attributes, self._max_cells, "")
        return predicate

    def _region(self, node: object, *, negated: bool, depth: int) -> _Region:
        self._n_nodes += 1
        if self._n_nodes > self._max_nodes:
            raise _fault(f"more than {self._max_nodes} conditions", "ask in parts, or use in")
        if depth > self._max_depth:
            raise _fault(f"nested deeper than {self._max_depth}", "flatten it")
        if not isinstance(node, dict):
            raise _fault("this is not a condition", f"write {_LEAF_FORM}")
        if "attribute" in node:
            return self._leaf(node, negated=negated)
        if len(node) != 1:
            raise _fault("this is not a condition", f"write {_LEAF_FORM}")
        [(connective, content)] = node.items()
        if connective not in _CONNECTIVES:
            raise _fault("there is no such connective", "use all, any or not")
        try:
            if connective == "not":
                return self._region(content, negated=not negated, depth=depth + 1)
            return self._combination(connective, content, negated=negated, depth=depth + 1)
        except InvalidQuery as fault:
            raise _within(f".{connective}", fault) from None

    def _combination(
        self, connective: str, content: object, *, negated: bool, depth: int
    ) -> _Region:
        if not isinstance(content, (list, tuple)):
            raise _fault("it combines a list of conditions", "write [...]")
        parts: list[_Region] = []
        faults: list[InvalidQuery] = []
        for i, part in enumerate(content):
            try:
                parts.append(self._region(part, negated=negated, depth=depth))
            except InvalidQuery as fault:
                faults.append(_within(f"[{i}]", fault))
                if fault.reason != _CUTS_BIN:
                    raise faults[-1] from None
        if faults:
            raise _together(faults)
        is_all = (connective == "all") is not negated  # De Morgan
        return self._intersection(parts) if is_all else self._union(parts)

    def _leaf(self, node: dict[str, object], *, negated: bool) -> _Box:
        universe = self._universe
        if len(node) != 2:
            raise _fault(
                f"a condition has one comparison, not {len(node) - 1}", f"write {_LEAF_FORM}"
            )
        first, second = node
        operator = second if first == "attribute" else first
        name = node["attribute"]
        index = universe.positions.get(name) if isinstance(name, str) else None
        if index is None:
            raise unknown_name(name, universe.names, ".attribute")
        attribute = universe.attributes[index]
        comparisons = _comparisons(attribute)
        compare = comparisons.get(operator)
        if compare is None:
            raise _fault(
                f"{attribute.name} is a {type(attribute).__name__.lower()} and has no such comparison",
                f"use one of {', '.join(comparisons)}",
            )
        try:
            cells = compare(attribute, node[operator])
        except InvalidQuery as fault:
            raise _within(f".{operator}", fault) from None
        return {index: _every_cell(attribute) ^ cells if negated else cells}

    def _intersection(self, parts: list[_Region]) -> _Region:
        box: _Box = {}
        dense: list[_Dense] = []
        for part in parts:
            if isinstance(part, _Dense):
                dense.append(part)
                continue
            for attribute, cells in part.items():
                box[attribute] = box.get(attribute, cells) & cells
        return self._merge(np.logical_and, [*dense, box]) if dense else box

    def _union(self, parts: list[_Region]) -> _Region:
        single: _Box = {}  # parts on one attribute join without leaving it
        rest: list[_Region] = []
        for part in parts:
            if isinstance(part, _Dense) or len(part) != 1:
                rest.append(part)
                continue
            [(attribute, cells)] = part.items()
            single[attribute] = single.get(attribute, 0) | cells
        if not rest and len(single) == 1:
            return single
        separate: list[_Region] = [{attribute: cells} for attribute, cells in single.items()]
        return self._merge(np.logical_or, [*separate, *rest, _NOWHERE])

    def _merge(self, combine: Callable[[Mask, Mask], Mask], parts: Sequence[_Region]) -> _Dense:
        touched: set[int] = set()
        for part in parts:
            touched.update(part.attributes if isinstance(part, _Dense) else part)
        attributes = _check_cells(self._universe, touched, self._max_cells, "")
        mask = reduce(combine, (self._spread(part, attributes) for part in parts))
        shape = tuple(self._universe.shape[a] for a in attributes)
        return _Dense(attributes, np.broadcast_to(mask, shape))

    def _spread(self, region: _Region, attributes: tuple[int, ...]) -> Mask:
        """The region's mask with an axis for each of ``attributes``, of length 1 where it does not care."""
        if isinstance(region, _Dense):
            sizes = dict(zip(region.attributes, region.mask.shape, strict=True))
            return region.mask.reshape([sizes.get(a, 1) for a in attributes])
        mask = np.ones((1,) * len(attributes), dtype=np.bool_)
        for attribute, cells in region.items():
            factor = _mask(self._universe.shape[attribute], cells)
            mask = mask & factor.reshape([-1 if a == attribute else 1 for a in attributes])
        return mask


def _fault(problem: str, fix: str, *, reason: str | None = None) -> InvalidQuery:
    """Returns the fault of the node at hand."""
    return InvalidQuery("", problem, fix, reason=reason)


def _within(field_path: str, fault: InvalidQuery) -> InvalidQuery:
    """The fault as seen from the node that has ``field_path`` in it."""
    return InvalidQuery(field_path + fault.field, fault.problem, fault.fix, reason=fault.reason)


def _together(faults: Sequence[InvalidQuery]) -> InvalidQuery:
    """The first fault, which also says what the others are where all cut bins."""
    first, *others = sorted(faults, key=lambda fault: fault.reason == _CUTS_BIN)
    said = first.fix
    for fault in others if first.reason == _CUTS_BIN else ():
        also = f"{fault.problem}; {fault.fix}"
        if also not in f"{first.problem}; {said}" and len(said) < _MOST_SAID:
            said = f"{said}; {also}"
    return InvalidQuery(first.field, first.problem, said, reason=first.reason)


def _check_cells(
    universe: Universe, attributes: Iterable[int], max_cells: int, field_path: str
) -> tuple[int, ...]:
    """The attributes, ascending, when their cells are few enough."""
    ascending = tuple(sorted(attributes))
    n_cells = math.prod([universe.shape[a] for a in ascending])
    if n_cells > max_cells:
        names = ", ".join(universe.names[a] for a in ascending)
        raise InvalidQuery(
            field_path,
            f"{names} have {n_cells} cells together, and at most {max_cells} can be asked about",
            "use fewer attributes at once",
            reason="too_many_cells",
        )
    return ascending


def _category_eq(attribute: Category, value: object) -> _CellSet:
    return 1 << _category_cell(attribute, value)


def _category_cell(attribute: Category, value: object) -> int:
    key = ("false", "true")[value] if isinstance(value, bool) else value
    cell = attribute.cell_of.get(key) if isinstance(key, (str, int, float)) else None
    if cell is not None:
        return cell
    _refuse_null(value)
    listed = ", ".join(attribute.values[:10]) + (", ..." if len(attribute.values) > 10 else "")
    ask_other = f'{{"attribute": "{attribute.name}", "is_other": true}}'
    raise _fault(
        f"this is not a listed value of {attribute.name} ({listed})",
        f"unlisted values share one cell, asked by {ask_other}"
        if attribute.other
        else "use a listed value",
    )


def _category_is_other(attribute: Category, wanted: object) -> _CellSet:
    if attribute.other_cell is None:
        raise _fault(f"{attribute.name} has no cell for other values", "leave it out")
    return _is_cell(attribute, attribute.other_cell, wanted)


def _boolean_eq(attribute: Boolean, value: object) -> _CellSet:
    return 1 << _boolean_cell(attribute, value)


def _boolean_cell(attribute: Boolean, value: object) -> int:
    cell = attribute.cell_of.get(value) if isinstance(value, (str, int, float)) else None
    if cell is None:
        _refuse_null(value)
        raise _fault(
            f"{attribute.name} is true or false, and this is neither", "write true or false"
        )
    return cell


def _number_eq(attribute: Number, value: object) -> _CellSet:
    return _number_listed(attribute, {_number(value)})


def _number_in(attribute: Number, values: object) -> _CellSet:
    return _number_listed(attribute, set(_each(_number, values)))


def _number_listed(attribute: Number, wanted: set[float]) -> _CellSet:
    """Returns the bins whose every number is listed, which is possible for whole numbers."""
    edges = attribute.edges
    if attribute.integer:
        wanted = {int(v) for v in wanted if v == math.floor(v) and v >= attribute.least}
    listed = Counter(_bin(attribute, v) for v in wanted)
    for cell, n_listed in listed.items():
        first = edges[cell - 1] if cell else attribute.least
        n_numbers = edges[cell] - first if cell < len(edges) else math.inf
        if not attribute.integer or n_listed < n_numbers:
            number = min(v for v in wanted if _bin(attribute, v) == cell)
            raise _cuts_bin(attribute, number, "between")
    return sum(1 << cell for cell in listed)


def _span(_: Date, value: object) -> tuple[int, int]:
    """The moments at which the period that a constant writes begins and ends."""
    span = span_of(value) if isinstance(value, str) else None
    if span is None:
        _refuse_null(value)
        raise _fault(
            "this is not a date, or it has an offset from UTC",
            'write a period of the calendar, such as "2026", "2026-03", "2026-03-14" or "2026-03-14T10"',
        )
    return span


def _cycle_cell(attribute: Date, value: object) -> int:
    """The cell of a weekday, a month of the year or an hour of the day: by its label or its number."""
    labels, first = CYCLES[attribute.by], first_number(attribute.by)
    if isinstance(value, str) and value in labels:
        return labels.index(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value - first < len(labels):
        return value - first
    _refuse_null(value)
    raise _fault(
        f"this is not one of the periods of {attribute.name}",
        f'write "{labels[0]}" to "{labels[-1]}", or {first} to {first + len(labels) - 1}',
    )


def _is_missing(attribute: Attribute, wanted: object) -> _CellSet:
    if attribute.missing_cell is None:
        raise _fault(f"{attribute.name} has no cell for missing values", "leave this condition out")
    return _is_cell(attribute, attribute.missing_cell, wanted)


def _any_of(equals: _Comparison) -> _Comparison:
    """The comparison with a list: the cells that are equal to one of its values."""
    return lambda attribute, values: reduce(or_, _each(partial(equals, attribute), values), 0)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of the values of a kind of attribute, in which each value takes the room up to the next one.

    Attributes:
        read: Reads a constant of a comparison.
        start: The position at which what a constant stands for begins.
        end: The position at which it ends; takes the name of the comparison too, for what it cannot say.
        cell: The cell that begins at a position; takes the name of the comparison too.
        n_cells: The number of cells that the order is about, which are the first ones.
    """

    read: Callable[[Any, object], Any]
    start: Callable[[Any, Any], float]
    end: Callable[[Any, Any, str], float]
    cell: Callable[[Any, float, str], int]
    n_cells: Callable[[Any], int]

    @property
    def comparisons(self) -> dict[str, _Comparison]:
        """The comparisons that an order has."""
        one_sided = {
            operator: partial(self._one_sided, operator) for operator in ("ge", "gt", "le", "lt")
        }
        return {**one_sided, "between": self._between}

    def _one_sided(self, operator: str, attribute: Attribute, value: object) -> _CellSet:
        constant = self.read(attribute, value)
        if operator in ("ge", "lt"):
            position = self.start(attribute, constant)
        else:
            position = self.end(attribute, constant, operator)
        below = (1 << self.cell(attribute, position, operator)) - 1
        every = (1 << self.n_cells(attribute)) - 1
        return below if operator in ("le", "lt") else every ^ below

    def equals(self, attribute: Attribute, value: object) -> _CellSet:
        """The cells of what one constant stands for."""
        return self._within(attribute, *(self.read(attribute, value),) * 2)

    def _between(self, attribute: Attribute, bounds: object) -> _CellSet:
        return self._within(attribute, *_each(partial(self.read, attribute), bounds, length=2))

    def _within(self, attribute: Attribute, low: Any, high: Any) -> _CellSet:
        start = self.start(attribute, low)
        if start > self.start(attribute, high):
            return 0
        end = self.end(attribute, high, "between")
        if start == end:  # whole numbers: none lies between 2.1 and 2.9
            return 0
        below_start, below_end = (
            (1 << self.cell(attribute, position, "between")) - 1 for position in (start, end)
        )
        return below_end ^ below_start


def _whole_from(attribute: Number, number: float) -> float:
    """The least number of the attribute's kind that is >= ``number``."""
    return math.ceil(number) if attribute.integer else number


def _next_after(attribute: Number, number: float, operator: str) -> float:
    """The least whole number above ``number``: where ``> number`` begins and ``<= number`` ends."""
    if not attribute.integer:
        # Bins are left-closed: the number itself and what follows it share one.
        raise _cuts_bin(attribute, number, operator)
    return math.floor(number) + 1


def _edge_cell(attribute: Number | Date, position: float, operator: str) -> int:
    """The cell that begins at an edge."""
    cell = _bin(attribute, position)
    if isinstance(attribute, Number) and position <= attribute.least:
        return 0
    if cell == 0 or attribute.edges[cell - 1] != position:
        raise _cuts_bin(attribute, position, operator)
    return cell


def _bin(attribute: Number | Date, number: float) -> int:
    return bisect_right(attribute.edges, number)  # Python compares any int with a float exactly


def _cuts_bin(attribute: Number | Date, number: float, operator: str) -> InvalidQuery:
    edges, cell = attribute.edges, _bin(attribute, number)
    near = list(attribute.edge_labels[max(cell - 1, 0) : cell + 1])
    label = attribute.labels[cell]
    if operator not in ("ge", "gt", "lt", "le"):
        fix = f">= and < at edges, such as {' or '.join(near)}"
    else:
        from_edge = operator in ("ge", "gt")
        asks = [f"{'>=' if from_edge else '<'} {edge}" for edge in near]
        if len(asks) == 2 and edges[cell - 1] == number:
            asks = asks if from_edge else asks[::-1]
            asks[0] += f" (all of the bin {label})"
        fix = " or ".join(asks)
    which = f"{label} of {attribute.name}"
    is_number = isinstance(attribute, Number)
    problem = f"this cuts the bin {which}" if is_number else f"this cuts the period {which}"
    return _fault(problem, f"ask {fix}", reason=_CUTS_BIN)


def _number(value: object) -> float:
    """The constant of a comparison, an int as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse_null(value)
        raise _fault("this is not a number", "write it without quotes")
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault("this is not finite", "leave the condition out")
    return value


def _each(
    find: Callable[[object], _Found], values: object, *, length: int | None = None
) -> list[_Found]:
    """Calls ``find`` for each value of a list. The path of a fault ends with the index of the value."""
    found = []
    for i, value in enumerate(_list(values, length=length)):
        try:
            found.append(find(value))
        except InvalidQuery as fault:
            raise _within(f"[{i}]", fault) from None
    return found


def _list(value: object, *, length: int | None = None) -> Sequence[object]:
    if not isinstance(value, (list, tuple)) or length not in (None, len(value)):
        n = "" if length is None else f" of {length} values"
        raise _fault(f"it needs a list{n}", "write [..., ...]")
    return value


def _refuse_null(value: object) -> None:
    if value is None:
        raise _fault("nothing equals null", "use is_missing")


def _is_cell(attribute: Attribute, cell: int, wanted: object) -> _CellSet:
    if not isinstance(wanted, bool):
        raise _fault("this is not a truth value", "write true or false")
    return 1 << cell if wanted else _every_cell(attribute) ^ (1 << cell)


def _every_cell(attribute: Attribute) -> _CellSet:
    return (1 << attribute.size) - 1


@lru_cache(maxsize=1024)
def _mask(size: int, cells: _CellSet) -> Mask:
    """The cells as a mask, shape (size,); read-only, for queries share it."""
    packed = np.frombuffer(cells.to_bytes(-(-size // 8), "little"), dtype=np.uint8)
    mask = np.unpackbits(packed, count=size, bitorder="little").view(np.bool_)
    mask.flags.writeable = False
    return mask


def _listed(cell_of: Callable[[Any, object], int], n_cells: Callable[[Any], int]) -> _Order:
    """The order of attributes whose first cells are values, of which none can be cut."""
    return _Order(
        cell_of,
        lambda _, cell: cell,
        lambda _, cell, __: cell + 1,
        lambda _, cell, __: int(cell),
        n_cells,
    )


def _n_bins(attribute: Number | Date) -> int:
    return len(attribute.edges) + 1


_NUMBERS: Final = _Order(
    lambda _, value: _number(value), _whole_from, _next_after, _edge_cell, _n_bins
)
_PERIODS: Final = _Order(
    _span, lambda _, span: span[0], lambda _, span, __: span[1], _edge_cell, _n_bins
)
_CATEGORIES: Final = _listed(_category_cell, lambda attribute: len(attribute.values))
_CYCLE: Final = _listed(_cycle_cell, lambda attribute: len(CYCLES[attribute.by]))

_LEAF_FORM = '{"attribute": ..., "eq": ...}, or all, any, not'

_OF_CATEGORY: Final[Mapping[str, _Comparison]] = {
    "eq": _category_eq,
    "in": _any_of(_category_eq),
    "is_other": _category_is_other,
    "is_missing": _is_missing,
}
_OF_ORDERED_CATEGORY: Final = {**_OF_CATEGORY, **_CATEGORIES.comparisons}
_OF_NUMBER: Final[Mapping[str, _Comparison]] = {
    "eq": _number_eq,
    "in": _number_in,
    **_NUMBERS.comparisons,
    "is_missing": _is_missing,
}
_OF_BOOLEAN: Final[Mapping[str, _Comparison]] = {
    "eq": _boolean_eq,
    "in": _any_of(_boolean_eq),
    "is_missing": _is_missing,
}
_OF_DATE, _OF_CYCLE = (
    {
        "eq": order.equals,
        "in": _any_of(order.equals),
        **order.comparisons,
        "is_missing": _is_missing,
    }
    for order in (_PERIODS, _CYCLE)
)


def _comparisons(attribute: Attribute) -> Mapping[str, _Comparison]:
    """The comparisons that an attribute has."""
    match attribute:
        case Category():
            return _OF_ORDERED_CATEGORY if attribute.ordered else _OF_CATEGORY
        case Number():
            return _OF_NUMBER
        case Boolean():
            return _OF_BOOLEAN
        case Date():
            return _OF_CYCLE if attribute.comes_again else _OF_DATE
