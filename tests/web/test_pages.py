"""Both views in a real browser, with a worker of this process behind them."""

from __future__ import annotations

import http.server
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.pipeline.watch.health import Health
from tests.pipeline.clocked import BY_CLOCK, at, clock
from tests.web.site import WELL, Site

OPERATOR, ANALYST = "operator-token-of-this-test", "analyst-token-of-this-test"
PEOPLE = "people-of-three-towns-and-others".ljust(63, "x")
VISITS = "visits"
MEAN_AGE = (18 * 9 + 12 * 24 + 15 * 37 + 45 * 67) / 90  # of representatives, ages being uniform
HOSTILE = "<img src=x onerror=document.title='pwned'>"
HOSTILE_VALUE = "</script><svg onload=document.title='pwned'>"
STALE = "document.querySelector('main').classList.contains('stale')"
LIVE = "document.querySelector('#reading').innerText === 'live'"
SCHEMA = "document.querySelector('#schema .attribute')"

Open = Callable[..., Any]


def rows(seed: int, n: int) -> dict[str, list[object]]:
    draw = random.Random(seed)
    return {
        "city": [draw.choice(["Bonn", "Bonn", "Graz", "Oslo"]) for _ in range(n)],
        "age": [draw.randrange(90) for _ in range(n)],
        HOSTILE: [draw.random() < 0.2 + 0.1 * seed for _ in range(n)],
    }


def begin_a_day(site: Site) -> None:
    """Visits, of which each hour is counted: three hours of a day."""
    world = site.worker.world
    site.define(
        VISITS,
        attributes=[
            {"name": "city", "type": "category", "values": ["Bonn", HOSTILE_VALUE]},
            {"name": HOSTILE, "type": "boolean"},
        ],
        accuracy={"error": 0.1, "failure_probability": 0.01},
        phase=BY_CLOCK,
        running={
            "every": "1 hour",
            "within_rows": 400,
            "tiles": [{"group_by": ["city"]}, {"where": {"attribute": HOSTILE, "eq": True}}],
        },
    )
    for hour in range(3):
        world.now_ms = at(1, hour + 0.3)
        given = {"city": ["Bonn"] * 2000, HOSTILE: [hour > 0] * 2000}
        site.send(VISITS, f"hour-{hour}", columns=given, time="2026-11-01")
        pass_the_hour(site, hour + 1)


def pass_the_hour(site: Site, hour: float, day: int = 1) -> None:
    site.worker.world.now_ms = at(day, hour)
    clock(site.worker.world, VISITS)
    site.worker.session.run()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """People: two of three phases' rows are in. Three tiles, and shares of those who ask."""
    site = Site(operator_token=OPERATOR, analyst_token=ANALYST)
    age = {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True}
    site.define(
        PEOPLE,
        attributes=[
            {"name": "city", "type": "category", "values": ["Bonn", "Graz", HOSTILE_VALUE]},
            {**age, "representatives": [9, 24, 37, 67]},
            {"name": HOSTILE, "type": "boolean"},
        ],
        accuracy={"error": 0.1, "failure_probability": 0.01},
        phase={"min_rows": 2000},
        analysts={
            "ann": {"share": 0.2},
            "team-<b>of</b>-*": {"share": 0.1, "together": 0.25},
            "nightly": {"owner": True},
            "dashboard": {"share": 0.25},
            "*": {},
        },
        owner={"share": 0.2},
    )
    stand = {"group_by": (), "last_phases": 1, "alert": {"above": 0.2}}
    site.stand(PEOPLE, f'"{HOSTILE}"', "smokers", **stand)
    site.stand(PEOPLE, "SELECT city, COUNT(*) GROUP BY city", "=cities")
    site.stand(PEOPLE, "SELECT AVG(age)", "age")
    for phase in (1, 2):
        site.send(PEOPLE, f"b{phase}", columns=rows(phase, 2000))
    site.send(PEOPLE, "b3", columns=rows(3, 500))
    site.ask(PEOPLE, "age >= 30")
    site.ask(PEOPLE, "FRESH city = 'Bonn'", "team-<b>of</b>-x")
    begin_a_day(site)
    yield site
    site.close()


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Open]:
    """``visit("/ask", token, width=360, dark=True)``: a page in a profile of its own."""
    site.health = WELL
    pages = []

    def visit(path: str, token: str = "", **how: Any) -> Any:
        page = browser.open(f"{site.url}{path}{f'#token={token}' if token else ''}", **how)
        pages.append(page)
        if token:
            page.until_text("Enter only if that is you", "#who")
            page.click("#enter")
            page.until_text("people", "#head")
        return page

    yield visit
    for page in pages:
        page.close()


