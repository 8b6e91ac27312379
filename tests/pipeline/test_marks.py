"""What marks add up to: they may come twice, late or from former owners, and nothing goes backwards."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest

from stream_dp.pipeline.journal.marks import Marks, said


def after(*told: dict[str, Any]) -> Marks:
    marks = Marks()
    for one in told:
        marks.take(one)
    return marks


SAID: list[dict[str, Any]] = [
    {"watermarks": {"in.queries:0": 7, "in.batches:0": 1}, "released": 5},
    {"watermarks": {"in.queries:0": 4, "rejected in.queries:0": 9}},
    {"released": 3, "first": 2},
    {"first": 8, "repaired": 6},
    {"watermarks": {}, "stopped": {"flights": "why"}},
]


def test_offsets_only_grow_in_whatever_order_marks_come() -> None:
    wanted = after(*SAID)
    assert wanted.watermarks == {
        "in.queries:0": 7,
        "in.batches:0": 1,
        "rejected in.queries:0": 9,
    }
    assert (wanted.released, wanted.first, wanted.repaired) == (5, 8, 6)
    for order in itertools.permutations(SAID):
        assert after(*order) == wanted


def test_a_mark_that_comes_twice_changes_nothing() -> None:
    for n in range(len(SAID)):
        marks = after(*SAID[:n])
        before = copy.deepcopy(marks)
        for one in SAID[:n]:
            marks.take(one)
        assert marks == before


def test_an_attempt_counts_until_it_ends_and_the_last_word_counts() -> None:
    marks = after({"trying": {"a": 1}}, {"trying": {"a": 2, "b": 1}})
    assert marks.trying == {"a": 2, "b": 1}
    marks.take({"trying": {"a": 0}})
    assert marks.trying == {"b": 1}
    marks.take({"trying": {"a": 0, "never begun": 0}})
    assert marks.trying == {"b": 1}
    marks.take({"trying": {"a": 1}})
    assert marks.trying == {"a": 1, "b": 1}, "it begins again"


def test_a_log_counts_as_cut_until_an_operator_says_otherwise() -> None:
    place = "in.queries:3"
    marks = after({"watermarks": {place: 70}, "cut": {place: 70}})
    marks.take({"watermarks": {place: 90}})
    assert marks.cut == {place: 70}
    assert after(marks.told()).cut == {place: 70}, "also behind a round"
    marks.take({"cut": {place: 0}})
    assert marks.cut == {}
    marks.take({"cut": {place: 90}})
    assert marks.cut == {place: 90}


def test_whoever_comes_behind_an_owner_that_said_no_goodbye_is_told() -> None:
    marks = Marks()
    marks.taken_over()
    assert not marks.inherited, "before the first one there was nobody"
    marks.take({"released": 1})
    marks.taken_over()
    assert marks.inherited
    marks.take({"left": True})
    marks.taken_over()
    assert not marks.inherited
    marks.taken_over()
    assert marks.inherited, "an owner that came and said nothing has not said goodbye"


def test_a_repair_that_is_not_finished_is_one_until_a_later_one_is() -> None:
    marks = after({"repaired": 5})
    marks.repairing = True
    marks.take({"repaired": 5})
    assert marks.repairing, "that was the one before"
    marks.take({"repaired": 9})
    assert not marks.repairing


def test_what_is_told_at_the_beginning_of_a_round_is_all_that_was_said() -> None:
    marks = after(*SAID, {"trying": {"a": 2}})
    again = after(json.loads(said(**marks.told())))
    assert again == marks


def test_what_was_told_is_not_changed_by_what_is_said_later() -> None:
    marks = after(*SAID)
    value = said(**marks.told())
    marks.take({"watermarks": {"in.queries:0": 70}, "released": 80})
    assert after(json.loads(value)) == after(*SAID)


@pytest.mark.parametrize(
    "told",
    [
        {"watermarks": {"a": -1, "b": True, "c": "7", "d": 1.5, "e": None, "f": 2**63}},
        {"watermarks": [1], "trying": "x", "released": -1, "first": "2", "repaired": None},
        {"watermarks": None, "trying": {"a": -1}, "released": True, "stopped": ["a"]},
        {"left": 1, "unknown to this release": {"a": 1}},
        {},
    ],
)
def test_what_is_no_number_of_an_offset_says_nothing(told: dict[str, Any]) -> None:
    assert after(told) == Marks(left=True)
    marks = after(*SAID)
    marks.left = False
    before = copy.deepcopy(marks)
    marks.take(told)
    assert marks == before
