from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import pty
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from stream_dp.messages import TOPICS
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

Run = Callable[..., Any]
Define = Callable[..., str]
Write = Callable[..., Path]


def counted(served: Run, name: str) -> int:
    """Rows that were taken in, sealed or not."""
    (line,) = [
        json.loads(line)
        for line in served("status", "--json").out.splitlines()
        if json.loads(line)["dataset"] == name
    ]
    return int(line["rows"] + line["waiting"])


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


def test_an_answer_is_a_message_for_scripts(served: Run, people: str) -> None:
    first = served("ask", people, "smoker", "--id", "q1", "--analyst", "ann", "--json").out
    again = served("ask", people, "smoker", "--id", "q1", "--analyst", "ann", "--json").out
    assert first == again
    message = json.loads(first)
    assert (message["analyst"], message["query_id"], message["n"]) == ("ann", "q1", 5000)


def test_a_group_by_is_a_table_with_a_line_a_cell(served: Run, people: str) -> None:
    ended = served("ask", people, "--group-by", "city")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["city", "share", "rows"]
    assert [line.split()[0] for line in lines[1:5]] == ["Bonn", "Graz", "Lyon", "other"]
    sql = f'SELECT smoker, COUNT(*) FROM "{people}" WHERE age >= 30 GROUP BY smoker'
    assert served("ask", people, sql).out.splitlines()[1].startswith("false")


def test_a_whole_statement_is_a_table_and_names_its_data_set_itself(
    served: Run, people: str
) -> None:
    asked = f'SELECT city, COUNT(*) AS n FROM "{people}" GROUP BY 1 ORDER BY n DESC LIMIT 1'
    ended = served("ask", asked)
    assert ended.code == 0, ended.err
    assert re.search(r"^city +n +rank *$", ended.out, re.MULTILINE)
    assert re.search(r"^\w+ +[\d,]+ ± [\d,]+ +(1|cannot be told apart)", ended.out, re.MULTILINE)
    assert re.search(r"1 query; .*% of the budget left; phases 1 to 2", ended.out)
    assert "note: published values chose these rows" in ended.out
    document = json.loads(served("ask", people, asked, "--json", "--window", 1).out)
    assert [column["name"] for column in document["columns"]] == [
        *("city", "n", "n_error_bar", "n_low", "n_high"),
        *("rank", "rank_low", "rank_high"),
    ]
    assert document["phases"] == [2, 2]
    shares = "SELECT COUNT(*) FILTER (WHERE age < 30) AS young, COUNT(*) AS all_of_them"
    priced = served("ask", people, shares, "--quote")
    assert "2 queries together would" in priced.out
    free = served("ask", f'SELECT DISTINCT city FROM "{people}"', "--quote")
    assert "would be free" in free.out
    wrong = served("ask", people, "SELECT COUNT(DISTINCT city), COUNT(*)")
    assert wrong.code == 1
    assert "distinct values are not counted" in wrong.err
    assert "^^^" in wrong.err
    assert 'in double quotes: "a-b"' in served("ask", "SELECT COUNT(*) FROM a-b").err
    assert "name the data set" in served("ask", "SELECT COUNT(*) WHERE age < 30").err
    fresh = "FRESH SELECT city, COUNT(*) GROUP BY 1 COSTING AT MOST 0.000001%"
    refused = served("ask", people, fresh)
    assert refused.code == 1
    assert refused.err.startswith("refused: ")


def test_a_public_table_is_put_listed_shown_joined_and_deleted(
    served: Run, people: str, tmp_path: Path
) -> None:
    file = tmp_path / f"of-{people}.csv"
    file.write_text("town,country,people\nBonn,DE,336465\nGraz,AT,303270\n")
    name = file.stem
    put = served("dimension", "put", file, "--key", "town", "--yes")
    assert put.out.splitlines()[-1] == f"{name}: 2 rows by town; everyone who asks can read it"
    assert re.search(
        rf"^{name} +town +country, people +2 *$", served("dimension", "list").out, re.MULTILINE
    )
    assert "Graz  AT" in served("dimension", "show", name).out
    asked = f'SELECT country, COUNT(*) AS n FROM "{people}" JOIN "{name}" ON city = town GROUP BY country'
    joined = served("ask", asked)
    assert re.search(r"^AT +[\d,]+ ± [\d,]+$", joined.out, re.MULTILINE), joined.err
    assert served("dimension", "delete", name).out == f"{name} is deleted\n"
    assert "is not a public table" in served("ask", asked).err


