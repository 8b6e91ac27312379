"""Reads SQL on the analyst's side, and translates its conditions.

A condition (``carrier = 'AA' AND arr_delay >= 30``) becomes the JSON tree of a query message. SQL's logic has
three values and the JSON tree has two. So every condition is translated twice: into the tree of the rows for
which it is true, and the tree of those for which it is false. A row in neither tree is unknown, and SQL omits
it: ``carrier <> 'AA'`` holds for no row without a carrier.

An error points at the piece of SQL: it names the line and column, quotes the text and says how to fix it.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import TokenType

from stream_dp.dates import (
    CYCLES,
    beginnings_in,
    first_number,
    labels_of,
    parts_in,
    parts_of,
    span_of,
)
from stream_dp.errors import InvalidQuery
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.unread_clauses import check_read
from stream_dp.sql.terms import sql_dates
from stream_dp.sql.terms.sql_dates import PERIODS
from stream_dp.within import Clauses, read_clauses

MAX_LENGTH = 10_000
MAX_NESTING = 32

Tree: TypeAlias = dict[str, Any]
_Attribute: TypeAlias = Mapping[str, Any]
_Constant: TypeAlias = str | float | bool

_EVERYTHING: Tree = {"all": []}
_NOTHING: Tree = {"any": []}

_MOST_UNKNOWNS = 5
_MOST_LOOKED_AT = 1 << 19
"""The most values that one text looks at: eight times the periods of the largest attribute."""

_MOST_LISTED = 262_144
"""The most bytes of values that a condition may list. No larger message is accepted."""


_CLAUSES = frozenset(
    {
        *("expressions", "from_", "joins", "where", "group", "having"),
        *("order", "limit", "offset", "distinct", "with_"),
    }
)
"""The clauses of a SELECT that are answered, as sqlglot names them."""

_FRESH = "FRESH"
_AFTER_NAME_NOT = frozenset(
    {
        TokenType.IN,
        TokenType.BETWEEN,
        TokenType.LIKE,
        TokenType.ILIKE,
        TokenType.RLIKE,
        TokenType.NULL,
    }
)
_AFTER_NAME = _AFTER_NAME_NOT | {
    TokenType.AND,
    TokenType.OR,
    TokenType.XOR,
    TokenType.IS,
    TokenType.ISNULL,
    TokenType.NOTNULL,
    TokenType.GROUP_BY,
    TokenType.ORDER_BY,
    TokenType.HAVING,
    TokenType.LIMIT,
}
"""Words that follow the name of an attribute, where FRESH is such a name."""

_MIRRORED = {"ge": "le", "le": "ge", "gt": "lt", "lt": "gt", "eq": "eq"}
_COMPLEMENT = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}
_ORDERED = {exp.GT: "gt", exp.GTE: "ge", exp.LT: "lt", exp.LTE: "le"}

_STATEMENTS = frozenset(
    {
        "ALTER",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DROP",
        "EXPLAIN",
        "INSERT",
        "MERGE",
        "UPDATE",
        "WITH",
    }
)
_CLOSED = re.compile(  # text in which every quote is closed
    r"""(?: --[^\n]* | /\*(?s:.*?)\*/ | '(?:[^']|'')*+' | "(?:[^"]|"")*+" | `(?:[^`]|``)*+` | [^'"`] )*+""",
    re.VERBOSE,
)
_QUOTED = re.compile(
    r"""--[^\n]* | /\*(?s:.*?)\*/ | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`""", re.VERBOSE
)
_TOP = re.compile(r"\bSELECT\s+(?:DISTINCT\s+)?(TOP)\b[\s(]*+(\d+)", re.IGNORECASE)
_WORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WITHIN", "COSTING")
_FOLDS: dict[Any, Callable[[str], str]] = {exp.Lower: str.lower, exp.Upper: str.upper}
_EQUALITY = {exp.EQ: False, exp.NEQ: True, exp.NullSafeEQ: False, exp.NullSafeNEQ: True}


def without_fresh(sql: str) -> tuple[int | None, str]:
    """Returns the position of a leading FRESH, if there is one, and the text with blanks in its place.

    An attribute may be named fresh. So the word counts only where a SELECT or a condition begins after it.
    """
    if len(sql) > MAX_LENGTH or sql.lstrip()[: len(_FRESH)].upper() != _FRESH:
        return None, sql
    try:
        first, *others = sqlglot.tokenize(sql, Grammar)
    except TokenError:
        return None, sql
    if first.text.upper() != _FRESH or first.token_type != TokenType.VAR or not others:
        return None, sql
    following = [token.token_type for token in others[:2]]
    is_operator = re.match(r"[\w\"`'(]", sql[others[0].start]) is None
    is_negated = following[0] == TokenType.NOT and following[-1] in _AFTER_NAME_NOT
    if is_operator or is_negated or following[0] in _AFTER_NAME:
        return None, sql
    return first.start, sql[: first.start] + " " * len(_FRESH) + sql[first.end + 1 :]


def without_semicolon(sql: str) -> str:
    """Returns the text without the semicolon at its end, which other programs write."""
    text = sql.rstrip()
    return text[:-1] if text.endswith(";") else sql


def example(attributes: Sequence[Mapping[str, Any]]) -> str:
    """Returns a condition on the first attributes of a definition, to show how to write one.

    Example:
        >>> from stream_dp import sql
        >>> sql.example([{"name": "age", "type": "number", "edges": [18, 30, 65]}])
        'age >= 18'
    """
    return " AND ".join(_example(attribute) for attribute in attributes[:2])


def _example(attribute: _Attribute) -> str:
    name = name_in_sql(attribute["name"])
    if attribute["type"] == "category":
        return f"{name} = {exp.Literal.string(attribute['values'][0]).sql(Grammar)}"
    if attribute["type"] == "number":
        return f"{name} >= {attribute['edges'][0]:.15g}"
    if attribute["type"] == "date":
        if attribute["by"] in CYCLES:
            return f"{name} = '{CYCLES[attribute['by']][0]}'"
        return f"{name} >= '{attribute['from']}'"
    return name


def name_in_sql(name: str) -> str:
    """Returns an attribute's name as SQL has it: in double quotes unless it is one plain word."""
    return name if _is_word(name) and not _is_keyword(name) else _quoted(name)


def _is_word(name: str) -> bool:
    return re.fullmatch(r"[^\W\d]\w*", name) is not None


def _outside_quotes(text: str) -> str:
    """Returns a text with blanks in place of comments, strings and names in quotes."""
    return _QUOTED.sub(lambda found: " " * len(found[0]), text)


@lru_cache(maxsize=4096)
def _is_keyword(word: str) -> bool:
    return bool(sqlglot.tokenize(word, Grammar)[0].token_type != TokenType.VAR)


def _quoted(name: str) -> str:
    text: str = exp.to_identifier(name, quoted=True).sql(Grammar)
    return text


