"""The parts of the messages that belong to one kind of query: its setting and its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from stream_dp.messages.message_base import Request


class KindSpec(Request):
    """The settings that turn on a kind of query.

    Attributes:
        share: The share of each line that one look takes.
    """

    share: Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The fields of a query that belong to its kind.

    Attributes:
        needs: The fields that every query of the kind has.
        may_have: The fields that a query of the kind can leave out.
    """

    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that belong to the kind."""
        return (*self.needs, *self.may_have)
