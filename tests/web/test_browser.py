"""Both views in a real browser, on a real worker that asks for tokens."""

from __future__ import annotations

import http.server
import json
import random
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.embedded import ports
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

OPERATOR, ANALYST = "operator-token-of-this-test", "analyst-token-of-this-test"
PEOPLE = "people-of-three-towns-and-others".ljust(63, "x")
MEAN_AGE = (18 * 9 + 12 * 24 + 15 * 37 + 45 * 67) / 90  # of representatives, ages being uniform
HOSTILE = "<img src=x onerror=document.title='pwned'>"
HOSTILE_VALUE = "</script><svg onload=document.title='pwned'>"

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def worker(module_deployment: Any) -> Any:
    """Answers about people; two of three phases' rows are in."""
    worker = module_deployment.worker(web_operator_token=OPERATOR, web_analyst_token=ANALYST)
    worker.wait_ready()
    with module_deployment.client() as client:
        client.define(
            {
                "dataset": PEOPLE,
                "attributes": [
                    {
                        "name": "city",
                        "type": "category",
                        "values": ["Bonn", "Graz", HOSTILE_VALUE],
                    },
                    {
                        "name": "age",
                        "type": "number",
                        "edges": [18, 30, 45],
                        "integer": True,
                        "representatives": [9, 24, 37, 67],
                    },
                    {"name": HOSTILE, "type": "boolean"},
                ],
                "privacy": {"epsilon": 1.0, "delta": 1e-9},
                "accuracy": {"error": 0.1, "failure_probability": 0.01},
                "phase": {"min_rows": 2000},
            }
        )
        for phase in (1, 2):
            client.send(PEOPLE, columns=rows(phase, 2000))
        client.send(PEOPLE, columns=rows(3, 500))
        client.ask(PEOPLE, "age >= 30")
    return worker


def rows(seed: int, n: int) -> dict[str, list[object]]:
    draw = random.Random(seed)
    return {
        "city": [draw.choice(["Bonn", "Bonn", "Graz", "Oslo"]) for _ in range(n)],
        "age": [draw.randrange(90) for _ in range(n)],
        HOSTILE: [draw.random() < 0.3 for _ in range(n)],
    }


@pytest.fixture
def visit(browser: Any, worker: Any) -> Iterator[Open]:
    """``visit("/ask", token, width=360, dark=True)``: a page in a profile of its own."""
    pages = []

    def visit(path: str, token: str = "", **how: Any) -> Any:
        fragment = f"#token={token}" if token else ""
        page = browser.open(f"{worker.url}{path}{fragment}", **how)
        pages.append(page)
        if token:
            page.until_text("Enter only if that is you", "#who")
            page.click("#enter")
        return page

    yield visit
    for page in pages:
        page.close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_link_with_a_token_says_who_would_enter_and_asks_first(
    browser: Any, worker: Any, visit: Open
) -> None:
    page = browser.open(f"{worker.url}/ask#token={ANALYST}")
    page.until_text("This link enters as an analyst", "#who")
    assert page.evaluate("location.hash") == ""
    page.call("Page.reload")
    page.until("document.querySelector('#who')?.textContent === ''")
    assert page.evaluate("document.querySelector('#token').value") == "", "nobody has entered"
    page.close()
    page = browser.open(f"{worker.url}/ask#token=not-the-token-of-this-test")
    page.until_text("this token is not valid here")
    page.close()
    visit("/ask", ANALYST).until_text("Question in SQL")


def test_the_worker_prints_where_to_enter_and_no_token_that_was_given(worker: Any) -> None:
    worker.until(lambda: f"analysts enter by {worker.url}/ with" in worker.output)
    assert OPERATOR not in worker.output
    assert ANALYST not in worker.output


def test_prometheus_needs_no_token_at_a_port_of_its_own(module_deployment: Any) -> None:
    port = ports.choose("metrics", None)
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    worker = module_deployment.worker(
        metrics_port=port, web_analyst_token=ANALYST, web_operator_token=OPERATOR
    )
    worker.wait_ready()
    assert worker.page("/metrics") is None
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as reply:
        assert b"stream_dp_ready 1.0" in reply.read()
    request = urllib.request.Request(f"{worker.url}/metrics", headers=bearer)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        assert b"stream_dp_ready 1.0" in reply.read()
    assert worker.stop() == 0, worker.output


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
    visit: Open, worker: Any, foreign: str, module_deployment: Any
) -> None:
    page = visit("/", OPERATOR)
    page.until_text("people", "#head")
    page.go(foreign)
    page.until("document.title === 'foreign'")
    query = json.dumps({"dataset": PEOPLE, "sql": "age < 45"})
    tried = page.evaluate(
        f"""(async () => {{
        const [at, body, credentials] = [{json.dumps(worker.url)}, {json.dumps(query)}, "include"];
        const json = {{ "content-type": "application/json" }};
        const sends = (how) => fetch(at + "/query", {{ method: "POST", body, credentials, ...how }});
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
        navigator.sendBeacon(at + "/query", new Blob([body], {{ type: "application/json" }}));
        const went = [];
        for (const [name, go] of Object.entries(tries)) await go().then(() => went.push(name), () => 0);
        return went;
        }})()"""
    )
    assert tried == []
    asked = [record.get("where") for record in module_deployment.replies("queries")]
    assert {"attribute": "age", "ge": 30} in asked
    assert {"attribute": "age", "lt": 45} not in asked


