"""How many rows of a person should count, and in how many phases: what each choice keeps and what it costs.

A person of whom more rows may count moves every count further, so noise grows with ``rows_per_phase``. As a
share of the rows that count it never falls with it; what falls is the surplus, the rows that do not count.

A census says how many persons have how many rows. It is as private as the rows are: it is for their owner, or
of a public sample. What is recommended must follow from a public one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Privacy, Unit
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import canonical
from stream_dp.lab.trial import trial
from stream_dp.messages.definition.promise_specs import MAX_SQUARES
from stream_dp.profiles.advice import SERVES, Estimate, Name, Need, Trial, certifying_rows

MOST_ROWS: Final = 255
"""The most rows of a person that may count in a phase."""


@dataclass(frozen=True, eq=False)
class Census:
    """How many persons have how many rows in a phase. It describes rows, and is as private as they are.

    Attributes:
        n_phases: The phases that the rows were cut into.
        n_rows: The rows of all phases, those without a key included.
        persons: How many persons of all phases have c rows there, for each c from 0 on, shape (most + 1,).
    """

    n_phases: int
    n_rows: int
    persons: npt.NDArray[np.int64] = field(repr=False)

    @property
    def n_keyless(self) -> int:
        """The rows that say nobody's name, and so never count."""
        return self.n_rows - self.counted(len(self.persons))

    @property
    def persons_a_phase(self) -> float:
        """The mean number of persons of a phase."""
        return int(self.persons.sum()) / self.n_phases

    def counted(self, k: int) -> int:
        """The rows of all phases that count if at most ``k`` of a person do in a phase."""
        rows = np.arange(len(self.persons))
        return int((self.persons * np.minimum(rows, k)).sum())

    def counted_of(self, n_rows: int, k: int) -> int:
        """The rows that count of a phase of ``n_rows`` rows in which rows are shared out as here."""
        return self.counted(k) * n_rows // self.n_rows

    def noise(self, k: int) -> float:
        """The noise as a share of the rows that count, compared with that for one row of a person.

        Infinite if no row counts.
        """
        counted = self.counted(k)
        return k * self.counted(1) / counted if counted else math.inf

    def shown(self, also: Iterable[int] = ()) -> list[int]:
        """The numbers of rows to compare: 1, 2, 4 and so on until all rows with a key count, and ``also``."""
        last = min(max(1, len(self.persons) - 1), MOST_ROWS)
        doubling = [1 << i for i in range((last - 1).bit_length())] if last > 1 else []
        return sorted({1, *doubling, last, *also})


class Counting:
    """Takes the keys of rows in their order, and cuts them into phases.

    Args:
        min_rows: The rows that open a phase.
    """

    def __init__(self, min_rows: int) -> None:
        self._min_rows = min_rows
        self._waiting = Counter[str]()
        self._keyless = 0
        self._n_phases = 0
        self._persons = np.zeros(1, dtype=np.int64)

    def take(self, keys: Sequence[object]) -> None:
        """Counts the rows of some keys."""
        start = 0
        while start < len(keys):
            stop = start + self._min_rows - self._n_waiting
            part = [canonical(key) for key in keys[start:stop]]
            self._waiting.update(key for key in part if key is not None)
            self._keyless += part.count(None)
            start += len(part)
            if self._n_waiting == self._min_rows:
                self._seal()

    @property
    def _n_waiting(self) -> int:
        return self._keyless + self._waiting.total()

    def _seal(self) -> None:
        found = np.bincount(np.fromiter(self._waiting.values(), np.int64, len(self._waiting)))
        size = max(len(found), len(self._persons))
        self._persons = np.pad(self._persons, (0, size - len(self._persons)))
        self._persons[: len(found)] += found
        self._n_phases += 1
        self._waiting.clear()
        self._keyless = 0

    def census(self) -> Census | None:
        """The census of the full phases; of all rows if they are too few for one. None without rows.

        Rows that a phase still waits for are left out of it.
        """
        n_rows = self._n_phases * self._min_rows
        if not self._n_phases:
            n_rows = self._n_waiting
            if not n_rows:
                return None
            self._seal()
        return Census(self._n_phases, n_rows, self._persons)


@dataclass(frozen=True)
class CountingChoice:
    """A number of phases, with the number of rows that suits it.

    Attributes:
        unit: The unit of the promise.
        counted: The share of the rows that count.
        answered: The share of the queries that are answered, as far as a trial of some of them shows.
        trial: The trial that shows it.
    """

    unit: Unit
    counted: float
    answered: float
    trial: Trial


def best_rows(census: Census, noise: float) -> int:
    """Returns the number of rows of a person with which noise and surplus of a phase are least together.

    The noise of a count is ``noise * k`` rows. The surplus falls, from k to k + 1, by the number of persons
    who have more than k rows. So it is the least k that at most ``noise`` persons of a phase exceed.

    Args:
        census: What the rows are like.
        noise: Rows by which noise may move a count of a phase of the census if one row of a person counts.
    """
    exceeding = census.persons.sum() - np.cumsum(census.persons)
    few = np.flatnonzero(exceeding[1:] <= noise * census.n_phases)
    return min(MOST_ROWS, int(few[0]) + 1) if len(few) else 1


def choice_of(need: Need, census: Census, sample: Rows, phases: int) -> CountingChoice:
    """The number of rows of a person that suits a promise about a number of phases.

    Noise is least with 1 row of a person: if a trial cannot answer its queries with that, more rows cannot
    help. Otherwise it is ``best_rows``, beyond which noise grows by more than the surplus falls, or else the
    largest power of two below with which a trial still answers its queries.

    Args:
        need: The need of the data set. Of its own unit, if there is one, only ``lifetime`` plays a part.
        census: The census of the sample.
        sample: Public rows.
        phases: The number of phases.
    """
    lifetime = need.privacy.unit is not None and need.privacy.unit.lifetime
    noise = certifying_rows(of_unit(need, census, Unit(1, phases, lifetime)))
    # A phase of the data set may have more persons than one of the sample, or fewer.
    most = best_rows(census, noise * census.n_rows / census.n_phases / need.n_rows)
    if lifetime:
        most = min(most, math.isqrt(MAX_SQUARES // phases))

    def tried(k: int) -> CountingChoice:
        unit = Unit(k, phases, lifetime)
        asked = of_unit(need, census, unit)
        found = trial(asked, (Name.CALIBRATED,), sample=sample)[Name.CALIBRATED]
        answered = Estimate(Name.CALIBRATED).tried(found, asked).part or 0.0
        return CountingChoice(unit, census.counted(k) / census.n_rows, answered, found)

    one = tried(1)
    if one.answered >= SERVES:
        for k in sorted({most, *(2**i for i in range(1, most.bit_length()))} - {1}, reverse=True):
            if (more := tried(k)).answered >= SERVES:
                return more
    return one


def of_unit(need: Need, census: Census, unit: Unit) -> Need:
    """The same need with another unit, and the rows that count as a census says."""
    privacy = Privacy(need.privacy.epsilon, need.privacy.delta, unit)
    counted = census.counted_of(need.n_rows, unit.rows_per_phase)
    return replace(need, privacy=privacy, n_counted=max(1, counted))


def chosen(found: Sequence[CountingChoice]) -> CountingChoice:
    """The choice with most phases that answers its queries; else the one that answers most."""
    able = [choice for choice in found if choice.answered >= SERVES]
    if able:
        return max(able, key=lambda choice: choice.unit.phases)
    return max(found, key=lambda choice: choice.answered)
