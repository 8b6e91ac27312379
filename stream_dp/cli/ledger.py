"""``stream-dp ledger verify``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

import click
from rich.markup import escape

from stream_dp.audit import BlockReport, Report, verify
from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.progress import bar
from stream_dp.cli.rendering import bare_table, busy, output, share
from stream_dp.client import Client
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition

__all__ = ["command", "published", "reports"]

_UNITS = 2**50


@click.group()
def command() -> None:
    """Check the published ledgers."""


@command.command("verify")
@connected()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document a line for each data set."
)
def verify_command(
    connection: Connection,
    names: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Recompute every charge of the data sets NAME, or of all, from the topics alone.

    It checks the hash chain, the order of the entries, each price against the noise that was recorded,
    and the sum of every line (the privacy budget of a phase). Google's library dp-accounting computes what
    the looks (the noisy measurements) of each phase cost together. The exit code is 1 if the command finds a
    fault. A note is not a fault.
    """
    with busy("Reading the ledgers"), connection.client() as client:
        catalog, entries = published(client)
    known = sorted(catalog.keys() | entries.keys())
    for name in names:
        if name not in known:
            raise InvalidInput("NAME", f"there is no ledger of {name}", "see: stream-dp status")
    faults = charges = 0
    for report in reports(catalog, entries, names or known):
        faults += len(report.faults)
        charges += report.charges
        if as_json:
            click.echo(json.dumps(_document(report)))
        else:
            _print(report)
    if not as_json:
        _conclude(len(names or known), charges, faults)
    sys.exit(1 if faults else 0)


def published(client: Client) -> tuple[dict[str, Definition], dict[str, list[bytes]]]:
    """Reads the current definitions and then all ledgers, because a definition enters its ledger first."""
    return client.catalog(), client.ledger_entries()


def reports(
    catalog: Mapping[str, Definition], entries: Mapping[str, Sequence[bytes]], names: Sequence[str]
) -> Iterator[Report]:
    """Checks each data set and draws a progress bar, because long ledgers take a while."""
    with bar() as progress:
        task = progress.add_task(
            "Checking prices", total=sum(len(entries.get(n, ())) for n in names)
        )
        for name in names:
            records = entries.get(name, ())
            yield verify(
                name,
                records,
                catalog=catalog.get(name),
                progress=lambda: progress.advance(task),
            )


def _print(report: Report) -> None:
    console = output()
    promise = ""
    if report.promised is not None:
        promise = " guarantees epsilon {:g} at delta {:g};".format(*report.promised)
    many = "entry" if report.entries == 1 else "entries"
    retired = ", retired" if report.retired else ""
    console.print(f"[b]{report.dataset}[/b]{promise} {report.entries:,} {many}{retired}")
    console.print(f"head {report.head}")
    if report.blocks:
        table = bare_table(
            numbers=(
                "phase",
                "rows",
                "spent",
                "recomputed",
                "difference",
                "epsilon by dp-accounting",
            )
        )
        for number, block in enumerate(report.blocks, start=1):
            table.add_row(
                str(number),
                f"{block.rows:,}",
                share(max(block.spent) / _UNITS),
                share(max(block.recomputed) / _UNITS),
                _difference(block),
                "-" if block.epsilon is None else f"{block.epsilon:.4f}",
            )
        console.print(table)
    for finding in report.notes:
        console.print(f"[yellow]note[/yellow]   {escape(str(finding))}")
    for finding in report.faults:
        console.print(f"[red]fault[/red]  {escape(str(finding))}")
    if not report.faults:
        console.print(f"[green]right[/green]  {_verdict(report)}")
    console.print()


def _difference(block: BlockReport) -> str:
    """Formats the largest difference between the sums, in units."""
    difference = max(block.difference, key=abs)
    return f"{difference:+,} units" if difference else "0"


def _verdict(report: Report) -> str:
    charges = f"{report.charges:,} charge{'' if report.charges == 1 else 's'}"
    if report.full is None:
        return f"{charges}, and nothing differs"
    return (
        f"{charges}, and nothing differs; a full line is epsilon {report.full:.6g} by dp-accounting"
    )


def _conclude(datasets: int, charges: int, faults: int) -> None:
    some = f"{datasets} data set{'' if datasets == 1 else 's'}"
    if faults:
        click.echo(f"{faults} fault{'' if faults == 1 else 's'} in {some}")
    else:
        click.echo(f"no fault in {some} with {charges:,} charge{'' if charges == 1 else 's'}")


def _document(report: Report) -> dict[str, object]:
    epsilon, delta = report.promised or (None, None)
    return {
        "dataset": report.dataset,
        "epsilon": epsilon,
        "delta": delta,
        "entries": report.entries,
        "charges": report.charges,
        "head": report.head,
        "retired": report.retired,
        "epsilon_of_a_full_line": report.full,
        "phases": [
            {
                "phase": number,
                "rows": block.rows,
                "spent": list(block.spent),
                "recomputed": list(block.recomputed),
                "difference": list(block.difference),
                "epsilon": block.epsilon,
            }
            for number, block in enumerate(report.blocks, start=1)
        ],
        "notes": [{"entry": found.entry, "text": found.text} for found in report.notes],
        "faults": [{"entry": found.entry, "text": found.text} for found in report.faults],
    }
