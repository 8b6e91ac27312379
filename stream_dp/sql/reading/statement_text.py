"""The analyst's text: from it to one SELECT, and from a fault to an error that points into the text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import TokenType

from stream_dp.errors import InvalidQuery
from stream_dp.precision_texts import Clauses, read_clauses
from stream_dp.sql.reading.attribute_names import example, is_keyword, is_word, quoted
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.tool_forms import as_plain_sql, name_keywords
from stream_dp.sql.reading.unread_clauses import check_read

MAX_LENGTH: Final = 10_000
_MOST_NESTED: Final = 32

_AFTER_NAME_NOT: Final = "IN BETWEEN LIKE ILIKE RLIKE NULL"
_AFTER_NAME: Final = (
    f"{_AFTER_NAME_NOT} AND OR XOR IS ISNULL NOTNULL GROUP_BY ORDER_BY HAVING LIMIT"
)
"""Words that follow the name of an attribute, where FRESH is such a name."""

_CLAUSES: Final = "expressions from_ joins where group having order limit offset distinct with_"
"""The clauses of a SELECT that are answered, as sqlglot names them."""

_STATEMENTS: Final = "ALTER CREATE DELETE DESCRIBE DROP EXPLAIN INSERT MERGE UPDATE WITH"
_WORDS: Final = "SELECT FROM WHERE GROUP HAVING ORDER LIMIT WITHIN COSTING"
_QUOTED: Final = (
    r"""--[^\n]* | /\*(?s:.*?)\*/ | '(?:[^']|'')*+' | "(?:[^"]|"")*+" | `(?:[^`]|``)*+`"""
)
_TOP: Final = re.compile(r"\bSELECT\s+(?:DISTINCT\s+)?(TOP)\b[\s(]*+(\d+)", re.IGNORECASE)


