"""The price checker knows every look that a worker takes, agrees to the unit, and misses no forgery."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.audit import Report, verify
from stream_dp.audit.kind_charges import is_approximate
from stream_dp.audit.line_limits import Line
from stream_dp.audit.look_charges import Looks
from stream_dp.audit.numbers import Wrong
from stream_dp.audit.oracle import Oracle
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.sparse_vector import bypass
from stream_dp.messages import Definition
from stream_dp.profiles.builder import line_of
from stream_dp.state import ledger
from tests.pipeline.flights import AA, EVERY_KIND, FLOWN, VERY_LATE
from tests.pipeline.people import chained
from tests.pipeline.world import attributes_with_levels, definition
from tests.slow import rest_is_slow

EARLY = {"attribute": "delay", "lt": 10}
PURE = {"epsilon": 1.0, "delta": 0}
UNIT = {"key": "user_id", "rows_per_phase": 2, "phases": 3}
LARGE = {"epsilon": 20.0, "delta": 1e-6}

# ---------------------------------------------------------------- what happens to a data set

Round = Callable[[Any], object]


def define(**changes: Any) -> Round:
    return lambda world: world.define("flights", **changes)


def cells(world: Any) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)


def many_cells(world: Any) -> None:
    parts = [
        {"carrier": carrier, "cancelled": cancelled, "count": 10**13}
        for carrier, cancelled in (("AA", False), ("AA", True), ("UA", False))
    ]
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", cells=parts)


def rows(world: Any) -> None:
    """21,000 rows, each an entry of its own, so that they can respond."""
    columns = {
        "carrier": ["AA", "UA", "AA"] * 7_000,
        "delay": [5, 45, 20] * 7_000,
        "cancelled": [False, True, False] * 7_000,
    }
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", columns=columns)


def ask(*items: dict[str, Any]) -> Round:
    def asked(world: Any) -> None:
        for item in items:
            world.ask("flights", f"q-{world.next_offset('queries', 'flights')}", **item)

    return asked


def persons_rows(world: Any) -> None:
    """Rows of 7,000 persons with a key, of whom each has three, in two batches."""
    for part in range(2):
        columns = {
            "carrier": ["AA", "UA", "AA"] * 3_500,
            "delay": [5, 45, 20] * 3_500,
            "cancelled": [False, True, False] * 3_500,
            "user_id": [i % 3_500 + 3_500 * part for i in range(10_500)],
        }
        world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", columns=columns)


PREDICATES = ask({"where": AA}, {"where": FLOWN}, {"where": {"all": [AA, FLOWN]}}, {"where": AA})
TABLES = ask(
    {"kind": "sum", "attribute": "delay", "where": AA},
    {"kind": "sum", "attribute": "delay", "group_by": ["cancelled"], "count_rows": True},
    {"kind": "share", "share_of": VERY_LATE, "where": AA},
    {
        "kind": "difference",
        "where": FLOWN,
        "window": {"last_phases": 1},
        "minus_window": {"previous_phases": 1},
    },
    {"kind": "share", "share_of": VERY_LATE, "group_by": ["carrier"], "error": {"value": 0.1}},
    {"where": {"any": [AA, VERY_LATE]}},
    {"kind": "table", "group_by": ["carrier"]},
    {"kind": "table", "group_by": ["carrier", "delay"], "where": FLOWN},
    {"where": AA, "fresh": True},
    {"kind": "table", "group_by": ["delay"], "fresh": True},
)
OF_PERSONS = ask(
    {"kind": "share", "share_of": VERY_LATE, "where": AA, "error": {"value": 0.05}},
    {"kind": "sum", "attribute": "delay", "where": FLOWN},
    {"kind": "sum", "attribute": "delay", "group_by": ["cancelled"], "count_rows": True},
    {"where": {"any": [AA, VERY_LATE]}},
    {"kind": "table", "group_by": ["carrier"]},
    {"where": AA, "fresh": True},
)
RANGES = ask(
    {"where": {"attribute": "delay", "lt": 33}, "error": 0.005},
    {"where": {"all": [AA, {"attribute": "delay", "lt": 41}]}, "error": 0.005},
)
TOGETHER = {"kind": "correlation", "attribute": "delay", "other": "distance"}
PRODUCTS = ask(
    {**TOGETHER, "error": {"value": 0.1}},
    {**TOGETHER, "where": {"attribute": "cancelled", "eq": False}, "error": {"value": 0.2}},
)


def rows_with_two_numbers(world: Any) -> None:
    columns = {
        "delay": [5, 45, 20, -3, 5, 45, 20] * 3_000,
        "distance": [100, 900, 400, 100, 400, 400, 900] * 3_000,
        "cancelled": [False, True, False, False, False, False, True] * 3_000,
    }
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", columns=columns)


QUERIES = ask(
    {"kind": "threshold", "attribute": "delay", "where": VERY_LATE},
    {"kind": "median", "attribute": "delay"},
    {"kind": "mode", "attribute": "cancelled"},
    {"kind": "prefix_batch", "attribute": "delay", "wheres": [EARLY, VERY_LATE]},
    {"kind": "between", "where": AA, "low": 0.2, "high": 0.6},
    {"kind": "between", "where": FLOWN, "low": 0.1, "high": 0.3},
    {"kind": "interior_point", "attribute": "delay", "where": EARLY},
    {"kind": "adaptive_threshold", "attribute": "delay", "where": EARLY},
)


def baseline(**changes: Any) -> list[Round]:
    return [define(**changes), cells, PREDICATES, cells, PREDICATES]


def papers(doubling: bool, representation: str, **mechanism: Any) -> list[Round]:
    def defined(world: Any) -> None:
        settings = {"representation": representation, "doubling": doubling, "hypothesis_rows": 3}
        world.define_papers("flights", **mechanism, **settings)

    return [defined, many_cells, PREDICATES, PREDICATES, many_cells, *[PREDICATES] * 4]


STORIES: dict[str, tuple[list[Round], set[str]]] = {
    "calibrated": (
        [
            define(mechanism={"profile": "calibrated", "base_share": 0}, accuracy={"error": 0.01}),
            *[rows, TABLES] * 2,
        ],
        {"tables", "counts", "sums", "shares"},
    ),
    "calibrated, correlations": (
        [
            define(
                attributes=[
                    {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
                    {"name": "distance", "type": "number", "edges": [300, 600], "integer": True},
                    {"name": "cancelled", "type": "boolean"},
                ],
                mechanism={"profile": "calibrated", "base_share": 0},
            ),
            *[rows_with_two_numbers, PRODUCTS] * 2,
        ],
        {"counts", "sums"},
    ),
    "calibrated, levels": (
        [
            define(
                attributes=attributes_with_levels(),
                mechanism={"profile": "calibrated", "base_share": 0.05},
            ),
            *[rows, RANGES] * 2,
        ],
        {"tables", "counts"},
    ),
    "calibrated, persons": (
        [
            define(
                privacy={"epsilon": 8.0, "delta": 1e-9, "unit": UNIT},
                mechanism={"profile": "calibrated", "base_share": 0},
                phase={"min_rows": 21_000},
            ),
            *[persons_rows, OF_PERSONS] * 2,
        ],
        {"rows", "tables", "counts", "sums", "shares"},
    ),
    "all kinds": (
        [define(kinds=EVERY_KIND, privacy=LARGE), *[rows, QUERIES] * 2],
        {"tables", *EVERY_KIND},
    ),
    "partitions": (
        [define(kinds={"threshold": {"share": 0.1, "partition": True}}), *[rows, QUERIES] * 2],
        {"tables", "threshold"},
    ),
    "gated": (baseline(mechanism={"profile": "gated", "segments": 20}), {"gate"}),
    "counts": (baseline(mechanism={"profile": "counts"}), {"count"}),
    "counts, pure": (baseline(mechanism={"profile": "counts"}, privacy=PURE), {"count"}),
    "whole table": (baseline(mechanism={"profile": "whole_table"}), {"table"}),
    "weights": (baseline(mechanism={"profile": "weights"}), {"gate"}),
    "weights, pure": (baseline(mechanism={"profile": "weights"}, privacy=PURE), {"gate"}),
    "weights, fixed": (baseline(mechanism={"profile": "weights", "growing": False}), {"gate"}),
    "bypass": (baseline(mechanism={"profile": "bypass"}), {"count", "gate"}),
    "bypass, pure": (baseline(mechanism={"profile": "bypass"}, privacy=PURE), {"count", "gate"}),
    **{
        f"{name}{', doubling' * doubling}, {representation}": (
            papers(doubling, representation, **mechanism),
            {"phase", "query"},
        )
        for name, mechanism in {
            "median": {"profile": "median", "queries": 3},
            "sequential": {"profile": "sequential", "queries_per_phase": 3, "phases": 3},
            "memory": {"profile": "memory", "queries_per_phase": 10, "phases": 3},
        }.items()
        for doubling in (False, True)
        for representation in ("entropic", "polytope")
    },
}


_TOLD: dict[str, list[bytes]] = {}
"""The stories that this process has lived."""


@pytest.fixture
async def story(
    request: pytest.FixtureRequest, world: Any, monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """The ledger of one data set as it was published: two processes, the second from what was stored."""
    if request.param not in _TOLD:
        # Histograms are tested after two moves in place of a hundred.
        monkeypatch.setattr(bypass, "_TRAINED", 2)
        rounds, _ = STORIES[request.param]
        await world.run(rounds=rounds[:-2])
        await world.run(rounds=rounds[-2:])
        assert world.complaints() == []
        _TOLD[request.param] = [
            event.outgoing.value
            for event in world.trail
            if getattr(event, "outgoing", None) is not None and event.outgoing.role == "ledger"
        ]
    return [*_TOLD[request.param]]


every_story = pytest.mark.parametrize("story", rest_is_slow(STORIES, first=10), indirect=True)


def checked(entries: list[bytes]) -> Report:
    return verify("flights", entries)


# ---------------------------------------------------------------- forgeries


def forged(entries: list[bytes], change: Callable[[list[dict[str, Any]]], object]) -> list[bytes]:
    fields = [json.loads(entry) for entry in entries]
    change(fields)
    return chained("flights", fields)


def edited(entries: list[bytes], *path: Any, to: Any) -> list[bytes]:
    """A forgery with another value at one place: this one, or what a function makes of the one there."""
    *steps, last = path

    def edit(fields: list[dict[str, Any]]) -> None:
        there: Any = fields
        for step in steps:
            there = there[step]
        there[last] = to(there[last]) if callable(to) else to

    return forged(entries, edit)


def faults(entries: list[bytes]) -> dict[int | None, str]:
    """What is wrong with each entry."""
    found: dict[int | None, str] = {}
    for fault in checked(entries).faults:
        found[fault.entry] = "; ".join(filter(None, [found.get(fault.entry), fault.text]))
    return found


# ---------------------------------------------------------------- all is well


@pytest.mark.parametrize(
    ("story", "kinds"), [(n, k) for n, (_, k) in STORIES.items()], indirect=["story"]
)
def test_every_charge_is_to_the_unit_what_its_looks_cost(
    story: list[bytes], kinds: set[str]
) -> None:
    entries = [json.loads(entry) for entry in story]
    report = verify("flights", story, catalog=Definition.read(entries[0]["definition"]))
    assert (report.faults, report.notes) == ([], [])
    assert len(report.blocks) == sum(entry["kind"] == "phase" for entry in entries)
    for number, block in enumerate(report.blocks):
        charges = [c for entry in entries for c in entry.get("charges", ()) if c[0] == number]
        assert block.spent == (sum(c[1] for c in charges), sum(c[2] for c in charges))
        assert block.difference == (0, 0)
        assert max(block.spent) > 0
        if kinds != {"phase", "query"}:
            assert report.promised is not None
            assert block.epsilon is not None
            assert 0 < block.epsilon <= report.promised[0]
            assert report.full == pytest.approx(report.promised[0], rel=1e-6)
    assert {look["kind"] for entry in entries for look in entry.get("looks", ())} >= kinds
    assert report.head == ledger.Chain("flights", story).head.hex()


@every_story
def test_entries_that_are_sent_again_are_harmless(story: list[bytes]) -> None:
    again = [entry for pair in zip(story, story, strict=True) for entry in pair]
    assert checked([*story, *story]) == checked(story) == checked(again)


FROZEN = sorted((Path(__file__).parents[1] / "golden/ledgers").glob("*.ndjson"))


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
def test_frozen_ledgers_are_right(file: Path) -> None:
    report = checked(file.read_bytes().splitlines())
    assert report.faults == []
    assert {block.difference for block in report.blocks} == {(0, 0)}
    assert report.notes == []


# ---------------------------------------------------------------- forged charges


def halved(
    entries: list[bytes], parts: Sequence[int] = (1, 2)
) -> Iterator[tuple[int, list[bytes]]]:
    """Ledgers in which one sum of one charge is half of what it was, and the number of that entry."""
    for number, entry in enumerate(entries):
        charges = json.loads(entry).get("charges", ())
        for place, charge in enumerate(charges):
            for part in (part for part in parts if charge[part]):
                halved = edited(entries, number, "charges", place, part, to=lambda sum_: sum_ // 2)
                yield number, halved


@every_story
def test_any_charge_that_is_halved_is_found_and_named(story: list[bytes]) -> None:
    found = 0
    for number, forgery in halved(story):
        (fault,) = checked(forgery).faults
        assert fault.entry == number
        assert "undercharged: phase" in fault.text
        found += 1
    assert found


@every_story
def test_one_unit_less_is_found_and_one_more_is_a_note(story: list[bytes]) -> None:
    number = next(n for n, e in enumerate(story) if json.loads(e).get("charges"))
    charged = json.loads(story[number])["charges"][0][1]
    less, more = (
        checked(edited(story, number, "charges", 0, 1, to=charged + by)) for by in (-1, 1)
    )
    assert [fault.entry for fault in less.faults] == [number]
    assert less.blocks[0].difference == (-1, 0)
    assert not [fault for fault in more.faults if "undercharged" in fault.text]
    assert more.notes[0].entry == number
    assert "overcharged: phase 1" in more.notes[0].text
    assert more.blocks[0].difference == (1, 0)


# ---------------------------------------------------------------- persons


of_persons = pytest.mark.parametrize("story", ["calibrated, persons"], indirect=True)


@of_persons
def test_a_look_at_a_number_of_rows_that_is_public_is_found(story: list[bytes]) -> None:
    promised = edited(story, 0, "definition", "privacy", "unit", to=None)
    assert "whose number is public" in " ".join(faults(promised).values())


@of_persons
@pytest.mark.parametrize("held", [1, 3, 4, 6])
def test_a_line_that_holds_more_than_a_person_may_lose_is_found(
    story: list[bytes], held: int
) -> None:
    """A line divided by less than 3 * 2^2: as for a row, for a row in 3 phases, for one phase, and by k."""
    widened = edited(story, 0, "line", "rho", to=lambda rho: str(Fraction(rho) * 12 / held))
    found = faults(widened)[0]
    assert "of which a person can lose 12 times as much" in found
    assert "does not imply epsilon 8" in found


@of_persons
@pytest.mark.parametrize(
    "unit", [None, {**UNIT, "rows_per_phase": 3}, {**UNIT, "phases": 4}], ids=str
)
def test_a_definition_that_promises_something_else_to_persons_is_found(
    story: list[bytes], unit: dict[str, Any] | None
) -> None:
    found = faults(edited(story, 0, "definition", "privacy", "unit", to=unit))
    assert found
    if unit is None:
        assert any("undercharged" in fault for fault in found.values()), "tables cost rows twice"
    else:
        assert "does not imply" in found[0]


@of_persons
def test_sums_that_take_the_number_of_rows_for_public_are_found(story: list[bytes]) -> None:
    number = next(
        number
        for number, entry in enumerate(map(json.loads, story))
        if any(look["kind"] == "sums" and look["every_row"] for look in entry.get("looks", ()))
    )
    forgetful = edited(
        story, number, "looks", 0, "blocks", to=lambda blocks: [block[:2] for block in blocks]
    )
    assert "too few scales" in faults(forgetful)[number]


@of_persons
def test_dp_accounting_calls_a_full_line_of_persons_full(story: list[bytes]) -> None:
    written = Definition.read(json.loads(story[0])["definition"])
    line = Line.of(written, json.loads(story[0])["line"], approximate=False)
    forgetful = dataclasses.replace(line, unit=None, squares=1)
    assert Oracle(forgetful, 8.0, 1e-9).full() < 4.0 < Oracle(line, 8.0, 1e-9).full()
    look = {line.gaussian(Fraction(40), squared_sensitivity=line.table).events[0]: 1}
    one, two = (Oracle(each, 8.0, 1e-9).spent(look, Fraction(0)) for each in (forgetful, line))
    assert one < two, "of two rows the look says more"


# ---------------------------------------------------------------- forged looks

LESS: dict[str, Callable[[Any], Any]] = {
    # Of the counts' profiles.
    "sigma": lambda sigma: sigma / 2,
    "count_scale": lambda scale: scale / 2 if isinstance(scale, float) else scale // 2,
    "threshold_scale": lambda scale: scale / 2,
    "query_scale": lambda scale: scale / 2,
    "tables": lambda parts: [[parts[0][0], parts[0][1], parts[0][2] - 32], *parts[1:]],
    "blocks": lambda blocks: [[blocks[0][0], blocks[0][1] - 32, *blocks[0][2:]], *blocks[1:]],
    "range": lambda ends: [ends[0] - 100, ends[1]],
    # Of other kinds.
    "scale": lambda scale: scale * 0.99,
    "offset_scale": lambda scale: scale * 0.99,
    "cut_scale": lambda scale: scale * 0.99,
    "agreement": lambda agreement: agreement + 1e-6,
    "rate": lambda rate: str(Fraction(rate) * 2),
    "tree_epsilon": lambda epsilon: str(Fraction(epsilon) * 2),
    "threshold": lambda threshold: threshold - 1,
    "thresholds": lambda ends: [ends[0], (ends[0] + ends[1]) // 2 - (ends[1] - ends[0]) // 4],
    "chunks": lambda chunks: chunks + 1,
    "loss": lambda loss: {**loss, "epsilon": str(Fraction(loss["epsilon"]) * 2)},
    # Of the papers'.
    "hard_limit": lambda limit: limit + 1,
    "gate_scale": lambda scale: scale // 2,
    "gate": lambda gate: {**gate, "step": gate["step"] // 2},
    "hypothesis_rows": lambda rows: rows - 1,
    "queries": lambda queries: queries + 1,
    "index": lambda index: index + 1,
}


HARMLESS = {
    ("gate", "threshold"),  # what is compared with; its noise counts
    ("between", "thresholds"),  # further apart than they must be
    ("prefix_batch", "hypothesis_rows"),
    ("phase", "gate_scale"),  # its queries say it again
    *((kind, "blocks") for kind in ("threshold", "median", "mode")),
}


@every_story
def test_less_noise_than_was_paid_for_is_found_in_every_look(story: list[bytes]) -> None:
    entries = [json.loads(entry) for entry in story]
    seen = set()
    for number, entry in enumerate(entries):
        for place, look in enumerate(entry.get("looks", ())):
            for name in LESS.keys() & look.keys():
                if (look["kind"], name) in HARMLESS:
                    continue
                forgery = edited(story, number, "looks", place, name, to=LESS[name])
                assert number in faults(forgery), (name, look)
                seen.add((look["kind"], name))
    assert seen


@pytest.mark.parametrize("story", ["calibrated"], indirect=True)
def test_a_look_is_fresh_or_says_nothing_of_it(story: list[bytes]) -> None:
    number, entry = next(
        (number, entry)
        for number, entry in enumerate(map(json.loads, story))
        if any("fresh" in look for look in entry.get("looks", ()))
    )
    assert entry["looks"][0]["fresh"] is True
    stale = edited(story, number, "looks", 0, "fresh", to=False)
    assert "fresh" in faults(stale)[number]


@pytest.mark.parametrize("story", ["calibrated, levels"], indirect=True)
@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([62], "counts 62 groups of an attribute of 61 cells"),
        ([1], "counts 1 groups of an attribute of 61 cells"),
        ([12, 2], "does not say of each attribute"),
        ([12.0], "counts 12.0 groups"),
    ],
)
def test_groups_that_no_row_can_be_in_once_are_found(
    story: list[bytes], groups: list[Any], problem: str
) -> None:
    number, place, part = next(
        (number, place, part)
        for number, entry in enumerate(map(json.loads, story))
        for place, look in enumerate(entry.get("looks", ()))
        if look["kind"] == "tables"
        for part, table in enumerate(look["tables"])
        if table[0] == [1] and table[3:] == [[12]]
    )
    grouped = edited(story, number, "looks", place, "tables", part, 3, to=groups)
    assert problem in faults(grouped)[number]


def test_categories_have_no_groups() -> None:
    table = {"kind": "tables", "reason": "query", "tables": [[[0], 0, 200, [2]]]}
    written = Definition.read(definition("flights"))
    looks = Looks(written, Line.of(written, line_of(written), approximate=False))
    with pytest.raises(Wrong, match="counts 2 groups of an attribute of 3 cells"):
        looks.owed(table, [100])


@pytest.mark.parametrize("story", ["all kinds"], indirect=True)
def test_a_delta_that_was_dropped_is_found(story: list[bytes]) -> None:
    """From the charge, from the look, and from both."""
    entries = [json.loads(entry) for entry in story]
    approximate = [
        n for n, entry in enumerate(entries) if any(c[2] for c in entry.get("charges", ()))
    ]
    assert len(approximate) >= 6
    for number in approximate:
        of_look = edited(
            story,
            *(number, "looks"),
            to=lambda looks: [{**look, "loss": {**look["loss"], "delta": "0"}} for look in looks],
        )
        of_charge, of_both = (
            edited(entries, number, "charges", to=lambda all_: [[*c[:2], 0] for c in all_])
            for entries in (story, of_look)
        )
        for forgery in (of_charge, of_look, of_both):
            assert number in faults(forgery)


@pytest.mark.parametrize("story", ["all kinds", "gated"], indirect=True)
def test_a_run_or_segment_that_reads_a_block_which_has_not_paid_is_found(
    story: list[bytes],
) -> None:
    """A look that costs nothing more is moved to a phase that its run knows nothing of."""
    entries = [json.loads(entry) for entry in story]
    free = [
        n for n, entry in enumerate(entries) if entry["kind"] == "charge" and not entry["charges"]
    ]
    free = free or [next(n for n, entry in enumerate(entries) if entry.get("looks"))]
    for number in free:

        def change(fields: list[dict[str, Any]], n: int = number) -> None:
            opened = {"kind": "phase", "phase": 3, "rows": 21_000}
            fields[n]["looks"][0]["window"] = [2, 3]
            phases = [at for at, entry in enumerate(fields) if entry["kind"] == "phase"]
            fields.insert(n, {**opened, "phase": 1 + sum(at < n for at in phases)})
            fields[n + 1]["looks"][0]["window"] = [fields[n]["phase"] - 1, fields[n]["phase"]]

        assert number + 1 in faults(forged(story, change))


# ---------------------------------------------------------------- four forged ledgers, and more


@pytest.mark.parametrize("story", ["calibrated"], indirect=True)
def test_a_table_at_sigma_1_that_was_charged_one_unit_is_found(story: list[bytes]) -> None:
    table = {"kind": "tables", "reason": "query", "tables": [[[0], 0, 0]]}
    entry = {"kind": "charge", "looks": [table], "charges": [[0, 1, 0]]}
    report = checked(forged(story, lambda fields: fields.append(entry)))
    assert report.faults[0].entry == len(story)
    assert "undercharged: phase 1 was charged 1 units of rho, and its looks cost" in (
        report.faults[0].text
    )
    assert report.faults[1].text == (
        "dp-accounting gives what was looked at in phase 1 epsilon "
        f"{report.blocks[0].epsilon:.6g}, and 1 is promised"
    )


@every_story
def test_a_flipped_byte_is_found_wherever_it_is_before_the_last_entry(story: list[bytes]) -> None:
    chance = random.Random(1)
    for _ in range(20):
        number = chance.randrange(len(story) - 1)
        entry = bytearray(story[number])
        entry[chance.randrange(len(entry))] ^= 1 << chance.randrange(8)
        found = checked([*story[:number], bytes(entry), *story[number + 1 :]]).faults
        assert found, entry
        assert found[0].entry in {None, number, number + 1} or json.loads(entry)["seq"] != number


@every_story
def test_a_missing_entry_is_found_and_named(story: list[bytes]) -> None:
    for number in range(len(story) - 1):
        found = faults([*story[:number], *story[number + 1 :]])
        assert found[number] == "it is missing"


@every_story
def test_an_entry_that_is_doubled_with_other_content_is_found_and_named(story: list[bytes]) -> None:
    for number in range(1, len(story)):
        fields = json.loads(story[number])
        doubled = json.dumps({**fields, "note": "another"}, sort_keys=True, separators=(",", ":"))
        for records in ([*story, doubled.encode()], [doubled.encode(), *story]):
            found = faults(records)
            assert found[number] == ("it is on the topic 2 times, each time with another content")
            if number < len(story) - 1:
                assert set(found) == {number}


@every_story
def test_entries_that_change_places_are_found(story: list[bytes]) -> None:
    """A charge before the phase that it charges, its chain made anew."""
    number = next(n for n, e in enumerate(story) if json.loads(e)["kind"] == "phase")
    charge = next(n for n, e in enumerate(story) if json.loads(e).get("charges"))

    def move(fields: list[dict[str, Any]]) -> None:
        fields.insert(number, fields.pop(charge))

    assert number in faults(forged(story, move))
    assert "which is not open yet" in str(faults(forged(story, move)))
    swapped = [*story[:number], story[number + 1], story[number], *story[number + 2 :]]
    assert faults(swapped) == {}  # the topic's order says nothing: the numbers do


@every_story
def test_nothing_is_looked_at_after_the_end_nor_beyond_the_budget(story: list[bytes]) -> None:
    charge = next(json.loads(e) for e in story if json.loads(e).get("charges"))
    ended = forged(
        story, lambda fields: fields.extend([{"kind": "retired"}, copy.deepcopy(charge)])
    )
    assert "it comes after the data set was retired" in [f.text for f in checked(ended).faults]
    assert checked(forged(story, lambda fields: fields.append({"kind": "retired"}))).faults == []

    def full(fields: list[dict[str, Any]]) -> None:
        fields.append({**copy.deepcopy(charge), "charges": [[0, UNITS, 0]]})

    assert "with it phase 1 has spent more than all of its budget" in [
        f.text for f in checked(forged(story, full)).faults
    ]


@pytest.mark.parametrize("story", ["all kinds", "counts, pure"], indirect=True)
def test_a_line_that_holds_more_than_the_promise_is_found(story: list[bytes]) -> None:
    definition = Definition.read(json.loads(story[0])["definition"])
    line = Line.of(definition, json.loads(story[0])["line"], approximate=is_approximate(definition))

    wider = str(line.whole * Fraction(1_000_001, 1_000_000))
    if not line.linear:
        assert "does not imply epsilon 20" in faults(edited(story, 0, "line", "rho", to=wider))[0]
    assert faults(edited(story, 0, "definition", "privacy", "epsilon", to=lambda e: 0.999 * e))
    other = definition.model_copy(update={"on_exhausted": "refuse"})
    (fault,) = verify("flights", story, catalog=other).faults
    assert fault.text == "its definition is not the one on the topic catalog"


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-9, 1e-5, 1e-2])
def test_dp_accounting_calls_a_full_line_full_and_a_fuller_one_too_full(
    world: Any, epsilon: float, delta: float
) -> None:
    spelt = {**definition("flights"), "privacy": {"epsilon": epsilon, "delta": delta}}
    defined = Definition.read(spelt)
    line = Line.of(defined, line_of(defined), approximate=is_approximate(defined))
    found = Oracle(line, epsilon, delta).full()
    assert epsilon * (1 - 1e-6) < found <= epsilon * (1 + 1e-9)
    fuller = Line(line.whole * Fraction(101, 100), line.delta, linear=False)
    assert Oracle(fuller, epsilon, delta).full() > epsilon * 1.001


def test_a_ledger_without_a_definition_or_without_entries_is_a_fault() -> None:
    assert [fault.text for fault in checked([]).faults] == ["the topic has no entry of its ledger"]
    report = checked(chained("flights", [{"kind": "phase", "phase": 1, "rows": 10}]))
    assert "not the data set's definition" in report.faults[0].text
    (fault,) = checked([b"not an entry"]).faults[:1]
    assert "is not an entry" in fault.text


NUMBERS = [-1, 0, 10**30, 1e308, 5e-324]
NONSENSE: list[Any] = [None, True, *NUMBERS, "1e999999999", "x", [], {}, [0, 10**12]]


@every_story
def test_nonsense_in_an_entry_is_a_fault_and_never_ends_the_check(story: list[bytes]) -> None:
    """Anyone who may write to the topic may write anything; it is found, or it changes no price."""
    chance = random.Random(2)
    for number, entry in enumerate(map(json.loads, story)):
        for look in range(len(entry.get("looks", ()))):
            for name in entry["looks"][look]:
                nonsense = chance.choice(NONSENSE)
                checked(edited(story, number, "looks", look, name, to=nonsense))
        for name in ("charges", "looks", "rows", "phase", "definition", "line"):
            if name in entry:
                nonsense = chance.choice([value for value in NONSENSE if value != 0])
                found = checked(edited(story, number, name, to=nonsense))
                if entry.get("charges", True) and name not in {"rows", "phase", "line"}:
                    assert found.faults or found.notes


def test_an_entry_far_ahead_is_one_fault() -> None:
    (far, _) = ledger.append(ledger.GENESIS, 10**18, "flights", "retired", {})
    (first, _) = ledger.append(ledger.GENESIS, 0, "flights", "retired", {})
    texts = [str(fault) for fault in checked([first, far]).faults]
    assert f"entry 1: it is missing, and so are those up to entry {10**18 - 1}" in texts
