"""The tiles of a definition as the core knows them."""

from __future__ import annotations

from collections.abc import Iterator

from stream_dp.core.queries.conditions import compile_group_by, compile_total, compile_where
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.base_release import expected_queries
from stream_dp.core.residual.base_release.expected_queries import too_many_cells
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition, InvalidQuery
from stream_dp.messages import CalibratedSpec, Tile, TileTables

_ANY_WINDOW = range(1)


def tiles_of(
    settings: CalibratedSpec, universe: Universe
) -> tuple[expected_queries.PlannedTile, ...]:
    """Returns the tiles that a definition names; none where it names none.

    Raises:
        InvalidDefinition: A tile does not fit the schema. The error names the tile's path and the fix.
    """
    if settings.workload is None:
        return ()
    if isinstance(settings.workload, TileTables):
        return tuple(_of_tables(settings.workload, universe))
    return tuple(
        expected_queries.PlannedTile(
            checked_tile(f"mechanism.workload.{index}", tile, universe),
            None if tile.window is None else tile.window.last_phases,
            tile.weight,
        )
        for index, tile in enumerate(settings.workload)
    )


def _of_tables(spec: TileTables, universe: Universe) -> Iterator[expected_queries.PlannedTile]:
    for index, names in enumerate(spec.tables):
        path = f"mechanism.workload.tables.{index}"
        query = checked_tile(path, Tile(group_by=names), universe)
        for phases in spec.windows:
            yield expected_queries.PlannedTile(query, None if phases == "all" else phases)


def checked_tile(path: str, tile: Tile, universe: Universe) -> LinearQuery:
    """The query of a tile.

    Raises:
        InvalidDefinition: It does not fit the schema. The error names the tile's path and the fix.
    """
    try:
        query = _compiled(tile, universe)
    except InvalidQuery as fault:
        tables = path.startswith("mechanism.workload.tables")
        field = path if tables else f"{path}.{fault.field}"
        raise InvalidDefinition(field, fault.problem, fault.fix) from None
    if too_many_cells(query, universe.shape):
        raise InvalidDefinition(
            path,
            "its attributes have too many cells together",
            "name fewer attributes in one tile",
        )
    return query


def _compiled(tile: Tile, universe: Universe) -> LinearQuery:
    """The query of a tile. Raises InvalidQuery."""
    total = None
    if tile.attribute is None:
        predicate = compile_where(universe, tile.where)
    else:
        total, _, predicate = compile_total(universe, tile.attribute, tile.where, tile.group_by)
    if predicate.constant is False:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    group_by = compile_group_by(universe, tile.group_by, predicate) if tile.group_by else ()
    if predicate is EVERYTHING and not group_by and total is None:
        raise InvalidQuery(
            "where", "the number of all rows is public", "add a condition or group_by"
        )
    return LinearQuery(predicate, _ANY_WINDOW, group_by, total)
