"""A Superset of its own, with its API, and what it needs to draw a dashboard."""

from __future__ import annotations

import http.cookiejar
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.tools.conftest import ROOT
from tests.waiting import until

PROGRAM = ROOT / "build/tools/superset/bin/superset"
PASSWORD = "only here"
_CONFIG = """
SECRET_KEY = "of a server that is gone after the test"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = TALISMAN_ENABLED = RATELIMIT_ENABLED = False
"""


class SupersetServer:
    """Superset while it runs.

    Args:
        folder: What it keeps is here.
        port: A free port.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "superset_config.py"
        config.write_text(_CONFIG.format(folder=folder))
        self._environment = {
            **os.environ,
            "SUPERSET_CONFIG_PATH": str(config),
            "SUPERSET_HOME": str(folder),
            "FLASK_APP": "superset",
        }
        with (folder / "superset.log").open("wb") as self._log:
            person = ("--username", "ann", "--password", PASSWORD)
            names = ("--firstname", "Ann", "--lastname", "Lyst", "--email", "ann@example.org")
            for words in (["db", "upgrade"], ["fab", "create-admin", *person, *names], ["init"]):
                subprocess.run([PROGRAM, *words], check=True, **self._about())
            self._process = subprocess.Popen(
                [PROGRAM, "run", "--port", str(port), "--with-threads"], **self._about()
            )
        jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        self._token: str | None = None
        until(self._is_up, "Superset does not start")
        login = {"username": "ann", "password": PASSWORD, "provider": "db"}
        self._token = self.call("security/login", login)["access_token"]

    def _about(self) -> dict[str, Any]:
        return {"env": self._environment, "stdout": self._log, "stderr": self._log}

    def _is_up(self) -> bool:
        assert self._process.poll() is None, "Superset ended"
        try:
            with self._opener.open(f"{self.url}/health"):
                return True
        except urllib.error.URLError:
            return False

    def call(self, path: str, body: object = None, method: str | None = None) -> dict[str, Any]:
        """One request to the API; what it returns."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._opener.open(request) as reply:
            return dict(json.load(reply))

    def chart(self, dataset: int, name: str, kind: str, **params: Any) -> int:
        """Adds a chart; its number."""
        params |= {"datasource": f"{dataset}__table", "viz_type": kind}
        made = self.call(
            "chart/",
            {
                "slice_name": name,
                "viz_type": kind,
                "datasource_id": dataset,
                "datasource_type": "table",
                "params": json.dumps(params),
            },
        )
        return int(made["id"])

    def dashboard(self, name: str, charts: list[int], dataset: int, column: str) -> int:
        """Adds a dashboard of one row, with a filter of one column; its number."""
        layout: dict[str, Any] = {
            "ROOT_ID": {"type": "ROOT", "id": "ROOT_ID", "children": ["GRID_ID"]},
            "GRID_ID": {"type": "GRID", "id": "GRID_ID", "children": ["ROW"]},
            "ROW": {"type": "ROW", "id": "ROW", "children": [], "meta": {}},
        }
        for chart in charts:
            layout["ROW"]["children"].append(f"CHART-{chart}")
            layout[f"CHART-{chart}"] = {
                "type": "CHART",
                "id": f"CHART-{chart}",
                "children": [],
                "meta": {"chartId": chart, "width": 12 // len(charts), "height": 50},
            }
        scope = {"rootPath": ["ROOT_ID"], "excluded": []}
        chosen = {
            "id": "NATIVE_FILTER-1",
            "name": column,
            "type": "NATIVE_FILTER",
            "filterType": "filter_select",
            "targets": [{"datasetId": dataset, "column": {"name": column}}],
            "controlValues": {"multiSelect": True},
            "defaultDataMask": {"extraFormData": {}, "filterState": {}},
            "cascadeParentIds": [],
            "scope": scope,
        }
        made = self.call(
            "dashboard/",
            {
                "dashboard_title": name,
                "published": True,
                "position_json": json.dumps(layout),
                "json_metadata": json.dumps({"native_filter_configuration": [chosen]}),
            },
        )
        for chart in charts:
            self.call(f"chart/{chart}", {"dashboards": [made["id"]]}, "PUT")
        return int(made["id"])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
