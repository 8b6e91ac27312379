"""Every stored format has a frozen example, which every later release must read and write alike.

``tests/golden/formats`` holds a file for each format, named after it and its version, and
``tests/golden/identities.json`` holds the identities. To freeze a new one, add its example below and run
these tests once with ``FREEZE=1``: this writes what is missing, and changes nothing. What is there may never
change, for somebody has stored such bytes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import pathlib
import pkgutil
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stream_dp.core
import stream_dp.state
from stream_dp.core import encoding
from stream_dp.core.baselines.whole_noisy_table import TableRelease, WholeTable
from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.kinds.between.between_answerer import Between, BetweenRelease
from stream_dp.core.kinds.correlated_vector.vector_answerer import (
    CorrelatedVectors,
    ResponsesRelease,
)
from stream_dp.core.kinds.interior_point.interior_answerer import Interior
from stream_dp.core.kinds.kind_answerer import Answerer, KindTerms
from stream_dp.core.kinds.loss import Secret
from stream_dp.core.kinds.median_mode.stable_answerer import Medians, StableRelease
from stream_dp.core.kinds.points import PointRelease, RunKey
from stream_dp.core.kinds.prefix_batch.batch_answerer import Batches, BatchRelease
from stream_dp.core.kinds.threshold.count_tree import TreePlan
from stream_dp.core.kinds.threshold.curve_answerer import CurvesRelease, Thresholds
from stream_dp.core.kinds.threshold.partition import PartitionPlan, PartitionRelease
from stream_dp.core.kinds.with_kinds import WithKinds, _NamedRelease
from stream_dp.core.median.doubling_stages import Doubling, StageRelease
from stream_dp.core.median.phase_looks import PhaseRelease, QueryRelease
from stream_dp.core.median.sequential import Median
from stream_dp.core.outcome import (
    Answered,
    Path,
    Side,
    Sum,
    Summed,
    TableAnswered,
    Use,
    Useful,
)
from stream_dp.core.queries.query import (
    EVERYTHING,
    NOTHING,
    Indicator,
    KindQuery,
    LinearQuery,
    Predicate,
    Total,
)
from stream_dp.core.residual.base_release.demand import Asked, came_from_bytes, came_to_bytes
from stream_dp.core.residual.belief.levels import axes_of
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.keys.key_look import KeyCounts, KeyRelease
from stream_dp.core.residual.looks.composed_looks import JoinedRelease
from stream_dp.core.residual.looks.counted_rows import RowsRelease
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.looks.table_looks import CountsRelease, Part, TablesRelease
from stream_dp.core.residual.plan.sum_price import SumShape
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import WHOSE_COLUMNS, PersonSecret, Slots
from stream_dp.core.rows.slabs import WEIGHT, Slab, SlabIndex, merged, slabs_in_order, slabs_of
from stream_dp.core.rows.universe import Universe
from stream_dp.core.running.periods_look import LastTotal, PeriodsRelease
from stream_dp.core.running.tick_look import TickRelease
from stream_dp.core.sparse_vector.gates import CountRelease
from stream_dp.errors import CorruptState
from stream_dp.pipeline.rows.person_allowance import Used
from stream_dp.state import codec, private_names
from stream_dp.state.ids import Ids
from stream_dp.state.schema import BY_ID, Checkpoint, Commit, Pair, State, StateTable, weight
from tests.noise import QuickNoise

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/formats"

FLIGHTS = Universe(
    (
        Category("carrier", ("AA", "UA")),
        Number("delay", (0, 10, 30), integer=True),
        Boolean("cancelled"),
    )
)
MEASURED = Universe(
    (
        FLIGHTS.attributes[0],
        Number("delay", (0, 10, 30), integer=True, measure=Measure(2.0, -10.0, 100.0)),
        FLIGHTS.attributes[2],
    )
)
CARRIER, DELAY, CANCELLED = range(3)
AGES = Universe((Number("age", tuple(range(24)), integer=True), Boolean("member")))
"""The first attribute has two levels: 5 groups and 25 cells."""
PRIVACY, ACCURACY = Privacy(4.0, 1e-6), Accuracy(0.05, 0.05)
PERSON = Privacy(4.0, 1e-6, Unit(rows_per_phase=2, phases=3))
BUDGET = Budget.of(PRIVACY, approximate=True)
KEY, OTHER_KEY, PART_KEY = (bytes(range(k, k + 16)) for k in (0, 16, 32))
WINDOW = range(1, 3)
LATE = Predicate.of_mask((CARRIER, DELAY), np.arange(12).reshape(3, 4) % 5 == 1)
"""It is not a product of conditions on each attribute."""


def integers(*shape: int) -> Any:
    """Negative and positive numbers, a large one among them."""
    table = np.arange(int(np.prod(shape)), dtype=np.int64) - 3
    table[-1] = 2**61 + 1
    return table.reshape(shape)


def rows(*, counted: bool) -> Rows:
    codes = (
        np.array([0, 2, 1], dtype=FLIGHTS.attributes[CARRIER].dtype),
        np.array([3, 0, 1], dtype=FLIGHTS.attributes[DELAY].dtype),
        np.array([1, 1, 0], dtype=FLIGHTS.attributes[CANCELLED].dtype),
    )
    return Rows(codes, np.array([2**40, 0, 3]) if counted else None)


def measured_rows(*, counted: bool) -> Rows:
    plain = rows(counted=False)
    counts = np.array([2**30, 0, 3]) if counted else None
    return Rows(plain.codes, counts, {DELAY: np.array([20, 4, 7], dtype=np.uint32)})


def of_persons(plain: Rows) -> Rows:
    """Whose they are: one person's, nobody's, another one's."""
    digests = np.arange(36, dtype=np.uint8).reshape(3, 12)
    digests[1] = 0
    return replace(plain, whose=Slots(digests, np.array([7, 2**63, 3], dtype=np.uint64)))


