"""``stream-dp advise`` as a newcomer meets it. Needs are small, so that a trial takes a moment."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.use.advise_command import _number, _percent
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.messages import Definition
from stream_dp.profiles.advice import Need, estimates
from stream_dp.profiles.builder import build

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]
SMALL = ("--queries", 40, "--phases", 2)
_events: list[tuple[str, str]] | None = None


@pytest.fixture
def write(definition: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """``write(phase=...)``: the file of a definition with these fields changed."""

    def write(**changed: object) -> Path:
        file = tmp_path / "definition.json"
        file.write_text(json.dumps({**definition, **changed}))
        return file

    return write


@pytest.fixture
def opened() -> Iterator[list[tuple[str, str]]]:
    """Every file that is opened and every address that is connected to, meanwhile."""
    global _events
    if _events is None:
        sys.addaudithook(_note)
    _events = []
    yield _events
    _events = []


def _note(event: str, facts: tuple[object, ...]) -> None:
    if _events is not None and event in {"open", "socket.connect"}:
        _events.append((event, str(facts[0] if event == "open" else facts[1])))


def test_the_first_line_says_what_to_use_and_the_next_what_to_write(
    run: Run, write: Callable[..., Path]
) -> None:
    ended = run("advise", write(), "--queries", 100, "--phases", 2)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    first, *_ = lines = ended.out.splitlines()
    assert first.startswith(
        "Use calibrated: it answers all 100 queries within 10% of the rows asked"
    )
    assert '  "mechanism": {"profile": "calibrated", "queries_per_phase": 50},' in lines
    assert '  "phase": {"min_rows": 2000},' in lines
    mechanisms = [line.split("  ")[0] for line in lines]
    for name in (
        "counts",
        "counts (delta 0)",
        "whole_table",
        "bypass",
        "weights",
        "gated",
        "memory",
    ):
        assert name in mechanisms
    assert "4,000 rows a phase  calibrated" in ended.out
    assert "an error of 20%" in ended.out
    assert "50 queries" in ended.out


def test_it_reads_the_definition_and_nothing_of_the_rows_and_needs_no_server(
    run: Run,
    write: Callable[..., Path],
    write_people: Callable[..., Path],
    opened: list[tuple[str, str]],
) -> None:
    file = write()
    write_people("people")
    opened.clear()
    assert run("advise", file, *SMALL).code == 0
    assert {Path(name) for kind, name in opened if name.startswith(str(file.parent))} == {file}
    assert not [name for kind, name in opened if kind == "socket.connect"]


def test_a_public_sample_is_read_only_when_it_is_named(
    run: Run, write: Callable[..., Path], write_people: Callable[..., Path]
) -> None:
    ended = run("advise", write(), *SMALL, "--sample", write_people("public", n=500))
    assert ended.code == 0, ended.err
    assert "about rows drawn from public.csv" in ended.out
    ended = run("advise", write(), *SMALL, "--sample", write_people("empty", n=0))
    assert ended.code == 1
    assert "empty.csv: it has no rows; omit --sample" in ended.err


def test_any_predicates_on_few_rows_are_for_the_whole_table(
    run: Run, write: Callable[..., Path]
) -> None:
    file = write(accuracy={"error": 0.05}, phase={"min_rows": 2_310})
    ended = run("advise", file, "--queries", 160, "--phases", 1, "--workload", "predicates")
    assert ended.out.startswith("Use whole_table: it answers all 160 queries within 5%")
    assert "spends all of a row's lifetime budget." in ended.out
    assert '"mechanism": {"profile": "whole_table"},' in ended.out


def test_thresholds_are_about_one_attribute_of_numbers(
    run: Run, write: Callable[..., Path]
) -> None:
    file = write(phase={"min_rows": 40_000})
    ended = run("advise", file, *SMALL, "--workload", "thresholds")
    assert ended.code == 0, ended.err
    assert "Write this in the definition, with the attribute age alone:" in ended.out
    assert "kind threshold" in ended.out
    assert "kind median" in ended.out
    assert ended.err == (
        "note: there are only 12 different queries of this kind; the others are free repeats\n"
    )
    ended = run("advise", file, *SMALL, "--workload", "thresholds", "--attribute", "city")
    assert ended.code == 1
    assert "--attribute: city is not an attribute of type number; name one of age" in ended.err
    ended = run("advise", file, *SMALL, "--attribute", "age")
    assert ended.code == 2
    assert "--attribute needs --workload thresholds" in ended.err


def test_a_pure_promise_is_kept_by_counts(run: Run, write: Callable[..., Path]) -> None:
    file = write(privacy={"epsilon": 1.0, "delta": 0})
    ended = run("advise", file, *SMALL, "--rows-per-phase", 10**17)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert ended.out.startswith(
        "Use counts under a pure promise: it answers all 40 queries within 10% of the rows asked"
    )
    assert ended.out.count("its promise needs a delta above 0") == 8


@pytest.mark.parametrize("workload", ["conjunctions", "thresholds"])
@pytest.mark.parametrize(
    ("rows", "delta"), [(2_000, 1e-9), (2_000, 0), (60, 1e-9), (10**12, 1e-13)]
)
def test_what_it_says_to_write_is_a_definition(
    run: Run, write: Callable[..., Path], workload: str, rows: int, delta: float
) -> None:
    privacy = {"epsilon": 1.0, "delta": delta}
    file = write(privacy=privacy)
    ended = run("advise", file, *SMALL, "--rows-per-phase", rows, "--workload", workload)
    lines = [line for line in ended.out.splitlines() if line.startswith('  "')]
    assert len(lines) >= 2
    said = json.loads("{" + "".join(lines).rstrip(",") + "}")
    written = write(**{"privacy": privacy, **said})
    assert run("dataset", "check", written).code == 0


def test_a_delta_that_no_definition_of_such_phases_may_have_is_refused(
    run: Run, write: Callable[..., Path]
) -> None:
    file = write(privacy={"epsilon": 1.0, "delta": 1e-3})
    assert run("advise", file, *SMALL, "--rows-per-phase", 1000).code == 0
    ended = run("advise", file, *SMALL, "--rows-per-phase", 1001)
    assert ended.code == 1
    assert "privacy.delta: it is above 1/phase.min_rows" in ended.err


def test_a_large_epsilon_is_said_in_odds_of_guessing(run: Run, write: Callable[..., Path]) -> None:
    ended = run("advise", write(privacy={"epsilon": 4.0, "delta": 1e-9}), *SMALL)
    assert ended.err.startswith(
        "warning: privacy.epsilon 4 is large: for someone who guesses about"
    )
    assert "even odds into 54.6 to 1" in ended.err


def test_too_few_rows_and_too_large_a_delta_are_said_and_what_would_do(
    run: Run, write: Callable[..., Path]
) -> None:
    file = write(privacy={"epsilon": 1.0, "delta": 1e-3}, accuracy={"error": 0.02})
    ended = run("advise", file, *SMALL, "--rows-per-phase", 100)
    assert ended.code == 0
    delta, error = ended.err.splitlines()
    assert delta.startswith("warning: privacy.delta 0.001 is large for phases of 100 rows")
    assert error.startswith(
        "warning: phases of 100 rows are too small for an error of 2%: not even one"
    )
    assert "the smallest is " in error
    assert error.endswith(" rows a phase")
    assert ended.out.startswith("No mechanism answers all 40 queries within 2% of the rows asked.")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--queries", 0], 2, "Invalid value for '--queries'"),
        ([], 2, "Missing option '--queries': DEFINITION has no workload"),
        (["--queries", 5, "--workload", "medians"], 2, "is not one of 'conjunctions'"),
        (
            ["--queries", 5, "--rows-per-phase", 2**61],
            1,
            "--rows-per-phase: all phases have more than",
        ),
    ],
)
def test_slips_are_met_with_the_option_and_the_fix(
    run: Run, write: Callable[..., Path], words: list[object], code: int, said: str
) -> None:
    ended = run("advise", write(), *words)
    assert ended.code == code
    assert said in ended.err


def test_a_bad_definition_is_met_with_the_field_and_the_fix(
    run: Run, write: Callable[..., Path], tmp_path: Path
) -> None:
    ended = run("advise", write(accuracy={"error": 2.0}), "--queries", 5)
    assert ended.code == 1
    assert "accuracy.error: it is too large" in ended.err
    rows = tmp_path / "people.csv"
    rows.write_text("city,age\nBonn,33\n")
    ended = run("advise", rows, "--queries", 5)
    assert ended.code == 1
    assert ended.err.startswith("error: people.csv: ")


TILES = [
    {"group_by": ["city"], "window": {"last_phases": 1}},
    {"attribute": "age"},
    {"where": {"attribute": "age", "ge": 45}},
]


def test_the_tiles_of_a_definition_are_asked_after_each_phase(
    run: Run, write: Callable[..., Path]
) -> None:
    tiled = {"profile": "calibrated", "workload": TILES}
    file = write(mechanism=tiled, phase={"min_rows": 20_000})
    ended = run("advise", file, "--phases", 2)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert re.match(
        r"Use calibrated.*: it answers all 3 tiles after each of 2 phases within 10%", ended.out
    )
    assert "calibrated (not declared)" in ended.out
    assert "answers no tables, sums or averages" in ended.out
    assert "The trial asked each tile after each of 2 phases." in ended.out
    more = run("advise", file, "--phases", 2, "--queries", 8)
    assert "all 3 tiles after each of 2 phases and 8 queries more within 10%" in more.out
    assert "The trial asked 8 queries about synthetic rows" in more.out


def test_it_says_what_one_query_of_each_kind_takes(run: Run, write: Callable[..., Path]) -> None:
    ended = run("advise", write(phase={"min_rows": 20_000}), *SMALL)
    prices = dict(
        re.findall(
            r"^(a count|a table|the average of age)\b.*  ([\d.]+)%$", ended.out, re.MULTILINE
        )
    )
    assert len(prices) == 3
    assert re.search(
        r"^a count of [\d,]+ rows, within 5% of itself +[\d.]+%$", ended.out, re.MULTILINE
    )


def test_counts_are_recommended_with_what_they_cannot_do(
    run: Run, write: Callable[..., Path]
) -> None:
    many = [f"c{i}" for i in range(300)]
    names = [{"name": n, "type": "category", "values": many} for n in ("city", "age")]
    file = write(attributes=names, accuracy={"error": 0.02}, phase={"min_rows": 20_000})
    ended = run("advise", file, *SMALL)
    assert ended.out.startswith("Use counts: it answers all 40 queries")
    assert (
        "It answers single counts only. For tables, sums and averages use calibrated" in ended.out
    )


def test_where_values_are_kept_an_average_is_of_their_range(
    run: Run, write: Callable[..., Path], definition: dict[str, Any]
) -> None:
    """The trial of thresholds keeps one attribute alone, and no values."""
    kept = [
        {**one, "measure": {"unit": 1, "low": 0, "high": 200}} if one["type"] == "number" else one
        for one in definition["attributes"]
    ]
    assert kept != definition["attributes"]
    file = write(attributes=kept)
    ended = run("advise", file, "--queries", 20, "--phases", 1)
    assert ended.code == 0, ended.err
    assert "within 2 (1% of its range)" in ended.out
    tiles = {"profile": "calibrated", "workload": [{"attribute": "age"}, {"group_by": ["city"]}]}
    assert run("advise", write(attributes=kept, mechanism=tiles), "--phases", 1).code == 0
    (name,) = [one["name"] for one in kept if one["type"] == "number"]
    ended = run("advise", file, "--queries", 5, "--workload", "thresholds", "--attribute", name)
    assert ended.code == 0, ended.err


def test_a_mechanism_that_a_definition_names_plays_no_part(
    run: Run, write: Callable[..., Path]
) -> None:
    papers = {"profile": "memory", "queries_per_phase": 100, "phases": 12}
    file = write(accuracy={"error": 0.02}, mechanism=papers, phase={"min_rows": 30_000})
    named = run("advise", file, *SMALL)
    assert named.code == 0, named.err
    file = write(accuracy={"error": 0.02}, phase={"min_rows": 30_000})
    assert run("advise", file, *SMALL).out == named.out


def test_help_says_that_the_sample_must_be_public(run: Run) -> None:
    said = " ".join(run("advise", "--help").out.split())
    assert "reads no private row" in said
    assert "A PUBLIC file from which the trial draws its rows" in said
    assert "The number of different queries in the life of the data set. Repeats are free." in said


def test_the_page_quotes_prices_that_still_hold() -> None:
    page = (ROOT / "docs/mechanisms.md").read_text()
    text = (ROOT / "examples/definition.json").read_text()
    definition = Definition.read(json.loads(text))
    need = Need(
        universe=build(definition)[0],
        privacy=Privacy(definition.privacy.epsilon, definition.privacy.delta),
        accuracy=Accuracy(definition.accuracy.error, definition.accuracy.failure_probability),
        n_rows=definition.phase.min_rows,
        phases=12,
        queries=2_000,
    )
    for estimate in estimates(need):
        (line,) = re.findall(rf"^{re.escape(estimate.name)}  .*$", page, re.MULTILINE)
        for number in (estimate.rows, estimate.queries):
            assert number is None or f" {_number(number)} " in f"{line} "
        assert estimate.error is None or _percent(estimate.error) in line
