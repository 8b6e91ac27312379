"""Options that say how a file of rows is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import click

from stream_dp.cli.command_options import Decorator


@dataclass(frozen=True)
class FileReading:
    """How a file of rows is read.

    Attributes:
        person: The column that says whose row it is, where persons are protected. None takes the column that
            the definition names.
        column: Attribute -> the column of the file that it is read from, where the names differ.
        delimiter: The character that separates columns. None takes a comma, or a tab for tsv.
        decimal: The decimal mark in number strings, see ``pointed``. None takes a point and no thousands
            separator.
        skip_bad_rows: Whether lines that hold no row, and rows without a date in ``time_column``, are left
            out. Otherwise the first one is an error.
        encoding: The encoding of a file of text.
        time_column: The column that says when a row was, to send the periods of the calendar one by one.
    """

    person: str | None = None
    column: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    decimal: str | None = None
    skip_bad_rows: bool = False
    encoding: str = "utf-8-sig"
    time_column: str | None = None

    def words(self) -> list[str]:
        """Returns the options of a command line that read a file like this."""
        words = []
        for one in fields(self):
            value, option = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, Mapping):
                for pair in value.items():
                    words += [option, "=".join(pair)]
            elif value != getattr(FileReading(), one.name):
                words += [option, value]
        return words

    def check_needed(self, needs: str) -> None:
        """Refuses all options of a command that reads no file.

        Args:
            needs: What the options need.
        """
        for one in fields(self):
            if getattr(self, one.name) != getattr(FileReading(), one.name):
                raise click.UsageError(f"--{one.name.replace('_', '-')} needs {needs}.")


def _encoding(_: click.Context, __: click.Parameter, name: str) -> str:
    try:
        "".encode(name)
    except LookupError:
        raise click.BadParameter(f"{name!r} is not an encoding that Python knows") from None
    # Excel writes a byte order mark before its UTF-8.
    return "utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name


def _delimiter(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    mark = {"\\t": "\t", "tab": "\t"}.get(given or "", given)
    if mark is not None and len(mark) != 1:
        raise click.BadParameter("the delimiter must be one character or the word tab")
    return mark


def _columns(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    columns = dict(pair.split("=", 1) for pair in given if "=" in pair)
    if len(columns) < len(given) or not all((*columns, *columns.values())):
        raise click.BadParameter("write ATTRIBUTE=COLUMN, such as hour=ordered_at")
    return columns


delimiter_option = click.option(
    "--delimiter",
    callback=_delimiter,
    help="The character that separates the columns of a CSV file.  [default: the one between the names in "
    "the first line]",
)
_NAMES = (
    click.option(
        "--person",
        help="The column that says whose row it is, where persons are protected.  "
        "[default: the name in the definition]",
    ),
    click.option(
        "--column",
        multiple=True,
        metavar="ATTRIBUTE=COLUMN",
        callback=_columns,
        help="Read an attribute from a column of another name, such as hour=ordered_at. Several attributes "
        "may read one column. Repeat the option for each attribute.",
    ),
)
_OPTIONS = (
    delimiter_option,
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        help="The decimal mark in numbers. The other one then separates thousands.  "
        "[default: a point, and no thousands separator]",
    ),
    click.option(
        "--skip-bad-rows",
        is_flag=True,
        help="Leave out the lines of a text file that hold no row, such as a line of CSV with another number "
        "of fields than the first one. Otherwise such a line is an error.",
    ),
    click.option(
        "--encoding",
        default="utf-8",
        callback=_encoding,
        help="The encoding of the file.",
    ),
)
_TIME_COLUMN = click.option(
    "--time-column",
    metavar="COLUMN",
    help="The column that says when a row was, in ISO 8601. Where phases follow the calendar, the rows of "
    "each period are sent on their own, in order.",
)


def reading_options(*, time: bool = True, defined: bool = True) -> Decorator:
    """Adds the options that say how a file is read. The command receives a ``reading``.

    Args:
        time: Whether the rows of a file may be about several periods of the calendar.
        defined: Whether a definition says which columns are read.
    """
    options = (*_NAMES * defined, *_OPTIONS, *(_TIME_COLUMN,) * time)
    names = {option.name for option in fields(FileReading)}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(**given: Any) -> Any:
            reading = FileReading(**{name: given.pop(name) for name in names & given.keys()})
            return function(reading=reading, **given)

        return functools.reduce(lambda command, option: option(command), reversed(options), wrapper)

    return decorate
