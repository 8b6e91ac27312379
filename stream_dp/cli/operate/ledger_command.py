"""``stream-dp ledger``: show and verify."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import click
from rich.markup import escape
from rich.table import Table

from stream_dp.audit import BlockReport, Report, verify
from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import bare_table, busy, output, share
from stream_dp.cli.text.share_tables import changes
from stream_dp.client import Client
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import OWNER, UNITS, ShareRules
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition


@click.group()
def command() -> None:
    """Show and check the published ledgers."""


@command.command("show")
@connected()
@click.argument("name")
@click.option("--analyst", metavar="WHO", help="Show only the charges of this analyst.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="The most entries to show, newest last.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON, one a line.")
def show_command(
    connection: GivenServers,
    name: str,
    analyst: str | None,
    last: int,
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Show who charged what to data set NAME, and who may, entry by entry."""
    with busy("Reading the ledger"), connection.client() as client:
        entries = client.ledger(name)
        if not entries:
            client.definition(name)  # it says which data sets there are
    shown = [entry for entry in entries if analyst in (None, entry.get("analyst"))][-last:]
    if as_json:
        for entry in shown:
            click.echo(json.dumps(entry))
    else:
        output().print(entries_table(entries, [entry["seq"] for entry in shown]))


def entries_table(entries: Sequence[Mapping[str, Any]], shown: Collection[int]) -> Table:
    """The entries of a ledger in words: who charged what, and how shares changed.

    Args:
        entries: All entries, in order.
        shown: The numbers of those to show.
    """
    table = bare_table("entry", "what", "who", numbers=("of each line", "looks"))
    rules: ShareRules | None = None
    for entry in entries:
        lines, rules = _in_words(entry, rules)
        if entry["seq"] in shown:
            for line in lines:
                table.add_row(*line)
    return table


@command.command("verify")
@connected()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each data set.")
def verify_command(
    connection: GivenServers,
    names: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - click
) -> None:
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
            click.echo(json.dumps(_document(report)))
        else:
            _print(report)
    if not as_json:
        _conclude(len(names or known), charges, faults)
    sys.exit(1 if faults else 0)


_Line = tuple[str, str, str, str, str]


def _in_words(
    entry: Mapping[str, Any], rules: ShareRules | None
) -> tuple[list[_Line], ShareRules | None]:
    """The lines of a table for an entry, and the rules in force from it on."""
    number, kind = str(entry["seq"]), entry["kind"]
    if kind == "charge":
        return [(number, *_charge(entry))], rules
    if kind in ("dataset", "analysts"):
        after = Odometer.read([entry]).rules
        said = "defined" if kind == "dataset" else "shares changed"
        listed = [] if after is None else changes(rules, after)
        return [(number, said, "", "", ""), *(("", line, "", "", "") for line in listed)], after
    if kind == "phase":
        said = f"phase {entry['phase']} opened with {entry['rows']:,} rows"
    elif kind == "written_off":
        said = f"phases 1 to {entry['phases']} written off"
    else:
        said = escape(kind)
    return [(number, said, "", "", "")], rules


def _charge(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What a charge is about, who pays, the largest share of a line, and the number of looks."""
    blocks = [block + 1 for block, *_ in entry["charges"]]
    most = max((max(rho, delta) for _, rho, delta in entry["charges"]), default=0)
    who = escape(entry.get("analyst", OWNER))
    if entry.get("paid_by") == "owner":
        who += f", paid by {OWNER}"
    reasons = {look.get("reason", look.get("kind")) for look in entry["looks"]}
    own = _OWN_LOOKS.get(reasons.pop()) if len(reasons) == 1 else None
    what = f"charge to {_phases(blocks)}" + (f": {own}" if own else "")
    return what, who, share(most / UNITS), f"{len(entry['looks']):,}"


_OWN_LOOKS: Final[Mapping[object, str]] = {
    "base": "tables of an opening",
    "rows": "rows that count",
    "growth": "tables of the opening extended (growth)",
}
"""What a data set measures unasked, by the reason or the kind of its looks."""


def _phases(numbers: Sequence[int]) -> str:
    """Says which phases a charge is about, as ranges where they follow one another."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if not runs:
        return "no phase"
    said = [str(low) if low == high else f"{low} to {high}" for low, high in runs]
    return f"phase{'' if len(numbers) == 1 else 's'} {', '.join(said)}"


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
                share(max(block.spent) / UNITS),
                share(max(block.recomputed) / UNITS),
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
