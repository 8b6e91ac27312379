"""Dates and ordered categories through the worker: from the rows as they are sent to the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp import sql
from stream_dp.audit.look_facts import sizes_of
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.rows.frames import ARROW, arrow_stream, frame_columns
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition
from stream_dp.pipeline.intake.sources import Packing, TopicSource
from stream_dp.profiles.builder import build, universe_of

ROOT = Path(__file__).parents[2]
MONTH = {
    "name": "month",
    "type": "date",
    "by": "month",
    "from": "2026-01-01",
    "until": "2026-05-01",
    "timezone": "Europe/Berlin",
    "epoch": "ms",
    "missing": True,
}
HOUR = {"name": "hour", "type": "date", "by": "hour_of_day", "timezone": "Europe/Berlin"}
SIZE = {"name": "size", "type": "category", "values": ["S", "M", "L"], "ordered": True}
ATTRIBUTES: list[dict[str, Any]] = [MONTH, HOUR, SIZE]

ROWS: list[tuple[Any, str, str, int]] = [
    ("2026-01-31T23:30Z", "2026-01-31T23:30Z", "S", 9_000),  # 1 February, 0:30 in Berlin
    ("2026-03-14", "2026-03-14T10:00+01:00", "M", 8_000),
    (1_775_000_000_000, "2026-03-14 10:59:59.999", "L", 3_000),  # 1 April
    ("2025-12-31", "2026-07-01T08:30Z", "XL", 2_000),
    ("14.03.2026", "2026-03-14T23:00", "L", 2_000),
]
MONTHS = {
    "2026-02": 9_000,
    "2026-03": 8_000,
    "2026-04": 3_000,
    "< 2026-01": 2_000,
    "missing": 2_000,
}
TRUTHS: dict[str, tuple[dict[str, Any], int]] = {
    "from": ({"attribute": "month", "ge": "2026-03-01"}, 11_000),
    "cut-free": ({"attribute": "month", "between": ["2026-02", "2026-03-31"]}, 17_000),
    "early": ({"attribute": "month", "lt": "2026-01"}, 2_000),
    "morning": ({"attribute": "hour", "between": [9, 11]}, 13_000),
    "large": ({"attribute": "size", "gt": "S"}, 13_000),
    "both": ({"all": [{"attribute": "size", "le": "M"}, {"attribute": "month", "eq": "2026-Q1"}]}, 17_000),
}  # fmt: skip


def send(world: Any, form: str) -> None:
    if form == "cells":
        cells = [{"month": m, "hour": h, "size": s, "count": n} for m, h, s, n in ROWS]
        world.batch("flights", "all", cells=cells)
        return
    for number, (month, hour, size, n) in enumerate(ROWS):
        for start in range(0, n, 1_000):
            row, name = {"month": month, "hour": hour, "size": size}, f"b{number}-{start}"
            if form == "columns":
                columns = {key: [value] * 1_000 for key, value in row.items()}
                world.batch("flights", name, columns=columns)
            else:
                world.batch("flights", name, rows=[row] * 1_000)


@pytest.mark.parametrize("form", ["cells", "columns", "rows"])
async def test_conditions_and_groups_are_about_whole_periods_in_each_form_of_a_batch(
    world: Any, form: str
) -> None:
    def ask(world: Any) -> None:
        for name, (where, _) in TRUTHS.items():
            world.ask("flights", name, where)
        world.ask("flights", "each", kind="table", group_by=["month"])
        world.ask("flights", "cut", {"attribute": "month", "ge": "2026-03-14"})

    define = {"attributes": ATTRIBUTES, "synthetic_rows": 500, "phase": {"min_rows": 24_000}}
    await world.run(rounds=(lambda world: world.define("flights", **define),))
    await world.run(rounds=(lambda world: send(world, form),))
    await world.run(rounds=(ask,))
    assert world.complaints() == []
    for name, (_, rows) in TRUTHS.items():
        answer = world.answer(name)
        assert abs(answer["value"] - rows / 24_000) <= answer["error_bar"] < 0.05
    table = world.answer("each")["table"]
    assert table["labels"] == [
        ["< 2026-01", *(f"2026-0{n}" for n in range(1, 5)), ">= 2026-05", "missing"]
    ]
    for label, value in zip(table["labels"][0], table["values"], strict=True):
        assert value == pytest.approx(MONTHS.get(label, 0) / 24_000, abs=0.05)
    assert world.answer("cut")["reason"]["code"] == "cuts_bin"
    assert world.answer("cut")["reason"]["message"] == (
        "where.ge: this cuts the period 2026-03 of month; ask >= 2026-03 or >= 2026-04"
    )
    synthetic = world.released("synthetic")[-1]["columns"]
    assert synthetic["month"]["labels"] == [*table["labels"][0][:-1], None]
    assert synthetic["hour"]["labels"][:2] == ["00", "01"]


@pytest.mark.parametrize("form", ["arrow", "frame"])
async def test_times_of_data_frames_and_arrow_tables_count_alike(world: Any, form: str) -> None:
    """The client sends a frame as text, and a table as it is."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    times = pd.to_datetime(["2026-01-31T23:30Z", "2026-03-14T09:00Z", None, "2026-03-14T09:59Z"])
    frame = pd.DataFrame({"month": times, "hour": times, "size": ["S", "M", "L", "S"]})
    names = list(frame.columns)
    frame = pd.concat([frame] * 5_000, ignore_index=True)

    def send(world: Any) -> None:
        if form == "arrow":
            headers = {"content-type": ARROW, "batch_id": b"all"}
            value = arrow_stream(pa.Table.from_pandas(frame, preserve_index=False), names)
            world.produce("batches", value, key="flights", headers=headers)
        else:
            columns = json.loads(to_json(frame_columns(frame, names)))
            world.batch("flights", "all", columns=columns)

    def ask(world: Any) -> None:
        for name in ("month", "hour"):
            world.ask("flights", name, kind="table", group_by=[name])

    define = {"attributes": ATTRIBUTES, "mechanism": {"base_share": 0.0}}
    await world.run(rounds=(lambda world: world.define("flights", **define),))
    await world.run(rounds=(send,))
    await world.run(rounds=(ask,))
    if form == "frame":  # the referee reads batches in JSON alone
        assert world.complaints() == []
    truths = {
        "month": {"2026-02": 0.25, "2026-03": 0.5, "missing": 0.25},
        "hour": {"00": 0.5, "10": 0.5},  # a missing one counts in the first cell
    }
    for name, truth in truths.items():
        table = world.answer(name)["table"]
        for label, value in zip(table["labels"][0], table["values"], strict=True):
            assert value == pytest.approx(truth.get(label, 0.0), abs=0.03)


