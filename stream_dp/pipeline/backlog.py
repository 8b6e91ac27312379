"""Records that were taken and are not finished, and how much of them one step may come to.

What one step does of a data set is bounded, so that no data set keeps the others waiting for longer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from stream_dp.errors import InvalidMessage
from stream_dp.messages import QueryFields
from stream_dp.pipeline.decoding import Ask, BadQuery, QuoteTogether, Request
from stream_dp.pipeline.ownership import GROUP_SIZE, MOST_IN_HAND
from stream_dp.pipeline.records import Record

__all__ = ["MOST_VALUES", "Backlog", "Piece", "step_of"]

MOST_VALUES = 2**18
"""Values that the answers to the queries of one record may have; the others are rejected."""

_STEP_QUERIES = 512
_STEP_VALUES = 2**16


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

    def due(self) -> list[Piece]:
        """The next records of each data set, as many as one step may come to."""
        due: list[Piece] = []
        for pieces in self._waiting.values():
            queries = 0
            for piece in pieces:
                due.append(piece)
                request = piece.request
                queries += len(request.queries) if isinstance(request, Ask | QuoteTogether) else 1
                if queries >= _STEP_QUERIES:
                    break
        return due

    def unfinished(self, but: Container[int] = ()) -> dict[str, int]:
        """``topic:partition`` -> the offset of the first record there that is taken and not finished.

        Args:
            but: The arrivals of pieces that do not count.
        """
        found: dict[str, int] = {}
        for pieces in self._waiting.values():
            for piece in pieces:
                if piece.finished or piece.arrival in but:
                    continue
                key, offset = piece.record.topic_partition, piece.record.offset
                found[key] = min(offset, found.get(key, offset))
        return found

    def keep(self, is_mine: Callable[[Record], bool]) -> None:
        """Drops what was revoked. Its next owner reads it again, and so does this worker if it is that."""
        for name, pieces in list(self._waiting.items()):
            mine = deque(piece for piece in pieces if is_mine(piece.record))
            if mine:
                self._waiting[name] = mine
            else:
                del self._waiting[name]

    def drop_finished(self, name: str) -> bool:
        """Drops the finished pieces of a data set, which then stands behind all others.

        Returns:
            Whether some are left.
        """
        left = deque(piece for piece in self._waiting.pop(name, ()) if not piece.finished)
        if left:
            self._waiting[name] = left
        return bool(left)


def step_of(
    pieces: Iterable[Piece], values_of: Callable[[str, QueryFields | BadQuery], int]
) -> list[tuple[Piece, Request | None]]:
    """Returns the part of each piece that one step does, with a bound on queries and values per data set.

    Args:
        pieces: The unfinished part of each record.
        values_of: Returns the number of values that the answer to a query on a data set may have.
    """
    steps: list[tuple[Piece, Request | None]] = []
    queries: Counter[str] = Counter()
    values: Counter[str] = Counter()
    full: set[str] = set()
    for piece in pieces:
        name, request = piece.dataset, piece.request
        if name in full:
            continue
        if isinstance(request, Ask):
            part, total = 0, piece.values
            for query in request.queries:
                size = values_of(name, query)
                total += size
                # What passes the bound of a record is rejected, which takes no room.
                wanted = size if total <= MOST_VALUES else 0
                has_room = queries[name] < _STEP_QUERIES and values[name] + wanted <= _STEP_VALUES
                if queries[name] and not has_room:
                    full.add(name)
                    break
                queries[name] += 1
                values[name] += wanted
                part += 1
            if part == 0:
                continue
            if part < len(request.queries):
                request = replace(request, queries=request.queries[:part])
        steps.append((piece, request))
    return steps
