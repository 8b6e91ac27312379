"""Options that several commands have, and the servers: given, or those that `up` has started."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import click

from stream_dp.embedded.folders import Running, StateFolder, state_folder
from stream_dp.errors import ServerUnavailable
from stream_dp.store_address import SentinelAddress

if TYPE_CHECKING:
    from stream_dp.broker import Broker
    from stream_dp.client import Client
    from stream_dp.messages import Topics
    from stream_dp.settings import WorkerSettings

DEFAULT_PREFIX = "stream-dp."
PERSON_KEY = "STREAM_DP_PERSON_KEY_FILE"

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
"""A file that is there."""
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
"""A folder, which need not be there yet."""

yes_option = click.option("--yes", is_flag=True, help="Go on without asking.")
analyst_option = click.option(
    "--analyst",
    help="The name of the analyst.  [default: the one in STREAM_DP_TOKEN, or your login name]",
)


def json_option(prints: str) -> Decorator:
    """Adds ``--json``, which the command receives as ``as_json``.

    Args:
        prints: The help of the option.
    """
    return click.option("--json", "as_json", is_flag=True, help=prints)


state_dir_option = click.option(
    "--state-dir",
    type=FOLDER,
    envvar="STREAM_DP_STATE_DIR",
    callback=lambda _, __, given: given or state_folder(os.environ),
    help="The folder of the servers that `up` started.  [default: ~/.local/state/stream-dp]",
)
topic_prefix_option = click.option(
    "--topic-prefix",
    envvar="STREAM_DP_TOPIC_PREFIX",
    help=f"The prefix of all topic names.  [default: the one that `up` used, or else {DEFAULT_PREFIX}]",
)
_bootstrap_option = click.option(
    "--bootstrap-servers",
    envvar="STREAM_DP_BOOTSTRAP_SERVERS",
    help="The addresses of the Kafka brokers.  [default: the broker that `up` started]",
)
_redis_option = click.option(
    "--redis-url",
    envvar="STREAM_DP_REDIS_URL",
    help="The address of Redis.  [default: the one that `up` started]",
)


@dataclass(frozen=True)
class GivenServers:
    """The servers that a command was given. It looks up a server only when the command uses it.

    Attributes:
        given_bootstrap_servers: The brokers from the option or the environment, if any.
        given_redis_url: The address of Redis from the option or the environment, if any.
        given_topic_prefix: The topic prefix from the option or the environment, if any.
        state_dir: The folder of the servers that ``up`` started.
    """

    given_bootstrap_servers: str | None
    given_redis_url: str | None
    given_topic_prefix: str | None
    state_dir: Path

    @property
    def topic_prefix(self) -> str:
        """The given prefix, or else the prefix of the servers that ``up`` started if these are used."""
        if self.given_topic_prefix:
            return self.given_topic_prefix
        found = None if self.given_bootstrap_servers else StateFolder(self.state_dir).running()
        return DEFAULT_PREFIX if found is None else found.topic_prefix

    @property
    def topics(self) -> Topics:
        from stream_dp.messages import Topics

        return Topics(self.topic_prefix)

    @property
    def bootstrap_servers(self) -> str:
        given = self.given_bootstrap_servers
        return given or self._embedded("--bootstrap-servers").bootstrap_servers

    @property
    def broker(self) -> Broker:
        """The addresses of the brokers, with the credentials from the environment.

        The broker that ``up`` started requires no credentials, so it is given none.
        """
        from stream_dp.broker import Broker
        from stream_dp.settings import worker_settings

        if not self.given_bootstrap_servers:
            return Broker(self.bootstrap_servers)
        return worker_settings(bootstrap_servers=self.bootstrap_servers).broker

    @property
    def redis_url(self) -> str:
        return self.given_redis_url or self._embedded("--redis-url").redis_url

    def operator_settings(self, **given: Any) -> WorkerSettings:
        """The settings of the workers, as an operator has them in the environment.

        The worker that ``up`` started has a key file of persons in the state folder.
        """
        from stream_dp.settings import worker_settings

        key_file = StateFolder(self.state_dir).person_key
        if not self.given_bootstrap_servers and key_file.exists():
            given = {"person_key_file": str(key_file), **given}
        return worker_settings(topic_prefix=self.topic_prefix, **given)

    def client(self, analyst: str | None = None) -> Client:
        # The import is here because the broker's client takes a third of a second to load.
        from stream_dp.client import Client
        from stream_dp.client.kafka.server_discovery import token_of_environment

        return Client(
            self.broker,
            analyst=analyst,
            token=token_of_environment(),
            topic_prefix=self.topic_prefix,
            on_delay=lambda words: click.echo(f"still waiting: {words}", err=True),
        )

    def _embedded(self, option: str) -> Running:
        if (found := StateFolder(self.state_dir).running()) is not None:
            return found
        said = last_words(self.state_dir).partition("; ")[0]
        raise ServerUnavailable(
            f"no servers run in {self.state_dir}{': ' * bool(said)}{said}; start them with "
            f"`stream-dp up`, or pass {option}"
        )


def connected(*arguments: str, operator: bool = False) -> Decorator:
    """Adds the options that locate the servers. The command receives a ``connection``.

    Args:
        arguments: The names of its first arguments, which it needs.
        operator: Whether the command also needs Redis, which has rows too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(arguments):
            function = click.argument(name)(function)

        @_bootstrap_option
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
            connection = GivenServers(bootstrap_servers, redis_url, topic_prefix, state_dir)
            return function(connection=connection, **rest)

        return _redis_option(wrapper) if operator else wrapper

    return decorate


def up_log(state_dir: Path) -> Path:
    """Returns the log file of the process that `up` leaves running."""
    return state_dir / "logs" / "up.log"


def last_words(state_dir: Path) -> str:
    """Returns why that process ended. Empty if it was told to stop or gave no reason."""
    try:
        lines = up_log(state_dir).read_text(errors="replace").rstrip().splitlines()
    except OSError:
        return ""
    said = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[said[-1] :]).removeprefix("error: ") if said else ""


def without_password(url: str) -> str:
    """Removes the password from an address so that it may be shown."""
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2] or parts.path
    return f"{parts.scheme}://{address}"


def unreachable(url: str, *, cluster: bool) -> tuple[str, str]:
    """What to say where Redis does not answer: what is wrong, and what to do.

    Args:
        url: The address of Redis.
        cluster: Whether it is a Redis Cluster.
    """
    if (sentinels := SentinelAddress.read(url)) is not None:
        (host, port), *_ = sentinels.sentinels
        return (
            f"the Sentinels of {sentinels} do not answer, or name no primary that does",
            f"see what they know: redis-cli -h {host} -p {port} SENTINEL masters",
        )
    shown = without_password(url)
    if cluster:
        return (
            f"the Redis Cluster of {shown} does not answer, or a part of it does not",
            f"see which: redis-cli --cluster check {shown.partition('://')[2]}",
        )
    return f"Redis does not answer at {shown}", "start it, or pass another --redis-url"
