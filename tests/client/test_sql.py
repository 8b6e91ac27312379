from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.rows.universe import Boolean, Category, Number, Universe
from stream_dp.errors import InvalidQuery
from stream_dp.sql import example, parse
from stream_dp.sql.terms.attribute_cells import cells_where

FLIGHTS: list[dict[str, Any]] = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA", "7"], "other": True, "missing": True},
    {"name": "arr_delay", "type": "number", "edges": [-10, 0, 1, 30], "integer": True, "missing": True},
    {"name": "distance", "type": "number", "edges": [100.5, 2000], "integer": False, "missing": False},
    {"name": "cancelled", "type": "boolean", "missing": True},
    {"name": "late", "type": "boolean", "missing": False},
    {"name": "first seen", "type": "category", "values": ["EWR", "other"], "other": True},
]  # fmt: skip
UNIVERSE = Universe(
    (
        Category("carrier", ("AA", "UA", "7"), missing=True),
        Number("arr_delay", (-10, 0, 1, 30), integer=True, missing=True),
        Number("distance", (100.5, 2000)),
        Boolean("cancelled", missing=True),
        Boolean("late"),
        Category("first seen", ("EWR", "other")),
    )
)

RAW: dict[str, list[Any]] = {
    "carrier": ["AA", "UA", "7", "ZZ", None],
    "arr_delay": [-11, -10, -1, 0, 1, 29, 30, None],
    "distance": [0, 100.5, 2000],
    "cancelled": [False, True, None],
    "late": [False, True],
    "first seen": ["EWR"],
}
ROWS = [dict(zip(RAW, values, strict=True)) for values in product(*RAW.values())]
CODES = UNIVERSE.encode_rows(ROWS).codes


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    """The rows in a table called flights, in SQLite."""
    connection = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{name}"' for name in RAW)
    connection.execute(f"CREATE TABLE flights (id INTEGER PRIMARY KEY, {columns})")
    insert = f"INSERT INTO flights ({columns}) VALUES ({', '.join('?' * len(RAW))})"
    connection.executemany(insert, [tuple(row.values()) for row in ROWS])
    yield connection
    connection.close()


def selected_by_sqlite(sqlite: sqlite3.Connection, condition: str) -> list[bool]:
    chosen = {i for (i,) in sqlite.execute(f"SELECT id FROM flights WHERE {condition}")}
    return [i in chosen for i in range(1, len(ROWS) + 1)]


def selected(where: dict[str, Any] | None) -> list[bool]:
    predicate = compile_where(UNIVERSE, where, max_depth=200, max_nodes=5000)
    if predicate.constant is not None:
        return [predicate.constant] * len(ROWS)
    return predicate.mask[tuple(CODES[a] for a in predicate.attributes)].tolist()


def fill(template: str, *choices: list[str]) -> list[str]:
    """The template with every combination of choices."""
    return [template.format(*chosen) for chosen in product(*choices)]


