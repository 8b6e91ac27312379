"""Options and arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
"""A file that is there."""
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
"""A folder, which need not be there yet."""

yes_option = click.option("--yes", is_flag=True, help="Go on without asking.")
analyst_option = click.option(
    "--analyst",
    help="The name of the analyst.  [default: the one in STREAM_DP_TOKEN, or your login name]",
)


def json_option(prints: str) -> Decorator:
    """Adds ``--json``, which the command receives as ``as_json``.

    Args:
        prints: The help of the option.
    """
    return click.option("--json", "as_json", is_flag=True, help=prints)
