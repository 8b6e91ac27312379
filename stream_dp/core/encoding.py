"""Encodings of values as bytes that live for ever: what is stored, and what identifies a request.

*Stored bytes.* Each kind of stored thing has a ``Format``: a name and a version. The first byte of what is
stored is the version. What a version means never changes from the first release on; a new meaning is a new
version. ``Format.pack`` writes, ``Format.read`` gives a ``Reader``, which refuses what is cut short, too long
or of another version with ``CorruptState``. An error names the format and nothing of what is stored, for that
may be a row or a secret.

    FORMAT = Format("table")

    data = FORMAT.pack(fields("<I", block), integers(counts))

    reader = FORMAT.read(data)
    (block,) = reader.fields("<I")
    counts = reader.integers(*shape)
    reader.end()

Numbers are little-endian unless a layout says otherwise. ``tests/golden/formats`` has a frozen example of
every format.

*Identities.* ``identity`` is 16 bytes that tell whether two requests ask the same. They are stored, so they
must not depend on how a release of Python prints a value. ``canonical`` is the encoding behind them: a type
byte, then the value, with a length or a count in front of whatever may vary in length. So two different
values never have the same encoding.

| value | bytes |
|---|---|
| None, False, True | ``n``, ``f``, ``t`` |
| int | ``i``, length, two's complement, big-endian, in ``bit_length // 8 + 1`` bytes |
| float | ``d``, its 8 bytes as an IEEE 754 double, big-endian |
| str | ``s``, length, UTF-8 (a lone surrogate as if it were a character) |
| bytes | ``b``, length, the bytes |
| list or tuple | ``l``, count, the items |
| dict with strings as keys | ``m``, count, keys and values in the order of the encoded keys |

Lengths and counts are unsigned, in 4 bytes, big-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stream_dp.errors import CorruptState

Integers = npt.NDArray[np.int64]

IDENTITY_BYTES: Final = 16

_LENGTH = struct.Struct(">I")
_ABSENT: Final = 0xFFFF_FFFF
_WIDE_BYTES: Final = 16

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Format:
    """One kind of stored thing.

    Args:
        name: The name of the thing, as a noun that goes with "a stored".
        version: The version that this release writes and reads, from 0 to 255.

    Raises:
        ValueError: Another format has this name.
    """

    def __init__(self, name: str, version: int = 1) -> None:
        if name in _FORMATS:
            raise ValueError(f"a format needs a name of its own: {name}")
        self.name = name
        self.version = version
        _FORMATS[name] = self

    def __repr__(self) -> str:
        return f"Format({self.name!r}, {self.version})"

    def pack(self, *parts: bytes | memoryview) -> bytes:
        """The version, then the parts."""
        return b"".join((bytes((self.version,)), *parts))

    def read(self, data: bytes | memoryview) -> Reader:
        """A reader of what comes after the version.

        Raises:
            CorruptState: There is no version, or one that this release does not know.
        """
        reader = Reader(data, self.name)
        (version,) = reader.fields("B")
        reader.require(
            version == self.version,
            f"is of a version unknown to this release, which reads version {self.version}; run the release "
            "that wrote it, or a later one",
        )
        return reader


_FORMATS: dict[str, Format] = {}


def formats() -> Mapping[str, Format]:
    """Every format by its name, as far as their modules are imported."""
    return dict(_FORMATS)


class Reader:
    """Reads stored bytes from the front. Whatever does not fit is ``CorruptState``, and is never quoted.

    Args:
        data: The stored bytes. What is taken of a memoryview is one, too.
        name: The name of the thing, as a noun that goes with "a stored".
    """

    def __init__(self, data: bytes | memoryview, name: str) -> None:
        self._data = cast("bytes", data)
        self._name = name
        self._at = 0

    def __repr__(self) -> str:
        return f"Reader({self._name!r})"

    def fail(self, problem: str) -> NoReturn:
        """Raises CorruptState with a problem that reads on after "a stored ..."."""
        raise CorruptState(f"a stored {self._name} {problem}")

    def require(self, fits: object, problem: str = "does not fit the data set") -> None:
        """Raises CorruptState unless something that was read fits."""
        if not fits:
            self.fail(problem)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        begin = self._advance(length)
        return self._data[begin : self._at]

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._data) - self._at)

    def fields(self, layout: str) -> tuple[Any, ...]:
        """Values in a layout of ``struct``."""
        begin = self._advance(struct.calcsize(layout))
        return struct.unpack_from(layout, self._data, begin)

    def window(self) -> range:
        """A window of phases that is not empty."""
        start, stop = self.fields("<II")
        self.require(start < stop, "is about no phase")
        return range(start, stop)

    def wide(self) -> int:
        """An integer of 128 bits, negative ones included."""
        return int.from_bytes(self.take(_WIDE_BYTES), "little", signed=True)

    def integers(self, *shape: int) -> Integers:
        """An array of int64 of this shape, to be changed at will."""
        values = self.array(np.dtype(np.int64), math.prod(shape))
        return values.astype(np.int64).reshape(shape)

    def array(self, dtype: np.dtype[_Scalar], size: int) -> npt.NDArray[_Scalar]:
        """An array of shape (size,), read-only and without a copy."""
        begin = self._advance(dtype.itemsize * size)
        return np.frombuffer(self._data, dtype.newbyteorder("<"), size, begin)

    def part(self) -> bytes | None:
        """Bytes that ``part`` wrote."""
        (length,) = _LENGTH.unpack_from(self._data, self._advance(_LENGTH.size))
        return None if length == _ABSENT else self.take(length)

    def required(self) -> bytes:
        """Bytes that ``part`` wrote, and that cannot be absent."""
        content = self.part()
        return self.fail("lacks a part") if content is None else content

    def shared(self) -> memoryview:
        """The same, without a copy: they may be hundreds of megabytes."""
        (length,) = self.fields(">I")
        begin = self._advance(length)
        return memoryview(self._data)[begin : self._at]

    def text(self) -> str | None:
        """A string that ``part`` wrote in UTF-8."""
        content = self.part()
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            self.fail("has a name that is not UTF-8")

    def required_text(self) -> str:
        """A string that ``part`` wrote in UTF-8, and that cannot be absent."""
        text = self.text()
        return self.fail("lacks a part") if text is None else text

    def end(self) -> None:
        """Raises CorruptState unless all bytes were read."""
        self.require(self._at == len(self._data), "has bytes after its end")

    def _advance(self, length: int) -> int:
        begin = self._at
        self._at = begin + length
        if self._at > len(self._data):
            self.fail("is cut short")
        return begin


# Parts of what is stored, each as ``Reader`` reads it.

fields = struct.pack
"""Values in a layout of ``struct``."""


def pack_window(blocks: range) -> bytes:
    """A window of phases."""
    return struct.pack("<II", blocks.start, blocks.stop)


def wide(number: int) -> bytes:
    """An integer of at most 128 bits: a noisy count, whose length is not to show how large it is."""
    return number.to_bytes(_WIDE_BYTES, "little", signed=True)


def array(values: npt.NDArray[Any]) -> bytes:
    """An array as it is, row by row; its dtype and shape are not written."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def integers(values: npt.NDArray[np.integer[Any]]) -> bytes:
    """An array of int64, row by row; its shape is not written."""
    return values.astype("<i8", copy=False).tobytes()


