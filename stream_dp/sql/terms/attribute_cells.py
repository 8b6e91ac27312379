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

from stream_dp.dates import CYCLES, calendar_of, first_number, label_of, labels_of, span_of
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
    if attribute["type"] == "number":
        return _of_number(operator, constant, attribute)
    if attribute["type"] == "date" and attribute["by"] not in CYCLES:
        return _of_date(operator, constant, attribute)
    return _of_values(operator, constant, attribute)


def tree_of(attribute: Mapping[str, Any], places: Sequence[int]) -> Tree:
    """Returns the condition that an attribute has one of some of its values or periods.

    Args:
        attribute: A category, or an attribute of type date.
        places: The places of the values or periods that are meant, ascending.
    """
    name, values = attribute["name"], values_of(attribute)
    if len(places) < 2:
        return any_of({"attribute": name, "eq": values[place]} for place in places)
    in_order = attribute["type"] == "date"
    if in_order and places[-1] - places[0] + 1 == len(places):
        return {"attribute": name, "between": [values[places[0]], values[places[-1]]]}
    if not in_order or 2 * len(places) <= len(values):
        return {"attribute": name, "in": [values[place] for place in places]}
    every = {"attribute": name, "between": [values[0], values[-1]]}
    taken = set(places)
    others = [value for place, value in enumerate(values) if place not in taken]
    return all_of([every, negation({"attribute": name, "in": others})])


def values_of(attribute: Mapping[str, Any]) -> Sequence[str]:
    """Returns the listed values of a category, or the labels of the periods of a date."""
    if attribute["type"] == "category":
        return attribute["values"]  # type: ignore[no-any-return]
    return labels_of(attribute["by"], attribute.get("from"), attribute.get("until"))


def _has_other(attribute: Mapping[str, Any]) -> bool:
    return attribute["type"] == "category" and bool(attribute.get("other", True))


def _n_values(attribute: Mapping[str, Any]) -> int:
    """Returns the number of cells that are values, bins or periods."""
    if attribute["type"] == "category":
        return len(attribute["values"])
    if attribute["type"] == "boolean":
        return 2
    if attribute["type"] == "date" and attribute["by"] in CYCLES:
        return len(CYCLES[attribute["by"]])
    return len(_edges(attribute)) + 1


def _edges(attribute: Mapping[str, Any]) -> Sequence[float]:
    """Returns where bins or periods begin, and where the last one ends."""
    if attribute["type"] == "number":
        return attribute["edges"]  # type: ignore[no-any-return]
    return calendar_of(attribute["by"], attribute.get("from"), attribute.get("until"))


# ---------------------------------------------------------------- cells of one value


def _of_values(operator: str, constant: Any, attribute: Mapping[str, Any]) -> int:
    """Returns the cells of values, one each, that satisfy a comparison."""
    n = _n_values(attribute)
    if operator == "in":
        if attribute["type"] == "category":
            wanted = set(constant)
            found = cells_of(value in wanted for value in attribute["values"])
            if found.bit_count() < len(wanted):
                raise ValueError("it is not a listed value")
            return found
        wanted = {_place(each, attribute) for each in constant}
        return cells_of(place in wanted for place in range(n))
    if operator == "between":
        low, high = (_place(each, attribute) for each in constant)
        return _below(high + 1) & ~_below(low)
    place = _place(constant, attribute)
    if operator == "eq":
        return 1 << place
    after = place + (operator in ("gt", "le"))
    return _below(after) if operator in ("lt", "le") else _below(n) & ~_below(after)


def _place(constant: Any, attribute: Mapping[str, Any]) -> int:
    """Returns the place of a value among the cells."""
    if attribute["type"] == "category":
        return attribute["values"].index(constant)  # type: ignore[no-any-return]
    if attribute["type"] == "boolean":
        return (False, True).index(constant)
    if isinstance(constant, str):
        return CYCLES[attribute["by"]].index(constant)
    return int(constant) - first_number(attribute["by"])


