"""The command line: a room for each group of commands; the only place that prints or exits."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import sys
from typing import NoReturn

import click

from stream_dp import __version__
from stream_dp.errors import StreamDPError

__all__ = ["GROUPS", "main", "root"]

GROUPS = {
    "Use": {
        "demo": "Run the whole system on real flight records.",
        "up": "Start Kafka, Valkey and a worker on this machine.",
        "down": "Stop what `up` started.",
        "advise": "Recommend a mechanism for a number of queries.",
        "dataset": "Draft, check, create, show, list, change and retire data sets.",
        "schema": "Change the attributes of a data set, and show their versions.",
        "ingest": "Send a CSV, Parquet or NDJSON file in batches.",
        "phase": "Open a phase of the rows that wait.",
        "ask": "Ask a query in SQL, or ask what it would cost.",
        "status": "Show the phases, rows and budget of every data set.",
        "budget": "Show what each phase has spent of its budget.",
    },
    "Automate": {
        "standing": "List and end standing queries.",
        "dashboard": "Make the tiles of a file standing queries.",
        "dimension": "Publish tables that statements can join.",
        "watch": "Follow answers, running totals and events as they arrive.",
        "synthesize": "Write the free synthetic rows of a data set.",
        "contracts": "Write JSON Schemas, AsyncAPI and OpenAPI.",
    },
    "Operate": {
        "worker": "Run a worker against your own Kafka and Redis.",
        "gateway": "Let tools that know Postgres ask: psql, Superset, Grafana, JDBC.",
        "topics": "Create the topics.",
        "doctor": "Find faults of broker, topics, Redis and rows in files, and say how to fix them.",
        "person": "Erase persons, and look for what is still there of one.",
        "ledger": "Show who charged what, and check every price.",
        "journal": "Go on after the journal or an input was cut.",
    },
    "Research": {"lab": "Reproduce the papers' attacks, bound and conjecture."},
}
"""The commands by what they are for, and what each one does."""

_ROOMS = {name: title.lower() for title, group in GROUPS.items() for name in group}
"""The room of each command."""


class _Commands(click.Group):
    """A group that imports a command only when it runs, so that each command starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ROOMS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _ROOMS:
            return None
        module = importlib.import_module(f"stream_dp.cli.{_ROOMS[name]}.{name}_command")
        assert isinstance(module.command, click.Command)
        return module.command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := difflib.get_close_matches(args[0], _ROOMS, 1):
                error.message += f" Did you mean {near[0]}?"
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _ROOMS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), said) for name, said in group.items()])


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="stream-dp")
def root() -> None:
    """Differentially private answers to counting queries about a growing table.

    Five commands are enough to begin:

    \b
    stream-dp up                               start everything on this machine
    stream-dp dataset create DEFINITION.json   create a data set
    stream-dp ingest FILE.csv                  send rows
    stream-dp ask NAME "age >= 30"             ask a query
    stream-dp down                             stop everything; the data stays
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are


def main() -> NoReturn:
    """Runs a command. A known fault ends in one clear message and exit code 1."""
    # The clients' own warnings would repeat our one message at length.
    for name in ("kafka", "aiokafka"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        root(prog_name="stream-dp", standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except StreamDPError as error:
        _complain(str(error))
    except BrokenPipeError:  # `stream-dp watch | head`: the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    sys.exit(0)


def _complain(words: str) -> NoReturn:
    click.echo(f"{click.style('error', fg='red', bold=True)}: {words}", err=True)
    sys.exit(1)
