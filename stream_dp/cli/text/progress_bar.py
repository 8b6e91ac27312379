"""Shows the progress of work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def bar() -> Progress:
    """Draws a progress bar on a terminal and nothing elsewhere. The bar vanishes when its ``with`` ends."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def late_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Draws a progress bar on a terminal as soon as the work of its ``with`` has taken two seconds.

    Args:
        what: What goes on.
        total: How much there is to do.

    Yields:
        A function that receives how much more is done.
    """
    progress = bar()
    task = progress.add_task(what, total=total)
    timer = Timer(_LATE_S, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: progress.advance(task, done)
    finally:
        timer.cancel()
        timer.join()
        if progress.live.is_started:
            progress.stop()


_LATE_S: Final = 2.0


class StartProgress:
    """Shows what is being started, with a bar while the broker is downloaded.

    Without a terminal it prints a line for each step.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn = console.is_terminal
        self._downloading = False
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._drawn,
        )
        self._task = self._progress.add_task("Starting", total=None, detail="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        if self._drawn:
            self._progress.update(self._task, description=text, total=None, detail="")
        else:
            self._console.print(text)

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        if not self._drawn and n_bytes and not self._downloading:
            self._downloading = True
            self._console.print(f"Downloading Apache Kafka, once: {jars_total} jars, 80 MB")
        self._progress.update(
            self._task,
            description="Downloading Apache Kafka, once",
            completed=jars,
            total=jars_total,
            detail=f"{jars}/{jars_total} jars, {n_bytes / 1e6:.0f} MB",
        )
