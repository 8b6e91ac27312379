"""What queries take that say neither an error nor a price, and the guards of a record and of a day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Aim
from stream_dp.pipeline.spending import unpriced_queries
from stream_dp.pipeline.spending.in_hand import InHand
from stream_dp.pipeline.spending.unpriced_queries import Unasked
from tests.pipeline.conftest import Die
from tests.pipeline.flights import AA, GONE, LATE, UNMEASURED, asked, judged, opened, spent
from tests.pipeline.scenarios import NOV_1

pytestmark = judged

HOUR_MS = 3_600_000
ACCURACY = {"error": 0.02, "failure_probability": 0.01, "aim": 0.1}
DEAR = {"aim": 0.005, "rough": 0.012, "easy_share": 0.004, "query_share": 0.03, "day_share": 0.06}
"""A count of 8,000 or 9,000 rows within 1.2% takes 2 to 3% of a line, and within 0.5% six times as much."""


@pytest.fixture
def aimed(world: Any) -> Callable[..., Any]:
    """``await aimed(easy_share=0.02)``: a data set in its first phase, with ``accuracy.aim``."""

    async def make(**accuracy: Any) -> Any:
        world.now_ms = NOV_1
        return await opened(world, mechanism=UNMEASURED, accuracy={**ACCURACY, **accuracy})

    return make


async def test_an_ordinary_answer_is_as_precise_as_it_is_worth_and_costs_little(aimed: Any) -> None:
    world = await aimed()
    [answer] = await asked(world, {"where": AA})
    assert answer["useful"] == "yes"
    assert answer["error_bar"] <= 0.1 * answer["value"] * 1.1
    assert 0.0 < answer["privacy_loss"]["share"] < 0.002
    assert "suggestion" not in answer


async def test_an_answer_that_is_worth_more_than_it_may_take_says_what_more_would_take(
    aimed: Any,
) -> None:
    world = await aimed(**DEAR)
    [answer] = await asked(world, {"where": AA})
    assert answer["useful"] == "rough"
    assert answer["suggestion"].startswith("within 1.2%; 0.5% would take ")
    assert answer["aim_price"] > 0.03
    assert answer["privacy_loss"]["share"] <= 0.03


async def test_a_query_that_names_an_error_is_answered_as_without_an_aim(aimed: Any) -> None:
    world = await aimed(**DEAR)
    [answer] = await asked(world, {"where": AA, "error": 0.01})
    assert answer["error_bar"] == pytest.approx(0.01)
    assert answer["useful"] == "no", "a decision that needs 1.2% cannot rest on it"


async def test_the_price_that_an_answer_names_buys_what_it_says(aimed: Any) -> None:
    """Also where the day's share is used up, and those who say nothing have it for free then."""
    world = await aimed(**DEAR)
    for where in (AA, LATE):
        [answer] = await asked(world, {"where": where})
    price = float(answer["suggestion"].split("name at_most ")[1])
    assert price >= answer["aim_price"] > DEAR["query_share"]
    [bought] = await asked(world, {"where": LATE, "at_most": price})
    assert bought["useful"] == "yes"
    assert bought["error_bar"] <= 0.005 * bought["value"] * 1.1
    assert DEAR["day_share"] < bought["privacy_loss"]["share"] <= price
    assert "note" not in bought
    [again] = await asked(world, {"where": LATE})
    assert again["useful"] == "yes"
    assert again["privacy_loss"]["share"] == 0.0


async def test_a_quote_says_why_nothing_is_taken(aimed: Any) -> None:
    world = await aimed(**{**DEAR, "easy_share": 0.03, "day_share": 0.03})
    await asked(world, {"where": AA})
    mean = {"kind": "sum", "attribute": "delay", "quote": True}
    [quote] = await asked(world, mean)
    assert quote["privacy_loss"]["share"] == 0.0
    assert "more than 3% of a phase's budget unasked in 24 hours" in quote["note"]
    world.now_ms += 26 * HOUR_MS
    [quote] = await asked(world, mean)
    assert quote["privacy_loss"]["share"] > 0.0


