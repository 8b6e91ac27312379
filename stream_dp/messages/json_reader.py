"""Reads JSON from a topic, with limits."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pydantic_core import from_json, to_json

from stream_dp.errors import InvalidMessage

MAX_NESTING = 64

TOO_DEEP = b"\n" + b" " * (MAX_NESTING + 1)
"""What a document that is nested too deeply has in it, if each level is indented by a space."""


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
        raise _twice()
    return found


def _twice() -> InvalidMessage:
    return InvalidMessage("value", "an object names a key twice", "name each key once")


def read_json(value: bytes, *, max_bytes: int, private: bool = False) -> dict[str, Any]:
    """Parses one JSON object with limits on size, nesting, duplicate keys and infinite numbers.

    Args:
        value: The bytes of the record.
        max_bytes: The most bytes that are accepted.
        private: Whether the value may hold rows. What one of them says then decides about nothing: it may be
            NaN or infinite, name a key twice, or not be UTF-8. Keys of rows and of what is around them may
            not come twice.

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
        found: object = from_json(value, allow_inf_nan=private, cache_strings="keys")
        again = to_json(found, indent=None if private else 1)
    except ValueError:
        return None
    allowed = (
        b"\\u003" not in value  # an escaped colon would replace a lost one
        and value.count(b":") == again.count(b":")
        and (private or (b"Infinity" not in again and TOO_DEEP not in again))
    )
    return found if allowed else None


def _read_patiently(value: bytes, *, private: bool) -> object:
    try:
        if private:
            return _read_rows(value)
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
    _check_nesting(found)
    return found


def _read_rows(value: bytes) -> object:
    """Parses a document with rows, whatever the values of the rows are.

    Raises:
        InvalidMessage: The document, a list of its rows or one of these names a key twice.
        ValueError: It is not JSON.
    """
    repeating: list[dict[str, Any]] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            repeating.append(found)
        return found

    text = value.decode(json.detect_encoding(value), "replace")
    found: object = json.loads(text, strict=False, object_pairs_hook=noted, parse_int=_any_integer)
    if repeating and isinstance(found, dict):
        parts = [found, *found.values()]
        parts += [one for part in found.values() if isinstance(part, list) for one in part]
        if not {id(part) for part in parts}.isdisjoint(map(id, repeating)):
            raise _twice()
    return found


def _any_integer(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # more than 4,300 digits
        return float(text)


def _check_nesting(value: object) -> None:
    """Refuses a document that is nested too deeply. It is iterative, so depth cannot harm it.

    An empty list or object adds no level.

    Raises:
        InvalidMessage: The document is nested too deeply.
    """
    layer = [value]
    for _ in range(MAX_NESTING):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if inner and isinstance(inner, dict | list)
        ]
        if not layer:
            return
    raise InvalidMessage("value", "it is nested too deeply", f"stay below {MAX_NESTING} levels")
