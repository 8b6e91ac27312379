"""The way out of quarantine, for an operator who has fixed what killed the worker."""

from __future__ import annotations

from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.repair.offline import Offline, commit, facts, leave, state_of, taken_over

_QUARANTINED = "quarantined"


async def lift(tools: Offline, name: str) -> str:
    """Lets a data set take records again; returns what its worker died of, "" if there was none.

    A worker that runs is followed by this. It ends, and the next one serves the data set. Records that were
    rejected in the meantime may be sent again under the same ids.

    Args:
        tools: The topics.
        name: The name of the data set.

    Raises:
        InvalidInput: There is no such data set.
        CorruptState: Its partition was cut, or it is not whole.
        Fenced: A worker was quicker.
    """
    journal = tools.journal()
    partition = journal.partition_of(name)
    if not _cause(await journal.look(partition), name):
        return ""  # and its worker goes on
    async with taken_over(journal, partition) as owned:
        if cause := _cause(owned, name):
            await commit(journal, owned, name, facts({_QUARANTINED: ""}))
        forgotten = {task: 0 for task in owned.marks.trying if cause and task.endswith(cause)}
        # The worker that was there has not died: this has followed it.
        await leave(journal, owned, left=True, trying=forgotten)
    return cause


def _cause(owned: Owned, name: str) -> str:
    return state_of(owned, name).fact(_QUARANTINED)
