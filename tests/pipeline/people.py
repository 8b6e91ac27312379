"""A data set whose attributes change: what it begins with, what it becomes, and its rows."""

from __future__ import annotations

import copy
from typing import Any

from stream_dp.audit.verify import verify
from stream_dp.state import ledger
from tests.pipeline.flights import PRECISE

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "country", "type": "category", "values": ["DE", "FR"]},
    {"name": "age", "type": "number", "edges": [30, 45], "integer": True},
    {
        "name": "spent",
        "type": "number",
        "edges": [50],
        "measure": {"unit": 1, "low": 0, "high": 100},
    },
]
"""Version 1."""

ROWS = [
    ("DE", 20, 10, 4_000),
    ("FR", 32, 60, 3_000),
    ("IT", 40, 150, 2_000),
    ("ES", 50, 90, 1_000),
]
"""Country, age and what was spent, and how many rows of each a phase has."""

N = 10_000


def changed(attributes: list[dict[str, Any]], which: str, /, **fields: Any) -> list[dict[str, Any]]:
    """The attributes, one of which says something else."""
    found = copy.deepcopy(attributes)
    (one,) = (attribute for attribute in found if attribute["name"] == which)
    one.update(fields)
    return found


IT = changed(ATTRIBUTES, "country", values=["DE", "FR", "IT"])
"""Version 2: a value more."""

SPLIT = changed(IT, "age", edges=[30, 35, 45])
"""Version 3: an edge more."""

WIDER = changed(SPLIT, "spent", measure={"unit": 1, "low": 0, "high": 200})
"""The same, with values within wider bounds."""


def change(world: Any, attributes: Any, version: int = 2) -> Any:
    return world.change_schema("people", attributes, version)


def phase(world: Any, rows: Any = ROWS, **more: Any) -> None:
    """A batch that opens a phase, with whatever columns."""
    number = world.next_offset("batches", "people")
    cells = [{"country": c, "age": a, "spent": s, "count": n, **more} for c, a, s, n in rows]
    world.batch("people", f"batch-{number}", cells=cells)


def define(world: Any, **more: Any) -> None:
    world.define(
        "people",
        **{
            "attributes": ATTRIBUTES,
            **PRECISE,
            "phase": {"min_rows": N},
            "mechanism": {"base_share": 0.3},
            **more,
        },
    )


def chained(dataset: str, entries: list[dict[str, Any]]) -> list[bytes]:
    """A chain that holds, of entries that were changed: who forges it has the topic to himself."""
    head, chain = ledger.GENESIS, []
    for seq, fields in enumerate(copy.deepcopy(entries)):
        body = {k: v for k, v in fields.items() if k not in ledger._RESERVED}
        entry, head = ledger.append(head, seq, dataset, fields["kind"], body)
        chain.append(entry)
    return chain


def verified(entries: list[dict[str, Any]]) -> list[str]:
    """The faults of a ledger with these entries."""
    dataset = entries[0]["dataset"]
    return [fault.text for fault in verify(dataset, chained(dataset, entries)).faults]
