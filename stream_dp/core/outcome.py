"""The outcomes that may be released: the only types that leave the core towards an analyst."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Difficulty(StrEnum):
    """Easy: answered from what was already published. Hard: the data had to be looked at."""

    EASY = "easy"
    HARD = "hard"


class Path(StrEnum):
    """The way in which an answer came about."""

    REPEAT = "repeat"
    CERTIFIED = "certified"
    BOUNDED = "bounded"
    GATED = "gated"
    MEASURED = "measured"
    UNVERIFIED = "unverified"

    @property
    def difficulty(self) -> Difficulty:
        return Difficulty.HARD if self is Path.MEASURED else Difficulty.EASY


class Useful(StrEnum):
    """Whether a decision can rest on an answer, where the data set says how precise one is worth having."""

    YES = "yes"
    ROUGH = "rough"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Use:
    """How useful an answer is. It follows from published values, and from the settings of the data set.

    Attributes:
        useful: Whether the answer is as precise as the data set aims at, rough, or of no use.
        aim_price: The share of a line that a look as precise as the data set aims at would take, which may be
            above 1. None where the answer is that precise, and where nobody can say.
        rough_price: The same for a rough answer. None where the answer is that precise, too.
        part: The widest bar as a part of the size that the answer has. Infinite where nothing bounds it.
        guarded: Whether a look was affordable but for what may be taken unasked by now.
    """

    useful: Useful
    part: float
    aim_price: float | None = None
    rough_price: float | None = None
    guarded: bool = False


class Side(StrEnum):
    """The side on which a noisy count lies."""

    BELOW = "below"
    BETWEEN = "between"
    ABOVE = "above"


def ends_of(estimate: float, bar: float | None, least: float, most: float) -> tuple[float, float]:
    """The ends between which a number lies wherever it is within its bar: docs/proofs, Theorem 25.

    They are never both the least number, or both the largest one, unless the bar is 0.

    Args:
        estimate: The number as it was estimated, which may be impossible.
        bar: The half width around it. None where nothing is known.
        least: The least number that is possible.
        most: The largest number that is possible.
    """
    if bar is None:
        return least, most
    room = min(bar / 3.0, most - least)
    return (
        min(max(estimate - bar, least), most - room),
        max(min(estimate + bar, most), least + room),
    )


@dataclass(frozen=True, slots=True)
class RowsThatCount:
    """The rows of a window that count, where only some rows of each person do.

    Attributes:
        rows: Estimated rows that count.
        rows_bar: Half width, in rows.
        surplus_at_most: The largest share of the rows of the window that do not count, but for the failure
            probability of an answer.
        share: The answer as a share of the rows that count; None where perhaps none does.
        share_bar: Half width of the share; None where none is known.
    """

    rows: float
    rows_bar: float
    surplus_at_most: float
    share: float | None = None
    share_bar: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """A noisy answer to one predicate query over a window.

    Attributes:
        estimate: Estimated rows that satisfy the predicate. It may be below 0, or above n.
        n: Rows in the window; public.
        error_bar: Half width, as a share of ``n``, for a query fixed beforehand; None where none is known.
        error_bar_simultaneous: The same for all predicates of the served class at once.
        confidence: Probability with which ``error_bar`` covers.
        error_bar_anytime: The same for all answers to this query at once, whenever it is asked; None where
            no such bar is known.
        among: What is known of the rows that count; None where all rows do.
        use: How useful the answer is. None where the data set does not say what it aims at.
    """

    estimate: float
    n: int
    error_bar: float | None
    error_bar_simultaneous: float | None
    confidence: float
    path: Path
    error_bar_anytime: float | None = None
    among: RowsThatCount | None = None
    use: Use | None = None

    @property
    def count(self) -> float:
        """The estimated rows, in [0, n]."""
        return min(float(self.n), max(0.0, self.estimate))

    @property
    def value(self) -> float:
        return self.count / self.n

    @property
    def ends(self) -> tuple[float, float]:
        """The fewest and the most rows, wherever the error bar covers."""
        bar = None if self.error_bar is None else self.error_bar * self.n
        return ends_of(self.estimate, bar, 0.0, float(self.n))


@dataclass(frozen=True, slots=True)
class TableAnswered:
    """Noisy answers to a table query: one cell for each combination of the grouped attributes.

    Attributes:
        cells: One answer a cell, row-major in the order the attributes were asked in.
        shape: Cells of each grouped attribute.
        use: How useful the answer is. None where the data set does not say what it aims at.
        wider: The bars of all cells hold at once if each is this many times as wide. None where nobody knows.
        apart: Rows. If two counts differ by more, the larger one is surely of more rows, for all pairs of
            cells at once. None where only bars tell.
    """

    cells: tuple[Answered, ...]
    shape: tuple[int, ...]
    path: Path
    use: Use | None = None
    wider: float | None = None
    apart: float | None = None


def use_of_outcome(outcome: object) -> Use | None:
    """How useful an outcome is; None where the data set does not say what it aims at."""
    match outcome:
        case Answered() | TableAnswered() | Summed() | Differences() | Quantiles():
            return outcome.use
    return None


def widest_bar(outcome: object) -> float | None:
    """The largest error bar of a count, table, difference or rank, as a share; None where one is unknown."""
    match outcome:
        case Answered():
            return outcome.error_bar
        case TableAnswered():
            return _widest([cell.error_bar for cell in outcome.cells])
        case Differences():
            return _widest([cell.share_bar for cell in outcome.cells])
        case Quantiles():
            bars = [cell.bar for cell in outcome.cells]
            return _widest([None if bar is None else bar / outcome.n for bar in bars])
    return None


def width(outcome: object) -> float:
    """The largest error bar, as a share; infinite where one is not known."""
    bar = widest_bar(outcome)
    return math.inf if bar is None else bar


def _widest(bars: list[float | None]) -> float | None:
    known = [bar for bar in bars if bar is not None]
    return max(known) if known and len(known) == len(bars) else None


@dataclass(frozen=True, slots=True)
class Sum:
    """A noisy sum over the rows that count, and their mean.

    Attributes:
        count: Estimated rows that count; in [0, n].
        count_bar: Half width, in rows; None where none is known.
        total: Estimated sum, within what rows can add up to.
        total_bar: Half width, in the attribute's own unit.
        mean: ``total / count``, within the values that are summed; None where nothing is known of it.
        mean_bar: Half width.
        rows: Estimated rows that satisfy the condition, those without a number included; in [0, n]. None
            where the query does not count them.
        rows_bar: Half width, in rows; None where none is known.
        count_ends: The fewest and the most rows that count, wherever the bar covers.
        total_ends: The least and the largest sum.
        mean_ends: The least and the largest mean; None where nothing is known of it.
    """

    count: float
    count_bar: float | None
    total: float
    total_bar: float | None
    mean: float | None
    mean_bar: float | None
    rows: float | None = None
    rows_bar: float | None = None
    count_ends: tuple[float, float] = (0.0, 0.0)
    total_ends: tuple[float, float] = (0.0, 0.0)
    mean_ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Summed:
    """The answer to a query with a total: one sum, or one a cell of a table.

    Attributes:
        cells: Row-major in the order the attributes were asked in.
        n: Rows in the window; public.
        confidence: Probability with which each bar covers, for a query fixed beforehand.
        among: What is known, for each cell, of the rows that count; empty where all rows do.
        use: How useful the answer is. None where the data set does not say what it aims at.
    """

    cells: tuple[Sum, ...]
    n: int
    confidence: float
    path: Path
    among: tuple[RowsThatCount, ...] = ()
    use: Use | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A noisy difference of two windows: the share of a condition in one, minus that in the other.

    Attributes:
        share: The estimated difference of shares; in [-1, 1].
        share_bar: Half width; None where none is known.
        count: The estimated difference of counts, in rows.
        count_bar: Half width, in rows; None where none is known.
        larger: The larger of the two estimated shares.
    """

    share: float
    share_bar: float | None
    count: float
    count_bar: float | None
    larger: float = 0.0


