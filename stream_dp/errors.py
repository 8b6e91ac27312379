"""Every error that stream_dp raises on purpose, in one tree.

An error carries its facts as attributes and says whether trying again may help. No message, attribute or
repr of an error carries a row, a true count, a margin or a noise draw.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

QuerySort: TypeAlias = Literal["syntax", "no_table", "no_column", "not_grouped", "rows", "other"]
"""Why a statement in SQL cannot be asked: ``InvalidQuery`` says what each of them means."""


class StreamDPError(Exception):
    """The base of every error that is raised on purpose.

    Attributes:
        code: The constant, machine-readable name of the fault.
        retriable: Whether the same call may succeed later, unchanged.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with the text alone, which is made of the facts.
        return _copied, (type(self), self.args), self.__dict__


def _copied(kind: type[StreamDPError], args: tuple[object, ...]) -> StreamDPError:
    return kind.__new__(kind, *args)


class InvalidInput(StreamDPError, ValueError):
    """An input is wrong.

    Attributes:
        field: The part of the input that is wrong.
        problem: The fault.
        fix: The fix, as an instruction.
        reason: The machine-readable code of the fault. Default: the code of the class.
    """

    code: ClassVar[str] = "invalid_input"

    def __init__(self, field: str, problem: str, fix: str, *, reason: str | None = None) -> None:
        self.field = field
        self.problem = problem
        self.fix = fix
        self.reason = reason or self.code
        super().__init__(f"{field}: {problem}; {fix}")


class InvalidDefinition(InvalidInput):
    """A data set's definition cannot be accepted."""

    code: ClassVar[str] = "invalid_definition"


class InvalidBatch(InvalidInput):
    """A batch has a structural fault. Never raised because of what a row contains."""

    code: ClassVar[str] = "invalid_batch"


class InvalidQuery(InvalidInput):
    """A query cannot be asked of this schema. Its ``reason`` is the code that is published.

    Attributes:
        sort: The sort of the fault in a statement: ``syntax`` cannot be read, ``no_table`` names an unknown
            data set or table, ``no_column`` an unknown attribute, ``not_grouped`` has a column beside
            aggregates, ``rows`` asks for rows, and ``other`` is all else.
        offset: Where the fault begins, as the number of characters before it. None outside of statements.
    """

    code: ClassVar[str] = "invalid_query"

    def __init__(
        self,
        field: str,
        problem: str,
        fix: str,
        *,
        reason: str | None = None,
        sort: QuerySort = "other",
        offset: int | None = None,
    ) -> None:
        super().__init__(field, problem, fix, reason=reason)
        self.sort = sort
        self.offset = offset


class InvalidMessage(InvalidInput):
    """A record is not a valid message: it has bad JSON, an unknown field, or exceeds a limit."""

    code: ClassVar[str] = "invalid_message"


class TooSoon(InvalidMessage):
    """An analyst asks or spends faster than the data set allows. The same query may be sent again later."""

    code: ClassVar[str] = "too_many_queries"
    retriable: ClassVar[bool] = True


class NotNext(InvalidMessage):
    """A batch is not the next one of its producer.

    Attributes:
        next_sequence: The number of the next one.
    """

    code: ClassVar[str] = "not_next"

    def __init__(self, producer: str, next_sequence: int) -> None:
        self.producer = producer
        self.next_sequence = next_sequence
        super().__init__(
            "sequence",
            f"{next_sequence} is the next number of producer {producer}",
            "send its batches from there on",
        )


class StoreError(StreamDPError):
    """What is stored could not be read or written."""

    code: ClassVar[str] = "store_error"


class StoreUnavailable(StoreError):
    """Redis cannot be reached at the moment. It is unknown whether the last write happened."""

    code: ClassVar[str] = "store_unavailable"
    retriable: ClassVar[bool] = True


class Fenced(StoreError):
    """Another worker has taken this data set over."""

    code: ClassVar[str] = "fenced"


class BudgetExceeded(StoreError):
    """A charge would exceed the budget of a block. It was not recorded."""

    code: ClassVar[str] = "budget_exceeded"


class CorruptState(StoreError):
    """Stored bytes do not decode, or this release does not know their version."""

    code: ClassVar[str] = "corrupt_state"


class LedgerBroken(CorruptState):
    """The ledger's hash chain is broken: entries were changed, lost, added or reordered."""

    code: ClassVar[str] = "ledger_broken"

    def __init__(self, index: int, problem: str) -> None:
        self.index = index
        self.problem = problem
        super().__init__(f"ledger entry {index}: {problem}")


class RowsGone(CorruptState):
    """The rows of a phase are not where the journal says that they are kept, nor elsewhere there."""

    code: ClassVar[str] = "rows_gone"

    def __init__(self, dataset: str, phase: int) -> None:
        self.dataset = dataset
        self.phase = phase
        super().__init__(
            f"{dataset}: the rows of phase {phase} are gone from the topic of blocks or the store of rows"
        )


class StoreRefused(StoreError):
    """Redis answers but refuses to serve until an operator acts: memory, disk, role, rights."""

    code: ClassVar[str] = "store_refused"


class WrongSetting(StreamDPError):
    """A worker's setting does not fit a data set, which it therefore does not serve."""

    setting: ClassVar[str]
    problem: ClassVar[str]

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{self.setting}: {dataset} {self.problem}; give every worker the right one"
        )


class WrongKeyFile(WrongSetting):
    """The key file is not the one with which a data set was defined. Its persons could not be told apart."""

    code: ClassVar[str] = "wrong_key_file"
    setting: ClassVar[str] = "STREAM_DP_PERSON_KEY_FILE"
    problem: ClassVar[str] = "was defined with another key file"


class WrongStore(WrongSetting):
    """The folder or bucket is not the one that has the rows of a data set."""

    code: ClassVar[str] = "wrong_store"
    setting: ClassVar[str] = "STREAM_DP_ROWS"
    problem: ClassVar[str] = "has rows in another folder or bucket"


class ServerUnavailable(StreamDPError):
    """A broker or an embedded server cannot be reached or started."""

    code: ClassVar[str] = "server_unavailable"
    retriable: ClassVar[bool] = True


class UnsafeTopics(StreamDPError):
    """The settings of topics let the broker lose records, or let senders choose the times of theirs."""

    code: ClassVar[str] = "unsafe_topics"

    def __init__(self, problems: tuple[str, ...], fix: str) -> None:
        self.problems = problems
        self.fix = fix
        super().__init__(f"{'; '.join(problems)}; run: {fix}")


class RequestTimeout(StreamDPError):
    """No reply came in time. It is safe to ask again under the same id."""

    code: ClassVar[str] = "timeout"
    retriable: ClassVar[bool] = True
