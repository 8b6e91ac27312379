"""``stream-dp ingest``."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_dp.calendar_periods import span_of
from stream_dp.cli.command_options import FILE, GivenServers, connected, json_option
from stream_dp.cli.files.batch_ids import RowsDigest, batch_key
from stream_dp.cli.files.cell_widths import rows_a_batch
from stream_dp.cli.files.phase_cuts import BATCH_ROWS, aligned
from stream_dp.cli.files.reading_options import FileReading, reading_options
from stream_dp.cli.files.row_files import FileBatch, RowFile
from stream_dp.cli.terminal import confirm, is_attended, many, note, show_json
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import busy, rows_of_a_phase
from stream_dp.cli.use.phase_command import closed_line, small_phase
from stream_dp.client.budget.odometer import Odometer
from stream_dp.display.event_words import late_lines
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import Definition, Event

if TYPE_CHECKING:
    from stream_dp.cli.files.value_survey import Survey
    from stream_dp.client import Client

_TIMEOUT_S = 60.0
"""The seconds to wait for each batch."""


@click.command()
@connected()
@click.argument("file", type=FILE)
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
@reading_options()
@click.option(
    "--time",
    "at",
    metavar="TIME",
    help="The date of the rows, such as 2026-11-01, or a date and time with an offset, or now. If phases "
    "follow the calendar, the command asks for it.",
)
@click.option(
    "--late",
    is_flag=True,
    help="Send rows about periods that have ended although they count in the open period.",
)
@click.option(
    "--close", is_flag=True, help="Then open a phase of the rows that wait, or end the period."
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="ATTRIBUTE",
    help="Send this attribute although it seems to be misread. May be repeated.",
)
@json_option("Print one JSON document at the end.")
def command(
    connection: GivenServers,
    file: Path,
    dataset: str | None,
    batch_rows: int | None,
    prefix: str | None,
    reading: FileReading,
    at: str | None,
    late: bool,
    close: bool,
    accepted: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send the rows of FILE, which is CSV, TSV, NDJSON (each also as .gz) or Parquet.

    The command sends nothing unless it can read the whole file. It asks before it sends columns that seem to
    be misread. Columns that the definition does not name stay on this machine. After an interruption, run the
    same command again: it continues where it stopped, and each row counts once.
    """
    from stream_dp.cli.files.value_survey import surveyed, tell_unread
    from stream_dp.profiles.builder import universe_of

    name = dataset or file.name.split(".")[0].lower()
    with connection.client() as client:
        definition = _definition(client, name, given=dataset is not None)
        _check_accepted(definition, accepted)
        at = _checked_time(definition, at, reading.time_column)
        most, ends_every = _batches(definition, batch_rows)
        source = RowFile(file, definition, most, reading, ends_every=ends_every)
        digest = None if prefix else RowsDigest(batch_key(connection.state_dir), name, source.names)
        also = None if digest is None else lambda columns, _: digest.take(columns)
        survey = surveyed(source, universe_of(definition), also)
        if (total := survey.rows) == 0:
            click.echo(f"{file.name} holds no rows")
            return
        ids = str(prefix) if digest is None else digest.prefix()
        with busy("Checking which rows were counted before"):
            done = _counted_before(client, name, ids)
        # They name values, and stderr may be a log.
        unlisted = survey.unlisted(name) if sys.stderr.isatty() else {}
        tell_unread(survey, but=unlisted)
        if source.absent:
            names = ", ".join(source.absent)
            note(f"{file.name} has no column for {names}, which rows need not have")
        if done < total:
            _confirm_misread(survey, accepted, source.absent)
            if not late:
                _confirm_late(client, definition, source, total, at)
        send = partial(_send, client, name, ids, at)
        event, done, late_rows = _send_all(source, send, done, total)
        if not as_json:
            _report(source, definition, total, done, event, late_rows, close=close)
        for words in unlisted.values():
            note(words)
        closed = _closed(client, definition, event, close=close, ask=not as_json)
    if as_json:
        show_json([_facts(source, name, survey, done, event, closed, late_rows)])
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
    if not set(accepted) <= set(names):
        problem = f"{definition.dataset} has no such attribute"
        raise InvalidInput("--accept", problem, f"use {', '.join(names)}")


# ---------------------------------------------------------------- before rows are sent


