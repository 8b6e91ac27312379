"""The base release that is worth most for what was asked lately: candidates are judged by replaying it.

A replay says of each candidate which of the queries it would have answered by itself, and what the others
would take of a line (a block's privacy budget) one by one in the life of a block. Where lines suffice for
nearly all of them, the winner is the candidate under which they take least. Where they do not, lines are
*scarce*: then blocks must be measured alike, because what one of them lacks is lost for every window that
holds it.

Everything here follows from the schema, the accuracy, the rows of a block, what was published as phases
opened, and the queries asked, in whatever order: all of it public. ``docs/guarantee.md`` has what is
proved, and ``docs/planning.md`` an account.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.queries.query import Mask
from stream_dp.core.residual.base_release.base_plan import (
    CAP,
    NOTHING,
    BasePlan,
    BaseRelease,
    Reach,
    base_plan,
    needs_of,
    variance_for,
)
from stream_dp.core.residual.base_release.demand import Asked, Demand
from stream_dp.core.residual.base_release.expected_queries import (
    GENERIC_QUERIES,
    Expected,
    Group,
    Kind,
    bounding,
    conjunction_norms,
    generic_workload,
    is_wide,
)
from stream_dp.core.residual.belief.bounds import one_sided
from stream_dp.core.residual.belief.levels import Axes
from stream_dp.core.residual.calibrated_settings import LARGEST
from stream_dp.core.residual.plan.promise import Promise

SHARES: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9, LARGEST)
"""The shares of a line that generic candidates take."""

_PLENTY: Final = 0.97
"""The part of the queries that the best candidate answers where lines are not scarce."""
_SAME: Final = 0.99
_NEAR: Final = 0.95
"""The part of the best one's answers from which on candidates are equal: with plenty, and where scarce."""
_WORTH: Final = 0.8
"""The part of what today's release takes from which on no other one is worth a change."""
_WORTH_AT_FIRST: Final = 0.6
"""The same while there is one phase: windows that will differ are one query then."""
_FITTED: Final = 0.9
"""The largest share of a line that a release for the very queries takes."""
_FIRST: Final = (1, 3, 6, 12)
"""The phases of the windows that a query is about of which nothing is known yet, and of generic queries."""
_LIFE: Final = 1.414
_QUARTERS: Final = 4
_MEMORY: Final = 8
"""The last phases that say how often a query that is fitted to comes."""
_MOST_GROUPS: Final = 400
_MOST_LENGTHS: Final = 8
_LEAST_WEIGHT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Choice:
    """What a replay has found to be worth most.

    Attributes:
        share: The share of a line of the generic candidate; None for the others.
        fitted: The phases whose queries the release is planned for. Empty for the others.
        today: Whether it is what would be measured if nothing had been asked.
        many: Whether it is what would be measured if ten times as many queries were expected.
        scarce: Whether no candidate answers nearly all of what was asked.
    """

    share: float | None = None
    fitted: tuple[int, ...] = ()
    today: bool = False
    many: bool = False
    scarce: bool = False


MANY: Final = Choice(many=True)


@dataclass(frozen=True, slots=True)
class _Row:
    """A query as a replay sees it, about windows of one length.

    Attributes:
        asked: The query.
        phases: The phases of its window.
        weight: How many queries it stands for.
        few: How often it is paid in the life of a block, if it is paid once for each new block.
        many: The same, if what came once stands for others like it in each phase.
    """

    asked: Asked
    phases: int
    weight: float
    few: float
    many: float


