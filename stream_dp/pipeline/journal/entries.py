"""The entries of a partition of the journal, and which of them count. Knows no broker.

An entry counts if it names the id of the last ``epoch`` below it: so a worker that was followed by another
one can append what it likes. All else is void, for every reader and for ever. Each entry has a digest of all
that it says. One that does not fit it is not as it was written: it is neither void nor taken for anything.

| kind | what it says |
|---|---|
| ``epoch`` | a worker has taken the partition over; its id is in the header |
| ``commit`` | a commit of a data set |
| ``mark`` | what is done with, see ``marks`` |
| ``begin`` | all that marks have said so far; a round of checkpoints begins |
| ``checkpoint`` | the state of a data set as of the ``begin`` of its round |
| ``restart`` | the same, and what is below counts no more: the journal was cut |
| ``end`` | where a round begins, and where its checkpoints are |
| ``fill`` | nothing; a repair has put it where something was cut off |

A reader says ``wrong`` of an entry that is not as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, cast

from stream_dp.core.encoding import part
from stream_dp.errors import CorruptState
from stream_dp.pipeline.journal.marks import said
from stream_dp.pipeline.kafka.topic_log import LogEntry

Kind = Literal["epoch", "commit", "mark", "begin", "checkpoint", "restart", "end", "fill"]
ReadKind = Kind | Literal["wrong"]

EPOCH_BYTES: Final = 16
_KINDS: Final = frozenset({"commit", "mark", "begin", "checkpoint", "restart", "end"})
_PART_BYTES: Final = 900_000
_WHOLE: Final = b"0 1 "
_HEADERS: Final = ("kind", "epoch", "newest", "part")
_DIGEST: Final = "digest"


def _digest(key: bytes, value: bytes, headers: Mapping[str, bytes]) -> bytes:
    said = b"".join(part(one) for one in (key, *map(headers.get, _HEADERS)))
    return blake2b(said + value, digest_size=8).digest()


def with_digest(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> LogEntry:
    """An entry with the digest by which readers know it as it was written."""
    digest = _digest(key, value, dict(headers))
    return LogEntry(key, value, (*headers, (_DIGEST, digest)))


FILL: Final = with_digest(b"", b"", [("kind", b"fill")])
"""An entry that only takes up room."""


class CountingEntry(NamedTuple):
    """An entry that counts, or one that is not as it was written.

    Attributes:
        kind: Its kind.
        name: The data set; empty where it is of none.
        value: Its value, whole. Empty if it is not as it was written.
        offset: The offset of its first part.
    """

    kind: ReadKind
    name: str
    value: bytes
    offset: int


def entries_of(
    kind: Kind, name: str, value: bytes, epoch: bytes, *, newest: int | None = None
) -> list[LogEntry]:
    """The entries that carry a value, in parts that every broker takes.

    Args:
        kind: The kind.
        name: The data set; empty where it is of none.
        value: The value.
        epoch: The id of the epoch of its writer, 16 bytes.
        newest: The offset of the newest ``end`` that is known to count. None if none is known.
    """
    headers = [("kind", kind.encode()), ("epoch", epoch)]
    if newest is not None:
        headers.append(("newest", b"%d" % newest))
    key = name.encode()
    if len(value) <= _PART_BYTES:
        return [with_digest(key, value, headers)]
    starts = range(0, len(value), _PART_BYTES)
    of = blake2b(value, digest_size=8).hexdigest().encode()
    return [
        with_digest(
            key,
            value[start : start + _PART_BYTES],
            [*headers, ("part", b"%d %d %b" % (number, len(starts), of))],
        )
        for number, start in enumerate(starts)
    ]


def newest_in(entry: LogEntry) -> int | None:
    """The offset of the newest ``end`` that an entry names. None if it names none."""
    headers = dict(entry.headers)
    number = _number(headers.get("newest"))
    return None if number < 0 or _is_wrong(entry, headers) else number


@dataclass(frozen=True, slots=True)
class Round:
    """A round of checkpoints, as its ``end`` says it.

    Attributes:
        begin: The offset of its ``begin``.
        checkpoints: Data set -> the offset of its checkpoint.
    """

    begin: int
    checkpoints: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return said(begin=self.begin, checkpoints=dict(self.checkpoints))

    @classmethod
    def from_bytes(cls, value: bytes) -> Round:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode.
        """
        found = object_in(value)
        begin, checkpoints = found.get("begin"), found.get("checkpoints")
        if type(begin) is not int or not isinstance(checkpoints, dict):
            raise CorruptState("the end of a round of checkpoints on the journal does not decode")
        return cls(begin, {str(name): int(at) for name, at in checkpoints.items()})


class EntryReader:
    """Reads a partition of the journal in order, and drops what is void.

    Args:
        epoch: The id of the epoch in force where reading begins. None to take that of the first entry, which
            must be known to count, or be an epoch.

    Attributes:
        epoch: The id of the epoch in force; empty before the first one.
        void: The number of entries that were void.
        filled: Whether the last entry that was read only takes up room.
    """

    def __init__(self, epoch: bytes | None = None) -> None:
        self.epoch = epoch or b""
        self.void = 0
        self.filled = False
        self._takes_first = epoch is None
        self._parts: dict[tuple[str, bytes, bytes], tuple[int, list[bytes]]] = {}

    def read(self, offset: int, entry: LogEntry) -> CountingEntry | None:
        """Takes the next entry; returns it if it counts and is whole with this part, or if it is wrong."""
        headers = dict(entry.headers)
        if _is_wrong(entry, headers):
            self.filled = False
            return CountingEntry("wrong", entry.key.decode(errors="replace"), b"", offset)
        kind, epoch = headers.get("kind", b"").decode("ascii", "replace"), headers.get("epoch", b"")
        self.filled = kind == "fill"
        if self._takes_first and len(epoch) == EPOCH_BYTES:
            self.epoch, self._takes_first = epoch, False
        if kind == "epoch" and len(epoch) == EPOCH_BYTES:
            self.epoch = epoch
            self._parts.clear()
            return CountingEntry("epoch", "", entry.value, offset)
        if kind not in _KINDS or epoch != self.epoch:
            self.void += kind != "fill"
            return None
        words = (headers.get("part") or _WHOLE).split(b" ")
        if len(words) != 3:
            self.void += 1
            return None
        number, count = _number(words[0]), _number(words[1])
        # Others may lie between parts. After a lost reply all of them come again: the owner takes them to be
        # where they came last, and so does a reader.
        of = kind, entry.key, words[2]
        if number == 0:
            self._parts[of] = (offset, [])
        first, parts = self._parts.setdefault(of, (offset, []))
        if number == len(parts):
            parts.append(entry.value)
        elif number > len(parts):
            self.void += 1
        if len(parts) < count:
            return None
        del self._parts[of]
        name = entry.key.decode(errors="replace")
        return CountingEntry(cast("Kind", kind), name, b"".join(parts), first)


def _is_wrong(entry: LogEntry, headers: Mapping[str, bytes]) -> bool:
    """Whether an entry is not as a worker wrote it. One without any of our headers is from somebody else."""
    ours = _DIGEST in headers or any(name in headers for name in _HEADERS)
    return ours and headers.get(_DIGEST) != _digest(entry.key, entry.value, headers)


def object_in(value: bytes) -> dict[str, Any]:
    """A JSON object; empty for all else."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: bytes | None) -> int:
    """A decimal number of at most 18 digits; -1 for all else."""
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else -1
