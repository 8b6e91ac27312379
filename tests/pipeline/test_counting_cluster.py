"""Looks that a Dask cluster counts: the same tables, each once, and tasks that know nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster
from distributed.security import Security

from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import ShapeAt
from stream_dp.core.rows.slabs import Slab, TableAsked, merged
from stream_dp.core.rows.slot_counts import Counts
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.rows import counting_cluster, stored_blocks
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import (
    CountedTable,
    CountFailed,
    CountingCluster,
    CountTask,
    SlabStep,
    count,
    counted_in,
)
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.slab_files import KEY_SETTING, SETTING, SlabFiles, SlabPlace
from stream_dp.pipeline.rows.stored_blocks import StoredBlocks
from stream_dp.state.private_names import Named, new_salt

UNIVERSE = Universe((Category("a", tuple("abc")), Category("b", tuple("xyz"))))
SHAPE = tuple(UNIVERSE.shape)
SHAPES = dict.fromkeys(range(64), SHAPE)
KEY = bytes(range(32))
N_SLOTS = 50
PER_BLOCK = 3
N_BLOCKS = 6
ASKED = [
    *(TableAsked((0,), block) for block in range(N_BLOCKS)),
    *(TableAsked((0, 1), block) for block in (0, 2, 4, 4)),
    *(TableAsked((1,), block, 0) for block in range(N_BLOCKS - 1)),
    TableAsked((), 3),
]


def content(block: int, at: int) -> tuple[Slab, Slab]:
    """A slab, and which of its slots count."""
    rng = np.random.default_rng([block, at])
    columns: dict[str, Any] = {
        "0": rng.integers(0, SHAPE[0], N_SLOTS).astype(np.uint8),
        "1": rng.integers(0, SHAPE[1], N_SLOTS).astype(np.uint8),
        "value 0": rng.integers(0, 2**20, N_SLOTS).astype(np.uint32),
    }
    weight = rng.integers(0, 2, N_SLOTS).astype(np.uint8)
    return Slab(N_SLOTS, N_SLOTS, columns), Slab(N_SLOTS, N_SLOTS, {"weight": weight})


def whole(block: int, at: int) -> Slab:
    rows, weight = content(block, at)
    return replace(rows, columns={**rows.columns, **weight.columns})


TRUTH = [sum(one.table(SHAPE, whole(one.block, at)) for at in range(PER_BLOCK)) for one in ASKED]


class Store:
    """Blocks in files: the last one is merged, the others have layers of weights."""

    def __init__(self, folder: Path) -> None:
        self.files = SlabFiles.opened(SlabPlace(folder.as_uri(), KEY))
        self.keeper = Keeper(None, Context(), files=self.files)  # type: ignore[arg-type]
        self.named: list[list[tuple[Named, ...]]] = []

    async def fill(self) -> None:
        for block in range(N_BLOCKS):
            if block == N_BLOCKS - 1:
                every = [whole(block, at) for at in range(PER_BLOCK)]
                one = merged(UNIVERSE, [replace(s, columns=without_values(s)) for s in every])
                layers = [[one]]
            else:
                layers = [[*content(block, at)] for at in range(PER_BLOCK)]
            self.named.append(
                [
                    tuple(await self.keeper.keep("flights", [s.stored(new_salt()) for s in some]))
                    for some in layers
                ]
            )

    def blocks(self, cluster: Any) -> StoredBlocks:
        return StoredBlocks(
            "flights",
            lambda block: SHAPE,
            ColumnCache(1),
            lambda block, _: self.named[block],
            partial(self.keeper.parts, "flights"),
            lambda: [PER_BLOCK * N_SLOTS] * N_BLOCKS,
            cluster,
        )

    async def tables(self, cluster: Any) -> list[Counts]:
        stored = self.blocks(cluster)
        async with stored.readable():
            return await asyncio.to_thread(lambda: list(stored.tables(ASKED)))

    def steps(self) -> list[SlabStep]:
        return [
            SlabStep(table, one, tuple(layer.name for layer in layers))
            for table, one in enumerate(ASKED)
            for layers in self.named[one.block]
        ]


def without_values(slab: Slab) -> dict[str, Any]:
    return {name: column for name, column in slab.columns.items() if name != "value 0"}


@pytest.fixture(autouse=True)
def few_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows are a large look, of many tasks."""
    for module in (counting_cluster, stored_blocks):
        monkeypatch.setattr(module, "TASK_SLABS", 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of slabs, which processes of the cluster know by their settings."""
    path = tmp_path_factory.mktemp("rows")
    key = path.parent / "rows.key"
    key.write_bytes(KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, path.as_uri())
        patch.setenv(KEY_SETTING, str(key))
        yield path


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[tuple[LocalCluster, Security]]:
    security = Security.temporary()
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        protocol="tls",
        security=security,
        dashboard_address=":0",
        memory_limit=0,
    ) as cluster:
        yield cluster, security


@pytest.fixture
def cluster(local: tuple[LocalCluster, Security]) -> Iterator[CountingCluster]:
    found = cluster_at(*local)
    yield found
    found.close()


def cluster_at(local: LocalCluster, security: Security) -> CountingCluster:
    tls = security.tls_ca_file, security.tls_client_cert, security.tls_client_key
    return CountingCluster(local.scheduler_address, tls)


@pytest.fixture
async def store(folder: Path) -> Store:
    found = Store(folder)
    await found.fill()
    return found


def alike(tables: Sequence[Counts]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(tables, TRUTH, strict=True))


# ---------------------------------------------------------------- on a cluster


async def test_a_cluster_counts_what_the_worker_counts(
    store: Store, cluster: CountingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alike(await store.tables(None))
    counted = cluster.tables("flights", lambda block: SHAPE, store.steps())
    assert counted.keys() == set(range(len(ASKED)))

    async def never(*_: object, **__: object) -> None:
        raise AssertionError("the worker itself reads nothing")

    monkeypatch.setattr(store.keeper, "parts", never)
    assert alike(await store.tables(cluster))


async def test_looks_during_which_processes_are_killed_count_the_same(
    store: Store, cluster: CountingCluster, local: tuple[LocalCluster, Security]
) -> None:
    await looked_at_while_killing(store, cluster, local[0], looks=5)


@pytest.mark.slow
async def test_many_looks_during_which_a_process_is_killed_count_the_same(
    store: Store, cluster: CountingCluster, local: tuple[LocalCluster, Security]
) -> None:
    await looked_at_while_killing(
        store, cluster, local[0], looks=int(os.environ.get("LOOKS", "30"))
    )


async def looked_at_while_killing(
    store: Store, cluster: CountingCluster, local: LocalCluster, looks: int
) -> None:
    for look in range(looks):
        pids = [nanny.pid for nanny in local.workers.values() if nanny.pid]
        if pids:
            timer = threading.Timer(0.01 * (look % 7), lambda pid=pids[0]: os.kill(pid, 9))
            timer.start()
        assert alike(await store.tables(cluster)), look
        if pids:
            timer.join()


async def test_what_a_cluster_does_not_find_is_counted_here_and_its_log_shows_no_row(
    store: Store, cluster: CountingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its processes have another folder: what is missing there is not taken for rows that are gone."""
    other = Store(Path(store.files._root).parent / "elsewhere")
    await other.fill()
    with caplog.at_level(logging.DEBUG):
        assert alike(await other.tables(cluster))


async def test_a_cluster_that_is_gone_is_done_without(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting_cluster, "_PATIENCE_S", 1.0)
    gone = CountingCluster("tls://127.0.0.1:1", (None, None, None))
    assert alike(await store.tables(gone))
    assert "the Dask cluster does not count" in caplog.text


# ---------------------------------------------------------------- a single task


class Given:
    """A cluster that says what it is given to say."""

    def __init__(self, store: Store, change: Any) -> None:
        self._store, self._change = store, change

    def tables(
        self, dataset: str, shape_at: ShapeAt, steps: Sequence[SlabStep]
    ) -> dict[int, CountedTable]:
        task = CountTask(dataset, SHAPES, tuple(steps))
        return {
            table: one
            for table, said in counted_in(self._store.files, task).items()
            if (one := self._change(table, said)) is not None
        }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("all", lambda _, said: said),
        ("a table is missing", lambda table, said: None if table % 2 else said),
        ("rows are missing", lambda _, said: CountedTable(said.counts * 0, 0)),
        ("rows count twice", lambda _, said: said.and_in(said)),
    ],
)
async def test_tables_that_are_missing_or_of_other_rows_are_counted_again(
    store: Store, name: str, change: Any
) -> None:
    assert alike(await store.tables(Given(store, change))), name


