"""Where the servers are: from options, the environment, or the state folder that `up` wrote."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from stream_dp.embedded.folders import Running, running, state_folder
from stream_dp.errors import RolledBack, ServerUnavailable

if TYPE_CHECKING:
    from stream_dp.broker import Broker
    from stream_dp.client import Client
    from stream_dp.messages import Topics
    from stream_dp.state.redis import RedisStore

__all__ = [
    "DEFAULT_PREFIX",
    "Connection",
    "after_rollback",
    "connected",
    "last_words",
    "rollback_of_worker",
    "state_dir_option",
    "store",
    "topic_prefix_option",
    "up_log",
    "without_password",
]


DEFAULT_PREFIX = "stream-dp."


def _state_dir(_: click.Context, __: click.Parameter, value: Path | None) -> Path:
    return value or state_folder(os.environ)


state_dir_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="STREAM_DP_STATE_DIR",
    callback=_state_dir,
    help="Folder of the servers that `up` started.  [default: ~/.local/state/stream-dp]",
)


topic_prefix_option = click.option(
    "--topic-prefix",
    envvar="STREAM_DP_TOPIC_PREFIX",
    help=f"Common start of all topic names.  [default: that of what `up` started, else {DEFAULT_PREFIX}]",
)


@dataclass(frozen=True)
class Connection:
    """What a command was told about the servers; asks for no more than it uses."""

    given_bootstrap_servers: str | None
    given_redis_url: str | None
    given_topic_prefix: str | None
    state_dir: Path

    @property
    def topic_prefix(self) -> str:
        """The one given, else that of what ``up`` started, where its servers are used."""
        if self.given_topic_prefix:
            return self.given_topic_prefix
        found = None if self.given_bootstrap_servers else running(self.state_dir)
        return DEFAULT_PREFIX if found is None else found.topic_prefix

    @property
    def topics(self) -> Topics:
        from stream_dp.messages import Topics

        return Topics(self.topic_prefix)

    @property
    def bootstrap_servers(self) -> str:
        return (
            self.given_bootstrap_servers or self._embedded("--bootstrap-servers").bootstrap_servers
        )

    @property
    def broker(self) -> Broker:
        """The brokers, and what they ask for as the settings in the environment say.

        The one that ``up`` started asks for nothing, whatever is set for another.
        """
        from stream_dp.broker import Broker
        from stream_dp.settings import worker_settings

        if not self.given_bootstrap_servers:
            return Broker(self.bootstrap_servers)
        return worker_settings(bootstrap_servers=self.bootstrap_servers).broker

    @property
    def redis_url(self) -> str:
        return self.given_redis_url or self._embedded("--redis-url").redis_url

    def client(self, analyst: str | None = None) -> Client:
        # Only here: the broker's client takes a third of a second to load.
        from stream_dp.client import Client

        return Client(
            self.broker,
            analyst=analyst,
            topic_prefix=self.topic_prefix,
            on_delay=lambda words: click.echo(f"still waiting: {words}", err=True),
        )

    def _embedded(self, option: str) -> Running:
        found = running(self.state_dir)
        if found is None:
            said = last_words(self.state_dir)
            why = after_rollback(said, self.state_dir)
            if why is None:
                said = said.partition("; ")[0]
                why = f"{said}; start them with `stream-dp up`, or pass {option}"
            raise ServerUnavailable(f"no servers run in {self.state_dir}{': ' * bool(said)}{why}")
        return found


def connected(*, operator: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options that say where the servers are; the command gets a ``connection``.

    Args:
        operator: The command needs Redis as well, which holds raw data.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--bootstrap-servers",
            envvar="STREAM_DP_BOOTSTRAP_SERVERS",
            help="Kafka brokers.  [default: those that `up` started]",
        )
        @topic_prefix_option
        @state_dir_option
        @functools.wraps(function)
        def wrapper(
            bootstrap_servers: str | None,
            topic_prefix: str | None,
            state_dir: Path,
            redis_url: str | None = None,
            **rest: Any,
        ) -> Any:
            connection = Connection(bootstrap_servers, redis_url, topic_prefix, state_dir)
            return function(connection=connection, **rest)

        if operator:
            return click.option(
                "--redis-url",
                envvar="STREAM_DP_REDIS_URL",
                help="Where the state lives.  [default: what `up` started]",
            )(wrapper)
        return wrapper

    return decorate


def up_log(state_dir: Path) -> Path:
    """Where the process that `up` leaves behind writes."""
    return state_dir / "logs" / "up.log"


def last_words(state_dir: Path) -> str:
    """Why that process ended; empty when it was told to, or says nothing."""
    return _last_error(up_log(state_dir))


def _last_error(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").rstrip().splitlines()
    except OSError:
        return ""
    said = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[said[-1] :]).removeprefix("error: ") if said else ""


def rollback_of_worker(state_dir: Path) -> str | None:
    """What keeps ending the worker that ``up`` started, and the fix, where it is a Redis that went back."""
    said = _last_error(state_dir / "logs" / "worker.log")
    return None if "the worker answers" in said else after_rollback(said, state_dir)


def after_rollback(said: str, state_dir: Path) -> str | None:
    """Fault and fix where a Redis that went back is what ended the servers; None where it is not."""
    if RolledBack.words not in said:
        return None
    fault = said[said.index(RolledBack.words) :].partition(". ")[0]
    return (
        f"{fault}; run `stream-dp down`, put the newest copy of its data back as {state_dir / 'valkey'}, and "
        "run `stream-dp up`. Without a newer copy start afresh under another prefix, "
        "`STREAM_DP_TOPIC_PREFIX=again. stream-dp up`, and count both budgets for rows that you send again"
    )


def without_password(url: str) -> str:
    """An address that may be shown."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or parts.path
    return f"{parts.scheme}://{place}"


def store(connection: Connection) -> RedisStore:
    """The store of the workers, as the settings in the environment describe it."""
    from stream_dp.pipeline.connecting import store_of
    from stream_dp.settings import worker_settings

    return store_of(
        worker_settings(redis_url=connection.redis_url, topic_prefix=connection.topic_prefix)
    )
