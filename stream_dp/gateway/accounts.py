"""The accounts of tools that store one password for years: a verifier of SCRAM, and a file with a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from stream_dp.errors import InvalidInput
from stream_dp.messages.message_base import ID_PATTERN

_FORM: Final = r"SCRAM-SHA-256\$\d{1,7}:[A-Za-z0-9+/=]{8,}\$[A-Za-z0-9+/=]{44}:[A-Za-z0-9+/=]{44}"
_ROUNDS: Final = 100_000
_SHORTEST: Final = 16


class Account(BaseModel):
    """An account of a tool.

    Attributes:
        verifier: What tells that a password is right, in the form of Postgres: the password does not follow
            from it.
        token_file: The file with the signed token under which the tool asks. None where queries need none:
            the tool then asks under the name of its account.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verifier: Annotated[str, Field(pattern=f"^{_FORM}$", repr=False)]
    token_file: str | None = None

    @field_validator("verifier")
    @classmethod
    def _is_read(cls, text: str) -> str:
        ScramVerifier.read(text)
        return text


_ACCOUNTS: Final = TypeAdapter(dict[str, Account])


def accounts_in(path: Path) -> Mapping[str, Account]:
    """Reads the accounts of a file.

    Raises:
        InvalidInput: It cannot be read, or is not a JSON object of accounts.
    """
    try:
        return _ACCOUNTS.validate_json(path.read_bytes())
    except OSError as error:
        raise _invalid(f"{path} cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise _invalid(f"{name or path}: {first['msg']}") from None


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(
        "STREAM_DP_GATEWAY_ACCOUNTS", problem, "write accounts with: stream-dp gateway account NAME"
    )


def write_account(path: Path, name: str, password: str, token_file: str | None) -> None:
    """Adds an account to a file, or changes it. Only the owner of the file can read it.

    Raises:
        InvalidInput: The password is too short, or the file is none of accounts.
    """
    if re.fullmatch(ID_PATTERN, name) is None:
        raise InvalidInput(
            "NAME",
            "it is not the name of an analyst",
            "use 1 to 128 printable ASCII characters without blanks",
        )
    if len(password) < _SHORTEST or not (password.isascii() and password.isprintable()):
        raise InvalidInput(
            "password",
            f"it has fewer than {_SHORTEST} characters, or others than printable ASCII",
            "let a program make one: python3 -c 'import secrets; print(secrets.token_urlsafe(24))'",
        )
    known: dict[str, Any] = dict(accounts_in(path)) if path.exists() else {}
    known[name] = Account(verifier=scram_verifier_of(password), token_file=token_file)
    text = json.dumps(_ACCOUNTS.dump_python(known, exclude_none=True), indent=2) + "\n"
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def scram_verifier_of(password: str) -> str:
    """Returns what tells that a password is right (RFC 5803, as Postgres writes it)."""
    salt = secrets.token_bytes(16)
    found = ScramVerifier.of_password(password, salt, _ROUNDS)
    parts = (base64.b64encode(part).decode() for part in (salt, found.stored_key, found.server_key))
    salted, stored, server = parts
    return f"SCRAM-SHA-256${_ROUNDS}:{salted}${stored}:{server}"


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What a server knows of a password in SCRAM-SHA-256 (RFC 5802, section 3).

    Attributes:
        salt: The salt.
        rounds: How often the hash is taken.
        stored_key: What a proof of the client is compared with.
        server_key: What the server's own proof is made of.
    """

    salt: bytes = field(repr=False)
    rounds: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_password(cls, password: str, salt: bytes, rounds: int) -> ScramVerifier:
        """Works out the keys of a password."""
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored = hashlib.sha256(client_key).digest()
        return cls(salt, rounds, stored, hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def read(cls, text: str) -> ScramVerifier:
        """Reads a verifier as Postgres writes it."""
        found = re.fullmatch(r"SCRAM-SHA-256\$(\d+):(.+)\$(.+):(.+)", text)
        assert found is not None, "the model has checked it"
        salt, stored, server = (
            base64.b64decode(part, validate=True) for part in found.groups()[1:]
        )
        return cls(salt, int(found[1]), stored, server)

    @classmethod
    def made_up(cls, name: str, secret: bytes) -> ScramVerifier:
        """Returns a verifier that no password fits, with the same salt for a name while this runs."""
        salt = hmac.digest(secret, b"salt" + name.encode(), "sha256")[:16]
        return cls(salt, _ROUNDS, secrets.token_bytes(32), secrets.token_bytes(32))
