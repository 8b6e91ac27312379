"""``SUM(LEAST(x, 21))`` asks one query, whatever stands next to it, for numbers up to an edge."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp import sql
from stream_dp.errors import InvalidQuery
from tests.sql.conftest import SALES

LIMITED = {"kind": "sum", "attribute": "amount", "up_to": 20.0}
MEAN = {**LIMITED, "mean": True}


def queries(statement: str) -> list[dict[str, Any]]:
    planned = sql.plan(statement, SALES, dataset="sales")
    return [{k: v for k, v in query.items() if v is not None} for query in planned.queries]


@pytest.mark.parametrize(
    "least", ["LEAST(amount, 20)", "LEAST(20.0, amount)", "(LEAST(amount, 20))"]
)
def test_a_sum_and_a_mean_up_to_an_edge_are_one_query(least: str) -> None:
    assert queries(f"SELECT SUM({least}), AVG({least}) FROM sales") == [LIMITED]


def test_rows_come_with_it_and_another_limit_is_another_query() -> None:
    counted = {**MEAN, "count_rows": True}
    assert queries("SELECT COUNT(*), AVG(LEAST(amount, 20)) FROM sales") == [counted]
    assert queries("SELECT COUNT(amount), AVG(LEAST(amount, 20)) FROM sales") == [MEAN]
    whole = {"kind": "sum", "attribute": "amount", "mean": True}
    assert queries("SELECT AVG(LEAST(amount, 20)), AVG(amount) FROM sales") == [MEAN, whole]
    total = {"kind": "sum", "attribute": "amount"}
    assert queries("SELECT AVG(LEAST(amount, 20)), SUM(amount) FROM sales") == [MEAN, total]


def test_one_aggregate_by_itself_is_the_same_query() -> None:
    asked = sql.parse("SELECT AVG(LEAST(amount, 20)) WHERE paid", SALES)
    assert {**asked, "where": None} == {**MEAN, "where": None}


@pytest.mark.parametrize(
    "of", ["LEAST(amount)", "LEAST(amount, 20, 30)", "LEAST(amount, amount)", "LEAST(paid, 1)"]
)
def test_other_forms_are_refused(of: str) -> None:
    with pytest.raises(InvalidQuery):
        sql.plan(f"SELECT SUM({of}), COUNT(*) FROM sales WHERE paid", SALES, dataset="sales")
