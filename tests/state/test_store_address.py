"""Addresses of servers behind Sentinels: what they mean, and that a refusal repeats nothing of them."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import InvalidInput
from stream_dp.settings import worker_settings
from stream_dp.state.redis_view import RedisView
from stream_dp.store_address import SentinelAddress

SECRET = "hunter2"


@pytest.mark.parametrize("url", ["redis://a:1/0", "rediss://a", "unix:///run/redis", "a:6379", ""])
def test_other_addresses_are_those_of_one_server(url: str) -> None:
    assert SentinelAddress.read(url) is None


def test_an_address_names_sentinels_a_primary_and_options() -> None:
    found = SentinelAddress.read("redis+sentinel://a:1,b,[::1]:3,[::2]/my%20store?db=2&protocol=2")
    assert found is not None
    assert found.sentinels == (("a", 1), ("b", 26379), ("::1", 3), ("::2", 26379))
    assert found.name == "my store"
    assert found.server == "redis://@primary?db=2&protocol=2"
    assert (found.username, found.password) == (None, None)
    assert str(found) == "redis+sentinel://a:1,b:26379,[::1]:3,[::2]:26379/my store"


def test_servers_and_sentinels_have_passwords_of_their_own_and_show_none() -> None:
    url = f"rediss+sentinel://ana:{SECRET}%401@a/store?sentinel_username=s&sentinel_password={SECRET}2"
    found = SentinelAddress.read(url)
    assert found is not None
    assert found.server == f"rediss://ana:{SECRET}%401@primary?"
    assert (found.username, found.password) == ("s", f"{SECRET}2")
    assert SECRET not in str(found) + repr(found)


async def test_a_view_connects_with_what_the_address_says() -> None:
    url = f"rediss+sentinel://ana:{SECRET}@a:1,b:2/store?db=3&ssl_ca_certs=/ca.pem&sentinel_password=s"
    view = RedisView(url, prefix="stream-dp", journal="j1")
    client: Any = view._client
    pool = client.connection_pool
    server = pool.connection_kwargs
    assert (server["username"], server["password"], server["db"]) == ("ana", SECRET, 3)
    assert "host" not in server
    for sentinel in pool.sentinel_manager.sentinels:
        options = sentinel.connection_pool.connection_kwargs
        assert (options["username"], options["password"]) == (None, "s")
        assert options["ssl_ca_certs"] == server["ssl_ca_certs"] == "/ca.pem"
    assert "SSL" in pool.connection_class.__name__
    await view.close()


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("a:1", "needs the one name"),
        ("a:1/", "needs the one name"),
        ("a:1/store/0", "needs the one name"),
        ("/store", "not host:port"),
        ("a:1,/store", "not host:port"),
        ("a:b/store", "not host:port"),
        ("a:0/store", "not host:port"),
        ("a:65536/store", "not host:port"),
        ("a/store?db=first", "its db is not a number"),
    ],
)
def test_a_fault_is_said_without_the_address(
    rest: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_REDIS_URL", f"redis+sentinel://:{SECRET}@{rest}")
    with pytest.raises(InvalidInput, match=r"^STREAM_DP_REDIS_URL: .*" + problem) as refused:
        worker_settings()
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_cluster_has_no_sentinels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_REDIS_URL", "redis+sentinel://a/store")
    assert worker_settings().redis_url == "redis+sentinel://a/store"
    monkeypatch.setenv("STREAM_DP_REDIS_CLUSTER", "true")
    with pytest.raises(InvalidInput, match=r"^STREAM_DP_REDIS_CLUSTER: "):
        worker_settings()
