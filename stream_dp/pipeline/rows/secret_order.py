"""The secret order of the slots of a slab."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt


def secret_order(n_slots: int) -> npt.NDArray[np.intp]:
    """Draws an order of some slots from the randomness of the operating system, shape (n_slots,)."""
    return np.argsort(np.frombuffer(os.urandom(8 * n_slots), np.uint64))
