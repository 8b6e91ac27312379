"""``stream-dp dataset``: draft, check, create, show, list, change, retire and unlock."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.command_options import (
    FILE,
    FOLDER,
    GivenServers,
    connected,
    json_option,
    yes_option,
)
from stream_dp.cli.draft import init_command
from stream_dp.cli.files.definition_files import read_definition, read_object
from stream_dp.cli.files.reading_options import FileReading, reading_options
from stream_dp.cli.terminal import NOT_IN_FORCE, confirm, show, warn
from stream_dp.cli.text.reply_text import NONE_YET, bare_table, busy, kinds_table, rows_of_a_phase
from stream_dp.cli.text.share_tables import changes, rules_table
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import ShareRules
from stream_dp.errors import InvalidInput
from stream_dp.messages import AttributeSpec, ChangeAnalysts, Definition, KindsSpec, large_delta

if TYPE_CHECKING:
    from stream_dp.core.rows.attributes import Attribute
    from stream_dp.core.rows.universe import Universe

_CHECKED_ROWS = 10_000
_MOST_PERIODS = 40
"""The most periods of the calendar that are listed."""


@click.group()
def command() -> None:
    """Draft, check, create, show, list, change and retire data sets."""


command.add_command(init_command.command)


@command.command("create")
@connected()
@click.argument("definition", type=FILE)
def create(connection: GivenServers, definition: Path) -> None:
    """Create the data set that the JSON file DEFINITION describes.

    Of a definition only the attributes can change later (see schema), and who may ask (see dataset analysts).
    """
    read = read_definition(definition)
    with busy("Checking"):
        from stream_dp.cli.checks.definition_check import checked, warn_of_same_persons

        opening = checked(read)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        with busy("Defining"), connection.client() as client:
            warn_of_same_persons(read, client.catalog())
            client.define(read.model_dump())
    for said in {str(note.message) for note in notes}:
        if said != large_delta(read.privacy.delta, rows_of_a_phase(read)):  # which is said already
            warn(said)
    click.echo(f"{read.dataset} is defined; {opening}")
    click.echo(f"send rows with: stream-dp ingest FILE --dataset {read.dataset}")


@command.command("check")
@connected()
@click.argument("definition", type=FILE, required=False)
@click.argument("file", type=FILE, required=False)
@click.option(
    "--source",
    "source_file",
    type=FILE,
    help="Check the newest records of the topic that this source file names, by DEFINITION or by that of the "
    "data set.",
)
@click.option(
    "--records",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    help="The most records to read from the topic of a source.",
)
@click.option(
    "--public",
    is_flag=True,
    help="Say that the rows are public, so that a definition may depend on them.",
)
@reading_options()
def check(
    connection: GivenServers,
    definition: Path | None,
    file: Path | None,
    source_file: Path | None,
    records: int,
    public: bool,
    reading: FileReading,
) -> None:
    """Check DEFINITION, and show how it would count the rows of FILE or of a source.

    Nothing leaves this machine. The command shows exact counts and values, so only people who may see the
    rows should run it. A definition is public: choose its values and edges from public knowledge, or check a
    public sample with --public.
    """
    if definition is None and source_file is None:
        raise click.UsageError("Missing argument 'DEFINITION', or the option '--source'.")
    if file is not None and source_file is not None:
        raise click.UsageError("Give FILE or '--source', not both.")
    if file is None:
        reading.check_needed("FILE")
    from stream_dp.cli.checks.file_check import check_file
    from stream_dp.cli.checks.source_check import check_source
    from stream_dp.cli.files.row_files import RowFile
    from stream_dp.cli.operate.worker_command import source_of
    from stream_dp.profiles.builder import universe_of

    source = None if source_file is None else source_of(source_file)
    if definition is not None:
        universe = universe_of(read := read_definition(definition))
        _say_valid(definition, read, universe)
    else:
        assert source is not None, "one of the two is given"
        with busy("Reading the definition"), connection.client() as client:
            universe = universe_of(read := client.definition(source.dataset))
    if source is not None:
        check_source(connection, source, read, records, created=definition is None)
    elif file is not None:
        check_file(RowFile(file, read, _CHECKED_ROWS, reading), read, universe)
    else:
        return
    if public:
        click.echo("these rows are public, as --public says; a definition may depend on them")
    else:
        warn(
            "these are exact counts and values of rows, but a definition is public. If you change it because "
            "of them, the change reveals something about them. Check a public sample instead, and pass "
            "--public"
        )


def _say_valid(file: Path, read: Definition, universe: Universe) -> None:
    """Says what a definition means, and warns of likely mistakes."""
    with busy("Checking"):
        from stream_dp.cli.checks.definition_check import checked

        opening = checked(read)
    click.echo(f"{file.name} is valid: {read.dataset} has {universe.n_cells:,} cells; {opening}")
    if read.kinds != KindsSpec():
        show(kinds_table(read))
    if read.analysts is not None:
        show(rules_table(ShareRules(read.analysts, read.owner)))


@command.command("show")
@connected("name")
@json_option("Print the definition as a JSON message.")
def show_(connection: GivenServers, name: str, as_json: bool) -> None:
    """Show what you can ask of a data set, and what it promises to whom."""
    with connection.client() as client:
        definition = client.definition(name)
        rules = None if as_json else Odometer.read(client.ledger(name)).rules
    if as_json:
        click.echo(json.dumps(json.loads(definition.to_bytes()), indent=2))
        return
    from stream_dp.cli.checks.definition_check import kept_words, opens_when
    from stream_dp.profiles.builder import universe_of

    universe, privacy, mechanism = universe_of(definition), definition.privacy, definition.mechanism
    guesses = mechanism.answers_unverified and definition.on_exhausted != "refuse"
    show(
        f"[b]{definition.dataset}[/b]",
        f"promised to {privacy.promised_to}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}",
        *([] if privacy.unit is None else [escape(privacy.unit.counting)]),
        definition.precision,
        kept_words(definition),
        f"a phase opens {opens_when(definition)}; profile {mechanism.profile}; "
        f"with no budget left a query is {'answered unverified' if guesses else 'refused'}",
    )
    if synthetic := definition.synthetic_rows:
        show(f"{synthetic:,} synthetic rows come with each phase: stream-dp synthesize {name}")
    show("", _attributes_table(definition, universe), f"\n{universe.n_cells:,} cells in all")
    if definition.versions is not None:
        newest = definition.versions[-1]
        show(
            f"these are version {newest.schema_version} of its attributes, which counts from phase "
            f"{newest.first_phase:,} on: stream-dp schema show {name}"
        )
    if definition.kinds != KindsSpec():
        show("", kinds_table(definition))
    if rules is not None:
        show("", rules_table(rules))


def _attributes_table(definition: Definition, universe: Universe) -> Table:
    """What can be asked about: each attribute with its cells."""
    table = bare_table("attribute", "type", "cells")
    for spec, attribute in zip(definition.attributes, universe.attributes, strict=True):
        table.add_row(escape(spec.name), _type_of(spec), escape(_cells_of(attribute)))
    return table


_FOLDS: Final = {
    "count": "how many rows a person has",
    "sum": "the sum of a person's values",
    "min": "a person's least value",
    "max": "a person's largest value",
    "any": "whether any row of a person says so",
}


def _type_of(spec: AttributeSpec) -> str:
    fold = spec.fold if spec.type == "number" or spec.type == "boolean" else None
    return _value_type(spec) + ("" if fold is None else f": {_FOLDS[fold]}")


def _value_type(spec: AttributeSpec) -> str:
    match spec.type:
        case "number":
            kind, kept = "whole number" if spec.integer else "number", spec.measure
            if spec.propose is not None:
                return f"{kind}, its bins still to be proposed"
            if kept is None:
                return kind
            return f"{kind}, its values kept from {kept.low:g} to {kept.high:g}"
        case "date":
            return f"date by {spec.by}" + (f", {spec.timezone}" if spec.timezone else "")
        case "category":
            return "category, in order" if spec.ordered else "category"
    return spec.type


def _cells_of(attribute: Attribute) -> str:
    """Lists the labels of the cells. Of many periods of the calendar it lists the first and last ones."""
    from stream_dp.core.rows.attributes import Date, is_on_grid

    if is_on_grid(attribute):
        return (
            f"{attribute.size - attribute.missing} of a fixed grid"
            + ", missing" * attribute.missing
        )
    labels = list(attribute.labels)
    if isinstance(attribute, Date) and len(labels) > _MOST_PERIODS:
        labels[3:-4] = ["..."]
    return ", ".join(labels)


@command.command("list")
@connected()
@json_option("Print one definition a line, as JSON.")
def list_(connection: GivenServers, as_json: bool) -> None:
    """List the data sets that are not retired."""
    with connection.client() as client:
        catalog = [definition for _, definition in sorted(client.catalog().items())]
    if as_json:
        for definition in catalog:
            click.echo(definition.to_bytes().decode())
        return
    if not catalog:
        click.echo(NONE_YET)
        return
    heads = ("data set", "attributes", "epsilon", "delta", "promised to", "error", "rows a phase")
    table = bare_table(*heads)
    for definition in catalog:
        privacy, accuracy = definition.privacy, definition.accuracy
        table.add_row(
            definition.dataset,
            escape(", ".join(attribute.name for attribute in definition.attributes)),
            f"{privacy.epsilon:g}",
            f"{privacy.delta:g}",
            privacy.promised_to,
            f"{accuracy.error:g}" if accuracy.aim is None else f"{100 * accuracy.aim:g}% of itself",
            f"{rows_of_a_phase(definition):,}",
        )
    show(table)


@command.command("analysts")
@connected("name")
@click.argument("file", type=FILE, required=False)
@yes_option
@json_option("Print such a JSON file.")
def analysts(
    connection: GivenServers, name: str, file: Path | None, yes: bool, as_json: bool
) -> None:
    """Show or replace who may charge how much of each line of NAME.

    FILE is a JSON object with the fields analysts and owner of a definition. They are replaced from the next
    query on. What was spent stays spent.
    """
    with connection.client() as client:
        client.definition(name)
        before = Odometer.read(client.ledger(name)).rules
        if file is None:
            _say_rules(name, before, as_json=as_json)
            return
        given = read_object(file, "a file of shares")
        if strange := given.keys() - {"analysts", "owner"}:
            problem = f"it has the field {min(strange)}"
            raise InvalidInput(file.name, problem, "leave only analysts and owner in it")
        change = ChangeAnalysts.said_in(name, given)
        lines = list(changes(before, ShareRules(change.analysts, change.owner)))
        if not lines:
            click.echo(f"{name}: nothing changes")
            return
        show(*lines)
        confirm("Put this in force?", NOT_IN_FORCE, yes=yes)
        with busy("Changing"):
            client.change_analysts(name, given["analysts"], owner=given.get("owner"))
    click.echo(f"{name}: this is in force from the next query on; what was spent stays spent")


def _say_rules(name: str, rules: ShareRules | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {}
        if rules is not None:
            specs = rules.analysts.items()
            document["analysts"] = {entry: spec.model_dump() for entry, spec in specs}
            if rules.owner is not None:
                document["owner"] = rules.owner.model_dump()
        click.echo(json.dumps(document, indent=2))
    elif rules is None:
        click.echo(f"{name}: everybody may ask, and charge all of each line")
    else:
        show(rules_table(rules))


@command.command("retire")
@connected("name")
@yes_option
def retire(connection: GivenServers, name: str, yes: bool) -> None:
    """Erase the rows of a data set for ever. Its name, answers and ledger stay."""
    with connection.client() as client:
        client.definition(name)
        confirm(
            f"This erases the rows of {name} for ever. The name can never be used again. Go on?",
            "nothing was erased; pass --yes to erase the rows for ever",
            yes=yes,
        )
        with busy("Retiring"):
            client.retire(name)
    click.echo(f"{name} is retired")
    click.echo(
        "its rows stay in the topics of batches and of blocks until their retention ends or the broker "
        "compacts them. See docs/operations.md, 'Retiring, and getting rid of rows'"
    )


@command.command("export")
@connected("name", operator=True)
@click.option(
    "--to",
    "folder",
    required=True,
    type=FOLDER,
    help="The folder to write, empty or not there yet.",
)
@yes_option
def export(connection: GivenServers, name: str, folder: Path, yes: bool) -> None:
    """End a data set here for good, and write it to a folder for another deployment.

    Stop all workers first. The folder holds raw rows. Import it into one deployment only: two would spend the
    same budget twice, and nothing can notice that.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.move import take_out
    from stream_dp.state.moved import MovingFolder

    confirm(
        f"{name} will never be served here again. Go on?",
        f"nothing was exported; pass --yes to end {name} here for good",
        yes=yes,
    )
    try:
        with busy("Exporting"):
            moving = MovingFolder(folder)
            run(connection, lambda tools: take_out(tools, name, moving))
    except KeyboardInterrupt:
        said = f"{name} may have ended here already: export it again, into a new folder"
        click.echo(said, err=True)
        raise
    click.echo(f"{name} has ended here and is in {folder}, which holds raw rows")
    click.echo(f"next, for the other deployment: stream-dp dataset import {folder}")


@command.command("import")
@connected(operator=True)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def import_(connection: GivenServers, folder: Path) -> None:
    """Import a data set that another deployment has exported.

    Stop all workers first.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.move import bring_in
    from stream_dp.state.moved import MovedFolder

    with busy("Importing"):
        moved = MovedFolder(folder)
        name = run(connection, lambda tools: bring_in(tools, moved))
    click.echo(f"{name} is on the journal; start a worker, which serves it from now on")
    click.echo(f"erase {folder} then: it holds raw rows, and no other deployment may import it")


@command.command("unlock")
@connected("name", operator=True)
def unlock(connection: GivenServers, name: str) -> None:
    """Let a data set in quarantine take records again.

    First fix what killed the worker. The worker that has the data set ends: start it again.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.unlock import lift

    record = run(connection, lambda tools: lift(tools, name), idle=False)
    if record:
        click.echo(f"{name} takes records again; the cause was the record {record}")
        click.echo("you may send the rejected records again under the same ids")
    else:
        click.echo(f"{name} is not in quarantine")
