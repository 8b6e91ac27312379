"""A worker that answers only who shows a token, and says why it answers nobody else."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import jwt
import pytest

from stream_dp.messages import Rejected
from stream_dp.tokens import Verifier
from tests.pipeline.conftest import Die
from tests.pipeline.flights import (
    AA,
    UNMEASURED,
    answered,
    judged,
    next_phase,
    opened,
    ran,
    rejected,
    spent,
)
from tests.pipeline.test_tokens import encoded
from tests.signing import NOW_MS, Issuer, private

pytestmark = judged

HEAD = {"version": 1, "dataset": "flights", "analyst": "ana"}


@pytest.fixture
async def guarded(world: Any, verifier: Verifier) -> Any:
    """A worker that asks for tokens, with a data set in its first phase."""
    world.now_ms, world.rules = NOW_MS, {"verifier": verifier}
    process = await world.owner()
    await opened(process, mechanism=UNMEASURED)
    yield process
    await process.kill()


async def ask(process: Any, header: Any, query_id: str = "q", **item: Any) -> Any:
    """Sends a query; the reply, an answer or a rejection."""
    world, before = process.world, len(process.world.released("answers"))
    query = {**HEAD, "query_id": query_id, "where": AA, **item}
    record = world.produce("queries", query, headers=header)
    await process.run()
    if (place := (record.topic, record.partition, record.offset)) in world.rejections():
        assert len(world.released("answers")) == before
        (found,) = world.rejections()[place]
        return found
    return world.released("answers")[-1]


def code(reply: Any) -> str:
    return str(reply["reason"]["code"])


async def test_a_signed_query_is_answered_and_the_same_again_is_free(
    guarded: Any, issuer: Issuer
) -> None:
    header = issuer.header()
    first = await ask(guarded, header)
    assert first["status"] == "answered"
    paid = spent(guarded.world)
    assert paid > 0
    guarded.world.now_ms = NOW_MS + 599_999
    assert await ask(guarded, header) == first
    guarded.world.now_ms = NOW_MS + 600_000  # the token has ended
    assert code(await ask(guarded, header)) == "token_expired"
    assert await ask(guarded, issuer.header(exp=NOW_MS // 1000 + 700)) == first
    assert spent(guarded.world) == paid


async def test_whoever_is_not_who_they_say_is_told_so_for_nothing(
    guarded: Any, issuer: Issuer
) -> None:
    claims = encoded(issuer.claims())
    none = f"{encoded({'alg': 'none', 'kid': 'first'})}.{claims}."
    head = encoded({"alg": "HS256", "kid": "first"})
    secret = issuer.file.read_bytes()
    signature = encoded(hmac.digest(secret, f"{head}.{claims}".encode(), hashlib.sha256))
    stranger = jwt.encode(issuer.claims(), private("ES256", 9), "ES256", headers={"kid": "first"})
    unknown = jwt.encode(issuer.claims(), private("ES256", 9), "ES256", headers={"kid": "other"})
    wrong = {
        "unsigned": ({}, "unauthorized"),
        "basic": ({"authorization": b"Basic YTpi"}, "unauthorized"),
        "none": ({"authorization": f"Bearer {none}".encode()}, "unauthorized"),
        "hmac": ({"authorization": f"Bearer {head}.{claims}.{signature}".encode()}, "unauthorized"),
        "stranger": ({"authorization": f"Bearer {stranger}".encode()}, "unauthorized"),
        "unknown": ({"authorization": f"Bearer {unknown}".encode()}, "unauthorized"),
        "expired": (issuer.header(exp=NOW_MS // 1000), "token_expired"),
        "early": (issuer.header(nbf=NOW_MS // 1000 + 31), "unauthorized"),
        "elsewhere": (issuer.header(aud="trains"), "wrong_audience"),
        "another": (issuer.header(sub="bob"), "wrong_analyst"),
    }
    for name, (header, expected) in wrong.items():
        for item in ({}, {"quote": True}, {"standing": True}, {"series": "phase"}):
            reply = await ask(guarded, header, f"{name} {item}".replace(" ", "-"), **item)
            assert code(reply) == expected, name
            assert (reply["dataset"], reply["analyst"]) == ("flights", "ana")
            assert reply["query_id"].startswith(name), "who waits for this id is told"
            assert "authorization" in reply["reason"]["message"]
    assert spent(guarded.world) == 0
    assert not guarded.world.released("standing")
    sample = guarded.worker.context.metrics.registry.get_sample_value
    assert sample("stream_dp_rejected_total", {"reason": "token_expired"}) == 4


async def test_a_record_of_many_queries_is_rejected_once(guarded: Any, issuer: Issuer) -> None:
    items = [{"query_id": f"q{number}", "where": AA} for number in range(600)]
    world, bundle = guarded.world, {"query_id": "b", "quote": "together", "queries": items[:3]}
    record = world.produce("queries", {**HEAD, "queries": items})
    quote = world.produce("queries", {**HEAD, **bundle})
    await guarded.run()
    reply = Rejected.model_validate(world.rejection(record))
    assert (reply.reason.code, reply.analyst, reply.query_id) == ("unauthorized", "ana", None)
    assert world.rejection(quote)["query_id"] == "b"
    for asked in ({"queries": items}, bundle):
        world.produce("queries", {**HEAD, **asked}, headers=issuer.header())
    await guarded.run()
    assert len(answered(world)) == 601


async def test_a_standing_query_begins_and_ends_with_a_token_and_is_answered_without(
    guarded: Any, issuer: Issuer
) -> None:
    world, ends = guarded.world, {**HEAD, "query_id": "tile", "standing": False}
    begins = {**ends, "where": AA, "standing": True}
    await ran(guarded, lambda world: world.produce("queries", begins, headers=issuer.header()))
    world.now_ms = NOW_MS + 3_600_000  # long after the token has ended
    await next_phase(guarded)
    assert [world.answer(f"tile@{phase}")["status"] for phase in (1, 2)] == ["answered"] * 2
    record = world.produce("queries", ends)
    await guarded.run()
    assert code(world.rejection(record)) == "unauthorized"
    later = issuer.header(exp=NOW_MS // 1000 + 7200)
    await ran(guarded, lambda world: world.produce("queries", ends, headers=later))
    await next_phase(guarded)
    assert "tile@3" not in answered(world)


async def test_after_a_rotation_the_new_key_counts_and_the_old_one_does_not(
    guarded: Any, issuer: Issuer
) -> None:
    old = issuer.header()
    assert (await ask(guarded, old, "before"))["status"] == "answered"
    issuer.rotate()
    assert (await ask(guarded, issuer.header(), "after"))["status"] == "answered"
    assert code(await ask(guarded, old, "late")) == "unauthorized"


async def test_wherever_a_worker_dies_the_next_one_decides_alike(
    die: Die, verifier: Verifier, issuer: Issuer
) -> None:
    def ask(world: Any) -> None:
        ended = issuer.header(exp=NOW_MS // 1000)
        for query_id, header in (("good", issuer.header()), ("bad", ended)):
            query = {**HEAD, "where": AA, "query_id": query_id}
            world.produce("queries", query, headers=header)

    rounds = (
        lambda world: world.define("flights", mechanism=UNMEASURED),
        lambda world: world.cells("flights", "first"),
        ask,
    )
    deaths, rules = 0, {"verifier": verifier}
    async for at, world in die(rounds, range(0, 10_000, 2), now_ms=NOW_MS, rules=rules):
        deaths += 1
        assert rejected(world) == {"bad": "token_expired"}, at
        assert world.answer("good")["status"] == "answered", at
        assert world.complaints() == [], at
    assert deaths > 30


async def test_without_the_setting_a_token_is_not_looked_at(world: Any, process: Any) -> None:
    await opened(process)
    header = {"authorization": b"Bearer nonsense"}
    assert (await ask(process, header))["status"] == "answered"