NOT, SAME = ["", "NOT "], ["=", "<>"]
TEXTS = ["'AA'", "'7'", "('UA')"]
COMPARISONS = [
    *fill("carrier {} {}", [*SAME, "!=", "==", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"], TEXTS),
    *fill("{} {} carrier", TEXTS, SAME),
    *fill("carrier {}IN ({})", NOT, ["NULL", "'AA'", "'AA', '7'", "'UA', NULL, 'AA'"]),
    *fill("{} IS {}NULL", ["carrier", "arr_delay", "cancelled", "(carrier)"], NOT),
    *fill("arr_delay {} {}", [">=", "<"], ["-10", "0", "1", "30", "29.5"]),
    *fill("arr_delay {} {}", [">", "<="], ["-11", "-1", "0", "29", "+29.5"]),
    *fill("{} {} ARR_DELAY", ["-10", "0", "30.0"], [">", "<="]),
    *fill("{} {} arr_delay", ["-11", "-1", "(29)"], ["<", ">="]),
    *fill("arr_delay {} 0", [*SAME, "IS DISTINCT FROM"]),
    *fill("arr_delay {}IN (0, 0.0, 7.5{})", NOT, ["", ", NULL"]),
    *fill("arr_delay {}BETWEEN {} AND {}", NOT, ["-10", "0", "30"], ["-11", "-1", "0", "29"]),
    *fill("distance {} {}", [">=", "<"], ["100.5", "2000", "2e3"]),
    *fill("{} {} {}", ["cancelled", "late"], SAME, ["TRUE", "false", "1", "0"]),
    *fill("cancelled {}IN (TRUE{})", NOT, ["", ", NULL"]),
    *["cancelled", "NOT late", "NOT cancelled", "(cancelled)", "TRUE", "FALSE"],
    *fill(
        "1 {} {}", [*SAME, "<", ">=", "IS NOT DISTINCT FROM"], ["1", "-1.5", "(0)", "NULL", "TRUE"]
    ),
    *fill("'b' {} {}", [*SAME, ">", "<="], ["'a'", "'b'", "NULL", "'a' || 'b'"]),
    *fill("1 {}{}", NOT, ["IN (1, 2)", "IN (2, NULL)", "BETWEEN 0 AND 1", "BETWEEN 2 AND NULL"]),
    *fill("{} {}IN ()", ["carrier", "arr_delay", "cancelled", "1"], NOT),
    *[
        "carrier IN (NULL) AND (1 != 1)",
        "(carrier NOT IN (NULL) OR (1 = 1))",
        "carrier = 'A' || 'A'",
    ],
]
STATES = ["IS TRUE", "IS FALSE", "IS NOT TRUE", "IS NOT FALSE", "IS NULL", "IS NOT NULL"]
CONDITIONS = st.recursive(
    st.sampled_from(COMPARISONS),
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({}) {}".format, inner, st.sampled_from(STATES)),
    ),
    max_leaves=8,
)


@settings(max_examples=400)
@given(condition=CONDITIONS)
def test_the_rows_selected_are_those_that_sqlite_selects(
    sqlite: sqlite3.Connection, condition: str
) -> None:
    where = parse(condition, FLIGHTS)["where"]
    assert selected(where) == selected_by_sqlite(sqlite, condition)
    assert json.loads(json.dumps(where)) == where


@pytest.mark.parametrize(
    "condition",
    [
        "carrier <> 'AA'", "NOT carrier = 'AA'", "carrier NOT IN ('AA', NULL)",
        "NOT (carrier IN ('AA', NULL)) OR cancelled", "cancelled IS NOT TRUE",
        "(arr_delay > 29 OR carrier = 'AA') IS NULL",
    ],
)  # fmt: skip
def test_unknown_is_neither_true_nor_false(sqlite: sqlite3.Connection, condition: str) -> None:
    expected = selected_by_sqlite(sqlite, condition)
    assert selected(parse(condition, FLIGHTS)["where"]) == expected
    two_valued = selected({"not": {"attribute": "carrier", "eq": "AA"}})
    assert two_valued != selected_by_sqlite(sqlite, "carrier <> 'AA'"), "or nulls show nothing"


def test_a_short_condition_makes_a_short_tree() -> None:
    where = parse("carrier IN ('AA', 'UA') AND (30 <= arr_delay AND NOT cancelled)", FLIGHTS)[
        "where"
    ]
    assert where == {
        "all": [
            {"attribute": "carrier", "in": ["AA", "UA"]},
            {"attribute": "arr_delay", "ge": 30},
            {"not": {"attribute": "cancelled", "eq": True}},
            {"attribute": "cancelled", "is_missing": False},
        ]
    }


LATE = {"attribute": "late", "eq": True}


@pytest.mark.parametrize(
    ("sql", "query"),
    [
        ("late", {"kind": "predicate", "where": LATE}),
        ("late; ", {"kind": "predicate", "where": LATE}),
        ("WHERE late", {"kind": "predicate", "where": LATE}),
        ("late -- the worst", {"kind": "predicate", "where": LATE}),
        ("select count(*) where late", {"kind": "predicate", "where": LATE}),
        ("SELECT COUNT(1) AS n FROM flights AS f WHERE late", {"kind": "predicate", "where": LATE}),
        ("SELECT COUNT(*) FROM FLIGHTS", {"kind": "predicate", "where": None}),
        ("TRUE", {"kind": "predicate", "where": None}),
        ("carrier = 7", {"kind": "predicate", "where": {"attribute": "carrier", "eq": "7"}}),
        ("late = 1", {"kind": "predicate", "where": LATE}),
        ("late GROUP BY carrier", {"kind": "table", "group_by": ["carrier"], "where": LATE}),
        ("GROUP BY late, carrier", {"kind": "table", "group_by": ["late", "carrier"], "where": None}),
        ('SELECT Carrier, COUNT(*) FROM "flights" GROUP BY carrier, "first seen"',
         {"kind": "table", "group_by": ["carrier", "first seen"], "where": None}),
    ],
)  # fmt: skip
def test_a_condition_or_a_select_that_counts_is_a_query(sql: str, query: dict[str, Any]) -> None:
    assert parse(sql, FLIGHTS, dataset="flights") == query


PLACES = ["Bonn", "Berlin", "Bad Bonn", "100%", "a_b", "b", ""]


@pytest.mark.parametrize(
    "pattern",
    [
        *("'B%'", "'%n'", "'B%n'", "'%B%n%n%'", "'_'", "'%'", "''", "'%a%b%'"),
        *("'B.%'", "'B.nn'", "'[ab]'", "'B+onn'"),
        *("'10!%' ESCAPE '!'", "'_!_%' ESCAPE '!'", "'100!%' ESCAPE '!'"),
        *("'B' || '%'", "'%' || 'nn' || '%'", "'a/_' || '%' ESCAPE '/'", "LOWER('B') || '%'"),
    ],
)
@pytest.mark.parametrize("subject", ["{}", "LOWER({})", "(UPPER({}))"])
def test_a_pattern_stands_for_the_listed_values_that_match_it(subject: str, pattern: str) -> None:
    """SQLite's own LIKE ignores case unless told not to."""
    place = {"name": "place", "type": "category", "values": [v or "none" for v in PLACES]}
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = TRUE")
    for negated in ("", "NOT "):
        where = parse(f"{subject.format('place')} {negated}LIKE {pattern}", [place])["where"]
        expected = [
            value
            for value in place["values"]
            if connection.execute(
                f"SELECT {subject.format('?')} {negated}LIKE {pattern}", (value,)
            ).fetchone()[0]
        ]
        found = [where["eq"]] if "eq" in where else where.get("in", [])
        assert found == expected
    connection.close()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("'100\\%'", {"attribute": "place", "eq": "100%"}),
        ("'a\\_%'", {"attribute": "place", "eq": "a_b"}),
        ("'100\\%' ESCAPE '!'", {"any": []}),
        ("'100\\%' ESCAPE ''", {"any": []}),
    ],
)
def test_a_backslash_is_the_escape_as_in_postgresql_and_mysql_unless_another_one_is_named(
    pattern: str, found: dict[str, Any]
) -> None:
    place = {"name": "place", "type": "category", "values": ["100%", "1000", "a_b", "acb"]}
    assert parse(f"place LIKE {pattern}", [place])["where"] == found


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("LOWER(place) = 'bonn'", ["Bonn", "BONN"]),
        ("LOWER(place) = LOWER('BONN')", ["Bonn", "BONN"]),
        ("'GRAZ' = (UPPER(place))", ["Graz"]),
        ("UPPER(place) = 'Graz'", []),
        ("LOWER(place) <> 'bonn'", ["Graz"]),
        ("NOT LOWER(place) <> 'bonn'", ["Bonn", "BONN"]),
        ("UPPER(place) IN ('GRAZ', 'LYON', NULL)", ["Graz"]),
        ("UPPER(place) NOT IN ('GRAZ', 'LYON')", ["Bonn", "BONN"]),
        ("UPPER(place) NOT IN ('GRAZ', NULL)", []),
        ("LOWER(place) IS NOT DISTINCT FROM 'bonn'", ["Bonn", "BONN"]),
        ("LOWER(place) IS DISTINCT FROM 'bonn'", ["Graz", None]),
        ("NOT LOWER(place) IS NOT DISTINCT FROM 'bonn'", ["Graz", None]),
    ],
)
def test_an_equality_that_ignores_case_stands_for_the_listed_values_that_satisfy_it(
    condition: str, found: list[Any]
) -> None:
    """What is not listed may satisfy it or not."""
    values = ["Bonn", "BONN", "Graz"]
    place = {"name": "place", "type": "category", "values": values, "missing": True}
    cells = cells_where(parse(condition, [place])["where"], place)
    named = [*values, "an unlisted one", None]
    assert [name for cell, name in enumerate(named) if cells >> cell & 1] == found


