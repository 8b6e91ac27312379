"""Replies that repeated an answer, to be given again to the same question as it was written.

A repeat follows from what was published, charged and allowed until then. While none of that changes, the same
words of the same analyst get the same bytes, but for the id. So nothing is compiled or answered for them.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_json

from stream_dp.messages import Answer, NoisyAnswer, QueryFields
from stream_dp.messages.precision import RelativeError

MOST_BYTES: Final = 2**22
"""The most bytes of replies and questions that are kept for one data set."""

_MOST_ALIKE: Final = 1024

_LARGEST: Final = 2**16
"""The most bytes of one reply that is kept."""

_WORDS: Final = frozenset(
    {
        *("version", "dataset", "analyst", "query_id"),
        *("kind", "where", "group_by", "window", "error", "at_most"),
    }
)
"""The fields of questions whose repeats are kept: they have no others."""

_KINDS: Final = ("predicate", "table")
_REPEAT: Final = "repeat"
_ID: Final = b'"query_id":'


@dataclass(frozen=True, slots=True)
class KnownReply:
    """A reply without the id of its query.

    Attributes:
        digest: The digest of the request.
    """

    digest: bytes
    _before: bytes = field(repr=False)
    _after: bytes = field(repr=False)

    @classmethod
    def of(cls, digest: bytes, value: bytes, query_id: str) -> KnownReply:
        """The reply with these bytes, to the query with this id."""
        head, _, rest = value.partition(_ID)
        return cls(digest, head + _ID, rest[len(to_json(query_id)) :])

    def to(self, query_id: str) -> bytes:
        """The same reply to another query."""
        return self._before + to_json(query_id) + self._after

    def __len__(self) -> int:
        return len(self._before) + len(self._after)


class KnownReplies:
    """The known replies of one data set, as of the last change of what is published, charged or allowed.

    Each method takes the number of changes until now, and forgets all if there are more than before.
    """

    def __init__(self) -> None:
        self._as_of = -1
        self._known: dict[bytes, KnownReply] = {}
        self._n_bytes = 0
        self._alike: dict[tuple[object, ...], NoisyAnswer] = {}

    def find(self, words: bytes, as_of: int) -> KnownReply | None:
        """The reply to a question, which has the words that ``words_of`` returns, if it is known."""
        self._begin(as_of)
        return self._known.get(words)

    def keep(self, words: bytes, as_of: int, reply: KnownReply) -> None:
        """Keeps a reply, for as long as nothing changes and there is room."""
        if len(reply) <= _LARGEST:
            self._begin(as_of)
            self._known[words] = reply
            self._n_bytes += len(words) + len(reply)

    def alike(self, as_of: int) -> dict[tuple[object, ...], NoisyAnswer]:
        """Counts by what makes them alike but for their ids and their numbers. The caller adds to them."""
        self._begin(as_of)
        return self._alike

    def _begin(self, as_of: int) -> None:
        if as_of != self._as_of or self._n_bytes > MOST_BYTES or len(self._alike) > _MOST_ALIKE:
            self._known.clear()
            self._alike.clear()
            self._as_of, self._n_bytes = as_of, 0


def words_of(analyst: str, query: QueryFields) -> bytes | None:
    """Who asks what, but for the id; None for a question whose reply may change while nothing else does.

    A window by date, as each is that has running, says which rows wait, and a relative error may be repeated
    with another bar.
    """
    window = query.window
    if (
        query.kind not in _KINDS
        or not query.model_fields_set <= _WORDS
        or isinstance(query.error, RelativeError)
        or (window is not None and window.last_phases is None and window.phases is None)
    ):
        return None
    error = query.error if query.error is None else repr(query.error)
    asked: Any = window and window.identity, error, query.at_most
    # Version 0: equal bytes for equal trees.
    return marshal.dumps((analyst, query.kind, query.where, query.group_by, asked), 0)


def is_repeat(reply: Answer) -> bool:
    """Whether a reply repeats an answer, so that it cost nothing and published nothing."""
    return isinstance(reply, NoisyAnswer) and reply.path == _REPEAT and reply.owner_pays is None
