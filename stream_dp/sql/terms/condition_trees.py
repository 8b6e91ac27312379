"""Translates the conditions of a statement to trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.terms.attribute_cells import CutsCell, cells_where, n_steps, tree_of
from stream_dp.sql.terms.attribute_constants import check_ordered, in_order, one_of
from stream_dp.sql.terms.columns import Attribute, Columns
from stream_dp.sql.terms.comparisons import Comparison, comparison_of, is_constant, is_in_nothing
from stream_dp.sql.terms.date_functions import of_whole_periods, periods_of
from stream_dp.sql.terms.refused_pieces import refused_condition
from stream_dp.sql.terms.sql_dates import ENDS, part_of
from stream_dp.sql.terms.trees import (
    NOTHING,
    OF_ALL_ROWS,
    Tree,
    Truth,
    all_of,
    any_of,
    listed_bytes,
    negation,
)

_MOST_UNKNOWNS: Final = 5
_MOST_LISTED: Final = 262_144
"""The most bytes of values that a condition may list. No larger message is accepted."""

_COMPLEMENT: Final = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}

_Condition = TypeVar("_Condition")


class ConditionWalk(ABC, Generic[_Condition]):
    """The walk over what AND, OR, NOT, IS TRUE and IS NULL make of comparisons.

    WHERE and HAVING share it: one makes trees of it, and the other conditions on published values.
    """

    def condition(self, node: Any) -> _Condition:
        """Translates a condition."""
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = [self.condition(part) for part in node.flatten()]
            return self._connected(parts, by_and=isinstance(node, exp.And))
        if isinstance(node, exp.Not):
            return self._negated(self.condition(node.this))
        if isinstance(node, exp.Boolean):
            return self._of_all(holds=bool(node.this))
        if is_in_nothing(node):
            self._check_names(node)
            return self._of_all(holds=False)
        if not isinstance(node, exp.Is):
            return self._compared(node)
        state = node.expression.unnest()
        if isinstance(state, exp.Boolean):
            part = self.condition(node.this)
            return self._known(part if state.this else self._negated(part))
        if not isinstance(state, exp.Null):
            fix = "use IS NULL, IS TRUE or IS FALSE, or ="
            raise Fault(node, f"IS {short(state)} is not SQL", fix)
        return self._is_null(node, node.this.unnest())

    @abstractmethod
    def _connected(self, parts: Sequence[_Condition], *, by_and: bool) -> _Condition: ...

    @abstractmethod
    def _negated(self, part: _Condition) -> _Condition: ...

    @abstractmethod
    def _known(self, part: _Condition) -> _Condition:
        """IS TRUE of a condition."""

    @abstractmethod
    def _is_null(self, node: Any, subject: Any) -> _Condition:
        """IS NULL of a condition or of anything else."""

    @abstractmethod
    def _of_all(self, *, holds: bool) -> _Condition:
        """A condition that is the same for all rows."""

    @abstractmethod
    def _check_names(self, node: Any) -> None:
        """Refuses an unknown name."""

    @abstractmethod
    def _compared(self, node: Any) -> _Condition:
        """A comparison, or a name by itself."""


@dataclass(frozen=True, slots=True)
class Conditions(ConditionWalk[Truth]):
    """Translates conditions on rows to trees.

    Attributes:
        columns: What names mean.
    """

    columns: Columns

    def true(self, node: Any) -> Tree:
        """Returns the tree of the rows for which a condition is true."""
        return self.truth(node).true

    def truth(self, node: Any) -> Truth:
        """Translates a condition, and refuses one that lists more than a message holds."""
        truth = self.condition(node)
        if listed_bytes(truth.true) > _MOST_LISTED:
            fix = "ask about fewer values at a time, or compare with a range"
            raise Fault(node, "this lists more values than one query can", fix)
        return truth

    def holding(self, node: Any, attribute: Attribute) -> tuple[int, int]:
        """Returns the cells of an attribute where a condition on it is true, and those where it is false."""
        truth = self.condition(node)
        self.columns.work.look_at(
            node, n_steps(truth.true, attribute) + n_steps(truth.false, attribute)
        )
        try:
            return cells_where(truth.true, attribute), cells_where(truth.false, attribute)
        except CutsCell as cut:
            cell = attribute.get("by")
            fix = f"write a whole one, such as {cut.near[-1]}; >= and < take where one begins"
            if cell is None:
                cell, fix = "bin", f"compare it by >= or < with {' or '.join(cut.near)}"
            problem = f"this cuts a {cell} of {attribute['name']}"
            raise Fault(node, problem, fix, reason="cuts_bin") from None

    # ------------------------------------------------------------ the walk

    def _connected(self, parts: Sequence[Truth], *, by_and: bool) -> Truth:
        true, false = [p.true for p in parts], [p.false for p in parts]
        return Truth(all_of(true), any_of(false)) if by_and else Truth(any_of(true), all_of(false))

    def _negated(self, part: Truth) -> Truth:
        return part.negated()

    def _of_all(self, *, holds: bool) -> Truth:
        return OF_ALL_ROWS[holds]

    def _known(self, part: Truth) -> Truth:
        return part.known()

    def _is_null(self, node: Any, subject: Any) -> Truth:
        if not isinstance(subject, exp.Column):
            # Each of these has the tree of its condition twice, so that many of them would become huge.
            if _unknowns_around(node) > _MOST_UNKNOWNS:
                problem = f"IS NULL of conditions nests deeper than {_MOST_UNKNOWNS}"
                raise Fault(node, problem, "name the attributes: a IS NULL OR b IS NULL")
            part = self.condition(subject)
            return Truth(any_of([part.true, part.false]), NOTHING).known().negated()
        if (column := self.columns.joined(subject)) is not None:
            return Truth(column.unknown, negation(column.unknown))
        attribute = self.columns.attribute(subject)
        if not attribute.get("missing") and _is_beside_others(node):
            return OF_ALL_ROWS[False]
        if not attribute.get("missing"):
            problem = f"{attribute['name']} has no cell for missing values"
            raise Fault(node, problem, "omit this condition")
        return Truth(_missing(attribute, is_missing=True), _missing(attribute, is_missing=False))

    def _check_names(self, node: Any) -> None:
        for column in node.find_all(exp.Column):
            if self.columns.joined(column) is None:
                self.columns.attribute(column)

    def _compared(self, node: Any) -> Truth:
        comparison = comparison_of(node)
        if comparison is None:
            return self._bare(node)
        if is_constant(comparison.subject):
            return self._of_constants(comparison)
        if (joined := self.columns.joined(comparison.column)) is not None:
            self.columns.work.look_at(node, len(joined.values))
            test = self.test_of(comparison, joined.name, joined.type)
            return _by_value(joined.attribute, joined.values, test)
        if part_of(comparison.subject) is not None:
            test = comparison.test(partial(self.columns.typed, kind="number"))
            attribute, values = periods_of(self.columns, comparison.subject)
            return _by_value(attribute, dict(enumerate(values)), test)
        if comparison.operator == "like" or comparison.folds:
            return self._of_texts(comparison)
        return self._of_attribute(of_whole_periods(self.columns, comparison))

    def _bare(self, node: Any) -> Truth:
        """Translates a name by itself, which stands for a truth value."""
        if not isinstance(node, exp.Column):
            raise refused_condition(node)
        if (joined := self.columns.joined(node)) is not None:
            if joined.type != "boolean":
                raise refused_condition(node)
            self.columns.work.look_at(node, len(joined.values))
            return _by_value(joined.attribute, joined.values, lambda said: said)
        attribute = self.columns.attribute(node)
        name = attribute["name"]
        if attribute["type"] != "boolean":
            raise Fault(node, f"{name} is not a condition", f"compare it: {name} = ...")
        return _equal(attribute, {"attribute": name, "eq": True})

    # ------------------------------------------------------------ comparisons, by what is compared

    def _of_constants(self, comparison: Comparison) -> Truth:
        """Translates a comparison of constants alone, such as 1 = 1."""
        pieces = [comparison.subject, *(each.unnest() for each in comparison.constants)]
        are_plain = all(is_constant(p) and not isinstance(p, exp.Cast) for p in pieces)
        if not are_plain or comparison.operator == "like":
            raise refused_condition(comparison.subject)
        values = [self._or_null(piece) for piece in pieces]
        if len({isinstance(value, str) for value in values if value is not None}) > 1:
            problem = "this compares a text with a number"
            raise Fault(comparison.node, problem, "compare constants of one type")
        return OF_ALL_ROWS[comparison.test(self._or_null)(values[0])]

    def _or_null(self, node: Any) -> Any:
        return None if isinstance(node.unnest(), exp.Null) else self.columns.constant(node)

    def test_of(self, comparison: Comparison, name: str, kind: str) -> Callable[[Any], bool | None]:
        """Returns the test of a comparison with constants of the type of a column, which are checked.

        Args:
            comparison: The comparison.
            name: The name of the column, for messages.
            kind: The type of its values.
        """
        if kind != "text" and (comparison.folds or comparison.operator == "like"):
            raise Fault(comparison.node, f"{name} is not a text", "compare it by =, < or IN")
        wanted = kind if kind in ("text", "boolean") else "number"
        return comparison.test(partial(self.columns.typed, kind=wanted, of=name))

    def _of_texts(self, comparison: Comparison) -> Truth:
        """Translates a comparison of the text of a category, of whose unlisted values nothing is known.

        It is LIKE, or an equality of LOWER or UPPER. It stands for the listed values that satisfy it.
        """
        if comparison.operator not in ("eq", "in", "like"):
            raise refused_condition(comparison.subject)
        attribute = self.columns.attribute(comparison.column)
        if attribute["type"] != "category":
            problem = f"{attribute['name']} is a {attribute['type']}, and has no text"
            raise Fault(comparison.node, problem, "use = or IN")
        test = comparison.test(partial(self.columns.typed, kind="text"))
        self.columns.work.look_at(comparison.node, len(attribute["values"]))
        outcomes = [test(value) for value in attribute["values"]]
        of_null = test(None) if attribute.get("missing") else None
        sides = []
        for wanted in (True, False):
            places = [place for place, said in enumerate(outcomes) if said is wanted]
            missing = [_missing(attribute, is_missing=True)] if of_null is wanted else []
            sides.append(any_of([tree_of(attribute, places), *missing]))
        return Truth(*sides)

    def _of_attribute(self, comparison: Comparison) -> Truth:
        """Translates a comparison of an attribute as it is."""
        attribute = self.columns.attribute(comparison.subject)
        name, compared = attribute["name"], comparison.operator
        if compared in ("eq", "in"):
            tree = one_of(self.columns, attribute, comparison.constants)
            return comparison.applied(_equal(attribute, tree))
        check_ordered(attribute, comparison.node)
        value, *others = [
            in_order(self.columns, attribute, constant, ends=each in ENDS)
            for constant, each in comparison.pairs()
        ]
        if compared == "between":
            outside = ({"attribute": name, "lt": value}, {"attribute": name, "gt": others[0]})
            return Truth({"attribute": name, "between": [value, *others]}, any_of(outside))
        return Truth(
            {"attribute": name, compared: value}, {"attribute": name, _COMPLEMENT[compared]: value}
        )


def _by_value(
    attribute: Attribute, values: Mapping[int, Any], test: Callable[[Any], bool | None]
) -> Truth:
    """Translates a comparison of what something says of the values or periods of an attribute.

    Args:
        attribute: The attribute.
        values: What is said of some of its values, by their places; None for NULL, which all other rows have
            as well.
        test: What the comparison says of a value.
    """
    outcomes = {said: test(said) for said in {*values.values(), None}}
    true, false = (
        tree_of(attribute, [place for place, said in values.items() if outcomes[said] is wanted])
        for wanted in (True, False)
    )
    if outcomes[None] is None:
        return Truth(true, false)
    return Truth(negation(false), false) if outcomes[None] else Truth(true, negation(true))


def _equal(attribute: Attribute, tree: Tree) -> Truth:
    """An equality with a constant, which is unknown if the attribute is missing."""
    false = negation(tree)
    if attribute.get("missing"):
        false = all_of([false, _missing(attribute, is_missing=False)])
    return Truth(tree, false)


def _missing(attribute: Attribute, *, is_missing: bool) -> Tree:
    return {"attribute": attribute["name"], "is_missing": is_missing}


def _is_beside_others(node: Any) -> bool:
    """Returns whether a condition is negated or an alternative, so that it leaves rows of others."""
    return isinstance(node.find_ancestor(exp.Or, exp.Not, exp.Where), exp.Or | exp.Not)


def _unknowns_around(node: Any) -> int:
    """Returns how many IS NULL of conditions are around a piece, itself included."""
    found = 0
    while node is not None:
        if isinstance(node, exp.Is) and isinstance(node.expression.unnest(), exp.Null):
            found += not isinstance(node.this.unnest(), exp.Column)
        node = node.parent
    return found
