"""Converts Python values to messages and reads messages from a topic."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from stream_dp import messages
from stream_dp.messages import Answer

Model = TypeVar("Model", bound=BaseModel)


def to_json(document: Mapping[str, object]) -> bytes:
    """Returns the bytes of a message. NaN becomes null, and other values the nearest one that JSON has."""
    try:
        return _dump(document)
    except ValueError:  # there is a NaN or an infinity, which is rare
        return _dump(_finite(document))


def _dump(document: object) -> bytes:
    return json.dumps(
        document, allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=plain
    ).encode("utf-8", errors="backslashreplace")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if not isinstance(value, str | int | bool | float | None):
        value = plain(value)
        return _finite(value) if isinstance(value, float | list) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def plain(value: Any) -> object:
    """Returns the nearest JSON value of numpy scalars and arrays, decimals, dates and missing values."""
    if hasattr(value, "tolist"):  # numpy, and data frames' columns
        if type(value).__module__ == "numpy" and value.dtype.kind == "M":
            # Of nanoseconds, and beyond the years of Python, it would give numbers.
            return _moments(value.astype(str).tolist())
        return cast("object", value.tolist())
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


def _moments(texts: Any) -> object:
    """Returns a text, or a list of texts, with None in place of those that are not times."""
    if isinstance(texts, list):
        return [_moments(text) for text in texts]
    return None if texts == "NaT" else texts


def read_answer(value: bytes | None) -> Answer | None:
    """An answer off a topic, as the class of its kind; None when it was written by somebody else."""
    with contextlib.suppress(ValueError):
        return messages.read_answer(value or b"")
    return None


def ledger_entry(value: bytes) -> dict[str, Any] | None:
    """Reads an entry of a ledger. None if another program wrote it."""
    entry: object = None
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(value)
    return entry if isinstance(entry, dict) and {"seq", "kind"} <= entry.keys() else None


def read(model: type[Model], value: bytes | None) -> Model | None:
    """Reads a message from a topic. None if another program or a newer release wrote it."""
    with contextlib.suppress(ValidationError):
        return model.model_validate_json(value or b"")
    return None
