"""Texts of statements: cut at semicolons, and with values in place of ``$1``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, NamedTuple, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError

from stream_dp.errors import InvalidQuery
from stream_dp.gateway.catalogs.catalog_syntax import parsed
from stream_dp.gateway.pg_types import NAMES, OIDS, type_named
from stream_dp.gateway.protocol.field_values import NUMBERS, Parameter
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.precision_texts import read_clauses

T = TypeVar("T")

_MARK: Final = re.compile(r"""'|"|--|/\*|\$|;""")
_DOLLAR: Final = re.compile(r"\$(?:(?P<number>\d+)|(?:[A-Za-z_]\w*)?\$)")
_BLANK: Final = re.compile(r"(?:\s+|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_QUESTIONS: Final = frozenset({"select", "with", "values"})
MOST_CHARACTERS: Final = 20_000
"""The most characters of one statement."""

_REMEMBERED: Final = 1_000
_QUICK: Final = 2_000
_DIGITS: Final = 9
_UNKNOWN: Final = (0, 705)
_MOST_PARAMETERS: Final = 1_000


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


class _Marks(NamedTuple):
    """Where statements end in a text, and where parameters stand in it: begin, end and number."""

    ends: tuple[int, ...]
    parameters: tuple[tuple[int, int, int], ...]


def _marks(text: str) -> _Marks:
    """Reads a text once from its start to its end. What does not end covers all that follows."""
    ends, parameters, at = list[int](), list[tuple[int, int, int]](), 0
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        begin = mark.start()
        match mark[0]:
            case ";":
                ends.append(begin)
            case "--":
                at = _after(text, "\n", at)
            case "/*":
                at = _after(text, "*/", at)
            case "$":
                found = _DOLLAR.match(text, begin)
                if found is None or (begin and _is_word(text[begin - 1])):
                    continue
                if found["number"]:
                    parameters.append((begin, found.end(), int(found["number"][:_DIGITS])))
                    at = found.end()
                else:
                    at = _after(text, found[0], found.end())
            case quote:
                at = _after_quoted(text, quote, begin)
    return _Marks(tuple(ends), tuple(parameters))


def _after(text: str, end: str, at: int) -> int:
    found = text.find(end, at)
    return len(text) if found < 0 else found + len(end)


def _after_quoted(text: str, quote: str, begin: int) -> int:
    """Returns where a text in quotes ends. Two quotes in it are one; after E, backslashes hide quotes."""
    escapes = text[begin - 1 : begin] in ("e", "E") and not _is_word(text[begin - 2 : begin - 1])
    at = begin + 1
    while (found := text.find(quote, at)) >= 0:
        if escapes and (len(text[at:found]) - len(text[at:found].rstrip("\\"))) % 2:
            at = found + 1
        elif text[found + 1 : found + 2] == quote:
            at = found + 2
        else:
            return found + 1
    return len(text)


def _is_word(sign: str) -> bool:
    return sign == "$" or sign == "_" or sign.isalnum()


def _remembered(work: Callable[[str], T]) -> Callable[[str], T]:
    """Remembers what a function gives for short texts. Long ones would take memory, and are rare."""
    short = lru_cache(_REMEMBERED)(work)

    @wraps(work)
    def call(text: str) -> T:
        return short(text) if len(text) <= MOST_CHARACTERS else work(text)

    return call


@_remembered
def pieces_of(text: str) -> tuple[StatementPiece, ...]:
    """Returns the statements of a text, which semicolons separate.

    Raises:
        SqlFault: One of them is too long.
    """
    pieces, begin = [], 0
    for end in [*_marks(text).ends, len(text)]:
        blank = _BLANK.match(text, begin, end)
        start = begin if blank is None else blank.end()
        if said := text[start:end].strip():
            if len(said) > MOST_CHARACTERS:
                raise SqlFault("54000", f"a statement has more than {MOST_CHARACTERS:,} characters")
            pieces.append(StatementPiece(said, start))
        begin = end + 1
    return tuple(pieces)


@_remembered
def parameters_in(text: str) -> tuple[tuple[int, int, int], ...]:
    """Returns where each parameter begins and ends in a statement, and its number.

    Raises:
        SqlFault: A number is too large.
    """
    found = _marks(text).parameters
    if any(not 1 <= number <= _MOST_PARAMETERS for _, _, number in found):
        raise SqlFault("54000", f"a parameter is not one of $1 to ${_MOST_PARAMETERS}")
    return found


def bound(text: str, literals: Sequence[str]) -> str:
    """Returns a statement with a literal in place of each parameter.

    A blank stands on both sides, so that no sign before it makes a comment of a negative number.
    """
    found, at = [], 0
    for start, end, number in parameters_in(text):
        found += [text[at:start], " ", literals[number - 1], " "]
        at = end
    return "".join([*found, text[at:]])


def apart(text: str) -> str:
    """Returns a statement with a blank on both sides of each parameter, as parsers need it."""
    numbers = [number for _, _, number in parameters_in(text)]
    return bound(text, [f"${place}" for place in range(1, max(numbers, default=0) + 1)])


def literal(value: Parameter, kind: str) -> str:
    """Returns a value as it is written in a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        inner = kind.removeprefix("_")
        return f"ARRAY[{', '.join(literal(one, inner) for one in value)}]"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float) or kind in NUMBERS:
        return str(value)
    return "'" + value.replace("'", "''") + "'"


@_remembered
def _parsed(text: str) -> Any:
    """Returns the tree of a question, or why there is none."""
    try:
        return parsed(without_clauses(apart(text)))
    except SqlFault as fault:
        return fault.with_traceback(None)  # which would keep the text


def tree_of(text: str) -> Any:
    """Returns the tree of a question in the grammar of Postgres, without our clauses at its end.

    Copy the tree before you change it.

    Raises:
        SqlFault: It cannot be read.
    """
    found = _parsed(text)
    if isinstance(found, SqlFault):
        raise SqlFault(found.state, found.message)
    return found


async def read_ahead(text: str) -> None:
    """Parses a question in a thread if that takes long, so that what follows finds it."""
    if len(text) > _QUICK:
        await asyncio.to_thread(_parsed, text)


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
