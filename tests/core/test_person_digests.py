"""Whose rows these are: one text a key, digests, and the choice of the rows that count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.rows.attributes import Boolean, Category
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.column_values import Repeated
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import (
    DIGEST_BYTES,
    LONGEST_KEY,
    Persons,
    PersonSecret,
    Slots,
    canonical,
    digests,
    ranks,
)
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, WrongKeyFile
from tests.noise import SeededNoise
from tests.waiting import PATIENCE_S

SECRET = bytes(range(32))
HASH = "sha256:" + "0123456789abcdef" * 4

# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (
            "17",
            [17, 17.0, "17", " 17\t", Decimal(17), Decimal("17.00"), np.int16(17), np.float32(17)],
        ),
        ("-3", [-3, -3.0, "-3"]),
        ("0", [0, 0.0, -0.0, "0"]),
        (str(2**53 + 1), [2**53 + 1, str(2**53 + 1), Decimal(2**53 + 1)]),
        ("0.5", [0.5, "0.5", Decimal("0.5")]),
        ("inf", [math.inf, "inf"]),
        ("true", [True, "true", np.True_]),
        ("Ana", ["Ana", "Ana ", "\u00a0Ana"]),
        ("Zo\u00eb", ["Zo\u00eb", "Zoe\u0308"]),
        (HASH, [HASH, f" {HASH}"]),
        (
            None,
            [None, math.nan, "", "  ", [], ["a"], {}, {"a": 1}, object(), Decimal("sNaN"), b"a"],
        ),
    ],
)
def test_a_key_has_one_text_however_it_is_sent(key: str | None, values: list[object]) -> None:
    assert [canonical(value) for value in values] == [key] * len(values)
    assert len({bytes(digests(SECRET, [value])[0]) for value in values}) == 1


def test_other_spellings_are_other_persons() -> None:
    keys = ["17", "17.0", "017", "ana", "Ana", "1", True, "a b", "ab", Decimal(2**53 + 1), 2**53]
    assert len({bytes(row) for row in digests(SECRET, keys)}) == len(keys)
    finer = Decimal("0.1000000000000000055511151231257827021181583404541015625001")
    assert canonical(finer) != canonical(0.1), "a float would be two persons' key"


def test_a_long_key_becomes_a_hash_that_its_sender_can_compute() -> None:
    assert canonical("x" * 64) == "x" * 64
    shortened = canonical("x" * 65)
    assert shortened == "sha256:9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"
    assert canonical("\u00e9" * 33) != canonical("\u00e9" * 32), "66 bytes"
    assert canonical(f"{HASH}0") != f"{HASH}0"
    assert canonical(10**5000) == canonical("1" + "0" * 5000), "which Python does not print"


@pytest.mark.timeout(PATIENCE_S)
def test_marks_are_not_put_in_order_one_by_one_in_a_long_key() -> None:
    """That would take many minutes."""
    assert canonical("a" + "\u0301\u0316" * 200_000) is not None


any_value = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals()
    | st.text(st.characters(exclude_categories=()), max_size=80)
    | st.lists(st.none(), max_size=1) | st.dictionaries(st.text(), st.none(), max_size=1)
)  # fmt: skip


@given(any_value)
def test_every_value_is_a_key_or_none_and_a_canonical_text_is_its_own(value: object) -> None:
    key = canonical(value)
    assert key is None or canonical(key) == key
    if key is not None:
        assert len(key.encode("utf-8", "surrogatepass")) <= 71
        written = "".join(
            f"\\u{ord(c):04x}" if c < " " else "\\" + c if c in '"\\' else c for c in key
        )
        assert 2 + len(written.encode("utf-8", "surrogatepass")) <= LONGEST_KEY


@given(st.lists(any_value, max_size=20))
def test_the_digests_of_a_column_are_those_of_its_values(column: list[object]) -> None:
    found = digests(SECRET, column)
    assert found.shape == (len(column), 12)
    for digest, value in zip(found, column, strict=True):
        key = canonical(value)
        assert digest.any() == (key is not None)
        if key is not None:
            assert bytes(digest) == bytes(digests(SECRET, [key])[0])


def test_digests_need_the_secret() -> None:
    other = bytes(reversed(SECRET))
    assert (digests(SECRET, ["17"]) != digests(other, ["17"])).any()
    assert (ranks(SECRET, "b", 9) != ranks(other, "b", 9)).any()
    assert "17" not in repr(Persons("user_id", b"17" * 16, "b"))
    assert repr(Slots(digests(SECRET, ["17"]), ranks(SECRET, "b", 1))) == "Slots()"


def test_digests_and_ranks_never_change() -> None:
    """Rows that wait were digested by an earlier release, perhaps; so these are frozen."""
    assert digests(SECRET, ["17"]).tobytes().hex() == FROZEN_DIGEST
    assert ranks(SECRET, "batch", 3).tolist() == FROZEN_RANKS


FROZEN_DIGEST = "fe201044be30e33b8e4a8f9c"
FROZEN_RANKS = [17335236250625288783, 18067523290016490573, 16538113158904431515]


def test_ranks_depend_on_the_batch_and_the_place_alone() -> None:
    assert (ranks(SECRET, "b", 9)[:5] == ranks(SECRET, "b", 5)).all()
    many = np.concatenate([ranks(SECRET, str(batch), 1000) for batch in range(100)])
    assert len(np.unique(many)) == len(many)
    # Each place is as likely as another to have the least rank of ten.
    least = Counter(int(np.argmin(ranks(SECRET, str(batch), 10))) for batch in range(5000))
    assert max(abs(n - 500) for n in least.values()) < 110, "5 standard deviations"


# ---------------------------------------------------------------- the choice


def chosen(keys: Sequence[int | None], order: Sequence[int], most: Sequence[int]) -> list[bool]:
    """The rule once more, slot by slot."""
    return [
        key is not None
        and sum(
            (order[other], other) < (order[i], i)
            for other in range(len(keys))
            if keys[other] == key
        )
        < most[i]
        for i, key in enumerate(keys)
    ]


@given(
    st.lists(st.tuples(st.none() | st.integers(1, 4), st.integers(0, 5)), max_size=30), st.data()
)
def test_the_rows_of_least_rank_of_each_person_count(
    slots: list[tuple[int | None, int]], data: Any
) -> None:
    keys, order = [key for key, _ in slots], [rank for _, rank in slots]
    whose = Slots(digests(SECRET, keys), np.array(order, dtype=np.uint64))
    for k in (1, 2, 255):
        assert whose.counted(k).tolist() == chosen(keys, order, [k] * len(keys))
    each = data.draw(st.lists(st.integers(0, 3), min_size=5, max_size=5))
    most = [each[key or 0] for key in keys]
    assert whose.counted(np.array(most, dtype=int)).tolist() == chosen(keys, order, most)


@pytest.mark.timeout(PATIENCE_S)
def test_a_million_rows_are_chosen_without_a_loop_over_them() -> None:
    n = 10**6
    draw = np.random.default_rng(1)
    keys = draw.integers(300_000, size=n)
    table = digests(SECRET, range(300_000))
    whose = Slots(table[keys], ranks(SECRET, "batch", n))
    counted = whose.counted(2)
    assert counted.sum() == np.minimum(np.bincount(keys), 2).sum()


CLICKS = Universe((Category("page", ("a", "b")), Boolean("paid")))


def rows_of(batch_id: str, keys: Iterable[object], pages: Iterable[str]) -> Rows:
    found = list(pages)
    columns: dict[str, list[Any]] = {"page": found, "user_id": list(keys)}
    columns["paid"] = [False] * len(found)
    return CLICKS.encode_columns(columns, Persons("user_id", SECRET, batch_id))


def slots_of(block: Block) -> tuple[tuple[int, ...], ...]:
    """The slots of a block, sorted: what it says but for their order, which is drawn where it is stored."""
    found: list[tuple[int, ...]] = []
    for slab in block.slabs:
        assert list(slab.columns) == ["0", "1", "weight"]
        found += map(tuple, np.column_stack([*slab.columns.values()]).tolist())
    return tuple(sorted(found))


slots = st.lists(st.tuples(st.none() | st.integers(1, 3), st.sampled_from("ab")), max_size=6)


@given(st.lists(slots, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_batches_of_a_phase_does_not_matter(
    batches: list[list[tuple[int | None, str]]], random: Any
) -> None:
    """So neither does how the partitions of a source interleave."""
    named = [
        rows_of(f"batch-{n}", (key for key, _ in batch), (page for _, page in batch))
        for n, batch in enumerate(batches)
    ]
    blocks = set()
    for _ in range(3):
        rows = Rows.concat(named)
        assert rows.whose is not None
        blocks.add(slots_of(Block.seal(CLICKS, rows, counted=rows.whose.counted(2))))
        random.shuffle(named)
    assert len(blocks) == 1


def test_the_first_rows_instead_of_ranked_ones_would_depend_on_the_order() -> None:
    """The test above can fail."""
    named = [rows_of("one", [1], ["a"]), rows_of("two", [1], ["b"])]
    blocks = set()
    for parts in (named, named[::-1]):
        rows = Rows.concat(parts)
        assert rows.whose is not None
        first = Slots(rows.whose.digests, np.arange(2, dtype=np.uint64))
        blocks.add(slots_of(Block.seal(CLICKS, rows, counted=first.counted(1))))
    assert len(blocks) == 2


# ---------------------------------------------------------------- through every form of a batch


def test_rows_columns_and_dictionaries_say_the_same_person() -> None:
    persons = Persons("user_id", SECRET, "b")
    keys: list[object] = ["17", 17, 17.0, None, "x"]
    columns: dict[str, Any] = {"page": ["a"] * 5, "paid": [True] * 5}
    by_column = CLICKS.encode_columns({**columns, "user_id": keys}, persons)
    repeated = Repeated(["x", None, 17], np.array([2, 2, 2, 1, 0]))
    by_index = CLICKS.encode_columns({**columns, "user_id": repeated}, persons)
    listed = [{"page": "a", "paid": True, "user_id": key} for key in keys]
    del listed[3]["user_id"]
    by_row = CLICKS.encode_rows(listed, persons)
    whole = np.array([17.0, 17.0, 17.0, math.nan, 3.0])
    by_array = CLICKS.encode_columns({**columns, "user_id": whole}, persons)
    for other in (by_index, by_row):
        assert np.array_equal(by_column.codes, other.codes)
        assert by_column.whose is not None
        assert other.whose is not None
        assert (by_column.whose.digests == other.whose.digests).all()
        assert (by_column.whose.ranks == other.whose.ranks).all()
    assert by_array.whose is not None
    assert by_row.whose is not None
    assert (by_array.whose.digests[:4] == by_row.whose.digests[:4]).all()
    assert by_row.whose.counted(1).sum() == 2
    assert by_row.whose.counted(255).tolist() == [True, True, True, False, True]


# ---------------------------------------------------------------- the secret


def test_a_drawn_secret_is_stored_and_stays_whatever_key_file_comes_later() -> None:
    drawn = PersonSecret.new(SeededNoise(1), "clicks", None)
    assert len(drawn.value) == 32
    assert drawn != PersonSecret.new(SeededNoise(2), "clicks", None)
    for key_file in (None, b"f" * 32):
        assert PersonSecret.from_bytes(drawn.to_bytes(), "clicks", key_file) == drawn
    assert str(drawn.value) not in repr(drawn)


def test_a_secret_of_a_key_file_is_not_stored_and_needs_the_file() -> None:
    key_file = bytes(range(100))
    made = PersonSecret.new(SeededNoise(1), "clicks", key_file)
    stored = made.to_bytes()
    assert made.value not in stored
    assert key_file[:8] not in stored
    assert PersonSecret.from_bytes(stored, "clicks", key_file) == made
    assert PersonSecret.new(SeededNoise(1), "other", key_file) != made
    for wrong in (None, key_file + b"\n", b"x" * 32):
        with pytest.raises(WrongKeyFile, match="STREAM_DP_PERSON_KEY_FILE: clicks"):
            PersonSecret.from_bytes(stored, "clicks", wrong)
    for bad in (b"", stored[:-1], stored + b"0", b"\x09" + stored[1:]):
        with pytest.raises(CorruptState):
            PersonSecret.from_bytes(bad, "clicks", key_file)


def test_persons_whose_digests_begin_alike_are_told_apart() -> None:
    """One of 2^64 pairs does; the rest of the digest then decides, and not the order of ranks."""
    alike = np.zeros((6, DIGEST_BYTES), dtype=np.uint8)
    alike[:, 0] = 1
    alike[:, -1] = [1, 2, 1, 2, 1, 2]
    slots = Slots(alike, np.array([5, 4, 3, 2, 1, 0], dtype=np.uint64))
    assert slots.counted(1).tolist() == [False, False, False, False, True, True]
    assert slots.counted(2).tolist() == [False, False, True, True, True, True]
