"""The cases of the model of recovery: what must hold, what is spare, and broken copies of the protocol.

Run ``python -m tests.model.cases --help`` for the larger ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.model.recovery import Break, Case
from tests.model.searching import search, walk


def _broken(*rules: Break, **changes: Any) -> dict[str, Any]:
    return {"broken": frozenset(rules), **changes}


_ROWS: dict[str, Any] = {"queries": "", "rows": 3, "sends": 3}
_RESTORED: dict[str, Any] = {"crashes": 0, "starts": 3}
_CALMER: dict[str, Any] = {"crashes": 0, "faults": 0}
_ALL: dict[str, Any] = {
    "queries": "ABA",
    "rows": 3,
    "sends": 5,
    "seals": 1,
    "rejection": True,
    "rounds": 2,
    "view": True,
    "crashes": 3,
    "faults": 3,
    "starts": 5,
    "walk": True,
}

CASES = (
    # What must hold. Redis is in no guard, and asked for contents and hints alone: most cases leave it out.
    Case("one query, a crash", crashes=1),
    Case("one query, two crashes", crashes=2),
    Case("one query, three workers", crashes=0, starts=3),
    Case("one query, three workers, a crash", starts=3),
    Case("one query and Redis, two faults", crashes=0, faults=2, view=True),
    Case("one query and Redis, a crash", view=True),
    Case("one query twice and Redis", queries="AA", crashes=0, view=True),
    Case("one query twice, a crash", queries="AA", eager=False),
    Case("two queries", queries="AB", crashes=0),
    Case("two queries, a crash", queries="AB", eager=False),
    Case("two rows of a source and Redis", queries="", rows=2, sends=2, crashes=0, view=True),
    Case("three rows of a source, a crash", **_ROWS, faults=0, eager=False),
    Case("a private value, a crash", queries="", seals=1),
    Case("a private value, a query and Redis", seals=1, crashes=0, view=True, eager=False),
    Case("a rejection, a crash", queries="", rejection=True),
    Case("a rejection and a query", rejection=True, crashes=0),
    Case("a rejection and a round", queries="", rejection=True, seals=1, rounds=1),
    Case("a round", rounds=1, crashes=0),
    Case("a round, a crash", rounds=1),
    Case("two rounds, a crash", rounds=2, faults=0, eager=False),
    Case("a round and two queries", queries="AB", rounds=1, **_CALMER, eager=False),
    Case("a round and one query twice", queries="AA", rounds=1, **_CALMER, eager=False),
    Case("the journal and Redis are restored", restore="journal", **_RESTORED),
    Case("everything is restored", restore="all", **_RESTORED),
    Case("everything, at random", **_ALL),
    Case("everything, restored at random", **_ALL, restore="all"),
    # Rules without which all invariants hold: they are kept for other reasons.
    Case(
        "spare: an end is believed before it is acknowledged",
        **_broken(Break.OTHERS),
        rounds=1,
        **_CALMER,
    ),
    Case("spare: a lost look is taken again", **_broken(Break.LOST_LOOK), faults=0, unseen=False),
    # Broken copies of the protocol.
    Case("1: output before its commit", "I1", **_broken(Break.OUTPUT_LAST)),
    Case("2: the offset is not compared", "I2", **_broken(Break.OFFSET)),
    Case("3: the journal is read before EPOCH", "I9", **_broken(Break.EPOCH_FIRST), crashes=0),
    Case("4: epochs are ignored", "I2", **_broken(Break.EPOCHS), crashes=0),
    Case(
        "5: a short reading is taken for all",
        "I9",
        **_broken(Break.WHOLE, Break.OUTPUTS),
        crashes=0,
    ),
    Case("6: a gap is read short", "I2", **_broken(Break.GAP_WHOLE)),
    Case("7: Redis is believed", "I9", **_broken(Break.VIEW_DECIDES), crashes=0, view=True),
    Case(
        "8: Redis is written first, and believed where it has more",
        "I9",
        **_broken(Break.VIEW_LAST, Break.VIEW_LONGER),
        view=True,
    ),
    Case(
        "9: Redis says what is answered",
        "I1",
        **_broken(Break.VIEW_IDS),
        queries="AA",
        **_CALMER,
        starts=1,
        view=True,
    ),
    Case("10: nothing is released again", "I6", **_broken(Break.AGAIN)),
    Case("11: a mark comes before the output", "I6", **_broken(Break.MARK_LAST), queries="AB"),
    Case(
        "12: a query is answered again",
        "I1",
        **_broken(Break.DEDUPE),
        queries="AA",
        faults=0,
        starts=1,
    ),
    Case("13: a look before its charge", "I2", **_broken(Break.WAIT)),
    Case(
        "14: a private value after its commit",
        "I7",
        **_broken(Break.VALUE_FIRST),
        queries="",
        seals=1,
    ),
    Case(
        "15: private values are named after their phase",
        "I7",
        **_broken(Break.NAMES),
        queries="",
        seals=1,
        crashes=0,
    ),
    Case(
        "16: overlapping ranges count", "I4", **_broken(Break.NEXT), **_ROWS, crashes=0, view=True
    ),
    Case(
        "17: the journal is cut below a checkpoint that does not count",
        "I2",
        **_broken(Break.CUT_ACKNOWLEDGED),
        queries="AB",
        rounds=1,
        **_CALMER,
    ),
    Case(
        "18: the journal is cut below the end of a round",
        "I9",
        **_broken(Break.CUT_BEGIN),
        rounds=1,
        **_CALMER,
    ),
    Case(
        "19: the journal is cut before the end is named",
        "I9",
        **_broken(Break.CUT_NAMED),
        rounds=1,
        faults=0,
    ),
    Case(
        "20: a round begins before everything has left",
        "I6",
        **_broken(Break.SETTLED),
        rounds=1,
        faults=0,
    ),
    Case(
        "21: nobody compares the outputs",
        "I1",
        **_broken(Break.OUTPUTS),
        restore="journal",
        **_RESTORED,
    ),
    Case("22: charges have no nonce", "I8", **_broken(Break.NONCE), restore="all", **_RESTORED),
    Case(
        "23: a restore under a live worker",
        "I1",
        **_broken(Break.STOPPED),
        queries="AB",
        restore="journal",
        **_RESTORED,
    ),
    Case(
        "24: a gap that was cut off is taken for empty",
        "I2",
        **_broken(Break.GAP_THERE),
        rounds=1,
        crashes=0,
    ),
    Case("25: a lost look is taken again", "I3", **_broken(Break.LOST_LOOK)),
    Case("26: an EPOCH comes again under the same id", "I9", **_broken(Break.OWN_EPOCH)),
    Case(
        "27: answers of Redis are not compared",
        "I1",
        **_broken(Break.DIGEST),
        queries="AA",
        crashes=0,
        starts=1,
        view=True,
    ),
    Case(
        "28: private values of Redis are not compared",
        "I7",
        **_broken(Break.NAME),
        seals=1,
        crashes=0,
        starts=1,
        view=True,
    ),
    Case(
        "29: a checkpoint does not say what is answered",
        "I1",
        **_broken(Break.INDEX),
        queries="AA",
        rounds=1,
        **_CALMER,
    ),
    Case(
        "30: a rejection before its mark",
        "I5",
        **_broken(Break.REJECTION),
        queries="",
        rejection=True,
    ),
    Case(
        "31: what a former owner deletes is relied on",
        "I1",
        **_broken(Break.MARKED),
        queries="AA",
        rounds=1,
        **_CALMER,
    ),
    Case("walk: nothing is released again", "I6", **_broken(Break.AGAIN), **_ALL),
    Case("walk: overlapping ranges count", "I4", **_broken(Break.NEXT), **_ALL),
)


def case(name: str) -> Case:
    """The case with a name.

    Raises:
        KeyError: There is none.
    """
    return {one.name: one for one in CASES}[name]


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model.cases", description="Searches the model of recovery."
    )
    parser.add_argument(
        "--case", metavar="NAME", default="", help="search the cases whose name contains NAME"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="stop each case after this time (default: 60)"
    )
    parser.add_argument(
        "--every", type=int, default=20, help="start a calm run from each n-th state (default: 20)"
    )
    parser.add_argument("--verbose", action="store_true", help="print the steps to each violation")
    options = parser.parse_args()

    def progress(states: int, seconds: float) -> None:
        print(f"  {states:,} states, {states / seconds:,.0f} states/s", file=sys.stderr, flush=True)

    unexpected, total = 0, 0
    for one in CASES:
        if options.case not in one.name:
            continue
        begun = time.monotonic()
        if one.walk:
            found = walk(one, seconds=options.seconds)
        else:
            found = search(one, seconds=options.seconds, every=options.every, progress=progress)
        total += found.states
        wanted = found.invariant == one.violates
        unexpected += not wanted
        how = f"{len(found.steps)} steps: {found.invariant}" if found.steps else ""
        print(
            f"{one.name:<62}{found.verdict.name:<9}{found.states:>10,} states "
            f"{found.calm:>8,} calm runs {time.monotonic() - begun:6.1f} s  {how}"
            f"{'' if wanted else '  UNEXPECTED'}",
            flush=True,
        )
        if (options.verbose and found.steps) or not wanted:
            print(found, flush=True)
    print(f"{total:,} states in all, {unexpected} cases not as expected")
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(_main())
