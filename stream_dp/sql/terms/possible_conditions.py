"""Finds the conditions that no row can satisfy, by the definition alone.

A group that no row can be in is left out of a table, and is not asked for.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from stream_dp.sql.terms.attribute_cells import CutsCell, cells_where, n_cells, n_steps
from stream_dp.sql.terms.trees import parts_of_tree

_MOST_CELLS: Final = 20_000
_MOST_STEPS: Final = 1 << 21
"""The most steps that one statement takes to find out."""

_Test: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Whether a condition holds for a row, of which the cell of each attribute is known."""


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
        written = json.dumps(tree)
        if written not in self._known:
            self._known[written] = self._is_possible(tree)
        return self._known[written]

    def _is_possible(self, tree: Mapping[str, Any]) -> bool:
        names = sorted(_names(tree))
        counts = [n_cells(self._schema[name]) for name in names]
        n_rows = 1 if len(names) == 1 else math.prod(counts)
        if n_rows > _MOST_CELLS:
            return True
        self._left -= self._n_steps(tree, n_rows)
        if self._left < 0:
            return True
        try:
            if len(names) == 1:
                return cells_where(tree, self._schema[names[0]]) != 0
            holds = _test(tree, self._schema)
            rows = itertools.product(*map(range, counts))
            return any(holds(dict(zip(names, row, strict=True))) for row in rows)
        except (CutsCell, TypeError, ValueError):
            # a condition that cuts a bin, or one that the worker refuses
            return True

    def _n_steps(self, tree: Mapping[str, Any], n_rows: int) -> int:
        """Returns about how many steps ``_test`` takes, with its test of ``n_rows`` rows."""
        names = _names(tree)
        if len(names) == 1:
            (name,) = names
            return n_rows + n_steps(tree, self._schema[name])
        return n_rows + sum(self._n_steps(part, n_rows) for part in parts_of_tree(tree))


def _names(tree: Mapping[str, Any]) -> set[str]:
    """Returns the attributes that a condition names."""
    if "attribute" in tree:
        return {tree["attribute"]}
    return set().union(*map(_names, parts_of_tree(tree)))


def _test(tree: Mapping[str, Any], schema: Mapping[str, Mapping[str, Any]]) -> _Test:
    names = _names(tree)
    if len(names) == 1:
        (name,) = names
        cells = cells_where(tree, schema[name])
        return lambda row: bool(cells >> row[name] & 1)
    parts = [_test(part, schema) for part in parts_of_tree(tree)]
    if "not" in tree:
        return lambda row: not parts[0](row)
    wanted = all if "all" in tree else any
    return lambda row: wanted(part(row) for part in parts)
