"""A query of a message says what the message says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.client.statements.written_query import Query, as_message
from stream_dp.messages import QueryEnvelope, QueryFields

PAGE = (Path(__file__).parents[2] / "docs/messages.md").read_text()


def messages() -> Iterator[QueryFields]:
    """The queries of all examples on the page about messages."""
    for body in re.findall(r"^```json query\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for item in QueryEnvelope.read(json.loads(body)).queries:
            yield QueryFields.read(item)


def no_sql(_: str) -> dict[str, Any]:
    raise AssertionError("a message has no SQL")


@pytest.mark.parametrize("fields", list(messages()), ids=lambda fields: fields.kind)
def test_the_query_of_a_message_becomes_the_same_message(fields: QueryFields) -> None:
    """All but what is done with it: whether it stands, and when it raises an alert."""
    asked = fields.model_copy(update={"standing": None, "alert": None})
    again = QueryFields.read(as_message(Query.of_message(fields), no_sql))
    assert again == asked.model_copy(update={"quote": False})


def test_the_examples_name_every_field() -> None:
    said = {name for fields in messages() for name in fields.model_fields_set}
    assert said >= QueryFields.model_fields.keys() - {"quote"}, "an example would show a lost field"
