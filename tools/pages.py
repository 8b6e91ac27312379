"""Generates the pages of docs/ that follow from the code: ``make pages``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from stream_dp.cli import root
from stream_dp.settings import WorkerSettings

_DOCS = Path(__file__).parents[1] / "docs"
_WIDTH = 100


def configuration() -> str:
    """All settings of a worker: what they mean, what they accept, and their defaults."""
    rows = []
    for name, (meaning, default) in _meanings().items():
        field = WorkerSettings.model_fields[name]
        rows.append(
            f"| `STREAM_DP_{name.upper()}` | {default or _default(field)} | {_accepted(field)} | {meaning} |"
        )
    return f"""\
# Configuration

`stream-dp worker` reads these environment variables.
An option of the command takes precedence over its variable.
If you set neither the Kafka nor the Redis address, the worker uses the servers that `stream-dp up` started.
The worker that `stream-dp up` itself starts reads none of these variables.
To set one, run `stream-dp up --no-worker` and then `stream-dp worker`.
This page is generated from the code by `make pages`.

| variable | default | accepts | meaning |
|---|---|---|---|
{chr(10).join(rows)}

The other [commands](commands.md) read the variables that match their own options:
`STREAM_DP_BOOTSTRAP_SERVERS`, `STREAM_DP_REDIS_URL`, `STREAM_DP_TOPIC_PREFIX` and `STREAM_DP_STATE_DIR`.
The last one is the folder of the servers that `stream-dp up` started.
Those that read Redis need `STREAM_DP_REDIS_CLUSTER` too, if it is a Cluster.
All commands read `STREAM_DP_KAFKA_*`.
Python's `Client()` and `AsyncClient()` read the same variables if you give them no address.
"""


def _meanings() -> dict[str, tuple[str, str]]:
    """Reads the meaning and the default of each setting from the docstring."""
    _, _, listed = (WorkerSettings.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\s*\Z)", listed, re.MULTILINE | re.DOTALL)
    meanings = {}
    for name, text in found:
        meaning, _, default = " ".join(text.replace("``", "`").split()).partition(" Default: ")
        meanings[name] = meaning.removesuffix("."), default.removesuffix(".")
    return meanings


def _default(field: FieldInfo) -> str:
    if field.default is None:
        return "none"
    text = str(field.default)
    return f"`{text.lower() if isinstance(field.default, bool) else text.removesuffix('.0')}`"


def _accepted(field: FieldInfo) -> str:
    if bounds := {type(bound).__name__: bound for bound in field.metadata}:
        low, high = bounds["Ge"].ge, bounds["Le"].le if "Le" in bounds else None
        return f"a number, at least {low}" if high is None else f"a number, {low} to {high}"
    if field.annotation is bool:
        return "`true`, `false`"
    if choices := [choice for choice in get_args(field.annotation) if isinstance(choice, str)]:
        return ", ".join(f"`{choice}`" for choice in choices)
    return "a secret string" if SecretStr in get_args(field.annotation) else "a string"


def commands() -> str:
    """Collects what every command's ``--help`` prints."""
    sections = "\n".join(
        f"{'#' * min(len(words) + 1, 4)} {' '.join(words)}\n\n```text\n{text}\n```\n"
        for words, text in _help(root, ["stream-dp"], None)
    )
    return f"""\
# Commands

This page shows what each command's `--help` prints.
Commands find the servers that `stream-dp up` started without any option.
The exit code is 0 if the command succeeded, 1 if it failed and printed why, 2 if the command line was wrong.
This page is generated from the code by `make pages`.

{sections}"""


def _help(
    command: Any, words: list[str], above: click.Context | None
) -> Iterator[tuple[list[str], str]]:
    context = command.context_class(
        command,
        info_name=words[-1],
        parent=above,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **command.context_settings,
    )
    yield words, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _help(command.get_command(context, name), [*words, name], context)


PAGES = {"configuration.md": configuration, "commands.md": commands}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (_DOCS / name).write_text(page())
