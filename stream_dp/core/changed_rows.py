"""The blocks of which rows were erased or corrected since they were sealed. All of it is public."""

from __future__ import annotations

from collections.abc import Callable


class ChangedRows:
    """The blocks of which rows may have been changed.

    Args:
        rows: Returns the number of rows of a window.
    """

    def __init__(self, rows: Callable[[range], int]) -> None:
        self._rows = rows
        self._most: dict[int, int] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._most

    def __repr__(self) -> str:
        return f"ChangedRows({len(self._most)} blocks)"

    def add(self, block: int, most: int) -> None:
        """Takes note that at most this many more rows of a block were changed."""
        self._most[block] = self._most.get(block, 0) + most

    def any_of(self, window: range) -> bool:
        """Whether rows of a window may have been changed."""
        return any(block in self._most for block in window) if self._most else False

    def at_most(self, window: range) -> int:
        """The most rows of a window that were changed."""
        return sum(
            min(most, self._rows(range(block, block + 1)))
            for block, most in self._most.items()
            if block in window
        )
