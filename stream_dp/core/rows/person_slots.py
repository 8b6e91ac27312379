"""The persons behind the rows, and which of their rows count: a limited number in each block.

A *slot* is the place of a row in a block. Whose row it holds is kept as a digest of its key, made with a
secret of the data set, and only until its block is sealed. A slot without a key is *blank*: it counts
nowhere.

Which slots count is decided for each person by that person's own slots alone. Nothing that persons share,
such as a sketch or a limit for the whole block, may come into it: then blanking one person's rows would
change whose other rows count, by any number (docs/proofs, Theorem 20).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b, sha256
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.encoding import Format, fields
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.errors import WrongKeyFile

Digests: TypeAlias = npt.NDArray[np.uint8]
Ranks: TypeAlias = npt.NDArray[np.uint64]
OwnKeys: TypeAlias = npt.NDArray[np.uint64]
"""The digest of the own key of the row in each slot, shape (n_slots,); 0 where it has none."""

DIGEST_BYTES: Final = 12
"""A person shares their digest with one of n others with probability n 2^-96, which is added to delta."""
_BLANK: Final = bytes(DIGEST_BYTES)
OWNERS: Final = (*(f"digest {at}" for at in range(DIGEST_BYTES // 4)), "own 0", "own 1")
"""The columns that say whose the rows in some slots are, and which rows. The last two may be absent."""
RANKS: Final = ("rank 0", "rank 1")
"""The columns that say which of a person's slots come first. A blank slot has a rank, too."""
WHOSE_COLUMNS: Final = (*OWNERS, *RANKS)

MAX_KEY_BYTES: Final = 64
"""Most bytes of a key as it is; a longer one is shortened to a hash."""
LONGEST_KEY: Final = 6 * MAX_KEY_BYTES + 2
"""Most bytes that a canonical key takes in JSON: six for a control character, and two quotes."""

_MAX_NORMALIZED: Final = 256
"""Most characters of a text that is normalized: the time for that grows with the square of its marks."""
_SHORTENED: Final = re.compile("sha256:[0-9a-f]{64}")
_QUICK: Final = frozenset({str, int, float, type(None)})
_SECRET_BYTES: Final = 32
_SMALL: Final = 2**63


def canonical(value: object) -> str | None:
    """The one text of a key, or None where there is no key. Total: it never raises.

    None, NaN, empty text, lists and objects say no key. A whole number stands for its decimal text, also as a
    float such as 17.0, and another number for its shortest one. A bool stands for "true" or "false". Text is
    put into Unicode's form NFC, up to 256 characters, without blanks at its ends. Text of more than
    ``MAX_KEY_BYTES`` in UTF-8 becomes ``sha256:`` and a hash, which anyone can compute who sends it. So two
    spellings of one person that are not listed here are two persons. A canonical text is its own.
    """
    if type(value) is str and len(value) <= MAX_KEY_BYTES and value.isascii():
        return value.strip() or None  # as the rest does, ten times as fast
    if type(value) is int and abs(value) < _SMALL:
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        text = _text(value)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | float | Decimal):
        text = _number(value)
    else:
        text = ""
    encoded = text.encode("utf-8", "surrogatepass")  # JSON lets half a surrogate pair through
    if len(encoded) > MAX_KEY_BYTES and _SHORTENED.fullmatch(text) is None:
        text = f"sha256:{sha256(encoded).hexdigest()}"
    return text or None


def _text(text: str) -> str:
    if not text.isascii() and len(text) <= _MAX_NORMALIZED:
        text = unicodedata.normalize("NFC", text)
    return str.strip(text)


def _number(value: float | Decimal) -> str:
    """The text of a number, exact however large it is; empty for NaN."""
    exact = Decimal(value)
    if not exact.is_finite():
        return "" if exact.is_nan() else repr(float(value))
    if exact == exact.to_integral_value():
        return f"{Decimal(int(exact)):f}"  # int refuses to write more than 4,300 digits
    nearest = repr(float(value))
    # A decimal with more digits than a float has is another key than the float next to it.
    return nearest if isinstance(value, float) or Decimal(nearest) == value else str(value)


