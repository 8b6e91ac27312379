"""The transcript of a data set: what was published, entry by entry, as a restart folds it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stream_dp.core.mechanism import Mechanism, Release
from stream_dp.errors import CorruptState
from stream_dp.messages import ChangeSchema
from stream_dp.pipeline.rows.waiting.row_times import TimeSpan

PHASE: Final = b"\x00"
RELEASE: Final = b"\x01"
LOST: Final = b"\x02"
ENDED: Final = b"\x03"
GIVEN_UP: Final = b"\x04"
SCHEMA: Final = b"\x05"
LATE: Final = b"\x06"
SWEEP: Final = b"\x07"

GONE: Final = "rows gone"
"""The fact that says which rows are to be given up."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Rows that are nowhere any more, as it is said first among the facts, then in the transcript.

    A look that does not find the rows of a phase notes it in a commit, and the worker ends. Before the data
    set is served again, its owner makes a commit of that: the first phases, up to the last one that is lost,
    have no rows from then on, as if they were erased. So all who read the journal agree, and what was
    published goes on answering. Batches that are nowhere any more when they are read again are given up in
    the same way.

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


def phase_entry(n_rows: int, span: TimeSpan | None) -> bytes:
    """The entry of a phase: how many rows it has, and the stretch of time that it covers if that is known."""
    numbers = [n_rows] if span is None else [n_rows, span.since, span.until]
    return PHASE + " ".join(map(str, numbers)).encode()


def opening(entry: bytes) -> tuple[int, TimeSpan | None]:
    """Inverse of ``phase_entry``."""
    n_rows, *times = map(int, entry[1:].split())
    return n_rows, TimeSpan(*times) if times else None


def late_entry(n_rows: int) -> bytes:
    """The entry of the next phase that is complete: how many late rows it has got."""
    return LATE + b"%d" % n_rows


def late_rows(transcript: Sequence[bytes]) -> list[int]:
    """The number of late rows of each phase that is complete."""
    return [int(entry[1:]) for entry in transcript if entry[:1] == LATE]


def gone_entry(gone: Gone) -> bytes:
    """The entry of rows that are given up."""
    return GIVEN_UP + gone.to_text().encode()


def given_up(transcript: Iterable[bytes]) -> list[Gone]:
    """What some entries of a transcript say of rows that are gone, in order."""
    entries = (entry[1:] for entry in transcript if entry[:1] == GIVEN_UP)
    return [Gone.from_text(entry.decode("ascii", "replace")) for entry in entries]


def sweep_entry(changed: Mapping[int, int]) -> bytes:
    """The entry of a sweep: the blocks of which it may change rows, and at most how many of each."""
    return SWEEP + json.dumps([*changed.items()]).encode()


def swept(entry: bytes) -> dict[int, int]:
    """Inverse of ``sweep_entry``."""
    return dict(json.loads(entry[1:]))


def schema_entry(change: ChangeSchema, first_phase: int) -> bytes:
    """The entry of a version of the attributes."""
    return SCHEMA + b"%d " % first_phase + change.to_bytes()


def schema_in(entry: bytes) -> tuple[ChangeSchema, int]:
    """Inverse of ``schema_entry``."""
    phase, _, change = entry[1:].partition(b" ")
    return ChangeSchema.read(json.loads(change)), int(phase)


def fold(
    transcript: Sequence[bytes],
    mechanism: Mechanism,
    absorb: Callable[[Release], None],
    change: Callable[[ChangeSchema, int], None],
) -> int:
    """Folds a transcript into a fresh mechanism; returns the releases since the newest phase opened.

    Args:
        transcript: The entries.
        mechanism: The mechanism.
        absorb: Folds a release into it.
        change: Puts other attributes in force from a phase on.

    Raises:
        CorruptState: An entry is of an unknown kind.
    """
    releases = complete = 0
    for entry in transcript:
        kind, body = entry[:1], entry[1:]
        if kind == PHASE:
            mechanism.open_phase(opening(entry)[0])
            releases = 0
        elif kind == LATE:
            mechanism.complete(complete, *late_rows([entry]))
            complete += 1
        elif kind == SWEEP:
            for block, most in swept(entry).items():
                mechanism.changed_rows.add(block, most)
        elif kind == RELEASE:
            releases += 1
            absorb(mechanism.release_from_bytes(body))
        elif kind == LOST:
            mechanism.lost(json.loads(body))
        elif kind == SCHEMA:
            change(*schema_in(entry))
        elif kind == ENDED:
            mechanism.end_runs(json.loads(body))
        elif kind == GIVEN_UP:
            (gone,) = given_up([entry])
            if gone.phases:  # or batches alone
                mechanism.rows_gone(gone.phases)
        else:
            raise CorruptState(f"transcript entry of unknown kind {kind.hex()}")
    return releases
