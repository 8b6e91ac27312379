"""Slabs in files: whole before a commit names them, the same answers, and nothing is left or lost."""

from __future__ import annotations

import io
import re
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.errors import InvalidInput, RowsGone, ServerUnavailable, WrongStore
from stream_dp.messages.message_base import DATASET_PATTERN
from stream_dp.pipeline.rows import slab_files
from stream_dp.pipeline.rows.slab_files import SlabFiles, SlabPlace
from stream_dp.state.private_names import is_named, name_of, new_salt
from tests.pipeline import scenarios
from tests.pipeline.crash import Crash
from tests.pipeline.durable import differences
from tests.pipeline.world import World
from tests.pipeline.world_files import WorldFiles, away_for, dies_at

KEY = bytes(range(32))
CASES = ("ROUNDS", "PERSONS", "LIVES", "ERASED", "RUNS")


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SlabPlace:
    return SlabPlace((tmp_path / "rows").as_uri(), request.param)


def slab(seed: int = 1, n_slots: int = 100) -> Slab:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "0": rng.integers(0, 4, n_slots).astype(np.uint8),
        "1": rng.integers(0, 300, n_slots).astype(np.uint16),
        "value 1": rng.integers(0, 2**20, n_slots).astype(np.uint32),
    }
    return Slab(n_slots, n_slots, columns)


def kept(files: SlabFiles, content: Slab | None = None) -> tuple[bytes, list[bytes]]:
    parts = (content or slab()).stored(new_salt())
    name = name_of(parts[0])
    files.put("flights", name, parts)
    return name, parts


def folder_of(place: SlabPlace) -> Path:
    return Path(place.url.removeprefix("file://"))


# ---------------------------------------------------------------- one file


def test_what_is_put_is_read_part_by_part(place: SlabPlace) -> None:
    files = SlabFiles.opened(place)
    name, parts = kept(files)
    for numbers in ([0], [2], [0, 1, 3], [1, 2, 3]):
        found = files.parts("flights", name, numbers)
        assert [bytes(one) for one in found if one is not None] == [parts[n] for n in numbers]
    assert files.names("flights") == {name}
    assert (
        files.parts("flights", bytes(16), [0, 1])
        == files.parts("others", name, [0, 1])
        == [None] * 2
    )
    files.drop("flights", name)
    files.drop("flights", name)
    assert files.names("flights") == set() == files.names("nobody")


def test_lengths_of_files_follow_from_the_number_of_slots(place: SlabPlace) -> None:
    files = SlabFiles.opened(place)
    for seed in range(100):
        kept(files, slab(seed))
    lengths = {file.stat().st_size for file in (folder_of(place) / "flights").iterdir()}
    assert len(lengths) == 1
    kept(files, slab(1, n_slots=200))
    assert len({file.stat().st_size for file in (folder_of(place) / "flights").iterdir()}) == 2


def test_nobody_else_may_read_them(place: SlabPlace) -> None:
    kept(SlabFiles.opened(place))
    for path in folder_of(place).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_sealed_file_shows_nothing_of_its_rows(tmp_path: Path) -> None:
    found = {}
    for key in (None, KEY):
        place = SlabPlace((tmp_path / f"{key is None}").as_uri(), key)
        name, parts = kept(SlabFiles.opened(place))
        content = (folder_of(place) / "flights" / f"{name.hex()}.arrow").read_bytes()
        found[key] = [part in content for part in parts]
    assert found == {None: [True] * 4, KEY: [False] * 4}


def test_a_column_is_not_taken_for_another_one(place: SlabPlace) -> None:
    """Where files are sealed, one that was moved does not open; else its index tells."""
    files, folder = SlabFiles.opened(place), folder_of(place) / "flights"
    (name, parts), (other, _) = kept(files), kept(files, slab(2))
    (folder / f"{other.hex()}.arrow").replace(folder / f"{name.hex()}.arrow")
    first, second = files.parts("flights", name, [0, 1])
    if place.key is None:
        assert first is not None
        assert name_of(first) != name
        assert second is not None
        assert not SlabIndex.from_bytes(parts[0]).has(1, second)
    else:
        assert (first, second) == (None, None)


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_file_that_is_cut_is_as_one_that_is_not_there(place: SlabPlace, cut: int) -> None:
    files = SlabFiles.opened(place)
    name, _ = kept(files)
    file = folder_of(place) / "flights" / f"{name.hex()}.arrow"
    file.write_bytes(file.read_bytes()[:cut])
    assert files.parts("flights", name, [0, 1]) == [None, None]


