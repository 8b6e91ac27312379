"""``stream-dp ask``."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import answer_line, answer_table

__all__ = ["command"]


@click.command()
@connected()
@click.argument("dataset")
@click.argument("question", default="TRUE")
@click.option(
    "--group-by", multiple=True, help="Attribute to group by; may be given up to three times."
)
@click.option("--window", type=click.IntRange(1), help="Only the last N phases.")
@click.option("--quote", is_flag=True, help="Say what the answer would cost; spends nothing.")
@click.option(
    "--id", "query_id", help="The answer under an id never changes.  [default: a new one]"
)
@click.option("--analyst", help="Who asks.  [default: your login name]")
@click.option(
    "--timeout", "timeout_s", type=float, default=30.0, show_default=True, help="Seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer's message.")
def command(
    connection: Connection,
    dataset: str,
    question: str,
    group_by: tuple[str, ...],
    window: int | None,
    quote: bool,  # noqa: FBT001 - click
    query_id: str | None,
    analyst: str | None,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Ask DATASET a QUESTION: a condition in SQL, or SELECT COUNT(*) ... WHERE ... GROUP BY ...

    \b
    stream-dp ask people "age >= 30 AND NOT smoker"
    stream-dp ask people "age >= 30" --group-by city
    """
    with connection.client(analyst) as client:
        if quote:
            answer = client.quote(
                dataset, question, group_by=group_by, last_phases=window, timeout_s=timeout_s
            )
        else:
            answer = client.ask(
                dataset,
                question,
                group_by=group_by,
                last_phases=window,
                query_id=query_id,
                timeout_s=timeout_s,
            )
    if as_json:
        click.echo(answer.to_bytes().decode())
    else:
        click.echo(answer_line(answer))
        if answer.table is not None:
            Console().print(answer_table(answer))
        if answer.note:
            click.echo(f"note: {answer.note}")
    if answer.status == "refused":
        sys.exit(1)
