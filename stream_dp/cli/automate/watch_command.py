"""``stream-dp watch``."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.text import Text

from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.text.reply_text import answer_line, running_line
from stream_dp.display.event_words import event_line, rejection_line
from stream_dp.messages import (
    Answer,
    Event,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    Rejected,
    RunningTick,
)


@click.command()
@connected()
@click.argument("dataset", required=False)
@json_option("Print one JSON document a line.")
def command(connection: GivenServers, dataset: str | None, as_json: bool) -> None:
    """Follow the answers, running totals, events and rejections of one DATASET, or of all, until Ctrl-C."""
    console = Console(highlight=False, soft_wrap=True)
    with connection.client() as client:
        if dataset is not None:
            client.definition(dataset)
        client.open()
        click.echo("watching; press Ctrl-C to end", err=True)
        try:
            for reply in client.follow(dataset):
                if as_json:
                    click.echo(reply.to_bytes().decode())
                else:
                    console.print(_line(reply))
        except KeyboardInterrupt:
            return


def _line(reply: Answer | Event | Rejected | RunningTick) -> Text:
    match reply:
        case Event():
            colour, words = "cyan" if reply.reason is None else "red", event_line(reply)
        case Rejected():
            colour, words = "red", rejection_line(reply)
        case RunningTick():
            colour, words = "cyan", running_line(reply)
        case _:
            words = f"{reply.analyst}/{reply.query_id[:12]}  {answer_line(reply)}"
            colour = _colour(reply)
    now, dataset = time.strftime("%H:%M:%S"), reply.dataset or "-"
    return Text.assemble((now, "dim"), "  ", (dataset, "bold"), "  ", (words, colour))


def _colour(answer: Answer) -> str:
    if isinstance(answer, NoisyAnswer | QuotedAnswer):
        return "green" if answer.difficulty == "easy" else "yellow"
    if isinstance(answer, QuotedBundle):
        return "yellow" if answer.together.high else "green"
    return "red"
