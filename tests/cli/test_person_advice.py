"""``dataset check`` and ``advise`` about rows that say whose they are. Needs are small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.messages import Definition
from stream_dp.profiles.builder import build
from tests.cli.conftest import Run, Write

N_ROWS = 20_000
SMALL = ("--queries", 40, "--phases", 2)
UNIT = {"key": "user_id", "rows_per_phase": 2, "phases": 3}


def from_sample(file: Path) -> tuple[str | Path, ...]:
    """The options that read a sample, whose cities are in a column of another name."""
    return "--sample", file, "--column", "city=town"


@pytest.fixture
def definition(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition that protects persons."""
    privacy = {**definition["privacy"], "unit": UNIT}
    return {**definition, "privacy": privacy, "phase": {"min_rows": N_ROWS}}


@pytest.fixture
def of_rows(definition: dict[str, Any]) -> dict[str, Any]:
    """What makes it one that protects rows."""
    return {"privacy": {name: definition["privacy"][name] for name in ("epsilon", "delta")}}


@pytest.fixture
def sample(tmp_path: Path) -> Write:
    """``sample(persons=5000)``: a file of 20,000 rows, each person with as many."""

    def sample(persons: int = 5_000) -> Path:
        draw = np.random.default_rng(1)
        cities, ages = draw.choice(["Bonn", "Graz", "Lyon"], N_ROWS), draw.integers(10, 60, N_ROWS)
        rows = (
            f"{city},{age},true,person-{i % persons}"
            for i, (city, age) in enumerate(zip(cities, ages, strict=True))
        )
        file = tmp_path / "rows.csv"
        file.write_text("\n".join(["town,age,smoker,user_id", *rows]))
        return file

    return sample


def lines_of(ended: Any) -> list[str]:
    assert ended.code == 0, ended.err
    return [" ".join(line.split()) for line in ended.out.splitlines()]


def test_the_owner_sees_what_each_number_of_rows_keeps_and_costs(
    run: Run, write: Write, sample: Write
) -> None:
    ended = run("dataset", "check", write(), sample(), "--column", "city=town")
    persons = "5,000 persons have rows in a phase of 20,000 rows (mean of 1 phase)"
    assert {persons, "2 50% 50% 1.00 times the definition", "4 100% 0% 1.00 times"} <= {
        *lines_of(ended)
    }
    assert "person-" not in ended.out + ended.err, "no key is shown"
    assert "if 10,000 of 20,000 rows count, opening a phase" in ended.out
    assert "a person who stays longer loses more: epsilon 2.33 after 15 phases" in ended.err
    assert "out of reach" not in ended.err


def test_persons_who_are_too_few_for_the_accuracy_are_told_and_only_a_terminal_hears_how_many(
    run: Run, write: Write, sample: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "accuracy.error 0.1 is out of reach of a phase of 20,000 rows"
    logged = run("dataset", "check", write(), sample(persons=50), "--column", "city=town")
    assert said in logged.err
    assert "50 persons" not in logged.err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert (
        f"{said} by 50 persons"
        in run("dataset", "check", write(), sample(persons=50), "--column", "city=town").err
    )


def test_for_life_nothing_is_lost_later_and_the_table_is_about_a_first_phase(
    run: Run, write: Write, sample: Write, of_rows: dict[str, Any]
) -> None:
    file = write(privacy={**of_rows["privacy"], "unit": {**UNIT, "lifetime": True}})
    ended = run("dataset", "check", file, sample(), "--column", "city=town")
    assert "this is about a first phase" in " ".join(lines_of(ended))
    assert "stays longer" not in ended.err
    advised = " ".join(lines_of(run("advise", file, *SMALL, *from_sample(sample()))))
    for said in ("phases for life: ", '"lifetime": true}', "this is about a first phase"):
        assert said in advised


@pytest.mark.parametrize("declared", [False, True])
def test_a_public_sample_recommends_how_many_rows_count_and_for_how_many_phases(
    run: Run, write: Write, sample: Write, of_rows: dict[str, Any], *, declared: bool
) -> None:
    file = write(**({} if declared else of_rows))
    lines = lines_of(run("advise", file, *SMALL, *from_sample(sample()), "--person", "user_id"))
    said = re.compile(r"Let (\d+) rows? of a person count in a phase, and promise any (\d) phases?")
    found = next(match for line in lines if (match := said.match(line)))
    assert ("The unit in the definition" in lines) is declared
    assert "counts 0% it promises something to rows only" in lines
    document = json.loads(file.read_text())
    for line in lines:
        if line.startswith('"'):
            document |= json.loads("{" + line.rstrip(",") + "}")
    rows, phases = map(int, found.groups())
    unit = {"key": "user_id", "rows_per_phase": rows, "phases": phases}
    assert document["privacy"]["unit"] == unit
    build(Definition.read({"version": 1, **document}))


def test_without_a_sample_nobody_can_say_how_many_rows_a_person_has(
    run: Run, write: Write, sample: Write, of_rows: dict[str, Any]
) -> None:
    refused = run("advise", write(), "--queries", 40)
    assert refused.code == 1
    assert "it protects persons, and nobody can guess how many rows a person has" in refused.err
    assert "pass --sample with a PUBLIC file" in refused.err
    advise = ("advise", write(**of_rows), "--queries", 40, *from_sample(sample()), "--person")
    assert "--person: it is an attribute too" in run(*advise, "city").err
    assert "there is no column nobody" in run(*advise, "nobody").err


def test_a_weak_promise_is_not_recommended_although_it_answers_more(
    run: Run, write: Write, sample: Write, of_rows: dict[str, Any]
) -> None:
    """Of 20 phases, a promise for 1 would let a person lose an epsilon of several times the definition's."""
    words = ("--queries", 400, "--phases", 20, *from_sample(sample()), "--person", "user_id")
    ended = run("advise", write(**of_rows, accuracy={"error": 0.01}), *words)
    lines = lines_of(ended)
    start = next(i for i, line in enumerate(lines) if line.startswith("phases rows_per_phase"))
    rows = [line.split() for line in lines[start + 1 :] if line]
    tried = rows[: next(i for i, row in enumerate(rows) if row[0] == "answers:")]
    assert [int(row[0]) for row in tried] == [4, 8, 16, 20]
    assert all(float(row[-1]) <= 3.0 for row in tried)
    assert "No promise this strong answers them all." in ended.out
    # What is said of the recommended unit is what its trial has shown, and no second number.
    said = re.search(r"promise any (\d+) phases.*and (\S+)% of the queries are answered", ended.out)
    assert said is not None
    assert next(row for row in rows if row[0] == "calibrated")[1] == f"{said[2]}%"
