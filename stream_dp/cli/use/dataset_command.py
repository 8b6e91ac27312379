"""``stream-dp dataset``: check, create, show, list, change, retire and unlock."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from stream_dp.cli.files.row_files import RowFile, left_waiting, rows_a_batch
from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import (
    NONE_YET,
    bare_table,
    busy,
    kinds_table,
    output,
    rows_of_a_phase,
    share,
    share_range,
)
from stream_dp.cli.text.share_tables import changes, rules_table
from stream_dp.cli.use.ingest_command import (
    BATCH_ROWS,
    check_time_column,
    column_option,
    decimal_option,
    delimiter_option,
    encoding_option,
    person_column,
    person_option,
    skip_option,
    time_column_option,
    warn_of_left_out,
)
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import ShareRules
from stream_dp.client.kafka import topic_documents
from stream_dp.errors import InvalidInput, InvalidMessage, ServerUnavailable
from stream_dp.messages import (
    TOPICS,
    ChangeAnalysts,
    Definition,
    Event,
    KindsSpec,
    large_delta,
    large_epsilon,
    read_json,
)

if TYPE_CHECKING:
    from stream_dp.cli.files.source_forms import Forms
    from stream_dp.cli.files.value_survey import Survey
    from stream_dp.core.mechanism import Mechanism
    from stream_dp.core.rows.universe import Attribute, Universe
    from stream_dp.lab.person_counts import Census
    from stream_dp.pipeline.intake.sources import TopicSource
    from stream_dp.profiles.advice import Need
    from stream_dp.profiles.opening import Announced, Opening

_MOST_BYTES = TOPICS["datasets"].max_value_bytes
_CHECKED_ROWS = 10_000
_MOST_PERIODS = 40
"""The most periods of the calendar that are listed."""
_EVENTS = 10_000
"""The newest events among which batches of other data sets are looked for."""
_NAMED = 3
"""The most other data sets that a warning names."""
_MOST_LEFT = 0.01
"""A warning is about at least this share of the rows of a file that would wait in the end."""
_STAYS = 5
"""A warning is about persons who stay this many times as long as the promise covers."""


@click.group()
def command() -> None:
    """Check, create, show, list, change and retire data sets."""


@command.command("create")
@connected()
@click.argument("definition", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def create(connection: GivenServers, definition: Path) -> None:
    """Create the data set that the JSON file DEFINITION describes. A definition can never be changed."""
    read, opening = _checked(definition)
    said = large_delta(read.privacy.delta, rows_of_a_phase(read))
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        with busy("Defining"), connection.client() as client:
            _warn_of_same_persons(read, client.catalog())
            client.define(read.model_dump())
    for note in notes:
        if str(note.message) != said:
            warn(str(note.message))
    click.echo(f"{read.dataset} is defined; {opening}")
    if read.retention is not None:
        click.echo(_kept(read))
    click.echo(f"send rows with: stream-dp ingest FILE --dataset {read.dataset}")


@command.command("check")
@connected()
@click.argument(
    "definition", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False
)
@click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False
)
@click.option(
    "--source",
    "source_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Check the newest records of the topic that this source file names, by DEFINITION or by that of the "
    "data set.",
)
@click.option(
    "--records",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="The most records to read from the topic of a source.",
)
@click.option(
    "--public",
    is_flag=True,
    help="Say that the rows are public, so that a definition may depend on them.",
)
@person_option
@time_column_option
@column_option
@delimiter_option
@decimal_option
@skip_option
@encoding_option
def check(
    connection: GivenServers,
    definition: Path | None,
    file: Path | None,
    source_file: Path | None,
    records: int,
    public: bool,  # noqa: FBT001 - click
    person: str | None,
    time_column: str | None,
    columns: dict[str, str],
    delimiter: str | None,
    decimal: str | None,
    skip_bad_rows: bool,  # noqa: FBT001 - click
    encoding: str,
) -> None:
    """Check DEFINITION and show how it would count the rows of FILE or of a source.

    Nothing leaves this machine. The command shows exact counts and values, so only people who may see the
    rows should run it. A definition is public: choose its values and edges from public knowledge, or check a
    public sample with --public.
    """
    if definition is None and source_file is None:
        raise click.UsageError("Missing argument 'DEFINITION', or the option '--source'.")
    if file is not None and source_file is not None:
        raise click.UsageError("Give FILE or '--source', not both.")
    if person is not None and file is None:
        raise click.UsageError("--person needs FILE.")
    if columns and file is None:
        raise click.UsageError("--column needs FILE.")
    if time_column is not None and file is None:
        raise click.UsageError("--time-column needs FILE.")
    from stream_dp.cli.operate.worker_command import source_of
    from stream_dp.profiles.builder import universe_of

    source = None if source_file is None else source_of(source_file)
    if definition is None:
        assert source is not None, "one of the two is given"
        with busy("Reading the definition"), connection.client() as client:
            read = client.definition(source.dataset)
        universe = universe_of(read)
    else:
        read, opening = _checked(definition)
        universe = universe_of(read)
        click.echo(
            f"{definition.name} is valid: {read.dataset} has {universe.n_cells:,} cells; {opening}"
        )
        if read.retention is not None:
            click.echo(_kept(read))
        if read.kinds != KindsSpec():
            output().print(kinds_table(read))
        if read.analysts is not None:
            output().print(rules_table(ShareRules(read.analysts, read.owner)))
    if source is not None:
        if source.dataset != read.dataset:
            raise InvalidInput(
                "--source",
                f"it belongs to {source.dataset}, not to {read.dataset}",
                "pass the file that belongs to the definition",
            )
        _warn_of_same_topic(connection, read, source.topic)
        _look_at_source(connection, source, read, records)
    elif file is not None:
        if time_column is not None:
            check_time_column(read, time_column)
        _look_at_file(
            RowFile(
                file,
                read,
                _CHECKED_ROWS,
                encoding=encoding,
                delimiter=delimiter,
                decimal=decimal,
                person=person_column(read, person),
                renamed=columns,
                skip_bad_rows=skip_bad_rows,
                time=time_column,
            ),
            file,
            read,
            universe,
            decimal,
        )
    else:
        return
    if public:
        click.echo("these rows are public, as --public says; a definition may depend on them")
    else:
        warn(
            "these are exact counts and values of rows, but a definition is public. If you change it because "
            "of them, the change reveals something about them. Check a public sample instead, and pass "
            "--public"
        )


def _look_at_file(
    rows: RowFile, file: Path, definition: Definition, universe: Universe, decimal: str | None
) -> None:
    from stream_dp.cli.files.value_survey import Survey
    from stream_dp.lab.person_counts import Counting

    survey, unit = Survey(universe, decimal=decimal), definition.privacy.unit
    persons = Counting(definition.phase.min_rows)
    with bar() as progress:
        task = progress.add_task(f"Reading {file.name}", total=file.stat().st_size)
        for columns, read_bytes in rows.columns():
            values = rows.values(columns)
            survey.take(columns, values)
            if unit is not None:
                persons.take(values[unit.key])
            progress.update(task, completed=read_bytes)
    warn_of_left_out(rows)
    _say(universe, survey)
    _warn_of_waiting(definition, survey.rows)
    _warn_of_small_periods(definition, rows.periods)
    census = persons.census()
    if census is not None:
        _say_persons(definition, universe, census)


def _warn_of_waiting(definition: Definition, n_rows: int) -> None:
    """Warns if many rows of a file would wait for ever, where phases open by rows and none come later.

    A file that is too small for a phase is taken for a sample.
    """
    phase = definition.phase
    if (
        phase.every is not None
        or definition.mechanism.papers is not None
        or n_rows < phase.min_rows
    ):
        return
    most = rows_a_batch(definition, BATCH_ROWS)
    left = left_waiting(definition, n_rows, most)
    if left < _MOST_LEFT * n_rows:
        return
    found = enough_rows(definition, n_rows)
    better = "" if found is None else f"set phase.min_rows to {found:,}, or "
    name = definition.dataset
    closes = definition.least_to_close(left) <= left
    rest = (
        f"open a phase of them with `stream-dp phase close {name}`" if closes else "leave them out"
    )
    warn(
        f"{left:,} of the {n_rows:,} rows ({left / n_rows:.1%}) would wait for more rows, because a phase "
        f"opens at {definition.phase.min_rows:,}; if no more will come, {better}{rest}"
    )


def enough_rows(definition: Definition, n_rows: int) -> int | None:
    """Returns the largest ``phase.min_rows`` that opens as many phases as now, of nearly all rows of a file.

    Fewer than 1% of the rows wait then. None if there is no such number.

    Args:
        definition: The definition.
        n_rows: The rows of the file, which are enough for a phase.
    """
    most = rows_a_batch(definition, BATCH_ROWS)
    per_phase = n_rows // (n_rows // definition.phase.min_rows)
    phase = definition.phase.model_copy(update={"min_rows": per_phase})
    left = left_waiting(definition.model_copy(update={"phase": phase}), n_rows, most)
    return per_phase if left < _MOST_LEFT * n_rows else None


def _warn_of_small_periods(definition: Definition, periods: Mapping[int, int]) -> None:
    """Warns of periods of a file that have too few rows for a phase of their own."""
    few = [rows for rows in periods.values() if rows < definition.phase.min_rows]
    if few:
        warn(
            f"{len(few):,} of the {len(periods):,} periods in the file have fewer than the "
            f"{definition.phase.min_rows:,} rows of phase.min_rows, {min(few):,} at the least; such a period "
            "waits, and joins the next one"
        )


def _say_persons(definition: Definition, universe: Universe, census: Census) -> None:
    """Shows how many rows of persons would count, and warns if too few do for the accuracy."""
    from stream_dp.cli.files.person_census import FOR_LIFE, NOISE, census_lines, persons_table
    from stream_dp.profiles.advice import least_error
    from stream_dp.profiles.builder import build
    from stream_dp.profiles.opening import announced, opening_of

    unit = definition.privacy.unit
    assert unit is not None, "there are persons"
    console, n_rows = output(), definition.phase.min_rows
    counted = census.counted_of(n_rows, unit.rows_per_phase)
    console.print()
    for line in census_lines(census):
        click.echo(line)
    console.print(persons_table(census, unit.rows_per_phase))
    console.print(NOISE, style="dim")
    if unit.lifetime:
        console.print(FOR_LIFE, style="dim")
    _, mechanism = build(definition)
    found, takes = (
        opening_of(mechanism, universe.names, counted),
        announced(mechanism, max(1, counted)),
    )
    assert found is not None, "only the calibrated profile protects persons"
    assert takes is not None, "what opening takes is known"
    click.echo(f"if {counted:,} of {n_rows:,} rows count, {takes_words(takes)}\n{_free(found)}")
    if definition.accuracy.aim is not None:
        return
    error = definition.accuracy.error
    need = _one_query(definition, universe, n_rows)
    of_all, least = least_error(need), least_error(replace(need, n_counted=max(1, counted)))
    if of_all is not None and of_all <= error and (least is None or least > error):
        # How many persons there are is for a terminal, and not for a log.
        by = f" by {census.persons_a_phase:,.0f} persons" if sys.stderr.isatty() else ""
        reached = "" if least is None else f", which reaches {least:.3g}"
        warn(
            f"accuracy.error {error:g} is out of reach of a phase of {n_rows:,} rows{by}{reached}; allow a "
            "larger error, wait for more rows in phase.min_rows, or protect fewer phases"
        )


def _look_at_source(
    connection: GivenServers, source: TopicSource, definition: Definition, most: int
) -> None:
    """Examines the newest records of a source's topic."""
    from itertools import islice

    from stream_dp.cli.files.source_forms import Forms
    from stream_dp.cli.files.value_survey import Survey
    from stream_dp.client.kafka.deployment_topics import dated_by_producers, describe_source
    from stream_dp.client.kafka.topic_reader import newest
    from stream_dp.pipeline.intake.sources import document_of, row_of
    from stream_dp.profiles.builder import universe_of

    universe, unit = universe_of(definition), definition.privacy.unit
    paths = source.paths(universe, None if unit is None else unit.key)
    survey, forms = Survey(universe, can_say=False), Forms()
    with bar() as progress:
        task = progress.add_task(f"Reading {source.topic}", total=most)
        values = newest(connection.broker, source.topic, most)
        while some := list(islice(values, _CHECKED_ROWS)):
            documents = [document_of(value) for value in some]
            forms.take(some, documents)
            rows = [row_of(document, paths) for document in documents]
            columns = {
                name: list(column)
                for name, column in zip(paths, zip(*rows, strict=True), strict=True)
            }
            columns |= {name: [value] * len(rows) for name, value in source.constants.items()}
            survey.take(columns, columns)
            progress.update(task, completed=survey.rows)
    if survey.rows == 0:
        raise InvalidInput(
            "--source", f"the topic {source.topic} holds no records", "send some records first"
        )
    click.echo(f"read the newest {survey.rows:,} records of {source.topic}; nothing was sent")
    _say(universe, survey, forms)
    if (found := describe_source(connection.broker, source.topic)) is None:
        return
    said = dated_by_producers(source.topic, found)
    if said is not None and definition.phase.calendar is not None:
        warn("; ".join(said))
    click.echo(f'the id of the topic is {found.topic_id}, which "start" in a source file names')


