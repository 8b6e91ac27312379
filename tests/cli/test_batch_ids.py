from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.cli.files.batch_ids import RowsDigest, batch_key
from stream_dp.errors import StreamDPError

KEY = bytes(range(32))
ROWS = [["Bonn", 17], ["Lyon", None], ["Graz", "1.5"]]


def prefix(
    rows: list[Any],
    *,
    step: int = 100,
    key: bytes = KEY,
    dataset: str = "people",
    other: str = "age",
) -> str:
    names = ["city", other]
    digest = RowsDigest(key, dataset, names)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        digest.take({name: [row[place] for row in part] for place, name in enumerate(names)})
    return digest.prefix()


@given(
    rows=st.lists(st.tuples(st.text(max_size=4), st.none() | st.floats() | st.integers())),
    step=st.integers(1, 9),
)
def test_the_same_rows_have_the_same_id_however_many_are_read_at_a_time(
    rows: list[Any], step: int
) -> None:
    assert prefix(rows, step=step) == prefix(rows)


def test_other_rows_columns_or_data_sets_have_other_ids() -> None:
    ids = {
        prefix(ROWS),
        prefix(ROWS[::-1]),
        prefix(ROWS[:2]),
        prefix([["Bonn", 18], *ROWS[1:]]),
        prefix([["Bonn", "17"], *ROWS[1:]]),
        prefix([['Bonn", "Lyon', 17], *ROWS[1:]]),
        prefix(ROWS, dataset="members"),
        prefix(ROWS, other="size"),
    }
    assert len(ids) == 8


def test_without_this_machine_s_key_an_id_cannot_be_made_from_guessed_rows(tmp_path: Path) -> None:
    """Ids are public, so that a plain hash would tell whoever guesses the rows that they are right."""
    ours, theirs = batch_key(tmp_path / "ours"), batch_key(tmp_path / "theirs")
    assert ours != theirs
    assert prefix(ROWS, key=ours) != prefix(ROWS, key=theirs)
    assert prefix(ROWS, key=ours) == prefix(ROWS, key=batch_key(tmp_path / "ours"))


def test_the_key_is_its_owner_s_alone_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: batch_key(folder), range(32)))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_key_that_cannot_be_kept_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StreamDPError, match=r"pass another --state-dir or .* --batch-id"):
        batch_key(Path("/proc/nothing/here"))
    (tmp_path / "batch-ids.key").write_bytes(b"short")
    with pytest.raises(StreamDPError, match=r"restore the right file, or .* --batch-id"):
        batch_key(tmp_path)
