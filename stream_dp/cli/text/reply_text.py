"""Replies in words, the same wherever they are printed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stream_dp.client.statements.sureness import in_sql, use_in_words, use_of_all_in_words
from stream_dp.messages import (
    Answer,
    BetweenAnswer,
    BudgetShares,
    CellsAnswer,
    CorrelatedVectorAnswer,
    CorrelationAnswer,
    CountAnswer,
    Definition,
    DifferenceAnswer,
    DifferenceByGroupAnswer,
    DifferenceTable,
    Event,
    FoundAnswer,
    FoundCell,
    InteriorPointAnswer,
    MedianAnswer,
    ModeAnswer,
    NoisyAnswer,
    PrefixBatchAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    QuotedAnswer,
    QuotedBundle,
    QuotedQuery,
    RefusedAnswer,
    Rejected,
    SeriesAnswer,
    ShareAnswer,
    ShareByGroupAnswer,
    ShareTable,
    SideAnswer,
    SumAnswer,
    SumByGroupAnswer,
    SumTable,
    ThresholdCurveAnswer,
)
from stream_dp.messages import Table as Cells

NONE_YET = "no data sets yet; create one with: stream-dp dataset create DEFINITION.json"

_N = TypeVar("_N")

_WIDTH = 1000
_BAR_WIDTH = 20

_UNKNOWN = "unknown"
"""In place of a value without an error bar."""

_PATHS = {
    "repeat": "asked before",
    "certified": "from what was published",
    "bounded": "bounded by what was published",
    "gated": "a noisy test let it pass",
    "measured": "the rows were looked at",
    "series": "each part by itself",
    "unverified": "no look that it may pay for is precise enough; may be further off",
}


def difficulty(answer: NoisyAnswer | QuotedAnswer) -> Text:
    """Easy or hard, and how the answer came about."""
    colour = "yellow" if answer.difficulty == "hard" else "green"
    return Text(
        f"{answer.difficulty}, {answer.path}", "red" if answer.path == "unverified" else colour
    )


def answer_line(answer: Answer) -> str:
    """One answer, refusal or quote, in one line."""
    if isinstance(answer, NoisyAnswer):
        return f"{_said(answer)} ({answer.difficulty}, {answer.path}), {_left(answer)}"
    if isinstance(answer, QuotedAnswer):
        return f"{_price(answer)} ({answer.difficulty}, {answer.path})"
    if isinstance(answer, QuotedBundle):
        return _bundle_price(answer)
    assert isinstance(answer, RefusedAnswer), "an answer is one of these four"
    return f"refused: {answer.reason.message}"


def answer_lines(
    answer: NoisyAnswer | QuotedAnswer, conditions: Sequence[str] = ()
) -> list[Text | Table]:
    """An answer or quote at length: the figures, how they came about and what they cost.

    Args:
        answer: The answer or quote.
        conditions: The conditions of a batch, as they were written.
    """
    how = Text.assemble(difficulty(answer), f" ({_PATHS.get(answer.path, 'a newer path')})")
    notes = [answer.note]
    if isinstance(answer, QuotedAnswer):
        lines: list[Text | Table] = [Text(_price(answer), "bold"), how]
    else:
        lines = [*_pictures(answer, conditions)]
        if answer.surplus_at_most is not None:
            lines.append(Text(_surplus(answer, answer.surplus_at_most)))
        cost = answer.privacy_loss.share
        price = f"cost {share(cost)} of a phase's budget" if cost else "free"
        lines.append(Text.assemble(how, f"; {price}, {_left(answer)}; {_phases(answer)}"))
        parts = _parts(answer)
        useful = use_of_all_in_words(parts, is_series=True) if parts else use_in_words(answer)
        if useful is not None:
            lines.append(Text(useful))
        notes += [part.note for part in parts]
    lines += _also(answer)
    lines += [Text(f"note: {in_sql(note)}") for note in dict.fromkeys(notes) if note]
    return lines


def _parts(answer: NoisyAnswer) -> list[NoisyAnswer]:
    """The answers to the parts of a series that were not refused. Empty for other answers."""
    parts = answer.parts if isinstance(answer, SeriesAnswer) else ()
    return [part.answer for part in parts if isinstance(part.answer, NoisyAnswer)]


# ---------------------------------------------------------------- one function for each kind


@singledispatch
def _said(answer: NoisyAnswer) -> str:
    """An answer in one line. Each kind has a function, and so has each form of older answers."""
    del answer
    return "an answer that this release cannot show; --json prints it"


@_said.register
def _(answer: CountAnswer) -> str:
    return _figures(answer)


@_said.register
def _(answer: SumAnswer) -> str:
    ends = answer.mean_low, answer.mean_high
    mean = "not known" if answer.mean is None else number(answer.mean, answer.mean_bar, *ends)
    if answer.mean_binning is not None:
        mean += f" (bins there are ± {answer.mean_binning:g} wide, which this leaves out)"
    counted = _figures(answer)
    total = number(answer.total, answer.total_bar, answer.total_low, answer.total_high)
    said = f"sum {total}; mean {mean}; rows with a value: {counted}"
    if answer.rows is None:
        return said
    if answer.counted is not None:
        return f"{said}; all rows of the condition: {rows_within(answer.rows, answer.rows_bar, None, None)}"
    return f"{said}; all rows of the condition: {_rows(answer.rows, answer.rows_bar, answer.n)}"


@_said.register
def _(answer: ShareAnswer) -> str:
    among = _figures(answer)
    return f"{_share_among(answer.share, answer.share_bar)} of the rows of the condition, which are {among}"


@_said.register
def _(answer: CorrelationAnswer) -> str:
    return (
        f"a correlation of {answer.value:.3f} ({answer.value_low:.3f} to {answer.value_high:.3f}) between "
        f"{answer.attribute} and {answer.other}"
    )


@_said.register
def _(answer: DifferenceAnswer) -> str:
    share, rows = _difference(answer.value, answer.error_bar, answer.count, answer.count_bar)
    first, last = answer.minus_window
    phases = f"phase {first}" if first == last else f"phases {first} to {last}"
    return f"{share} against {phases}: {rows} rows"


@_said.register(CellsAnswer)
@_said.register(SumByGroupAnswer)
@_said.register(ShareByGroupAnswer)
@_said.register(DifferenceByGroupAnswer)
def _(
    answer: CellsAnswer | SumByGroupAnswer | ShareByGroupAnswer | DifferenceByGroupAnswer,
) -> str:
    return f"{len(answer.table.values)} cells"


@_said.register
def _(answer: PrefixBatchAnswer) -> str:
    bar = answer.error_bar_simultaneous
    all_of_them = ", no error bar known" if bar is None else f" ± {100 * bar:.2f}%"
    return f"{len(answer.batch.values)} shares, all of them{all_of_them}"


@_said.register
def _(answer: CorrelatedVectorAnswer) -> str:
    agreement = f"agree with {answer.attribute or 'a private bit'} by {answer.vector.agreement:.3f}"
    return f"signs of {answer.n:,} rows that {agreement}; --json prints them"


@_said.register
def _(answer: FoundAnswer) -> str:
    return _named(answer, "", "it")


@_said.register
def _(answer: QuantileAnswer) -> str:
    return f"{_ranked(answer)} {_lies_in(answer.lies_in, answer.found, answer.error_bar)}"


@_said.register
def _(answer: QuantileByGroupAnswer) -> str:
    return f"{_ranked(answer)} in {len(answer.table.found)} groups"


def _ranked(answer: QuantileAnswer | QuantileByGroupAnswer) -> str:
    """Names the value that was asked for."""
    names = {0.0: "the least value", 0.5: "the median", 1.0: "the largest value"}
    rank = answer.rank
    what = "a quantile" if rank is None else names.get(rank, f"the {100 * rank:g}% quantile")
    return f"{what} of {answer.attribute}"


def _lies_in(lies_in: FoundCell | None, found: FoundCell | None, bar: float | None) -> str:
    """Says in which bins a quantile lies, and which of them is likely."""
    if lies_in is None:
        return "may lie in any bin"
    likely = "" if found is None or found.label == lies_in.label else f", likely in {found.label}"
    rank = "" if bar is None else f" {rank_within(bar)}"
    return f"lies in {lies_in.label}{likely}{rank}"


def rank_within(bar: float) -> str:
    """Says how precisely a rank is known, as a share of the rows."""
    return f"(rank ± {100 * bar:.2g}%)"


@_said.register
def _(answer: MedianAnswer) -> str:
    what = f"the median of {answer.attribute}"
    return _named(answer, f"{what} lies in ", what)


@_said.register
def _(answer: ModeAnswer) -> str:
    return _named(
        answer, f"the most frequent {answer.attribute} is ", f"the mode of {answer.attribute}"
    )


@_said.register
def _(answer: SideAnswer) -> str:
    return f"{answer.side}{_or_beyond(answer)}"


@_said.register
def _(answer: BetweenAnswer) -> str:
    if answer.low is None or answer.high is None:
        return f"{answer.side}{_or_beyond(answer)}"
    low, high = f"{100 * answer.low:g}%", f"{100 * answer.high:g}%"
    where = {"below": f"below {low}", "between": f"between {low} and {high}"}
    return f"{where.get(answer.side, f'above {high}')} of the rows{_or_beyond(answer)}"


@_said.register
def _(answer: InteriorPointAnswer) -> str:
    if answer.found is not None:
        return f"{answer.side}: rows are on both sides of the end of {answer.found.label}"
    rows = "not all rows" if answer.side == "below" else "some rows"
    return f"{answer.side}: {rows} are in this range"


def _named(answer: FoundAnswer, before: str, what: str) -> str:
    """Returns the cell that was found, or why none is named.

    Args:
        answer: The answer.
        before: The words before the cell.
        what: The words for what was looked for.
    """
    if answer.found is None:
        return (
            f"no answer: a few rows could change {what}, so naming it could reveal something about them. "
            "Asking again is free and gives the same reply"
        )
    rank = f" (rank ± {100 * answer.error_bar:.2f}%)" if answer.error_bar else ""
    return f"{before}{answer.found.label}{rank}"


def _or_beyond(answer: SideAnswer) -> str:
    """Returns by how much the count may be beyond a threshold."""
    return f" (± {100 * answer.error_bar:.2f}%)" if answer.error_bar else ""


@singledispatch
def _pictures(answer: NoisyAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    """An answer at length. Kinds with many values have a function that draws them as a table."""
    del conditions
    yield Text(_said(answer), "bold")


@_pictures.register
def _(answer: CellsAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield _cells_table(answer.table, answer.least_cell)
    yield from _among(answer)


@_pictures.register
def _(answer: ThresholdCurveAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield _cells_table(answer.table, answer.least_cell)
    yield Text("each line counts all rows up to and with its values")


@_pictures.register
def _(answer: SumByGroupAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield _sums_table(answer.table, answer.least_cell)
    yield from _among(answer)


@_pictures.register
def _(answer: ShareByGroupAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield _shares_by_group(answer.table, answer.least_cell)
    yield from _among(answer)


@_pictures.register
def _(answer: QuantileByGroupAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield Text(_said(answer), "bold")
    found = answer.table
    table = Table(*map(escape, found.attributes), box=None, header_style="bold", pad_edge=False)
    for name in ("rows", "lies in"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    cells = zip(found.counts, found.lies_in, found.found, found.error_bars, strict=True)
    for labels, (rows, lies_in, likely, bar) in zip(
        itertools.product(*found.labels), cells, strict=True
    ):
        said = _lies_in(lies_in, likely, bar).removeprefix("lies in ")
        table.add_row(*map(escape, labels), about(rows), escape(said))
    yield table
    yield from _among(answer)


@_pictures.register
def _(answer: DifferenceByGroupAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    yield _differences_table(answer.table)


@_said.register
def _(answer: SeriesAnswer) -> str:
    return f"{len(answer.parts)} parts"


@_pictures.register
def _(answer: SeriesAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    del conditions
    from stream_dp.cli.text.series_text import series_table

    yield series_table(answer)


@_pictures.register
def _(answer: PrefixBatchAnswer, conditions: Sequence[str]) -> Iterator[Text | Table]:
    yield _batch_table(answer, conditions)


def _among(answer: NoisyAnswer) -> Iterator[Text]:
    """Yields what the shares of a table are shares of, where not all rows count."""
    if answer.counted is not None:
        yield Text(f"shares and rows are of {_rows_that_count(answer)}")


# ---------------------------------------------------------------- figures


def _rows(rows: int, bar: float | None, n: int) -> str:
    """A count of rows and its half width, as a share of ``n`` rows and by itself."""
    share = 100 / n if n else 0.0
    if bar is None:
        return _UNKNOWN
    return f"{rows * share:.2f}% ± {bar * share:.2f}%: {rows:,} ± {round(bar):,} of {n:,} rows"


def _share_among(share: float | None, bar: float | None) -> str:
    """A share of some rows, and its half width."""
    if share is None or bar is None:
        return "an unknown share (there may be too few)"
    return f"{100 * share:.2f}% ± {100 * bar:.2f}%"


def _difference(
    share: float, bar: float | None, count: int, count_bar: float | None
) -> tuple[str, str]:
    """A difference of shares in percentage points, and of counts, each with its half width."""
    points = _UNKNOWN if bar is None else f"{100 * share:+.2f} ± {100 * bar:.2f} percentage points"
    return points, _UNKNOWN if count_bar is None else f"{count:+,} ± {round(count_bar):,}"


def number(
    value: float, bar: float | None, low: float | None = None, high: float | None = None
) -> str:
    """A number and its half width, with as many decimals as that leaves sense to.

    Where the bar reaches beyond what is possible, it is from where to where the number may be. A number
    without a bar is a guess, and not shown.
    """
    if bar is None:
        return _UNKNOWN
    decimals = max(0, 1 - math.floor(math.log10(bar))) if bar else 2
    if reaches_beyond(value, bar, low, high):
        return f"{low:z,.{decimals}f} to {high:z,.{decimals}f}"
    return f"{value:z,.{decimals}f} ± {bar:,.{decimals}f}"


def rows_within(
    count: int, bar: float | None, low: int | None, high: int | None, least: int | None = None
) -> str:
    """A count and its half width in rows, or from where to where it may be, as for ``number``.

    Where it is surely lower than ``least``, that is all that people read.
    """
    if is_few(high, least):
        return f"fewer than {least:,}"
    if bar is None:
        return _UNKNOWN
    if reaches_beyond(count, bar, low, high, rounded=1.0):
        return f"{low:,} to {high:,}"
    return f"{count:,} ± {round(bar):,}" if bar else f"{count:,}"


def is_few(high: int | None, least: int | None) -> bool:
    """Whether a count of at most ``high`` rows is lower than the least that people read."""
    return high is not None and least is not None and high < least


def reaches_beyond(
    value: float, bar: float, low: float | None, high: float | None, *, rounded: float = 0.0
) -> bool:
    """Whether a bar reaches beyond the ends of a value, or to 0 where no less is possible."""
    slack = max(rounded, 1e-6 * bar)
    if low is None or high is None:
        return False
    to_zero = bar > 0.0 and low >= 0.0 >= value - bar
    return to_zero or not low - slack <= value - bar <= value + bar <= high + slack


def _figures(answer: CountAnswer | SumAnswer | ShareAnswer) -> str:
    """A share and the rows that it stands for, with its half width."""
    bar, n = answer.error_bar, answer.n
    share = f"{100 * answer.value:.2f}%"
    if is_few(answer.high, answer.least_cell):
        return f"fewer than {answer.least_cell:,} rows"
    if bar is None and answer.count_bar is None and answer.useful is not None:
        return _UNKNOWN
    if answer.counted is not None:
        share += ", no error bar known" if bar is None else f" ± {100 * bar:.2f}%"
        rows = f"{answer.count:,}"
        if answer.count_bar is not None:
            rows = rows_within(answer.count, answer.count_bar, answer.low, answer.high)
        if answer.count == answer.counted:
            return f"all {rows} rows that count, of {answer.n:,}"
        return f"{share}: {rows} of {_rows_that_count(answer)}"
    if bar is None:
        return f"{share}, no error bar known: {answer.count:,} of {n:,} rows"
    if bar * n < 1.0 and answer.count == n:
        return f"all {n:,} rows"
    rows = rows_within(answer.count, bar * n, answer.low, answer.high)
    return f"{share} ± {100 * bar:.2f}%: {rows} of {n:,} rows"


def _rows_that_count(answer: NoisyAnswer) -> str:
    """The rows that count where a person is protected, with the half width of their number."""
    return f"the {answer.counted:,} ± {round(answer.counted_bar or 0.0):,} rows that count, of {answer.n:,}"


def _surplus(answer: NoisyAnswer, at_most: float) -> str:
    """How much larger a count could be if all rows counted."""
    return (
        f"at most {share(at_most)} of the {answer.n:,} rows do not count; a count among all rows may be "
        f"larger by up to {math.ceil(at_most * answer.n):,}"
    )


def _price(answer: QuotedAnswer) -> str:
    return f"{_price_of(answer)}; {_left(answer)}"


def _price_of(quote: QuotedAnswer | QuotedQuery) -> str:
    """What one query would cost, and how precise its answer would be."""
    cost = 0.0 if quote.privacy_loss is None else quote.privacy_loss.share
    if _cannot_be_had(quote):
        return _CANNOT_BE_HAD
    about = "about " if quote.expected else ""
    price = f"would cost {about}{share(cost)} of a phase's budget" if cost else "would be free"
    if quote.most is not None:
        price += f" and {share(quote.most)} at most"
    if quote.error_bar is None:
        return price
    of = "of the largest possible sum" if (quote.kind or "").startswith("sum") else "of the rows"
    return f"{price}, for {about}± {100 * quote.error_bar:.2g}% {of}"


_CANNOT_BE_HAD = (
    "cannot be had: no look that it may pay for is precise enough; asked all the same, it costs nothing, and "
    "may be further off than its error bar says"
)


def bundle_lines(bundle: QuotedBundle, names: Sequence[tuple[str, str]]) -> list[Text | Table]:
    """A quote for several queries at length: the part of each, and what all of them cost together.

    Args:
        bundle: The quote.
        names: The position of each query, and the query as it was written.
    """
    if len(bundle.queries) == 1 and bundle.queries[0].privacy_loss is not None:
        (query,) = bundle.queries
        lines: list[Text | Table] = [Text(f"{_price_of(query)}; {_left(bundle)}", "bold")]
        lines += [Text(_PATHS.get(query.path or "", "a newer path")), *_also(bundle)]
        return lines if query.note is None else [*lines, Text(f"note: {in_sql(query.note)}")]
    table = Table("line", "query", "cost", "", box=None, header_style="bold", pad_edge=False)
    for (position, written), query in zip(names, bundle.queries, strict=True):
        table.add_row(position, escape(written), *map(escape, _part_of(query)))
    return [table, Text(_bundle_price(bundle), "bold"), *_also(bundle)]


def _also(answer: NoisyAnswer | QuotedAnswer | QuotedBundle) -> list[Text]:
    """What the data set measures more because of it."""
    if answer.owner_pays is None:
        return []
    paid = share(answer.owner_pays.share)
    return [Text(f"also: the data set measures more ({paid}, the owner pays)")]


def _part_of(query: QuotedQuery) -> tuple[str, str]:
    """The price of one query of a bundle, and the reason for it."""
    if query.privacy_loss is None:
        return "refused", "" if query.reason is None else query.reason.message
    how = _PATHS.get(query.path or "", "a newer path")
    cost = query.privacy_loss.share
    price = share(cost) if cost else "cannot be had" if _cannot_be_had(query) else "free"
    if query.most is not None:
        price = f"about {price}, {share(query.most)} at most"
    return price, f"{how}; {in_sql(query.note)}" if query.note else how


def _bundle_price(bundle: QuotedBundle) -> str:
    low, high, most = bundle.together.low, bundle.together.high, bundle.together.most
    n, without = len(bundle.queries), sum(map(_cannot_be_had, bundle.queries))
    left = f"{without} of them cannot be had; {_left(bundle)}" if without else _left(bundle)
    queries = f"{n} quer{'y' if n == 1 else 'ies'} together"
    if not high:
        return f"{queries} {'would take nothing' if without else 'would be free'}; {left}"
    price = share(high) if share(low) == share(high) else f"{share(low)} to {share(high)}"
    price = price if most is None else f"about {price}, and {share(most)} at most,"
    phases = f"{bundle.blocks} phase{'' if bundle.blocks == 1 else 's'}"
    return f"{queries} would cost {price} of a phase's budget ({phases} would pay); {left}"


def _cannot_be_had(query: QuotedAnswer | QuotedQuery) -> bool:
    """Whether a query would be refused, or answered without a look that it would need."""
    lost = query.privacy_loss
    return lost is None or (query.path == "unverified" and not lost.share)


def _left(answer: NoisyAnswer | QuotedAnswer | QuotedBundle) -> str:
    return left_of(answer.budget)


def left_of(budget: BudgetShares) -> str:
    """Says how much of a line is left: to the analyst, where analysts have shares, and in all."""
    if budget.yours is None:
        return f"{share(budget.left)} of the budget left"
    return f"{share(budget.yours.left)} of the budget left to you, {share(budget.left)} in all"


def share(part: float) -> str:
    """A percentage that never shows a cost as nothing."""
    return f"{100 * part:.2f}%" if part >= 5e-5 or part == 0 else "less than 0.01%"


def share_range(least: float, most: float) -> str:
    """Two percentages, rounded outwards, or one where they are the same."""
    low = share(math.floor(least * 1e4) / 1e4)
    high = share(min(1.0, math.ceil(most * 1e4) / 1e4))
    if least == most:
        return share(least)
    return low if low == high else f"{low} to {high}"


def spending_bar(spent: float, width: int = 20) -> str:
    """A bar of ``width`` characters in markup, which turns red as it fills up."""
    full = max(1, min(width, round(width * spent))) if spent else 0
    colour = "green" if spent < 0.5 else "yellow" if spent < 0.9 else "red"
    return f"[{colour}]{'━' * full}[/{colour}][dim]{'─' * (width - full)}[/dim]"


def output() -> Console:
    """Returns the console for results. In a file or a pipe it breaks no line."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Says in a terminal what goes on."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def _phases(answer: NoisyAnswer) -> str:
    first, last = answer.window
    phases = f"phase {first}" if first == last else f"phases {first} to {last}"
    if answer.until is not None and not _is_round(answer.until):
        return f"{phases}, until {moment(answer.until)}"
    dates = between(answer.since, answer.until)
    return f"{phases}, {dates}" if dates else phases


