"""What all data sets of a worker are held with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import Releasable
from stream_dp.pipeline.kafka.topic_log import InputReader
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import CountingCluster
from stream_dp.pipeline.rows.private_values import Keeper

Appended = Callable[[Releasable], Awaitable[None]]
"""Returns when the journal has some commits; raises Fenced if another worker appends there by now."""


@dataclass(frozen=True)
class Tools:
    """What all data sets of a worker are held with.

    Attributes:
        keeper: Keeps their private values.
        rows: The batches of rows, to be read again.
        partitions: The number of partitions of their topic.
        appended: Returns when the journal has some commits. No look is taken before it has its charge.
        noise: Makes the source of noise of a data set. Several may be in hand at the same time.
        context: What the parts of the worker have in common.
        key_file: What the key file of persons holds; None without one.
        cache: The cache of columns that the data sets share.
        cluster: Counts large looks. None to count all of them in the worker.
    """

    keeper: Keeper
    rows: InputReader
    partitions: int
    appended: Appended
    noise: Callable[[], NoiseSource]
    context: Context
    key_file: bytes | None = field(default=None, repr=False)
    cache: ColumnCache = field(default_factory=ColumnCache)
    cluster: CountingCluster | None = None
