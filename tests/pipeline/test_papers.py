"""Every mechanism of the median family answers through the worker, with every representation."""

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


@pytest.mark.parametrize("doubling", [False, True], ids=["known", "doubling"])
@pytest.mark.parametrize("representation", ["exhaustive", "entropic", "polytope"])
@pytest.mark.parametrize("profile", PROFILES)
async def test_it_answers_questions_and_survives_a_restart(
    world: Any,
    profile: str,
    representation: str,
    doubling: bool,
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
    await world.run(rounds=(ask_again,))  # another process, from what the store holds
    answers = {name[-1]: answer for name, answer in world.answers().items()}
    truths = {"carrier": 2 / 3, "cancelled": 2 / 3, "both": 1 / 3, "again": 2 / 3}
    for name, truth in truths.items():
        assert answers[name]["status"] == "answered", answers[name]
        assert answers[name]["value"] == pytest.approx(truth, abs=0.3)
        assert answers[name]["path"] in {"gated", "measured"}
    assert world.complaints() == []


async def test_questions_beyond_the_guess_begin_the_next_and_the_ledger_says_so(
    world: Any,
) -> None:
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
    assert [look["guess"] for look in looks] == [1, 1, 1, 2, 2, 2]
    assert [look["queries"] for look in looks] == [2, 2, 2, 4, 4, 4]
    assert world.complaints() == []


@pytest.mark.parametrize(
    ("mechanism", "field"),
    [
        ({"profile": "median"}, "queries"),
        ({"profile": "median", "queries": 10, "phases": 2}, "phases"),
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
