"""How many phases the rows of a file make, and how many rows wait in the end."""

from __future__ import annotations

from typing import Final

from stream_dp.cli.files.cell_widths import rows_a_batch
from stream_dp.messages import Definition

BATCH_ROWS: Final = 20_000
"""The most rows of a batch, unless a command is told otherwise."""
MOST_LEFT: Final = 0.01
"""The share of the rows of a file from which it matters that they wait."""


def aligned(definition: Definition, batch_rows: int) -> tuple[int, int | None]:
    """Chooses batches with which phases that open by rows get as few rows more than asked as can be.

    It follows from the definition alone, so that the same file is always cut in the same way.

    Args:
        definition: The definition.
        batch_rows: The most rows of a batch.

    Returns:
        The most rows of a batch, and a number of rows after each of which a batch ends too, if there is one.
    """
    n_rows = definition.phase.min_rows
    if definition.phase.every is not None:
        return batch_rows, None
    if n_rows <= batch_rows:
        return batch_rows - batch_rows % n_rows, None
    return batch_rows, n_rows


def left_waiting(definition: Definition, n_rows: int, batch_rows: int | None = None) -> int:
    """Returns how many rows of a file wait in the end, where phases open by rows and none waited before.

    Args:
        definition: The definition.
        n_rows: The rows of the file.
        batch_rows: The most rows of a batch. None takes those of a command that is not told otherwise.
    """
    size, every = aligned(definition, batch_rows or rows_a_batch(definition, BATCH_ROWS))
    left = n_rows % (every or size)
    return left if left < definition.phase.min_rows else 0


def enough_rows(definition: Definition, n_rows: int) -> int | None:
    """Returns the largest ``phase.min_rows`` that opens as many phases as now, of nearly all rows of a file.

    Fewer than 1% of the rows wait then. None if there is no such number.

    Args:
        definition: The definition.
        n_rows: The rows of the file, which are enough for a phase.
    """
    per_phase = n_rows // (n_rows // definition.phase.min_rows)
    phase = definition.phase.model_copy(update={"min_rows": per_phase})
    left = left_waiting(definition.model_copy(update={"phase": phase}), n_rows)
    return per_phase if left < MOST_LEFT * n_rows else None
