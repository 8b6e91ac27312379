"""The size of a line (a block's privacy budget), the worth of a part of it, and the price of looks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, epsilon_of
from stream_dp.core.budget.parameters import Privacy, Unit, as_written
from stream_dp.core.kinds.kind_answerer import loss_of
from stream_dp.messages import Definition
from stream_dp.profiles.kinds import chosen


class LineUnit(ABC):
    """The unit in which the lines of a profile's data sets are counted."""

    @abstractmethod
    def holds(self, definition: Definition) -> dict[str, str]:
        """Returns what a full line holds, in exact fractions: public, for the ledger."""

    @abstractmethod
    def epsilon(self, definition: Definition, share: float) -> float:
        """The loss of a line that spent this share of its budget, as epsilon at the promised delta."""


class EpsilonLine(LineUnit):
    """Epsilons and deltas that add up (basic composition)."""

    def holds(self, definition: Definition) -> dict[str, str]:
        privacy = definition.privacy
        return {"epsilon": str(as_written(privacy.epsilon)), "delta": str(Fraction(privacy.delta))}

    def epsilon(self, definition: Definition, share: float) -> float:
        return share * definition.privacy.epsilon


class RhoLine(LineUnit):
    """Rhos that add up (zero-concentrated differential privacy), and epsilons where delta is 0."""

    def holds(self, definition: Definition) -> dict[str, str]:
        privacy = definition.privacy
        if privacy.delta == 0:
            return {"epsilon": str(Fraction(privacy.epsilon))}
        budget = budget_of(definition)
        return {"rho": str(budget.rho), "delta": str(budget.delta)}

    def epsilon(self, definition: Definition, share: float) -> float:
        privacy = definition.privacy
        if privacy.delta == 0:
            return share * privacy.epsilon
        units = math.ceil(share * UNITS)
        return min(privacy.epsilon, budget_of(definition).epsilon(Charge(0, units, units)))


def privacy_of(definition: Definition) -> Privacy:
    """Returns the promise of a data set."""
    said = definition.privacy
    unit = said.unit
    if unit is None:
        return Privacy(said.epsilon, said.delta)
    person = Unit(unit.rows_per_phase, unit.phases, unit.lifetime, definition.n_moved)
    return Privacy(said.epsilon, said.delta, person)


def budget_of(definition: Definition) -> Budget:
    """Returns the budget of each line of a data set, where lines count rho."""
    return Budget.of(privacy_of(definition), approximate=is_approximate(definition))


def is_approximate(definition: Definition) -> bool:
    """Returns whether looks with a delta of their own are charged to the lines of a data set."""
    return definition.finds or any(answerer.approximate for answerer, _ in chosen(definition.kinds))


def epsilon_of_person(definition: Definition, shares: Sequence[float]) -> float:
    """The loss of a person of whom as many rows as possible count in each of some phases, as epsilon.

    It is the square of these rows times what was spent on the lines, at what the looks for values leave of
    delta (docs/proofs, Theorems 20 (b) and 34). With such looks it is the delta of as many promises as cover
    these phases, see ``delta_of_person``.

    Args:
        definition: The definition of a data set that protects persons.
        shares: The spent share of the line of each of the phases, which follow one another.
    """
    promised, budget = privacy_of(definition), budget_of(definition)
    unit = promised.unit
    assert unit is not None, "it protects persons"
    rho = sum(map(Fraction, shares), Fraction(0)) * budget.rho * unit.rows_per_phase**2
    rows = len(shares) * unit.rows_per_phase
    failures = min(rows, unit.failures) if unit.lifetime else rows
    delta = Fraction(delta_of_person(definition, len(shares)))
    lost = epsilon_of(rho, float(delta - budget.delta * failures))
    # Rounding up may pass the promise by a little where it covers all of these phases.
    covered = unit.lifetime or len(shares) <= unit.phases
    return min(promised.epsilon, lost) if covered else lost


def delta_of_person(definition: Definition, phases: int) -> float:
    """The delta at which the loss of a person in a number of phases is told."""
    promised = privacy_of(definition)
    unit = promised.unit
    assert unit is not None, "it protects persons"
    if unit.lifetime or not budget_of(definition).delta:
        return promised.delta
    return promised.delta * max(1, math.ceil(phases / unit.phases))


class Price(NamedTuple):
    """The loss of one look of another kind, and how many such looks fill a line by themselves."""

    epsilon: float
    delta: float
    looks: int


def prices_of(definition: Definition) -> dict[str, Price]:
    """The price of a look of each other kind, by the name of its setting."""
    budget, found = budget_of(definition), {}
    for answerer, spec in chosen(definition.kinds):
        loss = loss_of(budget, spec["share"], approximate=answerer.approximate)
        charge = loss.charge(budget, 0)
        looks = UNITS // max(charge.rho, charge.delta)
        found[answerer.name] = Price(float(loss.epsilon), float(loss.delta), looks)
    return found
