"""What the translation of one text may do is bounded before it is done."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery
from stream_dp.pipeline.queries.query_answerer import MOST_PARTS
from stream_dp.sql.plan.statement_plan import Among, Dimension
from stream_dp.sql.plan.table_values import MOST_PERIODS

HOURS = [
    {"name": "d", "type": "date", "by": "hour", "from": "2020-01-01", "until": "2027-06-23"},
    {"name": "x", "type": "boolean"},
]
CITIES = [{"name": "city", "type": "category", "values": [f"city{n}" for n in range(20_000)]}]
AT_THREE = "EXTRACT(HOUR FROM d) = 3"
TOO_MANY = "looks at more than 524,288 values"


def repeated(term: str, connective: str) -> str:
    """As many terms as a text may have."""
    joined = f" {connective} ".join([term] * (sql.MAX_LENGTH // len(term)))
    return joined[: sql.MAX_LENGTH].rpartition(f" {connective} ")[0]


def asks_too_much(text: str, schema: Any, **more: Any) -> None:
    with pytest.raises(InvalidQuery, match=TOO_MANY):
        sql.plan(text, schema, **more)


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        (repeated(AT_THREE, "AND"), HOURS),
        (repeated("d < '2021' AND MONTH(d) = 2", "OR"), HOURS),
        (repeated("city LIKE '%1%'", "OR"), CITIES),
    ],
)
def test_terms_that_look_at_all_values_are_counted_first(text: str, schema: Any) -> None:
    assert len(text) > 0.99 * sql.MAX_LENGTH
    asks_too_much(text, schema)


def test_a_few_such_terms_are_answered() -> None:
    parts = "EXTRACT(YEAR FROM d) = 2021 AND EXTRACT(MONTH FROM d) = 3 AND EXTRACT(DOW FROM d) = 1"
    found = sql.parse(f"{parts} AND {AT_THREE}", [{**HOURS[0], "until": "2022-01-01"}])
    assert [len(one.get("in", ())) for one in found["where"]["all"]] == [0, 1488, 2496, 731]
    found = sql.parse("city LIKE '%999%' OR city LIKE 'city7' OR NOT city LIKE '%'", CITIES)
    assert found["where"]["any"][1] == {"attribute": "city", "eq": "city7"}


def test_groups_by_functions_of_dates_are_counted_too_and_take_one_pass_each() -> None:
    """Each of 2,730 days once took a pass over 65,520 hours."""
    asked = "SELECT COUNT(*) FROM t GROUP BY "
    groups = ", ".join(f"DATE_TRUNC('{unit}', d)" for unit in ("year", "month") * 5)
    asks_too_much(asked + groups, HOURS)
    with pytest.raises(InvalidQuery, match="more than 100 queries"):
        sql.plan(f"{asked}DATE_TRUNC('day', d)", HOURS)
    years = sql.plan(f"{asked}DATE_TRUNC('year', d)", HOURS)
    inside: list[Any] = [each["where"] for each in years.queries]
    assert {"attribute": "d", "between": ["2021-01-01T00", "2021-12-31T23"]} in inside


def test_groups_by_a_column_of_a_public_table_take_one_pass() -> None:
    rows = {f"city{n}": {"name": f"name{n % 20}"} for n in range(20_000)}
    table = Dimension("cities", "city", {"city": "text", "name": "text"}, rows)
    statement = "SELECT c.name, COUNT(*) FROM t JOIN cities c ON city = c.city GROUP BY c.name"
    assert len(sql.plan(statement, CITIES, dimensions={"cities": table}).queries) == 20


SECONDS = "FLOOR(EXTRACT(EPOCH FROM d) / 3600) * 3600"


def test_groups_that_compute_with_seconds_are_counted_too() -> None:
    """Each operator is worked out once for each of 65,520 hours."""
    asked = "SELECT {}, COUNT(*) FROM t GROUP BY 1"
    assert len(sql.plan(asked.format(SECONDS), HOURS).queries) == 1
    asks_too_much(asked.format(f"{SECONDS}{' + 1' * 9}"), HOURS)
    asks_too_much(f"SELECT COUNT(*) FROM t GROUP BY {SECONDS}, {SECONDS} + 1, {SECONDS} + 2", HOURS)


ELEMENT = "'city7'::TEXT"
SUMS = ", ".join(f"SUM(n{i}) AS s{i}" for i in range(150))
COUNTS = ", ".join(f"COUNT(*) AS n{i}" for i in range(150))


@pytest.mark.parametrize("number", ["1e99999999", "1e-99999999", "9" * 5000])
def test_no_number_is_computed_with_that_is_huge(number: str) -> None:
    """A power of ten with 99,999,999 digits once stopped everything."""
    for group in (f"FLOOR(x / {number})", f"FLOOR(EXTRACT(EPOCH FROM d) / {number})"):
        schema: list[Any] = [*HOURS[:1], {"name": "x", "type": "number", "edges": [1, 2]}]
        with pytest.raises(InvalidQuery):
            sql.plan(f"SELECT {group}, COUNT(*) FROM t GROUP BY 1", schema)


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT COUNT(*) FROM t WHERE city = ANY('{{{','.join(['city7'] * 1600)}}}')",
        f"SELECT COUNT(*) FROM t WHERE city = ANY(ARRAY[{', '.join([ELEMENT] * 600)}])",
        f"SELECT COUNT(*) FROM t WHERE city = {'(' * 30}'city7'{'::TEXT)' * 30}",
        f"SELECT {SUMS} FROM (SELECT city, {COUNTS} FROM t GROUP BY city) GROUP BY city",
    ],
    ids=["elements", "casts", "nested casts", "sums"],
)
def test_forms_of_tools_take_steps_for_their_text_alone(statement: str) -> None:
    assert len(statement) <= sql.MAX_LENGTH
    assert len(sql.plan(statement, CITIES).queries) == 1


BAND = "CASE WHEN city IN ('city1', 'city2') THEN 'a' WHEN city = 'city3' THEN 'b' ELSE 'c' END"
PLACES = Dimension(
    "places", "city", {"city": "text"}, {f"city{n}": {"city": f"city{n}"} for n in range(20_000)}
)


@pytest.mark.parametrize(
    ("statement", "term", "schema"),
    [
        ("SELECT d, COUNT(*) FROM t GROUP BY d HAVING {}", AT_THREE, HOURS),
        ("SELECT d, COUNT(*) FROM t GROUP BY d HAVING {}", "d IN ('2021', '2022-03')", HOURS),
        ("SELECT city, COUNT(*) FROM t GROUP BY city HAVING {}", "city LIKE '%1%'", CITIES),
        ("SELECT city, COUNT(*) FROM t GROUP BY city HAVING {}", "city = 'city7'", CITIES),
        ("SELECT DISTINCT city FROM t HAVING {}", "city <> 'city7'", CITIES),
        ("SELECT * FROM (SELECT city c, COUNT(*) FROM t GROUP BY 1) WHERE {}", "c = 'city7'", CITIES),
        ("SELECT p.city c FROM t JOIN places p USING (city) GROUP BY 1 HAVING {}", "c > 'd'", CITIES),
        (f"SELECT {BAND} AS band, COUNT(*) FROM t GROUP BY 1 HAVING {{}}", "band = 'a'", CITIES),
    ],
)  # fmt: skip
def test_filters_on_groups_are_counted_too(statement: str, term: str, schema: Any) -> None:
    text = statement.format(repeated(term, "OR")[: -len(statement)].rpartition(" OR ")[0])
    asks_too_much(text, schema, dimensions={"places": PLACES})


CELLS = [
    {"name": name, "type": "category", "values": [f"v{n}" for n in range(199)]} for name in "ab"
]
N_CELLS = 200 * 200
"""The cells of both: each has one for unlisted values."""

PART = {"name": "a", "type": "category", "values": ["v0", "v1", "v2", "v3"], "other": False}
COUNTED = "SELECT {}, COUNT(*) AS n FROM t GROUP BY {}"
BY_A_AND_B = COUNTED.format("a, b", "a, b")


@pytest.mark.parametrize(
    ("statement", "term", "n_values"),
    [
        (f"{BY_A_AND_B} HAVING {{}}", "n > {}", 2),
        (f"SELECT * FROM ({BY_A_AND_B}) AS v WHERE {{}}", "n > {}", 2),
        (f"{BY_A_AND_B} HAVING n IN (1{{}})", ", {}", 1),
        (f"{BY_A_AND_B} HAVING {{}}", "(a = 'v1' AND n = {})", 3),
        (f"{BY_A_AND_B} HAVING {{}}", "(a = 'v1' AND b = 'v{}')", 2),
        ("SELECT a, b, COUNT(*){} AS m FROM t GROUP BY a, b", " + {}", 1),
        (f"{BY_A_AND_B} ORDER BY n{{}}", " + {}", 1),
    ],
)
def test_what_filters_and_arithmetic_do_for_all_groups_is_counted_first(
    statement: str, term: str, n_values: int
) -> None:
    """Each value of each term is looked at for each group."""
    glue = " OR " if term[0] not in " ," else ""
    most = 2**19 // N_CELLS // n_values

    def asked(n: int) -> str:
        return statement.format(glue.join(term.format(i) for i in range(n)))

    assert len(sql.plan(asked(most // 2), CELLS).queries) == 1
    asks_too_much(asked(most + 1), CELLS)
    few = [{**PART, "name": name} for name in "ab"]
    if "b = 'v" not in term:
        assert len(sql.plan(asked(20), few).queries) == 1, "of few groups"


BAND_OF_B = "CASE WHEN b = 'v1' THEN 1 WHEN b = 'v2' THEN 2 WHEN b = 'v3' THEN 3 END AS band"
MANY = f"HAVING COUNT(*) IN ({', '.join(map(str, range(800)))})"
FEW = f"HAVING {' OR '.join(f'COUNT(*) = {n}' for n in range(30))}"
PAIRS = [f"(a = 'v{n}' AND b = 'v{n}')" for n in range(9)]


@pytest.mark.parametrize(
    ("answered", "refused"),
    [
        (f"SELECT a, b, COUNT(*) FROM t GROUP BY a {FEW}".replace(" b,", ""),
         f"SELECT day, a, b, COUNT(*) FROM t GROUP BY day, a, b {FEW}"),
        (f"SELECT a, COUNT(*) FROM t GROUP BY a {MANY}",
         f"SELECT a, {BAND_OF_B}, COUNT(*) FROM t GROUP BY a, band {MANY}"),
        (f"SELECT DISTINCT a, b FROM t HAVING {' OR '.join(PAIRS[:3])}",
         f"SELECT DISTINCT a, b FROM t HAVING {' OR '.join(PAIRS)}"),
        (f"SELECT {' + '.join(['COUNT(*)'] * 60)} AS n, n + n + n + n AS m FROM t",
         f"SELECT {' + '.join(['COUNT(*)'] * 60)} AS n, n + n + n + n AS m{', m' * 1400} FROM t"),
    ],
    ids=["parts of a series", "groups that are conditions", "declared values", "names"],
)  # fmt: skip
def test_whatever_multiplies_them_is_counted_too(answered: str, refused: str) -> None:
    sql.plan(answered, CELLS)
    asks_too_much(refused, CELLS)
    assert MOST_PERIODS == MOST_PARTS, "as a worker bounds them"


def test_conditions_on_one_column_are_looked_at_once() -> None:
    terms = " OR ".join(f"(a >= 'v{n}' AND NOT a > 'v{n}')" for n in (1, 2, 1))
    ordered = [{**each, "ordered": True} for each in CELLS]
    plan = sql.plan(f"{BY_A_AND_B} HAVING {terms}", ordered)
    assert plan.having == Among(0, 0b110, (1 << 199) - 1 - 0b110)


def test_many_comparisons_with_the_periods_of_groups_are_answered() -> None:
    terms = " OR ".join(["d >= '2026' AND d < '2026-02-03'"] * 100)
    plan = sql.plan(f"SELECT d, COUNT(*) FROM t GROUP BY d HAVING {terms}", HOURS)
    assert len(plan.queries) == 1
    years = f"SELECT COUNT(*) FROM t WHERE {terms} GROUP BY DATE_TRUNC('year', d)"
    assert len(sql.plan(years, HOURS).queries) == 1, "of the other years no row counts"


@pytest.mark.parametrize(
    "text",
    [
        f"({AT_THREE} OR EXTRACT(DOW FROM d) = 1) IS NULL",
        "EXTRACT(HOUR FROM d) IN (1, 3, 5, 7, 9, 11, 13, 15, 17, 19)",
        "(((((EXTRACT(HOUR FROM d) = 3) IS NULL) IS NULL) IS NULL) IS NULL) IS NULL",
    ],
)
def test_no_condition_lists_more_than_a_message_holds(text: str) -> None:
    with pytest.raises(InvalidQuery, match="lists more values than one query can"):
        sql.parse(text, HOURS)
    with pytest.raises(InvalidQuery, match="lists more values than one query can"):
        sql.plan(f"SELECT COUNT(*) FILTER (WHERE {text}) FROM t", HOURS)
