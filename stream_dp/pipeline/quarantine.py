"""The way out of quarantine, for an operator who has fixed what killed the worker."""

from __future__ import annotations

from dataclasses import replace

from stream_dp.state.journal import noting
from stream_dp.state.store import ORIGIN, Store

__all__ = ["lift"]


async def lift(store: Store, dataset: str) -> str:
    """Lets a data set take records again; returns what its worker died of, "" if there was none.

    This fences its worker, which starts again, and puts this commit on the journal. Records that were
    rejected in the meantime may be sent again under the same ids.

    Raises:
        StoreError: ``Store.acquire`` or ``Store.commit`` failed.
    """
    snapshot = await store.acquire(dataset)
    cause = snapshot.meta.get("quarantined", "")
    if cause:
        lifting = noting(snapshot, {"quarantined": ""})
        if snapshot.trail == ORIGIN:
            # An earlier release has left it, and the next worker puts it on the journal.
            lifting = replace(lifting, new_trail=ORIGIN, outbox=None)
        await store.commit(lifting)
        await store.clear_attempts(cause)
    return cause
