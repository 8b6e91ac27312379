"""The driver on a worker of this process: no broker, no store, and real answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.world_client import WorldClient


@pytest.fixture
def client() -> Iterator[WorldClient]:
    """A client with the data set ``flights``, in its first phase of 21,000 rows."""
    made = WorldClient()
    yield made
    made.end()
