"""``stream-dp worker``."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_dp.cli.command_options import (
    FILE,
    GivenServers,
    connected,
    unreachable,
    without_password,
)
from stream_dp.client.kafka.deployment_topics import check_reachable
from stream_dp.errors import InvalidInput, ServerUnavailable, StoreUnavailable, StreamDPError
from stream_dp.messages import Definition, read_json

if TYPE_CHECKING:
    from stream_dp.cli.operate.worker_log import Log
    from stream_dp.pipeline.app import StreamApp
    from stream_dp.pipeline.intake.source_file import TopicSource
    from stream_dp.settings import WorkerSettings
    from stream_dp.web.access import Access

_MAX_SOURCE = 1 << 20


@click.command()
@connected(operator=True)
@click.option(
    "--web-port",
    type=click.IntRange(1, 65535),
    envvar="STREAM_DP_WEB_PORT",
    default=6066,
    help="The port of the dashboard, /healthz and /metrics.",
)
@click.option(
    "--instance-id",
    envvar="STREAM_DP_INSTANCE_ID",
    help="A fixed name in the consumer group, so that a restarted worker gets its partitions back at once.",
)
@click.option(
    "--source",
    "sources",
    type=FILE,
    multiple=True,
    help="Read rows from your own topic, as this file says. May be repeated.",
)
@click.option(
    "--role",
    type=click.Choice(["owner", "counter"]),
    default="owner",
    help="owner: take in batches, answer queries and read the sources. counter: read the sources only.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warn", "error"]),
    default="warn",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="STREAM_DP_LOG_FORMAT",
    default="text",
    help="json: one object a line.",
)
def command(
    connection: GivenServers, sources: tuple[Path, ...], role: str, log_level: str, **given: Any
) -> None:
    """Run a worker until it is stopped. docs/configuration.md has more settings."""
    # Threads make small linear systems on busy cores many times slower. numpy reads this at its import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from stream_dp.cli.operate.worker_log import Log
    from stream_dp.pipeline.intake.sources import run_sources

    log = Log(log_level, as_json=given["log_format"] == "json")
    with log.complaining():
        settings = _settings(connection, given, serves=role == "owner")
        log.audit(on=settings.audit_log)
        log.take_uncaught()
        if sys.platform != "win32":
            from stream_dp.cli.operate.event_loop import LoopPolicy

            asyncio.set_event_loop_policy(LoopPolicy())
        read = [source_of(path) for path in sources]
        if role == "counter" and not read:
            raise InvalidInput("--role", "a counter needs a source", "pass --source FILE")
        _say_begins(log, settings, "a worker" if role == "owner" else "a counter", read)
        reading = partial(run_sources, settings, read, partial(_definition_of, connection))
        if role == "counter":
            asyncio.run(reading())
        else:
            app, access = _app(settings)
            if read:
                app.side_tasks.append(reading)
            _serve(log, settings, app, access)


def _settings(connection: GivenServers, given: dict[str, Any], *, serves: bool) -> WorkerSettings:
    """Reads the settings, and checks that the worker can keep to them.

    Args:
        connection: The servers.
        given: Settings that are options.
        serves: Whether the worker serves pages.
    """
    settings = connection.operator_settings(
        bootstrap_servers=connection.bootstrap_servers, redis_url=connection.redis_url, **given
    )
    if "://" not in settings.redis_url:
        fix = "write redis://HOST:PORT/0, rediss:// or unix://"
        raise InvalidInput("--redis-url", "it is not a URL", fix)
    if serves:
        metrics, other = settings.metrics_port, "STREAM_DP_METRICS_PORT"
        _check_port(settings.web_bind, settings.web_port, "pass a free --web-port")
        if metrics == settings.web_port:
            raise InvalidInput(other, "it is the port of the pages", "choose another port")
        if metrics is not None:
            _check_port(settings.web_bind, metrics, f"set another {other}")
    check_reachable(settings.broker)
    return settings


def _check_port(host: str, port: int, fix: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServerUnavailable(
                f"the worker's pages cannot be served on port {port} of {host} ({error.strerror}): another "
                f"program listens there, perhaps another worker; {fix}"
            ) from None


def source_of(path: Path) -> TopicSource:
    """Reads a source file.

    Raises:
        InvalidInput: The file is not valid. The error names the file, the field and the fix.
    """
    from stream_dp.pipeline.intake.source_file import TopicSource

    try:
        return TopicSource.read(read_json(path.read_bytes(), max_bytes=_MAX_SOURCE))
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.field}", error.problem, error.fix) from None


def _definition_of(connection: GivenServers, dataset: str) -> Definition | None:
    with connection.client() as client:
        return client.catalog().get(dataset)


def _say_begins(
    log: Log, settings: WorkerSettings, what: str, sources: Sequence[TopicSource]
) -> None:
    log.say(
        f"starting {what}: topics {settings.topic_prefix}* at {settings.bootstrap_servers}, Redis at "
        f"{without_password(settings.redis_url)}"
    )
    for source in sources:
        log.say(f"reading {source.topic} for {source.dataset}")


def _app(settings: WorkerSettings) -> tuple[StreamApp, Access]:
    """Makes a worker with its pages."""
    from stream_dp.messages import Topics
    from stream_dp.pipeline.app import create_app
    from stream_dp.web.access import Access
    from stream_dp.web.page_server import Runner, serve_metrics
    from stream_dp.web.pages import Pages

    app, tokens = create_app(settings), (settings.web_operator_token, settings.web_analyst_token)
    operator, analyst = (token.get_secret_value() if token else None for token in tokens)
    access = Access(
        settings.web_bind,
        settings.web_port,
        operator_token=operator,
        analyst_token=analyst,
        verifier=app.runtime.verifier,
        token_header=settings.web_token_header,
    )
    if (port := settings.metrics_port) is not None:
        figures = app.runtime.context.metrics.exposition
        app.side_tasks.append(partial(serve_metrics, access, settings.web_bind, port, figures))
    names = Topics(settings.topic_prefix)
    pages = Pages(access, broker=settings.broker, topics=names, health=app.health)
    pages.install(app.web.web_app)
    app.web._runner = Runner(app.web.web_app)  # noqa: SLF001 - Faust has no setting for it
    return app, access


def _serve(log: Log, settings: WorkerSettings, app: StreamApp, access: Access) -> None:
    """Runs a worker until it is stopped, and says why it failed."""
    import faust

    def say_failure() -> None:
        if isinstance(app.failure, StoreUnavailable):
            said = unreachable(settings.redis_url, cluster=settings.redis_cluster)
            log.complain("; ".join(said))
        elif isinstance(app.failure, StreamDPError):
            log.complain(str(app.failure))

    app.say_failure = say_failure
    worker = faust.Worker(app, override_logging=False, redirect_stdouts=False, quiet=True)
    worker.spinner = None
    threading.Thread(target=_say_when_ready, args=(log, app, settings, access), daemon=True).start()
    try:
        worker.execute_from_commandline()
    finally:
        say_failure()
        if isinstance(app.failure, StreamDPError):
            sys.exit(1)


def _say_when_ready(log: Log, app: StreamApp, settings: WorkerSettings, access: Access) -> None:
    while not app.runtime.ready:
        time.sleep(0.1)
    host = f"[{settings.web_bind}]" if ":" in settings.web_bind else settings.web_bind
    if host in ("0.0.0.0", "[::]"):  # noqa: S104 - not bound here
        host = "localhost"
    page = f"http://{host}:{settings.web_port}/"
    log.say(f"the worker answers; its page is {page}, next to /healthz and /metrics")
    on_terminal = sys.stderr.isatty() and settings.log_format == "text"
    for role, token in access.tokens.items():
        # No token must enter a log: neither one that the operator chose nor one that was made up.
        if role not in access.made:
            log.say(f"{role}s enter by {page} with the token you set")
        elif on_terminal:
            click.echo(f"{role}s enter by {page}#token={token}", err=True)
        else:
            log.say(f"{role}s enter by {page} once you set STREAM_DP_WEB_{role.upper()}_TOKEN")
