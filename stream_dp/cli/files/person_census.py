"""Shows how many rows of persons would count, to the owner of the rows or about a public sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table

from stream_dp.cli.text.reply_text import bare_table
from stream_dp.core.budget.parameters import Unit
from stream_dp.lab.person_counts import Census, CountingChoice
from stream_dp.messages import Definition
from stream_dp.profiles.line_units import epsilon_of_person

NOISE: Final = "noise: as a share of the rows that count, compared with rows_per_phase 1"
"""What the table of persons compares."""
FOR_LIFE: Final = (
    "this is about a first phase: a person who has used up what is kept for life counts no more"
)
"""What the table does not show where the promise is for life."""


def census_lines(census: Census) -> Iterator[str]:
    """Says in words how many persons there are, and what the table compares."""
    n_rows = census.n_rows // census.n_phases
    phases = "1 phase" if census.n_phases == 1 else f"{census.n_phases:,} phases"
    yield f"{census.persons_a_phase:,.0f} persons have rows in a phase of {n_rows:,} rows (mean of {phases})"
    if census.n_keyless:
        part = _part(census.n_keyless / census.n_rows)
        yield f"{part} of the rows say nobody's name, and never count"


def persons_table(census: Census, own: int | None) -> Table:
    """Compares numbers of rows a person.

    Args:
        census: What the rows are like.
        own: The ``rows_per_phase`` of the definition, which is marked; None if it has none.
    """
    table = bare_table(numbers=("rows_per_phase", "rows that count", "surplus", "noise"))
    table.add_column("")
    for k in census.shown(() if own is None else (own,)):
        counted, noise = census.counted(k) / census.n_rows, census.noise(k)
        table.add_row(
            f"{k:,}",
            _part(counted),
            _part(1.0 - counted),
            f"{noise:.2f} times" if math.isfinite(noise) else "",
            "the definition" if k == own else "",
            style="green" if k == own else "",
        )
    return table


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
    after = "1 phase" if phases == 1 else f"{phases:,} phases"
    heads = ("phases", "rows_per_phase", "rows that count", "answers", f"epsilon after {after}")
    table = bare_table(numbers=heads)
    for choice in found:
        unit = choice.unit
        table.add_row(
            f"{unit.phases:,}",
            f"{unit.rows_per_phase:,}",
            _part(choice.counted),
            _part(choice.answered),
            f"{epsilon_of_person(with_unit(definition, unit), [1.0] * phases):.3g}",
            style="green" if choice is best else "",
        )
    return table


def with_unit(definition: Definition, unit: Unit) -> Definition:
    """The same definition of persons with other numbers in its unit."""
    spec = definition.privacy.unit
    assert spec is not None, "a column of persons is named"
    numbers = {
        "rows_per_phase": unit.rows_per_phase,
        "phases": unit.phases,
        "lifetime": unit.lifetime,
    }
    privacy = definition.privacy.model_copy(update={"unit": spec.model_copy(update=numbers)})
    return definition.model_copy(update={"privacy": privacy})


def _part(part: float) -> str:
    return f"{100 * part:.3g}%"
