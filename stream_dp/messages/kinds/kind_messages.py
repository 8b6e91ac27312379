"""The parts of the messages that belong to one kind of query: its setting, its fields, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from stream_dp.messages.answer_forms import NoisyAnswer
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


@dataclass(frozen=True, slots=True)
class KindMessages:
    """The part of the messages that one kind has to itself.

    Attributes:
        queries: The fields of its queries, by the ``kind`` that a query names.
        answers: The models of its answers, by the ``kind`` that an answer names.
    """

    queries: Mapping[str, QueryShape]
    answers: Mapping[str, type[NoisyAnswer]]
