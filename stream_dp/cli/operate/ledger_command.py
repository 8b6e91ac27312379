"""``stream-dp ledger``: show and verify."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any, Final

import click
from rich.markup import escape
from rich.table import Table

from stream_dp.audit import Report, verify
from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.terminal import many, show, show_json
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import bare_table, busy, numbers
from stream_dp.cli.text.share_tables import changes
from stream_dp.client import Client
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import OWNER, UNITS, ShareRules
from stream_dp.display.figure_text import share
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition

_OWN_LOOKS: Final[Mapping[object, str]] = {
    "base": ": tables of an opening",
    "rows": ": rows that count",
    "growth": ": tables of the opening extended (growth)",
}
"""What a data set measures unasked, by the reason or the kind of its looks."""


@click.group()
def command() -> None:
    """Show and check the published ledgers."""


@command.command("show")
@connected("name")
@click.option("--analyst", metavar="WHO", help="Show only the charges of this analyst.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=40,
    help="The most entries to show, newest last.",
)
@json_option("Print the entries as JSON, one a line.")
def show_command(
    connection: GivenServers, name: str, analyst: str | None, last: int, as_json: bool
) -> None:
    """Show who charged what to data set NAME, and who may, entry by entry."""
    with busy("Reading the ledger"), connection.client() as client:
        entries = client.ledger(name)
        if not entries:
            client.definition(name)  # it says which data sets there are
    shown = [entry for entry in entries if analyst in (None, entry.get("analyst"))][-last:]
    if as_json:
        show_json(shown)
    else:
        show(entries_table(entries, [entry["seq"] for entry in shown]))


def entries_table(entries: Sequence[Mapping[str, Any]], shown: Collection[int]) -> Table:
    """The entries of a ledger in words: who charged what, and how shares changed.

    Args:
        entries: All entries, in order.
        shown: The numbers of those to show.
    """
    table = bare_table("entry", "what", "who", *numbers("of each line", "looks"))
    rules: ShareRules | None = None
    for entry in entries:
        changed: list[str] = []
        if entry["kind"] in ("dataset", "analysts"):
            before, rules = rules, Odometer.read([entry]).rules
            changed = [] if rules is None else list(changes(before, rules))
        if entry["seq"] in shown:
            table.add_row(str(entry["seq"]), *_in_words(entry))
            for line in changed:
                table.add_row("", line)
    return table


def _in_words(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What an entry is about; of a charge also who pays, the largest share of a line, and the looks."""
    match entry["kind"]:
        case "dataset":
            return ("defined",)
        case "analysts":
            return ("shares changed",)
        case "schema":
            number, phase = entry["schema_version"], entry["phase"]
            return (f"version {number} of the attributes, from phase {phase:,} on",)
        case "phase":
            return (f"phase {entry['phase']} opened with {entry['rows']:,} rows",)
        case "running":
            return (f"running totals since {entry['since']}, at {entry['ticks']:,} ticks",)
        case "written_off":
            return (f"phases 1 to {entry['phases']} written off",)
        case "charge":
            most = max((max(rho, delta) for _, rho, delta in entry["charges"]), default=0)
            by_owner = f", paid by {OWNER}" * (entry.get("paid_by") == "owner")
            reasons = {look.get("reason", look.get("kind")) for look in entry["looks"]}
            own = _OWN_LOOKS.get(next(iter(reasons)), "") if len(reasons) == 1 else ""
            return (
                f"charge to {_phases([block + 1 for block, *_ in entry['charges']])}{own}",
                escape(entry.get("analyst", OWNER)) + by_owner,
                share(most / UNITS),
                f"{len(entry['looks']):,}",
            )
    return (escape(entry["kind"]),)


