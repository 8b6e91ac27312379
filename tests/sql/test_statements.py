"""Statements that analysts write, each asked of a worker and compared with what SQLite says of the rows."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import BAR
from tests.sql.conftest import DIMENSIONS, SALES, Ask

NORTH = "FROM sales JOIN countries c ON sales.country = c.code"

ANSWERED = [
    # Counts, and what they are counted by.
    "SELECT COUNT(*) FROM sales;",
    "select count(*) as n from sales where paid",
    "SELECT COUNT(1) FROM sales s WHERE s.country = 'DE'",
    "SELECT COUNT(*) FROM sales WHERE country NOT IN ('DE', 'FR') AND NOT (paid OR country = 'AT')",
    "SELECT COUNT(*) FROM sales WHERE channel IS NULL OR amount >= 10 AND amount < 50",
    "SELECT COUNT(*) FROM sales WHERE amount BETWEEN 10 AND 49 AND channel LIKE 'web%' -- the app too",
    "SELECT COUNT(channel) FROM sales",
    # What programs write: conditions of constants, empty lists, patterns without regard to case.
    "SELECT COUNT(*), AVG(amount) FROM sales WHERE 1 = 1 AND paid",
    "SELECT COUNT(*) FROM sales WHERE 1=0",
    "SELECT COUNT(*) FILTER (WHERE 1 = 1), COUNT(*) FILTER (WHERE 1 = 0) FROM sales",
    "SELECT COUNT(*) FROM sales WHERE country IN () OR paid",
    "SELECT COUNT(*) FROM sales WHERE (channel NOT IN (NULL) OR (1 = 1)) AND NOT paid",
    "SELECT COUNT(*) FROM sales WHERE lower(country) LIKE lower('%e') OR country LIKE '%' || 'E' || '%'",
    "SELECT `country` AS `my land`, COUNT(*) FROM `sales` WHERE `paid` GROUP BY `country`",
    # Groups, sorted, cut and chosen.
    "SELECT country, paid, COUNT(*) FROM sales GROUP BY country, paid ORDER BY country, paid",
    "SELECT country AS land, COUNT(*) FROM sales GROUP BY land ORDER BY 1 DESC",
    "SELECT country, COUNT(*) AS n FROM sales GROUP BY country ORDER BY n DESC LIMIT 2",
    "SELECT country, COUNT(*) FROM sales GROUP BY 1 ORDER BY 2 LIMIT 2 OFFSET 1",
    "SELECT country, COUNT(*) n FROM sales GROUP BY country HAVING n < 50000 AND country <> 'AT'",
    "SELECT country, SUM(amount) FROM sales GROUP BY country HAVING COUNT(*) > 40000 ORDER BY 1",
    # Several aggregates, and parts of the rows.
    "SELECT COUNT(*), COUNT(amount), SUM(amount), AVG(amount) FROM sales WHERE paid",
    "SELECT country, SUM(amount), AVG(amount), COUNT(*) FROM sales GROUP BY country",
    "SELECT SUM(amount) / COUNT(amount) AS mean, SUM(amount) / COUNT(*) FROM sales",
    "SELECT country, COUNT(*) FILTER (WHERE paid), COUNT(*) FROM sales GROUP BY country",
    "SELECT SUM(CASE WHEN paid THEN 1 ELSE 0 END), COUNT(CASE WHEN country = 'DE' THEN 1 END) FROM sales",
    "SELECT country, AVG(CASE WHEN paid THEN 1.0 ELSE 0 END) FROM sales GROUP BY country",
    "SELECT SUM(CASE WHEN paid THEN amount ELSE 0 END), SUM(amount) FILTER (WHERE NOT paid) FROM sales",
    "SELECT AVG(paid) FROM sales",
    # Arithmetic of published values.
    "SELECT 100.0 * COUNT(*) FILTER (WHERE paid) / COUNT(*) AS percent FROM sales",
    "SELECT 1.0 * COUNT(*) FILTER (WHERE paid) / NULLIF(COUNT(*), 0) FROM sales",
    "SELECT ROUND(100.0 * SUM(CASE WHEN paid THEN 1 ELSE 0 END) / COUNT(*), 1) FROM sales",
    "SELECT SUM(amount) FILTER (WHERE paid) / SUM(amount) FROM sales",
    "SELECT COUNT(*) * 1.0 / (SELECT COUNT(*) FROM sales) FROM sales WHERE country = 'BE'",
    "SELECT country, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () FROM sales GROUP BY country",
    "SELECT country, CAST(SUM(amount) AS REAL) / COUNT(*) r FROM sales GROUP BY 1 ORDER BY r DESC",
    # Groups that are conditions, subqueries that filter, and public tables.
    "SELECT CASE WHEN amount < 20 THEN 'low' WHEN paid THEN 'ok' END k, COUNT(*) FROM sales GROUP BY k",
    "SELECT amount >= 20 AS large, COUNT(*) FROM sales WHERE amount IS NOT NULL GROUP BY large",
    "SELECT COUNT(*) FROM (SELECT * FROM sales WHERE paid) AS p WHERE p.country = 'DE'",
    "WITH p AS (SELECT * FROM sales WHERE paid) SELECT country, COUNT(*) FROM p GROUP BY country",
    "SELECT k, n FROM (SELECT country k, COUNT(*) n FROM sales GROUP BY 1) WHERE n > 30000 ORDER BY n",
    f"SELECT COUNT(*) {NORTH} WHERE c.region IN (NULL) AND (1 != 1) OR c.region IN ('Alps')",
    f"SELECT COUNT(*) {NORTH} WHERE c.region IN () OR c.region NOT IN ('Alps', NULL) OR paid",
    f"SELECT COUNT(*) {NORTH} WHERE LOWER(c.region) NOT LIKE 'n%' || 'h' ESCAPE '/'",
    f"SELECT COUNT(*) {NORTH} WHERE LOWER(c.region) = 'north' OR UPPER(c.region) > 'O' OR paid",
    f"SELECT COUNT(*) {NORTH} WHERE c.region IS DISTINCT FROM 'Alps' AND c.members IS NOT DISTINCT FROM 12",
    f"SELECT c.region, COUNT(*) {NORTH} GROUP BY c.region ORDER BY 1",
    f"SELECT region, AVG(amount) {NORTH} WHERE members > 10 AND paid GROUP BY region",
    "SELECT region, paid, COUNT(*) FROM sales LEFT JOIN countries ON country = code GROUP BY 1, 2",
    "SELECT COUNT(*) FROM sales LEFT JOIN countries ON country = code WHERE region IS DISTINCT FROM 'North'",
    # A joined column with a value of its own for each cell is asked as one table.
    f"SELECT c.members, COUNT(*) {NORTH} GROUP BY c.members ORDER BY 2 DESC",
    f"SELECT members, AVG(amount), SUM(amount) {NORTH} GROUP BY 1 HAVING members > 10",
    f"SELECT country, 100.0 * COUNT(*) / MAX(c.members) {NORTH} GROUP BY country",
    f"SELECT paid, MIN(c.region), country, COUNT(*) {NORTH} GROUP BY country, paid",
    "SELECT country, members, COUNT(*) FROM sales LEFT JOIN countries ON country = code GROUP BY 1, 2",
    "SELECT DISTINCT country FROM sales ORDER BY country DESC",
]  # fmt: skip
TRANSLATED = {
    "SELECT SUM(LEAST(amount, 20)), AVG(LEAST(20, amount)), COUNT(*) FROM sales WHERE paid":
        "SELECT SUM(MIN(amount, 20)), AVG(MIN(20, amount)), COUNT(*) FROM sales WHERE paid",
    "SELECT country, AVG(LEAST(amount, 50)), SUM(LEAST(amount, 20)) FROM sales GROUP BY country":
        "SELECT country, AVG(MIN(amount, 50)), SUM(MIN(amount, 20)) FROM sales GROUP BY country",
    "SELECT STDDEV_POP(amount) FROM sales":
        "SELECT SQRT(AVG(amount * amount) - AVG(amount) * AVG(amount)) FROM sales",
    "SELECT country, VAR_POP(amount) FROM sales GROUP BY country WITHIN 0.1% OF ROWS":
        "SELECT country, AVG(amount * amount) - AVG(amount) * AVG(amount) FROM sales GROUP BY country",
    f"SELECT c.region, COUNT(*) {NORTH} GROUP BY 1 HAVING LOWER(region) IN ('alps', 'zoo', NULL)":
        f"SELECT c.region, COUNT(*) {NORTH} GROUP BY 1 HAVING region = 'Alps'",
    "SELECT QUANTILE(amount, 0.5) FROM sales": "SELECT '20 to 49'",
    "SELECT PERCENTILE_CONT(0.05) WITHIN GROUP (ORDER BY amount) FROM sales": "SELECT '< 10'",
    "SELECT MODE(country) FROM sales": "SELECT 'FR'",
}  # fmt: skip
"""Statements that SQLite knows in another form, or only the answer to."""

ONE_TABLE = [
    f"SELECT c.members, COUNT(*) {NORTH} GROUP BY c.members",
    f"SELECT c.region, country, MAX(c.members), COUNT(*) {NORTH} GROUP BY c.region, country",
]


@pytest.mark.parametrize("statement", ONE_TABLE)
def test_a_join_whose_groups_are_cells_is_one_query(statement: str) -> None:
    plan = sql.plan(statement, SALES, dataset="sales", dimensions=DIMENSIONS)
    assert [(query["kind"], query["group_by"]) for query in plan.queries] == [
        ("table", ["country"])
    ]


@pytest.mark.parametrize(
    ("statement", "same"), [*zip(ANSWERED, ANSWERED, strict=True), *TRANSLATED.items()]
)
async def test_the_table_is_the_true_one_within_its_bars(
    ask: Ask, truth: sqlite3.Connection, statement: str, same: str
) -> None:
    """Each bar fails with a probability of 1e-9, and none is an excuse: it is small next to its value."""
    table = await ask(statement)
    true = truth.execute(same.rstrip(";")).fetchall()
    shown = [i for i, c in enumerate(table.columns) if not (c.bar_of or c.sure_of)]
    bars = {c.bar_of: i for i, c in enumerate(table.columns)}
    bar_of = [
        None if c.type in ("text", "boolean") else bars.get(c.name)
        for c in (table.columns[i] for i in shown)
    ]
    found = list(table.rows)
    if "ORDER BY" not in statement:
        found.sort(key=lambda row: _keys([row[i] for i in shown], bar_of))
        true.sort(key=lambda row: _keys(row, bar_of))
    assert len(found) == len(true), (found, true)
    for row, expected in zip(found, true, strict=True):
        for i, bar_at, wanted in zip(shown, bar_of, expected, strict=True):
            value: Any = row[i]
            if bar_at is None:
                assert value == (bool(wanted) if isinstance(value, bool) else wanted)
                continue
            bar = row[bar_at]
            assert isinstance(bar, float)
            assert abs(value - wanted) <= bar + 1e-9, (row, expected)
            assert bar <= max(0.35 * abs(wanted), 1.0), (row, expected)


def _keys(row: Any, bar_of: list[int | None]) -> list[str]:
    exact = (value for value, bar_at in zip(row, bar_of, strict=True) if bar_at is None)
    return [repr(v if isinstance(v, str | None) else float(v)) for v in exact]


async def test_each_column_of_values_is_followed_by_its_bars(ask: Ask) -> None:
    table = await ask("SELECT country, COUNT(*) AS n, 5 AS five FROM sales GROUP BY country")
    assert [c.name for c in table.columns] == ["country", "n", f"n{BAR}", "five"]
    assert [c.type for c in table.columns] == ["text", "integer", "real", "integer"]
    assert table.column("five") == [5] * 4, "a constant has no bar"
    assert table.phases == (1, 1)


PAGE = (Path(__file__).parents[2] / "docs/sql.md").read_text()


@pytest.mark.parametrize(
    "statement", re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
async def test_the_examples_of_the_page_are_answered(ask: Ask, statement: str) -> None:
    assert (await ask(statement)).rows
