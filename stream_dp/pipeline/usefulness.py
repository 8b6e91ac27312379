"""How useful an answer is, in the fields and the words of its message."""

from __future__ import annotations

import math
from typing import Any, Final

from stream_dp.core.outcome import Use, Useful
from stream_dp.core.parameters import Aim
from stream_dp.core.residual.targets import percent
from stream_dp.messages import QueryFields

__all__ = ["use_fields"]

_ALIKE: Final = 0.05

_FRACTIONS: Final = {0.5: "a half", 0.25: "a quarter", 0.2: "a fifth", 0.1: "a tenth"}


def use_fields(use: Use, aim: Aim, query: QueryFields, *, more_phases: bool) -> dict[str, Any]:
    """Returns the fields of an answer that say how useful it is.

    Args:
        use: What the core says of it.
        aim: What the data set aims at.
        query: The query as it was sent.
        more_phases: Whether more phases than the query asks about are open.
    """
    return {
        "useful": use.useful.value,
        "aim_price": use.aim_price,
        "rough_price": use.rough_price,
        "suggestion": _suggestion(use, aim, query, more_phases=more_phases),
    }


def _suggestion(use: Use, aim: Aim, query: QueryFields, *, more_phases: bool) -> str | None:
    """What more would take, and what to ask instead; None where the answer is as precise as is aimed at."""
    if use.useful is Useful.YES:
        return None
    if use.useful is Useful.ROUGH:
        said = f"within {_fraction(use.part, near=aim.rough)}"
        if use.aim_price is None:
            return said
        return f"{said}; {_fraction(aim.share)} would take {_price(use.aim_price)}"
    other = _other(query, more_phases=more_phases)
    if use.aim_price is None or use.rough_price is None:
        return other
    prices = (
        f"{_fraction(aim.rough)} would take {_price(use.rough_price)} of each block's budget, "
        f"{_fraction(aim.share)} {_price(use.aim_price)}"
    )
    return f"{prices}; {other}"


def _other(query: QueryFields, *, more_phases: bool) -> str:
    """The query to ask instead: one about more rows."""
    if len(query.group_by) > 1:
        return f"group by fewer of {', '.join(query.group_by)}"
    if query.group_by:
        return f"ask about all of {query.group_by[0]} together"
    if query.where is not None:
        return "ask with a wider condition"
    if more_phases or query.series is not None:
        return "ask about more phases at once"
    return "ask again when more phases are open"


def _fraction(share: float, *, near: float | None = None) -> str:
    """A part of an answer in words; that of ``near`` if it is about as much."""
    if near is not None and math.isclose(share, near, rel_tol=_ALIKE):
        share = near
    return _FRACTIONS.get(share, percent(share))


def _price(share: float) -> str:
    """A share of a line as a percentage, which may be above 100."""
    return percent(share, up=True) if share < 1.0 else f"{100.0 * share:,.0f}%"
