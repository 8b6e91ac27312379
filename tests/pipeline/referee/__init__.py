"""The referee, which says what a run has promised and not kept.

It reads the log, the trail and the store of a ``World``, and knows nothing of how a worker works. Each
promise has a module of its own. ``evidence`` holds what several of them go by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.pipeline.referee.answers import same_answer
from tests.pipeline.referee.batches import batches_once
from tests.pipeline.referee.charges import never_under_count
from tests.pipeline.referee.erasure import erased_elsewhere, erased_in_time
from tests.pipeline.referee.evidence import chains_of, history
from tests.pipeline.referee.journal import on_the_journal
from tests.pipeline.referee.ledger import ledger_holds
from tests.pipeline.referee.limits import limits_hold
from tests.pipeline.referee.looks import looks_are_charged
from tests.pipeline.referee.minutes import minutes_hold
from tests.pipeline.referee.outcomes import at_rest, one_outcome
from tests.pipeline.referee.periods import periods_hold
from tests.pipeline.referee.rotation import kept_long_enough
from tests.pipeline.referee.rows import rows_once
from tests.pipeline.referee.shares import shares_hold
from tests.pipeline.referee.standing_queries import standing_queries_hold
from tests.pipeline.referee.synthetic_rows import synthetic_rows_hold
from tests.pipeline.world import World

# In the order in which they are judged. P10 is judged before them, by the whole trail.
_PROMISES: tuple[Callable[[World], Iterator[str]], ...] = (
    same_answer,
    never_under_count,
    looks_are_charged,
    rows_once,
    periods_hold,
    batches_once,
    one_outcome,
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
)


def complaints(world: World) -> list[str]:
    """Lists what is wrong with a finished run. The list is empty when all promises were kept.

    A commit that a store has forgotten, and that was not on the journal, has never been: nothing that follows
    from it may have left. One that came back from the journal counts where it was made.
    """
    whole, world.chains = world.trail, chains_of(world)
    try:
        on_journal = list(on_the_journal(world))
        world.trail = list(history(world))
        return [*on_journal, *(said for promise in _PROMISES for said in promise(world))]
    finally:
        world.trail, world.chains = whole, None
