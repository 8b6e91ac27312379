"""Every kind of query, asked through a real Kafka of one data set that answers them all."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_dp.client import Query
from stream_dp.client.budget.odometer import Odometer
from stream_dp.messages import FIELDS, Answer
from stream_dp.profiles.kinds import ANSWERERS

pytestmark = pytest.mark.kafka

N = 20_000
COLUMNS: dict[str, list[Any]] = {
    "city": ["Graz" if i % 10 < 3 else "Lyon" if i % 10 == 3 else "Bonn" for i in range(N)],
    "age": [i % 100 for i in range(N)],
    "smoker": [i % 4 == 0 for i in range(N)],
}
KINDS = {
    "threshold": {"share": 0.1},
    "median": {"share": 0.05},
    "mode": {"share": 0.05},
    "prefix_batch": {"share": 0.1},
    "correlated_vector": {"share": 0.1, "attribute": "smoker"},
    "between": {"share": 0.1, "answers": 2},
    "interior_point": {"share": 0.1, "points": 100},
    "adaptive_threshold": {"share": 0.2, "chunks": 4, "queries": 50},
}
PEOPLE = {
    "dataset": "people-of-all-kinds",
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "other": False},
        {"name": "age", "type": "number", "edges": [18, 30, 45, 65], "integer": True},
        {"name": "smoker", "type": "boolean"},
    ],
    "privacy": {"epsilon": 10.0, "delta": 4e-7},
    "accuracy": {"error": 0.1, "failure_probability": 1e-6},
    "phase": {"min_rows": N},
    "kinds": KINDS,
}

Check = Callable[[Any], object]


def near(value: float | None, truth: float, bar: float | None) -> bool:
    return value is not None and bar is not None and abs(value - truth) <= bar < 0.3


def agrees(answer: Any) -> bool:
    packed = np.frombuffer(base64.b64decode(answer.vector.bits), dtype=np.uint8)
    signs = 2.0 * np.unpackbits(packed, count=N) - 1
    truth = 2.0 * np.array(COLUMNS["smoker"]) - 1
    return near(float(signs @ truth) / N / answer.vector.agreement, 1.0, answer.error_bar)


ASKED: dict[str, tuple[Query, Check]] = {
    "predicate": (
        Query("age < 45 AND smoker"),
        lambda a: near(
            a.value, float(np.mean([i % 4 == 0 and i % 100 < 45 for i in range(N)])), a.error_bar
        ),
    ),
    "table": (
        Query(group_by=("city",)),
        lambda a: all(
            near(*cell)
            for cell in zip(a.table.values, (0.6, 0.3, 0.1), a.table.error_bars, strict=True)
        ),
    ),
    "sum": (Query.sum("age", "smoker"), lambda a: near(a.value, 0.25, a.error_bar)),
    "share": (Query.share("smoker"), lambda a: near(a.share, 0.25, a.share_bar)),
    "threshold": (
        Query.threshold("age", "age < 45"),
        lambda a: near(a.value, 0.45, a.error_bar),
    ),
    "quantile": (Query.quantile("age", 0.8), lambda a: a.found.label == ">= 65"),
    "median": (Query.median("age"), lambda a: a.found.label == "45 to 64"),
    "mode": (Query.mode("city"), lambda a: a.found.label == "Bonn"),
    "prefix_batch": (
        Query.prefix_batch("age", ["age < 18", "age < 65"]),
        lambda a: all(
            near(*pair, a.error_bar_simultaneous)
            for pair in zip(a.batch.values, (0.18, 0.65), strict=True)
        ),
    ),
    "correlated_vector": (Query.correlated_vector("smoker"), agrees),
    "between": (Query.between("smoker", 0.35, 0.45), lambda a: a.side == "below"),
    "interior_point": (Query.interior_point("age", "age < 45"), lambda a: a.side is not None),
    "adaptive_threshold": (
        Query.adaptive_threshold("age", "age < 45"),
        lambda a: near(a.value, 0.45, a.error_bar),
    ),
}


def test_no_kind_is_left_out() -> None:
    assert KINDS.keys() == ANSWERERS.keys()
    # A difference needs two windows, and a correlation two numbers; this data set has one of each.
    assert ASKED.keys() == FIELDS.keys() - {"difference", "correlation"}


def test_every_kind_is_answered_on_one_budget(served_deployment: Any) -> None:
    """False alarm 1e-5, all bars together."""
    with served_deployment.client() as client:
        client.define(PEOPLE)
        assert client.send("people-of-all-kinds", columns=COLUMNS).phase == 1
        answers = client.ask_many("people-of-all-kinds", [query for query, _ in ASKED.values()])
        for (kind, (_, check)), answer in zip(ASKED.items(), answers, strict=True):
            assert isinstance(answer, Answer), answer
            assert answer.status == "answered", (kind, answer)
            assert check(answer), (kind, answer)
        spent = answers[-1].budget.spent
        again = client.ask_many("people-of-all-kinds", [query for query, _ in ASKED.values()])
        assert [answer.privacy_loss.share for answer in again] == [0.0] * len(ASKED)
        assert again[-1].budget.spent == spent <= 1.0
        easy, hard = client.difficulties()
        assert easy["people-of-all-kinds"] + hard["people-of-all-kinds"] == 2 * len(ASKED)
        odometer = Odometer.read(client.ledger("people-of-all-kinds"))
        assert odometer.most_spent == pytest.approx(spent, abs=1e-6)
        assert odometer.looks >= len(KINDS)
