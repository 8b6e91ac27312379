"""Each analyst has a part of every line, whatever others ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.errors import BudgetExceeded
from stream_dp.messages import ChangeAnalysts, Definition, OwnerSpec
from stream_dp.pipeline.spending.payers import OWN, Payer, PayingAnalysts
from tests.pipeline.flights import UNMEASURED, judged, opened
from tests.pipeline.scenarios import TIGHT, change_analysts, condition, fresh_counts

pytestmark = judged

GOLDEN = Path(__file__).parents[1] / "golden"


async def _opened(world: Any, process: Any, analysts: Any, **changes: Any) -> None:
    definition = {"privacy": TIGHT, "mechanism": UNMEASURED, "analysts": analysts, **changes}
    await opened(process, **definition)
    assert not world.released("rejected"), world.released("rejected")


def _much(world: Any, prefix: str, times: int, analyst: str = "ann") -> None:
    """24 counts, so many times."""
    for again in range(times):
        items = fresh_counts(f"{prefix}{again}", range(24))
        world.ask_many("flights", items, analyst=analyst)


def _of(world: Any, analyst: str) -> list[dict[str, Any]]:
    return [reply for (_, who, _), reply in world.answers().items() if who == analyst]


def _spent(world: Any, analyst: str, block: int = 0) -> int:
    stored = world.held("flights").meta.get(f"account {block} {analyst}", "0 0")
    return int(stored.split()[0])


RULES = {
    "by name": {"ann": {"share": 0.3}, "bob": {"share": 0.3}},
    "each of many": {"*": {"share": 0.3}},
    "a team and one": {"a*": {"share": 0.3, "together": 0.3}, "bob": {"share": 0.3}},
    "one and the rest": {"bob": {"share": 0.3}, "*": {}},
}


@pytest.mark.parametrize("analysts", RULES.values(), ids=RULES)
async def test_what_one_analyst_asks_takes_nothing_from_another(
    world: Any, process: Any, analysts: Any
) -> None:
    await _opened(world, process, analysts)
    _much(world, "much", 4)
    await process.run()
    refused = [reply["reason"]["code"] for reply in _of(world, "ann") if "reason" in reply]
    assert set(refused) == {"share_spent"}
    assert len(refused) > 24
    world.ask_many("flights", fresh_counts("few", range(5)), analyst="bob")
    await process.run()
    assert {(reply["status"], reply["path"]) for reply in _of(world, "bob")} == {
        ("answered", "measured")
    }


async def test_without_rules_the_first_one_can_take_all(world: Any, process: Any) -> None:
    """The attack that shares are for works where there are none: so these tests can fail."""
    await _opened(world, process, None)
    _much(world, "much", 4)
    world.ask_many("flights", fresh_counts("few", range(5)), analyst="bob")
    await process.run()
    assert "measured" not in {reply.get("path") for reply in _of(world, "bob")}


async def test_a_spent_share_still_answers_what_is_known(world: Any, process: Any) -> None:
    await _opened(world, process, {"ann": {"share": 0.3}, "bob": {"share": 0.5}})
    world.ask_many("flights", [{"query_id": "paid", "where": condition(1)}], analyst="bob")
    _much(world, "much", 2)
    world.ask_many("flights", [{"query_id": "free", "where": condition(1)}], analyst="ann")
    world.ask_many("flights", fresh_counts("hard", [2]), analyst="ann")
    await process.run()
    free, hard = world.answer("free"), world.answer("hard-2")
    assert (free["status"], free["difficulty"]) == ("answered", "easy")
    assert free["privacy_loss"] == {"share": 0.0, "blocks": 0}
    assert hard["reason"]["code"] == "share_spent"
    assert "your own share of it is spent" in hard["reason"]["message"]
    assert 0.28 < hard["budget"]["yours"]["spent"] <= 0.3
    assert hard["budget"]["left"] > 0.6
    assert _spent(world, "ann") <= 0.3 * UNITS


async def test_a_quote_says_what_is_left_of_the_share_and_of_the_whole(
    world: Any, process: Any
) -> None:
    await _opened(world, process, {"ann": {"share": 0.1}, "bob": {"share": 0.5}})
    world.ask_many("flights", fresh_counts("bobs", range(4)), analyst="bob")
    world.ask_many("flights", fresh_counts("price", [5], quote=True), analyst="ann")
    await process.run()
    budget = world.answer("price-5")["budget"]
    assert budget["yours"] == {"spent": 0.0, "left": 0.1}
    assert budget["spent"] == round(_spent(world, "bob") / UNITS, 6) > 0.1
    dear = fresh_counts("dear", [6], quote=True, error={"value": 200})
    world.ask_many("flights", dear, analyst="ann")
    world.ask_many("flights", [{**dear[0], "query_id": "bobs-dear"}], analyst="bob")
    await process.run()
    assert world.answer("dear-6")["reason"]["code"] == "share_spent"
    assert world.answer("bobs-dear")["privacy_loss"]["share"] > 0.1


@pytest.mark.parametrize("profile", ["counts", "bypass"])
async def test_other_profiles_keep_shares_too(world: Any, process: Any, profile: str) -> None:
    analysts = {"ann": {"share": 0.2}, "bob": {"share": 0.2}}
    await _opened(world, process, analysts, mechanism={"profile": profile})
    for again in range(6):
        items = [{"query_id": f"a{again}-{n}", "where": condition(n)} for n in range(24)]
        world.ask_many("flights", items, analyst="ann")
    await process.run()
    assert _spent(world, "ann") <= 0.2 * UNITS


async def test_a_phase_keeps_a_part_of_each_share_for_later_ones(world: Any, process: Any) -> None:
    """With pacing, one analyst cannot use up what another may spend in this phase."""
    mechanism = {"base_share": 0.0, "pacing": True}
    analysts = {"ann": {"share": 0.5}, "bob": {"share": 0.5}}
    await _opened(world, process, analysts, mechanism=mechanism)
    _much(world, "much", 3)
    world.ask_many("flights", fresh_counts("few", range(3)), analyst="bob")
    await process.run()
    assert 0.2 * UNITS < _spent(world, "ann") <= 0.25 * UNITS
    refused = next(reply for reply in _of(world, "ann") if "reason" in reply)
    assert "kept for later phases" in refused["reason"]["message"]
    assert {reply["path"] for reply in _of(world, "bob")} == {"measured"}
    world.cells("flights", "second")
    await process.run()
    window = {"phases": [1, 1]}
    world.ask_many("flights", fresh_counts("more", range(24), window=window), analyst="ann")
    await process.run()
    assert 0.3 * UNITS < _spent(world, "ann") <= 0.375 * UNITS


async def test_the_owner_pays_for_what_opens_a_phase_and_for_its_own_queries(
    world: Any, process: Any
) -> None:
    analysts = {"dashboard": {"owner": True}, "ann": {"share": 0.4}}
    await _opened(world, process, analysts, mechanism={"base_share": 0.2}, owner={"share": 0.3})
    opening = _spent(world, "")
    assert 0.15 * UNITS < opening <= 0.2 * UNITS
    _much(world, "own", 3, analyst="dashboard")
    world.ask_many("flights", fresh_counts("few", range(5)), analyst="ann")
    await process.run()
    assert 0.05 * UNITS < _spent(world, "dashboard") <= 0.3 * UNITS - opening
    refused = next(reply for reply in _of(world, "dashboard") if "reason" in reply)
    assert "the owner's share of it" in refused["reason"]["message"]
    assert {reply["path"] for reply in _of(world, "ann")} == {"measured"}
    charges = [entry for entry in world.released("ledger") if entry["kind"] == "charge"]
    assert "analyst" not in charges[0]
    assert {entry["analyst"] for entry in charges[1:]} == {"dashboard", "ann"}


async def test_the_owner_pays_for_declared_tiles_whoever_asks_them(
    world: Any, process: Any
) -> None:
    tile = {"where": condition(1)}
    mechanism = {"base_share": 0.0, "workload": [tile]}
    await _opened(
        world, process, {"ann": {"share": 0.0}}, mechanism=mechanism, owner={"share": 0.5}
    )
    world.ask_many("flights", [{"query_id": "tile", **tile}], analyst="ann")
    world.ask_many("flights", fresh_counts("own", [2]), analyst="ann")
    await process.run()
    assert world.answer("tile")["path"] == "measured"
    assert world.answer("own-2")["reason"]["code"] == "share_spent"
    (charge,) = [entry for entry in world.released("ledger") if entry["kind"] == "charge"]
    assert (charge["analyst"], charge["paid_by"]) == ("ann", "owner")
    assert _spent(world, "ann") == 0 < _spent(world, "")


async def test_shares_change_by_a_record_and_what_was_spent_stays(world: Any, process: Any) -> None:
    await _opened(world, process, {"ann": {"share": 0.1}})
    _much(world, "one", 2)
    await process.run()
    before = _spent(world, "ann")
    assert before <= 0.1 * UNITS
    change_analysts(world, {"ann": {"share": 0.3}, "bob": {"share": 0.4}}, owner={"share": 0.2})
    await process.run()
    assert [event["event"] for event in world.events()][-1] == "analysts_changed"
    _much(world, "two", 2)
    world.ask_many("flights", fresh_counts("few", range(3)), analyst="bob")
    await process.run()
    assert 0.2 * UNITS < _spent(world, "ann") <= 0.3 * UNITS
    change_analysts(world, {"ann": {"share": 0.05}})
    world.ask_many("flights", fresh_counts("three", range(3)), analyst="ann")
    await process.run()
    assert {world.answer(f"three-{n}")["reason"]["code"] for n in range(3)} == {"share_spent"}
    changed = [entry for entry in world.released("ledger") if entry["kind"] == "analysts"]
    assert changed[0]["analysts"]["bob"] == {"share": 0.4}
    assert changed[0]["owner"] == {"share": 0.2}
    assert "owner" not in changed[1]


async def test_other_kinds_next_to_counts_change_nothing_of_shares(
    world: Any, process: Any
) -> None:
    tile = {"where": condition(1)}
    await _opened(
        world,
        process,
        {"ann": {"share": 0.2}, "bob": {"share": 0.2}},
        mechanism={"base_share": 0.0, "pacing": True, "workload": [tile]},
        kinds={"median": {"share": 0.01}},
        owner={"share": 0.4},
    )
    _much(world, "much", 2)
    world.ask_many("flights", [{"query_id": "tile", **tile}], analyst="bob")
    await process.run()
    assert 0.05 * UNITS < _spent(world, "ann") <= 0.1 * UNITS
    assert world.answer("tile")["path"] == "measured"
    assert _spent(world, "bob") == 0


def test_frozen_rules_are_read_and_written_back_alike() -> None:
    changed = (GOLDEN / "analysts-v1.json").read_bytes()
    rules = ChangeAnalysts.read(json.loads(changed))
    assert rules.model_dump_json(exclude_none=True).encode() == changed


def test_facts_say_what_is_in_force_and_what_was_charged() -> None:
    definition = Definition.read(json.loads((GOLDEN / "definitions/analysts-v1.json").read_bytes()))
    noted: dict[str, str] = {}
    meta = {
        "analysts": (GOLDEN / "analysts-v1.json").read_text(),
        "account 0 ": "1000 0",
        "account 1 finance": "5 7",
    }
    paying = PayingAnalysts(
        "flights", definition, meta, noted.__setitem__, lambda window: np.ones(len(window))
    )
    assert paying.owner == OwnerSpec(share=0.25)
    finance = Payer("finance", "finance")
    assert paying.spent(finance, range(2)).tolist() == [[0, 5], [0, 7]]
    assert paying.spent(OWN, range(2)).tolist() == [[1000, 0], [0, 0]]
    paying.charge(finance, [Charge(1, 3, 1)])
    assert noted == {"account 1 finance": "8 8"}
    third = 3 * UNITS // 10
    with pytest.raises(BudgetExceeded):
        paying.charge(finance, [Charge(1, third - 7, 0)])
    assert noted == {"account 1 finance": "8 8"}
    paying.charge(finance, [Charge(1, third - 8, 0)])
    assert noted == {"account 1 finance": f"{third} 8"}
