"""Commands against a worker: each promise once from the command line to the topics and back."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from stream_dp.messages import TOPICS
from tests.cli.conftest import Run, Write, servers_of
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

Define = Callable[..., str]


def counted(served: Run, name: str) -> int:
    """Rows that were taken in, sealed or not."""
    every = map(json.loads, served("status", "--json").out.splitlines())
    (found,) = (each for each in every if each["dataset"] == name)
    return int(found["rows"] + found["waiting"])


def started(*words: object) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "stream_dp", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- asking


@pytest.fixture
def people(served: Run, define: Define, write_people: Write) -> str:
    """A data set with 5,000 people in two phases."""
    name = define()
    ended = served("ingest", write_people(name), "--batch-rows", 2500)
    assert ended.code == 0, ended.err
    return name


def test_an_answer_says_how_sure_it_is_and_what_it_cost(served: Run, people: str) -> None:
    ended = served("ask", people, "city = 'Bonn'")
    assert ended.code == 0
    found = re.match(r"([\d.]+)% ± ([\d.]+)%: [\d,]+ ± [\d,]+ of 5,000 rows\n", ended.out)
    assert found is not None, ended.out
    assert abs(float(found[1]) - 50) < float(found[2]) <= 10
    assert re.search(
        r"(easy|hard), \w+ \(.*\); .*% of the budget left; phases 1 to 2, until [-\d]+ [:\d]+\n",
        ended.out,
    )
    lines = served("ask", people, "--group-by", "city").out.splitlines()
    assert lines[0].split() == ["city", "share", "rows"]
    assert [line.split()[0] for line in lines[1:5]] == ["Bonn", "Graz", "Lyon", "other"]
    quoted = served("ask", people, "smoker", "--quote").out
    assert "would be free" in quoted or "would cost" in quoted
    clamped = served("ask", people, "smoker", "--window", 9).out
    assert "note: the window was clamped to the 2 phases there are" in clamped
    message = ("ask", people, "smoker", "--id", "q1", "--analyst", "ann", "--json")
    first = served(*message).out
    assert served(*message).out == first
    assert {"analyst": "ann", "query_id": "q1", "n": 5000}.items() <= json.loads(first).items()


def test_a_whole_statement_is_a_table_and_names_its_data_set_itself(
    served: Run, people: str
) -> None:
    asked = f'SELECT city, COUNT(*) AS n FROM "{people}" GROUP BY 1 ORDER BY n DESC LIMIT 1'
    ended = served("ask", asked)
    assert ended.code == 0, ended.err
    assert re.search(r"^city +n +rank *$", ended.out, re.MULTILINE)
    assert re.search(r"^\w+ +[\d,]+ ± [\d,]+ +(1|cannot be told apart)", ended.out, re.MULTILINE)
    document = json.loads(served("ask", people, asked, "--json", "--window", 1).out)
    assert [column["name"] for column in document["columns"]] == [
        "city", "n", "n_error_bar", "n_low", "n_high", "rank", "rank_low", "rank_high"
    ]  # fmt: skip
    assert document["phases"] == [2, 2]
    shares = "SELECT COUNT(*) FILTER (WHERE age < 30) AS young, COUNT(*) AS all_of_them"
    assert "2 queries together would" in served("ask", people, shares, "--quote").out
    limited = "FRESH SELECT city, COUNT(*) GROUP BY 1 COSTING AT MOST 0.000001%"
    refused = served("ask", people, limited)
    assert (refused.code, refused.err.startswith("refused: ")) == (1, True)


def test_a_public_table_is_put_listed_shown_joined_and_deleted(
    served: Run, people: str, tmp_path: Path
) -> None:
    file = tmp_path / f"of-{people}.csv"
    file.write_text("town,country,people\nBonn,DE,336465\nGraz,AT,303270\n")
    name = file.stem
    put = served("dimension", "put", file, "--key", "town", "--yes")
    assert put.out.splitlines()[-1] == f"{name}: 2 rows by town; everyone who asks can read it"
    listed = served("dimension", "list").out
    assert re.search(rf"^{name} +town +country, people +2 *$", listed, re.MULTILINE)
    assert "Graz  AT" in served("dimension", "show", name).out
    asked = f'SELECT country, COUNT(*) AS n FROM "{people}" JOIN "{name}" ON city = town GROUP BY country'
    joined = served("ask", asked)
    assert re.search(r"^AT +[\d,]+ ± [\d,]+$", joined.out, re.MULTILINE), joined.err
    assert served("dimension", "delete", name).out == f"{name} is deleted\n"
    assert "is not a public table" in served("ask", asked).err


def test_a_file_of_queries_is_quoted_and_asked(
    served: Run, define: Define, write_people: Write, tmp_path: Path
) -> None:
    name = define(mechanism={"base_share": 0})
    assert served("ingest", write_people("tiles"), "--dataset", name).code == 0
    file = tmp_path / "tiles.sql"
    again = "city = 'Bonn';\n"
    file.write_text(f"-- two tiles\nSELECT city, COUNT(*) GROUP BY city;\n{again}{again}")
    quoted = served("ask", name, "--quote", "--file", file)
    assert quoted.code == 0, quoted.err
    *_, last, total = quoted.out.splitlines()
    assert "free" in last
    price = re.match(r"3 queries together would cost ([\d.]+)%", total)
    assert price is not None
    none = served("ask", name, "--file", file, "--at-most", "0.0000001%")
    assert none.code == 1
    assert none.out.count("refused: with this query the queries of the record would take") == 3
    asked = served("ask", name, "--file", file, "--at-most", f"{2 * float(price[1])}%")
    assert asked.code == 0, asked.out
    assert asked.out.count("2: SELECT city, COUNT(*) GROUP BY city\ncity ") == 1
    assert "3: city = 'Bonn'\n" in asked.out
    lines = served("ask", name, "--file", file, "--json").out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["answered"] * 3
    file.write_text("city = 'Bonn'\nagee >= 30\n")
    wrong = served("ask", name, "--quote", "--file", file)
    assert wrong.code == 1
    assert f"{file}, line 2: " in wrong.err


def test_a_wrong_query_is_answered_with_the_piece_that_is_wrong(served: Run, people: str) -> None:
    for words, said in (
        ((people, "city = 'Bonn' AND age >= 33"), (
         "refused: this cuts the bin 30 to 44 of age; ask >= 30 or >= 45\n"
         "  city = 'Bonn' AND age >= 33\n"
         "                    ^^^^^^^^^\n")),
        ((people, "agee >= 30"), "did you mean age?\n  agee >= 30\n  ^^^^\n"),
        ((people, "smoker", "--group-by", "agee"), "did you mean age?"),
        ((people[:-1], "smoker"), f"did you mean {people}?"),
    ):  # fmt: skip
        ended = served("ask", *words)
        assert (ended.code, ended.out, said in ended.err) == (1, "", True), ended.err


def test_other_kinds_are_asked_in_sql_or_by_their_name(
    served: Run, define: Define, write_people: Write
) -> None:
    kinds = {"threshold": {"share": 0.2}, "prefix_batch": {"share": 0.3}, "mode": {"share": 0.1}}
    name = define(privacy={"epsilon": 10.0, "delta": 1e-6}, kinds=kinds)
    assert served("ingest", write_people(name), "--batch-rows", 5000).code == 0
    assert served("dataset", "show", name).out.count("30.00%") == 1

    said = served("ask", name, "SELECT QUANTILE(age, 0.25) WITHIN 1% OF ROWS").out
    assert said.startswith("the 25% quantile of age lies in 18 to 29 (rank ± ")
    curve = served("ask", name, "--kind", "threshold", "--attribute", "age").out.splitlines()
    assert curve[0].split() == ["age", "share", "rows"]
    assert curve[-1].startswith("hard, measured (the rows were looked at); cost 20.00%")
    assert served("ask", name, "SELECT MODE(city)").out.startswith("the most frequent city is Bonn")
    batch = ["ask", name, "--kind", "prefix_batch", "age < 18", "age < 45"]
    assert served(*batch).out.splitlines()[2].startswith("age < 45")
    assert "30.00%" in served("budget", name).out
    assert json.loads(served("budget", name, "--json").out)["kinds"]["prefix_batch"]["looks"] == 3

    refused = served(*batch, "age < 33")
    assert refused.err.endswith("ask < 30 or < 45\n  age < 33\n  ^^^^^^^^\n")
    off = served("ask", name, "--kind", "median", "--attribute", "age")
    assert 'a definition turns it on by "median" under "kinds"' in off.err


def test_before_a_phase_is_open_the_refusal_counts_what_waits(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    served("ingest", write_people(name, 700))
    ended = served("ask", name, "smoker")
    assert ended.code == 1
    assert ended.err == (
        f"refused: no phase is open yet: 700 rows of {name} wait, and the first phase opens at 2,000; send "
        f"more with: stream-dp ingest FILE --dataset {name}\n"
    )


@pytest.mark.slow
def test_nobody_at_work_is_noticed_soon_and_said(
    deployment: Any, run: Run, definition: dict[str, Any]
) -> None:
    servers, name = servers_of(deployment)[:4], definition["dataset"]
    deployment.produce("catalog", {"version": 1, **definition}, key=name)
    ended = run("ask", name, "smoker", *servers, "--timeout", 10)
    hint = f"no worker runs (nobody has joined the group {deployment.prefix[:-1]}-worker)"
    assert ended.code == 1
    assert ended.err.startswith(f"still waiting: {hint}; start one with `stream-dp up`")
    assert f"within 10 s: {hint}" in ended.err
    assert hint in run("status", *servers).err


# ---------------------------------------------------------------- sending


def test_rows_of_a_file_count_once_however_often_it_is_sent_and_wherever_it_lies(
    served: Run, served_deployment: Any, define: Define, write_people: Write, tmp_path: Path
) -> None:
    name = define()
    file = write_people(name)
    ended = served("ingest", file, "--batch-rows", 900)
    assert ended.out == (
        f"5,000 rows of {file.name} are counted\n"
        "2 phases are open; 0 rows wait for the next phase, which opens at 2,000\n"
        f"ask with: stream-dp ask {name} --group-by city\n"
    )
    os.utime(file, (10**9, 10**9))
    for batch_rows in (777, 5000):
        ended = served("ingest", file, "--batch-rows", batch_rows)
        assert ended.out == f"all 5,000 rows of {file.name} were counted before; nothing was sent\n"
    moved = file.rename(tmp_path / "elsewhere.csv")
    here = ("ingest", moved, "--dataset", name)
    assert "all 5,000 rows of" in served(*here).out
    assert counted(served, name) == 5000
    with moved.open("a") as text:
        text.write("5000,Bonn,44,true\n")
    # Another row, an id of one's own, and the key of another machine: each makes other batches.
    for more in ((), ("--batch-id", "again"), ("--state-dir", tmp_path / "other")):
        assert "5,001 rows of" in served(*here, *more).out
    assert counted(served, name) == 5000 + 3 * 5001
    with served_deployment.client() as client:
        ids = {str(event.batch_id).rsplit("-", 2)[0] for event in client.batch_events(name)}
    assert sorted(len(each) for each in ids) == [5, 32, 32, 32]


@pytest.mark.slow
def test_a_break_in_the_middle_loses_and_doubles_nothing(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define(phase={"min_rows": 10**6})
    file = write_people(name, 60_000)
    sending = started("ingest", file, "--batch-rows", 100)
    while counted(served, name) < 1000:
        assert sending.poll() is None
    sending.send_signal(signal.SIGINT)
    _, said = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 1
    assert "stopped; run the same command again to send the rest: each row counts once" in said
    assert 1000 <= counted(served, name) < 60_000
    ended = served("ingest", file, "--batch-rows", 7000)
    assert re.search(r"rows of .* are counted \([\d,]+ were counted before\)", ended.out), ended.out
    assert counted(served, name) == 60_000


def test_columns_that_are_read_wrongly_are_not_sent_unasked(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define(
        attributes=[
            {"name": "amount", "type": "number", "edges": [20, 50, 100]},
            {"name": "paid", "type": "boolean"},
            {"name": "day", "type": "category", "values": ["2026-11-01"]},
        ]
    )
    file = tmp_path / f"{name}.csv"
    rows = [f"{n % 90},5;{('yes', 'no')[n % 2]};2026-11-01T10:{n:02}:00Z" for n in range(60)]
    file.write_text("\n".join(["amount;paid;day", *rows]))
    ended = served("ingest", file)
    assert ended.code == 1
    amounts, days, amount, day, refusal = ended.err.splitlines()
    assert amounts == "60 of 60 values of amount are not numbers and count as < 20"
    assert days == "60 of 60 values of day are not listed and count as other"
    assert (amount[:16], day[:13]) == ("warning: amount:", "warning: day:")
    assert "T10" not in day  # this is not a terminal, and may be a log
    assert "nothing was sent: columns seem to be misread" in refusal
    with file.open("a") as text:
        text.write("\n7;yes\n")
    accept = ("--decimal", ",", "--accept", "day")
    assert "line 62: the row that begins there has 2 fields" in served("ingest", file, *accept).err
    assert counted(served, name) == 0

    again = served("ingest", file, *accept, "--skip-bad-rows", "--json")
    assert (again.code, "amount" in again.err, "warning: day: " in again.err) == (0, False, True)
    facts = json.loads(again.out)
    assert (facts["rows"], facts["left_out"], facts["unread"]) == (60, 1, {"day": 60})
    assert counted(served, name) == 60


def test_data_sets_about_the_same_persons_are_told_of_each_other(
    served: Run, define: Define, write: Write
) -> None:
    """Their epsilons add up, and no ledger says so."""
    key = f"user_{secrets.token_hex(4)}"
    unit = {"key": key, "rows_per_phase": 1, "phases": 12}
    first = define(privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit})
    for other, warns in ((key, True), ("somebody", False)):
        privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": {**unit, "key": other}}
        file = write(dataset=f"second-{secrets.token_hex(4)}", privacy=privacy)
        ended = served("dataset", "create", file)
        assert ended.code == 0, ended.err
        said = f"warning: data sets {first} protect persons by the column '{key}' too"
        assert (said in ended.err, "epsilons add up" in ended.err) == (warns, warns)


# ---------------------------------------------------------------- a source before it is read


def test_a_source_is_tried_before_it_is_read(
    served: Run,
    served_deployment: Any,
    define: Define,
    write: Write,
    write_people: Write,
    tmp_path: Path,
) -> None:
    """Nothing is sent, no consumer group is made, and only the newest records are read."""
    topic, servers = f"shop-{secrets.token_hex(4)}", served_deployment.bootstrap_servers
    source = tmp_path / "source.json"
    check = ("dataset", "check", "--source", source)

    def describe(**more: str) -> None:
        fields = {"city": "at", "age": "customer.age"}
        document = {"version": 1, "topic": topic, "fields": fields, "constants": {"smoker": True}}
        source.write_text(json.dumps({**document, **more}))

    describe(dataset="nobody")
    assert "there is no data set 'nobody'" in served(*check).err
    name = define()
    describe(dataset=name)
    assert f"there is no topic {topic}" in served(*check).err
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    until(lambda: "holds no records" in served(*check).err)
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"\0\0\0\0\7{}")
    for n in range(90):
        place = "Bonn" if n < 30 else f"2026-11-01T10:{n:02}:00Z"
        record = {"at": place, "customer": {"age": n}}
        producer.send(topic, json.dumps(record).encode(), key=b"\xff")
    producer.close()
    ended = served(*check, "--records", 50)
    assert ended.code == 0
    assert ended.out.startswith(f"read the newest 50 records of {topic}; nothing was sent\n")
    assert re.search(r"smoker +true or false +50 +itself", ended.out)
    assert re.search(r"the id of the topic is \S+, which", ended.out)
    assert "warning: city: of 50 rows 100.0% are not listed and count as other" in ended.err
    for words in ("age:", "framed", "message.timestamp.type", "epsilons add up"):
        assert words not in ended.err
    # Times matter by the calendar alone, and not where the broker sets them.
    said = f"warning: {topic} has message.timestamp.type CreateTime: its producers choose the times"
    by_day = ("dataset", "check", write(phase={"min_rows": 2000, "every": "1 day"}))
    ended = served(*by_day, "--source", source)
    assert f"read the newest 91 records of {topic}" in ended.out
    assert "warning: 1 of 91 messages are framed by a schema registry" in ended.err
    assert said in ended.err
    dated = {"message.timestamp.type": "LogAppendTime"}
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dated)])
    assert "message.timestamp.type" not in served(*by_day, "--source", source).err
    assert counted(served, name) == 0

    some = write_people(name, 10)
    assert served("ingest", some, "--batch-id", f"{topic}@AbCdEfGh:0:0-9").code == 0
    second = f"second-{secrets.token_hex(4)}"
    describe(dataset=second)
    ended = served("dataset", "check", write(dataset=second), "--source", source)
    assert f"warning: data sets {name} read the topic {topic} too" in ended.err


# ---------------------------------------------------------------- files with a fault


def test_nothing_is_sent_of_a_file_that_breaks_off_or_has_no_rows(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / f"{name}.ndjson"
    good = json.dumps({"city": "Bonn", "age": 20, "smoker": True})
    file.write_text(f"{good}\n" * 50 + "{\n" + f"{good}\n" * 50)
    ended = served("ingest", file, "--batch-rows", 10)
    assert f"{file.name} line 51: it is not a JSON object" in ended.err
    assert counted(served, name) == 0
    other = tmp_path / "nobody.csv"
    other.write_text("city,age,smoker\n")
    assert served("ingest", other, "--dataset", name).out == "nobody.csv holds no rows\n"
    ended = served("ingest", other)
    assert "there is no data set 'nobody'" in ended.err
    assert "pass --dataset" in ended.err


# ---------------------------------------------------------------- looking


def test_a_data_set_is_shown_for_people_and_for_scripts_until_it_is_retired(
    served: Run, people: str, tmp_path: Path
) -> None:
    shown = served("dataset", "show", people).out
    assert "promised to every row, for ever: epsilon 1, delta 1e-09" in shown
    assert "rows are kept until the data set is retired" in shown
    assert re.search(r"age +whole number +< 18, 18 to 29, 30 to 44, >= 45, missing", shown)
    assert json.loads(served("dataset", "show", people, "--json").out)["dataset"] == people
    assert people in served("dataset", "list").out
    assert people in served("dataset", "list", "--json").out
    facts = json.loads(served("budget", people, "--json").out)
    assert [phase["rows"] for phase in facts["phases"]] == [2500, 2500]
    assert all(0 < phase["epsilon"] <= 1 for phase in facts["phases"])
    status = served("status").out
    assert re.search(rf"{people} +2 +5,000 +0 +1 ", status), status
    assert served("dataset", "unlock", people).out == f"{people} is not in quarantine\n"
    ended = served("dataset", "retire", people, "--yes")
    assert ended.code == 0
    assert "in the topics of batches and of blocks until" in ended.out
    assert f"there is no data set {people!r}" in served("ask", people, "smoker").err
    ended = served("dataset", "create", tmp_path / "definition.json")
    assert "this name was retired for ever; choose another name" in ended.err
    assert "there is no data set 'zzz'; choose one of: " in served("budget", "zzz").err


def test_watching_shows_what_happens_until_it_is_stopped(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    watching = started("watch", name)
    assert watching.stderr is not None
    assert watching.stdout is not None
    assert watching.stderr.readline() == "watching; press Ctrl-C to end\n"
    served("ingest", write_people(name, 2000))
    served("ask", name, "smoker", "--id", "seen", "--analyst", "ann")
    said = "".join(watching.stdout.readline() for _ in range(3))
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 0
    for words in ("phase 1 opened with 2,000 rows", "2,000 rows taken in (batch", "ann/seen"):
        assert words in said


def test_topics_are_made_once_and_inputs_stay_alike(
    run: Run, kafka_server: str, topic_prefix: str
) -> None:
    create = ("topics", "create", "--bootstrap-servers", kafka_server)
    ours = (*create, "--topic-prefix", topic_prefix)
    assert run(*ours, "--partitions", 2).out.count("created ") == len(TOPICS)
    assert run(*ours).out == "all topics exist already\n"
    ended = run(*create, "--replication", 3, "--topic-prefix", f"x{topic_prefix}")
    assert (ended.code, "pass a smaller one" in ended.err) == (1, True)


# ---------------------------------------------------------------- time


def test_a_file_is_a_day_which_is_closed_on_request(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define(phase={"min_rows": 2000, "every": "1 day"})
    file = write_people(name, 2500)
    ended = served("ingest", file, "--time", "2026-11-01")
    assert ended.code == 0, ended.err
    assert f"to end it now: stream-dp phase close {name}" in ended.out
    ended = served("phase", "close", name)
    assert ended.out == "phase 1 is open; it covers from 2026-11-01 until 2026-11-02\n"
    second = ("ingest", file, "--batch-id", "second", "--time", "2026-11-02", "--close")
    ended = served(*second, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["phase"], found["waiting"], found["since"]) == (2, 0, "2026-11-02")
    ask = ("ask", name, "city = 'Bonn'")
    ended = served(*ask, "--series", "day")
    assert ended.code == 0, ended.err
    assert "2026-11-01 until 2026-11-02" in ended.out
    assert "phases 1 to 2, from 2026-11-01 until 2026-11-03" in ended.out
    assert "phase 2, from 2026-11-02 until 2026-11-03" in served(*ask, "--window", "1 day").out
    ended = served(*ask, "--since", "2026-11-02", "--until", "2026-11-04")
    assert ended.code == 1
    assert "it is not complete yet: phases are open until 2026-11-03" in ended.err
    assert "from 2026-11-01 until 2026-11-03  1 to 2" in served("budget", name).out
    status = [line for line in served("status").out.splitlines() if name in line]
    assert status[0].rstrip().endswith("2026-11-03")
    assert served("phase", "close", name).code == 1


def test_a_file_of_several_days_is_sent_day_by_day_and_late_rows_are_asked_about(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define(phase={"min_rows": 40, "every": "1 day"})
    file = tmp_path / "days.csv"
    lines = [f"Bonn,40,true,2026-11-0{1 + n % 3}T0{n % 9}:30" for n in range(150)]
    file.write_text("\n".join(["city,age,smoker,seen", *lines]))
    ingest = ("ingest", file, "--dataset", name)
    undated = served(*ingest)
    assert undated.code == 1
    assert "nothing says when these rows were; pass --time" in undated.err
    by_day = (*ingest, "--time-column", "seen")
    ended = served(*by_day, "--close")
    assert ended.code == 0, ended.err
    assert "150 rows of days.csv are counted" in ended.out
    assert "they are about 3 periods" in ended.out
    assert "phase 3 is open; it covers from 2026-11-03 until 2026-11-04" in ended.out
    assert "wait" not in ended.out, "the rows that waited are in phase 3"
    assert "all 150 rows of days.csv were counted before" in served(*by_day, "--late").out
    late = (*by_day, "--batch-id", "again")
    ended = served(*late)
    assert ended.code == 1
    assert "150 rows are about periods before 2026-11-04, which have ended" in ended.err
    assert counted(served, name) == 150
    assert served(*late, "--late").code == 0
    assert counted(served, name) == 300


def test_late_rows_of_a_file_are_sent_to_their_own_days(
    served: Run, define: Define, tmp_path: Path
) -> None:
    close = {"close": {"after": "1 hour"}, "late": {"within": "9 days"}}
    name = define(phase={"min_rows": 40, "every": "1 day", **close})
    days = [datetime.now(UTC) - timedelta(days=back) for back in (4, 3, 2, 30)]

    def sent(file: str, *of: datetime) -> list[str]:
        path = tmp_path / file
        lines = [f"Bonn,40,true,{day:%Y-%m-%d}T09:30" for day in of for _ in range(50)]
        path.write_text("\n".join(["city,age,smoker,seen", *lines]))
        ran = served("ingest", path, "--dataset", name, "--time-column", "seen", "--accept", "age")
        assert ran.code == 0, ran.err
        return ran.out.splitlines()

    assert not any("late" in line for line in sent("days.csv", *days[:3]))
    (late,) = (line for line in sent("more.csv", days[0], days[1]) if "late" in line)
    assert late == "100 late rows will count in phases 1 to 2, each when it is complete"
    path = tmp_path / "old.csv"
    path.write_text(f"city,age,smoker,seen\nBonn,40,true,{days[3]:%Y-%m-%d}T09:30\n")
    asked = served("ingest", path, "--dataset", name, "--time-column", "seen")
    assert "1 rows are about periods before" in asked.err
    (told,) = (
        line
        for line in served(
            "ingest", path, "--dataset", name, "--time-column", "seen", "--late"
        ).out.splitlines()
        if "late" in line
    )
    assert told == "1 late row will count in the phase that opens next"


def test_a_phase_of_few_rows_is_opened_after_a_word_about_its_price(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    file = write_people(name, 700)
    for words, fault in (
        (("--time", "Sunday"), "--time: it is neither a date"),
        (("--accept", "town"), "--accept: "),
    ):
        ended = served("ingest", file, *words)
        assert (ended.code, fault in ended.err) == (1, True), ended.err
    ended = served("ingest", file)
    assert f"to open a phase of these now: stream-dp phase close {name}" in ended.out
    ended = served("phase", "close", name)
    assert ended.code == 1
    few = "700 rows wait, fewer than the 2,000 of phase.min_rows: a phase of them takes "
    assert few in ended.err
    assert served("phase", "close", name, "--yes").out.startswith("phase 1 is open")
    ended = served("ingest", write_people(name, 400), "--batch-id", "few", "--close")
    assert (ended.code, "phase.min_rows" in ended.err) == (1, True)
