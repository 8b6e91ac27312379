"""What BI tools and drivers send is read as plain SQL, or refused with what works instead."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery

PEOPLE: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "other": True},
    {"name": "age", "type": "number", "edges": [18, 30, 45, 65], "integer": True},
    {"name": "income", "type": "number", "edges": [0, 1000, 2000, 5000], "missing": True},
    {"name": "member", "type": "boolean"},
    {"name": "visited", "type": "date", "by": "day", "from": "2026-01-01", "until": "2026-02-02"},
    {"name": "listed", "type": "category", "values": ["2026-01-01", "2026-01-02", "2026-02-01"]},
]

SAME = """
SELECT city AS city, COUNT(*) AS count FROM public.people GROUP BY city ORDER BY count DESC LIMIT 10000
= SELECT city, COUNT(*) AS count FROM people GROUP BY city ORDER BY count DESC LIMIT 10000

SELECT "city" AS "city", COUNT(*) AS "count" FROM "public"."people" GROUP BY "city" ORDER BY "count" DESC
= SELECT city, COUNT(*) AS count FROM people GROUP BY city ORDER BY count DESC

SELECT city AS city, AVG(income) AS "AVG(income)" FROM people WHERE age >= 30 GROUP BY city
ORDER BY "AVG(income)" DESC LIMIT 100
= SELECT city, AVG(income) FROM people WHERE age >= 30 GROUP BY city ORDER BY 2 DESC LIMIT 100

SELECT city AS city, SUM(n) AS "SUM(n)" FROM
(SELECT city, COUNT(*) AS n FROM people GROUP BY city) AS virtual_table GROUP BY city LIMIT 1000
= SELECT city, COUNT(*) AS "SUM(n)" FROM people GROUP BY city LIMIT 1000

SELECT c AS town, SUM(n) AS s FROM
(SELECT city AS c, age AS a, COUNT(*) AS n FROM people WHERE member GROUP BY 1, 2) AS virtual_table
WHERE a > 30 GROUP BY c HAVING SUM(n) > 10 ORDER BY s DESC
= SELECT city AS town, COUNT(*) AS s FROM people WHERE member AND age > 30
GROUP BY city HAVING COUNT(*) > 10 ORDER BY s DESC

SELECT city, SUM(m) AS n FROM
(SELECT city, member, COUNT(*) AS n, SUM(age) AS m FROM people GROUP BY 1, 2) GROUP BY city ORDER BY n
= SELECT city, SUM(age) AS n FROM people GROUP BY city ORDER BY n

SELECT SUM(n), SUM(m) FROM
(SELECT city, SUM(age) AS n, COUNT(*) FILTER (WHERE member) AS m FROM people GROUP BY city)
= SELECT SUM(age) AS "SUM(n)", COUNT(*) FILTER (WHERE member) AS "SUM(m)" FROM people

SELECT MAX(n) AS n, c FROM (SELECT city AS c, AVG(age) AS n FROM people GROUP BY 1 HAVING COUNT(*) > 9) v
GROUP BY c HAVING MIN(n) < 40
= SELECT AVG(age) AS n, city AS c FROM people GROUP BY city HAVING COUNT(*) > 9 AND AVG(age) < 40