def between(since: str | None, until: str | None) -> str:
    """Says which stretch of time some phases cover. Empty where it is not known."""
    if since is None or until is None:
        return ""
    return f"from {moment(since)} until {moment(until)}"


def moment(time: str) -> str:
    """Writes a date or a time as in messages, but no seconds."""
    return time if _is_round(time) else time[:16].replace("T", " ")


def _is_round(time: str) -> bool:
    """Whether a time is a date, or has no seconds, as those of periods have none."""
    return len(time) <= len("2026-11-01T06:00+01:00")


def _cells_table(cells: Cells, least: int | None) -> Table:
    """A GROUP BY answer as a table for the terminal."""
    # Where a person is protected, a share and its bar are of another number than all rows.
    of = "" if cells.count_bars is None else " of the rows that count"
    table = _shares_table(*cells.attributes, of=of)
    most = max(cells.values, default=0.0) or 1.0
    every = list(itertools.product(*cells.labels))
    for row in cells.to_see:
        table.add_row(
            *(escape(label) for label in every[row]),
            *_share_and_rows(cells, row, least),
            _bar(cells.values[row] / most, cells.error_bars[row]),
        )
    return table


def _sums_table(cells: SumTable, least: int | None) -> Table:
    """A sum with GROUP BY as a table for the terminal."""
    counted = [] if cells.rows is None else ["all rows"]
    table = _shares_table(
        *cells.attributes, sums=["sum", "mean", *counted], rows="rows with a value"
    )
    most = max(cells.values, default=0.0) or 1.0
    for row, labels in enumerate(itertools.product(*cells.labels)):
        mean = cells.means[row]
        totals = _ends_of(cells.total_lows, cells.total_highs, row)
        means = _ends_of(cells.mean_lows, cells.mean_highs, row)
        sums = [
            number(cells.totals[row], cells.total_bars[row], *totals),
            "-" if mean is None else number(mean, cells.mean_bars[row], *means),
        ]
        if cells.rows is not None:
            bar = None if cells.rows_bars is None else cells.rows_bars[row]
            sums.append(rows_within(cells.rows[row], bar, None, None))
        table.add_row(
            *(escape(label) for label in labels),
            *_share_and_rows(cells, row, least),
            *sums,
            _bar(cells.values[row] / most, cells.error_bars[row]),
        )
    return table


