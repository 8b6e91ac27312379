"""Reads what is known of each defect: what it concerns, and which test catches it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, and the patch that puts it into the code.

    Attributes:
        patch: The patch. Lines before its first file say what is broken, and the rest of this.
        areas: The promises, theorems, operations and parts of the product that it concerns.
        caught_by: A test that catches it.
        slow: Whether only ``make test-all`` runs this test.
    """

    patch: Path
    areas: tuple[str, ...]
    caught_by: str
    slow: bool

    @property
    def name(self) -> str:
        return self.patch.stem

    @classmethod
    def read(cls, patch: Path) -> Defect:
        head = patch.read_text().split("\n--- ", 1)[0]
        areas = tuple(re.findall(r"^area: (.+)$", head, re.MULTILINE))
        ((caught_by, slow),) = re.findall(r"^caught by: (.+?)( \(slow\))?$", head, re.MULTILINE)
        return cls(patch, areas, caught_by, bool(slow))


def all_defects() -> list[Defect]:
    """Returns all defects, by name."""
    return [Defect.read(patch) for patch in sorted(Path(__file__).parent.glob("*.patch"))]
