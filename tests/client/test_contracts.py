"""The schemas for other languages say what the models say, and are what is committed.

Then, several queries as one record and the quote for them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from stream_dp.cli import root
from stream_dp.client.kafka import topic_documents
from stream_dp.client.statements.written_query import in_one_record, packed
from stream_dp.contracts import asyncapi, schemas
from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.messages import (
    MOST_QUOTED,
    PRIVATE,
    TOPICS,
    QueryEnvelope,
    QuotedBundle,
    read_answer,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "messages.md").read_text()
SCHEMAS = schemas()
GOLDEN = Path(__file__).parents[1] / "golden/bundles"
QUOTE, ASKED, LIMITED = (
    (GOLDEN / name).read_bytes()
    for name in ("quote-v1.json", "quote-together-v1.json", "at-most-v1.json")
)


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, body in re.findall(r"^```json (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        document = json.loads(body)
        yield ("queries" if kind == "query" and "queries" in document else kind), document


def faults(name: str, document: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMAS[name]).iter_errors(document)]


def test_what_is_committed_is_what_the_models_make(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["contracts", str(tmp_path)])
    assert done.exit_code == 0, done.output
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in (DOCS / "contracts").glob("*.json")}
    assert committed == made, "run: stream-dp contracts docs/contracts"


def test_every_example_of_the_page_fits_and_every_schema_has_one() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    for name, document in examples():
        assert faults(name, document) == [], document
    assert {name for name, _ in examples()} == set(SCHEMAS)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("query", {"kind": "quantile"}),
        ("query", {"rank": 0.5}),
        ("query", {"colour": "red"}),
        ("query", {"where": {"attribute": "age", "about": 3}}),
        ("query", {"where": {"all": [{"attribute": "age"}]}}),
        ("query", {"query_id": "two words"}),
        ("batch", {"rows": []}),
        ("definition", {"privacy": {"epsilon": 1.0}}),
        ("queries", {"queries": [{"query_id": "q", "kind": "table"}]}),
    ],
)
def test_what_the_worker_refuses_the_schema_refuses_too(name: str, changes: dict[str, Any]) -> None:
    document = copy.deepcopy(next(found for kind, found in examples() if kind == name))
    assert faults(name, document) == []
    assert faults(name, {**document, **changes}) != []


def test_the_document_describes_every_topic_of_clients_and_its_references_lead_somewhere() -> None:
    document = asyncapi("other.")
    assert set(document["channels"]) == TOPICS.keys() - set(PRIVATE)
    assert document["channels"]["queries"]["address"] == "other.queries"

    found = set(re.findall(r'"\$ref": "#/(.+?)"', json.dumps(document)))
    assert len(found) > len(TOPICS)
    for reference in found:
        node: Any = document
        for step in reference.split("/"):
            node = node[step]


def test_the_reply_is_read_as_its_class_and_written_as_it_was() -> None:
    found = read_answer(QUOTE)
    assert type(found) is QuotedBundle
    assert (found.status, found.kind, found.query_id) == ("quoted", "bundle", "q-7")
    assert found.to_bytes() == QUOTE
    assert topic_documents.read_answer(QUOTE) == found
    assert [query.privacy_loss is None for query in found.queries] == [False, False, True, True]
    document = json.loads(QUOTE)
    assert not faults("answer", document)
    document["queries"][0]["new"] = document["together"]["new"] = document["new"] = 1
    assert read_answer(document) == found, "a field of a newer release does no harm"


@pytest.mark.parametrize("value", [ASKED, LIMITED])
def test_requests_fit_the_schema_and_are_read(value: bytes) -> None:
    document = json.loads(value)
    assert not faults("queries", document)
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
    assert faults("queries", document)


def test_queries_with_a_limit_travel_in_one_record_or_not_at_all() -> None:
    items = [{"query_id": f"q{n}"} for n in range(250)]
    assert len(list(packed({}, items))) == 3
    assert len(json.loads(in_one_record({"at_most": 0.1}, items))["queries"]) == 250
    with pytest.raises(InvalidInput, match="do not fit into one record"):
        in_one_record({}, [{"query_id": "q", "where": "x" * 10_000}] * 250)
    with pytest.raises(InvalidInput, match="there are none"):
        in_one_record({}, [])
