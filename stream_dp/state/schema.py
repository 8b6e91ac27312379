"""What is durable of a data set: pairs in tables, the commits that put them, and what these add up to.

The state of a data set is a map of pairs ``(table, key) -> bytes``. A commit is the list of the pairs that it
puts, with absolute values, so that to apply it twice changes nothing. Records of the journal, checkpoints and
the view in Redis are made of pairs. So a new durable field is a line in ``StateTable``, the place where it
is put, and the place where it is used.

The commits of a data set form a chain: ``trail = SHA-256(trail before it + content)``, from 32 zero bytes.
The content names the trail before it, so a commit fits one place of one history only. Its nonce keeps two
histories apart that would say the same. ``sum`` adds a digest of each pair, modulo 2^128. It finds faults,
not attackers.

Rows and secrets are in no pair. Where they are kept, a pair names them.
"""

from __future__ import annotations

import enum
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Final

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.encoding import Format, Reader, fields, part
from stream_dp.errors import CorruptState
from stream_dp.state.private_names import Named

TRAIL_BYTES: Final = 32
NONCE_BYTES: Final = 16
_SUM_BYTES: Final = 16

ORIGIN: Final = bytes(TRAIL_BYTES)
"""The trail of a data set before its first commit."""

_PAIR_BYTES: Final = 16  # that a pair takes beside its key and its value

_HEAD_BYTES: Final = 1_000
_SMALL: Final = 1 << 14  # bytes of a content that is compressed with little memory
_LARGEST: Final = 1 << 31  # of a content; zlib would make anything of a few bytes

_COMMIT = Format("commit")
_CHECKPOINT = Format("checkpoint")


class StateTable(enum.IntEnum):
    """The tables of a data set. A number is never used again."""

    DEFINITION = 1
    """"" -> the definition."""
    FACT = 2
    """Name -> text. Public counters and flags."""
    CURSOR = 3
    """``topic:partition``, source or producer -> the next offset, or number. Never backwards."""
    SPENT = 4
    """Block -> "rho delta" in units of its budget / 2^50. Never less, and never above the line."""
    TRANSCRIPT = 5
    """Number -> what was published, in order."""
    INTENT = 6
    """The commit that announced looks -> the looks. Dropped when they are settled."""
    VERIFIED = 7
    """Query -> a verified answer that is kept for repeats."""
    WAITING = 8
    """Number -> the place of rows that wait, see ``pipeline.rows.waiting.waiting_rows``."""
    KEPT = 9
    """What, such as "block 12" -> the name and the place of a private value, see ``state.private_names``."""
    RUNNING = 10
    """A period, and its number with that of a tick -> what running totals cost, and what they published."""
    ANSWER = 20
    """"analyst id" -> the digest of the request, then the answer."""
    OUTCOME = 21
    """The id of a batch -> its outcome."""
    TAKEN = 22
    """The id of a batch whose rows count -> nothing. It stays where outcomes go after some days."""


BY_ID: Final = frozenset({StateTable.ANSWER, StateTable.OUTCOME, StateTable.TAKEN})
"""Found by the index of ids. In no state, and not summed."""

ROTATED: Final = (StateTable.FACT, b"answers rotated")
"""The fact that says when answers did last. A commit that puts it drops those of before the last time."""

ERASED: Final = "gone "
"""How the keys of private values begin that are to be erased, and are named until they are. Such a key ends
with the value's name, in hexadecimal digits."""

_NUMBERS: Final = {
    StateTable.CURSOR: 1,
    StateTable.SPENT: 2,
}  # how many; none of them ever decreases
_ONCE = frozenset({StateTable.DEFINITION, StateTable.TRANSCRIPT})

Pair = tuple[StateTable, bytes]
Pairs = Mapping[Pair, bytes | None]
"""What is put. None for a pair that is dropped."""

_TABLES: Final[dict[int, StateTable]] = {int(table): table for table in StateTable}


