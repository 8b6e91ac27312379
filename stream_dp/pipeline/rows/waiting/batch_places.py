"""The batches of one data set that are to be read again: those whose rows, or changes, wait. It is public."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.rows.waiting.waiting_rows import Waits
from stream_dp.state.schema import StateTable


class BatchPlaces:
    """Where batches can be read again, by their numbers.

    Args:
        draft: The next commit, which says it.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    @cached_property
    def _waits(self) -> dict[int, Waits]:
        stored = self._draft.state.table(StateTable.WAITING)
        return {int(number): Waits.from_bytes(one) for number, one in stored.items()}

    def __getitem__(self, number: int) -> Waits:
        return self._waits[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._waits)

    def __repr__(self) -> str:
        return f"BatchPlaces({len(self._waits)} batches)"

    @property
    def every(self) -> list[Waits]:
        """All of them."""
        return [*self._waits.values()]

    @property
    def with_changes(self) -> list[int]:
        """The numbers of those whose changes wait for a sweep."""
        return [number for number, one in self._waits.items() if one.n_changes]

    def among(self, times: range) -> list[int]:
        """The numbers of those that wait under some times."""
        return [number for number, one in self._waits.items() if one.period in times]

    def add(self, waits: Waits) -> int:
        """Drafts that another one is to be read again; returns its number."""
        number = max(self._waits, default=-1) + 1
        self._note(number, waits)
        return number

    def forget_rows(self, numbers: Iterable[int]) -> None:
        """Drafts that the rows of some wait no more."""
        for number in [*numbers]:
            self._note(number, replace(self._waits[number], rows=0))

    def forget_changes(self, numbers: Iterable[int]) -> None:
        """Drafts that the changes of some wait no more."""
        for number in {*numbers} & self._waits.keys():
            self._note(number, replace(self._waits[number], changes=(0, 0)))

    def _note(self, number: int, waits: Waits) -> None:
        needed = waits.rows or waits.n_changes
        self._waits[number] = waits
        if not needed:
            del self._waits[number]
        self._draft.put(StateTable.WAITING, number, waits.to_bytes() if needed else None)