def test_a_quote_and_a_window_longer_than_history_say_what_they_are(
    served: Run, people: str
) -> None:
    ended = served("ask", people, "smoker", "--quote")
    assert "would be free" in ended.out or "would cost" in ended.out
    ended = served("ask", people, "smoker", "--window", 9)
    assert "note: the window was clamped to the 2 phases there are" in ended.out


def test_a_file_of_queries_is_quoted_and_asked(
    served: Run, define: Define, write_people: Write, tmp_path: Path
) -> None:
    name = define(mechanism={"base_share": 0})
    assert served("ingest", write_people("tiles"), "--dataset", name).code == 0
    file = tmp_path / "tiles.sql"
    file.write_text(
        "-- two tiles\nSELECT city, COUNT(*) GROUP BY city;\ncity = 'Bonn';\ncity = 'Bonn';\n"
    )
    quoted = served("ask", name, "--quote", "--file", file)
    assert quoted.code == 0, quoted.err
    head, first, _, last, total = quoted.out.splitlines()
    assert head.split() == ["line", "query", "cost"]
    assert first.startswith("2     SELECT city, COUNT(*) GROUP BY city")
    assert "free" in last
    assert total.startswith("3 queries together would cost ")
    (price,) = re.findall(r"would cost ([\d.]+)%", total)
    none = served("ask", name, "--file", file, "--at-most", "0.0000001%")
    assert none.code == 1
    assert none.out.count("refused: with this query the queries of the record would take") == 3
    asked = served("ask", name, "--file", file, "--at-most", f"{2 * float(price)}%")
    assert asked.code == 0, asked.out
    assert asked.out.count("2: SELECT city, COUNT(*) GROUP BY city\ncity ") == 1
    assert "3: city = 'Bonn'\n" in asked.out
    lines = served("ask", name, "--file", file, "--json").out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["answered"] * 3
    file.write_text("city = 'Bonn'\nagee >= 30\n")
    wrong = served("ask", name, "--quote", "--file", file)
    assert wrong.code == 1
    assert f"{file}, line 2: " in wrong.err
    assert "did you mean age?" in wrong.err


def test_a_wrong_query_is_answered_with_the_piece_that_is_wrong(served: Run, people: str) -> None:
    def complaint(query: str, *more: str) -> str:
        ended = served("ask", people, query, *more)
        assert (ended.code, ended.out) == (1, "")
        return str(ended.err)

    assert complaint("city = 'Bonn' AND age >= 33") == (
        "refused: this cuts the bin 30 to 44 of age; ask >= 30 or >= 45\n"
        "  city = 'Bonn' AND age >= 33\n"
        "                    ^^^^^^^^^\n"
    )
    assert complaint("city = 'Oslo'") == (
        "error: 'Oslo' is not a listed value of city (Bonn, Graz, Lyon); city = 'other' asks for all "
        "unlisted values together\n"
        "  city = 'Oslo'\n"
        "         ^^^^^^\n"
    )
    assert "write a string in single quotes: 'Lyon'" in complaint('city = "Lyon"')
    assert "did you mean age?" in complaint("agee >= 30")
    assert "did you mean age?" in complaint("smoker", "--group-by", "agee")


def test_other_kinds_are_asked_in_sql_or_by_their_name(
    served: Run, define: Define, write_people: Write
) -> None:
    kinds = {"threshold": {"share": 0.2}, "prefix_batch": {"share": 0.3}, "mode": {"share": 0.1}}
    name = define(privacy={"epsilon": 10.0, "delta": 1e-6}, kinds=kinds)
    assert served("ingest", write_people(name), "--batch-rows", 5000).code == 0
    shown = served("dataset", "show", name).out
    assert shown.count("30.00%") == 1

    said = served("ask", name, "SELECT QUANTILE(age, 0.25) WITHIN 1% OF ROWS").out
    assert said.startswith("the 25% quantile of age lies in 18 to 29 (rank ± ")
    grouped = served("ask", name, "SELECT city, MEDIAN(age) WHERE age >= 18 GROUP BY city").out
    assert "the bins are those of the median of age" in grouped
    assert "(rank ± " in grouped
    curve = served("ask", name, "--kind", "threshold", "--attribute", "age").out.splitlines()
    assert curve[0].split() == ["age", "share", "rows"]
    assert curve[5].count("█") == 20
    assert curve[-1].startswith("hard, measured (the rows were looked at); cost 20.00%")
    assert "of 5,000 rows" in served("ask", name, "--kind", "threshold", "age < 30").out
    assert served("ask", name, "SELECT MODE(city)").out.startswith("the most frequent city is Bonn")
    batch = ["ask", name, "--kind", "prefix_batch", "age < 18", "age < 45"]
    assert served(*batch).out.splitlines()[2].startswith("age < 45")
    assert "30.00%" in served("budget", name).out
    assert json.loads(served("budget", name, "--json").out)["kinds"]["prefix_batch"]["looks"] == 3

    refused = served(*batch, "age < 33")
    assert refused.err.endswith("ask < 30 or < 45\n  age < 33\n  ^^^^^^^^\n")
    unknown = served(*batch, "agee < 18")
    assert unknown.err.endswith("did you mean age?\n  agee < 18\n  ^^^^\n")
    off = served("ask", name, "--kind", "median", "--attribute", "age")
    assert off.code == 1
    assert 'a definition turns it on by "median" under "kinds"' in off.err
    lacks = served("ask", name, "--kind", "quantile", "--attribute", "age", "age < 18")
    assert "--kind quantile needs --rank" in lacks.err
    twice = served("ask", name, "--kind", "mode", "SELECT QUANTILE(age, 0.5)")
    assert "the SQL already asks for quantile" in twice.err


