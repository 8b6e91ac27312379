"""A comparison holds for the same cells here as in the worker, and cuts one where the worker refuses it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stream_dp.core.queries.conditions import compile_where
from stream_dp.errors import InvalidQuery
from stream_dp.sql.terms.attribute_cells import CutsCell, cells_where, n_cells
from tests.sql.schemas import MORE, universe_of

UNIVERSE = universe_of(MORE)
_DATES = ["2025", "2025-11", "2025-W45", "2025-10-27", "2025-11-03", "2025-11-05", "2025-11-05T10"]
CONSTANTS: dict[str, list[Any]] = {
    "size": ["S", "M", "XL"],
    "city": ["Bonn", "Lyon"],
    "age": [17, 18, 29, 29.5, 30, 31, 64, 65],
    "paid": [False, True],
    "mon": [*_DATES, "2025-10-01", "2026-01-01", "2026-01", "2026-02-01"],
    "at": _DATES,
    "wd": ["Mon", "Sun", 1, 7],
    "share": [0, 0.5, 1, 2, 2.0],
    "hour": ["00", "23", 0, 9],
    "wk": [*_DATES, "2025-09-29", "2025-W44"],
    "late": [False, True],
    "listed": ["a", "b"],
    "grade": ["low", "high"],
}


def leaves(attribute: dict[str, Any]) -> list[dict[str, Any]]:
    """All comparisons of an attribute that a worker knows."""
    name, constants = attribute["name"], CONSTANTS[attribute["name"]]
    pairs = [list(pair) for pair in itertools.product(constants, repeat=2)]
    found = [{"eq": c} for c in constants] + [{"in": pair} for pair in pairs]
    if attribute["type"] in ("number", "date") or attribute.get("ordered"):
        found += [{o: c} for o in ("ge", "gt", "le", "lt") for c in constants]
        found += [{"between": pair} for pair in pairs]
    found += [{"is_missing": wanted} for wanted in (True, False) if attribute.get("missing")]
    has_other = attribute["type"] == "category" and attribute.get("other", True)
    found += [{"is_other": wanted} for wanted in (True, False) if has_other]
    return [{"attribute": name, **each} for each in found]


@pytest.mark.parametrize("attribute", MORE, ids=lambda attribute: attribute["name"])
def test_a_comparison_holds_for_the_cells_that_the_worker_finds(attribute: dict[str, Any]) -> None:
    place = UNIVERSE.names.index(attribute["name"])
    n = len(UNIVERSE.attributes[place].labels)
    assert n_cells(attribute) == n
    cut = 0
    for leaf in leaves(attribute):
        try:
            found = cells_where(leaf, attribute)
        except CutsCell:
            with pytest.raises(InvalidQuery, match="this cuts the"):
                compile_where(UNIVERSE, leaf, max_depth=9, max_nodes=99)
            cut += 1
            continue
        predicate = compile_where(UNIVERSE, leaf, max_depth=9, max_nodes=99)
        expected = [predicate.constant] * n if predicate.constant is not None else predicate.mask
        assert [bool(found >> cell & 1) for cell in range(n)] == [bool(each) for each in expected]
        negated = cells_where({"not": leaf}, attribute)
        assert (found | negated, found & negated) == ((1 << n) - 1, 0)
    assert (cut > 0) == (attribute["name"] in ("age", "share", "mon", "at", "wk"))