SELECT DATE_TRUNC('day', visited) AS visited, COUNT(*) AS count FROM people
WHERE visited >= TO_TIMESTAMP('2026-01-05 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
AND visited < TO_DATE('2026-01-09', 'YYYY-MM-DD')
GROUP BY DATE_TRUNC('day', visited) ORDER BY count DESC LIMIT 1000
= SELECT DATE_TRUNC('day', visited) AS visited, COUNT(*) AS count FROM people
WHERE visited >= '2026-01-05T00:00:00' AND visited < '2026-01-09' GROUP BY 1 ORDER BY 2 DESC LIMIT 1000

SELECT DATE_TRUNC('day', listed) AS listed, COUNT(*) AS count FROM people
GROUP BY DATE_TRUNC('day', listed) ORDER BY count DESC LIMIT 1000
= SELECT listed, COUNT(*) AS count FROM people GROUP BY listed ORDER BY count DESC LIMIT 1000

SELECT "public"."people"."city" AS "city", COUNT(*) AS "count" FROM "public"."people"
WHERE "public"."people"."age" >= 30 GROUP BY "public"."people"."city" ORDER BY "public"."people"."city" ASC
= SELECT city, COUNT(*) AS count FROM people WHERE age >= 30 GROUP BY city ORDER BY city

SELECT "public"."people"."member" AS "member", AVG("public"."people"."income") AS "avg"
FROM "public"."people" GROUP BY "public"."people"."member"
= SELECT member, AVG(income) AS avg FROM people GROUP BY member

SELECT CAST(SUM(CASE WHEN "public"."people"."member" = TRUE THEN 1 ELSE 0.0 END) AS float)
/ CASE WHEN COUNT(*) = 0 THEN NULL ELSE COUNT(*) END AS "share" FROM "public"."people"
= SELECT COUNT(*) FILTER (WHERE member) / COUNT(*) AS share FROM people

SELECT FLOOR((("public"."people"."age" / 100.0))) * 100.0 AS "age", COUNT(*) AS "count" FROM "public"."people"
GROUP BY FLOOR((("public"."people"."age" / 100.0))) * 100.0
= SELECT FLOOR(age / 100.0) * 100.0 AS age, COUNT(*) AS count FROM people GROUP BY 1

SELECT CAST("public"."people"."visited" AS date) AS "visited", COUNT(*) AS "count" FROM "public"."people"
GROUP BY CAST("public"."people"."visited" AS date)
= SELECT DATE_TRUNC('day', visited) AS visited, COUNT(*) AS count FROM people GROUP BY 1

SELECT CAST("public"."people"."listed" AS date) AS "d", COUNT(*) AS "n" FROM "public"."people"
GROUP BY CAST("public"."people"."listed" AS date)
= SELECT listed AS d, COUNT(*) AS n FROM people GROUP BY listed

SELECT CAST(DATE_TRUNC('month', CAST("public"."people"."visited" AS timestamp)) AS date) AS m, COUNT(*) AS n
FROM people GROUP BY CAST(DATE_TRUNC('month', CAST("public"."people"."visited" AS timestamp)) AS date)
= SELECT DATE_TRUNC('month', visited) AS m, COUNT(*) AS n FROM people GROUP BY 1

SELECT COUNT(*) FROM people WHERE visited >= timestamp with time zone '2026-01-05 00:00:00.000Z'
AND CAST(visited AS date) <= date '2026-01-08'
= SELECT COUNT(*) FROM people WHERE visited >= '2026-01-05T00:00:00' AND visited <= '2026-01-08'

SELECT COUNT(*) FROM people WHERE (city <> 'Graz' OR city IS NULL) AND (city IS NOT NULL)
= SELECT COUNT(*) FROM people WHERE city <> 'Graz'

SELECT COUNT(*) FROM people WHERE visited BETWEEN '2026-01-01T09:30:00Z' AND '2026-01-20T14:10:11.123Z'
= SELECT COUNT(*) FROM people WHERE visited >= '2026-01-02' AND visited <= '2026-01-20'

SELECT COUNT(*) FROM people WHERE visited NOT BETWEEN '2026-01-01T00:00:00.5Z' AND '2026-01-20T00:00:00Z'
= SELECT COUNT(*) FROM people WHERE visited <= '2026-01-01' OR visited > '2026-01-20'

SELECT visited AS "time", city AS metric, COUNT(*) AS value FROM people GROUP BY 1, 2 ORDER BY 1
= SELECT visited AS time, city AS metric, COUNT(*) AS value FROM people GROUP BY visited, city ORDER BY 1

SELECT floor(extract(epoch from visited)/86400)*86400 AS "time", count(*) AS n FROM people GROUP BY 1
= SELECT floor(extract(epoch from visited)/3600)*3600 AS "time", count(*) AS n FROM people GROUP BY 1

select "rows"."city" as "city", count(1) as "a0" from "public"."people" "rows" group by "city"
= SELECT city, COUNT(*) AS a0 FROM people GROUP BY city

select "rows"."city" as "city", sum("rows"."age") as "a0" from "public"."people" "rows"
where ("rows"."city" = 'Graz' and "rows"."city" is not null) group by "city"
= SELECT city, SUM(age) AS a0 FROM people WHERE city = 'Graz' GROUP BY city

select "_"."city" from (select "rows"."city" as "city" from "public"."people" "rows" group by "city") "_"
order by "_"."city" limit 501
= SELECT city FROM people GROUP BY city ORDER BY city LIMIT 501

select city, count(*) as n from "stream_dp"."public"."people" group by city
limit 5
= SELECT city, COUNT(*) AS n FROM people GROUP BY city LIMIT 5

select * from (select city, count(*) as n from people group by city) as model_limit_subq limit 5
= SELECT city, COUNT(*) AS n FROM people GROUP BY city LIMIT 5

SELECT people.city, count(*) AS n
FROM people
WHERE people.age >= 30::INTEGER AND people.city = 'Graz'::VARCHAR GROUP BY people.city
= SELECT city, COUNT(*) AS n FROM people WHERE age >= 30 AND city = 'Graz' GROUP BY city

SELECT count(*) FROM people WHERE age < CAST('65' AS BIGINT) AND member = 't'::boolean AND income >= -5::INT
= SELECT COUNT(*) FROM people WHERE age < 65 AND member = TRUE AND income >= -5

SELECT count(*) FROM people WHERE age >= '30' AND income < '1e3' AND member = '1'
= SELECT COUNT(*) FROM people WHERE age >= 30 AND income < 1000.0 AND member

SELECT count(*) FROM people WHERE city = ANY('{Graz,"Bonn"}')
= SELECT COUNT(*) FROM people WHERE city IN ('Graz', 'Bonn')

SELECT count(*) FROM people WHERE city = ANY(ARRAY['Graz'::text, 'Bonn']::text[])
= SELECT COUNT(*) FROM people WHERE city IN ('Graz', 'Bonn')

SELECT count(*) FROM people WHERE age = ANY('{18, 19}'::int[])
= SELECT COUNT(*) FROM people WHERE age IN (18, 19)

SELECT count(*) FROM people WHERE city <> ALL('{Graz}')
= SELECT COUNT(*) FROM people WHERE city NOT IN ('Graz')

SELECT count(*) FROM people WHERE city = ANY('{}') OR city = ANY('{NULL}')
= SELECT COUNT(*) FROM people WHERE FALSE

SELECT count(*) FROM people WHERE NOT city = ANY('{}')
= SELECT COUNT(*) FROM people

SELECT count(*) FROM people WHERE city <> ALL('{Graz,NULL}')
= SELECT COUNT(*) FROM people WHERE FALSE

SELECT count(1) FROM people
= SELECT COUNT(*) AS "COUNT(1)" FROM people

SELECT SUM(1) AS "sum:n:ok" FROM "public"."people" "people" HAVING (COUNT(1) > 0)
= SELECT COUNT(*) AS "sum:n:ok" FROM people HAVING COUNT(*) > 0

SELECT CAST("people"."city" AS TEXT) AS "city", SUM(2) AS "n" FROM "public"."people" "people" GROUP BY 1
= SELECT city, 2 * COUNT(*) AS n FROM people GROUP BY city

SELECT CAST(TRUNC(EXTRACT(YEAR FROM "visited")) AS INTEGER) AS "y", COUNT(*) AS n FROM people GROUP BY 1
= SELECT EXTRACT(YEAR FROM visited) AS y, COUNT(*) AS n FROM people GROUP BY 1

SELECT city AS group, COUNT(*) AS select FROM people GROUP BY city
= SELECT city AS "group", COUNT(*) AS "select" FROM people GROUP BY city

SELECT CAST(COUNT(*) AS BIGINT) AS n, CAST(30 AS INT) FROM people -- Metabase:: userID: 1
= SELECT COUNT(*) AS n, 30 AS "CAST(30 AS INT)" FROM people
"""
"""Statements of Superset, Metabase, Grafana, Power BI, dbt, SQLAlchemy, drivers and Tableau, each with the
plain SQL that has the same plan."""


def planned(statement: str) -> sql.StatementPlan:
    return sql.plan(statement, PEOPLE, dataset="people")


@pytest.mark.parametrize("pair", SAME.strip().split("\n\n"))
def test_a_statement_of_a_tool_is_planned_as_plain_sql(pair: str) -> None:
    asked, plain = pair.split("\n= ")
    ours, same = (replace(planned(each), notes=(), as_table=True) for each in (asked, plain))
    assert ours == same


COUNTED = "SELECT city, COUNT(*) AS n FROM people GROUP BY 1"
SECONDS = "FLOOR(EXTRACT(EPOCH FROM visited)/86400)*86400"
TIMES = "visited BETWEEN '2026-01-01T00:00:00Z' AND '2026-02-01T00:00:00Z'"


@pytest.mark.parametrize(
    ("statement", "n_queries"),
    [
        ("SELECT city AS city, COUNT(*) AS n FROM people WHERE city IN ('Graz', 'Bonn') GROUP BY city", 1),
        ("SELECT COUNT(*) AS count FROM people LIMIT 50000", 1),
        ("SELECT DISTINCT city AS city FROM people LIMIT 1000", 0),
        ("SELECT city AS city FROM people GROUP BY city ORDER BY city ASC LIMIT 1000", 0),
        (f'SELECT "_"."city", "_"."n" FROM ({COUNTED}) "_" WHERE NOT "_"."n" IS NULL LIMIT 1001', 1),
        ("/* app */ SELECT COUNT(*) FROM people", 1),
        ("SELECT city, COUNT(age) FROM people GROUP BY city LIMIT 50 ", 1),
        (f"SELECT {SECONDS} AS time, COUNT(*) FROM people WHERE {TIMES} GROUP BY 1 ORDER BY 1", 1),
        (f"SELECT {SECONDS.replace('86400', '1000000')} AS t, COUNT(*) FROM people GROUP BY 1", 4),
        ("SELECT (CAST(EXTRACT(dow FROM visited) AS integer) + 1) AS d, COUNT(*) FROM people GROUP BY 1", 8),
        ("SELECT COUNT(*) FROM people WHERE EXTRACT(EPOCH FROM visited) >= 1767312000", 1),
    ],
)  # fmt: skip
def test_it_asks_so_many_queries(statement: str, n_queries: int) -> None:
    assert len(planned(statement).queries) == n_queries


def test_seconds_since_1970_are_those_of_the_beginning_of_a_period() -> None:
    plan = planned(f"SELECT {SECONDS} AS t, COUNT(*) FROM people GROUP BY 1")
    (group,) = plan.groups
    assert group.values[:3] == (None, 1767225600, 1767312000)
    assert (len(group.values), group.values[-1]) == (32 + 2, None)
    assert group.type == "integer"


DISTINCT = "GROUP BY the attribute counts each declared value"
ROWS = "ask SELECT city, COUNT(*) ... GROUP BY city, or read invented rows: stream-dp synthesize, or SELECT"


@pytest.mark.parametrize(
    ("statement", "sort", "words"),
    [
        ("SELECT * FROM people LIMIT 1001", "rows", f"{ROWS} * FROM synthetic.people over the Postgres port"),
        ("SELECT city AS city, age AS age FROM public.people LIMIT 9", "rows", f"{ROWS} * FROM synthetic."),
        ('SELECT SUBSTRING("public"."people"."city", 1, 9) AS "s" FROM "public"."people"', "rows", ROWS),
        ('select "$Table"."city" as "city" from "public"."people" "$Table" limit 1000', "rows", ROWS),
        ('SELECT "source"."city" FROM (SELECT people.city AS city FROM people) AS "source"', "rows", ROWS),
        ("SELECT * FROM people WHERE age < 18 AND age > 65", "rows", ROWS),
        ('SELECT COUNT(DISTINCT city) AS "COUNT_DISTINCT(city)" FROM people LIMIT 100', "other", DISTINCT),
        ('SELECT COUNT(distinct "public"."people"."city") FROM "public"."people"', "other", DISTINCT),
        ("SELECT FLOOR(((age / 10.0))) * 10.0 AS age, COUNT(*) FROM people GROUP BY 1", "other",
         "let buckets begin at edges, such as 18 and 30, or GROUP BY age for its bins"),
        (f"SELECT COUNT(*) FROM people WHERE {TIMES.replace('visited', 'listed')}", "other",
         "use = or IN: its values are '2026-01-01'"),
        (f"SELECT COUNT(*) FROM people JOIN ({COUNTED} LIMIT 5) AS series_limit ON city = city__", "other",
         "set the series limit to None"),
        ("SELECT COUNT(*) FROM people WHERE city = ANY('{Graz,,}')", "other", "compare one at a time"),
        *[(statement, "other", "group once") for statement in (
            f"SELECT AVG(n) FROM ({COUNTED})", f"SELECT SUM(n) FROM ({COUNTED} LIMIT 2)",
            f"SELECT SUM(n) FROM ({COUNTED} HAVING COUNT(*) > 5)", f"SELECT COUNT(*) FROM ({COUNTED})",
            "SELECT SUM(n) FROM (SELECT city, AVG(age) n FROM people GROUP BY 1)",
            "SELECT a, SUM(n) FROM (SELECT city, 1 AS a, COUNT(*) n FROM people GROUP BY 1) GROUP BY a",
        )],
    ],
)  # fmt: skip
def test_a_refusal_names_what_works(statement: str, sort: str, words: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(words)) as caught:
        planned(statement)
    assert caught.value.sort == sort


@pytest.mark.parametrize(
    ("marked", "sort"),
    [
        ("SELECT COUNT(*)\nFRO ^people", "syntax"),
        ("SELECT COUNT(*) FROM people WHERE city = ^'x", "syntax"),
        ("SELECT COUNT(*) FROM people^; SELECT 1", "syntax"),
        ("^", "syntax"),
        ("SELECT COUNT(*) FROM\n  public.^others", "no_table"),
        ("SELECT COUNT(*) FROM ^other.people", "no_table"),
        ("SELECT COUNT(*) FROM people JOIN ^places ON city = code", "no_table"),
        ("SELECT COUNT(*) FROM people WHERE age >= 30::INT AND ^foo = 1", "no_column"),
        ("SELECT foo, COUNT(*) FROM people\nGROUP BY ^foo", "no_column"),
        ("age >= 30 AND ^foo", "no_column"),
        ("SELECT COUNT(*) AS select, AVG(^foo) FROM people", "no_column"),
        ("SELECT ^city, COUNT(*) FROM people", "not_grouped"),
        ("SELECT ^member, age FROM people", "rows"),
        ("SELECT COUNT(*) FROM people WHERE member AND ^city >= 'Graz'", "other"),
    ],
)
def test_an_error_has_a_sort_and_says_where_it_is(marked: str, sort: str) -> None:
    statement, offset = marked.replace("^", ""), marked.index("^")
    with pytest.raises(InvalidQuery) as caught:
        planned(statement)
    error = caught.value
    assert (error.sort, error.offset) == (sort, offset)
    line, column = statement.count("\n", 0, offset) + 1, offset - statement.rfind("\n", 0, offset)
    assert error.field == f"line {line}, column {column}"
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.sort, copied.offset, str(copied)) == (sort, offset, str(error))


def test_an_error_that_is_of_no_statement_has_no_offset() -> None:
    error = InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    assert (error.sort, error.offset) == ("other", None)
