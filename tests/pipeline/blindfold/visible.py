"""What can be seen of a run, and of two that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from stream_dp.core.rows.slabs import SlabIndex
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.page_data.published_state import READ, PublishedState
from stream_dp.web.page_data.views import Views, health_document
from tests.pipeline.blindfold.compensating_noise import Compensating
from tests.pipeline.trail import Sent


def visible(world: Any, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Everything that can be seen of a run. What is drawn at random has to be drawn alike in both."""
    metrics = world.processes[-1].worker.context.metrics.exposition().decode()
    return {
        "released": [
            (e.outgoing.role, e.outgoing.key, e.outgoing.value, e.outgoing.headers)
            for e in world.trail
            if isinstance(e, Sent)
        ],
        "logged": [(r.name, r.levelname, r.getMessage()) for r in caplog.records],
        # When something was committed says nothing of a row, and is never the same twice.
        "metrics": [line for line in metrics.splitlines() if "_timestamp_seconds" not in line],
        "pages": _pages(world),
        "journal": [
            (entry.key, entry.headers, entry.value)
            for entries in world.journal
            for entry in entries
        ],
        "kept": [(key, _shown(parts)) for key, parts in world.kept_log],
        "left": list(world.kept),
        "redis": _in_redis(world.view),
        "fetched": [(process.kept.fetched, process.view.read) for process in world.processes],
        "steps": [process.effects for process in world.processes],
    }


def _shown(parts: Sequence[bytes]) -> tuple[list[int], list[tuple[str, int]]]:
    """What shows of a private value: the lengths of its parts, and the names and types of its columns."""
    columns: list[tuple[str, int]] = []
    if len(parts) > 1:
        index = SlabIndex.from_bytes(parts[0])
        columns = [(name, index.itemsize(index.place(name))) for name in index.names]
    return [*map(len, parts)], columns


def _in_redis(view: Any) -> dict[str, Any]:
    """What Redis has, of parts of private values their names and lengths."""
    return {
        "states": view.states,
        "answers": view.generations,
        "values": {
            name: [(one, len(value)) for one, value in values.items()]
            for name, values in view.values.items()
        },
    }


def _pages(world: Any) -> list[dict[str, bytes]]:
    """What the pages and their streams show of each data set, to operators and analysts."""
    published = PublishedState()
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role in READ:
            published.take(event.outgoing.role, event.outgoing.key, event.outgoing.value, 0)
    for place, records in world.log.items():
        for record in records if place.startswith("in.queries:") else ():
            published.take("queries", (record.key or b"").decode(), record.value, 0)
    at_work = world.processes[-1].worker
    health = Health(
        ready=at_work.ready,
        partitions=tuple(sorted(at_work.ownership.held)),
        waiting={name: dataset.rows.waiting.n_rows for name, dataset in at_work.datasets.items()},
        quarantined={name: d.quarantined for name, d in at_work.datasets.items() if d.quarantined},
    )
    views = Views(published)
    return [
        {"health": health_document(health)},
        *(view(name) for name in published.datasets for view in (views.public, views.operator)),
    ]


@dataclass
class Both:
    """Runs that differ in one row, and whose releases are alike."""

    seen: list[dict[str, Any]]
    worlds: list[Any]
    noise: list[Compensating]

    @property
    def unlike(self) -> set[str]:
        """What tells one run from the first one."""
        first, *others = self.seen
        return {what for seen in others for what in first if seen[what] != first[what]}

    @property
    def complaints(self) -> list[str]:
        """What the referees of the runs have to say."""
        return [one for world in self.worlds for one in world.complaints()]