class Replay:
    """Judges base releases by what was asked.

    Args:
        promise: The promise of the data set.
        today: The plan of what is measured while nothing is known of the queries.
        several: How many times as precise a query about several phases must be as one about a single phase.
        demand: What was asked.
        share_of: Returns the share of the rows that a condition on one attribute leaves, as far as it was
            published when phases opened; 1 where it was not.
    """

    def __init__(
        self,
        promise: Promise,
        today: BasePlan,
        several: float,
        demand: Demand,
        share_of: Callable[[int, Mask], float],
    ) -> None:
        self._share_of = share_of
        self._promise = promise
        self._axes, self._terms = promise.axes, promise.terms
        self._today = today
        windows = tuple((phases, phases / sum(_FIRST)) for phases in _FIRST)
        plan = partial(base_plan, self._axes, terms=self._terms)
        self._generic = plan(Expected(queries=GENERIC_QUERIES, windows=windows))
        self._many = plan(Expected(queries=10 * GENERIC_QUERIES), cap=CAP)
        self._several = several
        self._demand = demand
        self._chosen: dict[tuple[int, ...], Choice] = {}
        self._shares: dict[tuple[int, bytes], float] = {}
        self._n_phases = 0
        self._plans: dict[tuple[int, ...], BasePlan | None] = {}
        self._version = -1

    def __deepcopy__(self, memo: dict[int, Any]) -> Replay:
        found = copy(self)
        for name in ("_demand", "_share_of"):
            setattr(found, name, deepcopy(getattr(self, name), memo))
        for name in ("_chosen", "_plans", "_shares"):  # what is in them never changes
            setattr(found, name, copy(getattr(self, name)))
        return found

    def choice(
        self, n_rows: int, n_phases: int, most: int, *, phase: int, more: float = 1.0
    ) -> Choice:
        """Returns what is worth most of a block, by what was asked in one phase.

        Args:
            n_rows: The rows that errors about the block are shares of.
            n_phases: The number of phases up to the one whose queries are replayed.
            most: The units that a release may cost at most.
            phase: The phase whose queries are replayed: one of the last two in which anything was asked.
            more: How many times as many queries are expected.
        """
        if self._n_phases != n_phases:  # what is published when phases open has changed
            self._n_phases = n_phases
            self._shares.clear()
        if self._version != self._demand.version:
            self._version = self._demand.version
            self._chosen.clear()
            self._plans.clear()
        key = n_rows, n_phases, most, phase, round(100 * more)
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen[key] = self._best(n_rows, n_phases, most, phase, more)
        return found

    def release(self, choice: Choice, n_rows: int, most: int) -> BaseRelease:
        """The release that a choice means for a block of ``n_rows`` rows, of at most ``most`` units.

        One that would cost more gives way to the largest generic one that does not.
        """
        plan, found = None, NOTHING
        if choice.share is not None:
            found = self.generic(n_rows, min(choice.share, most / UNITS))
        elif choice.today or choice.many:
            plan = self._today if choice.today else self._many
        elif choice.fitted:
            plan = self._fitted(choice.fitted)
        if plan is not None:
            found = plan.release(n_rows, self._promise)
        return found if found.units <= most else self.generic(n_rows, most / UNITS)

    def generic(self, n_rows: int, share: float) -> BaseRelease:
        """The generic release of a share of a line, for queries that are always new."""
        if share <= 0.0:
            return NOTHING
        return self._generic.release(n_rows, self._promise, share)

    # ------------------------------------------------------------ the replay

    def _best(self, n_rows: int, n_phases: int, most: int, phase: int, more: float) -> Choice:
        rows = list(self._rows(n_phases, phase, more))
        if not rows:
            return Choice(today=True)
        limit = variance_for(n_rows, self._terms)
        line = limit * float(self._promise.budget.rho)
        found = [list(self._ways(row.asked)) for row in rows]
        ways = _Ways(self._axes, found)
        asked = math.fsum(row.weight for row in rows)
        judged = []
        for choice in self._candidates(phase):
            release = self.release(choice, n_rows, most)
            if choice.fitted and release == NOTHING:
                continue
            reach = Reach(self._axes, release, limit, several=self._several)
            needs = ways.phases(reach)
            answered, spent = _replayed(rows, needs.tolist(), line, release.units / UNITS)
            judged.append((answered / asked, spent, release.units, choice))
        best = max(answered for answered, *_ in judged)
        if best < _PLENTY:
            # What queries pay for one by one is judged too kindly: of those about as good the largest wins.
            near = [one for one in judged if one[0] >= _NEAR * best and not one[3].fitted]
            if not near:
                near = [max((one for one in judged if not one[3].fitted), key=lambda one: one[0])]
            *_, choice = max(near, key=lambda one: one[2])
            return replace(choice, scarce=True)
        good = [one for one in judged if one[0] >= _SAME * best]
        _, least, _, choice = min(good, key=lambda one: one[1])
        worth = _WORTH if n_phases > 1 else _WORTH_AT_FIRST
        usual = [one for one in good if one[3].today and least > worth * one[1]]
        if usual:
            return usual[0][3]
        if choice.fitted:  # fitted again, to the phase that it was judged on too
            return replace(choice, fitted=(*choice.fitted, phase))
        return choice

    def _candidates(self, phase: int) -> Iterator[Choice]:
        yield Choice()
        yield Choice(today=True)
        for share in SHARES:
            yield Choice(share=share)
        before = self._demand.before if phase == self._demand.last else 0
        if before:  # never judged on what it is fitted to
            yield Choice(fitted=(before,))

    def _rows(self, n_phases: int, phase: int, more: float) -> Iterator[_Row]:
        """What was asked in a phase, with how often its likes come in the life of a block.

        Nobody knows how long a data set lives, so a query about all phases counts at four lengths, each twice
        the one before. While there is one phase all windows are alike, and every query counts so.
        """
        queries = self._demand.queries(phase)
        scale = more * self._demand.total(phase) / max(1, len(queries))
        for asked in queries:
            if n_phases == 1:
                lengths: Sequence[int] = _FIRST
            elif asked.phases is None:
                lengths = [math.ceil(_LIFE * (n_phases + 1) * 2**j) for j in range(_QUARTERS)]
            else:
                lengths = [asked.phases]
            weight = scale / len(lengths)
            for length in lengths:
                seldom, came = self._demand.rarity(asked.digest, phase, length)
                many = seldom if came > 1 else float(length)
                yield _Row(asked, length, weight, weight * seldom, weight * many)

    def _ways(self, asked: Asked) -> Iterator[Kind]:
        """The ways to answer a query from a release: by its variance, or bounded by one of its conditions.

        A conjunction has at most the rows that one of its conditions leaves. The answer is bounded if their
        share and its error bar are at most twice the error together.
        """
        if asked.norms:
            yield asked.attributes, asked.norms
        if len(asked.attributes) < 2 or not all(asked.cells):
            return
        z = one_sided(self._terms.log_bounds_failure - math.log(_SIDES))
        for index, attribute in enumerate(asked.attributes):
            condition = asked.condition(index, self._axes.shape[attribute])
            assert condition is not None, "all conditions are known"
            key = attribute, asked.cells[index]
            if key not in self._shares:
                self._shares[key] = self._share_of(attribute, condition)
            room = 2.0 * asked.error * self._terms.error - self._shares[key]
            if room > 0.0:
                easier = (room / self._terms.error * self._terms.z / z) ** 2
                norms = conjunction_norms(self._axes, (attribute,), [int(condition.sum())])
                yield (attribute,), tuple(norm / easier for norm in norms)

    # ------------------------------------------------------------ the release for the very queries

    def _fitted(self, phases: tuple[int, ...]) -> BasePlan | None:
        """The plan for what was asked in some phases; None if that says nothing."""
        if phases not in self._plans:
            groups, plan = tuple(self._groups(phases)), None
            if groups:
                queries = math.fsum(part for group in groups for _, part in group.windows)
                expected = Expected(
                    groups, max(1, round(queries)), new=False, several=self._several
                )
                plan = BasePlan(self._axes, expected, cap=_FITTED)
            self._plans[phases] = plan
        return self._plans[phases]

    def _groups(self, phases: tuple[int, ...]) -> Iterator[Group]:
        """The demand for a block, as groups with the queries that are expected in its life.

        A query that comes in each phase is measured once for each new block, and one whose likes are always
        new as often as that. What was asked of sets of attributes is shrunk towards all sets of as many.
        """
        upto, known = max(phases), [self._demand.queries(phase) for phase in phases]
        came = Counter(asked.digest for queries in known for asked in queries)
        several = {asked.digest: asked for queries in known for asked in queries if asked.norms}
        scale = math.fsum(map(self._demand.total, phases)) / max(1, came.total())
        found: dict[int, list[tuple[Asked, int, float]]] = defaultdict(list)
        for asked in several.values():
            seldom, _ = self._demand.rarity(asked.digest, upto, _MEMORY)
            likes = scale * seldom * came[asked.digest] / len(phases)  # that it stands for
            if asked.phases is None:
                each = likes * min(1.0, (upto + 1) * math.log(2.0) / seldom)
                lengths = [math.ceil(_LIFE * (upto + 1) * 2**j) for j in range(_QUARTERS)]
                found[len(asked.attributes)] += [(asked, length, each) for length in lengths]
            else:
                each = likes * min(1.0, asked.phases / seldom)
                found[len(asked.attributes)].append((asked, asked.phases, each))
        for order, some in found.items():
            yield from self._shrunk(order, some, len(found))

    def _shrunk(
        self, order: int, some: list[tuple[Asked, int, float]], n_orders: int
    ) -> Iterator[Group]:
        terms = self._terms if is_wide(self._axes) else None
        generic = generic_workload(self._axes, ((1, 1.0),), terms, order=order)
        n_sets = math.comb(sum(n > 1 for n in self._axes.shape), order)
        own = _own_part([asked.attributes for asked, _, _ in some], n_sets) if generic else 1.0
        mass = math.fsum(times for _, _, times in some)
        kept = some[:: max(1, -(-len(some) * n_orders // _MOST_GROUPS))]
        scale = own * mass / math.fsum(times for _, _, times in kept)
        if own > _LEAST_WEIGHT:
            for asked, length, times in kept:
                attributes, norms = self._easiest(asked)
                windows = ((length, times * scale),)
                yield Group(attributes, norms, windows, asked.price)
        if own >= 1.0 - _LEAST_WEIGHT:
            return
        lengths: dict[int, float] = defaultdict(float)
        for _, length, times in some:
            lengths[length] += times
        common = sorted(lengths.items(), key=lambda one: (-one[1], one[0]))[:_MOST_LENGTHS]
        rest = (1.0 - own) * mass / math.fsum(part for _, part in common)
        for group in generic:
            [(_, weight)] = group.windows
            every = tuple(sorted((length, weight * rest * part) for length, part in common))
            yield replace(group, windows=every)

    def _easiest(self, asked: Asked) -> Kind:
        """What must be known to answer a query: on wide data fewer of its conditions may bound it."""
        kind = asked.attributes, asked.norms
        if not is_wide(self._axes) or not all(asked.cells) or asked.error != 1.0:
            return kind
        shape = self._axes.shape
        conditions = [asked.condition(i, shape[a]) for i, a in enumerate(asked.attributes)]
        selected = [int(np.count_nonzero(one)) for one in conditions if one is not None]
        return bounding(self._axes, kind, selected, self._terms) or kind


def _replayed(
    rows: Sequence[_Row], needs: Sequence[float], line: float, opening: float
) -> tuple[float, float]:
    """The queries that are answered, and the part of a line that they take in the life of a block.

    Args:
        rows: The queries.
        needs: The phases from which on the release answers each of them.
        line: What a line pays for: rho at the variance that certifies a query about one phase.
        opening: The part of a line that the release costs.
    """
    left, answered, asked, takes, pays = 1.0 - opening, 0.0, 0.0, 0.0, 0.0
    for row, need in zip(rows, needs, strict=True):
        if need <= row.phases:
            answered += row.weight
            continue
        price = row.asked.price / row.phases / line
        pays += price * row.few
        if price <= left:
            asked += row.weight
            takes += price * row.many
    # Queries come in any order: where a line does not pay for all of them, it pays for a part of each kind.
    part = left / takes if takes > left else 1.0
    return answered + part * asked, opening + min(left, pays)


class _Ways:
    """From how many phases on a release answers some queries, in any of the ways to do so.

    Args:
        axes: The attributes with their chains.
        queries: What each way of each query must know.
    """

    def __init__(self, axes: Axes, queries: Sequence[Sequence[Kind]]) -> None:
        parts: dict[tuple[int, ...], int] = {}
        rows, columns, values = [], [], []
        self._of: list[int] = []
        for number, ways in enumerate(queries):
            for attributes, norms in ways:
                for part, norm in needs_of(axes, attributes, norms).items():
                    rows.append(len(self._of))
                    columns.append(parts.setdefault(part, len(parts)))
                    values.append(norm)
                self._of.append(number)
        self._n = len(queries)
        self._parts = list(parts)
        self._rows, self._columns = np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp)
        self._values = np.array(values)

    def phases(self, reach: Reach) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The number of phases from which on each query is answered; infinite for never."""
        inverse = np.array([reach.inverse_precision(part) for part in self._parts])
        sums = np.bincount(
            self._rows, self._values * inverse[self._columns], minlength=len(self._of)
        ).astype(np.float64)
        needs = np.full(self._n, math.inf)
        np.minimum.at(needs, np.array(self._of, dtype=np.intp), reach.windows(sums))
        return needs


def _own_part(sets: Iterable[tuple[int, ...]], n_sets: int) -> float:
    """The weight of the sets of attributes that were asked, against all sets of as many (James and Stein)."""
    seen = Counter(sets)
    n = seen.total()
    if n_sets == 1:
        return 1.0
    mean = n / n_sets
    chi = math.fsum((c - mean) ** 2 for c in seen.values()) / mean + (n_sets - len(seen)) * mean
    return max(0.0, 1.0 - (n_sets - 1) / chi) if chi and n > 1 else 0.0


_SIDES: Final = 5
"""The sides that share the probability of failing, as ``expected_queries.bounding`` counts them."""
