"""Joins with public tables, whose columns say something about each declared value of an attribute.

A public table says something about each declared value, such as the state of an airport. So a condition on
its columns holds for some of the values and not for others, and asking it takes nothing but the attribute.
A row whose value is not declared, or has no line in the table, has no match: JOIN leaves it out, and LEFT
JOIN keeps it with columns that are NULL.

A group by such a column is one query for each of its values, and not the sum of cells of a table: the bars of
cells say nothing good about their sum, while the worker knows how the errors of the cells add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from stream_dp.sql.plan.statement_plan import Dimension, Scalar, ValueType
from stream_dp.sql.reading.faults import Fault, Work
from stream_dp.sql.terms.attribute_cells import cases_of, tree_of
from stream_dp.sql.terms.trees import Tree, negation


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """A column of a joined table, for each declared value of the attribute.

    Attributes:
        alias: The name of the table in the statement.
        name: The name of the column.
        attribute: The attribute that is joined.
        type: The type of its values, as the table declares it.
        values: What the column says of each declared value that has a line, by its place; None for NULL.
        may_lack: Whether rows that are not left out may have NULL in it.
    """

    alias: str
    name: str
    attribute: Mapping[str, Any]
    type: ValueType
    values: Mapping[int, Scalar]
    may_lack: bool

    def cases(self) -> tuple[tuple[Scalar, Tree], ...]:
        """Returns the values that rows can have with the condition of each, sorted; NULL comes last."""
        cases = cases_of(self.attribute, self.values.items())
        known = [(said, cases[said]) for said in sorted(cases)]
        return (*known, *([(None, self.unknown)] if self.may_lack else []))

    @property
    def unknown(self) -> Tree:
        """The rows for which the column is NULL, or which have no match."""
        known = [place for place, said in self.values.items() if said is not None]
        return negation(tree_of(self.attribute, known))


class Joined:
    """The joined tables of a statement.

    Args:
        joins: The joins, as sqlglot reads them.
        schema: The attributes by name.
        names: The names that may stand before an attribute.
        dimensions: The public tables by name.
        work: What the statement may look at.

    Attributes:
        columns: The columns of all of them.
        matched: The condition of each inner join: the row has a match.
        notes: What the reader should know.
    """

    def __init__(
        self,
        joins: Sequence[Any],
        schema: Mapping[str, Mapping[str, Any]],
        names: set[str],
        dimensions: Mapping[str, Dimension],
        work: Work,
    ) -> None:
        self._schema = schema
        self._names = names
        self._dimensions = dimensions
        self.columns: list[JoinedColumn] = []
        self.matched: list[Tree] = []
        self.notes: list[str] = []
        for join in joins:
            self._add(join, work)

    def _add(self, join: Any, work: Work) -> None:
        dimension = self._dimension(join.this)
        is_left = join.side == "LEFT"
        if (join.side and not is_left) or join.kind not in ("", "INNER", "OUTER") or join.method:
            raise Fault(join.this, "only JOIN and LEFT JOIN are answered", "write one of them")
        alias = join.this.alias_or_name
        attribute = self._attribute(join, alias, dimension)
        name, values = attribute["name"], attribute["values"]
        places = [place for place, value in enumerate(values) if value in dimension.rows]
        for column, kind in dimension.columns.items():
            work.look_at(join, len(places))
            said: dict[int, Scalar] = {
                place: values[place]
                if column == dimension.key
                else dimension.rows[values[place]].get(column)
                for place in places
            }
            may_lack = is_left or None in said.values()
            self.columns.append(JoinedColumn(alias, column, attribute, kind, said, may_lack))
        if not is_left:
            self.matched.append(tree_of(attribute, places))
        fate = "have NULL" if is_left else "are left out"
        if without := len(values) - len(places):
            self.notes.append(
                f"{without:,} of {len(values):,} declared values of {name} are not in "
                f"{dimension.name}: their rows {fate}"
            )
        if attribute.get("other", True):
            self.notes.append(f"rows with an unlisted {name} have no match: they {fate}")

    def _dimension(self, table: Any) -> Dimension:
        """Returns the public table that a join names."""
        by_name = {name.lower(): dimension for name, dimension in self._dimensions.items()}
        if isinstance(table, exp.Table) and table.name.lower() in by_name:
            return by_name[table.name.lower()]
        known = f" (there are: {', '.join(self._dimensions)})" if by_name else ""
        raise Fault(
            table,
            f"{table.name or 'this'} is not a public table{known}",
            "publish it with: stream-dp dimension put FILE.csv --key COLUMN; rows of data sets cannot be "
            "joined",
            sort="no_table",
        )

    def _attribute(self, join: Any, alias: str, dimension: Dimension) -> Mapping[str, Any]:
        """Returns the attribute that a join compares with the key of the table."""
        on, using = join.args.get("on"), join.args.get("using")
        fix = f"write ON attribute = {alias}.{dimension.key}"
        sides = [on.this.unnest(), on.expression.unnest()] if isinstance(on, exp.EQ) else []
        if using:
            sides = [exp.column(using[0].name), exp.column(using[0].name, alias)]
        if not sides or not all(isinstance(side, exp.Column) for side in sides):
            raise Fault(join.this, "this joins on something else than one key", fix)
        by_name = {name.lower(): attribute for name, attribute in self._schema.items()}
        ours = [s for s in sides if s.table.lower() != alias.lower()]
        if len(ours) == 2:  # names without a table
            ours = [s for s in sides if s.name.lower() in by_name][:1]
        theirs = [s for s in sides if not ours or s is not ours[0]]
        if len(ours) != 1 or theirs[0].name.lower() != dimension.key.lower():
            raise Fault(join.this, f"the key of {dimension.name} is {dimension.key}", fix)
        found = by_name.get(ours[0].name.lower())
        if found is None or (ours[0].table and ours[0].table.lower() not in self._names):
            raise Fault(join.this, f"there is no attribute {ours[0].name}", fix, sort="no_column")
        if found["type"] != "category":
            raise Fault(join.this, f"{found['name']} is a {found['type']}", "join on a category")
        return found
