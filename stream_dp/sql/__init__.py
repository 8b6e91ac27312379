"""SQL, on the analyst's side: what a statement asks, as the JSON of query messages."""

from stream_dp.sql.plan.select_planner import (
    Names,
    in_sqlite,
    is_statement,
    names_of,
    parse,
    plan,
)
from stream_dp.sql.plan.statement_plan import Dimension, StatementPlan
from stream_dp.sql.plan.statement_queries import MOST_QUERIES
from stream_dp.sql.reading.translator import MAX_LENGTH, MAX_NESTING, example, name_in_sql
from stream_dp.sql.terms.sql_dates import PERIODS

__all__ = [
    "MAX_LENGTH",
    "MAX_NESTING",
    "MOST_QUERIES",
    "PERIODS",
    "Dimension",
    "Names",
    "StatementPlan",
    "example",
    "in_sqlite",
    "is_statement",
    "name_in_sql",
    "names_of",
    "parse",
    "plan",
]
