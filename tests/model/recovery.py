"""A model of recovery: two workers, Redis and the journal, searched through all their steps and faults.

The journal, a topic of the broker, is the durable truth, and Redis is the working copy. A worker takes a
partition over with an EPOCH, which voids what older epochs append after it. Then it makes Redis agree with
the journal. A commit goes to Redis first and to the journal second; what it lets out leaves third.

The model leaves out everything that the order of these steps does not depend on. What a data set has become
is a *history*: the chain of its commits. A look is a draw of noise that differs from all other draws. Faults
are crashes at any step, appends that land late or never, readings of the journal that a former leader of it
answers, and a Redis that goes back in time, is empty, or fails over while its former primary goes on serving.
Each rule of the protocol can be broken (``Break``), and the search must then find the invariant that fails.

Invariants:
    I1: No query is answered by two byte strings, and the recovered state has the answer that was seen.
    I2: The charge of every look, and so of every release that was seen, is in the recovered ledger.
    I3: No charge pays for two looks, seen or not, and there are never fewer charges than releases.
    I4: No row counts twice.
    I5: An outcome that was announced, of a batch or of a rejected record, stays.
    I6: When the faults are over, everything is answered and every row counts.

Run ``python -m tests.model.recovery --help`` for the larger cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import gc
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

__all__ = ["CASES", "Break", "Case", "Found", "Verdict", "case", "search", "walk"]

# Plain tuples, because a search makes millions of them. The comments in Model say what they hold.
State = tuple[Any, ...]
Worker = tuple[Any, ...]
Journal = tuple[Any, ...]
Delta = tuple[Any, ...]
Step = tuple[Any, ...]  # who takes it, a sentence with gaps, and what fills them

ROOT = 0  # the empty history


class Break(enum.Enum):
    """One rule of the protocol that a case breaks."""

    JOURNAL_FIRST = "output leaves before its commit is in the journal"
    HEALING = "Redis is believed as it is"
    HEALING_ALL = "charges are adopted from the journal, and answers are not"
    OFFSET = "the acknowledged offset is not compared with the expected one"
    EPOCH_FIRST = "the journal is read before EPOCH is appended"
    WHOLE = "a reading that ends before EPOCH is taken for all of the journal"
    EPOCHS = "readers ignore epochs"
    PREV = "readers ignore which commit a record continues"
    JOURNAL_WINS = "in a fork Redis wins"
    RELEASE_AGAIN = "what a former owner left unreleased is not released"
    DEDUPE = "a query that has its answer is answered again"
    NEXT = "a range of a source counts unless the same range did"
    WAIT = "a look is taken before its charge is in the journal"
    MARK_FIRST = "a rejection leaves before its mark is in the journal"
    CHECKPOINT_FIRST = "the journal is cut below a checkpoint that is not acknowledged"
    CHECKPOINT_FENCE = "a former owner may overwrite the newest checkpoint with its own"
    GAP = "what Redis noted of the journal is believed although the journal begins behind it"
    NEWEST = "a checkpoint leaves answers out that are kept"
    LOST_LOOK = "a lost look is taken again under its charge"
    TOKEN = "commits to Redis do not compare the token"
    COMPARE = "commits to Redis do not compare the history they continue"
    TOKEN_IS_EPOCH = "the token is counted in Redis, and is not the epoch"
    EPOCH_TIE = "a worker keeps an epoch that stands in the journal already"


class Verdict(enum.Enum):
    """How a search ended."""

    HOLDS = "holds"  # the whole space was searched
    WALKED = "walked"  # random runs found no violation
    BOUND = "bound"  # no violation until time was up
    VIOLATED = "violated"


@dataclasses.dataclass(frozen=True)
class Case:
    """What a search is about: the work, the faults, and the rules that are broken.

    Args:
        name: What the case is called on the command line.
        violates: The invariant that must fail, or an empty text if all must hold.
        queries: The queries to each data set of the partition, in order of arrival.
        rows: How many rows the source has for the first data set.
        rejection: Whether a record that names no data set is to be rejected.
        broken: The rules that are broken.
        crashes: How many crashes there may be.
        faults: How often Redis may go back, be empty, or fail over.
        starts: How many workers may start.
        sends: How many batches the reader of the source may send.
        eager: Whether a worker takes the next input before the last one is released.
        failover: Whether Redis may fail over to a copy.
        empty: Whether Redis may become empty.
        slots: Whether the slot of one data set may go back alone.
        back: Whether Redis may go back at all.
        cut: Whether the journal may lose its last record, as one of the faults.
        unseen: Whether two looks under one charge violate I3 although nobody has seen both of them.
        nonces: Whether a charge has a nonce, which tells it from the same charge by another worker.
        checkpoints: How many checkpoints may be written, each followed by a cut below it.
        stale: How many readings a former leader of the journal may answer, which lacks the last records.
        walk: Whether the case is for random runs, because its space is too large.
        slow: Whether the search takes longer than a minute.
    """

    name: str
    violates: str = ""
    queries: tuple[str, ...] = ("a",)
    rows: int = 0
    rejection: bool = False
    broken: frozenset[Break] = frozenset()
    crashes: int = 0
    faults: int = 1
    starts: int = 2
    sends: int = 0
    eager: bool = True
    failover: bool = True
    empty: bool = True
    slots: bool = False
    back: bool = True
    cut: bool = False
    unseen: bool = True
    nonces: bool = False
    checkpoints: int = 0
    stale: int = 0
    walk: bool = False
    slow: bool = False


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


@dataclasses.dataclass(frozen=True)
class Facts:
    """What follows from a history: what a data set has become."""

    answers: tuple[tuple[str, int, int], ...] = ()  # query, noise, and the charge that paid
    charges: frozenset[int] = frozenset()
    intent: int = 0  # the announced look, by its charge
    taken: int = 0  # queries taken from the topic
    read: int = 0  # batches taken from the topic
    next: int = 0  # the offset expected from the source
    ranges: tuple[tuple[int, int], ...] = ()
    twice: bool = False  # whether a row counts twice
    draws: frozenset[int] = frozenset()  # of noise and of nonces

    def after(self, delta: Delta, node: int) -> Facts:
        """The facts after one more commit."""
        change = dataclasses.replace
        match delta:
            case ("charge", _, nonce):
                draws = self.draws | {nonce}
                return change(self, charges=self.charges | {node}, intent=node, draws=draws)
            case ("result", query, noise):
                answers = (*self.answers, (query, noise, self.intent))
                return change(
                    self,
                    answers=answers,
                    intent=0,
                    taken=self.taken + 1,
                    draws=self.draws | {noise},
                )
            case ("lost",):
                return change(self, intent=0)
            case ("repeat", _):
                return change(self, taken=self.taken + 1)
            case ("rows", first, last):
                twice = self.twice or any(first <= b and a <= last for a, b in self.ranges)
                return change(
                    self,
                    ranges=(*self.ranges, (first, last)),
                    next=last + 1,
                    read=self.read + 1,
                    twice=twice,
                )
            case ("refused", _, _):
                return change(self, read=self.read + 1)
        raise AssertionError(delta)


class Histories:
    """All histories that a search has met. A number stands for a history, as the head of a chain does.

    Without nonces, two workers that make the same commit of the same history make the same history. That is
    harder in some cases, and easier in others, so there are cases with nonces and without.
    """

    def __init__(self) -> None:
        self.parent = [ROOT]
        self.delta: list[Delta] = [()]
        self.length = [0]
        self.facts = [Facts()]
        self.outputs: list[tuple[Any, ...]] = [()]
        self._children: dict[tuple[int, Delta], int] = {}

    def child(self, node: int, delta: Delta) -> int:
        """The history with one more commit."""
        found = self._children.get((node, delta))
        if found is not None:
            return found
        new = len(self.parent)
        facts = self.facts[node].after(delta, new)
        self._children[node, delta] = new
        self.parent.append(node)
        self.delta.append(delta)
        self.length.append(self.length[node] + 1)
        self.facts.append(facts)
        match delta:
            case ("result", *_):
                self.outputs.append(("answer", *facts.answers[-1]))
            case ("repeat", query):
                self.outputs.append(("answer", *next(a for a in facts.answers if a[0] == query)))
            case ("rows", first, last):
                self.outputs.append(("rows", first, last))
            case _:
                self.outputs.append(())
        return new

    def at(self, node: int, length: int) -> int:
        """The first ``length`` commits of a history."""
        while self.length[node] > length:
            node = self.parent[node]
        return node

    def begins(self, short: int, long: int) -> bool:
        """Whether ``long`` continues ``short``, or is the same."""
        return self.at(long, self.length[short]) == short

    def common(self, a: int, b: int) -> int:
        """How many commits two histories share."""
        n = min(self.length[a], self.length[b])
        a, b = self.at(a, n), self.at(b, n)
        while a != b:
            a, b, n = self.parent[a], self.parent[b], n - 1
        return n


OFF: Worker = ("off", 0, 0, 0, 0, (), 0, None)
UNCHARGED, TWICE, REJECTED = ("uncharged",), ("twice",), ("rejected",)


class Model:
    """The steps of one case, and what must be true in each state.

    A state is (redis, primary, kept, journal, shown, workers, reader, batches, flight, budget):

    redis: Two servers, of which the second is the copy that a failover promotes. A server holds a slot for
        each data set (token, history, released up to) and the mark of the source's reader (first, end).
    primary: Which of the two new connections reach.
    kept: What a server held when a copy of it was made, or None.
    journal: (epoch in force, history of each data set that its valid records make, whether the rejection is
        marked, what the last record was, commits that were cut off its beginning, the checkpoint's history).
    shown: A bit for each output that has left, and for each look that was taken.
    workers: (what it does, its server, epoch, token, how many more records the journal has than it
        expects, its view of each data set, whether the rejection is marked (1) and has left (2), scratch).
        A view is
        (history, in the journal up to, released up to, whether the announced look is its own).
    reader: The offset that the reader of the source reads next.
    batches: The ranges that it has sent.
    flight: An append of a crashed worker that has not landed, or None.
    budget: Crashes, faults, starts, copies, sends, checkpoints and stale readings that are left.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.sets = len(case.queries)
        self.rules = {rule: rule not in case.broken for rule in Break}
        self.histories = Histories()
        self._bits: dict[tuple[Any, ...], int] = {}
        self._outputs: list[tuple[Any, ...]] = []
        self.wrong = cache(self._wrong)
        server = (((0, ROOT, 0),) * self.sets, (0, -1))
        journal = (0, (ROOT,) * self.sets, False, "", 0, ROOT)
        budget = (
            *(case.crashes, case.faults, case.starts, case.faults, case.sends),
            *(case.checkpoints, case.stale),
        )
        self.empty = server
        self.start: State = ((server,) * 2, 0, None, journal, 0, (OFF, OFF), 0, (), None, budget)

    # ------------------------------------------------------------ what must be true

    def bit(self, output: tuple[Any, ...]) -> int:
        """The bit of an output, or of a look, in ``shown``."""
        found = self._bits.get(output)
        if found is None:
            found = self._bits[output] = 1 << len(self._outputs)
            self._outputs.append(output)
        return found

    def outputs(self, shown: int) -> Iterator[tuple[Any, ...]]:
        """The outputs that have left."""
        return (output for n, output in enumerate(self._outputs) if shown >> n & 1)

    def violated(self, state: State) -> str:
        """The invariant that fails in a state, in a sentence; empty if all hold."""
        return self.wrong(self._recovered(state), state[3][2], state[4])

    def _recovered(self, state: State) -> tuple[int, ...]:
        """The history of each data set that can be recovered."""
        redis, primary, _, journal, _, workers = state[:6]
        heads, lost, saved = journal[1], journal[4], journal[5]
        if lost > self.histories.length[saved] and not any(w[0] == "checkpoint" for w in workers):
            return (ROOT,) * self.sets  # the journal has a hole, and no checkpoint covers it
        if not self.case.cut:
            return tuple(heads)
        slots = zip(heads, redis[primary][0], strict=True)  # what only the journal lost is in Redis
        return tuple(
            slot[1] if self.histories.begins(head, slot[1]) else head for head, slot in slots
        )

    def _wrong(self, recovered: tuple[int, ...], marked: bool, shown: int) -> str:
        facts = [self.histories.facts[head] for head in recovered]
        kept = {answer[0]: answer[1] for fact in facts for answer in fact.answers}
        charges = frozenset().union(*(fact.charges for fact in facts))
        seen: dict[str, int] = {}
        paid: dict[int, int] = {}
        if any(fact.twice for fact in facts):
            return "I4: a row counts twice"
        for output in self.outputs(shown):
            match output:
                case ("answer", query, noise, charge):
                    if seen.setdefault(query, noise) != noise:
                        return f'I1: query "{query}" was answered by two byte strings'
                    if paid.setdefault(charge, noise) != noise:
                        return "I3: one charge paid for two draws of noise"
                    if charge not in charges:
                        return f'I2: the charge of the answer to "{query}" is not in the recovered ledger'
                    if kept.get(query) != noise:
                        return f'I1: the recovered state does not have the answer to "{query}" that was seen'
                case ("rows", first, last):
                    if (first, last) not in facts[0].ranges:
                        return "I5: a batch was announced as accepted, and is not in the recovered state"
                case ("rejected",):
                    if not marked:
                        return "I5: a rejection was announced, and is not in the recovered state"
                case ("twice",):
                    return "I3: one charge paid for two looks, of which not both were seen"
                case ("uncharged",):
                    return "I2: a look was taken whose charge is not in the recovered ledger"
        if len(charges) < len(seen):
            return "I3: there are fewer charges than releases"
        return ""

    def complete(self, state: State) -> bool:
        """Whether everything is answered, everything has left, and every row counts."""
        facts = [self.histories.facts[head] for head in state[3][1]]
        shown = set(self.outputs(state[4]))
        rows = [row for first, last in facts[0].ranges for row in range(first, last + 1)]
        return (
            sorted(rows) == list(range(self.case.rows))
            and {o[1] for o in shown if o[0] == "answer"} == set("".join(self.case.queries))
            and all(("rows", *span) in shown for span in facts[0].ranges)
            and (not self.case.rejection or REJECTED in shown)
        )

    # ------------------------------------------------------------ the journal

    def appended(self, journal: Journal, record: tuple[Any, ...]) -> Journal:
        """The journal with one more record (kind, epoch, data set, history)."""
        epoch, heads, marked, _, lost, saved = journal
        kind, of, which, node = record
        if kind == "epoch":
            return (max(epoch, of), heads, marked, self._last("epoch"), lost, saved)
        valid = of == epoch or not self.rules[Break.EPOCHS]
        if kind == "mark":
            return (epoch, heads, marked or valid, self._last("mark"), lost, saved)
        known, head = self.histories, heads[which]
        if self.rules[Break.PREV]:
            valid = valid and known.parent[node] == head
        else:
            valid = valid and known.length[node] == known.length[head] + 1
            node = known.child(head, known.delta[node])
        if valid:
            heads = (*heads[:which], node, *heads[which + 1 :])
        return (epoch, heads, marked, self._last("valid" if valid else "void"), lost, saved)

    def _last(self, kind: str) -> str:
        return kind if self.case.cut else ""

    def _further(self, worker: Worker, records: int = 1) -> Worker:
        """A worker, after somebody else appended to the journal or cut it."""
        if worker[0] in ("off", "chosen"):
            return worker
        more = worker[4] + records
        return (*worker[:4], more if self.case.cut else min(more, 1), *worker[5:])

    def _skip(self, view: tuple[Any, ...]) -> tuple[Any, ...]:
        """A view, after commits that let nothing out were passed over."""
        mine, journaled, released, own = view
        known = self.histories
        while released < journaled and not known.outputs[known.at(mine, released + 1)]:
            released += 1
        return (mine, journaled, released, own)

    def _fine(self, journal: Journal, worker: Worker, record: tuple[Any, ...]) -> bool:
        """Whether a worker goes on after its append, once it saw the offset and read the gap."""
        if worker[4] == 0 or not self.rules[Break.OFFSET]:
            return True
        if worker[4] < 0:
            return False
        fine = journal[0] == worker[2] or not self.rules[Break.EPOCHS]
        if record[0] == "commit" and self.rules[Break.PREV]:
            fine = fine and self.histories.begins(record[3], journal[1][record[2]])
        return bool(fine)

    # ------------------------------------------------------------ the steps

    def steps(self, state: State, calm: bool = False) -> list[tuple[Step, State]]:
        """What may happen next. In a calm run nothing fails, and one worker works."""
        found: list[tuple[Step, State]] = []
        for who in (0,) if calm else (0, 1):
            self._work(state, who, calm, found)
        self._read(state, calm, found)
        if not calm:
            self._fail(state, found)
        return found

    def _work(self, state: State, who: int, calm: bool, found: list[tuple[Step, State]]) -> None:
        redis, primary, kept, journal, shown, workers, reader, batches, flight, budget = state
        rules, known = self.rules, self.histories
        worker = workers[who]
        doing, on, epoch, token, drift, views, marked, scratch = worker

        def put(
            step: Step,
            new: Worker,
            *,
            redis: Any = redis,
            journal: Journal = journal,
            appends: bool = False,
            shown: int = shown,
            flight: Any = flight,
            budget: Any = budget,
        ) -> None:
            other = self._further(workers[1 - who]) if appends else workers[1 - who]
            both = (new, other) if who == 0 else (other, new)
            found.append(
                (
                    (who, *step),
                    (redis, primary, kept, journal, shown, both, reader, batches, flight, budget),
                )
            )

        def stored(which: int, slot: tuple[Any, ...]) -> Any:
            slots, mark = redis[on]
            server = ((*slots[:which], slot, *slots[which + 1 :]), mark)
            return (server, redis[1]) if on == 0 else (redis[0], server)

        def viewed(which: int, view: tuple[Any, ...]) -> tuple[Any, ...]:
            return (*views[:which], view, *views[which + 1 :])

        if doing == "off":
            if budget[2]:
                left = (*budget[:2], budget[2] - 1, *budget[3:])
                early = None if rules[Break.EPOCH_FIRST] else (journal[1], journal[2])
                new = ("chosen", primary, journal[0] + 1, 0, 0, (), 0, early)
                put(("starts, and chooses epoch {}", journal[0] + 1), new, budget=left)
            return

        if budget[0] and not calm:
            left = (budget[0] - 1, *budget[1:])
            put(("crashes",), OFF, budget=left)

        if doing == "chosen":
            after = self.appended(journal, ("epoch", epoch, 0, 0))
            if journal[0] >= epoch and rules[Break.EPOCHS] and rules[Break.EPOCH_TIE]:
                new = ("chosen", on, journal[0] + 1, 0, 0, (), 0, scratch)
                put(
                    ("appends EPOCH {}, and sees that it must be larger", epoch),
                    new,
                    journal=after,
                    appends=True,
                )
                return
            heads, marks = scratch or (journal[1], journal[2])
            rejected = 0 if not marks else 1 if rules[Break.RELEASE_AGAIN] else 2
            new = ("token", on, epoch, 0, 0, (), rejected, (0, heads))
            what = (
                "reads the journal up to it" if scratch is None else "has read the journal before"
            )
            put(("appends EPOCH {}, and {}", epoch, what), new, journal=after, appends=True)
            if budget[6] and not calm:
                left = (*budget[:6], budget[6] - 1)
                what = "is told by a former leader that it ends before: it leaves"
                if not rules[Break.WHOLE]:
                    what = "takes what a former leader has for all that is before it"
                    short = (known.parent[head] if known.length[head] else head for head in heads)
                    new = (*new[:7], (0, tuple(short)))
                step = ("appends EPOCH {}, and {}", epoch, what)
                put(
                    step,
                    OFF if rules[Break.WHOLE] else new,
                    journal=after,
                    appends=True,
                    budget=left,
                )

        elif doing == "token":
            which, heads = scratch
            slot = redis[on][0][which]
            mine = epoch if rules[Break.TOKEN_IS_EPOCH] else slot[0] + 1
            if slot[0] > mine:
                put(("finds a larger token in Redis, and leaves",), OFF)
            else:
                new = ("install", on, epoch, mine, drift, views, marked, scratch)
                put(("stores token {} in Redis", mine), new, redis=stored(which, (mine, *slot[1:])))

        elif doing == "install":
            which, heads = scratch
            slot = redis[on][0][which]
            if rules[Break.TOKEN] and slot[0] != token:
                put(("finds another token in Redis, and leaves",), OFF)
                return
            head, there = heads[which], slot[1]
            n = known.common(head, there)
            released = min(slot[2], n) if rules[Break.RELEASE_AGAIN] else known.length[head]
            took, journaled, target, how = (
                there,
                known.length[head],
                None,
                "finds that Redis is ahead of the journal",
            )
            if not rules[Break.HEALING]:
                journaled = released = slot[2]
                how = "believes Redis as it is"
            elif not rules[Break.HEALING_ALL]:
                how = "gives Redis the charges of the journal"
                for length in range(n + 1, known.length[head] + 1):
                    delta = known.delta[known.at(head, length)]
                    if delta[0] in ("charge", "lost"):
                        took = known.child(took, delta)
            elif there == head:
                how = "finds that Redis and the journal agree"
            elif not rules[Break.GAP] and known.length[there] < journal[4]:
                how = "believes Redis, since it finds no record that continues it"
                journaled = released = known.length[there]
            elif known.begins(head, there):
                pass
            elif known.begins(there, head) and known.length[there] >= journal[4]:
                how, target = "finds that Redis is behind the journal", head
            elif not rules[Break.JOURNAL_WINS]:
                how, journaled = "believes Redis, although the journal went on elsewhere", n
            elif known.length[journal[5]] < journal[4]:
                put(("cannot rebuild the data set, and stops",), OFF)
                return
            else:
                how = "sets aside what Redis holds, because the journal went on elsewhere"
                took, target = journal[5], head  # of the checkpoint, or nothing
                if not rules[Break.NEWEST] and took != ROOT:
                    took, target = self._without_answers(took, head), None
            new = self._standing(
                worker, (took, journaled, released, False), None if took == head else target
            )
            put((how,), new, redis=stored(which, (token, took, released)))

        elif doing == "heal":
            which, heads = scratch
            slot = redis[on][0][which]
            mine, journaled, released, own = views[which]
            if (rules[Break.TOKEN] and slot[0] != token) or (
                rules[Break.COMPARE] and slot[1] != mine
            ):
                put(("is refused by Redis, and leaves",), OFF)
                return
            took = known.at(heads[which], known.length[mine] + 1)
            target = heads[which] if took != heads[which] else None
            new = self._standing(
                (*worker[:5], views[:which], *worker[6:]), (took, journaled, released, own), target
            )
            put(
                ("heals Redis with commit {}", known.length[took]),
                new,
                redis=stored(which, (token, took, released)),
            )

        elif doing == "mark":
            slot = redis[on][0][scratch]
            view = views[scratch]
            new = ("run", *worker[1:7], None)
            after = (
                stored(scratch, (slot[0], slot[1], max(slot[2], view[2])))
                if slot[0] == token
                else redis
            )
            put(
                ("notes in Redis that it left",),
                (*new[:5], viewed(scratch, self._skip(view)), *new[6:]),
                redis=after,
            )

        elif doing == "checkpoint":
            node, todo = scratch
            lost, newest = journal[4:]
            if todo[0] == "cut":
                lost, what = max(lost, known.length[node]), "cuts the journal below its checkpoint"
            else:
                what = "has its checkpoint acknowledged"
                if known.length[node] > known.length[newest] or not rules[Break.CHECKPOINT_FENCE]:
                    newest = node
            new = (
                ("checkpoint", *worker[1:7], (node, todo[1:]))
                if todo[1:]
                else ("run", *worker[1:7], None)
            )
            put((what,), new, journal=(*journal[:4], lost, newest))

        elif doing == "run":
            self._serve(state, worker, calm, put, stored, viewed)

    def _without_answers(self, checkpoint: int, head: int) -> int:
        """The history that a checkpoint without its answers makes together with what follows it."""
        took, known = ROOT, self.histories
        for length in range(1, known.length[head] + 1):
            delta = known.delta[known.at(head, length)]
            left_out = delta[0] == "result" and length <= known.length[checkpoint]
            took = known.child(took, ("lost",) if left_out else delta)
        return took

    def _standing(self, worker: Worker, view: tuple[Any, ...], target: int | None) -> Worker:
        """A worker that stands at a view, and heals it up to a target, or goes to the next data set."""
        _, on, epoch, token, drift, views, marked, scratch = worker
        which, heads = scratch
        if target is not None:
            return ("heal", on, epoch, token, drift, (*views, view), marked, scratch)
        views = (*views, self._skip(view))
        if which + 1 < self.sets:
            return ("token", on, epoch, token, drift, views, marked, (which + 1, heads))
        return ("run", on, epoch, token, drift, views, marked, None)

    def _append(
        self,
        worker: Worker,
        journal: Journal,
        record: tuple[Any, ...],
        put: Callable[..., None],
        new: Worker,
    ) -> None:
        """Appends a record, and compares the offset that is acknowledged."""
        after = self.appended(journal, record)
        what = (
            f"commit {self.histories.length[record[3]]}"
            if record[0] == "commit"
            else "the mark of the rejection"
        )
        seen = "at the expected offset" if worker[4] == 0 else "at another offset"
        fine = self._fine(after, worker, record)
        if fine:
            new = (*new[:4], 0, *new[5:])
        put(
            ("appends {}, {}{}", what, seen, "" if fine else ": it leaves"),
            new if fine else OFF,
            journal=after,
            appends=True,
        )

    def _serve(
        self,
        state: State,
        worker: Worker,
        calm: bool,
        put: Callable[..., None],
        stored: Callable[..., Any],
        viewed: Callable[..., Any],
    ) -> None:
        """The steps of a worker that owns its partition."""
        redis, _, _, journal, shown, _, _, _, flight, budget = state
        rules, known, case = self.rules, self.histories, self.case
        _, on, epoch, token, drift, views, marked, _ = worker

        if case.rejection and marked != 2:
            if marked or not rules[Break.MARK_FIRST]:
                new = ("run", *worker[1:6], 2, None)
                put(("SHOWS the rejection",), new, shown=shown | self.bit(REJECTED))
            else:
                record = ("mark", epoch, 0, 0)
                self._append(worker, journal, record, put, ("run", *worker[1:6], 1, None))
                if budget[0] and flight is None and not calm:
                    put(
                        ("crashes with a mark in flight",),
                        OFF,
                        flight=record,
                        budget=(budget[0] - 1, *budget[1:]),
                    )

        for which in range(self.sets):
            mine, journaled, released, own = views[which]
            length = known.length[mine]
            facts = known.facts[mine]
            if journaled < length:
                node = known.at(mine, journaled + 1)
                record = ("commit", epoch, which, node)
                view = self._skip((mine, journaled + 1, released, own))
                self._append(
                    worker, journal, record, put, (*worker[:5], viewed(which, view), *worker[6:])
                )
                if budget[0] and flight is None and not calm:
                    left = (budget[0] - 1, *budget[1:])
                    put(
                        ("crashes with commit {} in flight", journaled + 1),
                        OFF,
                        flight=record,
                        budget=left,
                    )
            if released < (journaled if rules[Break.JOURNAL_FIRST] else length):
                output = known.outputs[known.at(mine, released + 1)]
                view = (mine, journaled, released + 1, own)
                new = ("mark", on, epoch, token, drift, viewed(which, view), marked, which)
                put(
                    ("SHOWS {}", output) if output else ("has nothing to show",),
                    new,
                    shown=shown | self.bit(output) if output else shown,
                )
            if budget[5] and which == 0 and journaled and known.length[journal[5]] < journaled:
                todo = (
                    ("acknowledge", "cut")
                    if rules[Break.CHECKPOINT_FIRST]
                    else ("cut", "acknowledge")
                )
                new = ("checkpoint", *worker[1:7], (known.at(mine, journaled), todo))
                put(
                    ("makes a checkpoint of commit {}", journaled),
                    new,
                    budget=(*budget[:5], budget[5] - 1, *budget[6:]),
                )

            if not case.eager and released < length:
                continue
            for delta in self._inputs(state, which, facts, own, journaled):
                slot = redis[on][0][which]
                if (rules[Break.TOKEN] and slot[0] != token) or (
                    rules[Break.COMPARE] and slot[1] != mine
                ):
                    put(("is refused by Redis, and leaves",), OFF)
                    continue
                took = known.child(mine, delta)
                view = (took, journaled, released, delta[0] == "charge")
                new = ("run", on, epoch, token, drift, viewed(which, view), marked, None)
                seen = shown
                if delta[0] == "result":
                    look = self.bit(("look", facts.intent))
                    if facts.intent not in known.facts[self._recovered(state)[which]].charges:
                        seen |= self.bit(UNCHARGED)
                    if seen & look and case.unseen:
                        seen |= self.bit(TWICE)
                    seen |= look
                put(
                    ("commits {}: {}", known.length[took], delta),
                    new,
                    redis=stored(which, (slot[0], took, slot[2])),
                    shown=seen,
                )

    def _inputs(
        self, state: State, which: int, facts: Facts, own: bool, journaled: int
    ) -> Iterator[Delta]:
        """What a worker may commit next."""
        rules, known = self.rules, self.histories
        queries, batches = self.case.queries[which], state[7]
        if facts.intent:
            if own or not rules[Break.LOST_LOOK]:
                if known.length[facts.intent] <= journaled or not rules[Break.WAIT]:
                    yield ("result", queries[facts.taken], self._draw(state))
            else:
                yield ("lost",)
            return
        if facts.taken < len(queries):
            query = queries[facts.taken]
            answered = rules[Break.DEDUPE] and any(answer[0] == query for answer in facts.answers)
            nonce = self._draw(state) if self.case.nonces else 0
            yield ("repeat", query) if answered else ("charge", query, nonce)
        if which == 0 and facts.read < len(batches):
            first, last = batches[facts.read]
            counts = first == facts.next if rules[Break.NEXT] else (first, last) not in facts.ranges
            yield ("rows" if counts else "refused", first, last)

    def _draw(self, state: State) -> int:
        """A draw that differs from all others that anyone still has: the smallest number that is free.

        Draws differ; their numbers mean nothing. Reusing those that nobody has makes more states the same.
        """
        redis, _, kept, journal, shown, workers, _, _, flight, _ = self.canonical(state)[0]
        nodes = {slot[1] for server in (*redis, kept or self.empty) for slot in server[0]} | {
            *journal[1],
            journal[5],
        }
        for worker in workers:
            nodes.update(view[0] for view in worker[5])
            if worker[0] in ("token", "install", "heal"):
                nodes.update(worker[7][1])
            elif worker[0] == "checkpoint":
                nodes.add(worker[7][0])
            elif worker[0] == "chosen" and worker[7]:
                nodes.update(worker[7][0])
        if flight:
            nodes.add(flight[3])
        used = {output[2] for output in self.outputs(shown) if output[0] == "answer"}
        for node in nodes:
            used |= self.histories.facts[node].draws
        return next(n for n in range(1, len(used) + 2) if n not in used)

    def _read(self, state: State, calm: bool, found: list[tuple[Step, State]]) -> None:
        """The steps of the reader of the source."""
        redis, primary, _, _, _, _, reader, batches, _, budget = state
        if not self.case.rows or not budget[4]:
            return
        left = (*budget[:4], budget[4] - 1, *budget[5:])
        last = self.case.rows - 1
        slots, (first, end) = redis[primary]
        if self.rules[Break.NEXT]:
            expected = self.histories.facts[slots[0][1]].next
            for low in {expected, max(expected, reader)}:
                for high in range(last if calm else low, last + 1):
                    if low <= high:
                        new = (*state[:6], high + 1, (*batches, (low, high)), state[8], left)
                        found.append((("", "the reader sends rows {} to {}", low, high), new))
            if budget[0] and reader and not calm:
                new = (*state[:6], 0, *state[7:9], (budget[0] - 1, *budget[1:]))
                found.append((("", "the reader crashes"), new))
            return
        # As it was before: a mark in Redis says where the next batch begins, and where the one to send ends.
        if end >= 0:
            servers = self._server(redis, primary, (slots, (end + 1, -1)))
            new = (servers, *state[1:7], (*batches, (first, end)), state[8], left)
            found.append((("", "the reader sends rows {} to {}", first, end), new))
        else:
            for high in range(first, last + 1):
                new = (self._server(redis, primary, (slots, (first, high))), *state[1:])
                found.append((("", "the reader writes down rows {} to {}", first, high), new))

    @staticmethod
    def _server(redis: Any, which: int, server: Any) -> Any:
        return (server, redis[1]) if which == 0 else (redis[0], server)

    def _fail(self, state: State, found: list[tuple[Step, State]]) -> None:
        """The faults of Redis and of the journal."""
        redis, primary, kept, journal, shown, workers, reader, batches, flight, budget = state
        rest = (shown, workers, reader, batches)
        here = redis[primary]
        if flight:
            both = tuple(self._further(worker) for worker in workers)
            after = self.appended(journal, flight)
            found.append(
                (
                    ("", "the append in flight lands"),
                    (*state[:3], after, shown, both, *state[6:8], None, budget),
                )
            )
        if not budget[1]:
            return
        left = (budget[0], budget[1] - 1, *budget[2:])
        if budget[3] and here != kept and self.case.back:
            fewer = (*budget[:3], budget[3] - 1, *budget[4:])
            found.append((("", "a copy of Redis is made"), (*state[:2], here, *state[3:9], fewer)))
        old = [("an older copy", kept)] if kept is not None and kept != here else []
        if self.case.empty and here != self.empty:
            old.append(("an empty server", self.empty))
        for name, server in old if self.case.back else ():
            new = self._server(redis, primary, server)
            found.append(
                (
                    ("", "Redis goes back to {}", name),
                    (new, primary, kept, journal, *rest, flight, left),
                )
            )
            if self.case.failover and primary == 0:
                new = self._server(redis, 1, server)
                found.append(
                    (
                        ("", "Redis fails over to {}", name),
                        (new, 1, kept, journal, *rest, flight, left),
                    )
                )
        if primary == 1 and self.case.back:
            found.append(
                (("", "the former primary is back"), (redis, 0, kept, journal, *rest, flight, left))
            )
        if kept is not None and self.case.slots:
            for which in range(self.sets):
                if kept[0][which] != here[0][which] and self.sets > 1:
                    slots = (*here[0][:which], kept[0][which], *here[0][which + 1 :])
                    new = self._server(redis, primary, (slots, here[1]))
                    alone: Step = ("", "the slot of data set {} goes back alone", which + 1)
                    found.append((alone, (new, primary, kept, journal, *rest, flight, left)))
            if kept[1] != here[1]:
                new = self._server(redis, primary, (here[0], kept[1]))
                alone = ("", "the slot with the mark of the reader goes back alone")
                found.append((alone, (new, primary, kept, journal, *rest, flight, left)))
        if self.case.cut and journal[3] in ("valid", "void", "mark"):
            heads = journal[1]
            if journal[3] == "valid":
                heads = (self.histories.parent[heads[0]],)
            cut = (
                journal[0],
                heads,
                journal[2],
                "epoch",
                *journal[4:],
            )  # one record is lost at a time
            both = tuple(self._further(worker, -1) for worker in workers)
            found.append(
                (
                    ("", "the journal loses its last record"),
                    (*state[:3], cut, shown, both, *state[6:9], left),
                )
            )

    # ------------------------------------------------------------ states that are the same

    def canonical(self, state: State) -> tuple[State, bool]:
        """The state that stands for all that behave alike, and whether the workers changed places."""
        redis, primary, kept, journal, shown, (a, b), reader, batches, flight, budget = state
        if not budget[1]:
            kept = None
            other = 1 - primary
            if (
                redis[other] is not self.empty
                and not (a[1] == other and a[0] != "off")
                and not (b[1] == other and b[0] != "off")
            ):
                redis = self._server(redis, other, self.empty)
        elif not self.case.back:
            kept = None
        swap = b[:7] < a[:7]
        both = (b, a) if swap else (a, b)
        return (redis, primary, kept, journal, shown, both, reader, batches, flight, budget), swap


class Calm:
    """Calm runs: what becomes of a state when the faults are over. They remember what they have seen."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.runs = 0
        self._fine: set[State] = set()

    def wrong(self, state: State) -> tuple[str, tuple[str, ...]]:
        """What is wrong with the calm run from a state on, and its steps; empty if it answers everything."""
        model = self.model
        redis, primary, _, journal, shown, _, _, batches, flight, _ = state
        if flight:
            journal = model.appended(journal, flight)
        left = (0, 0, 1, 0, 9, 0, 0)
        state = (redis, primary, None, journal, shown, (OFF, OFF), 0, batches, None, left)
        if state in self._fine:
            return "", ()
        self.runs += 1
        path = [state]
        told = ["all workers stop, and the faults are over"]
        while len(path) < 400:
            if why := model.violated(state):
                return why, tuple(told)
            if model.complete(state):
                self._fine.update(path)
                return "", ()
            found = model.steps(state, calm=True)
            own = [one for one in found if one[0][0] == 0] or found
            if own:
                step, state = own[-1]
                told.append(say(step, swapped=False))
            elif state[5][0][0] == "off":
                state = (*state[:9], left)  # somebody starts it again
            else:
                break
            path.append(state)
        return "I6: no progress, although the faults are over", tuple(told)


def say(step: Step, swapped: bool) -> str:
    """A step in words."""
    who, text, *gaps = step

    def word(gap: Any) -> str:
        match gap:
            case ("charge", query, _):
                return f'announces and pays a look for query "{query}"'
            case ("result", query, noise):
                return f'answers query "{query}" by a look with noise {noise}'
            case ("lost",):
                return "the announced look is lost"
            case ("repeat", query):
                return f'query "{query}" has its answer'
            case ("rows" | "refused" as what, first, last):
                return f"rows {first} to {last} are {'accepted' if what == 'rows' else 'refused'}"
            case ("answer", query, noise, _):
                return f'the answer to query "{query}" with noise {noise}'
        return str(gap)

    if step[0] != "" and text == "SHOWS {}" and gaps[0][0] == "rows":
        said = f"SHOWS that rows {gaps[0][1]} to {gaps[0][2]} are accepted"
    else:
        said = text.format(*map(word, gaps))
    return said if who == "" else f"worker {1 + (who ^ swapped)} {said}"


def _story(model: Model, states: list[State]) -> tuple[str, ...]:
    """The steps that lead through a list of canonical states, in words."""
    told, swapped = [], False
    for before, after in itertools.pairwise(states):
        for step, new in model.steps(before):
            same, swap = model.canonical(new)
            if same == after:
                told.append(say(step, swapped))
                swapped ^= swap
                break
        else:
            raise AssertionError("no step leads from a state to the next")
    return tuple(told)


def search(
    case: Case,
    *,
    seconds: float = float("inf"),
    every: int = 1,
    progress: Callable[[int, int, float], None] | None = None,
) -> Found:
    """Searches all states of a case, those in the fewest steps first.

    Args:
        case: What to search.
        seconds: When to stop, if the space is not exhausted before.
        every: Calm runs start from each n-th state, and from those where nothing happens next.
        progress: Is told the number of states, the depth and the time since the start in seconds.
    """
    model = Model(case)
    calm = Calm(model)
    begun = told = time.monotonic()
    first, _ = model.canonical(model.start)
    before: dict[State, State | None] = {first: None}
    level, states, depth = [first], 0, 0

    def story(state: State) -> tuple[str, ...]:
        path: list[State] = []
        at: State | None = state
        while at is not None:
            path.append(at)
            at = before[at]
        return _story(model, path[::-1])

    collecting = gc.isenabled()
    gc.disable()  # the search makes no cycles, and visiting millions of tuples takes longer than the search
    verdict, ends = Verdict.HOLDS, set()
    try:
        while level and verdict is Verdict.HOLDS:
            following: list[State] = []
            for state in level:
                states += 1
                if why := model.violated(state):
                    return Found(Verdict.VIOLATED, states, calm.runs, why, story(state))
                found = model.steps(state)
                if not found:
                    ends.add(state)
                for _, new in found:
                    same, _ = model.canonical(new)
                    if same not in before:
                        before[same] = state
                        following.append(same)
                if states % 1000 == 0:
                    now = time.monotonic()
                    if progress is not None and now - told > 5:
                        told = now
                        progress(states, depth, now - begun)
                    if now - begun > seconds:
                        verdict = Verdict.BOUND
                        break
            level = following
            depth += 1
        for n, state in enumerate(before):
            if n % every == 0 or state in ends:
                why, steps = calm.wrong(state)
                if why:
                    return Found(Verdict.VIOLATED, states, calm.runs, why, (*story(state), *steps))
    finally:
        if collecting:
            gc.enable()
    return Found(verdict, states, calm.runs)


_RARE = ("crash", "Redis ", "a copy", "the former", "the slot", "the journal loses")


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
    model = Model(case)
    calm = Calm(model)
    draw, states, begun = random.Random(seed), 0, time.monotonic()
    for _ in range(runs):
        state = model.start
        path: list[Step] = []
        while True:
            states += 1
            if why := model.violated(state):
                return Found(
                    Verdict.VIOLATED,
                    states,
                    calm.runs,
                    why,
                    tuple(say(step, swapped=False) for step in path),
                )
            found = model.steps(state)
            if not found or len(path) > 400:
                break
            rare = [one for one in found if one[0][1].startswith(_RARE)]
            usual = [one for one in found if not one[0][1].startswith(_RARE)]
            step, state = draw.choice(
                rare if rare and (not usual or draw.random() < 0.08) else usual
            )
            path.append(step)
        why, steps = calm.wrong(state)
        if why:
            return Found(
                Verdict.VIOLATED,
                states,
                calm.runs,
                why,
                (*(say(step, swapped=False) for step in path), *steps),
            )
        if time.monotonic() - begun > seconds:
            break
    return Found(Verdict.WALKED, states, calm.runs)


def _broken(*rules: Break, **change: Any) -> dict[str, Any]:
    return {"broken": frozenset(rules), **change}


_ROWS: dict[str, Any] = {"queries": ("",), "rows": 3, "sends": 3}
_BOTH: dict[str, Any] = {
    "queries": ("aba",),
    "rows": 3,
    "sends": 6,
    "crashes": 2,
    "faults": 3,
    "starts": 6,
    "walk": True,
}
_TWO: dict[str, Any] = {
    "queries": ("a", "b"),
    "slots": True,
    "failover": False,
    "empty": False,
    "eager": False,
}

CASES = (
    # What must hold.
    Case("one query, a crash and a fault", crashes=1),
    Case("one query, two faults", faults=2),
    Case("one query, three workers", starts=3),
    Case("nonces: one query, a crash and a fault", nonces=True, crashes=1),
    Case("nonces: one query, two faults", nonces=True, faults=2),
    Case(
        "nonces: one query, two faults, three workers", nonces=True, faults=2, starts=3, slow=True
    ),
    Case("one query twice", queries=("aa",), crashes=1),
    Case("two queries", queries=("ab",), crashes=1),
    Case(
        "one query twice, two faults and a crash", queries=("aa",), faults=2, crashes=1, slow=True
    ),
    Case(
        "three queries of two ids, at random",
        queries=("aba",),
        faults=2,
        crashes=1,
        starts=4,
        walk=True,
    ),
    Case("two rows of a source", **{**_ROWS, "rows": 2, "sends": 2}, crashes=1),
    Case("three rows of a source", **_ROWS, slow=True),
    Case("a query and a row", rows=1, sends=1, eager=False),
    Case("a query and two rows", rows=2, sends=2, eager=False, crashes=1, slow=True),
    Case("two data sets, one slot goes back alone", **_TWO),
    Case("two data sets, one slot goes back alone, a crash", **_TWO, crashes=1, slow=True),
    Case("a rejection", queries=("",), rejection=True, crashes=1),
    Case("a rejection and a query", rejection=True),
    Case("checkpoints", checkpoints=2, crashes=1),
    Case("a former leader answers readings", stale=2, starts=3),
    Case("a former leader answers a reading, a crash", stale=1, crashes=1, starts=3, slow=True),
    Case("the journal alone loses its end", back=False, failover=False, empty=False, cut=True),
    Case("everything, at random", **_BOTH, rejection=True, checkpoints=2, stale=2),
    Case(
        "two data sets, at random",
        nonces=True,
        **{**_BOTH, "queries": ("aba", "cd"), "slots": True},
    ),
    # Rules without which all invariants hold: they are kept for other reasons.
    Case("spare: the continued commit is not compared", **_broken(Break.PREV)),
    Case("spare: the token is not the epoch", **_broken(Break.TOKEN_IS_EPOCH)),
    Case("spare: Redis compares nothing", **_broken(Break.TOKEN, Break.COMPARE)),
    Case("spare: a lost look is taken again", **_broken(Break.LOST_LOOK), crashes=1, unseen=False),
    # Broken copies of the protocol.
    Case("1: output before the journal", "I1", **_broken(Break.JOURNAL_FIRST)),
    Case("2: no healing", "I1", **_broken(Break.HEALING), unseen=False),
    Case("3: charges are healed, answers are not", "I2", **_broken(Break.HEALING_ALL, Break.PREV)),
    Case("4: the offset is not compared", "I2", **_broken(Break.OFFSET)),
    Case("5: the journal is read before EPOCH", "I1", **_broken(Break.EPOCH_FIRST), unseen=False),
    Case(
        "6: neither epochs nor what is continued",
        "I1",
        **_broken(Break.EPOCHS, Break.PREV),
        unseen=False,
    ),
    Case("7: Redis wins a fork", "I1", **_broken(Break.JOURNAL_WINS), faults=2, starts=3),
    Case("8: nothing is released again", "I6", **_broken(Break.RELEASE_AGAIN), crashes=1),
    Case(
        "9: no stored answers", "I1", **_broken(Break.DEDUPE), queries=("aa",), faults=0, starts=1
    ),
    Case("10: overlapping ranges count", "I4", **_broken(Break.NEXT), **_ROWS),
    Case(
        "11: the slot with the marks goes back alone",
        "I4",
        **_broken(Break.NEXT),
        **_ROWS,
        slots=True,
        failover=False,
        empty=False,
    ),
    Case("12: journal and Redis lose their ends", "I2", cut=True, faults=2),
    Case("13: epochs are ignored", "I1", **_broken(Break.EPOCHS), unseen=False),
    Case("14: a look before its charge is in the journal", "I2", **_broken(Break.WAIT)),
    Case(
        "15: a rejection before its mark",
        "I5",
        **_broken(Break.MARK_FIRST),
        queries=("",),
        rejection=True,
    ),
    Case(
        "16: the journal is cut before the checkpoint",
        "I2",
        **_broken(Break.CHECKPOINT_FIRST),
        checkpoints=1,
        crashes=1,
    ),
    Case(
        "17: an old checkpoint replaces a newer one",
        "I2",
        **_broken(Break.CHECKPOINT_FENCE),
        checkpoints=2,
    ),
    Case("18: equal epochs", "I1", **_broken(Break.EPOCH_TIE), unseen=False),
    Case(
        "19: a marked rejection is not sent again",
        "I6",
        **_broken(Break.RELEASE_AGAIN),
        queries=("",),
        rejection=True,
        crashes=1,
    ),
    Case("20: epochs are ignored, with nonces", "I1", **_broken(Break.EPOCHS), nonces=True),
    Case("21: equal epochs, with nonces", "I1", **_broken(Break.EPOCH_TIE), nonces=True),
    Case(
        "22: what was noted is believed across a gap",
        "I1",
        **_broken(Break.GAP),
        checkpoints=1,
        unseen=False,
    ),
    Case(
        "23: a checkpoint leaves answers out",
        "I2",
        **_broken(Break.NEWEST, Break.PREV),
        checkpoints=1,
        unseen=False,
    ),
    Case(
        "24: a short reading is taken for all", "I2", **_broken(Break.WHOLE), stale=1, unseen=False
    ),
    Case(
        "25: a short reading is taken for all, with nonces",
        "I2",
        **_broken(Break.WHOLE),
        stale=1,
        nonces=True,
    ),
    Case("walk: overlapping ranges count", "I4", **_broken(Break.NEXT), **_BOTH),
    Case("walk: the offset is not compared", "I5", **_broken(Break.OFFSET), **_BOTH),
)


def case(name: str) -> Case:
    """The case with a name.

    Raises:
        KeyError: There is none.
    """
    return {one.name: one for one in CASES}[name]


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model.recovery", description="Searches the model of recovery."
    )
    parser.add_argument(
        "--case", metavar="NAME", default="", help="search the cases whose name contains NAME"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="stop each case after this time (default: 60)"
    )
    parser.add_argument(
        "--every", type=int, default=1, help="start a calm run from each n-th state (default: 1)"
    )
    parser.add_argument("--verbose", action="store_true", help="print the steps to each violation")
    options = parser.parse_args()

    def progress(states: int, depth: int, seconds: float) -> None:
        print(
            f"  {states:,} states, depth {depth}, {states / seconds:,.0f} states/s",
            file=sys.stderr,
            flush=True,
        )

    table, unexpected, total = [], 0, 0
    for one in CASES:
        if options.case not in one.name:
            continue
        print(one.name, file=sys.stderr, flush=True)
        begun = time.monotonic()
        if one.walk:
            found = walk(one, seconds=options.seconds)
        else:
            found = search(one, seconds=options.seconds, every=options.every, progress=progress)
        total += found.states
        wanted = found.invariant == one.violates
        unexpected += not wanted
        how = (
            f"{len(found.steps)} steps: {found.invariant}"
            if found.steps
            else f"{found.calm:,} calm runs"
        )
        table.append(
            f"{one.name:<52} {found.verdict.name:<9}{found.states:>10,} states  {how:<22}"
            f"{time.monotonic() - begun:6.1f} s{'' if wanted else '  UNEXPECTED'}"
        )
        if (options.verbose and found.steps) or not wanted:
            print(found, flush=True)
    print("\n".join(table))
    print(f"{total:,} states in all, {unexpected} cases not as expected")
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(_main())
