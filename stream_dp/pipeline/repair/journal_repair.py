"""Goes on after the journal was cut: entries of it are gone that had been acknowledged.

A repair takes the partition over, and judges each data set of it. One that the journal builds, with all that
was seen, is whole. Otherwise it begins again with what Redis has, if no topic shows more. Otherwise it is
stopped, unless the operator has it written off, see ``write_off``.

The order of steps makes that safe. First, entries that only take up room fill the partition up to beyond
every offset that anything names. So a former owner never finds its next entry where it expects it. A reader
who finds them knows that a repair was begun, and serves nothing of the partition. Then come an epoch and a
round of checkpoints. A reader who begins with that round is behind the repair.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from stream_dp.core.rows.person_slots import PersonSecret
from stream_dp.errors import CorruptState
from stream_dp.messages import Definition, Event
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.entries import FILL, EntryReader, Round
from stream_dp.pipeline.journal.owned_partition import Owned, problem_of
from stream_dp.pipeline.journal.releaser import following
from stream_dp.pipeline.journal.unsent import unsent
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.queries.query_answerer import UNKNOWN_REQUEST
from stream_dp.pipeline.repair import offline, write_off
from stream_dp.pipeline.repair.offline import Offline, followed
from stream_dp.pipeline.repair.witnesses import Said, Witnesses, digest
from stream_dp.pipeline.repair.write_off import Beginning, Inputs, outcome_pair
from stream_dp.state import ledger as ledgers
from stream_dp.state.codec import OutboxRecord, answer_from_bytes, answer_to_bytes
from stream_dp.state.ids import Ids
from stream_dp.state.private_names import Named, salted
from stream_dp.state.schema import ROTATED, Checkpoint, Commit, Pair, State, StateTable

_log = logging.getLogger(__name__)

BEYOND: Final = 1 << 16
"""Entries by which a partition is filled beyond the last offset that anything names: more than a worker has
under way at once."""

_Commits = dict[str, dict[int, tuple[int, bytes]]]
"""Data set -> the offset of each of its commits -> its number, and the trail behind it."""


@dataclass
class Judged:
    """What was found of a data set, and what becomes of it.

    Attributes:
        dataset: Its name.
        said: What was seen of it.
        chain: What the journal has of it.
        state: What that adds up to. One without a commit if that is nothing, or not whole.
        source: The state in Redis to begin again with. One without a commit if there is none.
        journaled: The number of its last commit on the journal.
        is_part: Whether what the journal has is the beginning of what was seen. Then its index is right.
        stored: The number of commits that the state in Redis has. 0 if Redis has none, or none that is right.
        verdict: What becomes of it: nothing; it begins again with what Redis has; its rows are written off,
            as was asked for; or it stays stopped.
        why: Why it is not whole; empty if it is.
    """

    dataset: str
    said: Said
    chain: JournalChain
    state: State
    source: State
    journaled: int
    is_part: bool
    stored: int = 0
    verdict: Literal["whole", "redis", "written off", "lost"] = "whole"
    why: str = ""

    @property
    def ways(self) -> str:
        """What its operator can do if it stays stopped."""
        definition = write_off.definition_in(self.said.ledger)
        unit = None if definition is None else definition.privacy.unit
        again = "Restore a newer copy of Redis or the topic and run `stream-dp journal repair`"
        if unit is not None and unit.lifetime:
            return f"{again}. It protects persons for life, so it cannot be written off"
        return (
            f"{again}, or give its rows up: `stream-dp journal repair --write-off {self.dataset}`"
        )

    @property
    def bases(self) -> list[State]:
        """The states of it that there are."""
        return [state for state in (self.state, self.source) if state.number]

    @property
    def ids(self) -> Ids:
        """Where the journal has contents, if it has a part of what was seen."""
        return self.chain.ids if self.is_part and self.state.number else Ids()


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair of a partition does.

    Attributes:
        problem: Why it cannot be entered; empty if the journal itself says nothing against it.
        datasets: What was found of each data set.
        needed: Whether there is anything to do.
    """

    problem: str
    datasets: Sequence[Judged]
    needed: bool


