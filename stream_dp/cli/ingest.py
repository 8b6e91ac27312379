"""``stream-dp ingest``."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.files import Batch, Source, rows_a_batch
from stream_dp.cli.progress import bar
from stream_dp.cli.rendering import rows_of_a_phase
from stream_dp.errors import RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import Definition, Event

if TYPE_CHECKING:
    from stream_dp.client import Client

__all__ = ["command", "delimiter_option", "encoding_option"]

_HOUR_MS = 3_600_000


def _encoding(_: click.Context, __: click.Parameter, name: str) -> str:
    try:
        "".encode(name)
    except LookupError:
        raise click.BadParameter(f"{name!r} is no encoding that Python knows") from None
    # Excel marks its UTF-8 with a byte order mark.
    return "utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name


def _delimiter(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is None:
        return None
    mark = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(mark) != 1:
        raise click.BadParameter("the delimiter is one character, or tab")
    return mark


delimiter_option = click.option(
    "--delimiter",
    callback=_delimiter,
    help="What separates the columns of a csv file.  [default: a comma]",
)
encoding_option = click.option(
    "--encoding", default="utf-8", show_default=True, callback=_encoding, help="Of a text file."
)


@click.command()
@connected()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dataset", help="Where the rows go.  [default: the file's name]")
@click.option(
    "--batch-rows",
    type=click.IntRange(1, 200_000),
    default=20_000,
    show_default=True,
    help="Rows of a batch; fewer where the definition has many columns.",
)
@click.option(
    "--batch-id",
    "prefix",
    help="Start of the batch ids; the same rows under the same start count once.  "
    "[default: made from the file's path and time of change]",
)
@delimiter_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@encoding_option
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds to wait for each batch.",
)
def command(
    connection: Connection,
    file: Path,
    dataset: str | None,
    batch_rows: int,
    prefix: str | None,
    delimiter: str | None,
    encoding: str,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Send the rows of FILE: csv, tsv, ndjson (each also .gz) or parquet.

    Nothing is sent of a file that cannot be read to its end. After a break run the same command again: it
    goes on where it stopped, and each row counts once. Columns that the definition does not name stay here.
    """
    name = dataset or file.name.split(".")[0].lower()
    with connection.client() as client:
        definition = _definition(client, name, given=dataset is not None)
        source = Source(
            file,
            definition,
            rows_a_batch(definition, batch_rows),
            encoding=encoding,
            delimiter=delimiter,
        )
        with bar() as progress:
            task = progress.add_task(f"Reading {file.name}", total=file.stat().st_size)
            total = source.check(lambda n_bytes: progress.update(task, completed=n_bytes))
            if total == 0:
                progress.stop()
                click.echo(f"{file.name} holds no rows")
                return
            progress.update(task, description="Looking what was counted before")
            ids = prefix or _prefix(file)
            done = _counted_before(client, name, file, ids, given=prefix is not None)
            progress.update(task, description=f"Sending {file.name}", total=total, completed=done)
            event = None
            try:
                sent = _sent(client, name, source.batches(done), ids, timeout_s)
                for stop, event in sent:  # noqa: B007 - the last one is reported
                    progress.update(task, completed=stop)
            except (KeyboardInterrupt, ServerUnavailable, RequestTimeout) as error:
                progress.stop()
                why = str(error) or "stopped"
                raise StreamDPError(
                    f"{why}; run the same command again to send the rest, each row counts once"
                ) from None
    if as_json:
        facts = {"dataset": name, "rows": total, "counted_before": done}
        if event is not None:
            facts.update(phase=event.phase, waiting=event.waiting)
        click.echo(json.dumps(facts))
    else:
        _report(definition, file, total, done, event)


def _definition(client: Client, name: str, *, given: bool) -> Definition:
    try:
        return client.definition(name)
    except StreamDPError as error:
        if given:
            raise
        raise StreamDPError(
            f"{error} (the name was made from the file's; pass --dataset for another one)"
        ) from None


def _prefix(file: Path) -> str:
    """Names this file as it is now. Its size is left out: ids are public, and that tells of its rows."""
    text = f"{file.resolve()}|{file.stat().st_mtime_ns}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def _counted_before(client: Client, dataset: str, file: Path, prefix: str, *, given: bool) -> int:
    """How many of the first rows were counted by earlier runs, whatever the size of their batches."""
    changed_ms = int(file.stat().st_mtime * 1000) - _HOUR_MS
    since_ms = 0 if given or changed_ms > time.time() * 1000 else changed_ms
    spans = {}
    for event in client.batch_events(dataset, since_ms=since_ms):
        found = re.fullmatch(rf"{re.escape(prefix)}-(\d+)-(\d+)", event.batch_id or "")
        if found and event.event == "batch_accepted":
            spans[int(found[1])] = int(found[2])
    done = 0
    while spans.get(done, 0) > done:
        done = spans[done]
    return done


def _sent(
    client: Client, dataset: str, batches: Iterator[Batch], prefix: str, timeout_s: float
) -> Iterator[tuple[int, Event]]:
    """Sends batch after batch; while the worker takes one in, the next is read.

    Yields:
        How many rows are counted so far, and the event that says so.
    """

    def send(batch: Batch) -> Event:
        return client.send(
            dataset,
            columns=batch.columns,
            batch_id=f"{prefix}-{batch.start}-{batch.stop}",
            timeout_s=timeout_s,
        )

    sender = ThreadPoolExecutor(1)
    waiting: tuple[Batch, Future[Event]] | None = None
    try:
        for batch in batches:
            if waiting is not None:
                yield waiting[0].stop, waiting[1].result()
            waiting = batch, sender.submit(send, batch)
        if waiting is not None:
            yield waiting[0].stop, waiting[1].result()
    finally:
        # Whoever stops us does not wait for a reply: closing the client wakes the thread up.
        sender.shutdown(wait=False, cancel_futures=True)


def _report(definition: Definition, file: Path, total: int, done: int, event: Event | None) -> None:
    if event is None:
        click.echo(f"all {total:,} rows of {file.name} were counted before; nothing was sent")
        return
    before = f" ({done:,} were counted before)" if done else ""
    click.echo(f"{total - done:,} rows of {file.name} are counted{before}")
    waiting, need = event.waiting or 0, rows_of_a_phase(definition)
    if event.phase:
        click.echo(
            f"{event.phase} phase{'s are' if event.phase > 1 else ' is'} open; {waiting:,} rows wait for the "
            f"next, which opens at {need:,}"
        )
        name = shlex.quote(definition.attributes[0].name)
        click.echo(f"ask with: stream-dp ask {definition.dataset} --group-by {name}")
    else:
        click.echo(f"no phase is open yet: {waiting:,} rows wait, and the first opens at {need:,}")
