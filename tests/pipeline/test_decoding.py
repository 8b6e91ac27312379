"""Messages are read quickly where they are ordinary; what is accepted does not depend on the way."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from stream_dp.errors import InvalidMessage
from stream_dp.messages import QueryFields, json_reader, read_json
from stream_dp.messages.json_reader import MAX_NESTING
from stream_dp.pipeline.intake.decoder import Ask, BadQuery, decode, partition_of
from stream_dp.pipeline.intake.records import Record

LIMIT = 1 << 20


class Pairs(list[tuple[str, Any]]):
    """An object that may name a key twice."""


def written(value: object) -> str:
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{written(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(inner) for inner in value) + "]"
    return value if isinstance(value, Raw) else json.dumps(value)


class Raw(str):
    """A piece of text as it stands, which may be no JSON."""

    __slots__ = ()


keys = st.sampled_from(["a", "b", "a:b", "\u003a", "é", "Infinity", ""])
raws = st.sampled_from(
    [
        *("1e400", "-1e999", "NaN", "Infinity", "-Infinity", "01", "1.", "-0", "-0.0", "1E5"),
        *('"\\u003a"', '"\\u003A"', '"\\ud800"', '"\\ud83d\\ude00"', '"\x01"', '"\\x"', "nul"),
        *("9" * 5_000, "9" * 4_000, "1e-400", "0.1", "[", '"\\\\u003a"', "\ufeff1"),
    ]
).map(Raw)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | keys | raws
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(keys, inner), max_size=3).map(Pairs)
    ),
    max_leaves=12,
)


def _outcome(read: Any) -> object:
    """What was read, spelled out so that 1, 1.0 and True differ, or the words of the refusal."""
    try:
        return repr(read())
    except InvalidMessage as error:
        return str(error)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(keys, documents), max_size=3).map(Pairs), st.booleans())
@example(Pairs([("a", 1), ("a", Raw('"x"')), ("b", Raw('"\\u003a"'))]), False)
@example(Pairs([("a", 1), ("a", Raw('"\\u003A"'))]), True)
@example(Pairs([("a", ["Infinity", Raw("1e400")])]), True)
def test_a_quick_reading_is_what_a_patient_one_finds(document: Pairs, private: bool) -> None:
    value = written(document).encode("utf-8", "surrogatepass")

    def patiently() -> object:
        return json_reader._read_patiently(value, private=private)

    def read() -> object:
        return read_json(value, max_bytes=LIMIT, private=private)

    assert _outcome(read) == _outcome(patiently)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-be"])
def test_every_encoding_of_json_is_read(encoding: str) -> None:
    value = '{"a": "㨀:", "b": [1]}'.encode(encoding)
    assert read_json(value, max_bytes=LIMIT) == {"a": "㨀:", "b": [1]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_key_twice_is_found_in_every_encoding(encoding: str) -> None:
    value = '{"a": "㨀㨀", "b": 1, "b": 1}'.encode(encoding)
    with pytest.raises(InvalidMessage, match="twice"):
        read_json(value, max_bytes=LIMIT)


@pytest.mark.parametrize("form", ['{{"a":{}}}', '[{}, {{"a:b": 1}}]', "[{}]"])
@pytest.mark.parametrize("inner", ["[]", "{}", "1", "[1]", '{"a": []}', '"\\u003a"'])
def test_the_limit_of_nesting_is_the_same_on_both_ways(form: str, inner: str) -> None:
    for depth in range(MAX_NESTING - 3, MAX_NESTING + 2):
        value = inner
        for _ in range(depth):
            value = form.format(value)
        whole = f'{{"whole": {value}}}'.encode()
        quick = json_reader._read_quickly(whole, private=False)
        try:
            patient = json_reader._read_patiently(whole, private=False)
        except InvalidMessage:
            assert quick is None
        else:
            assert quick in (patient, None)


def _decoded(document: dict[str, Any]) -> Any:
    value = json.dumps(document).encode()
    return decode(Record("queries", "in.queries", partition_of(b"d", 4), 0, b"d", value), 4)


ITEMS: list[dict[str, Any]] = [
    {"query_id": "a"},
    {"query_id": "b", "where": {"attribute": "x", "eq": 1}, "window": {"last_phases": 2}},
    {"query_id": "c", "kind": "table", "group_by": ["x"], "quote": True},
]
HEAD = {"version": 1, "dataset": "d", "analyst": "ana"}


def test_a_single_query_is_the_one_of_a_list_of_one() -> None:
    for item in ITEMS:
        single, listed = _decoded({**HEAD, **item}), _decoded({**HEAD, "queries": [item]})
        assert (single.dataset, single.analyst) == (listed.dataset, listed.analyst)
        (one,), (other,) = single.queries, listed.queries
        assert {name: getattr(one, name) for name in QueryFields.model_fields} == other.model_dump(
            exclude={"window"}
        ) | {"window": other.window}


def test_queries_beside_a_bad_one_are_read_as_if_they_were_alone() -> None:
    alone = _decoded({**HEAD, "queries": ITEMS})
    mixed = _decoded({**HEAD, "queries": [ITEMS[0], {"query_id": "bad", "x": 1}, *ITEMS[1:]]})
    assert isinstance(mixed, Ask)
    bad = mixed.queries[1]
    assert isinstance(bad, BadQuery)
    assert bad.query_id == "bad"
    assert [query for query in mixed.queries if query is not bad] == list(alone.queries)


def test_a_number_beyond_all_floats_is_refused_and_the_word_is_not() -> None:
    assert read_json(b'{"a": "Infinity"}', max_bytes=LIMIT) == {"a": "Infinity"}
    assert math.isfinite(read_json(b'{"a": 1e308}', max_bytes=LIMIT)["a"])
    with pytest.raises(InvalidMessage, match="too large for a float"):
        read_json(b'{"a": 1e309}', max_bytes=LIMIT)


def test_of_several_faults_it_is_always_the_same_one_that_is_named() -> None:
    """Else a record that is rejected again after a restart would be rejected in other bytes."""
    surplus = {
        "group_by": ["a"],
        "attribute": "a",
        "rank": 0.5,
        "wheres": [{}],
        "low": 0.1,
        "high": 1,
    }
    for first, second in itertools.combinations(surplus, 2):
        item = {"query_id": "q", first: surplus[first], second: surplus[second]}
        with pytest.raises(InvalidMessage, match=f"has no {first}:"):
            QueryFields.read(item)
