"""Batch ids that are derived from the rows of a file and reveal nothing about them.

Batch ids are public. So the command hashes the rows with a key that never leaves this machine. Without the
key nobody can test which rows produce an id.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stream_dp.client.kafka.topic_documents import plain
from stream_dp.embedded.folders import StateFolder
from stream_dp.errors import ServerUnavailable, StreamDPError

_KEY_FILE: Final = "batch-ids.key"
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 16


def batch_key(state_dir: Path) -> bytes:
    """Reads this machine's key for batch ids, or creates it. Only the owner of the file can read it.

    Raises:
        StreamDPError: The key cannot be stored or is damaged.
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
            f"the key for batch ids cannot be stored in {folder.path} ({error}); pass another --state-dir or "
            "name the batches with --batch-id"
        ) from error
    if len(key) != _KEY_BYTES:
        raise StreamDPError(
            f"{file} is not a key of {_KEY_BYTES} bytes; restore the right file, or name the batches with "
            "--batch-id"
        )
    return key


def _make(file: Path) -> None:
    """Creates the key. If two processes create it at once, the first key stays."""
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
    """The HMAC of rows and of the data set and columns that they are sent to.

    The result does not depend on how many rows are taken at a time.
    """

    def __init__(self, key: bytes, dataset: str, names: Sequence[str]) -> None:
        self._key = key
        self._head = json.dumps([dataset, *names])
        self._columns = {name: hmac.new(key, digestmod="sha256") for name in names}

    def take(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds some rows, with the values as the file holds them."""
        for name, digest in self._columns.items():
            # A list without its brackets: each value and a comma, however the values are grouped.
            written = json.dumps(columns[name], default=plain)[1:-1]
            digest.update(f"{written}, ".encode())

    def prefix(self) -> str:
        """Returns the prefix of the batch ids of these rows."""
        parts = [self._head.encode(), *(digest.digest() for digest in self._columns.values())]
        return hmac.digest(self._key, b"\0".join(parts), "sha256")[:_ID_BYTES].hex()
