"""``stream-dp lab``: the papers' attacks, bound and conjecture, on synthetic rows."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

import click
import numpy as np
import numpy.typing as npt
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.terminal import show
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import bare_table, numbers
from stream_dp.core.kinds.correlated_vector.vector_law import ResponsePlan
from stream_dp.errors import InvalidInput
from stream_dp.lab import conjecture, median_search, tracing_attack
from stream_dp.lab.reconstruction_attack import (
    Respond,
    agreement,
    expected_agreement,
    majority_attack,
)
from stream_dp.lab.seeded_noise import SeededNoise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

_SEED: Final = 1
_TRACED_ROWS, _TRACED_RUNS = 20, 15
_TRACED_QUERIES: Final = (300, 1_000, 3_000, 10_000)
_TRACED_SCALES: Final = (0.0, 0.05, 0.5)
_BITS: Final = 20_000
_EPSILONS: Final = (Fraction(1), Fraction(1, 2), Fraction(1, 5))
_ASKED: Final = (1, 3, 11, 31, 101, 301)
_SIZES: Final = tuple(2**exponent for exponent in range(4, 25, 4))
_TERMS: Final[median_search.SearchTerms] = {
    "alpha": 0.05,
    "epsilon": 1.0,
    "failure_probability": 0.1,
}

_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default=False,
    help="The folder for the plot.  [default: the current folder]",
)


@click.group()
def command() -> None:
    """Reproduce the papers' attacks, bound and conjecture on synthetic rows, each as a table and a plot."""


@command.command("tracing")
@_out
def tracing_command(out: Path) -> None:
    """Infer from answers to prefix queries whose row is in the data."""
    plots, rng, n = _plots(), np.random.default_rng(_SEED), _TRACED_ROWS
    scores: dict[tuple[float, int], tuple[list[float], list[float]]] = {}
    settings = [(scale, k) for scale in _TRACED_SCALES for k in _TRACED_QUERIES]
    for scale, k in _progress(settings, "Tracing rows"):
        inside, outside = scores[scale, k] = ([], [])
        for _ in range(_TRACED_RUNS):
            traced = tracing_attack.trace(
                rng, n_rows=n, n_queries=k, answer=_noisy_shares(rng, scale), n_outside=20
            )
            inside += traced.inside.tolist()
            outside += traced.outside.tolist()
    names = ("noise of a share", "queries", "score inside", "expected", "sd outside", "expected")
    table = bare_table(*numbers(*names, "rows found"))
    for (scale, k), (inside, outside) in scores.items():
        expected = tracing_attack.expected_inside(n, k)
        deviation = tracing_attack.deviation_outside(n, k, scale)
        figures = (np.mean(inside), expected, np.std(outside), deviation)
        found = np.mean(np.array(inside) > expected / 2)
        table.add_row(f"{scale:g}", f"{k:,}", *(f"{one:.1f}" for one in figures), f"{found:.0%}")
    _show(table, plots.tracing(scores, n_rows=n), out / "tracing")


def _noisy_shares(rng: np.random.Generator, scale: float) -> tracing_attack.Answer:
    def answer(counts: npt.NDArray[np.int64], n_rows: int) -> tracing_attack.Floats:
        return np.asarray(counts / n_rows + rng.laplace(0.0, scale, len(counts)))

    return answer


