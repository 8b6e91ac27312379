from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.broker import Broker
from stream_dp.cli import _COMMANDS, server_options
from stream_dp.cli.operate.worker_command import source_of
from stream_dp.cli.server_options import GivenServers
from stream_dp.cli.use.ask_command import _Precise
from stream_dp.embedded import ports
from stream_dp.embedded.folders import Running, StateFolder
from stream_dp.errors import InvalidInput
from stream_dp.sql import parse

Run = Callable[..., Any]
Words = dict[str, Any]


@pytest.fixture
def nowhere() -> str:
    return f"127.0.0.1:{ports.choose('nobody', None)}"


@pytest.fixture
def good() -> Words:
    """A definition without a fault."""
    return {
        "dataset": "people",
        "attributes": [{"name": "city", "type": "category", "values": ["Bonn"]}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02, "failure_probability": 0.01},
        "phase": {"min_rows": 20000},
    }


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    ended = run(command, "--help")
    assert ended.code == 0
    assert "Usage: stream-dp" in ended.out


def test_slips_of_the_hand_are_met_with_what_was_meant(run: Run) -> None:
    ended = run("aks", "people")
    assert ended.code == 2
    assert "No such command 'aks'. Did you mean ask?" in ended.err
    ended = run("ask", "people", "city", "=", "Lyon")
    assert ended.code == 2
    assert "the query ends before '='; put the whole query in quotes" in ended.err
    ended = run("ask", "people", "age >= 30", "--error", "5 rows")
    assert ended.code == 2
    assert "--error '5 rows': ROWS is not understood here; write 5% of the answer" in ended.err
    ended = run("ask", "people", "--kind", "median", "--attribute", "age", "--at-most", "2%")
    assert ended.code == 2
    assert "--kind median has no --at-most" in ended.err


def test_the_log_never_shows_what_kafka_was_sent() -> None:
    script = (
        "from stream_dp.cli.operate.worker_log import Log; Log('debug');"
        "from aiokafka.conn import log as sent;"
        "from aiokafka.producer.producer import log; log.debug('a fact'); sent.debug('a row')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "a fact" in done.stderr
    assert "a row" not in done.stderr


def test_help_comes_without_loading_what_it_does_not_need() -> None:
    script = (
        "import sys; from stream_dp.cli import root\n"
        "try: root(['--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('kafka', 'pydantic', 'numpy', 'rich', 'sqlglot', 'faust') if n in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ["ask", "people"],
        ["status"],
        ["budget", "people"],
        ["watch"],
        ["dataset", "list"],
        ["dataset", "show", "people"],
        ["topics", "create"],
        ["worker"],
    ],
)
def test_without_servers_each_command_says_how_to_start_them(run: Run, words: list[str]) -> None:
    ended = run(*words)
    assert ended.code == 1
    assert "start them with `stream-dp up`, or pass --bootstrap-servers" in ended.err


def test_servers_that_ended_by_themselves_are_told_with_the_reason(
    run: Run, tmp_path: Path
) -> None:
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
        (folder.path / "ready").write_text("http://127.0.0.1:6066/")
        assert GivenServers(None, None, None, folder.path).topic_prefix == "again."
        assert GivenServers(None, None, "mine.", folder.path).topic_prefix == "mine."
        assert GivenServers("kafka:9092", None, None, folder.path).topic_prefix == "stream-dp."
        said = "already up: Kafka at 127.0.0.1:1, topics again.*, dashboard at http://127.0.0.1:6066/\n"
        assert run("up").err == said
        monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "again.")
        assert run("up").err == said
        monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", "other.")
        ended = run("up")
        assert ended.code == 1
        assert "with the topics again.*, not other.*; stop them first with `stream-dp down`" in (
            ended.err
        )


def test_up_says_whether_the_servers_have_a_worker_and_does_not_change_that(
    run: Run, tmp_path: Path
) -> None:
    with servers_of_up(tmp_path / "state") as folder:
        ready = folder.path / "ready"
        ready.write_text("no worker")
        assert run("up", "--no-worker").err == "already up: Kafka at 127.0.0.1:1, no worker\n"
        ended = run("up")
        assert ended.code == 1
        assert "already run without a worker; stop them first with `stream-dp down`" in ended.err
        ready.write_text("http://127.0.0.1:6066/")
        ended = run("up", "--no-worker")
        assert ended.code == 1
        assert "already run with a worker; stop them first with `stream-dp down`" in ended.err


