"""``stream-dp advise`` as a newcomer meets it. Needs are small, so that a trial takes a moment."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.checks.advice_text import percent, rounded
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.messages import Definition
from stream_dp.profiles.advice import Need, estimates
from stream_dp.profiles.builder import build
from stream_dp.profiles.line_units import privacy_of
from tests.cli.conftest import Run, Write

ROOT = Path(__file__).parents[2]
SMALL = ("--queries", 40, "--phases", 2)
_events: list[tuple[str, str]] | None = None
_others: set[int | None] = set()


@pytest.fixture
def advise(run: Run, write: Write) -> Run:
    """``advise(*words, phase=...)``: what is advised for a definition with these fields changed."""

    def advise(*words: object, **changed: object) -> Any:
        ended = run("advise", write(**changed), *words)
        assert ended.code == 0, ended.err
        return ended

    return advise


@pytest.fixture
def opened() -> Iterator[list[tuple[str, str]]]:
    """Every file that is opened and every address that is connected to, meanwhile.

    Threads that other tests have left do not count.
    """
    global _events, _others
    if _events is None:
        sys.addaudithook(_note)
    _events = []
    _others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
    yield _events
    _events = []


def _note(event: str, facts: tuple[object, ...]) -> None:
    if event not in {"open", "socket.connect"} or threading.get_ident() in _others:
        return
    if _events is not None:
        _events.append((event, str(facts[0] if event == "open" else facts[1])))


def test_the_first_line_says_what_to_use_and_the_next_what_to_write(advise: Run) -> None:
    ended = advise("--queries", 100, "--phases", 2)
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0].startswith("Use calibrated: it answers all 100 queries within 10% of the rows")
    assert '  "mechanism": {"profile": "calibrated", "queries_per_phase": 50},' in lines
    assert '  "phase": {"min_rows": 2000},' in lines
    assert {line.split("  ")[0] for line in lines} >= {
        "counts", "counts (delta 0)", "whole_table", "bypass", "weights", "gated", "memory"
    }  # fmt: skip


def test_it_reads_the_definition_and_nothing_of_the_rows_and_needs_no_server(
    run: Run, write: Write, write_people: Write, opened: list[tuple[str, str]]
) -> None:
    file = write()
    write_people("people")
    opened.clear()
    assert run("advise", file, *SMALL).code == 0
    assert {Path(name) for kind, name in opened if name.startswith(str(file.parent))} == {file}
    assert not [name for kind, name in opened if kind == "socket.connect"]


@pytest.mark.parametrize(
    ("changed", "words", "advice"),
    [
        ({"accuracy": {"error": 0.05}, "phase": {"min_rows": 2_310}},
         ("--queries", 160, "--phases", 1, "--workload", "predicates"),
         ["Use whole_table: it answers all 160 queries within 5%",
          "spends all of a row's lifetime budget.", '"mechanism": {"profile": "whole_table"},']),
        ({"privacy": {"epsilon": 1.0, "delta": 0}}, (*SMALL, "--rows-per-phase", 10**17),
         ["Use counts under a pure promise: it answers all 40 queries within 10% of the rows asked",
          "its promise needs a delta above 0"]),
        ({"accuracy": {"error": 0.02}, "phase": {"min_rows": 20_000},
          "attributes": [{"name": name, "type": "category", "values": [f"c{i}" for i in range(300)]}
                         for name in ("city", "age")]},
         SMALL, ["Use counts: it answers all 40 queries",
                 "It answers single counts only. For tables, sums and averages use calibrated"]),
    ],
)  # fmt: skip
def test_another_mechanism_is_recommended_where_it_serves_better(
    advise: Run, changed: dict[str, Any], words: tuple[object, ...], advice: list[str]
) -> None:
    said = advise(*words, **changed).out
    assert said.startswith(advice[0])
    assert all(each in said for each in advice)


def test_thresholds_are_about_one_attribute_of_numbers(advise: Run) -> None:
    ended = advise(*SMALL, "--workload", "thresholds", phase={"min_rows": 40_000})
    assert "Write this in the definition, with the attribute age alone:" in ended.out
    assert "kind threshold" in ended.out
    assert "kind median" in ended.out
    assert ended.err.startswith("note: there are only 12 different queries of this kind; the ")


@pytest.mark.parametrize(
    ("workload", "rows", "delta"),
    [("conjunctions", 2_000, 0), ("conjunctions", 10**12, 1e-13), ("thresholds", 60, 1e-9)],
)
def test_what_it_says_to_write_is_a_definition(
    run: Run, advise: Run, write: Write, workload: str, rows: int, delta: float
) -> None:
    privacy = {"epsilon": 1.0, "delta": delta}
    words = (*SMALL, "--rows-per-phase", rows, "--workload", workload)
    lines = advise(*words, privacy=privacy).out.splitlines()
    written = [line for line in lines if line.startswith('  "')]
    assert len(written) >= 2
    said = json.loads("{" + "".join(written).rstrip(",") + "}")
    assert run("dataset", "check", write(**{"privacy": privacy, **said})).code == 0


def test_too_few_rows_and_too_large_a_delta_are_said_and_what_would_do(advise: Run) -> None:
    changed = {"privacy": {"epsilon": 1.0, "delta": 1e-3}, "accuracy": {"error": 0.02}}
    ended = advise(*SMALL, "--rows-per-phase", 100, **changed)
    delta, error = ended.err.splitlines()
    assert delta.startswith("warning: privacy.delta 0.001 is large for phases of 100 rows")
    assert error.startswith("warning: phases of 100 rows are too small for an error of 2%: not ")
    assert re.search("the smallest is .* rows a phase$", error)
    assert ended.out.startswith("No mechanism answers all 40 queries within 2% of the rows asked.")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--queries", 0], 2, "Invalid value for '--queries'"),
        ([], 2, "Missing option '--queries': DEFINITION has no workload"),
        (["--queries", 5, "--workload", "medians"], 2, "is not one of 'conjunctions'"),
        (["--queries", 5, "--rows-per-phase", 2**61], 1, "--rows-per-phase: all phases have more than"),
        (["--queries", 5, "--attribute", "age"], 2, "--attribute needs --workload thresholds"),
        (["--queries", 5, "--workload", "thresholds", "--attribute", "city"], 1,
         "--attribute: city is not an attribute of type number; name one of age"),
        (["--queries", 5, "--sample", "empty.csv"], 1, "empty.csv: it has no rows; omit --sample"),
        (["--queries", 5, "--person", "user_id"], 2, "--person needs --sample"),
        (["--queries", 5, "--column", "city=town"], 2, "--column needs --sample"),
        (["--queries", 5, "--rows-per-phase", 10**9 + 1], 1, "privacy.delta: it is above 1/phase.min_rows"),
    ],
)  # fmt: skip
def test_slips_are_met_with_the_option_and_the_fix(
    run: Run,
    write: Write,
    write_people: Write,
    monkeypatch: pytest.MonkeyPatch,
    words: list[object],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(write_people("empty", n=0).parent)
    ended = run("advise", write(), *words)
    assert (ended.code, said in ended.err) == (code, True), ended.err


TILES = [
    {"group_by": ["city"], "window": {"last_phases": 1}},
    {"attribute": "age"},
    {"where": {"attribute": "age", "ge": 45}},
]


def test_the_tiles_of_a_definition_are_asked_after_each_phase(advise: Run) -> None:
    mechanism = {"profile": "calibrated", "workload": TILES}
    tiled = {"mechanism": mechanism, "phase": {"min_rows": 20_000}}
    ended = advise("--phases", 2, **tiled)
    assert ended.err == ""
    answers = r"Use calibrated.*: it answers all 3 tiles after each of 2 phases within 10%"
    assert re.match(answers, ended.out)
    assert "calibrated (not declared)" in ended.out
    assert "answers no tables, sums or averages" in ended.out
    assert "The trial asked each tile after each of 2 phases." in ended.out
    more = advise("--phases", 2, "--queries", 8, **tiled)
    assert "all 3 tiles after each of 2 phases and 8 queries more within 10%" in more.out
    assert "The trial asked 8 queries about synthetic rows" in more.out


def test_it_says_what_one_query_of_each_kind_takes(advise: Run) -> None:
    papers = {"profile": "memory", "queries_per_phase": 100, "phases": 12}
    said = advise(*SMALL, phase={"min_rows": 20_000}).out
    told = "a mechanism that a definition names plays no part"
    assert advise(*SMALL, phase={"min_rows": 20_000}, mechanism=papers).out == said, told
    for kind in ("a count of [\\d,]+ rows, within 5% of itself", "a table", "the average of age"):
        assert re.search(rf"^{kind}\b.*  [\d.]+%$", said, re.MULTILINE), kind


def test_where_values_are_kept_an_average_is_of_their_range(
    advise: Run, definition: dict[str, Any]
) -> None:
    """The trial of thresholds keeps one attribute alone, and no values."""
    city, age, smoker = definition["attributes"]
    kept = [city, {**age, "measure": {"unit": 1, "low": 0, "high": 200}}, smoker]
    said = advise("--queries", 20, "--phases", 1, attributes=kept).out
    assert "within 2 (1% of its range)" in said
    tiles = {"profile": "calibrated", "workload": [{"attribute": "age"}, {"group_by": ["city"]}]}
    advise("--phases", 1, attributes=kept, mechanism=tiles)
    advise("--queries", 5, "--workload", "thresholds", "--attribute", "age", attributes=kept)


def test_a_number_on_a_grid_has_no_average_and_its_table_is_no_part_of_other_prices(
    advise: Run,
) -> None:
    attributes = [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
        {"name": "amount", "type": "number", "propose": {"share": 0.2}},
    ]
    said = advise(*SMALL, attributes=attributes).out
    assert "average of amount" not in said
    (count,) = re.findall(r"^a count of rows, .* ([\d.]+)%$", said, re.MULTILINE)
    assert float(count) < 10


def test_the_page_quotes_prices_that_still_hold() -> None:
    page = (ROOT / "docs/mechanisms.md").read_text()
    definition = Definition.read(json.loads((ROOT / "examples/definition.json").read_text()))
    universe, privacy = build(definition)[0], privacy_of(definition)
    accuracy = Accuracy(definition.accuracy.error, definition.accuracy.failure_probability)
    need = Need(universe, privacy, accuracy, definition.phase.min_rows, phases=12, queries=2_000)
    quoted = {}
    for estimate in estimates(need):
        if not (lines := re.findall(rf"^{re.escape(estimate.name)}  .*$", page, re.MULTILINE)):
            continue  # the page leaves most of them out
        (line,) = quoted[estimate.name] = lines
        for number in (estimate.rows, estimate.queries):
            assert number is None or f" {rounded(number)} " in f"{line} "
        assert estimate.error is None or percent(estimate.error) in line
    assert {"calibrated", "counts"} <= quoted.keys()
