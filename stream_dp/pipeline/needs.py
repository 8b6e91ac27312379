"""What a rebuild of a data set needs of the journal, as the data set itself says it. Knows no broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["JOURNAL", "Needs"]

JOURNAL: Final = "journal"
"""The field among a data set's public facts that says what a rebuild of it needs of the journal."""

_NEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Needs:
    """What a rebuild of a data set needs of its partition of the journal. All of it is public.

    Attributes:
        partition: The partition, by a name that no partition of another topic has. Offsets mean nothing in
            any other one, such as that of a deployment to which the data set has moved.
        start: The offset of a checkpoint, from which on the journal makes the whole state. None if it needs
            all of the journal.
        newest: The newest checkpoints that are acknowledged, the oldest first: offset, and the name of what
            was kept of rows that waited then.
        rotated: The rotation of its answers that the newest one follows; empty if there was none.
    """

    partition: str
    start: int | None = None
    newest: tuple[tuple[int, str], ...] = ()
    rotated: str = ""

    def to_text(self) -> str:
        """The needs as a public fact of their data set."""
        said = {
            "partition": self.partition,
            "start": self.start,
            "newest": self.newest,
            "rotated": self.rotated,
        }
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def of(cls, meta: Mapping[str, str], partition: str) -> Needs:
        """What the public facts of a data set say, if they say it of this partition."""
        said = json.loads(meta.get(JOURNAL) or "{}")
        if said.get("partition") != partition:
            return cls(partition)
        newest = tuple((int(offset), str(waited)) for offset, waited in said["newest"])
        return cls(partition, said["start"], newest, said["rotated"])

    def after(self, offset: int, waiting: str, rotated: str, *, is_partial: bool) -> Needs:
        """What it needs when another checkpoint is acknowledged.

        A partial one is behind a rotation that came after the last one: so the last one is enough by now.
        """
        if not is_partial:
            return Needs(self.partition, offset, ((offset, waiting),), rotated)
        start = self.newest[-1][0] if self.newest else self.start
        newest = (*self.newest, (offset, waiting))[-_NEWEST:]
        return Needs(self.partition, start, newest, rotated)