def test_a_broker_that_is_down_is_named_at_once(run: Run, nowhere: str) -> None:
    ended = run("ask", "people", "age >= 30", "--bootstrap-servers", nowhere)
    assert ended.code == 1
    assert f"error: no Kafka broker answers at {nowhere} (Connection refused)" in ended.err


def test_what_keeps_a_worker_from_starting_is_one_sentence(
    run: Run, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = ("--bootstrap-servers", nowhere, "--redis-url", "redis://127.0.0.1:1/0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run("worker", *servers, "--web-port", port)
        assert f"cannot be served on port {port} of 127.0.0.1 (Address already in use)" in ended.err
        assert "pass a free --web-port" in ended.err
        free = ports.choose("nobody", None)
        for metrics, words in (
            (port, "set another STREAM_DP_METRICS_PORT"),
            (free, "of the pages"),
        ):
            monkeypatch.setenv("STREAM_DP_METRICS_PORT", str(metrics))
            assert words in run("worker", *servers, "--web-port", free).err
        monkeypatch.delenv("STREAM_DP_METRICS_PORT")
        ended = run("up", "--web-port", port)
        assert (
            f"error: port {port} is taken by another program; pass another --web-port" in ended.err
        )
    web_port = str(ports.choose("nobody", None))
    ended = run("worker", *servers, "--web-port", web_port)
    assert f"no Kafka broker answers at {nowhere}" in ended.err
    ended = run("worker", *servers, "--redis-url", "localhost:6379")
    assert "--redis-url: it is not a URL; write redis://HOST:PORT/0" in ended.err
    monkeypatch.setenv("STREAM_DP_SESSION_TIMEOUT_S", "secret")
    ended = run("worker", *servers)
    assert ended.err.startswith(
        "error: STREAM_DP_SESSION_TIMEOUT_S: Input should be a valid number"
    )
    assert "secret" not in ended.err


def test_up_waits_for_servers_that_are_just_stopping_and_then_has_its_turn(
    run: Run, tmp_path: Path
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    folder.lock(timeout_s=1)
    stopped = threading.Timer(1.0, folder.release)
    stopped.start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = run("up", "--web-port", taken.getsockname()[1])
    stopped.join()
    assert ended.err.startswith("Waiting for servers that are starting or stopping\n")
    assert "is taken by another program" in ended.err


def test_a_state_folder_that_cannot_be_used_is_named(run: Run) -> None:
    ended = run("up", "--state-dir", "/proc/nothing/here")
    assert ended.code == 1
    assert "/proc/nothing/here cannot be used for data" in ended.err
    assert "pass another --state-dir" in ended.err


def test_down_with_nothing_up_is_no_fault(run: Run, tmp_path: Path) -> None:
    ended = run("down")
    assert (ended.code, ended.out) == (0, f"nothing runs in {tmp_path / 'state'}\n")


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
    ],
)  # fmt: skip
def test_a_fault_in_a_definition_is_told_with_its_place_and_fix(
    run: Run, tmp_path: Path, good: Words, changed: Words, complaint: str
) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({**good, **changed}))
    assert f"error: {complaint}" in run("dataset", "create", file).err


def test_a_definition_with_a_fault_is_refused_before_anything_is_sent(
    run: Run, tmp_path: Path, nowhere: str, good: Words
) -> None:
    file = tmp_path / "definition.json"
    servers = ("--bootstrap-servers", nowhere)

    def complaint(text: str) -> str:
        file.write_text(text)
        ended = run("dataset", "create", file, *servers)
        assert ended.code == 1
        return str(ended.err)

    assert "no Kafka broker answers" in complaint(json.dumps(good))
    assert "a definition has at most 262,144 bytes" in complaint("city,age\n" * 50_000)
    assert "definition.json: it is not JSON (line 1, column 2)" in complaint("{oops")
    assert "an object names a key twice" in complaint('{"dataset": "a", "dataset": "b"}')
    assert "privacy.epsilon: it is too small (got -1.0); use at least 1e-09" in complaint(
        json.dumps({**good, "privacy": {"epsilon": -1.0, "delta": 1e-9}})
    )
    assert "phases: this field is unknown (got 3); remove it or fix its spelling" in complaint(
        json.dumps({**good, "phases": 3})
    )
    assert "privacy.eps: this field is unknown (got 1.0)" in complaint(
        json.dumps({**good, "privacy": {"eps": 1.0, "delta": 1e-9}})
    )
    assert "phase: this field is missing; add it" in complaint(
        json.dumps({name: value for name, value in good.items() if name != "phase"})
    )
    assert "delta 5e-05 is large for phases of 20,000 rows; below 5e-07 is usual" in complaint(
        json.dumps({**good, "privacy": {"epsilon": 1.0, "delta": 5e-5}})
    )
    said = complaint(json.dumps({**good, "privacy": {"epsilon": 1.0, "delta": 5.1e-5}}))
    assert "privacy.delta: it is above 1/phase.min_rows" in said
    assert "no Kafka broker answers" not in said


