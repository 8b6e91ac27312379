"""The documents of the HTTP API that are not messages on Kafka."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BeforeValidator, Field, StrictBool

from stream_dp.messages import (
    MOST_QUOTED,
    AlertSpec,
    AttributeName,
    DatasetName,
    Id,
    Series,
    StandingQuery,
    Window,
)
from stream_dp.messages.message_base import Reply, Request, tupled
from stream_dp.messages.precision import ErrorSpec, ShareOfLine
from stream_dp.sql import MAX_LENGTH

State: TypeAlias = Literal["live", "quarantined", "stopped", "retired"]
"""Whether a data set answers, is in quarantine, cannot be served, or is retired."""


class SqlStatement(Request):
    """A text in SQL of which the table is asked.

    Attributes:
        sql: A condition, or any SELECT.
        query_id: The id of its queries. A repeated id returns the same answers. Default: a new id.
        at_most: The largest share of any phase's budget that the statement may take.
        series: The periods to group by as well, if the SQL groups by none.
    """

    sql: Annotated[str, Field(max_length=MAX_LENGTH)]
    query_id: Id | None = None
    at_most: ShareOfLine | None = None
    window: Window | None = None
    series: Series | None = None


class SqlQuery(SqlStatement):
    """A query in SQL. The other fields mean what they mean in a query message.

    Attributes:
        sql: A condition, or a SELECT that one answer says all of. An empty string asks about every row.
        query_id: The id of the query. A repeated id returns the same answer. Default: a new id.
        group_by: The attributes of a table, if the SQL has no GROUP BY.
        alert: When an answer raises an alert. For standing queries only.
    """

    group_by: Annotated[tuple[AttributeName, ...], BeforeValidator(tupled)] = ()
    error: ErrorSpec | None = None
    alert: AlertSpec | None = None


class QueryList(Request):
    """Queries that a quote prices together, in the order in which they will be asked."""

    queries: Annotated[list[Any], Field(min_length=1, max_length=MOST_QUOTED)]


class StatementColumn(Reply):
    """One column of the table of a statement.

    Attributes:
        name: The alias, or the expression as the statement has it.
        bar_of: The name of the column whose half widths this one holds. None in every other column.
        end_of: The name of the column of which this one holds the least or the largest values.
        sure_of: The clause of which this column says what is sure. None in every other column.
    """

    name: str
    type: Literal["text", "integer", "real", "boolean", "date", "timestamp"]
    bar_of: str | None = None
    end_of: str | None = None
    sure_of: Literal["ORDER BY"] | None = None


class StatementTable(Reply):
    """The table of a statement.

    Attributes:
        columns: The columns. Each column of published values is followed by its bars and its ends.
        rows: The rows, each with one value for each column. None is a missing value, or an unknown bar. A
            date is a text such as 2026-11-01, and a timestamp one such as 2026-11-01T06:00:00.
        phases: The first and the last phase that the answers speak of. None where nothing was asked.
        notes: What the reader should know, each a sentence.
        cost: The largest share of any phase's budget that the answers took together, or a little more.
        least_cell: People read that a count is lower than this where it surely is. None to read the count.
    """

    status: Literal["answered"] = "answered"
    dataset: DatasetName
    columns: tuple[StatementColumn, ...]
    rows: tuple[tuple[StrictBool | int | float | str | None, ...], ...]
    phases: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    cost: float
    least_cell: int | None = None


class NothingAsked(Reply):
    """The quote of a statement that asks nothing, because its table follows from public facts alone."""

    status: Literal["free"] = "free"
    dataset: DatasetName


class Pending(Reply):
    """A query whose answer is not there yet.

    Attributes:
        query_id: The id of the query.
        answer: The address of its answer.
    """

    status: Literal["pending"] = "pending"
    dataset: DatasetName
    query_id: Id
    answer: str


class StandingList(Reply):
    """The standing queries of a data set, those of all analysts."""

    standing: tuple[StandingQuery, ...]


class StandingEnded(Reply):
    """A standing query that has ended, or that there was none of this id."""

    status: Literal["ended"] = "ended"
    dataset: DatasetName
    query_id: Id


class DatasetSummary(Reply):
    """A data set.

    Attributes:
        phases: The number of open phases.
        rows: The number of rows in them.
        waiting: The number of rows that wait for the next phase. None until an event reports it.
        spent: The largest spent share of any phase's budget.
    """

    dataset: DatasetName
    state: State
    phases: int
    rows: int
    waiting: int | None = None
    spent: float


class DatasetList(Reply):
    """All data sets, by name."""

    datasets: tuple[DatasetSummary, ...]


class PhaseBudget(Reply):
    """The budget of one phase.

    Attributes:
        phase: The number of the phase, from 1.
        opened: The time at which it opened.
        rows: The number of its rows.
        spent: The spent share of its budget, in [0, 1].
        left: The remaining share.
        looks: The number of paid looks at its rows.
    """

    phase: int
    opened: AwareDatetime
    rows: int
    spent: float
    left: float
    looks: int


class ShareOfPhase(Reply):
    """What somebody has spent of one phase, and may still spend, as shares of its budget.

    Attributes:
        phase: The number of the phase, from 1.
    """

    phase: int
    spent: float
    left: float


class ShareBudget(Reply):
    """The share of somebody who may ask, or a part of each phase's budget.

    Attributes:
        who: A name or pattern of ``analysts``, an analyst who has paid, ``the owner``, or ``the rest``, which
            is what is kept for nobody.
        entry: The entry of ``analysts`` that applies. Absent for an analyst who may not ask any more.
        share: The share of each phase's budget that one analyst may charge. Absent without a bound.
        kept: The share of each phase's budget that is kept for them.
        owner: Whether it is taken from what is kept for the owner.
        newest: The newest phase. Absent before a phase is open.
        worst: The phase of which least is left.
    """

    who: str
    entry: str | None = None
    share: float | None = None
    kept: float | None = None
    owner: bool = False
    newest: ShareOfPhase | None = None
    worst: ShareOfPhase | None = None


class DatasetBudget(Reply):
    """The budget of a data set, according to its published ledger.

    Attributes:
        spent: The largest spent share of any phase's budget.
        left: The remaining share of that phase.
        looks: The number of looks at the rows.
        phases: The phases, oldest first.
        shares: The owner, the entries of ``analysts`` with the analysts who have paid, and the rest. Absent
            where everybody may spend all.
    """

    dataset: DatasetName
    spent: float
    left: float
    looks: int
    phases: tuple[PhaseBudget, ...]
    shares: tuple[ShareBudget, ...] | None = None


class Problem(Reply):
    """A reason why a request was not served, in the form of RFC 9457.

    Attributes:
        type: Always ``about:blank``; ``code`` tells the problems apart.
        title: The name of the status.
        status: The status of the reply.
        detail: The problem and how to fix it.
        code: The machine-readable code of the problem.
        retriable: Whether the same request may succeed later.
        field: The part of the request that is wrong.
        line: The line of the SQL that is wrong. ``column`` is the character.
    """

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    retriable: bool = False
    field: str | None = None
    line: int | None = None
    column: int | None = None
