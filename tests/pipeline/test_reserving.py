"""What persons have used for life: nothing lets a unit be used twice, or be forgotten."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.rows import slabs
from stream_dp.core.rows.lifetime_slots import allowances_of_slots
from stream_dp.core.rows.person_slots import DIGEST_BYTES
from stream_dp.errors import Fenced
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.rows.person_allowance import Used, UsedUnits
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.conftest import Die
from tests.pipeline.flights import judged, ran
from tests.pipeline.referee.persons import units_of
from tests.pipeline.world import World
from tests.stored_slabs import SALT, slabs_again
from tests.view import MemoryView

pytestmark = judged

NOTHING = Used.by(np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros(0, np.int64))

UNIT = Unit(2, 1, lifetime=True)
"""At most two rows a phase, and four units for life: two rows once, or one row four times."""

Slots = Sequence[int]
"""The persons of the slots of a phase; 0 is nobody."""


def digests(slots: Slots) -> Any:
    joined = b"".join(who.to_bytes(12, "big") for who in slots)
    return np.frombuffer(joined, np.uint8).reshape(-1, 12)


def sealed(log: Sequence[Slots]) -> tuple[list[dict[int, int]], Used]:
    """The rows of each person that count in each phase, and what is used after the last."""
    used, blocks = NOTHING, []
    for slots in log:
        rows = allowances_of_slots(digests(slots), used.of(digests(slots)), UNIT)
        used = used.and_by(Used.by(digests(slots), rows))
        blocks.append({who: int(c) for who, c in zip(slots, rows, strict=True) if c})
    return blocks, used


def stored(used: Used) -> list[list[bytes]]:
    """What is kept of it."""
    return [slab.stored(SALT) for slab in used.slabs()]


def again(used: Used) -> Used:
    """What comes back of what is kept."""
    return Used.of_slabs(slabs_again(used.slabs()))


def units(used: Used, who: Slots) -> dict[int, int]:
    return dict(zip(who, used.of(digests(who)).tolist(), strict=True))


# ---------------------------------------------------------------- in memory


def test_persons_count_until_their_units_are_used() -> None:
    blocks, used = sealed([(1, 2, 0), (1, 1, 2), (2, 2, 2, 0), (1, 1, 2), (1, 3, 3, 3)])
    assert blocks == [{1: 1, 2: 1}, {1: 1, 2: 1}, {2: 1}, {1: 1, 2: 1}, {1: 1, 3: 2}]
    assert units(used, [0, 1, 2, 3, 4]) == {0: 0, 1: 4, 2: 4, 3: 4, 4: 0}


PERSONS = st.dictionaries(st.integers(1, 12), st.integers(1, 9), max_size=8)


@given(
    st.lists(st.tuples(PERSONS, st.integers(0, 3)), max_size=6), st.booleans(), st.integers(1, 9)
)
def test_units_add_up_in_any_order_and_take_a_place_for_each_that_came(
    phases: list[tuple[dict[int, int], int]], backwards: bool, slots: int
) -> None:
    """Digests that end with zero bytes or begin with them come as well, as few do."""

    def of(numbers: Sequence[int]) -> Any:
        return digests([n if n % 2 else n << 88 for n in numbers])

    parts = [
        Used.by(of([*rows, *[0] * empty]), np.array([*rows.values(), *[0] * empty], np.int64))
        for rows, empty in phases
    ]
    whole, wanted = NOTHING, Counter[int]()
    for part, (rows, _) in zip(parts, phases, strict=True):
        before = stored(whole), stored(part)
        merged = part.and_by(whole) if backwards else whole.and_by(part)
        assert before == (stored(whole), stored(part)), "neither part is changed"
        whole = merged
        wanted.update({who: n * n for who, n in rows.items()})
    everybody = [*range(1, 14)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "SLOTS", slots)
        read = again(whole)
    for one in (whole, read):
        assert one.of(of(everybody)).tolist() == [wanted[number] for number in everybody]
        assert one.n_places == sum(len(rows) + empty for rows, empty in phases)


def test_the_most_units_that_a_person_may_have_are_told_apart_from_none() -> None:
    used = Used.by(digests([7] * 255), np.full(255, 255))
    assert units(used, [7, 8]) == {7: 65_025, 8: 0}
    more = used.and_by(Used.by(digests([7] * 22), np.full(22, 22)))
    assert units(more, [7]) == {7: 65_025 + 484}
    assert units(again(more), [7]) == {7: 65_509}


LOGS: dict[str, Slots] = {
    "nobody": (0,) * 500,
    "one person": (5,) * 500,
    "each another one": tuple(range(1, 501)),
    "some": tuple(n % 7 for n in range(500)),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_length_follows_from_the_number_of_slots_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, used = sealed([LOGS[name], LOGS[name], LOGS["some"]])
    assert used.n_places == 1_500
    monkeypatch.setattr(slabs, "SLOTS", 400)
    lengths = [[*map(len, parts)] for parts in stored(used)]
    index = lengths[0][0]
    assert lengths == [[index, *[4 * n] * 3, 2 * n] for n in (400, 400, 400, 300)]
    assert {name for slab in used.slabs() for name in slab.columns} == {
        "digest 0",
        "digest 1",
        "digest 2",
        "units",
    }
    assert repr(used) == "Used(n_places=1500)"
    read = again(used)
    assert read.n_places == 1_500
    who = range(502)
    assert units(read, who) == units(used, who)


def test_what_does_not_decode_is_not_taken_for_no_use() -> None:
    """As where it is of another kind, or lacks a slab."""
    used = Used.by(digests([1, 2]), np.array([1, 1]))
    (slab,) = used.slabs()
    for name in slab.columns:
        lacking, _ = slab.split([name])
        with pytest.raises(LookupError):
            Used.of_slabs([lacking])


# ---------------------------------------------------------------- of a data set


def define(world: World) -> None:
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 1, "lifetime": True}
    world.define(
        "visits",
        mechanism={"base_share": 0.0},
        privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit},
        phase={"min_rows": 40},
    )


OFTEN = tuple(f"p{n % 15}" for n in range(40))


def phase(world: World, persons: Sequence[object] = OFTEN) -> None:
    """The rows of a phase, in two batches. By default these persons come two or three times."""
    offset = world.next_offset("batches", "visits")
    for half in range(2):
        some = enumerate(persons[half::2])
        rows = [{"carrier": "AA", "delay": n, "user_id": who} for n, who in some]
        world.batch("visits", f"b-{offset}-{half}", rows=rows)


def news(world: World) -> None:
    phase(world, [f"new-{len(world.log['in.batches:0'])}-{n // 3}" for n in range(40)])


PHASES: tuple[Callable[[World], None], ...] = (define, phase, phase, news, phase, phase, phase)


async def owner(world: World) -> Dataset:
    """The data set as the next owner has it."""
    process = await world.owner()
    await process.run()
    await process.settled()
    await process.kill()
    return process.datasets["visits"]


def used_by(dataset: Dataset) -> Counter[bytes]:
    """What persons have used, as an owner has it in memory."""
    found: Counter[bytes] = Counter()
    for one in dataset.rows.used._used.values():
        keys = [bytes(key.ljust(12, b"\0")) for key in one.keys.tolist()]
        found.update(dict(zip(keys, one.units.tolist(), strict=True)))
    return found


@pytest.mark.parametrize("redis", [True, False])
async def test_the_next_owner_knows_what_persons_have_used(world: World, redis: bool) -> None:
    for produce in PHASES:
        await ran(world, produce)
        if not redis:
            world.view = MemoryView()
    units = units_of(world.held("visits"))
    assert used_by(await owner(world)) == units
    assert max(units.values()) == UNIT.squares
    assert min(units.values()) > 0


async def test_a_person_who_has_used_all_counts_no_more_whoever_owns_the_data_set(
    world: World,
) -> None:
    await world.run(rounds=PHASES[:2])
    once = units_of(world.held("visits"))
    assert set(once.values()) == {4}
    await world.run(rounds=(phase, phase))
    assert units_of(world.held("visits")) == once


async def test_what_is_kept_of_phases_is_merged_now_and_then(world: World) -> None:
    """So few values are read at a start, and each person is in few of them."""
    process = await world.owner()
    most = 0
    define(world)
    for number in range(40):
        news(world) if number % 3 else phase(world)
        await process.run()
        held = world.held("visits")
        kept = held.named("used ")
        assert all(key.endswith(" 0") for key in kept), "each is one slab"
        in_order = sorted(kept, key=lambda key: int(key.split(" ")[0]))
        parts = [world.kept[f"visits/{kept[key].name.hex()}".encode()] for key in in_order]
        lengths = [sum(map(len, columns)) // 14 for _, *columns in parts]
        assert all(2 * later < earlier for earlier, later in pairwise(lengths))
        assert 40 * (number + 1) <= sum(lengths) <= 40 * (number + 1) + 2 * len(lengths)
        most = max(most, len(kept))
    await process.settled()
    await process.kill()
    assert 1 < most <= 6
    assert used_by(process.datasets["visits"]) == units_of(world.held("visits"))
    assert used_by(await owner(world)) == units_of(world.held("visits"))


async def test_what_persons_have_used_may_be_several_slabs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", 25)
    await ran(world, *PHASES)
    held = world.held("visits")
    assert {key.split(" ")[1] for key in held.named("used ")} > {"0", "1"}
    assert used_by(await owner(world)) == units_of(held)
    lost = f"visits/{held.named('used ')[max(held.named('used '))].name.hex()}".encode()
    kept = world.kept.pop(lost)
    world.view = MemoryView()
    process = await world.owner()
    await process.run()
    assert "visits" in process.worker.stopped, "one of them is nowhere"
    await process.kill()
    world.kept[lost] = kept
    assert used_by(await owner(world)) == units_of(held)


async def test_what_is_put_and_when_depends_on_numbers_of_rows_alone(
    make_world: Callable[..., World],
) -> None:
    seen = []
    for persons in ([None] * 40, ["ana"] * 40, [f"p{n}" for n in range(40)]):
        world = make_world()
        await world.run(rounds=[define, *[lambda w, p=persons: phase(w, p)] * 6])
        seen.append([[*map(len, parts)] for _, parts in world.kept_log])
        assert world.complaints() == []
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) > 12


POINTS = [CrashPoint.BEFORE_KEEP, CrashPoint.AFTER_KEEP, CrashPoint.BEFORE_COMMIT]
POINTS += [CrashPoint.AFTER_COMMIT, CrashPoint.BEFORE_APPEND, CrashPoint.AFTER_APPEND]


async def test_a_crash_at_any_point_of_a_seal_changes_no_block_and_uses_nothing_twice(
    make_world: Callable[..., World], die: Die
) -> None:
    alone = make_world()
    await alone.run(rounds=PHASES)
    expected, deaths = sorted(units_of(alone.held("visits")).values()), 0
    for place in range(1, 6):
        async for at, world in die(PHASES, {place}, points=POINTS):
            held = world.held("visits")
            assert [len(held.spent), sorted(units_of(held).values())] == [6, expected], at
            assert used_by(await owner(world)) == units_of(held), at
            assert world.complaints() == [], at
            deaths += 1
    assert deaths > 20


async def test_a_seal_that_no_commit_names_used_nothing(world: World) -> None:
    """Its rows may be others after the crash: here more come before the phase opens."""
    await world.run(rounds=PHASES[:1])
    world.batch("visits", "one", rows=[{"user_id": "ana"}] * 30)
    fuse = world.Fuse(0, CrashPoint.AFTER_KEEP)
    process = await world.owner(fuse)
    world.batch("visits", "two", rows=[{"user_id": "bo"}] * 10)
    with pytest.raises(world.Crash):
        await process.run()
    await process.kill()
    garbage = len(world.kept)
    assert world.held("visits").named("used ") == {}
    world.expired |= {record.record_id for record in world.log["in.batches:0"]}
    world.expired |= {record.record_id for record in world.log["in.batches:1"]}
    await world.run(rounds=(phase,))
    held = world.held("visits")
    assert len(held.spent) == 1
    assert garbage == 3, "the secret, a block and what it uses"
    assert used_by(await owner(world)) == units_of(held)


@pytest.mark.parametrize("part", range(2))
async def test_a_former_owner_that_goes_on_uses_nothing(
    make_world: Callable[..., World], part: int
) -> None:
    """It sleeps before any step of a seal, and goes on when another one has sealed two phases."""
    at = part
    while True:
        at += 2
        world = make_world()
        await world.run(rounds=PHASES[:2])
        former, heir = world.process(), world.process()
        await former.assign()
        before, asleep, awake = former.effects, asyncio.Event(), asyncio.Event()

        async def sleep(
            effect: int,
            last: int = before + at,
            asleep: asyncio.Event = asleep,
            awake: asyncio.Event = awake,
        ) -> None:
            if effect == last:
                asleep.set()
                await awake.wait()

        former.interrupt = sleep
        news(world)
        running = asyncio.create_task(former.run())
        sleeping = asyncio.create_task(asleep.wait())
        await asyncio.wait({running, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()
        await heir.assign()
        await heir.run()
        phase(world)
        await heir.run()
        awake.set()
        with contextlib.suppress(Fenced):
            await running
        await former.kill()
        await heir.settled()
        await heir.kill()
        assert used_by(heir.datasets["visits"]) == units_of(world.held("visits"))
        assert used_by(await owner(world)) == units_of(world.held("visits"))
        assert world.complaints() == []
        if not asleep.is_set():
            break
    assert at > 8


async def test_what_is_nowhere_stops_the_data_set(world: World) -> None:
    """Else persons would begin anew. With the topic of blocks it goes on."""
    await world.run(rounds=PHASES)
    kept = dict(world.kept)
    for key in list(world.kept):
        if any(
            key.endswith(one.name.hex().encode())
            for one in world.held("visits").named("used ").values()
        ):
            del world.kept[key]
    world.view = MemoryView()
    process = await world.owner()
    await process.run()
    why = process.worker.stopped["visits"]
    assert "what its persons have used for life is on no topic any more" in why
    await process.kill()
    world.kept = kept
    assert used_by(await owner(world)) == units_of(world.held("visits"))
    phase(world)
    await world.run()


def shows(who: bytes, values: Iterable[Sequence[bytes]]) -> bool:
    """Whether the words of a digest are in values, each in a column."""
    everything = [part for parts in values for part in parts]
    return all(any(who[at : at + 4] in part for part in everything) for at in (0, 4, 8))


async def test_the_persons_of_a_retired_data_set_are_erased(world: World) -> None:
    await ran(world, *PHASES)
    persons = [*units_of(world.held("visits"))]
    assert shows(persons[0], world.kept.values())
    world.produce("datasets", None, key="visits")
    await world.run()
    assert world.held("visits").named() == {}
    left = [*world.kept.values(), [*world.view.values["visits"].values()]]
    assert left == [[]]
    assert not [who for who in persons if shows(who, left)]
    assert (await owner(world)).rows.used._used == {}


# ---------------------------------------------------------------- broken copies


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``broken(how)`` breaks a rule."""

    def of(self: Used, digests: Any) -> Any:
        return np.zeros(len(digests), dtype=np.int64)

    async def nothing(self: UsedUnits, used: Used) -> None:
        self._used[len(self._used)] = used

    async def last_alone(self: UsedUnits, used: Used) -> None:
        for key in self._values.named("used "):
            self._values.discard(f"used {key}")
        await self._values.keep_slabs({"used 1 0": used.slabs()[0]})

    def breaks(how: str) -> None:
        if how == "units are not looked up":
            monkeypatch.setattr(Used, "of", of)
        elif how == "units are in memory alone":
            monkeypatch.setattr(UsedUnits, "add", nothing)
        else:
            monkeypatch.setattr(UsedUnits, "add", last_alone)

    return breaks


@pytest.mark.parametrize(
    "how",
    ["units are not looked up", "units are in memory alone", "what was used before is forgotten"],
)
async def test_a_broken_copy_is_caught(
    make_world: Callable[..., World], broken: Callable[[str], None], how: str
) -> None:
    broken(how)
    world = make_world()
    for produce in PHASES:
        await ran(world, produce)
    assert any(said.startswith(("P3", "P15")) for said in world.complaints())
