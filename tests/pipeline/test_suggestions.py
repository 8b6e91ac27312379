"""How useful an answer is, in words: what more would take, and what to ask instead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Aim, Target
from stream_dp.core.outcome import Path, Sum, Summed, Use, Useful
from stream_dp.core.queries.query import (
    EVERYTHING,
    Indicator,
    LinearQuery,
    Predicate,
    Product,
    total_of,
)
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import QueryFields
from stream_dp.pipeline.queries.usefulness import Precision, use_fields

UNIVERSE = Universe(
    (
        Number("stay", (1, 7, 21, 60), measure=Measure(1.0, 0.0, 365.0)),
        Number("age", (18, 65), measure=Measure(1.0, 0.0, 120.0)),
        Category("ward", ("a", "b")),
    )
)
AIM = Aim(0.1, 0.25)
COUNT = QueryFields(query_id="q", kind="predicate")
AGAIN = "ask again when more phases are open"
LIMIT = "or limit large values: "


def suggested(**fields: Any) -> str:
    query = QueryFields.model_validate({"query_id": "q", "kind": "predicate", **fields})
    use = Use(Useful.NO, 2.0, 7.0, 2.0)
    return said(use, query)["suggestion"]


def said(
    use: Use,
    query: QueryFields = COUNT,
    precision: Precision = Precision(),  # noqa: B008 - it never changes
    *,
    left: float = 1.0,
) -> dict[str, Any]:
    """The fields of an answer."""
    return use_fields(use, AIM, query, UNIVERSE, precision, more_phases=False, left=left)


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ({"mean": True}, f"{LIMIT}AVG(LEAST(stay, 60))"),
        ({}, f"{LIMIT}SUM(LEAST(stay, 60))"),
        ({"up_to": 21}, AGAIN),
        ({"group_by": ["ward"], "up_to": 21}, "ask about all of ward together"),
    ],
)
def test_a_sum_of_few_large_values_is_proposed_up_to_an_edge(
    fields: dict[str, Any], last: str
) -> None:
    assert suggested(kind="sum", attribute="stay", **fields).split("; ")[-1] == last


def test_no_limit_is_proposed_where_it_would_hardly_help() -> None:
    assert LIMIT not in suggested(kind="sum", attribute="age")
    assert LIMIT not in suggested(kind="table", group_by=["ward"])
    assert LIMIT not in suggested(kind="quantile", attribute="stay", rank=0.5)


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize(
    ("use", "suggestion"),
    [
        (Use(Useful.YES, 0.08), None),
        (Use(Useful.ROUGH, 0.228), "within 22.8%"),
        (
            Use(Useful.ROUGH, 0.25, 0.169),
            "within a quarter; a tenth would take 16.9% of each phase's budget: name at_most 0.19",
        ),
        (
            Use(Useful.NO, 2.0, 0.4, 0.064),
            (
                "a quarter would take 6.4% of each phase's budget: name at_most 0.071; "
                f"a tenth would take 40% of each phase's budget: name at_most 0.44; {AGAIN}"
            ),
        ),
        (
            Use(Useful.NO, 2.0, 1.05, 0.169),
            (
                "a quarter would take 16.9% of each phase's budget: name at_most 0.19; "
                f"a tenth would take more than the whole budget; {AGAIN}"
            ),
        ),
        (
            Use(Useful.NO, 2.0, 7.0, 1.2),
            f"a quarter would take more than the whole budget; {AGAIN}",
        ),
        (Use(Useful.NO, 2.0, guarded=True), None),
    ],
)
def test_a_price_stands_with_what_to_name_for_it(use: Use, suggestion: str | None) -> None:
    assert said(use)["suggestion"] == suggestion


def test_a_price_above_what_is_left_is_not_proposed() -> None:
    assert said(Use(Useful.ROUGH, 0.25, 0.169), left=0.177)["suggestion"] == (
        "within a quarter; a tenth would take 16.9% of each phase's budget, which is more than is left"
    )


# ---------------------------------------------------------------- means, shares and correlations

DELAYS = Universe((Number("delay", (-30, 0, 60), measure=Measure(1.0, -60.0, 180.0)),))


def precision(total: Any, *cells: tuple[float, float]) -> Precision:
    """That of means, each with its bar, of groups of a thousand rows."""
    query = LinearQuery(EVERYTHING, range(1), (), total, target=Target(of_mean=True))
    sums = [Sum(1000.0, 30.0, 0.0, None, mean, bar) for mean, bar in cells]
    return Precision.of(query, Summed(tuple(sums), 9000, 0.99, Path.MEASURED), 0.01)


def delays(*cells: tuple[float, float]) -> Precision:
    return precision(total_of(0, DELAYS.attributes[0]), *cells)  # type: ignore[arg-type]


def test_the_bar_of_a_mean_is_in_its_own_unit() -> None:
    """A mean of 30 is 90 from the nearer end of its range: 18 are a fifth of that, and 9 a tenth."""
    assert said(Use(Useful.ROUGH, 0.2, 0.3), precision=delays((30.0, 18.0)))["suggestion"] == (
        "± 18; ± 9.0 would take 30% of each phase's budget: name at_most 0.33"
    )


def test_the_bar_of_a_share_is_in_percentage_points() -> None:
    share = Indicator(Predicate.conjunction({2: np.array([True, False])}))
    assert said(Use(Useful.ROUGH, 0.236, 0.0434), precision=precision(share, (0.047, 0.047)))[
        "suggestion"
    ] == (
        "± 4.7 percentage points; ± 2.0 percentage points would take 4.34% of each phase's budget: "
        "name at_most 0.048"
    )


def test_the_bar_of_a_correlation_is_that_of_itself() -> None:
    product = Product((0, 1), ((0.0, 1.0), (0.0, 1.0)))
    assert said(Use(Useful.ROUGH, 0.114, 0.02), precision=precision(product, (0.06, 0.057)))[
        "suggestion"
    ] == ("± 0.057; ± 0.050 would take 2% of each phase's budget: name at_most 0.022")


@pytest.mark.parametrize("useful", [Useful.YES, Useful.ROUGH])
def test_a_mean_whose_bar_leaves_its_sign_open_is_no_basis_for_a_decision(useful: Useful) -> None:
    found = said(Use(useful, 0.228, 0.3), precision=delays((30.0, 10.0), (3.0, 12.0)))
    assert found["useful"] == "no"
    assert found["suggestion"].startswith("± 12 leaves it open whether it is above 0; ± 6.3 would")
    found = said(Use(useful, 0.228, 0.3), precision=delays((30.0, 10.0), (13.0, 12.0)))
    assert found["useful"] == useful.value


def test_without_a_bar_nobody_knows_the_unit() -> None:
    found = said(Use(Useful.NO, math.inf, 0.3, 0.048), precision=delays((3.0, math.inf)))
    assert found["suggestion"].startswith("a rough answer would take 4.8% of each phase's budget:")
    assert "; a precise one would take 30% of" in found["suggestion"]
