"""The HTTP API, on a worker of this process and real answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from stream_dp.web.access import Access
from tests.client.conftest import session as session
from tests.client.world_client import WorldSession
from tests.web.in_process import InProcess, Remote, Serve
from tests.web.in_process import serve as serve

OPERATOR, ANALYST = "o" * 16, "a" * 16
CANCELLED = {"sql": "cancelled"}
AA = {"where": {"attribute": "carrier", "eq": "AA"}}


@pytest.fixture
def served(session: WorldSession) -> InProcess:
    """A worker with the data set ``flights``."""
    return InProcess(session).fill()


@pytest.fixture
async def api(serve: Serve) -> Remote:
    return await serve()


# ---------------------------------------------------------------- queries


async def test_a_query_in_sql_or_as_a_message_is_answered(api: Remote) -> None:
    in_sql = {"sql": "SELECT carrier, COUNT(*) GROUP BY carrier", "query_id": "q-1"}
    status, table = (await api("/queries", in_sql))[:2]
    assert (status, table["kind"], table["query_id"]) == (200, "table", "q-1")
    assert table["table"]["labels"] == [["AA", "UA", "other"]]
    answer = (await api("/queries", AA)).said
    assert (answer["kind"], answer["analyst"]) == ("predicate", "api")
    assert answer["value"] == pytest.approx(9 / 21, abs=0.02)
    assert answer["query_id"], "it gets an id"


async def test_a_whole_statement_gives_a_table_with_bars(api: Remote) -> None:
    averages = "SELECT carrier, AVG(delay) AS m FROM flights GROUP BY carrier"
    text = f"{averages} HAVING COUNT(*) > 5000 ORDER BY m"
    body = {"sql": text, "query_id": "t", "window": {"last_phases": 1}}
    status, table = (await api("/tables", body))[:2]
    assert (status, table["status"], table["phases"]) == (200, "answered", [1, 1])
    types = {one["name"]: one["type"] for one in table["columns"]}
    bars = dict.fromkeys(("m_error_bar", "m_low", "m_high"), "real")
    assert types == {"carrier": "text", "m": "real", **bars}
    assert table["columns"][2]["bar_of"] == "m"
    assert [row[0] for row in table["rows"]] == ["AA", "UA"]
    assert table["cost"] >= 0


async def test_a_query_takes_its_window_its_error_and_its_price_next_to_its_sql(
    api: Remote,
) -> None:
    body = {**CANCELLED, "window": {"last_phases": 1}, "error": 0.001, "at_most": 1e-6}
    refused = (await api("/queries", body)).said
    assert (refused["status"], refused["reason"]["code"]) == ("refused", "price_too_high")
    twice = await api("/queries", {**body, "sql": "cancelled WITHIN 1% OF ROWS"})
    assert twice.problem == (422, "invalid_input")
    assert "the SQL says it too; say it once" in twice.text


async def test_a_window_and_a_series_are_asked_in_any_form(api: Remote) -> None:
    body = {**CANCELLED, "window": {"phases": [1, 1]}, "series": "phase"}
    answer = (await api("/queries", body)).said
    assert (answer["kind"], [part["window"] for part in answer["parts"]]) == ("series", [[1, 1]])
    text = "SELECT phase, COUNT(*) AS n FROM flights WHERE cancelled GROUP BY phase"
    table = (await api("/tables", {"sql": text})).said
    assert [row[0] for row in table["rows"]] == [1]


async def test_a_standing_query_begins_is_listed_and_ends(api: Remote) -> None:
    body = {**CANCELLED, "window": {"last_phases": 1}, "alert": {"above": 0.9}}
    for path in ("/queries", "/standing"):
        assert (await api(path, body)).problem == (400, "invalid_message")
    status, begun = (await api("/standing", {**body, "query_id": "tile"}))[:2]
    assert (status, begun["query_id"]) == (200, "tile")
    assert begun["query"]["alert"] == {"above": 0.9}
    await api("/standing", {**AA, "query_id": "other"})
    listed = (await api("/standing")).said["standing"]
    assert [one["query_id"] for one in listed] == ["other", "tile"]
    answer = (await api("/answers/tile@1")).said
    assert (answer["query_id"], answer["analyst"]) == ("tile@1", "api")
    for name in ("tile", "never"):
        ended = (await api(f"/standing/{name}", method="DELETE")).said
        assert ended == {"status": "ended", "dataset": "flights", "query_id": name}
    listed = (await api("/standing")).said["standing"]
    assert [one["query_id"] for one in listed] == ["other"]


async def test_the_same_query_under_the_same_id_gets_the_same_answer_and_another_one_none(
    api: Remote,
) -> None:
    body = {**CANCELLED, "query_id": "q-1"}
    first = (await api("/queries", body)).said
    assert (await api("/queries", body)).said == first
    other = await api("/queries", {**body, "sql": "delay >= 30"})
    assert other.problem == (409, "id_reused")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"api": {"queries_per_minute": 1}}, (429, "too_many_queries", True)),
        ({"api": {"spending_per_minute": 1e-6}}, (429, "spending_too_fast", False)),
        ({"ana": {}}, (403, "not_allowed", False)),
    ],
)
async def test_who_asks_too_fast_or_may_not_ask_gets_a_status_of_its_own(
    api: Remote, served: InProcess, rules: dict[str, Any], told: tuple[int, str, bool]
) -> None:
    await served.change({"change": "analysts", "analysts": rules})
    await api("/queries", CANCELLED)
    reply = await api("/queries", {"sql": "delay >= 30 WITHIN 0.5% OF ROWS"})
    assert (*reply.problem, reply.said["retriable"]) == told


async def test_an_answer_that_takes_long_is_read_at_its_address(
    api: Remote, served: InProcess
) -> None:
    served.sleep()
    place = f"/answers/{quote('50%/a?#', safe='')}"
    whole = f"{Remote.FLIGHTS}{place}"
    asked = await api("/queries?timeout=0", {**CANCELLED, "query_id": "50%/a?#"})
    assert (asked.status, asked.headers["Location"]) == (202, whole)
    pending = {"status": "pending", "dataset": "flights", "query_id": "50%/a?#", "answer": whole}
    assert asked.said == pending
    assert (await api(place))[:2] == (202, pending)
    await served.wake()
    status, answer = (await api(f"{place}?timeout=10"))[:2]
    assert (status, answer["status"], answer["query_id"]) == (200, "answered", "50%/a?#")


async def test_an_answer_that_another_worker_has_waited_for_is_found_on_the_topic(
    api: Remote, served: InProcess
) -> None:
    head = {"version": 1, "dataset": "flights", "analyst": "api"}
    served.world.produce("queries", {**head, "query_id": "elsewhere"})
    await served.run()
    status, answer = (await api("/answers/elsewhere"))[:2]
    assert (status, answer["query_id"]) == (200, "elsewhere")
    unknown = await api("/answers/unknown")
    assert unknown.problem == (404, "not_found")
    assert "under the same id again" in unknown.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/queries", {"kind": "median", "attribute": "delay"}),
        (
            "/tables",
            {"sql": "SELECT COUNT(*) WHERE delay >= 30 WITHIN 0.1% OF ROWS", "at_most": 1e-6},
        ),
    ],
)
async def test_a_refusal_is_a_reply_and_not_an_error(
    api: Remote, path: str, body: dict[str, Any]
) -> None:
    status, refused = (await api(path, body))[:2]
    assert (status, refused["status"]) == (200, "refused")
    assert refused["reason"]["message"]


async def test_quotes_spend_nothing_and_may_be_for_many_queries(
    api: Remote, served: InProcess
) -> None:
    spent = served.published.datasets["flights"].odometer.most_spent
    body = {"sql": "cancelled AND delay >= 30", "error": 0.001}
    quoted = (await api("/quotes", body)).said
    assert (quoted["status"], quoted["difficulty"]) == ("quoted", "hard")
    bundle = {"queries": [body, {**AA, "query_id": "q"}]}
    together = (await api("/quotes/together", bundle)).said
    assert together["together"]["high"] == pytest.approx(quoted["privacy_loss"]["share"])
    assert len(together["queries"]) == 2
    assert served.published.datasets["flights"].odometer.most_spent == spent


# ---------------------------------------------------------------- what is published


async def test_data_sets_definitions_and_budgets_are_those_of_the_topics(
    api: Remote, served: InProcess
) -> None:
    (found,) = (await api(Remote.DATASETS)).said["datasets"]
    spent = served.published.datasets["flights"].odometer.most_spent
    counts = {"phases": 1, "rows": 21_000, "waiting": 0, "spent": spent}
    assert found == {"dataset": "flights", "state": "live", **counts}
    attribute = (await api("")).said["attributes"][2]
    assert attribute == {"name": "cancelled", "type": "boolean", "missing": False}
    budget = (await api("/budget")).said
    assert "shares" not in budget
    (phase,) = budget["phases"]
    assert budget["spent"] == phase["spent"] == spent > 0
    assert phase["left"] == 1 - spent
    assert (phase["phase"], phase["opened"]) == (1, "2026-09-21T14:13:20Z")


async def test_a_budget_says_what_each_analyst_may_charge_and_has_left(
    api: Remote, served: InProcess
) -> None:
    analysts = {"api": {"share": 0.25}, "*": {}}
    await served.change({"change": "analysts", "analysts": analysts})
    answer = (await api("/queries", {"sql": "FRESH delay >= 30"})).said
    found = {one["who"]: one for one in (await api("/budget")).said["shares"]}
    assert list(found) == ["the owner", "api", "*", "the rest"]
    spent = found["api"]["newest"]["spent"]
    line = {"phase": 1, "spent": spent, "left": pytest.approx(0.25 - spent)}
    rule = {"who": "api", "entry": "api", "share": 0.25, "kept": 0.25, "owner": False}
    assert found["api"] == {**rule, "newest": line, "worst": line}
    assert answer["budget"]["yours"] == {"spent": round(spent, 6), "left": round(0.25 - spent, 6)}
    assert found["*"]["newest"]["left"] == pytest.approx(0.75)


async def test_a_retired_data_set_is_listed_and_asked_no_more(
    api: Remote, served: InProcess
) -> None:
    await served.change(None)
    (found,) = (await api(Remote.DATASETS)).said["datasets"]
    assert found["state"] == "retired"
    assert (await api("")).problem == (404, "not_found")
    assert (await api("/queries", CANCELLED)).problem == (404, "not_found")
    assert (await api("/budget")).status == 200


async def test_answers_and_events_arrive_on_the_stream_and_quotes_do_not(
    api: Remote, served: InProcess
) -> None:
    async with api.client.get(f"{Remote.FLIGHTS}/stream") as stream:
        assert stream.content_type == "text/event-stream"
        await api("/quotes", CANCELLED)
        await api("/queries", {**CANCELLED, "query_id": "q"})
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


# ---------------------------------------------------------------- what is refused

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/queries", b"{", 400, "it is not JSON"),
        ("/queries", b"[]", 400, "write one JSON object"),
        ("/queries", b'{"sql": "cancelled", "sql": "x"}', 400, "names a key twice"),
        ("/queries", b'{"colour": "red"}', 400, "it has an unknown field"),
        ("/queries", b'{"sql": "cancelled", "colour": "red"}', 400, "this field is unknown"),
        ("/queries", b'{"sql": 7}', 400, "write a string in double quotes"),
        ("/queries", b'{"sql": "cancelled", "quote": true}', 400, "this field is unknown"),
        ("/queries", b'{"quote": true}', 400, "post the query to quotes"),
        ("/queries", b'{"query_id": "two words"}', 400, "without blanks"),
        ("/queries", b'{"sql": "colour = 1"}', 422, "colour"),
        ("/queries?timeout=-1", b'{"sql": "cancelled"}', 400, "use 0 to 60"),
        ("/queries?timeout=61", b'{"sql": "cancelled"}', 400, "use 0 to 60"),
        ("/queries?timeout=nan", b'{"sql": "cancelled"}', 400, "use 0 to 60"),
        ("/queries?timeout=", b'{"sql": "cancelled"}', 400, "use 0 to 60"),
        ("/queries", b'{"sql": "%s"}' % (b"x" * 70_000), 413, ""),
        ("/tables", b"{}", 400, ""),
        ("/tables", b'{"sql": 7}', 400, ""),
        ("/tables", b'{"sql": "SELECT 1", "group_by": []}', 400, ""),
    ],
)
async def test_a_body_that_is_not_a_query_says_what_to_fix(
    api: Remote, path: str, body: bytes, status: int, words: str
) -> None:
    reply = await api(path, body, headers=JSON)
    assert reply.problem[0] == status
    assert words in reply.text


async def test_other_forms_and_bodies_without_an_end_are_refused(api: Remote) -> None:
    reply = await api("/queries", b"{}", headers={"Content-Type": "text/plain"})
    assert reply.problem == (415, "unsupported_media_type")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * 10_000

    assert (await api("/queries", chunks(), headers=JSON)).problem[0] == 413


async def test_what_does_not_exist_is_not_found(api: Remote) -> None:
    none = f"{Remote.DATASETS}/none"
    for path in (none, f"{none}/budget", f"{none}/stream", f"{none}/answers/q", "/api/v2/datasets"):
        assert (await api(path)).problem == (404, "not_found"), path
    for path in (f"{none}/queries", f"{none}/quotes"):
        assert (await api(path, CANCELLED)).problem == (404, "not_found"), path
    wrong = await api("/queries", CANCELLED, method="PUT")
    assert wrong.problem == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "POST"


async def test_what_is_not_found_ends_no_other_request(api: Remote, served: InProcess) -> None:
    served.sleep()
    waiting = asyncio.create_task(api("/queries", CANCELLED))
    assert (await api("/standing")).status == 200, "the client is open by then"
    assert (await api("/answers/never")).status == 404
    assert (await api(f"{Remote.DATASETS}/none/standing")).status == 404
    assert served.clients[0].is_open
    await served.wake()
    assert (await waiting).status == 200
    assert len(served.clients) == 1


async def test_a_query_that_got_no_reply_in_time_may_be_answered_later(
    api: Remote, served: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.web.http_api.api._GIVE_UP_S", 0.05)
    served.sleep()
    body = {**CANCELLED, "query_id": "late"}
    assert (await api("/queries?timeout=0", body)).status == 202
    await asyncio.sleep(0.5)
    assert (await api("/answers/late")).status == 404
    await served.wake()
    assert (await api("/answers/late")).status == 200


async def test_while_a_server_is_away_nothing_is_sent(serve: Serve, served: InProcess) -> None:
    api = await serve(gone="Kafka does not answer", unread="the topics cannot be read")
    sent = len(served.world.trail)
    for path in ("/queries", "/quotes"):
        reply = await api(path, CANCELLED)
        assert reply.problem == (503, "server_unavailable")
        assert reply.headers["Retry-After"] == "1"
        assert "Kafka does not answer; nothing was sent" in reply.text
    assert (await api(Remote.DATASETS)).problem == (503, "server_unavailable")
    assert len(served.world.trail) == sent


async def test_at_most_16_queries_wait_at_a_time(api: Remote, served: InProcess) -> None:
    served.sleep()
    for number in range(16):
        body = {**CANCELLED, "query_id": f"q{number}"}
        assert (await api("/queries?timeout=0.01", body)).status == 202
    for path in ("/queries", "/quotes", "/tables"):
        reply = await api(path, {"sql": "SELECT nonsense"})
        assert reply.problem == (503, "too_busy"), "nothing is translated meanwhile"
    await served.wake()
    assert (await api("/answers/q15?timeout=10")).status == 200
    assert (await api("/queries", CANCELLED)).status == 200


async def test_the_rules_of_the_pages_are_those_of_the_api(api: Remote) -> None:
    """``test_access.py`` has them."""
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"X-Forwarded-For": "198.51.100.7"}, 403),
    ):
        assert (await api("/queries", CANCELLED, headers=headers)).problem[0] == status, headers
    reply = await api("/queries", method="OPTIONS", headers={"Origin": "http://evil.example"})
    assert not [name for name in reply.headers if name.startswith("Access-Control")]


async def test_elsewhere_the_api_needs_the_token_of_either_role(serve: Serve) -> None:
    api = await serve(Access("127.0.0.1", 6066, operator_token=OPERATOR, analyst_token=ANALYST))
    for path in ("/api/openapi.json", Remote.DATASETS, "/api/v1/none"):
        reply = await api(path)
        assert reply.problem == (401, "unauthorized")
        assert reply.headers["WWW-Authenticate"] == "Bearer"
    for token in (OPERATOR, ANALYST):
        headers = {"Authorization": f"Bearer {token}"}
        assert (await api(Remote.DATASETS, headers=headers)).status == 200
        assert (await api("/queries", CANCELLED, headers=headers)).status == 200
    cookie = {"Cookie": f"stream_dp_6066={ANALYST}"}
    assert (await api(Remote.DATASETS, headers=cookie)).status == 200


async def test_streams_leave_room_for_operators(serve: Serve) -> None:
    api = await serve(Access("127.0.0.1", 6066, operator_token=OPERATOR, analyst_token=ANALYST))
    for token, n, status in ((ANALYST, 24, 200), (ANALYST, 1, 503), (OPERATOR, 1, 200)):
        headers = {"Authorization": f"Bearer {token}"}
        assert {(await api("/stream", headers=headers)).status for _ in range(n)} == {status}
