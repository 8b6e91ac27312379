"""Python's values to messages, and messages as they come off a topic."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stream_dp.messages import Answer

__all__ = ["plain", "read", "read_answer", "to_json"]

Model = TypeVar("Model", bound=BaseModel)


def to_json(document: Mapping[str, object]) -> bytes:
    """A message's bytes; NaN becomes null, and what JSON does not know its nearest plain value."""
    try:
        return _dump(document)
    except ValueError:  # NaN or infinite somewhere: rare, so looked for only then
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


def plain(value: object) -> object:
    """The nearest value that JSON knows: numpy's scalars and arrays, decimals, dates, missing values."""
    if hasattr(value, "tolist"):  # numpy, and data frames' columns
        return value.tolist()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


def read_answer(value: bytes | None) -> Answer | None:
    """An answer off a topic, as the class of its kind; None when it was written by somebody else."""
    try:
        return Answer.read(value or b"")
    except ValueError:
        return None


def read(model: type[Model], value: bytes | None) -> Model | None:
    """A message off a topic; None when it was written by somebody else, or by a newer release."""
    try:
        return model.model_validate_json(value or b"")
    except ValidationError:
        return None