def asked(page: Any, text: str) -> str:
    """What stands in the answer to a question."""
    page.until(SCHEMA)
    page.write("#question", text)
    page.click("#ask")
    page.until(f"document.querySelector('#answer .question')?.innerText === {json.dumps(text)}")
    page.evaluate("document.querySelectorAll('#answer details').forEach((one) => one.open = true)")
    return str(page.text("#answer"))


def is_sound(page: Any) -> None:
    """Nothing sticks out of the window, no text is pale, and nothing has failed."""
    assert (page.overflow(), page.pale(), page.errors()) == ([], [], [])


# ---------------------------------------------------------------- entering


def test_a_wrong_token_opens_nothing_and_the_right_one_everything(visit: Open) -> None:
    page = visit("/")
    page.until("document.querySelector('#token')")
    page.write("#token", "not-the-token-of-this-test")
    page.press("Enter")
    page.until_text("this token is not valid here")
    assert "people" not in page.text()
    page.write("#token", OPERATOR)
    page.press("Enter")
    page.until_text("people", "#head")
    assert page.evaluate("location.hash + document.cookie") == ""


def test_a_link_with_a_token_says_who_would_enter_and_asks_first(
    browser: Any, site: Site, visit: Open
) -> None:
    page = browser.open(f"{site.url}/ask#token={ANALYST}")
    page.until_text("This link enters as an analyst", "#who")
    assert page.evaluate("location.hash") == ""
    page.call("Page.reload")
    page.until("document.querySelector('#who')?.textContent === ''")
    assert page.evaluate("document.querySelector('#token').value") == "", "nobody has entered"
    page.close()
    visit("/ask", ANALYST).until_text("Question in SQL")


def test_an_analysts_token_opens_what_is_public_and_no_more(visit: Open) -> None:
    page = visit("/", ANALYST)
    assert page.evaluate("location.pathname") == "/ask"
    assert "Overview" not in page.text("nav")
    status = page.evaluate("fetch('/stream/operator').then((reply) => reply.status)")
    assert status == 401
    told = page.evaluate(
        "new Promise((done) => { const names = []; const source = new EventSource('/stream/analyst');"
        "for (const name of ['reading', 'datasets', 'schema', 'dataset', 'answers', 'events', 'health',"
        "'rejected', 'queries', 'tiles', 'running']) source.addEventListener(name, () => names.push(name));"
        "setTimeout(() => { source.close(); done(names); }, 300); })"
    )
    shown = {"datasets", "schema", "dataset", "answers", "tiles", "running", "events"}
    assert set(told) == {"reading", *shown}


