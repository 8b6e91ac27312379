"""The dashboard shows what workers expose, and alerts come when they should: by Prometheus' own reading."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from ruamel.yaml import YAML

from stream_dp.embedded import ports
from stream_dp.errors import ServerUnavailable
from tests.deploy.broken_copies import Breaks, Check, Document, broken, with_breaks
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "deploy/grafana/generate.py"
BOARD = ROOT / "deploy/grafana/dashboards/stream-dp.json"
TILES = ROOT / "deploy/grafana/dashboards/tiles.json"
CONFIG = ROOT / "deploy/prometheus/prometheus.yml"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
ALERT_TESTS = Path(__file__).with_name("alerts.yml")
TILE_TESTS = Path(__file__).with_name("tiles.yml")
LISTED = set(
    re.findall(r"^\| `(stream_dp_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
)
"""Every metric, as another test compares them with those of a worker."""
PLUGINS = {"timeseries", "stat", "bargauge"}


@pytest.fixture(scope="session")
def promtool(needed: Callable[[], AbstractContextManager[None]]) -> Path:
    """The checker that comes with Prometheus, which lies beside it."""
    found = shutil.which("promtool")
    with needed():
        if found is None:
            raise ServerUnavailable("promtool is not on the PATH; install Debian's prometheus")
    return Path(found)


@pytest.fixture
def board() -> Document:
    document: Document = json.loads(BOARD.read_bytes())
    return document


@pytest.fixture
def tiles() -> Document:
    """The dashboard of the answers to standing queries."""
    document: Document = json.loads(TILES.read_bytes())
    return document


def _yaml(path: Path) -> Document:
    document: Document = YAML(typ="safe").load(path)
    return document


def _panels(board: Document) -> list[Document]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def _queries(board: Document) -> dict[str, str]:
    """Every query by its panel and name, with values in the place of Grafana's variables."""
    found = {}
    for panel in _panels(board):
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "10s").replace("$dataset", ".+")
            query = query.replace("$tile", ".+")
            assert "$" not in query
            found[f"{panel['title']} {target['refId']}"] = query
    return found


# ---------------------------------------------------------------- the dashboard


@pytest.mark.parametrize(("file", "arguments"), [(BOARD, []), (TILES, ["tiles"])])
def test_the_dashboard_is_what_its_generator_prints(file: Path, arguments: list[str]) -> None:
    printed = subprocess.run(
        [sys.executable, GENERATOR, *arguments], capture_output=True, check=True
    ).stdout
    assert printed == file.read_bytes(), "run make dashboard"


@pytest.mark.parametrize("file", [BOARD, TILES])
def test_the_dashboard_follows_grafanas_schema(file: Path) -> None:
    plugins.register_default_plugins()
    board = json.loads(file.read_bytes())
    read = Dashboard.from_json(copy.deepcopy(board))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == board


def ids_used_twice(board: Document) -> list[object]:
    ids = [panel["id"] for panel in board["panels"]]
    return [one for one in ids if ids.count(one) > 1]


def panels_that_say_too_little(board: Document) -> list[object]:
    return [
        panel["title"]
        for panel in _panels(board)
        if panel["type"] not in PLUGINS
        or not panel["title"]
        or not panel["fieldConfig"]["defaults"].get("unit")
        or not panel["targets"]
        or (panel["type"] == "timeseries" and not panel["options"]["legend"]["showLegend"])
    ]


def sources_that_are_not_chosen_by_the_viewer(board: Document) -> list[object]:
    """Grafana's own id of a data source is another one in every installation."""
    panels = _panels(board)
    users = [*panels, *(target for panel in panels for target in panel["targets"])]
    users += [one for one in board["templating"]["list"] if one["type"] == "query"]
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    found: list[object] = [user for user in users if user.get("datasource") != wanted]
    if "uid" in board or "id" in board:
        found.append("the dashboard")
    if "datasource" not in [one["name"] for one in board["templating"]["list"]]:
        found.append("no variable")
    return found


def panels_out_of_place(board: Document) -> list[object]:
    """Panels that lie on others, leave the grid of 24 columns, or stand before their group's title."""
    taken: dict[tuple[int, int], str] = {}
    found = []
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        squares = set(itertools.product(columns, rows))
        if not squares or columns.start < 0 or columns.stop > 24 or squares & taken.keys():
            found.append(panel["title"])
        taken.update(dict.fromkeys(squares, panel["title"]))
    lines = {y for _, y in taken}
    if lines != set(range(len(lines))) or len(taken) != 24 * len(lines):
        found.append("a gap")
    return found


