from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dp.core.queries.conditions import (
    CompiledConditions,
    compile_group_by,
    compile_share,
    compile_where,
)
from stream_dp.core.queries.query import EVERYTHING, NOTHING, LinearQuery, Predicate
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidQuery

FLIGHTS = Universe(
    (
        Category("carrier", ("AA", "UA", "7"), other=True, missing=True),
        Number("arr_delay", (0, 10, 11, 30), integer=True, missing=True),
        Number("distance", (100.5, 2000)),
        Boolean("cancelled", missing=True),
    )
)
CARRIER, DELAY, DISTANCE, CANCELLED = range(4)

# Raw values, at least one in each cell; None is a missing value.
RAW: dict[str, list[Any]] = {
    "carrier": ["AA", "UA", "7", 7, "ZZ", None],
    "arr_delay": [-5, 0, 9, 10, 11, 29, 30, 400, None],
    "distance": [0, 100.5, 1999.9, 2000],
    "cancelled": [False, True, None],
}


def leaf(attribute: str, operator: str, constant: object) -> dict[str, Any]:
    return {"attribute": attribute, operator: constant}


# Comparisons that cut no bin, and constants for them.
CONSTANTS: dict[tuple[str, str], list[Any]] = {
    ("carrier", "eq"): ["AA", "UA", 7, 7.0],
    ("carrier", "in"): [[], ["AA"], ["AA", "7"], ["AA", "UA", 7]],
    ("carrier", "is_other"): [True, False],
    ("carrier", "is_missing"): [True, False],
    ("arr_delay", "ge"): [0, 10, 11, 30, 29.5],
    ("arr_delay", "lt"): [0, 10, 11, 30, 10.001],
    ("arr_delay", "gt"): [-1, 9, 10, 29, 29.9],
    ("arr_delay", "le"): [-1, 9, 10, 29, 9.9],
    ("arr_delay", "eq"): [10, 10.0, 2.5],
    ("arr_delay", "in"): [[], [10], [*range(10), 10, 3.5]],
    ("arr_delay", "between"): [[0, 9], [10, 10], [10, 29], [29, 0], [2.1, 2.9]],
    ("arr_delay", "is_missing"): [True, False],
    ("distance", "ge"): [100.5, 2000],
    ("distance", "lt"): [100.5, 2000],
    ("cancelled", "eq"): [True, False],
    ("cancelled", "in"): [[], [True], [True, False]],
    ("cancelled", "is_missing"): [True, False],
}
leaves = st.sampled_from([leaf(*key, c) for key, constants in CONSTANTS.items() for c in constants])

trees = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.lists(children, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(children, max_size=3).map(lambda parts: {"any": parts}),
        children.map(lambda part: {"not": part}),
    ),
    max_leaves=10,
)


def text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def holds(tree: dict[str, Any], row: dict[str, Any]) -> bool:
    """The tree's meaning, on one raw row."""
    if "all" in tree:
        return all(holds(part, row) for part in tree["all"])
    if "any" in tree:
        return any(holds(part, row) for part in tree["any"])
    if "not" in tree:
        return not holds(tree["not"], row)
    value = row[tree["attribute"]]
    [(operator, wanted)] = [(k, v) for k, v in tree.items() if k != "attribute"]
    if operator == "is_missing":
        return (value is None) is wanted
    if operator == "is_other":
        return (value == "ZZ") is wanted
    if value is None:
        return False
    if tree["attribute"] == "carrier":
        value, wanted = text(value), [text(w) for w in wanted] if operator == "in" else text(wanted)
    return {
        "eq": lambda: value == wanted,
        "in": lambda: value in wanted,
        "ge": lambda: value >= wanted,
        "gt": lambda: value > wanted,
        "le": lambda: value <= wanted,
        "lt": lambda: value < wanted,
        "between": lambda: wanted[0] <= value <= wanted[1],
    }[operator]()


ROWS = [dict(zip(RAW, values, strict=True)) for values in product(*RAW.values())]
CODES = FLIGHTS.encode_rows(ROWS).codes


def selected(predicate: Predicate) -> list[bool]:
    """Whether it holds, for each of ROWS."""
    if predicate.constant is not None:
        return [predicate.constant] * len(ROWS)
    return predicate.mask[tuple(CODES[a] for a in predicate.attributes)].tolist()


