"""How useful an answer is, in the fields and the words of its message."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.outcome import Outcome, Summed, Use, Useful
from stream_dp.core.queries.query import AnyQuery, Indicator, LinearQuery, Product
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.plan.aim_rule import Mean, aims_at_mean, large_means
from stream_dp.core.residual.plan.sum_price import value_ends
from stream_dp.core.residual.plan.targets import percent
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.column_values import number_text
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import QueryFields

_ALIKE: Final = 0.05

_FRACTIONS: Final = {0.5: "a half", 0.25: "a quarter", 0.2: "a fifth", 0.1: "a tenth"}

_SUFFICES: Final = 1.1
"""A price that is named is this many times what a look is expected to take, and is rounded up: noise is on a
grid of scales."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How precise an answer is, in words: as a share of itself, or in its own unit.

    Attributes:
        mean: The mean, share or correlation whose bar is widest for its size. None for counts and sums, which
            are measured as shares of themselves, and where no mean has a bar.
        relative: Whether the answer is measured as a share of itself.
        in_points: Whether its unit is the percentage point.
        of_any_sign: Whether a mean may be below 0 and above, and its bar is larger than itself.
    """

    mean: Mean | None = None
    relative: bool = True
    in_points: bool = False
    of_any_sign: bool = False

    @classmethod
    def of(cls, asked: AnyQuery, outcome: Outcome, failure_probability: float) -> Precision:
        """The precision of an outcome, which promises its bars but for this probability."""
        if not isinstance(asked, LinearQuery) or not isinstance(outcome, Summed):
            return cls()
        if not aims_at_mean(asked):
            return cls()
        means = large_means(asked, outcome, two_sided(math.log(failure_probability)))
        known = [mean for mean in means if math.isfinite(mean.bar) and mean.size > 0.0]
        of_any_sign = False
        if not isinstance(asked.total, Indicator | Product):
            low, high = value_ends(asked)
            crosses = low < 0.0 < high
            of_any_sign = crosses and any(mean.bar > abs(mean.value) for mean in known)
        widest = max(known, key=lambda mean: mean.bar / mean.size, default=None)
        return cls(widest, False, isinstance(asked.total, Indicator), of_any_sign)

    def now(self, use: Use, aim: Aim) -> str:
        """How precise the answer is."""
        if self.mean is not None:
            return self._bar(self.mean.bar)
        return f"within {_fraction(use.part, near=aim.rough)}"

    def better(self, part: float, name: str) -> str:
        """An answer whose bar is a part of its size, which has a name where nobody knows its unit."""
        if self.mean is not None:
            return self._bar(part * self.mean.size)
        return _fraction(part) if self.relative else name

    def _bar(self, bar: float) -> str:
        return (
            f"± {_figure(100.0 * bar)} percentage points" if self.in_points else f"± {_figure(bar)}"
        )


def use_fields(
    use: Use,
    aim: Aim,
    query: QueryFields,
    universe: Universe,
    precision: Precision,
    *,
    more_phases: bool,
    left: float = 1.0,
) -> dict[str, Any]:
    """Returns the fields of an answer that say how useful it is.

    Args:
        use: What the core says of it.
        aim: What the data set aims at.
        query: The query as it was sent.
        universe: The attributes of the data set.
        precision: How precise it is.
        more_phases: Whether more phases than the query asks about are open.
        left: The share of each line of the window that the analyst may spend.
    """
    said: list[str] = []
    useful = use.useful
    if precision.of_any_sign and useful is not Useful.NO:
        useful = Useful.NO
        said.append(f"{precision.now(use, aim)} leaves it open whether it is above 0")
    elif useful is Useful.ROUGH:
        said.append(precision.now(use, aim))
    if use.rough_price is not None:
        said.append(
            _for_price(precision.better(aim.rough, "a rough answer"), use.rough_price, left)
        )
    if use.aim_price is not None and (use.rough_price is None or use.rough_price < 1.0):
        said.append(_for_price(precision.better(aim.share, "a precise one"), use.aim_price, left))
    if useful is Useful.NO and not use.guarded:
        said.append(_other(query, more_phases=more_phases) + _limited(query, universe))
    return {
        "useful": useful.value,
        "aim_price": use.aim_price,
        "rough_price": use.rough_price,
        "suggestion": "; ".join(said) or None,
    }


def _for_price(what: str, price: float, left: float) -> str:
    """What a better answer would take, and what to name for it."""
    if price >= 1.0:
        return f"{what} would take more than the whole budget"
    said = f"{what} would take {percent(price, up=True)} of each phase's budget"
    enough = _SUFFICES * price
    step = 10.0 ** (math.floor(math.log10(enough)) - 1)
    enough = math.ceil(enough / step - 1e-9) * step
    if enough > left:
        return f"{said}, which is more than is left"
    return f"{said}: name at_most {enough:.3g}"


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


def _limited(query: QueryFields, universe: Universe) -> str:
    """The sum to ask instead where large values make the answer dear; nothing where they do not."""
    if query.kind != "sum" or query.attribute is None or query.up_to is not None:
        return ""
    attribute = universe.attributes[universe.index(query.attribute)]
    if not isinstance(attribute, Number) or attribute.measure is None:
        return ""
    top = attribute.edges[-1]
    if not 0.0 < 2.0 * top <= attribute.measure.high:
        return ""
    function = "AVG" if query.mean else "SUM"
    return f"; or limit large values: {function}(LEAST({attribute.name}, {number_text(top)}))"


def _fraction(share: float, *, near: float | None = None) -> str:
    """A part of an answer in words; that of ``near`` if it is about as much."""
    if near is not None and math.isclose(share, near, rel_tol=_ALIKE):
        share = near
    return _FRACTIONS.get(share, percent(share))


def _figure(number: float) -> str:
    """A positive number with two digits, or all before the point."""
    decimals = max(0, 1 - math.floor(math.log10(number))) if number > 0.0 else 0
    return f"{number:,.{decimals}f}"
