"""The metrics that Prometheus reads, described in docs/metrics.md.

None derives from what a row holds, but for the answers to standing queries, which are shown as they were
published.

Counters grow as things happen. Current values are read when Prometheus asks, and cost nothing in between.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

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
from stream_dp.messages import INPUTS, Answer, NoisyAnswer, RefusedAnswer
from stream_dp.pipeline.intake.records import Outgoing, Record
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.profiles.builder import epsilon_spent
from stream_dp.state.view import Usage

if TYPE_CHECKING:
    from stream_dp.pipeline.datasets.dataset import Dataset  # both import this
    from stream_dp.pipeline.worker import Worker

# Else each counter brings a second series, of when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

_LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_MOST_OFF_MS = 60_000

_asked_ms = attrgetter("asked_ms")


class WatchedKeys(Protocol):
    """The part of the keys for tokens that the metrics show."""

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        ...

    @property
    def failures(self) -> int:
        """How often they could not be read again."""
        ...


class Metrics:
    """Counters, and readers of current values, in a registry of their own."""

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
        self._usage: Usage | None = None
        self._worker: Worker | None = None
        self._keys: WatchedKeys | None = None
        self._lags: Callable[[], Iterable[tuple[str, int, int]]] = tuple
        self.registry.register(self)

    def watch(self, worker: Worker) -> None:
        """Shows a worker and its data sets, as they are whenever Prometheus asks."""
        self._worker = worker

    def watch_lags(self, lags: Callable[[], Iterable[tuple[str, int, int]]]) -> None:
        """Shows, by the role of an input topic and its partition, how many records are still to be taken."""
        self._lags = lags

    def watch_keys(self, keys: WatchedKeys) -> None:
        """Shows how many keys there are for the tokens of queries."""
        self._keys = keys

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

    def store_used(self, usage: Usage | None) -> None:
        """Notes what Redis has used of its memory."""
        self._usage = usage

    def exposition(self) -> bytes:
        """Returns the metrics in the text format that Prometheus scrapes."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yields the current values. The registry calls this at every scrape."""
        worker = self._worker
        yield self._latency.family()
        if worker is None:
            yield from _of_datasets({})
        else:
            held = {name: figures(one) for name, one in worker.datasets.items() if not one.retired}
            yield from _of_datasets({**worker.parked, **held})
        yield from _of_shares([] if worker is None else worker.datasets.values())
        yield from _of_tiles([] if worker is None else worker.datasets.values())
        lag = GaugeMetricFamily(
            "stream_dp_cursor_lag_messages",
            "Records of the log that are still to be taken",
            labels=["topic", "partition"],
        )
        for role, partition, records in self._lags():
            lag.add_metric([role, str(partition)], records)
        yield lag
        yield _stopped((), {}) if worker is None else _stopped(worker.datasets, worker.stopped)
        yield _deleted({} if worker is None else worker.ownership.deleted)
        yield _cut(() if worker is None else worker.cut)
        ready = None if worker is None else worker.ready
        unreleased = None if worker is None else worker.releaser.unreleased
        yield _single("ready", "1 while requests are answered", ready)
        following = None if worker is None else worker.following
        behind = None if following is None else following.behind
        yield _single("view_behind_commits", "Commits that Redis does not have yet", behind)
        away_s = None if following is None else _away_s(following.contact.away_since)
        yield _single("view_away_seconds", "Since Redis answered last; 0 while it does", away_s)
        used = self._usage
        yield _single("store_memory_bytes", _USED, None if used is None else used.memory)
        yield _single("store_memory_limit_bytes", _LIMIT, None if used is None else used.limit)
        yield _single("outbox_records", "Records still to leave", unreleased)
        yield from _of_keys(self._keys)


def _away_s(since: float | None) -> float:
    return 0.0 if since is None else max(0.0, time.time() - since)


def _of_keys(keys: WatchedKeys | None) -> Iterator[Metric]:
    """Yields what is known of the keys for tokens; families without a sample where there are none."""
    yield _single("identity_keys", "Keys that verify tokens", None if keys is None else keys.n_keys)
    failures = CounterMetricFamily(
        "stream_dp_identity_keys_failures", "Times that these keys could not be read again"
    )
    if keys is not None:
        failures.add_metric([], keys.failures)
    yield failures


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


def _stopped(held: Iterable[str], stopped: Mapping[str, str]) -> Metric:
    """One that has moved to another deployment has 0, because nothing is wrong with it."""
    values = dict.fromkeys(held, 0) | {name: int(why != MOVED) for name, why in stopped.items()}
    family = GaugeMetricFamily(
        "stream_dp_stopped", "1 while nobody can serve the data set", labels=["dataset"]
    )
    for name, value in values.items():
        family.add_metric([name], value)
    return family