@dataclass(frozen=True, slots=True)
class _Truth:
    """A condition in three-valued logic: the rows where it is true and where it is false."""

    true: Tree
    false: Tree

    def negated(self) -> _Truth:
        return _Truth(self.false, self.true)

    def known(self) -> _Truth:
        """IS TRUE: an unknown condition becomes false."""
        return _Truth(self.true, _not(self.true))


def _of(*, is_true: bool) -> _Truth:
    """A condition that is the same for all rows."""
    return _Truth(_EVERYTHING, _NOTHING) if is_true else _Truth(_NOTHING, _EVERYTHING)


class Source:
    """The analyst's text, with the means to point into it."""

    def __init__(self, text: str, attributes: Sequence[_Attribute]) -> None:
        self._text = text
        self._attributes = attributes
        self._prefix = ""
        self._looked_at = 0
        self.clauses = Clauses(len(text), {})

    def select(self) -> Any:
        """Returns the one SELECT of the text, or the one that a condition stands for."""
        tokens = self._checked_tokens()
        self._check_quoted()
        self._check_top()
        self.clauses = read_clauses(tokens, len(self._text), self.error)
        self._prefix = _prefix_of_condition(tokens)
        try:
            statement = sqlglot.parse_one(
                self._prefix + self._text[: self.clauses.at], dialect=Grammar
            )
        except ParseError as error:
            raise self._syntax_error(error.errors[0]) from None
        if not isinstance(statement, exp.Select):
            raise self.error(0, "this is not one SELECT", "ask one query at a time")
        for clause, content in statement.args.items():
            if content and clause not in _CLAUSES:
                raise self._clause_error(clause, content)
        check_read(statement, self._attributes, self.error)
        return statement

    @property
    def is_select(self) -> bool:
        """Whether the text that was read is a SELECT itself, and not a condition that stands for one."""
        return not self._prefix

    def _check_quoted(self) -> None:
        """Refuses a name of an attribute that SQL would read as arithmetic, as a function or as two names."""
        for name in (attribute["name"] for attribute in self._attributes):
            if _is_word(name) or not name[:1].isalpha():
                continue
            bare = rf'(?<![\w"`]){re.escape(name)}(?![\w"`])'
            for found in re.finditer(bare, _outside_quotes(self._text), re.IGNORECASE):
                raise self.error(
                    found.start(),
                    f"SQL does not read {name} as one name",
                    f"write this name in double quotes: {_quoted(name)}",
                )

    def _check_top(self) -> None:
        """Refuses SELECT TOP 5, which is LIMIT 5 in another database."""
        if (found := _TOP.search(_outside_quotes(self._text))) is not None:
            fix = f"write ORDER BY and LIMIT {found[2]} at the end"
            raise self.error(found.start(1), "TOP is not answered", fix)

    def look_at(self, at: Any, n: int) -> None:
        """Counts the ``n`` values that a piece looks at. Call it before they are looked at.

        Raises:
            InvalidQuery: There are too many of them in this text.
        """
        self._looked_at += n
        if self._looked_at > _MOST_LOOKED_AT:
            raise self.error(
                at,
                f"this text looks at more than {_MOST_LOOKED_AT:,} values of attributes and groups",
                "ask in parts, for fewer groups, or compare dates with a range, such as d < '2026-03'",
            )

    def tokens(self) -> list[Any]:
        """Returns the tokens of the text, as far as it has any."""
        try:
            return list(sqlglot.tokenize(self._text, Grammar))
        except TokenError:
            return []

    def _checked_tokens(self) -> list[Any]:
        """Returns the tokens of the text, if it is one query that is not too long or too deep."""
        if len(self._text) > MAX_LENGTH:
            raise self.error(0, f"this is longer than {MAX_LENGTH} characters", "ask in parts")
        try:
            tokens = sqlglot.tokenize(self._text, Grammar)
        except TokenError:
            raise self._token_error() from None
        if not tokens:
            raise self.error(0, "there is no condition", "write one, or TRUE for every row")
        depth = 0
        for token in tokens:
            if token.token_type == TokenType.SEMICOLON:
                raise self.error(token.start, "a semicolon is not allowed here", "omit it")
            depth += (token.token_type == TokenType.L_PAREN) - (
                token.token_type == TokenType.R_PAREN
            )
            if depth > MAX_NESTING:
                raise self.error(
                    token.start, f"parentheses nest deeper than {MAX_NESTING}", "ask in parts"
                )
        return list(tokens)

    def with_clauses(self, asked: Tree, select: Any) -> Tree:
        """Adds the fields of WITHIN and COSTING AT MOST to a query that can have them."""
        clauses, kind = self.clauses, asked["kind"]
        if not clauses.fields:
            return asked
        if kind not in ("predicate", "table", "sum", "share", "quantile", "correlation"):
            raise self.error(
                clauses.at,
                f"{kind} has neither WITHIN nor COSTING AT MOST",
                "omit them: a look of this kind has a fixed price",
            )
        error = clauses.fields.get("error")
        if isinstance(error, dict):
            if kind in ("share", "correlation"):
                return self._with_error_of_share(asked, error)
            fix = "write WITHIN 0.5% OF ROWS"
            if kind == "quantile":
                problem = "the error of a quantile is a share of the rows"
            elif "relative" in error and kind != "predicate":
                problem = "an error relative to the answer is for one COUNT only"
                if kind == "sum" and not asked.get("count_rows"):
                    fix = (
                        f"write WITHIN and a number in units of {asked['attribute']}, or {fix[6:]}"
                    )
            elif "value" in error and select.find(exp.Avg) and select.find(exp.Sum):
                problem = "an error in numbers is for SUM or for AVG, not for both"
            elif "value" in error and asked.get("count_rows"):
                problem = "an error in numbers is for SUM or AVG alone, without COUNT(*)"
            elif "value" in error and kind == "sum" and _computes(select):
                problem = (
                    "an error in numbers is for SUM or AVG of one attribute, without arithmetic"
                )
            elif "value" in error and select.find(exp.Avg):
                return {**asked, **clauses.fields, "error": {"mean": error["value"]}}
            else:
                return {**asked, **clauses.fields}
            raise self.error(clauses.at, problem, fix)
        return {**asked, **clauses.fields}

    def _with_error_of_share(self, asked: Tree, error: Mapping[str, float]) -> Tree:
        """Adds the clauses to a share or a correlation, whose error is a number below 1."""
        if "relative" in error:
            problem = "an error relative to the answer is for one COUNT only"
        elif error["value"] >= 1.0:
            problem = f"the error of a {asked['kind']} is not below 1"
        else:
            return {**asked, **self.clauses.fields}
        raise self.error(
            self.clauses.at,
            problem,
            f"write WITHIN 0.01 for a {asked['kind']} that is at most 0.01 off",
        )

    def error(self, at: Any, problem: str, fix: str, *, reason: str | None = None) -> InvalidQuery:
        """Returns the error at a node, or at an offset into the text."""
        offset = at if isinstance(at, int) else self._offset(at)
        before = self._text[:offset]
        line = before.count("\n") + 1
        column = offset - (before.rfind("\n") + 1) + 1
        return InvalidQuery(f"line {line}, column {column}", problem, fix, reason=reason)

    def _offset(self, node: Any) -> int:
        """Returns where the node begins, or where the nearest node around it with a known position begins."""
        while node is not None:
            starts: list[int] = [n.meta["start"] for n in node.walk() if "start" in n.meta]
            if starts:
                return max(min(starts) - len(self._prefix), 0)
            node = node.parent
        return 0

    def _clause_error(self, clause: str, content: Any) -> InvalidQuery:
        word = {"windows": "WINDOW"}.get(clause, clause.strip("_").upper())
        at = content[0] if isinstance(content, list) else content
        return self.error(
            at if isinstance(at, exp.Expression) else 0,
            f"{word} is not answered",
            "use SELECT, FROM, JOIN, WHERE, GROUP BY, HAVING, ORDER BY and LIMIT",
        )

    def _syntax_error(self, fault: Mapping[str, Any]) -> InvalidQuery:
        first = self._text.split(maxsplit=1)[0].upper()
        if first in _STATEMENTS:
            return self.error(
                0,
                f"{first} is not answered",
                "ask in a SELECT; data sets are defined and filled with stream-dp",
            )
        piece = fault["highlight"]
        # It searches for the surroundings, because the parser's columns are wrong after the first line.
        context = fault["start_context"] + piece + fault["end_context"]
        whole = self._prefix + self._text
        offset = whole.find(context) + len(fault["start_context"]) - len(self._prefix)
        if fault["description"].startswith("Required keyword"):
            problem = f"something is missing around {_short(piece)}"
        elif fault["description"].startswith("Expecting"):
            expected = fault["description"].removeprefix("Expecting ")
            problem = f"{expected} is expected after {_short(piece)}"
        else:
            problem = f"{_short(piece)} is not understood here"
        fix = (
            {"&&": "write AND", "!": "write NOT, or <>"}.get(piece)
            or self._misspelt()
            or self.quoting(piece)
            or self._dashed()
            or f"write a condition such as {example(self._attributes) or 'age >= 30'}"
        )
        return self.error(max(offset, 0), problem, fix)

    def quoting(self, piece: str = "") -> str | None:
        """Returns the fix if an attribute's name lacks the double quotes that it needs."""
        for name in (attribute["name"] for attribute in self._attributes):
            bare = rf'(?<!["\w]){re.escape(name)}(?!["\w])'
            keyword = name.lower() == piece.lower() and _is_keyword(name)
            if (keyword or not _is_word(name)) and re.search(bare, self._text, re.IGNORECASE):
                return f"write this name in double quotes: {_quoted(name)}"
        return None

    def _misspelt(self) -> str | None:
        """Returns the fix if a word is nearly one of SQL, and no attribute."""
        known = {attribute["name"].lower() for attribute in self._attributes}
        for token in self.tokens():
            word = token.text.upper()
            if token.token_type != TokenType.VAR or word.lower() in known:
                continue
            if near := difflib.get_close_matches(word, _WORDS, 1, 0.75):
                return f"did you mean {near[0]} in place of {token.text}?"
        return None

    def _dashed(self) -> str | None:
        """Returns the fix if the name of a data set lacks the double quotes that a dash needs."""
        found = re.search(r"\b(?:FROM|JOIN)\s+(\w[\w.]*-[\w.-]+)", self._text, re.IGNORECASE)
        return None if found is None else f"write this name in double quotes: {_quoted(found[1])}"

    def _token_error(self) -> InvalidQuery:
        closed = _CLOSED.match(self._text)
        offset = closed.end() if closed else 0
        if offset == len(self._text):
            return self.error(offset, "the text ends too early", "close what it opens")
        quote = self._text[offset]
        return self.error(offset, f"this {quote} is not closed", f"add another {quote}")


