"""What the looks of a first run drew, and the draws by which other rows give the same releases."""

from __future__ import annotations

from collections.abc import Sequence
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


Statistic: TypeAlias = Ints | Coin | Law


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


def differ(then: Statistic, now: Statistic) -> bool:
    before: Any = getattr(then, "bits", getattr(then, "counts", then))
    after: Any = getattr(now, "bits", getattr(now, "counts", now))
    return not np.array_equal(before, after)


class Script:
    """What a first run drew: secrets, and the draws of its looks."""

    def __init__(self) -> None:
        self.secrets: list[Ints] = []
        self.looks: list[Drawn] = []
