"""Advice in words: which mechanism to use, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.checks.person_census import choices_table, persons_lines, with_unit
from stream_dp.cli.terminal import many
from stream_dp.cli.text.reply_text import bare_table, numbers
from stream_dp.core.budget.parameters import Unit
from stream_dp.lab.person_counts import Census, CountingChoice
from stream_dp.lab.singles import Single
from stream_dp.messages import Definition
from stream_dp.profiles.advice import RECENT, SERVES, Estimate, Name, Need, Trial, recommended

_ANYBODY: Final = 10**12
"""A number of rows that no phase reaches in practice."""
_CALLED: Final[Mapping[Name, str]] = {
    Name.UNDECLARED: "calibrated without the workload",
    Name.WITHOUT_BASE: "calibrated without a base release",
    Name.PURE_COUNTS: "counts under a pure promise",
    Name.TREE: "trees of thresholds",
}


@dataclass(frozen=True)
class Advice:
    """What was found about a need.

    Attributes:
        found: What each mechanism can do.
        trials: What those have shown that were tried.
        prices: What single queries take of a line.
    """

    need: Need
    found: Sequence[Estimate]
    trials: Mapping[Name, Trial]
    prices: Sequence[Single]


def advice_lines(
    advice: Advice, sample: Path | None, *, names_error: bool
) -> Iterator[str | Table]:
    """Yields the recommendation, what every mechanism can do, and what single queries take.

    Args:
        advice: What was found.
        sample: The file that rows were drawn from. None for synthetic rows.
        names_error: Whether the definition names the error.
    """
    yield from _recommendation(advice.need, advice.found, names_error=names_error)
    yield ""
    yield _table(advice)
    yield f"\n[dim]{' '.join(_footnotes(advice.need, advice.trials, sample))}[/dim]"
    if advice.prices:
        yield "\n[b]What one query takes of a phase's budget if nothing is known yet[/b]"
        yield _prices_table(advice.prices)
        yield (
            "[dim]Half the error takes about four times as much. What is known already makes a query "
            "cheaper.[/dim]"
        )


def unit_lines(
    census: Census,
    own: Unit | None,
    found: Sequence[CountingChoice],
    best: CountingChoice,
    definition: Definition,
    *,
    phases: int,
    most_lost: float,
) -> Iterator[str | Table]:
    """Yields how many rows of a person should count, and for how many phases the promise should hold.

    Args:
        census: How many rows persons have in the sample.
        own: The unit in the definition, if it has one.
        found: What was tried.
        best: The one that is recommended.
        definition: The definition, of whose unit only the key is kept.
        phases: The phases in the life of the data set.
        most_lost: The largest epsilon that a person may lose under a unit that is recommended.
    """
    unit = best.unit
    yield from persons_lines(
        census, None if own is None else own.rows_per_phase, lifetime=unit.lifetime
    )
    any_, for_life = ("", " for life") if unit.lifetime else ("any ", "")
    yield (
        f"\n[b]Let {many(unit.rows_per_phase, 'row')} of a person count in a phase, and promise "
        f"{any_}{many(unit.phases, 'phase')}{for_life}[/b]: {percent(best.counted)} of the rows count, and "
        f"{percent(best.answered)} of the queries are answered."
    )
    if best.answered < SERVES:
        yield (
            "No promise this strong answers them all. To answer more, make phases longer, allow a larger "
            "error, or ask fewer queries."
        )
    written = with_unit(definition, unit).privacy.model_dump(exclude_defaults=True)
    yield from _written({"privacy": written})
    yield ""
    yield choices_table(found, best, definition, phases)
    yield (
        "[dim]answers: of the queries, by a short trial. rows_per_phase: the most that still answers them; "
        "more would leave some unanswered, or add more noise than it takes surplus away. epsilon: what a "
        "person who is in every phase has lost by then, if all budgets are spent. Fewer phases are left out "
        f"if that is above {most_lost:g}: more answers do not justify a weak promise.[/dim]\n"
    )
    if own is not None:
        yield "[b]The unit in the definition[/b]"


# ---------------------------------------------------------------- the recommendation


def _recommendation(need: Need, found: Sequence[Estimate], *, names_error: bool) -> Iterator[str]:
    best = recommended(found)
    asked = "the query" if need.asked == 1 else f"all {_asked(need)}"
    person = need.privacy.unit is not None
    rows = "rows that count" if person else "rows asked"
    wanted = f"{asked} within {percent(need.accuracy.error)} of the {rows}"
    whose = "a phase's budget" if person else "a row's lifetime budget"
    called = _CALLED.get(best.name, str(best.name))
    if best.serves:
        about = "" if best.opening == best.share else "about "
        yield f"[b]Use {called}[/b]: it answers {wanted} and spends {about}{_budget(best)} of {whose}."
    else:
        yield (
            f"[b]No mechanism answers {wanted}.[/b] {called[:1].upper()}{called[1:]} comes nearest: "
            f"{percent(best.part or 0.0)} of them."
        )
    calibrated = next(e for e in found if e.name is Name.CALIBRATED)
    if not best.name.startswith("calibrated") and best.serves and calibrated.serves:
        yield (
            "It answers single counts only. For tables, sums and averages use calibrated, which spends about "
            f"{_budget(calibrated)}."
        )
    error = {} if names_error else {"accuracy": {"error": need.accuracy.error}}
    where = ""
    if need.workload == "thresholds":
        where = f", with the attribute {need.universe.names[0]} alone"
    if need.tiles and best.name is Name.CALIBRATED:
        where = ", and keep the workload of its mechanism"
    yield from _written({**best.definition, **error, "phase": {"min_rows": need.n_rows}}, where)
    if not names_error:
        yield "Without accuracy.error each answer is as precise as it is worth, whatever is asked."


def _written(fields: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yields the lines to write into a definition."""
    yield f"\nWrite this in the definition{escape(where)}:"
    for name, value in fields.items():
        yield escape(f"  {json.dumps(name)}: {json.dumps(value)},")


