"""Answers say their kind, and those that were published before they did are read as they were meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from pydantic_core import PydanticUndefined

from stream_dp.client.kafka import topic_documents
from stream_dp.messages import (
    ANSWERS,
    FIELDS,
    SERIES,
    Answer,
    CellsAnswer,
    CorrelatedVectorAnswer,
    CountAnswer,
    FoundAnswer,
    NoisyAnswer,
    PrefixBatchAnswer,
    QuotedAnswer,
    RefusedAnswer,
    SeriesAnswer,
    SideAnswer,
    SumAnswer,
    SumByGroupAnswer,
    UnknownAnswer,
    read_answer,
)
from stream_dp.pipeline.queries.query_answerer import released_again
from stream_dp.profiles.kinds import MAKERS
from stream_dp.state.codec import answer_to_bytes

GOLDEN = Path(__file__).parents[1] / "golden/answers"
EXAMPLES = sorted(path.name for path in GOLDEN.glob("*.json"))
NEW_FIELDS = {"kind", "attribute", "rank", "low", "high"}
FORMS: dict[str, type[Answer]] = {
    "predicate": CountAnswer,
    "table": CellsAnswer,
    "sum": SumAnswer,
    "sum_by_group": SumByGroupAnswer,
    "threshold": CountAnswer,
    "threshold_curve": CellsAnswer,
    "quantile": FoundAnswer,
    "median": FoundAnswer,
    "mode": FoundAnswer,
    "prefix_batch": PrefixBatchAnswer,
    "correlated_vector": CorrelatedVectorAnswer,
    "between": SideAnswer,
    "interior_point": SideAnswer,
    "adaptive_threshold": CountAnswer,
    "refused": RefusedAnswer,
    "quoted": QuotedAnswer,
}
"""How an answer is read that was published before answers said their kind."""

YOUNGER = {
    *("share", "share_by_group", "difference", "difference_by_group", "quantile_by_group"),
    "correlation",
    SERIES,
}
"""Kinds whose answers always said their kind."""


def kind_of(example: str) -> str:
    return example.removesuffix(".json").partition("-")[0]


def test_every_kind_has_an_example_with_its_kind_and_one_without() -> None:
    kinds = {kind_of(name) for name in EXAMPLES}
    assert kinds == {*ANSWERS, SERIES, "refused", "quoted"} == {*FORMS, *YOUNGER}
    assert sorted(path.name for path in (GOLDEN / "without-kind").glob("*.json")) == OLDER
    assert set(FIELDS) <= set(ANSWERS) == set(MAKERS)


OLDER = [name for name in EXAMPLES if kind_of(name) not in YOUNGER]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_answer_is_read_as_the_class_of_its_kind_and_written_as_it_was(name: str) -> None:
    value = (GOLDEN / name).read_bytes()
    answer = read_answer(value)
    others = {"refused": RefusedAnswer, "quoted": QuotedAnswer, SERIES: SeriesAnswer}
    assert type(answer) is (others | dict(ANSWERS))[kind_of(name)]
    assert answer.kind == json.loads(value)["kind"]
    assert answer.to_bytes() == value
    assert topic_documents.read_answer(value) == answer


@pytest.mark.parametrize("name", OLDER)
def test_an_answer_without_a_kind_is_read_as_its_form(name: str) -> None:
    value = (GOLDEN / "without-kind" / name).read_bytes()
    answer = read_answer(value)
    assert type(answer) is FORMS[kind_of(name)]
    assert answer.kind in (None, kind_of(name))
    document = json.loads(value)
    assert "kind" not in document
    written = json.loads(answer.to_bytes())
    assert {field: written[field] for field in document} == document
    assert written.keys() - document.keys() <= {"kind"}


@pytest.mark.parametrize("name", OLDER)
def test_a_stored_answer_without_a_kind_is_sent_again_byte_for_byte(name: str) -> None:
    value = (GOLDEN / "without-kind" / name).read_bytes()
    again = released_again("flights", "ana q", answer_to_bytes(bytes(16), value))
    assert again.value == value


@pytest.mark.parametrize("name", OLDER)
def test_the_kind_changes_nothing_of_what_an_answer_said_before(name: str) -> None:
    """Both examples were published under the same draws."""
    now = json.loads((GOLDEN / name).read_bytes())
    before = json.loads((GOLDEN / "without-kind" / name).read_bytes())
    assert {field: value for field, value in now.items() if field not in NEW_FIELDS} == before


def test_each_class_has_the_kind_that_it_stands_under() -> None:
    for kind, model in ANSWERS.items():
        assert get_args(model.model_fields["kind"].annotation) == (kind,)
        assert model.model_fields["kind"].default == kind


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


def test_a_field_of_another_kind_is_not_there() -> None:
    refused = read_answer((GOLDEN / "refused.json").read_bytes())
    with pytest.raises(AttributeError, match="RefusedAnswer"):
        _ = refused.value  # type: ignore[attr-defined]


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