# ---------------------------------------------------------------- cells of many values


def _of_number(operator: str, constant: Any, attribute: Mapping[str, Any]) -> int:
    """Returns the bins that satisfy a comparison."""
    edges, whole = attribute["edges"], bool(attribute.get("integer"))
    if operator in ("eq", "in"):
        return _of_listed({constant} if operator == "eq" else set(constant), edges, whole=whole)

    def start(number: float) -> float:
        return math.ceil(number) if whole else number

    def after(number: float) -> float:
        if not whole:  # the number itself and what follows it share a bin
            raise CutsCell(_near(number, edges, attribute))
        return math.floor(number) + 1

    if operator == "between":
        low, high = constant
        if low > high or start(low) == after(high):
            return 0
        return _from(start(low), edges, attribute) & _until(after(high), edges, attribute)
    bound = after(constant) if operator in ("gt", "le") else start(constant)
    cells = _until if operator in ("lt", "le") else _from
    return cells(bound, edges, attribute)


def _of_listed(wanted: set[float], edges: Sequence[float], *, whole: bool) -> int:
    """Returns the bins whose every number is listed, which is possible for whole numbers."""
    if whole:
        wanted = {int(number) for number in wanted if number == math.floor(number)}
    listed = Counter(bisect_right(edges, number) for number in wanted)
    for cell, n in listed.items():
        if not whole or not 0 < cell < len(edges) or n < edges[cell] - edges[cell - 1]:
            raise CutsCell([f"{edge:.15g}" for edge in edges[max(cell - 1, 0) : cell + 1]])
    return cells_of(cell in listed for cell in range(len(edges) + 1))


def _of_date(operator: str, constant: Any, attribute: Mapping[str, Any]) -> int:
    """Returns the periods that satisfy a comparison with a period, which may be shorter or longer."""
    edges = _edges(attribute)
    if operator == "in":
        wanted = set(constant)
        labels = labels_of(attribute["by"], attribute.get("from"), attribute.get("until"))
        found = cells_of([False, *(label in wanted for label in labels)])
        for each in wanted.difference(labels):
            found |= _of_date("eq", each, attribute)
        return found
    if operator == "between":
        (start, _), (last, end) = map(_span, constant)
        if start > last:
            return 0
    else:
        start, end = _span(constant)
    if operator in ("ge", "gt"):
        return _from(start if operator == "ge" else end, edges, attribute)
    if operator in ("lt", "le"):
        return _until(start if operator == "lt" else end, edges, attribute)
    return _from(start, edges, attribute) & _until(end, edges, attribute)


def _span(constant: Any) -> tuple[int, int]:
    span = span_of(constant)
    if span is None:
        raise ValueError("it is not a period of the calendar")
    return span


def _from(start: float, edges: Sequence[float], attribute: Mapping[str, Any]) -> int:
    return _below(len(edges) + 1) & ~_until(start, edges, attribute)


def _until(end: float, edges: Sequence[float], attribute: Mapping[str, Any]) -> int:
    cell = bisect_right(edges, end)
    if cell == 0 or edges[cell - 1] != end:
        raise CutsCell(_near(end, edges, attribute))
    return _below(cell)


def _near(number: float, edges: Sequence[float], attribute: Mapping[str, Any]) -> list[str]:
    """Returns the constants nearest to a number that cut no cell."""
    cell = bisect_right(edges, number)
    near = edges[max(cell - 1, 0) : cell + 1]
    if attribute["type"] == "number":
        return [f"{edge:.15g}" for edge in near]
    labels = [label_of(attribute["by"], int(edge)) for edge in edges[max(cell - 2, 0) : cell]]
    return [f"'{label}'" for label in labels or [label_of(attribute["by"], int(edges[0]))]]


def _below(place: int) -> int:
    return (1 << place) - 1
