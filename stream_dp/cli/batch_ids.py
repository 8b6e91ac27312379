"""Names for the batches of a file that follow from its rows and tell nobody anything about them.

Batch ids are public. So what a file holds is hashed with a key that never leaves this machine: without it
nobody can try out which rows make an id.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stream_dp.client.documents import plain
from stream_dp.embedded.folders import StateFolder
from stream_dp.errors import ServerUnavailable, StreamDPError

__all__ = ["RowsDigest", "batch_key"]

_KEY_FILE: Final = "batch-ids.key"
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 16


def batch_key(state_dir: Path) -> bytes:
    """This machine's key of batch ids, made when there is none; only its owner can read it.

    Raises:
        StreamDPError: It cannot be kept there.
    """
    folder = StateFolder(state_dir)
    file = folder.path / _KEY_FILE
    try:
        if not file.exists():
            folder.prepare()
            _make(file)
        key = file.read_bytes()
    except (OSError, ServerUnavailable) as error:
        raise StreamDPError(
            f"the key of batch ids cannot be kept in {folder.path} ({error}); pass another --state-dir, or "
            "name the batches with --batch-id"
        ) from error
    if len(key) != _KEY_BYTES:
        raise StreamDPError(
            f"{file} is not a key of {_KEY_BYTES} bytes; put the right one back, or name the batches with "
            "--batch-id"
        )
    return key


def _make(file: Path) -> None:
    """Of two who make it at once, the first one's stays."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as text:  # noqa: PTH123 - a descriptor
            text.write(secrets.token_bytes(_KEY_BYTES))
            text.flush()
            os.fsync(text.fileno())
        file.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


class RowsDigest:
    """HMAC of rows, and of the data set and the columns that they are sent to.

    It is the same however many rows are taken at a time.
    """

    def __init__(self, key: bytes, dataset: str, names: Sequence[str]) -> None:
        self._key = key
        self._head = json.dumps([dataset, *names])
        self._columns = {name: hmac.new(key, digestmod="sha256") for name in names}

    def take(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Takes some rows, as they stand in the file."""
        for name, digest in self._columns.items():
            # A list without its brackets: each value, however it is grouped with others, and a comma.
            spelt = json.dumps(columns[name], default=plain)[1:-1]
            digest.update(f"{spelt}, ".encode())

    def prefix(self) -> str:
        """How the ids of these rows begin."""
        parts = [self._head.encode(), *(digest.digest() for digest in self._columns.values())]
        return hmac.digest(self._key, b"\0".join(parts), "sha256")[:_ID_BYTES].hex()
