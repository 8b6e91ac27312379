"""An issuer of tokens: its keys, the document that lists them, and what it signs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt import encode
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW_MS = 1_700_000_000_000


@cache
def private(algorithm: str, number: int = 0) -> Any:
    """A private key for an algorithm. The same number gives the same key."""
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ES512":
            return ec.generate_private_key(ec.SECP521R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case "Ed448":
            return ed448.Ed448PrivateKey.generate()
        case _:
            return rsa.generate_private_key(65_537, 1024 if algorithm == "weak" else 2048)


def public(key: Any, kid: str, **fields: Any) -> dict[str, Any]:
    """The public part of a key, as it stands in a JWK Set."""
    kinds: dict[str, Any] = {"RSAPublicKey": RSAAlgorithm, "ECPublicKey": ECAlgorithm}
    shared = key.public_key()
    found = next((kinds[one] for one in kinds if one in type(shared).__name__), OKPAlgorithm)
    return {**found.to_jwk(shared, as_dict=True), "kid": kid, **fields}


class Issuer:
    """Signs tokens for ana about flights, as long as it is not told otherwise."""

    def __init__(self, folder: Path, algorithm: str = "ES256") -> None:
        self.file = folder / "keys.json"
        self.algorithm = algorithm
        self.kid = "first"
        self.key = private(algorithm)
        self.publish()

    def publish(self, *keys: dict[str, Any]) -> None:
        """Lists these keys, or else the one that it signs with."""
        listed = keys or (public(self.key, self.kid),)
        # In one step, and as another file: a reader never finds half of it.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"keys": listed}))
        fresh.rename(self.file)

    def rotate(self, kid: str = "second") -> None:
        """Signs with another key from now on, and lists that one alone."""
        self.kid, self.key = kid, private(self.algorithm, hash(kid))
        self.publish()

    def claims(self, **claims: Any) -> dict[str, Any]:
        """What a token says. None leaves a claim out."""
        said = {"sub": "ana", "aud": "flights", "exp": NOW_MS // 1000 + 600, **claims}
        return {name: value for name, value in said.items() if value is not None}

    def token(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token that it signs."""
        named = {"kid": self.kid, **(headers or {})}
        return encode(self.claims(**claims), self.key, self.algorithm, headers=named)

    def header(self, **claims: Any) -> dict[str, bytes]:
        """The headers of a record with a token."""
        return {"authorization": f"Bearer {self.token(**claims)}".encode()}
