"""Files of a deployment in which one thing is wrong, and what holds of the store in all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

Document = dict[str, Any]
Check = Callable[[Any], Sequence[object]]
Breaks = Mapping[Check, Sequence[tuple[str, object]]]
"""What is looked for -> the places of a file, and what is wrong there: None where it is gone."""


def unmet(wanted: Mapping[str, bool]) -> list[str]:
    """What is wrong: the words of all that does not hold."""
    return [what for what, holds in wanted.items() if not holds]


def broken(document: Any, place: str, value: object) -> Any:
    """A copy in which a place has another value; ``+`` stands for a place behind the last one."""
    copied = copy.deepcopy(document)
    *path, last = (int(step) if step.lstrip("-").isdigit() else step for step in place.split())
    inside = copied
    for step in path:
        inside = inside[step]
    if last == "+":
        inside.append(value)
    elif value is None:
        del inside[last]
    else:
        inside[last] = value
    return copied


def with_breaks(breaks: Breaks) -> pytest.MarkDecorator:
    """Gives a test each ``check``, with a ``place`` and a ``value`` that it must notice."""
    cases = [
        pytest.param(check, place, value, id=f"{check.__name__}-{number}")
        for check, wrong in breaks.items()
        for number, (place, value) in enumerate(wrong)
    ]
    return pytest.mark.parametrize(("check", "place", "value"), cases)


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """The arguments of the store, behind its program."""
    return dict(zip(words[1::2], words[2::2], strict=True))


def what_a_view_does_not_need(flags: Mapping[str, str]) -> list[str]:
    """A store without a disk that refuses writes when it is full would be behind for good."""
    needed = {"--appendonly": "no", "--maxmemory-policy": "allkeys-lru", "--save": ""}
    return [f"{flag} {flags.get(flag)!r}" for flag in needed if flags.get(flag) != needed[flag]]


def too_much_memory(most: float, limit: float) -> list[str]:
    """A store that reaches the container's limit is killed; one that reaches maxmemory drops keys."""
    return [] if 0 < most <= 0.75 * limit else [f"{most} of {limit}"]


def what_a_cluster_shows(
    role: str, words: Sequence[str], environment: Mapping[str, str], folder: str
) -> list[str]:
    """Traffic of a process of Dask without TLS, and pages that others than its own container could read.

    Without an address its HTTP server listens everywhere, even if there is no dashboard.
    """
    files = {"ca-file": "tls.crt", "cert": "tls.crt", "key": "tls.key"}
    needed = {
        "--protocol=tls",
        *(f"--tls-{flag}={folder}/{file}" for flag, file in files.items()),
        "--no-dashboard",
        "--dashboard-address=127.0.0.1:8787",
    }
    found = [] if words[0] == role else [words[0]]
    found += [*sorted(needed - {*words}), *(word for word in words if "tcp:" in word)]
    wanted = {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
        f"DASK_DISTRIBUTED__{role.upper()}__HTTP__ROUTES": '["distributed.http.health"]',
    }
    return found + [name for name in wanted if environment.get(name) != wanted[name]]
