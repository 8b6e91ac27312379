"""The metrics that Prometheus reads, described in docs/metrics.md.

None derives from what a row holds, but for the answers to standing queries, which are shown as they were
published.

Counters grow as things happen. Current values are read when Prometheus asks, and cost nothing in between.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.share_bounds import OWNER
from stream_dp.core.outcome import Difficulty, Path
from stream_dp.messages import INPUTS, Answer, NoisyAnswer, RefusedAnswer
from stream_dp.pipeline.intake.records import Outgoing, Record
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.profiles.builder import epsilon_spent
from stream_dp.state.view import Usage

if TYPE_CHECKING:
    from stream_dp.pipeline.datasets.dataset import Dataset  # both import this
    from stream_dp.pipeline.worker import Worker
    from stream_dp.tokens import Verifier

# Else each counter brings a second series, of when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

_LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_MOST_OFF_MS = 60_000

_asked_ms = attrgetter("asked_ms")

Samples = dict[tuple[str, ...], float | None]
"""Current values by their labels. None for one that is not known, which is not shown."""


class Metrics:
    """Counters, and readers of current values, in a registry of their own.

    Attributes:
        worker: The worker that is shown with its data sets, as they are whenever Prometheus asks.
        lags: How many records are still to be taken, by the role of an input topic and its partition.
        keys: The keys for the tokens of queries. None where queries need no token.
        usage: What Redis has used of its memory.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> prometheus_client.Counter:
            return prometheus_client.Counter(
                f"stream_dp_{name}", text, labels, registry=self.registry
            )

        # Children are kept: looking one up takes longer than counting.
        self._records = cache(counter("records", "Input records taken", "topic").labels)
        self._clock_jumps = cache(
            counter("clock_jumps", "Input records whose time is off by a minute", "topic").labels
        )
        self._rejected = cache(counter("rejected", "Records rejected", "reason").labels)
        self._answers = cache(
            counter("answers", "Answers given", "dataset", "difficulty", "path").labels
        )
        self._refusals = cache(counter("refusals", "Queries refused", "dataset", "reason").labels)
        self._batches = counter("batches", "Batches taken in or refused", "dataset")
        self._unreadable = counter("source_unreadable", "Times that a source stopped", "dataset")
        self._rows_lost = counter("rows_lost", "Phases and waiting batches without rows", "dataset")
        for role in INPUTS:
            self._records(role)  # so that nothing taken shows as 0
            self._clock_jumps(role)
        self._newest: dict[str, tuple[int, int]] = {}  # the offset and time of each partition's
        self._latency = _Latency()
        self.usage: Usage | None = None
        self.worker: Worker | None = None
        self.keys: Verifier | None = None
        self.lags: Callable[[], Iterable[tuple[str, int, int]]] = tuple
        self.registry.register(self)

    def record(self, record: Record) -> None:
        """Counts a record that was taken. It is told if the clock that dated it is off by more than a minute.

        Then its time is ahead of this machine's, or before that of an earlier record of its partition.
        """
        self._records(record.role).inc()
        place, dated_ms = record.topic_partition, record.timestamp_ms
        offset, before_ms = self._newest.get(place, (record.offset, dated_ms))
        if dated_ms < 0 or record.offset < offset:
            return  # it has no time, or comes again
        self._newest[place] = record.offset, dated_ms
        if max(dated_ms - 1000 * time.time(), before_ms - dated_ms) > _MOST_OFF_MS:
            self._clock_jumps(record.role).inc()

    def rejected(self, reason: str) -> None:
        """Counts a rejected record."""
        self._rejected(reason).inc()

    def answer(self, reply: Answer) -> None:
        """Counts an answer or a refusal. Other replies count for nothing."""
        if isinstance(reply, RefusedAnswer):
            self._refusals(reply.dataset, reply.reason.code).inc()
        elif isinstance(reply, NoisyAnswer):
            self._answers(reply.dataset, reply.difficulty, reply.path).inc()

    def repeated(self, dataset: str) -> None:
        """Counts an answer that is known from the one before."""
        self._answers(dataset, Difficulty.EASY.value, Path.REPEAT.value).inc()

    def batch(self, dataset: str) -> None:
        """Counts a batch that was taken in or refused."""
        self._batches.labels(dataset).inc()

    def source_unreadable(self, dataset: str) -> None:
        """Counts that a source said that it has stopped, because its messages are not JSON objects."""
        self._unreadable.labels(dataset).inc()

    def rows_lost(self, dataset: str, given_up: int) -> None:
        """Counts phases, and batches that waited, whose rows are nowhere any more."""
        self._rows_lost.labels(dataset).inc(given_up)

    def released(self, outgoing: Iterable[Outgoing], now_s: float) -> None:
        """Times first replies that the broker has; other records count for nothing."""
        self._latency.add(outgoing, now_s)

    def exposition(self) -> bytes:
        """Returns the metrics in the text format that Prometheus scrapes."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yields the current values. The registry calls this at every scrape."""
        yield self._latency.family()
        lags: Samples = {(role, str(place)): records for role, place, records in self.lags()}
        yield _family("cursor_lag_messages", _LAG, lags, ("topic", "partition"))
        used, keys = self.usage, self.keys
        yield _single("store_memory_bytes", _USED, None if used is None else used.memory)
        yield _single("store_memory_limit_bytes", _LIMIT, None if used is None else used.limit)
        n_keys, failures = (None, None) if keys is None else (keys.n_keys, keys.failures)
        yield _single("identity_keys", "Keys that verify tokens", n_keys)
        yield _single("identity_keys_failures_total", _FAILURES, failures)
        if self.worker is not None:
            yield from _of_worker(self.worker)


