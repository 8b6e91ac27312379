"""Answers as a data set publishes them, for tests of what the client makes of them."""

from __future__ import annotations

from typing import Any

from stream_dp.messages import NoisyAnswer, read_answer


def noisy_answer(n: int, **fields: Any) -> NoisyAnswer:
    """An answer measured on ``n`` rows; ``fields`` say what it answers, and replace any other field."""
    document = {
        "version": 1,
        "dataset": "people",
        "query_id": "q",
        "analyst": "ann",
        "status": "answered",
        "n": n,
        "difficulty": "hard",
        "path": "measured",
        "confidence": 0.99,
        "privacy_loss": {"share": 0.01, "blocks": 1},
        "budget": {"spent": 0.1, "left": 0.9},
        "phase": 2,
        "window": [1, 2],
        **fields,
    }
    answer = read_answer(document)
    assert isinstance(answer, NoisyAnswer)
    return answer
