"""Shares of analysts at the terminal: what is allowed, what was spent, and what a change changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from stream_dp.cli.operate.ledger_command import entries_table
from stream_dp.cli.text.reply_text import answer_line, answer_lines
from stream_dp.cli.text.share_tables import changes, own_table, rules_table, says_of, shares_table
from stream_dp.client.budget.share_position import ShareRules
from stream_dp.display.price_words import left
from stream_dp.messages import AnalystSpec, BudgetShares, ChangeAnalysts, OwnShare, read_answer
from tests.answers import count_answer
from tests.cli.conftest import Run, printed
from tests.client.test_accounts import RULES, Book, part


def rules(**more: Any) -> ShareRules:
    change = {"version": 1, "dataset": "people", "change": "analysts", **RULES, **more}
    read = ChangeAnalysts.read(change)
    return ShareRules(read.analysts, read.owner)


def lines(*things: Table | str) -> list[list[str]]:
    """What is printed, as the words of each line that stand two blanks apart."""
    return [re.split(r"  +", line.strip()) for line in printed(*things)]


@pytest.fixture
def book() -> Book:
    book = Book(RULES, phases=2)
    book.charge(None, (0, part(0.05), 0))
    book.charge("finance", (0, part(0.4), 0), (1, part(0.1), 0))
    book.charge("team-a", (1, part(0.07), 0))
    return book


def test_what_is_allowed_is_a_table_with_what_is_kept() -> None:
    found = rules(
        analysts={
            "finance": {"share": 0.4, "queries_per_minute": 60, "spending_per_minute": 0.01},
            "team-*": {"together": 0.25},
            "nightly": {"owner": True},
            "*": {},
        }
    )
    assert lines(rules_table(found)) == [
        ["who", "may charge of each line", "kept", "a minute"],
        ["the owner", "20%", "20%"],
        ["finance", "40%", "40%", "60 queries, 1% of a line"],
        ["nightly", "as the owner"],
        ["team-*", "25% together", "25%"],
        ["*", "what is kept for nobody"],
        ["the rest", "15%"],
    ]


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs/analysts.md").read_text()
    (example, said, *_) = re.findall(
        r"^```(?:json|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    found = rules(**json.loads(example))
    assert lines(rules_table(found)) == [re.split("  +", line) for line in said.splitlines()]
    assert found == rules(), "so the other tests are about it, too"
    (diff,) = re.findall(
        r"^```text\n(  the owner.*?)Put this in force", page, re.MULTILINE | re.DOTALL
    )
    after = rules(analysts={**RULES["analysts"], "finance": {"share": 0.3}})
    assert lines(*changes(found, after)) == [
        re.split("  +", line.strip()) for line in diff.splitlines()
    ]
    assert list(changes(found, found)) == []
    assert lines(*changes(None, after))[0] == ["- everybody", "all"]


def test_the_table_names_who_has_spent_and_what_is_left_where_least_is(book: Book) -> None:
    found = [
        [word for word in line if not set(word) <= {"━", "─"}]
        for line in lines(shares_table(book.read().holders()))
    ]
    said = {line[0]: [re.sub("[━─]+ ", "", word) for word in line[1:]] for line in found}
    assert said == {
        "who": ["may charge", "kept", "spent", "left", "on phase"],
        "the owner": ["20%", "5.00%", "15.00%", "1"],
        "finance": ["40%", "40%", "40.00%", "0.00%", "1"],
        "team-*": ["10% each", "25%", "7.00%", "18.00%", "2"],
        "team-a": ["10%", "7.00%", "3.00%", "2"],
        "nightly": ["as the owner", "0.00%", "15.00%", "1"],
        "*": ["5% each", "0.00%", "15.00%", "2"],
        "the rest": ["15%", "0.00%", "15.00%", "2"],
    }


def test_one_analyst_sees_their_own_share_and_the_whole_of_each_phase(book: Book) -> None:
    shown = lines(own_table("finance", book.read()))[1:]
    assert [[line[0], line[1], *line[-3:]] for line in shown] == [
        ["1", "1,000", "━" * 30 + " 40.00%", "0.00%", "55.00%"],
        ["2", "1,000", "━" * 7 + "─" * 23 + " 10.00%", "30.00%", "83.00%"],
    ]


def test_what_an_analyst_may_charge_is_said_in_a_sentence() -> None:
    for analyst, said in (
        ("finance", "40% of each line, which is kept for them"),
        ("team-a", "10% of each line, out of the 25% of each line that is kept for team-*"),
        ("nightly", "what is left of the 20% of each line that is kept for the owner"),
        ("ann", "5% of each line, out of the 15% of each line that is kept for nobody"),
    ):
        assert says_of(rules(), analyst) == f"{analyst} may charge {said}"
    unlisted = "ann may not ask: no entry of analysts is about this name"
    assert says_of(ShareRules({"zoe": AnalystSpec(share=0.5)}), "ann") == unlisted


def test_the_ledger_says_what_a_data_set_has_measured_by_itself(book: Book) -> None:
    book.charge("ann", (0, 5, 0))
    for look, said in (
        ({"kind": "tables", "reason": "base"}, ": tables of an opening"),
        ({"kind": "rows"}, ": rows that count"),
        ({"kind": "tables", "reason": "growth"}, ": tables of the opening extended (growth)"),
        ({"kind": "tables", "reason": "query"}, ""),
    ):
        entry = {**book.entries[-1], "looks": [look]}
        (line,) = lines(entries_table([entry], [entry["seq"]]))[1:]
        assert line[1] == f"charge to phase 1{said}"


def test_the_ledger_names_who_charged_and_how_shares_changed(book: Book) -> None:
    book.charge("ann", (0, 5, 0), owner=True)
    book.add("analysts", analysts={"finance": {"share": 0.4}}, owner={"share": 0.2})
    book.add("retired")
    shown = lines(entries_table(book.entries, range(3, 10)))
    assert shown[1:] == [
        ["3", "charge to phase 1", "the owner", "5.00%", "1"],
        ["4", "charge to phases 1 to 2", "finance", "40.00%", "1"],
        ["5", "charge to phase 2", "team-a", "7.00%", "1"],
        ["6", "charge to phase 1", "ann, paid by the owner", "less than 0.01%", "1"],
        ["7", "shares changed"],
        ["the owner", "20%"],
        ["finance", "40%"],
        ["- nightly", "as the owner"],
        ["- team-*", "10% each, 25% together"],
        ["- *", "5% each"],
        ["- the rest", "15%"],
        ["+ the rest", "40%"],
        ["8", "retired"],
    ]


def test_an_answer_and_a_quote_say_what_is_left_to_the_analyst_and_in_all() -> None:
    budget = {"spent": 0.57, "left": 0.43, "yours": {"spent": 0.28, "left": 0.12}}
    loss = {"share": 0.1, "blocks": 2}
    answer = count_answer(2500, 9, n=5000, budget=budget, privacy_loss=loss)
    said = "12.00% of the budget left to you, 43.00% in all"
    assert answer_line(answer).endswith(f"(hard, measured), {said}")
    assert f"cost 10.00% of a phase's budget, {said}; phases" in str(answer_lines(answer)[-1])
    quote = read_answer({**answer.model_dump(exclude_none=True), "status": "quoted"})
    assert f"would cost 10.00% of a phase's budget, for ± 0.18% of the rows; {said}" in answer_line(
        quote
    )
    assert left(BudgetShares(spent=0.5, left=0.5)) == "50.00% of the budget left"
    assert "0.00% of the budget left to you" in left(
        BudgetShares(spent=0.5, left=0.5, yours=OwnShare(spent=0.1, left=0.0))
    )


def test_check_says_what_is_kept_for_whom_and_that_too_little_is_left_for_opening_a_phase(
    run: Run, write: Callable[..., Path]
) -> None:
    ended = run("dataset", "check", write(**RULES))
    assert "team-*      10% each, 25% together   25%" in ended.out
    assert re.search(r"the rest +15%", ended.out)
    kept = {"analysts": {"ann": {"share": 0.9}}, "mechanism": {"base_share": 0.2}}
    ended = run("dataset", "check", write(**kept))
    assert (ended.code, "opening a phase measures for" in ended.err) == (1, True)
    assert "keep less for analysts" in ended.err