def _phases(numbers: Sequence[int]) -> str:
    """Says which phases a charge is about, as ranges where they follow one another."""
    if not numbers:
        return "no phase"
    # Numbers that follow one another are all as far from their places.
    runs = groupby(enumerate(sorted(numbers)), lambda one: one[1] - one[0])
    ends = [(run[0][1], run[-1][1]) for run in ([*each] for _, each in runs)]
    said = [str(low) if low == high else f"{low} to {high}" for low, high in ends]
    return f"phase{'' if len(numbers) == 1 else 's'} {', '.join(said)}"


@command.command("verify")
@connected()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option("Print JSON, a line for each data set.")
def verify_command(connection: GivenServers, names: tuple[str, ...], as_json: bool) -> None:
    """Recompute every charge of the data sets NAME, or of all, from the topics alone.

    It checks the hash chain, the price of each look (a noisy measurement), the sum of every line (the privacy
    budget of a phase), and the share of every analyst. The exit code is 1 if there is a fault.
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
            show_json([_document(report)])
        else:
            show(*_report_lines(report))
    if not as_json:
        some = many(len(names or known), "data set")
        right = f"no fault in {some} with {many(charges, 'charge')}"
        click.echo(f"{many(faults, 'fault')} in {some}" if faults else right)
    sys.exit(1 if faults else 0)


def published(client: Client) -> tuple[dict[str, Definition], dict[str, list[bytes]]]:
    """Reads the current definitions and then all ledgers, because a definition enters its ledger first."""
    return client.catalog(), client.ledger_entries()


def reports(
    catalog: Mapping[str, Definition], entries: Mapping[str, Sequence[bytes]], names: Sequence[str]
) -> Iterator[Report]:
    """Checks each data set and draws a progress bar, because long ledgers take a while."""
    total = sum(len(entries.get(name, ())) for name in names)
    with bar() as progress:
        task = progress.add_task("Checking prices", total=total)
        for name in names:
            records, definition = entries.get(name, ()), catalog.get(name)
            tick = partial(progress.advance, task)
            yield verify(name, records, catalog=definition, progress=tick)


def _report_lines(report: Report) -> Iterator[str | Table]:
    promise = ""
    if report.promised is not None:
        promise = " guarantees epsilon {:g} at delta {:g};".format(*report.promised)
    entries = f"{many(report.entries, 'entry')}{', retired' * report.retired}"
    yield f"[b]{report.dataset}[/b]{promise} {entries}"
    yield f"head {report.head}"
    if report.blocks:
        heads = ("phase", "rows", "spent", "recomputed", "difference", "epsilon by dp-accounting")
        table = bare_table(*numbers(*heads))
        for number, block in enumerate(report.blocks, start=1):
            difference = max(block.difference, key=abs)
            table.add_row(
                str(number),
                f"{block.rows:,}",
                share(max(block.spent) / UNITS),
                share(max(block.recomputed) / UNITS),
                f"{difference:+,} units" if difference else "0",
                "-" if block.epsilon is None else f"{block.epsilon:.4f}",
            )
        yield table
    for finding in report.notes:
        yield f"[yellow]note[/yellow]   {escape(str(finding))}"
    for finding in report.faults:
        yield f"[red]fault[/red]  {escape(str(finding))}"
    if not report.faults:
        full = report.full
        line = "" if full is None else f"; a full line is epsilon {full:.6g} by dp-accounting"
        yield f"[green]right[/green]  {many(report.charges, 'charge')}, and nothing differs{line}"
    yield ""


def _document(report: Report) -> dict[str, object]:
    epsilon, delta = report.promised or (None, None)
    names = ("rows", "spent", "recomputed", "difference", "epsilon")
    phases = [
        {"phase": number, **{name: getattr(block, name) for name in names}}
        for number, block in enumerate(report.blocks, start=1)
    ]
    return {
        "dataset": report.dataset,
        "epsilon": epsilon,
        "delta": delta,
        "entries": report.entries,
        "charges": report.charges,
        "head": report.head,
        "retired": report.retired,
        "epsilon_of_a_full_line": report.full,
        "phases": phases,
        "notes": [asdict(found) for found in report.notes],
        "faults": [asdict(found) for found in report.faults],
    }
