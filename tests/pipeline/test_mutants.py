"""The referee must complain of protocols that are wrong: a test that cannot fail proves nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.calendar_periods import LATEST_MS
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.budget.share_bounds import Bound, Shares
from stream_dp.core.residual.plan.planner import BudgetAllocator
from stream_dp.core.rows import lifetime_slots
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.person_slots import Slots
from stream_dp.core.rows.row_changes import Hits, RowChanges
from stream_dp.errors import InvalidMessage
from stream_dp.messages import Definition, phase_in_id
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.phases import Phases
from stream_dp.pipeline.datasets.sweeps import Sweeps
from stream_dp.pipeline.intake import decider
from stream_dp.pipeline.intake.decider import Decider
from stream_dp.pipeline.intake.decoder import partition_in
from stream_dp.pipeline.journal.contents import Contents
from stream_dp.pipeline.journal.entries import entries_of
from stream_dp.pipeline.journal.marks import Marks, said
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.queries.standing_runner import StandingRunner
from stream_dp.pipeline.rows.person_allowance import UsedUnits
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.sealed_blocks import SealedBlocks
from stream_dp.pipeline.rows.stored_blocks import StoredBlocks
from stream_dp.pipeline.rows.waiting.row_times import Gathering, Times
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches
from stream_dp.pipeline.rows.waiting.waiting_rows import Taken
from stream_dp.pipeline.spending.payers import PayingAnalysts
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.pipeline.worker import Worker
from stream_dp.state.ids import Ids
from stream_dp.state.schema import Commit, State, StateTable
from tests.driven import take_all
from tests.pipeline.clocked import CLOCKED
from tests.pipeline.scenarios import (
    CALENDAR,
    ERASED,
    ERASING,
    LIVES_SHARED,
    PERSONS_BY_DAY,
    ROTATED,
    ROUNDS,
    SHARED,
    SOURCED,
    STANDING,
)

Mutate = Callable[[pytest.MonkeyPatch, Any], None]
Rounds = tuple[Callable[[Any], None], ...]
Death = tuple[int, CrashPoint | None]

MUTANTS: dict[str, tuple[Mutate, str, Rounds, Death]] = {}


CLOSED = (CALENDAR[0], lambda world: world.cells("flights", "one"), CALENDAR[5])
"""A day is closed before it ends."""


def mutant(
    promise: str, rounds: Rounds = ROUNDS, *, first: Death = (81, None)
) -> Callable[[Mutate], Mutate]:
    """Registers a mutant, the promise that it breaks, what clients send, and the death to try first."""

    def register(mutate: Mutate) -> Mutate:
        MUTANTS[f"{mutate.__name__} {promise}"] = (mutate, promise, rounds, first)
        return mutate

    return register


@mutant("P1")
@mutant("P3")
@mutant("P10")
def an_id_is_taken_twice_and_no_cursor_is_read(patch: pytest.MonkeyPatch, world: Any) -> None:

    async def nothing(*_: Any) -> dict[tuple[str, str], bytes]:
        return {}

    stored = Dataset.stored

    async def without_cursor(*arguments: Any, **named: Any) -> Dataset:
        dataset = await stored(*arguments, **named)
        dataset.draft.cursor.clear()
        return dataset

    patch.setattr(Contents, "find", nothing)
    patch.setattr(Dataset, "stored", without_cursor)
    patch.setattr(State, "_check_numbers", lambda *_: None)


@mutant("P1")
def published_before_the_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    commit = Draft.commit

    def early(self: Draft) -> None:
        for outgoing in self._change.outgoing:
            world.sent(len(world.processes) - 1, outgoing)
        commit(self)

    patch.setattr(Draft, "commit", early)


class _Taken:
    """A look that was taken before it was paid for."""

    def __init__(self, look: Any, release: Any) -> None:
        self._look, self._release = look, release

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look, name)

    def take(self, noise: Any, data: Any) -> Any:
        return self._release


@mutant("P6")
def charged_after_the_look(patch: pytest.MonkeyPatch, world: Any) -> None:
    take = PaidLooks.take

    async def first(self: PaidLooks, looks: Any, *who: Any, **more: Any) -> Any:
        taken, blocks = list[Any](), self._rows.blocks
        for one in looks:
            async with blocks.stored.readable():
                release = await asyncio.to_thread(one.take, self.noise, blocks.data)
            taken.append(_Taken(one, release))
        return await take(self, taken, *who, **more)

    patch.setattr(PaidLooks, "take", first)


@mutant("P6")
def a_look_is_not_announced(patch: pytest.MonkeyPatch, world: Any) -> None:
    put = Draft.put

    def silent(self: Draft, table: StateTable, key: Any, value: bytes | None) -> None:
        if table is not StateTable.INTENT:
            put(self, table, key, value)

    patch.setattr(Draft, "put", silent)


@mutant("P6")
def a_lost_look_is_paid_back(patch: pytest.MonkeyPatch, world: Any) -> None:
    recover = Dataset.recover

    async def generous(self: Dataset) -> int:
        spent = self.accounts.spent
        if self.draft.state.table(StateTable.INTENT) and spent:
            spent[-1] = (0, 0)
            self.draft.put(StateTable.SPENT, len(spent) - 1, b"0 0")
        return await recover(self)

    patch.setattr(Dataset, "recover", generous)
    patch.setattr(State, "_check_numbers", lambda *_: None)


@mutant("P6")
def a_lost_look_is_taken_again(patch: pytest.MonkeyPatch, world: Any) -> None:
    recover = Dataset.recover

    async def again(self: Dataset) -> int:
        if self.draft.state.table(StateTable.INTENT) and self.phase:
            with contextlib.suppress(Exception):  # it would need a thread to read the rows
                self.rows.blocks.data.marginal((0,), range(self.phase - 1, self.phase))
        return await recover(self)

    patch.setattr(Dataset, "recover", again)


@mutant("P6")
def a_look_that_was_announced_is_forgotten(patch: pytest.MonkeyPatch, world: Any) -> None:
    recover = Dataset.recover

    async def forgetful(self: Dataset) -> int:
        for number in self.draft.state.table(StateTable.INTENT):
            self.draft.put(StateTable.INTENT, int(number), None)
        self.draft.commit()
        return await recover(self)

    patch.setattr(Dataset, "recover", forgetful)


@mutant("P2")
def half_of_a_charge_is_recorded(patch: pytest.MonkeyPatch, world: Any) -> None:
    put = Draft.put

    def half(self: Draft, table: StateTable, key: Any, value: bytes | None) -> None:
        if table is StateTable.SPENT and value is not None:
            rho, delta = map(int, value.split())
            value = b"%d %d" % (rho // 2, delta)
        put(self, table, key, value)

    patch.setattr(Draft, "put", half)


def _marked(world: Any, watermarks: Mapping[str, int]) -> None:
    """Says on the journal what is done with, just like that."""
    for partition, entries in enumerate(world.journal):
        here = {place: at for place, at in watermarks.items() if partition_in(place) == partition}
        epochs = [dict(one.headers)["epoch"] for one in entries]
        if here and epochs:
            entries += entries_of("mark", "", said(watermarks=here), epochs[-1])


@mutant("P4")
def the_cursor_moves_on_an_exception(patch: pytest.MonkeyPatch, world: Any) -> None:
    async def like_faust(worker: Worker, records: Any) -> None:
        try:
            await take_all(worker, records)
        except BaseException:
            _marked(world, {record.topic_partition: record.offset + 1 for record in records})
            raise

    patch.setattr("tests.pipeline.world.take_all", like_faust)


@mutant("P4")
def a_batch_is_taken_in_and_rejected(patch: pytest.MonkeyPatch, world: Any) -> None:
    ingest = Decider._ingest

    async def both(self: Decider, *request: Any) -> None:
        await ingest(self, *request)
        raise InvalidMessage("batch", "it is taken in", "nothing")

    patch.setattr(Decider, "_ingest", both)


@mutant("P4", CALENDAR)
def a_batch_of_a_day_is_taken_in_and_rejected(patch: pytest.MonkeyPatch, world: Any) -> None:
    a_batch_is_taken_in_and_rejected(patch, world)


def said_before_it_has_left(patch: pytest.MonkeyPatch) -> None:
    """Says what is done with before it has left."""
    release = Releaser._release

    async def early(self: Releaser, releasable: Any) -> None:
        for mark, offset in releasable.watermarks.items():
            self._done[partition_in(mark)].setdefault("watermarks", {})[mark] = offset
        for partition, end in releasable.ends.items():
            self._done[partition]["released"] = end
            if (owned := self._journal.owned().get(partition)) is not None:
                await self.mark(owned)
        await release(self, releasable)

    patch.setattr(Releaser, "_release", early)


@mutant("P4")
def what_is_done_with_is_said_before_it_has_left(patch: pytest.MonkeyPatch, world: Any) -> None:
    del world
    said_before_it_has_left(patch)


@mutant("P4")
def committed_records_are_not_released_after_a_crash(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Worker, "_release_again", lambda *_: None)


@mutant("P4")
def what_was_rejected_is_accepted_on_redelivery(patch: pytest.MonkeyPatch, world: Any) -> None:
    take = Marks.take

    def unmarked(self: Marks, told: Mapping[str, Any]) -> None:
        marks = told.get("watermarks", {})
        take(self, {**told, "watermarks": {k: v for k, v in marks.items() if k in world.log}})

    patch.setattr(Marks, "take", unmarked)


@mutant("P3", first=(10, CrashPoint.AFTER_COMMIT))
def a_phase_is_announced_in_an_earlier_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    opens = Phases._open

    async def late(self: Phases, **ended: Any) -> None:
        await self._looks._commit()
        await opens(self, **ended)

    patch.setattr(Phases, "_open", late)


@mutant("P8", ERASED)
def rows_are_erased_in_a_later_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    def late(phases: int, kept: int | None) -> int:
        return max(0, erased_blocks(phases, kept) - 1)

    patch.setattr("stream_dp.pipeline.datasets.phases.erased_blocks", late)


def _nothing_is_known_to_be_erased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetAllocator, "erased", 0)
    patch.setattr(Blocks, "erase", lambda self, n_blocks: None)
    patch.setattr(StoredBlocks, "erase", lambda self, names: None)


@mutant("P8", ERASED)
def rows_are_never_erased(patch: pytest.MonkeyPatch, world: Any) -> None:
    _nothing_is_known_to_be_erased(patch)
    patch.setattr(SealedBlocks, "erase", lambda self, erased: None)


@mutant("P8", ERASED)
def rows_are_kept_in_memory_and_read(patch: pytest.MonkeyPatch, world: Any) -> None:
    def erase(self: SealedBlocks, n_blocks: int) -> None:
        for kind in self._slabs:
            for phase in range(1, n_blocks + 1):
                for at in self._values.named(f"{kind}{phase} "):
                    self._values.discard(f"{kind}{phase} {at}")

    _nothing_is_known_to_be_erased(patch)
    patch.setattr(SealedBlocks, "erase", erase)


@mutant("P8", ERASED)
def rows_stay_on_the_topic(patch: pytest.MonkeyPatch, world: Any) -> None:
    async def nothing(*_: Any) -> None:
        pass

    patch.setattr(Keeper, "drop", nothing)


@mutant("P8", ERASED)
def rows_stay_in_redis(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Commit, "erased", lambda _: [])


@mutant("P17", ERASED)
def redis_gets_no_commits(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(RedisFollower, "follow", lambda *_: None)


@mutant("P9", STANDING, first=(147, None))
def a_phase_is_noted_as_answered_before_it_is(patch: pytest.MonkeyPatch, world: Any) -> None:
    answer = StandingRunner._answer

    async def noted(self: StandingRunner, dataset: Dataset, entry: Any, *others: Any) -> None:
        dataset.standing_queries.answered(entry, dataset.phase, -1)
        dataset.draft.commit()
        await answer(self, dataset, entry, *others)

    patch.setattr(StandingRunner, "_answer", noted)


@mutant("P9", STANDING)
def the_id_of_an_answer_to_come_is_asked_by_hand(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(decider, "_refuse_reserved", lambda _: None)


@mutant("P4", STANDING)
def the_id_of_an_answer_is_refused_when_it_is_there(patch: pytest.MonkeyPatch, world: Any) -> None:
    ask_one = Decider._ask_one

    async def blind(self: Decider, dataset: Dataset, analyst: str, query: Any, known: Any) -> None:
        is_reserved = phase_in_id(query.query_id or "") is not None
        await ask_one(self, dataset, analyst, query, {} if is_reserved else known)

    patch.setattr(Decider, "_ask_one", blind)


@mutant("P4", STANDING)
def every_id_is_reserved(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(decider, "phase_in_id", lambda query_id: (query_id, 1))


@mutant("P9", STANDING, first=(239, None))
def a_take_over_leaves_standing_queries_for_later(patch: pytest.MonkeyPatch, world: Any) -> None:
    answer_due = StandingRunner.answer_due

    async def late(self: StandingRunner, dataset: Dataset, known: Any) -> bool:
        return dataset.draft.dirty is False or await answer_due(self, dataset, known)

    patch.setattr(StandingRunner, "answer_due", late)


@mutant("P10", ROTATED)
def a_rotation_drops_what_is_to_be_kept(patch: pytest.MonkeyPatch, world: Any) -> None:
    rotate = Ids.rotate

    def twice(self: Ids) -> None:
        rotate(self)
        rotate(self)

    patch.setattr(Ids, "rotate", twice)


@mutant("P12", ROTATED)
def an_id_is_forgotten_with_its_outcome(patch: pytest.MonkeyPatch, world: Any) -> None:
    put = Draft.put

    def forgetful(self: Draft, table: StateTable, key: Any, value: bytes | None) -> None:
        if table is not StateTable.TAKEN:
            put(self, table, key, value)

    patch.setattr(Draft, "put", forgetful)


@mutant("P3", ROTATED)
def rows_of_a_forgotten_id_count_again(patch: pytest.MonkeyPatch, world: Any) -> None:
    an_id_is_forgotten_with_its_outcome(patch, world)


@mutant("P12", ROTATED)
def the_number_of_a_producer_is_kept_in_a_later_commit(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    commit, late = Draft.commit, dict[Any, bytes | None]()

    def later(self: Draft) -> None:
        pairs = self._change.pairs
        now = {pair: pairs.pop(pair) for pair in list(pairs) if pair[1].startswith(b"producer ")}
        if self.dataset == "flights":
            pairs.update(late)
            late.clear()
            late.update(now)
        commit(self)

    patch.setattr(Draft, "commit", later)


@mutant("P12", SOURCED)
def ranges_of_a_source_may_overlap(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Draft, "expects", lambda *_: True)
    patch.setattr(State, "_check_numbers", lambda *_: None)


@mutant("P11", ROTATED)
def answers_rotate_with_each_record(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Definition, "kept_answers_days", 0)


@mutant("P13", SHARED)
def an_account_is_charged_in_no_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(PayingAnalysts, "charge", lambda self, payer, charges: [])


@mutant("P13", SHARED)
def a_share_bounds_nobody(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(PayingAnalysts, "lacking", lambda *_: None)
    patch.setattr(
        PayingAnalysts, "room", lambda self, payer, window: np.full((2, len(window)), UNITS)
    )


@mutant("P13", SHARED)
def a_pool_bounds_nobody(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Shares, "pool_of", lambda self, account: (Bound.REST, account, UNITS))


@mutant("P15", PERSONS_BY_DAY)
def what_persons_have_used_is_forgotten(patch: pytest.MonkeyPatch, world: Any) -> None:
    async def nothing(*_: Any) -> None:
        pass

    patch.setattr(UsedUnits, "add", nothing)


@mutant("P15", LIVES_SHARED)
def persons_count_in_each_phase_as_if_it_were_the_first(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    allowances = lifetime_slots.allowances
    patch.setattr(
        lifetime_slots,
        "allowances",
        lambda slots, before, unit: allowances(slots, 0 * before, unit),
    )


@mutant("P3", PERSONS_BY_DAY)
def what_persons_have_used_is_added_up_wrong_at_a_take_over(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    read = UsedUnits.read

    async def twice(self: UsedUnits) -> None:
        await read(self)
        self._used = {number: used.and_by(used) for number, used in self._used.items()}

    patch.setattr(UsedUnits, "read", twice)


@mutant("P16", CLOCKED)
def a_late_batch_ends_the_period_that_is_open(patch: pytest.MonkeyPatch, world: Any) -> None:
    truly, seen = Times.ends, list[Any]()

    def ends(self: Times, waiting: Gathering, batch: Any) -> bool:
        is_late = (
            bool(waiting.periods) and batch is not None and batch.since < waiting.periods[0].since
        )
        # Not for ever: it may have too few rows.
        if is_late and seen.count((batch, waiting.periods)) < 2:
            seen.append((batch, waiting.periods))
            return True
        return truly(self, waiting, batch)

    patch.setattr(Times, "ends", ends)


@mutant("P16", CLOCKED)
def rows_of_the_next_period_join_the_one_that_ends(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Gathering, "end", LATEST_MS)


@mutant("P16", CLOSED, first=(101, None))
def a_closing_is_done_with_before_its_phase_is_sealed(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    close = Phases.close

    async def late(self: Phases) -> bool:
        self._draft.commit()
        return await close(self)

    patch.setattr(Phases, "close", late)


@mutant("P20", ERASING, first=(0, None))
def a_receipt_comes_before_the_sweep(patch: pytest.MonkeyPatch, world: Any) -> None:
    async def nothing_left(self: Sweeps) -> bool:
        return False

    world.key_file = b"k" * 32
    patch.setattr(Sweeps, "_step", nothing_left)


@mutant("P20", ERASING, first=(0, None))
def corrections_find_no_row(patch: pytest.MonkeyPatch, world: Any) -> None:
    hits = RowChanges.hits

    def of_persons_alone(self: RowChanges, slots: Slots) -> Hits:
        return hits(replace(self, rows=None, erased=self.erased[:0]), slots)

    world.key_file = b"k" * 32
    patch.setattr(RowChanges, "hits", of_persons_alone)


@mutant("P20", ERASING, first=(0, None))
def changes_act_on_rows_behind_them(patch: pytest.MonkeyPatch, world: Any) -> None:
    join = WaitingBatches.join

    async def again(
        self: WaitingBatches, batch: Any, taken: Taken, *place: Any, **more: Any
    ) -> None:
        every = self.changes.after(-1)
        await join(self, batch, taken._replace(rows=every.of_rows(taken.rows)), *place, **more)

    world.key_file = b"k" * 32
    patch.setattr(WaitingBatches, "join", again)


async def _said(world: Any, fuse: Any, rounds: Any) -> list[str]:
    try:
        await world.run(fuse, rounds=rounds)
    except Exception as error:  # noqa: BLE001 - a mutant may well fall over
        return [f"it fell over: {error!r}"]
    finally:
        for process in world.processes:
            await process.kill()
    said: list[str] = world.complaints()
    return said


def _fuses(world: Any, first: Death) -> Iterator[tuple[int, Any]]:
    """Seeds and fuses: first coarsely over all effects, then behind every commit and release, then finely."""
    yield first[0], world.Fuse(*first)
    yield 0, world.Fuse(0, CrashPoint.AFTER_RELEASE)
    for start in range(4):
        yield start, world.Fuse(start, CrashPoint.AFTER_KEEP)
        for place in range(9 + 5 * start, 300, 23):
            yield place, world.Fuse(place)
    for place in range(60):
        yield place, world.Fuse(place, CrashPoint.AFTER_COMMIT)
    for place in range(4):
        for seed in range(4):
            yield seed, world.Fuse(place, CrashPoint.AFTER_RELEASE)
    for place in range(3, 300, 3):
        yield place, world.Fuse(place)


@pytest.mark.parametrize("name", MUTANTS)
async def test_the_referee_complains_of(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutate, promise, rounds, first = MUTANTS[name]
    heard = set()
    for seed, fuse in _fuses(make_world(), first):
        world = make_world(seed=seed)
        with monkeypatch.context() as patch:
            mutate(patch, world)
            heard |= set(await _said(world, fuse, rounds))
        if any(complaint.startswith(promise) for complaint in heard):
            return
    raise AssertionError(f"the referee says nothing of {promise}, only: {sorted(heard)}")
