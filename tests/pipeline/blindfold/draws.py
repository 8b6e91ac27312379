"""What the looks of a first run drew, and the draws by which other rows give the same releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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


@dataclass(frozen=True)
class Keyed:
    """The counts that each draw is added to, by key: the keys with a name, and then all others, in order.

    Attributes:
        counts: The counts, in the order of the draws.
    """

    counts: Mapping[bytes, int]

    def moved(self, draws: Ints, now: Keyed) -> Ints:
        """The draws by which the counts ``now`` give the same. A key of one row alone is not named."""
        of_key = dict(zip(self.counts, draws.tolist(), strict=False))
        given = [
            of_key.get(key, 0) + self.counts.get(key, count) - count
            for key, count in now.counts.items()
        ]
        return np.array([*given, *[0] * (len(draws) - len(given))], dtype=np.int64)


Statistic: TypeAlias = Ints | Coin | Law | Keyed


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
    if isinstance(then, Keyed) or isinstance(now, Keyed):
        assert isinstance(then, Keyed)
        assert isinstance(now, Keyed)
        return then.moved(draws, now)
    if isinstance(then, Coin) or isinstance(now, Coin):
        assert isinstance(then, Coin)
        assert isinstance(now, Coin)
        # The row has the other bit: keep it where it was turned, and turn it where it was kept.
        turned = np.where(draws < then.keeps, then.keeps, 0)
        return np.where(then.bits == now.bits, draws, turned)
    return draws + then - now


def differ(then: Statistic, now: Statistic) -> bool:
    before: Any = getattr(then, "bits", getattr(then, "counts", then))
    after: Any = getattr(now, "bits", getattr(now, "counts", now))
    return not np.array_equal(before, after)


class Script:
    """What a first run drew: secrets, and the draws of its looks."""

    def __init__(self) -> None:
        self.secrets: list[Ints] = []
        self.looks: list[Drawn] = []
