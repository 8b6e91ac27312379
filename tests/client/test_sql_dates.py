"""SQL about dates and ordered categories."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import InvalidQuery
from stream_dp.sql import parse, plan

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


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("ordered_at >= DATE '2026-03-01'", {"attribute": "ordered_at", "ge": "2026-03-01"}),
        ("DATE '2026-03-01' > ordered_at", {"attribute": "ordered_at", "lt": "2026-03-01"}),
        ("ordered_at = '2026-Q1'", {"attribute": "ordered_at", "eq": "2026-Q1"}),
        ("ordered_at BETWEEN DATE '2026-03-01' AND DATE '2026-04-30'",
         {"attribute": "ordered_at", "between": ["2026-03-01", "2026-04-30"]}),
        ("ordered_at < TIMESTAMP '2026-03-01 00:00:00'",
         {"attribute": "ordered_at", "lt": "2026-03-01 00:00:00"}),
        ("ordered_at BETWEEN '2026-03-01 00:00:00.000' AND '2026-03-31 23:59:59.999'",
         {"attribute": "ordered_at", "between": ["2026-03-01T00:00:00", "2026-03-31T23:59:59"]}),
        ("ordered_at >= TIMESTAMP '2026-03-01 00:00Z'",
         {"attribute": "ordered_at", "ge": "2026-03-01T00:00:00"}),
        ("ordered_at < TIMESTAMPTZ '2026-03-01 05:30:00+05:30'",
         {"attribute": "ordered_at", "lt": "2026-03-01T00:00:00"}),
        ("day > '2026-01-02T23:59:59.999999Z'", {"attribute": "day", "gt": "2026-01-02T23:59:59"}),
        ("DATE_TRUNC('day', day) = '2026-01-02T00:00:00Z'", {"attribute": "day", "eq": "2026-01-02"}),
        ("EXTRACT(MONTH FROM ordered_at) = 12", {"attribute": "ordered_at", "eq": "2026-12"}),
        ("EXTRACT(YEAR FROM ordered_at) >= 2026",
         {"attribute": "ordered_at", "between": ["2026-01", "2027-02"]}),
        ("QUARTER(ordered_at) IN (4)", {"attribute": "ordered_at", "between": ["2026-10", "2026-12"]}),
        ("DATE_PART('month', ordered_at) = 1", {"attribute": "ordered_at", "in": ["2026-01", "2027-01"]}),
        (
            "EXTRACT(MONTH FROM ordered_at) <> 1",
            {
                "all": [
                    {"attribute": "ordered_at", "between": ["2026-01", "2027-02"]},
                    {"not": {"attribute": "ordered_at", "in": ["2026-01", "2027-01"]}},
                ]
            },
        ),
        ("EXTRACT(DAY FROM day) = 31", {"attribute": "day", "eq": "2026-01-31"}),
        ("EXTRACT(ISODOW FROM day) = 7",
         {"attribute": "day", "in": [f"2026-01-{d:02}" for d in (4, 11, 18, 25)]}),
        ("EXTRACT(DOW FROM weekday) IN (0, 6)", {"attribute": "weekday", "between": ["Sat", "Sun"]}),
        ("EXTRACT(HOUR FROM hour) BETWEEN 9 AND 17", {"attribute": "hour", "between": ["09", "17"]}),
        ("hour < 12", {"attribute": "hour", "lt": 12}),
        ("DATE_TRUNC('month', day) >= '2026-01-01'", {"attribute": "day", "ge": "2026-01"}),
        ("DATE_TRUNC('week', day) = DATE '2026-01-05'", {"attribute": "day", "eq": "2026-W02"}),
        ("DATE_TRUNC('day', day) <= '2026-01-02 23:59:59.999'", {"attribute": "day", "le": "2026-01-02"}),
        ("DATE_TRUNC('week', day) >= '2026-01-07'", {"attribute": "day", "ge": "2026-W03"}),
        ("DATE_TRUNC('day', day) > '2026-Q1'", {"attribute": "day", "gt": "2026-03-31"}),
        ("DATE_TRUNC('month', ordered_at) BETWEEN '2026-03-02' AND '2026-05-31 12:00:00'",
         {"attribute": "ordered_at", "between": ["2026-04", "2026-05"]}),
        ("EXTRACT(MONTH FROM ordered_at) IN (12, NULL)", {"attribute": "ordered_at", "eq": "2026-12"}),
        ("DATE_TRUNC('day', day) IN ('2026-01-05', NULL)", {"attribute": "day", "eq": "2026-01-05"}),
        ("CAST(day AS DATE) IN (DATE '2026-01-05', '2026-01-07')",
         {"attribute": "day", "in": ["2026-01-05", "2026-01-07"]}),
        ("day IS NULL", {"attribute": "day", "is_missing": True}),
        ("size >= 'M'", {"attribute": "size", "ge": "M"}),
        ("size BETWEEN 'S' AND 'M'", {"attribute": "size", "between": ["S", "M"]}),
    ],
)  # fmt: skip
def test_a_condition_on_a_date_becomes_one_on_whole_periods(
    sql: str, where: dict[str, Any]
) -> None:
    assert parse(sql, ORDERS) == {"kind": "predicate", "where": where}


def test_the_part_of_a_date_outside_the_bounds_or_missing_is_unknown() -> None:
    """Neither a comparison nor its negation holds for it."""
    first, last = "2026-01-01", "2026-01-31"
    assert parse("NOT (EXTRACT(DAY FROM day) = 31)", ORDERS)["where"] == {
        "attribute": "day",
        "between": [first, "2026-01-30"],
    }
    both = parse("EXTRACT(DAY FROM day) = 31 OR EXTRACT(DAY FROM day) <> 31", ORDERS)["where"]
    assert both == {
        "any": [
            {"attribute": "day", "eq": last},
            {"attribute": "day", "between": [first, "2026-01-30"]},
        ]
    }


@pytest.mark.parametrize(
    ("sql", "group_by"),
    [
        ("SELECT ordered_at, COUNT(*) GROUP BY ordered_at", ["ordered_at"]),
        ("SELECT DATE_TRUNC('month', ordered_at), COUNT(*) GROUP BY DATE_TRUNC('month', ordered_at)",
         ["ordered_at"]),
        ("SELECT EXTRACT(HOUR FROM hour), size, COUNT(*) GROUP BY HOUR(hour), size", ["hour", "size"]),
        ("SELECT COUNT(*) GROUP BY EXTRACT(DOW FROM weekday)", ["weekday"]),
        ("SELECT COUNT(*) GROUP BY CAST(day AS DATE)", ["day"]),
    ],
)  # fmt: skip
def test_groups_by_a_function_of_a_date_are_its_periods(sql: str, group_by: list[str]) -> None:
    assert parse(sql, ORDERS) == {"kind": "table", "group_by": group_by, "where": None}


@pytest.mark.parametrize(
    ("sql", "problem", "fix"),
    [
        ("EXTRACT(DAY FROM ordered_at) = 3",
         "EXTRACT(DAY FROM ordered_at) is not the same for all dates of a month of ordered_at",
         "ask for YEAR or QUARTER or MONTH"),
        ("EXTRACT(HOUR FROM day) = 3", "is not the same for all dates of a day of day", "ask for YEAR"),
        ("SELECT COUNT(*) GROUP BY DATE_TRUNC('year', ordered_at)",
         "this table is worked out from answers, so this is not one query", "ask it as a statement"),
        ("MONTH(amount) = 1", "amount is a number and no date", "compare the attribute itself"),
        ("DATE_TRUNC('month', day) = '2026-01-02'", "does not begin a month", "the first day of a month"),
        ("ordered_at = 'March'", "'March' is not a date, but ordered_at is", "write DATE '2026-03-14'"),
        ("ordered_at >= 2026", "2026 is not a date", "write DATE '2026-03-14'"),
        ("ordered_at >= '2026-13-01T00:00:00Z'", "is not a date", "write DATE '2026-03-14'"),
        ("ordered_at >= '2026-03-31 23:59:59.999'",
         "'2026-03-31 23:59:59.999' has a fraction of a second, at which no period begins or ends",
         "compare with a full second"),
        ("ordered_at > CURRENT_DATE", "the present cannot be asked about", "write a date"),
        ("weekday = 'Samstag'", "is not a period of weekday", "write 'Mon' to 'Sun', or 1 to 7"),
        ("hour >= 24", "24 is not a period of hour", "write '00' to '23', or 0 to 23"),
        ("MONTH(ordered_at) = 'May'", "'May' is not a number", "write it without quotes"),
        ("MONTH(ordered_at) = MONTH(day)", "functions are not answered", "with a constant"),
        ("size > 'other'", "unlisted values have no place in the order", "compare a listed value"),
        ("status = DATE '2026-01-01'", "casts are not answered", "compare the attribute as it is"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_of_a_date_is_refused_with_a_way_that_can(
    sql: str, problem: str, fix: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse(sql, ORDERS)
    assert problem in refused.value.problem
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("sql", "queries"),
    [
        ("SELECT DATE_TRUNC('month', ordered_at) AS m, COUNT(*) GROUP BY 1 ORDER BY m DESC LIMIT 3",
         [{"kind": "table", "group_by": ["ordered_at"], "where": None}]),
        ("SELECT EXTRACT(HOUR FROM hour) AS h, AVG(amount) GROUP BY h",
         [{"kind": "sum", "attribute": "amount", "mean": True, "group_by": ["hour"], "where": None}]),
        (
            "SELECT COUNT(*) FROM x WHERE EXTRACT(MONTH FROM ordered_at) = 12 AND size >= 'M'",
            [
                {
                    "kind": "predicate",
                    "where": {
                        "all": [
                            {"attribute": "ordered_at", "eq": "2026-12"},
                            {"attribute": "size", "ge": "M"},
                        ]
                    },
                }
            ],
        ),
        ("SELECT DATE_TRUNC('year', ordered_at), COUNT(*) GROUP BY 1",
         [{"kind": "predicate", "where": {"attribute": "ordered_at", "between": ["2026-01", "2026-12"]}},
          {"kind": "predicate", "where": {"attribute": "ordered_at", "between": ["2027-01", "2027-02"]}},
          {"kind": "predicate",
           "where": {"not": {"attribute": "ordered_at", "between": ["2026-01", "2027-02"]}}}]),
    ],
)  # fmt: skip
def test_a_statement_groups_by_periods_and_by_longer_ones(
    sql: str, queries: list[dict[str, Any]]
) -> None:
    """The dates outside the bounds have no longer period, so they are a group without a value."""
    assert list(plan(sql, ORDERS).queries) == queries


def test_a_part_of_a_date_groups_all_periods_that_have_it() -> None:
    found = plan("SELECT EXTRACT(QUARTER FROM ordered_at) AS q, COUNT(*) GROUP BY q", ORDERS)
    first, *others = found.queries
    assert first["where"] == {
        "attribute": "ordered_at",
        "in": ["2026-01", "2026-02", "2026-03", "2027-01", "2027-02"],
    }
    assert len(others) == 4  # three quarters, and the dates outside the bounds
    month = {"name": "month", "type": "date", "by": "month_of_year"}
    for attribute, n_queries in ((month, 4), ({**month, "missing": True}, 5)):
        again = plan("SELECT QUARTER(month) AS q, COUNT(*) GROUP BY q", [attribute])
        assert len(again.queries) == n_queries, "no date is without a group"
    with pytest.raises(InvalidQuery, match="does not lie in one group"):
        plan("SELECT DATE_TRUNC('week', ordered_at), COUNT(*) GROUP BY 1", ORDERS)
    with pytest.raises(InvalidQuery, match="is not the same for all dates of a month"):
        plan("SELECT EXTRACT(DAY FROM ordered_at), COUNT(*) GROUP BY 1", ORDERS)
