"""``python -m tests.defects`` prints a table of all defects, and which command catches each."""

from __future__ import annotations

import re

from tests.defects.defects import Defect, all_defects


def _in_order(defect: Defect) -> list[str | int]:
    """Sorts P2 before P10."""
    pieces = re.split(r"(\d+)", defect.areas[0])
    return [int(piece) if piece.isdecimal() else piece for piece in pieces]


if __name__ == "__main__":
    print("| area | defect | caught by | command |\n|---|---|---|---|")
    for one in sorted(all_defects(), key=_in_order):
        said = one.name.replace("-", " ")
        command = "make test-all" if one.slow else "make test"
        print(f"| {', '.join(one.areas)} | {said} | `{one.caught_by}` | `{command}` |")