@pytest.fixture
def foreign() -> Iterator[str]:
    """A page at another port of this machine: to a browser it is of the same site as the worker's."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>foreign</title><body>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_foreign_page_can_neither_read_nor_ask_though_the_browser_sends_the_cookie(
    visit: Open, site: Site, foreign: str
) -> None:
    page = visit("/", OPERATOR)
    page.until_text("people", "#head")
    page.go(foreign)
    page.until("document.title === 'foreign'")
    query = json.dumps({"dataset": PEOPLE, "sql": "age < 45"})
    tried = page.evaluate(
        f"""(async () => {{
        const [at, body, credentials] = [{json.dumps(site.url)}, {json.dumps(query)}, "include"];
        const json = {{ "content-type": "application/json" }};
        const sends = (how) => fetch(at + "/question", {{ method: "POST", body, credentials, ...how }});
        const loads = (tag, path) => new Promise((done, fail) => {{
          const one = document.body.appendChild(document.createElement(tag));
          [one.onload, one.onerror, one.src] = [done, fail, at + path];
        }});
        const tries = {{
          reads: () => fetch(at + "/metrics", {{ credentials }}),
          loads: () => fetch(at + "/metrics", {{ credentials, mode: "no-cors" }}),
          asks: () => sends({{ headers: json }}),
          asksSimply: () => sends({{ mode: "no-cors" }}),
          listens: () => new Promise((done, fail) => {{
            const source = new EventSource(at + "/stream/operator", {{ withCredentials: true }});
            [source.onopen, source.onerror] = [done, fail];
          }}),
          script: () => loads("script", "/static/dom.js"),
        }};
        navigator.sendBeacon(at + "/question", new Blob([body], {{ type: "application/json" }}));
        const went = [];
        for (const [name, go] of Object.entries(tries)) await go().then(() => went.push(name), () => 0);
        return went;
        }})()"""
    )
    assert tried == []
    assert "age < 45" not in site.worker.published.asked.values()


# ---------------------------------------------------------------- what is there


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)], ids=["desk", "phone"])
def test_both_views_are_whole_on_a_desk_and_on_a_phone(
    visit: Open, site: Site, width: int, dark: bool
) -> None:
    page = visit("/", OPERATOR, width=width, dark=dark)
    page.until("document.querySelector('#prices table')")
    page.until_text("live", "#reading")
    text = page.text()
    for words in ("500 of 2,000 rows wait", "age >= 30", "phase 2 opened with 2,000 rows"):
        assert words in text, words
    assert page.text("#health").count("answers") == 3, "the worker, Kafka and Redis"
    assert re.search(r"(easy|hard), \w+", page.text("#answers"))
    assert page.evaluate("document.querySelectorAll('#budget tbody tr').length") == 2
    assert page.evaluate("document.querySelectorAll('#time svg, #easy svg').length") == 2
    shares = page.text("#shares")
    for words in ("the owner", "10% each, 25% together", "as the owner", "kept for nobody"):
        assert words in shares, words
    assert "team-<b>of</b>-x" in shares
    is_sound(page)
    page.click("nav a[href^='/ask']")
    page.until(SCHEMA)
    page.until("document.querySelector('#answers table')")
    assert "age >= 30" in page.text("#answers"), "each answer shows its question"
    is_sound(page)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 200) == dark


def test_tiles_show_their_answers_history_and_cost_and_link_to_their_question(visit: Open) -> None:
    page = visit("/ask", ANALYST, width=390, dark=True)
    page.until("document.querySelectorAll('#standing svg').length === 3")
    said = page.text("#standing")
    for words in ("last 1 phases", "alert when the whole bar is above 0.2", "the next answer"):
        assert words in said, words
    labels = "[...document.querySelectorAll('#standing svg')].map((one) => one.getAttribute('aria-label'))"
    pictures = page.evaluate(labels)
    assert sum(label.startswith("Over time: 1:") for label in pictures) == 2
    assert sum("Bonn" in label for label in pictures) == 1
    page.until_text("alert: smokers@2", "#events")
    is_sound(page)
    links = page.evaluate(
        "[...document.querySelectorAll('#standing a')].map((one) => one.getAttribute('href'))"
    )
    page.go(page.evaluate("location.origin") + next(one for one in links if "AVG" in one))
    page.until("document.querySelector('#question').value === 'SELECT AVG(age)'")
    assert page.evaluate("document.querySelector('#answer-card').hidden"), "nobody has asked it"
    csv = page.evaluate(
        "import('/static/tiles.js').then(({ csvOf }) => csvOf({"
        "cells: [['=1+1', 0.5, null], ['a, \"b\"', 0.25, 0.1]], history: ["
        "{ phase: 2, at: 0, cost: 0, path: 'certified', cells: [['-5', 1, 0.5], ['\\rx', -1, 0.5]] },"
        "{ phase: 3, at: 0, cost: 0.01, path: 'measured', cells: [['=1+1', 0.5, null]] }] }))"
    )
    assert csv.split("\r\n")[1:] == [
        "2,1970-01-01T00:00:00.000Z,-5,1,0.5,0,certified,",
        '2,1970-01-01T00:00:00.000Z,"\'\rx",-1,0.5,0,certified,',
        "3,1970-01-01T00:00:00.000Z,'=1+1,0.5,,0.01,measured,",
        '3,1970-01-01T00:00:00.000Z,"a, ""b""",0.25,0.1,0.01,measured,',
        "",
    ]


