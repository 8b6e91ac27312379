"""A small project of dbt reads a data set in ephemeral models, and documents it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.conftest import ROOT, Port

PROGRAM = ROOT / "build/tools/dbt/bin/dbt"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a copy of the project, into which dbt may write."""
    return Path(shutil.copytree(Path(__file__).parent / "dbt", tmp_path / "dbt"))


@pytest.fixture
def dbt(port: Port, project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``dbt(word, ...)``: how a command of dbt ended."""
    environment = {
        **os.environ,
        "GATEWAY_PORT": port.number,
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }

    def dbt(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "--no-use-colors", *words],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return dbt


def test_dbt_connects_shows_a_model_of_models_and_documents_the_columns(
    port: Port, project: Path, dbt: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert "All checks passed!" in dbt("debug").stdout
    said = dbt("--quiet", "show", "--select", "by_country", "--output", "json").stdout
    rows = json.loads(said)["show"]
    assert {row["country"] for row in rows} == {*port.paid, "other"}
    assert all(abs(row["n"] - port.paid[row["country"]]) < 2 * row["bar"] for row in rows)
    assert all(row["bar"] < 5_000 for row in rows)
    assert dbt("docs", "generate").returncode == 0
    catalog = json.loads((project / "target/catalog.json").read_text())
    columns = catalog["sources"]["source.sales.public.sales"]["columns"]
    assert {name: column["type"] for name, column in columns.items()} == {
        "sold": "date",
        "country": "text",
        "channel": "text",
        "amount": "double precision",
        "paid": "boolean",
    }
    assert columns["country"]["comment"] == "One of: BE, DE, FR, IT"


def test_a_table_of_dbt_is_refused_with_a_reason(
    project: Path, dbt: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (project / "models/stored.sql").write_text(
        "{{ config(materialized='table') }} SELECT country, COUNT(*) AS n FROM public.sales GROUP BY 1"
    )
    ended = dbt("run")
    assert ended.returncode == 1
    assert "cannot execute CREATE in a read-only transaction" in ended.stdout
