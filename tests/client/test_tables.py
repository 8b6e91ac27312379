"""Tables of statements: values and their bars, by brute force, and the forms that a table takes."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import BAR, Column, Refusal, ResultTable, csv_text
from stream_dp.client.statements.statement import Statement
from stream_dp.errors import InvalidQuery
from stream_dp.messages import NoisyAnswer, read_answer
from stream_dp.sql.plan.statement_plan import ValueType
from tests.answers import count_answer, table_answer, table_of

PEOPLE: list[dict[str, Any]] = [
    {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"], "missing": True},
    {"name": "age", "type": "number", "edges": [18, 30, 65], "integer": True, "missing": True},
    {"name": "smoker", "type": "boolean"},
]
CITIES = {"city": ["Bonn", "Graz", "Lyon", "other", "missing"]}
BY_CITY = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"
SMOKERS = "SELECT COUNT(*) FROM people WHERE smoker"


def table(counts: list[float], bar: float, **cells: Any) -> NoisyAnswer:
    """An answer to a table by city."""
    return table_answer(CITIES, counts, bar, cells=cells)


def made(statement: str, *answers: NoisyAnswer) -> ResultTable:
    return table_of(statement, PEOPLE, *answers)


# ---------------------------------------------------------------- quantiles


def test_a_median_by_group_is_a_text_of_bins_that_sorts_by_its_place() -> None:
    places = [("30 to 64", 1), ("< 18", 0), None, (">= 65", 3), ("< 18", 0)]
    bins = [one and {"label": one[0], "place": one[1]} for one in places]
    cells = {"values": None, "found": bins, "lies_in": bins, "error_bars": [0.03] * 5}
    kind: Any = {"kind": "quantile_by_group", "attribute": "age", "rank": 0.5}
    found = made(
        "SELECT city, MEDIAN(age) AS m FROM people GROUP BY city ORDER BY m DESC, city",
        table_answer(CITIES, [9] * 5, None, cells=cells, **kind),
    )
    assert [column.type for column in found.columns] == ["text", "text", "real"]
    assert [row[1:] for row in found.rows] == [
        (">= 65", 0.03),
        ("30 to 64", 0.03),
        ("< 18", 0.03),
        ("< 18", 0.03),
        (None, None),
    ]
    assert any("lies in the bins shown, with a confidence of 99%" in note for note in found.notes)


def test_medians_of_several_conditions_are_queries_of_their_own() -> None:
    plan = sql.plan(
        "SELECT MEDIAN(age) FILTER (WHERE smoker) AS a, MAX(age) AS b, COUNT(*) FROM people "
        "WHERE age >= 18 GROUP BY smoker",
        PEOPLE,
    )
    kinds = [(query["kind"], query.get("rank")) for query in plan.queries]
    assert kinds == [("quantile", 0.5), ("quantile", 1.0), ("table", None)]
    assert all(query["group_by"] == ["smoker"] for query in plan.queries)


# ---------------------------------------------------------------- arithmetic


OPERATORS = [
    ("{a} + {b}", lambda a, b: a + b),
    ("{a} - {b}", lambda a, b: a - b),
    ("{a} * {b}", lambda a, b: a * b),
    ("{a} / {b}", lambda a, b: a / b),
    ("2 * {a} - 3 * {b}", lambda a, b: 2 * a - 3 * b),
    ("-{a} + {b} / 4", lambda a, b: -a + b / 4),
    ("100.0 * {a} / NULLIF({b}, 0)", lambda a, b: 100 * a / b),
]


@pytest.mark.parametrize(("form", "compute"), OPERATORS, ids=[form for form, _ in OPERATORS])
def test_a_bar_of_arithmetic_is_the_largest_distance_that_the_bars_allow(
    form: str, compute: Any
) -> None:
    a, b = "COUNT(*) FILTER (WHERE smoker)", "COUNT(*) FILTER (WHERE city = 'Bonn')"
    found = made(
        f"SELECT {form.format(a=a, b=b)} AS x FROM people",
        count_answer(300, 20),
        count_answer(500, 40),
    )
    ((value, bar),) = found.rows
    assert value == pytest.approx(compute(300, 500))
    steps = [i / 20 for i in range(-20, 21)]
    distances = [
        abs(compute(300 + 20 * i, 500 + 40 * j) - compute(300, 500))
        for i, j in itertools.product(steps, repeat=2)
    ]
    assert isinstance(bar, float)
    assert bar == pytest.approx(max(distances))
    assert any("confidence of at least 98%" in note for note in found.notes)


def test_a_quotient_whose_divisor_may_be_zero_has_no_bar() -> None:
    ratio = "SELECT COUNT(*) FILTER (WHERE smoker) / COUNT(*) FILTER (WHERE city = 'Bonn') AS x FROM people"
    assert made(ratio, count_answer(300, 20), count_answer(500, 499)).rows[0][1] is not None
    assert made(ratio, count_answer(300, 20), count_answer(500, 500)).rows == [(0.6, None)]
    assert made(ratio, count_answer(300, None), count_answer(500, 5)).rows == [(0.6, None)]
    assert made(ratio, count_answer(300, 20), count_answer(0, 5)).rows == [(None, None)]


def test_rounding_widens_a_bar_by_what_it_takes_off() -> None:
    count = "COUNT(*) FILTER (WHERE smoker)"
    found = made(
        f"SELECT ROUND({count} / 7, 1) AS x, ABS(-{count}) AS y FROM people", count_answer(300, 7)
    )
    ((rounded, bar, size, size_bar),) = found.rows
    assert rounded == 42.9
    assert bar == pytest.approx(1.0 + abs(42.9 - 300 / 7))
    assert (size, size_bar) == (300, pytest.approx(7.0))


def test_a_bar_of_a_count_covers_how_the_count_was_rounded() -> None:
    assert made(SMOKERS, count_answer(300.4, 2)).rows == [(300, pytest.approx(2.4))]


def test_where_a_person_is_protected_the_bar_of_a_count_is_the_one_in_rows() -> None:
    assert made(SMOKERS, count_answer(300, 2, count_bar=9.0)).rows == [(300, 9.0)]


# ---------------------------------------------------------------- spreads


AGES = {"age": ["< 18", "18 to 29", "30 to 64", ">= 65", "missing"]}


def bins(counts: list[float], bar: float | None) -> NoisyAnswer:
    at_once = {"error_bars_simultaneous": [None if bar is None else bar / 1000] * 5}
    return table_answer(AGES, [*counts, 0], bar, cells=at_once)


CENTRES = [17.0, 23.5, 47.0, 65.0]


def variance(counts: tuple[float, ...] | list[float]) -> float:
    n = sum(counts)
    mean = sum(c * r for c, r in zip(counts, CENTRES, strict=True)) / n
    return sum(c * (r - mean) ** 2 for c, r in zip(counts, CENTRES, strict=True)) / n


@pytest.mark.parametrize("counts", [[100, 200, 300, 50], [5, 0, 600, 0], [300, 3, 2, 300]])
@pytest.mark.parametrize("bar", [0.0, 4.0, 20.0])
def test_the_bar_of_a_variance_covers_all_counts_within_their_bars(
    counts: list[float], bar: float
) -> None:
    ((value, half),) = made("SELECT VAR_POP(age) FROM people", bins(counts, bar)).rows
    assert value == pytest.approx(variance(counts))
    ends = [(max(0.0, c - bar), c, c + bar) for c in counts]
    worst = max(abs(variance(each) - variance(counts)) for each in itertools.product(*ends))
    assert isinstance(half, float)
    assert worst <= half + 1e-9
    assert half <= 12 * worst + 1e-9, "the bar is no excuse"


def test_a_deviation_is_the_root_of_the_variance_of_a_sample() -> None:
    counts = [100.0, 200.0, 300.0, 50.0]
    found = made("SELECT STDDEV(age), VAR_SAMP(age) FROM people", bins(counts, 2.0))
    ((deviation, _, sample, _),) = found.rows
    assert sample == pytest.approx(variance(counts) * 650 / 649)
    assert isinstance(sample, float)
    assert deviation == pytest.approx(math.sqrt(sample))
    assert any("middle of its bin" in note for note in found.notes)


def test_a_spread_of_so_few_rows_that_there_may_be_none_has_no_value() -> None:
    assert made("SELECT VAR_POP(age) FROM people", bins([1, 1, 0, 0], 5.0)).rows == [(None, None)]
    assert made("SELECT VAR_POP(age) FROM people", bins([1, 1, 0, 0], None)).rows == [(None, None)]
    assert made("SELECT VAR_POP(age) FROM people", bins([0, 0, 0, 0], 5.0)).rows == [(None, None)]


# ---------------------------------------------------------------- rows


COUNTS = [50.0, 200.0, 120.0, 10.0, 70.0]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("", ["Bonn", "Graz", "Lyon", "other", None]),
        ("ORDER BY n DESC", ["Graz", "Lyon", None, "Bonn", "other"]),
        ("ORDER BY 1", ["Bonn", "Graz", "Lyon", "other", None]),
        ("ORDER BY city NULLS LAST LIMIT 2", ["Bonn", "Graz"]),
        ("ORDER BY city DESC NULLS FIRST LIMIT 2", [None, "other"]),
        ("ORDER BY n LIMIT 2 OFFSET 1", ["Bonn", None]),
        ("OFFSET 3", ["other", None]),
        ("ORDER BY n / 100 DESC FETCH FIRST 1 ROW ONLY", ["Graz"]),
        ("HAVING city IN ('Bonn', 'Graz') AND n >= 50", ["Graz"]),
    ],
)
def test_rows_are_sorted_cut_and_chosen_by_published_values(
    clauses: str, expected: list[Any]
) -> None:
    assert made(f"{BY_CITY} {clauses}", table(COUNTS, 5.0)).column("city") == expected


def test_bins_are_sorted_by_their_values_and_not_as_text() -> None:
    statement = "SELECT age, COUNT(*) FROM people GROUP BY age ORDER BY age DESC"
    found = made(statement, bins([1, 2, 3, 4], 1.0)).column("age")
    assert found == [">= 65", "30 to 64", "18 to 29", "< 18", None]


def test_where_values_choose_the_rows_the_bars_hold_for_all_cells_at_once() -> None:
    answer = table(COUNTS, 5.0, error_bars_simultaneous=[0.009] * 5)
    plain = made(BY_CITY, answer)
    assert plain.column(f"n{BAR}")[0] == pytest.approx(5.0)
    assert plain.notes == ()
    for clauses in ("HAVING COUNT(*) > 60", "ORDER BY n LIMIT 3", "ORDER BY n OFFSET 1"):
        chosen = made(f"{BY_CITY} {clauses}", answer)
        assert chosen.column(f"n{BAR}")[0] == pytest.approx(9.0)
        assert any("hold for all groups at once" in note for note in chosen.notes)
    alone = made(f"{BY_CITY} LIMIT 9 OFFSET 0", answer)
    assert alone.notes == ()
    narrow = made(f"{BY_CITY} HAVING n > 60", table(COUNTS, 5.0))
    assert any("may hold for each group alone" in note for note in narrow.notes)
    for clauses in ("ORDER BY n", "LIMIT 3", "ORDER BY city LIMIT 3", "HAVING city = 'Bonn'"):
        assert made(f"{BY_CITY} {clauses}", answer).column(f"n{BAR}")[0] == pytest.approx(5.0)


def test_a_group_that_surely_has_no_row_is_left_out() -> None:
    counts = [0.0, 200.0, 120.0, 10.0, 70.0]
    assert made(BY_CITY, table(counts, 0.0)).column("city") == ["Graz", "Lyon", "other", None]
    assert len(made(BY_CITY, table(counts, 3.0)).rows) == 5


# ---------------------------------------------------------------- forms


def small() -> ResultTable:
    statement = "SELECT city, COUNT(*) AS n, COUNT(*) / 8 AS part FROM people GROUP BY city LIMIT 2"
    return made(statement, table(COUNTS, 5.0))


def test_a_table_names_its_columns_and_what_it_rests_on() -> None:
    found = small()
    assert found.columns == (
        Column("city", "text"),
        Column("n", "integer"),
        Column(f"n{BAR}", "real", "n"),
        Column("part", "real"),
        Column(f"part{BAR}", "real", "part"),
    )
    assert (found.dataset, found.phases, found.cost) == ("people", (1, 2), 0.01)
    assert found.records()[0] == {
        "city": "Bonn", "n": 50, f"n{BAR}": 5.0, "part": 6.25, f"part{BAR}": 0.625,
    }  # fmt: skip
    with pytest.raises(KeyError):
        found.column("nothing")


def test_a_table_is_csv_json_and_a_data_frame() -> None:
    found = made(
        "SELECT city, city IS NULL AS gone, COUNT(*) AS n FROM people GROUP BY 1, 2 LIMIT 1",
        *[table(COUNTS, 5.0)] * 2,
    )
    assert found.to_csv() == f"city,gone,n,n{BAR},n_low,n_high\nBonn,false,50,5.0,45,55\n"
    document = json.loads(json.dumps(found.to_document()))
    assert document["rows"] == [["Bonn", False, 50, 5.0, 45, 55]]
    bars, least, _ = document["columns"][3:]
    nothing = {"bar_of": None, "end_of": None, "sure_of": None}
    assert bars == {**nothing, "name": f"n{BAR}", "type": "real", "bar_of": "n"}
    assert least == {**nothing, "name": "n_low", "type": "integer", "end_of": "n"}
    pandas = pytest.importorskip("pandas")
    frame = small().to_pandas()
    assert list(frame.columns) == [
        *("city", "n", f"n{BAR}", "n_low", "n_high"),
        *("part", f"part{BAR}", "part_low", "part_high"),
    ]
    assert frame["n"].sum() == 250
    assert pandas.api.types.is_integer_dtype(frame["n"])


def test_a_spreadsheet_takes_no_text_of_a_table_for_a_formula() -> None:
    texts = ["=1+1", "+SUM(A1)", "-2+3", "@x", "\tx", "\rx", '=HYPERLINK("a")', "-10 to 0"]
    texts += ["=1", "-", "+1e"]
    columns = (Column("=cmd", "text"), Column("n", "real"))
    numbers = [-0.5, -7, 1e-9]
    found = ResultTable("people", columns, [(t, n) for t in texts for n in numbers], None)
    header, *rows = csv.reader(io.StringIO(found.to_csv(), newline=""))
    assert header == ["'=cmd", "n"]
    assert rows == [[f"'{text}", str(number)] for text in texts for number in numbers]
    plain = ["a=b", "", "-5", "+4.9", "-.5e-3", "'=1", "Bonn", "< 5"]
    said = csv.reader(io.StringIO(csv_text([plain, [None, True, False, 7]])))
    assert list(said) == [plain, ["", "true", "false", "7"]]
    assert csv_text([["a,b", 'c"', "d\re\nf"], [None]]) == '"a,b","c""","d\re\nf"\n""\n'


