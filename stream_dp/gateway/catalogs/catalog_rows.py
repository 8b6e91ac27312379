"""The rows of the catalogs over the tables that one analyst sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from zlib import crc32

from stream_dp.gateway.catalogs.catalog_tables import CatalogTable, CatalogView, TableColumn
from stream_dp.gateway.pg_types import NAMES, PG_TYPES, shown_type
from stream_dp.gateway.protocol.session_settings import SERVER_SETTINGS

NAMESPACES: Final[Mapping[str, int]] = {
    "pg_catalog": 11,
    "pg_toast": 99,
    "public": 2200,
    "information_schema": 13207,
    "synthetic": 16384,
    "stream_dp": 16385,
}
OWNER: Final = 10
_DATABASE: Final = 16386
_FIRST_TABLE: Final = 20_000
_CLASS_OF_TABLES: Final = 1259
_COLLATION: Final = 100
_KEYWORDS: Final = (("abort", "U", "unreserved"), ("limit", "R", "reserved"))
_PRECISIONS: Final[Mapping[str, tuple[int, int, int | None]]] = {
    "int2": (16, 2, 0),
    "int4": (32, 2, 0),
    "int8": (64, 2, 0),
    "float4": (24, 2, None),
    "float8": (53, 2, None),
}
_TIMES: Final = {"date": 0, "time": 6, "timestamp": 6, "timestamptz": 6}
_LONGEST_TEXT: Final = 1 << 30

Row = tuple[str, dict[str, Any]]
"""A catalog, such as ``pg_catalog.pg_class``, and the value of each column that is not NULL."""


def _row(catalog: str, **values: Any) -> Row:
    return catalog, values


def table_oids(view: CatalogView) -> dict[tuple[str, str], int]:
    """Returns the oid of each table, by schema and name. It stays as other tables come and go."""
    found: dict[tuple[str, str], int] = {}
    taken = set[int]()
    for name in sorted((table.schema, table.name) for table in view.tables):
        oid = _FIRST_TABLE + crc32(".".join(name).encode()) % (1 << 30)
        while oid in taken:
            oid += 1
        taken.add(oid)
        found[name] = oid
    return found


def comments(view: CatalogView) -> dict[tuple[int, int], str]:
    """Returns the comments, by the oid of the table and the number of the column: 0 is the table itself."""
    oids = table_oids(view)
    return {
        (oids[table.schema, table.name], number): text
        for table in view.tables
        for number, text in enumerate(
            (table.comment, *(column.comment for column in table.columns))
        )
        if text
    }


def catalog_rows(view: CatalogView) -> Iterator[Row]:
    """Yields the rows of the catalogs."""
    yield from _of_the_server(view)
    yield from _of_types()
    oids = table_oids(view)
    for table in view.tables:
        oid = oids[table.schema, table.name]
        yield from _of_table(view, table, oid)
        for number, column in enumerate(table.columns, 1):
            yield _attribute(oid, number, column)
            yield _column(view, table, number, column)
    for (oid, number), text in comments(view).items():
        described = {
            "objoid": oid,
            "classoid": _CLASS_OF_TABLES,
            "objsubid": number,
            "description": text,
        }
        yield "pg_catalog.pg_description", described


def _of_the_server(view: CatalogView) -> Iterator[Row]:
    yield _row(
        "pg_catalog.pg_database",
        oid=_DATABASE, datname=view.database, datdba=OWNER, encoding=6, datlocprovider="c",
        datistemplate=False, datallowconn=True, datconnlimit=-1, datfrozenxid=3, datminmxid=1,
        dattablespace=1663, datcollate="C", datctype="C",
    )  # fmt: skip
    yield _row(
        "pg_catalog.pg_roles",
        rolname=view.user, rolsuper=False, rolinherit=True, rolcreaterole=False, rolcreatedb=False,
        rolcanlogin=True, rolreplication=False, rolconnlimit=-1, rolpassword="********",
        rolbypassrls=False, oid=OWNER,
    )  # fmt: skip
    yield _row(
        "pg_catalog.pg_user",
        usename=view.user, usesysid=OWNER, usecreatedb=False, usesuper=False, userepl=False,
        usebypassrls=False,
    )  # fmt: skip
    for name, value in SERVER_SETTINGS.items():
        yield _row(
            "pg_catalog.pg_settings",
            name=name, setting=value, context="user", vartype="string", source="default",
            boot_val=value, reset_val=value, pending_restart=False,
        )  # fmt: skip
    yield "pg_catalog.pg_am", {"oid": 2, "amname": "heap", "amtype": "t", "amhandler": 3}
    for oid, name in ((1663, "pg_default"), (1664, "pg_global")):
        yield "pg_catalog.pg_tablespace", {"oid": oid, "spcname": name, "spcowner": OWNER}
    yield _row(
        "pg_catalog.pg_collation",
        oid=_COLLATION, collname="default", collnamespace=11, collowner=OWNER, collprovider="d",
        collisdeterministic=True, collencoding=-1,
    )  # fmt: skip
    for name, oid in NAMESPACES.items():
        yield "pg_catalog.pg_namespace", {"oid": oid, "nspname": name, "nspowner": OWNER}
        schema = {"catalog_name": view.database, "schema_name": name, "schema_owner": view.user}
        yield "information_schema.schemata", schema
    yield "information_schema.information_schema_catalog_name", {"catalog_name": view.database}
    yield "information_schema.enabled_roles", {"role_name": view.user}
    yield _row(
        "information_schema.character_sets",
        character_set_name="UTF8", character_repertoire="UCS", form_of_use="UTF8",
        default_collate_catalog=view.database, default_collate_schema="pg_catalog",
        default_collate_name="ucs_basic",
    )  # fmt: skip
    for word, code, meaning in _KEYWORDS:
        row = {"word": word, "catcode": code, "barelabel": True, "catdesc": meaning}
        yield "pg_catalog.pg_get_keywords", row


def _of_types() -> Iterator[Row]:
    functions: dict[int, str] = {}
    for one in PG_TYPES:
        functions |= {one.receive: one.receive_name, one.input: one.input_name}
        yield _row(
            "pg_catalog.pg_type",
            oid=one.oid, typname=one.name, typnamespace=NAMESPACES[one.namespace], typowner=OWNER,
            typlen=one.length, typbyval=one.by_value, typtype=one.kind, typcategory=one.category,
            typispreferred=one.is_preferred, typisdefined=True, typdelim=one.delimiter, typrelid=0,
            typsubscript=0, typelem=one.element, typarray=one.array, typinput=one.input,
            typoutput=0, typreceive=one.receive, typsend=0, typmodin=0, typmodout=0, typanalyze=0,
            typalign="i", typstorage="p" if one.length > 0 else "x", typnotnull=one.is_not_null,
            typbasetype=one.base, typtypmod=-1, typndims=0,
            typcollation=_COLLATION if one.category == "S" else 0,
        )  # fmt: skip
        if one.kind == "r":
            multirange = next(other.oid for other in PG_TYPES if other.of_range == one.oid)
            row = {"rngtypid": one.oid, "rngsubtype": one.of_range, "rngmultitypid": multirange}
            yield "pg_catalog.pg_range", row
    for oid, name in functions.items():
        if oid:
            yield _row(
                "pg_catalog.pg_proc",
                oid=oid,
                proname=name,
                pronamespace=11,
                proowner=OWNER,
                prokind="f",
            )


def _of_table(view: CatalogView, table: CatalogTable, oid: int) -> Iterator[Row]:
    yield _row(
        "pg_catalog.pg_class",
        oid=oid, relname=table.name, relnamespace=NAMESPACES[table.schema], reltype=0, reloftype=0,
        relowner=OWNER, relam=2, relfilenode=0, reltablespace=0, relpages=0,
        reltuples=-1.0 if table.rows is None else float(len(table.rows)), relallvisible=0,
        reltoastrelid=0, relhasindex=False, relisshared=False, relpersistence="p", relkind="r",
        relnatts=len(table.columns), relchecks=0, relhasrules=False, relhastriggers=False,
        relhassubclass=False, relrowsecurity=False, relforcerowsecurity=False, relispopulated=True,
        relreplident="d", relispartition=False, relrewrite=0, relfrozenxid=3, relminmxid=1,
    )  # fmt: skip
    yield _row(
        "pg_catalog.pg_tables",
        schemaname=table.schema, tablename=table.name, tableowner=view.user, hasindexes=False,
        hasrules=False, hastriggers=False, rowsecurity=False,
    )  # fmt: skip
    statistics: dict[str, Any] = {"relid": oid, "schemaname": table.schema, "relname": table.name}
    statistics["n_live_tup"] = len(table.rows or ())
    yield "pg_catalog.pg_stat_user_tables", statistics
    yield "pg_catalog.pg_stat_all_tables", statistics
    yield _row(
        "information_schema.tables",
        table_catalog=view.database, table_schema=table.schema, table_name=table.name,
        table_type="BASE TABLE", is_insertable_into="NO", is_typed="NO",
    )  # fmt: skip
    for catalog in ("table_privileges", "role_table_grants"):
        yield _row(
            f"information_schema.{catalog}",
            grantor=view.user, grantee=view.user, table_catalog=view.database,
            table_schema=table.schema, table_name=table.name, privilege_type="SELECT",
            is_grantable="NO", with_hierarchy="YES",
        )  # fmt: skip


def _attribute(table: int, number: int, column: TableColumn) -> Row:
    kind = next(one for one in PG_TYPES if one.name == column.type)
    return _row(
        "pg_catalog.pg_attribute",
        attrelid=table, attname=column.name, atttypid=kind.oid, attstattarget=-1, attlen=kind.length,
        attnum=number, attndims=0, attcacheoff=-1, atttypmod=-1, attbyval=kind.by_value,
        attalign="i", attstorage="p" if kind.length > 0 else "x", attcompression="",
        attnotnull=not column.nullable, atthasdef=False, atthasmissing=False, attidentity="",
        attgenerated="", attisdropped=False, attislocal=True, attinhcount=0,
        attcollation=_COLLATION if kind.category == "S" else 0,
    )  # fmt: skip


def _column(view: CatalogView, table: CatalogTable, number: int, column: TableColumn) -> Row:
    precision, radix, scale = _PRECISIONS.get(column.type, (None, None, None))
    is_array = column.type.startswith("_")
    return _row(
        "information_schema.columns",
        table_catalog=view.database, table_schema=table.schema, table_name=table.name,
        column_name=column.name, ordinal_position=number,
        is_nullable="YES" if column.nullable else "NO",
        data_type="ARRAY" if is_array else shown_type(column.type),
        character_octet_length=_LONGEST_TEXT if column.type in ("text", "varchar") else None,
        numeric_precision=precision, numeric_precision_radix=radix, numeric_scale=scale,
        datetime_precision=_TIMES.get(column.type), udt_catalog=view.database,
        udt_schema="pg_catalog", udt_name=column.type, dtd_identifier=str(number),
        is_self_referencing="NO", is_identity="NO", identity_cycle="NO", is_generated="NEVER",
        is_updatable="NO",
    )  # fmt: skip


def names_of_oids(view: CatalogView) -> dict[str, dict[int, str]]:
    """Returns the names of things that a type such as ``regclass`` stands for, by type and oid."""
    functions = {one.receive: one.receive_name for one in PG_TYPES}
    functions |= {one.input: one.input_name for one in PG_TYPES}
    return {
        "regtype": {oid: shown_type(name) for oid, name in NAMES.items()},
        "regproc": functions | {0: "-"},
        "regprocedure": functions | {0: "-"},
        "regnamespace": {oid: name for name, oid in NAMESPACES.items()},
        "regrole": {OWNER: view.user},
        "regcollation": {_COLLATION: '"default"'},
    }
