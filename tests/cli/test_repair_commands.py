"""A journal that is lost, on real servers: it begins again with what Redis has, or without the rows."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.cli.conftest import Run, delete_topic, servers_of
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def served(deployment: Any, definition: dict[str, Any]) -> tuple[str, Any]:
    """Serves a data set and stops its worker; returns its name and an answer."""
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        name = client.define(definition).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}], batch_id="first")
        answer = client.ask(name, "age < 30", query_id="one")
        worker.until(lambda: not deployment.durable().unsent)
        durable = deployment.durable().states[name]
        worker.until(lambda: deployment.in_redis(name)[name] == durable)
    worker.stop()
    return name, answer


def test_a_journal_that_is_lost_begins_again_with_what_redis_has(
    run: Run, deployment: Any, definition: dict[str, Any]
) -> None:
    name, answer = served(deployment, definition)
    spent = deployment.durable().spent(name)
    ended = run("journal", "repair", *servers_of(deployment))
    assert (ended.code, ended.out) == (0, "there is nothing to repair\n"), ended.err
    delete_topic(deployment, "journal")

    worker = deployment.worker().wait_ready()
    worker.until(lambda: "of the journal is not whole" in worker.output)
    ended = run("doctor", *servers_of(deployment))
    assert "stream-dp journal repair --partition" in ended.out
    ended = run("journal", "repair", *servers_of(deployment))
    assert ended.code == 1
    assert "stop them all first" in ended.err
    worker.stop()
    ended = run("journal", "repair", *servers_of(deployment))
    assert ended.code == 0, ended.err
    assert f"{name}: the journal has nothing of it. It begins again with the" in ended.out
    assert "nothing was changed" in ended.out
    assert name not in deployment.durable().states
    ended = run("journal", "repair", "--apply", *servers_of(deployment))
    assert ended.code == 0, ended.err
    assert "is repaired; start a worker" in ended.out
    assert deployment.durable().spent(name) == spent
    assert any(event["event"] == "repaired" for event in deployment.replies("events"))

    deployment.worker().wait_ready()
    with deployment.client() as client:
        assert client.ask(name, "age < 30", query_id="one", timeout_s=PATIENCE_S) == answer
        client.send(name, cells=[{"city": "Graz", "count": 2000}], batch_id="second")
        client.ask(name, "age < 30", query_id="two", last_phases=1)
        assert client.send(name, cells=[{"city": "Bonn", "count": 2000}], batch_id="first")
    ended = run("ledger", "verify", name, *servers_of(deployment)[:4])
    assert ended.code == 0, ended.out
    ended = run("doctor", *servers_of(deployment))
    assert ended.code == 0, ended.out


def test_without_redis_its_rows_are_written_off_and_new_ones_count(
    run: Run, deployment: Any, definition: dict[str, Any]
) -> None:
    name, _ = served(deployment, definition)
    delete_topic(deployment, "journal")
    with redis.Redis.from_url(deployment.redis_url) as client:
        client.delete(*client.scan_iter(f"*{deployment.prefix.rstrip('.')}*"))
    ended = run("journal", "repair", "--apply", *servers_of(deployment))
    assert ended.code == 1
    assert f"{name}: lost: the journal has nothing of it; Redis has nothing of it" in ended.out
    assert f"stream-dp journal repair --write-off {name}" in ended.out
    worker = deployment.worker().wait_ready()
    worker.until(lambda: f"data set {name} cannot be served" in worker.output)
    worker.stop()
    ended = run("journal", "repair", "--write-off", name, "--apply", *servers_of(deployment))
    assert ended.code == 0, ended.err
    assert "all rows that have come up to now are written off" in ended.out

    deployment.worker().wait_ready()
    with deployment.client() as client:
        client.send(name, cells=[{"city": "Graz", "count": 2000}], batch_id="second")
        answer = client.ask(name, "age < 30", query_id="two", last_phases=1, timeout_s=PATIENCE_S)
        assert answer.window == (2, 2)
    ended = run("ledger", "verify", name, *servers_of(deployment)[:4])
    assert ended.code == 0, ended.out


def test_what_makes_no_sense_is_refused(run: Run, deployment: Any) -> None:
    def said(*words: str) -> str:
        ended = run("journal", "repair", *words, *servers_of(deployment))
        assert ended.code != 0
        return str(ended.err)

    assert "--restored goes with --input" in said("--restored")
    assert "goes without" in said("--input", "queries:0", "--partition", "0")
    assert "pass 0 to 1" in said("--partition", "7")
    assert "there is no data set 'people'" in said("--write-off", "people")
    for more in ([], ["--apply"]):
        assert "is not a partition of an input topic" in said("--input", "x:1", *more)
    place = f"{deployment.topics.name('queries')}:1"
    assert "was not cut" in said("--input", place, "--apply")