def test_a_pattern_leaves_unlisted_and_missing_values_out() -> None:
    for sql in ("carrier LIKE 'A%'", "carrier NOT LIKE 'A%'", "carrier ILIKE 'a%'"):
        chosen = selected(parse(sql, FLIGHTS)["where"])
        found = {row["carrier"] for row, is_in in zip(ROWS, chosen, strict=True) if is_in}
        assert found == ({"UA", "7"} if "NOT" in sql else {"AA"})


def test_no_pattern_takes_long() -> None:
    place = {"name": "place", "type": "category", "values": ["a" * 250, "b"]}
    assert parse(f"place LIKE '{'%a' * 200}%b'", [place])["where"] == {"any": []}


def test_other_asks_for_all_unlisted_values_unless_it_is_listed() -> None:
    other = {"attribute": "carrier", "is_other": True}
    assert parse("carrier = 'other'", FLIGHTS)["where"] == other
    assert parse("carrier IN ('other', 'AA')", FLIGHTS)["where"] == {
        "any": [{"attribute": "carrier", "eq": "AA"}, other]
    }
    unlisted = [row["carrier"] == "ZZ" for row in ROWS]
    assert selected(parse("carrier = 'other'", FLIGHTS)["where"]) == unlisted
    listed = parse("\"first seen\" = 'other'", FLIGHTS)["where"]
    assert listed == {"attribute": "first seen", "eq": "other"}


