"""``stream-dp watch``."""

from __future__ import annotations

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import answer_line, event_line, rejection_line
from stream_dp.messages import Answer, Event

__all__ = ["command"]


@click.command()
@connected()
@click.argument("dataset", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
def command(connection: Connection, dataset: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Follow answers, events and rejections, of one DATASET or of all, until Ctrl-C."""
    with connection.client() as client:
        client.open()
        click.echo("watching; Ctrl-C ends", err=True)
        for reply in client.follow(dataset):
            if as_json:
                click.echo(reply.to_bytes().decode())
            elif isinstance(reply, Answer):
                click.echo(f"{reply.dataset}  {reply.query_id[:12]:12}  {answer_line(reply)}")
            elif isinstance(reply, Event):
                click.echo(event_line(reply))
            else:
                click.echo(rejection_line(reply))