def metrics_that_no_worker_exposes(board: Document) -> list[object]:
    queries = [*_queries(board).values(), *map(str, board["templating"]["list"])]
    return [
        name
        for query in queries
        for name in re.findall(r"stream_dp_\w+", query)
        if name.removesuffix("_bucket") not in LISTED
    ]


CHECKS: Breaks = {
    ids_used_twice: [("panels 1 id", 3)],
    panels_that_say_too_little: [
        ("panels 1 fieldConfig defaults unit", None),
        ("panels 1 targets", []),
        ("panels 2 options legend showLegend", False),
    ],
    sources_that_are_not_chosen_by_the_viewer: [
        ("panels 1 datasource uid", "PBFA97CFB590B2093"),
        ("panels 1 targets 0 datasource", None),
        ("templating list 0", None),
        ("uid", "stream-dp"),
    ],
    panels_out_of_place: [
        ("panels 1 gridPos x", 1),
        ("panels 1 gridPos h", 8),
        ("panels 3 gridPos w", 9),
        ("panels -1 gridPos h", 3),
    ],
    metrics_that_no_worker_exposes: [
        ("panels 1 targets 0 expr", "stream_dp_budget"),
        ("templating list 1 query", "stream_dp_sets"),
    ],
}


@with_breaks(CHECKS)
def test_there_are_no(check: Check, place: str, value: object, board: Document) -> None:
    """A broken dashboard is noticed."""
    assert [check(json.loads(file.read_bytes())) for file in (BOARD, TILES)] == [[], []]
    assert check(broken(board, place, value)) != []


# ---------------------------------------------------------------- rules


def _run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_promtool_accepts_the_configuration_and_its_rules(promtool: Path) -> None:
    done = _run(promtool, "check", "config", CONFIG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(_rules())} rules found" in done.stdout


def test_promtool_accepts_every_query_of_the_dashboards(
    promtool: Path, board: Document, tiles: Document, tmp_path: Path
) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": query}
        for number, query in enumerate([*_queries(board).values(), *_queries(tiles).values()])
    ]
    file = tmp_path / "rules.yml"
    for extra, code in (([], 0), ([{"record": "broken", "expr": "sum by ("}], 1)):
        group = {"name": "panels", "rules": [*rules, *extra]}
        file.write_text(json.dumps({"groups": [group]}))
        done = _run(promtool, "check", "rules", file)
        assert done.returncode == code, done.stdout + done.stderr


def _rules() -> list[Document]:
    return [rule for group in _yaml(ALERTS)["groups"] for rule in group["rules"]]


