"""Workers on Kafka that answer only who shows a signed token, asked from everywhere."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from stream_dp.cli import root
from stream_dp.client import AsyncClient, Client, Query, Rejection
from stream_dp.errors import InvalidInput
from tests.signing import Issuer
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DEFINITION = {
    "dataset": "people",
    "attributes": [{"name": "smoker", "type": "boolean"}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.1, "failure_probability": 0.01},
    "phase": {"min_rows": 1000},
}
ROWS = [{"smoker": True, "count": 250}, {"smoker": False, "count": 750}]


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def token(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"aud": "people", "exp": int(time.time()) + 600, **claims})


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(Rejection) as caught:
        ask()
    return caught.value.reason.code


def test_only_who_shows_a_token_is_answered(
    deployment: Any, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = deployment.worker(identity="required", identity_keys=issuer.file)
    worker.wait_ready()
    where = {"bootstrap_servers": deployment.bootstrap_servers, "topic_prefix": deployment.prefix}
    with deployment.client() as nobody:
        nobody.define(DEFINITION)  # that needs no token: ACLs are for it
        nobody.send("people", cells=ROWS)
        assert refused(lambda: nobody.ask("people", "smoker")) == "unauthorized"
        assert refused(lambda: nobody.quote("people", "smoker")) == "unauthorized"
        assert refused(lambda: nobody.sql("SELECT COUNT(*) FROM people")) == "unauthorized"
        assert refused(lambda: nobody.quote_together("people", ["smoker"])) == "unauthorized"
        assert refused(lambda: nobody.stand("people", query_id="s")) == "unauthorized"
        many = nobody.ask_many("people", [Query("smoker"), Query("NOT smoker")])
        codes = [one.reason.code for one in many if isinstance(one, Rejection)]
        assert codes == ["unauthorized"] * 2
    good = token(issuer)
    with Client(**where, token=good) as ana:
        assert ana.analyst == "ana"
        answer: Any = ana.ask("people", "smoker", query_id="q")
        assert (answer.analyst, answer.value) == ("ana", pytest.approx(0.25, abs=0.1))
        assert ana.ask("people", "smoker", query_id="q") == answer, "the same again"
        quote: Any = ana.quote("people", "smoker")
        assert quote.status == "quoted"
        assert ana.sql("SELECT COUNT(*) FROM people").rows
        assert len(ana.ask_many("people", [Query("smoker"), Query("NOT smoker")])) == 2
        assert ana.stand("people", "smoker", query_id="tile").analyst == "ana"
        bob = ana.with_token(lambda: token(issuer, sub="bob"))
        answered: Any = bob.ask("people", "smoker", query_id="q")
        assert answered.analyst == "bob"
        bob.end_standing("people", "tile")
        assert [one.analyst for one in ana.standing("people")] == ["ana"]
    for claims, code in (
        ({"exp": int(time.time()) - 1}, "token_expired"),
        ({"aud": "others"}, "wrong_audience"),
    ):
        with Client(**where, token=token(issuer, **claims)) as wrong:
            assert refused(lambda: wrong.ask("people", "smoker")) == code
    record = {"version": 1, "dataset": "people", "analyst": "eve", "query_id": "q"}
    header = [("authorization", f"Bearer {good}".encode())]
    place = deployment.produce("queries", record, key="people", headers=header)

    async def at_once() -> Any:
        async with AsyncClient(**where, token=good) as client:
            return await client.ask("people", "smoker", query_id="q")

    assert asyncio.run(at_once()) == answer
    (told,) = [one for one in deployment.replies("rejected") if one["offset"] == place[2]]
    assert (told["reason"]["code"], told["analyst"]) == ("wrong_analyst", "eve")

    # The command line, and a key that is exchanged meanwhile.
    issuer.rotate()
    options = ["--bootstrap-servers", deployment.bootstrap_servers]
    options += ["--topic-prefix", deployment.prefix]

    def ask(*more: str) -> Any:
        return CliRunner().invoke(root, ["ask", "people", "smoker", *options, *more])

    monkeypatch.setenv("STREAM_DP_TOKEN", token(issuer, sub="cli"))
    ended = ask("--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.output)["analyst"] == "cli"
    monkeypatch.setenv("STREAM_DP_TOKEN", good)  # by the key of before
    ended = ask()
    assert ended.exit_code == 1
    assert "a key that is not known here" in ended.output
    monkeypatch.setenv("STREAM_DP_TOKEN", "nonsense")
    with pytest.raises(InvalidInput, match="not a JSON Web Token"):
        raise ask().exception
    monkeypatch.delenv("STREAM_DP_TOKEN")

    # Over HTTP.
    def post(shown: str) -> Any:
        headers = {"Authorization": f"Bearer {shown}", "Content-Type": "application/json"}
        url = f"{worker.url}/api/v1/datasets/people/queries"
        request = urllib.request.Request(url, b'{"sql": "smoker"}', headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return json.load(reply)

    assert post(token(issuer, sub="web"))["analyst"] == "web"
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(good)
    assert json.load(caught.value)["code"] == "unauthorized"
    assert worker.stop() == 0, worker.output
    for text in (good, good.split(".")[2]):
        assert text not in worker.output
        assert not any(text in json.dumps(one) for one in deployment.replies("rejected"))


def test_a_worker_that_could_not_tell_who_asks_does_not_start(
    deployment: Any, issuer: Issuer, tmp_path: Path
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    name = deployment.topics.name("queries")
    dated = {"message.timestamp.type": "CreateTime"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, dated)])
    admin.close()
    undated = deployment.worker(identity="required", identity_keys=issuer.file)
    keyless = deployment.worker(identity="required", identity_keys=tmp_path / "none.json")
    for worker, words in (
        (undated, "has message.timestamp.type CreateTime, not LogAppendTime"),
        (keyless, "the file cannot be read (FileNotFoundError)"),
    ):
        assert worker.wait() == 1
        assert words in worker.output
        assert "Traceback" not in worker.output
