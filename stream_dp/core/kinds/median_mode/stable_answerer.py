"""Kinds ``median`` and ``mode``: the exact cell where it is stable, else "no answer".

Every new query is one look at each block of its window, "no answer" included; the same query again is
free and gets the same. Sources and guarantees: ``core/kinds/median_mode/stable_law.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, fields
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook, KindTerms, counts_of, ordered
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.kinds.median_mode.stable_law import (
    StablePlan,
    disjoint_mode,
    stable_median,
    stable_mode,
)
from stream_dp.core.outcome import Found, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.errors import InvalidDefinition

MOST_DEALT: Final = 2_000_000
"""Rows of a window that are dealt to groups: in about a second."""

MOST_VOTES: Final = 2**24
"""Cells of all groups together: 128 MiB."""

_FORMAT = Format("stable cell")
_LAYOUT = "<16sHi"  # key, attribute, cell or -1


@dataclass(frozen=True, slots=True)
class StableRelease:
    """The answer to one query.

    Attributes:
        key: The key of the query.
        attribute: The index of the attribute.
        code: The cell. None for "no answer".
    """

    key: bytes
    attribute: int
    code: int | None = field(repr=False)

    def to_bytes(self) -> bytes:
        code = -1 if self.code is None else self.code
        return _FORMAT.pack(fields(_LAYOUT, self.key, self.attribute, code))


@dataclass(frozen=True)
class StableLook(KindLook):
    """Tests whether the answer to one query is stable, and if so reads it."""

    key: bytes
    attribute: int
    window: range
    plan: StablePlan
    test: Callable[[IntArray, NoiseSource], int | None] = field(repr=False)
    charges: tuple[Charge, ...]

    @property
    def loss(self) -> Loss:
        return self.plan.loss

    @property
    def description(self) -> dict[str, object]:
        return {
            "attribute": self.attribute,
            "blocks": list(self.window),
            "scale": float(self.plan.scale),
            "threshold": self.plan.threshold,
        }

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve("laplace", self.plan.scale, 1)

    def take(self, noise: NoiseSource, data: Blocks) -> StableRelease:
        counts = counts_of(data, self.attribute, self.window)
        return StableRelease(self.key, self.attribute, self.test(counts, noise))


class _Stable(Answerer[StableRelease]):
    """One cell of an attribute, exact or not at all."""

    approximate = True

    _exact: ClassVar[tuple[float | None, float | None]]
    """Error of the rank of a cell that is named, and the confidence in it."""

    def __init__(self, terms: KindTerms) -> None:
        super().__init__(terms)
        self._plan = StablePlan(self._loss.epsilon, self._loss.delta)
        self._answered: dict[bytes, int | None] = {}

    @abstractmethod
    def _refused(self, attribute: int, n_rows: int) -> Refused | None:
        """Returns why the query is not asked, from public facts. None if it is."""

    @abstractmethod
    def _test(self, counts: IntArray, noise: NoiseSource) -> int | None:
        """The look at a window's counts, shape (n_cells,)."""

    @property
    def _least(self) -> int:
        """With fewer rows, or groups, most looks name nothing even if all agree."""
        return 2 * self._plan.threshold + 1

    @property
    def min_rows(self) -> int:
        return self._least

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        if asked.key in self._answered:
            return self._outcome(asked, Path.REPEAT)
        assert asked.attribute is not None, "both kinds are about an attribute"
        refused = self._refused(asked.attribute, self._rows(asked.window))
        if refused is not None:
            return refused
        return StableLook(
            asked.key,
            asked.attribute,
            asked.window,
            self._plan,
            self._test,
            self._charges(asked.window),
        )

    def _too_small(self, needed: int, n_rows: int) -> Refused | None:
        if n_rows >= needed:
            return None
        return Refused(
            RefusalCode.WINDOW_TOO_SMALL,
            f"window: {self.name} needs at least {needed:,} rows here, and these are {n_rows:,}; ask about "
            "more phases, once they are open",
        )

    def absorb(self, release: StableRelease) -> None:
        self._answered[release.key] = release.code

    def conclude(self, asked: KindQuery, look: KindLook, release: StableRelease) -> Outcome:
        del look, release  # absorbed by now
        return self._outcome(asked, Path.MEASURED)

    def _outcome(self, asked: KindQuery, path: Path) -> Found:
        assert asked.attribute is not None, "both kinds are about an attribute"
        code = self._answered[asked.key]
        rank_error, confidence = (None, None) if code is None else self._exact
        return Found(asked.attribute, code, self._rows(asked.window), rank_error, confidence, path)

    def release_from_bytes(self, data: bytes) -> StableRelease:
        reader = _FORMAT.read(data)
        key, attribute, code = reader.fields(_LAYOUT)
        reader.end()
        shape = self._universe.shape
        reader.require(attribute < len(shape) and -1 <= code < shape[attribute])
        return StableRelease(key, attribute, None if code < 0 else code)


class Medians(_Stable):
    """The bin of the lower median of an ordered attribute that every row has a value of."""

    name = "median"
    _exact = (0.0, 1.0)

    def _refused(self, attribute: int, n_rows: int) -> Refused | None:
        refused = ordered(self._universe, attribute, self.name)
        if refused is not None:
            return refused
        of_it = self._universe.attributes[attribute]
        if of_it.missing:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"attribute: not every row has a value of {of_it.name}, and how many have is not public; ask "
                "quantile with the rank 0.5",
            )
        return self._too_small(self.min_rows, n_rows)

    def _test(self, counts: IntArray, noise: NoiseSource) -> int | None:
        return stable_median(self._plan, counts, noise)


class Modes(_Stable):
    """The most frequent cell of any attribute.

    Args:
        groups: The number of groups to which rows are dealt at random, each with a vote. With None each row
            has a vote, which names the mode with fewer rows.

    Raises:
        InvalidDefinition: So few groups would hardly ever name a value, or there are more than rows dealt.
    """

    name = "mode"
    _exact = (None, None)

    def __init__(self, terms: KindTerms, groups: int | None = None) -> None:
        super().__init__(terms)
        self._groups = groups
        if groups is not None and not self._least <= groups <= MOST_DEALT:
            raise InvalidDefinition(
                "kinds.mode.groups",
                f"at this share fewer than {self._least:,} name no value even if all agree, and at most "
                f"{MOST_DEALT:,} rows are dealt",
                f"give at least {self._least:,}, or a larger share, or leave groups out",
            )

    @property
    def min_rows(self) -> int:
        return self._least if self._groups is None else self._groups

    def _refused(self, attribute: int, n_rows: int) -> Refused | None:
        if self._groups is None:
            return self._too_small(self.min_rows, n_rows)
        if n_rows > MOST_DEALT:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"window: at most {MOST_DEALT:,} rows are dealt to groups, and these are {n_rows:,}; ask "
                "about fewer phases, or a table",
            )
        if self._groups * self._universe.shape[attribute] > MOST_VOTES:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"attribute: {self._groups:,} groups have no room for the votes on "
                f"{self._universe.shape[attribute]:,} cells each; ask about one with fewer cells, or a table",
            )
        return self._too_small(self.min_rows, n_rows)

    def _test(self, counts: IntArray, noise: NoiseSource) -> int | None:
        if self._groups is None:
            return stable_mode(self._plan, counts, noise)
        return disjoint_mode(self._plan, self._groups, counts, noise)
