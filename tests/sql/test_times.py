"""Times with an offset from UTC: the rows for which a comparison holds, one by one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from stream_dp.core.queries.conditions import compile_where
from stream_dp.errors import InvalidQuery
from stream_dp.sql import parse
from tests.sql.schemas import universe_of

OPERATORS: dict[str, Callable[[datetime, datetime], bool]] = {
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
}
STEP = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("zone", "change", "answered"),
    [
        ("UTC", "2025-10-26T01:00", {"hour": 108, "day": 4}),
        ("Asia/Kolkata", "2025-10-26T18:30", {"hour": 108, "day": 12}),
        ("Europe/Berlin", "2025-10-26T01:00", {"hour": 104, "day": 4}),  # back from 3 to 2 o'clock
        ("Europe/Berlin", "2025-03-30T01:00", {"hour": 108, "day": 4}),  # forward from 2 to 3
        ("America/Havana", "2025-11-02T05:00", {"hour": 104, "day": 8}),  # back from 1 to midnight
        ("America/Havana", "2025-03-09T05:00", {"hour": 108, "day": 8}),  # forward from midnight to 1
        ("Australia/Lord_Howe", "2025-04-05T15:00", {"hour": 60, "day": 4}),  # back by half an hour
        ("America/Asuncion", "2023-03-26T03:00", {"hour": 104, "day": 8}),  # back from midnight to 23
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["hour", "day"])
def test_a_comparison_holds_for_the_rows_that_are_earlier_or_later_or_is_refused(
    by: str, zone: str, change: str, answered: dict[str, int]
) -> None:
    """Around a change of clocks, where one hour comes twice or not at all."""
    at = datetime.fromisoformat(change).replace(tzinfo=UTC)
    day = at.date()
    first, until = (f"{day + timedelta(days=days)}" for days in (-4, 4))
    attribute = {
        "name": "at",
        "type": "date",
        "by": by,
        "from": first,
        "until": until,
        "timezone": zone,
    }
    universe = universe_of([attribute])
    rows = [at + i * STEP for i in range(-192, 193)]
    (codes,) = universe.encode_rows([{"at": row.isoformat()} for row in rows]).codes
    found, reasons = 0, set[str | None]()
    for i in sorted({*range(-96, 97, 8), *range(-8, 9)}):
        for sign, holds in OPERATORS.items():
            ends = sign in ("<=", ">")
            bound = at + i * STEP
            written = (bound - timedelta(milliseconds=ends)).isoformat(timespec="milliseconds")
            try:
                where = parse(f"at {sign} '{written}'", [attribute])["where"]
                mask = compile_where(universe, where).mask
            except InvalidQuery as refused:
                reasons.add(refused.reason)
                continue
            found += 1
            exact = bound - timedelta(milliseconds=ends)
            assert mask[codes].tolist() == [holds(row, exact) for row in rows], (sign, written)
    assert found == answered[by]
    assert reasons <= {"cuts_bin"}