def _table(advice: Advice) -> Table:
    need, best = advice.need, recommended(advice.found)
    limits = () if need.tiles else ("error", "rows a phase")
    table = bare_table("mechanism", *numbers("answers", "budget", *limits), "because")
    for estimate in advice.found:
        least = "" if estimate.error is None else percent(estimate.error)
        rows = "" if estimate.rows is None else rounded(estimate.rows)
        table.add_row(
            estimate.name,
            _part(estimate),
            _budget(estimate),
            *(() if need.tiles else (least, rows)),
            escape(_why(need, estimate, advice.trials.get(estimate.name))),
            style="green" if estimate is best else "" if estimate.problem is None else "dim",
        )
    return table


def _why(need: Need, estimate: Estimate, trial: Trial | None) -> str:
    if estimate.problem is not None:
        if (estimate.rows or 0) > max(_ANYBODY, need.n_rows):
            return (
                "all answers hold at once; the papers' constants need more rows than any table has"
            )
        return estimate.problem.replace("**", "^")
    match estimate.name:
        case Name.CALIBRATED | Name.UNDECLARED | Name.WITHOUT_BASE:
            assert trial is not None, "it is always tried"
            free = f"{percent(trial.easy / trial.asked)} of the queries were free"
            return f"{percent(estimate.opening)} when a phase opens; {free}"
        case Name.COUNTS | Name.PURE_COUNTS if need.tiles:
            return "pays for each new count; answers no tables, sums or averages"
        case Name.COUNTS | Name.PURE_COUNTS:
            return f"pays for each new query; can afford {rounded(estimate.queries or 0)}"
        case Name.TABLE:
            return "adds noise to each cell once, then all is free; sums of many cells are noisier"
        case Name.TREE:
            return "builds one tree a phase, then all thresholds are free"
        case Name.STABLE:
            moves = f"if {estimate.distance:,} replaced rows do not move it"
            return f"gives no counts; gives the exact median {moves}; {estimate.queries} looks"
        case Name.BYPASS:
            return "answers about all phases only; counts first, and its histogram learns from the counts"
        case Name.WEIGHTS:
            return f"{_hard(estimate)}; answers about all phases only"
        case Name.GATED:
            return _hard(estimate)
        case Name.MEDIAN | Name.SEQUENTIAL | Name.MEMORY:
            few = (estimate.rows or 0) > need.n_rows
            then = "pays when a phase opens, then all is free"
            return (
                f"all answers hold at once; {'its constants need this many rows' if few else then}"
            )
    raise AssertionError(estimate.name)


