"""Statements that analysts write, each asked of a worker and compared with what SQLite says of the rows."""

from __future__ import annotations

import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import BAR, ResultTable
from stream_dp.errors import InvalidQuery
from tests.sql.conftest import DIMENSIONS, SALES, Ask

NORTH = "FROM sales JOIN countries c ON sales.country = c.code"

ANSWERED: list[tuple[str, str | None]] = [
    # Counts, and what they are counted by. None: SQLite takes the same text.
    ("SELECT COUNT(*) FROM sales", None),
    ("SELECT COUNT(*) FROM sales;", None),
    ("select count(*) as n from sales where paid", None),
    ("SELECT COUNT(1) FROM sales s WHERE s.country = 'DE'", None),
    ("SELECT COUNT(*) FROM sales WHERE country IN ('DE', 'FR') AND NOT paid", None),
    ("SELECT COUNT(*) FROM sales WHERE country NOT IN ('DE', 'FR')", None),
    ("SELECT COUNT(*) FROM sales WHERE country <> 'DE' OR paid", None),
    ("SELECT COUNT(*) FROM sales WHERE NOT (paid OR country = 'AT')", None),
    ("SELECT COUNT(*) FROM sales WHERE channel IS NULL", None),
    ("SELECT COUNT(*) FROM sales WHERE amount >= 10 AND amount < 50", None),
    ("SELECT COUNT(*) FROM sales WHERE amount BETWEEN 10 AND 49", None),
    ("SELECT COUNT(*) FROM sales WHERE country LIKE '%E'", None),
    ("SELECT COUNT(*) FROM sales WHERE channel LIKE 'web%' -- the app too", None),
    ("SELECT COUNT(channel) FROM sales", None),
    (
        "SELECT SUM(LEAST(amount, 20)), AVG(LEAST(20, amount)), COUNT(*) FROM sales WHERE paid",
        "SELECT SUM(MIN(amount, 20)), AVG(MIN(20, amount)), COUNT(*) FROM sales WHERE paid",
    ),
    (
        "SELECT country, AVG(LEAST(amount, 50)), SUM(LEAST(amount, 20)) FROM sales GROUP BY country",
        "SELECT country, AVG(MIN(amount, 50)), SUM(MIN(amount, 20)) FROM sales GROUP BY country",
    ),
    # What programs write: conditions of constants, empty lists, patterns without regard to case.
    ("SELECT COUNT(*) FROM sales WHERE 1=1", None),
    ("SELECT COUNT(*), AVG(amount) FROM sales WHERE 1 = 1 AND paid", None),
    ("SELECT country, COUNT(*) FROM sales WHERE 1 = 1 GROUP BY country", None),
    ("SELECT COUNT(*) FROM sales WHERE 1=0", None),
    ("SELECT COUNT(*) FILTER (WHERE 1 = 1), COUNT(*) FILTER (WHERE 1 = 0) FROM sales", None),
    ("SELECT COUNT(*) FROM sales WHERE country IN () OR paid", None),
    ("SELECT COUNT(*) FROM sales WHERE (channel NOT IN (NULL) OR (1 = 1)) AND NOT paid", None),
    ("SELECT COUNT(*) FROM sales WHERE lower(country) LIKE lower('%e')", None),
    ("SELECT COUNT(*) FROM sales WHERE country LIKE '%' || 'E' || '%'", None),
    ("SELECT country, COUNT(*) FROM sales GROUP BY country", None),
    (
        "SELECT country, paid, COUNT(*) FROM sales GROUP BY country, paid ORDER BY country, paid",
        None,
    ),
    ("SELECT country, COUNT(*) AS n FROM sales GROUP BY 1 ORDER BY 1 DESC", None),
    ("SELECT country AS land, COUNT(*) FROM sales GROUP BY land ORDER BY land", None),
    ("SELECT country, COUNT(*) FROM sales GROUP BY country ORDER BY COUNT(*) DESC", None),
    ("SELECT country, COUNT(*) AS n FROM sales GROUP BY country ORDER BY n DESC LIMIT 2", None),
    ("SELECT country, COUNT(*) FROM sales GROUP BY 1 ORDER BY 2 LIMIT 2 OFFSET 1", None),
    ("SELECT country, COUNT(*) n FROM sales GROUP BY country HAVING COUNT(*) > 40000", None),
    (
        "SELECT country, COUNT(*) n FROM sales GROUP BY country HAVING n < 50000 AND country <> 'AT'",
        None,
    ),
    (
        "SELECT country, SUM(amount) FROM sales GROUP BY country HAVING COUNT(*) > 40000 ORDER BY 1",
        None,
    ),
    # Several aggregates, and parts of the rows.
    ("SELECT COUNT(*), AVG(amount) FROM sales", None),
    ("SELECT COUNT(*), COUNT(amount), SUM(amount), AVG(amount) FROM sales WHERE paid", None),
    ("SELECT country, SUM(amount), AVG(amount), COUNT(*) FROM sales GROUP BY country", None),
    ("SELECT SUM(amount) / COUNT(amount) AS mean FROM sales", None),
    ("SELECT SUM(amount) / COUNT(*) FROM sales WHERE country = 'FR'", None),
    ("SELECT COUNT(*) FILTER (WHERE paid) FROM sales", None),
    ("SELECT country, COUNT(*) FILTER (WHERE paid), COUNT(*) FROM sales GROUP BY country", None),
    ("SELECT SUM(CASE WHEN paid THEN 1 ELSE 0 END) FROM sales", None),
    ("SELECT COUNT(CASE WHEN country = 'DE' THEN 1 END) AS german FROM sales", None),
    ("SELECT country, AVG(CASE WHEN paid THEN 1.0 ELSE 0 END) FROM sales GROUP BY country", None),
    ("SELECT SUM(CASE WHEN paid THEN amount ELSE 0 END) FROM sales", None),
    (
        "SELECT SUM(amount) FILTER (WHERE paid), SUM(amount) FILTER (WHERE NOT paid) FROM sales",
        None,
    ),
    ("SELECT AVG(paid) FROM sales", None),
    # Arithmetic of published values.
    ("SELECT 100.0 * COUNT(*) FILTER (WHERE paid) / COUNT(*) AS percent FROM sales", None),
    ("SELECT 1.0 * COUNT(*) FILTER (WHERE paid) / NULLIF(COUNT(*), 0) FROM sales", None),
    ("SELECT ROUND(100.0 * SUM(CASE WHEN paid THEN 1 ELSE 0 END) / COUNT(*), 1) FROM sales", None),
    ("SELECT COUNT(*) FILTER (WHERE paid) - COUNT(*) FILTER (WHERE NOT paid) FROM sales", None),
    ("SELECT SUM(amount) FILTER (WHERE paid) / SUM(amount) FROM sales", None),
    ("SELECT COUNT(*) * 1.0 / (SELECT COUNT(*) FROM sales) FROM sales WHERE country = 'BE'", None),
    ("SELECT country, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () FROM sales GROUP BY country", None),
    (
        "SELECT country, CAST(SUM(amount) AS REAL) / COUNT(*) r FROM sales GROUP BY 1 ORDER BY r DESC",
        None,
    ),
    (
        "SELECT STDDEV_POP(amount) FROM sales",
        "SELECT SQRT(AVG(amount * amount) - AVG(amount) * AVG(amount)) FROM sales",
    ),
    (
        "SELECT country, VAR_POP(amount) FROM sales GROUP BY country WITHIN 0.1% OF ROWS",
        "SELECT country, AVG(amount * amount) - AVG(amount) * AVG(amount) FROM sales GROUP BY country",
    ),
    # Groups that are conditions, subqueries that filter, and public tables.
    (
        "SELECT CASE WHEN amount < 20 THEN 'low' WHEN paid THEN 'ok' END k, COUNT(*) FROM sales GROUP BY k",
        None,
    ),
    (
        "SELECT amount >= 20 AS large, COUNT(*) FROM sales WHERE amount IS NOT NULL GROUP BY large",
        None,
    ),
    ("SELECT COUNT(*) FROM (SELECT * FROM sales WHERE paid) AS p WHERE p.country = 'DE'", None),
    ("SELECT COUNT(*) FROM (SELECT sales.paid AS paid FROM sales WHERE sales.paid) AS p", None),
    (
        "WITH p AS (SELECT * FROM sales WHERE paid) SELECT country, COUNT(*) FROM p GROUP BY country",
        None,
    ),
    (
        "SELECT k, n FROM (SELECT country k, COUNT(*) n FROM sales GROUP BY 1) WHERE n > 30000 ORDER BY n",
        None,
    ),
    (f"SELECT COUNT(*) {NORTH} WHERE c.region = 'North'", None),
    (
        f"SELECT COUNT(*) {NORTH} WHERE c.region IN (NULL) AND (1 != 1) OR c.region IN ('Alps')",
        None,
    ),
    (
        f"SELECT COUNT(*) {NORTH} WHERE c.region IN () OR c.region NOT IN ('Alps', NULL) OR paid",
        None,
    ),
    (f"SELECT COUNT(*) {NORTH} WHERE LOWER(c.region) NOT LIKE 'n%' || 'h' ESCAPE '/'", None),
    ("SELECT `country` AS `my land`, COUNT(*) FROM `sales` WHERE `paid` GROUP BY `country`", None),
    (
        f"SELECT COUNT(*) {NORTH} WHERE LOWER(c.region) = 'north' OR UPPER(c.region) > 'O' OR paid",
        None,
    ),
    (f"SELECT COUNT(*) {NORTH} WHERE UPPER(c.region) NOT IN ('ALPS', 'ZOO')", None),
    (
        f"SELECT c.region, COUNT(*) {NORTH} GROUP BY 1 HAVING LOWER(region) IN ('alps', 'zoo', NULL)",
        f"SELECT c.region, COUNT(*) {NORTH} GROUP BY 1 HAVING region = 'Alps'",
    ),
    (f"SELECT c.region, COUNT(*) {NORTH} GROUP BY c.region ORDER BY 1", None),
    (f"SELECT region, AVG(amount) {NORTH} WHERE members > 10 AND paid GROUP BY region", None),
    (
        "SELECT region, paid, COUNT(*) FROM sales LEFT JOIN countries ON country = code GROUP BY 1, 2",
        None,
    ),
    # A joined column with a value of its own for each cell is asked as one table.
    (f"SELECT c.members, COUNT(*) {NORTH} GROUP BY c.members ORDER BY 2 DESC", None),
    (f"SELECT members, AVG(amount), SUM(amount) {NORTH} GROUP BY 1 HAVING members > 10", None),
    (f"SELECT country, c.region, COUNT(*) {NORTH} WHERE paid GROUP BY country, c.region", None),
    (f"SELECT country, 100.0 * COUNT(*) / MAX(c.members) {NORTH} GROUP BY country", None),
    (f"SELECT paid, MIN(c.region), country, COUNT(*) {NORTH} GROUP BY country, paid", None),
    (
        "SELECT country, members, COUNT(*) FROM sales LEFT JOIN countries ON country = code GROUP BY 1, 2",
        None,
    ),
    # Values without a number.
    ("SELECT DISTINCT country FROM sales ORDER BY country DESC", None),
    ("SELECT QUANTILE(amount, 0.5) FROM sales", "SELECT '20 to 49'"),
    ("SELECT PERCENTILE_CONT(0.05) WITHIN GROUP (ORDER BY amount) FROM sales", "SELECT '< 10'"),
    ("SELECT MODE(country) FROM sales", "SELECT 'FR'"),
]

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


