"""Shares of analysts on the pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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


# ---------------------------------------------------------------- in a browser

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def worker(module_deployment: Any) -> Any:
    """A data set with two phases, in which ann has spent some and the pages have a share."""
    worker = module_deployment.worker()
    worker.wait_ready()
    with module_deployment.client("ann") as client:
        client.define(
            {
                "dataset": "people",
                "attributes": [
                    {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"]},
                    {"name": "smoker", "type": "boolean"},
                ],
                "privacy": {"epsilon": 0.3, "delta": 1e-9},
                "accuracy": {"error": 0.1, "failure_probability": 0.01},
                "phase": {"min_rows": 2000},
                "mechanism": {"base_share": 0.0},
                "analysts": {
                    "ann": {"share": 0.4},
                    "team-<b>of</b>-*": {"share": 0.1, "together": 0.25},
                    "dashboard": {"share": 0.05},
                    "nightly": {"owner": True},
                    "*": {},
                },
                "owner": {"share": 0.2},
            }
        )
        for _ in range(2):
            cells = [
                {"city": city, "smoker": flag, "count": 400}
                for city in ("Bonn", "Graz", "Lyon")
                for flag in (True, False)
            ]
            client.send("people", cells=cells)
            for city in ("Bonn", "Graz"):
                client.ask("people", f"FRESH city = '{city}'")
    with module_deployment.client("team-<b>of</b>-x") as client:
        client.ask("people", "FRESH smoker IS TRUE")
    with module_deployment.client("guest") as client:
        client.ask("people", "FRESH smoker IS FALSE")
    return worker


@pytest.fixture
def visit(browser: Any, worker: Any) -> Iterator[Open]:
    pages = []

    def visit(path: str, **how: Any) -> Any:
        pages.append(browser.open(f"{worker.url}{path}", **how))
        return pages[-1]

    yield visit
    for page in pages:
        page.close()


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (360, False)], ids=["light", "dark", "phone"]
)
def test_an_operator_sees_the_share_of_each(
    visit: Open,
    shots: Callable[[Any, str], None],
    width: int,
    dark: bool,
) -> None:
    page = visit("/", width=width, dark=dark)
    page.until_text("team-<b>of</b>-x", "#shares")
    page.until_text("every row", "#prices")
    shots(page, f"operator-{width}-{dark}")
    said = page.text("#shares")
    for words in (
        "the owner",
        "10% each, 25% together",
        "as the owner",
        "kept for nobody",
        "guest",
    ):
        assert words in said
    assert page.overflow() == []
    assert page.pale() == []
    assert page.errors() == []


@pytest.mark.kafka
def test_an_analyst_sees_with_a_quote_what_is_left_to_them_and_in_all(
    visit: Open, shots: Callable[[Any, str], None]
) -> None:
    for dark in (False, True):
        page = visit("/ask", dark=dark)
        page.until_text("people", "#head")
        page.write("#question", "city = 'Lyon'")
        page.click("#price")
        page.until_text("5.00% of the budget left to you", "#says")
        said = page.text("#says")
        assert "Yours" in said
        assert "In all" in said
        shots(page, f"analyst-{dark}")
        assert page.pale() == []
        assert page.errors() == []
    page.write("#question", "SELECT city, smoker, COUNT(*) GROUP BY city, smoker")
    page.click("#ask")
    page.until("!document.querySelector('#answer-card').hidden")
    assert "of the budget left to you" in page.text("#answer")
    page.write("#question", "FRESH city = 'Bonn'")
    page.click("#ask")
    page.until_text("your own share of it is spent", "#answer")
    shots(page, "answered")
    assert page.overflow() == []
