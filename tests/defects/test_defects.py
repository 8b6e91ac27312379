"""The tests have the power to catch defects: each patch of this folder breaks the code, and a test fails.

To add one, change the code, write ``git diff`` into a patch, and say above it what is broken, what that
concerns and which test catches it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from stream_dp.state.view import View
from tests.defects.defects import Defect, all_defects

ROOT: Final = Path(__file__).parents[2]
DEFECTS: Final = all_defects()
PARTS: Final = {"SQL", "client", "owner", "pages", "identity", "queries", "rows"}

# The copy must be what is loaded, and not the package that is installed.
RUN: Final = """
import sys
from pathlib import Path

import pytest
import stream_dp

assert Path(stream_dp.__file__).is_relative_to(Path.cwd()), stream_dp.__file__
sys.exit(pytest.main(sys.argv[1:]))
"""


def apply(patch: Path, folder: Path, *options: str) -> None:
    """Applies a patch to a folder, which need not be a repository."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    subprocess.run(["git", "apply", *options, patch], cwd=folder, env=environment, check=True)


def broken_copy(defect: Defect, folder: Path) -> Path:
    """Copies what a patch changes and its tests, and links all else that tests read."""
    folder.mkdir()
    for name in ("stream_dp", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry)
    apply(defect.patch, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_a_defect_is_caught(defect: Defect, tmp_path: Path) -> None:
    copy = broken_copy(defect, tmp_path / "copy")
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'child'}"]
    chosen = [defect.caught_by] if defect.slow else [defect.caught_by, "-m", "not slow"]
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *options, *chosen],
        cwd=copy,
        env={**environment, "PYTHONPATH": str(copy), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"\nFAILED {defect.caught_by}" in ended.stdout, ended.stdout


def test_each_patch_fits_the_code_and_names_a_test_that_exists() -> None:
    for defect in DEFECTS:
        apply(defect.patch, ROOT, "--check")
        path, *_, function = defect.caught_by.partition("[")[0].split("::")
        assert f"def {function}(" in text_of(path), defect.name


def test_there_are_enough_and_make_test_catches_nearly_all() -> None:
    assert len(DEFECTS) >= 40
    assert sum(defect.slow for defect in DEFECTS) <= len(DEFECTS) // 20


def test_each_promise_theorem_operation_and_part_has_a_defect() -> None:
    referee = (ROOT / "tests/pipeline/referee").glob("*.py")
    promises = {said for module in referee for said in re.findall(r"\bP\d+\b", module.read_text())}
    proofs = "".join(page.read_text() for page in (ROOT / "docs/proofs").glob("*.md"))
    theorems = set(re.findall(r"^## (Theorem \w+):", proofs, re.MULTILINE))
    operations = {f"view: {name}" for name in dir(View) if not name.startswith("_")}
    areas = {area for defect in DEFECTS for area in defect.areas}
    assert areas == promises | theorems | operations | PARTS


def text_of(path: str) -> str:
    return (ROOT / path).read_text()