def refused(code: str, message: str) -> Any:
    reason = {"code": code, "message": message, "retriable": code == "no_phase"}
    head = {"dataset": "people", "query_id": "q", "analyst": "ann"}
    return read_answer({**head, "status": "refused", "reason": reason})


@pytest.fixture
def asked() -> Statement:
    """A statement of two queries."""
    text = "SELECT COUNT(*), COUNT(*) FILTER (WHERE smoker)"
    return Statement(text, "people", sql.plan(text, PEOPLE))


def test_a_statement_says_all_bins_that_its_queries_cut_at_once(asked: Statement) -> None:
    age, hours = (
        "this cuts the bin 65 to 69 of age; ask >= 65",
        "this cuts the bin < 20 of hours; ask >= 20",
    )
    both = refused("cuts_bin", f"where.all[0].gt: {age}; {hours}")
    found = asked.table([refused("cuts_bin", f"where.gt: {age}"), both])
    assert str(found) == f"where.gt: {age}; {hours}"
    assert (
        str(asked.table([both, refused("no_phase", "a: b")])) == f"where.all[0].gt: {age}; {hours}"
    )
    assert str(asked.table([refused("no_phase", "a: b"), both])) == "a: b"


def test_a_refusal_of_one_query_refuses_the_statement(asked: Statement) -> None:
    refusal = refused("no_phase", "no phase is open yet")
    found = asked.table([count_answer(3, 1), refusal])
    assert isinstance(found, Refusal)
    assert (str(found), found.reason.code) == ("no phase is open yet", "no_phase")
    table = asked.table([count_answer(3, 1), count_answer(2, 1)])
    assert isinstance(table, ResultTable)
    assert table.rows[0][0] == 3