def test_an_analysts_token_opens_what_is_public_and_no_more(visit: Open) -> None:
    page = visit("/", ANALYST)
    page.until_text("people", "#head")
    assert page.evaluate("location.pathname") == "/ask"
    assert "Overview" not in page.text("nav")
    for path in ("/stream/operator", "/router/", "/table/"):
        status = page.evaluate(f"fetch('{path}').then((reply) => reply.status)")
        assert status == 401, path
    told = page.evaluate(
        "new Promise((done) => { const names = []; const source = new EventSource('/stream/analyst');"
        "for (const name of ['reading', 'datasets', 'schema', 'dataset', 'answers', 'events', 'health',"
        "'rejected', 'queries', 'tiles']) source.addEventListener(name, () => names.push(name));"
        "setTimeout(() => { source.close(); done(names); }, 300); })"
    )
    public = {"reading", "datasets", "schema", "dataset", "answers", "tiles", "events"}
    assert set(told) == public


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_both_views_are_whole_on_a_desk_and_on_a_phone(visit: Open, width: int, dark: bool) -> None:
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
    assert (page.overflow(), page.pale(), page.errors()) == ([], [], [])
    page.click("nav a[href^='/ask']")
    page.until("document.querySelector('#schema .attribute')")
    page.until("document.querySelector('#answers table')")
    assert "age >= 30" in page.text("#answers"), "each answer shows its question"
    assert (page.overflow(), page.errors()) == ([], [])
    assert page.pale() == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 200) == dark


def test_a_query_is_priced_asked_and_remembered(visit: Open) -> None:
    page = visit("/ask", ANALYST)
    page.until("document.querySelector('#schema .attribute')")
    page.write("#question", "city = 'Bonn'")
    page.click("#price")
    page.until_text("of the budget left", "#says")
    page.click("#ask")
    page.until_text("rows", "#answer")
    found = re.search(r"([\d.]+)% ± ([\d.]+)%", page.text("#answer .figure"))
    assert found is not None
    share, bar = map(float, found.groups())
    assert 0 < bar <= 10
    assert abs(share - 50) < 2 * bar + 2  # five sigma of the noise, and the rows' own chance
    assert "city = 'Bonn'" in page.text("#history")
    page.evaluate("document.querySelector('#series').value = 'phase'")
    page.click("#ask")
    page.until("document.querySelectorAll('#answer svg circle').length === 2")
    shown = page.evaluate("document.querySelector('#answer svg').getAttribute('aria-label')")
    assert len(re.findall(r"[\d.]+% ± [\d.]+%", shown)) == 2
    page.until_text("2 parts by phase", "#answers")
    page.evaluate("document.querySelector('#series').value = ''")
    page.write("#question", "SELECT city, COUNT(*) GROUP BY city")
    page.click("#ask")
    page.until("document.querySelector('#answer details')")
    marks = "rect.mark').length + document.querySelectorAll('#answer svg g .error"
    # The drawing follows the table: it waits until the page knows how wide it is.
    page.until(f"document.querySelectorAll('#answer svg {marks}').length === 4 + 4 * 3")
    page.until_text("4 cells", "#answers")
    assert (page.overflow(), page.errors()) == ([], [])


def test_what_is_sorted_and_cut_is_a_table_with_its_bars_and_answers_show_their_question(
    visit: Open,
) -> None:
    page = visit("/ask", ANALYST)
    page.until("document.querySelector('#schema .attribute')")
    page.write("#question", "SELECT city, COUNT(*) AS n GROUP BY 1 ORDER BY n DESC LIMIT 2")
    page.click("#price")
    page.until_text("of the budget left", "#says")
    page.click("#ask")
    page.until("document.querySelectorAll('#answer tbody tr').length === 2")
    assert len(re.findall(r"[\d,]+ ± [\d,]+", page.text("#answer tbody"))) == 2
    assert "published values chose these rows" in page.text("#answer")
    assert page.text("#answer thead").split() == ["city", "n", "rank"]
    assert "2 rows" in page.text("#history")
    page.until_text("SELECT city, COUNT(*) GROUP BY city", "#answers")
    assert (page.overflow(), page.errors()) == ([], [])


