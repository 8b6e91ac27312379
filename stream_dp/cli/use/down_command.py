"""``stream-dp down``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from stream_dp.cli.command_options import state_dir_option
from stream_dp.embedded.folders import StateFolder, stop_running
from stream_dp.errors import ServerUnavailable


@click.command()
@state_dir_option
def command(state_dir: Path) -> None:
    """Stop the servers that `up` started. Their data stays."""
    if StateFolder(state_dir).running() is None:
        if StateFolder(state_dir).in_use():
            raise ServerUnavailable(
                f"servers are starting or stopping in {state_dir}; try again in a moment"
            )
        click.echo(f"nothing runs in {state_dir}")
        return
    with Console(stderr=True).status("Stopping the worker, Kafka and Valkey"):
        stop_running(state_dir)
    (state_dir / "ready").unlink(missing_ok=True)
    click.echo(f"stopped; the data stays in {state_dir}")
