"""What every profile and every kind of queries must do. A new one joins by one line of a table below."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, get_args

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.kinds.with_kinds import NamedLook
from stream_dp.core.mechanism import BundleQuote, Look, Quote, Release, dearest
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import (
    EVERYTHING,
    AnyQuery,
    Indicator,
    KindQuery,
    LinearQuery,
    Predicate,
    Product,
    Rank,
    Total,
)
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Counts
from stream_dp.core.rows.slabs import TableAsked
from stream_dp.core.synthetic import synthetic
from stream_dp.errors import CorruptState
from stream_dp.messages import FIELDS, Definition, KindsSpec, MechanismSpec
from stream_dp.profiles.builder import PROFILES, rows_of_a_phase
from stream_dp.profiles.kinds import ANSWERERS
from tests.noise import SeededNoise

AA = {"attribute": "carrier", "eq": "AA"}
OLD = {"attribute": "age", "ge": 2}
YOUNG = {"attribute": "age", "lt": 2}
LATE = {"attribute": "late", "eq": True}
COUNTS: tuple[dict[str, Any], ...] = (
    {"kind": "predicate", "where": AA},
    {"kind": "predicate", "where": {"all": [OLD, LATE]}},
    {"kind": "predicate", "where": {"any": [AA, LATE]}},
)
TABLES: tuple[dict[str, Any], ...] = (
    {"kind": "table", "group_by": ["carrier"], "where": OLD},
    {"kind": "sum", "attribute": "age", "where": AA},
    {"kind": "share", "share_of": LATE, "where": OLD},
    {"kind": "quantile", "attribute": "age", "rank": 0.5, "group_by": ["carrier"], "where": LATE},
)
BETWEEN: tuple[dict[str, Any], ...] = (
    {"where": AA, "low": 0.1, "high": 0.2},
    {"where": LATE, "low": 0.8, "high": 0.9},
)
PURE = {"epsilon": 1.0, "delta": 0.0}
PAPERS: dict[str, Any] = {"accuracy": {"error": 0.3, "failure_probability": 0.2}}
FEW: dict[str, Any] = {"hypothesis_rows": 3, "queries_per_phase": 10}


@dataclass(frozen=True)
class Case:
    """A data set that shows one profile or kind.

    Attributes:
        settings: What its definition says besides the schema.
        asked: Messages of queries that it answers, all of them different.
        one_phase: Whether only one phase opens.
        forgets: Whether a restart gives up a segment that runs: its threshold is a secret of the process.
        doubtful: Whether what all of ``asked`` cost together depends on how their tests turn out, or on
            whether one look serves two of them.
    """

    settings: dict[str, Any]
    asked: tuple[dict[str, Any], ...] = COUNTS
    one_phase: bool = False
    forgets: bool = False
    doubtful: bool = False


def profile(name: str, *, one_phase: bool = False, tests: bool = False, **settings: Any) -> Case:
    """A profile that answers predicate queries; ``tests`` says whether it tests predictions."""
    mechanism = {"mechanism": {"profile": name, **settings}}
    return Case(mechanism, one_phase=one_phase, forgets=tests, doubtful=tests and name != "bypass")


def papers(name: str, *, one_phase: bool = False, **settings: Any) -> Case:
    """A profile of the papers, at an accuracy that few rows reach."""
    return Case({"mechanism": {"profile": name, **settings}, **PAPERS}, one_phase=one_phase)


def kind(name: str, *asked: dict[str, Any], share: float = 0.2, **settings: Any) -> Case:
    """A kind of queries that a definition turns on, asked about ``age`` unless a message says otherwise."""
    about = {} if name == "between" else {"attribute": "age"}
    messages = tuple({"kind": name, **about, **message} for message in asked)
    return Case({"kinds": {name: {"share": share, **settings}}}, messages, doubtful=len(asked) > 1)


PROFILE_CASES: dict[str, Case] = {
    "calibrated": Case({}, (*COUNTS, *TABLES)),
    "calibrated, with tiles": Case(
        {"mechanism": {"workload": [{"group_by": ["carrier"], "window": {"last_phases": 1}}]}},
        (*COUNTS, *TABLES),
    ),
    "calibrated, without a base release": Case({"mechanism": {"base_share": 0.0}}, (*COUNTS, *TABLES)),
    "median": papers("median", queries=10, hypothesis_rows=3, one_phase=True),
    "median, doubling": papers("median", queries=10, hypothesis_rows=3, doubling=True, one_phase=True),
    "sequential": papers("sequential", phases=2, **FEW),
    "memory": papers("memory", phases=2, **FEW),
    "gated": profile("gated", tests=True, segments=5),
    "counts": profile("counts"),
    "counts, pure": Case({"mechanism": {"profile": "counts"}, "privacy": PURE}),
    "whole_table": profile("whole_table"),
    "weights": profile("weights", tests=True),
    "weights, fixed": profile("weights", tests=True, growing=False, one_phase=True),
    "bypass": profile("bypass", tests=True),
}  # fmt: skip
KIND_CASES: dict[str, Case] = {
    "threshold": kind("threshold", {"where": OLD}, {"where": YOUNG}),
    "median": kind("median", {}),
    "mode": kind("mode", {"attribute": "carrier"}),
    "prefix_batch": kind("prefix_batch", {"wheres": [YOUNG]}),
    "correlated_vector": kind("correlated_vector", {"attribute": "late"}, attribute="late"),
    "between": kind("between", *BETWEEN, answers=2),
    "interior_point": kind("interior_point", {"where": YOUNG}, points=50),
    "adaptive_threshold": kind("adaptive_threshold", {"where": YOUNG}, share=0.5, chunks=4, queries=50),
}  # fmt: skip
CASES = {**PROFILE_CASES, **{f"kind {name}": case for name, case in KIND_CASES.items()}}

ROWS = 20_000
CELLS: list[dict[str, Any]] = [
    {"carrier": carrier, "age": age, "late": late, "count": ROWS * share // 100}
    for carrier, age, late, share in (
        ("AA", 0, False, 30),
        ("AA", 2, True, 10),
        ("UA", 1, False, 25),
        ("UA", 3, False, 20),
        ("WN", 2, True, 15),
    )
]


def definition_of(case: Case) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "flights",
            "attributes": [
                {"name": "carrier", "type": "category", "values": ["AA", "UA", "WN"], "other": False},
                {"name": "age", "type": "number", "edges": [1, 2, 3], "representatives": [0, 1, 2, 3]},
                {"name": "late", "type": "boolean"},
            ],
            "privacy": {"epsilon": 4.0, "delta": 1e-9},
            "accuracy": {"error": 0.1, "failure_probability": 0.01},
            "phase": {"min_rows": ROWS},
            **case.settings,
        }
    )  # fmt: skip


Make = Callable[[Case], Any]
"""A data set of a case, next to its rows; a ``conftest.Run``."""


@pytest.fixture
def closed(make_run: Any) -> Make:
    """``closed(case)``: a data set without a phase."""
    return lambda case: make_run(definition_of(case), SeededNoise(1))


@pytest.fixture
def run(closed: Make) -> Make:
    """``run(case)``: a data set with one phase open."""

    def make(case: Case) -> Any:
        made = closed(case)
        made.open(CELLS)
        return made

    return make


def every_case(test: Any) -> Any:
    return pytest.mark.parametrize("case", CASES.values(), ids=CASES)(test)


def steps(run: Any, queries: list[AnyQuery]) -> list[object]:
    """What a data set would do with each query now: the outcome, or the price and the facts of the look.

    An answer that can be given at once may be remembered, and is a repeat from then on.
    """
    for query in queries:
        run.mechanism.answer(query)
    found: list[object] = []
    for query in queries:
        step = run.mechanism.answer(query)
        found.append(step if isinstance(step, Outcome) else (step.charges, step.description))
        found.append(run.mechanism.quote(query))
    return found


# ---------------------------------------------------------------- nothing is left out


def test_every_profile_has_a_record_and_a_case() -> None:
    union = get_args(MechanismSpec)[0]
    specs = {name: record.spec for name, record in PROFILES.items()}
    assert set(specs.values()) == set(get_args(union))
    shown = {case.settings.get("mechanism", {}).get("profile") for case in PROFILE_CASES.values()}
    assert {name or "calibrated" for name in shown} == set(PROFILES)


def test_every_kind_has_an_answerer_and_a_case() -> None:
    assert list(ANSWERERS) == list(KindsSpec.model_fields) == list(KIND_CASES)
    assert ANSWERERS.keys() == FIELDS.keys() - {
        "predicate",
        "table",
        "sum",
        "share",
        "quantile",
        "difference",
        "correlation",
    }
    for name, case in KIND_CASES.items():
        assert {message["kind"] for message in case.asked} == {name}


# ---------------------------------------------------------------- public facts


@every_case
def test_its_public_facts_fit_its_definition(case: Case, run: Make) -> None:
    made = run(case)
    mechanism, definition = made.mechanism, made.definition
    record, spec = PROFILES[definition.mechanism.profile], definition.mechanism
    assert type(spec) is record.spec
    assert {message["kind"] for message in case.asked} <= mechanism.kinds <= FIELDS.keys()
    assert mechanism.least_windows.keys() == case.settings.get("kinds", {}).keys()
    assert made.data.sizes[0] >= rows_of_a_phase(definition) >= ROWS
    if spec.papers is None:
        assert mechanism.published_budget is None
    else:
        assert json.dumps(mechanism.published_budget)
        assert mechanism.rows_to_open == rows_of_a_phase(definition)
    assert record.unit.epsilon(definition, 0.0) == 0.0
    assert 0.0 < record.unit.epsilon(definition, 1.0) <= definition.privacy.epsilon
    assert all(record.unit.holds(definition).values())


@every_case
def test_opening_a_phase_costs_what_was_said(case: Case, closed: Make) -> None:
    made = closed(case)
    said = made.mechanism.opening_units(ROWS)
    looks = made.open(CELLS)
    if said is not None:
        assert sum(look.charges[0].rho for look in looks) == said
    if made.definition.mechanism.paid_at_opening and made.definition.mechanism.papers is None:
        assert UNITS * 0.9 < max(map(max, made.lines)) <= UNITS


@every_case
def test_synthetic_rows_follow_what_is_published(case: Case, run: Make) -> None:
    made = run(case)
    for message in case.asked:
        made.ask(made.query(message))
    if not made.definition.mechanism.feeds_synthetic_rows:
        with pytest.raises(ValueError, match="nothing that rows could follow"):
            made.mechanism.basis(range(1))
        return
    found = synthetic(made.mechanism, range(1), 100, np.random.default_rng(1))
    assert found.n_rows == made.data.sizes[0]
    assert [len(column) for column in found.columns] == [100] * 3


# ---------------------------------------------------------------- queries and looks


@every_case
def test_a_quote_is_what_is_charged_and_deciding_changes_nothing(case: Case, run: Make) -> None:
    made = run(case)
    asked = [made.query(message) for message in case.asked]
    before = steps(made, asked)
    assert steps(made, asked) == before
    for query in asked:
        quote, lines = made.mechanism.quote(query), list(made.lines)
        outcome = made.ask(query)
        assert not isinstance(outcome, Refused), outcome
        if quote.outcome is not None:
            assert (quote.outcome, quote.charges) == (outcome, ())
        for charge in quote.charges:
            rho, delta = lines[charge.block]
            lines[charge.block] = rho + charge.rho, delta + charge.delta
        assert made.lines == lines


@every_case
def test_a_quote_for_a_bundle_changes_nothing_and_covers_each_query(case: Case, run: Make) -> None:
    made = run(case)
    asked = [made.query(message) for message in case.asked]
    before, transcript = steps(made, asked), list(made.transcript)
    told = made.mechanism.remembered()
    singles = [dearest(made.mechanism.quote(query).charges) for query in asked]
    bundle = made.mechanism.quote_together(asked)
    assert made.mechanism.quote_together(asked) == bundle
    assert made.mechanism.remembered() == {}, told
    assert steps(made, asked) == before
    assert (made.transcript, len(bundle.quotes)) == (transcript, len(asked))
    assert max(singles, default=0) <= dearest(bundle.low) <= dearest(bundle.high)
    assert summed(c for quote in bundle.quotes for c in quote.charges) == bundle.high
    assert made.mechanism.quote_together([]) == BundleQuote((), (), ())


@every_case
def test_a_bundle_costs_what_was_quoted(case: Case, run: Make) -> None:
    """Unit for unit where nothing is in doubt, and between both prices for these rows and this noise."""
    made = run(case)
    asked = [made.query(message) for message in case.asked]
    bundle, lines = made.mechanism.quote_together(asked), list(made.lines)
    for query in asked:
        made.ask(query)
    paid = [
        Charge(block, after[0] - line[0], after[1] - line[1])
        for block, (line, after) in enumerate(zip(lines, made.lines, strict=True))
        if after != line
    ]
    assert dearest(bundle.low) <= dearest(paid) <= dearest(bundle.high)
    assert (bundle.low == bundle.high == tuple(paid)) is not case.doubtful


@every_case
def test_what_it_does_not_serve_it_refuses_and_nothing_changes(case: Case, run: Make) -> None:
    made = run(case)
    asked, window = [made.query(message) for message in case.asked], range(1)
    before, transcript = steps(made, asked), list(made.transcript)
    everything = Predicate.of_mask((2,), np.array([False, True]))
    others: list[AnyQuery] = [
        LinearQuery(everything, window),
        LinearQuery(everything, window, (0,)),
        LinearQuery(everything, window, (), Total(1, (0.0, 1.0, 2.0, 3.0))),
        LinearQuery(EVERYTHING, window, (), Indicator(everything)),
        LinearQuery(EVERYTHING, window, (), Product((0, 1), ((0.0, 1.0), (0.0, 1.0)), 0.1)),
        LinearQuery(everything, range(2), difference=(range(1, 2), window)),
        LinearQuery(everything, window, rank=Rank(1, 0.5, (0, 1, 2, 3))),
        *(KindQuery(kind, window, 1) for kind in ANSWERERS),
    ]
    assert {query.kind for query in others} == FIELDS.keys()
    for query in others:
        if query.kind in made.mechanism.kinds:
            continue
        refused = made.mechanism.answer(query)
        assert refused.code is RefusalCode.UNSUPPORTED_KIND
        assert made.mechanism.quote(query) == Quote(refused, ())
    assert steps(made, asked) == before
    assert made.transcript == transcript


@every_case
def test_a_look_says_its_facts_and_costs_each_block_once(case: Case, closed: Make) -> None:
    made = closed(case)
    steps = made.open(CELLS)
    steps += [made.mechanism.answer(made.query(message)) for message in case.asked]
    known = {*made.definition.mechanism.looks, *case.settings.get("kinds", {})}
    for step in steps:
        if isinstance(step, Outcome):
            continue
        assert isinstance(step, Look)
        assert step.description["kind"] in known
        assert json.loads(json.dumps(step.description)) == step.description
        blocks = [charge.block for charge in step.charges]
        assert len(set(blocks)) == len(blocks)
        assert all(charge.rho > 0 and charge.delta >= 0 for charge in step.charges)
        assert step.seconds >= 0.0


def _read_without_saying_so(case: Case, closed: Make, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Blocks whose rows some look of a case reads, and which are not among its ``reads``."""
    made, read, unsaid = closed(case), set[int](), set[int]()
    counted, in_order, take = Blocks._counted, Blocks.in_order, made.take

    def watched(self: Blocks, asked: Sequence[TableAsked]) -> Iterator[Counts]:
        read.update(one.block for one in asked)
        return counted(self, asked)

    def watched_in_order(self: Blocks, attribute: int, block: int) -> Codes:
        read.add(block)
        return in_order(self, attribute, block)

    def taken(look: Look) -> Release:
        read.clear()
        release = take(look)
        unsaid.update(read - set(look.reads))
        return release

    monkeypatch.setattr(Blocks, "_counted", watched)
    monkeypatch.setattr(Blocks, "in_order", watched_in_order)
    monkeypatch.setattr(made, "take", taken)
    for _ in range(1 if case.one_phase else 2):
        made.open(CELLS)
        for message in case.asked:
            for _ in range(2):
                made.ask(made.query(message))
    return unsaid


