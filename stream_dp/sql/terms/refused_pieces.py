"""Pieces of SQL that are read and not answered, with what is asked instead."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault, short

AGGREGATES: Final = (
    *(exp.Sum, exp.Avg, exp.Quantile, exp.ApproxQuantile, exp.PercentileCont, exp.PercentileDisc),
    *(exp.Median, exp.Min, exp.Max, exp.Mode),
)

_IN_CONDITIONS: Final[tuple[tuple[Any, str, str], ...]] = (
    ((exp.Glob, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo),
     "patterns are not answered", "use LIKE, or list the values with IN"),
    ((exp.Query, exp.Exists), "subqueries are not answered", "write the condition itself"),
    ((exp.Literal, exp.Null, exp.Neg), "a constant is not a condition", "compare an attribute with it"),
    ((exp.Placeholder, exp.Parameter), "parameters are not filled in", "write the constant itself"),
    (exp.Case, "CASE is not answered", "combine conditions with AND and OR"),
    (exp.Cast, "casts are not answered", "compare the attribute as it is"),
    (exp.Connector, "only AND, OR and NOT combine conditions", "use only these"),
    (AGGREGATES, "an aggregate is not a condition", "write SELECT before it"),
    ((exp.StartsWith, exp.EndsWith, exp.Contains, exp.Left, exp.Right, exp.Substring),
     "functions are not answered", "use LIKE 'A%'"),
    (exp.Func, "functions are not answered", "compare the attribute itself with a constant"),
    (exp.Predicate, "a comparison is not allowed here", "compare one at a time"),
    (exp.Binary, "arithmetic is not answered", "compute the constant, and compare the attribute itself"),
)  # fmt: skip

_IN_TABLES: Final[tuple[tuple[Any, str, str], ...]] = (
    ((exp.CovarPop, exp.CovarSamp),
     "covariances are not answered", "ask CORR, and multiply it by the STDDEV of both attributes"),
    (exp.ApproxDistinct,
     "distinct values are not counted", "GROUP BY the attribute counts each declared value"),
    (exp.Window, "only SUM, AVG, LAG and LEAD have OVER", "omit OVER, and compute it from the table"),
    ((exp.ArrayAgg, exp.GroupConcat), "values of single rows are never shown", "GROUP BY the attribute"),
)  # fmt: skip


def refused_condition(node: Any) -> Fault:
    """Returns why a piece is not a condition or a constant."""
    of_name = isinstance(node, exp.Binary | exp.Func)
    for kinds, problem, fix in _IN_CONDITIONS:
        if isinstance(node, kinds):
            return Fault(node, f"{problem}: {short(node)}", fix, of_name=of_name)
    problem = f"{short(node)} is not a condition that can be asked"
    return Fault(node, problem, "compare an attribute with a constant", of_name=of_name)


def refused_value(node: Any) -> Fault:
    """Returns why a piece is not a value of a table."""
    for kinds, problem, fix in _IN_TABLES:
        if isinstance(node, kinds):
            return Fault(node, f"{problem}: {short(node)}", fix)
    if isinstance(node, exp.Star):
        fix = "ask for COUNT(*), or see stream-dp synthesize"
        return Fault(node, f"rows are never shown: {short(node)}", fix, sort="rows")
    return Fault(
        node,
        f"{short(node)} is not answered",
        "use COUNT(*), SUM, AVG, STDDEV, MEDIAN, MIN, MAX or QUANTILE(x, 0.9) of an attribute x, CORR(x, y), "
        "and + - * / of them",
        of_name=True,
    )