def _family(name: str, text: str, samples: Samples, labels: Sequence[str] = ("dataset",)) -> Metric:
    """Current values: of a counter if its name ends like one, else of a gauge."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"stream_dp_{name}", text, labels=labels)
    for labelled, value in samples.items():
        if value is not None:
            family.add_metric(labelled, value)
    return family


def _single(name: str, text: str, value: float | None) -> Metric:
    """A value without labels."""
    return _family(name, text, {(): value}, ())


def _of_worker(worker: Worker) -> Iterator[Metric]:
    """Yields what is known of a worker and of the data sets that it holds."""
    held = {name: figures(one) for name, one in worker.datasets.items() if not one.retired}
    found = {**worker.parked, **held}
    for name, text in _OF_A_DATASET.items():
        yield _family(name, text, {(one,): values.get(name) for one, values in found.items()})
    yield from _of_shares(worker.datasets.values())
    yield from _of_tiles(worker.datasets.values())
    # One that has moved to another deployment has 0, because nothing is wrong with it.
    stopped: Samples = {(name,): 0 for name in worker.datasets}
    stopped |= {(name,): why != MOVED for name, why in worker.stopped.items()}
    yield _family("stopped", _STOPPED, stopped)
    deleted: Samples = {(place,): count for place, count in worker.ownership.deleted.items()}
    yield _family("records_deleted_unread", _DELETED, deleted, ["place"])
    yield _family("partition_cut", _CUT, {(place,): 1 for place in worker.cut}, ["place"])
    yield _single("ready", "1 while requests are answered", worker.ready)
    yield _single("outbox_records", "Records still to leave", worker.releaser.unreleased)
    following = worker.following
    yield _single("view_behind_commits", "Commits that Redis does not have yet", following.behind)
    since = following.contact.away_since
    away_s = 0.0 if since is None else max(0.0, time.time() - since)
    yield _single("view_away_seconds", "Since Redis answered last; 0 while it does", away_s)


_LAG = "Records of the log that are still to be taken"
_USED = "Memory of Redis that counts towards its limit"
_LIMIT = "Memory at which Redis drops keys or takes no more writes, or all of its host"
_FAILURES = "Times that these keys could not be read again"
_STOPPED = "1 while nobody can serve the data set"
_DELETED = "Records that were deleted before anyone read them"
_CUT = "1 while a partition that was cut is not read"


class _Latency:
    """The waits of queries for their first replies, at less cost per reply than the library's histogram."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_LATENCIES_S) + 1)
        self._sum = 0.0

    def add(self, outgoing: Iterable[Outgoing], now_s: float) -> None:
        for asked_ms, replies in Counter(map(_asked_ms, outgoing)).items():
            if asked_ms >= 0:
                seconds = max(0.0, now_s - asked_ms / 1000)
                self._counts[bisect_left(_LATENCIES_S, seconds)] += replies
                self._sum += replies * seconds

    def family(self) -> Metric:
        bounds = [*map(str, _LATENCIES_S), "+Inf"]
        family = HistogramMetricFamily(
            "stream_dp_answer_latency_seconds",
            "From the timestamp of a query's record to the release of its reply",
        )
        buckets = zip(bounds, accumulate(self._counts), strict=True)
        family.add_metric([], [*buckets], self._sum)
        return family