def _warn_of_same_persons(definition: Definition, catalog: Mapping[str, Definition]) -> None:
    """Warns if other data sets say by the same column whose row each is."""
    unit = definition.privacy.unit
    if unit is not None:
        units = ((name, other.privacy.unit) for name, other in catalog.items())
        same = [name for name, other in units if other is not None and other.key == unit.key]
        _warn_of_others(definition, same, f"protect persons by the column {unit.key!r}")


def _warn_of_same_topic(connection: GivenServers, definition: Definition, topic: str) -> None:
    """Warns if other data sets read the topic of a source, as the ids of their newest batches say."""
    from stream_dp.client.kafka.topic_reader import newest

    same: set[str] = set()
    with contextlib.suppress(ServerUnavailable):  # without the topic of events there is no data set
        for value in newest(connection.broker, connection.topics.name("events"), _EVENTS):
            event = topic_documents.read(Event, value) if value else None
            if event is not None and (event.batch_id or "").startswith(f"{topic}@"):
                same.add(event.dataset)
    _warn_of_others(definition, same, f"read the topic {topic}")


def _warn_of_others(definition: Definition, found: Iterable[str], what: str) -> None:
    others = sorted({*found} - {definition.dataset})
    if others:
        named = ", ".join(others[:_NAMED]) + (" and others" if len(others) > _NAMED else "")
        warn(
            f"data sets {named} {what} too: what the answers of several data sets tell about one row or "
            "person adds up, so the epsilons add up, and no ledger says so"
        )


