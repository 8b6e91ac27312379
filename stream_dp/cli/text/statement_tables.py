"""Statements at the terminal: their tables and their prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stream_dp.cli.text.reply_text import (
    answer_lines,
    bundle_lines,
    left_of,
    number,
    rank_within,
    rows_within,
    share,
)
from stream_dp.client import Column, Refusal, Rejection, ResultTable
from stream_dp.client.statements.result_table import Value
from stream_dp.client.statements.statement import Statement
from stream_dp.messages import READ_EACH, BudgetShares, CellsAnswer, QuotedBundle

Unasked: TypeAlias = Refusal | Rejection
"""Why a statement has no table."""


def in_json(found: ResultTable | Unasked) -> str:
    """What a statement gives, as JSON: its answer if that says all, or else its table."""
    if isinstance(found, Refusal):
        return found.answer.to_bytes().decode()
    if isinstance(found, Rejection):
        return found.rejected.to_bytes().decode()
    if found.answer is not None:
        return found.answer.to_bytes().decode()
    return json.dumps(found.to_document(), ensure_ascii=False)


def statement_lines(table: ResultTable) -> list[Text | Table]:
    """What a statement gives, at length: its answer if that says all, or else the columns that it asks for.

    Of an answer with very many cells people see some, see ``Table.to_see``.
    """
    answer = table.answer
    if answer is None:
        return result_lines(table)
    is_long = isinstance(answer, CellsAnswer) and len(answer.table.values) > READ_EACH
    return result_lines(table) if table.as_table and not is_long else answer_lines(answer)


def quoted_lines(
    quote: QuotedBundle | None, statements: Sequence[tuple[str, Statement]]
) -> list[Text | Table]:
    """A quote for statements at length.

    Args:
        quote: The quote. None if nothing is asked.
        statements: The position of each statement, and the statement.
    """
    if quote is None:
        return [Text("would be free: nothing is asked, because it follows from public facts alone")]
    names = []
    for position, one in statements:
        written, n = " ".join(one.text.split()), len(one.items)
        names += [
            (position, written if n == 1 else f"{written} ({i} of {n})") for i in range(1, n + 1)
        ]
    return bundle_lines(quote, names)


def result_lines(table: ResultTable) -> list[Text | Table]:
    """The table of a statement at length: each value with its half width, what it cost, and its notes."""
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    bar_of = {column.bar_of: place for place, column in enumerate(table.columns) if column.bar_of}
    shown = [
        (place, bar_of.get(column.name), column)
        for place, column in enumerate(table.columns)
        if column.bar_of is None and column.end_of is None
    ]
    for _, bar_at, column in shown:
        drawn.add_column(escape(column.name), justify="left" if bar_at is None else "right")
    ends = table.ends if len(table.ends) == len(table.rows) else [()] * len(table.rows)
    for row, known in zip(table.rows, ends, strict=True):
        pairs = iter(known)
        drawn.add_row(
            *(
                escape(
                    _said(column, row[place], None, exact=True)
                    if at is None
                    else _said(
                        column, row[place], row[at], next(pairs, (None, None)), table.least_cell
                    )
                )
                for place, at, column in shown
            )
        )
    lines: list[Text | Table] = [drawn]
    if table.phases is not None:
        first, last = table.phases
        phases = f"phase {first}" if first == last else f"phases {first} to {last}"
        price = f"cost {share(table.cost)} of a phase's budget" if table.cost else "free"
        n = len(table.answers)
        left = left_of(min((one.budget for one in table.answers), key=_least))
        lines.append(Text(f"{n} quer{'y' if n == 1 else 'ies'}; {price}, {left}; {phases}"))
    lines += [Text(f"note: {note}") for note in table.notes]
    return lines


def _least(budget: BudgetShares) -> tuple[float, float]:
    """What is left to the analyst, and in all."""
    return (budget.left if budget.yours is None else budget.yours.left), budget.left


def _said(
    column: Column,
    value: Value,
    bar: Value,
    ends: tuple[Value, Value] = (None, None),
    least: int | None = None,
    *,
    exact: bool = False,
) -> str:
    """Returns a value with its half width, or from where to where it may be, as it stands in the table."""
    if value is None:
        return "missing" if exact else "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and bar is not None:
        return f"{value} {rank_within(float(bar))}"
    if isinstance(value, str) or exact:
        return str(value)
    if bar == 0.0:
        return f"{value:,}" if column.type == "integer" else f"{value:z,.6g}"
    if column.type == "integer":
        low, high = (None if end is None else int(end) for end in ends)
        return rows_within(int(value), None if bar is None else float(bar), low, high, least)
    lowest, highest = (None if end is None else float(end) for end in ends)
    return number(float(value), None if bar is None else float(bar), lowest, highest)
