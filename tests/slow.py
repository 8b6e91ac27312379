"""Parameters of which ``make test`` tries some, and ``make test-all`` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["rest_is_slow"]


def rest_is_slow(values: Iterable[Any], *, first: int) -> list[Any]:
    """Marks all but the first few values as slow."""
    return [
        value if number < first else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
