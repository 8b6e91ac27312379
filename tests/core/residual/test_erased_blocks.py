"""Blocks whose rows are erased: what was published goes on answering, and no look reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.outcome import Path, RefusalCode, TableAnswered
from stream_dp.core.queries.query import LinearQuery, Total
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.plan.planner import BudgetAllocator
from stream_dp.core.rows.blocks import Block
from tests.core.residual.host import SIZES, UNIVERSE, Host, aimed, rows, stream, where

ALL, LAST = range(3), range(2, 3)
COUNT = LinearQuery(where(SIZES, {0: [0]}), ALL)


class Forgetting(Host):
    """Erases rows when the definition says so, as the pipeline does."""

    def open(self, block: Block) -> None:
        self.data.erase(erased_blocks(len(self.data) + 1, self.state.settings.kept))
        super().open(block)


def forgetting(n_phases: int = 3, *, kept: int | None = 1, **options: Any) -> Forgetting:
    settings = {"base_share": 0.0, "on_exhausted": "refuse", **options}
    return Forgetting(UNIVERSE, *map(rows, range(1, n_phases + 1)), kept=kept, **settings)


def code(outcome: Any) -> RefusalCode | None:
    return getattr(outcome, "code", None)


SUM = replace(COUNT, total=Total(3, tuple(float(v) for v in range(SIZES[3]))))
WAYS = {
    "a count": COUNT,
    "a table": replace(COUNT, group_by=(1, 2)),
    "an error of its own": aimed(COUNT, share=0.01),
    "a relative error": aimed(COUNT, relative=0.1),
    "a fresh answer": replace(COUNT, fresh=True),
    "a sum": SUM,
    "a mean": aimed(SUM, mean=0.2),
    "a difference": replace(COUNT, difference=(LAST, range(2))),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_would_need_a_look_at_erased_rows_is_refused_with_its_own_reason(name: str) -> None:
    """The same query is answered while the rows are there, and about the rows that are kept."""
    query, it = WAYS[name], forgetting()
    assert code(it.ask(query)) is RefusalCode.ROWS_ERASED
    assert code(it.mechanism.quote(query).outcome or it.ask(query)) is RefusalCode.ROWS_ERASED
    assert it.charges == []
    assert code(forgetting(kept=None).ask(query)) is None
    assert code(it.ask(replace(query, window=LAST, difference=None))) is None
    assert {charge.block for charge in it.charges} == {2}


@pytest.mark.parametrize("name", [name for name in WAYS if name != "a fresh answer"])
def test_it_is_answered_without_a_promise_where_an_exhausted_budget_would_be(name: str) -> None:
    assert forgetting(on_exhausted="unverified").ask(WAYS[name]).path is Path.UNVERIFIED


def test_what_was_published_goes_on_answering_when_the_rows_are_gone() -> None:
    it, about = forgetting(2, kept=2), replace(COUNT, window=range(2))
    before = it.ask(about)
    it.open(rows(3))
    it.open(rows(4))
    assert it.data.erased == 2
    again = it.ask(about)
    assert (again.path, again.count) == (Path.REPEAT, before.count)
    assert not it.looks
    assert code(it.ask(replace(about, group_by=(1,)))) is RefusalCode.ROWS_ERASED


def test_other_blocks_pay_for_a_window_of_which_the_oldest_block_was_measured_in_time() -> None:
    """Water-filling uses the lines of the blocks that have rows, and only these."""
    it = forgetting(1)
    it.ask(aimed(replace(COUNT, window=range(1)), share=0.005))
    it.open(rows(2))
    assert it.ask(replace(COUNT, window=range(2))).path is Path.MEASURED
    assert {charge.block for look in it.looks for charge in look.charges} == {1}


def test_an_erased_block_has_no_room_whatever_its_line_has_left() -> None:
    allocator = BudgetAllocator(pacing=True, kept=2)
    for _ in range(4):
        allocator.opened(allocator.open(), 0.0)
    assert allocator.erased == 2
    for room in (allocator.room, allocator.room_of_tiles, allocator.left):
        assert (room(range(4)) > 0).tolist() == [False, False, True, True]
        assert (room(range(1, 3)) > 0).tolist() == [False, True]
    limited = allocator.within(7, lambda window: np.zeros(len(window), dtype=np.int64))
    assert limited.room(range(4)).tolist() == [0, 0, 7, 7]
    assert (allocator.lines.left(range(4)) > 0).all(), "the budget itself stays what it is"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tiles": (PlannedTile(LinearQuery(where(SIZES, {1: [0]}), range(1)), None),)},
        {"base_share": None},
        {"pacing": True},
    ],
    ids=str,
)
def test_no_stream_of_queries_leads_to_a_look_at_erased_rows(options: dict[str, Any]) -> None:
    """``take`` fails for a look that reads them; counts, tables and base releases are among them."""
    it = forgetting(kept=2, error=0.01, **options)
    for number, query in enumerate(stream(5, 60, 3)):
        for asked in (query, replace(query, fresh=number % 5 == 0)):
            quote = it.mechanism.quote(asked)
            assert all(charge.block >= it.mechanism.erased for charge in quote.charges)
            it.ask(asked)
    assert {charge.block for charge in it.charges} >= {1, 2}


def test_a_planner_that_does_not_know_what_is_erased_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken copy: it would look there, and both the check of looks and the blocks refuse."""
    monkeypatch.setattr(BudgetAllocator, "erased", 0)
    it = forgetting()
    step = it.step(COUNT)
    assert 0 in step.reads
    for stop in (lambda: it.data.check(step.reads), lambda: step.take(it.noise, it.data)):
        with pytest.raises(ValueError, match="the rows of a block of the window are erased"):
            stop()


@pytest.mark.parametrize(("kept", "taken"), [(1, [2]), (2, [1, 2]), (None, [1, 2])])
def test_a_base_release_that_was_lost_is_taken_again_while_there_are_rows(
    kept: int | None, taken: list[int]
) -> None:
    it = forgetting(1, kept=kept, base_share=0.1)
    (lost,) = it.mechanism.open_phase(20_000)
    it.lose(lost)
    looks = it.mechanism.open_phase(20_000)
    assert [look.charges[0].block for look in looks] == taken


def test_a_restart_knows_what_is_erased() -> None:
    it = forgetting(base_share=0.05)
    again = it.restarted()
    assert again.mechanism.erased == 2
    for query in stream(3, 20, 3):
        assert again.mechanism.quote(query) == it.mechanism.quote(query)


def test_queries_that_are_priced_together_respect_it_too() -> None:
    queries = [WAYS["a count"], replace(COUNT, window=LAST), WAYS["a table"]]
    bundle = forgetting().mechanism.quote_together(queries)
    codes = [code(quote.outcome) for quote in bundle.quotes]
    assert codes == [RefusalCode.ROWS_ERASED, None, RefusalCode.ROWS_ERASED]
    assert {charge.block for charge in bundle.high} == {2}


def test_the_other_lacks_keep_their_reasons() -> None:
    """A line that is spent, and a window of too few rows, are not blamed on the erasure."""
    it = forgetting(error=0.003)
    found = {code(it.ask(replace(query, window=LAST))) for query in stream(9, 320, 3)}
    assert found & {RefusalCode.BUDGET_EXHAUSTED, RefusalCode.WINDOW_TOO_SMALL}
    assert RefusalCode.ROWS_ERASED not in found
    last = replace(COUNT, window=LAST, group_by=(1,))
    assert isinstance(forgetting().ask(last), TableAnswered)
