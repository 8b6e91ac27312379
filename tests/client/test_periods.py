"""Periods of the calendar, on days that have no 24 hours and months that end on any day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.calendar_periods import Calendar, Length, span_of, written, zone_of
from stream_dp.errors import InvalidDefinition, InvalidMessage
from stream_dp.messages import Batch, Definition, PhaseSpec, QueryFields

HOUR_MS = 3_600_000
LENGTHS = (
    *("1 hour", "6 hours", "24 hours", "1 day", "3 days"),
    *("1 week", "2 weeks", "1 month", "5 months"),
)
ZONES = (
    "Europe/Berlin",
    "Australia/Lord_Howe",  # puts its clocks back by half an hour
    "America/St_Johns",  # put them back at a minute past midnight
    "Africa/Cairo",  # has no midnight when they are put forward
    "Asia/Kolkata",
    "Pacific/Apia",  # has left a whole day out
)


def at(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def calendar(length: str, zone: str | None = None) -> Calendar:
    return Calendar(Length.read(length), zone_of(zone))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("length", LENGTHS)
def test_periods_follow_one_another_without_a_gap(length: str, zone: str) -> None:
    days = calendar(length, zone)
    first = days.period(at("2011-12-01"))
    for period in range(first, first + 900):
        begins, ends = days.start(period), days.start(period + 1)
        assert begins <= ends
        if begins < ends:
            assert {days.period(begins), days.period(ends - 1)} == {period}


@pytest.mark.parametrize(
    ("length", "zone", "time", "begins", "ends"),
    [
        ("1 day", "Europe/Berlin", "2026-03-29T12:00", "2026-03-29", "2026-03-30"),  # 23 hours
        ("1 day", "Europe/Berlin", "2026-10-25T12:00", "2026-10-25", "2026-10-26"),  # 25 hours
        # an hour that comes twice is one
        ("1 hour", "Europe/Berlin", "2026-10-25T02:30+02:00", "2026-10-25T02:00+02:00",
         "2026-10-25T03:00+01:00"),
        ("1 hour", "Europe/Berlin", "2026-10-25T02:30+01:00", "2026-10-25T02:00+02:00",
         "2026-10-25T03:00+01:00"),
        ("1 month", None, "2024-02-29T23:59", "2024-02-01", "2024-03-01"),
        ("1 month", None, "2026-12-31", "2026-12-01", "2027-01-01"),
        ("3 months", None, "2026-05-31", "2026-04-01", "2026-07-01"),
        ("1 week", None, "2026-11-01", "2026-10-26", "2026-11-02"),  # a Sunday
        ("1 week", None, "2026-11-02", "2026-11-02", "2026-11-09"),
        ("6 hours", None, "2026-11-01T05:59", "2026-11-01", "2026-11-01T06:00+00:00"),
    ],
)  # fmt: skip
def test_periods_begin_where_people_expect_it(
    length: str, zone: str | None, time: str, begins: str, ends: str
) -> None:
    of = calendar(length, zone)
    period = of.period(at(time))
    assert [written(of.start(each), of.zone) for each in (period, period + 1)] == [begins, ends]


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_has_as_many_hours_as_its_clock_shows(day: str, hours: int) -> None:
    begins, ends = span_of(day, zone_of("Europe/Berlin"))
    assert ends - begins == hours * HOUR_MS


@pytest.mark.parametrize(
    ("length", "end", "begins"),
    [
        ("7 days", "2026-11-08", "2026-11-01"),
        ("1 day", "2026-03-30", "2026-03-29"),  # 23 hours
        ("1 month", "2026-03-31", "2026-02-28"),
        ("1 month", "2024-03-31", "2024-02-29"),
        ("2 weeks", "2026-11-15", "2026-11-01"),
        ("13 months", "2026-01-15", "2024-12-15"),
    ],
)
def test_a_length_before_a_time_goes_by_the_clock(length: str, end: str, begins: str) -> None:
    zone = zone_of("Europe/Berlin")
    before = Length.read(length).before(span_of(end, zone)[0], zone)
    assert written(before, zone) == begins


@given(st.integers(2**28, 2**42), st.sampled_from([None, *ZONES]))
def test_what_is_written_is_read_again(time_ms: int, name: str | None) -> None:
    zone = zone_of(name)
    assert span_of(written(time_ms, zone), zone)[0] == time_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "٢٠٢٦-01-01"),
        *("yesterday", "2026-13-01", "2026-11-01T06:00", "1969-12-31", "9999-01-01", "2026-W45"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        span_of(text, zone_of(None))


@pytest.mark.parametrize(
    "text", ["7", "days", "0 days", "-1 day", "1.5 days", "7 years", "7  days"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="7 days"):
        Length.read(text)


# ---------------------------------------------------------------- in messages


def definition(**phase: Any) -> Definition:
    promise = {"privacy": {"epsilon": 1.0, "delta": 1e-9}, "accuracy": {"error": 0.02}}
    attributes = [{"name": "paid", "type": "boolean"}]
    head = {"version": 1, "dataset": "orders", "attributes": attributes, **promise}
    return Definition.read({**head, "phase": {"min_rows": 5, **phase}})


def test_a_definition_without_a_calendar_is_stored_as_it_always_was() -> None:
    assert b'"phase":{"min_rows":5},' in definition().to_bytes()
    daily = definition(every="1 day", timezone="Europe/Berlin")
    assert b'"phase":{"min_rows":5,"every":"1 day","timezone":"Europe/Berlin"},' in daily.to_bytes()


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({"every": "5 hours"}, "phase.every: it does not divide a day"),
        ({"every": "daily"}, "phase.every: it is not a length of time"),
        ({"timezone": "Mars"}, "phase.timezone: there is no such time zone"),
        ({"timezone": "../../etc/passwd"}, "phase.timezone: there is no such time zone"),
    ],
)
def test_a_calendar_that_cannot_be_is_refused_in_words(phase: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidDefinition, match=words):
        definition(**phase)


def test_only_a_setting_with_a_period_has_a_calendar() -> None:
    assert PhaseSpec(min_rows=5, timezone="Europe/Berlin").calendar is None
    assert PhaseSpec(min_rows=5, every="1 day").calendar == calendar("1 day")


@pytest.mark.parametrize(
    "window",
    [
        {},
        {"last": "7 days", "last_phases": 7},
        {"phases": [3, 7], "since": "2026-11-01"},
        {"phases": [7, 3]},
        {"phases": [0, 3]},
        {"phases": [3]},
        {"since": "soon"},
        {"last": 7},
    ],
)
def test_a_window_has_one_form(window: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="window"):
        QueryFields.read({"query_id": "q", "window": window})


def test_a_batch_may_say_its_time() -> None:
    batch = {"version": 1, "dataset": "orders", "batch_id": "b", "rows": []}
    assert Batch.read(batch).time is None
    assert Batch.read({**batch, "time": "2026-11-01"}).time == "2026-11-01"
    with pytest.raises(InvalidMessage, match="time: it is neither a date"):
        Batch.read({**batch, "time": "2026-11-01 06:00"})
