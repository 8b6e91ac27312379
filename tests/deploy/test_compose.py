"""The compose file keeps its promises; each check is also shown a file that breaks them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from distributed.security import Security
from ruamel.yaml import YAML

from stream_dp.cli.operate import row_store
from stream_dp.embedded import ports
from stream_dp.settings import GatewaySettings, WorkerSettings
from tests.deploy.broken_copies import (
    Breaks,
    Check,
    Document,
    broken,
    flags_of,
    too_much_memory,
    unmet,
    what_a_cluster_shows,
    what_a_view_does_not_need,
    with_breaks,
)
from tests.waiting import until

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
ONE_SHOT = {"topics", "certificates"}
DASK = ("dask-scheduler", "dask-worker")


@pytest.fixture
def compose() -> Document:
    document: Document = YAML(typ="safe").load(COMPOSE)
    return document


def ports_open_to_the_network(document: Document) -> list[str]:
    found = []
    for name, service in document["services"].items():
        for port in service.get("ports", ()):
            host = port.get("host_ip") if isinstance(port, dict) else port.split(":")[0]
            if host != "127.0.0.1":
                found.append(f"{name}: {port}")
        if service.get("network_mode") == "host":
            found.append(f"{name}: host network")
    return found


def ways_to_the_store(document: Document) -> list[str]:
    services = document["services"]
    found = [f"published: {port}" for port in services["redis"].get("ports", ())]
    found += [f"network {name}" for name in services["redis"]["networks"] if name != "store"]
    found += ["network store reaches outside"] * (not document["networks"]["store"].get("internal"))
    found += [
        f"neighbour {name}"
        for name, service in services.items()
        if name not in {"redis", "worker"} and "store" in service.get("networks", ())
    ]
    return found


def ways_of_the_gateway_to_rows(document: Document) -> list[str]:
    service = document["services"]["gateway"]
    found = [name for name in service["environment"] if "REDIS" in name]
    return found + [f"network {name}" for name in service.get("networks", ()) if name == "store"]


def ways_to_the_cluster(document: Document) -> list[str]:
    """The worker and the cluster share a network, which reaches nothing else, and speak TLS alone."""
    services = document["services"]
    found = [] if document["networks"]["counting"].get("internal") is True else ["outside"]
    found += [
        f"neighbour {name}"
        for name, service in services.items()
        if name not in {"worker", *DASK} and "counting" in service.get("networks", ())
    ]
    for name in DASK:
        service = services[name]
        found += [f"{name}: network {one}" for one in service["networks"] if one != "counting"]
        found += [f"{name}: published {one}" for one in service.get("ports", ())]
        found += [f"{name}: {one}" for one in service["environment"] if "REDIS" in one]
        role, given = name.removeprefix("dask-"), service["environment"]
        found += what_a_cluster_shows(role, service["command"], given, "/certificates")
        found += unmet({f"{name} starts unasked": service.get("profiles") == ["cluster"]})
    found += [one for one in services["dask-worker"]["volumes"] if not one.endswith(":ro")]
    alone = services["certificates"].get("network_mode") == "none"
    return found + unmet({"certificates are made on a network": alone})


def ways_to_the_broker_for_what_only_looks(document: Document) -> list[str]:
    services = document["services"]
    return [
        f"{name} in {network}"
        for name in ("prometheus", "grafana")
        for network in services[name].get("networks", ["default"])
        if network != "monitoring"
    ]


def figures_for_other_than_prometheus(document: Document) -> list[str]:
    worker, prometheus = (document["services"][name] for name in ("worker", "prometheus"))
    port = str(worker["environment"].get("STREAM_DP_METRICS_PORT"))
    found = [published for published in worker["ports"] if published.endswith(f":{port}")]
    closed = "--web.cors.origin=none" in prometheus.get("command", ())
    return found + unmet({"Prometheus answers the pages of every site": closed})


def ways_to_change_what_grafana_does(document: Document) -> list[str]:
    wanted = {
        "GF_AUTH_BASIC_ENABLED": "false",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
    }
    given = {"GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer"} | document["services"]["grafana"][
        "environment"
    ]
    return [name for name, value in wanted.items() if given.get(name) != value]


def settings_that_a_view_does_not_need(document: Document) -> list[str]:
    service = document["services"]["redis"]
    return what_a_view_does_not_need(flags_of(service["command"])) + service.get("volumes", [])


def memory_that_redis_may_not_leave(document: Document) -> list[str]:
    service = document["services"]["redis"]
    texts = (flags_of(service["command"])["--maxmemory"], service.get("mem_limit", ""))
    found = [re.fullmatch(r"\$\{STREAM_DP_REDIS_\w+:-(\d+)gb\}", text) for text in texts]
    return too_much_memory(*(int(one[1]) if one else 0 for one in found))


def broker_settings_out_of_line(document: Document) -> list[str]:
    service = document["services"]["kafka"]
    given, kept = service["environment"], [one.split(":")[1] for one in service["volumes"]]
    flushed = str(given.get("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES"))
    return unmet(
        {
            "topics are declared": str(given.get("KAFKA_AUTO_CREATE_TOPICS_ENABLE")) == "false",
            "a batch fits": int(given.get("KAFKA_MESSAGE_MAX_BYTES", 0)) >= 6_291_456,
            "there are partitions enough": int(given.get("KAFKA_NUM_PARTITIONS", 1)) >= 4,
            "an acknowledged record stays": flushed == "1",
            "the log is kept": given["KAFKA_LOG_DIRS"] in kept,
        }
    )


def services_nobody_watches(document: Document) -> list[str]:
    return [
        name
        for name, service in document["services"].items()
        if name not in ONE_SHOT and not service.get("healthcheck", {}).get("test")
    ]


def services_started_too_early(document: Document) -> list[str]:
    services = document["services"]
    found = []
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            wanted = "service_started" if other == "redis" else wanted
            if wait.get("condition") != wanted:
                found.append(f"{name} on {other}")
    found += [
        f"worker on {other}"
        for other in ("kafka", "redis", "topics")
        if other not in services["worker"]["depends_on"]
    ]
    return found


def ways_the_worker_could_write(document: Document) -> list[str]:
    found = []
    for name in ("worker", "topics"):
        service = document["services"][name]
        dropped = service.get("cap_drop") == ["ALL"] and not service.get("privileged")
        found += unmet(
            {
                f"{name} only reads its root": service.get("read_only") is True,
                f"{name} drops capabilities": dropped,
                f"{name} is not root": not service.get("user", "").startswith(("0", "root")),
            }
        )
        kept = {"worker": ["rows:/rows", "certificates:/certificates:ro"]}.get(name, [])
        found += [f"{name}: {one}" for one in service.get("volumes", ()) if one not in kept]
    return found


def tokens_that_a_log_would_have(document: Document) -> list[str]:
    """A worker that makes up a token cannot show it here, since all that it says is its log."""
    given = document["services"]["worker"]["environment"]
    operator = given.get("STREAM_DP_WEB_OPERATOR_TOKEN") or ""
    return [] if operator.startswith("${STREAM_DP_WEB_OPERATOR_TOKEN:?") else ["operator"]


def images_without_a_version(document: Document) -> list[str]:
    return [
        name
        for name, service in document["services"].items()
        if ":" not in service["image"] or service["image"].endswith(":latest")
    ]


CHECKS: Breaks = {
    ports_open_to_the_network: [
        ("services worker ports", ["6066:6066"]),
        ("services kafka ports", ["0.0.0.0:9092:9094"]),
        ("services grafana ports", [{"target": 3000, "published": "3000"}]),
        ("services worker network_mode", "host"),
    ],
    ways_to_the_store: [
        ("services redis ports", ["127.0.0.1:6379:6379"]),
        ("services redis networks", ["default", "store"]),
        ("services grafana networks", ["store"]),
        ("networks store", {}),
    ],
    ways_of_the_gateway_to_rows: [
        ("services gateway environment STREAM_DP_REDIS_URL", "redis://redis:6379/0"),
        ("services gateway networks", ["default", "store"]),
    ],
    ways_to_the_cluster: [
        ("networks counting", {}),
        ("services gateway networks", ["default", "counting"]),
        ("services dask-worker networks", ["counting", "store"]),
        ("services dask-scheduler networks", ["counting", "default"]),
        ("services dask-scheduler ports", ["127.0.0.1:8787:8787"]),
        ("services dask-worker environment STREAM_DP_REDIS_URL", "redis://redis:6379/0"),
        ("services dask-scheduler command 1", "--protocol=tcp"),
        ("services dask-worker command 1", "tcp://dask-scheduler:8786"),
        ("services dask-worker command 4", None),
        ("services dask-scheduler command 6", None),
        ("services dask-scheduler command 7", "--dashboard-address=:8787"),
        ("services dask-scheduler environment DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES", None),
        ("services dask-worker environment DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "false"),
        ("services dask-worker profiles", None),
        ("services dask-worker volumes +", "rows:/all"),
        ("services certificates network_mode", None),
    ],
    ways_to_the_broker_for_what_only_looks: [
        ("services grafana networks", None),
        ("services prometheus networks", ["monitoring", "default"]),
    ],
    figures_for_other_than_prometheus: [
        ("services worker ports", ["127.0.0.1:9464:9464"]),
        ("services prometheus command", ["--config.file=/etc/prometheus/prometheus.yml"]),
    ],
    ways_to_change_what_grafana_does: [
        ("services grafana environment GF_AUTH_BASIC_ENABLED", None),
        ("services grafana environment GF_AUTH_DISABLE_LOGIN_FORM", "false"),
        ("services grafana environment GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION", None),
        ("services grafana environment GF_AUTH_ANONYMOUS_ORG_ROLE", "Editor"),
    ],
    settings_that_a_view_does_not_need: [
        ("services redis command 2", "yes"),
        ("services redis command 8", "noeviction"),
        ("services redis command 4", "60 1"),
        ("services redis volumes", ["redis-data:/data"]),
    ],
    memory_that_redis_may_not_leave: [
        ("services redis command 6", "${STREAM_DP_REDIS_MAXMEMORY:-2gb}"),
        ("services redis command 6", "0"),
        ("services redis mem_limit", None),
    ],
    broker_settings_out_of_line: [
        ("services kafka environment KAFKA_AUTO_CREATE_TOPICS_ENABLE", None),
        ("services kafka environment KAFKA_MESSAGE_MAX_BYTES", 1_048_576),
        ("services kafka environment KAFKA_NUM_PARTITIONS", None),
        ("services kafka environment KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", None),
        ("services kafka environment KAFKA_LOG_DIRS", "/tmp/logs"),
    ],
    services_nobody_watches: [
        ("services worker healthcheck", {"interval": "5s"}),
        *(
            (f"services {name} healthcheck", None)
            for name in ("kafka", "redis", "prometheus", "grafana", *DASK)
        ),
    ],
    services_started_too_early: [
        ("services worker depends_on redis", {"condition": "service_healthy"}),
        ("services worker depends_on topics", {"condition": "service_started"}),
        ("services worker depends_on kafka", None),
        ("services dask-scheduler depends_on certificates", {"condition": "service_started"}),
    ],
    ways_the_worker_could_write: [
        ("services worker read_only", None),
        ("services topics cap_drop", None),
        ("services worker user", "root"),
        ("services worker volumes", ["redis-data:/data"]),
        ("services worker volumes", ["rows:/rows", "certificates:/certificates"]),
        ("services topics volumes", ["rows:/rows"]),
    ],
    tokens_that_a_log_would_have: [
        ("services worker environment STREAM_DP_WEB_OPERATOR_TOKEN", None),
    ],
    images_without_a_version: [
        ("services kafka image", "apache/kafka:latest"),
        ("services redis image", "redis"),
    ],
}


@with_breaks(CHECKS)
def test_there_are_no(check: Check, place: str, value: object, compose: Document) -> None:
    """A broken file is noticed."""
    assert check(compose) == []
    assert check(broken(compose, place, value)) != []


@pytest.mark.parametrize(
    ("word", "code"), [("healthcheck:", 0), ("healtcheck:", 1)], ids=["as it is", "misspelt"]
)
def test_the_file_follows_the_compose_specification(word: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(COMPOSE.read_text().replace("healthcheck:", word, 1))
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = subprocess.run([*command, file], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("healtcheck" in done.stdout) is bool(code)


@pytest.mark.parametrize("name", ["worker", "topics", "gateway"])
def test_the_image_is_told_what_it_understands(name: str, compose: Document) -> None:
    service = compose["services"][name]
    program = (sys.executable, "-c", "from stream_dp.cli import main; main()")
    command = [*program, *service["command"], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kind = GatewaySettings if name == "gateway" else WorkerSettings
    known = {f"STREAM_DP_{field.upper()}" for field in kind.model_fields}
    assert set(service["environment"]) - known == set()


def provided(name: str) -> Document:
    """A file of the deployment beside the compose file."""
    found: Document = YAML(typ="safe").load(ROOT / "deploy" / name)
    return found


def test_prometheus_and_grafana_find_each_other_the_worker_the_rules_and_the_dashboard(
    compose: Document,
) -> None:
    port = compose["services"]["worker"]["environment"]["STREAM_DP_METRICS_PORT"]
    scraped = provided("prometheus/prometheus.yml")
    (group,) = (group for job in scraped["scrape_configs"] for group in job["static_configs"])
    assert group["targets"] == [f"worker:{port}"]
    assert scraped["rule_files"]
    assert all((ROOT / "deploy/prometheus" / file).exists() for file in scraped["rule_files"])
    (source,) = provided("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    inside = {
        name: dict(volume.split(":")[:2] for volume in compose["services"][name]["volumes"])
        for name in ("grafana", "prometheus")
    }
    assert inside["prometheus"]["./deploy/prometheus"] == "/etc/prometheus"
    folder = inside["grafana"]["./deploy/grafana/dashboards"]
    (boards,) = provided("grafana/provisioning/dashboards/stream-dp.yml")["providers"]
    assert boards["options"]["path"] == folder
    settings = compose["services"]["grafana"]["environment"]
    home = settings["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{folder}/")
    assert (ROOT / "deploy/grafana/dashboards" / home.removeprefix(f"{folder}/")).exists()


def test_every_mounted_file_exists(compose: Document) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    ]
    assert len(mounted) == 3
    assert [path for path in mounted if not (ROOT / path).exists()] == []


def test_what_the_image_copies_exists_and_is_sent_to_the_build(compose: Document) -> None:
    dockerfile = compose["services"]["worker"]["build"]["dockerfile"]
    copied = [
        source
        for line in (ROOT / dockerfile).read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    sent = [
        line[1:]
        for line in (ROOT / f"{dockerfile}.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert len(copied) == 6
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert [path for path in copied if path.split("/")[0] not in sent] == []


def test_the_image_is_built_from_hashes_alone(compose: Document) -> None:
    """Each package has a hash, or is built here with nothing from the network."""
    recipe = (ROOT / compose["services"]["worker"]["build"]["dockerfile"]).read_text()
    commands = re.findall(r"\S*pip (?:install|wheel) [^&\n\\]*", recipe)
    assert len(commands) == 4
    for command in commands:
        assert "--require-hashes" in command or {"--no-index", "--no-deps"} <= {*command.split()}
    (wheel,) = (command for command in commands if " wheel " in command)
    assert "--no-build-isolation" in wheel, "otherwise pip would fetch what builds it"
    assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${PYTHON}"}, "one to pin"
    build = (ROOT / "requirements/build.txt").read_text()
    named = re.findall(r"^(\S+)==\S+ \\\n    --hash=sha256:", build, re.MULTILINE)
    assert named == re.findall(r"^([^\s=]+)==", build, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {r.partition(">")[0] for r in project["build-system"]["requires"]} <= {*named}
    locked = (ROOT / "requirements/dev.txt").read_text()
    assert all(f"{line}\n" in locked for line in build.splitlines()), "make lock writes both"


def test_the_worker_image_does_not_run_as_root(compose: Document) -> None:
    recipe = (ROOT / compose["services"]["worker"]["build"]["dockerfile"]).read_text()
    last_stage = recipe[recipe.rindex("\nFROM ") :]
    users = [line.split()[1] for line in last_stage.splitlines() if line.startswith("USER ")]
    assert users == ["10001:10001"]
    assert last_stage.index("USER ") < last_stage.index("ENTRYPOINT")


def test_the_image_has_what_files_buckets_and_the_cluster_need() -> None:
    pinned = (ROOT / "requirements/worker.txt").read_text()
    for package in ("boto3", "distributed", "pyarrow"):
        assert re.search(rf"^{package}==", pinned, re.MULTILINE)


class Cluster:
    """The processes of the cluster as the compose file starts them, on free ports of this machine."""

    def __init__(self, compose: Document, folder: Path) -> None:
        self._services, self._folder = compose["services"], folder
        self.ports = {name: ports.choose(name, None) for name in ("8786", "8789", "pages", "more")}
        self.certificate = folder / "certificates"
        self._started: list[subprocess.Popen[bytes]] = []

    def _here(self, name: str, word: str) -> str:
        """A word of a service as it is on this machine."""
        page = self.ports["pages" if name == "dask-scheduler" else "more"]
        changed = {
            "=/tmp": f"={self._folder}",
            "/certificates": str(self.certificate),
            "dask-scheduler:8786": f"127.0.0.1:{self.ports['8786']}",
            "127.0.0.1:8787": f"127.0.0.1:{page}",
            "=8786": f"={self.ports['8786']}",
            "=8789": f"={self.ports['8789']}",
            "file:///rows": (self._folder / "rows").as_uri(),
        }
        for old, new in changed.items():
            word = word.replace(old, new)
        return word

    def make_certificate(self) -> None:
        self.certificate.mkdir()
        (script,) = self._services["certificates"]["command"]
        command = ["sh", "-c", self._here("", script)]
        for _ in range(2):  # the second time there is one, which stays
            subprocess.run(command, check=True, capture_output=True)

    def start(self, name: str) -> None:
        service = self._services[name]
        command = [self._here(name, word) for word in service["command"]]
        given = {name: self._here(name, word) for name, word in service["environment"].items()}
        program = Path(sys.executable).parent / service["entrypoint"][0]
        process = subprocess.Popen(
            [program, *command],
            env={**os.environ, **given, "HOME": str(self._folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._started.append(process)
        _, _, flag, script = service["healthcheck"]["test"]
        check = [sys.executable, flag, self._here(name, script)]
        until(
            lambda: subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 0,
            name,
        )

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(compose: Document, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(compose, tmp_path)
    yield found
    found.end()


@pytest.mark.slow
def test_the_cluster_counts_for_who_has_its_certificate_and_shows_nothing_else(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.make_certificate()
    for name in DASK:
        cluster.start(name)
    mine, other = cluster.certificate, Security.temporary()
    settings = WorkerSettings(
        rows=(tmp_path / "rows").as_uri(),
        count_with=f"tls://127.0.0.1:{cluster.ports['8786']}",
        count_tls_ca=str(mine / "tls.crt"),
        count_tls_cert=str(mine / "tls.crt"),
        count_tls_key=str(mine / "tls.key"),
    )
    until(lambda: " 1 process," in str(list(row_store.findings(settings))), "no process counts")
    assert [one.health for one in row_store.findings(settings)] == ["good", "good"]
    stranger = {
        "count_tls_ca": str(mine / "tls.crt"),
        "count_tls_cert": other.tls_client_cert,
        "count_tls_key": other.tls_client_key,
    }
    monkeypatch.setattr("stream_dp.pipeline.rows.counting_cluster._PATIENCE_S", 2)
    *_, refused = row_store.findings(settings.model_copy(update=stranger))
    assert refused.health == "bad"
    assert "does not answer" in refused.finding
    for page in (cluster.ports["pages"], cluster.ports["more"]):
        for path in ("status", "metrics", "info/main/workers.html", "json/counts.json"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"http://127.0.0.1:{page}/{path}", timeout=5)
