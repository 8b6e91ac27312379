"""A worker that answers only who shows a token, and says why it answers nobody else."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import jwt
import pytest

from stream_dp.messages import Rejected
from stream_dp.tokens import Verifier
from tests.pipeline.crash import CountingFuse, Crash
from tests.pipeline.test_tokens import encoded
from tests.signing import NOW_MS, Issuer, private

AA = {"attribute": "carrier", "eq": "AA"}


@pytest.fixture
async def guarded(world: Any, verifier: Verifier) -> Any:
    """A world with a data set in its first phase, and a worker that asks for tokens."""
    world.now_ms = NOW_MS
    world.define("flights", mechanism={"base_share": 0.0})
    world.first = world.process(verifier=verifier)
    await world.first.assign()
    await world.first.run()
    world.cells("flights", "first")
    await world.first.run()
    yield world
    await world.first.kill()


async def ask(world: Any, header: Any, query_id: str = "q", **item: Any) -> Any:
    """Sends a query; the reply, an answer or a rejection."""
    document = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": query_id}
    record = world.produce("queries", {**document, "where": AA, **item}, headers=header)
    before = len(world.released("answers"))
    await world.processes[-1].run()
    if (place := (record.topic, record.partition, record.offset)) in world.rejections():
        assert len(world.released("answers")) == before
        (found,) = world.rejections()[place]
        return found
    return world.released("answers")[-1]


def code(reply: Any) -> str:
    return str(reply["reason"]["code"])


def spent(world: Any) -> Any:
    return world.held("flights").spent


async def test_a_signed_query_is_answered_and_the_same_again_is_free(
    guarded: Any, issuer: Issuer
) -> None:
    header = issuer.header()
    first = await ask(guarded, header)
    assert first["status"] == "answered"
    paid = spent(guarded)
    assert max(map(max, paid)) > 0
    guarded.now_ms = NOW_MS + 599_999
    assert await ask(guarded, header) == first
    guarded.now_ms = NOW_MS + 600_000  # the token has ended
    assert code(await ask(guarded, header)) == "token_expired"
    assert await ask(guarded, issuer.header(exp=NOW_MS // 1000 + 700)) == first
    assert spent(guarded) == paid
    assert guarded.complaints() == []


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
    assert max(map(max, spent(guarded))) == 0
    assert not guarded.released("standing")
    sample = guarded.processes[-1].worker.context.metrics.registry.get_sample_value
    assert sample("stream_dp_rejected_total", {"reason": "token_expired"}) == 4
    assert guarded.complaints() == []


async def test_a_record_of_many_queries_is_rejected_once(guarded: Any, issuer: Issuer) -> None:
    items = [{"query_id": f"q{number}", "where": AA} for number in range(600)]
    record = guarded.ask_many("flights", items)
    quote = guarded.ask_many("flights", items[:3], query_id="b", quote="together")
    await guarded.first.run()
    reply = Rejected.model_validate(guarded.rejection(record))
    assert (reply.reason.code, reply.analyst, reply.query_id) == ("unauthorized", "ana", None)
    assert guarded.rejection(quote)["query_id"] == "b"
    head = {"version": 1, "dataset": "flights", "analyst": "ana"}
    guarded.produce("queries", {**head, "queries": items}, headers=issuer.header())
    bundle = {"query_id": "b", "quote": "together", "queries": items[:3]}
    guarded.produce("queries", {**head, **bundle}, headers=issuer.header())
    await guarded.first.run()
    assert len({reply["query_id"] for reply in guarded.released("answers")}) == 601


async def test_a_standing_query_begins_and_ends_with_a_token_and_is_answered_without(
    guarded: Any, issuer: Issuer
) -> None:
    head = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "tile"}
    guarded.produce("queries", {**head, "where": AA, "standing": True}, headers=issuer.header())
    await guarded.first.run()
    guarded.now_ms = NOW_MS + 3_600_000  # long after the token has ended
    guarded.cells("flights", "second")
    await guarded.first.run()
    assert [guarded.answer(f"tile@{phase}")["status"] for phase in (1, 2)] == ["answered"] * 2
    record = guarded.produce("queries", {**head, "standing": False})
    await guarded.first.run()
    assert code(guarded.rejection(record)) == "unauthorized"
    later = issuer.header(exp=NOW_MS // 1000 + 7200)
    guarded.produce("queries", {**head, "standing": False}, headers=later)
    await guarded.first.run()
    guarded.cells("flights", "third")
    await guarded.first.run()
    assert ("flights", "ana", "tile@3") not in guarded.answers()
    assert guarded.complaints() == []


async def test_after_a_rotation_the_new_key_counts_and_the_old_one_does_not(
    guarded: Any, issuer: Issuer
) -> None:
    old = issuer.header()
    assert (await ask(guarded, old, "before"))["status"] == "answered"
    issuer.rotate()
    assert (await ask(guarded, issuer.header(), "after"))["status"] == "answered"
    assert code(await ask(guarded, old, "late")) == "unauthorized"


async def test_wherever_a_worker_dies_the_next_one_decides_alike(
    make_world: Any, verifier: Verifier, issuer: Issuer
) -> None:
    deaths, at = 1, 0
    while deaths:
        world, deaths = make_world(), 0
        world.now_ms = NOW_MS
        world.define("flights", mechanism={"base_share": 0.0})
        process = world.process(verifier=verifier)
        await process.assign()
        await process.run()
        world.cells("flights", "first")
        await process.run()
        await process.stop()
        head = {"version": 1, "dataset": "flights", "analyst": "ana", "where": AA}
        ended = issuer.header(exp=NOW_MS // 1000)
        good = world.produce("queries", {**head, "query_id": "good"}, headers=issuer.header())
        bad = world.produce("queries", {**head, "query_id": "bad"}, headers=ended)
        process = world.process(CountingFuse(at), verifier=verifier)
        try:
            await process.assign()
            await process.run()
        except Crash:
            deaths += 1
            await process.kill()
            process = world.process(verifier=verifier)
            await process.assign()
            await process.run()
        await process.kill()
        assert (good.topic, good.partition, good.offset) not in world.rejections()
        assert world.answer("good")["status"] == "answered"
        assert code(world.rejection(bad)) == "token_expired"
        assert world.complaints() == []
        at += 1
    assert at > 30


async def test_without_the_setting_a_token_is_not_looked_at(world: Any, process: Any) -> None:
    world.define("flights")
    await process.run()
    world.cells("flights", "first")
    await process.run()
    header = {"authorization": b"Bearer nonsense"}
    assert (await ask(world, header))["status"] == "answered"