async def test_the_queries_of_a_record_share_what_one_may_take(aimed: Any) -> None:
    world = await aimed(**DEAR)
    answers = await asked(world, {"where": AA}, {"where": LATE}, {"where": GONE})
    assert [answer["useful"] for answer in answers] == ["rough", "no", "no"]
    assert spent(world) <= 0.03
    assert "the queries of this record would take more than 3%" in answers[1]["note"]
    [again] = await asked(world, {"where": LATE})
    assert again["privacy_loss"]["share"] > 0.02, "it is asked in another record"


async def test_the_queries_of_a_record_that_names_a_price_have_equal_parts_of_it(
    aimed: Any,
) -> None:
    """The guards are for those who name none. What a query leaves is for those behind it."""
    world = await aimed(**DEAR)
    answers = await asked(world, {"where": AA}, {"where": LATE}, {"where": GONE}, at_most=0.09)
    assert [answer["useful"] for answer in answers] == ["rough"] * 3
    shares = [answer["privacy_loss"]["share"] for answer in answers]
    assert shares[0] <= 0.03
    assert 0.06 < sum(shares) <= 0.09, "a day has 6% for those who name no price"
    assert "note" not in answers[2]
    [again] = await asked(world, {"where": LATE})
    assert again["privacy_loss"]["share"] == 0.0


async def test_what_a_query_leaves_of_the_price_of_its_record_is_for_those_behind_it(
    aimed: Any,
) -> None:
    world = await aimed(**DEAR)
    await asked(world, {"where": AA}, at_most=0.2)
    known, dear = await asked(world, {"where": AA}, {"where": LATE}, at_most=0.2)
    assert known["privacy_loss"]["share"] == 0.0
    assert dear["privacy_loss"]["share"] > 0.1, "more than half"
    assert dear["useful"] == "yes"


async def test_an_analyst_has_a_day_and_each_has_one_of_their_own(aimed: Any) -> None:
    world = await aimed(**DEAR)
    for where in (AA, LATE):
        await asked(world, {"where": where})
    before = spent(world)
    [third] = await asked(world, {"where": GONE})
    assert third["useful"] == "no"
    assert "more than 6% of a phase's budget unasked in 24 hours" in third["note"]
    assert "ask again after 2026-11-02 01:00 UTC, or name a price" in third["note"]
    assert spent(world) <= before + 0.002, "a pilot at the most"
    [others] = await asked(world, {"where": GONE}, analyst="bob")
    assert others["privacy_loss"]["share"] > 0.02
    world.now_ms += 26 * HOUR_MS
    [later] = await asked(world, {"where": {"any": [AA, GONE]}})
    assert later["useful"] in ("yes", "rough"), "it is another day"


async def test_a_quote_says_the_price_or_that_of_the_first_look_and_the_most(aimed: Any) -> None:
    world = await aimed(**DEAR)
    [quote] = await asked(world, {"where": AA, "quote": True})
    assert quote["expected"]
    assert quote["most"] == pytest.approx(0.03)
    [answer] = await asked(world, {"where": AA})
    assert quote["privacy_loss"]["share"] <= answer["privacy_loss"]["share"] <= quote["most"]
    [again] = await asked(world, {"where": AA, "quote": True})
    assert again["privacy_loss"]["share"] == 0.0


async def test_the_guards_are_the_same_after_a_crash_and_for_the_next_owner(die: Die) -> None:
    """Whatever effect a worker dies at, no record takes more than one may, and nobody more than a day's."""

    def define(world: Any) -> None:
        world.now_ms = NOV_1
        world.define("flights", mechanism=UNMEASURED, accuracy={**ACCURACY, **DEAR})

    def ask(world: Any) -> None:
        items = [{"query_id": f"q{i}", "where": w} for i, w in enumerate((AA, LATE, GONE))]
        world.ask_many("flights", items)

    rounds = [
        define,
        lambda world: world.cells("flights", "one"),
        ask,
        lambda w: w.ask("flights", "last", GONE),
    ]
    n = 0
    async for at, world in die(rounds, range(0, 10_000, 3), deaths=2):
        n += 1
        assert world.complaints() == [], at
        # A look that a crash lost is charged again, so that a query may have paid a pilot and a look twice.
        assert spent(world) <= 0.06 + 1e-9, at
        assert world.answer("last") is not None, at
    assert n > 3


