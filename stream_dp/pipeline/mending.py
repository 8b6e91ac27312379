"""Goes on after the journal was cut: entries of it are gone that had been acknowledged.

A repair takes the partition over, and judges each data set of it. One that the journal builds, with all that
was seen, is whole. Otherwise it begins again with what Redis has, if no topic shows more. Otherwise it is
stopped, unless the operator has it written off, see ``writing_off``.

The order of steps makes that safe. First, entries that only take up room fill the partition up to beyond
every offset that anything names. So a former owner never finds its next entry where it expects it. A reader
who finds them knows that a repair was begun, and serves nothing of the partition. Then come an epoch and a
round of checkpoints. A reader who begins with that round is behind the repair.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from stream_dp.core.persons import PersonSecret
from stream_dp.errors import CorruptState, InvalidInput
from stream_dp.messages import Event
from stream_dp.pipeline import writing_off
from stream_dp.pipeline.answering import UNKNOWN_REQUEST
from stream_dp.pipeline.chain import Chain
from stream_dp.pipeline.dataset import PERSON
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.entries import Reader, Round, fill
from stream_dp.pipeline.journal import Journal, Owned, problem_of
from stream_dp.pipeline.offline import Offline, commit, followed, leave, write
from stream_dp.pipeline.releasing import following
from stream_dp.pipeline.retrying import patiently
from stream_dp.pipeline.unsent import unsent
from stream_dp.pipeline.witnesses import Said, Witnesses, digest
from stream_dp.state import ledger as ledgers
from stream_dp.state.codec import OutboxRecord, StoredAnswer, answer_from_bytes, answer_to_bytes
from stream_dp.state.ids import Ids
from stream_dp.state.kept import Named
from stream_dp.state.schema import Checkpoint, Commit, Pair, State, Table

__all__ = ["BEYOND", "FOR_LIFE", "Judged", "Plan", "Repair", "Verdict"]

_log = logging.getLogger(__name__)

BEYOND: Final = 1 << 16
"""Entries by which a partition is filled beyond the last offset that anything names: more than a worker has
under way at once."""

FOR_LIFE: Final = "it protects persons for life, so it cannot be written off"
"""Why nobody may go on without what is lost of such a data set."""

_FILLED_AT_ONCE: Final = 16_000
_FILLING: Final = "filling the journal"

Verdict = Literal["whole", "redis", "written off", "lost"]
"""What becomes of a data set: nothing; it begins again with what Redis has; its rows are written off, as was
asked for; or it stays stopped."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a data set.

    Attributes:
        dataset: Its name.
        verdict: What becomes of it.
        journaled: The number of its commits that the journal has without a gap.
        stored: The number of commits that the state in Redis has. 0 if Redis has none, or none that is right.
        seen: The largest number of a commit that a record on an output topic names.
        why: Why it is not whole; empty if it is.
        for_life: Whether it protects persons for life, so that it cannot be written off.
    """

    dataset: str
    verdict: Verdict
    journaled: int
    stored: int
    seen: int
    why: str = ""
    for_life: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair of a partition does.

    Attributes:
        partition: The partition.
        problem: Why it cannot be entered; empty if the journal itself says nothing against it.
        datasets: What was found of each data set.
        needed: Whether there is anything to do.
    """

    partition: int
    problem: str
    datasets: Sequence[Judged]
    needed: bool


@dataclass
class _Known:
    """All that is known of a data set.

    Attributes:
        said: What was seen of it.
        chain: What the journal has of it.
        state: What that adds up to. None if it does not.
        journaled: The number of its last commit on the journal.
        first: The offset of the first entry of the journal.
        fits: Whether the journal has every commit that a record names, as far as it reaches back.
        stored: What Redis has. None if that is nothing right.
    """

    said: Said
    chain: Chain | None
    state: State | None
    journaled: int
    first: int
    fits: bool
    stored: State | None = None


@dataclass
class _Scanned:
    """What a reading of the journal found.

    Attributes:
        trails: The trails behind commits, by data set and offset.
        numbers: The number of the last commit of each data set.
        restarts: Where each data set was begun again last.
    """

    trails: dict[tuple[str, int], bytes] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)


