"""A ledger in which a share was passed is found, from the ledger alone."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import UNITS
from stream_dp.state import ledger

GATED = Path(__file__).parents[1] / "golden/ledgers/gated.ndjson"
PRICE = 55048125827351
"""Units of each charge of the ledger: four about phase 1 alone, then two about both phases."""

TWICE = 2.5 * PRICE / UNITS
"""A share that pays for two of these charges, and not for a third one."""

ALLOWED = math.floor(Fraction(str(TWICE)) * UNITS)


def charges(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["kind"] == "charge"]


def ledger_of(
    analysts: dict[str, Any], payers: list[str | None], **more: Any
) -> list[dict[str, Any]]:
    """The frozen ledger, with shares in its definition and an analyst for each charge."""
    entries = [json.loads(line) for line in GATED.read_text().splitlines()]
    entries[0]["definition"] |= {"analysts": analysts, **more}
    for entry, payer in zip(charges(entries), payers, strict=False):
        if payer is not None:
            entry["analyst"] = payer
    return entries


def faults(entries: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
    head, chain = ledger.GENESIS, []
    for seq, fields in enumerate(copy.deepcopy(entries)):
        body = {k: v for k, v in fields.items() if k not in ledger._RESERVED}
        entry, head = ledger.append(head, seq, fields["dataset"], fields["kind"], body)
        chain.append(entry)
    report = verify(entries[0]["dataset"], chain)
    return [(fault.entry, fault.text) for fault in report.faults]


def test_charges_within_their_shares_are_right() -> None:
    share = {"share": TWICE}
    entries = ledger_of(
        {"ann": share, "bob": share, "*": {}}, ["ann", "ann", "bob", "bob", "cid", "dora"]
    )
    assert faults(ledger_of(NIGHTLY, [None, "nightly", *["ann"] * 6], owner=SHARE)) == []
    assert len(charges(entries)) == 8
    assert faults(entries) == []
    odometer = Odometer.read(entries)
    assert odometer.position("ann", 1).left == ALLOWED - 2 * PRICE
    assert odometer.position("ann", 2).left == ALLOWED


SHARE: dict[str, Any] = {"share": TWICE}
NIGHTLY: dict[str, Any] = {"nightly": {"owner": True}, "*": {}}
PASSED = f"with it phase 1 has {3 * PRICE:,} units charged to {{}}, and {ALLOWED:,} are allowed"


@pytest.mark.parametrize(
    ("analysts", "payers", "owner", "place", "said"),
    [
        (
            {"ann": SHARE, "*": {}},
            ["ann", "ann", "bob", "ann", "bob"],
            None,
            3,
            [PASSED.format("the share of ann"), PASSED.format("what is kept for ann")],
        ),
        (
            {"team-*": {**SHARE, "together": TWICE}, "*": {}},
            ["team-a", "team-b", "x", "team-c"],
            None,
            3,
            [PASSED.format("what is kept for team-*")],
        ),
        # All but two charges is kept for ann, and others make three.
        (
            {"ann": {"share": 1 - TWICE}, "*": {}},
            ["bob", "cid", "dora"],
            None,
            2,
            ["what is kept for nobody in particular"],
        ),
        ({"*": {}}, [None] * 3 + ["ann"] * 5, SHARE, 2, ["what is kept for the owner"]),
        (
            NIGHTLY,
            [None, *["nightly"] * 2, *["ann"] * 5],
            SHARE,
            2,
            ["what is kept for the owner"],
        ),
        ({"ann": {}}, ["bob"], None, 0, ["bob may not ask by the rules in force"]),
    ],
    ids=["share", "pattern", "kept for others", "owner", "owner's queries", "nobody's"],
)
def test_what_is_passed_is_found_and_named(
    analysts: dict[str, Any],
    payers: list[str | None],
    owner: dict[str, Any] | None,
    place: int,
    said: list[str],
) -> None:
    entries = ledger_of(analysts, payers, **({} if owner is None else {"owner": owner}))
    found = [text for entry, text in faults(entries) if entry == charges(entries)[place]["seq"]]
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))
    assert faults(entries)[0][0] == charges(entries)[place]["seq"], "nothing before it is wrong"


def test_one_unit_less_in_a_share_is_found() -> None:
    exact = Fraction(2 * PRICE, UNITS)
    enough, short = (float(exact + Fraction(n, 4 * UNITS)) for n in (1, -1))
    assert faults(ledger_of({"ann": {"share": enough}, "*": {}}, ["ann", "ann"])) == []
    assert len(faults(ledger_of({"ann": {"share": short}, "*": {}}, ["ann", "ann"]))) == 2


def test_the_owner_may_pay_for_anybody_within_its_own_share() -> None:
    """The owner pays for declared tiles, no matter who asks them."""
    entries = ledger_of({"ann": {"share": 0.01}, "*": {}}, ["ann"] * 8, owner={"share": TWICE})
    for entry in charges(entries)[:2]:
        entry["paid_by"] = "owner"
    for entry in charges(entries)[2:]:
        entry["analyst"] = "bob"
    assert faults(entries) == []
    charges(entries)[2]["paid_by"] = "owner"
    ((_, text),) = faults(entries)
    assert "what is kept for the owner" in text


def changed(entries: list[dict[str, Any]], after: int, **rules: Any) -> list[dict[str, Any]]:
    """Puts a change of shares behind a charge."""
    place = charges(entries)[after]["seq"] + 1
    made = [*entries[:place], {**entries[1], "kind": "analysts", **rules}, *entries[place:]]
    for seq, entry in enumerate(made):
        entry["seq"] = seq
    return made


def test_a_change_counts_what_was_spent_before_it() -> None:
    entries = ledger_of({"*": {}}, ["ann", "ann", "bob", "ann", "bob", "bob"])
    assert faults(entries) == []
    narrow = changed(entries, 1, analysts={"ann": {"share": TWICE}, "*": {}})
    assert [entry for entry, _ in faults(narrow)] == [charges(narrow)[3]["seq"]] * 2
    wide = changed(entries, 1, analysts={"ann": {"share": 0.5}, "*": {}})
    assert faults(wide) == []
    assert Odometer.read(wide).position("ann", 1).spent == 3 * PRICE


def test_what_was_charged_before_the_first_shares_is_on_no_account() -> None:
    entries = ledger_of({}, ["ann", "ann", "ann", "ann"])
    del entries[0]["definition"]["analysts"]
    late = changed(entries, 3, analysts={"ann": {"share": TWICE}, "*": {}})
    assert faults(late) == []
    assert Odometer.read(late).position("ann", 1).spent == 0


def test_a_change_that_keeps_more_than_a_line_is_found() -> None:
    entries = changed(
        ledger_of({"*": {}}, []), 1, analysts={"a": {"share": 0.6}, "b": {"share": 0.6}}
    )
    ((_, text),) = faults(entries)
    assert "the shares that it puts in force cannot be read" in text
    assert "1.2 of each line" in text
