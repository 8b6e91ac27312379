"""The chain of the ledger: what breaks it is found, and what was written stays readable."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import CorruptState, LedgerBroken
from stream_dp.state import ledger
from stream_dp.state.ledger import GENESIS, append, extend, read

GOLDEN = Path(__file__).parents[1] / "golden"


def chain(length: int, dataset: str = "flights") -> tuple[list[bytes], bytes]:
    head, entries = GENESIS, []
    for index in range(length):
        kind = ("dataset", "phase", "charge", "analysts", "retired")[index % 5]
        body = {"block": index, "rho": str(2**60 + index), "answer": 0.1 * index, "text": "naïve"}
        entry, head = append(head, index, dataset, kind, body)
        entries.append(entry)
    return entries, head


def verify(entries: list[bytes], *, head: bytes | None = None, dataset: str = "flights") -> bytes:
    """The head of a chain, which is compared with one that somebody kept."""
    found = ledger.Chain(dataset, entries).head
    if head not in (None, found):
        raise LedgerBroken(max(len(entries) - 1, 0), "it ends in another head")
    return found


def test_a_chain_ends_in_its_head() -> None:
    entries, head = chain(7)
    assert verify(entries) == head
    assert verify(entries, head=head, dataset="flights") == head
    assert verify([]) == verify([], head=GENESIS) == GENESIS


def test_an_entry_is_canonical_and_its_head_is_two_lines_of_any_language() -> None:
    entry, head = append(GENESIS, 0, "flights", "charge", {"z": 1, "a": {"y": 1, "b": "é"}})
    assert entry == (
        b'{"a":{"b":"\\u00e9","y":1},"dataset":"flights","kind":"charge","prev":"'
        + b"0" * 64
        + b'","seq":0,"version":1,"z":1}'
    )
    assert head == hashlib.sha256(bytes(32) + entry).digest() == extend(GENESIS, entry)
    assert append(GENESIS, 0, "flights", "charge", {"a": {"b": "é", "y": 1}, "z": 1})[0] == entry
    assert read(entry)["a"] == {"b": "é", "y": 1}


def test_any_flipped_byte_is_found() -> None:
    entries, head = chain(4)
    flipped = 0
    for index, entry in enumerate(entries):
        for place in range(len(entry)):
            for bit in (1, 0x20, 0x80):
                changed = bytearray(entry)
                changed[place] ^= bit
                forged = [*entries[:index], bytes(changed), *entries[index + 1 :]]
                with pytest.raises(LedgerBroken) as caught:
                    verify(forged, head=head, dataset="flights")
                assert caught.value.index in (index, index + 1)
                flipped += 1
    assert flipped > 1_500


def test_entries_lost_added_or_moved_are_found() -> None:
    entries, head = chain(5)
    other, _ = chain(5, "weather")
    for index in range(5):
        for forged in (
            entries[:index] + entries[index + 1 :],
            [*entries[:index], entries[index], *entries[index:]],
            [*entries[:index], other[index], *entries[index + 1 :]],
        ):
            with pytest.raises(LedgerBroken):
                verify(forged, head=head)
    swapped = [entries[0], entries[2], entries[1], *entries[3:]]
    with pytest.raises(LedgerBroken) as caught:
        verify(swapped, head=head)
    assert caught.value.index == 1
    with pytest.raises(LedgerBroken, match="another data set"):
        verify(entries, dataset="weather")


def test_a_cut_or_rewritten_end_shows_only_against_a_known_head() -> None:
    entries, head = chain(5)
    rewritten, _ = append(verify(entries[:4]), 4, "flights", "charge", {"rho": "0"})
    for forged in (entries[:4], [*entries[:4], rewritten]):
        verify(forged)
        with pytest.raises(LedgerBroken, match="another head") as caught:
            verify(forged, head=head)
        assert caught.value.index == len(forged) - 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[1]", "object"),
        (b"{}", "version"),
        (b'{"version":"1"}', "version"),
        (b'{"version":true}', "version"),
        (b'{"version":1.0}', "version"),
        (b'{"version":2,"kind":"charge"}', "the release that wrote it"),
        (b'{"version":1,"kind":"gift"}', "kind"),
    ],
)
def test_what_is_no_entry_of_this_release_is_refused_in_words(entry: bytes, words: str) -> None:
    with pytest.raises(CorruptState, match=words):
        read(entry)
    with pytest.raises(LedgerBroken, match="ledger entry 0") as caught:
        verify([entry])
    assert caught.value.index == 0
    assert pickle.loads(pickle.dumps(caught.value)).index == 0


@pytest.mark.parametrize("seq", [True, 1.0, "1", None])
def test_a_seq_must_be_the_very_integer(seq: object) -> None:
    entries, head = chain(1)
    fields = {**json.loads(entries[0]), "seq": seq, "prev": head.hex()}
    with pytest.raises(LedgerBroken, match="place in the chain"):
        verify([entries[0], json.dumps(fields).encode()])


def test_what_cannot_be_an_entry_is_our_own_mistake() -> None:
    for arguments in (
        (bytes(31), 0, "flights", "charge", {}),
        (GENESIS, -1, "flights", "charge", {}),
        (GENESIS, 0, "flights", "gift", {}),
        (GENESIS, 0, "flights", "charge", {"prev": "x"}),
        (GENESIS, 0, "flights", "charge", {"answer": float("nan")}),
    ):
        with pytest.raises(ValueError):
            append(*arguments)


def test_frozen_entries_stay_readable() -> None:
    entries = (GOLDEN / "ledger-v1.ndjson").read_bytes().splitlines()
    head = bytes.fromhex("60a1f06a0b671b37f0afecf0c6acc9eb4967305ed047d3cb24cc4248774e0cc2")
    assert verify(entries, head=head, dataset="flights") == head
    assert [read(entry)["kind"] for entry in entries] == [
        "dataset",
        "phase",
        "charge",
        "analysts",
        "retired",
    ]
    assert chain(5) == (entries, head), "and what is written now is still the same"


def _chain(*bodies: tuple[str, dict[str, Any]]) -> list[bytes]:
    head, entries = ledger.GENESIS, []
    for index, (kind, body) in enumerate(bodies):
        entry, head = ledger.append(head, index, "flights", kind, body)
        entries.append(entry)
    return entries


def test_a_chain_adds_up_what_its_entries_charge_to_each_block() -> None:
    chain = ledger.Chain("flights")
    for entry in _chain(
        ("dataset", {"definition": {}}),
        ("phase", {"phase": 1, "rows": 5}),
        ("charge", {"looks": [], "charges": [[0, 3, 1]]}),
        ("phase", {"phase": 2, "rows": 5}),
        ("charge", {"looks": [], "charges": [[0, 2**49, 0], [1, 7, 2]]}),
        ("retired", {}),
    ):
        chain.add(entry)
    assert chain.charged == [(2**49 + 3, 1), (7, 2)]
    assert chain.length == 6


@pytest.mark.parametrize("charges", [[[1, 3, 0]], [[0, 3]], [["0", 3, 0]], 7])
def test_a_charge_of_no_block_breaks_the_chain(charges: Any) -> None:
    chain = ledger.Chain("flights")
    entries = _chain(("phase", {"phase": 1, "rows": 5}), ("charge", {"charges": charges}))
    chain.add(entries[0])
    with pytest.raises(LedgerBroken, match="ledger entry 1: its charges"):
        chain.add(entries[1])
