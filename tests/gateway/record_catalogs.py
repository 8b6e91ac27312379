"""Records anew what a real Postgres answers to the statements of ``recorded_statements.json``.

Run it with the programs of Postgres 15 on the path; as root, they run as the user ``postgres``::

    python -m tests.gateway.record_catalogs

It starts a server on a socket in an empty folder, and stops it. To add statements, run a tool against such a
server with ``log_statement = all``, and add them to the file with ``"columns": []`` and ``"rows": 0``. Where
the port has fewer rows, write by hand in ``"fewer"`` why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from stream_dp.gateway.pg_types import shown_type, type_named
from tests.gateway.recorded_statements import TABLES, Recorded, recorded, write

USER = "postgres" if os.getuid() == 0 else None


def run(*command: str | Path, stdin: str = "", cwd: Path) -> str:
    ended = subprocess.run(
        command, input=stdin, cwd=cwd, capture_output=True, text=True, check=False, user=USER
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def definitions() -> str:
    """Statements that make the tables, and remove what the port does not show."""
    lines = ["CREATE SCHEMA synthetic;", "CREATE SCHEMA stream_dp;", "DROP EXTENSION plpgsql;"]
    for table in TABLES:
        name = f"{table.schema}.{table.name}"
        columns = [
            f"{one.name} {shown_type(one.type)}{'' if one.nullable else ' NOT NULL'}"
            for one in table.columns
        ]
        lines.append(f"CREATE TABLE {name} ({', '.join(columns)});")
        if table.comment:
            lines.append(f"COMMENT ON TABLE {name} IS '{table.comment}';")
        lines += [
            f"COMMENT ON COLUMN {name}.{one.name} IS '{one.comment}';"
            for one in table.columns
            if one.comment
        ]
        for row in table.rows or ():
            values = ", ".join("NULL" if value is None else f"'{value}'" for value in row)
            lines.append(f"INSERT INTO {name} VALUES ({values});")
    lines.append("UPDATE pg_database SET datistemplate = false;")
    lines += [f"DROP DATABASE {name};" for name in ("postgres", "template0", "template1")]
    return "\n".join(lines)


class Postgres:
    """A server of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        options = ("-A", "trust", "-U", "ann", "-E", "UTF8", "--locale=C")
        run("initdb", "-D", "data", *options, cwd=self.folder)
        settings = f"-k {self.folder} -h '' -c fsync=off"
        run("pg_ctl", "-D", "data", "-o", settings, "-l", "log", "-w", "start", cwd=self.folder)
        self.ask("CREATE DATABASE stream_dp", database="postgres")
        self.ask(definitions())

    def stop(self) -> None:
        run("pg_ctl", "-D", "data", "-m", "fast", "stop", cwd=self.folder)

    def ask(self, text: str, *, database: str = "stream_dp") -> str:
        options = ("-qAtX", "-F", "\t", "-v", "ON_ERROR_STOP=1")
        return run(
            "psql", "-h", self.folder, "-U", "ann", *options, database, stdin=text, cwd=self.folder
        )

    def oid(self, name: str) -> int:
        return int(self.ask(f"SELECT '{name}'::regclass::oid"))

    def answer(self, one: Recorded) -> Recorded:
        sent = one.sent(self.oid).rstrip("; \n")
        shown = self.ask(f"{sent}\n\\gdesc\n{sent}\n\\g /dev/null\n\\echo :ROW_COUNT")
        *described, n = shown.splitlines()
        columns = []
        for line in described:
            name, kind = line.split("\t")
            columns.append((name, type_named(kind) or kind))
        return replace(one, columns=tuple(columns), rows=int(n))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if USER is not None:
            shutil.chown(folder, USER)
        server = Postgres(Path(folder))
        server.start()
        try:
            write([server.answer(one) for one in recorded()])
        finally:
            server.stop()


if __name__ == "__main__":
    main()
