"""Blocks whose rows are erased: what was published goes on answering, and no look reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Target, erased_blocks
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    RefusalCode,
    Refused,
    TableAnswered,
)
from stream_dp.core.queries.query import LinearQuery, Predicate, Total
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.plan.planner import BudgetAllocator, Policy
from tests.core.residual.test_calibrated import SIZES, Host, make, stream
from tests.noise import RoundedNoise

FIRST = Predicate.conjunction({0: np.arange(SIZES[0]) < 1})
HALF = Predicate.conjunction({1: np.arange(SIZES[1]) < 1})
ALL, LAST = range(3), range(2, 3)
N_ROWS = 20_000


class Forgetting(Host):
    """Erases rows when the definition says so, as the pipeline does."""

    def open(self, n: int, seed: int) -> None:
        self.erase(len(self.data) + 1)
        super().open(n, seed)

    def erase(self, n_blocks: int) -> None:
        self.data.erase(erased_blocks(n_blocks, self.mechanism.state.settings.kept))

    def take(self, look: Look) -> Any:
        self.data.check(look.reads)
        return super().take(look)


def opened(n_phases: int = 3, *, kept: int | None = 1, **options: Any) -> Forgetting:
    settings = {"base_share": 0.0, "on_exhausted": "refuse", **options}
    made = Forgetting(make(kept=kept, **settings), RoundedNoise(2))
    for phase in range(n_phases):
        made.open(N_ROWS, phase + 1)
    return made


def code(outcome: Outcome) -> RefusalCode | None:
    return outcome.code if isinstance(outcome, Refused) else None


WAYS = {
    "a count": LinearQuery(FIRST, ALL),
    "a table": LinearQuery(FIRST, ALL, (1, 2)),
    "an error of its own": LinearQuery(FIRST, ALL, target=Target(share=0.01)),
    "a relative error": LinearQuery(FIRST, ALL, target=Target(relative=0.1)),
    "a fresh answer": LinearQuery(FIRST, ALL, fresh=True),
    "a sum": LinearQuery(FIRST, ALL, total=Total(3, tuple(float(v) for v in range(SIZES[3])))),
    "a mean": LinearQuery(
        FIRST,
        ALL,
        total=Total(3, tuple(float(v) for v in range(SIZES[3]))),
        target=Target(mean=0.2),
    ),
    "a difference": LinearQuery(FIRST, ALL, difference=(LAST, range(2))),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_would_need_a_look_at_erased_rows_is_refused_with_its_own_reason(name: str) -> None:
    """The same query is answered while the rows are there, and about the rows that are kept."""
    query, it = WAYS[name], opened()
    assert code(it.ask(query)) is RefusalCode.ROWS_ERASED
    assert code(it.mechanism.quote(query).outcome or it.ask(query)) is RefusalCode.ROWS_ERASED
    assert it.charges == []
    assert code(opened(kept=None).ask(query)) is None
    newest = replace(query, window=LAST, difference=None)
    assert code(it.ask(newest)) is None
    assert {charge.block for charge in it.charges} == {2}


@pytest.mark.parametrize("name", [name for name in WAYS if name != "a fresh answer"])
def test_it_is_answered_without_a_promise_where_an_exhausted_budget_would_be(name: str) -> None:
    outcome = opened(on_exhausted="unverified").ask(WAYS[name])
    assert getattr(outcome, "path", None) is Path.UNVERIFIED


def test_what_was_published_goes_on_answering_when_the_rows_are_gone() -> None:
    it = opened(2, kept=2)
    about = LinearQuery(FIRST, range(2))
    before = it.ask(about)
    paid = list(it.charges)
    it.open(N_ROWS, 3)
    it.open(N_ROWS, 4)
    assert it.data.erased == 2
    again = it.ask(about)
    assert isinstance(again, Answered)
    assert isinstance(before, Answered)
    assert (again.path, again.count) == (Path.REPEAT, before.count)
    assert it.charges == paid
    grouped = replace(about, group_by=(1,))
    assert code(it.ask(grouped)) is RefusalCode.ROWS_ERASED


def test_other_blocks_pay_for_a_window_of_which_the_oldest_block_was_measured_in_time() -> None:
    """Water-filling uses the lines of the blocks that have rows, and only these."""
    it = opened(1, kept=1)
    it.ask(LinearQuery(FIRST, range(1), target=Target(share=0.005)))
    it.open(N_ROWS, 2)
    it.charges.clear()
    outcome = it.ask(LinearQuery(FIRST, range(2)))
    assert isinstance(outcome, Answered)
    assert outcome.path is Path.MEASURED
    assert {charge.block for charge in it.charges} == {1}


def test_an_erased_block_has_no_room_whatever_its_line_has_left() -> None:
    allocator = BudgetAllocator(Policy(pacing=True), kept=2)
    for _ in range(4):
        allocator.opened(allocator.open(), 0.0)
    assert allocator.erased == 2
    for room in (allocator.room, allocator.room_of_tiles, allocator.left):
        assert (room(range(4)) > 0).tolist() == [False, False, True, True]
        assert (room(range(1, 3)) > 0).tolist() == [False, True]
    limited = allocator.within(7, lambda window: np.zeros(len(window), dtype=np.int64))
    assert limited.room(range(4)).tolist() == [0, 0, 7, 7]
    assert (allocator.lines.left(range(4)) > 0).all(), "the budget itself stays what it is"


def test_no_stream_of_queries_leads_to_a_look_at_erased_rows() -> None:
    """``take`` fails for a look that reads them; counts, tables and base releases are among them."""
    tile = PlannedTile(LinearQuery(HALF, range(1)), None)
    for options in ({}, {"tiles": (tile,)}, {"base_share": None}, {"pacing": True}):
        it = opened(kept=2, error=0.01, **options)
        for number, query in enumerate(stream(5, 60, 3)):
            for asked in (query, replace(query, fresh=number % 5 == 0)):
                quote = it.mechanism.quote(asked)
                assert all(charge.block >= it.mechanism.erased for charge in quote.charges)
                it.ask(asked)
        assert {charge.block for look in it.looks for charge in look.charges} >= {1, 2}


def test_a_planner_that_does_not_know_what_is_erased_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken copy: it would look there, and both the check of looks and the blocks refuse."""
    monkeypatch.setattr(BudgetAllocator, "erased", 0)
    it = opened()
    step = it.mechanism.answer(WAYS["a count"])
    assert isinstance(step, Look)
    assert 0 in step.reads
    stops: tuple[Callable[[], object], ...] = (
        lambda: it.data.check(step.reads),
        lambda: step.take(it.noise, it.data),
    )
    for stop in stops:
        with pytest.raises(ValueError, match="the rows of a block of the window are erased"):
            stop()


