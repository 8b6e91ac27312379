"""Kinds ``threshold`` and ``quantile``: every threshold of an ordered attribute, from one tree a block.

The first question about an attribute builds the tree of each block of its window that has none; from then on
all thresholds, ranges and quantiles of that attribute are free, in any window of these blocks. Source and
guarantee: ``core/online/tree.py``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_dp.core.accounting import Budget, Charge
from stream_dp.core.blocks import Blocks
from stream_dp.core.kinds.base import Answerer, Asked, KindLook, as_share, bin_range, ordered
from stream_dp.core.mechanism import Release
from stream_dp.core.noise import IntArray, NoiseSource
from stream_dp.core.online.tree import Tree, TreePlan
from stream_dp.core.outcome import Answered, Found, Outcome, Path, TableAnswered
from stream_dp.core.query import EVERYTHING
from stream_dp.core.universe import Universe
from stream_dp.errors import CorruptState

_HEADER = struct.Struct("<BHII")  # version, attribute, bytes of a tree, blocks
_VERSION = 1


@dataclass(frozen=True, slots=True)
class TreesRelease:
    """Published nodes of one attribute, one array a block, shape (n_bins - 1,)."""

    plan: TreePlan
    attribute: int
    blocks: tuple[int, ...]
    nodes: tuple[IntArray, ...] = field(repr=False)

    def to_bytes(self) -> bytes:
        trees = [self.plan.to_bytes(nodes) for nodes in self.nodes]
        header = _HEADER.pack(_VERSION, self.attribute, len(trees[0]), len(trees))
        return header + struct.pack(f"<{len(trees)}I", *self.blocks) + b"".join(trees)


@dataclass(frozen=True)
class TreesLook(KindLook):
    """Builds the trees of one attribute in the blocks that have none."""

    plan: TreePlan
    attribute: int
    blocks: tuple[int, ...]
    charges: tuple[Charge, ...]

    @property
    def description(self) -> dict[str, object]:
        return {
            "attribute": self.attribute,
            "blocks": list(self.blocks),
            "scale": float(self.plan.scale),
        }

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve("laplace", self.plan.scale, len(self.blocks) * (self.plan.n_bins - 1))

    def take(self, noise: NoiseSource, data: Blocks) -> TreesRelease:
        nodes = []
        for block in self.blocks:
            (counts,) = data.marginal((self.attribute,), range(block, block + 1))
            nodes.append(self.plan.measure(counts, noise))
        return TreesRelease(self.plan, self.attribute, self.blocks, tuple(nodes))


class Thresholds(Answerer):
    """Thresholds, ranges and quantiles of every ordered attribute."""

    name = "threshold"
    kinds = ("threshold", "quantile")
    approximate = False

    def __init__(
        self, universe: Universe, budget: Budget, share: float, failure_probability: float
    ) -> None:
        super().__init__(universe, budget, share, failure_probability)
        self._nodes: dict[tuple[int, int], IntArray] = {}

    def _step(self, asked: Asked) -> Outcome | KindLook:
        attribute = asked.attribute
        assert attribute is not None, "both kinds are about an attribute"
        refused = ordered(self._universe, attribute, asked.kind)
        if refused is not None:
            return refused
        if asked.kind == "threshold" and asked.predicate != EVERYTHING:
            bins = bin_range(asked)
            if not isinstance(bins, range):
                return bins
        lacking = tuple(b for b in asked.window if (attribute, b) not in self._nodes)
        if lacking:
            return TreesLook(self._plan(attribute), attribute, lacking, self._charges(lacking))
        return self._answered(asked, attribute, Path.CERTIFIED)

    def absorb(self, release: Release) -> None:
        assert isinstance(release, TreesRelease), "a release of another answerer"
        for block, nodes in zip(release.blocks, release.nodes, strict=True):
            self._nodes[release.attribute, block] = nodes

    def conclude(self, asked: Asked, look: KindLook, release: Release) -> Outcome:
        assert isinstance(look, TreesLook), "a look of another answerer"
        return self._answered(asked, look.attribute, Path.MEASURED)

    def release_from_bytes(self, data: bytes) -> Release:
        if not data or data[0] != _VERSION:
            raise CorruptState("trees are stored in a version that this release does not know")
        try:
            _, attribute, length, n_blocks = _HEADER.unpack_from(data)
            blocks = struct.unpack_from(f"<{n_blocks}I", data, _HEADER.size)
            plan = self._plan(attribute)
        except (struct.error, IndexError, ValueError):
            raise CorruptState("stored trees are cut short, or of another data set") from None
        start = _HEADER.size + 4 * n_blocks
        if len(data) != start + n_blocks * length:
            raise CorruptState("stored trees have a wrong length")
        trees = [data[start + i * length :][:length] for i in range(n_blocks)]
        nodes = tuple(plan.from_bytes(tree) for tree in trees)
        return TreesRelease(plan, attribute, blocks, nodes)

    # ------------------------------------------------------------ answers

    def _plan(self, attribute: int) -> TreePlan:
        return TreePlan(self._universe.shape[attribute], self._loss.epsilon)

    def _tree(self, attribute: int, window: Sequence[int]) -> Tree:
        releases = [self._nodes[attribute, block] for block in window]
        n_rows = sum(self._sizes[block] for block in window)
        return Tree.of(self._plan(attribute), releases, n_rows)

    def _answered(self, asked: Asked, attribute: int, path: Path) -> Outcome:
        tree = self._tree(attribute, asked.window)
        if asked.kind == "quantile":
            return self._quantile(asked, attribute, tree, path)
        if asked.predicate == EVERYTHING:
            cells = [self._count(tree, range(code + 1), path) for code in range(tree.plan.n_bins)]
            return TableAnswered(tuple(cells), (len(cells),), path)
        bins = bin_range(asked)
        assert isinstance(bins, range), "checked before the look"
        return self._count(tree, bins, path)

    def _count(self, tree: Tree, bins: range, path: Path) -> Answered:
        """Rows whose bin is in ``bins``."""
        bar = tree.error_bar_of(bins, self._failure_probability)
        n_prefixes = 1 + (bins.start > 0)
        of_all = n_prefixes * tree.error_bar_simultaneous(self._failure_probability)
        n = tree.n_rows
        return Answered(
            count=tree.count(bins),
            n=n,
            error_bar=as_share(bar, n),
            error_bar_simultaneous=as_share(max(bar, of_all), n),
            confidence=1.0 - self._failure_probability,
            path=path,
        )

    def _quantile(self, asked: Asked, attribute: int, tree: Tree, path: Path) -> Found:
        """The bin at a rank among the rows that have a value."""
        (wanted,) = asked.numbers
        missing = self._universe.attributes[attribute].missing_cell
        last = tree.plan.n_bins - 1 if missing is None else missing - 1
        rank = max(1, math.ceil(wanted * tree.at_most(last)))
        bar = tree.error_bar_simultaneous(self._failure_probability)
        return Found(
            attribute=attribute,
            code=min(last, tree.quantile(rank)),
            n=tree.n_rows,
            rank_error=as_share(bar if missing is None else (1.0 + wanted) * bar, tree.n_rows),
            confidence=1.0 - self._failure_probability,
            path=path,
        )


__all__ = ["Thresholds", "TreesLook", "TreesRelease"]
