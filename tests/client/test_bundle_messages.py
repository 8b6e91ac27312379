"""A quote for several queries as a message, and several queries as one record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from stream_dp.client.kafka import topic_documents
from stream_dp.client.statements.written_query import in_one_record, packed
from stream_dp.contracts import schemas
from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.messages import MOST_QUOTED, QueryEnvelope, QuotedBundle, read_answer

GOLDEN = Path(__file__).parents[1] / "golden/bundles"
QUOTE = (GOLDEN / "quote-v1.json").read_bytes()
ASKED = (GOLDEN / "quote-together-v1.json").read_bytes()
LIMITED = (GOLDEN / "at-most-v1.json").read_bytes()
SCHEMAS = schemas()


def fits(name: str, document: Any) -> bool:
    return not list(Draft202012Validator(SCHEMAS[name]).iter_errors(document))


def test_the_reply_is_read_as_its_class_and_written_as_it_was() -> None:
    found = read_answer(QUOTE)
    assert type(found) is QuotedBundle
    assert (found.status, found.kind, found.query_id) == ("quoted", "bundle", "q-7")
    assert found.to_bytes() == QUOTE
    assert topic_documents.read_answer(QUOTE) == found
    assert [query.privacy_loss is None for query in found.queries] == [False, False, True, True]
    document = json.loads(QUOTE)
    assert fits("answer", document)
    document["queries"][0]["new"] = document["together"]["new"] = document["new"] = 1
    assert read_answer(document) == found, "a field of a newer release does no harm"


@pytest.mark.parametrize("value", [ASKED, LIMITED])
def test_requests_fit_the_schema_and_are_read(value: bytes) -> None:
    document = json.loads(value)
    assert fits("queries", document)
    envelope = QueryEnvelope.read(document)
    assert envelope.model_dump(exclude_none=True) == document


@pytest.mark.parametrize(
    "changes",
    [
        {"query_id": None},
        {"at_most": 0.1},
        {"quote": None},
        {"quote": True},
        {"queries": [{"query_id": f"q{n}"} for n in range(MOST_QUOTED + 1)]},
    ],
)
def test_what_the_worker_rejects_the_schema_refuses_too(changes: dict[str, Any]) -> None:
    document = json.loads(ASKED) | changes
    with pytest.raises(InvalidMessage):
        QueryEnvelope.read(document)
    assert not fits("queries", document)


def test_queries_with_a_limit_travel_in_one_record_or_not_at_all() -> None:
    items = [{"query_id": f"q{n}"} for n in range(250)]
    assert len(list(packed({}, items))) == 3
    assert len(json.loads(in_one_record({"at_most": 0.1}, items))["queries"]) == 250
    with pytest.raises(InvalidInput, match="do not fit into one record"):
        in_one_record({}, [{"query_id": "q", "where": "x" * 10_000}] * 250)
    with pytest.raises(InvalidInput, match="there are none"):
        in_one_record({}, [])