class Repair:
    """Repairs one partition of the journal. No worker may run.

    Args:
        tools: The topics and Redis.
        partition: The partition.
        writes_off: The data sets that are written off, whatever is found of them.
    """

    def __init__(self, tools: Offline, partition: int, *, writes_off: Collection[str] = ()) -> None:
        self._tools = tools
        self._partition = partition
        self._writes_off = frozenset(writes_off)
        self._journal = tools.journal(repairs=True)
        self._beyond = 0
        self._witnesses = Witnesses(tools.outputs, tools.log.partitions, partition)

    # ------------------------------------------------------------ looking

    async def plan(self) -> RepairPlan:
        """Says what is to be done. Changes nothing.

        Raises:
            InvalidInput: A data set that is to be written off cannot be.
            CorruptState: The topics are others than those with which the journal was written.
            StoreError: Redis does not answer, or refuses.
            ServerUnavailable: No broker answers.
        """
        return await self._planned(await self._journal.look(self._partition))

    async def _planned(self, owned: Owned) -> RepairPlan:
        await self._witnesses.read()
        commits, restarts = await self._scan(owned)
        names = {
            name
            for name, said in self._witnesses.said.items()
            if said.places or said.entries  # else others have named it, and it is not a data set
        }
        names |= owned.chains.keys() | owned.marks.stopped.keys()
        if unknown := self._writes_off - names:
            raise offline.no_dataset("--write-off", min(unknown))
        self._beyond = max(self._beyond, owned.expected)
        datasets = []
        for name in sorted(names):
            # What was published before an earlier repair was judged by it, also by one that broke off.
            start = max(owned.first, owned.marks.repaired, restarts.get(name, 0))
            datasets.append(await self._judged(name, owned, commits[name], start))
        problem = problem_of(owned)
        lost = {one.dataset for one in datasets if one.verdict == "lost"}
        again = any(one.verdict in ("redis", "written off") for one in datasets)
        needed = bool(problem) or again or lost != owned.marks.stopped.keys()
        return RepairPlan(problem, datasets, needed)

    async def _scan(self, owned: Owned) -> tuple[_Commits, Mapping[str, int]]:
        """Reads the partition from its first entry on: checkpoints hide what is before them.

        Returns:
            The commits, and where each data set was begun again last.
        """
        commits: _Commits = defaultdict(dict)
        restarts: dict[str, int] = {}
        reader = EntryReader()
        async for piece in self._journal.read(self._partition, owned.first, owned.expected):
            for offset, entry in piece:
                one = reader.read(offset, entry)
                if one is not None and one.kind == "restart":
                    restarts[one.name] = one.offset
                elif one is not None and one.kind == "commit":
                    with contextlib.suppress(CorruptState):
                        made, trail = Commit.from_bytes(one.value)
                        commits[one.name][one.offset] = made.number, trail
        return commits, restarts

    async def _judged(
        self, name: str, owned: Owned, commits: Mapping[int, tuple[int, bytes]], start: int
    ) -> Judged:
        """Judges a data set; what was seen counts if its commit is at an offset from ``start`` on."""
        said = self._witnesses.said.get(name) or Said()
        chain = owned.chains.get(name) or JournalChain(name)
        state, last = State(name), max(commits, default=0)
        with contextlib.suppress(CorruptState):
            state = chain.build()
        journaled = state.number or max((n for n, _ in commits.values()), default=0)
        unlike = [
            place
            for place in said.places
            if place.offset >= start
            and not commits.get(place.offset, (0, b""))[1].startswith(place.trail)
        ]
        is_part = all(place.number > journaled and place.offset > last for place in unlike)
        self._beyond = max(self._beyond, *(place.offset + 1 for place in said.places), 0)
        one = Judged(name, said, chain, state, State(name), journaled, is_part)
        lost, forked = await self._look_in_redis(one, owned), _forked(said)
        one.why = forked or _why_not_whole(one, owned)
        if name in self._writes_off:
            write_off.known_of(name, one.bases, said)  # which checks that it may be
            one.verdict = "written off"
        elif forked or (one.why and lost):
            one.verdict = "lost"
            one.why = forked or f"{one.why}; {lost}"
        elif one.why:
            one.verdict = "redis"
        return one

    async def _look_in_redis(self, one: Judged, owned: Owned) -> str:
        """Finds the state in Redis to begin again with; returns why there is none. Empty if there is one."""
        said, state = one.said, await self._tools.view.state(one.dataset)
        if state is None:
            return "Redis has nothing of it"
        one.stored = state.number
        if state.number < max(said.commit, one.journaled):
            return f"Redis has {state.number:,} commits of it, which is fewer"
        if not _is_behind(state, said):
            return "topics show another history than Redis"
        if not write_off.leads_to(state, said.ledger):
            return "its ledger on the topic is not the one that Redis has counted"
        one.source = state
        if one.chain.ids.below(owned.first):
            ids = one.chain.ids.copied()
            ids.put(await self._carried(one, owned, one.ids, trusted=True), owned.expected)
            if gone := ids.below(owned.first):
                return f"{gone:,} answers or outcomes of batches that are kept are nowhere any more"
        return ""

    async def _carried(
        self, one: Judged, owned: Owned, ids: Ids, *, trusted: bool
    ) -> dict[Pair, bytes]:
        """The contents under ids that the journal is to carry if it begins again.

        Args:
            one: What was found of the data set.
            owned: The partition.
            ids: Where the journal has what it has.
            trusted: Whether what Redis has and nobody has seen is taken as well.
        """
        stored = await self._tools.view.contents(one.dataset)
        answers: dict[Pair, bytes] = {}
        for pair, value in stored.items():
            if pair[0] is StateTable.ANSWER:
                with contextlib.suppress(CorruptState):
                    answers[pair] = answer_from_bytes(value).answer
        found = {
            pair: value
            for pair, value in stored.items()
            if trusted and (pair in answers or pair[0] is StateTable.OUTCOME)
        }
        for name, seen in one.said.answers.items():
            pair = StateTable.ANSWER, name.encode("utf-8", "surrogatepass")
            # The one of a repair is stored as its digest alone.
            if pair in answers and seen in (answers[pair], digest(answers[pair])):
                found[pair] = stored[pair]
            elif pair in stored or not ids.find([pair]):
                found[pair] = answer_to_bytes(UNKNOWN_REQUEST, seen)
        found |= {outcome_pair(batch): outcome for batch, outcome in one.said.outcomes.items()}
        places = ids.find(found)
        return {
            pair: value
            for pair, value in found.items()
            if (at := places.get(pair)) is None or at.offset < owned.first or not at.fits(value)
        }

    # ------------------------------------------------------------ repairing

    async def apply(self) -> RepairPlan:
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
        # Beyond every offset that anything names.
        await offline.filled(self._tools.log, self._partition, FILL, self._beyond + BEYOND)
        owned = await self._journal.entered(self._partition)
        await self._send_rest(owned)
        owned.marks.take({"released": owned.expected, "first": owned.first})
        plan = await self._planned(owned)
        await self._round(owned, plan.datasets)
        return plan

    async def _send_rest(self, owned: Owned) -> None:
        """Sends what is on the journal and has not left: nobody reads it from there any more."""
        outgoing = [following(*one) for one in unsent(owned)]
        for sent in [await self._tools.send(one) for one in outgoing]:
            await sent

    async def _round(self, owned: Owned, datasets: Sequence[Judged]) -> None:
        """Writes a round of checkpoints: who reads from there on, reads nothing of before."""
        owned.marks.stopped = {
            one.dataset: f"the journal was cut: {one.why}. {one.ways}"
            for one in datasets
            if one.verdict == "lost"
        }
        begin = await self._journal.begin(owned)
        if begin is None:
            raise followed(owned)
        checkpoints: dict[str, int] = {}
        for one in datasets:
            if one.verdict == "redis":
                await self._begin_again(owned, one)
            elif one.verdict == "written off":
                await self._write_off(owned, one)
            elif one.state.number:
                # Of one that is stopped, what there is stays for a later write-off.
                value = Checkpoint(state=one.state, ids=one.ids.to_bytes()).to_bytes()
                at = await offline.write(self._journal, owned, "checkpoint", one.dataset, value)
                checkpoints[one.dataset] = at
        if not await self._journal.end(owned, Round(begin, checkpoints), repaired=owned.at):
            raise followed(owned)
        # Now it is served again. Clients are told, and a second repair sees what this one has decided.
        await self._send_rest(await self._journal.look(self._partition))
        await offline.leave(self._journal, owned, released=owned.expected)

    async def _begin_again(self, owned: Owned, one: Judged) -> None:
        """Has the journal begin a data set again with what Redis has of it."""
        event = Event(
            dataset=one.dataset,
            event="repaired",
            note="the journal begins again with what Redis has of it",
        )
        outcomes = one.said.outcomes.items() if ROTATED in one.source.pairs else ()
        taken = [batch for batch, outcome in outcomes if b'"batch_accepted"' in outcome]
        out = [OutboxRecord("events", one.dataset.encode(), (), event.to_bytes())]
        contents = await self._carried(one, owned, one.ids, trusted=True)
        await self._restart(owned, Beginning(one.source, out, contents, taken), one.ids)

    async def _write_off(self, owned: Owned, one: Judged) -> None:
        """Has the journal begin a data set again with what is known of it, and all rows written off."""
        name = one.dataset
        known = write_off.known_of(name, one.bases, one.said)
        inputs = await self._inputs(known.base)
        if inputs.unread:
            _log.warning(
                "%d records of the input topics of %s are gone that may have counted. A batch among them "
                "that no event names would count again if it is sent again, and so would what a source has "
                "sent with them, in other pieces",
                *(inputs.unread, name),
            )
        ids = one.ids if not one.ids.below(owned.first) else Ids()
        contents = await self._carried(one, owned, ids, trusted=known.base is one.source)
        made = write_off.written_off(
            known,
            one.said,
            inputs=inputs,
            refused=[
                batch
                for batch in dict.fromkeys(inputs.batches)
                if (pair := outcome_pair(batch)) not in contents and not ids.find([pair])
            ],
            number=1 + max(one.stored, one.journaled, one.said.commit),
            person=await self._person(known.definition),
        )
        made = replace(made, contents=contents | dict(made.contents))
        await self._restart(owned, made, ids)
        _log.warning("the rows of data set %s up to now are written off", name)

    async def _restart(self, owned: Owned, made: Beginning, ids: Ids) -> None:
        """Has the journal begin a data set again, and publishes something of that."""
        taken = {(StateTable.TAKEN, outcome_pair(batch)[1]): b"" for batch in made.taken}
        ids.put({**made.contents, **taken}, owned.expected)  # where the checkpoint is to be
        checkpoint = Checkpoint(state=made.state, carried=made.contents, ids=ids.to_bytes())
        await offline.restart(self._journal, owned, checkpoint)
        await offline.commit(self._journal, owned, made.state.dataset, {}, made.out)

    async def _inputs(self, base: State) -> Inputs:
        """What is on the input topics of a data set up to now: it is done with."""
        name, cursor = base.dataset, base.table(StateTable.CURSOR)
        inputs = Inputs({key.decode(): int(at) for key, at in cursor.items()})
        for role, log in self._tools.inputs.items():
            topic, partition = self._tools.names[role], partition_of(name.encode(), log.partitions)
            place = f"{topic}:{partition}"
            bounds = partial(log.bounds, partition, reaches=inputs.cursor.get(place, 0))
            first, end = await patiently(bounds, f"reading {role}")
            inputs.passed(place, first, end)
            if role != "batches":
                continue
            async for record in self._tools.rows.records(place, range(first, end)):
                if record.key == name.encode():
                    inputs.batch(record, log.partitions)
        return inputs

    async def _person(self, definition: Definition) -> Named | None:
        """A new secret of the digests of persons. None where rows are protected."""
        if definition.privacy.unit is None:
            return None
        name = definition.dataset
        secret = PersonSecret.new(self._tools.noise(), name, self._tools.key_file)
        (named,) = await self._tools.keeper.keep(name, [[salted(secret.to_bytes())]])
        return named


