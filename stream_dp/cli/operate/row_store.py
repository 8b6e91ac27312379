"""What ``stream-dp doctor`` finds in the store of sealed rows, and of the cluster that counts them.

It writes a slab of its own, reads it, counts it and deletes it. No data set can have the name of its folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import numpy as np

from stream_dp.cli.operate.doctor_finding import DoctorFinding, bad, fault_of, good, note
from stream_dp.core.rows.slabs import SLOTS, Slab, TableAsked
from stream_dp.errors import CorruptState, InvalidInput, ServerUnavailable
from stream_dp.pipeline.rows.counting_cluster import (
    CountingCluster,
    CountTask,
    SlabStep,
    counted_in,
)
from stream_dp.pipeline.rows.slab_files import files_of
from stream_dp.state.private_names import name_of, new_salt

if TYPE_CHECKING:
    from stream_dp.core.rows.slot_counts import Counts
    from stream_dp.pipeline.rows.slab_files import SlabFiles
    from stream_dp.settings import WorkerSettings

_FOLDER: Final = "_doctor"
_SHAPE: Final = (4, 4)
_RIGHTS: Final = "start it, or give workers the rights to list, read, write and delete files there"
_STAYS: Final = "so rows that are erased stay"
_SAME: Final = (
    "start its processes with the STREAM_DP_ROWS and the STREAM_DP_ROWS_KEY_FILE of workers"
)


def findings(settings: WorkerSettings) -> Iterator[DoctorFinding]:
    """Yields what is found in the store that the settings name, and of the cluster.

    Args:
        settings: Those of a worker.
    """
    if settings.rows is None:
        if settings.count_with is not None:
            yield note(
                "STREAM_DP_COUNT_WITH is set, but the cluster counts files, and STREAM_DP_ROWS names none",
                "set STREAM_DP_ROWS, or unset STREAM_DP_COUNT_WITH",
            )
        return
    try:
        files = files_of(settings)
        assert files is not None, "the settings name one"
        address = urlsplit(settings.rows)
        if address.scheme == "s3":
            yield _versions(address)
        with _own_slab(files) as (step, truth):
            yield _timed(files, f"{address.scheme}://{_place(address)}{address.path}", step, truth)
            if settings.count_with is not None:
                yield _cluster(settings, step, truth)
        if files.names(_FOLDER) & set(step.layers):
            yield bad("the store of STREAM_DP_ROWS still has a file that was deleted", _RIGHTS)
    except ServerUnavailable as error:
        yield bad(str(error), _RIGHTS)
    except InvalidInput as error:
        yield fault_of(error)


@contextlib.contextmanager
def _own_slab(files: SlabFiles) -> Iterator[tuple[SlabStep, Counts]]:
    """A slab of a million rows in the store, and how many are in each cell. It is gone afterwards."""
    codes = np.arange(SLOTS, dtype=np.uint32)
    columns = {str(at): (codes >> 2 * at & 3).astype(np.uint8) for at in range(len(_SHAPE))}
    parts = Slab(SLOTS, SLOTS, columns).stored(new_salt())
    name = name_of(parts[0])
    try:
        files.put(_FOLDER, name, parts)
        yield SlabStep(0, TableAsked((0, 1), 0), (name,)), np.full(_SHAPE, SLOTS // 16)
    finally:
        files.drop(_FOLDER, name)


def _timed(files: SlabFiles, shown: str, step: SlabStep, truth: Counts) -> DoctorFinding:
    """Reads and counts a slab. The rate is a figure of this moment, and no promise."""
    began = time.perf_counter()
    try:
        table = counted_in(files, CountTask(_FOLDER, {0: _SHAPE}, (step,)))[0]
        is_right = np.array_equal(table.counts, truth)
    except CorruptState:
        is_right = False
    took = time.perf_counter() - began
    if not is_right:
        return bad(f"{shown} gives other bytes than were written to it", "use another store")
    rate = SLOTS / took / 1e6
    return good(
        f"{shown} keeps, gives and deletes files; {SLOTS:,} rows were read and counted there at "
        f"{rate:,.0f} million a second"
    )


def _versions(address: SplitResult) -> DoctorFinding:
    """Whether the bucket keeps what is deleted."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return note(
            f"the bucket was not asked whether it keeps versions of deleted files, {_STAYS}",
            "pip install stream-dp[s3], and run this again",
        )
    options = dict(parse_qsl(address.query))
    endpoint = options.get("endpoint_override")
    given: dict[str, Any] = {
        "region_name": options.get("region"),
        "endpoint_url": endpoint and f"{options.get('scheme', 'https')}://{endpoint}",
        "config": Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}),
    }
    if address.username is not None:
        given["aws_access_key_id"] = unquote(address.username)
        given["aws_secret_access_key"] = unquote(address.password or "")
    try:
        client = boto3.client("s3", **given)
        kept = client.get_bucket_versioning(Bucket=_place(address)).get("Status")
    except (BotoCoreError, ClientError, ValueError) as error:
        return note(
            f"the bucket does not say whether it keeps versions of deleted files ({type(error).__name__})",
            "give the right s3:GetBucketVersioning to who runs this",
        )
    if kept == "Enabled":
        return bad(
            f"the bucket keeps versions of deleted files, {_STAYS}",
            "use a bucket without versions: they cannot be switched off again, only suspended",
        )
    if kept is not None:
        return note(
            f"the bucket keeps no new versions, but those of earlier files, {_STAYS} in these",
            "delete old versions: aws s3api list-object-versions shows them",
        )
    return good("the bucket keeps no versions of deleted files")


def _place(address: SplitResult) -> str:
    """The bucket, without a password."""
    return address.netloc.rpartition("@")[2]


def _cluster(settings: WorkerSettings, step: SlabStep, truth: Counts) -> DoctorFinding:
    """Whether the cluster counts a slab of the store."""
    assert settings.count_with is not None, "somebody asks for it"
    tls = settings.count_tls_ca, settings.count_tls_cert, settings.count_tls_key
    cluster = CountingCluster(settings.count_with, tls)
    try:
        n_processes = cluster.n_processes()
        if not n_processes:
            return bad("the Dask cluster has no processes", "start some; workers count meanwhile")
        found = cluster.tables(_FOLDER, lambda block: _SHAPE, [step])
    except ServerUnavailable as error:
        return bad(f"{error}; workers count meanwhile", "start it, or see whether it knows the CA")
    finally:
        cluster.close()
    said = f"the Dask cluster has {n_processes:,} process{'es' * (n_processes != 1)}"
    if 0 in found and np.array_equal(found[0].counts, truth):
        return good(f"{said}, and one of them has counted rows of this store")
    return bad(f"{said}, but does not count rows of this store", _SAME)
