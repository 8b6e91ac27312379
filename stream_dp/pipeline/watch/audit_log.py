"""The audit log: one line for each reply to a query, of who asked what, when, and at what price.

A line is made of what was asked and of the head of the reply, which are public. No line holds an answer, and
none holds a word of a record that is not a query: somebody may have sent rows to the wrong topic.

A line is written when its reply is durable and before it leaves, so there is one for each reply that anybody
has read. A worker that dies in between leaves replies to its successor. That writes their lines too, without
what only the record said.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from stream_dp.messages import QueryFields
from stream_dp.pipeline.intake.records import AuditedReply, Outgoing, Record

LOGGER: Final = "stream_dp.audit"

_log = logging.getLogger(LOGGER)

_LONGEST_QUERY: Final = 2_000

_LAST_MS: Final = 253_402_300_799_999  # of the year 9999: later times have no date


def is_written() -> bool:
    """Returns whether there is an audit log."""
    return _log.isEnabledFor(logging.INFO)


def asked_in(
    record: Record,
    analyst: str | None = None,
    query_id: str | None = None,
    queries: Iterable[object] = (),
) -> AuditedReply | None:
    """What a reply says that it answers, as in ``Asked``; None where nobody writes it down.

    Args:
        record: The record.
        analyst: Who asked.
        query_id: The id of the query.
        queries: What was asked. Items that are not queries are left out.
    """
    if not is_written():
        return None
    read = tuple(query for query in queries if isinstance(query, QueryFields))
    return AuditedReply(record.record_id, record.timestamp_ms, analyst, query_id, read)


def write_audit(outgoing: Iterable[Outgoing]) -> None:
    """Writes the lines of what is about to leave; other records than replies to queries have none."""
    if not is_written():
        return
    for one in outgoing:
        if (facts := _facts(one)) is not None:
            words = " ".join(f"{name}={value}" for name, value in facts.items())
            _log.info("%s", words, extra=facts)


def _facts(one: Outgoing) -> dict[str, Any] | None:
    """Returns the named fields of a line; None for what answers no query."""
    if one.role == "answers":
        said = _of_answer(json.loads(one.value))
    elif one.role == "rejected":
        document = json.loads(one.value)
        if one.asked is None and "analyst" not in document:
            return None
        said = _of_rejection(document)
    elif one.role == "standing" and one.asked is not None and one.asked.begins_or_ends:
        dataset, _, _ = one.key.partition(" ")
        said = {"dataset": dataset, "status": "stands" if one.value else "ended"}
    else:
        return None
    facts = {} if one.asked is None else _of_request(one.asked)
    facts |= {name: value for name, value in said.items() if value is not None}
    return {name: facts[name] for name in _FIELDS if name in facts}


_FIELDS: Final = (
    "analyst",
    "dataset",
    "query_id",
    "kind",
    "record",
    "asked_at",
    "status",
    "again",
    "difficulty",
    "path",
    "code",
    "share",
    "blocks",
    "query",
)


def _of_answer(document: Mapping[str, Any]) -> dict[str, Any]:
    loss = document.get("privacy_loss", {})
    facts = {name: document.get(name) for name in (*_FIELDS[:4], "status", "difficulty", "path")}
    facts |= {"code": document.get("reason", {}).get("code")}
    if "together" in document:  # a quote for several queries: what it may come to
        loss = {"share": document["together"]["high"], "blocks": document["blocks"]}
    return {**facts, "share": loss.get("share"), "blocks": loss.get("blocks")}


def _of_rejection(document: Mapping[str, Any]) -> dict[str, Any]:
    place = (document["topic"], document["partition"], document["offset"])
    return {
        **{name: document.get(name) for name in ("analyst", "dataset", "query_id")},
        "record": ":".join(map(str, place)),
        "status": "rejected",
        "code": document["reason"]["code"],
    }


def _of_request(asked: AuditedReply) -> dict[str, Any]:
    known = {"analyst": asked.analyst, "query_id": asked.query_id, "record": asked.record or None}
    facts: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    if asked.again:
        facts["again"] = True
    if 0 <= asked.time_ms <= _LAST_MS:
        moment = datetime.fromtimestamp(asked.time_ms / 1000, UTC)
        facts["asked_at"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if asked.queries:
        fields = [
            query.model_dump(mode="json", exclude_unset=True, exclude=_ENVELOPE)
            for query in asked.queries
        ]
        written = json.dumps(fields[0] if len(fields) == 1 else fields, separators=(",", ":"))
        facts["query"] = written[:_LONGEST_QUERY]
        if len(asked.queries) == 1:
            facts["kind"] = asked.queries[0].kind
    return facts


_ENVELOPE: Final = {"version", "dataset", "analyst", "query_id"}
