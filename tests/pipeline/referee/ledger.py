"""P5: the ledger that was published is the one that was committed, and its chain is whole.

That no look stays open is a part of P5 too: ``outcomes.at_rest`` says so.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from stream_dp.audit import verify
from stream_dp.errors import LedgerBroken
from stream_dp.state import ledger
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


def ledger_holds(world: World) -> Iterator[str]:
    """The published ledger is the committed one, its chain holds, and its charges are the spent ones."""
    published: dict[str, list[bytes]] = defaultdict(list)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "ledger":
            entries = published[event.outgoing.key]
            if event.outgoing.value not in entries:
                entries.append(event.outgoing.value)
    for name, held in world.durable().items():
        if published[name] != held.ledger:
            yield f"P5: the ledger of {name} was published otherwise than it was committed"
        try:
            chain = ledger.Chain(name, published[name])
            if chain.head.hex() != held.meta["ledger head"]:
                yield f"P5: the ledger of {name} ends in another head than the one that was committed"
        except LedgerBroken as error:
            yield f"P5: the ledger of {name} is broken: {error}"
        charged: Counter[int] = Counter()
        for entry in published[name]:
            for block, rho, _ in json.loads(entry).get("charges", []):
                charged[block] += rho
        if [charged[block] for block in range(len(held.spent))] != [rho for rho, _ in held.spent]:
            yield f"P2: the ledger of {name} and its spent budget differ"
        if held.ledger:
            report = verify(name, published[name])
            yield from (f"P2: {name}: {found}" for found in (*report.faults, *report.notes))
