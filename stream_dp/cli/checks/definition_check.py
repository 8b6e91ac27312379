"""What is said of a definition before it is used: when a phase opens, at what price, and likely mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stream_dp.cli.terminal import many, warn
from stream_dp.cli.text.reply_text import rows_of_a_phase
from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.rows.universe import Universe
from stream_dp.display.figure_text import share, share_range
from stream_dp.messages import Definition, large_delta, large_epsilon
from stream_dp.profiles.advice import Need, least_error
from stream_dp.profiles.builder import build
from stream_dp.profiles.line_units import delta_of_person, epsilon_of_person, privacy_of
from stream_dp.profiles.opening_price import Announced, Opening, announced, opening_of
from stream_dp.profiles.planned_tiles import tiles_of
from stream_dp.profiles.share_settings import check_opening

_NAMED: Final = 3
"""The most other data sets that a warning names."""
_STAYS: Final = 5
"""A warning is about persons who stay this many times as long as the promise covers."""


def checked(definition: Definition) -> str:
    """Checks a new definition, warns of likely mistakes, and says what it means.

    It says when a phase opens, what that takes, and how long rows are kept if not for ever.
    """
    opening = _opening_words(definition)
    return opening if definition.retention is None else f"{opening}\n{kept_words(definition)}"


def _opening_words(definition: Definition) -> str:
    definition.check_new()
    universe, mechanism = build(definition)
    opens = rows_of_a_phase(definition)
    _warn_of_tiles(definition, universe)
    _warn_of_more_rows(definition, opens)
    warn_of_privacy(definition, opens)
    check_opening(definition, mechanism)
    said, takes = f"a phase opens {opens_when(definition)}", announced(mechanism, opens)
    if takes is None:
        return said
    _warn_of_error(definition, universe, opens)
    _warn_of_many_phases(definition)
    _warn_of_kinds(definition, mechanism, opens)
    of_persons = definition.privacy.unit is not None
    said += "\n" if of_persons or takes.ever > takes.most else ", which "
    said += takes_words(takes, "if all of its rows count" if of_persons else "")
    opening = opening_of(mechanism, universe.names, opens)
    if opening is None:
        return said
    _warn_of_opening(definition, opening)
    words = (
        late_words(definition),
        running_words(definition, mechanism),
        *grid_words(definition),
    )
    return "\n".join([said, free_words(opening), *filter(None, words)])


# ---------------------------------------------------------------- in words


def opens_when(definition: Definition) -> str:
    """Says when a phase opens."""
    rows = f"{rows_of_a_phase(definition):,} rows"
    if definition.phase.every is None:
        return f"at {rows}"
    zone, close = definition.phase.timezone or "UTC", definition.phase.close
    when = "when" if close is None else f"{close.after} after"
    return f"{when} a period of {definition.phase.every} ends ({zone}), if at least {rows} wait"


def takes_words(takes: Announced, when: str = "") -> str:
    """Says what opening a phase takes, as a range that is rounded outwards.

    Args:
        takes: What is announced.
        when: What the range supposes of the phase.
    """
    found = share_range(takes.least, takes.most)
    if takes.ever == takes.least:
        return f"takes {found} of its budget"
    ever = share(min(1.0, math.ceil(takes.ever * 1e4) / 1e4))
    few, most = takes.n_rows
    return (
        f"opening a phase of {few:,} to {most:,} rows takes {found} of its budget{when and f', {when}'}\n"
        f"no phase takes more than {ever} unasked, even if far more is asked than expected"
    )


def free_words(opening: Opening) -> str:
    """Says what is free once a phase is open."""
    if not opening.share:
        return "nothing is measured in advance; each new query pays for itself"
    free = "; ".join(opening.certifies) or "some queries about many phases"
    return f"free from then on: {free}"


def late_words(definition: Definition) -> str:
    """Says how long late rows are taken, and what that takes; empty where none are."""
    late = definition.phase.late
    if late is None:
        return ""
    return (
        f"late rows are taken for {late.within}, and a phase that gets some is measured again: the "
        "shares are for both"
    )


def running_words(definition: Definition, mechanism: Mechanism) -> str:
    """Says what running totals take, and what as many counts would take; empty without running totals."""
    said, running = definition.running, mechanism.running
    if said is None or running is None:
        return ""
    plan, prices = running.most, running.most.promise.prices
    tables = sum(map(prices.squared_sensitivity, plan.sizes))
    alone = plan.factor.ticks * prices.share((said.within_rows / plan.promise.z) ** 2, tables)
    what = "separate counts" if max(plan.sizes) == 1 else "separate tables"
    return (
        f"{plan.factor.ticks:,} totals in {definition.phase.every} within {said.within_rows:,g} rows take "
        f"{share(plan.units / UNITS)} of its budget ({plan.factor.ticks:,} {what}: {share(alone)})"
    )


def grid_words(definition: Definition) -> Iterator[str]:
    """Yields what opening the first phase takes to propose bins for numbers."""
    for one in definition.attributes:
        if one.type == "number" and one.propose is not None:
            yield (
                f"{one.name} has {len(one.edges) + 1} bins of a fixed grid at first; the first phase takes "
                f"{share(one.propose.share)} of its budget to propose others"
            )


def kept_words(definition: Definition) -> str:
    """Says how long rows and answers are kept."""
    phases, days = definition.kept_phases, definition.kept_answers_days
    said = "rows are kept until the data set is retired"
    if phases is not None:
        which = "newest phase" if phases == 1 else f"last {phases:,} phases"
        gone = "older ones are erased, and what was published of them stays"
        said = f"the rows of the {which} are kept; {gone}"
    if days is None:
        return said
    return f"{said}\nanswers and outcomes of batches are stored for {days:,} to {2 * days:,} days"


# ---------------------------------------------------------------- warnings


def warn_of_privacy(definition: Definition, n_rows: int) -> None:
    """Warns if epsilon or delta is so large that somebody may nearly be sure of a row, or see whole ones."""
    privacy = definition.privacy
    for said in (large_epsilon(privacy), large_delta(privacy.delta, n_rows)):
        if said is not None:
            warn(said)


def warn_of_same_persons(definition: Definition, catalog: Mapping[str, Definition]) -> None:
    """Warns if other data sets say by the same column whose row each is."""
    if (unit := definition.privacy.unit) is not None:
        units = ((name, other.privacy.unit) for name, other in catalog.items())
        same = [name for name, other in units if other is not None and other.key == unit.key]
        warn_of_others(definition, same, f"protect persons by the column {unit.key!r}")


def warn_of_others(definition: Definition, found: Iterable[str], what: str) -> None:
    """Warns that other data sets are about the same rows or persons.

    Args:
        definition: The definition.
        found: The names of data sets, perhaps also its own.
        what: What they do as well.
    """
    if others := sorted({*found} - {definition.dataset}):
        named = ", ".join(others[:_NAMED]) + " and others" * (len(others) > _NAMED)
        warn(
            f"data sets {named} {what} too: what the answers of several data sets tell about one row or "
            "person adds up, so the epsilons add up, and no ledger says so"
        )


def one_query(definition: Definition, universe: Universe, n_rows: int) -> Need:
    """The need of one query about one phase."""
    promised = definition.accuracy
    accuracy = Accuracy(promised.error, promised.failure_probability)
    return Need(universe, privacy_of(definition), accuracy, n_rows, phases=1, queries=1)


def reached(least: float | None) -> str:
    """Says which error a phase reaches, if it reaches any."""
    return "" if least is None else f", which reaches {least:.3g}"


def _warn_of_tiles(definition: Definition, universe: Universe) -> None:
    """Warns if a tile is about phases whose rows are erased, so that it must be asked in time."""
    settings, kept = definition.mechanism, definition.kept_phases
    if kept is None or settings.profile != "calibrated":
        return
    lengths = [tile.phases for tile in tiles_of(settings, universe)]
    if any(phases is None or phases > kept for phases in lengths):
        warn(
            f"a tile of mechanism.workload is about more phases than the {kept:,} whose rows are kept; ask "
            "it in every phase, for what was not measured in time is lost"
        )


def _warn_of_more_rows(definition: Definition, opens: int) -> None:
    if opens > (given := definition.phase.min_rows):
        warn(
            f"phase.min_rows {given:,} is less than the {opens:,} rows that the "
            f"{definition.mechanism.profile} profile needs with these settings; a phase opens at that many"
        )


def _warn_of_error(definition: Definition, universe: Universe, n_rows: int) -> None:
    """Warns if no query about a single phase could be answered as promised."""
    if definition.accuracy.aim is not None:
        return
    least, error = least_error(one_query(definition, universe, n_rows)), definition.accuracy.error
    if least is None or least > error:
        warn(
            f"accuracy.error {error:g} is out of reach of a phase of {n_rows:,} rows{reached(least)}; "
            "`stream-dp advise` lists what would work"
        )


def _warn_of_many_phases(definition: Definition) -> None:
    """Warns of what a person loses who stays for more phases than the promise is about."""
    unit = definition.privacy.unit
    if unit is None or unit.lifetime:
        return
    phases = _STAYS * unit.phases
    lost, delta = epsilon_of_person(definition, [1.0] * phases), delta_of_person(definition, phases)
    at = "" if delta == definition.privacy.delta else f" and delta {delta:.3g}"
    warn(
        f"epsilon {definition.privacy.epsilon:g} is promised for any {many(unit.phases, 'phase')} in a row; "
        f"a person who stays longer loses more: epsilon {lost:.3g}{at} after {phases:,} phases"
    )


def _warn_of_kinds(definition: Definition, mechanism: Mechanism, n_rows: int) -> None:
    """Warns if a single phase has too few rows or too little budget for a kind of query."""
    assert isinstance(mechanism, Calibrated), "what opening takes is known"
    spent = mechanism.openings.units(n_rows)
    for kind, least in mechanism.least_windows.items():
        if least > n_rows:
            warn(
                f"kinds.{kind} needs windows of {least:,} rows or more, but a phase opens at {n_rows:,}; "
                "a larger share needs fewer rows"
            )
        asked, left = getattr(definition.kinds, kind).share, UNITS - spent
        if asked * UNITS > left:
            warn(
                f"kinds.{kind}.share {asked:g} is more than a phase of {n_rows:,} rows has left once it is "
                f"open, {left * 1000 // UNITS / 1000:g}; it can pay for no look"
            )


def _warn_of_opening(definition: Definition, opening: Opening) -> None:
    """Warns if opening a phase takes much, or if too little is left, or too little published."""
    if opening.large:
        warn(
            f"opening a phase takes {share(opening.share)} of its lifetime budget; "
            "`stream-dp advise` compares this with other settings"
        )
    if opening.scarce and opening.one_by_one >= 1.0:
        name = "name mechanism.workload or mechanism.queries_per_phase, or " * (not opening.named)
        warn(
            f"at this error a phase's budget pays for about {opening.one_by_one:,.0f} queries one by "
            f"one, and {opening.expected:,} are expected; {name}allow a larger accuracy.error"
        )
    if definition.synthetic_rows and opening.blurred is not None:
        warn(
            f"synthetic rows will be poor: opening a phase publishes too little about {opening.blurred}; "
            "set mechanism.base_share to a larger share, such as 0.2, to publish more"
        )
