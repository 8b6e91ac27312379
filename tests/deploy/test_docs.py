"""What the pages say is true of the code, as far as a machine can tell."""

from __future__ import annotations

import json
import math
import re
import runpy
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from stream_dp.cli.automate import dashboard_command
from stream_dp.core.budget.accountant import UNITS, Budget, epsilon_of
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.queries import conditions
from stream_dp.core.residual.base_release.base_plan import base_plan
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.rows import column_values, encoded_rows, universe
from stream_dp.core.rows.attributes import attribute_base
from stream_dp.errors import InvalidInput
from stream_dp.messages import (
    DATASET_PATTERN,
    MAX_SYNTHETIC_ROWS,
    MOST_LINES,
    MOST_STANDING,
    TOPICS,
    Definition,
    KindsSpec,
    MechanismSpec,
)
from stream_dp.messages.json_reader import MAX_NESTING
from stream_dp.messages.message_base import validated
from stream_dp.messages.standing_query import LONGEST_ID
from stream_dp.pipeline.intake import backlog
from stream_dp.pipeline.queries import standing_queries
from stream_dp.pipeline.spending import in_hand
from stream_dp.profiles.line_units import epsilon_of_person
from stream_dp.sql import MOST_QUERIES
from stream_dp.web import page_server, shared_client
from stream_dp.web.http_api import bodies, openapi

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """Anchors as code hosts make them from headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _dead_links(page: Path) -> list[str]:
    dead = []
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(link)
    return dead


def test_what_the_page_for_persons_says_follows_from_its_definition() -> None:
    page = (ROOT / "docs/persons.md").read_text()
    written = re.findall(r"^```json definition\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    definition, folds = (Definition.read(json.loads(text)) for text in written)
    definition.check_new()
    assert {*folds.folds.values()} <= {*re.findall(r"`(\w+)`", page)}
    privacy = definition.privacy
    assert privacy.unit is not None
    said = f"promised to {privacy.promised_to}"
    assert f"\n{said}: epsilon 1, delta 1e-09\n{privacy.unit.counting}\n" in page
    assert f"epsilon 1 at delta 1e-09 is {said}; 7 looks" in page
    phases, epsilons = (
        [cell.strip() for cell in row.split("|")]
        for row in re.findall(r"^\| (?:phases|epsilon) \|(.*)\|$", page, re.MULTILINE)
    )
    full = [f"{epsilon_of_person(definition, [1.0] * int(n)):.4f}" for n in phases]
    assert epsilons == full
    spent = re.findall(r"^ +\d  20,000 .* ([\d.]+)% +([\d.]+) +\d$", page, re.MULTILINE)
    shares = [float(share) / 100 for share, _ in spent]
    each = [f"{epsilon_of_person(definition, [share]):.3f}" for share in shares]
    assert each == [epsilon for _, epsilon in spent]
    assert f"has lost at most epsilon {epsilon_of_person(definition, shares):.3f}\n" in page


def test_every_link_leads_somewhere() -> None:
    assert {page.name: dead for page in PAGES if (dead := _dead_links(page))} == {}


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n[a](#one-heading) [b](#another) [c](missing.md)\n")
    assert _dead_links(page) == ["#another", "missing.md"]


def _long_lines(text: str) -> list[str]:
    """Lines of more than 160 characters, but for tables, fences, and comments that say what a table lists."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    return [line for line in lines if len(line) > 160 and not line.startswith(("|", "<!--"))]


def test_no_line_outside_a_table_is_longer_than_160_characters() -> None:
    assert {page.name: long for page in PAGES if (long := _long_lines(page.read_text()))} == {}


def test_a_long_line_is_noticed_where_it_can_be_wrapped() -> None:
    long = "word " * 33
    assert _long_lines(f"short\n{long}\n| {long}|\n```sh\n{long}\n```\n") == [long]


