"""Every mechanism but the calibrated one answers through the worker, and survives a restart."""

from __future__ import annotations

from typing import Any

import pytest

AA = {"attribute": "carrier", "eq": "AA"}
SHORT = {"attribute": "cancelled", "eq": False}

PROFILES: dict[str, dict[str, Any]] = {
    "median": {"profile": "median", "queries": 10},
    "sequential": {"profile": "sequential", "queries_per_phase": 10, "phases": 2},
    "memory": {"profile": "memory", "queries_per_phase": 10, "phases": 2},
}


PURE = {"epsilon": 1.0, "delta": 0}
OTHERS: dict[str, dict[str, Any]] = {
    "gated": {"mechanism": {"profile": "gated", "segments": 20}},
    "gated, carried over": {
        "mechanism": {"profile": "gated", "segments": 20, "prior": "carry_over"}
    },
    "counts": {"mechanism": {"profile": "counts"}},
    "counts, pure": {"mechanism": {"profile": "counts"}, "privacy": PURE},
    "whole table": {"mechanism": {"profile": "whole_table"}},
    "weights": {"mechanism": {"profile": "weights"}},
    "weights, pure": {"mechanism": {"profile": "weights"}, "privacy": PURE},
    "weights, fixed": {"mechanism": {"profile": "weights", "growing": False}},
    "bypass": {"mechanism": {"profile": "bypass"}},
    "bypass, pure": {"mechanism": {"profile": "bypass"}, "privacy": PURE},
}


@pytest.mark.parametrize("doubling", [False, True], ids=["known", "doubling"])
@pytest.mark.parametrize("representation", ["exhaustive", "entropic", "polytope"])
@pytest.mark.parametrize("profile", PROFILES)
async def test_it_answers_queries_and_survives_a_restart(
    world: Any, profile: str, representation: str, doubling: bool
) -> None:
    def define(world: Any) -> None:
        world.define_papers(
            "thesis",
            **PROFILES[profile],
            hypothesis_rows=3,
            representation=representation,
            doubling=doubling,
        )

    def open_phase(world: Any) -> None:
        cells = [
            {"carrier": carrier, "cancelled": cancelled, "count": 50_000_000}
            for carrier, cancelled in (("AA", False), ("AA", True), ("UA", False))
        ]
        world.batch("thesis", "one", cells=cells)

    def ask(world: Any) -> None:
        world.ask("thesis", "carrier", AA)
        world.ask("thesis", "cancelled", SHORT)

    def ask_again(world: Any) -> None:
        world.ask("thesis", "both", {"all": [AA, SHORT]})
        world.ask("thesis", "again", AA)

    await world.run(rounds=(define, open_phase, ask))
    await world.run(rounds=(ask_again,))  # another process, from what the journal has
    answers = {name[-1]: answer for name, answer in world.answers().items()}
    truths = {"carrier": 2 / 3, "cancelled": 2 / 3, "both": 1 / 3, "again": 2 / 3}
    for name, truth in truths.items():
        assert answers[name]["status"] == "answered", answers[name]
        assert answers[name]["value"] == pytest.approx(truth, abs=0.3)
        assert answers[name]["path"] in {"gated", "measured"}
    assert world.complaints() == []


@pytest.mark.parametrize("name", OTHERS)
async def test_so_does_every_other_one(world: Any, name: str) -> None:
    def define(world: Any) -> None:
        world.define("flights", **OTHERS[name])

    def open_phase(world: Any) -> None:
        world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)

    def ask(world: Any) -> None:
        world.ask("flights", "carrier", AA)
        world.ask("flights", "cancelled", SHORT)

    def ask_again(world: Any) -> None:
        world.ask("flights", "both", {"all": [AA, SHORT]})
        world.ask("flights", "again", AA)

    def ask_later(world: Any) -> None:
        world.ask("flights", "later", AA)

    await world.run(rounds=(define, open_phase, ask))
    await world.run(rounds=(ask_again, open_phase, ask_later))  # another process
    answers = {answer[-1]: reply for answer, reply in world.answers().items()}
    truths = {"carrier": 9 / 21, "cancelled": 13 / 21, "both": 9 / 21, "again": 9 / 21}
    if name != "weights, fixed":
        truths["later"] = 9 / 21
        assert answers["later"]["n"] == 4_200_000
    for asked, truth in truths.items():
        assert answers[asked]["status"] == "answered", answers[asked]
        assert answers[asked]["value"] == pytest.approx(truth, abs=0.02)
        assert answers[asked]["error_bar"] == pytest.approx(0.02)
        assert answers[asked]["budget"]["spent"] <= 1
    assert world.complaints() == []


@pytest.mark.parametrize("name", ["gated", "weights", "weights, pure"])
async def test_a_restart_begins_a_new_segment_and_every_phase_pays_for_it(
    world: Any, name: str
) -> None:
    """The threshold of the running one was a secret of the process that ended."""

    def define(world: Any) -> None:
        world.define("flights", **OTHERS[name])

    def open_phase(world: Any) -> None:
        world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)

    def everything(world: Any) -> None:  # what is predicted of all rows always stands
        world.ask("flights", f"all-{world.next_offset('queries', 'flights')}")

    await world.run(rounds=(define, open_phase, everything, everything, open_phase, everything))
    await world.run(rounds=(everything, everything))
    answers = {int(answer[-1][4:]): reply for answer, reply in world.answers().items()}
    assert {reply["path"] for reply in answers.values()} == {"gated"}
    paid = [answers[place]["privacy_loss"]["blocks"] for place in sorted(answers)]
    assert paid == [1, 0, 1, 2, 0]  # the second phase joins the segment that runs
    shares = [answers[place]["privacy_loss"]["share"] for place in sorted(answers)]
    assert shares[2] == shares[0]
    assert world.complaints() == []


async def test_queries_beyond_the_stage_begin_the_next_and_the_ledger_says_so(world: Any) -> None:
    def define(world: Any) -> None:
        settings = {"hypothesis_rows": 3, "representation": "exhaustive", "doubling": True}
        world.define_papers("thesis", profile="median", queries=2, **settings)

    def open_phase(world: Any) -> None:
        world.batch("thesis", "one", cells=[{"carrier": "AA", "cancelled": False, "count": 10**9}])

    def ask(world: Any) -> None:
        for turn in range(5):
            world.ask("thesis", f"carrier-{turn}", AA)

    await world.run(rounds=(define, open_phase, ask))
    looks = [look for entry in world.released("ledger") for look in entry.get("looks", [])]
    assert [look["stage"] for look in looks] == [1, 1, 1, 2, 2, 2]
    assert [look["queries"] for look in looks] == [2, 2, 2, 4, 4, 4]
    assert world.complaints() == []


@pytest.mark.parametrize(
    ("mechanism", "field"),
    [
        ({"profile": "median"}, "queries"),
        ({"profile": "median", "queries": 10, "phases": 2}, "mechanism: it has an unknown field"),
        ({**PROFILES["sequential"], "phases": 9, "composition": 1.01}, "composition"),
        ({**PROFILES["memory"], "representation": "grid"}, "representation"),
        ({**PROFILES["memory"], "doubling": "yes"}, "doubling"),
    ],
)
async def test_settings_that_do_not_fit_are_rejected_by_name(
    world: Any, mechanism: dict[str, Any], field: str
) -> None:
    record = world.define_papers("thesis", **mechanism)
    await world.run()
    assert field in world.rejection(record)["reason"]["message"]
