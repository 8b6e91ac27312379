"""What ``stream-dp doctor`` has found: a fact, whether it is as it should be, and the fix."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from stream_dp.errors import StreamDPError


class DoctorFinding(NamedTuple):
    """One finding, as it is printed.

    Attributes:
        health: Whether it is as it should be. Only what is bad fails the command.
        finding: The fact.
        fix: What to do about it. Empty if nothing need be done.
    """

    health: Literal["good", "note", "bad"]
    finding: str
    fix: str = ""


good, note, bad = (partial(DoctorFinding, health) for health in ("good", "note", "bad"))


def fault_of(error: StreamDPError) -> DoctorFinding:
    """Splits the sentence of an error into the fault and its fix."""
    said, _, fix = str(error).partition("; ")
    return bad(said, fix)
