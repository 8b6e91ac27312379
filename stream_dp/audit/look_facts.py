"""The facts that all looks have: what they read, what it costs each block, and who has paid for which run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from stream_dp.audit.cell_count import size_of
from stream_dp.audit.line_limits import Due, Line, LookLoss
from stream_dp.audit.numbers import Wrong, window
from stream_dp.messages import AttributeSpec, Definition

Look: TypeAlias = Mapping[str, Any]
Owed: TypeAlias = Iterator[tuple[int, Due]]


def sizes_of(definition: Definition) -> tuple[int, ...]:
    """Cells of each attribute."""
    return tuple(map(size_of, definition.attributes))


def erased(definition: Definition, phases: int) -> int:
    """Returns the number of first phases without rows, once this number of phases has opened."""
    kept = definition.kept_phases
    return 0 if kept is None else max(phases - kept, 0)


def each_of(blocks: Iterable[int], line: Line, loss: LookLoss) -> Owed:
    """The price of a look that causes each of these blocks the same loss."""
    due = line.due(loss)
    return ((block, due) for block in blocks)


class OpenBlocks:
    """The blocks that looks may read.

    Attributes:
        attributes: Each attribute that looks may name by its number, those of all versions.
        sizes: The number of cells of each.
        rows: The number of rows of each open block.
    """

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.attributes = list(definition.attributes)
        self.sizes = list(sizes_of(definition))
        self.rows: Sequence[int] = ()
        self._versions = [(0, dict(enumerate(self.attributes)))]

    def change(
        self, attributes: Sequence[AttributeSpec], indices: Sequence[int], first: int
    ) -> None:
        """Takes another version of the attributes.

        Args:
            attributes: The attributes.
            indices: The number by which looks name each attribute.
            first: The first block with them.
        """
        if first < len(self.rows):
            raise Wrong(f"it changes the attributes of phase {first + 1}, which is open")
        if len(indices) != len(attributes) or len(set(indices)) != len(indices):
            raise Wrong("it does not give each attribute a number of its own")
        for index, attribute in sorted(zip(indices, attributes, strict=True), key=itemgetter(0)):
            size = size_of(attribute)
            if index == len(self.sizes):
                self.attributes.append(attribute)
                self.sizes.append(size)
            elif index > len(self.sizes) or self.sizes[index] != size:
                raise Wrong(f"it gives number {index} to an attribute that cannot have it")
            else:
                self.attributes[index] = attribute
        self._versions.append((first, dict(zip(indices, attributes, strict=True))))

    def has(self, block: int, attributes: Iterable[int]) -> Mapping[int, AttributeSpec]:
        """The attributes that the rows of a block have, by their numbers. Refuses a look at others."""
        known = next((of for first, of in reversed(self._versions) if first <= block), {})
        if not known.keys() >= {*attributes}:
            raise Wrong(f"it reads attributes that the rows of phase {block + 1} do not have")
        return known

    def window(self, look: Look) -> range:
        """The phases that a look is about; all of them are open."""
        found = window(look)
        if found.stop > len(self.rows):
            raise Wrong(f"it reads phase {found.stop}, which is not open yet")
        self.has_rows(found.start)
        return found

    def is_erased(self, block: int) -> bool:
        """Whether the rows of a block were erased when the newest phase opened."""
        return block < erased(self._definition, len(self.rows))

    def has_rows(self, block: int) -> None:
        """Refuses a look at rows that were erased when the newest phase opened."""
        if self.is_erased(block):
            raise Wrong(f"it reads phase {block + 1}, whose rows are erased")


@dataclass(slots=True)
class _Paid:
    """A run or a segment: one secret, paid for once by each block that it reads.

    Attributes:
        facts: The facts that must be the same in all of its looks.
    """

    facts: tuple[object, ...]
    blocks: set[int] = field(default_factory=set)


class Runs:
    """Who has paid for which run and segment."""

    def __init__(self) -> None:
        self._paid: dict[str, dict[int, _Paid]] = {}

    def begins(self, name: str, number: int) -> bool:
        """Whether nobody has paid for a run or a segment yet."""
        return number not in self._paid.get(name, {})

    def joining(
        self, name: str, number: int, facts: tuple[object, ...], blocks: Iterable[int]
    ) -> list[int]:
        """Those of ``blocks`` that pay for a run or a segment with this look."""
        known = self._paid.setdefault(name, {})
        if number == len(known) + 1:
            known[number] = _Paid(facts)
        if number not in known:
            raise Wrong(f"it is of {name} {number}, after {name} {len(known)}")
        if known[number].facts != facts:
            raise Wrong(f"the scales of {name} {number} are not those that it began with")
        unpaid = [block for block in blocks if block not in known[number].blocks]
        known[number].blocks.update(unpaid)
        return unpaid
