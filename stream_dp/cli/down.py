"""``stream-dp down``."""

from __future__ import annotations

from pathlib import Path

import click

from stream_dp.cli.connection import state_dir_option
from stream_dp.embedded.folders import stop_running

__all__ = ["command"]


@click.command()
@state_dir_option
def command(state_dir: Path) -> None:
    """Stop what `up` started; its data stays."""
    if stop_running(state_dir) is None:
        click.echo("nothing runs here")
    else:
        click.echo(f"stopped; the data stays in {state_dir}")
