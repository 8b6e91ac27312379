"""P9: a standing query is answered for each phase, before all else that the phase is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from stream_dp.state.codec import answer_from_bytes
from tests.pipeline.trail import Sent
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
    for name, held in world.durable().items():
        standing: dict[str, tuple[str, str, int]] = {}
        owed: set[str] = set()
        of_opening: set[str] = set()
        ever = {answered for one in held.said for answered in one.answers}
        phase = 0
        for one in held.said:
            opened = bool(one.phases)
            # One commit may answer what is owed, and then end the query, open a phase or retire the data set.
            may = owed | _ended_in(one.meta, phase, phase + opened)
            if one.retires:
                standing.clear()
                owed.clear()
            for slot, text in one.meta.items():
                if not re.fullmatch("standing [0-9]+", slot):
                    continue
                before = standing.pop(slot, None)
                if text:
                    entry = json.loads(text)
                    new = entry["analyst"], entry["query"]["query_id"], entry["serial"]
                    standing[slot] = new
                    first_of = phase + (opened and entry["since_phase"] > phase)
                    if before != new and first_of:
                        owed.add(f"{new[0]} {new[1]}@{first_of}")
                elif before is not None:
                    owed.discard(f"{before[0]} {before[1]}@{phase}")
            may |= owed
            if opened:
                if owed - one.answers.keys() - ever:
                    yield f"P9: {name} opened phase {phase + 1} and still owed {sorted(owed)}"
                phase += 1
                owed = {f"{analyst} {query}@{phase}" for analyst, query, _ in standing.values()}
                of_opening = set(owed)
                may |= owed
            for answered, stored in one.answers.items():
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
        standing_now |= {f"{name} {analyst} {query}" for analyst, query, _ in standing.values()}
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
        for dataset, held in world.durable().items()
        for analyst, query_id in _ever(world, dataset)
        for phase in range(1, len(held.spent) + 1)
    }


def _ever(world: World, name: str) -> set[tuple[str, str]]:
    """The analyst and id of every standing query that was ever committed."""
    found: set[tuple[str, str]] = set()
    for one in world.held(name).said:
        found.update(_ended(one.meta))
        for slot, text in one.meta.items():
            if re.fullmatch("standing [0-9]+", slot) and text:
                entry = json.loads(text)
                found.add((entry["analyst"], entry["query"]["query_id"]))
    return found
