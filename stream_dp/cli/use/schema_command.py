"""``stream-dp schema``: change the attributes of a data set, and show their versions."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich.markup import escape

from stream_dp.cli.checks.schema_edits import (
    changed,
    counted_as,
    deprecated,
    fields_of,
    renamed,
    with_bounds,
    with_edges,
    with_periods,
    with_proposed,
    with_values,
)
from stream_dp.cli.command_options import (
    FILE,
    Decorator,
    GivenServers,
    connected,
    json_option,
    yes_option,
)
from stream_dp.cli.files.definition_files import object_in, read_object
from stream_dp.cli.terminal import NOT_IN_FORCE, confirm, show
from stream_dp.cli.text.reply_text import busy
from stream_dp.cli.text.schema_changes import (
    differences,
    found_tables,
    grid_lines,
    version_lines,
)
from stream_dp.client.budget.odometer import Odometer
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition

Edit: TypeAlias = Callable[[Definition], Sequence[dict[str, Any]]]
"""Returns all attributes, by the definition in force."""

_NEW_FIELDS = frozenset({"attributes", "versions", "proposals", "found", "analysts", "owner"})
"""The fields that a file may have otherwise than the definition that was accepted."""


@click.group()
def command() -> None:
    """Change the attributes of a data set, and show their versions.

    A change counts from the first phase of which no row has come. Earlier rows stay as they are, and nothing
    is spent.
    """


@command.command("show")
@connected("name")
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
        lines = [*version_lines(versions, n_open), *grid_lines(definition, n_open)]
        show(*map(escape, lines), *found_tables(definition))


def _changing(command_name: str) -> Decorator:
    """Makes a command of a function that returns an edit. It has a data set NAME and ``--yes``, too.

    The command says what the edit changes, asks, and puts it in force.

    Args:
        command_name: The name of the command.
    """

    def decorate(function: Callable[..., Edit]) -> click.Command:
        @command.command(command_name)
        @connected("name")
        @yes_option
        @functools.wraps(function)
        def wrapper(connection: GivenServers, name: str, yes: bool, **given: Any) -> None:
            _change(connection, name, function(**given), yes=yes)

        return wrapper

    return decorate


@_changing("add-value")
@click.argument("attribute")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
def add_value(attribute: str, values: tuple[str, ...]) -> Edit:
    """Tell VALUEs of a category apart from now on.

    Earlier rows with them stay in other.
    """
    return lambda known: with_values(known, attribute, values)


@_changing("add-attribute")
@click.argument("attribute", metavar="FILE|JSON")
def add_attribute(attribute: str) -> Edit:
    """Add an attribute: a JSON object as in a definition, or a file.

    It says "missing": true if earlier rows count as missing, or "before" with the value that they count as.
    """
    if attribute.lstrip().startswith("{"):
        given = object_in(attribute.encode(), "ATTRIBUTE")
    else:
        given = read_object(Path(attribute), "an attribute")
    return lambda known: [*map(fields_of, known.attributes), given]


@_changing("split")
@click.argument("attribute")
@click.argument("edges", metavar="EDGE...", nargs=-1, required=True, type=float)
def split(attribute: str, edges: tuple[float, ...]) -> Edit:
    """Let bins of a number begin at more EDGEs.

    Earlier rows stay in their wider bins.
    """
    return lambda known: with_edges(known, attribute, edges)


@_changing("widen")
@click.argument("attribute")
@click.option("--low", type=float, help="The least value that is kept of a number.")
@click.option("--high", type=float, help="The largest value that is kept of a number.")
@click.option("--from", "first", help="The start of the first period of a date.")
@click.option("--until", help="The end of the last period of a date.")
def widen(
    attribute: str, low: float | None, high: float | None, first: str | None, until: str | None
) -> Edit:
    """Widen the bounds of a number whose values are kept, or of a date.

    Earlier rows keep the old bounds.
    """
    bounds = {end: number for end, number in (("low", low), ("high", high)) if number is not None}
    periods = {end: day for end, day in (("from", first), ("until", until)) if day is not None}
    if bool(bounds) == bool(periods):
        raise click.UsageError(
            "Give '--low' or '--high' of a number, or '--from' or '--until' of a date."
        )
    if bounds:
        return lambda known: with_bounds(known, attribute, bounds)
    return lambda known: with_periods(known, attribute, periods)


@_changing("rename")
@click.argument("old")
@click.argument("new")
@click.option("--of", "attribute", help="The category of which OLD is a value.")
def rename(old: str, new: str, attribute: str | None) -> Edit:
    """Rename the attribute OLD, or with --of a value of a category.

    Both names work from then on.
    """
    if attribute is None:
        return lambda known: renamed(known, old, new)
    return lambda known: counted_as(known, attribute, [old], new, is_new=True)


@_changing("merge")
@click.argument("attribute")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@click.option("--into", required=True, help="The value that they count as. It may be a new one.")
def merge(attribute: str, values: tuple[str, ...], into: str) -> Edit:
    """Count VALUEs of a category as one value, also in earlier rows."""
    return lambda known: counted_as(known, attribute, values, into)


@_changing("deprecate")
@click.argument("attribute")
def deprecate(attribute: str) -> Edit:
    """Let rows come without an attribute.

    It can still be asked about.
    """
    return lambda known: deprecated(known, attribute)


@_changing("accept")
def accept() -> Edit:
    """Accept the bins that were proposed for numbers of NAME.

    Earlier rows count in them exactly.
    """
    return with_proposed


@_changing("apply")
@click.argument("file", type=FILE)
def apply(file: Path) -> Edit:
    """Put the attributes of FILE, such as a definition, in force.

    The command shows what changes before it asks. Other fields of a definition cannot change.
    """
    return lambda known: _attributes_in(file, known)


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


def _change(connection: GivenServers, name: str, edit: Edit, *, yes: bool) -> None:
    """Says what an edit changes of a data set, asks, and puts it in force.

    Args:
        connection: The servers.
        name: The data set.
        edit: The edit.
        yes: Whether to go on without asking.
    """
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
        confirm(f"Put this in force from phase {first_phase:,} on?", NOT_IN_FORCE, yes=yes)
        with busy("Changing"):
            event = client.change_schema(name, attributes)
    click.echo(
        f"{name}: version {event.schema_version} counts from phase {event.phase:,} on; nothing was spent"
    )
