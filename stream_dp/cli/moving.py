"""The servers of ``stream-dp dataset export`` and ``dataset import``."""

from __future__ import annotations

from pathlib import Path

from stream_dp.cli.connection import Connection
from stream_dp.cli.idle import deployment
from stream_dp.pipeline import moving
from stream_dp.state.moved import MovedFolder, MovingFolder


async def take_out(connection: Connection, name: str, path: Path) -> None:
    """Ends a data set here for good, and writes it to a folder.

    Raises:
        StreamDPError: It cannot be done. If it has ended here already, the command may be repeated.
    """
    folder = MovingFolder(path)
    async with deployment(connection) as tools:
        await moving.take_out(tools, name, folder)


async def bring_in(connection: Connection, path: Path) -> str:
    """Puts a data set from a folder on the journal; returns its name.

    Raises:
        StreamDPError: It cannot be done.
    """
    folder = MovedFolder(path)
    async with deployment(connection) as tools:
        return await moving.bring_in(tools, folder)
