"""Who pays for a query, and whether their share of each line is enough. All of it is public.

What each account has charged to each block stands among the facts of a data set. So it is durable in the
commit of its charge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.share_bounds import OWNER, Accounts, Bound, Floats, Payers, Shares, Units
from stream_dp.errors import BudgetExceeded, CorruptState
from stream_dp.messages import AnalystSpec, ChangeAnalysts, Definition, OwnerSpec
from stream_dp.profiles.share_settings import shares_of

RULES: Final = "analysts"  # what is allowed to whom, if it was changed

_ACCOUNT: Final = "account "
"""How the facts begin that say what an account has charged to a block: two numbers, rho and delta."""


@dataclass(frozen=True, slots=True)
class Payer:
    """Whom a charge is for.

    Attributes:
        analyst: The analyst who asks; None for what the data set measures on its own account.
        account: The account that is charged.
    """

    analyst: str | None
    account: str

    @property
    def fields(self) -> dict[str, str]:
        """What the ledger says of it."""
        if self.analyst is None:
            return {}
        by_owner = {"paid_by": "owner"} if self.account == OWNER else {}
        return {"analyst": self.analyst, **by_owner}


OWN: Final = Payer(None, OWNER)
"""What the data set measures on its own account."""


class PayingAnalysts:
    """The accounts of one data set, and the rules in force.

    Args:
        dataset: The name of the data set.
        definition: Its definition.
        meta: Its public facts.
        note: Drafts a public fact.
        part_now: The part of what opening leaves of each line that may be spent by now, of the blocks of a
            window.

    Attributes:
        analysts: What is allowed to whom; None where all is allowed to everybody.
        owner: What is kept for the owner.
    """

    def __init__(
        self,
        dataset: str,
        definition: Definition,
        meta: Mapping[str, str],
        note: Callable[[str, str], None],
        part_now: Callable[[range], Floats],
    ) -> None:
        self.analysts: Mapping[str, AnalystSpec] | None = definition.analysts
        self.owner: OwnerSpec | None = definition.owner
        self._note, self._part_now = note, part_now
        changed = meta.get(RULES)
        if changed is not None:
            rules = ChangeAnalysts.read(json.loads(changed))
            self.analysts, self.owner = rules.analysts, rules.owner
        self._accounts = None if self.analysts is None else Accounts(self._shares(self.analysts))
        if self._accounts is not None:
            for name, value in meta.items():
                if (found := account_of(name)) is not None:
                    self._accounts.charge(found[1], [_charge(dataset, found[0], value)])

    @property
    def bounds(self) -> bool:
        """Whether anybody's part of a line is bounded."""
        return self._accounts is not None

    def change(self, rules: ChangeAnalysts) -> dict[str, Any]:
        """Drafts that other rules are in force from now on; returns what the ledger says of them."""
        self._note(RULES, rules.model_dump_json(exclude_none=True))
        self.analysts, self.owner = rules.analysts, rules.owner
        shares = self._shares(rules.analysts)
        if self._accounts is None:
            self._accounts = Accounts(shares)
        else:
            self._accounts.change(shares)
        said: dict[str, Any] = rules.model_dump(include={"analysts", "owner"}, exclude_none=True)
        return said

    def payers(self, asker: Payer) -> Payers:
        """Those who may pay for what somebody asks."""
        assert self._accounts is not None, "somebody's part is bounded"
        pool_of = self._accounts.shares.pool_of
        return Payers(
            lambda window: self.room(asker, window)[0],
            lambda window: self.room(OWN, window)[0],
            apart=pool_of(asker.account)[1] != pool_of(OWNER)[1],
        )

    def room(self, payer: Payer, window: range) -> Units:
        """Units that a payer may charge to each block now, shape (2, len(window)): rho and delta'."""
        if self._accounts is None:
            return np.full((2, len(window)), UNITS)
        return self._accounts.room(payer.account, window, self._part_now(window))

    def spent(self, payer: Payer, window: range) -> Units:
        """Units that a payer has charged to each block, shape (2, len(window))."""
        if self._accounts is None:
            return np.zeros((2, len(window)), dtype=np.int64)
        return self._accounts.spent(payer.account, window)

    def why(self, payer: Payer, window: range) -> str:
        """Says which bound leaves a payer least of some block of a window, and when there is more."""
        assert self._accounts is not None, "somebody's part is bounded"
        part = self._part_now(window)
        bound = self._accounts.tightest(payer.account, window, part)
        entry = self._accounts.shares.entry_of(payer.account)
        said = _SPENT[bound].format(name="" if entry is None else entry.name)
        return said if float(part.min()) == 1.0 else f"{said}, or kept for later phases"

    def lacking(self, payer: Payer, charges: Sequence[Charge]) -> Bound | None:
        """The first bound that charges, in the order of their blocks, would pass now; None for none."""
        if self._accounts is None or not charges:
            return None
        part = self._part_now(range(charges[0].block, charges[-1].block + 1))
        return self._accounts.lacking(payer.account, charges, part)

    def charge(self, payer: Payer | None, charges: Sequence[Charge]) -> None:
        """Drafts what an account has charged with charges.

        Args:
            payer: Whom the charges are for. None for what opens a phase: only the line bounds it.
            charges: The charges, in the order of their blocks, a block once.

        Raises:
            BudgetExceeded: They pass what the payer may spend.
        """
        if self._accounts is None or not charges:
            return
        if payer is not None and self.lacking(payer, charges) is not None:
            raise BudgetExceeded("charges pass what their payer may spend of a line")
        account = OWNER if payer is None else payer.account
        window = range(charges[0].block, charges[-1].block + 1)
        before = self._accounts.spent(account, window)
        for charge in charges:
            rho, delta = before[:, charge.block - window.start].tolist()
            spent = f"{rho + charge.rho} {delta + charge.delta}"
            self._note(f"{_ACCOUNT}{charge.block} {account}", spent)
        self._accounts.charge(account, charges)

    def _shares(self, analysts: Mapping[str, AnalystSpec]) -> Shares:
        return shares_of(analysts, self.owner)


_SPENT: Final = {
    Bound.SHARE: "your own share of it is spent",
    Bound.TOGETHER: "the share of {name} is spent",
    Bound.REST: "what is kept for nobody is spent",
    Bound.OWNER: "the owner's share of it, which pays for this query, is spent",
}


def account_of(name: str) -> tuple[int, str] | None:
    """The block and the account that a fact is about; None for every other fact."""
    if not name.startswith(_ACCOUNT):
        return None
    block, _, account = name.removeprefix(_ACCOUNT).partition(" ")
    return int(block), account


def rules_text(dataset: str, entry: Mapping[str, Any]) -> str:
    """What is kept of rules in force, from the entry of the ledger that says them."""
    return ChangeAnalysts.said_in(dataset, entry).model_dump_json(exclude_none=True)


def _charge(dataset: str, block: int, stored: str) -> Charge:
    try:
        rho, delta = map(int, stored.split())
    except ValueError:
        raise CorruptState(f"{dataset}: what an account has charged does not decode") from None
    return Charge(block, rho, delta)