def _hard(estimate: Estimate) -> str:
    if not estimate.queries:
        return "a phase has too few rows for a single hard query"
    return f"can afford {rounded(estimate.queries, 'hard query')}"


def _footnotes(need: Need, trials: Mapping[Name, Trial], sample: Path | None) -> Iterator[str]:
    """Explains the columns and the trial."""
    phases = many(need.phases, "phase")
    yield "answers: how many of the queries are answered within the error;"
    yield "≥ if the number of hard queries is not known in advance."
    yield "budget: the largest part of its budget that any row spends."
    yield "no base: without a base release, with base_share 0."
    if need.tiles:
        yield "not declared: the same without the workload."
    else:
        yield "error, rows a phase: the smallest value at which all queries are answered."
    if need.queries:
        yield f"The queries are spread evenly over {phases};"
        yield f"half are about all rows so far, half about the last 1 to {RECENT} phases."
    if not trials:
        return
    if need.tiles:
        yield f"The trial asked each tile after each of {phases}."
    if need.queries:
        rows = "synthetic rows" if sample is None else f"rows drawn from {escape(sample.name)}"
        if need.privacy.unit is not None:
            rows += f", of which {need.counted:,} of {need.n_rows:,} count in each phase"
        missed = ", ".join(f"{name} {tried.missed:,}" for name, tried in trials.items())
        others = next(iter(trials.values())).asked - len(need.tiles) * need.phases
        yield f"The trial asked {rounded(others, 'query')} about {rows}; outside the error were: {missed}."
    if not need.tiles:
        yield "The other mechanisms are judged by formula."


def _prices_table(tried: Sequence[Single]) -> Table:
    table = Table("", *numbers(""), box=None, show_header=False, pad_edge=False)
    for single in tried:
        taken = "more than all" if single.share is None else percent(single.share)
        table.add_row(escape(_single(single)), taken)
    return table


def _single(single: Single) -> str:
    within = f"within {percent(single.error)} of the rows"
    match single.kind:
        case "count":
            return f"a count of rows, {within}"
        case "table":
            return f"a table by {single.attribute}, each cell {within}"
        case "average":
            return f"the average of {single.attribute}, within {single.error:.3g} (1% of its range)"
        case "relative":
            return f"a count of {single.rows:,} rows, within {percent(single.error)} of itself"


# ---------------------------------------------------------------- numbers


def _part(estimate: Estimate) -> str:
    """Formats the share of answered queries, as a lower bound if only the worst case is known."""
    if estimate.part is None:
        return "?"
    worst = estimate.name in {Name.WEIGHTS, Name.GATED} and 0.0 < estimate.part < 1.0
    return f"{'≥ ' * worst}{percent(estimate.part)}"


def _budget(estimate: Estimate) -> str:
    if estimate.share is None:
        return ""
    if estimate.opening >= 0.99 and estimate.share <= 1.0:
        return "all"
    return percent(estimate.share) if estimate.share < 10.0 else f"{estimate.share:,.0f} times"


def _asked(need: Need) -> str:
    """The queries of a need, tiles first."""
    queries = rounded(need.queries, "query")
    if not need.tiles:
        return queries
    tiles = f"{len(need.tiles)} tiles after each of {many(need.phases, 'phase')}"
    return f"{tiles} and {queries} more" if need.queries else tiles


def percent(part: float) -> str:
    """Formats a share with three digits. It never rounds a smaller share up to 100%."""
    if part >= 1.0:
        return f"{100 * part:.0f}%"
    if part >= 0.9995:
        return "99.9%"
    return f"{100 * part:.3g}%" if part == 0.0 or part >= 1e-5 else "less than 0.001%"


def rounded(number: int, noun: str = "") -> str:
    """Formats a number with all its digits, up to ten digits, and its noun."""
    digits, _, words = many(number, noun or "-").partition(" ")
    if number >= 10**10:
        mantissa, exponent = f"{number:.1e}".split("e+")
        digits = f"{mantissa.removesuffix('.0')}·10^{exponent}"
    return f"{digits} {words}" if noun else digits
