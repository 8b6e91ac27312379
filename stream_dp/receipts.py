"""Receipts for sweeps: what was done and when, signed, and the same whether or not anybody was erased.

A data set whose persons can be erased signs with Ed25519. Its key follows from the key file of persons, and
its public key is in the first entry of its ledger.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNED: Final = ("dataset", "sweep", "phases", "change_number", "changes", "lost", "at")
"""The fields of a receipt that are signed, see ``messages.replies.Event``."""


def public_key(secret: bytes) -> str:
    """The public key of a data set, in base64url.

    Args:
        secret: Its secret that follows from the key file, 32 bytes.
    """
    return urlsafe_b64encode(_key(secret).public_key().public_bytes_raw()).decode()


def signature(secret: bytes, receipt: Mapping[str, object]) -> str:
    """Signs a receipt; returns the signature in base64url.

    Args:
        secret: The secret of the data set.
        receipt: The fields of ``SIGNED``.
    """
    return urlsafe_b64encode(_key(secret).sign(_signed(receipt))).decode()


def is_signed(public: str, receipt: Mapping[str, object], signature: str) -> bool:
    """Whether a receipt has the signature of the data set with a public key; both in base64url."""
    try:
        key = Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(public))
        key.verify(urlsafe_b64decode(signature), _signed(receipt))
    except (InvalidSignature, ValueError):
        return False
    return True


def _key(secret: bytes) -> Ed25519PrivateKey:
    seed = blake2b(digest_size=32, key=secret, person=b"receipt").digest()
    return Ed25519PrivateKey.from_private_bytes(seed)


def _signed(receipt: Mapping[str, object]) -> bytes:
    said = {name: receipt[name] for name in SIGNED}
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