@given(tree=trees)
def test_a_predicate_holds_for_the_rows_that_its_tree_describes(tree: dict[str, Any]) -> None:
    predicate = compile_where(FLIGHTS, tree)
    assert selected(predicate) == [holds(tree, row) for row in ROWS]


@given(tree=trees)
def test_a_predicate_is_canonical(tree: dict[str, Any]) -> None:
    predicate = compile_where(FLIGHTS, tree)
    mask = predicate.mask
    assert list(predicate.attributes) == sorted(set(predicate.attributes))
    assert mask.shape == tuple(FLIGHTS.shape[a] for a in predicate.attributes)
    for axis in range(mask.ndim):
        assert (np.diff(mask.astype(int), axis=axis) != 0).any(), (
            "the mask depends on every attribute"
        )
    is_product = (
        np.linalg.matrix_rank(mask.reshape(mask.shape[0], -1)) <= 1 if mask.ndim == 2 else None
    )
    if is_product is not None:
        assert is_product == (predicate.factors is not None)
    if predicate.factors:
        outer = np.ones((), dtype=bool)
        for factor in predicate.factors:
            outer = np.logical_and.outer(outer, factor)
        assert (outer == mask).all()
    assert (predicate.constant is None) == bool(predicate.attributes)


def respelt(tree: dict[str, Any]) -> dict[str, Any]:
    """The same set of rows in other words: De Morgan, reversed, twice negated, with idle parts."""
    if "not" in tree:
        return {"any": [{"not": respelt(tree["not"])}, {"any": []}]}
    for connective, dual in (("all", "any"), ("any", "all")):
        if connective in tree:
            return {"not": {dual: [{"not": respelt(part)} for part in reversed(tree[connective])]}}
    return {"not": {"not": {"all": [tree, tree]}}}


@given(tree=trees)
def test_two_spellings_of_one_predicate_have_one_key(tree: dict[str, Any]) -> None:
    one, two = (
        compile_where(FLIGHTS, tree),
        compile_where(FLIGHTS, respelt(tree), max_depth=99, max_nodes=999),
    )
    assert one.key == two.key
    assert one == two
    assert hash(one) == hash(two)
    assert (one.factors is None) == (two.factors is None)


