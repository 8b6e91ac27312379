"""A series on the terminal: a line for each part, or for each cell of each part, with a small bar."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.text.reply_text import about, moment, number, rows_within
from stream_dp.messages import (
    CellsAnswer,
    CountAnswer,
    FoundCell,
    QuantileAnswer,
    QuantileByGroupAnswer,
    RefusedAnswer,
    SeriesAnswer,
    SeriesPart,
    ShareAnswer,
    ShareByGroupAnswer,
    SumAnswer,
    SumByGroupAnswer,
)

_BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class _Value:
    """One value of a series.

    Attributes:
        labels: The cell that it is of. Empty without groups.
        value: The value that is drawn. None where nothing is known.
        bar: The half width around it. None where it is not known.
        rows: The estimated rows that it is about, with their half width where it is known.
        said: The value in words. Empty for a value that is not known.
        total: The sum that a mean comes from, in words. Empty for other values.
    """

    labels: tuple[str, ...]
    value: float | None
    bar: float | None
    rows: str
    said: str
    total: str = ""


def series_table(answer: SeriesAnswer) -> Table:
    """The parts of a series as a table. The bars are drawn to the scale of the largest value."""
    values = [(part, list(_values(part))) for part in answer.parts]
    names = next((_attributes(part) for part in answer.parts if _attributes(part)), ())
    most = max((abs(v.value or 0.0) for _, found in values for v in found), default=0.0) or 1.0
    table = Table(answer.series, *names, box=None, header_style="bold", pad_edge=False)
    sums = ["sum"] * (_head(answer) == "mean")
    for name in (*sums, _head(answer), "± error", "rows"):
        table.add_column(name, justify="right")
    table.add_column("")
    for part, found in values:
        period = period_of(part)
        if isinstance(part.answer, RefusedAnswer):
            blank = [""] * len([*names, *sums])
            table.add_row(period, *blank, "refused", "", "", escape(part.answer.reason.message))
        for value in found:
            width = round(_BAR_WIDTH * abs(value.value or 0.0) / most)
            table.add_row(
                period,
                *map(escape, value.labels),
                *[value.total for _ in sums],
                value.said or "-",
                "-" if value.bar is None else _figure(answer, value.bar),
                value.rows,
                f"[cyan]{'█' * width}[/cyan]",
            )
            period = ""
    return table


def period_of(part: SeriesPart) -> str:
    """Names the phases of a part by their dates, or by their numbers where no date is known."""
    first, last = part.window
    if part.since is None or part.until is None:
        return f"phase {first}" if first == last else f"phases {first} to {last}"
    return f"{moment(part.since)} until {moment(part.until)}"


def _head(answer: SeriesAnswer) -> str:
    sums = any(isinstance(part.answer, SumAnswer | SumByGroupAnswer) for part in answer.parts)
    bins = (QuantileAnswer, QuantileByGroupAnswer)
    if any(isinstance(part.answer, bins) for part in answer.parts):
        return "lies in"
    return "mean" if sums else "share"


def _figure(answer: SeriesAnswer, value: float) -> str:
    return f"{value:,.4g}" if _head(answer) == "mean" else f"{100 * value:.2f}%"


def _attributes(part: SeriesPart) -> tuple[str, ...]:
    match part.answer:
        case CellsAnswer(table=table) | SumByGroupAnswer(table=table):
            return table.attributes
        case ShareByGroupAnswer(table=table) | QuantileByGroupAnswer(table=table):
            return table.attributes
    return ()


def _values(part: SeriesPart) -> Iterator[_Value]:
    """The values of one part, in the order of its cells."""
    answer = part.answer
    match answer:
        case CountAnswer():
            yield _share((), answer.value, answer.error_bar, _rows(answer))
        case ShareAnswer():
            yield _share((), answer.share, answer.share_bar, _rows(answer))
        case SumAnswer():
            total = number(answer.total, answer.total_bar, answer.total_low, answer.total_high)
            yield _mean((), answer.mean, answer.mean_bar, _rows(answer), total)
        case QuantileAnswer():
            yield _bins((), answer.lies_in, answer.error_bar, answer.count or 0)
        case QuantileByGroupAnswer(table=table):
            bins = zip(table.lies_in, table.error_bars, table.counts, strict=True)
            for labels, one in zip(itertools.product(*table.labels), bins, strict=True):
                yield _bins(labels, *one)
        case CellsAnswer(table=table):
            yield from map(_share, *_cells(answer, table.values, table.error_bars))
        case ShareByGroupAnswer(table=table):
            yield from map(_share, *_cells(answer, table.shares, table.share_bars))
        case SumByGroupAnswer(table=table):
            unknown = (None,) * len(table.totals)
            ends = table.total_lows or unknown, table.total_highs or unknown
            totals = map(number, table.totals, table.total_bars, *ends)
            yield from map(_mean, *_cells(answer, table.means, table.mean_bars), totals)


def _cells(
    answer: CellsAnswer | ShareByGroupAnswer | SumByGroupAnswer,
    values: Sequence[float | None],
    bars: Sequence[float | None],
) -> tuple[list[tuple[str, ...]], Sequence[float | None], Sequence[float | None], list[str]]:
    """The cells of a table: their labels, values, half widths, and rows in words."""
    table = answer.table
    of_shares = [None if bar is None else bar * answer.n for bar in table.error_bars]
    of_rows = of_shares if table.count_bars is None else table.count_bars
    unknown = (None,) * len(of_rows)
    lows, highs, least = table.lows or unknown, table.highs or unknown, answer.least_cell
    rows = list(map(rows_within, table.counts, of_rows, lows, highs, [least] * len(of_rows)))
    return list(itertools.product(*table.labels)), values, bars, rows


def _rows(answer: CountAnswer | ShareAnswer | SumAnswer) -> str:
    """The rows of one count, in words."""
    bar = answer.count_bar
    if bar is None and answer.error_bar is not None:
        bar = answer.error_bar * answer.n
    return rows_within(answer.count, bar, answer.low, answer.high, answer.least_cell)


def _share(labels: tuple[str, ...], value: float | None, bar: float | None, rows: str) -> _Value:
    value = None if bar is None else value  # without a bar it is a guess
    return _Value(labels, value, bar, rows, "" if value is None else f"{100 * value:.2f}%")


def _bins(
    labels: tuple[str, ...], lies_in: FoundCell | None, bar: float | None, rows: int
) -> _Value:
    said = "any bin" if lies_in is None else lies_in.label
    return _Value(labels, None, bar, about(rows), said)


def _mean(
    labels: tuple[str, ...], value: float | None, bar: float | None, rows: str, total: str
) -> _Value:
    value = None if bar is None else value
    return _Value(labels, value, bar, rows, "" if value is None else f"{value:,.4g}", total)
