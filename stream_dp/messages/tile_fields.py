"""The queries that a definition names in advance, so that the tables of each phase are planned for them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from stream_dp.messages.message_base import AttributeName, Request, tupled
from stream_dp.messages.requests import LastPhases
from stream_dp.messages.time_fields import PeriodText

MOST_TILES: Final = 500
"""The most tiles of a definition."""

_Phases = Annotated[int, Field(ge=1)] | Literal["all"]


class RunningTile(Request):
    """A count or a table of a period that is open. Its fields mean what they mean in a query.

    Attributes:
        where: The condition on the rows.
        group_by: The attributes of a table.
    """

    where: dict[str, Any] | None = None
    group_by: Annotated[tuple[AttributeName, ...], BeforeValidator(tupled)] = ()

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # a condition is a dict, which has no hash


class RunningSpec(Request):
    """Totals of the period that is open, again and again until it closes.

    Attributes:
        every: How often they are published, such as "1 hour". Some of these make a period.
        within_rows: The error bar of each count, in rows, at the most.
        tiles: The counts and tables. They say ``where`` and ``group_by``.
    """

    every: PeriodText
    within_rows: Annotated[float, Field(gt=0, le=2**52)]
    tiles: Annotated[
        tuple[RunningTile, ...], BeforeValidator(tupled), Field(min_length=1, max_length=100)
    ]


class Tile(RunningTile):
    """One query that will be asked in each phase. Its fields mean what they mean in a query.

    Attributes:
        where: The condition on the rows.
        group_by: The attributes of a table.
        window: The phases asked. Default: all of them, which are planned as seven.
        attribute: The attribute to add up. Default: the tile counts rows.
        weight: How often the tile counts.
    """

    window: LastPhases | None = None
    attribute: AttributeName | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0


def _grouped(value: object) -> object:
    return (value,) if isinstance(value, str) else tupled(value)


_Table = Annotated[
    tuple[AttributeName, ...], BeforeValidator(_grouped), Field(min_length=1, max_length=8)
]


class TileTables(Request):
    """Tables that will be asked in each phase, each about each of some windows.

    Attributes:
        tables: The attributes of each table. One name stands for the table of one attribute.
        windows: The numbers of the most recent phases; "all" means all phases.
    """

    tables: Annotated[
        tuple[_Table, ...], BeforeValidator(tupled), Field(min_length=1, max_length=MOST_TILES)
    ]
    windows: Annotated[
        tuple[_Phases, ...], BeforeValidator(tupled), Field(min_length=1, max_length=20)
    ] = (1,)


def _form(value: object) -> str:
    return "tables" if isinstance(value, dict | TileTables) else "tiles"


Workload = Annotated[
    Annotated[
        Annotated[
            tuple[Tile, ...], BeforeValidator(tupled), Field(min_length=1, max_length=MOST_TILES)
        ],
        Tag("tiles"),
    ]
    | Annotated[TileTables, Tag("tables")],
    Discriminator(_form),
]
"""Tiles, or tables and windows."""
