"""Finds the conditions that no row can satisfy, by the definition alone.

A group that no row can be in is left out of a table, and is not asked for.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = ["Possible"]

_MOST_CELLS: Final = 20_000
_MOST_STEPS: Final = 1 << 21
"""The most values that one statement compares to find out."""

_OTHER: Final = object()
_MISSING: Final = object()

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda value, constant: value == constant,
    "in": lambda value, constant: value in constant,
    "ge": lambda value, constant: value >= constant,
    "gt": lambda value, constant: value > constant,
    "le": lambda value, constant: value <= constant,
    "lt": lambda value, constant: value < constant,
    "between": lambda value, constant: constant[0] <= value <= constant[1],
}

_BY_ORDER: Final = frozenset({"ge", "gt", "le", "lt", "between"})


class Possible:
    """Tells whether a row may satisfy a condition; True where that takes too long to find out.

    Args:
        schema: The attributes by name.
    """

    def __init__(self, schema: Mapping[str, Mapping[str, Any]]) -> None:
        self._schema = schema
        self._known: dict[str, bool] = {}
        self._left = _MOST_STEPS

    def __call__(self, tree: Mapping[str, Any] | None) -> bool:
        """Returns whether a row may satisfy a condition, as in a message. It is worked out once."""
        if tree is None:
            return True
        try:
            names = sorted(_names(tree))
            cells = [_cells(self._schema[name]) for name in names]
        except _Unclear:
            return True
        n_cells = math.prod(map(len, cells))
        if n_cells > _MOST_CELLS:
            return True
        written = json.dumps(tree)
        if written not in self._known:
            self._left -= n_cells * _length(tree)
            self._known[written] = self._left < 0 or self._holds_somewhere(tree, names, cells)
        return self._known[written]

    def _holds_somewhere(
        self, tree: Mapping[str, Any], names: Sequence[str], cells: Sequence[Sequence[object]]
    ) -> bool:
        rows = itertools.product(*cells)
        try:
            return any(
                _holds(tree, dict(zip(names, row, strict=True)), self._schema) for row in rows
            )
        except (_Unclear, TypeError, ValueError):
            # a condition that cuts a bin, or one that the worker refuses
            return True


class _Unclear(Exception):
    """A condition that may hold for some values of a cell only."""


def _names(tree: Mapping[str, Any]) -> set[str]:
    """Returns the attributes that a condition names."""
    if "attribute" in tree:
        return {tree["attribute"]}
    parts = [tree["not"]] if "not" in tree else tree.get("all", tree.get("any", ()))
    return set().union(*map(_names, parts))


def _length(tree: Mapping[str, Any]) -> int:
    """Returns how many constants a condition compares with."""
    if "attribute" in tree:
        return len(tree.get("in", ())) or 1
    parts = [tree["not"]] if "not" in tree else tree.get("all", tree.get("any", ()))
    return 1 + sum(map(_length, parts))


def _cells(attribute: Mapping[str, Any]) -> Sequence[object]:
    """Returns a value in each cell of an attribute; of a number, the ends of each bin."""
    missing = [_MISSING] * bool(attribute.get("missing"))
    if attribute["type"] == "category":
        return [*attribute["values"], *[_OTHER] * bool(attribute.get("other", True)), *missing]
    if attribute["type"] == "boolean":
        return [False, True, *missing]
    if attribute["type"] != "number":
        raise _Unclear
    edges = attribute["edges"]
    last = [
        edge - 1 if attribute.get("integer") else math.nextafter(edge, -math.inf) for edge in edges
    ]
    return [*zip([-math.inf, *edges], [*last, math.inf], strict=True), *missing]


def _holds(
    tree: Mapping[str, Any], row: Mapping[str, Any], schema: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Returns whether a condition holds for a row of one value for each attribute."""
    if "not" in tree:
        return not _holds(tree["not"], row, schema)
    if "all" in tree:
        return all(_holds(part, row, schema) for part in tree["all"])
    if "any" in tree:
        return any(_holds(part, row, schema) for part in tree["any"])
    value = row[tree["attribute"]]
    ((operator, constant),) = ((k, v) for k, v in tree.items() if k != "attribute")
    if operator == "is_missing":
        return (value is _MISSING) is constant
    if operator == "is_other":
        return (value is _OTHER) is constant
    if value is _MISSING or value is _OTHER:
        return False
    if isinstance(value, tuple):
        return _holds_in_bin(operator, constant, value)
    if operator in _BY_ORDER and isinstance(value, str):  # the order is that of the list
        place = schema[tree["attribute"]]["values"].index
        value = place(value)
        constant = [place(end) for end in constant] if operator == "between" else place(constant)
    return _COMPARISONS[operator](value, constant)


def _holds_in_bin(operator: str, constant: Any, ends: tuple[float, float]) -> bool:
    """Returns whether a comparison holds for the numbers of a bin, from its ends."""
    if operator == "between":
        low, high = constant
        above, below = _holds_in_bin("ge", low, ends), _holds_in_bin("le", high, ends)
        return above and below
    if operator in ("eq", "in"):
        raise _Unclear
    first, last = (_COMPARISONS[operator](end, constant) for end in ends)
    if first != last:
        raise _Unclear
    return first