@pytest.mark.parametrize("width", [1280, 360], ids=["desk", "phone"])
def test_the_period_so_far_is_drawn_in_both_views(visit: Open, site: Site, width: int) -> None:
    for view, token in (("/", OPERATOR), ("/ask", ANALYST)):
        page = visit(view, token, width=width)
        page.go(f"{site.url}{view}?dataset={VISITS}")
        page.until("document.querySelectorAll('#running .tile').length === 2")
        page.until_text("6,000 rows had come by 03:00", "#running-hint")
        said = page.text("#running")
        assert f"2026-11-01 so far: {VISITS} by city, until 03:00" in said
        assert f'where "{HOSTILE}" = TRUE, until 03:00' in said
        page.evaluate("document.querySelector('#running details').open = true")
        page.until("document.querySelectorAll('#running svg').length === 5")
        label = "(one) => one.getAttribute('aria-label')"
        drawn = page.evaluate(f"[...document.querySelectorAll('#running svg')].map({label})")
        assert sum(one.startswith("Over time: 01:00:") and "; 03:00:" in one for one in drawn) == 4
        assert drawn[0].startswith("Values with error bars: Bonn ")
        assert page.evaluate("document.querySelectorAll('#running path.under').length") == 4
        is_sound(page)


def test_the_worker_knows_best_whether_its_data_set_is_in_quarantine(
    visit: Open, site: Site
) -> None:
    """An operator ends a quarantine in the store; no event tells that."""
    event = {"version": 1, "dataset": PEOPLE, "event": "quarantined"}
    site.worker.published.take("events", PEOPLE, json.dumps(event).encode(), 1_790_000_000_001)
    site.health = Health(ready=True, partitions=(0,), waiting={PEOPLE: 500})
    page = visit("/", OPERATOR)
    page.until_text("is in quarantine", "#events")
    page.until_text("Quarantine", "#health")
    assert "quarantined" not in page.text("#datasets")
    assert page.errors() == []


# ---------------------------------------------------------------- asking


def test_a_query_is_priced_asked_and_remembered(visit: Open) -> None:
    page = visit("/ask", ANALYST)
    page.until(SCHEMA)
    page.write("#question", "city = 'Graz'")
    page.click("#price")
    page.until_text("of the budget left to you", "#says")
    assert "Yours" in page.text("#says")
    said = asked(page, "city = 'Graz'")
    found = re.search(r"([\d.]+)% ± ([\d.]+)%", said)
    assert found is not None
    share, bar = map(float, found.groups())
    assert 0 < bar <= 10
    assert abs(share - 25) < 2 * bar + 2  # five sigma of the noise, and the rows' own chance
    assert "of the budget left to you" in said
    assert "city = 'Graz'" in page.text("#history")
    page.evaluate("document.querySelector('#series').value = 'phase'")
    page.click("#ask")
    page.until("document.querySelectorAll('#answer svg circle').length === 2")
    page.until_text("2 parts by phase", "#answers")
    page.evaluate("document.querySelector('#series').value = ''")
    assert "4 cells" not in page.text("#history")
    asked(page, "SELECT city, COUNT(*) GROUP BY city")
    marks = "rect.mark').length + document.querySelectorAll('#answer svg g .error"
    # The drawing follows the table: it waits until the page knows how wide it is.
    page.until(f"document.querySelectorAll('#answer svg {marks}').length === 4 + 4 * 3")
    page.until_text("4 cells", "#answers")
    is_sound(page)


