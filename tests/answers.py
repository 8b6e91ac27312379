"""Answers as a data set publishes them, and the tables that the client makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.statement_table import evaluate
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


def count_answer(count: float, bar: float | None, *, n: int = 1000, **more: Any) -> NoisyAnswer:
    """The answer to a count; ``bar`` is in rows."""
    bars = {"error_bar": None if bar is None else bar / n}
    return noisy_answer(
        n, **{"kind": "predicate", "value": count / n, "count": round(count), **bars, **more}
    )


def table_answer(
    axes: Mapping[str, Sequence[str]],
    counts: Sequence[float],
    bars: Sequence[float | None] | float | None,
    *,
    n: int = 1000,
    cells: Mapping[str, Any] | None = None,
    **more: Any,
) -> NoisyAnswer:
    """The answer to a table.

    Args:
        axes: The labels of each attribute.
        bars: The half widths in rows, or the one of all cells.
        cells: More columns, or others than the counts. None takes one away.
    """
    bars = bars if isinstance(bars, Sequence) else [bars] * len(counts)
    columns = {
        "attributes": list(axes),
        "labels": list(map(list, axes.values())),
        "values": [count / n for count in counts],
        "counts": list(map(round, counts)),
        "error_bars": [None if bar is None else bar / n for bar in bars],
        **(cells or {}),
    }
    table = {name: column for name, column in columns.items() if column is not None}
    return noisy_answer(n, **{"kind": "table", "table": table, **more})


def series_answer(
    period: str, parts: Iterable[tuple[int, str | None, NoisyAnswer]], **more: Any
) -> NoisyAnswer:
    """The answers about some phases in turn: each with its phase and the day on which it begins."""
    documents = [
        {"window": [phase, phase], "since": since, "answer": json.loads(answer.to_bytes())}
        for phase, since, answer in parts
    ]
    return noisy_answer(99, kind="series", path="series", series=period, parts=documents, **more)


def table_of(
    statement: str,
    schema: Sequence[Mapping[str, Any]],
    *answers: NoisyAnswer,
    dataset: str = "people",
) -> ResultTable:
    """The table of a statement whose queries have these answers."""
    plan = sql.plan(statement, schema, dataset=dataset)
    assert len(plan.queries) == len(answers), plan.queries
    return evaluate(plan, dataset, answers)
