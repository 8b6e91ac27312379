"""WITHIN and COSTING AT MOST, as fields of the queries of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.precision_texts import Clauses
from stream_dp.sql.plan.statement_plan import StatementPlan
from stream_dp.sql.reading.faults import Fault

_KINDS: Final = ("predicate", "table", "sum", "share", "quantile", "correlation")
"""The kinds of queries of which one may say how precise the answer must be, and what it may cost."""


def with_clauses(plan: StatementPlan, clauses: Clauses, select: Any) -> StatementPlan:
    """Returns a plan with the clauses, which hold for each query, and for all of them together.

    Args:
        plan: The plan.
        clauses: The clauses.
        select: The statement, as sqlglot reads it.

    Raises:
        Fault: Its queries cannot have these clauses.
    """
    if not clauses.fields:
        return plan
    error, at_most = clauses.fields.get("error"), clauses.fields.get("at_most")
    is_one = len(plan.queries) == 1
    for asked in plan.queries:
        if asked["kind"] not in _KINDS:
            fix = "omit them: a look of this kind has a fixed price" if is_one else "ask it alone"
            raise Fault(clauses.at, f"{asked['kind']} has neither WITHIN nor COSTING AT MOST", fix)
        if isinstance(error, dict):
            if not is_one:
                fix = "write WITHIN 0.5% OF ROWS"
                raise Fault(clauses.at, "this statement asks several queries", fix)
            error = _checked(asked, error, select, clauses.at)
    fields = {"error": error, "at_most": at_most if is_one else None}
    said = {name: value for name, value in fields.items() if value is not None}
    queries = tuple({**asked, **said} for asked in plan.queries)
    return replace(plan, queries=queries, at_most=None if is_one else at_most)


def _checked(
    asked: Mapping[str, Any], error: dict[str, float], select: Any, at: int
) -> dict[str, float]:
    """Returns an error that is relative to an answer, or a number, as the one query takes it."""
    kind, problem, fix = asked["kind"], "", "write WITHIN 0.5% OF ROWS"
    is_relative = "relative" in error
    if kind in ("share", "correlation"):
        fix = f"write WITHIN 0.01 for a {kind} that is at most 0.01 off"
        if not is_relative and error["value"] >= 1.0:
            problem = f"the error of a {kind} is not below 1"
    elif kind == "quantile":
        problem = "the error of a quantile is a share of the rows"
    elif kind == "sum" and is_relative and not asked.get("count_rows"):
        fix = f"write WITHIN and a number in units of {asked['attribute']}, or WITHIN 0.5% OF ROWS"
    elif not is_relative:
        is_mean = select.find(exp.Avg) is not None
        if is_mean and select.find(exp.Sum) is not None:
            problem = "an error in numbers is for SUM or for AVG, not for both"
        elif asked.get("count_rows"):
            problem = "an error in numbers is for SUM or AVG alone, without COUNT(*)"
        elif kind == "sum" and _computes(select):
            problem = "an error in numbers is for SUM or AVG of one attribute, without arithmetic"
        elif is_mean:
            error = {"mean": error["value"]}
    if is_relative and kind not in ("predicate", "quantile"):
        problem = "an error relative to the answer is for one COUNT only"
    if problem:
        raise Fault(at, problem, fix)
    return error


def _computes(select: Any) -> bool:
    """Returns whether a SELECT has arithmetic on what it selects."""
    arithmetic = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)
    return any(item.find(*arithmetic) is not None for item in select.expressions)