async def test_ranges_of_many_days_are_measured_in_groups_whose_prices_can_be_checked(
    world: Any,
) -> None:
    days = {"name": "day", "type": "date", "by": "day", "from": "2026-01-01"}
    many = {
        "name": "grade",
        "type": "category",
        "values": list("abcdefghijklmnopqrstuvwxyz"),
        "ordered": True,
    }
    rows = [
        {"day": f"2026-{m:02}-{d:02}", "grade": "agmsy"[m % 5]}
        for m in range(1, 13)
        for d in range(1, 29)
    ]
    tiles: list[dict[str, Any]] = [
        {"where": {"attribute": "day", "between": ["2026-02-01", "2026-09"]}},
        {"where": {"attribute": "grade", "lt": "n"}},
        {"group_by": ["grade"]},
    ]

    def define(world: Any) -> None:
        world.define("flights", attributes=[days, many], mechanism={"workload": tiles})

    def ask(world: Any) -> None:
        world.ask("flights", "range", tiles[0]["where"])
        world.ask("flights", "grade", tiles[1]["where"])

    await world.run(rounds=(define,))
    cells = [{**row, "count": 100} for row in rows]
    await world.run(rounds=(lambda world: world.batch("flights", "all", cells=cells),))
    await world.run(rounds=(ask,))
    assert world.complaints() == []  # the price checker counts the cells on its own
    truths = {"range": 8 / 12, "grade": sum("agmsy"[m % 5] < "n" for m in range(1, 13)) / 12}
    for name, truth in truths.items():
        answer = world.answer(name)
        assert abs(answer["value"] - truth) <= answer["error_bar"] <= 0.02


def test_a_source_sends_each_date_as_the_label_of_its_cell() -> None:
    universe = universe_of(Definition.read(_definition(ATTRIBUTES)))
    source = TopicSource.read({"version": 1, "dataset": "flights", "topic": "t"})
    packing = Packing(source, universe, source.paths(universe))
    rows = [(m, h, s) for m, h, s, _ in ROWS] * 2
    names = universe.names
    direct = universe.encode_columns(
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    )
    sent = json.loads(packing.batch(_range(len(rows)), [list(row) for row in rows]))["columns"]
    assert sent["month"][:2] == ["2026-02", "2026-03"]
    for found, expected in zip(universe.encode_columns(sent).codes, direct.codes, strict=True):
        np.testing.assert_array_equal(found, expected)


def _range(n_rows: int) -> Any:
    from stream_dp.messages import SourceRange

    return SourceRange(topic="t", id="AAAA", partition=0, first=0, last=n_rows - 1)


def _definition(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": "flights",
        "attributes": attributes,
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02, "failure_probability": 0.01},
        "phase": {"min_rows": 20_000},
    }


