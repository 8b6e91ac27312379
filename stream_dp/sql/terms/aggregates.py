"""Translates aggregates to the published values that they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.plan.statement_plan import Call, Constant
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.literals import is_number, number
from stream_dp.sql.terms.columns import Attribute
from stream_dp.sql.terms.condition_trees import Conditions
from stream_dp.sql.terms.refused_pieces import refused_value
from stream_dp.sql.terms.trees import Tree, all_of, as_json, conjunction

TRUTHS: Final = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    *(exp.And, exp.Or, exp.Not, exp.In, exp.Between, exp.Is),
)
_SPREADS: Final = {  # whether it is of a sample, and whether it is the root
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
    exp.Variance: (True, False),
    exp.VariancePop: (False, False),
}
_FOUND: Final[Mapping[Any, tuple[str, str, float | None]]] = {
    exp.Quantile: ("quantile", "QUANTILE", None),
    exp.ApproxQuantile: ("quantile", "QUANTILE", None),
    exp.PercentileCont: ("quantile", "a percentile", None),
    exp.PercentileDisc: ("quantile", "a percentile", None),
    exp.Median: ("quantile", "MEDIAN", 0.5),
    exp.Min: ("quantile", "MIN", 0.0),
    exp.Max: ("quantile", "MAX", 1.0),
    exp.Mode: ("mode", "MODE", None),
}
"""The kind of query, the common name and the rank of aggregates that are asked by themselves."""

_SELECTED: Final = (
    "use COUNT(*), a share of it, or SUM, AVG, MEDIAN, QUANTILE(x, 0.9), MIN, MAX or MODE "
    "of an attribute x"
)

_DISTINCT: Final = (
    "GROUP BY the attribute counts each declared value; HAVING COUNT(*) > 100 keeps the common ones"
)
_OF_ALL_ROWS: Final = (
    "omit the condition and the groups, or GROUP BY the attribute and read it from the counts"
)

EACH_PHASE: Final = "each phase"
"""The frame of a value that is asked of each phase by itself, in a statement about all of them together."""

_Conditions = Sequence[Any]
"""The conditions that AND joins to WHERE for one aggregate, as sqlglot reads them."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One published value that the statement needs, before it is known which query gives it.

    Attributes:
        part: The part of an answer that it is; ``present`` is the number of rows that have the attribute.
        where: The condition on the rows, as JSON.
        grouped: Whether it has a value for each cell.
        attribute: The attribute that is added up or spread.
        share_of: For a share, its condition as JSON.
        found: For a quantile, a median or a mode: the fields of its query, as JSON.
        spread: For a spread: whether it is of a sample, and whether it is the root.
        up_to: For a sum or a mean: the number that no row counts for more than. None for no such number.
        frame: How many parts of a series it is of: the last ones, or ``running`` for all. None for one. Or
            ``EACH_PHASE``.
        once: The attribute by which each person counts once. Empty where rows are counted.
    """

    part: str
    where: str
    grouped: bool = True
    attribute: str = ""
    share_of: str = ""
    found: str = ""
    spread: tuple[bool, bool] = (False, False)
    up_to: float | None = None
    frame: int | str | None = None
    once: str = ""


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Translates aggregates to the values that they ask for.

    Attributes:
        conditions: Translates conditions.
        where: The condition on the rows.
        groups: The attributes that the statement groups by; None for another group.
        in_phases: The period of the series. None without one.
        alone: Whether they are of a subquery of one aggregate, which has no groups.
        has_ends: Whether MIN and MAX are the outermost declared edges, because nothing else is asked.
    """

    conditions: Conditions
    where: Tree | None
    groups: tuple[Attribute | None, ...]
    in_phases: str | None
    alone: bool = False
    has_ends: bool = False

    def value(self, node: Any) -> Any:
        """Translates an aggregate, with its FILTER if it has one.

        Raises:
            Fault: It is not answered.
        """
        filters: list[Any] = []
        if isinstance(node, exp.Filter):
            filters, node = [node.expression.this], node.this
        node = node.unnest()
        if isinstance(node, exp.CountIf):
            return self._counted([*filters, node.this])
        if isinstance(node, exp.Count):
            return self._count(node, filters)
        if isinstance(node, exp.Sum | exp.Avg):
            return self._sum(node, node.this, filters)
        if type(node) in _SPREADS:
            return self._spread(node, filters)
        if type(node) in _FOUND or isinstance(node, exp.WithinGroup):
            return self._found(node, filters)
        if isinstance(node, exp.Corr):
            return self._correlation(node, filters)
        raise refused_value(node)

    def _atom(self, part: str, filters: _Conditions, **of: Any) -> Atom:
        """Returns a value of the rows of WHERE for which some conditions are true too."""
        where = conjunction([self.where, *map(self.conditions.true, filters)])
        return Atom(part, as_json(where), grouped=not self.alone, **of)

    def _tree(self, filters: _Conditions) -> str:
        """Returns conditions together as JSON; empty for none."""
        return as_json(all_of(map(self.conditions.true, filters))) if filters else ""

    # ------------------------------------------------------------ counts and shares

    def _counted(self, filters: _Conditions) -> Atom:
        return self._atom("count", (), share_of=self._tree(filters))

    def _part(self, part: Any, filters: _Conditions) -> Atom:
        """Returns the share of the rows of some conditions that satisfies another one too."""
        return self._atom("share", filters, share_of=self._tree([part]))

    def _count(self, node: Any, filters: _Conditions) -> Any:
        subject = node.this
        if isinstance(subject, exp.Star) or is_number(subject):
            return self._counted(filters)
        if isinstance(subject, exp.Case | exp.If):
            when, value, other = _when_then(subject)
            if other is None and isinstance(value, exp.Literal | exp.Boolean):
                return self._counted([*filters, when])
            if other is None and isinstance(value, exp.Column):
                return self._count(exp.Count(this=value), [*filters, when])
            fix = "write COUNT(CASE WHEN ... THEN 1 END)"
            raise Fault(subject, "COUNT counts every value but NULL", fix)
        if isinstance(subject, exp.Column):
            if self.conditions.columns.joined(subject) is not None:
                return self._counted([*filters, _is_not_null(subject)])
            attribute = self.conditions.columns.attribute(subject)
            if attribute.get("missing"):
                return self._atom("present", filters, attribute=attribute["name"])
            return self._counted(filters)
        if isinstance(subject, exp.Distinct):
            return self._persons(node, subject.expressions, filters)
        raise Fault(
            node,
            f"{short(node)} is not answered: COUNT counts rows",
            "use COUNT(*), COUNT(x), or COUNT(*) FILTER (WHERE ...)",
        )

    def _persons(self, node: Any, distinct: Sequence[Any], filters: _Conditions) -> Any:
        """Translates a number of persons, of whom one row a phase counts.

        Where an attribute says how long they were away, each counts once. Otherwise it is at least the count
        of any one phase, and at most the sum of the counts of all. The phase with the most rows is taken,
        which is public.
        """
        unit = self.conditions.columns.unit
        if unit is None:
            raise Fault(node, "distinct values are not counted", _DISTINCT)
        if len(distinct) != 1 or not self.conditions.columns.is_person(distinct[0]):
            fix = f"write COUNT(DISTINCT {unit['key']}), or GROUP BY the attribute"
            raise Fault(node, f"only {unit['key']} can be counted once each", fix)
        problem = ""
        if unit["rows_per_phase"] > 1:
            problem = (
                f"rows_per_phase is {unit['rows_per_phase']:,}, so a count is not one of persons"
            )
        elif unit["lifetime"]:
            problem = (
                f"a person counts in at most {unit['phases']:,} phases here, so a count is not one of all "
                "persons"
            )
        if problem:
            raise Fault(node, problem, "use COUNT(*) for the rows that count")
        counted: Any = self._counted(filters)
        once = self._once(filters)
        if once is not None:
            return replace(counted, once=once)
        if self.in_phases is None:
            return Call("persons", (counted, replace(counted, frame=EACH_PHASE)))
        if self.in_phases != "phase":
            raise Fault(node, "persons are counted in each phase by itself", "GROUP BY phase")
        return counted

    def _once(self, filters: _Conditions) -> str | None:
        """Returns the attribute that counts persons once under a condition. None if none does.

        Of persons of whom something else is true, somebody may come whose first row does not say so.
        """
        trees = [] if self.where is None else [self.where]
        condition = conjunction([*trees, *map(self.conditions.true, filters)])
        for name, attribute in self.conditions.columns.schema.items():
            of = attribute.get("of")
            meant = None if of is None else {"attribute": of, "eq": True}
            if attribute.get("fold") == "since" and condition == meant:
                return name
        return None

    # ------------------------------------------------------------ sums and means

    def _sum(self, node: Any, subject: Any, filters: _Conditions) -> Any:
        """Translates the sum or the mean of a piece, which ``node`` is or computes with."""
        subject, is_mean = subject.unnest(), isinstance(node, exp.Avg)
        if isinstance(subject, exp.Cast | exp.TryCast):
            found = self._sum(node, subject.this, filters)
            return cast_as(subject, found, is_whole=all(map(self._is_of_whole, parts_in(found))))
        if isinstance(subject, exp.Case | exp.If):
            return self._sum_of_case(node, subject, filters)
        if type(subject) in TRUTHS or self._is_boolean(subject):
            if is_mean:
                return self._part(subject, [*filters, *self._where_known(subject)])
            return self._counted([*filters, subject])
        if is_number(subject) and not is_mean:
            return times(number(subject), self._counted(filters))
        if isinstance(subject, exp.Mul):
            factor, inner = _factored(subject)
            if factor != 1:
                return times(factor, self._sum(node, inner, filters))
        if isinstance(subject, exp.Least):
            column, limit = _limited(subject)
            found = None if column is None else self._sum(node, column, filters)
            if isinstance(found, Atom) and found.part in ("total", "mean"):
                return replace(found, up_to=limit)
            fix = "write LEAST(x, 21) of a number x and a constant"
            raise Fault(node, f"{short(node)} is not answered", fix)
        if not isinstance(subject, exp.Column):
            fix = "add up one attribute, or CASE WHEN ... THEN 1 ELSE 0 END"
            raise Fault(node, f"{short(node)} is not answered", fix)
        word, part = ("AVG", "mean") if is_mean else ("SUM", "total")
        attribute = self.conditions.columns.number(subject, f"ask for {word} of a number")
        return self._atom(part, filters, attribute=attribute["name"])

    def _is_boolean(self, subject: Any) -> bool:
        is_column = isinstance(subject, exp.Column)
        return is_column and self.conditions.columns.attribute(subject)["type"] == "boolean"

    def _is_of_whole(self, part: Any) -> bool:
        """Returns whether a part of a sum or a mean is of whole numbers."""
        if isinstance(part, Atom) and part.part in ("total", "mean"):
            return bool(self.conditions.columns.schema[part.attribute].get("integer"))
        return not (isinstance(part, Constant) and isinstance(part.value, float))

    def _where_known(self, truth: Any) -> list[Any]:
        """Returns the condition that another one is known, if it may be unknown for some rows."""
        columns, known = list(truth.find_all(exp.Column)), self.conditions.columns
        may_lack = [known.joined(c) or known.attribute(c).get("missing") for c in columns]
        if isinstance(truth, exp.Is) or not any(may_lack):
            return []
        if len(columns) == 1 and not truth.find(exp.In):
            return [_is_not_null(columns[0])]
        return [_is_not_null(exp.paren(truth))]

    def _sum_of_case(self, node: Any, case: Any, filters: _Conditions) -> Any:
        """Translates the sum or the mean of a CASE: of ones and zeros, or of an attribute where it holds."""
        is_mean = isinstance(node, exp.Avg)
        when, value, other = _when_then(case)
        if isinstance(value, exp.Column):
            if is_mean and other is not None:
                problem = "ELSE would count rows that do not satisfy the condition"
                raise Fault(case, problem, "omit ELSE")
            if other is None or _is_zero(other):
                return self._sum(node, value, [*filters, when])
        elif is_number(value):
            if (other is not None and not _is_zero(other)) or (is_mean and other is None):
                problem = "rows that do not satisfy the condition must count 0"
                raise Fault(case, problem, "write ELSE 0 END")
            ones: Any = self._part(when, filters) if is_mean else self._counted([*filters, when])
            return times(number(value), ones)
        fix = "write CASE WHEN ... THEN 1 ELSE 0 END"
        raise Fault(case, f"{short(case)} is not answered", fix)

    # ------------------------------------------------------------ the others

    def _spread(self, node: Any, filters: _Conditions) -> Atom:
        subject = node.this.unnest()
        if not isinstance(subject, exp.Column):
            raise Fault(node, f"{short(node)} is not answered", "name one attribute")
        attribute = self.conditions.columns.number(subject, "name a number")
        if attribute in self.groups and not self.alone:
            fix = "it varies only within one bin: omit this"
            raise Fault(node, f"{attribute['name']} is grouped by", fix)
        present = [_is_not_null(subject)] if attribute.get("missing") else []
        kind, name = _SPREADS[type(node)], attribute["name"]
        return self._atom("spread", [*filters, *present], attribute=name, spread=kind)

    def _found(self, node: Any, filters: _Conditions) -> Any:
        """Translates a quantile, a median or a mode."""
        if self.has_ends and isinstance(node, exp.Min | exp.Max):
            edges = self.conditions.columns.attribute(node.this)["edges"]
            return Constant(edges[0] if isinstance(node, exp.Min) else edges[-1])
        asked = self._asked(node)
        if asked["kind"] == "mode":
            if filters or self.where is not None or self.groups or self.alone:
                problem = f"{short(node)} is about all rows"
                raise Fault(node, problem, _OF_ALL_ROWS)
            return Atom("found", "null", grouped=False, found=as_json(asked))
        name = asked["attribute"]
        if not self.alone and name in (group and group["name"] for group in self.groups):
            fix = "all of its values lie in one bin: omit this"
            raise Fault(node, f"{name} is grouped by", fix)
        return self._atom("found", filters, found=as_json(asked))

    def _asked(self, node: Any) -> Tree:
        """Returns the fields that a quantile, a median or a mode asks for by itself."""
        function, subject = node, node.this
        if isinstance(node, exp.WithinGroup):
            function, ordered = node.this, node.expression.expressions
            upwards = len(ordered) == 1 and not ordered[0].args.get("desc")
            subject = ordered[0].this if upwards else None
        subject = None if subject is None else subject.unnest()
        kind, word, rank = _FOUND.get(type(function), ("", "", None))
        said = node.args.get("quantile") if function is node else function.this
        has_rank = kind != "quantile" or rank is not None or said is not None
        if not kind or not has_rank or not isinstance(subject, exp.Column):
            raise Fault(node, f"{short(node)} is not answered", _SELECTED, of_name=True)
        attribute = self.conditions.columns.attribute(subject)
        is_listed = attribute.get("ordered") and not attribute.get("other", True)
        if kind != "mode" and attribute["type"] != "date" and not is_listed:
            self.conditions.columns.number(subject, f"ask for {word} of a number")
        asked: Tree = {"kind": kind, "attribute": attribute["name"]}
        if kind == "mode":
            return asked
        if rank is None:
            share = self.conditions.columns.constant(said)
            if isinstance(share, bool | str) or not 0 <= share <= 1:
                fix = "write 0.9 for the 90% quantile"
                raise Fault(said, f"{short(said)} is not a share", fix)
            rank = share
        return {**asked, "rank": rank}

    def _correlation(self, node: Any, filters: _Conditions) -> Atom:
        names = []
        for subject in (part.unnest() for part in (node.this, node.expression)):
            if not isinstance(subject, exp.Column):
                raise Fault(node, f"{short(node)} is not answered", "name two attributes")
            names.append(self.conditions.columns.number(subject, "name a number")["name"])
        if names[0] == names[1]:
            raise Fault(node, f"both are {names[0]}", "name two attributes")
        if self.groups and not self.alone:
            fix = "ask about one group at a time, with WHERE"
            raise Fault(node, "a correlation is not answered by group", fix)
        if self.in_phases is not None:
            raise Fault(node, "a correlation has no series", "ask about one window at a time")
        asked = {"kind": "correlation", "attribute": names[0], "other": names[1]}
        return replace(self._atom("found", filters, found=as_json(asked)), grouped=False)


