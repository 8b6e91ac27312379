"""How much a data set tells of one row, measured from outside: a lower bound on epsilon.

Many data sets are run through a worker with logs in memory and the noise of a release. Half of them hold
one row, and half hold another row in its place. What the worker publishes of each is made into one number, a
*score*. An event "the score reaches t", or "it does not", is chosen on a part of the runs. Its probabilities
``p`` with the one row and ``q`` with the other are bounded on the rest (Clopper and Pearson 1934). No promise
with an epsilon below ``ln((p - delta) / q)`` can be true.

The same is done with three broken copies, whose bounds must pass the promise. One draws *half the noise*. One
*forgets a charge*, so that lines never fill and more looks are taken than are paid for. One *draws again*: a
restart forgets the journal, and the same queries under the same ids get fresh noise.

Where a person is protected, all rows of one person in as many phases as the promise is about are blank on one
side. There are two more copies: one *counts every row* of a person, and one has *whole lines*, as if a person
were one row. Where values are found, there are two others: one forgets in the threshold that somebody has the
value (*tau - 1*), and in one *each look has all of delta*, and not its part.

Where the clock closes periods, rows come in *rounds*, and a round may follow from what ticks have published.
There are three more copies. In one, *ticks count every row* of a person. In one, *late rows count anew*,
though rows of the person have counted. One is *now and then exact*: all ticks of a period are without noise,
which only a row shows that waits for it.

Where persons can be erased, a sweep goes through all blocks before anything is asked. There are two more
copies: one has *free looks at changed blocks*, and one *chooses anew* which rows count. Where records say how
long somebody was away, in one *later rows are free*.

The promise is of two sorts. *life*: everything that is ever published of the data set. *answer*: one noisy
number or comparison, by the scale that the ledger publishes. It is audited where the promise for a whole life
covers a worst case that no run comes near, as in long segments of tests and in the papers' mechanisms.

    python tests/audit/audit.py [--runs 600] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from secrets import token_bytes
from typing import Any, Final, NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from stream_dp.core.budget.accountant import UNITS, Budget, epsilon_of, gaussian_rho
from stream_dp.core.budget.parameters import Privacy, Target, Unit
from stream_dp.core.kinds.correlated_vector.vector_law import ResponsePlan
from stream_dp.core.kinds.prefix_batch.batch_answerer import BatchLook
from stream_dp.core.kinds.prefix_batch.batch_law import PrefixPlan
from stream_dp.core.kinds.with_kinds import WithKinds
from stream_dp.core.queries.conditions import compile_share, compile_where
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Total, total_of
from stream_dp.core.randomness.noise_sources import MIN_SCALE, PooledNoise
from stream_dp.core.residual.keys.found_values import FoundValues
from stream_dp.core.residual.keys.key_levels import KeyLevel, least_jump
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.person_slots import Digests, Slots
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.slabs import WEIGHT
from stream_dp.core.rows.universe import Universe
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.tick_look import TickLook
from stream_dp.errors import InvalidDefinition, StoreUnavailable
from stream_dp.messages import Definition
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.intake.ownership import GROUP_SIZE
from stream_dp.pipeline.intake.records import Outgoing, Record
from stream_dp.pipeline.journal.newest import COMPACTED
from stream_dp.pipeline.kafka.topic_log import KeyedTopic
from stream_dp.pipeline.rows.own_values import BLOCK
from stream_dp.pipeline.rows.person_allowance import CountedInPhases
from stream_dp.pipeline.rows.sealed_blocks import SealedBlocks
from stream_dp.pipeline.rows.waiting.waiting_ticks import WaitingTicks
from stream_dp.pipeline.worker import Worker, WorkerRules, WorkerTopics
from stream_dp.profiles.builder import build, rows_of_a_phase
from tests.driven import drained, take_all
from tests.local_logs import LocalLog, LocalRows
from tests.noise import ScriptedNoise

Document: TypeAlias = dict[str, Any]
Floats: TypeAlias = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.99
_CHOOSING: Final = 0.3
"""Share of the runs on which the event is chosen."""

_FOR_GAUSSIANS: Final = 3.0
"""How many more runs show half of a Gaussian's noise: the promise is not as near to it as to a Laplace's."""

_TOGETHER: Final = 60
"""Data sets that one worker has of each side."""


# ---------------------------------------------------------------- the bound


@dataclass(frozen=True)
class Bound:
    """What the runs prove.

    Attributes:
        epsilon: The promise cannot be true with a smaller one; 0 where nothing is proved.
        runs: Data sets of each side on which the event was counted.
    """

    epsilon: float
    runs: int


def bounded(one: Floats, other: Floats, *, delta: float, confidence: float) -> Bound:
    """A lower bound on epsilon that holds with this confidence.

    Args:
        one: Scores of the runs with the one row, shape (runs,), in the order in which they were made.
        other: Those with the other row.
        delta: The promise's.
        confidence: That the bound is not above the true epsilon. Both probabilities share what is missing to
            1; the choice of the event costs nothing, for it is made on other runs.
    """
    split, each = round(_CHOOSING * len(one)), (1.0 - confidence) / 2.0
    best, found = -math.inf, 0.0
    for swapped in (False, True):
        for sign in (1.0, -1.0):
            pair = (sign * other, sign * one) if swapped else (sign * one, sign * other)
            first, second = pair
            thresholds = np.unique(np.concatenate([first[:split], second[:split]]))
            tried = _ratios(first[:split], second[:split], thresholds, delta, each)
            if tried.max() > best:
                best, threshold = tried.max(), thresholds[[tried.argmax()]]
                found = float(_ratios(first[split:], second[split:], threshold, delta, each)[0])
    return Bound(max(0.0, found), len(one) - split)


def _ratios(first: Floats, second: Floats, thresholds: Floats, delta: float, each: float) -> Floats:
    """``ln((p - delta) / q)`` of the events that a score reaches a threshold, p from below and q from above.

    Shape (n_thresholds,); minus infinity where nothing is known of p.
    """
    n = len(first)
    hits, misses = (n - np.searchsorted(np.sort(side), thresholds) for side in (first, second))
    low = np.where(hits > 0, beta.ppf(each, np.maximum(hits, 1), n - hits + 1), 0.0) - delta
    high = np.where(misses < n, beta.ppf(1.0 - each, misses + 1, np.maximum(n - misses, 1)), 1.0)
    known = low > 0.0
    return np.where(known, np.log(np.where(known, low, 1.0) / high), -np.inf)


# ---------------------------------------------------------------- the copies


class HalfNoise:
    """Noise of half the scale that was asked for, and charged."""

    def __init__(self) -> None:
        self._source = PooledNoise()

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._source.gaussian(max(MIN_SCALE, sigma / 2), size)

    def laplace(self, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._source.laplace(max(MIN_SCALE, scale / 2), size)

    def reserve(self, kind: Any, scale: Fraction, size: int) -> None:
        self._source.reserve(kind, max(MIN_SCALE, scale / 2), size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@contextlib.contextmanager
def _half() -> Iterator[None]:
    """Also where noise is no draw that is added: responses and histograms lose twice what is charged."""
    # Properties, of which mypy sees what they give.
    kept: Any = ResponsePlan.keeps
    rated: Any = PrefixPlan.rate
    keeps, rate = kept.func, rated.fget

    def twice(plan: ResponsePlan) -> int:
        return keeps(ResponsePlan(2 * plan.epsilon))

    with (
        patch.object(ResponsePlan, "keeps", property(twice)),
        patch.object(PrefixPlan, "rate", property(lambda plan: 2 * rate(plan))),
    ):
        yield


@contextlib.contextmanager
def _forgetful() -> Iterator[None]:
    """What looks cost is not charged, unless they open a phase."""
    take = PaidLooks.take

    def free(one: Any) -> Any:
        return replace(one, charges=())

    async def unpaid(self: PaidLooks, looks: Any, *who: Any, **more: Any) -> Any:
        return await take(self, list(map(free, looks)), *who, **more)

    with patch.object(PaidLooks, "take", unpaid):
        yield


def _counts_every_row() -> contextlib.AbstractContextManager[object]:
    """All rows that have a key count, however many of them are one person's."""

    def uncapped(slots: Slots, most: object) -> npt.NDArray[np.bool_]:
        del most
        return np.asarray(slots.digests.any(axis=1))

    return patch.object(Slots, "counted", uncapped)


def _whole_lines() -> contextlib.AbstractContextManager[object]:
    """Lines hold what one row may lose, whatever the rows and phases of a person."""
    return patch.object(Unit, "squares", property(lambda unit: 1))


