"""What another version of the attributes changes, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.text.reply_text import bare_table, numbers
from stream_dp.display.answer_words import few_of
from stream_dp.display.event_words import range_words
from stream_dp.messages import (
    AttributeSpec,
    BooleanAttribute,
    CategoryAttribute,
    DateAttribute,
    Definition,
    NumberAttribute,
    Proposal,
    SchemaVersion,
)

Attributes = Sequence[AttributeSpec]

_few: Final = partial(few_of, most=8, mark=",")
"""Names at most eight values or edges in a line."""


def version_lines(versions: Sequence[SchemaVersion], n_open: int) -> Iterator[str]:
    """Yields what each version of the attributes of a data set changes.

    Args:
        versions: The versions, the oldest first.
        n_open: The number of open phases.
    """
    first = versions[0]
    names = ", ".join(one.name for one in first.attributes)
    yield f"version {first.schema_version}, from phase {first.first_phase:,} on: {names}"
    for before, after in pairwise(versions):
        later = "" if after.first_phase <= n_open else ", which is not open yet"
        yield f"version {after.schema_version}, from phase {after.first_phase:,} on{later}"
        yield from (f"  {line}" for line in differences(before.attributes, after.attributes))


def grid_lines(definition: Definition, n_open: int) -> Iterator[str]:
    """Yields what is to come of numbers whose bounds are to be proposed.

    Args:
        definition: The definition, as the catalog has it.
        n_open: The number of open phases.
    """
    newest = definition.schema_versions[-1]
    for one in newest.attributes:
        if one.type != "number" or one.propose is None:
            continue
        known, said = proposal_for(one, definition), f"{one.name} has the bins of a fixed grid"
        if known is None:
            phase = max(newest.first_phase, n_open + 1)
            yield f"{said}; others are proposed once phase {phase:,} is open"
        elif known.edges is None:
            yield f"{said}; its phase had too few rows to propose others"
            yield "  send edges of your own with: stream-dp schema apply"
        else:
            yield f"{said}; proposed edges: {_few(_edges(known.edges))}"
            yield (
                f"  nearly all of it is {range_words(known)}; "
                f"accept with: stream-dp schema accept {definition.dataset}"
            )


def found_tables(definition: Definition) -> Iterator[Table | str]:
    """Yields a table for each attribute whose values are found: since when each is, and how many have it."""
    who = "rows" if definition.privacy.unit is None else "persons"
    counts = definition.found or ()
    for name in dict.fromkeys(one.attribute for one in counts):
        table = bare_table(name, *numbers("since phase", who, "in phases"))
        for one in counts:
            if one.attribute == name:
                phases = "{:,} to {:,}".format(*one.phases)
                count = f"{max(one.count, 0):,} ± {one.error_bar:,}"
                table.add_row(escape(one.value), f"{one.since:,}", count, phases)
        yield table
    if counts:
        yield "values are found by these counts: they are too large on average where a value was just found"
        yield "no answer uses them"


def proposal_for(one: AttributeSpec, definition: Definition) -> Proposal | None:
    """Returns what was proposed for an attribute that waits for it; None for nothing."""
    if one.type != "number" or one.propose is None:
        return None
    proposals = definition.proposals or ()
    return next((known for known in proposals if known.attribute in one.names), None)


def differences(before: Attributes, after: Attributes) -> Iterator[str]:
    """Yields a line for each thing that other attributes change, with what it means for earlier rows."""
    for now in after:
        names = {*now.names}
        was = next((one for one in before if not names.isdisjoint(one.names)), None)
        if was is None:
            said = "is missing in them" if now.before is None else f"counts as {now.before} in them"
            yield f"{now.name} is new; earlier rows do not have it: it {said}"
        else:
            yield from (f"{now.name}: {line}" for line in _of_one(was, now))


def _of_one(was: AttributeSpec, now: AttributeSpec) -> Iterator[str]:
    """Yields what has changed of one attribute."""
    if was.name != now.name:
        yield f"it was called {was.name}; both names work in rows and queries"
    if now.missing and not was.missing:
        yield "missing values have a cell of their own; earlier rows stay where they counted"
    if now.deprecated and not was.deprecated:
        yield "rows need not have it any more; it can still be asked about"
    if was.deprecated and not now.deprecated:
        yield "rows have it again"
    match was, now:
        case CategoryAttribute(), CategoryAttribute():
            yield from _of_values(was, now)
        case NumberAttribute(), NumberAttribute():
            yield from _of_bins(was, now)
        case DateAttribute(), DateAttribute():
            yield from _of_periods(was, now)
        case BooleanAttribute(), BooleanAttribute():
            pass
        case _:
            yield f"it is a {now.type}, and was a {was.type}"
    if was.na != now.na:
        yield f"what counts as missing too: {', '.join(now.na or ()) or 'nothing'}"


def _of_values(was: CategoryAttribute, now: CategoryAttribute) -> Iterator[str]:
    known, counts_as = {*was.values, *(was.also or ())}, now.also or {}
    renamed = {old: new for old, new in counts_as.items() if (was.also or {}).get(old) != new}
    new = [value for value in now.values if value not in known and value not in renamed.values()]
    if new:
        stay = "other" if was.other else "the cell where they counted"
        if len(new) == 1:
            yield f"{new[0]} is a value of its own; earlier rows with it stay in {stay}"
        else:
            yield f"{_few(new)} are values of their own; earlier rows with them stay in {stay}"
    for value in dict.fromkeys(renamed.values()):
        old = [each for each, target in renamed.items() if target == value]
        if value in known or len(old) > 1:
            count = "counts" if len(old) == 1 else "count"
            yield f"{_few(old)} {count} as {value}, also in earlier rows"
        else:
            yield f"{old[0]} is called {value}; both names work in rows and queries"
    if now.other and not was.other:
        yield "unlisted values have a cell of their own; earlier rows stay where they counted"


def _of_bins(was: NumberAttribute, now: NumberAttribute) -> Iterator[str]:
    added = _edges(edge for edge in now.edges if edge not in was.edges)
    gone = _edges(edge for edge in was.edges if edge not in now.edges)
    if was.propose is not None and now.propose is None:
        gone = []
        yield f"bins begin at {_few(_edges(now.edges))}, in place of those of the fixed grid"
    if added:
        yield f"bins also begin at {_few(added)}; earlier rows stay in the wider bins that they were in"
    if gone:
        yield f"no bin begins at {_few(gone)} any more; earlier rows count in the wider ones"
    if was.measure != now.measure and was.measure is not None and now.measure is not None:
        (old, new) = (f"{one.low:g} to {one.high:g}" for one in (was.measure, now.measure))
        yield f"sums count values from {new}; those of earlier rows count within {old}"
    elif was.propose is not None and now.measure is not None:
        low, high = now.measure.low, now.measure.high
        yield f"values are kept for sums from {low:g} to {high:g}, in units of {now.measure.unit:g}"
    elif was.measure != now.measure:
        yield "whether its values are kept changes"
    if was.representatives != now.representatives:
        yield "bins count for other values in sums"


def _of_periods(was: DateAttribute, now: DateAttribute) -> Iterator[str]:
    if (was.first, was.until) != (now.first, now.until):
        yield (
            f"periods go from {now.first} to {now.until or 'two years later'}; earlier rows outside of "
            f"{was.first} to {was.until or 'two years later'} stay together"
        )


def _edges(edges: Iterable[float]) -> list[str]:
    return [f"{edge:.15g}" for edge in edges]
