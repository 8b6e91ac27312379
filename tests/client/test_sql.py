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
from stream_dp.errors import InvalidQuery
from stream_dp.sql import example, parse, plan
from stream_dp.sql.terms.attribute_cells import cells_where
from tests.sql.schemas import counted, of, universe_of

FLIGHTS: list[dict[str, Any]] = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA", "7"], "other": True, "missing": True},
    {"name": "arr_delay", "type": "number", "edges": [-10, 0, 1, 30], "integer": True, "missing": True},
    {"name": "distance", "type": "number", "edges": [100.5, 2000], "integer": False, "missing": False},
    {"name": "cancelled", "type": "boolean", "missing": True},
    {"name": "late", "type": "boolean", "missing": False},
    {"name": "first seen", "type": "category", "values": ["EWR", "other"], "other": True},
]  # fmt: skip
UNIVERSE = universe_of(FLIGHTS)

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
        "carrier <> 'AA'",
        "NOT carrier = 'AA'",
        "carrier NOT IN ('AA', NULL)",
        "NOT (carrier IN ('AA', NULL)) OR cancelled",
        "cancelled IS NOT TRUE",
        "(arr_delay > 29 OR carrier = 'AA') IS NULL",
    ],
)
def test_unknown_is_neither_true_nor_false(sqlite: sqlite3.Connection, condition: str) -> None:
    expected = selected_by_sqlite(sqlite, condition)
    assert selected(parse(condition, FLIGHTS)["where"]) == expected
    two_valued = selected({"not": {"attribute": "carrier", "eq": "AA"}})
    assert two_valued != selected_by_sqlite(sqlite, "carrier <> 'AA'"), "or nulls show nothing"


LATE = of("late", eq=True)


@pytest.mark.parametrize(
    ("sql", "query"),
    [
        ("late", counted(LATE)),
        ("late; ", counted(LATE)),
        ("WHERE late", counted(LATE)),
        ("late -- the worst", counted(LATE)),
        ("late = 1", counted(LATE)),
        ("select count(*) where late", counted(LATE)),
        ("SELECT COUNT(1) AS n FROM flights AS f WHERE late", counted(LATE)),
        ("SELECT COUNT(*) FROM FLIGHTS", counted(None)),
        ("TRUE", counted(None)),
        ("carrier = 7", counted(of("carrier", eq="7"))),
        ("carrier = 7.0", counted(of("carrier", eq="7"))),
        ("carrier = 'other'", counted(of("carrier", is_other=True))),
        ("\"first seen\" = 'other'", counted(of("first seen", eq="other"))),
        ("carrier IN ('other', 'AA')",
         counted({"any": [of("carrier", eq="AA"), of("carrier", is_other=True)]})),
        ("carrier IN ('AA', 'UA') AND (30 <= arr_delay AND NOT cancelled)",
         counted({"all": [of("carrier", in_=["AA", "UA"]), of("arr_delay", ge=30),
                          {"not": of("cancelled", eq=True)}, of("cancelled", is_missing=False)]})),
        (" OR ".join(["late"] * 500), counted({"any": [LATE] * 500})),
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
def test_a_pattern_stands_for_the_listed_values_that_match_it(
    sqlite: sqlite3.Connection, subject: str, pattern: str
) -> None:
    """SQLite's own LIKE ignores case unless told not to."""
    place = {"name": "place", "type": "category", "values": [v or "none" for v in PLACES]}
    sqlite.execute("PRAGMA case_sensitive_like = TRUE")
    for form in (f"{subject} LIKE {pattern}", f"{subject} NOT LIKE {pattern}"):
        where = parse(form.format("place"), [place])["where"]
        matches = [
            value
            for value in place["values"]
            if sqlite.execute(f"SELECT {form.format('?')}", (value,)).fetchone()[0]
        ]
        assert ([where["eq"]] if "eq" in where else where.get("in", [])) == matches


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("LOWER(place) = 'bonn'", ["Bonn", "BONN"]),
        ("LOWER(place) = LOWER('BONN')", ["Bonn", "BONN"]),
        ("'GRAZ' = (UPPER(place))", ["Graz"]),
        ("UPPER(place) = 'Graz'", []),
        ("LOWER(place) <> 'bonn'", ["Graz", "g_%"]),
        ("NOT LOWER(place) <> 'bonn'", ["Bonn", "BONN"]),
        ("UPPER(place) IN ('GRAZ', 'LYON', NULL)", ["Graz"]),
        ("UPPER(place) NOT IN ('GRAZ', 'LYON')", ["Bonn", "BONN", "g_%"]),
        ("UPPER(place) NOT IN ('GRAZ', NULL)", []),
        ("LOWER(place) IS NOT DISTINCT FROM 'bonn'", ["Bonn", "BONN"]),
        ("LOWER(place) IS DISTINCT FROM 'bonn'", ["Graz", "g_%", None]),
        ("NOT LOWER(place) IS NOT DISTINCT FROM 'bonn'", ["Graz", "g_%", None]),
        # An escape is a backslash, as in PostgreSQL and MySQL, unless another one is named.
        ("place LIKE '%\\%'", ["g_%"]),
        ("place LIKE 'g\\_%'", ["g_%"]),
        ("place LIKE 'g\\_%' ESCAPE '!'", []),
        ("place LIKE 'g\\_%' ESCAPE ''", []),
        ("place ILIKE 'bo%'", ["Bonn", "BONN"]),
        ("place NOT LIKE 'B%'", ["Graz", "g_%"]),
    ],
)  # fmt: skip
def test_a_comparison_of_texts_stands_for_the_listed_values_that_satisfy_it(
    condition: str, found: list[Any]
) -> None:
    """What is not listed may satisfy it or not."""
    values = ["Bonn", "BONN", "Graz", "g_%"]
    place = {"name": "place", "type": "category", "values": values, "missing": True}
    cells = cells_where(parse(condition, [place])["where"], place)
    named = [*values, "an unlisted one", None]
    assert [name for cell, name in enumerate(named) if cells >> cell & 1] == found