WIDE = Universe((Category("carrier", tuple(map(str, range(300)))), Boolean("cancelled")))
SALT = bytes(range(64, 80))
COUNTED = {WEIGHT: np.array([1, 0, 1], np.uint8)}
USED = Used(
    np.array([bytes(range(12)), bytes(range(24, 36))]), np.array([2, 2**16 - 1], np.uint16), 3
)


def waits(rows: Rows) -> Slab:
    """Rows of persons that wait, with whose they are."""
    assert rows.whose is not None
    return only(slabs_of(rows, more=rows.whose.columns))


def only(slabs: Iterable[Slab]) -> Slab:
    (slab,) = slabs
    return slab


SLABS = {
    "slab-v1": only(slabs_of(rows(counted=False))),
    "slab-v1-counted": only(slabs_of(rows(counted=True))),
    "slab-v1-measured": only(slabs_of(measured_rows(counted=False))),
    "slab-v1-measured-counted": only(slabs_of(measured_rows(counted=True))),
    "slab-v1-two-bytes": only(
        slabs_of(WIDE.encode_columns({"carrier": ["299", "x", "0"], "cancelled": [True, 0, 1]}))
    ),
    "slab-v1-of-persons": only(slabs_of(measured_rows(counted=False), more=COUNTED)),
    "slab-v1-whose": waits(of_persons(rows(counted=False))).split(WHOSE_COLUMNS)[1],
    "slab-v1-merged": merged(FLIGHTS, slabs_of(rows(counted=True))),
    "slab-v1-merged-measured": merged(MEASURED, slabs_of(measured_rows(counted=True))),
    "slab-v1-in-order": only(slabs_in_order(rows(counted=False), [CARRIER, CANCELLED])),
    "slab-v1-units": only(USED.slabs()),
    "slab-v1-empty": Slab(0, 0, {}),
}
"""Some slots of every kind. What their indexes say of their columns freezes these, too."""
KEY_FILE = b"thirty-two random bytes, or more"


def table() -> WholeTable:
    return WholeTable(FLIGHTS, PRIVACY, ACCURACY)


def median() -> Median:
    return Median(FLIGHTS, PRIVACY, ACCURACY, queries=4, representation="polytope")


def doubling() -> Doubling:
    return Doubling(lambda *_: median(), PRIVACY, ACCURACY, first=4)


def state_of(pairs: dict[Pair, bytes]) -> State:
    added = sum(weight(pair, value) for pair, value in pairs.items()) % 2**128
    return State("flights", 2**40, bytes(range(32)), added, pairs)


