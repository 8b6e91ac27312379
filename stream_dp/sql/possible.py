"""Finds the conditions that no row can satisfy, by the definition alone.

A group that no row can be in is left out of a table, and is not asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from stream_dp.sql.cells import CutsCell, cells_where, n_cells

__all__ = ["is_possible"]

_MOST_CELLS: Final = 20_000

_Test: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Whether a condition holds for a row, of which the cell of each attribute is known."""


def is_possible(tree: Mapping[str, Any] | None, schema: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether a row may satisfy a condition; True where that takes too long to find out.

    Args:
        tree: The condition, as in a message.
        schema: The attributes by name.
    """
    if tree is None:
        return True
    try:
        names = sorted(_names(tree))
        if len(names) == 1:
            return cells_where(tree, schema[names[0]]) != 0
        counts = [n_cells(schema[name]) for name in names]
        if math.prod(counts) > _MOST_CELLS:
            return True
        holds = _test(tree, schema)
        rows = itertools.product(*map(range, counts))
        return any(holds(dict(zip(names, row, strict=True))) for row in rows)
    except (CutsCell, TypeError, ValueError):
        # a condition that cuts a bin, or one that the worker refuses
        return True


def _names(tree: Mapping[str, Any]) -> set[str]:
    """Returns the attributes that a condition names."""
    if "attribute" in tree:
        return {tree["attribute"]}
    return set().union(*map(_names, _parts(tree)))


def _parts(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tree["not"]] if "not" in tree else tree.get("all", tree.get("any", []))


def _test(tree: Mapping[str, Any], schema: Mapping[str, Mapping[str, Any]]) -> _Test:
    names = _names(tree)
    if len(names) == 1:
        (name,) = names
        cells = cells_where(tree, schema[name])
        return lambda row: bool(cells >> row[name] & 1)
    parts = [_test(part, schema) for part in _parts(tree)]
    if "not" in tree:
        return lambda row: not parts[0](row)
    wanted = all if "all" in tree else any
    return lambda row: wanted(part(row) for part in parts)
