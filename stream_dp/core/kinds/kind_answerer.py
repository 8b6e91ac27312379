"""The parts that the answerers of other kinds share: the query, the look with its secret, and the interface.

An answerer is public knowledge like a mechanism, and has no line of its own: it says what a look would cost,
and ``WithKinds`` sees to it that the lines can pay.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Generic, TypeVar, cast

import numpy as np

from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import as_written, erased_blocks
from stream_dp.core.kinds.loss import Loss, Secret
from stream_dp.core.mechanism import Look, LookSort, Release
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import IntArray
from stream_dp.core.rows.blocks import Blocks, tables_of
from stream_dp.core.rows.encoded_rows import MAX_ROWS
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition

R = TypeVar("R", bound=Release)

MIN_EPSILON = Fraction(1, 2**30)
MIN_DELTA = Fraction(1, 2**900)
"""The least loss of a look for which all scales, and the rows that they need, can be computed and drawn."""


@dataclass(frozen=True, slots=True)
class KindTerms:
    """What every answerer of other kinds works with.

    Attributes:
        universe: The possible rows.
        budget: The budget of each line.
        share: The share of a line that one look takes, in (0, 1].
        failure_probability: The probability with which a stated error may be exceeded.
    """

    universe: Universe
    budget: Budget
    share: float
    failure_probability: float


class KindLook(Look):
    """A look of an answerer, which says its loss; scales in its description are floats' exact values."""

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """The loss of the look, or of the whole run if the look belongs to a run."""

    @property
    def sort(self) -> LookSort:
        return LookSort.SEALED if self.loss.delta else LookSort.PURE


class Answerer(ABC, Generic[R]):
    """Answers one kind, with releases of its own. Holds published values only.

    Args:
        terms: The universe, the budget, and what looks take of it.

    Attributes:
        name: The kind of queries, which is the name of the setting that turns it on, too.
        approximate: Whether its looks have a delta.
        in_order: The attributes that it reads row by row, in order of arrival.
        kept: The number of blocks, the last ones, whose rows are kept. None keeps all.
        bare: The number of first blocks whose rows are lost.

    Raises:
        InvalidDefinition: The share buys less than noise can be drawn for.
    """

    name: ClassVar[str]
    approximate: ClassVar[bool]
    in_order: tuple[int, ...] = ()
    kept: int | None = None
    bare: int = 0

    def __init__(self, terms: KindTerms) -> None:
        self._universe = terms.universe
        self._budget = terms.budget
        self._loss = loss_of(terms.budget, terms.share, approximate=self.approximate)
        if self._loss.epsilon < MIN_EPSILON or (self.approximate and self._loss.delta < MIN_DELTA):
            raise InvalidDefinition(
                f"kinds.{self.name}.share",
                "buys less than noise can be drawn for",
                "give a larger share, or privacy a larger epsilon and delta",
            )
        self._failure_probability = terms.failure_probability
        self._sizes: list[int] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._sizes)} blocks)"

    @property
    def min_rows(self) -> int:
        """A window of fewer rows is always refused; some queries ask for more."""
        return 1

    @property
    def erased(self) -> int:
        """The number of first blocks whose rows are erased, or lost."""
        return max(self.bare, erased_blocks(len(self._sizes), self.kept))

    def open_phase(self, n_rows: int) -> Sequence[KindLook]:
        """Adds a block; returns the looks that this asks for, by default none."""
        self._sizes.append(n_rows)
        return ()

    def opening_units(self, n_rows: int) -> int:
        """Units of a new line that the looks of an opening take, by default none."""
        del n_rows
        return 0

    def answer(self, asked: KindQuery) -> Outcome | KindLook:
        """Answers from what is published, refuses, or says which look it needs. Changes nothing."""
        n_rows = self._rows(asked.window)
        if not 0 < n_rows <= MAX_ROWS:
            return Refused(
                RefusalCode.INVALID_QUERY if n_rows else RefusalCode.WINDOW_TOO_SMALL,
                f"window: {asked.kind} needs a window of at least one row and at most {MAX_ROWS:,}",
            )
        return self._step(asked)

    @abstractmethod
    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        """Answers about a window that has rows, as ``answer`` does."""

    @abstractmethod
    def absorb(self, release: R) -> None:
        """Folds a release into what is known."""

    @abstractmethod
    def conclude(self, asked: KindQuery, look: KindLook, release: R) -> Outcome:
        """The answer to ``asked`` after ``release`` was absorbed."""

    @property
    def secrets(self) -> frozenset[str]:
        """Names in the vault that later looks need; those of others are dropped."""
        return frozenset()

    def lost(self, look: Mapping[str, object]) -> None:
        """A look (its ``description``) was charged and perhaps taken, but never published."""
        del look

    def end_runs(self, secrets: Sequence[str]) -> None:
        """Ends the runs whose secrets, by their names in the vault, are gone. Their charges stay."""
        del secrets

    @abstractmethod
    def release_from_bytes(self, data: bytes) -> R:
        """Inverse of the releases' ``to_bytes``. Raises CorruptState."""

    # ------------------------------------------------------------ for those who answer

    def _rows(self, window: range) -> int:
        return sum(self._sizes[block] for block in window)

    def _charges(self, blocks: Sequence[int] | range) -> tuple[Charge, ...]:
        """One look at each of these blocks."""
        return tuple(self._loss.charge(self._budget, block) for block in blocks)


