"""``stream-dp dataset init``."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stream_dp.calendar_periods import zone_of
from stream_dp.cli.command_options import FILE
from stream_dp.cli.files.reading_options import FileReading, reading_options
from stream_dp.cli.terminal import is_attended, show, warn
from stream_dp.errors import InvalidInput, StreamDPError

if TYPE_CHECKING:
    from stream_dp.cli.draft.definition_drafts import DefinitionDraft

_PUBLIC: Final = "Are these rows public or made up? What a definition says is published."
_SAY_WHICH: Final = (
    "a definition is published, so pass --public if these rows are public or made up, or --private if not: "
    "nobody is at a terminal to say which"
)
_REVEALS: Final = (
    "these rows are private, and a definition is published. The values, edges, bounds and dates of this "
    "draft come from the rows, and no epsilon covers what they reveal: a rare value may name somebody. "
    "Before you create the data set, replace them by what everybody knows, and remove the others"
)
_TYPES_ALONE: Final = (
    "Then only the names and types of the columns are taken from the file. Say the rest from what everybody "
    "knows, and not from the rows."
)
_NOTHING: Final = "pass a file with more rows, or say the columns at the terminal without a file"
_TYPING_ROWS: Final = 10_000
"""About how many rows show the types of private columns."""
_VALUES_BYTES: Final = 200_000
"""The most bytes of all values, so that a definition fits into a message."""


def _listed(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    files = {name: Path(file) for name, _, file in (pair.rpartition("=") for pair in given)}
    if len(files) < len(given) or not all(files) or Path() in files.values():
        raise click.BadParameter("write COLUMN=FILE once for a column, such as diagnosis=codes.txt")
    return files


def _zone(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    try:
        zone_of(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name


@click.command("init")
@click.argument("file", type=FILE, required=False)
@click.option("--dataset", help="The name of the data set.  [default: the file's name]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The definition to write.  [default: NAME.json]",
)
@click.option(
    "--public/--private",
    default=None,
    help="Say whether the rows are public or made up. A draft from private rows reveals something of them.  "
    "[default: ask]",
)
@click.option(
    "--key",
    metavar="COLUMN",
    help="The column that says whose row it is. The promise is then made to persons, and not to rows.",
)
@click.option(
    "--values",
    "listed",
    multiple=True,
    metavar="COLUMN=FILE",
    callback=_listed,
    help="Take the values of a column from a text file with one value a line. May be repeated.",
)
@click.option(
    "--timezone",
    "zone",
    callback=_zone,
    help="The time zone of dates, such as Europe/Berlin.  [default: UTC]",
)
@reading_options(defined=False)
def command(
    file: Path | None,
    dataset: str | None,
    out: Path | None,
    public: bool | None,
    key: str | None,
    listed: Mapping[str, Path],
    zone: str | None,
    reading: FileReading,
) -> None:
    """Draft a definition from the public sample FILE, or from what you say at the terminal.

    The draft is a file to read and to change. Nothing leaves this machine. A definition is public, so draft
    it from rows that are public or made up: of others the command takes only the names and types of columns.
    """
    if file is None:
        reading.check_needed("FILE")
        if listed or public is not None:
            raise click.UsageError("--values, --public and --private need FILE.")
        if not is_attended():
            raise StreamDPError(
                "pass a file of rows that are public or made up: nobody is at a terminal to say the columns"
            )
    elif public is None:
        if not is_attended():
            raise StreamDPError(_SAY_WHICH)
        # Rows that are not public are read only if their owner passes --private.
        public = click.confirm(_PUBLIC, err=True) or None
        if listed and public is None:
            raise click.UsageError("--values needs --public or --private.")
    from stream_dp.cli.draft.draft_dialogue import asked_dataset, checked_name
    from stream_dp.cli.files.definition_files import definition_in
    from stream_dp.profiles.builder import universe_of

    name = checked_name(dataset) if dataset else _name_of(file) if file else asked_dataset()
    out = out or Path(f"{name}.json")
    if out.exists():
        raise InvalidInput(
            str(out), "it is there already", "pass --out with the name of a new file"
        )
    if file is not None and public is not None:
        if not public:
            warn(_REVEALS)
        draft, reading = _of_rows(name, file, out, key, listed, zone, reading)
    else:
        draft = _of_answers(name, file, out, key, zone, reading)
    text = draft.text()
    universe_of(definition_in(json.loads(text), out))
    show(draft.table())
    out.write_text(text, encoding="utf-8")
    _say_next(draft, file, out, reading, public=bool(public))


def _name_of(file: Path) -> str:
    """Returns the name of a data set for a file: the one that ``ingest`` expects, if it is a name."""
    name = re.sub(r"[^a-z0-9._-]+", "_", file.name.split(".")[0].lower()).lstrip("._-")
    return name[:63] or "table"


def _of_rows(
    name: str,
    file: Path,
    out: Path,
    key: str | None,
    listed: Mapping[str, Path],
    zone: str | None,
    reading: FileReading,
) -> tuple[DefinitionDraft, FileReading]:
    """Drafts a definition from the rows of a file.

    Returns:
        The draft, and how the file is to be read under it.
    """
    from stream_dp.cli.draft.column_drafts import ColumnDraft, drafted, with_values
    from stream_dp.cli.draft.definition_drafts import DefinitionDraft, usable
    from stream_dp.cli.draft.phase_drafts import drafted_phase
    from stream_dp.cli.draft.sample_columns import sampled, unknown_column
    from stream_dp.cli.files.definition_files import values_of

    sample = sampled(file, reading, zone)
    if not sample.rows:
        raise StreamDPError(f"{file.name} holds no rows")
    names, time = [column.name for column in sample.columns], reading.time_column
    for option, given in [("--key", key), *(("--values", column) for column in listed)]:
        if given is not None and given not in names:
            raise unknown_column(option, given, names)
    if time is not None and not sample.days:
        fix = "write dates as in ISO 8601, such as 2026-03-14"
        raise InvalidInput("--time-column", f"no value of {time} is a date", fix)
    columns = []
    for column in sample.columns:
        if column.name == key:
            one = ColumnDraft(key, None, "it says whose row it is")
        elif column.name in listed:
            written = f"@{Path(os.path.relpath(listed[column.name], out.parent)).as_posix()}"
            values = values_of(written, f"--values {column.name}", out.parent)
            one = with_values(column, values, written)
        elif column.name == time:
            weekday = {"name": time, "type": "date", "by": "weekday", "timezone": zone or "UTC"}
            one = ColumnDraft(time, weekday, "phases say the rest of when rows were")
        else:
            one = drafted(column, sample.decimal, zone, _VALUES_BYTES // len(names))
        columns.append(one)
    phase, why = drafted_phase(sample.rows, sample.days, zone)
    dates = [one.column for one in columns if one.may_open_phases]
    if dates and time is None:
        grows = f"--time-column {shlex.quote(dates[0])}"
        why += f"; if the table grows by the calendar, draft it with {grows}"
    draft = DefinitionDraft(name, usable(columns), phase, why, key)
    if not draft.attributes:
        problem = "; ".join(f"{one.column}: {one.why}" for one in draft.columns)
        raise InvalidInput(file.name, f"no column can be asked about ({problem:.300})", _NOTHING)
    return draft, replace(reading, decimal=sample.decimal, column=draft.renamed)


def _of_answers(
    name: str, file: Path | None, out: Path, key: str | None, zone: str | None, reading: FileReading
) -> DefinitionDraft:
    """Drafts a definition from what the owner says at the terminal."""
    from stream_dp.cli.draft.column_drafts import drafted
    from stream_dp.cli.draft.definition_drafts import DefinitionDraft, usable
    from stream_dp.cli.draft.draft_dialogue import asked_columns, asked_key, asked_phase
    from stream_dp.cli.draft.sample_columns import sampled

    known: dict[str, str] = {}
    if file is not None:
        click.echo(_TYPES_ALONE, err=True)
        sample = sampled(file, reading, zone, most=_TYPING_ROWS)
        for column in sample.columns:
            found = drafted(column, sample.decimal, zone, _VALUES_BYTES).attribute
            known[column.name] = "none" if found is None else found["type"]
    key = key or asked_key()
    columns = usable(asked_columns(known, key, out.parent, zone))
    phase, why = asked_phase(zone, dated=reading.time_column is not None)
    draft = DefinitionDraft(name, columns, phase, why, key)
    if not draft.attributes:
        raise StreamDPError("nothing was written: a definition needs at least one column")
    return draft


def _say_next(
    draft: DefinitionDraft, file: Path | None, out: Path, reading: FileReading, *, public: bool
) -> None:
    """Says what to type next."""
    rows = "FILE" if file is None else shlex.quote(str(file))
    options = "".join(f" {shlex.quote(word)}" for word in reading.words())
    definition, said_public = shlex.quote(str(out)), " --public" * public
    given = (
        ""
        if file is not None and file.name.split(".")[0].lower() == draft.dataset
        else f" --dataset {draft.dataset}"
    )
    click.echo(
        f"\n{out} is written. Read it, and change it until you like it: what it says is published\n"
        f"next: stream-dp dataset check {definition} {rows}{said_public}{options}\n"
        f"      stream-dp dataset create {definition}\n"
        f"      stream-dp ingest {rows}{given}{options}"
    )
