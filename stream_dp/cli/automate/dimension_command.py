"""``stream-dp dimension``: put, list, show and delete public tables that statements can join."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias, get_args

import click
from rich.markup import escape

from stream_dp.cli.command_options import FILE, GivenServers, connected
from stream_dp.cli.files.file_columns import mark_of
from stream_dp.cli.files.reading_options import delimiter_option
from stream_dp.cli.terminal import confirm, show
from stream_dp.cli.text.reply_text import bare_table, busy
from stream_dp.display.answer_words import few_of
from stream_dp.errors import InvalidInput
from stream_dp.messages import DimensionTable, DimensionType

_SHOWN = 20
_EXAMPLES = 3
_LISTED = 10
"""The most entries that an error lists."""

_Entry: TypeAlias = str | int | float | bool | None

_GUESSES: Final[tuple[DimensionType, ...]] = ("boolean", "integer", "real")
_WORDS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PADDED: Final = re.compile(r"[+-]?0[0-9]+")
"""Digits behind a zero, as in a postcode. A number would lose the zero."""


def _types(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, DimensionType]:
    known: dict[str, DimensionType] = {kind: kind for kind in get_args(DimensionType)}
    found = {}
    for pair in given:
        column, _, kind = pair.rpartition("=")
        if not column or kind not in known:
            raise click.BadParameter(f"write COLUMN=TYPE with one of the types {', '.join(known)}")
        found[column] = known[kind]
    return found


@click.group()
def command() -> None:
    """Publish tables that statements can join for free. They are public: anyone who may ask can read them.

    \b
    stream-dp dimension put airports.csv --key faa
    stream-dp ask "SELECT a.state, COUNT(*) FROM flights JOIN airports a ON flights.origin = a.faa GROUP BY 1"
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are


@command.command()
@connected()
@click.argument("file", type=FILE)
@click.option("--key", required=True, help="The column whose values the attribute has.")
@click.option("--name", help="The name of the table.  [default: the name of the file]")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="COLUMN=TYPE",
    callback=_types,
    help="The type of a column: text, integer, real or boolean. May be repeated. Other types "
    "are guessed and shown.",
)
@delimiter_option
@click.option("--yes", is_flag=True, help="Accept the guessed types without asking.")
def put(
    connection: GivenServers,
    file: Path,
    key: str,
    name: str | None,
    types: dict[str, DimensionType],
    delimiter: str | None,
    yes: bool,
) -> None:
    """Publish the CSV table FILE.

    It replaces an earlier one of its name. The first line of the file names the columns. All entries of a
    column have one type, or are empty.
    """
    read = TableFile.read(file, key=key, delimiter=delimiter)
    guessed = read.guessed(types)
    table = read.table(name or file.stem.lower(), {**guessed, **types})
    if guessed:
        shown = bare_table("column", "type", "entries")
        for column, kind in zip(table.columns, table.types, strict=True):
            examples = [entry for entry in read.entries[column] if entry][:_EXAMPLES]
            shown.add_row(escape(column), kind, escape(", ".join(examples)))
        show(shown)
        confirm("Publish the table with these types?", _UNATTENDED, yes=yes)
    with busy("Publishing"), connection.client() as client:
        client.put_dimension(table)
    click.echo(
        f"{table.dimension}: {len(table.rows):,} rows by {key}; everyone who asks can read it"
    )


_UNATTENDED: Final = (
    "nothing was published: nobody is at a terminal to confirm the types; pass --type COLUMN=TYPE for each "
    "column, or --yes to publish the table with the types above"
)


@command.command("list")
@connected()
def list_tables(connection: GivenServers) -> None:
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
    show(table)


@command.command("show")
@connected("name")
def show_table(connection: GivenServers, name: str) -> None:
    """Show the first rows of the public table NAME."""
    with busy("Reading"), connection.client() as client:
        found = client.dimension(name)
    table = bare_table(*map(escape, found.columns))
    for row in found.rows[:_SHOWN]:
        table.add_row(*("" if entry is None else escape(str(entry)) for entry in row))
    show(table)
    if len(found.rows) > _SHOWN:
        click.echo(f"... and {len(found.rows) - _SHOWN:,} more rows")


@command.command()
@connected("name")
def delete(connection: GivenServers, name: str) -> None:
    """Delete the public table NAME.

    Statements that join it are then refused.
    """
    with busy("Deleting"), connection.client() as client:
        client.delete_dimension(name)
    click.echo(f"{name} is deleted")