_OF_A_DATASET = {
    "privacy_limit_epsilon": "Epsilon promised to every row for life, or to every person",
    "privacy_delta": "Delta promised with it",
    "privacy_spent_epsilon": "Epsilon spent on the phase with the least left",
    "budget_spent_ratio": "Share of the budget spent on the phase with the least left",
    "newest_left_ratio": "Share of the newest phase's budget that is left",
    "newest_free_ratio": "Share of the newest phase's budget that queries may take now",
    "phase": "Phases opened",
    "phase_rows_needed": "Number of waiting rows at which the next phase opens",
    "rows_waiting": "Rows that wait for the next phase",
    "rows_late_waiting": "Late rows that wait to come to the phase of their period",
    "rows_sealed": "Rows in phases",
    "rows_accepted_total": "Rows accepted",
    "commits_total": "Commits",
    "last_commit_timestamp_seconds": "When this worker last committed",
    "quarantined": "1 while nothing is taken, because the worker died of a record",
}


def _of_shares(held: Iterable[Dataset]) -> Iterator[Metric]:
    """Yields what is left of shares. Labels name who is in a definition, and nobody else."""
    analysts: Samples = {}
    owners: Samples = {}
    for dataset in held:
        if dataset.retired or not dataset.phase:
            continue
        accounts, owner = dataset.accounts, dataset.accounts.paying.owner
        for name, spec in (accounts.paying.analysts or {}).items():
            share = spec.together if spec.share is None else spec.share
            if share:
                analysts[dataset.name, name] = accounts.share_left(name) / share
        if owner is not None and owner.share:
            owners[dataset.name,] = accounts.share_left(OWNER) / owner.share
    part_of = "Part of {} share of the newest phase that may be charged now"
    labels = ("dataset", "analyst")
    yield _family("share_left_ratio", part_of.format("an analyst's"), analysts, labels)
    yield _family("owner_share_left_ratio", part_of.format("the owner's"), owners)


_OF_A_TILE = {
    "answer": "The newest answer to a standing query",
    "answer_low": "The lower end of its error bar",
    "answer_high": "The upper end of its error bar",
    "answer_phase": "The phase of the newest answer",
    "answer_timestamp_seconds": "The time of the record that it followed",
}


def _of_tiles(held: Iterable[Dataset]) -> Iterator[Metric]:
    """Yields the newest answers to standing queries, as they were published."""
    found: dict[str, Samples] = {name: {} for name in _OF_A_TILE}
    for dataset in held:
        # Of several analysts who chose one id, the one who began first is shown: no label names an analyst.
        shown = {one.query_id: one.analyst for one in reversed([*dataset.standing_queries])}
        for tile, analyst in shown.items():
            latest = dataset.standing_queries.latest.get((analyst, tile))
            if latest is None:
                continue
            labels = dataset.name, tile
            found["answer_phase"][labels] = latest.phase
            dated_s = latest.dated_ms / 1000 if latest.dated_ms >= 0 else None
            found["answer_timestamp_seconds"][labels] = dated_s
            for cell, value, bar in latest.figures:
                found["answer"][*labels, cell] = value
                found["answer_low"][*labels, cell] = None if bar is None else value - bar
                found["answer_high"][*labels, cell] = None if bar is None else value + bar
    for name, text in _OF_A_TILE.items():
        of_cells = name in ("answer", "answer_low", "answer_high")
        labelled = ("dataset", "tile", *(["cell"] * of_cells))
        yield _family(name, text, found[name], labelled)


Figures = Mapping[str, float | None]
"""Published facts of a data set, by name in ``_OF_A_DATASET``, and when they were committed."""


def figures(dataset: Dataset) -> Figures:
    """Returns the published facts of a data set."""
    definition = dataset.definition
    spent = max(map(max, dataset.accounts.spent), default=0) / UNITS
    sealed = dataset.rows.blocks.n_rows(range(dataset.phase))
    return {
        "privacy_limit_epsilon": definition.privacy.epsilon,
        "privacy_delta": definition.privacy.delta,
        "privacy_spent_epsilon": epsilon_spent(definition, spent),
        "budget_spent_ratio": spent,
        "newest_left_ratio": dataset.accounts.newest_left if dataset.phase else None,
        "newest_free_ratio": dataset.accounts.newest_free if dataset.phase else None,
        "phase": dataset.phase,
        "phase_rows_needed": dataset.phases.needed,
        "rows_waiting": dataset.rows.waiting.n_rows_to_come,
        "rows_late_waiting": dataset.rows.waiting.n_rows - dataset.rows.waiting.n_rows_to_come,
        "rows_sealed": sealed,
        "rows_accepted_total": sealed + dataset.rows.waiting.n_rows,
        "commits_total": dataset.draft.state.number,
        "last_commit_timestamp_seconds": dataset.draft.committed_at,
        "quarantined": bool(dataset.quarantined),
    }