def _later_rows_are_free() -> contextlib.AbstractContextManager[object]:
    """Lines leave nothing for records that say how long ago somebody was there."""
    return patch.object(Unit, "squares", property(lambda unit: unit.phases))


@contextlib.contextmanager
def _thresholds(broken: Callable[[KeyLevel, Privacy], int]) -> Iterator[None]:
    """Values are named from another noisy count on."""
    make = FoundValues.__init__

    def made(self: FoundValues, universe: Universe, budget: Budget, settings: Any) -> None:
        make(self, universe, budget, settings)
        self._levels = {
            index: tuple(replace(one, threshold=broken(one, budget.privacy)) for one in levels)
            for index, levels in self._levels.items()
        }

    with patch.object(FoundValues, "__init__", made):
        yield


def _one_less(level: KeyLevel, privacy: Privacy) -> int:
    """As if the noise alone had to reach the threshold, without the unit that has the value."""
    del privacy
    return level.threshold - 1


def _all_of_delta(level: KeyLevel, privacy: Privacy) -> int:
    """As if it were the only look for values that the promise is about."""
    return 1 + least_jump(level.sigma, Fraction(privacy.delta / 2.0))


def _ticks_count_every_row() -> contextlib.AbstractContextManager[object]:
    """All rows that have a key count in ticks; in phases as many as may."""

    def uncapped(ticks: WaitingTicks, number: int, digests: Digests) -> npt.NDArray[np.uint8]:
        del ticks, number
        return np.asarray(digests.any(axis=1), np.uint8)

    return patch.object(WaitingTicks, "_counted", uncapped)


def _late_rows_count_anew() -> contextlib.AbstractContextManager[object]:
    """As many late rows of a person count as on time, whatever counted on time."""

    async def anew(
        counted: CountedInPhases, phase: int, whose: Slots, unit: Unit
    ) -> npt.NDArray[np.bool_]:
        del counted, phase
        return whose.counted(unit.rows_per_phase)

    return patch.object(CountedInPhases, "late", anew)


@contextlib.contextmanager
def _free_looks_at_changed_blocks() -> Iterator[None]:
    """A look at a block that a sweep went through is not charged."""
    take = PaidLooks.take

    async def unpaid(self: PaidLooks, looks: Any, *who: Any, **more: Any) -> Any:
        mechanism: Any = self._engine.mechanism
        changed = mechanism.state.changed
        free = [
            replace(look, charges=tuple(one for one in look.charges if one.block not in changed))
            for look in looks
        ]
        return await take(self, free, *who, **more)

    with patch.object(PaidLooks, "take", unpaid):
        yield


@contextlib.contextmanager
def _chooses_anew() -> Iterator[None]:
    """A sweep chooses among the rows of each person which of them count, as if they were just sealed."""
    change = SealedBlocks.change

    async def anew(
        self: SealedBlocks, index: int, at: int, changes: RowChanges, after: int
    ) -> None:
        await change(self, index, at, changes, after)
        found, unit = await self.owners.slots(index + 1, at), self._engine.unit
        slab = await self._values.slab(f"{BLOCK}{index + 1} {at}")
        assert found is not None
        assert slab is not None
        assert unit is not None
        counts = found[0].counted(unit.rows_per_phase).astype(np.uint8)
        await self._keep(
            BLOCK, index + 1, at, [replace(slab, columns={**slab.columns, WEIGHT: counts})]
        )

    with patch.object(SealedBlocks, "change", anew):
        yield


_EXACT: Final = 1 / 25
"""Probability that a period has no noise, in a copy; it is below delta."""


@contextlib.contextmanager
def _exact_periods() -> Iterator[None]:
    """Now and then no tick of a period has noise, which is drawn before its rows come (Theorem 35)."""
    take, draw = TickLook.take, np.random.default_rng()
    exact: dict[tuple[int, int], bool] = defaultdict(lambda: draw.random() < _EXACT)

    def taken(look: TickLook, noise: Any, data: Any) -> Any:
        return take(look, ScriptedNoise() if exact[id(data), look.period] else noise, data)

    with patch.object(TickLook, "take", taken):
        yield


@dataclass(frozen=True)
class Copy:
    """A worker, whole or broken.

    Attributes:
        broken: How it is made of a whole one.
        deliveries: How often all records are delivered; before each the worker starts again.
        keeps_journal: Whether the journal lives on when the worker starts again.
        all_queries: Whether all queries are asked, or those only of which one answer is made.
        share: Of the runs asked for; less where there is more to be seen.
    """

    noise: Callable[[], Any] = PooledNoise
    broken: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    deliveries: int = 1
    keeps_journal: bool = True
    all_queries: bool = True
    share: float = 1.0


WHOLE: Final = "as it is"
COPIES: Final = {
    WHOLE: Copy(deliveries=2, share=0.3),
    "half the noise": Copy(noise=HalfNoise, broken=_half, all_queries=False),
    "forgets a charge": Copy(broken=_forgetful, share=0.6),
    "draws again": Copy(deliveries=12, keeps_journal=False, all_queries=False, share=0.3),
}
OF_PERSONS: Final = {
    "counts every row": Copy(broken=_counts_every_row, all_queries=False, share=0.3),
    "whole lines": Copy(broken=_whole_lines),
}
"""What can go wrong only where persons are protected."""

OF_FOUND: Final = {
    "tau - 1": Copy(broken=partial(_thresholds, _one_less), share=0.7),
    "each look has all of delta": Copy(broken=partial(_thresholds, _all_of_delta)),
}
"""What can go wrong only where values are found."""

OF_CLOCKS: Final = {
    "ticks count every row": Copy(broken=_ticks_count_every_row, all_queries=False, share=0.3),
    "late rows count anew": Copy(broken=_late_rows_count_anew, all_queries=False),
    "now and then exact": Copy(broken=_exact_periods, share=0.3),
}
"""What can go wrong only where the clock closes periods."""

OF_SWEEPS: Final = {
    "free looks at changed blocks": Copy(broken=_free_looks_at_changed_blocks, share=0.6),
    "chooses anew": Copy(broken=_chooses_anew, all_queries=False, share=0.6),
}
"""What can go wrong only where persons can be erased."""

OF_RETURNS: Final = {"later rows are free": Copy(broken=_later_rows_are_free)}
"""What can go wrong only where records say how long somebody was away."""

EVERY_COPY: Final = COPIES | OF_PERSONS | OF_FOUND | OF_CLOCKS | OF_SWEEPS | OF_RETURNS


# ---------------------------------------------------------------- a case


class Round(NamedTuple):
    """What comes to a data set at a time, on both sides.

    Attributes:
        at_ms: Kafka's time of the records, in milliseconds since 1970; -1 for none.
        comes: The batches, by the ticks that were published before. One without rows has those of the side.
    """

    at_ms: int
    comes: Callable[[Mapping[str, Document]], Sequence[Document]]


@dataclass(frozen=True)
class Case:
    """A definition, two data sets that differ in a row, and what is asked.

    Attributes:
        what: Of what the promise speaks: "life", or what of it is audited.
        definition: Without version and name.
        sides: The rows of the two data sets, as the form of a batch.
        queries: Asked in this order.
        score: Of all replies to one delivery, by query id, and larger for the second side or always smaller.
            Where nothing is asked, of the attributes in the catalog, by name. Of ticks too, see ``_tick``.
        claim: epsilon; the delta is in the definition unless ``delta`` says another.
        before: Batches of the phases before, the same on both sides.
        enough: How many of the first queries make one answer.
        replaced: How many rows differ. More than one where one row is lost in what N runs can show: a loss of
            k rows is k times that of one, at most.
        copies: Which are run; the others would release nothing more.
        runs: How many more runs than others it needs.
        phases: How many phases open with the rows of the side.
        rounds: What comes one after the other, in place of a batch a phase.
    """

    what: str
    definition: Document
    sides: tuple[Document, Document]
    queries: tuple[Document, ...]
    score: Score
    claim: float
    delta: float
    before: tuple[Document, ...] = ()
    enough: int = 1
    replaced: int = 1
    copies: tuple[str, ...] = tuple(COPIES)
    runs: float = 1.0
    phases: int = 1
    rounds: tuple[Round, ...] = ()


def _number(name: str, *edges: int) -> Document:
    return {"name": name, "type": "number", "edges": list(edges or (1,)), "integer": True}


