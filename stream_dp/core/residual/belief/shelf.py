"""A mapping that a copy shares with its original until one of them changes a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """Values by key. ``copy.deepcopy`` copies none of them: each is copied when it is about to change.

    Args:
        make: Makes the value of a new key.
        copied: Copies a value, so that changes of one of the two do not show in the other.
    """

    def __init__(self, make: Callable[[], V], copied: Callable[[V], V]) -> None:
        self._make = make
        self._copied = copied
        self._values: dict[K, V] = {}
        self._own: set[K] | None = None  # keys whose values no copy shares; None for all of them

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shelf[K, V]:
        del memo
        copy = Shelf[K, V](self._make, self._copied)
        copy._values = dict(self._values)
        copy._own, self._own = set(), set()
        return copy

    def get(self, key: K) -> V | None:
        """The value to read; it must not be changed."""
        return self._values.get(key)

    def own(self, key: K) -> V:
        """The value to change, made if there is none."""
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make()
        elif self._own is not None and key not in self._own:
            value = self._values[key] = self._copied(value)
        if self._own is not None:
            self._own.add(key)
        return value
