"""What is built holds all that is needed, and what is installed from it works without the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from stream_dp.errors import ServerUnavailable

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, without the sources of this run on its path."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "STREAM_DP_")
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(sources: Path, target: Path) -> dict[str, Path]:
    """The wheel and the sdist, by their suffix."""
    hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist")
    run(*hatchling, "-d", target, cwd=sources)
    return {path.suffix: path for path in target.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_file_of_the_package_and_no_other(built: dict[str, Path]) -> None:
    files = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / "stream_dp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {".lua", ".lock", ".npz", ".properties", ".typed"} <= {Path(f).suffix for f in files}
    found = contents(built[".whl"])
    (info,) = {name.split("/")[0] for name in found} - {"stream_dp"}
    about = {name: found.pop(name) for name in list(found) if name.startswith(info)}
    assert found == files
    assert f"{info}/licenses/LICENSE" in about
    assert b"stream-dp = stream_dp.cli:main" in about[f"{info}/entry_points.txt"]
    assert re.search(rb"^Requires-Python: <3.14,>=3.11$", about[f"{info}/METADATA"], re.MULTILINE)


def test_the_sdist_makes_the_same_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built[".gz"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.iterdir()
    assert (sources / "tests/deploy/test_wheel.py").exists()
    assert {path.name for path in ROOT.glob("*.md")} <= {path.name for path in sources.iterdir()}
    assert contents(build(sources, tmp_path / "dist")[".whl"]) == contents(built[".whl"])


@pytest.fixture
def installed(
    needed: Callable[[], AbstractContextManager[None]], built: dict[str, Path], tmp_path: Path
) -> Path:
    """Programs of an environment that has the wheel, with its extra for the demo, and nothing else."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with needed():
        if uv is None:
            raise ServerUnavailable("uv is not on the PATH; make sets it up in .venv")
    programs = tmp_path / "environment/bin"
    run(uv, "venv", "--python", sys.executable, programs.parent, cwd=tmp_path)
    install = (uv, "pip", "install", "--python", programs / "python")
    wheel = f"stream-dp[embedded] @ {built['.whl'].as_uri()}"
    run(*install, wheel, "--constraint", ROOT / "requirements/demo.txt", cwd=tmp_path)
    return programs


@pytest.mark.kafka
@pytest.mark.slow
def test_the_demo_of_the_wheel_keeps_its_promises_in_an_empty_folder_without_a_terminal(
    installed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    printed = run(installed / "stream-dp", "demo", "--fast", "--svg", "demo.svg", cwd=folder)
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 120
    assert sum("exact" in line for line in lines) == 47
    assert "80,789 rows in 3 phases; 47 queries and 6 tables answered" in printed
    assert "the same query under the same id gave the same bytes" in printed
    assert [path.name for path in folder.iterdir()] == ["demo.svg"]
    assert ET.fromstring((folder / "demo.svg").read_text()).tag.endswith("svg")
