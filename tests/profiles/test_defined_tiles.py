"""Tiles in a definition: what they are planned as, and how a tile that does not fit is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dp.core.kinds.with_kinds import WithKinds
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition
from stream_dp.profiles.builder import build
from stream_dp.profiles.opening_price import Opening, opening_of

DEFINED: dict[str, Any] = {
    "version": 1,
    "dataset": "orders",
    "attributes": [
        {"name": "country", "type": "category", "values": [f"c{n}" for n in range(11)]},
        {"name": "amount", "type": "number", "edges": [5, 10, 20, 50, 100], "missing": True},
        {"name": "category", "type": "category", "values": [f"k{n}" for n in range(300)]},
        {"name": "status", "type": "category", "values": ["paid", "open", "returned"]},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}
PAID = {"attribute": "status", "eq": "paid"}


def read(**mechanism: Any) -> Definition:
    return Definition.read({**DEFINED, "mechanism": mechanism}, quoting=True)


def opening(n_rows: int = 20_000, error: float = 0.02, **mechanism: Any) -> Opening:
    definition = Definition.read(
        {**DEFINED, "accuracy": {"error": error}, "mechanism": mechanism}, quoting=True
    )
    universe, made = build(definition)
    found = opening_of(made, universe.names, n_rows)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "workload",
    [
        [{"where": PAID, "group_by": ["country"], "window": {"last_phases": 7}}],
        [{"attribute": "amount", "where": PAID, "weight": 2.5}, {"group_by": ["status"]}],
        {"tables": ["country", ["country", "status"]], "windows": [1, 7, "all"]},
        {"tables": ["country"]},
    ],
)
def test_a_definition_with_tiles_is_read_back_as_it_was_stored(workload: Any) -> None:
    definition = read(workload=workload, queries_per_phase=20)
    again = Definition.read(json.loads(definition.to_bytes()))
    assert again == definition
    assert hash(again) == hash(definition)
    assert opening(workload=workload, queries_per_phase=20).expected == 20


FAULTS: dict[str, tuple[Any, str, str]] = {
    "an unknown attribute of a condition": (
        [{"group_by": ["country"]}, {"where": {"all": [PAID, {"attribute": "stat", "eq": "x"}]}}],
        "mechanism.workload.1.where.all[1].attribute",
        "there is no such attribute",
    ),
    "an unknown attribute of a table": (
        [{"group_by": ["country", "stat"]}],
        "mechanism.workload.0.group_by[1]",
        "there is no such attribute",
    ),
    "an unknown attribute among tables": (
        {"tables": ["country", ["country", "stat"]]},
        "mechanism.workload.tables.1",
        "there is no such attribute",
    ),
    "a value that is not listed": (
        [{"where": {"attribute": "status", "eq": "pid"}}],
        "mechanism.workload.0.where.eq",
        "",
    ),
    "a bin that is cut": (
        [{"where": {"attribute": "amount", "ge": 7}}],
        "mechanism.workload.0.where.ge",
        "cuts the bin",
    ),
    "no row": (
        [{"where": {"all": [PAID, {"not": PAID}]}}],
        "mechanism.workload.0.where",
        "no row can satisfy it",
    ),
    "all rows": ([{}], "mechanism.workload.0.where", "public"),
    "a sum of words": ([{"attribute": "status"}], "mechanism.workload.0.attribute", "no numbers"),
    "a sum by itself": (
        [{"attribute": "amount", "group_by": ["amount"]}],
        "mechanism.workload.0.group_by",
        "added up",
    ),
    "a field of another name": (
        [{"groupby": ["country"]}],
        "mechanism.workload.0.groupby",
        "unknown",
    ),
    "no tile": ([], "mechanism.workload", "too short"),
    "too many tiles": ([{"group_by": ["country"]}] * 501, "mechanism.workload", "too long"),
    "a window of nothing": (
        {"tables": ["country"], "windows": [1, 0]},
        "mechanism.workload.windows.1",
        "too small",
    ),
    "a weight of 0": (
        [{"group_by": ["country"], "weight": 0}],
        "mechanism.workload.0.weight",
        "too small",
    ),
}


@pytest.mark.parametrize(("workload", "field", "problem"), FAULTS.values(), ids=FAULTS)
def test_a_tile_that_does_not_fit_is_refused_by_its_path_and_with_a_fix(
    workload: Any, field: str, problem: str
) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        build(read(workload=workload))
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert caught.value.fix


def test_tiles_are_planned_next_to_other_kinds_of_queries_too() -> None:
    definition = Definition.read(
        {
            **DEFINED,
            "mechanism": {"workload": {"tables": ["status", "country"]}},
            "kinds": {"median": {"share": 0.1}},
        }
    )
    universe, made = build(definition)
    assert isinstance(made, WithKinds)
    found = opening_of(made, universe.names, 20_000)
    assert found is not None
    assert found.expected == 2


# ---------------------------------------------------------------- words


def test_the_words_say_what_is_free_and_from_which_window_on() -> None:
    found = opening()
    first, *later = found.certifies
    assert first == (
        "any window: tables of one column, tables of two columns, tables of three columns, "
        "conditions on one column (not category)"
    )
    assert all(words.startswith("windows of ") for words in later)
    assert not found.large
    assert not found.scarce
    assert opening(base_share=0.0).certifies == ()
    assert opening(base_share=0.0).share == 0.0


def test_what_synthetic_rows_would_say_little_about_is_named() -> None:
    """A quarter of the rows is moved where noise of the cells adds up to half of the rows."""
    assert opening(base_share=0.9).blurred is None
    assert opening().blurred == "category"
    assert opening(base_share=0.0).blurred == "country, amount, category, status"
    few = opening(3_000, base_share=0.03).blurred
    assert few == "country, category and the pair of the other columns"
    assert opening(2_500).blurred == "category and 3 of the 3 pairs of the other columns"


def test_a_line_that_cannot_pay_for_the_queries_of_a_phase_is_scarce() -> None:
    assert opening(2_000).scarce
    assert opening(2_000).large
    assert not opening(2_000).named
    assert opening(2_000, queries_per_phase=1000).named
    assert not opening(2_000, error=0.2).scarce


def test_the_other_profiles_say_nothing() -> None:
    definition = Definition.read({**DEFINED, "mechanism": {"profile": "counts"}})
    universe, made = build(definition)
    assert opening_of(made, universe.names, 20_000) is None
