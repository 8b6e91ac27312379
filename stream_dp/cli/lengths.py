"""How long a partition of the journal is, and what keeps it so long."""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.pipeline.journal import Owned
from stream_dp.state.schema import State

__all__ = ["Length", "length_of"]


@dataclass(frozen=True, slots=True)
class Length:
    """A partition of the journal.

    Attributes:
        partition: Its number.
        entries: The number of its entries.
        tail: The number of entries since the newest round of checkpoints: a worker reads them at its start.
        stopped: The data sets without a state: with one, no round of checkpoints is written.
        kept: The number of answers and outcomes of batches that are kept and lie below that round.
    """

    partition: int
    entries: int
    tail: int
    stopped: tuple[str, ...]
    kept: int


def length_of(owned: Owned, states: dict[str, State | None]) -> Length:
    """Returns the length of a partition that was read.

    Args:
        owned: The partition.
        states: Its data sets, with their states. None for one that cannot be served.
    """
    return Length(
        owned.partition,
        owned.expected - owned.first,
        owned.expected - max(owned.begin, owned.first),
        tuple(sorted(name for name, state in states.items() if state is None)),
        sum(chain.ids.below(owned.begin) for chain in owned.chains.values()),
    )
