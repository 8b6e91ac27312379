"""From what a data set allows to its analysts to the bounds of the core, in units of a line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.share_bounds import OWNER, Entry, Shares
from stream_dp.core.mechanism import Mechanism
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import AnalystSpec, Definition, OwnerSpec, entry_of, kept_for
from stream_dp.profiles.builder import rows_that_open


def shares_of(analysts: Mapping[str, AnalystSpec], owner: OwnerSpec | None) -> Shares:
    """The bounds that a definition, or a later change, sets."""
    entries = [
        Entry(
            name,
            share=units_of(spec.share),
            kept=units_of(kept_for(name, spec)),
            is_owner=spec.owner,
        )
        for name, spec in analysts.items()
    ]
    kept = None if owner is None else units_of(owner.share)
    return Shares(entries, kept, partial(entry_of, analysts))


def check_opening(definition: Definition, mechanism: Mechanism, n_rows: int | None = None) -> None:
    """Checks that what opening a phase measures leaves each what is kept for it.

    Args:
        definition: The definition, with the rules to check.
        mechanism: A mechanism of it.
        n_rows: The rows of the phase. None for the fewest that open one by themselves.

    Raises:
        InvalidDefinition: Opening the phase costs more than is kept for the owner, or for nobody.
    """
    if definition.analysts is None:
        return
    shares = shares_of(definition.analysts, definition.owner)
    units = mechanism.opening_units(n_rows or rows_that_open(mechanism, definition))
    _, _, most = shares.pool_of(OWNER)
    if units is None or units <= most:
        return
    costs, left = math.ceil(units / UNITS * 1e4) / 1e4, math.floor(most / UNITS * 1e4) / 1e4
    field = "analysts" if definition.owner is None else "owner.share"
    raise InvalidDefinition(
        field,
        f"opening a phase measures for {costs:.4g} of a line, and {left:.4g} is left for that",
        "keep less for analysts, keep more for the owner, or set a smaller mechanism.base_share",
    )


def units_of(share: float | None) -> int | None:
    """A share of a line as it was written, in whole units, rounded down; None for None."""
    return None if share is None else math.floor(Fraction(str(share)) * UNITS)
