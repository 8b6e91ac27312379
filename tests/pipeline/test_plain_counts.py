"""Records with counts alone are decoded quickly, and mean and refuse the same as before."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from stream_dp.errors import InvalidMessage
from stream_dp.messages import SingleQuery
from stream_dp.messages.json_reader import MAX_NESTING
from stream_dp.pipeline.intake import decoder
from stream_dp.pipeline.intake.decoder import Ask, BadQuery, decode
from stream_dp.pipeline.intake.plain_counts import read_counts
from stream_dp.pipeline.intake.records import Record
from tests.pipeline.test_decoding import Pairs, Raw, documents, written

HEAD = '"version":1,"dataset":"flights","analyst":"ana"'
WHERE = (
    '"where":{"all":[{"attribute":"carrier","in":["AA","UÄ"]},{"attribute":"delay","ge":-10.50}]}'
)
ITEM = '"query_id":"q:1",' + WHERE
ONE = "{" + HEAD + "," + ITEM + ',"window":{"last_phases":2}}'
MANY = "{" + HEAD + ',"queries":[{' + ITEM + '},{"query_id":"q2"}]}'

DEEP = MAX_NESTING - 1
WRONG = [
    # keys that come twice
    ONE.replace('"query_id"', '"query_id":"q0","query_id"'),
    ONE.replace('"version":1', '"version":1,"version":1'),
    ONE.replace('"last_phases":2', '"last_phases":1,"last_phases":2'),
    ONE.replace('"ge":-10.50', '"ge":-10.50,"ge":-10.50'),
    ONE.replace('"where"', '"where":null,"where"'),
    MANY.replace('"queries"', '"queries":[],"queries"'),
    MANY.replace('"q2"', '"q2","query_id":"q3"'),
    MANY.replace('"carrier"', r'"carrier","attribute":"\u003a"', 1),
    # numbers that are not finite, or no numbers
    *(
        ONE.replace("-10.50", number)
        for number in ("1e999", "-1e999", "NaN", "-Infinity", "01", "1.")
    ),
    *(
        MANY.replace("-10.50", number)
        for number in ("1" + "0" * 400 + ".0", "9" * 5_000, "Infinity")
    ),
    # depth, size and text
    ONE.replace("-10.50", "[" * DEEP + "1" + "]" * DEEP),
    MANY.replace("-10.50", '{"a":' * DEEP + "1" + "}" * DEEP),
    MANY.replace("-10.50", "[" * 100_000 + "]" * 100_000),
    ONE + " " * (1 << 20),
    ONE[:-1],
    ONE + "x",
    ONE.replace("q:1", "q\n1"),
    "\ufeff" + ONE + "x",
    # fields
    ONE.replace('"version":1', '"version":2'),
    ONE.replace('"version":1', '"version":true'),
    ONE.replace('"version":1,', ""),
    ONE.replace("flights", "Flights"),
    ONE.replace("flights", "f" * 64),
    ONE.replace('"ana"', '""'),
    ONE.replace('"ana"', '"a na"'),
    ONE.replace("q:1", "q" * 129),
    ONE.replace("q:1", "ü"),
    ONE.replace('"last_phases":2', '"last_phases":0'),
    ONE.replace('"last_phases":2', '"last_phases":2.0'),
    ONE.replace('"last_phases":2', ""),
    ONE.replace('"window"', '"windows"'),
    ONE.replace(WHERE, '"where":[]'),
    MANY.replace('{"query_id":"q2"}', ""),
    "{" + HEAD + ',"queries":[]}',
    "[" + ONE + "]",
    "null",
    "",
]
"""What is refused, or decoded with more care: as a whole, or the query that is wrong."""


def _record(value: bytes) -> Record:
    named = b"Flights" if b"Flights" in value else b"flights"
    return Record("queries", "queries", 0, 0, named, value)


def _said(value: bytes) -> object:
    """The request that a record makes, spelled out, or the words of its rejection."""
    try:
        request = decode(_record(value), 1)
    except InvalidMessage as error:
        return str(error), error.reason
    if not isinstance(request, Ask):
        return repr(request)
    return request.dataset, request.analyst, request.at_most, [*map(_item, request.queries)]


def _item(query: Any) -> object:
    if isinstance(query, BadQuery):
        return query.query_id, str(query.error)
    envelope = {"version", "dataset", "analyst"} if isinstance(query, SingleQuery) else set()
    fields = {name: value for name, value in vars(query).items() if name not in envelope}
    # 1, 1.0 and True differ in words.
    return repr(fields), query.model_fields_set - envelope


def _patiently(value: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "read_counts", lambda _: None)
        return _said(value)


@pytest.mark.parametrize("text", [ONE, MANY, ONE.replace(",", " ,\n\t"), " " + MANY + "\n"])
def test_plain_counts_are_decoded_quickly(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = text.encode()
    assert read_counts(value) is not None
    assert _said(value) == _patiently(value, monkeypatch)
    assert "flights" in str(_said(value))


@pytest.mark.parametrize("text", WRONG, ids=lambda text: f"{text[:90]} {len(text)}")
def test_what_is_wrong_is_left_to_the_patient_way(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = text.encode()
    assert read_counts(value) is None or len(value) > 1 << 20
    assert _said(value) == _patiently(value, monkeypatch)


def test_bytes_that_are_no_text_are_left_to_the_patient_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wrong in (b"\xff", b"\xed\xa0\x80", b"\xc3"):
        for text in (ONE, MANY):
            value = text.encode().replace("Ä".encode(), wrong)
            assert read_counts(value) is None
            assert _said(value) == _patiently(value, monkeypatch)


wheres = st.lists(
    st.tuples(st.sampled_from(["all", "attribute", "eq", "a:b"]), documents), max_size=3
)
values_of = {
    "version": st.sampled_from([1, 1.0, True, 2, "1"]),
    "dataset": st.sampled_from(["flights", "Flights", ""]),
    "analyst": st.sampled_from(["ana", "a b", "ä"]),
    "query_id": st.sampled_from(["q1", "q:2", "", "ü", 7]),
    "where": wheres.map(Pairs) | documents,
    "window": st.sampled_from([1, 0, 2.0, -0, Raw("1e0"), Raw("9" * 40)]).map(
        lambda n: Pairs([("last_phases", n)])
    )
    | documents,
    "at_most": st.just(0.5),
}


@st.composite
def messages(draw: st.DrawFn) -> Pairs:
    """A message that is mostly as it should be."""

    def some(*names: str) -> list[tuple[str, Any]]:
        right = {"version": 1, "dataset": "flights", "analyst": "ana", "query_id": "q1"}
        kept = [name for name in names if draw(st.integers(0, 19)) or name not in right]
        often = [name for name in kept if name in right or draw(st.booleans())]
        often += [name for name in often if not draw(st.integers(0, 19))]
        return [
            (
                name,
                right[name] if name in right and draw(st.integers(0, 9)) else draw(values_of[name]),
            )
            for name in often
        ]

    head, item = ("version", "dataset", "analyst"), ("query_id", "where", "window")
    if draw(st.booleans()):
        return Pairs(some(*head, *item))
    items = [Pairs(some(*item)) for _ in range(draw(st.integers(0, 3)))]
    return Pairs([*some(*head), ("queries", items)])


@settings(deadline=None, max_examples=400)
@given(messages())
@example(Pairs(json.loads(ONE).items()))
def test_what_is_read_quickly_is_what_is_read_patiently(message: Pairs) -> None:
    value = written(message).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        assert _said(value) == _patiently(value, patch)


@settings(deadline=None, max_examples=300)
@given(
    st.decimals(allow_nan=False, allow_infinity=False) | st.floats(allow_nan=False) | st.integers()
)
def test_numbers_are_the_same(number: Any) -> None:
    value = ONE.replace("-10.50", str(number)).encode()
    with pytest.MonkeyPatch.context() as patch:
        assert _said(value) == _patiently(value, patch)
