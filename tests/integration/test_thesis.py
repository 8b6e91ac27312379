"""W6: the thesis profile on 1e17 rows, through the whole system.

With the papers' constants every answer lies within the promised error; with ``m`` set by hand the hard
queries run out and the refusal says so; and the ledger reads what Theorem 5.1 says.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.client import Query

pytestmark = pytest.mark.kafka

UNITS = 2**50
ERROR = 0.1
ROWS = 10**17
PHASES = 3
ASKS = 100

CELLS = [(a, b) for a in ("x", "y") for b in ("x", "y")]


def _definition(
    name: str, delta: float, *, min_rows: int = 10**16, **mechanism: object
) -> dict[str, Any]:
    values = {"type": "category", "values": ["x", "y"], "other": False}
    return {
        "version": 1,
        "dataset": name,
        "attributes": [{"name": "a", **values}, {"name": "b", **values}],
        "privacy": {"epsilon": 1.0, "delta": delta},
        "accuracy": {"error": ERROR, "failure_probability": 0.01},
        "phase": {"min_rows": min_rows},
        "mechanism": {
            "profile": "memory",
            "queries_per_phase": 1_000,
            "phases": PHASES,
            **mechanism,
        },
    }


def _block(chance: random.Random) -> list[int]:
    """Counts of the four cells; they sum to ROWS exactly."""
    cuts = sorted(chance.randrange(ROWS) for _ in CELLS[1:])
    ends = [0, *cuts, ROWS]
    return [stop - start for start, stop in itertools.pairwise(ends)]


def _condition(cells: list[int]) -> dict[str, Any]:
    both = [
        {"all": [{"attribute": "a", "eq": CELLS[c][0]}, {"attribute": "b", "eq": CELLS[c][1]}]}
        for c in cells
    ]
    return {"any": both}


def _phases(client: Any, name: str, seed: int) -> list[tuple[int, list[int], Any]]:
    """Sends three blocks and asks after each; (phase, cells asked, answer) in the order asked."""
    chance = random.Random(seed)
    found = []
    for phase in range(1, PHASES + 1):
        counts = _block(chance)
        rows = [{"a": a, "b": b, "count": n} for (a, b), n in zip(CELLS, counts, strict=True)]
        assert client.send(name, cells=rows, batch_id=f"phase-{phase}").phase
        asked = [sorted(chance.sample(range(4), chance.randint(1, 3))) for _ in range(ASKS)]
        replies = client.ask_many(name, [Query(_condition(cells)) for cells in asked])
        found += [(phase, cells, reply) for cells, reply in zip(asked, replies, strict=True)]
    return found


def _truth(seed: int) -> list[list[int]]:
    """The blocks that ``_phases`` sends, made again."""
    chance = random.Random(seed)
    blocks = []
    for _ in range(PHASES):
        blocks.append(_block(chance))
        for _ in range(ASKS):
            chance.sample(range(4), chance.randint(1, 3))
    return blocks


def _charged(client: Any, name: str) -> dict[int, int]:
    charged: dict[int, int] = {}
    for entry in client.ledger(name):
        for block, rho, _ in entry.get("charges", []):
            charged[block] = charged.get(block, 0) + rho
    return charged


@pytest.mark.slow
def test_the_papers_constants_keep_every_answer_within_the_error(served_deployment: Any) -> None:
    with served_deployment.client() as client:
        client.define(_definition("papers", 1e-20))
        answers = _phases(client, "papers", seed=6)
        blocks = _truth(seed=6)
        for phase, cells, answer in answers:
            assert answer.status == "answered"
            truth = sum(blocks[block][cell] for block in range(phase) for cell in cells)
            assert abs(Fraction(answer.count or 0) - truth) <= Fraction(ERROR) * phase * ROWS
            assert answer.n == phase * ROWS
        assert {answer.difficulty for _, _, answer in answers} == {"easy", "hard"}
        # Theorem 5.1: after the third phase the whole epsilon = H_3 alpha is on every line, and no more.
        lines = _charged(client, "papers")
        assert set(lines) == {0, 1, 2}
        assert all(0.999 * UNITS < line <= UNITS for line in lines.values())


def test_hard_queries_run_out_and_the_refusal_says_so(served_deployment: Any) -> None:
    with served_deployment.client() as client:
        with pytest.warns(UserWarning, match="privacy.delta 0.1 is large for phases of 88,697,088"):
            client.define(
                _definition("byhand", 0.1, min_rows=1, hypothesis_rows=1)  # tau is 0.04
            )
        answers = _phases(client, "byhand", seed=7)
        refused = [answer for _, _, answer in answers if answer.status == "refused"]
        assert refused
        assert {answer.reason.code for answer in refused} == {"hard_queries_exhausted"}
        answered = [answer for _, _, answer in answers if answer.status == "answered"]
        hard = sum(answer.difficulty == "hard" for answer in answered)
        assert hard == 83  # 20 j m ln N, floored, with j = 3, m = 1, N = 4
        blocks = _truth(seed=7)
        for phase, cells, answer in answers:
            if answer.status == "answered":
                truth = sum(blocks[block][cell] for block in range(phase) for cell in cells)
                assert abs(Fraction(answer.count or 0) - truth) <= Fraction(ERROR) * phase * ROWS
