"""Values that a data set finds by itself, through the worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipeline.world import Process

PAGES: dict[str, Any] = {
    "attributes": [
        {"name": "page", "type": "category", "find": {"most": 20, "windows": [1, 2], "share": 0.2}},
        {"name": "bot", "type": "boolean"},
    ],
    "mechanism": {"base_share": 0.001},
}


def rows_of(pages: dict[str, int], bot: bool = False) -> list[dict[str, Any]]:
    return [{"page": page, "bot": bot} for page, n in pages.items() for _ in range(n)]


async def opened(process: Process, *phases: dict[str, int], **changes: Any) -> Any:
    world = process.world
    world.define("visits", **{**PAGES, "phase": {"min_rows": 1_000}, **changes})
    for number, pages in enumerate(phases):
        world.batch("visits", f"b{number}", rows=rows_of(pages))
    await process.run()
    return world


async def test_values_that_many_rows_have_are_found_and_told_apart(world: Any, process: Any) -> None:
    junk = {f"junk-{n}": 1 for n in range(200)}
    world = await opened(process, {"/home": 900, "/a": 500, **junk}, {"/home": 1_000, "/new": 400})
    print(world.rejections())
    print([json.loads(r.value) for r in world.left("catalog")][-1]["attributes"])
    print([e for e in world.events("values_found")])
    world.ask("visits", "q1", kind="table", group_by=["page"])
    world.ask("visits", "q2", where={"attribute": "page", "eq": "/home"})
    await process.run()
    for one in world.answers().values(): print(one)
    assert 0
