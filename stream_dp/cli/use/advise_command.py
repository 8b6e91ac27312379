"""``stream-dp advise``: recommends a mechanism, from formulas and from a trial on synthetic rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.files.person_census import (
    FOR_LIFE,
    NOISE,
    census_lines,
    choices_table,
    persons_table,
    with_unit,
)
from stream_dp.cli.files.row_files import RowFile
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import bare_table, output
from stream_dp.cli.use.dataset_command import read_definition, warn, warn_of_delta, warn_of_epsilon
from stream_dp.cli.use.ingest_command import (
    column_option,
    decimal_option,
    delimiter_option,
    encoding_option,
    skip_option,
    warn_of_left_out,
)
from stream_dp.core.budget.parameters import Accuracy, Unit
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.rows.universe import MAX_ROWS, Number, Rows, Universe
from stream_dp.errors import InvalidInput
from stream_dp.lab.person_counts import Census, Counting, choice_of, chosen, of_unit
from stream_dp.lab.singles import Single, singles
from stream_dp.lab.trial import trial
from stream_dp.messages import LARGE_EPSILON, CalibratedSpec, Definition, PhaseSpec, UnitSpec
from stream_dp.profiles.advice import (
    RECENT,
    SERVES,
    Estimate,
    Name,
    Need,
    Trial,
    Workload,
    estimates,
    least_error,
    least_rows,
    most_thresholds,
    recommended,
)
from stream_dp.profiles.builder import universe_of
from stream_dp.profiles.line_units import epsilon_of_person, privacy_of
from stream_dp.profiles.planned_tiles import tiles_of

_SAMPLED_ROWS: Final = 200_000
_ANYBODY: Final = 10**12
"""A number of rows that no phase reaches in practice."""
_CALIBRATED: Final = (Name.CALIBRATED, Name.WITHOUT_BASE)
_TRIED_TILES: Final = (Name.CALIBRATED, Name.UNDECLARED, Name.WITHOUT_BASE)
_MOST_TILES_ASKED: Final = 10_000
_TRIED: Final = (*_CALIBRATED, Name.COUNTS, Name.TABLE, Name.BYPASS)
_TRIED_PURE: Final = (Name.PURE_COUNTS, Name.BYPASS)
_CALLED: Final[Mapping[Name, str]] = {
    Name.UNDECLARED: "calibrated without the workload",
    Name.WITHOUT_BASE: "calibrated without a base release",
    Name.PURE_COUNTS: "counts under a pure promise",
    Name.TREE: "trees of thresholds",
}


@click.command()
@click.argument("definition", type=click.Path(path_type=Path, exists=True, dir_okay=False))
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
    show_default=True,
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
    show_default=True,
    help="The queries of the trial. conjunctions: 1 to 3 conditions with AND. predicates: with OR and NOT "
    "too. thresholds: how many rows are at or below a value.",
)
@click.option("--attribute", help="The numeric attribute of the thresholds.")
@click.option(
    "--sample",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A PUBLIC file from which the trial draws its rows. The output reveals facts about this file. Never "
    "pass the rows that you want to protect.",
)
@click.option(
    "--person",
    help="The column of the sample that says whose row it is.  [default: the name in DEFINITION]",
)
@column_option
@delimiter_option
@decimal_option
@skip_option
@encoding_option
def command(
    definition: Path,
    queries: int | None,
    phases: int,
    rows_per_phase: int | None,
    workload: Workload,
    attribute: str | None,
    sample: Path | None,
    person: str | None,
    columns: dict[str, str],
    delimiter: str | None,
    decimal: str | None,
    skip_bad_rows: bool,  # noqa: FBT001 - click
    encoding: str,
) -> None:
    """Recommend a mechanism for the schema, privacy and accuracy of DEFINITION and a number of queries.

    The command uses price formulas and a trial on synthetic rows. It needs no server and reads no private
    row. The trial asks the tiles of DEFINITION after each phase.

    With --person it also recommends rows_per_phase and phases of privacy.unit, from a public --sample.
    """
    if attribute is not None and workload != "thresholds":
        raise click.UsageError("--attribute needs --workload thresholds")
    if columns and sample is None:
        raise click.UsageError("--column needs --sample.")
    read = read_definition(definition)
    if workload == "thresholds":
        read = (
            read.without_measures
        )  # they are counts of rows, and the trial keeps one attribute alone
    n_rows = rows_per_phase or read.phase.min_rows
    if n_rows * phases > MAX_ROWS:
        raise InvalidInput(
            "--rows-per-phase",
            f"all phases have more than {MAX_ROWS:,} rows",
            "pass a smaller number",
        )
    read = read.model_copy(update={"phase": PhaseSpec(min_rows=n_rows)})
    read.check_new()
    universe = universe_of(read)
    tiles = () if workload == "thresholds" else _tiles(read, universe)
    if queries is None and not tiles:
        raise click.UsageError("Missing option '--queries': DEFINITION has no workload")
    if len(tiles) * phases > _MOST_TILES_ASKED:
        phases = max(1, _MOST_TILES_ASKED // len(tiles))
        click.echo(f"note: with {len(tiles)} tiles the trial has {_phases(phases)}", err=True)
    _check_persons(read, sample, person)
    drawn, census = None, None
    if sample is not None:
        drawn, census = _sampled(
            sample,
            _of_persons(read, person),
            universe,
            person=person,
            columns=columns,
            delimiter=delimiter,
            decimal=decimal,
            skip_bad_rows=skip_bad_rows,
            encoding=encoding,
        )
    if workload == "thresholds":
        index = _ordered(universe, attribute)
        universe = Universe((universe.attributes[index],))
        drawn = drawn and Rows(drawn.codes[index : index + 1])
    need = Need(
        universe=universe,
        privacy=privacy_of(read),
        accuracy=Accuracy(read.accuracy.error, read.accuracy.failure_probability),
        n_rows=n_rows,
        phases=phases,
        queries=queries or 0,
        workload=workload,
        tiles=tiles,
    )
    if workload == "thresholds" and need.queries > (most := most_thresholds(need)):
        need = replace(need, queries=most)
        click.echo(
            f"note: there are only {most:,} different queries of this kind; the others are free repeats",
            err=True,
        )
    warn_of_epsilon(read)
    warn_of_delta(need.privacy.delta, n_rows)
    console = output()
    trials: dict[Name, Trial] = {}
    if census is not None:
        assert drawn is not None, "they are read together"
        need, trials = _with_persons(console, need, census, drawn, _of_persons(read, person))
    _warn_of_error(need)
    with bar() as progress:
        task = progress.add_task("Trying", total=3 * phases)
        tick = partial(progress.advance, task)
        left = [name for name in _tried(need) if name not in trials]
        trials |= trial(need, left, sample=drawn, tick=tick)
        found = _judged(need, trials)
        again = (_tried_again(need, found),)
        changed = []
        for words, other in _changes(need, found):
            # Fewer queries are a part of those that were tried, and a plan for more serves them as well.
            same = other.queries != need.queries
            known = trials if same else trial(other, again, sample=drawn, tick=tick)
            changed.append((words, _judged(other, known)))
    _recommend(console, need, found, names_error=read.accuracy.aim is None)
    console.print()
    console.print(_table(need, found, trials))
    _footnotes(console, need, trials, sample)
    if not need.pure and workload != "thresholds":
        console.print("\n[b]What one query takes of a phase's budget if nothing is known yet[/b]")
        console.print(_singles_table(singles(need, drawn)))
        console.print(
            "Half the error takes about four times as much. What is known already makes a query cheaper.",
            style="dim",
        )
    console.print("\n[b]What would change it[/b]")
    console.print(_changed_table(changed))


def _tiles(definition: Definition, universe: Universe) -> tuple[PlannedTile, ...]:
    """Returns the tiles of a definition that names some."""
    if not isinstance(definition.mechanism, CalibratedSpec):
        return ()
    return tiles_of(definition.mechanism, universe)


def _ordered(universe: Universe, name: str | None) -> int:
    """Returns the index of the attribute that the thresholds refer to."""
    ordered = [a.name for a in universe.attributes if isinstance(a, Number)]
    if not ordered:
        raise InvalidInput(
            "DEFINITION",
            "it has no attribute of type number",
            "thresholds need a numeric attribute",
        )
    if name is None and len(ordered) == 1:
        return universe.index(ordered[0])
    if name not in ordered:
        problem = (
            "there are several attributes of type number"
            if name is None
            else f"{name} is not an attribute of type number"
        )
        raise InvalidInput("--attribute", problem, f"name one of {', '.join(ordered)}")
    return universe.index(name)


def _check_persons(definition: Definition, sample: Path | None, person: str | None) -> None:
    """Checks that there are rows to tell how many rows a person has.

    Raises:
        InvalidInput: There are none, or the column of persons is an attribute.
    """
    if sample is None and person is not None:
        raise InvalidInput(
            "--person",
            "there is no sample that has this column",
            "pass --sample with a PUBLIC file",
        )
    if sample is None and definition.privacy.unit is not None:
        raise InvalidInput(
            "DEFINITION",
            "it protects persons, and nobody can guess how many rows a person has",
            "pass --sample with a PUBLIC file that says whose its rows are",
        )
    if definition.privacy.unit is None and person in {a.name for a in definition.attributes}:
        raise InvalidInput("--person", "it is an attribute too", "name another column")


def _of_persons(definition: Definition, person: str | None) -> Definition:
    """The definition with a unit if there is a column of persons, so that files are read with it."""
    if person is None or definition.privacy.unit is not None:
        return definition
    unit = UnitSpec(key=person, rows_per_phase=1, phases=1)
    privacy = definition.privacy.model_copy(update={"unit": unit})
    return definition.model_copy(update={"privacy": privacy})


def _sampled(
    file: Path,
    definition: Definition,
    universe: Universe,
    *,
    person: str | None,
    columns: Mapping[str, str],
    delimiter: str | None,
    decimal: str | None,
    skip_bad_rows: bool,
    encoding: str,
) -> tuple[Rows, Census | None]:
    """Reads the first rows of a public file, and counts the rows of each person if it says whose they are."""
    unit = definition.privacy.unit
    source = RowFile(
        file,
        definition,
        _SAMPLED_ROWS,
        encoding=encoding,
        delimiter=delimiter,
        decimal=decimal,
        person=None if unit is None else person or unit.key,
        renamed=columns,
        skip_bad_rows=skip_bad_rows,
    )
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
            raise InvalidInput(
                file.name, "no row says whose it is", "pass --person with the column that does"
            )
    return universe.encode_columns(batch.columns), census


def _with_persons(
    console: Console, need: Need, census: Census, sample: Rows, of_persons: Definition
) -> tuple[Need, dict[Name, Trial]]:
    """Recommends a unit.

    Returns:
        The need with the unit of the definition, or with the recommended one if it has none, and what was
        tried with it.
    """
    own = need.privacy.unit
    strong = _strong(need, of_persons)
    lengths = strong if own is None else {*strong, own.phases}
    found = []
    with bar() as progress:
        task = progress.add_task("Trying units", total=len(lengths))
        for phases in sorted(lengths):
            found.append(choice_of(need, census, sample, phases))
            progress.advance(task)
    best = chosen([choice for choice in found if choice.unit.phases in strong])
    unit = best.unit
    for line in census_lines(census):
        console.print(line, markup=False)
    console.print(persons_table(census, None if own is None else own.rows_per_phase))
    console.print(NOISE, style="dim")
    if unit.lifetime:
        console.print(FOR_LIFE, style="dim")
    promised = f"{'' if unit.lifetime else 'any '}{_phases(unit.phases)}"
    console.print(
        f"\n[b]Let {_rows(unit.rows_per_phase)} of a person count in a phase, and promise {promised}"
        f"{' for life' if unit.lifetime else ''}[/b]: {_percent(best.counted)} of the rows count, and "
        f"{_percent(best.answered)} of the queries are answered."
    )
    if best.answered < SERVES:
        console.print(
            "No promise this strong answers them all. To answer more, make phases longer, allow a larger "
            "error, or ask fewer queries."
        )
    written = with_unit(of_persons, unit).privacy.model_dump(exclude_defaults=True)
    console.print("\nWrite this in the definition:", markup=False)
    console.print(f'  "privacy": {json.dumps(written)},', markup=False)
    console.print()
    console.print(choices_table(found, best, of_persons, need.phases))
    console.print(
        "answers: of the queries, by a short trial. rows_per_phase: the most that still answers them; more "
        "would leave some unanswered, or add more noise than it takes surplus away. epsilon: what a person "
        "who is in every phase has lost by then, if all budgets are spent. Fewer phases are left out if that "
        f"is above {_most_lost(need):g}: more answers do not justify a weak promise.",
        style="dim",
    )
    console.print()
    if own is not None:
        console.print("[b]The unit in the definition[/b]")
    used = own or unit
    known = [choice.trial for choice in found if choice.unit == used]
    return of_unit(need, census, used), dict(zip((Name.CALIBRATED,), known, strict=False))


def _most_lost(need: Need) -> float:
    """The largest epsilon that a person who is in every phase may lose under a unit that is recommended."""
    return max(LARGE_EPSILON, need.privacy.epsilon)


def _strong(need: Need, of_persons: Definition) -> set[int]:
    """The numbers of phases of a unit with which nobody loses too much in the life of the data set."""
    lifetime = need.privacy.unit is not None and need.privacy.unit.lifetime
    life = [1.0] * need.phases
    return {
        phases
        for phases in (need.phases, *(2**i for i in range(need.phases.bit_length())))
        if epsilon_of_person(with_unit(of_persons, Unit(1, phases, lifetime)), life)
        <= _most_lost(need)
    }


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def _warn_of_error(need: Need) -> None:
    error = least_error(need)
    if error is not None and error <= need.accuracy.error:
        return
    least, rows = "" if error is None else f"; the smallest is {_percent(error)}", least_rows(need)
    enough = "" if rows is None else f", or {_number(rows)} rows a phase"
    warn(
        f"phases of {_number(need.n_rows)} rows are too small for an error of "
        f"{_percent(need.accuracy.error)}: not even one query about one phase could be answered{least}. "
        f"Ask about more phases at once, or allow a larger error{enough}"
    )


# ---------------------------------------------------------------- judging


def _tried(need: Need) -> tuple[Name, ...]:
    """The mechanisms that are tried."""
    if need.privacy.unit is not None:
        return _TRIED_TILES if need.tiles else _CALIBRATED
    if need.tiles:
        return (Name.PURE_COUNTS,) if need.pure else (*_TRIED_TILES, Name.COUNTS)
    return _TRIED_PURE if need.pure else _TRIED


def _tried_again(need: Need, found: Sequence[Estimate]) -> Name:
    """The one that is tried with another need, too: the recommended one, or else a calibrated one."""
    able = _tried(need) if need.tiles else (Name.BYPASS,) if need.pure else _CALIBRATED
    best = recommended(found)
    if best.name in able:
        return best.name
    return max((e for e in found if e.name in able), key=lambda e: e.part or 0.0).name


def _judged(need: Need, trials: Mapping[Name, Trial]) -> list[Estimate]:
    return [
        estimate.tried(trials[estimate.name], need) if estimate.name in trials else estimate
        for estimate in estimates(need)
    ]


def _changes(need: Need, found: Sequence[Estimate]) -> list[tuple[str, Need]]:
    """Eases one number of the need: by a factor of two, or as far as some mechanism needs if none serves."""
    rows, error, queries = 2 * need.n_rows, 2.0 * need.accuracy.error, need.queries // 2
    if not recommended(found).serves:
        more = [e.rows for e in found if e.rows is not None and e.rows > need.n_rows]
        larger = [e.error for e in found if e.error is not None and e.error > need.accuracy.error]
        rows, error = max(rows, min(more, default=0)), max(error, min(larger, default=0.0))
    changes = []
    if rows * need.phases <= MAX_ROWS:
        changes.append((f"{_number(rows)} rows a phase", need.with_rows(rows)))
    if error < 1.0:
        changes.append((f"an error of {_percent(error)}", need.with_error(error)))
    if queries:
        changes.append((_queries(queries), replace(need, queries=queries)))
    return changes


# ---------------------------------------------------------------- words


def _recommend(
    console: Console, need: Need, found: Sequence[Estimate], *, names_error: bool
) -> None:
    """Prints the recommendation and the lines to write into the definition."""
    best = recommended(found)
    asked = "the query" if need.asked == 1 else f"all {_asked(need)}"
    person = need.privacy.unit is not None
    rows = "rows that count" if person else "rows asked"
    wanted = f"{asked} within {_percent(need.accuracy.error)} of the {rows}"
    whose = "a phase's budget" if person else "a row's lifetime budget"
    if best.serves:
        console.print(
            f"[b]Use {_called(best.name)}[/b]: it answers {wanted} and spends "
            f"{'' if best.opening == best.share else 'about '}{_budget(best)} of {whose}."
        )
    else:
        console.print(
            f"[b]No mechanism answers {wanted}.[/b] "
            f"{_capital(_called(best.name))} comes nearest: {_percent(best.part or 0.0)} of them."
        )
    calibrated = next(e for e in found if e.name is Name.CALIBRATED)
    if not best.name.startswith("calibrated") and best.serves and calibrated.serves:
        console.print(
            "It answers single counts only. For tables, sums and averages use calibrated, which spends about "
            f"{_budget(calibrated)}."
        )
    error = {} if names_error else {"accuracy": {"error": need.accuracy.error}}
    lines = {**best.definition, **error, "phase": {"min_rows": need.n_rows}}
    alone = need.universe.names[0] if need.workload == "thresholds" else None
    where = "" if alone is None else f", with the attribute {alone} alone"
    if need.tiles and best.name is Name.CALIBRATED:
        where = ", and keep the workload of its mechanism"
    console.print(f"\nWrite this in the definition{where}:", markup=False)
    for name, value in lines.items():
        console.print(f"  {json.dumps(name)}: {json.dumps(value)},", markup=False)
    if not names_error:
        console.print(
            "Without accuracy.error each answer is as precise as it is worth, whatever is asked.",
            markup=False,
        )


def _table(need: Need, found: Sequence[Estimate], trials: Mapping[Name, Trial]) -> Table:
    limits = () if need.tiles else ("error", "rows a phase")
    table = bare_table("mechanism", numbers=("answers", "budget", *limits))
    table.add_column("because")
    best = recommended(found)
    for estimate in found:
        least = "" if estimate.error is None else _percent(estimate.error)
        rows = "" if estimate.rows is None else _number(estimate.rows)
        table.add_row(
            estimate.name,
            _part(estimate),
            _budget(estimate),
            *(() if need.tiles else (least, rows)),
            escape(_why(need, estimate, trials.get(estimate.name))),
            style="green" if estimate is best else "" if estimate.problem is None else "dim",
        )
    return table


def _why(need: Need, estimate: Estimate, trial: Trial | None) -> str:
    if estimate.problem is not None:
        if (estimate.rows or 0) > max(_ANYBODY, need.n_rows):
            return (
                "all answers hold at once; the papers' constants need more rows than any table has"
            )
        return estimate.problem.replace("**", "^")
    match estimate.name:
        case Name.CALIBRATED | Name.UNDECLARED | Name.WITHOUT_BASE:
            assert trial is not None, "it is always tried"
            free = f"{_percent(trial.easy / trial.asked)} of the queries were free"
            return f"{_percent(estimate.opening)} when a phase opens; {free}"
        case Name.COUNTS | Name.PURE_COUNTS if need.tiles:
            return "pays for each new count; answers no tables, sums or averages"
        case Name.COUNTS | Name.PURE_COUNTS:
            return f"pays for each new query; can afford {_number(estimate.queries or 0)}"
        case Name.TABLE:
            return "adds noise to each cell once, then all is free; sums of many cells are noisier"
        case Name.TREE:
            return "builds one tree a phase, then all thresholds are free"
        case Name.STABLE:
            return (
                f"gives no counts; gives the exact median if {estimate.distance:,} replaced rows "
                "do not move it; "
                f"{estimate.queries} looks"
            )
        case Name.BYPASS:
            return "answers about all phases only; counts first, and its histogram learns from the counts"
        case Name.WEIGHTS:
            return f"{_hard(estimate)}; answers about all phases only"
        case Name.GATED:
            return _hard(estimate)
        case Name.MEDIAN | Name.SEQUENTIAL | Name.MEMORY:
            few = (estimate.rows or 0) > need.n_rows
            return "all answers hold at once; " + (
                "its constants need this many rows"
                if few
                else "pays when a phase opens, then all is free"
            )
    raise AssertionError(estimate.name)


def _hard(estimate: Estimate) -> str:
    if not estimate.queries:
        return "a phase has too few rows for a single hard query"
    return f"can afford {_number(estimate.queries)} hard {'query' if estimate.queries == 1 else 'queries'}"


def _footnotes(
    console: Console, need: Need, trials: Mapping[Name, Trial], sample: Path | None
) -> None:
    """Explains the columns and the trial."""
    notes = [
        "answers: how many of the queries are answered within the error;",
        "≥ if the number of hard queries is not known in advance.",
        "budget: the largest part of its budget that any row spends.",
        "no base: without a base release, with base_share 0.",
    ]
    if need.tiles:
        notes.append("not declared: the same without the workload.")
    else:
        notes.append("error, rows a phase: the smallest value at which all queries are answered.")
    if need.queries:
        notes += [
            f"The queries are spread evenly over {_phases(need.phases)};",
            f"half are about all rows so far, half about the last 1 to {RECENT} phases.",
        ]
    if trials:
        (asked, *_) = (tried.asked for tried in trials.values())
        rows = "synthetic rows" if sample is None else f"rows drawn from {sample.name}"
        if need.privacy.unit is not None:
            rows += f", of which {need.counted:,} of {need.n_rows:,} count in each phase"
        missed = ", ".join(f"{name} {tried.missed:,}" for name, tried in trials.items())
        if need.tiles:
            notes.append(f"The trial asked each tile after each of {_phases(need.phases)}.")
        if need.queries:
            others = asked - len(need.tiles) * need.phases
            notes.append(
                f"The trial asked {_queries(others)} about {rows}; outside the error were: {missed}."
            )
        if not need.tiles:
            notes.append("The other mechanisms are judged by formula.")
    console.print()
    console.print(" ".join(notes), style="dim", markup=False)


def _singles_table(tried: Sequence[Single]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for single in tried:
        taken = "more than all" if single.share is None else _percent(single.share)
        table.add_row(escape(_single(single)), taken)
    return table


def _single(single: Single) -> str:
    within = f"within {_percent(single.error)} of the rows"
    match single.kind:
        case "count":
            return f"a count of rows, {within}"
        case "table":
            return f"a table by {single.attribute}, each cell {within}"
        case "average":
            return f"the average of {single.attribute}, within {single.error:.3g} (1% of its range)"
        case "relative":
            return f"a count of {single.rows:,} rows, within {_percent(single.error)} of itself"


def _changed_table(changed: Sequence[tuple[str, Sequence[Estimate]]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for words, found in changed:
        best = recommended(found)
        result = f"spends {_budget(best)}" if best.serves else f"answers {_part(best)}"
        table.add_row(words, best.name, result)
    return table


def _part(estimate: Estimate) -> str:
    """Formats the share of answered queries, as a lower bound if only the worst case is known."""
    if estimate.part is None:
        return "?"
    part = _percent(estimate.part)
    worst = estimate.name in {Name.WEIGHTS, Name.GATED} and 0.0 < estimate.part < 1.0
    return f"≥ {part}" if worst else part


def _budget(estimate: Estimate) -> str:
    if estimate.share is None:
        return ""
    if estimate.opening >= 0.99 and estimate.share <= 1.0:
        return "all"
    return _percent(estimate.share) if estimate.share < 10.0 else f"{estimate.share:,.0f} times"


def _called(name: Name) -> str:
    return _CALLED.get(name, str(name))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{_number(number)} queries"


def _asked(need: Need) -> str:
    """The queries of a need, tiles first."""
    tiles = f"{len(need.tiles)} tiles after each of {_phases(need.phases)}"
    if not need.tiles:
        return _queries(need.queries)
    return f"{tiles} and {_queries(need.queries)} more" if need.queries else tiles


def _phases(number: int) -> str:
    return "1 phase" if number == 1 else f"{number:,} phases"


def _percent(part: float) -> str:
    """Formats a share with three digits. It never rounds a smaller share up to 100%."""
    if part >= 1.0:
        return f"{100 * part:.0f}%"
    if part >= 0.9995:
        return "99.9%"
    shown = f"{100 * part:.3g}%"
    return shown if part == 0.0 or part >= 1e-5 else "less than 0.001%"


def _number(number: int) -> str:
    """Formats a number with all its digits, up to ten digits."""
    if number < 10**10:
        return f"{number:,}"
    mantissa, exponent = f"{number:.1e}".split("e+")
    return f"{mantissa.removesuffix('.0')}·10^{exponent}"