def test_statements_are_drawn_in_the_unit_of_what_they_ask(visit: Open) -> None:
    page = visit("/ask", ANALYST, width=360, dark=True)
    sorted_by = "SELECT city, COUNT(*) AS n GROUP BY 1 ORDER BY n DESC LIMIT 2"
    said = asked(page, sorted_by)
    assert len(re.findall(r"[\d,]+ ± [\d,]+", page.text("#answer tbody"))) == 2
    assert page.text("#answer thead").split() == ["city", "n", "rank"]
    assert "published values chose these rows" in said
    assert "2 rows" in page.text("#history")
    assert "Mean by city" in asked(page, "SELECT city, AVG(age) GROUP BY city")
    page.until("document.querySelector('#answer svg')")
    shown = page.evaluate("document.querySelector('#answer svg').getAttribute('aria-label')")
    mean, bar = map(float, re.findall(r"Bonn ([\d.]+) ± ([\d.]+)", shown)[0])
    assert abs(mean - MEAN_AGE) < 2 * bar + 2
    assert "all rows of the condition: 4,000" in asked(page, "SELECT COUNT(*), AVG(age)")
    is_sound(page)


def test_a_wrong_query_is_pointed_at_and_puts_the_last_answer_away(visit: Open) -> None:
    page = visit("/ask", ANALYST, width=360)
    asked(page, "age >= 30")
    page.write("#question", "age >= 30 AND\ncity = 'Oslo'")
    page.click("#ask")
    page.until_text("'Oslo' is not a listed value of city", "#says")
    assert page.evaluate("document.querySelector('#says pre').textContent").split("\n") == [
        "city = 'Oslo'",
        "       ^",
    ]
    assert page.evaluate("document.querySelector('#question').getAttribute('aria-invalid')")
    assert page.evaluate("document.querySelector('#answer-card').hidden")
    refused = "Refused: this cuts the bin 30 to 44 of age; ask >= 30 or >= 45"
    assert refused in asked(page, "age > 35")
    is_sound(page)


def test_a_question_becomes_a_tile_and_is_ended(visit: Open, site: Site) -> None:
    page = visit("/ask", ANALYST)
    page.go(f"{site.url}/ask?q=age+%3E%3D+30&last=2")
    page.until("document.querySelector('#question').value === 'age >= 30'")
    assert page.evaluate("document.querySelector('#window').value") == "2"
    page.click("#stand")
    page.until_text("Write a name for the tile first", "#says")
    page.write("#name", "grown-up")
    page.click("#stand")
    page.until_text("grown-up is answered in each phase", "#says")
    page.until_text("age >= 30, last 2 phases", "#standing")
    page.until("document.querySelector('[data-key=\"end dashboard grown-up\"]')")
    page.click('[data-key="end dashboard grown-up"]')
    page.until("!document.querySelector('#standing').innerText.includes('grown-up')")


def test_the_catalog_completes_what_is_typed(visit: Open) -> None:
    page = visit("/ask", ANALYST)
    page.until(SCHEMA)
    assert page.evaluate("document.querySelector('#question').placeholder") == "city = 'Bonn'"
    offered = "[...document.querySelectorAll('#hints [role=option]')].map((one) => one.innerText)"
    for typed, expected in (
        ("ci", ["city"]),
        ("city = 'B", ["'Bonn'"]),
        ("city = 'Bonn' A", ["AND"]),
        ("age >= ", ["18", "30", "45"]),
        ("city I", ["IN ("]),  # nothing is missing here
    ):
        page.write("#question", typed)
        assert page.evaluate(offered) == expected, typed
    page.write("#question", "city = 'G")
    page.press("ArrowDown")
    page.press("Enter")
    assert page.evaluate("document.querySelector('#question').value") == "city = 'Graz' "


