"""Texts of statements: cut at semicolons, with values in place of ``$1``, and with names after AS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError

from stream_dp.errors import InvalidQuery
from stream_dp.gateway.catalogs.catalog_syntax import parsed
from stream_dp.gateway.catalogs.catalog_tables import CatalogFault
from stream_dp.gateway.pg_types import NAMES, OIDS, type_named
from stream_dp.gateway.protocol.field_values import Parameter
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.precision_texts import read_clauses

_OPAQUE: Final = (
    r"""[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*+|/\*.*?\*/"""
)
_PIECES: Final = re.compile(
    rf"{_OPAQUE}|(?<![\w$])\$(?P<tag>[A-Za-z_]?\w*)\$.*?\$(?P=tag)\$|(?<![\w$])\$(?P<number>\d+)|(?P<end>;)",
    re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_QUESTIONS: Final = frozenset({"select", "with", "values"})
_REMEMBERED: Final = 1_000
_UNKNOWN: Final = (0, 705)
_MOST_PARAMETERS: Final = 1_000
_NUMBERS: Final = frozenset({"int2", "int4", "int8", "oid", "float4", "float8", "numeric"})


@dataclass(frozen=True, slots=True)
class StatementPiece:
    """One statement of a text.

    Attributes:
        text: The statement without blanks and comments before it.
        offset: Where it begins in the text.
    """

    text: str
    offset: int

    @property
    def word(self) -> str:
        """Its first word in lower case."""
        found = re.match(r"[(\s]*([A-Za-z]+)", self.text)
        return found[1].lower() if found else ""

    @property
    def is_question(self) -> bool:
        """Whether it asks for rows. All others are commands."""
        return self.word in _QUESTIONS


@lru_cache(_REMEMBERED)
def pieces_of(text: str) -> tuple[StatementPiece, ...]:
    """Returns the statements of a text, which semicolons separate."""
    ends = [found.start() for found in _PIECES.finditer(text) if found["end"]]
    pieces, begin = [], 0
    for end in [*ends, len(text)]:
        blank = _BLANK.match(text, begin, end)
        start = blank.end() if blank else begin
        if said := text[start:end].strip():
            pieces.append(StatementPiece(said, start))
        begin = end + 1
    return tuple(pieces)


@lru_cache(_REMEMBERED)
def parameters_in(text: str) -> tuple[tuple[int, int, int], ...]:
    """Returns where each parameter begins and ends in a statement, and its number.

    Raises:
        SqlFault: A number is too large.
    """
    found = tuple(
        (one.start(), one.end(), int(one["number"]))
        for one in _PIECES.finditer(text)
        if one["number"]
    )
    if any(not 1 <= number <= _MOST_PARAMETERS for _, _, number in found):
        raise SqlFault("54000", f"a parameter is not one of $1 to ${_MOST_PARAMETERS}")
    return found


def bound(text: str, literals: Sequence[str]) -> str:
    """Returns a statement with a literal in place of each parameter."""
    found, at = [], 0
    for start, end, number in parameters_in(text):
        found += [text[at:start], literals[number - 1]]
        at = end
    return "".join([*found, text[at:]])


def literal(value: Parameter, kind: str) -> str:
    """Returns a value as it is written in a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        inner = kind.removeprefix("_")
        return f"ARRAY[{', '.join(literal(one, inner) for one in value)}]"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float) or kind in _NUMBERS:
        return str(value)
    return "'" + value.replace("'", "''") + "'"


@lru_cache(_REMEMBERED)
def tree_of(text: str) -> Any:
    """Returns the tree of a question in the grammar of Postgres, without our clauses at its end.

    Copy the tree before you change it.

    Raises:
        SqlFault: It cannot be read.
    """
    try:
        return parsed(without_clauses(text))
    except CatalogFault as fault:
        raise SqlFault(fault.state, fault.message) from None


def without_clauses(text: str) -> str:
    """Returns a statement without WITHIN and COSTING AT MOST, which only we have."""
    try:
        tokens = sqlglot.tokenize(text, read="postgres")
        return text[: read_clauses(tokens, len(text), _unread).at]
    except (TokenError, InvalidQuery):
        return text


def _unread(offset: int, problem: str, fix: str) -> InvalidQuery:
    return InvalidQuery(str(offset), problem, fix)


def parameter_types(
    text: str, given: Sequence[int], type_of_column: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the type of each parameter: as given, or as what it is compared with, or cast to.

    Args:
        text: The statement.
        given: The types that the client says, as oids.
        type_of_column: The types of columns by name. Other names are texts.
    """
    numbers = [number for _, _, number in parameters_in(text)]
    found = {
        place: NAMES.get(oid, "text") for place, oid in enumerate(given, 1) if oid not in _UNKNOWN
    }
    n = max([*numbers, len(given)], default=0)
    if n and StatementPiece(text, 0).is_question and len(found) < n:
        for node in tree_of(text).find_all(exp.Parameter, exp.Placeholder):
            number = str(node.name)
            if number.isdigit() and int(number) not in found:
                found[int(number)] = _type_by_place(node, type_of_column)
    return tuple(found.get(place, "text") for place in range(1, n + 1))


def _type_by_place(node: Any, type_of_column: Mapping[str, str]) -> str:
    """Returns the type of a parameter by what stands around it."""
    around, is_array = node.parent, False
    while isinstance(around, exp.Paren | exp.Any | exp.Tuple):
        is_array |= isinstance(around, exp.Any)
        around = around.parent
    if isinstance(around, exp.Cast):
        return type_named(around.to.sql(dialect="postgres")) or "text"
    if isinstance(around, exp.Limit | exp.Offset):
        return "int8"
    kind = "text"
    if isinstance(around, exp.Predicate | exp.Binary):
        columns = (one for one in around.iter_expressions() if isinstance(one, exp.Column))
        kind = next((type_of_column.get(one.name.lower(), "text") for one in columns), "text")
        if isinstance(around, exp.Binary) and any(
            _is_count(one) for one in around.iter_expressions()
        ):
            kind = "int8"
    array = f"_{kind}"
    return array if is_array and array in OIDS else kind


def _is_count(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "count"
