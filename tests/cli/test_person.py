"""Persons are erased from the command line, and what is still there of one is looked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.progress import Progress

from stream_dp.cli.operate import stopped_workers
from stream_dp.cli.operate.person_command import _advice, person_keys
from stream_dp.cli.text import progress_bar
from stream_dp.client.kafka import deployment_topics
from stream_dp.client.kafka.deployment_topics import TopicState
from stream_dp.errors import InvalidInput, RequestTimeout
from stream_dp.messages import TOPICS
from tests.cli.conftest import LastingClient, Run, lasting_client, servers_of
from tests.client.test_sent_changes import SHOP, sweep
from tests.client.world_client import SessionClient, WorldSession
from tests.pipeline import commands
from tests.waiting import PATIENCE_S, until

KEY_FILE = bytes(range(64))
DONE = "is erased by 2026-09-22 14:14 UTC at the latest"
NOTE = "note: source topics, backups, exports and published numbers stay as they are"
STATES = {role: TopicState(role, 2, {}) for role in TOPICS}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorldSession]:
    """A session that all commands get, with a data set of which 1,200 persons have rows in a phase."""
    made = WorldSession()
    made.world.key_file = KEY_FILE
    made.world.now_ms = 1_790_000_000_000
    client = lasting_client(made, monkeypatch)
    client.define(SHOP)
    keys = {"customer": [f"C-{n}" for n in range(1200)], "order": [f"o-{n}" for n in range(1200)]}
    client.send("shop", columns={"page": ["home"] * 1200, **keys}, batch_id="first")
    made.sent.clear()
    yield made
    made.end()


@pytest.fixture
def check(run: Run, session: WorldSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``check("C-3")``: looks for this person, with the key file of the worker."""
    file = tmp_path / "key"
    file.write_bytes(KEY_FILE)
    monkeypatch.setenv("STREAM_DP_PERSON_KEY_FILE", str(file))
    monkeypatch.setattr(deployment_topics, "describe_topics", lambda *_: STATES)

    def offline(_: object, step: Any, *, idle: bool) -> Any:
        assert not idle, "workers may run"
        return asyncio.run(step(commands.offline(session.world)))

    monkeypatch.setattr(stopped_workers, "run", offline)

    def check(key: str, name: str = "shop") -> Any:
        servers = ("--bootstrap-servers", "127.0.0.1:1", "--redis-url", "redis://127.0.0.1:1")
        return run("person", "check", name, "--key", key, *servers)

    return check


# ---------------------------------------------------------------- erasing


def test_the_same_is_said_whether_or_not_a_person_is_there(run: Run, session: WorldSession) -> None:
    there, nobody = (run("person", "erase", "shop", "--key", key) for key in ("C-3", "nobody"))
    assert (there.code, there.out) == (0, f"accepted: what there is of this person {DONE}\n")
    assert there.err.startswith(NOTE)
    assert there == nobody
    several = run("person", "erase", "shop", "--key", "C-3", "--key", "C-4")
    assert several.out == f"accepted: what there is of these 2 persons {DONE}\n"
    assert [json.loads(value or b"")["erase"] for _, _, value, _ in session.sent] == [
        ["C-3"],
        ["nobody"],
        ["C-3", "C-4"],
    ]