def _say(universe: Universe, survey: Survey, forms: Forms | None = None) -> None:
    from stream_dp.cli.files.value_survey import reading_table, warn_of

    output().print(reading_table(universe, survey))
    for complaint in () if forms is None else forms.complaints():
        warn(complaint)
    warn_of([*survey.complaints(), *survey.proposals()])


def read_definition(file: Path) -> Definition:
    """Reads the definition in a file.

    Raises:
        InvalidInput: The file is not a definition. The error says where and how to fix it.
    """
    return Definition.read({"version": 1, **_document(file, "a definition")}, quoting=True)


def _document(file: Path, what: str) -> dict[str, Any]:
    """Reads the JSON object in a file."""
    text = file.read_bytes()
    if len(text) > _MOST_BYTES:
        raise InvalidInput(
            file.name,
            f"{what} has at most {_MOST_BYTES:,} bytes",
            "check that this is not the file of the rows",
        )
    try:
        return read_json(text, max_bytes=_MOST_BYTES)
    except InvalidMessage as error:
        raise InvalidInput(file.name, error.problem, error.fix) from None


def _checked(file: Path) -> tuple[Definition, str]:
    """Reads the definition in a file and says when a phase opens. It warns of likely mistakes."""
    definition = read_definition(file)
    definition.check_new()
    with busy("Checking"):
        from stream_dp.core.budget.accountant import UNITS
        from stream_dp.profiles.builder import build
        from stream_dp.profiles.opening import announced, counts_of, opening_of
        from stream_dp.profiles.share_settings import check_opening

        universe, mechanism = build(definition)
        _warn_of_tiles(definition, universe)
        opens, given = rows_of_a_phase(definition), definition.phase.min_rows
        if opens > given:
            warn(
                f"phase.min_rows {given:,} is less than the {opens:,} rows that the "
                f"{definition.mechanism.profile} profile needs with these settings; a phase opens "
                "at that many"
            )
        warn_of_epsilon(definition)
        warn_of_delta(definition.privacy.delta, opens)
        check_opening(definition, mechanism)
        opening, takes = f"a phase opens {_opens(definition)}", announced(mechanism, opens)
        if takes is None:
            return definition, opening
        _warn_of_error(definition, universe, opens)
        _warn_of_many_phases(definition)
        spent = (counts_of(mechanism) or mechanism).opening_units(opens)
        assert spent is not None, "what opening takes is known"
        _warn_of_kinds(definition, mechanism, opens, UNITS - spent)
        if_all = definition.privacy.unit is not None
        opening += ("\n" if if_all or takes.ever > takes.most else ", which ") + takes_words(
            takes, "if all of its rows count" if if_all else ""
        )
        found = opening_of(mechanism, universe.names, opens)
        if found is None:
            return definition, opening
        _warn_of_opening(found)
        if definition.synthetic_rows and found.blurred is not None:
            warn(
                f"synthetic rows will be poor: opening a phase publishes too little about {found.blurred}; "
                "set mechanism.base_share to a larger share, such as 0.2, to publish more"
            )
        return definition, f"{opening}\n{_free(found)}"


