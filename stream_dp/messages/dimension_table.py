"""A public table that statements can join, such as the state of each airport."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StrictBool, StringConstraints, model_validator

from stream_dp.errors import InvalidInput
from stream_dp.messages.message_base import (
    AttributeName,
    DatasetName,
    Finite,
    Request,
    tupled,
)

DimensionType = Literal["text", "integer", "real", "boolean"]
"""The type of all entries of a column. Each entry may also be null."""

MOST_LINES: Final = 50_000
"""The most rows of a public table."""

_Text = Annotated[str, StringConstraints(max_length=256)]
_Entry = StrictBool | int | Finite | _Text | None
_FITTING: Final[dict[DimensionType, set[type]]] = {
    "text": {str},
    "integer": {int},
    "real": {int, float},
    "boolean": {bool},
}


class DimensionTable(Request):
    """A table that everyone may see. It says something about each value of an attribute.

    Attributes:
        dimension: The name of the table.
        key: The column to join on. Its values are unique texts.
        columns: The names of all columns.
        types: The type of each column.
        rows: The rows: for each column an entry of its type, or null.
    """

    invalid = InvalidInput

    version: Literal[1] = 1
    dimension: DatasetName
    key: AttributeName
    columns: Annotated[
        tuple[AttributeName, ...], BeforeValidator(tupled), Field(min_length=1, max_length=64)
    ]
    types: Annotated[tuple[DimensionType, ...], BeforeValidator(tupled)]
    rows: Annotated[
        tuple[Annotated[tuple[_Entry, ...], BeforeValidator(tupled)], ...],
        BeforeValidator(tupled),
        Field(max_length=MOST_LINES),
    ]

    @model_validator(mode="after")
    def _one_row_for_each_key(self) -> DimensionTable:
        names = [name.lower() for name in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("two columns have the same name: rename one of them")
        if self.key not in self.columns:
            raise ValueError("no column has the name of the key: write one of the columns as key")
        if len(self.types) != len(self.columns):
            raise ValueError("there is not one type for each column: add those that are absent")
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row has not one entry for each column: complete it")
        place = self.columns.index(self.key)
        keys = [row[place] for row in self.rows]
        if not all(isinstance(key, str) for key in keys):
            raise ValueError("a key is not a text: write each key in double quotes")
        if len(set(keys)) < len(keys):
            raise ValueError("two rows have the same key: leave one of them out")
        if self.types[place] != "text":
            raise ValueError('the key is not a "text": give it that type')
        for name, kind, entries in zip(
            self.columns, self.types, zip(*self.rows, strict=True), strict=False
        ):
            if not {*map(type, entries)} <= _FITTING[kind] | {type(None)}:
                raise ValueError(
                    f"an entry of {name} does not fit the type {kind}: fix it, or write null"
                )
        return self

    def lines(self) -> dict[str, dict[str, str | int | float | bool | None]]:
        """Returns the entries of the other columns by the key of their row."""
        place = self.columns.index(self.key)
        return {
            str(row[place]): {
                name: entry
                for name, entry in zip(self.columns, row, strict=True)
                if name != self.key
            }
            for row in self.rows
        }
