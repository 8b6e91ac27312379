from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.cli.text.sql_error import pointed_error, pointed_refusal
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidQuery
from stream_dp.messages import Reason

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Lyon"], "other": True},
    {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True, "missing": True},
    {"name": "height", "type": "number", "edges": [1.5, 2], "integer": False},
]
UNIVERSE = Universe(
    (
        Category("city", ("Bonn", "Lyon")),
        Number("age", (18, 30, 45), integer=True, missing=True),
        Number("height", (1.5, 2)),
    )
)


def shown(text: str) -> str:
    """What the analyst reads when the query goes wrong, here or at the worker."""
    try:
        where = sql.parse(text, ATTRIBUTES)["where"]
    except InvalidQuery as error:
        return pointed_error(text, error)
    with pytest.raises(InvalidQuery) as caught:
        compile_where(UNIVERSE, where)
    reason = Reason(code=caught.value.reason, message=str(caught.value))
    return pointed_refusal(text, where, reason)


def piece(text: str) -> str:
    """The piece of SQL over the carets."""
    _, line, carets = shown(text).split("\n")
    start = carets.index("^")
    assert set(carets[start:]) == {"^"}
    return line[start : len(carets)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agee >= 30", "agee"),
        ("age >= 30 AND city = 'Oslo'", "'Oslo'"),
        ('age >= 30 AND city = "Lyon"', '"Lyon"'),
        ("age >= 30 AND", "AND"),
        ("age >= 30 OR\n  city = 'Rome' AND age < 18", "'Rome'"),
        ("age >= 33 AND city = 'Lyon'", "age >= 33"),
        ("city = 'Lyon' AND NOT (age < 30 OR 40 > age)", "40 > age"),
        ("age >= 18 AND age < 44", "age < 44"),
        ("height > 1.5", "height > 1.5"),
        ("age BETWEEN 18 AND 40", "age BETWEEN 18"),
        ("city = 'Bonn' AND\tage = 20", "age = 20"),
    ],
)
def test_carets_stand_under_the_piece_that_is_wrong(text: str, expected: str) -> None:
    assert piece(text) == expected


def test_a_long_query_is_shown_around_the_piece() -> None:
    text = " OR ".join(["city = 'Bonn'"] * 40) + " OR age < 7 OR " + " OR ".join(["age < 18"] * 40)
    words, line, carets = shown(text).split("\n")
    assert piece(text) == "age < 7"
    assert max(len(line), len(carets)) <= 102
    assert "cuts the bin" in words


@pytest.mark.parametrize(
    ("message", "where", "shown"),
    [
        ("it may take 2%; ask with a larger at_most", None, "it may take 2%; ask with a larger --at-most"),
        ("error: leave error and surplus_at_most out", None, "leave error and surplus_at_most out"),
        ("a block of the window has no budget left", {"attribute": "age", "ge": 30},
         "a block of the window has no budget left"),
        ("kind: this data set does not answer mode; ask", None, "this data set does not answer mode; ask"),
        ("where.all[0].ge: this cuts a bin; ask another", {"all": [7]}, "this cuts a bin; ask another"),
        ("where.ge: this cuts the bin 30 to 44", {"attribute": "age", "ge": 33},
         "this cuts the bin 30 to 44\n  age >= 33\n  ^^^^^^^^^"),
    ],
)  # fmt: skip
def test_a_refusal_points_at_its_piece_and_names_options_and_no_field_of_a_message(
    message: str, where: Any, shown: str
) -> None:
    assert pointed_refusal("age >= 33", where, Reason(code="any", message=message)) == shown
