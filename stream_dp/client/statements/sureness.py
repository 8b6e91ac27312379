"""What is sure of the rows of a table that published values choose: their ranks, and whether HAVING holds.

A value is somewhere between two ends. So a comparison may hold, or not, or both are possible.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stream_dp.client.statements.result_table import ENDS, Column, Value
from stream_dp.messages import NoisyAnswer

if TYPE_CHECKING:  # sqlglot is slow to load
    from stream_dp.client.statements.table_rows import TableRow
    from stream_dp.sql.plan.statement_plan import StatementPlan

Ends: TypeAlias = tuple[float, float]
"""The least and the largest number that a value may be."""

Truth: TypeAlias = bool | None
"""What a condition comes to; None where it is unknown, as for a missing value."""

_USES: Final = {
    "yes": "precise enough",
    "rough": "rough",
    "no": "not precise enough to use",
}

_PRICE: Final = re.compile(r": name at_most ([0-9.e-]*[0-9])")

_FEW: Final = 3
"""The most groups or periods that a text names."""

SURE: Final = 0.9 - 1e-9
"""The least confidence with which people read what is sure. The 1e-9 is for how floats add up."""

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


_STATES: Final[Mapping[str, Truth]] = {"is_true": True, "is_false": False, "is_unknown": None}

CONNECTIVES: Final = ("and", "or", "not", *_STATES)


def connected(name: str, parts: Sequence[set[Truth]]) -> set[Truth]:
    """Returns what a condition on conditions may come to, if each of them may come to any of its own."""
    if name in _STATES:
        return {truth is _STATES[name] for truth in parts[0]}
    if name == "not":
        return {None if truth is None else not truth for truth in parts[0]}
    decisive = name == "or"
    found = set[Truth]()
    if any(decisive in part for part in parts):
        found.add(decisive)
    if all((not decisive) in part for part in parts):
        found.add(not decisive)
    if any(None in part for part in parts) and all(part - {decisive} for part in parts):
        found.add(None)
    return found


def compared(name: str, one: Ends, other: Ends) -> set[Truth]:
    """Returns what a comparison may come to for values between these ends."""
    if name in ("=", "<>"):
        meet = one[0] <= other[1] and other[0] <= one[1]
        alike = one == other and one[0] == one[1]
        equal = {alike} if alike or not meet else {True, False}
        return {same is (name == "=") for same in equal}
    holds = COMPARISONS[name]
    return {holds(one[0], other[1]), holds(one[1], other[0])}


def ranks(ends: Sequence[Ends], members: Collection[int]) -> list[tuple[int, int]]:
    """Returns the least and the largest rank that each value may have, from the largest value on.

    Args:
        ends: The ends of each value. Two values differ for sure if these do not meet.
        members: The positions of the values that surely count. All others may or may not.
    """
    lows = sorted(ends[index][0] for index in members)
    highs = sorted(high for _, high in ends)
    return [
        (1 + len(lows) - bisect_right(lows, high), len(ends) - bisect_left(highs, low))
        for low, high in ends
    ]


def rank_in_words(rank: tuple[int, int], n: int, limit: int | None) -> str:
    """Says which rank a row has.

    Args:
        rank: The least and the largest rank that it may have.
        n: The number of rows that may have a rank.
        limit: The number of first rows that are shown. None where rows are left out before these.
    """
    first, last = rank
    if n > 1 and rank == (1, n):
        return "cannot be told apart"
    said = f"{first}" if first == last else f"{first} to {last}"
    return (
        f"{said}, surely in the first {limit}" if limit is not None and last <= limit < n else said
    )


def use_in_words(answer: NoisyAnswer, *, n_queries: int = 1) -> str | None:
    """Says whether a decision can rest on an answer, and what more would take; None where nothing says so.

    Args:
        answer: The answer.
        n_queries: The number of queries of the statement.
    """
    said = _USES.get(answer.useful or "")
    if said is None or answer.suggestion is None:
        return said
    return f"{said}: {in_sql(answer.suggestion, n_queries=n_queries)}"


def in_sql(said: str, *, n_queries: int = 1) -> str:
    """Returns a text of a message about prices with the words of SQL.

    Args:
        said: The text.
        n_queries: The number of queries of the statement, which have equal parts of its price.
    """

    def price(found: re.Match[str]) -> str:
        percent = 100.0 * n_queries * float(found[1])
        return f": add COSTING AT MOST {percent:g}%" if percent <= 100.0 else alone

    alone = ": ask in a statement of its own" if n_queries > 1 else ""
    said = _PRICE.sub(price, said)
    return re.sub(r"\bat_most\b", "COSTING AT MOST", said)


def use_of_all_in_words(
    answers: Sequence[NoisyAnswer], *, n_queries: int = 1, is_series: bool = False
) -> str | None:
    """Says the same of the least useful of some answers; None where all of them are precise enough.

    Args:
        answers: The answers.
        n_queries: The number of queries of the statement.
        is_series: Whether they are about periods, which are named then.
    """
    found = [answer for answer in answers if answer.useful in ("no", "rough")]
    if not found:
        return None
    worst = min(found, key=lambda each: (each.useful == "rough", -(each.aim_price or 0.0)))
    like = [answer for answer in found if answer.useful == worst.useful]
    where = f" ({_periods_of(like)})" if is_series else ""
    some = f"some values{where} are " if len(like) < len(answers) else ""
    return f"{some}{use_in_words(worst, n_queries=n_queries)}"


def _periods_of(answers: Sequence[NoisyAnswer]) -> str:
    """Names what the first of some parts of series are about, by their first days or their phases."""
    each = [
        f"from {answer.since[:10]}"
        if answer.since
        else f"phases {answer.window[0]} to {answer.window[1]}"
        for answer in answers
    ]
    return few_of(list(dict.fromkeys(each)))


def few_of(names: Sequence[str]) -> str:
    """Returns the first of some names, and how many more there are."""
    more = f"; and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return "; ".join(names[:_FEW]) + more


@dataclass(frozen=True, slots=True)
class Sureness:
    """What is sure of the groups of a table.

    Attributes:
        ranks: The least and the largest rank of each group that may satisfy HAVING. Empty where nothing is
            ranked.
        holds: What HAVING may come to for each group. None where it is sure, or nothing is.
        confidence: The least probability with which all of this holds at once. Where it is low, no rank is
            shown: one that says nothing is true all the same.
    """

    ranks: Mapping[TableRow, tuple[int, int]]
    holds: Mapping[TableRow, set[Truth]] | None
    confidence: float

    def columns(
        self, plan: StatementPlan, rows: Sequence[TableRow], taken: set[str]
    ) -> Iterator[tuple[Column, list[Value]]]:
        """Yields the columns that say what is sure of some rows, with names that are not taken."""
        if self.shows_ranks:
            limit, name = None if plan.offset else plan.limit, _free("rank", taken)
            found = [self.ranks[row] for row in rows]
            said: list[Value] = [rank_in_words(rank, len(self.ranks), limit) for rank in found]
            yield Column(name, "text", sure_of="ORDER BY"), said
            for end, ranks_at_end in zip(ENDS, zip(*found, strict=True), strict=False):
                column = Column(f"{name}{end}", "integer", end_of=name, sure_of="ORDER BY")
                yield column, list(ranks_at_end)

    @property
    def shows_ranks(self) -> bool:
        """Whether ranks are shown."""
        return bool(self.ranks) and self.confidence >= SURE

    def tell_nothing_of(self, rows: Sequence[TableRow]) -> bool:
        """Returns whether these first rows may as well be any others."""
        n = len(self.ranks)
        return 0 < len(rows) < n and all(self.ranks.get(row) == (1, n) for row in rows)

    def notes(self) -> Iterator[str]:
        """Yields of how many groups something is sure, and with which confidence."""
        if self.shows_ranks or self.holds is not None:
            names = ["ranks"] * self.shows_ranks + ["what HAVING says"] * (self.holds is not None)
            yield (
                f"{' and '.join(names)} of all groups {'are' if self.shows_ranks else 'is'} sure at once, "
                f"with a confidence of at least {100 * self.confidence:.6g}%"
            )
        if self.holds is not None:
            n_yes = sum(truths == {True} for truths in self.holds.values())
            n_no = sum(True not in truths for truths in self.holds.values())
            yield (
                f"of {len(self.holds):,} groups HAVING surely holds for {n_yes:,} and surely not for "
                f"{n_no:,}; of the other {len(self.holds) - n_yes - n_no:,} it cannot be told, so they are "
                "not shown"
            )


def _free(name: str, taken: set[str]) -> str:
    """Returns a name for a column that no other one has."""
    return name if name not in taken else _free(f"{name}_", taken)
