"""Whole SELECT statements for ``stream-dp ask``: their tables and their prices at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stream_dp.cli.pointing import pointed_error
from stream_dp.cli.rendering import (
    bundle_lines,
    busy,
    left_of,
    number,
    output,
    rank_within,
    share,
)
from stream_dp.client import Client, Column, Refusal, ResultTable
from stream_dp.client.tables import Value
from stream_dp.errors import InvalidQuery, StreamDPError
from stream_dp.messages import Answer, BudgetShares, QuotedBundle, RefusedAnswer

__all__ = ["Statement", "result_lines"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is asked as a table.

    Attributes:
        text: The statement.
        dataset: The data set. None takes the one in FROM.
        window: The window to ask about, as in a message. None asks about all phases.
        query_id: The id of the query. None takes new ids.
        timeout_s: The seconds to wait for a reply.
        as_json: Whether to print JSON.
    """

    text: str
    dataset: str | None
    window: Mapping[str, Any] | None
    query_id: str | None
    timeout_s: float
    as_json: bool

    def ask(self, client: Client, explained: Callable[[Answer], str]) -> bool:
        """Asks the statement and prints its table; returns whether there is one.

        Args:
            client: The client.
            explained: A function that says in words why an answer was refused.
        """
        try:
            with busy("Asking"):
                table = client.sql(
                    self.text,
                    dataset=self.dataset,
                    window=self.window,
                    query_id=self.query_id,
                    timeout_s=self.timeout_s,
                )
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(self.text, error)) from None
        except Refusal as refusal:
            return self._refused(refusal.answer, explained)
        if self.as_json:
            click.echo(json.dumps(table.to_document(), ensure_ascii=False))
            return True
        console = output()
        for piece in result_lines(table):
            console.print(piece)
        return True

    def quote(self, client: Client, explained: Callable[[Answer], str]) -> bool:
        """Prints what the statement would cost; returns whether it would be answered."""
        try:
            with busy("Asking"):
                quote = client.quote_sql(
                    self.text,
                    dataset=self.dataset,
                    window=self.window,
                    timeout_s=self.timeout_s,
                )
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(self.text, error)) from None
        if quote is None:
            click.echo("would be free: the table follows from the definition alone")
            return True
        if isinstance(quote, RefusedAnswer):
            return self._refused(quote, explained)
        if self.as_json:
            click.echo(quote.to_bytes().decode())
        else:
            names = [
                (str(place), each.kind or "") for place, each in enumerate(quote.queries, start=1)
            ]
            console = output()
            for piece in bundle_lines(quote, names):
                console.print(piece)
        return isinstance(quote, QuotedBundle) and all(q.privacy_loss for q in quote.queries)

    def _refused(self, answer: RefusedAnswer, explained: Callable[[Answer], str]) -> bool:
        if self.as_json:
            click.echo(answer.to_bytes().decode())
        else:
            click.echo(f"refused: {explained(answer)}", err=True)
        return False


def result_lines(table: ResultTable) -> list[Text | Table]:
    """The table of a statement at length: each value with its half width, what it cost, and its notes."""
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    bar_of = {column.bar_of: place for place, column in enumerate(table.columns) if column.bar_of}
    shown = [
        (place, bar_of.get(column.name), column)
        for place, column in enumerate(table.columns)
        if column.bar_of is None
    ]
    for _, bar_at, column in shown:
        drawn.add_column(escape(column.name), justify="left" if bar_at is None else "right")
    for row in table.rows:
        drawn.add_row(
            *(
                escape(_said(column, row[place], None if at is None else row[at], exact=at is None))
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


def _said(column: Column, value: Value, bar: Value, *, exact: bool) -> str:
    """Returns a value with its half width, as it stands in the table."""
    if value is None:
        return "missing" if exact else "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and bar is not None:
        return f"{value} {rank_within(float(bar))}"
    if isinstance(value, str) or exact:
        return str(value)
    if bar == 0.0:
        return f"{value:,}" if column.type == "integer" else f"{value:,.6g}"
    if column.type == "integer":
        return (
            f"{value:,} ± {round(float(bar)):,}"
            if bar is not None
            else f"{value:,}, no error bar known"
        )
    return number(float(value), None if bar is None else float(bar))
