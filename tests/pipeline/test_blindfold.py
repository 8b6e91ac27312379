"""Nothing that leaves tells one row from another, beyond what the noisy releases themselves say.

Two runs differ in one row. Their noise is chosen so that every release comes out alike (``Compensating``);
then everything else that can be seen must come out alike too, byte for byte: all topics, ``rejected`` among
them, all log records, the text of ``/metrics``, what the pages show, the number of steps and the stored
sizes. There is no exception. It is so for every profile and kind that a definition can name, and
``BROKEN`` shows that the comparison can fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import logging
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from aiokafka import TopicPartition

from stream_dp import core
from stream_dp.core.baselines.table import TableLook
from stream_dp.core.blocks import Block, Blocks, count_of
from stream_dp.core.kinds.adaptive_threshold.law import AdaptiveThresholds, chunk_counts
from stream_dp.core.kinds.base import counts_of, secret_of
from stream_dp.core.kinds.between.answerer import BetweenLook
from stream_dp.core.kinds.correlated_vector.answerer import ResponsesLook
from stream_dp.core.kinds.median_mode.answerer import StableLook
from stream_dp.core.kinds.median_mode.law import _votes, mode, order_statistic
from stream_dp.core.kinds.points import PointLook
from stream_dp.core.kinds.prefix_batch.answerer import BatchLook
from stream_dp.core.kinds.sampling import permutation
from stream_dp.core.kinds.several import NamedLook
from stream_dp.core.kinds.threshold.answerer import CurvesLook
from stream_dp.core.kinds.threshold.partition import PartitionPlan
from stream_dp.core.kinds.threshold.tree import _nodes
from stream_dp.core.median.doubling import StageLook
from stream_dp.core.median.easiness import EasinessTest
from stream_dp.core.median.phased import PhaseLook, QueryLook
from stream_dp.core.noise import PooledNoise
from stream_dp.core.residual.belief.levels import grouped
from stream_dp.core.residual.counted_rows import RowsLook
from stream_dp.core.residual.measuring import CountsLook, TablesLook, exact_answers
from stream_dp.core.residual.stages import StagedLook
from stream_dp.core.residual.sum_look import SumLook, exact_sums
from stream_dp.core.sparse_vector import gates
from stream_dp.core.sparse_vector.gates import CountLook
from stream_dp.messages import Batch, Event, KindsSpec, MechanismSpec
from stream_dp.pipeline import deciding, decoding, ingesting, replying, sources, worker
from stream_dp.pipeline.backlog import Piece
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.health import Health
from stream_dp.pipeline.keeping import WAITED
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.needs import JOURNAL
from stream_dp.pipeline.records import Outgoing
from stream_dp.pipeline.sources import Packing, Source, SourceReader
from stream_dp.pipeline.stored_blocks import BlockCache, StoredBlocks
from stream_dp.settings import WorkerSettings
from stream_dp.state.journal import CommitRecord
from stream_dp.state.kept import Place
from stream_dp.web.published import READ, Published
from stream_dp.web.views import Views, health_document
from tests.pipeline.referee import attributes_with_levels

CANARY = "canary-7f3a"
AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}
SHORT = {"attribute": "cancelled", "eq": False}
THESE = {"carrier": "AA", "delay": 5, "cancelled": False}
THOSE = {"carrier": CANARY, "delay": 10**30, "cancelled": True}

Ints = npt.NDArray[np.int64]
Row: TypeAlias = dict[str, Any]

# ---------------------------------------------------------------- noise that makes releases come out alike


@dataclass(frozen=True)
class Coin:
    """What a randomized response adds its draw to: a draw below ``keeps`` keeps a row's bit.

    Attributes:
        bits: Of every row.
        keeps: Draws below it keep the bit.
    """

    bits: npt.NDArray[np.bool_]
    keeps: int


@dataclass(frozen=True)
class Law:
    """What the law of a draw depends on as a whole, so that no draw of it can be moved.

    Attributes:
        counts: Rows in each bin.
    """

    counts: Ints


Statistic: TypeAlias = Ints | Coin | Law


def _whole(*statistics: object) -> list[Statistic]:
    return [np.atleast_1d(np.asarray(statistic, dtype=np.int64)) for statistic in statistics]


def _of_tables(look: TablesLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each cell of each marginal, or each group of its cells."""
    found: list[Statistic] = []
    for part in look.parts:
        (counts,) = data.marginal(part.attributes, range(part.block, part.block + 1))
        found.append(grouped(counts, part.groups or counts.shape).ravel())
    return found


def _of_rows(look: RowsLook, data: Blocks, _: Any) -> list[Statistic]:
    """The number of rows that count."""
    return _whole(*data.marginal((), range(look.block, look.block + 1)))


