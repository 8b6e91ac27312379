"""The hash-chained record of everything that was published and charged about one data set.

An entry is canonical JSON in ASCII (sorted keys, no spaces); ``head = SHA-256(previous head + entry)``, from
32 zero bytes. So an entry can be checked with two lines of any language. Anyone who kept one head can tell
whether the history before it was changed. Entries hold published facts only: a plain digest of rows would be
the rows (a few thousand candidates can be tried).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from stream_dp.errors import CorruptState, LedgerBroken
from stream_dp.messages import EntryKind

VERSION = 1
HEAD_BYTES = 32
GENESIS = bytes(HEAD_BYTES)
KINDS = frozenset(get_args(EntryKind))
_RESERVED = frozenset({"version", "dataset", "seq", "prev", "kind"})


def append(
    head: bytes, index: int, dataset: str, kind: str, body: Mapping[str, object]
) -> tuple[bytes, bytes]:
    """Makes the next entry of a chain; returns its bytes and the new head.

    Args:
        head: Head before this entry, 32 bytes; ``GENESIS`` for the first.
        index: Number of entries before this one; kept as ``seq``.
        dataset: Name of the data set.
        kind: One of ``KINDS``.
        body: Published facts, ready for JSON, in addition to the fields that every entry has.

    Raises:
        ValueError: The body uses a reserved field or holds what JSON cannot say, or an argument is out of
            range.
    """
    if len(head) != HEAD_BYTES:
        raise ValueError(f"a ledger head has {HEAD_BYTES} bytes, not {len(head)}")
    if index < 0:
        raise ValueError("a ledger index is not negative")
    if kind not in KINDS:
        raise ValueError(f"a ledger entry's kind is one of {', '.join(sorted(KINDS))}")
    if clash := sorted(_RESERVED & body.keys()):
        raise ValueError(f"a ledger entry's body may not name {', '.join(clash)}")
    entry = json.dumps(
        {
            **body,
            "version": VERSION,
            "dataset": dataset,
            "seq": index,
            "prev": head.hex(),
            "kind": kind,
        },
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    ).encode("ascii")
    return entry, extend(head, entry)


def extend(head: bytes, entry: bytes) -> bytes:
    """The head after ``entry``, 32 bytes."""
    return hashlib.sha256(head + entry).digest()


def read(entry: bytes) -> dict[str, Any]:
    """Fields of one entry, without checking its place in the chain.

    Raises:
        CorruptState: It is not an entry, or its version is unknown to this release.
    """
    try:
        fields = json.loads(entry)
    except (ValueError, RecursionError) as error:
        raise CorruptState(
            "a ledger entry is not JSON; restore it from the ledger topic"
        ) from error
    if not isinstance(fields, dict):
        raise CorruptState("a ledger entry is not a JSON object; restore it from the ledger topic")
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        raise CorruptState(
            "a ledger entry has a version unknown to this release, which reads version "
            f"{VERSION}; run the release that wrote it, or a later one"
        )
    if fields.get("kind") not in KINDS:
        raise CorruptState("a ledger entry is of a kind that its version does not have")
    return fields


class Chain:
    """A chain of entries from its first one on, checked and added up entry by entry.

    Args:
        dataset: The data set that the entries must be about.
        entries: The first entries, in order.

    Attributes:
        head: The head of the entries so far, 32 bytes.
        length: The number of entries.
        charged: The sums that they charge to each block, (rho, delta) in units of its budget / 2**50.

    Raises:
        LedgerBroken: With ``index``, the first entry at which the chain does not hold. A change of the last
            entry, or a shorter chain, shows only in the head.
    """

    def __init__(self, dataset: str, entries: Iterable[bytes] = ()) -> None:
        self.head = GENESIS
        self.length = 0
        self.charged: list[tuple[int, int]] = []
        self._dataset = dataset
        for entry in entries:
            self.add(entry)

    def add(self, entry: bytes) -> None:
        """Adds the next entry.

        Raises:
            LedgerBroken: It is not the next entry of this chain, or charges a block that does not exist.
        """
        try:
            fields = read(entry)
        except CorruptState as error:
            raise LedgerBroken(self.length, str(error)) from error
        if fields.get("seq") != self.length or type(fields.get("seq")) is not int:
            raise LedgerBroken(self.length, "its seq is not its place in the chain")
        if fields.get("prev") != self.head.hex():
            raise LedgerBroken(self.length, "it does not continue the entry before it")
        if fields.get("dataset") != self._dataset:
            raise LedgerBroken(self.length, "it is about another data set")
        self._add_up(fields)
        self.head = extend(self.head, entry)
        self.length += 1

    def _add_up(self, fields: Mapping[str, Any]) -> None:
        if fields["kind"] == "phase":
            self.charged.append((0, 0))
        try:
            for block, rho, delta in fields.get("charges", ()):
                before = self.charged[block]
                self.charged[block] = (before[0] + rho, before[1] + delta)
        except (TypeError, ValueError, IndexError):
            raise LedgerBroken(self.length, "its charges are not of blocks that exist") from None