def takes_words(takes: Announced, when: str = "") -> str:
    """Says what opening a phase takes, as a range that is rounded outwards.

    Args:
        takes: What is announced.
        when: What the range supposes of the phase.
    """
    found = share_range(takes.least, takes.most)
    if takes.ever == takes.least:
        return f"takes {found} of its budget"
    ever = share(min(1.0, math.ceil(takes.ever * 1e4) / 1e4))
    few, many = takes.n_rows
    when = when and f", {when}"
    return (
        f"opening a phase of {few:,} to {many:,} rows takes {found} of its budget{when}\n"
        f"no phase takes more than {ever} unasked, even if far more is asked than expected"
    )


def _kept(definition: Definition) -> str:
    """Returns how long rows and answers are kept."""
    phases = definition.kept_phases
    if phases is None:
        rows = "rows are kept until the data set is retired"
    else:
        which = "newest phase" if phases == 1 else f"last {phases:,} phases"
        gone = "older ones are erased, and what was published of them stays"
        rows = f"the rows of the {which} are kept; {gone}"
    days = definition.kept_answers_days
    if days is None:
        return rows
    return f"{rows}\nanswers and outcomes of batches are stored for {days:,} to {2 * days:,} days"


def _free(opening: Opening) -> str:
    """Returns what is free once a phase is open."""
    if not opening.share:
        return "nothing is measured in advance; each new query pays for itself"
    free = "; ".join(opening.certifies) or "some queries about many phases"
    return f"free from then on: {free}"


