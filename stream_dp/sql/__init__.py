"""SQL, on the analyst's side: what a statement asks, as the JSON of query messages."""

from stream_dp.sql.parsing import MAX_LENGTH, MAX_NESTING, example, parse

__all__ = ["MAX_LENGTH", "MAX_NESTING", "example", "parse"]
