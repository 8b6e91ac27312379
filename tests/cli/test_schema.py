"""``stream-dp schema``: another version of the attributes, in one command, on a worker of this process."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stream_dp.cli.checks.schema_edits import kept_between
from stream_dp.core.rows.measured_values import Measure
from stream_dp.messages import NumberAttribute
from tests.cli.conftest import LastingClient, Run, lasting_client
from tests.client.world_client import WorldSession

START, END = "2026-01-01", "2028-01-01"
VISITS: dict[str, Any] = {
    "version": 1,
    "dataset": "visits",
    "attributes": [
        {"name": "country", "type": "category", "values": ["DE", "FR", "UK"], "missing": True},
        {
            "name": "size",
            "type": "category",
            "values": ["S", "M", "L"],
            "other": False,
            "ordered": True,
        },
        {"name": "age", "type": "number", "edges": [18, 65], "integer": True},
        {
            "name": "paid",
            "type": "number",
            "edges": [10, 50],
            "measure": {"unit": 1, "low": 0, "high": 100},
        },
        {"name": "day", "type": "date", "by": "month", "from": START, "until": END},
        {"name": "member", "type": "boolean", "missing": True},
    ],
    "privacy": {"epsilon": 10.0, "delta": 1e-6},
    "accuracy": {"error": 0.1, "failure_probability": 1e-7},
    "phase": {"min_rows": 1000},
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[LastingClient]:
    """A client of a worker in this process, which all commands get, with the data set ``visits``."""
    session = WorldSession()
    made = lasting_client(session, monkeypatch)
    made.define(VISITS)
    yield made
    session.end()


@pytest.fixture
def schema(run: Run) -> Run:
    """``schema("add-value visits country IT")``: how ``stream-dp schema`` ends with these words."""
    return lambda words, *more: run("schema", *shlex.split(words), *more)


def send(client: LastingClient, n: int = 1000, **columns: list[object]) -> None:
    """Sends n rows, with these columns in place of others or besides."""
    usual: dict[str, list[object]] = {
        "country": ["DE", "IT"],
        "size": ["S"],
        "age": [20, 70],
        "paid": [5],
        "day": ["2026-03-01"],
        "member": [True],
    }
    given = {**usual, **columns}
    client.send("visits", columns={name: (some * n)[:n] for name, some in given.items() if some})


PAYER = '{"name": "payer", "type": "category", "values": ["self", "state"], "missing": true}'
PAYER_OF_ALL = PAYER.replace('"missing": true', '"before": "self"')

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "add-value visits country IT": (
        "country: IT is a value of its own; earlier rows with it stay in other",
        {"values": ("DE", "FR", "UK", "IT")},
    ),
    "add-value visits country IT AT": (
        "country: IT, AT are values of their own; earlier rows with them stay in other",
        {"values": ("DE", "FR", "UK", "IT", "AT")},
    ),
    "add-value visits size XL": (
        "size: XL is a value of its own; earlier rows with it stay in the cell where they counted",
        {"values": ("S", "M", "L", "XL")},
    ),
    f"add-attribute visits '{PAYER}'": (
        "payer is new; earlier rows do not have it: it is missing in them",
        {"name": "payer"},
    ),
    "split visits age 30 12": (
        "age: bins also begin at 12, 30; earlier rows stay in the wider bins that they were in",
        {"edges": (12.0, 18.0, 30.0, 65.0)},
    ),
    "widen visits paid --high 150": (
        "paid: sums count values from 0 to 150; those of earlier rows count within 0 to 100",
        {},
    ),
    "widen visits day --until 2030-01-01": (
        f"day: periods go from {START} to 2030-01-01; earlier rows outside of {START} to {END} stay together",
        {"until": "2030-01-01"},
    ),
    "rename visits country land": (
        "land: it was called country; both names work in rows and queries",
        {"name": "land", "was": ("country",)},
    ),
    "rename visits UK GB --of country": (
        "country: UK is called GB; both names work in rows and queries",
        {"values": ("DE", "FR", "GB"), "also": {"UK": "GB"}},
    ),
    "merge visits country FR UK --into DE": (
        "country: FR, UK count as DE, also in earlier rows",
        {"values": ("DE",), "also": {"FR": "DE", "UK": "DE"}},
    ),
    "merge visits size M L --into large": (
        "size: M, L count as large, also in earlier rows",
        {"values": ("S", "large")},
    ),
    "deprecate visits member": (
        "member: rows need not have it any more; it can still be asked about",
        {"deprecated": True},
    ),
}


@pytest.mark.parametrize("words", CASES)
def test_each_change_says_what_it_means_for_earlier_rows(
    client: LastingClient, schema: Run, words: str
) -> None:
    said, fields = CASES[words]
    send(client)
    asked = schema(words)
    assert (asked.code, asked.out) == (1, f"{said}\n")
    assert "pass --yes to put this in force" in asked.err
    assert client.catalog()["visits"].versions is None, "nobody said yes"
    ended = schema(f"{words} --yes")
    end = "visits: version 2 counts from phase 2 on; nothing was spent"
    assert (ended.code, ended.out.splitlines()) == (0, [said, end])
    changed = [one.model_dump() for one in client.catalog()["visits"].attributes]
    assert any(fields.items() <= one.items() for one in changed)


REFUSED = {
    "add-value visits country DE": "country: it has the value DE already",
    "add-value visits age 30": "age: it is a number; a number has edges: use split",
    "add-value visits town Bonn": "town: visits has no such attribute; use one of country",
    'add-attribute visits \'{"name": "payer", "type": "boolean"}\'': 'add "missing": true',
    f"add-attribute visits '{PAYER.replace('payer', 'age')}'": "it takes the place of two attributes",
    "add-attribute visits {": "ATTRIBUTE: ",
    "split visits country 3": "country: it is a category",
    "split visits age 30.5": "an edge is fractional",
    "widen visits paid --high 50": "its bounds are less wide",
    "widen visits age --high 50": "age: its values are not kept",
    "widen visits day --until 2027-01-01": "it has fewer periods",
    "widen visits day": "Give '--low' or '--high'",
    "rename visits town city": "town: visits has no such attribute",
    "rename visits age day": "day: another attribute has or had this name",
    "rename visits UK FR --of country": "use merge --into",
    "merge visits country IT --into DE": "country: it has no value IT",
    "deprecate visits town": "town: visits has no such attribute",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_changed_is_refused_before_anything_is_sent(
    client: LastingClient, schema: Run, words: str
) -> None:
    session: Any = client._session
    session.sent.clear()
    ended = schema(f"{words} --yes")
    assert ended.code in (1, 2)
    assert REFUSED[words] in ended.err
    assert session.sent == []
    unknown = schema("show visitors").err
    assert "there is no data set 'visitors'; did you mean visits?" in unknown


def test_a_file_puts_all_its_attributes_in_force_and_nothing_else(
    client: LastingClient, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "visits.json"

    def write(**changed: object) -> Path:
        file.write_text(json.dumps({**VISITS, **changed}))
        return file

    assert run("schema", "apply", "visits", write()).out == "visits: nothing changes\n"
    country, size, age, *others = VISITS["attributes"]
    changed = [
        {**country, "name": "land", "was": ["country"], "values": ["DE", "FR", "UK", "IT"]},
        {**age, "edges": [18, 30, 65]},
        size,
        *others,
        json.loads(PAYER),
    ]
    ended = run("schema", "apply", "visits", write(attributes=changed), "--yes")
    assert ended.out.splitlines() == [
        "land: it was called country; both names work in rows and queries",
        "land: IT is a value of its own; earlier rows with it stay in other",
        "age: bins also begin at 30; earlier rows stay in the wider bins that they were in",
        "payer is new; earlier rows do not have it: it is missing in them",
        "visits: version 2 counts from phase 1 on; nothing was spent",
    ]
    assert run("schema", "apply", "visits", file).out == "visits: nothing changes\n"
    for document, said in (
        ({"attributes": changed[:-1]}, "there is no payer any more; leave it there"),
        ({**VISITS, "phase": {"min_rows": 7}}, "it has another phase than visits; only attributes"),
        ({**VISITS, "attributes": 3}, "it has no attributes"),
    ):
        file.write_text(json.dumps(document))
        assert said in run("schema", "apply", "visits", file, "--yes").err


def test_versions_are_shown_with_what_they_changed(client: LastingClient, run: Run) -> None:
    assert run("schema", "show", "visits").out.splitlines() == [
        "version 1, from phase 1 on: country, size, age, paid, day, member"
    ]
    assert "version" not in run("dataset", "show", "visits").out
    send(client)
    send(client, 1)
    ended = run("schema", "add-value", "visits", "country", "IT", "--yes")
    assert "version 2 counts from phase 3 on" in ended.out, "a row waits for phase 2"
    send(client, country=["IT"])
    run("schema", "add-attribute", "visits", PAYER_OF_ALL, "--yes")
    ended = run("schema", "deprecate", "visits", "member", "--yes")
    assert "version 4 counts from phase 3 on" in ended.out, "no row of version 2 or 3 has come"
    assert run("schema", "show", "visits").out.splitlines() == [
        "version 1, from phase 1 on: country, size, age, paid, day, member",
        "version 4, from phase 3 on, which is not open yet",
        "  country: IT is a value of its own; earlier rows with it stay in other",
        "  member: rows need not have it any more; it can still be asked about",
        "  payer is new; earlier rows do not have it: it counts as self in them",
    ]
    send(client, member=[], payer=["state"], country=["IT"])
    assert "version 4, from phase 3 on\n" in run("schema", "show", "visits").out
    document = json.loads(run("schema", "show", "visits", "--json").out)
    assert [one["first_phase"] for one in document["versions"]] == [1, 3]
    assert document["versions"][1]["attributes"][-1]["before"] == "self"
    said = run("ledger", "show", "visits").out
    assert "version 4 of the attributes, from phase 3 on" in said
    shown = run("dataset", "show", "visits").out
    assert "these are version 4 of its attributes, which counts from phase 3 on" in shown


def test_values_that_were_found_are_shown_with_how_many_have_them(
    client: LastingClient, run: Run
) -> None:
    find = {"name": "code", "type": "category", "find": {"most": 9, "windows": [1], "share": 0.3}}
    client.define({**VISITS, "dataset": "codes", "attributes": [find]})
    assert "no answer uses them" not in run("schema", "show", "codes").out
    client.send("codes", columns={"code": (["[x] 1"] * 3 + ["b"]) * 250})
    head, *rows, why, end = run("schema", "show", "codes").out.splitlines()[1:]
    assert head.split() == ["code", "since", "phase", "rows", "in", "phases"]
    for row, name, count in zip(rows, ("[x] 1", "b"), (750, 250), strict=True):
        said = re.fullmatch(r"(.+?) +1 +(\d+) ± (\d+) +1 to 1 *", row)
        assert said is not None, row
        assert said[1] == name
        assert abs(int(said[2]) - count) <= int(said[3]) < 250
    assert "too large on average" in why
    assert end == "no answer uses them"
    document = json.loads(run("schema", "show", "codes", "--json").out)
    assert [one["value"] for one in document["found"]] == ["[x] 1", "b"]


ORDERS: dict[str, Any] = {
    "dataset": "orders",
    "attributes": [
        {"name": "paid", "type": "number", "propose": {"bins": 3, "unit": 0.01}, "missing": True},
        {"name": "items", "type": "number", "propose": {"bins": 3}, "integer": True},
        {"name": "member", "type": "boolean"},
    ],
    "privacy": {"epsilon": 10.0, "delta": 1e-6},
    "phase": {"min_rows": 3000},
}
PAID: dict[str, list[object]] = {
    "paid": [2.5, 20.0, 3000.0],
    "items": [1, 2, 7],
    "member": [True, False, True],
}


def test_bins_that_are_proposed_are_shown_and_accepted(
    client: LastingClient, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(ORDERS))
    said = run("dataset", "check", file).out
    assert "paid has 403 bins of a fixed grid at first; the first phase takes 5.00%" in said
    assert "items has 314 bins of a fixed grid at first" in said
    client.define(ORDERS)
    shown = " ".join(run("dataset", "show", "orders").out.split())
    assert "paid number, its bins still to be proposed 403 of a fixed grid, missing" in shown
    assert "whole number, its bins still to be proposed 314 of a fixed grid" in shown
    refused = run("schema", "accept", "orders", "--yes")
    assert (refused.code, "no edges are proposed" in refused.err) == (1, True)
    to_come = "paid has the bins of a fixed grid; others are proposed once phase 1 is open"
    assert to_come in run("schema", "show", "orders").out
    split = run("schema", "split", "orders", "paid", "5", "--yes")
    assert "still to be proposed" in split.err

    rows = {name: values * 1000 for name, values in PAID.items()}
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    ingested = run("ingest", tmp_path / "rows.csv", "--dataset", "orders")
    assert "edges are proposed: stream-dp schema show orders\n" in ingested.out
    proposals = client.catalog()["orders"].proposals or ()
    proposed = {one.attribute: one for one in proposals}
    assert {name: (one.low, one.high) for name, one in proposed.items()} == {
        "paid": (1.25, 6144.0),
        "items": (0.0, 16.0),
    }
    lines = run("schema", "show", "orders").out.splitlines()
    assert re.fullmatch(
        r"paid has the bins of a fixed grid; proposed edges: [\d.]+, [\d.]+", lines[1]
    )
    assert lines[2] == (
        "  nearly all of it is between about 1.25 and 6,144; "
        "accept with: stream-dp schema accept orders"
    )
    assert len(lines) == 5
    ended = run("schema", "accept", "orders", "--yes")
    assert ended.code == 0, ended.err
    assert re.search(
        r"paid: bins begin at [\d.]+, [\d.]+, in place of those of the fixed grid", ended.out
    )
    assert "paid: values are kept for sums from 1.25 to 6144, in units of 0.01" in ended.out
    assert "orders: version 2 counts from phase 2 on; nothing was spent" in ended.out
    paid, items = (
        one for one in client.definition("orders").attributes if isinstance(one, NumberAttribute)
    )
    assert paid.measure is not None
    assert (paid.edges, items.edges) == (proposed["paid"].edges, proposed["items"].edges)
    assert (paid.propose, items.propose, items.measure) == (None, None, None)
    assert (paid.measure.unit, paid.measure.low, paid.measure.high) == (0.01, 1.25, 6144.0)
    assert "no edges are proposed" in run("schema", "accept", "orders", "--yes").err

    client.send("orders", columns=rows)
    below = run("ask", "orders", f"paid < {paid.edges[0]:g}").out
    assert re.search(r": (1,[89]\d\d|2,[01]\d\d) ± \d+ of 6,000 rows\n", below), (
        "both phases say so exactly"
    )
    assert "unrecorded" not in below
    assert len(run("schema", "show", "orders").out.splitlines()) == 5


def test_bins_that_are_accepted_have_the_edges_of_the_workload(
    client: LastingClient, run: Run
) -> None:
    """Tiles of the grid ask about edges of it. Without these no edges could be accepted."""
    tiles: list[dict[str, Any]] = [
        {"where": {"attribute": "paid", "ge": 96}},
        {"where": {"attribute": "paid", "is_missing": True}},
        {"where": {"any": [{"attribute": "paid", "lt": 5}, {"attribute": "member", "eq": True}]}},
        {"group_by": ["member"], "where": {"attribute": "items", "eq": 0}},
    ]
    client.define({**ORDERS, "mechanism": {"workload": tiles}})
    client.send("orders", columns={name: values * 1000 for name, values in PAID.items()})
    ended = run("schema", "accept", "orders", "--yes")
    assert ended.code == 0, ended.err
    edges = [one.edges for one in client.definition("orders").attributes if one.type == "number"]
    assert [{5.0, 96.0} < {*edges[0]}, {0.0, 1.0} < {*edges[1]}] == [True, True], edges


@pytest.mark.parametrize(
    ("low", "high", "unit", "kept"),
    [
        (1.25, 6144, 0.01, {"unit": 0.01, "low": 1.25, "high": 6144.0}),
        (0.0009765625, 0.125, 0.01, {"unit": 0.01, "low": 0.0, "high": 0.13}),
        (-1.3, 2.0, 0.25, {"unit": 0.25, "low": -1.5, "high": 2.0}),
        (0.5, 2.0**30, 0.01, {"unit": 10_000.0, "low": 0.0, "high": 1_073_750_000.0}),
    ],
)
def test_values_are_kept_in_whole_units_that_fit(
    low: float, high: float, unit: float, kept: dict[str, float]
) -> None:
    assert kept_between(low, high, unit) == kept
    Measure(**kept)


def test_answers_over_several_versions_say_what_older_rows_do_not_tell(
    client: LastingClient, run: Run
) -> None:
    send(client)
    run("schema", "add-value", "visits", "country", "IT", "--yes")
    run("schema", "rename", "visits", "age", "years", "--yes")
    send(client, country=["DE", "IT", "IT", "IT"], age=[], years=[20])
    lines = run("ask", "SELECT country, COUNT(*) FROM visits GROUP BY country").out.splitlines()
    head, *rows, remark, _ = lines
    assert "unrecorded at most" in head
    assert remark.startswith("all of this is recorded since phase 2; unrecorded rows are older")
    more = {row.split()[0]: int(row.replace("█", "").split()[-1].replace(",", "")) for row in rows}
    assert more.pop("IT") > 400, "half of the first phase is in other, and may be from IT"
    assert set(more.values()) == {0}
    one = run("ask", "visits", "country = 'IT'").out
    assert re.search(r"[0-9,]+ ± [0-9]+ of 2,000 rows; up to [0-9,]+ more unrecorded\n", one)
    both = [run("ask", "visits", f"{name} >= 18", "--id", name).out for name in ("age", "years")]
    assert both[0].splitlines()[0] == both[1].splitlines()[0]
    assert "recorded" not in both[0]
    by_phase = run(
        "ask", "SELECT phase, COUNT(*) AS n FROM visits WHERE country = 'IT' GROUP BY phase"
    )
    head, _, second, *notes = by_phase.out.splitlines()
    assert "n, unrecorded at most" in head
    assert second.split()[-1] == "0"
    assert sum("recorded since phase 2" in note for note in notes) == 1


def test_sums_say_up_to_where_their_bounds_are_narrower(client: LastingClient, run: Run) -> None:
    """Half of the rows say 140, which counts for 100 in phase 1."""
    send(client, paid=[20, 140])
    run("schema", "widen", "visits", "paid", "--high", "150", "--yes")
    send(client, paid=[20, 140])
    said = run("ask", "SELECT SUM(paid), AVG(paid) FROM visits").out
    narrower = "up to phase 1, values of paid count within narrower bounds than now"
    assert said.splitlines().count(narrower) == 1
    assert narrower in run("ask", "SELECT country, AVG(paid) FROM visits GROUP BY country").out
    assert "narrower" not in run("ask", "SELECT SUM(paid) FROM visits WHERE phase = 2").out
    by_phase = run("ask", "SELECT phase, SUM(paid) FROM visits GROUP BY phase").out
    assert narrower in by_phase


FILES = {
    "csv": "country,years,size,paid,day,payer\n" + "DE,20,S,20,2026-03-01,state\n" * 500,
    "ndjson": '{"country": "DE", "years": 20, "size": "S", "paid": 20, "day": "2026-03-01"}\n'
    * 500,
}


@pytest.mark.parametrize("kind", [*FILES, "parquet"])
def test_a_file_may_have_former_names_and_lack_columns_of_other_versions(
    client: LastingClient, run: Run, tmp_path: Path, kind: str
) -> None:
    client.define({**VISITS, "phase": {"min_rows": 500}, "dataset": "files"})
    client.send("files", rows=[{"country": "DE", "age": 70, "member": True}] * 500)
    run("schema", "rename", "files", "age", "years", "--yes")
    run("schema", "rename", "files", "years", "age in years", "--yes")
    run("schema", "deprecate", "files", "member", "--yes")
    run("schema", "add-attribute", "files", PAYER_OF_ALL, "--yes")
    file = tmp_path / f"files.{kind}"
    if kind == "parquet":
        pd.DataFrame(map(json.loads, FILES["ndjson"].splitlines())).to_parquet(file)
    else:
        file.write_text(FILES[kind])
    ended = run("ingest", file)
    assert ended.code == 0, ended.err
    lacks = "member" if kind == "csv" else "member, payer"
    assert f"note: files.{kind} has no column for {lacks}, which rows need not have" in ended.err
    answer: Any = client.ask("files", "\"age in years\" < 65 AND payer = 'self'")
    assert abs(answer.count - (0 if kind == "csv" else 500)) < 200
