"""Parameters of which ``make test`` tries some, and ``make test-all`` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_is_slow(values: Iterable[Any], *, first: int, unpack: bool = False) -> list[Any]:
    """Marks all but the first few values as slow.

    Args:
        values: What a test is tried with.
        first: How many of them are not slow.
        unpack: Whether each value is a tuple of several arguments.
    """
    return [
        pytest.param(
            *(value if unpack else [value]), marks=() if number < first else pytest.mark.slow
        )
        for number, value in enumerate(values)
    ]
