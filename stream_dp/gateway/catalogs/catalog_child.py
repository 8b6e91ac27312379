"""The process that answers statements about catalogs. Its argument is how much address space it may have.

Its statements are foreign code. It has no variable, file or connection of the process that started it but two
pipes, can open none, and its memory is limited. It reads and writes messages in JSON, each after its length.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import struct
import sys
from collections import OrderedDict
from typing import Any, BinaryIO, Final

from stream_dp.gateway.catalogs.catalog_database import CatalogDatabase
from stream_dp.gateway.catalogs.catalog_tables import (
    CatalogTable,
    CatalogView,
    TableColumn,
)
from stream_dp.gateway.protocol.sql_fault import SqlFault

HEAD: Final = struct.Struct("!I")
MOST_REPLY_BYTES: Final = 16 << 20
UNKNOWN_VIEW: Final = "unknown view"
_MOST_VIEWS: Final = 16
_OPEN: Final = 3

_LONGEST_S: Final = 60


def framed(message: dict[str, Any]) -> bytes:
    """Returns a message as it travels."""
    body = json.dumps(message, default=str).encode()
    return HEAD.pack(len(body)) + body


def view_of(message: dict[str, Any]) -> CatalogView:
    """Returns the view that a message describes with the fields of a ``CatalogView``."""
    tables = tuple(
        CatalogTable(
            one["schema"],
            one["name"],
            one["comment"],
            tuple(TableColumn(**column) for column in one["columns"]),
            None if one["rows"] is None else tuple(map(tuple, one["rows"])),
        )
        for one in message["tables"]
    )
    return CatalogView(message["key"], message["database"], message["user"], tables)


class CatalogChild:
    """Answers messages from the databases of the views that were used last."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, CatalogDatabase] = OrderedDict()

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns the reply to a message; a fault is one too."""
        try:
            return self._reply(message)
        except SqlFault as fault:
            return {"state": fault.state, "message": fault.message}
        except MemoryError:
            return {"state": "53200", "message": "the statement needs too much memory"}
        except RecursionError:
            return {"state": "54001", "message": "the statement has too many levels"}
        except Exception as error:  # noqa: BLE001 - its text may repeat the statement
            return {"state": "XX000", "message": f"the catalogs failed: {type(error).__name__}"}

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        if "tables" in message:
            self._add(view_of(message))
            return {}
        database = self._views.get(message["key"])
        if database is None:
            return {"state": UNKNOWN_VIEW}
        self._views.move_to_end(message["key"])
        if message["do"] == "describe":
            return {"columns": database.describe(message["sql"], message["settings"])}
        columns, rows = database.answer(message["sql"], message["settings"])
        return {"columns": columns, "rows": rows}

    def _add(self, view: CatalogView) -> None:
        former = self._views.pop(view.key, None)
        if former is not None:
            former.close()
        self._views[view.key] = CatalogDatabase(view)
        if len(self._views) > _MOST_VIEWS:
            self._views.popitem(last=False)[1].close()


def _warmed() -> CatalogChild:
    """Returns a child that has loaded all that its statements need."""
    child = CatalogChild()
    child.reply({"tables": [], "key": "", "database": "", "user": ""})
    for sql in (
        "SELECT relname FROM pg_class c WHERE relname ~ '^a' ORDER BY 1 LIMIT 1",
        "SELECT FROM",
    ):
        child.reply({"do": "answer", "key": "", "sql": sql, "settings": {}})
    return child


def _limit(most_bytes: int) -> None:
    """Sees to it that the process opens, writes and starts nothing more, and limits its memory."""
    for kind, most in (
        (resource.RLIMIT_NOFILE, _OPEN),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, most_bytes),
    ):
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit of some of them
            resource.setrlimit(kind, (most, most))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answers messages until there are no more."""
    os.closerange(_OPEN, os.sysconf("SC_OPEN_MAX"))  # uvloop lets a process inherit files
    child = _warmed()
    _limit(int(sys.argv[1]))
    replies.write(framed({}))
    replies.flush()
    while head := requests.read(HEAD.size):
        message = json.loads(requests.read(*HEAD.unpack(head)))
        signal.alarm(_LONGEST_S)  # where nobody is left who would end this process
        reply = framed(child.reply(message))
        if len(reply) > MOST_REPLY_BYTES:
            reply = framed({"state": "54000", "message": "the answer is too long; add LIMIT"})
        signal.alarm(0)
        replies.write(reply)
        replies.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