def _prefix_of_condition(tokens: Sequence[Any]) -> str:
    """Returns the prefix that makes the text a SELECT. Its final newline keeps the columns right."""
    first = tokens[0].token_type
    if first in (TokenType.SELECT, TokenType.WITH):
        return ""
    is_clause = first in (TokenType.WHERE, TokenType.GROUP_BY)
    return "SELECT COUNT(*)\n" if is_clause else "SELECT COUNT(*) WHERE\n"


class Translator:
    """Translates conditions on a schema to trees."""

    def __init__(
        self, source: Source, schema: Mapping[str, _Attribute], unit: Mapping[str, Any] | None
    ) -> None:
        self._source = source
        self._schema = schema
        self._unit = unit
        self._values: dict[str, frozenset[str]] = {}

    def _groups_alike(self, item: Any) -> bool:
        """Returns whether a function of a date has another value for each period of its attribute."""
        _, of = sql_dates.truncation_of(item) or sql_dates.part_of(item) or ("", item)
        return sql_dates.same_groups(self._dated(item, of)["by"], item)

    def _dated(self, item: Any, of: Any) -> _Attribute:
        """Returns the attribute of type date of which a function is taken."""
        attribute = self._column(of)
        if attribute["type"] != "date":
            raise self._error(
                item,
                f"{attribute['name']} is a {attribute['type']} and no date",
                "compare the attribute itself with a constant",
            )
        return attribute

    def _aggregate(self, item: Any) -> Tree:
        """Returns the fields that a quantile, a median or a mode asks for by itself."""
        function, subject = item, item.this
        if isinstance(item, exp.WithinGroup):
            function, ordered = item.this, item.expression.expressions
            upwards = len(ordered) == 1 and not ordered[0].args.get("desc")
            subject = ordered[0].this if upwards else None
        subject = None if subject is None else subject.unnest()
        if type(function) not in _VALUES or not isinstance(subject, exp.Column):
            fix = self._source.quoting() or _SELECTED
            raise self._error(item, f"{_short(item)} is not answered", fix)
        kind, word = _VALUES[type(function)]
        attribute = self._column(subject)
        name = attribute["name"]
        if not _has(kind, attribute):
            raise self._error(
                subject, f"{name} is a {attribute['type']}", f"ask for {word} of a number"
            )
        if kind != "quantile":
            return {"kind": kind, "attribute": name}
        if type(function) in _RANKS:
            return {"kind": kind, "attribute": name, "rank": _RANKS[type(function)]}
        rank = function.this if function is not item else item.args["quantile"]
        share = self._constant(rank)
        if isinstance(share, bool | str) or not 0 <= share <= 1:
            raise self._error(
                rank, f"{_short(rank)} is not a share", "write 0.9 for the 90% quantile"
            )
        return {"kind": kind, "attribute": name, "rank": share}

    def _counts_persons(self, count: Any) -> bool:
        """Returns whether a COUNT counts each person once, by the column that says whose row it is."""
        if self._unit is None or not isinstance(count.this, exp.Distinct):
            return False
        columns = count.this.expressions
        if len(columns) != 1 or not isinstance(columns[0], exp.Column):
            return False
        return bool(columns[0].name.lower() == self._unit["key"].lower())

    def _check_persons(self, item: Any) -> None:
        """Refuses a number of persons that no count of rows tells."""
        unit = self._unit
        assert unit is not None, "persons are counted"
        most = unit["rows_per_phase"]
        if most > 1:
            raise self._error(
                item,
                f"rows_per_phase is {most:,}, so a count is not one of persons",
                "use COUNT(*) for the rows that count",
            )
        if unit["lifetime"]:
            raise self._error(
                item,
                f"a person counts in at most {unit['phases']:,} phases here, so a count is not one of all "
                "persons",
                "use COUNT(*) for the rows that count",
            )

    def condition(self, node: Any) -> _Truth:
        """Translates a condition as ``truth`` does, and refuses one that lists more than a message holds."""
        truth = self.truth(node)
        if _listed_bytes(truth.true) > _MOST_LISTED:
            raise self._error(
                node,
                "this lists more values than one query can",
                "ask about fewer values at a time, or compare with a range",
            )
        return truth

    def truth(self, node: Any) -> _Truth:
        """Translates a condition to the rows where it is true and the rows where it is false."""
        node = node.unnest()
        kind = type(node)
        if kind is exp.And:
            parts = [self.truth(part) for part in node.flatten()]
            return _Truth(_all(p.true for p in parts), _any(p.false for p in parts))
        if kind is exp.Or:
            parts = [self.truth(part) for part in node.flatten()]
            return _Truth(_any(p.true for p in parts), _all(p.false for p in parts))
        if kind is exp.Not:
            return self.truth(node.this).negated()
        if kind is exp.Boolean:
            return _of(is_true=bool(node.this))
        if kind is exp.Column:
            return self._bare(node)
        if kind is exp.Is:
            return self._is(node)
        if is_in_nothing(node):
            for column in node.find_all(exp.Column):
                self._column(column)
            return _of(is_true=False)
        if (constant := self._of_constants(node)) is not None:
            return constant
        if (dated := self._of_part(node)) is not None:
            return dated
        if kind in (exp.In, *_EQUALITY) and any(type(side) in _FOLDS for side in _sides_of(node)):
            return self._folded(node)
        node = self._untruncated(node)
        if kind is exp.In:
            return self._in(node)
        if kind is exp.Between:
            return self._between(node)
        if kind in _EQUALITY:
            return self._equality(node)
        if kind in _ORDERED:
            return self._order(node)
        if kind in (exp.Like, exp.ILike, exp.Escape):
            return self._like(node)
        raise self._refusal(node)

    def _bare(self, node: Any) -> _Truth:
        attribute = self._column(node)
        if attribute["type"] != "boolean":
            name = attribute["name"]
            raise self._error(node, f"{name} is not a condition", f"compare it: {name} = ...")
        return _compared(attribute, {"attribute": attribute["name"], "eq": True})

    def _is(self, node: Any) -> _Truth:
        subject, state = node.this.unnest(), node.expression.unnest()
        if isinstance(state, exp.Boolean):
            truth = self.truth(subject)
            return (truth if state.this else truth.negated()).known()
        if not isinstance(state, exp.Null):
            raise self._error(
                node, f"IS {_short(state)} is not SQL", "use IS NULL, IS TRUE or IS FALSE, or ="
            )
        if not isinstance(subject, exp.Column):
            # Each of these has the tree of its condition twice, that many of them would become huge.
            if _unknowns_around(node) > _MOST_UNKNOWNS:
                raise self._error(
                    node,
                    f"IS NULL of conditions nests deeper than {_MOST_UNKNOWNS}",
                    "name the attributes: a IS NULL OR b IS NULL",
                )
            truth = self.truth(subject)
            return _Truth(_any([truth.true, truth.false]), _NOTHING).known().negated()
        attribute = self._column(subject)
        if not attribute.get("missing"):
            raise self._error(
                node,
                f"{attribute['name']} has no cell for missing values",
                "omit this condition",
            )
        return _Truth(_missing(attribute, is_missing=True), _missing(attribute, is_missing=False))

    def _of_constants(self, node: Any) -> _Truth | None:
        """Returns a comparison of constants alone, such as 1 = 1. None for any other condition."""
        pieces = [
            *_sides_of(node),
            *(node.expressions if isinstance(node, exp.In) else _listed_by(node)),
        ]
        if len(pieces) < 2 or not all(
            _is_constant(p) and not isinstance(p, exp.Cast) for p in pieces
        ):
            return None
        values = [None if isinstance(p, exp.Null) else self._constant(p) for p in pieces]
        if len({isinstance(value, str) for value in values if value is not None}) > 1:
            raise self._error(
                node, "this compares a text with a number", "compare constants of one type"
            )
        holds = _compared_constants(node, values)
        return _Truth(_NOTHING, _NOTHING) if holds is None else _of(is_true=holds)

    def _in(self, node: Any) -> _Truth:
        attribute = self._column(node.this)
        self._check_listed(node)
        truth = _compared(attribute, self._member(attribute, _listed_by(node)))
        return _Truth(truth.true, _NOTHING) if lists_null(node) else truth

    def _check_listed(self, node: Any) -> None:
        """Refuses IN with anything but a list."""
        if any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise self._error(node, "IN takes a list of constants", "write IN ('AA', 'UA')")

    def _between(self, node: Any) -> _Truth:
        if node.args.get("symmetric"):
            raise self._error(node, "SYMMETRIC is not answered", "put the lower bound first")
        attribute = self._column(node.this)
        self._check_ordered(attribute, node)
        low = self._in_order(attribute, node.args["low"])
        high = self._in_order(attribute, node.args["high"], ends=True)
        name = attribute["name"]
        return _Truth(
            {"attribute": name, "between": [low, high]},
            _any([{"attribute": name, "lt": low}, {"attribute": name, "gt": high}]),
        )

    def _of_part(self, node: Any) -> _Truth | None:
        """Returns a comparison of a part of a date, as EXTRACT takes it. None if the node is not one.

        The part of a date outside the bounds of its attribute is unknown.
        """
        found = [(side, sql_dates.part_of(side)) for side in _sides_of(node)]
        parts = [(side, part) for side, part in found if part is not None]
        if not parts:
            return None
        ((side, (part, of)), *_) = parts
        attribute = self._dated(side, of)
        holds = self._test_of_part(node, side)
        labels = self._labels(attribute, side)
        values = self._parts(attribute, part, side)
        satisfied = {value for value in set(values) if holds(value)}
        true, false = (
            _periods(
                attribute, labels, [i for i, v in enumerate(values) if (v in satisfied) is said]
            )
            for said in (True, False)
        )
        truth = _Truth(true, _NOTHING if lists_null(node) else false)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            truth = truth.known()
        return truth.negated() if _EQUALITY.get(type(node)) else truth

    def _labels(self, attribute: _Attribute, node: Any) -> tuple[str, ...]:
        """Returns the labels of the periods of an attribute, all of which a piece looks at."""
        labels = labels_of(*_calendar(attribute))
        self._source.look_at(node, len(labels))
        return labels

    def _parts(self, attribute: _Attribute, part: str, side: Any) -> tuple[int, ...]:
        """Returns the part of a date that each period of an attribute tells."""
        known = parts_of(attribute["by"])
        if part in known:
            return parts_in(*_calendar(attribute), part)
        raise self._error(
            side,
            f"{_short(side)} is not the same for all dates of a {attribute['by']} of {attribute['name']}",
            f"ask for {' or '.join(name.upper() for name in known)}",
            reason="cuts_bin",
        )

    def _periods_of(self, item: Any) -> tuple[_Attribute, Sequence[str | int]]:
        """Returns the attribute of a function of a date, and what it gives for each period."""
        truncated, taken = sql_dates.truncation_of(item), sql_dates.part_of(item)
        unit, of = truncated or taken or ("", item)
        attribute = self._dated(item, of)
        self._labels(attribute, item)
        calendar = _calendar(attribute)
        values = self._parts(attribute, unit, item) if taken else beginnings_in(*calendar, unit)
        if values is None:
            raise self._error(
                item,
                f"a {attribute['by']} of {attribute['name']} does not lie in one group of {_short(item)}",
                f"GROUP BY {name_in_sql(attribute['name'])}",
                reason="cuts_bin",
            )
        return attribute, values

    def _longer_periods(
        self, attribute: _Attribute, values: Sequence[str | int]
    ) -> list[tuple[str | int | None, Tree]]:
        """Returns the values of a function of a date, with the periods of each.

        They are unknown for dates outside the bounds, and for missing ones.
        """
        labels = labels_of(*_calendar(attribute))
        inside = {"attribute": attribute["name"], "between": [labels[0], labels[-1]]}
        places: dict[Any, list[int]] = {}
        for index, value in enumerate(values):
            places.setdefault(value, []).append(index)
        found: list[tuple[str | int | None, Tree]] = [
            (value, _periods(attribute, labels, chosen)) for value, chosen in places.items()
        ]
        if attribute["by"] in CYCLES and not attribute.get("missing"):
            return found  # every date is in one of them
        return [*found, (None, _not(inside))]

    def _test_of_part(self, node: Any, side: Any) -> Callable[[int], bool]:
        """Returns which numbers satisfy a comparison; for <> which do not."""

        def number(constant: Any) -> float:
            value = self._constant(constant)
            if isinstance(value, bool | str):
                raise self._error(
                    constant, f"{_short(constant)} is not a number", "write it without quotes"
                )
            return value

        if isinstance(node, exp.In):
            self._check_listed(node)
            listed = {number(constant) for constant in _listed_by(node)}
            return lambda value: value in listed
        if isinstance(node, exp.Between):
            low, high = number(node.args["low"]), number(node.args["high"])
            return lambda value: low <= value <= high
        swapped = node.this.unnest() is not side
        bound = number(node.this if swapped else node.expression)
        if type(node) in _EQUALITY:
            return lambda value: value == bound
        name = _ORDERED[type(node)]
        compare = getattr(operator, _MIRRORED[name] if swapped else name)
        return lambda value: bool(compare(value, bound))

    def _untruncated(self, node: Any) -> Any:
        """Returns a comparison of DATE_TRUNC as one of the date itself with a whole period."""
        for side in _sides_of(node):
            if (truncated := sql_dates.truncation_of(side)) is None:
                continue
            unit, of = truncated
            attribute = self._dated(side, of)
            node = node.copy()
            for constant, compared in compared_with(node):
                text = self._written_date(attribute, constant, ends=compared in sql_dates.ENDS)
                label = text and sql_dates.period_compared(unit, text, compared)
                if not label:
                    raise self._error(
                        side,
                        f"{_short(constant)} does not begin a {unit}",
                        f"compare {_short(side)} with the first day of a {unit}",
                    )
                constant.replace(exp.Literal.string(label))
            for again in _sides_of(node):
                if sql_dates.truncation_of(again) is not None:
                    again.replace(of.copy())
            return node
        return node

    def _equality(self, node: Any) -> _Truth:
        attribute, constant, _ = self._sides(node)
        truth = _compared(attribute, self._member(attribute, [constant]))
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            truth = truth.known()
        return truth.negated() if _EQUALITY[type(node)] else truth

    def _order(self, node: Any) -> _Truth:
        attribute, constant, swapped = self._sides(node)
        self._check_ordered(attribute, node)
        compared = _ORDERED[type(node)]
        compared = _MIRRORED[compared] if swapped else compared
        name = attribute["name"]
        value = self._in_order(attribute, constant, ends=compared in sql_dates.ENDS)
        return _Truth(
            {"attribute": name, compared: value},
            {"attribute": name, _COMPLEMENT[compared]: value},
        )

    def _in_order(self, attribute: _Attribute, node: Any, *, ends: bool = False) -> object:
        """Returns a constant that an attribute with an order is compared with, a date by one of its ends."""
        if attribute["type"] == "date":
            return self._date(attribute, node, ends=ends)
        if attribute["type"] == "number":
            return self._number(attribute, node)
        value = self._text(attribute, node)
        if value is _OTHER:
            raise self._error(
                node, "unlisted values have no place in the order", "compare a listed value"
            )
        return value

    def _like(self, node: Any) -> _Truth:
        """Translates a pattern to the listed values that match it and those that do not.

        Whether an unlisted value matches is unknown, so it is in neither tree.
        """
        subject, matches = self._pattern(node)
        return self._of_texts(node, self._column(subject), matches)

    def _folded(self, node: Any) -> _Truth:
        """Translates an equality of LOWER(x) or UPPER(x), as LIKE, to the listed values that satisfy it."""
        if isinstance(node, exp.In):
            self._check_listed(node)
        folded = next(side for side in _sides_of(node) if type(side) in _FOLDS)
        subject, fold = _unfolded(folded)
        if not isinstance(subject, exp.Column):
            raise self._refusal(folded)
        attribute = self._column(subject)
        wanted = {self._folded_constant(constant) for constant, _ in compared_with(node)}
        truth = self._of_texts(node, attribute, lambda text: fold(text) in wanted)
        if lists_null(node):
            return _Truth(truth.true, _NOTHING)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ) and attribute.get("missing"):
            truth = _Truth(truth.true, _any([truth.false, _missing(attribute, is_missing=True)]))
        return truth.negated() if _EQUALITY.get(type(node)) else truth

    def _folded_constant(self, node: Any) -> str:
        """Returns the text that LOWER or UPPER of something is compared with."""
        text = self._constant(node)
        if not isinstance(text, str):
            raise self._error(node, f"{_short(node)} is not a text", "write it in single quotes")
        return text

    def _of_texts(self, node: Any, attribute: _Attribute, matches: Callable[[str], bool]) -> _Truth:
        """Returns a condition on the text of a category, of whose unlisted values nothing is known."""
        name = attribute["name"]
        if attribute["type"] != "category":
            raise self._error(
                node, f"{name} is a {attribute['type']}, and has no text", "use = or IN"
            )
        self._source.look_at(node, len(attribute["values"]))
        chosen = [value for value in attribute["values"] if matches(value)]
        found = set(chosen)
        others = [value for value in attribute["values"] if value not in found]
        return _Truth(*(_any(_listed(name, values)) for values in (chosen, others)))

    def _pattern(self, node: Any) -> tuple[Any, Callable[[str], bool]]:
        """Returns what LIKE is about, and a function that tells for which texts it is true."""
        like, escape = (
            (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        )
        subject, fold = _unfolded(like.this)
        letter = "\\" if escape is None else str(self._constant(escape))
        if len(letter) > 1:
            raise self._error(escape, "ESCAPE takes one character", "write ESCAPE '!'")
        pattern = self._constant(like.expression)
        if not isinstance(pattern, str):
            raise self._error(like.expression, "LIKE takes a text", "write LIKE 'a%'")
        matches = like_pattern(
            pattern,
            escape=letter,
            ignore_case=isinstance(like, exp.ILike),
        )
        negated = bool(like.args.get("negate"))
        return subject, lambda text: matches(fold(text)) is not negated

    def _sides(self, node: Any) -> tuple[_Attribute, Any, bool]:
        """Returns the attribute, the constant, and whether the two are swapped."""
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(left, exp.Column):
            return self._column(left), right, False
        if isinstance(right, exp.Column):
            if not _is_constant(left):
                raise self._refusal(left)
            return self._column(right), left, True
        raise self._refusal(right if _is_constant(left) else left)

    def _member(self, attribute: _Attribute, constants: Sequence[Any]) -> Tree:
        """Returns the tree for an attribute that equals one of ``constants``."""
        name = attribute["name"]
        read = {
            "category": self._text,
            "number": self._number,
            "boolean": self._bool,
            "date": self._date,
        }
        values = [read[attribute["type"]](attribute, c) for c in constants]
        others = [{"attribute": name, "is_other": True}] if _OTHER in values else []
        listed = [v for v in values if v is not _OTHER]
        if len(listed) > 1:
            return _any([{"attribute": name, "in": listed}, *others])
        return _any([*({"attribute": name, "eq": v} for v in listed), *others])

    def _text(self, attribute: _Attribute, node: Any) -> object:
        """Returns a listed value of a category, or _OTHER."""
        name, listed = attribute["name"], attribute["values"]
        value = self._constant(node)
        text = _category_text(value)
        if name not in self._values:
            self._values[name] = frozenset(listed)
        if text in self._values[name]:
            return text
        has_other = attribute.get("other", True)
        if text == "other" and has_other:
            return _OTHER
        shown = ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
        folded = {v.lower(): v for v in listed}
        near = difflib.get_close_matches(text.lower()[:64], folded, 1)
        fixes = [f"did you mean '{folded[near[0]]}'?"] if near else []
        if not has_other:
            fixes.append("use a listed value")
        elif "other" in listed:
            fixes.append('all unlisted values together are asked by "is_other" in JSON')
        else:
            fixes.append(f"{name} = 'other' asks for all unlisted values together")
        problem = f"{_short(node)} is not a listed value of {name} ({shown})"
        raise self._error(node, problem, " ".join(fixes))

    def _number(self, attribute: _Attribute, node: Any) -> float:
        value = self._constant(node)
        if isinstance(value, bool | str):
            raise self._error(
                node,
                f"{_short(node)} is not a number, but {attribute['name']} is",
                "write it without quotes",
            )
        return value

    def _date(self, attribute: _Attribute, node: Any, *, ends: bool = False) -> object:
        """Returns a period: of the calendar as text, or one that comes again, by its label or number."""
        name, node = attribute["name"], node.unnest()
        text = self._written_date(attribute, node, ends=ends)
        value = text if text is not None else self._constant(node)
        labels = CYCLES.get(attribute["by"])
        if labels is not None:
            first = first_number(attribute["by"])
            numbers = range(first, first + len(labels))
            if value in labels or (isinstance(value, int) and value in numbers):
                return value
            fix = f"write '{labels[0]}' to '{labels[-1]}', or {numbers[0]} to {numbers[-1]}"
            if isinstance(value, str) and value[:3].title() in labels:
                fix = f"did you mean '{value[:3].title()}'? {fix}"
            elif text is not None and span_of(text) is not None and "day" not in self._schema:
                fix += f"; where phases have dates, day >= DATE '{text[:10]}' asks about these"
            raise self._error(node, f"{_short(node)} is not a period of {name}", fix)
        if text is None or span_of(text) is None:
            raise self._error(
                node,
                f"{_short(node)} is not a date, but {name} is",
                "write DATE '2026-03-14', or a longer period such as '2026-03'",
            )
        return text

    def _written_date(self, attribute: _Attribute, node: Any, *, ends: bool = False) -> str | None:
        """Returns the text of a constant, with a time as clocks in the attribute's zone showed it."""
        text = sql_dates.written(node)
        try:
            return text and sql_dates.on_clocks(text, attribute.get("timezone"), ends=ends)
        except InvalidQuery as fault:
            problem = f"{_short(node)} {fault.problem}"
            raise self._error(node, problem, fault.fix, reason=fault.reason) from None

    def _bool(self, attribute: _Attribute, node: Any) -> bool:
        value = self._constant(node)
        if value not in (0, 1):
            raise self._error(
                node,
                f"{attribute['name']} is true or false, not {_short(node)}",
                "write TRUE or FALSE",
            )
        return bool(value)

    def _constant(self, node: Any) -> _Constant:
        node = node.unnest()
        if isinstance(node, exp.Column):
            name = node.name
            if name not in self._schema:
                # In SQL a name in double quotes, or without quotes, is a column.
                raise self._error(
                    node,
                    f"there is no attribute {name}",
                    f"write a string in single quotes: '{name}'",
                    reason="unknown_attribute",
                )
            raise self._error(
                node, f"{name} is an attribute too", "compare an attribute with a constant"
            )
        if isinstance(node, exp.Null):
            raise self._error(
                node.parent, "nothing compares with NULL", "use IS NULL or IS NOT NULL"
            )
        if not _is_constant(node):
            raise self._refusal(node)
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Cast):
            raise self._refusal(node)
        if isinstance(node, exp.Neg):
            return -self._numeral(node.this)
        text = _constant_text(node)
        return self._numeral(node) if text is None else text

    def _numeral(self, node: Any) -> float:
        text = node.this
        try:
            value: float = int(text) if text.isdecimal() else float(text)
        except ValueError:
            value = math.nan
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(
                node, f"{_short(node)} is not a finite number", "write a number such as 29.5"
            )
        return value

    def _column(self, node: Any) -> _Attribute:
        """Returns the attribute that a column names. The case may differ if that is unambiguous."""
        node = node.unnest()
        if not isinstance(node, exp.Column):
            raise self._refusal(node)
        if node.table:
            raise self._error(node, f"{_short(node)} names a table", f"write {node.name} alone")
        name = node.name
        if name in self._schema:
            return self._schema[name]
        same = [n for n in self._schema if n.lower() == name.lower()]
        if len(same) == 1:
            return self._schema[same[0]]
        if (reserved := self._reserved(node)) is not None:
            raise reserved
        near = difflib.get_close_matches(name, self._schema, 3)
        fix = (
            f"did you mean {' or '.join(map(name_in_sql, near))}?"
            if near
            else f"use one of {', '.join(map(name_in_sql, self._schema))}"
        )
        if node.this.args.get("quoted") and not near:
            fix = f"{fix}; write a string in single quotes: '{name}'"
        raise self._error(node, f"there is no attribute {name}", fix, reason="unknown_attribute")

    def _reserved(self, node: Any) -> InvalidQuery | None:
        """The error of a name that means the time of a query, or whose row it is. None for others."""
        name = node.name.lower()
        if name in PERIODS:
            return self._error(
                node,
                f"{name} is the time of the query, and cannot stand here",
                "GROUP BY day, week, month or phase, or compare it: day >= DATE '2026-11-01'",
                reason="unknown_attribute",
            )
        if self._unit is not None and name == self._unit["key"].lower():
            return self._error(
                node,
                f"{node.name} says whose row it is, and no person can be named or grouped by",
                f"count persons with COUNT(DISTINCT {node.name})",
                reason="unknown_attribute",
            )
        return None

    def _check_ordered(self, attribute: _Attribute, node: Any) -> None:
        if attribute["type"] not in ("number", "date") and not attribute.get("ordered"):
            name, kind, values = attribute["name"], attribute["type"], attribute.get("values", ())
            listed = ", ".join(exp.Literal.string(value).sql(Grammar) for value in values[:6])
            among = (
                f": its values are {listed}" + (", ..." if len(values) > 6 else "")
                if values
                else ""
            )
            raise self._error(node, f"{name} is a {kind} and has no order", f"use = or IN{among}")

    def _refusal(self, node: Any) -> InvalidQuery:
        """Returns the error that says why a piece is not a condition or a constant."""
        quoting = self._source.quoting() if isinstance(node, exp.Binary | exp.Func) else None
        for kinds, problem, fix in _REFUSALS:
            if isinstance(node, kinds):
                return self._error(node, f"{problem}: {_short(node)}", quoting or fix)
        return self._error(
            node,
            f"{_short(node)} is not a condition that can be asked",
            "compare an attribute with a constant",
        )

    def _error(self, at: Any, problem: str, fix: str, *, reason: str | None = None) -> InvalidQuery:
        return self._source.error(at, problem, fix, reason=reason)