def index_of_ids() -> Ids:
    """Ids of both generations, one that was put again, and one whose outcome is not kept any more."""
    index = Ids()
    index.put({(StateTable.OUTCOME, b"b1"): b"outcome"}, 3)
    index.rotate()
    index.put({(StateTable.ANSWER, b"ana q1"): b"answer"}, 4)
    index.put({(StateTable.ANSWER, b"ana q2"): b"another one"}, 5)
    index.rotate()
    index.put({(StateTable.ANSWER, b"ana q1"): b"answer"}, 2**40)
    index.put({(StateTable.OUTCOME, b"b2"): b"outcome"}, 2**48 - 2)
    index.put({(StateTable.TAKEN, b"b1"): b""}, 3)
    return index


def opened(answerer: Any, *sizes: int) -> Any:
    for size in sizes:
        answerer.open_phase(size)
    return answerer


def with_kinds() -> WithKinds:
    answerers: list[Answerer[Any]] = [Thresholds(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05)), medians()]
    settings = CalibratedSettings(approximate=True)
    return WithKinds(FLIGHTS, PRIVACY, ACCURACY, settings, answerers)


def medians() -> Medians:
    return Medians(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05))


@dataclass(frozen=True)
class Example:
    """One stored thing.

    Attributes:
        stored: What is stored.
        read: Reads its bytes back.
        write: Writes it; by default its own ``to_bytes``.
    """

    stored: Any
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes] = lambda stored: stored.to_bytes()


TREE = TreePlan(4, Fraction(1))
PARTITION = PartitionPlan(4, Fraction(1), Fraction(2), 0.05)
CURVES = CurvesRelease(DELAY, (0, 2), (TREE.to_bytes(integers(3)), TREE.to_bytes(integers(3) + 1)))

REMEMBERED = TableAnswered(
    tuple(
        Answered(count, 100, bar, wide, 0.95, Path.CERTIFIED, anytime)
        for count, bar, wide, anytime in ((3.5, 0.25, 0.5, 0.375), (97.0, None, None, None))
    ),
    (2,),
    Path.CERTIFIED,
)
"""An answer to how many flights were cancelled and how many were not, of which one says nothing."""

BY_CANCELLED = LinearQuery(EVERYTHING, range(1), (CANCELLED,))


def write_remembered(answer: TableAnswered) -> bytes:
    counts = Calibrated(FLIGHTS, PRIVACY, ACCURACY)
    counts.state.repeats.remember(BY_CANCELLED, replace(answer, path=Path.CERTIFIED))
    (stored,) = counts.remembered().values()
    return stored


def read_remembered(data: bytes) -> Any:
    counts = Calibrated(FLIGHTS, PRIVACY, ACCURACY)
    counts.open_phase(100)
    repeats = counts.state.repeats
    answer = repeats._given(BY_CANCELLED, repeats._read(BY_CANCELLED, data)[0])
    assert isinstance(answer, TableAnswered)
    assert answer.path is Path.REPEAT
    return answer


KEPT_COUNTS = replace(
    REMEMBERED,
    cells=tuple(
        replace(cell, error_bar_simultaneous=None, error_bar_anytime=None)
        for cell in REMEMBERED.cells
    ),
    use=Use(Useful.ROUGH, 0.25, 0.262, None),
)
KEPT_SUMS = Summed(
    (
        Sum(40.0, 2.5, -7.25, 1.5, None, None, None, None, (37.5, 42.5), (-8.75, -5.75)),
        Sum(60.0, None, 12.5, 1.5, 0.21, 0.03, 61.0, 2.0, (0.0, 100.0), (11.0, 14.0), (0.18, 0.24)),
    ),
    100,
    1.0 - ACCURACY.failure_probability,
    Path.REPEAT,
    use=Use(Useful.NO, math.inf, 6.88, 1.1),
)
SUM_BY_CANCELLED = LinearQuery(EVERYTHING, range(1), (CANCELLED,), Total(1, (0.0, 5.0, 20.0, 40.0)))


def write_kept(query: LinearQuery) -> Callable[[Any], bytes]:
    def write(answer: Any) -> bytes:
        counts = Calibrated(FLIGHTS, PRIVACY, ACCURACY)
        counts.state.repeats.keep(query, answer, final=True)
        (stored,) = counts.remembered().values()
        return stored

    return write


def read_kept(query: LinearQuery) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        counts = Calibrated(FLIGHTS, PRIVACY, ACCURACY)
        counts.open_phase(100)
        counts.state.repeats.keep(query, KEPT_COUNTS, final=False)
        (key,) = counts.remembered()
        counts.recall({key: data})
        found = counts.state.repeats.kept(query)
        assert found is not None
        answer, final = found
        assert final
        return answer

    return read


