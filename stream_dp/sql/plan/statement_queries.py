"""The queries that publish the values of a statement."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from stream_dp.sql.plan.group_columns import GroupColumns
from stream_dp.sql.plan.statement_plan import NO_ROWS, Part, Published, Scalar
from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.terms.aggregates import EACH_PHASE, Atom
from stream_dp.sql.terms.possible_conditions import Possible
from stream_dp.sql.terms.trees import Cases, Tree, conjunction

MOST_QUERIES: Final = 100
"""The most queries that one statement may ask: as many as one record holds."""

_MOST_TRIED: Final = 10_000
"""The most combinations of values that are conditions to look at."""


class Queries:
    """The queries of a statement. Values of the same rows share one where it publishes all of them.

    Args:
        at: The statement, as sqlglot reads it.
        atoms: The values that the statement needs.
        groups: The group columns.
        where: The condition on the rows.
        impossible: Whether also what no row can satisfy is asked.

    Attributes:
        fields: The fields of each query.
        combinations: The values of the group columns that are conditions, for each combination that rows can
            be in.
        published: The part of an answer that each value is.

    Raises:
        Fault: These are more queries than one statement may ask.
    """

    def __init__(
        self,
        at: Any,
        atoms: Iterable[Atom],
        groups: GroupColumns,
        where: Tree | None,
        *,
        impossible: bool = False,
    ) -> None:
        self._at = at
        self._wanted = dict.fromkeys(atoms)
        self._names = [attribute["name"] for attribute in groups.tabled]
        self._schema = groups.columns.schema
        self._may_be = (lambda _: True) if impossible else Possible(self._schema)
        self._combinations = self._possible([axis.cases for axis in groups.cased], where)
        self.fields: list[dict[str, Any]] = []
        self.published: dict[Atom, Published] = {}
        # Sums come first, so that counts of the same rows are taken from them.
        for atom in sorted(self._wanted, key=lambda atom: atom.part not in ("total", "mean")):
            self.published[atom] = self._publish(atom)
            if len(self.fields) > MOST_QUERIES:
                raise self._too_many()

    @property
    def combinations(self) -> tuple[tuple[Scalar, ...], ...]:
        return tuple(tuple(value for value, _ in cases) for cases in self._combinations)

    def _too_many(self) -> Fault:
        problem = f"this takes more than {MOST_QUERIES} queries"
        return Fault(self._at, problem, "ask for fewer groups or aggregates at a time")

    def _possible(self, columns: Sequence[Cases], where: Tree | None) -> list[Cases]:
        """Returns the combinations of values that rows can be in.

        It adds one column after the other, so that what is impossible already is not combined further.
        """
        found: list[Cases] = [()]
        tried = itertools.count(1)
        for column in columns:
            longer: list[Cases] = []
            for combination, case in itertools.product(found, column):
                both = (*combination, case)
                if self._may_be(conjunction([where, *(tree for _, tree in both)])):
                    longer.append(both)
                if len(longer) > MOST_QUERIES or next(tried) > _MOST_TRIED:
                    raise self._too_many()
            found = longer
        return found

    def _publish(self, atom: Atom) -> Published:
        """Adds the queries that publish a value."""
        fields, part = self._fields(atom)
        names = self._names if atom.grouped else ()
        indices = []
        for combination in self._combinations if atom.grouped else [()]:
            asked = self._asked(fields, [tree for _, tree in combination], names)
            if atom.frame == EACH_PHASE:
                asked["series"] = "phase"
            elif atom.frame is not None:
                asked["frame"] = atom.frame
            if not self._may_be(self._rows_asked(asked)):
                indices.append(NO_ROWS)
                continue
            if asked not in self.fields:
                self.fields.append(asked)
            indices.append(self.fields.index(asked))
        if not atom.grouped:
            indices *= len(self._combinations)
        bins = _bins(self._schema[atom.attribute]) if atom.part == "spread" else ()
        return Published(part, tuple(indices), bool(names), bins, *atom.spread)

    def _rows_asked(self, asked: Mapping[str, Any]) -> Any:
        """Returns the condition on the rows that a query needs: for a quantile they have a value."""
        where = asked.get("where")
        if asked["kind"] != "quantile" or not self._schema[asked["attribute"]].get("missing"):
            return where
        return conjunction([where, {"attribute": asked["attribute"], "is_missing": False}])

    def _fields(self, atom: Atom) -> tuple[dict[str, Any], Part]:
        """Returns the fields of the query that publishes a value, and the part of its answer."""
        where = json.loads(atom.where)
        if atom.part == "found":
            return {**json.loads(atom.found), "where": where}, "found"
        if atom.part == "share":
            return {"kind": "share", "share_of": json.loads(atom.share_of), "where": where}, "share"
        if atom.part in ("total", "mean"):
            return self._sum_fields(atom, where), atom.part  # type: ignore[return-value]
        if atom.part == "present":
            beside = (each for each in self._sums_of(atom) if each.attribute == atom.attribute)
            if (summed := next(beside, None)) is not None:
                return self._sum_fields(summed, where), "count"
            present = {"attribute": atom.attribute, "is_missing": False}
            return {"kind": "predicate", "where": conjunction([where, present])}, "count"
        counts_rows = atom.part == "count" and not atom.share_of
        if counts_rows and (summed := next(self._sums_of(atom), None)) is not None:
            return self._sum_fields(summed, where), "rows"
        if atom.share_of:
            where = conjunction([where, json.loads(atom.share_of)])
        if atom.once:
            return {"kind": "predicate", "where": where, "once": atom.once}, "count"
        if atom.part == "spread":
            return {"kind": "predicate", "where": where, "spread": atom.attribute}, "spread"
        return {"kind": "predicate", "where": where}, "count"

    def _sum_fields(self, atom: Atom, where: Any) -> dict[str, Any]:
        """Returns the fields of the query for a sum. The first one of some rows counts them too."""
        count = Atom("count", atom.where, atom.grouped, frame=atom.frame)
        first = next(self._sums_of(atom))
        number = atom.attribute, atom.up_to
        same = (first.attribute, first.up_to) == number
        parts = {o.part for o in self._sums_of(atom) if (o.attribute, o.up_to) == number}
        return {
            "kind": "sum",
            "attribute": atom.attribute,
            **({} if atom.up_to is None else {"up_to": atom.up_to}),
            **({"count_rows": True} if same and count in self._wanted else {}),
            **({"mean": True} if parts == {"mean"} else {}),
            "where": where,
        }

    def _sums_of(self, atom: Atom) -> Iterator[Atom]:
        """Yields the sums and means that are wanted of the same rows."""
        for other in self._wanted:
            if other.part in ("total", "mean") and _rows_of(other) == _rows_of(atom):
                yield other

    def _asked(
        self, fields: Mapping[str, Any], cases: Sequence[Tree], names: Sequence[str]
    ) -> dict[str, Any]:
        """Returns the fields of one query: with its groups, and with the conditions of one case."""
        asked = dict(fields)
        names = [*names, *([asked.pop("spread")] if "spread" in asked else [])]
        where = asked.pop("where")
        if asked["kind"] == "mode":  # about all rows
            return asked
        if names:
            asked["group_by"] = list(names)
            if asked["kind"] == "predicate":
                asked["kind"] = "table"
        asked["where"] = conjunction([where, *cases]) if cases else where
        return asked


def _rows_of(atom: Atom) -> Atom:
    """Returns a value without what it says of its rows."""
    return replace(atom, part="", attribute="", up_to=None)


def _bins(attribute: Mapping[str, Any]) -> tuple[tuple[float, float, float], ...]:
    """Returns what a value of each bin of a number counts for, between the least and the largest value in it.

    That is its middle, or an outer edge, as in sums. Without ``measure`` the ends are left out.
    """
    edges, step = attribute["edges"], 1.0 if attribute.get("integer") else 0.0
    middles = [(low + high - step) / 2.0 for low, high in itertools.pairwise(edges)]
    centres = attribute.get("representatives") or (edges[0] - step, *middles, edges[-1])
    measure = attribute.get("measure")
    if measure is None:
        return tuple((centre, centre, centre) for centre in centres)
    unit, least, largest = (Fraction(repr(measure[name])) for name in ("unit", "low", "high"))

    def kept(number: float) -> float:
        return float(min(max(round(Fraction(repr(number)) / unit) * unit, least), largest))

    lows = [float(least), *map(kept, edges)]
    highs = [*(kept(edge - step) for edge in edges), float(largest)]
    return tuple(
        (low, min(max(centre, low), high), high)
        for low, centre, high in zip(lows, centres, highs, strict=True)
    )
