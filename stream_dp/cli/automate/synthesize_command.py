"""``stream-dp synthesize``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import click

from stream_dp.cli.command_options import GivenServers, connected
from stream_dp.cli.text.reply_text import busy
from stream_dp.client.statements.result_table import csv_text
from stream_dp.display.phase_words import phases
from stream_dp.errors import InvalidInput

_Columns: TypeAlias = dict[str, list[str | bool | None]]


@click.command()
@connected("dataset")
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
    kind = ".csv" if output is None else output.suffix
    _check(kind, output)
    with busy("Reading the newest rows"), connection.client() as client:
        found = client.synthetic(dataset)
    columns: _Columns = found.values()
    if output is None:
        click.echo(_text(kind, columns), nl=False)
    elif kind == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), output)
    else:
        output.write_text(_text(kind, columns), encoding="utf-8", newline="")
    whose = phases(found.window)
    click.echo(f"{found.rows:,} rows in place of the {found.n:,} rows of {whose}", err=True)
    click.echo(found.note, err=True)


def _check(kind: str, file: Path | None) -> None:
    """Checks that the format can be written, before anything is read.

    Raises:
        InvalidInput: The ending is unknown, or the format needs pyarrow and it is not installed.
    """
    if file is not None and kind not in (".csv", ".ndjson", ".parquet"):
        fix = "name it .csv, .ndjson or .parquet"
        raise InvalidInput("--output", f"{file.name} has no known ending", fix)
    if file is not None and kind == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            fix = "pip install 'stream-dp[arrow]'"
            raise InvalidInput(file.name, "Parquet needs pyarrow", fix) from None


def _text(kind: str, columns: _Columns) -> str:
    rows = list(zip(*columns.values(), strict=True))
    if kind == ".csv":
        return csv_text([tuple(columns), *rows])
    objects = (dict(zip(columns, row, strict=True)) for row in rows)
    return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in objects)