@given(one=trees, two=trees)
def test_keys_agree_just_where_the_selected_rows_do(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    p, q = compile_where(FLIGHTS, one), compile_where(FLIGHTS, two)
    assert len(p.key) == 16
    assert (p.key == q.key) == (selected(p) == selected(q)), "ROWS has a row in every cell"


@given(tree=trees)
def test_the_complement_of_a_predicate_is_that_of_its_negated_tree(tree: dict[str, Any]) -> None:
    predicate = compile_where(FLIGHTS, tree)
    negated = compile_where(FLIGHTS, {"not": tree})
    assert predicate.complement == negated
    assert (predicate.complement.factors is None) is (negated.factors is None)
    assert predicate.complement.complement == predicate
    assert selected(predicate.complement) == [not held for held in selected(predicate)]
    one, other = (LinearQuery(each, range(1)) for each in (predicate, negated))
    assert (one.complement_key, other.complement_key) == (other.key, one.key)
    assert LinearQuery(predicate, range(1), (0,)).complement_key is None


def test_a_product_is_found_however_it_is_spelt() -> None:
    late = {"attribute": "arr_delay", "ge": 30}
    american, united = {"attribute": "carrier", "eq": "AA"}, {"attribute": "carrier", "eq": "UA"}
    spread = {"any": [{"all": [late, american]}, {"all": [united, late]}]}
    predicate = compile_where(FLIGHTS, spread)
    assert predicate == compile_where(
        FLIGHTS, {"all": [late, {"attribute": "carrier", "in": ["AA", "UA"]}]}
    )
    assert predicate.factors is not None
    assert [f.tolist() for f in predicate.factors] == [
        [True, True, False, False, False],
        [False, False, False, False, True, False],
    ]
    assert compile_where(FLIGHTS, {"any": [late, american]}).factors is None


def test_masks_on_different_attributes_never_share_a_key() -> None:
    half = np.array([True, False])
    keys = [Predicate.conjunction({a: half}).key for a in range(5)]
    keys += [Predicate.conjunction({a: half, b: half}).key for a, b in [(0, 1), (0, 2), (1, 2)]]
    keys += [Predicate.of_mask((0, 1), np.eye(2, dtype=bool)).key]
    keys += [Predicate.of_mask((0, 1), ~np.eye(2, dtype=bool)).key, EVERYTHING.key, NOTHING.key]
    assert len(set(keys)) == len(keys)


def test_no_condition_holds_for_every_row() -> None:
    assert compile_where(FLIGHTS, None) == EVERYTHING
    assert EVERYTHING.constant is True
    assert EVERYTHING.mask.shape == ()
    assert compile_where(FLIGHTS, {"any": []}) == NOTHING
    assert NOTHING.constant is False
    assert (NOTHING.attributes, NOTHING.factors) == ((), ())


def test_no_comparison_holds_for_a_missing_value_but_its_negation_does() -> None:
    american = {"attribute": "carrier", "eq": "AA"}
    missing = [row["carrier"] is None for row in ROWS]
    assert not any(np.array(selected(compile_where(FLIGHTS, american)))[missing])
    assert all(np.array(selected(compile_where(FLIGHTS, {"not": american})))[missing])


def test_of_whole_numbers_above_29_is_from_30_on() -> None:
    spellings: list[dict[str, Any]] = [{"gt": 29}, {"ge": 30}, {"gt": 29.5}, {"ge": 29.5}]
    keys = {compile_where(FLIGHTS, {"attribute": "arr_delay", **s}).key for s in spellings}
    keys |= {compile_where(FLIGHTS, {"all": [
        {"not": {"attribute": "arr_delay", "le": 29}}, {"attribute": "arr_delay", "is_missing": False}
    ]}).key}  # fmt: skip
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("attribute", "operator", "constant", "words"),
    [
        ("arr_delay", "ge", 25, "the bin 11 to 29 of arr_delay; ask >= 11 or >= 30"),
        ("arr_delay", "gt", 25, "ask >= 11 or >= 30"),
        ("arr_delay", "le", 25, "ask < 11 or < 30"),
        ("arr_delay", "lt", 25, "ask < 11 or < 30"),
        ("arr_delay", "ge", 31, "the bin >= 30 of arr_delay; ask >= 30"),
        ("arr_delay", "ge", -31, "the bin < 0 of arr_delay; ask >= 0"),
        ("arr_delay", "ge", 10**400, "ask >= 30"),
        ("arr_delay", "eq", 25, "ask >= and < at edges, such as 11 or 30"),
        ("arr_delay", "in", [10, 12], "the bin 11 to 29"),
        ("arr_delay", "in", [-1], "the bin < 0"),
        ("arr_delay", "between", [10, 25], "such as 11 or 30"),
        ("distance", "gt", 2000, "the bin >= 2000 of distance; ask >= 2000"),
        ("distance", "le", 2000, "ask < 2000"),
        ("distance", "le", 100.5, "ask < 2000 (all of the bin 100.5 to 2000) or < 100.5"),
        ("distance", "gt", 100.5, "ask >= 100.5 (all of the bin 100.5 to 2000) or >= 2000"),
        ("distance", "gt", 101, "ask >= 100.5 or >= 2000"),
        ("distance", "eq", 100.5, "the bin 100.5 to 2000"),
        ("distance", "between", [100.5, 2000], "ask >= and < at edges, such as 2000"),
    ],
)
def test_a_comparison_that_cuts_a_bin_is_refused_with_the_nearest_edges(
    attribute: str, operator: str, constant: object, words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, leaf(attribute, operator, constant))
    assert caught.value.reason == "cuts_bin"
    assert caught.value.field == f"where.{operator}"
    assert words in str(caught.value)


def test_all_bins_that_a_condition_cuts_are_said_at_once() -> None:
    late, far = leaf("arr_delay", "ge", 25), leaf("distance", "gt", 100.5)
    said = (
        "this cuts the bin 11 to 29 of arr_delay; ask >= 11 or >= 30; "
        "this cuts the bin 100.5 to 2000 of distance; "
        "ask >= 100.5 (all of the bin 100.5 to 2000) or >= 2000"
    )
    american = {"attribute": "carrier", "eq": "AA"}
    for tree in (
        {"all": [american, late, {"any": [far, american]}]},
        {"all": [american, {"not": {"any": [late, far]}}, late, far]},
    ):
        with pytest.raises(InvalidQuery) as caught:
            compile_where(FLIGHTS, tree)
        assert (caught.value.reason, caught.value.field[:12]) == ("cuts_bin", "where.all[1]")
        assert f"{caught.value.problem}; {caught.value.fix}" == said
    with pytest.raises(InvalidQuery) as caught:
        compile_share(FLIGHTS, far, late)
    assert str(caught.value) == f"where.ge: {said}"


