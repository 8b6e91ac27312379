"""Reads JSON from a topic, with limits."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pydantic_core import from_json, to_json

from stream_dp.errors import InvalidMessage

MAX_NESTING = 64

_TOO_DEEP = b"\n" + b" " * (MAX_NESTING + 1)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidMessage("value", f"{name} is not a JSON number", "omit the value or write null")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidMessage("value", "a number is too large for a float", "write finite numbers")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidMessage("value", "an object names a key twice", "name each key once")
    return found


def read_json(value: bytes, *, max_bytes: int, private: bool = False) -> dict[str, Any]:
    """Parses one JSON object with limits on size, nesting, duplicate keys and infinite numbers.

    Args:
        value: The bytes of the record.
        max_bytes: The most bytes that are accepted.
        private: Whether the value may hold rows. An error then depends on nothing in it.

    Raises:
        InvalidMessage: The value is not such an object. The error never quotes the value.
    """
    if len(value) > max_bytes:
        raise InvalidMessage(
            "value",
            f"it is longer than the limit of {max_bytes:,} bytes",
            "split it into several messages",
            reason="too_large",
        )
    found = _read_quickly(value, private=private)
    if found is None:
        found = _read_patiently(value, private=private)
    if not isinstance(found, dict):
        raise InvalidMessage("value", "it is not a JSON object", "write one JSON object")
    return found


def _read_quickly(value: bytes, *, private: bool) -> object:
    """Parses most values quickly, and returns None if only the patient parser can decide.

    The quick parser accepts duplicate keys and numbers that are too large for a float. If it met one, its
    result has fewer colons or names infinity when it is written again. One level of nesting is one space of
    indentation.
    """
    try:
        found: object = from_json(value, allow_inf_nan=False, cache_strings="keys")
        again = to_json(found, indent=None if private else 1)
    except ValueError:
        return None
    allowed = (
        b"\\u003" not in value  # an escaped colon would replace a lost one
        and value.count(b":") == again.count(b":")
        and b"Infinity" not in again
        and _TOO_DEEP not in again
    )
    return found if allowed else None


def _read_patiently(value: bytes, *, private: bool) -> object:
    try:
        found: object = json.loads(
            value, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except InvalidMessage:
        raise
    except RecursionError:
        raise InvalidMessage("value", "it is nested too deeply", "flatten it") from None
    except ValueError as error:
        position = (
            f" (line {error.lineno}, column {error.colno})"
            if isinstance(error, json.JSONDecodeError) and not private
            else ""
        )
        raise InvalidMessage(
            "value",
            f"it is not JSON{position}",
            "write one JSON object in UTF-8",
            reason="bad_json",
        ) from None
    if not private:  # an error must not depend on a row
        _check_nesting(found)
    return found


def _check_nesting(value: object, limit: int = MAX_NESTING) -> None:
    """Refuses a document that is nested deeper than ``limit``. It is iterative, so depth cannot harm it.

    An empty list or object adds no level.

    Raises:
        InvalidMessage: The document is nested too deeply.
    """
    layer = [value]
    for _ in range(limit):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if inner and isinstance(inner, dict | list)
        ]
        if not layer:
            return
    raise InvalidMessage("value", "it is nested too deeply", f"stay below {limit} levels")


__all__ = [
    "MAX_NESTING",
    "read_json",
]
