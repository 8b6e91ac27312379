"""Asks the owner of a table for the names and types of its columns, and for what they tell apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from stream_dp.attribute_dates import CYCLES, calendar_of
from stream_dp.cli.draft.column_drafts import ColumnDraft
from stream_dp.cli.draft.phase_drafts import drafted_phase
from stream_dp.cli.files.definition_files import values_of
from stream_dp.errors import InvalidInput
from stream_dp.messages import DATASET_PATTERN

_TYPES: Final = ("category", "number", "boolean", "date", "none")
_SAID: Final = "as you said"
_PERIODS: Final = ("year", "quarter", "month", "week", "day", "hour", *CYCLES)


def asked_dataset() -> str:
    """Asks for the name of the data set."""
    return str(_ask("Name of the data set", value_proc=_checked(checked_name)))


def checked_name(name: str) -> str:
    """Checks the name of a data set.

    Raises:
        InvalidInput: No data set can have this name.
    """
    if re.fullmatch(DATASET_PATTERN, name) is None:
        fix = "use small letters, digits, points, hyphens and underscores"
        raise InvalidInput("dataset", f"{name} cannot be the name of a data set", fix)
    return name


def asked_key() -> str | None:
    """Asks which column says whose row it is. None if each person has one row."""
    question = "Column that says whose row it is, if somebody may have several rows"
    return str(_ask(question, "", show_default=False)).strip() or None


def asked_phase(zone: str | None, *, dated: bool) -> tuple[dict[str, Any], str]:
    """Asks when phases open, and returns it as in a definition, with the reason.

    Args:
        zone: The time zone of periods. None is UTC.
        dated: Whether a column says when rows were.
    """
    choice = click.Choice(("rows", "day", "week", "month"))
    phase, _ = drafted_phase(0, Counter(), zone)
    ends = _ask("A phase opens after enough rows, or a", "month" if dated else "rows", type=choice)
    if ends != "rows":
        phase = {"every": f"1 {ends}", "timezone": zone or "UTC", **phase}
    return phase, _SAID


def asked_columns(
    known: Mapping[str, str], key: str | None, folder: Path, zone: str | None
) -> list[ColumnDraft]:
    """Asks for columns: their names where none is known, their types, and what they tell apart.

    Args:
        known: The names of columns, with the types that they seem to have. Empty to ask for names.
        key: The column that says whose row it is. It is not asked about.
        folder: The folder of the definition, where files of values are.
        zone: The time zone of dates. None is UTC.
    """
    columns = known.items() or _names({key})
    return [_asked(name, seems, folder, zone) for name, seems in columns if name != key]


def _ask(question: str, default: str | None = None, **how: Any) -> Any:
    return click.prompt(question, default=default, err=True, **how)


def _names(seen: set[str | None]) -> Iterator[tuple[str, str]]:
    """Asks for names until one is empty."""
    click.echo("Name the columns that people may ask about. An empty name ends the list.", err=True)
    while name := _ask("Column", "", show_default=False).strip():
        if name in seen:
            click.echo(f"{name} is there already", err=True)
        else:
            yield name, "category"
        seen.add(name)


def _asked(name: str, seems: str, folder: Path, zone: str | None) -> ColumnDraft:
    kind = _ask(f"Type of {name}", seems, type=click.Choice(_TYPES))
    if kind == "none":
        return ColumnDraft(name, None, _SAID)
    more: dict[str, Any] = {}
    if kind == "category":
        question = f"Values of {name}, with commas between them, or @FILE with one a line"
        more["values"] = _ask(question, value_proc=lambda text: _values(text, folder))
    elif kind == "number":
        question = f"Where bins of {name} meet, such as 18, 30, 65, or ? to have them proposed"
        edges = _ask(question, value_proc=_edges)
        more |= {"edges": edges} if edges else {"propose": {}}
        if all(isinstance(edge, int) for edge in edges):
            more["integer"] = click.confirm("Are all of its numbers whole?", default=True, err=True)
    elif kind == "date":
        more["by"] = by = _ask("Known by", "month", type=click.Choice(_PERIODS))
        if by not in CYCLES:
            begins = f"Where the first {by} begins, such as 2026-01-01"
            more["from"] = _ask(
                begins, value_proc=_checked(lambda text: calendar_of(by, text, None))
            )
        if zone is not None:
            more["timezone"] = zone
    attribute = {"name": name, "type": kind, **more, "missing": True}
    return ColumnDraft(name, attribute, _SAID)


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
    if text.strip() == "?":
        return []
    try:
        numbers = {float(part) for part in text.split(",") if part.strip()}
    except ValueError:
        raise click.BadParameter("write numbers with a decimal point, and commas between") from None
    if not numbers:
        raise click.BadParameter("write at least one number")
    return [int(edge) if edge.is_integer() else edge for edge in sorted(numbers)]
