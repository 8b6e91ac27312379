"""The page, the terminal, files of queries, HTTP, the driver and the client answer the same statements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from stream_dp.cli.files.statement_files import FileQuery, read_statements
from stream_dp.cli.use.ask_command import AskOptions, ask_statements
from stream_dp.display.price_words import NOTHING_ASKED, quote_in_words
from stream_dp.errors import StreamDPError
from stream_dp.messages import QuotedBundle
from stream_dp.web.access import Access
from stream_dp.web.page_queries import Asking
from tests.client.world_client import WorldClient
from tests.web.in_process import InProcess

STATEMENTS = [
    "carrier = 'AA'",
    "WHERE NOT cancelled",
    "delay < 0 AND delay >= 30",
    "SELECT COUNT(*) AS n FROM flights",
    "SELECT carrier, COUNT(*) FROM flights GROUP BY 1",
    "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier ORDER BY n DESC LIMIT 2",
    "SELECT carrier, COUNT(*) AS n GROUP BY carrier HAVING COUNT(*) > 100 ORDER BY 1",
    "SELECT cancelled, AVG(delay) GROUP BY cancelled",
    "SELECT COUNT(*) FILTER (WHERE delay >= 10) / COUNT(*) WHERE NOT cancelled",
    "SELECT 100 * COUNT(*) FILTER (WHERE cancelled) / COUNT(*) AS percent",
    "SELECT CASE WHEN delay < 10 THEN 'early' ELSE 'late' END AS x, COUNT(*) GROUP BY x ORDER BY x",
    "SELECT phase, COUNT(*) AS n GROUP BY phase ORDER BY phase LIMIT 3",
    "SELECT MEDIAN(delay)",
    "SELECT carrier, QUANTILE(delay, 0.9) AS q WHERE NOT cancelled GROUP BY carrier",
    "SELECT carrier, COUNT(*) AS n, MEDIAN(delay) AS m GROUP BY carrier ORDER BY m DESC",
    "SELECT MIN(delay) AS least, MAX(delay) AS most FROM flights WHERE carrier = 'UA'",
    "SELECT FLOOR(delay / 30) * 30 AS x, COUNT(*) AS n GROUP BY x HAVING x >= 0 ORDER BY x",
    "SELECT WIDTH_BUCKET(delay, 0, 30, 1) AS x, AVG(delay) AS mean GROUP BY 1",
    "SELECT phase, MEDIAN(delay) AS m GROUP BY phase",
    "SELECT c.region, COUNT(*) AS n FROM flights f JOIN carriers c ON f.carrier = c.code GROUP BY 1",
    "SELECT DISTINCT carrier FROM flights",
    "SELECT * FROM carriers ORDER BY planes DESC",
    "SELECT region, SUM(planes) AS planes FROM carriers GROUP BY region ORDER BY 1",
]
PRICED = {*STATEMENTS[:2], *STATEMENTS[3:20]}

Told = tuple[tuple[str, ...], list[tuple[Any, ...]]]


def ask_text(client: Any, text: str, *, quote: bool = False) -> bool:
    """Asks a text as ``stream-dp ask --json`` does."""
    options = AskOptions(quote=quote, as_json=True)
    return ask_statements(client, "flights", [FileQuery(1, text)], options)


def ask_file(client: Any, file: Path) -> bool:
    """The same for a file."""
    options = AskOptions(as_json=True)
    return ask_statements(client, "flights", read_statements(file), options, file)


@pytest.fixture
def fresh() -> Iterator[WorldClient]:
    """A worker that nobody has asked."""
    made = WorldClient()
    yield made
    made.end()


@pytest.fixture
def world(fresh: WorldClient) -> WorldClient:
    """The same, once all statements were asked: what was published then is told from then on."""
    for text in STATEMENTS:
        fresh.sql(text, dataset="flights")
    return fresh


@pytest.fixture
async def http(world: WorldClient) -> AsyncIterator[TestClient[Any, Any]]:
    app = InProcess(world.session).app(Access("127.0.0.1", 6066))
    async with TestClient(TestServer(app)) as client:
        yield client


def of_table(document: dict[str, Any]) -> Told:
    names = tuple(column["name"] for column in document["columns"])
    return names, [tuple(row) for row in document["rows"]]


def of_answer(document: dict[str, Any]) -> Any:
    """What an answer tells, without how it came about this time."""
    about = {"query_id", "analyst", "path", "difficulty", "privacy_loss", "budget"}
    told = {name: said for name, said in document.items() if name not in about}
    if "parts" in told:
        told["parts"] = [{**one, "answer": of_answer(one["answer"])} for one in told["parts"]]
    return told


def told(document: dict[str, Any]) -> Any:
    assert "error" not in document, document
    return of_table(document) if "columns" in document else of_answer(document)


def shown(document: dict[str, Any]) -> list[Any]:
    """What a page draws, as a script gets it."""
    assert "error" not in document, document
    return [json.dumps(document[name]) for name in ("figure", "sentences", "columns", "rows")]


async def test_all_ways_tell_the_same_of_all_statements(
    world: WorldClient,
    http: TestClient[Any, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asking = Asking(InProcess(world.session).connect)
    file = tmp_path / "tiles.sql"
    file.write_text(";\n".join(STATEMENTS))
    assert await asyncio.to_thread(ask_file, world, file)
    of_file = [told(json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert len(of_file) == len(STATEMENTS)
    for text, from_file in zip(STATEMENTS, of_file, strict=True):
        table = await asyncio.to_thread(world.sql, text, dataset="flights")
        whole = of_table(json.loads(json.dumps(table.to_document())))
        alone = None if table.answer is None else of_answer(json.loads(table.answer.to_bytes()))
        drawn = whole if alone is None else alone
        assert from_file == drawn, text

        assert await asyncio.to_thread(ask_text, world, text)
        assert told(json.loads(capsys.readouterr().out)) == drawn, text

        page = await asking.reply({"dataset": "flights", "sql": text}, lambda _: None)
        assert shown(page) == shown(table.view.to_document()), text

        reply = await http.post("/api/v1/datasets/flights/tables", json={"sql": text})
        assert of_table(json.loads(await reply.text())) == whole, text


async def test_all_ways_quote_the_same_price_for_all_statements(
    fresh: WorldClient, capsys: pytest.CaptureFixture[str]
) -> None:
    world, asking = fresh, Asking(InProcess(fresh.session).connect)
    for text in STATEMENTS:
        quote = await asyncio.to_thread(world.quote_sql, text, dataset="flights")
        assert (quote is not None) is (text in PRICED), text
        page = await asking.reply(
            {"dataset": "flights", "sql": text, "quote": True}, lambda _: None
        )
        await asyncio.to_thread(ask_text, world, text, quote=True)
        printed = capsys.readouterr().out
        if quote is None:
            assert page == {"said": NOTHING_ASKED, "price": "free"}
            assert "free" in printed
        else:
            assert isinstance(quote, QuotedBundle)
            said = json.loads(quote.to_bytes())
            assert said["together"] == json.loads(printed)["together"], text
            assert page["said"] == quote_in_words(quote), text


async def test_a_series_is_asked_of_every_statement(world: WorldClient) -> None:
    asking = Asking(InProcess(world.session).connect)
    text = "SELECT carrier, COUNT(*) AS n GROUP BY carrier ORDER BY n DESC LIMIT 2"
    document = {"dataset": "flights", "sql": text, "series": "phase"}
    page = await asking.reply(document, lambda _: None)
    assert [head for head, _ in page["columns"]] == ["phase", "carrier", "n", "rank"]
    assert [row["texts"][0] for row in page["rows"]] == ["1", "1"]


async def test_a_fault_is_pointed_at_everywhere(
    fresh: WorldClient, http: TestClient[Any, Any], tmp_path: Path
) -> None:
    text = "SELECT carier, COUNT(*) GROUP BY 1 ORDER BY 1"
    file = tmp_path / "tiles.sql"
    file.write_text(text)
    pointed = r"did you mean carrier\?\n  SELECT carier"
    with pytest.raises(StreamDPError, match=pointed):
        ask_text(fresh, text)
    with pytest.raises(StreamDPError, match=pointed):
        ask_file(fresh, file)
    page = await Asking(InProcess(fresh.session).connect).reply(
        {"dataset": "flights", "sql": text}, lambda _: None
    )
    assert (page["error"]["line"], page["error"]["column"]) == (1, 8)
    reply = await http.post("/api/v1/datasets/flights/tables", json={"sql": text})
    assert (reply.status, (await reply.json())["column"]) == (422, 8)
