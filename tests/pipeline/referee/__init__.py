"""The referee, which says what a run has promised and not kept.

It reads the logs, the trail and Redis of a ``World``, and knows nothing of how a worker works. Each promise
has a module of its own. ``evidence`` holds what several of them go by, and ``held`` adds the journal up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.pipeline.referee.answers import same_answer
from tests.pipeline.referee.batches import batches_once
from tests.pipeline.referee.charges import never_under_count
from tests.pipeline.referee.erasure import erased_elsewhere, erased_in_time
from tests.pipeline.referee.evidence import history
from tests.pipeline.referee.journal import on_the_journal
from tests.pipeline.referee.ledger import ledger_holds
from tests.pipeline.referee.limits import limits_hold
from tests.pipeline.referee.lives import lives_hold
from tests.pipeline.referee.looks import looks_are_charged
from tests.pipeline.referee.minutes import minutes_hold
from tests.pipeline.referee.outcomes import at_rest, one_outcome, reserved_ids
from tests.pipeline.referee.periods import periods_hold
from tests.pipeline.referee.rotation import kept_long_enough
from tests.pipeline.referee.rows import found_values_have_cells, rows_once
from tests.pipeline.referee.shares import shares_hold
from tests.pipeline.referee.standing_queries import standing_queries_hold
from tests.pipeline.referee.synthetic_rows import synthetic_rows_hold
from tests.pipeline.referee.ticks import ticks_hold
from tests.pipeline.referee.view import redis_follows
from tests.pipeline.world import World

_PROMISES: tuple[Callable[[World], Iterator[str]], ...] = (
    on_the_journal,
    same_answer,
    never_under_count,
    looks_are_charged,
    rows_once,
    lives_hold,
    found_values_have_cells,
    periods_hold,
    ticks_hold,
    batches_once,
    one_outcome,
    reserved_ids,
    limits_hold,
    minutes_hold,
    erased_in_time,
    erased_elsewhere,
    at_rest,
    ledger_holds,
    shares_hold,
    synthetic_rows_hold,
    standing_queries_hold,
    kept_long_enough,
    redis_follows,
)


def complaints(world: World) -> list[str]:
    """Lists what is wrong with a finished run. The list is empty when all promises were kept.

    A commit that landed void has never been: nothing that follows from it may have left.
    """
    whole, world.judged = world.trail, world.durable()
    try:
        world.trail = list(history(world))
        return [said for promise in _PROMISES for said in promise(world)]
    finally:
        world.trail, world.judged = whole, None
