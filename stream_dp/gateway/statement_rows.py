"""From answers to the rows that a client receives: the selected columns, and behind them their bars."""

from __future__ import annotations

from stream_dp.client import ResultTable
from stream_dp.client.statements.result_table import BAR, UNRECORDED
from stream_dp.client.statements.statement import Statement
from stream_dp.gateway.protocol.server_messages import Columns
from stream_dp.gateway.protocol.statement_result import StatementResult
from stream_dp.gateway.published_facts import TYPE_OF_COLUMN
from stream_dp.gateway.shared_answers import Answers
from stream_dp.sql import StatementPlan


def columns_of(plan: StatementPlan, *, has_bars: bool, has_versions: bool) -> Columns:
    """Returns the columns of a plan. Those of bars come last, so that positions stay.

    Args:
        plan: The plan.
        has_bars: Whether columns of bars are asked for.
        has_versions: Whether the data set had other attributes, so that rows may be unrecorded.
    """
    found = [(output.name, TYPE_OF_COLUMN[output.type]) for output in plan.outputs]
    if has_bars:
        found += [(f"{one.name}{BAR}", "float8") for one in plan.outputs if one.has_bar]
    if has_bars and has_versions:
        found += [(f"{name}{UNRECORDED}", "int8") for name, _ in plan.counts]
    return tuple(found)


def rows_of(
    text: str,
    dataset: str,
    plan: StatementPlan,
    answers: Answers,
    *,
    has_bars: bool,
    has_versions: bool,
) -> StatementResult:
    """Returns what a statement gives, with its price and its notes as notices.

    The arguments are those of ``columns_of`` as well.
    """
    table = Statement(text, dataset, plan).table(answers)
    assert isinstance(table, ResultTable), "all of these are answers"
    selected, bars, at = list[int](), list[int](), 0
    for output in plan.outputs:
        selected.append(at)
        if output.has_bar:
            bars.append(at + 1)
        at += 1 + output.has_bar
    places = [*selected, *bars] if has_bars else selected
    columns = columns_of(plan, has_bars=has_bars, has_versions=has_versions)
    more = len(columns) - len(places)  # of rows that are unrecorded; absent where all are recorded
    is_told = more and at < len(table.columns) and table.columns[at].name.endswith(UNRECORDED)
    rows = [
        (*(row[place] for place in places), *(row[at : at + more] if is_told else (0,) * more))
        for row in table.rows
    ]
    notices = [table.costs, *table.notes] if table.costs else list(table.notes)
    return StatementResult(columns, rows, notices=notices)
