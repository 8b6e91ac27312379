"""``stream-dp status``."""

from __future__ import annotations

import json

import click

from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.reply_text import (
    NONE_YET,
    bare_table,
    busy,
    moment,
    output,
    share,
    spending_bar,
)
from stream_dp.client.budget.odometer import Odometer

_ROOMY = 90
"""The columns that a terminal needs for bars next to names of some length."""


@click.command()
@connected()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each data set.")
def command(connection: GivenServers, as_json: bool) -> None:  # noqa: FBT001 - click
    """Show the phases, rows and budget of every data set, from the published records."""
    with busy("Reading the published records"), connection.client() as client:
        catalog = client.catalog()
        ledgers = client.ledgers()
        waiting = client.waiting()
        easy, hard = client.difficulties()
        stopped = client.stopped()
        problem = client.worker_problem()
    odometers = {name: Odometer.read(ledgers.get(name, [])) for name in sorted(catalog)}
    if as_json:
        for name, odometer in odometers.items():
            facts = {
                "dataset": name,
                "phases": len(odometer.blocks),
                "rows": odometer.rows,
                "waiting": waiting.get(name, 0),
                "epsilon": catalog[name].privacy.epsilon,
                "spent": odometer.most_spent,
                "looks": odometer.looks,
                "easy": easy[name],
                "hard": hard[name],
                "worker": problem is None,
            }
            if name in stopped:
                facts["stopped"] = stopped[name]
            if odometer.since is not None:
                facts.update(since=odometer.since, until=odometer.until)
            click.echo(json.dumps(facts))
        return
    if problem is not None:
        click.echo(problem, err=True)
    for name, why in sorted(stopped.items()):
        click.echo(f"{name} is stopped: {why}", err=True)
    if not catalog:
        click.echo(NONE_YET)
        return
    console = output()
    roomy = console.width >= _ROOMY
    table = bare_table()
    table.add_column("data set", overflow="fold")
    for name in ("phases", "rows", "waiting", "epsilon"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("spent", no_wrap=True)
    for name in ("looks", "easy", "hard"):
        table.add_column(name, justify="right", no_wrap=True)
    dated = any(odometer.until is not None for odometer in odometers.values())
    if dated:
        table.add_column("until", no_wrap=True)
    for name, odometer in odometers.items():
        bar = f"{spending_bar(odometer.most_spent, width=10)} " if roomy else ""
        table.add_row(
            name,
            str(len(odometer.blocks)),
            f"{odometer.rows:,}",
            f"{waiting.get(name, 0):,}",
            f"{catalog[name].privacy.epsilon:g}",
            f"{bar}{share(odometer.most_spent)}",
            f"{odometer.looks:,}",
            f"{easy[name]:,}",
            f"{hard[name]:,}",
            *([moment(odometer.until or "")] if dated else []),
        )
    console.print(table)
    click.echo(
        "spent: the largest part that any phase has spent of its budget; easy and hard: recent answers"
    )
