"""``stream-dp ledger verify`` on real topics, without the store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.state import ledger
from tests.cli.conftest import Run, servers_of

pytestmark = pytest.mark.kafka


@pytest.fixture
def people(deployment: Any, definition: dict[str, Any]) -> str:
    """A data set with two phases whose worker has charged for some queries, and has ended."""
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        name = str(client.define({**definition, "kinds": {"median": {"share": 0.2}}}).dataset)
        for number in range(2):
            cells = [{"city": city, "count": 1000 + number} for city in ("Bonn", "Graz", "Lyon")]
            client.send(name, cells=cells)
        client.ask(name, "city = 'Bonn'")
    worker.stop()
    return name


@pytest.fixture
def check(run: Run, deployment: Any) -> Run:
    """``check("people", "--json")``: the command, without any store's address."""
    return lambda *words: run("ledger", "verify", *servers_of(deployment)[:4], *words)


def test_each_block_has_its_line_and_nothing_differs(
    check: Run, people: str, deployment: Any
) -> None:
    assert "there is no ledger of nobody" in check("nobody").err
    ended = check("--json")
    assert ended.code == 0, ended.err
    (report,) = map(json.loads, ended.out.splitlines())
    assert (report["dataset"], report["faults"], report["notes"]) == (people, [], [])
    assert [phase["rows"] for phase in report["phases"]] == [3000, 3003]
    for phase in report["phases"]:
        assert phase["spent"] == phase["recomputed"]
        assert phase["difference"] == [0, 0]
        assert 0 < phase["epsilon"] < 1
    with deployment.client() as client:
        assert report["head"] == ledger.Chain(people, client.ledger_entries()[people]).head.hex()

    shown = check(people)
    assert shown.code == 0
    lines = [line.split() for line in shown.out.splitlines()]
    rows = [line for line in lines if line[:1] in (["1"], ["2"])]
    assert [(line[1], line[4]) for line in rows] == [("3,000", "0"), ("3,003", "0")]
    assert all(line[2] == line[3] for line in rows)
    assert "and nothing differs; a full line is epsilon 1 by dp-accounting" in shown.out
    assert "no fault in 1 data set" in shown.out


@pytest.mark.slow
def test_a_forged_entry_is_named_and_the_exit_code_says_so(
    check: Run, people: str, deployment: Any
) -> None:
    with deployment.client() as client:
        entries = client.ledger_entries()[people]
    table = {"kind": "tables", "reason": "query", "tables": [[[0], 0, 0]]}
    body = {"looks": [table], "charges": [[0, 1, 0]]}
    cheap, _ = ledger.append(
        ledger.Chain(people, entries).head, len(entries), people, "charge", body
    )
    deployment.produce("ledger", entries[1], key=people)  # once more, which is harmless
    assert check().code == 0
    deployment.produce("ledger", cheap, key=people)
    ended = check()
    assert ended.code == 1
    assert f"fault  entry {len(entries)}: undercharged: phase 1 was charged 1 units" in ended.out
    assert "1 units of rho" in ended.out
    assert "faults in 1 data set" in ended.out
    assert json.loads(check("--json").out)["faults"][0]["entry"] == len(entries)
