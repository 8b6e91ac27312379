"""Conditions as JSON trees: what each piece of a statement asks about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream_dp.sql.parsing import Tree, _all

__all__ = ["EVERYTHING", "NOTHING", "as_json", "conjunction", "none_of"]

EVERYTHING: Final[Tree] = {"all": []}
NOTHING: Final[Tree] = {"any": []}


def conjunction(trees: Sequence[Tree | None]) -> Tree | None:
    """Returns the condition that holds where all do; None where every row counts."""
    wanted = [tree for tree in trees if tree is not None and tree != EVERYTHING]
    return _all(_merged(wanted)) if wanted else None


def none_of(trees: Sequence[Tree]) -> Tree:
    """Returns the condition that holds where none does."""
    alternatives = [each for tree in trees for each in tree.get("any", [tree])]
    if EVERYTHING in alternatives:
        return NOTHING
    return {"not": {"any": alternatives}} if alternatives else EVERYTHING


def as_json(tree: Tree | None) -> str:
    """Returns a condition as text, which can be compared and hashed."""
    return json.dumps(tree)


def _merged(trees: Sequence[Tree]) -> list[Tree]:
    """Leaves out what is said twice, and intersects lists of values of one attribute."""
    parts = [part for tree in trees for part in tree.get("all", [tree])]
    lists: dict[str, list[Any]] = {}
    found: list[Tree] = []
    for part in parts:
        values = [part["eq"]] if "eq" in part else part.get("in")
        if values is None:
            found += [part] if part not in found else []
        elif part["attribute"] in lists:
            before = lists[part["attribute"]]
            lists[part["attribute"]] = [value for value in before if value in values]
        else:
            lists[part["attribute"]] = list(values)
            found.append(part)
    return [_narrowest(part, lists) for part in found]


def _narrowest(part: Tree, lists: Mapping[str, Sequence[Any]]) -> Tree:
    """Returns a condition on the values of an attribute, with those that all conditions leave."""
    if not {"eq", "in"} & part.keys():
        return part
    values = lists[part["attribute"]]
    if not values:
        return NOTHING
    return {
        "attribute": part["attribute"],
        **({"eq": values[0]} if len(values) == 1 else {"in": list(values)}),
    }
