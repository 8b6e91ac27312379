"""Types have Postgres' numbers, and each way to write one finds it."""

from __future__ import annotations

import pytest

from stream_dp.gateway.pg_types import NAMES, OIDS, SIZES, shown_type, type_named


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("integer", "int4"),
        ("INT", "int4"),
        ("bigint", "int8"),
        ("double precision", "float8"),
        ("Double  Precision", "float8"),
        ("character varying(10)", "varchar"),
        ("varchar", "varchar"),
        ("char(3)", "bpchar"),
        ('"char"', "char"),
        ('pg_catalog."char"', "char"),
        ("pg_catalog.text", "text"),
        ("text[]", "_text"),
        ("text[][]", "_text"),
        ("integer[3]", "_int4"),
        ("integer array", "_int4"),
        ('"char"[]', "_char"),
        ("numeric(10, 2)", "numeric"),
        ("timestamp(3) with time zone", "timestamptz"),
        ("timestamp", "timestamp"),
        ("time without time zone", "time"),
        ("regclass", "regclass"),
        ("information_schema.sql_identifier", "sql_identifier"),
        ("people", None),
        ("integer; drop", None),
        ("", None),
    ],
)
def test_a_name_in_sql_finds_its_type(written: str, name: str | None) -> None:
    assert type_named(written) == name


def test_numbers_and_names_are_those_of_postgres() -> None:
    assert (OIDS["bool"], OIDS["int8"], OIDS["text"], OIDS["_int8"]) == (16, 20, 25, 1016)
    assert {OIDS[name]: name for name in OIDS} == NAMES
    assert (SIZES["int8"], SIZES["text"], SIZES["date"]) == (8, -1, 4)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("int8", "bigint"), ("_text", "text[]"), ("char", '"char"'), ("date", "date")],
)
def test_a_type_is_shown_as_postgres_shows_it(name: str, shown: str) -> None:
    assert shown_type(name) == shown
    assert type_named(shown) == name