def _warn_of_opening(opening: Opening) -> None:
    """Warns if opening a phase takes much, or if a line cannot pay for the queries of a phase."""
    if opening.large:
        warn(
            f"opening a phase takes {share(opening.share)} of its lifetime budget; "
            "`stream-dp advise` compares this with other settings"
        )
    if opening.scarce and opening.one_by_one >= 1.0:
        named = (
            "" if opening.named else "name mechanism.workload or mechanism.queries_per_phase, or "
        )
        warn(
            f"at this error a phase's budget pays for about {opening.one_by_one:,.0f} queries one by "
            f"one, and {opening.expected:,} are expected; {named}allow a larger accuracy.error"
        )


def _warn_of_tiles(definition: Definition, universe: Universe) -> None:
    """Warns if a tile is about phases whose rows are erased, so that it must be asked in time."""
    from stream_dp.profiles.planned_tiles import tiles_of

    settings, kept = definition.mechanism, definition.kept_phases
    if kept is None or settings.profile != "calibrated":
        return
    lengths = [tile.phases for tile in tiles_of(settings, universe)]
    if any(phases is None or phases > kept for phases in lengths):
        warn(
            f"a tile of mechanism.workload is about more phases than the {kept:,} whose rows are kept; ask "
            "it in every phase, for what was not measured in time is lost"
        )


