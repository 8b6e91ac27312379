"""What a draft says of a column, and why: the type that fits its values, and what to tell apart."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np

from stream_dp.cli.draft.round_numbers import are_apart, edges_of, measure_of
from stream_dp.cli.draft.sample_columns import MOSTLY, ColumnSample, numbers_of
from stream_dp.cli.files.value_survey import NOT_THERE
from stream_dp.cli.terminal import many
from stream_dp.client.rows.unread_values import BOOLEANS
from stream_dp.core.rows.column_values import number_text
from stream_dp.core.rows.row_moments import DAY, TIME, from_texts

_MOST_VALUES: Final = 2_000
"""The most values of a category that are listed."""
_FEW: Final = 50
"""The most values that are listed however few rows each of them has."""
_REPEATS: Final = 5
"""The rows that each value has, on average, where more values are listed."""
_FEWEST: Final = 20
"""The rows from which it says something that nearly all values differ."""
_LONGEST_VALUE: Final = 256

_CODE: Final = re.compile(
    r"((^|[_\W])(?i:id|key|uuid|guid|code|zip|plz|postcode|no|nr|number)|[a-z](Id|ID|Key|Code|No|Nr))$"
)
"""How columns of numbers that nobody adds up are often called."""
_OUTLYING: Final = ("-9", "-99", "-999", "-9999")
"""Numbers by which files say that a value is missing, where no other number is negative."""
_MISSING: Final = NOT_THERE - {*_OUTLYING, "none", "missing", "unknown"}
"""Texts that are hardly ever values of a category."""
_LEADING_ZERO: Final = re.compile(r"0\d+")
_OTHER_DATES: Final = re.compile(
    r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)\b.*|\d{4}[./]\d\d?[./]\d\d?\b.*"
)
_EPOCHS: Final = (("s", 1.0), ("ms", 1_000.0))
_FROM_S, _UNTIL_S = 946_684_800.0, 2_208_988_800.0
"""The years 2000 to 2039, in seconds since 1970."""
_OUTSIDE: Final = 0.005
"""The share of the dates that may lie beyond each of their bounds."""
_MOST_HOURS_IN_DAYS, _MOST_DAYS, _MOST_MONTHS_IN_DAYS = 3, 100, 3_700
"""The days up to which dates are known by the hour, by the day and by the month."""
_MOST_SHOWN: Final = 9


@dataclass(frozen=True)
class ColumnDraft:
    """What a draft says of a column.

    Attributes:
        column: The name of the column in the file.
        attribute: The attribute as in a definition. None if the column is left out.
        why: The reason.
    """

    column: str
    attribute: dict[str, Any] | None
    why: str

    @property
    def may_open_phases(self) -> bool:
        """Whether its dates may say when rows were."""
        return (
            self.attribute is not None
            and self.attribute.get("by") in ("hour", "day", "month")
            and "epoch" not in self.attribute
        )

    @property
    def said(self) -> str:
        """Says in a few words what is drafted."""
        if self.attribute is None:
            return "left out"
        match self.attribute:
            case {"type": "category", "values": list() as values}:
                return f"category: {_shown(values)}"
            case {"type": "category", "values": given}:
                return f"category: the values in {str(given)[1:]}"
            case {"type": "number", "edges": edges, **more}:
                kind = "whole number" if more.get("integer") else "number"
                said = f"{kind}, edges {_shown([number_text(float(edge)) for edge in edges])}"
                if (kept := more.get("measure")) is None:
                    return said
                low, high = (number_text(float(kept[end])) for end in ("low", "high"))
                return f"{said}; sums of {low} to {high}"
            case {"type": "number", **more}:
                kind = "whole number" if more.get("integer") else "number"
                return f"{kind}, edges to be proposed"
            case {"type": "date", "by": by, **more} if "from" in more:
                until = f" until {more['until']}" if "until" in more else ""
                return f"date by {by}, from {more['from']}{until}"
            case {"type": "date", "by": by}:
                return f"date by {by}"
        return "boolean"


@dataclass(frozen=True)
class _Guess:
    """What the values of a column may be.

    Attributes:
        attribute: The fields of an attribute, without its name. None if the column is left out.
        why: The reason. It may be empty.
        rows: The rows whose value it reads.
        na: More texts that say that a value is missing.
    """

    attribute: dict[str, Any] | None
    why: str
    rows: int = 0
    na: tuple[str, ...] = ()


def drafted(
    sample: ColumnSample, decimal: str | None, zone: str | None, most_bytes: int
) -> ColumnDraft:
    """Drafts what a definition says of a column.

    Args:
        sample: The values of the column.
        decimal: The decimal mark of its numbers, see ``pointed``.
        zone: The time zone of its dates. None is UTC.
        most_bytes: The most bytes of its values in a definition.
    """
    name = sample.name
    na = [text for text in sample.texts if text.strip().casefold() in _MISSING]
    texts = sample.without(na)
    if sample.nested:
        return ColumnDraft(name, None, "it holds lists or objects: make columns of their parts")
    if not texts:
        return ColumnDraft(name, None, "it holds no values")
    guess = (
        _boolean(texts)
        or _number(name, texts, decimal)
        or _date(texts, zone)
        or _otherwise_written(texts, decimal)
        or _category(name, texts, most_bytes)
    )
    if guess.attribute is None:
        return ColumnDraft(name, None, guess.why)
    na = sorted({*(text.strip() for text in na), *guess.na})
    absent = sample.rows - guess.rows
    missing: dict[str, Any] = {"missing": True} if absent else {}
    if na:
        missing["na"] = na
    said = [guess.why] if guess.why else []
    if absent:
        texts_of = f", as {_shown([repr(text) for text in na])} says" if na else ""
        said.append(f"{_percent(absent / sample.rows)} of the rows have no value{texts_of}")
    return ColumnDraft(name, {"name": name, **guess.attribute, **missing}, "; ".join(said))


def with_values(sample: ColumnSample, values: Sequence[str], written: str) -> ColumnDraft:
    """Drafts a category whose values are in a file.

    Args:
        sample: The values of the column.
        values: The values in the file.
        written: How the definition names the file.
    """
    na = sorted({text for text in sample.texts if text.strip().casefold() in _MISSING} - {*values})
    texts, listed = sample.without(na), {*values}
    known = sum(rows for text, rows in texts.items() if text in listed)
    why = f"{len(values):,} values; {_percent(known / max(1, texts.total()))} of its rows have one of them"
    missing: dict[str, Any] = {"missing": True} if texts.total() < sample.rows else {}
    if na:
        missing["na"] = na
    attribute = {"name": sample.name, "type": "category", "values": written, **missing}
    return ColumnDraft(sample.name, attribute, why)


# ---------------------------------------------------------------- types


def _boolean(texts: Counter[str]) -> _Guess | None:
    found = {text.strip().casefold() for text in texts}
    if not found <= BOOLEANS or (len(found) == 1 and len(min(found)) == 1):
        return None
    return _Guess({"type": "boolean"}, f"it holds {_shown(sorted(texts))}", texts.total())


def _number(name: str, texts: Counter[str], decimal: str | None) -> _Guess | None:
    numbers, rows = numbers_of(texts, decimal)
    understood = int(rows.sum())
    if understood < MOSTLY * texts.total() or any(map(_LEADING_ZERO.fullmatch, texts)):
        return None
    whole = bool((numbers == np.floor(numbers)).all())
    if whole and (guess := _epoch(numbers, understood)):
        return guess
    if whole and (_CODE.search(name) or _never_repeats(numbers, rows)):
        return None
    outlying = tuple(text for text in _OUTLYING if text in texts and float(text) == numbers[0])
    if outlying and (numbers[1:] >= 0.0).all() and len(numbers) > 1:
        understood, numbers, rows = understood - int(rows[0]), numbers[1:], rows[1:]
    else:
        outlying = ()
    attribute: dict[str, Any] = {"type": "number"}
    attribute["edges"] = [_written(edge) for edge in edges_of(numbers, rows, whole=whole)]
    if whole:
        attribute["integer"] = True
    low, high = number_text(float(numbers[0])), number_text(float(numbers[-1]))
    why = f"its numbers go from {low} to {high}"
    if whole and are_apart(numbers, rows):
        why += ", and each has a bin"
    elif (kept := measure_of(numbers, rows, whole=whole)) is not None:
        attribute["measure"] = {key: _written(value) for key, value in kept.items()}
    return _Guess(attribute, why, understood, outlying)


def _otherwise_written(texts: Counter[str], decimal: str | None) -> _Guess | None:
    """Finds numbers with another decimal mark than the numbers of other columns."""
    if numbers_of(texts, decimal)[1].sum() >= MOSTLY * texts.total():
        return None
    for mark in {",", "."} - {decimal}:
        if numbers_of(texts, mark)[1].sum() >= MOSTLY * texts.total():
            why = f"its numbers need --decimal {mark}, and those of other columns do not: write them alike"
            return _Guess(None, why)
    return None


def _epoch(numbers: Any, understood: int) -> _Guess | None:
    """Reads numbers as moments of this century, if all of them may be such."""
    for unit, per_second in _EPOCHS:
        if numbers[0] >= _FROM_S * per_second and numbers[-1] <= _UNTIL_S * per_second:
            seconds = numbers / per_second
            attribute = _periods(float(seconds[0]), float(seconds[-1]), TIME)
            why = f"its numbers count {'seconds' if unit == 's' else 'milliseconds'} since 1970"
            return _Guess({**attribute, "timezone": "UTC", "epoch": unit}, why, understood)
    return None


def _date(texts: Counter[str], zone: str | None) -> _Guess | None:
    if sum(rows for text, rows in texts.items() if _OTHER_DATES.fullmatch(text.strip())) >= (
        MOSTLY * texts.total()
    ):
        return _Guess(None, "its dates are not as in ISO 8601, such as 2026-03-14: convert them")
    column = from_texts([text.strip() for text in texts])
    rows = np.fromiter(texts.values(), np.int64, len(texts))
    known = column.precision > 0
    understood = int(rows[known].sum())
    if understood < MOSTLY * texts.total():
        return None
    least = next(
        precision
        for precision in (TIME, DAY, 1)
        if rows[column.precision >= precision].sum() >= MOSTLY * understood
    )
    order = np.argsort(column.seconds[known])
    seconds, reached = column.seconds[known][order], np.cumsum(rows[known][order])
    ends = np.searchsorted(reached, [_OUTSIDE * understood, (1.0 - _OUTSIDE) * understood])
    first, last = (float(seconds[min(int(end), len(seconds) - 1)]) for end in ends)
    attribute = _periods(first, last, least)
    if zone is not None or least == TIME:
        attribute["timezone"] = zone or "UTC"
    days = _day(first).isoformat(), _day(last).isoformat()
    return _Guess(attribute, f"its dates go from {days[0]} to {days[1]}", understood)


def _periods(first: float, last: float, precision: int) -> dict[str, Any]:
    """Chooses periods for dates between two moments, and bounds that begin a year, a month or a day."""
    begin, end, days = _day(first), _day(last), (last - first) / 86_400
    if days > _MOST_MONTHS_IN_DAYS:
        by, low, high = "year", begin.replace(month=1, day=1), date(end.year + 1, 1, 1)
    elif days > _MOST_DAYS or precision < DAY:
        by, low, high = "month", begin.replace(month=1, day=1), date(end.year + 1, 1, 1)
    elif days > _MOST_HOURS_IN_DAYS or precision < TIME:
        by, low = "day", begin.replace(day=1)
        high = (end.replace(day=1) + timedelta(days=31)).replace(day=1)
    else:
        by, low, high = "hour", begin, end + timedelta(days=1)
    return {"type": "date", "by": by, "from": low.isoformat(), "until": high.isoformat()}


def _category(name: str, texts: Counter[str], most_bytes: int) -> _Guess:
    n_values, rows = len(texts), texts.total()
    key = f"if it says whose row it is, pass --key {shlex.quote(name)}"
    listing = f"pass --values {shlex.quote(name)}=FILE"
    if n_values >= MOSTLY * rows and rows >= _FEWEST:
        return _Guess(None, f"nearly all of its values differ; {key}")
    if n_values > _FEW and rows < _REPEATS * n_values:
        few = f"it has {n_values:,} values, of {rows / n_values:.2g} rows each"
        return _Guess(None, f"{few}; {key}; to list values, {listing}")
    values, size = [], 0
    for text, _ in texts.most_common(_MOST_VALUES):
        size += len(json.dumps(text, ensure_ascii=False).encode()) + 2
        if size <= most_bytes and len(text) <= _LONGEST_VALUE:
            values.append(text)
    if not values:
        return _Guess(None, f"its texts are long; {listing}")
    why = many(n_values, "value")
    if len(values) < n_values:
        part = _percent(sum(texts[value] for value in values) / rows)
        why = f"the most common of {n_values:,} values, in {part} of the rows; to list others, {listing}"
    return _Guess({"type": "category", "values": sorted(values, key=_reading)}, why, rows)


def _never_repeats(numbers: Any, rows: Any) -> bool:
    """Returns whether whole numbers are all different where chance alone would repeat many."""
    n_rows, span = int(rows.sum()), float(numbers[-1] - numbers[0]) + 1
    return len(numbers) == n_rows and n_rows * n_rows >= 2 * _FEWEST * span


# ---------------------------------------------------------------- words


def _written(number: float) -> float:
    """Returns a number that JSON writes without a fraction of 0."""
    return int(number) if number.is_integer() else number


def _reading(text: str) -> tuple[float, str, str]:
    """Sorts numbers by their size before texts by their letters."""
    try:
        return float(text), "", text
    except ValueError:
        return math.inf, text.casefold(), text


def _day(seconds: float) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()


def _shown(words: Sequence[str]) -> str:
    """Lists words, and of many the first ones and the last."""
    if len(words) > _MOST_SHOWN:
        words = [*words[: _MOST_SHOWN - 2], "...", words[-1]]
    return ", ".join(f"{word:.40}" for word in words)


def _percent(share: float) -> str:
    """Formats a share so that it is 0% and 100% only if it is nothing and all."""
    text = f"{100 * share:.3g}%"
    return "over 99.9%" if text == "100%" and share < 1 else text