def test_means_are_drawn_in_the_unit_of_what_is_averaged(visit: Open) -> None:
    page = visit("/ask", ANALYST, width=360, dark=True)
    page.until("document.querySelector('#schema .attribute')")
    page.write("#question", "SELECT city, AVG(age) GROUP BY city")
    page.click("#ask")
    page.until_text("Mean by city", "#answer")
    shown = page.evaluate("document.querySelector('#answer svg').getAttribute('aria-label')")
    mean, bar = map(float, re.findall(r"Bonn ([\d.]+) ± ([\d.]+)", shown)[0])
    assert abs(mean - MEAN_AGE) < 2 * bar + 2
    assert "mean" in page.text("#answer details")
    assert "all rows" not in page.text("#answer")
    page.write("#question", "SELECT city, COUNT(*), AVG(age) GROUP BY city")
    page.click("#ask")
    page.until_text("all rows", "#answer details")
    assert "share with a value" in page.text("#answer details")
    page.write("#question", "SELECT COUNT(*), AVG(age)")
    page.click("#ask")
    page.until_text("all rows of the condition: 4,000 ± 0 of 4,000 rows", "#answer")
    assert "rows with a value: " in page.text("#answer")
    assert (page.overflow(), page.errors()) == ([], [])


def test_a_wrong_query_is_pointed_at(visit: Open) -> None:
    page = visit("/ask", ANALYST, width=360)
    page.until("document.querySelector('#schema .attribute')")
    page.write("#question", "age >= 30 AND\ncity = 'Oslo'")
    page.click("#ask")
    page.until_text("'Oslo' is not a listed value of city", "#says")
    assert page.evaluate("document.querySelector('#says pre').textContent").split("\n") == [
        "city = 'Oslo'",
        "       ^",
    ]
    assert page.evaluate("document.querySelector('#question').getAttribute('aria-invalid')")
    page.write("#question", "age > 35")
    page.click("#ask")
    page.until_text("Refused: this cuts the bin 30 to 44 of age; ask >= 30 or >= 45", "#answer")
    assert (page.overflow(), page.errors()) == ([], [])


def test_the_catalog_completes_what_is_typed(visit: Open) -> None:
    page = visit("/ask", ANALYST)
    page.until("document.querySelector('#schema .attribute')")
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
    page.until("document.querySelector('#schema .attribute')")
    assert HOSTILE in page.text("#schema")
    assert HOSTILE_VALUE in page.text("#schema")
    page.click("#schema .attribute:last-child .name")
    page.click("#ask")
    page.until_text(HOSTILE, "#history")
    page.write("#question", f'SELECT "{HOSTILE}", COUNT(*) GROUP BY city, "{HOSTILE}"')
    page.click("#ask")
    page.until("document.querySelector('#answer details')")
    page.evaluate("document.querySelector('#answer details').open = true")
    assert HOSTILE_VALUE in page.text("#answer details")
    page.click("nav a[href^='/?']")
    page.until("document.querySelector('#prices table')")
    assert HOSTILE in page.text("#prices")
    assert page.evaluate("document.title") == "stream_dp"
    assert page.evaluate("document.querySelectorAll('img').length") == 1  # the sign in the corner
    assert (page.overflow(), page.errors()) == ([], [])


def test_the_worker_knows_best_whether_its_data_set_is_in_quarantine(
    visit: Open, module_deployment: Any
) -> None:
    """An operator ends a quarantine in the store; no event tells that."""
    event = {"version": 1, "dataset": PEOPLE, "event": "quarantined"}
    module_deployment.produce("events", event, key=PEOPLE)
    page = visit("/", OPERATOR)
    page.until_text("in quarantine", "#events")
    page.until_text("Quarantine", "#health")
    assert "quarantined" not in page.text("#datasets")
    assert page.errors() == []


def test_a_new_phase_appears_by_itself(visit: Open, module_deployment: Any) -> None:
    page = visit("/", OPERATOR)
    page.until("document.querySelectorAll('#budget tbody tr').length >= 2")
    page.evaluate("window.stayed = true")
    with module_deployment.client() as client:
        client.send(PEOPLE, columns=rows(4, 1500))
    page.until("document.querySelectorAll('#budget tbody tr').length === 3")
    page.until_text("phase 3 opened with 2,000 rows", "#events")
    assert page.evaluate("window.stayed") is True
    assert page.errors() == []
