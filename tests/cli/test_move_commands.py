"""A data set moves between deployments on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, servers_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


@pytest.mark.slow
def test_a_data_set_moves_with_its_ids_and_budgets_and_ends_where_it_was(
    run: Run,
    make_deployment: Callable[..., Any],
    definition: dict[str, Any],
    tmp_path: Path,
) -> None:
    here, there, folder = make_deployment(), make_deployment(partitions=3), tmp_path / "moved"
    worker = here.worker().wait_ready()
    with here.client() as client:
        name = client.define(definition).dataset
        client.send(name, cells=[{"city": "Bonn", "count": 2000}], batch_id="first")
        answer = client.ask(name, "age < 30", query_id="one")
        client.send(name, cells=[{"city": "Graz", "count": 1500}], batch_id="second")
        worker.until(lambda: not here.durable().unsent)
        ended = run("dataset", "export", name, "--to", folder, "--yes", *servers_of(here))
        assert ended.code == 1
        assert "stop them all first" in ended.err
    worker.stop()
    spent = here.durable().spent(name)
    ended = run("dataset", "export", name, "--to", folder, "--yes", *servers_of(here))
    assert ended.code == 0, ended.err
    assert "has ended here" in ended.out
    ended = run("dataset", "import", folder, *servers_of(there))
    assert ended.code == 0, ended.err
    ended = run("dataset", "import", folder, *servers_of(here))
    assert "is or was here" in ended.err

    there.worker().wait_ready()
    with there.client() as client:
        assert client.ask(name, "age < 30", query_id="one", timeout_s=PATIENCE_S) == answer
        assert there.durable().spent(name) == spent
        client.send(name, cells=[{"city": "Graz", "count": 500}], batch_id="third")
        client.ask(name, "age < 30", query_id="two", last_phases=2)
        assert run("ledger", "verify", name, *servers_of(there)[:4]).code == 0
    ended = run("doctor", *servers_of(there))
    assert ended.code == 0, ended.out
    assert f"{name}: the sums on the journal match its ledger" in ended.out

    worker = here.worker().wait_ready()
    late = {"dataset": name, "batch_id": "late", "cells": [{"city": "Bonn", "count": 9}]}
    here.produce("batches", {"version": 1, **late}, key=name)
    worker.until(lambda: here.replies("rejected"))
    (rejected,) = here.replies("rejected")
    assert rejected["reason"]["code"] == "stopped"
    stopped = [event for event in here.replies("events") if event["event"] == "stopped"]
    assert "exported to another deployment" in json.dumps(stopped)
    assert here.durable().spent(name) == spent
