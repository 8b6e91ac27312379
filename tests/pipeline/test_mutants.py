"""The referee must complain of protocols that are wrong: a test that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.core import lifetimes
from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.blocks import Blocks
from stream_dp.core.residual.planner import BudgetAllocator
from stream_dp.core.shares import Accounts, Bound, Shares
from stream_dp.messages import Definition
from stream_dp.pipeline import deciding
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.gathering import Gathering, Times
from stream_dp.pipeline.holding import Holdings
from stream_dp.pipeline.paying import Paying
from stream_dp.pipeline.releasing import Releaser
from stream_dp.pipeline.repeating import Repeating
from stream_dp.pipeline.stored_blocks import StoredBlocks
from stream_dp.pipeline.worker import Worker
from stream_dp.state import codec, local
from stream_dp.state.journal import CommitRecord
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Reservation, Snapshot, Transition
from stream_dp.state.taken import taken_id
from tests.pipeline.scenarios import (
    CALENDAR,
    ERASED,
    LIVES_SHARED,
    PERSONS_BY_DAY,
    ROTATED,
    ROUNDS,
    SHARED,
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
        MUTANTS[mutate.__name__] = (mutate, promise, rounds, first)
        return mutate

    return register


class ForgetfulStore(LocalStore):
    """Takes an id twice, and does not remember how far a topic was read."""

    async def acquire(
        self, dataset: str, *, token: int | None = None, new: bool = True
    ) -> Snapshot:
        if dataset in self._datasets:
            self._datasets[dataset].cursor.clear()
        return await super().acquire(dataset, token=token, new=new)

    async def commit(self, transition: Transition) -> None:
        held = self._datasets[transition.dataset]
        for known, new in ((held.answers, transition.answers), (held.batches, transition.batches)):
            for name in new:
                known.pop(name, None)
        await super().commit(transition)

    async def answers(self, ids: Any) -> dict[tuple[str, str], bytes]:
        return {}

    async def batches(self, ids: Any) -> dict[tuple[str, str], bytes]:
        return {}


@mutant("P3", first=(124, None))
def nothing_is_deduplicated(patch: pytest.MonkeyPatch, world: Any) -> None:
    world.store = ForgetfulStore()


@mutant("P1")
def noise_is_drawn_again_on_redelivery(patch: pytest.MonkeyPatch, world: Any) -> None:
    world.store = ForgetfulStore()


@mutant("P1")
def published_before_the_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    prepare = Dataset.prepare

    def early(self: Dataset) -> Transition:
        for outgoing in self._draft.outgoing:
            world.sent(len(world.processes) - 1, outgoing)
        return prepare(self)

    patch.setattr(Dataset, "prepare", early)


class _Taken:
    """A look that was taken before it was paid for."""

    def __init__(self, look: Any, dataset: Dataset) -> None:
        self._look = look
        self._release = look.take(dataset._noise, dataset._data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look, name)

    def take(self, noise: Any, data: Any) -> Any:
        return self._release


@mutant("P6")
def charged_after_the_look(patch: pytest.MonkeyPatch, world: Any) -> None:
    look = Dataset.look

    async def first(self: Dataset, looks: Any, *who: Any, **more: Any) -> Any:
        taken: list[Any] = [_Taken(one, self) for one in looks]
        return await look(self, taken, *who, **more)

    patch.setattr(Dataset, "look", first)


@mutant("P6")
def a_look_is_not_announced(patch: pytest.MonkeyPatch, world: Any) -> None:
    commit = LocalStore.commit

    async def silent(self: LocalStore, transition: Transition) -> None:
        object.__setattr__(transition, "intent", None)
        object.__setattr__(transition, "settles", ())
        await commit(self, transition)

    patch.setattr(LocalStore, "commit", silent)


@mutant("P6", first=(216, None))
def a_lost_look_is_paid_back(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Generous(LocalStore):
        last: dict[str, list[Charge]] = {}  # noqa: RUF012 - of one test

        async def commit(self, transition: Transition) -> None:
            await super().commit(transition)
            self.last[transition.dataset] = list(transition.charges)

        async def acquire(
            self, dataset: str, *, token: int | None = None, new: bool = True
        ) -> Snapshot:
            held = self._datasets.get(dataset)
            if held is not None and held.intents:
                for charge in self.last[dataset]:
                    rho, delta = held.spent[charge.block]
                    held.spent[charge.block] = (rho - charge.rho, delta - charge.delta)
            return await super().acquire(dataset, token=token, new=new)

    async def unseen(self: Holdings, snapshot: Snapshot) -> None:
        """The worker itself would find that the sums are not those of the ledger."""

    patch.setattr(Holdings, "_check_ledger", unseen)
    world.store = Generous()


@mutant("P2")
def half_of_a_charge_is_recorded(patch: pytest.MonkeyPatch, world: Any) -> None:
    totals = codec.totals

    def half(transition: Transition) -> dict[int, tuple[int, int]]:
        return {b: (rho // 2, delta) for b, (rho, delta) in totals(transition).items()}

    patch.setattr(codec, "totals", half)


@mutant("P4")
def the_cursor_moves_on_an_exception(patch: pytest.MonkeyPatch, world: Any) -> None:
    process = Worker.process

    async def like_faust(self: Worker, records: Any) -> None:
        try:
            await process(self, records)
        except BaseException:
            passed = {record.topic_partition: record.offset + 1 for record in records}
            await world.store.mark(watermarks=passed)
            raise

    patch.setattr(Worker, "process", like_faust)


@mutant("P4", first=(78, None))
def the_watermark_moves_before_the_release(patch: pytest.MonkeyPatch, world: Any) -> None:
    release = Releaser._release

    async def early(self: Releaser, releasable: Any, released: Any) -> None:
        await world.store.mark(watermarks=releasable.watermarks)
        await release(self, releasable, released)

    patch.setattr(Releaser, "_release", early)


@mutant("P4", first=(78, None))
def committed_records_are_not_released_after_a_crash(patch: pytest.MonkeyPatch, world: Any) -> None:
    acquire = LocalStore.acquire

    async def empty(
        self: LocalStore, dataset: str, *, token: int | None = None, new: bool = True
    ) -> Snapshot:
        if dataset in self._datasets:
            self._datasets[dataset].outbox.clear()
        return await acquire(self, dataset, token=token, new=new)

    patch.setattr(LocalStore, "acquire", empty)


@mutant("P4", first=(0, CrashPoint.AFTER_RELEASE))
def what_was_rejected_is_accepted_on_redelivery(patch: pytest.MonkeyPatch, world: Any) -> None:
    raised = LocalStore._raise

    def unmarked(self: LocalStore, watermarks: Any) -> None:
        raised(self, {place: at for place, at in watermarks.items() if place in world.log})

    patch.setattr(LocalStore, "_raise", unmarked)


@mutant("P3", first=(10, CrashPoint.AFTER_COMMIT))
def a_phase_is_announced_in_an_earlier_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    open_phase = Dataset._open_phase

    async def late(self: Dataset) -> None:
        await self.flush()
        await open_phase(self)

    patch.setattr(Dataset, "_open_phase", late)


@mutant("P8", ERASED)
def rows_are_erased_in_a_later_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    prepare, due = Dataset.prepare, []

    def late(self: Dataset) -> Transition:
        due.append(self._draft.erased)
        self._draft.erased = due[-2] if len(due) > 1 else 0
        return prepare(self)

    patch.setattr(Dataset, "prepare", late)


def _nothing_is_known_to_be_erased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetAllocator, "erased", 0)
    patch.setattr(Blocks, "erase", lambda self, n_blocks: None)
    patch.setattr(StoredBlocks, "erase", lambda self, n_blocks: None)


@mutant("P8", ERASED)
def rows_are_never_erased(patch: pytest.MonkeyPatch, world: Any) -> None:
    _nothing_is_known_to_be_erased(patch)
    patch.setattr(Dataset, "_erase", lambda self: {})


@mutant("P8", ERASED)
def rows_are_kept_in_memory_and_read(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Trusting(LocalStore):
        """Takes a charge to a block whose rows it has erased."""

        async def commit(self, transition: Transition) -> None:
            held = self._datasets[transition.dataset]
            rows, held.blocks = held.blocks, [b""] * len(held.spent)
            try:
                await super().commit(transition)
            finally:
                held.blocks = rows + ([] if transition.seal is None else [transition.seal])
                del held.blocks[: max(0, transition.erased - len(held.spent) + len(held.blocks))]

    _nothing_is_known_to_be_erased(patch)
    world.store = Trusting()


@mutant("P9", STANDING, first=(147, None))
def a_phase_is_noted_as_answered_before_it_is(patch: pytest.MonkeyPatch, world: Any) -> None:
    answer = Repeating._answer

    async def noted(self: Repeating, dataset: Dataset, entry: Any, *others: Any) -> None:
        dataset.standing_queries.answered(entry, dataset.phase, -1)
        await dataset.flush()
        await answer(self, dataset, entry, *others)

    patch.setattr(Repeating, "_answer", noted)


@mutant("P9", STANDING)
def the_id_of_an_answer_to_come_is_asked_by_hand(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(deciding, "_refuse_reserved", lambda _: None)


@mutant("P9", STANDING, first=(239, None))
def a_take_over_leaves_standing_queries_for_later(patch: pytest.MonkeyPatch, world: Any) -> None:
    answer_due = Repeating.answer_due

    async def late(self: Repeating, dataset: Dataset, known: Any) -> bool:
        return dataset.dirty is False or await answer_due(self, dataset, known)

    patch.setattr(Repeating, "answer_due", late)


@mutant("P10", ROTATED)
def a_rotation_drops_what_is_to_be_kept(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Forgetting(LocalStore):
        async def commit(self, transition: Transition) -> None:
            await super().commit(transition)
            if transition.rotate:
                self._datasets[transition.dataset].previous.clear()

    world.store = Forgetting()


@mutant("P12", ROTATED)
def an_id_is_forgotten_with_its_outcome(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Forgetting(LocalStore):
        async def commit(self, transition: Transition) -> None:
            held = self._datasets[transition.dataset]
            dropped = set(held.previous_batches) if transition.rotate else set()
            await super().commit(transition)
            held.taken -= {taken_id(one) for one in dropped}

    world.store = Forgetting()


@mutant("P3", ROTATED)
def rows_of_a_forgotten_id_count_again(patch: pytest.MonkeyPatch, world: Any) -> None:
    an_id_is_forgotten_with_its_outcome(patch, world)


@mutant("P12", ROTATED)
def the_number_of_a_producer_is_kept_in_a_later_commit(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    prepare, late = Dataset.prepare, dict[str, int]()

    def later(self: Dataset) -> Transition:
        cursor = self._draft.cursor
        now = {key: cursor.pop(key) for key in list(cursor) if key.startswith("producer ")}
        if self.name == "flights":
            cursor.update(late)
            late.clear()
            late.update(now)
        return prepare(self)

    patch.setattr(Dataset, "prepare", later)


@mutant("P10", ROTATED)
def a_rotation_is_not_on_the_journal(patch: pytest.MonkeyPatch, world: Any) -> None:
    to_bytes = CommitRecord.to_bytes
    patch.setattr(CommitRecord, "to_bytes", lambda self: to_bytes(replace(self, rotate=False)))


@mutant("P11", ROTATED)
def answers_rotate_with_each_record(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Definition, "kept_answers_days", 0)


@mutant("P13", SHARED)
def an_account_is_charged_in_no_commit(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Paying, "charge", lambda self, payer, charges: [])


@mutant("P13", SHARED)
def a_share_bounds_each_query_alone(patch: pytest.MonkeyPatch, world: Any) -> None:
    spent = Accounts.spent
    patch.setattr(Accounts, "spent", lambda self, account, window: 0 * spent(self, account, window))
    charge = Paying.charge
    patch.setattr(
        Paying,
        "charge",
        lambda *given: [one._replace(rho=UNITS, delta=UNITS) for one in charge(*given)],
    )


@mutant("P13", SHARED)
def a_pool_bounds_nobody(patch: pytest.MonkeyPatch, world: Any) -> None:
    patch.setattr(Shares, "pool_of", lambda self, account: (Bound.REST, account, UNITS))


@mutant("P15", PERSONS_BY_DAY)
def what_persons_have_used_is_forgotten(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Forgetting(LocalStore):
        async def reserve(self, reservation: Reservation) -> None:
            persons = self._held(reservation.dataset).persons
            before = dict(persons)
            await super().reserve(reservation)
            persons.clear()
            persons.update(before)

    world.store = Forgetting()


@mutant("P15", LIVES_SHARED)
def persons_count_in_each_phase_as_if_it_were_the_first(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    allowances = lifetimes.allowances
    patch.setattr(
        lifetimes, "allowances", lambda slots, before, unit: allowances(slots, 0 * before, unit)
    )


@mutant("P3", PERSONS_BY_DAY, first=(0, CrashPoint.AFTER_RESERVE))
def what_a_crash_cut_short_is_reserved_a_second_time(patch: pytest.MonkeyPatch, world: Any) -> None:
    class Adding(LocalStore):
        async def units(self, dataset: str, token: int, phase: int, digests: Any) -> Any:
            persons = self._held(dataset).persons
            for digest, one in persons.items():
                persons[digest] = local._Used(one.before_phase(phase + 1), 0, 0)
            return await super().units(dataset, token, phase, digests)

    world.store = Adding()


@mutant("P16", PERSONS_BY_DAY)
def a_late_batch_ends_the_period_that_is_open(patch: pytest.MonkeyPatch, world: Any) -> None:
    def ends(self: Times, waiting: Gathering, batch: Any) -> bool:
        return waiting.since is not None and batch is not None and batch.since != waiting.since

    patch.setattr(Times, "ends", ends)


@mutant("P16", PERSONS_BY_DAY)
def rows_of_the_next_period_join_the_one_that_ends(patch: pytest.MonkeyPatch, world: Any) -> None:
    accept, open_phase = Dataset.accept, Dataset._open_phase

    async def first(self: Dataset, batch: Any, rows: Any) -> bytes:
        due = []

        async def later(self: Dataset, **ended: Any) -> None:
            due.append(ended)

        with pytest.MonkeyPatch.context() as within:
            within.setattr(Dataset, "_open_phase", later)
            outcome = await accept(self, batch, rows)
        for ended in due:
            await open_phase(self, **ended)
        return outcome

    patch.setattr(Dataset, "accept", first)


@mutant("P16", CLOSED, first=(101, None))
def a_closing_is_done_with_before_its_phase_is_sealed(
    patch: pytest.MonkeyPatch, world: Any
) -> None:
    close = Dataset.close

    async def late(self: Dataset) -> bool:
        await self.flush()
        return await close(self)

    patch.setattr(Dataset, "close", late)


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
        yield start, world.Fuse(start, CrashPoint.AFTER_RESERVE)
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
