"""The life of a data set: defined once, immutable, retired for ever."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.messages import Definition, PhasedSpec
from stream_dp.profiles.builder import PROFILES
from tests.driven import take_all
from tests.pipeline.flights import AA, UNMEASURED, asked, judged, opened, ran
from tests.pipeline.held import held_of
from tests.view import MemoryView

pytestmark = judged


def retire(world: Any) -> None:
    world.produce("datasets", None, key="flights")


async def test_the_same_definition_or_retirement_again_is_announced_again_and_nothing_else(
    world: Any, process: Any
) -> None:
    for produce in (lambda world: world.define("flights"), retire):
        await ran(process, produce, produce)
    said = ["dataset_accepted"] * 2 + ["dataset_retired"] * 2
    assert [event["event"] for event in world.released("events")] == said
    assert [entry["kind"] for entry in world.released("ledger")] == ["dataset", "retired"]
    assert world.released("catalog")[0]["dataset"] == "flights"
    assert world.released("catalog")[1:] == [None]


PAPERS = {"profile": "median", "queries": 10, "hypothesis_rows": 200}


@pytest.mark.parametrize("mechanism", [{}, {"profile": "counts"}, PAPERS])
async def test_a_delta_that_may_give_a_row_of_each_phase_away_is_refused(
    world: Any, process: Any, mechanism: dict[str, Any]
) -> None:
    """A phase has 20,000 rows or more; the papers' profiles may make it more."""
    privacy = {"epsilon": 10.0, "delta": 1.001 / 20_000}
    record = world.define("flights", privacy=privacy, mechanism=mechanism)
    await process.run()
    reason = world.rejection(record)["reason"]
    assert reason["code"] == "invalid_definition"
    assert reason["message"].startswith("privacy.delta: it is above 1/phase.min_rows: ")
    assert "use at most 5e-05; " in reason["message"]
    assert held_of(world) == {}
    privacy["delta"] = 1 / 20_000
    world.define("flights", privacy=privacy, mechanism=mechanism)
    await process.run()
    (accepted,) = world.events()
    assert accepted["event"] == "dataset_accepted"
    assert accepted["note"].startswith("privacy.delta 5e-05 is large for phases of ")


async def test_a_delta_below_one_in_a_hundred_times_the_rows_is_usual(
    world: Any, process: Any
) -> None:
    privacy = {"epsilon": 1.0, "delta": 1 / 2_000_000}
    world.define("flights", privacy=privacy)
    await process.run()
    assert [event.get("note") for event in world.events()] == [None]


async def test_the_note_counts_the_rows_that_the_profile_needs(world: Any, process: Any) -> None:
    world.define_memory("thesis")  # 0.01, and phases are asked for at one row
    await process.run()
    (accepted,) = world.events()
    assert accepted["note"].startswith(
        "privacy.delta 0.01 is large for phases of 1,175,331 rows; below 8e-09 is usual"
    )


