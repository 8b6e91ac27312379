"""The file that names a topic of rows, and says where its messages have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPIC_PATTERN, AttributeName, DatasetName
from stream_dp.messages.message_base import validated


class Start(BaseModel):
    """Where a topic begins of which the data set has counted nothing yet.

    Attributes:
        id: The broker's id of the topic. The start is not used for another topic of the same name.
        offsets: The first offset that counts of each partition, in their order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[str, Field(min_length=1)]
    offsets: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]


class TopicSource(BaseModel):
    """A topic of rows, and the data set that they belong to.

    Attributes:
        fields: Attribute -> where a message has its value, a path such as ``customer.city``. Without any,
            each attribute is the field of its name. Where persons are protected, the columns that say whose
            row it is, and which, have paths like attributes.
        constants: Attribute -> the value of every row.
        format: With ``debezium`` the messages are change events, and ``fields`` are those of their rows.
        start: Where the topic begins. Default: at its first record.
        unreadable: What becomes of a topic whose messages are not JSON objects. ``stop``: the source stops
            once many in a row are none. ``count``: each is a row without values.
        batch_rows: Rows that make a batch at once.
        wait_seconds: After this long fewer make one too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    dataset: DatasetName
    topic: Annotated[str, Field(pattern=TOPIC_PATTERN)]
    fields: dict[AttributeName, str] = {}
    constants: dict[AttributeName, str | int | float | bool | None] = {}
    format: Literal["rows", "debezium"] = "rows"
    start: Start | None = None
    unreadable: Literal["stop", "count"] = "stop"
    batch_rows: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0

    @classmethod
    def read(cls, document: object) -> TopicSource:
        """Validates a parsed source file.

        Raises:
            InvalidInput: It names the field and the fix.
        """
        return validated(cls, document, InvalidInput, quoting=True)

    def paths(self, universe: Universe, keys: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
        """Returns the path in a message to the value of each attribute that is not a constant.

        Args:
            universe: The possible rows.
            keys: The columns that say whose row it is, and which. Their paths come last.

        Raises:
            InvalidInput: A name is not an attribute of the data set, or is both a field and a constant; or
                all rows would be those of one person; or events are to change rows without keys of their own.
        """
        names = (*universe.names, *keys)
        if self.format == "debezium" and len(keys) < 2:
            raise InvalidInput(
                "format",
                f"change events are about single rows, and those of {self.dataset} have no key of their own",
                'define it with "erasure", and name the column with erasure.row',
            )
        for key in keys:
            if key in self.constants:
                raise InvalidInput(
                    f"constants.{key}",
                    "it says whose row each is, and a constant makes all rows one person's",
                    "name the field that has it",
                )
        for section, given in (("fields", self.fields), ("constants", self.constants)):
            for name in given:
                if name not in names:
                    raise InvalidInput(
                        f"{section}.{name}",
                        f"{self.dataset} has no such attribute",
                        f"use {', '.join(names)}",
                    )
        if both := sorted(self.fields.keys() & self.constants.keys()):
            raise InvalidInput(
                f"constants.{both[0]}", "it is a field too", "leave one of the two out"
            )
        return {
            name: tuple(self.fields.get(name, name).split("."))
            for name in names
            if name not in self.constants
        }
