"""The way out of quarantine, for an operator who has fixed what killed the worker."""

from __future__ import annotations

from stream_dp.state.store import Store, Transition

__all__ = ["lift"]


async def lift(store: Store, dataset: str) -> str:
    """Lets a data set take records again; returns what its worker died of, "" if there was none.

    This fences its worker, which starts again. Records that were rejected in the meantime may be sent again
    under the same ids.

    Raises:
        StoreError: ``Store.acquire`` or ``Store.commit`` failed.
    """
    snapshot = await store.acquire(dataset)
    cause = snapshot.meta.get("quarantined", "")
    if cause:
        await store.commit(
            Transition(
                dataset=dataset,
                token=snapshot.token,
                seq=snapshot.seq,
                head=snapshot.head,
                new_head=snapshot.head,
                meta={"quarantined": ""},
            )
        )
        await store.clear_attempts(cause)
    return cause
