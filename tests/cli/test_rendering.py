"""What commands print of quotes, prices and events; ``tests/display`` has answers."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.cli.text.reply_text import answer_line, kinds_table, output
from stream_dp.display.event_words import event_line
from stream_dp.messages import Definition, Event, Reason, read_answer

FACTS: dict[str, Any] = {
    "dataset": "people",
    "query_id": "q",
    "analyst": "ann",
    "status": "quoted",
    "n": 5000,
    "difficulty": "hard",
    "path": "measured",
    "privacy_loss": {"share": 0.1, "blocks": 2},
    "budget": {"spent": 0.25, "left": 0.75},
    "phase": 2,
    "window": (1, 2),
}


def test_what_a_look_of_each_kind_costs_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    definition = Definition.read(
        {
            "version": 1,
            "dataset": "people",
            "attributes": [{"name": "age", "type": "number", "edges": [18, 65]}],
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 20_000},
            "kinds": {"threshold": {"share": 0.2}, "between": {"share": 0.3, "answers": 7}},
        }
    )
    output().print(kinds_table(definition))
    _, trees, runs = capsys.readouterr().out.splitlines()
    assert trees.split() == ["threshold", "threshold", "20.00%", "0.0759", "0", "5"]
    assert runs.split() == [
        "between",
        "between,",
        "answers",
        "7",
        "30.00%",
        "0.093",
        "1.5e-10",
        "3",
    ]


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


def test_the_events_of_a_journal_that_was_cut_are_words() -> None:
    note = "the journal begins again with what Redis has of it"
    repaired = Event(dataset="people", event="repaired", note=note)
    assert event_line(repaired) == f"is served again; {note}"
    reason = Reason(code="stopped", message="the journal was cut")
    stopped = Event(dataset="people", event="stopped", reason=reason)
    assert event_line(stopped) == "is stopped: the journal was cut"