def test_every_alert_is_tested_documented_and_says_what_is_wrong() -> None:
    rules = {rule["alert"]: rule for rule in _rules()}
    severities = {name: rule["labels"]["severity"] for name, rule in rules.items()}
    tested = {
        case["alertname"]
        for test in _yaml(ALERT_TESTS)["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    page = (ROOT / "docs/operations.md").read_text()
    documented = dict(re.findall(r"^\| `(StreamDP\w+)` \| (page|ticket) \|", page, re.MULTILINE))
    assert documented == severities
    assert tested == set(rules)
    for rule in rules.values():
        assert rule["annotations"].keys() == {"summary", "description"}
        for name in re.findall(r"stream_dp_\w+", rule["expr"]):
            assert name in LISTED


def test_alerts_come_when_they_should_and_stay_away_when_nothing_is_wrong(promtool: Path) -> None:
    done = _run(promtool, "test", "rules", ALERT_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_alerts_on_tiles_come_when_they_should(promtool: Path) -> None:
    done = _run(promtool, "test", "rules", TILE_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = [rule for group in _yaml(TILE_TESTS)["tests"] for rule in group["alert_rule_test"]]
    examples = _yaml(CONFIG.with_name("tiles.yml"))["groups"][0]["rules"]
    assert {rule["alertname"] for rule in rules if rule["exp_alerts"]} == {
        rule["alert"] for rule in examples
    }
    for rule in examples:
        for name in re.findall(r"stream_dp_\w+", rule["expr"]):
            assert name in LISTED


@pytest.mark.slow
def test_alerts_that_never_come_fail_their_tests(promtool: Path, tmp_path: Path) -> None:
    document = _yaml(ALERTS)
    for rule in document["groups"][0]["rules"]:
        rule["expr"] = f"({rule['expr']}) > 1e9"
    (tmp_path / "alerts.yml").write_text(json.dumps(document))
    tests = _yaml(ALERT_TESTS) | {"rule_files": ["alerts.yml"]}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    done = _run(promtool, "test", "rules", tmp_path / "tests.yml")
    failed = re.findall(r"alertname: (\w+), time: .*\n +exp:\[\n", done.stdout + done.stderr)
    assert sorted(failed) == sorted(rule["alert"] for rule in _rules())


# ---------------------------------------------------------------- a real Prometheus


class Prometheus:
    """Scrapes one worker every second, with the rules that are deployed."""

    def __init__(self, program: Path, folder: Path, worker_port: int) -> None:
        self._port = ports.choose("Prometheus", None)
        config = _yaml(CONFIG)
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(ALERTS)]
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{worker_port}"]}]
        folder.mkdir()
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while it starts."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert self._process.poll() is None, self._log.read_text()
            return None

    def values(self, query: str) -> list[float]:
        """What a panel would show now: no series, and NaN, are nothing."""
        found = self.get("query", query=query)
        series = [] if found is None else found["result"]
        return [value for one in series if not math.isnan(value := float(one["value"][1]))]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@pytest.fixture
def scrape(promtool: Path, tmp_path: Path) -> Iterator[Callable[[int], Prometheus]]:
    """``scrape(port)``: a Prometheus that scrapes the worker on that port, until the test ends."""
    started: list[Prometheus] = []

    def start(port: int) -> Prometheus:
        program = promtool.with_name("prometheus")
        started.append(Prometheus(program, tmp_path / "prometheus", port))
        return started[-1]

    yield start
    for one in started:
        one.stop()


FLAGS = [f"f{number}" for number in range(8)]
DEFINITION = {
    "version": 1,
    "dataset": "flags",
    "attributes": [{"name": name, "type": "boolean"} for name in FLAGS],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.05, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
    "mechanism": {"profile": "calibrated", "base_share": 0.0},
    "analysts": {"ana": {"share": 0.6}, "*": {}},
    "owner": {"share": 0.1},
}


def _put(deployment: Any, number: int) -> None:
    """A round of everything: a new query, the same again, one that is refused, and one that is none."""
    pairs = [*itertools.combinations(FLAGS, 2)]
    new = [{"attribute": name, "eq": True} for name in pairs[number % len(pairs)]]
    head = {"version": 1, "dataset": "flags", "analyst": "ana"}
    bad = {"attribute": "nothing", "eq": True}
    for name, where in (("new", {"all": new}), ("again", {"all": new}), ("bad", bad)):
        query = head | {"query_id": f"{name}{number}", "where": where}
        deployment.produce("queries", query, key="flags")
    deployment.produce("queries", b"{", key="flags")
    if number % 5 == 0:
        cells = [dict.fromkeys(FLAGS, True) | {"count": 21_000}]
        batch = {"version": 1, "dataset": "flags", "batch_id": f"b{number}", "cells": cells}
        deployment.produce("batches", batch, key="flags")


@pytest.mark.slow
@pytest.mark.kafka
def test_every_panel_shows_something_of_a_worker_under_load(
    deployment: Any,
    scrape: Callable[[int], Prometheus],
    board: Document,
    tiles: Document,
) -> None:
    worker = deployment.worker()
    prometheus = scrape(worker.port)
    worker.wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
        client.stand("flags", {"attribute": "f0", "eq": True}, query_id="tile")
    missing, rounds = _queries(board) | _queries(tiles), 0

    def shown() -> bool:
        nonlocal missing, rounds
        _put(deployment, rounds)
        rounds += 1
        missing = {name: query for name, query in missing.items() if not prometheus.values(query)}
        return not missing

    until(shown, lambda: missing, every_s=0.2)

    def answered() -> bool:
        ids = {answer["query_id"] for answer in deployment.replies("answers")}
        tiles = {f"tile@{phase}" for phase in range(1, 2 + (rounds - 1) // 5)}
        return tiles <= ids and len(ids - tiles) == 3 * rounds

    worker.until(answered)
    statuses = [answer["status"] for answer in deployment.replies("answers")]
    for query, wanted in {
        "sum(stream_dp_answers_total)": statuses.count("answered"),
        "sum(stream_dp_refusals_total)": statuses.count("refused"),
        "stream_dp_answer_latency_seconds_count": 3 * rounds,
        "stream_dp_rejected_total": rounds,
        "stream_dp_rows_accepted_total": 21_000 * (1 + (rounds - 1) // 5),
        "stream_dp_outbox_records": 0,
        "count(stream_dp_cursor_lag_messages == 0)": 6,
    }.items():
        worker.until(lambda query=query, wanted=wanted: prometheus.values(query) == [wanted])
    (group,) = prometheus.get("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    firing = {rule["name"] for rule in group["rules"] if rule["state"] == "firing"}
    assert firing <= {"StreamDPRecordsRejected"}
    assert worker.stop() == 0, worker.output