def test_a_fault_that_has_no_edges_to_offer_comes_before_cut_bins() -> None:
    unknown = {"attribute": "colour", "eq": "red"}
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, {"all": [leaf("arr_delay", "ge", 25), unknown]})
    assert caught.value.reason == "unknown_attribute"
    assert "cuts" not in str(caught.value)


def test_a_condition_that_cuts_bins_everywhere_is_refused_in_few_words() -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, {"any": [leaf("arr_delay", "ge", n) for n in range(12, 29)]})
    assert str(caught.value).count("this cuts") == 1, "one bin and one fix are said once"
    fine = Universe((Number("fine", tuple(range(1000))),))
    with pytest.raises(InvalidQuery) as caught:
        compile_where(fine, {"any": [leaf("fine", "ge", n + 0.5) for n in range(100)]})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("attribute", "operator", "constant", "place", "words"),
    [
        (
            "carrier",
            "eq",
            "ZZ",
            "where.eq",
            "this is not a listed value of carrier (AA, UA, 7); unlisted values share",
        ),
        ("carrier", "eq", "ZZ", "where.eq", '{"attribute": "carrier", "is_other": true}'),
        ("carrier", "in", ["AA", "ZZ"], "where.in[1]", "not a listed value of carrier"),
        ("carrier", "in", "AA", "where.in", "it needs a list"),
        ("carrier", "eq", None, "where.eq", "use is_missing"),
        ("carrier", "eq", ["AA"], "where.eq", "not a listed value"),
        ("carrier", "in", [10**5000], "where.in[0]", "not a listed value"),
        ("carrier", "is_missing", 1, "where.is_missing", "not a truth value"),
        (
            "carrier",
            "ge",
            "AA",
            "where",
            "carrier is a category and has no such comparison; use one of eq, in, is_",
        ),
        ("carrier", "like", "A%", "where", "no such comparison"),
        ("cancelled", "eq", "maybe", "where.eq", "true or false, and this is neither"),
        ("cancelled", "in", [None], "where.in[0]", "use is_missing"),
        ("cancelled", "is_other", True, "where", "cancelled is a boolean"),
        ("arr_delay", "ge", "30", "where.ge", "this is not a number; write it without quotes"),
        ("arr_delay", "ge", True, "where.ge", "not a number"),
        ("arr_delay", "ge", None, "where.ge", "use is_missing"),
        ("arr_delay", "ge", math.nan, "where.ge", "not finite"),
        ("arr_delay", "between", [1], "where.between", "a list of 2 values"),
        ("arr_delay", "between", [0, "1"], "where.between[1]", "not a number"),
        ("distance", "is_missing", True, "where.is_missing", "no cell for missing values"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused_with_its_mending(
    attribute: str, operator: str, constant: object, place: str, words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, leaf(attribute, operator, constant))
    assert caught.value.reason == "invalid_query"
    assert caught.value.field == place
    assert words in str(caught.value)


AMERICAN = leaf("carrier", "eq", "AA")


@pytest.mark.parametrize(
    "where",
    [
        {"zyzzyva": [AMERICAN]},
        leaf("zyzzyva", "eq", "AA"),
        leaf("carrier", "zyzzyva", "AA"),
        leaf("carrier", "eq", "zyzzyva"),
        leaf("carrier", "in", ["AA", {"zyzzyva": 1}]),
        leaf("carrier", "is_other", "zyzzyva"),
        leaf("arr_delay", "ge", "zyzzyva"),
        leaf("arr_delay", "in", [0, "zyzzyva"]),
        leaf("cancelled", "eq", "zyzzyva"),
        {"not": {"all": [{**AMERICAN, "zyzzyva": 1}]}},
    ],
)
def test_a_refusal_does_not_repeat_what_was_asked(where: Any) -> None:
    """Refusals are public. What was asked may, by mistake, be a row."""
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, {"all": [AMERICAN, where]})
    assert "zyzzyva" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("carier", "did you mean carrier?"),
        (5, "use one of carrier"),
        (["carrier"], "use one of carrier"),
    ],
)
def test_an_unknown_attribute_is_refused_with_the_near_ones(name: Any, words: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, leaf(name, "eq", "AA"))
    assert caught.value.reason == "unknown_attribute"
    assert caught.value.field == "where.attribute"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("where", "field", "words"),
    [
        ({}, "where", "not a condition"),
        ([], "where", "not a condition"),
        ({"all": [], "any": []}, "where", "not a condition"),
        ({"xor": []}, "where", "use all, any or not"),
        ({"all": {}}, "where.all", "a list of conditions"),
        ({"not": []}, "where.not", "not a condition"),
        ({"attribute": "carrier"}, "where", "one comparison, not 0"),
        ({**AMERICAN, "in": []}, "where", "one comparison, not 2"),
        ({"all": [{"any": [{}]}]}, "where.all[0].any[0]", "not a condition"),
        ({"all": [AMERICAN, {"not": leaf("arr_delay", "ge", "1")}]}, "where.all[1].not.ge", "not a number"),
    ],
)  # fmt: skip
def test_a_tree_that_is_no_condition_is_refused_at_its_place(
    where: Any, field: str, words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_where(FLIGHTS, where)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_without_a_cell_for_the_rest_only_listed_values_can_be_asked() -> None:
    universe = Universe((Category("c", tuple(f"v{i:02}" for i in range(12)), other=False),))
    with pytest.raises(InvalidQuery, match=r"\(v00, .*, v09, \.\.\.\); use a listed value"):
        compile_where(universe, {"attribute": "c", "eq": "v99"})
    with pytest.raises(InvalidQuery, match="no cell for other values"):
        compile_where(universe, {"attribute": "c", "is_other": True})


json_trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["carrier", "arr_delay", "cancelled", "AA", "", 10**400]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["all", "any", "not", "attribute", "eq", "in", "ge", "between", "is_missing", "x"]
            ),
            children,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(where=json_trees)