N_ATTRIBUTES: Final = 6
NAMES: Final = tuple(f"a{i}" for i in range(N_ATTRIBUTES))
ONES, ZEROS = dict.fromkeys(NAMES, 1), dict.fromkeys(NAMES, 0)


def _definition(epsilon: float, delta: float, **more: Any) -> Document:
    return {
        "attributes": [_number(name) for name in NAMES],
        "privacy": {"epsilon": epsilon, "delta": delta},
        "accuracy": {"error": 0.4, "failure_probability": 0.5},
        "phase": {"min_rows": 20},
        "on_exhausted": "refuse",
    } | more


def _sides(ones: int, zeros: int, replaced: int = 1) -> tuple[Document, Document]:
    """So many rows of ones and of zeros, and the row itself, once zeros and once ones."""
    return (
        {"cells": [ONES | {"count": ones}, ZEROS | {"count": zeros + replaced}]},
        {"cells": [ONES | {"count": ones + replaced}, ZEROS | {"count": zeros}]},
    )


def _is_one(name: str) -> Document:
    return {"attribute": name, "ge": 1}


COUNTS: Final = tuple({"where": _is_one(name)} for name in NAMES)


FRESH: Final = tuple({**count, "fresh": True} for count in COUNTS)


Score: TypeAlias = Callable[[Mapping[str, Document]], float]


def _sum_of(*fields: str) -> Score:
    """The sum of some fields of all replies that were measured."""

    def score(replies: Mapping[str, Document]) -> float:
        return sum(
            float(reply[name])
            for reply in replies.values()
            if reply.get("path") in {"measured", "certified"}
            for name in fields
        )

    return score


def _difference(replies: Mapping[str, Document]) -> float:
    """By how much the first count is larger than the second one."""
    return float(replies["q0"]["count"]) - float(replies["q1"]["count"])


_of_counts: Final = _sum_of("count")

SUMS: Final[tuple[dict[str, Any], ...]] = tuple(
    {"kind": "sum", "attribute": name, "where": _is_one(other)}
    for name, other in zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)
)


_of_sums: Final = _sum_of("total", "count")
"""A row of ones is in both, a row of zeros in neither: with their noise this tells the two apart best."""

SHARES: Final[tuple[dict[str, Any], ...]] = tuple(
    {"kind": "share", "share_of": _is_one(name), "where": _is_one(other)}
    for name, other in zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)
)


_of_shares: Final = _sum_of("both", "count")
"""All counts of both conditions and of the one, which tells the rows apart as for sums."""


def _of_sides(replies: Mapping[str, Document]) -> float:
    """How many comparisons did not say "below"."""
    return sum(reply.get("side", "below") != "below" for reply in replies.values())


def _of_found(replies: Mapping[str, Document]) -> float:
    """How many stable answers were given."""
    return sum("found" in reply for reply in replies.values())


def _read(definition: Document) -> Definition:
    return Definition.read({"version": 1, "dataset": "d", **definition})


