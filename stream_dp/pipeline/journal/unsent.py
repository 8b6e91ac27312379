"""What a former owner of a partition committed and may not have sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_dp.pipeline.intake.records import Decided, Outgoing
from stream_dp.pipeline.journal.newest import COMPACTED
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.queries import query_answerer
from stream_dp.state.codec import OutboxRecord, outbox_from_bytes
from stream_dp.state.schema import StateTable


def unsent(owned: Owned) -> list[tuple[Decided, Outgoing]]:
    """The commits whose output may not have left, with each record of it, in order.

    Of a compacted topic that is the newest record of each key alone.
    """
    queued: list[tuple[Decided, Outgoing]] = []
    for committed in owned.unreleased():
        commit, decided = committed.commit, Decided.of(committed)
        out = outbox_from_bytes(commit.out) if commit.out else ()
        queued += [(decided, _again(commit.dataset, one, commit.pairs)) for one in out]
    newest = {(one.role, one.key): decided for decided, one in queued}
    return [
        (decided, one)
        for decided, one in queued
        if one.role not in COMPACTED or newest[one.role, one.key] is decided
    ]


def _again(dataset: str, one: OutboxRecord | str, pairs: Mapping[Any, bytes | None]) -> Outgoing:
    """A record of a commit as it was the first time, but for its timestamp."""
    if isinstance(one, str):
        stored = pairs[StateTable.ANSWER, one.encode()]
        assert stored is not None, "the same commit stores it"
        return query_answerer.released_again(dataset, one, stored)
    key, value = (one.key or b"").decode(), one.value or b""
    return Outgoing(one.role, key, value, tuple(one.headers), dated_ms=-1)