def _warn_of_error(definition: Definition, universe: Universe, n_rows: int) -> None:
    """Warns if no query about a single phase could be answered as promised."""
    from stream_dp.profiles.advice import least_error

    promised = definition.accuracy
    if promised.aim is not None:
        return
    least = least_error(_one_query(definition, universe, n_rows))
    if least is None or least > promised.error:
        reached = "" if least is None else f", which reaches {least:.3g}"
        warn(
            f"accuracy.error {promised.error:g} is out of reach of a phase of {n_rows:,} rows{reached}; "
            "`stream-dp advise` lists what would work"
        )


def _one_query(definition: Definition, universe: Universe, n_rows: int) -> Need:
    """One query about one phase."""
    from stream_dp.core.budget.parameters import Accuracy
    from stream_dp.profiles.advice import Need
    from stream_dp.profiles.line_units import privacy_of

    promised = definition.accuracy
    return Need(
        universe=universe,
        privacy=privacy_of(definition),
        accuracy=Accuracy(promised.error, promised.failure_probability),
        n_rows=n_rows,
        phases=1,
        queries=1,
    )


def _warn_of_many_phases(definition: Definition) -> None:
    """Warns of what a person loses who stays for more phases than the promise is about."""
    from stream_dp.profiles.line_units import epsilon_of_person

    unit = definition.privacy.unit
    if unit is None or unit.lifetime:
        return
    phases = _STAYS * unit.phases
    lost = epsilon_of_person(definition, [1.0] * phases)
    warn(
        f"epsilon {definition.privacy.epsilon:g} is promised for any {unit.phases:,} phases in a row; a "
        f"person who stays longer loses more: epsilon {lost:.3g} after {phases:,} phases"
    )


def _warn_of_kinds(definition: Definition, mechanism: Mechanism, n_rows: int, left: int) -> None:
    """Warns if a single phase has too few rows or too little budget for a kind of query."""
    from stream_dp.core.budget.accountant import UNITS

    for kind, least in mechanism.least_windows.items():
        if least > n_rows:
            warn(
                f"kinds.{kind} needs windows of {least:,} rows or more, but a phase opens at {n_rows:,}; "
                "a larger share needs fewer rows"
            )
        asked = getattr(definition.kinds, kind).share
        if asked * UNITS > left:
            warn(
                f"kinds.{kind}.share {asked:g} is more than a phase of {n_rows:,} rows has left once it is "
                f"open, {left * 1000 // UNITS / 1000:g}; it can pay for no look"
            )


def warn_of_epsilon(definition: Definition) -> None:
    """Warns if epsilon is so large that a guess about somebody may become nearly sure."""
    if (warning := large_epsilon(definition.privacy)) is not None:
        warn(warning)


def warn_of_delta(delta: float, n_rows: int) -> None:
    """Warns if delta is so large that a mechanism could almost reveal whole rows."""
    if (warning := large_delta(delta, n_rows)) is not None:
        warn(warning)


def warn(words: str) -> None:
    """Prints a warning on the standard error."""
    click.echo(f"warning: {words}", err=True)


