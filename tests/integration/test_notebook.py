"""The notebook among the examples runs from top to bottom, and its answers are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.waiting import PATIENCE_S

NOTEBOOK = Path(__file__).parents[2] / "examples/walkthrough.ipynb"


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_stored_without_outputs_and_says_nothing_of_a_machine(notebook: Any) -> None:
    nbformat.validate(notebook)
    assert {tuple(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"} == {()}
    assert {cell.get("execution_count") for cell in notebook.cells} == {None}
    assert notebook.metadata.language_info == {"name": "python"}


@pytest.mark.slow
@pytest.mark.kafka
async def test_it_runs_from_top_to_bottom(
    notebook: Any, deployment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.worker().wait_ready()
    monkeypatch.setenv("STREAM_DP_BOOTSTRAP_SERVERS", deployment.bootstrap_servers)
    monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", deployment.prefix)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for folder in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(folder, str(tmp_path / folder))

    client = NotebookClient(
        notebook, timeout=PATIENCE_S, resources={"metadata": {"path": tmp_path}}
    )
    await client.async_execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 1
    printed = "".join(output.get("text", "") for output in outputs)
    assert "month 2: 24,951 rows, phase 2 is open" in printed
    assert re.search(r"^\d+\.\d\d% ± \d\.\d\d% of 51,955 rows, ", printed, re.MULTILINE)
    (inside,) = [
        output.data["text/plain"]
        for cell in notebook.cells
        if cell.source.endswith('<= delays["error_bar"]).mean()')
        for output in cell.outputs
    ]
    # Of 8 bars that each cover with 0.99, five miss once in 10^8 runs.
    assert float(re.sub(r"np\.float64\((.*)\)", r"\1", inside)) >= 0.5