_OTHER = object()
"""Represents every unlisted value of a category."""

_VALUES = {
    exp.Sum: ("sum", "SUM"),
    exp.Avg: ("sum", "AVG"),
    exp.Quantile: ("quantile", "QUANTILE"),
    exp.ApproxQuantile: ("quantile", "QUANTILE"),
    exp.PercentileCont: ("quantile", "a percentile"),
    exp.PercentileDisc: ("quantile", "a percentile"),
    exp.Median: ("quantile", "MEDIAN"),
    exp.Min: ("quantile", "MIN"),
    exp.Max: ("quantile", "MAX"),
    exp.Mode: ("mode", "MODE"),
}
"""The aggregates of an attribute's values: the kind of query and its common name."""

_RANKS = {exp.Median: 0.5, exp.Min: 0.0, exp.Max: 1.0}
"""The ranks of quantiles with a name of their own."""

_SELECTED = (
    "use COUNT(*), a share of it, or SUM, AVG, MEDIAN, QUANTILE(x, 0.9), MIN, MAX or MODE "
    "of an attribute x"
)

_REFUSALS: tuple[tuple[Any, str, str], ...] = (
    (
        (exp.Glob, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo),
        "patterns are not answered",
        "use LIKE, or list the values with IN",
    ),
    ((exp.Query, exp.Exists), "subqueries are not answered", "write the condition itself"),
    ((exp.Literal, exp.Null, exp.Neg), "a constant is not a condition", "compare an attribute with it"),
    ((exp.Placeholder, exp.Parameter), "parameters are not filled in", "write the constant itself"),
    (exp.Case, "CASE is not answered", "combine conditions with AND and OR"),
    (exp.Cast, "casts are not answered", "compare the attribute as it is"),
    (exp.Connector, "only AND, OR and NOT combine conditions", "use only these"),
    (tuple(_VALUES), "an aggregate is not a condition", "write SELECT before it"),
    (
        (exp.StartsWith, exp.EndsWith, exp.Contains, exp.Left, exp.Right, exp.Substring),
        "functions are not answered",
        "use LIKE 'A%'",
    ),
    (exp.Func, "functions are not answered", "compare the attribute itself with a constant"),
    (exp.Predicate, "a comparison is not allowed here", "compare one at a time"),
    (exp.Binary, "arithmetic is not answered", "compute the constant, and compare the attribute itself"),
)  # fmt: skip


