"""A disk that can be full: a file system of limited size, in memory, for the data of one server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

_CHUNK = bytes(1 << 16)


@cache
def may_mount() -> bool:
    """Returns whether this process may mount file systems. It is asked once."""
    with tempfile.TemporaryDirectory() as folder:
        disk = SmallDisk(Path(folder) / "disk", megabytes=1)
        try:
            with disk:
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


class SmallDisk:
    """A disk of its own at a folder. It needs the right to mount.

    Args:
        folder: The folder at which it is mounted.
        megabytes: Its size.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder = folder
        self._size = f"size={megabytes}m,mode=0700"
        self._filler = folder / "filler"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", self._size, "tmpfs", str(self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", "--lazy", str(self._folder))

    def fill(self) -> None:
        """Leaves no byte of room."""
        with self._filler.open("ab", buffering=0) as file:
            for chunk in (_CHUNK, b"\0"):
                try:
                    while file.write(chunk) == len(chunk):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        """Frees what ``fill`` took."""
        self._filler.unlink(missing_ok=True)


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise OSError(f"there is no {command[0]}")
    subprocess.run(command, check=True, capture_output=True)
