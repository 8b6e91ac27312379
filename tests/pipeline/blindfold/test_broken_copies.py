"""The comparison can fail: it tells broken copies apart."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.encoding import array
from stream_dp.core.residual.looks.table_looks import CountsLook
from stream_dp.core.rows import slabs
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.slabs import Slab
from stream_dp.core.rows.slot_counts import digits_of, from_digits
from stream_dp.messages import Batch
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.phases import Phases
from stream_dp.pipeline.intake import decider
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.queries import reply
from stream_dp.pipeline.rows.column_cache import ColumnCache, ColumnKey
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches
from stream_dp.pipeline.watch.metrics import Metrics
from stream_dp.state.private_names import Named
from tests.pipeline.blindfold.compensating_noise import Differs
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.statistics_of_looks import of_counts
from tests.pipeline.blindfold.visible import Both

BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {}


def broken(where: str) -> Callable[[Any], Any]:
    """Registers a broken copy, and where the comparison finds it first."""

    def register(
        mutate: Callable[[pytest.MonkeyPatch], None],
    ) -> Callable[[pytest.MonkeyPatch], None]:
        BROKEN[mutate.__name__] = (where, mutate)
        return mutate

    return register


def _unlisted(rows: Any) -> int:
    """Rows whose carrier the definition does not list: a true count."""
    return int(rows.entry_counts[rows.codes[0] == 2].sum())


def _first_cell(rows: PrivateRows) -> int:
    """A true count of all phases."""
    data = rows.blocks.data
    return int(sum(table[2] for table in data.marginal((0,), range(len(data))))) if len(data) else 0


def _with_reason(value: bytes, more: object) -> bytes:
    reply = json.loads(value)
    reply["reason"]["message"] += str(more)
    return json.dumps(reply).encode()


@broken("released")
def an_event_counts_the_rows_of_a_cell(patch: pytest.MonkeyPatch) -> None:
    store = WaitingBatches.store_outcome

    def counting(self: WaitingBatches, batch: Batch, what: str, **facts: Any) -> bytes:
        if self._pending and facts.get("waiting"):
            facts["waiting"] += _unlisted([*self._pending.values()][-1])
        return store(self, batch, what, **facts)

    patch.setattr(WaitingBatches, "store_outcome", counting)


@broken("released")
def an_answer_notes_a_true_count(patch: pytest.MonkeyPatch) -> None:
    answered = reply.ReplyMaker.answered

    def noting(self: Any, *arguments: Any) -> Any:
        reply = answered(self, *arguments)
        return reply.model_copy(update={"note": str(_first_cell(self.dataset.rows))})

    patch.setattr(reply.ReplyMaker, "answered", noting)


@broken("released")
def a_rejection_has_a_digest(patch: pytest.MonkeyPatch) -> None:
    rejection = decider.Decider.rejection

    def digesting(self: Any, record: Any, error: Any, *more: Any, **named: Any) -> Outgoing:
        outgoing = rejection(self, record, error, *more, **named)
        digest = hashlib.blake2b(record.value or b"", key=b"secret").hexdigest()
        return Outgoing(outgoing.role, outgoing.key, _with_reason(outgoing.value, digest))

    patch.setattr(decider.Decider, "rejection", digesting)


@broken("released")
def the_ledger_counts_cells(patch: pytest.MonkeyPatch) -> None:
    announce = Phases._announce

    def counting(self: Phases, n_rows: int, erased: int, late: int) -> None:
        write, cells = self._draft.write_ledger, _first_cell(self._rows)
        with pytest.MonkeyPatch.context() as more:
            more.setattr(
                self._draft,
                "write_ledger",
                lambda kind, body: write(kind, {**body, "cells": cells}),
            )
            announce(self, n_rows, erased, late)

    patch.setattr(Phases, "_announce", counting)


@broken("released")
def synthetic_rows_are_noted_a_true_count(patch: pytest.MonkeyPatch) -> None:
    synthesize = PaidLooks.synthesize

    def noting(self: PaidLooks) -> None:
        synthesize(self)
        for outgoing in self._draft._change.outgoing:
            if outgoing.role == "synthetic":
                found = json.loads(outgoing.value)
                found["note"] += str(_first_cell(self._rows))
                object.__setattr__(outgoing, "value", json.dumps(found).encode())

    patch.setattr(PaidLooks, "synthesize", noting)


@broken("logged")
def a_log_record_says_what_a_row_holds(patch: pytest.MonkeyPatch) -> None:
    join = WaitingBatches.join

    async def logging_it(self: WaitingBatches, batch: Any, taken: Any, *place: Any) -> None:
        logging.getLogger("stream_dp").debug("%s rows are of other carriers", _unlisted(taken.rows))
        await join(self, batch, taken, *place)

    patch.setattr(WaitingBatches, "join", logging_it)


@broken("metrics")
def a_metric_shows_a_true_count(patch: pytest.MonkeyPatch) -> None:
    exposition = Metrics.exposition

    def counting(self: Metrics) -> bytes:
        datasets = self.worker.datasets.values() if self.worker is not None else ()
        return exposition(self) + b"others %d\n" % sum(_first_cell(one.rows) for one in datasets)

    patch.setattr(Metrics, "exposition", counting)


@broken("released")
def rows_that_wait_are_counted_by_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    n_rows = vars(WaitingBatches)["n_rows_to_come"].fget

    def counting(self: WaitingBatches) -> int:
        return int(n_rows(self)) + sum(map(_unlisted, self._pending.values()))

    seal = Phases._seal

    async def counted_rightly(self: Phases) -> int:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(WaitingBatches, "n_rows_to_come", property(n_rows))
            return await seal(self)

    patch.setattr(WaitingBatches, "n_rows_to_come", property(counting))
    patch.setattr(Phases, "_seal", counted_rightly)


@broken("kept")
def columns_are_compressed(patch: pytest.MonkeyPatch) -> None:
    column = slabs._column
    patch.setattr(slabs, "array", lambda values: zlib.compress(array(values)))
    patch.setattr(slabs, "_column", lambda entry, stored: column(entry, zlib.decompress(stored)))


@broken("kept")
def equal_rows_share_a_slot(patch: pytest.MonkeyPatch) -> None:
    seal = Block.seal

    def merging(*arguments: Any, **named: Any) -> Block:
        block = seal(*arguments, **named)
        return replace(block, slabs=tuple(map(shared, block.slabs)))

    def shared(slab: Slab) -> Slab:
        of = dict(slab.columns)
        entries = from_digits(of.pop("entry 0"), of.pop("entry 1"))
        rows, at = np.unique(np.stack([*of.values()]), axis=1, return_inverse=True)
        counts = np.zeros(rows.shape[1], np.int64)
        np.add.at(counts, at.reshape(-1), entries)
        digits = zip(("entry 0", "entry 1"), digits_of(counts), strict=True)
        return Slab(slab.n_rows, len(counts), {**dict(zip(of, rows, strict=True)), **dict(digits)})

    patch.setattr(Block, "seal", merging)


@broken("fetched")
def a_column_is_kept_in_memory_if_a_number_is_even(patch: pytest.MonkeyPatch) -> None:
    get = ColumnCache.get

    def choosy(self: ColumnCache, key: ColumnKey) -> Any:
        column = get(self, key)
        odd = key.place and column is not None and int(column.sum()) % 2
        return None if odd else column

    patch.setattr(ColumnCache, "get", choosy)


@broken("steps")
def a_row_of_another_cell_takes_a_step_more(patch: pytest.MonkeyPatch) -> None:
    accept = Phases.accept

    async def asking(self: Phases, batch: Any, taken: Any, span: Any) -> bytes:
        for _ in range(_unlisted(taken.rows)):
            await self._rows.values._keeper.find(self._draft.dataset, Named(bytes(16), (0,)))
        return await accept(self, batch, taken, span)

    patch.setattr(Phases, "accept", asking)


@broken("released")
def a_count_has_no_noise(patch: pytest.MonkeyPatch) -> None:
    take = CountsLook.take

    def exact(self: CountsLook, noise: Any, data: Blocks) -> Any:
        release = take(self, noise, data)
        values = np.array(of_counts(self, data, None))
        return type(release)(release.key, release.attributes, release.steps, values)

    patch.setattr(CountsLook, "take", exact)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_copy_is_told_apart(
    both: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where, mutate = BROKEN[name]
    mutate(monkeypatch)
    runs: Both | None = None
    with contextlib.suppress(Differs):
        runs = await both(LIVES["calibrated"])
    if runs is None:
        assert where == "released", "what was released before has led to something else"
    else:
        assert where in runs.unlike
