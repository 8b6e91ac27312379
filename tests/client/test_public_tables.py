"""SELECT about public tables: exact answers, worked out in memory, that reach nothing else."""

from __future__ import annotations

import pytest

from stream_dp.client import Column
from stream_dp.client.statements.public_tables import selected
from stream_dp.errors import InvalidQuery
from stream_dp.messages import DimensionTable

BEDS = DimensionTable(
    dimension="beds",
    key="ward",
    columns=("ward", "beds", "open", "cost per day"),
    types=("text", "integer", "boolean", "real"),
    rows=(("ICU", 12, True, 900.5), ("Surgery", 40, None, None), ("O'Hara", None, False, 20.0)),
)
SITES = DimensionTable(
    dimension="sites",
    key="ward",
    columns=("ward", "site"),
    types=("text", "text"),
    rows=(("ICU", "north"), ("Surgery", "south")),
)


def test_all_of_a_table_has_the_types_that_it_declares() -> None:
    found = selected("SELECT * FROM beds", [BEDS])
    assert found.columns == (
        Column("ward", "text"),
        Column("beds", "integer"),
        Column("open", "boolean"),
        Column("cost per day", "real"),
    )
    assert found.rows == [tuple(row) for row in BEDS.rows]
    assert (found.dataset, found.phases, found.answers, found.cost) == ("beds", None, (), 0.0)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT ward FROM beds WHERE open ORDER BY ward", [("ICU",)]),
        ("SELECT ward FROM beds WHERE ward = 'O''Hara';", [("O'Hara",)]),
        ("SELECT COUNT(*), SUM(beds), AVG(beds) FROM beds", [(3, 52, 26.0)]),
        ('SELECT "cost per day" FROM beds ORDER BY 1 DESC NULLS LAST LIMIT 1', [(900.5,)]),
        ("SELECT s.site, b.beds FROM beds b JOIN sites s ON b.ward = s.ward WHERE b.beds > 20",
         [("south", 40)]),
        ("WITH big AS (SELECT * FROM beds WHERE beds > 20) SELECT ward FROM big", [("Surgery",)]),
    ],
)  # fmt: skip
def test_a_select_gives_what_sql_gives(text: str, rows: list[tuple[object, ...]]) -> None:
    assert selected(text, [BEDS, SITES]).rows == rows


@pytest.mark.parametrize(
    "text",
    [
        "SELECT wards FROM beds",
        "SELECT * FROM sqlite_schema_of_others",
        "SELECT zeroblob(100000000) FROM beds",
        "SELECT load_extension('x') FROM beds",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "ATTACH 'x' AS y",
        "SELECT 1; DROP TABLE beds",
        "SELECT COUNT(*) FROM " + ", ".join(f"beds AS b{i}" for i in range(30)),
    ],
)
def test_what_gives_no_table_or_takes_too_long_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery, match=r"gives no table|semicolon|not understood"):
        selected(text, [BEDS])