def test_no_pattern_takes_long() -> None:
    place = {"name": "place", "type": "category", "values": ["a" * 250, "b"]}
    assert parse(f"place LIKE '{'%a' * 200}%b'", [place])["where"] == {"any": []}


@pytest.mark.parametrize(
    ("sql", "place", "words"),
    [
        # names and constants
        ('carrier = "AA"', (1, 11), "no attribute AA; write a string in single quotes: 'AA'"),
        ('"AA" = carrier', (1, 1), "write a string in single quotes: 'AA'"),
        ("late AND\n  carier = 'AA'", (2, 3), "no attribute carier; did you mean carrier?"),
        ("flights.carrier = 'AA'", (1, 1), "write carrier alone"),
        ("carrier = 'aa'", (1, 11), "'aa' is not a listed value of carrier (AA, UA, 7); did you mean 'AA'?"),
        ("carrier IN ('AA',\n'ZZ')", (2, 1), "carrier = 'other' asks for all unlisted values together"),
        ("\"first seen\" = 'JFK'", (1, 16), 'by "is_other" in JSON'),
        ("arr_delay >= 'x'", (1, 14), "write it without quotes"),
        ("arr_delay >= TRUE", (1, 1), "TRUE is not a number"),
        ("arr_delay = 1e999", (1, 13), "not a finite number"),
        ("late = 'yes'", (1, 8), "late is true or false, not 'yes'; write TRUE or FALSE"),
        ("arr_delay < distance", (1, 13), "distance is an attribute too"),
        ("'a' = 1", (1, 1), "this compares a text with a number; compare constants of one type"),
        ("carier IN ()", (1, 1), "did you mean carrier?"),
        ("DATE '2026-01-01' = DATE '2026-01-01'", (1, 26), "casts are not answered"),
        ("arr_delay = NULL", (1, 1), "use IS NULL"),
        ("late IS NULL", (1, 1), "late has no cell for missing values; omit this condition"),
        ("carrier = ?", (1, 1), "parameters are not filled in"),
        # what is no condition
        ("carrier", (1, 1), "carrier is not a condition"),
        ("carrier < 'AA'", (1, 1), "carrier is a category and has no order"),
        ("carrier IS 'AA'", (1, 1), "IS 'AA' is not SQL"),
        ("1", (1, 1), "a constant is not a condition"),
        ("late = (arr_delay > 0)", (1, 9), "compare one at a time"),
        # what is not answered
        ("late OR carrier GLOB 'A*'", (1, 9), "patterns are not answered: carrier GLOB 'A*'; use LIKE"),
        ("late OR arr_delay LIKE '3%'", (1, 9), "arr_delay is a number, and has no text; use = or IN"),
        ("carrier LIKE 'A%' ESCAPE 'ab'", (1, 26), "ESCAPE takes one character; write ESCAPE '!'"),
        ("UPPER(carrier) = LOWER(carrier)", (1, 18), "functions are not answered: LOWER(carrier)"),
        ("UPPER(carrier) = 7", (1, 18), "7 is not a text; write it in single quotes"),
        ("arr_delay + 1 > 3", (1, 1), "arithmetic is not answered: arr_delay + 1"),
        ("CASE WHEN late THEN 1 END = 1", (1, 11), "CASE is not answered"),
        ("CAST(carrier AS INT) = 3", (1, 6), "casts are not answered"),
        ("carrier = (SELECT 1)", (1, 19), "subqueries are not answered"),
        ("arr_delay BETWEEN SYMMETRIC 3 AND 1", (1, 1), "SYMMETRIC"),
        ("late GROUP BY carrier ORDER BY COUNT(*)", (1, 32), "ORDER BY is worked out from answers"),
        ("late GROUP BY 1", (1, 1), "COUNT(*) is not a group"),
        ("late GROUP BY ROLLUP(carrier)", (1, 22), "ROLLUP (carrier) is not answered"),
        ("late UNION SELECT 1", (1, 1), "not one SELECT"),
        ("SELECT COUNT(*) FROM adult", (1, 22), "adult is not the data set that you ask; write flights"),
        ("SELECT COUNT(carrier + 1)", (1, 8), "COUNT counts rows; use COUNT(*), COUNT(x)"),
        ("SELECT COUNT(carier)", (1, 14), "there is no attribute carier; did you mean carrier?"),
        ("SELECT QUANTILE(arr_delay, 90)", (1, 28), "90 is not a share; write 0.9"),
        ("SELECT\n  MEDIAN(carrier)", (2, 10), "carrier is a category; ask for MEDIAN of a number"),
        ("SELECT MODE(distance) WHERE late", (1, 8), "MODE(distance) is about all rows"),
        ("SELECT MEDIAN(distance) GROUP BY distance", (1, 8), "all of its values lie in one bin"),
        ("SELECT MODE() WITHIN GROUP (ORDER BY carrier DESC)", (1, 8), "is not answered"),
        ("MEDIAN(distance) > 3", (1, 1), "not a condition: MEDIAN(distance); write SELECT before it"),
        ("SELECT carrier, COUNT(*)", (1, 8), "carrier is not grouped by; add GROUP BY carrier"),
        ("DROP TABLE flights", (1, 1), "DROP is not answered; ask in a SELECT"),
        ("SELCT COUNT(*) FROM flights", (1, 7), "did you mean SELECT in place of SELCT?"),
        ("late WITHN 5%", (1, 6), "did you mean WITHIN in place of WITHN?"),
        ("SELECT AVG(distance) WITHIN 5%", (1, 22), "write WITHIN and a number in units of distance"),
        ("SELECT AVG(CASE WHEN late THEN 1 ELSE 2 END)", (1, 22), "must count 0; write ELSE 0 END"),
        ("FRESH SELECT AVG(CASE WHEN late THEN 1 ELSE 0 END)", (1, 1), "only counts can be FRESH"),
        ("\nFRESH lat", (2, 7), "there is no attribute lat"),
        ("SELECT CORR(distance, distance)", (1, 8), "name two attributes"),
        ("SELECT CORR(distance + 1, arr_delay)", (1, 8), "name two attributes"),
        ("SELECT CORR(distance, late)", (1, 23), "late is a boolean; name a number"),
        ("SELECT late, CORR(distance, arr_delay) GROUP BY late", (1, 14), "one group at a time, with WHERE"),
        ("SELECT COVAR_POP(distance, arr_delay)", (1, 8), "ask CORR, and multiply it by the STDDEV"),
        *[(f"SELECT SUM({least})", (1, 8), "write LEAST(x, 21) of a number x and a constant") for least in (
            "LEAST(distance)", "LEAST(distance, 20, 30)", "LEAST(distance, distance)", "LEAST(late, 1)"
        )],
        # what is not SQL
        ("", (1, 1), "there is no condition"),
        ("late; late", (1, 5), "a semicolon is not allowed here"),
        ("late AND\n\n  carrier = 'AA", (3, 13), "this ' is not closed"),
        ("late AND `late", (1, 10), "this ` is not closed"),
        ("late /* why", (1, 12), "the text ends too early"),
        ("late AND\n\n (late", (3, 3), ") is expected after late"),
        ("carrier =", (1, 9), "something is missing around ="),
        ("late && late", (1, 6), "&& is not understood here; write AND"),
        ("late\nlate", (2, 1), "write a condition such as carrier = 'AA' AND arr_delay >= -10"),
        # names that need their quotes
        ("first seen = 'EWR'", (1, 1), 'write this name in double quotes: "first seen"'),
        ("late AND first seen > 3", (1, 10), 'write this name in double quotes: "first seen"'),
        ("first_seen = 'EWR'", (1, 1), 'did you mean "first seen"?'),
        ("late " * 2001, (1, 1), "longer than 10000 characters"),
        ("(" * 100 + "late" + ")" * 100, (1, 33), "parentheses nest deeper than 32"),
        ("NOT " * 2000 + "late", (1, 1), "nested too deeply"),
        (f"late{'::int' * 1900}", (1, 1), "nested too deeply"),
    ],
)  # fmt: skip
def test_a_fault_points_at_its_piece_and_says_how_to_fix_it(
    sql: str, place: tuple[int, int], words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(sql, FLIGHTS, dataset="flights")
    line, column = place
    assert caught.value.field == f"line {line}, column {column}"
    assert words in str(caught.value)


DISTANCE = {"attribute": "distance", "where": None}
CORRELATION = {"kind": "correlation", "other": "arr_delay", **DISTANCE}


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("QUANTILE(distance, 0.9) FROM flights", {"kind": "quantile", "rank": 0.9, **DISTANCE}),
        ("percentile_cont(0) WITHIN GROUP (ORDER BY Distance)", {"kind": "quantile", "rank": 0, **DISTANCE}),
        ("MEDIAN(distance)", {"kind": "quantile", "rank": 0.5, **DISTANCE}),
        ("MIN(distance)", {"kind": "quantile", "rank": 0.0, **DISTANCE}),
        ("carrier, MAX(distance) WHERE late GROUP BY carrier WITHIN 1% OF ROWS",
         {"kind": "quantile", "attribute": "distance", "rank": 1.0, "group_by": ["carrier"], "where": LATE,
          "error": 0.01}),
        ('MODE("first seen") AS often', {"kind": "mode", "attribute": "first seen"}),
        ("AVG(distance), COUNT(*)", {"kind": "sum", "count_rows": True, "mean": True, **DISTANCE}),
        ("COUNT(arr_delay), AVG(arr_delay)",
         {"kind": "sum", "attribute": "arr_delay", "mean": True, "where": None}),
        ("SUM(distance)", {"kind": "sum", **DISTANCE}),
        ("late, COUNT(*), AVG(distance), SUM(distance) WHERE late GROUP BY late",
         {"kind": "sum", "attribute": "distance", "group_by": ["late"], "count_rows": True, "where": LATE}),
        *[(f"SUM({least}), AVG({least})", {"kind": "sum", "up_to": 2000.0, **DISTANCE}) for least in (
            "LEAST(distance, 2000)", "LEAST(2000.0, distance)", "(LEAST(distance, 2000))",
        )],
        ("COUNT(*), AVG(LEAST(distance, 9))",
         {"kind": "sum", "up_to": 9.0, "count_rows": True, "mean": True, **DISTANCE}),
        ("CORR(distance, arr_delay)", CORRELATION),
        ("CORR(distance, arr_delay) WHERE late", {**CORRELATION, "where": LATE}),
        ("CORR(distance, arr_delay) FILTER (WHERE late)", {**CORRELATION, "where": LATE}),
        *[(share, {"kind": "share", "share_of": LATE, "where": None}) for share in (
            "COUNT(*) FILTER (WHERE late) / COUNT(*)",
            "1.0 * COUNT(*) FILTER (WHERE late) / COUNT(1) AS part",
            "(COUNT(*) FILTER (WHERE late)) / COUNT(*)",
            "avg(case when late then 1.0 else 0.0 end)",
        )],
        ("late, AVG(CASE WHEN late THEN 1 ELSE 0 END) WHERE distance < 2000 GROUP BY late",
         {"kind": "share", "share_of": LATE, "group_by": ["late"], "where": of("distance", lt=2000)}),
    ],
)  # fmt: skip
def test_aggregates_of_values_ask_other_kinds(sql: str, asked: dict[str, Any]) -> None:
    assert parse(f"SELECT {sql}", FLIGHTS, dataset="flights") == asked


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("AVG(LEAST(distance, 9)), AVG(distance)", ["sum", "sum"]),
        ("AVG(LEAST(distance, 9)), SUM(distance)", ["sum", "sum"]),
        ("AVG(distance), SUM(arr_delay)", ["sum", "sum"]),
        ("COUNT(*), MODE(carrier)", ["mode", "predicate"]),
        ("COUNT(*), CORR(distance, arr_delay), AVG(distance)", ["correlation", "sum"]),
        ("STDEV(distance), VAR(distance), STDEVP(distance), VARP(distance)", ["table"]),
    ],
)  # fmt: skip
def test_what_no_query_publishes_together_is_several(sql: str, kinds: list[str]) -> None:
    found = plan(f"SELECT {sql}", FLIGHTS)
    assert sorted(query["kind"] for query in found.queries) == kinds


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


