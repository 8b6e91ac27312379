"""Commands without servers: what they say of options, of servers that are not there, and of definitions."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.broker import Broker
from stream_dp.cli import GROUPS
from stream_dp.cli.command_options import GivenServers
from stream_dp.cli.operate.worker_command import source_of
from stream_dp.cli.use.ask_command import _with_price
from stream_dp.embedded import ports
from stream_dp.embedded.folders import Running, StateFolder
from stream_dp.errors import InvalidInput
from stream_dp.sql import parse
from tests.cli.conftest import Run, Write
from tests.pipeline import world

Words = dict[str, Any]


@pytest.fixture
def nowhere() -> str:
    return f"127.0.0.1:{ports.choose('nobody', None)}"


@pytest.fixture
def definition() -> Words:
    """A definition without a fault, of which a check has nothing to say."""
    city = {"name": "city", "type": "category", "values": ["Bonn"]}
    return world.definition("people", attributes=[city])


@pytest.fixture
def check(run: Run, write: Write) -> Run:
    """``check(phase=...)``: how ``dataset check`` ends for a definition with these fields changed."""
    return lambda **changed: run("dataset", "check", write(**changed))


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


# ---------------------------------------------------------------- help and slips


def test_help_names_the_five_to_begin_with_and_loads_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys; from stream_dp.cli import root\n"
        "try: root(['--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('kafka', 'pydantic', 'numpy', 'rich', 'sqlglot', 'faust') if n in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"
    first, _, groups = printed.partition("Options:")
    assert re.findall(r"^  stream-dp (\w+)", first, re.MULTILINE) == [
        "up", "dataset", "ingest", "ask", "down"
    ]  # fmt: skip
    assert re.findall(r"^(\w+):$", groups, re.MULTILINE) == list(GROUPS)


ASKED = ("ask", "people")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("aks", "people"), "No such command 'aks'. Did you mean ask?"),
        ((*ASKED, "city", "=", "Lyon"), "the query ends before '='; put the whole query in quotes"),
        ((*ASKED, "smoker", "--at-most", "x"), "Invalid value for '--at-most': 'x': "),
        ((*ASKED, "--kind", "median", "--attribute", "age", "--at-most", "2%"), "median has no --at-most"),
        ((*ASKED, "--kind", "mode"), "--kind mode needs --attribute"),
        ((*ASKED, "--kind", "between", "smoker", "--low", "0.1"), "--kind between needs --high"),
        ((*ASKED, "--kind", "interior_point"), "--kind interior_point needs a condition"),
        ((*ASKED, "--kind", "prefix_batch", "--attribute", "age"), "--kind prefix_batch needs a condition"),
        ((*ASKED, "--kind", "mode", "--attribute", "age", "--low", "0"), "--kind mode has no --low"),
        ((*ASKED, "age < 18", "--low", "0.5"), "--low needs --kind"),
        ((*ASKED, "smoker", "--minus-previous", "2", "--kind", "mode"), "leave --kind mode out"),
        ((*ASKED, "smoker", "--minus-previous", "2", "--low", "0.5"), "a difference has no --low"),
        ((*ASKED, "smoker", "--window", "soon"), "write a number of phases such as 7, or a length of time"),
        ((*ASKED, "smoker", "--window", "7", "--since", "2026-11-01"), "not both"),
        ((*ASKED, "smoker", "--since", "Sunday"), "--since: it is neither a date"),
        ((*ASKED, "--standing"), "--standing needs --id"),
        ((*ASKED, "--standing", "--id", "x", "--quote"), "leave --standing out"),
        ((*ASKED, "--standing", "--id", "x", "--file", __file__), "use `stream-dp dashboard apply`"),
        ((*ASKED, "--alert-above", "0.2"), "an alert goes with --standing"),
        ((*ASKED, "--standing", "--id", "x", "--alert-above", "1", "--alert-below", "0"), "not both"),
        ((*ASKED, "--file", __file__, "smoker"), "leave QUERY out"),
        ((*ASKED, "--file", __file__, "--group-by", "city"), "leave --group-by out"),
        ((*ASKED, "--file", __file__, "--minus-previous", "2"), "leave --minus-previous out"),
        ((*ASKED, "--file", __file__, "--id", "q"), "leave --id out"),
        ((*ASKED, "--file", __file__, "--quote", "--at-most", "10%"), "leave --at-most out"),
        (("ask", "SELECT COUNT(*) WHERE age < 30"), "name the data set"),
        (("dataset", "check"), "Missing argument 'DEFINITION', or the option '--source'"),
        (("dataset", "check", __file__, __file__, "--source", __file__), "Give FILE or '--source', not both"),
        (("ingest", __file__, "--delimiter", "ab"), "must be one character or the word tab"),
        (("ingest", __file__, "--encoding", "ebcdic-7"), "not an encoding that Python knows"),
        (("ingest", __file__, "--column", "hour"), "write ATTRIBUTE=COLUMN, such as hour=ordered_at"),
        (("demo", "--daily", "--fast"), "--daily goes without --fast"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named_as_it_is_written_here(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    ended = run(*words)
    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_a_limit_is_a_clause_of_the_query_in_sql() -> None:
    schema = [{"name": "age", "type": "number", "edges": [18, 30, 65]}]
    for query in ("SELECT AVG(age)", "age >= 30 -- grown up", "age >= 30;"):
        assert parse(_with_price(query, 0.07), schema)["at_most"] == 0.07
    assert _with_price("age >= 30", None) == "age >= 30"


# ---------------------------------------------------------------- servers


def test_without_servers_commands_say_how_to_start_them_and_why_the_last_ones_ended(
    run: Run, tmp_path: Path
) -> None:
    for words in (("ask", "people"), ("watch",), ("topics", "create"), ("worker",)):
        ended = run(*words)
        assert "start them with `stream-dp up`, or pass --bootstrap-servers" in ended.err
    log = tmp_path / "state/logs/up.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "Starting\nerror: Apache Kafka was ended by signal 9; its log x ends with:\nlast\n"
    )
    assert run("status").err == (
        f"error: no servers run in {tmp_path / 'state'}: Apache Kafka was ended by signal 9; start them "
        "with `stream-dp up`, or pass --bootstrap-servers\n"
    )


@contextlib.contextmanager
def servers_of_up(path: Path, **more: Any) -> Iterator[StateFolder]:
    """A state folder that says that servers run, as ``stream-dp up`` leaves it."""
    folder = StateFolder(path)
    folder.prepare()
    folder.lock(timeout_s=1)
    folder.announce(Running(1, "127.0.0.1:1", "redis://127.0.0.1:2/0", **more))
    try:
        yield folder
    finally:
        folder.release()


def test_commands_use_the_prefix_of_what_up_started_and_up_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers_of_up(tmp_path / "state", topic_prefix="again.") as folder:
        (folder.path / "ready").write_text("http://127.0.0.1:6066/\n\n")
        for given, prefix in (
            ((None, None), "again."),
            ((None, "mine."), "mine."),
            (("kafka:9092", None), "stream-dp."),
        ):
            servers, topics = given
            assert GivenServers(servers, None, topics, folder.path).topic_prefix == prefix
        said = "already up: Kafka at 127.0.0.1:1, topics again.*, dashboard at http://127.0.0.1:6066/\n"
        assert run("up").err == said
        monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "again.")
        assert run("up").err == said
        monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "other.")
        other = "with the topics again.*, not other.*; stop them first with `stream-dp down`"
        ended = run("up")
        assert (ended.code, other in ended.err) == (1, True)


def test_up_says_whether_the_servers_have_a_worker_and_does_not_change_that(
    run: Run, tmp_path: Path
) -> None:
    with servers_of_up(tmp_path / "state") as folder:
        for pages, wanted, other, which in (
            ("no worker", ["--no-worker"], [], "without"),
            ("dashboard at http://127.0.0.1:6066/", [], ["--no-worker"], "with"),
        ):
            (folder.path / "ready").write_text(pages.removeprefix("dashboard at ") + "\n\n")
            assert run("up", *wanted).err == f"already up: Kafka at 127.0.0.1:1, {pages}\n"
            said = run("up", *other).err
            assert f"run {which} a worker; stop them first with `stream-dp down`" in said


def test_what_keeps_a_worker_from_starting_is_one_sentence(
    run: Run, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = ("worker", "--bootstrap-servers", nowhere, "--redis-url", "redis://127.0.0.1:1/0")
    free = ports.choose("nobody", None)
    with taken_port() as port:
        said = run(*worker, "--web-port", port).err
        assert f"cannot be served on port {port} of 127.0.0.1 (Address already in use)" in said
        assert "pass a free --web-port" in said
        for metrics, words in (
            (port, "set another STREAM_DP_METRICS_PORT"),
            (free, "of the pages"),
        ):
            monkeypatch.setenv("STREAM_DP_METRICS_PORT", str(metrics))
            assert words in run(*worker, "--web-port", free).err
        monkeypatch.delenv("STREAM_DP_METRICS_PORT")
        taken = f"error: port {port} is taken by another program; pass another --web-port"
        assert taken in run("up", "--web-port", port).err
    assert f"no Kafka broker answers at {nowhere}" in run(*worker, "--web-port", free).err
    said = run(*worker, "--redis-url", "localhost:6379").err
    assert "--redis-url: it is not a URL; write redis://HOST:PORT/0" in said
    monkeypatch.setenv("STREAM_DP_SESSION_TIMEOUT_S", "secret")
    said = run(*worker).err
    assert said.startswith("error: STREAM_DP_SESSION_TIMEOUT_S: Input should be a valid number")
    assert "secret" not in said


def test_up_waits_for_servers_that_are_just_stopping_and_then_has_its_turn(
    run: Run, tmp_path: Path
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    folder.lock(timeout_s=1)
    stopped = threading.Timer(1.0, folder.release)
    stopped.start()
    with taken_port() as port:
        ended = run("up", "--web-port", port)
    stopped.join()
    assert ended.err.startswith("Waiting for servers that are starting or stopping\n")
    assert "is taken by another program" in ended.err


def test_a_state_folder_that_cannot_be_used_is_named_and_down_with_nothing_up_is_no_fault(
    run: Run, tmp_path: Path
) -> None:
    ended = run("up", "--state-dir", "/proc/nothing/here")
    assert ended.code == 1
    assert re.search(
        r"/proc/nothing/here cannot be used for .*; pass another --state-dir", ended.err
    )
    ended = run("down")
    assert (ended.code, ended.out) == (0, f"nothing runs in {tmp_path / 'state'}\n")


def test_what_another_kafka_asks_for_is_not_shown_to_the_one_that_up_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("STREAM_DP_KAFKA_USERNAME", "ana")
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD", "secret")
    found = Running(1, "127.0.0.1:1", "redis://127.0.0.1:2/0")
    monkeypatch.setattr(StateFolder, "running", lambda _: found)
    assert GivenServers(None, None, "stream-dp.", tmp_path).broker == Broker("127.0.0.1:1")
    given = GivenServers("kafka:9093", None, "stream-dp.", tmp_path).broker
    assert (given.servers, given.authenticates) == ("kafka:9093", True)


# ---------------------------------------------------------------- definitions with a fault


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"dataset": "My People"}, "dataset: it has characters that are not allowed (got 'My People'); use"),
        ({"attributes": []}, "attributes: the list is too short; write at least 1"),
        ({"attributes": [{"name": "city", "type": "category", "values": "Bonn"}]},
         "attributes.city.values: it must be a list (got 'Bonn'); write a list in brackets: [...]"),
        ({"attributes": [{"name": "city", "type": "text"}]},
         "attributes.city: there is no 'type' 'text'; write one of 'category', 'number', 'boolean'"),
        ({"attributes": [{"name": "age", "type": "number", "edges": ["18"]}]},
         "attributes.age.edges.0: it must be a number (got '18'); write a number without quotes"),
        ({"phase": {"min_rows": "20000"}},
         "phase.min_rows: it must be a whole number (got '20000'); write a whole number without quotes"),
        ({"mechanism": {"profile": "memory"}}, "mechanism.queries_per_phase: this field is missing; add"),
        ({"accuracy": {"error": 2}}, "accuracy.error: it is too large (got 2); use a number less than 1"),
        ({"on_exhausted": "stop"}, "on_exhausted: it is not one of the accepted values (got 'stop'); write"),
        ({"privacy": {"epsilon": -1.0, "delta": 1e-9}},
         "privacy.epsilon: it is too small (got -1.0); use at least 1e-09"),
        ({"phases": 3}, "phases: this field is unknown (got 3); remove it or fix its spelling"),
        ({"privacy": {"eps": 1.0, "delta": 1e-9}}, "privacy.eps: this field is unknown (got 1.0)"),
        ({"phase": None}, "phase: "),
        ({"privacy": {"epsilon": 1.0, "delta": 5.1e-5}}, "privacy.delta: it is above 1/phase.min_rows"),
        ({"kinds": {"quantile": {"share": 0.1}}}, "kinds: there is no 'quantile'; choose from threshold"),
    ],
)  # fmt: skip
def test_a_fault_in_a_definition_is_told_with_its_place_and_fix_before_anything_is_sent(
    run: Run, nowhere: str, write: Write, changed: Words, complaint: str
) -> None:
    ended = run("dataset", "create", write(**changed), "--bootstrap-servers", nowhere)
    assert ended.code == 1
    assert f"error: {complaint}" in ended.err


def test_a_file_that_is_no_definition_is_refused(run: Run, write: Write) -> None:
    file = write()
    for text, complaint in (
        ("city,age\n" * 50_000, "a definition has at most 262,144 bytes"),
        ("{oops", "definition.json: it is not JSON (line 1, column 2)"),
        ('{"dataset": "a", "dataset": "b"}', "an object names a key twice"),
    ):
        file.write_text(text)
        assert complaint in run("dataset", "create", file).err


def test_a_fault_of_a_source_file_names_the_file_and_the_field(
    run: Run, write: Write, tmp_path: Path
) -> None:
    path = tmp_path / "orders.json"
    path.write_text('{"version": 1, "dataset": "orders", "topci": "shop.orders"}')
    with pytest.raises(InvalidInput, match=r"^orders\.json: topci: this field is unknown"):
        source_of(path)
    path.write_text('{"version": 1, "dataset": "orders", "topic": "shop.orders"}')
    ended = run("dataset", "check", write(), "--source", path)
    assert "--source: it belongs to orders, not to people" in ended.err


# ---------------------------------------------------------------- what a check says


@pytest.mark.parametrize(
    ("changed", "warning"),
    [
        ({}, None),
        ({"privacy": {"epsilon": 2.9, "delta": 1e-9}}, None),
        ({"privacy": {"epsilon": 3.0, "delta": 1e-9}}, "epsilon 3 is large: for someone who guesses"),
        ({"privacy": {"epsilon": 1.0, "delta": 5e-5}}, "delta 5e-05 is large for phases of 20,000 rows"),
        ({"mechanism": {"base_share": 0.3}}, "opening a phase takes 29"),
        ({"synthetic_rows": 500, "mechanism": {"base_share": 0}},
         "synthetic rows will be poor: opening a phase publishes too little about "),
        ({"synthetic_rows": 500}, None),
        ({"phase": {"min_rows": 500}}, "error 0.02 is out of reach of a phase of 500 rows, which reaches 0."),
        ({"phase": {"min_rows": 500}, "accuracy": {"error": 0.1, "failure_probability": 0.01}},
         "one by one, and 300 are expected; name mechanism.workload"),
        ({"kinds": {"mode": {"share": 0.0002}}}, "kinds.mode needs windows of "),
        ({"kinds": {"mode": {"share": 0.05}}}, None),
        ({"kinds": {"threshold": {"share": 1}}}, "kinds.threshold.share 1 is more than a phase of 20"),
        ({"kinds": {"threshold": {"share": 0.9}}}, None),
        ({"retention": {"phases": 1}, "mechanism": {"workload": {"tables": [["city"]], "windows": [4]}}},
         "ask it in every phase"),
        ({"retention": {"phases": 4}, "mechanism": {"workload": {"tables": [["city"]], "windows": [4]}}},
         None),
    ],
)  # fmt: skip
def test_likely_mistakes_are_warned_of_before_they_can_never_be_changed(
    check: Run, changed: Words, warning: str | None
) -> None:
    ended = check(**changed)
    assert ended.code == 0
    if warning is None:
        assert ended.err == ""
    else:
        assert ended.err.startswith("warning: ")
        assert warning in ended.err


def test_what_opening_a_phase_takes_is_said_beforehand(check: Run) -> None:
    ended = check()
    assert re.search(
        r"opens at 20,000 rows\nopening a phase of 20,000 to 40,000 rows takes 0\.\d+% to 0\.\d+% of its "
        r"budget\nno phase takes more than 97\.00% unasked, even if far more is asked than expected\n",
        ended.out,
    )
    assert "\nfree from then on: any window: tables of one column" in ended.out
    ended = check(mechanism={"base_share": 0})
    assert "takes 0.00% of its budget\nnothing is measured in advance" in ended.out


def test_a_memory_profile_that_needs_more_rows_than_given_says_how_many(check: Run) -> None:
    memory = {"profile": "memory", "queries_per_phase": 100, "phases": 2, "hypothesis_rows": 200}
    small = {"privacy": {"epsilon": 4.0, "delta": 1e-12}, "mechanism": memory}
    said = check(**small).err
    found = re.search(r"min_rows 20,000 is less than the ([\d,]+) rows that the memory prof", said)
    assert found is not None, said
    enough = int(found[1].replace(",", ""))
    for rows, fits in ((enough - 1, False), (enough, True)):
        ended = check(**small, phase={"min_rows": rows})
        assert ended.out.endswith(f"a phase opens at {enough:,} rows\n")
        assert ("phase.min_rows" in ended.err) is not fits


def test_what_is_kept_is_said(check: Run) -> None:
    assert "are kept" not in check().out
    for retention, said in (
        ({"phases": 1}, "the rows of the newest phase are kept; older ones are erased, and what was publ"),
        ({"phases": 4}, "the rows of the last 4 phases are kept; older ones are erased, and what"),
        ({"answers": {"days": 600}}, "retired\nanswers and outcomes of batches are stored for 600 to 1,200"),
    ):  # fmt: skip
        assert said in check(retention=retention).out


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"retention": {"phases": 1}, "mechanism": {"profile": "weights"}},
         'use "calibrated", "counts" or "whole_table", or remove retention'),
        *(
            ({"privacy": {"epsilon": 1.0, "delta": 0}, "mechanism": settings}, "privacy.delta: is 0")
            for settings in ({}, {"profile": "whole_table"}, {"profile": "gated", "segments": 9})
        ),
        *(
            ({"privacy": {"epsilon": 1.0, "delta": 0}, "mechanism": {"profile": profile}}, None)
            for profile in ("counts", "weights", "bypass")
        ),
    ],
)  # fmt: skip
def test_a_promise_is_for_the_profiles_that_can_keep_it(
    check: Run, changed: Words, refusal: str | None
) -> None:
    ended = check(**changed)
    assert (ended.code, (refusal or "") in ended.err) == (int(refusal is not None), True)


def test_a_file_is_looked_through_here_before_anything_is_sent(
    run: Run, write: Write, definition: Words, tmp_path: Path
) -> None:
    age = {"name": "age", "type": "number", "edges": [18], "missing": True}
    smoker = {"name": "smoker", "type": "boolean"}
    file, rows = write(attributes=[*definition["attributes"], age, smoker]), tmp_path / "rows.csv"
    rows.write_text("city;age;smoker\n" + "Bonn;17;true\n" * 5 + "bonn;17,5;nein\n" * 3 + ";;\n")
    ended = run("dataset", "check", file, rows)
    assert ended.code == 0
    lines = [re.split(r"  +", line.rstrip()) for line in ended.out.splitlines()[4:]]
    unlisted = "3 of 9 rows have a city that is not listed, and count as other"
    assert lines == [
        ["attribute", "values", "rows", "counted as"],
        ["city", "listed", "5", "itself"],
        ["", "empty", "1", "other"],
        ["", "not listed: 'bonn'", "3", "other"],
        ["age", "a number", "5", "itself"],
        ["", "empty", "1", "missing"],
        ["", "not a number: '17,5'", "3", "missing"],
        ["smoker", "true or false", "5", "itself"],
        ["", "empty", "1", "false"],
        ["", "neither true nor false: 'nein'", "3", "false"],
        [f"{unlisted}: bonn (3); list them in the definition if everybody may know them"],
    ]
    assert "warning: age: of 9 rows 33.3% have a number in another notation" in ended.err
    assert "smoker: of 9 rows 33.3% are neither true nor false and 11.1% are empty" in ended.err


def test_a_check_on_private_rows_says_that_a_definition_must_not_follow_from_them(
    run: Run, write: Write, tmp_path: Path
) -> None:
    file, rows = write(), tmp_path / "rows.csv"
    rows.write_text("city\n" + "Bonn\n" * 5 + "Zorgon\n")
    private = run("dataset", "check", file, rows)
    reveals = "If you change it because of them, the change reveals something about them"
    for words in ("a definition is public", reveals, "pass --public"):
        assert words in private.err
    public = run("dataset", "check", file, rows, "--public")
    assert public.err == ""
    assert public.out == (
        f"{private.out}these rows are public, as --public says; a definition may depend on them\n"
    )
    assert json.loads(file.read_text())["dataset"] == "people", "it is as it was"
