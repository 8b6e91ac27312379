"""What SQLAlchemy's suite may expect of this dialect. A row is never shown, changed or told from another."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_WITHOUT = {
    "data sets are not in schemas": ("schemas", "schema_reflection", "implicit_default_schema"),
    "there are no views and no temporary tables": (
        *("views", "view_reflection", "view_column_reflection", "materialized_views"),
        *("has_temp_table", "temp_table_names", "temp_table_reflection", "temporary_tables"),
        *("temporary_views", "temp_table_reflect_indexes"),
    ),
    "rows cannot be told apart, so there are no keys, constraints and indexes": (
        *("primary_key_constraint_reflection", "foreign_keys", "foreign_key_constraint_reflection"),
        *("self_referential_foreign_keys", "cross_schema_fk_reflection", "index_reflection"),
        *("unique_constraint_reflection", "unique_index_reflect_as_unique_constraints"),
        *(
            "inline_check_constraint_reflection",
            "check_constraint_reflection",
            "index_ddl_if_exists",
        ),
        *("indexes_with_expressions", "reflect_indexes_with_expressions"),
    ),
    "definitions have no comments, defaults and computed columns": (
        *("comment_reflection", "comment_reflection_full_unicode", "constraint_comment_reflection"),
        *("reflects_pk_names", "reflect_table_options", "computed_columns", "identity_columns"),
        *("server_defaults", "autoincrement_insert"),
    ),
    "nothing is written through SQL": (
        *("table_ddl_if_exists", "update_where_target_in_subquery", "sane_rowcount"),
        *("delete_from", "update_from", "insert_returning", "isolation_level", "savepoints"),
    ),
    "names of data sets and attributes have fewer characters": (
        "unusual_column_name_characters",
        "table_name_with_special_characters",
    ),
}


class Requirements(SuiteRequirements):
    """All requirements of the suite, with those off that this dialect does not meet."""


def _closed(reason: str) -> Any:
    return property(lambda _: exclusions.skip_if(lambda _: True, reason))


for _reason, _names in _WITHOUT.items():
    for _name in _names:
        setattr(Requirements, _name, _closed(_reason))
