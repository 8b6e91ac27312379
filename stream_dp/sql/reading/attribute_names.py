"""The names of attributes as SQL has them, and a condition on them that shows how to write one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from stream_dp.attribute_dates import CYCLES
from stream_dp.sql.reading.grammar import Grammar


def example(attributes: Sequence[Mapping[str, Any]]) -> str:
    """Returns a condition on the first attributes of a definition, to show how to write one.

    Example:
        >>> from stream_dp import sql
        >>> sql.example([{"name": "age", "type": "number", "edges": [18, 30, 65]}])
        'age >= 18'
    """
    return " AND ".join(map(_example, attributes[:2]))


def _example(attribute: Mapping[str, Any]) -> str:
    name = name_in_sql(attribute["name"])
    if attribute["type"] == "category":
        return f"{name} = {exp.Literal.string(attribute['values'][0]).sql(Grammar)}"
    if attribute["type"] == "number":
        return f"{name} >= {attribute['edges'][0]:.15g}"
    if attribute["type"] != "date":
        return name
    if attribute["by"] in CYCLES:
        return f"{name} = '{CYCLES[attribute['by']][0]}'"
    return f"{name} >= '{attribute['from']}'"


def name_in_sql(name: str) -> str:
    """Returns an attribute's name as SQL has it: in double quotes unless it is one plain word."""
    return name if is_word(name) and not is_keyword(name) else quoted(name)


def is_word(name: str) -> bool:
    """Returns whether a name has letters, digits and underscores alone."""
    return re.fullmatch(r"[^\W\d]\w*", name) is not None


@lru_cache(maxsize=4096)
def is_keyword(word: str) -> bool:
    """Returns whether SQL reads a word as one of its own."""
    return bool(sqlglot.tokenize(word, Grammar)[0].token_type != TokenType.VAR)


def quoted(name: str) -> str:
    """Returns a name in double quotes."""
    text: str = exp.to_identifier(name, quoted=True).sql(Grammar)
    return text