def _shares_by_group(cells: ShareTable, least: int | None) -> Table:
    """A share with GROUP BY as a table for the terminal."""
    table = _shares_table(*cells.attributes, sums=["share of them"], rows="rows of the condition")
    for row, labels in enumerate(itertools.product(*cells.labels)):
        share = cells.shares[row]
        table.add_row(
            *(escape(label) for label in labels),
            *_share_and_rows(cells, row, least),
            "too few rows" if share is None else _share_among(share, cells.share_bars[row]),
            _bar(share or 0.0, cells.share_bars[row]),
        )
    return table


def _differences_table(cells: DifferenceTable) -> Table:
    """A difference with GROUP BY as a table for the terminal."""
    table = bare_table(*cells.attributes, numbers=("difference of shares", "of rows"))
    bars = zip(cells.values, cells.error_bars, cells.counts, cells.count_bars, strict=True)
    for labels, figures in zip(itertools.product(*cells.labels), bars, strict=True):
        table.add_row(*(escape(label) for label in labels), *_difference(*figures))
    return table


def _batch_table(answer: PrefixBatchAnswer, conditions: Sequence[str]) -> Table:
    """The answers to a batch, one line for each condition, with one error bar for all."""
    batch = answer.batch
    names = conditions or [f"condition {number + 1}" for number in range(len(batch.values))]
    table = _shares_table("condition")
    for name, value, count in zip(names, batch.values, batch.counts, strict=True):
        figures = _figures_of(value, answer.error_bar_simultaneous, f"{count:,}")
        table.add_row(escape(name), *figures, _bar(value))
    return table


