"""The HTTP API, on a worker of this process and real answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from stream_dp.web.access import Access
from tests.pipeline.conftest import make_world as make_world
from tests.pipeline.conftest import process as process
from tests.pipeline.conftest import world as world
from tests.pipeline.conftest import worlds as worlds
from tests.pipeline.world import Process, World
from tests.web.in_process import InProcess

FLIGHTS = "/api/v1/datasets/flights"
OPERATOR, ANALYST = "o" * 16, "a" * 16

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
async def served(world: World, process: Process) -> InProcess:
    """A worker with the data set ``flights``."""
    return await InProcess(world, process).fill()


@pytest.fixture
async def serve(served: InProcess) -> AsyncIterator[Serve]:
    """``await serve(access, gone="Kafka does not answer")``: a client of the API."""
    async with AsyncExitStack() as stack:

        async def serve(access: Access | None = None, **state: str) -> Client:
            app = served.app(access or Access("127.0.0.1", 6066), **state)
            return await stack.enter_async_context(TestClient(TestServer(app)))

        yield serve


@pytest.fixture
async def api(serve: Serve) -> Client:
    return await serve()


async def problem(reply: ClientResponse) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert reply.content_type == "application/problem+json"
    document = await reply.json()
    assert document["type"] == "about:blank"
    assert document["status"] == reply.status
    assert document["detail"]
    return reply.status, document["code"]


# ---------------------------------------------------------------- queries


async def test_a_query_in_sql_or_as_a_message_is_answered(api: Client) -> None:
    in_sql = {"sql": "SELECT carrier, COUNT(*) GROUP BY carrier", "query_id": "q-1"}
    reply = await api.post(f"{FLIGHTS}/queries", json=in_sql)
    table = await reply.json()
    assert (reply.status, table["kind"], table["query_id"]) == (200, "table", "q-1")
    assert table["table"]["labels"] == [["AA", "UA", "other"]]
    where = {"attribute": "carrier", "eq": "AA"}
    answer = await (await api.post(f"{FLIGHTS}/queries", json={"where": where})).json()
    assert (answer["kind"], answer["analyst"]) == ("predicate", "api")
    assert answer["value"] == pytest.approx(9 / 21, abs=0.02)
    assert answer["query_id"], "it gets an id"


async def test_a_whole_statement_gives_a_table_with_bars(api: Client) -> None:
    averages = "SELECT carrier, AVG(delay) AS m FROM flights GROUP BY carrier"
    body = {
        "sql": f"{averages} HAVING COUNT(*) > 5000 ORDER BY m",
        "query_id": "t",
        "window": {"last_phases": 1},
    }
    reply = await api.post(f"{FLIGHTS}/tables", json=body)
    table = await reply.json()
    assert (reply.status, table["status"], table["phases"]) == (200, "answered", [1, 1])
    assert [(one["name"], one["type"]) for one in table["columns"]] == [
        *(("carrier", "text"), ("m", "real"), ("m_error_bar", "real")),
        *(("m_low", "real"), ("m_high", "real")),
    ]
    assert table["columns"][2]["bar_of"] == "m"
    assert [row[0] for row in table["rows"]] == ["AA", "UA"]
    assert table["cost"] >= 0


async def test_a_refused_statement_is_a_reply_and_a_wrong_one_is_pointed_at(api: Client) -> None:
    limited = {
        "sql": "SELECT COUNT(*) FROM flights WHERE delay >= 30 WITHIN 0.1% OF ROWS",
        "at_most": 1e-6,
    }
    reply = await api.post(f"{FLIGHTS}/tables", json=limited)
    assert (reply.status, (await reply.json())["status"]) == (200, "refused")
    reply = await api.post(f"{FLIGHTS}/tables", json={"sql": "SELECT * FROM flights"})
    assert await problem(reply) == (422, "invalid_query")
    assert (await reply.json())["column"] == 8
    for body in ({}, {"sql": 7}, {"sql": "SELECT 1", "group_by": []}):
        assert (await problem(await api.post(f"{FLIGHTS}/tables", json=body)))[0] == 400


async def test_a_query_takes_its_window_its_error_and_its_price_next_to_its_sql(
    api: Client,
) -> None:
    body = {"sql": "cancelled", "window": {"last_phases": 1}, "error": 0.001, "at_most": 1e-6}
    refused = await (await api.post(f"{FLIGHTS}/queries", json=body)).json()
    assert (refused["status"], refused["reason"]["code"]) == ("refused", "price_too_high")
    twice = {**body, "sql": "cancelled WITHIN 1% OF ROWS"}
    reply = await api.post(f"{FLIGHTS}/queries", json=twice)
    assert await problem(reply) == (422, "invalid_input")
    assert "the SQL says it too; say it once" in await reply.text()


async def test_a_window_and_a_series_are_asked_in_any_form(api: Client) -> None:
    body = {"sql": "cancelled", "window": {"phases": [1, 1]}, "series": "phase"}
    answer = await (await api.post(f"{FLIGHTS}/queries", json=body)).json()
    assert (answer["kind"], [part["window"] for part in answer["parts"]]) == ("series", [[1, 1]])
    whole = {"sql": "SELECT phase, COUNT(*) AS n FROM flights WHERE cancelled GROUP BY phase"}
    table = await (await api.post(f"{FLIGHTS}/tables", json={**whole, "query_id": "t"})).json()
    assert [one["name"] for one in table["columns"]] == [
        *("phase", "n", "n_error_bar", "n_low", "n_high"),
    ]
    assert [row[0] for row in table["rows"]] == [1]


async def test_a_standing_query_begins_is_listed_and_ends(api: Client) -> None:
    body = {"sql": "cancelled", "window": {"last_phases": 1}, "alert": {"above": 0.9}}
    assert await problem(await api.post(f"{FLIGHTS}/queries", json=body)) == (
        400,
        "invalid_message",
    )
    assert await problem(await api.post(f"{FLIGHTS}/standing", json=body)) == (
        400,
        "invalid_message",
    )
    reply = await api.post(f"{FLIGHTS}/standing", json={**body, "query_id": "tile"})
    begun = await reply.json()
    assert (reply.status, begun["query_id"], begun["query"]["alert"]) == (
        200,
        "tile",
        {"above": 0.9},
    )
    where = {"attribute": "carrier", "eq": "AA"}
    await api.post(f"{FLIGHTS}/standing", json={"where": where, "query_id": "other"})
    listed = (await (await api.get(f"{FLIGHTS}/standing")).json())["standing"]
    assert [one["query_id"] for one in listed] == ["tile", "other"]
    answer = await (await api.get(f"{FLIGHTS}/answers/tile@1")).json()
    assert (answer["query_id"], answer["analyst"]) == ("tile@1", "api")
    for name in ("tile", "never"):
        ended = await (await api.delete(f"{FLIGHTS}/standing/{name}")).json()
        assert ended == {"status": "ended", "dataset": "flights", "query_id": name}
    listed = (await (await api.get(f"{FLIGHTS}/standing")).json())["standing"]
    assert [one["query_id"] for one in listed] == ["other"]


async def test_the_same_query_under_the_same_id_gets_the_same_answer_and_another_one_none(
    api: Client,
) -> None:
    body = {"sql": "cancelled", "query_id": "q-1"}
    first = await (await api.post(f"{FLIGHTS}/queries", json=body)).json()
    assert await (await api.post(f"{FLIGHTS}/queries", json=body)).json() == first
    other = await api.post(f"{FLIGHTS}/queries", json={**body, "sql": "delay >= 30"})
    assert await problem(other) == (409, "id_reused")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"api": {"queries_per_minute": 1}}, (429, "too_many_queries", True)),
        ({"api": {"spending_per_minute": 1e-6}}, (429, "spending_too_fast", False)),
        ({"ana": {}}, (403, "not_allowed", False)),
    ],
)
async def test_who_asks_too_fast_or_may_not_ask_gets_a_status_of_its_own(
    api: Client,
    world: World,
    process: Process,
    rules: dict[str, Any],
    told: tuple[int, str, bool],
) -> None:
    change = {"version": 1, "dataset": "flights", "change": "analysts", "analysts": rules}
    world.produce("datasets", change)
    await process.run()
    replies = [
        await api.post(f"{FLIGHTS}/queries", json={"sql": sql})
        for sql in ("cancelled", "delay >= 30 WITHIN 0.5% OF ROWS")
    ]
    status, code, retriable = told
    assert await problem(replies[-1]) == (status, code)
    assert (await replies[-1].json())["retriable"] is retriable


async def test_an_answer_that_takes_long_is_read_at_its_address(
    api: Client, served: InProcess
) -> None:
    served.answering.clear()
    body = {"sql": "cancelled", "query_id": "50%/a?#"}
    reply = await api.post(f"{FLIGHTS}/queries?timeout=0", json=body)
    pending = await reply.json()
    place = f"{FLIGHTS}/answers/{quote('50%/a?#', safe='')}"
    assert (reply.status, reply.headers["Location"]) == (202, place)
    assert pending == {
        "status": "pending",
        "dataset": "flights",
        "query_id": "50%/a?#",
        "answer": place,
    }
    again = await api.get(URL(place, encoded=True))
    assert (again.status, await again.json()) == (202, pending)
    served.answering.set()
    reply = await api.get(URL(f"{place}?timeout=10", encoded=True))
    answer = await reply.json()
    assert (reply.status, answer["status"], answer["query_id"]) == (200, "answered", "50%/a?#")


async def test_an_answer_that_another_worker_has_waited_for_is_found_on_the_topic(
    api: Client, served: InProcess
) -> None:
    served.world.produce(
        "queries", {"version": 1, "dataset": "flights", "analyst": "api", "query_id": "elsewhere"}
    )
    await served.run()
    reply = await api.get(f"{FLIGHTS}/answers/elsewhere")
    assert (reply.status, (await reply.json())["query_id"]) == (200, "elsewhere")
    unknown = await api.get(f"{FLIGHTS}/answers/unknown")
    assert await problem(unknown) == (404, "not_found")
    assert "under the same id again" in await unknown.text()


async def test_a_refusal_is_a_reply_and_not_an_error(api: Client) -> None:
    body = {"kind": "median", "attribute": "delay"}
    reply = await api.post(f"{FLIGHTS}/queries", json=body)
    refused = await reply.json()
    assert (reply.status, refused["status"]) == (200, "refused")
    assert refused["reason"]["message"]


async def test_quotes_spend_nothing_and_may_be_for_many_queries(
    api: Client, served: InProcess
) -> None:
    spent = served.published.datasets["flights"].odometer.most_spent
    body = {"sql": "cancelled AND delay >= 30", "error": 0.001}
    quoted = await (await api.post(f"{FLIGHTS}/quotes", json=body)).json()
    assert (quoted["status"], quoted["difficulty"]) == ("quoted", "hard")
    where = {"attribute": "carrier", "eq": "AA"}
    bundle = {"queries": [body, {"where": where, "query_id": "q"}]}
    together = await (await api.post(f"{FLIGHTS}/quotes/together", json=bundle)).json()
    assert together["together"]["high"] == pytest.approx(quoted["privacy_loss"]["share"])
    assert len(together["queries"]) == 2
    assert served.published.datasets["flights"].odometer.most_spent == spent


# ---------------------------------------------------------------- what is published


async def test_data_sets_definitions_and_budgets_are_those_of_the_topics(
    api: Client, served: InProcess
) -> None:
    found = (await (await api.get("/api/v1/datasets")).json())["datasets"]
    spent = served.published.datasets["flights"].odometer.most_spent
    assert found == [
        {
            "dataset": "flights",
            "state": "live",
            "phases": 1,
            "rows": 21_000,
            "waiting": 0,
            "spent": spent,
        }
    ]
    definition = await (await api.get(FLIGHTS)).json()
    assert definition["attributes"][2] == {
        "name": "cancelled",
        "type": "boolean",
        "missing": False,
    }
    budget = await (await api.get(f"{FLIGHTS}/budget")).json()
    (phase,) = budget.pop("phases")
    assert budget["spent"] == phase["spent"] == spent > 0
    assert phase["left"] == 1 - spent
    assert (phase["phase"], phase["opened"]) == (1, "2026-09-21T14:13:20Z")


async def test_a_budget_says_what_each_analyst_may_charge_and_has_left(
    api: Client, served: InProcess
) -> None:
    assert "shares" not in await (await api.get(f"{FLIGHTS}/budget")).json()
    change = {"version": 1, "dataset": "flights", "change": "analysts"}
    analysts = {"api": {"share": 0.25}, "*": {}}
    served.world.produce("datasets", {**change, "analysts": analysts})
    await served.run()
    asked = await api.post(f"{FLIGHTS}/queries", json={"sql": "FRESH delay >= 30"})
    answer = await asked.json()
    budget = await (await api.get(f"{FLIGHTS}/budget")).json()
    found = {one["who"]: one for one in budget["shares"]}
    assert list(found) == ["the owner", "api", "*", "the rest"]
    spent = found["api"]["newest"]["spent"]
    assert found["api"] == {
        "who": "api",
        "entry": "api",
        "share": 0.25,
        "kept": 0.25,
        "owner": False,
        "newest": {"phase": 1, "spent": spent, "left": pytest.approx(0.25 - spent)},
        "worst": {"phase": 1, "spent": spent, "left": pytest.approx(0.25 - spent)},
    }
    assert answer["budget"]["yours"] == {"spent": round(spent, 6), "left": round(0.25 - spent, 6)}
    assert found["*"]["newest"]["left"] == pytest.approx(0.75)


async def test_a_retired_data_set_is_listed_and_asked_no_more(
    api: Client, served: InProcess
) -> None:
    served.world.produce("datasets", None, key="flights")
    await served.run()
    (found,) = (await (await api.get("/api/v1/datasets")).json())["datasets"]
    assert found["state"] == "retired"
    assert await problem(await api.get(FLIGHTS)) == (404, "not_found")
    reply = await api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled"})
    assert await problem(reply) == (404, "not_found")
    assert (await api.get(f"{FLIGHTS}/budget")).status == 200


async def test_answers_and_events_arrive_on_the_stream_and_quotes_do_not(
    api: Client, served: InProcess
) -> None:
    async with api.get(f"{FLIGHTS}/stream") as stream:
        assert stream.content_type == "text/event-stream"
        await api.post(f"{FLIGHTS}/quotes", json={"sql": "cancelled"})
        await api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled", "query_id": "q"})
        served.world.cells("flights", "second")
        await served.run()
        names: list[str] = []
        documents: list[dict[str, Any]] = []
        while len(documents) < 3:
            name, data, _ = [(await stream.content.readline()).decode().strip() for _ in range(3)]
            names.append(name)
            documents.append(json.loads(data.removeprefix("data: ")))
    assert names == ["event: answer", "event: event", "event: event"]
    assert (documents[0]["query_id"], documents[0]["status"]) == ("q", "answered")
    assert {one["event"] for one in documents[1:]} == {"phase_opened", "batch_accepted"}


async def test_streams_leave_room_for_operators(serve: Serve) -> None:
    api = await serve(Access("127.0.0.1", 6066, operator_token=OPERATOR, analyst_token=ANALYST))

    async def opened(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return int((await api.get(f"{FLIGHTS}/stream", headers=headers)).status)

    assert {await opened(ANALYST) for _ in range(24)} == {200}
    assert await opened(ANALYST) == 503
    assert await opened(OPERATOR) == 200


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "it is not JSON"),
        (b"[]", 400, "write one JSON object"),
        (b'{"sql": "cancelled", "sql": "x"}', 400, "names a key twice"),
        (b'{"colour": "red"}', 400, "it has an unknown field"),
        (b'{"sql": "cancelled", "colour": "red"}', 400, "this field is unknown"),
        (b'{"sql": 7}', 400, "write a string in double quotes"),
        (b'{"sql": "cancelled", "quote": true}', 400, "this field is unknown"),
        (b'{"quote": true}', 400, "post the query to quotes"),
        (b'{"query_id": "two words"}', 400, "without blanks"),
        (b'{"sql": "colour = 1"}', 422, "colour"),
        (b'{"where": {"attribute": "colour", "eq": 1}}', 200, "there is no such attribute"),
    ],
)
async def test_a_body_that_is_not_a_query_says_what_to_fix(
    api: Client, body: bytes, status: int, words: str
) -> None:
    headers = {"Content-Type": "application/json"}
    reply = await api.post(f"{FLIGHTS}/queries", data=body, headers=headers)
    assert reply.status == status
    assert words in await reply.text()
    if status != 200:
        await problem(reply)


async def test_a_mistake_in_sql_is_pointed_at(api: Client) -> None:
    body = {"sql": "cancelled AND\ncolour = 'red'"}
    found = await (await api.post(f"{FLIGHTS}/queries", json=body)).json()
    assert (found["line"], found["column"]) == (2, 1)


async def test_what_does_not_exist_is_not_found(api: Client) -> None:
    ask = {"sql": "cancelled"}
    for reply in (
        await api.get("/api/v1/datasets/none"),
        await api.get("/api/v1/datasets/none/budget"),
        await api.get("/api/v1/datasets/none/stream"),
        await api.get("/api/v1/datasets/none/answers/q"),
        await api.post("/api/v1/datasets/none/queries", json=ask),
        await api.post("/api/v1/datasets/none/quotes", json=ask),
        await api.get("/api/v2/datasets"),
    ):
        assert await problem(reply) == (404, "not_found"), reply.url
    wrong = await api.put(f"{FLIGHTS}/queries", json=ask)
    assert await problem(wrong) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "POST"


async def test_what_is_not_found_ends_no_other_request(api: Client, served: InProcess) -> None:
    served.answering.clear()
    waiting = asyncio.create_task(api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled"}))
    assert (await api.get(f"{FLIGHTS}/standing")).status == 200, "the client is open by then"
    assert (await api.get(f"{FLIGHTS}/answers/never")).status == 404
    assert (await api.get("/api/v1/datasets/none/standing")).status == 404
    assert served.clients[0].open_now
    served.answering.set()
    assert (await waiting).status == 200
    assert len(served.clients) == 1


async def test_a_query_that_got_no_reply_in_time_may_be_answered_later(
    api: Client, served: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.web.http_api.api._GIVE_UP_S", 0.05)
    served.answering.clear()
    body = {"sql": "cancelled", "query_id": "late"}
    assert (await api.post(f"{FLIGHTS}/queries?timeout=0", json=body)).status == 202
    await asyncio.sleep(0.5)
    served.answering.set()
    assert (await api.get(f"{FLIGHTS}/answers/late")).status == 404
    await api.post(f"{FLIGHTS}/queries", json=body)
    assert (await api.get(f"{FLIGHTS}/answers/late")).status == 200


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "soon", ""])
async def test_a_time_that_cannot_be_waited_for_is_refused(api: Client, wait: str) -> None:
    reply = await api.post(f"{FLIGHTS}/queries?timeout={wait}", json={"sql": "cancelled"})
    assert await problem(reply) == (400, "invalid_message")
    assert "use 0 to 60" in await reply.text()


async def test_other_forms_and_long_bodies_are_refused(api: Client) -> None:
    place = f"{FLIGHTS}/queries"
    reply = await api.post(place, data=b"{}", headers={"Content-Type": "text/plain"})
    assert await problem(reply) == (415, "unsupported_media_type")
    assert (await problem(await api.post(place, json={"sql": "x" * 70_000})))[0] == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * 10_000

    headers = {"Content-Type": "application/json"}
    assert (await problem(await api.post(place, data=chunks(), headers=headers)))[0] == 413


async def test_while_a_server_is_away_nothing_is_sent(serve: Serve, served: InProcess) -> None:
    api = await serve(gone="Kafka does not answer", unread="the topics cannot be read")
    sent = len(served.world.trail)
    for path in ("queries", "quotes"):
        reply = await api.post(f"{FLIGHTS}/{path}", json={"sql": "cancelled"})
        assert await problem(reply) == (503, "server_unavailable")
        assert reply.headers["Retry-After"] == "1"
        assert "Kafka does not answer; nothing was sent" in await reply.text()
    assert await problem(await api.get("/api/v1/datasets")) == (503, "server_unavailable")
    assert len(served.world.trail) == sent


async def test_at_most_16_queries_wait_at_a_time(api: Client, served: InProcess) -> None:
    served.answering.clear()
    place = f"{FLIGHTS}/queries?timeout=0.01"
    for number in range(16):
        assert (
            await api.post(place, json={"sql": "cancelled", "query_id": f"q{number}"})
        ).status == 202
    assert await problem(await api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled"})) == (
        503,
        "too_busy",
    )
    for path in ("queries", "quotes", "tables"):
        reply = await api.post(f"{FLIGHTS}/{path}", json={"sql": "SELECT nonsense"})
        assert await problem(reply) == (503, "too_busy"), "nothing is translated meanwhile"
    served.answering.set()
    assert (await api.get(f"{FLIGHTS}/answers/q15?timeout=10")).status == 200
    assert (await api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled"})).status == 200


async def test_the_rules_of_the_pages_are_those_of_the_api(serve: Serve) -> None:
    api = await serve()
    ask = {"sql": "cancelled"}
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-Forwarded-For": "198.51.100.7"}, 403),
    ):
        reply = await api.post(f"{FLIGHTS}/queries", json=ask, headers=headers)
        assert (await problem(reply))[0] == status, headers
    reply = await api.options(f"{FLIGHTS}/queries", headers={"Origin": "http://evil.example"})
    assert not [name for name in reply.headers if name.startswith("Access-Control")]


async def test_elsewhere_the_api_needs_the_token_of_either_role(serve: Serve) -> None:
    api = await serve(Access("127.0.0.1", 6066, operator_token=OPERATOR, analyst_token=ANALYST))
    for path in ("/api/openapi.json", "/api/v1/datasets", "/api/v1/none"):
        reply = await api.get(path)
        assert await problem(reply) == (401, "unauthorized")
        assert reply.headers["WWW-Authenticate"] == "Bearer"
    for token in (OPERATOR, ANALYST):
        headers = {"Authorization": f"Bearer {token}"}
        assert (await api.get("/api/v1/datasets", headers=headers)).status == 200
        reply = await api.post(f"{FLIGHTS}/queries", json={"sql": "cancelled"}, headers=headers)
        assert reply.status == 200
    cookies = {"stream_dp_6066": ANALYST}
    assert (await api.get("/api/v1/datasets", cookies=cookies)).status == 200
