"""A data set's synthetic rows as a message: from what was published, by public randomness."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection

import numpy as np

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.rows.attributes import Attribute, Boolean
from stream_dp.core.rows.universe import Universe
from stream_dp.core.synthetic import synthetic
from stream_dp.core.synthetic.basis import Gap, Synthetic
from stream_dp.messages import SyntheticColumn, SyntheticRows, TableGap, WorstGap


def synthesized(
    dataset: str,
    universe: Universe,
    mechanism: Mechanism,
    *,
    phase: int,
    releases: int,
    n_rows: int,
) -> SyntheticRows | None:
    """Synthetic rows in place of all that a mechanism knows of; None where no rows follow from it.

    The same again after a restart: the seed follows from the arguments.

    Args:
        dataset: The name of the data set.
        universe: The possible rows.
        mechanism: The mechanism whose published answers the rows follow.
        phase: Phases opened so far, at least 1.
        releases: Releases since the newest one opened.
        n_rows: The number of rows to draw.
    """
    seed = hashlib.sha256(f"{dataset} {phase} {releases}".encode()).digest()
    try:
        found = synthetic(mechanism, range(phase), n_rows, np.random.default_rng(list(seed)))
    except ValueError:  # the consistent set is empty
        return None
    tables = tuple(
        TableGap(
            attributes=tuple(universe.names[a] for a in attributes),
            distance=gap.distance,
            error_bar=gap.error_bar,
        )
        for attributes, gap in found.fitted.items()
    )
    others, answers = _worst(found.others.values()), _worst(found.answers)
    proved = [*found.fitted.values(), *found.answers]
    error = min(1.0, max(gap.error for gap in proved)) if proved else None
    return SyntheticRows(
        dataset=dataset,
        phase=phase,
        window=(found.window.start + 1, found.window.stop),
        n=found.n_rows,
        rows=n_rows,
        columns={
            attribute.name: SyntheticColumn(labels=_labels(attribute), codes=tuple(codes.tolist()))
            for attribute, codes in zip(universe.attributes, found.columns, strict=True)
        },
        tables=tables,
        others=others,
        answers=answers,
        error=error,
        confidence=found.confidence,
        note=_note(error, others, found),
    )


def _labels(attribute: Attribute) -> tuple[str | bool | None, ...]:
    """Returns the value of the attribute for each of its cells."""
    labels = (False, True, None) if isinstance(attribute, Boolean) else attribute.labels
    return tuple(
        None if cell == attribute.missing_cell else label
        for cell, label in enumerate(labels[: attribute.size])
    )


def _worst(gaps: Collection[Gap]) -> WorstGap | None:
    if not gaps:
        return None
    worst = max(gaps, key=lambda gap: gap.error)
    return WorstGap(compared=len(gaps), distance=worst.distance, error_bar=worst.error_bar)


def _note(error: float | None, others: WorstGap | None, found: Synthetic) -> str:
    """Returns a sentence that says what is proved."""
    if error is None:
        return "Nothing is proved about these rows: nothing was published that they could be compared with."
    proved = (
        f"The share of each cell of the {len(found.fitted)} tables listed is within {_percent(error)} of "
        "the truth"
        if found.fitted
        else f"The share of each of {len(found.answers)} hard queries about these phases is within "
        f"{_percent(error)} of the truth"
    )
    if others is not None:
        proved += (
            f", and of the {others.compared} other published tables of two attributes within "
            f"{_percent(others.distance + others.error_bar)}"
        )
    proved += f", all at once with confidence {found.confidence:g}"
    return f"{proved}; about anything else nothing is proved."


def _percent(error: float) -> str:
    """Rounded up: less would promise too much."""
    return f"{math.ceil(1000.0 * min(1.0, error)) / 10.0:g}%"
