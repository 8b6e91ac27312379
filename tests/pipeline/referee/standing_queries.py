"""P9: a standing query is answered for each phase, before all else that the phase is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from stream_dp.state.codec import answer_from_bytes
from tests.pipeline.referee.evidence import journaled
from tests.pipeline.trail import Committed, Sent
from tests.pipeline.world import World


def standing_queries_hold(world: World) -> Iterator[str]:
    """P9: a query that stands when a phase opens is answered for it, before all else that the phase is asked.

    One that begins in an open phase is answered for that phase too. Nothing else has an answer under the id
    of such an answer. The topic lists those that stand.
    """
    listed: dict[str, bytes] = {}
    for sent in world.trail:
        if isinstance(sent, Sent) and sent.outgoing.role == "standing":
            listed[sent.outgoing.key] = sent.outgoing.value
    standing_now: set[str] = set()
    for name in world.store._datasets:
        standing: dict[str, tuple[str, str, int]] = {}
        owed: set[str] = set()
        of_opening: set[str] = set()
        ever = {one for record in journaled(world).get(name, []) for one in record.answers}
        phase = 0
        for event in world.trail:
            if not isinstance(event, Committed) or event.transition.dataset != name:
                continue
            transition = event.transition
            opened = transition.seal is not None
            # One commit may answer what is owed, and then end the query, open a phase or retire the data set.
            may = owed | _ended_in(transition.meta, phase, phase + opened)
            if transition.erase:
                standing.clear()
                owed.clear()
            for slot, text in transition.meta.items():
                if not re.fullmatch("standing [0-9]+", slot):
                    continue
                before = standing.pop(slot, None)
                if text:
                    one = json.loads(text)
                    new = one["analyst"], one["query"]["query_id"], one["serial"]
                    standing[slot] = new
                    first_of = phase + (opened and one["since_phase"] > phase)
                    if before != new and first_of:
                        owed.add(f"{new[0]} {new[1]}@{first_of}")
                elif before is not None:
                    owed.discard(f"{before[0]} {before[1]}@{phase}")
            may |= owed
            if opened:
                if owed - transition.answers.keys() - ever:
                    yield f"P9: {name} opened phase {phase + 1} and still owed {sorted(owed)}"
                phase += 1
                owed = {f"{analyst} {one}@{phase}" for analyst, one, _ in standing.values()}
                of_opening = set(owed)
                may |= owed
            for answered, stored in transition.answers.items():
                said = json.loads(answer_from_bytes(stored)[1])
                named = re.fullmatch("[^ ]+ .+@([0-9]{1,10})", answered)
                if named is not None and answered not in may:
                    yield f"P9: {name} answered {answered}, which no standing query owes"
                first = sorted(of_opening & owed)
                if said.get("phase") == phase and answered not in owed and first:
                    yield f"P9: {name} answered {answered} before {first}"
                owed.discard(answered)
        if owed:
            yield f"P9: {name} still owes {sorted(owed)}"
        standing_now |= {f"{name} {analyst} {one}" for analyst, one, _ in standing.values()}
    if {key for key, value in listed.items() if value} != standing_now:
        yield f"P9: the topic lists {sorted(listed)}, and {sorted(standing_now)} stand"


def _ended_in(meta: Mapping[str, str], *phases: int) -> set[str]:
    """The answers of those that have ended, as a commit says. One that began in it too has no slot there."""
    return {f"{analyst} {one}@{phase}" for analyst, one in _ended(meta) for phase in phases}


def _ended(meta: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(analyst, one) for analyst, one in json.loads(meta.get("standing ended", "[]"))]


def answers_of_standing(world: World) -> set[tuple[str, str, str]]:
    """The ids under which standing queries may have been answered."""
    return {
        (dataset, analyst, f"{query_id}@{phase}")
        for dataset, held in world.store._datasets.items()
        for analyst, query_id in _ever(world, dataset)
        for phase in range(1, len(held.spent) + 1)
    }


def _ever(world: World, name: str) -> set[tuple[str, str]]:
    """The analyst and id of every standing query that was ever committed."""
    found: set[tuple[str, str]] = set()
    for event in world.trail:
        if isinstance(event, Committed) and event.transition.dataset == name:
            found.update(_ended(event.transition.meta))
            for slot, text in event.transition.meta.items():
                if re.fullmatch("standing [0-9]+", slot) and text:
                    one = json.loads(text)
                    found.add((one["analyst"], one["query"]["query_id"]))
    return found