def test_the_site_keeps_the_words_of_a_link_out_of_the_pages_and_the_language_of_a_fence() -> None:
    hook = runpy.run_path(str(ROOT / "tools/mkdocs_hook.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="lab/README.md"))
    files = SimpleNamespace(get_file_from_path=lambda path: path in {"limits.md", "lab/plot.svg"})
    text = (
        "[a](../limits.md#rows) [b](../../README.md#more) [c](http://127.0.0.1:1/) ![d](plot.svg)\n"
    )
    kept = "[a](../limits.md#rows) b [c](http://127.0.0.1:1/) ![d](plot.svg)\n"
    fence = "```json query\n{}\n```\n"
    assert hook(text + fence, page=page, files=files) == kept + "```json\n{}\n```\n"


def test_the_page_for_contributors_leads_to_the_decisions() -> None:
    assert "docs/decisions.md" in LINK.findall((ROOT / "CONTRIBUTING.md").read_text())


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("record on `queries`", TOPICS["queries"].max_value_bytes),
        ("record on `datasets`", TOPICS["datasets"].max_value_bytes),
        ("record on `dimensions`", TOPICS["dimensions"].max_value_bytes),
        ("rows of a public table", MOST_LINES),
        ("queries of one SQL statement", MOST_QUERIES),
        ("record on `batches`", TOPICS["batches"].max_value_bytes),
        ("record the broker takes on `batches`", TOPICS["batches"].max_message_bytes),
        ("nesting of a definition or query", MAX_NESTING),
        ("standing queries of a data set", MOST_STANDING),
        ("all standing queries of a data set together, as JSON", standing_queries.MOST_BYTES),
        ("`query_id` of a standing query", LONGEST_ID),
        ("values in all answers to the queries of one record", backlog.MOST_VALUES),
        ("draws of noise for the queries of one record", in_hand.MOST_DRAWN),
        (
            "characters of one value in a row (of a nested value, its characters as JSON)",
            column_values.MAX_SCALAR,
        ),
        ("nesting of `where`", conditions.MAX_DEPTH),
        ("conditions in `where`", conditions.MAX_NODES),
        ("cells of the attributes that one query touches", conditions.MAX_TOUCHED_CELLS),
        ("attributes of a data set", universe.MAX_ATTRIBUTES),
        ("cells of one attribute", attribute_base.MAX_CELLS),
        ("name of an attribute", attribute_base.MAX_NAME),
        ("value of a category", column_values.MAX_VALUE),
        ("rows that wait, rows of one block", encoded_rows.MAX_ROWS),
        ("`synthetic_rows`", MAX_SYNTHETIC_ROWS),
        ("name of a data set", DATASET_PATTERN.strip("^$")),
        (
            "connections to the port of the pages, and to that of the metrics",
            page_server._MOST_CONNECTIONS,
        ),
        ("head of a request to these ports", int(page_server._HEAD_S)),
        ("body of such a request", bodies.LARGEST),
        ("queries over HTTP that wait for an answer", shared_client._MOST_QUEUED),
        ("queries over HTTP that wait for an answer", int(openapi.LONGEST_WAIT_S)),
        (
            "connection that asks for nothing, or does not read what it is sent",
            int(page_server._IDLE_S),
        ),
    ],
)
def test_the_table_of_limits_says_what_the_code_does(row: str, value: int | str) -> None:
    (limit,) = re.findall(
        rf"^\| {re.escape(row)} \| (.*?) \|", (ROOT / "docs/limits.md").read_text(), re.MULTILINE
    )
    shown = value if isinstance(value, str) else f"{value:,}"
    assert re.search(rf"(?<![\w,]){re.escape(shown)}(?![\w,])", limit), limit