async def test_a_task_that_comes_twice_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one without a result is not taken for zeros."""
    cluster = CountingCluster("tls://127.0.0.1:1", (None, None, None))
    steps = store.steps()

    def counted(tasks: Sequence[CountTask]) -> dict[int, Any]:
        found = {number: counted_in(store.files, task) for number, task in enumerate(tasks)}
        return {number: found[number] for number in (*found, *found) if number != 1}

    monkeypatch.setattr(cluster, "_counted", counted)
    found = cluster.tables("flights", lambda block: SHAPE, steps)
    lacking = {step.table for step in steps[4:8]}
    assert found.keys() == set(range(len(ASKED))) - lacking
    assert all(np.array_equal(one.counts, TRUTH[table]) for table, one in found.items())


async def test_a_task_holds_no_secret_address_or_query(store: Store) -> None:
    task = CountTask("flights", SHAPES, tuple(store.steps()))
    sent = pickle.dumps(task)
    for hidden in (KEY, store.files._root.encode(), b"noise", b"sigma", b"query", b"analyst"):
        assert hidden not in sent
    assert repr(task) == "CountTask(dataset='flights')"
    assert repr(counted_in(store.files, task)[0]) == "CountedTable()"


async def test_tasks_of_other_rows_look_alike(tmp_path: Path, store: Store) -> None:
    """Names differ, for they are salted; lengths and numbers do not."""
    again = Store(tmp_path)
    await again.fill()
    one, other = (CountTask("flights", SHAPES, tuple(each.steps())) for each in (store, again))
    assert len(pickle.dumps(one)) == len(pickle.dumps(other))
    assert one != other, "so no result of another look serves"


async def test_each_look_has_keys_of_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[tuple[str, bool]] = []

    class Client:
        def submit(self, step: Any, task: CountTask, *, key: str, pure: bool, retries: int) -> Any:
            del step, task, retries
            submitted.append((key, pure))
            raise OSError

        def close(self, timeout: float) -> None:
            del timeout

    cluster = CountingCluster("tls://127.0.0.1:1", (None, None, None))
    monkeypatch.setattr(cluster, "_connected", Client)
    for _ in range(3):
        assert cluster.tables("flights", lambda block: SHAPE, store.steps()) == {}
    assert len(set(submitted)) == 3
    assert not any(pure for _, pure in submitted)


def test_what_goes_wrong_is_told_without_a_word_of_rows(
    folder: Path,
) -> None:
    task = CountTask("flights", SHAPES, (SlabStep(0, TableAsked((0,), 0), (b"hidden name.....",)),))
    with pytest.raises(CountFailed) as failed:
        count(task)
    assert str(failed.value) == "CorruptState"
    assert failed.value.__suppress_context__
    counting_cluster._own_files.cache_clear()


async def test_small_looks_are_counted_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nothing is sent")

    monkeypatch.setattr(stored_blocks, "TASK_SLABS", 1_000)
    assert alike(await store.tables(SimpleNamespace(tables=never)))


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "10.0.0.1:8786", "inproc://x"])
def test_a_cluster_without_tls_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"^STREAM_DP_COUNT_WITH: it is not encrypted"):
        CountingCluster(address, (None, None, None))
