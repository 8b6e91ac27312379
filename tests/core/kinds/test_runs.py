"""Answerers whose runs keep a secret: what blocks pay, what a restart knows, what must not be drawn again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.kinds.adaptive_threshold.adaptive_answerer import Adaptive
from stream_dp.core.kinds.adaptive_threshold.adaptive_law import AdaptivePlan
from stream_dp.core.kinds.between.between_answerer import Between, BetweenLook
from stream_dp.core.kinds.interior_point.interior_answerer import Interior
from stream_dp.core.kinds.interior_point.interior_law import InteriorPlan
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook, KindTerms
from stream_dp.core.kinds.loss import Secret
from stream_dp.core.outcome import Answered, Outcome, Path, Placed, RefusalCode, Refused, Side
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import KindQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from tests.core.kinds.conftest import beside
from tests.noise import QuickNoise, ScriptedNoise

ALARM = 1e-6
CITIES = tuple(f"c{i}" for i in range(100))
UNIVERSE = Universe(
    (Category("city", CITIES, other=False), Number("age", tuple(range(1, 20)), True, missing=True))
)
CITY, AGE = 0, 1
N_AGES = 20  # and one bin for missing values
BUDGET = Budget.of(Privacy(20.0, 1e-6), approximate=True)
SETTINGS: dict[type[Answerer[Any]], dict[str, int]] = {
    Between: {"answers": 2},
    Interior: {"points": 50},
    Adaptive: {"chunks": 4, "queries": 50},
}
POINTS = (Interior, Adaptive)


class Driven:
    """Tests of answerers beside their data; with no noise at all unless told otherwise."""

    def beside(self, kind: type[Answerer[Any]], noise: Any = None, *, share: float = 0.2) -> Any:
        noise = ScriptedNoise() if noise is None else noise
        return beside(kind, UNIVERSE, share=share, budget=BUDGET, noise=noise, **SETTINGS[kind])

    def opened(self, kind: type[Answerer[Any]], phases: int = 1) -> Any:
        served = self.beside(kind)
        for _ in range(phases):
            served.open(ROWS[kind])
        return served


def cities(n_rows: int = 300) -> list[dict[str, Any]]:
    """The same number of rows for each of 100 cities, all of age 0."""
    return [{"city": city, "age": 0, "count": n_rows // 100} for city in CITIES]


def ages(counts: Iterable[int], missing: int = 0) -> list[dict[str, Any]]:
    cells = [{"city": "c0", "age": age, "count": n} for age, n in enumerate(counts)]
    return [*cells, {"city": "c0", "age": None, "count": missing}]


def between(
    cells: Iterable[int] = (0,), low: float = 0.3, high: float = 0.7, window: range = range(1)
) -> KindQuery:
    """About the rows of some cities."""
    mask = np.isin(np.arange(100), list(cells))
    return KindQuery(
        "between",
        window,
        predicate=Predicate.of_mask((CITY,), mask),
        numbers=(low, high),
    )


def up_to(kind: str, age: int, window: range = range(1)) -> KindQuery:
    valued = {"not": {"attribute": "age", "is_missing": True}}
    last = age == N_AGES - 1
    where = compile_where(UNIVERSE, valued if last else {"attribute": "age", "le": age})
    return KindQuery(kind, window, AGE, where)


def placed(outcome: Outcome) -> Placed:
    assert isinstance(outcome, Placed)
    return outcome


def refused(outcome: Outcome | KindLook) -> Refused:
    assert isinstance(outcome, Refused)
    return outcome


HALF = range(50)  # of the cities: a count in the middle between the thresholds


class TestBetween(Driven):
    def served(self, noise: Any = None, n_rows: int = 1000, phases: int = 1) -> Any:
        served = self.beside(Between, noise)
        for _ in range(phases):
            served.open(cities(n_rows))
        return served

    def test_a_run_pays_for_the_window_of_its_first_query_and_answers_about_no_other_block(
        self,
    ) -> None:
        served = self.served(phases=3)
        windows = (range(1, 3), range(2, 3), range(3), range(1), range(1, 3))
        for number, window in enumerate(windows):
            served.ask(between([number], window=window))
        served.open(cities(1000))
        for number, window in enumerate((range(3, 4), range(3), range(4))):
            served.ask(between([number + 10], window=window))
        assert served.charges == [
            *((1, 2), (), (0, 1, 2), (), ()),
            *((3,), (), (0, 1, 2, 3)),
        ]

    def test_the_last_answer_between_halts_it_and_the_next_query_pays_another(self) -> None:
        served = self.served()
        asked = [between(HALF, 0.3 + i / 100) for i in range(3)]
        paths = [placed(served.ask(one)).path for one in (between([1]), *asked)]
        assert paths == [Path.MEASURED] * 4
        assert served.charges == [(0,), (), (), (0,)]
        assert served.look(between([2])).description["run"] == 2

    def test_below_and_above_are_easy_unless_they_were_paid_for(self) -> None:
        served = self.served()
        outcomes = [placed(served.ask(between(range(i), 0.3))) for i in (1, 2, 90)]
        assert [o.side for o in outcomes] == [Side.BELOW, Side.BELOW, Side.ABOVE]
        assert [o.path for o in outcomes] == [Path.MEASURED, Path.GATED, Path.GATED]

    def test_a_repeat_is_free_also_when_the_run_has_halted_and_after_a_restart(self) -> None:
        served = self.served()
        first, *_ = [served.ask(between(range(i, 50 + i))) for i in range(2)]
        served.restart()
        again = placed(served.ask(between(HALF)))
        assert (again.side, again.path) == (placed(first).side, Path.REPEAT)
        assert served.charges == [(0,), ()]

    def test_an_answer_that_was_lost_counts_as_between_the_first_of_a_run_too(self) -> None:
        served = self.served()
        served.lose(between([1]))
        assert served.look(between([2])).charges == ()
        served.ask(between([3]))
        served.lose(between([4]))
        assert served.charges == [(0,), (), ()]
        assert served.look(between([5])).description["run"] == 2

    def test_thresholds_are_shares_as_they_are_written_in_whole_rows(self) -> None:
        look = self.served().look(between(HALF, 0.29, 0.7001))
        assert isinstance(look, BetweenLook)
        assert look.thresholds == (290, 701)  # and not 289: 0.29 is below 29/100 as a float

    def test_thresholds_that_are_too_close_are_refused_with_the_rows_that_are_needed(self) -> None:
        reason = refused(self.served().answerer.answer(between(HALF, 0.5, 0.55)))
        assert reason.code is RefusalCode.WINDOW_TOO_SMALL
        plan = self.served().answerer._plan
        needed = -(-plan.min_gap * 20)
        assert f"{needed:,} rows" in reason.message
        rows = -(-needed // 100) * 100
        assert isinstance(
            self.served(n_rows=rows).answerer.answer(between(HALF, 0.5, 0.55)), KindLook
        )

    def test_its_error_bar_holds_for_each_answer(self) -> None:
        """400 counts just beyond it, false alarm 1e-6; at noise four times as wide it does not hold."""
        assert self.too_often_wrong(QuickNoise(1)) > ALARM
        assert self.too_often_wrong(QuickNoise(1, 4.0)) < ALARM

    def too_often_wrong(self, noise: NoiseSource) -> float:
        wrong = 0
        for number in range(400):
            if number % 20 == 0:
                served = self.served(noise)
                bar = placed(served.ask(between([99]))).error_bar
            assert bar is not None
            low = round(0.3 - bar - 0.001, 4)
            cells = range(number % 20, 30 + number % 20)
            wrong += placed(served.ask(between(cells, low, low + 0.4))).side is Side.BELOW
        return float(stats.binomtest(wrong, 400, 0.05, alternative="greater").pvalue)


class RedrawingLook(BetweenLook):
    """A broken copy: a new offset for every answer."""

    def take(self, noise: NoiseSource, data: Blocks) -> Any:
        data.vault[self.run.secret] = self._plan.draw(noise).to_bytes()
        return super().take(noise, data)


class Redrawing(Between):
    def _step(self, asked: KindQuery) -> Any:
        step = super()._step(asked)
        return RedrawingLook(**vars(step)) if isinstance(step, BetweenLook) else step


SETTINGS[Redrawing] = SETTINGS[Between]


class TestTheSecretIsDrawnOnce(Driven):
    def sides(self, kind: type[Answerer[Any]], offsets: list[int]) -> list[Side]:
        """Of five counts ten rows below ``low``, by noise that has nothing but these offsets."""
        noise = ScriptedNoise()
        served = self.beside(kind, noise)
        served.open(cities(1000))
        noise.by_scale[served.answerer._plan.offset_scale] = iter(offsets)
        return [placed(served.ask(between(range(i, 30 + i), 0.31))).side for i in range(5)]

    @pytest.mark.parametrize(
        ("offsets", "expected"),
        [
            ([-9, -99], [Side.BELOW] * 5),
            ([-10, 50], [Side.BETWEEN] * 2 + [Side.BELOW] * 3),
            ([50, -10], [Side.BELOW] * 5),
        ],
    )
    def test_one_offset_explains_all_answers_of_a_run(
        self, offsets: list[int], expected: list[Side]
    ) -> None:
        assert self.sides(Between, offsets) == expected

    @pytest.mark.parametrize("offsets", [[-9, -9, -99], [-10, -10, 50], [50, 50, -10]])
    def test_a_broken_copy_that_draws_it_for_each_answer_is_noticed(
        self, offsets: list[int]
    ) -> None:
        honest = self.sides(Between, offsets[1:])
        assert self.sides(Redrawing, offsets) != honest

    @pytest.mark.parametrize(("kind", "draws"), [(Interior, 1), (Adaptive, 2 * 4 - 1)])
    def test_those_of_points_too(self, kind: type[Answerer[Any]], draws: int) -> None:
        noise = ScriptedNoise()
        served = self.beside(kind, noise)
        served.open(ages([100_000] * 5))
        for age in (0, 3, 4):
            served.ask(up_to(kind.name, age))
        of_answers = served.look(up_to(kind.name, 9)).description["scale"]
        assert sum(float(scale) != of_answers for scale in noise.asked) == draws

    def test_secrets_show_in_no_repr(self) -> None:
        noise, served = ScriptedNoise(), []
        for kind in (Between, *POINTS):
            one = self.beside(kind, noise)
            one.open(ROWS[kind])
            asked = between([0]) if kind is Between else up_to(kind.name, 9)
            look = one.look(asked)
            scale = look.description["offset_scale"]
            assert isinstance(scale, float)
            noise.by_scale = {Fraction(scale): count(77_001)}
            one.begin(look)
            ((_, secret),) = one.data.vault.items()
            assert (77_001).to_bytes(8, "little") in secret
            served += [one.answerer, look, one.data]
        assert "7700" not in repr(served)


LOSS = Interior(KindTerms(UNIVERSE, BUDGET, 0.2, 0.05), points=50)._loss
INTERIOR = InteriorPlan(LOSS.epsilon, LOSS.delta, 50, 0.05)
INSIDE = INTERIOR.min_rows // 2
CHUNK = 25_000
INSIDE_CHUNK = AdaptivePlan(LOSS.epsilon, LOSS.delta, 4 * CHUNK, 4, 50, 0.05).chunk.min_rows // 2
ROWS = {
    Between: cities(1000),
    Interior: ages([0, 0, INSIDE, 5000, 0, 5000]),
    Adaptive: ages([INSIDE_CHUNK, CHUNK, CHUNK, CHUNK, CHUNK - INSIDE_CHUNK]),
}
FOUND = {Interior: [2], Adaptive: [0, 1, 2, 3]}
"""Points at which a run without noise finds what it seeks."""


class TestInterior(Driven):
    def test_it_searches_until_it_has_a_point_and_is_free_of_the_data_from_then_on(self) -> None:
        served = self.opened(Interior)
        found = [placed(served.ask(up_to("interior_point", age))) for age in (1, 4, 2, 0, 3, 2)]
        assert [o.side for o in found] == [
            *(Side.BELOW, Side.ABOVE, Side.ABOVE),
            *(Side.BELOW, Side.ABOVE, Side.ABOVE),
        ]
        assert [o.code for o in found] == [None, None, 2, 2, 2, 2]
        assert [o.path for o in found] == [
            *(Path.MEASURED, Path.GATED, Path.MEASURED),
            *(Path.CERTIFIED, Path.CERTIFIED, Path.REPEAT),
        ]
        assert served.charges == [(0,), (), ()]

    def test_it_is_right_as_often_as_promised(self) -> None:
        """150 runs, false alarm 1e-6; at noise six times as wide it is not."""
        assert self.too_often_wrong(QuickNoise(3)) > ALARM
        assert self.too_often_wrong(QuickNoise(3, 6.0)) < ALARM

    def too_often_wrong(self, noise: NoiseSource) -> float:
        wrong = 0
        for _ in range(150):
            served = self.beside(Interior, noise)
            served.open(ages([0] * 8 + [INTERIOR.min_rows]))
            sides = [
                placed(served.ask(up_to("interior_point", age))).side for age in (3, 9, 2, 8, 0)
            ]
            wrong += sides != [Side.BELOW, Side.ABOVE, Side.BELOW, Side.ABOVE, Side.BELOW]
        return float(stats.binomtest(wrong, 150, 0.05, alternative="greater").pvalue)


class TestAdaptive(Driven):
    def served(self, noise: Any = None, missing: int = 0) -> Any:
        served = self.beside(Adaptive, noise)
        served.open(ROWS[Adaptive] if not missing else ages([missing], missing))
        return served

    def test_it_is_free_once_all_chunks_have_their_points(self) -> None:
        served = self.served()
        found = [served.ask(up_to("adaptive_threshold", age)) for age in (0, 1, 2, 3, 4)]
        assert [o.count for o in found if isinstance(o, Answered)] == [
            *(CHUNK, 2 * CHUNK, 3 * CHUNK),
            *(4 * CHUNK, 4 * CHUNK),
        ]
        paths = [o.path for o in found if isinstance(o, Answered)]
        assert paths == [Path.MEASURED] * 4 + [Path.CERTIFIED]
        assert served.charges == [(0,), (), (), ()]

    def test_a_run_of_fewer_parts_than_are_stored_is_refused(self) -> None:
        served = self.served()
        served.ask(up_to("adaptive_threshold", 9))
        *_, stored = served.transcript
        assert isinstance(stored, bytes)
        with pytest.raises(CorruptState, match="parts"):
            served.answerer.absorb(served.answerer.release_from_bytes(stored + b"\x00"))

    def test_rows_without_a_value_are_above_every_threshold(self) -> None:
        answer = self.served(missing=50_000).ask(up_to("adaptive_threshold", N_AGES - 1))
        assert answer.count == 50_000

    def test_its_error_bar_holds_for_all_answers_of_a_run(self) -> None:
        """60 runs of five answers, false alarm 1e-6; at noise twenty times as wide it does not."""
        assert self.too_often_wrong(QuickNoise(4)) > ALARM
        assert self.too_often_wrong(QuickNoise(4, 20.0)) < ALARM

    def too_often_wrong(self, noise: NoiseSource) -> float:
        wrong, rows = 0, [int(cell["count"]) for cell in ROWS[Adaptive]]
        for _ in range(60):
            served, right = self.served(noise), True
            for age in range(5):
                answer = served.ask(up_to("adaptive_threshold", age))
                assert answer.error_bar == answer.error_bar_simultaneous
                assert answer.error_bar is not None
                right &= abs(answer.value - sum(rows[: age + 1]) / answer.n) <= answer.error_bar
            wrong += not right
        return float(stats.binomtest(wrong, 60, 0.05, alternative="greater").pvalue)


@pytest.mark.parametrize("kind", POINTS)
class TestPoints(Driven):
    def test_each_window_has_a_run_that_its_first_query_pays(
        self, kind: type[Answerer[Any]]
    ) -> None:
        served = self.opened(kind, phases=2)
        for window in (range(2), range(1, 2), range(2)):
            for age in (4, 5):
                served.ask(up_to(kind.name, age, window))
        assert served.charges == [(0, 1), (), (1,), ()]
        assert sorted(served.data.vault) == [f"{kind.name} 1 0 2", f"{kind.name} 1 1 2"]

    def test_when_nothing_is_left_to_find_the_secret_is_dropped(
        self, kind: type[Answerer[Any]]
    ) -> None:
        served = self.opened(kind)
        for age in FOUND[kind]:
            assert (not served.data.vault) == (age == FOUND[kind][0])
            served.ask(up_to(kind.name, age))
        assert served.data.vault == {}

    def test_a_lost_answer_abandons_the_run_and_the_next_query_pays_another(
        self, kind: type[Answerer[Any]]
    ) -> None:
        served = self.opened(kind)
        served.ask(up_to(kind.name, 4))
        served.lose(up_to(kind.name, 5))
        look = served.look(up_to(kind.name, 5))
        assert look.description["run"] == 2
        served.lose(up_to(kind.name, 5))
        served.ask(up_to(kind.name, 5))
        assert served.charges == [(0,), (), (0,), (0,)]
        repeated = served.answerer.answer(up_to(kind.name, 4))
        assert repeated.path is Path.REPEAT

    def test_too_few_rows_are_refused_with_the_number_that_is_needed(
        self, kind: type[Answerer[Any]]
    ) -> None:
        needed = self.beside(kind).answerer.min_rows
        for rows, enough in ((needed - 1, False), (needed, True)):
            served = self.beside(kind)
            served.open(ages([rows]))
            step = served.answerer.answer(up_to(kind.name, 3))
            if enough:
                served.ask(up_to(kind.name, 3))
            else:
                assert refused(step).code is RefusalCode.WINDOW_TOO_SMALL
                assert f"needs {needed:,}" in refused(step).message

    @pytest.mark.parametrize(
        ("attribute", "where", "words"),
        [
            (AGE, {"attribute": "age", "ge": 3}, "ask lt or le"),
            (AGE, {"attribute": "city", "eq": "c0"}, "one attribute"),
            (AGE, {"attribute": "age", "is_missing": True}, "ask lt or le"),
            (AGE, {"attribute": "age", "in": [1, 5]}, "one range"),
            (AGE, None, "every row"),
            (CITY, {"attribute": "city", "eq": "c0"}, "no order"),
        ],
    )
    def test_what_is_no_point_is_refused_in_words(
        self, kind: type[Answerer[Any]], attribute: int, where: Any, words: str
    ) -> None:
        asked = KindQuery(kind.name, range(1), attribute, compile_where(UNIVERSE, where))
        assert words in refused(self.opened(kind).answerer.answer(asked)).message

    def test_beyond_the_looks_that_were_promised_for_nothing_is_stated(
        self, kind: type[Answerer[Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = {"points": 1} if kind is Interior else {"chunks": 4, "queries": 1}
        monkeypatch.setitem(SETTINGS, kind, one)
        served = self.opened(kind)
        stated = []
        for age in (4, 5):
            answer = served.ask(up_to(kind.name, age))
            stated.append(answer.confidence if isinstance(answer, Placed) else answer.error_bar)
        assert stated[0] is not None
        assert stated[1] is None


def asked_by(kind: type[Answerer[Any]]) -> list[KindQuery]:
    if kind is Between:
        cells = (range(1), range(50), range(99), range(1, 51), range(2))
        return [between(c, window=range(i % 2, 2)) for i, c in enumerate(cells)]
    return [up_to(kind.name, age, range(i % 2, 2)) for i, age in enumerate((9, 1, 2, 8, 0, 3))]


@pytest.mark.parametrize("kind", [Between, *POINTS])
class TestEachOfThem(Driven):
    def test_a_restart_at_any_point_knows_all_that_was_published(
        self, kind: type[Answerer[Any]]
    ) -> None:
        through, restarted = self.opened(kind, 2), self.opened(kind, 2)
        for number, asked in enumerate(asked_by(kind)):
            if number == 3:
                through.lose(asked)
                restarted.lose(asked)
            assert through.ask(asked) == restarted.ask(asked)
            restarted.restart()
        assert through.transcript == restarted.transcript
        assert through.charges == restarted.charges
        charge = through.answerer._loss.charge(BUDGET, 0)
        for block in range(2):
            looks = sum(block in charged for charged in through.charges)
            assert (through.rho[block], through.delta[block]) == (
                looks * charge.rho,
                looks * charge.delta,
            )
        assert through.data.vault == restarted.data.vault

    def test_a_secret_that_is_gone_is_never_drawn_again(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind, 2)
        first, _, again, *_ = asked_by(kind)
        served.ask(first)
        served.data.vault.clear()
        with pytest.raises(CorruptState, match="gone"):
            served.ask(again)

    def test_a_secret_of_another_length_is_not_taken(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind, 2)
        first, _, again, *_ = asked_by(kind)
        served.ask(first)
        (name,) = served.data.vault
        served.data.vault[name] = Secret([0] * 3).to_bytes()
        with pytest.raises(CorruptState, match="a stored secret"):
            served.ask(again)

    def test_stored_bytes_that_do_not_fit_are_refused(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind, 2)
        served.ask(asked_by(kind)[0])
        *_, stored = served.transcript
        assert isinstance(stored, bytes)
        fresh = self.beside(kind).answerer
        with pytest.raises(CorruptState):  # no phases yet
            fresh.release_from_bytes(stored)
        with pytest.raises(CorruptState):
            served.answerer.release_from_bytes(stored[:-1] + b"\x03")

    def test_an_answer_of_a_run_that_is_not_on_is_refused(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind, 2)
        served.ask(asked_by(kind)[0])
        *_, stored = served.transcript
        assert isinstance(stored, bytes)
        later = stored[:1] + (3).to_bytes(4, "little") + stored[5:]
        with pytest.raises(CorruptState, match="run"):
            served.answerer.absorb(served.answerer.release_from_bytes(later))

    def test_length_of_stored_bytes_depends_on_public_numbers_alone(
        self, kind: type[Answerer[Any]]
    ) -> None:
        lengths = set()
        for rows in (ages([0] * 19 + [200_000]), ages([200_000])):
            served = self.beside(kind)
            for _ in range(2):
                served.open(rows)
            served.ask(asked_by(kind)[0])
            *_, stored = served.transcript
            assert isinstance(stored, bytes)
            lengths.add(len(stored))
        assert len(lengths) == 1

    def test_a_share_that_buys_next_to_nothing_is_refused(self, kind: type[Answerer[Any]]) -> None:
        with pytest.raises(InvalidDefinition, match=rf"kinds\.{kind.name}\.share"):
            self.beside(kind, share=1e-300)


def test_rows_that_windows_need_are_those_on_the_page_of_mechanisms() -> None:
    line = Budget.of(Privacy(1.0, 1e-9), approximate=True)
    between = Between(KindTerms(UNIVERSE, line, 0.1, 0.01), answers=3)
    interior = Interior(KindTerms(UNIVERSE, line, 0.1, 0.01), points=1000)
    adaptive = Adaptive(KindTerms(UNIVERSE, line, 0.2, 0.01), chunks=8, queries=2000)
    stated = (between._plan.min_gap, interior.min_rows, adaptive.min_rows)
    assert stated == (2_086, 5_274, 392_840)


RUNNING = (Between, *POINTS)


@pytest.mark.parametrize("kind", RUNNING)
class TestASecretThatIsGone(Driven):
    def asked(self, kind: type[Answerer[Any]], number: int, window: range = range(1)) -> KindQuery:
        """One of several queries that no point answers, so that each needs a look."""
        if kind is Between:
            return between([number], window=window)
        return up_to(kind.name, 4 + number, window)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_its_run_ends_and_the_next_query_pays_for_a_new_one(
        self, kind: type[Answerer[Any]], restarts: bool
    ) -> None:
        served = self.opened(kind)
        for number in (0, 1):
            served.ask(self.asked(kind, number))
        served.forget_secrets()
        if restarts:
            served.restart()
        look = served.look(self.asked(kind, 2))
        assert (look.description["run"], look.begins) == (2, True)
        for number in (2, 3):
            served.ask(self.asked(kind, number))
        assert served.charges == [(0,), (), (0,), ()]
        served.restart()
        assert served.look(self.asked(kind, 4)).description["run"] == 2

    def test_what_it_published_stays(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind)
        first = [served.ask(self.asked(kind, number)) for number in (0, 1)]
        served.forget_secrets()
        for restarts in (False, True):
            if restarts:
                served.restart()
            again = [served.ask(self.asked(kind, number)) for number in (0, 1)]
            assert [one.path for one in again] == [Path.REPEAT] * 2
            assert [replace(one, path=first[at].path) for at, one in enumerate(again)] == first
        assert served.charges == [(0,), ()]

    def test_runs_whose_secrets_are_there_go_on(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind, phases=3)
        windows = (range(1), range(1, 2), range(2, 3))
        for window in windows:
            served.ask(self.asked(kind, 0, window))
        kept = dict(served.data.vault)
        assert len(kept) == 3
        gone = sorted(kept)[1]
        served.forget_secrets(gone)
        served.restart()
        for window in windows:
            served.ask(self.asked(kind, 1, window))
        assert served.charges == [(0,), (1,), (2,), (), (1,), ()]
        assert served.data.vault.keys() == kept.keys() or kind is Between
        assert served.answerer.secrets == served.data.vault.keys()

    def test_the_name_of_no_run_ends_none(self, kind: type[Answerer[Any]]) -> None:
        served = self.opened(kind)
        served.ask(self.asked(kind, 0))
        served.answerer.end_runs(["never 1", "", f"{kind.name}"])
        served.ask(self.asked(kind, 1))
        assert served.charges == [(0,), ()]


@pytest.mark.parametrize("kind", POINTS)
class TestASecretThatIsGoneOfPoints(Driven):
    def test_a_run_that_found_its_points_needs_no_secret_and_goes_on(
        self, kind: type[Answerer[Any]]
    ) -> None:
        served = self.opened(kind)
        for age in FOUND[kind]:
            served.ask(up_to(kind.name, age))
        served.forget_secrets()
        served.restart()
        assert placed_free(served.answerer.answer(up_to(kind.name, 9)))


def placed_free(step: Outcome | KindLook) -> bool:
    """Whether an answer follows from what was published."""
    return not isinstance(step, KindLook | Refused) and step.path is Path.CERTIFIED
