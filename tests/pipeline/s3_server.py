"""A real S3 server: Versity's gateway on a folder, which keeps what it has acknowledged when it is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from stream_dp.embedded.folders import cache_folder
from stream_dp.errors import ServerUnavailable
from tests.waiting import until

VERSION = "v1.8.0"
BUCKET = "rows"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "of-the-tests", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


def gateway() -> Path:
    """The program, built once.

    Raises:
        ServerUnavailable: Go is not on the PATH, or does not build it.
    """
    folder = cache_folder(os.environ) / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise ServerUnavailable("go is not on the PATH; .ci/run says how it is installed")
        package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
        built = subprocess.run(
            [go, "install", package],
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise ServerUnavailable(f"versitygw was not built: {built.stderr[-500:]}")
    return program


class S3Server:
    """A server with one bucket, which can be killed and started again.

    Args:
        folder: Where it keeps what it has.
        versions: Where it keeps versions of files. None if it keeps none.

    Attributes:
        url: The address of the bucket, for ``STREAM_DP_ROWS``.
        port: The port on which it answers.
    """

    def __init__(self, folder: Path, versions: Path | None = None) -> None:
        self._program, self._folder = gateway(), folder
        self._versioning: list[str] = []
        if versions is not None:
            versions.mkdir()
            self._versioning = ["--versioning-dir", str(versions)]
        (folder / BUCKET).mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = (
            f"s3://{BUCKET}/of/tests?endpoint_override=127.0.0.1:{self.port}"
            "&scheme=http&region=us-east-1"
        )
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        self._process = subprocess.Popen(
            [
                *(str(self._program), "--port", f"127.0.0.1:{self.port}", "--quiet"),
                *("posix", *self._versioning, str(self._folder)),
            ],
            env={
                **os.environ,
                "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers, "the S3 server does not answer")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self, *, again_after_s: float | None = None) -> None:
        """Kills it, and starts it again after a while if one is given."""
        self._process.kill()
        self._process.wait()
        if again_after_s is not None:

            def again() -> None:
                time.sleep(again_after_s)
                self.start()

            threading.Thread(target=again).start()
