"""What people read of answers, on the command line and on the pages: the same view everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.text.reply_text import answer_line, view_lines
from stream_dp.display.answer_cells import SHAPES, AnswerCells
from stream_dp.display.answer_view import AnswerView, view_of
from stream_dp.display.answer_words import sentences
from stream_dp.display.figure_text import share, share_range, text
from stream_dp.display.figures import Figure, FigureUnit
from stream_dp.messages import ANSWERS, NoisyAnswer, read_answer
from tests.answers import noisy_answer
from tests.cli.conftest import printed

GOLDEN = Path(__file__).parents[1] / "golden"
SHOWN = Path(__file__).parent / "shown_answers.txt"
ANSWERED = sorted(
    path.stem
    for path in (GOLDEN / "answers").glob("*.json")
    if path.stem.partition("-")[0] not in ("refused", "quoted")
)
N = 5_000
BIN = {"label": "45 to 64", "low": 45, "high": 65}
SUM = {
    "value": 0.8,
    "count": 4000,
    "error_bar": 0.01,
    "total": 164_123.4,
    "total_bar": 2_345.6,
    "mean": 41.03,
    "mean_bar": 0.62,
}
SHARE = {"value": 0.8, "count": 4000, "error_bar": 0.01, "both": 1000, "both_bar": 45.2}
DIFFERENCE = {"value": -0.025, "count": 120, "minus_window": [1, 3], "minus_n": 9000}
COUNTED = {"counted": 1200, "counted_bar": 55.4, "surplus_at_most": 0.7812}
"""The rows that count, where a person is protected."""
OF_COUNTED = "of the 1,200 ± 55 rows that count, of 5,000"


def shown(view: AnswerView) -> str:
    return "\n".join(printed(*view_lines(view)))


def golden(name: str) -> NoisyAnswer:
    answer = read_answer((GOLDEN / f"answers/{name}.json").read_bytes())
    assert isinstance(answer, NoisyAnswer)
    return answer


@pytest.mark.parametrize("name", ANSWERED)
def test_each_kind_is_shown_as_the_file_of_examples_has_it(name: str) -> None:
    """``shown_answers.txt`` is for you to read: it has each kind of answer as people see it."""
    examples = [text.strip().partition("\n") for text in SHOWN.read_text().split("\n\n")]
    wanted = {head: lines for head, _, lines in examples}
    assert shown(view_of(golden(name))) == wanted[f"== {name}"]


def test_every_kind_has_a_shape_but_those_without_figures() -> None:
    assert set(ANSWERS) - set(SHAPES) == {"correlated_vector"}
    assert set(SHAPES) <= set(ANSWERS)


def test_an_answer_of_a_newer_release_is_no_reason_to_stumble() -> None:
    answer = noisy_answer(N, kind="newer", newer=[1, 2])
    assert "--json prints it" in answer_line(answer)
    assert view_of(answer).rows[0].texts == ()
    assert b'"newer":[1,2]' in answer.to_bytes()


@pytest.mark.parametrize(
    ("figure", "unit", "said"),
    [
        (Figure(1200, 34.4), "rows", "1,200 ± 34"),
        (Figure(1200, 0.3), "rows", "1,200"),
        (Figure(10, 50.0, (0, 60)), "rows", "0 to 60"),
        (Figure(200, 50.0, (150, 250)), "rows", "200 ± 50"),
        (Figure(3, 2.0, (1, 5)), "rows", "fewer than 10"),
        (Figure(7, None), "rows", "unknown"),
        (Figure(70, None), "about", "about 70"),
        (Figure(-120, 45.2), "more_rows", "-120 ± 45"),
        (Figure(120, 45.2), "more_rows", "+120 ± 45"),
        (Figure(0.25, 0.0125), "share", "25.00% ± 1.25%"),
        (Figure(1.0, 0.0), "share", "100.00%"),
        (Figure(-0.025, 0.0125), "points", "-2.50 ± 1.25 percentage points"),
        (Figure(31.4159, 0.21), "number", "31.42 ± 0.21"),
        (Figure(31.5, 0.0), "number", "31.5"),
        (Figure(164_123.4, 2_345.6), "number", "164,123 ± 2,346"),
        (Figure(-0.4, 14.2), "number", "0 ± 14"),
        (Figure(-0.4, 14.2, (-0.3, 20.0)), "number", "0 to 20"),
        (Figure(1.0, 3.0, (0.0, 4.0)), "number", "0.0 to 4.0"),
        (Figure("30 to 64", 0.012), "bins", "30 to 64 (rank ± 1.2%)"),
        (Figure(None, None), "number", "unknown"),
        (Figure(None), "label", "missing"),
        (Figure(True), "label", "true"),
    ],
)
def test_figures_are_rounded_by_their_bars(figure: Figure, unit: FigureUnit, said: str) -> None:
    """A bar that reaches beyond what is possible is shown by its ends, and no bar makes a guess."""
    assert text(figure, unit, least=10) == said


def test_a_range_of_shares_is_rounded_outwards_and_no_cost_is_nothing() -> None:
    assert share_range(0.01236, 0.01231 + 0.01) == "1.23% to 2.24%"
    assert share_range(0.012346, 0.012346) == share(0.012346)
    assert share_range(0.99999, 1.0) == "99.99% to 100.00%"
    assert (share(0.0), share(0.00001)) == ("0.00%", "less than 0.01%")


SAID: list[tuple[str, dict[str, Any], str]] = [
    (
        "quantile",
        {"rank": 0.9, "found": BIN, "lies_in": {"label": "30 to 64"}, "error_bar": 0.012},
        "the 90% quantile of age lies in 30 to 64, likely in 45 to 64 (rank ± 1.2%)",
    ),
    ("quantile", {"rank": 0.5, "lies_in": BIN, "found": BIN}, "the median of age lies in 45 to 64"),
    ("quantile", {"rank": 0.0, "count": 7}, "the least value of age may lie in any bin"),
    (
        "median",
        {"found": BIN, "error_bar": 0.012},
        "the median of age lies in 45 to 64 (rank ± 1.20%)",
    ),
    ("between", {"low": 0.15, "high": 0.3, "side": "above"}, "above 30% of the rows"),
    (
        "between",
        {"low": 0.15, "high": 0.3, "side": "between", "error_bar": 0.02},
        "between 15% and 30% of the rows (± 2.00%)",
    ),
    ("interior_point", {"side": "below"}, "below: not all rows are in this range"),
    (
        "difference",
        {**DIFFERENCE, "error_bar": 0.0125, "count_bar": 45.2},
        "-2.50 ± 1.25 percentage points against phases 1 to 3; +120 ± 45 rows",
    ),
    (
        "difference",
        {**DIFFERENCE, "minus_window": [3, 3]},
        "unknown against phase 3; unknown rows",
    ),
    (
        "share",
        SHARE,
        "share unknown; rows of the condition: 80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows",
    ),
    (
        "sum",
        {**SUM, "rows": 4500, "rows_bar": 49.7, "mean_binning": 7.5},
        (
            "sum 164,123 ± 2,346; mean 41.03 ± 0.62; bins there are ± 7.5 wide, which its bar leaves out; "
            "rows with a value: 80.00% ± 1.00%: 4,000 ± 50 of 5,000 rows; all rows of the condition: 4,500 ± "
            "50"
        ),
    ),
    (
        "adaptive_threshold",
        {"value": 0.8, "count": 4000},
        "80.00%, no error bar known: 4,000 of 5,000 rows",
    ),
    ("predicate", {"value": 0.8, "count": 4000, "useful": "no"}, "unknown"),
    ("predicate", {"value": 1.0, "count": N, "error_bar": 1e-5}, "all 5,000 rows"),
    (
        "predicate",
        {"value": 0.002, "count": 10, "error_bar": 0.01, "low": 0, "high": 60},
        "0.20% ± 1.00%: 0 to 60 of 5,000 rows",
    ),
    (
        "predicate",
        {**COUNTED, "value": 0.25, "count": 300, "error_bar": 0.03, "count_bar": 40.2},
        f"25.00% ± 3.00%: 300 ± 40 {OF_COUNTED}",
    ),
    (
        "predicate",
        {**COUNTED, "value": 0.25, "count": 300},
        f"25.00%, no error bar known: 300 {OF_COUNTED}",
    ),
    (
        "predicate",
        {**COUNTED, "value": 1.0, "count": 1200, "error_bar": 0.1, "count_bar": 66.4},
        "all 1,200 ± 66 rows that count, of 5,000",
    ),
    (
        "sum",
        {**COUNTED, **SUM, "count_bar": 44.0, "rows": 900, "rows_bar": 39.7},
        (
            "sum 164,123 ± 2,346; mean 41.03 ± 0.62; rows with a value: 80.00% ± 1.00%: 4,000 ± 44 "
            f"{OF_COUNTED}; all rows of the condition: 900 ± 40"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "fields", "said"), SAID)
def test_an_answer_says_what_of_what(kind: str, fields: dict[str, Any], said: str) -> None:
    """Where a person is protected, the bar of a count is its own: as a share of all rows it would mislead."""
    answer = noisy_answer(N, kind=kind, attribute="age", **fields)
    assert "; ".join(sentences(AnswerCells(answer))) == said
    assert answer_line(answer) == f"{said} (hard, measured), 90.00% of the budget left"
    assert shown(view_of(answer)).startswith(said)


def test_where_a_person_is_protected_it_is_said_which_rows_count() -> None:
    found = {
        "attributes": ["city"],
        "labels": [["Bonn", "other"]],
        "values": [0.75, 0.25],
        "counts": [900, 300],
        "error_bars": [0.02, 0.03],
        "count_bars": [60.4, None],
    }
    view = view_of(noisy_answer(N, kind="table", table=found, **COUNTED))
    assert [row.texts for row in view.rows] == [
        ("Bonn", "75.00% ± 2.00%", "900 ± 60"),
        ("other", "25.00% ± 3.00%", "unknown"),
    ]
    among, surplus = view.remarks
    assert among == f"shares and rows are {OF_COUNTED}"
    assert surplus.startswith(
        "at most 78.12% of the 5,000 rows do not count; a count among all rows"
    )


def test_a_batch_names_its_conditions() -> None:
    batch = {"values": [0.25, 0.8], "counts": [1250, 4000]}
    answer = noisy_answer(N, kind="prefix_batch", batch=batch, error_bar_simultaneous=0.031)
    rows = view_of(answer, ["age < 18", "age < 65"]).rows
    assert rows[0].texts == ("age < 18", "25.00% ± 3.10%", "1,250 ± 155")
    assert answer_line(answer).startswith("2 cells ± 3.10% (hard")


def test_a_part_of_a_series_that_is_refused_says_why() -> None:
    document = json.loads((GOLDEN / "answers/series.json").read_bytes())
    head = {name: document[name] for name in ("dataset", "query_id", "analyst")}
    reason = {"code": "rows_erased", "message": "the rows are erased"}
    document["parts"][1]["answer"] = {**head, "status": "refused", "reason": reason}
    answer = read_answer(document)
    assert isinstance(answer, NoisyAnswer)
    assert "2026-11-07" in shown(view_of(answer))
    assert "refused: the rows are erased" in shown(view_of(answer))


def test_a_price_is_told_as_it_is_typed_and_the_time_that_it_covers() -> None:
    more = {"useful": "no", "suggestion": "a quarter would take 2%: name at_most 0.022"}
    dated = {"since": "2026-11-01T05:06:07.089+01:00", "until": "2026-11-02T05:06:07.090+01:00"}
    view = view_of(noisy_answer(N, kind="predicate", value=0.8, count=4000, **more, **dated))
    assert (
        view.use == "not precise enough to use: a quarter would take 2%: add COSTING AT MOST 2.2%"
    )
    assert view.costs.endswith("left; phases 1 to 2, until 2026-11-02 05:06")


def test_a_document_for_a_page_has_the_same_words_and_the_numbers_of_its_picture() -> None:
    view = view_of(golden("table"))
    document = json.loads(json.dumps(view.to_document()))
    assert [tuple(row["texts"]) for row in document["rows"]] == [row.texts for row in view.rows]
    assert document["rows"][0]["value"] == pytest.approx(0.4257, abs=1e-4)
    assert document["main"] == ["share", "share"]
    assert document["columns"][0] == ["carrier", "label"]
    one = view_of(golden("predicate")).to_document()
    assert (one["figure"], one["sentences"]) == ("38.68% ± 1.43%", ["8,122 ± 301 of 21,000 rows"])
    assert one["sure"].startswith("each error bar covers the true value with probability 0.99")
    unknown = noisy_answer(N, kind="predicate", value=0.8, count=4000)
    assert view_of(unknown).to_document()["rows"][0]["value"] is None, "a guess is not drawn"
