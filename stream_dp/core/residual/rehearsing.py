"""What several queries would cost together: each is planned on a copy of everything that was published.

A look of the copy is charged to the copy, and absorbed as if it had published what is estimated already, with
the variance that it would really have. So no later query of the bundle pays for the same thing again. Plans
follow from estimates, variances and charges alone, all of them public, and so does this.

Estimates decide one thing only: whether smaller counts bound an answer so closely that no look is needed
(``planner``, step 2). A sparing rehearsal goes by the bounds of today's estimates, and the other one bounds
nothing. If no answer turns out to be bounded, both prices are exactly what is paid, to the unit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from stream_dp.core.mechanism import Look
from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.forms import Floats, table
from stream_dp.core.residual.measuring import CountsLook, CountsRelease, TablesLook, TablesRelease


def imagined(
    belief: Belief, look: Look, evidence_of: Callable[[LinearQuery], Evidence]
) -> TablesRelease | CountsRelease | None:
    """A release of what is estimated already, in whole rows; None for a look that publishes something else.

    Args:
        belief: What is known.
        look: The look that is not taken.
        evidence_of: What is known about a query.
    """
    match look:
        case TablesLook(parts=parts):
            views = [belief.tables.view(p.attributes, range(p.block, p.block + 1)) for p in parts]
            tables = [table(v.spectrum, axes=range(v.spectrum.ndim)) for v in views]
            return TablesRelease(parts, tuple(map(_whole, tables)))
        case CountsLook(query=query, attributes=attributes, steps=steps):
            values = np.zeros((len(steps), look.n_answers))
            for row, (block, _) in zip(values, steps, strict=True):
                here = LinearQuery(query.predicate, range(block, block + 1), query.group_by)
                evidence = evidence_of(here)
                row[slice(None) if evidence.form.live is None else evidence.form.live] = (
                    evidence.values
                )
            return CountsRelease(query.key, attributes, steps, _whole(values))
    return None


def _whole(estimates: Floats) -> npt.NDArray[np.int64]:
    return np.rint(estimates).astype(np.int64)


__all__ = ["imagined"]
