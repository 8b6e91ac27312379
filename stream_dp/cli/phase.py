"""``stream-dp phase``."""

from __future__ import annotations

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import between, busy
from stream_dp.messages import Event

__all__ = ["closed_line", "command"]


@click.group()
def command() -> None:
    """Close the period that is open, where phases follow the calendar."""


@command.command("close")
@connected()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the event as a JSON message.")
def close(connection: Connection, name: str, as_json: bool) -> None:  # noqa: FBT001 - click
    """End the period that is open, so that the waiting rows of data set NAME open a phase now.

    A period ends by itself when a batch of a later one arrives. Batches about a closed period are late:
    they join the next phase.
    """
    with busy("Closing"), connection.client() as client:
        client.definition(name)
        event = client.close_phase(name)
    click.echo(event.to_bytes().decode() if as_json else closed_line(event))


def closed_line(event: Event) -> str:
    """Says which phase was opened by closing a period, and which dates it covers."""
    covers = between(event.since, event.until)
    return f"phase {event.phase} is open" + (f"; it covers {covers}" if covers else "")
