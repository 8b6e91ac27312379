"""Searches the model of recovery: through all states of a case, or along random runs."""

from __future__ import annotations

import dataclasses
import enum
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.model.recovery import CALM, OFF, Case, Model, State, Step


class Verdict(enum.Enum):
    """How a search ended."""

    HOLDS = "holds"  # the whole space was searched
    WALKED = "walked"  # random runs found no violation
    BOUND = "bound"  # no violation until time was up
    VIOLATED = "violated"


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        verdict: How the search ended.
        states: How many states were checked.
        calm: How many calm runs were tried.
        why: The invariant that failed, in a sentence; empty if none did.
        steps: How it came about, in sentences.
    """

    verdict: Verdict
    states: int
    calm: int
    why: str = ""
    steps: tuple[str, ...] = ()

    @property
    def invariant(self) -> str:
        """The number of the invariant that failed, such as ``I1``."""
        return self.why[:2]

    def __str__(self) -> str:
        lines = [f"{self.verdict.value} after {self.states:,} states. {self.why}".rstrip()]
        lines += [f"{n:4}. {step}" for n, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


class Calm:
    """Calm runs: what becomes of a state when the faults are over and everybody starts again."""

    def __init__(self, model: Model) -> None:
        self.runs = 0
        self._model = model
        self._fine: set[State] = set()

    def wrong(self, state: State) -> tuple[str, tuple[str, ...]]:
        """What is wrong with the calm run from a state on, and its steps; empty if it answers everything.

        Where the journal was cut, workers may stop for good, and nothing is promised.
        """
        model = self._model
        if state.cut:
            return "", ()
        journal = state.journal
        if state.flight is not None:
            journal = model.journals.landed(journal, state.flight)
        state = state._replace(journal=journal, flight=None, workers=(OFF, OFF), budget=CALM)
        path: list[State] = []
        told = ["all workers stop, and the faults are over"]
        while len(path) < 300 and state not in self._fine:
            path.append(state)
            if why := model.violated(state):
                return why, tuple(told)
            if model.complete(state):
                break
            found = model.steps(state, calm=True)
            if not found:
                return "I6: no progress, although the faults are over", tuple(told)
            step, state = found[0]
            told.append(say(step))
        else:
            if len(path) == 300:
                return "I6: no end, although the faults are over", tuple(told)
        self.runs += 1
        self._fine.update(path)
        return "", ()


def say(step: Step) -> str:
    """A step in words."""
    text, *gaps = step

    def word(gap: Any) -> str:
        match gap:
            case ("charge", query, _):
                return f"announces and pays a look for {query}"
            case ("result", query, noise):
                return f"answers {query} by a look with noise {noise}"
            case ("lost",):
                return "the announced look is lost"
            case ("repeat", query):
                return f"{query} has its answer"
            case ("missed", query):
                return f"{query} has its answer, which is not where it was committed"
            case ("rows" | "refused" as what, first, last):
                return f"rows {first} to {last} are {'accepted' if what == 'rows' else 'refused'}"
            case ("seal", _, content):
                return f"names the {content}"
            case ("answer", query, noise, _):
                return f"the answer to {query} with noise {noise}"
            case ("charge", index, query, _):
                return f"entry {index} of the ledger, the charge for {query}"
        return str(gap)

    return str(text).format(*map(word, gaps))


def search(
    case: Case,
    *,
    seconds: float = float("inf"),
    every: int = 20,
    progress: Callable[[int, float], None] | None = None,
) -> Found:
    """Searches all states of a case, those in the fewest steps first.

    Args:
        case: What to search.
        seconds: When to stop, if the space is not exhausted before.
        every: Calm runs start from each n-th state, and from those where nothing happens next.
        progress: Is told the number of states and the time since the start in seconds, now and then.
    """
    model = Model(case)
    calm = Calm(model)
    begun = told = time.monotonic()
    before: dict[State, tuple[State, Step] | None] = {model.start: None}
    todo, states = deque([model.start]), 0

    def story(state: State) -> tuple[str, ...]:
        steps: list[str] = []
        while (last := before[state]) is not None:
            state, step = last
            steps.append(say(step))
        return tuple(reversed(steps))

    collecting = gc.isenabled()
    gc.disable()  # the search makes no cycles, and visiting millions of tuples takes longer than the search
    try:
        while todo:
            state = todo.popleft()
            states += 1
            if why := model.violated(state):
                return Found(Verdict.VIOLATED, states, calm.runs, why, story(state))
            found = model.steps(state)
            if not found or states % every == 0:
                why, steps = calm.wrong(state)
                if why:
                    return Found(Verdict.VIOLATED, states, calm.runs, why, (*story(state), *steps))
            for step, new in found:
                same = model.canonical(new)
                if same not in before:
                    before[same] = state, step
                    todo.append(same)
            if states % 1000 == 0:
                now = time.monotonic()
                if progress is not None and now - told > 5:
                    told = now
                    progress(states, now - begun)
                if now - begun > seconds:
                    return Found(Verdict.BOUND, states, calm.runs)
    finally:
        if collecting:
            gc.enable()
    return Found(Verdict.HOLDS, states, calm.runs)


_RARE = ("crashes", "no reply", "Redis goes", "Redis has", "restored", "only")


def walk(
    case: Case, *, runs: int = 1_000_000_000, seconds: float = float("inf"), seed: int = 7
) -> Found:
    """Makes random runs of a case to their ends, and checks every state of them.

    Args:
        case: What to run.
        runs: How many runs to make at most.
        seconds: When to stop.
        seed: The seed of the choices.
    """
    draw, states, calm_runs, begun = random.Random(seed), 0, 0, time.monotonic()
    for _ in range(runs):
        model = Model(case)  # another one each time, for it remembers all that it has met
        calm, state = Calm(model), model.start
        path: list[Step] = []
        while len(path) < 400:
            states += 1
            if why := model.violated(state):
                return Found(Verdict.VIOLATED, states, calm_runs, why, tuple(map(say, path)))
            found = model.steps(state)
            if not found:
                break
            rare = [one for one in found if any(word in one[0][0] for word in _RARE)]
            usual = [one for one in found if one not in rare]
            some = rare if rare and (not usual or draw.random() < 0.08) else usual
            step, state = draw.choice(some)
            path.append(step)
        why, steps = calm.wrong(state)
        if why:
            told = (*map(say, path), *steps)
            return Found(Verdict.VIOLATED, states, calm_runs, why, told)
        calm_runs += calm.runs
        if time.monotonic() - begun > seconds:
            break
    return Found(Verdict.WALKED, states, calm_runs)
