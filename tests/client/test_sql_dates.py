"""SQL about dates and ordered categories."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import InvalidQuery
from stream_dp.sql import example, parse, plan
from tests.sql.schemas import counted, of

ORDERS: list[dict[str, Any]] = [
    {"name": "ordered_at", "type": "date", "by": "month", "from": "2026-01-01", "until": "2027-03-01"},
    {"name": "day", "type": "date", "by": "day", "from": "2026-01-01", "until": "2026-02-01",
     "missing": True},
    {"name": "hour", "type": "date", "by": "hour_of_day"},
    {"name": "weekday", "type": "date", "by": "weekday"},
    {"name": "size", "type": "category", "values": ["S", "M", "L"], "ordered": True, "other": True},
    {"name": "status", "type": "category", "values": ["paid", "2026-01-01"]},
    {"name": "amount", "type": "number", "edges": [10, 50]},
]  # fmt: skip


DECEMBER = of("ordered_at", eq="2026-12")


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("ordered_at >= DATE '2026-03-01'", of("ordered_at", ge="2026-03-01")),
        ("DATE '2026-03-01' > ordered_at", of("ordered_at", lt="2026-03-01")),
        ("'2026-03-01'::date <= ordered_at", of("ordered_at", ge="2026-03-01")),
        ("ordered_at = '2026-Q1'", of("ordered_at", eq="2026-Q1")),
        ("ordered_at BETWEEN DATE '2026-03-01' AND DATE '2026-04-30'",
         of("ordered_at", between=["2026-03-01", "2026-04-30"])),
        ("ordered_at < TIMESTAMP '2026-03-01 00:00:00'", of("ordered_at", lt="2026-03-01 00:00:00")),
        ("ordered_at BETWEEN '2026-03-01 00:00:00.000' AND '2026-03-31 23:59:59.999'",
         of("ordered_at", between=["2026-03-01T00:00:00", "2026-03-31T23:59:59"])),
        ("ordered_at >= TIMESTAMP '2026-03-01 00:00Z'", of("ordered_at", ge="2026-03-01T00:00:00")),
        ("ordered_at < TIMESTAMPTZ '2026-03-01 05:30:00+05:30'", of("ordered_at", lt="2026-03-01T00:00:00")),
        ("day > '2026-01-02T23:59:59.999999Z'", of("day", gt="2026-01-02T23:59:59")),
        ("DATE_TRUNC('day', day) = '2026-01-02T00:00:00Z'", of("day", eq="2026-01-02")),
        ("EXTRACT(MONTH FROM ordered_at) = 12", DECEMBER),
        ("12 = MONTH(ordered_at)", DECEMBER),
        ("EXTRACT(YEAR FROM ordered_at) >= 2026", of("ordered_at", between=["2026-01", "2027-02"])),
        ("QUARTER(ordered_at) IN (4)", of("ordered_at", between=["2026-10", "2026-12"])),
        ("DATE_PART('month', ordered_at) = 1", of("ordered_at", in_=["2026-01", "2027-01"])),
        ("EXTRACT(MONTH FROM ordered_at) = 13", {"any": []}),
        ("EXTRACT(MONTH FROM ordered_at) <> 1",
         {"all": [of("ordered_at", between=["2026-01", "2027-02"]),
                  {"not": of("ordered_at", in_=["2026-01", "2027-01"])}]}),
        ("EXTRACT(MONTH FROM ordered_at) IN (12, NULL)", DECEMBER),
        ("EXTRACT(MONTH FROM ordered_at) NOT IN (12, NULL)", {"any": []}),
        ("EXTRACT(DAY FROM day) = 31", of("day", eq="2026-01-31")),
        # The part of a date outside the bounds, or of a missing one, is unknown.
        ("NOT (EXTRACT(DAY FROM day) = 31)", of("day", between=["2026-01-01", "2026-01-30"])),
        ("EXTRACT(DAY FROM day) IS DISTINCT FROM 31", {"not": of("day", eq="2026-01-31")}),
        ("EXTRACT(ISODOW FROM day) = 7", of("day", in_=[f"2026-01-{d:02}" for d in (4, 11, 18, 25)])),
        ("EXTRACT(DOW FROM weekday) IN (0, 6)", of("weekday", between=["Sat", "Sun"])),
        ("EXTRACT(HOUR FROM hour) BETWEEN 9 AND 17", of("hour", between=["09", "17"])),
        ("9 <= HOUR(hour)", of("hour", between=["09", "23"])),
        ("hour < 12", of("hour", lt=12)),
        ("weekday = 'Sat'", of("weekday", eq="Sat")),
        ("DATE_TRUNC('month', day) >= '2026-01-01'", of("day", ge="2026-01")),
        ("DATE_TRUNC('week', day) = DATE '2026-01-05'", of("day", eq="2026-W02")),
        ("DATE_TRUNC('day', day) <= '2026-01-02 23:59:59.999'", of("day", le="2026-01-02")),
        ("DATE_TRUNC('day', day) < '2026-01-02 12:00'", of("day", lt="2026-01-03")),
        ("DATE_TRUNC('week', day) >= '2026-01-07'", of("day", ge="2026-W03")),
        ("'2026-01-07' >= DATE_TRUNC('week', day)", of("day", le="2026-W02")),
        ("DATE_TRUNC('day', day) > '2026-Q1'", of("day", gt="2026-03-31")),
        ("DATE_TRUNC('month', ordered_at) BETWEEN '2026-03-02' AND '2026-05-31 12:00:00'",
         of("ordered_at", between=["2026-04", "2026-05"])),
        ("DATE_TRUNC('day', day) IN ('2026-01-05', NULL)", of("day", eq="2026-01-05")),
        ("CAST(day AS DATE) IN (DATE '2026-01-05', '2026-01-07')",
         of("day", in_=["2026-01-05", "2026-01-07"])),
        ("day IS NULL", of("day", is_missing=True)),
        ("size >= 'M'", of("size", ge="M")),
        ("size BETWEEN 'S' AND 'M'", of("size", between=["S", "M"])),
        ("'M' < size", of("size", gt="M")),
    ],
)  # fmt: skip
def test_a_condition_on_a_date_becomes_one_on_whole_periods(
    sql: str, where: dict[str, Any]
) -> None:
    assert parse(sql, ORDERS) == counted(where)


@pytest.mark.parametrize(
    ("sql", "group_by"),
    [
        ("ordered_at, COUNT(*) GROUP BY ordered_at", ["ordered_at"]),
        ("DATE_TRUNC('month', ordered_at) AS m, COUNT(*) GROUP BY m", ["ordered_at"]),
        ("EXTRACT(HOUR FROM hour), size, COUNT(*) GROUP BY HOUR(hour), size", ["hour", "size"]),
        ("COUNT(*) GROUP BY EXTRACT(DOW FROM weekday)", ["weekday"]),
        ("COUNT(*) GROUP BY CAST(day AS DATE)", ["day"]),
    ],
)  # fmt: skip
def test_groups_by_a_function_of_a_date_are_its_periods(sql: str, group_by: list[str]) -> None:
    assert parse(f"SELECT {sql}", ORDERS) == {"kind": "table", "group_by": group_by, "where": None}


@pytest.mark.parametrize(
    ("sql", "problem", "fix"),
    [
        ("EXTRACT(DAY FROM ordered_at) = 3",
         "EXTRACT(DAY FROM ordered_at) is not the same for all dates of a month of ordered_at",
         "ask for YEAR or QUARTER or MONTH"),
        ("EXTRACT(HOUR FROM day) = 3", "is not the same for all dates of a day of day", "ask for YEAR"),
        ("SELECT COUNT(*) GROUP BY MONTH(ordered_at)", "this table is worked out", "as a statement"),
        ("SELECT COUNT(*) GROUP BY DATE_TRUNC('week', ordered_at)",
         "a month of ordered_at does not lie in one group of", "GROUP BY ordered_at"),
        ("SELECT DATE_TRUNC('month', ordered_at), COUNT(*)", "is not grouped by", "add GROUP BY"),
        ("MONTH(amount) = 1", "amount is a number and no date", "compare the attribute itself"),
        ("DATE_TRUNC('month', day) = '2026-01-02'", "does not begin a month", "the first day of a month"),
        ("DATE_TRUNC('decade', day) = '2020-01-01'", "does not begin a decade", "the first day of a decade"),
        ("ordered_at = 'March'", "'March' is not a date, but ordered_at is", "write DATE '2026-03-14'"),
        ("ordered_at >= 2026", "2026 is not a date", "write DATE '2026-03-14'"),
        ("ordered_at >= '2026-13-01T00:00:00Z'", "is not a date", "write DATE '2026-03-14'"),
        ("ordered_at = '2026-00-01'", "is not a date", "write DATE '2026-03-14'"),
        ("ordered_at >= '2026-03-31 23:59:59.999'",
         "'2026-03-31 23:59:59.999' has a fraction of a second, at which no period begins or ends",
         "compare with a full second"),
        ("ordered_at <= '2026-03-31 23:59:59.5'", "has a fraction of a second", "a full second"),
        ("DATE_TRUNC('day', day) < '2026-01-02 23:59:59.999'", "has a fraction of a second", "a full second"),
        ("weekday = 'Samstag'", "is not a period of weekday", "write 'Mon' to 'Sun', or 1 to 7"),
        ("weekday = 'saturday'", "is not a period of weekday", "did you mean 'Sat'? write 'Mon' to 'Sun'"),
        ("hour >= 24", "24 is not a period of hour", "write '00' to '23', or 0 to 23"),
        ("MONTH(ordered_at) = 'May'", "'May' is not a number", "write it without quotes"),
        ("MONTH(ordered_at) = MONTH(day)", "functions are not answered", "with a constant"),
        ("size > 'other'", "unlisted values have no place in the order", "compare a listed value"),
        ("size > 'XL'", "'XL' is not a listed value of size", "size = 'other'"),
        ("status > 'paid'", "status is a category and has no order", "its values are 'paid', '2026-01-01'"),
        ("status = DATE '2026-01-01'", "casts are not answered", "compare the attribute as it is"),
        ("amount > DATE '2026-01-01'", "casts are not answered", "compare the attribute as it is"),
        ("SELECT AVG(ordered_at)", "ordered_at is a date", "ask for AVG of a number"),
        ("ordered_at", "ordered_at is not a condition", "compare it"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_of_a_date_is_refused_with_a_way_that_can(
    sql: str, problem: str, fix: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse(sql, ORDERS)
    assert problem in refused.value.problem
    assert fix in refused.value.fix


@pytest.mark.parametrize("attribute", ORDERS, ids=lambda attribute: attribute["name"])
def test_the_example_of_each_attribute_can_be_asked(attribute: dict[str, Any]) -> None:
    assert parse(example([attribute]), ORDERS)["kind"] == "predicate"


IN_2026 = of("ordered_at", between=["2026-01", "2026-12"])
IN_2027 = of("ordered_at", between=["2027-01", "2027-02"])
OUTSIDE = {"not": of("ordered_at", between=["2026-01", "2027-02"])}


@pytest.mark.parametrize(
    ("sql", "queries"),
    [
        ("DATE_TRUNC('month', ordered_at) AS m, COUNT(*) GROUP BY 1 ORDER BY m DESC LIMIT 3",
         [{"kind": "table", "group_by": ["ordered_at"], "where": None}]),
        ("EXTRACT(HOUR FROM hour) AS h, AVG(amount) GROUP BY h",
         [{"kind": "sum", "attribute": "amount", "mean": True, "group_by": ["hour"], "where": None}]),
        ("DATE_TRUNC('year', ordered_at), COUNT(*) GROUP BY 1",
         [counted(IN_2026), counted(IN_2027), counted(OUTSIDE)]),
        ("EXTRACT(QUARTER FROM ordered_at) AS q, COUNT(*) WHERE ordered_at < '2026-07' GROUP BY q",
         [counted({"all": [of("ordered_at", lt="2026-07"), of("ordered_at", **rows)]}) for rows in (
             {"in_": ["2026-01", "2026-02", "2026-03", "2027-01", "2027-02"]},
             {"between": ["2026-04", "2026-06"]})]
         + [counted({"all": [of("ordered_at", lt="2026-07"), OUTSIDE]})]),
    ],
)  # fmt: skip
def test_a_statement_groups_by_periods_and_by_longer_ones(
    sql: str, queries: list[dict[str, Any]]
) -> None:
    """The dates outside the bounds have no longer period, so they are a group without a value."""
    assert list(plan(f"SELECT {sql}", ORDERS).queries) == queries


@pytest.mark.parametrize(("missing", "n_queries"), [(False, 4), (True, 5)])
def test_a_period_that_comes_again_leaves_no_date_without_a_group(
    missing: bool, n_queries: int
) -> None:
    month = {"name": "month", "type": "date", "by": "month_of_year", "missing": missing}
    found = plan("SELECT QUARTER(month) AS q, COUNT(*) GROUP BY q", [month])
    assert len(found.queries) == n_queries
