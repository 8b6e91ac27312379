"""Conditions as JSON trees: what each piece of a statement asks about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from stream_dp.sql.reading.translator import Tree, _all

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
    """Leaves out what is said twice, and lists of values that hold a narrower list of one attribute.

    Lists are compared as they are written, so the others stay as they are: '2026-03' and '2026-03-14' differ
    as texts, and have a day in common.
    """
    parts = [part for tree in trees for part in tree.get("all", [tree])]
    found: list[Tree] = []
    for part in parts:
        if any(_within(before, part) for before in found):
            continue
        place = next((i for i, before in enumerate(found) if _within(part, before)), len(found))
        found = [before for before in found if not _within(part, before)]
        found.insert(place, part)
    return found


def _within(narrow: Tree, wide: Tree) -> bool:
    """Returns whether one condition says all that another does: the same, or fewer of its values."""
    if narrow == wide:
        return True
    values, others = _listed_in(narrow), _listed_in(wide)
    if values is None or others is None or narrow["attribute"] != wide["attribute"]:
        return False
    return {*values} <= {*others}


def _listed_in(part: Tree) -> list[Any] | None:
    """Returns the values that a condition lists; None for another condition."""
    return [part["eq"]] if "eq" in part else part.get("in")
