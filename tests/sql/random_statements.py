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

_EQUAL = ["=", "<>"]
_OPERATORS = [*_EQUAL, "<", "<=", ">", ">="]
PLAIN: dict[str, tuple[Sequence[Any], list[str]]] = {
    "size": (SIZES, _OPERATORS),
    "wd": (DAYS, _OPERATORS),
    "city": (["Bonn", "Graz", "Lyon"], _EQUAL),
    "kind": (["young", "old"], _EQUAL),
    "dow": (range(7), _OPERATORS),
    "number": ([1, 10, 11, 12], _OPERATORS),
    "rank": ([9, 10], _OPERATORS),
}
"""Keys that are compared with constants alike here and in the database, with the operators for that."""


class Draw:
    """Draws statements."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._one = self._random.choice

    # -------------------------------------------------------- conditions

    def atom(self, key: str) -> tuple[str, str]:
        """Returns a condition on a key, with ``{}`` for the key, for us and for the database."""
        if self._random.random() < 0.08 and key not in ("mon", "wd"):
            state = self._one(["IS NULL", "IS NOT NULL"])
            return f"{{}} {state}", f"{{}} {state}"
        if key not in PLAIN or (self._random.random() < 0.4 and hasattr(self, f"_{key}")):
            return getattr(self, f"_{key}")()
        values, operators = PLAIN[key]
        same = self._compared(list(map(repr, values)), operators)
        while "DISTINCT" in same and not isinstance(values[0], str):
            same = self._compared(list(map(repr, values)), operators)
        return same, same

    def _compared(self, values: Sequence[str], operators: Sequence[str] = _OPERATORS) -> str:
        """A comparison of the key with constants that both sides take."""
        form = self._random.randrange(5)
        if form == 0:
            chosen = self._random.sample(values, self._random.randint(1, min(3, len(values))))
            chosen += ["NULL"] * (self._random.random() < 0.25)
            return f"{{}} {self._one(['IN', 'NOT IN'])} ({', '.join(chosen)})"
        if form == 1 and "<" in operators:
            between = self._one(["BETWEEN", "NOT BETWEEN"])
            return f"{{}} {between} {self._one(values)} AND {self._one(values)}"
        if form == 2:
            mirrored = self._one(operators)
            return f"{self._one(values)} {mirrored} {{}}"
        if form == 3:
            is_same = self._one(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return f"{{}} {is_same} {self._one(values)}"
        return f"{{}} {self._one(operators)} {self._one(values)}"

    def _ordered(self, days: Sequence[str], *, ends: bool = False) -> tuple[str, str]:
        """A comparison by order with a time. ``ends`` allows only those at the end of a day."""
        day, later = sorted(self._random.choices(days, k=2))
        end = f"{later}{self._one(['T23:59:59', ' 23:59:59', ' 23:59:59.999'])}"
        if self._random.random() < 0.3:
            form = f"{{}} {self._one(['BETWEEN', 'NOT BETWEEN'])} '{day}{{}}' AND '{{}}'"
            begins = self._one(["", "T00:00:00", " 00:00:00.000000"])
            return form.format("{}", begins, end), form.format("{}", "", f"{later}T23:59:59")
        operator = self._one(["<=", ">"] if ends else ["<", "<=", ">", ">="])
        times = ["T23:59:59", " 23:59:59"] + ["", "T00:00:00", " 12:00:00", "T08:30"] * (not ends)
        ours = f"{day}{self._one(times)}" if operator in ("<", ">=") or not ends else end
        theirs = ours[:10] + "T" * (len(ours) > 10 and "00:00:00" not in ours)
        if self._random.random() < 0.3:
            mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[operator]
            return f"'{ours}' {mirrored} {{}}", f"'{theirs}' {mirrored} {{}}"
        return f"{{}} {operator} '{ours}'", f"{{}} {operator} '{theirs}'"

    def _folded(self, values: Sequence[str], *, nulls: bool = True) -> tuple[str, str]:
        """A comparison of LOWER or UPPER of the key. ``nulls`` allows those that are never unknown."""
        folds: dict[str, Any] = {"LOWER": str.lower, "UPPER": str.upper}
        name = self._one(list(folds))
        fold = folds[name]
        operators = ["=", "<>"] + ["IS DISTINCT FROM", "IS NOT DISTINCT FROM"] * nulls
        chosen = [f"'{self._one([fold, str])(value)}'" for value in self._random.sample(values, 2)]
        chosen += ["NULL"] * (self._random.random() < 0.2)
        return self._one(
            [
                *[(same, same) for o in operators for same in [f"{name}({{}}) {o} {chosen[0]}"]],
                *[
                    (same, same)
                    for o in ("IN", "NOT IN")
                    for same in [f"{name}({{}}) {o} ({', '.join(chosen)})"]
                ],
                (f"{chosen[1]} = {name}({{}})", f"{chosen[1]} = {name}({{}})"),
            ]
        )

    def _size(self) -> tuple[str, str]:
        return self._folded(SIZES)

    def _city(self) -> tuple[str, str]:
        ours, theirs = self._folded(["Bonn", "Graz", "Lyon"], nulls=False)
        return self._one(
            [
                (ours, theirs.replace("{}", "{}_listed")),
                ("{} = 'other'", "{} = 'Oslo'"),
                ("{} LIKE '%n'", "{}_listed LIKE '%n'"),
                ("{} NOT LIKE 'B%'", "{}_listed NOT LIKE 'B%'"),
            ]
        )

    def _kind(self) -> tuple[str, str]:
        patterns = [(same, same) for same in ("{} LIKE 'y%'", "{} NOT LIKE 'y%'")]
        return self._one([self._folded(["young", "old"], nulls=False), *patterns])

    def _age(self) -> tuple[str, str]:
        low, high = sorted(self._random.sample([18, 30, 31, 65], 2))
        same = self._one(
            [
                f"{{}} {self._one(['<', '>='])} {self._one([18, 30, 31, 65])}",
                f"{{}} {self._one(['<=', '>'])} {self._one([17, 29, 30, 64])}",
                f"{self._one([18, 65])} {self._one(['<=', '>'])} {{}}",
                f"{{}} {self._one(['BETWEEN', 'NOT BETWEEN'])} {low} AND {high - 1}",
                f"{{}} {self._one(['=', '<>'])} 30",
            ]
        )
        return same, same

    def _paid(self) -> tuple[str, str]:
        state = self._one(["IS TRUE", "IS NOT TRUE", "IS FALSE", "= TRUE", "<> TRUE", "= FALSE"])
        return self._one([("{}", "{}"), (f"{{}} {state}", f"{{}} {state}")])

    _large = _paid

    def _mon(self) -> tuple[str, str]:
        first, after = self._random.sample(
            ["2025-10-01", "2025-11-01", "2025-12-01", "2026-01-01"], 2
        )
        label, following = self._one(
            [("2025-10", "2025-11-01"), ("2025-11", "2025-12-01"), ("2026-01", "2026-02-01")]
        )
        wide = f"({{0}} >= '{label}-01' AND {{0}} < '{following}')"
        return self._one(
            [
                *[(f"{{}} {o} DATE '{first}'", f"{{}} {o} '{first}'") for o in ("<", ">=")],
                (f"{{}} >= TIMESTAMP '{first} 00:00:00'", f"{{}} >= '{first}'"),
                (f"'{first} 00:00:00.000000' > {{}}", f"{{}} < '{first}'"),
                (f"{{}} = '{label}'", wide),
                (f"{{}} <> '{label}'", f"NOT {wide}"),
                (f"{{}} NOT IN ('{label}')", f"NOT {wide}"),
                (f"{{}} <= '{label}'", f"{{}} < '{following}'"),
                (f"{{}} > '{label}'", f"{{}} >= '{following}'"),
                *[(same, same) for same in [f"{{0}} >= '{first}' AND {{0}} < '{after}'"]],
                (f"{{}} BETWEEN '2025-10' AND '{label}'",
                 f"({{0}} >= '2025-10-01' AND {{0}} < '{following}')"),
                ("EXTRACT(MONTH FROM {}) >= 11", "EXTRACT(MONTH FROM {}_in) >= 11"),
            ]
        )  # fmt: skip

    def _at(self) -> tuple[str, str]:
        form = self._random.random()
        if form < 0.2:
            return self._ordered(PERIODS, ends=True)
        if form < 0.35:
            unit, days = self._one([("week", PERIODS[:7]), ("day", PERIODS[:8])])
            ours, theirs = self._ordered(days)
            cut = f"DATE_TRUNC('{unit}', {{}})"
            return ours.replace("{}", cut), theirs.replace("{}", cut)
        if self._random.random() < 0.2:
            day = self._one(PERIODS[1:])
            o = self._one(["<", ">="])
            return f"{{}} {o} TIMESTAMP '{day} 00:00:00'", f"{{}} {o} '{day}'"
        days = [f"'{day}'" for day in PERIODS]
        ours = self._compared(days)
        return re.sub("('2025-[^']*')", r"DATE \1", ours), ours

    def _dates(self, days: Sequence[str], within: Sequence[str] = ()) -> tuple[str, str]:
        """A comparison with days that begin a period, or by order with times on others ``within`` some."""
        if self._random.random() < 0.4:
            return self._ordered(within or days)
        ours = self._compared([f"'{day}'" for day in days])
        return re.sub("('2025-[^']*'|'2026-[^']*')", r"DATE \1", ours), ours

    def _mon_of(self) -> tuple[str, str]:
        begin = ["2025-10-01", "2025-11-01", "2025-12-01", "2026-01-01"]
        return self._dates(begin, [*begin, "2025-10-31", "2025-12-24", "2026-01-31"])

    def _at_of(self) -> tuple[str, str]:
        return self._dates(PERIODS)

    def _week_of(self) -> tuple[str, str]:
        return self._dates(["2025-10-27", "2025-11-03"], PERIODS)

    def _month_of(self) -> tuple[str, str]:
        return self._dates(["2025-10-01", "2025-11-01"], [*PERIODS, "2025-10-01", "2025-11-30"])

    def condition(self, keys: Sequence[str], named: Any, depth: int = 2) -> tuple[str, str]:
        """Returns a condition on keys and on the number of rows, for us and for the database."""
        form = self._random.random()
        if depth and form < 0.45:
            (a, b), (c, d) = (self.condition(keys, named, depth - 1) for _ in range(2))
            word = self._one(["AND", "OR"])
            return f"({a} {word} {c})", f"({b} {word} {d})"
        if depth and form < 0.6:
            a, b = self.condition(keys, named, depth - 1)
            before, after = self._one([("NOT ", ""), ("", " IS TRUE"), ("", " IS NOT FALSE")])
            return f"({before}({a}){after})", f"({before}({b}){after})"
        if form < 0.7 and named is not None:
            limit = self._one([100, 400, 900])
            same = f"n {self._one(['>', '>', '<=', '<='])} {limit}"
            if self._random.random() < 0.1:
                same = f"n NOT IN ({limit}, 1, NULL)"
            return same, same
        key = self._one(keys)
        ours, theirs = self.atom(key)
        name = KEYS[key].ours if named is None else named[key]
        name = f"({name})" if " " in name else name
        return f"({ours.format(name)})", f"({self._theirs(theirs, key)})"

    @staticmethod
    def _theirs(form: str, key: str) -> str:
        name = KEYS[key].theirs
        return form.format(f"({name})" if " " in name else name)

    # -------------------------------------------------------- statements

    def statement(self) -> tuple[str, str, bool]:
        """Returns a statement for us, one for the database, and whether its rows are in order."""
        if self._random.random() < 0.12:
            return self._distinct()
        keys = self._random.sample(list(KEYS), self._random.choice([1, 1, 2]))
        if set(keys) in ({"mon", "mon_of"}, {"at", "at_of"}, {"wd", "dow"}):
            keys = keys[:1]
        theirs = [KEYS[key].theirs for key in keys]
        groups = ", ".join(KEYS[key].groups for key in keys)
        selected = ", ".join(
            KEYS[key].ours if KEYS[key].ours == key else f"{KEYS[key].ours} AS {key}"
            for key in keys
        )
        base = f"SELECT {', '.join(theirs)}, COUNT(*) AS n FROM t"
        form = self._random.randrange(4)
        if form == 0:  # WHERE inside
            plain = [key for key in keys if KEYS[key].ours == key] or ["size"]
            ours, same = self.condition(plain, None, depth=1)
            ours = (
                f"SELECT {selected}, COUNT(*) AS n FROM t WHERE {ours} GROUP BY {', '.join(keys)}"
            )
            same = f"{base} WHERE {same} GROUP BY {groups}"
        else:
            names = {key: KEYS[key].ours if form == 1 else key for key in keys}
            condition, having = self.condition(keys, names)
            having = re.sub(r"\bn (?=[<>]|NOT IN)", "COUNT(*) ", having)
            same = f"{base} GROUP BY {groups} HAVING {having}"
            inner = f"SELECT {selected}, COUNT(*) AS n FROM t GROUP BY {', '.join(keys)}"
            if form == 3:
                ours = f"SELECT * FROM ({inner}) AS v WHERE {condition}"
            else:
                ours = f"{inner} HAVING {condition}"
        order = self._order(keys)
        if order is None:
            return ours, same, False
        return f"{ours}{order[0]}", f"{same}{order[1]}", True

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
        ours = f"SELECT DISTINCT {listed} FROM t"
        where = ""
        if self._random.random() < 0.5:
            condition, where = self.condition(keys, dict(zip(keys, keys, strict=True)))
            while "n " in re.sub(r"'[^']*'|IN |IS|BETWEEN ", "", condition):
                condition, where = self.condition(keys, dict(zip(keys, keys, strict=True)))
            ours = f"SELECT {listed} FROM t GROUP BY {listed} HAVING {condition}"
            where = f" WHERE {where}".replace("city_listed", "city")
        ends = [self._one(["", " DESC"]) for _ in keys]
        order = f" ORDER BY {', '.join(map(str.__add__, keys, ends))}"
        return ours + order, f"SELECT DISTINCT {listed} FROM declared{where}{order}", True


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


def rows() -> list[dict[str, Any]]:
    """Returns the rows of the database."""
    found = []
    for i in range(N):
        row = {name: cells[int(CODES[name][i])] for name, cells in RAW.items()}
        row["mon_in"] = row["mon"] if "2025-10-01" <= row["mon"] < "2026-02-01" else None
        row["at_in"] = row["at"] if row["at"] in PERIODS else None
        row["city_listed"] = None if row["city"] == "Oslo" else row["city"]
        row["wd_dow"] = (DAYS.index(row["wd"]) + 1) % 7
        found.append(row)
    return found


def declared() -> list[tuple[Any, ...]]:
    """Returns the declared values of size, city and paid, all of them together."""
    return [(s, c, p) for s in SIZES for c in ("Bonn", "Graz", "Lyon") for p in (False, True)]


def shown(row: Sequence[Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Returns a row of the database as our table shows it."""
    values: list[Any] = []
    for name, value in zip(names, row, strict=True):
        if name in RAW:
            told = LABELS[name][RAW[name].index(value)]
            values.append(
                None if told == "missing" else {"true": True, "false": False}.get(told, told)
            )
        elif name == "large":
            values.append(None if value is None else bool(value))
        else:
            values.append(value)
    return tuple(values)


