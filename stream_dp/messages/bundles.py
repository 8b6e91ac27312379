"""The reply to a quote for several queries together."""

from __future__ import annotations

from typing import Final, Literal

from stream_dp.messages.answer_forms import Answer, BudgetShares, PrivacyLoss, Reason
from stream_dp.messages.message_base import Reply

BUNDLE: Final = "bundle"
"""The ``kind`` of such a reply. No query has this kind."""

MOST_QUOTED: Final = 500
"""The most queries that one quote may price together."""


class PriceRange(Reply):
    """The price of several queries together, as shares of the line that pays most of it.

    Attributes:
        low: The share if all doubts resolve cheaply.
        high: The share if none does: equal to ``low`` without doubts.
        most: The most that they may take, whatever their looks find. Absent where that is ``high``.
    """

    low: float
    high: float
    most: float | None = None


class QuotedQuery(Reply):
    """The price of one query of a bundle after the queries before it.

    Attributes:
        query_id: The id of the query.
        kind: The kind of its answer.
        path: How its answer would come about.
        privacy_loss: Its part of ``high``; 0 if it is free.
        owner_pays: What the owner would be charged for later queries.
        error_bar: The largest error bar of its answer.
        expected: True if its price is an estimate.
        most: The largest share of any line that it may then take.
        note: What else you should know.
        reason: Why it would be refused.
    """

    query_id: str | None = None
    kind: str | None = None
    path: str | None = None
    privacy_loss: PrivacyLoss | None = None
    owner_pays: PrivacyLoss | None = None
    error_bar: float | None = None
    expected: bool | None = None
    most: float | None = None
    note: str | None = None
    reason: Reason | None = None


class QuotedBundle(Answer):
    """A quote for several queries: what they would cost if they were asked one after another now.

    Attributes:
        query_id: The id of the quote.
        together: What all queries would cost together, as shares of the line that pays most.
        owner_pays: What the owner would be charged for later queries.
        blocks: The number of blocks that would pay.
        queries: The queries in the order in which they were listed.
        phase: The number of open phases.
    """

    status: Literal["quoted"] = "quoted"
    kind: Literal["bundle"] = BUNDLE
    budget: BudgetShares
    together: PriceRange
    owner_pays: PrivacyLoss | None = None
    blocks: int
    queries: tuple[QuotedQuery, ...]
    phase: int