def _shares_table(*names: str, sums: Sequence[str] = (), rows: str = "rows", of: str = "") -> Table:
    table = bare_table(*names, numbers=(f"share{of}", "± error", rows, *sums))
    table.add_column("")
    return table


def bare_table(*names: str, numbers: Sequence[str] = ()) -> Table:
    """A table without lines: its columns by their heads, of which ``numbers`` come last and stand right."""
    table = Table(*names, box=None, header_style="bold", pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _share_and_rows(cells: Cells, row: int, least: int | None) -> tuple[str, str, str]:
    """The share of a cell, its half width, and its rows; with theirs where a person is protected."""
    rows = f"{cells.counts[row]:,}"
    low, high = _ends_of(cells.lows, cells.highs, row)
    if is_few(high, least):
        return "-", "-", f"fewer than {least:,}"
    if cells.count_bars is not None:
        rows = rows_within(cells.counts[row], cells.count_bars[row], low, high)
    elif low is not None and high is not None:
        rows = f"{rows} ({low:,} to {high:,})"
    if cells.error_bars[row] is None:
        return _UNKNOWN, "-", _UNKNOWN if cells.count_bars is None else rows
    return _figures_of(cells.values[row], cells.error_bars[row], rows)


def _ends_of(
    lows: Sequence[_N] | None, highs: Sequence[_N] | None, row: int
) -> tuple[_N | None, _N | None]:
    """The least and the largest value of a cell; None where an older answer has none."""
    return (None, None) if lows is None or highs is None else (lows[row], highs[row])


def about(rows: int) -> str:
    """A count of rows whose half width is not published."""
    return f"about {rows:,}"


def _figures_of(value: float, error: float | None, rows: str) -> tuple[str, str, str]:
    return f"{100 * value:.2f}%", "-" if error is None else f"{100 * error:.2f}%", rows


def _bar(part: float, error: float | None = 0.0) -> str:
    """A drawn part of 1; nothing for one that is not known."""
    return "" if error is None else f"[cyan]{'█' * round(_BAR_WIDTH * part)}[/cyan]"


def kinds_table(definition: Definition) -> Table:
    """The other kinds of queries that a data set answers, and what a look of each costs."""
    from stream_dp.profiles.kinds import ANSWERERS
    from stream_dp.profiles.line_units import prices_of

    table = bare_table(
        "asked", "setting", numbers=("a look takes", "epsilon", "delta", "looks a phase")
    )
    for name, price in prices_of(definition).items():
        spec = getattr(definition.kinds, name)
        others = spec.model_dump(exclude={"share"}, exclude_defaults=True)
        table.add_row(
            ", ".join(ANSWERERS[name].kinds),
            escape(", ".join([name, *(f"{key} {value}" for key, value in others.items())])),
            share(spec.share),
            f"{price.epsilon:.3g}",
            f"{price.delta:.2g}",
            f"{price.looks:,}",
        )
    return table


def rows_of_a_phase(definition: Definition) -> int:
    """Returns the number of waiting rows that opens a phase."""
    if definition.mechanism.papers is None:
        return definition.phase.min_rows
    # Only here: what builds mechanisms takes a second to load.
    from stream_dp.profiles import builder

    return builder.rows_of_a_phase(definition)


_EVENTS = {
    "dataset_accepted": "is defined",
    "dataset_retired": "is retired: its rows are erased",
    "batch_accepted": "batch taken in",
    "batch_refused": "batch refused",
    "batch_known": "batch counted before",
    "phase_opened": "phase opened",
    "phase_closed": "its period is closed",
    "quarantined": "is in quarantine",
    "repaired": "is served again",
    "stopped": "is stopped",
    "rows_lost": "goes on without rows that are lost",
    "written_off": "goes on; its rows up to then are written off",
    "analysts_changed": "allows other shares to its analysts",
}


def event_line(event: Event) -> str:
    """One event in words."""
    words = _EVENTS.get(event.event, event.event)
    if event.event == "phase_opened":
        words = f"phase {event.phase} opened with {event.rows:,} rows"
        if dates := between(event.since, event.until):
            words += f", {dates}"
        if event.late_batches:
            words += f"; {event.late_batches:,} of its batches are late"
    elif event.event == "batch_accepted":
        words = f"{event.rows:,} rows taken in (batch {event.batch}), {event.waiting:,} wait"
    elif event.event == "alert":
        cells = "" if event.cells is None else f" ({'; '.join(event.cells)})"
        words = (
            f"alert: {event.query_id} of {event.analyst}{cells}, since phase {event.since_phase}"
        )
    elif event.batch is not None:
        words += f" {event.batch}"
    elif event.note is not None:
        words += f"; {event.note}"
    return f"{words}: {event.reason.message}" if event.reason is not None else words


def rejection_line(rejected: Rejected) -> str:
    """One rejection in words, with the position of the record."""
    position = f"{rejected.topic}[{rejected.partition}]@{rejected.offset}"
    return f"rejected {position}: {rejected.reason.message}"
