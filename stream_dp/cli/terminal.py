"""What every command does at the terminal: it prints, warns and asks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.console import RenderableType

from stream_dp.cli.text.reply_text import output
from stream_dp.errors import StreamDPError

NOT_IN_FORCE = "nothing was changed; pass --yes to put this in force"
"""What ``confirm`` says of a change if nobody is at a terminal."""


def show(*pieces: RenderableType) -> None:
    """Prints texts in markup, and tables."""
    console = output()
    for piece in pieces:
        console.print(piece)


def show_json(documents: Iterable[Mapping[str, Any]]) -> None:
    """Prints one JSON document a line."""
    for document in documents:
        click.echo(json.dumps(document))


def warn(words: str) -> None:
    """Prints a warning on the standard error."""
    click.echo(f"warning: {words}", err=True)


def note(words: str) -> None:
    """Prints a note on the standard error."""
    click.echo(f"note: {words}", err=True)


def is_attended() -> bool:
    """Returns whether somebody can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, unattended: str, *, yes: bool = False) -> None:
    """Asks whether to go on, and ends the command if not.

    Args:
        question: The question.
        unattended: What to say if nobody is at a terminal.
        yes: Whether the user has said so already.

    Raises:
        StreamDPError: Nobody is at a terminal.
    """
    if yes:
        return
    if not is_attended():
        raise StreamDPError(unattended)
    click.confirm(question, abort=True, err=True)


def many(number: int, noun: str) -> str:
    """Returns a number with its noun.

    Example:
        >>> many(1, "phase"), many(2000, "query")
        ('1 phase', '2,000 queries')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
