"""Values that a definition declares missing count as missing, in each form in which rows come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.client.rows.unread_values import unread_values
from stream_dp.core.rows.attributes import Boolean, Category, Date, Number
from stream_dp.core.rows.column_values import Repeated
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition
from stream_dp.profiles.builder import universe_of

NA = ("?", "-999")
ATTRIBUTES: list[Any] = [
    Category("x", ("a", "b"), missing=True, na=NA),
    Number("x", (0.0, 10.0), missing=True, na=NA),
    Number("x", (0.0, 2.0**60), missing=True, na=NA),
    Number("x", (0.0, 10.0), missing=True, na=NA, measure=Measure(1.0, -1000.0, 10.0)),
    Boolean("x", missing=True, na=NA),
    Date("x", "weekday", missing=True, na=NA, epoch="s"),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=repr)
def test_such_a_value_counts_as_missing_and_all_others_as_before(attribute: Any) -> None:
    without = type(attribute)(
        **{name: getattr(attribute, name) for name in attribute.__dataclass_fields__} | {"na": ()}
    )
    assert attribute.labels == without.labels
    missing = ["?", " ? ", "-999", -999, -999.0, np.float64(-999), np.int32(-999), None]
    assert set(attribute.encode(missing).tolist()) == {attribute.missing_cell}
    assert set(without.encode(["-999", -999]).tolist()) != {without.missing_cell} or isinstance(
        attribute, Boolean
    )
    others = ["a", "??", "", 5, -998, 9, True, "true", "2026-03-14", float("nan"), [1], 10**400]
    assert attribute.encode(others).tolist() == without.encode(others).tolist()
    repeated = Repeated(["?", "a"], np.array([0, 1, 0]))
    columns = Universe((attribute,)).encode_columns({"x": repeated}).codes[0].tolist()
    assert columns == attribute.encode(["?", "a", "?"]).tolist()


def test_an_array_of_numbers_is_read_as_a_list_is() -> None:
    number = ATTRIBUTES[1]
    array = np.array([-999.0, 5.0, np.nan, 20.0])
    assert number.encode(array).tolist() == number.encode(array.tolist()).tolist() == [3, 1, 3, 2]
    measured = ATTRIBUTES[3]
    assert isinstance(measured, Number)
    codes, offsets = measured.encode_measured(np.array([-999.0, -998.0]))
    assert codes.tolist() == [3, 0]
    assert offsets.tolist() == [0, 2], "a missing value adds nothing"
    moments = np.array(["2026-03-14", "NaT"], dtype="datetime64[s]")
    assert ATTRIBUTES[5].encode(moments).tolist() == [5, 7]


def definition(**attribute: Any) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "people",
            "attributes": [{"name": "x", "type": "category", "values": ["a"], **attribute}],
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 1_000},
        }
    )


def test_a_definition_names_them_and_the_sender_is_not_warned_of_them() -> None:
    named = definition(missing=True, na=["?", -999])
    (attribute,) = universe_of(named).attributes
    assert attribute.na == ("?", "-999")
    body = {"columns": {"x": ["?", "a", -999, "z", None]}}
    (unread,) = unread_values(named, body)
    assert (unread.rows, unread.values) == (1, 2)
    (unread,) = unread_values(definition(missing=True), body)
    assert unread.rows == 3


def test_without_the_field_a_definition_has_the_bytes_of_before() -> None:
    assert b'"na"' not in definition().to_bytes()
    named = definition(missing=True, na=["?"])
    assert b'"na":["?"]' in named.to_bytes()


@pytest.mark.parametrize(
    ("attribute", "fault"),
    [
        (
            {"na": ["?"]},
            'attributes.0.na: values that are missing have no cell; add "missing": true',
        ),
        ({"na": ["a"], "missing": True}, "attributes.0.na: a value is listed too"),
    ],
)
def test_a_value_that_cannot_be_missing_is_refused(attribute: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        universe_of(definition(**attribute))
    assert fault in str(refused.value)
