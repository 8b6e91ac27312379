"""A data set in a folder, on its way to another deployment. It holds raw rows: only its owner may read it.

``manifest.json`` is written last, so a folder without one is not whole. It names each file with its length
and its SHA-256. ``checkpoint`` is a ``Checkpoint``, which carries all answers, ``kept`` are private values,
each under what it is kept for, such as "block 12", and ``ledger`` are the entries of the ledger, one a line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stream_dp.errors import InvalidInput

_MANIFEST: Final = "manifest.json"

Kind = Literal["checkpoint", "kept", "ledger"]


class MovedFile(BaseModel):
    """One file of the folder.

    Attributes:
        file: Its name.
        kind: What it holds.
        key: What a kept value is kept for, see ``Table.KEPT``; empty for other kinds.
        size: Its length in bytes.
        sha256: Its hash, as 64 hexadecimal digits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Annotated[str, Field(pattern=r"^[0-9]{6}\.bin$")]
    kind: Kind
    key: str = ""
    size: int
    sha256: str


class MovedManifest(BaseModel):
    """What the folder holds.

    Attributes:
        version: The version of the format of the folder.
        dataset: The name of the data set.
        export: The name of this export, which the former deployment keeps.
        files: The files, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    dataset: str
    export: str
    files: tuple[MovedFile, ...]


class MovingFolder:
    """A folder that is being written.

    Args:
        path: Where it is to be. It must be empty, or not there yet.

    Raises:
        InvalidInput: There is something in it.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise InvalidInput("FOLDER", f"{path} is not empty", "name a new folder")
        path.chmod(0o700)
        self._path = path
        self._files: list[MovedFile] = []

    def add(self, kind: Kind, content: bytes, key: str = "") -> None:
        """Writes a file. Its content is private."""
        name = f"{len(self._files) + 1:06}.bin"
        self._write(name, content)
        digest = hashlib.sha256(content).hexdigest()
        self._files.append(
            MovedFile(file=name, kind=kind, key=key, size=len(content), sha256=digest)
        )

    def finish(self, dataset: str, export: str) -> None:
        """Writes the manifest: from now on the folder is whole."""
        manifest = MovedManifest(dataset=dataset, export=export, files=tuple(self._files))
        self._write(_MANIFEST, manifest.model_dump_json(indent=1).encode())

    def _write(self, name: str, content: bytes) -> None:
        descriptor = os.open(self._path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


class MovedFolder:
    """A folder that is whole. Every file was compared with the manifest.

    Args:
        path: Where it is.

    Attributes:
        manifest: What is in it.

    Raises:
        InvalidInput: It is not whole, or a file is not the one that was written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            document = (path / _MANIFEST).read_bytes()
            self.manifest = MovedManifest.model_validate_json(document)
            for file in self.manifest.files:
                self._read(file)
        except FileNotFoundError as error:
            raise _broken(path, f"{Path(str(error.filename)).name} is missing") from None
        except ValidationError:
            raise _broken(path, "its manifest is of no version that this release reads") from None
        kinds = [file.kind for file in self.manifest.files]
        if (kinds.count("checkpoint"), kinds.count("ledger")) != (1, 1):
            raise _broken(path, "it must have one checkpoint and one ledger")

    def contents(self, kind: Kind) -> Iterator[tuple[str, bytes]]:
        """Yields the key and the content of each file of a kind, in order. Private."""
        for file in self.manifest.files:
            if file.kind == kind:
                yield file.key, self._read(file)

    def _read(self, file: MovedFile) -> bytes:
        content = (self._path / file.file).read_bytes()
        if (len(content), hashlib.sha256(content).hexdigest()) != (file.size, file.sha256):
            raise _broken(self._path, f"{file.file} is not the file that was written")
        return content


def _broken(path: Path, problem: str) -> InvalidInput:
    return InvalidInput("FOLDER", f"{path}: {problem}", "copy the folder again, or export again")
