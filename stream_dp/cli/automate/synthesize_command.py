"""``stream-dp synthesize``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click

from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.reply_text import busy
from stream_dp.client.statements.result_table import csv_text
from stream_dp.errors import InvalidInput

_Columns = dict[str, list[str | bool | None]]


@click.command()
@connected()
@click.argument("dataset")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write: .csv, .ndjson or .parquet.  [default: CSV to the terminal]",
)
def command(connection: GivenServers, dataset: str, output: Path | None) -> None:
    """Write the synthetic rows of DATASET. They are free, because they are made of published answers.

    A worker publishes them with each phase if the definition sets synthetic_rows.
    """
    write = _writer(output)
    with busy("Reading the newest rows"), connection.client() as client:
        found = client.synthetic(dataset)
    write(found.values())
    first, last = found.window
    phases = f"phase {first}" if first == last else f"phases {first} to {last}"
    click.echo(f"{found.rows:,} rows in place of the {found.n:,} rows of {phases}", err=True)
    click.echo(found.note, err=True)


def _writer(file: Path | None) -> Callable[[_Columns], None]:
    """Returns the function that writes the format of the file's name. Without a file it writes CSV.

    Raises:
        InvalidInput: The ending is unknown, or the format needs pyarrow and it is not installed.
    """
    if file is None:
        return lambda columns: _write_csv(sys.stdout, columns)
    if file.suffix == ".csv":
        return lambda columns: _written(file, _write_csv, columns)
    if file.suffix == ".ndjson":
        return lambda columns: _written(file, _write_ndjson, columns)
    if file.suffix != ".parquet":
        raise InvalidInput(
            "--output", f"{file.name} has no known ending", "name it .csv, .ndjson or .parquet"
        )
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidInput(
            file.name, "Parquet needs pyarrow", "pip install 'stream-dp[arrow]'"
        ) from None
    return lambda columns: pq.write_table(pa.table(columns), file)


def _written(file: Path, write: Callable[[IO[str], _Columns], None], columns: _Columns) -> None:
    with file.open("w", newline="", encoding="utf-8") as text:
        write(text, columns)


def _write_csv(text: IO[str], columns: _Columns) -> None:
    text.write(csv_text([tuple(columns), *zip(*columns.values(), strict=True)]))


def _write_ndjson(text: IO[str], columns: _Columns) -> None:
    for row in zip(*columns.values(), strict=True):
        line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
        text.write(line + "\n")
