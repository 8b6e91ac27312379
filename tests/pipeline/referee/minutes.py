"""P14: nobody asks or spends faster than the definition allows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import dearest
from tests.pipeline.referee.evidence import asked_in, grows, id_of, parsed, records_of
from tests.pipeline.world import World


def minutes_hold(world: World) -> Iterator[str]:
    """P14: nobody asks or spends faster than a definition allows, and nobody slower is told so.

    The minutes are those of the records, numbered as they begin: a time that goes back by more than a minute
    begins another one. A look that a crash has lost was spent all the same. Rules that
    change are left to other tests: which record came before a change depends on two topics.
    """
    for name, held in world.durable().items():
        analysts = json.loads(held.definition or b"{}").get("analysts")
        if analysts is not None and "analysts" not in held.meta:
            yield from _minutes_of(world, name, analysts)


def _minutes_of(world: World, name: str, analysts: dict[str, Any]) -> Iterator[str]:
    rejected, answers, known = world.rejections(), world.answers(), set()
    asked, spent = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    minute, newest, minutes = 0, 0, dict[str, tuple[str, int]]()
    for record in (one for one in records_of(world, name) if one.role == "queries"):
        here = rejected.get((record.topic, record.partition, record.offset), [])
        if any(reply["reason"]["code"] == "unknown_dataset" for reply in here):
            continue  # it came before the definition
        document = parsed(record) or {}
        analyst = document["analyst"]
        rules = _rules_of(analysts, analyst)
        this = record.timestamp_ms // 60_000
        if rules and (this > minute or 0 <= this < minute - 1):
            minute, newest = this, newest + 1
        if rules is None:
            if {reply["reason"]["code"] for reply in here} != {"not_allowed"}:
                yield f"P14: {analyst} may ask {name} nothing, and has asked at {record.record_id}"
            continue
        most = rules.get("queries_per_minute", math.inf)
        minutes[record.record_id] = analyst, newest
        for item in asked_in(document):
            together = document.get("quote") == "together"
            codes = [
                reply["reason"]["code"]
                for reply in here
                if together or reply.get("query_id") == id_of(item)
            ]
            size = len(document["queries"]) if together else 1
            if "too_many_queries" in codes and asked[analyst, newest] + size <= most:
                yield f"P14: {analyst} was told too soon that {most} queries were asked of {name}"
            stands = isinstance(item, dict) and item.get("standing") is not None
            named = name, analyst, id_of(item)
            if codes or named in known or not (stands or named in answers):
                continue
            asked[analyst, newest] += size
            if not (together or item.get("quote")):
                known.add(named)
        if asked[analyst, newest] > most:
            yield f"P14: {analyst} has asked {asked[analyst, newest]} queries of {name} in a minute"
    for one in world.held(name).said:
        record_id = one.meta.get("work", "").partition(" ")[0]
        if one.charges and not grows(one) and record_id in minutes:
            spent[minutes[record_id]] += dearest(one.charges)
    for (analyst, _), units in spent.items():
        rules = _rules_of(analysts, analyst) or {}
        if units > Fraction(str(rules.get("spending_per_minute", 1))) * UNITS:
            yield f"P14: {analyst} has spent {units / UNITS:.6f} of a line of {name} in a minute"


def _rules_of(analysts: Mapping[str, Any], analyst: str) -> dict[str, Any] | None:
    """What is allowed to an analyst: by name, or else by the longest pattern."""
    matching = [one for one in analysts if one[-1:] == "*" and analyst.startswith(one[:-1])]
    found = analyst if analyst in analysts else max(matching, key=len, default=None)
    return None if found is None else dict(analysts[found])