@dataclass(frozen=True)
class TableFile:
    """A CSV file with a public table.

    Attributes:
        file: The name of the file.
        key: The column whose values the attribute has.
        entries: The texts of each column without surrounding blanks, one a row.
        lines: The number of the line on which each row begins.
    """

    file: str
    key: str
    entries: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    @classmethod
    def read(cls, file: Path, *, key: str, delimiter: str | None = None) -> Self:
        """Reads the texts of a CSV file in UTF-8 whose first line names the columns.

        Raises:
            InvalidInput: The file is not such a file.
        """
        kept: list[tuple[int, list[str]]] = []
        try:
            with file.open(newline="", encoding="utf-8-sig") as text:
                first = next(text, "")
                mark = delimiter or mark_of(first, [key])
                reader = csv.reader(itertools.chain([first], text), delimiter=mark)
                header = [name.strip() for name in next(reader, [])]
                line = reader.line_num + 1
                for row in reader:
                    if row:
                        kept.append((line, [entry.strip() for entry in row]))
                    line = reader.line_num + 1
        except (UnicodeDecodeError, csv.Error):
            fix = "save it as CSV in UTF-8"
            raise InvalidInput(file.name, "this is not CSV in UTF-8", fix) from None
        if key not in header:
            problem = f"{file.name} has no column {key} (found: {', '.join(header)})"
            raise InvalidInput("--key", problem, "name one of them")
        if len({name.lower() for name in header}) < len(header):
            raise InvalidInput(file.name, "two columns have the same name", "rename one of them")
        for line, row in kept:
            if len(row) != len(header):
                raise InvalidInput(
                    f"{file.name}, line {line}",
                    f"it has {len(row)} fields, and the first line has {len(header)}",
                    "complete it, or pass --delimiter",
                )
        entries = {name: [row[place] for _, row in kept] for place, name in enumerate(header)}
        return cls(file.name, key, entries, [line for line, _ in kept])

    def guessed(self, declared: Mapping[str, DimensionType]) -> dict[str, DimensionType]:
        """Returns the type that most entries of each column have, without the columns that are declared.

        Raises:
            InvalidInput: A declared column is not there, or is the key and not a text.
        """
        for column, kind in declared.items():
            if column not in self.entries:
                problem = f"{self.file} has no column {column}"
                raise InvalidInput("--type", problem, f"name one of {', '.join(self.entries)}")
            if column == self.key and kind != "text":
                problem = f"{column} is the key, which is a text"
                raise InvalidInput("--type", problem, "leave it out")
        return {
            column: _guessed(entries)
            for column, entries in self.entries.items()
            if column != self.key and column not in declared
        }

    def table(self, name: str, types: Mapping[str, DimensionType]) -> DimensionTable:
        """Returns the table whose columns have these types. The key is a text.

        Raises:
            InvalidInput: Entries do not fit their types, or it is not a public table.
        """
        columns: list[list[_Entry]] = []
        kinds = [types.get(column, "text") for column in self.entries]
        for kind, (column, entries) in zip(kinds, self.entries.items(), strict=True):
            read = [_entry(entry, kind) for entry in entries]
            unfit = [
                f"line {line}: {entry!r:.40}"
                for line, entry, value in zip(self.lines, entries, read, strict=True)
                if entry and value is None
            ]
            if unfit:
                raise InvalidInput(
                    f"{self.file}, column {column}",
                    f"{len(unfit):,} of {sum(map(bool, entries)):,} entries do not fit the type {kind}: "
                    f"{few_of(unfit, _LISTED, ',')}",
                    f"fix them, leave them empty, or pass --type '{column}=text'",
                )
            columns.append(read)
        document = {
            "version": 1,
            "dimension": name,
            "key": self.key,
            "columns": list(self.entries),
            "types": kinds,
            "rows": [list(row) for row in zip(*columns, strict=True)],
        }
        return DimensionTable.read(document, quoting=True)


def _guessed(entries: Sequence[str]) -> DimensionType:
    """Returns the type that more than half of the entries have, or text.

    One odd entry does not decide, because a text compares with no number. It is listed instead.
    """
    there = [entry for entry in entries if entry]
    if any(map(_PADDED.fullmatch, there)):
        return "text"
    fitting = {kind: sum(_entry(entry, kind) is not None for entry in there) for kind in _GUESSES}
    found = max(_GUESSES, key=fitting.__getitem__)  # the first of several that fit as many
    return found if 2 * fitting[found] > len(there) else "text"


def _entry(text: str, kind: DimensionType) -> _Entry:
    """Returns an entry of a type. None if it is empty or does not fit."""
    match kind:
        case "text":
            return text or None
        case "boolean":
            return _WORDS.get(text.lower())
        case "integer":
            return int(text) if _INTEGER.fullmatch(text) else None
        case "real":
            number = float(text) if _REAL.fullmatch(text) else math.nan
            return number if math.isfinite(number) else None
