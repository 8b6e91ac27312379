"""Values as the fields of messages have them, in text and in binary."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from stream_dp.gateway.pg_types import NAMES, OIDS
from stream_dp.gateway.protocol.sql_fault import SqlFault

_EPOCH: Final = dt.date(2000, 1, 1)
_EPOCH_TIME: Final = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - of times without a zone
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_PACKED: Final = {
    "int2": "!h",
    "int4": "!i",
    "int8": "!q",
    "oid": "!I",
    "xid": "!I",
    "regproc": "!I",
    "float4": "!f",
    "float8": "!d",
}
_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "name", "char", "unknown", "json"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
_DATE_AND_MORE: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)(?:[ T](?P<time>\d\d:\d\d[\d:.]*))? ?(?P<zone>[+-]\d\d(?::?\d\d)?|Z)?"
)
_LONGEST_NUMERIC: Final = 1_000
_MOST_ITEMS: Final = 10_000
_WHOLE: Final = frozenset({"int2", "int4", "int8", "oid"})
NUMBERS: Final = frozenset({*_WHOLE, "float4", "float8", "numeric"})
"""The types of numbers."""

_WHOLE_FORM: Final = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER_FORM: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
)
_BLANKS: Final = " \t\n\r\v\f"
_ITEM: Final = re.compile(
    r'\s*+(?:"((?:[^"\\]|\\.)*+)"\s*+|([^\s{}",\\][^{}",\\]*+))(,|\Z)', re.DOTALL | re.ASCII
)
_WORDS: Final = {"true": True, "yes": True, "false": False, "no": False}
_TRUTHS: Final = {
    **{word[:n]: truth for word, truth in _WORDS.items() for n in range(1, len(word) + 1)},
    "on": True,
    "1": True,
    "off": False,
    "0": False,
}

Parameter = str | int | float | bool | None | list[Any]
"""The value of a parameter. A time, and a numeric, is a text."""


def as_text(value: Any, kind: str) -> bytes:
    """Returns a value in the text format of a type."""
    if isinstance(value, bool) or kind == "bool":
        return b"t" if value else b"f"
    if kind.startswith("_"):
        items = [_item(one, kind[1:]) for one in _items(value)]
        return ("{" + ",".join(items) + "}").encode()
    if isinstance(value, float):
        return _number(value).encode()
    return str(value).encode()


def _item(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    text = as_text(value, kind).decode()
    if kind in _TEXTS and (not text or text.lower() == "null" or set(text) & set('{}," \\')):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def _items(value: Any) -> list[Any]:
    """Returns the items of an array, which the catalogs hold as JSON."""
    found = json.loads(value) if isinstance(value, str) else value
    return list(found)


def _number(value: float) -> str:
    """Returns a number as Postgres writes it: the shortest text that reads back the same."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if math.isnan(value):
        return "NaN"
    return repr(value).removesuffix(".0")


