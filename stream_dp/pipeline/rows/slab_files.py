"""Slabs in a folder or a bucket: one Arrow IPC file each, which is whole before a commit names it.

A file has a field for each column, one record batch, no compression, and the index of the slab among its
metadata. With a key each column and the index are sealed with AES-256-GCM; then nothing but this module reads
them, and who deletes the key erases backups too. A file lies in the folder of its data set, under its name.

``_ids`` has a file for the store itself, which a commit names with the slab. So a worker with another folder,
another bucket or another key says so at once, and takes nothing for lost.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stream_dp.core.rows.slabs import SlabIndex
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.settings import WorkerSettings
from stream_dp.state.private_names import STORE_BYTES

if TYPE_CHECKING:
    from pyarrow import fs

SETTING: Final = "STREAM_DP_ROWS"
KEY_SETTING: Final = "STREAM_DP_ROWS_KEY_FILE"
IDS: Final = "_ids"
"""The folder of the ids of the store. No data set has this name."""

_NONCE_BYTES: Final = 12
_INDEX: Final = b"stream-dp slab"
_SUFFIX: Final = ".arrow"
_PARTIAL: Final = ".part"
_CHECK: Final = b"stream-dp"


@dataclass(frozen=True)
class SlabPlace:
    """Where files of slabs are; without a key it reads none that are sealed.

    Attributes:
        url: ``file:///folder``, or ``s3://bucket/prefix``, perhaps with options such as ``?region=``.
        key: What the key file holds. None leaves files as they are.
    """

    url: str
    key: bytes | None = field(default=None, repr=False)


class SlabFiles:
    """The files of slabs of a deployment. Threads may share it.

    Args:
        files: The file system.
        root: The folder, or the bucket and the prefix, in it.
        key: See ``SlabPlace``.

    Attributes:
        id: What commits name the store by, 8 bytes.
    """

    def __init__(self, files: fs.FileSystem, root: str, key: bytes | None = None) -> None:
        self._files, self._root = files, root.rstrip("/")
        self._sealing = None if key is None else AESGCM(blake2b(key, digest_size=32).digest())
        self.id = b""

    @classmethod
    def opened(cls, place: SlabPlace) -> Self:
        """Opens the store, and begins it if nobody has before.

        Raises:
            InvalidInput: The address is none, or the key is another one.
            ServerUnavailable: It does not answer, or refuses.
        """
        if urlsplit(place.url).scheme not in ("file", "s3"):
            raise InvalidInput(
                SETTING, "it names neither a folder nor a bucket", "use file:///… or s3://…"
            )
        try:
            from pyarrow import ArrowInvalid, fs
        except ImportError:
            raise InvalidInput(
                SETTING, "pyarrow is missing", "pip install stream-dp[arrow]"
            ) from None
        try:
            files, root = fs.FileSystem.from_uri(place.url)
            if not root.strip("/"):
                raise ArrowInvalid("no bucket")
        except (ArrowInvalid, OSError) as error:
            why = f"it does not read as an address ({type(error).__name__})"
            raise InvalidInput(SETTING, why, "use file:///… or s3://bucket/prefix") from None
        found = cls(files, root, place.key)
        found._begin()
        return found

    def _begin(self) -> None:
        if not self._ids():
            own = token_bytes(STORE_BYTES)
            self._write(self._path(IDS, own.hex()), self._sealed(_CHECK, own, 0))
        self.id = min(self._ids())

    def _ids(self) -> set[bytes]:
        """The ids of the store: more than one if workers began it at the same time.

        Raises:
            InvalidInput: The key is another one.
        """
        found = {bytes.fromhex(name) for name in self._names(IDS)}
        for one in found:
            path = self._path(IDS, one.hex())
            with _translated(), self._files.open_input_file(path) as file:
                stored = file.read()
            if self._opened(stored, one, 0) != _CHECK:
                raise InvalidInput(
                    KEY_SETTING,
                    "it is not the key of the store that STREAM_DP_ROWS names, or that has none",
                    "give every worker the right one",
                )
        return found

    def has(self, store: bytes) -> bool:
        """Whether this is the store that a commit names."""
        return store == self.id or store in self._ids()

    # ------------------------------------------------------------ slabs

    def put(self, dataset: str, name: bytes, parts: Sequence[bytes]) -> None:
        """Keeps a slab. It is durable when this returns.

        Args:
            dataset: The name of the data set.
            name: The name of the slab.
            parts: What ``Slab.stored`` has given. Private.

        Raises:
            ServerUnavailable: The store does not answer, or refuses.
        """
        import pyarrow as pa

        index, arrays = SlabIndex.from_bytes(parts[0]), []
        for number, part in enumerate(parts[1:], 1):
            if self._sealing is None:
                kind = getattr(pa, f"uint{8 * index.itemsize(number)}")()
                arrays.append(
                    pa.Array.from_buffers(kind, index.n_slots, [None, pa.py_buffer(part)])
                )
            else:
                arrays.append(pa.array([self._sealed(part, name, number)], pa.large_binary()))
        metadata = {_INDEX: self._sealed(parts[0], name, 0)}
        fields = [
            pa.field(column, array.type, nullable=False)
            for column, array in zip(index.names, arrays, strict=True)
        ]
        schema = pa.schema(fields, metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as out:
            out.write_batch(pa.record_batch(arrays, schema=schema))
        self._write(self._path(dataset, name.hex() + _SUFFIX), sink.getvalue())

    def parts(self, dataset: str, name: bytes, numbers: Collection[int]) -> list[bytes | None]:
        """Returns parts of a slab, in order; None for each that is not there, or does not decode. Private.

        Args:
            dataset: The name of the data set.
            name: The name of the slab.
            numbers: The number of each part, ascending; 0 is the index.

        Raises:
            ServerUnavailable: The store does not answer, or refuses.
        """
        path = self._path(dataset, name.hex() + _SUFFIX)
        try:
            with _translated():
                file = self._files.open_input_file(path)
            with file:
                found = self._parts(file, name, numbers)
            if None in found:
                # Arrow tells a store that does not answer from a wrong byte no more. Reading all of it does.
                with _translated(), self._files.open_input_file(path) as file:
                    content = file.read()
                found = self._parts(io.BytesIO(content), name, numbers)
        except FileNotFoundError:
            return [None] * len(numbers)
        return found

    def _parts(self, file: Any, name: bytes, numbers: Collection[int]) -> list[bytes | None]:
        import pyarrow as pa

        wanted = [number - 1 for number in numbers if number]
        try:
            options = pa.ipc.IpcReadOptions(included_fields=wanted or [0])
            reader = pa.ipc.open_file(file, options=options)
            found: dict[int, Any] = {0: (reader.schema.metadata or {}).get(_INDEX)}
            if wanted:
                columns = reader.get_batch(0).columns
                for number, column in zip(wanted, columns, strict=True):
                    found[number + 1] = self._stored(column)
        except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError, AttributeError):
            return [None] * len(numbers)
        return [self._opened(found[number], name, number) for number in numbers]

    def drop(self, dataset: str, name: bytes) -> None:
        """Deletes a slab; one that is not there is no fault.

        Raises:
            ServerUnavailable: The store does not answer, or refuses.
        """
        for suffix in (_SUFFIX, _SUFFIX + _PARTIAL):
            with contextlib.suppress(FileNotFoundError), _translated():
                self._files.delete_file(self._path(dataset, name.hex() + suffix))

    def names(self, dataset: str) -> set[bytes]:
        """Returns the names of the slabs of a data set, those included that are not whole.

        Raises:
            ServerUnavailable: The store does not answer, or refuses.
        """
        return {bytes.fromhex(name.partition(".")[0]) for name in self._names(dataset)}

    # ------------------------------------------------------------ files

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    def _names(self, folder: str) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        with _translated():
            found = self._files.get_file_info(selector)
        return [one.base_name for one in found if one.type == fs.FileType.File]

    def _write(self, path: str, content: Any) -> None:
        """Writes a whole file, durable."""
        with _translated():
            if self._files.type_name != "local":
                with self._files.open_output_stream(path) as sink:
                    sink.write(content)
                return
            file = Path(path)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = file.with_name(file.name + _PARTIAL)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as sink:
                sink.write(content)
                sink.flush()
                os.fsync(sink.fileno())
            partial.replace(file)
            for folder in (file.parent, file.parent.parent):
                _sync(folder)

    # ------------------------------------------------------------ sealing

    def _stored(self, column: Any) -> bytes:
        """The content of a column. It is a copy: Arrow's own keeps the memory of the whole file."""
        column.validate(full=True)  # else a wrong length ends the process
        if self._sealing is None:
            content = column.buffers()[1][: len(column) * column.type.byte_width]
        else:
            content = column[0].as_buffer()
        return bytes(content.to_pybytes())

    def _sealed(self, content: bytes, name: bytes, number: int) -> bytes:
        if self._sealing is None:
            return content
        nonce = token_bytes(_NONCE_BYTES)
        return nonce + self._sealing.encrypt(nonce, content, _said(name, number))

    def _opened(self, stored: Any, name: bytes, number: int) -> Any:
        """The content of what is stored. None if it is not what was sealed."""
        if self._sealing is None or stored is None:
            return stored
        read = memoryview(stored).cast("B")  # of Arrow it is one of signed bytes
        nonce, content = read[:_NONCE_BYTES], read[_NONCE_BYTES:]
        try:
            return self._sealing.decrypt(nonce, content, _said(name, number))
        except (InvalidTag, ValueError):
            return None


def files_of(settings: WorkerSettings) -> SlabFiles | None:
    """The store of slabs that the settings of a worker name. None for the topic of blocks.

    Raises:
        InvalidInput: A setting of it is wrong.
        ServerUnavailable: It does not answer, or refuses.
    """
    if settings.rows is None:
        return None
    return SlabFiles.opened(SlabPlace(settings.rows, settings.rows_key()))


def _said(name: bytes, number: int) -> bytes:
    """What is sealed with a part, so that it is not taken for another one."""
    return b"%b %d" % (name, number)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translated() -> Any:
    """Turns the errors of a store into ours. They may quote an address with its password."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ServerUnavailable(
            f"the store of STREAM_DP_ROWS does not answer, or refuses ({type(error).__name__})"
        ) from None
