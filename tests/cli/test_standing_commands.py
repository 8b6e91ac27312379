"""Standing queries from the command line: begun, listed, applied from a file, and ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.automate.dashboard_command import _of_definition
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition, QueryFields
from tests.cli.conftest import Run


def test_the_workload_of_a_definition_is_tiles(definition: dict[str, Any]) -> None:
    tiles = [
        {"where": {"attribute": "smoker", "eq": True}, "weight": 2.0},
        {"group_by": ["city"], "window": {"last_phases": 7}},
        {"attribute": "age", "group_by": ["city"]},
    ]
    spec = {"version": 1, **definition, "mechanism": {"workload": tiles}}
    items = list(_of_definition(Definition.read(spec)))
    assert [item["kind"] for item in items] == ["predicate", "table", "sum"]
    assert [item["query_id"] for item in items] == ["tile-1", "tile-2", "tile-3"]
    for item in items:
        QueryFields.read({**item, "standing": True})
    tables = {"tables": ["city", ["city", "smoker"]], "windows": [1, "all"]}
    spec["mechanism"] = {"workload": tables}
    items = list(_of_definition(Definition.read(spec)))
    assert [item.get("window") for item in items] == [{"last_phases": 1}, None] * 2
    with pytest.raises(InvalidInput, match="no workload"):
        list(_of_definition(Definition.read({"version": 1, **definition})))


@pytest.mark.kafka
def test_tiles_fill_themselves(
    served: Run, define: Callable[..., str], write_people: Callable[..., Path], tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / "tiles.json"
    tiles: list[dict[str, Any]] = [
        {"id": "young", "sql": "age < 30", "window": {"last_phases": 1}, "alert": {"below": 0.9}},
        {"id": "cities", "query": {"kind": "table", "group_by": ["city"]}},
    ]
    file.write_text(json.dumps({"tiles": tiles}))
    ended = served("dashboard", "apply", name, file)
    assert ended.out == "young: begins\ncities: begins\n", ended.err
    ended = served("ask", name, "smoker", "--standing", "--id", "smokers")
    assert ended.code == 0, ended.err
    assert "smokers@PHASE" in ended.out

    assert served("ingest", write_people(name), "--batch-rows", 2500).code == 0
    listed = served("standing", "list", name, "--json").out.splitlines()
    assert {json.loads(line)["query_id"] for line in listed} == {"young", "cities", "smokers"}
    # An answer that is asked by hand comes after those of the phase.
    answer = json.loads(served("ask", name, "smoker", "--id", "smokers@2", "--json").out)
    assert (answer["status"], answer["window"]) == ("answered", [1, 2])
    table = json.loads(served("ask", name, "--group-by", "city", "--id", "cities@1", "--json").out)
    assert table["n"] == 2500

    del tiles[0]["alert"]
    file.write_text(json.dumps({"tiles": [tiles[0], {"id": "old", "sql": "age >= 45"}]}))
    ended = served("dashboard", "apply", name, file, "--prune")
    again = "young: begins again, from the next phase on"
    said = ["cities: has ended", "old: begins", "smokers: has ended", again]
    assert sorted(ended.out.splitlines()) == said
    assert served("standing", "end", name, "old").code == 0
    listed = served("standing", "list", name).out
    assert ("young" in listed, "old" in listed) == (True, False)