def _compared(attribute: _Attribute, tree: Tree) -> _Truth:
    """A comparison with a constant, which is unknown if the attribute is missing."""
    if not attribute.get("missing"):
        return _Truth(tree, _not(tree))
    return _Truth(tree, _all([_not(tree), _missing(attribute, is_missing=False)]))


def _listed(name: str, values: Sequence[str]) -> list[Tree]:
    """Returns the condition that a category has one of these listed values, as no or one tree."""
    if not values:
        return []
    equal = {"eq": values[0]} if len(values) == 1 else {"in": list(values)}
    return [{"attribute": name, **equal}]


def like_pattern(pattern: str, *, escape: str, ignore_case: bool = False) -> Callable[[str], bool]:
    """Returns a function that tells which texts match a pattern of LIKE, where ``%`` is any text.

    Args:
        pattern: The pattern. ``_`` is any one character.
        escape: The character after which ``%`` and ``_`` stand for themselves. Empty for none.
        ignore_case: Whether upper and lower case are the same, as in ILIKE.
    """
    segments, index = [""], 0
    while index < len(pattern):
        letter = pattern[index]
        if escape and letter == escape and index + 1 < len(pattern):
            index += 1
            segments[-1] += re.escape(pattern[index])
        elif letter == "%":
            segments.append("")
        else:
            segments[-1] += "." if letter == "_" else re.escape(letter)
        index += 1
    first, *middle = segments
    last = f".*{middle.pop()}" if middle else ""
    # Each piece in the middle matches where it first can and nowhere else, so no pattern takes long.
    pieces = [first, *(f"(?>.*?{piece})" for piece in middle if piece), last]
    found = re.compile("".join(pieces), re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    return lambda text: found.fullmatch(text) is not None


def _missing(attribute: _Attribute, *, is_missing: bool) -> Tree:
    return {"attribute": attribute["name"], "is_missing": is_missing}


def _all(trees: Iterable[Tree]) -> Tree:
    """Joins conditions by AND, without nesting."""
    return _combined("all", trees, absorbing=_NOTHING)


def _any(trees: Iterable[Tree]) -> Tree:
    """Joins conditions by OR, without nesting."""
    return _combined("any", trees, absorbing=_EVERYTHING)


def _combined(connective: str, trees: Iterable[Tree], *, absorbing: Tree) -> Tree:
    parts: list[Tree] = []
    for tree in trees:
        if tree == absorbing:
            return absorbing
        parts.extend(tree.get(connective, [tree]))
    return parts[0] if len(parts) == 1 else {connective: parts}


def _not(tree: Tree) -> Tree:
    if tree == _EVERYTHING:
        return _NOTHING
    if tree == _NOTHING:
        return _EVERYTHING
    negated: Tree = tree.get("not", {"not": tree})
    return negated


def _unknowns_around(node: Any) -> int:
    """Returns how many IS NULL of conditions are around a piece, itself included."""
    found = 0
    while node is not None:
        if isinstance(node, exp.Is) and isinstance(node.expression.unnest(), exp.Null):
            found += not isinstance(node.this.unnest(), exp.Column)
        node = node.parent
    return found


def _computes(select: Any) -> bool:
    """Returns whether a SELECT has arithmetic on what it selects."""
    arithmetic = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)
    return any(item.find(*arithmetic) is not None for item in select.expressions)


