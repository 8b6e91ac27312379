"""Comparisons of SQL in one form: what is compared, how, and the constants that it is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.literals import FOLDS, constant_text, is_number
from stream_dp.sql.terms.sql_dates import written
from stream_dp.sql.terms.trees import NOTHING, Truth

MIRRORED: Final = {"ge": "le", "le": "ge", "gt": "lt", "lt": "gt", "eq": "eq"}
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": eq, "lt": lt, "le": le, "gt": gt, "ge": ge,
}  # fmt: skip
_NAMES: Final = {
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.EQ: "eq",
    exp.NEQ: "eq",
    exp.NullSafeEQ: "eq",
    exp.NullSafeNEQ: "eq",
}
_NEGATED: Final = (exp.NEQ, exp.NullSafeNEQ)
_NULL_SAFE: Final = (exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of something with constants.

    Attributes:
        node: The whole of it, as sqlglot reads it.
        subject: What is compared.
        operator: "eq", "lt", "le", "gt", "ge", "between", "in" or "like".
        constants: What it is compared with, without the NULL in a list.
        negated: Whether it is true where the operator is false, as in ``<>`` and ``NOT LIKE``.
        null_safe: Whether NULL is a value like any other, as in ``IS DISTINCT FROM``.
        has_null: Whether it is IN with NULL in the list. It is never false, as x might be the unknown value.
    """

    node: Any
    subject: Any
    operator: str
    constants: tuple[Any, ...]
    negated: bool = False
    null_safe: bool = False
    has_null: bool = False

    @property
    def folds(self) -> bool:
        """Whether it compares LOWER or UPPER of a column."""
        return type(self.subject) in FOLDS and isinstance(self.subject.this.unnest(), exp.Column)

    @property
    def column(self) -> Any:
        """What is compared, without LOWER or UPPER of a column."""
        return self.subject.this.unnest() if self.folds else self.subject

    def pairs(self) -> list[tuple[Any, str]]:
        """Returns the constants, each with how it is compared: "eq", "lt", "le", "gt" or "ge"."""
        names = {"between": ["ge", "le"], "in": ["eq"] * len(self.constants)}
        return [*zip(self.constants, names.get(self.operator, [self.operator]), strict=True)]

    def applied(self, truth: Truth) -> Truth:
        """Returns the condition, if another one says for which rows its operator is true and false."""
        if self.has_null:
            truth = Truth(truth.true, NOTHING)
        if self.null_safe:
            truth = truth.known()
        return truth.negated() if self.negated else truth

    def test(self, read: Callable[[Any], Any]) -> Callable[[Any], bool | None]:
        """Returns what the comparison says of a value, where None stands for NULL and for unknown.

        Args:
            read: Returns the value of a constant.
        """
        holds = self._operator(list(map(read, self.constants)))
        fold: Any = FOLDS[type(self.subject)] if self.folds else None

        def said(value: Any) -> bool | None:
            if value is None and not self.null_safe:
                return None
            found = holds(value if fold is None or value is None else fold(value))
            if found is None or (self.has_null and not found):
                return None
            return found is not self.negated

        return said

    def _operator(self, constants: Sequence[Any]) -> Callable[[Any], bool | None]:
        if self.operator == "like":
            return self._pattern(*constants)
        if self.operator == "in" or self.null_safe:
            listed = set(constants)
            return lambda value: value in listed
        compares = [_OPERATORS[name] for _, name in self.pairs()]
        pairs = list(zip(compares, constants, strict=True))

        def holds(value: Any) -> bool | None:
            found = {None if one is None else bool(compare(value, one)) for compare, one in pairs}
            return False if False in found else None if None in found else True

        return holds

    def _pattern(self, pattern: str, escape: str = "\\") -> Callable[[str], bool]:
        if len(escape) > 1:
            raise Fault(self.constants[1], "ESCAPE takes one character", "write ESCAPE '!'")
        like = self.node.this if isinstance(self.node, exp.Escape) else self.node
        return like_pattern(pattern, escape=escape, ignore_case=isinstance(like, exp.ILike))


def comparison_of(node: Any) -> Comparison | None:
    """Returns a comparison with constants. None for another piece.

    The side that is not a constant is what is compared; the left one, if none is.

    Raises:
        Fault: It is IN with something else than a list.
    """
    if isinstance(node, exp.In):
        if any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise Fault(node, "IN takes a list of constants", "write IN ('AA', 'UA')")
        listed = [each for each in node.expressions if not isinstance(each.unnest(), exp.Null)]
        has_null = len(listed) < len(node.expressions)
        return Comparison(node, node.this.unnest(), "in", tuple(listed), has_null=has_null)
    if isinstance(node, exp.Between):
        bounds = node.args["low"], node.args["high"]
        return Comparison(node, node.this.unnest(), "between", bounds)
    if isinstance(node, exp.Like | exp.ILike | exp.Escape):
        like = node.this if isinstance(node, exp.Escape) else node
        constants = (like.expression, *([node.expression] if like is not node else []))
        negated = bool(like.args.get("negate"))
        return Comparison(node, like.this.unnest(), "like", constants, negated)
    if type(node) not in _NAMES:
        return None
    subject, constant, name = node.this.unnest(), node.expression, _NAMES[type(node)]
    if is_constant(subject):
        subject, constant, name = constant.unnest(), node.this, MIRRORED[name]
    negated, null_safe = isinstance(node, _NEGATED), isinstance(node, _NULL_SAFE)
    return Comparison(node, subject, name, (constant,), negated, null_safe)


def is_in_nothing(node: Any) -> bool:
    """Returns whether a condition is IN with an empty list."""
    return isinstance(node, exp.In) and not any(
        node.args.get(key) for key in ("expressions", "query", "unnest", "field")
    )


def is_constant(node: Any) -> bool:
    """Returns whether a piece is a constant, such as 3, TRUE, NULL, 'a' || 'b' or DATE '2026-03-14'."""
    if isinstance(node, exp.Neg):
        return is_number(node.this)
    is_plain = isinstance(node, exp.Literal | exp.Boolean | exp.Null)
    return is_plain or written(node) is not None or constant_text(node) is not None


def like_pattern(pattern: str, *, escape: str, ignore_case: bool = False) -> Callable[[str], bool]:
    """Returns a function that tells which texts match a pattern of LIKE, where ``%`` is any text.

    Args:
        pattern: The pattern. ``_`` is any one character.
        escape: The character after which ``%`` and ``_`` stand for themselves. Empty for none.
        ignore_case: Whether upper and lower case are the same, as in ILIKE.
    """
    segments = [""]
    letters = rf"{re.escape(escape)}(.)|(.)" if escape else "()(.)"
    for escaped, letter in re.findall(letters, pattern, re.DOTALL):
        if letter == "%":
            segments.append("")
        else:
            segments[-1] += "." if letter == "_" else re.escape(escaped or letter)
    first, *middle = segments
    last = f".*{middle.pop()}" if middle else ""
    # Each piece in the middle matches where it first can and nowhere else, so no pattern takes long.
    pieces = [first, *(f"(?>.*?{piece})" for piece in middle if piece), last]
    found = re.compile("".join(pieces), re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    return lambda text: found.fullmatch(text) is not None
