"""The examples in other languages do what they say, and put records where the worker looks for them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from stream_dp.errors import ServerUnavailable

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
NAMES = [f"data-set-{number}" for number in range(100)]
PARTITIONS = 5


@pytest.fixture(scope="session")
def programs(needed: Callable[[], AbstractContextManager[None]]) -> None:
    """All programs that the tests of this module run."""
    with needed():
        for name in ("kcat", "node", "npm"):
            if shutil.which(name) is None:
                raise ServerUnavailable(f"{name} is not on the PATH; apt install kcat nodejs npm")


def run(*command: str | Path, cwd: Path = ROOT, stdin: str = "") -> str:
    ended = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    return ended.stdout


@pytest.fixture(scope="module")
def kafkajs(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder beside the schemas, away from the sources, with what its lock file names."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "docs/contracts", root / "docs/contracts")
    folder = root / "examples/kafkajs"
    shutil.copytree(
        ROOT / "examples/kafkajs", folder, ignore=shutil.ignore_patterns("node_modules")
    )
    run("npm", "ci", "--no-audit", "--no-fund", cwd=folder)
    return folder


def java_partition(name: str, partitions: int) -> int:
    return int((murmur2(name.encode()) & 0x7FFFFFFF) % partitions)


@pytest.mark.slow
def test_both_examples_define_send_and_ask(deployment: Any, kafkajs: Path) -> None:
    deployment.worker().wait_ready()
    servers = (deployment.bootstrap_servers, deployment.prefix)

    accepted, batch, parcels = map(json.loads, run("sh", "examples/kcat.sh", *servers).splitlines())
    assert accepted["event"] == "dataset_accepted"
    assert (batch["event"], batch["rows"], batch["phase"]) == ("batch_accepted", 20_000, 1)
    first, printed = run("node", "ask.mjs", *servers, cwd=kafkajs).splitlines()
    assert first == "20000 rows, phase 1 is open"
    rides = json.loads(printed)

    long_rides = [i for i in range(0, 20_000, 2) if i % 10 and i % 90 >= 30]
    for answer, exact in ((parcels, 2_500), (rides, len(long_rides))):
        assert (answer["status"], answer["n"]) == ("answered", 20_000)
        assert abs(answer["value"] - exact / 20_000) < 3 * answer["error_bar"]
    assert {answer["query_id"] for answer in deployment.replies("answers")} == {
        parcels["query_id"],
        rides["query_id"],
    }
    assert deployment.replies("rejected") == []


def test_kcat_puts_keys_where_java_does_and_not_without_its_setting(
    programs: None, make_deployment: Any
) -> None:
    deployment = make_deployment(partitions=PARTITIONS)
    lines = "".join(f"{name}:{{}}\n" for name in NAMES)
    send = ("kcat", "-P", "-b", deployment.bootstrap_servers, "-K:", "-t")
    murmur2_random = ("-X", "partitioner=murmur2_random")
    run(*send, deployment.topics.name("queries"), *murmur2_random, stdin=lines)
    run(*send, deployment.topics.name("batches"), stdin=lines)
    wanted = {name: java_partition(name, PARTITIONS) for name in NAMES}
    assert {r.key.decode(): r.partition for r in deployment.read("queries")} == wanted
    assert {r.key.decode(): r.partition for r in deployment.read("batches")} != wanted


def test_the_default_partitioner_of_kafkajs_is_that_of_java(kafkajs: Path) -> None:
    script = """
        const { Partitioners } = require('kafkajs')
        const [names, n] = JSON.parse(require('fs').readFileSync(0))
        const partitionMetadata = [...Array(n).keys()].map(partitionId => ({ partitionId, leader: 0 }))
        const place = key => ({ topic: 't', partitionMetadata, message: { key } })
        const places = create => names.map(key => create()(place(key)))
        const { DefaultPartitioner, LegacyPartitioner } = Partitioners
        console.log(JSON.stringify([DefaultPartitioner, LegacyPartitioner].map(places)))
    """
    printed = run("node", "-e", script, cwd=kafkajs, stdin=json.dumps([NAMES, PARTITIONS]))
    default, legacy = json.loads(printed)
    wanted = [java_partition(name, PARTITIONS) for name in NAMES]
    assert default == wanted
    assert legacy != wanted


def test_the_lock_file_pins_by_hash_and_names_no_registry() -> None:
    lock = json.loads((ROOT / "examples/kafkajs/package-lock.json").read_text())
    packages = [entry for name, entry in lock["packages"].items() if name]
    assert all(entry["integrity"].startswith("sha512-") for entry in packages)
    assert not any("resolved" in entry for entry in packages)
