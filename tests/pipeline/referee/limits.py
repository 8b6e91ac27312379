"""P7: what a record leads to charges no more than the limit that it names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction

from stream_dp.core.budget.accountant import UNITS
from tests.pipeline.referee.evidence import grows, parsed
from tests.pipeline.world import World


def limits_hold(world: World) -> Iterator[str]:
    """P7: the charges that a record leads to, lost looks and all, stay within its limit on every line.

    A base release that grows is the data set's own look, and counts for no record.
    """
    limits: dict[str, Fraction] = {}
    for records in world.log.values():
        for record in records:
            document = parsed(record) or {}
            if record.role == "queries" and "queries" in document and "at_most" in document:
                limits[record.record_id] = Fraction(document["at_most"])
    paid: dict[str, Counter[int]] = defaultdict(Counter)
    for held in world.durable().values():
        for one in held.said:
            if one.charges and not grows(one):
                record_id = one.meta.get("work", "").partition(" ")[0]
                for charge in one.charges:
                    paid[record_id][charge.block] += charge.rho
    for record_id, limit in limits.items():
        worst = max(paid[record_id].values(), default=0)
        if worst > limit * UNITS:
            yield f"P7: {record_id} has taken {worst / UNITS:.6f} of a line, and may take {float(limit)}"
