"""What each look adds its draws to, or compares with them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from stream_dp import core
from stream_dp.core.baselines.whole_noisy_table import TableLook
from stream_dp.core.kinds.adaptive_threshold.adaptive_law import AdaptiveThresholds, chunk_counts
from stream_dp.core.kinds.between.between_answerer import BetweenLook
from stream_dp.core.kinds.correlated_vector.vector_answerer import ResponsesLook
from stream_dp.core.kinds.kind_answerer import counts_of, secret_of
from stream_dp.core.kinds.median_mode.stable_answerer import StableLook
from stream_dp.core.kinds.median_mode.stable_law import _votes, mode, order_statistic
from stream_dp.core.kinds.points import PointLook
from stream_dp.core.kinds.prefix_batch.batch_answerer import BatchLook
from stream_dp.core.kinds.threshold.count_tree import _nodes
from stream_dp.core.kinds.threshold.curve_answerer import CurvesLook
from stream_dp.core.kinds.threshold.partition import PartitionPlan
from stream_dp.core.kinds.with_kinds import NamedLook
from stream_dp.core.median.doubling_stages import StageLook
from stream_dp.core.median.phase_looks import PhaseLook, QueryLook
from stream_dp.core.randomness.exact_choice import permutation
from stream_dp.core.residual.belief.levels import grouped
from stream_dp.core.residual.keys.key_look import KeyLook
from stream_dp.core.residual.looks.composed_looks import JoinedLook, StagedLook
from stream_dp.core.residual.looks.counted_rows import RowsLook
from stream_dp.core.residual.looks.sum_look import SumLook, exact_sums
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook, exact_answers
from stream_dp.core.rows.blocks import Blocks, count_of
from stream_dp.core.running.periods_look import PeriodsLook
from stream_dp.core.running.tick_look import TickLook
from stream_dp.core.sparse_vector.gates import CountLook
from tests.pipeline.blindfold.draws import Coin, Drawn, Keyed, Law, Statistic


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


def of_counts(look: CountsLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each answer in each block."""
    found: list[Statistic] = []
    for block, _step in look.steps:
        (marginal,) = data.marginal(look.attributes, range(block, block + 1))
        found.append(exact_answers(look.query, look.attributes, marginal))
    return found


def _of_sums(look: SumLook, data: Blocks, _: Any) -> list[Statistic]:
    """Each sum in each block, then the counts, as the noise is drawn."""
    return [row for block, *_ in look.steps for row in exact_sums(look, data, block)]


def _of_keys(look: KeyLook, data: Blocks, _: Any) -> list[Statistic]:
    """How many units say each key, in each window that ends."""
    found: list[Statistic] = []
    for window in filter(None, look.windows):
        counts = data.keys(look.attribute, window)
        named = sorted(name.encode() for name in look.named)
        others = sorted(counts.keys() - {*named})
        found.append(Keyed({key: counts.get(key, 0) for key in (*named, *others)}))
    return found


def _of_ticks(look: TickLook, data: Blocks, _: Any) -> list[Statistic]:
    """What all ticks so far count, added up as the tick publishes it."""
    row, ticks = look.plan.factor.row(look.tick), data.ticks[look.period][: look.tick]
    tiles = range(len(look.plan.sizes))
    return [row @ np.array([one.tables[number] for one in ticks]) for number in tiles]


def _of_joined(look: JoinedLook, data: Blocks, _: Any) -> list[Statistic]:
    """Those of its looks, one after the other."""
    found: list[Statistic] = []
    for part in look.looks:
        found += STATISTICS[type(part)](part, data, _)
    return found


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
    CountsLook: of_counts,
    SumLook: _of_sums,
    JoinedLook: _of_joined,
    KeyLook: _of_keys,
    TickLook: _of_ticks,
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


def looks() -> set[Any]:
    """Every class of the core that looks at rows, but for those that hand on to another one, or read none."""
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
    return found - {NamedLook, StagedLook, StageLook, PeriodsLook}
