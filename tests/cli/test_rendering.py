"""What commands print of quotes, prices and events; ``tests/display`` has answers."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.cli.text.reply_text import answer_line, kinds_table, output
from stream_dp.display.event_words import event_line
from stream_dp.messages import Definition, Event, read_answer
from tests.pipeline.world import definition

BUDGET = {"spent": 0.25, "left": 0.75}
PRICE = {"privacy_loss": {"share": 0.1, "blocks": 2}, "budget": BUDGET, "difficulty": "hard"}
HEAD = {"dataset": "people", "query_id": "q", "analyst": "ann", "phase": 2, "window": (1, 2)}
FACTS: dict[str, Any] = {**HEAD, **PRICE, "status": "quoted", "n": 5000, "path": "measured"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "predicate", "error_bar": 0.00498},
         "would cost 10.00% of a phase's budget, for ± 0.5% of the rows"),
        ({"kind": "predicate", "error_bar": 0.00498, "expected": True},
         "would cost about 10.00% of a phase's budget, for about ± 0.5% of the rows"),
        ({"kind": "sum", "error_bar": 0.0123},
         "would cost 10.00% of a phase's budget, for ± 1.2% of the largest possible sum"),
        ({"kind": "median"}, "would cost 10.00% of a phase's budget"),
        ({"kind": "sum", "expected": True, "most": 0.35},
         "would cost about 10.00% of a phase's budget and 35.00% at most"),
    ],
)  # fmt: skip
def test_a_quote_says_the_price_and_how_precise_the_answer_would_be(
    fields: dict[str, Any], words: str
) -> None:
    quote = read_answer({**FACTS, **fields})
    assert answer_line(quote) == f"{words}; 75.00% of the budget left (hard, measured)"


def test_what_cannot_be_had_is_not_called_free() -> None:
    """Bug 4 of a newcomer: a quote of what no budget is left for said that it would be free."""
    nothing = {"privacy_loss": {"share": 0.0, "blocks": 0}, "kind": "predicate", "error_bar": 0.01}
    lacking = read_answer({**FACTS, **nothing, "difficulty": "easy", "path": "unverified"})
    said = answer_line(lacking)
    assert said.startswith("cannot be had: no look that it may pay for is precise enough")
    assert "would be free" not in said
    free = {**FACTS, **nothing, "difficulty": "easy", "path": "certified"}
    assert answer_line(read_answer(free)).startswith("would be free, for ± 1% of the rows")


@pytest.mark.parametrize(
    ("event", "facts", "said"),
    [
        ("batch_known", {"batch_id": "p-0-10"}, "batch counted before p-0-10"),
        ("batch_known", {"producer": "till-7", "sequence": 12}, "batch counted before till-7 12"),
        ("batch_accepted", {"producer": "till-7", "sequence": 12, "rows": 3, "waiting": 7},
         "3 rows taken in (batch till-7 12), 7 wait"),
        ("repaired", {"note": "the journal begins again"}, "is served again; the journal begins again"),
        ("stopped", {"reason": {"code": "stopped", "message": "the journal was cut"}},
         "is stopped: the journal was cut"),
        ("alert", {"analyst": "ana", "query_id": "by@7", "phase": 7, "cells": ("Bonn", "Graz"),
                   "since_phase": 6}, "alert: by@7 of ana (Bonn; Graz), since phase 6"),
        ("bounds_proposed", {"attribute": "paid", "low": 0.5, "high": 2_048.0, "edges": (8.0, 64.0)},
         "proposes 3 bins for paid, between about 0.5 and 2,048"),
        ("bounds_proposed", {"attribute": "paid", "note": "there are too few rows", "phase": 1},
         "proposes no bins; there are too few rows"),
        ("schema_changed", {"schema_version": 3, "phase": 1_200},
         "has version 3 of its attributes from phase 1,200 on"),
    ],
)  # fmt: skip
def test_an_event_is_told_in_words(event: str, facts: dict[str, Any], said: str) -> None:
    assert event_line(Event.model_validate({"dataset": "people", "event": event, **facts})) == said


def test_what_a_look_of_each_kind_costs_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"threshold": {"share": 0.2}, "between": {"share": 0.3, "answers": 7}}
    output().print(kinds_table(Definition.read(definition("people", kinds=kinds))))
    _, trees, runs = capsys.readouterr().out.splitlines()
    assert trees.split()[:3] == ["threshold", "threshold", "20.00%"]
    assert " ".join(runs.split()) == "between between, answers 7 30.00% 0.093 1.5e-10 3"
