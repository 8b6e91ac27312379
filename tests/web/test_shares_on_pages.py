"""Shares of analysts on the pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Views
from tests.client.test_accounts import RULES, Book, part

NEWER = {"analysts": {"ann": {"share": 0.5, "of_a_newer_release": True}}}


def published(book: Book) -> PublishedState:
    found = PublishedState()
    for at, entry in enumerate(book.entries):
        document = {"version": 1, "dataset": "people", **entry}
        found.take("ledger", "people", json.dumps(document).encode(), 1000 + at)
    found.datasets["people"].retired = True  # it needs no definition then
    return found


def shares(book: Book) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Views(published(book)).public("people")["dataset"])[
        "shares"
    ]
    return found


def test_the_page_gets_the_newest_phase_and_the_one_with_least_left() -> None:
    book = Book(RULES, phases=3)
    book.charge("finance", (0, part(0.3), 0), (2, part(0.1), 0))
    found = {one["who"]: one for one in shares(book)}
    assert list(found) == ["the owner", "finance", "nightly", "team-*", "*", "the rest"]
    assert found["finance"] == {
        "who": "finance",
        "entry": "finance",
        "share": 0.4,
        "kept": 0.4,
        "newest": {"phase": 3, "spent": pytest.approx(0.1), "left": pytest.approx(0.3)},
        "worst": {"phase": 1, "spent": pytest.approx(0.3), "left": pytest.approx(0.1)},
    }
    assert found["nightly"]["owner"] is True
    assert found["the rest"]["kept"] == 0.15


def test_of_many_phases_the_page_looks_at_the_last_sixty() -> None:
    book = Book(RULES, phases=100)
    book.charge("finance", (0, part(0.4), 0), (99, part(0.1), 0))
    finance = next(one for one in shares(book) if one["who"] == "finance")
    assert (finance["worst"]["phase"], finance["newest"]["phase"]) == (100, 100)
    assert finance["worst"]["left"] == pytest.approx(0.3)


def test_there_is_nothing_to_show_without_shares_or_where_a_newer_release_wrote_them() -> None:
    assert shares(Book()) == []
    assert shares(Book(NEWER)) == []
    before = shares(Book(RULES, phases=0))
    assert all("newest" not in one and "worst" not in one for one in before)