def test_the_receipt_is_awaited_printed_and_written(
    run: Run, session: WorldSession, tmp_path: Path
) -> None:
    file = tmp_path / "receipt.json"

    def swept(*words: object) -> Any:
        """How a command ends that waits for a sweep."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(sweep_once_awaited)
            ended = run("person", "erase", "shop", *words)
            done.result(PATIENCE_S)
        return ended

    def sweep_once_awaited() -> None:
        until(lambda: session.mailbox._followers)
        sweep(session)

    ended = swept("--key", "C-3", "--receipt", file)
    assert ended.code == 0, ended.err
    receipt = json.loads(file.read_text())
    assert (receipt["event"], receipt["sweep"], receipt["phases"]) == ("swept", 1, [1, 1])
    line = ended.out.splitlines()[1]
    assert line.startswith(
        "receipt: sweep 1 of shop made 1 change in phase 1 and in rows that wait"
    )
    assert line.endswith(f"the signature is that of the data set: {receipt['signature']}")
    ended = swept("--key", "C-3", "--key", "C-5", "--wait", "--json")
    said = json.loads(ended.out)
    assert (said["persons"], said["change_numbers"]) == (2, [2])
    assert said["receipt"]["sweep"] == 2
    assert (said["due"], said["erased_by"]) == (
        "2026-09-22T07:13:20+00:00",
        "2026-09-22 23:14 UTC",
    )


def test_a_sweep_begins_now_if_that_is_asked(run: Run, session: WorldSession) -> None:
    ended = run("person", "erase", "shop", "--key", "C-3", "--now")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[1].startswith("receipt: sweep 1 of shop made 1 change in phase 1")
    assert session.world.now_ms == 1_790_000_000_000, "it was not due"


def test_a_file_of_ten_thousand_keys_is_one_request(
    run: Run, session: WorldSession, tmp_path: Path
) -> None:
    file = tmp_path / "gone.txt"
    file.write_text("".join(f"C-{n}\n" for n in range(10_000)) + "\n")
    ended = run("person", "erase", "shop", "--file", file, "--key", "C-3", "--json")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert (said["persons"], len(said["batches"]), said["change_numbers"]) == (10_001, 2, [1, 2])
    assert "receipt" not in said


def test_keys_are_read_from_the_column_that_says_whose_a_row_is(tmp_path: Path) -> None:
    def read(name: str, content: str, column: str = "customer") -> list[object]:
        (tmp_path / name).write_text(content)
        return person_keys(tmp_path / name, column)

    assert read("gone.txt", "\ufeffC-1\n\n C-2 \r\n") == ["C-1", "C-2"]
    assert read("gone.csv", "id;customer\n1;C-1\n2;\n3; C-2 \n") == ["C-1", "C-2"]
    assert read("gone.csv", "id;customer\n1;C-1\n", "id") == ["1"]
    assert read("gone.ndjson", '{"customer": 17}\n{"id": 1}\n') == [17]
    pq.write_table(pa.table({"customer": [1, None, 3]}), tmp_path / "gone.parquet")
    assert person_keys(tmp_path / "gone.parquet", "customer") == [1, 3]
    with pytest.raises(InvalidInput, match=r"gone.csv has no column customer") as told:
        read("gone.csv", "C-1\nC-2\n")
    assert "C-1" not in str(told.value)
    (tmp_path / "gone.txt").write_bytes(b"\xff\n")
    with pytest.raises(InvalidInput, match="it is not UTF-8"):
        person_keys(tmp_path / "gone.txt", "customer")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shpo", "--key", "x"], "there is no data set 'shpo'; did you mean shop?"),
        (["flights", "--key", "x"], "nobody can be erased from flights"),
        (["shop"], "pass --key, or --file with at least one key"),
        (["shop", "--key", "x", "--column", "id"], "--column goes with --file"),
    ],
)
def test_what_cannot_be_erased_is_refused(
    run: Run, session: WorldSession, words: list[str], said: str
) -> None:
    session.world.define("flights")
    session.run()
    ended = run("person", "erase", *words)
    assert ended.code != 0
    assert said in ended.err
    assert session.sent == []


def test_what_is_kept_for_life_goes_if_it_is_forgotten(
    run: Run, session: WorldSession, check: Run
) -> None:
    unit = {**SHOP["privacy"]["unit"], "lifetime": True}
    client = LastingClient(session)
    client.define({**SHOP, "dataset": "lives", "privacy": {**SHOP["privacy"], "unit": unit}})
    keys = {"customer": [f"C-{n}" for n in range(1200)], "order": [f"o-{n}" for n in range(1200)]}
    client.send("lives", columns={"page": ["home"] * 1200, **keys}, batch_id="first")
    used, stays = "what the person has used for life", "it stays, because the promise is for life"
    for words in ((), ("--now",)):
        if words:
            assert run("person", "erase", "lives", "--key", "C-3", *words).code == 0
        said = check("C-3", "lives").out
        assert used in said
        assert f"{stays}, or: stream-dp person erase lives --forget" in said
    assert run("person", "erase", "lives", "--key", "C-3", "--forget", "--now").code == 0
    assert stays not in check("C-3", "lives").out
    assert used in check("C-4", "lives").out
    refused = run("person", "erase", "shop", "--key", "C-3", "--forget")
    assert refused.code == 1
    assert "the promise of this data set is not for life" in refused.err


def test_a_request_that_was_cut_short_is_made_again(
    run: Run, session: WorldSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise RequestTimeout("no reply")

    monkeypatch.setattr(SessionClient, "erase", cut)
    ended = run("person", "erase", "shop", "--key", "C-3")
    assert (ended.code, ended.out) == (1, "")
    assert "no reply; run the same command again" in ended.err


def test_a_bar_is_drawn_once_the_work_has_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Progress, "start", lambda _: begun.append("begun"))
    with progress_bar.late_bar("Sending", 2) as advance:
        advance(2)
    assert begun == []
    monkeypatch.setattr(progress_bar, "_LATE_S", 0.0)
    with progress_bar.late_bar("Sending", 2):
        pass
    assert begun == ["begun"]


# ---------------------------------------------------------------- looking for what is there


def test_what_is_there_of_a_person_is_a_table_and_nobody_is_none(
    check: Run, run: Run, session: WorldSession
) -> None:
    ended = check("C-3")
    assert ended.code == 1, ended.err
    head, *lines, last = ended.out.splitlines()
    assert head.split() == ["place", "what", "slots", "what", "to", "do"]
    assert [line.partition(":")[0] for line in lines] == ["batches", "blocks"]
    assert "rows of batch first" in lines[0]
    assert "rows of phase 1" in lines[1]
    assert "else: stream-dp person erase shop" in lines[1]
    assert last.startswith("parts read in Redis: ")
    assert "records read on batches: 1" in last
    assert "C-3" not in ended.out
    nobody = check("nobody")
    assert (nobody.code, nobody.err) == (0, "")
    assert nobody.out.startswith("nothing of this person is kept; ")
    run("person", "erase", "shop", "--key", "C-3")
    assert "a request to erase, batch" in check("C-3").out
    sweep(session)
    assert "a value that no commit names" in check("C-3").out
    assert _advice("erased", "shop", STATES) in check("C-3").out


@pytest.mark.parametrize(
    ("key_file", "said"),
    [
        (None, "STREAM_DP_PERSON_KEY_FILE: it is not set"),
        (bytes(64), "STREAM_DP_PERSON_KEY_FILE: shop was defined with another key file"),
        (b"short", "it holds fewer than 32 bytes"),
    ],
)
def test_without_the_key_file_of_the_workers_nobody_is_told_from_others(
    check: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key_file: bytes | None, said: str
) -> None:
    monkeypatch.delenv("STREAM_DP_PERSON_KEY_FILE")
    if key_file is not None:
        (tmp_path / "key").write_bytes(key_file)
        monkeypatch.setenv("STREAM_DP_PERSON_KEY_FILE", str(tmp_path / "key"))
    ended = check("C-3")
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


def test_a_data_set_that_is_none_or_erases_nobody_is_said(
    check: Run, session: WorldSession
) -> None:
    session.world.define("flights")
    session.run()
    assert "there is no data set 'shpo'" in check("C-3", "shpo").err
    assert "flights: its definition has no erasure" in check("C-3", "flights").err
    assert "--key: it is empty" in check(" ").err


def test_what_to_do_says_what_the_topics_of_this_broker_do() -> None:
    states = {
        "blocks": TopicState("blocks", 1, {"max.compaction.lag.ms": ("7200000", "86400000")}),
        "batches": TopicState("batches", 1, {"retention.ms": ("-1", "2592000000")}),
    }
    assert _advice("erased", "shop", states).endswith("it does so within 2 hours")
    assert _advice("batch", "shop", states).endswith("the broker never does")
    assert _advice("batch", "shop", STATES).endswith("the broker does so within 720 hours")


# ---------------------------------------------------------------- real servers


@pytest.mark.kafka
def test_on_real_servers_a_person_is_erased_and_what_the_broker_still_has_is_found(
    run: Run, deployment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY_FILE)
    monkeypatch.setenv("STREAM_DP_PERSON_KEY_FILE", str(file))
    servers = servers_of(deployment)
    deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(SHOP)
        keys = {name: [f"{name[0]}-{n}" for n in range(1200)] for name in ("customer", "order")}
        client.send("shop", columns={"page": ["home"] * 1200, **keys})
        ended = run("person", "check", "shop", "--key", "c-3", *servers)
        assert ended.code == 1, ended.err
        assert "rows of phase 1" in ended.out
        ended = run("person", "erase", "shop", "--key", "c-3", "--json", *servers[:4])
        numbers = json.loads(ended.out)["change_numbers"]
        now = {"version": 1, "dataset": "shop", "clock": True, "sweep": True}
        deployment.produce("batches", now, key="shop")
        receipt = client.receipt("shop", *numbers, timeout_s=PATIENCE_S)
        assert (receipt.sweep, receipt.changes) == (1, 1)
    ended = run("person", "check", "shop", "--key", "c-3", *servers)
    assert "rows of phase 1" not in ended.out
    assert "the broker has not compacted it yet" in ended.out
    ended = run("person", "check", "shop", "--key", "nobody", *servers)
    assert ended.code == 0, ended.out + ended.err
    assert ended.out.startswith("nothing of this person is kept; parts read in Redis: ")
