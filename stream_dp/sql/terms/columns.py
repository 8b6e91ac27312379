"""What the names of a statement mean: attributes, and columns of joined public tables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlglot import exp

from stream_dp.sql.reading.attribute_names import name_in_sql
from stream_dp.sql.reading.faults import Fault, Work, short
from stream_dp.sql.reading.literals import constant_text, number
from stream_dp.sql.terms.comparisons import is_constant
from stream_dp.sql.terms.public_joins import JoinedColumn
from stream_dp.sql.terms.refused_pieces import refused_condition
from stream_dp.sql.terms.sql_dates import PERIODS

Attribute: TypeAlias = Mapping[str, Any]

_WRITTEN: Final = {
    "text": "write it in single quotes",
    "number": "write it without quotes",
    "boolean": "write TRUE or FALSE",
}


class Columns:
    """The columns that a statement may name.

    Attributes:
        schema: The attributes by name.
        unit: The person whom the data set protects. None where it protects a row.
        work: What the statement may look at.
    """

    def __init__(
        self,
        schema: Mapping[str, Attribute],
        unit: Mapping[str, Any] | None,
        joined: Sequence[JoinedColumn],
        work: Work,
    ) -> None:
        self.schema = schema
        self.unit = unit
        self.work = work
        self._joined = joined
        self._listed: dict[str, frozenset[str]] = {}
        self._lower: dict[str, list[Attribute]] = {}
        for name, attribute in schema.items():
            self._lower.setdefault(name.lower(), []).append(attribute)
        for attribute in schema.values():
            for former in {each.lower() for each in attribute.get("was") or ()}:
                self._lower.setdefault(former, [attribute])

    def attribute(self, node: Any) -> Attribute:
        """Returns the attribute that a column names. The case may differ if that is unambiguous.

        A name that an attribute had before, and that none has now, is good too.

        Raises:
            Fault: It names none.
        """
        node = node.unnest()
        if not isinstance(node, exp.Column):
            raise refused_condition(node)
        if node.table:
            raise Fault(node, f"{short(node)} names a table", f"write {node.name} alone")
        name = node.name
        if name in self.schema:
            return self.schema[name]
        same = self._lower.get(name.lower(), [])
        if len(same) == 1:
            return same[0]
        self._check_reserved(node)
        near = difflib.get_close_matches(name, self.schema, 3)
        fix = f"use one of {', '.join(map(name_in_sql, self.schema))}"
        if near:
            fix = f"did you mean {' or '.join(map(name_in_sql, near))}?"
        elif node.this.args.get("quoted"):
            fix = f"{fix}; write a string in single quotes: '{name}'"
        raise Fault(node, f"there is no attribute {name}", fix, reason="unknown_attribute")

    def _check_reserved(self, node: Any) -> None:
        """Refuses a name that means the time of a query, or whose row it is."""
        name, reason = node.name, "unknown_attribute"
        if name.lower() in PERIODS:
            problem = f"{name.lower()} is the time of the query, and cannot stand here"
            fix = "GROUP BY day, week, month or phase, or compare it: day >= DATE '2026-11-01'"
            raise Fault(node, problem, fix, reason=reason)
        if self.is_person(node):
            problem = f"{name} says whose row it is, and no person can be named or grouped by"
            fix = f"count persons with COUNT(DISTINCT {name})"
            raise Fault(node, problem, fix, reason=reason)

    def is_person(self, node: Any) -> bool:
        """Returns whether a column says whose row it is."""
        key = "" if self.unit is None else self.unit["key"].lower()
        return isinstance(node, exp.Column) and bool(key) and node.name.lower() == key

    def number(self, node: Any, fix: str) -> Attribute:
        """Returns the attribute of type number that a column names.

        Raises:
            Fault: It names none, or one of another type. ``fix`` says what to do then.
        """
        attribute = self.attribute(node)
        if attribute["type"] != "number":
            raise Fault(node, f"{attribute['name']} is a {attribute['type']}", fix)
        return attribute

    def lists(self, attribute: Attribute, value: str) -> bool:
        """Returns whether a value of a category is listed."""
        if attribute["name"] not in self._listed:
            self._listed[attribute["name"]] = frozenset(attribute["values"])
        return value in self._listed[attribute["name"]]

    def joined(self, node: Any) -> JoinedColumn | None:
        """Returns the column of a joined table that a name means; None for another piece or name."""
        if not isinstance(node, exp.Column):
            return None
        table, name = node.table.lower(), node.name.lower()
        if not table and name in self._lower:
            return None
        found = [
            c for c in self._joined if c.name.lower() == name and table in ("", c.alias.lower())
        ]
        if len(found) > 1:
            fix = f"write {found[0].alias}.{node.name}"
            raise Fault(node, f"{node.name} is in several tables", fix)
        return found[0] if found else None

    def is_known(self, node: Any) -> bool:
        """Returns whether a column is an attribute, or belongs to a joined table."""
        return node.name.lower() in self._lower or self.joined(node) is not None

    def constant(self, node: Any) -> str | float | bool:
        """Returns the value of a constant.

        Raises:
            Fault: It is a name, NULL, a date or no constant at all.
        """
        node = node.unnest()
        if isinstance(node, exp.Column):
            name = node.name
            if name not in self.schema and self.joined(node) is None:
                # In SQL a name in double quotes, or without quotes, is a column.
                fix = f"write a string in single quotes: '{name}'"
                problem = f"there is no attribute {name}"
                raise Fault(node, problem, fix, reason="unknown_attribute")
            problem = f"{name} is an attribute too"
            raise Fault(node, problem, "compare an attribute with a constant")
        if isinstance(node, exp.Null):
            raise Fault(node.parent, "nothing compares with NULL", "use IS NULL or IS NOT NULL")
        if isinstance(node, exp.Cast) or not is_constant(node):
            raise refused_condition(node)
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Neg):
            return -number(node.this)
        text = constant_text(node)
        return number(node) if text is None else text

    def typed(self, node: Any, kind: str, of: str = "") -> Any:
        """Returns the value of a constant of one type: "text", "number" or "boolean".

        Raises:
            Fault: It is of another type. ``of`` is the name of what is compared with it, if it has one.
        """
        value = self.constant(node)
        types: Mapping[type, str] = {str: "text", bool: "boolean"}
        if types.get(type(value), "number") != kind:
            problem = f"{short(node)} is not a {kind}" + (f", but {of} is" if of else "")
            raise Fault(node, problem, _WRITTEN[kind])
        return value
