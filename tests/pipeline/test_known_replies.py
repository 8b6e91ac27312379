"""A question that was asked before gets its known reply: the very bytes of the full path, but for the id."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stream_dp.messages import QueryFields
from stream_dp.pipeline.intake.records import COMMIT
from stream_dp.pipeline.queries import known_replies
from stream_dp.pipeline.queries.known_replies import KnownReplies, KnownReply, words_of
from stream_dp.pipeline.watch.audit_log import LOGGER
from stream_dp.state.schema import StateTable
from stream_dp.tokens import Verifier
from tests.pipeline.flights import (
    AA,
    BY_CARRIER,
    CUT,
    LAST,
    LATE,
    UA,
    UNMEASURED,
    answered,
    asked,
    asked_in_turn,
    next_phase,
    opened,
    ran,
)
from tests.pipeline.scenarios import NOV_1, change_analysts
from tests.pipeline.trail import Committed, Sent
from tests.pipeline.world import Process, World
from tests.signing import NOW_MS, Issuer

BOTH = {"all": [AA, LATE]}
EITHER = {"any": [AA, {"not": LATE}]}

REPEATED: list[dict[str, Any]] = [
    {},
    {"where": AA},
    {"where": LATE},
    {"where": BOTH},
    {"where": {"all": [LATE, AA]}},
    {"where": EITHER},
    {"where": {"attribute": "delay", "ge": 10.0}},
    {"where": AA, **LAST},
    {"where": AA, "window": {"last_phases": 9}},
    {"where": AA, "window": {"phases": [1, 1]}},
    {"where": AA, "error": 0.08},
    {"where": AA, "error": {"value": 900}},
    {"where": AA, "at_most": 0.5},
    {"where": AA, "kind": "predicate"},
    BY_CARRIER,
    {**BY_CARRIER, "where": LATE, "error": 0.09},
]
"""Forms of questions that are answered from what is known when they come for the third time."""

OTHERS: list[dict[str, Any]] = [
    {"where": AA, "error": {"relative": 0.3}},
    {"where": AA, "quote": True},
    {"where": AA, "fresh": True, "error": 0.2},
    {"where": AA, "series": "phase"},
    {"where": AA, "window": {"last": "1 day"}},
    {"where": CUT},
    {"where": {"attribute": "nothing", "eq": 1}},
    {"where": AA, "window": {"phases": [7, 9]}},
    {"kind": "share", "share_of": AA, "error": {"value": 0.2}},
    {
        "kind": "difference",
        "where": AA,
        "window": {"last_phases": 1},
        "minus_window": {"last_phases": 2},
    },
    {"kind": "median", "attribute": "delay"},
    {"where": 7},
    {"query_id": "a blank"},
]
"""Forms of which each is answered, or refused, in full."""

UNIT = {"key": "customer", "rows_per_phase": 1, "phases": 12}
RULES = {
    "ana": {"share": 0.6, "queries_per_minute": 200},
    "bob": {"spending_per_minute": 0.4},
    "c*": {},
}
_LIMIT: dict[str, Any] = {"ana": {}, "bob": {"at_most": 0.3}}
DEFINITIONS: dict[str, dict[str, Any]] = {
    "nothing measured before": {"mechanism": UNMEASURED},
    "measured as phases open": {},
    "shares and limits": {"mechanism": UNMEASURED, "analysts": RULES, "owner": {"share": 0.1}},
    "rows that go": {"mechanism": UNMEASURED, "retention": {"phases": 1}},
    "an aim": {"accuracy": {"error": 0.02, "failure_probability": 0.01, "aim": 0.1}},
    "another profile": {"mechanism": {"profile": "counts"}},
}


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """The words of the questions that were answered from what is known, and how often."""
    found: Counter[bytes] = Counter()
    find = KnownReplies.find

    def counted(self: KnownReplies, words: bytes, as_of: int) -> KnownReply | None:
        known = find(self, words, as_of)
        found[words] += known is not None
        return known

    monkeypatch.setattr(KnownReplies, "find", counted)
    return found


async def _life(world: World, definition: Mapping[str, Any]) -> Process:
    """A data set that is asked again and again while everything happens to it."""
    world.now_ms = NOV_1
    process = await world.owner()
    await opened(process, privacy={"epsilon": 4.0, "delta": 1e-9}, **definition)

    async def ask(times: int = 3) -> None:
        for _, analyst in itertools.product(range(times), ("ana", "bob")):
            await asked(process, *REPEATED, analyst=analyst, **_LIMIT[analyst])
        await asked(process, *OTHERS)

    await ask()
    world.now_ms += 60_000
    await ask(1)
    await next_phase(process)
    await ask()
    await asked(process, {"where": AA, "error": 0.03}, {"where": UA, "error": 0.03}, analyst="bob")
    await ask(2)
    await ran(process, lambda w: change_analysts(w, {"ana": {"share": 0.5}}))
    await ask()
    await asked(process, {"query_id": "stands", "where": AA, "standing": True})
    await next_phase(process)
    await ask()
    await ran(process, lambda w: w.produce("datasets", None, key="flights"))
    await ask(1)
    return process


def _said(world: World) -> list[tuple[Any, ...]]:
    """All that was told to analysts, and all public facts that became durable, in order."""
    found: list[tuple[Any, ...]] = []
    for one in world.trail:
        if isinstance(one, Committed):
            pairs = one.commit.pairs
            found += [(*pair, value) for pair, value in pairs.items() if pair[0] in _PUBLIC]
        elif isinstance(one, Sent) and one.outgoing.role in _TOLD:
            out = one.outgoing
            headers = [one for one in out.headers if one[0] != COMMIT]
            found.append((out.role, out.value, headers, out.answer, out.asked_ms))
    return [one for one in found if b"ledger head" not in one]


_TOLD = ("answers", "rejected", "standing", "events")
_PUBLIC = (StateTable.ANSWER, StateTable.VERIFIED, StateTable.SPENT, StateTable.FACT)


def _counted(process: Process) -> list[str]:
    text = process.worker.context.metrics.exposition().decode()
    names = ("stream_dp_answers_total", "stream_dp_refusals_total", "stream_dp_rejected_total")
    return [line for line in text.splitlines() if line.startswith(names)]


def _words(*analysts: str) -> set[bytes]:
    """The words of all forms of questions whose replies are kept."""
    forms = [QueryFields(query_id="q", **form) for form in REPEATED]
    found = {words_of(analyst, form) for analyst in analysts for form in forms}
    assert None not in found
    return {words for words in found if words is not None}


@pytest.mark.parametrize("name", DEFINITIONS)
async def test_a_known_reply_is_what_the_full_path_would_say(
    name: str,
    make_world: Callable[..., World],
    hits: Counter[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = []
    for knows in (True, False):
        if not knows:
            monkeypatch.setattr(KnownReplies, "find", lambda *_: None)
            monkeypatch.setattr(KnownReplies, "alike", lambda *_: {})
        caplog.clear()
        with caplog.at_level(logging.INFO, logger=LOGGER):
            world = make_world()
            process = await _life(world, DEFINITIONS[name])
        lines = [one.getMessage() for one in caplog.records if one.name == LOGGER]
        found.append((_said(world), _counted(process), lines))
    assert len(found[0][0]) > 600
    for known, full in zip(*found, strict=True):
        assert known == full
    expected = set() if name in ("an aim", "another profile") else _words("ana", "bob")
    assert {words for words, times in hits.items() if times} == expected


# ---------------------------------------------------------------- one by one


@pytest.fixture
async def known(process: Process, hits: Counter[bytes]) -> Process:
    """A worker that knows the reply to a question of ana, who has a part of the budget of her own."""
    await opened(process, mechanism=UNMEASURED, analysts={"ana": {"share": 0.6}, "bob": {}})
    replies = await asked_in_turn(process, *[{"where": AA}] * 4)
    assert [reply["path"] for reply in replies] == ["measured", "repeat", "repeat", "repeat"]
    assert hits.total() == 2
    return process


async def _again(process: Process, **about: Any) -> Any:
    (reply,) = await asked(process, {"where": AA}, **about)
    return reply


async def test_a_known_reply_has_the_id_under_which_it_is_asked_for(known: Process) -> None:
    one = await _again(known)
    for name in ('with"quotes"and\\', "query_id", one["query_id"] + "0"):
        (other,) = await asked(known, {"where": AA, "query_id": name})
        assert other == {**one, "query_id": name}
        (same,) = await asked(known, {"where": AA, "query_id": name})  # it is stored under its id
        assert same == other
    (reused,) = await asked(known, {"where": UA, "query_id": one["query_id"]})
    assert reused["reason"]["code"] == "id_reused"


async def test_a_reply_is_not_known_once_a_phase_has_opened(known: Process) -> None:
    before = await _again(known)
    await next_phase(known)
    after = await _again(known)
    assert (before["phase"], before["n"]) == (1, 21_000)
    assert (after["phase"], after["n"]) == (2, 42_000)
    assert after["path"] == "measured"


async def test_a_reply_is_not_known_once_another_look_was_taken(known: Process) -> None:
    before = await _again(known)
    (look,) = await asked(known, {"where": LATE})
    assert look["path"] == "measured"
    after = await _again(known)
    assert after["budget"]["spent"] == look["budget"]["spent"] > before["budget"]["spent"]
    (closer,) = await asked(known, {"where": AA, "error": 0.012})
    assert closer["path"] == "measured"
    better = await _again(known)
    assert better["error_bar"] < after["error_bar"]


async def test_a_reply_is_not_known_once_the_rows_are_erased(known: Process) -> None:
    await _again(known)
    await ran(known, lambda world: world.produce("datasets", None, key="flights"))
    reply = await _again(known)
    assert (reply["status"], reply["reason"]["code"]) == ("refused", "retired")


async def test_a_reply_is_not_known_once_other_rules_are_in_force(known: Process) -> None:
    before = await _again(known)
    await ran(known, lambda world: change_analysts(world, {"ana": {"share": 0.3}}))
    after = await _again(known)
    assert after["budget"]["yours"]["left"] < before["budget"]["yours"]["left"]


async def test_the_reply_to_one_analyst_is_not_that_to_another(known: Process) -> None:
    own, other = await _again(known), await _again(known, analyst="bob")
    assert (own["analyst"], own["budget"]["yours"]["spent"] > 0) == ("ana", True)
    assert (other["analyst"], other["budget"]["yours"]["spent"]) == ("bob", 0)


async def test_a_known_reply_waits_for_the_next_minute_like_any_other(
    world: World, process: Process, hits: Counter[bytes]
) -> None:
    world.now_ms = NOV_1
    await opened(process, mechanism=UNMEASURED, analysts={"ana": {"queries_per_minute": 5}})
    replies = await asked(process, *[{"where": AA}] * 7)
    assert [reply.get("path") for reply in replies] == ["measured", *["repeat"] * 4, None, None]
    assert replies[-1]["reason"]["code"] == "too_many_queries"
    assert hits.total() == 3
    world.now_ms += 60_000
    assert (await _again(process))["path"] == "repeat"


async def test_a_known_reply_is_for_those_alone_who_show_a_token(
    world: World, verifier: Verifier, issuer: Issuer, hits: Counter[bytes]
) -> None:
    world.now_ms, world.rules = NOW_MS, {"verifier": verifier}
    process = await world.owner()
    await opened(process, mechanism=UNMEASURED)
    head = {"version": 1, "dataset": "flights", "analyst": "ana", "where": AA}

    async def ask(query_id: str, headers: Any) -> None:
        world.produce("queries", {**head, "query_id": query_id}, headers=headers)
        await process.run()

    for number in range(4):
        await ask(f"q{number}", issuer.header())
    assert hits.total() == 2
    await ask("stolen", {})
    assert set(answered(world)) == {"q0", "q1", "q2", "q3"}
    assert hits.total() == 2


async def test_no_more_is_known_than_there_is_room_for(
    process: Process, hits: Counter[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(process, mechanism=UNMEASURED)
    monkeypatch.setattr(known_replies, "MOST_BYTES", 2_000)
    for _ in range(4):
        await asked(process, *REPEATED)
        held = process.datasets["flights"].known_replies
        assert sum(map(len, held._known.values())) < 4_000
