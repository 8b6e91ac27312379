"""What the store has of a data set, compared with what the journal says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.pipeline.chains import Chain, Verdict, judged
from stream_dp.state.store import ORIGIN, Note, Place


def trail(number: int, history: str = "ours") -> bytes:
    return f"{history} {number}".encode() if number else ORIGIN


def kept(*numbers: int, history: str = "ours") -> list[tuple[int, Any, bytes]]:
    """The records of commits that a store keeps."""
    return [
        (number, SimpleNamespace(prev=trail(number - 1, history)), trail(number, history))
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("noted", "place", "now", "records", "verdict"),
    [
        (2, 2, (2, trail(2)), [], "equal"),
        (2, 2, (2, trail(2, "other")), [], "other"),  # of the same length
        (2, 2, (3, trail(3)), kept(3), "ahead"),  # of a former owner, who has committed meanwhile
        (2, 2, (3, trail(3, "other")), kept(3, history="other"), "other"),
        (2, 4, (4, trail(4)), kept(3, 4), "ahead"),
        (2, 4, (4, trail(4, "other")), kept(3, 4, history="other"), "other"),
        (2, 4, (2, trail(2)), [], "other"),  # gone back: what was noted does not say its trail
        (0, 3, (3, trail(3)), kept(1, 2, 3), "ahead"),
        (0, 3, (2, trail(2)), kept(1, 2), "ahead"),  # gone back: all histories begin alike
        (0, 0, (0, ORIGIN), [], "equal"),
        (0, 0, (1, trail(1)), kept(1), "ahead"),
    ],
)
def test_where_nothing_was_read_the_place_of_the_store_says_its_history(
    noted: int, place: int, now: tuple[int, bytes], records: Any, verdict: Verdict
) -> None:
    chain = Chain.noted(Place(1, place, trail(place), Note(9, 1, noted)))
    assert judged(chain, *now, records) == verdict


@pytest.mark.parametrize(
    ("now", "records", "verdict"),
    [
        ((4, trail(4)), [], "equal"),
        ((2, trail(2)), [], "behind"),
        ((2, trail(2, "other")), [], "other"),  # of the length that the store had
        ((4, trail(4, "other")), [], "other"),
        ((5, trail(5)), kept(5), "ahead"),
        ((3, trail(3)), [], "other"),  # another copy: nobody has looked where it is on the chain
    ],
)
def test_what_was_read_says_it_where_something_was(
    now: tuple[int, bytes], records: Any, verdict: Verdict
) -> None:
    chain = Chain(
        Place(1, 2, trail(2), Note(9, 1, 2)), seq=4, trail=trail(4), met=True, missing=(9, 1)
    )
    assert judged(chain, *now, records) == verdict
