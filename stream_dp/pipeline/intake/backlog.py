"""Records that were taken and are not finished, and how much of them one step may come to.

What one step does of a data set is bounded, so that no data set keeps the others waiting for longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from stream_dp.errors import InvalidMessage
from stream_dp.messages import QueryFields
from stream_dp.pipeline.intake.decoder import Ask, BadQuery, QuoteTogether, Request
from stream_dp.pipeline.intake.ownership import GROUP_SIZE, MOST_IN_HAND
from stream_dp.pipeline.intake.records import Record

MOST_VALUES = 2**18
"""Values that the answers to the queries of one record may have; the others are rejected."""

_STEP_QUERIES = 512
_STEP_VALUES = 2**16

ValuesOf = Callable[[str, QueryFields | BadQuery], int]


@dataclass
class Piece:
    """The unfinished part of a record: all of it, or the queries that no step has come to yet.

    Attributes:
        request: The request that the record makes. None if the record was rejected unread.
        values: The number of values in the answers to the record's queries so far.
        done: The number of its queries that earlier steps have come to.
        suspect: Whether workers have died of the record again and again.
        finished: Whether nothing of it is left.
        admitted: Whether its sender may ask, or why not. None until it is decided, once for a record.
        arrival: Grows with each record that was taken.
    """

    record: Record
    request: Request | None
    values: int = 0
    done: int = 0
    suspect: bool = False
    finished: bool = False
    admitted: InvalidMessage | bool | None = None
    arrival: int = 0

    @property
    def dataset(self) -> str:
        """The data set that the record is about. Empty if it is about none."""
        return "" if self.request is None else self.request.dataset


class Backlog:
    """The pieces of each data set, in the order of its records."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Piece]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def accepts(self) -> bool:
        """Whether so few records wait that another group may be taken."""
        return len(self) <= MOST_IN_HAND - GROUP_SIZE

    def add(self, piece: Piece) -> None:
        """Puts a piece behind those of its data set."""
        self._arrivals += 1
        piece.arrival = self._arrivals
        self._waiting.setdefault(piece.dataset, deque()).append(piece)

    def __iter__(self) -> Iterator[Piece]:
        return chain.from_iterable(self._waiting.values())

    def step(self, values_of: ValuesOf) -> list[tuple[Piece, Request | None]]:
        """Returns the part of each piece that one step does, with a bound for each data set.

        Args:
            values_of: Returns the number of values that the answer to a query on a data set may have.
        """
        return [part for pieces in self._waiting.values() for part in _step_of(pieces, values_of)]

    def unfinished(self, but: Container[int] = ()) -> dict[str, int]:
        """``topic:partition`` -> the offset of the first record there that is taken and not finished.

        Args:
            but: The arrivals of pieces that do not count.
        """
        found: dict[str, int] = {}
        for piece in self:
            if not piece.finished and piece.arrival not in but:
                key, offset = piece.record.topic_partition, piece.record.offset
                found[key] = min(offset, found.get(key, offset))
        return found

    def keep(self, is_mine: Callable[[Record], bool]) -> None:
        """Drops what was revoked. Its next owner reads it again, and so does this worker if it is that."""
        for name in list(self._waiting):
            self._drop(name, lambda piece: not is_mine(piece.record))

    def drop_finished(self, name: str) -> bool:
        """Drops the finished pieces of a data set, which then stands behind all others.

        Returns:
            Whether some are left.
        """
        return self._drop(name, lambda piece: piece.finished)

    def _drop(self, name: str, goes: Callable[[Piece], bool]) -> bool:
        left = deque(piece for piece in self._waiting.pop(name, ()) if not goes(piece))
        if left:
            self._waiting[name] = left
        return bool(left)


def _step_of(
    pieces: Iterable[Piece], values_of: ValuesOf
) -> Iterator[tuple[Piece, Request | None]]:
    """Yields the parts of the pieces of one data set, up to a number of queries and of values."""
    queries = values = 0
    for piece in pieces:
        request = piece.request
        if queries >= _STEP_QUERIES:
            return
        if not isinstance(request, Ask):
            queries += len(request.queries) if isinstance(request, QuoteTogether) else 1
            yield piece, request
            continue
        part, total = 0, piece.values
        for query in request.queries:
            size = values_of(piece.dataset, query)
            total += size
            # What passes the bound of a record is rejected, which takes no room.
            wanted = size if total <= MOST_VALUES else 0
            if queries and (queries >= _STEP_QUERIES or values + wanted > _STEP_VALUES):
                break
            part, queries, values = part + 1, queries + 1, values + wanted
        if part:
            whole = part == len(request.queries)
            yield piece, request if whole else replace(request, queries=request.queries[:part])
        if part < len(request.queries):
            return
