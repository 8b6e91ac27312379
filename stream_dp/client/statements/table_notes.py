"""What the reader of a statement's table should know: how far its bars reach, what is missing, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from stream_dp.client.statements.group_values import GroupValues, TableGroup
from stream_dp.display.answer_words import (
    changes_in_words,
    few_of,
    in_sql,
    recorded_in_words,
    use_of_all_in_words,
)
from stream_dp.display.figure_text import rows_in_words
from stream_dp.display.figures import Figure
from stream_dp.messages import (
    NoisyAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    RefusedAnswer,
)
from stream_dp.sql.plan.statement_plan import (
    Call,
    Expression,
    GroupColumn,
    StatementPlan,
    published_in,
    values_in,
)

_OF_BINS: Final = (
    "STDDEV and VARIANCE take each value as the middle of its bin, or the edge of an outer bin; "
    "their bars "
)
_LEFT_OUT: Final = f"{_OF_BINS}leave out how far values lie from there"
_COVERED: Final = f"{_OF_BINS}cover all values that the bins and the ends of measure allow"


class TableNotes:
    """The notes of one table."""

    def __init__(
        self, plan: StatementPlan, values: GroupValues, answers: Sequence[NoisyAnswer]
    ) -> None:
        self._plan = plan
        self._values = values
        self._answers = answers
        self._outputs = [list(published_in(output.expression)) for output in plan.outputs]
        self._parts = [part for parts in self._outputs for part in parts]

    def all_of(self, groups: Sequence[TableGroup]) -> Iterator[str]:
        """Yields the notes of a table that shows these groups."""
        plan = self._plan
        yield from plan.notes
        use = use_of_all_in_words(
            self._values.noisy, n_queries=len(plan.queries), is_series=plan.is_series
        )
        if use is not None:
            yield use
        yield from self._of_several_cells()
        several = max(
            sum(self._values.n_bars(one) for one, _ in set(values_in(output.expression)))
            for output in plan.outputs
        )
        if several > 1 and self._values.missed:
            yield (
                "the bar of a computed column holds where those of all its values do: with a confidence of "
                f"at least {self._left_by(several)}%"
            )
        for each in self._parts:
            if each.part == "spread":
                yield _COVERED if any(low < high for low, _, high in each.bins) else _LEFT_OUT
        phases = phases_of(self._answers)
        persons = any(_counts_persons(output.expression) for output in plan.outputs)
        over_several = phases is not None and phases[0] < phases[1]
        in_groups = any(not group.period for group in plan.groups)
        if over_several and in_groups and any(query.get("once") for query in plan.queries):
            yield "each person counts once, in the group of their first row in these phases"
        if persons and over_several:
            yield (
                "nobody knows who comes in several phases: the number of persons lies between that of the "
                "phase with the most rows and the sum of all phases"
            )
        yield from recorded_in_words(self._values.noisy)
        yield from changes_in_words(self._answers)
        yield from self._of_answers()
        yield from self._among()
        yield from self._empty_groups(groups)

    def _left_by(self, bars: int) -> str:
        """The confidence that is left where this many bars hold, as a percentage."""
        return f"{100 * max(0.0, 1.0 - bars * self._values.missed):g}"

    def _of_several_cells(self) -> Iterator[str]:
        """Yields what to know of groups of several cells, such as the dates without a value."""
        groups, is_independent = self._plan.groups, self._values.is_independent
        added = math.prod(map(_most_cells, groups))
        if added == 1:
            return
        if any(each.part == "found" for each in self._parts):
            yield (
                f"NULL is a group of {added} cells, so its medians, quantiles, least and largest values are "
                "unknown"
            )
        only_null = all(_most_cells(group, nulls=False) == 1 for group in groups)
        null = "dates that are missing or outside the declared range are one group, NULL"
        if only_null and is_independent:
            yield null
        if (
            self._values.missed
            and not is_independent
            and {each.part for each in self._parts} != {"found"}
        ):
            # a mean and a share of several cells rest on two numbers of each
            bars = added * max(
                sum(1 + (one.part in ("mean", "share")) for one in set(each))
                for each in self._outputs
            )
            which = (
                f"{null}: its bar adds"
                if only_null
                else "a group of several cells has a bar that adds"
            )
            least = self._left_by(bars)
            yield f"{which} up those of {added} cells, and holds with a confidence of at least {least}%"

    def _of_answers(self) -> Iterator[str]:
        """Yields why values are missing, and what the answers say of themselves."""
        whole = [one for part in self._values.parts for one in part]
        refused = [one for one in whole if isinstance(one, RefusedAnswer)]
        for code in dict.fromkeys(one.reason.code for one in refused):
            said = [one.reason.message for one in refused if one.reason.code == code]
            n = "" if len(said) == 1 else f" ({len(said):,} parts; this is why the first is)"
            yield f"some values are missing{n}: {said[0]}"
        for answer in [*(self._answers if self._plan.is_series else ()), *self._values.noisy]:
            if isinstance(answer, QuantileAnswer | QuantileByGroupAnswer):
                yield (
                    "a median, a quantile, a least or largest value lies in the bins shown, with a "
                    f"confidence of {100 * (answer.confidence or 0.0):g}%; its bar is that of its rank, as a "
                    "share of the rows"
                )
            if answer.path == "unverified" and answer.useful is None:
                yield (
                    "some values rest on no look that the query may pay for, and may be further off than "
                    "their bars say"
                )
            if answer.note:
                yield in_sql(answer.note)

    def _among(self) -> Iterator[str]:
        """Yields which rows count, how many these are, and how much larger a count of all rows may be."""
        known = [answer for answer in self._values.noisy if answer.counted is not None]
        if not known or all(query.get("once") for query in self._plan.queries):
            return
        unit, of = self._plan.unit, "the rows that count"
        best = min(known, key=lambda one: (-one.n, one.counted_bar or 0.0))
        if not self._plan.is_series:
            rows = rows_in_words(Figure(best.counted, best.counted_bar))
            of = f"the {rows} rows that count, of {best.n:,}"
        if unit is not None:
            n = unit["rows_per_phase"]
            of += f": at most {n:,} row{'' if n == 1 else 's'} of each {unit['key']} in a phase"
        yield f"counts and shares are of {of}"
        if best.surplus_at_most and not self._plan.is_series:
            more = math.ceil(best.surplus_at_most * best.n)
            yield f"a count among all rows may be larger by up to {more:,}"

    def _empty_groups(self, groups: Sequence[TableGroup]) -> Iterator[str]:
        """Yields why means and shares are unknown: by the bars, too few rows may be there, or none."""
        values = self._values
        for output, parts in zip(self._plan.outputs, self._outputs, strict=True):
            found = [
                values.rows_of(part, group)
                for group in groups
                for part in dict.fromkeys(parts)
                if part.part in ("mean", "share", "spread") and values.is_told(part, group)
                if values.published(part, group).value is None
            ]
            if found:
                few = few_of(found)
                yield f"{output.name} is unknown where a group may have too few rows, or none: {few}"


def _most_cells(group: GroupColumn, *, nulls: bool = True) -> int:
    """Returns how many cells a value of a group column has at most, NULL among the values if ``nulls``."""
    if group.by_case or group.apart:
        return 1
    counted = Counter(v for v in group.values if v is not None or (nulls and not group.matched))
    return max(counted.values(), default=1)


def _counts_persons(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    return expression.name == "persons" or any(map(_counts_persons, expression.arguments))


def phases_of(answers: Sequence[NoisyAnswer]) -> tuple[int, int] | None:
    """Returns the first and the last phase that some answers speak of."""
    if not answers:
        return None
    firsts, lasts = zip(*(answer.window for answer in answers), strict=True)
    return min(firsts), max(lasts)
