"""Catalogs in a process of their own, which is ended when a statement takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from stream_dp.gateway.catalogs.catalog_child import HEAD, MOST_REPLY_BYTES, UNKNOWN_VIEW, framed
from stream_dp.gateway.catalogs.catalog_shapes import Columns
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.protocol.sql_fault import SqlFault

_STARTED_WITHIN_S: Final = 60.0
_LOADED_WITHIN_S: Final = 30.0
_TOO_LONG: Final = (
    "canceling statement due to statement timeout: statements about catalogs must be simple"
)
_TOO_MUCH: Final = "the statement needs too much memory"


class CatalogProcess:
    """Answers statements about catalogs, one at a time, in a process that has nothing to lose.

    Args:
        deadline_s: How long a statement may take, in seconds. Then the process is killed, and started again.
        most_bytes: The address space that the process may have, in bytes.
    """

    def __init__(self, *, deadline_s: float = 1.0, most_bytes: int = 512 << 20) -> None:
        self._deadline_s = deadline_s
        self._most_bytes = most_bytes
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Starts the process."""
        async with self._turn:
            await self._running()

    async def close(self) -> None:
        """Ends the process."""
        async with self._turn:
            await self._end()

    async def answer(
        self, sql: str, view: CatalogView, settings: Mapping[str, str]
    ) -> tuple[Columns, list[tuple[Any, ...]]]:
        """Answers a statement.

        Args:
            sql: The statement, with literals in place of parameters.
            view: What the analyst sees.
            settings: The settings of the connection, by their names in small letters.

        Returns:
            The name and the type of each column, and the rows, at most 10,000.

        Raises:
            SqlFault: The statement is not answered.
        """
        reply = await self._ask("answer", sql, view, settings)
        return _columns(reply), [tuple(row) for row in reply["rows"]]

    async def describe(self, sql: str, view: CatalogView, settings: Mapping[str, str]) -> Columns:
        """Returns the name and the type of each column of a statement, which does not run.

        Args:
            sql: The statement. Parameters such as ``$1`` may stand in it.
            view: What the analyst sees.
            settings: The settings of the connection, by their names in small letters.

        Raises:
            SqlFault: The statement is not answered.
        """
        return _columns(await self._ask("describe", sql, view, settings))

    async def _ask(
        self, do: str, sql: str, view: CatalogView, settings: Mapping[str, str]
    ) -> dict[str, Any]:
        message = {"do": do, "key": view.key, "sql": sql, "settings": dict(settings)}
        async with self._turn:
            reply = await self._exchange(message, self._deadline_s)
            if reply.get("state") == UNKNOWN_VIEW:
                reply = await self._exchange(asdict(view), _LOADED_WITHIN_S)
                if "state" not in reply:
                    reply = await self._exchange(message, self._deadline_s)
            if reply.get("state") == "53200":
                await self._end()
        if "state" in reply:
            raise SqlFault(reply["state"], reply["message"])
        return reply

    async def _running(self) -> asyncio.subprocess.Process:
        """Returns the process, which is started if there is none."""
        if self._process is not None and self._process.returncode is not None:
            await self._end()
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "stream_dp.gateway.catalogs.catalog_child",
                str(self._most_bytes),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
            await self._received(self._process, _STARTED_WITHIN_S)
        return self._process

    async def _exchange(self, message: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Sends a message and returns the reply. A process that does not reply in time is ended."""
        process = await self._running()
        assert process.stdin is not None
        process.stdin.write(framed(message))
        return await self._received(process, within_s)

    async def _received(
        self, process: asyncio.subprocess.Process, within_s: float
    ) -> dict[str, Any]:
        assert process.stdout is not None
        reply: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(within_s):
                (size,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
                if size <= MOST_REPLY_BYTES:
                    reply = json.loads(await process.stdout.readexactly(size))
        except TimeoutError:
            raise SqlFault("57014", _TOO_LONG) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise SqlFault("53200", _TOO_MUCH) from None
        finally:
            if reply is None:  # also if a caller is cancelled: the next reply must not be another's
                await self._end()
        if reply is None:
            raise SqlFault("54000", "the answer is too long; add LIMIT")
        return reply

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def _columns(reply: dict[str, Any]) -> Columns:
    return tuple((name, kind) for name, kind in reply["columns"])
