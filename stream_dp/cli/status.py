"""``stream-dp status``."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.connection import Connection, connected
from stream_dp.client.odometer import Odometer

__all__ = ["command"]


@click.command()
@connected()
def command(connection: Connection) -> None:
    """Phases, rows and budget of every data set, from what was published."""
    with connection.client() as client:
        catalog = client.catalog()
        ledgers = client.ledgers()
        easy, hard = client.difficulties()
    if not catalog:
        click.echo("no data sets yet; create one with: stream-dp dataset create DEFINITION.json")
        return
    table = Table(
        "data set",
        "phases",
        "rows",
        "epsilon",
        "budget spent",
        "paid looks",
        "easy",
        "hard",
        box=None,
    )
    for name, definition in sorted(catalog.items()):
        odometer = Odometer.read(ledgers.get(name, []))
        table.add_row(
            name,
            str(len(odometer.blocks)),
            f"{odometer.rows:,}",
            f"{definition.privacy.epsilon:g}",
            f"{100 * odometer.most_spent:.1f}%",
            str(odometer.looks),
            f"{easy[name]:,}",
            f"{hard[name]:,}",
        )
    Console().print(table)