def _is_constant(node: Any) -> bool:
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal) and not node.this.is_string
    is_plain = isinstance(node, exp.Literal | exp.Boolean | exp.Null)
    return is_plain or _is_date(node) or _constant_text(node) is not None


def _is_date(node: Any) -> bool:
    return sql_dates.written(node) is not None


def _constant_text(node: Any) -> str | None:
    """Returns the text that constants make, such as 'a' || '%' or LOWER('A%'). None for anything else."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else None
    if type(node) in _FOLDS:
        text = _constant_text(node.this)
        return None if text is None else _FOLDS[type(node)](text)
    if isinstance(node, exp.DPipe | exp.Concat):
        pieces = node.expressions or (node.this, node.expression)
        texts = [text for piece in pieces if (text := _constant_text(piece)) is not None]
        return "".join(texts) if len(texts) == len(pieces) else None
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _unfolded(node: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Returns what LOWER or UPPER is of, and what it does; any other piece, and what changes nothing."""
    node = node.unnest()
    if type(node) in _FOLDS:
        return node.this.unnest(), _FOLDS[type(node)]
    return node, _as_it_is


def is_in_nothing(node: Any) -> bool:
    """Returns whether a condition is IN with an empty list."""
    return isinstance(node, exp.In) and not any(
        node.args.get(key) for key in ("expressions", "query", "unnest", "field")
    )


