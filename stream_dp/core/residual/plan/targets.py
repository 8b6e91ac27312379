"""The meaning of a query's own target: the error that is planned for, and the most that may be paid.

A query may ask for another error than the data set's, and say how much of any line (a block's privacy budget)
it may take. Its failure probability stays that of the data set. Everything here is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.plan.planner import Terms

_RELATIVE_SHARE: Final = 0.1
"""The most that a relative error may take of a line where neither query nor definition says: nobody knows
beforehand what it will cost, and for a count near 0 that is any sum."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of what queries of a data set may ask for.

    Attributes:
        least_error: The smallest error, as a share of the rows. None for no limit.
        query_share: The largest share of any line that one query may take, unless it names another. None for
            no limit.
    """

    least_error: float | None = None
    query_share: float | None = None

    def most(self, target: Target) -> int | None:
        """Units that a query may take of any line; None for no limit."""
        share = self.query_share if target.at_most is None else target.at_most
        if share is None and target.relative is not None:
            share = _RELATIVE_SHARE
        return None if share is None else math.floor(share * UNITS)

    def refusal(self, terms: Terms) -> Refused | None:
        """The refusal of a query that asks for a smaller error than any may; None for all others."""
        if self.least_error is None or terms.error >= self.least_error:
            return None
        return Refused(
            RefusalCode.INVALID_QUERY,
            f"error: this data set answers no query to less than {self.least_error:g} of the rows asked; "
            f"ask for {self.least_error:g} or more",
        )


NO_LIMITS: Final = Limits()


def terms_of(terms: Terms, query: LinearQuery, n_rows: int) -> Terms:
    """The data set's terms with the error that a query asks for, as a share of its ``n_rows`` rows."""
    target = query.target
    if target.value is not None:
        largest = 1.0 if query.total is None else query.total.largest
        return replace(terms, error=target.value / largest / n_rows)
    return terms if target.share is None else replace(terms, error=target.share)


def too_dear(charges: tuple[Charge, ...], most: int, *, about: bool = False) -> Refused:
    """The refusal of a query that would take more of some line than it may; ``about`` as much, or exactly."""
    price = max(charge.rho for charge in charges) / UNITS
    needed = f"{'about ' if about else ''}{percent(price, up=True)} of a phase's budget"
    return Refused(
        RefusalCode.PRICE_TOO_HIGH,
        f"the answer would take {needed}, and it may take {percent(most / UNITS)}; "
        "ask under a new id with a larger at_most, or with a larger error",
    )


def percent(share: float, *, up: bool = False) -> str:
    """Writes a share as a percentage with three digits; ``up`` rounds up, so that the number suffices."""
    if share <= 0.0 or share >= 1.0:
        return "100%" if share > 0.0 else "0%"
    digits = 2 - math.floor(math.log10(100.0 * share))
    scale = 10.0**digits
    scaled = 100.0 * share * scale
    return f"{(math.ceil(scaled - 1e-9) if up else round(scaled)) / scale:g}%"
