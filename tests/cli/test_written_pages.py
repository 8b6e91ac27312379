"""The pages for operators and newcomers are true of the code."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stream_dp.cli import root
from stream_dp.settings import GatewaySettings, WorkerSettings

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "tools/pages.py"))["PAGES"]
OPERATIONS = (ROOT / "docs/operations.md").read_text()
TROUBLES = (ROOT / "docs/troubleshooting.md").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_follows_from_the_code_is_what_make_pages_writes(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run make pages"


def test_the_configuration_says_defaults_bounds_and_choices() -> None:
    page = PAGES["configuration.md"]()
    rows = re.findall(r"^\|`STREAM_DP_(\w+)`\|(.*?)\|(.*?)\|(.+?)\|$", page, re.MULTILINE)
    fields = WorkerSettings.model_fields | GatewaySettings.model_fields
    assert [name.lower() for name, *_ in rows] == list(fields)
    said = {name: (default, accepted) for name, default, accepted, _ in rows}
    assert said["SESSION_TIMEOUT_S"] == ("`10`", "a number, 1 to 90")
    assert said["STALL_TIMEOUT_S"] == ("`300`", "a number, at least 1")
    assert said["IDENTITY"] == ("`off`", "`off`, `required`")
    assert said["REDIS_CLUSTER"] == ("`false`", "`true`, `false`")


def _commands(
    command: click.Command = root, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """All commands that run something, by their words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _commands(below, (*words, name))


def test_every_command_is_on_the_page_once() -> None:
    listed = re.findall(
        r"^- `([a-z-]+(?: [a-z-]+)?)[^`]*`: [A-Z]", PAGES["commands.md"](), re.MULTILINE
    )
    assert sorted(listed) == sorted(name for name, _ in _commands())
    assert len(listed) > 35
    assert "\\b" not in PAGES["commands.md"](), "the mark of click for lines that stay as they are"


def test_every_example_on_the_page_has_a_command_and_its_options() -> None:
    options = {
        name: {option for param in command.params for option in param.opts}
        for name, command in _commands()
    }
    lines = re.findall(r"^stream-dp (.*)$", PAGES["commands.md"](), re.MULTILINE)
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line)
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in options)
        assert {word for word in words if word.startswith("-")} <= options[name], line


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
    cells += re.findall(r"^\| (.*?) \| log \|", OPERATIONS, re.MULTILINE)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 20
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
    assert not all(piece in source for piece in _pieces("the moon is in the wrong place ..."))
