"""From our errors to those that drivers of Postgres know."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from stream_dp.client import Refusal, Rejection
from stream_dp.errors import (
    InvalidInput,
    InvalidMessage,
    InvalidQuery,
    RequestTimeout,
    ServerUnavailable,
    StreamDPError,
)
from stream_dp.gateway.protocol.sql_fault import SqlFault

_log = logging.getLogger(__name__)

_OF_SORTS: Final[Mapping[str, str]] = {
    "syntax": "42601",
    "no_table": "42P01",
    "no_column": "42703",
    "not_grouped": "42803",
    "rows": "42501",
}
_NOT_ANSWERED: Final = "0A000"
_OF_CODES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("budget_exhausted", "share_spent", "price_too_high"), "53400"),
    **dict.fromkeys(("queries_exhausted", "hard_queries_exhausted"), "53400"),
    **dict.fromkeys(("too_many_queries", "sent_again_too_fast", "spending_too_fast"), "53300"),
    **dict.fromkeys(("no_phase", "not_complete", "not_running", "retry_after"), "55000"),
    **dict.fromkeys(("unauthorized", "token_expired", "wrong_analyst"), "28000"),
    **dict.fromkeys(("wrong_audience", "not_allowed"), "42501"),
    **dict.fromkeys(("unknown_dataset", "retired"), "42P01"),
    **dict.fromkeys(("quarantined", "stopped"), "57P03"),
    "unknown_attribute": "42703",
    "unsupported_kind": _NOT_ANSWERED,
    "cuts_bin": "22023",
}
_REFUSED: Final = "54000"


def fault_of(error: Exception) -> SqlFault:
    """Returns what a client reads of an error. Of one that is not expected it reads the class alone."""
    if isinstance(error, SqlFault):
        return error
    if isinstance(error, InvalidQuery):
        state = _OF_SORTS.get(error.sort, _NOT_ANSWERED)
        position = None if error.offset is None else error.offset + 1
        return SqlFault(state, error.problem, hint=error.fix, position=position)
    if isinstance(error, Refusal | Rejection):
        reason = error.reason
        return SqlFault(_OF_CODES.get(reason.code, _REFUSED), reason.message, detail=reason.code)
    if isinstance(error, InvalidMessage):
        state = _OF_CODES.get(error.reason, "28000")
        return SqlFault(state, error.problem, hint=error.fix, detail=error.reason)
    if isinstance(error, InvalidInput):
        return SqlFault("22023", f"{error.field}: {error.problem}", hint=error.fix)
    if isinstance(error, RequestTimeout):
        return SqlFault("57014", str(error), hint="ask again: what was answered meanwhile is free")
    if isinstance(error, ServerUnavailable):
        return SqlFault("08006", str(error), hint="ask again in a moment")
    if isinstance(error, StreamDPError):
        return SqlFault("58000", str(error), detail=error.code)
    _log.error("a statement failed: %s", type(error).__name__)
    return SqlFault("XX000", f"this gateway has a fault: {type(error).__name__}")
