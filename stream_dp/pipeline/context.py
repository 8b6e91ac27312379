"""What the parts of a worker have in common: the crash points, the heartbeat and the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.pipeline.watch.crash_points import Fuse, unarmed
from stream_dp.pipeline.watch.metrics import Metrics
from stream_dp.pipeline.watch.watchdog import Heartbeat


@dataclass(frozen=True)
class Context:
    """What a worker hands to all its parts. A command that has no worker needs nothing else than this.

    Attributes:
        fuse: Called at each crash point. In production it does nothing.
        heartbeat: Beats with whatever gets done.
        metrics: Counts it for Prometheus.
    """

    fuse: Fuse = unarmed
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    metrics: Metrics = field(default_factory=Metrics)
