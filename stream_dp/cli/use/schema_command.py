"""``stream-dp schema``: change the attributes of a data set, and show their versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.markup import escape

from stream_dp.cli.files.definition_files import object_in, read_object
from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.shared_options import FILE, json_option, yes_option
from stream_dp.cli.terminal import confirm, show
from stream_dp.cli.text.reply_text import busy
from stream_dp.cli.text.schema_changes import (
    differences,
    found_tables,
    grid_lines,
    version_lines,
)
from stream_dp.client.budget.odometer import Odometer
from stream_dp.errors import InvalidInput
from stream_dp.messages import CategoryAttribute, DateAttribute, Definition, NumberAttribute

A = TypeVar("A")

_NEW_FIELDS = frozenset({"attributes", "versions", "proposals", "found", "analysts", "owner"})
"""The fields that a file may have otherwise than the definition that was accepted."""


@click.group()
def command() -> None:
    """Change the attributes of a data set, and show their versions.

    A change counts from the first phase of which no row has come. Earlier rows stay as they are, and nothing
    is spent.
    """


@command.command("show")
@connected()
@click.argument("name")
@json_option("Print the versions as JSON.")
def show_(connection: GivenServers, name: str, as_json: bool) -> None:
    """Show the versions of the attributes of NAME."""
    with connection.client() as client:
        definition = client.definition(name)
        versions = definition.schema_versions
        n_open = len(Odometer.read(client.ledger(name)).blocks)
    if as_json:
        document = definition.model_dump(mode="json", exclude_none=True, by_alias=True)
        listed = [one.model_dump(mode="json", exclude_none=True, by_alias=True) for one in versions]
        said = {key: document[key] for key in ("proposals", "found") if key in document}
        click.echo(json.dumps({"dataset": name, "versions": listed, **said}, indent=2))
    else:
        lines = [
            *version_lines(versions, n_open),
            *grid_lines(definition, n_open),
        ]
        show(*map(escape, lines), *found_tables(definition))


@command.command("add-value")
@connected()
@click.argument("name")
@click.argument("attribute")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@yes_option
def add_value(
    connection: GivenServers, name: str, attribute: str, values: tuple[str, ...], yes: bool
) -> None:
    """Tell VALUEs of a category apart from now on.

    Earlier rows with them stay in other.
    """
    from stream_dp.cli.checks.schema_edits import with_values

    _change_one(connection, name, attribute, CategoryAttribute, with_values(values), yes=yes)


@command.command("add-attribute")
@connected()
@click.argument("name")
@click.argument("attribute", metavar="FILE|JSON")
@yes_option
def add_attribute(connection: GivenServers, name: str, attribute: str, yes: bool) -> None:
    """Add an attribute: a JSON object as in a definition, or a file.

    It says "missing": true if earlier rows count as missing, or "before" with the value that they count as.
    """
    from stream_dp.cli.checks.schema_edits import fields_of

    if attribute.lstrip().startswith("{"):
        given = object_in(attribute.encode(), "ATTRIBUTE")
    else:
        given = read_object(Path(attribute), "an attribute")
    _change(connection, name, lambda known: [*fields_of(known.attributes), given], yes=yes)


@command.command("split")
@connected()
@click.argument("name")
@click.argument("attribute")
@click.argument("edges", metavar="EDGE...", nargs=-1, required=True, type=float)
@yes_option
def split(
    connection: GivenServers, name: str, attribute: str, edges: tuple[float, ...], yes: bool
) -> None:
    """Let bins of a number begin at more EDGEs.

    Earlier rows stay in their wider bins.
    """
    from stream_dp.cli.checks.schema_edits import with_edges

    _change_one(connection, name, attribute, NumberAttribute, with_edges(edges), yes=yes)


@command.command("widen")
@connected()
@click.argument("name")
@click.argument("attribute")
@click.option("--low", type=float, help="The least value that is kept of a number.")
@click.option("--high", type=float, help="The largest value that is kept of a number.")
@click.option("--from", "first", help="The start of the first period of a date.")
@click.option("--until", help="The end of the last period of a date.")
@yes_option
def widen(
    connection: GivenServers,
    name: str,
    attribute: str,
    low: float | None,
    high: float | None,
    first: str | None,
    until: str | None,
    yes: bool,
) -> None:
    """Widen the bounds of a number whose values are kept, or of a date.

    Earlier rows keep the old bounds.
    """
    from stream_dp.cli.checks.schema_edits import dated_within, kept_within

    of_number, of_date = (low, high) != (None, None), (first, until) != (None, None)
    if of_number == of_date:
        raise click.UsageError(
            "Give '--low' or '--high' of a number, or '--from' or '--until' of a date."
        )
    if of_number:
        _change_one(connection, name, attribute, NumberAttribute, kept_within(low, high), yes=yes)
    else:
        edit = dated_within(first, until)
        _change_one(connection, name, attribute, DateAttribute, edit, yes=yes)


@command.command("rename")
@connected()
@click.argument("name")
@click.argument("old")
@click.argument("new")
@click.option("--of", "attribute", help="The category of which OLD is a value.")
@yes_option
def rename(
    connection: GivenServers, name: str, old: str, new: str, attribute: str | None, yes: bool
) -> None:
    """Rename the attribute OLD, or with --of a value of a category.

    Both names work from then on.
    """
    from stream_dp.cli.checks.schema_edits import counted_as, renamed

    if attribute is None:
        _change(connection, name, lambda known: renamed(known, old, new), yes=yes)
    else:
        edit = counted_as([old], new, is_new=True)
        _change_one(connection, name, attribute, CategoryAttribute, edit, yes=yes)


@command.command("merge")
@connected()
@click.argument("name")
@click.argument("attribute")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@click.option("--into", required=True, help="The value that they count as. It may be a new one.")
@yes_option
def merge(
    connection: GivenServers,
    name: str,
    attribute: str,
    values: tuple[str, ...],
    into: str,
    yes: bool,
) -> None:
    """Count VALUEs of a category as one value, also in earlier rows."""
    from stream_dp.cli.checks.schema_edits import counted_as

    _change_one(connection, name, attribute, CategoryAttribute, counted_as(values, into), yes=yes)


@command.command("deprecate")
@connected()
@click.argument("name")
@click.argument("attribute")
@yes_option
def deprecate(connection: GivenServers, name: str, attribute: str, yes: bool) -> None:
    """Let rows come without an attribute.

    It can still be asked about.
    """
    _change_one(connection, name, attribute, object, lambda _: {"deprecated": True}, yes=yes)


@command.command("accept")
@connected()
@click.argument("name")
@yes_option
def accept(connection: GivenServers, name: str, yes: bool) -> None:
    """Accept the bins that were proposed for numbers of NAME.

    Earlier rows count in them exactly.
    """
    from stream_dp.cli.checks.schema_edits import with_proposed

    _change(connection, name, with_proposed, yes=yes)


@command.command("apply")
@connected()
@click.argument("name")
@click.argument("file", type=FILE)
@yes_option
def apply(connection: GivenServers, name: str, file: Path, yes: bool) -> None:
    """Put the attributes of FILE, such as a definition, in force.

    The command shows what changes before it asks. Other fields of a definition cannot change.
    """
    _change(connection, name, lambda known: _attributes_in(file, known), yes=yes)


def _attributes_in(file: Path, known: Definition) -> list[dict[str, Any]]:
    """Reads all attributes of a file.

    Raises:
        InvalidInput: There are none, or another field has changed too.
    """
    given = read_object(file, "a definition")
    attributes: list[dict[str, Any]] | None = given.get("attributes")
    if not isinstance(attributes, list):
        fix = "write a definition, or an object with the list attributes"
        raise InvalidInput(file.name, "it has no attributes", fix)
    if given.keys() == {"attributes"}:
        return attributes
    read = Definition.read({"version": 1, **given}, quoting=True)
    for field in Definition.model_fields.keys() - _NEW_FIELDS:
        if getattr(read, field) != getattr(known, field):
            fix = "only attributes can change: leave it as it is, or create another data set"
            raise InvalidInput(file.name, f"it has another {field} than {known.dataset}", fix)
    return attributes


def _change_one(
    connection: GivenServers,
    name: str,
    attribute: str,
    kind: type[A],
    edit: Callable[[A], Mapping[str, Any]],
    *,
    yes: bool,
) -> None:
    """Does as ``_change`` with one attribute.

    Args:
        connection: The servers.
        name: The data set.
        attribute: The attribute.
        kind: The type that it must have.
        edit: Returns the fields of it that are replaced.
        yes: Whether to go on without asking.
    """
    from stream_dp.cli.checks.schema_edits import edited

    _change(connection, name, lambda known: edited(known, attribute, kind, edit), yes=yes)


def _change(
    connection: GivenServers,
    name: str,
    edit: Callable[[Definition], Sequence[dict[str, Any]]],
    *,
    yes: bool,
) -> None:
    """Says what other attributes change, asks, and puts them in force.

    Args:
        connection: The servers.
        name: The data set.
        edit: Returns all attributes, by the definition in force.
        yes: Whether to go on without asking.
    """
    from stream_dp.cli.checks.schema_edits import changed

    with connection.client() as client:
        known = client.definition(name)
        waiting = client.waiting().get(name, 0)
        first_phase = len(Odometer.read(client.ledger(name)).blocks) + (2 if waiting else 1)
        attributes = edit(known)
        with busy("Checking"):
            after = changed(known, attributes, first_phase)
        if not (lines := list(differences(known.attributes, after.attributes))):
            click.echo(f"{name}: nothing changes")
            return
        show(*map(escape, lines))
        if not yes:
            confirm(
                f"Put this in force from phase {first_phase:,} on?",
                "nothing was changed; pass --yes to put this in force",
            )
        with busy("Changing"):
            event = client.change_schema(name, attributes)
    click.echo(
        f"{name}: version {event.schema_version} counts from phase {event.phase:,} on; nothing was spent"
    )