def _packed(pairs: Pairs) -> bytes:
    parts = [fields(">I", len(pairs))]
    for (table, key), value in pairs.items():
        parts += (bytes((table,)), part(key), part(value))
    return b"".join(parts)


def _unpacked(reader: Reader) -> dict[Pair, bytes | None]:
    (count,) = reader.fields(">I")
    found: dict[Pair, bytes | None] = {}
    for _ in range(count):
        number = reader.take(1)[0]
        reader.require(number in _TABLES, "has a table unknown to this release")
        key = reader.required()
        found[_TABLES[number], key] = reader.part()
    reader.require(len(found) == count, "has a pair twice")
    return found


def weight(pair: Pair, value: bytes | None) -> int:
    """What a pair adds to the sum of a state."""
    if value is None or pair[0] in BY_ID:
        return 0
    content = b"".join((bytes((pair[0],)), part(pair[1]), value))
    return int.from_bytes(hashlib.blake2b(content, digest_size=_SUM_BYTES).digest())


def sum_of(pairs: Mapping[Pair, bytes]) -> int:
    """The sum of a state with these pairs."""
    return sum(weight(pair, value) for pair, value in pairs.items()) % 2**128


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of a data set.

    Attributes:
        dataset: The name of the data set.
        number: The number of commits with this one.
        prev: The trail before it, 32 bytes.
        nonce: Random bytes of its drafter, 16.
        pairs: What it puts.
        sum: The sum of the state after it.
        out: What leaves after it, see ``codec.outbox_to_bytes``.
    """

    dataset: str
    number: int
    prev: bytes
    nonce: bytes
    pairs: Pairs = field(repr=False)
    sum: int
    out: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> tuple[bytes, bytes]:
        """What the journal has of it, and the trail behind it."""
        content = b"".join(
            (
                part(self.dataset.encode()),
                fields(">Q", self.number),
                self.prev,
                self.nonce,
                self.sum.to_bytes(_SUM_BYTES),
                part(self.out),
                _packed(self.pairs),
            )
        )
        return _COMMIT.pack(_compressed(content)), _after(self.prev, content)

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[Commit, bytes]:
        """The commit, and the trail behind it. Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        content = _decompressed(_COMMIT.read(data).rest(), _COMMIT.name)
        reader = Reader(content, _COMMIT.name)
        commit = cls(
            dataset=reader.required_text(),
            number=reader.fields(">Q")[0],
            prev=reader.take(TRAIL_BYTES),
            nonce=reader.take(NONCE_BYTES),
            sum=int.from_bytes(reader.take(_SUM_BYTES)),
            out=reader.required(),
            pairs=_unpacked(reader),
        )
        reader.end()
        return commit, _after(commit.prev, content)

    @classmethod
    def number_in(cls, data: bytes) -> int:
        """The number of a commit, without the work of decoding the rest.

        Raises:
            CorruptState: The bytes do not decode.
        """
        return _number_in(_COMMIT.read(data).rest())

    @property
    def rotates(self) -> bool:
        """Whether it begins a generation of answers, which drops those of before the last rotation."""
        return ROTATED in self.pairs

    def erased(self) -> list[Named]:
        """The private values that nobody may keep after it."""
        return [
            Named.from_bytes(value)
            for (table, key), value in self.pairs.items()
            if table is StateTable.KEPT and key.startswith(ERASED.encode()) and value is not None
        ]

    def by_id(self) -> Iterator[tuple[Pair, bytes]]:
        """What it puts that the index of ids finds."""
        for pair, value in self.pairs.items():
            if pair[0] in BY_ID and value is not None:
                yield pair, value