@dataclass(frozen=True, slots=True)
class Differences:
    """The answer to a query about two windows: one difference, or one a cell of a table.

    Attributes:
        cells: Row-major in the order the attributes were asked in.
        n_rows: Rows of each window; public.
        minus: The blocks of the window that is taken away.
        confidence: Probability with which each bar covers, for a query fixed beforehand.
        use: How useful the answer is. None where the data set does not say what it aims at.
    """

    cells: tuple[Difference, ...]
    n_rows: tuple[int, int]
    minus: range
    confidence: float
    path: Path
    use: Use | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One cell of an attribute: a quantile, a median, the most frequent one; or no answer.

    Attributes:
        attribute: Index.
        code: The cell; None for "no answer", which is an answer and was paid for.
        n: Rows in the window; public.
        rank_error: For a quantile: the largest distance to its rank, as a share of ``n``; None where none is
            known.
        confidence: Probability with which ``rank_error`` covers; None without one.
    """

    attribute: int
    code: int | None
    n: int
    rank_error: float | None
    confidence: float | None
    path: Path


@dataclass(frozen=True, slots=True)
class Quantile:
    """The bins of an attribute that a quantile lies in.

    Attributes:
        likely: The likely bin, or the first and the last of several that were not told apart. None where the
            quantile may lie in any bin, or no row can count.
        first: The first bin that it may lie in.
        last: The last bin that it may lie in.
        bar: The largest half width, in rows, around the number of rows by which a bin passes the rank. None
            where none is known.
        rows: Estimated rows that count.
    """

    likely: tuple[int, int] | None
    first: int
    last: int
    bar: float | None
    rows: float

    @property
    def rank_error(self) -> float | None:
        """``bar`` as a share of the rows that count; None where that is not below 1."""
        return self.bar / self.rows if self.bar is not None and self.bar < self.rows else None


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The answer to a query for a quantile: one, or one a cell of a table.

    Attributes:
        attribute: Index.
        cells: Row-major in the order the attributes were asked in.
        n: Rows in the window; public.
        confidence: Probability with which each quantile lies in its bins, for a query fixed beforehand.
        among: What is known of the rows that count; None where all rows do.
        use: How useful the answer is. None where the data set does not say what it aims at.
    """

    attribute: int
    cells: tuple[Quantile, ...]
    n: int
    confidence: float
    path: Path
    among: RowsThatCount | None = None
    use: Use | None = None


