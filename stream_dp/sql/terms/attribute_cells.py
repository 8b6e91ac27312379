"""The cells of an attribute that a condition holds for, by the definition alone.

The worker compares rows with constants. Here the same comparisons choose among the groups of a table, and
find what no row can satisfy. A set of cells is a whole number with a bit for each cell, the first one lowest.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stream_dp.attribute_dates import (
    CYCLES,
    calendar_of,
    first_number,
    label_of,
    labels_of,
    span_of,
)
from stream_dp.sql.terms.trees import Tree, all_of, any_of, negation, parts_of_tree


class CutsCell(Exception):
    """A comparison that holds for some values of a cell only.

    Attributes:
        near: The nearest constants that cut no cell.
    """

    def __init__(self, near: Sequence[str]) -> None:
        self.near = near
        super().__init__(f"it cuts a cell; the nearest that cut none: {', '.join(near)}")


def n_cells(attribute: Mapping[str, Any]) -> int:
    """Returns the number of cells of an attribute, that of missing values included."""
    return _n_values(attribute) + _has_other(attribute) + bool(attribute.get("missing"))


def n_steps(tree: Mapping[str, Any], attribute: Mapping[str, Any]) -> int:
    """Returns about how many steps ``cells_where`` takes: it goes through values, and 64 periods at once."""
    if "attribute" not in tree:
        return 1 + sum(n_steps(part, attribute) for part in parts_of_tree(tree))
    if "in" in tree or attribute["type"] != "date":
        return n_cells(attribute) + len(tree.get("in", ()))
    return 1 + n_cells(attribute) // 64


def cells_of(chosen: Iterable[bool]) -> int:
    """Returns the set of cells of which each is chosen or not."""
    return int("".join("1" if each else "0" for each in chosen)[::-1] or "0", 2)


def cells_where(tree: Mapping[str, Any], attribute: Mapping[str, Any]) -> int:
    """Returns the cells of an attribute that satisfy a condition on it.

    Args:
        tree: The condition, as in a message. It names no other attribute.
        attribute: The attribute, as in the catalog.

    Raises:
        CutsCell: The condition may hold for some values of a cell only.
        ValueError: A worker refuses this comparison.
    """
    everything = (1 << n_cells(attribute)) - 1
    if "not" in tree:
        return everything & ~cells_where(tree["not"], attribute)
    if "all" in tree:
        for part in tree["all"]:
            everything &= cells_where(part, attribute)
        return everything
    if "any" in tree:
        found = 0
        for part in tree["any"]:
            found |= cells_where(part, attribute)
        return found
    ((operator, constant),) = ((k, v) for k, v in tree.items() if k != "attribute")
    if operator in ("is_missing", "is_other"):
        place = _n_values(attribute) + _has_other(attribute) * (operator == "is_missing")
        has_cell = attribute.get("missing") if operator == "is_missing" else _has_other(attribute)
        cell = bool(has_cell) << place
        return cell if constant else everything & ~cell
    return _compared(operator, constant, attribute)


def tree_of(attribute: Mapping[str, Any], places: Sequence[int]) -> Tree:
    """Returns the condition that an attribute has one of some of its values, periods or bins.

    Args:
        attribute: A category, a date, or a number, of which the bins must lie side by side.
        places: The places of the values that are meant, ascending.
    """
    name = attribute["name"]
    if attribute["type"] == "number":
        edges, parts = attribute["edges"], []
        if places[0] > 0:
            parts.append({"attribute": name, "ge": edges[places[0] - 1]})
        if places[-1] < len(edges):
            parts.append({"attribute": name, "lt": edges[places[-1]]})
        return all_of(parts)
    values, in_order = values_of(attribute), attribute["type"] == "date"
    if len(places) < 2:
        return any_of({"attribute": name, "eq": values[place]} for place in places)
    if in_order and places[-1] - places[0] + 1 == len(places):
        return {"attribute": name, "between": [values[places[0]], values[places[-1]]]}
    if not in_order or 2 * len(places) <= len(values):
        return {"attribute": name, "in": [values[place] for place in places]}
    every = {"attribute": name, "between": [values[0], values[-1]]}
    others = {*range(len(values))}.difference(places)
    return all_of([every, negation({"attribute": name, "in": [values[i] for i in sorted(others)]})])


def cases_of(attribute: Mapping[str, Any], said: Iterable[tuple[int, Any]]) -> dict[Any, Tree]:
    """Returns each value that something says of an attribute, with the condition on the attribute.

    Args:
        attribute: The attribute.
        said: What is said of its values, by their places. NULL is left out.
    """
    places: dict[Any, list[int]] = {}
    for place, value in said:
        if value is not None:
            places.setdefault(value, []).append(place)
    return {value: tree_of(attribute, chosen) for value, chosen in places.items()}


def values_of(attribute: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the values of an attribute, or the labels of its periods. A number has bins in their place."""
    if attribute["type"] == "boolean":
        return False, True
    if attribute["type"] == "category":
        return attribute["values"]  # type: ignore[no-any-return]
    return labels_of(attribute["by"], attribute.get("from"), attribute.get("until"))


def _has_other(attribute: Mapping[str, Any]) -> bool:
    return attribute["type"] == "category" and bool(attribute.get("other", True))


