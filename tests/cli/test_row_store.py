"""What ``stream-dp doctor`` finds in the store of sealed rows, and of the cluster that counts them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster
from distributed.security import Security

from stream_dp.cli.operate import row_store
from stream_dp.cli.operate.doctor_finding import DoctorFinding
from stream_dp.pipeline.rows.slab_files import KEY_SETTING, SETTING, SlabFiles, files_of
from stream_dp.settings import WorkerSettings
from tests.pipeline.s3_server import BUCKET, CREDENTIALS, S3Server, gateway

RIGHTS = "start it, or give workers the rights to list, read, write and delete files there"


Find = Callable[..., list[DoctorFinding]]
"""Settings of a worker that are other than those of the test; what is found."""


@pytest.fixture
def found(tmp_path: Path) -> Find:
    """``found(rows=...)``: what is found with these settings; by default in a folder."""

    def found(**settings: Any) -> list[DoctorFinding]:
        given = {"rows": (tmp_path / "rows").as_uri(), **settings}
        return list(row_store.findings(WorkerSettings(**given)))

    return found


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sealed", [False, True])
def test_a_good_store_is_called_good_and_keeps_nothing(
    found: Find, tmp_path: Path, sealed: bool
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    (one,) = found(rows_key_file=str(key) if sealed else None)
    assert one.health == "good"
    assert one.finding.startswith(
        f"file://{tmp_path}/rows keeps, gives and deletes files; 1,048,576"
    )
    assert one.finding.endswith(" million a second")
    (left,) = files_in(tmp_path / "rows")
    assert (tmp_path / "rows/_ids" / left).exists(), "of the store itself, as with a worker"


class Faulty(SlabFiles):
    """A store in which one thing is wrong."""

    wrong = ""

    def put(self, dataset: str, name: bytes, parts: Any) -> None:
        if self.wrong == "other bytes":
            parts = [parts[0], *parts[:0:-1]]
        super().put(dataset, name, parts)

    def drop(self, dataset: str, name: bytes) -> None:
        if self.wrong != "keeps":
            super().drop(dataset, name)


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        ("other bytes", "gives other bytes than were written to it"),
        ("keeps", "still has a file that was deleted"),
    ],
)
def test_a_store_that_does_not_do_what_it_says_is_bad(
    found: Find,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
    finding: str,
) -> None:
    def faulty(settings: WorkerSettings) -> SlabFiles:
        files = files_of(settings)
        assert files is not None
        files.__class__ = Faulty
        return files

    monkeypatch.setattr(Faulty, "wrong", wrong)
    monkeypatch.setattr(row_store, "files_of", faulty)
    (bad,) = [one for one in found() if one.health != "good"]
    assert bad.health == "bad"
    assert bad.finding.endswith(finding)
    assert bad.fix


def test_another_key_a_folder_that_cannot_be_written_and_no_address_are_bad(
    found: Find, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    assert [one.health for one in found()] == ["good"]
    (other,) = found(rows_key_file=str(key))
    assert other.health == "bad"
    assert other.finding.startswith(f"{KEY_SETTING}: it is not the key")
    assert other.fix == "give every worker the right one"
    (away,) = found(rows=f"file://{key}/rows")
    assert (away.health, away.fix) == ("bad", RIGHTS)
    (none,) = found(rows="http://example.org/rows")
    assert (none.health, none.fix) == ("bad", "use file:///… or s3://…")


def test_without_a_store_nothing_is_found_and_a_cluster_would_have_nothing_to_count(
    found: Find,
) -> None:
    assert found(rows=None) == []
    (one,) = found(rows=None, count_with="tls://127.0.0.1:1")
    assert one.health == "note"
    assert one.fix == "set STREAM_DP_ROWS, or unset STREAM_DP_COUNT_WITH"


# ---------------------------------------------------------------- a bucket


@pytest.fixture
def bucket(
    needed: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Server]:
    with needed():
        gateway()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = S3Server(tmp_path / "server", versions=tmp_path / "versions")
    yield server
    server.kill()


def keep_versions(server: S3Server, status: str) -> None:
    import boto3

    endpoint = f"http://127.0.0.1:{server.port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": status})


@pytest.mark.slow
def test_a_bucket_that_keeps_what_is_deleted_is_refused(found: Find, bucket: S3Server) -> None:
    versions, store = found(rows=bucket.url)
    assert versions == DoctorFinding("good", "the bucket keeps no versions of deleted files")
    assert store.health == "good"
    assert store.finding.startswith(f"s3://{BUCKET}/of/tests keeps")
    keep_versions(bucket, "Enabled")
    versions, store = found(rows=bucket.url)
    assert versions.health == "bad"
    assert versions.finding == (
        "the bucket keeps versions of deleted files, so rows that are erased stay"
    )
    assert versions.fix.startswith("use a bucket without versions")
    keep_versions(bucket, "Suspended")
    versions, store = found(rows=bucket.url)
    assert versions.health == "note"
    assert versions.fix.startswith("delete old versions")


@pytest.mark.slow
def test_a_bucket_that_was_not_asked_or_does_not_answer_is_no_good_news(
    found: Find, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "boto3", None)
        versions, store = found(rows=bucket.url)
    assert (versions.health, store.health) == ("note", "good")
    assert versions.fix == "pip install stream-dp[s3], and run this again"
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    user = f"{CREDENTIALS['AWS_ACCESS_KEY_ID']}:{secret}@"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    inside = found(rows=bucket.url.replace("s3://", f"s3://{user}"))
    assert [one.health for one in inside] == ["good", "good"], "the address has the credentials"
    assert secret not in str(inside)
    (refused,) = found(rows=bucket.url)
    assert (refused.health, refused.fix) == ("bad", RIGHTS)
    bucket.kill()
    (away,) = found(rows=bucket.url)
    assert (away.health, away.fix) == ("bad", RIGHTS)


# ---------------------------------------------------------------- a cluster


@contextmanager
def cluster_of(processes: int) -> Iterator[dict[str, Any]]:
    """The settings of a cluster, whose processes have the settings of the environment."""
    security = Security.temporary()
    with LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        protocol="tls",
        security=security,
        dashboard_address=":0",
        memory_limit=0,
    ) as local:
        yield {
            "count_with": local.scheduler_address,
            "count_tls_ca": security.tls_ca_file,
            "count_tls_cert": security.tls_client_cert,
            "count_tls_key": security.tls_client_key,
        }


@pytest.mark.parametrize(
    ("processes", "folder", "health", "finding"),
    [
        (2, "rows", "good",
         "the Dask cluster has 2 processes, and one of them has counted rows of this store"),
        pytest.param(
            1, "others", "bad",
            "the Dask cluster has 1 process, but does not count rows of this store",
            marks=pytest.mark.slow,
        ),
        (0, "rows", "bad", "the Dask cluster has no processes"),
    ],
)  # fmt: skip
def test_a_cluster_counts_rows_of_this_store_or_is_bad(
    found: Find,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    folder: str,
    health: str,
    finding: str,
) -> None:
    monkeypatch.setenv(SETTING, (tmp_path / folder).as_uri())
    with cluster_of(processes) as settings:
        store, cluster = found(**settings)
    assert store.health == "good"
    assert (cluster.health, cluster.finding) == (health, finding)
    assert bool(cluster.fix) is (health == "bad")


def test_a_scheduler_that_does_not_answer_or_is_not_encrypted_is_bad(
    found: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.pipeline.rows.counting_cluster._PATIENCE_S", 0.5)
    with cluster_of(0) as settings:
        pass
    store, away = found(**settings)
    assert (store.health, away.health) == ("good", "bad")
    assert away.finding.startswith("the scheduler of STREAM_DP_COUNT_WITH does not answer (")
    assert away.finding.endswith("; workers count meanwhile")
    store, plain = found(count_with="tcp://127.0.0.1:8786")
    assert (plain.health, plain.fix) == ("bad", "use tls://HOST:8786")