COMMIT = Commit(
    dataset="flights",
    number=2**40,
    prev=bytes(range(32)),
    nonce=bytes(range(100, 116)),
    pairs={
        (StateTable.DEFINITION, b""): b'{"version":1}',
        (StateTable.FACT, "\u00e4".encode()): b"",
        (StateTable.CURSOR, b"queries:0"): b"9007199254740993",
        (StateTable.SPENT, b"2"): b"1 1125899906842624",
        (StateTable.TRANSCRIPT, b"0"): b"\x01measurement",
        (StateTable.INTENT, b"7"): None,
        (StateTable.VERIFIED, KEY): b"verified",
        (StateTable.WAITING, b"3"): None,
        (StateTable.KEPT, b"block 2"): b"\x01name",
        (StateTable.ANSWER, b"ana q1"): b"answer\x00",
        (StateTable.OUTCOME, b"b1"): b"outcome",
        (StateTable.TAKEN, b"b1"): b"",
    },
    sum=2**127 + 5,
    out=b"\x01outbox",
)
CHECKPOINT = Checkpoint(
    state=state_of(
        {pair: value for pair, value in COMMIT.pairs.items() if value and pair[0] not in BY_ID}
    ),
    carried={(StateTable.ANSWER, b"ana q1"): b"answer\x00", (StateTable.OUTCOME, b"b1"): b""},
    ids=b"\x01index of ids",
)
EXAMPLES = {
    **{
        name: Example(SlabIndex.from_bytes(slab.stored(SALT)[0]), SlabIndex.from_bytes)
        for name, slab in SLABS.items()
    },
    "secret-of-persons-v1-drawn": Example(
        PersonSecret(bytes(range(32)), of_file=False),
        lambda data: PersonSecret.from_bytes(data, "flights", None),
    ),
    "secret-of-persons-v1-of-file": Example(
        PersonSecret.new(QuickNoise(1), "flights", KEY_FILE),
        lambda data: PersonSecret.from_bytes(data, "flights", KEY_FILE),
    ),
    "secret-v1": Example(Secret([0, -(2**62), 7]), lambda data: Secret.from_bytes(data, 3)),
    "predicate": Example(LATE, lambda data: Predicate.from_bytes(FLIGHTS, data)),
    "predicate-everything": Example(EVERYTHING, lambda data: Predicate.from_bytes(FLIGHTS, data)),
    "table-v1": Example(
        TableRelease(2, integers(*FLIGHTS.shape)), lambda data: table().release_from_bytes(data)
    ),
    "measurement-v1-tables": Example(
        TablesRelease(
            (Part((CARRIER, DELAY), 3, -5), Part((), 4, 6)),
            (integers(*FLIGHTS.shape[:2]), np.array(-9)),
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-grown": Example(
        TablesRelease((Part((CARRIER,), 3, -5),), (integers(FLIGHTS.shape[CARRIER]),), "growth"),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "asked-query-v1": Example(
        Asked(
            2**63 + 5,
            None,
            (CARRIER, CANCELLED),
            (b"\x80", b""),
            (1.0, 2.0, 0.5, 3.0),
            True,
            1.5,
            0.5,
        ),
        lambda data: Asked.from_bytes(data, axes_of(FLIGHTS.shape))[1],
        lambda stored: stored.to_bytes(7),
    ),
    "phase-of-asked-queries-v1": Example(
        (7, [1, 2**64 - 1]), came_from_bytes, lambda stored: came_to_bytes(*stored)
    ),
    "measurement-v1-counts": Example(
        CountsRelease(KEY, (CARRIER, CANCELLED), ((0, 5), (7, -2)), integers(2, 3)),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-fresh": Example(
        CountsRelease(KEY, (CARRIER, CANCELLED), ((0, 5), (7, -2)), integers(2, 3), fresh=True),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-joined": Example(
        JoinedRelease(
            (
                CountsRelease(KEY, (CARRIER,), ((0, 5), (1, -2)), integers(2, 1)),
                CountsRelease(OTHER_KEY, (CARRIER, CANCELLED), ((2, 5),), integers(1, 3)),
            )
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-keys": Example(
        KeyRelease(
            CARRIER,
            3,
            (
                KeyCounts(range(3, 4), ((b"/home", 900), ("Zürich".encode(), -2))),
                KeyCounts(range(4), ()),
            ),
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-tick": Example(
        TickRelease(3, 12, (integers(3), integers(1))), TickRelease.from_bytes
    ),
    "measurement-v1-periods": Example(
        PeriodsRelease(
            3,
            (
                LastTotal((0,), b"", 6.25, np.array([3.5, -1.0, 2.0, 0.25])),
                LastTotal((2,), b"key", 1.5, np.array([7.0])),
            ),
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-sums": Example(
        SumRelease(
            (KEY, OTHER_KEY, bytes(16)),
            (CARRIER, DELAY),
            0.25,
            SumShape(-4, 120, 116, grouped=True, every_row=False),
            ((0, 5, -2), (7, 9, 3)),
            integers(2, 2, 3),
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-sums-blank": Example(
        SumRelease(
            (KEY, OTHER_KEY, bytes(16)),
            (DELAY,),
            0.25,
            SumShape(-4, 120, 116, grouped=False, every_row=True, blank=True),
            ((0, 5, -2), (7, 9, 3)),
            integers(2, 2, 1),
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-shares": Example(
        SumRelease(
            (KEY, OTHER_KEY, PART_KEY),
            (CARRIER, CANCELLED),
            2.0**-8,
            SumShape(0, 256, 105, grouped=False, every_row=False),
            ((0, 501, 236), (7, 526, 260)),
            integers(2, 2, 1),
            is_share=True,
        ),
        lambda data: Calibrated(FLIGHTS, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-groups": Example(
        TablesRelease(
            (Part((0, 1), 3, -5, (5, 2)), Part((0,), 4, 6)), (integers(5, 2), integers(25))
        ),
        lambda data: Calibrated(AGES, PRIVACY, ACCURACY).release_from_bytes(data),
    ),
    "measurement-v1-rows": Example(
        RowsRelease(3, -5, -(2**40)),
        lambda data: Calibrated(FLIGHTS, PERSON, ACCURACY).release_from_bytes(data),
    ),
    "remembered-answer-v1": Example(REMEMBERED, read_remembered, write_remembered),
    "kept-answer-v1": Example(KEPT_COUNTS, read_kept(BY_CANCELLED), write_kept(BY_CANCELLED)),
    "kept-answer-v1-sums": Example(
        KEPT_SUMS, read_kept(SUM_BY_CANCELLED), write_kept(SUM_BY_CANCELLED)
    ),
    "gated-count-v1": Example(
        CountRelease(4, WINDOW, LATE, True, -(2**80)),
        lambda data: CountRelease.from_bytes(FLIGHTS, data),
    ),
    "release-of-a-phase-v1-phase": Example(
        PhaseRelease(3), lambda data: median().release_from_bytes(data)
    ),
    "release-of-a-phase-v1-query": Example(
        QueryRelease(3, 2**40, WINDOW, LATE, True, -(2**80)),
        lambda data: median().release_from_bytes(data),
    ),
    "release-of-a-stage-v1": Example(
        StageRelease(2, PhaseRelease(3)), lambda data: doubling().release_from_bytes(data)
    ),
    "release-of-a-kind-v255": Example(
        _NamedRelease(1, StableRelease(KEY, DELAY, 3)),
        lambda data: with_kinds().release_from_bytes(data),
    ),
    "curve-v1": Example(
        CURVES,
        lambda data: Thresholds(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05)).release_from_bytes(data),
    ),
    "tree-v1": Example(integers(3), TREE.from_bytes, TREE.to_bytes),
    "partition-v1": Example(
        PartitionRelease(np.array([1, 4]), integers(2)), PARTITION.from_bytes, PARTITION.to_bytes
    ),
    "stable-cell-v1": Example(
        StableRelease(KEY, DELAY, 3), lambda data: medians().release_from_bytes(data)
    ),
    "stable-cell-v1-no-answer": Example(
        StableRelease(KEY, DELAY, None), lambda data: medians().release_from_bytes(data)
    ),
    "batch-of-conditions-v1": Example(
        BatchRelease(DELAY, WINDOW, 20, 0.125, {KEY: 3, OTHER_KEY: 20}),
        lambda data: Batches(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05)).release_from_bytes(data),
    ),
    "response-vector-v1": Example(
        ResponsesRelease(1, b"\xa5\x80"),
        lambda data: opened(
            CorrelatedVectors(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05), attribute="cancelled"), 3, 9
        ).release_from_bytes(data),
    ),
    "comparison-v1": Example(
        BetweenRelease(2, WINDOW, KEY, Side.BETWEEN),
        lambda data: opened(
            Between(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05), answers=2), 9, 9, 9
        ).release_from_bytes(data),
    ),
    "point-v1": Example(
        PointRelease(2, RunKey(DELAY, WINDOW), 3, tuple(Side)),
        lambda data: opened(
            Interior(KindTerms(FLIGHTS, BUDGET, 0.1, 0.05), points=100), 9, 9, 9
        ).release_from_bytes(data),
    ),
    "answer-v1": Example(
        codec.StoredAnswer(KEY, b'{"version":1,"value":0.173}\x00\xff'),
        codec.answer_from_bytes,
        lambda stored: codec.answer_to_bytes(*stored),
    ),
    "outbox-v1": Example(
        [codec.OutboxRecord("answers", b"flights", (("query_id", b"q1"),), None), "ana q1"],
        codec.outbox_from_bytes,
        codec.outbox_to_bytes,
    ),
    "commit-v1": Example(
        COMMIT, lambda data: Commit.from_bytes(data)[0], lambda stored: stored.to_bytes()[0]
    ),
    "checkpoint-v1": Example(CHECKPOINT, Checkpoint.from_bytes),
    "checkpoint-v1-restart": Example(replace(CHECKPOINT, restarts=True), Checkpoint.from_bytes),
    "index-of-ids-v1": Example(index_of_ids(), Ids.from_bytes),
    "name-of-a-kept-value-v1": Example(
        private_names.Named(KEY, (2**40, 2**40 + 1, 2**40 + 2, 7)), private_names.Named.from_bytes
    ),
    "name-of-a-kept-value-v1-in-a-file": Example(
        private_names.Named(KEY, (), OTHER_KEY[:8]), private_names.Named.from_bytes
    ),
}


def golden(name: str) -> bytes:
    file = GOLDEN / f"{name}.bin"
    if os.environ.get("FREEZE") and not file.exists():
        example = EXAMPLES[name]
        file.write_bytes(example.write(example.stored))
    return file.read_bytes()


OPEN = {"answer-v1": 17, "point-v1": 17}
"""What comes after so many bytes has any length."""


def contents(name: str, stored: bytes) -> bytes:
    """What is stored. Which compressed bytes stand for it depends on the library that compresses."""
    if name.startswith("commit-"):
        return stored[:1] + zlib.decompress(stored[1:])
    if name.startswith("checkpoint-"):
        reader = encoding.Reader(stored, "checkpoint")
        return reader.take(1) + zlib.decompress(reader.required()) + reader.required()
    return stored


every_example = pytest.mark.parametrize("name", EXAMPLES)


@every_example
def test_what_is_written_now_is_the_frozen_example(name: str) -> None:
    example = EXAMPLES[name]
    assert contents(name, example.write(example.stored)) == contents(name, golden(name))


@every_example
def test_the_frozen_example_is_read_and_written_back_alike(name: str) -> None:
    example = EXAMPLES[name]
    again = example.read(golden(name))
    assert type(again) is type(example.stored)
    assert contents(name, example.write(again)) == contents(name, golden(name))


@pytest.mark.parametrize("name", SLABS)
def test_the_columns_of_a_slab_are_those_that_the_frozen_index_says(name: str) -> None:
    slab, index = SLABS[name], SlabIndex.from_bytes(golden(name))
    assert (index.n_rows, index.n_slots) == (slab.n_rows, slab.n_slots)
    parts = slab.stored(SALT)
    assert index.names == tuple(slab.columns)
    assert len(parts) == 1 + len(index.names)
    for column, stored in zip(index.names, parts[1:], strict=True):
        place = index.place(column)
        assert index.has(place, stored)
        assert index.n_bytes(place) == len(stored)
        again = index.column(place, stored)
        assert again.dtype == slab.columns[column].dtype
        assert again.tolist() == slab.columns[column].tolist()


def test_units_of_persons_come_back_from_their_slab() -> None:
    again = Used.of_slabs([Slab.of_stored(SLABS["slab-v1-units"].stored(SALT))])
    assert again.n_places == USED.n_places
    assert (again.keys == USED.keys).all()
    assert (again.units == USED.units).all()


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of the core and of the state."""
    return tuple(
        importlib.import_module(module.name)
        for package in (stream_dp.core, stream_dp.state)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    )


def test_every_format_has_a_frozen_example() -> None:
    assert modules(), "which makes the formats known"
    known = {
        f"{name.replace(' ', '-')}-v{form.version}"
        for name, form in encoding.formats().items()
        if name != "example of the tests"
    }
    frozen = {re.sub(r"(-v\d+)-.*", r"\1", file.stem) for file in GOLDEN.glob("*-v*.bin")}
    assert frozen == known
    assert len(known) >= 20


def test_no_other_module_packs_by_hand() -> None:
    for module in modules():
        if module is not encoding:
            assert not {"struct", "pickle"} & vars(module).keys(), module.__name__


def classes_with_bytes() -> Iterator[type]:
    """Every class of the core that says how it is stored."""
    for module in modules():
        for _, found in inspect.getmembers(module, inspect.isclass):
            of_its_own = found.__module__ == module.__name__
            if (
                of_its_own
                and "to_bytes" in vars(found)
                and not getattr(found, "_is_protocol", False)
            ):
                yield found


def test_every_class_that_is_stored_has_an_example() -> None:
    lacking = set(classes_with_bytes()) - {type(one.stored) for one in EXAMPLES.values()}
    # Plans write what they publish, and are not stored themselves.
    assert lacking == {TreePlan, PartitionPlan}


@every_example
def test_what_is_cut_short_or_too_long_is_refused(name: str) -> None:
    read, stored = EXAMPLES[name].read, golden(name)
    kept = OPEN.get(name, len(stored))
    for length in range(kept):
        with pytest.raises(CorruptState):
            read(stored[:length])
    if kept == len(stored):
        with pytest.raises(CorruptState):
            read(stored + b"\x00")


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "-v" in name])
def test_what_a_later_release_wrote_says_what_to_do(name: str) -> None:
    with pytest.raises(CorruptState, match="the release that wrote it"):
        EXAMPLES[name].read(b"\x7f" + golden(name)[1:])


# Identities: what requests, queries and predicates are told apart by. Repeats are stored under them.

AA, LATER = (
    Predicate.conjunction({0: np.arange(3) == 0}),
    Predicate.conjunction({1: np.arange(4) > 2}),
)
IDENTITIES: dict[str, bytes] = {
    "canonical, every type": encoding.canonical(
        [
            None,
            True,
            False,
            0,
            -1,
            255,
            -(2**70),
            0.5,
            -0.0,
            "a\u00e9\ud800",
            b"\x00",
            {"b": 1, "a": []},
        ]
    ),
    "identity": encoding.identity("request", "predicate", (AA.key, ()), None, False),
    "identity, with an error and a price": encoding.identity(
        "request",
        "predicate",
        (AA.key, (), "target", None, None, 0.05, 0.02),
        None,
        False,
    ),
    "predicate, everything": EVERYTHING.key,
    "predicate, nothing": NOTHING.key,
    "predicate, a product": AA.key,
    "predicate, no product": LATE.key,
    "linear query, a count": LinearQuery(AA, WINDOW).key,
    "linear query, a table": LinearQuery(AA, WINDOW, (2, 1)).key,
    "linear query, a sum": LinearQuery(AA, WINDOW, (), Total(1, (-5.0, 5.0, 20.0, 40.0))).key,
    "linear query, a sum and rows": LinearQuery(
        AA, WINDOW, (2,), Total(1, (-5.0, 5.0, 20.0, 40.0)), EVERYTHING
    ).key,
    "linear query, a share": LinearQuery(EVERYTHING, WINDOW, (), Indicator(AA)).key,
    "linear query, a share by group": LinearQuery(
        LATE, WINDOW, (2,), Indicator(LATE.and_also(AA))
    ).key,
    "kind query, between": KindQuery("between", WINDOW, None, AA, (), (0.25, 0.5)).key,
    "kind query, prefix_batch": KindQuery("prefix_batch", WINDOW, 1, EVERYTHING, (AA, LATER)).key,
}


def test_identities_are_the_same_in_every_release() -> None:
    file = GOLDEN.parent / "identities.json"
    frozen = json.loads(file.read_text()) if file.exists() else {}
    found = {name: key.hex() for name, key in IDENTITIES.items()}
    if os.environ.get("FREEZE"):
        frozen = {**found, **frozen}
        file.write_text(json.dumps(frozen, indent=1) + "\n")
    assert found == frozen
    assert len(set(found.values())) == len(found) - 1, "a query for one count is its predicate"
