"""What a statement says and nothing reads is refused; what is read narrowly is asked as it is meant."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery
from stream_dp.sql.plan.statement_plan import ValueType
from tests.sql.schemas import of

COUNTRIES = ["AT", "BE", "DE", "FR"]
SCHEMA: list[dict[str, Any]] = [
    {"name": "country", "type": "category", "values": COUNTRIES, "missing": True},
    {"name": "channel", "type": "category", "values": ["shop", "web"], "missing": True},
    {"name": "age", "type": "number", "edges": [18, 30, 65], "integer": True},
    {"name": "amount", "type": "number", "edges": [0, 20, 50, 100], "missing": True},
    {"name": "d", "type": "date", "by": "day", "from": "2026-01-01", "to": "2026-12-31"},
    {"name": "wd", "type": "date", "by": "weekday"},
    {"name": "paid", "type": "boolean", "missing": True},
    {"name": "smoker", "type": "boolean"},
]
TYPES: dict[str, ValueType] = {
    "code": "text", "zip": "text", "people": "integer", "share": "real", "coast": "boolean",
    "region": "text",
}  # fmt: skip
PLACES = sql.Dimension(
    "places",
    "code",
    TYPES,
    {
        "AT": {"zip": "01067", "people": 9, "share": 0.5, "coast": False, "region": "EU"},
        "DE": {"zip": "53111", "people": 84, "share": 1.0, "coast": True, "region": "EU"},
        "FR": {"zip": None, "people": None, "share": None, "coast": None},
    },
)


def planned(statement: str) -> sql.StatementPlan:
    return sql.plan(statement, SCHEMA, dataset="sales", dimensions={"places": PLACES})


def where_of(statement: str) -> Any:
    (query,) = planned(statement).queries
    return query["where"]


@pytest.mark.parametrize(
    ("condition", "is_sent"),
    [
        *[(condition, True) for condition in (
            "age > 65", "age < 10", "age BETWEEN 40 AND 50", "age <= 65", "amount > 50 AND amount < 100",
            "amount BETWEEN 5 AND 10", "NOT age >= 66",
        )],
        *[(condition, False) for condition in (
            "age >= 65 AND age < 18", "age > 64 AND age <= 29", "amount < 0 AND amount >= 100",
        )],
    ],
)  # fmt: skip
def test_a_condition_that_cuts_a_bin_is_sent_and_whole_bins_that_no_row_is_in_are_not(
    condition: str, is_sent: bool
) -> None:
    assert bool(planned(f"SELECT COUNT(*) FROM sales WHERE {condition}").queries) == is_sent


ONE = of("country", eq="DE")


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("d = '2026-03' AND d = DATE '2026-03-14'", [of("d", eq="2026-03"), of("d", eq="2026-03-14")]),
        ("wd = 'Mon' AND wd IN (1, 2)", [of("wd", eq="Mon"), of("wd", in_=[1, 2])]),
        ("d IN ('2026-01', '2026-02-03') AND d IN ('2026-01-05', '2026-02-03')",
         [of("d", in_=["2026-01", "2026-02-03"]), of("d", in_=["2026-01-05", "2026-02-03"])]),
        ("country IN ('DE', 'FR') AND smoker AND country = 'DE'", [ONE, of("smoker", eq=True)]),
    ],
)  # fmt: skip
def test_a_list_that_holds_another_is_left_out_and_dates_that_differ_as_texts_are_kept(
    condition: str, parts: list[Any]
) -> None:
    assert where_of(f"SELECT COUNT(*) FROM sales WHERE {condition}") == {"all": parts}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT COUNT(*) FROM sales TABLESAMPLE (10)", "TABLESAMPLE is not answered; name the data"),
        ("SELECT COUNT(*) FROM sales FOR SYSTEM_TIME AS OF '2026-01-01'", "a version of a table is not"),
        ("SELECT COUNT(*) FROM sales PIVOT (SUM(age) FOR country IN ('DE'))", "PIVOT or UNPIVOT is not"),
        ("SELECT COUNT(*) FROM sales@x", "@x is not a name"),
        ("SELECT channel, COUNT(*) FROM sales AS t(channel, country) GROUP BY 1", "a list of columns after"),
        ("WITH t(channel) AS (SELECT * FROM sales) SELECT COUNT(*) FROM t", "a list of columns after"),
        ("WITH places AS (SELECT * FROM sales) SELECT COUNT(*) FROM sales JOIN places ON country = code",
         "no two rows are ever linked"),
        ("SELECT country, COUNT(*) FROM sales GROUP BY 1 FETCH FIRST 10 PERCENT ROWS ONLY", "PERCENT is not"),
        ("SELECT country, COUNT(*) FROM sales GROUP BY 1 FETCH FIRST 2 ROWS WITH TIES", "WITH TIES is not"),
        ("SELECT country, COUNT(*) FROM sales GROUP BY country LIMIT 2 BY country", "LIMIT BY is not"),
        ("SELECT DISTINCT ON (country) country FROM sales", "DISTINCT ON is not answered"),
        ("SELECT ROUND(AVG(age), 1, 1) FROM sales", "a third argument of ROUND is not answered"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM sales", "omit WITH DIFFERENTIAL"),
        ("SELECT COUNT(*) FROM sales JOIN orders ON country = id", "stream-dp dimension put FILE.csv --key"),
        ("SELECT COUNT(country, channel) FROM sales", "COUNT of several attributes is not answered"),
        ("SELECT COUNT(*) FROM sales HAVING COUNT(*) BETWEEN SYMMETRIC 9 AND 3", "put the lower bound first"),
        ("SELECT DISTINCT country FROM sales GROUP BY country, channel HAVING COUNT(*) > 3", "omit DISTINCT"),
        *[(f"SELECT {cast} FROM sales", "a cast to whole numbers rounds nothing here; omit") for cast in (
            "CAST(AVG(age) AS INTEGER)", "CAST(SUM(age) AS BIGINT)", "TRY_CAST(COUNT(*) / 2 AS INT)",
            "CAST(1.5 AS INT)", "SUM(CAST(amount AS INTEGER))", "AVG(2 * CAST(amount AS INT))",
            "SUM(CAST(CASE WHEN paid THEN amount END AS INT))", "CAST(ROUND(AVG(age), 1) AS INT)",
            "COUNT(*) / CAST(NULLIF(AVG(age), 0) AS INT)", "CAST(MEDIAN(age) AS INTEGER)",
        )],
        ("SELECT SUM(amount) / COUNT(amount) FROM sales WITHIN 2", "of one attribute, without arithmetic"),
        (f"SELECT COUNT(*) FROM sales WHERE (smoker AND paid){' IS NULL' * 30}", "a IS NULL OR b IS NULL"),
        ("SELECT COUNT(*) FROM sales WHERE day <= DATE '9999-12-31'", "omit this bound"),
        ("SELECT COUNT(*) FROM sales WHERE month <= '9999-12-01'", "omit this bound"),
        ("SELECT TOP 5 country, COUNT(*) FROM sales GROUP BY country", "ORDER BY and LIMIT 5 at the end"),
        ("SELECT DISTINCT top (12) country FROM sales", "TOP is not answered; write ORDER BY and LIMIT 12"),
        ("SELECT COUNT(*) FROM sales WHERE LEFT(channel, 1) = 'w'", "use LIKE 'A%'"),
        ("SELECT COUNT(*) FROM sales WHERE wd >= '2025-12-01'",
         "or 1 to 7; where phases have dates, day >= DATE '2025-12-01' asks about these"),
        (f"SELECT COUNT(*) FROM sales WHERE phase = {'9' * 5000}", "this is not the number of a phase"),
    ],
)  # fmt: skip
def test_what_nothing_reads_is_refused_in_words(statement: str, words: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(words)):
        planned(statement)


@pytest.mark.parametrize(
    "selected",
    [
        *(
            "CAST(COUNT(*) AS INTEGER)",
            "CAST(ROUND(AVG(age)) AS INTEGER)",
            "SUM(CAST(paid AS INTEGER))",
        ),
        *("SUM(CAST(age AS INTEGER))", "CAST(SUM(CASE WHEN paid THEN 1 ELSE 0 END) AS BIGINT)"),
        *(
            "CAST(AVG(amount) AS REAL)",
            "AVG(amount)",
            "CAST(2 * COUNT(*) AS INT), SUM(CAST(age AS REAL))",
        ),
        *("SUM(CAST(amount > 20 AS INT))", "CAST(COALESCE(COUNT(*), 0) AS INT)"),
        "COUNT(*) / CAST(NULLIF(COUNT(paid), 0) AS INT)",
    ],
)
def test_a_cast_that_changes_nothing_is_answered(selected: str) -> None:
    assert planned(f"SELECT {selected} FROM sales").queries


@pytest.mark.parametrize("rows", ["FETCH FIRST 2 ROWS ONLY", "LIMIT 2"])
def test_first_rows_may_be_asked_in_both_ways(rows: str) -> None:
    assert planned(f"SELECT country, COUNT(*) FROM sales GROUP BY 1 {rows}").limit == 2


def test_a_mean_of_a_condition_is_of_the_rows_for_which_it_is_known() -> None:
    assert where_of("SELECT AVG(amount > 20) FROM sales") == {
        "attribute": "amount",
        "is_missing": False,
    }
    assert where_of("SELECT AVG(age >= 30) FROM sales") is None
    assert where_of("SELECT AVG(amount IS NULL) FROM sales") is None
    assert where_of("SELECT AVG(amount > 20 OR paid) FROM sales") is not None


def test_is_null_of_a_condition_has_all_that_it_names() -> None:
    joined = "FROM sales LEFT JOIN places c ON country = c.code"
    whole = where_of(f"SELECT COUNT(*) {joined} WHERE (c.region = 'EU' OR paid) IS NULL")
    assert "paid" in str(whole)


def test_positions_in_a_subquery_are_of_its_own_columns() -> None:
    inner = "SELECT country AS k, COUNT(*) AS n, AVG(age) AS a FROM sales GROUP BY 1 ORDER BY 2"
    found = planned(f"SELECT a, k FROM ({inner})")
    same = planned(
        "SELECT AVG(age) AS a, country AS k FROM sales GROUP BY country ORDER BY COUNT(*)"
    )
    assert (found.queries, found.order) == (same.queries, same.order)


KINDS = {
    "zip": ("text", ["'01067'"]),
    "code": ("text", ["'AT'"]),
    "people": ("number", ["60", "-6"]),
    "share": ("number", ["0.25"]),
    "coast": ("boolean", ["TRUE"]),
}


@pytest.mark.parametrize(
    "form",
    [
        *("c.{0} <> {1}", "c.{0} > {1}", "{1} <= c.{0}", "c.{0} BETWEEN {1} AND {1}"),
        *("c.{0} NOT IN ({1})", "c.{0} IS DISTINCT FROM {1}"),
    ],
)
@pytest.mark.parametrize("column", KINDS)
def test_a_joined_column_compares_with_constants_of_its_type_alone(column: str, form: str) -> None:
    asked = "SELECT COUNT(*) FROM sales JOIN places c ON country = c.code WHERE "
    kind, _ = KINDS[column]
    for other, constants in KINDS.values():
        for constant in constants:
            condition = form.format(column, constant)
            if other == kind:
                planned(asked + condition)
                continue
            with pytest.raises(InvalidQuery, match=f"is not a {kind}, but {column} is"):
                planned(asked + condition)


def test_a_joined_column_keeps_what_its_entries_say() -> None:
    joined = "FROM sales JOIN places c ON country = c.code"
    assert where_of(f"SELECT COUNT(*) {joined} WHERE c.zip = '01067'") == where_of(
        f"SELECT COUNT(*) {joined} WHERE c.people < 60"
    )
    cases = planned(f"SELECT c.zip, COUNT(*) {joined} GROUP BY c.zip ORDER BY c.zip").cases
    assert [value for (value,) in cases] == ["01067", "53111", None]
    for condition in ("c.people LIKE '8%'", "c.coast ILIKE 'true'"):
        with pytest.raises(InvalidQuery, match="is not a text"):
            planned(f"SELECT COUNT(*) {joined} WHERE {condition}")
    with pytest.raises(InvalidQuery, match="1 is not a text, but zip is"):
        planned(f"SELECT COUNT(*) {joined} WHERE c.zip LIKE 1")