class SQLite:
    """The rows in SQLite, where sizes and weekdays have the order in which they are declared."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("PRAGMA case_sensitive_like = TRUE")
        for name, listed in (("sizes", SIZES), ("days", DAYS)):
            self.connection.create_collation(name, partial(_apart, listed))
        self.connection.create_function("date_trunc", 2, _truncated, deterministic=True)
        self.connection.create_function("part", 2, _part, deterministic=True)
        columns = [*RAW, "mon_in", "at_in", "city_listed", "wd_dow"]
        collated = {"size": " COLLATE sizes", "wd": " COLLATE days"}
        typed = ", ".join(f"{name}{collated.get(name, '')}" for name in columns)
        self.connection.execute(f"CREATE TABLE t ({typed})")
        self.connection.execute("CREATE TABLE declared (size COLLATE sizes, city, paid)")
        marks = ", ".join("?" * len(columns))
        values = [tuple(row[name] for name in columns) for row in rows()]
        self.connection.executemany(f"INSERT INTO t VALUES ({marks})", values)
        self.connection.executemany("INSERT INTO declared VALUES (?, ?, ?)", declared())

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        written = re.sub(r"EXTRACT\((\w+) FROM (\w+)\)", r"PART('\1', \2)", statement)
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


def _part(part: str, day: str | None) -> int | None:
    assert part == "MONTH"
    return None if day is None else date.fromisoformat(day).month


def names_in(statement: str) -> list[str]:
    """Returns the keys that a statement of ``Draw`` selects, in their order."""
    if "GROUP BY" not in statement:
        return re.findall(r"\w+", statement.split("DISTINCT")[1].split("FROM")[0])
    listed = re.search(r"GROUP BY ([\w, ]+?)(?: HAVING|\)| ORDER| LIMIT|$)", statement)
    assert listed is not None
    return listed[1].split(", ")