@pytest.mark.parametrize(
    ("sql", "place", "words"),
    [
        # names and constants
        ('carrier = "AA"', (1, 11), "no attribute AA; write a string in single quotes: 'AA'"),
        ("carrier = AA", (1, 11), "write a string in single quotes: 'AA'"),
        ("late AND\n  carier = 'AA'", (2, 3), "no attribute carier; did you mean carrier?"),
        ("x = 1", (1, 1), "use one of carrier, arr_delay"),
        ("flights.carrier = 'AA'", (1, 1), "write carrier alone"),
        ("carrier = 'aa'", (1, 11), "'aa' is not a listed value of carrier (AA, UA, 7); did you mean 'AA'?"),
        ("carrier IN ('AA',\n'ZZ')", (2, 1), "carrier = 'other' asks for all unlisted values together"),
        ("\"first seen\" = 'JFK'", (1, 16), 'by "is_other" in JSON'),
        ("arr_delay >= '30'", (1, 14), "write it without quotes"),
        ("arr_delay >= TRUE", (1, 1), "TRUE is not a number"),
        ("arr_delay = 1e999", (1, 13), "not a finite number"),
        ("late = 'yes'", (1, 8), "late is true or false, not 'yes'; write TRUE or FALSE"),
        ("arr_delay < distance", (1, 13), "distance is an attribute too"),
        ("'a' = 1", (1, 1), "this compares a text with a number; compare constants of one type"),
        ("DATE '2026-01-01' = DATE '2026-01-01'", (1, 26), "casts are not answered"),
        ("arr_delay = NULL", (1, 1), "use IS NULL"),
        ("late IS NULL", (1, 1), "late has no cell for missing values; omit this condition"),
        ("carrier = ?", (1, 1), "parameters are not filled in"),
        # what is no condition
        ("carrier", (1, 1), "carrier is not a condition"),
        ("carrier < 'AA'", (1, 1), "carrier is a category and has no order"),
        ("carrier IS 'AA'", (1, 1), "IS 'AA' is not SQL"),
        ("arr_delay < 30 < 60", (1, 1), "compare one at a time"),
        # what is not answered
        ("late OR carrier GLOB 'A*'", (1, 9), "patterns are not answered: carrier GLOB 'A*'; use LIKE"),
        ("late OR arr_delay LIKE '3%'", (1, 9), "arr_delay is a number, and has no text; use = or IN"),
        ("carrier LIKE 'A%' ESCAPE 'ab'", (1, 26), "ESCAPE takes one character; write ESCAPE '!'"),
        ("UPPER(carrier) < 'AA'", (1, 1), "functions are not answered: UPPER(carrier)"),
        ("UPPER(LOWER(carrier)) = 'AA'", (1, 1), "functions are not answered: UPPER(LOWER(carrier))"),
        ("UPPER(carrier) = 7", (1, 18), "7 is not a text; write it in single quotes"),
        ("arr_delay + 1 > 3", (1, 1), "arithmetic is not answered: arr_delay + 1"),
        ("CASE WHEN late THEN 1 END = 1", (1, 11), "CASE is not answered"),
        ("CAST(carrier AS INT) = 3", (1, 6), "casts are not answered"),
        ("carrier IN (SELECT 1)", (1, 1), "IN takes a list of constants"),
        ("arr_delay BETWEEN SYMMETRIC 3 AND 1", (1, 1), "SYMMETRIC"),
        ("late ORDER BY carrier", (1, 15), "carrier is not grouped by; add GROUP BY carrier"),
        ("late GROUP BY carrier ORDER BY COUNT(*)", (1, 32), "ORDER BY is worked out from answers"),
        ("late LIMIT 3", (1, 12), "LIMIT is worked out from answers, so this is not one query"),
        ("late GROUP BY carrier HAVING COUNT(*) > 3", (1, 30), "HAVING is worked out from answers"),
        ("late GROUP BY 1", (1, 1), "COUNT(*) is not a group"),
        ("late GROUP BY ROLLUP(carrier)", (1, 22), "ROLLUP (carrier) is not answered"),
        ("late UNION SELECT 1", (1, 1), "not one SELECT"),
        ("SELECT COUNT(*) FROM flights JOIN b", (1, 35), "b is not a public table"),
        ("SELECT COUNT(*) FROM adult", (1, 22), "adult is not the data set that you ask; write flights"),
        ("SELECT COUNT(*) FROM (SELECT 1)", (1, 30), "a subquery here only filters rows"),
        ("SELECT COUNT(carrier + 1)", (1, 8), "COUNT counts rows; use COUNT(*), COUNT(x)"),
        ("SELECT COUNT(*), COUNT(carrier)", (1, 1), "this table is worked out from answers"),
        ("SELECT COUNT(carier)", (1, 14), "there is no attribute carier; did you mean carrier?"),
        ("SELECT COUNT(*) OVER ()", (1, 8), "only SUM, AVG, LAG and LEAD have OVER"),
        ("SELECT *", (1, 8), "rows are never shown"),
        ("SELECT QUANTILE(arr_delay, 90)", (1, 28), "90 is not a share; write 0.9"),
        ("SELECT\n  MEDIAN(carrier)", (2, 10), "carrier is a category; ask for MEDIAN of a number"),
        ("SELECT MEDIAN(distance + 1)", (1, 8), "is not answered"),
        ("SELECT MODE() WITHIN GROUP (ORDER BY carrier DESC)", (1, 8), "is not answered"),
        ("MEDIAN(distance) > 3", (1, 1), "not a condition: MEDIAN(distance); write SELECT before it"),
        ("SELECT carrier, COUNT(*)", (1, 8), "carrier is not grouped by; add GROUP BY carrier"),
        ("WITH x AS (SELECT 1) SELECT 1", (1, 29), "nothing is counted; add COUNT(*)"),
        ("DROP TABLE flights", (1, 1), "DROP is not answered; ask in a SELECT"),
        ("SELECT COUNT(*) FORM flights", (1, 22), "did you mean FROM in place of FORM?"),
        ("late WITHN 5%", (1, 6), "did you mean WITHIN in place of WITHN?"),
        ("SELECT EXTRACT(MONTH FROM day), COUNT(*) GROUP BY 1", (1, 27), "day is the time of the query"),
        ("SELECT AVG(distance) WITHIN 5%", (1, 22), "write WITHIN and a number in units of distance"),
        # what is not SQL
        ("", (1, 1), "there is no condition"),
        (" \n -- nothing", (1, 1), "there is no condition"),
        ("late; late", (1, 5), "a semicolon is not allowed here"),
        ("late AND\n\n  carrier = 'AA", (3, 13), "this ' is not closed"),
        ('\n"late', (2, 1), 'this " is not closed'),
        ("late /* why", (1, 12), "the text ends too early"),
        ("late AND\n\n (late", (3, 3), ") is expected after late"),
        ("carrier =", (1, 9), "something is missing around ="),
        ("late && late", (1, 6), "&& is not understood here; write AND"),
        ("late\nlate", (2, 1), "write a condition such as carrier = 'AA' AND arr_delay >= -10"),
        # names that need their quotes
        ("first seen = 'EWR'", (1, 1), 'write this name in double quotes: "first seen"'),
        ("late AND first seen > 3", (1, 10), 'write this name in double quotes: "first seen"'),
        ("first_seen = 'EWR'", (1, 1), 'did you mean "first seen"?'),
        ("SELECT AVG(CASE WHEN late THEN 1 ELSE 2 END)", (1, 22), "must count 0; write ELSE 0 END"),
        ("SELECT 100 * COUNT(*) FILTER (WHERE late) / COUNT(*)", (1, 1), "this table is worked out"),
        ("SELECT COUNT(*) FILTER (WHERE lat) / COUNT(*)", (1, 31), "did you mean late?"),
        ("late " * 2001, (1, 1), "longer than 10000 characters"),
        ("(" * 100 + "late" + ")" * 100, (1, 33), "parentheses nest deeper than 32"),
        ("NOT " * 2000 + "late", (1, 1), "nested too deeply"),
        (f"late{'::int' * 1900}", (1, 1), "nested too deeply"),
    ],
)  # fmt: skip
def test_a_fault_points_at_its_piece_and_says_how_to_mend_it(
    sql: str, place: tuple[int, int], words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(sql, FLIGHTS, dataset="flights")
    line, column = place
    assert caught.value.field == f"line {line}, column {column}"
    assert words in str(caught.value)
    if "no attribute" in words:
        assert caught.value.reason == "unknown_attribute"


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("QUANTILE(distance, 0.9) FROM flights",
         {"kind": "quantile", "attribute": "distance", "rank": 0.9, "where": None}),
        ("percentile_cont(0) WITHIN GROUP (ORDER BY Distance)",
         {"kind": "quantile", "attribute": "distance", "rank": 0, "where": None}),
        ("MEDIAN(arr_delay)", {"kind": "quantile", "attribute": "arr_delay", "rank": 0.5, "where": None}),
        ("MIN(distance)", {"kind": "quantile", "attribute": "distance", "rank": 0.0, "where": None}),
        ("carrier, MAX(distance) WHERE late GROUP BY carrier WITHIN 1% OF ROWS",
         {"kind": "quantile", "attribute": "distance", "rank": 1.0, "group_by": ["carrier"],
          "where": {"attribute": "late", "eq": True}, "error": 0.01}),
        ('MODE("first seen") AS often', {"kind": "mode", "attribute": "first seen"}),
        ("AVG(arr_delay), COUNT(*)",
         {"kind": "sum", "attribute": "arr_delay", "count_rows": True, "mean": True, "where": None}),
        ("COUNT(arr_delay), AVG(arr_delay)",
         {"kind": "sum", "attribute": "arr_delay", "mean": True, "where": None}),
        ("SUM(distance)", {"kind": "sum", "attribute": "distance", "where": None}),
        ("late, COUNT(*), AVG(distance), SUM(distance) WHERE late GROUP BY late",
         {"kind": "sum", "attribute": "distance", "group_by": ["late"], "count_rows": True,
          "where": {"attribute": "late", "eq": True}}),
    ],
)  # fmt: skip
def test_aggregates_of_values_ask_other_kinds(sql: str, asked: dict[str, Any]) -> None:
    assert parse(f"SELECT {sql}", FLIGHTS, dataset="flights") == asked


