"""How many cells each attribute of a universe has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

MAX_FLAT = 24
"""Most cells of an ordered attribute whose neighbouring cells are never measured in groups."""


class Shape(tuple[int, ...]):  # noqa: SLOT001 - a tuple cannot have slots with names
    """Cells of each attribute of a universe, of which some are ordered and have many cells.

    Args:
        sizes: The cells of each attribute.
        ordered: The attributes with more than ``MAX_FLAT`` cells that have an order.
    """

    ordered: frozenset[int]

    def __new__(cls, sizes: Iterable[int], ordered: Iterable[int]) -> Self:
        self = super().__new__(cls, sizes)
        self.ordered = frozenset(a for a in ordered if self[a] > MAX_FLAT)
        return self

    def __getnewargs__(self) -> tuple[tuple[int, ...], frozenset[int]]:
        return tuple(self), self.ordered

    def __eq__(self, other: object) -> bool:
        ordered = other.ordered if isinstance(other, Shape) else frozenset()
        return tuple.__eq__(self, other) is True and self.ordered == ordered

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.ordered)) if self.ordered else tuple.__hash__(self)