def hashable(column: Sequence[object] | npt.NDArray[Any]) -> Sequence[Any]:
    """The values of a column, each of which has the same canonical text as an equal one."""
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    if _QUICK.issuperset(map(type, values)):
        return values
    return list(map(canonical, values))  # True is 1 as a key, and lists cannot be keys


def words_of(name: str, rows: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.uint32]]:
    """Bytes of each slot, shape (n_slots, a multiple of 4), as columns of 32 bits: ``name 0`` and so on."""
    words = np.ascontiguousarray(rows).view("<u4").T
    return {f"{name} {at}": word for at, word in enumerate(words)}


def bytes_of(name: str, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Inverse of ``words_of``, of the columns of this name among others."""
    n_words = sum(column.rpartition(" ")[0] == name for column in columns)
    words = np.stack([columns[f"{name} {at}"] for at in range(n_words)], axis=1).astype("<u4")
    return np.ascontiguousarray(words).view(np.uint8)


def digests(secret: bytes, column: Sequence[object] | npt.NDArray[Any]) -> Digests:
    """The digest of the key of each slot, shape (n_slots, 12); all zero where there is no key.

    Each distinct value is hashed once. So how long it takes depends on a person by one hash at the most.
    """
    values = hashable(column)
    fresh = blake2b(digest_size=DIGEST_BYTES, key=secret).copy  # quicker than to begin with the key
    digest_of: dict[object, bytes] = dict.fromkeys(values, _BLANK)
    for value in digest_of:
        key = canonical(value)
        if key is not None:
            state = fresh()
            state.update(key.encode("utf-8", "surrogatepass"))
            digest_of[value] = state.digest()
    found = b"".join(map(digest_of.__getitem__, values))
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST_BYTES)


def own_keys(
    secret: bytes,
    persons: Sequence[object] | npt.NDArray[Any],
    rows: Sequence[object] | npt.NDArray[Any],
) -> OwnKeys:
    """The digest of each slot's person and of the own key of its row, shape (n_slots,).

    It is 0 where one of the two keys is missing. Keys are read as those of persons, see ``canonical``.
    """
    state_of = blake2b(digest_size=8, key=secret, person=b"row")
    found = bytearray()
    for person, row in zip(map(canonical, persons), map(canonical, rows), strict=True):
        if person is None or row is None:
            found += bytes(8)
            continue
        owner, state = person.encode("utf-8", "surrogatepass"), state_of.copy()
        state.update(len(owner).to_bytes(2) + owner + row.encode("utf-8", "surrogatepass"))
        found += state.digest()
    return np.frombuffer(bytes(found), "<u8")


def ranks(secret: bytes, batch_id: str, n_slots: int) -> Ranks:
    """The rank of each slot of a batch, shape (n_slots,): of a person's slots those of least rank count.

    It depends on the secret, the id of the batch and the place in the batch alone. So a block counts the same
    slots in whatever order its batches came, and no row's content decides.
    """
    encoded = batch_id.encode("utf-8", "surrogatepass")
    start = blake2b(encoded, digest_size=8, key=secret).digest()
    words = np.arange(n_slots, dtype=np.uint64) ^ np.frombuffer(start, "<u8")
    return _mixed(words)


def _mixed(words: Ranks) -> Ranks:
    """A permutation of all 64-bit words under which neighbours are far apart.

    Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with the constants of
    Stafford 2011, mix 13.
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Ranks = words ^ (words >> np.uint64(31))
    return mixed


def by_person(
    digests: Digests, order: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Puts the slots of each person together. Private.

    Args:
        digests: The digest of each slot's key, shape (n_slots, 12).
        order: The slots in an order that those of each person keep, shape (n_slots,).

    Returns:
        The slots in the new order, and whether another person begins there, each of shape (n_slots,).
    """
    heads = heads_of(digests)
    tails = np.ascontiguousarray(digests[:, 8:]).view("<u4")[:, 0]
    order = order[np.lexsort((tails[order], heads[order]))]
    return order, differs(heads[order]) | differs(tails[order])


def heads_of(digests: Digests) -> npt.NDArray[np.uint64]:
    """The first 64 bits of some digests."""
    return np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0]


def is_among(digests: Digests, known: Digests) -> npt.NDArray[np.bool_]:
    """Whether each slot is of one of these persons, of whom nobody is blank, shape (n_slots,). Private."""
    return np.isin(keys_of(digests), keys_of(known))


def keys_of(digests: Digests) -> npt.NDArray[np.bytes_]:
    """Digests as values that have an order, shape (n_slots,); b"" for nobody."""
    return np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").reshape(-1)


def differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value is another one than that before it; the first one is."""
    found = np.ones(len(values), dtype=np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found


@dataclass(frozen=True, eq=False)
class Slots:
    """Says whose the rows in some slots are. Private.

    Attributes:
        digests: The digest of each slot's key, shape (n_slots, 12); all zero where the slot is blank.
        ranks: The rank of each slot, shape (n_slots,).
        own: The own key of the row in each slot. None where rows have none.
    """

    digests: Digests = field(repr=False)
    ranks: Ranks = field(repr=False)
    own: OwnKeys | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def columns(self) -> dict[str, npt.NDArray[np.uint32]]:
        """The same as columns of 32 bits, by ``WHOSE_COLUMNS``."""
        return self.owners | words_of("rank", self.ranks.view(np.uint8).reshape(-1, 8))

    @property
    def owners(self) -> dict[str, npt.NDArray[np.uint32]]:
        """The same without the ranks, by ``OWNERS``."""
        found = words_of("digest", self.digests)
        return found if self.own is None else found | words_of("own", self._own_bytes)

    @property
    def _own_bytes(self) -> npt.NDArray[np.uint8]:
        assert self.own is not None, "these rows have keys of their own"
        return self.own.view(np.uint8).reshape(-1, 8)

    @classmethod
    def of_columns(cls, columns: Mapping[str, npt.NDArray[Any]]) -> Slots:
        """Inverse of ``columns``, and of ``owners``, whose slots have no ranks."""
        digests = bytes_of("digest", columns)
        ranks = np.zeros(len(digests), np.uint64)
        if "rank 0" in columns:
            ranks = bytes_of("rank", columns).view("<u8").reshape(-1)
        own = bytes_of("own", columns).view("<u8").reshape(-1) if "own 0" in columns else None
        return cls(digests, ranks, own)

    @classmethod
    def concat(cls, parts: Iterable[Slots]) -> Slots:
        """All slots of ``parts`` (at least one) in order. All rows have keys of their own, or none has."""
        parts = [*parts]
        own = [part.own for part in parts if part.own is not None]
        assert len(own) in (0, len(parts)), "all rows have keys of their own, or none has"
        return cls(
            np.concatenate([part.digests for part in parts]),
            np.concatenate([part.ranks for part in parts]),
            np.concatenate(own) if own else None,
        )

    def of(self, part_of: slice) -> Slots:
        """Some of these slots."""
        own = None if self.own is None else self.own[part_of]
        return Slots(self.digests[part_of], self.ranks[part_of], own)

    def blanked(self, kept: npt.NDArray[np.bool_]) -> Slots:
        """The same with blank slots in place of those that are not kept, shape (n_slots,)."""
        digests = self.digests * kept[:, None].astype(np.uint8)
        own = None if self.own is None else self.own * kept.astype(np.uint64)
        return Slots(digests, self.ranks, own)

    @property
    def newest(self) -> npt.NDArray[np.bool_]:
        """Marks the last slot of each row that has a key of its own, and all of others, shape (n_slots,)."""
        if self.own is None:
            return np.ones(len(self), dtype=np.bool_)
        # Two persons may have keys with one digest, and the row of one is not to hide that of the other.
        heads = heads_of(self.digests)
        order = np.lexsort((heads, self.own))[::-1]  # from the last one to the first
        newest = np.empty(len(self), dtype=np.bool_)
        newest[order] = differs(self.own[order]) | differs(heads[order])
        newest |= self.own == 0
        return newest

    def counted(self, most: int | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Marks the slots that count, shape (n_slots,): of each person those of least rank, blank ones never.

        Args:
            most: The most slots of a person that may count; one number for all, or one for each slot, shape
                (n_slots,), which is then the same for all slots of a person.
        """
        # Stable: equal ranks stay in the order of the log.
        order, begins = by_person(self.digests, np.argsort(self.ranks, kind="stable"))
        place = np.arange(len(order))
        before = place - np.maximum.accumulate(np.where(begins, place, 0))
        marked = np.empty(len(order), dtype=np.bool_)
        marked[order] = before < np.broadcast_to(most, len(order))[order]
        return marked & self.digests.any(axis=1)


@dataclass(frozen=True)
class Persons:
    """Reads whose the rows of one batch are.

    Attributes:
        key: The name of the column that says whose row it is.
        secret: The secret of the data set, 32 bytes.
        batch_id: The id of the batch.
        row: The name of the column with the row's own key. None where rows have none.
    """

    key: str
    secret: bytes = field(repr=False)
    batch_id: str
    row: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that say whose row it is, and which."""
        return (self.key,) if self.row is None else (self.key, self.row)

    def digests(self, column: Sequence[object] | npt.NDArray[Any]) -> Digests:
        """See ``digests``."""
        return digests(self.secret, column)

    def slots(
        self,
        of_persons: Digests,
        keys: tuple[Sequence[object] | npt.NDArray[Any], ...] = (),
    ) -> Slots:
        """The slots of the rows of these persons; with ``keys`` also the own key of each row.

        Args:
            of_persons: The digest of each slot's person.
            keys: The person of each row, and its own key. Empty where rows have none.
        """
        own = own_keys(self.secret, *keys) if keys else None
        return Slots(of_persons, ranks(self.secret, self.batch_id, len(of_persons)), own)


@dataclass(frozen=True)
class PersonSecret:
    """The secret of a data set that its digests and ranks are made with; private.

    Attributes:
        value: The secret, 32 bytes.
        of_file: Whether it follows from a key file. Then it is not stored: what is stored only tells whether
            the file is the right one, and undoes no digest without it.
    """

    value: bytes = field(repr=False)
    of_file: bool

    _FORMAT: ClassVar[Format] = Format("secret of persons")

    @classmethod
    def new(cls, noise: NoiseSource, dataset: str, key_file: bytes | None) -> Self:
        """The secret of a new data set: by the key file if there is one, else drawn.

        Args:
            noise: The source of randomness.
            dataset: The name of the data set.
            key_file: What the key file holds; None without one.
        """
        if key_file is None:
            return cls(bytes(noise.uniform(256, _SECRET_BYTES).tolist()), of_file=False)
        return cls(_of_file(key_file, dataset), of_file=True)

    def to_bytes(self) -> bytes:
        """Bytes from which the secret is found again, with the key file if it follows from one."""
        stored = _check(self.value) if self.of_file else self.value
        return self._FORMAT.pack(fields("?", self.of_file), stored)

    @classmethod
    def from_bytes(cls, data: bytes, dataset: str, key_file: bytes | None) -> Self:
        """Inverse of ``to_bytes``.

        A secret that was drawn stays the secret, whether there is a key file by now or not: with another one
        a person whose rows wait would become two.

        Raises:
            CorruptState: An unknown version, or a wrong length.
            WrongKeyFile: The secret follows from a key file, and this is not that file.
        """
        reader = cls._FORMAT.read(data)
        (of_file,) = reader.fields("?")
        stored = reader.take(_SECRET_BYTES)
        reader.end()
        if not of_file:
            return cls(stored, of_file=False)
        value = None if key_file is None else _of_file(key_file, dataset)
        if value is None or _check(value) != stored:
            raise WrongKeyFile(dataset)
        return cls(value, of_file=True)


def _of_file(key_file: bytes, dataset: str) -> bytes:
    key = blake2b(key_file).digest()
    return blake2b(dataset.encode(), digest_size=_SECRET_BYTES, key=key).digest()


def _check(secret: bytes) -> bytes:
    return blake2b(b"check", digest_size=_SECRET_BYTES, key=secret).digest()
