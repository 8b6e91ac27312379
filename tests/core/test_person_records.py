"""What all rows of a person say together: docs/proofs, Theorem 40."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from stream_dp.core.rows import person_records
from stream_dp.core.rows.attributes import Boolean, Category, Date, Number
from stream_dp.core.rows.attributes.boolean import RowCondition
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_records import folded_columns, folded_rows, names_of_folded
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Slots, by_person
from stream_dp.core.rows.slabs import row_columns
from stream_dp.core.rows.universe import Universe

NOBODY: Final = "-"
TOTAL: Final = Measure(0.5, -10.0, 20.0)
SHOP: Final = Universe(
    (
        Category("page", ("home", "cart"), other=False),
        Number("visits", (2.0, 4.0), integer=True, fold="count"),
        Boolean("bought", missing=True, fold="any"),
        Number("spent", (0.0, 5.0), missing=True, measure=TOTAL, fold="sum"),
        Number("least", (0.0, 5.0), missing=True, measure=TOTAL, fold="min"),
        Number("most", (0.0, 5.0), missing=True, fold="max"),
        Number("counted", (3.0,), measure=Measure(1.0, 0.0, 5.0), fold="count"),
    )
)


def slots(persons: str) -> Slots:
    """The slots of persons with names of one letter."""
    digests = np.zeros((len(persons), DIGEST_BYTES), np.uint8)
    for at, person in enumerate(persons):
        digests[at, 0] = 0 if person == NOBODY else ord(person)
    return Slots(digests, np.arange(len(persons), dtype=np.uint64))


def rows(persons: str, **said: list[Any]) -> Rows:
    """Rows of these persons; of other columns they say nothing."""
    columns = {name: said.get(name, [None] * len(persons)) for name in SHOP.names}
    found = SHOP.encode_columns({"page": ["home"] * len(persons), **columns} | said)
    return Rows(found.codes, None, found.measures, slots(persons))


def cells(rows: Rows, name: str) -> list[str]:
    at = SHOP.positions[name]
    return [SHOP.attributes[at].labels[code] for code in rows.codes[at]]


def values(rows: Rows, name: str) -> list[float]:
    at = SHOP.positions[name]
    return [float(TOTAL.value(np.array(int(units) + TOTAL.ends[0]))) for units in rows.measures[at]]


def test_a_record_says_how_many_rows_a_person_has() -> None:
    found = folded_rows(SHOP, rows("abcaa-cd-aa"))
    several, few, one = ">= 4", "2 to 3", "1"
    assert cells(found, "visits") == [
        several, one, few, several, several, one, few, one, one, several, several
    ]  # fmt: skip
    at = SHOP.positions["counted"]
    assert found.measures[at].tolist() == [5, 1, 2, 5, 5, 0, 2, 1, 0, 5, 5]


def test_a_record_is_true_if_any_row_is_and_missing_if_all_are() -> None:
    said = [True, False, None, False, None, False, None]
    assert cells(folded_rows(SHOP, rows("aaabbcd", bought=said)), "bought") == [
        *["true"] * 3, *["false"] * 3, "missing"
    ]  # fmt: skip


def test_a_record_has_the_sum_the_least_and_the_largest_value_of_those_that_are_there() -> None:
    said = [1.5, None, 7.0, -3.0, None, 15.0, 15.0, -9.0, -9.0]
    found = folded_rows(SHOP, rows("aaabcddee", spent=said, least=said, most=said))
    assert values(found, "spent") == [8.5, 8.5, 8.5, -3.0, -10.0, 20.0, 20.0, -10.0, -10.0]
    assert cells(found, "spent") == [
        *[">= 5"] * 3, "< 0", "missing", *[">= 5"] * 2, *["< 0"] * 2
    ]  # fmt: skip
    assert values(found, "least") == [1.5, 1.5, 1.5, -3.0, -10.0, 15.0, 15.0, -9.0, -9.0]
    assert cells(found, "least")[:5] == [*["0 to 5"] * 3, "< 0", "missing"]
    assert cells(found, "most") == [
        *[">= 5"] * 3, "< 0", "missing", *[">= 5"] * 2, *["< 0"] * 2
    ]  # fmt: skip


PLACES: Final = Universe(
    (
        Category("page", ("home", "cart"), other=False, missing=True),
        Category("first", ("a", "b"), other=False, missing=True, fold="first"),
        Date("last", "month", "2026-01-01", "2026-04-01", missing=True, fold="last"),
        Number("paid", (5.0,), missing=True, measure=TOTAL, fold="last"),
        Boolean("new", fold="first"),
        Boolean(
            "in_cart", fold="any", where=RowCondition("", ("page",), np.array([0, 1, 0], bool))
        ),
    )
)


def test_a_record_has_the_first_and_the_last_value_that_are_there() -> None:
    columns: dict[str, list[Any]] = {
        "page": ["home", "cart", None, "home", "cart", "home"],
        "first": [None, "b", "a", None, "a", None],
        "last": ["2026-02", "2026-01", None, "2026-03", None, "2026-01"],
        "paid": [1.0, 2.5, None, 7.0, None, -4.0],
        "new": [True, False, True, False, True, True],
    }
    encoded = PLACES.encode_columns(columns)
    whose = slots("aaabc-")
    found = folded_rows(PLACES, Rows(encoded.codes, None, encoded.measures, whose))
    said = {
        attribute.name: [attribute.labels[code] for code in found.codes[at]]
        for at, attribute in enumerate(PLACES.attributes)
    }
    assert said["first"] == ["b", "b", "b", "missing", "a", "missing"]
    assert said["last"] == ["2026-01"] * 3 + ["2026-03", "missing", "2026-01"]
    assert said["new"] == ["true"] * 3 + ["false", "true", "true"]
    assert said["paid"] == ["< 5"] * 3 + [">= 5", "missing", "< 5"]
    at = PLACES.positions["paid"]
    units = [int(each) + TOTAL.ends[0] for each in found.measures[at]]
    assert [float(TOTAL.value(np.array(one))) for one in units[:4]] == [2.5, 2.5, 2.5, 7.0]


def test_a_condition_on_rows_is_true_of_a_person_if_it_is_of_one_row() -> None:
    pages = ["home", "cart", None, "home", "cart", "cart"]
    columns = {name: [None] * 6 for name in ("first", "last", "paid", "new")}
    encoded = PLACES.encode_columns({"page": pages, **columns})  # rows have no column in_cart
    found = folded_rows(PLACES, Rows(encoded.codes, None, encoded.measures, slots("aaabc-")))
    assert found.codes[PLACES.positions["in_cart"]].tolist() == [1, 1, 1, 0, 1, 0]
    assert found.codes[0].tolist() == encoded.codes[0].tolist(), "what it is about stays"
    assert {"0", "5"} < names_of_folded(PLACES)


def test_what_is_not_folded_and_what_blank_slots_say_stays() -> None:
    said: dict[str, list[Any]] = {
        "page": ["home", "cart", "cart", "home"],
        "bought": [True, True, False, None],
    }
    found = folded_rows(SHOP, rows("a-a-", **said))
    assert cells(found, "page") == said["page"]
    assert cells(found, "bought") == ["true", "true", "true", "missing"]
    nothing = rows("")
    assert folded_rows(SHOP, nothing) is nothing
    plain = Universe((Category("page", ("home", "cart"), other=False),))
    unfolded = Rows((np.zeros(2, np.uint8),), None, {}, slots("aa"))
    assert folded_rows(plain, unfolded) is unfolded
    assert names_of_folded(plain) == set()


def test_large_sums_are_exact_up_to_their_ends() -> None:
    far = Measure(1.0, 2.0**49, 2.0**49 + 2**20)
    universe = Universe((Number("far", (2.0**49 + 5,), measure=far, fold="sum"),))
    encoded = universe.encode_columns({"far": [2.0**49 + 3.0, 2.0**49, 2.0**49 + 1.0]})
    found = folded_rows(universe, Rows(encoded.codes, None, encoded.measures, slots("abb")))
    assert found.measures[0].tolist() == [3, 2**20, 2**20]
    low = Measure(1.0, -(2.0**20), 0.0)
    universe = Universe((Number("low", (-5.0,), measure=low, fold="sum"),))
    many = 2**13
    encoded = universe.encode_columns({"low": [-(2.0**20)] * many + [-1.0, -2.0]})
    found = folded_rows(
        universe, Rows(encoded.codes, None, encoded.measures, slots("a" * many + "bb"))
    )
    assert found.measures[0].tolist() == [*[0] * many, *[2**20 - 3] * 2]


def test_slabs_are_folded_as_rows_are() -> None:
    said = [1.5, None, 7.0, -3.0, 4.0]
    some = rows("ab-ab", spent=said, bought=[None, True, None, False, None])
    columns = {**row_columns(some)}
    names = names_of_folded(SHOP)
    assert names == {"1", "2", "3", "value 3", "4", "value 4", "5", "6", "value 6"}
    wanted = row_columns(folded_rows(SHOP, some))
    assert some.whose is not None
    found = folded_columns(SHOP, some.whose, {name: columns[name] for name in names})
    assert {name: of.tolist() for name, of in found.items()} == {
        name: wanted[name].tolist() for name in names
    }
    assert all(of.dtype == columns[name].dtype for name, of in found.items())


# ---------------------------------------------------------------- Theorem 40

SMALL: Final = Universe(
    (
        Number("rows", (2.0, 3.0), integer=True, fold="count"),
        Boolean("any", fold="any"),
        Number("sum", (1.0,), measure=Measure(1.0, 0.0, 2.0), fold="sum"),
        Number("least", (1.0,), fold="min"),
    )
)


def table(persons: tuple[str, ...], said: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """The records that count, with all that they say."""
    numbers = [float(value) for value in said]
    columns: dict[str, list[Any]] = {
        "any": [bool(value) for value in said],
        "sum": numbers,
        "least": numbers,
    }
    encoded = SMALL.encode_columns(columns)
    whose = slots("".join(persons))
    found = person_records.folded_rows(SMALL, Rows(encoded.codes, None, encoded.measures, whose))
    columns_of = [*found.codes, *found.measures.values()]
    marks = whose.counted(1)
    return Counter(
        tuple(int(column[at]) for column in columns_of) for at in np.flatnonzero(marks).tolist()
    )


def test_a_person_who_is_blanked_takes_one_record_away_and_changes_no_other() -> None:
    """All histories of four slots: who is in each, and what it says."""
    n_slots, worst = 4, 0
    for persons in product("ab-", repeat=n_slots):
        for said in product((0, 1), repeat=n_slots):
            whole = table(persons, said)
            without = table(tuple(NOBODY if who == "a" else who for who in persons), said)
            assert not without - whole, "a record of another person is another one"
            worst = max(worst, (whole - without).total())
            assert (whole - without).total() == ("a" in persons)
    assert worst == 1


def test_records_that_add_up_what_others_say_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken copy, in which slots are put together by what they say and not by whose they are."""
    right = by_person

    def wrong(digests: Any, order: Any) -> Any:
        alike = np.zeros_like(digests)
        alike[:, 0] = digests.any(axis=1)
        return right(alike, order)

    monkeypatch.setattr(person_records, "by_person", wrong)
    with pytest.raises(AssertionError, match="of another person"):
        test_a_person_who_is_blanked_takes_one_record_away_and_changes_no_other()
