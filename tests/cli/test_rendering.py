"""Answers in words, as they are printed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from stream_dp.cli.text.reply_text import (
    answer_line,
    answer_lines,
    event_line,
    kinds_table,
    output,
    share,
    share_range,
)
from stream_dp.messages import Definition, Event, NoisyAnswer, Reason, read_answer

FACTS: dict[str, Any] = {
    "dataset": "people",
    "query_id": "q",
    "analyst": "ann",
    "status": "answered",
    "n": 5000,
    "difficulty": "hard",
    "path": "measured",
    "privacy_loss": {"share": 0.1, "blocks": 2},
    "budget": {"spent": 0.25, "left": 0.75},
    "phase": 2,
    "window": (1, 2),
}


def noisy(**fields: Any) -> NoisyAnswer:
    answer = read_answer({**FACTS, **fields})
    assert isinstance(answer, NoisyAnswer)
    return answer


BIN = {"label": "45 to 64", "low": 45, "high": 65}
DIFFERENCE = {"value": -0.025, "count": 120, "minus_window": [1, 3], "minus_n": 9000}
SHARE = {"value": 0.8, "count": 4000, "error_bar": 0.01, "both": 1000, "both_bar": 45.2}
SUM = {
    "value": 0.8,
    "count": 4000,
    "error_bar": 0.01,
    "total": 164_123.4,
    "total_bar": 2_345.6,
    "mean": 41.03,
    "mean_bar": 0.62,
}
GOLDEN = Path(__file__).parents[1] / "golden/answers"

NOT_NAMED = (
    "so naming it could reveal something about them. Asking again is free and gives the same reply"
)

SAID: list[tuple[dict[str, Any], str]] = [
    (
        {
            "kind": "quantile",
            "attribute": "age",
            "rank": 0.9,
            "found": BIN,
            "lies_in": {"label": "30 to 64"},
            "error_bar": 0.012,
            "count": 70,
        },
        "the 90% quantile of age lies in 30 to 64, likely in 45 to 64 (rank ± 1.2%)",
    ),
    (
        {"kind": "quantile", "attribute": "age", "rank": 0.5, "lies_in": BIN, "found": BIN},
        "the median of age lies in 45 to 64",
    ),
    (
        {"kind": "quantile", "attribute": "age", "rank": 0.0, "count": 7},
        "the least value of age may lie in any bin",
    ),
    (
        {
            "kind": "correlation",
            "attribute": "age",
            "other": "hours",
            "value": 0.268,
            "value_low": 0.205,
            "value_high": 0.344,
            "error_bar": 0.076,
        },
        "a correlation of 0.268 (0.205 to 0.344) between age and hours",
    ),
    ({"found": BIN, "error_bar": 0.012}, "45 to 64 (rank ± 1.20%)"),
    (
        {"kind": "median", "attribute": "age", "found": BIN, "error_bar": 0.0, "confidence": 1.0},
        "the median of age lies in 45 to 64",
    ),
    (
        {"kind": "mode", "attribute": "city", "found": {"label": "Bonn"}},
        "the most frequent city is Bonn",
    ),
    ({"found": {"label": "Bonn"}}, "Bonn"),
    (
        {"kind": "mode", "attribute": "city", "no_answer": True},
        f"no answer: a few rows could change the mode of city, {NOT_NAMED}",
    ),
    ({"no_answer": True}, f"no answer: a few rows could change it, {NOT_NAMED}"),
    (
        {"kind": "between", "low": 0.15, "high": 0.3, "side": "between", "error_bar": 0.02},
        "between 15% and 30% of the rows (± 2.00%)",
    ),
    (
        {"kind": "between", "low": 0.15, "high": 0.3, "side": "above"},
        "above 30% of the rows",
    ),
    ({"side": "between", "error_bar": 0.02}, "between (± 2.00%)"),
    (
        {"kind": "interior_point", "attribute": "age", "side": "below"},
        "below: not all rows are in this range",
    ),
    (
        {"kind": "interior_point", "attribute": "age", "side": "above", "found": BIN},
        "above: rows are on both sides of the end of 45 to 64",
    ),
    (
        {
            "kind": "correlated_vector",
            "attribute": "smoker",
            "vector": {"bits": "gg==", "agreement": 0.3388},
            "error_bar": 0.6,
        },
        "signs of 5,000 rows that agree with smoker by 0.339; --json prints them",
    ),
    (
        {"vector": {"bits": "gg==", "agreement": 0.3388}, "error_bar": 0.6},
        "signs of 5,000 rows that agree with a private bit by 0.339; --json prints them",
    ),
    (
        {"kind": "difference", **DIFFERENCE, "error_bar": 0.0125, "count_bar": 45.2},
        "-2.50 ± 1.25 percentage points against phases 1 to 3: +120 ± 45 rows",
    ),
    (
        {"kind": "difference", **DIFFERENCE, "minus_window": [3, 3]},
        "unknown against phase 3: unknown rows",
    ),
    (
        {"kind": "share", **SHARE, "share": 0.25, "share_bar": 0.0125},
        "25.00% ± 1.25% of the rows of the condition, which are 80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows",
    ),
    (
        {"kind": "share", **SHARE},
        (
            "an unknown share (there may be too few) of the rows of the condition, "
            "which are 80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows"
        ),
    ),
    (
        {"kind": "sum", "attribute": "age", **SUM},
        "sum 164,123 ± 2,346; mean 41.03 ± 0.62; rows with a value: 80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows",
    ),
    (
        {"kind": "sum", "attribute": "age", **SUM, "rows": 4500, "rows_bar": 49.7},
        (
            "sum 164,123 ± 2,346; mean 41.03 ± 0.62; rows with a value: 80.00% ± 1.00%: 4,000 ± 50 of 5,000 "
            "rows; all rows of the condition: 90.00% ± 0.99%: 4,500 ± 50 of 5,000 rows"
        ),
    ),
    (
        {"kind": "adaptive_threshold", "attribute": "age", "value": 0.8, "count": 4000},
        "80.00%, no error bar known: 4,000 of 5,000 rows",
    ),
    (
        {"kind": "predicate", "value": 0.8, "count": 4000, "error_bar": 0.01},
        "80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows",
    ),
    ({"value": 0.8, "count": 4000}, "80.00%, no error bar known: 4,000 of 5,000 rows"),
]


COUNTED = {"counted": 1200, "counted_bar": 55.4, "surplus_at_most": 0.7812}
"""The rows that count, where a person is protected."""

OF_COUNTED = "of the 1,200 ± 55 rows that count, of 5,000"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            {
                "kind": "predicate",
                "value": 0.25,
                "count": 300,
                "error_bar": 0.03,
                "count_bar": 40.2,
            },
            f"25.00% ± 3.00%: 300 ± 40 {OF_COUNTED}",
        ),
        (
            {"kind": "predicate", "value": 0.25, "count": 300},
            f"25.00%, no error bar known: 300 {OF_COUNTED}",
        ),
        (
            {"kind": "predicate", "value": 1.0, "count": 1200, "error_bar": 0.1, "count_bar": 66.4},
            "all 1,200 ± 66 rows that count, of 5,000",
        ),
        (
            {"kind": "share", **SHARE, "count_bar": 44.0, "share": 0.25, "share_bar": 0.0125},
            (
                "25.00% ± 1.25% of the rows of the condition, which are 80.00% ± 1.00%: 4,000 ± 44 "
                f"{OF_COUNTED}"
            ),
        ),
        (
            {"kind": "sum", **SUM, "count_bar": 44.0, "rows": 900, "rows_bar": 39.7},
            (
                "sum 164,123 ± 2,346; mean 41.03 ± 0.62; rows with a value: 80.00% ± 1.00%: 4,000 ± 44 "
                f"{OF_COUNTED}; all rows of the condition: 900 ± 40"
            ),
        ),
    ],
)
def test_where_a_person_is_protected_an_answer_is_one_of_the_rows_that_count(
    reply: dict[str, Any], said: str
) -> None:
    """The bar of a count is its own: as a share of all rows it would be far too wide or too narrow."""
    answer = noisy(**reply, **COUNTED)
    first, surplus, _ = map(str, answer_lines(answer))
    assert first == said
    assert answer_line(answer).startswith(f"{said} (hard")
    assert surplus == (
        "at most 78.12% of the 5,000 rows do not count; a count among all rows may be larger by up to 3,906"
    )


def test_a_table_of_rows_that_count_has_a_bar_for_each_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {
        "attributes": ["city"],
        "labels": [["Bonn", "other"]],
        "values": [0.75, 0.25],
        "counts": [900, 300],
        "error_bars": [0.02, 0.03],
        "count_bars": [60.4, None],
    }
    table, among, _, _ = answer_lines(noisy(kind="table", table=found, **COUNTED))
    assert str(among) == f"shares and rows are {OF_COUNTED}"
    _, bonn, other = printed(table, capsys)
    assert bonn.split()[:6] == ["Bonn", "75.00%", "2.00%", "900", "±", "60"]
    assert other.split()[:4] == ["other", "25.00%", "3.00%", "unknown"]


def test_an_aimed_count_without_a_bar_is_unknown_and_a_price_is_told_as_it_is_typed() -> None:
    more = {"useful": "no", "suggestion": "a quarter would take 2%: name at_most 0.022"}
    lines = answer_lines(noisy(kind="predicate", value=0.8, count=4000, **more))
    assert str(lines[0]) == "unknown"
    assert str(lines[-1]) == (
        "not precise enough to use: a quarter would take 2%: add COSTING AT MOST 2.2%"
    )


@pytest.mark.parametrize(("reply", "said"), SAID)
def test_an_answer_says_what_of_what(reply: dict[str, Any], said: str) -> None:
    """The answer alone tells it. One without a kind was published before answers said theirs."""
    answer = noisy(**reply)
    first, cost = answer_lines(answer)
    assert str(first) == said
    assert str(cost).startswith(
        "hard, measured (the rows were looked at); cost 10.00% of a phase's"
    )
    assert answer_line(answer) == f"{said} (hard, measured), 75.00% of the budget left"


def test_a_bar_that_reaches_beyond_what_is_possible_is_shown_by_its_ends() -> None:
    few = noisy(kind="predicate", value=0.002, count=10, error_bar=0.01, low=0, high=60)
    assert "0 to 60 of 5,000 rows" in answer_line(few)
    many = noisy(kind="predicate", value=0.04, count=200, error_bar=0.01, low=150, high=250)
    assert "200 ± 50 of 5,000 rows" in answer_line(many)
    ends = {"mean": 1.0, "mean_bar": 3.0, "mean_low": 0.0, "mean_high": 4.0}
    assert "mean 0.0 to 4.0;" in answer_line(noisy(kind="sum", **{**SUM, **ends}))


def test_every_kind_says_something_of_its_own() -> None:
    for example in sorted(GOLDEN.glob("*.json")):
        answer = read_answer(example.read_bytes())
        assert "cannot show" not in answer_line(answer), example.name


def printed(table: object, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert isinstance(table, Table)
    output().print(table)
    return capsys.readouterr().out.splitlines()


def test_a_batch_is_a_line_a_condition_with_the_one_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch = {"values": [0.25, 0.8], "counts": [1250, 4000]}
    answer = noisy(kind="prefix_batch", batch=batch, error_bar_simultaneous=0.031)
    table, _ = answer_lines(answer, ["age < 18", "age < 65"])
    lines = printed(table, capsys)
    assert lines[0].split() == ["condition", "share", "±", "error", "rows"]
    assert lines[1].split()[:6] == ["age", "<", "18", "25.00%", "3.10%", "1,250"]
    assert lines[2].count("█") > lines[1].count("█") > 0
    table, _ = answer_lines(answer)
    assert printed(table, capsys)[1].split()[:3] == ["condition", "1", "25.00%"]
    assert answer_line(answer).startswith("2 shares, all of them ± 3.10% (hard")


def test_a_curve_is_drawn_as_bars_that_never_shrink(capsys: pytest.CaptureFixture[str]) -> None:
    curve = {
        "attributes": ["age"],
        "labels": [["< 18", "18 to 64", ">= 65"]],
        "values": [0.2, 0.7, 1.0],
        "counts": [1000, 3500, 5000],
        "error_bars": [0.01, 0.01, 0.0],
    }
    table, words, _ = answer_lines(noisy(kind="threshold_curve", table=curve))
    assert str(words) == "each line counts all rows up to and with its values"
    assert [line.count("█") for line in printed(table, capsys)] == [0, 4, 14, 20]
    assert len(answer_lines(noisy(kind="table", table=curve))) == 2


def test_a_mean_of_bins_says_how_wide_they_are_there() -> None:
    sums = {"value": 0.5, "count": 2500, "error_bar": 0.01, "total": 1e5, "total_bar": 900.0}
    mean = {"mean": 40.0, "mean_bar": 0.25}
    (said,) = answer_lines(noisy(kind="sum", **sums, **mean, mean_binning=7.5))[:1]
    assert "mean 40.00 ± 0.25 (bins there are ± 7.5 wide, which this leaves out)" in str(said)
    (said,) = answer_lines(noisy(kind="sum", **sums, **mean))[:1]
    assert "leaves out" not in str(said)


def test_a_table_of_shares_has_a_column_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    shares = {
        "attributes": ["city"],
        "labels": [["Bonn", "other"]],
        "values": [0.6, 0.0],
        "counts": [3000, 0],
        "error_bars": [0.01, None],
        "shares": [0.25, None],
        "share_bars": [0.0125, None],
        "both": [750, 0],
        "both_bars": [20.0, 20.0],
    }
    table, _ = answer_lines(noisy(kind="share_by_group", table=shares))
    head, bonn, other = printed(table, capsys)
    words = "city share ± error rows of the condition share of them"
    assert head.split() == words.split()
    assert "25.00% ± 1.25%" in bonn
    assert other.rstrip().endswith("too few rows")


def test_a_table_of_differences_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "attributes": ["city"],
        "labels": [["Bonn", "other"]],
        "values": [0.02, -0.01],
        "counts": [1200, -7],
        "error_bars": [0.01, None],
        "count_bars": [100.0, None],
    }
    minus = {"minus_window": [1, 3], "minus_n": 9000}
    table, _ = answer_lines(noisy(kind="difference_by_group", table=found, **minus))
    _, bonn, other = printed(table, capsys)
    assert "+2.00 ± 1.00 percentage points" in bonn
    assert "+1,200 ± 100" in bonn
    assert other.split() == ["other", "unknown", "unknown"]


def test_a_table_of_sums_has_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    sums = {
        "attributes": ["city"],
        "labels": [["Bonn", "other"]],
        "values": [0.6, 0.0],
        "counts": [3000, 0],
        "error_bars": [0.01, None],
        "totals": [120_000.0, 0.0],
        "total_bars": [900.0, 900.0],
        "means": [40.0, None],
        "mean_bars": [0.25, None],
    }
    table, _ = answer_lines(noisy(kind="sum_by_group", table=sums))
    head, bonn, other = printed(table, capsys)
    words = "city share ± error rows with a value sum mean"
    assert head.split() == words.split()
    assert "120,000 ± 900" in bonn
    assert "40.00 ± 0.25" in bonn
    assert bonn.rstrip().endswith("█")
    assert other.split() == ["other", "unknown", "-", "unknown", "0", "±", "900", "-"]
    rows = {"rows": [3500, 20], "rows_bars": [49.7, None]}
    table, _ = answer_lines(noisy(table={**sums, **rows}))
    head, bonn, other = printed(table, capsys)
    assert head.split() == [*words.split(), "all", "rows"]
    assert "40.00 ± 0.25  " in bonn
    assert "3,500 ± 50" in bonn
    assert other.rstrip().endswith("unknown")


def test_a_reply_of_a_newer_release_is_no_reason_to_stumble() -> None:
    answer = noisy(kind="newer", newer=[1, 2])
    assert "--json prints it" in answer_line(answer)
    assert len(answer_lines(answer)) == 2
    assert b'"newer":[1,2]' in answer.to_bytes()


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
    _, trees, runs = printed(kinds_table(definition), capsys)
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
        (
            {"kind": "predicate", "error_bar": 0.00498},
            "would cost 10.00% of a phase's budget, for ± 0.5% of the rows",
        ),
        (
            {"kind": "predicate", "error_bar": 0.00498, "expected": True},
            "would cost about 10.00% of a phase's budget, for about ± 0.5% of the rows",
        ),
        (
            {"kind": "sum", "error_bar": 0.0123},
            "would cost 10.00% of a phase's budget, for ± 1.2% of the largest possible sum",
        ),
        ({"kind": "median"}, "would cost 10.00% of a phase's budget"),
        (
            {"kind": "sum", "expected": True, "most": 0.35},
            "would cost about 10.00% of a phase's budget and 35.00% at most",
        ),
    ],
)
def test_a_quote_says_the_price_and_how_precise_the_answer_would_be(
    fields: dict[str, Any], words: str
) -> None:
    quote = read_answer({**FACTS, **fields, "status": "quoted"})
    assert answer_line(quote) == f"{words}; 75.00% of the budget left (hard, measured)"


def test_what_cannot_be_had_is_not_called_free() -> None:
    """Bug 4 of a newcomer: a quote of what no budget is left for said that it would be free."""
    nothing = {"privacy_loss": {"share": 0.0, "blocks": 0}, "kind": "predicate", "error_bar": 0.01}
    lacking = read_answer(
        {**FACTS, **nothing, "status": "quoted", "difficulty": "easy", "path": "unverified"}
    )
    said = answer_line(lacking)
    assert said.startswith("cannot be had: no look that it may pay for is precise enough")
    assert "would be free" not in said
    free = {**FACTS, **nothing, "status": "quoted", "difficulty": "easy", "path": "certified"}
    assert answer_line(read_answer(free)).startswith("would be free, for ± 1% of the rows")


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [
        ("series", "day share ± error rows", "2026-11-06 until 2026-11-07 0.00% 0.98% 0"),
        (
            "series-table",
            "phase cancelled share ± error rows",
            "until 2026-11-09 false 0.47% 1.99% 38 ± 159 █",
        ),
        (
            "series-sum",
            "week sum mean ± error rows",
            "2026-11-08 until 2026-11-09 38,381 ± 4,703 4.798 0.5879 8,000 ± 0 █",
        ),
    ],
)
def test_a_series_is_a_table_with_a_line_for_each_value(name: str, head: str, line: str) -> None:
    answer = read_answer((GOLDEN / f"{name}.json").read_bytes())
    assert isinstance(answer, NoisyAnswer)
    lines = [" ".join(each.split()) for each in in_words(answer).splitlines()]
    assert lines[0] == head
    assert any(line in each for each in lines), lines


def test_a_part_that_is_refused_says_why() -> None:
    reason = {"code": "rows_erased", "message": "the rows are erased"}
    refused = {
        "dataset": "a",
        "query_id": "q",
        "analyst": "b",
        "status": "refused",
        "reason": reason,
    }
    part = {"window": (1, 2), "answer": refused}
    answer = noisy(kind="series", path="series", series="day", parts=[part])
    assert "phases 1 to 2 refused the rows are erased" in " ".join(in_words(answer).split())


def test_an_answer_says_which_time_it_covers() -> None:
    dated = noisy(kind="predicate", value=0.5, count=2500, since="2026-11-01", until="2026-11-08")
    assert "phases 1 to 2, from 2026-11-01 until 2026-11-08" in in_words(dated)
    of_records = {
        "since": "2026-11-01T05:06:07.089+01:00",
        "until": "2026-11-02T05:06:07.090+01:00",
    }
    timed = noisy(kind="predicate", value=0.5, count=2500, **of_records)
    assert "phases 1 to 2, until 2026-11-02 05:06" in in_words(timed)


def in_words(answer: NoisyAnswer) -> str:
    console = Console(width=200, color_system=None, record=True, file=StringIO())
    for piece in answer_lines(answer):
        console.print(piece)
    return console.export_text()


def test_the_events_of_a_journal_that_was_cut_are_words() -> None:
    note = "the journal begins again with what Redis has of it"
    repaired = Event(dataset="people", event="repaired", note=note)
    assert event_line(repaired) == f"is served again; {note}"
    reason = Reason(code="stopped", message="the journal was cut")
    stopped = Event(dataset="people", event="stopped", reason=reason)
    assert event_line(stopped) == "is stopped: the journal was cut"


def test_a_range_of_shares_is_rounded_outwards() -> None:
    assert share_range(0.01236, 0.01231 + 0.01) == "1.23% to 2.24%"
    assert share_range(0.012346, 0.012346) == share(0.012346)
    assert share_range(0.0, 0.0) == "0.00%"
    assert share_range(0.99999, 1.0) == "99.99% to 100.00%"
