"""The answer in a message, as an instance of the class of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict
from pydantic_core import from_json

from stream_dp.messages.answer_forms import Answer, NoisyAnswer, QuotedAnswer, RefusedAnswer
from stream_dp.messages.bundles import BUNDLE, QuotedBundle
from stream_dp.messages.kinds import ANSWERS
from stream_dp.messages.series import SERIES, SeriesAnswer


class UnknownAnswer(NoisyAnswer):
    """An answer of a kind that this release does not know. It keeps all fields of the message."""

    model_config = ConfigDict(extra="allow")


def read_answer(message: bytes | Mapping[str, Any]) -> Answer:
    """Reads the answer in a message, as an instance of its class.

    Raises:
        ValueError: The message is not an answer, or only a newer release can read it.

    Example:
        >>> from stream_dp.messages import read_answer
        >>> message = {
        ...     "version": 1, "dataset": "people", "query_id": "q-1", "analyst": "ann",
        ...     "status": "refused", "kind": "predicate",
        ...     "reason": {"code": "no_phase", "message": "no phase is open yet", "retriable": True},
        ... }
        >>> read_answer(message).reason.code
        'no_phase'
    """
    document = from_json(message) if isinstance(message, bytes) else message
    return _class_of(document).model_validate(document)


def _class_of(document: Any) -> type[Answer]:
    """The class that reads a message. Whether the message is valid is for the class to say."""
    if not isinstance(document, Mapping):
        return UnknownAnswer
    kind = document.get("kind")
    if document.get("status") == "quoted":
        return QuotedBundle if kind == BUNDLE else QuotedAnswer
    if document.get("status") == "refused":
        return RefusedAnswer
    if kind == SERIES:
        return SeriesAnswer
    return ANSWERS.get(kind, UnknownAnswer) if isinstance(kind, str) else UnknownAnswer