async def test_a_data_set_whose_definition_would_be_refused_by_now_is_read_and_accepted_again(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted once is read for ever, and accepted again in the same words."""
    large = {"privacy": {"epsilon": 1.0, "delta": 0.5}}
    with monkeypatch.context() as patch:
        patch.setattr(Definition, "check_new", lambda _: None)
        world.define("old", **large)
        await process.run()
    world.define("old", **large)
    world.define("new", **large)
    heir = await world.owner()
    world.cells("old", "one")
    await heir.run()
    world.ask("old", "q")
    await heir.run()
    await heir.kill()
    assert world.answer("q")["status"] == "answered"
    (accepted,) = world.events("dataset_accepted")
    assert "0.5 is large" in accepted["note"]
    ((rejected,),) = world.rejections().values()
    assert rejected["dataset"] == "new"


EDGES: dict[str, dict[str, Any]] = {
    "less privacy than there is": {"privacy": {"epsilon": 1e-300, "delta": 5e-324}},
    "hardly any privacy": {"privacy": {"epsilon": 1e-9, "delta": 5e-324}},
    "no delta": {"privacy": {"epsilon": 1.0, "delta": 0}},
    "hardly any privacy and no delta": {"privacy": {"epsilon": 1e-9, "delta": 0}},
    "much privacy and no delta": {
        "privacy": {"epsilon": 20, "delta": 0},
        "accuracy": {"error": 0.999999, "failure_probability": 0.999999},
    },
    "hardly any delta": {"privacy": {"epsilon": 1.0, "delta": 5e-324}},
    "much privacy": {"privacy": {"epsilon": 20, "delta": 5e-5}},
    "much delta": {"privacy": {"epsilon": 20, "delta": 0.999}, "phase": {"min_rows": 1}},
    "less error than there is": {"accuracy": {"error": 1e-300, "failure_probability": 0.1}},
    "hardly any error": {"accuracy": {"error": 1e-9, "failure_probability": 1e-12}},
    "no failure": {"accuracy": {"error": 0.1, "failure_probability": 5e-324}},
    "any error": {"accuracy": {"error": 0.999999, "failure_probability": 0.999999}},
    "a single row": {"phase": {"min_rows": 1}},
    "64 attributes": {"attributes": [{"name": f"a{n}", "type": "boolean"} for n in range(64)]},
    "one cell": {
        "attributes": [{"name": "a", "type": "category", "values": ["x"], "other": False}]
    },
    "all of the line at once": {"mechanism": {"base_share": 0.999999}},
    "edges as far as floats go": {
        "attributes": [{"name": "a", "type": "number", "edges": [-1.7e308, 0, 5e-324, 1.7e308]}]
    },
}


NOT_PAPERS = [name for name, one in PROFILES.items() if not issubclass(one.spec, PhasedSpec)]
REQUIRED: dict[str, dict[str, Any]] = {"gated": {"segments": 10**6}}
SOME: dict[str, dict[str, Any]] = {
    "boolean": {"eq": True},
    "category": {"eq": "x"},
    "number": {"ge": 0},
}


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        (name, profile)
        for name, edge in EDGES.items()
        for profile in NOT_PAPERS
        if profile == "calibrated" or "mechanism" not in edge
    ],
)
async def test_a_definition_at_the_edge_of_what_is_allowed_works_or_is_rejected(
    world: Any, process: Any, name: str, profile: str
) -> None:
    edge = EDGES[name]
    settings = {"profile": profile, **REQUIRED.get(profile, {}), **edge.get("mechanism", {})}
    record = world.define("edge", **{**edge, "mechanism": settings})
    await process.run()
    accepted = bool(world.events("dataset_accepted"))
    if not accepted:
        assert world.rejection(record)["reason"]["code"] == "invalid_definition"
        return
    for n, count in enumerate((1, 30_000, 2**61)):
        world.batch("edge", f"b{n}", cells=[{"count": count}])
        await process.run()
        world.ask("edge", f"all{n}")
        (attribute, *_) = edge.get("attributes", [{"name": "cancelled", "type": "boolean"}])
        world.ask("edge", f"by{n}", kind="table", group_by=[attribute["name"]])
        some = SOME[attribute["type"]]
        world.ask("edge", f"some{n}", {"attribute": attribute["name"], **some})
        await process.run()
    assert len(world.answers()) == 9


async def test_what_is_about_an_unknown_data_set_is_rejected(world: Any, process: Any) -> None:
    records = [
        world.ask("nobody", "q"),
        world.batch("nobody", "b", rows=[]),
        world.produce("datasets", None, key="nobody"),
    ]
    await process.run()
    for record in records:
        assert world.rejection(record)["reason"]["code"] == "unknown_dataset"
        assert world.rejection(record)["dataset"] == "nobody"
    assert dict(process.worker.datasets) == {}


async def test_what_was_rejected_before_the_definition_may_be_sent_again(
    world: Any, process: Any
) -> None:
    early = world.batch("flights", "one", rows=[{"carrier": "AA"}])
    await process.run()
    world.define("flights")
    await process.run()
    world.batch("flights", "one", rows=[{"carrier": "AA"}])
    await process.run()
    assert world.rejection(early)["reason"]["code"] == "unknown_dataset"
    assert len(world.events("batch_accepted")) == 1


async def test_a_retired_data_set_is_erased_and_its_name_used_up(world: Any, process: Any) -> None:
    await opened(process)
    await ran(process, lambda world: world.batch("flights", "two", rows=[{"carrier": "AA"}]))
    before = {"query_id": "before", "where": AA}
    [answer] = await asked(process, before)
    spent = world.held("flights").spent
    await ran(process, retire)
    held = world.held("flights")
    assert (held.waiting, held.blocks, held.transcript, held.verified) == ([], [], [], {})
    assert (held.spent, world.kept) == (spent, {})
    assert world.released("catalog")[-1] is None
    again = world.define("flights")
    world.batch("flights", "late", rows=[{"carrier": "AA"}])
    world.batch("flights", "first", rows=[{"carrier": "AA"}])
    after, repeated = await asked(process, {"where": AA}, before)
    assert world.rejection(again)["reason"]["code"] == "retired"
    assert [e["batch_id"] for e in world.events("batch_refused")] == ["late"]
    assert after["reason"]["code"] == "retired"
    assert repeated == answer


async def commit(dataset: Any) -> None:
    """Has the journal take what is drafted."""
    dataset.draft.commit()
    await dataset.looks._appended(dataset.draft.collect())


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_secret_is_there_for_the_next_worker_until_it_is_dropped(
    world: Any, process: Any, is_lost: bool
) -> None:
    await ran(process, lambda world: world.define("flights"))
    dataset = process.worker.datasets["flights"]
    await dataset.rows.values.keep(**{"run offset": b"first"})
    await dataset.rows.values.keep(**{"run offset": b"secret one"})
    await dataset.rows.values.keep(**{"run cuts": b"secret two"})
    assert "secret" not in repr(dataset) + repr(dataset.rows.blocks.data) + repr(dataset.draft)
    await commit(dataset)
    if is_lost:
        await process.worker.following.joined()
        world.view = MemoryView()
    other = await world.owner()
    await other.run()
    successor = other.worker.datasets["flights"]
    assert successor.rows.blocks.data.vault == {"offset": b"secret one", "cuts": b"secret two"}
    assert b"first" not in {part[16:] for parts in world.kept.values() for part in parts}
    successor.rows.values.discard("run cuts")
    await commit(successor)
    await successor.drop_kept()
    await commit(successor)
    assert world.held("flights").vault == {"offset": b"secret one"}
    assert len(world.kept) == 1
    await other.kill()


async def test_secrets_go_with_the_rows_of_a_retired_data_set(world: Any, process: Any) -> None:
    await ran(process, lambda world: world.define("flights"))
    dataset = process.worker.datasets["flights"]
    await dataset.rows.values.keep(**{"run offset": b"secret one"})
    await commit(dataset)
    assert world.held("flights").vault == {"offset": b"secret one"}
    await dataset.rows.values.keep(**{"run cuts": b"secret two"})
    await ran(process, retire)
    assert dataset.rows.blocks.data.vault == {}
    assert (world.held("flights").vault, world.kept) == ({}, {})


async def test_a_worker_starts_beside_a_retired_data_set(world: Any, process: Any) -> None:
    await opened(process)
    await ran(process, retire)
    await process.kill()
    world.define("trains")
    [after] = await asked(world, {"where": AA})
    assert after["reason"]["code"] == "retired"
    assert world.events()[-1]["dataset"] == "trains"


async def test_a_data_set_is_retired_in_the_group_that_opens_its_phase(
    world: Any, process: Any
) -> None:
    world.define("flights", mechanism=UNMEASURED)
    await process.run()
    records = [
        world.cells("flights", "one"),
        world.produce("datasets", None, key="flights"),
        world.ask("flights", "after", AA),
    ]
    group = [process.fetched(record) for record in records]
    await take_all(process.worker, group)
    await process.drained()
    held = world.held("flights")
    assert (held.blocks, held.spent, world.kept) == ([], [(0, 0)], {})