SHARE_WHERE = {"attribute": "distance", "lt": 2000}


@pytest.mark.parametrize(
    "share",
    [
        "COUNT(*) FILTER (WHERE late) / COUNT(*)", "1.0 * COUNT(*) FILTER (WHERE late) / COUNT(1) AS part",
        "(COUNT(*) FILTER (WHERE late)) / COUNT(*)", "AVG(CASE WHEN late THEN 1 ELSE 0 END)",
        "avg(case when late then 1.0 else 0.0 end)",
    ],
)  # fmt: skip
def test_shares_are_asked_by_a_filtered_count_or_a_mean_of_ones_and_zeros(share: str) -> None:
    asked = {"kind": "share", "share_of": {"attribute": "late", "eq": True}}
    assert parse(f"SELECT {share}", FLIGHTS) == {**asked, "where": None}
    grouped = f"SELECT late, {share} FROM flights WHERE distance < 2000 GROUP BY late"
    assert parse(grouped, FLIGHTS) == {**asked, "group_by": ["late"], "where": SHARE_WHERE}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("where", [None, "late", "arr_delay >= 0 OR carrier IS NULL"])
def test_a_count_of_an_attribute_leaves_rows_without_it_out_as_sqlite_does(
    sqlite: sqlite3.Connection, name: str, where: str | None
) -> None:
    sql = f'SELECT COUNT("{name}") FROM flights' + (f" WHERE {where}" if where else "")
    asked = parse(sql, FLIGHTS, dataset="flights")
    assert asked["kind"] == "predicate"
    counted = sum(selected(asked["where"]))
    ((true,),) = sqlite.execute(sql).fetchall()
    assert counted == true


