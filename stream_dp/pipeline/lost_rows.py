"""What is said of rows that are nowhere any more: in the store until it is committed, then in the transcript.

When healing finds the rows of a phase neither kept nor among the batches, it seals nothing in their place,
and notes it among the secrets of the store, in the same commit. Before the data set is served, its owner
makes a commit of that: the first phases, up to the last one that is lost, have no rows from then on, as if
they were erased. So all who read the journal agree, and what was published goes on answering.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stream_dp.errors import CorruptState

__all__ = ["ENTRY", "GONE", "Gone", "given_up"]

GONE: Final = "gone"
"""The name of the note among the secrets of a data set, of which no look knows."""

ENTRY: Final = b"\x04"
"""The kind of the entry of the transcript that the note becomes."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Rows that are nowhere any more.

    Attributes:
        phases: The number of first phases that have no rows from now on.
        batches: The number of batches that waited for the next phase and are dropped.
    """

    phases: int = 0
    batches: int = 0

    def __bool__(self) -> bool:
        return self != Gone()

    def beyond(self, said: Gone) -> Gone:
        """Returns what is gone and was not given up by then: rows may be lost one after the other."""
        phases = self.phases if self.phases > said.phases else 0
        return Gone(phases, max(0, self.batches - said.batches))

    def to_bytes(self) -> bytes:
        """Two decimal numbers; empty if nothing is gone."""
        return b"%d %d" % (self.phases, self.batches) if self else b""

    @classmethod
    def from_bytes(cls, stored: bytes) -> Gone:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes are not such a note.
        """
        numbers = stored.split(b" ") if stored else [b"0", b"0"]
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise CorruptState("a note of rows that are gone does not decode")
        return cls(*map(int, numbers))


def given_up(transcript: Iterable[bytes]) -> list[Gone]:
    """What some entries of a transcript say of rows that are gone, in order."""
    return [Gone.from_bytes(entry[1:]) for entry in transcript if entry[:1] == ENTRY]
