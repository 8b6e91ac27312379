"""How many phases ago a person was there before: docs/proofs, Theorem 41."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from stream_dp.core.budget.accountant import Budget, epsilon_of
from stream_dp.core.budget.parameters import Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Once
from stream_dp.core.rows import person_records
from stream_dp.core.rows.attributes import Boolean, Number
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_records import folded_rows, phases_since
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Slots
from stream_dp.core.rows.universe import Universe

N: Final = 3
"""The number of phases ago that is not told apart from larger ones."""
SHOP: Final = Universe(
    (
        Boolean("bought", fold="any"),
        Number("away", (2.0, 3.0), integer=True, fold="since"),
        Number("before", (2.0, 3.0), integer=True, missing=True, fold="since", of="bought"),
    )
)
ABSENT, THERE, BUYS = range(3)
"""What a person does in a phase."""
MISSING: Final = N
"""The cell of those who do not buy."""

_Cells = tuple[tuple[int, int, int], ...]


def digest(person: int) -> np.ndarray[Any, Any]:
    found = np.zeros((1, DIGEST_BYTES), np.uint8)
    found[0, 5] = person
    return found


def records(lives: Mapping[int, tuple[int, ...]]) -> list[dict[int, tuple[int, int, int]]]:
    """The record of each person in each phase: what it says of buying, and the two numbers of phases."""
    n_phases, found = len(next(iter(lives.values()))), list[dict[int, tuple[int, int, int]]]()
    for phase in range(n_phases):
        here = [person for person, life in lives.items() if life[phase] != ABSENT]
        if not here:
            found.append({})
            continue
        whose = Slots(np.concatenate([*map(digest, here)]), np.arange(len(here), dtype=np.uint64))
        bought = [lives[person][phase] == BUYS for person in here]
        encoded = SHOP.encode_columns(
            {"bought": bought, "away": [None] * len(here), "before": [None] * len(here)}
        )
        since = {}
        for at, meant in ((1, lambda _: True), (2, lambda cells: cells[0] == 1)):
            attribute = SHOP.attributes[at]
            assert isinstance(attribute, Number)
            before = [
                np.concatenate(
                    [
                        digest(0)[:0],
                        *(digest(one) for one, cells in found[back].items() if meant(cells)),
                    ]
                )
                for back in range(phase - 1, max(-1, phase - N), -1)
            ]
            since[at] = phases_since(attribute, whose, before)
        rows = folded_rows(SHOP, Rows(encoded.codes, None, {}, whose), since)
        cells = zip(*(column.tolist() for column in rows.codes), strict=True)
        found.append(dict(zip(here, cells, strict=True)))
    return found


LIVES: Final = [*product((ABSENT, THERE, BUYS), repeat=5)]


OTHER: Final = (BUYS, THERE, ABSENT, BUYS, THERE)


def moved(life: tuple[int, ...], window: range, attribute: int) -> int:
    """The records outside a window that say something else of an attribute once the window is blank."""
    blank = tuple(ABSENT if at in window else did for at, did in enumerate(life))
    whole, without = records({1: life, 2: OTHER}), records({1: blank, 2: OTHER})
    n_moved = 0
    for phase, (one, two) in enumerate(zip(whole, without, strict=True)):
        assert one.get(2) == two.get(2), "what somebody else says is another thing"
        if phase in window:
            assert 1 not in two
        elif 1 in one:
            n_moved += one[1][attribute] != two[1][attribute]
    return n_moved


@pytest.mark.parametrize("attribute", [1, 2])
def test_a_window_moves_at_most_one_record_of_each_attribute(attribute: int) -> None:
    """All lives of five phases, and all windows of one and of two."""
    worst = max(
        moved(life, range(start, start + length), attribute)
        for life in LIVES
        for length in (1, 2)
        for start in range(5 - length + 1)
    )
    assert worst == 1


def test_a_copy_that_counts_from_any_record_moves_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken copy, in which those who do not buy say, too, how long ago they did."""
    monkeypatch.setattr(person_records, "of_boolean", lambda *_: None)
    window = range(1)
    assert max(moved(life, window, 2) for life in LIVES) > 1


def test_each_person_of_a_window_is_counted_once() -> None:
    """(b), for all lives of two persons in a sample, and all windows of up to three phases."""
    for attribute, size in ((1, N), (2, N + 1)):
        once = Once(attribute, N, size)
        for life, other in zip(LIVES, LIVES[::-1], strict=True):
            every = records({1: life, 2: other})
            for length in (1, 2, 3):
                for start in range(5 - length + 1):
                    query = LinearQuery(EVERYTHING, range(start, start + length), once=once)
                    counted = 0
                    for part in query.by_phase:
                        cells = part.predicate.cells_of(attribute, size)
                        (phase,) = part.window
                        counted += sum(bool(cells[one[attribute]]) for one in every[phase].values())
                    is_meant = {1: (THERE, BUYS), 2: (BUYS,)}[attribute]
                    persons = sum(
                        any(did in is_meant for did in one[start : start + length])
                        for one in (life, other)
                    )
                    assert counted == persons


def test_a_line_pays_twice_for_each_record_that_moves() -> None:
    plain = Budget.of(Privacy(1.0, 1e-9, Unit(1, 12)))
    one, two = (Budget.of(Privacy(1.0, 1e-9, Unit(1, 12, moved=n))) for n in (1, 2))
    assert one.rho * 14 == two.rho * 16 == plain.rho * 12
    # What a full line takes of the promise stays below it: all lines of twelve phases, and two of another.
    assert one.rho * (12 + 2) == plain.rho * 12
    assert float(plain.rho / one.rho) ** 0.5 == pytest.approx(21.6219 / 20.0180, abs=1e-5)
    assert one.delta == plain.delta == Fraction(0)


def test_a_copy_with_lines_that_pay_for_the_window_alone_breaks_the_promise() -> None:
    """The golden number of the design: epsilon 1.0838 in place of 1."""
    line = Budget.of(Privacy(1.0, 1e-9, Unit(1, 12))).rho
    assert epsilon_of(line * 14, 1e-9) == pytest.approx(1.0838, abs=1e-4)
