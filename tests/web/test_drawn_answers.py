"""What the scripts of the pages draw of each view, in a real browser without a worker or a broker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from stream_dp.display.answer_view import view_of
from stream_dp.messages import NoisyAnswer, read_answer
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Views

GOLDEN = Path(__file__).parents[1] / "golden/answers"
STATIC = files("stream_dp.web") / "static"
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
STOPPING = web.AppKey("stopping", asyncio.Event)
DEFINITION = {
    "version": 1,
    "dataset": "flights",
    "attributes": [{"name": "carrier", "type": "category", "values": ["AA", "UA"]}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02},
    "phase": {"min_rows": 100},
}


def golden(name: str) -> NoisyAnswer:
    answer = read_answer((GOLDEN / f"{name}.json").read_bytes())
    assert isinstance(answer, NoisyAnswer)
    return answer


def published() -> PublishedState:
    """A data set of which all golden answers were published, and one that raised an alert."""
    made = PublishedState()
    made.take("catalog", "flights", json.dumps(DEFINITION).encode(), 0)
    for at, path in enumerate(sorted(GOLDEN.glob("*.json"))):
        document = {**json.loads(path.read_bytes()), "query_id": path.stem}
        made.take("answers", "flights", json.dumps(document).encode(), at)
    alert = {"event": "alert", "query_id": "late@3", "analyst": "ann", "since_phase": 2}
    alert["cells"] = ["AA", "UA", "<b>", "other"]
    made.take(
        "events", "flights", json.dumps({"version": 1, "dataset": "flights", **alert}).encode(), 1
    )
    return made


async def reply(request: web.Request) -> web.Response:
    """Answers ``SELECT name`` with the golden answer of that name; a quote, or a refusal, in words."""
    asked = await request.json()
    if asked.get("quote"):
        budget = {"spent": 0.5, "left": 0.5, "yours": {"spent": 0.1, "left": 0.3}}
        said = {"said": "would cost 1.00% of a phase's budget", "notes": ["note: so far"]}
        return web.json_response({**said, "budget": budget, "price": "1.00%", "path": ""})
    if asked["sql"] == "refused":
        return web.json_response({"refused": "this cuts a bin"})
    if asked["sql"] == "wrong":
        error = {"message": "what is this?", "line": 1, "column": 3}
        return web.json_response({"error": error})
    return web.json_response(view_of(golden(asked["sql"])).to_document())


async def stream(request: web.Request) -> web.StreamResponse:
    told = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await told.prepare(request)
    reading = {"role": "analyst", "analyst": "ann", "away": {}, "caught_up": True, "problem": ""}
    sections = {**Views(published()).public("flights"), "reading": json.dumps(reading).encode()}
    for name, value in sections.items():
        await told.write(b"event: %s\ndata: %s\n\n" % (name.encode(), value))
    await request.app[STOPPING].wait()
    return told


async def static(request: web.Request) -> web.Response:
    name = request.match_info.get("name", "analyst.html")
    kind = TYPES[name.rpartition(".")[2]]
    return web.Response(body=(STATIC / name).read_bytes(), content_type=kind, charset="utf-8")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of the analysts' page."""
    loop, ready, addresses = asyncio.new_event_loop(), threading.Event(), list[str]()

    async def serve() -> None:
        app = web.Application()
        app[STOPPING] = stopping
        app.router.add_get("/ask", static)
        app.router.add_get("/static/{name}", static)
        app.router.add_get("/stream/analyst", stream)
        app.router.add_post("/question", reply)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}/ask")
        ready.set()
        await stopping.wait()
        await runner.cleanup()

    stopping = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield addresses[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def page(browser: Any, url: str) -> Iterator[Any]:
    opened = browser.open(url)
    opened.until("document.querySelector('#schema .attribute')")
    yield opened
    opened.close()


def ask(page: Any, text: str) -> str:
    page.write("#question", text)
    page.click("#ask")
    page.until(f"document.querySelector('#answer .question')?.innerText === {json.dumps(text)}")
    page.evaluate(
        "document.querySelectorAll('#answer details').forEach((one) => { one.open = true; })"
    )
    return str(page.text("#answer"))


LABELS = (
    "[...document.querySelectorAll('#answer svg')].map((one) => one.getAttribute('aria-label'))"
)


@pytest.mark.parametrize(
    ("name", "words", "pictures"),
    [
        (
            "predicate",
            ["38.68% ± 1.43%", "8,122 ± 301 of 21,000 rows", "covers the true value"],
            [],
        ),
        ("mode-no-answer", ["no answer", "naming it could reveal"], []),
        ("sum", ["mean 4.63 ± 0.88", "sum 41,384 ± 8,376", "all rows of the condition: 8,939"], []),
        ("correlation", ["0.268 (0.205 to 0.344)"], []),
        (
            "table",
            ["Share by carrier", "8,939 ± 315"],
            ["Values with error bars: AA 42.57% ± 1.50%; UA 38.45% ± 1.50%; other 18.98% ± 1.50%"],
        ),
        (
            "sum_by_group",
            ["Mean by cancelled", "30.0 ± 1.3"],
            ["Values with error bars: false 3.335 ± 0.6441; true 30 ± 1.253"],
        ),
        ("quantile_by_group", ["< 10, likely in 0 to 9 (rank ± 3.1%)", "unknown"], []),
        (
            "series-table",
            ["0.47% ± 1.99%", "0 to 201"],
            [
                "Over time: 2026-11-08: 0.47% ± 1.99%; 2026-11-09: 0.00% ± 1.97%",
                "Over time: 2026-11-08: 0.07% ± 1.99%; 2026-11-09: 0.27% ± 1.97%",
            ],
        ),
        ("threshold_curve", ["each line counts all rows up to and with its values"], None),
    ],
)
def test_each_form_of_answer_is_drawn_as_its_view_says(
    page: Any, name: str, words: list[str], pictures: list[str] | None
) -> None:
    said = ask(page, name)
    assert [word for word in words if word not in said] == []
    if pictures is not None:
        page.until(f"{LABELS}.length === {len(pictures)}")
        assert page.evaluate(LABELS) == pictures
    assert name in page.text("#history")
    assert (page.overflow(), page.errors()) == ([], [])


def test_a_price_a_refusal_and_a_fault_are_told_in_words(page: Any) -> None:
    page.write("#question", "table")
    page.click("#price")
    page.until_text("It would cost 1.00% of a phase's budget.", "#says")
    assert "note: so far" in page.text("#says")
    assert "30.00% left" in page.text("#says"), "of the analyst's own share"
    page.write("#question", "refused")
    page.click("#ask")
    page.until_text("Refused: this cuts a bin", "#answer")
    page.write("#question", "wrong")
    page.click("#ask")
    page.until_text("what is this?", "#says")
    assert page.evaluate("document.querySelector('#says pre').textContent") == "wrong\n  ^"
    assert page.evaluate("document.querySelector('#question').getAttribute('aria-invalid')")
    assert page.evaluate("document.querySelector('#answer-card').hidden")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_what_was_published_is_listed_in_words(
    browser: Any, url: str, width: int, *, dark: bool
) -> None:
    page = browser.open(url, width=width, dark=dark)
    page.until_text("3 cells ± 1.50%", "#answers")
    said = page.text("#answers")
    for words in (
        "refused: this cuts the bin >= 30 of delay",
        "mean 4.63 ± 0.88",
        "2 parts by week",
    ):
        assert words in said
    assert "alert: late@3 of ann (AA; UA; <b>; and 1 more), since phase 2" in page.text("#events")
    assert (page.overflow(), page.pale(), page.errors()) == ([], [], [])
    page.close()