class Repair:
    """Repairs one partition of the journal. No worker may run.

    Args:
        tools: The topics and Redis.
        partition: The partition.
        writes_off: The data sets that are written off, whatever is found of them.
        progress: Called now and then with a role, and how many records were read of how many.
    """

    def __init__(
        self,
        tools: Offline,
        partition: int,
        *,
        writes_off: Collection[str] = (),
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._tools = tools
        self._partition = partition
        self._writes_off = frozenset(writes_off)
        self._progress = progress
        self._known: dict[str, _Known] = {}
        self._beyond = 0
        self._witnesses = self._reading(())

    def _reading(self, keeps: Collection[str]) -> Witnesses:
        """The output topics, not read yet. Of few data sets the answers have room in memory."""
        return Witnesses(
            *(self._tools.outputs, self._tools.log.partitions, self._partition),
            keeps=keeps,
            progress=self._progress,
        )

    # ------------------------------------------------------------ looking

    async def plan(self) -> Plan:
        """Says what is to be done. Changes nothing.

        Raises:
            InvalidInput: A data set that is to be written off cannot be.
            CorruptState: The topics are others than those with which the journal was written.
            StoreError: Redis does not answer, or refuses.
            ServerUnavailable: No broker answers.
        """
        return await self._planned(await self._tools.journal(repairs=True).look(self._partition))

    async def _planned(self, owned: Owned) -> Plan:
        await self._witnesses.read()
        scanned = await self._scan(owned)
        names = {
            name
            for name, said in self._witnesses.said.items()
            if said.commit > 0
            or said.entries  # else others have named it, and it is not a data set
        }
        names |= owned.chains.keys() | owned.marks.stopped.keys()
        if unknown := self._writes_off - names:
            raise InvalidInput(
                "--write-off",
                f"there is no data set {min(unknown)!r}",
                "see: stream-dp dataset list",
            )
        self._beyond = max(self._beyond, owned.expected)
        datasets = [await self._judged(name, owned, scanned) for name in sorted(names)]
        problem = problem_of(owned)
        lost = {one.dataset for one in datasets if one.verdict == "lost"}
        needed = bool(problem) or lost != owned.marks.stopped.keys()
        plan = Plan(self._partition, problem, datasets, needed)
        return replace(plan, needed=needed or bool(_begun_again(plan)))

    async def _scan(self, owned: Owned) -> _Scanned:
        """Reads the partition from its first entry on: checkpoints hide what is before them."""
        found, reader, first = _Scanned(), Reader(), owned.first
        journal = self._tools.journal(repairs=True)
        async for piece in journal.read(self._partition, first, owned.expected):
            for offset, entry in piece:
                one = reader.read(offset, entry)
                if one is not None and one.kind == "restart":
                    found.restarts[one.name] = one.offset
                elif one is not None and one.kind == "commit":
                    with contextlib.suppress(CorruptState):
                        made, found.trails[one.name, one.offset] = Commit.from_bytes(one.value)
                        found.numbers[one.name] = made.number
            self._progress("journal", piece[-1][0] + 1 - first, owned.expected - first)
        return found

    async def _judged(self, name: str, owned: Owned, scanned: _Scanned) -> Judged:
        said = self._witnesses.said.get(name) or Said()
        chain = owned.chains.get(name)
        state = None if chain is None else _built(chain)
        # What was published before an earlier repair was judged by it, also by one that broke off.
        start = max(owned.first, owned.marks.repaired, scanned.restarts.get(name, 0))
        fits = all(
            scanned.trails.get((name, at), b"").startswith(trail)
            for at, trail in said.places
            if at >= start
        )
        journaled = scanned.numbers.get(name, 0) if state is None else state.number
        known = self._known[name] = _Known(said, chain, state, journaled, owned.first, fits)
        self._beyond = max(self._beyond, *(at + 1 for at, _ in said.places), 0)
        lost, stored = await self._in_redis(name, known, owned)

        def judged_as(verdict: Verdict, why: str = "") -> Judged:
            definition = writing_off.definition_in(said.ledger)
            unit = None if definition is None else definition.privacy.unit
            for_life = unit is not None and unit.lifetime
            return Judged(name, verdict, journaled, stored, said.commit, why, for_life)

        broken = self._why_not_whole(known, owned.marks.stopped.get(name, ""))
        if name in self._writes_off:
            base, ledger = writing_off.known_of(name, _bases(known), said)
            writing_off.check(name, base, said, ledger)
            return judged_as("written off", broken)
        if not broken:
            return judged_as("whole")
        forked = _forked(said)
        if forked or lost:
            return judged_as("lost", forked or f"{broken}; {lost}")
        return judged_as("redis", broken)

    @staticmethod
    def _why_not_whole(known: _Known, stopped: str) -> str:
        said, state = known.said, known.state
        if forked := _forked(said):
            return forked
        if state is None:
            return (
                "the journal lacks commits of it"
                if known.chain
                else "the journal has nothing of it"
            )
        if said.commit > state.number:
            shows = f"topic {said.topic} shows its commit {said.commit:,}"
            return f"{shows}, and the journal has {state.number:,}"
        if not known.fits or not _is_behind(state, said):
            return "topics show commits that the journal does not have"
        assert known.chain is not None, "it has a state"
        if known.chain.ids.below(known.first):
            return "answers that are kept are not on the journal any more"
        return stopped

    async def _in_redis(self, name: str, known: _Known, owned: Owned) -> tuple[str, int]:
        """Finds the state in Redis that may be begun with again.

        Returns:
            Why there is none, empty if there is one; and the number of commits of what there is.
        """
        said = known.said
        state = await self._tools.view.state(name)
        if state is None:
            return "Redis has nothing of it", 0
        why = ""
        if state.number < max(said.commit, known.journaled):
            why = f"Redis has {state.number:,} commits of it, which is fewer"
        elif not _is_behind(state, said):
            why = "topics show another history than Redis"
        elif not writing_off.leads_to(state, said.ledger):
            why = "its ledger on the topic is not the one that Redis has counted"
        else:
            known.stored = state
        if known.stored is not None and (gone := await self._gone(name, known, owned)):
            why = f"{gone:,} answers or outcomes of batches that are kept are nowhere any more"
        return why, state.number

    async def _gone(self, name: str, known: _Known, owned: Owned) -> int:
        """The number of ids whose contents are on no topic, nor in Redis."""
        if known.chain is None or not known.chain.ids.below(known.first):
            return 0
        contents, ids = await self._carried(name, known), known.chain.ids.copied()
        for pair, value in contents.items():
            ids.put(pair, value, owned.expected)
        return ids.below(known.first)

    async def _carried(self, name: str, known: _Known) -> dict[Pair, bytes]:
        """The contents under ids that a data set needs to begin again with what Redis has."""
        stored = await self._tools.view.contents(name)
        return _contents(known, stored, _ids(known), trusted=True)

    # ------------------------------------------------------------ repairing

    async def apply(self) -> Plan:
        """Repairs the partition; returns what was found. To repeat it is harmless.

        Raises:
            InvalidInput: A data set that is to be written off cannot be.
            CorruptState: See ``plan``.
            Fenced: A worker has taken the partition over meanwhile.
            StoreError: Redis does not answer, or refuses.
        """
        plan = await self.plan()
        if not plan.needed:
            return plan
        await self._fill(self._beyond + BEYOND)
        journal = self._tools.journal(repairs=True)
        owned = await journal.entered(self._partition)
        await self._send_rest(owned)
        owned.marks.take({"released": owned.expected, "first": owned.first})
        plan = await self._planned(owned)
        while more := _begun_again(plan) - self._witnesses.keeps:
            self._witnesses = self._reading(more | self._witnesses.keeps)
            plan = await self._planned(owned)
        await self._round(journal, owned, plan.datasets)
        return plan

    async def _fill(self, wanted: int) -> None:
        """Fills the partition up to an offset beyond every one that anything names."""
        log = self._tools.log
        _, end = await patiently(partial(log.bounds, self._partition), _FILLING)
        while end < wanted:
            some = fill(min(_FILLED_AT_ONCE, wanted - end))
            first = await patiently(partial(log.append, self._partition, some), _FILLING)
            _, there = await patiently(partial(log.bounds, self._partition), _FILLING)
            end = there if first is None else first + len(some)

    async def _send_rest(self, owned: Owned) -> None:
        """Sends what is on the journal and has not left: nobody reads it from there any more."""
        outgoing = [following(*one) for one in unsent(owned)]
        for sent in [await self._tools.send(one) for one in outgoing]:
            await sent

    async def _round(self, journal: Journal, owned: Owned, datasets: Sequence[Judged]) -> None:
        """Writes a round of checkpoints: who reads from there on, reads nothing of before."""
        owned.marks.stopped = {
            one.dataset: _stopped(one) for one in datasets if one.verdict == "lost"
        }
        begin = await journal.begin(owned)
        if begin is None:
            raise followed(owned)
        checkpoints: dict[str, int] = {}
        for one in datasets:
            known = self._known[one.dataset]
            if one.verdict == "redis":
                await self._begin_again(journal, owned, one.dataset, known)
            elif one.verdict == "written off":
                await self._write_off(journal, owned, one, known)
            elif known.state is not None and known.chain is not None:
                # Of one that is stopped, what there is stays for a later write-off.
                ids = known.chain.ids.to_bytes()
                value = Checkpoint(state=known.state, ids=ids).to_bytes()
                at = await write(journal, owned, "checkpoint", one.dataset, value)
                checkpoints[one.dataset] = at
        if not await journal.end(owned, Round(begin, checkpoints), repaired=owned.at):
            raise followed(owned)
        # Now it is served again. Clients are told, and a second repair sees what this one has decided.
        await self._send_rest(await journal.look(self._partition))
        await leave(journal, owned, released=owned.expected)

    async def _begin_again(self, journal: Journal, owned: Owned, name: str, known: _Known) -> None:
        """Has the journal begin a data set again with what Redis has of it."""
        assert known.stored is not None, "so it was judged"
        state, contents = known.stored, await self._carried(name, known)
        event = Event(
            dataset=name,
            event="repaired",
            note="the journal begins again with what Redis has of it",
        )
        taken = _accepted(known.said) if _rotates(state) else []
        out = [_published(name, event)]
        await self._restart(journal, owned, state, _ids(known), contents, taken, out)

    async def _write_off(self, journal: Journal, owned: Owned, one: Judged, known: _Known) -> None:
        """Has the journal begin a data set again with what is known of it, and all rows written off."""
        name, said = one.dataset, known.said
        base, ledger = writing_off.known_of(name, _bases(known), said)
        definition = writing_off.check(name, base, said, ledger)
        inputs = await self._inputs(name, base)
        if inputs.unread:
            _log.warning(
                "%d records of the input topics of %s are gone that may have counted. A batch among them "
                "that no event names would count again if it is sent again, and so would what a source has "
                "sent with them, in other pieces",
                *(inputs.unread, name),
            )
        ids = Ids() if (ids := _ids(known)).below(owned.first) else ids
        of_redis = known.stored is not None and base is known.stored
        stored = await self._tools.view.contents(name)
        contents = _contents(known, stored, ids, trusted=of_redis)

        def is_known(batch: str) -> bool:
            return (pair := _outcome(batch)) in contents or ids.find(*pair) is not None

        made = writing_off.written_off(
            name,
            base,
            said,
            ledger,
            inputs=inputs,
            is_known=is_known,
            number=1 + max(one.stored, one.journaled, one.seen),
            person=await self._person(name, base) if definition.privacy.unit is not None else None,
        )
        contents |= {_outcome(batch): outcome for batch, outcome in made.outcomes.items()}
        await self._restart(journal, owned, made.state, ids, contents, made.taken, made.out)
        _log.warning("the rows of data set %s up to now are written off", name)

    async def _restart(
        self,
        journal: Journal,
        owned: Owned,
        state: State,
        ids: Ids,
        contents: Mapping[Pair, bytes],
        taken: Sequence[str],
        out: Sequence[OutboxRecord],
    ) -> None:
        """Has the journal begin a data set again, and publishes something of that."""
        name = state.dataset
        for pair, value in contents.items():
            ids.put(pair, value, owned.expected)  # where the checkpoint is to be
        for batch in taken:
            ids.put((Table.TAKEN, _outcome(batch)[1]), b"", owned.expected)
        made = Checkpoint(state=state, carried=contents, ids=ids.to_bytes(), restarts=True)
        value = made.to_bytes()
        at = await write(journal, owned, "restart", name, value)
        chain = owned.chains[name] = Chain(name)
        chain.begins(at, value, restarts=True)
        await commit(journal, owned, name, {}, out)

    async def _inputs(self, name: str, base: State | None) -> writing_off.Inputs:
        """What is on the input topics of a data set up to now: it is done with."""
        cursor = {} if base is None else base.table(Table.CURSOR)
        inputs = writing_off.Inputs({key.decode(): int(at) for key, at in cursor.items()})
        for role, log in self._tools.inputs.items():
            topic, partition = self._tools.names[role], partition_of(name.encode(), log.partitions)
            place = f"{topic}:{partition}"
            bounds = partial(log.bounds, partition, reaches=inputs.cursor.get(place, 0))
            first, end = await patiently(bounds, f"reading {role}")
            inputs.passed(place, first, end)
            if role != "batches":
                continue
            async for piece in log.read(partition, first, end):
                for offset, entry in piece:
                    if entry.key == name.encode():
                        inputs.batch(topic, partition, offset, entry, log.partitions)
                self._progress(role, piece[-1][0] + 1 - first, end - first)
        return inputs

    async def _person(self, name: str, base: State | None) -> Named:
        """The secret of the digests of persons. A new one does where no row of before counts any more."""
        keeper = self._tools.keeper()
        stored = None if base is None else base.pairs.get((Table.KEPT, PERSON.encode()))
        if stored is not None and await keeper.find(name, named := Named.from_bytes(stored)):
            return named
        secret = PersonSecret.new(self._tools.noise(), name, self._tools.key_file)
        (named,) = await keeper.keep(name, secret.to_bytes())
        return named


def _begun_again(plan: Plan) -> frozenset[str]:
    """The data sets that a repair has begin again."""
    again = ("redis", "written off")
    return frozenset(one.dataset for one in plan.datasets if one.verdict in again)


def _built(chain: Chain) -> State | None:
    """What the journal has of a data set, also of one that a repair has stopped."""
    problem, chain.problem = chain.problem, ""
    try:
        return chain.build()
    except CorruptState:
        return None
    finally:
        chain.problem = problem or chain.problem


def _ids(known: _Known) -> Ids:
    """Where the journal has contents, if it has a part of what was seen."""
    is_part = known.fits and known.state is not None and known.chain is not None
    return known.chain.ids if is_part and known.chain is not None else Ids()


def _bases(known: _Known) -> list[State]:
    states = [known.state, known.stored]
    return [state for state in states if state is not None]


def _is_behind(state: State, said: Said) -> bool:
    """Whether a state has the last commit that was seen, as far as its own last one tells."""
    return state.number != said.commit or said.trails <= {state.trail[:8]}


def _forked(said: Said) -> str:
    if said.forked is not None:
        return (
            f"topic ledger has two entries {said.forked:,}: the journal and Redis had gone back together, "
            "and budget was spent again"
        )
    definition = writing_off.definition_in(said.ledger)
    if said.answered_twice and definition is not None and definition.kept_answers_days is None:
        kinds = [ledgers.read(entry)["kind"] for entry in said.ledger]
        if "written_off" not in kinds:
            return f"topic answers has two answers under one id: {said.answered_twice}"
    return ""


def _rotates(state: State) -> bool:
    """Whether outcomes of batches are dropped at some time, and only their ids stay."""
    return (Table.FACT, b"answers rotated") in state.pairs


def _accepted(said: Said) -> list[str]:
    return [batch for batch, outcome in said.outcomes.items() if b'"batch_accepted"' in outcome]


def _outcome(batch: str) -> Pair:
    return Table.OUTCOME, batch.encode("utf-8", "surrogatepass")


def _contents(
    known: _Known, stored: Mapping[Pair, bytes], ids: Ids, *, trusted: bool
) -> dict[Pair, bytes]:
    """The contents under ids that the journal is to carry.

    Args:
        known: What is known of the data set.
        stored: What Redis has.
        ids: Where the journal has what it has.
        trusted: Whether what Redis has and nobody has seen is taken as well.
    """
    said, found = known.said, dict[Pair, bytes]()
    if trusted:
        found = {pair: value for pair, value in stored.items() if _decodes(pair, value)}
    for name, answer in said.answers.items():
        pair = Table.ANSWER, name.encode("utf-8", "surrogatepass")
        mine = stored.get(pair)
        if mine is not None and _decodes(pair, mine) and _is_one(answer_from_bytes(mine), answer):
            found[pair] = mine
        elif mine is not None or ids.find(*pair) is None:
            found[pair] = answer_to_bytes(UNKNOWN_REQUEST, answer)
    for batch, outcome in said.outcomes.items():
        found[_outcome(batch)] = outcome
    there = {pair: ids.find(*pair) for pair in found}
    return {
        pair: value
        for pair, value in found.items()
        if (at := there[pair]) is None or at.offset < known.first or not at.fits(value)
    }


def _is_one(stored: StoredAnswer, seen: bytes) -> bool:
    """Whether a stored answer is the one that was seen, of which there may be the digest alone."""
    return seen in (stored.answer, digest(stored.answer))


def _decodes(pair: Pair, value: bytes) -> bool:
    if pair[0] is not Table.ANSWER:
        return pair[0] is Table.OUTCOME
    try:
        answer_from_bytes(value)
    except CorruptState:
        return False
    return True


def _published(name: str, event: Event) -> OutboxRecord:
    return OutboxRecord("events", name.encode(), (), event.to_bytes())


def _stopped(lost: Judged) -> str:
    """Why a data set is stopped, and what its operator can do."""
    name = lost.dataset
    way = f". {FOR_LIFE[0].upper()}{FOR_LIFE[1:]}"
    if not lost.for_life:
        way = f", or give its rows up: `stream-dp journal mend --write-off {name}`"
    return (
        f"the journal was cut: {lost.why}. Restore a newer copy of Redis and run "
        f"`stream-dp journal mend --dataset {name}`{way}"
    )
