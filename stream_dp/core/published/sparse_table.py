"""Tables of very many cells, of which noise leaves few to see, and what to ask about the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from stream_dp.core.outcome import TableAnswered

_MOST: Final = 50
"""The most groups that values are put into by their first letters."""

_PLAIN: Final = frozenset("%_\\'")
"""Signs that mean something else in LIKE."""


def surely_some(table: TableAnswered) -> int | None:
    """Returns of how many cells it is sure, of all of them at once, that rows are in them.

    None where bars that hold for each cell alone are all that is known.
    """
    found = table.cells
    if table.wider is not None:
        bars = [None if c.error_bar is None else table.wider * c.error_bar for c in found]
    else:
        bars = [cell.error_bar_simultaneous for cell in found]
        if all(bar is None for bar in bars):
            return None
    pairs = zip(found, bars, strict=True)
    return sum(bar is not None and cell.estimate > bar * cell.n for cell, bar in pairs)


def common_prefix(labels: Sequence[str], counts: Sequence[float]) -> str | None:
    """Returns the first letters that values of many rows share; None where few values share any.

    Of all lengths it takes the least that makes several groups, and of these the one of most rows.

    Args:
        labels: The values of a category.
        counts: The estimated rows of each.
    """
    longest = max(map(len, labels), default=0)
    for length in range(1, longest):
        groups: defaultdict[str, list[float]] = defaultdict(list)
        for label, count in zip(labels, counts, strict=True):
            groups[label[:length]].append(count)
        if len(groups) > min(_MOST, len(labels) // 2):
            return None
        shared = {
            prefix: sum(of_each)
            for prefix, of_each in groups.items()
            if len(of_each) > 1 and not _PLAIN & set(prefix)
        }
        if len(groups) > 1 and shared:
            return max(shared, key=lambda prefix: shared[prefix])
    return None
