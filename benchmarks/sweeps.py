"""Erasing persons: what a sweep of a hundred million rows takes, and what a slot takes more.

    python benchmarks/sweeps.py [--rows 100000000] [--folder /tmp]

Slabs of a million rows are sealed into files, as a worker seals them, with the person and the own key of each
row next to it. Then a sweep keeps each of them again without the rows of some persons, whether or not it
finds any. It is timed with few requests and with many. It needs 5 GB of disk, and some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from workloads import console, verdict

from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Digests, Slots
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.slabs import SLOTS
from stream_dp.messages import Definition
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.own_values import OwnValues
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.sealed_blocks import SealedBlocks
from stream_dp.pipeline.rows.secret_order import secret_order
from stream_dp.pipeline.rows.slab_files import SlabFiles, SlabPlace
from stream_dp.pipeline.watch.crash_points import unarmed

NAME: Final = "visits"
DEFINITION: Final = {
    "version": 1,
    "dataset": NAME,
    "attributes": [
        {"name": "carrier", "type": "category", "values": [f"c{n}" for n in range(15)]},
        {"name": "month", "type": "category", "values": [f"m{n}" for n in range(23)]},
        {"name": "delay", "type": "number", "edges": [*range(0, 230, 10)]},
    ],
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-9,
        "unit": {"key": "customer", "rows_per_phase": 2, "phases": 12},
    },
    "phase": {"min_rows": SLOTS},
    "erasure": {"within": "24 hours", "row": "visit"},
}
MOST_CPU_S: Final = 60.0
MOST_BYTES: Final = 23.0


class Swept:
    """Sealed blocks in files, and what sweeps them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engine = folder, Engine(Definition.read(DEFINITION))
        files = SlabFiles.opened(SlabPlace(folder.as_uri()))
        keeper = Keeper(cast("Any", None), Context(), files=files)  # all is in files
        self.draft = Draft(JournalChain(NAME), unarmed, dict)
        self.values = OwnValues(self.draft, keeper, unarmed)
        self.blocks = SealedBlocks(
            NAME, self.engine, self.values, lambda: bytes(32), ColumnCache(0)
        )
        self.rng = np.random.default_rng(1)

    async def seal(self) -> Digests:
        """Seals a million rows as the next block; returns the digests of their persons."""
        rng, universe = self.rng, self.engine.universe
        codes = tuple(
            rng.integers(0, one.size, SLOTS).astype(one.dtype) for one in universe.attributes
        )
        digests = rng.integers(0, 256, (SLOTS, 12), dtype=np.uint8)
        own, ranks = rng.integers(1, 2**64, (2, SLOTS), dtype=np.uint64)
        rows = Rows(codes, None, whose=Slots(digests, ranks, own))
        marks = np.ones(SLOTS, np.bool_)
        block = Block.seal(universe, rows, counted=marks, order=secret_order, owned=True)
        await self.blocks.keep(len(self.blocks), block)
        self.blocks.data.sealed(SLOTS)
        self.draft.commit()
        self.draft.collect()
        return digests[:10_000]

    @property
    def n_bytes(self) -> int:
        return sum(one.stat().st_size for one in (self.folder / NAME).iterdir())

    async def sweep(self, persons: Digests, out: Console) -> float:
        """The CPU seconds of a sweep of all blocks."""
        changes, began, said = (
            RowChanges(persons),
            time.process_time(),
            f"{len(persons):,} requests",
        )
        for index in track(range(len(self.blocks)), said, console=out, transient=True):
            after = self.blocks.owners.after[index + 1][0]
            await self.blocks.change(index, 0, changes, after + 1)
            self.draft.commit()
            self.draft.collect()
            for what, named in self.values.named("gone ").items():
                await self.values._keeper.drop(NAME, [named])  # noqa: SLF001 - as its owner does
                del self.values._named["gone " + what]  # noqa: SLF001
        return time.process_time() - began


async def measured(rows: int, folder: Path) -> None:
    swept, out = Swept(folder), console()
    n_blocks = -(-rows // SLOTS)
    known = [
        await swept.seal() for _ in track(range(n_blocks), "sealing", console=out, transient=True)
    ]
    n_rows = n_blocks * SLOTS
    plain = 1 + sum(one.dtype.itemsize for one in swept.engine.universe.attributes)
    more = swept.n_bytes / n_rows - plain
    table = Table(title=f"{n_rows:,} rows in {n_blocks} blocks")
    for name in ("requests", "CPU seconds", "for 1e8 rows", "a request"):
        table.add_column(name, justify="right")
    worst = 0.0
    for n_requests in (1_000, 1_000_000):
        some = np.concatenate(known)[: n_requests // 10]
        others = swept.rng.integers(0, 256, (n_requests - len(some), 12), dtype=np.uint8)
        seconds = await swept.sweep(np.concatenate([some, others]), out)
        of_all = seconds * 1e8 / n_rows
        worst = max(worst, of_all)
        table.add_row(
            f"{n_requests:,}",
            f"{seconds:.1f}",
            f"{of_all:.1f}",
            f"{1000 * seconds / n_requests:.3f} ms",
        )
    out.print(table)
    out.print(verdict("CPU seconds of a sweep of 1e8 rows", worst, most=MOST_CPU_S))
    out.print(verdict("bytes that a slot takes more than without erasure", more, most=MOST_BYTES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    try:
        asyncio.run(measured(given.rows, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