@pytest.mark.parametrize("name", ["age-group", "from", "age (years)", 'what\'s "this"'])
def test_a_name_that_sql_reads_otherwise_is_asked_for_in_double_quotes(name: str) -> None:
    schema = [{"name": name, "type": "number", "edges": [18.0]}]
    assert parse(example(schema), schema)["where"] == {"attribute": name, "ge": 18}
    if '"' not in name:
        with pytest.raises(InvalidQuery) as caught:
            parse(f"{name} >= 18", schema)
        assert f'write this name in double quotes: "{name}"' in str(caught.value)


def test_a_long_list_of_values_is_cut_in_the_error() -> None:
    codes = [f"A{i:02}" for i in range(99)]
    airports = {"name": "dest", "type": "category", "values": codes, "other": False}
    with pytest.raises(InvalidQuery, match=r"\(A00, .*, A09, \.\.\.\); use a listed value"):
        parse("dest = 'Boston'", [airports])
    with pytest.raises(InvalidQuery, match="use a listed value"):
        parse("dest = 'other'", [airports])


def test_hundreds_of_alternatives_are_no_nesting() -> None:
    where = parse(" OR ".join(["late"] * 500), FLIGHTS)["where"]
    assert where == {"any": [LATE] * 500}


WORDS = [
    "late", "carrier", "arr_delay", "x", "'AA'", "30", "-1", "NULL", "TRUE", "AND", "OR", "NOT", "IN", "IS",
    "BETWEEN", "LIKE", "CASE", "SELECT", "COUNT(*)", "WHERE", "GROUP", "BY", "FROM", "ORDER", "UNION", "=",
    "<>", "<", ">=", "(", ")", ",", "*", "+", '"', "'", "/*", "--", "::", "{", "[", "?", ":x", "@x", "\n",
]  # fmt: skip


