"""``stream-dp status``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import click
from rich.table import Table

from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.terminal import show, show_json
from stream_dp.cli.text.reply_text import NONE_YET, bare_table, busy, output, spending_bar
from stream_dp.client import Client
from stream_dp.client.budget.odometer import Odometer
from stream_dp.display.figure_text import share
from stream_dp.display.phase_words import moment

_Facts: TypeAlias = dict[str, Any]

_ROOMY = 90
"""The columns that a terminal needs for bars next to names of some length."""


@click.command()
@connected()
@json_option("Print JSON, a line for each data set.")
def command(connection: GivenServers, as_json: bool) -> None:
    """Show the phases, rows and budget of every data set, from the published records."""
    with busy("Reading the published records"), connection.client() as client:
        stopped, problem = client.stopped(), client.worker_problem()
        found = list(_facts(client, stopped, is_served=problem is None))
    if as_json:
        show_json(found)
        return
    if problem is not None:
        click.echo(problem, err=True)
    for name, why in sorted(stopped.items()):
        click.echo(f"{name} is stopped: {why}", err=True)
    if not found:
        click.echo(NONE_YET)
        return
    show(
        _table(found, bars=output().width >= _ROOMY),
        "spent: the largest part that any phase has spent of its budget; easy and hard: recent answers",
    )


def _facts(client: Client, stopped: dict[str, str], *, is_served: bool) -> Iterator[_Facts]:
    """What the published records say of each data set."""
    ledgers, waiting = client.ledgers(), client.waiting()
    easy, hard = client.difficulties()
    for name, definition in sorted(client.catalog().items()):
        odometer = Odometer.read(ledgers.get(name, []))
        dates = {"since": odometer.since, "until": odometer.until}
        yield {
            "dataset": name,
            "phases": len(odometer.blocks),
            "rows": odometer.rows,
            "waiting": waiting.get(name, 0),
            "epsilon": definition.privacy.epsilon,
            "spent": odometer.most_spent,
            "looks": odometer.looks,
            "easy": easy[name],
            "hard": hard[name],
            "worker": is_served,
            **({"stopped": stopped[name]} if name in stopped else {}),
            **({} if odometer.since is None else dates),
        }


def _table(found: Sequence[_Facts], *, bars: bool) -> Table:
    table = bare_table()
    table.add_column("data set", overflow="fold")
    for name in ("phases", "rows", "waiting", "epsilon", "spent", "looks", "easy", "hard"):
        table.add_column(name, justify="left" if name == "spent" else "right", no_wrap=True)
    if dated := any("until" in facts for facts in found):
        table.add_column("until", no_wrap=True)
    for facts in found:
        numbers = {name: f"{value:,}" for name, value in facts.items() if isinstance(value, int)}
        bar = f"{spending_bar(facts['spent'], width=10)} " if bars else ""
        table.add_row(
            facts["dataset"],
            *(numbers[name] for name in ("phases", "rows", "waiting")),
            f"{facts['epsilon']:g}",
            f"{bar}{share(facts['spent'])}",
            *(numbers[name] for name in ("looks", "easy", "hard")),
            *([moment(facts.get("until") or "")] if dated else []),
        )
    return table