def test_an_unknown_data_set_is_met_with_those_there_are(served: Run, people: str) -> None:
    assert f"did you mean {people}?" in served("ask", people[:-1], "smoker").err
    assert "there is no data set 'zzz'; choose one of: " in served("budget", "zzz").err


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


def test_with_no_budget_left_a_refusal_says_so(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define(
        privacy={"epsilon": 0.05, "delta": 1e-9},
        accuracy={"error": 0.01, "failure_probability": 0.01},
        phase={"min_rows": 1000},
        on_exhausted="refuse",
    )
    served("ingest", write_people(name, 1000))
    ended = served("ask", name, "age >= 30 AND city = 'Bonn'")
    assert ended.code == 1
    assert ended.err.startswith("refused: ")
    assert re.search("too few rows for the promised accuracy|no budget left", ended.err), ended.err


@pytest.mark.slow
def test_nobody_at_work_is_noticed_soon_and_said(
    deployment: Any, run: Run, definition: dict[str, Any]
) -> None:
    servers = ["--bootstrap-servers", deployment.bootstrap_servers]
    servers += ["--topic-prefix", deployment.prefix]
    name = definition["dataset"]
    deployment.produce("catalog", {"version": 1, **definition}, key=name)
    ended = run("ask", name, "smoker", *servers, "--timeout", 10)
    hint = f"no worker runs (nobody has joined the group {deployment.prefix[:-1]}-worker)"
    assert ended.code == 1
    assert ended.err.startswith(f"still waiting: {hint}; start one with `stream-dp up`")
    assert f"within 10 s: {hint}" in ended.err
    assert hint in run("status", *servers).err


# ---------------------------------------------------------------- sending


def test_a_large_delta_is_warned_of_once_when_a_data_set_is_created(
    served: Run, definition: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "definition.json"
    definition["privacy"] = {"epsilon": 1.0, "delta": 1e-4}
    file.write_text(json.dumps(definition))
    ended = served("dataset", "create", file)
    assert ended.code == 0
    assert ended.err.count("privacy.delta 0.0001 is large for phases of 2,000 rows") == 1


def test_rows_of_a_file_count_once_however_often_it_is_sent(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    file = write_people(name)
    ended = served("ingest", file, "--batch-rows", 900)
    assert ended.out == (
        f"5,000 rows of {file.name} are counted\n"
        "2 phases are open; 0 rows wait for the next phase, which opens at 2,000\n"
        f"ask with: stream-dp ask {name} --group-by city\n"
    )
    for batch_rows in (900, 777, 5000):
        ended = served("ingest", file, "--batch-rows", batch_rows)
        assert ended.out == f"all 5,000 rows of {file.name} were counted before; nothing was sent\n"
    assert counted(served, name) == 5000


@pytest.mark.slow
def test_a_break_in_the_middle_loses_and_doubles_nothing(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define(phase={"min_rows": 10**6})
    file = write_people(name, 60_000)
    words = [sys.executable, "-m", "stream_dp", "ingest", str(file), "--batch-rows", "100"]
    sending = subprocess.Popen(words, stderr=subprocess.PIPE, env=dict(os.environ), text=True)
    while counted(served, name) < 1000:
        assert sending.poll() is None
    sending.send_signal(signal.SIGINT)
    _, said = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 1
    assert "stopped; run the same command again to send the rest: each row counts once" in said
    before = counted(served, name)
    assert 1000 <= before < 60_000
    ended = served("ingest", file, "--batch-rows", 7000)
    assert re.search(r"rows of .* are counted \([\d,]+ were counted before\)", ended.out), ended.out
    assert counted(served, name) == 60_000


def test_a_file_that_was_touched_or_moved_is_the_same_file(
    served: Run, define: Define, write_people: Write, tmp_path: Path
) -> None:
    name = define()
    file = write_people(name, 700)
    assert served("ingest", file, "--batch-rows", 300).code == 0
    os.utime(file, (10**9, 10**9))
    assert "all 700 rows of" in served("ingest", file, "--batch-rows", 200).out
    moved = file.rename(tmp_path / "elsewhere.csv")
    assert "all 700 rows of" in served("ingest", moved, "--dataset", name).out
    assert counted(served, name) == 700
    with moved.open("a") as text:
        text.write("700,Bonn,44,true\n")
    assert "701 rows of" in served("ingest", moved, "--dataset", name).out
    assert "701 rows of" in served("ingest", moved, "--dataset", name, "--batch-id", "again").out
    assert counted(served, name) == 700 + 701 + 701


def test_batch_ids_follow_from_the_rows_and_from_a_key_that_stays_here(
    served: Run, served_deployment: Any, define: Define, write_people: Write, tmp_path: Path
) -> None:
    name = define(phase={"min_rows": 10**6})
    file = write_people(name, 500)
    for place in ("state", "other"):
        assert "500 rows of" in served("ingest", file, "--state-dir", tmp_path / place).out
    with served_deployment.client() as client:
        ids = [event.batch_id for event in client.batch_events(name)]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}-0-500", each) for each in ids)


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
    ended = served("ingest", file, "--delimiter", ";")
    assert ended.code == 1
    amounts, days, amount, day, refusal = ended.err.splitlines()
    assert amounts == "60 of 60 values of amount are not numbers and count as < 20"
    assert days == "60 of 60 values of day are not listed and count as other"
    assert amount == (
        "warning: amount: of 60 rows 100.0% have a number in another notation and count as < 20; pass "
        "--decimal ,"
    )
    assert day.startswith("warning: day: of 60 rows 100.0% are not listed and count as other; ")
    assert "T10" not in day  # this is not a terminal, and may be a log
    assert "nothing was sent: columns seem to be misread" in refusal
    assert counted(served, name) == 0

    again = served("ingest", file, "--delimiter", ";", "--decimal", ",", "--accept", "day")
    assert again.code == 0
    assert "amount" not in again.err
    assert "warning: day: " in again.err
    assert "all 60 rows" in served("ingest", file, "--delimiter", ";", "--decimal", ",").out
    assert counted(served, name) == 60


def test_at_a_terminal_the_warning_has_examples_and_a_query(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define(attributes=[{"name": "amount", "type": "number", "edges": [20, 50, 100]}])
    file = tmp_path / f"{name}.csv"
    file.write_text("\n".join(["amount", *('"40,5"', '"7,25"', '"99,9"') * 20]))
    for reply, rows in ((b"n\n", 0), (b"y\n", 60)):
        ours, theirs = pty.openpty()
        try:
            with subprocess.Popen(
                [sys.executable, "-m", "stream_dp", "ingest", str(file)],
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=theirs,
                env={**os.environ, "TERM": "dumb"},
            ) as asking:
                os.close(theirs)
                said = b""
                while b"[y/N]" not in said:
                    said += os.read(ours, 4096)
                os.write(ours, reply)
                with contextlib.suppress(OSError):  # the other end is closed
                    while os.read(ours, 4096):
                        pass
                out, _ = asking.communicate(timeout=PATIENCE_S)
        finally:
            os.close(ours)
        words = said.decode().replace("\r", "").replace("\n", " ")
        assert "such as '40,5', '7,25', '99,9'; pass --decimal ," in words
        assert b"40,5" not in out
        assert counted(served, name) == rows


def test_data_sets_about_the_same_persons_are_told_of_each_other(
    served: Run, define: Define, definition: dict[str, Any], tmp_path: Path
) -> None:
    """Their epsilons add up, and no ledger says so."""
    key = f"user_{secrets.token_hex(4)}"
    unit = {"key": key, "rows_per_phase": 1, "phases": 12}
    first = define(privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit})
    file = tmp_path / "second.json"
    for other, warns in ((key, True), ("somebody", False)):
        name = f"second-{secrets.token_hex(4)}"
        privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": {**unit, "key": other}}
        file.write_text(json.dumps({**definition, "dataset": name, "privacy": privacy}))
        ended = served("dataset", "create", file)
        assert ended.code == 0, ended.err
        said = f"warning: data sets {first} protect persons by the column '{key}' too"
        assert (said in ended.err) is warns
        assert ("epsilons add up" in ended.err) is warns


def test_a_source_is_tried_before_it_is_read(
    served: Run,
    served_deployment: Any,
    define: Define,
    definition: dict[str, Any],
    write_people: Write,
    tmp_path: Path,
) -> None:
    """Nothing is sent, no consumer group is made, and only the newest records are read."""
    topic = f"shop-{secrets.token_hex(4)}"
    source = tmp_path / "source.json"
    source.write_text(
        json.dumps(
            {
                "version": 1,
                "dataset": definition["dataset"],
                "topic": topic,
                "fields": {"city": "at", "age": "customer.age"},
                "constants": {"smoker": True},
            }
        )
    )
    ended = served("dataset", "check", "--source", source)
    assert f"there is no data set {definition['dataset']!r}" in ended.err
    name = define()
    ended = served("dataset", "check", "--source", source)
    assert f"there is no topic {topic}" in ended.err

    admin = KafkaAdminClient(bootstrap_servers=served_deployment.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.close()
    assert "holds no records" in served("dataset", "check", "--source", source).err
    producer = KafkaProducer(bootstrap_servers=served_deployment.bootstrap_servers)
    for n in range(90):
        place = {"at": f"2026-11-01T10:{n:02}:00Z", "customer": {"age": n}}
        old = {"at": "Bonn", "customer": {"age": 40}}
        producer.send(topic, json.dumps(old if n < 30 else place).encode(), key=b"\xff")
    producer.flush()
    producer.close()
    ended = served("dataset", "check", "--source", source, "--records", 50)
    assert ended.code == 0
    assert ended.out.startswith(f"read the newest 50 records of {topic}; nothing was sent\n")
    assert re.search(r"smoker +true or false +50 +itself", ended.out)
    assert "warning: city: of 50 rows 100.0% are not listed and count as other" in ended.err
    assert "age:" not in ended.err
    assert "a definition is public" in ended.err
    (tmp_path / "other.json").write_text(
        json.dumps(
            {
                **definition,
                "attributes": [
                    {"name": "city", "type": "category", "values": ["Bonn"], "missing": True},
                    {"name": "age", "type": "number", "edges": [45]},
                    {"name": "smoker", "type": "boolean"},
                ],
            }
        )
    )
    ended = served("dataset", "check", tmp_path / "other.json", "--source", source)
    assert f"read the newest 90 records of {topic}" in ended.out
    assert counted(served, name) == 0
    assert "epsilons add up" not in ended.err

    some = write_people(name, 10)
    assert served("ingest", some, "--batch-id", f"{topic}@AbCdEfGh:0:0-9").code == 0
    assert "epsilons add up" not in served("dataset", "check", "--source", source).err
    second = {**definition, "dataset": f"second-{secrets.token_hex(4)}"}
    (tmp_path / "second.json").write_text(json.dumps(second))
    source.write_text(json.dumps({**json.loads(source.read_text()), "dataset": second["dataset"]}))
    ended = served("dataset", "check", tmp_path / "second.json", "--source", source)
    assert f"warning: data sets {name} read the topic {topic} too" in ended.err


def test_rows_of_another_width_are_left_out_of_what_is_sent_and_counted(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / f"{name}.csv"
    file.write_text(
        "city,age,smoker\n" + "Bonn,40,true\nGraz,1,500,no\nBonn,(7),no\nUlm\nLyon,9,no\n" * 10
    )
    assert "line 3: the row that begins there has 4 fields" in served("ingest", file).err
    assert counted(served, name) == 0
    ended = served("ingest", file, "--skip-bad-rows", "--json")
    assert ended.err.splitlines() == [
        "warning: 20 lines that hold no row are left out",
        "10 of 30 values of age are not numbers and count as missing",
    ]
    facts = json.loads(ended.out)
    assert (facts["rows"], facts["left_out"], facts["unread"]) == (30, 20, {"age": 10})
    assert counted(served, name) == 30
    assert "all 30 rows" in served("ingest", file, "--skip-bad-rows").out


def test_a_source_of_framed_messages_with_times_of_their_own_is_named_as_such(
    served: Run, served_deployment: Any, definition: dict[str, Any], tmp_path: Path
) -> None:
    """Times matter by the calendar alone, and not where the broker sets them."""
    topic = f"shop-{secrets.token_hex(4)}"
    source = tmp_path / "source.json"
    with KafkaAdminClient(bootstrap_servers=served_deployment.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=served_deployment.bootstrap_servers)
    for _ in range(20):
        producer.send(topic, b"\0\0\0\0\7" + json.dumps({"city": "Bonn"}).encode())
    producer.close()

    source.write_text(json.dumps({"version": 1, "dataset": definition["dataset"], "topic": topic}))

    def check(**phase: str) -> Any:
        file = tmp_path / "definition.json"
        file.write_text(json.dumps({**definition, "phase": {**definition["phase"], **phase}}))
        return served("dataset", "check", file, "--source", source)

    ended = check()
    assert "warning: 20 of 20 messages are framed by a schema registry" in ended.err
    assert "no message is a JSON object, so a worker stops at this source" in ended.err
    assert "message.timestamp.type" not in ended.err
    assert re.search(
        r"the id of the topic is \S+, which \"start\" in a source file names", ended.out
    )
    said = "has message.timestamp.type CreateTime: its producers choose the times of its messages"
    assert f"warning: {topic} {said}" in check(every="1 day").err
    dated = {"message.timestamp.type": "LogAppendTime"}
    with KafkaAdminClient(bootstrap_servers=served_deployment.bootstrap_servers) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dated)])
    assert "message.timestamp.type" not in check(every="1 day").err


def test_nothing_is_sent_of_a_file_that_breaks_off(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / f"{name}.ndjson"
    good = json.dumps({"city": "Bonn", "age": 20, "smoker": True})
    file.write_text(f"{good}\n" * 50 + "{\n" + f"{good}\n" * 50)
    ended = served("ingest", file, "--batch-rows", 10)
    assert ended.code == 1
    assert f"{file.name} line 51: it is not a JSON object" in ended.err
    assert counted(served, name) == 0
    file.write_text(f"{good}\n" * 101)
    assert served("ingest", file).code == 0
    assert counted(served, name) == 101


def test_a_file_without_its_columns_or_rows_is_named(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / f"{name}.csv"
    file.write_text("town;age;smoker\n")
    assert "pass --delimiter ';'" in served("ingest", file).err
    assert "there is no column city (found: town, age, smoker)" in (
        served("ingest", file, "--delimiter", ";").err
    )
    file.write_text("")
    assert "it is empty" in served("ingest", file).err
    file.write_text("city,age,smoker\n")
    assert served("ingest", file).out == f"{file.name} holds no rows\n"
    file.write_bytes("city,age,smoker\nKöln,1,true\nBonn,40,true\nLyon,20,no".encode("latin-1"))
    assert f"{file.name} line 2: it is not UTF-8; pass --encoding" in served("ingest", file).err
    assert served("ingest", file, "--encoding", "latin-1").code == 0
    other = file.rename(tmp_path / "nobody.csv")
    ended = served("ingest", other)
    assert "there is no data set 'nobody'" in ended.err
    assert "pass --dataset" in ended.err


def test_text_nan_and_nonsense_in_cells_never_stop_a_batch(
    served: Run, define: Define, tmp_path: Path
) -> None:
    name = define()
    file = tmp_path / f"{name}.ndjson"
    file.write_text(
        '{"city": "Bonn", "age": "44", "smoker": 1}\n'
        '{"city": 7, "age": NaN, "smoker": "FALSE"}\n'
        '{"city": null, "age": -Infinity, "smoker": []}\n'
        '{"age": 1e999, "extra": "stays here"}\n'
    )
    assert served("ingest", file).code == 1
    accept = ("--accept", "city", "--accept", "age", "--accept", "smoker")
    assert served("ingest", file, *accept).code == 0
    assert counted(served, name) == 4


def test_many_wide_columns_are_split_into_records_that_are_served(
    served: Run, define: Define, tmp_path: Path
) -> None:
    values = [f"{i:03}" + "é" * 100 for i in range(4)]
    name = define(
        attributes=[{"name": f"a{i}", "type": "category", "values": values} for i in range(64)],
        phase={"min_rows": 10**6},
    )
    file = tmp_path / f"{name}.csv"
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow([f"a{i}" for i in range(64)])
        writer.writerows([values[(r + i) % 4] for i in range(64)] for r in range(1000))
    assert file.stat().st_size > 3 * 4_194_304
    ended = served("ingest", file)
    assert ended.code == 0, ended.err
    assert counted(served, name) == 1000


# ---------------------------------------------------------------- looking


def test_data_sets_are_shown_for_people_and_for_scripts(served: Run, people: str) -> None:
    shown = served("dataset", "show", people).out
    assert "promised to every row, for ever: epsilon 1, delta 1e-09" in shown
    assert "rows are kept until the data set is retired" in shown
    assert re.search(r"age +whole number +< 18, 18 to 29, 30 to 44, >= 45, missing", shown)
    assert json.loads(served("dataset", "show", people, "--json").out)["dataset"] == people
    assert people in served("dataset", "list").out
    assert people in served("dataset", "list", "--json").out
    budget = served("budget", people).out
    assert f"{people}: epsilon 1 at delta 1e-09 is promised to every row, for ever" in budget
    facts = json.loads(served("budget", people, "--json").out)
    assert [phase["rows"] for phase in facts["phases"]] == [2500, 2500]
    assert all(0 < phase["epsilon"] <= 1 for phase in facts["phases"])
    status = served("status").out
    assert re.search(rf"{people} +2 +5,000 +0 +1 ", status), status


def test_the_memory_profile_shows_what_its_phase_still_answers(
    served: Run, served_deployment: Any, define: Define
) -> None:
    name = define(
        attributes=[{"name": "smoker", "type": "boolean"}],
        privacy={"epsilon": 10.0, "delta": 1e-3},
        accuracy={"error": 0.5, "failure_probability": 0.5},
        phase={"min_rows": 1},
        mechanism={"profile": "memory", "queries_per_phase": 8, "phases": 1, "hypothesis_rows": 30},
    )
    ended = served("ask", name, "smoker")
    assert "no phase is open yet: 0 rows" in ended.err
    need = int(re.search(r"opens at ([\d,]+)", ended.err)[1].replace(",", ""))  # type: ignore[index]
    assert need > 10_000
    with served_deployment.client() as client:
        event = client.send(
            name, cells=[{"smoker": True, "count": need}, {"smoker": False, "count": need}]
        )
    assert event.phase == 1
    assert served("ask", name, "smoker").code == 0
    budget = served("budget", name).out
    assert "1 of 8 queries asked" in budget
    assert re.search(r"up to [\d,]+ hard answers in all phases so far", budget)
    assert "of its delta the mechanism may use" in budget
    facts = json.loads(served("budget", name, "--json").out)
    assert facts["phases"][0]["epsilon"] == 10.0
    assert facts["constants"]["log10_tau"] < -3


def test_a_pure_budget_is_shown_as_the_sum_of_its_epsilons(
    served: Run, served_deployment: Any, define: Define
) -> None:
    """Laplace noise that is within 5% of 100,000 rows but for one time in a hundred: ln(100)/5,000."""
    name = define(
        attributes=[
            {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon", "Pau"]}
        ],
        privacy={"epsilon": 0.003, "delta": 0},
        accuracy={"error": 0.05, "failure_probability": 0.01},
        phase={"min_rows": 100_000},
        mechanism={"profile": "counts"},
    )
    with served_deployment.client() as client:
        client.send(name, cells=[{"city": "Bonn", "count": 100_000}])
    for query in ("city = 'Bonn'", "city = 'Graz'", "city = 'Lyon'", "city <> 'Lyon'"):
        assert served("ask", name, query).code == 0
    facts = json.loads(served("budget", name, "--json").out)
    assert facts["phases"][0]["epsilon"] == pytest.approx(3 * math.log(100) / 5_000, rel=1e-6)
    assert "constants" not in facts
    shown = served("budget", name).out
    assert "epsilon 0.003 at delta 0 is promised to every row, for ever; 3 looks" in shown
    assert "with no budget left a query is refused" in served("dataset", "show", name).out
    assert "has no budget left for another count" in served("ask", name, "city = 'Pau'").err


def test_a_retired_data_set_is_gone_for_ever(served: Run, people: str, tmp_path: Path) -> None:
    ended = served("dataset", "retire", people, "--yes")
    assert ended.code == 0
    assert "in the topics of batches and of blocks until" in ended.out
    assert f"there is no data set {people!r}" in served("ask", people, "smoker").err
    ended = served("dataset", "create", tmp_path / "definition.json")
    assert "this name was retired for ever; choose another name" in ended.err
    assert "there is no data set 'zzz'" in served("dataset", "retire", "zzz", "--yes").err


def test_watching_shows_what_happens_until_it_is_stopped(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    watching = subprocess.Popen(
        [sys.executable, "-m", "stream_dp", "watch", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
        text=True,
    )
    assert watching.stderr is not None
    assert watching.stderr.readline() == "watching; press Ctrl-C to end\n"
    served("ingest", write_people(name, 2000))
    served("ask", name, "smoker", "--id", "seen", "--analyst", "ann")
    assert watching.stdout is not None
    said = "".join(watching.stdout.readline() for _ in range(3))
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 0
    assert "phase 1 opened with 2,000 rows" in said
    assert "2,000 rows taken in (batch" in said
    assert "ann/seen" in said


def test_topics_are_made_once_and_inputs_stay_alike(
    run: Run, kafka_server: str, topic_prefix: str
) -> None:
    servers = ("--bootstrap-servers", kafka_server, "--topic-prefix", topic_prefix)
    assert run("topics", "create", *servers, "--partitions", 2).out.count("created ") == len(TOPICS)
    assert run("topics", "create", *servers).out == "all topics exist already\n"
    batches = ConfigResource(
        ConfigResourceType.TOPIC, f"{topic_prefix}batches", {"message.timestamp.type": "CreateTime"}
    )
    admin = KafkaAdminClient(bootstrap_servers=kafka_server)
    admin.alter_configs([batches])
    admin.close()
    for _ in range(50):  # the broker takes a moment to show what it was told
        again = run("topics", "create", *servers).out
        if "changed" in again:
            break
    assert f"changed {topic_prefix}batches: message.timestamp.type=LogAppendTime\n" in again
    ended = run(
        "topics", "create", *servers, "--replication", 3, "--topic-prefix", f"x{topic_prefix}"
    )
    assert ended.code == 1
    assert "pass a smaller one" in ended.err


def test_unlocking_what_is_not_locked_says_so(served: Run, people: str) -> None:
    assert served("dataset", "unlock", people).out == f"{people} is not in quarantine\n"
    assert "there is no data set 'zzz'" in served("dataset", "unlock", "zzz").err


# ---------------------------------------------------------------- time

BY_DAY = {"min_rows": 2000, "every": "1 day"}


def test_a_file_is_a_day_which_is_closed_on_request(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define(phase=BY_DAY)
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
    ended = served("ask", name, "city = 'Bonn'", "--series", "day")
    assert ended.code == 0, ended.err
    assert "2026-11-01 until 2026-11-02" in ended.out
    assert "phases 1 to 2, from 2026-11-01 until 2026-11-03" in ended.out
    ended = served("ask", name, "city = 'Bonn'", "--window", "1 day")
    assert "phase 2, from 2026-11-02 until 2026-11-03" in ended.out
    ended = served("ask", name, "city = 'Bonn'", "--since", "2026-11-02", "--until", "2026-11-04")
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
    assert counted(served, name) == 150
    late = (*by_day, "--batch-id", "again")
    ended = served(*late)
    assert ended.code == 1
    assert "150 rows are about periods before 2026-11-04, which have ended" in ended.err
    assert counted(served, name) == 150
    assert served(*late, "--late").code == 0
    assert counted(served, name) == 300


def test_a_phase_of_few_rows_is_opened_after_a_word_about_its_price(
    served: Run, define: Define, write_people: Write
) -> None:
    name = define()
    ended = served("ingest", write_people(name, 700))
    assert f"to open a phase of these now: stream-dp phase close {name}" in ended.out
    ended = served("phase", "close", name)
    assert ended.code == 1
    assert (
        "700 rows wait, fewer than the 2,000 of phase.min_rows: a phase of them takes " in ended.err
    )
    assert served("phase", "close", name, "--yes").out.startswith("phase 1 is open")
    few = served("ingest", write_people(name, 400), "--batch-id", "few", "--close")
    assert "phase.min_rows" in few.err
    assert few.code == 1


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--time", "Sunday"), "--time: it is neither a date"),
        (("--time-column", "day"), "open by their number of rows, so day decides nothing"),
        (("--accept", "town"), "--accept: "),
    ],
)
def test_a_time_that_cannot_be_is_named_before_anything_is_sent(
    served: Run, define: Define, write_people: Write, words: tuple[str, ...], fault: str
) -> None:
    name = define()
    ended = served("ingest", write_people(name), *words)
    assert ended.code == 1
    assert fault in ended.err
    assert counted(served, name) == 0
