"""A share of ``make soak``: every kind of fault of real servers, in every run at other moments."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.soak import LEAST_ANSWERED, OF_A_NODE, ROUNDS, WANTED, Soak
from tests.faults.tally import Tally

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KINDS = list(OF_A_NODE)
"""``test_kills`` has the points."""


@pytest.mark.parametrize(
    ("kinds", "of"),
    [
        (KINDS[::2], "a node"),
        (KINDS[1::2], "a node"),
        ([*ROUNDS["replicas"], "worker killed"], "replicas"),
        ([*ROUNDS["brokers"], "worker killed"], "brokers"),
    ],
)
def test_no_fault_of_a_server_breaks_a_promise(
    tmp_path: Path, needed: Callable[[], Any], kinds: list[str], of: str
) -> None:
    seed, tally = secrets.randbelow(10**6), Tally(WANTED)
    soak = Soak(tmp_path, seed, tally)
    with needed():
        soak.__enter__()
    try:
        soak.round(random.Random(seed).sample(kinds, len(kinds)), of=of)
    finally:
        soak.__exit__()
    assert tally.found == [], f"seed {seed}: {tally.report()}"
    assert tally.pace.share >= LEAST_ANSWERED, tally.report()
