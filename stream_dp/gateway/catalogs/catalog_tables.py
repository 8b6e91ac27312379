"""What the catalogs show to one analyst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the catalogs show it. Its type is a name of Postgres, such as ``int8``."""

    name: str
    type: str
    nullable: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalogs show it.

    Attributes:
        schema: ``public``, ``synthetic`` or ``stream_dp``.
        name: The name.
        comment: What tools show of it.
        columns: The columns, in their order.
        rows: Its rows, which anyone may see. None: It is a data set, whose rows are never here.
    """

    schema: str
    name: str
    comment: str | None
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Any, ...], ...] | None


@dataclass(frozen=True, slots=True)
class CatalogView:
    """What one analyst sees.

    Attributes:
        key: A name of this view. Views with the same key are the same.
        database: The name of the database.
        user: The name of the analyst.
        tables: The tables.
    """

    key: str
    database: str
    user: str
    tables: tuple[CatalogTable, ...]