def test_whatever_json_is_sent_is_a_predicate_or_a_refusal(where: Any) -> None:
    assume(where is not None)
    try:
        compile_where(FLIGHTS, where)
    except InvalidQuery:
        return


def nested(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"attribute": "carrier", "eq": "AA"}
    for _ in range(depth - 1):
        tree = {"not": tree}
    return tree


def test_nesting_and_number_of_conditions_are_limited() -> None:
    compile_where(FLIGHTS, nested(16))
    for depth in (17, 100_000):
        with pytest.raises(InvalidQuery, match="nested deeper than 16"):
            compile_where(FLIGHTS, nested(depth))
    leaf = {"attribute": "carrier", "eq": "AA"}
    compile_where(FLIGHTS, {"any": [leaf] * 127})
    with pytest.raises(InvalidQuery, match="more than 128 conditions"):
        compile_where(FLIGHTS, {"any": [leaf] * 128})


def test_a_predicate_on_too_many_cells_is_refused_before_they_are_allocated() -> None:
    wide = Universe(tuple(Category(f"a{i}", tuple(map(str, range(1000)))) for i in range(20)))
    one_each = [{"attribute": name, "eq": "1"} for name in wide.names]  # 1e60 cells
    for where in ({"all": one_each}, {"any": one_each}, {"not": {"any": one_each}}):
        with pytest.raises(InvalidQuery, match="at most 1000000 can be asked about") as caught:
            compile_where(wide, where)
        assert caught.value.reason == "too_many_cells"
    assert compile_where(wide, {"all": one_each[:2]}, max_cells=1001**2).attributes == (0, 1)
    with pytest.raises(InvalidQuery):
        compile_where(wide, {"all": one_each[:2]}, max_cells=1001**2 - 1)


def test_conditions_that_cancel_out_cost_no_cells() -> None:
    wide = Universe(tuple(Category(f"a{i}", tuple(map(str, range(1000)))) for i in range(20)))
    idle = [{"not": {"attribute": name, "in": []}} for name in wide.names]
    assert compile_where(wide, {"all": idle}) == EVERYTHING
    contradiction = [{"attribute": "a0", "eq": "1"}, {"attribute": "a0", "eq": "2"}]
    assert compile_where(wide, {"all": [*idle, *contradiction]}) == NOTHING