def loss_of(budget: Budget, share: float, *, approximate: bool) -> Loss:
    """The largest (epsilon, delta) whose price is at most ``share`` of a line, in whole units.

    The share is the decimal number that was written: ten looks of 0.1 fill a line, and do not pass it.

    Raises:
        ValueError: ``share`` is not in (0, 1].
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a look takes a share of a line: {share}")
    part = Fraction(math.floor(as_written(share) * UNITS), UNITS)
    rho = part * budget.rho
    epsilon = Fraction(math.sqrt(2 * rho))
    while epsilon**2 / 2 > rho:
        epsilon = Fraction(math.nextafter(float(epsilon), 0.0))
    return Loss(epsilon, part * budget.delta if approximate else Fraction(0))


def ordered(universe: Universe, attribute: int, kind: str) -> Refused | None:
    """Returns why an attribute cannot be asked about by order. None if it can."""
    of_it = universe.attributes[attribute]
    if of_it.orders_all:
        return None
    whose = "unlisted values" if of_it.has_order else "its values"
    return Refused(
        RefusalCode.INVALID_QUERY,
        f"attribute: {of_it.name} is a {type(of_it).__name__.lower()} and {whose} have no order; "
        f"ask {kind} of a number or a date",
    )


def bin_range(asked: KindQuery) -> range | Refused:
    """The consecutive bins of ``asked.attribute`` that its predicate holds for."""
    predicate = asked.predicate
    if predicate.attributes not in {(), (asked.attribute,)}:
        return Refused(
            RefusalCode.INVALID_QUERY,
            f"where: {asked.kind} is about one attribute; ask a condition on it alone, or a predicate",
        )
    if predicate.attributes == ():
        return Refused(
            RefusalCode.INVALID_QUERY,
            "where: it holds for every row, or for none; leave it out, or ask a range of the attribute",
        )
    (codes,) = np.nonzero(predicate.mask)
    found = range(int(codes[0]), int(codes[-1]) + 1)
    if len(found) != len(codes):
        return Refused(
            RefusalCode.INVALID_QUERY,
            f"where: {asked.kind} is about one range of values; ask each range, or a predicate",
        )
    return found


def counts_of(data: Blocks, attribute: int, window: range) -> IntArray:
    """Exact rows in each bin of a window, int64, shape (n_bins,). Private."""
    counts: IntArray = sum(tables_of(data, (attribute,), window), np.zeros((), dtype=np.int64))
    return counts


def secret_of(data: Blocks, name: str, size: int) -> Secret:
    """Returns the secret of a run, which has ``size`` integers.

    Raises:
        CorruptState: It is not there, or not such a secret; another one would void the run's guarantee.
    """
    if name not in data.vault:
        raise CorruptState(f"the secret of a run is gone: {name}")
    return Secret.from_bytes(data.vault[name], size)


def window_of(look: Mapping[str, object]) -> range:
    """The blocks that a look's description speaks of."""
    start, stop = cast("list[int]", look["window"])
    return range(start, stop)


def as_share(rows: float, n_rows: int) -> float | None:
    """A bar as a share of the rows; None where it says nothing."""
    return rows / n_rows if rows < n_rows else None
