"""What is said of the rows of a file under a definition."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import click

from stream_dp.cli.checks.definition_check import free_words, one_query, reached, takes_words
from stream_dp.cli.checks.person_census import persons_lines
from stream_dp.cli.files.phase_cuts import MOST_LEFT, enough_rows, left_waiting
from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.files.value_survey import reading_table, surveyed, warn_of
from stream_dp.cli.terminal import show, warn
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.person_counts import Census, Counting
from stream_dp.messages import Definition
from stream_dp.profiles.advice import least_error
from stream_dp.profiles.builder import build
from stream_dp.profiles.opening_price import announced, opening_of


def check_file(rows: RowFile, definition: Definition, universe: Universe) -> None:
    """Shows how the rows of a file would be counted, and warns of what is probably not meant so."""
    unit, persons = definition.privacy.unit, Counting(definition.phase.min_rows)
    survey = surveyed(
        rows, universe, None if unit is None else lambda _, values: persons.take(values[unit.key])
    )
    show(reading_table(survey))
    warn_of([*survey.complaints(), *survey.proposals()])
    for words in survey.unlisted(None).values():
        click.echo(words)
    _warn_of_waiting(definition, survey.rows)
    _warn_of_small_periods(definition, rows.periods)
    if (census := persons.census()) is not None:
        _say_persons(definition, universe, census)


def _warn_of_waiting(definition: Definition, n_rows: int) -> None:
    """Warns if many rows of a file would wait for ever, where phases open by rows and none come later.

    A file that is too small for a phase is taken for a sample.
    """
    phase, name = definition.phase, definition.dataset
    if phase.every is not None or definition.mechanism.papers is not None:
        return
    left = left_waiting(definition, n_rows)
    if n_rows < phase.min_rows or left < MOST_LEFT * n_rows:
        return
    found = enough_rows(definition, n_rows)
    better = "" if found is None else f"set phase.min_rows to {found:,}, or "
    rest = "leave them out"
    if definition.least_to_close(left) <= left:
        rest = f"open a phase of them with `stream-dp phase close {name}`"
    warn(
        f"{left:,} of the {n_rows:,} rows ({left / n_rows:.1%}) would wait for more rows, because a phase "
        f"opens at {phase.min_rows:,}; if no more will come, {better}{rest}"
    )


def _warn_of_small_periods(definition: Definition, periods: Mapping[int, int]) -> None:
    """Warns of periods of a file that have too few rows for a phase of their own."""
    if few := [rows for rows in periods.values() if rows < definition.phase.min_rows]:
        warn(
            f"{len(few):,} of the {len(periods):,} periods in the file have fewer than the "
            f"{definition.phase.min_rows:,} rows of phase.min_rows, {min(few):,} at the least; such a period "
            "waits, and joins the next one"
        )


def _say_persons(definition: Definition, universe: Universe, census: Census) -> None:
    """Shows how many rows of persons would count, and warns if too few do for the accuracy."""
    unit, n_rows = definition.privacy.unit, definition.phase.min_rows
    assert unit is not None, "there are persons"
    show("", *persons_lines(census, unit.rows_per_phase, lifetime=unit.lifetime))
    counted = census.counted_of(n_rows, unit.rows_per_phase)
    _, mechanism = build(definition)
    opening = opening_of(mechanism, universe.names, counted)
    takes = announced(mechanism, max(1, counted))
    assert opening is not None, "only the calibrated profile protects persons"
    assert takes is not None, "what opening takes is known"
    click.echo(
        f"if {counted:,} of {n_rows:,} rows count, {takes_words(takes)}\n{free_words(opening)}"
    )
    if definition.accuracy.aim is not None:
        return
    error, need = definition.accuracy.error, one_query(definition, universe, n_rows)
    of_all, least = least_error(need), least_error(replace(need, n_counted=max(1, counted)))
    if of_all is not None and of_all <= error and (least is None or least > error):
        # How many persons there are is for a terminal, and not for a log.
        by = f" by {census.persons_a_phase:,.0f} persons" if sys.stderr.isatty() else ""
        warn(
            f"accuracy.error {error:g} is out of reach of a phase of {n_rows:,} rows{by}{reached(least)}; "
            "allow a larger error, wait for more rows in phase.min_rows, or protect fewer phases"
        )