@dataclass(slots=True)
class State:
    """What the commits of a data set add up to. Its owner and every reader add up by the same rules.

    Attributes:
        dataset: The name of the data set.
        number: The number of commits so far.
        trail: The trail behind the last of them, 32 bytes.
        sum: The sum of the pairs.
        pairs: The pairs, without answers and outcomes.
        n_bytes: The bytes of the pairs, nearly.
    """

    dataset: str
    number: int = 0
    trail: bytes = ORIGIN
    sum: int = 0
    pairs: dict[Pair, bytes] = field(default_factory=dict, repr=False)
    n_bytes: int = field(default=-1, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_bytes < 0:
            self.n_bytes = sum(_size(pair, value) for pair, value in self.pairs.items())

    def table(self, table: StateTable) -> dict[bytes, bytes]:
        """The pairs of a table, by their keys."""
        return {key: value for (of, key), value in self.pairs.items() if of is table}

    def fact(self, name: str) -> str:
        """A fact. Empty if there is none."""
        return self.pairs.get((StateTable.FACT, name.encode()), b"").decode()

    def numbered(self, table: StateTable) -> list[bytes]:
        """The values of a table whose keys are numbers, in their order."""
        found = self.table(table)
        return [found[key] for key in sorted(found, key=int)]

    def kept(self) -> set[bytes]:
        """The names of the private values that it has, without those that are to be erased."""
        return {
            Named.from_bytes(named).name
            for what, named in self.table(StateTable.KEPT).items()
            if not what.startswith(ERASED.encode())
        }

    def drafted(self, pairs: Pairs, *, nonce: bytes | None = None, out: bytes = b"") -> Commit:
        """The next commit, for ``apply``.

        Args:
            pairs: What it puts.
            nonce: Its nonce. None draws one.
            out: What leaves after it.
        """
        return Commit(
            dataset=self.dataset,
            number=self.number + 1,
            prev=self.trail,
            nonce=token_bytes(NONCE_BYTES) if nonce is None else nonce,
            pairs=pairs,
            sum=self._sum_after(pairs),
            out=out,
        )

    def apply(self, commit: Commit, trail: bytes) -> bool:
        """Takes the next commit; returns False for one that is there already, as after a lost reply.

        Args:
            commit: The commit.
            trail: The trail behind it.

        Raises:
            CorruptState: It does not continue the state. Nothing is taken of it.
        """
        if commit.number <= self.number:
            return False
        next_one = self.dataset, self.number + 1, self.trail
        if (commit.dataset, commit.number, commit.prev) != next_one:
            raise CorruptState(
                f"{self.dataset}: commit {commit.number} does not continue commit {self.number}"
            )
        self._check(commit.pairs)
        if self._sum_after(commit.pairs) != commit.sum:
            raise CorruptState(f"{self.dataset}: commit {commit.number} was made of another state")
        for pair, value in commit.pairs.items():
            if pair[0] in BY_ID:
                continue
            self.n_bytes += _size(pair, value) - _size(pair, self.pairs.get(pair))
            if value is None:
                self.pairs.pop(pair, None)
            else:
                self.pairs[pair] = value
        self.number, self.trail, self.sum = commit.number, trail, commit.sum
        return True

    def copied(self) -> State:
        """A copy that later commits leave as it is."""
        return replace(self, pairs=dict(self.pairs))

    def _sum_after(self, pairs: Pairs) -> int:
        gone = sum(weight(pair, self.pairs.get(pair)) for pair in pairs)
        return (
            self.sum - gone + sum(weight(pair, value) for pair, value in pairs.items())
        ) % 2**128

    def _check(self, pairs: Pairs) -> None:
        for pair, value in pairs.items():
            table, old = pair[0], self.pairs.get(pair)
            if table in _ONCE and None not in (old, value):
                raise CorruptState(f"{self.dataset}: a {table.name.lower()} would change")
            if table in _NUMBERS and not (old is None and value is None):
                self._check_numbers(pair, old, value or b"")

    def _check_numbers(self, pair: Pair, old: bytes | None, value: bytes) -> None:
        (table, key), count = pair, _NUMBERS[pair[0]]
        numbers = value.split()
        if len(numbers) != count or not all(number.isdigit() for number in numbers):
            raise CorruptState(f"{self.dataset}: a {table.name.lower()} does not decode")
        if table is StateTable.SPENT and max(map(int, numbers)) > UNITS:
            raise CorruptState(
                f"{self.dataset}: more than the line of block {key.decode()} is spent"
            )
        if old is not None and any(
            int(now) < int(before) for now, before in zip(numbers, old.split(), strict=True)
        ):
            raise CorruptState(f"{self.dataset}: a {table.name.lower()} would go backwards")


def _size(pair: Pair, value: bytes | None) -> int:
    return 0 if value is None else len(pair[1]) + len(value) + _PAIR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a data set as of the beginning of a round, see ``pipeline.journal.checkpoint_rounds``.

    Attributes:
        state: The state.
        carried: The answers and outcomes below it that are still kept, with their values. The journal is
            about to be cut there.
        ids: The number of ids of each generation that the index has, see ``state.ids``.
        restarts: Whether it begins a chain: what the journal has of the data set before counts no more.
    """

    state: State
    carried: Mapping[Pair, bytes] = field(default_factory=dict, repr=False)
    ids: bytes | memoryview = field(default=b"", repr=False)
    restarts: bool = False

    def to_bytes(self) -> bytes:
        """The checkpoint as bytes. The index comes last, and is not compressed: hashes do not shrink."""
        state = self.state
        content = b"".join(
            (
                part(state.dataset.encode()),
                fields(">Q?", state.number, self.restarts),
                state.trail,
                state.sum.to_bytes(_SUM_BYTES),
                _packed(state.pairs),
                _packed(self.carried),
            )
        )
        length = fields(">I", len(self.ids))
        return _CHECKPOINT.pack(part(_compressed(content)), length, self.ids)

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, their version is unknown, or the pairs are not those of the
                sum.
        """
        outer = _CHECKPOINT.read(data)
        compressed, ids = outer.required(), outer.shared()
        outer.end()
        reader = Reader(_decompressed(compressed, _CHECKPOINT.name), _CHECKPOINT.name)
        dataset = reader.required_text()
        number, restarts = reader.fields(">Q?")
        trail, said = reader.take(TRAIL_BYTES), int.from_bytes(reader.take(_SUM_BYTES))
        pairs, carried = _present(_unpacked(reader)), _present(_unpacked(reader))
        reader.end()
        if sum_of(pairs) != said:
            raise CorruptState(f"{dataset}: its state is not the one whose sum was committed")
        state = State(dataset, number, trail, said, pairs)
        return cls(state=state, carried=carried, ids=ids, restarts=restarts)

    @classmethod
    def number_in(cls, data: bytes) -> int:
        """The number of commits that a checkpoint adds up, as ``Commit.number_in``."""
        return _number_in(_CHECKPOINT.read(data).required())


def _number_in(compressed: bytes) -> int:
    """The number behind the name of the data set, where both come first."""
    try:
        reader = Reader(zlib.decompressobj().decompress(compressed, _HEAD_BYTES), "commit")
    except zlib.error:
        raise CorruptState("a stored commit does not decompress") from None
    reader.required()
    (number,) = reader.fields(">Q")
    return int(number)


def _present(pairs: Pairs) -> dict[Pair, bytes]:
    return {pair: value for pair, value in pairs.items() if value is not None}


def _after(prev: bytes, content: bytes) -> bytes:
    return hashlib.sha256(prev + content).digest()


def _compressed(content: bytes) -> bytes:
    """Compresses a content. ``zlib.compress`` spends most of its time on memory if that is small."""
    if len(content) > _SMALL:
        return zlib.compress(content, 1)
    small = zlib.compressobj(1, wbits=12, memLevel=5)
    return small.compress(content) + small.flush()


def _decompressed(compressed: bytes, name: str) -> bytes:
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(compressed, _LARGEST)
    except zlib.error:
        raise CorruptState(f"a stored {name} does not decompress") from None
    if not inflating.eof or inflating.unused_data:
        raise CorruptState(f"a stored {name} is cut short, too long or too large")
    return content
