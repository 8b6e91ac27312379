"""What people read of running totals, and of rows that do not count yet."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.cli.text.reply_text import running_line
from stream_dp.display.answer_view import view_of
from stream_dp.display.running_words import running_cells, until_when
from stream_dp.messages import RunningTick
from tests.answers import noisy_answer, table_answer, table_of

BY_STATUS: dict[str, Any] = {
    "group_by": ["status"],
    "labels": [["paid", "open", "returned", "other"]],
    "counts": [6120.41, 2958.3, 801.77, -4.15],
    "count_bar": 397.21,
    "count_bar_all_ticks": 544.25,
    "last_counts": [702.9, 311.05, 64.2, 9.38],
    "last_count_bar": 323.51,
}
EXPRESS = {
    **BY_STATUS,
    "where": {"attribute": "express", "eq": True},
    "group_by": [],
    "labels": [],
    "counts": [2543.33],
    "last_counts": [333.4],
}


def ticked(*tiles: dict[str, Any], **more: Any) -> RunningTick:
    """The tick at noon of a day, as docs/messages.md has it."""
    document = {
        "dataset": "orders",
        "since": "2026-11-21",
        "until": "2026-11-21T12:00+01:00",
        "tick": 12,
        "ticks": 24,
        "rows": 9875,
        "confidence": 0.99,
        "share": 0.010132,
        "tiles": tiles or (BY_STATUS,),
        **more,
    }
    return RunningTick.model_validate(document)


def test_a_tick_is_one_line() -> None:
    assert running_line(ticked()) == (
        "2026-11-21 until 12:00: 9,875 rows; paid 6,120 ± 397, open 2,958 ± 397, returned 802 ± 397, other 0 "
        "to 393"
    )


def test_a_condition_is_named_and_of_many_cells_and_tiles_the_line_has_the_first() -> None:
    labels = [["Bonn", "Graz"], ["a", "b", "c", "d"]]
    wide = {**BY_STATUS, "labels": labels, "counts": [1000.0] * 8, "last_counts": [0.0] * 8}
    of_few = {**BY_STATUS, "where": EXPRESS["where"]}
    said = running_line(ticked(EXPRESS, wide, of_few, EXPRESS, EXPRESS)).split("; ")
    assert said[1] == "express = TRUE: 2,543 ± 397"
    assert said[2].startswith("Bonn · a 1,000 ± 397, Bonn · b")
    assert said[2].endswith("Graz · b 1,000 ± 397 and 2 more")
    assert said[3].startswith("express = TRUE: paid 6,120 ± 397, open")
    assert said[4] == "and 2 more"


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        ("2026-11-21", "2026-11-21T12:00+01:00", "12:00"),
        ("2026-11-21", "2026-11-22", "2026-11-22"),
        ("2026-11-16", "2026-11-18T06:00+01:00", "2026-11-18 06:00"),
        ("2026-11-21T06:00+01:00", "2026-11-21T06:15+01:00", "06:15"),
    ],
)
def test_it_says_until_when_it_counts(since: str, until: str, said: str) -> None:
    assert until_when(ticked(since=since, until=until)) == said


def test_no_cell_has_fewer_rows_than_none_or_more_than_have_come() -> None:
    first = {**BY_STATUS, "counts": [250.0, 650.0, -500.0, 5.0], "count_bar": 397.21}
    tick = ticked(first, rows=300)
    said = [cell.said for cell in running_cells(tick, tick.tiles[0])]
    assert said == ["0 to 300", "253 to 300", "0 to 0", "0 to 300"]
    wider = [cell.figure.bar for cell in running_cells(tick, tick.tiles[0], all_ticks=True)]
    assert wider == [544.25] * 4


def test_people_read_no_count_below_the_least_one() -> None:
    few = {**BY_STATUS, "counts": [900.0, 4.2, 40.0, 0.1], "count_bar": 2.4}
    assert "open fewer than 10, returned 40 ± 2" in running_line(ticked(few, least_cell=10))
    assert "open 4 ± 2, returned 40 ± 2" in running_line(ticked(few))


# ---------------------------------------------------------------- late rows


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        (
            {"late_waiting": 120, "complete_at": "2026-11-29"},
            ["120 late rows of these phases do not count yet; complete on 2026-11-29"],
        ),
        ({"late_waiting": 1}, ["1 late row of these phases does not count yet"]),
        (
            {"complete_at": "2026-11-29T06:00+01:00"},
            ["late rows may still come to these phases until 2026-11-29T06:00+01:00"],
        ),
    ],
)
def test_an_answer_says_how_many_late_rows_do_not_count_yet(
    fields: dict[str, Any], said: list[str]
) -> None:
    answer = noisy_answer(5000, kind="predicate", value=0.8, count=4000, error_bar=0.01, **fields)
    view = view_of(answer)
    assert list(view.remarks) == said
    assert view.to_document()["remarks"] == view.remarks, "a page shows the same"


def test_a_table_of_a_statement_says_it_too() -> None:
    schema = [{"name": "city", "type": "category", "values": ["Bonn", "Graz"]}]
    late: Any = {"late_waiting": 120, "complete_at": "2026-11-29"}
    asked = table_answer({"city": ["Bonn", "Graz", "other"]}, [500, 300, 200], 9.0, **late)
    table = table_of("SELECT city, COUNT(*) AS n FROM people GROUP BY city", schema, asked)
    said = "120 late rows of these phases do not count yet; complete on 2026-11-29"
    assert said in table.notes
    assert f"note: {said}" in table.view.notes