@command.command("reconstruction")
@_out
def reconstruction_command(out: Path) -> None:
    """Reconstruct private bits by the majority of answers to queries made of earlier answers."""
    plots, rng = _plots(), np.random.default_rng(_SEED)
    noise, bits = SeededNoise(rng), rng.choice([-1, 1], _BITS)
    kept = ResponsePlan(_EPSILONS[0]).respond(bits, noise)

    def fresh(plan: ResponsePlan) -> Respond:
        return lambda _: plan.respond(bits, noise)

    found: dict[float, list[tuple[int, float, float]]] = {
        float(epsilon): [] for epsilon in _EPSILONS
    }
    once: list[tuple[int, float]] = []
    for k in _progress(_ASKED, "Reconstructing"):
        for epsilon in _EPSILONS:
            plan = ResponsePlan(epsilon)
            guess = majority_attack(fresh(plan), n_rows=_BITS, n_queries=k)
            expected = expected_agreement(float(plan.agreement), k)
            found[float(epsilon)].append((k, agreement(guess, bits), expected))
        guess = majority_attack(lambda _: kept, n_rows=_BITS, n_queries=k)
        once.append((k, agreement(guess, bits)))
    table = bare_table(*numbers("epsilon an answer", "answers", "bits guessed right", "expected"))
    for each, rows in found.items():
        for k, agreed, expected in rows:
            table.add_row(f"{each:g}", str(k), _right(agreed), _right(expected))
    for k, agreed in once:
        table.add_row("1, one response", str(k), _right(agreed), "")
    _show(table, plots.reconstruction(found, once, n_rows=_BITS), out / "reconstruction")


def _right(agreed: float) -> str:
    """Converts an agreement in [-1, 1] to the share of bits guessed right."""
    return f"{(1 + agreed) / 2:.1%}"


@command.command("median-search")
@_out
def median_search_command(out: Path) -> None:
    """Count the rows that a private search for the median needs."""
    plots, rng = _plots(), np.random.default_rng(_SEED)
    steps = median_search.experiment(rng, sizes=_SIZES, n_searches=2_000, **_TERMS)
    needed = list(_progress(steps, "Searching", total=len(_SIZES)))
    names = numbers("values", "queries", "packing bound", "rows used", "proved enough")
    table = bare_table(*names)
    for row in needed:
        cells = (row.size, row.queries, round(row.bound), row.used, round(row.enough))
        table.add_row(*(f"{cell:,}" for cell in cells))
    _show(table, plots.median_search(needed, **_TERMS), out / "median-search")


@command.command("conjecture")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    help="The number of data sets of each kind.",
)
@_out
def conjecture_command(seeds: int, out: Path) -> None:
    """Count the hard queries that a memory saves (Kim 2017, conjecture 5.3)."""
    plots, setting = _plots(), conjecture.Setting()
    total = seeds * len(conjecture.DATA) * len(conjecture.MECHANISMS) * setting.phases
    results = list(_progress(conjecture.experiment(setting, seeds=seeds), "Asking", total=total))
    table = bare_table("data", "mechanism", *numbers("answered", "hard", "too far off"))
    asked = seeds * setting.phases * setting.queries
    for data in conjecture.DATA:
        for mechanism in conjecture.MECHANISMS:
            rows = [p for p in results if (p.data, p.mechanism) == (data, mechanism)]
            answered, hard, missed = (
                f"{sum(getattr(p, name) for p in rows):,}"
                for name in ("answered", "hard", "missed")
            )
            table.add_row(data, plots.NAMES[mechanism], f"{answered} of {asked:,}", hard, missed)
    _show(table, plots.conjecture(results, setting, seeds=seeds), out / "conjecture")


def _plots() -> ModuleType:
    """Loads the module that draws, before the command computes anything in vain."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidInput("lab", "plots need matplotlib", "pip install 'stream-dp[lab]'")
    return importlib.import_module("stream_dp.cli.research.lab_plots")


def _progress(steps: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    with bar() as progress:
        yield from progress.track(steps, total, description=what)


def _show(table: Table, figure: Figure, file: Path) -> None:
    """Prints the table, writes ``file`` with both endings, and prints the names."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = [file.with_suffix(ending) for ending in (".png", ".svg")]
    for name in names:
        figure.savefig(name, dpi=150, metadata={"Date": None} if name.suffix == ".svg" else None)
    show(table, escape(f"wrote the plot to {names[0]} and {names[1]}"))
