"""Replies to queries: a refusal, a quote, and the forms of answers that several kinds share."""

from __future__ import annotations

from typing import Final, Literal

from stream_dp.messages.message_base import Reply


class Reason(Reply):
    """Why nothing was released. It follows from public facts only.

    Attributes:
        code: What is wrong, for programs.
        message: What is wrong and how to fix it, in words.
        retriable: Whether the same query may be answered later, under a new id.
    """

    code: str
    message: str
    retriable: bool = False


class OwnShare(Reply):
    """The part of a line that an analyst may spend, as shares of the line.

    The line is the one of which the analyst can spend least now among the phases asked.

    Attributes:
        spent: What the analyst has charged to the line of which least is left to them.
        left: What they may still charge to it now.
    """

    spent: float
    left: float


class BudgetShares(Reply):
    """The spent and the remaining part of a line (the privacy budget of a block), as shares that add up to 1.

    The line is the one that is spent most among the phases asked.

    Attributes:
        spent: The part spent of the line that has spent most.
        left: The part left of it.
        yours: What the analyst who asks has spent and may still charge, where least is left to them.
    """

    spent: float
    left: float
    yours: OwnShare | None = None


class PrivacyLoss(Reply):
    """The cost of an answer, as a share of a line: the largest share among the blocks that paid.

    Attributes:
        share: The cost, as the largest share of a line that paid.
        blocks: The number of blocks that paid.
    """

    share: float
    blocks: int = 0


# ---------------------------------------------------------------- parts of answers

_PLURALS: Final = {
    **{name: name for name in ("both", "rows", "found", "lies_in", "unrecorded_at_most")},
    "error_bar_simultaneous": "error_bars_simultaneous",
    "error_bar_anytime": "error_bars_anytime",
}


def plural(name: str) -> str:
    """The column of a table that holds a field of its cells."""
    return _PLURALS.get(name, f"{name}s")


READ_EACH: Final = 50
"""The most cells of a table that is read cell by cell. Of larger ones, people see what is surely there."""


