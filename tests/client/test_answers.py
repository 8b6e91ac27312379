"""Answers say their kind, and are read as instances of its class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from stream_dp.client.kafka import topic_documents
from stream_dp.messages import (
    ANSWERS,
    FIELDS,
    SERIES,
    NoisyAnswer,
    QuotedAnswer,
    RefusedAnswer,
    SeriesAnswer,
    UnknownAnswer,
    read_answer,
)

GOLDEN = Path(__file__).parents[1] / "golden/answers"
EXAMPLES = sorted(path.name for path in GOLDEN.glob("*.json"))


def kind_of(example: str) -> str:
    return example.removesuffix(".json").partition("-")[0]


def test_every_kind_has_an_example() -> None:
    assert {kind_of(name) for name in EXAMPLES} == {*ANSWERS, SERIES, "refused", "quoted"}
    assert set(FIELDS) <= set(ANSWERS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_answer_is_read_as_the_class_of_its_kind_and_written_as_it_was(name: str) -> None:
    value = (GOLDEN / name).read_bytes()
    answer = read_answer(value)
    others = {"refused": RefusedAnswer, "quoted": QuotedAnswer, SERIES: SeriesAnswer}
    assert type(answer) is (others | dict(ANSWERS))[kind_of(name)]
    assert answer.kind == json.loads(value)["kind"]
    assert answer.to_bytes() == value
    assert topic_documents.read_answer(value) == answer


def test_an_answer_of_a_newer_kind_keeps_its_fields() -> None:
    document = json.loads((GOLDEN / "predicate.json").read_bytes())
    answer = read_answer({**document, "kind": "newer", "newer": {"value": 1}})
    assert type(answer) is UnknownAnswer
    assert answer.n == document["n"]
    assert json.loads(answer.to_bytes())["newer"] == {"value": 1}


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b"null", b'{"status":"withdrawn"}', b'{"kind":["predicate"]}', b"\xff"],
)
def test_what_is_no_answer_is_not_read(value: bytes) -> None:
    assert topic_documents.read_answer(value) is None
    with pytest.raises(ValueError):
        read_answer(value)


def test_every_field_with_a_bar_says_what_it_is_the_half_width_of() -> None:
    for model in {*ANSWERS.values()}:
        documented = "".join(
            each.__doc__ or "" for each in model.__mro__ if issubclass(each, NoisyAnswer)
        )
        for field in model.model_fields:
            if field.endswith("_bar") or "_bar_" in field:
                assert f"{field}``" in documented or f"{field}: " in documented, (model, field)


def test_only_new_fields_are_optional_in_what_each_kind_needs() -> None:
    """So a type checker knows them: an answer that has its kind has its value."""
    needed = {
        kind: {
            name
            for name, field in model.model_fields.items()
            if field.default is PydanticUndefined and name not in NoisyAnswer.model_fields
        }
        for kind, model in ANSWERS.items()
    }
    assert needed["predicate"] == needed["threshold"] == {"value", "count"}
    assert needed["sum"] == {"value", "count", "total"}
    assert needed["table"] == needed["sum_by_group"] == {"table"}
    assert needed["between"] == {"side"}
