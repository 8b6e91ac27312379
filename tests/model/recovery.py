"""A model of recovery: two workers, the journal, Redis and the outputs, and all their steps and faults.

To append to the journal is to commit. What a commit lets out leaves when its offset was acknowledged and is
the expected one, and Redis follows. A worker that takes the partition over looks for the newest round of
checkpoints, appends an EPOCH, and reads the journal from that round up to it. A commit counts if it names the
last EPOCH below it. Private values are on their topic before the commit that names them. A round of
checkpoints begins when everything has left, and the journal is cut below its beginning when a further entry
names its end and says what is cut. A take-over that finds such an entry of a round that it did not know of
begins again. Outputs name the place of their commit, and a worker that takes over compares them with the
journal. Redis is asked for answers and private values, which are compared with their digest or name, and for
the next offset of a source, which is a hint. An answer that is not carried on is where it was committed.

What a data set has become is a *history*, the chain of its commits. A look is a draw of noise that differs
from all other draws. Faults are crashes at any step, appends and cuts that land late, appends whose reply is
lost, workers that go on although they were followed, looks for the newest round at any earlier time, readings
that come short, a Redis at any earlier state or wrong in its bytes, and a journal, with Redis, and perhaps
with the outputs, restored to any earlier end. Each rule of the protocol can be broken (``Break``), and a
search must then find the invariant that fails.

The model has one data set. It leaves out repairs, exports, what persons have used, and ids that are dropped
after some days.

Invariants:
    I1: No query is answered by two byte strings, and the recovered state has the answer that was seen.
    I2: The charge of every look ever taken is in the recovered ledger.
    I3: No charge pays for two looks.
    I4: No row counts twice.
    I5: An outcome that was announced, of a batch or of a rejected record, stays.
    I6: When the faults are over, everything is answered and every row counts.
    I7: Every private value that the recovered state names is there, and is the one that was meant.
    I8: If everything was restored and a query is answered again, everyone sees it: each look that was seen
        has a charge of its own in the recovered ledger, or two entries of one index were seen that differ.
    I9: Every entry that counts continues the chain, unless the journal was cut.

``python -m tests.model.cases --help`` runs the cases.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Delta = tuple[Any, ...]
Output = tuple[Any, ...]
Step = tuple[Any, ...]  # a sentence with gaps, and what fills them

ROOT = 0  # the empty history


class Break(enum.Enum):
    """One rule of the protocol that a case breaks."""

    OUTPUT_LAST = "output leaves before its commit is acknowledged"
    OFFSET = "the acknowledged offset is not compared with the expected one"
    EPOCH_FIRST = "the journal is read before EPOCH is appended"
    OWN_EPOCH = "an EPOCH whose reply is lost is appended again under the same id"
    EPOCHS = "readers ignore epochs"
    WHOLE = "a reading that comes short is taken for all"
    GAP_WHOLE = "the gap before the acknowledged offset is read short"
    GAP_THERE = "a gap that was cut off is taken for empty"
    VIEW_LAST = "Redis is written before the journal"
    VIEW_DECIDES = "Redis is believed at a take-over"
    VIEW_LONGER = "Redis is believed at a take-over where it has more commits"
    VIEW_IDS = "whether a query has its answer is looked up in Redis"
    DIGEST = "answers of Redis are not compared with their digest"
    NAME = "private values of Redis are not compared with their name"
    AGAIN = "what a former owner left unreleased is not released"
    MARK_LAST = "a mark says that output has left before it has"
    REJECTION = "a rejection leaves before its mark is acknowledged"
    DEDUPE = "a query that has its answer is answered again"
    NEXT = "a range of a source counts unless the same range did"
    WAIT = "a look is taken before its charge is acknowledged"
    LOST_LOOK = "a lost look is taken again under its charge"
    VALUE_FIRST = "a private value is kept after the commit that names it"
    NAMES = "private values are named after their phase"
    SETTLED = "a round of checkpoints begins before everything has left"
    INDEX = "a checkpoint does not say which queries are answered"
    CUT_ACKNOWLEDGED = "the journal is cut below a checkpoint that does not count"
    CUT_BEGIN = "the journal is cut below the end of a round, not its beginning"
    CUT_NAMED = "the journal is cut before an entry names the end of the round"
    MARKED = "a take-over relies on entries that a former owner has said it deletes"
    OTHERS = "an end names itself, so that it is believed before it is acknowledged"
    OUTPUTS = "nobody compares the outputs with the journal"
    NONCE = "charges have no nonce"
    STOPPED = "the journal is restored while workers live"

    __hash__ = object.__hash__  # that of Enum takes a tenth of a search


@dataclasses.dataclass(frozen=True)
class Case:
    """What a search is about: the work, the faults, and the rules that are broken.

    Args:
        name: What the case is called on the command line.
        violates: The invariant that must fail, or an empty text if all must hold.
        queries: The queries, a letter each, in order of arrival.
        rows: How many rows the source has.
        sends: How many batches the reader of the source may send.
        seals: How many private values are to be kept.
        rejection: Whether a record that names no data set is to be rejected.
        rounds: How many rounds of checkpoints may begin.
        view: Whether there is a Redis.
        crashes: How many crashes, and replies that are lost, there may be.
        faults: How many other faults there may be.
        starts: How many workers may start.
        restore: What may be restored: nothing, the "journal" with Redis, or "all", the outputs included.
        eager: Whether a worker takes the next input before the last one is acknowledged.
        unseen: Whether two looks under one charge violate I3 although nobody has seen both of them.
        broken: The rules that are broken.
        walk: Whether the case is for random runs, because its space is too large.
    """

    name: str
    violates: str = ""
    queries: str = "A"
    rows: int = 0
    sends: int = 0
    seals: int = 0
    rejection: bool = False
    rounds: int = 0
    view: bool = False
    crashes: int = 1
    faults: int = 1
    starts: int = 2
    restore: str = ""
    eager: bool = True
    unseen: bool = True
    broken: frozenset[Break] = frozenset()
    walk: bool = False


# ---------------------------------------------------------------- what a data set has become


@dataclasses.dataclass(frozen=True)
class Facts:
    """What follows from a history."""

    answers: tuple[Output, ...] = ()  # as they leave: query, noise, and the charge that paid
    charges: tuple[int, ...] = ()  # the histories that charges made
    intent: int = 0  # the announced look, by its charge
    taken: int = 0  # queries taken from the topic
    read: int = 0  # batches taken from the topic
    next: int = 0  # the offset expected from the source
    ranges: tuple[tuple[int, int], ...] = ()
    twice: bool = False  # whether a row counts twice
    named: tuple[tuple[str, str], ...] = ()  # the name and the content of private values

    def answer(self, query: str) -> Output | None:
        """The answer to a query, as it left."""
        return next((one for one in self.answers if one[1] == query), None)

    def after(self, delta: Delta, node: int) -> Facts:
        """The facts after one more commit."""
        change = dataclasses.replace
        match delta:
            case ("charge", _, _):
                return change(self, charges=(*self.charges, node), intent=node)
            case ("result", query, noise):
                answer = ("answer", query, noise, self.intent)
                return change(self, answers=(*self.answers, answer), intent=0, taken=self.taken + 1)
            case ("lost",):
                return change(self, intent=0)
            case ("repeat" | "missed", _):
                return change(self, taken=self.taken + 1)
            case ("rows", first, last):
                return change(
                    self,
                    ranges=(*self.ranges, (first, last)),
                    twice=self.twice or any(first <= b and a <= last for a, b in self.ranges),
                    next=max(self.next, last + 1),
                    read=self.read + 1,
                )
            case ("refused", _, _):
                return change(self, read=self.read + 1)
            case ("seal", name, content):
                return change(self, named=(*self.named, (name, content)))
        raise AssertionError(delta)


class Histories:
    """All histories that a search has met. A number stands for a history, as a trail does."""

    def __init__(self) -> None:
        self.parent = [ROOT]
        self.delta: list[Delta] = [()]
        self.length = [0]
        self.facts = [Facts()]
        self._children: dict[tuple[int, Delta], int] = {}

    def child(self, node: int, delta: Delta) -> int:
        """The history with one more commit."""
        found = self._children.get((node, delta))
        if found is not None:
            return found
        new = self._children[node, delta] = len(self.parent)
        self.parent.append(node)
        self.delta.append(delta)
        self.length.append(self.length[node] + 1)
        self.facts.append(self.facts[node].after(delta, new))
        return new

    def at(self, node: int, length: int) -> int:
        """The first ``length`` commits of a history."""
        while self.length[node] > length:
            node = self.parent[node]
        return node

    def begins(self, short: int, long: int) -> bool:
        """Whether ``long`` continues ``short``, or is the same."""
        return self.at(long, self.length[short]) == short

    def next(self, node: int, towards: int) -> int:
        """The history with one commit more of those that lead to another one."""
        return self.at(towards, self.length[node] + 1)

    def output(self, node: int) -> Output | None:
        """What leaves for the last commit of a history."""
        facts, delta = self.facts[node], self.delta[node]
        match delta:
            case ("charge", query, nonce):
                return ("charge", len(facts.charges), query, nonce)
            case ("result", _, _):
                return facts.answers[-1]
            case ("repeat", query):
                return facts.answer(query)
            case ("missed", query):
                answer = facts.answer(query)
                return answer and _other(answer)
            case ("rows", first, last):
                return ("rows", first, last)
        return None


def _other(answer: Output) -> Output:
    """Another reply to a query than its answer."""
    what, query, _, charge = answer
    return what, query, -1, charge


# ---------------------------------------------------------------- the journal


class Entry(NamedTuple):
    """An entry of the journal.

    Attributes:
        kind: ``epoch``, ``commit``, ``begin`` or ``end`` of a round, ``mark``, ``rejected``, or ``gone``
            where it was cut off. A ``deletion`` is none, but is under way like an append.
        epoch: The id of its writer's epoch.
        node: The history with a commit, or that at the beginning of a round.
        left: What had left by a commit, as a mark that travels with it says; at ``begin`` all of it had.
        begin: Where the round of an ``end`` begins.
        rejected: Whether the rejection is marked, as a ``begin`` says.
        newest: The newest ``end`` that its writer knew to count. -1 for none.
        first: Below which offset its writer deletes entries, as a mark says.
    """

    kind: str
    epoch: str = ""
    node: int = ROOT
    left: int = ROOT
    begin: int = -1
    newest: int = -1
    rejected: bool = False
    first: int = 0


GONE = Entry("gone")


class Reading(NamedTuple):
    """What a reader makes of a journal.

    Attributes:
        epoch: The epoch in force at its end.
        head: The history of its commits.
        left: What has left, as far as it says.
        rejected: Whether the rejection is marked.
        wrong: Whether an entry that counts does not continue the chain, or the beginning is not there.
        blind: The history whose answers are not known.
        deleted: Below which offset entries are deleted, or will be, as marks say.
    """

    epoch: str = ""
    head: int = ROOT
    left: int = ROOT
    rejected: bool = False
    wrong: bool = False
    blind: int = ROOT
    deleted: int = 0


class Journals:
    """All journals that a search has met. A number stands for a journal."""

    def __init__(self, histories: Histories, keeps: Callable[[Break], bool]) -> None:
        self.entries: list[tuple[Entry, ...]] = [()]
        self._histories = histories
        self._keeps = keeps
        self._numbers: dict[tuple[Entry, ...], int] = {(): 0}
        self._longer: dict[tuple[int, Entry], int] = {}
        self._read: dict[tuple[int, int | None], Reading] = {}

    def of(self, entries: tuple[Entry, ...]) -> int:
        """The journal with these entries."""
        found = self._numbers.setdefault(entries, len(self.entries))
        if found == len(self.entries):
            self.entries.append(entries)
        return found

    def append(self, journal: int, entry: Entry) -> int:
        """The journal with one more entry."""
        found = self._longer.get((journal, entry))
        if found is None:
            found = self._longer[journal, entry] = self.of((*self.entries[journal], entry))
        return found

    def until(self, journal: int, end: int) -> int:
        """The journal as it was when it ended at an offset."""
        entries = self.entries[journal]
        return journal if end == len(entries) else self.of(entries[:end])

    def newest(self, journal: int) -> int:
        """The newest end of a round that an entry names. -1 if there is none."""
        entries = self.entries[journal]
        return max((one.newest for one in entries if one.newest < len(entries)), default=-1)

    def once_newest(self, journal: int) -> list[int]:
        """What was the newest end of a round at some time, if nothing is deleted behind its beginning."""
        entries = self.entries[journal]
        ends = {-1, *(one.newest for one in entries if one.newest < len(entries))}
        return sorted(one for one in ends if GONE not in entries[self.beginning(journal, one) :])

    def beginning(self, journal: int, end: int) -> int:
        """Where the round with an end begins, or its end if that is gone, and so the beginning is, too."""
        entry = self.entries[journal][end] if end >= 0 else None
        return 0 if entry is None else entry.begin if entry.kind == "end" else end

    def without(self, journal: int, first: int) -> int:
        """The journal without its entries below an offset."""
        entries = self.entries[journal]
        return self.of(tuple(GONE if n < first else one for n, one in enumerate(entries)))

    def landed(self, journal: int, entry: Entry) -> int:
        """The journal when an append, or a deletion, has landed."""
        if entry.kind == "deletion":
            return self.without(journal, entry.first)
        return self.append(journal, entry)

    def read(self, journal: int, newest: int | None = None) -> Reading:
        """What a reader makes of a journal, from the newest round on, or from the one with that end."""
        found = self._read.get((journal, newest))
        if found is None:
            end = self.newest(journal) if newest is None else newest
            found = self._read[journal, newest] = self._reading(journal, end)
        return found

    def _reading(self, journal: int, newest: int) -> Reading:
        entries, known, start = self.entries[journal], self._histories, 0
        epoch, head, left, rejected, wrong, blind, deleted = Reading()
        if newest >= 0:
            if entries[newest].kind != "end":
                return Reading(wrong=True)
            start = entries[newest].begin
            begin = entries[start]
            if begin.kind != "begin":
                return Reading(wrong=True)
            epoch, head, left = begin.epoch, begin.node, begin.left
            rejected = begin.rejected
            blind = ROOT if self._keeps(Break.INDEX) else head
        elif entries and entries[0].kind == "gone":
            return Reading(wrong=True)
        for one in entries[start:]:
            if one.kind == "epoch":
                epoch = one.epoch
            elif one.kind == "gone" or (one.epoch != epoch and self._keeps(Break.EPOCHS)):
                continue
            elif one.kind == "rejected":
                rejected = True
            elif one.kind == "mark":
                deleted = max(deleted, one.first)
            elif one.kind == "commit" and known.parent[one.node] == head:
                head = one.node
                if known.begins(one.left, head) and known.length[one.left] > known.length[left]:
                    left = one.left
            elif one.kind == "commit" and not known.begins(one.node, head):
                wrong = wrong or self._keeps(Break.EPOCHS)
        return Reading(epoch, head, left, rejected, wrong, blind, deleted)


# ---------------------------------------------------------------- the model


class Worker(NamedTuple):
    """A worker.

    Attributes:
        doing: ``off``, ``again`` (its EPOCH had no reply), ``late`` (it has read before its EPOCH),
            ``reading``, ``run``, or ``halt``.
        epoch: The id of its epoch, which is also what it is called.
        mine: The history in its memory.
        acked: What of it is acknowledged.
        left: What of it has left.
        expected: The offset at which its next append must land.
        own: The charge whose look it may take.
        kept: Whether it has kept the private value that it names next.
        early: What it has read before its EPOCH.
        round: Its round of checkpoints: what comes next, where the round begins, and the history there; or
            ``cut``, and below which offset.
        newest: The newest end of a round that it knows to count.
        rejected: 1 if the rejection is marked, and 2 if it has left.
        blind: The history whose answers it does not know.
    """

    doing: str = "off"
    epoch: str = ""
    mine: int = ROOT
    acked: int = ROOT
    left: int = ROOT
    expected: int = 0
    own: int = 0
    kept: bool = False
    early: int = 0
    round: tuple[Any, ...] = ()
    newest: int = -1
    rejected: int = 0
    blind: int = ROOT


OFF = Worker()


class Budget(NamedTuple):
    """What may still happen, see ``Case``."""

    crashes: int
    faults: int
    starts: int
    sends: int
    rounds: int


CALM = Budget(0, 0, 1, 9, 0)


class State(NamedTuple):
    """A state.

    Attributes:
        journal: The journal.
        view: The history that Redis has.
        wrong: Whether Redis has wrong bytes.
        blocks: The names and contents on the topic of private values.
        topics: The place and the history of each output that is on its topic.
        seen: Each output that was ever seen.
        looked: Each look that was taken: its charge and its noise.
        workers: The two workers.
        batches: The ranges of rows that the reader of the source has sent.
        noise: The number of draws.
        flight: An append or a deletion of a worker that does not wait for it, which has not landed.
        cut: What was restored.
        budget: What may still happen.
    """

    journal: int
    view: int
    wrong: bool
    blocks: frozenset[tuple[str, str]]
    topics: frozenset[tuple[int, int]]
    seen: frozenset[Output]
    looked: frozenset[tuple[int, int]]
    workers: tuple[Worker, Worker]
    batches: tuple[tuple[int, int], ...]
    noise: int
    flight: Entry | None
    cut: str
    budget: Budget


REJECTED: Output = ("rejected",)
MISREAD: Output = ("misread",)

Steps = list[tuple[Step, State]]


class Model:
    """The steps of one case, and what must be true in each state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.histories = Histories()
        self.journals = Journals(self.histories, self.keeps)
        budget = Budget(case.crashes, case.faults, case.starts, case.sends, case.rounds)
        nothing: frozenset[Any] = frozenset()
        self.start = State(
            0, ROOT, False, nothing, nothing, nothing, nothing, (OFF, OFF), (), 0, None, "", budget
        )
        self._wrong: dict[Any, str] = {}

    def keeps(self, rule: Break) -> bool:
        """Whether a rule is kept."""
        return rule not in self.case.broken

    @staticmethod
    def canonical(state: State) -> State:
        """The same state, with its workers in order: they are alike."""
        a, b = state.workers
        return state._replace(workers=(b, a)) if b[:2] < a[:2] else state

    # ------------------------------------------------------------ what must be true

    def violated(self, state: State) -> str:
        """The invariant that fails in a state, in a sentence; empty if all hold."""
        reading = self.journals.read(state.journal)
        key = (*reading[1:5], state.seen, state.looked, state.blocks, state.cut)
        found = self._wrong.get(key)
        if found is None:
            found = self._wrong[key] = next(self._complaints(reading, state), "")
        return found

    def _complaints(self, reading: Reading, state: State) -> Iterator[str]:
        facts, cut = self.histories.facts[reading.head], state.cut
        if reading.wrong and not cut:
            yield "I9: an entry that counts does not continue the chain"
        if facts.twice:
            yield "I4: a row counts twice"
        noises: dict[int, int] = {}
        for charge, noise in state.looked:
            same = noises.setdefault(charge, noise) == noise
            if not cut and not same and self.case.unseen:
                yield "I3: one charge paid for two looks"
            if not cut and charge not in facts.charges:
                yield "I2: a look was taken whose charge is not in the recovered ledger"
        answers: dict[str, set[int]] = {}
        paid: dict[int, set[int]] = {}
        entries: dict[int, set[Output]] = {}
        for output in state.seen:
            match output:
                case ("answer", query, noise, charge):
                    answers.setdefault(query, set()).add(noise)
                    paid.setdefault(charge, set()).add(noise)
                    if not cut and facts.answer(query) != output:
                        yield f"I1: the recovered state does not have the answer to {query} that was seen"
                case ("charge", index, *_):
                    entries.setdefault(index, set()).add(output)
                case ("rows", first, last) if not cut and (first, last) not in facts.ranges:
                    yield "I5: a batch was announced as accepted, and is not in the recovered state"
                case ("rejected",) if not cut and not reading.rejected:
                    yield "I5: a rejection was announced, and is not in the recovered state"
                case ("misread",):
                    yield "I7: a look has read another value than the one that was meant"
        yield from self._answered_twice(facts, cut, answers, paid, entries)
        if not cut:
            there = set(state.blocks)
            if any(one not in there for one in facts.named):
                yield "I7: a private value that a commit names is not there, or is another one"

    def _answered_twice(
        self,
        facts: Facts,
        cut: str,
        answers: dict[str, set[int]],
        paid: dict[int, set[int]],
        entries: dict[int, set[Output]],
    ) -> Iterator[str]:
        if all(len(some) == 1 for some in answers.values()):
            return
        if cut != "all":
            yield "I1: a query was answered by two byte strings"
        visible = any(len(some) > 1 for some in entries.values())
        each_paid = all(len(some) == 1 for some in paid.values()) and {*paid} <= {*facts.charges}
        if not visible and not each_paid:
            yield "I8: more looks were seen than the ledger charges, and no two of its entries differ"

    def complete(self, state: State) -> bool:
        """Whether everything is answered, everything has left, and every row counts."""
        facts, case = self.histories.facts[self.journals.read(state.journal).head], self.case
        rows = [row for first, last in facts.ranges for row in range(first, last + 1)]
        return (
            sorted(rows) == list(range(case.rows))
            and facts.taken == len(case.queries)
            and {one[1] for one in state.seen if one[0] == "answer"} == set(case.queries)
            and all(("rows", *span) in state.seen for span in facts.ranges)
            and len(facts.named) >= case.seals
            and (not case.rejection or REJECTED in state.seen)
        )

    # ------------------------------------------------------------ the steps

    def steps(self, state: State, *, calm: bool = False) -> Steps:
        """What may happen next. In a calm run nothing fails, and one worker works."""
        found: Steps = []
        for who in (0,) if calm else (0, 1):
            Turn(self, state, who, found, calm=calm).take()
        self._source(state, found, calm=calm)
        if state.flight is not None:
            after = self.journals.landed(state.journal, state.flight)
            found.append((("what is in flight lands",), state._replace(journal=after, flight=None)))
        if state.budget.faults and not calm:
            self._fail(state, found)
        return found

    def _source(self, state: State, found: Steps, *, calm: bool) -> None:
        """The reader of the source asks Redis where to go on, which may be behind, or wrong."""
        n, budget = self.case.rows, state.budget
        if not budget.sends or not n:
            return
        firsts = range(n) if state.wrong else [self.histories.facts[state.view].next]
        if calm:
            facts = self.histories.facts[self.journals.read(state.journal).head]
            firsts = [facts.next] if facts.read == len(state.batches) else []
        left = budget._replace(sends=budget.sends - 1)
        for first in firsts:
            for last in range(first, n) if not calm else range(n - 1, n if first < n else 0):
                new = state._replace(batches=(*state.batches, (first, last)), budget=left)
                found.append((("the reader of the source sends rows {} to {}", first, last), new))

    def _fail(self, state: State, found: Steps) -> None:
        known, budget = self.histories, state.budget
        left = budget._replace(faults=budget.faults - 1)
        if self.case.view:
            for length in range(known.length[state.view]):
                new = state._replace(view=known.at(state.view, length), budget=left)
                found.append((("Redis goes back to commit {}", length), new))
            if not state.wrong and state.view:
                new = state._replace(wrong=True, budget=left)
                found.append((("Redis has wrong bytes",), new))
        if not self.case.restore or state.cut:
            return
        entries = self.journals.entries[state.journal]
        gone = sum(one is GONE for one in entries)
        for end in range(gone + (gone > 0), len(entries)):
            journal = self.journals.until(state.journal, end)
            topics, what = state.topics, "the journal and Redis are restored: it ends at {}"
            if self.case.restore == "all":
                topics, what = (
                    frozenset(one for one in topics if one[0] < end),
                    f"everything: {what}",
                )
            new = state._replace(
                journal=journal,
                view=self.journals.read(journal).head,
                topics=topics,
                workers=(OFF, OFF) if self.keeps(Break.STOPPED) else state.workers,
                flight=None,
                cut=self.case.restore,
                budget=left,
            )
            found.append(((what, end), new))


