"""``stream-dp standing list`` and ``stream-dp standing end``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.terminal import show
from stream_dp.cli.text.reply_text import bare_table, busy
from stream_dp.display.figure_text import share
from stream_dp.messages import StandingQuery
from stream_dp.web.page_data.query_words import words_of_standing


@click.group()
def command() -> None:
    """List and end the queries that are answered again in each phase."""


@command.command("list")
@connected()
@click.argument("dataset", required=False)
@json_option("Print one JSON message a line.")
def list_(connection: GivenServers, dataset: str | None, as_json: bool) -> None:
    """List the standing queries of DATASET, or of all data sets, with their costs."""
    with busy("Reading standing queries"), connection.client() as client:
        found = client.standing(dataset)
    if as_json:
        for one in found:
            click.echo(one.to_bytes().decode())
        return
    if not found:
        click.echo(
            "no query stands; begin one with: stream-dp ask DATASET QUERY --standing --id ID"
        )
        return
    table = bare_table("data set", "id", "analyst", "since", "newest", "next costs", "query")
    for one in found:
        newest = "none yet" if one.phase is None else f"phase {one.phase}"
        costs = "not known" if one.next_loss is None else share(one.next_loss.share)
        whose = (one.dataset, one.query_id, one.analyst)
        table.add_row(*whose, _since(one), newest, costs, words_of_standing(one))
    show(table)


@command.command("end")
@connected("dataset")
@click.argument("query_id", metavar="ID")
@click.option(
    "--analyst",
    help="The name of the analyst who began it.  [default: the one in STREAM_DP_TOKEN, or your login "
    "name]",
)
def end(connection: GivenServers, dataset: str, query_id: str, analyst: str | None) -> None:
    """End the standing query ID of DATASET.

    Its answers stay.
    """
    with busy("Ending it"), connection.client(analyst) as client:
        client.end_standing(dataset, query_id)
    click.echo(f"{query_id} does not stand any more")


def _since(one: StandingQuery) -> str:
    phase = f"phase {one.since_phase}" if one.since_phase else "the beginning"
    if one.since_ms is None:
        return phase
    return f"{phase}, {datetime.fromtimestamp(one.since_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