def lists_null(node: Any) -> bool:
    """Returns whether a comparison is IN with NULL: it is never false, as x might be the unknown value."""
    return isinstance(node, exp.In) and len(_listed_by(node)) < len(node.expressions)


def _compared_constants(node: Any, values: Sequence[_Constant | None]) -> bool | None:
    """Returns whether a comparison of constants holds; None where that is unknown, because of NULL."""
    first, *others = values
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return (first == others[0]) is not _EQUALITY[type(node)]
    if isinstance(node, exp.In):
        if first in others and first is not None:
            return True
        return None if None in values else False
    compared: list[tuple[str, Any]] = [("ge", others[0]), ("le", others[-1])]
    if not isinstance(node, exp.Between):
        compared = [(_ORDERED.get(type(node), "eq"), others[0])]
    holds = [
        None if None in (first, other) else bool(getattr(operator, name)(first, other))
        for name, other in compared
    ]
    if False not in holds and None in holds:
        return None
    return (False not in holds) is not _EQUALITY.get(type(node), False)


def is_group(item: Any) -> bool:
    """Returns whether an expression may be one of the groups: a column, or a function of a date."""
    if isinstance(item, exp.Column):
        return True
    return (sql_dates.truncation_of(item) or sql_dates.part_of(item)) is not None