class Table(Reply):
    """The cells of a GROUP BY, row by row in the order of ``attributes``.

    Attributes:
        attributes: The grouped attributes.
        labels: The labels of each attribute.
        values: The share of the rows asked in each cell.
        counts: The estimated rows in each cell.
        count_bars: The half width around each count. Only where a person is protected.
        error_bars: The half width around each value.
        error_bars_simultaneous: The half widths that hold for all conjunctions at once.
        error_bars_anytime: The half widths that hold whenever the table is asked.
        lows: The fewest rows in each cell.
        highs: The most rows in each cell.
        wider: The factor by which bars must be wider so that all hold at once.
        apart: If two counts differ by more rows, the larger one is surely larger, for all pairs at once.
        unrecorded_at_most: The most rows of phases before ``recorded_since`` that may be in each cell
            besides.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    error_bars: tuple[float | None, ...]
    error_bars_simultaneous: tuple[float | None, ...] = ()
    error_bars_anytime: tuple[float | None, ...] | None = None
    count_bars: tuple[float | None, ...] | None = None
    lows: tuple[int, ...] | None = None
    highs: tuple[int, ...] | None = None
    wider: float | None = None
    apart: float | None = None
    unrecorded_at_most: tuple[int, ...] | None = None


class FoundCell(Reply):
    """One cell of the attribute that was asked about.

    Attributes:
        label: The label of the cell, as in tables.
        low: The least value in the cell. Absent if there is none.
        high: All values in the cell are below this. Absent if there is none.
        place: The position of the cell in the attribute, from 0. Only of quantiles.
    """

    label: str
    low: float | None = None
    high: float | None = None
    place: int | None = None


# ---------------------------------------------------------------- what all answers share


class Answer(Reply):
    """A reply to a query. Its class says what it holds.

    ``RefusedAnswer`` holds a reason, ``QuotedAnswer`` a price, and every subclass of ``NoisyAnswer`` the
    answer to one kind of query::

        match client.ask("people", "age >= 30"):
            case CountAnswer(value=value, error_bar=error_bar):
                print(value, error_bar)
            case RefusedAnswer(reason=reason):
                print(reason.message)

    Attributes:
        dataset: The data set that was asked.
        query_id: The id of the query.
        analyst: Who asked.
        status: Whether this is an answer, a refusal or a quote.
        kind: The kind of the answer.
        budget: The budget of the phase asked that has spent most.
    """

    version: Literal[1] = 1
    dataset: str
    query_id: str
    analyst: str
    status: Literal["answered", "refused", "quoted"]
    kind: str | None = None
    budget: BudgetShares | None = None


class RefusedAnswer(Answer):
    """A refusal.

    Attributes:
        reason: Why there is no answer. It is final for this ``query_id``.
    """

    status: Literal["refused"] = "refused"
    reason: Reason


class PeriodSoFar(Reply):
    """An open period whose rows so far count in an answer.

    Attributes:
        since: When the period begins.
        until: The newest tick. Rows that came later do not count yet.
        rows: The number of rows that had come by then.
    """

    since: str
    until: str
    rows: int


class PricedAnswer(Answer):
    """The base of answers and quotes.

    Attributes:
        n: The number of rows asked.
        difficulty: ``hard`` if the rows were looked at, otherwise ``easy``.
        path: How the answer came about.
        privacy_loss: The cost.
        owner_pays: What the owner is charged for later queries.
        phase: The number of open phases.
        window: The first and the last phase asked.
        since: When these phases begin, as a date or with an offset.
        until: When they have ended.
        running: The open periods that count. ``n`` includes their rows, and ``window`` the phase that opens
            next; ``until`` is the newest tick.
        late_waiting: The number of late rows that wait for these phases, and do not count yet.
        complete_at: From when on no more late rows come to these phases. Absent if none can.
        changed_at_most: The most rows of these phases that were erased or corrected. A hard answer is about
            the rows that are left; an easy one may be about those before.
        note: What else you should know.
    """

    n: int
    difficulty: Literal["easy", "hard"]
    path: str
    privacy_loss: PrivacyLoss
    owner_pays: PrivacyLoss | None = None
    budget: BudgetShares
    phase: int
    window: tuple[int, int]
    since: str | None = None
    until: str | None = None
    running: tuple[PeriodSoFar, ...] | None = None
    late_waiting: int | None = None
    complete_at: str | None = None
    changed_at_most: int | None = None
    note: str | None = None


class QuotedAnswer(PricedAnswer):
    """A quote: what the answer would cost now, and how precise it would be.

    Attributes:
        error_bar: The half width of the answer; the largest one of a table. For a sum it is a share of the
            largest sum that the rows could have; for a share, that of ``both``.
        expected: True if price and bar are estimates. Otherwise they are exact.
        most: The largest share of any line that the answer may take.
    """

    status: Literal["quoted"] = "quoted"
    error_bar: float | None = None
    expected: bool | None = None
    most: float | None = None


class NoisyAnswer(PricedAnswer):
    """A noisy answer; each kind has a class of its own.

    Where a person is protected, only some rows of each person count. Every count is then one of rows that
    count. Every share is one of these rows, and so is the half width around it, in place of one of the ``n``
    rows. The fields from ``counted`` on are None in other data sets.

    Attributes:
        confidence: The probability that the bars hold. Absent where nothing is promised.
        counted: The estimated number of the ``n`` rows that count.
        counted_bar: The half width around ``counted``.
        surplus_at_most: The largest share of the ``n`` rows that do not count.
        useful: Whether a decision can rest on it: ``yes`` within ``accuracy.aim``, ``rough`` within
            ``accuracy.rough``, or ``no``.
        aim_price: The share of a line for an answer within ``aim``.
        rough_price: The share of a line for one within ``rough``.
        suggestion: What to ask instead, in words.
        least_cell: The ``least_cell`` of the definition.
        recorded_since: The first phase from which on rows say all that is asked, if earlier ones do not.
    """

    status: Literal["answered"] = "answered"
    confidence: float | None = None
    counted: int | None = None
    counted_bar: float | None = None
    surplus_at_most: float | None = None
    useful: Literal["yes", "rough", "no"] | None = None
    aim_price: float | None = None
    rough_price: float | None = None
    suggestion: str | None = None
    least_cell: int | None = None
    recorded_since: int | None = None


# ---------------------------------------------------------------- forms: what several kinds share


class CountAnswer(NoisyAnswer):
    """The number of rows that satisfy a condition.

    Attributes:
        value: The share of the ``n`` rows, in [0, 1].
        count: The estimated number of rows. It may pass 2**53.
        count_bar: The half width around ``count``. Only where a person is protected.
        error_bar: The half width around ``value``, for a query that was chosen beforehand.
        error_bar_simultaneous: The half width for one that was chosen after looking at answers.
        low: The fewest rows, wherever ``error_bar`` covers: never below 0.
        high: The most rows, wherever ``error_bar`` covers.
        unrecorded_at_most: How many more rows, of phases before ``recorded_since``, may satisfy the
            condition.
    """

    value: float
    count: int
    low: int | None = None
    high: int | None = None
    count_bar: float | None = None
    error_bar: float | None = None
    error_bar_simultaneous: float | None = None
    unrecorded_at_most: int | None = None


class CellsAnswer(NoisyAnswer):
    """A table of shares and counts.

    Attributes:
        table: The cells. Each has its own error bar, as a share of the ``n`` rows.
    """

    table: Table


class FoundAnswer(NoisyAnswer):
    """A value that was looked for.

    Attributes:
        attribute: The attribute that was asked about.
        found: The cell that holds the value.
        no_answer: True if the value was tested and must not be named.
        error_bar: The largest distance of the cell from the rank that was asked for, as a share of the
            ``n`` rows.
    """

    attribute: str | None = None
    found: FoundCell | None = None
    no_answer: bool | None = None
    error_bar: float | None = None


class SideAnswer(NoisyAnswer):
    """The side of two thresholds on which a count of rows lies.

    Attributes:
        side: ``below`` both thresholds, ``between`` them, or ``above`` both.
        found: The last cell before the point that was kept, if there is one.
        error_bar: The most by which the count may pass a threshold, as a share of the ``n`` rows.
    """

    side: Literal["below", "between", "above"]
    found: FoundCell | None = None
    error_bar: float | None = None
