"""``stream-dp phase``."""

from __future__ import annotations

import click

from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.terminal import confirm
from stream_dp.cli.text.reply_text import busy, rows_of_a_phase
from stream_dp.display.figure_text import share_range
from stream_dp.display.phase_words import between
from stream_dp.messages import Definition, Event


@click.group()
def command() -> None:
    """Open a phase of the rows that wait."""


@command.command("close")
@connected("name")
@json_option("Print the event as a JSON message.")
@click.option("--yes", is_flag=True, help="Skip the question about a phase of few rows.")
def close(connection: GivenServers, name: str, as_json: bool, yes: bool) -> None:
    """Open a phase of the waiting rows of data set NAME now.

    Where phases follow the calendar, this ends the open period. Batches about it that come later join the
    next phase.

    A quarter of phase.min_rows is enough, if privacy.delta is at most 1/(100 rows). A phase of few rows takes
    more of its budget, so the command asks first.
    """
    with connection.client() as client:
        said = small_phase(client.definition(name), client.waiting().get(name, 0))
        if said is not None and not yes:
            confirm(f"{said[:1].upper()}{said[1:]}. Open it?", f"{said}; pass --yes to open it")
        with busy("Closing"):
            event = client.close_phase(name)
    click.echo(event.to_bytes().decode() if as_json else closed_line(event))


def small_phase(definition: Definition, waiting: int) -> str | None:
    """Says what a phase of these rows takes, if they are too few to open one by themselves, and else None."""
    if not definition.least_to_close(waiting) <= waiting < rows_of_a_phase(definition):
        return None
    from stream_dp.profiles.builder import build
    from stream_dp.profiles.opening_price import announced

    said = f"{waiting:,} rows wait, fewer than the {definition.phase.min_rows:,} of phase.min_rows"
    takes = announced(build(definition)[1], waiting, waiting)
    if takes is None:
        return said
    supposed = "" if definition.privacy.unit is None else ", if all of them count"
    return f"{said}: a phase of them takes {share_range(takes.least, takes.most)} of its budget{supposed}"


def closed_line(event: Event) -> str:
    """Says which phase was opened by closing a period, and which dates it covers."""
    covers = between(event.since, event.until)
    return f"phase {event.phase} is open" + (f"; it covers {covers}" if covers else "")
