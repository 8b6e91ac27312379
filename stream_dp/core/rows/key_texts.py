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

from stream_dp.core.rows.person_slots import (
    Digests,
    bytes_of,
    canonical,
    hashable,
    words_of,
)

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Texts: TypeAlias = npt.NDArray[np.uint8]
"""One text for each slot in UTF-8, padded with zeros, shape (n_slots, bytes). All zero is none."""


def texts_of(column: Sequence[object] | npt.NDArray[Any], longest: int) -> Texts:
    """The texts of some values, as the keys of persons are read: see ``person_slots.canonical``.

    A value that is missing, or longer than ``longest`` bytes, has none. Each distinct value is read once.
    """
    values = hashable(column)
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
        texts = bytes_of(f"key {attribute}", columns)
        digests = bytes_of(_DIGEST, columns) if f"{_DIGEST} 0" in columns else None
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
        padded = np.pad(said, ((0, 0), (0, -said.shape[1] % 4)))
        found |= words_of(f"key {attribute}", padded)
    return found if digests is None else found | words_of(_DIGEST, digests)


def codes_of(encode: Callable[[Sequence[str | None]], Codes], texts: Texts) -> Codes:
    """The cells of some slots, shape (n_slots,). Each distinct text is looked up once.

    Args:
        encode: Returns the cells of values.
        texts: What the slots say.
    """
    found, places = np.unique(_whole(texts), return_inverse=True)
    return encode(_spoken(found))[places]


def spoken(texts: Texts) -> list[str | None]:
    """The texts of some slots as strings; None for a slot that has none."""
    return _spoken(_whole(texts))


def _spoken(whole: npt.NDArray[np.void]) -> list[str | None]:
    return [bytes(text).rstrip(b"\0").decode() or None for text in whole.tolist()]


def units_by_text(parts: Iterable[KeyTexts]) -> dict[bytes, int]:
    """Counts the rows that say each text, or the persons of whom a row does so; private.

    A person of a text takes 16 bytes until all are counted.

    Args:
        parts: The blocks of a window.

    Returns:
        The texts without padding, and their exact counts.
    """
    numbers: dict[bytes, int] = {}
    counts: Counter[int] = Counter()
    persons: list[npt.NDArray[np.uint64]] = []
    for part in parts:
        says = part.texts.any(axis=1)
        said = _whole(part.texts[says]).tolist()
        of_each = (numbers.setdefault(text, len(numbers)) for text in said)
        told = np.fromiter(of_each, np.uint32, len(said))
        if part.digests is None:
            counts.update(dict(enumerate(np.bincount(told).tolist())))
        else:
            pairs = np.concatenate([part.digests[says], told[:, None].view(np.uint8)], axis=1)
            persons.append(pairs.view("<u8").T)
    if persons:
        last = _last_words(np.concatenate(persons, axis=1))
        counts.update(dict(enumerate(np.bincount(last).tolist())))
    return {text.rstrip(b"\0"): counts[number] for text, number in numbers.items()}


def _last_words(pairs: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The last 32 bits of each distinct pair, of shape (2, n_pairs)."""
    pairs = pairs[:, np.lexsort(pairs)]
    differs = np.ones(pairs.shape[1], dtype=np.bool_)
    differs[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    last: npt.NDArray[np.int64] = (pairs[1, differs] >> np.uint64(32)).astype(np.int64)
    return last


def _whole(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.void]:
    """Each row of bytes as one value that sorts."""
    packed = np.ascontiguousarray(rows)
    whole: npt.NDArray[np.void] = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    return whole