def _deleted(records: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(
        "stream_dp_records_deleted_unread",
        "Records that were deleted before anyone read them",
        labels=["place"],
    )
    for topic_partition, count in records.items():
        family.add_metric([topic_partition], count)
    return family


def _cut(places: Iterable[str]) -> Metric:
    family = GaugeMetricFamily(
        "stream_dp_partition_cut", "1 while a partition that was cut is not read", labels=["place"]
    )
    for topic_partition in places:
        family.add_metric([topic_partition], 1)
    return family


def _single(name: str, text: str, value: float | None) -> Metric:
    """A gauge without labels; without a sample while its value is not known."""
    family = GaugeMetricFamily(f"stream_dp_{name}", text)
    if value is not None:
        family.add_metric([], value)
    return family


_USED = "Memory of Redis that counts towards its limit"
_LIMIT = "Memory at which Redis drops keys or takes no more writes, or all of its host"

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
    "rows_sealed": "Rows in phases",
    "rows_accepted_total": "Rows accepted",
    "commits_total": "Commits",
    "last_commit_timestamp_seconds": "When this worker last committed",
    "quarantined": "1 while nothing is taken, because the worker died of a record",
}


def _of_datasets(found: Mapping[str, Figures]) -> Iterator[Metric]:
    for name, text in _OF_A_DATASET.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"stream_dp_{name}", text, labels=["dataset"])
        for dataset, values in found.items():
            if (value := values.get(name)) is not None:
                family.add_metric([dataset], value)
        yield family


def _of_shares(held: Iterable[Dataset]) -> Iterator[Metric]:
    """Yields what is left of shares. Labels name who is in a definition, and nobody else."""
    analysts = GaugeMetricFamily(
        "stream_dp_share_left_ratio",
        "Part of an analyst's share of the newest phase that may be charged now",
        labels=["dataset", "analyst"],
    )
    owner = GaugeMetricFamily(
        "stream_dp_owner_share_left_ratio",
        "Part of the owner's share of the newest phase that may be charged now",
        labels=["dataset"],
    )
    for dataset in held:
        if dataset.retired or not dataset.phase:
            continue
        for name, spec in (dataset.accounts.paying.analysts or {}).items():
            share = spec.together if spec.share is None else spec.share
            if share:
                analysts.add_metric([dataset.name, name], dataset.accounts.share_left(name) / share)
        kept = dataset.accounts.paying.owner
        if kept is not None and kept.share:
            owner.add_metric([dataset.name], dataset.accounts.share_left(OWNER) / kept.share)
    yield from (analysts, owner)


_OF_A_CELL = {
    "answer": "The newest answer to a standing query",
    "answer_low": "The lower end of its error bar",
    "answer_high": "The upper end of its error bar",
}

_OF_A_TILE = {
    "answer_phase": "The phase of the newest answer",
    "answer_timestamp_seconds": "The time of the record that it followed",
}


def _of_tiles(held: Iterable[Dataset]) -> Iterator[Metric]:
    """Yields the newest answers to standing queries, as they were published."""

    def family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"stream_dp_{name}", text, labels=["dataset", "tile", *labels])

    cells = {name: family(name, text, "cell") for name, text in _OF_A_CELL.items()}
    tiles = {name: family(name, text) for name, text in _OF_A_TILE.items()}
    for dataset in held:
        # Of several analysts who chose one id, the one who began first is shown: no label names an analyst.
        shown = {one.query_id: one.analyst for one in reversed([*dataset.standing_queries])}
        for tile, analyst in shown.items():
            latest = dataset.standing_queries.latest.get((analyst, tile))
            if latest is None:
                continue
            tiles["answer_phase"].add_metric([dataset.name, tile], latest.phase)
            if latest.dated_ms >= 0:
                dated_s = latest.dated_ms / 1000
                tiles["answer_timestamp_seconds"].add_metric([dataset.name, tile], dated_s)
            for cell, value, error_bar in latest.figures:
                labels = [dataset.name, tile, cell]
                cells["answer"].add_metric(labels, value)
                if error_bar is not None:
                    cells["answer_low"].add_metric(labels, value - error_bar)
                    cells["answer_high"].add_metric(labels, value + error_bar)
    yield from cells.values()
    yield from tiles.values()


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
        "rows_waiting": dataset.rows.waiting.n_rows,
        "rows_sealed": sealed,
        "rows_accepted_total": sealed + dataset.rows.waiting.n_rows,
        "commits_total": dataset.draft.state.number,
        "last_commit_timestamp_seconds": dataset.draft.committed_at,
        "quarantined": bool(dataset.quarantined),
    }
