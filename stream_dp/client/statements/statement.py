"""One text in SQL, from what somebody wrote to the queries that it asks and the table that they give.

The page, the terminal, files of queries, the HTTP API, the driver and programs all come this way.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stream_dp.client.statements.result_table import Refusal, ResultTable
from stream_dp.client.statements.written_query import with_window
from stream_dp.errors import InvalidInput
from stream_dp.messages import Answer, NoisyAnswer, RefusedAnswer

if TYPE_CHECKING:
    from stream_dp.client.kafka.exchange import Rejection
    from stream_dp.sql import StatementPlan


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is ready to be asked.

    Attributes:
        text: The SQL.
        dataset: The data set, or the public table, that it asks.
        plan: How its table follows from answers. None about public tables.
        items: The fields of its queries' messages, with ids. Empty if nothing is asked.
        at_most: The largest share of any phase's budget that its queries may take together. None for no limit
            but those of the queries.
        public: Its table, if it is about public tables alone.
    """

    text: str
    dataset: str
    plan: StatementPlan | None
    items: tuple[dict[str, Any], ...] = ()
    at_most: float | None = None
    public: ResultTable | None = None

    def table(self, replies: Sequence[Answer | Rejection]) -> ResultTable | Refusal | Rejection:
        """Returns the table, or why there is none.

        Args:
            replies: The replies to ``items``, in their order.
        """
        if self.public is not None:
            return self.public
        from stream_dp.client.statements.statement_table import evaluate  # sqlglot is slow to load

        assert self.plan is not None, "it asks a data set"
        answers: list[NoisyAnswer] = []
        for reply in replies:
            if isinstance(reply, RefusedAnswer):
                return Refusal(_with_all_cuts(reply, replies))
            if not isinstance(reply, Answer):
                return reply
            assert isinstance(reply, NoisyAnswer), "no quote was asked for"
            answers.append(reply)
        return evaluate(self.plan, self.dataset, answers)


def _with_all_cuts(refused: RefusedAnswer, replies: Sequence[Answer | Rejection]) -> RefusedAnswer:
    """Returns a refusal that says all bins which queries of its statement cut, if it is of a cut bin."""
    reason = refused.reason
    said = dict.fromkeys(
        piece
        for reply in replies
        if isinstance(reply, RefusedAnswer) and reply.reason.code == reason.code == "cuts_bin"
        for piece in re.split(r"; (?=this cuts )", reply.reason.message.partition(": ")[2])
    )
    if not said:
        return refused
    path = reason.message.partition(": ")[0]
    message = f"{path}: {'; '.join(said)}"
    return refused.model_copy(update={"reason": reason.model_copy(update={"message": message})})


def statement_of(
    text: str,
    dataset: str,
    plan: StatementPlan,
    *,
    query_id: str | None,
    last_phases: int | None,
    window: Mapping[str, Any] | None,
    at_most: float | None,
) -> Statement:
    """Returns the statement of a plan, about a window.

    Raises:
        InvalidInput: The SQL names a window or a limit too.
    """
    if at_most is not None and (
        plan.at_most is not None or any("at_most" in query for query in plan.queries)
    ):
        raise InvalidInput("at_most", "the SQL says it too", "say it once")
    base = query_id or uuid.uuid4().hex
    several = len(plan.queries) > 1
    items = tuple(
        with_window(
            {"query_id": f"{base}.{index}" if several else base, **fields}, last_phases, window
        )
        for index, fields in enumerate(plan.queries)
    )
    limit = at_most if at_most is not None else plan.at_most
    return Statement(text, dataset, plan, items, limit)
