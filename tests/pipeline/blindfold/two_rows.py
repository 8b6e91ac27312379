"""The row of a first run, and the one that a second run has in its place."""

from __future__ import annotations

from typing import Any, TypeAlias

CANARY = "canary-7f3a"

THESE = {"carrier": "AA", "delay": 5, "cancelled": False}
THOSE = {"carrier": CANARY, "delay": 10**30, "cancelled": True}

Row: TypeAlias = dict[str, Any]
