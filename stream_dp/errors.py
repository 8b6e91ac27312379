"""Every error that stream_dp raises on purpose, in one tree.

An error carries its facts as attributes and says whether trying again may help. No message, attribute or
repr of an error carries a row, a true count, a margin or a noise draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class StreamDPError(Exception):
    """Base of everything raised on purpose.

    Attributes:
        code: A constant, machine-readable name of the fault.
        retriable: Whether the same call may succeed later, unchanged.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False


class InvalidInput(StreamDPError, ValueError):
    """Something given to us is wrong: where, what is wrong, and how to mend it."""

    code: ClassVar[str] = "invalid_input"

    def __init__(self, field: str, problem: str, fix: str, *, reason: str | None = None) -> None:
        self.field = field
        self.problem = problem
        self.fix = fix
        self.reason = reason or self.code
        super().__init__(f"{field}: {problem}; {fix}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.field, self.problem, self.fix, self.reason))


def _rebuild(
    kind: type[InvalidInput], field: str, problem: str, fix: str, reason: str
) -> InvalidInput:
    return kind(field, problem, fix, reason=reason)


class InvalidDefinition(InvalidInput):
    """A data set's definition cannot be accepted."""

    code: ClassVar[str] = "invalid_definition"


class InvalidBatch(InvalidInput):
    """A batch has a structural fault. Never raised because of what a row contains."""

    code: ClassVar[str] = "invalid_batch"


class InvalidQuery(InvalidInput):
    """A query cannot be asked of this schema; ``reason`` is the code that is published."""

    code: ClassVar[str] = "invalid_query"


class InvalidMessage(InvalidInput):
    """A record is not a message of ours (bad JSON, unknown field, over a limit)."""

    code: ClassVar[str] = "invalid_message"


class StoreError(StreamDPError):
    """The store could not do what was asked; nothing was written."""

    code: ClassVar[str] = "store_error"


class StoreUnavailable(StoreError):
    """The store cannot be reached just now; whether the last write happened is unknown."""

    code: ClassVar[str] = "store_unavailable"
    retriable: ClassVar[bool] = True


class StoreChanged(StoreUnavailable):
    """Another server answers than the one that was compared with the ledger topic, or the same one restarted.

    Nothing was written. The same call succeeds when the server has been compared.
    """

    code: ClassVar[str] = "store_changed"


class UnsafeStore(StoreError):
    """The store runs with settings under which an acknowledged commit may be forgotten."""

    code: ClassVar[str] = "unsafe_store"

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class Fenced(StoreError):
    """Another worker has taken this data set over."""

    code: ClassVar[str] = "fenced"


class Conflict(StoreError):
    """The state in the store is not the one that this transition starts from."""

    code: ClassVar[str] = "conflict"


class DuplicateId(StoreError):
    """An answer or batch of this id is stored already."""

    code: ClassVar[str] = "duplicate_id"


class BudgetExceeded(StoreError):
    """A charge would pass the budget of a block; it was not recorded."""

    code: ClassVar[str] = "budget_exceeded"


class CorruptState(StoreError):
    """Stored bytes do not decode, or their version is unknown to this release."""

    code: ClassVar[str] = "corrupt_state"


class LedgerBroken(CorruptState):
    """The ledger's hash chain does not hold: entries were changed, lost, added or put in another order."""

    code: ClassVar[str] = "ledger_broken"

    def __init__(self, index: int, problem: str) -> None:
        self.index = index
        self.problem = problem
        super().__init__(f"ledger entry {index}: {problem}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.index, self.problem))


class StoreRefused(StoreError):
    """The store's server answers but will not serve us until an operator acts: memory, disk, role, rights."""

    code: ClassVar[str] = "store_refused"


class RolledBack(StreamDPError):
    """The store has forgotten what the ledger topic says was charged; serving on would spend it again."""

    code: ClassVar[str] = "rolled_back"
    words: ClassVar[str] = "Redis has forgotten what was charged to"

    def __init__(self, datasets: Sequence[str]) -> None:
        self.datasets = tuple(datasets)
        several = f"{len(self.datasets)} data sets such as " if len(self.datasets) > 1 else ""
        super().__init__(
            f"{self.words} {several}{self.datasets[0]}: the ledger topic says "
            "more than it does, so it came back from an older copy or was emptied, and budgets would be "
            "spent again. Restore the newest copy, or start afresh under another topic prefix"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.datasets,))


class ServerUnavailable(StreamDPError):
    """A broker or an embedded server cannot be reached or started."""

    code: ClassVar[str] = "server_unavailable"
    retriable: ClassVar[bool] = True


class RequestTimeout(StreamDPError):
    """No reply came in time. Asking again under the same id is safe."""

    code: ClassVar[str] = "timeout"
    retriable: ClassVar[bool] = True


__all__ = [
    "BudgetExceeded",
    "Conflict",
    "CorruptState",
    "DuplicateId",
    "Fenced",
    "InvalidBatch",
    "InvalidDefinition",
    "InvalidInput",
    "InvalidMessage",
    "InvalidQuery",
    "LedgerBroken",
    "RequestTimeout",
    "RolledBack",
    "ServerUnavailable",
    "StoreChanged",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "StreamDPError",
    "UnsafeStore",
]
