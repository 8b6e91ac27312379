"""The row of a first run, and the one that a second run has in its place."""

from __future__ import annotations

from typing import Any, TypeAlias

CANARY = "canary-7f3a"

THESE = {"carrier": "AA", "delay": 5, "cancelled": False}
THOSE = {"carrier": CANARY, "delay": 10**30, "cancelled": True}

Row: TypeAlias = dict[str, Any]

NOBODY: Row = dict.fromkeys((*THESE, "user_id", "trip"))
"""A blank slot, where rows are those of persons."""

OF_ZOE: Row = {"person": "zoe", "row": "z-1"}
"""Whose the row is that is compared, and its own key."""

OF_ANA: Row = {"person": "ana", "row": "a-1"}
"""The same of the row that comes next to it."""
