"""``stream-dp dimension``: put, list, show and delete public tables that statements can join."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich.markup import escape

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.ingest import delimiter_option
from stream_dp.cli.rendering import bare_table, busy, output
from stream_dp.errors import InvalidInput
from stream_dp.messages import DimensionTable

__all__ = ["command", "read_dimension"]

_SHOWN = 20

_Entry: TypeAlias = str | int | float | bool | None


@click.group()
def command() -> None:
    """Publish tables that statements can join. They are public: anyone who may ask can read them.

    A join costs no more than its query, because it only chooses among the declared values of an attribute.

    \b
    stream-dp dimension put airports.csv --key faa
    stream-dp ask "SELECT a.state, COUNT(*) FROM flights JOIN airports a ON flights.origin = a.faa GROUP BY 1"
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are


@command.command()
@connected()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", required=True, help="The column whose values the attribute has.")
@click.option("--name", help="The name of the table.  [default: the name of the file]")
@delimiter_option
def put(
    connection: Connection, file: Path, key: str, name: str | None, delimiter: str | None
) -> None:
    """Publish the CSV table FILE. It takes the place of an earlier one of its name.

    The first line of the file names the columns.
    """
    table = read_dimension(file, key=key, name=name or file.stem.lower(), delimiter=delimiter)
    with busy("Publishing"), connection.client() as client:
        client.put_dimension(table)
    click.echo(
        f"{table.dimension}: {len(table.rows):,} rows by {key}; everyone who asks can read it"
    )


@command.command("list")
@connected()
def list_tables(connection: Connection) -> None:
    """List the public tables."""
    with busy("Reading"), connection.client() as client:
        found = client.dimensions()
    if not found:
        click.echo(
            "no public tables yet; publish one with: stream-dp dimension put FILE.csv --key COLUMN"
        )
        return
    table = bare_table("table", "key", "columns", "rows")
    for name, each in sorted(found.items()):
        others = ", ".join(column for column in each.columns if column != each.key)
        table.add_row(name, escape(each.key), escape(others), f"{len(each.rows):,}")
    output().print(table)


@command.command()
@connected()
@click.argument("name")
def show(connection: Connection, name: str) -> None:
    """Show the first rows of the public table NAME."""
    with busy("Reading"), connection.client() as client:
        found = client.dimension(name)
    table = bare_table(*map(escape, found.columns))
    for row in found.rows[:_SHOWN]:
        table.add_row(*("" if entry is None else escape(str(entry)) for entry in row))
    output().print(table)
    if len(found.rows) > _SHOWN:
        click.echo(f"... and {len(found.rows) - _SHOWN:,} more rows")


@command.command()
@connected()
@click.argument("name")
def delete(connection: Connection, name: str) -> None:
    """Delete the public table NAME. Statements that join it are then refused."""
    with busy("Deleting"), connection.client() as client:
        client.delete_dimension(name)
    click.echo(f"{name} is deleted")


def read_dimension(
    file: Path, *, key: str, name: str, delimiter: str | None = None
) -> DimensionTable:
    """Reads a public table from CSV. A column of whole numbers, numbers or true and false has that type.

    Args:
        file: The file, in UTF-8. Its first line names the columns.
        key: The column whose values the attribute has. Its entries stay texts.
        name: The name of the table.
        delimiter: What separates the fields. None for a comma.

    Raises:
        InvalidInput: The file is not such a table.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            header, *lines = list(csv.reader(text, delimiter=delimiter or ",")) or [[]]
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(
            file.name, "this is not CSV in UTF-8", "save it as CSV in UTF-8"
        ) from None
    lines = [line for line in lines if line]
    if key not in header:
        raise InvalidInput(
            "--key",
            f"{file.name} has no column {key} (found: {', '.join(header)})",
            "name one of them",
        )
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise InvalidInput(
                f"{file.name}, line {number}",
                f"it has {len(line)} fields, and the first line has {len(header)}",
                "complete it, or pass --delimiter",
            )
    columns = [
        list(entries) if column == key else _typed(entries)
        for column, entries in zip(header, zip(*lines, strict=True), strict=True)
    ]
    document = {
        "version": 1,
        "dimension": name,
        "key": key,
        "columns": header,
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }
    return DimensionTable.read(document, quoting=True)


def _typed(entries: Sequence[str]) -> list[_Entry]:
    """Returns the entries of a column in the narrowest type that all of them have. An empty one is null."""
    words = {"true": True, "false": False}
    readers: list[Callable[[str], Any]] = [lambda text: words[text.lower()], int, _finite, str]
    for read in readers:
        try:
            return [None if entry == "" else read(entry) for entry in entries]
        except (KeyError, ValueError):
            continue
    raise AssertionError("every entry is a text")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise ValueError(text)
    return number