@command.command("show")
@connected()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the definition as a JSON message.")
def show(connection: GivenServers, name: str, as_json: bool) -> None:  # noqa: FBT001 - click
    """Show what you can ask of a data set, and what it promises to whom."""
    with connection.client() as client:
        definition = client.definition(name)
        rules = None if as_json else Odometer.read(client.ledger(name)).rules
    if as_json:
        click.echo(json.dumps(json.loads(definition.to_bytes()), indent=2))
        return
    from stream_dp.profiles.builder import build

    universe, _ = build(definition)
    console = output()
    privacy = definition.privacy
    console.print(f"[b]{definition.dataset}[/b]")
    console.print(
        f"promised to {privacy.promised_to}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}"
    )
    if privacy.unit is not None:
        console.print(escape(privacy.unit.counting))
    console.print(definition.precision)
    console.print(_kept(definition))
    guesses = definition.mechanism.answers_unverified
    console.print(
        f"a phase opens {_opens(definition)}; profile {definition.mechanism.profile}; "
        f"with no budget left a query is "
        + ("answered unverified" if guesses and definition.on_exhausted != "refuse" else "refused")
    )
    if definition.synthetic_rows:
        console.print(
            f"{definition.synthetic_rows:,} synthetic rows come with each phase: stream-dp synthesize {name}"
        )
    table = bare_table("attribute", "type", "cells")
    for spec, attribute in zip(definition.attributes, universe.attributes, strict=True):
        kind: str = "whole number" if getattr(spec, "integer", False) else spec.type
        if spec.type == "number" and spec.measure is not None:
            kind += f", its values kept from {spec.measure.low:g} to {spec.measure.high:g}"
        if spec.type == "date":
            kind += f" by {spec.by}" + (f", {spec.timezone}" if spec.timezone else "")
        if spec.type == "category" and spec.ordered:
            kind += ", in order"
        table.add_row(escape(spec.name), kind, escape(_cells_of(attribute)))
    console.print()
    console.print(table)
    console.print(f"\n{universe.n_cells:,} cells in all")
    if definition.kinds != KindsSpec():
        console.print()
        console.print(kinds_table(definition))
    if rules is not None:
        console.print()
        console.print(rules_table(rules))


def _opens(definition: Definition) -> str:
    """Says when a phase opens."""
    rows = f"{rows_of_a_phase(definition):,} rows"
    if definition.phase.every is None:
        return f"at {rows}"
    zone = definition.phase.timezone or "UTC"
    return f"when a period of {definition.phase.every} ends ({zone}), if at least {rows} wait"


def _cells_of(attribute: Attribute) -> str:
    """Lists the labels of the cells. Of many periods of the calendar it lists the first and last ones."""
    from stream_dp.core.rows.universe import Date

    labels = list(attribute.labels)
    if isinstance(attribute, Date) and len(labels) > _MOST_PERIODS:
        labels[3:-4] = ["..."]
    return ", ".join(labels)


@command.command("list")
@connected()
@click.option("--json", "as_json", is_flag=True, help="Print one definition a line, as JSON.")
def list_(connection: GivenServers, as_json: bool) -> None:  # noqa: FBT001 - click
    """List the data sets that are not retired."""
    with connection.client() as client:
        catalog = client.catalog()
    if as_json:
        for _, definition in sorted(catalog.items()):
            click.echo(definition.to_bytes().decode())
        return
    if not catalog:
        click.echo(NONE_YET)
        return
    table = bare_table(
        "data set", "attributes", "epsilon", "delta", "promised to", "error", "rows a phase"
    )
    for name, definition in sorted(catalog.items()):
        table.add_row(
            name,
            escape(", ".join(attribute.name for attribute in definition.attributes)),
            f"{definition.privacy.epsilon:g}",
            f"{definition.privacy.delta:g}",
            definition.privacy.promised_to,
            _error(definition),
            f"{rows_of_a_phase(definition):,}",
        )
    output().print(table)


def _error(definition: Definition) -> str:
    accuracy = definition.accuracy
    return f"{accuracy.error:g}" if accuracy.aim is None else f"{100 * accuracy.aim:g}% of itself"


