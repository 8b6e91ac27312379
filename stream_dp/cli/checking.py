"""How the values of a file would be counted, for who holds the file: nothing of it leaves this process."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.files import Source
from stream_dp.cli.rendering import bare_table
from stream_dp.core.universe import Attribute, Boolean, Category, Number, Universe

__all__ = ["Reading", "reading_table", "readings"]

_WORDS = {
    Category: ("listed", "not listed"),
    Number: ("a number", "no number"),
    Boolean: ("true or false", "neither true nor false"),
}
_EXAMPLES = 3


@dataclass
class Reading:
    """The values of one column, as the definition tells them apart.

    Attributes:
        understood: Rows with a value that has a cell of its own, or a bin.
        empty: Rows without a value.
        strange: Every other value, with its number of rows.
    """

    understood: int = 0
    empty: int = 0
    strange: Counter[str] = field(default_factory=Counter)


def readings(
    source: Source, universe: Universe, progress: Callable[[int], None]
) -> Mapping[str, Reading]:
    """Reads a file to its end.

    Raises:
        InvalidInput: Something in it cannot be read; says in which line.
    """
    found = {attribute.name: Reading() for attribute in universe.attributes}
    for batch in source.batches():
        for attribute in universe.attributes:
            _count(attribute, batch.columns[attribute.name], found[attribute.name])
        progress(batch.read_bytes)
    return found


def _count(attribute: Attribute, column: list[Any], reading: Reading) -> None:
    strict = _strict(attribute)
    strange = {strict.missing_cell, strict.other_cell if isinstance(strict, Category) else None}
    for value, code in zip(column, strict.encode(column).tolist(), strict=True):
        if value is None:
            reading.empty += 1
        elif code in strange:
            reading.strange[str(value)] += 1
        else:
            reading.understood += 1


def _strict(attribute: Attribute) -> Attribute:
    """The attribute with cells of their own for what it does not understand."""
    if isinstance(attribute, Category):
        return dataclasses.replace(attribute, missing=True, other=True)
    return dataclasses.replace(attribute, missing=True)


def reading_table(universe: Universe, found: Mapping[str, Reading]) -> Table:
    """For each attribute what its column holds, how much of it, and what that would count as."""
    table = bare_table("attribute", "values", numbers=("rows",))
    table.add_column("counted as")
    for attribute in universe.attributes:
        reading = found[attribute.name]
        understood, strange = _WORDS[type(attribute)]
        table.add_row(escape(attribute.name), understood, f"{reading.understood:,}", "itself")
        if reading.empty:
            table.add_row("", "empty", f"{reading.empty:,}", _cell(attribute, None))
        if reading.strange:
            common = [repr(value) for value, _ in reading.strange.most_common(_EXAMPLES)]
            shown = ", ".join(f"{value:.30}" for value in common)
            more = ", ..." if len(reading.strange) > _EXAMPLES else ""
            table.add_row(
                "",
                f"[yellow]{strange}[/yellow]: {escape(shown)}{more}",
                f"{reading.strange.total():,}",
                _cell(attribute, next(iter(reading.strange))),
            )
    return table


def _cell(attribute: Attribute, value: str | None) -> str:
    return escape(attribute.labels[int(attribute.encode([value])[0])])