@settings(max_examples=500)
@given(sql=st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_whatever_is_typed_is_a_query_or_a_refusal_in_words(sql: str) -> None:
    try:
        query = parse(sql, FLIGHTS)
    except InvalidQuery:
        return
    json.dumps(query)


FRESH_SCHEMA: list[dict[str, Any]] = [
    {"name": "fresh", "type": "boolean", "missing": True},
    {"name": "age", "type": "number", "edges": [18, 30]},
    {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
]


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("FRESH age >= 30", "age >= 30"),
        (" fresh\nSELECT city, COUNT(*) GROUP BY city", "SELECT city, COUNT(*) GROUP BY city"),
        ("FRESH WHERE age < 18", "WHERE age < 18"),
        ("FRESH NOT fresh", "NOT fresh"),
        ("FRESH fresh", "fresh"),
        ('FRESH "fresh" AND age < 18', '"fresh" AND age < 18'),
        ("Fresh (age < 18 OR age >= 30)", "(age < 18 OR age >= 30)"),
    ],
)
def test_fresh_in_front_asks_for_a_fresh_answer(sql: str, plain: str) -> None:
    assert parse(sql, FRESH_SCHEMA) == {**parse(plain, FRESH_SCHEMA), "fresh": True}


@pytest.mark.parametrize(
    "sql",
    [
        "fresh", "fresh AND age < 18", "fresh GROUP BY city", "fresh <> TRUE", "fresh NOT IN (TRUE)",
        "fresh IS NOT NULL", '"fresh" OR age < 18', "SELECT COUNT(*) WHERE fresh",
    ],
)  # fmt: skip
def test_an_attribute_may_be_named_fresh(sql: str) -> None:
    asked = parse(sql, FRESH_SCHEMA)
    assert "fresh" not in asked
    assert '"attribute": "fresh"' in json.dumps(asked)


