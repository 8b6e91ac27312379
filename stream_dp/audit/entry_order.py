"""Puts the entries of one data set in order, and says where the chain does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stream_dp.errors import CorruptState
from stream_dp.state import ledger

Complain = Callable[[int | None, str], None]
"""Takes the number of an entry, None where it has none, and what is wrong."""


def in_order(
    dataset: str, records: Sequence[bytes], complain: Complain
) -> tuple[list[dict[str, Any]], bytes]:
    """The entries by their number, and the head of their chain.

    The same bytes twice are one entry: the worker may send one again. Of two that differ under one number the
    one that the next entry continues is taken.

    Args:
        dataset: The name of the data set.
        records: The records in the order of the topic.
        complain: A function that receives each fault.
    """
    found: dict[int, dict[bytes, dict[str, Any]]] = {}
    for record in records:
        try:
            fields = ledger.read(record)
        except CorruptState as error:
            complain(None, f"a record under its key is not an entry: {error}")
            continue
        seq = fields.get("seq")
        if type(seq) is not int or seq < 0:
            complain(None, "a record under its key has no number")
        elif fields.get("dataset") != dataset:
            complain(seq, "it is under this data set's key and about another one")
        else:
            found.setdefault(seq, {})[record] = fields
    entries: list[dict[str, Any]] = []
    # Entries that the next one does not continue; -1 stands before the first.
    broken: list[int] = []
    head: bytes | None = ledger.GENESIS  # that the next entry must continue, where it is known
    expected = 0
    for seq, here in sorted(found.items()):
        if seq > expected:
            more = f", and so are those up to entry {seq - 1}" if seq > expected + 1 else ""
            complain(expected, f"it is missing{more}")
            head = None
        expected = seq + 1
        after = {_prev(fields) for fields in found.get(seq + 1, {}).values()}
        entry = max(here, key=lambda one: _fits(here[one], one, head, after))
        if len(here) > 1:
            complain(seq, f"it is on the topic {len(here)} times, each time with another content")
        if head is not None and _prev(here[entry]) != head:
            broken.append(seq - 1)
        head = ledger.extend(_prev(here[entry]), entry)
        entries.append(here[entry])
    _say_where(broken, complain)
    return entries, head or ledger.GENESIS


def _say_where(broken: Sequence[int], complain: Complain) -> None:
    """Names the entries at which the chain does not hold: one that fits on neither side was changed."""
    named = None
    for seq in broken:
        if seq + 1 in broken:
            named = seq + 1
            complain(
                named, "it fits neither to the entry before it nor to the next one: it was changed"
            )
        elif seq < 0:
            complain(0, "it does not begin the chain")
        elif seq != named:
            complain(
                seq, "it is not what the next entry continues: it was changed, or the next one was"
            )


def _fits(
    fields: dict[str, Any], entry: bytes, head: bytes | None, after: set[bytes]
) -> tuple[bool, bool]:
    """Returns whether an entry is continued by the next one, and whether it continues the one before it."""
    return ledger.extend(_prev(fields), entry) in after, _prev(fields) == head


def _prev(fields: dict[str, Any]) -> bytes:
    """The head that an entry says it continues; nothing where it says none."""
    try:
        return bytes.fromhex(fields.get("prev", ""))
    except (TypeError, ValueError):
        return b""
