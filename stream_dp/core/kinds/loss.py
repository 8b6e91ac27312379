"""The loss that every mechanism of this package states and keeps, and the secrets that it must not show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, final

from stream_dp.core.budget.accountant import Budget, Charge
from stream_dp.core.encoding import Format, fields


@dataclass(frozen=True, slots=True)
class Loss:
    """An (epsilon, delta)-differentially private look, for replacing one row; all its outputs together."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def charge(self, budget: Budget, block: int) -> Charge:
        """Its price on one block's line: ``(epsilon^2 / 2, delta)``.

        Bun and Steinke 2016, Proposition 1.4, and for delta its approximate form.

        Raises:
            BudgetExceeded: It has a delta and the budget keeps none for it.
        """
        return budget.charge(block, self.epsilon**2 / 2, self.delta)


@final
class Secret:
    """Integers drawn once, on which all later outputs of a mechanism depend.

    Private like a row: not in a repr, and neither pickled nor copied. ``to_bytes`` is for the private side
    of a store alone.
    """

    __slots__ = ("_values",)

    _FORMAT = Format("secret")

    def __init__(self, values: Iterable[int]) -> None:
        self._values = tuple(int(value) for value in values)

    @property
    def values(self) -> tuple[int, ...]:
        return self._values

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on how many integers there are alone."""
        return self._FORMAT.pack(fields(f"<{len(self._values)}q", *self._values))

    @classmethod
    def from_bytes(cls, data: bytes, size: int) -> Secret:
        """Inverse of ``to_bytes`` for ``size`` integers.

        Raises:
            CorruptState: An unknown version, or a wrong length.
        """
        reader = cls._FORMAT.read(data)
        values = reader.fields(f"<{size}q")
        reader.end()
        return cls(values)

    def __repr__(self) -> str:
        return "Secret()"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is never pickled nor copied; store it by to_bytes()")


def checked_privacy(epsilon: Fraction, delta: Fraction | None = None) -> None:
    """Raises ValueError unless epsilon is a positive fraction, and delta, where given, one in (0, 1)."""
    if not isinstance(epsilon, Fraction) or not isinstance(delta, Fraction | None):
        raise TypeError("epsilon and delta are Fractions")
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive: {epsilon}")
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1: {delta}")
