"""Whether the charges of a ledger stay within the shares of analysts and of the owner."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stream_dp.audit.numbers import UNITS, as_written
from stream_dp.errors import InvalidMessage
from stream_dp.messages import AnalystSpec, ChangeAnalysts, OwnerSpec, entry_of, is_pattern

__all__ = ["Shares"]

_OWNER: Final = "the owner"
_REST: Final = "nobody"  # for whom a part of a line is kept
_Units = tuple[int, int]


class Shares:
    """What each analyst and the owner have paid of each phase, and what they may.

    Accounts begin with the first rules, and stay when the rules change.
    """

    def __init__(self) -> None:
        self._analysts: Mapping[str, AnalystSpec] | None = None
        self._owner: OwnerSpec | None = None
        self._paid: defaultdict[int, dict[str, _Units]] = defaultdict(dict)

    def define(self, analysts: Mapping[str, AnalystSpec] | None, owner: OwnerSpec | None) -> None:
        """Puts rules in force."""
        self._analysts, self._owner = analysts, owner

    def change(self, entry: Mapping[str, Any]) -> Iterator[str]:
        """Puts the rules of an entry in force, and yields what is wrong with them."""
        named = {name: entry[name] for name in ("analysts", "owner") if name in entry}
        try:
            read = ChangeAnalysts.read(
                {"version": 1, "dataset": entry["dataset"], "change": "analysts", **named}
            )
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
        if self._analysts is None:
            return
        analyst, by_owner = entry.get("analyst"), entry.get("paid_by") == "owner"
        if analyst is not None and entry_of(self._analysts, str(analyst)) is None:
            yield f"{analyst} may not ask by the rules in force"
        payer = _OWNER if analyst is None or by_owner else str(analyst)
        for block, units in charged.items():
            line = self._paid[block]
            line[payer] = _plus(line.get(payer, (0, 0)), units)
            for what, limit, spent in self._bounds(payer, line):
                if any(new and total > limit for new, total in zip(units, spent, strict=True)):
                    yield (
                        f"with it phase {block + 1} has {max(spent):,} units charged to {what}, and "
                        f"{limit:,} are allowed"
                    )

    def _bounds(self, payer: str, line: Mapping[str, _Units]) -> Iterator[tuple[str, int, _Units]]:
        """Yields each bound on a payer: its name, its size in units, and what counts towards it."""
        assert self._analysts is not None, "there are rules"
        applies = None if payer == _OWNER else entry_of(self._analysts, payer)
        share = None if applies is None else self._analysts[applies].share
        if share is not None:
            yield f"the share of {payer}", _floor(share), line[payer]
        purse = self._purse(payer)
        total = (0, 0)
        for name, units in line.items():
            if self._purse(name) == purse:
                total = _plus(total, units)
        yield f"what is kept for {purse}", self._size(purse), total

    def _purse(self, payer: str) -> str:
        """The name of the part of a line that a payer takes from."""
        assert self._analysts is not None, "there are rules"
        applies = None if payer == _OWNER else entry_of(self._analysts, payer)
        if payer == _OWNER or (applies is not None and self._analysts[applies].owner):
            return _REST if self._owner is None else _OWNER
        return _REST if applies is None or self._kept(applies) is None else applies

    def _kept(self, name: str) -> float | None:
        assert self._analysts is not None, "there are rules"
        spec = self._analysts[name]
        return spec.together if is_pattern(name) else spec.share

    def _size(self, purse: str) -> int:
        """The size of a part of a line, in units. What is kept for nobody is what the others leave."""
        assert self._analysts is not None, "there are rules"
        if purse == _OWNER:
            return 0 if self._owner is None else _floor(self._owner.share)
        if purse != _REST:
            return _floor(self._kept(purse) or 0)
        names = [name for name in self._analysts if self._kept(name) is not None]
        owner = [] if self._owner is None else [_OWNER]
        return UNITS - sum(self._size(name) for name in names + owner)


def _plus(one: _Units, other: _Units) -> _Units:
    return one[0] + other[0], one[1] + other[1]


def _floor(share: float) -> int:
    """A share as it was written, in units."""
    return math.floor(as_written(share) * UNITS)
