"""What people do with pgjdbc, node-postgres and pgx, on real servers.

Each has a program that reads statements, a line each, with values such as ``int:10``, and asks them some
times. It prints the rows, and what else it is told.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded import jars
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.jars import Silent
from stream_dp.errors import ServerUnavailable
from tests.gateway.drivers.served_orders import ASKED, WRONG, WRONG_AT, Asked, Rows
from tests.workers import GatewayProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "programs"
JDBC = jars.Jar(
    "org.postgresql",
    "postgresql",
    "42.7.14",
    "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
)
ROUNDS = 7  # after the fifth one pgjdbc prepares a statement, and reads in binary
TOLD = {
    "tables": "[orders]",
    "columns": "[city text, size int8, weight float8, paid bool, month date]",
    "wrong": f"42703 {WRONG_AT}",
    "failed": "25P02",
    "in parts": "[Bonn, Graz, Lyon]",
}

Needed = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def program_of(needed: Needed) -> Callable[[str], None]:
    """``program_of("node")``: without it on the PATH the test is skipped, and fails in CI."""

    def find(name: str) -> None:
        with needed():
            if shutil.which(name) is None:
                raise ServerUnavailable(
                    f"{name} is not on the PATH; .ci/run says how it is installed"
                )

    return find


def run(*command: str | Path, cwd: Path, stdin: str = "") -> str:
    ended = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, (ended.stdout[-2000:], ended.stderr[-4000:])
    return ended.stdout


def line(name: str, asked: Asked, mark: str, values: tuple[Any, ...]) -> str:
    given = [
        f"{type(one).__name__}:{','.join(one) if type(one) is list else one}" for one in values
    ]
    return "\t".join([name, asked.written(mark), *given])


def check(printed: str, wanted: dict[str, Rows], n_rounds: int, **told: str) -> None:
    """Compares what a program printed with what it should have been given."""
    found: dict[str, list[str]] = {}
    for one in printed.splitlines():
        name, *values = one.split("\t")
        found.setdefault(name, []).append("\t".join(values))
    assert {name: found.pop(name, [""])[0] for name in TOLD | told} == TOLD | told
    read = {
        name: [
            tuple(map(value_like, one.split("\t"), row))
            for one, row in zip(rows, wanted[name.split()[0]], strict=True)
        ]
        for name, rows in found.items()
    }
    assert read == {f"{name} {n}": wanted[name] for name in ASKED for n in range(1, n_rounds + 1)}


def value_like(text: str, wanted: Any) -> Any:
    """A value that was printed, in the type of the wanted one."""
    if wanted is None:
        return text or None
    if isinstance(wanted, bool):
        return {"true": True, "false": False}[text]
    return dt.date.fromisoformat(text) if isinstance(wanted, dt.date) else type(wanted)(text)


@pytest.mark.parametrize("mode", ["extended", "simple"])
def test_pgjdbc(
    served_gateway: GatewayProcess,
    wanted: dict[str, Rows],
    needed: Needed,
    program_of: Callable[[str], None],
    mode: str,
) -> None:
    program_of("javac")
    with needed():
        (jar,) = jars.resolve(cache_folder(os.environ) / "drivers", Silent(), lock=[JDBC])
    address = f"jdbc:postgresql://127.0.0.1:{served_gateway.port}/stream_dp?user=ann&preferQueryMode={mode}"
    lines = [line(name, asked, "?", asked.in_order) for name, asked in ASKED.items()]
    program = ("java", "-cp", jar, PROGRAMS / "Jdbc.java", address, WRONG, str(ROUNDS))
    printed = run(*program, cwd=PROGRAMS, stdin="\n".join(lines))
    check(printed, wanted, ROUNDS, keys="[]", types="true")


def test_node_postgres(
    served_gateway: GatewayProcess,
    wanted: dict[str, Rows],
    program_of: Callable[[str], None],
    tmp_path: Path,
) -> None:
    program_of("npm")
    folder = Path(shutil.copytree(PROGRAMS / "node-postgres", tmp_path / "node"))
    run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    lines = [line(name, asked, "${}", asked.values) for name, asked in ASKED.items()]
    program = ("node", "ask.mjs", served_gateway.address, WRONG, str(ROUNDS))
    check(run(*program, cwd=folder, stdin="\n".join(lines)), wanted, ROUNDS)


def test_pgx_in_its_five_modes(
    served_gateway: GatewayProcess, wanted: dict[str, Rows], program_of: Callable[[str], None]
) -> None:
    program_of("go")
    lines = [line(name, asked, "${}", asked.values) for name, asked in ASKED.items()]
    program = ("go", "run", ".", served_gateway.address, WRONG, "2")
    printed = run(*program, cwd=PROGRAMS / "pgx", stdin="\n".join(lines))
    check(printed, wanted, 2 * 5)