def test_declared_values_are_given_without_asking() -> None:
    found = made("SELECT DISTINCT city, smoker FROM people ORDER BY city DESC, smoker LIMIT 3")
    assert found.rows == [("Lyon", False), ("Lyon", True), ("Graz", False)]
    assert made("SELECT city FROM people GROUP BY city HAVING city = 'Graz'").rows == [("Graz",)]
    assert found.phases is None
    assert found.cost == 0
    assert "nothing was asked" in found.notes[0]


FILTERED = ", ".join(
    f"COUNT(*) FILTER (WHERE {each}), AVG(age) FILTER (WHERE {each})"
    for each in ("age >= 18", "age >= 30", "age >= 65", "city = 'Graz'", "city = 'Lyon'")
)
TWO_BY_TWO = "city <> 'Bonn', age < 30, smoker = TRUE, city IN ('Graz', 'Lyon'), age < 65"
DOUBLED = ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(60))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT COUNT(*) FROM people GROUP BY 3", "3 is not the number of a column"),
        ("SELECT city, COUNT(*) FROM people GROUP BY city ORDER BY 4", "write 1 to 2, or a name"),
        ("SELECT city, COUNT(*) FROM people GROUP BY city, city", "city is grouped by twice"),
        ("SELECT COUNT(*) FROM people LIMIT -1", "LIMIT takes a whole number"),
        ("SELECT COUNT(*) FROM people HAVING smoker", "smoker is not a condition on the table"),
        ("SELECT AVG(city) FROM people", "city is a category; ask for AVG of a number"),
        ("SELECT AVG(CASE WHEN smoker THEN 1 END) FROM people", "write ELSE 0 END"),
        ("SELECT AVG(CASE WHEN smoker THEN age ELSE 0 END) FROM people", "omit ELSE"),
        ("SELECT SUM(CASE WHEN smoker THEN 'a' ELSE 0 END) FROM people", "CASE WHEN ... THEN 1 ELSE 0 END"),
        ("SELECT SUM(age + 1) FROM people", "add up one attribute"),
        ("SELECT STDDEV(city) FROM people", "city is a category; name a number"),
        ("SELECT age, STDDEV(age) FROM people GROUP BY age", "age is grouped by"),
        ("SELECT DISTINCT age FROM people", "age has bins and no list of values"),
        ("SELECT DISTINCT COUNT(*) FROM people", "DISTINCT takes attributes only"),
        ("SELECT 5 FROM people", "nothing is counted"),
        ("SELECT city, COUNT(*) FROM people GROUP BY CASE WHEN smoker THEN age END", "not a constant"),
        ("SELECT SUM(COUNT(*)) OVER () FROM people GROUP BY city HAVING COUNT(*) > 3", "omit one of the two"),
        ("SELECT COUNT(*) FROM (SELECT city FROM people LIMIT 3)", "a subquery here only filters rows"),
        ("SELECT COUNT(*), (SELECT COUNT(*) FROM others) FROM people", "others is not the data set"),
        ("SELECT COUNT(*), (SELECT city FROM people) FROM people", "city is not grouped by"),
        ("SELECT COUNT(*), COUNT(*) FILTER (WHERE smoker) FROM people WITHIN 5%", "WITHIN 0.5% OF ROWS"),
        ("FRESH SELECT COUNT(*), AVG(age) FROM people", "only counts can be FRESH"),
        (
            "SELECT COUNT(*) / (SELECT COUNT(*) FROM people) FROM people WHERE day >= '2026-11-01'",
            "ask it in a statement of its own",
        ),
        ("SELECT day, COUNT(*), (SELECT COUNT(*) FROM people) FROM people GROUP BY day", "of the same time"),
        ("SELECT day, COUNT(*) / SUM(COUNT(*)) OVER () FROM people GROUP BY day", "omit GROUP BY day"),
        ("SELECT DISTINCT city FROM people WHERE day >= '2026-11-01'", "values follow no condition"),
        ("SELECT city, COUNT(*) FROM people GROUP BY city HAVING city > 3", "has no order"),
        ("SELECT city, COUNT(*) FROM people GROUP BY city HAVING city = 'bonn'", "did you mean 'Bonn'?"),
        ("SELECT n FROM (SELECT city, COUNT(*) n FROM people GROUP BY 1) WHERE city = 'Oslo'", "not a"),
        ("SELECT city AS c, COUNT(*) FROM people GROUP BY c HAVING c IN ('Bonn', 'Rom')", "not a listed"),
        ("SELECT city, age, COUNT(*) FROM people GROUP BY 1, 2 HAVING city = age", "something else than a"),
        ("SELECT city, COUNT(*) FROM people GROUP BY city HAVING COALESCE(city, 'x') = 'x'", "functions are"),
        ("SELECT age, COUNT(*) FROM people GROUP BY age HAVING age IN (30, 31)", "this cuts a bin of age"),
        ("SELECT age, COUNT(*) FROM people GROUP BY age HAVING age > 'x'", "'x' is not a number, but age is"),
        ("SELECT age, COUNT(*) FROM people GROUP BY age HAVING age BETWEEN '3' AND 'x'", "is not a number"),
        ("SELECT n FROM (SELECT age, COUNT(*) AS n FROM people GROUP BY age) WHERE age < 31", "30 or 65"),
        ("SELECT MEDIAN(age) FROM people HAVING MEDIAN(age) > 30", "a text beside a number"),
        ("SELECT age + 1, COUNT(*) FROM people GROUP BY age", "age is a text here"),
        ("SELECT ROUND(age), COUNT(*) FROM people GROUP BY age", "age is a text here"),
        ("SELECT COALESCE(age, 0), COUNT(*) FROM people GROUP BY age", "a text beside a number"),
        ("SELECT COUNT(*) FROM people GROUP BY CASE WHEN smoker THEN 1 ELSE 'a' END", "texts and numbers"),
        (
            "SELECT (SELECT n FROM (SELECT city, COUNT(*) n FROM people GROUP BY 1) WHERE city = 'Bonn')",
            "a subquery here has no groups",
        ),
        ("SELECT COUNT(*) AS n, (SELECT n FROM people) FROM people", "there is no attribute n"),
        ("SELECT COUNT(*) / NULLIF(COUNT(*) FILTER (WHERE smoker), 5) FROM people", "a / NULLIF(x, 0)"),
        ("SELECT NULLIF(COUNT(*), 0) FROM people", "a / NULLIF(x, 0)"),
        (f"SELECT {FILTERED} FROM people GROUP BY {TWO_BY_TWO}", "more than 100 queries"),
        (f"SELECT COUNT(*) AS a0, {DOUBLED} FROM people", "more than 1,000 parts"),
    ],
)  # fmt: skip
def test_what_has_no_table_is_refused_in_words(statement: str, words: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(words)):
        sql.plan(statement, PEOPLE, dataset="people")


