"""What is said of rows that are nowhere any more: first among the facts, then in the transcript.

A look that does not find the rows of a phase notes it in a commit, and the worker ends. Before the data set
is served again, its owner makes a commit of that: the first phases, up to the last one that is lost, have no
rows from then on, as if they were erased. So all who read the journal agree, and what was published goes on
answering. Batches that are nowhere any more when they are read again are given up in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stream_dp.errors import CorruptState

GONE: Final = "rows gone"
"""The fact that says which rows are to be given up."""

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

    def to_text(self) -> str:
        """Two decimal numbers; empty if nothing is gone."""
        return f"{self.phases} {self.batches}" if self else ""

    @classmethod
    def from_text(cls, stored: str) -> Gone:
        """Inverse of ``to_text``.

        Raises:
            CorruptState: It is not such a note.
        """
        numbers = stored.split(" ") if stored else ["0", "0"]
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise CorruptState("a note of rows that are gone does not decode")
        return cls(*map(int, numbers))


def given_up(transcript: Iterable[bytes]) -> list[Gone]:
    """What some entries of a transcript say of rows that are gone, in order."""
    return [
        Gone.from_text(entry[1:].decode("ascii", "replace"))
        for entry in transcript
        if entry[:1] == ENTRY
    ]
