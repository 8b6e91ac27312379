"""Names in backticks, and the silence of the parser."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery

SCHEMA: list[dict[str, Any]] = [
    {"name": "order", "type": "category", "values": ["new", "old"]},
    {"name": "Unit Price", "type": "number", "edges": [10, 20]},
    {"name": "a`b", "type": "boolean"},
    {"name": "at", "type": "date", "by": "day", "from": "2025-10-20", "until": "2025-11-10"},
]


@pytest.mark.parametrize(
    ("backticks", "quotes"),
    [
        ("`order` = 'new'", "\"order\" = 'new'"),
        ("`Unit Price` >= 10 AND `a``b`", '"Unit Price" >= 10 AND "a`b"'),
        ("`order` = '`x'", "\"order\" = '`x'"),
        ("FRESH `a``b`", 'FRESH "a`b"'),
        (
            "SELECT `order`, COUNT(*) FROM `sales` GROUP BY `order`",
            'SELECT "order", COUNT(*) FROM "sales" GROUP BY "order"',
        ),
    ],
)
def test_a_name_in_backticks_is_one_in_double_quotes(backticks: str, quotes: str) -> None:
    def asked(text: str) -> Any:
        try:
            return sql.parse(text, SCHEMA, dataset="sales")
        except InvalidQuery as refused:
            return refused.problem

    assert asked(backticks) == asked(quotes)


@pytest.mark.parametrize(
    "piece", ["TO_CHAR(at, 'YYYY-MM')", "JSON_EXTRACT(at, '$[')", "DATE_FORMAT(at, '%Y')"]
)
def test_what_is_not_answered_is_refused_in_words_and_nothing_else_is_printed(
    piece: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(InvalidQuery) as caught:
        sql.parse(f"{piece} = '2025-10'", SCHEMA)
    assert piece in caught.value.problem
    with pytest.raises(InvalidQuery):
        sql.plan(f"SELECT {piece}, COUNT(*) FROM sales GROUP BY 1", SCHEMA)
    assert caplog.records == []