def _has(kind: str, attribute: _Attribute) -> bool:
    """Returns whether an attribute has a mode, a sum, or quantiles, which need an order of all values."""
    if kind == "mode" or attribute["type"] == "number":
        return True
    listed = attribute.get("ordered") and not attribute.get("other", True)
    return kind != "sum" and (attribute["type"] == "date" or bool(listed))


def _sides_of(node: Any) -> list[Any]:
    """Returns what a comparison compares: both sides, or what IN and BETWEEN are about."""
    if isinstance(node, exp.In | exp.Between):
        return [node.this.unnest()]
    if type(node) in _EQUALITY or type(node) in _ORDERED:
        return [node.this.unnest(), node.expression.unnest()]
    return []


def _listed_by(node: Any) -> list[Any]:
    """Returns the constants that IN and BETWEEN compare with, without the NULL in a list."""
    if isinstance(node, exp.In):
        return [each for each in node.expressions if not isinstance(each.unnest(), exp.Null)]
    return [node.args["low"], node.args["high"]] if isinstance(node, exp.Between) else []


def compared_with(node: Any) -> list[tuple[Any, str]]:
    """Returns what a comparison of one column compares it with, each with how the column compares with it."""
    if isinstance(node, exp.Between):
        return [(node.args["low"], "ge"), (node.args["high"], "le")]
    if isinstance(node, exp.In):
        return [(each, "eq") for each in _listed_by(node)]
    if not (type(node) in _EQUALITY or type(node) in _ORDERED):
        return []
    left, right = node.this, node.expression
    compared = _ORDERED.get(type(node), "eq")
    if _is_constant(left.unnest()):
        return [(left, _MIRRORED[compared])]
    return [(right, compared)]


def _calendar(attribute: _Attribute) -> tuple[str, str | None, str | None]:
    """Returns the periods of an attribute of type date, and their bounds."""
    return attribute["by"], attribute.get("from"), attribute.get("until")


def _periods(attribute: _Attribute, labels: Sequence[str], chosen: Sequence[int]) -> Tree:
    """Returns the tree for some of the periods of an attribute.

    Args:
        attribute: The attribute.
        labels: The labels of all its periods.
        chosen: The places of those that are meant, ascending.
    """
    name = attribute["name"]
    if len(chosen) < 2:
        return _any({"attribute": name, "eq": labels[place]} for place in chosen)
    first, last = chosen[0], chosen[-1]
    if last - first + 1 == len(chosen):
        return {"attribute": name, "between": [labels[first], labels[last]]}
    if 2 * len(chosen) <= len(labels):
        return {"attribute": name, "in": [labels[place] for place in chosen]}
    every = {"attribute": name, "between": [labels[0], labels[-1]]}
    taken = set(chosen)
    others = [label for place, label in enumerate(labels) if place not in taken]
    return _all([every, _not({"attribute": name, "in": others})])


def _listed_bytes(tree: Tree) -> int:
    """Returns about how many bytes the lists of a condition take in a message; no more than it does."""
    found, left = 0, [tree]
    while left:
        part = left.pop()
        if "in" in part:
            found += sum(map(len, map(str, part["in"]))) + 2 * len(part["in"])
        left += [part["not"]] if "not" in part else [*part.get("all", ()), *part.get("any", ())]
    return found


def _category_text(value: _Constant) -> str:
    """Returns the string that a constant stands for in a row: '7' for 7 and 7.0, 'true' for TRUE."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _short(piece: Any) -> str:
    """Formats a piece of SQL for a message and cuts a long one."""
    text = piece if isinstance(piece, str) else piece.sql(Grammar)
    return text if len(text) <= 60 else f"{text[:60]}..."
