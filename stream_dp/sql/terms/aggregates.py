"""Translates aggregates to the published values that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.errors import InvalidQuery
from stream_dp.sql.plan.statement_plan import Call, Constant
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.translator import Source, Tree
from stream_dp.sql.reading.trees import as_json, conjunction
from stream_dp.sql.terms.public_joins import Joined, JoinedConditions

TRUTHS: Final = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.And,
    exp.Or,
    exp.Not,
    exp.In,
    exp.Between,
    exp.Is,
)
_SPREADS: Final = {  # whether it is of a sample, and whether it is the root
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
    exp.Variance: (True, False),
    exp.VariancePop: (False, False),
}
_FOUND: Final = (
    exp.Quantile,
    exp.ApproxQuantile,
    exp.Median,
    exp.Min,
    exp.Max,
    exp.Mode,
    exp.WithinGroup,
)
_REFUSED: Final[tuple[tuple[Any, str, str], ...]] = (
    (
        (exp.CovarPop, exp.CovarSamp),
        "covariances are not answered",
        "ask CORR, and multiply it by the STDDEV of both attributes",
    ),
    (
        (exp.ApproxDistinct,),
        "distinct values are not counted",
        "GROUP BY the attribute counts each declared value",
    ),
    (
        (exp.Window,),
        "only SUM, AVG, LAG and LEAD have OVER",
        "omit OVER, and compute it from the table",
    ),
    (
        (exp.ArrayAgg, exp.GroupConcat),
        "values of single rows are never shown",
        "GROUP BY the attribute",
    ),
    ((exp.Star,), "rows are never shown", "ask for COUNT(*), or see stream-dp synthesize"),
)


EACH_PHASE: Final = "each phase"
"""The frame of a value that is asked of each phase by itself, in a statement about all of them together."""


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


class Aggregates:
    """Translates aggregates to the values that they ask for.

    Args:
        source: The statement.
        conditions: Translates conditions.
        joined: The joined tables.
        unit: The person whom the data set protects. None where it protects a row.
    """

    def __init__(
        self,
        source: Source,
        conditions: JoinedConditions,
        joined: Joined,
        unit: Mapping[str, Any] | None,
    ) -> None:
        self._source = source
        self._conditions = conditions
        self._joined = joined
        self._unit = unit
        self._where: Tree | None = None
        self._groups: list[Mapping[str, Any] | None] = []
        self._scalar = False
        self._in_phases: str | None = None  # the period of the series

    def _aggregate(self, node: Any) -> Any:
        """Translates an aggregate, with its FILTER if it has one."""
        if isinstance(node, exp.Filter):
            return self._filtered(node.this, node.expression.this)
        return self._filtered(node, None)

    def _filtered(self, node: Any, condition: Any) -> Any:
        node = node.unnest()
        if isinstance(node, exp.CountIf):
            return self._counted(self._both(condition, node.this))
        if isinstance(node, exp.Count):
            return self._count(node, condition)
        if isinstance(node, exp.Sum | exp.Avg):
            return self._sum(node, condition)
        if type(node) in _SPREADS:
            return self._spread(node, condition)
        if isinstance(node, _FOUND):
            return self._found(node, condition)
        if isinstance(node, exp.Corr):
            return self._correlation(node, condition)
        for kinds, problem, fix in _REFUSED:
            if isinstance(node, kinds):
                raise self._error(node, f"{problem}: {short(node)}", fix)
        raise self._error(
            node,
            f"{short(node)} is not answered",
            self._source.quoting()
            or "use COUNT(*), SUM, AVG, STDDEV, MEDIAN, MIN, MAX or QUANTILE(x, 0.9) of an attribute x, "
            "CORR(x, y), and + - * / of them",
        )

    def _both(self, condition: Any, other: Any) -> Any:
        """Returns the condition that holds where two do."""
        return (
            other if condition is None else exp.And(this=condition.copy(), expression=other.copy())
        )

    def _tree(self, condition: Any) -> str:
        """Returns a condition as JSON; empty for none."""
        return "" if condition is None else as_json(self._conditions.condition(condition).true)

    def _counted(self, condition: Any) -> Atom:
        return Atom(
            "count", as_json(self._where), grouped=not self._scalar, share_of=self._tree(condition)
        )

    def _narrowed(self, condition: Any) -> str:
        """Returns WHERE and a condition together, as JSON."""
        if condition is None:
            return as_json(self._where)
        return as_json(conjunction([self._where, self._conditions.condition(condition).true]))

    def _count(self, node: Any, condition: Any) -> Any:
        subject = node.this
        if isinstance(subject, exp.Star) or (
            isinstance(subject, exp.Literal) and not subject.is_string
        ):
            return self._counted(condition)
        if isinstance(subject, exp.Case | exp.If):
            when, value, other = self._when_then(subject)
            if isinstance(value, exp.Literal | exp.Boolean) and other is None:
                return self._counted(self._both(condition, when))
            if isinstance(value, exp.Column) and other is None:
                return self._count(exp.Count(this=value), self._both(condition, when))
            raise self._error(
                subject,
                "COUNT counts every value but NULL",
                "write COUNT(CASE WHEN ... THEN 1 END)",
            )
        if isinstance(subject, exp.Column):
            if self._joined.column(subject) is not None:
                return self._counted(self._both(condition, _is_not_null(subject)))
            attribute = self._conditions.attribute(subject)
            if not attribute.get("missing"):
                return self._counted(condition)
            return Atom(
                "present",
                self._narrowed(condition),
                grouped=not self._scalar,
                attribute=attribute["name"],
            )
        if isinstance(subject, exp.Distinct):
            if self._conditions.counts_persons(node):
                return self._persons(node, condition)
            raise self._distinct_error(node)
        raise self._error(
            node,
            f"{short(node)} is not answered: COUNT counts rows",
            "use COUNT(*), COUNT(x), or COUNT(*) FILTER (WHERE ...)",
        )

    def _persons(self, node: Any, condition: Any) -> Any:
        """Translates a number of persons, of whom one row a phase counts.

        It is at least the count of any one phase, and at most the sum of the counts of all. The phase with
        the most rows is taken, which is public.
        """
        counted: Any = self._counted(condition)
        if self._in_phases is not None:
            if self._in_phases != "phase":
                raise self._error(
                    node, "persons are counted in each phase by itself", "GROUP BY phase"
                )
            return counted
        each: Any = replace(counted, frame=EACH_PHASE)
        return Call("persons", (counted, each))

    def _distinct_error(self, node: Any) -> InvalidQuery:
        if self._unit is not None:
            key = self._unit["key"]
            return self._error(
                node,
                f"only {key} can be counted once each",
                f"write COUNT(DISTINCT {key}), or GROUP BY the attribute",
            )
        return self._error(
            node,
            "distinct values are not counted",
            "GROUP BY the attribute counts each declared value; HAVING COUNT(*) > 100 keeps the common ones",
        )

    def _when_then(self, node: Any) -> tuple[Any, Any, Any]:
        """Returns the condition, the value and the other value of a CASE with one WHEN, or of IF."""
        if isinstance(node, exp.Case):
            first, *others = node.args["ifs"]
            if others:
                raise self._error(
                    node, "this CASE has several WHEN", "combine them with OR, or group by the CASE"
                )
            other = node.args.get("default")
            when, value = self._when(node, first), first.args["true"]
        else:
            when, value, other = node.this, node.args["true"], node.args.get("false")
        if isinstance(other, exp.Null):
            other = None
        return when, value.unnest(), None if other is None else other.unnest()

    def _when(self, case: Any, each: Any) -> Any:
        """Returns the condition of a WHEN; CASE x WHEN 1 compares x."""
        return (
            each.this if case.this is None else exp.EQ(this=case.this.copy(), expression=each.this)
        )

    def _sum(self, node: Any, condition: Any) -> Any:
        subject = node.this.unnest()
        while isinstance(subject, exp.Cast | exp.TryCast):
            subject = subject.this.unnest()
        average = isinstance(node, exp.Avg)
        if isinstance(subject, exp.Case | exp.If):
            return self._sum_of_case(node, subject, condition)
        if type(subject) in TRUTHS:
            return (
                self._part(subject, self._known(subject, condition))
                if average
                else self._counted(self._both(condition, subject))
            )
        if isinstance(subject, exp.Mul):
            factor, inner = factored(subject)
            if factor != 1:
                rest: Any = self._sum(type(node)(this=inner.copy()), condition)
                return Call("*", (Constant(factor), rest))
        if isinstance(subject, exp.Least):
            return self._least(node, subject, condition)
        if not isinstance(subject, exp.Column):
            raise self._error(
                node,
                f"{short(node)} is not answered",
                "add up one attribute, or CASE WHEN ... THEN 1 ELSE 0 END",
            )
        attribute = self._conditions.attribute(subject)
        name = attribute["name"]
        if attribute["type"] == "boolean":
            is_true = exp.Is(this=subject.copy(), expression=exp.Boolean(this=True))
            if not average:
                return self._counted(self._both(condition, is_true))
            present = _is_not_null(subject) if attribute.get("missing") else None
            if present is not None:
                condition = self._both(condition, present)
            return self._part(is_true, condition)
        if attribute["type"] != "number":
            word = "AVG" if average else "SUM"
            raise self._error(
                subject, f"{name} is a {attribute['type']}", f"ask for {word} of a number"
            )
        return Atom(
            "mean" if average else "total",
            self._narrowed(condition),
            grouped=not self._scalar,
            attribute=name,
        )

    def _least(self, node: Any, least: Any, condition: Any) -> Atom:
        """Translates the sum or the mean of LEAST(x, 21): no row counts for more than 21."""
        column, limit = _limited(least)
        if column is not None:
            found = self._sum(type(node)(this=column.copy()), condition)
            if isinstance(found, Atom) and found.part in ("total", "mean"):
                return replace(found, up_to=limit)
        raise self._error(
            node,
            f"{short(node)} is not answered",
            "write LEAST(x, 21) of a number x and a constant",
        )

    def _part(self, part: Any, condition: Any) -> Atom:
        """Returns the share of the rows of a condition that satisfies another one too."""
        return Atom(
            "share", self._narrowed(condition), grouped=not self._scalar, share_of=self._tree(part)
        )

    def _known(self, truth: Any, condition: Any) -> Any:
        """Returns a condition that also leaves out the rows for which another one is unknown."""
        columns = list(truth.find_all(exp.Column))
        joined = [self._joined.column(column) is not None for column in columns]
        may_lack = [
            is_joined or bool(self._conditions.attribute(column).get("missing"))
            for column, is_joined in zip(columns, joined, strict=True)
        ]
        if isinstance(truth, exp.Is) or not any(may_lack):
            return condition
        if len(columns) == 1 and not truth.find(exp.In):
            return self._both(condition, _is_not_null(columns[0]))
        return self._both(condition, _is_not_null(exp.paren(truth)))

    def _sum_of_case(self, node: Any, case: Any, condition: Any) -> Any:
        """Translates the sum or the mean of a CASE: of ones and zeros, or of an attribute where it holds."""
        average = isinstance(node, exp.Avg)
        when, value, other = self._when_then(case)
        if isinstance(value, exp.Column):
            if average and other is not None:
                raise self._error(
                    case, "ELSE would count rows that do not satisfy the condition", "omit ELSE"
                )
            if other is None or _is_zero(other):
                inner = type(node)(this=value.copy())
                return self._sum(inner, self._both(condition, when))
        elif isinstance(value, exp.Literal) and not value.is_string:
            if (other is not None and not _is_zero(other)) or (average and other is None):
                raise self._error(
                    case, "rows that do not satisfy the condition must count 0", "write ELSE 0 END"
                )
            ones: Any = (
                self._part(when, condition)
                if average
                else self._counted(self._both(condition, when))
            )
            factor = number_of(value.this)
            return ones if factor == 1 else Call("*", (Constant(factor), ones))
        raise self._error(
            case, f"{short(case)} is not answered", "write CASE WHEN ... THEN 1 ELSE 0 END"
        )

    def _spread(self, node: Any, condition: Any) -> Atom:
        subject = node.this.unnest()
        if not isinstance(subject, exp.Column):
            raise self._error(node, f"{short(node)} is not answered", "name one attribute")
        attribute = self._conditions.attribute(subject)
        name = attribute["name"]
        if attribute["type"] != "number":
            raise self._error(subject, f"{name} is a {attribute['type']}", "name a number")
        if attribute in self._groups and not self._scalar:
            raise self._error(
                node, f"{name} is grouped by", "it varies only within one bin: omit this"
            )
        if attribute.get("missing"):
            condition = (
                self._both(condition, _is_not_null(subject)) if condition else _is_not_null(subject)
            )
        return Atom(
            "spread",
            self._narrowed(condition),
            grouped=not self._scalar,
            attribute=name,
            spread=_SPREADS[type(node)],
        )

    def _found(self, node: Any, condition: Any) -> Atom:
        asked = self._conditions.kind(node)
        if asked["kind"] == "quantile":
            return self._quantile(node, condition, asked)
        if condition is not None or self._where is not None or self._groups or self._scalar:
            raise self._error(
                node,
                f"{short(node)} is about all rows",
                "omit the condition and the groups, or GROUP BY the attribute and read it from the counts",
            )
        return Atom("found", "null", grouped=False, found=as_json(asked))

    def _quantile(self, node: Any, condition: Any, asked: Tree) -> Atom:
        name = asked["attribute"]
        grouped = any(group is not None and group["name"] == name for group in self._groups)
        if grouped and not self._scalar:
            raise self._error(
                node, f"{name} is grouped by", "all of its values lie in one bin: omit this"
            )
        where, found = self._narrowed(condition), as_json(asked)
        return Atom("found", where, grouped=not self._scalar, found=found)

    def _correlation(self, node: Any, condition: Any) -> Atom:
        names = []
        for subject in (part.unnest() for part in (node.this, node.expression)):
            if not isinstance(subject, exp.Column):
                raise self._error(node, f"{short(node)} is not answered", "name two attributes")
            attribute = self._conditions.attribute(subject)
            if attribute["type"] != "number":
                problem = f"{attribute['name']} is a {attribute['type']}"
                raise self._error(subject, problem, "name a number")
            names.append(attribute["name"])
        if names[0] == names[1]:
            raise self._error(node, f"both are {names[0]}", "name two attributes")
        if self._groups and not self._scalar:
            fix = "ask about one group at a time, with WHERE"
            raise self._error(node, "a correlation is not answered by group", fix)
        if self._in_phases is not None:
            raise self._error(node, "a correlation has no series", "ask about one window at a time")
        asked = {"kind": "correlation", "attribute": names[0], "other": names[1]}
        return Atom("found", self._narrowed(condition), grouped=False, found=as_json(asked))

    def _error(self, at: Any, problem: str, fix: str) -> InvalidQuery:
        return self._source.error(at, problem, fix)


def short(node: Any) -> str:
    """Formats a piece of SQL for a message and cuts a long one."""
    text = node.sql(Grammar)
    return text if len(text) <= 60 else f"{text[:60]}..."


def number_of(text: str) -> float:
    """Returns the number that a literal stands for: a whole one where it is written so."""
    return int(text) if text.isdecimal() else float(text)


def factored(node: Any) -> tuple[float, Any]:
    """Splits constant factors and casts off an expression."""
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.TryCast):
        return factored(node.this)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            bare = one.unnest()
            if isinstance(bare, exp.Literal) and not bare.is_string:
                factor, rest = factored(other)
                return factor * number_of(bare.this), rest
    return 1, node


def _is_zero(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) == 0.0


def _is_not_null(column: Any) -> Any:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def _limited(least: Any) -> tuple[Any, float]:
    """Returns the column and the constant of LEAST; None for the column where it has anything else."""
    parts = [part.unnest() for part in (least.this, *least.expressions)]
    columns = [part for part in parts if isinstance(part, exp.Column)]
    numbers = [
        sign * float(literal.this)
        for sign, literal in (
            (-1.0, part.this) if isinstance(part, exp.Neg) else (1.0, part) for part in parts
        )
        if isinstance(literal, exp.Literal) and not literal.is_string
    ]
    if (len(columns), len(numbers), len(parts)) != (1, 1, 2):
        return None, 0.0
    return columns[0], numbers[0]
