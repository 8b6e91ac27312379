"""A share of ``make soak``: in every run other faults of real servers, at other moments."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.soak import Soak

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_no_fault_of_a_server_breaks_a_promise(tmp_path: Path, needed: Callable[[], Any]) -> None:
    seed = secrets.randbelow(10**6)
    soak = Soak(tmp_path, seed)
    with needed():
        soak.__enter__()
    try:
        soak.round(4)
    finally:
        soak.__exit__()
    assert soak.violations == [], f"seed {seed}: {soak.report()}"
