"""``stream-dp ingest``."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stream_dp.cli.connection import Connection, connected
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition

if TYPE_CHECKING:
    from stream_dp.client import Client

__all__ = ["command"]

Columns = dict[str, list[Any]]


@click.command()
@connected()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dataset", help="Where the rows go.  [default: the file's name]")
@click.option("--batch-rows", type=click.IntRange(1, 200_000), default=20_000, show_default=True)
@click.option(
    "--batch-id",
    "prefix",
    help="Start of the batch ids; the same start counts the same rows once.  "
    "[default: made from the file's path, size and time]",
)
def command(
    connection: Connection, file: Path, dataset: str | None, batch_rows: int, prefix: str | None
) -> None:
    """Send FILE (csv, parquet, ndjson) in batches; run again after a break, it counts each row once."""
    name = dataset or file.name.split(".")[0]
    with connection.client() as client:
        definition = client.definition(name)
        readers = {".csv": _csv, ".ndjson": _ndjson, ".jsonl": _ndjson, ".parquet": _parquet}
        reader = readers.get(file.suffix)
        if reader is None:
            raise InvalidInput(
                "FILE", f"{file.suffix or file.name} is not read", "send csv, ndjson or parquet"
            )
        _send(
            client, definition, file, reader(file, definition, batch_rows), prefix or _prefix(file)
        )


def _prefix(file: Path) -> str:
    """Names this file as it is now, without a trace of what it holds."""
    facts = file.stat()
    text = f"{file.resolve()}|{facts.st_size}|{facts.st_mtime_ns}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _send(
    client: Client,
    definition: Definition,
    file: Path,
    batches: Iterator[tuple[Columns, int]],
    prefix: str,
) -> None:
    """Sends batch after batch; each is durable before the next is read."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    rows, event = 0, None
    with progress:
        task = progress.add_task(f"Sending {file.name}", total=file.stat().st_size, rows=0)
        for columns, read_bytes in batches:
            taken = len(next(iter(columns.values())))
            event = client.send_document(
                definition.dataset,
                {"columns": columns},
                batch_id=f"{prefix}-{rows}-{rows + taken}",
            )
            rows += taken
            progress.update(task, completed=read_bytes, rows=rows)
        progress.update(task, completed=file.stat().st_size)
    if event is None:
        click.echo(f"{file} holds no rows")
        return
    click.echo(f"{rows:,} rows sent; {event.phase} phases open, {event.waiting:,} rows wait")


def _wanted(definition: Definition, found: list[str], file: Path) -> list[str]:
    names = [attribute.name for attribute in definition.attributes]
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidInput(
            file.name,
            f"no column {', '.join(missing)} (found: {', '.join(found)})",
            "rename the columns as the definition has them",
        )
    return names


def _csv(file: Path, definition: Definition, batch_rows: int) -> Iterator[tuple[Columns, int]]:
    """Cells as text; an empty one is a missing value. The worker reads numbers out of text."""
    with file.open("rb") as raw:
        lines = (
            line.decode("utf-8-sig" if number == 0 else "utf-8") for number, line in enumerate(raw)
        )
        reader = csv.reader(lines)
        header = next(reader, [])
        names = _wanted(definition, header, file)
        places = [header.index(name) for name in names]
        columns: Columns = {name: [] for name in names}
        for row in reader:
            if not row:
                continue
            for name, place in zip(names, places, strict=True):
                columns[name].append(row[place] or None if place < len(row) else None)
            if len(columns[names[0]]) == batch_rows:
                yield columns, raw.tell()
                columns = {name: [] for name in names}
        if columns[names[0]]:
            yield columns, raw.tell()


def _ndjson(file: Path, definition: Definition, batch_rows: int) -> Iterator[tuple[Columns, int]]:
    names = [attribute.name for attribute in definition.attributes]
    columns: Columns = {name: [] for name in names}
    with file.open("rb") as raw:
        for number, line in enumerate(raw, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise InvalidInput(
                    f"{file.name} line {number}", "it is no JSON object", "mend the line"
                )
            for name in names:
                columns[name].append(row.get(name))
            if len(columns[names[0]]) == batch_rows:
                yield columns, raw.tell()
                columns = {name: [] for name in names}
        if columns[names[0]]:
            yield columns, raw.tell()


def _parquet(file: Path, definition: Definition, batch_rows: int) -> Iterator[tuple[Columns, int]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidInput(
            file.name, "Parquet needs pyarrow", "pip install 'stream-dp[arrow]'"
        ) from None
    table = pq.ParquetFile(file)
    names = _wanted(definition, table.schema_arrow.names, file)
    done, total = 0, max(1, table.metadata.num_rows)
    for batch in table.iter_batches(batch_size=batch_rows, columns=names):
        done += batch.num_rows
        yield (
            {
                name: batch.column(place).to_pylist()
                for place, name in enumerate(batch.schema.names)
            },
            file.stat().st_size * done // total,
        )
