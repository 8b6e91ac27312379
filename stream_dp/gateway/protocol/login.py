"""The beginning of a connection: encryption, the name, and what proves it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final

from stream_dp.gateway.accounts import ScramVerifier
from stream_dp.gateway.protocol import server_messages
from stream_dp.gateway.protocol.client_messages import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    SSL_REQUEST,
    BodyReader,
    StartUp,
)
from stream_dp.gateway.protocol.connection import read_message
from stream_dp.gateway.protocol.sql_fault import unreadable, wrong_password

_MOST_BYTES: Final = 10_000
_MECHANISM: Final = b"SCRAM-SHA-256"
_SASL, _SASL_CONTINUE, _SASL_FINAL, _CLEAR_TEXT = 10, 11, 12, 3


class ClientStart:
    """Reads what a client sends before it is logged in.

    Args:
        reader: What the client sends.
        writer: What it receives.
        tls: How to encrypt. None for a server without a certificate.

    Attributes:
        is_encrypted: Whether the connection is encrypted.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: ssl.SSLContext | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tls = tls
        self.is_encrypted = False

    async def begin(self, cancel: Callable[[tuple[int, bytes]], None]) -> StartUp | None:
        """Returns what the client says first. None where it only cancels a statement, or says nothing of use.

        Args:
            cancel: Cancels the statement of the connection with a key.
        """
        while True:
            (size,) = struct.unpack("!i", await self._reader.readexactly(4))
            if not 8 <= size <= _MOST_BYTES:
                return None
            data = await self._reader.readexactly(size - 4)
            (code,) = struct.unpack("!i", data[:4])
            if code == SSL_REQUEST and not self.is_encrypted:
                if not await self._encrypt():
                    return None
            elif code == GSS_REQUEST:
                await self._write(b"N")
            elif code == CANCEL_REQUEST:
                if len(data) >= 12:
                    cancel((struct.unpack("!i", data[4:8])[0], data[8:]))
                return None
            else:
                return StartUp.read(code, data[4:])

    async def _encrypt(self) -> bool:
        """Answers a request for encryption. Returns whether to go on."""
        if self._tls is None:
            await self._write(b"N")
            return True
        buffered: Any = self._reader
        if buffered._buffer:  # noqa: SLF001 - bytes before the handshake could be anybody's: CVE-2021-23214
            return False
        await self._write(b"S")
        await self._writer.start_tls(self._tls)
        self.is_encrypted = True
        return True

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    # ------------------------------------------------------------ passwords

    async def password(self) -> str:
        """Returns the password that the client sends in clear text, inside TLS or this machine."""
        await self._write(server_messages.authentication(_CLEAR_TEXT))
        reader = BodyReader(await self._answer())
        return reader.text()

    async def prove(self, user: str, verifier: ScramVerifier) -> None:
        """Lets the client prove that it knows a password (SCRAM-SHA-256, RFC 7677).

        Raises:
            SqlFault: It does not, or what it sends is none of the protocol.
        """
        await self._write(server_messages.authentication(_SASL, _MECHANISM + b"\0\0"))
        reader = BodyReader(await self._answer())
        mechanism = reader.text()
        (size,) = reader.numbers("i", 1)
        if mechanism.encode() != _MECHANISM or size < 0:
            raise unreadable("this server knows SCRAM-SHA-256 without channel binding")
        header, bare = _first(_ascii(reader.bytes(size)))
        nonce = _fields(bare).get("r", "") + secrets.token_urlsafe(18)
        salt = base64.b64encode(verifier.salt).decode()
        challenge = f"r={nonce},s={salt},i={verifier.rounds}"
        await self._write(server_messages.authentication(_SASL_CONTINUE, challenge.encode()))
        last = _ascii(await self._answer())
        without, _, _ = last.rpartition(",p=")
        said = f"{bare},{challenge},{without}".encode()
        fields = _fields(last)
        binding = base64.b64encode(header.encode()).decode()
        is_right = hmac.compare_digest(
            _stored_key(fields.get("p", ""), verifier, said), verifier.stored_key
        )
        if not (is_right and fields.get("r") == nonce and fields.get("c") == binding):
            raise wrong_password(user)
        proof = base64.b64encode(hmac.digest(verifier.server_key, said, "sha256"))
        self._writer.write(server_messages.authentication(_SASL_FINAL, b"v=" + proof))

    async def _answer(self) -> bytes:
        kind, body = await read_message(self._reader, _MOST_BYTES)
        if kind != b"p":
            raise unreadable("a password is expected here")
        return body


def _ascii(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise unreadable("a message of the login is not ASCII") from None


def _first(text: str) -> tuple[str, str]:
    """Returns the header and the rest of a client's first message."""
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[0] not in ("n", "y"):
        raise unreadable("this server knows SCRAM-SHA-256 without channel binding")
    return f"{parts[0]},{parts[1]},", parts[2]


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _stored_key(proof: str, verifier: ScramVerifier, said: bytes) -> bytes:
    """Returns the key that a proof leads to, which is the stored one if the proof is right."""
    try:
        given = base64.b64decode(proof, validate=True)
    except (binascii.Error, ValueError):
        return b""
    signature = hmac.digest(verifier.stored_key, said, "sha256")
    if len(given) != len(signature):
        return b""
    key = bytes(one ^ other for one, other in zip(given, signature, strict=True))
    return hashlib.sha256(key).digest()
