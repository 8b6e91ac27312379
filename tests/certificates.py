"""Certificates for servers of this machine, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from stream_dp.errors import ServerUnavailable


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Writes a certificate of 127.0.0.1 and its key to a folder; returns their files.

    Raises:
        ServerUnavailable: There is no openssl.
    """
    if shutil.which("openssl") is None:
        raise ServerUnavailable("openssl makes the server's certificate, and is not there")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
