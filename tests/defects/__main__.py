"""``python -m tests.defects`` prints a table of all defects, and which command catches each."""

from __future__ import annotations

from tests.defects.defects import all_defects, in_make_test

if __name__ == "__main__":
    defects = all_defects()
    quick = in_make_test(one.caught_by for one in defects)
    print("| area | defect | caught by | command |\n|---|---|---|---|")
    for one in sorted(defects, key=lambda one: one.areas):
        command = "make test" if one.caught_by in quick else "make test-all"
        print(f"| {', '.join(one.areas)} | {one.name} | `{one.caught_by}` | `{command}` |")
