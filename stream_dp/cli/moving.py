"""The servers of ``stream-dp dataset export`` and ``dataset import``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stream_dp.cli.connection import Connection
from stream_dp.cli.idle import deployment
from stream_dp.pipeline.moving import Moving
from stream_dp.state.moved import MovedFolder, MovingFolder

__all__ = ["bring_in", "take_out"]


def take_out(connection: Connection, name: str, path: Path) -> None:
    """Ends a data set here for good, and writes it to a folder.

    Raises:
        StreamDPError: It cannot be done. If it has ended here already, the command may be repeated.
    """
    folder = MovingFolder(path)

    async def run() -> None:
        async with _opened(connection) as moving:
            await moving.out(name, folder)

    asyncio.run(run())


def bring_in(connection: Connection, path: Path) -> str:
    """Puts a data set from a folder on the journal; returns its name.

    Raises:
        StreamDPError: It cannot be done.
    """
    folder = MovedFolder(path)

    async def run() -> str:
        async with _opened(connection) as moving:
            return await moving.into(folder)

    return asyncio.run(run())


def _published(connection: Connection, name: str) -> list[bytes]:
    with connection.client() as client:
        return client.ledger_entries().get(name, [])


@asynccontextmanager
async def _opened(connection: Connection) -> AsyncIterator[Moving]:
    async with deployment(connection) as there:
        yield Moving(
            tools=there.tools,
            published=lambda name: asyncio.to_thread(_published, connection, name),
        )