def test_an_outer_condition_means_the_columns_of_the_subquery() -> None:
    inner = "(SELECT city, COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker) AS m FROM people GROUP BY city)"
    few = table([5.0, 2.0, 1.0, 1.0, 7.0], 1.0)
    found = made(
        f"SELECT city, m AS n FROM {inner} t WHERE t.n > 60 ORDER BY n LIMIT 2",
        few,
        table(COUNTS, 5.0),
    )
    assert found.column("city") == ["Lyon", "Graz"], "n is the number of all rows in WHERE"
    assert found.column("n") == [1, 2]
    hidden = made(f"SELECT city FROM {inner} ORDER BY n DESC LIMIT 1", table(COUNTS, 5.0))
    assert [column.name for column in hidden.columns if column.sure_of is None] == ["city"]
    assert hidden.column("city") == ["Graz"]


def test_what_no_row_can_satisfy_is_not_asked() -> None:
    nobody = "SELECT COUNT(*) AS n, SUM(age) AS s FROM people WHERE city = 'Bonn' AND city = 'Graz'"
    assert made(nobody).rows == [(0, 0.0, None, None)]
    assert made("SELECT city, COUNT(*) FROM people WHERE FALSE GROUP BY city").rows == []
    one = "COUNT(*) FILTER (WHERE age < 18)"
    found = made(
        f"SELECT age >= 18 AS k, {one} FROM people WHERE age IS NOT NULL GROUP BY k",
        count_answer(9, 1),
    )
    assert found.rows == [(False, 9, pytest.approx(1.0)), (True, 0, 0.0)]