def _checked_time(definition: Definition, at: str | None, column: str | None) -> str | None:
    """Checks the options about time before anything is sent.

    Returns:
        The time to send; None leaves it to Kafka, or to a column.

    Raises:
        InvalidInput: The time cannot be read, or a column says it too.
        StreamDPError: Nothing says when the rows were, and nobody is at a terminal to confirm that it is now.
    """
    name, calendar = definition.dataset, definition.phase.calendar
    if column is not None and at is not None:
        raise InvalidInput("--time-column", "--time is given too", "leave one of them out")
    if column is None and at is None and calendar is not None:
        confirm(
            f"Phases of {name} follow the calendar, and neither --time nor --time-column says when these "
            "rows were. Do they belong to the period of today?",
            f"nothing was sent: phases of {name} follow the calendar, and nothing says when these rows were; "
            "pass --time with their date, --time-column with the column that says it, or --time now",
        )
    if at is None or at == "now":
        return None
    from stream_dp.client.sent_batches import time_of_batch

    return time_of_batch(at, field="--time")


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


def _confirm_misread(survey: Survey, accepted: tuple[str, ...], absent: Sequence[str]) -> None:
    """Warns of columns that are probably misread and asks whether to go on, unless all of them are accepted.

    Raises:
        StreamDPError: There are such columns, and nobody is at a terminal to answer.
    """
    from stream_dp.cli.files.value_survey import warn_of

    complaints = [one for one in survey.complaints() if one.attribute not in absent]
    warn_of(complaints)
    if left := {one.attribute for one in complaints if one.asks} - set(accepted):
        confirm(
            _SEND_ANYWAY,
            "nothing was sent: columns seem to be misread, and nobody is at a terminal to confirm them; fix "
            "the file or the options that say how to read it, or send them as they are with "
            + " ".join(f"--accept {shlex.quote(name)}" for name in sorted(left)),
        )


_SEND_ANYWAY = "Rows that are counted stay counted. Send them anyway?"


def _confirm_late(
    client: Client, definition: Definition, source: RowFile, total: int, at: str | None
) -> None:
    """Asks whether to send rows about periods that have ended.

    Raises:
        StreamDPError: There are such rows, and nobody is at a terminal to answer.
    """
    blocks = Odometer.read(client.ledger(definition.dataset)).blocks
    ended, calendar = blocks[-1].until if blocks else None, definition.phase.calendar
    if ended is None or calendar is None:
        return
    until, _ = span_of(ended, calendar.zone)
    periods: Mapping[int, int] = source.periods
    if at is not None:
        periods = {calendar.period(span_of(at, calendar.zone)[0]): total}
    late = {p: rows for p, rows in periods.items() if calendar.start(p) < until}
    if rows := sum(rows for period, rows in late.items() if _is_too_late(definition, period)):
        said = (
            f"{rows:,} rows are about periods before {ended}, which have ended: they would count in the "
            f"period of {definition.dataset} that is open"
        )
        refusal = f"nothing was sent: {said}; fix --time, or pass --late to send them so"
        confirm(f"{said}. {_SEND_ANYWAY}", refusal)


def _is_too_late(definition: Definition, period: int) -> bool:
    """Whether no more rows come to a period that has ended, as far as the clock of this machine knows."""
    calendar = definition.phase.calendar
    assert calendar is not None, "only periods end"
    ends = definition.phase.complete_at(calendar.start(period + 1))
    return ends is None or ends <= 1000 * time.time()


# ---------------------------------------------------------------- sending


def _send(client: Client, name: str, prefix: str, at: str | None, batch: FileBatch) -> Event:
    batch_id = f"{prefix}-{batch.start}-{batch.stop}"
    return client.send(
        name, columns=batch.columns, batch_id=batch_id, at=batch.at or at, timeout_s=_TIMEOUT_S
    )


def _send_all(
    source: RowFile, send: Callable[[FileBatch], Event], done: int, total: int
) -> tuple[Event | None, int, Counter[int | None]]:
    """Sends the rows that were not counted before.

    Returns:
        The event of the last batch, how many rows were counted before, and how many came late to each phase;
        to None those that are in the phase that opens next.
    """
    event, at_row, late = None, done, Counter[int | None]()
    with bar() as progress:
        task = progress.add_task(f"Sending {source.path.name}", total=total, completed=done)
        try:
            for stop, event in _sent(send, source.batches(done)):
                progress.update(task, completed=stop)
                # One whose event the broker keeps no more, and whose outcome the store keeps no more.
                done += stop - at_row if event.event == "batch_known" else 0
                at_row = stop
                if event.late:
                    late[event.late_phase] += event.rows or 0
        except (KeyboardInterrupt, ServerUnavailable, RequestTimeout) as error:
            progress.stop()
            why = str(error) or "stopped"
            raise StreamDPError(
                f"{why}; run the same command again to send the rest: each row counts once"
            ) from None
    return event, done, late


