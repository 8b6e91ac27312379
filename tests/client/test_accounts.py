"""What each analyst and the owner may still charge, worked out of a ledger written by hand."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import OWNER, REST, UNITS, Position
from stream_dp.errors import InvalidInput

RULES: dict[str, Any] = {
    "analysts": {
        "finance": {"share": 0.4},
        "team-*": {"share": 0.1, "together": 0.25},
        "nightly": {"owner": True},
        "*": {"share": 0.05},
    },
    "owner": {"share": 0.2},
}
"""Kept: 0.4 for finance, 0.25 for the teams and 0.2 for the owner. The rest is 0.15."""


class Book:
    """A ledger that grows entry by entry."""

    def __init__(self, rules: dict[str, Any] | None = None, *, phases: int = 1) -> None:
        self.entries: list[dict[str, Any]] = []
        self.add("dataset", definition={"dataset": "people", **(rules or {})})
        for phase in range(phases):
            self.add("phase", phase=phase + 1, rows=1_000)

    def add(self, kind: str, **body: Any) -> None:
        self.entries.append({"seq": len(self.entries), "kind": kind, **body})

    def charge(
        self, analyst: str | None, *units: tuple[int, int, int], owner: bool = False
    ) -> None:
        body: dict[str, Any] = {} if analyst is None else {"analyst": analyst}
        if owner:
            body["paid_by"] = "owner"
        self.add("charge", looks=[{"kind": "counts"}], charges=[list(one) for one in units], **body)

    def read(self) -> Odometer:
        return Odometer.read(self.entries)


def part(share: float) -> int:
    return math.floor(Fraction(str(share)) * UNITS)


def left(book: Book, who: str, phase: int = 1) -> int:
    return book.read().position(who, phase).left


def test_what_is_left_is_what_the_rules_allow_less_what_was_charged() -> None:
    for charged, leaves in (
        ("", "finance 0.4, team-a 0.1, team-b 0.1, nightly 0.2, ann 0.05, the-owner 0.2"),
        # What is kept for one is taken by nobody else.
        ("finance 0.4, ann 0.05", "finance 0, ann 0, bob 0.05, team-a 0.1, the-owner 0.2"),
        # Who matches a pattern has a share of their own, and one together.
        ("team-a 0.1, team-b 0.1", "team-c 0.05, team-a 0, finance 0.4"),
        # The rest is shared by all for whom nothing is kept.
        ("ann 0.05, bob 0.05, cid 0.04", "cid 0.01, dora 0.01, finance 0.4"),
        # The owner pays for openings and tiles, and for queries of the owner.
        ("the-owner 0.1, ann/owner 0.04, nightly 0.03", "the-owner 0.03, nightly 0.03, ann 0.05"),
    ):
        book = Book(RULES, phases=2)
        for who, share in pairs(charged):
            name, _, as_owner = who.partition("/")
            account = None if name == OWNER else name
            book.charge(account, (0, part(share), 0), owner=bool(as_owner))
        for who, share in pairs(leaves):
            assert left(book, who) / UNITS == pytest.approx(share, abs=1e-12), who
        assert left(book, "finance", phase=2) == part(0.4), "each phase has its own line"


def pairs(text: str) -> list[tuple[str, float]]:
    """Names and shares, as ``finance 0.4, ann 0.05`` says them."""
    said = (one.split() for one in filter(None, text.split(", ")))
    return [(who.replace("the-owner", OWNER), float(share)) for who, share in said]


def test_a_position_says_what_was_spent_and_what_bounds_the_rest() -> None:
    book = Book(RULES)
    book.charge(None, (0, part(0.1), 0))
    book.charge("team-a", (0, 10, part(0.07)))
    book.charge("team-a", (0, part(0.05), 0))
    position = book.read().position
    whole = UNITS - part(0.1) - part(0.05) - 10
    assert position(OWNER, 1) == Position(part(0.1), None, part(0.2) - part(0.1), whole)
    assert position("team-c", 1) == Position(0, part(0.1), part(0.25) - part(0.07), whole)
    fuller = position("team-a", 1)
    assert (fuller.spent, fuller.left) == (part(0.07), part(0.1) - part(0.07)), "the fuller sum"


def test_the_line_bounds_what_shares_would_allow() -> None:
    """Charges from before there were shares are on no account, but they are on the line."""
    book = Book()
    book.charge("finance", (0, part(0.9), 0))
    book.add("analysts", **RULES)
    position = book.read().position("finance", 1)
    assert (position.spent, position.own, position.pool) == (0, part(0.4), part(0.4))
    assert position.left == position.whole == UNITS - part(0.9)


def test_a_change_keeps_what_was_spent_and_lists_who_may_not_ask_any_more() -> None:
    book = Book(RULES, phases=2)
    book.charge("finance", (0, part(0.3), 0))
    for name in ("ann", "cid"):
        book.charge(name, (0, part(0.05), 0))
    book.add("analysts", analysts={"finance": {"share": 0.2}, "ann": {"share": 0.5}})
    assert (left(book, "finance"), left(book, "cid")) == (0, 0)
    assert left(book, "ann") == part(0.5) - part(0.05)
    rest = UNITS - part(0.2) - part(0.5) - part(0.05)
    assert left(book, OWNER) == rest, "it has no share of its own any more"
    found = {holder.who: holder for holder in book.read().holders()}
    assert list(found) == [OWNER, "ann", "finance", "cid", REST]
    assert (found["cid"].entry, found["cid"].positions[0].left) == ("", 0)
    book.add("written_off", phases=1, charges=[[0, UNITS, UNITS]])
    assert (left(book, "ann"), left(book, "ann", phase=2)) == (0, part(0.5))


def test_a_repeated_entry_counts_once() -> None:
    book = Book(RULES)
    book.charge("finance", (0, 7, 0))
    book.entries.append(book.entries[-1])
    assert book.read().position("finance", 1).spent == 7


def test_a_data_set_without_shares_has_none() -> None:
    book = Book()
    book.charge("finance", (0, 7, 0))
    odometer = book.read()
    assert (odometer.rules, odometer.holders()) == (None, [])
    assert odometer.blocks[0].paid == {}
    with pytest.raises(InvalidInput, match="everybody may spend all"):
        odometer.position("finance", 1)


def test_a_table_names_the_owner_entries_payers_and_the_rest() -> None:
    book = Book(RULES, phases=2)
    book.charge("team-b", (0, part(0.02), 0), (1, part(0.03), 0))
    book.charge("ann", (1, part(0.05), 0))
    found = {holder.who: holder for holder in book.read().holders()}
    assert list(found) == [OWNER, "finance", "nightly", "team-*", "team-b", "*", "ann", REST]
    assert [one.kept for one in found.values()] == [0.2, 0.4, None, 0.25, None, None, None, 0.15]
    assert found["team-*"].positions[1].spent == part(0.03)
    assert found["team-*"].worst == 1
    assert found["ann"].positions[1].left == 0
    assert found["*"].positions[1].spent == part(0.05)
    assert found["*"].positions[1].left == found[REST].positions[1].left
    assert found["finance"].worst == 1, "the newest of phases that are alike"
    assert [len(one.positions) for one in book.read().holders(last=1)] == [1] * len(found)


@pytest.mark.parametrize("seed", range(20))
def test_who_spends_all_that_is_left_never_passes_a_share_or_a_line(seed: int) -> None:
    """Whoever asks first: what is kept for one is never taken by others, and sums are those of the ledger."""
    draw = random.Random(seed)
    book = Book(RULES)
    names = ["finance", "team-a", "team-b", "team-c", *(f"guest-{n}" for n in range(6))]
    for _ in range(60):
        name = draw.choice([*names, None, "nightly"])
        as_owner = name in (None, "nightly")
        most = left(book, OWNER if name is None else name)
        units = draw.choice([most, draw.randint(0, most)])
        book.charge(name, (0, units, draw.randint(0, units)), owner=as_owner and name is not None)
        odometer = book.read()
        paid = odometer.blocks[0].paid
        sums = {
            who: sum(e["charges"][0][1] for e in book.entries if _account(e) == who) for who in paid
        }
        assert {who: parts.rho for who, parts in paid.items()} == sums
        assert sum(sums.values()) == odometer.blocks[0].charged.rho <= UNITS
        assert sums.get("finance", 0) <= part(0.4)
        assert sums.get(OWNER, 0) + sums.get("nightly", 0) <= part(0.2)
        teams = [spent for who, spent in sums.items() if who.startswith("team-")]
        assert max(teams, default=0) <= part(0.1)
        assert sum(teams) <= part(0.25)
    assert left(book, "finance") == part(0.4) - book.read().position("finance", 1).spent


def _account(entry: dict[str, Any]) -> str | None:
    if entry["kind"] != "charge":
        return None
    return OWNER if entry.get("paid_by") == "owner" else entry.get("analyst", OWNER)
