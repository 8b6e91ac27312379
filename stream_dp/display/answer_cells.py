"""The cells of an answer with their figures: the one place that knows the shapes of answers.

A kind of answer is a line in ``SHAPES``. A table has a column for each figure of its cells, whose name is
that of the figure in the plural. All who show answers, or work with them, ask here for figures by name.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from stream_dp.display.figures import NOT_KNOWN, Ends, Figure, FigureUnit
from stream_dp.messages import READ_EACH, Answer, FoundCell, NoisyAnswer, SeriesAnswer, plural

Bars: TypeAlias = Literal["alone", "at once", "anytime"]
"""The bars to take: for one cell, for all cells at once, or for whenever it is asked."""


class Quantity(NamedTuple):
    """What an answer states of each of its cells.

    Attributes:
        name: The field of the message.
        unit: What it counts or measures.
        head: What stands above it in a table. Empty if people see it in no table.
        said: The words around it where an answer is one sentence; ``a`` is the answer. Empty if it says
            nothing there.
        is_asked: Whether only some answers have it.
    """

    name: str
    unit: FigureUnit
    head: str = ""
    said: str = ""
    is_asked: bool = False

    @property
    def bar(self) -> str:
        """The field of the message with its half width."""
        is_main = self.name in ("value", "found", "lies_in")
        return "error_bar" if is_main else f"{self.name}_bar"


class _Shape(NamedTuple):
    """The figures that the answers of one kind have.

    Attributes:
        main: The name of the one that is drawn, that alerts compare, and that SQL takes if it names none.
        quantities: All of them, in the order in which people read them.
    """

    main: str
    quantities: tuple[Quantity, ...]


def _shape(main: str, *quantities: Quantity) -> _Shape:
    return _Shape(main, quantities)


_COUNT: Final = _shape(
    "value",
    Quantity("value", "share", "share"),
    Quantity("count", "rows", "rows", "{}"),
    Quantity(
        "unrecorded_at_most",
        "at_most",
        "unrecorded at most",
        "up to {} more unrecorded",
        is_asked=True,
    ),
)
_FOUND: Final = _shape("found", Quantity("found", "bins"))
_SIDE: Final = _shape("side", Quantity("side", "label"))
_BINS: Final = "bins there are ± {a.mean_binning:g} wide, which its bar leaves out"
_SUM: Final = _shape(
    "mean",
    Quantity("total", "number", "sum", "sum {}"),
    Quantity("mean", "number", "mean", "mean {}"),
    Quantity("mean_binning", "label", said=_BINS, is_asked=True),
    Quantity("value", "share"),
    Quantity("count", "rows", "rows with a value", "rows with a value: {}"),
    Quantity("rows", "rows", "all rows", "all rows of the condition: {}", is_asked=True),
)
_SHARE: Final = _shape(
    "share",
    Quantity("share", "share", "share", "share {}"),
    Quantity("value", "share"),
    Quantity("count", "rows", "rows of the condition", "rows of the condition: {}"),
    Quantity("both", "rows"),
)
_DIFFERENCE: Final = _shape(
    "value",
    Quantity("value", "points", "difference of shares", "{} against {minus}"),
    Quantity("count", "more_rows", "of rows", "{} rows"),
)
_QUANTILE: Final = _shape(
    "lies_in",
    Quantity("count", "about", "rows"),
    Quantity("found", "bins"),
    Quantity("lies_in", "bins", "lies in"),
)
_AGREE: Final = "a correlation of {} between {a.attribute} and {a.other}"

SHAPES: Final[Mapping[str, _Shape]] = {
    **dict.fromkeys(("predicate", "table", "threshold", "threshold_curve"), _COUNT),
    **dict.fromkeys(("adaptive_threshold", "prefix_batch"), _COUNT),
    **dict.fromkeys(("sum", "sum_by_group"), _SUM),
    **dict.fromkeys(("share", "share_by_group"), _SHARE),
    **dict.fromkeys(("difference", "difference_by_group"), _DIFFERENCE),
    **dict.fromkeys(("quantile", "quantile_by_group"), _QUANTILE),
    **dict.fromkeys(("median", "mode"), _FOUND),
    **dict.fromkeys(("between", "interior_point"), _SIDE),
    "correlation": _shape("value", Quantity("value", "correlation", said=_AGREE)),
}
"""The shape of each kind of answer that states figures."""

_PROMISED: Final = ("predicate", "table")
"""The kinds of answers whose bars are those that the accuracy of the definition promises."""

_NO_FIGURES: Final = _shape("")


class AnswerCells:
    """The cells of one answer. An answer about no groups has one cell without labels.

    Args:
        answer: The answer. Of a series, each part has cells of its own.
        conditions: The conditions of a batch, which name its cells.

    Attributes:
        names: What is grouped by. A batch is grouped by its conditions.
        axes: The labels along each of them.
        quantities: The figures of each cell.
        main: The figure that is drawn.
        apart: If two counts differ by more rows, the larger one is surely larger. None where only bars tell.
        holds_at_once: Whether there are bars that hold for all cells at once.
    """

    def __init__(self, answer: NoisyAnswer, conditions: Sequence[Any] = ()) -> None:
        self.answer = answer
        batch: Any = getattr(answer, "batch", None)
        self._table: Any = batch or getattr(answer, "table", None)
        self._columns: dict[str, Sequence[Any] | None] = {}
        self.names: tuple[str, ...] = getattr(self._table, "attributes", ())
        self.axes: tuple[tuple[str, ...], ...] = getattr(self._table, "labels", ())
        if batch is not None:
            named = (f"condition {number}" for number in range(1, len(batch.values) + 1))
            self.names, self.axes = ("condition",), (tuple(conditions or named),)
        shape = SHAPES.get(answer.kind or "", _NO_FIGURES)
        self.main = shape.main
        self.quantities = tuple(
            q for q in shape.quantities if not q.is_asked or self._column(q.name) is not None
        )
        self._by_name = {quantity.name: quantity for quantity in shape.quantities}
        self._in_rows = answer.counted is not None or self._column("count_bar") is not None
        of_all = self._column("error_bar_simultaneous") or ()
        self.apart: float | None = getattr(self._table, "apart", None)
        self._wider: float | None = getattr(self._table, "wider", None)
        self._of_all = bool(of_all) and None not in of_all and not self._in_rows
        self.holds_at_once = self._wider is not None or self._of_all

    @functools.cached_property
    def labels(self) -> list[tuple[str, ...]]:
        """The labels of each cell. The cells of a table are row by row, in the order of ``names``."""
        return list(itertools.product(*self.axes))

    def unit(self, name: str) -> FigureUnit:
        """What a figure counts or measures."""
        return self._by_name[name].unit

    def figure(self, name: str, cell: int = 0, bars: Bars = "alone") -> Figure:
        """One figure of one cell.

        Args:
            name: The name of the figure.
            cell: The cell.
            bars: The bars to take, of counts and of their shares. Other figures have one.

        Raises:
            TypeError: The answers of this kind have no such figure.
        """
        if name not in self._by_name:
            raise TypeError(f"{type(self.answer).__name__} has no {name}")
        quantity, value = self._by_name[name], self.field(name, cell)
        if quantity.unit == "at_most":
            return Figure(value or 0, None)
        if value is None:
            return NOT_KNOWN
        if isinstance(value, FoundCell):
            return Figure(value.label, self.field("error_bar", cell), place=value.place)
        if quantity.unit in ("label", "about"):
            return Figure(value, None)
        bar: float | None = self.field(quantity.bar, cell)
        is_count = name == "count" and quantity.unit == "rows"
        if name == "value":
            bar = self._share_bar(cell, bars)
        elif is_count:
            bar = self._count_bar(cell, bars)
        ends = self._ends("" if is_count else f"{name}_", cell)
        is_wider = bars == "at once" and self.holds_at_once
        if quantity.unit == "rows" and bar is not None and (ends is None or is_wider):
            ends = max(0.0, value - bar), min(float(self.answer.n), value + bar)
        return Figure(value, bar, ends)

    def is_few(self, cell: int = 0) -> bool:
        """Whether people read only that a cell has fewer rows than a number."""
        is_counted = "count" in self._by_name and self.unit("count") == "rows"
        return is_counted and self.figure("count", cell).is_below(self.answer.least_cell)

    @property
    def widest_bar(self) -> float | None:
        """The largest half width of the shares that are drawn. None where none is known."""
        if not self.main or self.unit(self.main) not in ("share", "points"):
            return None
        bars = (self.figure(self.main, cell).bar for cell in range(len(self.labels)))
        return max((bar for bar in bars if bar is not None), default=None)

    @property
    def promised_bar(self) -> float | None:
        """The same, if the accuracy of the definition promises these bars."""
        return self.widest_bar if self.answer.kind in _PROMISED else None

    @property
    def to_see(self) -> Sequence[int]:
        """The cells that people see: of very many, those that surely have rows."""
        every = range(len(self.labels))
        if len(every) <= READ_EACH or not self.holds_at_once:
            return every
        counts = [self.figure("count", cell, "at once") for cell in every]
        return [
            i for i, rows in enumerate(counts) if (ends := rows.ends) is not None and ends[0] > 0
        ]

    def field(self, name: str, cell: int = 0) -> Any:
        """A field of the message for one cell. None if it is not there."""
        if name not in self._columns:
            self._columns[name] = self._column(name)
        column = self._columns[name]
        return None if column is None else column[cell]

    def _column(self, name: str) -> Sequence[Any] | None:
        """The values of a field for all cells. A batch has one bar for all of them."""
        value = getattr(self.answer, name, None)
        if self._table is None:
            return None if value is None else (value,)
        column: Sequence[Any] | None = getattr(self._table, plural(name), None)
        return column or (None if value is None else (value,) * len(self.axes[0]))

    def _ends(self, prefix: str, cell: int) -> Ends | None:
        low, high = (self.field(f"{prefix}{end}", cell) for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def _share_bar(self, cell: int, bars: Bars) -> float | None:
        """The half width around the share of a count."""
        alone: float | None = self.field("error_bar", cell)
        at_once: float | None = self.field("error_bar_simultaneous", cell)
        if bars == "anytime" and (found := self.field("error_bar_anytime", cell)) is not None:
            return float(found)
        if bars == "at once" and self._wider is not None:
            return None if alone is None else self._wider * alone
        return at_once if alone is None or (bars == "at once" and self._of_all) else alone

    def _count_bar(self, cell: int, bars: Bars) -> float | None:
        """The half width around a count, which also covers how the count was rounded."""
        if self._in_rows:
            in_rows: float | None = self.field("count_bar", cell)
            wider = self._wider if bars == "at once" and self._wider is not None else 1.0
            return None if in_rows is None else wider * in_rows
        bar = self._share_bar(cell, bars)
        if bar is None:
            return None
        n = self.answer.n
        return float(bar * n + abs(self.field("value", cell) * n - self.field("count", cell)))


def newest(answer: Answer) -> Answer:
    """The answer itself; of a series, that of its newest part."""
    return answer.parts[-1].answer if isinstance(answer, SeriesAnswer) and answer.parts else answer


class MainFigure(NamedTuple):
    """One number of an answer: a share, a difference of shares, or the mean of a sum.

    Attributes:
        cell: The labels of the cell, separated by commas. Empty where the answer is one number.
        value: The number.
        error_bar: The half width around it. None where it is not known.
    """

    cell: str
    value: float
    error_bar: float | None


def main_figures(answer: Answer, bars: Bars = "alone") -> Iterator[MainFigure]:
    """Yields the numbers of an answer that alerts compare and gauges show. Answers of other forms have none.

    Args:
        answer: The answer. The numbers of a series are those of its newest part.
        bars: The bars to take, of counts.
    """
    answer = newest(answer)
    if not isinstance(answer, NoisyAnswer):
        return
    cells = AnswerCells(answer)
    if not cells.main or cells.unit(cells.main) not in ("share", "number", "points"):
        return
    for cell, labels in enumerate(cells.labels):
        figure = cells.figure(cells.main, cell, bars)
        if figure.number is not None:
            name = ", ".join(label.replace(",", "\\,") for label in labels)
            yield MainFigure(name, figure.number, figure.bar)
