"""How tests wait for what must come. It stands here, once, how long is too long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

PATIENCE_S = (
    240.0  # no test is about speed: a machine may be busy, and what takes this long does not come
)


def until(
    condition: Callable[[], object],
    otherwise: str | Callable[[], object] = "it did not come to that",
    *,
    every_s: float = 0.05,
    ignoring: tuple[type[Exception], ...] = (),
) -> None:
    """Waits until a condition holds.

    Args:
        otherwise: What is wrong if it never does, or a function that looks then.
        every_s: Seconds from one look to the next.
        ignoring: Errors that say that it does not hold yet.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(*ignoring):
            if condition():
                return
        if time.monotonic() >= deadline:
            raise AssertionError(otherwise() if callable(otherwise) else otherwise)
        time.sleep(every_s)