def parts_in(expression: Any) -> Iterator[Any]:
    """Yields a translated expression and all parts of it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from parts_in(argument)


def cast_as(cast: Any, value: Any, *, is_whole: bool) -> Any:
    """Returns a translated value that is cast: casts change no value here, so a whole number must be one.

    Raises:
        Fault: It is cast to whole numbers, and may be another number.
    """
    if cast.to.this in exp.DataType.INTEGER_TYPES and not is_whole:
        fix = "omit the cast, or write ROUND of the aggregate"
        raise Fault(cast, "a cast to whole numbers rounds nothing here", fix)
    return value


def times(factor: float, value: Any) -> Any:
    """Returns a translated value that is multiplied by a number."""
    return value if factor == 1 else Call("*", (Constant(factor), value))


def condition_of_when(case: Any, each: Any) -> Any:
    """Returns the condition of a WHEN; CASE x WHEN 1 compares x."""
    return each.this if case.this is None else exp.EQ(this=case.this.copy(), expression=each.this)


def _when_then(node: Any) -> tuple[Any, Any, Any]:
    """Returns the condition, the value and the other value of a CASE with one WHEN, or of IF."""
    if isinstance(node, exp.Case):
        first, *others = node.args["ifs"]
        if others:
            fix = "combine them with OR, or group by the CASE"
            raise Fault(node, "this CASE has several WHEN", fix)
        other = node.args.get("default")
        when, value = condition_of_when(node, first), first.args["true"]
    else:
        when, value, other = node.this, node.args["true"], node.args.get("false")
    has_other = other is not None and not isinstance(other, exp.Null)
    return when, value.unnest(), other.unnest() if has_other else None


def _factored(node: Any) -> tuple[float, Any]:
    """Splits constant factors off an expression."""
    node = node.unnest()
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if is_number(one.unnest()):
                factor, rest = _factored(other)
                return factor * number(one.unnest()), rest
    return 1, node


def _is_zero(node: Any) -> bool:
    return is_number(node) and number(node) == 0


def _is_not_null(column: Any) -> Any:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def _limited(least: Any) -> tuple[Any, float]:
    """Returns the column and the constant of LEAST; None for the column where it has anything else."""
    parts = [part.unnest() for part in (least.this, *least.expressions)]
    columns = [part for part in parts if isinstance(part, exp.Column)]
    numbers = [
        sign * float(number(literal))
        for sign, literal in (
            (-1.0, part.this) if isinstance(part, exp.Neg) else (1.0, part) for part in parts
        )
        if is_number(literal)
    ]
    if (len(columns), len(numbers), len(parts)) != (1, 1, 2):
        return None, 0.0
    return columns[0], numbers[0]
