"""What the pages for contributors say of the code is there: every name and every file."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stream_dp"
PAGES = [ROOT / "docs/architecture.md", ROOT / "docs/adding.md"]
NAMES = {path.stem for path in PACKAGE.iterdir() if path.suffix in {"", ".py"}}
PATH = re.compile(r"(?:stream_dp|tests|docs|core|profiles|state|messages|cli|pipeline)/[\w./]*")


def _quoted(text: str) -> list[str]:
    """Words in backticks, outside fences."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def _is_there(name: str) -> bool:
    """Whether ``package.module.attribute...`` exists in stream_dp."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module("stream_dp." + ".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def _unknown_names(text: str) -> list[str]:
    dotted = [word for word in _quoted(text) if re.fullmatch(r"\w+(\.\w+)+", word)]
    ours = [word for word in dotted if word.split(".")[0] in NAMES and not word.endswith(".py")]
    return [word for word in ours if not _is_there(word)]


def _unknown_files(text: str) -> list[str]:
    paths = [word for word in _quoted(text) if PATH.fullmatch(word)]
    return [path for path in paths if not any((base / path).exists() for base in (ROOT, PACKAGE))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_and_file_that_the_page_mentions_exists(page: Path) -> None:
    text = page.read_text()
    assert _unknown_names(text) == []
    assert _unknown_files(text) == []
    assert len([word for word in _quoted(text) if "." in word]) > 10


def test_a_name_that_is_gone_is_noticed() -> None:
    text = (
        "`core.mechanism.Mechanism.answer` `core.mechanism.Gone` `core.gone.Look` `messages.Answer`"
    )
    assert _unknown_names(text) == ["core.mechanism.Gone", "core.gone.Look"]
    assert _unknown_files("`stream_dp/core/gone.py` `core/` `state/codec.py`") == [
        "stream_dp/core/gone.py"
    ]


ELSEWHERE = {
    # what the pages offer besides: constructors, words, advice and experiments
    "client/statements/written_query.py",
    "cli/text/reply_text.py",
    "profiles/advice.py",
    "lab/trial.py",
    "messages/__init__.py",
}


@pytest.mark.parametrize(
    ("heading", "names", "most"),
    [
        ("A profile: `counts`", r"CountsSpec|FreshCounts", 4),
        ("A kind: `interior_point`", r'"interior_point"|InteriorPointSpec|\bInterior\b', 7),
    ],
)
def test_the_files_of_the_walk_are_all_that_name_it(heading: str, names: str, most: int) -> None:
    text = (ROOT / "docs/adding.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `stream_dp/([^`]+)`", section, re.MULTILINE))
    assert len(listed) <= most
    mention = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(names, path.read_text())
    }
    assert mention - ELSEWHERE - listed == set()
