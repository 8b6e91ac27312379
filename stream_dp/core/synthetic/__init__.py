"""Synthetic rows in place of those of a window: post-processing of what was published, and so free.

Each mechanism says by its ``basis`` which published values the rows of a window follow.

*From a consistent set* (``Phased``, ``Doubling``, ``Gated``): the rows follow one hypothesis, the set's
``point``: the mean of all, or the point of maximum entropy; a window's shares are those of its blocks,
weighted by their public sizes. *From weights*: the one histogram there is. *From a whole table*: its cells,
none below zero. *From the calibrated profile*: a graphical model fitted to the published tables of one and
two attributes (``cliques``).

**How far off.** What was published is within its error bar of the truth, and how far the finished rows are
from it, rounding included, is simply counted: a ``Gap``. Both together bound the distance to the truth. About
everything else nothing is proved: one hypothesis, or one model, need not be right where nobody has looked.
For a consistent set the first part is bounded beforehand, by ``eps/50`` (Kim 2017, Lemma 3.3), rounding and
what a polytope's point lacks of the whole mass aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stream_dp.core.synthetic.basis import Synthetic

if TYPE_CHECKING:
    from stream_dp.core.mechanism import Mechanism


def synthetic(
    mechanism: Mechanism, window: range, n_rows: int, generator: np.random.Generator
) -> Synthetic:
    """Draws ``n_rows`` rows for a window.

    Args:
        mechanism: The mechanism whose published answers the rows follow.
        window: Open phases. Where a crash lost the tables of the newest one, the rows stand for those
            before it.
        n_rows: The number of rows to draw, at least 1. The window's own number is public.
        generator: Public randomness, for the rounding and the order of the rows.

    Raises:
        ValueError: No hypothesis agrees with all published answers, the mechanism does not answer about the
            window or has nothing that rows could follow, or ``n_rows`` is below 1.
    """
    if n_rows < 1:
        raise ValueError("no rows were asked for")
    return mechanism.basis(window).rows(n_rows, generator)
