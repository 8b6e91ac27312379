"""Shows how many rows of persons would count, to the owner of the rows or about a public sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.table import Table

from stream_dp.cli.terminal import many
from stream_dp.cli.text.reply_text import bare_table, numbers
from stream_dp.core.budget.parameters import Unit
from stream_dp.lab.person_counts import Census, CountingChoice
from stream_dp.messages import Definition
from stream_dp.profiles.line_units import epsilon_of_person


def persons_lines(census: Census, own: int | None, *, lifetime: bool) -> Iterator[str | Table]:
    """Says how many persons there are, and compares numbers of rows a person.

    Args:
        census: What the rows are like.
        own: The ``rows_per_phase`` of the definition, which is marked; None if it has none.
        lifetime: Whether the promise is for life.
    """
    n_rows, phases = census.n_rows // census.n_phases, many(census.n_phases, "phase")
    yield f"{census.persons_a_phase:,.0f} persons have rows in a phase of {n_rows:,} rows (mean of {phases})"
    if census.n_keyless:
        part = _part(census.n_keyless / census.n_rows)
        yield f"{part} of the rows say nobody's name, and never count"
    heads = numbers("rows_per_phase", "rows that count", "surplus", "noise")
    table = bare_table(*heads, "")
    for k in census.shown(() if own is None else (own,)):
        counted, noise = census.counted(k) / census.n_rows, census.noise(k)
        times = f"{noise:.2f} times" if math.isfinite(noise) else ""
        marked, style = ("the definition", "green") if k == own else ("", "")
        table.add_row(f"{k:,}", _part(counted), _part(1.0 - counted), times, marked, style=style)
    yield table
    yield "[dim]noise: as a share of the rows that count, compared with rows_per_phase 1[/dim]"
    if lifetime:
        said = "this is about a first phase: a person who has used up what is kept for life counts no more"
        yield f"[dim]{said}[/dim]"


def choices_table(
    found: Sequence[CountingChoice], best: CountingChoice, definition: Definition, phases: int
) -> Table:
    """Compares numbers of phases, each with the number of rows that suits it.

    Args:
        found: What was tried.
        best: The one that is recommended.
        definition: The definition, of whose unit only the key is kept.
        phases: The phases in the life of the data set.
    """
    after = f"epsilon after {many(phases, 'phase')}"
    table = bare_table(*numbers("phases", "rows_per_phase", "rows that count", "answers", after))
    for choice in found:
        unit = choice.unit
        lost = epsilon_of_person(with_unit(definition, unit), [1.0] * phases)
        table.add_row(
            f"{unit.phases:,}",
            f"{unit.rows_per_phase:,}",
            _part(choice.counted),
            _part(choice.answered),
            f"{lost:.3g}",
            style="green" if choice is best else "",
        )
    return table


def with_unit(definition: Definition, unit: Unit) -> Definition:
    """The same definition of persons with other numbers in its unit."""
    spec = definition.privacy.unit
    assert spec is not None, "a column of persons is named"
    privacy = definition.privacy.model_copy(update={"unit": spec.model_copy(update=asdict(unit))})
    return definition.model_copy(update={"privacy": privacy})


def _part(part: float) -> str:
    return f"{100 * part:.3g}%"
