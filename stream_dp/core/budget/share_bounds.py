"""What each analyst may charge to each block, and has charged: bounds inside a line, in its units.

Where a data set allows each analyst a part of every line (a block's privacy budget), a charge has an account:
the analyst who asked, or the data set's own. An account has up to two bounds on each block: the share of the
analyst, and a pool that it is in. Pools are disjoint, and together they are a line. So what is kept for one
cannot be spent by another, whatever others ask (docs/proofs, Theorem 22).

All of it follows from the definition, from the records that change it, and from the ledger: it is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Charge, SpentUnits

OWNER = ""
"""The account of what the data set measures on its own account. No analyst has this name."""

_REST = " rest"
"""The name of the pool of what is kept for nobody. No entry has a blank in its name."""

Floats = npt.NDArray[np.float64]
Units = npt.NDArray[np.int64]

Room = Callable[[range], Units]
"""Units that may be spent of each line of a window, shape (len(window),)."""


class Bound(StrEnum):
    """What keeps an account from a charge."""

    SHARE = "share"
    TOGETHER = "together"
    REST = "rest"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is allowed to one name, or to each name that begins with a prefix.

    Attributes:
        name: The name, or the prefix and ``*``.
        share: Units of each line that one account may charge; None for no bound of its own.
        kept: Units of each line that are kept for all accounts of the entry together; None for none.
        is_owner: Whether its accounts are in the owner's pool.
    """

    name: str
    share: int | None = None
    kept: int | None = None
    is_owner: bool = False


class Shares:
    """The rules in force: who has which bounds.

    Args:
        entries: The entries.
        owner: Units of each line that are kept for the owner; None for none.
        applies: The name of the entry that applies to an analyst; None if there is none.

    Raises:
        ValueError: More is kept than a line has.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        owner: int | None,
        applies: Callable[[str], str | None],
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.owner = owner
        kept = [entry.kept for entry in entries if entry.kept is not None]
        self.rest = UNITS - sum(kept) - (owner or 0)
        if self.rest < 0:
            raise ValueError("more is kept than a line has")
        self._applies = applies
        self._found: dict[str, Entry | None] = {OWNER: None}

    def entry_of(self, account: str) -> Entry | None:
        """The entry that applies to an account; None if there is none, as for the owner's own."""
        if account not in self._found:
            name = self._applies(account)
            self._found[account] = None if name is None else self.entries[name]
        return self._found[account]

    def pool_of(self, account: str) -> tuple[Bound, str, int]:
        """The pool of an account: what bounds it, the pool's name, and its units of each line.

        An account without an entry is in the rest: it may have charges of before a change.
        """
        entry = self.entry_of(account)
        if account == OWNER or (entry is not None and entry.is_owner):
            return (Bound.OWNER, OWNER, self.owner) if self.owner is not None else self._of_rest
        if entry is None or entry.kept is None:
            return self._of_rest
        return Bound.TOGETHER, entry.name, entry.kept

    @property
    def _of_rest(self) -> tuple[Bound, str, int]:
        return Bound.REST, _REST, self.rest

    def share_of(self, account: str) -> int | None:
        """Units of each line that an account may charge by itself; None for no bound."""
        entry = self.entry_of(account)
        return None if entry is None else entry.share


