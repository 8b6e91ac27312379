"""The tests have the power to catch defects: each patch of this folder breaks the code, and a test fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.defects.defects import ROOT, Defect, all_defects, in_make_test, run_pytest

DEFECTS: Final = all_defects()


def _apply(patch: Path, folder: Path, *options: str) -> None:
    """Applies a patch to a folder, which need not be a repository."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    subprocess.run(["git", "apply", *options, patch], cwd=folder, env=environment, check=True)


def _copy(folder: Path) -> None:
    """Copies what a patch changes and its tests, and links all else that tests read."""
    folder.mkdir()
    for name in ("stream_dp", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry)


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.patch.stem)
def test_a_defect_is_caught(defect: Defect, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _copy(copy)
    _apply(defect.patch, copy)
    ended = run_pytest(copy, "-x", f"--basetemp={tmp_path / 'child'}", defect.caught_by)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"\nFAILED {defect.caught_by}" in ended.stdout, ended.stdout


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.patch.stem)
def test_a_patch_fits_the_code(defect: Defect) -> None:
    _apply(defect.patch, ROOT, "--check")


def test_make_test_catches_nearly_all_defects() -> None:
    quick = in_make_test(one.caught_by for one in DEFECTS)
    assert sum(one.caught_by in quick for one in DEFECTS) >= max(38, 0.95 * len(DEFECTS))
