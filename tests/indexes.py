"""What tests see of an index of ids."""

from __future__ import annotations

from stream_dp.state.ids import Ids


def counts(index: Ids) -> list[int]:
    """The numbers of ids: answers put since the last rotation, and before; of outcomes, both; taken."""
    return [
        len(places._newest) + sum(len(run[0]) for run in places._runs) - places.n_moved
        for places in index._all()
    ]
