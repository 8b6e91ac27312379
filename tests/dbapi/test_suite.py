"""SQLAlchemy's own suite for dialects, as far as it applies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).parent / "suite"


def test_the_dialect_passes_sqlalchemys_own_suite() -> None:
    """In a process of its own, because the suite's plugin changes how pytest collects tests."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "setup.cfg", "-q", "--tb=short", "suite.py"],
        cwd=SUITE,
        env={**os.environ, "PYTHONPATH": str(SUITE.parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert int(passed) > 80, done.stdout
