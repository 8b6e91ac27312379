"""What one query of each kind takes of a line, tried on rows about which nothing is known yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Target
from stream_dp.core.queries.conditions import compile_total
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.residual.plan.sum_price import value_ends
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.lab.seeded_noise import SeededNoise
from stream_dp.lab.trial import Driven, drawn_block, promised
from stream_dp.profiles.advice import Name, Need, made_calibrated

RELATIVE: Final = 0.05
"""The relative error that is tried."""

_PART_OF_RANGE: Final = 0.01
_MOST_AVERAGES: Final = 2
_LARGE: Final = 0.2
_SEED: Final = 2
_WINDOW: Final = range(1)


@dataclass(frozen=True)
class Single:
    """One query that was tried by itself.

    Attributes:
        kind: What was asked.
        attribute: The attribute that it is about.
        error: The error that was asked for: a share of the rows for a count or a table, a share of the answer
            for a relative error, and in the unit of the attribute for an average.
        rows: The rows that satisfy its condition.
        share: The part of the line that it took. None if the line cannot pay for it.
    """

    kind: Literal["count", "table", "average", "relative"]
    attribute: str
    error: float
    rows: int
    share: float | None


def singles(need: Need, sample: Rows | None = None) -> list[Single]:
    """Tries a count, a table, averages and a count with a relative error, each on a fresh data set.

    Args:
        need: The need of the data set. Its promise has a delta above 0.
        sample: Public rows to draw from. None makes synthetic rows.
    """
    data = Blocks(need.universe)
    data.append(drawn_block(need, np.random.default_rng(_SEED), sample))
    return [
        Single(kind, need.universe.names[index], error, counted, _taken(need, query, data))
        for kind, index, error, counted, query in _asked(need, data)
    ]


_Asked = tuple[Literal["count", "table", "average", "relative"], int, float, int, LinearQuery]


def _asked(need: Need, data: Blocks) -> Iterator[_Asked]:
    universe, error = need.universe, need.accuracy.error
    narrow = min(range(len(universe.shape)), key=lambda a: universe.shape[a])
    (counts,) = data.marginal((narrow,), _WINDOW)
    cell = int(np.argmin(np.abs(counts - _LARGE * need.counted)))
    some = Predicate.conjunction({narrow: np.arange(universe.shape[narrow]) == cell})
    counted = int(counts[cell])
    yield "count", narrow, error, counted, LinearQuery(some, _WINDOW)
    yield "table", narrow, error, need.counted, LinearQuery(EVERYTHING, _WINDOW, (narrow,))
    numbers = [
        index
        for index, attribute in enumerate(universe.attributes)
        if isinstance(attribute, Number) and attribute.wanted is None and any(attribute.values)
    ]
    for index in numbers[:_MOST_AVERAGES]:
        total, _, predicate = compile_total(universe, universe.names[index], None, ())
        query = LinearQuery(predicate, _WINDOW, total=total)
        low, high = value_ends(query)
        off = _PART_OF_RANGE * (high - low)
        if off > 0.0:
            asked = LinearQuery(predicate, _WINDOW, total=total, target=Target(mean=off))
            yield "average", index, off, need.counted, asked
    relative = LinearQuery(some, _WINDOW, target=Target(relative=RELATIVE, at_most=1.0))
    yield "relative", narrow, RELATIVE, counted, relative


def _taken(need: Need, query: LinearQuery, data: Blocks) -> float | None:
    """The part of the line that a query takes of a data set without a base release."""
    mechanism = made_calibrated(replace(need, phases=1), Name.WITHOUT_BASE)
    driven = Driven(mechanism, SeededNoise(np.random.default_rng(_SEED)))
    driven.open_phase(need.n_rows, data)
    if promised(driven.ask(query, data)) is None:
        return None
    opening = mechanism.opening_units(need.counted)
    return (mechanism.lines.worst(_WINDOW).rho - opening) / UNITS
