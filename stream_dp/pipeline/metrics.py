"""What Prometheus sees: public figures and the process. Nothing derives from what a row holds."""

from __future__ import annotations

import contextlib
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from stream_dp.core.accounting import UNITS
from stream_dp.messages import Answer
from stream_dp.pipeline.dataset import Dataset

__all__ = ["Metrics"]


class Metrics:
    """Counters and gauges in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stream_dp_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"stream_dp_{name}", text, labels, registry=self.registry)

        # Children are kept: looking one up takes longer than counting.
        self._records = cache(counter("records", "Input records read", "topic").labels)
        self._rejected = cache(counter("rejected", "Records rejected", "reason").labels)
        self._answers = cache(
            counter("answers", "Answers released", "dataset", "difficulty", "path").labels
        )
        self._refusals = cache(counter("refusals", "Questions refused", "dataset", "reason").labels)
        self._batches = counter("batches", "Batches taken in or refused", "dataset")
        self._phase = gauge("phase", "Phases opened", "dataset")
        self._waiting = gauge("rows_waiting", "Rows that wait for the next phase", "dataset")
        self._rows = gauge("rows_sealed", "Rows in sealed blocks", "dataset")
        self._spent = gauge("budget_spent_ratio", "Spent share of the line spent most", "dataset")
        self._safe = gauge("store_safe", "1 while no acknowledged commit can be forgotten")

    def record(self, role: str) -> None:
        self._records(role).inc()

    def rejected(self, reason: str) -> None:
        self._rejected(reason).inc()

    def answer(self, reply: Answer) -> None:
        if reply.status == "refused" and reply.reason is not None:
            self._refusals(reply.dataset, reply.reason.code).inc()
        elif reply.status == "answered":
            self._answers(reply.dataset, reply.difficulty, reply.path).inc()

    def batch(self, dataset: Dataset) -> None:
        self._batches.labels(dataset.name).inc()
        self.dataset(dataset)

    def dataset(self, dataset: Dataset) -> None:
        """The public figures of a data set that change with batches and paid looks."""
        if dataset.definition is None:
            return
        name = dataset.name
        window = range(dataset.phase)
        self._phase.labels(name).set(dataset.phase)
        self._waiting.labels(name).set(dataset.waiting)
        self._rows.labels(name).set(dataset.rows_in(window))
        worst = max((max(line) for line in dataset.spent), default=0)
        self._spent.labels(name).set(worst / UNITS)

    def forget(self, name: str) -> None:
        """Drops the figures of a data set that another worker shows from now on."""
        for figure in (self._phase, self._waiting, self._rows, self._spent):
            with contextlib.suppress(KeyError):
                figure.remove(name)

    def store_safe(self, *, safe: bool) -> None:
        self._safe.set(int(safe))

    def exposition(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self.registry)