def test_the_script_for_persons_prints_the_numbers_beside_it() -> None:
    page = (ROOT / "docs/audit.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    numbers = [line.split()[1] for line in printed.splitlines()]
    assert numbers == ["2.0697", "3.1833", "5.5243", "11.9749"]
    assert f"({', '.join(numbers)})" in page
    assert set(numbers) <= set((ROOT / "docs/guarantee.md").read_text().split())


THEOREM = re.compile(r"^##+ Theorem (\w+): (.*)$", re.MULTILINE)


def test_the_guarantee_names_every_theorem_and_leads_to_its_proof() -> None:
    proofs = {
        f"proofs/{page.name}#theorem-{number.lower()}-": number
        for page in (ROOT / "docs/proofs").glob("*.md")
        for number, _ in THEOREM.findall(page.read_text())
    }
    guarantee = (ROOT / "docs/guarantee.md").read_text()
    rows = re.findall(r"^- \[(\w+)\]\((.*?-\w+-).*?\): .+$", guarantee, re.MULTILINE)
    assert {link: number for number, link in rows} == proofs
    assert len(rows) == len(proofs) > 40


def test_every_test_that_checks_a_theorem_exists() -> None:
    for page in (ROOT / "docs/proofs").glob("*.md"):
        for theorem in re.split(r"^##+ (?=Theorem)", page.read_text(), flags=re.MULTILINE)[1:]:
            checks = re.findall(r"`(tests/[\w/]+\.py)`", theorem)
            assert checks, theorem.partition("\n")[0]
            assert [path for path in checks if not (ROOT / path).exists()] == []


def test_every_theorem_that_the_code_cites_is_proved() -> None:
    numbers = {
        number
        for page in (ROOT / "docs/proofs").glob("*.md")
        for number, _ in THEOREM.findall(page.read_text())
    }
    cited = {
        number
        for folder in ("stream_dp", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for number in re.findall(r"docs/proofs,\s+Theorems? (\w+)", path.read_text())
    }
    assert cited <= numbers
    assert len(cited) > 20


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(
        rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


def test_the_definitions_in_the_readme_and_the_quick_start_are_accepted() -> None:
    (readme,) = _blocks("README.md", "json")
    same, tiles, with_kinds = _blocks("docs/quickstart.md", "json")
    validated(dashboard_command._Tiles, json.loads(tiles), InvalidInput, quoting=True)
    assert same == readme
    assert Definition.read(json.loads(readme)).dataset == "people"
    kinds = Definition.read(json.loads(readme) | json.loads(with_kinds)).kinds
    assert {name for name in KindsSpec.model_fields if getattr(kinds, name)} == {
        "threshold",
        "mode",
        "between",
    }


def test_the_readme_and_the_quick_start_begin_with_the_same_commands_and_answer() -> None:
    def commands(page: str) -> list[str]:
        (block,) = [text for text in _blocks(page, "sh") if text.startswith("stream-dp up")]
        return [line.partition("#")[0].strip() for line in block.splitlines()]

    assert commands("README.md") == commands("docs/quickstart.md")
    (answer,) = _blocks("README.md", "text")
    assert answer in _blocks("docs/quickstart.md", "text")


def test_the_example_in_plain_words_is_worked_out_right() -> None:
    page = (ROOT / "docs/concepts.md").read_text()
    accuracy = Accuracy(0.02, 0.01)
    budget = Budget.of(Privacy(1.0, 1e-9))
    line = float(budget.rho)

    def sigma(n_phases: int) -> float:
        z = NormalDist().inv_cdf(1 - accuracy.failure_probability / 2)
        return n_phases * 20_000 * accuracy.error / z / n_phases**0.5

    one, three = (1 / (2 * sigma(n) ** 2) / line for n in (1, 3))
    promise = Promise((4, 6), budget, accuracy)
    base = base_plan(promise.axes).release(20_000, promise)
    assert base.units / UNITS == pytest.approx(0.0120, rel=0.01)
    for said in (
        f"`rho` = {line:.5f}",
        f"may be {sigma(1):.1f} rows",
        f"costs {one:.4%} of the line",
        f"for {1 / one:.0f} such counts",
        f"may have {sigma(3):.1f}",
        f"lines {three:.4%}",
        f"from the {math.ceil(0.0120 / three)}th different query",
        f"an epsilon of {epsilon_of(Fraction('0.0120') * budget.rho, 1e-9):.3f} so far",
        f"Half of the line is {epsilon_of(budget.rho / 2, 1e-9):.3f}",
    ):
        assert said in page, said


def _unknown(commands: list[list[str]]) -> str:
    """Commands that the command line does not have; one process for all, since each start takes a while."""
    script = (
        "import sys, json, click; from click.testing import CliRunner; import stream_dp.cli as cli\n"
        "(root,) = [v for v in vars(cli).values() if isinstance(v, click.Group)]\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    if CliRunner().invoke(root, [*words, '--help']).exit_code: print(*words)"
    )
    return subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_every_command_in_the_readme_and_the_quick_start_exists() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs/quickstart.md").read_text()
    found = re.findall(r"^stream-dp ([a-z]+)(?: (create|check)\b)?", pages, re.MULTILINE)
    commands = [[word for word in words if word] for words in sorted(set(found))]
    assert len(commands) > 6
    assert _unknown(commands) == ""
    assert _unknown([["levitate"], ["dataset", "levitate"]]) == "levitate\ndataset levitate\n"


def test_every_mechanism_says_how_it_is_served_and_where_it_is_from() -> None:
    page = (ROOT / "docs/mechanisms.md").read_text()
    heads = re.findall(
        r"^### .+\n\nIn (`.*?`), for (`.*)\.\n\n- \*\*(?:Answers|Is for)\*\*", page, re.MULTILINE
    )
    assert page.count("\n- **Source**: ") == len(heads) == page.count("\nIn `core/")
    core = ROOT / "stream_dp/core"
    parts = [
        "composition",
        "predicate_mechanism",
        "set_interface",
        "easiness",
        "formulas",
        "phase_constants",
        "phased",
        "phase_looks",
    ]
    modules = {
        path.relative_to(core.parent).as_posix()
        for folder in ["baselines", "sparse_vector", "median", "median/consistent_set"]
        for path in (core / folder).glob("[!_]*.py")
        if path.stem not in parts
    }
    modules |= {
        path.relative_to(core.parent).as_posix()
        for path in (core / "kinds").glob("*/[!_]*.py")
        if not path.stem.endswith("_answerer") and "median_mode" not in path.parts
    }
    modules |= {"core/residual/calibrated.py"}
    named = {name for modules_of, _ in heads for name in re.findall(r"`([\w/]+\.py)`", modules_of)}
    assert named >= modules
    served = " ".join(how for _, how in heads)
    for name in KindsSpec.model_fields:
        assert f'"kinds": {{"{name}": ...}}' in served, name
    for spec in get_args(get_args(get_args(MechanismSpec)[0])[0]):
        (profile,) = get_args(spec.model_fields["profile"].annotation)
        assert f'"profile": "{profile}"' in served, profile


def test_the_picture_is_well_formed_and_fits_light_and_dark() -> None:
    picture = (ROOT / "docs/flow.svg").read_text()
    root = ET.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in picture