@pytest.mark.parametrize(("epsilon", "warns"), [(2.9, False), (3.0, True)])
def test_a_large_epsilon_is_warned_of_before_it_can_never_be_changed(
    run: Run, tmp_path: Path, good: Words, epsilon: float, *, warns: bool
) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({**good, "privacy": {"epsilon": epsilon, "delta": 1e-9}}))
    for command in (["check"], ["create", "--bootstrap-servers", "127.0.0.1:1"]):
        said = run("dataset", *command, file).err
        assert ("warning: privacy.epsilon 3 is large: for someone who guesses" in said) is warns


def test_what_opening_a_phase_takes_is_said_beforehand_and_what_it_can_never_keep(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(good))
    ended = run("dataset", "check", file)
    assert ended.err == ""
    assert re.search(
        r"opens at 20,000 rows\nopening a phase of 20,000 to 40,000 rows takes 0\.\d+% to 0\.\d+% of its "
        r"budget\nno phase takes more than 97\.00% unasked, even if far more is asked than expected\n",
        ended.out,
    )
    assert "\nfree from then on: any window: tables of one column" in ended.out
    file.write_text(json.dumps({**good, "mechanism": {"base_share": 0}}))
    ended = run("dataset", "check", file)
    assert "takes 0.00% of its budget\nnothing is measured in advance" in ended.out
    file.write_text(json.dumps({**good, "mechanism": {"base_share": 0.3}}))
    assert "opening a phase takes 29" in run("dataset", "check", file).err
    file.write_text(json.dumps({**good, "phase": {"min_rows": 500}}))
    said = run("dataset", "check", file).err
    found = re.search(
        r"error 0.02 is out of reach of a phase of 500 rows, which reaches (0.\d+)", said
    )
    assert found is not None, said
    accuracy = {**good["accuracy"], "error": 1.01 * float(found[1])}
    file.write_text(json.dumps({**good, "phase": {"min_rows": 500}, "accuracy": accuracy}))
    said = run("dataset", "check", file).err
    assert "out of reach" not in said
    assert "one by one, and 300 are expected; name mechanism.workload" in said


def test_a_memory_profile_that_needs_more_rows_than_given_says_how_many(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file = tmp_path / "definition.json"
    memory = {"profile": "memory", "queries_per_phase": 100, "phases": 2, "hypothesis_rows": 200}
    small = {**good, "privacy": {"epsilon": 4.0, "delta": 1e-12}, "mechanism": memory}
    file.write_text(json.dumps(small))
    said = run("dataset", "check", file).err
    found = re.search(
        r"warning: phase.min_rows 20,000 is less than the ([\d,]+) rows that the memory profile needs "
        r"with these settings",
        said,
    )
    assert found is not None, said
    enough = int(found[1].replace(",", ""))
    for rows, fits in ((enough - 1, False), (enough, True)):
        file.write_text(json.dumps({**small, "phase": {"min_rows": rows}}))
        ended = run("dataset", "check", file)
        assert ended.out.endswith(f"a phase opens at {enough:,} rows\n")
        assert ("phase.min_rows" in ended.err) is not fits


def test_what_is_kept_is_said_and_tiles_that_need_more_are_warned_of(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(good))
    assert "are kept" not in run("dataset", "check", file).out
    tiles = {"workload": {"tables": [["city"]], "windows": [1, 4]}}
    for phases, which, warns in ((1, "newest phase", True), (4, "last 4 phases", False)):
        file.write_text(json.dumps({**good, "retention": {"phases": phases}, "mechanism": tiles}))
        ended = run("dataset", "check", file)
        assert (
            f"the rows of the {which} are kept; older ones are erased, and what was published of them stays"
            in ended.out
        )
        assert ("ask it in every phase" in ended.err) is warns
    file.write_text(
        json.dumps({**good, "retention": {"phases": 1}, "mechanism": {"profile": "weights"}})
    )
    refused = run("dataset", "check", file)
    assert refused.code == 1
    assert 'use "calibrated", "counts" or "whole_table", or remove retention' in refused.err


def test_how_long_answers_are_stored_is_said(run: Run, tmp_path: Path, good: Words) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({**good, "retention": {"answers": {"days": 600}}}))
    said = run("dataset", "check", file).out
    assert "rows are kept until the data set is retired" in said
    assert "answers and outcomes of batches are stored for 600 to 1,200 days" in said


