"""Statements about catalogs and public rows mean what they mean to Postgres, and can do no harm."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import sqlglot

from stream_dp.gateway.catalogs.catalog_database import CatalogDatabase
from stream_dp.gateway.catalogs.catalog_rows import table_oids
from stream_dp.gateway.catalogs.catalog_shapes import USUAL_TYPES
from stream_dp.gateway.catalogs.catalog_syntax import is_about_catalogs
from stream_dp.gateway.catalogs.catalog_tables import CatalogTable, CatalogView
from stream_dp.gateway.protocol.sql_fault import SqlFault
from tests.gateway.recorded_statements import SETTINGS, TABLES, VIEW


@pytest.fixture(scope="module")
def catalogs() -> Iterator[CatalogDatabase]:
    database = CatalogDatabase(VIEW)
    yield database
    database.close()


def entries(table: str) -> list[tuple[str, str]]:
    """Reads lines ``statement => what it gives``, of which long ones go on in the next line."""
    found = (line.partition(" => ") for line in table.replace("\n=> ", " => ").strip().splitlines())
    return [(statement, gives) for statement, _, gives in found]


GIVES = r"""
SELECT 1 WHERE false => []
SELECT current_database(), current_user, user, current_schema => [["stream_dp", "ann", "ann", "public"]]
SELECT version() LIKE 'PostgreSQL 15.%' => [[true]]
SELECT current_setting('server_version_num')::int / 100 => [[1500]]
SELECT current_setting('no.such', true) => [[null]]
SELECT name FROM public.countries WHERE population > 1e6 ORDER BY name DESC
=> [["Germany"], ["Austria"]]
SELECT "name" FROM "stream_dp"."public"."countries" ORDER BY 1 LIMIT 1 => [["Austria"]]
SELECT c.code FROM countries AS c WHERE c.code = 'LI' => [["LI"]]
SELECT COUNT(*) AS select, max(population) FROM countries => [[3, 83280000]]
SELECT code, rank() OVER (ORDER BY population) FROM countries ORDER BY 2 LIMIT 1 => [["LI", 1]]
SELECT born, employed, income FROM synthetic.people ORDER BY city
=> [["1980-05-06", false, null], ["1990-01-02", true, 1200.5]]
SELECT extract(year FROM born) FROM synthetic.people ORDER BY 1 => [[1980.0], [1990.0]]
SELECT date_trunc('month', born) FROM synthetic.people ORDER BY 1
=> [["1980-05-01 00:00:00"], ["1990-01-01 00:00:00"]]
SELECT employed, count(*) FROM synthetic.people GROUP BY 1 HAVING count(*) > 0 ORDER BY 1
=> [[false, 1], [true, 1]]
SELECT count(*) FROM synthetic.people p JOIN countries c ON p.age > 40 => [[3]]
WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i) FROM n => [[10]]
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) WHERE x = '2' => [[2, "b"]]
(SELECT 2) UNION ALL (SELECT 1) ORDER BY 1 => [[1], [2]]
SELECT 1 LIMIT ALL => [[1]]
SELECT x FROM (SELECT 1 AS x) WHERE x = 1 => [[1]]
SELECT current_timestamp::text LIKE '20%', now() IS NULL => [[true, false]]
SELECT lpad('ab', 4, 'xy'), rpad('ab', 1), mod(-7, 3), trunc(-2.5) => [["xyab", "a", -1, -2.0]]
SELECT c.code, n FROM countries c, generate_series(1, length(c.code)) n LIMIT 1 => [["AT", 1]]
SELECT 7 / 2, 7 % 2, -3, 'a' || 1 || true => [[3, 1, -3, "a1true"]]
SELECT CASE WHEN NULL THEN 1 ELSE 2 END, COALESCE(NULL, 3), NULLIF(1, 1) => [[2, 3, null]]
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg\_%' ORDER BY 1 => [["pg_catalog"], ["pg_toast"]]
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg!_t%' ESCAPE '!' => [["pg_toast"]]
SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg%' => [[4]]
SELECT 'ABC' LIKE 'abc', 'ABC' ILIKE 'abc', 'ABC' ~ 'b', 'ABC' ~* 'b', 'ABC' !~ 'b'
=> [[false, true, false, true, true]]
SELECT relname FROM pg_class WHERE oid = 'public.people'::regclass => [["people"]]
SELECT 'people'::regclass::text, 'synthetic.people'::regclass::text => [["people", "synthetic.people"]]
SELECT to_regclass('nothing') IS NULL, to_regclass('budget') IS NULL => [[true, true]]
SELECT format_type(23, -1), format_type(1009, NULL), 'int8'::regtype
=> [["integer", "text[]", "bigint"]]
SELECT 2 = ANY(ARRAY[1, 2]), 2 = ANY('{1,3}'), 2 <> ALL(ARRAY[1]), 'b' = ANY('{a,"b"}')
=> [[true, false, true, true]]
SELECT (ARRAY['a', 'b'])[2], array_length(ARRAY[1, 2], 1), array_to_string(ARRAY[1, 2], '-')
=> [["b", 2, "1-2"]]
SELECT ARRAY(SELECT code FROM countries ORDER BY code), '{1,NULL}'::int[]
=> [[["AT", "DE", "LI"], [1, null]]]
SELECT g, h FROM generate_series(1, 2) AS g, unnest(ARRAY[5]) AS h => [[1, 5], [2, 5]]
SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY AS u(x, n) => [["a", 1], ["b", 2]]
SELECT EXISTS (SELECT 1 FROM pg_index), (SELECT indrelid FROM pg_index), count(*) FROM pg_index
=> [[false, null, 0]]
SELECT relname, indrelid FROM pg_class LEFT JOIN pg_index ON indrelid = oid ORDER BY 1 LIMIT 1
=> [["budget", null]]
SELECT obj_description('people'::regclass, 'pg_class'), col_description('people'::regclass, 2)
=> [["People of three cities", "bins: 0, 18, 30, 65"]]
SELECT has_table_privilege('people', 'select'), has_table_privilege('people', 'INSERT')
=> [[true, false]]
SELECT DISTINCT table_schema FROM information_schema.tables ORDER BY 1
=> [["public"], ["stream_dp"], ["synthetic"]]
SELECT quote_ident('a b'), quote_literal('it''s'), format('%I=%L', 'X', 'y')
=> [["\"a b\"", "'it''s'", "\"X\"='y'"]]
"""


@pytest.mark.parametrize(("statement", "rows"), entries(GIVES))
def test_a_statement_gives_what_postgres_gives(
    catalogs: CatalogDatabase, statement: str, rows: str
) -> None:
    assert catalogs.answer(statement, SETTINGS)[1] == json.loads(rows)


HAS_COLUMNS = r"""
SELECT 1, 'a', 1.5, true, NULL => ?column?:int4 ?column?:text ?column?:float8 bool:bool ?column?:text
SELECT count(*), max(age), max(age) AS top FROM synthetic.people => count:int8 max:int4 top:int4
SELECT relname, relname::text, oid FROM pg_class => relname:name relname:text oid:oid
SELECT '5'::int, 'x'::varchar(3), true::text => int4:int4 varchar:varchar text:text
SELECT CASE WHEN true THEN 1 END, CASE WHEN 1 = 2 THEN 1 ELSE oid END FROM pg_am => case:int4 oid:oid
SELECT $1, $2::int8, name FROM countries WHERE code = $3 LIMIT $4 => ?column?:text int8:int8 name:text
SELECT * FROM countries => code:text name:text population:int8
SELECT table_name FROM information_schema.tables => table_name:name
VALUES (1, 'a') => column1:int4 column2:text
SELECT ARRAY['a'], ARRAY(SELECT oid FROM pg_am), (SELECT 1) => array:_text array:_oid ?column?:int4
SELECT born FROM synthetic.people UNION SELECT NULL => born:date
SELECT now(), current_date => now:timestamptz current_date:date
"""


@pytest.mark.parametrize(("statement", "columns"), entries(HAS_COLUMNS))
def test_columns_have_the_names_and_types_of_postgres(
    catalogs: CatalogDatabase, statement: str, columns: str
) -> None:
    found = catalogs.describe(statement, SETTINGS)
    assert " ".join(f"{name}:{kind}" for name, kind in found) == columns


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SELECT FROM WHERE", "42601"),
        ("SELECT 1; SELECT 2", "42601"),
        ("DELETE FROM countries", "42601"),
        ("SELECT * FROM nothing", "42P01"),
        ("SELECT * FROM sqlite_master", "42P01"),
        ("SELECT * FROM synthetic.countries", "42P01"),
        ("SELECT age FROM people", "42P01"),
        ("SELECT 'secret'::regclass", "42P01"),
        ("SELECT nothing FROM countries", "42703"),
        ("SELECT c.nothing FROM countries c WHERE code = 'secret'", "42703"),
        ('SELECT "secret" FROM countries', "42703"),
        ("SELECT load_extension('secret')", "42883"),
        ("SELECT readfile('secret'), writefile('secret', 'x')", "42883"),
        ("SELECT * FROM pragma_database_list('secret')", "42883"),
        ("SELECT pg_read_file('secret')", "42883"),
        ("SELECT pg_sleep(10)", "42883"),
        ("SELECT 'secret'::int", "22P02"),
        ("SELECT '{secret}'::int[]", "22P02"),
        ("SELECT 'secret' UNION SELECT 1", "22P02"),
        ("VALUES (1), (1, 'secret')", "42601"),
        ("SELECT unnest()", "42883"),
        ("SELECT lag() OVER (ORDER BY 'secret')", "0A000"),
        ("SELECT code = 'secret' FROM countries WHERE population = 'secret'", "22P02"),
        ("SELECT 'secret'::secret_type", "42704"),
        ("SELECT current_setting('secret')", "42704"),
        ("SELECT 'secret' SIMILAR TO 'secret'", "0A000"),
        ("SELECT DISTINCT ON (code) name FROM countries", "0A000"),
        ("SELECT 'secret' ~ '(secret'", "22023"),
        ("SELECT (SELECT code, name FROM countries WHERE code = 'secret')", "42601"),
        ("SELECT a.oid FROM pg_type a, pg_type b", "54000"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "54001"),
    ],
)
def test_a_fault_has_the_state_of_postgres_and_repeats_no_literal(
    catalogs: CatalogDatabase, statement: str, state: str
) -> None:
    with pytest.raises(SqlFault) as raised:
        catalogs.answer(statement, SETTINGS)
    assert raised.value.state == state
    if '"secret"' not in statement:  # a name may be repeated
        assert "secret" not in raised.value.message.replace("secret_type", "")
        assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH ':memory:' AS other",
        "INSERT INTO \"public.countries\" VALUES ('a', 'b', 1)",
        "CREATE TABLE other (x)",
        "PRAGMA query_only = 0",
        "SELECT load_extension('x')",
        "SELECT sqlite_version()",
        "SELECT randomblob(10)",
        "VACUUM INTO '/tmp/x'",
    ],
)
def test_sqlite_itself_refuses_what_the_translation_would_let_through(
    catalogs: CatalogDatabase, text: str
) -> None:
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited|denied"):
        catalogs._database.execute(text)


@pytest.mark.parametrize(
    ("path", "statement", "rows"),
    [
        ("synthetic, public", "SELECT count(*) FROM people", [[2]]),
        ('"$user", public', "SELECT pg_table_is_visible('synthetic.people'::regclass)", [[False]]),
        ("synthetic", "SELECT pg_table_is_visible('synthetic.people'::regclass)", [[True]]),
        (
            "stream_dp",
            "SELECT current_schema(), current_schemas(true)",
            [["stream_dp", ["pg_catalog", "stream_dp"]]],
        ),
    ],
)
def test_a_name_without_a_schema_is_looked_for_on_the_search_path(
    catalogs: CatalogDatabase, path: str, statement: str, rows: list[list[Any]]
) -> None:
    assert catalogs.answer(statement, {**SETTINGS, "search_path": path})[1] == rows


@pytest.mark.parametrize(
    ("statement", "is_about"),
    [
        ("SELECT 1", True),
        ("SELECT * FROM pg_class", True),
        ("SELECT * FROM PG_CATALOG.pg_class c, information_schema.tables", True),
        ("SELECT * FROM countries", True),
        ("SELECT * FROM stream_dp.public.countries JOIN pg_class ON true", True),
        ("SELECT * FROM synthetic.people", True),
        ("SELECT * FROM generate_series(1, 2) AS g", True),
        ("WITH people AS (SELECT 1) SELECT * FROM people", True),
        ("SELECT * FROM people", False),
        ("SELECT * FROM pg_class WHERE EXISTS (SELECT 1 FROM public.people)", False),
        ("WITH people AS (SELECT 1) SELECT * FROM public.people", False),
        ("SELECT * FROM tables", False),
        ('SELECT * FROM "PG_CLASS"', False),
        ("SELECT * FROM nothing", False),
        ("SELECT * FROM synthetic.countries", False),
    ],
)
def test_a_statement_that_reads_a_data_set_is_not_about_catalogs(
    statement: str, is_about: bool
) -> None:
    assert is_about_catalogs(sqlglot.parse_one(statement, read="postgres"), TABLES) is is_about


def test_the_usual_type_of_a_column_is_known() -> None:
    names = ("relname", "oid", "table_name", "relkind", "ordinal_position", "nothing")
    assert [USUAL_TYPES.get(name) for name in names] == [
        "name",
        "oid",
        "name",
        "char",
        "int4",
        None,
    ]


def test_the_oid_of_a_table_stays_when_others_come() -> None:
    more = CatalogTable("public", "another", None, TABLES[0].columns, None)
    before = table_oids(VIEW)
    after = table_oids(CatalogView("ann-2", "stream_dp", "ann", (more, *TABLES)))
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after) == len(before) + 1


@pytest.mark.parametrize("kind", ["oid", "regclass", "int", '"char"', "name", "pg_catalog.oid"])
def test_an_array_of_any_type_is_read(catalogs: CatalogDatabase, kind: str) -> None:
    found = catalogs.answer(f"SELECT 5 = ANY('{{5,6}}'::{kind}[]) IS NOT NULL", SETTINGS)[1]
    assert found == [[True]]
