"""The functions of Postgres that statements about catalogs call: what SQLite runs for each, and its type."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from stream_dp.gateway.catalogs.catalog_rows import (
    OWNER,
    comments,
    names_of_oids,
    table_oids,
)
from stream_dp.gateway.catalogs.catalog_shapes import CATALOG_OIDS
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.pg_types import OIDS, PG_TYPES, type_named
from stream_dp.gateway.protocol.field_values import items_of_array
from stream_dp.gateway.protocol.sql_fault import SqlFault

OF_FIRST: Final = "of the first argument"
ARRAY_OF_FIRST: Final = "array of the first argument"
ITEM_OF_FIRST: Final = "item of the first argument"

RENAMED: Final[Mapping[str, tuple[str, str]]] = {
    "array_agg": ("json_group_array", ARRAY_OF_FIRST),
    "bool_and": ("min", "bool"),
    "bool_or": ("max", "bool"),
    "every": ("min", "bool"),
    "btrim": ("trim", "text"),
    "char_length": ("length", "int4"),
    "character_length": ("length", "int4"),
    "json_agg": ("json_group_array", "json"),
    "jsonb_agg": ("json_group_array", "jsonb"),
    "json_object_agg": ("json_group_object", "json"),
    "string_agg": ("group_concat", "text"),
    "strpos": ("instr", "int4"),
}
"""The function of SQLite that does what another one of Postgres does, and the type of its value."""

BUILT_IN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("abs", "first_value", "lag", "last_value", "lead", "max", "min"), OF_FIRST),
    **dict.fromkeys(("nth_value", "round", "sum"), OF_FIRST),
    **dict.fromkeys(("avg", "cume_dist", "percent_rank"), "float8"),
    **dict.fromkeys(("count", "dense_rank", "rank", "row_number"), "int8"),
    **dict.fromkeys(("length", "ntile"), "int4"),
    **dict.fromkeys(("lower", "ltrim", "replace", "rtrim", "upper"), "text"),
}
"""The functions that SQLite has under the same name."""

AGGREGATES: Final = frozenset(
    {"count", "sum", "avg", "min", "max", "group_concat", "json_group_array", "json_group_object"}
)
ALLOWED_IN_SQLITE: Final = frozenset(
    {
        *BUILT_IN,
        *(name for name, _ in RENAMED.values()),
        *("coalesce", "current_timestamp", "date", "datetime", "julianday", "json_array", "like"),
        *("nullif", "substr"),
    }
)
"""What SQLite may run, next to the functions of this module."""

_NO_TEXTS: Final = (
    *("pg_get_constraintdef", "pg_get_expr", "pg_get_function_arguments"),
    *("pg_get_function_identity_arguments", "pg_get_function_result", "pg_get_function_sqlbody"),
    *("pg_get_functiondef", "pg_get_indexdef", "pg_get_partkeydef", "pg_get_ruledef"),
    *("pg_get_serial_sequence", "pg_get_statisticsobjdef_columns", "pg_get_triggerdef"),
    *("pg_get_viewdef", "pg_tablespace_location", "shobj_description"),
)
_TRUE: Final = (
    *("has_database_privilege", "has_schema_privilege", "has_type_privilege", "pg_has_role"),
    *("pg_collation_is_visible", "pg_conversion_is_visible", "pg_function_is_visible"),
    *("pg_opclass_is_visible", "pg_operator_is_visible", "pg_opfamily_is_visible"),
    *("pg_statistics_obj_is_visible", "pg_ts_config_is_visible"),
    *("pg_ts_dict_is_visible", "pg_ts_parser_is_visible", "pg_ts_template_is_visible"),
)
_FALSE: Final = (
    *("has_function_privilege", "has_sequence_privilege", "has_tablespace_privilege"),
    *("pg_advisory_unlock", "pg_is_in_recovery", "pg_is_other_temp_schema"),
    *("pg_relation_is_publishable", "pg_try_advisory_lock", "row_security_active"),
)
_SIZES: Final = (
    *("pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size"),
    *("pg_tablespace_size", "pg_total_relation_size", "txid_current"),
)
_ALWAYS: Final[Mapping[str, tuple[str, Any]]] = {
    **dict.fromkeys(("inet_client_addr", "inet_server_addr"), ("inet", None)),
    **dict.fromkeys(("inet_client_port", "inet_server_port"), ("int4", None)),
    **dict.fromkeys(_NO_TEXTS, ("text", None)),
    **dict.fromkeys(_TRUE, ("bool", True)),
    **dict.fromkeys(_FALSE, ("bool", False)),
    **dict.fromkeys(_SIZES, ("int8", 0)),
    **dict.fromkeys(("getdatabaseencoding", "pg_client_encoding"), ("name", "UTF8")),
    **dict.fromkeys(
        ("pg_postmaster_start_time", "pg_conf_load_time"), ("timestamptz", "2026-01-01 00:00:00+00")
    ),
    "pg_advisory_unlock_all": ("void", ""),
    "pg_backend_pid": ("int4", 0),
    "pg_char_to_encoding": ("int4", 6),
    "pg_encoding_max_length": ("int4", 4),
    "pg_encoding_to_char": ("name", "UTF8"),
    "pg_my_temp_schema": ("oid", 0),
}
"""The type and the value of functions that give the same for all arguments."""

_VISIBLE_TYPES: Final = {one.oid for one in PG_TYPES if one.namespace == "pg_catalog"}

Function = Callable[..., Any]


def _regular(pattern: str) -> str:
    """Returns a regular expression of Postgres as one of Python."""
    return (
        pattern.replace("[[:alpha:]]", "[a-zA-Z]")
        .replace("[[:digit:]]", "[0-9]")
        .replace("\\m", "\\b")
    )


def _matches(text: Any, pattern: Any, flags: str) -> bool:
    return re.search(_regular(str(pattern)), str(text), _case(flags)) is not None


def _regexp_replace(text: Any, pattern: Any, new: Any, flags: str = "") -> str:
    count = 0 if "g" in flags else 1
    return re.sub(_regular(pattern), str(new), str(text), count=count, flags=_case(flags))


def _case(flags: str) -> re.RegexFlag:
    return re.IGNORECASE if "i" in flags else re.NOFLAG


def _ident(name: Any) -> str:
    is_plain = re.fullmatch("[a-z_][a-z0-9_$]*", str(name)) is not None
    return str(name) if is_plain else '"' + str(name).replace('"', '""') + '"'


def _literal(text: Any) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _format(pattern: Any, *values: Any) -> str | None:
    if pattern is None:
        return None
    left = iter(values)
    written: dict[str, Callable[[Any], Any]] = {
        "s": lambda value: "" if value is None else value,
        "I": _ident,
        "L": lambda value: "NULL" if value is None else _literal(value),
    }

    def one(found: re.Match[str]) -> str:
        return "%" if found[1] == "%" else str(written[found[1]](next(left, None)))

    return re.sub("%([sIL%])", one, str(pattern))


def _items(array: Any) -> list[Any]:
    """Returns the items of an array, which SQLite holds as JSON."""
    found = json.loads(array)
    return found if isinstance(found, list) else [found]


def array_items(text: str) -> list[str | None]:
    """Returns the items of an array of one dimension as Postgres writes it, such as ``{a,"b c",NULL}``."""
    try:
        return items_of_array(text)
    except ValueError:
        raise SqlFault("22P02", "malformed array literal") from None


def _from_array(array: Any) -> str:
    items = ["NULL" if item is None else str(item) for item in _items(array)]
    quoted = (f'"{item}"' if re.search(r'[\s,{}"]', item) else item for item in items)
    return "{" + ",".join(quoted) + "}"


def _array_length(array: Any, *_: Any) -> int | None:
    return len(_items(array)) or None


def _item(array: Any, number: Any) -> Any:
    return _items(array)[number - 1] if 0 < number <= len(_items(array)) else None


def _array_to_string(array: Any, by: Any, null: Any = None) -> str | None:
    if array is None or by is None:
        return None
    return str(by).join(
        str(null if i is None else i) for i in _items(array) if not i is null is None
    )


def _array_cat(left: Any, right: Any) -> str | None:
    if left is None or right is None:
        return None if left is right is None else str(right if left is None else left)
    return json.dumps([item for part in (left, right) for item in _parts(part)])


def _parts(part: Any) -> list[Any]:
    return _items(part) if isinstance(part, str) and part.startswith("[") else [part]


def _array_position(array: Any, value: Any) -> int | None:
    items = [] if array is None else _items(array)
    return items.index(value) + 1 if value in items else None


def _split(text: Any, by: Any, *_: Any) -> str | None:
    if text is None:
        return None
    return json.dumps(str(text).split(str(by)) if by else [str(text)])


def _split_part(text: Any, by: Any, number: Any) -> str | None:
    if not by:
        return None
    parts = ["", *str(text).split(str(by))]
    return str(parts[number]) if 0 < number < len(parts) else ""


def _parse_ident(text: Any, *_: Any) -> str:
    parts = re.findall(r'"((?:[^"]|"")*)"|([^.\s"]+)', str(text))
    return json.dumps(
        [quoted.replace('""', '"') if quoted else plain.lower() for quoted, plain in parts]
    )


def _part_of_time(part: Any, time: Any) -> float:
    text = str(time)
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    names = ("year", "month", "day", "hour", "minute", "second")
    by_name = dict(zip(names, [*numbers, 0, 0, 0], strict=False))
    by_name["quarter"] = (by_name.get("month", 1) + 2) // 3
    found = by_name.get(str(part).lower())
    if found is None:
        raise SqlFault("0A000", "this part of a time is not answered")
    return float(found)


def _date_trunc(part: Any, time: Any, *_: Any) -> str:
    text = f"{str(time)[:10]} {str(time)[11:19] or '00:00:00'}"
    kept = {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16, "second": 19}.get(
        str(part).lower()
    )
    if kept is None:
        raise SqlFault("0A000", "this part of a time is not answered")
    return text[:kept] + "0000-01-01 00:00:00"[kept:]


def _size_pretty(n: Any) -> str:
    size, units = int(n), iter(("bytes", "kB", "MB", "GB"))
    unit = next(units)
    while size >= 10 * 1024 and (larger := next(units, None)):
        size, unit = round(size / 1024), larger
    return f"{size} {unit}"


def _pad(text: Any, n: Any, fill: Any, side: str) -> str:
    kept: str = str(text)[: max(n, 0)]
    added: str = (str(fill) * n)[: max(n, 0) - len(kept)]
    return added + kept if side == "left" else kept + added


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _joined(by: str, values: Iterable[Any]) -> str:
    return by.join(map(str, _known(values)))


def _object(*pairs: Any) -> str:
    return json.dumps(dict(zip(map(str, pairs[::2]), pairs[1::2], strict=True)))


def _same(value: Any, *_: Any) -> Any:
    return value


def _truth(text: Any) -> bool:
    if isinstance(text, int):
        return bool(text)
    low = str(text).strip().lower()
    if low in ("t", "true", "yes", "y", "on", "1"):
        return True
    if low in ("f", "false", "no", "n", "off", "0"):
        return False
    raise SqlFault("22P02", "invalid input for type boolean")


def _whole(value: Any) -> int:
    try:
        return round(value) if isinstance(value, float) else int(value)
    except (ValueError, OverflowError):
        raise SqlFault("22P02", "invalid input for a whole number") from None


_PLAIN: Final[Mapping[str, tuple[str, Function]]] = {
    "array_length": ("int4", _array_length),
    "array_lower": ("int4", lambda array, _: 1),
    "array_position": ("int4", _array_position),
    "array_to_string": ("text", _array_to_string),
    "array_upper": ("int4", _array_length),
    "cardinality": ("int4", lambda array: len(_items(array))),
    "ceil": (OF_FIRST, math.ceil),
    "ceiling": (OF_FIRST, math.ceil),
    "concat": ("text", lambda *values: _joined("", values)),
    "concat_ws": ("text", lambda by, *values: _joined(str(by), values)),
    "date_part": ("float8", _part_of_time),
    "date_trunc": ("timestamp", _date_trunc),
    "floor": (OF_FIRST, math.floor),
    "format": ("text", _format),
    "greatest": (OF_FIRST, lambda *values: max(_known(values), default=None)),
    "initcap": ("text", str.title),
    "exp": ("float8", math.exp),
    "ln": ("float8", math.log),
    "lpad": ("text", lambda text, n, fill=" ": _pad(text, n, fill, "left")),
    "mod": (OF_FIRST, lambda x, y: int(math.fmod(x, y))),
    "repeat": ("text", lambda text, n: str(text) * n),
    "reverse": ("text", lambda text: str(text)[::-1]),
    "rpad": ("text", lambda text, n, fill=" ": _pad(text, n, fill, "right")),
    "sign": (OF_FIRST, lambda x: (x > 0) - (x < 0)),
    "trunc": (OF_FIRST, math.trunc),
    "json_build_array": ("json", lambda *values: json.dumps(values)),
    "json_build_object": ("json", _object),
    "jsonb_build_object": ("jsonb", _object),
    "least": (OF_FIRST, lambda *values: min(_known(values), default=None)),
    "left": ("text", lambda text, n: str(text)[:n]),
    "parse_ident": ("_text", _parse_ident),
    "pg_size_pretty": ("text", _size_pretty),
    "position": ("int4", lambda part, text: text.find(part) + 1),
    "pow": ("float8", lambda x, y: float(x) ** float(y)),
    "power": ("float8", lambda x, y: float(x) ** float(y)),
    "quote_ident": ("text", _ident),
    "quote_literal": ("text", _literal),
    "regexp_replace": ("text", _regexp_replace),
    "right": ("text", lambda text, n: str(text)[-n:] if n else ""),
    "split_part": ("text", _split_part),
    "sqrt": ("float8", math.sqrt),
    "string_to_array": ("_text", _split),
    "regexp_split_to_array": ("_text", lambda text, by: json.dumps(re.split(by, text))),
    "catalog_array": ("_text", lambda text: json.dumps(array_items(str(text)))),
    "catalog_array_cat": ("_text", _array_cat),
    "catalog_array_text": ("text", _from_array),
    "catalog_bool": ("bool", _truth),
    "catalog_bool_text": ("text", lambda truth: "true" if truth else "false"),
    "catalog_float_text": ("text", lambda number: repr(float(number)).removesuffix(".0")),
    "catalog_item": (ITEM_OF_FIRST, _item),
    "catalog_matches": ("bool", _matches),
    "catalog_series": ("_int4", lambda a, b, step=1: json.dumps(list(range(a, b + 1, step)))),
    "catalog_whole": ("int8", _whole),
}
_OF_VIEW: Final[Mapping[str, str]] = {
    **dict.fromkeys(("col_description", "current_setting", "format_type"), "text"),
    **dict.fromkeys(("obj_description", "set_config", "version", "catalog_name"), "text"),
    **dict.fromkeys(("current_database", "current_schema", "pg_get_userbyid"), "name"),
    **dict.fromkeys(("has_any_column_privilege", "has_column_privilege"), "bool"),
    **dict.fromkeys(("has_table_privilege", "pg_table_is_visible", "pg_type_is_visible"), "bool"),
    "current_schemas": "_name",
    "to_regclass": "regclass",
    "to_regtype": "regtype",
    "catalog_oid": "oid",
}
_OF_NULL: Final = frozenset(
    {
        *(
            "array_position",
            "array_to_string",
            "catalog_array_cat",
            "concat",
            "concat_ws",
            "format",
        ),
        *("greatest", "json_build_array", "json_build_object", "jsonb_build_object", "least"),
        *("string_to_array", "format_type", "has_any_column_privilege", "has_column_privilege"),
        *("has_table_privilege", "set_config"),
    }
)
"""The functions that may have a value where an argument is NULL. All others are NULL there."""

KINDS: Final[Mapping[str, str]] = (
    {**BUILT_IN, **_OF_VIEW}
    | {name: kind for name, (_, kind) in RENAMED.items()}
    | {name: kind for name, (kind, _) in {**_ALWAYS, **_PLAIN}.items()}
)
"""The type of the value of each function, or which argument gives it."""


class ViewFunctions:
    """The functions whose values depend on what an analyst sees, or on the settings of the connection.

    Attributes:
        settings: The settings, by their names in small letters.
        fault: What a function refused last. SQLite says only that one did.
    """

    def __init__(self, view: CatalogView) -> None:
        self._view = view
        self._comments = comments(view)
        self._classes = {
            f"{schema}.{name}": oid for (schema, name), oid in table_oids(view).items()
        }
        self._classes |= CATALOG_OIDS
        self._full_names = {oid: name for name, oid in self._classes.items()}
        self._names = names_of_oids(view)
        self._names["regclass"] = {
            oid: _shown(name, ("pg_catalog.", "public.")) for name, oid in self._classes.items()
        }
        self.settings: Mapping[str, str] = {}
        self.fault: SqlFault | None = None

    def register(self, database: sqlite3.Connection) -> None:
        """Gives SQLite all functions of this module."""
        for name, (_, value) in _ALWAYS.items():
            database.create_function(name, -1, partial(_same, value))
        for name, (_, call) in _PLAIN.items():
            self._add(database, name, call)
        for name in _OF_VIEW:
            method = "_privilege" if name.endswith("_privilege") else f"_{name}"
            self._add(database, name, getattr(self, method))

    def _add(self, database: sqlite3.Connection, name: str, call: Function) -> None:
        def guarded(*arguments: Any) -> Any:
            if None in arguments and name not in _OF_NULL:
                return None
            try:
                return call(*arguments)
            except SqlFault as fault:
                self.fault = fault
                raise
            except MemoryError:
                self.fault = SqlFault("53200", "the statement needs too much memory")
                raise
            except (TypeError, ValueError, AttributeError, IndexError, re.error):
                self.fault = SqlFault("22023", f"{name} does not take these arguments")
                raise

        database.create_function(name, -1, guarded)

    def class_oid(self, text: str) -> int:
        """Returns the oid of the table that a text names.

        Raises:
            SqlFault: There is none.
        """
        if text.isdigit():
            return int(text)
        found = self._to_regclass(text)
        if found is None:
            raise SqlFault("42P01", "a relation that is named in a text does not exist")
        return found

    def oid_of(self, kind: str, text: str) -> int:
        """Returns the oid of the thing of a type such as ``regproc`` that a text names."""
        if text.isdigit():
            return int(text)
        if kind == "regclass":
            return self.class_oid(text)
        if kind == "regtype":
            name = type_named(text)
            if name is None:
                raise SqlFault("42704", "a type that is named in a text does not exist")
            return OIDS[name]
        bare = text.removeprefix("pg_catalog.")
        for oid, name in self._names.get(kind, {}).items():
            if bare in (name, name.strip('"')):
                return oid
        raise SqlFault("42704", f"a text names nothing that type {kind} has")

    def _to_regclass(self, text: Any) -> int | None:
        if isinstance(text, int):
            return text
        parts = json.loads(_parse_ident(text))
        if len(parts) > 1:
            return self._classes.get(".".join(parts[-2:]))
        return self._found(parts[0]) if parts else None

    def _found(self, name: str) -> int | None:
        """Returns the oid of the first table of this name on the path."""
        oids = (self._classes.get(f"{schema}.{name}") for schema in ("pg_catalog", *self.path()))
        return next((oid for oid in oids if oid is not None), None)

    def path(self) -> list[str]:
        """Returns the schemas in which a table without a schema is looked for."""
        names = [
            name.strip().strip('"')
            for name in self.settings.get("search_path", "public").split(",")
        ]
        return [name for name in names if name != "$user"]

    def _catalog_oid(self, kind: str, value: Any) -> int:
        return self.oid_of(kind, str(value))

    def _catalog_name(self, kind: str, oid: Any) -> str:
        return self._names.get(kind, {}).get(int(oid), str(oid))

    def _to_regtype(self, text: Any) -> int | None:
        name = type_named(str(text))
        return None if name is None else OIDS[name]

    def _col_description(self, oid: Any, number: Any) -> str | None:
        return self._comments.get((oid, number))

    def _obj_description(self, oid: Any, catalog: Any = "pg_class") -> str | None:
        return self._comments.get((oid, 0)) if catalog == "pg_class" else None

    def _current_database(self) -> str:
        return self._view.database

    def _current_schemas(self, implicit: Any) -> str:
        return json.dumps((["pg_catalog"] if implicit else []) + self.path())

    def _current_schema(self) -> str | None:
        return next(iter(self.path()), None)

    def _current_setting(self, name: Any, is_missing_ok: Any = 0) -> str | None:
        found = self.settings.get(str(name).lower())
        if found is None and not is_missing_ok:
            raise SqlFault("42704", "unrecognized configuration parameter")
        return found

    def _set_config(self, _name: Any, value: Any, _is_local: Any) -> Any:
        return value

    def _format_type(self, oid: Any, _modifier: Any) -> str | None:
        return None if oid is None else self._names["regtype"].get(int(oid), "???")

    def _privilege(self, *arguments: Any) -> bool:
        return "select" in str(arguments[-1]).lower()

    def _pg_get_userbyid(self, oid: Any) -> str:
        return self._view.user if oid == OWNER else f"unknown (OID={oid})"

    def _pg_table_is_visible(self, oid: Any) -> bool | None:
        name = self._full_names.get(oid)
        return None if name is None else self._found(name.split(".", 1)[1]) == oid

    def _pg_type_is_visible(self, oid: Any) -> bool:
        return oid in _VISIBLE_TYPES

    def _version(self) -> str:
        return f"PostgreSQL {self.settings.get('server_version', '15.0')}"


def _shown(name: str, hidden: tuple[str, ...]) -> str:
    for schema in hidden:
        if name.startswith(schema):
            return _ident(name.removeprefix(schema))
    return ".".join(map(_ident, name.split(".", 1)))


def function_kind(name: str, arguments: list[str | None]) -> str | None:
    """Returns the type of the value of a function for the types of its arguments.

    Raises:
        SqlFault: There is no such function.
    """
    kind = KINDS.get(name)
    if kind is None:
        raise SqlFault("42883", f"function {name} does not exist")
    first = arguments[0] if arguments else None
    if kind == OF_FIRST:
        return "int8" if name == "sum" and first in ("int2", "int4") else first
    if kind == ARRAY_OF_FIRST:
        return f"_{first}" if f"_{first}" in OIDS else "_text"
    if kind == ITEM_OF_FIRST:
        return first[1:] if first and first.startswith("_") else "text"
    return kind
