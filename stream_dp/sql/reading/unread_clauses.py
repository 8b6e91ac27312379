"""Refuses what a statement says and no part of the translation reads, so that nothing is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.grammar import Grammar

_TABLE: Final = "name the data set or the table alone, as in FROM sales AS s"
_LIMIT: Final = "write LIMIT 10 at the end"
_ORDER: Final = "write ORDER BY and names, with DESC or not"
_VIEW: Final = "write WITH name AS (SELECT ...)"
_CAST: Final = "write CAST(x AS REAL)"

_READ: Final[Mapping[Any, tuple[str, str]]] = {
    exp.Table: ("this db catalog alias", _TABLE),
    exp.Subquery: ("this alias", "write only the SELECT in parentheses and a name"),
    exp.TableAlias: ("this", "name the table alone; name columns in SELECT, with AS"),
    exp.CTE: ("this alias materialized", _VIEW),
    exp.With: ("expressions recursive", _VIEW),
    exp.Join: ("this side kind method on using", "write JOIN t ON attribute = t.key"),
    exp.Fetch: ("direction count limit_options", _LIMIT),
    exp.LimitOptions: ("rows", _LIMIT),
    exp.Limit: ("this expression", _LIMIT),
    exp.Offset: ("this expression", "write OFFSET 10 at the end"),
    exp.Order: ("this expressions", _ORDER),
    exp.Ordered: ("this desc nulls_first", _ORDER),
    exp.Distinct: ("expressions", "write DISTINCT alone"),
    exp.Count: ("this big_int", "write COUNT(*), or COUNT(x) of one attribute"),
    exp.Round: ("this decimals", "write ROUND(x, 1)"),
    exp.Window: ("this over partition_by order spec", "write OVER (ORDER BY day)"),
    exp.WindowSpec: (
        "kind start start_side end end_side",
        "write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW",
    ),
    exp.Lag: ("this offset", "write LAG(x) or LAG(x, 2)"),
    exp.Lead: ("this offset", "write LEAD(x) or LEAD(x, 2)"),
    exp.Between: ("this low high", "put the lower bound first"),
    exp.Cast: ("this to safe", _CAST),
    exp.TryCast: ("this to safe", _CAST),
}
"""What is read of each piece, or refused by name elsewhere, and what to write instead of the rest."""

_WORDS: Final = {
    "sample": "TABLESAMPLE",
    "version": "a version of a table",
    "pivots": "PIVOT or UNPIVOT",
    "columns": "a list of columns after a table's name",
    "symmetric": "SYMMETRIC",
    "percent": "PERCENT",
    "with_ties": "WITH TIES",
    "default": "a third argument of LAG and LEAD",
    "on": "DISTINCT ON",
    "truncate": "a third argument of ROUND",
}


def check_read(select: Any) -> None:
    """Refuses pieces of a statement that would be left out.

    Raises:
        Fault: The statement says something that nothing reads.
    """
    for node in select.walk():
        if type(node) in _READ:
            _check_arguments(node)
        if isinstance(node, exp.Select) and node.args.get("distinct") and node.args.get("group"):
            fix = "omit DISTINCT: each group is there once"
            raise Fault(node.args["group"], "DISTINCT with GROUP BY is not answered", fix)


def _check_arguments(node: Any) -> None:
    """Refuses what a piece says besides what is read of it."""
    read, fix = _READ[type(node)]
    for name, content in node.args.items():
        if content and name not in read.split():
            word = _WORDS.get(name, f"{name.strip('_').replace('_', ' ').upper()} here")
            word = {exp.Count: "COUNT of several attributes", exp.Limit: "LIMIT BY"}.get(
                type(node), word
            )
            raise Fault(node, f"{word} is not answered", fix)
    if isinstance(node, exp.TableAlias) and not isinstance(node.this, exp.Identifier):
        raise Fault(node, f"{node.sql(Grammar)} is not a name", fix)
