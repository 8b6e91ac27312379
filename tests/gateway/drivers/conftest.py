"""The command ``stream-dp gateway`` on real servers that have the data set ``orders``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_dp.client import Client
from tests.conftest import Deployment
from tests.gateway.drivers.served_orders import ASKED, Rows, expected, fill
from tests.workers import GatewayProcess


@pytest.fixture(scope="session")
def analyst(served_deployment: Deployment) -> Iterator[Client]:
    """Ann, who has the data set ``orders``."""
    with served_deployment.client("ann") as client:
        fill(client)
        yield client


@pytest.fixture(scope="session")
def wanted(analyst: Client) -> dict[str, Rows]:
    """What each of ``ASKED`` gives."""
    return {name: expected(analyst, asked) for name, asked in ASKED.items()}


@pytest.fixture(scope="session")
def served_gateway(analyst: Client, served_deployment: Deployment) -> GatewayProcess:
    """The gateway, which runs while its deployment is used."""
    return served_deployment.gateway().wait_ready()