def test_a_query_groups_by_attributes_in_the_order_asked() -> None:
    where = compile_where(FLIGHTS, {"attribute": "carrier", "eq": "AA"})
    assert compile_group_by(FLIGHTS, ["cancelled", "carrier"], where) == (CANCELLED, CARRIER)
    for names, words in [
        ([], "empty"),
        (["carrier", "carrier"], "twice"),
        (["carier"], "did you mean carrier"),
    ]:
        with pytest.raises(InvalidQuery, match=words):
            compile_group_by(FLIGHTS, names)
    with pytest.raises(InvalidQuery) as caught:
        compile_group_by(FLIGHTS, ["arr_delay"], where, max_cells=5 * 6 - 1)
    assert caught.value.reason == "too_many_cells"


def test_the_key_of_a_query_tells_tables_apart_and_leaves_the_window_out() -> None:
    late = compile_where(FLIGHTS, {"attribute": "arr_delay", "ge": 30})
    keys = {
        LinearQuery(late, range(2), group_by).key for group_by in [(), (0,), (1,), (0, 1), (1, 0)]
    }
    assert len(keys) == 5
    assert LinearQuery(late, range(2)).key == LinearQuery(late, range(1, 7)).key == late.key
    assert LinearQuery(EVERYTHING, range(2), (0,)).key != LinearQuery(late, range(2), (0,)).key


@pytest.mark.parametrize(
    "window", [range(0), range(3, 3), range(0, 4, 2), range(3, 0, -1), range(-1, 2)]
)
def test_a_window_is_consecutive_blocks(window: range) -> None:
    with pytest.raises(ValueError, match="consecutive"):
        LinearQuery(EVERYTHING, window)
    with pytest.raises(ValueError, match="twice"):
        LinearQuery(EVERYTHING, range(1), (0, 0))


# ---------------------------------------------------------------- conditions that are kept


AA = leaf("carrier", "eq", "AA")


def test_a_condition_that_is_asked_again_is_the_one_that_was_kept() -> None:
    conditions = CompiledConditions(FLIGHTS)
    tree = {"all": [AA, {"not": leaf("arr_delay", "ge", 10)}]}
    assert conditions.compiled(tree) == compile_where(FLIGHTS, tree)
    assert conditions.compiled(copy.deepcopy(tree)) is conditions.compiled(tree)
    assert conditions.compiled(None) is EVERYTHING


def test_constants_of_different_types_are_told_apart() -> None:
    conditions = CompiledConditions(FLIGHTS)

    def outcome(compiled: Callable[[dict[str, Any]], Predicate], tree: dict[str, Any]) -> object:
        try:
            return compiled(tree).key
        except InvalidQuery as refused:
            return str(refused)

    for attribute in ("carrier", "arr_delay", "cancelled"):
        for constant in (1, 1.0, True, "1", 0, False, 7, "7"):
            tree = leaf(attribute, "eq", constant)
            assert outcome(conditions.compiled, tree) == outcome(
                partial(compile_where, FLIGHTS), tree
            )


def test_only_the_last_conditions_are_kept_and_only_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.core.queries.conditions._MOST_KEPT", 2)
    conditions = CompiledConditions(FLIGHTS)
    trees = [leaf("arr_delay", "ge", edge) for edge in (0, 10, 30)]
    first, *others = [conditions.compiled(tree) for tree in trees]
    assert [conditions.compiled(tree) for tree in trees[1:]] == others
    assert all(conditions.compiled(t) is o for t, o in zip(trees[1:], others, strict=True))
    assert conditions.compiled(trees[0]) is not first
    monkeypatch.setattr("stream_dp.core.queries.conditions._KEPT_CELLS", 1)
    large = CompiledConditions(FLIGHTS)
    assert large.compiled(trees[0]) is not large.compiled(trees[0])


def test_a_condition_nested_too_deep_to_be_written_is_refused_as_always() -> None:
    tree = AA
    for _ in range(5000):
        tree = {"not": tree}
    with pytest.raises(InvalidQuery, match="nested deeper"):
        CompiledConditions(FLIGHTS).compiled(tree)