REFUSED: list[tuple[str, str]] = [
    ("SELECT * FROM sales LIMIT 10", "stream-dp synthesize"),
    (
        "SELECT COUNT(DISTINCT channel) FROM sales",
        "GROUP BY the attribute counts each declared value",
    ),
    ("SELECT CORR(amount, paid) FROM sales", "name a number"),
    ("SELECT CORR(amount, amount) FROM sales", "name two attributes"),
    ("SELECT COVAR_POP(amount, amount) FROM sales", "ask CORR"),
    ("SELECT RANK() OVER (ORDER BY COUNT(*)) FROM sales GROUP BY country", "omit OVER"),
    (
        "SELECT country, COUNT(*) FROM sales GROUP BY ROLLUP (country)",
        "ask each grouping in a statement of its own",
    ),
    ("SELECT COUNT(*) FROM sales UNION SELECT COUNT(*) FROM sales", "ask one query at a time"),
    (
        "SELECT COUNT(*) FROM sales JOIN orders ON sales.country = orders.id",
        "stream-dp dimension put",
    ),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM sales", "omit WITH DIFF"),
    ("SELECT COUNT(*) FROM customers", "write sales"),
    ("SELECT DISTINCT country FROM sales WHERE paid", "add COUNT(*)"),
]


def test_the_statements_are_at_least_61_of_which_50_are_answered() -> None:
    assert len(ANSWERED) >= 50
    assert len(ANSWERED) + len(REFUSED) >= 61


