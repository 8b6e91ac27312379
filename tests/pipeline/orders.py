"""A data set with a number of which nobody knows the range, its rows, and what is to be proposed."""

from __future__ import annotations

from typing import Any

from tests.pipeline.flights import PRECISE

SHARE = 0.05

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "country", "type": "category", "values": ["DE", "FR"]},
    {"name": "amount", "type": "number", "propose": {"bins": 4, "share": SHARE, "unit": 0.5}},
]

ROWS = [
    ("DE", 1.5, 2_500),
    ("FR", 4.0, 2_500),
    ("DE", 10.0, 2_500),
    ("IT", 500.0, 2_495),
    ("DE", 9e9, 5),
]
"""Country, amount, and how many rows of each a phase has. Too few have the last amount to be seen."""

N = 10_000


def define(world: Any, **more: Any) -> None:
    world.define(
        "orders",
        **{
            "attributes": ATTRIBUTES,
            **PRECISE,
            "phase": {"min_rows": N},
            "mechanism": {"base_share": 0.1},
            **more,
        },
    )


def phase(world: Any, rows: Any = ROWS, **more: Any) -> None:
    """A batch that opens a phase."""
    number = world.next_offset("batches", "orders")
    cells = [{"country": c, "amount": a, "count": n, **more} for c, a, n in rows]
    world.batch("orders", f"batch-{number}", cells=cells)


def accepted(edges: Any, **more: Any) -> list[dict[str, Any]]:
    """The attributes with edges for the amount."""
    return [ATTRIBUTES[0], {"name": "amount", "type": "number", "edges": [*edges], **more}]


def change(world: Any, attributes: Any, version: int = 2) -> Any:
    return world.change_schema("orders", attributes, version)
