"""``stream-dp demo``: queries about twelve months of real flights while these arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from rich.console import Console

from stream_dp.cli.demo.daily_demo import DailyDemo
from stream_dp.cli.demo.demo_deployment import DemoDeployment, summarise
from stream_dp.cli.demo.demo_view import picture
from stream_dp.cli.demo.yearly_demo import YearlyDemo
from stream_dp.samples import flights

_PLAIN_WIDTH: Final = 120


@click.command()
@click.option("--fast", is_flag=True, help="Use three months instead of twelve.")
@click.option(
    "--daily",
    is_flag=True,
    help="Stream two months, a phase a day, with tiles and an alert; then two days by the clock.",
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the last picture in this file.",
)
def command(fast: bool, daily: bool, svg: Path | None) -> None:
    """Stream a year of flight records, ask about 200 queries, kill the worker once, and check the answers.

    The command shows exact answers next to the noisy ones. It computes them itself from a public file. The
    worker never publishes an exact answer.

    With --daily, a phase opens each day, twelve tiles are answered by themselves, and an alert is raised on
    the days of a snowstorm. Two days of three minutes follow: running totals come each minute, the clock
    closes a day, and a file comes late.
    """
    if daily and (fast or svg is not None):
        raise click.UsageError("--daily goes without --fast and --svg")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    with DemoDeployment.started(console) as deployment:
        if daily:
            tiles = DailyDemo(deployment, flights(), console)
            tiles.run()
            found = deployment.reports("flights", "flights_now")
            summarise(console, tiles.summary(found[0]), found, kept=tiles.kept)
            return
        demo = YearlyDemo(deployment, flights(), console, months=3 if fast else 12)
        demo.run()
        found = deployment.reports("flights")
    if svg is not None:
        svg.write_text(picture(demo.story), encoding="utf-8")
    summarise(console, demo.summary(), found, kept=demo.kept)
