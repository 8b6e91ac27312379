"""The answer to a series: one part for each phase, day, week or month."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag

from stream_dp.messages.answer_forms import NoisyAnswer, RefusedAnswer
from stream_dp.messages.kinds.profile_kinds import (
    PredicateAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    ShareAnswer,
    ShareByGroupAnswer,
    SumAnswer,
    SumByGroupAnswer,
    TableAnswer,
)
from stream_dp.messages.message_base import Reply

SERIES: Final = "series"
"""The kind of the answer to a series, of the quote of one, and of its refusal."""


def _tag(part: Any) -> str:
    """Returns what tells the answers of parts apart, of one that was read and of one that was made."""
    fields = part if isinstance(part, dict) else vars(part)
    return "refused" if fields.get("status") == "refused" else str(fields.get("kind"))


PartAnswer = Annotated[
    Annotated[PredicateAnswer, Tag("predicate")]
    | Annotated[TableAnswer, Tag("table")]
    | Annotated[SumAnswer, Tag("sum")]
    | Annotated[SumByGroupAnswer, Tag("sum_by_group")]
    | Annotated[ShareAnswer, Tag("share")]
    | Annotated[ShareByGroupAnswer, Tag("share_by_group")]
    | Annotated[QuantileAnswer, Tag("quantile")]
    | Annotated[QuantileByGroupAnswer, Tag("quantile_by_group")]
    | Annotated[RefusedAnswer, Tag("refused")],
    Discriminator(_tag),
]


class SeriesPart(Reply):
    """One part of a series.

    Attributes:
        window: The first and the last phase of the part.
        since: When these phases begin.
        until: When they have ended.
        answer: The answer about these phases, or the refusal, as if they were asked alone.
    """

    window: tuple[int, int]
    since: str | None = None
    until: str | None = None
    answer: PartAnswer


class SeriesAnswer(NoisyAnswer):
    """The answers to one query about each part of a window, one after another.

    Each part has its own error bars, and pays on the lines of its own phases. ``privacy_loss.share`` is the
    largest share that a line has paid, and ``blocks`` is the number of phases that have paid. The answer is
    ``hard`` if a part is.

    Attributes:
        series: The period of each part.
        parts: The parts in the order of their phases.
    """

    kind: Literal["series"] = SERIES
    series: Literal["phase", "day", "week", "month"]
    parts: tuple[SeriesPart, ...]
