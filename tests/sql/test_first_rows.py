"""The ten largest groups of a table, and a table of very many groups, from rows to what people read.

Noise is seeded, so no test fails by chance.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.answer_view import view_of
from stream_dp.messages import TableAnswer, read_answer

# The occupations of a census of 48,842 people, and how many have each.
COUNTS = (6172, 6112, 6086, 5611, 5504, 4923, 3022, 2809, 2355, 2072, 1490, 1446, 983, 242, 15)
JOBS = [f"job {place:02}" for place in range(1, 16)]
CODES = [f"{letter}{number:02}" for letter in "ABCDEFGHIJKLMNOPQRST" for number in range(100)]


async def asked(
    world: Any, name: str, values: list[str], counts: list[int], text: str, **settings: Any
) -> Any:
    """The table of a statement about one attribute, of a data set with an aim."""
    attributes = [{"name": name, "type": "category", "values": values, "other": False}]
    cells = [{name: v, "count": n} for v, n in zip(values, counts, strict=True)]

    def define(world: Any) -> None:
        world.define(
            "people",
            attributes=attributes,
            privacy=settings.pop("privacy", {"epsilon": 1.0, "delta": 1e-9}),
            accuracy={"error": 0.02, "failure_probability": 0.01, "aim": 0.1},
            phase={"min_rows": sum(counts)},
            mechanism={"profile": "calibrated"},
            **settings,
        )

    await world.run(rounds=(define, lambda world: world.batch("people", "first", cells=cells)))
    plan = sql.plan(text, attributes, dataset="people")
    items = [{"query_id": f"q{i}", **fields} for i, fields in enumerate(plan.queries)]
    await world.run(rounds=(lambda world: world.ask_many("people", items),))
    replies = [read_answer(json.dumps(world.answer(item["query_id"])).encode()) for item in items]
    table = Statement(text, "people", plan).table(replies)
    assert isinstance(table, ResultTable), table
    return table


async def test_the_ten_most_frequent_occupations_say_which_of_them_are_sure(world: Any) -> None:
    text = "SELECT job, COUNT(*) AS n FROM people GROUP BY job ORDER BY n DESC LIMIT 10"
    table = await asked(world, "job", JOBS, list(COUNTS), text)
    true = {job: place for place, job in enumerate(JOBS, 1)}
    for job, low, high in zip(
        *(table.column(each) for each in ("job", "rank_low", "rank_high")), strict=True
    ):
        assert low <= true[job] <= high
    sure = [rank for rank in table.column("rank") if rank.endswith("surely in the first 10")]
    assert len(sure) >= 6
    assert (
        max(a - b for a, b in zip(table.column("rank_high"), table.column("rank_low"), strict=True))
        < 14
    )
    assert table.cost <= 0.01
    assert [column.head for column in table.view.columns] == ["job", "n", "rank"]


async def test_having_tells_occupations_that_surely_have_so_many(world: Any) -> None:
    text = "SELECT job, COUNT(*) AS n FROM people GROUP BY job HAVING COUNT(*) > 3000"
    table = await asked(world, "job", JOBS, list(COUNTS), text)
    assert "job 01" in table.column("job")
    assert set(table.column("job")) <= set(JOBS[:6]), "the seventh has 3,022, which is about 3,000"


async def test_of_two_thousand_codes_people_see_those_that_surely_have_rows(world: Any) -> None:
    weights = [1 / rank**0.9 for rank in range(1, 2001)]
    counts = [round(44_400 * weight / sum(weights)) for weight in weights]
    text = "SELECT code, COUNT(*) FROM people GROUP BY code COSTING AT MOST 5%"
    table = await asked(world, "code", CODES, counts, text)
    answer = table.answer
    assert isinstance(answer, TableAnswer)
    seen = AnswerCells(answer).to_see
    assert 0 < len(seen) < 10
    assert max(seen) < 20, "the rarer ones cannot be told from 0"
    assert answer.note == (
        f"{len(seen)} of 2,000 groups surely have rows; all others cannot be told from 0; ask for the rows "
        "of several together, such as SELECT COUNT(*) ... WHERE \"code\" LIKE 'A%'"
    )
    assert len(view_of(answer).rows) == len(seen)


@pytest.mark.parametrize(
    ("condition", "n_asked", "together"),
    [
        (
            "code LIKE 'B%'",
            100,
            'several together, such as SELECT COUNT(*) ... WHERE "code" LIKE \'B',
        ),
        (
            "code IN ('T97', 'T98', 'T99')",
            3,
            "all of them together: SELECT COUNT(*), without GROUP BY",
        ),
    ],
)
async def test_of_the_codes_that_are_asked_for_a_note_says_what_to_ask_instead(
    world: Any, condition: str, n_asked: int, together: str
) -> None:
    text = f"SELECT code, COUNT(*) FROM people WHERE {condition} GROUP BY code COSTING AT MOST 1%"
    answer = (await asked(world, "code", CODES, [22] * 2000, text)).answer
    said = f"0 of {n_asked} groups surely have rows; all others cannot be told from 0; ask for the rows of "
    assert f"{said}{together}" in answer.note
    if together.endswith("LIKE 'B"):
        assert re.search(r"LIKE 'B\d%'", answer.note), (
            "the same pattern again would lead in a circle"
        )


async def test_a_count_that_is_surely_lower_than_the_least_is_read_as_that(world: Any) -> None:
    text = "SELECT job, COUNT(*) AS n FROM people GROUP BY job WITHIN 0.0004% OF ROWS"
    privacy = {"epsilon": 20.0, "delta": 1e-9}
    small = [500_000, 499_000, 2]
    table = await asked(world, "job", JOBS[:3], small, text, privacy=privacy, least_cell=10)
    answer = table.answer
    assert isinstance(answer, TableAnswer)
    assert answer.least_cell == 10
    assert answer.table.highs is not None
    assert answer.table.highs[2] < 10, "the numbers stay as they are"
    *said, last = [row.texts for row in view_of(answer).rows]
    assert last[1:] == ("-", "fewer than 10")
    assert not any("fewer" in text for texts in said for text in texts)
    again = "SELECT job, COUNT(*) AS n, COUNT(*) / 2 AS half FROM people GROUP BY job"
    plan = sql.plan(
        again, [{"name": "job", "type": "category", "values": JOBS[:3], "other": False}]
    )
    drawn = Statement(again, "people", plan).table([answer])
    assert isinstance(drawn, ResultTable)
    assert drawn.to_document()["least_cell"] == 10
    assert drawn.view.rows[-1].texts.count("fewer than 10") == 1