@dataclass(frozen=True, slots=True)
class BatchAnswered:
    """Noisy answers to a batch of conditions, all with the same error.

    Attributes:
        values: Share of each condition, in the order asked; in [0, 1].
        n: Rows in the window; public.
        error_bar: Half width, as a share of ``n``, for all of them at once.
        confidence: Probability with which it covers.
    """

    values: tuple[float, ...]
    n: int
    error_bar: float
    confidence: float
    path: Path


@dataclass(frozen=True, slots=True)
class Responses:
    """A public sign for each row of a window, that agrees a little with its private bit.

    Attributes:
        bits: 1 where the sign is +1, packed, rows in order of arrival, the first one's the highest bit of the
            first byte.
        n: Rows in the window; public.
        agreement: Mean of the product of a row's sign with that of its bit.
        error_bar: Half width of what the signs say about the mean product of the private signs with one
            vector of signs, fixed beforehand; None where it says nothing.
        confidence: Probability with which ``error_bar`` covers.
    """

    bits: bytes = field(repr=False)
    n: int
    agreement: float
    error_bar: float | None
    confidence: float
    path: Path


@dataclass(frozen=True, slots=True)
class Placed:
    """The side of two thresholds on which a count lies, or the side of the rows on which a point lies.

    Attributes:
        n: Rows in the window; public.
        error_bar: The distance by which the count may be on the other side, as a share of ``n``. None if none
            is known or needed.
        confidence: Probability with which ``side`` holds so; None where none is known.
        attribute: Index; None for a count.
        code: The point that was kept, once there is one.
    """

    side: Side
    n: int
    error_bar: float | None
    confidence: float | None
    path: Path
    attribute: int | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the rows of older phases do not say of a query, because their attributes were other ones.

    Attributes:
        since: The first block from which on all is recorded that the query asks, to the end of its window. It
            may be the one after that.
        at_most: How many more rows than are counted may satisfy the query, at the most: for each answer.
            Empty where all is recorded, or where it is not told.
        clamped_until: The block after the last one whose values count within bounds that are wider now, in a
            sum. 0 where there is none.
        numbers: The indices that the attribute of a sum has in its window, the newest last.
    """

    since: int
    at_most: tuple[float, ...] = ()
    clamped_until: int = 0
    numbers: tuple[int, ...] = ()


class RefusalCode(StrEnum):
    """The reason why nothing is released. Every reason follows from public facts only."""

    INVALID_QUERY = "invalid_query"
    UNKNOWN_ATTRIBUTE = "unknown_attribute"
    CUTS_BIN = "cuts_bin"
    TOO_MANY_CELLS = "too_many_cells"
    NO_PHASE = "no_phase"
    NOT_RECORDED = "not_recorded"
    NOT_COMPLETE = "not_complete"
    NOT_RUNNING = "not_running"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SHARE_SPENT = "share_spent"
    ROWS_ERASED = "rows_erased"
    ROWS_GONE = "rows_gone"
    ROWS_CHANGED = "rows_changed"
    PRICE_TOO_HIGH = "price_too_high"
    QUERIES_EXHAUSTED = "queries_exhausted"
    HARD_QUERIES_EXHAUSTED = "hard_queries_exhausted"
    INCONSISTENT = "inconsistent"
    WINDOW_TOO_SMALL = "window_too_small"
    UNSUPPORTED_KIND = "unsupported_kind"
    RETIRED = "retired"
    RETRY_AFTER = "retry_after"


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why there is no answer. A refusal is an outcome, not an exception."""

    code: RefusalCode
    message: str
    retriable: bool = False


Outcome = (
    Answered
    | TableAnswered
    | Summed
    | Differences
    | Found
    | Quantiles
    | BatchAnswered
    | Responses
    | Placed
    | Refused
)
