"""``dataset check`` and ``advise`` about rows that say whose they are. Needs are small."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.messages import Definition
from stream_dp.profiles.builder import build

Run = Callable[..., Any]
N_ROWS = 20_000


@pytest.fixture
def write(definition: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """``write(rows_per_phase=2)``: the file of a definition that protects persons; None protects rows."""

    def write(rows_per_phase: int | None = 2, **changed: object) -> Path:
        privacy = dict(definition["privacy"])
        if rows_per_phase is not None:
            privacy["unit"] = {"key": "user_id", "rows_per_phase": rows_per_phase, "phases": 3}
        file = tmp_path / "definition.json"
        phase = {"min_rows": N_ROWS}
        file.write_text(json.dumps({**definition, "privacy": privacy, "phase": phase, **changed}))
        return file

    return write


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., Path]:
    """``sample(persons=5000)``: a file of 20,000 rows, each person with as many."""

    def sample(persons: int = 5_000, column: str = "user_id") -> Path:
        rng = np.random.default_rng(1)
        file = tmp_path / "rows.csv"
        with file.open("w", newline="") as opened:
            written = csv.writer(opened)
            written.writerow(["city", "age", "smoker", column])
            for i in range(N_ROWS):
                city, age = rng.choice(["Bonn", "Graz", "Lyon"]), int(rng.integers(10, 60))
                written.writerow([city, age, "true", f"person-{i % persons}"])
        return file

    return sample


def lines_of(ended: Any) -> list[str]:
    assert ended.code == 0, ended.err
    return [" ".join(line.split()) for line in ended.out.splitlines()]


def test_the_owner_sees_what_each_number_of_rows_keeps_and_costs(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path]
) -> None:
    ended = run("dataset", "check", write(), sample())
    lines = lines_of(ended)
    assert "5,000 persons have rows in a phase of 20,000 rows (mean of 1 phase)" in lines
    assert "1 25% 75% 1.00 times" in lines
    assert "2 50% 50% 1.00 times the definition" in lines
    assert "4 100% 0% 1.00 times" in lines
    assert "person-" not in ended.out + ended.err, "no key is shown"
    assert any(line.startswith("if 10,000 of 20,000 rows count, opening a phase") for line in lines)
    assert "a person who stays longer loses more: epsilon 2.33 after 15 phases" in ended.err
    assert "out of reach" not in ended.err


def test_persons_who_are_too_few_for_the_accuracy_are_told_and_only_a_terminal_hears_how_many(
    run: Run,
    write: Callable[..., Path],
    sample: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "accuracy.error 0.1 is out of reach of a phase of 20,000 rows"
    logged = run("dataset", "check", write(), sample(persons=50))
    assert said in logged.err
    assert "50 persons" not in logged.err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert f"{said} by 50 persons" in run("dataset", "check", write(), sample(persons=50)).err


def test_a_column_of_another_name_is_named_and_rows_have_none(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path]
) -> None:
    file = sample(column="customer")
    missing = run("dataset", "check", write(), file)
    assert missing.code != 0
    assert "there is no column user_id" in missing.err
    assert "pass --person" in missing.err
    assert run("dataset", "check", write(), file, "--person", "customer").code == 0
    of_rows = run("dataset", "check", write(None), file, "--person", "customer")
    assert "--person: this data set protects rows; leave it out" in of_rows.err
    assert "--person needs FILE" in run("dataset", "check", write(), "--person", "customer").err


def test_for_life_nothing_is_lost_later_and_the_table_is_about_a_first_phase(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path], definition: dict[str, Any]
) -> None:
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 3, "lifetime": True}
    file = write(privacy={**definition["privacy"], "unit": unit})
    ended = run("dataset", "check", file, sample())
    assert "this is about a first phase" in " ".join(lines_of(ended))
    assert "stays longer" not in ended.err
    words = ("--queries", 40, "--phases", 2, "--sample", sample())
    advised = " ".join(lines_of(run("advise", file, *words)))
    assert "phases for life: " in advised
    assert '"lifetime": true}' in advised
    assert "this is about a first phase" in advised


@pytest.mark.parametrize("declared", [False, True])
def test_a_public_sample_recommends_how_many_rows_count_and_for_how_many_phases(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path], *, declared: bool
) -> None:
    file = write(2 if declared else None)
    words = ("--queries", 40, "--phases", 2, "--sample", sample(), "--person", "user_id")
    ended = run("advise", file, *words)
    lines = lines_of(ended)
    said = re.compile(r"Let (\d+) rows? of a person count in a phase, and promise any (\d) phases?")
    found = next(match for line in lines if (match := said.match(line)))
    assert ("The unit in the definition" in lines) is declared
    document = json.loads(file.read_text())
    written = [line for line in lines if line.startswith('"')]
    for line in written:
        document |= json.loads("{" + line.rstrip(",") + "}")
    unit = document["privacy"]["unit"]
    assert unit == {
        "key": "user_id",
        "rows_per_phase": int(found[1]),
        "phases": int(found[2]),
    }
    build(Definition.read({"version": 1, **document}))
    assert "counts 0% it promises something to rows only" in lines


def test_without_a_sample_nobody_can_say_how_many_rows_a_person_has(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path]
) -> None:
    refused = run("advise", write(), "--queries", 40)
    assert refused.code != 0
    assert "it protects persons, and nobody can guess how many rows a person has" in refused.err
    assert "pass --sample with a PUBLIC file" in refused.err
    refused = run("advise", write(None), "--queries", 40, "--person", "user_id")
    assert "--person: there is no sample that has this column" in refused.err
    words = ("--queries", 40, "--sample", sample(), "--person")
    assert "--person: it is an attribute too" in run("advise", write(None), *words, "city").err
    assert "there is no column nobody" in run("advise", write(None), *words, "nobody").err


def test_a_weak_promise_is_not_recommended_although_it_answers_more(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path]
) -> None:
    """Of 20 phases, a promise for 1 would let a person lose an epsilon of several times the definition's."""
    words = ("--queries", 400, "--phases", 20, "--sample", sample(), "--person", "user_id")
    ended = run("advise", write(None, accuracy={"error": 0.01}), *words)
    lines = lines_of(ended)
    start = next(i for i, line in enumerate(lines) if line.startswith("phases rows_per_phase"))
    rows = [line.split() for line in lines[start + 1 :]]
    tried = [row for row in rows[: rows.index(next(r for r in rows if r[0] == "answers:"))] if row]
    assert [int(row[0]) for row in tried] == [4, 8, 16, 20]
    assert all(float(row[-1]) <= 3.0 for row in tried)
    assert "No promise this strong answers them all." in ended.out
    # What is said of the recommended unit is what its trial has shown, and no second number.
    said = re.search(r"promise any (\d+) phases.*and (\S+)% of the queries are answered", ended.out)
    assert said is not None
    (table,) = [row for row in rows if row[:1] == ["calibrated"]][:1]
    assert table[1] == f"{said[2]}%"


def test_a_sample_with_other_names_of_columns_can_be_read(
    run: Run, write: Callable[..., Path], sample: Callable[..., Path]
) -> None:
    file = sample()
    file.write_text(file.read_text().replace("city,age", "town,years", 1))
    words = ("--queries", 40, "--phases", 2, "--sample", file)
    refused = run("advise", write(None), *words)
    assert "pass --column ATTRIBUTE=COLUMN" in refused.err
    renamed = ("--column", "city=town", "--column", "age=years")
    assert run("advise", write(None), *words, *renamed).code == 0
    assert "--column needs --sample" in run("advise", write(None), "--queries", 4, *renamed).err
