"""The secret order of the slots of a slab."""

from __future__ import annotations

from secrets import randbits

import numpy as np
import numpy.typing as npt


def secret_order(n_slots: int) -> npt.NDArray[np.intp]:
    """Draws an order of some slots, shape (n_slots,).

    It follows from 128 random bits of the operating system, by a generator that is quicker. It is for rows at
    rest: nothing that is published depends on it.
    """
    return np.random.Generator(np.random.Philox(key=randbits(128))).permutation(n_slots)