def test_only_counts_are_fresh_and_errors_point_into_the_text_as_written() -> None:
    with pytest.raises(InvalidQuery, match="line 1, column 2: only counts can be FRESH"):
        parse(" FRESH SELECT AVG(age)", FRESH_SCHEMA)
    with pytest.raises(InvalidQuery, match="line 2, column 7: there is no attribute agx"):
        parse("\nFRESH agx > 3", FRESH_SCHEMA)


# ---------------------------------------------------------------- persons

PERSON = {"key": "user_id", "rows_per_phase": 1, "phases": 12, "lifetime": False}


@pytest.mark.parametrize(
    ("sql", "unit", "problem"),
    [
        ("COUNT(DISTINCT user_id)", {"rows_per_phase": 4}, "4, so a count is not one of persons"),
        ("COUNT(DISTINCT user_id)", {"lifetime": True}, "a person counts in at most 12 phases here"),
        ("COUNT(DISTINCT carrier)", {}, "only user_id can be counted once each"),
        ("COUNT(DISTINCT user_id, carrier)", {}, "only user_id can be counted once each"),
        ("COUNT(user_id)", {}, "user_id says whose row it is"),
        ("user_id, COUNT(*) GROUP BY 1", {}, "no person can be named or grouped by"),
        ("COUNT(DISTINCT user_id)", None, "distinct values are not counted"),
    ],
)  # fmt: skip
def test_what_is_not_a_number_of_persons_is_refused(
    sql: str, unit: dict[str, Any] | None, problem: str
) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(problem)):
        parse(f"SELECT {sql}", FLIGHTS, unit=None if unit is None else {**PERSON, **unit})
