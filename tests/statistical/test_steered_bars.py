"""Plain bars against somebody who chooses what is measured by what was published.

Each trial is a block with fresh noise. Somebody who knows the true count has tables measured, ever more
precisely, until the answer to a fixed query is outside the bar that a colleague will be given. Then the
colleague asks that query once, with the data set's own error. False alarms: each test fails by chance with
probability at most 1e-6. The broken copy gives the bar of the variance alone, as if nobody had chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, combinations

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.budget.parameters import Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered, Outcome, Path, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.residual.belief.linear_forms import subsets
from tests.core.residual.host import ALARM, Host, names, sealed
from tests.noise import QuickNoise

ERROR = 0.02
N_STEPS = 120
SIZES = (3, 4, 2)
N_ROWS = 200_000

Attack = Callable[["Trials", range], Iterator[LinearQuery]]
Bar = Callable[["Trials", Answered], float]


class Trials(Host):
    """A data set whose blocks have the same rows, and a query that was fixed beforehand.

    Args:
        attributes: What the query depends on. It asks for one cell of each.
        beta: The failure probability that the definition promises.
        base_share: The part of a line that is spent as a phase opens.
    """

    def __init__(self, attributes: tuple[int, ...], beta: float, base_share: float = 0.0) -> None:
        noise = QuickNoise(1)
        super().__init__(names(*SIZES), noise=noise, error=ERROR, beta=beta, base_share=base_share)
        self.attributes, self.beta = attributes, beta
        rng = np.random.default_rng(2)
        self.columns = tuple(rng.integers(0, n, N_ROWS).astype(np.uint8) for n in SIZES)
        self.block = sealed(names(*SIZES), *self.columns)

    def query(self, attributes: tuple[int, ...], window: range) -> LinearQuery:
        factors = {a: np.arange(SIZES[a]) == 0 for a in attributes}
        return LinearQuery(Predicate.conjunction(factors), window)

    def truth(self, attributes: tuple[int, ...]) -> int:
        return int(np.logical_and.reduce([self.columns[a] == 0 for a in attributes]).sum())

    def off(self, attributes: tuple[int, ...], window: range) -> float:
        """By how many rows the best estimate of the query about some attributes is off."""
        evidence = self.state.evidence(self.query(attributes, window))
        return evidence.values.item() - self.truth(attributes)

    def deviation(self) -> float:
        """That of the best estimate about the newest block."""
        window = range(len(self.data) - 1, len(self.data))
        evidence = self.state.evidence(self.query(self.attributes, window))
        return math.sqrt(evidence.variances.item())

    def parts(self, window: range) -> dict[tuple[int, ...], tuple[float, float]]:
        """What each residual adds to the error of the query, and its variance."""
        every = _subsets(self.attributes)
        scaled = {
            some: self.off(some, window)
            / math.prod(SIZES[a] for a in self.attributes if a not in some)
            for some in every
        }
        form = self.state.evidence(self.query(self.attributes, window)).form
        known = self.state.belief.tables.variances(self.attributes, window)[:, 0]
        variances = dict(zip(_listed(self.attributes), form.norms[0] * known, strict=True))
        return {
            some: (
                sum((-1) ** (len(some) - len(few)) * scaled[few] for few in _subsets(some)),
                float(variances[some]),
            )
            for some in every
        }

    def table(self, attributes: tuple[int, ...], window: range, error: float) -> LinearQuery:
        return LinearQuery(EVERYTHING, window, attributes, target=Target(share=error))

    def finer(self, attributes: tuple[int, ...], window: range) -> LinearQuery:
        """The query for a table, a little more precisely than it is known."""
        known = self.state.evidence(self.table(attributes, window, ERROR))
        deviation = math.sqrt(float(known.variances.max())) / N_ROWS
        z = self.state.terms.z_steered
        return self.table(attributes, window, min(0.93 * z * deviation, ERROR))

    def missed(self, attack: Attack, bar: Bar) -> bool:
        """Whether a colleague's answer is outside its bar, or would be with the bar of the broken copy."""
        self.open(self.block)
        window = range(len(self.data) - 1, len(self.data))
        query = self.query(self.attributes, window)
        for table in attack(self, window):
            now = self.would_get(query)
            if isinstance(now, Answered) and self.is_off(now, bar(self, now)):
                break
            step = self.ask(table)
            if not isinstance(step, TableAnswered) or step.path is Path.UNVERIFIED:
                break
        answer = self.ask(query)
        assert isinstance(answer, Answered)
        return self.is_off(answer, bar(self, answer))

    def would_get(self, query: LinearQuery) -> Outcome | Look:
        """What a colleague would get now. Anyone can work that out, so it leaves no answer to repeat."""
        found = self.mechanism.answer(query)
        self.state.repeats._verified.clear()
        return found

    def is_off(self, answer: Answered, half: float) -> bool:
        return abs(answer.count - self.truth(self.attributes)) > half


