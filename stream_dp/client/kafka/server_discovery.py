"""Finds the servers for a client that was given no address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable

DEFAULT_PREFIX: Final = "stream-dp."


def find(bootstrap_servers: str | Broker | None, topic_prefix: str | None) -> tuple[Broker, str]:
    """Returns the brokers and the prefix of the topics.

    A given address is used alone. Otherwise it is ``STREAM_DP_BOOTSTRAP_SERVERS`` with the credentials from
    the environment, or else the broker that ``stream-dp up`` started, in ``STREAM_DP_STATE_DIR`` or the usual
    folder. In both cases ``STREAM_DP_TOPIC_PREFIX`` applies if no prefix is given.

    Raises:
        ServerUnavailable: No address is given, and no servers run on this machine.
    """
    if bootstrap_servers:
        return Broker.of(bootstrap_servers), topic_prefix or DEFAULT_PREFIX
    prefix = topic_prefix or os.environ.get("STREAM_DP_TOPIC_PREFIX")
    if servers := os.environ.get("STREAM_DP_BOOTSTRAP_SERVERS"):
        from stream_dp.settings import worker_settings

        return worker_settings(bootstrap_servers=servers).broker, prefix or DEFAULT_PREFIX
    from stream_dp.embedded.folders import StateFolder, state_folder

    given = os.environ.get("STREAM_DP_STATE_DIR")
    folder = Path(given) if given else state_folder(os.environ)
    found = StateFolder(folder).running()
    if found is None:
        raise ServerUnavailable(
            f"no servers run in {folder}; start them with `stream-dp up`, or pass the address of a broker as "
            "an argument or in STREAM_DP_BOOTSTRAP_SERVERS"
        )
    return Broker(found.bootstrap_servers), prefix or found.topic_prefix


def token_of_environment() -> str | None:
    """Returns the token in ``STREAM_DP_TOKEN``. None if there is none."""
    return os.environ.get("STREAM_DP_TOKEN") or None
