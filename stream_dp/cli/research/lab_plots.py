"""Draws the lab's results. The colours suit colour-blind readers (Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stream_dp.lab import tracing_attack as theory
from stream_dp.lab.conjecture import DATA, MECHANISMS, Mechanism, Phase, Setting
from stream_dp.lab.median_search import Needed
from stream_dp.lab.reconstruction_attack import private_agreement

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


def _name(axis: Axes, text: str, x: float, y: float, colour: str, *, dy: float = 0.0) -> None:
    """Writes the name of a line to the right of its point."""
    axis.annotate(
        text, (x, y), (7, dy), textcoords="offset points", color=colour, va="center", fontsize=9
    )


def tracing(
    scores: Mapping[tuple[float, int], tuple[list[float], list[float]]], *, n_rows: int
) -> Figure:
    """Plots the scores of rows inside and outside the data."""
    figure, (left, right) = _figure(
        "Enough answers reveal whose row is in the data, however noisy each of them is",
        1,
        2,
        height=4.8,
    )
    scales = sorted({scale for scale, _ in scores})
    most = max(k for _, k in scores)
    inside, outside = scores[scales[1], most]
    bins = np.linspace(min(outside), max(inside), 45).tolist()
    for values, colour, name in (
        (outside, _ORANGE, "not in the data"),
        (inside, _BLUE, "in the data"),
    ):
        heights, _, _ = left.hist(values, bins, color=colour, alpha=0.75)
        left.text(
            float(np.mean(values)), 1.03 * float(np.max(heights)), name, color=colour, ha="center"
        )
    left.margins(y=0.12)
    left.set_title(
        f"Scores after {most:,} queries, noise scale {scales[1]:g} of all rows", fontsize=10.5
    )
    left.set_xlabel("score of a row (no unit)")
    left.set_ylabel("rows, over all runs")
    for scale, colour, marker in zip(scales, _COLOURS, _MARKERS, strict=True):
        ks = sorted(k for at, k in scores if at == scale)
        measured = [np.mean(scores[scale, k][0]) / np.std(scores[scale, k][1]) for k in ks]
        expected = [
            theory.expected_inside(n_rows, k) / theory.deviation_outside(n_rows, k, scale)
            for k in ks
        ]
        right.plot(ks, expected, color=colour)
        right.plot(ks, measured, marker, color=colour)
        _name(
            right,
            f"noise {scale:g}",
            ks[-1],
            expected[-1],
            colour,
            dy=-6 if scale == scales[1] else 6,
        )
    right.set(xscale="log", yscale="log", xlim=(None, 2.6 * most))
    right.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    right.set_yticks([], minor=True)
    _whole_ticks(right, sorted({k for _, k in scores}))
    right.set_title("Noise as a share of all rows. Lines: theory. Marks: measured", fontsize=10.5)
    right.set_xlabel(f"queries asked, about the same {n_rows} rows")
    right.set_ylabel("distance of the two means\n(standard deviations of outsiders' scores)")
    return figure


def reconstruction(
    found: Mapping[float, Sequence[tuple[int, float, float]]],
    once: Sequence[tuple[int, float]],
    *,
    n_rows: int,
) -> Figure:
    """Plots the bits that the majority attack guesses right."""
    figure, (axis,) = _figure(
        "The majority of fresh answers reconstructs private bits; one answer kept for ever does not",
        1,
        1,
        height=5.2,
    )
    for (epsilon, rows), colour, marker in zip(found.items(), _COLOURS, _MARKERS, strict=True):
        ks = [k for k, _, _ in rows]
        axis.plot(ks, [_right(expected) for _, _, expected in rows], color=colour)
        axis.plot(ks, [_right(agreed) for _, agreed, _ in rows], marker, color=colour)
        k, _, expected = next(row for row in rows if _right(row[2]) > 0.84)
        axis.annotate(
            f"epsilon {epsilon:g}",
            (k, _right(expected)),
            (-9, 5),
            textcoords="offset points",
            color=colour,
            ha="right",
        )
    ks = [k for k, _ in once]
    axis.plot(ks, [_right(agreed) for _, agreed in once], "D--", color=_GREY, markersize=4)
    kept = _right(once[-1][1])
    axis.text(600, kept - 0.022, "one response to all queries, epsilon 1", color=_GREY, ha="right")
    cap = _right(private_agreement(1.0, 0.05))
    axis.axhline(cap, color="black", linewidth=1, linestyle=":")
    axis.text(600, cap + 0.008, "the most that (1, 0.05)-privacy allows in all", ha="right")
    axis.set(xscale="log", xlim=(0.9, 620), ylim=(0.5, 1.02))
    _whole_ticks(axis, ks)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_title(
        "Coloured: a fresh response to each query, at the epsilon shown. Lines: expected. Marks: measured",
        fontsize=10.5,
    )
    axis.set_xlabel("answers, each to a query made of all answers before it")
    axis.set_ylabel(f"bits guessed right, of {n_rows:,} (50% is blind guessing)")
    return figure


def _whole_ticks(axis: Axes, ticks: Sequence[int]) -> None:
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.set_xticks([], minor=True)


def _right(agreement: float) -> float:
    return (1.0 + agreement) / 2.0


def median_search(
    needed: Sequence[Needed], *, alpha: float, epsilon: float, failure_probability: float
) -> Figure:
    """Plots the rows that a private search for the median needs."""
    times = needed[-1].used / needed[-1].bound
    figure, (axis,) = _figure(
        f"Searching privately for the median takes some {times:.0f} times the rows of the packing bound",
        1,
        1,
        height=5.2,
    )
    sizes = [row.size for row in needed]
    lines = (
        ("proved to be enough for this search", [row.enough for row in needed], _GREY, "--"),
        (
            "used: fewest rows with which it succeeded",
            [float(row.used) for row in needed],
            _BLUE,
            "o-",
        ),
        ("packing bound: nobody does with fewer", [row.bound for row in needed], _ORANGE, "-"),
    )
    for name, rows, colour, style in lines:
        axis.plot(sizes, rows, style, color=colour)
        _name(axis, name, sizes[-1], rows[-1], colour, dy=4 if colour == _GREY else -3)
    axis.fill_between(
        sizes, 1, [row.bound for row in needed], color=_ORANGE, alpha=0.15, linewidth=0
    )
    axis.set_xscale("log", base=2)
    axis.set(yscale="log", xlim=(sizes[0] / 1.5, sizes[-1] * 2.0**10), ylim=(10, None))
    axis.set_xticks(sizes)
    axis.set_yticks([10, 30, 100, 300, 1000, 3000], ["10", "30", "100", "300", "1,000", "3,000"])
    axis.set_yticks([], minor=True)
    axis.set_title(
        f"epsilon {epsilon:g}, rank within {alpha:.0%} of the middle, in {1 - failure_probability:.0%} "
        "of searches; noise of scale (queries / epsilon) in every count",
        fontsize=10.5,
    )
    axis.set_xlabel("values of the attribute")
    axis.set_ylabel("rows, in packing data sets")
    return figure


def conjecture(results: Sequence[Phase], setting: Setting, *, seeds: int) -> Figure:
    """Plots the hard queries of each mechanism, phase by phase."""
    figure, axes = _figure(
        f"Remembering saves hard queries, and so answers more (means of {seeds} data sets of each kind)",
        2,
        2,
        height=7.2,
    )
    phases = list(range(1, setting.phases + 1))
    for column, data in enumerate(DATA):
        top, bottom = axes[column], axes[column + 2]
        for mechanism, colour, marker in zip(MECHANISMS, _COLOURS, _MARKERS, strict=True):
            chosen = [p for p in results if (p.data, p.mechanism) == (data, mechanism)]
            hard, answered = (
                np.array(
                    [
                        sum(getattr(p, name) for p in chosen if p.phase == phase) / seeds
                        for phase in phases
                    ]
                )
                for name in ("hard", "answered")
            )
            # With the budget spent there are no hard queries either, which is not a sign of remembering.
            shown = max(1, int(np.sum(answered == setting.queries)))
            top.plot(phases[:shown], hard[:shown], f"{marker}-", color=colour)
            so_far = np.cumsum(answered)
            bottom.plot(phases, so_far, f"{marker}-", color=colour)
            _name(bottom, NAMES[mechanism].replace(", ", ",\n"), phases[-1], so_far[-1], colour)
            _name(
                top,
                NAMES[mechanism].replace(", ", ",\n"),
                phases[shown - 1],
                hard[shown - 1],
                colour,
                dy=14,
            )
        top.set_title(
            "Stationary: all phases alike"
            if data == "stationary"
            else f"Drifting: {setting.drift:.0%} of how cells differ is new in each phase",
            fontsize=10.5,
        )
        asked = [setting.queries * phase for phase in phases]
        bottom.plot(phases, asked, color=_GREY, linestyle=":", zorder=0)
        bottom.annotate(
            "asked",
            (phases[2], asked[2]),
            (-8, 6),
            textcoords="offset points",
            color=_GREY,
            ha="right",
        )
        for axis in (top, bottom):
            axis.set(xlim=(0.8, setting.phases + 2.6), ylim=(0, None), xlabel="phase")
            axis.set_xticks(phases)
        top.set_ylim(-0.02 * setting.queries, 0.75 * setting.queries)
        top.set_ylabel(
            f"hard queries in the phase,\nof {setting.queries} asked (shown\nuntil a budget is spent)"
        )
        bottom.set_ylabel("queries answered so far")
    return figure