def promised(trials: Trials, answer: Answered) -> float:
    """The bar of a colleague's answer."""
    del trials
    assert answer.error_bar is not None
    assert answer.error_bar <= ERROR + 1e-9
    return answer.error_bar * N_ROWS


def plain(trials: Trials, answer: Answered) -> float:
    """The broken copy."""
    del answer
    return float(norm.isf(trials.beta / 2)) * trials.deviation()


def one_table(trials: Trials, window: range) -> Iterator[LinearQuery]:
    """The table that the query is read off, more and more precisely."""
    for i in range(30):
        yield trials.table((0, 1), window, ERROR * 0.9**i)


def each_apart(trials: Trials, window: range) -> Iterator[LinearQuery]:
    """The table of the residual that adds least to the error, or a table that contains it."""
    yield trials.table(trials.attributes, window, ERROR)
    for i in range(N_STEPS):
        parts = trials.parts(window)
        side = math.copysign(1.0, sum(error for error, _ in parts.values()))
        against = {
            some: variance
            for some, (error, variance) in parts.items()
            if side * error < 0.3 * math.sqrt(variance)
        }
        largest = max(variance for _, variance in parts.values())
        worst = max(against, key=against.__getitem__, default=trials.attributes)
        if against and against[worst] < 1e-3 * largest:
            worst = trials.attributes
        wider = worst == trials.attributes and i % 2 == 0
        yield trials.finer(tuple(range(len(SIZES))) if wider else worst, window)


def _listed(attributes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sets of attributes in the order of norms and variances."""
    return [
        tuple(a for a, member in zip(attributes, members, strict=True) if member)
        for members in subsets(len(attributes))
    ]


def _subsets(attributes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All sets of some of the attributes."""
    sizes = range(1, len(attributes) + 1)
    return list(chain.from_iterable(combinations(attributes, k) for k in sizes))


def p_value(n_missed: int, n_trials: int, beta: float) -> float:
    return float(binomtest(n_missed, n_trials, beta, alternative="greater").pvalue)


@pytest.mark.parametrize("bar", [promised, plain], ids=["promised", "broken copy"])
@pytest.mark.parametrize(
    ("attack", "beta", "n_trials"),
    [
        pytest.param(one_table, 0.1, 24, id="one table"),
        pytest.param(each_apart, 0.05, 12, id="each apart"),
    ],
)
def test_a_plain_bar_holds_although_others_choose_what_is_measured(
    attack: Attack, beta: float, n_trials: int, bar: Bar
) -> None:
    trials = Trials((0, 1), beta)
    n_missed = sum(trials.missed(attack, bar) for _ in range(n_trials))
    assert (p_value(n_missed, n_trials, beta) > ALARM) is (bar is promised)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "attributes", "n_trials"),
    [(one_table, (0, 1), 2_000), (each_apart, (0, 1), 500), (each_apart, (0, 1, 2), 200)],
)
def test_of_many_colleagues_at_most_one_in_a_hundred_gets_a_bar_that_misses(
    attack: Attack, attributes: tuple[int, ...], n_trials: int
) -> None:
    trials = Trials(attributes, beta=0.01)
    n_missed = sum(trials.missed(attack, promised) for _ in range(n_trials))
    assert p_value(n_missed, n_trials, 0.01) > ALARM


def test_what_openings_answer_cannot_be_steered() -> None:
    """Three attributes, each residual apart: the bar is that of the variance alone, and holds."""
    trials = Trials((0, 1, 2), beta=0.1, base_share=0.5)
    evidence_of, bars = trials.state.at_opening, []
    for _ in range(10):
        trials.missed(each_apart, promised)
        query = trials.query((0, 1, 2), range(len(trials.data) - 1, len(trials.data)))
        answer, opened = trials.ask(query), evidence_of(query)
        assert isinstance(answer, Answered)
        assert opened is not None
        assert answer.error_bar is not None
        deviation = math.sqrt(opened.variances.item()) / N_ROWS
        assert answer.error_bar == pytest.approx(norm.isf(0.05) * deviation, rel=1e-6)
        bars.append(abs(answer.count - trials.truth((0, 1, 2))) > answer.error_bar * N_ROWS)
    assert p_value(sum(bars), 10, 0.1) > ALARM
