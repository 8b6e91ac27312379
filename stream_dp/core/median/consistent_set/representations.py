"""The representations of a consistent set, by their names in a definition."""

from __future__ import annotations

from stream_dp.core.median.consistent_set.entropic import Entropic
from stream_dp.core.median.consistent_set.exhaustive import Exhaustive
from stream_dp.core.median.consistent_set.polytope import Polytope
from stream_dp.core.median.consistent_set.set_interface import ConsistentSet
from stream_dp.core.median.phase_constants import Representation


def fresh_set(
    representation: Representation, n_cells: int, hypothesis_rows: int, blocks: int
) -> ConsistentSet:
    """A consistent set about which nothing was published yet.

    Args:
        representation: Its representation.
        n_cells: The cells of the universe.
        hypothesis_rows: The rows of a hypothesis.
        blocks: The most blocks that it may have.
    """
    if representation == "exhaustive":
        return Exhaustive(n_cells, hypothesis_rows, blocks)
    if representation == "entropic":
        return Entropic(n_cells, hypothesis_rows)
    return Polytope(n_cells, blocks)
