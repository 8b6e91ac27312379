"""Gateways of one process, and connections to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.client.world_client import WorldSession
from tests.gateway.in_process_gateway import InProcessGateway
from tests.web.in_process import InProcess


@pytest.fixture(scope="module")
def world() -> Iterator[InProcess]:
    """A worker that serves the data set ``flights``."""
    session = WorldSession()
    yield InProcess(session).fill()
    session.end()


@pytest.fixture(scope="module")
def gateway(world: InProcess) -> Iterator[InProcessGateway]:
    """A gateway that lets in everybody on this machine."""
    with InProcessGateway(world) as running:
        yield running


@pytest.fixture
def connection(gateway: InProcessGateway) -> Iterator[psycopg.Connection[Any]]:
    """A connection of psycopg 3, as ann."""
    with psycopg.connect(gateway.url(), autocommit=True) as opened:
        yield opened