def _why_not_whole(one: Judged, owned: Owned) -> str:
    said, state = one.said, one.state
    if not state.number:
        return f"the journal {'lacks commits' if one.journaled else 'has nothing'} of it"
    if said.commit > state.number:
        shows = f"topic {said.topic} shows its commit {said.commit:,}"
        return f"{shows}, and the journal has {state.number:,}"
    if not one.is_part or not _is_behind(state, said):
        return "topics show commits that the journal does not have"
    if one.chain.ids.below(owned.first):
        return "answers that are kept are not on the journal any more"
    return owned.marks.stopped.get(one.dataset, "")


def _is_behind(state: State, said: Said) -> bool:
    """Whether a state is one that was seen, as far as its own last commit tells."""
    return all(
        state.trail.startswith(place.trail) for place in said.places if place.number == state.number
    )


def _forked(said: Said) -> str:
    if said.forked is not None:
        return (
            f"topic ledger has two entries {said.forked:,}: the journal and Redis had gone back together, "
            "and budget was spent again"
        )
    definition = write_off.definition_in(said.ledger)
    if said.answered_twice and definition is not None and definition.kept_answers_days is None:
        kinds = [ledgers.read(entry)["kind"] for entry in said.ledger]
        if "written_off" not in kinds:
            return f"topic answers has two answers under one id: {said.answered_twice}"
    return ""
