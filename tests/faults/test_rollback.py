"""A store that goes back in time is noticed by what the ledger topic says, before anything is spent again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded.valkey import ValkeyServer

pytestmark = pytest.mark.kafka


def test_a_store_from_an_older_copy_or_emptied_stops_the_worker_until_the_newest_is_back(
    make_deployment: Any, make_life: Any, tmp_path: Path
) -> None:
    folder, log = tmp_path / "valkey", tmp_path / "valkey.log"
    server = ValkeyServer(folder, log=log)
    server.start()
    deployment = make_deployment(redis_url=server.url)
    life = make_life(deployment, ["flights"])

    def worked(*phases: int) -> None:
        worker = deployment.worker().wait_ready()
        with deployment.client() as client:
            life.define(client)
            for number in phases:
                life.phase(client, number)
        life.wait_until_released(worker)
        worker.stop()
        assert "forgotten" not in worker.output

    def kept(name: str) -> Path:
        """A copy of the store as it is now, taken while it stands still."""
        nonlocal server
        server.stop()
        shutil.copytree(folder, tmp_path / name)
        server = restarted()
        return tmp_path / name

    def restarted() -> ValkeyServer:
        again = ValkeyServer(folder, log=log, port=server.port)
        again.start()
        return again

    def put_back(copy: Path | None) -> None:
        nonlocal server
        server.stop()
        shutil.rmtree(folder)
        if copy is not None:
            shutil.copytree(copy, folder)
        server = restarted()

    try:
        worked(1)
        older = kept("older")
        worked(1, 2)
        newest = kept("newest")
        charges = len(deployment.read("ledger"))
        for copy in (older, None):
            put_back(copy)
            worker = deployment.worker()
            assert worker.wait() == 1
            assert "Redis has forgotten what was charged to flights" in worker.output
            assert "Restore the newest copy" in worker.output
        events = [e for e in deployment.replies("events") if e["event"] == "rollback_detected"]
        assert {event["dataset"] for event in events} == {"flights"}
        assert len(deployment.read("ledger")) == charges, "nothing was charged meanwhile"
        put_back(newest)
        worked(1, 2, 3)
        assert life.complaints() == []
    finally:
        server.stop()