@pytest.mark.parametrize("name", ["age-group", "from", 'what\'s "this"', "age (years)"])
def test_a_name_that_sql_reads_otherwise_is_asked_for_in_double_quotes(name: str) -> None:
    schema = [{"name": name, "type": "number", "edges": [18.0]}]
    assert parse(example(schema), schema)["where"] == of(name, ge=18)
    for text in (f"{name} >= 18", f"{name} >= 18 AND TRUE") if '"' not in name else ():
        with pytest.raises(InvalidQuery, match=re.escape(f'in double quotes: "{name}"')):
            parse(text, schema)


@pytest.mark.parametrize("dest", ["Boston", "other"])
def test_a_long_list_of_values_is_cut_in_the_error(dest: str) -> None:
    values = [f"A{i:02}" for i in range(99)]
    airports = {"name": "dest", "type": "category", "values": values, "other": False}
    with pytest.raises(InvalidQuery, match=r"\(A00, .*, A09, \.\.\.\); .*use a listed value"):
        parse(f"dest = '{dest}'", [airports])


@pytest.mark.parametrize("sql", ["carier = 'AA'", "carrier = AA"])
def test_an_unknown_name_has_its_own_reason(sql: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(sql, FLIGHTS)
    assert caught.value.reason == "unknown_attribute"


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
        *fill("fresh{}", ["", " AND age < 18", " GROUP BY city", " <> TRUE", " NOT IN (TRUE)"]),
        *("fresh IS NOT NULL", '"fresh" OR age < 18', "SELECT COUNT(*) WHERE fresh"),
    ],
)
def test_an_attribute_may_be_named_fresh(sql: str) -> None:
    asked = parse(sql, FRESH_SCHEMA)
    assert "fresh" not in asked
    assert '"attribute": "fresh"' in json.dumps(asked)


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
        ("month, COUNT(DISTINCT user_id) GROUP BY month", {}, "persons are counted in each phase"),
    ],
)  # fmt: skip
def test_what_is_not_a_number_of_persons_is_refused(
    sql: str, unit: dict[str, Any] | None, problem: str
) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(problem)):
        parse(f"SELECT {sql}", FLIGHTS, unit=None if unit is None else {**PERSON, **unit})
