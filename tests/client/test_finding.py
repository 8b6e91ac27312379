"""A client that is told no address finds the servers of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stream_dp.broker import Broker
from stream_dp.client import AsyncClient, Client
from stream_dp.client.kafka.server_discovery import find
from stream_dp.embedded import ports
from stream_dp.embedded.folders import Running, StateFolder
from stream_dp.errors import InvalidInput, ServerUnavailable


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOTSTRAP_SERVERS", "TOPIC_PREFIX", "STATE_DIR", "KAFKA_SECURITY_PROTOCOL"):
        monkeypatch.delenv(f"STREAM_DP_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def announce() -> Iterator[Callable[..., str]]:
    """``announce(folder, prefix)``: what ``up`` writes down there; the address, at which nobody listens."""
    folders = []

    def write(path: Path, topic_prefix: str) -> str:
        folder = StateFolder(path)
        folder.prepare()
        folder.lock(timeout_s=1)
        folders.append(folder)
        address = f"127.0.0.1:{ports.choose('nobody', None)}"
        folder.announce(Running(1, address, "redis://x", topic_prefix=topic_prefix))
        return address

    yield write
    for folder in folders:
        folder.release()


def test_an_address_goes_before_the_environment_and_that_before_what_up_started(
    announce: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = announce(tmp_path / "stream-dp", "again.")
    assert find(None, None) == (Broker(usual), "again.")
    assert find(None, "mine.") == (Broker(usual), "mine.")
    monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "theirs.")
    assert find(None, None) == (Broker(usual), "theirs.")
    monkeypatch.delenv("STREAM_DP_TOPIC_PREFIX")
    other = announce(tmp_path / "other", "stream-dp.")
    monkeypatch.setenv("STREAM_DP_STATE_DIR", str(tmp_path / "other"))
    assert find(None, None) == (Broker(other), "stream-dp.")
    monkeypatch.setenv("STREAM_DP_BOOTSTRAP_SERVERS", "kafka:9093")
    monkeypatch.setenv("STREAM_DP_KAFKA_SECURITY_PROTOCOL", "SSL")
    assert find(None, None) == (Broker("kafka:9093", security_protocol="SSL"), "stream-dp.")
    monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "theirs.")
    assert find(None, None)[1] == "theirs."
    assert find("other:9092", None) == (Broker("other:9092"), "stream-dp.")
    given = Broker("other:9092", security_protocol="SSL")
    assert find(given, "mine.") == (given, "mine.")


async def test_clients_without_an_address_go_there_or_say_what_to_do(
    announce: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = rf"^no servers run in {tmp_path / 'stream-dp'}; start them with `stream-dp up`, or pass the "
    with pytest.raises(ServerUnavailable, match=words):
        Client()
    with pytest.raises(ServerUnavailable, match=words):
        async with AsyncClient():
            pass
    monkeypatch.setenv("STREAM_DP_TOKEN", "not a token")
    with pytest.raises(InvalidInput, match="it is not a JSON Web Token"):
        Client()
    monkeypatch.setenv("STREAM_DP_TOKEN", "")
    address = announce(tmp_path / "stream-dp", "again.")
    with pytest.raises(ServerUnavailable, match=f"no Kafka broker answers at {address}"):
        Client()
