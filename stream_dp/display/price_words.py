"""Prices and budgets in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_dp.display.answer_words import PATHS, in_sql
from stream_dp.display.figure_text import share, within
from stream_dp.messages import (
    BudgetShares,
    NoisyAnswer,
    PrivacyLoss,
    QuotedAnswer,
    QuotedBundle,
    QuotedQuery,
)

NOTHING_ASKED: Final = "would be free: nothing is asked, because it follows from public facts alone"
_CANNOT_BE_HAD: Final = (
    "cannot be had: no look that it may pay for is precise enough; asked all the same, it costs nothing, and "
    "may be further off than its error bar says"
)


def path_in_words(path: str | None) -> str:
    """Says how an answer came about, or would."""
    return PATHS.get(path or "", "a newer path")


def cost(part: float) -> str:
    """What was paid, as a share of a line."""
    return f"cost {share(part)} of a phase's budget" if part else "free"


def left(budget: BudgetShares) -> str:
    """Says how much of a line is left: to the analyst, where analysts have shares, and in all."""
    if budget.yours is None:
        return f"{share(budget.left)} of the budget left"
    return f"{share(budget.yours.left)} of the budget left to you, {share(budget.left)} in all"


def least_left(answers: Sequence[NoisyAnswer]) -> str:
    """What is left after some answers, where that is least."""
    budgets = [answer.budget for answer in answers]
    return left(min(budgets, key=lambda one: ((one.yours or one).left, one.left)))


def also(owner_pays: PrivacyLoss | None) -> list[str]:
    """What the data set measures more because of an answer."""
    if owner_pays is None:
        return []
    return [f"also: the data set measures more ({share(owner_pays.share)}, the owner pays)"]


def price_of(quote: QuotedAnswer | QuotedQuery) -> str:
    """What one query would cost, and how precise its answer would be."""
    paid = 0.0 if quote.privacy_loss is None else quote.privacy_loss.share
    if cannot_be_had(quote):
        return _CANNOT_BE_HAD
    about = "about " if quote.expected else ""
    price = f"would cost {about}{share(paid)} of a phase's budget" if paid else "would be free"
    if quote.most is not None:
        price += f" and {share(quote.most)} at most"
    if quote.error_bar is None:
        return price
    of = "of the largest possible sum" if (quote.kind or "").startswith("sum") else "of the rows"
    return f"{price}, for {about}{within(quote.error_bar)} {of}"


def part_of_price(query: QuotedQuery) -> tuple[str, str]:
    """The price of one query of several, and the reason for it."""
    if query.privacy_loss is None:
        return "refused", "" if query.reason is None else query.reason.message
    paid = query.privacy_loss.share
    price = share(paid) if paid else "cannot be had" if cannot_be_had(query) else "free"
    if query.most is not None:
        price = f"about {price}, {share(query.most)} at most"
    how = path_in_words(query.path)
    return price, f"{how}; {in_sql(query.note)}" if query.note else how


def price_of_all(bundle: QuotedBundle) -> str:
    """What the queries of a quote would cost together, and what would be left."""
    low, high, most = bundle.together.low, bundle.together.high, bundle.together.most
    n, without = len(bundle.queries), sum(map(cannot_be_had, bundle.queries))
    rest = (
        f"{without} of them cannot be had; {left(bundle.budget)}"
        if without
        else left(bundle.budget)
    )
    queries = f"{n} quer{'y' if n == 1 else 'ies'} together"
    if not high:
        return f"{queries} {'would take nothing' if without else 'would be free'}; {rest}"
    price = share(high) if share(low) == share(high) else f"{share(low)} to {share(high)}"
    price = price if most is None else f"about {price}, and {share(most)} at most,"
    phases = f"{bundle.blocks} phase{'' if bundle.blocks == 1 else 's'}"
    return f"{queries} would cost {price} of a phase's budget ({phases} would pay); {rest}"


def quote_in_words(quote: QuotedAnswer | QuotedBundle) -> str:
    """A quote in one line. Of several queries it is what all of them cost together."""
    if isinstance(quote, QuotedAnswer):
        return f"{price_of(quote)}; {left(quote.budget)}"
    if len(quote.queries) == 1 and quote.queries[0].privacy_loss is not None:
        return f"{price_of(quote.queries[0])}; {left(quote.budget)}"
    return price_of_all(quote)


def cannot_be_had(query: QuotedAnswer | QuotedQuery) -> bool:
    """Whether a query would be refused, or answered without a look that it would need."""
    lost = query.privacy_loss
    return lost is None or (query.path == "unverified" and not lost.share)