def test_a_pure_promise_is_for_the_profiles_that_can_keep_it(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file = tmp_path / "definition.json"
    pure = {**good, "privacy": {"epsilon": 1.0, "delta": 0}}
    for profile in ("counts", "weights", "bypass"):
        file.write_text(json.dumps({**pure, "mechanism": {"profile": profile}}))
        assert run("dataset", "check", file).code == 0
    for settings in ({}, {"profile": "whole_table"}, {"profile": "gated", "segments": 9}):
        file.write_text(json.dumps({**pure, "mechanism": settings}))
        assert "privacy.delta: is 0" in run("dataset", "check", file).err


def test_a_file_is_looked_through_here_before_anything_is_sent(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file, rows = tmp_path / "definition.json", tmp_path / "rows.csv"
    good["attributes"] += [
        {"name": "age", "type": "number", "edges": [18], "missing": True},
        {"name": "smoker", "type": "boolean"},
    ]
    file.write_text(json.dumps(good))
    rows.write_text("city;age;smoker\n" + "Bonn;17;true\n" * 5 + "bonn;17,5;nein\n" * 3 + ";;\n")
    assert "pass --delimiter ';'" in run("dataset", "check", file, rows).err
    ended = run("dataset", "check", file, rows, "--delimiter", ";")
    assert ended.code == 0
    lines = [re.split(r"  +", line.rstrip()) for line in ended.out.splitlines()[4:]]
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
    ]
    assert "warning: age: of 9 rows 33.3% have a number in another notation" in ended.err
    assert "smoker: of 9 rows 33.3% are neither true nor false and 11.1% are empty" in ended.err
    assert "city: of 9 rows 33.3% have the same value, which is not listed" in ended.err


def test_a_check_on_private_rows_says_that_a_definition_must_not_follow_from_them(
    run: Run, tmp_path: Path, good: Words
) -> None:
    file, rows = tmp_path / "definition.json", tmp_path / "rows.csv"
    file.write_text(json.dumps(good))
    rows.write_text("city\n" + "Bonn\n" * 5 + "Zorgon\n")
    private = run("dataset", "check", file, rows)
    assert "a definition is public" in private.err
    assert (
        "If you change it because of them, the change reveals something about them" in private.err
    )
    assert "pass --public" in private.err
    assert "public" not in private.out
    public = run("dataset", "check", file, rows, "--public")
    assert public.err == ""
    assert public.out == (
        f"{private.out}these rows are public, as --public says; a definition may depend on them\n"
    )
    assert run("dataset", "check", file).err == ""


def test_a_check_needs_a_definition_or_a_source(run: Run, tmp_path: Path, good: Words) -> None:
    ended = run("dataset", "check")
    assert ended.code == 2
    assert "Missing argument 'DEFINITION', or the option '--source'" in ended.err
    file, source = tmp_path / "definition.json", tmp_path / "source.json"
    file.write_text(json.dumps(good))
    source.write_text('{"version": 1, "dataset": "orders", "topic": "shop.orders"}')
    ended = run("dataset", "check", file, "--source", source)
    assert "--source: it belongs to orders, not to people" in ended.err
    ended = run("dataset", "check", file, file, "--source", source)
    assert "Give FILE or '--source', not both" in ended.err


@pytest.mark.parametrize(
    ("words", "lacks"),
    [
        (("--kind", "mode"), "--kind mode needs --attribute"),
        (("--kind", "sum", "age < 18"), "--kind sum needs --attribute"),
        (("--kind", "quantile", "--attribute", "age"), "--kind quantile needs --rank"),
        (("--kind", "between", "smoker", "--low", "0.1"), "--kind between needs --high"),
        (("--kind", "interior_point"), "--kind interior_point needs a condition"),
        (("--kind", "prefix_batch", "--attribute", "age"), "--kind prefix_batch needs a condition"),
        (("--kind", "mode", "--attribute", "age", "--low", "0"), "--kind mode has no --low"),
        (("age < 18", "--rank", "0.5"), "--rank needs --kind"),
        (("age < 18", "--share-of", "smoker", "--rank", "0.5"), "--share-of has no --rank"),
        (("age < 18", "--share-of", "smoker", "--kind", "sum"), "leave --kind sum out"),
        (("--file", __file__, "--share-of", "smoker"), "leave --share-of out"),
        (("--file", __file__, "--minus-last", "2"), "leave --minus-last out"),
        (("smoker", "--minus-last", "2", "--minus-previous", "1"), "not both"),
        (("smoker", "--minus-last", "2", "--share-of", "age < 18"), "a share is about one window"),
        (("smoker", "--minus-last", "2", "--kind", "mode"), "leave --kind mode out"),
        (("smoker", "--minus-last", "2", "--rank", "0.5"), "a difference has no --rank"),
    ],
)
def test_what_a_kind_of_query_lacks_or_has_not_is_named_as_it_is_written_here(
    run: Run, words: tuple[str, ...], lacks: str
) -> None:
    ended = run("ask", "people", *words)
    assert ended.code == 2
    assert lacks in ended.err


def _written(folder: Path, definition: Words, **kinds: object) -> Path:
    path = folder / "definition.json"
    path.write_text(json.dumps({**definition, "kinds": kinds}))
    return path


def test_kinds_that_are_misspelt_are_answered_with_their_names(
    run: Run, tmp_path: Path, good: Words
) -> None:
    ended = run("dataset", "check", _written(tmp_path, good, quantile={"share": 0.1}))
    assert ended.code == 1
    assert "there is no 'quantile'; choose from threshold, median" in ended.err


def test_a_kind_that_a_single_phase_has_too_few_rows_for_is_warned_of(
    run: Run, tmp_path: Path, good: Words
) -> None:
    few = run("dataset", "check", _written(tmp_path, good, mode={"share": 0.0002}))
    assert few.code == 0
    assert re.search(r"warning: kinds.mode needs windows of \d+,\d+ rows or more", few.err)
    assert "a phase opens at 20,000" in few.err
    assert run("dataset", "check", _written(tmp_path, good, mode={"share": 0.05})).err == ""


def test_a_share_that_a_phase_can_never_pay_is_warned_of(
    run: Run, tmp_path: Path, good: Words
) -> None:
    dear = run("dataset", "check", _written(tmp_path, good, threshold={"share": 1}))
    assert dear.code == 0
    (left,) = re.findall(
        r"kinds.threshold.share 1 is more than a phase of 20,000 .* open, (0\.9\d+);", dear.err
    )
    afforded = _written(tmp_path, good, threshold={"share": float(left)})
    assert run("dataset", "check", afforded).err == ""


def test_a_fault_of_a_source_file_names_the_file_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text('{"version": 1, "dataset": "orders", "topci": "shop.orders"}')
    with pytest.raises(InvalidInput, match=r"^orders\.json: topci: this field is unknown"):
        source_of(path)


def test_what_another_kafka_asks_for_is_not_shown_to_the_one_that_up_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("STREAM_DP_KAFKA_USERNAME", "ana")
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD", "secret")
    found = Running(1, "127.0.0.1:1", "redis://127.0.0.1:2/0")
    monkeypatch.setattr(server_options, "running", lambda _: found)
    assert GivenServers(None, None, "stream-dp.", tmp_path).broker == Broker("127.0.0.1:1")
    given = GivenServers("kafka:9093", None, "stream-dp.", tmp_path).broker
    assert given.servers == "kafka:9093"
    assert given.authenticates


def test_an_error_and_a_price_are_clauses_of_the_query_in_sql() -> None:
    schema = [{"name": "age", "type": "number", "edges": [18, 30, 65]}]
    precise = _Precise.of("2.5", "2%")
    for query, error in (
        ("SELECT AVG(age)", {"mean": 2.5}),
        ("SELECT SUM(age)", {"value": 2.5}),
        ("age >= 30 -- grown up", {"value": 2.5}),
    ):
        asked = parse(precise.after(query), schema)
        assert (asked["error"], asked["at_most"]) == (error, 0.02)
    assert _Precise.of(None, None).after("age >= 30") == "age >= 30"