def test_a_wrong_bit_is_no_fault_of_the_store_and_never_ends_the_worker(place: SlabPlace) -> None:
    """Each part is what was kept, or refused by its digest, or not there. Arrow has many words for that."""
    files = SlabFiles.opened(place)
    name, parts = kept(files, slab(n_slots=5))
    index, numbers = SlabIndex.from_bytes(parts[0]), range(len(parts))
    file = folder_of(place) / "flights" / f"{name.hex()}.arrow"
    sound = file.read_bytes()
    outcomes: Counter[str] = Counter()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes((sound[at] ^ 1 << (at * 5) % 8,)) + sound[at + 1 :])
        for number, part in zip(numbers, files.parts("flights", name, numbers), strict=True):
            if part is None:
                outcomes["gone"] += 1
            elif is_named(name, part) if number == 0 else index.has(number, part):
                outcomes["right"] += 1
                assert bytes(part) == parts[number]
            else:
                outcomes["refused"] += 1
    assert min(outcomes["gone"], outcomes["right"]) > 500
    assert (outcomes["refused"] > 0) == (place.key is None), "what is sealed opens or not"


def test_what_was_read_wrong_once_is_read_again(
    place: SlabPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are given up for ever, so a single bad read is not enough."""
    files = SlabFiles.opened(place)
    name, parts = kept(files)
    readings: list[int] = []
    read = SlabFiles._parts

    def first_fails(self: SlabFiles, file: Any, *args: Any) -> list[bytes | None]:
        readings.append(1)
        found = read(self, file, *args)
        return found if len(readings) > 1 else [None] * len(found)

    monkeypatch.setattr(SlabFiles, "_parts", first_fails)
    found = files.parts("flights", name, [0, 2])
    assert [bytes(one) for one in found if one is not None] == [parts[0], parts[2]]
    assert len(readings) == 2


def test_a_store_that_fails_while_a_file_is_read_is_away(
    place: SlabPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlabFiles.opened(place)
    name, _ = kept(files)

    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError("connection reset")

    class Away:
        @staticmethod
        def open_input_file(_: str) -> Any:
            return Broken()

    monkeypatch.setattr(files, "_files", Away())
    with pytest.raises(ServerUnavailable):
        files.parts("flights", name, [0, 1])


def test_a_file_that_was_not_finished_has_no_name_and_is_found_by_who_clears_up(
    place: SlabPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlabFiles.opened(place)

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ServerUnavailable, match=r"does not answer, or refuses \(OSError\)$"):
        kept(files)
    monkeypatch.undo()
    (left,) = files.names("flights")
    assert files.parts("flights", left, [0]) == [None]
    files.drop("flights", left)
    assert files.names("flights") == set()


# ---------------------------------------------------------------- the store


def test_the_store_has_an_id_that_stays(place: SlabPlace, tmp_path: Path) -> None:
    files, other = SlabFiles.opened(place), SlabFiles.opened(SlabPlace((tmp_path / "b").as_uri()))
    assert SlabFiles.opened(place).id == files.id != other.id
    assert files.has(files.id)
    assert not files.has(other.id)


def test_two_workers_that_begin_it_at_once_know_each_other(
    place: SlabPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[SlabFiles] = []
    write = SlabFiles._write

    def late(self: SlabFiles, path: str, content: Any) -> None:
        monkeypatch.setattr(SlabFiles, "_write", write)
        begun.append(SlabFiles.opened(place))
        write(self, path, content)

    monkeypatch.setattr(SlabFiles, "_write", late)
    one, (other,) = SlabFiles.opened(place), begun
    assert all(a.has(b.id) for a in (one, other) for b in (one, other))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/rows", "it names neither a folder nor a bucket; use file:///"),
        ("gs://bucket/rows", "it names neither a folder nor a bucket"),
        ("s3://", "it does not read as an address"),
        ("s3://key:hidden@bucket/rows?nothing=such", "it does not read as an address"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=r"^STREAM_DP_ROWS: ") as refused:
        SlabFiles.opened(SlabPlace(url))
    assert problem in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert "hidden" not in repr(SlabPlace(url, b"hidden")) or "hidden" in url


@pytest.mark.parametrize(("before", "after"), [(KEY, None), (None, KEY), (KEY, bytes(32))])
def test_another_key_is_refused_at_once(
    tmp_path: Path, before: bytes | None, after: bytes | None
) -> None:
    SlabFiles.opened(SlabPlace(tmp_path.as_uri(), before))
    with pytest.raises(InvalidInput, match=r"^STREAM_DP_ROWS_KEY_FILE: it is not the key"):
        SlabFiles.opened(SlabPlace(tmp_path.as_uri(), after))


# ---------------------------------------------------------------- in a world


def rounds_of(case: str) -> Sequence[Callable[[World], object]]:
    found: Sequence[Callable[[World], object]] = getattr(scenarios, case)
    return found


@pytest.mark.parametrize("case", CASES)
async def test_answers_are_those_of_rows_on_the_topic(
    make_world: Callable[..., World], place: SlabPlace, case: str
) -> None:
    answers = []
    for in_files in (False, True):
        world = make_world()
        files = WorldFiles.of(world, folder_of(place), place.key) if in_files else None
        await world.lives(*rounds_of(case), goodbye=True, files=files)
        assert world.complaints() == []
        answers.append(world.answers())
        for name, values in world.view.values.items():
            secrets = world.held(name).named().items()
            few = {one.name for what, one in secrets if what == "person" or what.startswith("run ")}
            assert not in_files or values.keys() <= few, "Redis holds no rows"
        for held in world.durable().values():
            named = [one for what, one in held.named().items() if what.startswith(("block", "wei"))]
            assert all(bool(one.store) is in_files for one in named)
            there = set() if files is None else files.names(held.name)
            assert there == {one.name for one in held.named().values() if one.store}
    assert answers[0] == answers[1]


@pytest.mark.parametrize("case", ["PERSONS", "ERASED"])
async def test_a_worker_that_dies_at_any_step_leaves_a_whole_store(
    make_world: Callable[..., World], tmp_path: Path, case: str
) -> None:
    """A file before its commit, a deletion after it: and what no commit names goes."""
    last, died = 1, 1
    while died:
        world = make_world()
        files = WorldFiles.of(world, tmp_path / f"{last}")
        died = 0
        files.happens = dies_at(last)
        for one in rounds_of(case):
            try:
                await world.lives(one, files=files)
            except Crash:
                died += 1
                files.happens = lambda *_: None
                await world.lives(files=files)
        world.rules = {**world.rules, "files": files}
        assert world.complaints() == [], last
        assert await differences(world) == [], last
        last += 1
    assert last > 6, "it has died at several steps"


async def test_a_store_that_is_away_is_waited_for(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    files = WorldFiles.of(world, tmp_path)
    files.happens = away_for(5)
    await world.lives(*rounds_of("ROUNDS"), goodbye=True, files=files)
    assert next(files.steps) > 6
    assert world.complaints() == []


async def test_without_its_store_a_data_set_is_not_served_and_nothing_counts_as_lost(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    right = WorldFiles.of(world, tmp_path / "right")
    await world.lives(*rounds_of("ROUNDS")[:2], goodbye=True, files=right)
    before = world.durable()["flights"].seq
    for wrong in (None, WorldFiles.of(world, tmp_path / "wrong")):
        with pytest.raises(WrongStore, match=r"^STREAM_DP_ROWS: \w+ has rows in another folder"):
            await world.lives(files=wrong)
    assert world.events("rows_lost") == []
    await world.lives(*rounds_of("ROUNDS")[2:], goodbye=True, files=right)
    assert world.durable()["flights"].seq > before
    assert world.complaints() == []


async def test_rows_whose_file_is_gone_are_given_up_as_those_of_a_topic_are(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    files = WorldFiles.of(world, tmp_path)
    define, phase, *_, ask = (*rounds_of("ERASED")[:2], rounds_of("ERASED")[2])
    await world.lives(define, phase, goodbye=True, files=files)
    for file in (tmp_path / "flights").iterdir():
        file.unlink()
    with pytest.raises(RowsGone):
        await world.lives(ask, files=files)
    await world.lives(files=files)
    assert [event["phases"] for event in world.events("rows_lost")] == [[1, 1]]


async def test_a_file_that_no_commit_names_goes_with_the_second_erasure_after_it(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world, files = make_world(), WorldFiles.of(make_world(), tmp_path)
    files.world, files.happens = world, dies_at(2)
    define, phase = rounds_of("ERASED")[:2]
    with pytest.raises(Crash, match="after put, step 2"):
        await world.lives(define, phase, files=files)
    (left,) = files.names("flights")
    there = []
    for _ in range(5):
        await world.lives(phase, goodbye=True, files=files)
        there.append(left in files.names("flights"))
    assert there == [True, True, False, False, False]
    named = world.held("flights").named().values()
    assert files.names("flights") == {one.name for one in named if one.store}


def test_a_data_set_of_any_name_has_a_folder_of_its_own(place: SlabPlace) -> None:
    files = SlabFiles.opened(place)
    for name in ("ids", "ids.", "0", "a" * 64):
        files.put(name, name_of(b"one"), slab().stored(new_salt()))
    assert SlabFiles.opened(place).id == files.id
    assert re.fullmatch(DATASET_PATTERN, slab_files.IDS) is None