@every_case
def test_a_look_reads_only_the_blocks_that_it_says(
    case: Case, closed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever erases rows relies on it, also where a run or a segment was paid for by an earlier look."""
    assert _read_without_saying_so(case, closed, monkeypatch) == set()


def test_a_look_that_says_too_little_is_noticed(
    closed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    monkeypatch.setattr(NamedLook, "reads", ())
    case = KIND_CASES["between"]
    assert _read_without_saying_so(case, closed, monkeypatch) == {0, 1}


@every_case
def test_releases_round_trip_and_broken_ones_are_noticed(case: Case, run: Make) -> None:
    made = run(case)
    for message in case.asked:
        made.ask(made.query(message))
    for number, stored in enumerate(made.transcript):
        if not isinstance(stored, bytes):
            continue
        mechanism = made.replayed(until=number).mechanism
        assert mechanism.release_from_bytes(stored).to_bytes() == stored
        for broken in (b"", stored[:4], stored[:-1], stored + b"\0", b"\xfe" + stored[1:]):
            with pytest.raises(CorruptState):
                mechanism.absorb(mechanism.release_from_bytes(broken))


@every_case
def test_neither_the_mechanism_nor_a_look_holds_the_rows(case: Case, run: Make) -> None:
    made = run(case)
    reached, waiting = set[int](), [made.mechanism]
    for message in case.asked:
        waiting.append(made.mechanism.answer(made.query(message)))
        made.ask(made.query(message))
    while waiting:
        item = waiting.pop()
        if id(item) in reached or isinstance(item, type | ModuleType | FunctionType):
            continue
        reached.add(id(item))
        assert not isinstance(item, Blocks | Block)
        waiting.extend(gc.get_referents(item))


@every_case
def test_a_repeat_of_an_answer_that_stands_is_free(case: Case, run: Make) -> None:
    """The papers' profiles and the gates ask again at no charge, and the others remember."""
    made = run(case)
    query = made.query(case.asked[0])
    for attempt in range(
        10
    ):  # a prediction that fails its test is measured, and the next one is better
        outcome = made.ask(query)
        assert not isinstance(outcome, Refused), outcome
        if attempt and outcome.path is not Path.MEASURED:
            break
    lines = list(made.lines)
    assert made.mechanism.quote(query).charges == ()
    assert not isinstance(made.ask(query), Refused)
    assert made.lines == lines


# ---------------------------------------------------------------- restarts and lost looks


@every_case
def test_a_restart_folds_what_was_published_to_the_same_state(case: Case, run: Make) -> None:
    made = run(case)
    for message in case.asked:
        made.ask(made.query(message))
    if not case.one_phase:
        made.open(CELLS)
        for message in case.asked:
            made.ask(made.query(message))
    asked = [made.query(message) for message in case.asked]
    remembered = made.mechanism.remembered()
    assert made.mechanism.remembered() == {}, "it was told once"
    fresh = made.replayed()
    fresh.mechanism.recall(remembered)
    assert repr(fresh.mechanism) == repr(made.mechanism)
    assert fresh.mechanism.secrets == made.mechanism.secrets
    other = fresh.replayed() if case.forgets else made
    assert steps(fresh, asked) == steps(other, asked)


@every_case
def test_a_lost_look_stays_charged_and_the_next_one_can_be_taken(case: Case, run: Make) -> None:
    made = run(case)
    looks = [
        step
        for message in case.asked
        if not isinstance(step := made.mechanism.answer(made.query(message)), Outcome)
    ]
    if not looks:
        return  # whatever is asked of it follows from what opening the phase published
    lines = list(made.lines)
    made.lose(looks[0])
    for charge in looks[0].charges:
        rho, delta = lines[charge.block]
        lines[charge.block] = rho + charge.rho, delta + charge.delta
    assert made.lines == lines
    asked = [made.query(message) for message in case.asked]
    fresh = made.replayed()
    assert steps(fresh, asked) == steps(made, asked)
    for query in asked:
        made.ask(query)
    assert max(map(max, made.lines)) <= UNITS


@every_case
def test_no_line_passes_its_budget(case: Case, run: Make) -> None:
    made = run(case)
    for phase in range(1 if case.one_phase else 2):
        if phase:
            made.open(CELLS)
        for _ in range(12):
            for message in case.asked:
                made.ask(made.query(message))
            if "predicate" in made.mechanism.kinds:
                made.ask(made.query({"kind": "predicate", "where": LATE}))
        assert all(0 <= rho <= UNITS and 0 <= delta <= UNITS for rho, delta in made.lines)


@pytest.mark.parametrize("told", [True, False])
def test_a_mechanism_that_is_not_told_of_charges_is_noticed(told: bool, run: Make) -> None:
    """The test above can fail."""
    accuracy = {"error": 0.0005, "failure_probability": 0.01}
    made = run(Case({"mechanism": {"profile": "counts"}, "accuracy": accuracy}))
    if not told:
        made.mechanism.charged = lambda look_charges: None
    for carrier in ("AA", "UA", "WN"):
        for age in (1, 2, 3):
            leaves = [{"attribute": "carrier", "eq": carrier}, {"attribute": "age", "ge": age}]
            made.ask(made.query({"kind": "predicate", "where": {"all": leaves}}))
    assert (max(map(max, made.lines)) <= UNITS) is told
