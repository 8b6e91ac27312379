"""P13: no analyst charges a block more than is allowed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from stream_dp.core.budget.accountant import UNITS
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


class _Accounts:
    """Who has charged what to which block, by the ledger alone, and what the rules in force allow."""

    def __init__(self) -> None:
        self.analysts: dict[str, Any] | None = None
        self.owner: dict[str, Any] | None = None
        self.charged: Counter[tuple[str, int]] = Counter()

    def entry(self, analyst: str) -> str | None:
        names = self.analysts or {}
        if analyst in names and not analyst.endswith("*"):
            return analyst
        found = [one for one in names if one.endswith("*") and analyst.startswith(one[:-1])]
        return max(found, key=len) if found else None

    def pool(self, account: str) -> tuple[str, Fraction]:
        """The pool of an account, and its part of a line."""
        assert self.analysts is not None
        kept = {
            name: Fraction(str(share))
            for name, spec in self.analysts.items()
            if (share := spec.get("together" if name.endswith("*") else "share")) is not None
        }
        owner = None if self.owner is None else Fraction(str(self.owner["share"]))
        name = self.entry(account) if account else None
        if owner is not None and (not account or (name and self.analysts[name].get("owner"))):
            return "the owner", owner
        if name in kept:
            return str(name), kept[str(name)]
        return "the rest", 1 - sum(kept.values(), Fraction(0)) - (owner or 0)

    def charge(self, account: str, blocks: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Charges units to blocks; says which bounds they pass."""
        for block, units in blocks:
            self.charged[account, block] += units
            if not account:
                continue
            assert self.analysts is not None
            name = self.entry(account)
            share = None if name is None else self.analysts[name].get("share")
            if share is not None and self.charged[account, block] > Fraction(str(share)) * UNITS:
                yield f"{account} has charged more of block {block} than its share"
            pool, part = self.pool(account)
            together = sum(
                paid
                for (other, there), paid in self.charged.items()
                if there == block and self.pool(other)[0] == pool
            )
            if together > part * UNITS:
                yield f"{pool} has charged more of block {block} than is kept for it"


def shares_hold(world: World) -> Iterator[str]:
    """P13: no analyst charges a block more than is allowed, and the facts are what the ledger says of it."""
    published: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "ledger":
            entry = json.loads(event.outgoing.value)
            published[event.outgoing.key][entry["seq"]] = entry
    for name, entries in published.items():
        accounts = _Accounts()
        for _, entry in sorted(entries.items()):
            said = entry["definition"] if entry["kind"] == "dataset" else entry
            if "analysts" in said:
                accounts.analysts, accounts.owner = said["analysts"], said.get("owner")
            if entry["kind"] == "charge" and accounts.analysts is not None:
                account = "" if entry.get("paid_by") == "owner" else entry.get("analyst", "")
                found = accounts.charge(account, [(b, max(rest)) for b, *rest in entry["charges"]])
                yield from (f"P13: of {name}, {passed}" for passed in found)
        meta = world.held(name).meta
        stored = {f: v for f, v in meta.items() if f.startswith("account ")}
        if {f: int(v.split()[0]) for f, v in stored.items()} != {
            f"account {block} {account}": units
            for (account, block), units in accounts.charged.items()
        }:
            yield f"P13: {name} has other accounts than its ledger"
