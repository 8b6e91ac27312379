"""``stream-dp dataset``: create, show, list and retire."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import rows_of_a_phase
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition, read_json

__all__ = ["command"]

_MOST_BYTES = 262_144


@click.group()
def command() -> None:
    """Create, show, list and retire data sets."""


@command.command("create")
@connected()
@click.argument("definition", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def create(connection: Connection, definition: Path) -> None:
    """Create the data set that the JSON file DEFINITION describes. It can never be changed."""
    document = read_json(definition.read_bytes(), max_bytes=_MOST_BYTES)
    checked = Definition.read({"version": 1, **document})
    _warn(checked)
    with connection.client() as client:
        client.define(document)
    click.echo(f"{checked.dataset} is defined; a phase opens at {rows_of_a_phase(checked):,} rows")
    click.echo(f"send rows with: stream-dp ingest FILE --dataset {checked.dataset}")


def _warn(definition: Definition) -> None:
    most = 1 / (100 * definition.phase.min_rows)
    if definition.privacy.delta > most:
        click.echo(
            f"warning: privacy.delta {definition.privacy.delta:g} is large for phases of "
            f"{definition.phase.min_rows:,} rows; below {most:.1g} is usual",
            err=True,
        )


@command.command("show")
@connected()
@click.argument("name")
def show(connection: Connection, name: str) -> None:
    """Print a data set's definition."""
    with connection.client() as client:
        click.echo(json.dumps(json.loads(client.definition(name).to_bytes()), indent=2))


@command.command("list")
@connected()
def list_(connection: Connection) -> None:
    """List the data sets in force."""
    with connection.client() as client:
        catalog = client.catalog()
    if not catalog:
        click.echo("no data sets yet; create one with: stream-dp dataset create DEFINITION.json")
        return
    table = Table("data set", "attributes", "epsilon", "delta", "error", "rows a phase", box=None)
    for name, definition in sorted(catalog.items()):
        table.add_row(
            name,
            ", ".join(attribute.name for attribute in definition.attributes),
            f"{definition.privacy.epsilon:g}",
            f"{definition.privacy.delta:g}",
            f"{definition.accuracy.error:g}",
            f"{definition.phase.min_rows:,}",
        )
    Console().print(table)


@command.command("retire")
@connected()
@click.argument("name")
@click.confirmation_option(
    prompt="This erases the rows for ever, and the name can never be used again. Go on?"
)
def retire(connection: Connection, name: str) -> None:
    """Erase a data set's rows for ever. Its name, answers and ledger stay."""
    with connection.client() as client:
        if name not in client.catalog():
            raise InvalidDefinition(
                "dataset", f"there is no {name!r}", "see: stream-dp dataset list"
            )
        client.retire(name)
    click.echo(f"{name} is retired")