def _of_counts(look: CountsLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each answer in each block."""
    found: list[Statistic] = []
    for block, _step in look.steps:
        (marginal,) = data.marginal(look.attributes, range(block, block + 1))
        found.append(exact_answers(look.query, look.attributes, marginal))
    return found


def _of_sums(look: SumLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each sum in each block, then the counts, as the noise is drawn."""
    return [row for block, *_ in look.steps for row in exact_sums(look, data, block)]


def _of_whole_table(look: TableLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each cell of the universe."""
    everything = tuple(range(len(look.shape)))
    return [data.marginal(everything, range(look.block, look.block + 1))[0].ravel()]


def _of_count(look: CountLook, data: Blocks, _: Any) -> list[Statistic]:
    """The count, and behind a gate how far it is from the prediction; a threshold's draw is the same."""
    count, gate = count_of(data, look.query.predicate, look.query.window), look.gate
    if gate is None:
        return _whole(count)
    threshold = [0] if gate.segment is None else []
    return _whole(*threshold, count, abs(count - gate.predicted))


def _of_query(look: QueryLook, data: Blocks, _: Any) -> list[Statistic]:
    """The easiness in the gate's units, and the count; the threshold's index is the same."""
    count = count_of(data, look.query.predicate, look.query.window)
    return _whole(look.gate.units(look.easiness(count)), count)


def _of_curves(look: CurvesLook, data: Blocks, release: Any) -> list[Statistic]:
    """The nodes of each block's tree; before them what a sweep compares, between the published ends."""
    found: list[Statistic] = []
    for block, published in zip(look.blocks, release.published, strict=True):
        (counts,) = data.marginal((look.attribute,), range(block, block + 1))
        if isinstance(look.plan, PartitionPlan):
            ends = look.plan.from_bytes(published).ends
            up_to = np.concatenate([[0], np.cumsum(counts)])
            begins = np.concatenate([[0], ends])[
                np.searchsorted(ends, np.arange(len(counts)), "right")
            ]
            found += _whole(up_to[1:] - up_to[begins], *[0] * (1 + len(ends)))
            if not len(ends):
                continue
            counts = np.diff(up_to[np.concatenate([[0], ends, [len(counts)]])])
        found.append(_nodes(counts))
    return found


def _of_stable(look: StableLook, data: Blocks, drawn: Drawn) -> list[Statistic]:
    """How many rows to replace until the answer is another; where rows are dealt, by the same deal."""
    counts = counts_of(data, look.attribute, look.window)
    answerer: Any = getattr(look.test, "__self__")  # noqa: B009 - a bound method
    if answerer.name == "median":
        return _whole(order_statistic(counts, -(-int(counts.sum()) // 2))[1])
    if answerer._groups is None:
        return _whole(mode(counts)[1])
    group, n_rows = np.empty(int(counts.sum()), dtype=np.int64), int(counts.sum())
    group[permutation(drawn.replayed(), n_rows)] = np.arange(n_rows) % answerer._groups
    votes = _votes(np.repeat(np.arange(len(counts)), counts), group, answerer._groups, len(counts))
    deal = [Law(counts)] * (len(drawn.noted) - 1)
    return [*deal, *_whole(mode(votes)[1])]


def _of_between(look: BetweenLook, data: Blocks, _: Any) -> list[Statistic]:
    """The count; the run's offset, drawn with its charge, is the same."""
    return _whole(count_of(data, look.asked.predicate, look.asked.window))


def _of_point(look: PointLook, data: Blocks, _: Any) -> list[Statistic]:
    """Rows up to the point: of all, or of each chunk that still searches, by the same cuts."""
    counts = counts_of(data, look.run_key.attribute, look.run_key.window)
    rank, run = int(counts[: look.code + 1].sum()), look.run
    if not isinstance(run, AdaptiveThresholds):
        return _whole(rank)
    secret = secret_of(data, look.secret, run.plan.secret_size)
    of_each = chunk_counts(rank, secret.values[: run.plan.n_chunks - 1], run.plan.n_rows)
    parts = zip(run.chunks, of_each, strict=True)
    return _whole(*(count for chunk, count in parts if chunk.point is None))


def _of_responses(look: ResponsesLook, data: Blocks, _: Any) -> list[Statistic]:
    """The bit of each row."""
    return [Coin(data.in_order(look.attribute, look.block) == 1, look.plan.keeps)]


def _of_batch(look: BatchLook, data: Blocks, _: Any) -> list[Statistic]:
    """All rows: a histogram is drawn from a law that depends on each of them."""
    return [Law(counts_of(data, look.attribute, look.window))]


def _of_phase(look: PhaseLook, data: Blocks, _: Any) -> list[Statistic]:
    """Nothing: it looks at no row and draws nothing."""
    return []


STATISTICS: Final[dict[type, Callable[[Any, Blocks, Any], list[Statistic]]]] = {
    TablesLook: _of_tables,
    RowsLook: _of_rows,
    CountsLook: _of_counts,
    StagedLook: _of_counts,
    SumLook: _of_sums,
    TableLook: _of_whole_table,
    CountLook: _of_count,
    QueryLook: _of_query,
    PhaseLook: _of_phase,
    CurvesLook: _of_curves,
    StableLook: _of_stable,
    BatchLook: _of_batch,
    BetweenLook: _of_between,
    PointLook: _of_point,
    ResponsesLook: _of_responses,
}
"""What each look adds its draws to, or compares with them, in the order of its draws.

These are the couplings of the proofs: where the statistic of the second run is one more, so that a test could
come out otherwise, the draw is one less.
"""

_MOST_ATTEMPTS: Final = 20_000


@dataclass
class Drawn:
    """A look of the first run: what it drew, in order, what it added that to, and what it published."""

    look: type
    noted: list[Ints]
    statistics: list[Statistic]
    release: Any

    def replayed(self) -> Any:
        """A source of the same uniform numbers again."""
        numbers = iter(self.noted)

        class Replayed:
            def uniform(self, _limit: int, _size: int) -> Ints:
                return next(numbers)

        return Replayed()

    def moved(self, now: Sequence[Statistic]) -> list[Ints]:
        """The draws by which other statistics give the same."""
        return [
            draws if number >= len(now) else _moved(draws, self.statistics[number], now[number])
            for number, draws in enumerate(self.noted)
        ]


def _moved(draws: Ints, then: Statistic, now: Statistic) -> Ints:
    if isinstance(then, Law) or isinstance(now, Law):
        return draws
    if isinstance(then, Coin) or isinstance(now, Coin):
        assert isinstance(then, Coin)
        assert isinstance(now, Coin)
        # The row has the other bit: keep it where it was turned, and turn it where it was kept.
        turned = np.where(draws < then.keeps, then.keeps, 0)
        return np.where(then.bits == now.bits, draws, turned)
    return draws + then - now


def _differ(then: Statistic, now: Statistic) -> bool:
    before: Any = getattr(then, "bits", getattr(then, "counts", then))
    after: Any = getattr(now, "bits", getattr(now, "counts", now))
    return not np.array_equal(before, after)


class Compensating:
    """Noise that makes the looks of a second run publish what those of a first have published.

    The first run draws, and notes its draws. In the second run each look gets the same draws, moved by the
    difference of what it adds them to (``STATISTICS``). So counts with noise come out the same, and so does
    every comparison. Secrets, which a look draws before it sees any row, are the same.

    A histogram (kind ``prefix_batch``) is drawn from a law that depends on all rows, and no draw of it can be
    moved. The second run draws it with the same numbers, and then anew until it is the same histogram: its
    draws have their own law, on condition of what was published.

    Every release is the look's own, in both runs: one that publishes anything else than the first one did
    ends the second run.
    """

    def __init__(self, script: Script, *, first: bool) -> None:
        self._script = script
        self._first = first
        self._source = PooledNoise()
        self._secrets = iter(script.secrets)
        self._looks = iter(script.looks)
        self._noted: list[Ints] | None = None
        self.told_apart: set[type] = set()
        """Looks of the second run that saw other rows than those of the first."""
        self._given: Iterator[Ints] = iter(())

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        return self._drawn(self._source.gaussian(sigma, size))

    def laplace(self, scale: Fraction, size: int) -> Ints:
        return self._drawn(self._source.laplace(scale, size))

    def geometric_half(self, limit: int) -> int:
        return int(self._drawn(np.array([self._source.geometric_half(limit)]))[0])

    def uniform(self, limit: int, size: int) -> Ints:
        return self._drawn(self._source.uniform(limit, size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _drawn(self, fresh: Ints) -> Ints:
        """Both runs draw, whatever the draws are replaced by."""
        if self._first:
            (self._script.secrets if self._noted is None else self._noted).append(fresh.copy())
            return fresh
        given = next(self._secrets if self._noted is None else self._given, fresh)
        return given.copy() if given.shape == fresh.shape else fresh

    def look(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        """Takes a look of either run."""
        self._noted = []
        try:
            return (
                self._first_look(take, look, data) if self._first else self._same(take, look, data)
            )
        finally:
            self._noted = None

    def _first_look(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        assert self._noted is not None
        release = take(look, self, data)
        drawn = Drawn(type(look), self._noted, [], release)
        drawn.statistics = self._statistics(look, data, drawn)
        self._script.looks.append(drawn)
        return release

    def _same(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        then = next(self._looks, None)
        assert then is not None, "the second run looks more often"
        assert then.look is type(look), "the second run takes another look"
        wanted = then.release.to_bytes()
        now = self._statistics(look, data, then)
        if any(map(_differ, then.statistics, now)):
            self.told_apart.add(type(look))
        self._given = iter(then.moved(now))
        for _ in range(_MOST_ATTEMPTS if isinstance(look, BatchLook) else 1):
            release = take(look, self, data)
            if release.to_bytes() == wanted:
                return release
        raise AssertionError(f"the second run cannot publish what the first did: {type(look)}")

    @staticmethod
    def _statistics(look: Any, data: Blocks, drawn: Drawn) -> list[Statistic]:
        of = drawn if isinstance(look, StableLook) else drawn.release
        return STATISTICS[type(look)](look, data, of)


class Script:
    """What a first run drew: secrets, and the draws of its looks."""

    def __init__(self) -> None:
        self.secrets: list[Ints] = []
        self.looks: list[Drawn] = []


def _looks() -> set[Any]:
    """Every class of the core that looks at rows, those left out that hand on to another one."""
    found = set()
    for module in pkgutil.walk_packages(core.__path__, f"{core.__name__}."):
        for one in vars(importlib.import_module(module.name)).values():
            if (
                inspect.isclass(one)
                and hasattr(one, "take")
                and hasattr(one, "description")
                and not inspect.isabstract(one)
                and not getattr(one, "_is_protocol", False)
            ):
                found.add(one)
    return found - {NamedLook, StageLook}


@pytest.fixture
def showing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compensating], None]:
    """``showing(noise)``: from now on this noise is told of every look.

    Looks are not taken in a thread of their own: what leaves meanwhile depends on how long they last, and
    running times are not compared.
    """
    shown: list[Compensating] = []

    async def at_once(step: Callable[..., Any], *arguments: Any) -> Any:
        return step(*arguments)

    def read_at_once(blocks: StoredBlocks, index: int) -> bytes:
        reading: Any = blocks._fetch(index)
        with pytest.raises(StopIteration) as done:  # a store in memory lets nobody wait
            reading.send(None)
        found: bytes = done.value.value
        return found

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr(StoredBlocks, "_fetched", read_at_once)

    def told(take: Callable[..., Any]) -> Callable[..., Any]:
        def taken(look: Any, noise: Any, data: Blocks) -> Any:
            return shown[-1].look(take, look, data) if shown else take(look, noise, data)

        return taken

    taking = {look: look.take for look in _looks()}  # one may inherit that of another
    for look, take in taking.items():
        monkeypatch.setattr(look, "take", told(take))
    return shown.append


# ---------------------------------------------------------------- lives of a data set


@dataclass(frozen=True)
class Life:
    """A data set and what is asked of it.

    Attributes:
        definition: What it has of its own.
        queries: Asked in both phases, again, and by the worker after a restart.
        looks: Classes of the looks that must have been taken, so that the comparison is about them.
        papers: Whether it has the tiny universe and the phases of the papers' mechanisms.
        rows: Thousands of rows that open a phase.
        phases: How many open.
        in_order: Whether rows come one by one, not as cells.
    """

    definition: Mapping[str, Any]
    queries: Sequence[Mapping[str, Any]]
    looks: frozenset[type]
    papers: bool = False
    rows: int = 21
    phases: int = 2
    in_order: bool = False

    def define(self, world: Any, name: str) -> None:
        (world.define_memory if self.papers else world.define)(name, **self.definition)

    def row(self, row: Row) -> Row:
        """What its attributes have of a row."""
        return {key: row[key] for key in row if not (self.papers and key == "delay")}

    def fill(self, world: Any, name: str, batch_id: str) -> None:
        """Rows for one phase."""
        like = [("AA", 5, False, 9), ("UA", 45, True, 8), ("ZZ", -3, False, 4)]
        if self.papers:  # shares that a hypothesis of three rows can have
            like = [("AA", 0, False, 7), ("AA", 0, True, 7), ("UA", 0, False, 7)]
        parts = [
            (self.row({"carrier": c, "delay": d, "cancelled": gone}), 1000 * share)
            for c, d, gone, share in like
        ]
        if self.in_order:
            columns: dict[str, list[Any]] = {key: [] for key in parts[0][0]}
            for row, count in parts:
                for key, value in row.items():
                    columns[key] += [value] * (count * self.rows // 21)
            world.batch(name, batch_id, columns=columns)
        else:
            cells = [row | {"count": count * self.rows // 21} for row, count in parts]
            world.batch(name, batch_id, cells=cells)

    def ask(self, world: Any, name: str, turn: str) -> None:
        for number, query in enumerate(self.queries):
            world.ask(name, f"{turn}-{number}", **query)


COUNTS: Final = (
    {"where": AA},
    {"where": {"any": [AA, LATE]}},
    {"where": LATE, "window": {"last_phases": 1}},
    {"where": SHORT},
    {"where": {"all": [AA, SHORT]}},
)
OF_PAPERS: Final = (
    {"where": AA},
    {"where": SHORT},
    {"where": {"all": [AA, SHORT]}},
    {"where": AA, "window": {"last_phases": 1}},
)
PURE: Final = {"epsilon": 1.0, "delta": 0}
_GATED: Final = frozenset({CountLook})
_PAPERS: Final = frozenset({PhaseLook, QueryLook})


def _profile(profile: str, **settings: Any) -> dict[str, Any]:
    return {"mechanism": {"profile": profile, **settings}}


def _of_papers(profile: str, *, phases: int = 2, **settings: Any) -> Life:
    mechanism = {
        "profile": profile,
        "hypothesis_rows": 3,
        "representation": "entropic",
        **settings,
    }
    if profile != "median":
        mechanism["phases"] = phases
    definition = {"mechanism": mechanism, "privacy": {"epsilon": 2.0, "delta": 1e-7}}
    return Life(definition, OF_PAPERS, _PAPERS, papers=True, rows=10**6, phases=phases)


STANDING: Final[tuple[dict[str, Any], ...]] = (
    *({**query, "standing": True} for query in COUNTS),
    {"kind": "table", "group_by": ["carrier"], "standing": True},
    {
        "where": LATE,
        "window": {"last_phases": 1},
        "standing": True,
        "alert": {"above": 0.1},
    },
    {"kind": "sum", "attribute": "delay", "where": SHORT, "standing": True},
)

SUMS: Final[list[dict[str, Any]]] = [
    {"kind": "sum", "attribute": "delay", "where": SHORT},
    {"kind": "sum", "attribute": "delay", "group_by": ["carrier"], "count_rows": True},
    {"kind": "sum", "attribute": "delay", "where": AA, "error": {"mean": 3.0}},
    {"kind": "share", "share_of": SHORT, "where": AA},
    {
        "kind": "difference",
        "where": SHORT,
        "window": {"last_phases": 1},
        "minus_window": {"last_phases": 2},
    },
    {"kind": "share", "share_of": SHORT, "group_by": ["cancelled"], "error": {"value": 0.2}},
]

DATED: Final[dict[str, Any]] = {
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"], "ordered": True},
        {
            "name": "delay",
            "type": "date",
            "by": "day",
            "from": "1970-01-01",
            "until": "1970-03-01",
            "timezone": "Europe/Berlin",
            "epoch": "s",
        },
        {"name": "cancelled", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.05},
}
"""A date with 61 cells, and so two levels."""
KEPT: Final[dict[str, Any]] = {
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {
            "name": "delay",
            "type": "number",
            "edges": [0, 10, 30],
            "integer": True,
            "measure": {"unit": 1, "low": -10, "high": 60},
        },
        {"name": "cancelled", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.001},
}

PROFILES: Final[dict[str, Life]] = {
    "calibrated, standing queries": Life(
        {"mechanism": {"base_share": 0.001}}, STANDING, frozenset({CountsLook, SumLook})
    ),
    "calibrated": Life(
        {"mechanism": {"base_share": 0.001}, "synthetic_rows": 30},
        [
            *COUNTS,
            {"kind": "table", "group_by": ["carrier", "cancelled"]},
            {"where": AA, "fresh": True},
            *SUMS,
        ],
        frozenset({TablesLook, CountsLook, SumLook}),
    ),
    "calibrated, values are kept": Life(
        KEPT,
        [{"where": AA}, *SUMS, {"kind": "sum", "attribute": "delay", "where": LATE}],
        frozenset({TablesLook, CountsLook, SumLook}),
    ),
    "calibrated, rows are erased": Life(
        {"mechanism": {"base_share": 0.001}, "retention": {"phases": 1}},
        [*COUNTS, {"where": SHORT, "fresh": True}, {"where": AA, "error": {"relative": 0.1}}],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, levels": Life(
        {"attributes": attributes_with_levels(), "mechanism": {"base_share": 0.05}},
        [
            {"where": {"attribute": "delay", "lt": 33}},
            {"where": {"attribute": "delay", "lt": 50}, "error": 0.004},
            {"where": {"all": [AA, {"attribute": "delay", "lt": 41}]}},
            {"kind": "table", "group_by": ["delay"]},
            {"where": {"attribute": "delay", "lt": 41}, "fresh": True},
        ],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, dates": Life(
        DATED,
        [
            {"where": {"attribute": "delay", "lt": "1970-02-03"}},
            {"where": {"attribute": "delay", "between": ["1970-01-01", "1970-01"]}, "error": 0.004},
            {"where": {"all": [{"attribute": "carrier", "ge": "UA"}, SHORT]}},
            {"kind": "table", "group_by": ["delay"]},
            {"where": {"attribute": "delay", "lt": "1970-02-03"}, "fresh": True},
        ],
        frozenset({TablesLook, CountsLook}),
    ),
    "calibrated, errors of queries": Life(
        {"mechanism": {"base_share": 0.0}},
        [
            {"where": AA, "error": {"relative": 0.3}, "at_most": 0.5},
            {"where": SHORT, "error": {"relative": 0.1}, "at_most": 0.001},
            {"where": LATE, "error": 0.2, "quote": True},
            {"where": LATE, "error": {"value": 400}},
        ],
        frozenset({StagedLook}),
        rows=2100,
    ),
    "gated": Life(
        {**_profile("gated", segments=20), "synthetic_rows": 30}, COUNTS, _GATED, rows=2100
    ),
    "gated, carried over": Life(
        _profile("gated", segments=20, prior="carry_over"), COUNTS, _GATED, rows=2100
    ),
    "counts": Life(_profile("counts"), COUNTS, _GATED),
    "counts, pure": Life({**_profile("counts"), "privacy": PURE}, COUNTS, _GATED),
    "whole_table": Life(
        {**_profile("whole_table"), "synthetic_rows": 30}, COUNTS, frozenset({TableLook})
    ),
    "weights": Life(_profile("weights"), COUNTS, _GATED, rows=2100),
    "weights, pure": Life({**_profile("weights"), "privacy": PURE}, COUNTS, _GATED, rows=2100),
    "weights, fixed": Life(_profile("weights", growing=False), COUNTS, _GATED, rows=2100, phases=1),
    "bypass": Life(_profile("bypass"), COUNTS, _GATED, rows=2100),
    "bypass, pure": Life({**_profile("bypass"), "privacy": PURE}, COUNTS, _GATED, rows=2100),
    "median": _of_papers("median", queries=20, phases=1),
    "sequential": _of_papers("sequential", queries_per_phase=20),
    "memory": _of_papers("memory", queries_per_phase=100, hypothesis_rows=6),
    "median, doubling": _of_papers("median", queries=4, doubling=True, phases=1),
    "sequential, doubling": _of_papers("sequential", queries_per_phase=4, doubling=True),
    "memory, doubling": _of_papers(
        "memory", queries_per_phase=100, hypothesis_rows=6, doubling=True
    ),
}

_WIDE: Final = {"privacy": {"epsilon": 20.0, "delta": 1e-7}}


def _kind(name: str, look: type, *queries: Any, rows: int = 21, **settings: Any) -> Life:
    in_order = name == "correlated_vector"
    definition = {**_WIDE, "kinds": {name: settings}}
    return Life(definition, queries, frozenset({look}), rows=rows, in_order=in_order)


def _points(kind: str) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "attribute": "delay", "where": {"attribute": "delay", "lt": edge}}
        for edge in (0, 10, 30, 10)
    ]


_OF_DELAY: Final = (
    {"kind": "threshold", "attribute": "delay", "where": {"attribute": "delay", "ge": 30}},
    {"kind": "threshold", "attribute": "delay"},
    {"kind": "quantile", "attribute": "delay", "rank": 0.75, "window": {"last_phases": 1}},
)
KINDS: Final[dict[str, Life]] = {
    "threshold": _kind("threshold", CurvesLook, *_OF_DELAY, share=0.2),
    "threshold, partition": _kind("threshold", CurvesLook, *_OF_DELAY, share=0.2, partition=True),
    "median": _kind("median", StableLook, {"kind": "median", "attribute": "delay"}, share=0.05),
    "mode": _kind(
        "mode",
        StableLook,
        {"kind": "mode", "attribute": "carrier"},
        {"kind": "mode", "attribute": "cancelled", "window": {"last_phases": 1}},
        share=0.05,
    ),
    "mode, groups": _kind(
        "mode", StableLook, {"kind": "mode", "attribute": "cancelled"}, share=0.05, groups=1000
    ),
    "prefix_batch": _kind(
        "prefix_batch",
        BatchLook,
        {
            "kind": "prefix_batch",
            "attribute": "delay",
            "wheres": [{"attribute": "delay", "ge": 30}],
        },
        share=0.2,
    ),
    "correlated_vector": _kind(
        "correlated_vector",
        ResponsesLook,
        {"kind": "correlated_vector", "attribute": "cancelled"},
        share=0.3,
        attribute="cancelled",
    ),
    "between": _kind(
        "between",
        BetweenLook,
        {"kind": "between", "where": AA, "low": 0.1, "high": 0.3},
        {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
        {"kind": "between", "where": LATE, "low": 0.3, "high": 0.5},
        share=0.15,
        answers=2,
    ),
    "interior_point": _kind(
        "interior_point", PointLook, *_points("interior_point"), share=0.1, points=100
    ),
    "adaptive_threshold": _kind(
        "adaptive_threshold",
        PointLook,
        *_points("adaptive_threshold"),
        share=0.2,
        chunks=4,
        queries=50,
    ),
}
LIVES: Final = PROFILES | {f"kind {name}": life for name, life in KINDS.items()}


def test_every_profile_kind_and_look_is_compared() -> None:
    """A new one is compared as soon as it can be chosen, or this fails."""
    specs: tuple[Any, ...] = typing.get_args(typing.get_args(MechanismSpec)[0])
    profiles = {
        spec.model_fields["profile"].annotation for spec in specs if hasattr(spec, "model_fields")
    }
    chosen = {life.definition.get("mechanism", {}).get("profile") for life in PROFILES.values()}
    assert {typing.get_args(profile)[0] for profile in profiles} == (chosen - {None}) | {
        "calibrated"
    }
    assert {kind for life in KINDS.values() for kind in life.definition["kinds"]} == set(
        KindsSpec.model_fields
    )
    taken = {look for life in LIVES.values() for look in life.looks}
    taken.add(RowsLook)  # only where persons are protected, whose lives are below
    assert _looks() == taken == set(STATISTICS)


def _rounds(life: Life, row: Row) -> tuple[list[Callable[[Any], None]], ...]:
    """What one worker takes and then another: rows in every form, rejected ones, and queries."""
    row, common = life.row(row), life.row(THESE)

    def early(world: Any) -> None:
        world.batch("flights", "early", rows=[common, row])

    def define(world: Any) -> None:
        life.define(world, "flights")

    def fill(phase: int) -> Callable[[Any], None]:
        def filled(world: Any) -> None:
            name = f"phase-{phase}"
            world.batch("flights", "early", rows=[common, row])  # now there is a data set for it
            world.batch("flights", f"{name}-columns", columns={key: [row[key]] for key in row})
            if not life.in_order:
                world.batch("flights", f"{name}-cells", cells=[row | {"count": 1}])
            world.batch("flights", "early", rows=[row])  # a repeated id
            for sequence in (
                phase,
                phase,
                phase + 9,
            ):  # the next one, a repeated one, and one that is neither
                world.counted("flights", "till-7", sequence, rows=[row])
            life.fill(world, "flights", name)

        return filled

    def refuse(world: Any) -> None:
        world.batch("flights", "short", columns={"carrier": [row["carrier"]], "cancelled": []})
        world.batch("flights", "unknown", rows=[row | {"name": row["carrier"]}])
        world.batch("flights", "negative", cells=[row | {"count": -1}])
        world.batch("nobody", "lost", rows=[row])
        world.counted("flights", "till-8", 1, rows=[row | {"name": row["carrier"]}])
        head = {"version": 1, "dataset": "flights", "rows": [row]}
        for name in ({"producer": "till-7"}, {"producer": "till-7", "sequence": "1"}, {}):
            world.produce("batches", {**head, **name})
        document = {"version": 1, "dataset": "flights", "batch_id": "x", "rows": [row]}
        value = json.dumps(document).encode()
        of_it = decoding.partition_of(b"flights", world.partitions)
        world.produce("batches", value, key="flights", partition=1 - of_it)
        world.produce("batches", value[:-1], key="flights")
        world.produce("batches", value, key=None)
        world.produce("batches", {**document, str(row["carrier"]): 1}, key="flights")
        for role in ("queries", "datasets"):  # sent there by mistake
            world.produce(role, value, key="flights")
            world.produce(role, row, key="flights")

    def ask(turn: str) -> Callable[[Any], None]:
        return lambda world: life.ask(world, "flights", turn)

    first = [early, define, fill(0), refuse, ask("first"), ask("again")]
    return first, [ask("restarted"), *([fill(1), ask("second")] if life.phases > 1 else [])]


def _visible(world: Any, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Everything that can be seen of a run."""
    metrics = world.processes[-1].worker.metrics.exposition().decode()
    return {
        "released": [
            (e.outgoing.role, e.outgoing.key, e.outgoing.value, e.outgoing.headers)
            for e in world.trail
            if hasattr(e, "outgoing")
        ],
        "logged": [(r.name, r.levelname, r.getMessage()) for r in caplog.records],
        # When something was committed says nothing of a row, and is never the same twice.
        "metrics": [line for line in metrics.splitlines() if "_timestamp_seconds" not in line],
        "pages": _pages(world),
        "commits": [
            (
                len(t.pending),
                [len(rows) for rows in t.pending],
                len(t.seal or b""),
                {name: len(secret) for name, secret in t.vault.items()},
                t.charges,
                t.intent,
                t.transcript,
            )
            for t in (e.transition for e in world.trail if hasattr(e, "transition"))
        ],
        "journal": [_said(entry) for entries in world.journal for entry in entries],
        "kept": [(key.split(b"/")[:2], len(value)) for key, value in world.kept.items()],
        "places": [
            t.seal
            for t in (e.transition for e in world.trail if hasattr(e, "transition"))
            if t.seal is not None and Place.is_in(t.seal)
        ],
        "blocks": [process.store.blocks for process in world.processes],
        "fetched": [
            [key.split(b"/")[:2] for key in process.kept.fetched] for process in world.processes
        ],
        "steps": [process.effects for process in world.processes],
    }


def _said(entry: Any) -> object:
    """An entry of the journal, without what is drawn at random whatever the rows are."""
    if dict(entry.headers)["type"] != b"commit":
        return entry.key, entry.headers
    record, _ = CommitRecord.from_bytes(entry.value)
    meta = {
        name: re.sub("[0-9a-f]{16}", "", text) if name in (JOURNAL, WAITED) else text
        for name, text in record.meta.items()
        if not name.startswith("kept ")
    }
    return entry.headers, replace(record, prev=b"", nonce=b"", meta=meta)


def _pages(world: Any) -> list[dict[str, bytes]]:
    """What the pages and their streams show of each data set, to operators and analysts."""
    published = Published()
    for event in world.trail:
        if hasattr(event, "outgoing") and event.outgoing.role in READ:
            published.take(event.outgoing.role, event.outgoing.key, event.outgoing.value, 0)
    for place, records in world.log.items():
        for record in records if place.startswith("in.queries:") else ():
            published.take("queries", (record.key or b"").decode(), record.value, 0)
    at_work = world.processes[-1].worker
    health = Health(
        ready=at_work.ready,
        partitions=tuple(sorted(at_work.ownership.held)),
        waiting={name: dataset.waiting for name, dataset in at_work.datasets.items()},
        quarantined={name: d.quarantined for name, d in at_work.datasets.items() if d.quarantined},
    )
    views = Views(published)
    return [
        {"health": health_document(health)},
        *(view(name) for name in published.datasets for view in (views.public, views.operator)),
    ]


async def _run(
    world: Any, noise: Any, life: Life, row: Row, caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    world.make_noise = lambda _: noise
    for rounds in _rounds(life, row):
        await world.run(rounds=rounds)
    return _visible(world, caplog)


@dataclass
class Both:
    """Two runs that differ in one row, and whose releases are alike."""

    seen: list[dict[str, Any]]
    worlds: list[Any]
    noise: list[Compensating]


@pytest.fixture
def both(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    caplog: pytest.LogCaptureFixture,
) -> Callable[..., Any]:
    """``await both(life)``: its two runs."""

    async def run(
        life: Life, *, compensated: bool = True, other: Row = THOSE, blocks: str = "store"
    ) -> Both:
        script, found = Script(), Both([], [], [])
        for row, first in ((THESE, True), (other, not compensated)):
            noise = Compensating(script if compensated else Script(), first=first)
            showing(noise)
            found.noise.append(noise)
            found.worlds.append(make_world())
            found.worlds[-1].blocks = blocks
            found.seen.append(await _run(found.worlds[-1], noise, life, row, caplog))
        return found

    return run


@pytest.mark.parametrize("name", LIVES)
async def test_two_runs_that_differ_in_a_row_look_the_same(
    both: Callable[..., Any], name: str
) -> None:
    life = LIVES[name]
    runs = await both(life)
    for world in runs.worlds:
        assert world.complaints() == []
    assert runs.noise[1].told_apart >= life.looks - {PhaseLook}
    replies = [reply["status"] for reply in runs.worlds[0].released("answers")]
    assert replies.count("answered") > len(replies) / 2
    rejected = runs.worlds[0].released("rejected")
    assert len(rejected) >= 8
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


ON_TOPIC = ("calibrated", "calibrated, values are kept", "calibrated, rows are erased")


@pytest.mark.parametrize("name", ON_TOPIC)
async def test_two_runs_whose_blocks_are_on_the_topic_alone_look_the_same(
    both: Callable[..., Any], name: str
) -> None:
    runs = await both(LIVES[name], blocks="topic")
    for world in runs.worlds:
        assert world.complaints() == []
    assert runs.seen[0]["places"]
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


async def test_a_copy_whose_blocks_are_as_long_as_their_cells_are_many_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = Block._merged_to_bytes

    def shorter(self: Block) -> bytes:
        return padded(replace(self, capacity=len(self.counts)))

    monkeypatch.setattr(Block, "_merged_to_bytes", shorter)
    runs = await both(LIVES["calibrated"], blocks="topic")
    assert runs.seen[0]["places"] != runs.seen[1]["places"]


@pytest.mark.parametrize("delay", [7, 5.5, "9", 0])
async def test_two_runs_that_differ_in_a_value_within_a_cell_look_the_same(
    both: Callable[..., Any], delay: Any
) -> None:
    """Only a look at a sum of values can see another row then."""
    runs = await both(LIVES["calibrated, values are kept"], other={**THESE, "delay": delay})
    for world in runs.worlds:
        assert world.complaints() == []
    assert runs.noise[1].told_apart == ({SumLook} if delay != 5.5 else set())
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


@pytest.mark.parametrize(
    "delay",
    ["1970-02-03T10:00:00.5Z", "1970-02-03 10:00", CANARY, "1970-02-30", "x" * 4096, 1e300, None],
)
async def test_two_runs_that_differ_in_a_date_look_the_same(
    both: Callable[..., Any], delay: Any
) -> None:
    """Whether it can be read or not."""
    runs = await both(LIVES["calibrated, dates"], other={**THESE, "delay": delay})
    for world in runs.worlds:
        assert world.complaints() == []
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


async def test_a_copy_that_says_how_many_values_are_clamped_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Dataset.store_batch

    def counting(self: Dataset, event: Event) -> bytes:
        top = [int((rows.measures[1] == 70).sum()) for rows in self._pending]
        return store(self, event.model_copy(update={"note": f"{sum(top)} values are clamped"}))

    monkeypatch.setattr(Dataset, "store_batch", counting)
    runs = await both(LIVES["calibrated, values are kept"])
    assert runs.seen[0]["released"] != runs.seen[1]["released"]


def _rows_that_come_again(row: Row) -> Callable[[Any], list[Callable[[Any], None]]]:
    """Rounds in which batches come again when their outcomes are dropped, with one row that is another."""

    def rounds(world: Any) -> list[Callable[[Any], None]]:
        kept = {"mechanism": {"base_share": 0.0}, "retention": {"answers": {"days": 1}}}
        world.now_ms = 0

        def day(_: Any) -> None:
            world.now_ms += 86_400_000
            world.batch("flights", "again", rows=[row, THESE])
            world.counted("flights", "till-7", 3, rows=[row])
            world.batch("flights", f"new-{world.now_ms}", rows=[row])

        return [lambda _: world.define("flights", **kept), *[day] * 5]

    return rounds


def _says_which_rows_came(patch: pytest.MonkeyPatch) -> None:
    known = ingesting.known_before

    def telling(dataset: Dataset, batch: Batch) -> None:
        announce = dataset.announce

        def with_note(event: Event) -> bytes:
            return announce(event.model_copy(update={"note": f"{batch.rows}"}))

        with patch.context() as more:
            more.setattr(dataset, "announce", with_note)
            known(dataset, batch)

    patch.setattr(ingesting, "known_before", telling)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_batch_that_is_known_is_answered_alike_whatever_it_holds(
    make_world: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_broken: bool,
) -> None:
    """Else a repeat would tell whether its rows are those that were counted."""
    if is_broken:
        _says_which_rows_came(monkeypatch)
    seen = []
    for row in (THESE, THOSE):
        world = make_world()
        caplog.clear()
        await world.run(rounds=_rows_that_come_again(row)(world))
        assert {event["event"] for event in world.events()} >= {"batch_accepted", "batch_known"}
        assert len(world.events("batch_known")) >= 2
        seen.append(_visible(world, caplog))
    told_apart = {what for what in seen[0] if seen[0][what] != seen[1][what]}
    assert told_apart == ({"released", "journal", "pages"} if is_broken else set())


async def test_without_the_compensation_the_runs_are_told_apart(both: Callable[..., Any]) -> None:
    """The data does differ: the test above compares what it should."""
    runs = await both(LIVES["calibrated"], compensated=False)
    assert runs.seen[0]["released"] != runs.seen[1]["released"]


@pytest.mark.parametrize("where", ["handle", "decode"])
async def test_a_batch_that_kills_the_worker_is_quarantined_alike_whatever_it_holds(
    make_world: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """It ends the worker when it is decided on, or already when it is read."""
    owner: Any = worker if where == "decode" else deciding.Decider
    step = getattr(owner, where)

    def deadly(*arguments: Any) -> Any:
        piece = next((one for one in arguments if isinstance(one, Piece)), None)
        record = arguments[0] if piece is None else piece.record
        if b"deadly" in (record.value or b"") and not (piece and piece.suspect):
            raise world.Crash
        return step(*arguments)

    monkeypatch.setattr(owner, where, deadly)
    life, seen = LIVES["calibrated"], []
    for row in (THESE, THOSE):
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        world = make_world()
        await world.run(rounds=[lambda w: life.define(w, "flights")])

        def fill(world: Any, row: Row = row) -> None:
            world.batch("flights", "deadly", rows=[THESE, row])
            world.batch("flights", "behind", rows=[row])

        assert await world.run(*[world.Fuse() for _ in range(10)], rounds=[fill]) > 1
        assert world.complaints() == []
        # A worker names itself at random; which names it takes says nothing of a row.
        seen.append(_visible(world, caplog))
    codes = {reply["reason"]["code"] for reply in world.released("rejected")}
    assert codes == {"quarantined" if where == "handle" else "unreadable"}
    for what in seen[0]:
        assert seen[0][what] == seen[1][what], what


# ---------------------------------------------------------------- rows off another topic


N_MESSAGES: Final = 240
MESSAGE: Final = b'{"carrier":"AA","delay":5,"cancelled":false}'
OTHERS: Final = {
    "of another cell": b'{"carrier":"canary-7f3a","delay":1e30,"cancelled":null}',
    "that is not JSON": b'{"carrier":',
    "of a hundred kilobytes": b'{"carrier":"%s"}' % (b"x" * 100_000),
    "without a value": None,
}


@dataclass(frozen=True)
class Message:
    """A record of somebody else's topic."""

    offset: int
    value: bytes | None
    timestamp: int = 1_793_491_200_000


class Broker:
    """What a source reader sees of Kafka: a topic of one partition, and a worker that takes its batches.

    Attributes:
        sent: The batches, in order.
        seen: Everything else that it was told, in order.
    """

    def __init__(self, values: Sequence[bytes | None], process: Any) -> None:
        self._messages = [Message(offset, value) for offset, value in enumerate(values)]
        self._place = TopicPartition("shop.flights", 0)
        self._process = process
        self._at = 0
        self.sent: list[dict[str, Any]] = []
        self.seen: list[object] = []
        self.is_read = asyncio.Event()

    # -- the consumer

    def consumer(self, **_: object) -> Broker:
        return self

    def subscribe(self, topics: Sequence[str], listener: object) -> None:
        self.seen.append(("subscribed", topics))

    async def start(self) -> None:
        """There is nothing to start."""

    stop = start

    def assignment(self) -> set[TopicPartition]:
        return {self._place}

    async def getmany(self, *places: Any, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        found = self._messages[self._at : self._at + max_records]
        self._at += len(found)
        self.seen.append(("fetched", places, max_records, len(found)))
        if not found:
            self.is_read.set()
            await asyncio.sleep(timeout_ms)
        return {self._place: found}

    async def committed(self, _: TopicPartition) -> int | None:
        return None

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at = offset
        self.seen.append(("sought", place, offset))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.seen.append(("committed", dict(offsets)))

    # -- the producer

    async def send_and_locate(self, outgoing: Outgoing) -> tuple[str, int]:
        """Where the record stands; the worker has taken it by then."""
        assert outgoing.role == "batches"
        self.sent.append(json.loads(outgoing.value))
        record = self._process.world.produce("batches", outgoing.value, key=outgoing.key)
        await self._process.run()
        return record.topic_partition, record.offset


async def _read(
    monkeypatch: pytest.MonkeyPatch, process: Any, other: bytes | None, batch_rows: int
) -> Broker:
    """Reads a topic whose message in the middle is ``other``."""
    values: list[bytes | None] = [MESSAGE] * N_MESSAGES
    values[N_MESSAGES // 2] = other
    broker = Broker(values, process)

    async def described(_: Any, topics: Sequence[str]) -> list[dict[str, Any]]:
        return [{"error_code": 0, "topic_id": "0" * 8} for _topic in topics]

    monkeypatch.setattr(sources, "AIOKafkaConsumer", broker.consumer)
    monkeypatch.setattr(sources, "described_topics", described)
    monkeypatch.setattr(sources, "_IDLE_S", 3600.0)
    source = Source(
        version=1,
        dataset="flights",
        topic="shop.flights",
        batch_rows=batch_rows,
        wait_seconds=3600.0,
    )
    definition = process.worker.datasets["flights"].definition
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    unlike: Any = broker
    store = process.world.store
    reader = SourceReader(source, store, unlike, lambda _: definition, settings=settings)
    reading = asyncio.create_task(reader.run())
    is_read = asyncio.create_task(broker.is_read.wait())
    await asyncio.wait({reading, is_read}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, is_read):
        task.cancel()
    ended = await asyncio.gather(reading, is_read, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError), ended[0]
    return broker


async def _defined(world: Any) -> Any:
    """A worker that holds a data set whose phases open with all messages of a topic."""
    process = world.process()
    await process.assign()
    world.define("flights", phase={"min_rows": N_MESSAGES}, mechanism={"base_share": 0.2})
    await process.run()
    return process


def _facts(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What a batch off a source says beside its rows, how many these are, and in which form they come."""
    rows: Any = batch["columns"]["carrier"] if "columns" in batch else batch["cells"]
    n_rows = len(rows) if "columns" in batch else sum(cell["count"] for cell in rows)
    rest = {name: value for name, value in batch.items() if name not in {"cells", "columns"}}
    return {**rest, "rows": n_rows, "entries": len(rows), "listed": "cells" in batch}


@pytest.mark.parametrize("batch_rows", [40, 240], ids=["columns", "cells"])
@pytest.mark.parametrize("other", OTHERS)
async def test_two_topics_that_differ_in_a_message_are_counted_alike(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    other: str,
    batch_rows: int,
) -> None:
    """The batches' ids, sizes, form and order are the same, and what the worker makes of them."""
    script, seen, brokers = Script(), [], []
    for value, first in ((MESSAGE, True), (OTHERS[other], False)):
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        noise = Compensating(script, first=first)
        showing(noise)
        world = make_world()
        world.make_noise = lambda _, noise=noise: noise
        process = await _defined(world)
        brokers.append(await _read(monkeypatch, process, value, batch_rows))
        LIVES["calibrated"].ask(world, "flights", "q")
        await process.run()
        await process.kill()
        assert world.complaints() == []
        assert len(world.events("phase_opened")) == 1
        seen.append(_visible(world, caplog))
    assert list(map(_facts, brokers[0].sent)) == list(map(_facts, brokers[1].sent))
    assert len(brokers[0].sent) == N_MESSAGES // batch_rows
    assert brokers[0].seen == brokers[1].seen
    assert brokers[0].sent != brokers[1].sent
    assert noise.told_apart
    for what in seen[0]:
        assert seen[0][what] == seen[1][what], what


async def test_a_reader_that_drops_what_it_cannot_read_is_told_apart(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of batches can fail."""
    batch = Packing.batch

    def without(self: Packing, of_it: Any, rows: Sequence[Sequence[object]], about: Any) -> bytes:
        return batch(self, of_it, [row for row in rows if row[0] is not None], about)

    monkeypatch.setattr(Packing, "batch", without)
    facts = []
    for value in (MESSAGE, OTHERS["that is not JSON"]):
        process = await _defined(make_world())
        broker = await _read(monkeypatch, process, value, 40)
        await process.kill()
        facts.append(list(map(_facts, broker.sent)))
    assert facts[0] != facts[1]


# ---------------------------------------------------------------- the comparison can fail


BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {}


def broken(where: str) -> Callable[[Any], Any]:
    """Registers a broken copy, and where the comparison finds it first."""

    def register(
        mutate: Callable[[pytest.MonkeyPatch], None],
    ) -> Callable[[pytest.MonkeyPatch], None]:
        BROKEN[mutate.__name__] = (where, mutate)
        return mutate

    return register


def _unlisted(rows: Any) -> int:
    """Rows whose carrier the definition does not list: a true count."""
    return int(rows.entry_counts[rows.codes[0] == 2].sum())


def _first_cell(dataset: Dataset) -> int:
    """A true count of all phases."""
    data = dataset._data
    return int(sum(table[2] for table in data.marginal((0,), range(len(data))))) if len(data) else 0


def _with_reason(value: bytes, more: object) -> bytes:
    reply = json.loads(value)
    reply["reason"]["message"] += str(more)
    return json.dumps(reply).encode()


@broken("released")
def an_event_counts_the_rows_of_a_cell(patch: pytest.MonkeyPatch) -> None:
    store = Dataset.store_batch

    def counting(self: Dataset, event: Event) -> bytes:
        of_it = _unlisted(self._pending[-1]) if self._pending and event.waiting else 0
        return store(self, event.model_copy(update={"waiting": (event.waiting or 0) + of_it}))

    patch.setattr(Dataset, "store_batch", counting)


@broken("released")
def an_answer_notes_a_true_count(patch: pytest.MonkeyPatch) -> None:
    answered = replying.Replying.answered

    def noting(self: Any, *arguments: Any) -> Any:
        reply = answered(self, *arguments)
        return reply.model_copy(update={"note": str(_first_cell(self.dataset))})

    patch.setattr(replying.Replying, "answered", noting)


@broken("released")
def a_rejection_has_a_digest(patch: pytest.MonkeyPatch) -> None:
    rejection = deciding.Decider.rejection

    def digesting(self: Any, record: Any, error: Any, *more: Any, **named: Any) -> Outgoing:
        outgoing = rejection(self, record, error, *more, **named)
        digest = hashlib.blake2b(record.value or b"", key=b"secret").hexdigest()
        return Outgoing(outgoing.role, outgoing.key, _with_reason(outgoing.value, digest))

    patch.setattr(deciding.Decider, "rejection", digesting)


@broken("released")
def the_ledger_counts_cells(patch: pytest.MonkeyPatch) -> None:
    write = Dataset.write_ledger

    def counting(self: Dataset, kind: str, body: Mapping[str, object]) -> None:
        write(self, kind, {**body, "cells": _first_cell(self)})

    patch.setattr(Dataset, "write_ledger", counting)


@broken("released")
def synthetic_rows_are_noted_a_true_count(patch: pytest.MonkeyPatch) -> None:
    synthesize = Dataset._synthesize

    def noting(self: Dataset) -> None:
        synthesize(self)
        for outgoing in self._draft.outgoing:
            if outgoing.role == "synthetic":
                found = json.loads(outgoing.value)
                found["note"] += str(_first_cell(self))
                object.__setattr__(outgoing, "value", json.dumps(found).encode())

    patch.setattr(Dataset, "_synthesize", noting)


@broken("logged")
def a_log_record_says_what_a_row_holds(patch: pytest.MonkeyPatch) -> None:
    wait = Dataset._wait

    def logging_it(self: Dataset, rows: Any) -> None:
        logging.getLogger("stream_dp").debug("%s rows are of other carriers", _unlisted(rows))
        wait(self, rows)

    patch.setattr(Dataset, "_wait", logging_it)


@broken("metrics")
def a_metric_shows_a_true_count(patch: pytest.MonkeyPatch) -> None:
    exposition = Metrics.exposition

    def counting(self: Metrics) -> bytes:
        datasets = self._worker.datasets.values() if self._worker is not None else ()
        return exposition(self) + b"others %d\n" % sum(map(_first_cell, datasets))

    patch.setattr(Metrics, "exposition", counting)


@broken("released")
def rows_that_wait_are_counted_by_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    def waiting(self: Dataset) -> int:
        return self._waiting + sum(map(_unlisted, self._pending))

    patch.setattr(Dataset, "waiting", property(waiting))


@broken("commits")
def a_block_is_stored_without_padding(patch: pytest.MonkeyPatch) -> None:
    seal = Block.seal

    def short(*arguments: Any, **named: Any) -> Block:
        block = seal(*arguments, **named)
        object.__setattr__(block, "capacity", len(block.counts))
        return block

    patch.setattr(Block, "seal", short)


@broken("blocks")
def a_block_is_kept_in_memory_if_a_count_is_even(patch: pytest.MonkeyPatch) -> None:
    get = BlockCache.get

    def choosy(self: BlockCache, owner: StoredBlocks, index: int) -> Block | None:
        block = get(self, owner, index)
        odd = block is not None and block.counts[block.codes[0] == 2].sum() % 2
        return None if odd else block

    patch.setattr(BlockCache, "get", choosy)


@broken("steps")
def a_row_of_another_cell_takes_a_step_more(patch: pytest.MonkeyPatch) -> None:
    accept = Dataset.accept

    async def asking(self: Dataset, batch: Any, rows: Any) -> bytes:
        for _ in range(_unlisted(rows)):
            await self._store.ledger(self.name)
        return await accept(self, batch, rows)

    patch.setattr(Dataset, "accept", asking)


@broken("released")
def a_count_has_no_noise(patch: pytest.MonkeyPatch) -> None:
    take = CountsLook.take

    def exact(self: CountsLook, noise: Any, data: Blocks) -> Any:
        release = take(self, noise, data)
        values = np.array(_of_counts(self, data, None))
        return type(release)(release.key, release.attributes, release.steps, values)

    patch.setattr(CountsLook, "take", exact)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_copy_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where, mutate = BROKEN[name]
    mutate(monkeypatch)
    runs = await both(LIVES["calibrated"])
    assert runs.seen[0][where] != runs.seen[1][where]


# ---------------------------------------------------------------- whose rows these are


N_OF_PERSONS: Final = 21_000
WHOSE: Final[dict[str, Callable[[int], object]]] = {
    "one person's": lambda _: 7,
    "nobody's": lambda _: None,
    "everybody's": lambda n: f"{CANARY}-{n}",
    "without ids that are keys": lambda n: [CANARY, n],
}


def _lived_by_persons(whose: Callable[[int], object]) -> tuple[list[Callable[[Any], None]], ...]:
    """Two phases, whose rows are the same but for whose they are, and a worker that takes over between."""
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 3}

    def define(world: Any) -> None:
        world.define(
            "flights",
            privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit},
            mechanism={"base_share": 0.001},
        )

    def fill(phase: int) -> Callable[[Any], None]:
        def filled(world: Any) -> None:
            like = [("AA", 5, False), ("UA", 45, True), ("ZZ", -3, False)]
            rows = [like[n % 3] for n in range(N_OF_PERSONS)]
            columns: dict[str, list[Any]] = {
                name: list(column)
                for name, column in zip(THESE, zip(*rows, strict=True), strict=True)
            }
            keys = [whose(n) for n in range(N_OF_PERSONS)]
            world.batch("flights", f"all-{phase}", columns=columns | {"user_id": keys})
            world.batch("flights", f"keyless-{phase}", columns=columns)
            world.batch("flights", f"cells-{phase}", cells=[THESE | {"count": 3}])
            some = [THESE | {"user_id": keys[n]} for n in range(20)]
            world.batch("flights", f"waits-{phase}", rows=some)
            world.batch("flights", f"bad-{phase}", rows=[*some, {CANARY: 1}])

        return filled

    def ask(turn: str) -> Callable[[Any], None]:
        return lambda world: LIVES["calibrated, values are kept"].ask(world, "flights", turn)

    return [define, fill(0), ask("first")], [ask("restarted"), fill(1), ask("second")]


@pytest.fixture
def owned(
    make_world: Callable[..., Any],
    showing: Callable[[Compensating], None],
    caplog: pytest.LogCaptureFixture,
) -> Callable[..., Any]:
    """``await owned(whose)``: what is seen of the rows of 7,000 persons, and of the same rows of others."""

    async def run(whose: Callable[[int], object]) -> Both:
        script, found = Script(), Both([], [], [])
        for owners, first in ((lambda n: n % 7_000, True), (whose, False)):
            noise = Compensating(script, first=first)
            showing(noise)
            caplog.clear()
            caplog.set_level(logging.DEBUG)
            world = make_world()
            world.make_noise = lambda _, noise=noise: noise
            for rounds in _lived_by_persons(owners):
                await world.run(rounds=rounds)
            found.seen.append(_visible(world, caplog))
            found.worlds.append(world)
            found.noise.append(noise)
        return found

    return run


@pytest.mark.parametrize("name", WHOSE)
async def test_two_runs_that_differ_in_whose_rows_these_are_look_the_same(
    owned: Callable[..., Any], name: str
) -> None:
    runs = await owned(WHOSE[name])
    for world in runs.worlds:
        assert world.complaints() == []
        assert len(world.events("phase_opened")) == 2
        assert len(world.events("batch_refused")) == 6
    assert {RowsLook, TablesLook} <= runs.noise[1].told_apart
    for what in runs.seen[0]:
        assert runs.seen[0][what] == runs.seen[1][what], what


def _an_event_says_how_many_rows_count(patch: pytest.MonkeyPatch) -> None:
    announce = Dataset.announce

    def counting(self: Dataset, event: Event) -> bytes:
        if event.event == "phase_opened":
            event = event.model_copy(update={"rows": int(self._data.marginal((), range(1))[0])})
        return announce(self, event)

    patch.setattr(Dataset, "announce", counting)


def _a_metric_counts_persons(patch: pytest.MonkeyPatch) -> None:
    exposition = Metrics.exposition

    def counting(self: Metrics) -> bytes:
        datasets = self._worker.datasets.values() if self._worker is not None else ()
        waiting = [rows for dataset in datasets for rows in dataset._pending]
        persons = {bytes(one) for rows in waiting if rows.whose for one in rows.whose.digests}
        return exposition(self) + b"persons %d\n" % len(persons)

    patch.setattr(Metrics, "exposition", counting)


@pytest.mark.parametrize(
    ("where", "mutate"),
    [("released", _an_event_says_how_many_rows_count), ("metrics", _a_metric_counts_persons)],
)
async def test_a_copy_that_shows_whose_rows_these_are_is_told_apart(
    owned: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    mutate: Callable[[pytest.MonkeyPatch], None],
) -> None:
    mutate(monkeypatch)
    runs = await owned(lambda n: n // 2)
    assert runs.seen[0][where] != runs.seen[1][where]


async def test_no_word_of_a_row_leaves_or_is_logged(
    make_world: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    row = {"carrier": CANARY, "delay": CANARY, "cancelled": CANARY}
    caplog.set_level(logging.DEBUG)
    await world.run(
        world.Fuse(60),
        rounds=[one for rounds in _rounds(LIVES["calibrated"], row) for one in rounds],
    )
    said = b"".join(
        e.outgoing.value + str(e.outgoing).encode() for e in world.trail if hasattr(e, "outgoing")
    )
    assert CANARY.encode() not in said
    assert CANARY not in caplog.text
    worker = world.processes[-1].worker
    assert CANARY.encode() not in worker.metrics.exposition()


async def test_no_repr_shows_what_is_private(world: Any) -> None:
    seen: list[str] = []
    process = world.process()
    await process.assign()
    world.define("flights")
    await process.run()
    count = 918_273
    record = world.batch("flights", "b", cells=[{"carrier": CANARY, "count": count}])
    world.batch("flights", "rows", rows=[{"carrier": CANARY}])
    await process.run()
    dataset = process.worker.datasets["flights"]
    snapshot = await world.store.acquire("flights")
    seen += [
        repr(record),
        repr(dataset),
        repr(dataset._data),
        repr(dataset._pending),
        repr(snapshot),
    ]
    seen += [
        repr(dataset._mechanism),
        repr(dataset._draft),
        repr(process.worker),
        repr(world.store),
    ]
    for event in world.trail:
        seen += [repr(event), repr(getattr(event, "transition", ""))]
    from stream_dp.messages import Batch

    seen.append(
        repr(Batch.read({"version": 1, "dataset": "flights", "batch_id": "b", "rows": [CANARY]}))
    )
    everything = "".join(seen)
    assert CANARY not in everything
    block = await world.store.block("flights", snapshot.token, 0)
    assert block.hex() not in everything
    assert repr(block) not in everything
    await process.kill()


def _memory_decides(patch: pytest.MonkeyPatch, easy: bool) -> None:
    patch.setattr(EasinessTest, "is_easy", lambda *_, **__: easy)


def _segment_decides(patch: pytest.MonkeyPatch, easy: bool) -> None:
    def is_below(segment: gates.Segment, *_: object, **__: object) -> bool:
        segment.open = easy
        return easy

    patch.setattr(gates.Segment, "is_below", is_below)


@pytest.mark.parametrize(
    ("mechanism", "decides"),
    [
        (None, _memory_decides),
        ({"profile": "gated", "segments": 20}, _segment_decides),
        ({"profile": "weights"}, _segment_decides),
    ],
)
async def test_a_profile_that_tests_takes_the_same_steps_for_easy_and_hard(
    make_world: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mechanism: dict[str, Any] | None,
    decides: Callable[[pytest.MonkeyPatch, bool], None],
) -> None:
    """Whether a query was easy is published; nothing else may tell how near it was."""

    def define(world: Any) -> None:
        if mechanism is None:
            world.define_memory("tested")
        else:
            world.define("tested", mechanism=mechanism)

    steps = []
    for easy in (True, False):
        caplog.clear()
        world = make_world()
        with monkeypatch.context() as patch:
            decides(patch, easy)
            await world.run(
                rounds=[
                    define,
                    lambda w: w.batch("tested", "b", cells=[{"carrier": "AA", "count": 1_200_000}]),
                    lambda w: w.ask("tested", "q", AA),
                ]
            )
        commits = [e.transition for e in world.trail if hasattr(e, "transition")]
        steps.append(
            (
                [len(t.transcript[0]) if t.transcript else 0 for t in commits],
                [len(e.outgoing.role) for e in world.trail if hasattr(e, "outgoing")],
                [r.getMessage() for r in caplog.records],
                world.processes[-1].effects,
            )
        )
        assert world.answer("q")["path"] == ("gated" if easy else "measured")
    assert steps[0] == steps[1]


async def test_a_guess_at_a_rejected_batch_is_rejected_in_words_that_compare_with_nothing(
    make_world: Callable[..., Any],
) -> None:
    """The batch comes before its data set, and a stage at its bytes comes on another topic."""
    said = []
    for stageed in ("UA", "AA"):
        world = make_world()
        batch = world.batch("flights", "b", rows=[{"carrier": "UA", "delay": 5, "cancelled": None}])
        stage = (batch.value or b"").replace(b"UA", stageed.encode())
        asked = world.produce("queries", stage, key="flights")
        await world.run()
        said.append([world.rejection(batch), world.rejection(asked)])
    assert said[0] == said[1]
    assert set(said[0][0]) == {"version", "topic", "partition", "offset", "dataset", "reason"}
