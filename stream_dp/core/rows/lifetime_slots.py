"""How many rows of each person count in a phase, where the promise to a person is for life.

A person of whom c rows count in a phase uses c^2 units there, and has ``Unit.squares`` units in all phases
together (docs/proofs, Theorem 20). The units are used when a block is sealed, at what its line can cost
at most: no result decides how many rows count. What is chosen for a person depends on that person's own rows
alone, so nothing here may look at two persons together. A rule for the whole block, or a count that several
persons share, would let one person switch off the rows of another.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.rows.person_slots import Digests, by_person

Numbers: TypeAlias = npt.NDArray[np.int64]


def allowances(slots: Numbers, before: Numbers, unit: Unit) -> Numbers:
    """Returns how many rows of each person count in a phase, shape (n_persons,). Private.

    This is the largest c with c <= k, c <= n and before + c^2 <= ``unit.squares``, for a person with n slots
    in the block, where k is ``unit.rows_per_phase``.

    Args:
        slots: The number of slots of each person in the block, shape (n_persons,).
        before: The units that each person has used in earlier phases, shape (n_persons,).
        unit: The promise, which is for life.
    """
    assert unit.lifetime, "units are counted only where the promise is for life"
    # The square root is rounded correctly, and a room is below 2^52, so that its whole part is exact.
    room = np.maximum(unit.squares - before, 0)
    most = np.sqrt(room.astype(np.float64)).astype(np.int64)
    return np.minimum(np.minimum(slots, unit.rows_per_phase), most)


def allowances_of_slots(digests: Digests, before: Numbers, unit: Unit) -> Numbers:
    """Returns, for each slot of a block, how many rows of its person count; 0 for nobody's. Private.

    Args:
        digests: The person of each slot, shape (n_slots, DIGEST_BYTES).
        before: The units that the person of each slot has used in earlier phases, shape (n_slots,). They are
            the same for all slots of a person.
        unit: The promise, which is for life.
    """
    order, begins = by_person(digests, np.arange(len(digests)))
    person = np.cumsum(begins) - 1
    found = np.empty(len(order), dtype=np.int64)
    found[order] = allowances(np.bincount(person), before[order][begins], unit)[person]
    found[~digests.any(axis=1)] = 0
    return found
