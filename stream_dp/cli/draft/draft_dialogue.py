"""Asks the owner of a table for the names and types of its columns, and for what they tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from stream_dp.attribute_dates import CYCLES, calendar_of
from stream_dp.cli.draft.column_drafts import ColumnDraft
from stream_dp.cli.files.definition_files import values_of
from stream_dp.errors import InvalidInput

_TYPES: Final = ("category", "number", "boolean", "date", "none")
_PERIODS: Final = ("year", "quarter", "month", "week", "day", "hour", *CYCLES)


def asked_columns(known: Mapping[str, str], folder: Path, zone: str | None) -> list[ColumnDraft]:
    """Asks for columns: their names where none is known, their types, and what they tell apart.

    Args:
        known: The names of columns, with the types that they seem to have. Empty to ask for names.
        folder: The folder of the definition, where files of values are.
        zone: The time zone of dates. None is UTC.
    """
    return [_asked(name, seems, folder, zone) for name, seems in known.items() or _names()]


def asked(question: str, default: Any = None, **how: Any) -> Any:
    """Asks a question at the terminal, on the standard error."""
    return click.prompt(question, default=default, err=True, **how)


def _names() -> Iterator[tuple[str, str]]:
    """Asks for names until one is empty."""
    click.echo("Name the columns that people may ask about. An empty name ends the list.", err=True)
    seen: set[str] = set()
    while name := asked("Column", "", show_default=False).strip():
        if name in seen:
            click.echo(f"{name} is there already", err=True)
        else:
            yield name, "category"
        seen.add(name)


def _asked(name: str, seems: str, folder: Path, zone: str | None) -> ColumnDraft:
    kind = asked(f"Type of {name}", seems, type=click.Choice(_TYPES))
    if kind == "none":
        return ColumnDraft(name, None, "as you said")
    more: dict[str, Any] = {}
    if kind == "category":
        question = f"Values of {name}, with commas between them, or @FILE with one a line"
        more["values"] = asked(question, value_proc=lambda text: _values(text, folder))
    elif kind == "number":
        more["edges"] = asked(f"Where bins of {name} meet, such as 18, 30, 65", value_proc=_edges)
        if all(isinstance(edge, int) for edge in more["edges"]):
            more["integer"] = click.confirm("Are all of its numbers whole?", default=True, err=True)
    elif kind == "date":
        more["by"] = by = asked("Known by", "month", type=click.Choice(_PERIODS))
        if by not in CYCLES:
            ask = f"The {by} with which the dates begin, by its first day"
            more["from"] = asked(ask, value_proc=_checked(lambda text: calendar_of(by, text, None)))
        if zone is not None:
            more["timezone"] = zone
    attribute = {"name": name, "type": kind, **more, "missing": True}
    return ColumnDraft(name, attribute, "as you said")


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Makes a check of an answer, after which the question is asked again."""

    def proc(text: str) -> str:
        try:
            check(text.strip())
        except InvalidInput as error:
            raise click.BadParameter(f"{error.problem}; {error.fix}") from None
        return text.strip()

    return proc


def _values(text: str, folder: Path) -> str | list[str]:
    if text.strip().startswith("@"):
        return _checked(lambda name: values_of(name, "values", folder))(text)
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not values:
        raise click.BadParameter("write at least one value")
    return list(dict.fromkeys(values))


def _edges(text: str) -> list[float]:
    try:
        numbers = {float(part) for part in text.split(",") if part.strip()}
    except ValueError:
        raise click.BadParameter("write numbers with a decimal point, and commas between") from None
    if not numbers:
        raise click.BadParameter("write at least one number")
    return [int(edge) if edge.is_integer() else edge for edge in sorted(numbers)]
