"""Gateways of one process, and connections to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from stream_dp.client import Client
from tests.client.world_client import WorldSession
from tests.conftest import Deployment
from tests.gateway.in_process_gateway import InProcessGateway
from tests.gateway.served_orders import ASKED, Rows, expected, fill
from tests.web.in_process import InProcess
from tests.workers import GatewayProcess


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


@pytest.fixture(scope="module")
def analyst(served_deployment: Deployment) -> Iterator[Client]:
    """Ann, on real servers that have the data set ``orders``."""
    with served_deployment.client("ann") as client:
        fill(client)
        yield client


@pytest.fixture(scope="module")
def wanted(analyst: Client) -> dict[str, Rows]:
    """What each of ``ASKED`` gives."""
    return {name: expected(analyst, asked) for name, asked in ASKED.items()}


@pytest.fixture(scope="module")
def served_gateway(analyst: Client, served_deployment: Deployment) -> GatewayProcess:
    """The command ``stream-dp gateway`` on real servers."""
    return served_deployment.gateway().wait_ready()