@command.command("analysts")
@connected()
@click.argument("name")
@click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False
)
@click.option("--yes", is_flag=True, help="Go on without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print such a JSON file.")
def analysts(
    connection: GivenServers,
    name: str,
    file: Path | None,
    yes: bool,  # noqa: FBT001 - click
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Show who may charge how much of each line of data set NAME, or replace it.

    FILE is a JSON object with the fields analysts and owner of a definition. They are replaced from the next
    query on. What was spent stays spent.
    """
    with connection.client() as client:
        client.definition(name)
        before = Odometer.read(client.ledger(name)).rules
        if file is None:
            _say_rules(name, before, as_json=as_json)
            return
        given = _document(file, "a file of shares")
        if strange := given.keys() - {"analysts", "owner"}:
            raise InvalidInput(
                file.name,
                f"it has the field {min(strange)}",
                "leave only analysts and owner in it",
            )
        change = ChangeAnalysts.said_in(name, given)
        lines = list(changes(before, ShareRules(change.analysts, change.owner)))
        if not lines:
            click.echo(f"{name}: nothing changes")
            return
        for line in lines:
            output().print(line)
        if not yes:
            click.confirm("Put this in force?", abort=True)
        with busy("Changing"):
            client.change_analysts(name, given["analysts"], owner=given.get("owner"))
    click.echo(f"{name}: this is in force from the next query on; what was spent stays spent")


def _say_rules(name: str, rules: ShareRules | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {}
        if rules is not None:
            specs = rules.analysts.items()
            document["analysts"] = {entry: spec.model_dump() for entry, spec in specs}
            if rules.owner is not None:
                document["owner"] = rules.owner.model_dump()
        click.echo(json.dumps(document, indent=2))
    elif rules is None:
        click.echo(f"{name}: everybody may ask, and charge all of each line")
    else:
        output().print(rules_table(rules))


@command.command("retire")
@connected()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Go on without asking.")
def retire(connection: GivenServers, name: str, yes: bool) -> None:  # noqa: FBT001 - click
    """Erase the rows of a data set for ever. Its name, answers and ledger stay."""
    with connection.client() as client:
        client.definition(name)
        if not yes:
            click.confirm(
                f"This erases the rows of {name} for ever. The name can never be used again. Go on?",
                abort=True,
            )
        with busy("Retiring"):
            client.retire(name)
    click.echo(f"{name} is retired")
    click.echo(
        "its rows stay in the topics of batches and of blocks until their retention ends or the broker "
        "compacts them. See docs/operations.md, 'Retiring, and getting rid of rows'"
    )


@command.command("export")
@connected(operator=True)
@click.argument("name")
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write, empty or not there yet.",
)
@click.option("--yes", is_flag=True, help="Go on without asking.")
def export(connection: GivenServers, name: str, folder: Path, yes: bool) -> None:  # noqa: FBT001 - click
    """End a data set here for good, and write it to a folder, to import it into another deployment.

    Stop all workers first. The folder holds raw rows. Import it into one deployment only: two would spend the
    same budget twice, and nothing can notice that.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.move import take_out
    from stream_dp.state.moved import MovingFolder

    if not yes:
        click.confirm(f"{name} will never be served here again. Go on?", abort=True)
    try:
        with busy("Exporting"):
            moving = MovingFolder(folder)
            run(connection, lambda tools: take_out(tools, name, moving))
    except KeyboardInterrupt:
        click.echo(
            f"{name} may have ended here already: export it again, into a new folder", err=True
        )
        raise
    click.echo(f"{name} has ended here and is in {folder}, which holds raw rows")
    click.echo(f"next, for the other deployment: stream-dp dataset import {folder}")


@command.command("import")
@connected(operator=True)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def import_(connection: GivenServers, folder: Path) -> None:
    """Import a data set that another deployment has exported, with all that it has spent.

    Stop all workers first.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.move import bring_in
    from stream_dp.state.moved import MovedFolder

    with busy("Importing"):
        moved = MovedFolder(folder)
        name = run(connection, lambda tools: bring_in(tools, moved))
    click.echo(f"{name} is on the journal; start a worker, which serves it from now on")
    click.echo(f"erase {folder} then: it holds raw rows, and no other deployment may import it")


@command.command("unlock")
@connected(operator=True)
@click.argument("name")
def unlock(connection: GivenServers, name: str) -> None:
    """Let a data set in quarantine take records again, after you fixed what killed the worker.

    The worker that has it ends: start it again.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.pipeline.repair.unlock import lift

    record = run(connection, lambda tools: lift(tools, name), idle=False)
    if record:
        click.echo(f"{name} takes records again; the cause was the record {record}")
        click.echo("you may send the rejected records again under the same ids")
    else:
        click.echo(f"{name} is not in quarantine")