def as_binary(value: Any, kind: str) -> bytes:
    """Returns a value in the binary format of a type."""
    if (code := _PACKED.get(kind)) is not None:
        return struct.pack(code, float(value) if kind.startswith("float") else int(value))
    if kind == "bool":
        return b"\1" if value else b"\0"
    if kind == "date":
        return struct.pack("!i", (dt.date.fromisoformat(str(value)) - _EPOCH).days)
    if kind in ("timestamp", "timestamptz"):
        at = dt.datetime.fromisoformat(str(value))
        at = at.astimezone(dt.UTC).replace(tzinfo=None) if at.tzinfo else at
        return struct.pack("!q", (at - _EPOCH_TIME) // _MICROSECOND)
    if kind.startswith("_"):
        return _array(_items(value), kind[1:])
    return str(value).encode()


def _array(items: list[Any], kind: str) -> bytes:
    head = struct.pack("!iiI", 1 if items else 0, int(None in items), OIDS[kind])
    if not items:
        return head
    body = bytearray(struct.pack("!ii", len(items), 1))
    for one in items:
        if one is None:
            body += b"\xff\xff\xff\xff"
        else:
            data = as_binary(one, kind)
            body += struct.pack("!i", len(data)) + data
    return head + bytes(body)


def parameter(data: bytes, kind: str, *, binary: bool) -> Parameter:
    """Reads the value of a parameter.

    Args:
        data: Its bytes.
        kind: Its type.
        binary: Whether they are in the binary format.

    Raises:
        SqlFault: This type has no such value.
    """
    try:
        found = _read_binary(data, kind) if binary else _read_text(data.decode(), kind)
    except (ValueError, struct.error, OverflowError, LookupError):
        raise SqlFault(
            "22P03" if binary else "22P02", f"a parameter is not a value of type {kind}"
        ) from None
    if isinstance(found, list) and len(found) > _MOST_ITEMS:
        raise SqlFault("54000", f"an array of a parameter has more than {_MOST_ITEMS:,} items")
    return found


def _read_text(text: str, kind: str) -> Parameter:
    if "\0" in text:
        raise ValueError
    if kind == "bool":
        return _TRUTHS[text.strip().lower()]
    if kind in NUMBERS:
        form, number = _WHOLE_FORM if kind in _WHOLE else _NUMBER_FORM, text.strip(_BLANKS)
        if form.fullmatch(number) is None:
            raise ValueError
        _finite(float(number))
        return number if kind == "numeric" else int(number) if kind in _WHOLE else float(number)
    if kind.startswith("_"):
        return [None if one is None else _read_text(one, kind[1:]) for one in items_of_array(text)]
    return _time_text(text.strip(), kind) if kind in _TIMES else text


def _time_text(text: str, kind: str) -> str:
    """Returns a time as a statement has it. JDBC writes a date as ``2026-03-01 +00``.

    Other words, such as the name of a month, stay as they are.
    """
    if (found := _DATE_AND_MORE.fullmatch(text)) is None:
        return text
    if kind == "date":
        return found["date"]
    zone = (found["zone"] or "") if kind == "timestamptz" else ""
    at = dt.datetime.fromisoformat(f"{found['date']} {found['time'] or '00:00'}{zone}")
    return (at.astimezone(dt.UTC) if zone else at).replace(tzinfo=None).isoformat(" ")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def items_of_array(text: str) -> list[str | None]:
    """Returns the items of an array of one dimension in the text format, such as ``{a,"b c",NULL}``.

    Raises:
        ValueError: It is not one.
    """
    body = text.strip(_BLANKS)
    if body[:1] != "{" or body[-1:] != "}":
        raise ValueError
    body, found, at = body[1:-1].strip(_BLANKS), list[str | None](), 0
    comma = "," if body else ""
    while comma:
        if (item := _ITEM.match(body, at)) is None:
            raise ValueError
        quoted, word, comma = item.groups()
        if word is None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(None if word.strip(_BLANKS).lower() == "null" else word.strip(_BLANKS))
        at = item.end()
    return found


def _read_binary(data: bytes, kind: str) -> Parameter:
    if (code := _PACKED.get(kind)) is not None:
        (value,) = struct.unpack(code, data)
        return _finite(value) if kind.startswith("float") else int(value)
    if (read := _READERS.get(kind)) is not None:
        return read(data)
    if kind.startswith("_"):
        return _read_array(data)
    if kind not in _TEXTS:
        raise ValueError
    return _read_text(data.decode(), "text")


def _read_date(data: bytes) -> str:
    return (_EPOCH + dt.timedelta(days=struct.unpack("!i", data)[0])).isoformat()


def _read_time(data: bytes) -> str:
    (microseconds,) = struct.unpack("!q", data)
    at = _EPOCH_TIME + dt.timedelta(microseconds=microseconds)
    return at.isoformat(" ")


def _read_numeric(data: bytes) -> str:
    """Reads a number as its digits in base 10,000, of which ``weight + 1`` stand before the point."""
    n, weight, sign, scale = struct.unpack_from("!hhHh", data)
    digits: tuple[int, ...] = struct.unpack(f"!{n}h", data[8:])
    if sign not in (0, 0x4000) or not (
        abs(weight) < _LONGEST_NUMERIC and 0 <= scale <= _LONGEST_NUMERIC
    ):
        raise ValueError
    whole = "".join(f"{d:04}" for d in digits[: max(weight + 1, 0)])
    whole += "0000" * max(weight + 1 - n, 0)
    part = "0000" * max(-weight - 1, 0) + "".join(f"{d:04}" for d in digits[max(weight + 1, 0) :])
    part = part[:scale].ljust(scale, "0")
    minus = "-" if sign == 0x4000 else ""
    return minus + (whole.lstrip("0") or "0") + ("." + part if part else "")


_READERS: Final[Mapping[str, Callable[[bytes], Parameter]]] = {
    "bool": {b"\0": False, b"\1": True}.__getitem__,
    "date": _read_date,
    "timestamp": _read_time,
    "timestamptz": _read_time,
    "numeric": _read_numeric,
}


def _read_array(data: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack_from("!iiI", data)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError
    (n,) = struct.unpack_from("!i", data, 12)
    kind, at, found = NAMES.get(element, ""), 20, list[Any]()
    for _ in range(n):
        (size,) = struct.unpack_from("!i", data, at)
        at += 4
        if size < 0:
            found.append(None)
            continue
        if at + size > len(data):
            raise ValueError
        found.append(_read_binary(data[at : at + size], kind))
        at += size
    return found
