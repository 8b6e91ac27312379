"""``stream-dp budget``."""

from __future__ import annotations

import click
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from stream_dp.cli.connection import Connection, connected
from stream_dp.client.odometer import Odometer

__all__ = ["command"]


@click.command()
@connected()
@click.argument("dataset")
def command(connection: Connection, dataset: str) -> None:
    """What each phase of DATASET has spent of its lifetime budget, from the published ledger."""
    with connection.client() as client:
        definition = client.definition(dataset)
        odometer = Odometer.read(client.ledger(dataset))
    privacy = definition.privacy
    click.echo(
        f"{dataset}: every row is promised ({privacy.epsilon:g}, {privacy.delta:g}) for ever; "
        f"{odometer.looks} paid looks so far"
    )
    table = Table("phase", "rows", "spent", "", "looks", box=None)
    for number, block in enumerate(odometer.blocks, start=1):
        table.add_row(
            str(number),
            f"{block.rows:,}",
            f"{100 * block.spent:.2f}%",
            ProgressBar(total=1.0, completed=min(1.0, block.spent), width=30),
            str(block.looks),
        )
    Console().print(table)