def _least(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """About the least number that fits, of which all larger ones do."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _with_error(definition: Document, error: float) -> Document:
    return definition | {"accuracy": {"error": error, "failure_probability": 0.5}}


def _is_paid(mechanism: Any, query: LinearQuery) -> bool:
    """Whether a query is answered by a look that lines can pay for."""
    found = mechanism.quote(query)
    return found.outcome is None and bool(found.charges)


def _full(
    definition: Document,
    n_rows: int,
    first: Callable[[Universe], LinearQuery] | None = None,
) -> Document:
    """The same with an accuracy for which the first query costs as much of a line as may be."""

    def fits(error: float) -> bool:
        universe, mechanism = build(_read(_with_error(definition, error)))
        mechanism.open_phase(n_rows)
        return _is_paid(mechanism, (first or _first_query)(universe))

    return _with_error(definition, _least(0.001, 0.99, fits))


def _first_query(universe: Universe) -> LinearQuery:
    """The first of ``COUNTS``, about the first phase."""
    return LinearQuery(compile_where(universe, COUNTS[0]["where"]), range(1))


def _first_fresh(universe: Universe) -> LinearQuery:
    """The same, fresh."""
    return replace(_first_query(universe), fresh=True)


def _first_sum(universe: Universe) -> LinearQuery:
    """The first of ``SUMS``, about the first phase."""
    where = compile_where(universe, SUMS[0]["where"])
    (number, *_) = universe.attributes
    assert isinstance(number, Number), "numbers are added up"
    return LinearQuery(where, range(1), (), Total(0, number.values))


def _first_share(universe: Universe) -> LinearQuery:
    """The first of ``SHARES``, about the first phase."""
    part, where = compile_share(universe, SHARES[0]["share_of"], SHARES[0]["where"])
    return LinearQuery(where, range(1), (), part)


EPSILON: Final = 1.25
DELTA: Final = 0.045
"""Large, as 20 rows allow: the noise of a line that holds (epsilon, delta) then shows in fewer runs."""

PURE: Final = {"privacy": {"epsilon": EPSILON, "delta": 0}}


def _counts(profile: Document, **more: Any) -> Case:
    """A profile whose line is full after the first count."""
    definition = _full(_definition(EPSILON, DELTA, mechanism=profile, **more), 20)
    delta = definition["privacy"]["delta"]
    case = _of_a_line(definition, COUNTS, _of_counts)
    return case if delta else replace(case, delta=delta, runs=1.0)


def _pair(side: Callable[[int], Document]) -> tuple[Document, Document]:
    """Two sides, made of how many rows were replaced."""
    return side(0), side(1)


def _of_a_line(
    definition: Document,
    queries: Sequence[Document],
    score: Score,
    sides: tuple[Document, Document] | None = None,
    **more: Any,
) -> Case:
    """Queries about 20 rows or so, of which one is replaced, and whose Gaussian noise takes all of a line."""
    sides = _sides(9, 10) if sides is None else sides
    about = {"claim": EPSILON, "delta": DELTA, "runs": _FOR_GAUSSIANS} | more
    return Case("life", definition, sides, tuple(queries), score, **about)


NO_BASE: Final = {"base_share": 0.0, "pacing": False}


def _fresh() -> Case:
    """Fresh counts, of which the first one fills a line. The same count is asked again and again."""
    definition = _full(_definition(EPSILON, DELTA, mechanism=NO_BASE), 20, _first_fresh)
    return _of_a_line(definition, FRESH[:1] * N_ATTRIBUTES, _of_counts)


def _sums() -> Case:
    """Sums with their counts, of which the first one fills a line."""
    definition = _full(_definition(EPSILON, DELTA, mechanism=NO_BASE), 20, _first_sum)
    return _of_a_line(definition, SUMS, _of_sums)


def _first_value_sum(universe: Universe) -> LinearQuery:
    """The sum of the values of the first attribute, about the first phase."""
    (number, *_) = universe.attributes
    assert isinstance(number, Number), "numbers are added up"
    return LinearQuery(EVERYTHING, range(1), (), total_of(0, number))


def _values() -> Case:
    """Sums of kept values, of which the first one fills a line: the row goes from one end to the other.

    All rows are in one bin, so nothing but a sum of values can tell the two sides apart.
    """
    ends = {"unit": 1, "low": 0, "high": 8}
    attributes = [_number(name, 100) | {"measure": ends} for name in NAMES]
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, attributes=attributes)
    definition = _full(definition, 20, _first_value_sum)
    low, high = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 8)
    sides = _pair(lambda one: {"cells": [high | {"count": 9 + one}, low | {"count": 11 - one}]})
    queries = [{"kind": "sum", "attribute": name} for name in NAMES]
    return _of_a_line(definition, queries, _sum_of("total"), sides)


def _shares() -> Case:
    """Shares, of which the first one fills a line."""
    definition = _full(_definition(EPSILON, DELTA, mechanism=NO_BASE), 20, _first_share)
    return _of_a_line(definition, SHARES, _of_shares)


def _aimed(queries: tuple[Document, ...], score: Score) -> Case:
    """Queries that say nothing of their error: a first look, and the rest of a line for one that aims."""
    accuracy = {"aim": 0.1, "rough": 0.8, "failure_probability": 0.5}
    guards = dict.fromkeys(("easy_share", "query_share", "day_share"), 1.0)
    definition = _definition(EPSILON, DELTA, accuracy=accuracy | guards)
    return _of_a_line(definition, queries, score)


def _correlations() -> Case:
    """Looks at products, of which the first one takes what openings left of a line.

    Columns are halves of ones in any order. Of the row that differs all attributes are 1, or every other one.
    """
    n_rows, opened, epsilon = 200, Fraction(62, 100), 4.0
    pairs = ((0, 1), (2, 3), (4, 5), (0, 3), (2, 5), (4, 1))
    draw = np.random.default_rng(1)
    bits = np.array([draw.permutation(np.arange(n_rows) % 2) for _ in NAMES])
    bits[:, -1] = 1
    others = np.corrcoef(bits[:, :-1])
    definition = _definition(
        epsilon,
        1.0 / n_rows,
        mechanism={"base_share": float(opened), "pacing": False},
        phase={"min_rows": n_rows},
    )
    columns = [dict(zip(NAMES, map(list, bits.tolist()), strict=True)) for _ in range(2)]
    for name in NAMES[1::2]:
        columns[0][name][-1] = 0

    def score(replies: Mapping[str, Document]) -> float:
        """The sum of all correlations that were measured, less those without the row."""
        return sum(
            float(replies[name]["value"]) - float(others[pair])
            for name, pair in zip(sorted(replies), pairs, strict=False)
            if replies[name].get("path") == "measured"
        )

    queries = tuple(
        {"kind": "correlation", "attribute": NAMES[one], "other": NAMES[other]}
        | {"error": {"value": 0.029}}
        for one, other in pairs
    )
    rho = Budget.of(Privacy(epsilon, 1.0 / n_rows)).rho * (1 - opened)
    return Case(
        "answer",
        definition,
        ({"columns": columns[0]}, {"columns": columns[1]}),
        queries,
        score,
        epsilon_of(rho, DELTA),
        DELTA,
        runs=_FOR_GAUSSIANS,
    )


def _levels() -> Case:
    """A table of groups of neighbouring cells, which is all that is measured, and takes a whole line."""
    name = NAMES[0]
    queries = (
        {"where": {"attribute": name, "ge": 21}},
        {"where": {"attribute": name, "lt": 6}},
    )
    tiles = [query | {"window": {"last_phases": 1}} for query in queries]
    definition = _definition(EPSILON, DELTA, mechanism={"workload": tiles})
    definition |= {"attributes": [_number(name, *range(1, 26))]}

    def opened(error: float) -> list[Any]:
        _, mechanism = build(_read(_with_error(definition, error)))
        return list(mechanism.open_phase(20))

    # About the smallest error that a line can pay for in advance. Scales are rounded to a grid.
    error = 1.05 * _least(0.001, 0.99, lambda error: bool(opened(error)))
    (look,) = opened(error)
    assert [part.groups for part in look.parts] == [(5,)], "cells are counted in groups"
    return _of_a_line(
        _with_error(definition, error),
        queries,
        _difference,
        _one_of(name, 25),
        enough=2,
        copies=OF_OPENINGS,
    )


OF_OPENINGS: Final = (WHOLE, "half the noise", "draws again")
"""The copies of what is measured, or paid for, as a phase opens."""


def _one_of(name: str, value: int) -> tuple[Document, Document]:
    """Rows of a value and rows of 0, of which one is replaced."""
    return _pair(
        lambda one: {"cells": [{name: value, "count": 9 + one}, {name: 0, "count": 11 - one}]}
    )


def _last_of(
    definition: Document,
    queries: Sequence[Document],
    n_rows: int,
    phases: int = 1,
    n_late: int = 0,
) -> list[Document]:
    """The same queries, with an error in rows for which the first one takes what is left of all lines.

    Args:
        definition: The definition.
        queries: Counts that rest on no look before.
        n_rows: The rows of each phase.
        phases: The number of phases.
        n_late: The late rows of the first one.
    """
    first = _first_fresh if queries[0].get("fresh") else _first_query

    def fits(rows: float) -> bool:
        universe, mechanism = build(_read(definition))
        if mechanism.running is not None:
            mechanism.running.begin(0, mechanism.running.most)
            mechanism.running.sealed(1, whole=False)
        looks = [look for _ in range(phases) for look in mechanism.open_phase(n_rows)]
        if n_late:
            mechanism.complete(0, n_late)
            looks *= 2  # they are taken again
        for look in looks:
            mechanism.charged(look.charges)
        query = replace(first(universe), window=range(phases), target=Target(value=rows))
        return _is_paid(mechanism, query)

    error = _least(0.1, float(n_rows), fits)
    return [{**query, "error": {"value": error}} for query in queries]


def _sides_of_person(n_others: int, n_own: int) -> tuple[Document, Document]:
    """Rows of others, of which half are ones, and rows of ones, once of nobody and once of one person."""
    ones = [*(i % 2 for i in range(n_others)), *[1] * n_own]

    def side(key: int) -> Document:
        who = [*range(n_others), *["u" if key else None] * n_own]
        return {"columns": dict.fromkeys(NAMES, ones) | {"who": who}}

    return _pair(side)


def _person() -> Case:
    """A person who has more rows than count, in each of the phases that the promise is about.

    Counts have an error in rows, of which the first one fills all lines, whatever was found of the rows that
    count.
    """
    n_others, n_own, phases = 40, 8, 2
    unit = {"key": "who", "rows_per_phase": n_own // 4, "phases": phases}
    privacy = {"epsilon": EPSILON, "delta": DELTA, "unit": unit}
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, privacy=privacy)
    return _of_a_line(
        definition,
        _last_of(definition, (*COUNTS, *FRESH), n_others + n_own, phases),
        _of_counts,
        _sides_of_person(n_others, n_own),
        replaced=phases * n_own,
        copies=(*COPIES, *OF_PERSONS),
        phases=phases,
    )


_OTHERS: Final = 0.5
"""The weight of a phase in which no row of a person may count any more."""


def _erased_person() -> Case:
    """A person who has rows in eight phases, and has used up all they may for life in the first one.

    Two others are erased. Then a count of each phase fills its line, and the first one comes again and again.
    """
    n_others, n_own, phases = 40, 8, 8
    unit = {"key": "who", "rows_per_phase": n_own // 4, "phases": 1, "lifetime": True}
    privacy = {"epsilon": EPSILON, "delta": DELTA, "unit": unit}
    erasure = {"erasure": {"within": "24 hours"}}
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, privacy=privacy, **erasure)
    places = [*range(1, phases + 1), *[1] * 2 * N_ATTRIBUTES]
    queries = [{**FRESH[0], "window": {"phases": [place, place]}} for place in places]
    rows = [{"batch_id": f"b{phase}"} for phase in range(phases)]
    gone = {"batch_id": "gone", "erase": [0, 1, None]}

    def score(replies: Mapping[str, Document]) -> float:
        """All counts, with less weight where the person is not to count."""
        return sum(
            (1.0 if place == 1 else _OTHERS) * float(replies[f"q{at}"].get("count", 0.0))
            for at, place in enumerate(places)
            if f"q{at}" in replies
        )

    return _of_a_line(
        definition,
        _last_of(definition, queries, n_others + n_own),
        score,
        _sides_of_person(n_others, n_own),
        replaced=phases * n_own,
        enough=phases,
        copies=(WHOLE, *OF_SWEEPS),
        rounds=(
            Round(-1, lambda _: rows),
            Round(-1, lambda _: [gone, {"clock": True, "sweep": True}]),
        ),
    )


_RETURNS: Final = 5
"""How often the person comes again."""

_AGAIN: Final = 6
"""How often all is asked again, in case that lines are not full."""


def _returning_person() -> Case:
    """A person whose rows in the first phase are blank on one side, and who comes again in later ones.

    In the first phase all booleans are true, and in each later one another one. So a record of each of these
    says how long ago it was true before, and is in one cell or in another.
    """
    n_others = 40
    unit = {"key": "who", "rows_per_phase": 1, "phases": 1}
    privacy = {"epsilon": EPSILON, "delta": DELTA, "unit": unit}
    names = [f"b{place}" for place in range(_RETURNS)]
    since = {"type": "number", "fold": "since", "phases": _RETURNS + 1, "missing": True}
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, privacy=privacy) | {
        "attributes": [
            _number(NAMES[0]),
            *({"name": name, "type": "boolean", "fold": "any"} for name in names),
            *({"name": f"since {name}", **since, "of": name} for name in names),
        ],
        "erasure": {"within": "1 day"},
    }

    def batch(batch_id: str, own: object, *true: str, first: bool = False) -> Document:
        """Rows of others, half of whom come again as the person does, or as one who was not there."""
        others = [who < n_others // 2 or not first for who in range(n_others)]
        said: Document = {
            name: [each and name in true for each in (*others, True)] for name in names
        }
        said |= {NAMES[0]: [*(who % 2 for who in range(n_others)), 1]}
        return {"batch_id": batch_id, "columns": said | {"who": [*range(n_others), own]}}

    tables = [{"kind": "table", "group_by": [f"since {name}"], "fresh": True} for name in names]
    asked = [
        {**query, "window": {"phases": [place, place]}}
        for place, query in enumerate([FRESH[0], *tables], 1)
    ]

    def score(replies: Mapping[str, Document]) -> float:
        """The rows of the first phase and those that follow it, less those that follow none."""
        found = 0.0
        for name, reply in replies.items():
            place = int(name[1:]) % len(asked) - 1
            if reply["status"] == "answered":
                counts = [reply["count"], 0] if place < 0 else reply["table"]["counts"]
                found += float(counts[max(0, place)]) - float(counts[_RETURNS if place >= 0 else 1])
        return found

    later = [batch(f"b{place}", "u", name) for place, name in enumerate(names)]
    return _of_a_line(
        definition,
        _last_of(definition, asked * _AGAIN, n_others + 1),
        score,
        _pair(lambda own: batch("first", "u" if own else None, *names, first=True)),
        enough=len(asked),
        copies=(WHOLE, *OF_RETURNS),
        rounds=(Round(-1, lambda _: [{"batch_id": "first"}]), Round(-1, lambda _: later)),
    )


ALONE: Final = "alone"
"""How a value begins that nobody else says."""

_OF_ALONE: Final = 0.1
"""A delta so large that such a value is named now and then."""


def _finds(shares: Mapping[str, float], epsilon: float, delta: float, **privacy: Any) -> Document:
    """Attributes that take these shares of lines to find values. Nothing else is measured."""
    return _definition(epsilon, delta, mechanism=NO_BASE, phase={"min_rows": 5}) | {
        "attributes": [
            {"name": name, "type": "category", "find": {"most": 20, "windows": [1], "share": share}}
            for name, share in shares.items()
        ],
        "privacy": {"epsilon": epsilon, "delta": delta} | privacy,
    }


def _n_alone(found: Mapping[str, Document]) -> float:
    """How many values were named that nobody else says."""
    return sum(value.startswith(ALONE) for one in found.values() for value in one["values"])


def _found_values() -> Case:
    """A row that says in each attribute what nobody else says, or nothing.

    All looks for values may fail with half of delta together.
    """
    definition = _finds(dict.fromkeys(NAMES, 0.08), EPSILON, _OF_ALONE)
    said = [[*["often"] * 19, own] for own in (None, ALONE)]
    sides = _pair(lambda one: {"columns": dict.fromkeys(NAMES, said[one])})
    copies = (WHOLE, "draws again", "each look has all of delta")
    about = {"delta": _OF_ALONE, "copies": copies, "runs": 2.0}
    return _of_a_line(definition, (), _n_alone, sides, **about)


def _found_values_of_person() -> Case:
    """A person of whom each row says what nobody else says. They have more rows than count."""
    n_others, n_own, phases = 19, 400, 2
    unit = {"key": "who", "rows_per_phase": n_own // 10, "phases": phases}
    definition = _finds({NAMES[0]: 0.5}, EPSILON, _OF_ALONE, unit=unit)
    said = [*["often"] * n_others, *(f"{ALONE} {n}" for n in range(n_own))]
    who = [[*range(n_others), *[own] * n_own] for own in (None, "u")]
    return _of_a_line(
        definition,
        (),
        _n_alone,
        _pair(lambda one: {"columns": {NAMES[0]: said, "who": who[one]}}),
        delta=_OF_ALONE,
        replaced=phases * n_own,
        copies=(WHOLE, "draws again", "each look has all of delta", "counts every row"),
        phases=phases,
        runs=2.0,
    )


def _naming(epsilon: float, delta: float, of_counts: float, *, person: bool = False) -> Case:
    """Looks at two attributes, at scales of about 0.7 and 1.4 rows, where a threshold that is 1 lower shows.

    Of the first a row says what nobody else says, or nothing. That this is named may happen as often as the
    ledger says of the threshold. Of the second it says y, and on the other side x; a person's is blank there.
    Their counts are near the threshold, and lose what follows from the scale in the ledger.

    Args:
        epsilon: Of the definition, which decides the scales.
        delta: The same.
        of_counts: The delta at which the claim has the epsilon of the second scale.
        person: Whether the row is a person's.
    """
    n_others, (alone, near) = 20, NAMES[:2]
    unit = {"unit": {"key": "who", "rows_per_phase": 1, "phases": 1}} if person else {}
    definition = _finds({alone: 0.4, near: 0.1}, epsilon, delta, **unit)
    _, mechanism = build(_read(definition))
    looks: list[Any] = [look.description for look in mechanism.open_phase(n_others + 1)]
    first, second = (look["levels"][0] for look in looks if look["kind"] == "keys")
    n_each = second["threshold"] - (2 if person else 1)
    others = [*["y"] * n_each, *[None if person else "x"] * n_each]
    others += [None] * (n_others - len(others))

    def side(one: int) -> Document:
        columns = {
            alone: [*[None] * n_others, ALONE if one else None],
            near: [*others, "y" if one else "x"],
        }
        who = {"who": [*range(n_others), "u" if one else None]}
        return {"columns": columns | (who if person else {})}

    def score(found: Mapping[str, Document]) -> float:
        """Above 1 if the first value was named; else whether y was, and x was not."""
        values = found[near]["values"]
        return 3 * _n_alone(found) + ("y" in values) - ("x" in values)

    rho = Fraction(1, 2 if person else 1) / Fraction(second["sigma"]) ** 2
    return Case(
        "answer",
        definition,
        _pair(side),
        (),
        score,
        epsilon_of(rho, of_counts),
        of_counts + float(Fraction(first["failure"])),
        copies=(WHOLE, "half the noise", "draws again", "tau - 1"),
        runs=_FOR_GAUSSIANS,
    )


DAILY: Final = {"every": "1 day", "min_rows": 20, "close": {"after": "2 hours"}}
_MIDNIGHT: Final = 1_793_491_200_000
"""When the first of November 2026 begins, in milliseconds since 1970."""


def _round(hours: float, day: int = 1, rows: Document | None = None) -> Round:
    """At so many hours after the first midnight, rows about a day come; those of the side if left out."""
    batch = {"batch_id": f"b{hours}", "time": f"2026-11-{day:02}", **(rows or {})}
    return Round(_MIDNIGHT + round(hours * 3_600_000), lambda _: [batch])


def _clock(hours: float) -> Round:
    """The clock is read."""
    return _round(hours)._replace(comes=lambda _: [{"clock": True}])


def _tick(told: Mapping[str, Document], day: int, tick: int) -> Document:
    """What was published of a tick: a table of the rows with a 1."""
    tiles: Sequence[Document] = told[f"2026-11-{day:02} {tick}"]["tiles"]
    return tiles[0]


def _with_totals(definition: Document, every: str) -> tuple[Document, RunningPlan]:
    """The same with running totals that take as much of a line as they may, and their plan."""
    tiles = [{"where": _is_one(NAMES[0])}]

    def totals(rows: float) -> Document:
        return definition | {"running": {"every": every, "within_rows": rows, "tiles": tiles}}

    def fits(rows: float) -> bool:
        try:
            build(_read(totals(rows)))
        except InvalidDefinition:
            return False
        return True

    found = totals(_least(0.1, 100.0, fits))
    running = build(_read(found))[1].running
    assert running is not None, "the definition asks for it"
    return found, running.most


OF_ROUNDS: Final = (WHOLE, "half the noise", "forgets a charge")
"""The copies of what takes some rounds, which would take long to be drawn again."""


def _of_ticks(plan: RunningPlan, tick: int) -> Score:
    """What all ticks of the first day say of a row that came in one of them, and what counts say.

    A tick has published the counts of all ticks with the weights of its row of the factor, and noise. Each
    part weighs as its share of the line.
    """
    rows = [plan.factor.row(one) for one in range(1, plan.factor.ticks + 1)]
    share = plan.units / UNITS

    def score(told: Mapping[str, Document]) -> float:
        came = [float(_tick(told, 1, one)["last_counts"][0]) for one in range(1, len(rows) + 1)]
        of_row = sum(row[tick - 1] * (row @ came[: len(row)]) for row in rows[tick - 1 :])
        found = share * float(of_row) / plan.factor.column_square
        return found + (1.0 - share) * _of_counts(told)

    return score


def _running_totals() -> Case:
    """Four ticks take as much of a line as they may, and then a count takes the rest.

    The row comes in the second tick.
    """
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, phase=DAILY)
    definition, plan = _with_totals(definition, "6 hours")
    sides = _sides(9, 10)
    return _of_a_line(
        definition,
        _last_of(definition, (*FRESH, *FRESH), 40),
        _of_ticks(plan, 2),
        sides,
        copies=OF_ROUNDS,
        rounds=(_round(1, rows=sides[0]), _round(7), _clock(26)),
    )


def _running_totals_of_person() -> Case:
    """A person has rows in two ticks, of which those that came first count, and others in the phase."""
    n_others, n_own, unit = 40, 8, {"key": "who", "rows_per_phase": 2, "phases": 1}
    privacy = {"epsilon": EPSILON, "delta": DELTA, "unit": unit}
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, phase=DAILY, privacy=privacy)
    definition, plan = _with_totals(definition, "6 hours")
    return _of_a_line(
        definition,
        _last_of(definition, FRESH, 2 * (n_others + n_own)),
        _of_ticks(plan, 1),
        _sides_of_person(n_others, n_own),
        replaced=2 * n_own,
        copies=(WHOLE, "half the noise", "ticks count every row"),
        rounds=(_round(1), _round(7), _clock(26)),
    )


LATE: Final = {**DAILY, "late": {"within": "1 day"}}


def _late_rows() -> Case:
    """A row comes after its phase was measured. Then that is measured again, and counts fill the line."""
    tile = COUNTS[0] | {"window": {"last_phases": 1}}
    mechanism = {"base_share": 0.05, "pacing": False, "workload": [tile]}
    definition = _definition(EPSILON, DELTA, mechanism=mechanism, phase=LATE)
    sides = _sides(9, 10)
    return _of_a_line(
        definition,
        _last_of(definition, FRESH, 20, n_late=20),
        _of_counts,
        sides,
        copies=OF_ROUNDS,
        rounds=(_round(1, rows=sides[0]), _round(27), _clock(49)),
    )


def _late_rows_of_person() -> Case:
    """A person has one row less than count on time, and more late ones, of which one counts."""
    n_others, n_own = 40, 9
    unit = {"key": "who", "rows_per_phase": n_own + 1, "phases": 1}
    privacy = {"epsilon": EPSILON, "delta": DELTA, "unit": unit}
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, phase=LATE, privacy=privacy)
    n_rows = n_others + n_own
    return _of_a_line(
        definition,
        _last_of(definition, FRESH, n_rows, n_late=2 * n_rows),
        _of_counts,
        _sides_of_person(n_others, n_own),
        replaced=3 * n_own,
        copies=(WHOLE, "half the noise", "late rows count anew"),
        runs=4.0,
        rounds=(_round(1), _round(27), _round(28), _clock(49)),
    )


def reacting(days: int = 8) -> Case:
    """The row comes as soon as the first tick of a day seems to have no noise, or on the last day.

    Then it is in the second tick alone, whose number loses all that the ticks of a day may lose.
    """
    definition = _definition(EPSILON, DELTA, mechanism=NO_BASE, phase=DAILY)
    definition, plan = _with_totals(definition, "12 hours")
    sides = _sides(9, 10)

    def count(told: Mapping[str, Document], day: int, tick: int) -> float:
        return float(_tick(told, day, tick)["last_counts"][0])

    def chosen(told: Mapping[str, Document], today: int) -> int:
        """The day on which the row comes; 0 for one to come."""
        seen = (day for day in range(1, today + 1) if abs(count(told, day, 1) - 9) < 0.1)
        return next(seen, today if today == days else 0)

    def reacts(day: int) -> Round:
        one = _round(24 * day - 11, day)
        return one._replace(comes=lambda told: one.comes(told) if chosen(told, day) == day else ())

    def score(told: Mapping[str, Document]) -> float:
        """The count of the second tick, and more if it is just what there is with the row."""
        found = count(told, chosen(told, days), 2)
        return found + 100 * (found == 10)

    rounds = [
        one
        for day in range(1, days + 1)
        for one in (_round(24 * day - 23, day, sides[0]), _clock(24 * day - 12), reacts(day))
    ]
    return Case(
        "answer",
        definition,
        sides,
        (),
        score,
        epsilon_of(plan.rho, DELTA),
        DELTA,
        copies=(WHOLE, "now and then exact"),
        runs=_FOR_GAUSSIANS,
        rounds=(*rounds, _clock(24 * days + 2)),
    )


def _tested(profile: Document, epsilon: float, delta: float) -> Case:
    """A profile that tests a prediction before it counts, about counts for which every test fails.

    A line is full after the first test and count. Of its loss the count's is a part, and what a test loses is
    far less than what a segment of them may lose: so the promise is that of the count.
    """
    definition = _definition(epsilon, delta, mechanism=profile)
    definition = _with_error(definition, 0.2)
    if profile["profile"] != "gated":  # whose scales do not follow from its accuracy
        definition = _full(definition, 200)
    universe, mechanism = build(_read(definition))
    mechanism.open_phase(200)
    look: Any = mechanism.answer(_first_query(universe))
    scale = Fraction(look.description["count_scale"])
    if look.description["noise"] == "laplace":
        claim, delta = float(1 / scale), 0.0
    else:
        claim = epsilon_of(gaussian_rho(scale, squared_sensitivity=1), delta)
    sides, runs = _sides(180, 19), _FOR_GAUSSIANS
    return Case("answer", definition, sides, COUNTS, _of_counts, claim, delta, runs=runs)


def _whole_table() -> Case:
    name = NAMES[0]
    definition = _definition(EPSILON, DELTA, mechanism={"profile": "whole_table"})
    definition = _with_error(definition | {"attributes": [_number(name)]}, 0.9)
    queries = ({"where": _is_one(name)}, {"where": {"attribute": name, "lt": 1}})
    more: dict[str, Any] = {"enough": 2, "copies": OF_OPENINGS}
    return _of_a_line(definition, queries, _difference, _one_of(name, 1), **more)


def _papers(profile: str, *, doubling: bool) -> Case:
    """A hard query to one of the papers' mechanisms: its count and its flag."""
    name = NAMES[0]
    mechanism: Document = {
        "profile": profile,
        "hypothesis_rows": 12,
        "representation": "exhaustive",
        "doubling": doubling,
    }
    if profile == "median":
        mechanism["queries"] = 200
    else:
        mechanism |= {"queries_per_phase": 200, "phases": 1}
    definition = _definition(
        4.0,
        1e-9,
        attributes=[_number(name)],
        mechanism=mechanism,
        accuracy={"error": 0.3, "failure_probability": 0.5},
    )
    n_rows = rows_of_a_phase(_read(definition)) + 1
    universe, built = build(_read(definition))
    for phase in built.open_phase(n_rows):
        built.charged(phase.charges)
    look: Any = built.answer(_first_query(universe))
    scale = look.description["count_scale"]
    replaced, ones = scale, 9 * n_rows // 10

    def side(one: int) -> Document:
        of_ones = ones + one * replaced
        return {"cells": [{name: 1, "count": of_ones}, {name: 0, "count": n_rows - of_ones}]}

    case = Case("answer", definition, _pair(side), COUNTS[:1], _of_counts, replaced / scale, 0.0)
    return replace(case, replaced=replaced, copies=OF_OPENINGS, runs=2.0)


def _kind(
    name: str,
    sides: tuple[Document, Document],
    asked: Sequence[Document],
    score: Score,
    *,
    epsilon: float = 3.0,
    more: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Case:
    """A kind whose one look fills a line, so that its (epsilon, delta) is that of everything published."""
    definition = _definition(epsilon, DELTA, kinds={name: {"share": 1.0, **settings}})
    definition |= {"mechanism": NO_BASE, **(more or {})}
    loss = _answerer(definition)._loss
    claim, delta = float(loss.epsilon), float(loss.delta)
    return Case("life", definition, sides, tuple(asked), score, claim, delta)


def _answerer(definition: Document) -> Any:
    """The only one of a definition."""
    _, mechanism = build(_read(definition))
    assert isinstance(mechanism, WithKinds)
    (answerer,) = mechanism.answerers
    return answerer


def _up_to_0(kind: str) -> list[Document]:
    """A query of each attribute about the rows with a 0."""
    return [
        {"kind": kind, "attribute": name, "where": {"attribute": name, "lt": 1}} for name in NAMES
    ]


def _partition() -> Case:
    """Two segments: the first ends with its first bin, and the tree has one node, of half the loss."""
    attributes = [_number(name, 1, 2, 3) for name in NAMES]
    low, high = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 2)
    sides = _pair(lambda one: {"cells": [low | {"count": 400 + one}, high | {"count": 61 - one}]})
    more = {"attributes": attributes, "accuracy": {"error": 0.4, "failure_probability": 0.9}}
    queries = _up_to_0("threshold")
    case = _kind("threshold", sides, queries, _of_counts, more=more, partition=True)
    tree = float(_answerer(case.definition)._plans[0].tree_epsilon)
    return replace(case, what="answer", claim=tree, runs=3.0)


def _stable(kind: str, **settings: Any) -> Case:
    """The distance is just what noise must not take away, or one row more."""
    queries = [{"kind": kind, "attribute": name} for name in NAMES]
    empty = _kind(kind, _sides(0, 0), queries, _of_found, **settings)
    least = _answerer(empty.definition)._plan.threshold
    zeros = 20 + least - 1  # of 40; the mode, and the bin of the row at rank 20
    first, second = _sides(40 - zeros - 1, zeros)
    return replace(empty, sides=(second, first))


def _prefix_batch() -> Case:
    """A histogram of one condition that holds for one of 32 rows, or for two: there its law differs most."""
    queries = [
        {"kind": "prefix_batch", "attribute": name, "wheres": [{"attribute": name, "lt": 1}]}
        for name in NAMES
    ]

    def empty(replies: Mapping[str, Document]) -> float:
        """Histograms without a row for which the condition holds."""
        return sum(r["batch"]["values"][0] == 0.0 for r in replies.values() if "batch" in r)

    case = _kind("prefix_batch", _sides(30, 1), queries, empty, epsilon=2.15)
    return replace(case, runs=3.0)


def _correlated_vector() -> Case:
    """The response of the one row that differs."""
    attributes = [{"name": "bit", "type": "boolean"}]
    sides = _pair(lambda one: {"columns": {"bit": [bool(one), *[False, True] * 10]}})
    query = {"kind": "correlated_vector", "attribute": "bit"}

    def bit(replies: Mapping[str, Document]) -> float:
        return float(base64.b64decode(replies["q0"]["vector"]["bits"])[0] >> 7)

    more = {"attributes": attributes}
    case = _kind("correlated_vector", sides, [query], bit, more=more, attribute="bit")
    return replace(case, copies=OF_OPENINGS)


def _between() -> Case:
    """A count at the lower threshold, or one below, in windows of which each needs a run of its own."""
    empty = _kind("between", _sides(0, 0), [], _of_sides, epsilon=20.0, answers=1)
    plan = _answerer(empty.definition)._plan
    n_rows, low = 2 * plan.min_gap + 20, 10
    queries = [
        {"kind": "between", "where": _is_one(NAMES[0]), "window": {"last_phases": phases}}
        | {
            "low": round((low + 0.01) / (phases * n_rows), 9),
            "high": round((low + plan.min_gap - 0.01) / (phases * n_rows), 9),
        }
        for phases in range(1, N_ATTRIBUTES + 1)
    ]
    before = ({"cells": [ZEROS | {"count": n_rows}]},) * (N_ATTRIBUTES - 1)
    case = replace(empty, sides=_sides(low - 1, n_rows - low), queries=tuple(queries))
    case = replace(case, before=before, what="answer", runs=2.0)
    return replace(case, claim=1.0 / float(plan.noise_scale), delta=0.0)


def _points(kind: str, **settings: Any) -> Case:
    """As many rows up to a point as the lower threshold has, or some fewer."""
    empty = _kind(kind, _sides(0, 0), _up_to_0(kind), _of_sides, epsilon=20.0, **settings)
    answerer = _answerer(empty.definition)
    is_run = kind == "interior_point"
    plan = answerer._plan if is_run else answerer._largest.chunk
    scale = float(plan.between.noise_scale)
    replaced = 1 if is_run else round(scale)
    n_rows = answerer.min_rows
    zeros = plan.low - replaced
    ones = n_rows - zeros - replaced
    first, second = _sides(ones, zeros, replaced)

    def of_values(replies: Mapping[str, Document]) -> float:
        """Rows that the chunks speak of."""
        return sum(float(r["count"]) for r in replies.values() if r["status"] == "answered")

    case = replace(empty, sides=(second, first), score=_of_sides if is_run else of_values)
    case = replace(case, what="answer", claim=replaced / scale, delta=0.0, runs=2.0)
    return replace(case, replaced=replaced)


def _cases() -> dict[str, Callable[[], Case]]:
    """By name; made when they are needed."""
    weights = {"profile": "weights"}
    fixed = {"profile": "weights", "growing": False}
    gated = {"profile": "gated", "segments": 1}
    found: dict[str, Callable[[], Case]] = {
        "calibrated": lambda: _counts(NO_BASE),
        "calibrated, fresh": _fresh,
        "calibrated, sums": _sums,
        "calibrated, values": _values,
        "calibrated, shares": _shares,
        "calibrated, aimed counts": lambda: _aimed(COUNTS, _of_counts),
        "calibrated, aimed sums": lambda: _aimed(SUMS, _of_sums),
        "calibrated, correlations": _correlations,
        "calibrated, levels": _levels,
        "calibrated, person": _person,
        "calibrated, erased, person": _erased_person,
        "calibrated, returning person": _returning_person,
        "calibrated, found values": _found_values,
        "calibrated, found values, person": _found_values_of_person,
        "calibrated, naming": lambda: _naming(13.0, 0.03, 0.1),
        "calibrated, naming, person": lambda: _naming(7.0, 0.04, DELTA, person=True),
        "calibrated, running totals": _running_totals,
        "calibrated, running totals, person": _running_totals_of_person,
        "calibrated, late rows": _late_rows,
        "calibrated, late rows, person": _late_rows_of_person,
        "calibrated, a world that reacts": reacting,
        "counts": lambda: _counts({"profile": "counts"}),
        "counts, pure": lambda: _counts({"profile": "counts"}, **PURE),
        "whole_table": _whole_table,
        "gated": lambda: _tested(gated, EPSILON, DELTA),
        "weights": lambda: _tested(weights, 6.0, DELTA),
        "weights, fixed, pure": lambda: _tested(fixed, 4.0, 0.0),
        "bypass": lambda: _counts({"profile": "bypass"}),
        "bypass, pure": lambda: _counts({"profile": "bypass"}, **PURE),
    }
    for profile in ("median", "sequential", "memory"):
        for doubling in (False, True):
            name = f"{profile}, doubling" if doubling else profile
            found[name] = partial(_papers, profile, doubling=doubling)
    return found | {
        "kind threshold": lambda: _kind(
            "threshold", _sides(9, 10), _up_to_0("threshold"), _of_counts
        ),
        "kind threshold, partition": _partition,
        "kind median": lambda: _stable("median"),
        "kind mode": lambda: _stable("mode"),
        "kind mode, groups": lambda: _stable("mode", groups=40),
        "kind prefix_batch": _prefix_batch,
        "kind correlated_vector": _correlated_vector,
        "kind between": _between,
        "kind interior_point": lambda: _points("interior_point", points=10),
        "kind adaptive_threshold": lambda: _points("adaptive_threshold", chunks=2, queries=10),
    }


CASES: Final = _cases()


# ---------------------------------------------------------------- running


class _NoRedis:
    """A Redis that is away: a worker knows it, and goes on."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def away(*_: object) -> object:
            raise StoreUnavailable(f"{name}: there is no Redis")

        return away


Group: TypeAlias = tuple[str, int, Sequence[Document]]
"""A topic, Kafka's time, and what is sent then."""


class Stream:
    """One worker at a time, its log, and what it released."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._noise = copy.noise()
        self._rules = WorkerRules(key_file=token_bytes(32))
        self._begin()
        self.replies: dict[str, dict[str, Document]] = defaultdict(dict)
        self.attributes: dict[str, dict[str, Document]] = {}
        self.ticks: dict[str, dict[str, Document]] = defaultdict(dict)

    def _begin(self) -> None:
        """Nothing was sent or committed yet."""
        self._sent: dict[str, list[Record]] = defaultdict(list)
        outputs = {role: LocalLog(1) for role in COMPACTED}
        rows, blocks = LocalRows(self._sent), KeyedTopic(LocalLog(1))
        self._topics = WorkerTopics(LocalLog(1), rows, blocks, outputs, 1)

    async def _send(self, outgoing: Outgoing) -> Awaitable[object]:
        if outgoing.role == "answers":
            reply = json.loads(outgoing.value)
            self.replies[outgoing.key][reply["query_id"]] = reply
        elif outgoing.role == "catalog":
            listed = json.loads(outgoing.value)["attributes"]
            self.attributes[outgoing.key] = {each["name"]: each for each in listed}
        elif outgoing.role == "running":
            told = json.loads(outgoing.value)
            self.ticks[outgoing.key][f"{told['since']} {told['tick']}"] = told
        elif outgoing.role == "rejected":
            raise AssertionError(json.loads(outgoing.value)["reason"])
        elif outgoing.role == "events":
            event = json.loads(outgoing.value)
            assert event["event"] != "batch_refused", event
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _bounds(self, _: object) -> dict[str, tuple[int, int]]:
        places = (f"in.{role}:0" for role in ("datasets", "batches", "queries"))
        return {place: (0, len(self._sent[place])) for place in places}

    async def deliver(self, groups: Iterable[Group]) -> None:
        """Starts a worker, and has it take these documents of these topics in turn.

        Each group is made when all that follows from the one before is published.
        """
        self.replies.clear()
        if not self._copy.keeps_journal:
            self._begin()
        redis: Any = _NoRedis()
        worker = Worker(redis, lambda: self._noise, self._send, self._topics, self._rules)
        worker.following.contact.lost()
        running = (worker.run_owner, worker.releaser.run, worker.rounds.run)
        tasks = [asyncio.create_task(run()) for run in running]
        try:
            worker.assigned([0], 1)
            worker.ownership.reading_from(await worker.positions(self._bounds), 1)
            for role, at_ms, documents in groups:
                records = [self._record(role, at_ms, document) for document in documents]
                for start in range(0, len(records), GROUP_SIZE):
                    await take_all(worker, records[start : start + GROUP_SIZE])
                await drained(worker)
                assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _record(self, role: str, at_ms: int, document: Document) -> Record:
        sent = self._sent[f"in.{role}:0"]
        key, value = document["dataset"].encode(), json.dumps(document).encode()
        sent.append(Record(role, f"in.{role}", 0, len(sent), key, value, {}, 1, at_ms))
        return sent[-1]


def _groups(
    case: Case, queries: Sequence[Document], names: Mapping[str, int], ticks: Mapping[str, Any]
) -> Iterator[Group]:
    """Definitions, what comes in each round, and the queries.

    Args:
        case: The case.
        queries: The queries.
        names: The names of the data sets, with the side of each.
        ticks: What ticks of each have published. A round is made when it comes.
    """
    heads = {name: {"version": 1, "dataset": name} for name in names}
    yield "datasets", -1, [head | case.definition for head in heads.values()]
    batches = [*case.before, *[{}] * case.phases]
    numbered = [{"batch_id": f"b{i}", **batch} for i, batch in enumerate(batches)]
    for at_ms, comes in case.rounds or (Round(-1, lambda _: numbered),):
        documents = [
            heads[name] | (one if _FILLED & one.keys() else one | case.sides[side])
            for name, side in names.items()
            for one in comes(ticks[name])
        ]
        yield "batches", at_ms, documents
    asked = [{"query_id": f"q{i}", **query} for i, query in enumerate(queries)]
    about = {"analyst": "ana", "queries": asked}
    yield "queries", -1, [head | about for head in heads.values()] if asked else []


_FILLED: Final = frozenset({"cells", "columns", "clock", "erase"})
"""What a batch has that does not wait for the rows of a side."""


async def scores(case: Case, copy: Copy, runs: int) -> tuple[Floats, Floats]:
    """The scores of ``runs`` runs on each side: the sum over all deliveries, which one answer may repeat."""
    found: tuple[list[float], list[float]] = ([], [])
    with copy.broken(), patch.object(BatchLook, "seconds", 0.0):  # nobody here looks at a clock
        while len(found[0]) < runs:
            stream = Stream(copy)
            names = {
                f"d{number}-{side}": side
                for number in range(min(_TOGETHER, runs - len(found[0])))
                for side in (0, 1)
            }
            queries = case.queries if copy.all_queries else case.queries[: case.enough]
            totals = dict.fromkeys(names, 0.0)
            for delivery in range(copy.deliveries):
                groups: Iterable[Group] = _groups(case, queries, names, stream.ticks)
                if delivery and copy.keeps_journal:
                    # What the journal has is not sent again, but for the queries.
                    *_, asked = groups
                    groups = [asked]
                await stream.deliver(groups)
                for name in names:
                    assert len(stream.replies[name]) == len(queries)
                    found_out = stream.replies if queries else stream.attributes
                    totals[name] += case.score(found_out[name] | stream.ticks[name])
            for name, side in names.items():
                found[side].append(totals[name])
    return np.array(found[0]), np.array(found[1])


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    case: Case
    bounds: Mapping[str, Bound] = field(default_factory=dict)

    @property
    def fair(self) -> bool:
        """Whether the whole worker keeps its promise as far as can be seen, and no broken one does."""
        return all(
            (bound.epsilon <= self.case.claim) == (name == WHOLE)
            for name, bound in self.bounds.items()
        )


def audit(
    name: str,
    *,
    runs: int,
    copies: Sequence[str] | None = None,
    confidence: float = CONFIDENCE,
) -> Line:
    """A line of the table: bounds for the worker as it is, and for broken copies.

    Args:
        runs: Data sets of each side.
        copies: Those that are run, as far as the case has them; all if left out.
    """
    case = CASES[name]()
    bounds = {}
    for which in case.copies if copies is None else [c for c in copies if c in case.copies]:
        copy = EVERY_COPY[which]
        wanted = max(runs // 4, round(runs * case.runs * copy.share))
        found = asyncio.run(scores(case, copy, wanted))
        bounds[which] = bounded(*found, delta=case.delta, confidence=confidence)
    return Line(name, case, bounds)


# ---------------------------------------------------------------- the table


def _cells(line: Line) -> list[str]:
    case = line.case
    delta = f", {case.delta:.2g}" if case.delta else ""
    cells = [line.name, case.what, str(case.replaced), f"{case.claim:.2f}{delta}"]
    for name in COPIES:
        bound = line.bounds.get(name)
        if bound is None:
            cells.append("")
        elif name == WHOLE:
            word = "" if bound.epsilon <= case.claim else " ABOVE"
            cells.append(f"{bound.epsilon:.2f}{word}")
        else:
            cells.append(_found(bound, case))
    return cells


def _found(bound: Bound, case: Case) -> str:
    """What the runs of a broken copy prove."""
    return f"{bound.epsilon:.2f}{'' if bound.epsilon > case.claim else ' MISSED'}"


def _more(line: Line) -> list[str]:
    """What the runs of copies prove that have no column of their own."""
    bounds = line.bounds.items()
    return [f"{line.name}, {n}: {_found(b, line.case)}" for n, b in bounds if n not in COPIES]


_HEAD: Final = ["profile or kind", "of", "rows", "epsilon, delta", *COPIES]
_WIDTHS: Final = (32, 6, 5, 15, 12, 14, 16, 12)


def _printed(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _line(name: str, runs: int) -> tuple[list[str], list[str], bool]:
    """The cells of one line, what there is to say below the table, and whether it is as it should be."""
    line = audit(name, runs=runs)
    return _cells(line), _more(line), line.fair


def _tell(text: str) -> None:
    """Shows on a terminal how far the table is, in place."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Prints the table; fails where a promise is broken, or a broken copy is not seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=600, help="data sets of each side")
    parser.add_argument("--only", nargs="*", help="profiles and kinds; all if left out")
    arguments = parser.parse_args()
    print(_printed(_HEAD))
    names, below, fair = arguments.only or list(CASES), list[str](), True
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        lines = [processes.submit(_line, name, arguments.runs) for name in names]
        for name, line in zip(names, lines, strict=True):
            while not line.done():
                _tell(
                    f"{name}; {sum(each.done() for each in lines)} of {len(lines)} lines are done"
                )
                wait([line], timeout=0.5)
            _tell("")
            cells, more, is_fair = line.result()
            print(_printed(cells), flush=True)
            below += more
            fair &= is_fair
    for text in below:
        print(text)
    return 0 if fair else 1


if __name__ == "__main__":
    sys.exit(main())
