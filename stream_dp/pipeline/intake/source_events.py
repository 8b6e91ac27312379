"""Change events in the form of Debezium: which rows they create, and which they change.

An event that creates a row (``c``, and ``r`` of a snapshot) is a row of a batch. One that changes a row
(``u``) or removes it (``d``) is one of its corrections, and so is every other message, which changes nothing.
The operation alone decides that, whatever rows there are. A connector may send events again. One below the
position that was counted is blank, and so is one at it about the same row.

A position is that of the commit before the transaction of an event, and then that of the event: transactions
come in the order of their commits, and what they have written to the log of the database lies mixed there.
Rows that were written together have one position.

A batch's corrections are about rows of earlier batches. So an event about a row that the same batch creates
is done to that row, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from pydantic_core import from_json, to_json

from stream_dp.core.rows.person_slots import LONGEST_KEY
from stream_dp.messages import SourceRange
from stream_dp.pipeline.intake.source_packing import Packing, row_of

_CREATES: Final = frozenset("cr")
_OTHERS: Final = frozenset("udtm")
_COMMITTED: Final = (
    1 << 63
)  # in a position of which a commit is known; positions in the log are below it


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """What a message does.

    Attributes:
        does: It creates a row, sets it, removes it, or changes nothing.
        values: The values of the row, and its keys last.
    """

    does: Literal["create", "set", "remove", "nothing"]
    values: list[object] = field(repr=False)

    @property
    def row(self) -> tuple[object, object]:
        """The person and the own key of the row."""
        return self.values[-2], self.values[-1]


class Read(NamedTuple):
    """A message that was read.

    Attributes:
        event: What it does.
        is_event: Whether it has the form of an event.
        says_whose: Whether it says whose row it removes. None for one that removes none.
    """

    event: ChangeEvent
    is_event: bool = True
    says_whose: bool | None = None


@dataclass
class CountedEvents:
    """Up to where change events of a log are counted.

    Attributes:
        position: Their position: 128 bits.
        there: What events at that position were about. Private.
    """

    position: int = 0
    there: set[Hashable] = field(default_factory=set, repr=False)

    def takes(self, position: int, op: str, row: tuple[object, object]) -> bool:
        """Notes an event; returns whether it was not there before."""
        if position < self.position:
            return False
        if position > self.position:
            self.position, self.there = position, set()
        if op == "r" or None in row:  # a snapshot is all at one position
            return True
        is_new = (op, row) not in self.there
        self.there.add((op, row))
        return is_new


def event_of(
    document: Mapping[str, Any] | None,
    paths: Mapping[str, Sequence[str]],
    keys: Sequence[str],
    counted: CountedEvents,
) -> Read:
    """The event that a message is; one that is none changes nothing.

    Args:
        document: The message, with or without its schema. None where it is not a JSON object.
        paths: Where a row has the value of each attribute, and its keys last.
        keys: The columns with the person and the own key of a row.
        counted: Up to where events are counted. This one is added.

    Returns:
        What was read.
    """
    nothing = ChangeEvent("nothing", [None] * len(paths))
    event = (document or {}).get("payload", document)
    op = event.get("op") if isinstance(event, dict) else None
    if op not in _CREATES | _OTHERS:
        return Read(nothing, is_event=False)
    assert isinstance(event, dict), "it has an operation"
    before, after = (
        row_of(image if isinstance(image, dict) else None, paths, keys)
        for image in (event.get("before"), event.get("after"))
    )
    position, about = _position(event, counted.position), before if op == "d" else after
    if position is not None and not counted.takes(position, op, (about[-2], about[-1])):
        return Read(ChangeEvent("create", nothing.values) if op in _CREATES else nothing)
    if op in _CREATES:
        return Read(ChangeEvent("create", after))
    if op == "u" and isinstance(event.get("before"), dict) and before[-2:] != after[-2:]:
        # Its row stays where it is, and is another one's by now.
        return Read(nothing if None in before[-2:] else ChangeEvent("remove", before))
    if op == "u":
        return Read(ChangeEvent("set", after))
    if op != "d":
        return Read(nothing)
    return Read(ChangeEvent("remove", before), says_whose=before[-2] is not None)


def image_of(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The row of an event after it, or else before it; None where a message is not an event."""
    event = (document or {}).get("payload", document)
    images = (event.get("after"), event.get("before")) if isinstance(event, dict) else ()
    return next((image for image in images if isinstance(image, dict)), None)


def _position(event: Mapping[str, Any], counted: int) -> int | None:
    """The position of an event; None where it says none.

    ``source.sequence`` is text: a list of the positions in the log of the last commit and the event, as text.
    All rows of a snapshot have one position. Then events come that have no commit before them. Their
    transaction may have begun before the snapshot, and is not in it.
    """
    source = event.get("source")
    sequence = source.get("sequence") if isinstance(source, dict) else None
    try:
        commit, own = from_json(sequence if isinstance(sequence, str) else "")
        at, last = int(own), 0 if commit is None else int(commit)
    except (TypeError, ValueError):
        return None
    if not (0 <= last < _COMMITTED and 0 <= at < _COMMITTED):
        return None
    if event["op"] == "r":
        return at << 64
    if commit is None:
        return 0 if counted & _COMMITTED else counted >> 64 << 64 | at
    return last << 64 | _COMMITTED | at


class EventPacking(Packing):
    """Packs change events: those that create rows as columns, all others as corrections."""

    def batch(
        self, source_range: SourceRange, rows: Sequence[Any], about: str | None = None
    ) -> bytes:
        events, head = folded(rows), self._head(source_range, about)
        created = [event.values for event in events if event.does == "create"]
        others = [event for event in events if event.does != "create"]
        whole = self._packed([event.values for event in others])
        names = [name for name in whole if name not in self._keys]
        correct: list[dict[str, object] | None] = []
        for at, event in enumerate(others):
            about_row = {"person": event.values[-2], "row": event.values[-1]}
            if event.does == "nothing":
                correct.append(None)
            elif event.does == "remove":
                correct.append({**about_row, "erase": True})
            else:
                correct.append({**about_row, "set": {name: whole[name][at] for name in names}})
        return to_json({**head, "columns": self._packed(created), "correct": correct})

    def _largest(self, n_rows: int) -> int:
        names = sum(len(to_json(name)) + 2 for name in self._universe.names)
        entry = len(to_json({"person": "", "row": "", "set": {}})) + names + 2 * LONGEST_KEY
        none = {**self._longest_head, "columns": {name: [] for name in self._names}, "correct": []}
        return len(to_json(none)) + n_rows * (entry + self._longest_row)


def folded(events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Events; those about a row that one before them creates are done to that row, too."""
    found, created = list(events), dict[tuple[object, object], int]()
    for at, event in enumerate(events):
        known = None if None in event.row else created.get(event.row)
        if event.does == "create":
            created[event.row] = at
        if known is None or event.does == "nothing":
            continue
        if event.does == "set":
            found[known] = replace(found[known], values=event.values)
        else:  # it is removed, or comes again
            found[known] = replace(found[known], values=[None] * len(event.values))
        if event.does == "remove":
            del created[event.row]
    return found
