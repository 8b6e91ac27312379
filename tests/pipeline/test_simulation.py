"""Random schedules of several faults keep every promise, and broken protocols do not.

With n seeds and no complaint, fewer than 3 in n schedules of this kind break a promise, at 95% confidence.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from stream_dp.core.rows.slabs import SlabIndex
from stream_dp.errors import Fenced
from stream_dp.pipeline.intake.records import Releasable
from stream_dp.pipeline.journal import checkpoint_rounds, journal
from stream_dp.pipeline.journal.checkpoint_rounds import Often, Rounds
from stream_dp.pipeline.journal.contents import Contents
from stream_dp.pipeline.journal.entries import FILL, CountingEntry, EntryReader, Round
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned, Superseded
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.rows import private_values, stored_blocks
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.state import ids, private_names
from stream_dp.state.private_names import Named, name_of
from stream_dp.state.schema import State
from tests.pipeline import scenarios, simulator
from tests.pipeline.fakes import FakeKept, FakeLog, FakeRows
from tests.pipeline.test_forked_ledger import went_back
from tests.pipeline.test_mutants import said_before_it_has_left
from tests.pipeline.world import World
from tests.slow import rest_is_slow

PARTS = 80
SEEDS = 25
STALE_SEEDS = 5

Mutate = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator.alike(monkeypatch.setattr)


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize("part", rest_is_slow(range(PARTS), first=1))
def test_no_schedule_of_faults_breaks_a_promise(part: int) -> None:
    """To search longer: ``make soak``."""
    for seed in range(1 + part * SEEDS, 1 + (part + 1) * SEEDS):
        said = simulator.complaints(seed)
        assert said == [], "\n".join(said)


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize("part", rest_is_slow(range(PARTS), first=1))
def test_no_schedule_with_brokers_that_do_not_lead_breaks_a_promise(part: int) -> None:
    """A third of these meet such a broker in one reading of seven."""
    for seed in range(1 + part * STALE_SEEDS, 1 + (part + 1) * STALE_SEEDS):
        said = simulator.complaints(seed, stale=True)
        assert said == [], "\n".join(said)


@pytest.mark.usefixtures("alike")
def test_two_runs_of_a_seed_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[simulator.Simulation] = []
    init = simulator.Simulation.__init__

    def noted(self: simulator.Simulation, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        ran.append(self)

    monkeypatch.setattr(simulator.Simulation, "__init__", noted)
    for seed in (5, 5, 8, 8):
        assert simulator.complaints(seed) == []
    for first, second in (ran[:2], ran[2:]):
        assert first.world.journal == second.world.journal
        assert first.world.trail == second.world.trail


async def _reads_while_entries_are_deleted(world: World) -> None:
    """A worker that was followed reads what lies behind its last entry, just when the epoch there goes."""
    world.define("flights", mechanism={"base_share": 0.0})
    world.cells("flights", "one")
    first = await world.owner()
    await first.run()
    world.ask("flights", "aa", scenarios.AA)
    read, gone = FakeLog.read, [0] * world.partitions

    async def forget(self: FakeLog, partition: int, before: int) -> None:
        gone[partition] = before

    async def overtaken(self: FakeLog, *arguments: int) -> AsyncIterator[Any]:
        if self._process == first.number:
            world.forgotten[:] = gone
        async for piece in read(self, *arguments):
            yield piece

    async def followed(_: int) -> None:
        first.interrupt = None
        world.often = Often(1, per_id=0)
        another = await world.owner()
        await another.run()
        await another.kill()

    first.interrupt = followed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeLog, "read", overtaken)
        patch.setattr(FakeLog, "forget", forget)
        with contextlib.suppress(Fenced):
            await first.run()
    await first.kill()
    assert max(world.forgotten) > 0
    await world.run()


async def test_a_gap_that_is_deleted_while_it_is_read_is_not_taken_for_empty(
    world: World,
) -> None:
    await _reads_while_entries_are_deleted(world)
    assert world.complaints() == []


async def test_one_who_takes_it_for_empty_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy does not see that offsets are missing."""
    where = Journal._where

    async def trusting(self: Journal, *arguments: Any) -> int | None:
        read = self._log.read

        async def without_gaps(partition: int, start: int, end: int) -> AsyncIterator[Any]:
            async for piece in read(partition, start, end):
                yield list(zip(range(start, piece[0][0]), [FILL] * end, strict=False))
                yield piece
                start = piece[-1][0] + 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._log, "read", without_gaps)
            return await where(self, *arguments)

    monkeypatch.setattr(Journal, "_where", trusting)
    await _reads_while_entries_are_deleted(world)
    assert any(said.startswith("P10") for said in world.complaints())


