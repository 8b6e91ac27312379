"""P9: a standing query is answered for each phase, before all else that the phase is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from stream_dp.state.codec import answer_from_bytes
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def standing_queries_hold(world: World) -> Iterator[str]:
    """P9: a query that stands when a phase opens is answered for it, before all else that the phase is asked.

    One that begins in an open phase is answered for that phase too. Nothing else has an answer under the id
    of such an answer. The topic lists those that stand. One whose window has the rows so far is answered at
    each tick of an open period, or at a later one.
    """
    listed: dict[str, bytes] = {}
    for sent in world.trail:
        if isinstance(sent, Sent) and sent.outgoing.role == "standing":
            listed[sent.outgoing.key] = sent.outgoing.value
    standing_now: set[str] = set()
    for name, held in world.durable().items():
        standing: dict[str, tuple[str, str, int]] = {}
        owed: set[str] = set()
        at_ticks: dict[str, str] = {}  # those of ``standing`` that are answered there
        ticked: list[int] = []  # the minutes of all ticks, and 0 as a period ends
        of_opening: set[str] = set()
        ever = {answered for one in held.said for answered in one.answers}
        phase = 0
        for one in held.said:
            opened = bool(one.phases)
            # One commit may answer what is owed, and then end the query, open a phase or retire the data set.
            may = owed | _ended_in(one.meta, phase, phase + opened)
            ticked += [_minute(held.definition, record.value) for record in one.records("running")]
            if one.retires:
                at_ticks.clear()
                standing.clear()
                owed.clear()
            for slot, text in one.meta.items():
                if not re.fullmatch("standing [0-9]+", slot):
                    continue
                before = standing.pop(slot, None)
                at_ticks.pop(slot, None)
                if text:
                    entry = json.loads(text)
                    new = entry["analyst"], entry["query"]["query_id"], entry["serial"]
                    if entry["query"].get("window", {}).get("running"):
                        at_ticks[slot] = f"{new[0]} {new[1]}"
                        standing[slot] = new
                        continue
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
                ticked += [0] if ticked else []
                owed = {
                    f"{analyst} {query}@{phase}"
                    for slot, (analyst, query, _) in standing.items()
                    if slot not in at_ticks
                }
                of_opening = set(owed)
                may |= owed
            for answered, stored in one.answers.items():
                said = json.loads(answer_from_bytes(stored)[1])
                named = re.fullmatch("[^ ]+ .+@([0-9]{1,10})", answered)
                if named is not None and int(named[1]) in ticked and said.get("running"):
                    continue
                if named is not None and answered not in may:
                    yield f"P9: {name} answered {answered}, which no standing query owes"
                first = sorted(of_opening & owed)
                if said.get("phase") == phase and answered not in owed and first:
                    yield f"P9: {name} answered {answered} before {first}"
                owed.discard(answered)
        if ticked and ticked[-1]:
            owed |= {f"{named}@{ticked[-1]}" for named in at_ticks.values()} - ever
        if owed:
            yield f"P9: {name} still owes {sorted(owed)}"
        standing_now |= {f"{name} {analyst} {query}" for analyst, query, _ in standing.values()}
    if {key for key, value in listed.items() if value} != standing_now:
        yield f"P9: the topic lists {sorted(listed)}, and {sorted(standing_now)} stand"


def _minute(definition: bytes | None, value: bytes | None) -> int:
    """When a tick was, in minutes since 1970."""
    phase = json.loads(definition or b"{}").get("phase", {})
    until = datetime.fromisoformat(json.loads(value or b"{}")["until"])
    if until.tzinfo is None:
        until = until.replace(tzinfo=ZoneInfo(phase.get("timezone", "UTC")))
    return int(until.timestamp()) // 60


def _ended_in(meta: Mapping[str, str], *phases: int) -> set[str]:
    """The answers of those that have ended, as a commit says. One that began in it too has no slot there."""
    return {f"{analyst} {one}@{phase}" for analyst, one in _ended(meta) for phase in phases}


def _ended(meta: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(analyst, one) for analyst, one in json.loads(meta.get("standing ended", "[]"))]


def answers_of_standing(world: World) -> set[tuple[str, str, str]]:
    """The ids under which standing queries may have been answered."""
    found: set[tuple[str, str, str]] = set()
    for dataset, held in world.durable().items():
        told = [record.value for one in held.said for record in one.records("running")]
        ticks = (_minute(held.definition, value) for value in told)
        for number in (*range(1, len(held.spent) + 1), *ticks):
            found |= {(dataset, who, f"{query}@{number}") for who, query in _ever(world, dataset)}
    return found


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