def _sent(
    send: Callable[[FileBatch], Event], batches: Iterable[FileBatch]
) -> Iterator[tuple[int, Event]]:
    """Sends the batches in order. While the worker takes one in, the next one is read.

    Yields:
        The number of rows counted so far, and the event that reports it.
    """
    sender = ThreadPoolExecutor(1)
    waiting: tuple[int, Future[Event]] | None = None
    try:
        for batch in itertools.chain(batches, [None]):
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = None if batch is None else (batch.stop, sender.submit(send, batch))
    finally:
        # A user who stops the command need not wait for a reply: closing the client wakes up the thread.
        sender.shutdown(wait=False, cancel_futures=True)


def _closed(
    client: Client, definition: Definition, event: Event | None, *, close: bool, ask: bool
) -> Event | None:
    """Ends the period if that was asked for, or is confirmed at a terminal; returns the event of it."""
    name = definition.dataset
    if definition.phase.every is None and not close:
        return None
    waiting = client.waiting().get(name, 0) if event is None else event.waiting or 0
    if close:
        if waiting and (said := small_phase(definition, waiting)) is not None:
            note(said)
    elif not (
        waiting >= rows_of_a_phase(definition)
        and ask
        and is_attended()
        and click.confirm(
            f"{waiting:,} rows of {name} wait until their period ends. Close it now?", err=True
        )
    ):
        return None
    return client.close_phase(name) if waiting or event is not None else None


# ---------------------------------------------------------------- what is said then


def _facts(
    source: RowFile,
    name: str,
    survey: Survey,
    done: int,
    event: Event | None,
    closed: Event | None,
    late: Mapping[int | None, int],
) -> dict[str, object]:
    """What was sent, as a document."""
    last = closed or event
    return {
        "dataset": name,
        "rows": survey.rows,
        "counted_before": done,
        "left_out": source.left_out,
        "late": [{"phase": phase, "rows": rows} for phase, rows in late.items()],
        "unread": {unread.attribute: unread.rows for unread, _ in survey.unread()},
        **({} if last is None else {"phase": last.phase, "waiting": last.waiting}),
        **({} if closed is None else {"since": closed.since, "until": closed.until}),
    }


def _report(
    source: RowFile,
    definition: Definition,
    total: int,
    done: int,
    event: Event | None,
    late: Mapping[int | None, int],
    *,
    close: bool,
) -> None:
    """Says how many rows are counted, and what the others wait for unless they open a phase right now."""
    file = source.path.name
    if done == total:
        none = "nothing was sent" if event is None else "none counts again"
        click.echo(f"all {total:,} rows of {file} were counted before; {none}")
    else:
        before = f" ({done:,} were counted before)" if done else ""
        click.echo(f"{total - done:,} rows of {file} are counted{before}")
    if event is not None:
        if not close:
            click.echo(_waits(definition, event))
        if event.phase:
            name = shlex.quote(definition.attributes[0].name)
            click.echo(f"ask with: stream-dp ask {definition.dataset} --group-by {name}")
            if any(one.type == "number" and one.propose for one in definition.attributes):
                click.echo(f"edges are proposed: stream-dp schema show {definition.dataset}")
    if source.periods:
        click.echo(f"they are about {many(len(source.periods), 'period')}")
    for line in late_lines(late):
        click.echo(line)


def _waits(definition: Definition, event: Event) -> str:
    """Says what the rows wait for that are in no phase yet."""
    waiting, need = event.waiting or 0, rows_of_a_phase(definition)
    close = f"stream-dp phase close {definition.dataset}"
    if definition.phase.every is not None:
        said = f"{waiting:,} rows wait for the end of their period"
        if waiting < need:
            return f"{said}; a phase opens at {need:,} rows, and fewer join the next period"
        ends = "which ends with a batch of a later one"
        if definition.phase.close is not None:
            ends = f"which closes {definition.phase.close.after} after it"
        return f"{said}, {ends}; to end it now: {close}"
    said = f"no phase is open yet: {waiting:,} rows wait, and the first phase opens at {need:,}"
    if event.phase:
        are = "is" if event.phase == 1 else "are"
        said = (
            f"{many(event.phase, 'phase')} {are} open; {waiting:,} rows wait for the next phase, which opens "
            f"at {need:,}"
        )
    if definition.least_to_close(waiting) <= waiting < need:
        said += f"\nto open a phase of these now: {close}"
    return said
