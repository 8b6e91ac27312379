"""Twenty analysts ask ten thousand queries, and the worker is killed in the middle: no share is passed."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.state import ledger

N_ANALYSTS, N_QUERIES, A_RECORD = 20, 10_000, 100

BINS = 40


def _definition(shares: dict[str, float]) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": "flights",
        "attributes": [
            {"name": "delay", "type": "number", "edges": list(range(BINS - 1)), "integer": True},
            {"name": "carrier", "type": "category", "values": ["AA", "UA", "DL"]},
        ],
        "privacy": {"epsilon": 0.5, "delta": 1e-9},
        "accuracy": {"error": 0.02, "failure_probability": 0.01},
        "phase": {"min_rows": 20_000},
        "mechanism": {"base_share": 0.02},
        "analysts": {name: {"share": share} for name, share in shares.items()},
    }


def _shares(choice: random.Random) -> dict[str, float]:
    """Random shares of twenty analysts, of which 0.9 of a line are kept together."""
    weights = [choice.uniform(0.1, 1.0) for _ in range(N_ANALYSTS)]
    return {
        f"analyst-{number:02}": int(9e5 * weight / sum(weights)) / 1e6
        for number, weight in enumerate(weights)
    }


def _query(choice: random.Random, number: int) -> dict[str, Any]:
    low, high = sorted(choice.sample(range(BINS - 1), 2))
    where = {"all": [{"attribute": "delay", "between": [low, high - 1]}]}
    if choice.random() < 0.5:
        where["all"].append({"attribute": "carrier", "eq": choice.choice(["AA", "UA", "DL"])})
    window = choice.choice([{}, {"window": {"last_phases": 1}}])
    return {"query_id": f"q-{number}", "where": where, "fresh": choice.random() < 0.5, **window}


@pytest.mark.slow
def test_no_share_is_passed_and_sums_are_those_of_the_ledger_topic(deployment: Any) -> None:
    choice = random.Random(17)
    shares = _shares(choice)
    worker = deployment.worker().wait_ready()
    cells = [
        {"delay": delay, "carrier": carrier, "count": 250}
        for delay in range(-1, BINS - 1)
        for carrier in ("AA", "UA", "DL")
    ]
    with deployment.client("owner") as client:
        client.define(_definition(shares))
        for batch in ("one", "two"):
            client.send("flights", cells=cells, batch_id=batch)
    asked: dict[str, str] = {}
    for first in range(0, N_QUERIES, A_RECORD):
        analyst = choice.choice(list(shares))
        queries = [_query(choice, number) for number in range(first, first + A_RECORD)]
        asked |= {query["query_id"]: analyst for query in queries}
        head = {"version": 1, "dataset": "flights", "analyst": analyst}
        deployment.produce("queries", {**head, "queries": queries}, key="flights")

    def answers() -> dict[str, set[bytes]]:
        found: dict[str, set[bytes]] = defaultdict(set)
        for record in deployment.read("answers"):
            found[dict(record.headers)["query_id"].decode()].add(record.value)
        return found

    worker.until(lambda: len(answers()) > N_QUERIES // 10)
    worker.kill()
    before = answers()
    assert len(before) < N_QUERIES, "it was killed too late"
    worker = deployment.worker().wait_ready()
    worker.until(lambda: len(answers()) == N_QUERIES)
    worker.until(lambda: not deployment.durable().unsent)

    found = answers()
    assert found.keys() == asked.keys()
    assert {len(values) for values in found.values()} == {1}
    replies = {name: json.loads(value) for name, (value,) in found.items()}
    outcomes = Counter(
        reply["reason"]["code"] if reply["status"] == "refused" else reply["difficulty"]
        for reply in replies.values()
    )
    assert outcomes.keys() == {"easy", "hard", "share_spent"}, outcomes
    assert min(outcomes.values()) > N_ANALYSTS, outcomes
    assert all(reply["analyst"] == asked[name] for name, reply in replies.items())
    assert {r["analyst"] for r in replies.values() if r.get("difficulty") == "hard"} == set(shares)

    entries = {record.value for record in deployment.read("ledger")}
    chain = sorted((json.loads(entry) for entry in entries), key=lambda entry: entry["seq"])
    ledger.Chain("flights", sorted(entries, key=lambda entry: json.loads(entry)["seq"]))
    charged: Counter[tuple[str, int]] = Counter()
    for entry in chain:
        for block, rho, delta in entry.get("charges", ()):
            assert delta == 0
            charged[entry.get("analyst", ""), block] += rho
    for (analyst, block), units in charged.items():
        if analyst:
            assert units <= Fraction(str(shares[analyst])) * UNITS, f"{analyst} at block {block}"
    nearly = [units / UNITS / shares[analyst] for (analyst, _), units in charged.items() if analyst]
    assert max(nearly) > 0.8, "the shares were not put to the test"

    durable = deployment.durable()
    accounts = {
        tuple(fact.split(" ", 2)[1:]): int(value.split()[0])
        for fact, value in durable.facts("flights").items()
        if fact.startswith("account ")
    }
    assert accounts == {(str(block), who): units for (who, block), units in charged.items()}
    for block in (0, 1):
        total = sum(units for (_, at), units in charged.items() if at == block)
        assert total == durable.spent("flights")[f"{block}:rho"]
        assert total <= UNITS