class Turn:
    """What one worker may do in a state."""

    def __init__(self, model: Model, state: State, who: int, found: Steps, *, calm: bool) -> None:
        self._model = model
        self._known = model.histories
        self._journals = model.journals
        self._case = model.case
        self._keeps = model.keeps
        self._state = state
        self._who = who
        self._worker = state.workers[who]
        self._found = found
        self._calm = calm

    def take(self) -> None:
        """Adds the steps to those that were found."""
        doing = self._worker.doing
        if doing == "halt":
            return
        if doing == "off":
            if self._state.budget.starts:
                self._start()
            return
        if doing == "again":
            self._again()
        elif doing == "late":
            worker = self._worker
            entry = Entry("epoch", worker.epoch, newest=worker.newest)
            self._enters("appends EPOCH, and has read before", entry, worker.early)
        elif doing == "reading":
            self._read()
        else:
            self._release()
            self._append()
            self._reject()
            self._follow()
            if self._case.eager or self._worker.acked == self._worker.mine:
                self._decide()
            self._round()
        if self._may_crash():
            self._put(("crashes",), OFF, budget=self._without("crashes"))

    # ------------------------------------------------------------ helpers

    def _put(self, step: Step, worker: Worker, **changes: Any) -> None:
        other = self._state.workers[1 - self._who]
        both = (worker, other) if self._who == 0 else (other, worker)
        name = worker.epoch or self._worker.epoch
        told = (f"worker {{}} {step[0]}", name, *step[1:])
        self._found.append((told, self._state._replace(workers=both, **changes)))

    def _without(self, what: str) -> Budget:
        budget = self._state.budget
        return budget._replace(**{what: getattr(budget, what) - 1})

    def _may_crash(self) -> bool:
        return self._state.budget.crashes > 0 and not self._calm

    def _lands(self, entry: Entry) -> tuple[int, int, bool]:
        """What an append comes to: the journal, the offset, and whether the worker takes it for counting."""
        state, worker = self._state, self._worker
        entries = self._journals.entries[state.journal]
        after, offset = self._journals.append(state.journal, entry), len(entries)
        if offset < worker.expected:
            return after, offset, False  # the journal was cut
        gap = entries[worker.expected :]
        reads_short = not self._keeps(Break.GAP_WHOLE) and state.budget.faults > 0
        if not self._keeps(Break.OFFSET) or reads_short:
            gap = ()
        followed = any(one.kind == "epoch" and one.epoch != worker.epoch for one in gap)
        unread = self._keeps(Break.GAP_THERE) and GONE in gap  # only a later owner cuts that off
        return after, offset, not followed and not unread

    def _lands_or_leaves(
        self, what: str, entry: Entry, then: Worker, *, blind: bool = False, **changes: Any
    ) -> None:
        """Appends an entry; goes on as ``then`` if it counts, or if the worker does not ask."""
        after, offset, counts = self._lands(entry)
        if counts or blind:
            new = then._replace(expected=offset + 1) if counts else then
            self._put((what + ", at {}", offset), new, journal=after, **changes)
        else:
            self._put((what + ", at {}: it leaves", offset), OFF, journal=after, **changes)

    # ------------------------------------------------------------ taking over

    def _start(self) -> None:
        """Takes the partition over, from a round that may have been the newest when the worker looked."""
        state = self._state
        newest = self._journals.newest(state.journal)
        looked = [] if self._calm else self._journals.once_newest(state.journal)
        for one in {newest, *looked}:
            self._starts_from(one)

    def _starts_from(self, newest: int) -> None:
        state = self._state
        name = "z" if self._calm else "abcdefg"[self._case.starts - state.budget.starts]
        entry = Entry("epoch", name, newest=newest)
        left = self._without("starts")
        worker = Worker("reading", name, newest=newest)
        if self._keeps(Break.EPOCH_FIRST):
            self._worker = worker
            self._enters("appends EPOCH", entry, 0, budget=left)
        else:
            new = worker._replace(doing="late", early=state.journal)
            self._put(("reads the journal before its EPOCH",), new, budget=left)
        if self._may_crash() and state.flight is None:
            left = left._replace(crashes=left.crashes - 1)
            new = worker._replace(doing="again")
            self._put(("appends EPOCH, and has no reply",), new, flight=entry, budget=left)

    def _again(self) -> None:
        name = self._worker.epoch + ("'" if self._keeps(Break.OWN_EPOCH) else "")
        newest = self._worker.newest
        self._worker = Worker("reading", name, newest=newest)
        self._enters("appends another EPOCH", Entry("epoch", name, newest=newest), 0)

    def _enters(self, what: str, entry: Entry, early: int, **changes: Any) -> None:
        after = self._journals.append(self._state.journal, entry)
        end = len(self._journals.entries[after])
        new = self._worker._replace(doing="reading", expected=end, early=early)
        self._put((what + ", at {}", end - 1), new, journal=after, **changes)

    def _read(self) -> None:
        worker, state = self._worker, self._state
        end = worker.expected
        if worker.early or not self._keeps(Break.EPOCH_FIRST):
            self._runs(worker.early, "reads nothing more", state.budget)
            return
        self._runs(self._journals.until(state.journal, end), "reads up to it", state.budget)
        if not self._keeps(Break.WHOLE) and state.budget.faults and not self._calm:
            for length in range(end):
                short = self._journals.until(state.journal, length)
                self._runs(short, f"reads up to {length} only", self._without("faults"))

    def _runs(self, journal: int, what: str, budget: Budget) -> None:
        worker, known = self._worker, self._known
        entries = self._journals.entries[journal]
        newest = min(worker.newest, self._journals.newest(journal))
        found = self._journals.read(journal, newest)
        if len(entries) == worker.expected:
            begin = self._journals.beginning(journal, newest)
            will_go = self._keeps(Break.MARKED) and found.deleted > begin
            followed = self._keeps(Break.EPOCHS) and found.epoch != worker.epoch
            if (followed or will_go or GONE in entries[begin:]) and not self._state.cut:
                self._put((what + ", and must begin again",), OFF, budget=budget)
                return
        if found.wrong or (self._keeps(Break.OUTPUTS) and self._lacks_output(entries)):
            new = worker._replace(doing="halt")
            self._put((what + ", and finds that the journal was cut",), new, budget=budget)
            return
        head, view = found.head, self._state.view
        if not self._keeps(Break.VIEW_DECIDES) or (
            not self._keeps(Break.VIEW_LONGER) and known.length[view] > known.length[head]
        ):
            head = view
        left = found.left if known.begins(found.left, head) and self._keeps(Break.AGAIN) else head
        rejected = (1 if self._keeps(Break.AGAIN) else 2) if found.rejected else 0
        new = Worker(
            "run", worker.epoch, head, head, left, worker.expected,
            newest=worker.newest, rejected=rejected, blind=found.blind,
        )  # fmt: skip
        step = (what + ": commit {}, of which {} have left", known.length[head], known.length[left])
        self._put(step, new, budget=budget)

    def _lacks_output(self, entries: tuple[Entry, ...]) -> bool:
        """Whether something was published whose commit the journal does not have."""
        for place, node in self._state.topics:
            if place >= self._worker.expected or place >= len(entries):
                return True
            there = entries[place]
            if there is not GONE and (there.kind, there.node) != ("commit", node):
                return True
        return False

    # ------------------------------------------------------------ what was decided

    def _release(self) -> None:
        """Lets the next output leave."""
        worker, state, known = self._worker, self._state, self._known
        limit = worker.acked if self._keeps(Break.OUTPUT_LAST) else worker.mine
        if known.length[worker.left] >= known.length[limit]:
            return
        node = known.next(worker.left, limit)
        new = worker._replace(left=node)
        output = known.output(node)
        if output is None:
            self._put(("has nothing to show for commit {}", known.length[node]), new)
            return
        if known.delta[node][0] == "repeat" and not self._keeps(Break.DIGEST) and state.wrong:
            output = _other(output)
        entries = self._journals.entries[state.journal]
        place = next(
            (at for at, one in enumerate(entries) if one.node == node and one.kind == "commit"), -1
        )
        topics = state.topics | {(place, node)} if place >= 0 else state.topics
        self._put(("SHOWS {}", output), new, seen=state.seen | {output}, topics=topics)

    def _append(self) -> None:
        """Appends the next commit."""
        worker, state, known = self._worker, self._state, self._known
        if known.length[worker.acked] >= known.length[worker.mine]:
            return
        node = known.next(worker.acked, worker.mine)
        left = worker.left if self._keeps(Break.MARK_LAST) else worker.mine
        left = left if known.begins(left, node) else node
        entry = Entry("commit", worker.epoch, node, left, newest=worker.newest)
        what = f"appends commit {known.length[node]}"
        self._lands_or_leaves(what, entry, worker._replace(acked=node))
        if self._may_crash():
            fewer = self._without("crashes")
            if state.flight is None:
                self._put(
                    ("crashes with commit {} in flight", known.length[node]),
                    OFF,
                    flight=entry,
                    budget=fewer,
                )
            after = self._journals.append(state.journal, entry)
            self._put((what + ", and has no reply",), worker, journal=after, budget=fewer)

    def _reject(self) -> None:
        """Rejects the record that names no data set."""
        worker, state = self._worker, self._state
        if not self._case.rejection or worker.rejected == 2:
            return
        if worker.rejected == 1 or not self._keeps(Break.REJECTION):
            new = worker._replace(rejected=2)
            self._put(("SHOWS the rejection",), new, seen=state.seen | {REJECTED})
            return
        entry = Entry("rejected", worker.epoch, newest=worker.newest)
        self._lands_or_leaves("marks the rejection", entry, worker._replace(rejected=1))
        if self._may_crash() and state.flight is None:
            fewer = self._without("crashes")
            self._put(("crashes with a mark in flight",), OFF, flight=entry, budget=fewer)

    def _follow(self) -> None:
        """Writes Redis, which follows what is acknowledged. One that is elsewhere is written anew."""
        worker, state, known = self._worker, self._state, self._known
        ahead = worker.acked if self._keeps(Break.VIEW_LAST) else worker.mine
        if not self._case.view or self._calm:
            return
        if known.begins(ahead, state.view):
            if state.wrong and ahead == state.view:
                self._put(("writes Redis anew",), worker, wrong=False)
            return
        new = known.next(state.view, ahead) if known.begins(state.view, ahead) else ahead
        self._put(("writes commit {} to Redis", known.length[new]), worker, view=new)

    # ------------------------------------------------------------ what is decided

    def _decide(self) -> None:
        """Decides the next commit."""
        worker, facts = self._worker, self._known.facts[self._worker.mine]
        if facts.intent:
            self._look(facts)
            return
        if facts.taken < len(self._case.queries):
            query = self._case.queries[facts.taken]
            if self._is_answered(query, facts):
                self._drafts(("repeat" if self._is_there(query) else "missed", query))
            else:
                nonce = worker.epoch if self._keeps(Break.NONCE) else ""
                self._drafts(("charge", query, nonce))
        if facts.read < len(self._state.batches):
            first, last = self._state.batches[facts.read]
            fits = (
                first == facts.next
                if self._keeps(Break.NEXT)
                else (first, last) not in facts.ranges
            )
            self._drafts(("rows" if fits else "refused", first, last))
        if len(facts.named) < self._case.seals:
            self._seal()
        if not self._keeps(Break.VALUE_FIRST) and facts.named:
            blocks = self._state.blocks | {facts.named[-1]}
            if blocks != self._state.blocks:
                self._put(("keeps the private value late",), worker, blocks=blocks)

    def _drafts(self, delta: Delta, **changes: Any) -> None:
        new = self._known.child(self._worker.mine, delta)
        own = new if delta[0] == "charge" else 0
        worker = self._worker._replace(mine=new, own=own)
        self._put(("decides commit {}: {}", self._known.length[new], delta), worker, **changes)

    def _is_answered(self, query: str, facts: Facts) -> bool:
        if not self._keeps(Break.DEDUPE):
            return False
        if not self._keeps(Break.VIEW_IDS):
            facts = self._known.facts[self._state.view]
        unknown = self._known.facts[self._worker.blind].answer(query)
        return facts.answer(query) is not None and unknown is None

    def _is_there(self, query: str) -> bool:
        """Whether the journal has an answer that the worker knows: where it was committed, or carried on."""
        worker, journal, known = self._worker, self._state.journal, self._known
        entries = self._journals.entries[journal]
        if self._state.cut or entries[self._journals.beginning(journal, worker.newest)] is not GONE:
            return True
        nodes = [one.node for one in entries if one.kind == "commit"]
        return any(
            known.delta[node][:2] == ("result", query) and known.begins(node, worker.mine)
            for node in nodes
        )

    def _look(self, facts: Facts) -> None:
        """Takes the announced look, or finds that it is lost."""
        state, intent = self._state, facts.intent
        is_own = self._worker.own == intent
        if (
            is_own
            and self._keeps(Break.WAIT)
            and not self._known.begins(intent, self._worker.acked)
        ):
            return
        if not is_own and self._keeps(Break.LOST_LOOK):
            self._drafts(("lost",))
            return
        seen = state.seen
        if facts.named and state.wrong and not self._keeps(Break.NAME):
            seen |= {MISREAD}
        self._drafts(
            ("result", self._case.queries[facts.taken], state.noise),
            seen=seen,
            noise=state.noise + 1,
            looked=state.looked | {(intent, state.noise)},
        )

    def _seal(self) -> None:
        """Keeps a private value, and names it in a commit."""
        worker, state = self._worker, self._state
        content = f"value of {worker.epoch}"
        name = content if self._keeps(Break.NAMES) else "phase 1"
        if worker.kept or not self._keeps(Break.VALUE_FIRST):
            self._worker = worker._replace(kept=False)
            self._drafts(("seal", name, content))
            self._worker = worker
        else:
            others = frozenset(one for one in state.blocks if one[0] != name)
            self._put(
                ("keeps a private value",),
                worker._replace(kept=True),
                blocks=others | {(name, content)},
            )

    # ------------------------------------------------------------ rounds

    def _round(self) -> None:
        """A round of checkpoints: its beginning, its end, an entry that names the end, and the cut."""
        worker, state, known = self._worker, self._state, self._known
        blind = not self._keeps(Break.CUT_ACKNOWLEDGED)
        if not worker.round:
            settled = worker.mine == worker.acked and not known.facts[worker.mine].intent
            left = worker.left
            if not self._keeps(Break.SETTLED):
                left = worker.acked
            if state.budget.rounds and worker.mine and settled and left == worker.acked:
                entry = Entry(
                    "begin",
                    worker.epoch,
                    worker.mine,
                    left,
                    newest=worker.newest,
                    rejected=worker.rejected > 0,
                )
                begun = ("end", len(self._journals.entries[state.journal]), worker.mine)
                then = worker._replace(round=begun)
                fewer = self._without("rounds")
                self._lands_or_leaves("begins a round", entry, then, budget=fewer, blind=blind)
            return
        what, at, *rest = worker.round
        if what == "end":
            offset = len(self._journals.entries[state.journal])
            newest = worker.newest if self._keeps(Break.OTHERS) else offset
            entry = Entry("end", worker.epoch, rest[0], ROOT, at, newest)
            below = at if self._keeps(Break.CUT_BEGIN) else offset
            following = "name" if self._keeps(Break.CUT_NAMED) else "cut"
            then = worker._replace(round=(following, below), newest=offset)
            self._lands_or_leaves("ends its round", entry, then, blind=blind)
        elif what == "name":
            entry = Entry("mark", worker.epoch, newest=worker.newest, first=at)
            then = worker._replace(round=("cut", at))
            what = f"names the end of its round, and that it cuts the journal below {at}"
            self._lands_or_leaves(what, entry, then, blind=blind)
        else:
            after = state.journal if state.cut else self._journals.without(state.journal, at)
            self._put(("cuts the journal below {}", at), worker._replace(round=()), journal=after)
            if self._may_crash() and state.flight is None and not state.cut:
                fewer, entry = self._without("crashes"), Entry("deletion", first=at)
                self._put(("crashes with a deletion in flight",), OFF, flight=entry, budget=fewer)