class Accounts:
    """What each account has charged to each block: a fold over durable charges.

    Args:
        shares: The rules in force.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._paid: dict[str, SpentUnits] = {}
        self._pools: dict[str, SpentUnits] = {}

    @property
    def shares(self) -> Shares:
        """The rules in force."""
        return self._shares

    def change(self, shares: Shares) -> None:
        """Puts other rules in force. What was charged stays charged."""
        self._shares, self._pools = shares, {}
        for account, lines in self._paid.items():
            pool, n_blocks = self._pool(account), lines.units.shape[1]
            pool.reach(n_blocks)
            pool.units[:, :n_blocks] += lines.units

    def charge(self, account: str, charges: Iterable[Charge]) -> None:
        """Records what an account has charged."""
        paid, pool = self._paid.setdefault(account, SpentUnits()), self._pool(account)
        for charge in charges:
            paid.add(charge)
            pool.add(charge)

    def spent(self, account: str, window: range) -> Units:
        """Units of (rho, delta') that an account has charged to each block, shape (2, len(window))."""
        lines = self._paid.get(account)
        return np.zeros((2, len(window)), dtype=np.int64) if lines is None else lines.of(window)

    def room(self, account: str, window: range, part_now: Floats | None = None) -> Units:
        """Units that an account may still charge to each block now, shape (2, len(window)): rho and delta'.

        Args:
            account: The account.
            window: The blocks.
            part_now: The part of what the data set's own measurements leave that may be charged by now, in
                [0, 1], shape (len(window),). None where nothing is kept for the phases to come.
        """
        rooms = [room for _, room in self._rooms(account, window, part_now)]
        return np.asarray(np.maximum(np.minimum.reduce(rooms), 0))

    def lacking(
        self, account: str, charges: Sequence[Charge], part_now: Floats | None = None
    ) -> Bound | None:
        """The first bound that some charges would pass now; None if they pass none.

        Args:
            account: The account.
            charges: The charges, in the order of their blocks, a block once; at least one.
            part_now: as in ``room``, about the blocks from the first to the last that is charged.
        """
        window = range(charges[0].block, charges[-1].block + 1)
        asked = np.zeros((2, len(window)), dtype=np.int64)
        for charge in charges:
            asked[:, charge.block - window.start] = charge.rho, charge.delta
        rooms = self._rooms(account, window, part_now)
        return next((bound for bound, room in rooms if ((asked > room) & (asked > 0)).any()), None)

    def tightest(self, account: str, window: range, part_now: Floats | None = None) -> Bound:
        """The bound that leaves an account least of any block of a window now; takes what ``room`` takes."""
        rooms = [(int(room.min()), bound) for bound, room in self._rooms(account, window, part_now)]
        return min(rooms, key=lambda one: one[0])[1]

    def _rooms(
        self, account: str, window: range, part_now: Floats | None
    ) -> Iterator[tuple[Bound, Units]]:
        """Each bound of an account, and what it leaves of each block now; it may be below 0."""
        share = self._shares.share_of(account)
        if share is not None:
            yield Bound.SHARE, _part_of(share, part_now) - self.spent(account, window)
        bound, name, most = self._shares.pool_of(account)
        first: Units | int = 0
        if account != OWNER and name == self._shares.pool_of(OWNER)[1]:
            first = self.spent(OWNER, window)  # what the data set measures by itself comes first
        limit = most if account == OWNER else first + _part_of(most - first, part_now)
        yield bound, limit - self._pool(account).of(window)

    def _pool(self, account: str) -> SpentUnits:
        _, name, _ = self._shares.pool_of(account)
        return self._pools.setdefault(name, SpentUnits())


class Payers:
    """Those who may pay for the next queries: the one who asks, or the owner for what is declared.

    Args:
        asker: Units of each line of a window that the one who asks may spend now.
        owner: Units that the owner may spend.
        apart: Whether the two have different pools.
    """

    def __init__(self, asker: Room, owner: Room, *, apart: bool) -> None:
        self.apart = apart
        self._rooms = {False: asker, True: owner}
        self._imagined: dict[bool, dict[int, int]] = {False: {}, True: {}}

    def room(self, *, owner: bool) -> Room:
        """What the owner may spend now, or the one who asks."""
        room, imagined = self._rooms[owner], self._imagined[owner]
        if not imagined:
            return room
        return lambda window: np.asarray(
            np.maximum(room(window) - [imagined.get(block, 0) for block in window], 0)
        )

    def imagine(self, charges: Iterable[Charge], *, owner: bool) -> None:
        """Takes charges off that nobody has made, as a rehearsal does."""
        imagined = self._imagined[owner]
        for charge in charges:
            imagined[charge.block] = imagined.get(charge.block, 0) + charge.rho


def _part_of(units: Units | int, part: Floats | None) -> Units | int:
    """A part of some units, rounded down to whole ones."""
    if part is None:
        return units
    return np.asarray(np.minimum(np.floor(np.multiply(units, part)), units)).astype(np.int64)
