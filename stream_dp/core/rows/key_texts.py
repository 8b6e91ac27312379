"""What the rows of a block say of a key, and in how many of them each value is. Private.

Nothing bounds a value's count by what others sent: no limit of candidates, no shared counters, no sketch.
Otherwise one person could decide whether the values of others are named (docs/proofs, Theorem 34).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.person_slots import DIGEST_BYTES, Digests, canonical

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Texts: TypeAlias = npt.NDArray[np.uint8]
"""One text for each slot in UTF-8, padded with zeros, shape (n_slots, bytes). All zero is none."""


def texts_of(column: Sequence[object] | npt.NDArray[Any], longest: int) -> Texts:
    """The texts of some values, as the keys of persons are read: see ``person_slots.canonical``.

    A value that is missing, or longer than ``longest`` bytes, has none. Each distinct value is read once.
    """
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    if not {str, int, float, type(None)}.issuperset(map(type, values)):
        values = list(map(canonical, values))  # True is 1 as a key, and lists cannot be keys
    read: dict[object, bytes] = {}
    for value in dict.fromkeys(values):
        text = canonical(value)
        encoded = b"" if text is None else text.encode("utf-8", "replace")
        told = len(encoded) <= longest and b"\0" not in encoded
        read[value] = (encoded if told else b"").ljust(longest, b"\0")
    joined = b"".join(map(read.__getitem__, values))
    return np.frombuffer(joined, np.uint8).reshape(-1, longest)


@dataclass(frozen=True, eq=False)
class KeyTexts:
    """What the rows of some slots say of a key.

    Attributes:
        texts: Their texts. A slot that does not count has none.
        digests: The digests of the persons whose rows they are, shape (n_slots, 12). None where rows are
            protected.
    """

    texts: Texts = field(repr=False)
    digests: Digests | None = field(default=None, repr=False)

    @staticmethod
    def columns(attribute: int, names: Iterable[str]) -> list[str]:
        """The columns, among those of a slab, that say it."""
        return [name for name in names if name.rpartition(" ")[0] in (f"key {attribute}", _DIGEST)]

    @classmethod
    def of_columns(cls, attribute: int, columns: Mapping[str, npt.NDArray[Any]]) -> KeyTexts:
        """What the columns of a slab say, see ``columns_of``."""
        texts = _of_words(columns, f"key {attribute}")
        digests = _of_words(columns, _DIGEST) if f"{_DIGEST} 0" in columns else None
        return cls(texts, digests)


_DIGEST: Final = "person"


def columns_of(
    texts: Mapping[int, Texts], digests: Digests | None = None
) -> dict[str, npt.NDArray[np.uint32]]:
    """What slots say of some keys as columns of 32 bits: ``key``, the index of the attribute, and the word.

    Args:
        texts: The texts, by the index of the attribute.
        digests: The persons of the rows, where these are protected.
    """
    found: dict[str, npt.NDArray[np.uint32]] = {}
    for attribute, said in texts.items():
        found |= _words(said, f"key {attribute}")
    return found if digests is None else found | _words(digests, _DIGEST)


def _words(rows: npt.NDArray[np.uint8], name: str) -> dict[str, npt.NDArray[np.uint32]]:
    padded = np.zeros((len(rows), -(-rows.shape[1] // 4) * 4), np.uint8)
    padded[:, : rows.shape[1]] = rows
    return {f"{name} {at}": word for at, word in enumerate(padded.view("<u4").T)}


def _of_words(columns: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[np.uint8]:
    n_words = sum(column.rpartition(" ")[0] == name for column in columns)
    words = np.stack([columns[f"{name} {at}"] for at in range(n_words)], axis=1).astype("<u4")
    return np.ascontiguousarray(words).view(np.uint8)


def codes_of(encode: Callable[[Sequence[str | None]], Codes], texts: Texts) -> Codes:
    """The cells of some slots, shape (n_slots,). Each distinct text is looked up once.

    Args:
        encode: Returns the cells of values.
        texts: What the slots say.
    """
    found, places = np.unique(_whole(texts), return_inverse=True)
    said = [bytes(text).rstrip(b"\0").decode() or None for text in found.tolist()]
    return encode(said)[places]


def units_by_text(parts: Iterable[KeyTexts]) -> dict[bytes, int]:
    """Counts the rows that say each text, or the persons of whom a row does so; private.

    Args:
        parts: The blocks of a window.

    Returns:
        The texts without padding, and their exact counts.
    """
    rows: Counter[bytes] = Counter()
    persons: list[npt.NDArray[np.void]] = []
    longest = 0
    for part in parts:
        said = part.texts.any(axis=1)
        longest = part.texts.shape[1]
        if part.digests is None:
            found, counts = np.unique(_whole(part.texts[said]), return_counts=True)
            rows.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        else:
            both = np.concatenate([part.digests[said], part.texts[said]], axis=1)
            persons.append(np.unique(_whole(both)))
    if persons:
        pairs = np.unique(np.concatenate(persons))
        alone = pairs.view(np.uint8).reshape(-1, DIGEST_BYTES + longest)[:, DIGEST_BYTES:]
        found, counts = np.unique(_whole(alone), return_counts=True)
        rows.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    return {text.rstrip(b"\0"): count for text, count in rows.items()}


def _whole(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.void]:
    """Each row of bytes as one value that sorts."""
    packed = np.ascontiguousarray(rows)
    whole: npt.NDArray[np.void] = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    return whole
