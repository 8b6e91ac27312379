"""``stream-dp ingest``."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stream_dp.cli.files.batch_ids import RowsDigest, batch_key
from stream_dp.cli.files.row_files import FileBatch, RowFile, aligned, rows_a_batch
from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import rows_of_a_phase
from stream_dp.cli.use.phase_command import closed_line, small_phase
from stream_dp.client.budget.odometer import Odometer
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import Definition, Event
from stream_dp.periods import span_of, zone_of

if TYPE_CHECKING:
    from stream_dp.cli.files.value_survey import Survey
    from stream_dp.client import Client

BATCH_ROWS: Final = 20_000
"""The most rows of a batch, unless the command is told otherwise."""


def _encoding(_: click.Context, __: click.Parameter, name: str) -> str:
    try:
        "".encode(name)
    except LookupError:
        raise click.BadParameter(f"{name!r} is not an encoding that Python knows") from None
    # Excel writes a byte order mark before its UTF-8.
    return "utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name


def _delimiter(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is None:
        return None
    mark = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(mark) != 1:
        raise click.BadParameter("the delimiter must be one character or the word tab")
    return mark


delimiter_option = click.option(
    "--delimiter",
    callback=_delimiter,
    help="The separator of columns in a CSV file.  [default: a comma]",
)
decimal_option = click.option(
    "--decimal",
    type=click.Choice([".", ","]),
    help="The decimal mark in numbers. The other one then separates thousands.  "
    "[default: a point, and no thousands separator]",
)
encoding_option = click.option(
    "--encoding",
    default="utf-8",
    show_default=True,
    callback=_encoding,
    help="The encoding of the file.",
)


def _columns(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    columns = {}
    for pair in given:
        attribute, mark, column = pair.partition("=")
        if not (attribute and mark and column):
            raise click.BadParameter("write ATTRIBUTE=COLUMN, such as hour=ordered_at")
        columns[attribute] = column
    return columns


column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="ATTRIBUTE=COLUMN",
    callback=_columns,
    help="Read an attribute from a column of another name, such as hour=ordered_at. May be repeated.",
)
skip_option = click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave out lines that hold no row, such as a line of CSV with too few fields. Otherwise they are an "
    "error.",
)
time_column_option = click.option(
    "--time-column",
    metavar="COLUMN",
    help="The column that says when a row was, in ISO 8601. Where phases follow the calendar, the rows of "
    "each period are sent on their own, in order.",
)
person_option = click.option(
    "--person",
    help="The column that says whose row it is, where persons are protected.  "
    "[default: the name in the definition]",
)


@click.command()
@connected()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dataset", help="The data set that receives the rows.  [default: the file's name]")
@click.option(
    "--batch-rows",
    type=click.IntRange(1, 200_000),
    help="The most rows of a batch.  [default: 20000, or fewer if phases open by rows]",
)
@click.option(
    "--batch-id",
    "prefix",
    help="The prefix of the batch ids. The same rows under the same prefix count once.  "
    "[default: made from the rows, with a key of this machine]",
)
@person_option
@column_option
@delimiter_option
@decimal_option
@skip_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@encoding_option
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=60.0,
    show_default=True,
    help="The seconds to wait for each batch.",
)
@click.option(
    "--time",
    "at",
    metavar="TIME",
    help="The date of the rows, such as 2026-11-01, or a date and time with an offset, or now. If phases "
    "follow the calendar, the command asks for it.",
)
@time_column_option
@click.option(
    "--late",
    is_flag=True,
    help="Send rows about periods that have ended. They count in the open period.",
)
@click.option(
    "--close",
    is_flag=True,
    help="Then open a phase of the rows that wait, or end the period.",
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="ATTRIBUTE",
    help="Send this attribute although it seems to be misread. May be repeated.",
)
def command(
    connection: GivenServers,
    file: Path,
    dataset: str | None,
    batch_rows: int | None,
    prefix: str | None,
    person: str | None,
    columns: dict[str, str],
    delimiter: str | None,
    decimal: str | None,
    skip_bad_rows: bool,  # noqa: FBT001 - click
    encoding: str,
    timeout_s: float,
    at: str | None,
    time_column: str | None,
    late: bool,  # noqa: FBT001 - click
    close: bool,  # noqa: FBT001 - click
    as_json: bool,  # noqa: FBT001 - click
    accepted: tuple[str, ...],
) -> None:
    """Send the rows of FILE, which is CSV, TSV, NDJSON (each also as .gz) or Parquet.

    The command sends nothing unless it can read the whole file. It asks before it sends columns that seem to
    be misread. Columns that the definition does not name stay on this machine. After an interruption, run the
    same command again: it continues where it stopped, and each row counts once.
    """
    from stream_dp.cli.files.value_survey import Survey, tell_unread
    from stream_dp.profiles.builder import universe_of

    name = dataset or file.name.split(".")[0].lower()
    with connection.client() as client:
        definition = _definition(client, name, given=dataset is not None)
        _check_accepted(definition, accepted)
        at = _checked_time(definition, at, time_column)
        most, ends_every = _batches(definition, batch_rows)
        source = RowFile(
            file,
            definition,
            most,
            encoding=encoding,
            delimiter=delimiter,
            decimal=decimal,
            person=person_column(definition, person),
            renamed=columns,
            skip_bad_rows=skip_bad_rows,
            time=time_column,
            ends_every=ends_every,
        )
        universe = universe_of(definition)
        survey = Survey(universe, decimal=decimal)
        digest = None if prefix else RowsDigest(batch_key(connection.state_dir), name, source.names)
        with bar() as progress:
            task = progress.add_task(f"Reading {file.name}", total=file.stat().st_size)
            for found, read_bytes in source.columns():
                survey.take(found, source.values(found))
                if digest is not None:
                    digest.take(found)
                progress.update(task, completed=read_bytes)
            total = survey.rows
            if total == 0:
                progress.stop()
                warn_of_left_out(source)
                click.echo(f"{file.name} holds no rows")
                return
            progress.update(task, description="Checking which rows were counted before", total=None)
            ids = prefix or (digest.prefix() if digest is not None else "")
            done = _counted_before(client, name, ids)
        warn_of_left_out(source)
        tell_unread(survey)
        if done < total:
            _confirm(survey, accepted)
            if not late:
                _confirm_late(definition, *_late(client, definition, source, total, at))
        with bar() as progress:
            task = progress.add_task(f"Sending {file.name}", total=total, completed=done)
            event, at_row = None, done
            try:
                sent = _sent(client, name, source.batches(done), ids, at, timeout_s)
                for stop, event in sent:
                    progress.update(task, completed=stop)
                    # One whose event the broker keeps no more, and whose outcome the store keeps no more.
                    done += stop - at_row if event.event == "batch_known" else 0
                    at_row = stop
            except (KeyboardInterrupt, ServerUnavailable, RequestTimeout) as error:
                progress.stop()
                why = str(error) or "stopped"
                raise StreamDPError(
                    f"{why}; run the same command again to send the rest: each row counts once"
                ) from None
        if not as_json:
            _report(definition, file, total, done, event, close=close)
            if source.periods:
                n_periods = len(source.periods)
                click.echo(f"they are about {n_periods:,} period{'s' if n_periods > 1 else ''}")
        closed = _closed(client, definition, event, close=close, ask=not as_json)
    if as_json:
        facts: dict[str, object] = {
            "dataset": name,
            "rows": total,
            "counted_before": done,
            "left_out": source.left_out,
            "unread": {unread.attribute: unread.rows for unread, _, _ in survey.unread()},
        }
        if event is not None:
            facts.update(phase=event.phase, waiting=event.waiting)
        if closed is not None:
            dates = {"since": closed.since, "until": closed.until}
            facts.update(phase=closed.phase, waiting=closed.waiting, **dates)
        click.echo(json.dumps(facts))
    elif closed is not None:
        click.echo(closed_line(closed))


def _definition(client: Client, name: str, *, given: bool) -> Definition:
    try:
        return client.definition(name)
    except StreamDPError as error:
        if given:
            raise
        raise StreamDPError(
            f"{error} (the name comes from the file's name; pass --dataset for another one)"
        ) from None


def person_column(definition: Definition, given: str | None) -> str | None:
    """Returns the column of the file that says whose row it is; None where rows are protected.

    Raises:
        InvalidInput: One is given, and rows are protected.
    """
    unit = definition.privacy.unit
    if unit is not None:
        return given or unit.key
    if given is not None:
        raise InvalidInput("--person", "this data set protects rows", "leave it out")
    return None


def warn_of_left_out(source: RowFile) -> None:
    """Says on stderr how many lines of a file hold no row and are left out."""
    if source.left_out:
        words = (
            "1 line that holds no row is"
            if source.left_out == 1
            else f"{source.left_out:,} lines that hold no row are"
        )
        click.echo(f"warning: {words} left out", err=True)


def _batches(definition: Definition, batch_rows: int | None) -> tuple[int, int | None]:
    """Returns the most rows of a batch, and a number of rows after each of which one ends too."""
    if batch_rows is not None:
        return rows_a_batch(definition, batch_rows), None
    return aligned(definition, rows_a_batch(definition, BATCH_ROWS))


def _check_accepted(definition: Definition, accepted: tuple[str, ...]) -> None:
    """Checks that each name is an attribute.

    Raises:
        InvalidInput: One of them is none.
    """
    names = [attribute.name for attribute in definition.attributes]
    if set(accepted) - set(names):
        raise InvalidInput(
            "--accept",
            f"{definition.dataset} has no such attribute",
            f"use {', '.join(names)}",
        )


def _checked_time(definition: Definition, at: str | None, column: str | None) -> str | None:
    """Checks the options about time before anything is sent.

    Returns:
        The time to send; None leaves it to Kafka, or to a column.

    Raises:
        InvalidInput: The time cannot be read, or there are no periods.
        StreamDPError: Nothing says when the rows were, and nobody is at a terminal to confirm that it is now.
    """
    if column is not None:
        check_time_column(definition, column)
        if at is not None:
            raise InvalidInput("--time-column", "--time is given too", "leave one of them out")
        return None
    if at is None and definition.phase.every is not None:
        name = definition.dataset
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise StreamDPError(
                f"nothing was sent: phases of {name} follow the calendar, and nothing says when these rows "
                "were; pass --time with their date, --time-column with the column that says it, or --time now"
            )
        click.confirm(
            f"Phases of {name} follow the calendar, and neither --time nor --time-column says when these "
            "rows were. Do they belong to the period of today?",
            abort=True,
            err=True,
        )
    if at is None or at == "now":
        return None
    try:
        span_of(at, zone_of(definition.phase.timezone))
    except ValueError as error:
        problem, _, fix = str(error).partition(": ")
        raise InvalidInput("--time", problem, fix) from None
    return at


def check_time_column(definition: Definition, column: str) -> None:
    """Checks that there are periods, by which the rows of a file can be told apart.

    Raises:
        InvalidInput: Phases do not follow the calendar.
    """
    if definition.phase.every is None:
        raise InvalidInput(
            "--time-column",
            f"phases of {definition.dataset} open by their number of rows, so {column} decides nothing",
            "leave it out",
        )


def _late(
    client: Client, definition: Definition, source: RowFile, total: int, at: str | None
) -> tuple[int, str]:
    """Returns how many rows are about periods that have ended, and the date up to which all have."""
    blocks = Odometer.read(client.ledger(definition.dataset)).blocks
    ended, calendar = blocks[-1].until if blocks else None, definition.phase.calendar
    if ended is None or calendar is None:
        return 0, ""
    until, _ = span_of(ended, calendar.zone)
    if at is not None:
        since = calendar.start(calendar.period(span_of(at, calendar.zone)[0]))
        return (total if since < until else 0), ended
    periods = source.periods.items()
    return sum(rows for period, rows in periods if calendar.start(period) < until), ended


def _confirm_late(definition: Definition, rows: int, ended: str) -> None:
    """Asks whether to send rows about periods that have ended.

    Raises:
        StreamDPError: There are such rows, and nobody is at a terminal to answer.
    """
    if not rows:
        return
    said = (
        f"{rows:,} rows are about periods before {ended}, which have ended: they would count in the period "
        f"of {definition.dataset} that is open"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise StreamDPError(f"nothing was sent: {said}; fix --time, or pass --late to send them so")
    click.echo(f"warning: {said}", err=True)
    click.confirm("Rows that are counted stay counted. Send them anyway?", abort=True, err=True)


def _closed(
    client: Client, definition: Definition, event: Event | None, *, close: bool, ask: bool
) -> Event | None:
    """Ends the period if that was asked for, or is confirmed at a terminal; returns the event of it."""
    name = definition.dataset
    if definition.phase.every is None and not close:
        return None
    waiting = client.waiting().get(name, 0) if event is None else event.waiting or 0
    enough = waiting >= rows_of_a_phase(definition)
    if close and waiting and (said := small_phase(definition, waiting)) is not None:
        click.echo(f"note: {said}", err=True)
    if not close:
        at_terminal = ask and sys.stdin.isatty() and sys.stderr.isatty()
        question = f"{waiting:,} rows of {name} wait until their period ends. Close it now?"
        if not (enough and at_terminal and click.confirm(question, err=True)):
            return None
    return client.close_phase(name) if waiting or event is not None else None


def _confirm(survey: Survey, accepted: tuple[str, ...]) -> None:
    """Warns of columns that are probably misread and asks whether to go on, unless all of them are accepted.

    Raises:
        StreamDPError: There are such columns, and nobody is at a terminal to answer.
    """
    from stream_dp.cli.files.value_survey import warn_of

    complaints = survey.complaints()
    warn_of(complaints)
    left = {complaint.attribute for complaint in complaints if complaint.asks} - set(accepted)
    if not left:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise StreamDPError(
            "nothing was sent: columns seem to be misread, and nobody is at a terminal to confirm them; fix "
            "the file or the options that say how to read it, or send them as they are with "
            + " ".join(f"--accept {shlex.quote(name)}" for name in sorted(left))
        )
    click.confirm("Rows that are counted stay counted. Send them anyway?", abort=True, err=True)


def _counted_before(client: Client, dataset: str, prefix: str) -> int:
    """Returns how many of the first rows earlier runs have counted, whatever the size of their batches."""
    spans = {}
    for event in client.batch_events(dataset):
        found = re.fullmatch(rf"{re.escape(prefix)}-(\d+)-(\d+)", event.batch_id or "")
        if found and event.event in ("batch_accepted", "batch_known"):
            spans[int(found[1])] = int(found[2])
    done = 0
    while spans.get(done, 0) > done:
        done = spans[done]
    return done


def _sent(
    client: Client,
    dataset: str,
    batches: Iterator[FileBatch],
    prefix: str,
    at: str | None,
    timeout_s: float,
) -> Iterator[tuple[int, Event]]:
    """Sends the batches in order. While the worker takes one in, the next one is read.

    Yields:
        The number of rows counted so far, and the event that reports it.
    """

    def send(batch: FileBatch) -> Event:
        return client.send(
            dataset,
            columns=batch.columns,
            batch_id=f"{prefix}-{batch.start}-{batch.stop}",
            at=batch.at or at,
            timeout_s=timeout_s,
        )

    sender = ThreadPoolExecutor(1)
    waiting: tuple[FileBatch, Future[Event]] | None = None
    try:
        for batch in batches:
            if waiting is not None:
                yield waiting[0].stop, waiting[1].result()
            waiting = batch, sender.submit(send, batch)
        if waiting is not None:
            yield waiting[0].stop, waiting[1].result()
    finally:
        # A user who stops the command need not wait for a reply: closing the client wakes up the thread.
        sender.shutdown(wait=False, cancel_futures=True)


def _report(
    definition: Definition, file: Path, total: int, done: int, event: Event | None, *, close: bool
) -> None:
    """Says how many rows are counted, and what the others wait for unless they open a phase right now."""
    if event is None:
        click.echo(f"all {total:,} rows of {file.name} were counted before; nothing was sent")
        return
    before = f" ({done:,} were counted before)" if done else ""
    if done == total:
        click.echo(f"all {total:,} rows of {file.name} were counted before; none counts again")
    else:
        click.echo(f"{total - done:,} rows of {file.name} are counted{before}")
    if not close:
        _report_waiting(definition, event)
    if event.phase:
        name = shlex.quote(definition.attributes[0].name)
        click.echo(f"ask with: stream-dp ask {definition.dataset} --group-by {name}")


def _report_waiting(definition: Definition, event: Event) -> None:
    waiting, need = event.waiting or 0, rows_of_a_phase(definition)
    if definition.phase.every is not None:
        click.echo(_waits(definition, waiting, need))
    elif event.phase:
        click.echo(
            f"{event.phase} phase{'s are' if event.phase > 1 else ' is'} open; {waiting:,} rows wait for the "
            f"next phase, which opens at {need:,}"
        )
    else:
        click.echo(
            f"no phase is open yet: {waiting:,} rows wait, and the first phase opens at {need:,}"
        )
    if definition.phase.every is None and definition.least_to_close(waiting) <= waiting < need:
        click.echo(f"to open a phase of these now: stream-dp phase close {definition.dataset}")


def _waits(definition: Definition, waiting: int, need: int) -> str:
    """Says what the waiting rows wait for, where phases follow the calendar."""
    said = f"{waiting:,} rows wait for the end of their period"
    if waiting < need:
        return f"{said}; a phase opens at {need:,} rows, and fewer join the next period"
    return (
        f"{said}, which ends with a batch of a later one; to end it now: stream-dp phase close "
        f"{definition.dataset}"
    )
