"""Conditions as JSON trees: what each piece of a statement asks about.

SQL's logic has three values and the JSON tree has two. So every condition is translated twice: into the tree
of the rows for which it is true, and the tree of those for which it is false. A row in neither tree is
unknown, and SQL omits it: ``carrier <> 'AA'`` holds for no row without a carrier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from stream_dp.sql.plan.statement_plan import Scalar

Tree: TypeAlias = dict[str, Any]

Cases: TypeAlias = tuple[tuple[Scalar, Tree], ...]
"""The values of a group column that are conditions, with the condition of each."""

EVERYTHING: Final[Tree] = {"all": []}
NOTHING: Final[Tree] = {"any": []}


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition in three-valued logic: the rows where it is true and the rows where it is false."""

    true: Tree
    false: Tree

    def negated(self) -> Truth:
        """Returns the condition that NOT makes of it."""
        return Truth(self.false, self.true)

    def known(self) -> Truth:
        """Returns what IS TRUE makes of it: an unknown condition becomes false."""
        return Truth(self.true, negation(self.true))


OF_ALL_ROWS: Final[Mapping[bool | None, Truth]] = {
    True: Truth(EVERYTHING, NOTHING),
    False: Truth(NOTHING, EVERYTHING),
    None: Truth(NOTHING, NOTHING),
}
"""The conditions that are the same for all rows: true, false or unknown."""


def all_of(trees: Iterable[Tree]) -> Tree:
    """Joins conditions by AND, without nesting."""
    return _combined("all", trees, absorbing=NOTHING)


def any_of(trees: Iterable[Tree]) -> Tree:
    """Joins conditions by OR, without nesting."""
    return _combined("any", trees, absorbing=EVERYTHING)


def _combined(connective: str, trees: Iterable[Tree], *, absorbing: Tree) -> Tree:
    parts: list[Tree] = []
    for tree in trees:
        if tree == absorbing:
            return absorbing
        parts.extend(tree.get(connective, [tree]))
    return parts[0] if len(parts) == 1 else {connective: parts}


def negation(tree: Tree) -> Tree:
    """Returns the condition that holds for all other rows."""
    if tree in (EVERYTHING, NOTHING):
        return NOTHING if tree == EVERYTHING else EVERYTHING
    negated: Tree = tree.get("not", {"not": tree})
    return negated


def conjunction(trees: Sequence[Tree | None]) -> Tree | None:
    """Returns the condition that holds where all do; None where every row counts."""
    wanted = [tree for tree in trees if tree is not None and tree != EVERYTHING]
    return all_of(_merged(wanted)) if wanted else None


def none_of(trees: Sequence[Tree]) -> Tree:
    """Returns the condition that holds where none does."""
    alternatives = [each for tree in trees for each in tree.get("any", [tree])]
    if EVERYTHING in alternatives:
        return NOTHING
    return {"not": {"any": alternatives}} if alternatives else EVERYTHING


def as_json(tree: Tree | None) -> str:
    """Returns a condition as text, which can be compared and hashed."""
    return json.dumps(tree)


def parts_of_tree(tree: Mapping[str, Any]) -> list[Tree]:
    """Returns the conditions that a condition connects or negates; none where it is one comparison."""
    return [tree["not"]] if "not" in tree else tree.get("all", tree.get("any", []))


def listed_bytes(tree: Tree) -> int:
    """Returns about how many bytes the lists of a condition take in a message; no more than it does."""
    found, left = 0, [tree]
    while left:
        part = left.pop()
        if "in" in part:
            found += sum(map(len, map(str, part["in"]))) + 2 * len(part["in"])
        left += parts_of_tree(part)
    return found


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
