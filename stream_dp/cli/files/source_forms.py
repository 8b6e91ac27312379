"""Shows an operator of which forms the messages of a source are. Nothing leaves this process.

How many messages cannot be read depends on what they hold. So a worker neither counts nor says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_dp.pipeline.intake.sources import is_framed


@dataclass
class Forms:
    """The forms of a topic's messages.

    Attributes:
        messages: The number of messages.
        empty: The number of those without a value, such as tombstones.
        framed: The number of those that are framed by a schema registry.
        strange: The number of others that are not JSON objects.
    """

    messages: int = 0
    empty: int = 0
    framed: int = 0
    strange: int = 0

    def take(self, values: Sequence[bytes | None], documents: Sequence[object]) -> None:
        """Examines messages, and the JSON objects that they are: None for those that are none."""
        for value, document in zip(values, documents, strict=True):
            if not value:
                self.empty += 1
            elif document is None and is_framed(value):
                self.framed += 1
            elif document is None:
                self.strange += 1
        self.messages += len(values)

    def complaints(self) -> Iterator[str]:
        """Yields what is wrong with the messages, each with its fix."""
        for count, what, fix in (
            (
                self.framed,
                "are framed by a schema registry (a byte 0 and the id of a schema come first)",
                "write plain JSON objects to a topic, and read that one",
            ),
            (
                self.strange,
                "are not JSON objects",
                "write JSON objects to a topic, and read that one",
            ),
            (
                self.empty,
                "have no value",
                "leave them out before, or let them be rows without values",
            ),
        ):
            if count:
                yield f"{count:,} of {self.messages:,} messages {what}, so their values are not read; {fix}"
        if self.framed + self.strange == self.messages - self.empty > 0:
            yield "no message is a JSON object, so a worker stops at this source; see docs/sources.md"