def _n_values(attribute: Mapping[str, Any]) -> int:
    """Returns the number of cells that are values, bins or periods."""
    edges = _edges(attribute)
    return len(values_of(attribute)) if edges is None else len(edges) + 1


def _edges(attribute: Mapping[str, Any]) -> Sequence[float] | None:
    """Returns where bins or periods begin, and where the last one ends. None where each cell is one value."""
    if attribute["type"] == "number":
        return attribute["edges"]  # type: ignore[no-any-return]
    if attribute["type"] != "date" or attribute["by"] in CYCLES:
        return None
    return calendar_of(attribute["by"], attribute.get("from"), attribute.get("until"))


# ---------------------------------------------------------------- one comparison


def _compared(operator: str, constant: Any, attribute: Mapping[str, Any]) -> int:
    """Returns the values, bins or periods that satisfy a comparison."""
    is_number = attribute["type"] == "number"
    if operator == "in" or (operator == "eq" and is_number):
        wanted = set(constant) if operator == "in" else {constant}
        return _of_bins(wanted, attribute) if is_number else _of_listed(wanted, attribute)
    low, high = constant if operator == "between" else (constant, constant)
    if operator == "between":
        start = _start(low, attribute)
        if start > _start(high, attribute) or start == _end(high, attribute):
            return 0
    cells = _below(_n_values(attribute))
    if operator not in ("lt", "le"):
        begin = _end if operator == "gt" else _start
        cells &= ~_until(begin(low, attribute), attribute)
    if operator not in ("gt", "ge"):
        end = _start if operator == "lt" else _end
        cells &= _until(end(high, attribute), attribute)
    return cells


def _of_listed(wanted: set[Any], attribute: Mapping[str, Any]) -> int:
    """Returns the values or periods that are listed, or lie in a listed period."""
    values, outside = values_of(attribute), [False] * (_edges(attribute) is not None)
    found = cells_of([*outside, *(value in wanted for value in values)])
    for each in wanted.difference(values):
        found |= _compared("eq", each, attribute)
    return found


def _of_bins(wanted: set[float], attribute: Mapping[str, Any]) -> int:
    """Returns the bins whose every number is listed, which is possible for whole numbers."""
    edges, whole, least = attribute["edges"], bool(attribute.get("integer")), _least(attribute)
    if whole:
        wanted = {int(each) for each in wanted if each == math.floor(each) and each >= least}
    listed = Counter(bisect_right(edges, number) for number in wanted)
    for cell, n in listed.items():
        first = edges[cell - 1] if cell else least
        if not whole or cell == len(edges) or n < edges[cell] - first:
            raise CutsCell([f"{edge:.15g}" for edge in edges[max(cell - 1, 0) : cell + 1]])
    return cells_of(cell in listed for cell in range(len(edges) + 1))


def _start(constant: Any, attribute: Mapping[str, Any]) -> float:
    """Returns where a constant begins, on the scale of the edges; a value among others by its place."""
    if attribute["type"] == "number":
        return float(math.ceil(constant) if attribute.get("integer") else constant)
    if _edges(attribute) is not None:
        return _span(constant)[0]
    if attribute["type"] == "date" and not isinstance(constant, str):
        return int(constant) - first_number(attribute["by"])
    return values_of(attribute).index(constant)


def _end(constant: Any, attribute: Mapping[str, Any]) -> float:
    """Returns where a constant ends, as ``_start`` where it begins."""
    edges = _edges(attribute)
    if edges is None:
        return _start(constant, attribute) + 1
    if attribute["type"] == "date":
        return _span(constant)[1]
    if not attribute.get("integer"):  # the number itself and what follows it share a bin
        raise CutsCell(_near(constant, edges, attribute))
    return float(math.floor(constant) + 1)


def _span(constant: Any) -> tuple[int, int]:
    span = span_of(constant)
    if span is None:
        raise ValueError("it is not a period of the calendar")
    return span


def _until(end: float, attribute: Mapping[str, Any]) -> int:
    """Returns the cells before a place, or before an edge."""
    edges = _edges(attribute)
    if edges is None:
        return _below(int(end))
    cell = bisect_right(edges, end)
    if attribute["type"] == "number" and end <= _least(attribute):
        return _below(0)
    if cell == 0 or edges[cell - 1] != end:
        raise CutsCell(_near(end, edges, attribute))
    return _below(cell)


def _least(attribute: Mapping[str, Any]) -> float:
    """Returns the least number below the first edge: 1 where rows or phases are counted."""
    counts = attribute.get("fold") in ("count", "since") and attribute.get("integer")
    return 1.0 if counts and attribute["edges"][0] > 1 else -math.inf


def _near(number: float, edges: Sequence[float], attribute: Mapping[str, Any]) -> list[str]:
    """Returns the constants nearest to a number that cut no cell."""
    cell = bisect_right(edges, number)
    if attribute["type"] == "number":
        return [f"{edge:.15g}" for edge in edges[max(cell - 1, 0) : cell + 1]]
    labels = [label_of(attribute["by"], int(edge)) for edge in edges[max(cell - 2, 0) : cell]]
    return [f"'{label}'" for label in labels or [label_of(attribute["by"], int(edges[0]))]]


def _below(place: int) -> int:
    return (1 << place) - 1
