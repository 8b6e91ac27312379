"""What can be seen of a run, and of two that are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stream_dp.pipeline.health import Health
from stream_dp.pipeline.keeping import WAITED
from stream_dp.pipeline.needs import JOURNAL
from stream_dp.state.journal import CommitRecord
from stream_dp.state.kept import Place
from stream_dp.web.published import READ, Published
from stream_dp.web.views import Views, health_document
from tests.pipeline.blindfold.compensating_noise import Compensating


def visible(world: Any, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Everything that can be seen of a run."""
    metrics = world.processes[-1].worker.metrics.exposition().decode()
    return {
        "released": [
            (e.outgoing.role, e.outgoing.key, e.outgoing.value, e.outgoing.headers)
            for e in world.trail
            if hasattr(e, "outgoing")
        ],
        "logged": [(r.name, r.levelname, r.getMessage()) for r in caplog.records],
        # When something was committed says nothing of a row, and is never the same twice.
        "metrics": [line for line in metrics.splitlines() if "_timestamp_seconds" not in line],
        "pages": _pages(world),
        "commits": [
            (
                len(t.pending),
                [len(rows) for rows in t.pending],
                len(t.seal or b""),
                {name: len(secret) for name, secret in t.vault.items()},
                t.charges,
                t.intent,
                t.transcript,
            )
            for t in (e.transition for e in world.trail if hasattr(e, "transition"))
        ],
        "journal": [_said(entry) for entries in world.journal for entry in entries],
        "kept": [(key.split(b"/")[:2], len(value)) for key, value in world.kept.items()],
        "places": [
            t.seal
            for t in (e.transition for e in world.trail if hasattr(e, "transition"))
            if t.seal is not None and Place.is_in(t.seal)
        ],
        "blocks": [process.store.blocks for process in world.processes],
        "fetched": [
            [key.split(b"/")[:2] for key in process.kept.fetched] for process in world.processes
        ],
        "steps": [process.effects for process in world.processes],
    }


def _said(entry: Any) -> object:
    """An entry of the journal, without what is drawn at random whatever the rows are."""
    if dict(entry.headers)["type"] != b"commit":
        return entry.key, entry.headers
    record, _ = CommitRecord.from_bytes(entry.value)
    meta = {
        name: re.sub("[0-9a-f]{16}", "", text) if name in (JOURNAL, WAITED) else text
        for name, text in record.meta.items()
        if not name.startswith("kept ")
    }
    return entry.headers, replace(record, prev=b"", nonce=b"", meta=meta)


def _pages(world: Any) -> list[dict[str, bytes]]:
    """What the pages and their streams show of each data set, to operators and analysts."""
    published = Published()
    for event in world.trail:
        if hasattr(event, "outgoing") and event.outgoing.role in READ:
            published.take(event.outgoing.role, event.outgoing.key, event.outgoing.value, 0)
    for place, records in world.log.items():
        for record in records if place.startswith("in.queries:") else ():
            published.take("queries", (record.key or b"").decode(), record.value, 0)
    at_work = world.processes[-1].worker
    health = Health(
        ready=at_work.ready,
        partitions=tuple(sorted(at_work.ownership.held)),
        waiting={name: dataset.waiting for name, dataset in at_work.datasets.items()},
        quarantined={name: d.quarantined for name, d in at_work.datasets.items() if d.quarantined},
    )
    views = Views(published)
    return [
        {"health": health_document(health)},
        *(view(name) for name in published.datasets for view in (views.public, views.operator)),
    ]


@dataclass
class Both:
    """Two runs that differ in one row, and whose releases are alike."""

    seen: list[dict[str, Any]]
    worlds: list[Any]
    noise: list[Compensating]