@pytest.mark.parametrize(("statement", "fix"), REFUSED)
def test_what_is_refused_says_how_to_ask_instead(statement: str, fix: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        sql.plan(statement, SALES, dataset="sales", dimensions=DIMENSIONS)
    assert fix in str(caught.value)
    assert caught.value.field.startswith("line 1, column ")


@pytest.mark.parametrize(("statement", "same"), ANSWERED, ids=[each for each, _ in ANSWERED])
async def test_the_table_is_the_true_one_within_its_bars(
    ask: Ask, truth: sqlite3.Connection, statement: str, same: str | None
) -> None:
    """Each bar fails with a probability of 1e-9."""
    table = await ask(statement)
    true = truth.execute((same or statement).rstrip(";")).fetchall()
    plain = [
        [v for c, v in zip(table.columns, row, strict=True) if not (c.bar_of or c.sure_of)]
        for row in table.rows
    ]
    barred = {c.bar_of for c in table.columns}
    exact = [
        c.type in ("text", "boolean") or c.name not in barred
        for c in table.columns
        if not (c.bar_of or c.sure_of)
    ]
    bars = [{c.bar_of: v for c, v in zip(table.columns, row, strict=True)} for row in table.rows]
    if "ORDER BY" not in statement:
        plain, bars = _by_keys(plain, bars, exact)
        true.sort(key=lambda row: _keys(row, exact))
    assert len(plain) == len(true), (table.rows, true)
    names = [c.name for c in table.columns if not (c.bar_of or c.sure_of)]
    for row, bar_of, expected in zip(plain, bars, true, strict=True):
        for name, is_exact, found, wanted in zip(names, exact, row, expected, strict=True):
            if is_exact:
                assert found == (bool(wanted) if isinstance(found, bool) else wanted)
            else:
                bar = bar_of[name]
                assert isinstance(bar, float)
                assert abs(found - wanted) <= bar + 1e-9, (name, found, wanted, bar)
                assert bar <= _sensible(wanted), (name, found, wanted, bar)


def _keys(row: Any, exact: list[bool]) -> tuple[str, ...]:
    return tuple(
        repr(v if isinstance(v, str | None) else float(v))
        for v, is_exact in zip(row, exact, strict=True)
        if is_exact
    )


def _by_keys(rows: list[Any], bars: list[Any], exact: list[bool]) -> tuple[list[Any], list[Any]]:
    both = sorted(zip(rows, bars, strict=True), key=lambda each: _keys(each[0], exact))
    return [row for row, _ in both], [bar for _, bar in both]


def _sensible(true: float) -> float:
    """The bars are no excuse: none is larger than a tenth of a large number."""
    return max(0.35 * abs(true), 1.0) if math.isfinite(true) else math.inf


def columns_of(table: ResultTable) -> list[str]:
    return [column.name for column in table.columns]


async def test_each_column_of_values_is_followed_by_its_bars(ask: Ask) -> None:
    table = await ask("SELECT country, COUNT(*) AS n, 5 AS five FROM sales GROUP BY country")
    assert columns_of(table) == ["country", "n", f"n{BAR}", "five", f"five{BAR}"]
    assert [c.type for c in table.columns] == ["text", "integer", "real", "integer", "real"]
    assert table.column("five") == [5] * 4
    assert table.column(f"five{BAR}") == [0.0] * 4
    assert table.phases == (1, 1)


PAGE = (Path(__file__).parents[2] / "docs/sql.md").read_text()


@pytest.mark.parametrize(
    "statement", re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
async def test_the_examples_of_the_page_are_answered(ask: Ask, statement: str) -> None:
    assert (await ask(statement)).rows
