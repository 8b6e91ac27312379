from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.queries.conditions import compile_where
from stream_dp.sql import parse
from stream_dp.sql.terms import possible_conditions
from stream_dp.sql.terms.possible_conditions import Possible
from tests.sql.schemas import MORE, of, universe_of

UNIVERSE = universe_of(MORE)
SCHEMA = {attribute["name"]: attribute for attribute in MORE}
CONDITIONS = [
    "city = 'Bonn'", "city IN ('Bonn', 'Graz')", "city = 'other'", "city IS NULL", "age >= 18", "age < 65",
    "age > 64", "age <= 17", "age BETWEEN 18 AND 64", "age IS NULL", "share < 0.5", "share >= 2.0", "late",
    "grade > 'low'", "grade > 'high'", "grade <= 'low'", "grade BETWEEN 'low' AND 'high'", "grade = 'other'",
    "mon < '2025-10-01'", "mon >= DATE '2026-02-01'", "mon = '2026-01'", "mon IN ('2026-01', '2025-12')",
    "wd = 'Sat'", "wd > 6", "EXTRACT(DOW FROM wd) = 0",
]  # fmt: skip


@given(
    chosen=st.lists(st.tuples(st.booleans(), st.sampled_from(CONDITIONS)), min_size=1, max_size=5),
    connective=st.sampled_from([" AND ", " OR "]),
)
def test_a_condition_is_possible_where_the_worker_finds_a_cell(
    chosen: list[tuple[bool, str]], connective: str
) -> None:
    sql = connective.join(f"NOT ({text})" if negated else text for negated, text in chosen)
    where = parse(sql, MORE)["where"]
    predicate = compile_where(UNIVERSE, where, max_depth=200, max_nodes=5000)
    possible = predicate.mask.any() if predicate.constant is None else predicate.constant
    assert Possible(SCHEMA)(where) == bool(possible)


AGE_20, AGE_21 = of("age", eq=20), of("age", eq=21)


@pytest.mark.parametrize(
    ("where", "possible"),
    [
        (None, True),
        ({"all": []}, True),
        ({"any": []}, False),
        # What cuts a bin may hold for some of its values, and the worker refuses it.
        ({"all": [AGE_20, AGE_21]}, True),
        (of("city", ge=3), True),
    ],
)
def test_what_is_not_clear_is_possible(where: Any, possible: bool) -> None:
    assert Possible(SCHEMA)(where) == possible


def test_what_would_take_long_to_find_out_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each combination of groups once took all cells times all terms."""
    many = {
        name: {"name": name, "type": "category", "values": [f"v{i}" for i in range(size)]}
        for name, size in (("a", 1000), ("b", 1000), ("c", 20), ("d", 20))
    }
    assert Possible(many)({"all": [{"any": []}, of("a", eq="v0"), of("b", eq="v0")]})
    monkeypatch.setattr(possible_conditions, "_MOST_STEPS", 5_000)
    possible = Possible(many)
    terms = [[of("c", eq="v0"), of("d", eq=f"v{i}"), of("c", eq="v1")] for i in range(20)]
    found = [possible({"all": each}) for each in terms]
    assert 0 < found.count(False) < 20
    assert found == sorted(found), "it is told apart while steps are left"
