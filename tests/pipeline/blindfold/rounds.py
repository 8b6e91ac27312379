"""What the workers of a run take, round after round."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stream_dp.pipeline.intake import decoder
from tests.pipeline.blindfold.life import Life
from tests.pipeline.blindfold.two_rows import OF_ANA, THESE, Row


def rounds_of(life: Life, row: Row) -> tuple[list[Callable[[Any], None]], ...]:
    """What one worker takes and then another: rows in every form, rejected ones, and queries."""
    row, common = life.row(row), life.row(THESE, OF_ANA)

    def early(world: Any) -> None:
        world.batch("flights", "early", rows=[common, row])

    def define(world: Any) -> None:
        life.define(world, "flights")

    def fill(phase: int) -> Callable[[Any], None]:
        def filled(world: Any) -> None:
            name = f"phase-{phase}"
            world.batch("flights", "early", rows=[common, row])  # now there is a data set for it
            world.batch("flights", f"{name}-columns", columns={key: [row[key]] for key in row})
            if not life.in_order:
                world.batch("flights", f"{name}-cells", cells=[row | {"count": 1}])
            world.batch("flights", "early", rows=[row])  # a repeated id
            for sequence in (
                phase,
                phase,
                phase + 9,
            ):  # the next one, a repeated one, and one that is neither
                world.counted("flights", "till-7", sequence, rows=[row])
            life.fill(world, "flights", name, row)

        return filled

    def refuse(world: Any) -> None:
        world.batch("flights", "short", columns={"carrier": [row["carrier"]], "cancelled": []})
        world.batch("flights", "unknown", rows=[row | {"name": row["carrier"]}])
        world.batch("flights", "negative", cells=[row | {"count": -1}])
        world.batch("nobody", "lost", rows=[row])
        world.counted("flights", "till-8", 1, rows=[row | {"name": row["carrier"]}])
        head = {"version": 1, "dataset": "flights", "rows": [row]}
        for name in ({"producer": "till-7"}, {"producer": "till-7", "sequence": "1"}, {}):
            world.produce("batches", {**head, **name})
        document = {"version": 1, "dataset": "flights", "batch_id": "x", "rows": [row]}
        value = json.dumps(document).encode()
        of_it = decoder.partition_of(b"flights", world.partitions)
        world.produce("batches", value, key="flights", partition=1 - of_it)
        world.produce("batches", value[:-1], key="flights")
        world.produce("batches", value, key=None)
        world.produce("batches", {**document, str(row["carrier"]): 1}, key="flights")
        for role in ("queries", "datasets"):  # sent there by mistake
            world.produce(role, value, key="flights")
            world.produce(role, row, key="flights")

    def ask(turn: str) -> Callable[[Any], None]:
        return lambda world: life.ask(world, "flights", turn)

    def change(world: Any) -> None:
        life.change(world, "flights", row)

    first = [early, define, fill(0), refuse, ask("first"), ask("again")]
    if life.erases:
        return first, [ask("restarted"), change], [ask("changed"), fill(1), ask("second")]
    return first, [ask("restarted"), *([change, fill(1), ask("second")] if life.phases > 1 else [])]