@pytest.mark.parametrize(
    ("by", "first", "until"),
    [
        ("year", "2020-01-01", "2027-01-01"),
        ("quarter", "2020-04-01", "2027-01-01"),
        ("month", "2020-02-01", "2021-01-01"),
        ("week", "2026-01-05", "2026-03-02"),
        ("day", "2024-02-28", "2024-03-02"),
        ("hour", "2026-03-28T22:00", "2026-03-29T05:00"),
        *((by, "2024-01-01", None) for by in ("year", "quarter", "month", "week", "day", "hour")),
        ("day", "2024-02-29", None),
        ("week", "2026-01-05", None),
        *((by, None, None) for by in ("weekday", "month_of_year", "hour_of_day")),
    ],
)
@pytest.mark.parametrize("missing", [True, False])
def test_the_price_checker_counts_the_cells_of_a_date_by_itself(
    by: str, first: str | None, until: str | None, missing: bool
) -> None:
    spec = {
        "name": "d",
        "type": "date",
        "by": by,
        "from": first,
        "until": until,
        "missing": missing,
    }
    definition = Definition.read(_definition([spec]))
    assert sizes_of(definition) == tuple(universe_of(definition).shape)


def test_a_definition_with_dates_written_by_an_earlier_release_stays_readable() -> None:
    stored = (ROOT / "tests/golden/definitions/dates-v1.json").read_bytes()
    read = Definition.read(json.loads(stored))
    assert read.to_bytes() == stored
    universe, _ = build(read)
    labels = {attribute.name: attribute.labels for attribute in universe.attributes}
    assert labels["ordered_at"][:2] == ("< 2026-01", "2026-01")
    assert labels["ordered_at"][-2:] == (">= 2028-01", "missing")
    assert (labels["shipped_on"][1], labels["shipped_on"][-1]) == ("2026-W02", ">= 2026-W10")
    assert labels["weekday"] == ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def test_definitions_without_dates_and_orders_have_the_bytes_that_they_always_had() -> None:
    plain = {"name": "size", "type": "category", "values": ["S", "M"]}
    written = Definition.read(_definition([{**plain, "ordered": False}])).to_bytes()
    assert written == Definition.read(_definition([plain])).to_bytes()
    assert b"ordered" not in written


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"from": "2026-1-1"}, "attributes.0.from"),
        ({"from": None}, "attributes.0.from"),
        ({"by": "decade"}, "attributes.0.by"),
        ({"timezone": "Mars"}, "attributes.0.timezone"),
        ({"epoch": "us"}, "attributes.0.epoch"),
        ({"until": "2026-01-15"}, "attributes.0.until"),
        ({"first": "2026-01-01"}, "attributes.0"),
    ],
)
def test_a_definition_that_cannot_hold_is_refused_at_its_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        universe_of(Definition.read(_definition([{**MONTH, **changes}])))
    assert refused.value.field == field


def test_sql_about_dates_selects_the_rows_that_it_is_about() -> None:
    """What SQL says of a row, compared with the compiled condition on each cell."""
    from stream_dp.core.queries.conditions import compile_where

    universe = universe_of(Definition.read(_definition(ATTRIBUTES)))
    for text, labels in {
        "month >= DATE '2026-03-01'": {"2026-03", "2026-04", ">= 2026-05"},
        "NOT month >= DATE '2026-03-01'": {"< 2026-01", "2026-01", "2026-02"},
        "EXTRACT(MONTH FROM month) = 3": {"2026-03"},
        "EXTRACT(MONTH FROM month) <> 3": {"2026-01", "2026-02", "2026-04"},
        "NOT (EXTRACT(QUARTER FROM month) = 1)": {"2026-04"},
        "DATE_TRUNC('quarter', month) = DATE '2026-01-01'": {"2026-01", "2026-02", "2026-03"},
        "month IS NULL": {"missing"},
    }.items():
        found = compile_where(universe, sql.parse(text, ATTRIBUTES)["where"])
        chosen = [universe.attributes[0].labels[cell] for cell in np.flatnonzero(found.mask)]
        assert (found.attributes, set(chosen)) == ((0,), labels), text


async def test_quantiles_of_dates_are_periods(world: Any) -> None:
    def ask(world: Any) -> None:
        fields = sql.parse("SELECT QUANTILE(month, 0.5)", ATTRIBUTES)
        world.ask("flights", "middle", **fields)
        world.ask("flights", "largest", kind="quantile", attribute="size", rank=0.5)

    settings = {"mechanism": {"base_share": 0.0}}
    define = {"attributes": ATTRIBUTES, **settings}
    await world.run(rounds=(lambda world: world.define("flights", **define),))
    await world.run(rounds=(lambda world: send(world, "cells"),))
    await world.run(rounds=(ask,))
    assert world.complaints() == []
    found = world.answer("middle")["found"]
    assert found["label"] in ("2026-02", "2026-03")  # the exact one, or its neighbour
    assert world.answer("largest")["reason"]["message"] == (
        "attribute: size is a category and unlisted values have no order; "
        "ask for a quantile of a number or a date"
    )
