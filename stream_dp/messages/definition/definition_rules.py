"""What must hold between the parts of a definition, such as a profile and the attributes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from stream_dp.calendar_periods import Length, zone_of
from stream_dp.messages.analyst_rules import bounds_spending, check_shares
from stream_dp.messages.definition.profile_specs import CalibratedSpec
from stream_dp.messages.definition.promise_specs import MAX_SQUARES, as_written
from stream_dp.messages.kinds.extra_kinds import KindsSpec

if TYPE_CHECKING:
    from stream_dp.messages.definition.definition import Definition

MAX_MEASURED_PHASE = 2**40
"""The most rows of a phase of which values are kept: their sums stay within 64 bits."""

_MOST_PROPOSING: Final = Fraction(1, 2)
"""The largest share of a line that all proposals take together."""


def _within_the_line(definition: Definition) -> None:
    if definition.analysts is not None:
        check_shares(definition.analysts, definition.owner)
        if definition.mechanism.paid_at_opening and bounds_spending(
            definition.analysts, definition.owner
        ):
            raise ValueError(
                f"analysts: the profile {definition.mechanism.profile} pays for all queries of a phase when "
                'it opens, so nothing bounds what one of them charges: use "calibrated", or remove share, '
                "together, spending_per_minute and owner"
            )
    elif definition.owner is not None:
        raise ValueError("owner goes with analysts: add analysts, or remove owner")


def _within_the_profile(definition: Definition) -> None:
    """Refuses what only other profiles can do."""
    mechanism, accuracy = definition.mechanism, definition.accuracy
    if definition.kinds != KindsSpec() and not mechanism.takes_kinds:
        raise ValueError('kinds need the profile "calibrated": remove kinds or change the profile')
    for name in ("least_error", "query_share", "aim"):
        if getattr(accuracy, name) is not None and not mechanism.takes_errors:
            raise ValueError(
                f'accuracy.{name} needs the profile "calibrated": remove it or change the profile'
            )
    if accuracy.least_error is not None and accuracy.least_error > accuracy.error:
        raise ValueError(
            "accuracy.least_error is above accuracy.error, so no query could be answered: "
            "use at most accuracy.error"
        )
    if definition.kept_phases is not None and not mechanism.takes_retention:
        raise ValueError(
            f"retention: the profile {mechanism.profile} looks at the rows of all phases again: use "
            '"calibrated", "counts" or "whole_table", or remove retention'
        )
    if definition.synthetic_rows and not mechanism.feeds_synthetic_rows:
        raise ValueError('the profile "counts" has no synthetic rows: remove synthetic_rows')


def _values_are_summed(definition: Definition) -> None:
    for index, attribute in enumerate(definition.attributes):
        if attribute.type != "number" or attribute.measure is None:
            continue
        if not definition.mechanism.takes_measures:
            raise ValueError(
                f'attributes.{index}.measure needs the profile "calibrated", because no other profile '
                "answers sums: remove measure or change the profile"
            )
        if definition.phase.min_rows > MAX_MEASURED_PHASE:
            raise ValueError(
                f"phase.min_rows is above {MAX_MEASURED_PHASE:,}, the most rows of a phase of which "
                f"attributes.{index}.measure can keep the values: use fewer, or remove measure"
            )


def _values_are_found(definition: Definition) -> None:
    finds = [one.find for one in definition.attributes if one.type == "category" and one.find]
    if not finds:
        return
    if definition.mechanism.profile != "calibrated" or definition.kinds != KindsSpec():
        raise ValueError(
            'find needs the profile "calibrated" without kinds: list values, or change the definition'
        )
    if definition.synthetic_rows:
        raise ValueError(
            "find: synthetic rows need all values: list them, or remove synthetic_rows"
        )
    if sum(find.share for find in finds) > 0.5:
        raise ValueError("find.share: together they take more than half of each line: use less")
    kept = definition.kept_phases
    if kept is not None and any(find.windows[-1] > kept for find in finds):
        raise ValueError(
            "find.windows: rows are erased before the last window ends: use shorter windows, or larger "
            "retention.phases"
        )


def _periods_run(definition: Definition) -> None:
    if definition.running is None:
        return
    if definition.mechanism.profile != "calibrated" or definition.kinds != KindsSpec():
        raise ValueError(
            'running needs the profile "calibrated" without kinds: remove it, or change the definition'
        )
    if definition.phase.close is None:
        raise ValueError(
            "running: totals are about periods that the clock closes: add phase.every and phase.close"
        )


def _rows_come_late(definition: Definition) -> None:
    late, kept, unit = definition.phase.late, definition.kept_phases, definition.privacy.unit
    if late is None:
        return
    if definition.mechanism.profile != "calibrated" or definition.kinds != KindsSpec():
        raise ValueError(
            'phase.late needs the profile "calibrated" without kinds: remove it, or change the definition'
        )
    if unit is not None and unit.lifetime:
        raise ValueError(
            "phase.late: what a person may add for life is used up as a phase opens: remove late, or "
            "lifetime"
        )
    if kept is not None:
        assert definition.phase.every is not None, "it was checked"
        every, utc = Length.read(definition.phase.every), zone_of(None)
        if Length(kept * every.count, every.unit).after(0, utc) < Length.read(late.within).after(
            0, utc
        ):
            raise ValueError(
                "phase.late.within: rows are erased before the time for late rows ends: use a shorter "
                "one, or larger retention.phases"
            )


def _persons_are_erased(definition: Definition) -> None:
    erasure, unit = definition.erasure, definition.privacy.unit
    if erasure is None:
        return
    if unit is None:
        raise ValueError(
            "erasure: it is persons who are erased: add privacy.unit, or remove erasure. Where each row is "
            "by itself, name its key as privacy.unit.key"
        )
    if definition.running is not None or definition.phase.late is not None:
        raise ValueError(
            "erasure: rows of open periods with running totals, and late rows, cannot be erased: remove "
            "running and phase.late, or erasure"
        )
    attributes = {name for one in definition.attributes for name in one.names}
    if erasure.row in {"count", unit.key, *attributes}:
        raise ValueError(
            "erasure.row is the name of an attribute, of the key of persons, or of the count of a cell: name "
            "another column"
        )


def _rows_are_folded(definition: Definition) -> None:
    unit, erasure = definition.privacy.unit, definition.erasure
    first = next(iter(definition.folds), None)
    if first is None:
        return
    at = [one.name for one in definition.attributes].index(first)
    field = f"attributes.{at}.fold"
    if unit is None or unit.rows_per_phase != 1:
        raise ValueError(
            f"{field}: rows of a person are folded into one: add privacy.unit with rows_per_phase 1, or "
            "remove fold"
        )
    if definition.running is not None or definition.phase.late is not None:
        raise ValueError(
            f"{field}: rows are folded as a phase opens: remove running and phase.late, or fold"
        )
    if erasure is not None and erasure.row is not None:
        raise ValueError(
            f"{field}: a row that was folded cannot be corrected by itself: remove erasure.row, or fold"
        )
    for at, one in enumerate(definition.attributes):
        if one.type == "number" and one.fold == "sum" and one.measure is None:
            raise ValueError(
                f"attributes.{at}.fold: a sum is of values that are kept: add measure, or use max"
            )


def _phases_are_counted(definition: Definition) -> None:
    """Checks the attributes that say how many phases ago a person was there before."""
    first = {one.names for one in definition.schema_versions[0].attributes}
    for at, one in enumerate(definition.attributes):
        if one.type != "number" or one.fold != "since" or one.phases is None:
            continue
        field, unit = f"attributes.{at}.fold", definition.privacy.unit
        if definition.erasure is None:
            raise ValueError(
                f"{field}: it is kept who was there in earlier phases, so persons must be able to be erased: "
                'add erasure, such as {"within": "24 hours"}, or remove it'
            )
        if unit is not None and unit.lifetime:
            raise ValueError(
                f"{field}: a person counts in few phases of a life: remove privacy.unit.lifetime, or it"
            )
        kept = definition.kept_phases
        if kept is not None and kept < one.phases - 1:
            raise ValueError(
                f"{field}: it is about {one.phases - 1:,} phases before, and rows are kept for {kept:,}: use "
                "a larger retention.phases, or a smaller phases"
            )
        if not any(set(one.names) & set(names) for names in first):
            raise ValueError(
                f"{field}: the budget of each phase follows from it, so that it is there from the first "
                "phase on: remove it, or define another data set"
            )
        of = next((each for each in definition.attributes if each.name == one.of), None)
        if one.of is not None and (of is None or of.type != "boolean" or of.fold != "any"):
            raise ValueError(
                f'attributes.{at}.of: name a boolean with "fold": "any", which this is not'
            )


def _bounds_are_proposed(definition: Definition) -> None:
    shares = {
        f"attributes.{index}.propose": as_written(attribute.propose.share)
        for index, attribute in enumerate(definition.attributes)
        if attribute.type == "number" and attribute.propose is not None
    }
    if not shares:
        return
    field, mechanism = next(iter(shares)), definition.mechanism
    if not isinstance(mechanism, CalibratedSpec) or definition.synthetic_rows:
        raise ValueError(
            f"{field}: proposed edges are accepted by a change of attributes, which this profile, or "
            "synthetic rows, do not allow: write edges"
        )
    if definition.kinds != KindsSpec():
        raise ValueError(
            f"{field}: proposed edges are accepted by a change of attributes, which other kinds do not "
            "allow: remove kinds, or write edges"
        )
    together = sum(shares.values())
    if together > _MOST_PROPOSING or together + as_written(mechanism.base_share or 0.0) > 1:
        raise ValueError(
            f"{field}.share: all such shares are more than half a line, or more than a line with "
            "mechanism.base_share: use smaller ones"
        )


def _persons_are_protected(definition: Definition) -> None:
    unit = definition.privacy.unit
    if unit is None:
        return
    if not definition.mechanism.takes_persons:
        raise ValueError(
            f"privacy.unit: the profile {definition.mechanism.profile} promises something to rows only: use "
            '"calibrated", or remove unit'
        )
    if definition.kinds != KindsSpec():
        raise ValueError(
            "privacy.unit: other kinds promise something to rows only: remove kinds, or unit"
        )
    if unit.key in {"count", *(attribute.name for attribute in definition.attributes)}:
        raise ValueError(
            "privacy.unit.key is the name of an attribute, or of the count of a cell: name another "
            "column, or remove the attribute"
        )
    if not unit.key.isprintable() or unit.key != unit.key.strip():
        raise ValueError(
            "privacy.unit.key has unprintable characters or blanks at its ends: remove them"
        )
    if unit.lifetime and unit.squares > MAX_SQUARES:
        raise ValueError(
            f"privacy.unit.phases: this many phases of this many rows are {unit.squares:,} units, and "
            f"{MAX_SQUARES:,} can be kept of a person: use fewer, or remove lifetime"
        )


RULES: Final[tuple[Callable[[Definition], None], ...]] = (
    _within_the_line,
    _within_the_profile,
    _values_are_summed,
    _values_are_found,
    _periods_run,
    _rows_come_late,
    _persons_are_erased,
    _rows_are_folded,
    _phases_are_counted,
    _bounds_are_proposed,
    _persons_are_protected,
)
"""The rules in the order in which they are checked. Each raises ValueError, which names the fix."""
