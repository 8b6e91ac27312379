"""Kind ``threshold``: every threshold of an ordered attribute, from one release a block.

The first query about an attribute looks at each block of its window that was not looked at for it; from
then on all thresholds and ranges of that attribute are free, in any window of these blocks. What a
look publishes is a matter of its plan: a tree of counts, or a partition of the bins with the tree of its
segments. Sources and guarantees: ``core/kinds/threshold/count_tree.py`` and ``partition.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, fields
from stream_dp.core.kinds.kind_answerer import (
    Answerer,
    KindLook,
    KindTerms,
    as_share,
    bin_range,
    ordered,
)
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.kinds.threshold.count_tree import Tree, TreePlan
from stream_dp.core.kinds.threshold.partition import PartitionPlan, Partitions
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    RefusalCode,
    Refused,
    TableAnswered,
)
from stream_dp.core.queries.query import EVERYTHING, KindQuery
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource
from stream_dp.core.rows.blocks import Blocks

MOST_DRAWN: Final = 2**20
"""Draws of noise for one look: about ten seconds' worth."""

_FORMAT = Format("curve")  # attribute, number of blocks, each with what was published of it

Published = TypeVar("Published")


Curve: TypeAlias = Tree | Partitions
"""The estimates about a window that follow from what is published."""


class CurvePlan(Protocol[Published]):
    """The plan of a look: what it publishes of one block, and what that says.

    ``TreePlan`` and ``PartitionPlan`` are plans.
    """

    @property
    def n_bins(self) -> int: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def scales(self) -> dict[str, object]: ...
    def reserve(self, noise: NoiseSource, n_rows: int) -> None: ...
    def measure(self, counts: IntArray, noise: NoiseSource) -> Published: ...
    def to_bytes(self, published: Published, /) -> bytes: ...
    def from_bytes(self, data: bytes) -> Published: ...
    def over(self, releases: Sequence[Published], sizes: Sequence[int]) -> Curve: ...


@dataclass(frozen=True, slots=True)
class CurvesRelease:
    """The published output about one attribute in some blocks, as its plan writes it."""

    attribute: int
    blocks: tuple[int, ...]
    published: tuple[bytes, ...] = field(repr=False)

    def to_bytes(self) -> bytes:
        parts = [fields("<HI", self.attribute, len(self.blocks))]
        for block, published in zip(self.blocks, self.published, strict=True):
            parts += [fields("<II", block, len(published)), published]
        return _FORMAT.pack(*parts)


@dataclass(frozen=True)
class CurvesLook(KindLook):
    """Looks at one attribute in blocks that were not yet looked at for it."""

    plan: CurvePlan[Any]
    attribute: int
    blocks: tuple[int, ...]
    sizes: tuple[int, ...]
    charges: tuple[Charge, ...]

    @property
    def loss(self) -> Loss:
        return self.plan.loss

    @property
    def description(self) -> dict[str, object]:
        return {
            "attribute": self.attribute,
            "blocks": list(self.blocks),
            "epsilon": float(self.plan.loss.epsilon),
            **self.plan.scales,
        }

    def reserve(self, noise: NoiseSource) -> None:
        for n_rows in self.sizes:
            self.plan.reserve(noise, n_rows)

    def take(self, noise: NoiseSource, data: Blocks) -> CurvesRelease:
        published = []
        for block in self.blocks:
            (counts,) = data.marginal((self.attribute,), range(block, block + 1))
            published.append(self.plan.to_bytes(self.plan.measure(counts, noise)))
        return CurvesRelease(self.attribute, self.blocks, tuple(published))


class Thresholds(Answerer[CurvesRelease]):
    """Thresholds, ranges and quantiles of every ordered attribute.

    Args:
        partition: Whether bins are joined to segments before their tree is made.
    """

    name = "threshold"
    approximate = False

    def __init__(self, terms: KindTerms, *, partition: bool = False) -> None:
        super().__init__(terms)
        self._plans = {
            index: self._plan(attribute.size, partition=partition)
            for index, attribute in enumerate(self._universe.attributes)
            if attribute.orders_all
        }
        self._published: dict[tuple[int, int], Any] = {}

    def _plan(self, n_bins: int, *, partition: bool) -> CurvePlan[Any]:
        epsilon = self._loss.epsilon
        if not partition:
            return TreePlan(n_bins, epsilon)
        return PartitionPlan(n_bins, epsilon / 4, epsilon / 2, self._failure_probability)

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        attribute = asked.attribute
        assert attribute is not None, "the kind is about an attribute"
        refused = ordered(self._universe, attribute, asked.kind)
        if refused is not None:
            return refused
        if asked.predicate != EVERYTHING:
            bins = bin_range(asked)
            if not isinstance(bins, range):
                return bins
        lacking = tuple(b for b in asked.window if (attribute, b) not in self._published)
        if not lacking:
            return self._answered(asked, Path.CERTIFIED)
        plan = self._plans[attribute]
        at_once = MOST_DRAWN // plan.n_bins
        if len(lacking) > at_once:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"window: {len(lacking):,} of its phases were not looked at yet, and at once at most "
                f"{at_once:,} are; ask about the last ones first, and then about more",
            )
        sizes = tuple(self._sizes[block] for block in lacking)
        charges = self._charges(lacking)
        return CurvesLook(plan, attribute, lacking, sizes, charges)

    def absorb(self, release: CurvesRelease) -> None:
        plan = self._plans[release.attribute]
        for block, published in zip(release.blocks, release.published, strict=True):
            self._published[release.attribute, block] = plan.from_bytes(published)

    def conclude(self, asked: KindQuery, look: KindLook, release: CurvesRelease) -> Outcome:
        del look, release  # absorbed by now
        return self._answered(asked, Path.MEASURED)

    def release_from_bytes(self, data: bytes) -> CurvesRelease:
        reader = _FORMAT.read(data)
        attribute, n_blocks = reader.fields("<HI")
        reader.require(attribute in self._plans)
        blocks, published = [], []
        for _ in range(n_blocks):
            block, length = reader.fields("<II")
            blocks.append(block)
            published.append(reader.take(length))
            self._plans[attribute].from_bytes(published[-1])
        reader.end()
        return CurvesRelease(attribute, tuple(blocks), tuple(published))

    # ------------------------------------------------------------ answers

    def _answered(self, asked: KindQuery, path: Path) -> Outcome:
        attribute, window = asked.attribute, asked.window
        assert attribute is not None, "the kind is about an attribute"
        plan = self._plans[attribute]
        curve = plan.over(
            [self._published[attribute, block] for block in window],
            [self._sizes[block] for block in window],
        )
        if asked.predicate == EVERYTHING:
            up_to = [range(code + 1) for code in range(plan.n_bins)]
            cells = [self._count(plan, curve, bins, path) for bins in up_to]
            return TableAnswered(tuple(cells), (len(cells),), path)
        bins = bin_range(asked)
        assert isinstance(bins, range), "checked before the look"
        return self._count(plan, curve, bins, path)

    def _count(self, plan: CurvePlan[Any], curve: Curve, bins: range, path: Path) -> Answered:
        """Rows whose bin is in ``bins``."""
        bar = curve.error_bar_of(bins, self._failure_probability)
        n_thresholds = (bins.start > 0) + (bins.stop < plan.n_bins)
        of_all = n_thresholds * curve.error_bar_simultaneous(self._failure_probability)
        n = curve.n_rows
        return Answered(
            estimate=curve.count(bins),
            n=n,
            error_bar=as_share(bar, n),
            error_bar_simultaneous=as_share(max(bar, of_all), n),
            confidence=1.0 - self._failure_probability,
            path=path,
        )
