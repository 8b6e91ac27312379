"""SQL, on the analyst's side: what a statement asks, as the JSON of query messages."""

from stream_dp.sql.asking import MOST_QUERIES
from stream_dp.sql.dates import PERIODS
from stream_dp.sql.parsing import MAX_LENGTH, MAX_NESTING, example, name_in_sql
from stream_dp.sql.plans import Dimension, Plan
from stream_dp.sql.statements import (
    Names,
    in_sqlite,
    is_statement,
    names_of,
    parse,
    plan,
)

__all__ = [
    "MAX_LENGTH",
    "MAX_NESTING",
    "MOST_QUERIES",
    "PERIODS",
    "Dimension",
    "Names",
    "Plan",
    "example",
    "in_sqlite",
    "is_statement",
    "name_in_sql",
    "names_of",
    "parse",
    "plan",
]
