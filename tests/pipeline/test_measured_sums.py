"""Sums of kept values through the worker: from the rows as they are sent to the answers and the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.messages import Definition
from stream_dp.profiles.builder import build
from tests.pipeline.flights import AA, UNMEASURED, asked, asked_in_turn, judged, ran
from tests.pipeline.world import definition

pytestmark = judged

ROOT = Path(__file__).parents[2]
CARRIER = {"name": "carrier", "type": "category", "values": ["AA", "UA"], "other": False}
FARE = {
    "name": "fare",
    "type": "number",
    "edges": [50, 100, 200],
    "missing": True,
    "measure": {"unit": 0.01, "low": 0, "high": 400},
}
PLAIN = {name: value for name, value in FARE.items() if name != "measure"}
SUM: dict[str, Any] = {"kind": "sum", "attribute": "fare"}
EACH: dict[str, Any] = {"group_by": ["carrier"]}
CHEAP = {"attribute": "fare", "lt": 100}

FARES: list[tuple[Any, str, int]] = [
    (19.99, "AA", 3_000),
    ("99.995", "AA", 4_000),
    (50, "UA", 5_000),
    (120.125, "UA", 4_000),
    (1e6, "AA", 100),
    ("-3", "UA", 900),
    (None, "AA", 2_000),
    ("unknown", "UA", 1_000),
]


def kept(fare: Any) -> Fraction | None:
    """What a fare counts for: in cents, between 0 and 400."""
    try:
        number = Fraction(str(fare))
    except ValueError:
        return None
    return Fraction(round(min(max(number, Fraction(0)), Fraction(400)) * 100), 100)


def truth(counts: Callable[[Fraction, str], bool]) -> tuple[float, int]:
    """The sum of what fares count for, and their number."""
    of_rows = [(kept(fare), carrier, n) for fare, carrier, n in FARES]
    chosen = [(fare, n) for fare, c, n in of_rows if fare is not None and counts(fare, c)]
    return float(sum(fare * n for fare, n in chosen)), sum(n for _, n in chosen)


TRUTH = {
    "all": truth(lambda _, __: True),
    "aa": truth(lambda _, carrier: carrier == "AA"),
    "cheap": truth(lambda fare, _: fare < 100 or fare == 100),  # 99.995 counts as 100.00
}


def parts() -> Iterator[tuple[Any, str, int]]:
    """The rows in parts that fit into a batch."""
    for fare, carrier, n in FARES:
        for start in range(0, n, 1_000):
            yield fare, carrier, min(1_000, n - start)


def send(world: Any, form: str) -> None:
    if form == "cells":
        cells = [{"carrier": c, "count": n, **_fare(fare)} for fare, c, n in FARES]
        world.batch("flights", "all", cells=cells)
        return
    for number, (fare, carrier, n) in enumerate(parts()):
        if form == "columns":
            columns = {"carrier": [carrier] * n, "fare": [fare] * n}
            world.batch("flights", f"b{number}", columns=columns)
        else:
            rows = [{"carrier": carrier, **_fare(fare)}] * n
            world.batch("flights", f"b{number}", rows=rows)


def _fare(fare: Any) -> dict[str, Any]:
    return {} if fare is None else {"fare": fare}


async def opened(world: Any, form: str = "cells", **changes: Any) -> None:
    defined = {"attributes": [CARRIER, FARE], "mechanism": UNMEASURED, **changes}
    await ran(world, lambda world: world.define("flights", **defined))
    await ran(world, lambda world: send(world, form))


@pytest.mark.parametrize("form", ["cells", "columns", "rows"])
async def test_sums_and_means_are_of_the_values_in_each_form_of_a_batch(
    world: Any, form: str
) -> None:
    await opened(world, form)
    near = {**SUM, "error": 0.003}
    every, each, cheap = await asked(world, near, near | EACH, {**near, "where": CHEAP})
    for answer, (total, rows) in ((every, TRUTH["all"]), (cheap, TRUTH["cheap"])):
        assert answer["path"] == "measured"
        assert abs(answer["total"] - total) <= answer["total_bar"] <= 0.003 * 20_000 * 400
        assert abs(answer["mean"] - total / rows) <= answer["mean_bar"] < 3.0
        assert "mean_binning" not in answer
        assert "0 to 400" in answer["note"]
        assert "multiples of 0.01" in answer["note"]
        assert "representative" not in answer["note"]
    table, (total, rows) = each["table"], TRUTH["aa"]
    assert abs(table["totals"][0] - total) <= table["total_bars"][0]
    assert abs(table["means"][0] - total / rows) <= table["mean_bars"][0]
    assert "mean_binnings" not in table


async def test_without_measure_an_answer_says_how_wide_the_bin_around_its_mean_is(
    world: Any,
) -> None:
    await opened(world, attributes=[CARRIER, PLAIN])
    every, each = await asked(world, SUM, SUM | EACH)
    assert every["mean_binning"] == 25.0
    assert "representative" in every["note"]
    assert set(each["table"]["mean_binnings"]) <= {None, 25.0, 50.0}


async def test_a_quote_names_the_price_and_a_repeat_is_free(world: Any) -> None:
    await opened(world)
    query = {**SUM, "where": AA}
    price, paid, again = await asked_in_turn(world, {**query, "quote": True}, query, query)
    assert price["privacy_loss"] == paid["privacy_loss"]
    assert paid["privacy_loss"]["share"] > 0.0
    assert again["privacy_loss"]["share"] == 0.0
    assert again["total"] == pytest.approx(paid["total"])
    charges = [entry for entry in world.released("ledger") if entry["kind"] == "charge"]
    (look,) = charges[-1]["looks"]
    assert (look["kind"], look["measured"], look["unit"]) == ("sums", True, 0.01)
    assert look["range"] == [0, 40_000]


async def test_a_base_release_and_tables_never_certify_a_sum_of_values(world: Any) -> None:
    await opened(world, mechanism={"base_share": 0.2})
    table = {"kind": "table", "group_by": ["carrier", "fare"]}
    found = await asked(world, table, {**SUM, **EACH, "count_rows": True})
    assert [answer["path"] for answer in found] == ["certified", "measured"]


async def test_a_tile_for_a_sum_of_values_measures_nothing_in_advance(world: Any) -> None:
    tiles = [{"attribute": "fare"}, {"attribute": "fare", "where": AA}]
    await opened(world, mechanism={"workload": tiles})
    [answer] = await asked(world, SUM)
    assert answer["path"] == "measured"
    _, built = build(Definition.read(_document(mechanism={"workload": tiles})))
    assert built.opening_units(20_000) == 0


async def test_without_budget_the_bars_reach_to_the_ends_of_the_bins(world: Any) -> None:
    """What the rows are was measured by a table; there is nothing left for their values."""
    await opened(world, mechanism={"base_share": 0.9})
    near = {**SUM, "error": 0.0001}
    answer, each = await asked(world, near, near | EACH)
    total, rows = TRUTH["all"]
    assert answer["path"] == "unverified"
    assert abs(answer["total"] - total) <= answer["total_bar"]
    assert abs(answer["mean"] - total / rows) <= answer["mean_bar"]
    assert answer["mean_bar"] > 10.0
    table = each["table"]
    assert abs(table["means"][0] - TRUTH["aa"][0] / TRUTH["aa"][1]) <= table["mean_bars"][0]


# ---------------------------------------------------------------- definitions


def _document(**changes: Any) -> dict[str, Any]:
    return definition("flights", **{"attributes": [CARRIER, FARE], **changes})


def test_the_example_is_a_definition() -> None:
    example = ROOT / "examples/orders.json"
    universe, _ = build(Definition.read(json.loads(example.read_text())))
    (amount,) = universe.measured.values()
    assert amount.name == "amount"
    assert amount.values_within_ends == (10.0, 15.0, 35.0, 75.0, 150.0, 200.0, 0.0)


def test_a_definition_without_measure_has_the_bytes_that_it_always_had() -> None:
    read = Definition.read(_document(attributes=[CARRIER, PLAIN]))
    assert "measure" not in read.to_bytes().decode()
    measured = Definition.read(_document())
    again = Definition.read(json.loads(measured.to_bytes()))
    assert again == measured
    assert measured.without_measures == read != measured


async def test_values_cannot_be_kept_from_some_day_on(world: Any) -> None:
    plain: dict[str, Any] = {"attributes": [CARRIER, PLAIN]}
    for changes in (plain, {"attributes": [CARRIER, FARE]}, plain | {"accuracy": {"error": 0.03}}):
        world.define("flights", **changes)
        await world.run()
    first, second = (one for each in world.rejections().values() for one in each)
    assert first["reason"]["code"] == second["reason"]["code"] == "dataset_exists"
    assert "measure cannot be changed" in first["reason"]["message"]
    assert "measure" not in second["reason"]["message"]


async def test_a_worker_that_loses_values_is_noticed(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that wait lose them when their phase opens; all cells are as they were."""
    concat = Rows.concat

    def forgetful(parts: Sequence[Rows]) -> Rows:
        rows = concat(parts)
        lost = {index: offsets % 1000 for index, offsets in rows.measures.items()}
        lows = np.array([0, 5_000, 10_000, 20_000, 0], dtype=np.uint32)
        kept = {index: np.maximum(each, lows[rows.codes[index]]) for index, each in lost.items()}
        return Rows(rows.codes, rows.counts, kept)

    monkeypatch.setattr(Rows, "concat", forgetful)
    world = make_world()
    await opened(world)
    assert any("units" in complaint for complaint in world.complaints())
