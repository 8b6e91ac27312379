"""What follows from the definition of a data set alone, before any row: its universe and its mechanism."""

from __future__ import annotations

from stream_dp.core.queries.conditions import CompiledConditions
from stream_dp.messages import Definition
from stream_dp.pipeline.rows.row_times import Times
from stream_dp.profiles.builder import build


class Engine:
    """What answers the queries of one data set. It is public, and holds no row.

    Attributes:
        definition: The definition.
        universe: The finite set of possible rows.
        mechanism: The mechanism that answers the queries.
        conditions: The conditions of its queries, compiled.
        times: The rules by which times of batches become times of phases.

    Raises:
        InvalidDefinition: No mechanism can be built from the definition.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.times = Times(definition.phase)
        self.restart()

    def restart(self) -> None:
        """Begins again as if nothing had been published."""
        self.universe, self.mechanism = build(self.definition)
        self.conditions = CompiledConditions(self.universe)
