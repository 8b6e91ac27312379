"""Bounds of accounts, against a slower reckoning in fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from stream_dp.core.budget.accountant import UNITS, Charge, Lines
from stream_dp.core.budget.share_bounds import OWNER, Accounts, Bound, Entry, Shares
from stream_dp.messages import entry_of

NAMES = ["ann", "bob", "team-a", "team-b", "eve", OWNER]
BLOCKS = 3


@st.composite
def rules(draw: Any) -> tuple[list[Entry], int | None]:
    """Entries of which no more is kept than a line has."""
    entries, left = [], UNITS
    for name in draw(st.permutations(["ann", "bob", "team-*", "*"])):
        kept = draw(st.none() | st.integers(0, left))
        exact = not name.endswith("*")
        share = kept if exact else draw(st.none() | st.integers(0, UNITS if kept is None else kept))
        is_owner = kept is None and share is None and draw(st.booleans())
        entries.append(Entry(name, share=share, kept=kept, is_owner=is_owner))
        left -= kept or 0
    return entries, draw(st.none() | st.integers(0, left))


charges = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.lists(
            st.tuples(st.integers(0, UNITS // 4), st.integers(0, UNITS // 4)),
            min_size=BLOCKS,
            max_size=BLOCKS,
        ),
    ),
    max_size=12,
)


def shares_of(entries: list[Entry], owner: int | None = None) -> Shares:
    names: dict[str, Any] = {entry.name: entry for entry in entries}
    return Shares(entries, owner, partial(entry_of, names))


class Slow:
    """The same from the definition: every bound of every account is added up again for each charge."""

    def __init__(self, entries: list[Entry], owner: int | None) -> None:
        self.entries, self.owner = {entry.name: entry for entry in entries}, owner
        self.paid: Counter[tuple[str, int, int]] = Counter()

    def entry(self, name: str) -> Entry | None:
        if name == OWNER:
            return None
        matching = [
            one
            for one in self.entries.values()
            if one.name == name or (one.name[-1] == "*" and name.startswith(one.name[:-1]))
        ]
        return max(matching, key=lambda one: (one.name == name, len(one.name)), default=None)

    def pool(self, name: str) -> tuple[str, int]:
        entry = self.entry(name)
        if self.owner is not None and (name == OWNER or (entry is not None and entry.is_owner)):
            return "owner", self.owner
        if entry is not None and entry.kept is not None:
            return entry.name, entry.kept
        kept = sum(one.kept or 0 for one in self.entries.values())
        return "rest", UNITS - kept - (self.owner or 0)

    def allows(self, name: str, asked: list[tuple[int, int]]) -> bool:
        entry, (pool, most) = self.entry(name), self.pool(name)
        for block, units in enumerate(asked):
            for part, more in enumerate(units):
                mine = self.paid[name, block, part] + more
                ours = more + sum(
                    self.paid[other, block, part] for other in NAMES if self.pool(other)[0] == pool
                )
                if more and (
                    ours > most or (entry and entry.share is not None and mine > entry.share)
                ):
                    return False
        return True

    def charge(self, name: str, asked: list[tuple[int, int]]) -> None:
        for block, units in enumerate(asked):
            for part, more in enumerate(units):
                self.paid[name, block, part] += more


@settings(max_examples=300, deadline=None)
@given(rules(), charges)
@example(([Entry("*")], UNITS), [("eve", [(1, 0)] * BLOCKS)])  # the rest of a line is empty
@example(([Entry("ann", share=UNITS, kept=UNITS)], None), [("eve", [(1, 0)] * BLOCKS)])
def test_what_is_kept_for_one_is_there_whatever_others_charge(
    given: tuple[list[Entry], int | None], wanted: list[tuple[str, list[tuple[int, int]]]]
) -> None:
    """Theorem 22: bounds hold to the unit, and a line always has what the bounds of an account leave it."""
    entries, owner = given
    accounts, slow, lines = Accounts(shares_of(entries, owner)), Slow(entries, owner), Lines()
    for _ in range(BLOCKS):
        lines.open()
    for name, asked in wanted:
        some = [Charge(block, *units) for block, units in enumerate(asked)]
        allowed = accounts.lacking(name, some) is None
        assert allowed == slow.allows(name, asked)
        if allowed:
            accounts.charge(name, some)
            slow.charge(name, asked)
            lines.charge(some)  # raises if a line has less
        for one in NAMES:
            room = accounts.room(one, range(BLOCKS))
            spent = np.array([[lines.spent(b).rho, lines.spent(b).delta] for b in range(BLOCKS)]).T
            assert (room <= UNITS - spent).all()
            for block in range(BLOCKS):
                assert accounts.spent(one, range(block, block + 1))[:, 0].tolist() == [
                    slow.paid[one, block, part] for part in (0, 1)
                ]


@settings(max_examples=100, deadline=None)
@given(rules(), rules(), charges)
def test_other_rules_add_up_accounts_again(
    first: tuple[list[Entry], int | None],
    second: tuple[list[Entry], int | None],
    wanted: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    accounts, fresh = Accounts(shares_of(*first)), Accounts(shares_of(*second))
    for name, asked in wanted:
        some = [Charge(block, *units) for block, units in enumerate(asked)]
        accounts.charge(name, some)
        fresh.charge(name, some)
    accounts.change(shares_of(*second))
    for name in NAMES:
        assert (accounts.room(name, range(BLOCKS)) == fresh.room(name, range(BLOCKS))).all()


def test_a_part_is_kept_for_later_phases_behind_what_the_data_set_measures() -> None:
    shares = shares_of([Entry("ann", share=UNITS // 4, kept=UNITS // 4), Entry("*")])
    accounts = Accounts(shares)
    accounts.charge(OWNER, [Charge(0, UNITS // 4), Charge(1, UNITS // 4)])
    part = np.array([0.75, 0.5])
    assert accounts.room("ann", range(2), part)[0].tolist() == [3 * UNITS // 16, UNITS // 8]
    # Half of a line is left of the rest once it is opened.
    assert accounts.room("eve", range(2), part)[0].tolist() == [3 * UNITS // 8, UNITS // 4]
    assert accounts.room(OWNER, range(2), part)[0].tolist() == [UNITS // 2, UNITS // 2]
    assert accounts.lacking("ann", [Charge(1, UNITS // 8)], part[1:]) is None
    assert accounts.lacking("ann", [Charge(1, UNITS // 8 + 1)], part[1:]) is Bound.SHARE
    assert accounts.lacking("eve", [Charge(0, 1), Charge(1, UNITS // 4 + 1)], part) is Bound.REST
    assert accounts.tightest("ann", range(2), part) is Bound.SHARE


def test_more_than_a_line_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="more is kept"):
        shares_of([Entry("ann", share=UNITS, kept=UNITS)], 1)
    third = Fraction(1, 3)
    entries = [Entry(name, share=int(third * UNITS), kept=int(third * UNITS)) for name in "abc"]
    assert shares_of(entries).rest == 1
