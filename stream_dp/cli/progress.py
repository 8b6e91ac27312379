"""How the start of the embedded servers is drawn."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["StartProgress"]


class StartProgress:
    """A line that says what is being started, with a bar while the broker is downloaded."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
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
        self._progress.update(self._task, description=text, total=None, detail="")

    def downloaded(self, jars: int, jars_total: int, n_bytes: int) -> None:
        self._progress.update(
            self._task,
            description="Downloading Apache Kafka",
            completed=jars,
            total=jars_total,
            detail=f"{jars}/{jars_total} jars, {n_bytes / 1e6:.0f} MB",
        )
