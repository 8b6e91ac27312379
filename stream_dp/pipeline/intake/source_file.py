"""The file that names a topic of rows, and says where its messages have them."""

from __future__ import annotations

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
            each attribute is the field of its name. Where persons are protected, the column that says whose
            row it is has a path like an attribute.
        constants: Attribute -> the value of every row.
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

    def paths(self, universe: Universe, key: str | None = None) -> dict[str, tuple[str, ...]]:
        """Returns the path in a message to the value of each attribute that is not a constant.

        Args:
            universe: The possible rows.
            key: The column that says whose row it is, where persons are protected. Its path comes last.

        Raises:
            InvalidInput: A name is not an attribute of the data set, or is both a field and a constant; or
                all rows would be those of one person.
        """
        names = universe.names if key is None else (*universe.names, key)
        if key is not None and key in self.constants:
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