@pytest.mark.parametrize(
    "ratio",
    [
        "COUNT(*) FILTER (WHERE smoker) / (SELECT COUNT(*) FROM people)",
        "COUNT(*) FILTER (WHERE smoker) / SUM(COUNT(*)) OVER ()",
        "COUNT(age) / (SELECT COUNT(*) FROM people)",
    ],
)
def test_a_part_of_all_rows_is_not_one_of_each_group(ratio: str) -> None:
    found = made(
        f"SELECT city, {ratio} AS x FROM people GROUP BY city",
        table([10.0, 20.0, 30.0, 40.0, 50.0], 1.0),
        count_answer(500, 1),
    )
    assert found.column("x") == [0.02, 0.04, 0.06, 0.08, 0.1]


def test_declared_values_are_not_those_of_a_join() -> None:
    columns: dict[str, ValueType] = {"code": "text", "region": "text"}
    countries = sql.Dimension("countries", "code", columns, {"Bonn": {"region": "West"}})
    with pytest.raises(InvalidQuery, match=r"add COUNT\(\*\)"):
        sql.plan(
            "SELECT DISTINCT city FROM people JOIN countries ON city = code",
            PEOPLE,
            dimensions={"countries": countries},
        )


def test_combinations_are_tried_only_until_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = 0

    def is_possible(*_: Any) -> bool:
        nonlocal tried
        tried += 1
        return True

    monkeypatch.setattr("stream_dp.sql.terms.possible_conditions.Possible.__call__", is_possible)
    groups = ", ".join(f"CASE WHEN smoker THEN 'a{i}' ELSE 'b{i}' END" for i in range(18))
    with pytest.raises(InvalidQuery, match="more than 100 queries"):
        sql.plan(f"SELECT COUNT(*) FROM people GROUP BY {groups}", PEOPLE)
    assert tried < 500
