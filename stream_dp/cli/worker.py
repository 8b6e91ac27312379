"""``stream-dp worker``."""

from __future__ import annotations

import logging
import sys

import click

from stream_dp.cli.connection import Connection, connected

__all__ = ["command"]


@click.command()
@connected
@click.option("--web-port", type=click.IntRange(1, 65535), envvar="STREAM_DP_WEB_PORT", default=6066, show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warn", "error"]), default="warn", show_default=True)
def command(connection: Connection, web_port: int, log_level: str) -> None:
    """Run a worker. Give --redis-url or STREAM_DP_REDIS_URL; other settings are STREAM_DP_* variables."""
    import faust

    from stream_dp.pipeline.app import create_app
    from stream_dp.settings import WorkerSettings

    settings = WorkerSettings(
        bootstrap_servers=connection.bootstrap_servers,
        redis_url=connection.redis_url,
        topic_prefix=connection.topic_prefix,
        web_port=web_port,
    )
    logging.getLogger("aiokafka").addFilter(_Seldom())
    app = create_app(settings)
    worker = faust.Worker(app, loglevel=log_level, redirect_stdouts=False)
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        if app.failure is not None:
            click.echo(f"error: {app.failure}", err=True)
            sys.exit(1)
        raise end from None
