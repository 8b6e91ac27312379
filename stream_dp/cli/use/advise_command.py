"""``stream-dp advise``: recommends a mechanism, from formulas and from a trial on synthetic rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

import click

from stream_dp.cli.checks.advice_text import Advice, advice_lines, percent, rounded, unit_lines
from stream_dp.cli.checks.definition_check import warn_of_privacy
from stream_dp.cli.checks.person_census import with_unit
from stream_dp.cli.command_options import FILE
from stream_dp.cli.files.definition_files import read_definition
from stream_dp.cli.files.reading_options import FileReading, reading_options
from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.files.value_survey import warn_of_left_out
from stream_dp.cli.terminal import many, note, show, warn
from stream_dp.cli.text.progress_bar import bar
from stream_dp.core.budget.parameters import Accuracy, Unit
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.encoded_rows import MAX_ROWS, Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput
from stream_dp.lab.person_counts import Census, Counting, choice_of, chosen, of_unit
from stream_dp.lab.singles import singles
from stream_dp.lab.trial import trial
from stream_dp.messages import LARGE_EPSILON, CalibratedSpec, Definition, PhaseSpec, UnitSpec
from stream_dp.profiles.advice import (
    Name,
    Need,
    Trial,
    Workload,
    estimates,
    least_error,
    least_rows,
    most_thresholds,
)
from stream_dp.profiles.builder import universe_of
from stream_dp.profiles.line_units import epsilon_of_person, privacy_of
from stream_dp.profiles.planned_tiles import tiles_of

_SAMPLED_ROWS: Final = 200_000
_MOST_TILES_ASKED: Final = 10_000
_CALIBRATED: Final = (Name.CALIBRATED, Name.WITHOUT_BASE)
_TRIED_TILES: Final = (Name.CALIBRATED, Name.UNDECLARED, Name.WITHOUT_BASE)


@click.command()
@click.argument("definition", type=FILE)
@click.option(
    "--queries",
    type=click.IntRange(1, 10**9),
    help="The number of different queries in the life of the data set. Repeats are free. If DEFINITION has a "
    "workload, they come on top of its tiles.",
)
@click.option(
    "--phases",
    type=click.IntRange(1, 400),
    default=12,
    help="The number of phases in the life of the data set.",
)
@click.option(
    "--rows-per-phase",
    type=click.IntRange(1, MAX_ROWS),
    help="The number of rows in a phase.  [default: phase.min_rows]",
)
@click.option(
    "--workload",
    type=click.Choice(get_args(Workload)),
    default="conjunctions",
    help="The queries of the trial. conjunctions: 1 to 3 conditions with AND. predicates: with OR and NOT "
    "too. thresholds: how many rows are at or below a value.",
)
@click.option("--attribute", help="The numeric attribute of the thresholds.")
@click.option(
    "--sample",
    type=FILE,
    help="A PUBLIC file from which the trial draws its rows. The output reveals facts about this file. Never "
    "pass the rows that you want to protect.",
)
@reading_options(time=False)
def command(
    definition: Path,
    queries: int | None,
    phases: int,
    rows_per_phase: int | None,
    workload: Workload,
    attribute: str | None,
    sample: Path | None,
    reading: FileReading,
) -> None:
    """Recommend a mechanism for the schema, privacy and accuracy of DEFINITION and a number of queries.

    The command uses price formulas and a trial on synthetic rows. It needs no server and reads no private
    row. The trial asks the tiles of DEFINITION after each phase.

    With --person it also recommends rows_per_phase and phases of privacy.unit, from a public --sample.
    """
    if attribute is not None and workload != "thresholds":
        raise click.UsageError("--attribute needs --workload thresholds")
    if sample is None:
        reading.check_needed("--sample")
    read = _with_phases(read_definition(definition), rows_per_phase, phases)
    if workload == "thresholds":
        # They are counts of rows, and the trial keeps one attribute alone.
        read = read.without_measures
    universe = universe_of(read)
    tiles = () if workload == "thresholds" else _tiles(read, universe)
    if queries is None and not tiles:
        raise click.UsageError("Missing option '--queries': DEFINITION has no workload")
    if len(tiles) * phases > _MOST_TILES_ASKED:
        phases = max(1, _MOST_TILES_ASKED // len(tiles))
        note(f"with {len(tiles)} tiles the trial has {many(phases, 'phase')}")
    of_persons = _of_persons(read, sample, reading.person)
    rows, census = (None, None) if sample is None else _sampled(sample, of_persons, reading)
    if workload == "thresholds":
        index = _ordered(universe, attribute)
        universe = Universe((universe.attributes[index],))
        rows = rows and Rows(rows.codes[index : index + 1])
    accuracy = Accuracy(read.accuracy.error, read.accuracy.failure_probability)
    n_rows = read.phase.min_rows
    need = Need(universe, privacy_of(read), accuracy, n_rows, phases, queries or 0, workload, tiles)
    need = _without_repeats(need)
    warn_of_privacy(read, n_rows)
    trials: dict[Name, Trial] = {}
    if census is not None and rows is not None:
        need, trials = _with_persons(need, census, rows, of_persons)
    _warn_of_error(need)
    advice = _advice(need, rows, trials)
    show(*advice_lines(advice, sample, names_error=read.accuracy.aim is None))


# ---------------------------------------------------------------- the need


def _with_phases(definition: Definition, rows_per_phase: int | None, phases: int) -> Definition:
    """Returns the definition with phases of this many rows, checked like a new one."""
    n_rows = rows_per_phase or definition.phase.min_rows
    if n_rows * phases > MAX_ROWS:
        problem = f"all phases have more than {MAX_ROWS:,} rows"
        raise InvalidInput("--rows-per-phase", problem, "pass a smaller number")
    found = definition.model_copy(update={"phase": PhaseSpec(min_rows=n_rows)})
    found.check_new()
    return found


def _tiles(definition: Definition, universe: Universe) -> tuple[PlannedTile, ...]:
    """Returns the tiles of a definition that names some."""
    settings = definition.mechanism
    return tiles_of(settings, universe) if isinstance(settings, CalibratedSpec) else ()


def _ordered(universe: Universe, name: str | None) -> int:
    """Returns the index of the attribute that the thresholds refer to."""
    ordered = [a.name for a in universe.attributes if isinstance(a, Number)]
    if not ordered:
        problem = "it has no attribute of type number"
        raise InvalidInput("DEFINITION", problem, "thresholds need a numeric attribute")
    if name is None and len(ordered) == 1:
        return universe.index(ordered[0])
    if name in ordered:
        return universe.index(name)
    problem = "there are several attributes of type number"
    if name is not None:
        problem = f"{name} is not an attribute of type number"
    raise InvalidInput("--attribute", problem, f"name one of {', '.join(ordered)}")


def _of_persons(definition: Definition, sample: Path | None, person: str | None) -> Definition:
    """The definition with a unit if there is a column of persons, so that files are read with it.

    Raises:
        InvalidInput: It protects persons and there is no sample, or the column of persons is an attribute.
    """
    if definition.privacy.unit is not None and sample is None:
        raise InvalidInput(
            "DEFINITION",
            "it protects persons, and nobody can guess how many rows a person has",
            "pass --sample with a PUBLIC file that says whose its rows are",
        )
    if definition.privacy.unit is not None or person is None:
        return definition
    if person in {a.name for a in definition.attributes}:
        raise InvalidInput("--person", "it is an attribute too", "name another column")
    unit = UnitSpec(key=person, rows_per_phase=1, phases=1)
    privacy = definition.privacy.model_copy(update={"unit": unit})
    return definition.model_copy(update={"privacy": privacy})


def _sampled(
    file: Path, definition: Definition, reading: FileReading
) -> tuple[Rows, Census | None]:
    """Reads the first rows of a public file, and counts the rows of each person if it says whose they are."""
    unit, source = definition.privacy.unit, RowFile(file, definition, _SAMPLED_ROWS, reading)
    with bar() as progress:
        progress.add_task(f"Reading {file.name}", total=None)
        batch = next(source.batches(), None)
    warn_of_left_out(source)
    if batch is None:
        raise InvalidInput(file.name, "it has no rows", "omit --sample to use synthetic rows")
    census = None
    if unit is not None:
        persons = Counting(definition.phase.min_rows)
        persons.take(batch.columns.pop(unit.key))
        census = persons.census()
        if census is not None and not census.counted(1):
            fix = "pass --person with the column that does"
            raise InvalidInput(file.name, "no row says whose it is", fix)
    return universe_of(definition).encode_columns(batch.columns), census


def _without_repeats(need: Need) -> Need:
    """Returns the need with no more queries than there are different ones."""
    if need.workload != "thresholds" or need.queries <= (most := most_thresholds(need)):
        return need
    note(f"there are only {most:,} different queries of this kind; the others are free repeats")
    return replace(need, queries=most)


def _with_persons(
    need: Need, census: Census, sample: Rows, of_persons: Definition
) -> tuple[Need, dict[Name, Trial]]:
    """Recommends a unit.

    Returns:
        The need with the unit of the definition, or with the recommended one if it has none, and what was
        tried with it.
    """
    own, most_lost = need.privacy.unit, max(LARGE_EPSILON, need.privacy.epsilon)
    strong = _strong(need, of_persons, most_lost)
    lengths = sorted(strong if own is None else {*strong, own.phases})
    with bar() as progress:
        units = progress.track(lengths, description="Trying units")
        found = [choice_of(need, census, sample, phases) for phases in units]
    best = chosen([choice for choice in found if choice.unit.phases in strong])
    show(*unit_lines(census, own, found, best, of_persons, phases=need.phases, most_lost=most_lost))
    used = own or best.unit
    known = [choice.trial for choice in found if choice.unit == used]
    return of_unit(need, census, used), dict(zip((Name.CALIBRATED,), known, strict=False))


def _strong(need: Need, of_persons: Definition, most_lost: float) -> set[int]:
    """The numbers of phases of a unit with which nobody loses too much in the life of the data set."""
    lifetime = need.privacy.unit is not None and need.privacy.unit.lifetime
    life = [1.0] * need.phases
    return {
        phases
        for phases in (need.phases, *(2**i for i in range(need.phases.bit_length())))
        if epsilon_of_person(with_unit(of_persons, Unit(1, phases, lifetime)), life) <= most_lost
    }


def _warn_of_error(need: Need) -> None:
    error = least_error(need)
    if error is not None and error <= need.accuracy.error:
        return
    least = "" if error is None else f"; the smallest is {percent(error)}"
    rows = least_rows(need)
    enough = "" if rows is None else f", or {rounded(rows)} rows a phase"
    warn(
        f"phases of {rounded(need.n_rows)} rows are too small for an error of "
        f"{percent(need.accuracy.error)}: not even one query about one phase could be answered{least}. "
        f"Ask about more phases at once, or allow a larger error{enough}"
    )


# ---------------------------------------------------------------- judging


def _advice(need: Need, sample: Rows | None, known: Mapping[Name, Trial]) -> Advice:
    """Tries mechanisms, and judges them."""
    names = [name for name in _tried(need) if name not in known]
    with bar() as progress:
        tick = partial(
            progress.advance, progress.add_task("Trying", total=len(names) * need.phases)
        )
        trials = {**known, **trial(need, names, sample=sample, tick=tick)}
    found = [
        estimate.tried(trials[estimate.name], need) if estimate.name in trials else estimate
        for estimate in estimates(need)
    ]
    prices = [] if need.pure or need.workload == "thresholds" else singles(need, sample)
    return Advice(need, found, trials, prices)


def _tried(need: Need) -> tuple[Name, ...]:
    """The mechanisms that are tried."""
    if need.privacy.unit is not None:
        return _TRIED_TILES if need.tiles else _CALIBRATED
    if need.tiles:
        return (Name.PURE_COUNTS,) if need.pure else (*_TRIED_TILES, Name.COUNTS)
    if need.pure:
        return Name.PURE_COUNTS, Name.BYPASS
    return *_CALIBRATED, Name.COUNTS, Name.TABLE, Name.BYPASS
