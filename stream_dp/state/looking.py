"""Looks at a data set in a store without taking it over: for checks that run next to its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stream_dp.state.store import Snapshot

__all__ = ["LookedAt", "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A data set as it was between two commits.

    Attributes:
        snapshot: What its owner would be given, without secrets. Its token is that of the present owner.
        ledger: The entries of its ledger, in order.
        n_answers: The number of ids of answers, of those since the last rotation.
        n_batches: The number of outcomes of batches, of those since the last rotation.
        n_taken: The number of ids of batches of which 16 bytes are kept.
    """

    snapshot: Snapshot = field(repr=False)
    ledger: Sequence[bytes] = field(repr=False)
    n_answers: int
    n_batches: int
    n_taken: int = 0


class LookedAt(Protocol):
    """A store that is read only. Its owner notices nothing. Every method may raise a StoreError."""

    async def datasets(self) -> tuple[str, ...]:
        """Does the same as in ``DeploymentStore``."""
        ...

    async def look(self, dataset: str) -> Seen | None:
        """Returns a data set as of one instant; with 0 commits if there is none of this name.

        None if its owner committed again and again while it was read.
        """
        ...

    async def block(self, dataset: str, token: int, index: int) -> bytes:
        """Does the same as in ``DatasetStore``. The token of ``look`` reads the blocks of that owner."""
        ...

    async def answers(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        """Does the same as in ``DatasetStore``."""
        ...

    async def batches(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        """Does the same as in ``DatasetStore``."""
        ...

    async def taken(self, dataset: str, taken: Sequence[bytes]) -> set[bytes]:
        """Does the same as in ``DatasetStore``."""
        ...