# ---------------------------------------------------------------- the facts that are kept


class Guards:
    """The guards of a data set with the record in hand, over facts that are kept."""

    def __init__(self, meta: dict[str, str] | None = None) -> None:
        self.meta = {} if meta is None else meta
        self.unasked = Unasked(Aim(0.1), self.meta, self.meta.__setitem__)
        self.in_hand = InHand()

    def begins(self, record: str) -> None:
        self.in_hand = InHand.of(record, None, self.meta)

    def pay(self, analyst: str, time_ms: int, charges: list[Charge]) -> None:
        self.unasked.pay(analyst, time_ms, self.in_hand, charges)
        self.meta |= self.in_hand.facts()

    def left(self, analyst: str, hour: int, block: int = 0) -> int:
        room = self.unasked.room(analyst, hour * HOUR_MS, self.in_hand.unasked)
        assert room is not None
        return int(room(range(block, block + 1))[0])


def test_what_was_taken_is_read_back_as_it_was() -> None:
    guards = Guards()
    guards.begins("queries-0:7")
    guards.pay("ana", 5 * HOUR_MS, [Charge(0, UNITS // 50), Charge(1, UNITS // 100)])
    again = Guards(guards.meta)
    again.begins("queries-0:7")
    assert again.left("ana", 5) == guards.left("ana", 5) == UNITS // 20 - UNITS // 50
    assert again.left("ana", 5, block=1) == UNITS // 20 - UNITS // 100
    again.begins("queries-0:8")
    assert again.left("ana", 5) == UNITS // 20, "another record, and there is a day's left"
    for number in (8, 9):
        again.begins(f"queries-0:{number}")
        again.pay("ana", 6 * HOUR_MS, [Charge(0, UNITS // 40)])
    third = Guards(guards.meta)
    third.begins("queries-0:10")
    assert third.left("ana", 7) == UNITS // 10 - UNITS // 50 - 2 * (UNITS // 40)


def test_a_day_is_the_hour_and_the_24_before_it_and_a_clock_that_was_ahead_ends_nobodys() -> None:
    guards = Guards()
    for number in range(3):
        guards.begins(f"queries-0:{number}")
        guards.pay("ana", 1000 * HOUR_MS, [Charge(0, UNITS // 32)])
    guards.begins("queries-0:9")
    used = UNITS // 10 - 3 * (UNITS // 32)
    assert [guards.left("ana", hour) for hour in (1000, 1024, 1025)] == [used, used, UNITS // 20]
    assert guards.left("ana", 900) == UNITS // 20, "the clock was ahead"
    assert guards.left("bob", 1000) == UNITS // 20


def test_one_of_too_many_analysts_takes_nothing_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpriced_queries, "MOST_NAMES", 2)
    guards = Guards()
    for number, analyst in enumerate(("ana", "bob")):
        guards.begins(f"queries-0:{number}")
        guards.pay(analyst, 0, [Charge(0, 5)])
    guards.begins("queries-0:9")
    assert guards.left("eve", 3) == 0
    assert guards.left("eve", 30) == UNITS // 20, "the day of the others is over"
    guards.pay("eve", 30 * HOUR_MS, [Charge(0, 5)])
    assert sorted(name for name in guards.meta if name.startswith("unasked ")) == [
        "unasked 0",
        "unasked 1",
    ]


def test_parts_of_a_series_do_not_pay_for_each_other() -> None:
    """No two have a line in common, so what a record takes of any line is what the dearest has paid."""
    guards = Guards()
    guards.begins("queries-0:1")
    for block in range(30):
        assert guards.left("ana", 0, block) == UNITS // 20
        guards.pay("ana", 0, [Charge(block, UNITS // 25)])
    assert guards.left("ana", 0, 30) == UNITS // 20
    guards.begins("queries-0:2")
    assert guards.left("ana", 0, 30) == UNITS // 20
