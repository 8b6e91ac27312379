"""The parts of messages that are about time: phases by the calendar, and windows by date."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from stream_dp.calendar_periods import Calendar, Length, span_of, zone_of
from stream_dp.messages.message_base import Request, tupled

Series = Literal["phase", "day", "week", "month"]
"""The periods of a series, with one part for each."""

Frame = Literal["running"] | Annotated[int, Field(ge=1, le=1_000, strict=True)]
"""How many parts of a series are asked about together: the last ones up to each, or all of them."""

_UTC: Final = zone_of(None)


def _checked_time(text: str) -> str:
    span_of(text, _UTC)
    return text


def _checked_length(text: str) -> str:
    Length.read(text)
    return text


def _checked_period(text: str) -> str:
    if not Length.read(text).divides_a_day:
        raise ValueError(
            "it does not divide a day: write 15 or 30 minutes, or 1, 2, 3, 4, 6, 8 or 12 hours"
        )
    return text


def _checked_zone(name: str) -> str:
    zone_of(name)
    return name


TimeText = Annotated[str, Field(max_length=40), AfterValidator(_checked_time)]
"""A date, or a date and time with an offset, in ISO 8601."""

LengthText = Annotated[str, Field(max_length=20), AfterValidator(_checked_length)]
"""A length of time such as "7 days"."""


PeriodText = Annotated[LengthText, AfterValidator(_checked_period)]
"""The length of a period: some minutes or hours divide a day."""


class CloseSpec(Request):
    """When the broker's clock closes a period, also if no later row comes.

    Attributes:
        after: How long after its end it closes, such as "2 hours".
    """

    after: LengthText


class LateSpec(Request):
    """The late rows that are counted in the phase of their own period.

    Attributes:
        within: How long after the end of a phase its late rows are taken, such as "7 days". Then the phase is
            measured again with them.
    """

    within: LengthText


class PhaseSpec(Request):
    """A phase opens as soon as ``min_rows`` rows wait, or with ``every`` when a period has ended.

    Attributes:
        min_rows: The number of rows that must wait. A period with fewer joins the next one.
        every: The length of a period: minutes or hours that divide a day, days, weeks or months. Default:
            rows alone decide.
        timezone: The time zone of periods and dates. Default: UTC.
        close: When the clock closes a period. Default: the first batch of a later period does.
        late: The late rows that are counted in their own period. Default: none, so they are in the phase that
            opens next.
    """

    min_rows: Annotated[int, Field(ge=1, le=2**62)]
    every: PeriodText | None = None
    timezone: Annotated[str, Field(max_length=64), AfterValidator(_checked_zone)] | None = None
    close: CloseSpec | None = None
    late: LateSpec | None = None

    @model_validator(mode="after")
    def _periods_close(self) -> PhaseSpec:
        if self.close is not None and self.every is None:
            raise ValueError('only periods close: write "every" too, such as "1 day"')
        if self.late is not None:
            if self.close is None:
                raise ValueError(
                    'the clock ends the time for late rows: write "close" too, such as {"after": "2 hours"}'
                )
            within, after = Length.read(self.late.within), Length.read(self.close.after)
            if within.after(0, _UTC) <= after.after(0, _UTC):
                raise ValueError(
                    "late.within ends before the period closes: write a longer time than close.after"
                )
        return self

    @property
    def calendar(self) -> Calendar | None:
        """The periods that phases follow. None if they do not follow the calendar."""
        if self.every is None:
            return None
        return Calendar(Length.read(self.every), zone_of(self.timezone))

    def complete_at(self, until_ms: int) -> int | None:
        """When no more rows of a phase are taken that ends at a time; None where no late ones are."""
        if self.late is None:
            return None
        return Length.read(self.late.within).after(until_ms, zone_of(self.timezone))


class Window(Request):
    """Some of the phases, in one of four forms. Without a window, all of them.

    With ``running`` the window may hold open periods. Then ``last`` ends with the present day, or week and so
    on: "1 day" is today so far, and "7 days" is today with the six days before.

    Attributes:
        last_phases: The number of most recent phases. A larger one than there are means all.
        last: The time before the end of the newest phase, such as "7 days".
        since: Where the window begins: a date, or a date and time with an offset.
        until: Where it has ended.
        phases: The first and the last phase, counted from 1.
        running: Whether the rows so far of open periods count too, by their running totals.
    """

    last_phases: Annotated[int, Field(ge=1)] | None = None
    last: LengthText | None = None
    since: TimeText | None = None
    until: TimeText | None = None
    phases: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(tupled)] | None = (
        None
    )
    running: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Window:
        by_date = self.since is not None or self.until is not None
        forms = (self.last_phases, self.last, self.phases, by_date or None)
        if sum(form is not None for form in forms) != 1:
            raise ValueError(
                'write last_phases, last, phases, or since and until, such as {"last": "7 days"}'
            )
        if self.phases is not None and (len(self.phases) != 2 or self.phases[0] > self.phases[1]):
            raise ValueError("phases are not a first and a last one: write both, such as [3, 7]")
        if self.running and not (by_date or self.last):
            raise ValueError(
                "what is open has no number: write running with last, or with since and until, such as "
                '{"last": "7 days", "running": true}'
            )
        return self

    @property
    def identity(self) -> object:
        """The fields that tell one window from another."""
        return ("running", self._of_phases) if self.running else self._of_phases

    @property
    def _of_phases(self) -> object:
        if self.last_phases is not None:
            return self.last_phases
        if self.phases is not None:
            return "phases", *self.phases
        return ("last", self.last) if self.last is not None else ("time", self.since, self.until)


class MinusWindow(Request):
    """The window that a difference takes away: the most recent phases, or those right before the window.

    Attributes:
        last_phases: The number of most recent phases, which may overlap with ``window``.
        previous_phases: The number of phases right before ``window``.
        previous: The time right before ``window``, such as "7 days".
    """

    last_phases: Annotated[int, Field(ge=1)] | None = None
    previous_phases: Annotated[int, Field(ge=1)] | None = None
    previous: LengthText | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> MinusWindow:
        forms = (self.last_phases, self.previous_phases, self.previous)
        if sum(form is not None for form in forms) != 1:
            raise ValueError("write either last_phases, previous_phases or previous")
        return self