def part(content: bytes | None) -> bytes:
    """Bytes with their length in front; None is told from no bytes."""
    return _LENGTH.pack(_ABSENT) if content is None else _LENGTH.pack(len(content)) + content


# Identities.


def canonical(value: object) -> bytes:
    """The one encoding of a value, for identities; the module's documentation has the table.

    Raises:
        TypeError: It is, or holds, a value of a type that the table does not have.
    """
    found: list[bytes] = []
    _encode(value, found)
    return b"".join(found)


def identity(name: str, *facts: object) -> bytes:
    """16 bytes that are the same just where the facts are: BLAKE2b of their canonical encoding.

    Args:
        name: The kind of thing. No two kinds share an identity.
        *facts: What makes it the same.

    Raises:
        TypeError: ``canonical`` does not accept a fact.
    """
    return identity_from(identity_head(name, n_more=len(facts)), *facts)


def identity_head(name: str, *first: object, n_more: int) -> bytes:
    """The part of an identity that many share, to be encoded once: its name and first facts.

    Args:
        name: The kind of thing.
        *first: The facts that are shared.
        n_more: How many facts follow them.
    """
    found = [b"l", _LENGTH.pack(1 + len(first) + n_more)]
    for fact in (name, *first):
        _encode(fact, found)
    return b"".join(found)


def identity_from(head: bytes, *facts: object) -> bytes:
    """The ``identity`` that begins with an ``identity_head`` and goes on with these facts."""
    found = [head]
    for fact in facts:
        _encode(fact, found)
    return blake2b(b"".join(found), digest_size=IDENTITY_BYTES).digest()


def _encode(value: object, found: list[bytes]) -> None:
    match value:  # the most frequent types of identities first
        case bytes():
            found += (b"b", _LENGTH.pack(len(value)), value)
        case list() | tuple():
            found += (b"l", _LENGTH.pack(len(value)))
            for item in value:
                _encode(item, found)
        case bool():
            found.append(b"t" if value else b"f")
        case int():
            length = value.bit_length() // 8 + 1
            found += (b"i", _LENGTH.pack(length), value.to_bytes(length, "big", signed=True))
        case str():
            encoded = value.encode("utf-8", "surrogatepass")
            found += (b"s", _LENGTH.pack(len(encoded)), encoded)
        case None:
            found.append(b"n")
        case float():
            found.append(struct.pack(">cd", b"d", value))
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise TypeError(
                    "a mapping with keys that are not strings has no canonical encoding"
                )
            found += (b"m", _LENGTH.pack(len(value)))
            pairs = sorted(
                ((canonical(key), item) for key, item in value.items()), key=itemgetter(0)
            )
            for key, item in pairs:
                found.append(key)
                _encode(item, found)
        case _:
            raise TypeError(f"a {type(value).__name__} has no canonical encoding")