async def test_one_who_does_not_compare_what_was_published_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has gone back to before a charge. ``test_forked_ledger`` has the protocol itself."""

    async def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(Journal, "_check_published", nothing)
    await went_back(world)
    await world.run()
    assert world.several_answers()


# ---------------------------------------------------------------- broken copies: the journal


def what_follows_leaves_before_its_commit_is_there(patch: pytest.MonkeyPatch) -> None:
    append = Releaser._append

    async def late(self: Releaser, releasable: Releasable) -> None:
        for one in releasable.commits:  # so that it says where they come to be
            owned = self._journal.owned().get(self._journal.partition_of(one.dataset))
            one.offset = owned.expected if owned is not None else 0
        await self._deliver([outgoing for _, outgoing in releasable.outgoing])
        await append(self, releasable)

    patch.setattr(Releaser, "_append", late)


def the_offset_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    async def trusting(self: Journal, owned: Owned, entries: Sequence[LogEntry]) -> int:
        first = await self._log.append(owned.partition, entries) or owned.expected
        owned.expected = first + len(entries)
        return first

    patch.setattr(Journal, "_append", trusting)


def the_journal_is_read_before_the_epoch_is_there(patch: pytest.MonkeyPatch) -> None:
    async def early(self: Journal, partition: int) -> Owned:
        first, end = await self.history.bounds(partition)
        newest, made = await self.history.newest_round(partition, first, end)
        owned = Owned(partition, b"", first=first, newest=newest, begin=made.begin)
        await self.history.replay(made, end, owned)
        owned.epoch, landed = await self._begin_epoch(partition, newest)
        owned.at = end if landed is None else landed
        owned.expected = owned.at + 1
        owned.marks.taken_over()
        return owned

    patch.setattr(Journal, "_enter", early)


def epochs_are_ignored(patch: pytest.MonkeyPatch) -> None:
    read = EntryReader.read

    def lenient(self: EntryReader, offset: int, entry: LogEntry) -> CountingEntry | None:
        headers, epoch = dict(entry.headers), self.epoch
        if headers["kind"] != b"commit":
            return read(self, offset, entry)
        self.epoch = headers["epoch"]
        found = read(self, offset, entry)
        self.epoch = epoch
        return found

    patch.setattr(EntryReader, "read", lenient)


def a_gap_that_was_cut_off_unread_is_taken_for_empty(patch: pytest.MonkeyPatch) -> None:
    where = Journal._where

    async def trusting(self: Journal, owned: Owned, entries: Sequence[LogEntry]) -> int | None:
        first, _ = await self.history.bounds(owned.partition)
        owned.expected = max(owned.expected, first)
        return await where(self, owned, entries)

    patch.setattr(Journal, "_where", trusting)


def ids_are_looked_up_in_redis_alone(patch: pytest.MonkeyPatch) -> None:
    async def believing(
        self: Contents, table: Any, wanted: Mapping[str, Sequence[str]]
    ) -> dict[tuple[str, str], bytes]:
        found: dict[tuple[str, str], bytes] = {}
        for dataset, names in wanted.items():
            pairs = {(table, name.encode("utf-8", "surrogatepass")): name for name in names}
            seen = await self._following.answers(dataset, [*pairs])
            found |= {(dataset, pairs[pair]): value for pair, value in seen.items()}
        return found

    patch.setattr(Contents, "find", believing)


def an_answer_of_redis_is_not_compared_with_its_digest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ids.IdPlace, "fits", lambda *_: True)


def a_look_is_taken_before_its_charge_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    async def hasty(self: Releaser, commits: Releasable) -> None:
        self.gathered.append(commits)
        await self.hand_over()

    patch.setattr(Releaser, "appended", hasty)


# ---------------------------------------------------------------- broken copies: private values


def a_private_value_is_kept_after_its_commit(patch: pytest.MonkeyPatch) -> None:
    keep, put = Keeper.keep, FakeKept.put

    async def later(self: FakeKept, values: Any, **named: Any) -> Any:
        async def slowly() -> None:
            await asyncio.sleep(0.01)
            await put(self, values, **named)

        self.later = asyncio.create_task(slowly())  # type: ignore[attr-defined]
        return [tuple(range(len(parts))) for _, parts in values]

    async def hasty(self: Keeper, dataset: str, values: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(FakeKept, "put", later)
            return await keep(self, dataset, values)

    patch.setattr(Keeper, "keep", hasty)


def a_private_value_is_believed_without_its_name(patch: pytest.MonkeyPatch) -> None:
    async def find(self: Keeper, dataset: str, named: Named) -> bytes | None:
        (found,) = await self.parts(dataset, [(named, 0)])
        return found

    patch.setattr(Keeper, "find", find)
    patch.setattr(stored_blocks, "is_named", lambda *_: True)


class _Believing(SlabIndex):
    def has(self, place: int, stored: bytes) -> bool:
        del place, stored
        return True


def a_column_is_believed_without_its_digest(patch: pytest.MonkeyPatch) -> None:
    for module in (private_values, stored_blocks):
        patch.setattr(module, "SlabIndex", _Believing)


def a_private_value_has_the_name_of_its_number(patch: pytest.MonkeyPatch) -> None:
    """As phases have: a worker that was followed puts another one under the same name."""
    keep, numbers, names = Keeper.keep, dict[tuple[int, str], int](), dict[bytes, bytes]()

    async def numbered(self: Keeper, dataset: str, values: Any) -> Any:
        for first, *_ in values:
            number = numbers[id(self), dataset] = numbers.get((id(self), dataset), 0) + 1
            names[first] = number.to_bytes(16)
        return await keep(self, dataset, values)

    patch.setattr(Keeper, "keep", numbered)
    for module in (private_values, private_names):
        patch.setattr(module, "name_of", lambda first: names.get(first) or name_of(first))


# ---------------------------------------------------------------- broken copies: rounds and cuts


def it_is_cut_below_a_round_that_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    end = Journal.end

    async def early(self: Journal, owned: Owned, made: Round, **what: object) -> bool:
        await self.forget(owned, made.begin)
        return await end(self, owned, made, **what)

    patch.setattr(Journal, "end", early)


def it_is_cut_below_the_end_of_a_round(patch: pytest.MonkeyPatch) -> None:
    """What was committed while the round was written is lost."""
    forget = Journal.forget

    async def too_far(self: Journal, owned: Owned, before: int) -> bool:
        return await forget(self, owned, owned.newest or before)

    patch.setattr(Journal, "forget", too_far)


def it_is_cut_before_an_entry_names_the_round(patch: pytest.MonkeyPatch) -> None:
    async def early(self: Journal, owned: Owned, made: Round, **what: object) -> bool:
        at = await self.append(owned, self.entries(owned, "end", "", made.to_bytes()))
        if at is None:
            return False
        await self._log.forget(owned.partition, made.begin)
        owned.newest, owned.begin, owned.to_read = at, made.begin, 0
        return await self.mark(owned, first=made.begin, **what)

    patch.setattr(Journal, "end", early)


def the_journal_is_cut_behind_the_begin(patch: pytest.MonkeyPatch) -> None:
    forget = Journal.forget

    async def too_far(self: Journal, owned: Owned, before: int) -> bool:
        return await forget(self, owned, before + 1)

    patch.setattr(Journal, "forget", too_far)


def it_is_cut_without_a_word(patch: pytest.MonkeyPatch) -> None:
    async def silent(self: Journal, owned: Owned, before: int) -> bool:
        await self._log.forget(owned.partition, before)
        return True

    patch.setattr(Journal, "forget", silent)


def answers_are_not_carried(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> dict[str, Any]:
        return {}

    patch.setattr(Rounds, "_carried", nothing)


def it_is_cut_though_answers_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rounds, "_may_carry", lambda *_: False)
    patch.setattr(checkpoint_rounds, "_first_kept", lambda begun: begun.at)


def a_checkpoint_has_the_state_of_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "copied", lambda self: self)


def a_checkpoint_is_not_there(patch: pytest.MonkeyPatch) -> None:
    async def unwritten(self: Rounds, owned: Any, *_: Any) -> int:
        return int(owned.expected)

    patch.setattr(Rounds, "_write", unwritten)


def what_has_not_left_is_said_to_have(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Releaser) -> None:
        await (await self.hand_over())

    patch.setattr(Releaser, "settled", at_once)


# ---------------------------------------------------------------- broken copies: Redis


def what_redis_refuses_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: RedisFollower, name: str) -> None:
        self._rewrite.pop(name, None)

    patch.setattr(RedisFollower, "_write_anew", nothing)


def a_take_over_does_not_compare_redis(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RedisFollower, "begin", lambda *_: None)


# ---------------------------------------------------------------- broken copies: readers


def a_short_reading_of_the_journal_is_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeLog, "ends_before", lambda *_: None)


def a_short_reading_of_a_gap_is_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    async def trusting(self: Journal, owned: Owned, entries: Sequence[LogEntry]) -> int | None:
        first, end = await self.history.bounds(owned.partition, reaches=owned.expected)
        found, reader = None, EntryReader(owned.epoch)
        with pytest.MonkeyPatch.context() as within:
            within.setattr(FakeLog, "ends_before", lambda *_: None)
            async for piece in self._log.read(owned.partition, owned.expected, end):
                for offset, entry in piece:
                    reader.read(offset, entry)
                    found = offset if entry == entries[0] and found is None else found
        if reader.epoch != owned.epoch or first > owned.expected:
            owned.superseded = True
            raise Superseded("another worker has taken over")
        owned.expected = end
        return found

    patch.setattr(Journal, "_where", trusting)


def a_short_reading_of_blocks_is_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeKept, "ends_before", lambda *_: None)


def a_short_reading_of_batches_is_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeRows, "ends_before", lambda *_: None)


def a_take_over_asks_for_the_end_of_the_journal_once(patch: pytest.MonkeyPatch) -> None:
    """A partition that was not cut is not served."""
    patch.setattr(journal, "_MOST_EPOCHS", 0)


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize(
    ("mutate", "seed"),
    [
        (what_follows_leaves_before_its_commit_is_there, 1),
        (the_offset_is_not_compared, 4),
        (the_journal_is_read_before_the_epoch_is_there, 6),
        (epochs_are_ignored, 17),
        (a_gap_that_was_cut_off_unread_is_taken_for_empty, 22),
        (said_before_it_has_left, 4),
        (ids_are_looked_up_in_redis_alone, 2),
        (an_answer_of_redis_is_not_compared_with_its_digest, 12),
        (a_look_is_taken_before_its_charge_is_acknowledged, 1),
        (a_private_value_is_kept_after_its_commit, 1),
        (a_private_value_is_believed_without_its_name, 51),
        (a_column_is_believed_without_its_digest, 14),
        (a_private_value_has_the_name_of_its_number, 1),
        (it_is_cut_below_a_round_that_is_not_finished, 12),
        (it_is_cut_below_the_end_of_a_round, 1),
        (it_is_cut_before_an_entry_names_the_round, 12),
        (the_journal_is_cut_behind_the_begin, 1),
        (it_is_cut_without_a_word, 1),
        (answers_are_not_carried, 10),
        (it_is_cut_though_answers_are_kept, 10),
        (a_checkpoint_has_the_state_of_later, 19),
        (a_checkpoint_is_not_there, 1),
        (what_has_not_left_is_said_to_have, 84),
        (what_redis_refuses_is_passed_over, 1),
        (a_take_over_does_not_compare_redis, 2),
    ],
)
def test_a_broken_protocol_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Mutate, seed: int
) -> None:
    """The search starts where it last ended."""
    mutate(monkeypatch)
    for one in range(seed, seed + 200):
        if simulator.complaints(one):
            return
    raise AssertionError("nobody noticed")


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize(
    ("mutate", "seed"),
    [
        (a_short_reading_of_the_journal_is_taken_for_all, 3),
        (a_short_reading_of_a_gap_is_taken_for_all, 427),
        (a_short_reading_of_blocks_is_taken_for_all, 865),
        (a_short_reading_of_batches_is_taken_for_all, 42),
        (a_take_over_asks_for_the_end_of_the_journal_once, 2),
    ],
)
def test_a_broken_reader_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Mutate, seed: int
) -> None:
    """The search starts where it last ended."""
    mutate(monkeypatch)
    for one in range(seed, seed + 200):
        if simulator.complaints(one, stale=True):
            return
    raise AssertionError("nobody noticed")