def test_names_from_definitions_are_text_and_nothing_else(visit: Open) -> None:
    page = visit("/ask", OPERATOR)
    page.until(SCHEMA)
    assert HOSTILE in page.text("#schema")
    assert HOSTILE_VALUE in page.text("#schema")
    assert HOSTILE_VALUE in asked(page, f'SELECT "{HOSTILE}", COUNT(*) GROUP BY city, "{HOSTILE}"')
    assert HOSTILE in page.text("#history")
    page.click("nav a[href^='/?']")
    page.until("document.querySelector('#prices table')")
    assert HOSTILE in page.text("#prices")
    assert page.evaluate("document.title") == "stream_dp"
    assert page.evaluate("document.querySelectorAll('img').length") == 1  # the sign in the corner
    is_sound(page)


# ---------------------------------------------------------------- while something is away


def test_both_views_say_that_the_broker_does_not_answer_since_when_and_what_it_means(
    visit: Open, site: Site
) -> None:
    pages = {"operator": visit("/", OPERATOR), "analyst": visit("/ask", ANALYST)}
    since = time.mktime((2026, 11, 21, 21, 3, 12, 0, 0, -1))
    site.health = Health(ready=True, partitions=(0,), broker_away_since=since)
    for role, page in pages.items():
        page.until_text("Kafka does not answer since", "#notice")
        said = page.text("#notice")
        assert "21:03" in said
        assert "Nothing is lost" in said
        assert ("again" in said) == (role == "operator"), "only operators can start anything"
        assert page.text("#reading") == "Kafka away"
        assert page.evaluate(STALE)
        is_sound(page)
    health = pages["operator"].text("#health")
    assert "waits for Kafka" in health
    assert "answers since" not in health
    pages["operator"].click("#quote")
    pages["operator"].until_text("Kafka does not answer; nothing was sent", "#prices > p")
    pages["analyst"].write("#question", "age >= 30")
    pages["analyst"].click("#ask")
    pages["analyst"].until_text("Kafka does not answer; nothing was sent", "#says")
    site.health = Health(ready=True, partitions=(0,), store_away_since=time.time())
    pages["operator"].until_text("does not answer since", "#health")
    for page in pages.values():
        page.until(LIVE)
        assert not page.evaluate(STALE)
        assert page.text("#notice") == "", "while Redis is away service goes on"


def test_a_new_phase_appears_by_itself_and_a_page_goes_on_with_the_next_worker(
    visit: Open, site: Site
) -> None:
    page = visit("/", OPERATOR)
    page.until("document.querySelectorAll('#budget tbody tr').length >= 2")
    page.evaluate("window.stayed = true")
    site.send(PEOPLE, "b4", columns=rows(4, 1500))
    page.until("document.querySelectorAll('#budget tbody tr').length === 3")
    page.until_text("phase 3 opened with 2,000 rows", "#events")
    assert page.evaluate("window.stayed") is True
    assert page.errors() == []
    site.stop()
    page.until_text("This worker does not answer since", "#notice")
    assert page.evaluate(STALE)
    assert "people" in page.text("#head")
    site.start()
    page.until(LIVE)
    assert not page.evaluate(STALE)
    assert page.text("#notice") == ""


def test_a_tick_appears_by_itself_and_the_period_goes_with_its_phase(
    visit: Open, site: Site
) -> None:
    page = visit("/", OPERATOR)
    page.go(f"{site.url}/?dataset={VISITS}")
    page.until_text("until 03:00", "#running")
    pass_the_hour(site, 4)
    page.until_text("until 04:00", "#running")
    pass_the_hour(site, 2.5, day=2)
    page.until_text("phase 1 opened with 6,000 rows", "#events")
    page.until("document.querySelector('#running-card').hidden")
    assert page.errors() == []
