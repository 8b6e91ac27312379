"""A data set that is lived through twice, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.pipeline.blindfold.two_rows import NOBODY, OF_ANA, OF_ZOE, THESE, Row
from tests.pipeline.clocked import HOUR_MS, clock
from tests.pipeline.scenarios import NOV_1


@dataclass(frozen=True)
class Life:
    """A data set and what is asked of it.

    Attributes:
        definition: What it has of its own.
        queries: Asked in both phases, again, and by the worker after a restart.
        looks: Classes of the looks that must have been taken, so that the comparison is about them.
        papers: Whether it has the tiny universe and the phases of the papers' mechanisms.
        rows: Thousands of rows that open a phase.
        phases: How many open.
        in_order: Whether rows come one by one, not as cells.
        numbered: Whether the carrier is a number.
        changed: The attributes of the second phase, if they are others.
        ticks: Whether phases are days that the clock closes, with ticks every six hours.
        late: Whether the row comes once more after its day has closed, and its phase is then complete.
        erases: Whether rows are those of persons, of whom some are erased between the phases. So is the one
            whose row is compared, and another row is corrected.
    """

    definition: Mapping[str, Any]
    queries: Sequence[Mapping[str, Any]]
    looks: frozenset[type]
    papers: bool = False
    rows: int = 21
    phases: int = 2
    in_order: bool = False
    numbered: bool = False
    changed: Sequence[Mapping[str, Any]] | None = None
    ticks: bool = False
    late: bool = False
    erases: bool = False

    def prepare(self, world: Any) -> None:
        """What workers need before they start."""
        if self.erases:
            world.key_file = bytes(range(64))

    def define(self, world: Any, name: str) -> None:
        if self.ticks or self.erases:
            world.now_ms = NOV_1 + HOUR_MS
        (world.define_memory if self.papers else world.define)(name, **self.definition)

    def change(self, world: Any, name: str, row: Row) -> None:
        """Other attributes, if there are any, or changes of rows and a sweep.

        Args:
            world: The world.
            name: The name of the data set.
            row: The row that is compared. Another one is corrected so that it says the same.
        """
        if self.changed is not None:
            world.change_schema(name, self.changed)
        if self.erases:
            said = THESE if row == NOBODY else {key: row[key] for key in THESE}
            if self.has_row_keys:
                fixed = {**OF_ANA, "set": said}
                world.batch(name, "fixed", correct=[{**OF_ZOE, "set": said}, fixed, None])
            world.batch(name, "gone", erase=[None, 7, "zoe", "nobody"])
            world.now_ms += 9 * HOUR_MS
            clock(world, name)

    def row(self, row: Row, of: Row = OF_ZOE) -> Row:
        """What its attributes have of a row, and whose it is if persons are erased."""
        if self.numbered:
            row = {**row, "carrier": {"AA": 1, "UA": 2}.get(row["carrier"], 3)}
        if self.erases and row != NOBODY:
            row = {**row, "user_id": of["person"], "trip": of["row"]}
        left_out = {"delay"} if self.papers else set() if self.has_row_keys else {"trip"}
        return {key: row[key] for key in row if key not in left_out}

    @property
    def has_row_keys(self) -> bool:
        """Whether rows can be corrected by keys of their own."""
        return "row" in self.definition.get("erasure", {})

    def fill(self, world: Any, name: str, batch_id: str, row: Row) -> None:
        """Rows for one phase, and the row that is compared if it comes late."""
        day = datetime.fromtimestamp(world.now_ms / 1000, UTC).date()
        like = [("AA", 5, False, 9), ("UA", 45, True, 8), ("ZZ", -3, False, 4)]
        if self.papers:  # shares that a hypothesis of three rows can have
            like = [("AA", 0, False, 7), ("AA", 0, True, 7), ("UA", 0, False, 7)]
        parts = [
            (self.row({"carrier": c, "delay": d, "cancelled": gone}), 1000 * share)
            for c, d, gone, share in like
        ]
        if self.in_order:
            columns: dict[str, list[Any]] = {key: [] for key in parts[0][0]}
            for row, count in parts:
                for key, value in row.items():
                    columns[key] += [value] * (count * self.rows // 21)
            if self.erases:
                keys = [*range(len(columns["user_id"]))]
                columns |= {"user_id": keys} | ({"trip": keys} if self.has_row_keys else {})
            world.batch(name, batch_id, columns=columns)
        else:
            cells = [row | {"count": count * self.rows // 21} for row, count in parts]
            world.batch(name, batch_id, cells=cells)
        if self.ticks:
            for hours in (6, 6, 14):  # two ticks, and the end of the day
                world.now_ms += hours * HOUR_MS
                clock(world, name)
        if self.late:
            world.batch(name, f"{batch_id}-late", rows=[row, row], time=f"{day}")
            world.now_ms += 24 * HOUR_MS
            clock(world, name)

    def ask(self, world: Any, name: str, turn: str) -> None:
        now_ms, world.now_ms = world.now_ms, -1  # how late an answer comes is not compared
        for number, query in enumerate(self.queries):
            world.ask(name, f"{turn}-{number}", **query)
        world.now_ms = now_ms
