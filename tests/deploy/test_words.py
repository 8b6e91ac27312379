"""Prose in the package is plain English: no word that we avoid, no entry that leans on the line above."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "stream_dp"
FILES = sorted(
    file
    for file in PACKAGE.rglob("*")
    if file.suffix in {".py", ".lua", ".js", ".html"} and file.is_file()
)
AVOIDED = re.compile(
    r"\b(?:mend(?:s|ed|ing)?|whoever|ditto|likewise|spelt|misspelt|so many|anew|afresh)\b"
    r"|(?<!there )\b(?:is|are) no (?!longer)",
    re.IGNORECASE,
)
# A word before | is a type, and no prose.
FRAGMENT = re.compile(r'(?:^\s+\w+: |""")(?:Of|That|Which|Whose|Ditto|Likewise|Beside|As)\b(?! \|)')


def faults(line: str) -> list[str]:
    """What is wrong with a line, in its own words."""
    return [found[0].strip() for found in (AVOIDED.search(line), FRAGMENT.search(line)) if found]


def test_no_line_has_a_word_that_we_avoid() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{n}: {', '.join(words)}"
        for file in FILES
        for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (words := faults(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "the fix is to mend the file",
        "it is no whole number",
        "        generation: Of the consumer group.",
        "        whose: Whose row it is.",
        '    """Ditto."""',
    ],
)
def test_such_a_line_is_noticed(line: str) -> None:
    assert faults(line)


@pytest.mark.parametrize(
    "line",
    [
        "there is no broker",
        "it is no longer used",
        "Of the rows, 3",
        "        whose: Whose | None = None,",
    ],
)
def test_plain_english_passes(line: str) -> None:
    assert not faults(line)
