"""Differences of two windows where a person is protected: each window is asked by itself."""

from __future__ import annotations

from dataclasses import replace

from stream_dp.core.mechanism import Quote
from stream_dp.core.outcome import Answered, Outcome, Refused, TableAnswered
from stream_dp.core.published.difference import difference_of
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.residual.plan.aim_rule import part_of_size, use_of
from stream_dp.errors import InvalidQuery
from stream_dp.pipeline.datasets.dataset import Dataset


def sides_of(dataset: Dataset, asked: AnyQuery) -> tuple[AnyQuery, ...]:
    """Returns what is asked of the mechanism: two queries for such a difference, or the query itself.

    Each query has half of the error, so that both together have no more than was asked for.

    Raises:
        InvalidQuery: The windows share phases.
    """
    both = asked.difference if isinstance(asked, LinearQuery) else None
    if dataset.definition.privacy.unit is None or both is None or not both[1] or both[0] == both[1]:
        return (asked,)  # the mechanism says what is wrong with the last two
    assert isinstance(asked, LinearQuery), "it has two windows"
    first, second = both
    if first.start < second.stop and second.start < first.stop:
        raise InvalidQuery(
            "minus_window",
            "it shares phases with the window, and where persons are protected each is asked by itself",
            'name other phases, such as {"previous_phases": 1}',
        )
    target, accuracy = asked.target, dataset.definition.accuracy
    if target.share is not None or accuracy.aim is None:
        error = accuracy.error if target.share is None else target.share
        target = replace(target, share=error / 2.0)
    side = replace(asked, target=target, difference=None)
    return replace(side, window=first), replace(side, window=second)


def outcome_of_both(dataset: Dataset, asked: AnyQuery, outcomes: list[Outcome]) -> Outcome:
    """Returns the difference that two answers make, or the refusal of one."""
    assert isinstance(asked, LinearQuery), "it has two windows"
    assert asked.difference is not None, "it has two windows"
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            return outcome
    first, second = outcomes
    assert isinstance(first, Answered | TableAnswered), "a count or a table"
    assert isinstance(second, Answered | TableAnswered), "a count or a table"
    found, aim = difference_of(first, second, asked.difference[1]), dataset.accounts.unasked.aim
    part = None if aim is None else part_of_size(asked, found, 1.0)
    if aim is None or part is None:
        return found
    return replace(found, use=use_of(part, aim, float("inf")))


def quote_of_both(quotes: list[Quote]) -> Quote:
    """Returns the price of both windows together. They share no line, and what grows is paid by line too."""
    for quote in quotes:
        if isinstance(quote.outcome, Refused):
            return quote
    bars = [quote.error_bar for quote in quotes if quote.error_bar is not None]
    mosts = [quote.most for quote in quotes if quote.most is not None]
    looked = any(quote.outcome is None for quote in quotes)
    return Quote(
        None if looked else quotes[0].outcome,
        tuple(charge for quote in quotes for charge in quote.charges),
        sum(bars) if len(bars) == len(quotes) else None,
        growth=tuple(charge for quote in quotes for charge in quote.growth),
        expected=any(quote.expected for quote in quotes),
        most=max(mosts, default=None),
        note="; ".join(dict.fromkeys(quote.note for quote in quotes if quote.note)) or None,
    )
