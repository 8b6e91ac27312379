"""The page about messages is true of the models."""

from __future__ import annotations

import base64
import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import pytest
from pydantic import BaseModel

from stream_dp.audit import verify
from stream_dp.cli.checks.schema_edits import changed
from stream_dp.client.statements.written_query import Query, as_message
from stream_dp.core.outcome import Path as AnswerPath
from stream_dp.core.outcome import RefusalCode
from stream_dp.core.queries.conditions import compile_where
from stream_dp.messages import (
    ANSWERS,
    TOPICS,
    Batch,
    ChangeAnalysts,
    ChangeSchema,
    ClosePhase,
    CountAnswer,
    Definition,
    DimensionTable,
    Event,
    KindsSpec,
    MechanismSpec,
    NoisyAnswer,
    QueryEnvelope,
    QueryFields,
    QuotedBundle,
    Rejected,
    RunningTick,
    SeriesAnswer,
    StandingQuery,
    SyntheticRows,
    read_answer,
    read_json,
)
from stream_dp.messages.analyst_rules import AnalystSpec
from stream_dp.messages.answer_forms import FoundCell
from stream_dp.messages.bundles import PriceRange
from stream_dp.messages.definition.promise_specs import UnitSpec
from stream_dp.messages.kinds.extra_kinds import Vector
from stream_dp.messages.message_base import Reply
from stream_dp.messages.replies import RunningTable
from stream_dp.messages.series import SeriesPart
from stream_dp.messages.tile_fields import RunningSpec, Tile, TileTables
from stream_dp.profiles.builder import build, line_of
from stream_dp.profiles.kinds import ANSWERERS
from stream_dp.state import ledger

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/messages.md").read_text()
REPLIES: dict[str, Callable[[Any], BaseModel]] = {
    "answer": read_answer,
    "event": Event.model_validate,
    "rejected": Rejected.model_validate,
    "running": RunningTick.model_validate,
    "synthetic": SyntheticRows.model_validate,
    "standing": StandingQuery.model_validate,
    "dimension": DimensionTable.read,
}


