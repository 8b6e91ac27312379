"""``stream-dp ask``."""

from __future__ import annotations

import sys
import threading

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.pointing import pointed_error, pointed_refusal
from stream_dp.cli.rendering import answer_lines, answer_table, busy, output, rows_of_a_phase
from stream_dp.client import Client, Question
from stream_dp.errors import InvalidQuery, StreamDPError
from stream_dp.messages import Answer

__all__ = ["command"]


@click.command(context_settings={"allow_extra_args": True})
@connected()
@click.argument("dataset")
@click.argument("question", default="TRUE")
@click.option(
    "--group-by", multiple=True, help="Attribute to group by; may be given several times."
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
    stream-dp ask people "SELECT city, COUNT(*) WHERE age >= 30 GROUP BY city"

    Exit code 1 means that there is no answer: refused, rejected, or nobody replied.
    """
    if more := click.get_current_context().args:
        raise click.UsageError(
            f"the question ends before {more[0]!r}; put the whole of it in quotes, so that the shell "
            "leaves it alone"
        )
    # The SQL reader takes half a second to load; the broker answers meanwhile.
    threading.Thread(target=__import__, args=("stream_dp.sql",), daemon=True).start()
    asked = Question(question, group_by, window, query_id)
    with busy("Asking"), connection.client(analyst) as client:
        try:
            answer = client.ask_question(dataset, asked, quote=quote, timeout_s=timeout_s)
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(question, error)) from None
        refusal = _refusal(client, answer, question) if answer.status == "refused" else ""
    if as_json:
        click.echo(answer.to_bytes().decode())
    elif refusal:
        click.echo(f"refused: {refusal}", err=True)
    else:
        console = output()
        if answer.table is not None:
            console.print(answer_table(answer))
        for line in answer_lines(answer):
            console.print(line)
    if refusal:
        sys.exit(1)


def _refusal(client: Client, answer: Answer, question: str) -> str:
    """Why there is no answer, for who asked in SQL at a terminal."""
    reason = answer.reason
    assert reason is not None, "a refusal says why"
    if reason.code == "no_phase":
        rows = rows_of_a_phase(client.definition(answer.dataset))
        waiting = client.waiting().get(answer.dataset, 0)
        return (
            f"no phase is open yet: {waiting:,} rows of {answer.dataset} wait, and the first phase opens at "
            f"{rows:,}; send more with: stream-dp ingest FILE"
        )
    where = client.where(answer.dataset, question)
    return pointed_refusal(question, where, reason)
