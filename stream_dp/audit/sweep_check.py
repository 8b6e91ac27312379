"""Checks what a ledger says of sweeps: their numbers, and the signature of each receipt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_dp.messages import Definition
from stream_dp.receipts import SIGNED, is_signed


class SweepCheck:
    """The sweeps of one data set, in order."""

    def __init__(self) -> None:
        self._sweeps = self._number = 0
        self._public: object = None

    def define(self, entry: Mapping[str, Any]) -> None:
        """Takes the public key from the first entry."""
        self._public = entry.get("receipts")

    def fault(
        self, entry: Mapping[str, Any], definition: Definition | None, n_phases: int
    ) -> str | None:
        """What is wrong with the entry of a sweep; None for nothing.

        Args:
            entry: The entry.
            definition: The definition of the data set.
            n_phases: The number of phases that are open.
        """
        if definition is None or definition.erasure is None:
            return "it changes rows of a data set whose rows stay as they are"
        sweep, number = entry.get("sweep"), entry.get("change_number")
        phases = entry.get("phases")
        if sweep != self._sweeps + 1:
            return f"it is sweep {sweep} where sweep {self._sweeps + 1} is next"
        self._sweeps += 1
        if type(number) is not int or number <= self._number:
            return "it makes no change that was not made before"
        self._number = number
        if phases is not None and not _are_open(phases, n_phases):
            return "it changes rows of phases that are not open"
        public, signature = self._public, entry.get("signature")
        missing = any(name not in entry for name in SIGNED)
        if not isinstance(public, str) or not isinstance(signature, str) or missing:
            return "nobody has signed it"
        if not is_signed(public, entry, signature):
            return "its signature is not that of the data set"
        return None


def _are_open(phases: object, n_phases: int) -> bool:
    if not isinstance(phases, list) or [*map(type, phases)] != [int, int]:
        return False
    return bool(1 <= phases[0] <= phases[1] <= n_phases)
