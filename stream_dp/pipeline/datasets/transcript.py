"""The transcript of a data set: what was published, entry by entry, as a restart folds it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from stream_dp.core.mechanism import Mechanism, Release
from stream_dp.errors import CorruptState
from stream_dp.messages import ChangeSchema
from stream_dp.pipeline.rows.lost_rows import ENTRY, given_up
from stream_dp.pipeline.rows.waiting.row_times import TimeSpan

PHASE: Final = b"\x00"
RELEASE: Final = b"\x01"
LOST: Final = b"\x02"
ENDED: Final = b"\x03"
SCHEMA: Final = b"\x05"
LATE: Final = b"\x06"
SWEEP: Final = b"\x07"


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
        elif kind == ENTRY:
            (gone,) = given_up([entry])
            if gone.phases:  # or batches alone
                mechanism.rows_gone(gone.phases)
        else:
            raise CorruptState(f"transcript entry of unknown kind {kind.hex()}")
    return releases
