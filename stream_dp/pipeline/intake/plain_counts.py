"""Records with counts alone, which most queries are, decoded quickly.

Whatever is not plainly valid is left to ``decoder``, which says what is wrong. So nothing is refused here.
``decoder`` would read all that is read here as well, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder, Encoder
from msgspec.json import format as indented

from stream_dp.messages import DATASET_PATTERN, QueryFields
from stream_dp.messages.json_reader import MAX_NESTING, TOO_DEEP
from stream_dp.messages.message_base import ID_PATTERN
from stream_dp.messages.time_fields import Window

_Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
_Name: TypeAlias = Annotated[str, Meta(pattern=DATASET_PATTERN)]


class _Last(Struct, forbid_unknown_fields=True):
    last_phases: Annotated[int, Meta(ge=1)]


class _Count(Struct, forbid_unknown_fields=True, omit_defaults=True):
    query_id: _Id
    where: dict[str, Any] | None = None
    window: _Last | None = None


class _One(_Count, kw_only=True):
    version: Literal[1]
    dataset: _Name
    analyst: _Id


class _Several(Struct, forbid_unknown_fields=True):
    version: Literal[1]
    dataset: _Name
    analyst: _Id
    queries: Annotated[list[_Count], Meta(min_length=1, max_length=10_000)]


_ONE: Final = Decoder(_One)
_SEVERAL: Final = Decoder(_Several)
_ENCODER: Final = Encoder()
_ANY: Final = QueryFields(query_id="q")


def read_counts(value: bytes) -> tuple[str, str, Sequence[QueryFields]] | None:
    """The data set, the analyst and the queries of a record; None where ``decoder`` has to read it.

    The decoder here accepts keys that come twice. Then what it has read, written again, has fewer colons. A
    backslash could hide one. One level of nesting is one space of indentation.

    Args:
        value: The bytes of the record, no more than there may be.
    """
    if b"\\" in value:
        return None
    try:
        found = (_SEVERAL if b'"queries"' in value else _ONE).decode(value)
        n_levels = value.count(b"{") + value.count(b"[")  # at the most
        if n_levels > MAX_NESTING and TOO_DEEP in indented(value, indent=1):
            return None
    except (MsgspecError, RecursionError):
        return None
    if value.count(b":") != _ENCODER.encode(found).count(b":"):
        return None
    counts = found.queries if isinstance(found, _Several) else (found,)
    return found.dataset, found.analyst, tuple(map(_query, counts))


def _query(count: _Count) -> QueryFields:
    """The query that pydantic would make of it."""
    given: dict[str, Any] = {"query_id": count.query_id}
    if count.where is not None:
        given["where"] = count.where
    if count.window is not None:
        given["window"] = _last(count.window.last_phases)
    return _ANY.model_copy(update=given)


@lru_cache(4096)
def _last(phases: int) -> Window:
    return Window(last_phases=phases)
