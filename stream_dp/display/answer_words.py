"""What answers say in words: their figures in sentences, which rows count, and of what use they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from stream_dp.display.answer_cells import AnswerCells, Quantity
from stream_dp.display.figure_text import UNKNOWN, coefficient, percent, share, text
from stream_dp.display.figures import Figure
from stream_dp.display.phase_words import moment, phases
from stream_dp.messages import (
    BetweenAnswer,
    CorrelatedVectorAnswer,
    FoundAnswer,
    ModeAnswer,
    NoisyAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    Reason,
    SeriesAnswer,
    SideAnswer,
    SumAnswer,
    SumByGroupAnswer,
    ThresholdCurveAnswer,
)

PATHS: Final = {
    "repeat": "asked before",
    "certified": "from what was published",
    "bounded": "bounded by what was published",
    "gated": "a noisy test let it pass",
    "measured": "the rows were looked at",
    "series": "each part by itself",
    "unverified": "no look that it may pay for is precise enough; may be further off",
}
"""How an answer came about, in words."""

_USES: Final = {"yes": "precise enough", "rough": "rough", "no": "not precise enough to use"}
_PRICE: Final = re.compile(r": name at_most ([0-9.e-]*[0-9])")
_FEW: Final = 3
"""The most groups or periods that a text names."""
_RANKS: Final = {0.0: "the least value", 0.5: "the median", 1.0: "the largest value"}


def sentences(cells: AnswerCells) -> list[str]:
    """An answer in one line, cut where it may be broken. A table says how many cells it has."""
    answer = cells.answer
    match answer:
        case SeriesAnswer():
            return [f"{len(answer.parts)} parts by {answer.series}"]
        case CorrelatedVectorAnswer():
            agreement = f"agree with {answer.attribute} by {coefficient(answer.vector.agreement)}"
            return [f"signs of {answer.n:,} rows that {agreement}; --json prints them"]
        case QuantileAnswer():
            said = text_of(cells, "lies_in")
            known = f"lies in {said}" if answer.lies_in is not None else "may lie in any bin"
            return [f"{_ranked(answer)} {known}"]
        case FoundAnswer():
            return [_found(answer)]
        case SideAnswer():
            return [_side(answer)]
    if cells.names:
        what = f"{_ranked(answer)} in " if isinstance(answer, QuantileByGroupAnswer) else ""
        bar = "" if cells.widest_bar is None else f" ± {percent(cells.widest_bar)}"
        return [f"{what}{len(cells.labels)} cell{'' if len(cells.labels) == 1 else 's'}{bar}"]
    figures = [_sentence(cells, quantity) for quantity in cells.quantities if quantity.said]
    return figures or ["an answer that this release cannot show; --json prints it"]


def short(cells: AnswerCells) -> str:
    """An answer in a few words: its main figure, or how many cells it has."""
    main = next((each for each in cells.quantities if each.name == cells.main), None)
    if cells.names or main is None or main.unit in ("bins", "label"):
        return "; ".join(sentences(cells)).partition(": a few rows could")[0]
    said = _sentence(cells, main)
    return sentences(cells)[0] if said in (UNKNOWN, "-") else said


def _sentence(cells: AnswerCells, quantity: Quantity) -> str:
    is_count = quantity.name == "count" and quantity.unit == "rows"
    said = _rows(cells) if is_count else text_of(cells, quantity.name)
    minus = phases(getattr(cells.answer, "minus_window", (0, 0)))
    return (quantity.said or "{}").format(said, a=cells.answer, minus=minus)


def text_of(cells: AnswerCells, name: str, cell: int = 0) -> str:
    """One figure of one cell in words."""
    figure, unit, least = cells.figure(name, cell), cells.unit(name), cells.answer.least_cell
    if unit == "bins":
        likely = cells.figure("found", cell).value
        if name == "lies_in" and figure.value not in (None, likely) and likely is not None:
            figure = replace(figure, value=f"{figure.value}, likely in {likely}")
    elif unit == "share" and cells.is_few(cell):
        return "-"
    return text(figure, unit, least)


def _rows(cells: AnswerCells) -> str:
    """A share and the rows that it stands for, of all rows or of those that count."""
    answer, part, rows = cells.answer, cells.figure("value"), cells.figure("count")
    if cells.is_few():
        return f"{text(rows, 'rows', answer.least_cell)} rows"
    if part.bar is None and rows.bar is None and answer.useful is not None:
        return UNKNOWN
    count = f"{rows.value:,}" if rows.bar is None else text(rows, "rows")
    if answer.counted is None:
        if rows.value == answer.n and rows.bar is not None and not round(rows.bar):
            return f"all {count} rows"
    elif rows.value == answer.counted:
        return f"all {count} rows that count, of {answer.n:,}"
    if part.bar is None:
        return f"{percent(part.number or 0.0)}, no error bar known: {count} of {of_rows(answer)}"
    return f"{text(part, 'share')}: {count} of {of_rows(answer)}"


def why(reason: Reason) -> str:
    """Why something was refused, without the place in a message that nobody wrote."""
    return re.sub(r"^[\w.\[\]]+: ", "", reason.message)


def of_rows(answer: NoisyAnswer) -> str:
    """The rows that a count is one of: all, or those that count where a person is protected."""
    if answer.counted is None:
        return f"{answer.n:,} rows"
    counted = text(Figure(answer.counted, answer.counted_bar or 0.0), "rows")
    return f"the {counted} rows that count, of {answer.n:,}"


def recorded_in_words(answers: Sequence[NoisyAnswer]) -> Iterator[str]:
    """Says since when rows say all that some answers are about; nothing where all rows do."""
    since = max((each.recorded_since or 0 for each in answers), default=0)
    if since:
        yield f"all of this is recorded since phase {since:,}; unrecorded rows are older, and may count too"
    clamped: dict[str | None, int] = {}
    for each in answers:
        if isinstance(each, SumAnswer | SumByGroupAnswer) and each.clamped_until is not None:
            until = max(each.clamped_until, clamped.get(each.attribute, 0))
            clamped[each.attribute] = until
    for name, until in clamped.items():
        yield f"up to phase {until:,}, values of {name} count within narrower bounds than now"


def changes_in_words(answers: Sequence[NoisyAnswer]) -> Iterator[str]:
    """Says of some answers how many late rows do not count yet, and how many rows were changed since."""
    changed = max((each.changed_at_most or 0 for each in answers), default=0)
    if changed:
        rows = "1 row" if changed == 1 else f"{changed:,} rows"
        yield f"at most {rows} of these phases were erased or corrected since they were sealed"
    ends = moment(max((each.complete_at or "" for each in answers), default=""))
    n_rows = max((each.late_waiting or 0 for each in answers), default=0)
    if n_rows:
        do, complete = "does" if n_rows == 1 else "do", f"; complete on {ends}" if ends else ""
        yield f"{late_rows(n_rows)} of these phases {do} not count yet{complete}"
    elif ends:
        yield f"late rows may still come to these phases until {ends}"


def late_rows(n_rows: int) -> str:
    """Names a number of late rows."""
    return "1 late row" if n_rows == 1 else f"{n_rows:,} late rows"


def remarks(cells: AnswerCells) -> list[str]:
    """What to know of all cells: which rows they count, and how many more there may be."""
    answer, found = cells.answer, list[str]()
    if cells.names and answer.counted is not None:
        found.append(f"shares and rows are of {of_rows(answer)}")
    if isinstance(answer, QuantileByGroupAnswer):
        found.append(f"the bins are those of {_ranked(answer)}")
    if isinstance(answer, ThresholdCurveAnswer):
        found.append("each line counts all rows up to and with its values")
    if answer.surplus_at_most is not None:
        more = math.ceil(answer.surplus_at_most * answer.n)
        found.append(
            f"at most {share(answer.surplus_at_most)} of the {answer.n:,} rows do not count; a count among "
            f"all rows may be larger by up to {more:,}"
        )
    parts = answer.parts if isinstance(answer, SeriesAnswer) else ()
    of_parts = [part.answer for part in parts if isinstance(part.answer, NoisyAnswer)]
    return [*found, *recorded_in_words([answer, *of_parts]), *changes_in_words([answer])]


def _ranked(answer: QuantileAnswer | QuantileByGroupAnswer) -> str:
    """Names the value that was asked for."""
    rank = answer.rank or 0.0
    return f"{_RANKS.get(rank, f'the {100 * rank:g}% quantile')} of {answer.attribute}"


def _found(answer: FoundAnswer) -> str:
    """Names the bin that was found, or says why none is named."""
    is_mode = isinstance(answer, ModeAnswer)
    if answer.found is None:
        what = f"the {'mode' if is_mode else 'median'} of {answer.attribute}"
        return (
            f"no answer: a few rows could change {what}, so naming it could reveal something about them. "
            "Asking again is free and gives the same reply"
        )
    what = "the most frequent {} is" if is_mode else "the median of {} lies in"
    return f"{what.format(answer.attribute)} {answer.found.label}{_within(answer)}"


def _side(answer: SideAnswer) -> str:
    """Says on which side of two shares, or of some row, something lies."""
    if isinstance(answer, BetweenAnswer):
        low, high = (f"{100 * (end or 0.0):g}%" for end in (answer.low, answer.high))
        where = {"below": f"below {low}", "between": f"between {low} and {high}"}
        return f"{where.get(answer.side, f'above {high}')} of the rows{_within(answer)}"
    if answer.found is not None:
        return f"{answer.side}: rows are on both sides of the end of {answer.found.label}"
    return (
        f"{answer.side}: {'not all' if answer.side == 'below' else 'some'} rows are in this range"
    )


def _within(answer: FoundAnswer | SideAnswer) -> str:
    """Says by how much a rank, or a share, may be off."""
    rank = "rank " if isinstance(answer, FoundAnswer) else ""
    return f" ({rank}± {percent(answer.error_bar)})" if answer.error_bar else ""


def use_in_words(answer: NoisyAnswer, *, n_queries: int = 1) -> str | None:
    """Says whether a decision can rest on an answer, and what more would take; None where nothing says so.

    Args:
        answer: The answer.
        n_queries: The number of queries of the statement.
    """
    said = _USES.get(answer.useful or "")
    if said is None or answer.suggestion is None:
        return said
    return f"{said}: {in_sql(answer.suggestion, n_queries=n_queries)}"


def in_sql(said: str, *, n_queries: int = 1) -> str:
    """Returns a text of a message about prices with the words of SQL.

    Args:
        said: The text.
        n_queries: The number of queries of the statement, which have equal parts of its price.
    """

    def price(found: re.Match[str]) -> str:
        percent = 100.0 * n_queries * float(found[1])
        return f": add COSTING AT MOST {percent:g}%" if percent <= 100.0 else alone

    alone = ": ask in a statement of its own" if n_queries > 1 else ""
    said = _PRICE.sub(price, said)
    return re.sub(r"\bat_most\b", "COSTING AT MOST", said)


def use_of_all_in_words(
    answers: Sequence[NoisyAnswer], *, n_queries: int = 1, is_series: bool = False
) -> str | None:
    """Says the same of the least useful of some answers; None where all of them are precise enough.

    Args:
        answers: The answers.
        n_queries: The number of queries of the statement.
        is_series: Whether they are about periods, which are named then.
    """
    found = [answer for answer in answers if answer.useful in ("no", "rough")]
    if not found:
        return None
    worst = min(found, key=lambda each: (each.useful == "rough", -(each.aim_price or 0.0)))
    like = [answer for answer in found if answer.useful == worst.useful]
    where = f" ({_periods_of(like)})" if is_series else ""
    some = f"some values{where} are " if len(like) < len(answers) else ""
    return f"{some}{use_in_words(worst, n_queries=n_queries)}"


def _periods_of(answers: Sequence[NoisyAnswer]) -> str:
    """Names what the first of some parts of series are about, by their first days or their phases."""
    each = [f"from {one.since[:10]}" if one.since else phases(one.window) for one in answers]
    return few_of(list(dict.fromkeys(each)))


def few_of(names: Sequence[str], most: int = _FEW, mark: str = ";") -> str:
    """Returns at most ``most`` of some names with a mark between, and how many more there are."""
    end = mark if mark == ";" else ""
    more = f"{end} and {len(names) - most:,} more" if len(names) > most else ""
    return f"{mark} ".join(names[:most]) + more


def sureness_in_words(answer: NoisyAnswer) -> str | None:
    """Says how sure the bars of an answer are; None where nothing is promised."""
    if not answer.confidence:
        return None
    sure = (
        f"each error bar covers the true value with probability {answer.confidence:g}, if you asked before "
        "you saw it"
    )
    anytime = getattr(answer, "error_bar_anytime", None)
    return (
        sure if anytime is None else f"{sure}; ± {percent(anytime)} if earlier answers made you ask"
    )
