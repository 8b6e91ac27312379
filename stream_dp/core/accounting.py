"""Privacy loss: a line of (rho, delta') a block, in integers.

A line is counted in units of budget / 2**50, rounded up, so that Python and a Redis script compare exactly
(``spec`` of the ledger: Bun & Steinke 2016; Canonne, Kamath, Steinke 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

UNITS = 2**50


@dataclass(frozen=True, slots=True)
class Charge:
    """Privacy loss of one look on one block, in units of its budget / 2**50 (rounded up).

    Attributes:
        block: Index of the block, from 0.
        rho: zCDP part, units of rho_max / 2**50.
        delta: Approximation part delta', units of its budget / 2**50.
    """

    block: int
    rho: int
    delta: int = 0


__all__ = ["UNITS", "Charge"]
