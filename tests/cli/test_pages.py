"""The pages for operators and newcomers are true of the code."""

from __future__ import annotations

import re
from pathlib import Path

from stream_dp.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs/operations.md").read_text()
TROUBLES = (ROOT / "docs/troubleshooting.md").read_text()


def test_the_table_of_settings_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| `STREAM_DP_(\w+)` \| (.*?) \|", OPERATIONS, re.MULTILINE)
    defaults = {name: field.default for name, field in WorkerSettings.model_fields.items()}
    assert [name.lower() for name, _ in rows] == list(defaults)
    for name, shown in rows:
        default = defaults[name.lower()]
        if default in (None, ""):
            assert not shown.startswith("`"), name
        else:
            text = str(default).lower() if isinstance(default, bool) else f"{default}"
            assert shown == f"`{text.removesuffix('.0') if isinstance(default, float) else text}`"


def _source() -> str:
    """What the code can print, with strings over several lines put together."""
    files = [*(ROOT / "stream_dp").rglob("*.py"), *(ROOT / "stream_dp").rglob("*.lua")]
    text = "\n".join(file.read_text() for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def _pieces(message: str) -> list[str]:
    """The parts of a message that are the same every time."""
    return [
        piece.strip(" :;")
        for piece in re.split(r"\.\.\.|[\d,]*\d|; ", message)
        if piece.strip(" :;")
    ]


def test_every_message_that_the_page_explains_is_one_that_is_printed() -> None:
    source = _source()
    cells = re.findall(r"^\| (.*?) \|", TROUBLES, re.MULTILINE)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 30
    foreign = {
        "stream-dp: command not found",
        "appendonly is no: ...",
        "STREAM_DP_...: Input should be ...",
    }
    missing = [
        message
        for message in messages
        if message not in foreign and not all(piece in source for piece in _pieces(message))
    ]
    assert missing == []


def test_a_message_that_nobody_prints_is_noticed() -> None:
    assert not all(piece in _source() for piece in _pieces("the moon is in the wrong place ..."))
