"""The running totals that a definition asks for."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from stream_dp.calendar_periods import Calendar, Length, zone_of
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.rows.universe import Universe
from stream_dp.core.running.running_periods import RunningSettings
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition, Tile
from stream_dp.profiles.planned_tiles import checked_tile

_PERIODS: Final = 64
"""Periods in which there are longest days, weeks and months."""

_START_MS: Final = 1_704_067_200_000  # 2024, a leap year


def ticks_of(definition: Definition) -> Calendar:
    """The ticks of a data set with running totals, as periods of their own.

    Raises:
        InvalidDefinition: They do not make up a period.
    """
    assert definition.running is not None, "the caller looks"
    return Calendar(Length.read(definition.running.every), zone_of(definition.phase.timezone))


def running_of(definition: Definition, universe: Universe) -> RunningSettings | None:
    """What running totals are about; None without them.

    Raises:
        InvalidDefinition: A tile does not fit the schema, or ticks do not make up a period; names the field
            and the fix.
    """
    if definition.running is None:
        return None
    ticks, periods = ticks_of(definition), definition.phase.calendar
    assert periods is not None, "only periods that close have running totals"
    first = periods.period(_START_MS)
    starts = [periods.start(number) for number in range(first, first + _PERIODS + 1)]
    if any(ticks.start(ticks.period(start)) != start for start in starts):
        raise InvalidDefinition(
            "running.every",
            f"{definition.running.every} do not make up periods of {definition.phase.every}",
            "divide the period, such as a day into hours",
        )
    numbers = [ticks.period(start) for start in starts]
    most = max(after - before for before, after in pairwise(numbers))
    if most < 2:
        raise InvalidDefinition(
            "running.every", "a period has one tick alone", "let ticks come more often"
        )
    tiles = tuple(
        _tile(f"running.tiles.{index}", Tile(where=one.where, group_by=one.group_by), universe)
        for index, one in enumerate(definition.running.tiles)
    )
    return RunningSettings(definition.running.within_rows, tiles, most)


def _tile(path: str, tile: Tile, universe: Universe) -> LinearQuery:
    query = checked_tile(path, tile, universe)
    if any(attribute in universe.found for attribute in query.attributes):
        raise InvalidDefinition(
            path,
            "the values of an attribute are found as a period closes",
            "name attributes whose values are listed",
        )
    return query
