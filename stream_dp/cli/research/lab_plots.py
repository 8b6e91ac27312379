"""Draws the lab's results. The colours suit colour-blind readers (Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stream_dp.lab.conjecture import DATA, MECHANISMS, Mechanism, Phase, Setting
from stream_dp.lab.median_search import Needed
from stream_dp.lab.reconstruction_attack import private_agreement
from stream_dp.lab.tracing_attack import deviation_outside, expected_inside

NAMES: Final[Mapping[Mechanism, str]] = {
    "sequential": "sequential",
    "uniform": "memory, uniform prior",
    "carry_over": "memory, carry-over prior",
}

_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#595959"
_COLOURS: Final = (_BLUE, _ORANGE, _GREEN)
_MARKERS: Final = ("o", "s", "^")

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "stream-dp", "font.size": 10})


def _figure(title: str, rows: int, columns: int, *, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11, height), layout="constrained")
    figure.suptitle(title, fontsize=12.5, fontweight="bold")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(rows * columns)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name(axis: Axes, title: str, x: str, y: str) -> None:
    """Names an axis, and the lines that were drawn on it."""
    axis.set_title(title, fontsize=10.5)
    axis.set(xlabel=x, ylabel=y)
    axis.legend(frameon=False, fontsize=9)


def _whole_ticks(axis: Axes, ticks: Sequence[int]) -> None:
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.set_xticks([], minor=True)


def tracing(
    scores: Mapping[tuple[float, int], tuple[list[float], list[float]]], *, n_rows: int
) -> Figure:
    """Plots the scores of rows inside and outside the data."""
    title = "Enough answers reveal whose row is in the data, however noisy each of them is"
    figure, (left, right) = _figure(title, 1, 2, height=4.8)
    scales, ks = (sorted(set(names)) for names in zip(*scores, strict=True))
    inside, outside = scores[scales[1], ks[-1]]
    bins = np.linspace(min(outside), max(inside), 45).tolist()
    left.hist(outside, bins, color=_ORANGE, alpha=0.75, label="not in the data")
    left.hist(inside, bins, color=_BLUE, alpha=0.75, label="in the data")
    shown = f"Scores after {ks[-1]:,} queries, noise scale {scales[1]:g} of all rows"
    _name(left, shown, "score of a row (no unit)", "rows, over all runs")
    for scale, colour, marker in zip(scales, _COLOURS, _MARKERS, strict=True):
        measured = [np.mean(scores[scale, k][0]) / np.std(scores[scale, k][1]) for k in ks]
        expected = [expected_inside(n_rows, k) / deviation_outside(n_rows, k, scale) for k in ks]
        right.plot(ks, expected, color=colour)
        right.plot(ks, measured, marker, color=colour, label=f"noise {scale:g}")
    right.set(xscale="log", yscale="log")
    right.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    right.set_yticks([], minor=True)
    _whole_ticks(right, ks)
    _name(
        right,
        "Noise as a share of all rows. Lines: theory. Marks: measured",
        f"queries asked, about the same {n_rows} rows",
        "distance of the two means\n(standard deviations of outsiders' scores)",
    )
    return figure


def reconstruction(
    found: Mapping[float, Sequence[tuple[int, float, float]]],
    once: Sequence[tuple[int, float]],
    *,
    n_rows: int,
) -> Figure:
    """Plots the bits that the majority attack guesses right."""
    title = (
        "The majority of fresh answers reconstructs private bits; one answer kept for ever does not"
    )
    figure, (axis,) = _figure(title, 1, 1, height=5.2)
    ks = [k for k, _ in once]
    for (epsilon, rows), colour, marker in zip(found.items(), _COLOURS, _MARKERS, strict=True):
        axis.plot(ks, [_right(expected) for _, _, expected in rows], color=colour)
        agreed = [_right(agreed) for _, agreed, _ in rows]
        axis.plot(ks, agreed, marker, color=colour, label=f"epsilon {epsilon:g} an answer")
    kept = [_right(agreed) for _, agreed in once]
    axis.plot(ks, kept, "D--", color=_GREY, markersize=4, label="one response to all, epsilon 1")
    most = "the most that (1, 0.05)-privacy allows in all"
    axis.axhline(_right(private_agreement(1.0, 0.05)), color="black", linestyle=":", label=most)
    axis.set(xscale="log", ylim=(0.5, 1.02))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _whole_ticks(axis, ks)
    _name(
        axis,
        "Coloured: a fresh response to each query, at the epsilon shown. Lines: expected. Marks: measured",
        "answers, each to a query made of all answers before it",
        f"bits guessed right, of {n_rows:,} (50% is blind guessing)",
    )
    return figure


def _right(agreement: float) -> float:
    return (1.0 + agreement) / 2.0


def median_search(
    needed: Sequence[Needed], *, alpha: float, epsilon: float, failure_probability: float
) -> Figure:
    """Plots the rows that a private search for the median needs."""
    times = needed[-1].used / needed[-1].bound
    title = f"Searching privately for the median takes some {times:.0f} times the rows of the packing bound"
    figure, (axis,) = _figure(title, 1, 1, height=5.2)
    sizes, bound = [row.size for row in needed], [row.bound for row in needed]
    enough, used = [row.enough for row in needed], [row.used for row in needed]
    axis.plot(sizes, enough, "--", color=_GREY, label="proved to be enough for this search")
    axis.plot(sizes, used, "o-", color=_BLUE, label="used: fewest rows with which it succeeded")
    axis.plot(sizes, bound, color=_ORANGE, label="packing bound: nobody does with fewer")
    axis.fill_between(sizes, 1, bound, color=_ORANGE, alpha=0.15, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set(yscale="log", ylim=(10, None), xticks=sizes)
    axis.set_yticks([10, 30, 100, 300, 1000, 3000], ["10", "30", "100", "300", "1,000", "3,000"])
    axis.set_yticks([], minor=True)
    _name(
        axis,
        f"epsilon {epsilon:g}, rank within {alpha:.0%} of the middle, in {1 - failure_probability:.0%} "
        "of searches; noise of scale (queries / epsilon) in every count",
        "values of the attribute",
        "rows, in packing data sets",
    )
    return figure


def conjecture(results: Sequence[Phase], setting: Setting, *, seeds: int) -> Figure:
    """Plots the hard queries of each mechanism, phase by phase."""
    title = f"Remembering saves hard queries, and so answers more (means of {seeds} data sets of each kind)"
    figure, axes = _figure(title, 2, 2, height=7.2)
    phases = list(range(1, setting.phases + 1))
    drifting = f"Drifting: {setting.drift:.0%} of how cells differ is new in each phase"
    titles = {"stationary": "Stationary: all phases alike", "drifting": drifting}
    for data, top, bottom in zip(DATA, axes[:2], axes[2:], strict=True):
        for mechanism, colour, marker in zip(MECHANISMS, _COLOURS, _MARKERS, strict=True):
            chosen = [p for p in results if (p.data, p.mechanism) == (data, mechanism)]
            hard, answered = np.zeros(len(phases)), np.zeros(len(phases))
            for one in chosen:
                hard[one.phase - 1] += one.hard / seeds
                answered[one.phase - 1] += one.answered / seeds
            # With the budget spent there are no hard queries either, which is not a sign of remembering.
            shown = max(1, int(np.sum(np.isclose(answered, setting.queries))))
            for axis, y in ((top, hard[:shown]), (bottom, np.cumsum(answered))):
                axis.plot(phases[: len(y)], y, marker=marker, color=colour, label=NAMES[mechanism])
        asked = [setting.queries * phase for phase in phases]
        bottom.plot(phases, asked, color=_GREY, linestyle=":", zorder=0, label="asked")
        hard_ones = f"hard queries in the phase,\nof {setting.queries} asked (shown\nuntil a budget is spent)"
        _name(top, titles[data], "phase", hard_ones)
        _name(bottom, "", "phase", "queries answered so far")
        for axis in (top, bottom):
            axis.set(xticks=phases, ylim=(0, None))
        top.set_ylim(-0.02 * setting.queries, 0.75 * setting.queries)
    return figure
