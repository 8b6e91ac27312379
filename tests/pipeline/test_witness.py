"""What the ledger topic is compared with, entry by entry; the real topic is in tests/faults."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.errors import RolledBack
from stream_dp.pipeline.witness import Witness
from stream_dp.state import ledger


class Topic(Witness):
    """A ledger topic in memory."""

    def __init__(self, *records: tuple[bytes, bytes]) -> None:
        self._last = {}
        for key, value in records:
            self._note(key, value)

    async def read(self) -> None:
        """Nothing is ever added."""


class Stored:
    def __init__(self, *entries: bytes) -> None:
        self._entries = list(entries)

    async def ledger(self, dataset: str, start: int = 0) -> list[bytes]:
        return self._entries[start:] if dataset == "flights" else []


def chain(*bodies: dict[str, Any]) -> list[bytes]:
    head, entries = ledger.GENESIS, []
    for index, body in enumerate(bodies):
        entry, head = ledger.append(head, index, "flights", "charge", body)
        entries.append(entry)
    return entries


ONE, TWO, THREE = chain({"n": 1}, {"n": 2}, {"n": 3})
_, OTHER = chain({"n": 1}, {"n": 20})
KEY = b"flights"


@pytest.mark.parametrize(
    ("published", "stored"),
    [
        ([], [ONE]),
        ([ONE], [ONE]),
        ([ONE, TWO], [ONE, TWO, THREE]),
        ([TWO, ONE, TWO, ONE], [ONE, TWO]),
        ([ONE, b"{", b"\xff", b"[]"], [ONE]),
    ],
    ids=["nothing published", "equal", "store ahead", "sent again", "not ours"],
)
async def test_a_store_that_knows_all_that_was_published_is_good(
    published: list[bytes], stored: list[bytes]
) -> None:
    witness = Topic(*((KEY, entry) for entry in published))
    await witness.check(Stored(*stored), lambda _: True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("published", "stored"),
    [
        ([ONE], []),
        ([ONE, TWO], [ONE]),
        ([ONE, TWO], [ONE, OTHER]),
        ([ONE, TWO], [ONE, OTHER, THREE]),
        ([ONE, TWO, OTHER], [ONE, OTHER]),
    ],
    ids=["emptied", "older", "another history", "grown since", "spent twice already"],
)
async def test_a_store_that_has_forgotten_or_tells_another_history_is_not(
    published: list[bytes], stored: list[bytes]
) -> None:
    witness = Topic(*((KEY, entry) for entry in published))
    with pytest.raises(RolledBack, match="flights"):
        await witness.check(Stored(*stored), lambda _: True)  # type: ignore[arg-type]
    await witness.check(Stored(*stored), lambda _: False)  # type: ignore[arg-type]


async def test_an_entry_under_another_key_says_nothing() -> None:
    await Topic((b"other", ONE)).check(Stored(), lambda _: True)  # type: ignore[arg-type]
