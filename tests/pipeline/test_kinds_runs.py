"""Kinds that keep a secret for a run answer through the worker; the secret never leaves its place."""

from __future__ import annotations

from typing import Any

RUNS = {
    "between": {"share": 0.2, "answers": 2},
    "interior_point": {"share": 0.15, "points": 100},
    "adaptive_threshold": {"share": 0.2, "chunks": 4, "queries": 50},
}


async def test_x(world: Any) -> None:
    def define(world: Any) -> None:
        world.define("flights", kinds=RUNS, privacy={"epsilon": 20.0, "delta": 1e-6})

    def ask(world: Any) -> None:
        aa = {"attribute": "carrier", "eq": "AA"}
        d = {"attribute": "delay", "lt": 10}
        for i in range(3):
            world.ask("flights", f"b{i}", aa, kind="between", low=0.1 + i / 100, high=0.3)
        for i, lt in enumerate((0, 10, 30)):
            d = {"attribute": "delay", "lt": lt}
            world.ask("flights", f"i{i}", d, kind="interior_point", attribute="delay")
            world.ask("flights", f"a{i}", d, kind="adaptive_threshold", attribute="delay")

    await world.run(
        rounds=(
            define,
            lambda w: w.cells("flights", "one"),
            ask,
            lambda w: w.cells("flights", "two"),
            ask,
        )
    )
    assert world.complaints() == []
    for k, v in world.answers().items():
        print(
            k[-1],
            {
                a: b
                for a, b in v.items()
                if a not in ("version", "dataset", "query_id", "analyst", "status")
            },
        )
    print(world.store._datasets["flights"].vault)
    assert 0
