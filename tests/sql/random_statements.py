"""Statements at random about one table, each with the same statement for a database that has the rows.

Each cell of an attribute has one value in the rows, so that a database groups them as the cells do. The
database has further columns: ``mon_in`` and ``at_in`` are NULL outside the declared range, as what a function
of a date gives is, and ``city_listed`` is NULL for unlisted values, of which a pattern knows nothing.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from stream_dp import sql
from stream_dp.client.statements.statement_table import evaluate
from stream_dp.core.queries.conditions import compile_where
from stream_dp.messages import NoisyAnswer
from tests.answers import noisy_answer
from tests.sql.schemas import SCHEMA, universe_of

SIZES = ["S", "M", "L", "XL"]
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

UNIVERSE = universe_of(SCHEMA)
LABELS = {attribute.name: attribute.labels for attribute in UNIVERSE.attributes}

FIRST = date(2025, 10, 27)
PERIODS = [(FIRST + timedelta(days=i)).isoformat() for i in range(9)]
RAW: dict[str, list[Any]] = {
    "size": [*SIZES, None],
    "city": ["Bonn", "Graz", "Lyon", "Oslo", None],
    "age": [9, 24, 30, 40, 70, None],
    "paid": [False, True, None],
    "mon": ["2025-07-05", "2025-10-07", "2025-11-30", "2025-12-01", "2026-01-17", "2026-02-01"],
    "at": ["2025-10-26", *PERIODS, "2025-11-05", None],
    "wd": list(DAYS),
}
"""The value of each cell in the rows of the database."""

N = 6000
_draws = np.random.default_rng(7)
CODES = {name: _draws.integers(len(cells), size=N) for name, cells in RAW.items()}


class Key(NamedTuple):
    """A group column: the expression, for us and for the database, and what the database groups by."""

    ours: str
    theirs: str
    groups: str


YOUNG = "CASE WHEN age < 30 THEN 'young' WHEN age >= 65 THEN 'old' END"
KEYS: dict[str, Key] = {name: Key(name, name, name) for name in RAW} | {
    "city": Key("city", "city", "city, city_listed"),
    "mon": Key("mon", "mon", "mon, mon_in"),
    **{name: Key(f"DATE_TRUNC('{unit}', {of})", *[f"DATE_TRUNC('{unit}', {of}_in)"] * 2)
       for name, unit, of in (
           ("mon_of", "month", "mon"), ("at_of", "day", "at"), ("week_of", "week", "at"),
           ("month_of", "month", "at"))},
    "dow": Key("EXTRACT(DOW FROM wd)", "wd_dow", "wd_dow"),
    "number": Key("EXTRACT(MONTH FROM mon)", *["EXTRACT(MONTH FROM mon_in)"] * 2),
    "kind": Key(YOUNG, YOUNG, YOUNG),
    "rank": Key("CASE WHEN size > 'M' THEN 10 WHEN size IS NOT NULL THEN 9 END",
                *["CASE WHEN size IN ('L', 'XL') THEN 10 WHEN size IS NOT NULL THEN 9 END"] * 2),
    "large": Key("size >= 'L'", *["size IN ('L', 'XL')"] * 2),
}  # fmt: skip

LISTED = [
    f"{{k}} {{in}} ({values})"
    for values in ("{value}", "{value}, {value2}", "{value}, {value2}, NULL")
]
EQUAL = [*LISTED, "{k} {equal} {value}", "{value} {equal} {k}"]
ORDER = ["{k} {order} {value}", "{value} {order} {k}", "{k} {between} {value} AND {value2}"]
SAME = ["{k} IS{not} DISTINCT FROM {value}"]
NULL = ["{k} IS{not} NULL"]
FOLDED = [
    *("{fold}({k}) {equal} {folded}", "{folded} = {fold}({k})"),
    *("{fold}({k}) {in} ({folded}, {folded2})", "{fold}({k}) {in} ({folded}, {folded2}, NULL)"),
]
TIMES = [
    *("{k} {order} '{day}{time}'", "'{day}{time}' {order} {k}"),
    "{k} {between} '{day}{midnight}' AND '{day2}{end}'",
]
CUT = [form.replace("{k}", "DATE_TRUNC('{unit}', {k})").replace("{day", "{early") for form in TIMES]
STATES = [
    "{k}",
    "{k} {equal} TRUE",
    "{k} = FALSE",
    *(f"{{k}} IS{x}" for x in (" TRUE", " NOT TRUE", " FALSE")),
]
MONTHS = "{k} >= '{label}-01' AND {k} < '{following}'"
FORMS: dict[str, list[str | tuple[str, str]]] = {
    "size": [*NULL, *EQUAL, *ORDER, *SAME, *FOLDED, "{fold}({k}) IS{not} DISTINCT FROM {folded}"],
    "city": [*NULL, *EQUAL, *SAME, *((form, form.replace("{k}", "{k}_listed")) for form in (
        *FOLDED, "{k} LIKE '%n'", "{k} NOT LIKE 'B%'")), ("{k} = 'other'", "{k} = 'Oslo'")],
    "kind": [*NULL, *EQUAL, *SAME, *FOLDED, "{k}{not} LIKE 'y%'"],
    **{key: [*NULL, *EQUAL, *ORDER] for key in ("dow", "number", "rank")},
    "wd": [*EQUAL, *ORDER, *SAME],
    "age": [*NULL, "{k} {begins} {edge}", "{k} {ends} {last}", "{edge} {ends} {k}", "{k} {equal} 30",
            "{k} {between} {edge} AND {last}"],
    "paid": [*NULL, *STATES], "large": [*NULL, *STATES],
    "mon": [
        *("{k} {begins} {value}", "{k} >= TIMESTAMP '{day} 00:00:00'", "'{day} 00:00:00.000000' > {k}"),
        "{k} >= '{day}' AND {k} < '{day2}'", ("{k} = '{label}'", f"({MONTHS})"),
        ("{k} <> '{label}'", f"NOT ({MONTHS})"), ("{k} NOT IN ('{label}')", f"NOT ({MONTHS})"),
        ("{k} <= '{label}'", "{k} < '{following}'"), ("{k} > '{label}'", "{k} >= '{following}'"),
        ("{k} BETWEEN '2025-10' AND '{label}'", "{k} >= '2025-10-01' AND {k} < '{following}'"),
        ("EXTRACT(MONTH FROM {k}) >= 11", "EXTRACT(MONTH FROM {k}_in) >= 11"),
    ],
    "at": [*NULL, *EQUAL, *ORDER, *SAME, "{k} {begins} TIMESTAMP '{day} 00:00:00'",
           "{k} {ends} '{day}{end}'", "'{day}{end}' >= {k}", TIMES[-1], *CUT],
    **{key: [*NULL, *EQUAL, *ORDER, *SAME, *TIMES] for key in ("mon_of", "at_of", "week_of", "month_of")},
}  # fmt: skip
"""Conditions on a key, ``{k}``: one for us, or ours and the one of the database."""

POOLS: dict[str, Sequence[str]] = {
    "in": ["IN", "NOT IN"], "equal": ["=", "<>"], "order": ["<", "<=", ">", ">="],
    "between": ["BETWEEN", "NOT BETWEEN"], "not": ["", " NOT"], "fold": ["LOWER", "UPPER"],
    "begins": ["<", ">="], "ends": ["<=", ">"],
    "edge": ["18", "30", "31", "65"], "last": ["17", "29", "30", "64"],
    "midnight": ["", "T00:00:00", " 00:00:00.000000"], "end": ["T23:59:59", " 23:59:59", " 23:59:59.999"],
    "time": ["", "T00:00:00", " 12:00:00", "T08:30", "T23:59:59", " 23:59:59"],
    "label": ["2025-10", "2025-11", "2026-01"], "unit": ["day", "week"], "early": PERIODS[:7],
}  # fmt: skip
FOLLOWING = {"2025-10": "2025-11-01", "2025-11": "2025-12-01", "2026-01": "2026-02-01"}
_MONTHS = [f"{month}-01" for month in ("2025-10", "2025-11", "2025-12", "2026-01")]
VALUES: dict[str, Sequence[Any]] = {
    "size": SIZES, "wd": DAYS, "city": ["Bonn", "Graz", "Lyon"], "kind": ["young", "old"],
    "dow": range(7), "number": [1, 10, 11, 12], "rank": [9, 10],
}  # fmt: skip
BEGINNINGS = {
    "mon": _MONTHS, "mon_of": _MONTHS, "at": PERIODS, "at_of": PERIODS,
    "week_of": ["2025-10-27", "2025-11-03"], "month_of": _MONTHS[:2],
}  # fmt: skip
"""The constants that a key is compared with; of dates those at which a period begins."""
WITHIN = {
    "mon_of": [*_MONTHS, "2025-10-31", "2025-12-24", "2026-01-31"], "week_of": PERIODS,
    "month_of": [*PERIODS, "2025-10-01", "2025-11-30"],
}  # fmt: skip
"""Dates within a period, for comparisons by order."""


class Drawn(dict[str, str]):
    """The constants and the words of one form, drawn when they are named; ``{day2}`` is another ``{day}``."""

    def __init__(self, one: Any, key: str) -> None:
        super().__init__(k="{k}")
        days = BEGINNINGS.get(key, ())
        values = [repr(value) for value in VALUES.get(key, ())]
        folded = [fold(value) for value in values for fold in (str, str.lower, str.upper)]
        self._one = one
        self._pools = {
            **POOLS, "value": values or [f"DATE '{day}'" for day in days], "folded": folded,
            "day": WITHIN.get(key, days),
        }  # fmt: skip

    def __missing__(self, name: str) -> str:
        if name == "following":
            return FOLLOWING[self["label"]]
        self[name] = self._one(self._pools[name.rstrip("2")])
        return self[name]


def _one_term(name: str) -> str:
    return f"({name})" if " " in name else name


def _with_plain_times(form: str) -> str:
    """The rows have days: what is later on a day than its beginning is after it."""
    form = re.sub(r"(DATE|TIMESTAMP) '", "'", form)
    form = re.sub(r"(\d-\d\d)[T ]00:00:00[.0]*'", r"\1'", form)
    return re.sub(r"(\d-\d\d)[T ][\d:.]+'", r"\1T'", form)


class Draw:
    """Draws statements."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._one = self._random.choice

    # -------------------------------------------------------- conditions

    def atom(self, key: str) -> tuple[str, str]:
        """Returns a condition on a key, with ``{k}`` for the key, for us and for the database."""
        form = self._one(FORMS[key])
        ours, theirs = (form, form) if isinstance(form, str) else form
        drawn = Drawn(self._one, key)
        return ours.format_map(drawn), _with_plain_times(theirs.format_map(drawn))

    def condition(
        self, keys: Sequence[str], named: Any, depth: int = 2, *, rows: bool = True
    ) -> tuple[str, str]:
        """Returns a condition on keys, and on the number of ``rows``, for us and for the database."""
        form = self._random.random()
        if depth and form < 0.45:
            (a, b), (c, d) = (self.condition(keys, named, depth - 1, rows=rows) for _ in range(2))
            word = self._one(["AND", "OR"])
            return f"({a} {word} {c})", f"({b} {word} {d})"
        if depth and form < 0.6:
            a, b = self.condition(keys, named, depth - 1, rows=rows)
            before, after = self._one([("NOT ", ""), ("", " IS TRUE"), ("", " IS NOT FALSE")])
            return f"({before}({a}){after})", f"({before}({b}){after})"
        if form < 0.7 and named is not None and rows:
            limit = self._one([100, 400, 900])
            same = self._one([f"n > {limit}", f"n <= {limit}", f"n NOT IN ({limit}, 1, NULL)"])
            return same, same
        key = self._one(keys)
        ours, theirs = self.atom(key)
        name = KEYS[key].ours if named is None else named[key]
        return (
            f"({ours.format(k=_one_term(name))})",
            f"({theirs.format(k=_one_term(KEYS[key].theirs))})",
        )

    # -------------------------------------------------------- statements

    def statement(self) -> tuple[str, str, bool]:
        """Returns a statement for us, one for the database, and whether its rows are in order."""
        if self._random.random() < 0.12:
            return self._distinct()
        keys = self._random.sample(list(KEYS), self._random.choice([1, 1, 2]))
        if set(keys) in ({"mon", "mon_of"}, {"at", "at_of"}, {"at", "week_of"}, {"wd", "dow"}):
            keys = keys[:1]
        theirs = [KEYS[key].theirs for key in keys]
        groups = ", ".join(KEYS[key].groups for key in keys)
        selected = ", ".join(
            KEYS[key].ours if KEYS[key].ours == key else f"{KEYS[key].ours} AS {key}"
            for key in keys
        )
        base = f"SELECT {', '.join(theirs)}, COUNT(*) AS n FROM t"
        inner = f"SELECT {selected}, COUNT(*) AS n FROM t{{}} GROUP BY {', '.join(keys)}"
        form = self._one(["WHERE", "HAVING", "HAVING of aliases", "around", "sums"])
        if form == "sums":
            ours, same = self._sums(keys, inner)
            keys = [key for key in keys if key in names_in(ours)]
        elif form == "WHERE":
            plain = [key for key in keys if KEYS[key].ours == key] or ["size"]
            condition, where = self.condition(plain, None, depth=1)
            ours = inner.format(f" WHERE {condition}")
            same = f"{base} WHERE {where} GROUP BY {groups}"
        else:
            names = {key: KEYS[key].ours if form == "HAVING" else key for key in keys}
            condition, having = self.condition(keys, names)
            having = re.sub(r"\bn (?=[<>]|NOT IN)", "COUNT(*) ", having)
            same = f"{base} GROUP BY {groups} HAVING {having}"
            around = "SELECT * FROM ({}) AS v WHERE {}" if form == "around" else "{} HAVING {}"
            ours = around.format(inner.format(""), condition)
        order = self._order(keys)
        if order is None:
            return ours, same, False
        return f"{ours}{order[0]}", f"{same}{order[1]}", True

    def _sums(self, keys: Sequence[str], inner: str) -> tuple[str, str]:
        """Returns a SELECT that adds up counts by some of the keys, and what it comes to."""
        some = self._random.sample(list(keys), self._random.randint(1, len(keys)))
        function = self._one(["SUM", "MAX", "AVG"] if len(some) == len(keys) else ["SUM"])
        listed = ", ".join(some)
        plain = [key for key in keys if KEYS[key].ours == key]
        ours, theirs = ["", ""], []
        for place in (0, 1) if plain else ():
            if self._random.random() < 0.6:
                names = {key: key for key in plain}
                condition, where = self.condition(plain, names, depth=1, rows=False)
                ours[place] = f" WHERE {condition}"
                theirs.append(where)
        below, above = ours
        inside = f"({inner.format(below)}) AS v{above}"
        around = f"SELECT {listed}, {function}(n) AS n FROM {inside} GROUP BY {listed}"
        where = f" WHERE {' AND '.join(theirs)}" if theirs else ""
        selected = ", ".join(KEYS[key].theirs for key in some)
        groups = ", ".join(KEYS[key].groups for key in some)
        return around, f"SELECT {selected}, COUNT(*) AS n FROM t{where} GROUP BY {groups}"

    def _order(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """Returns an ORDER BY of all keys, with LIMIT where each group has another value."""
        if self._random.random() < 0.4:
            return None
        shuffled = self._random.sample(list(keys), len(keys))
        ends = [self._one(["", " DESC"]) + self._one([" NULLS FIRST", " NULLS LAST"]) for _ in keys]
        ours = ", ".join(map(str.__add__, shuffled, ends))
        theirs = ", ".join(
            f"{KEYS[key].theirs}{end}" for key, end in zip(shuffled, ends, strict=True)
        )
        cut = ""
        if self._random.random() < 0.5:
            cut = f" LIMIT {self._random.randint(1, 6)} OFFSET {self._random.randint(0, 2)}"
        return f" ORDER BY {ours}{cut}", f" ORDER BY {theirs}{cut}"

    def _distinct(self) -> tuple[str, str, bool]:
        keys = self._random.sample(["size", "city", "paid"], self._random.randint(1, 2))
        listed = ", ".join(keys)
        order = " ORDER BY " + ", ".join(key + self._one(["", " DESC"]) for key in keys)
        theirs = f"SELECT DISTINCT {listed} FROM declared"
        if self._one([True, False]):
            return f"SELECT DISTINCT {listed} FROM t{order}", theirs + order, True
        condition, where = self.condition(keys, {key: key for key in keys}, rows=False)
        ours = f"SELECT {listed} FROM t GROUP BY {listed} HAVING {condition}{order}"
        return ours, f"{theirs} WHERE {where.replace('city_listed', 'city')}{order}", True


# ------------------------------------------------------------ what we say


def answered(statement: str) -> list[tuple[Any, ...]]:
    """Returns our rows, without bars and what is sure, from exact answers to the queries of a statement."""
    plan = sql.plan(statement, SCHEMA, dataset="t")
    table = evaluate(plan, "t", [_answer(query) for query in plan.queries])
    shown = [i for i, column in enumerate(table.columns) if not (column.bar_of or column.sure_of)]
    return [tuple(row[i] for i in shown) for row in table.rows]


def _answer(query: dict[str, Any]) -> NoisyAnswer:
    chosen = _rows_of(query["where"])
    names = query.get("group_by", [])
    shape = [len(LABELS[name]) for name in names]
    if not names:
        count = int(chosen.sum())
        return noisy_answer(N, kind="predicate", value=count / N, count=count, error_bar=0.0)
    flat = np.ravel_multi_index([CODES[name][chosen] for name in names], shape)
    counts = np.bincount(flat, minlength=int(np.prod(shape))).tolist()
    cells = {
        "attributes": names, "labels": [LABELS[name] for name in names], "counts": counts,
        "values": [count / N for count in counts], "error_bars": [0.0] * len(counts),
    }  # fmt: skip
    return noisy_answer(N, kind="table", table=cells)


def _rows_of(where: dict[str, Any] | None) -> Any:
    if where is None:
        return np.ones(N, dtype=bool)
    predicate = compile_where(UNIVERSE, where, max_depth=200, max_nodes=5000)
    if predicate.constant is not None:
        return np.full(N, predicate.constant)
    codes = list(CODES.values())
    return predicate.mask[tuple(codes[place] for place in predicate.attributes)]


# ------------------------------------------------------------ what a database says


def rows() -> list[tuple[Any, ...]]:
    """Returns the rows of the database."""
    found = []
    for i in range(N):
        row = {name: cells[int(CODES[name][i])] for name, cells in RAW.items()}
        row["mon_in"] = row["mon"] if "2025-10-01" <= row["mon"] < "2026-02-01" else None
        row["at_in"] = row["at"] if row["at"] in PERIODS else None
        row["city_listed"] = None if row["city"] == "Oslo" else row["city"]
        row["wd_dow"] = (DAYS.index(row["wd"]) + 1) % 7
        found.append(tuple(row.values()))
    return found


def shown(row: Sequence[Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Returns a row of the database as our table shows it."""
    values = []
    for name, value in zip(names, row, strict=True):
        if name in RAW:
            told = LABELS[name][RAW[name].index(value)]
            value = {"missing": None, "true": True, "false": False}.get(told, told)
        values.append(bool(value) if name == "large" and value is not None else value)
    return tuple(values)


class SQLite:
    """The rows in SQLite, where sizes and weekdays have the order in which they are declared."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("PRAGMA case_sensitive_like = TRUE")
        for name, listed in (("sizes", SIZES), ("days", DAYS)):
            self.connection.create_collation(name, partial(_apart, listed))
        self.connection.create_function("date_trunc", 2, _truncated, deterministic=True)
        declared = product(SIZES, ("Bonn", "Graz", "Lyon"), (False, True))
        tables = {
            "t (size COLLATE sizes, city, age, paid, mon, at, wd COLLATE days,"
            " mon_in, at_in, city_listed, wd_dow)": rows(),
            "declared (size COLLATE sizes, city, paid)": list(declared),
        }
        for table, values in tables.items():
            self.connection.execute(f"CREATE TABLE {table}")
            insert = f"INSERT INTO {table.split()[0]} VALUES ({', '.join('?' * len(values[0]))})"
            self.connection.executemany(insert, values)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        written = re.sub(
            r"EXTRACT\(MONTH FROM (\w+)\)", r"CAST(SUBSTR(\1, 6, 2) AS INT)", statement
        )
        return self.connection.execute(written).fetchall()


def _apart(listed: Sequence[str], one: str, other: str) -> int:
    return listed.index(one) - listed.index(other)


def _truncated(unit: str, day: str | None) -> str | None:
    if day is None:
        return None
    found = date.fromisoformat(day)
    if unit == "week":
        found -= timedelta(days=found.weekday())
    return (found.replace(day=1) if unit == "month" else found).isoformat()


def names_in(statement: str) -> list[str]:
    """Returns the keys that a statement of ``Draw`` selects, in their order."""
    if "GROUP BY" not in statement:
        return re.findall(r"\w+", statement.split("DISTINCT")[1].split("FROM")[0])
    listed = re.findall(r"GROUP BY ([\w, ]+?)(?: HAVING|\)| ORDER| LIMIT|$)", statement)
    return str(listed[-1]).split(", ")
