"""Reads what is known of each defect: what it concerns, and which tests catch it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Defect", "all_defects", "in_make_test", "run_pytest"]

ROOT: Final = Path(__file__).parents[2]

# The child must not load the package that is installed where a copy of it is to be tested.
_RUN: Final = """
import sys
from pathlib import Path

import pytest
import stream_dp

assert Path(stream_dp.__file__).is_relative_to(Path.cwd()), stream_dp.__file__
sys.exit(pytest.main(sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, and the patch that puts it into the code.

    Attributes:
        areas: The promises, theorems, operations and parts of the product that it concerns.
        caught_by: A test that catches it.
    """

    patch: Path
    areas: tuple[str, ...]
    caught_by: str

    @property
    def name(self) -> str:
        return self.patch.stem.replace("-", " ")

    @classmethod
    def read(cls, patch: Path) -> Defect:
        """Reads the lines of a patch before its first file."""
        head = patch.read_text().split("\n--- ", 1)[0]
        (caught_by,) = re.findall(r"^caught by: (\S+)$", head, re.MULTILINE)
        return cls(patch, tuple(re.findall(r"^area: (.+)$", head, re.MULTILINE)), caught_by)


def all_defects() -> list[Defect]:
    """Returns all defects, by name."""
    return [Defect.read(patch) for patch in sorted(Path(__file__).parent.glob("*.patch"))]


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a folder, in a child that knows nothing of a run that we may be in."""
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-c", _RUN, "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )


def in_make_test(tests: Iterable[str]) -> set[str]:
    """Returns those tests that ``make test`` runs, or of which it runs a part of the parameters.

    Raises:
        ValueError: There is no such test.
    """
    wanted = set(tests)
    found = run_pytest(ROOT, "--collect-only", "-m", "not slow", *sorted(wanted))
    if found.returncode != 0:
        raise ValueError(found.stdout + found.stderr)
    listed = set(found.stdout.splitlines())
    return wanted & {*listed, *(line.partition("[")[0] for line in listed)}