class StatementText:
    """The analyst's text, with the means to point into it.

    Args:
        text: A SELECT, or a condition by itself, which stands for ``SELECT COUNT(*) WHERE`` and it. A
            semicolon at its end, which other programs write, is left out.
        attributes: The attributes of the data set.

    Attributes:
        fresh_at: Where a leading FRESH stands. None without one.
        clauses: WITHIN and COSTING AT MOST at its end.
        is_select: Whether it is a SELECT itself, and not a condition that stands for one.
    """

    def __init__(self, text: str, attributes: Sequence[Mapping[str, Any]]) -> None:
        bare = text.rstrip()
        self._text = bare[:-1] if bare.endswith(";") else text
        self._attributes = attributes
        self._names = [attribute["name"] for attribute in attributes]
        self._prefix = ""
        self.fresh_at: int | None = None
        self.clauses = Clauses(len(self._text), {})
        self.is_select = True

    @contextmanager
    def pointing(self) -> Iterator[None]:
        """Makes each fault an error that points into the text.

        Raises:
            InvalidQuery: There is a fault. ``field`` is its position.
        """
        try:
            yield
        except Fault as fault:
            raise self._error(fault) from None
        except RecursionError:
            raise self._error(Fault(0, "this is nested too deeply", "ask in parts")) from None

    def select(self) -> Any:
        """Returns the one SELECT of the text, or the one that a condition stands for.

        Raises:
            Fault: It is not one SELECT, or has a clause that is not answered.
        """
        tokens = self._without_fresh(self._tokens())
        self._check_tokens(tokens)
        self.clauses = read_clauses(tokens, len(self._text), Fault)
        self._prefix = _prefix_of_condition(tokens)
        self.is_select = not self._prefix
        try:
            statement = _parsed(self._prefix + self._text[: self.clauses.at])
        except ParseError as error:
            raise self._syntax_fault(error.errors[0], tokens) from None
        if not isinstance(statement, exp.Select):
            raise Fault(0, "this is not one SELECT", "ask one query at a time")
        for clause, content in statement.args.items():
            if content and clause not in _CLAUSES.split():
                at = content[0] if isinstance(content, list) else content
                word = "WINDOW" if clause == "windows" else clause.strip("_").upper()
                raise Fault(
                    at if isinstance(at, exp.Expression) else 0,
                    f"{word} is not answered",
                    "use SELECT, FROM, JOIN, WHERE, GROUP BY, HAVING, ORDER BY and LIMIT",
                )
        check_read(statement)
        as_plain_sql(statement, self._attributes)
        return statement

    # ------------------------------------------------------------ tokens

    def _tokens(self) -> Sequence[Any]:
        """Returns the tokens of the text, if it has any and is not too long."""
        if len(self._text) > MAX_LENGTH:
            raise Fault(0, f"this is longer than {MAX_LENGTH} characters", "ask in parts")
        try:
            tokens: Sequence[Any] = sqlglot.tokenize(self._text, Grammar)
        except TokenError:
            closed = re.match(rf"(?: {_QUOTED} | [^'\"`] )*+", self._text, re.VERBOSE)
            offset = closed.end() if closed else 0
            if offset == len(self._text):
                problem, fix = "the text ends too early", "close what it opens"
            else:
                problem = f"this {self._text[offset]} is not closed"
                fix = f"add another {self._text[offset]}"
            raise Fault(offset, problem, fix, sort="syntax") from None
        if not tokens:
            problem = "there is no condition"
            raise Fault(0, problem, "write one, or TRUE for every row", sort="syntax")
        return tokens

    def _without_fresh(self, tokens: Sequence[Any]) -> Sequence[Any]:
        """Takes a leading FRESH out of the tokens, and puts blanks in its place in the text.

        An attribute may be named fresh. So the word counts only where a SELECT or a condition begins after
        it.
        """
        first, *others = tokens
        if first.text.upper() != "FRESH" or first.token_type != TokenType.VAR or not others:
            return tokens
        following = [token.token_type.name for token in others[:2]]
        is_operator = re.match(r"[\w\"`'(]", self._text[others[0].start]) is None
        is_negated = following[0] == "NOT" and following[-1] in _AFTER_NAME_NOT.split()
        if is_operator or is_negated or following[0] in _AFTER_NAME.split():
            return tokens
        self.fresh_at = first.start
        self._text = f"{self._text[: first.start]}     {self._text[first.end + 1 :]}"
        return others

    def _check_tokens(self, tokens: Sequence[Any]) -> None:
        """Refuses what is not one statement of ours, before all else is read."""
        words = [token.text.upper() for token in tokens[:3]]
        if words == ["SELECT", "WITH", "DIFFERENTIAL_PRIVACY"]:
            raise Fault(
                tokens[1].start,
                "every answer is private here",
                "omit WITH DIFFERENTIAL_PRIVACY and its OPTIONS; write WITHIN 0.5% OF ROWS or COSTING AT "
                "MOST 2% at the end",
            )
        depth = 0
        for token in tokens:
            if token.token_type == TokenType.SEMICOLON:
                problem = "a semicolon is not allowed here"
                raise Fault(token.start, problem, "omit it", sort="syntax")
            depth += token.token_type == TokenType.L_PAREN
            depth -= token.token_type == TokenType.R_PAREN
            if depth > _MOST_NESTED:
                problem = f"parentheses nest deeper than {_MOST_NESTED}"
                raise Fault(token.start, problem, "ask in parts")
        bare = re.sub(_QUOTED, lambda found: " " * len(found[0]), self._text, flags=re.VERBOSE)
        for name in self._names:  # SQL would read it as arithmetic, as a function or as two names
            if not is_word(name) and name[:1].isalpha() and (found := _bare(name, bare)):
                problem = f"SQL does not read {name} as one name"
                raise Fault(found.start(), problem, _quoting(name))
        if (found := _TOP.search(bare)) is not None:
            fix = f"write ORDER BY and LIMIT {found[2]} at the end"
            raise Fault(found.start(1), "TOP is not answered", fix)

    # ------------------------------------------------------------ errors

    def _error(self, fault: Fault) -> InvalidQuery:
        """Returns the error of a fault at a node, or at an offset into the text."""
        offset = fault.at if isinstance(fault.at, int) else self._offset(fault.at)
        before = self._text[:offset]
        place = f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
        fix = (self._quoting_of() if fault.of_name else None) or fault.fix
        return InvalidQuery(
            place, fault.problem, fix, reason=fault.reason, sort=fault.sort, offset=offset
        )

    def _offset(self, node: Any) -> int:
        """Returns where the node begins, or where the nearest node around it with a known position begins."""
        while node is not None:
            starts: list[int] = [n.meta["start"] for n in node.walk() if "start" in n.meta]
            if starts:
                return max(min(starts) - len(self._prefix), 0)
            node = node.parent
        return 0

    def _syntax_fault(self, fault: Mapping[str, Any], tokens: Sequence[Any]) -> Fault:
        first = self._text.split(maxsplit=1)[0].upper()
        if first in _STATEMENTS.split():
            fix = "ask in a SELECT; data sets are defined and filled with stream-dp"
            return Fault(0, f"{first} is not answered", fix)
        piece = fault["highlight"]
        # It searches for the surroundings, because the parser's columns are wrong after the first line.
        context = fault["start_context"] + piece + fault["end_context"]
        whole = self._prefix + self._text
        offset = whole.find(context) + len(fault["start_context"]) - len(self._prefix)
        problem = f"{short(piece)} is not understood here"
        if fault["description"].startswith("Required keyword"):
            problem = f"something is missing around {short(piece)}"
        elif fault["description"].startswith("Expecting"):
            expected = fault["description"].removeprefix("Expecting ")
            problem = f"{expected} is expected after {short(piece)}"
        dashed = re.search(r"\b(?:FROM|JOIN)\s+(\w[\w.]*-[\w.-]+)", self._text, re.IGNORECASE)
        fix = (
            {"&&": "write AND", "!": "write NOT, or <>"}.get(piece)
            or self._misspelt(tokens)
            or self._quoting_of(piece)
            or (dashed and _quoting(dashed[1]))
            or f"write a condition such as {example(self._attributes) or 'age >= 30'}"
        )
        return Fault(max(offset, 0), problem, fix, sort="syntax")

    def _quoting_of(self, piece: str = "") -> str | None:
        """Returns the fix if an attribute's name lacks the double quotes that it needs."""
        for name in self._names:
            keyword = name.lower() == piece.lower() and is_keyword(name)
            if (keyword or not is_word(name)) and _bare(name, self._text):
                return _quoting(name)
        return None

    def _misspelt(self, tokens: Sequence[Any]) -> str | None:
        """Returns the fix if a word is nearly one of SQL, and no attribute."""
        known = {name.upper() for name in self._names}
        words = [token.text for token in tokens if token.token_type == TokenType.VAR]
        for word in words:
            near = difflib.get_close_matches(word.upper(), _WORDS.split(), 1, 0.75)
            if near and word.upper() not in known:
                return f"did you mean {near[0]} in place of {word}?"
        return None


def _parsed(text: str) -> Any:
    """Returns the tree of a text."""
    tokens = sqlglot.tokenize(text, Grammar)
    name_keywords(tokens)
    (statement, *_) = Grammar().parser().parse(tokens, text)
    return statement


def _bare(name: str, text: str) -> re.Match[str] | None:
    """Finds a name in a text where it stands without quotes."""
    return re.search(rf'(?<![\w"`]){re.escape(name)}(?![\w"`])', text, re.IGNORECASE)


def _quoting(name: str) -> str:
    return f"write this name in double quotes: {quoted(name)}"


def _prefix_of_condition(tokens: Sequence[Any]) -> str:
    """Returns the prefix that makes the text a SELECT. Its final newline keeps the columns right."""
    first = tokens[0].token_type
    if first in (TokenType.SELECT, TokenType.WITH):
        return ""
    is_clause = first in (TokenType.WHERE, TokenType.GROUP_BY)
    return "SELECT COUNT(*)\n" if is_clause else "SELECT COUNT(*) WHERE\n"
