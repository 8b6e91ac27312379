"""What is sure of rows that published values choose, by brute force over all that their bars allow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.client.statements.result_table import ResultTable
from stream_dp.client.statements.sureness import (
    COMPARISONS,
    compared,
    connected,
    rank_in_words,
    ranks,
)
from stream_dp.display.answer_words import in_sql
from stream_dp.messages import NoisyAnswer
from stream_dp.precision_texts import as_at_most
from tests.answers import table_answer, table_of

SCHEMA: list[dict[str, Any]] = [
    {"name": "job", "type": "category", "values": list("abcdef"), "other": False},
    {"name": "smoker", "type": "boolean"},
]
BY_JOB = "SELECT job, COUNT(*) AS n FROM people GROUP BY job"
N = 1000

ends = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted).map(tuple)
truths = st.sets(st.sampled_from([True, False, None]), min_size=1)


def within(one: tuple[int, int]) -> list[float]:
    """Numbers between two ends, halves among them."""
    return [half / 2 for half in range(2 * one[0], 2 * one[1] + 1)]


@given(st.lists(ends, min_size=1, max_size=4), st.data())
def test_no_values_within_their_ends_have_another_rank(
    found: list[tuple[int, int]], data: st.DataObject
) -> None:
    n = len(found)
    members = data.draw(st.sets(st.integers(0, n - 1)))
    said = ranks(found, members)
    seen: list[set[int]] = [set() for _ in found]
    optional = [i for i in range(n) if i not in members]
    chosen = [set(some) for k in range(n) for some in itertools.combinations(optional, k)]
    for values in itertools.product(*map(within, found)):
        for index, others in itertools.product(range(n), chosen or [set[int]()]):
            counted = [values[i] for i in {*members, *others} - {index}]
            above = sum(value > values[index] for value in counted)
            alike = sum(value == values[index] for value in counted)
            seen[index] |= set(range(1 + above, 2 + above + alike))
    for (first, last), possible in zip(said, seen, strict=True):
        assert min(possible) == first
        assert max(possible) <= last


@given(st.sampled_from(sorted(COMPARISONS)), ends, ends)
def test_a_comparison_may_come_to_what_values_within_their_ends_give(
    name: str, one: tuple[int, int], other: tuple[int, int]
) -> None:
    pairs = itertools.product(within(one), within(other))
    assert compared(name, one, other) == {COMPARISONS[name](*pair) for pair in pairs}


@given(st.sampled_from(["and", "or"]), st.lists(truths, min_size=1, max_size=3))
def test_conditions_together_may_come_to_what_any_choice_of_their_outcomes_gives(
    name: str, parts: list[set[bool | None]]
) -> None:
    decisive, seen = name == "or", set[bool | None]()
    for each in itertools.product(*parts):
        seen.add(decisive if decisive in each else None if None in each else not decisive)
    assert connected(name, parts) == seen
    assert connected("not", [{True, None}]) == {False, None}
    assert connected("is_true", [{True, None}]) == {True, False}
    assert connected("is_unknown", [{False}]) == {False}


def test_ranks_are_said_in_words() -> None:
    assert rank_in_words((3, 6), 9, 10) == "3 to 6"
    assert rank_in_words((2, 2), 9, 5) == "2, surely in the first 5"
    assert rank_in_words((3, 6), 9, 5) == "3 to 6"
    assert rank_in_words((1, 9), 9, 5) == "cannot be told apart"
    assert rank_in_words((1, 1), 1, 5) == "1"


# ---------------------------------------------------------------- tables


def jobs(counts: list[int], bar: float, **cells: Any) -> NoisyAnswer:
    """An answer to a table by job; ``bar`` is in rows."""
    return table_answer({"job": "abcdef"}, counts, bar, cells=cells)


def made(statement: str, *answers: NoisyAnswer) -> ResultTable:
    return table_of(statement, SCHEMA, *answers)


COUNTS = [300, 50, 210, 30, 290, 120]


def test_the_first_rows_say_their_ranks_by_how_far_counts_must_differ() -> None:
    found = made(f"{BY_JOB} ORDER BY n DESC LIMIT 3", jobs(COUNTS, 10.0, wider=1.5, apart=30.0))
    assert found.column("job") == ["a", "e", "c"]
    assert found.column("rank") == ["1 to 2, surely in the first 3"] * 2 + [
        "3, surely in the first 3"
    ]
    assert (found.column("rank_low"), found.column("rank_high")) == ([1, 1, 3], [2, 2, 3])
    assert found.column("n_error_bar") == pytest.approx([15.0] * 3)
    assert any("ranks of all groups are sure at once" in note for note in found.notes)
    assert any("at least 99%" in note for note in found.notes)
    wide = jobs(COUNTS, 10.0, count_bars=[8.0] * 6, wider=1.5, apart=30.0)
    for clauses, names, ranks_of in (
        ("ORDER BY n LIMIT 2", ["d", "b"], [1, 1]),
        ("HAVING job <> 'a' AND n > 0 ORDER BY n DESC LIMIT 2", ["e", "c"], [1, 2]),
    ):
        chosen = made(f"{BY_JOB} {clauses}", wide)
        assert (chosen.column("job"), chosen.column("rank_low")) == (names, ranks_of)
        assert chosen.column("n_error_bar") == [12.0] * 2, "where a person is protected"
    for clauses in ("", "ORDER BY n DESC", "LIMIT 2", "ORDER BY job, n DESC LIMIT 2"):
        assert "rank" not in [column.name for column in made(f"{BY_JOB} {clauses}", wide).columns]


def test_first_rows_that_nothing_tells_from_the_others_are_not_shown() -> None:
    alike = jobs(COUNTS, 90.0, wider=1.5, apart=400.0)
    found = made(f"{BY_JOB} ORDER BY n DESC LIMIT 2", alike)
    assert found.rows == found.to_document()["rows"] == []
    told = next(note for note in found.notes if "told apart" in note)
    assert told.startswith("the first 2 of 6 groups cannot be told apart from the others")
    assert not any("ranks of all groups" in note or "noise may" in note for note in found.notes)
    every = made(f"{BY_JOB} ORDER BY n DESC LIMIT 6", alike)
    assert every.column("rank") == ["cannot be told apart"] * 6, "all of them are no choice"
    one = made(f"{BY_JOB} ORDER BY n DESC LIMIT 2", jobs(COUNTS, 90.0, wider=1.5, apart=265.0))
    assert one.column("rank") == ["1 to 5", "cannot be told apart"], (
        "and one that is tells something"
    )
    unknown = jobs(COUNTS, 0.0, error_bars=[None] * 6).model_copy(update={"confidence": 0.5})
    assert made(f"{BY_JOB} ORDER BY n DESC LIMIT 2", unknown).rows == []


def test_ranks_by_bars_alone_hold_with_the_confidence_that_all_bars_together_leave() -> None:
    by_all = jobs(COUNTS, 2.0, error_bars_simultaneous=[9.0 / N] * 6)
    found = made(f"{BY_JOB} ORDER BY n DESC LIMIT 1", by_all)
    assert found.column("rank_high") == [2], "9 and 9 are more than 10"
    assert any("at least 99%" in note for note in found.notes)
    alone = made(f"{BY_JOB} ORDER BY n DESC LIMIT 1", jobs(COUNTS, 2.0))
    assert alone.column("rank_high") == [1]
    assert any("at least 94%" in note for note in alone.notes)
    doubled = made(f"{BY_JOB} ORDER BY 2 * n DESC LIMIT 1", jobs(COUNTS, 2.0, wider=2, apart=1))
    assert doubled.column("rank_high") == [1], "16 is less than 20"
    wider = made(f"{BY_JOB} ORDER BY 2 * n DESC LIMIT 1", jobs(COUNTS, 2.0, wider=3, apart=1))
    assert wider.column("rank_high") == [2]


def test_no_rank_is_said_where_so_many_bars_hold_for_nothing_together() -> None:
    for confidence, rank in ((0.8, []), (0.98, []), (0.985, ["rank", "rank_low", "rank_high"])):
        unsure = jobs(COUNTS, 2.0).model_copy(update={"confidence": confidence})
        found = made(f"{BY_JOB} ORDER BY n DESC LIMIT 1", unsure)
        assert [column.name for column in found.columns] == ["job", "n", "n_error_bar", *rank]
        assert any("ranks" in note for note in found.notes) is bool(rank)
        chosen = made(f"{BY_JOB} HAVING n > 210", unsure)
        assert any("HAVING surely" in note for note in chosen.notes) is bool(rank)


@pytest.mark.parametrize("least", [200, 220])
def test_having_shows_the_groups_for_which_it_surely_holds_and_counts_the_others(
    least: int,
) -> None:
    found = made(f"{BY_JOB} HAVING n > {least}", jobs(COUNTS, 10.0, wider=2.0, apart=30.0))
    assert found.column("job") == ["a", "e"], "the one of about 210 is left out"
    told = next(note for note in found.notes if note.startswith("of 6 groups"))
    assert told == (
        "of 6 groups HAVING surely holds for 2 and surely not for 3; of the other 1 it cannot be told, so "
        "they are not shown"
    )
    assert not any("noise may" in note for note in found.notes)
    assert "the bars hold for all groups at once" in found.notes


def test_a_listed_null_leaves_a_condition_unknown_for_sure() -> None:
    answer = jobs(COUNTS, 10.0, wider=2.0, apart=30.0)
    assert made(f"{BY_JOB} HAVING (n IN (120, NULL)) IS NULL", answer).column("job") == list(
        "abcde"
    )
    assert made(f"{BY_JOB} HAVING n NOT IN (120, NULL)", answer).rows == []


def test_groups_that_may_not_satisfy_having_leave_ranks_open() -> None:
    """The one of 210 rows may be left out, so whoever follows may be second or third."""
    answer = jobs([300, 190, 210, 30, 250, 120], 10.0, wider=2.0, apart=5.0)
    found = made(f"{BY_JOB} HAVING n BETWEEN 100 AND 295 ORDER BY n DESC LIMIT 4", answer)
    assert found.column("job") == ["e", "c", "b", "f"]
    assert found.column("rank_low") == [1, 2, 3, 4]
    assert found.column("rank_high") == [2, 3, 4, 5], "a may have 290 rows"
    assert found.column("rank")[-2:] == ["3 to 4, surely in the first 4", "4 to 5"]
    assert any("at least 98%" in note for note in found.notes)
    smallest = made(f"{BY_JOB} HAVING n > 110 ORDER BY n LIMIT 1", answer)
    assert smallest.column("job") == ["b"], "f may not be in the table at all"
    assert smallest.column("rank") == ["1 to 2"], "or be the first"


def test_columns_take_names_that_no_other_one_has() -> None:
    answer = jobs(COUNTS, 10.0, wider=1.5, apart=30.0)
    statement = "SELECT job AS rank, COUNT(*) AS n FROM people GROUP BY job ORDER BY n DESC LIMIT 1"
    names = [column.name for column in made(statement, answer).columns]
    assert names == ["rank", "n", "n_error_bar", "rank_", "rank__low", "rank__high"]


PRICE = "a quarter would take 16.9% of each phase's budget: name at_most 0.18; ask about all of hour together"


def test_queries_of_one_statement_have_equal_parts_of_its_price() -> None:
    for n_queries, words in (
        (1, "add COSTING AT MOST 18%"),
        (2, "add COSTING AT MOST 36%"),
        (5, "add COSTING AT MOST 90%"),
        (6, "ask in a statement of its own"),
    ):
        said = in_sql(PRICE, n_queries=n_queries)
        assert f"16.9% of each phase's budget: {words}; ask about all" in said
        assert "at_most" not in said
    assert "name a price with COSTING AT MOST" in in_sql("or name a price with at_most")


def test_each_price_can_be_typed() -> None:
    for at_most in ("0.18", "0.029", "1", "0.00012"):
        typed = in_sql(f"a tenth would take it: name at_most {at_most}")
        found = as_at_most(typed.rpartition(": add COSTING AT MOST ")[2])
        assert found == pytest.approx(float(at_most))
