"""COUNT(DISTINCT person): the count of one phase, or between the largest phase and the sum of all."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.statement_table import evaluate
from stream_dp.messages import NoisyAnswer
from tests.answers import count_answer, noisy_answer, series_answer, table_answer

SCHEMA: list[dict[str, Any]] = [
    {"name": "ward", "type": "category", "values": ["a", "b"], "other": False}
]
UNIT = {"key": "user_id", "rows_per_phase": 1, "phases": 12, "lifetime": False}
SENT = [500, 900, 700]
"""The rows that came in each phase, which are public. Not all of them count."""
COUNTED = [(200, 150), (300, 180), (350, 200)]
"""Those that count, by ward. The third phase has the most, and the second has the most rows."""


def answered(query: dict[str, Any], bar: float, phases: int) -> NoisyAnswer:
    first = 3 - phases

    def one(start: int, stop: int) -> NoisyAnswer:
        counts = [sum(each[ward] for each in COUNTED[start:stop]) for ward in (0, 1)]
        more: Any = {"n": sum(SENT[start:stop]), "phase": 3, "window": [start + 1, stop]}
        if "group_by" in query:
            return table_answer(
                {"ward": "ab"}, counts, bar, cells={"count_bars": [bar] * 2}, **more
            )
        return count_answer(sum(counts), bar, count_bar=bar, **more)

    if "series" not in query:
        return one(first, 3)
    parts = [(phase + 1, None, one(phase, phase + 1)) for phase in range(first, 3)]
    return series_answer(query["series"], parts, phase=3, window=[first + 1, 3])


def table(statement: str, bar: float = 10.0, phases: int = 3) -> ResultTable:
    plan = sql.plan(statement, SCHEMA, dataset="t", unit=UNIT)
    return evaluate(plan, "t", [answered(query, bar, phases) for query in plan.queries])


def rows(statement: str, bar: float = 10.0, phases: int = 3) -> list[tuple[Any, ...]]:
    return list(table(statement, bar, phases).rows)


def test_over_several_phases_they_lie_between_the_phase_with_the_most_rows_and_the_sum() -> None:
    found = table("SELECT COUNT(DISTINCT user_id) AS persons FROM t")
    value, bar = (found.column(name)[0] for name in ("persons", "persons_error_bar"))
    assert isinstance(value, int)
    assert isinstance(bar, float)
    fewest, most = 300 + 180 - 10, sum(map(sum, COUNTED)) + 10
    assert (value - bar, value + bar) == pytest.approx((fewest, most), abs=1)
    assert any("nobody knows who comes in several phases" in note for note in found.notes)
    assert any("98%" in note for note in found.notes)


def test_no_noise_chooses_the_phase_that_they_are_at_least() -> None:
    """The third phase counts more, but the second one has more rows, which is public: a copy that takes the
    largest of noisy counts is wrong more often than its bars say."""
    ((value, bar),) = rows("SELECT COUNT(DISTINCT user_id) AS persons FROM t", bar=0.0)
    assert value - bar == pytest.approx(480, abs=1)


def test_in_one_phase_they_are_the_rows_that_count() -> None:
    ((value, bar),) = rows("SELECT COUNT(DISTINCT user_id) AS persons FROM t", phases=1)
    assert (value, bar) == (550, pytest.approx(10.0))
    notes = table("SELECT COUNT(DISTINCT user_id) FROM t", phases=1).notes
    assert not any("several phases" in note for note in notes)


def test_each_group_has_its_own_and_a_note_says_which_rows_they_go_by() -> None:
    found = table(
        "SELECT ward, COUNT(DISTINCT user_id) AS persons, COUNT(*) AS n FROM t GROUP BY ward"
    )
    each: list[tuple[Any, ...]] = list(found.rows)
    for ward, (_, persons, bar, n, _) in enumerate(each):
        assert n == sum(phase[ward] for phase in COUNTED)
        assert persons - bar == pytest.approx(COUNTED[1][ward] - 10, abs=1)
        assert persons + bar == pytest.approx(n + 10, abs=1)
    assert any("their other rows are left out" in note for note in found.notes)


@pytest.mark.parametrize(
    ("statement", "queries"),
    [
        ("SELECT COUNT(DISTINCT user_id) FROM t", 2),
        ("SELECT COUNT(distinct USER_ID), COUNT(*) FROM t WHERE ward = 'a' AND phase = 3", 2),
        ("SELECT COUNT(DISTINCT user_id) FILTER (WHERE ward = 'a') FROM t", 2),
        ("SELECT phase, COUNT(DISTINCT user_id) FROM t GROUP BY phase", 1),
        ("SELECT 1.0 * COUNT(*) / COUNT(DISTINCT user_id) FROM t", 2),
    ],
)
def test_they_take_one_query_about_all_phases_and_one_about_each(
    statement: str, queries: int
) -> None:
    plan = sql.plan(statement, SCHEMA, dataset="t", unit=UNIT)
    assert len(plan.queries) == queries
    windows = [query.get("window") for query in plan.queries]
    assert windows == windows[:1] * queries
    assert plan.queries[-1]["series"] == "phase"


def test_all_clauses_hold_for_them_as_for_counts() -> None:
    places = sql.Dimension(
        "places", "code", {"code": "text", "floor": "text"}, {"a": {"floor": "1"}}
    )
    in_a = {"attribute": "ward", "eq": "a"}
    for rest in (
        "t WHERE ward = 'a'",
        "(SELECT * FROM t WHERE ward = 'a')",
        "t JOIN places ON ward = code",
    ):
        plan = sql.plan(
            f"SELECT COUNT(DISTINCT user_id) FROM {rest}",
            SCHEMA,
            unit=UNIT,
            dimensions={"places": places},
        )
        assert [query["where"] for query in plan.queries] == [in_a, in_a]
    persons = "SELECT ward, COUNT(DISTINCT user_id) AS persons FROM t GROUP BY ward"
    assert [row[0] for row in table(f"{persons} HAVING persons > 280").rows] == ["a"]
    assert [row[0] for row in table(f"{persons} ORDER BY persons").rows] == ["b", "a"]


def test_a_note_says_how_many_rows_count_of_how_many_and_whose_they_are() -> None:
    planes = {"key": "plane", "rows_per_phase": 1, "phases": 7}
    text = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE ward = 'a') AS of_a FROM t"
    counts = {"kind": "predicate", "value": 0.98, "error_bar": 0.1, "count": 56_906}
    among = {"counted": 57_983, "counted_bar": 1_372.6, "surplus_at_most": 0.30268}
    exact = noisy_answer(80_789, **counts, count_bar=5_751.0, **among)
    rough = noisy_answer(80_789, **counts, count_bar=6_272.0, **{**among, "counted_bar": 3_498.0})
    notes = evaluate(sql.plan(text, SCHEMA, unit=planes), "t", [rough, exact]).notes
    of = "counts and shares are of the 57,983 ± 1,373 rows that count, of 80,789"
    assert f"{of}: at most 1 row of each plane in a phase" in notes
    assert "a count among all rows may be larger by up to 24,454" in notes
    assert of in evaluate(sql.plan("SELECT COUNT(*) AS n FROM t", SCHEMA), "t", [exact]).notes


SINCE = {"type": "number", "edges": [2, 3], "integer": True, "fold": "since", "phases": 3}
BUYERS: list[dict[str, Any]] = [
    *SCHEMA,
    {"name": "bought", "type": "boolean", "fold": "any"},
    {"name": "away", **SINCE},
    {"name": "bought_before", "of": "bought", "missing": True, **SINCE},
]


@pytest.mark.parametrize(
    ("statement", "once"),
    [
        ("SELECT COUNT(DISTINCT user_id) FROM t", ["away"]),
        ("SELECT COUNT(DISTINCT user_id) FROM t WHERE phase = 2", ["away"]),
        ("SELECT COUNT(DISTINCT user_id) FROM t WHERE bought", ["bought_before"]),
        ("SELECT COUNT(DISTINCT user_id) FILTER (WHERE bought = TRUE) FROM t", ["bought_before"]),
        ("SELECT ward, COUNT(DISTINCT user_id) FROM t GROUP BY ward", ["away"]),
        (
            "SELECT month, COUNT(DISTINCT user_id) FROM t WHERE bought GROUP BY month",
            ["bought_before"],
        ),
        ("SELECT COUNT(DISTINCT user_id) FROM t WHERE ward = 'a'", [None, None]),
        ("SELECT COUNT(DISTINCT user_id) FROM t WHERE NOT bought", [None, None]),
        ("SELECT COUNT(*), COUNT(DISTINCT user_id) FROM t", [None, "away"]),
    ],
)
def test_where_an_attribute_says_how_long_they_were_away_each_counts_once(
    statement: str, once: list[str | None]
) -> None:
    plan = sql.plan(statement, BUYERS, dataset="t", unit=UNIT)
    assert [query.get("once") for query in plan.queries] == once


def test_a_note_says_in_which_group_a_person_counts_once() -> None:
    def notes(statement: str, phases: int = 3) -> list[str]:
        plan = sql.plan(statement, BUYERS, dataset="t", unit=UNIT)
        answers = [answered(query, 10.0, phases) for query in plan.queries]
        return [*evaluate(plan, "t", answers).notes]

    first = "each person counts once, in the group of their first row in these phases"
    assert first in notes("SELECT ward, COUNT(DISTINCT user_id) FROM t GROUP BY ward")
    assert first not in notes("SELECT ward, COUNT(DISTINCT user_id) FROM t GROUP BY ward", 1)
    alone = notes("SELECT COUNT(DISTINCT user_id) FROM t")
    assert not any("rows that count" in note or note == first for note in alone)