def test_a_base_release_that_was_lost_is_taken_again_while_there_are_rows() -> None:
    for kept, taken in ((1, [2]), (2, [1, 2]), (None, [1, 2])):
        it = opened(1, kept=kept, base_share=0.1)
        lost = it.mechanism.open_phase(N_ROWS)
        it.mechanism.charged(lost[0].charges)
        it.mechanism.lost(lost[0].description)
        looks = it.mechanism.open_phase(N_ROWS)
        assert [look.charges[0].block for look in looks] == taken


def test_a_restart_knows_what_is_erased() -> None:
    it = opened(kept=1, base_share=0.05)
    again = it.restarted(on_exhausted="refuse", kept=1)
    assert again.mechanism.erased == 2
    for query in stream(3, 20, 3):
        assert again.mechanism.quote(query) == it.mechanism.quote(query)


def test_queries_that_are_priced_together_respect_it_too() -> None:
    it = opened()
    queries = [WAYS["a count"], LinearQuery(FIRST, LAST), WAYS["a table"]]
    bundle = it.mechanism.quote_together(queries)
    codes = [None if quote.outcome is None else code(quote.outcome) for quote in bundle.quotes]
    assert codes == [RefusalCode.ROWS_ERASED, None, RefusalCode.ROWS_ERASED]
    assert {charge.block for charge in bundle.high} == {2}


def test_the_other_lacks_keep_their_reasons() -> None:
    """A line that is spent, and a window of too few rows, are not blamed on the erasure."""
    it = opened(error=0.003)
    for query in stream(9, 300, 3):
        it.ask(replace(query, window=LAST))
    found = {code(it.ask(replace(query, window=LAST))) for query in stream(10, 20, 3)}
    assert found & {RefusalCode.BUDGET_EXHAUSTED, RefusalCode.WINDOW_TOO_SMALL}
    assert RefusalCode.ROWS_ERASED not in found
    assert isinstance(opened().ask(LinearQuery(FIRST, LAST, (1,))), TableAnswered)