def examples(kind: str, page: str = PAGE) -> Iterator[dict[str, Any]]:
    for text in re.findall(rf"^```json {kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        yield read_json(text.encode(), max_bytes=100_000)


def test_every_example_is_of_a_kind_that_is_tested() -> None:
    kinds = set(re.findall(r"^```json (\w+)$", PAGE, re.MULTILINE))
    assert kinds == {
        "definition",
        "analysts",
        "schema",
        "close",
        "batch",
        "query",
        "ledger",
        *REPLIES,
    }
    assert PAGE.count("```json") == sum(len(list(examples(kind))) for kind in kinds)


def test_definitions_are_accepted_by_the_worker_too() -> None:
    names = [build(Definition.read(example))[0].names for example in examples("definition")]
    assert names == [
        ("city", "age", "smoker", "income"),
        ("ordered_at", "hour", "size"),
        ("status",),
    ]


def test_every_profile_and_each_of_its_settings_is_named() -> None:
    (of_profile, *_) = get_args(MechanismSpec)
    for spec in get_args(get_args(of_profile)[0]):
        (profile,) = get_args(spec.model_fields["profile"].annotation)
        assert f"`{profile}`" in PAGE
        for name in spec.model_fields:
            assert re.search(rf"`\"?{name}\b", PAGE), (profile, name)


def test_changes_and_ledger_entries_are_read() -> None:
    assert [ClosePhase.read(one).dataset for one in examples("close")] == ["orders"]
    shares = [ChangeAnalysts.read(one).analysts["finance"].share for one in examples("analysts")]
    assert shares == [0.3]
    before = Definition.read(next(examples("definition")))
    (change,) = map(ChangeSchema.read, examples("schema"))
    assert before.changed(change, 2).schema_version == change.schema_version
    attributes = json.loads(change.to_bytes())["attributes"]
    assert changed(before, attributes, 2).attributes == change.attributes, "the worker takes it"
    for example in examples("ledger"):
        entry = json.dumps(example, sort_keys=True, separators=(",", ":")).encode()
        assert ledger.read(entry) == example


def test_batches_fit_the_definition_beside_them() -> None:
    universe, _ = build(Definition.read(next(examples("definition"))))
    n_rows = []
    for batch in map(Batch.read, examples("batch")):
        if batch.columns is not None:
            cells = universe.encode_columns(batch.columns)
        elif batch.rows is not None:
            cells = universe.encode_rows(batch.rows)
        else:
            assert batch.cells is not None
            cells = universe.encode_cells(batch.cells)
        n_rows.append(cells.n_rows)
    assert n_rows == [3, 2, 12, 2]


def test_queries_fit_the_definition_beside_them() -> None:
    persons = (ROOT / "docs/persons.md").read_text()
    definitions = [*examples("definition"), *examples("definition", persons)]
    universes = {d["dataset"]: build(Definition.read(d))[0] for d in definitions}
    for example in examples("query"):
        universe = universes[example["dataset"]]
        for query in queries_of(example):
            compile_where(universe, query.where)
            assert query.attribute in {None, *universe.names}


def queries_of(example: dict[str, Any]) -> list[QueryFields]:
    return [QueryFields.read(item) for item in QueryEnvelope.read(example).queries]


ASKED = [query for example in examples("query") for query in queries_of(example)]


def test_every_kind_of_query_has_an_example() -> None:
    of_counts = {"predicate", "table", "sum", "share", "difference", "quantile", "correlation"}
    assert {query.kind for query in ASKED} == of_counts | ANSWERERS.keys()
    for name in KindsSpec.model_fields:
        assert f'`"{name}": {{"share": ' in PAGE, name
    said = {name for fields in ASKED for name in fields.model_fields_set}
    assert said >= QueryFields.model_fields.keys() - {"quote"}, "an example would show a lost field"


@pytest.mark.parametrize("fields", ASKED, ids=lambda fields: fields.kind)
def test_the_query_of_a_message_becomes_the_same_message(fields: QueryFields) -> None:
    """All but what is done with it: whether it stands, and when it raises an alert."""
    no_sql = mock.Mock(side_effect=AssertionError("a message has no SQL"))
    again = QueryFields.read(as_message(Query.of_message(fields), no_sql))
    assert again == fields.model_copy(update={"standing": None, "alert": None, "quote": False})


def test_replies_are_what_the_models_write() -> None:
    for kind, read in REPLIES.items():
        for example in examples(kind):
            assert read(example).model_dump(mode="json", exclude_none=True) == example


def test_the_script_for_a_vector_reads_the_answer_beside_it() -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (answer,) = [example for example in examples("answer") if "vector" in example]
    names: dict[str, Any] = {"base64": base64, "numpy": np, "answer": answer, "v": np.ones(200)}
    exec(script, names)
    assert set(names["y"]) == {-1.0, 1.0}
    # Half of the rows behind the example are true; its error bar holds for a vector of ones.
    assert abs(names["estimate"]) <= answer["error_bar"]


def test_the_charges_on_the_page_are_what_their_looks_cost() -> None:
    kinds = {"threshold": {"share": 0.1}}
    read = Definition.read({**next(examples("definition")), "kinds": kinds})
    first = {"definition": json.loads(read.to_bytes()), "line": line_of(read)}
    bodies: list[dict[str, Any]] = [{"kind": "dataset", **first}]
    bodies += sorted(examples("ledger"), key=lambda example: example["seq"])
    entries, head = [], ledger.GENESIS
    for seq, body in enumerate(bodies):
        own = body.keys() - {"version", "dataset", "seq", "prev", "kind"}
        said = {name: body[name] for name in own}
        entry, head = ledger.append(head, seq, read.dataset, body["kind"], said)
        entries.append(entry)
    report = verify(read.dataset, entries)
    assert (report.faults, report.notes) == ([], [])
    assert report.charges == 2


def test_every_topic_code_and_path_is_on_the_page() -> None:
    for role, settings in TOPICS.items():
        days = settings.retention_ms // 86_400_000
        kept = "for ever" if settings.retention_ms == -1 else f"{days} days"
        assert re.search(rf"^\| `{role}` \| .* \| {kept} \|$", PAGE, re.MULTILINE), role
    for code in (*RefusalCode, *AnswerPath):
        assert f"`{code.value}`" in PAGE, code
    for field in NoisyAnswer.model_fields.keys() - {"version", "dataset", "query_id", "analyst"}:
        assert re.search(rf"`{field}[`.]", PAGE), field


def test_the_fields_of_every_kind_of_answer_are_beside_each_other() -> None:
    tables = dict(re.findall(r"^<!--kind:(\w+)-->\n((?:.+\n)*)", PAGE, re.MULTILINE))
    _, _, others = PAGE.partition("\n## Other kinds\n")
    rows = dict(re.findall(r'^\| `"(\w+)": .* \| (.*) \|$', others, re.MULTILINE))
    assert "\nAnswers have the `attribute` too.\n" in others
    for kind, model in ANSWERS.items():
        if kind in {"table", "threshold_curve"}:  # nothing but a table
            continue
        table = tables.get(kind.removesuffix("_by_group")) or rows[kind]
        said = {*NoisyAnswer.model_fields, *(["attribute"] if kind in rows else [])}
        if kind in rows and "the fields of a `predicate`" in table:
            said |= CountAnswer.model_fields.keys()
        for field in model.model_fields.keys() - said:
            absent = f"{field}: Always None" in (model.__doc__ or "")
            assert absent or f"`{field}`" in table, (kind, field)


def test_every_field_of_a_model_without_a_table_is_in_an_example_or_in_words() -> None:
    models: tuple[type[BaseModel], ...] = (
        *(AnalystSpec, UnitSpec, Tile, TileTables, RunningSpec, DimensionTable),
        *(Event, Rejected, RunningTick, RunningTable, StandingQuery, SyntheticRows),
        *(QuotedBundle, PriceRange, SeriesAnswer, SeriesPart, FoundCell, Vector),
    )
    for model in models:
        for field in model.model_fields:
            assert re.search(rf'`{field}`|"{field}":', PAGE), (model.__name__, field)


def test_a_field_without_a_meaning_stops_the_page() -> None:
    class Silent(Reply):
        """A model that says nothing of its field."""

        field: int

    said = runpy.run_path(str(ROOT / "tools/pages.py"))["_said"]
    with pytest.raises(LookupError, match="says nothing of field"):
        said(Silent, "field")
