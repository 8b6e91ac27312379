"""Conditions as messages have them, written shortly."""

from __future__ import annotations

from typing import Any


def of(attribute: str, **comparison: Any) -> dict[str, Any]:
    """``of("age", ge=30)`` is a comparison of an attribute; a list is given as ``in_``."""
    return {"attribute": attribute, **{name.rstrip("_"): one for name, one in comparison.items()}}


def counted(where: Any, **more: Any) -> dict[str, Any]:
    """The fields of a count of the rows of a condition."""
    return {"kind": "predicate", "where": where, **more}
