"""Whether the charges of a ledger stay within the shares of analysts and of the owner."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stream_dp.audit.numbers import UNITS, as_written
from stream_dp.errors import InvalidMessage
from stream_dp.messages import AnalystSpec, ChangeAnalysts, OwnerSpec, entry_of, kept_for

_OWNER: Final = "the owner"
_REST: Final = "nobody in particular"
_Units = tuple[int, int]


class ShareCheck:
    """What each analyst and the owner have paid of each phase, and what they may.

    Accounts begin with the first rules, and stay when the rules change.
    """

    def __init__(self) -> None:
        self._paid: defaultdict[int, dict[str, _Units]] = defaultdict(dict)
        self.define(None, None)

    def define(self, analysts: Mapping[str, AnalystSpec] | None, owner: OwnerSpec | None) -> None:
        """Puts rules in force."""
        self._analysts = analysts or {}
        self._bounds = analysts is not None
        self._kept = {
            name: _floor(kept)
            for name, spec in self._analysts.items()
            if (kept := kept_for(name, spec)) is not None
        }
        if owner is not None:
            self._kept[_OWNER] = _floor(owner.share)
        self._kept[_REST] = UNITS - sum(self._kept.values())
        self._pools: dict[str, str] = {}
        self._taken: dict[int, dict[str, _Units]] = {}

    def change(self, entry: Mapping[str, Any]) -> Iterator[str]:
        """Puts the rules of an entry in force, and yields what is wrong with them."""
        try:
            read = ChangeAnalysts.said_in(entry["dataset"], entry)
        except InvalidMessage as error:
            yield f"the shares that it puts in force cannot be read: {error.field}: {error.problem}"
        else:
            self.define(read.analysts, read.owner)

    def charge(self, entry: Mapping[str, Any], charged: Mapping[int, _Units]) -> Iterator[str]:
        """Puts a charge on its account, and yields what it passes.

        Args:
            entry: The entry that charges.
            charged: The units by phase, from 0.
        """
        if not self._bounds:
            return
        analyst, by_owner = entry.get("analyst"), entry.get("paid_by") == "owner"
        if analyst is not None and entry_of(self._analysts, str(analyst)) is None:
            yield f"{analyst} may not ask by the rules in force"
        payer = _OWNER if analyst is None or by_owner else str(analyst)
        for block, units in charged.items():
            for what, limit, spent in self._add(payer, block, units):
                if any(new and total > limit for new, total in zip(units, spent, strict=True)):
                    yield (
                        f"with it phase {block + 1} has {max(spent):,} units charged to {what}, and "
                        f"{limit:,} are allowed"
                    )

    def _add(self, payer: str, block: int, units: _Units) -> Iterator[tuple[str, int, _Units]]:
        """Adds a charge; yields each bound on it: its name, its size, and the units that count towards it."""
        line, pool = self._paid[block], self._pool(payer)
        taken = self._taken.get(block)
        if taken is None:
            taken = self._taken[block] = {}
            for name, paid in line.items():
                of = self._pool(name)
                taken[of] = _plus(taken.get(of, (0, 0)), paid)
        line[payer] = _plus(line.get(payer, (0, 0)), units)
        taken[pool] = _plus(taken.get(pool, (0, 0)), units)
        applies = None if payer == _OWNER else entry_of(self._analysts, payer)
        share = None if applies is None else self._analysts[applies].share
        if share is not None:
            yield f"the share of {payer}", _floor(share), line[payer]
        yield f"what is kept for {pool}", self._kept[pool], taken[pool]

    def _pool(self, payer: str) -> str:
        """The name of the part of a line that a payer takes from."""
        found = self._pools.get(payer)
        if found is None:
            applies = None if payer == _OWNER else entry_of(self._analysts, payer)
            if payer == _OWNER or (applies is not None and self._analysts[applies].owner):
                applies = _OWNER
            found = self._pools[payer] = applies if applies in self._kept else _REST
        return found


def _plus(one: _Units, other: _Units) -> _Units:
    return one[0] + other[0], one[1] + other[1]


def _floor(share: float) -> int:
    """A share as it was written, in units."""
    return math.floor(as_written(share) * UNITS)
