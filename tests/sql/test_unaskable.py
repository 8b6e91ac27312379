"""What no data set answers is refused early and says what to ask instead. What looks like it is answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery

PAGE = Path(__file__).parents[2] / "docs/unaskable.md"
SCHEMA: list[dict[str, Any]] = [
    {"name": "ward", "type": "category", "values": ["ICU", "Surgery"]},
    {"name": "stay", "type": "number", "edges": [1, 2, 3]},
    {"name": "mentions_fall", "type": "boolean"},
]
UNIT = {"key": "patient_id", "rows_per_phase": 1, "phases": 12, "lifetime": False}
HISTORY = "no two rows are ever linked", "send a column such as first_visit or visit_number"
TWICE = "this counts what the subquery has counted already", "group once"
TEXT = "note is not declared", "the boolean mentions_fall"
NOW = "the present cannot be asked about", "DATE '2026-11-01'"
ROWS = "rows are never shown", "stream-dp synthesize"
OF_EACH = "SELECT patient_id, COUNT(*) AS n, MIN(month) AS m FROM t GROUP BY patient_id"
IN_WARD = "SELECT patient_id FROM t WHERE ward = 'ICU'"
BY_DAY = "SELECT day, COUNT(*) AS n FROM t GROUP BY day"


@pytest.mark.parametrize("unit", [None, UNIT], ids=["rows", "persons"])
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"WITH f AS ({OF_EACH}) SELECT COUNT(*) FROM t JOIN f ON t.patient_id = f.patient_id", HISTORY),
        (f"SELECT COUNT(*) FROM t JOIN ({OF_EACH}) f ON t.patient_id = f.patient_id", HISTORY),
        ("SELECT COUNT(*) FROM t a JOIN t b ON a.patient_id = b.patient_id", HISTORY),
        (f"SELECT COUNT(*) FROM ({OF_EACH}) WHERE n > 1", HISTORY),
        (f"WITH f AS ({OF_EACH}) SELECT AVG(n) FROM f", HISTORY),
        (f"SELECT COUNT(*) FROM t WHERE patient_id IN ({IN_WARD})", HISTORY),
        (f"SELECT COUNT(*) FROM t WHERE EXISTS ({IN_WARD})", HISTORY),
        ("SELECT LAG(stay) OVER (PARTITION BY patient_id ORDER BY day) FROM t", HISTORY),
        (f"SELECT AVG(n) FROM ({BY_DAY})", TWICE),
        (f"WITH d AS ({BY_DAY}) SELECT MAX(n) FROM d", TWICE),
        ("SELECT COUNT(*) FROM t WHERE note LIKE '%fall%'", TEXT),
        ("SELECT COUNT(*) FILTER (WHERE note ILIKE 'fall') FROM t", TEXT),
        ("SELECT COUNT(*) FROM t WHERE POSITION('fall' IN note) > 0", TEXT),
        ("note LIKE '%fall%'", TEXT),
        ("SELECT COUNT(*) FROM t WHERE day >= NOW() - INTERVAL '7 days'", NOW),
        ("SELECT COUNT(*) FROM t WHERE month = DATE_TRUNC('month', CURRENT_TIMESTAMP)", NOW),
        ("SELECT * FROM t LIMIT 10", ROWS),
        ("SELECT patient_id FROM t", ROWS),
        ("SELECT stay FROM t ORDER BY stay DESC LIMIT 1", ROWS),
        ("SELECT ward, stay FROM t WHERE mentions_fall", ROWS),
    ],
)  # fmt: skip
def test_it_is_refused_in_words_with_what_to_ask_instead(
    statement: str, words: tuple[str, str], unit: dict[str, Any] | None
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        sql.plan(statement, SCHEMA, dataset="t", unit=unit)
    for said in words:
        assert said in str(caught.value)
    assert re.match(r"line \d+, column \d+: ", str(caught.value))


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT day, n FROM ({BY_DAY}) WHERE n > 3",
        f"WITH d AS ({BY_DAY}) SELECT day, SUM(n) OVER (ORDER BY day) FROM d",
        "SELECT COUNT(*) FROM t WHERE ward LIKE 'I%' AND mentions_fall",
        "SELECT kind FROM (SELECT ward AS kind, COUNT(*) AS n FROM t GROUP BY ward) WHERE kind LIKE 'I%'",
        "SELECT DISTINCT ward FROM t",
        "SELECT COUNT(*) * 1.0 / (SELECT COUNT(*) FROM t) FROM t WHERE ward = 'ICU'",
        "SELECT ward, COUNT(DISTINCT patient_id) FROM t GROUP BY ward",
        "mentions_fall",
    ],
)
def test_what_looks_like_it_is_answered(statement: str) -> None:
    sql.plan(statement, SCHEMA, dataset="t", unit=UNIT)


def test_a_misspelt_attribute_is_still_told_its_name() -> None:
    with pytest.raises(InvalidQuery, match="did you mean ward"):
        sql.plan("SELECT COUNT(*) FROM t WHERE wards LIKE 'I%'", SCHEMA)


def test_the_page_has_a_section_for_each() -> None:
    sections = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    said = ["What one person did", "Text that is not declared", "The present", "Lists of rows"]
    assert sections[:4] == said
