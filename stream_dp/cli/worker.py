"""``stream-dp worker``."""

from __future__ import annotations

import logging
import sys
import time

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.errors import StreamDPError

__all__ = ["command"]


@click.command()
@connected(operator=True)
@click.option(
    "--web-port",
    type=click.IntRange(1, 65535),
    envvar="STREAM_DP_WEB_PORT",
    default=6066,
    show_default=True,
    help="Port of /healthz and /metrics.",
)
@click.option(
    "--instance-id",
    envvar="STREAM_DP_INSTANCE_ID",
    help="Fixed name in the group: a restarted worker gets its partitions back at once.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warn", "error"]),
    default="warn",
    show_default=True,
)
def command(connection: Connection, web_port: int, instance_id: str | None, log_level: str) -> None:
    """Run a worker until it is stopped; more settings are STREAM_DP_* variables."""
    import faust

    from stream_dp.pipeline.app import create_app
    from stream_dp.settings import WorkerSettings

    app = create_app(
        WorkerSettings(
            bootstrap_servers=connection.bootstrap_servers,
            redis_url=connection.redis_url,
            topic_prefix=connection.topic_prefix,
            web_port=web_port,
            instance_id=instance_id,
        )
    )
    worker = faust.Worker(app, loglevel=log_level, redirect_stdouts=False)
    for name in ("aiokafka", "aiokafka.consumer.group_coordinator", "aiokafka.producer.sender"):
        logging.getLogger(name).addFilter(_Seldom())
    try:
        worker.execute_from_commandline()
    finally:
        if isinstance(app.failure, StreamDPError):
            click.echo(f"error: {app.failure}", err=True)
            sys.exit(1)


class _Seldom(logging.Filter):
    """Lets the same line through once in ten seconds: a lost broker makes thousands a second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._last.get(record.msg, -10.0) < 10.0:
            return False
        self._last[record.msg] = now
        return True
